/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The only loop over steps: the data of a collective.
 *
 * A segment is cut into slices, and `window` of them are under way at a time. Each goes through all the steps of the
 * schedule: make and send this rank's messages of the step, then take in those that it receives, then the next step. While
 * one slice is encoded another is in flight and a third is added. All ranks keep one order of places (round of slices, step,
 * slice): in this order messages are sent and receives are posted, so that the nth message to a peer is the nth that the
 * peer expects from here. A rank may have no message to send or to receive at a place.
 *
 * There is no deadlock. A rank goes past a place once it has sent its messages and taken in those that it receives there; it
 * sends the messages of a place once it is past the previous step's place of the same slice. Where all ranks wait, take one
 * that is furthest behind in the order: its peers at that place are there or further, so what it waits for was sent.
 *
 * An asynchronous engine has a lane for each slice, and a slice goes from stage to stage when its lane has nothing left to do.
 * Then messages are made and taken in as soon as they can be, in any order; they are still sent, and places passed, in the
 * one order. */
#include <limits.h>
#include <string.h>

#include "coll/request.h"

static const struct coll_layout *layout_of(const struct pici_request *r)
{
    return &r->call.at;
}

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

static void step_at(const struct pici_request *r, int step, struct schedule_step *s)
{
    const struct coll_layout *l = layout_of(r);
    l->schedule->step(l->schedule, &l->shape, step, s);
}

/* The step that a slice is at. */
static const struct schedule_step *step_of(const struct pici_request *r, struct slice_run *run)
{
    if (!run->known) {
        step_at(r, run->step, &run->now);
        run->known = 1;
    }
    return &run->now;
}

/* ---- buffers of messages */

static struct coll_buffer *take(struct pici_request *r)
{
    struct coll_buffer *b = r->free[--r->frees];
    b->users = 1;
    b->flights = 0;
    return b;
}

static void drop(struct pici_request *r, struct coll_buffer *b)
{
    if (--b->users == 0)
        r->free[r->frees++] = b;
}

/* Keep a block for a later step. */
static void keep(struct slice_run *run, int segment, struct coll_buffer *b, const uint8_t *block, size_t len,
                 enum pici_format format)
{
    run->encoded[segment] = (struct coll_encoded){.block = block, .len = len, .message = b, .format = format};
    b->users++;
}

static void let_go(struct pici_request *r, struct slice_run *run, int segment)
{
    struct coll_buffer *b = run->encoded[segment].message;
    run->encoded[segment].message = NULL;
    if (b)
        drop(r, b);
}

/* ---- sums */

/* A slice begins: none of its sums has anything yet. */
static void begin_slice(const struct pici_request *r, struct slice_run *run, uint64_t slice)
{
    const struct coll_layout *l = layout_of(r);
    run->slice = slice;
    run->step = run->known = 0;
    memset(run->sum, 0, (size_t)l->shape.ranks * sizeof *run->sum);
    for (run->free_slots = 0; run->free_slots < l->limits.sums; run->free_slots++)
        run->slots[run->free_slots] = run->free_slots;
    pici_policy_begin(&run->history);
}

static uint8_t *slot_at(const struct pici_request *r, const struct slice_run *run, int slot)
{
    return run->acc + (size_t)slot * layout_of(r)->slice * r->call.width;
}

/* Where a result belongs in the receive buffer: elements from `first` of the total on. */
static uint8_t *result_at(const struct pici_request *r, int segment, uint64_t first)
{
    const struct coll_call *c = &r->call;
    uint64_t base = 0, len;
    if (c->kind == PICI_REDUCE_SCATTER)
        pici_coll_segment(r->comm, c, segment, &base, &len);
    return c->recv + (first - base) * c->width;
}

/* Where the sum of a segment's slice is. There is one. */
static uint8_t *sum_at(const struct pici_request *r, const struct slice_run *run, int segment, uint64_t first)
{
    const int where = run->sum[segment];
    return where == SUM_IN_RECV ? result_at(r, segment, first) : slot_at(r, run, where - 1);
}

