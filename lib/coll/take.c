/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Taking in the messages that a slice receives in a step: what is wrong with them, and what is done with their
 * blocks. */
#include "coll/take.h"

#include <limits.h>

#include "coll/note.h"
#include "coll/rules.h"

/* Check that a prefix belongs to the message that is due. */
static enum pici_status check_prefix(struct pici_request *r, const struct slice_run *run, const struct msg_prefix *p,
                                     int blocks, int peer)
{
    const struct coll_call *c = &r->call;
    const char *mismatch = c->args.rules->mismatch;
    const int here =
        p->sequence == r->sequence && p->slice == pici_slice_number(r, run) && p->step == (uint32_t)run->step;
    const unsigned algorithm = (unsigned)layout_of(r)->schedule->id;
    if (mismatch && p->sequence == r->sequence && p->algorithm == algorithm && p->slice >> 32 != r->tag) {
        pici_coll_note(r->comm, "rank %d makes this call %s", peer, mismatch);
        return PICI_E_PEER;
    }
    if (here && p->kind == MSG_POISON && p->status < 0) {
        pici_coll_fail(r, pici_msg_status((uint32_t)p->status), INT_MAX);
        return PICI_OK;
    }
    if (here && p->kind == (run->coded ? MSG_CODED : MSG_DATA) && p->dtype == (unsigned)c->args.dtype &&
        p->op == c->resolved.said.op && p->algorithm == algorithm && p->blocks == (uint32_t)blocks)
        return PICI_OK;
    pici_coll_note(r->comm, "rank %d sent a message that does not belong here", peer);
    return PICI_E_CORRUPT;
}

/* Place elements in the result or in place of a sum, or add them: where, and which, as the schedule says. */
static uint8_t *destination(struct pici_request *r, struct slice_run *run, enum schedule_action action,
                            const struct coll_part *p, enum engine_widen *how)
{
    *how = action == TAKE_REDUCE ? WIDEN_FOLD : WIDEN_PLACE;
    return action == TAKE_PLACE             ? pici_slice_result(r, p->segment, p->span.first)
           : action == TAKE_REDUCE_REVERSED ? pici_slice_new_sum(r, run, p->segment, p->span.first)
                                            : pici_slice_sum(r, run, p->segment, p->span);
}

/* Take in the arrays of a value codec: decode their blocks, then widen them. */
static enum pici_status take_arrays(struct pici_request *r, struct slice_run *run, enum schedule_action action,
                                    struct coll_part *p)
{
    void *out[VALUES_ARRAYS];
    const void *in[VALUES_ARRAYS] = {NULL};
    uint64_t have[VALUES_ARRAYS] = {0};
    const uint8_t *block = p->bytes;
    enum engine_widen how;
    enum pici_status s = PICI_OK;
    pici_slice_received(r, run, out);
    for (int a = 0; a < run->arrays && !s; a++) {
        in[a] = out[a];
        have[a] = p->block[a].count;
        s = r->engine->decode(run->lane, out[a], block, &p->block[a], have[a]);
        block += p->blocks.len[a];
    }
    if (s)
        return s;
    uint8_t *dst = destination(r, run, action, p, &how);
    return pici_slice_widen(r, run, how, dst, p->span.n, in, have);
}

/* Add a block, or decode it into the result or in place of a sum, as the schedule says. */
static enum pici_status take_block(struct pici_request *r, struct slice_run *run, enum schedule_action action,
                                   struct coll_part *p)
{
    const struct coll_call *c = &r->call;
    const struct pici_engine *e = r->engine;
    enum engine_widen how;
    uint8_t *dst = destination(r, run, action, p, &how);
    if (how == WIDEN_PLACE)
        return e->decode(run->lane, dst, p->bytes, p->block, c->resolved.total);
    return e->fold(run->lane, dst, p->bytes, p->block, c->args.op, r->room.temp, COLL_TEMP_BYTES / c->resolved.width);
}

/* Parse the headers of a segment's blocks. Of an array of a value codec, how many elements it should have is checked
 * when it is widened. */
