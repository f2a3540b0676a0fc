/* SPDX-License-Identifier: BSD-3-Clause */
#include "coll/slice.h"

#include <string.h>

#include "coll/note.h"
#include "coll/rules.h"

/* ---- steps */

void pici_slice_step_at(const struct pici_request *r, int step, struct schedule_step *s)
{
    const struct coll_layout *l = layout_of(r);
    l->schedule->step(l->schedule, &l->shape, step, s);
}

const struct schedule_step *pici_slice_step(const struct pici_request *r, struct slice_run *run)
{
    if (!run->known) {
        pici_slice_step_at(r, run->step, &run->now);
        run->known = 1;
    }
    return &run->now;
}

/* ---- buffers of messages */

void pici_slice_buffers(struct pici_request *r, uint8_t *first, size_t pitch)
{
    for (int i = 0; i < layout_of(r)->buffers; i++) {
        r->buffers[i] = (struct coll_buffer){.bytes = first + (size_t)i * pitch, .room = layout_of(r)->message};
        r->free[r->frees++] = &r->buffers[i];
    }
}

struct coll_buffer *pici_slice_take(struct pici_request *r)
{
    struct coll_buffer *b = r->free[--r->frees];
    b->users = 1;
    b->flights = 0;
    return b;
}

void pici_slice_drop(struct pici_request *r, struct coll_buffer *b)
{
    if (--b->users == 0)
        r->call.args.rules->free_buffer(r, b);
}

void pici_slice_let_go(struct pici_request *r, struct slice_run *run, int segment)
{
    struct coll_buffer *b = run->encoded[segment].message;
    run->encoded[segment].message = NULL;
    if (b && b->users == 1 && b == run->apart)
        run->apart = NULL;
    if (b)
        pici_slice_drop(r, b);
}

size_t pici_slice_bytes(const struct coll_blocks *b)
{
    size_t bytes = 0;
    for (int i = 0; i < b->count; i++)
        bytes += b->len[i];
    return bytes;
}

void pici_slice_keep(struct pici_request *r, struct slice_run *run, int segment, struct coll_buffer *b,
                     const struct coll_blocks *blocks)
{
    b->users++;
    pici_slice_let_go(r, run, segment);
    run->encoded[segment] = (struct coll_encoded){.blocks = *blocks, .message = b};
}

/* The buffer's users are its segments. It has room for as many as a message has, whatever their lengths. */
void pici_slice_keep_apart(struct pici_request *r, struct slice_run *run, int segment, const struct coll_blocks *blocks)
{
    struct coll_blocks copy = *blocks;
    const size_t len = pici_slice_bytes(blocks);
    struct coll_buffer *b = run->apart;
    if (!b || b->segments == layout_of(r)->limits.segments) {
        b = run->apart = pici_slice_take(r);
        b->users = b->segments = 0;
        b->len = MSG_BYTES;
    }
    copy.first = b->bytes + b->len;
    r->engine->put(run->lane, b->bytes + b->len, blocks->first, len);
    pici_slice_keep(r, run, segment, b, &copy);
    b->len += len;
    b->segments++;
}

/* ---- sums
 *
 * A sum of floats is (+0) + a + b + ..., in the order of the algorithm, and so is never -0.0. It begins as (+0) + this
 * rank's own contribution: pici_slice_own. After that no x makes a sum d that is not -0.0 into one that is:
 * - If d + x is exactly 0, then x = -d, and their sum is +0; or d is +0 and x a zero of either sign: +0 again.
 * - If d + x is not 0, it is a multiple of the dtype's least denormal, so at least as large as that. Rounding keeps the
 *   order of numbers, and that denormal is a value of the dtype, and of f32 in which narrow floats are added. So the
 *   rounded sum is not 0 either.
 * Rounding is to nearest, and denormals are kept. Of the other functions of an engine only divide makes zeros out of
 * what is not zero, and it makes +0.0.
 *
 * x may be -0.0, which changes nothing. So a contribution may be sent with its -0.0, as dense messages are; sparse
 * ones leave them out, because they are shorter then. */

void pici_slice_begin(const struct pici_request *r, struct slice_run *run, uint64_t slice)
{
    const struct coll_layout *l = layout_of(r);
    run->slice = slice;
    run->step = run->known = 0;
    run->apart = NULL;
    memset(run->sum, 0, (size_t)l->segments * sizeof *run->sum);
    for (run->free_slots = 0; run->free_slots < l->limits.sums; run->free_slots++)
        run->slots[run->free_slots] = run->free_slots;
    pici_policy_begin(&run->history);
}

static uint8_t *slot_at(const struct pici_request *r, const struct slice_run *run, int slot)
{
    return run->acc + (size_t)slot * layout_of(r)->slice * r->call.resolved.width;
}

uint8_t *pici_slice_result(const struct pici_request *r, int segment, uint64_t first)
{
    const struct coll_call *c = &r->call;
    const uint64_t base = c->args.kind == PICI_REDUCE_SCATTER ? pici_coll_segment(r->comm, c, segment).first : 0;
    return c->args.recv + (first - base) * c->resolved.width;
}