/* This rank's sum of a segment's slice; the first time it is its own contribution. */
static uint8_t *sum_of(const struct pici_request *r, struct slice_run *run, int segment, uint64_t first, uint64_t n)
{
    const struct coll_call *c = &r->call;
    if (run->sum[segment] != SUM_NONE)
        return sum_at(r, run, segment, first);
    const int in_recv = segment == r->comm->position || layout_of(r)->limits.sums_in_recv;
    run->sum[segment] = in_recv ? SUM_IN_RECV : 1 + run->slots[--run->free_slots];
    uint8_t *sum = sum_at(r, run, segment, first);
    const uint8_t *own = c->send + first * c->width;
    if (sum != own)
        r->engine->copy(run->lane, sum, own, n, c->dtype);
    return sum;
}

/* A sum in a slot was passed on: the slot may hold another. */
static void pass_on(struct slice_run *run, int segment)
{
    if (run->sum[segment] > 0) {
        run->slots[run->free_slots++] = run->sum[segment] - 1;
        run->sum[segment] = SUM_NONE;
    }
}

/* The elements of a segment's slice that this rank encodes: its own contribution, a sum, or a result. */
static const uint8_t *source(const struct pici_request *r, const struct slice_run *run, int segment, uint64_t *n)
{
    const struct coll_call *c = &r->call;
    uint64_t first;
    pici_coll_slice(r->comm, c, segment, run->slice, &first, n);
    if (c->kind == PICI_ALL_GATHER)
        return c->send + (first - (uint64_t)r->comm->rank * c->count) * c->width;
    return run->sum[segment] == SUM_NONE ? c->send + first * c->width : sum_at(r, run, segment, first);
}

/* ---- tracing */

/* A message was made, or taken in. tiles: NULL, or of each container how many it sent. */
static void trace(struct pici_request *r, const char *name, const struct slice_run *run, int peer, size_t wire,
                  const uint64_t *tiles)
{
    struct pici_comm *comm = r->comm;
    if (!comm->trace)
        return;
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
                            .wire_bytes = wire};
    if (tiles)
        memcpy(e.tiles, tiles, sizeof e.tiles);
    pici_trace_add(comm->trace, &e);
}

/* ---- stages */

/* Has the engine done what this slice's stage began? And did it succeed. */
static int ready(const struct pici_request *r, const struct slice_run *run, enum pici_status *s)
{
    int done;
    *s = r->engine->ready(run->lane, &done);
    return done;
}

static int busy(const struct pici_request *r)
{
    const struct coll_layout *l = layout_of(r);
    int busy = !l->slices;
    for (int i = 0; i < l->window && r->engine->asynchronous; i++) {
        const enum coll_stage stage = r->runs[i].stage;
        busy |= stage == STAGE_COUNTING || stage == STAGE_MAKING || stage == STAGE_LOOKING || stage == STAGE_TAKING;
    }
    return busy;
}

/* ---- sending */

/* Count a block that is sent, and its tiles, which are also added to those of its message. */
static void tally(struct pici_request *r, struct slice_run *run, enum pici_format format, const uint8_t *block,
                  size_t len)
{
    uint64_t own[PICI_CONTAINERS] = {0};
    r->stats.sends[format]++;
    if (format != PICI_HYBRID)
        return;
    r->engine->containers(run->lane, own, block, len);
    for (int i = 0; i < PICI_CONTAINERS; i++) {
        run->tiles[i] += own[i];
        r->stats.tiles[i] += own[i];
    }
}

static void put_prefix(const struct pici_request *r, const struct slice_run *run, struct coll_buffer *b,
                       enum msg_kind kind, int blocks)
{
    const struct msg_prefix prefix = {.kind = kind,
                                      .dtype = (unsigned)r->call.dtype,
                                      .op = (unsigned)r->call.op,
                                      .algorithm = (unsigned)layout_of(r)->schedule->id,
                                      .sequence = r->sequence,
                                      .slice = run->slice,
                                      .step = (uint32_t)run->step,
                                      .status = kind == MSG_POISON ? r->status : 0,
                                      .blocks = (uint32_t)blocks};
    uint8_t bytes[MSG_BYTES];
    pici_msg_put(bytes, &prefix);
    r->engine->prefix(run->lane, b->bytes, bytes, MSG_BYTES);
}