static enum pici_status parse_blocks(struct pici_request *r, const struct slice_run *run, struct coll_part *p)
{
    const struct values *v = &r->call.opts.values;
    size_t at = p->at, left = p->left;
    p->blocks = (struct coll_blocks){.first = p->bytes, .count = run->arrays};
    for (int a = 0; a < run->arrays; a++) {
        struct pici_block *b = &p->block[a];
        const uint8_t *head = r->engine->head(run->lane, p->number * run->arrays + a, at);
        enum pici_status s = run->coded
                                 ? pici_msg_array(b, head, left, v->codec->dtype(v, a), v->codec->most(v, a, p->span.n))
                                 : pici_msg_block(b, head, left, r->call.args.dtype, p->span.n);
        if (s)
            return s;
        p->blocks.len[a] = (size_t)b->at.block_bytes;
        p->blocks.format[a] = (enum pici_format)b->format;
        at += p->blocks.len[a];
        left -= p->blocks.len[a];
    }
    return PICI_OK;
}

enum pici_status pici_take_part(struct pici_request *r, struct slice_run *run, enum schedule_action action,
                                struct coll_part *p)
{
    enum pici_status s = parse_blocks(r, run, p);
    if (s || action == TAKE_KEEP)
        return s;
    return run->coded ? take_arrays(r, run, action, p) : take_block(r, run, action, p);
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
        const struct coll_span span = pici_coll_slice(r->comm, c, segment, run->slice);
        uint8_t *sum = pici_slice_new_sum(r, run, segment, span.first);
        if (run->coded) { /* its message's arrays are still there, and widening has cleared signs of zeros */
            s = pici_slice_widen_own(r, run, m, i, WIDEN_FOLD, sum);
            continue;
        }
        if (c->resolved.by_value && m->contributions == 1)
            e->positive_zeros(run->lane, sum, sum, span.n, c->args.dtype, 1);
        s = e->fold_own(run->lane, sum, own->first, own->len[0], span.n, c->args.dtype, c->args.op, r->room.temp,
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
        if (what == COMPLETE_OWN && i != r->comm->position)
            continue;
        const struct coll_span s = pici_coll_slice(r->comm, c, i, run->slice);
        r->engine->divide(run->lane, pici_slice_sum(r, run, i, s), s.n, c->args.dtype, r->comm->ranks);
    }
}

/* Begin to take in the message at hand, which the engine has looked at. */
static enum pici_status begin_take(struct pici_request *r, struct slice_run *run, const struct schedule_message *m,
                                   struct coll_flight *f)
{
    const struct coll_call *c = &r->call;
    const int last = run->arrays - 1; /* of a segment: the block that the trace names */
    struct msg_prefix prefix;
    struct coll_part p = {.at = MSG_BYTES};
    uint64_t elements = 0, nnz = 0;
    enum pici_status s = pici_msg_get(&prefix, r->engine->head(run->lane, -1, 0), f->bytes);
    if (!s)
        s = check_prefix(r, run, &prefix, m->count * run->arrays, f->peer);
    run->dense = 1;
    run->dense_bytes = MSG_BYTES;
    for (; p.number < m->count && !s && !r->status; p.number++) {
        p.segment = m->segments[p.number];
        p.bytes = f->buffer->bytes + p.at;
        p.left = f->bytes - p.at;
        p.span = pici_coll_slice(r->comm, c, p.segment, run->slice);
        s = c->args.rules->take_part(r, run, m->action, &p);
        if (s)
            break;
        if (m->keep == KEEP_APART)
            pici_slice_keep_apart(r, run, p.segment, &p.blocks);
        else if (m->keep)
            pici_slice_keep(r, run, p.segment, f->buffer, &p.blocks);
        p.at += pici_slice_bytes(&p.blocks);
        run->dense_bytes += HDR_BYTES + p.span.n * c->resolved.width;
        for (int a = 0; a < run->arrays; a++)
            run->dense &= p.block[a].format == PICI_DENSE;
        elements += p.block[last].count;
        nnz += p.block[last].nnz;
    }
    if (!s && !r->status && p.at != f->bytes)
        s = PICI_E_CORRUPT;
    f->buffer->len = f->bytes;
    f->buffer->segments = m->count;
    run->format = (enum pici_format)p.block[last].format;
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
