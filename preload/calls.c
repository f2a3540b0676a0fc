/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Whether a call is ours depends on what MPI makes the same on all ranks, and on settings that they agreed on; never on
 * data, time, or addresses. */
#define _POSIX_C_SOURCE 200809L
#include "preload/calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "preload/gpu.h"
#include "preload/neighbors.h"
#include "preload/state.h"
#include "preload/stats.h"
#include "preload/types.h"

/* What the decision found out, for the call that follows. */
struct plan {
    struct state *state;
    int ranks;
    uint64_t count; /* of a rank, in elements of dtype; all-reduce: of the vector */
    size_t bytes;   /* of that */
    enum pici_dtype dtype;
    enum pici_op op;
    int packed;               /* all-gather: what is received is not one element after the other */
    struct exchange exchange; /* neighbourhood calls; of the other members only the state */
    const char *failure;      /* of a call that failed; NULL: pici_comm_error says why */
};

static int is_neighbor(const struct call *call)
{
    return call->function == NEIGHBOR_ALLGATHER || call->function == NEIGHBOR_ALLGATHERV;
}

/* ---- by MPI */

#if MPI_VERSION >= 4
static int by_mpi_large(const struct call *call)
{
    switch (call->function) {
    case ALLREDUCE: return PMPI_Allreduce_c(call->send, call->recv, call->count, call->type, call->op, call->comm);
    case REDUCE_SCATTER_BLOCK:
        return PMPI_Reduce_scatter_block_c(call->send, call->recv, call->count, call->type, call->op, call->comm);
    case REDUCE_SCATTER:
        return PMPI_Reduce_scatter_c(call->send, call->recv, call->counts, call->type, call->op, call->comm);
    case NEIGHBOR_ALLGATHER:
        return PMPI_Neighbor_allgather_c(call->send, call->sendcount, call->sendtype, call->recv, call->count,
                                         call->type, call->comm);
    case NEIGHBOR_ALLGATHERV:
        return PMPI_Neighbor_allgatherv_c(call->send, call->sendcount, call->sendtype, call->recv, call->counts,
                                          call->displs, call->type, call->comm);
    default:
        return PMPI_Allgather_c(call->send, call->sendcount, call->sendtype, call->recv, call->count, call->type,
                                call->comm);
    }
}
#endif

static int by_mpi(const struct call *call)
{
#if MPI_VERSION >= 4
    if (call->large)
        return by_mpi_large(call);
#endif
    switch (call->function) {
    case ALLREDUCE: return PMPI_Allreduce(call->send, call->recv, (int)call->count, call->type, call->op, call->comm);
    case REDUCE_SCATTER_BLOCK:
        return PMPI_Reduce_scatter_block(call->send, call->recv, (int)call->count, call->type, call->op, call->comm);
    case REDUCE_SCATTER:
        return PMPI_Reduce_scatter(call->send, call->recv, call->counts, call->type, call->op, call->comm);
    case NEIGHBOR_ALLGATHER:
        return PMPI_Neighbor_allgather(call->send, (int)call->sendcount, call->sendtype, call->recv, (int)call->count,
                                       call->type, call->comm);
    case NEIGHBOR_ALLGATHERV:
        return PMPI_Neighbor_allgatherv(call->send, (int)call->sendcount, call->sendtype, call->recv, call->counts,
                                        call->displs, call->type, call->comm);
    default:
        return PMPI_Allgather(call->send, (int)call->sendcount, call->sendtype, call->recv, (int)call->count,
                              call->type, call->comm);
    }
}

/* ---- the decision */

static MPI_Count count_of(const struct call *call, int rank)
{
    if (call->function != REDUCE_SCATTER)
        return call->count;
    return call->large ? ((const MPI_Count *)call->counts)[rank] : ((const int *)call->counts)[rank];
}

static int counts_are_equal(const struct call *call, int ranks)
{
    for (int r = 1; call->function == REDUCE_SCATTER && r < ranks; r++)
        if (count_of(call, r) != count_of(call, 0))
            return 0;
    return 1;
}

