/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is known of the program's communicators, as an attribute of each. */
#ifndef PICI_PRELOAD_STATE_H
#define PICI_PRELOAD_STATE_H

#include <mpi.h>
#include <stdint.h>

#include "pici/coll.h"
#include "preload/graph.h"
#include "preload/stats.h"

struct state {
    enum reason reason;     /* OURS: eligible calls are ours, but for the first ones. The same on all ranks */
    uint64_t eligible;      /* calls so far; the same on all ranks */
    struct pici_comm *comm; /* NULL: not made */
    struct graph *graph;    /* NULL: no call on its neighbourhoods yet */
    struct state *next, **link;
};

/* Begin, unless that was done. Nonzero: calls may be ours, and are counted. 0: switched off, or MPI is not between
 * MPI_Init and MPI_Finalize. Thread-safe. */
int pmpi_begun(void);

/* The state of a communicator, which is not MPI_COMM_NULL. The first time, all ranks of an intracommunicator of several
 * ranks agree on it: on settings, on where they are, and that none has a GPU's memory. NULL: MPI has failed, with *rc,
 * and has called its error handler. */
struct state *pmpi_state(MPI_Comm, enum function, int *rc);

/* Make state->comm, if all ranks can; else state->reason says why it is not made. Collective, at the same call on all
 * ranks. MPI's code. */
int pmpi_state_make(struct state *, MPI_Comm, enum function);

/* Free state->comm and plans on it; for this reason no call is ours any more. */
void pmpi_state_off(struct state *, enum reason);

#endif
