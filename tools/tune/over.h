/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the library's messages go over while they are measured: MPI; sockets, and shared memory between ranks of a host;
 * or MPI inside nodes and such sockets between them. */
#ifndef PICI_TOOLS_TUNE_OVER_H
#define PICI_TOOLS_TUNE_OVER_H

#include <mpi.h>

#include "pici/coll.h"

enum over { OVER_MPI, OVER_SOCKETS, OVER_LEVELS };
enum { OVER_WRONG = 320 };

/* Of the name of one; -1: there is none. */
int over_named(const char *name);

/* The name, as tune files have it. */
const char *over_name(enum over);

/* A communicator among the ranks of `mpi`. node: the number of this rank's node. Collective. NULL: `wrong` says why;
 * then the job is to end, since others may wait for this rank. */
struct pici_comm *over_make(enum over, MPI_Comm mpi, int node, char wrong[OVER_WRONG]);

#endif
