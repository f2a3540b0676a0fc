/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Open MPI's Fortran interfaces call PMPI_Allreduce, so that MPI_Allreduce in C never sees a Fortran program's call.
 * Programs with mpif.h or the module mpi call mpi_allreduce_, or as their compiler else writes that name; the module
 * mpi_f08 calls ompi_allreduce_f. MPICH's interfaces call MPI_Allreduce. */
#include <mpi.h>

#if defined OPEN_MPI
#include <stddef.h>
#include <stdlib.h>

#include "preload/calls.h"

/* Addresses that stand for MPI_IN_PLACE and MPI_BOTTOM. Which of them there are depends on the Fortran compiler. */
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
    return is_in_place(p) ? MPI_IN_PLACE : is_bottom(p) ? MPI_BOTTOM : p;
}

/* All names of a function: those of Fortran compilers, and those that Open MPI's modules call. */
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
void ompi_allgather_f(void *send, MPI_Fint *sendcount, MPI_Fint *sendtype, void *recv, MPI_Fint *count, MPI_Fint *type,
                      MPI_Fint *comm, MPI_Fint *error);
#pragma GCC visibility pop

static void answer(MPI_Fint *error, int rc)
{
    if (error)
        *error = (MPI_Fint)rc;
}

static struct call reduction(enum function f, void *send, void *recv, const MPI_Fint *type, const MPI_Fint *op,
                             const MPI_Fint *comm)
{
    return (struct call){.function = f,
                         .send = address(send),
                         .recv = address(recv),
                         .type = PMPI_Type_f2c(*type),
                         .op = PMPI_Op_f2c(*op),
                         .comm = PMPI_Comm_f2c(*comm)};
}

void ompi_allreduce_f(void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm,
                      MPI_Fint *error)
{
    struct call c = reduction(ALLREDUCE, send, recv, type, op, comm);
    c.count = *count;
    answer(error, pmpi_call(&c));
}

void ompi_reduce_scatter_block_f(void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm,
                                 MPI_Fint *error)
{
    struct call c = reduction(REDUCE_SCATTER_BLOCK, send, recv, type, op, comm);
    c.count = *count;
    answer(error, pmpi_call(&c));
}

void ompi_reduce_scatter_f(void *send, void *recv, MPI_Fint *counts, MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm,
                           MPI_Fint *error)
{
    struct call c = reduction(REDUCE_SCATTER, send, recv, type, op, comm);
    int *copy = NULL, ranks = 0;
    c.counts = counts;
    if (sizeof *counts != sizeof *copy && c.comm != MPI_COMM_NULL && PMPI_Comm_size(c.comm, &ranks) == MPI_SUCCESS) {
        copy = calloc((size_t)ranks, sizeof *copy);
        for (int r = 0; copy && r < ranks; r++)
            copy[r] = (int)counts[r];
        c.counts = copy; /* without memory, MPI refuses the null */
    }
    answer(error, pmpi_call(&c));
    free(copy);
}

void ompi_allgather_f(void *send, MPI_Fint *sendcount, MPI_Fint *sendtype, void *recv, MPI_Fint *count, MPI_Fint *type,
                      MPI_Fint *comm, MPI_Fint *error)
{
    const struct call c = {.function = ALLGATHER,
                           .send = address(send),
                           .sendcount = *sendcount,
                           .sendtype = PMPI_Type_f2c(*sendtype),
                           .recv = address(recv),
                           .count = *count,
                           .type = PMPI_Type_f2c(*type),
                           .comm = PMPI_Comm_f2c(*comm)};
    answer(error, pmpi_call(&c));
}

NAMES(allreduce, ALLREDUCE, Allreduce);
NAMES(reduce_scatter_block, REDUCE_SCATTER_BLOCK, Reduce_scatter_block);
NAMES(reduce_scatter, REDUCE_SCATTER, Reduce_scatter);
NAMES(allgather, ALLGATHER, Allgather);
#endif