/* A new message; its blocks follow. */
static struct coll_buffer *begin_buffer(struct pici_request *r, struct slice_run *run, enum msg_kind kind, int blocks)
{
    struct coll_buffer *b = run->out[run->message] = take(r);
    put_prefix(r, run, b, kind, blocks);
    b->len = MSG_BYTES;
    b->blocks = blocks;
    return b;
}

/* The link to a peer; what is gathered goes over all links, so then the slower ones count. */
static enum policy_link link_to(const struct pici_request *r, int position, int gather)
{
    const struct pici_comm *comm = r->comm;
    const int inter = comm->node_of[comm->order[position]] != comm->node_of[comm->rank];
    return inter || (gather && comm->nodes > 1) ? POLICY_INTER : POLICY_INTRA;
}

static float threshold_of(const struct pici_request *r, const struct schedule_message *m, int gather)
{
    return pici_policy_threshold(&r->call.threshold, r->call.format, link_to(r, m->peer, 0), gather);
}

/* Choose the format of a message without looking at it. 0: its nonzeros must be counted first. */
static int choose_uncounted(const struct pici_request *r, struct slice_run *run, const struct schedule_message *m)
{
    const struct coll_call *c = &r->call;
    const float threshold = threshold_of(r, m, run->now.phase == PHASE_GATHER);
    run->density = POLICY_UNKNOWN;
    run->extrapolated = 0;
    run->format = c->format;
    if (c->format == PICI_DENSE || (threshold <= 0 && c->format != PICI_AUTO))
        return 1; /* whatever the density */
    if (pici_policy_count(&run->history, threshold, m->contributions, &run->density))
        return 0;
    run->extrapolated = run->density >= 0;
    pici_policy_sent(&run->history, run->density, m->contributions, 1);
    run->format = PICI_DENSE;
    return 1;
}

/* Choose it by the nonzeros counted. */
static void choose_counted(const struct pici_request *r, struct slice_run *run, const struct schedule_message *m)
{
    const struct coll_call *c = &r->call;
    const int gather = run->now.phase == PHASE_GATHER;
    const struct policy_auto by = {.formats = c->formats,
                                   .bandwidth = c->bandwidth[link_to(r, m->peer, gather)],
                                   .gather = gather,
                                   .cost_scale = r->engine->cost_scale};
    uint64_t n = 0, nnz = 0;
    for (int i = 0; i < m->count; i++) {
        n += run->n[i];
        nnz += run->nnz[i];
    }
    const double sparsity = pici_policy_sparsity(nnz, n);
    const int dense = pici_policy_dense(sparsity, threshold_of(r, m, gather));
    run->density = 1 - sparsity;
    pici_policy_sent(&run->history, run->density, m->contributions, dense);
    run->format = dense ? PICI_DENSE : pici_policy_format(c->format, c->dtype, run->n, run->nnz, m->count, &by);
}

/* Send this instead of data from now on. */
static void begin_poison(struct pici_request *r, struct slice_run *run)
{
    run->making = MAKE_POISON;
    (void)begin_buffer(r, run, MSG_POISON, 0);
    run->stage = STAGE_MAKING;
}

static void fail_encode(struct pici_request *r, struct slice_run *run, enum pici_status s)
{
    pici_coll_note(r->comm, "rank %d: cannot encode: %s", r->comm->rank, pici_request_words(r, s));
    pici_coll_fail(r, s, r->comm->rank);
    if (run->out[run->message])
        drop(r, run->out[run->message]);
    begin_poison(r, run);
}

/* Encode a message's segments. The format is chosen. */
static void begin_encode(struct pici_request *r, struct slice_run *run, const struct schedule_message *m)
{
    const struct coll_call *c = &r->call;
    struct coll_buffer *b = begin_buffer(r, run, MSG_DATA, m->count);
    run->making = MAKE_BLOCKS;
    run->stage = STAGE_MAKING;
    enum pici_status s = r->engine->encode(run->lane, b->bytes, MSG_BYTES, layout_of(r)->message, run->len, run->src,
                                           run->n, m->count, c->dtype, run->format, c->checksum);
    if (s)
        fail_encode(r, run, s);
}

