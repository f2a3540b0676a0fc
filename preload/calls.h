/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Decides whether a call is ours, and makes it. */
#ifndef PICI_PRELOAD_CALLS_H
#define PICI_PRELOAD_CALLS_H

#include "preload/call.h"
#include "preload/stats.h"

/* Make the call, by pici or by MPI. Returns MPI's code. */
int pmpi_call(const struct call *);

/* All ranks of the communicator are in a blocking call that MPI makes: make a communicator of ours there, if an earlier
 * call wants one. Returns MPI's code. */
int pmpi_meet(MPI_Comm);

/* Count a call that MPI makes in any case. */
void pmpi_pass(enum passed);

#endif
