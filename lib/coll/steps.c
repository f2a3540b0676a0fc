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
#include "coll/steps.h"

#include "coll/note.h"
#include "coll/rules.h"
#include "coll/send.h"
#include "coll/take.h"

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
        busy |= stage == STAGE_NARROWING || stage == STAGE_COUNTING || stage == STAGE_MAKING ||
                stage == STAGE_LOOKING || stage == STAGE_FIRST || stage == STAGE_TAKING;
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
    int own = 0; /* messages that are only made */
    for (int i = 0; i < run->now.sends; i++)
        own += run->now.send[i].peer == comm->position;
    pici_step_sends(comm, run->now.sends - own,
                    !past_end(r, &r->next_send) && l->slices - last.round * (uint64_t)l->window > 1 && l->window > 1);
    for (int i = 0; i < run->now.sends; i++) {
        if (run->now.send[i].peer == comm->position) {
            r->making--;
            pici_slice_drop(r, run->out[i]);
            continue;
        }
        struct coll_flight *f = &r->sends[r->sending];
        *f = (struct coll_flight){.buffer = run->out[i], .peer = comm->order[run->now.send[i].peer]};
        enum pici_status s = t->send(t->context, f->peer, f->buffer->bytes, f->buffer->len, &f->request);
        if (s)
            return pici_coll_lost(comm, f->peer, s);
        f->buffer->flights++;
        r->sending++;
        r->making--;
        pici_request_sent(r, f->peer, f->buffer->len);
    }
    pici_slice_sent(run);
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
    const struct call_rules *rules = r->call.args.rules;
    const struct coll_layout *l = layout_of(r);
    const struct pici_transport *t = &r->comm->transport;
    while (r->posted - r->folded < (uint64_t)l->window && !past_end(r, &r->next_post)) {
        if (r->posting_step != r->next_post.step)
            pici_slice_step_at(r, r->posting_step = r->next_post.step, &r->posting);
        if (!rules->has_buffers(r, r->next_post.run, r->next_post.step, 1))
            return PICI_OK;
        pici_step_receives(r->comm, r->posting.receives);
        for (int i = 0; i < r->posting.receives; i++) {
            struct coll_flight *f = &row(r, r->posted)[i];
            *f = (struct coll_flight){.peer = r->comm->order[r->posting.receive[i].peer]};
            f->buffer = rules->take_buffer(r, r->next_post.run, r->next_post.step, 1, i);
            enum pici_status s = t->recv(t->context, f->peer, f->buffer->bytes, f->buffer->room, &f->request);
            if (s)
                return pici_coll_lost(r->comm, f->peer, s);
        }
        r->posted++;
        next_place(r, &r->next_post);
        *moved = 1;
    }
    return PICI_OK;
}

/* Take in what arrived. Pass the next place in the order if everything there was taken in. */
static enum pici_status try_receive(struct pici_request *r, int *moved)
{
    struct coll_place at = r->next_fold;
    for (uint64_t i = r->folded; i < r->posted; i++, next_place(r, &at)) {
        struct slice_run *run = &r->runs[at.run];
        enum pici_status s = PICI_OK;
        if (run->step == at.step && run->slice == slice_at(r, &at))
            s = pici_take_messages(r, run, row(r, i), moved);
        if (s)
            return s;
        if (!r->engine->asynchronous)
            break; /* a synchronous engine takes in messages in the order of places */
    }
    struct slice_run *run = &r->runs[r->next_fold.run];
    if (r->folded == r->posted || run->stage != STAGE_TAKEN)
        return PICI_OK;
    pici_end_step(r, run, row(r, r->folded));
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
    if (l->slices)
        c->args.rules->set_buffers(r, r->room.messages);
    for (int i = 0; i < l->window; i++) {
        struct slice_run *run = &r->runs[i];
        run->lane = r->lanes[i];
        run->message = -1;
        if (r->room.sums)
            run->acc = r->room.sums + (size_t)i * (size_t)l->limits.sums * l->slice * c->resolved.width;
        if (l->arrays)
            run->narrowed = r->room.arrays + (size_t)i * ((size_t)l->limits.segments + 1) * l->parts;
        pici_slice_begin(r, run, (uint64_t)i);
    }
    void *mark = r->mark;
    r->mark = NULL;
    enum pici_status s = e->begin(r->self, mark, l->window);
    if (!s && !l->steps && c->args.count) { /* a single rank */
        const struct coll_span all = pici_coll_segment(r->comm, c, 0);
        pici_slice_own(r, r->runs[0].lane, pici_slice_result(r, 0, all.first), c->args.send, all.n);
    }
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
