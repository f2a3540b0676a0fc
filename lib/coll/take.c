/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Taking in the messages that a slice receives in a step: what is wrong with them, and what is done with their
 * blocks. */
#include "coll/take.h"

#include <limits.h>

#include "coll/note.h"

/* Check that a prefix belongs to the message that is due. */
static enum pici_status check_prefix(struct pici_request *r, const struct slice_run *run, const struct msg_prefix *p,
                                     int blocks, int peer)
{
    const struct coll_call *c = &r->call;
    const unsigned op = c->args.plan ? c->args.plan->number & 0xff : (unsigned)c->args.op;
    const int here =
        p->sequence == r->sequence && p->slice == pici_slice_number(r, run) && p->step == (uint32_t)run->step;
    if (c->args.plan && p->sequence == r->sequence && p->algorithm == NEIGHBOR_ID && p->slice >> 32 != r->tag) {
        pici_coll_note(r->comm, "rank %d makes this call with another count, plan, dtype or option", peer);
        return PICI_E_PEER;
    }
    if (here && p->kind == MSG_POISON && p->status < 0) {
        pici_coll_fail(r, pici_msg_status((uint32_t)p->status), INT_MAX);
        return PICI_OK;
    }
    if (here && p->kind == (run->coded ? MSG_CODED : MSG_DATA) && p->dtype == (unsigned)c->args.dtype && p->op == op &&
        p->algorithm == (unsigned)layout_of(r)->schedule->id && p->blocks == (uint32_t)blocks)
        return PICI_OK;
    pici_coll_note(r->comm, "rank %d sent a message that does not belong here", peer);
    return PICI_E_CORRUPT;
}

/* Place elements in the result or in place of a sum, or add them: where, and which, as the schedule says. */
static uint8_t *destination(struct pici_request *r, struct slice_run *run, enum schedule_action action, int segment,
                            uint64_t first, uint64_t n, enum engine_widen *how)
{
    *how = action == TAKE_REDUCE ? WIDEN_FOLD : WIDEN_PLACE;
    return action == TAKE_PLACE             ? pici_slice_result(r, segment, first)
           : action == TAKE_REDUCE_REVERSED ? pici_slice_new_sum(r, run, segment, first)
                                            : pici_slice_sum(r, run, segment, first, n);
}

/* Take in the arrays of a value codec: decode their blocks, then widen them. b: their headers. */
static enum pici_status take_arrays(struct pici_request *r, struct slice_run *run, enum schedule_action action,
                                    int segment, uint64_t first, uint64_t n, const struct coll_blocks *blocks,
                                    const struct pici_block *b)
{
    const struct pici_engine *e = r->engine;
    void *out[VALUES_ARRAYS];
    const void *in[VALUES_ARRAYS] = {NULL};
    uint64_t have[VALUES_ARRAYS] = {0};
    const uint8_t *block = blocks->first;
    enum engine_widen how;
    enum pici_status s = PICI_OK;
    if (action == TAKE_KEEP)
        return PICI_OK;
    pici_slice_received(r, run, out);
    for (int a = 0; a < run->arrays && !s; a++) {
        in[a] = out[a];
        have[a] = b[a].count;
        s = e->decode(run->lane, out[a], block, &b[a], b[a].count);
        block += blocks->len[a];
    }
    if (s)
        return s;
    uint8_t *dst = destination(r, run, action, segment, first, n, &how);
    return pici_slice_widen(r, run, how, dst, n, in, have);
}

/* Add a block, decode it into the result or in place of a sum, or leave it, as the schedule says. */
static enum pici_status take_block(struct pici_request *r, struct slice_run *run, enum schedule_action action,
                                   int segment, uint64_t first, const uint8_t *block, const struct pici_block *b)
{
    const struct coll_call *c = &r->call;
    const struct pici_engine *e = r->engine;
    enum engine_widen how;
    if (action == TAKE_KEEP)
        return PICI_OK;
    uint8_t *dst = destination(r, run, action, segment, first, b->count, &how);
    if (how == WIDEN_PLACE)
        return e->decode(run->lane, dst, block, b, c->resolved.total);
    return e->fold(run->lane, dst, block, b, c->args.op, r->room.temp, COLL_TEMP_BYTES / c->resolved.width);
}