const uint8_t *pici_slice_contribution(const struct pici_request *r, uint64_t first)
{
    const struct coll_span own = pici_coll_segment(r->comm, &r->call, r->comm->position);
    return own.n ? r->call.args.send + (first - own.first) * r->call.resolved.width
                 : r->call.args.recv; /* of nothing: any valid pointer */
}

uint64_t pici_slice_number(const struct pici_request *r, const struct slice_run *run)
{
    return run->slice | (uint64_t)r->tag << 32;
}

/* Where the sum of a segment's slice is, which exists. */
static uint8_t *sum_at(const struct pici_request *r, const struct slice_run *run, int segment, uint64_t first)
{
    const int where = run->sum[segment];
    return where == SUM_IN_RECV ? pici_slice_result(r, segment, first) : slot_at(r, run, where - 1);
}

void pici_slice_own(const struct pici_request *r, struct pici_lane *lane, uint8_t *dst, const uint8_t *src, uint64_t n)
{
    if (r->call.resolved.by_value)
        r->engine->positive_zeros(lane, dst, src, n, r->call.args.dtype, !coll_gathers(r->call.args.kind));
    else if (dst != src)
        r->engine->copy(lane, dst, src, n, r->call.args.dtype);
}

uint8_t *pici_slice_new_sum(const struct pici_request *r, struct slice_run *run, int segment, uint64_t first)
{
    const int in_recv = segment == r->comm->position || layout_of(r)->limits.sums_in_recv;
    if (run->sum[segment] == SUM_NONE)
        run->sum[segment] = in_recv ? SUM_IN_RECV : 1 + run->slots[--run->free_slots];
    return sum_at(r, run, segment, first);
}

uint8_t *pici_slice_sum(const struct pici_request *r, struct slice_run *run, int segment, struct coll_span s)
{
    const struct coll_call *c = &r->call;
    const int new = run->sum[segment] == SUM_NONE;
    uint8_t *sum = pici_slice_new_sum(r, run, segment, s.first);
    if (new)
        pici_slice_own(r, run->lane, sum, c->args.send + s.first * c->resolved.width, s.n);
    return sum;
}

void pici_slice_pass_on(struct slice_run *run, int segment)
{
    if (run->sum[segment] > 0) {
        run->slots[run->free_slots++] = run->sum[segment] - 1;
        run->sum[segment] = SUM_NONE;
    }
}

const uint8_t *pici_slice_source(const struct pici_request *r, const struct slice_run *run, int segment, uint64_t *n)
{
    const struct coll_call *c = &r->call;
    const struct coll_span s = pici_coll_slice(r->comm, c, segment, run->slice);
    const uint64_t first = s.first;
    *n = s.n;
    if (c->args.kind == PICI_BROADCAST)
        return c->args.send + first * c->resolved.width;
    if (coll_gathers(c->args.kind)) /* by value: what was cleared, in its place in the result */
        return c->resolved.by_value ? pici_slice_result(r, segment, first) : pici_slice_contribution(r, first);
    return run->sum[segment] == SUM_NONE ? c->args.send + first * c->resolved.width : sum_at(r, run, segment, first);
}

/* ---- tracing */

double pici_slice_now(const struct pici_request *r)
{
    return r->call.opts.stats || r->comm->trace ? pici_coll_now() : 0;
}

void pici_slice_trace(struct pici_request *r, const char *name, const struct slice_run *run,
                      const struct schedule_message *m, size_t wire, const uint64_t *tiles)
{
    struct pici_comm *comm = r->comm;
    if (!comm->trace)
        return;
    const int peer = comm->order[m->peer];
    struct trace_event e = {.name = name,
                            .begin = run->begin,
                            .end = pici_coll_now(),
                            .sequence = r->sequence,
                            .phase = (int)run->now.phase,
                            .step = run->step,
                            .slice = (int)run->slice,
                            .peer = peer,
                            .inter = comm->node_of[peer] != comm->node_of[comm->rank],
                            .format = (int)run->format,
                            .density = run->density,
                            .extrapolated = run->extrapolated,
                            .dense_bytes = run->dense_bytes,
                            .wire_bytes = wire,
                            .values = run->coded ? r->call.opts.values.codec->name : NULL};
    if (tiles)
        memcpy(e.tiles, tiles, sizeof e.tiles);
    if (r->call.args.rules->traces_blocks) {
        e.blocks = m->count;
        e.segments = m->segments;
        e.order = comm->order;
    }
    pici_trace_add(comm->trace, &e);
}

/* ---- stages */

int pici_slice_ready(const struct pici_request *r, const struct slice_run *run, enum pici_status *s)
{
    int done;
    *s = r->engine->ready(run->lane, &done);
    return done;
}

void pici_slice_sent(struct slice_run *run)
{
    run->stage = STAGE_REST;
    run->sent = 1;
    run->message = 0;
}
