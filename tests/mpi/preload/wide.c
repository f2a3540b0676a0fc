/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The Fortran functions of the preloaded library, with Fortran integers wider than an int (wide.h, which is included
 * first). Lists of counts reach MPI with the same numbers, and their copies are freed. One rank. The library's objects
 * are linked, and none is preloaded. */
#undef calloc
#undef free
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 5, PLACE = 7 };

void mpi_reduce_scatter_(const void *, void *, const int64_t *counts, const int64_t *type, const int64_t *op,
                         const int64_t *comm, int64_t *error);
void mpi_ireduce_scatter_(const void *, void *, const int64_t *counts, const int64_t *type, const int64_t *op,
                          const int64_t *comm, int64_t *request, int64_t *error);
void mpi_allgatherv_(const void *, const int64_t *count, const int64_t *sendtype, void *, const int64_t *counts,
                     const int64_t *displs, const int64_t *type, const int64_t *comm, int64_t *error);
void mpi_iallgatherv_(const void *, const int64_t *count, const int64_t *sendtype, void *, const int64_t *counts,
                      const int64_t *displs, const int64_t *type, const int64_t *comm, int64_t *request,
                      int64_t *error);

static int made, left; /* copies; those that are not freed */
static int passed, failed;
static int sent[COUNT], received[PLACE + COUNT];

void *wide_calloc(size_t n, size_t bytes);
void wide_free(void *p);

void *wide_calloc(size_t n, size_t bytes)
{
    void *p = calloc(n, bytes);
    made += p != NULL;
    left += p != NULL;
    return p;
}

void wide_free(void *p)
{
    left -= p != NULL;
    free(p);
}

static void clear(void)
{
    for (int i = 0; i < PLACE + COUNT; i++)
        received[i] = 0;
    made = 0;
}

/* The elements have arrived, at this place; this many lists were copied, and none is left. */
static void check(const char *what, int place, int lists, int64_t error)
{
    int good = !error && made == lists && !left;
    for (int i = 0; i < COUNT; i++)
        good = good && received[place + i] == sent[i];
    passed += good;
    failed += !good;
    if (!good)
        printf("FAIL %s: error %d, %d copies, %d left\n", what, (int)error, made, left);
}

static int64_t wait_for(int64_t request)
{
    MPI_Request in_c = MPI_Request_f2c((int)request);
    return MPI_Wait(&in_c, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    const int64_t count = COUNT, place = PLACE, type = MPI_Type_c2f(MPI_INT), op = MPI_Op_c2f(MPI_SUM),
                  comm = MPI_Comm_c2f(MPI_COMM_SELF);
    int64_t request = 0, error = -1;
    for (int i = 0; i < COUNT; i++)
        sent[i] = i + 1;
    clear();
    mpi_reduce_scatter_(sent, received, &count, &type, &op, &comm, &error);
    check("MPI_Reduce_scatter", 0, 1, error);
    clear();
    mpi_ireduce_scatter_(sent, received, &count, &type, &op, &comm, &request, &error);
    check("MPI_Ireduce_scatter", 0, 1, error ? error : wait_for(request));
    clear();
    mpi_allgatherv_(sent, &count, &type, received, &count, &place, &type, &comm, &error);
    check("MPI_Allgatherv", PLACE, 2, error);
    clear();
    mpi_iallgatherv_(sent, &count, &type, received, &count, &place, &type, &comm, &request, &error);
    check("MPI_Iallgatherv", PLACE, 2, error ? error : wait_for(request));
    MPI_Finalize();
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