/* Parse the headers of a segment's blocks, from byte `at` of the message on. i: the segment's number in the message. Of
 * an array of a value codec, how many elements it should have is checked when it is widened. */
static enum pici_status parse_blocks(struct pici_request *r, const struct slice_run *run, const struct coll_flight *f,
                                     int i, size_t at, uint64_t n, struct coll_blocks *blocks, struct pici_block *b)
{
    const struct values *v = &r->call.opts.values;
    *blocks = (struct coll_blocks){.first = f->buffer->bytes + at, .count = run->arrays};
    for (int a = 0; a < run->arrays; a++) {
        const uint8_t *head = r->engine->head(run->lane, i * run->arrays + a, at);
        enum pici_status s =
            run->coded ? pici_msg_array(&b[a], head, f->bytes - at, v->codec->dtype(v, a), v->codec->most(v, a, n))
                       : pici_msg_block(&b[a], head, f->bytes - at, r->call.args.dtype, n);
        if (s)
            return s;
        blocks->len[a] = (size_t)b[a].at.block_bytes;
        blocks->format[a] = (enum pici_format)b[a].format;
        at += blocks->len[a];
    }
    return PICI_OK;
}

/* To what was decoded in place of this rank's sums, add what this rank sent in this step. If the first operand is the
 * peer's contribution as it is, it becomes first what a sum begins with. */
static enum pici_status add_own(struct pici_request *r, struct slice_run *run, const struct schedule_message *m)
{
    const struct coll_call *c = &r->call;
    const struct pici_engine *e = r->engine;
    enum pici_status s = PICI_OK;
    for (int i = 0; i < m->count && !s; i++) {
        const int segment = m->segments[i];
        const struct coll_blocks *own = &run->encoded[segment].blocks;
        uint64_t first, n;
        pici_coll_slice(r->comm, c, segment, run->slice, &first, &n);
        uint8_t *sum = pici_slice_new_sum(r, run, segment, first);
        if (run->coded) { /* its message's arrays are still there, and widening has cleared signs of zeros */
            s = pici_slice_widen_own(r, run, m, i, WIDEN_FOLD, sum);
            continue;
        }
        if (c->resolved.by_value && m->contributions == 1)
            e->positive_zeros(run->lane, sum, sum, n, c->args.dtype, 1);
        s = e->fold_own(run->lane, sum, own->first, own->len[0], n, c->args.dtype, c->args.op, r->room.temp,
                        COLL_TEMP_BYTES / c->resolved.width);
    }
    return s;
}

/* For an average: divide the sums of this slice that have all contributions after this step. */
static void complete(struct pici_request *r, struct slice_run *run)
{
    const struct coll_call *c = &r->call;
    const enum schedule_complete what = c->args.op == PICI_AVG ? run->now.complete : COMPLETE_NONE;
    for (int i = 0; i < layout_of(r)->segments && what != COMPLETE_NONE; i++) {
        uint64_t first, n;
        if (what == COMPLETE_OWN && i != r->comm->position)
            continue;
        pici_coll_slice(r->comm, c, i, run->slice, &first, &n);
        r->engine->divide(run->lane, pici_slice_sum(r, run, i, first, n), n, c->args.dtype, r->comm->ranks);
    }
}

/* Check the header of the next block of a neighbourhood message, and decode the block into all slots of its owner. A
 * relay does not know how long the contributions of an all_gatherv are, nor what is in a block. A buffer for messages
 * that are sent on has room for blocks no longer than those of an encoder. */