/* Elements of the vector of all ranks. 0 also if there are more than can be. */
static uint64_t elements(const struct call *call, int ranks)
{
    uint64_t sum = 0;
    const int parts = call->function == ALLREDUCE ? 1 : ranks;
    for (int r = 0; r < parts; r++) {
        const MPI_Count count = count_of(call, r);
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
    if (call->function != ALLGATHER) {
        /* MPI allows no derived types here, and says so itself. */
        if (!plain || !pmpi_dtype_reduced(&basic, plan->op == PICI_SUM, &plan->dtype, &each))
            return TYPE;
    } else if (!pmpi_dtype_gathered(&basic, &plan->dtype, &each))
        return TYPE;
    const size_t width = pici_dtype_width(plan->dtype);
    plan->packed = !plain;
    plan->bytes = (size_t)count_of(call, 0) * (size_t)pmpi_type_size(call->type);
    plan->count = plan->bytes / width;
    return OURS;
}

static int wrong(const struct call *call)
{
    return call->comm == MPI_COMM_NULL || call->type == MPI_DATATYPE_NULL || call->count < 0 ||
           (call->function == REDUCE_SCATTER && !call->counts) ||
           (is_neighbor(call) &&
            (call->send == MPI_IN_PLACE || call->sendtype == MPI_DATATYPE_NULL || call->sendcount < 0));
}

/* Also counts calls that are eligible, and makes the communicator when it is time to. *rc: MPI has failed. */
static enum reason decide(const struct call *call, struct plan *plan, int *rc)
{
    const struct settings *settings = pmpi_settings();
    uint64_t bytes;
    plan->state = pmpi_state(call->comm, call->function, rc);
    if (!plan->state)
        return OFF;
    if (plan->state->reason == INTER || plan->state->reason == ONE_RANK)
        return plan->state->reason;
    if (is_neighbor(call))
        return pmpi_neighbors_decide(call, plan->state, &plan->exchange, rc);
    if (PMPI_Comm_size(call->comm, &plan->ranks) != MPI_SUCCESS)
        return OFF;
    bytes = elements(call, plan->ranks);
    if (__builtin_mul_overflow(bytes, (uint64_t)pmpi_type_size(call->type), &bytes) || bytes < settings->min_bytes ||
        !bytes)
        return SMALL;
    if (plan->state->reason != OURS)
        return plan->state->reason;
    if (!(settings->functions & 1u << call->function))
        return SWITCHED_OFF;
    if (call->function != ALLGATHER && !find_op(call->op, &plan->op))
        return OP;
    if (!counts_are_equal(call, plan->ranks))
        return COUNTS;
    const enum reason reason = decide_type(call, plan);
    if (reason)
        return reason;
    if (!plan->state->comm) {
        if (plan->state->eligible++ < settings->after)
            return FIRST;
        *rc = pmpi_state_make(plan->state, call->comm, call->function);
    }
    return plan->state->reason;
}

/* ---- by pici */

/* The same buffer twice is an error. Open MPI takes it for in place, and so do we. Under MPICH the rank refuses the
 * call, of which all ranks learn, and MPI says what is wrong. */
static int aliased(const struct call *call)
{
#if defined OPEN_MPI
    (void)call;
    return 0;
#else
    return call->send == call->recv;
#endif
}

static enum pici_status all_reduce(const struct call *call, const struct plan *plan, int refuse,
                                   const struct pici_coll_opts *opts)
{
    refuse |= aliased(call);
    const void *send = call->send == MPI_IN_PLACE ? call->recv : call->send;
    void *recv = call->recv;
    if (refuse)
        send = recv = NULL;
    return pici_all_reduce(send, recv, plan->count, plan->dtype, plan->op, plan->state->comm, opts);
}

/* In place, MPI has the result in the first block, and leaves the rest as it was; ours would be in the rank's own. */
static enum pici_status reduce_scatter(const struct call *call, const struct plan *plan, int refuse,
                                       const struct pici_coll_opts *opts)
{
    const int in_place = call->send == MPI_IN_PLACE;
    void *own = in_place && !refuse ? malloc(plan->bytes) : NULL;
    void *recv = in_place ? own : call->recv;
    const void *send = in_place ? call->recv : call->send;
    if (refuse)
        send = recv = NULL;
    const enum pici_status status =
        pici_reduce_scatter(send, recv, plan->count, plan->dtype, plan->op, plan->state->comm, opts);
    if (in_place && status == PICI_OK)
        memcpy(call->recv, own, plan->bytes);
    free(own);
    return status;
}

/* Where an all-gather has what a rank sent. The buffer may be at 0, with absolute addresses in its datatype. */
static void *block(const struct call *call, int rank, MPI_Aint extent)
{
    return (void *)((uintptr_t)call->recv + (uintptr_t)rank * (uintptr_t)call->count * (uintptr_t)extent);
}

/* Datatypes of either side may be any that have the signature, and differ between ranks. What is not plain in memory is
 * packed. This rank's memory for that is not there: it calls with a null buffer, which all ranks learn before any data
 * are sent. */
static enum pici_status all_gather(const struct call *call, struct plan *plan, int refuse,
                                   const struct pici_coll_opts *opts)
{
    const int in_place = call->send == MPI_IN_PLACE;
    struct basic basic;
    int sends_plain = 1, rank = 0;
    MPI_Aint lower_bound, extent = 0;
    uint8_t *out = NULL, *in = call->recv;
    PMPI_Comm_rank(call->comm, &rank);
    PMPI_Type_get_extent(call->type, &lower_bound, &extent);
    const void *send = in_place ? block(call, rank, extent) : call->send;
    const MPI_Datatype type = in_place ? call->type : call->sendtype;
    const MPI_Count count = in_place ? call->count : call->sendcount;
    refuse |= type == MPI_DATATYPE_NULL || count < 0 || (uint64_t)count * (uint64_t)pmpi_type_size(type) != plan->bytes;
    if (!refuse && plan->packed) {
        in = malloc(plan->bytes * (size_t)plan->ranks);
        refuse = !in;
    }
    if (!refuse && (!pmpi_basic(type, &basic, &sends_plain) || !sends_plain)) {
        out = malloc(plan->bytes);
        refuse = !out || !pmpi_pack(send, count, type, out, call->comm);
        send = out;
    }
    const void *sent = refuse ? NULL : send;
    void *received = refuse ? NULL : in;
    enum pici_status status = pici_all_gather(sent, received, plan->count, plan->dtype, plan->state->comm, opts);
    for (int r = 0; plan->packed && status == PICI_OK && r < plan->ranks; r++) {
        if (!pmpi_unpack(in + (size_t)r * plan->bytes, block(call, r, extent), call->count, call->type, call->comm)) {
            plan->failure = PMPI_UNPACKING;
            status = PICI_E_TRANSPORT;
        }
    }
    if (plan->packed && in != call->recv)
        free(in);
    free(out);
    return status;
}

static double seconds_since(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + 1e-9 * (double)(now.tv_nsec - start->tv_nsec);
}

static enum pici_status by_pici(const struct call *call, struct plan *plan)
{
    struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    struct timespec start;
    opts.stats = &stats;
    clock_gettime(CLOCK_MONOTONIC, &start);
    const int refuse = !is_neighbor(call) && pmpi_gpu(); /* since the ranks agreed */
    enum pici_status status = PICI_OK;
    switch (call->function) {
    case ALLREDUCE: status = all_reduce(call, plan, refuse, &opts); break;
    case ALLGATHER: status = all_gather(call, plan, refuse, &opts); break;
    case NEIGHBOR_ALLGATHER:
    case NEIGHBOR_ALLGATHERV: status = pmpi_neighbors(call, plan->state, &plan->exchange, &opts, &plan->failure); break;
    default: status = reduce_scatter(call, plan, refuse, &opts); break;
    }
    pmpi_count_ours(call->function, &stats, seconds_since(&start));
    return status;
}

/* ---- failure */

/* Of a neighbourhood call, whose ranks need not have the same status, always the same. */
static int code_of(const struct call *call, enum pici_status status)
{
    return status == PICI_E_NOMEM && !is_neighbor(call) ? MPI_ERR_NO_MEM : MPI_ERR_OTHER;
}

/* PICI_E_ARG is found before any data move, so that MPI finds in place what was there. A neighbourhood call has begun
 * on other ranks. */
static int can_be_repeated(const struct call *call, enum pici_status status)
{
    if (is_neighbor(call))
        return 0;
    const int in_place = call->send == MPI_IN_PLACE || call->send == call->recv;
    return status == PICI_E_ARG || ((status == PICI_E_NOMEM || status == PICI_E_SPACE) && !in_place);
}

static int failed(const struct call *call, const struct plan *plan, enum pici_status status)
{
    int rank = 0;
    PMPI_Comm_rank(call->comm, &rank);
    if (can_be_repeated(call, status)) {
        if (!rank)
            fprintf(stderr, "pici: %s: %s; MPI makes the calls of this communicator from now on\n",
                    pmpi_function_name(call->function), pici_comm_error(plan->state->comm));
        pmpi_state_off(plan->state, OFF);
        pmpi_count(call->function, OFF);
        return by_mpi(call);
    }
    fprintf(stderr, "pici: rank %d: %s: %s\n", rank, pmpi_function_name(call->function),
            plan->failure ? plan->failure : pici_comm_error(plan->state->comm));
    pmpi_count(call->function, OURS);
    PMPI_Comm_call_errhandler(call->comm, code_of(call, status));
    return code_of(call, status);
}

int pmpi_call(const struct call *call)
{
    struct plan plan = {0};
    int rc = MPI_SUCCESS;
    if (!pmpi_begun() || wrong(call))
        return by_mpi(call);
    const enum reason reason = decide(call, &plan, &rc);
    if (rc != MPI_SUCCESS)
        return rc;
    if (reason) {
        pmpi_count(call->function, reason);
        return by_mpi(call);
    }
    const enum pici_status status = by_pici(call, &plan);
    if (status)
        return failed(call, &plan, status);
    pmpi_count(call->function, OURS);
    return MPI_SUCCESS;
}

void pmpi_pass(enum passed what)
{
    if (pmpi_begun())
        pmpi_count_passed(what);
}
