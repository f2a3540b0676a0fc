/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport during measurements. OVER_MPI: MPI. OVER_SOCKETS: sockets, and shared memory between ranks of a host.
 * OVER_LEVELS: MPI inside nodes, sockets between them. */
#ifndef PICI_TOOLS_TUNE_OVER_H
#define PICI_TOOLS_TUNE_OVER_H

#include <mpi.h>

#include "pici/coll.h"

enum over { OVER_MPI, OVER_SOCKETS, OVER_LEVELS };
enum { OVER_WRONG = 320 };

/* The transport with this name; -1: unknown. */
int over_named(const char *name);

/* The transport's name in tune files. */
const char *over_name(enum over);

/* Collective. Make a communicator of the ranks of `mpi`. node: the number of this rank's node. NULL: `wrong` has the
 * reason. Then end the job, since other ranks may wait for this one. */
struct pici_comm *over_make(enum over, MPI_Comm mpi, int node, char wrong[OVER_WRONG]);

#endif