/* The blocks are there. */
static void end_encode(struct pici_request *r, struct slice_run *run, const struct schedule_message *m)
{
    struct coll_buffer *b = run->out[run->message];
    for (int i = 0; i < m->count; i++) {
        const uint8_t *block = b->bytes + b->len;
        if (m->keep)
            keep(run, m->segments[i], b, block, run->len[i], run->format);
        else if (run->now.phase == PHASE_REDUCE)
            pass_on(run, m->segments[i]);
        tally(r, run, run->format, block, run->len[i]);
        b->len += run->len[i];
        run->dense_bytes += HDR_BYTES + run->n[i] * r->call.width;
    }
}

/* The message that holds a message's blocks and no others, in this order, and is not in flight; or NULL. */
static struct coll_buffer *whole_message(const struct slice_run *run, const struct schedule_message *m)
{
    struct coll_buffer *b = run->encoded[m->segments[0]].message;
    const uint8_t *at = b ? b->bytes + MSG_BYTES : NULL;
    if (!b || b->blocks != m->count || b->flights)
        return NULL;
    for (int i = 0; i < m->count; i++) {
        const struct coll_encoded *e = &run->encoded[m->segments[i]];
        if (e->message != b || e->block != at)
            return NULL;
        at += e->len;
    }
    return b;
}

/* A message of kept blocks: the one that they came in, if it is the same but for its prefix, else a copy. */
static void begin_forward(struct pici_request *r, struct slice_run *run, const struct schedule_message *m)
{
    struct coll_buffer *b = whole_message(run, m), *copy = NULL;
    run->making = MAKE_FORWARD;
    run->stage = STAGE_MAKING;
    run->format = run->encoded[m->segments[0]].format;
    run->density = POLICY_UNKNOWN;
    run->extrapolated = 0;
    if (b) {
        b->users++;
        run->out[run->message] = b;
        put_prefix(r, run, b, MSG_DATA, m->count);
    } else {
        copy = begin_buffer(r, run, MSG_DATA, m->count);
    }
    for (int i = 0; i < m->count; i++) {
        const int segment = m->segments[i];
        const struct coll_encoded *e = &run->encoded[segment];
        uint64_t first, n;
        pici_coll_slice(r->comm, &r->call, segment, run->slice, &first, &n);
        if (copy) {
            r->engine->put(run->lane, copy->bytes + copy->len, e->block, e->len);
            copy->len += e->len;
        }
        tally(r, run, e->format, e->block, e->len);
        run->dense_bytes += HDR_BYTES + n * r->call.width;
    }
}

/* Begin to make the next message of the step. */
static void begin_message(struct pici_request *r, struct slice_run *run, const struct schedule_message *m)
{
    const struct coll_call *c = &r->call;
    run->begin = pici_coll_now();
    run->dense_bytes = MSG_BYTES;
    memset(run->tiles, 0, sizeof run->tiles);
    run->out[run->message] = NULL;
    if (r->status) {
        begin_poison(r, run);
        return;
    }
    if (m->action == SEND_FORWARD) {
        begin_forward(r, run, m);
        return;
    }
    for (int i = 0; i < m->count; i++)
        run->src[i] = source(r, run, m->segments[i], &run->n[i]);
    if (choose_uncounted(r, run, m)) {
        begin_encode(r, run, m);
        return;
    }
    r->engine->count(run->lane, run->src, run->n, m->count, c->dtype, run->nnz);
    run->stage = STAGE_COUNTING;
}

/* A message of data is made. */
static void end_message(struct pici_request *r, struct slice_run *run, const struct schedule_message *m)
{
    struct coll_buffer *b = run->out[run->message];
    if (run->making == MAKE_BLOCKS)
        end_encode(r, run, m);
    for (int i = 0; i < m->count && run->making == MAKE_FORWARD && !m->keep; i++)
        let_go(r, run, m->segments[i]);
    r->stats.encode_s += pici_coll_now() - run->begin;
    r->stats.dense_bytes += run->dense_bytes;
    trace(r, "send", run, r->comm->order[m->peer], b->len, run->tiles);
}

