/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "preload/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preload/gpu.h"
#include "preload/types.h"

/* Passing the same buffer twice is an error. Open MPI treats it as in place, and so do we. With MPICH, the rank refuses
 * the call, all ranks learn that, and MPI reports the error. */
static int aliased(const struct call *call)
{
#if defined OPEN_MPI
    (void)call;
    return 0;
#else
    return call->send == call->recv;
#endif
}

/* Call a function of pici, or its nonblocking version. */
#define MAKE(function, ...)                                                                                            \
    (work->blocking ? function(__VA_ARGS__, work->plan.state->comm, opts)                                              \
                    : function##_start(__VA_ARGS__, work->plan.state->comm, opts, &work->request))

static enum pici_status all_reduce(struct work *work, int refuse, const struct pici_coll_opts *opts)
{
    const struct call *call = &work->call;
    refuse |= aliased(call);
    const void *send = call->send == MPI_IN_PLACE ? call->recv : call->send;
    void *recv = call->recv;
    if (refuse)
        send = recv = NULL;
    return MAKE(pici_all_reduce, send, recv, work->plan.count, work->plan.dtype, work->plan.op);
}

/* An all-reduce whose result only the root keeps. It takes the root no longer than a reduce-scatter and a gather, and
 * gives the same sums as MPI_Allreduce. */
static enum pici_status reduce(struct work *work, int refuse, const struct pici_coll_opts *opts)
{
    const struct call *call = &work->call;
    if (work->rank == call->root)
        return all_reduce(work, refuse, opts);
    work->received = refuse ? NULL : malloc(work->plan.bytes);
    /* MPI_IN_PLACE is for the root alone. */
    const void *send = work->received && call->send != MPI_IN_PLACE ? call->send : NULL;
    return MAKE(pici_all_reduce, send, work->received, work->plan.count, work->plan.dtype, work->plan.op);
}

/* In place, MPI puts the result into the first block, and leaves the rest unchanged; pici would put it into the rank's
 * own block. */
static enum pici_status reduce_scatter(struct work *work, int refuse, const struct pici_coll_opts *opts)
{
    const struct call *call = &work->call;
    const int in_place = call->send == MPI_IN_PLACE;
    work->received = in_place && !refuse ? malloc(work->plan.bytes) : NULL;
    void *recv = in_place ? work->received : call->recv;
    const void *send = in_place ? call->recv : call->send;
    if (refuse)
        send = recv = NULL;
    return MAKE(pici_reduce_scatter, send, recv, work->plan.count, work->plan.dtype, work->plan.op);
}

/* The address of a rank's contribution in a gather's buffer. The buffer may be at 0, with absolute addresses in its
 * datatype. */
static void *block(const struct call *call, int rank, MPI_Aint extent)
{
    return (void *)((uintptr_t)call->recv + (uintptr_t)pmpi_displacement(call, rank) * (uintptr_t)extent);
}

static MPI_Aint extent_of(MPI_Datatype type)
{
    MPI_Aint lower_bound, extent = 0;
    PMPI_Type_get_extent(type, &lower_bound, &extent);
    return extent;
}

/* MPI_Allgatherv: set the lengths and offsets of contributions, in elements. pici uses the offsets only where it places
 * contributions itself. 0: no memory. */
static int list_lengths(struct work *work)
{
    const size_t ranks = (size_t)work->plan.ranks, width = pici_dtype_width(work->plan.dtype);
    const uint64_t each = work->plan.item / width;
    if (work->call.function != ALLGATHERV)
        return 1;
    work->lengths = calloc(ranks, sizeof *work->lengths);
    work->offsets = calloc(ranks, sizeof *work->offsets);
    if (!work->lengths || !work->offsets)
        return 0;
    for (int r = 0; r < work->plan.ranks; r++) {
        const MPI_Aint place = pmpi_displacement(&work->call, r);
        work->lengths[r] = (uint64_t)pmpi_count_of(&work->call, r) * each;
        work->offsets[r] = place > 0 ? (uint64_t)place * each : 0;
        work->plan.packed |= place < 0; /* pici has no negative offsets */
    }
    return 1;
}

/* This rank's contribution to a gather, plain in memory. NULL: it has elements that this rank cannot provide. */
static const void *contribution(struct work *work, size_t bytes)
{
    const struct call *call = &work->call;
    const int in_place = call->send == MPI_IN_PLACE;
    struct basic basic;
    int plain = 1;
    const void *send = in_place ? block(call, work->rank, extent_of(call->type)) : call->send;
    const MPI_Datatype type = in_place ? call->type : call->sendtype;
    const MPI_Count count = in_place ? pmpi_count_of(call, work->rank) : call->sendcount;
    if (type == MPI_DATATYPE_NULL || count < 0 || (uint64_t)count * (uint64_t)pmpi_type_size(type) != bytes)
        return NULL;
    if (!bytes || (pmpi_basic(type, &basic, &plain) && plain))
        return bytes ? send : call;
    work->sent = malloc(bytes);
    return work->sent && pmpi_pack(send, count, type, work->sent, call->comm) ? work->sent : NULL;
}

/* Send and receive datatypes may be any with the same signature, and differ between ranks. Elements that are not plain
 * in memory are packed. */
static enum pici_status all_gather(struct work *work, int refuse, const struct pici_coll_opts *opts)
{
    const struct plan *plan = &work->plan;
    const int varied = work->call.function == ALLGATHERV;
    const size_t bytes = (size_t)pmpi_count_of(&work->call, work->rank) * plan->item;
    const void *send = NULL;
    void *recv = work->call.recv;
    refuse |= !list_lengths(work);
    if (!refuse && plan->packed)
        recv = work->received = malloc(plan->total);
    if (!refuse && recv)
        send = contribution(work, bytes);
    if (!send)
        recv = NULL;
    if (!varied)
        return MAKE(pici_all_gather, send, recv, plan->count, plan->dtype);
    return MAKE(pici_all_gatherv, send, bytes / pici_dtype_width(plan->dtype), recv, work->lengths,
                plan->packed ? NULL : work->offsets, plan->dtype);
}

static int spread(const struct work *work)
{
    const struct call *call = &work->call;
    const MPI_Aint extent = extent_of(call->type);
    const uint8_t *from = work->received;
    int good = 1;
    for (int r = 0; good && r < work->plan.ranks; r++) {
        const MPI_Count count = pmpi_count_of(call, r);
        good = !count || pmpi_unpack(from, block(call, r, extent), count, call->type, call->comm);
        from += (size_t)count * work->plan.item;
    }
    return good;
}

/* Ranks may have different datatypes of the same signature. */
static enum pici_status broadcast(struct work *work, int refuse, const struct pici_coll_opts *opts)
{
    const struct call *call = &work->call;
    const struct plan *plan = &work->plan;
    void *buffer = call->recv;
    if (!refuse && plan->packed) {
        buffer = work->received = malloc(plan->bytes);
        refuse =
            buffer && work->rank == call->root && !pmpi_pack(call->recv, call->count, call->type, buffer, call->comm);
    }
    return MAKE(pici_broadcast, refuse ? NULL : buffer, plan->count, plan->dtype, call->root);
}

/* Allow the loss that the user permits: in sums of floats by MPI_Allreduce. Each call rounds by other random numbers,
 * which are the same in each run. */
static void allow_loss(struct work *work, struct pici_values *values, struct pici_coll_opts *opts)
{
    const struct plan *plan = &work->plan;
    const int casts = values->codec == PICI_VALUES_CAST;
    if (values->codec == PICI_VALUES_EXACT || work->call.function != ALLREDUCE || plan->op != PICI_SUM ||
        !plan->floats || (plan->dtype != PICI_F32 && (casts || plan->dtype != PICI_F64)))
        return;
    values->seed = plan->state->lossy++;
    opts->values = values;
}

enum pici_status pmpi_work_begin(struct work *work)
{
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    struct pici_values values = pmpi_settings()->values;
    work->stats = (struct pici_coll_stats)PICI_COLL_STATS_INIT;
    opts.stats = &work->stats;
    clock_gettime(CLOCK_MONOTONIC, &work->begin);
    if (pmpi_is_neighbor(&work->call))
        return pmpi_neighbors_begin(&work->call, work->plan.state, &work->plan.exchange, &opts,
                                    work->blocking ? NULL : &work->request);
    const int refuse = pmpi_gpu(); /* may have changed since the ranks agreed */
    allow_loss(work, &values, &opts);
    switch (work->call.function) {
    case ALLREDUCE: return all_reduce(work, refuse, &opts);
    case REDUCE: return reduce(work, refuse, &opts);
    case BCAST: return broadcast(work, refuse, &opts);
    case ALLGATHER:
    case ALLGATHERV: return all_gather(work, refuse, &opts);
    default: return reduce_scatter(work, refuse, &opts);
    }
}

static double seconds_since(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + 1e-9 * (double)(now.tv_nsec - start->tv_nsec);
}

/* Copy received elements from this call's memory to the program's buffer. */
static int deliver(const struct work *work)
{
    const struct call *call = &work->call;
    switch (call->function) {
    case ALLGATHER:
    case ALLGATHERV: return spread(work);
    case BCAST:
        return work->rank == call->root || pmpi_unpack(work->received, call->recv, call->count, call->type, call->comm);
    case REDUCE: return 1; /* of a rank that is not the root */
    default: memcpy(call->recv, work->received, work->plan.bytes); return 1;
    }
}

enum pici_status pmpi_work_end(struct work *work, enum pici_status status)
{
    const struct call *call = &work->call;
    if (pmpi_is_neighbor(call))
        status = pmpi_neighbors_end(call, work->plan.state, &work->plan.exchange, status, &work->failure);
    else if (status == PICI_OK && work->received && !deliver(work)) {
        work->failure = PMPI_UNPACKING;
        status = PICI_E_TRANSPORT;
    }
    free(work->sent);
    free(work->received);
    free(work->lengths);
    free(work->offsets);
    pmpi_count_ours(pmpi_called(call), &work->stats, seconds_since(&work->begin));
    return status;
}

/* MPI's error code. Ranks of a neighbourhood call may have different statuses, so it always has the same code. */
static int code_of(const struct call *call, enum pici_status status)
{
    return status == PICI_E_NOMEM && !pmpi_is_neighbor(call) ? MPI_ERR_NO_MEM : MPI_ERR_OTHER;
}

int pmpi_work_failed(const struct work *work, enum pici_status status)
{
    fprintf(stderr, "pici: rank %d: %s: %s\n", work->rank, pmpi_function_name(pmpi_called(&work->call)),
            work->failure ? work->failure : pici_comm_error(work->plan.state->comm));
    return code_of(&work->call, status);
}
