/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Whether a call is ours, and making it. */
#ifndef PICI_PRELOAD_CALLS_H
#define PICI_PRELOAD_CALLS_H

#include "preload/call.h"
#include "preload/stats.h"

/* Make the call, by pici or by MPI; MPI's code. */
int pmpi_call(const struct call *);

/* All ranks of the communicator are in a call that waits, and that MPI makes: what they can do on that occasion. MPI's
 * code. */
int pmpi_meet(MPI_Comm);

/* Count a call that MPI makes in any case. */
void pmpi_pass(enum passed);

#endif