/* The own contribution to an all-gather goes to its place in the result. */
static void place_own(struct pici_request *r, const struct slice_run *run)
{
    const struct coll_call *c = &r->call;
    uint64_t n;
    const uint8_t *src = source(r, run, r->comm->position, &n);
    uint8_t *place = c->recv + (size_t)r->comm->rank * c->count * c->width + (src - c->send);
    if (place != src)
        r->engine->copy(run->lane, place, src, n, c->dtype);
}

/* Begin a step: are there buffers for its messages? */
static int begin_step(struct pici_request *r, struct slice_run *run)
{
    const struct coll_layout *l = layout_of(r);
    const struct schedule_step *step = step_of(r, run);
    if (r->sending + r->making + step->sends > l->window * l->limits.sends)
        return 0;
    r->making += step->sends;
    run->message = 0;
    if (run->step == 0 && r->call.kind == PICI_ALL_GATHER && !r->status)
        place_own(r, run);
    return 1;
}

/* Make the messages of a slice's step, as far as that goes without waiting. */
static void make_messages(struct pici_request *r, struct slice_run *run, int *moved)
{
    enum pici_status s;
    if (run->sent || run->stage > STAGE_MAKING || run->slice >= layout_of(r)->slices)
        return;
    if (run->stage == STAGE_REST && run->message < 0) {
        if (!begin_step(r, run))
            return;
        *moved = 1;
    }
    while (run->message < run->now.sends) {
        const struct schedule_message *m = &run->now.send[run->message];
        if (run->stage == STAGE_REST)
            begin_message(r, run, m);
        if (!ready(r, run, &s))
            return;
        *moved = 1;
        if (run->stage == STAGE_COUNTING) {
            if (s) {
                fail_encode(r, run, s);
            } else {
                choose_counted(r, run, m);
                begin_encode(r, run, m);
            }
            continue;
        }
        if (run->making != MAKE_POISON && s) {
            fail_encode(r, run, s);
            continue;
        }
        if (run->making != MAKE_POISON)
            end_message(r, run, m);
        else if (s)
            pici_coll_fail(r, s, r->comm->rank); /* not even the poison can be made */
        run->stage = STAGE_REST;
        run->message++;
    }
    run->stage = STAGE_MADE;
}

