/* SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI's names in C: those that may be ours, and those that are only counted. */
#pragma GCC visibility push(default) /* of what is declared here: MPICH's header does not say so */
#include <mpi.h>
#pragma GCC visibility pop

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
    }

#define GATHERS(suffix, is_large, Count, Place)                                                                        \
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

/* ---- only counted */

#define PASS(what, name, parameters, arguments)                                                                        \
    int MPI_##name parameters                                                                                          \
    {                                                                                                                  \
        pmpi_pass(what);                                                                                               \
        return PMPI_##name arguments;                                                                                  \
    }

#define REDUCE_PARAMETERS(count) const void *s, void *r, count, MPI_Datatype t, MPI_Op o
PASS(BCAST, Bcast, (void *b, int n, MPI_Datatype t, int root, MPI_Comm c), (b, n, t, root, c))
PASS(IBCAST, Ibcast, (void *b, int n, MPI_Datatype t, int root, MPI_Comm c, MPI_Request *q), (b, n, t, root, c, q))
PASS(REDUCE, Reduce, (REDUCE_PARAMETERS(int n), int root, MPI_Comm c), (s, r, n, t, o, root, c))
PASS(IREDUCE, Ireduce, (REDUCE_PARAMETERS(int n), int root, MPI_Comm c, MPI_Request *q), (s, r, n, t, o, root, c, q))
PASS(IALLREDUCE, Iallreduce, (REDUCE_PARAMETERS(int n), MPI_Comm c, MPI_Request *q), (s, r, n, t, o, c, q))
PASS(IREDUCE_SCATTER_BLOCK, Ireduce_scatter_block, (REDUCE_PARAMETERS(int n), MPI_Comm c, MPI_Request *q),
     (s, r, n, t, o, c, q))
PASS(IREDUCE_SCATTER, Ireduce_scatter, (REDUCE_PARAMETERS(const int n[]), MPI_Comm c, MPI_Request *q),
     (s, r, n, t, o, c, q))

#define GATHER_PARAMETERS const void *s, int sn, MPI_Datatype st, void *r, int n, MPI_Datatype t, MPI_Comm c
#define GATHERV_PARAMETERS                                                                                             \
    const void *s, int sn, MPI_Datatype st, void *r, const int n[], const int at[], MPI_Datatype t, MPI_Comm c
PASS(ALLGATHERV, Allgatherv, (GATHERV_PARAMETERS), (s, sn, st, r, n, at, t, c))
PASS(IALLGATHER, Iallgather, (GATHER_PARAMETERS, MPI_Request *q), (s, sn, st, r, n, t, c, q))
PASS(IALLGATHERV, Iallgatherv, (GATHERV_PARAMETERS, MPI_Request *q), (s, sn, st, r, n, at, t, c, q))
PASS(INEIGHBOR_ALLGATHER, Ineighbor_allgather, (GATHER_PARAMETERS, MPI_Request *q), (s, sn, st, r, n, t, c, q))
PASS(INEIGHBOR_ALLGATHERV, Ineighbor_allgatherv, (GATHERV_PARAMETERS, MPI_Request *q), (s, sn, st, r, n, at, t, c, q))

#if MPI_VERSION >= 4
PASS(ALLREDUCE_INIT, Allreduce_init, (REDUCE_PARAMETERS(int n), MPI_Comm c, MPI_Info i, MPI_Request *q),
     (s, r, n, t, o, c, i, q))
PASS(REDUCE_SCATTER_BLOCK_INIT, Reduce_scatter_block_init,
     (REDUCE_PARAMETERS(int n), MPI_Comm c, MPI_Info i, MPI_Request *q), (s, r, n, t, o, c, i, q))
PASS(REDUCE_SCATTER_INIT, Reduce_scatter_init,
     (REDUCE_PARAMETERS(const int n[]), MPI_Comm c, MPI_Info i, MPI_Request *q), (s, r, n, t, o, c, i, q))
PASS(ALLGATHER_INIT, Allgather_init, (GATHER_PARAMETERS, MPI_Info i, MPI_Request *q), (s, sn, st, r, n, t, c, i, q))
#endif
