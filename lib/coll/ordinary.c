/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls in which all ranks have a part in each segment: the ranks agree before the data and after them, messages have
 * buffers of one length, and a segment has one place in the result. */
#include "coll/ordinary.h"

#include <inttypes.h>
#include <stdio.h>

#include "codec/codec.h"
#include "coll/slice.h"
#include "coll/take.h"
#include "coll/vendor.h"
#include "format.h"

/* ---- before the ranks have agreed */

static const char *count_of(struct coll_call *c, uint64_t shares, char *words, size_t bytes)
{
    struct call_resolved *to = &c->resolved;
    if (fmt_muladd(&to->total, c->args.count, shares, 0) && to->total <= SIZE_MAX / 2 / to->width)
        return NULL;
    to->total = 0;
    snprintf(words, bytes, "a count of %" PRIu64 " is beyond memory", c->args.count);
    return words;
}

static const char *count(struct coll_call *c, const struct pici_comm *comm, char *words, size_t bytes)
{
    return count_of(c, c->args.kind == PICI_ALL_REDUCE ? 1 : (uint64_t)comm->ranks, words, bytes);
}

static const char *count_broadcast(struct coll_call *c, const struct pici_comm *comm, char *words, size_t bytes)
{
    const char *why = count_of(c, 1, words, bytes);
    if (c->args.root >= 0 && c->args.root < comm->ranks)
        return why;
    snprintf(words, bytes, "there is no root %d among %d ranks", c->args.root, comm->ranks);
    return words;
}

static const char *buffers_wrong(const struct coll_call *c, const struct pici_comm *comm)
{
    const struct call_args *a = &c->args;
    const uint64_t one = a->count * c->resolved.width, all = c->resolved.total * c->resolved.width;
    const uint64_t sent = a->kind == PICI_ALL_GATHER ? one : all, received = a->kind == PICI_REDUCE_SCATTER ? one : all;
    const uint8_t *residual = c->opts.residual;
    const char *null = pici_coll_null(c);
    if (null || !a->count)
        return null;
    if (residual && (pici_overlap(residual, sent, a->send, sent) || pici_overlap(residual, sent, a->recv, received)))
        return "the residual overlaps a buffer";
    return !pici_coll_in_place(c, comm) && pici_overlap(a->send, sent, a->recv, received)
               ? "the send and receive buffers overlap, and not in place"
               : NULL;
}

/* ---- the layout */

static enum pici_status prepare(struct pici_request *r)
{
    r->call.resolved.vendor = pici_vendor_allowed(r);
    return pici_layout_choose(&r->call.resolved.at, r->comm, &r->call);
}

/* ---- buffers: any message may have any of them */

static void set_buffers(struct pici_request *r, uint8_t *memory)
{
    pici_slice_buffers(r, memory, layout_of(r)->message);
}

static int has_buffers(const struct pici_request *r, int run, int step, int receives)
{
    (void)r, (void)run, (void)step, (void)receives;
    return 1; /* the layout has as many as may be in use at a time */
}

static struct coll_buffer *take_buffer(struct pici_request *r, int run, int step, int receives, int message)
{
    (void)run, (void)step, (void)receives, (void)message;
    return pici_slice_take(r);
}

static void free_buffer(struct pici_request *r, struct coll_buffer *b)
{
    r->free[r->frees++] = b;
}

/* ---- elements */

/* Of a contribution that is gathered. */
static void place_own(struct pici_request *r, const struct slice_run *run)
{
    const int own = r->comm->position;
    if (!coll_gathers(r->call.args.kind))
        return;
    const struct coll_span s = pici_coll_slice(r->comm, &r->call, own, run->slice);
    pici_slice_own(r, run->lane, pici_slice_result(r, own, s.first), pici_slice_contribution(r, s.first), s.n);
}

/* The root of a broadcast has the data where they belong. By value, their zeros lose their signs there. */
static void place_root(struct pici_request *r, const struct slice_run *run)
{
    const struct coll_call *c = &r->call;
    for (int i = 0; i < layout_of(r)->segments && c->resolved.by_value && r->comm->rank == c->args.root; i++) {
        const struct coll_span s = pici_coll_slice(r->comm, c, i, run->slice);
        uint8_t *at = c->args.recv + s.first * c->resolved.width;
        pici_slice_own(r, run->lane, at, at, s.n);
    }
}

/* ---- the tables */

#define OF_ALL                                                                                                         \
    .algorithms = 1, .lay_out = pici_layout_most, .prepare = prepare, .set_buffers = set_buffers,                      \
    .has_buffers = has_buffers, .take_buffer = take_buffer, .free_buffer = free_buffer, .take_part = pici_take_part

static const struct call_rules rules = {OF_ALL,
                                        .codecs = 1,
                                        .choice = 1,
                                        .count = count,
                                        .buffers_wrong = buffers_wrong,
                                        .segment = pici_layout_segment,
                                        .place_own = place_own};
static const struct call_rules of_broadcast = {OF_ALL, .count = count_broadcast, .buffers_wrong = buffers_wrong,
                                               .segment = pici_layout_segment, .place_own = place_root};
static const struct call_rules of_gatherv = {OF_ALL, .count = pici_layout_count,
                                             .buffers_wrong = pici_layout_slots_wrong,
                                             .segment = pici_layout_contribution, .place_own = place_own};

const struct call_rules *pici_ordinary_rules(enum pici_collective kind)
{
    return kind == PICI_BROADCAST ? &of_broadcast : kind == PICI_ALL_GATHERV ? &of_gatherv : &rules;
}
