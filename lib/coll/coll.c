/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The only loop over steps: the data of a collective.
 *
 * A segment is cut into slices, and `window` of them are in flight at a time. Each slice goes through all steps of the
 * schedule: make and send this rank's messages of the step, take in those that it receives, then the next step. While
 * one slice is encoded, another is on its way and a third is added. A place is a step of a slice. All ranks use one
 * order of places (round of `window` slices, then step, then slice): messages are sent and receives are posted in this
 * order, so the nth message to a peer is the nth that the peer expects from this rank. At some places a rank may have
 * nothing to send, or nothing to receive.
 *
 * There is no deadlock. A rank passes a place when it has sent its messages there and taken in those that it receives
 * there. It sends the messages of a place when it has passed the same slice's place in the step before. Suppose that
 * all ranks wait, and take a rank whose next place is the first in the order. Its peers at that place have reached it
 * too, so they have sent what the rank waits for: a contradiction.
 *
 * An asynchronous engine has a lane for each slice. A slice proceeds to its next stage when its lane is idle. Then
 * messages are made and taken in as soon as possible, in any order, but they are still sent, and places passed, in the
 * one order. */
#include <limits.h>

#include "coll/slice.h"

/* ---- the order of places */

static uint64_t slice_at(const struct pici_request *r, const struct coll_place *at)
{
    return at->round * (uint64_t)layout_of(r)->window + (uint64_t)at->run;
}

static int past_end(const struct pici_request *r, const struct coll_place *at)
{
    return slice_at(r, at) >= layout_of(r)->slices;
}

static void next_place(const struct pici_request *r, struct coll_place *at)
{
    at->run++;
    if (at->run < layout_of(r)->window && !past_end(r, at))
        return;
    at->run = 0;
    if (++at->step < layout_of(r)->steps)
        return;
    at->step = 0;
    at->round++;
}

/* ---- stages */

static int busy(const struct pici_request *r)
{
    const struct coll_layout *l = layout_of(r);
    int busy = !l->slices;
    for (int i = 0; i < l->window && r->engine->asynchronous; i++) {
        const enum coll_stage stage = r->runs[i].stage;
        busy |= stage == STAGE_COUNTING || stage == STAGE_MAKING || stage == STAGE_LOOKING || stage == STAGE_FIRST ||
                stage == STAGE_TAKING;
    }
    return busy;
}

/* ---- sending */

/* Send the messages of the next place in the order, if they are made. */
static enum pici_status try_send(struct pici_request *r, int *moved)
{
    const struct coll_layout *l = layout_of(r);
    struct pici_comm *comm = r->comm;
    const struct pici_transport *t = &comm->transport;
    if (past_end(r, &r->next_send))
        return PICI_OK;
    struct slice_run *run = &r->runs[r->next_send.run];
    pici_make_messages(r, run, moved);
    for (int i = 0; i < l->window && r->engine->asynchronous; i++)
        pici_make_messages(r, &r->runs[i], moved);
    if (run->stage != STAGE_MADE)
        return PICI_OK;
    const struct coll_place last = r->next_send;
    next_place(r, &r->next_send);
    /* If another slice is in flight, the next messages are that slice's and do not depend on what this one receives. */
    pici_step_sends(comm, run->now.sends,
                    !past_end(r, &r->next_send) && l->slices - last.round * (uint64_t)l->window > 1 && l->window > 1);
    for (int i = 0; i < run->now.sends; i++) {
        struct coll_flight *f = &r->sends[r->sending];
        *f = (struct coll_flight){.buffer = run->out[i], .peer = comm->order[run->now.send[i].peer]};
        enum pici_status s = t->send(t->context, f->peer, f->buffer->bytes, f->buffer->len, &f->request);
        if (s)
            return pici_coll_lost(comm, f->peer, s);
        f->buffer->flights++;
        r->sending++;
        r->making--;
        r->stats.wire_bytes += f->buffer->len;
    }
    run->stage = STAGE_REST;
    run->sent = 1;
    run->message = 0;
    *moved = 1;
    return PICI_OK;
}

/* Free the buffers of sends that have ended. */
static enum pici_status reap(struct pici_request *r, int *moved)
{
    const struct pici_transport *t = &r->comm->transport;
    for (int i = 0; i < r->sending;) {
        int done = 0;
        enum pici_status s = t->test(t->context, r->sends[i].request, &done, NULL);
        if (s)
            return pici_coll_lost(r->comm, r->sends[i].peer, s);
        if (done) {
            r->sends[i].buffer->flights--;
            pici_slice_drop(r, r->sends[i].buffer);
            r->sends[i] = r->sends[--r->sending];
            *moved = 1;
        } else {
            i++;
        }
    }
    return PICI_OK;
}

/* ---- receiving */

/* The receives of a place: `at` counts places. */
static struct coll_flight *row(const struct pici_request *r, uint64_t at)
{
    const struct coll_layout *l = layout_of(r);
    return r->recvs + (size_t)(at % (uint64_t)l->window) * (size_t)l->limits.receives;
}

