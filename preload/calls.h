/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A call of the program: whether it is ours, and making it. */
#ifndef PICI_PRELOAD_CALLS_H
#define PICI_PRELOAD_CALLS_H

#include <mpi.h>

#include "preload/stats.h"

/* The arguments as MPI has them. */
struct call {
    enum function function;
    int large; /* of the function whose counts are MPI_Count: MPI_Allreduce_c, ... */
    const void *send;
    void *recv;
    MPI_Count count;     /* elements of a rank; all-reduce: of the vector */
    const void *counts;  /* MPI_Reduce_scatter: [ranks] int, or MPI_Count */
    MPI_Datatype type;   /* of count; all-gather: what a rank receives from each */
    MPI_Count sendcount; /* all-gather only, as sendtype */
    MPI_Datatype sendtype;
    MPI_Op op; /* not of all-gather */
    MPI_Comm comm;
};

/* Make the call, by pici or by MPI; MPI's code. */
int pmpi_call(const struct call *);

/* Count a call that MPI makes in any case. */
void pmpi_pass(enum passed);

#endif
