/* SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI's names in C: functions that may be ours, and functions that are only counted. */
#pragma GCC visibility push(default) /* of these declarations: MPICH's header lacks it */
#include <mpi.h>
#pragma GCC visibility pop

#include <stddef.h>

#include "preload/calls.h"
#include "preload/jobs.h"

/* ---- functions that may be ours, with counts of either kind */

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
#define REDUCE_P(count) const void *s, void *r, count, MPI_Datatype t, MPI_Op o
#define GATHER_P(Count) const void *s, Count sn, MPI_Datatype st, void *r, Count n, MPI_Datatype t, MPI_Comm c
#define GATHER_A s, sn, st, r, n, t, c
#define GATHERV_P(Count, Place)                                                                                        \
    const void *s, Count sn, MPI_Datatype st, void *r, const Count n[], const Place at[], MPI_Datatype t, MPI_Comm c
#define GATHERV_A s, sn, st, r, n, at, t, c

#define PASSES(x, Count, Place)                                                                                        \
    PASS(INEIGHBOR_ALLGATHER, Ineighbor_allgather##x, (GATHER_P(Count), MPI_Request * q), (GATHER_A, q))               \
    PASS(INEIGHBOR_ALLGATHERV, Ineighbor_allgatherv##x, (GATHERV_P(Count, Place), MPI_Request * q), (GATHERV_A, q))

/* Persistent ones: with an info too. */
#define PASSES_INIT(x, Count, Place)                                                                                   \
    PASS(NEIGHBOR_ALLGATHER_INIT, Neighbor_allgather_init##x, (GATHER_P(Count), MPI_Info i, MPI_Request * q),          \
         (GATHER_A, i, q))                                                                                             \
    PASS(NEIGHBOR_ALLGATHERV_INIT, Neighbor_allgatherv_init##x,                                                        \
         (GATHERV_P(Count, Place), MPI_Info i, MPI_Request * q), (GATHERV_A, i, q))

PASSES(, int, int)
#if MPI_VERSION >= 4
PASSES(_c, MPI_Count, MPI_Aint)
PASSES_INIT(, int, int)
PASSES_INIT(_c, MPI_Count, MPI_Aint)
#endif

/* ---- those that may be ours and do not wait, or make a persistent request, with counts of either kind */

#define LATER_(which, how, is_large, name, parameters, ...)                                                            \
    int MPI_##name parameters                                                                                          \
    {                                                                                                                  \
        return pmpi_call(&(struct call){                                                                               \
            .function = which, .mode = how, .large = is_large, .type = t, .comm = c, .request = q, __VA_ARGS__});      \
    }
#define LATER(...) LATER_(__VA_ARGS__) /* with its arguments expanded */
#define REDUCE_F .send = s, .recv = r, .op = o
#define GATHER_F .send = s, .recv = r, .sendcount = sn, .sendtype = st

/* The names are those that wait or not; more are the parameters behind the communicator, and more_f their fields. */
#define EACH_LATER(how, big, Count, Place, NAME, more, more_f)                                                         \
    LATER(BCAST, how, big, NAME(Bcast, bcast), (BCAST_P(Count), more), .recv = b, .count = n, .root = root, more_f)    \
    LATER(REDUCE, how, big, NAME(Reduce, reduce), (REDUCE_P(Count n), int root, MPI_Comm c, more), REDUCE_F,           \
          .count = n, .root = root, more_f)                                                                            \
    LATER(ALLREDUCE, how, big, NAME(Allreduce, allreduce), (REDUCE_P(Count n), MPI_Comm c, more), REDUCE_F,            \
          .count = n, more_f)                                                                                          \
    LATER(REDUCE_SCATTER_BLOCK, how, big, NAME(Reduce_scatter_block, reduce_scatter_block),                            \
          (REDUCE_P(Count n), MPI_Comm c, more), REDUCE_F, .count = n, more_f)                                         \
    LATER(REDUCE_SCATTER, how, big, NAME(Reduce_scatter, reduce_scatter),                                              \
          (REDUCE_P(const Count n[]), MPI_Comm c, more), REDUCE_F, .counts = n, more_f)                                \
    LATER(ALLGATHER, how, big, NAME(Allgather, allgather), (GATHER_P(Count), more), GATHER_F, .count = n, more_f)      \
    LATER(ALLGATHERV, how, big, NAME(Allgatherv, allgatherv), (GATHERV_P(Count, Place), more), GATHER_F, .counts = n,  \
          .displs = at, more_f)

/* What a macro's argument is made of: two parameters, or fields. */
#define REQUEST_P MPI_Request *q
#define INFO_P MPI_Info i, MPI_Request *q
#define I_NAME(Name, name) I##name
#define INIT_NAME(Name, name) Name##_init
#define I_NAME_C(Name, name) I##name##_c
#define INIT_NAME_C(Name, name) Name##_init_c

EACH_LATER(NONBLOCKING, 0, int, int, I_NAME, REQUEST_P, )
#if MPI_VERSION >= 4
EACH_LATER(NONBLOCKING, 1, MPI_Count, MPI_Aint, I_NAME_C, REQUEST_P, )
EACH_LATER(PERSISTENT, 0, int, int, INIT_NAME, INFO_P, .info = i)
EACH_LATER(PERSISTENT, 1, MPI_Count, MPI_Aint, INIT_NAME_C, INFO_P, .info = i)

int MPI_Start(MPI_Request *request)
{
    return pmpi_start(request);
}

int MPI_Startall(int n, MPI_Request requests[])
{
    int rc = MPI_SUCCESS;
    for (int i = 0; i < n && rc == MPI_SUCCESS; i++)
        rc = pmpi_start(&requests[i]);
    return rc;
}

int MPI_Request_free(MPI_Request *request)
{
    return pmpi_request_free(request);
}
#endif

/* Calls that are not ours, but at which all ranks are, so that they can make a communicator. */
int MPI_Barrier(MPI_Comm comm)
{
    const int rc = pmpi_meet(comm);
    return rc == MPI_SUCCESS ? PMPI_Barrier(comm) : rc;
}
