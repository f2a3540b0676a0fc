/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A call of the program: the arguments as MPI has them. */
#ifndef PICI_PRELOAD_CALL_H
#define PICI_PRELOAD_CALL_H

#include <mpi.h>

#include "preload/settings.h"

struct call {
    enum function function;
    int large; /* of the function whose counts are MPI_Count: MPI_Allreduce_c, ... */
    const void *send; /* NULL: broadcast */
    void *recv;       /* broadcast: the buffer */
    MPI_Count count;  /* elements of a rank; all-reduce, reduce, broadcast: of the vector */
    const void *counts; /* MPI_Reduce_scatter, MPI_Allgatherv: [ranks] int, or MPI_Count; MPI_Neighbor_allgatherv:
                         * [sources] likewise */
    const void *displs; /* MPI_Allgatherv: [ranks] int, or MPI_Aint; MPI_Neighbor_allgatherv: [sources] likewise */
    MPI_Datatype type;  /* of count; gathers: what a rank receives */
    MPI_Count sendcount; /* gathers only, as sendtype */
    MPI_Datatype sendtype;
    MPI_Op op; /* of reductions */
    int root;  /* of reduce and broadcast */
    MPI_Comm comm;
};

#endif
