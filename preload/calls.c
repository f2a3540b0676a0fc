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

static int is_neighbor(const struct call *c)
{
    return c->function == NEIGHBOR_ALLGATHER || c->function == NEIGHBOR_ALLGATHERV;
}

/* ---- by MPI */

#if MPI_VERSION >= 4
static int by_mpi_large(const struct call *c)
{
    switch (c->function) {
    case ALLREDUCE: return PMPI_Allreduce_c(c->send, c->recv, c->count, c->type, c->op, c->comm);
    case REDUCE_SCATTER_BLOCK: return PMPI_Reduce_scatter_block_c(c->send, c->recv, c->count, c->type, c->op, c->comm);
    case REDUCE_SCATTER: return PMPI_Reduce_scatter_c(c->send, c->recv, c->counts, c->type, c->op, c->comm);
    case NEIGHBOR_ALLGATHER:
        return PMPI_Neighbor_allgather_c(c->send, c->sendcount, c->sendtype, c->recv, c->count, c->type, c->comm);
    case NEIGHBOR_ALLGATHERV:
        return PMPI_Neighbor_allgatherv_c(c->send, c->sendcount, c->sendtype, c->recv, c->counts, c->displs, c->type,
                                          c->comm);
    default: return PMPI_Allgather_c(c->send, c->sendcount, c->sendtype, c->recv, c->count, c->type, c->comm);
    }
}
#endif

static int by_mpi(const struct call *c)
{
#if MPI_VERSION >= 4
    if (c->large)
        return by_mpi_large(c);
#endif
    switch (c->function) {
    case ALLREDUCE: return PMPI_Allreduce(c->send, c->recv, (int)c->count, c->type, c->op, c->comm);
    case REDUCE_SCATTER_BLOCK:
        return PMPI_Reduce_scatter_block(c->send, c->recv, (int)c->count, c->type, c->op, c->comm);
    case REDUCE_SCATTER: return PMPI_Reduce_scatter(c->send, c->recv, c->counts, c->type, c->op, c->comm);
    case NEIGHBOR_ALLGATHER:
        return PMPI_Neighbor_allgather(c->send, (int)c->sendcount, c->sendtype, c->recv, (int)c->count, c->type,
                                       c->comm);
    case NEIGHBOR_ALLGATHERV:
        return PMPI_Neighbor_allgatherv(c->send, (int)c->sendcount, c->sendtype, c->recv, c->counts, c->displs, c->type,
                                        c->comm);
    default: return PMPI_Allgather(c->send, (int)c->sendcount, c->sendtype, c->recv, (int)c->count, c->type, c->comm);
    }
}

/* ---- the decision */

static MPI_Count count_of(const struct call *c, int rank)
{
    return c->function != REDUCE_SCATTER ? c->count
           : c->large                    ? ((const MPI_Count *)c->counts)[rank]
                                         : ((const int *)c->counts)[rank];
}

static int counts_are_equal(const struct call *c, int ranks)
{
    for (int r = 1; c->function == REDUCE_SCATTER && r < ranks; r++)
        if (count_of(c, r) != count_of(c, 0))
            return 0;
    return 1;
}

/* Elements of the vector of all ranks. 0 also if there are more than can be. */
static uint64_t elements(const struct call *c, int ranks)
{
    uint64_t sum = 0;
    const int parts = c->function == ALLREDUCE ? 1 : ranks;
    for (int r = 0; r < parts; r++) {
        const MPI_Count n = count_of(c, r);
        if (n < 0 || __builtin_add_overflow(sum, (uint64_t)n, &sum))
            return 0;
    }
    return sum;
}

static int find_op(MPI_Op op, enum pici_op *found)
{
    *found = op == MPI_SUM ? PICI_SUM : op == MPI_MIN ? PICI_MIN : PICI_MAX;
    return op == MPI_SUM || op == MPI_MIN || op == MPI_MAX;
}

static enum reason decide_type(const struct call *c, struct plan *p)
{
    struct basic b;
    int plain, each;
    if (!pmpi_basic(c->type, &b, &plain))
        return TYPE;
    if (c->function != ALLGATHER) {
        /* MPI allows no derived types here, and says so itself. */
        if (!plain || !pmpi_dtype_reduced(&b, p->op == PICI_SUM, &p->dtype, &each))
            return TYPE;
    } else if (!pmpi_dtype_gathered(&b, &p->dtype, &each))
        return TYPE;
    const size_t width = pici_dtype_width(p->dtype);
    p->packed = !plain;
    p->bytes = (size_t)count_of(c, 0) * (size_t)pmpi_type_size(c->type);
    p->count = p->bytes / width;
    return OURS;
}

