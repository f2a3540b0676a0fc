/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A call of the program: the arguments as MPI has them. */
#ifndef PICI_PRELOAD_CALL_H
#define PICI_PRELOAD_CALL_H

#include <mpi.h>

#include "preload/settings.h"

enum mode { BLOCKING, NONBLOCKING, PERSISTENT };

struct call {
    enum function function; /* the blocking one, in any mode: MPI_Iallreduce is ALLREDUCE */
    enum mode mode;
    int large;           /* its counts are MPI_Count: MPI_Allreduce_c, ... */
    const void *send;    /* NULL: broadcast */
    void *recv;          /* broadcast: the buffer */
    MPI_Count count;     /* elements of a rank; all-reduce, reduce, broadcast: of the vector */
    const void *counts;  /* MPI_Reduce_scatter, MPI_Allgatherv: [ranks] int, or MPI_Count; MPI_Neighbor_allgatherv:
                         * [sources] likewise */
    const void *displs;  /* MPI_Allgatherv: [ranks] int, or MPI_Aint; MPI_Neighbor_allgatherv: [sources] likewise */
    MPI_Datatype type;   /* of count; gathers: of received elements */
    MPI_Count sendcount; /* gathers only, like sendtype */
    MPI_Datatype sendtype;
    MPI_Op op; /* of reductions */
    int root;  /* of reduce and broadcast */
    MPI_Comm comm;
    MPI_Info info;        /* PERSISTENT */
    MPI_Request *request; /* not BLOCKING */
};

/* The function that the program has called. */
static inline enum function pmpi_called(const struct call *call)
{
    if (call->mode == NONBLOCKING)
        return (enum function)(call->function + IALLREDUCE - ALLREDUCE);
    return (enum function)(call->function + (call->mode == PERSISTENT ? ALLREDUCE_INIT - ALLREDUCE : 0));
}

#endif