static enum pici_status spread_block(struct pici_request *r, struct slice_run *run, int segment, const uint8_t *block,
                                     const uint8_t *header, size_t left, struct coll_blocks *blocks,
                                     struct pici_block *b)
{
    const struct coll_call *c = &r->call;
    const struct pici_neighbor_plan *plan = c->args.plan;
    uint64_t first, n;
    pici_coll_slice(r->comm, c, segment, run->slice, &first, &n);
    enum pici_status s = pici_block_parse(b, header, left, NULL);
    if (!s && (b->dtype != (unsigned)c->args.dtype || b->at.block_bytes > left ||
               b->at.block_bytes > layout_of(r)->block || (c->args.varied ? b->count > n : b->count != n)))
        s = PICI_E_CORRUPT;
    if (!s)
        *blocks = (struct coll_blocks){
            .first = block, .len = {(size_t)b->at.block_bytes}, .format = {(enum pici_format)b->format}, .count = 1};
    for (int i = plan->slot_begin[segment]; i < plan->slot_begin[segment + 1] && !s; i++) {
        uint8_t *slot = pici_slice_slot(r, run, plan->slots[i], &n);
        if (b->count != n) {
            pici_coll_note(r->comm, "rank %d sends another count than entry %d of recvcounts on rank %d",
                           r->comm->order[segment], plan->slots[i], r->comm->rank);
            return PICI_E_PEER;
        }
        s = r->engine->decode(run->lane, slot, block, b, c->resolved.total);
    }
    return s;
}

/* Begin to take in the message at hand, which the engine has looked at. */
static enum pici_status begin_take(struct pici_request *r, struct slice_run *run, const struct schedule_message *m,
                                   struct coll_flight *f)
{
    const struct coll_call *c = &r->call;
    struct msg_prefix prefix;
    struct pici_block b[VALUES_ARRAYS] = {{0}};
    uint64_t elements = 0, nnz = 0;
    size_t at = MSG_BYTES;
    enum pici_status s = pici_msg_get(&prefix, r->engine->head(run->lane, -1, 0), f->bytes);
    if (!s)
        s = check_prefix(r, run, &prefix, m->count * run->arrays, f->peer);
    run->dense = 1;
    run->dense_bytes = MSG_BYTES;
    for (int i = 0; i < m->count && !s && !r->status; i++) {
        const int segment = m->segments[i];
        struct coll_blocks blocks;
        uint64_t first, n;
        pici_coll_slice(r->comm, c, segment, run->slice, &first, &n);
        s = c->args.plan ? spread_block(r, run, segment, f->buffer->bytes + at, r->engine->head(run->lane, i, at),
                                        f->bytes - at, &blocks, b)
                         : parse_blocks(r, run, f, i, at, n, &blocks, b);
        if (s)
            break;
        if (!c->args.plan)
            s = run->coded ? take_arrays(r, run, m->action, segment, first, n, &blocks, b)
                           : take_block(r, run, m->action, segment, first, blocks.first, b);
        if (m->keep == KEEP_APART && !s)
            pici_slice_keep_apart(r, run, segment, &blocks);
        else if (m->keep && !s)
            pici_slice_keep(r, run, segment, f->buffer, &blocks);
        at += pici_slice_bytes(&blocks);
        run->dense_bytes += HDR_BYTES + n * c->resolved.width;
        for (int a = 0; a < run->arrays; a++)
            run->dense &= b[a].format == PICI_DENSE;
        elements += b[run->arrays - 1].count; /* of which the density in the trace is */
        nnz += b[run->arrays - 1].nnz;
    }
    if (!s && !r->status && at != f->bytes)
        s = PICI_E_CORRUPT;
    f->buffer->len = f->bytes;
    f->buffer->segments = m->count;
    run->format = (enum pici_format)b[run->arrays - 1].format;
    run->density = run->dense || !elements ? POLICY_UNKNOWN : (double)nnz / (double)elements;
    run->extrapolated = 0;
    return s;
}

/* Has a message arrived? */
static enum pici_status arrived(struct pici_request *r, struct coll_flight *f)
{
    const struct pici_transport *t = &r->comm->transport;
    if (f->done)
        return PICI_OK;
    enum pici_status s = t->test(t->context, f->request, &f->done, &f->bytes);
    if (s && s != PICI_E_CORRUPT)
        return pici_coll_lost(r->comm, f->peer, s);
    f->status = s; /* longer than any message can be */
    return PICI_OK;
}