static int wrong(const struct call *c)
{
    return c->comm == MPI_COMM_NULL || c->type == MPI_DATATYPE_NULL || c->count < 0 ||
           (c->function == REDUCE_SCATTER && !c->counts) ||
           (is_neighbor(c) && (c->send == MPI_IN_PLACE || c->sendtype == MPI_DATATYPE_NULL || c->sendcount < 0));
}

/* Also counts calls that are eligible, and makes the communicator when it is time to. *rc: MPI has failed. */
static enum reason decide(const struct call *c, struct plan *p, int *rc)
{
    const struct settings *set = pmpi_settings();
    uint64_t bytes;
    p->state = pmpi_state(c->comm, c->function, rc);
    if (!p->state)
        return OFF;
    if (p->state->reason == INTER || p->state->reason == ONE_RANK)
        return p->state->reason;
    if (is_neighbor(c))
        return pmpi_neighbors_decide(c, p->state, &p->exchange, rc);
    if (PMPI_Comm_size(c->comm, &p->ranks) != MPI_SUCCESS)
        return OFF;
    bytes = elements(c, p->ranks);
    if (__builtin_mul_overflow(bytes, (uint64_t)pmpi_type_size(c->type), &bytes) || bytes < set->min_bytes || !bytes)
        return SMALL;
    if (p->state->reason != OURS)
        return p->state->reason;
    if (!(set->functions & 1u << c->function))
        return SWITCHED_OFF;
    if (c->function != ALLGATHER && !find_op(c->op, &p->op))
        return OP;
    if (!counts_are_equal(c, p->ranks))
        return COUNTS;
    const enum reason why = decide_type(c, p);
    if (why)
        return why;
    if (!p->state->comm) {
        if (p->state->eligible++ < set->after)
            return FIRST;
        *rc = pmpi_state_make(p->state, c->comm, c->function);
    }
    return p->state->reason;
}

/* ---- by pici */

/* The same buffer twice is an error. Open MPI takes it for in place, and so do we. Under MPICH the rank refuses the
 * call, of which all ranks learn, and MPI says what is wrong. */
static int aliased(const struct call *c)
{
#if defined OPEN_MPI
    (void)c;
    return 0;
#else
    return c->send == c->recv;
#endif
}

static enum pici_status all_reduce(const struct call *c, const struct plan *p, int refuse,
                                   const struct pici_coll_opts *opts)
{
    refuse |= aliased(c);
    const void *send = c->send == MPI_IN_PLACE ? c->recv : c->send;
    return pici_all_reduce(refuse ? NULL : send, refuse ? NULL : c->recv, p->count, p->dtype, p->op, p->state->comm,
                           opts);
}

/* In place, MPI has the result in the first block, and leaves the rest as it was; ours would be in the rank's own. */
static enum pici_status reduce_scatter(const struct call *c, const struct plan *p, int refuse,
                                       const struct pici_coll_opts *opts)
{
    const int in_place = c->send == MPI_IN_PLACE;
    void *own = in_place && !refuse ? malloc(p->bytes) : NULL;
    void *recv = in_place ? own : c->recv;
    const void *send = in_place ? c->recv : c->send;
    const enum pici_status s = pici_reduce_scatter(refuse ? NULL : send, refuse ? NULL : recv, p->count, p->dtype,
                                                   p->op, p->state->comm, opts);
    if (in_place && s == PICI_OK)
        memcpy(c->recv, own, p->bytes);
    free(own);
    return s;
}

/* Where an all-gather has what a rank sent. The buffer may be at 0, with absolute addresses in its datatype. */
static void *block(const struct call *c, int rank, MPI_Aint extent)
{
    return (void *)((uintptr_t)c->recv + (uintptr_t)rank * (uintptr_t)c->count * (uintptr_t)extent);
}

/* Datatypes of either side may be any that have the signature, and differ between ranks. What is not plain in memory is
 * packed. This rank's memory for that is not there: it calls with a null buffer, which all ranks learn before any data
 * are sent. */
