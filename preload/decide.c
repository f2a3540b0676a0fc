/* SPDX-License-Identifier: BSD-3-Clause */
#include "preload/decide.h"

#include "preload/types.h"

/* The kind of a function. */
static int is_vector(const struct call *call) /* all ranks have a vector of `count` elements */
{
    return call->function == ALLREDUCE || call->function == REDUCE || call->function == BCAST;
}

static int has_root(const struct call *call)
{
    return call->function == REDUCE || call->function == BCAST;
}

static int has_counts(const struct call *call) /* one for each rank */
{
    return call->function == REDUCE_SCATTER || call->function == ALLGATHERV;
}

static int reduces(const struct call *call)
{
    return call->function == ALLREDUCE || call->function == REDUCE || call->function == REDUCE_SCATTER ||
           call->function == REDUCE_SCATTER_BLOCK;
}

int pmpi_is_neighbor(const struct call *call)
{
    return call->function == NEIGHBOR_ALLGATHER || call->function == NEIGHBOR_ALLGATHERV;
}

MPI_Count pmpi_count_of(const struct call *call, int rank)
{
    if (!has_counts(call))
        return call->count;
    return call->large ? ((const MPI_Count *)call->counts)[rank] : ((const int *)call->counts)[rank];
}

MPI_Aint pmpi_displacement(const struct call *call, int rank)
{
    if (call->function != ALLGATHERV)
        return (MPI_Aint)(rank * call->count);
    return call->large ? ((const MPI_Aint *)call->displs)[rank] : ((const int *)call->displs)[rank];
}

static int counts_are_equal(const struct call *call, int ranks)
{
    for (int r = 1; call->function == REDUCE_SCATTER && r < ranks; r++)
        if (pmpi_count_of(call, r) != pmpi_count_of(call, 0))
            return 0;
    return 1;
}

/* The elements of the vector of all ranks. Also 0 if a count is negative, or the sum too large. */
static uint64_t elements(const struct call *call, int ranks)
{
    uint64_t sum = 0;
    const int parts = is_vector(call) ? 1 : ranks;
    for (int r = 0; r < parts; r++) {
        const MPI_Count count = pmpi_count_of(call, r);
        if (count < 0 || __builtin_add_overflow(sum, (uint64_t)count, &sum))
            return 0;
    }
    return sum;
}

static int find_op(MPI_Op op, enum pici_op *found)
{
    const MPI_Op ops[] = {MPI_SUM, MPI_MIN, MPI_MAX};
    static const enum pici_op same[] = {PICI_SUM, PICI_MIN, PICI_MAX};
    for (int i = 0; i < 3; i++)
        if (ops[i] == op) {
            *found = same[i];
            return 1;
        }
    return 0;
}

static enum reason decide_type(const struct call *call, struct plan *plan)
{
    struct basic basic;
    int plain, each;
    if (!pmpi_basic(call->type, &basic, &plain))
        return TYPE;
    if (reduces(call)) {
        /* MPI allows no derived types here, and reports them itself. */
        if (!plain || !pmpi_dtype_reduced(&basic, plan->op == PICI_SUM, &plan->dtype, &each))
            return TYPE;
    } else if (!pmpi_dtype_gathered(&basic, &plan->dtype, &each))
        return TYPE;
    plan->floats = basic.kind == FLOAT;
    plan->packed = !plain;
    plan->bytes = (size_t)pmpi_count_of(call, 0) * plan->item;
    plan->count = plan->bytes / pici_dtype_width(plan->dtype);
    return OURS;
}

int pmpi_is_wrong(const struct call *call)
{
    return call->comm == MPI_COMM_NULL || call->type == MPI_DATATYPE_NULL || call->count < 0 ||
           (has_counts(call) && !call->counts) || (call->function == ALLGATHERV && !call->displs) ||
           (pmpi_is_neighbor(call) &&
            (call->send == MPI_IN_PLACE || call->sendtype == MPI_DATATYPE_NULL || call->sendcount < 0));
}

/* The reason for a call when there is a communicator: a call that does not wait needs progress, too. */
static enum reason later(const struct call *call, const struct state *state)
{
    if (state->reason == OURS && call->mode != BLOCKING && state->stuck)
        return NO_PROGRESS;
    return state->reason;
}

/* Handle the first eligible calls of a communicator. A nonblocking call only notes that it wants pici's communicator;
 * the next blocking call makes it. A persistent request makes it at once, since the program will use the request
 * again. */
static enum reason make(const struct call *call, struct state *state, int *rc)
{
    const int is_first = state->eligible < pmpi_settings()->after;
    state->eligible++;
    if (call->mode == NONBLOCKING) {
        state->wanted = 1;
        state->wants = pmpi_called(call);
        return EARLY;
    }
    if (call->mode == BLOCKING && is_first)
        return FIRST;
    *rc = pmpi_state_make(state, call->comm, pmpi_called(call));
    return later(call, state);
}

enum reason pmpi_decide(const struct call *call, struct plan *plan, int *rc)
{
    const struct settings *settings = pmpi_settings();
    uint64_t bytes;
    if (plan->state->reason == INTER || plan->state->reason == ONE_RANK)
        return plan->state->reason;
    if (pmpi_is_neighbor(call))
        return pmpi_neighbors_decide(call, plan->state, &plan->exchange, rc);
    if (PMPI_Comm_size(call->comm, &plan->ranks) != MPI_SUCCESS ||
        (has_root(call) && (call->root < 0 || call->root >= plan->ranks)))
        return OFF;
    plan->item = (size_t)pmpi_type_size(call->type);
    bytes = elements(call, plan->ranks);
    if (__builtin_mul_overflow(bytes, (uint64_t)plan->item, &bytes) || bytes < settings->min_bytes || !bytes)
        return SMALL;
    plan->total = bytes;
    if (plan->state->reason != OURS)
        return plan->state->reason;
    if (!(settings->functions & 1u << pmpi_called(call)))
        return SWITCHED_OFF;
    if (reduces(call) && !find_op(call->op, &plan->op))
        return OP;
    if (!counts_are_equal(call, plan->ranks))
        return COUNTS;
    enum reason reason = decide_type(call, plan);
    if (!reason)
        reason = plan->state->comm ? later(call, plan->state) : make(call, plan->state, rc);
    if (reason || call->mode != PERSISTENT)
        return reason;
    return pmpi_state_request(plan->state, call->comm, pmpi_called(call), &plan->state, rc);
}
