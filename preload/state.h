/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is known of the program's communicators, as an attribute of each. */
#ifndef PICI_PRELOAD_STATE_H
#define PICI_PRELOAD_STATE_H

#include <mpi.h>
#include <stdatomic.h>
#include <stdint.h>

#include "pici/coll.h"
#include "preload/graph.h"
#include "preload/stats.h"

struct state {
    enum reason reason;     /* OURS: eligible calls are ours, but for the first ones. The same on all ranks */
    int agreed;             /* the ranks have agreed on the reason, as they do in the first call that waits */
    uint64_t eligible;      /* calls so far; the same on all ranks */
    int wanted;             /* a call that does not wait was eligible when there was none; the same likewise */
    enum function wants;    /* that call */
    int stuck;              /* some rank cannot make progress in calls that do not wait */
    uint64_t lossy;         /* calls that may lose precision; the same likewise */
    struct pici_comm *comm; /* NULL: not made */
    struct graph *graph;    /* NULL: no call on its neighbourhoods yet */
    struct state *next, **link;
    atomic_flag busy; /* a thread uses comm (pmpi_lock) */
    atomic_int users; /* jobs, which need this after the program has freed its communicator */
    atomic_int orphaned; /* it has */
    struct state *next_orphan;
};

/* Begin, unless that was done. Nonzero: calls may be ours, and are counted. 0: switched off, or MPI is not between
 * MPI_Init and MPI_Finalize. Thread-safe. */
int pmpi_begun(void);

/* The state of a communicator, which is not MPI_COMM_NULL. The first time that the call may wait, all ranks of an
 * intracommunicator of several ranks agree on it: on settings, on where they are, and that none has a GPU's memory.
 * NULL: MPI has failed, with *rc, and has called its error handler. */
struct state *pmpi_state(MPI_Comm, enum function, int may_wait, int *rc);

/* All ranks of a communicator are in the same call, which may wait: make state->comm, if a call that could not wait
 * wanted it. MPI's code. */
int pmpi_state_meet(struct state *, MPI_Comm);

/* The state, if there is one and it wants pmpi_state_meet; else NULL. */
struct state *pmpi_state_wanting(MPI_Comm);

/* Make state->comm, if all ranks can; else state->reason says why it is not made. Collective, at the same call on all
 * ranks. MPI's code. */
int pmpi_state_make(struct state *, MPI_Comm, enum function);

/* A communicator of this rank alone, for messages to itself; MPI_COMM_NULL: it cannot be made. */
MPI_Comm pmpi_self(void);

/* Free state->comm and plans on it; for this reason no call is ours any more. */
void pmpi_state_off(struct state *, enum reason);

#endif