/* Post the receives of the next places, up to `window` ahead. */
static enum pici_status post(struct pici_request *r, int *moved)
{
    const struct coll_layout *l = layout_of(r);
    const struct pici_transport *t = &r->comm->transport;
    while (r->posted - r->folded < (uint64_t)l->window && !past_end(r, &r->next_post)) {
        if (r->posting_step != r->next_post.step)
            pici_slice_step_at(r, r->posting_step = r->next_post.step, &r->posting);
        pici_step_receives(r->comm, r->posting.receives);
        for (int i = 0; i < r->posting.receives; i++) {
            struct coll_flight *f = &row(r, r->posted)[i];
            *f = (struct coll_flight){.buffer = pici_slice_take(r), .peer = r->comm->order[r->posting.receive[i].peer]};
            enum pici_status s = t->recv(t->context, f->peer, f->buffer->bytes, l->message, &f->request);
            if (s)
                return pici_coll_lost(r->comm, f->peer, s);
        }
        r->posted++;
        next_place(r, &r->next_post);
        *moved = 1;
    }
    return PICI_OK;
}

/* Check that a prefix belongs to the message that is due. */
static enum pici_status check_prefix(struct pici_request *r, const struct slice_run *run, const struct msg_prefix *p,
                                     int blocks, int peer)
{
    const struct coll_call *c = &r->call;
    const int here = p->sequence == r->sequence && p->slice == run->slice && p->step == (uint32_t)run->step;
    if (here && p->kind == MSG_POISON && p->status < 0) {
        pici_coll_fail(r, pici_msg_status((uint32_t)p->status), INT_MAX);
        return PICI_OK;
    }
    if (here && p->kind == MSG_DATA && p->dtype == (unsigned)c->dtype && p->op == (unsigned)c->op &&
        p->algorithm == (unsigned)layout_of(r)->schedule->id && p->blocks == (uint32_t)blocks)
        return PICI_OK;
    pici_coll_note(r->comm, "rank %d sent a message that does not belong here", peer);
    return PICI_E_CORRUPT;
}

/* Add a block, decode it into the result or in place of a sum, or leave it, as the schedule says. */
static enum pici_status take_block(struct pici_request *r, struct slice_run *run, enum schedule_action action,
                                   int segment, uint64_t first, const uint8_t *block, const struct pici_block *b)
{
    const struct coll_call *c = &r->call;
    const struct pici_engine *e = r->engine;
    if (action == TAKE_KEEP)
        return PICI_OK;
    if (action == TAKE_PLACE)
        return e->decode(run->lane, pici_slice_result(r, segment, first), block, b, c->total);
    if (action == TAKE_REDUCE_REVERSED)
        return e->decode(run->lane, pici_slice_new_sum(r, run, segment, first), block, b, c->total);
    return e->fold(run->lane, pici_slice_sum(r, run, segment, first, b->count), block, b, c->op, r->room.temp,
                   COLL_TEMP_BYTES / c->width);
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
        const struct coll_encoded *own = &run->encoded[segment];
        uint64_t first, n;
        pici_coll_slice(r->comm, c, segment, run->slice, &first, &n);
        uint8_t *sum = pici_slice_new_sum(r, run, segment, first);
        if (c->by_value && m->contributions == 1)
            e->positive_zeros(run->lane, sum, sum, n, c->dtype, 1);
        s = e->fold_own(run->lane, sum, own->block, own->len, n, c->dtype, c->op, r->room.temp,
                        COLL_TEMP_BYTES / c->width);
        pici_slice_let_go(r, run, segment);
    }
    return s;
}

/* For an average: divide the sums of this slice that have all contributions after this step. */
static void complete(struct pici_request *r, struct slice_run *run)
{
    const struct coll_call *c = &r->call;
    const enum schedule_complete what = c->op == PICI_AVG ? run->now.complete : COMPLETE_NONE;
    for (int i = 0; i < layout_of(r)->segments && what != COMPLETE_NONE; i++) {
        uint64_t first, n;
        if (what == COMPLETE_OWN && i != r->comm->position)
            continue;
        pici_coll_slice(r->comm, c, i, run->slice, &first, &n);
        r->engine->divide(run->lane, pici_slice_sum(r, run, i, first, n), n, c->dtype, r->comm->ranks);
    }
}

