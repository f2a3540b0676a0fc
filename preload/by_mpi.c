/* SPDX-License-Identifier: BSD-3-Clause */
#include "preload/by_mpi.h"

/* The functions that may be ours, with the suffix and the type of counts: DO(enum, Name, name, suffix, arguments). */
#define EACH(DO, x, Count)                                                                                             \
    DO(ALLREDUCE, Allreduce, allreduce, x, call->send, call->recv, (Count)call->count, call->type, call->op,           \
       call->comm)                                                                                                     \
    DO(REDUCE_SCATTER_BLOCK, Reduce_scatter_block, reduce_scatter_block, x, call->send, call->recv,                    \
       (Count)call->count, call->type, call->op, call->comm)                                                           \
    DO(REDUCE_SCATTER, Reduce_scatter, reduce_scatter, x, call->send, call->recv, call->counts, call->type, call->op,  \
       call->comm)                                                                                                     \
    DO(REDUCE, Reduce, reduce, x, call->send, call->recv, (Count)call->count, call->type, call->op, call->root,        \
       call->comm)                                                                                                     \
    DO(BCAST, Bcast, bcast, x, call->recv, (Count)call->count, call->type, call->root, call->comm)                     \
    DO(ALLGATHER, Allgather, allgather, x, call->send, (Count)call->sendcount, call->sendtype, call->recv,             \
       (Count)call->count, call->type, call->comm)                                                                     \
    DO(ALLGATHERV, Allgatherv, allgatherv, x, call->send, (Count)call->sendcount, call->sendtype, call->recv,          \
       call->counts, call->displs, call->type, call->comm)
#define EACH_NEIGHBOR(DO, x, Count)                                                                                    \
    DO(NEIGHBOR_ALLGATHER, Neighbor_allgather, neighbor_allgather, x, call->send, (Count)call->sendcount,              \
       call->sendtype, call->recv, (Count)call->count, call->type, call->comm)                                         \
    DO(NEIGHBOR_ALLGATHERV, Neighbor_allgatherv, neighbor_allgatherv, x, call->send, (Count)call->sendcount,           \
       call->sendtype, call->recv, call->counts, call->displs, call->type, call->comm)

#define WAITS(which, Name, name, x, ...)                                                                               \
    case which: return PMPI_##Name##x(__VA_ARGS__);
#define STARTS(which, Name, name, x, ...)                                                                              \
    case which: return PMPI_I##name##x(__VA_ARGS__, call->request);
#define PREPARES(which, Name, name, x, ...)                                                                            \
    case which: return PMPI_##Name##_init##x(__VA_ARGS__, call->info, call->request);

#define BY_MPI(x, Count)                                                                                               \
    static int waiting##x(const struct call *call)                                                                     \
    {                                                                                                                  \
        switch (call->function) {                                                                                      \
            EACH(WAITS, x, Count) EACH_NEIGHBOR(WAITS, x, Count)                                                       \
        default: return MPI_ERR_INTERN;                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static int starting##x(const struct call *call)                                                                    \
    {                                                                                                                  \
        switch (call->function) {                                                                                      \
            EACH(STARTS, x, Count)                                                                                     \
        default: return MPI_ERR_INTERN;                                                                                \
        }                                                                                                              \
    }
#define BY_MPI4(x, Count)                                                                                              \
    static int preparing##x(const struct call *call)                                                                   \
    {                                                                                                                  \
        switch (call->function) {                                                                                      \
            EACH(PREPARES, x, Count)                                                                                   \
        default: return MPI_ERR_INTERN;                                                                                \
        }                                                                                                              \
    }

BY_MPI(, int)
#if MPI_VERSION >= 4
BY_MPI(_c, MPI_Count)
BY_MPI4(, int)
BY_MPI4(_c, MPI_Count)

int pmpi_by_mpi(const struct call *call)
{
    switch (call->mode) {
    case NONBLOCKING: return call->large ? starting_c(call) : starting(call);
    case PERSISTENT: return call->large ? preparing_c(call) : preparing(call);
    default: return call->large ? waiting_c(call) : waiting(call);
    }
}
#else
int pmpi_by_mpi(const struct call *call)
{
    return call->mode == NONBLOCKING ? starting(call) : waiting(call);
}
#endif
