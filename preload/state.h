/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The state of each of the program's communicators, kept as an attribute. */
#ifndef PICI_PRELOAD_STATE_H
#define PICI_PRELOAD_STATE_H

#include <mpi.h>
#include <stdatomic.h>
#include <stdint.h>

#include "pici/coll.h"
#include "preload/graph.h"
#include "preload/stats.h"

struct state {
    enum reason reason;     /* OURS: eligible calls are ours, except the first ones. The same on all ranks */
    int agreed;             /* the ranks have agreed on the reason, in the first call that may wait */
    uint64_t eligible;      /* calls so far; the same on all ranks */
    int wanted;             /* a nonblocking call was eligible before there was a communicator; the same on all ranks */
    enum function wants;    /* that call */
    int stuck;              /* some rank cannot make progress in calls that do not wait */
    uint64_t lossy;         /* calls that may lose precision; the same on all ranks */
    struct pici_comm *comm; /* NULL: not made */
    struct graph *graph;    /* NULL: no call on its neighbourhoods yet */
    struct state *next, **link;
    atomic_flag busy;    /* a thread uses comm (pmpi_lock) */
    atomic_int users;    /* jobs, which need this after the program has freed its communicator */
    atomic_int orphaned; /* the program has freed its communicator */
    struct state *next_orphan;

    /* A persistent request has a state of its own, with a comm of its own, since ranks may start requests in different
     * orders. It stays for later requests of the communicator, and is freed with the communicator's state. */
    struct state *of;       /* in a request's: the communicator's; else NULL */
    struct state *requests; /* in the communicator's: its requests' states; as many on all ranks, in the same order */
    struct state *next_request;
    atomic_int failed; /* a job has failed, so no later request may use this */
};

/* Begin, if that was not done. Nonzero: calls may be ours, and are counted. 0: switched off, or MPI is not between
 * MPI_Init and MPI_Finalize. Thread-safe. */
int pmpi_begun(void);

/* The state of a communicator, which is not MPI_COMM_NULL. In the first call that may wait, all ranks of an
 * intracommunicator with several ranks agree on settings, on their hosts, and that none has GPU memory. NULL: MPI has
 * failed, with *rc, and has called its error handler. */
struct state *pmpi_state(MPI_Comm, enum function, int may_wait, int *rc);

/* All ranks of a communicator are in the same call, which may wait: make state->comm, if a nonblocking call wanted it.
 * Returns MPI's code. */
int pmpi_state_meet(struct state *, MPI_Comm);

/* The state, if there is one and it wants pmpi_state_meet; else NULL. */
struct state *pmpi_state_wanting(MPI_Comm);

/* Make state->comm, if all ranks can; else set state->reason. Collective, at the same call on all ranks. Returns MPI's
 * code. */
int pmpi_state_make(struct state *, MPI_Comm, enum function);

/* Set *own to a state for a persistent request, whose comm no other request uses on any rank. It has no user yet.
 * Collective, at the same call on all ranks. Returns OURS, or why MPI makes the request; *rc: MPI's code. */
enum reason pmpi_state_request(struct state *, MPI_Comm, enum function, struct state **own, int *rc);

/* A communicator of this rank alone, for messages to itself; MPI_COMM_NULL: it cannot be made. */
MPI_Comm pmpi_self(void);

/* Free state->comm and its plans: no call is ours any more, for this reason. */
void pmpi_state_off(struct state *, enum reason);

#endif
