/* SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI's names in C: those that may be ours, and those that are only counted. */
#pragma GCC visibility push(default) /* of what is declared here: MPICH's header does not say so */
#include <mpi.h>
#pragma GCC visibility pop

#include <stddef.h>

#include "preload/calls.h"

/* ---- those that may be ours, with counts of either kind */

#define CALL(name, is_large, ...)                                                                                      \
    pmpi_call(&(struct call){                                                                                          \
        .function = name, .large = is_large, .send = send, .recv = recv, .type = type, .comm = comm, __VA_ARGS__})

#define REDUCTIONS(suffix, is_large, Count)                                                                            \
    int MPI_Allreduce##suffix(const void *send, void *recv, Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)  \
    {                                                                                                                  \
        return CALL(ALLREDUCE, is_large, .count = count, .op = op);                                                    \
    }                                                                                                                  \
    int MPI_Reduce_scatter_block##suffix(const void *send, void *recv, Count count, MPI_Datatype type, MPI_Op op,      \
                                         MPI_Comm comm)                                                                \
    {                                                                                                                  \
        return CALL(REDUCE_SCATTER_BLOCK, is_large, .count = count, .op = op);                                         \
    }                                                                                                                  \
    int MPI_Reduce_scatter##suffix(const void *send, void *recv, const Count counts[], MPI_Datatype type, MPI_Op op,   \
                                   MPI_Comm comm)                                                                      \
    {                                                                                                                  \
        return CALL(REDUCE_SCATTER, is_large, .counts = counts, .op = op);                                             \
    }                                                                                                                  \
    int MPI_Reduce##suffix(const void *send, void *recv, Count count, MPI_Datatype type, MPI_Op op, int root,          \
                           MPI_Comm comm)                                                                              \
    {                                                                                                                  \
        return CALL(REDUCE, is_large, .count = count, .op = op, .root = root);                                         \
    }

#define GATHERS(suffix, is_large, Count, Place)                                                                        \
    int MPI_Bcast##suffix(void *recv, Count count, MPI_Datatype type, int root, MPI_Comm comm)                         \
    {                                                                                                                  \
        const void *const send = NULL;                                                                                 \
        return CALL(BCAST, is_large, .count = count, .root = root);                                                    \
    }                                                                                                                  \
    int MPI_Allgatherv##suffix(const void *send, Count sendcount, MPI_Datatype sendtype, void *recv,                   \
                               const Count counts[], const Place displs[], MPI_Datatype type, MPI_Comm comm)           \
    {                                                                                                                  \
        return CALL(ALLGATHERV, is_large, .sendcount = sendcount, .sendtype = sendtype, .counts = counts,              \
                    .displs = displs);                                                                                 \
    }                                                                                                                  \
    int MPI_Allgather##suffix(const void *send, Count sendcount, MPI_Datatype sendtype, void *recv, Count count,       \
                              MPI_Datatype type, MPI_Comm comm)                                                        \
    {                                                                                                                  \
        return CALL(ALLGATHER, is_large, .sendcount = sendcount, .sendtype = sendtype, .count = count);                \
    }                                                                                                                  \
    int MPI_Neighbor_allgather##suffix(const void *send, Count sendcount, MPI_Datatype sendtype, void *recv,           \
                                       Count count, MPI_Datatype type, MPI_Comm comm)                                  \
    {                                                                                                                  \
        return CALL(NEIGHBOR_ALLGATHER, is_large, .sendcount = sendcount, .sendtype = sendtype, .count = count);       \
    }                                                                                                                  \
    int MPI_Neighbor_allgatherv##suffix(const void *send, Count sendcount, MPI_Datatype sendtype, void *recv,          \
                                        const Count counts[], const Place displs[], MPI_Datatype type, MPI_Comm comm)  \
    {                                                                                                                  \
        return CALL(NEIGHBOR_ALLGATHERV, is_large, .sendcount = sendcount, .sendtype = sendtype, .counts = counts,     \
                    .displs = displs);                                                                                 \
    }

REDUCTIONS(, 0, int)
GATHERS(, 0, int, int)
#if MPI_VERSION >= 4
REDUCTIONS(_c, 1, MPI_Count)
GATHERS(_c, 1, MPI_Count, MPI_Aint)
#endif

/* ---- only counted, with counts of either kind */

#define PASS(what, name, parameters, arguments)                                                                        \
    int MPI_##name parameters                                                                                          \
    {                                                                                                                  \
        pmpi_pass(what);                                                                                               \
        return PMPI_##name arguments;                                                                                  \
    }