/* Send the messages of the next place in the order, if they are made. */
static enum pici_status try_send(struct pici_request *r, int *moved)
{
    const struct coll_layout *l = layout_of(r);
    struct pici_comm *comm = r->comm;
    const struct pici_transport *t = &comm->transport;
    if (past_end(r, &r->next_send))
        return PICI_OK;
    struct slice_run *run = &r->runs[r->next_send.run];
    make_messages(r, run, moved);
    for (int i = 0; i < l->window && r->engine->asynchronous; i++)
        make_messages(r, &r->runs[i], moved);
    if (run->stage != STAGE_MADE)
        return PICI_OK;
    const struct coll_place last = r->next_send;
    next_place(r, &r->next_send);
    /* The next messages are another slice's, so they do not wait for what this slice receives now: if there is another. */
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
            drop(r, r->sends[i].buffer);
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

/* Have the receives of the next places posted. */
static enum pici_status post(struct pici_request *r, int *moved)
{
    const struct coll_layout *l = layout_of(r);
    const struct pici_transport *t = &r->comm->transport;
    while (r->posted - r->folded < (uint64_t)l->window && !past_end(r, &r->next_post)) {
        if (r->posting_step != r->next_post.step)
            step_at(r, r->posting_step = r->next_post.step, &r->posting);
        pici_step_receives(r->comm, r->posting.receives);
        for (int i = 0; i < r->posting.receives; i++) {
            struct coll_flight *f = &row(r, r->posted)[i];
            *f = (struct coll_flight){.buffer = take(r), .peer = r->comm->order[r->posting.receive[i].peer]};
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

/* Does a prefix say what it must here? */
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

/* Do with a block what the schedule says. */
static enum pici_status take_block(struct pici_request *r, struct slice_run *run, enum schedule_action action,
                                   int segment, uint64_t first, const uint8_t *block, const struct pici_block *b)
{
    const struct coll_call *c = &r->call;
    const struct pici_engine *e = r->engine;
    if (action == TAKE_KEEP)
        return PICI_OK;
    if (action == TAKE_PLACE)
        return e->decode(run->lane, result_at(r, segment, first), block, b, c->total);
    return e->fold(run->lane, sum_of(r, run, segment, first, b->count), block, b, c->op, r->room.temp,
                   COLL_TEMP_BYTES / c->width);
}

/* Sums of this slice that have all contributions after this step: divide them for an average. */
static void complete(struct pici_request *r, struct slice_run *run)
{
    const struct coll_call *c = &r->call;
    const enum schedule_complete what = c->op == PICI_AVG ? run->now.complete : COMPLETE_NONE;
    for (int i = 0; i < r->comm->ranks && what != COMPLETE_NONE; i++) {
        uint64_t first, n;
        if (what == COMPLETE_OWN && i != r->comm->position)
            continue;
        pici_coll_slice(r->comm, c, i, run->slice, &first, &n);
        r->engine->divide(run->lane, sum_of(r, run, i, first, n), n, c->dtype, r->comm->ranks);
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
            keep(run, segment, f->buffer, bytes + at, (size_t)b.at.block_bytes, (enum pici_format)b.format);
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
    trace(r, "recv", run, f->peer, f->bytes, NULL);
}

/* Take in the messages of a slice's step, in the order of its list, as far as that goes without waiting. What is wrong with
 * one is noted. at: its receives. Returns a failure of the transport. */
static enum pici_status take_messages(struct pici_request *r, struct slice_run *run, struct coll_flight *at, int *moved)
{
    const struct schedule_step *step = step_of(r, run);
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
            if (!ready(r, run, &s))
                return PICI_OK;
            run->status = f->status ? f->status : s;
            if (!run->status && !r->status)
                run->status = begin_take(r, run, m, f);
            if (run->message + 1 == step->receives && !run->status && !r->status)
                complete(r, run);
            run->stage = STAGE_TAKING;
            *moved = 1;
        }
        if (!ready(r, run, &s))
            return PICI_OK;
        end_take(r, run, f, s);
        run->stage = STAGE_REST;
        run->message++;
    }
    if (!step->receives && !r->status) { /* a sum may be complete before the first message: of a single contribution */
        if (run->stage == STAGE_REST)
            complete(r, run);
        run->stage = STAGE_TAKING;
        if (!ready(r, run, &s))
            return PICI_OK;
        if (s)
            pici_coll_fail(r, s, r->comm->rank);
    }
    run->stage = STAGE_TAKEN;
    return PICI_OK;
}

/* A slice's step is done with. */
static void end_step(struct pici_request *r, struct slice_run *run, struct coll_flight *at)
{
    const struct coll_layout *l = layout_of(r);
    const enum schedule_phase phase = step_of(r, run)->phase;
    for (int i = 0; i < run->now.receives; i++)
        drop(r, at[i].buffer);
    run->sent = run->known = 0;
    run->stage = STAGE_REST;
    run->message = -1;
    if (++run->step < l->steps) {
        if (step_of(r, run)->phase != phase)
            pici_policy_begin(&run->history);
        return;
    }
    for (int i = 0; i < l->shape.ranks && run->encoded; i++)
        let_go(r, run, i);
    begin_slice(r, run, run->slice + (uint64_t)l->window);
}

/* Take in what arrived, and go past the next place in the order, if everything there was taken in. */
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
            break; /* one at a time */
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
        begin_slice(r, run, (uint64_t)i);
    }
    void *mark = r->mark;
    r->mark = NULL;
    enum pici_status s = e->begin(r->self, mark, l->window);
    if (!s && !l->steps && c->send != c->recv)
        e->copy(r->runs[0].lane, c->recv, c->send, c->count, c->dtype);
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