/* Begin to take in the message at hand, which the engine has looked at. */
static enum pici_status begin_take(struct pici_request *r, struct slice_run *run, const struct schedule_message *m,
                                   struct coll_flight *f)
{
    const struct coll_call *c = &r->call;
    const struct pici_engine *e = r->engine;
    const uint8_t *bytes = f->buffer->bytes;
    struct msg_prefix prefix;
    struct pici_block b = {0};
    uint64_t elements = 0, nnz = 0;
    size_t at = MSG_BYTES;
    enum pici_status s = pici_msg_get(&prefix, e->head(run->lane, -1, 0), f->bytes);
    if (!s)
        s = check_prefix(r, run, &prefix, m->count, f->peer);
    run->dense = 1;
    run->dense_bytes = MSG_BYTES;
    for (int i = 0; i < m->count && !s && !r->status; i++) {
        const int segment = m->segments[i];
        uint64_t first, n;
        pici_coll_slice(r->comm, c, segment, run->slice, &first, &n);
        s = pici_msg_block(&b, e->head(run->lane, i, at), f->bytes - at, c->dtype, n);
        if (s)
            break;
        s = take_block(r, run, m->action, segment, first, bytes + at, &b);
        if (m->keep && !s)
            pici_slice_keep(r, run, segment, f->buffer, bytes + at, (size_t)b.at.block_bytes,
                            (enum pici_format)b.format);
        at += (size_t)b.at.block_bytes;
        run->dense &= b.format == PICI_DENSE;
        run->dense_bytes += HDR_BYTES + n * c->width;
        elements += n;
        nnz += b.nnz;
    }
    if (!s && !r->status && at != f->bytes)
        s = PICI_E_CORRUPT;
    f->buffer->len = f->bytes;
    f->buffer->blocks = m->count;
    run->format = (enum pici_format)b.format;
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
static void end_take(struct pici_request *r, struct slice_run *run, const struct coll_flight *f, enum pici_status s)
{
    s = run->status ? run->status : s;
    if (s) {
        pici_coll_note(r->comm, "from rank %d: %s", f->peer, pici_request_words(r, s));
        pici_coll_fail(r, s, r->comm->rank);
    }
    if (r->status)
        return;
    if (run->now.phase == PHASE_REDUCE)
        pici_policy_received(&run->history, run->dense);
    r->stats.decode_s += pici_coll_now() - run->begin;
    pici_slice_trace(r, "recv", run, f->peer, f->bytes, NULL);
}

/* Take in the messages of a slice's step, in the order of its list, as far as that goes without waiting. What is wrong
 * with one is noted. at: its receives. Returns a failure of the transport. */
static enum pici_status take_messages(struct pici_request *r, struct slice_run *run, struct coll_flight *at, int *moved)
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
            run->begin = pici_coll_now();
            run->stage = STAGE_LOOKING;
            if (!r->status && !f->status)
                r->engine->look(run->lane, f->buffer->bytes, f->bytes, m->count);
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
        end_take(r, run, f, s);
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
static void end_step(struct pici_request *r, struct slice_run *run, struct coll_flight *at)
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

/* Take in what arrived. Pass the next place in the order if everything there was taken in. */
static enum pici_status try_receive(struct pici_request *r, int *moved)
{
    struct coll_place at = r->next_fold;
    for (uint64_t i = r->folded; i < r->posted; i++, next_place(r, &at)) {
        struct slice_run *run = &r->runs[at.run];
        enum pici_status s = PICI_OK;
        if (run->step == at.step && run->slice == slice_at(r, &at))
            s = take_messages(r, run, row(r, i), moved);
        if (s)
            return s;
        if (!r->engine->asynchronous)
            break; /* a synchronous engine takes in messages in the order of places */
    }
    struct slice_run *run = &r->runs[r->next_fold.run];
    if (r->folded == r->posted || run->stage != STAGE_TAKEN)
        return PICI_OK;
    end_step(r, run, row(r, r->folded));
    next_place(r, &r->next_fold);
    r->folded++;
    *moved = 1;
    return PICI_OK;
}

/* ---- the path */

static enum pici_status begin(struct pici_request *r)
{
    const struct coll_call *c = &r->call;
    const struct coll_layout *l = layout_of(r);
    const struct pici_engine *e = r->engine;
    for (int i = 0; i < l->buffers && l->slices; i++) {
        r->buffers[i] = (struct coll_buffer){.bytes = r->room.messages + (size_t)i * l->message};
        r->free[r->frees++] = &r->buffers[i];
    }
    for (int i = 0; i < l->window; i++) {
        struct slice_run *run = &r->runs[i];
        run->lane = r->lanes[i];
        run->message = -1;
        if (r->room.sums)
            run->acc = r->room.sums + (size_t)i * (size_t)l->limits.sums * l->slice * c->width;
        pici_slice_begin(r, run, (uint64_t)i);
    }
    void *mark = r->mark;
    r->mark = NULL;
    enum pici_status s = e->begin(r->self, mark, l->window);
    if (!s && !l->steps)
        pici_slice_own(r, r->runs[0].lane, c->recv, c->send, c->count);
    return s;
}

static enum pici_status move(struct pici_request *r, int *moved, int *done)
{
    enum pici_status s;
    if (!layout_of(r)->slices) {
        s = r->engine->ready(r->runs[0].lane, done);
        if (s)
            pici_coll_note(r->comm, "rank %d: %s", r->comm->rank, pici_request_words(r, s));
        return s;
    }
    if ((s = post(r, moved)) || (s = try_send(r, moved)) || (s = try_receive(r, moved)) || (s = reap(r, moved)))
        return s;
    *done = past_end(r, &r->next_fold) && r->sending == 0;
    return PICI_OK;
}

const struct coll_path pici_path_steps = {"steps", begin, move, busy};
