/* SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI's names in C: those that may be ours, and those that are only counted. */
#pragma GCC visibility push(default) /* of what is declared here: MPICH's header does not say so */
#include <mpi.h>
#pragma GCC visibility pop

#include "preload/calls.h"

int MPI_Allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    return pmpi_call(&(struct call){
        .function = ALLREDUCE, .send = send, .recv = recv, .count = count, .type = type, .op = op, .comm = comm});
}

int MPI_Reduce_scatter_block(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    return pmpi_call(&(struct call){.function = REDUCE_SCATTER_BLOCK,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .type = type,
                                    .op = op,
                                    .comm = comm});
}

int MPI_Reduce_scatter(const void *send, void *recv, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    return pmpi_call(&(struct call){.function = REDUCE_SCATTER,
                                    .send = send,
                                    .recv = recv,
                                    .counts = counts,
                                    .type = type,
                                    .op = op,
                                    .comm = comm});
}

int MPI_Allgather(const void *send, int sendcount, MPI_Datatype sendtype, void *recv, int count, MPI_Datatype type,
                  MPI_Comm comm)
{
    return pmpi_call(&(struct call){.function = ALLGATHER,
                                    .send = send,
                                    .sendcount = sendcount,
                                    .sendtype = sendtype,
                                    .recv = recv,
                                    .count = count,
                                    .type = type,
                                    .comm = comm});
}

#if MPI_VERSION >= 4
int MPI_Allreduce_c(const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    return pmpi_call(&(struct call){.function = ALLREDUCE,
                                    .large = 1,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .type = type,
                                    .op = op,
                                    .comm = comm});
}

int MPI_Reduce_scatter_block_c(const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op,
                               MPI_Comm comm)
{
    return pmpi_call(&(struct call){.function = REDUCE_SCATTER_BLOCK,
                                    .large = 1,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .type = type,
                                    .op = op,
                                    .comm = comm});
}

int MPI_Reduce_scatter_c(const void *send, void *recv, const MPI_Count counts[], MPI_Datatype type, MPI_Op op,
                         MPI_Comm comm)
{
    return pmpi_call(&(struct call){.function = REDUCE_SCATTER,
                                    .large = 1,
                                    .send = send,
                                    .recv = recv,
                                    .counts = counts,
                                    .type = type,
                                    .op = op,
                                    .comm = comm});
}

int MPI_Allgather_c(const void *send, MPI_Count sendcount, MPI_Datatype sendtype, void *recv, MPI_Count count,
                    MPI_Datatype type, MPI_Comm comm)
{
    return pmpi_call(&(struct call){.function = ALLGATHER,
                                    .large = 1,
                                    .send = send,
                                    .sendcount = sendcount,
                                    .sendtype = sendtype,
                                    .recv = recv,
                                    .count = count,
                                    .type = type,
                                    .comm = comm});
}
#endif

/* ---- only counted */

#define PASS(what, name, parameters, arguments)                                                                        \
    int MPI_##name parameters                                                                                          \
    {                                                                                                                  \
        pmpi_pass(what);                                                                                               \
        return PMPI_##name arguments;                                                                                  \
    }

PASS(BCAST, Bcast, (void *b, int n, MPI_Datatype t, int root, MPI_Comm c), (b, n, t, root, c))
PASS(IBCAST, Ibcast, (void *b, int n, MPI_Datatype t, int root, MPI_Comm c, MPI_Request *q), (b, n, t, root, c, q))
PASS(REDUCE, Reduce, (const void *s, void *r, int n, MPI_Datatype t, MPI_Op o, int root, MPI_Comm c),
     (s, r, n, t, o, root, c))
PASS(IREDUCE, Ireduce, (const void *s, void *r, int n, MPI_Datatype t, MPI_Op o, int root, MPI_Comm c, MPI_Request *q),
     (s, r, n, t, o, root, c, q))
PASS(IALLREDUCE, Iallreduce, (const void *s, void *r, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c, MPI_Request *q),
     (s, r, n, t, o, c, q))
PASS(IREDUCE_SCATTER_BLOCK, Ireduce_scatter_block,
     (const void *s, void *r, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c, MPI_Request *q), (s, r, n, t, o, c, q))
PASS(IREDUCE_SCATTER, Ireduce_scatter,
     (const void *s, void *r, const int n[], MPI_Datatype t, MPI_Op o, MPI_Comm c, MPI_Request *q),
     (s, r, n, t, o, c, q))

#define GATHER_PARAMETERS const void *s, int sn, MPI_Datatype st, void *r, int n, MPI_Datatype t, MPI_Comm c
#define GATHERV_PARAMETERS                                                                                             \
    const void *s, int sn, MPI_Datatype st, void *r, const int n[], const int at[], MPI_Datatype t, MPI_Comm c
PASS(ALLGATHERV, Allgatherv, (GATHERV_PARAMETERS), (s, sn, st, r, n, at, t, c))
PASS(IALLGATHER, Iallgather, (GATHER_PARAMETERS, MPI_Request *q), (s, sn, st, r, n, t, c, q))
PASS(IALLGATHERV, Iallgatherv, (GATHERV_PARAMETERS, MPI_Request *q), (s, sn, st, r, n, at, t, c, q))
PASS(NEIGHBOR_ALLGATHER, Neighbor_allgather, (GATHER_PARAMETERS), (s, sn, st, r, n, t, c))
PASS(NEIGHBOR_ALLGATHERV, Neighbor_allgatherv, (GATHERV_PARAMETERS), (s, sn, st, r, n, at, t, c))
PASS(INEIGHBOR_ALLGATHER, Ineighbor_allgather, (GATHER_PARAMETERS, MPI_Request *q), (s, sn, st, r, n, t, c, q))
PASS(INEIGHBOR_ALLGATHERV, Ineighbor_allgatherv, (GATHERV_PARAMETERS, MPI_Request *q), (s, sn, st, r, n, at, t, c, q))

#if MPI_VERSION >= 4
PASS(ALLREDUCE_INIT, Allreduce_init,
     (const void *s, void *r, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c, MPI_Info i, MPI_Request *q),
     (s, r, n, t, o, c, i, q))
PASS(REDUCE_SCATTER_BLOCK_INIT, Reduce_scatter_block_init,
     (const void *s, void *r, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c, MPI_Info i, MPI_Request *q),
     (s, r, n, t, o, c, i, q))
PASS(REDUCE_SCATTER_INIT, Reduce_scatter_init,
     (const void *s, void *r, const int n[], MPI_Datatype t, MPI_Op o, MPI_Comm c, MPI_Info i, MPI_Request *q),
     (s, r, n, t, o, c, i, q))
PASS(ALLGATHER_INIT, Allgather_init, (GATHER_PARAMETERS, MPI_Info i, MPI_Request *q), (s, sn, st, r, n, t, c, i, q))
#endif
