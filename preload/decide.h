/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Whether a call is ours. That depends on what MPI makes the same on all ranks, and on settings that they agreed on;
 * never on data, time, or addresses. */
#ifndef PICI_PRELOAD_DECIDE_H
#define PICI_PRELOAD_DECIDE_H

#include "preload/call.h"
#include "preload/neighbors.h"
#include "preload/state.h"

/* What the decision found out, for the call that follows. */
struct plan {
    struct state *state;
    int ranks;
    uint64_t count; /* of a rank, in elements of dtype; all-reduce, reduce, broadcast: of the vector */
    size_t bytes;   /* of that */
    size_t total;   /* bytes of the vector of all ranks */
    size_t item;    /* bytes of one of call->type */
    enum pici_dtype dtype;
    enum pici_op op;
    int floats;               /* one float is one element */
    int packed;               /* gathers, broadcast: what is received is not one element after the other */
    struct exchange exchange; /* neighbourhood calls; of the other members only the state */
};

/* plan->state is set. Also counts calls that are eligible, and makes the communicator when it is time to. *rc: MPI has
 * failed. */
enum reason pmpi_decide(const struct call *, struct plan *plan, int *rc);

/* Nonzero: MPI refuses the call, or will when it looks at it. */
int pmpi_is_wrong(const struct call *);

int pmpi_is_neighbor(const struct call *);

/* What counts and displs have for a rank. */
MPI_Count pmpi_count_of(const struct call *, int rank);
MPI_Aint pmpi_displacement(const struct call *, int rank);

#endif
