/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Open MPI's Fortran interfaces call PMPI_Allreduce, so that MPI_Allreduce in C never sees a Fortran program's call.
 * Programs with mpif.h or the module mpi call mpi_allreduce_, or their compiler's spelling of that name; the module
 * mpi_f08 calls ompi_allreduce_f. MPICH's interfaces call MPI_Allreduce. */
#include <mpi.h>

#if defined OPEN_MPI
#include <stddef.h>
#include <stdlib.h>

#include "preload/calls.h"
#include "preload/graph.h"

/* Addresses that stand for MPI_IN_PLACE and MPI_BOTTOM. The Fortran compiler determines which of them exist. */
#define SENTINEL(lower, UPPER)                                                                                         \
    extern int mpi_fortran_##lower __attribute__((weak));                                                              \
    extern int mpi_fortran_##lower##_ __attribute__((weak));                                                           \
    extern int mpi_fortran_##lower##__ __attribute__((weak));                                                          \
    extern int MPI_FORTRAN_##UPPER __attribute__((weak));                                                              \
    static int is_##lower(const void *p)                                                                               \
    {                                                                                                                  \
        return p && (p == &mpi_fortran_##lower || p == &mpi_fortran_##lower##_ || p == &mpi_fortran_##lower##__ ||     \
                     p == &MPI_FORTRAN_##UPPER);                                                                       \
    }
SENTINEL(in_place, IN_PLACE)
SENTINEL(bottom, BOTTOM)

static void *address(void *p)
{
    if (is_in_place(p))
        return MPI_IN_PLACE;
    return is_bottom(p) ? MPI_BOTTOM : p;
}

/* All names of a function: names of Fortran compilers, and names that Open MPI's modules call. */
#define SAME(function, name) extern __typeof__(function) name __attribute__((alias(#function), visibility("default")))
#define NAMES(lower, UPPER, Name)                                                                                      \
    SAME(ompi_##lower##_f, mpi_##lower);                                                                               \
    SAME(ompi_##lower##_f, mpi_##lower##_);                                                                            \
    SAME(ompi_##lower##_f, mpi_##lower##__);                                                                           \
    SAME(ompi_##lower##_f, MPI_##UPPER);                                                                               \
    SAME(ompi_##lower##_f, MPI_##Name##_f);                                                                            \
    SAME(ompi_##lower##_f, MPI_##Name##_f08)

#pragma GCC visibility push(default)
void ompi_allreduce_f(void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm,
                      MPI_Fint *error);
void ompi_reduce_scatter_block_f(void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm,
                                 MPI_Fint *error);
void ompi_reduce_scatter_f(void *send, void *recv, MPI_Fint *counts, MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm,
                           MPI_Fint *error);
void ompi_reduce_f(void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op, MPI_Fint *root,
                   MPI_Fint *comm, MPI_Fint *error);
void ompi_bcast_f(void *buffer, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root, MPI_Fint *comm, MPI_Fint *error);
void ompi_allgather_f(void *send, MPI_Fint *sendcount, MPI_Fint *sendtype, void *recv, MPI_Fint *count, MPI_Fint *type,
                      MPI_Fint *comm, MPI_Fint *error);
void ompi_allgatherv_f(void *send, MPI_Fint *sendcount, MPI_Fint *sendtype, void *recv, MPI_Fint *counts,
                       MPI_Fint *displs, MPI_Fint *type, MPI_Fint *comm, MPI_Fint *error);
void ompi_neighbor_allgather_f(void *send, MPI_Fint *sendcount, MPI_Fint *sendtype, void *recv, MPI_Fint *count,
                               MPI_Fint *type, MPI_Fint *comm, MPI_Fint *error);
void ompi_neighbor_allgatherv_f(void *send, MPI_Fint *sendcount, MPI_Fint *sendtype, void *recv, MPI_Fint *counts,
                                MPI_Fint *displs, MPI_Fint *type, MPI_Fint *comm, MPI_Fint *error);
void ompi_iallreduce_f(void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm,
                       MPI_Fint *request, MPI_Fint *error);
void ompi_ireduce_scatter_block_f(void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm,
                                  MPI_Fint *request, MPI_Fint *error);
void ompi_ireduce_scatter_f(void *send, void *recv, MPI_Fint *counts, MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm,
                            MPI_Fint *request, MPI_Fint *error);
void ompi_ireduce_f(void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op, MPI_Fint *root,
                    MPI_Fint *comm, MPI_Fint *request, MPI_Fint *error);
void ompi_ibcast_f(void *buffer, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root, MPI_Fint *comm, MPI_Fint *request,
                   MPI_Fint *error);
void ompi_iallgather_f(void *send, MPI_Fint *sendcount, MPI_Fint *sendtype, void *recv, MPI_Fint *count, MPI_Fint *type,
                       MPI_Fint *comm, MPI_Fint *request, MPI_Fint *error);
void ompi_iallgatherv_f(void *send, MPI_Fint *sendcount, MPI_Fint *sendtype, void *recv, MPI_Fint *counts,
                        MPI_Fint *displs, MPI_Fint *type, MPI_Fint *comm, MPI_Fint *request, MPI_Fint *error);
void ompi_barrier_f(MPI_Fint *comm, MPI_Fint *error);
#pragma GCC visibility pop

static void answer(MPI_Fint *error, int rc)
{
    if (error)
        *error = (MPI_Fint)rc;
}

/* Make the call if request is NULL; else begin it. */
static void make(struct call *call, MPI_Fint *request, MPI_Fint *error)
{
    MPI_Request made = MPI_REQUEST_NULL;
    if (request) {
        call->mode = NONBLOCKING;
        call->request = &made;
    }
    const int rc = pmpi_call(call);
    if (request && rc == MPI_SUCCESS)
        *request = PMPI_Request_c2f(made);
    answer(error, rc);
}

static struct call reduction(enum function function, void *send, void *recv, const MPI_Fint *type, const MPI_Fint *op,
                             const MPI_Fint *comm)
{
    return (struct call){.function = function,
                         .send = address(send),
                         .recv = address(recv),
                         .type = PMPI_Type_f2c(*type),
                         .op = PMPI_Op_f2c(*op),
                         .comm = PMPI_Comm_f2c(*comm)};
}

void ompi_allreduce_f(void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm,
                      MPI_Fint *error)
{
    struct call call = reduction(ALLREDUCE, send, recv, type, op, comm);
    call.count = *count;
    make(&call, NULL, error);
}

void ompi_reduce_scatter_block_f(void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm,
                                 MPI_Fint *error)
{
    struct call call = reduction(REDUCE_SCATTER_BLOCK, send, recv, type, op, comm);
    call.count = *count;
    make(&call, NULL, error);
}

void ompi_reduce_f(void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op, MPI_Fint *root,
                   MPI_Fint *comm, MPI_Fint *error)
{
    struct call call = reduction(REDUCE, send, recv, type, op, comm);
    call.count = *count;
    call.root = (int)*root;
    make(&call, NULL, error);
}

static struct call broadcast(void *buffer, const MPI_Fint *count, const MPI_Fint *type, const MPI_Fint *root,
                             const MPI_Fint *comm)
{
    return (struct call){.function = BCAST,
                         .recv = address(buffer),
                         .count = *count,
                         .type = PMPI_Type_f2c(*type),
                         .root = (int)*root,
                         .comm = PMPI_Comm_f2c(*comm)};
}

void ompi_bcast_f(void *buffer, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root, MPI_Fint *comm, MPI_Fint *error)
{
    struct call call = broadcast(buffer, count, type, root, comm);
    make(&call, NULL, error);
}

/* A list of C's integers. If Fortran's have another width, it is *copy, to be freed. Without memory the list is null,
 * which MPI refuses. */
static const void *list(const MPI_Fint *given, int count, int **copy)
{
    *copy = NULL;
    if (sizeof *given == sizeof **copy)
        return given;
    *copy = calloc((size_t)count + 1, sizeof **copy);
    for (int i = 0; *copy && i < count; i++)
        (*copy)[i] = (int)given[i];
    return *copy;
}

/* The length of a list with an entry for each rank. */
static int ranks_of(MPI_Comm comm)
{
    int ranks = 0, inter = 0;
    if (comm == MPI_COMM_NULL || PMPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS)
        return 0;
    if (inter)
        PMPI_Comm_remote_size(comm, &ranks);
    else
        PMPI_Comm_size(comm, &ranks);
    return ranks;
}

void ompi_reduce_scatter_f(void *send, void *recv, MPI_Fint *counts, MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm,
                           MPI_Fint *error)
{
    struct call call = reduction(REDUCE_SCATTER, send, recv, type, op, comm);
    int *copy;
    call.counts = list(counts, ranks_of(call.comm), &copy);
    make(&call, NULL, error);
    free(copy);
}

static struct call gather(enum function function, void *send, const MPI_Fint *sendcount, const MPI_Fint *sendtype,
                          void *recv, const MPI_Fint *type, const MPI_Fint *comm)
{
    return (struct call){.function = function,
                         .send = address(send),
                         .sendcount = *sendcount,
                         .sendtype = PMPI_Type_f2c(*sendtype),
                         .recv = address(recv),
                         .type = PMPI_Type_f2c(*type),
                         .comm = PMPI_Comm_f2c(*comm)};
}

void ompi_allgather_f(void *send, MPI_Fint *sendcount, MPI_Fint *sendtype, void *recv, MPI_Fint *count, MPI_Fint *type,
                      MPI_Fint *comm, MPI_Fint *error)
{
    struct call call = gather(ALLGATHER, send, sendcount, sendtype, recv, type, comm);
    call.count = *count;
    make(&call, NULL, error);
}

void ompi_allgatherv_f(void *send, MPI_Fint *sendcount, MPI_Fint *sendtype, void *recv, MPI_Fint *counts,
                       MPI_Fint *displs, MPI_Fint *type, MPI_Fint *comm, MPI_Fint *error)
{
    struct call call = gather(ALLGATHERV, send, sendcount, sendtype, recv, type, comm);
    const int ranks = ranks_of(call.comm);
    int *count_copy, *displ_copy;
    call.counts = list(counts, ranks, &count_copy);
    call.displs = list(displs, ranks, &displ_copy);
    make(&call, NULL, error);
    free(count_copy);
    free(displ_copy);
}

void ompi_neighbor_allgather_f(void *send, MPI_Fint *sendcount, MPI_Fint *sendtype, void *recv, MPI_Fint *count,
                               MPI_Fint *type, MPI_Fint *comm, MPI_Fint *error)
{
    struct call call = gather(NEIGHBOR_ALLGATHER, send, sendcount, sendtype, recv, type, comm);
    call.count = *count;
    make(&call, NULL, error);
}

void ompi_neighbor_allgatherv_f(void *send, MPI_Fint *sendcount, MPI_Fint *sendtype, void *recv, MPI_Fint *counts,
                                MPI_Fint *displs, MPI_Fint *type, MPI_Fint *comm, MPI_Fint *error)
{
    struct call call = gather(NEIGHBOR_ALLGATHERV, send, sendcount, sendtype, recv, type, comm);
    const int copies = sizeof *counts != sizeof(int) && call.comm != MPI_COMM_NULL,
              sources = copies ? pmpi_sources(call.comm) : 0;
    int *count_copy, *displ_copy;
    call.counts = list(counts, sources, &count_copy);
    call.displs = list(displs, sources, &displ_copy);
    make(&call, NULL, error);
    free(count_copy);
    free(displ_copy);
}

/* ---- nonblocking functions */

void ompi_iallreduce_f(void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm,
                       MPI_Fint *request, MPI_Fint *error)
{
    struct call call = reduction(ALLREDUCE, send, recv, type, op, comm);
    call.count = *count;
    make(&call, request, error);
}

void ompi_ireduce_scatter_block_f(void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm,
                                  MPI_Fint *request, MPI_Fint *error)
{
    struct call call = reduction(REDUCE_SCATTER_BLOCK, send, recv, type, op, comm);
    call.count = *count;
    make(&call, request, error);
}

/* When such a function returns, Open MPI has read lists of counts: its own Fortran functions free their copies then. A
 * call of ours has its own copies (jobs.c). */
void ompi_ireduce_scatter_f(void *send, void *recv, MPI_Fint *counts, MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm,
                            MPI_Fint *request, MPI_Fint *error)
{
    struct call call = reduction(REDUCE_SCATTER, send, recv, type, op, comm);
    int *copy;
    call.counts = list(counts, ranks_of(call.comm), &copy);
    make(&call, request, error);
    free(copy);
}

void ompi_ireduce_f(void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op, MPI_Fint *root,
                    MPI_Fint *comm, MPI_Fint *request, MPI_Fint *error)
{
    struct call call = reduction(REDUCE, send, recv, type, op, comm);
    call.count = *count;
    call.root = (int)*root;
    make(&call, request, error);
}

void ompi_ibcast_f(void *buffer, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root, MPI_Fint *comm, MPI_Fint *request,
                   MPI_Fint *error)
{
    struct call call = broadcast(buffer, count, type, root, comm);
    make(&call, request, error);
}

void ompi_iallgather_f(void *send, MPI_Fint *sendcount, MPI_Fint *sendtype, void *recv, MPI_Fint *count, MPI_Fint *type,
                       MPI_Fint *comm, MPI_Fint *request, MPI_Fint *error)
{
    struct call call = gather(ALLGATHER, send, sendcount, sendtype, recv, type, comm);
    call.count = *count;
    make(&call, request, error);
}

void ompi_iallgatherv_f(void *send, MPI_Fint *sendcount, MPI_Fint *sendtype, void *recv, MPI_Fint *counts,
                        MPI_Fint *displs, MPI_Fint *type, MPI_Fint *comm, MPI_Fint *request, MPI_Fint *error)
{
    struct call call = gather(ALLGATHERV, send, sendcount, sendtype, recv, type, comm);
    const int ranks = ranks_of(call.comm);
    int *count_copy, *displ_copy;
    call.counts = list(counts, ranks, &count_copy);
    call.displs = list(displs, ranks, &displ_copy);
    make(&call, request, error);
    free(count_copy);
    free(displ_copy);
}

void ompi_barrier_f(MPI_Fint *comm, MPI_Fint *error)
{
    const MPI_Comm in_c = PMPI_Comm_f2c(*comm);
    const int rc = pmpi_meet(in_c);
    answer(error, rc == MPI_SUCCESS ? PMPI_Barrier(in_c) : rc);
}

NAMES(iallreduce, IALLREDUCE, Iallreduce);
NAMES(ireduce_scatter_block, IREDUCE_SCATTER_BLOCK, Ireduce_scatter_block);
NAMES(ireduce_scatter, IREDUCE_SCATTER, Ireduce_scatter);
NAMES(ireduce, IREDUCE, Ireduce);
NAMES(ibcast, IBCAST, Ibcast);
NAMES(iallgather, IALLGATHER, Iallgather);
NAMES(iallgatherv, IALLGATHERV, Iallgatherv);
NAMES(barrier, BARRIER, Barrier);
NAMES(allreduce, ALLREDUCE, Allreduce);
NAMES(reduce_scatter_block, REDUCE_SCATTER_BLOCK, Reduce_scatter_block);
NAMES(reduce_scatter, REDUCE_SCATTER, Reduce_scatter);
NAMES(reduce, REDUCE, Reduce);
NAMES(bcast, BCAST, Bcast);
NAMES(allgather, ALLGATHER, Allgather);
NAMES(allgatherv, ALLGATHERV, Allgatherv);
NAMES(neighbor_allgather, NEIGHBOR_ALLGATHER, Neighbor_allgather);
NAMES(neighbor_allgatherv, NEIGHBOR_ALLGATHERV, Neighbor_allgatherv);

/* Functions that are only counted, by their number of arguments, which are all addresses. Open MPI's own also have
 * names of the profiling interface. A program in C has none of them, but does not call them either. */
#define PARAMETERS9 (void *a, void *b, void *c, void *d, void *e, void *f, void *g, void *h, void *i)
#define PARAMETERS10 (void *a, void *b, void *c, void *d, void *e, void *f, void *g, void *h, void *i, void *j)
#define ARGUMENTS9 (a, b, c, d, e, f, g, h, i)
#define ARGUMENTS10 (a, b, c, d, e, f, g, h, i, j)
#define PASS(lower, UPPER, Name, n)                                                                                    \
    extern void PMPI_##Name##_f PARAMETERS##n __attribute__((weak));                                                   \
    extern void ompi_##lower##_f PARAMETERS##n __attribute__((visibility("default")));                                 \
    void ompi_##lower##_f PARAMETERS##n                                                                                \
    {                                                                                                                  \
        pmpi_pass(UPPER);                                                                                              \
        PMPI_##Name##_f ARGUMENTS##n;                                                                                  \
    }                                                                                                                  \
    NAMES(lower, UPPER, Name)

PASS(ineighbor_allgather, INEIGHBOR_ALLGATHER, Ineighbor_allgather, 9);
PASS(ineighbor_allgatherv, INEIGHBOR_ALLGATHERV, Ineighbor_allgatherv, 10);
#endif
