/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls in which all ranks have a part in each segment. The ranks agree before the data and after them, messages have
 * buffers of one length, and a segment has one place in the result. */
#include "coll/ordinary.h"

#include <inttypes.h>
#include <stdio.h>

#include "codec/codec.h"
#include "coll/slice.h"
#include "coll/receive.h"
#include "coll/native.h"
#include "coll/packing.h"
#include "format.h"

/* ---- before the ranks have agreed */

static const char *count_of(struct coll_call *call, uint64_t shares, char *explanation, size_t bytes)
{
    struct call_resolved *resolved = &call->resolved;
    if (fmt_muladd(&resolved->total, call->args.count, shares, 0) && resolved->total <= SIZE_MAX / 2 / resolved->width)
        return NULL;
    resolved->total = 0;
    snprintf(explanation, bytes, "count %" PRIu64 " exceeds the address space", call->args.count);
    return explanation;
}

static const char *count(struct coll_call *call, const struct pici_comm *comm, char *explanation, size_t bytes)
{
    return count_of(call, call->args.kind == PICI_ALL_REDUCE ? 1 : (uint64_t)comm->ranks, explanation, bytes);
}

static const char *count_broadcast(struct coll_call *call, const struct pici_comm *comm, char *explanation,
                                   size_t bytes)
{
    const char *reason = count_of(call, 1, explanation, bytes);
    if (call->args.root >= 0 && call->args.root < comm->ranks)
        return reason;
    snprintf(explanation, bytes, "root %d out of range (world size %d)", call->args.root, comm->ranks);
    return explanation;
}

static const char *buffers_wrong(const struct coll_call *call, const struct pici_comm *comm)
{
    const struct call_args *args = &call->args;
    const uint64_t one = args->count * call->resolved.width, total = call->resolved.total * call->resolved.width;
    const uint64_t sent = args->kind == PICI_ALL_GATHER ? one : total;
    const uint64_t received = args->kind == PICI_REDUCE_SCATTER ? one : total;
    const uint8_t *residual = call->opts.residual;
    const char *null = pici_coll_null(call);
    if (null || !args->count)
        return null;
    if (residual &&
        (pici_overlap(residual, sent, args->send, sent) || pici_overlap(residual, sent, args->recv, received)))
        return "the residual overlaps a buffer";
    return !pici_coll_in_place(call, comm) && pici_overlap(args->send, sent, args->recv, received)
               ? "the send and receive buffers overlap, but not as for an in-place call: use separate buffers"
               : NULL;
}

/* ---- the layout */

static enum pici_status prepare(struct pici_request *request)
{
    request->call.resolved.native = pici_native_allowed(request);
    pici_packing_resolve(request);
    return pici_layout_choose(&request->call.resolved.layout, request->comm, &request->call);
}

/* ---- buffers: any message may have any of them */

void pici_ordinary_set_buffers(struct pici_request *request, uint8_t *memory)
{
    pici_slice_buffers(request, memory, layout_of(request)->message);
}

int pici_ordinary_has_buffers(const struct pici_request *request, int run, int step, int receives)
{
    (void)request, (void)run, (void)step, (void)receives;
    return 1; /* the layout has as many as may be in use at a time */
}

struct coll_buffer *pici_ordinary_acquire_buffer(struct pici_request *request, int run, int step, int receives,
                                                 int message)
{
    (void)run, (void)step, (void)receives, (void)message;
    return pici_slice_take(request);
}

void pici_ordinary_free_buffer(struct pici_request *request, struct coll_buffer *buffer)
{
    request->free_buffers[request->free_count++] = buffer;
}

/* ---- elements */

/* Only for gathers: copies this rank's contribution to the result. */
void pici_ordinary_place_own(struct pici_request *request, const struct slice_run *slice_run)
{
    const int own = request->comm->virtual_rank;
    if (!coll_gathers(request->call.args.kind))
        return;
    const struct coll_span span = pici_coll_slice(request->comm, &request->call, own, slice_run->slice);
    pici_slice_own(request, slice_run->queue, pici_slice_result(request, own, span.first),
                   request->call.args.rules->contribution_at(request, slice_run, own, span), span.count);
}

/* The root of a broadcast has the data in place. By value, clears the signs of its zeros there. */
static void place_root(struct pici_request *request, const struct slice_run *slice_run)
{
    const struct coll_call *call = &request->call;
    for (int i = 0;
         i < layout_of(request)->segments && call->resolved.by_value && request->comm->rank == call->args.root; i++) {
        const struct coll_span span = pici_coll_slice(request->comm, call, i, slice_run->slice);
        uint8_t *elements = call->args.recv + span.first * call->resolved.width;
        pici_slice_own(request, slice_run->queue, elements, elements, span.count);
    }
}

/* ---- the tables */

#define OF_ALL                                                                                                         \
    .algorithms = 1, .lay_out = pici_layout_most, .prepare = prepare, .receive_part = pici_receive_part,               \
    .place_sent = pici_slice_place_sent, ORDINARY_BUFFERS, RULES_OF_MEMORY

static const struct call_rules rules = {OF_ALL,
                                        .codecs = 1,
                                        .choice = 1,
                                        .count = count,
                                        .buffers_wrong = buffers_wrong,
                                        .segment = pici_layout_segment,
                                        .place_own = pici_ordinary_place_own};
static const struct call_rules of_broadcast = {OF_ALL, .count = count_broadcast, .buffers_wrong = buffers_wrong,
                                               .segment = pici_layout_segment, .place_own = place_root};
static const struct call_rules of_gatherv = {OF_ALL, .count = pici_layout_count,
                                             .buffers_wrong = pici_layout_slots_wrong,
                                             .segment = pici_layout_contribution, .place_own = pici_ordinary_place_own};

const struct call_rules *pici_ordinary_rules(enum pici_collective collective)
{
    switch (collective) {
    case PICI_BROADCAST: return &of_broadcast;
    case PICI_ALL_GATHERV: return &of_gatherv;
    default: return &rules;
    }
}
