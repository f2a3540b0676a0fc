/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Decides whether a call is ours, from arguments that MPI requires to be the same on all ranks, and settings that the
 * ranks agreed on. It never uses data, time, or addresses. */
#ifndef PICI_PRELOAD_DECIDE_H
#define PICI_PRELOAD_DECIDE_H

#include "preload/call.h"
#include "preload/neighbors.h"
#include "preload/state.h"

/* Results of the decision, for the call that follows. */
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
    int packed;               /* gathers, broadcast: received elements are not contiguous */
    struct exchange exchange; /* neighbourhood calls, which use only this and the state */
};

/* Decide. plan->state must be set. Also counts eligible calls, and makes pici's communicator when it is due. A
 * persistent request that is ours gets a state of its own as plan->state. *rc: MPI's code, if MPI has failed. */
enum reason pmpi_decide(const struct call *, struct plan *plan, int *rc);

/* Nonzero: MPI will refuse the call. */
int pmpi_is_wrong(const struct call *);

int pmpi_is_neighbor(const struct call *);

/* A rank's entries of counts and displs. */
MPI_Count pmpi_count_of(const struct call *, int rank);
MPI_Aint pmpi_displacement(const struct call *, int rank);

#endif