/* Parameters of a broadcast, a reduction, a gather, and one with counts; and the words for them in a call. */
#define BCAST_P(Count) void *b, Count n, MPI_Datatype t, int root, MPI_Comm c
#define BCAST_A b, n, t, root, c
#define REDUCE_P(count) const void *s, void *r, count, MPI_Datatype t, MPI_Op o
#define REDUCE_A s, r, n, t, o
#define GATHER_P(Count) const void *s, Count sn, MPI_Datatype st, void *r, Count n, MPI_Datatype t, MPI_Comm c
#define GATHER_A s, sn, st, r, n, t, c
#define GATHERV_P(Count, Place)                                                                                        \
    const void *s, Count sn, MPI_Datatype st, void *r, const Count n[], const Place at[], MPI_Datatype t, MPI_Comm c
#define GATHERV_A s, sn, st, r, n, at, t, c

#define PASSES(x, Count, Place)                                                                                        \
    PASS(IBCAST, Ibcast##x, (BCAST_P(Count), MPI_Request * q), (BCAST_A, q))                                           \
    PASS(IREDUCE, Ireduce##x, (REDUCE_P(Count n), int root, MPI_Comm c, MPI_Request *q), (REDUCE_A, root, c, q))       \
    PASS(IALLREDUCE, Iallreduce##x, (REDUCE_P(Count n), MPI_Comm c, MPI_Request * q), (REDUCE_A, c, q))                \
    PASS(IREDUCE_SCATTER_BLOCK, Ireduce_scatter_block##x, (REDUCE_P(Count n), MPI_Comm c, MPI_Request * q),            \
         (REDUCE_A, c, q))                                                                                             \
    PASS(IREDUCE_SCATTER, Ireduce_scatter##x, (REDUCE_P(const Count n[]), MPI_Comm c, MPI_Request * q),                \
         (REDUCE_A, c, q))                                                                                             \
    PASS(IALLGATHER, Iallgather##x, (GATHER_P(Count), MPI_Request * q), (GATHER_A, q))                                 \
    PASS(IALLGATHERV, Iallgatherv##x, (GATHERV_P(Count, Place), MPI_Request * q), (GATHERV_A, q))                      \
    PASS(INEIGHBOR_ALLGATHER, Ineighbor_allgather##x, (GATHER_P(Count), MPI_Request * q), (GATHER_A, q))               \
    PASS(INEIGHBOR_ALLGATHERV, Ineighbor_allgatherv##x, (GATHERV_P(Count, Place), MPI_Request * q), (GATHERV_A, q))

/* Persistent ones: with an info too. */
#define INITS(x, Count, Place)                                                                                         \
    PASS(BCAST_INIT, Bcast_init##x, (BCAST_P(Count), MPI_Info i, MPI_Request * q), (BCAST_A, i, q))                    \
    PASS(REDUCE_INIT, Reduce_init##x, (REDUCE_P(Count n), int root, MPI_Comm c, MPI_Info i, MPI_Request *q),           \
         (REDUCE_A, root, c, i, q))                                                                                    \
    PASS(ALLREDUCE_INIT, Allreduce_init##x, (REDUCE_P(Count n), MPI_Comm c, MPI_Info i, MPI_Request * q),              \
         (REDUCE_A, c, i, q))                                                                                          \
    PASS(REDUCE_SCATTER_BLOCK_INIT, Reduce_scatter_block_init##x,                                                      \
         (REDUCE_P(Count n), MPI_Comm c, MPI_Info i, MPI_Request * q), (REDUCE_A, c, i, q))                            \
    PASS(REDUCE_SCATTER_INIT, Reduce_scatter_init##x,                                                                  \
         (REDUCE_P(const Count n[]), MPI_Comm c, MPI_Info i, MPI_Request * q), (REDUCE_A, c, i, q))                    \
    PASS(ALLGATHER_INIT, Allgather_init##x, (GATHER_P(Count), MPI_Info i, MPI_Request * q), (GATHER_A, i, q))          \
    PASS(ALLGATHERV_INIT, Allgatherv_init##x, (GATHERV_P(Count, Place), MPI_Info i, MPI_Request * q),                  \
         (GATHERV_A, i, q))                                                                                            \
    PASS(NEIGHBOR_ALLGATHER_INIT, Neighbor_allgather_init##x, (GATHER_P(Count), MPI_Info i, MPI_Request * q),          \
         (GATHER_A, i, q))                                                                                             \
    PASS(NEIGHBOR_ALLGATHERV_INIT, Neighbor_allgatherv_init##x,                                                        \
         (GATHERV_P(Count, Place), MPI_Info i, MPI_Request * q), (GATHERV_A, i, q))

PASSES(, int, int)
#if MPI_VERSION >= 4
PASSES(_c, MPI_Count, MPI_Aint)
INITS(, int, int)
INITS(_c, MPI_Count, MPI_Aint)
#endif
