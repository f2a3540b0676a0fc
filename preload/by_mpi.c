/* SPDX-License-Identifier: BSD-3-Clause */
#include "preload/by_mpi.h"

#if MPI_VERSION >= 4
static int by_mpi_large(const struct call *call)
{
    switch (call->function) {
    case ALLREDUCE: return PMPI_Allreduce_c(call->send, call->recv, call->count, call->type, call->op, call->comm);
    case REDUCE_SCATTER_BLOCK:
        return PMPI_Reduce_scatter_block_c(call->send, call->recv, call->count, call->type, call->op, call->comm);
    case REDUCE_SCATTER:
        return PMPI_Reduce_scatter_c(call->send, call->recv, call->counts, call->type, call->op, call->comm);
    case REDUCE:
        return PMPI_Reduce_c(call->send, call->recv, call->count, call->type, call->op, call->root, call->comm);
    case BCAST: return PMPI_Bcast_c(call->recv, call->count, call->type, call->root, call->comm);
    case ALLGATHERV:
        return PMPI_Allgatherv_c(call->send, call->sendcount, call->sendtype, call->recv, call->counts, call->displs,
                                 call->type, call->comm);
    case NEIGHBOR_ALLGATHER:
        return PMPI_Neighbor_allgather_c(call->send, call->sendcount, call->sendtype, call->recv, call->count,
                                         call->type, call->comm);
    case NEIGHBOR_ALLGATHERV:
        return PMPI_Neighbor_allgatherv_c(call->send, call->sendcount, call->sendtype, call->recv, call->counts,
                                          call->displs, call->type, call->comm);
    default:
        return PMPI_Allgather_c(call->send, call->sendcount, call->sendtype, call->recv, call->count, call->type,
                                call->comm);
    }
}
#endif

int pmpi_by_mpi(const struct call *call)
{
#if MPI_VERSION >= 4
    if (call->large)
        return by_mpi_large(call);
#endif
    switch (call->function) {
    case ALLREDUCE: return PMPI_Allreduce(call->send, call->recv, (int)call->count, call->type, call->op, call->comm);
    case REDUCE_SCATTER_BLOCK:
        return PMPI_Reduce_scatter_block(call->send, call->recv, (int)call->count, call->type, call->op, call->comm);
    case REDUCE_SCATTER:
        return PMPI_Reduce_scatter(call->send, call->recv, call->counts, call->type, call->op, call->comm);
    case REDUCE:
        return PMPI_Reduce(call->send, call->recv, (int)call->count, call->type, call->op, call->root, call->comm);
    case BCAST: return PMPI_Bcast(call->recv, (int)call->count, call->type, call->root, call->comm);
    case ALLGATHERV:
        return PMPI_Allgatherv(call->send, (int)call->sendcount, call->sendtype, call->recv, call->counts, call->displs,
                               call->type, call->comm);
    case NEIGHBOR_ALLGATHER:
        return PMPI_Neighbor_allgather(call->send, (int)call->sendcount, call->sendtype, call->recv, (int)call->count,
                                       call->type, call->comm);
    case NEIGHBOR_ALLGATHERV:
        return PMPI_Neighbor_allgatherv(call->send, (int)call->sendcount, call->sendtype, call->recv, call->counts,
                                        call->displs, call->type, call->comm);
    default:
        return PMPI_Allgather(call->send, (int)call->sendcount, call->sendtype, call->recv, (int)call->count,
                              call->type, call->comm);
    }
}