static enum pici_status all_gather(const struct call *c, struct plan *p, int refuse, const struct pici_coll_opts *opts)
{
    const int in_place = c->send == MPI_IN_PLACE;
    struct basic b;
    int sends_plain = 1, rank = 0;
    MPI_Aint lower, extent = 0;
    uint8_t *out = NULL, *in = c->recv;
    PMPI_Comm_rank(c->comm, &rank);
    PMPI_Type_get_extent(c->type, &lower, &extent);
    const void *send = in_place ? block(c, rank, extent) : c->send;
    const MPI_Datatype type = in_place ? c->type : c->sendtype;
    const MPI_Count count = in_place ? c->count : c->sendcount;
    refuse |= type == MPI_DATATYPE_NULL || count < 0 || (uint64_t)count * (uint64_t)pmpi_type_size(type) != p->bytes;
    if (!refuse && p->packed) {
        in = malloc(p->bytes * (size_t)p->ranks);
        refuse = !in;
    }
    if (!refuse && (!pmpi_basic(type, &b, &sends_plain) || !sends_plain)) {
        out = malloc(p->bytes);
        refuse = !out || !pmpi_pack(send, count, type, out, c->comm);
        send = out;
    }
    enum pici_status s =
        pici_all_gather(refuse ? NULL : send, refuse ? NULL : in, p->count, p->dtype, p->state->comm, opts);
    for (int r = 0; p->packed && s == PICI_OK && r < p->ranks; r++) {
        if (!pmpi_unpack(in + (size_t)r * p->bytes, block(c, r, extent), c->count, c->type, c->comm)) {
            p->failure = PMPI_UNPACKING;
            s = PICI_E_TRANSPORT;
        }
    }
    if (p->packed && in != c->recv)
        free(in);
    free(out);
    return s;
}

static double seconds_since(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + 1e-9 * (double)(now.tv_nsec - start->tv_nsec);
}

static enum pici_status by_pici(const struct call *c, struct plan *p)
{
    struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    struct timespec start;
    opts.stats = &stats;
    clock_gettime(CLOCK_MONOTONIC, &start);
    const int refuse = !is_neighbor(c) && pmpi_gpu(); /* since the ranks agreed */
    const enum pici_status s = is_neighbor(c) ? pmpi_neighbors(c, p->state, &p->exchange, &opts, &p->failure)
                               : c->function == ALLREDUCE ? all_reduce(c, p, refuse, &opts)
                               : c->function == ALLGATHER ? all_gather(c, p, refuse, &opts)
                                                          : reduce_scatter(c, p, refuse, &opts);
    pmpi_count_ours(c->function, stats.dense_bytes, stats.wire_bytes, seconds_since(&start));
    return s;
}

/* ---- failure */

/* Of a neighbourhood call, whose ranks need not have the same status, always the same. */
static int code_of(const struct call *c, enum pici_status s)
{
    return s == PICI_E_NOMEM && !is_neighbor(c) ? MPI_ERR_NO_MEM : MPI_ERR_OTHER;
}

/* PICI_E_ARG is found before any data move, so that MPI finds in place what was there. A neighbourhood call has begun
 * on other ranks. */
static int can_be_repeated(const struct call *c, enum pici_status s)
{
    if (is_neighbor(c))
        return 0;
    const int in_place = c->send == MPI_IN_PLACE || c->send == c->recv;
    return s == PICI_E_ARG || ((s == PICI_E_NOMEM || s == PICI_E_SPACE) && !in_place);
}

static int failed(const struct call *c, const struct plan *p, enum pici_status s)
{
    int rank = 0;
    PMPI_Comm_rank(c->comm, &rank);
    if (can_be_repeated(c, s)) {
        if (!rank)
            fprintf(stderr, "pici: %s: %s; this communicator is MPI's from now on\n", pmpi_function_name(c->function),
                    pici_comm_error(p->state->comm));
        pmpi_state_off(p->state, OFF);
        pmpi_count(c->function, OFF);
        return by_mpi(c);
    }
    fprintf(stderr, "pici: rank %d: %s: %s\n", rank, pmpi_function_name(c->function),
            p->failure ? p->failure : pici_comm_error(p->state->comm));
    pmpi_count(c->function, OURS);
    PMPI_Comm_call_errhandler(c->comm, code_of(c, s));
    return code_of(c, s);
}

int pmpi_call(const struct call *c)
{
    struct plan p = {0};
    int rc = MPI_SUCCESS;
    if (!pmpi_begun() || wrong(c))
        return by_mpi(c);
    const enum reason why = decide(c, &p, &rc);
    if (rc != MPI_SUCCESS)
        return rc;
    if (why) {
        pmpi_count(c->function, why);
        return by_mpi(c);
    }
    const enum pici_status s = by_pici(c, &p);
    if (s)
        return failed(c, &p, s);
    pmpi_count(c->function, OURS);
    return MPI_SUCCESS;
}

void pmpi_pass(enum passed what)
{
    if (pmpi_begun())
        pmpi_count_passed(what);
}