/* A message is taken in, or failed to be. */
static void end_take(struct pici_request *r, struct slice_run *run, const struct schedule_message *m,
                     const struct coll_flight *f, enum pici_status s)
{
    for (int i = 0; i < m->count && m->action == TAKE_REDUCE_REVERSED; i++)
        pici_slice_let_go(r, run, m->segments[i]); /* only now has the engine added it */
    s = run->status ? run->status : s;
    if (s) {
        pici_coll_note(r->comm, "from rank %d: %s", f->peer, pici_request_words(r, s));
        pici_coll_fail(r, s, r->comm->rank);
    }
    if (r->status)
        return;
    if (run->now.phase == PHASE_REDUCE)
        pici_policy_received(&run->history, run->dense);
    r->stats.decode_s += pici_slice_now(r) - run->begin;
    pici_slice_trace(r, "recv", run, m, f->bytes, NULL);
}

/* Take in the messages of a slice's step, in the order of its list, as far as that goes without waiting. What is wrong
 * with one is noted. at: its receives. Returns a failure of the transport. */
enum pici_status pici_take_messages(struct pici_request *r, struct slice_run *run, struct coll_flight *at, int *moved)
{
    const struct schedule_step *step = pici_slice_step(r, run);
    enum pici_status s;
    if (!run->sent || run->stage == STAGE_TAKEN)
        return PICI_OK;
    while (run->message < step->receives) {
        struct coll_flight *f = &at[run->message];
        const struct schedule_message *m = &step->receive[run->message];
        if (run->stage == STAGE_REST) {
            if ((s = arrived(r, f)) || !f->done)
                return s;
            run->begin = pici_slice_now(r);
            run->stage = STAGE_LOOKING;
            run->coded = pici_slice_coded(r, run);
            run->arrays = run->coded ? r->call.opts.values.codec->arrays : 1;
            if (!r->status && !f->status)
                r->engine->look(run->lane, f->buffer->bytes, f->bytes, m->count * run->arrays);
            *moved = 1;
        }
        if (run->stage == STAGE_LOOKING) {
            if (!pici_slice_ready(r, run, &s))
                return PICI_OK;
            run->status = f->status ? f->status : s;
            if (!run->status && !r->status)
                run->status = begin_take(r, run, m, f);
            run->stage = STAGE_FIRST;
            *moved = 1;
        }
        if (run->stage == STAGE_FIRST) {
            if (m->action == TAKE_REDUCE_REVERSED) {
                if (!pici_slice_ready(r, run, &s))
                    return PICI_OK;
                run->status = run->status ? run->status : s;
                if (!run->status && !r->status)
                    run->status = add_own(r, run, m);
            }
            if (run->message + 1 == step->receives && !run->status && !r->status)
                complete(r, run);
            run->stage = STAGE_TAKING;
            *moved = 1;
        }
        if (!pici_slice_ready(r, run, &s))
            return PICI_OK;
        end_take(r, run, m, f, s);
        run->stage = STAGE_REST;
        run->message++;
    }
    if (!step->receives && !r->status) { /* a sum may be complete before the first message: of a single contribution */
        if (run->stage == STAGE_REST)
            complete(r, run);
        run->stage = STAGE_TAKING;
        if (!pici_slice_ready(r, run, &s))
            return PICI_OK;
        if (s)
            pici_coll_fail(r, s, r->comm->rank);
    }
    run->stage = STAGE_TAKEN;
    return PICI_OK;
}

/* A slice's step has ended: free its buffers and go to the next step, or to the next slice. */
void pici_end_step(struct pici_request *r, struct slice_run *run, struct coll_flight *at)
{
    const struct coll_layout *l = layout_of(r);
    const enum schedule_phase phase = pici_slice_step(r, run)->phase;
    for (int i = 0; i < run->now.receives; i++)
        pici_slice_drop(r, at[i].buffer);
    run->sent = run->known = 0;
    run->stage = STAGE_REST;
    run->message = -1;
    if (++run->step < l->steps) {
        if (pici_slice_step(r, run)->phase != phase)
            pici_policy_begin(&run->history);
        return;
    }
    for (int i = 0; i < l->segments && run->encoded; i++)
        pici_slice_let_go(r, run, i);
    pici_slice_begin(r, run, run->slice + (uint64_t)l->window);
}
