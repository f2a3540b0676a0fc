/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The loop over steps: the data of a collective.
 *
 * A segment is cut into slices, and `window` of them are under way at a time, each a chain through all the steps: send my message of the step,
 * then take in the peer's, go on to the next step. Chains wait for the network by turns, so that one is encoded while another is in flight
 * and a third is added. The messages of all chains have one order (round of slices, step, slice), the same on every rank, in which they are sent and
 * received; so the nth message to a peer is the nth that it expects from here.
 *
 * This cannot lock up: a message is taken in once this rank has sent its own of the same place, and is sent once that of the step before was taken in.
 * Where all ranks wait, take the one that is furthest behind in the order: all that it waits for was sent.
 *
 * An engine that is asynchronous has a lane for each chain, and a chain goes from stage to stage when its lane has nothing left to do.
 * Then messages are made, and taken in, as soon as may be, whatever their order; sent, and done with, they are in order still. */
#include <limits.h>
#include <string.h>

#include "coll/comm.h"

static int steps_of(const struct coll_call *c)
{
    return c->steps[0] + c->steps[1];
}

static int phase_of(const struct coll_call *c, int step)
{
    return step < c->steps[PLAN_REDUCE_SCATTER] ? PLAN_REDUCE_SCATTER : PLAN_ALL_GATHER;
}

static void step_at(const struct pici_request *r, int step, struct pici_plan_step *s)
{
    const struct coll_call *c = &r->call;
    int phase = phase_of(c, step);
    pici_plan_step(s, (enum plan_algorithm)c->algorithm, (enum plan_phase)phase, r->comm->ranks, r->comm->position,
                   phase == PLAN_REDUCE_SCATTER ? step : step - c->steps[PLAN_REDUCE_SCATTER]);
}

/* ---- the order of messages */

static uint64_t slice_at(const struct pici_request *r, const struct coll_place *at)
{
    return at->round * (uint64_t)r->call.window + (uint64_t)at->chain;
}

static int past_end(const struct pici_request *r, const struct coll_place *at)
{
    return slice_at(r, at) >= r->call.slices;
}

static void next_place(const struct pici_request *r, struct coll_place *at)
{
    at->chain++;
    if (at->chain < r->call.window && !past_end(r, at))
        return;
    at->chain = 0;
    if (++at->step < steps_of(&r->call))
        return;
    at->step = 0;
    at->round++;
}

/* ---- memory */

static struct coll_buffer *take(struct pici_request *r)
{
    struct coll_buffer *b = r->free[--r->frees];
    b->users = 1;
    return b;
}

static void drop(struct pici_request *r, struct coll_buffer *b)
{
    if (--b->users == 0)
        r->free[r->frees++] = b;
}

static void hold(struct coll_chain *chain, struct coll_buffer *b)
{
    b->users++;
    chain->held[chain->holds++] = b;
}

static void let_go(struct pici_request *r, struct coll_chain *chain)
{
    while (chain->holds)
        drop(r, chain->held[--chain->holds]);
}

enum pici_status pici_coll_data_begin(struct pici_request *r)
{
    struct coll_call *c = &r->call;
    const struct pici_engine *e = r->engine;
    for (int i = 0; i < c->buffers && c->slices; i++) {
        r->buffers[i] = (struct coll_buffer){.bytes = r->messages + (size_t)i * c->message};
        r->free[r->frees++] = &r->buffers[i];
    }
    for (int i = 0; i < c->window && c->slices; i++) {
        r->chains[i].slice = (uint64_t)i;
        r->chains[i].acc = r->sums + (size_t)i * (size_t)c->accumulators * c->slice * c->width;
        pici_policy_begin(&r->chains[i].policy);
    }
    void *mark = r->mark;
    r->mark = NULL;
    enum pici_status s = e->begin ? e->begin(r->self, mark, c->lanes) : PICI_OK;
    if (!s && r->comm->ranks == 1 && c->send != c->recv)
        e->copy(c->lanes ? r->chains[0].lane : NULL, c->recv, c->send, c->count, c->dtype);
    return s;
}

/* Where this rank sums slice [first, first + n) of a segment: what it owns in the caller's memory. */
static uint8_t *sum_at(const struct pici_request *r, const struct coll_chain *chain, int segment, uint64_t first)
{
    const struct coll_call *c = &r->call;
    if (segment == r->comm->position) {
        uint64_t own = 0, len;
        if (c->kind == PICI_REDUCE_SCATTER)
            pici_coll_segment(r->comm, c, segment, &own, &len);
        return c->recv + (first - own) * c->width;
    }
    return chain->acc + (c->accumulators == 1 ? 0 : (size_t)segment) * c->slice * c->width;
}

/* ---- tracing */

/* A message was made, or taken in. tiles: NULL, or of each kind how many it sent. */
static void trace(struct pici_request *r, const char *name, const struct coll_chain *chain, int peer, size_t wire,
                  const uint64_t *tiles)
{
    struct pici_comm *comm = r->comm;
    if (!comm->trace)
        return;
    struct trace_event e = {.name = name,
                            .begin = chain->begin,
                            .end = pici_coll_now(),
                            .sequence = r->sequence,
                            .phase = phase_of(&r->call, chain->step),
                            .step = chain->step,
                            .slice = (int)chain->slice,
                            .peer = peer,
                            .inter = comm->node_of[peer] != comm->node_of[comm->rank],
                            .format = (int)chain->format,
                            .density = chain->density,
                            .extrapolated = chain->extrapolated,
                            .dense_bytes = chain->dense_bytes,
                            .wire_bytes = wire};
    if (tiles)
        memcpy(e.tiles, tiles, sizeof e.tiles);
    pici_trace_add(comm->trace, &e);
}

/* ---- stages */

/* Has the engine done what this chain's stage began? And how did it go. */
static int ready(const struct pici_request *r, const struct coll_chain *chain, enum pici_status *s)
{
    int done = 1;
    *s = r->engine->ready ? r->engine->ready(chain->lane, &done) : PICI_OK;
    return done;
}

/* Until then there is nothing else to wait for. */
int pici_coll_busy(const struct pici_request *r)
{
    int busy = !r->call.slices && r->call.lanes;
    for (int i = 0; i < r->call.window && r->engine->ready; i++) {
        const enum coll_stage stage = r->chains[i].stage;
        busy |= stage == STAGE_COUNTING || stage == STAGE_MAKING || stage == STAGE_LOOKING || stage == STAGE_TAKING;
    }
    return busy;
}

/* ---- sending */

/* A block is sent: count it, and its tiles, which are also added to those of its message. */
static void tally(struct pici_request *r, struct coll_chain *chain, enum pici_format format, const uint8_t *block,
                  size_t len)
{
    uint64_t own[PICI_CONTAINERS] = {0};
    r->stats.sends[format]++;
    if (format != PICI_HYBRID)
        return;
    r->engine->mix(chain->lane, own, block, len);
    for (int i = 0; i < PICI_CONTAINERS; i++) {
        chain->tiles[i] += own[i];
        r->stats.tiles[i] += own[i];
    }
}

static void put_prefix(const struct pici_request *r, struct coll_chain *chain, enum msg_kind kind, int blocks)
{
    struct msg_prefix prefix = {.kind = kind,
                                .dtype = (unsigned)r->call.dtype,
                                .op = (unsigned)r->call.op,
                                .algorithm = (unsigned)r->call.algorithm,
                                .sequence = r->sequence,
                                .count = r->call.total,
                                .status = kind == MSG_POISON ? r->status : 0,
                                .blocks = (uint32_t)blocks};
    uint8_t bytes[MSG_BYTES];
    pici_msg_put(bytes, &prefix);
    r->engine->prefix(chain->lane, chain->out->bytes, bytes, MSG_BYTES);
    chain->out->len = MSG_BYTES;
}

/* The elements of a segment's slice that this rank sends, from memory: a sum, or what it contributes itself. */
static const uint8_t *source(const struct pici_request *r, const struct coll_chain *chain, int segment, uint64_t *n)
{
    const struct coll_call *c = &r->call;
    uint64_t first;
    pici_coll_slice(r->comm, c, segment, chain->slice, &first, n);
    if (c->kind == PICI_ALL_GATHER)
        return c->send + (first - (uint64_t)r->comm->rank * c->count) * c->width;
    return chain->has[segment] ? sum_at(r, chain, segment, first) : c->send + first * c->width;
}

/* Which link a message goes over; what is gathered crosses all links, so the slower ones count. */
static enum policy_link link_of(const struct pici_request *r, const struct pici_plan_step *step, int gather,
                                int slowest)
{
    const struct pici_comm *comm = r->comm;
    const int inter = comm->node_of[comm->order[step->to]] != comm->node_of[comm->rank];
    return inter || (slowest && gather && comm->nodes > 1) ? POLICY_INTER : POLICY_INTRA;
}

/* Choose the format of a message. 0: its nonzeros must be counted first. */
static int choose(const struct pici_request *r, struct coll_chain *chain, const struct pici_plan_step *step, int gather)
{
    const struct coll_call *c = &r->call;
    const float threshold = c->threshold[gather ? POLICY_AG : link_of(r, step, gather, 0)];
    chain->density = POLICY_UNKNOWN;
    chain->extrapolated = 0;
    chain->format = c->format;
    if (c->format == PICI_DENSE || (threshold <= 0 && c->format != PICI_AUTO))
        return 1; /* whatever the density */
    if (pici_policy_count(&chain->policy, threshold, &chain->density))
        return 0;
    chain->extrapolated = chain->density >= 0;
    pici_policy_sent(&chain->policy, chain->density, 1);
    chain->format = PICI_DENSE;
    return 1;
}

/* The same, after they were. */
static void choose_counted(const struct pici_request *r, struct coll_chain *chain, const struct pici_plan_step *step,
                           int gather)
{
    const struct coll_call *c = &r->call;
    const float threshold = c->threshold[gather ? POLICY_AG : link_of(r, step, gather, 0)];
    const struct policy_auto by = {.formats = c->formats,
                                   .bandwidth = c->bandwidth[link_of(r, step, gather, 1)],
                                   .gather = gather,
                                   .coding = r->engine->coding};
    uint64_t n = 0, nnz = 0;
    for (int i = 0; i < step->send_count; i++) {
        n += chain->n[i];
        nnz += chain->nnz[i];
    }
    const double sparsity = pici_policy_sparsity(nnz, n);
    const int dense = pici_policy_dense(sparsity, threshold);
    chain->density = 1 - sparsity;
    pici_policy_sent(&chain->policy, chain->density, dense);
    chain->format =
        dense ? PICI_DENSE : pici_policy_format(c->format, c->dtype, chain->n, chain->nnz, step->send_count, &by);
}

/* The message is made; it is of data. */
static void end_message(struct pici_request *r, struct coll_chain *chain, int to)
{
    r->stats.encode_s += pici_coll_now() - chain->begin;
    r->stats.dense_bytes += chain->dense_bytes;
    trace(r, "send", chain, to, chain->out->len, chain->tiles);
    chain->stage = STAGE_MADE;
}

/* What is sent from now on instead of data. */
static void begin_poison(struct pici_request *r, struct coll_chain *chain)
{
    chain->making = MAKE_POISON;
    put_prefix(r, chain, MSG_POISON, 0);
    chain->stage = STAGE_MAKING;
}

/* What went wrong, in words: the engine's if it has any. */
static const char *words(const struct pici_request *r, enum pici_status s)
{
    const char *own = s == PICI_E_DEVICE && r->engine->error ? r->engine->error(r->self) : "";
    return own[0] ? own : pici_strerror(s);
}

static void fail_encode(struct pici_request *r, struct coll_chain *chain, enum pici_status s)
{
    pici_coll_note(r->comm, "rank %d: cannot encode: %s", r->comm->rank, words(r, s));
    pici_coll_fail(r, s, r->comm->rank);
    begin_poison(r, chain);
}

/* Encode this step's segments from memory: sums, or what this rank owns. The format is chosen. */
static void begin_encode(struct pici_request *r, struct coll_chain *chain, const struct pici_plan_step *step)
{
    const struct coll_call *c = &r->call;
    put_prefix(r, chain, MSG_DATA, step->send_count);
    for (int i = 0; i < step->send_count && c->kind == PICI_ALL_GATHER; i++) {
        const uint8_t *src = chain->src[i];
        uint8_t *place = c->recv + (size_t)r->comm->rank * c->count * c->width + (src - c->send);
        if (place != src)
            r->engine->copy(chain->lane, place, src, chain->n[i], c->dtype);
    }
    chain->making = MAKE_BLOCKS;
    chain->stage = STAGE_MAKING;
    enum pici_status s =
        r->engine->encode(chain->lane, chain->out->bytes, MSG_BYTES, c->message, chain->len, (const void **)chain->src,
                          chain->n, step->send_count, c->dtype, chain->format, c->checksum);
    if (s)
        fail_encode(r, chain, s);
}

/* The message of blocks that this rank holds encoded: that which they came in, if it is the same, else copied together. */
static void begin_forward(struct pici_request *r, struct coll_chain *chain, const struct pici_plan_step *step)
{
    const struct coll_call *c = &r->call;
    struct coll_buffer *b = step->send_count == 1 ? chain->encoded[step->send_first].message : NULL;
    chain->making = MAKE_FORWARD;
    chain->stage = STAGE_MAKING;
    chain->format = chain->encoded[step->send_first].format;
    chain->density = POLICY_UNKNOWN;
    chain->extrapolated = 0;
    if (b) {
        b->users++;
        chain->out = b;
    } else {
        b = chain->out = take(r);
        put_prefix(r, chain, MSG_DATA, step->send_count);
    }
    for (int i = 0; i < step->send_count; i++) {
        int segment = (step->send_first + i) % r->comm->ranks;
        const struct coll_encoded *e = &chain->encoded[segment];
        uint64_t first, n;
        pici_coll_slice(r->comm, c, segment, chain->slice, &first, &n);
        if (e->message != b) {
            r->engine->put(chain->lane, b->bytes + b->len, e->block, e->len);
            b->len += e->len;
        }
        tally(r, chain, e->format, e->block, e->len);
        chain->dense_bytes += HDR_BYTES + n * c->width;
    }
    if (c->held == 1)
        let_go(r, chain);
}

/* The encoded blocks are there. */
static void end_encode(struct pici_request *r, struct coll_chain *chain, const struct pici_plan_step *step, int gather)
{
    struct coll_buffer *b = chain->out;
    for (int i = 0; i < step->send_count; i++) {
        const uint8_t *block = b->bytes + b->len;
        if (gather)
            chain->encoded[(step->send_first + i) % r->comm->ranks] =
                (struct coll_encoded){.block = block,
                                      .len = chain->len[i],
                                      .message = step->send_count == 1 ? b : NULL,
                                      .format = chain->format};
        tally(r, chain, chain->format, block, chain->len[i]);
        b->len += chain->len[i];
        chain->dense_bytes += HDR_BYTES + chain->n[i] * r->call.width;
    }
    if (gather && r->call.steps[PLAN_ALL_GATHER] > 1 && r->call.held > 1)
        hold(chain, b);
}

/* Begin to make this step's message. */
static void begin_message(struct pici_request *r, struct coll_chain *chain, const struct pici_plan_step *step)
{
    const struct coll_call *c = &r->call;
    const int gathered = chain->step - c->steps[PLAN_REDUCE_SCATTER];
    chain->begin = pici_coll_now();
    chain->dense_bytes = MSG_BYTES;
    memset(chain->tiles, 0, sizeof chain->tiles);
    r->making++;
    if (!r->status && gathered > 0) {
        begin_forward(r, chain, step);
        return;
    }
    chain->out = take(r);
    if (r->status) {
        begin_poison(r, chain);
        return;
    }
    for (int i = 0; i < step->send_count; i++)
        chain->src[i] = source(r, chain, (step->send_first + i) % r->comm->ranks, &chain->n[i]);
    if (choose(r, chain, step, gathered >= 0)) {
        begin_encode(r, chain, step);
        return;
    }
    r->engine->count(chain->lane, (const void **)chain->src, chain->n, step->send_count, c->dtype, chain->nnz);
    chain->stage = STAGE_COUNTING;
}

/* Make a chain's next message, as far as that goes without waiting. */
static void make_message(struct pici_request *r, struct coll_chain *chain, int *moved)
{
    const struct coll_call *c = &r->call;
    const int gather = phase_of(c, chain->step) == PLAN_ALL_GATHER;
    struct pici_plan_step step;
    enum pici_status s;
    if (chain->sent || chain->stage == STAGE_MADE || chain->slice >= c->slices)
        return;
    step_at(r, chain->step, &step);
    if (chain->stage == STAGE_REST) {
        if (r->sending + r->making >= c->window)
            return;
        begin_message(r, chain, &step);
        *moved = 1;
    }
    if (chain->stage == STAGE_COUNTING) {
        if (!ready(r, chain, &s))
            return;
        *moved = 1;
        if (s) {
            fail_encode(r, chain, s);
        } else {
            choose_counted(r, chain, &step, gather);
            begin_encode(r, chain, &step);
        }
    }
    if (chain->stage == STAGE_MAKING) {
        if (!ready(r, chain, &s))
            return;
        *moved = 1;
        if (chain->making == MAKE_POISON) {
            chain->stage = STAGE_MADE;
            if (s) /* and what is sent is not even that */
                pici_coll_fail(r, s, r->comm->rank);
            return;
        }
        if (s) {
            fail_encode(r, chain, s);
            return;
        }
        if (chain->making == MAKE_BLOCKS)
            end_encode(r, chain, &step, gather);
        end_message(r, chain, r->comm->order[step.to]);
    }
}

/* Send the next message in the order, if it is made. */
static enum pici_status try_send(struct pici_request *r, int *moved)
{
    const struct coll_call *c = &r->call;
    struct pici_comm *comm = r->comm;
    const struct pici_transport *t = &comm->transport;
    if (past_end(r, &r->next_send))
        return PICI_OK;
    struct coll_chain *chain = &r->chains[r->next_send.chain];
    make_message(r, chain, moved);
    for (int i = 0; i < c->window && r->engine->ready; i++) /* more at a time */
        make_message(r, &r->chains[i], moved);
    if (chain->stage != STAGE_MADE)
        return PICI_OK;
    struct pici_plan_step step;
    step_at(r, chain->step, &step);
    const int to = comm->order[step.to];
    const struct coll_place last = r->next_send;
    next_place(r, &r->next_send);
    if (t->more) /* of the next message, what goes before it is what this chain's neighbour takes in: but is there one? */
        t->more(t->context,
                !past_end(r, &r->next_send) && c->slices - last.round * (uint64_t)c->window > 1 && c->window > 1);
    struct coll_flight *f = &r->sends[r->sending];
    *f = (struct coll_flight){.buffer = chain->out, .peer = to};
    enum pici_status s = t->send(t->context, to, f->buffer->bytes, f->buffer->len, &f->request);
    if (s)
        return pici_coll_lost(comm, to, s);
    r->sending++;
    r->making--;
    r->stats.wire_bytes += f->buffer->len;
    chain->stage = STAGE_REST;
    chain->out = NULL;
    chain->sent = 1;
    *moved = 1;
    return PICI_OK;
}

/* Reap what was sent. */
static enum pici_status reap(struct pici_request *r, int *moved)
{
    const struct pici_transport *t = &r->comm->transport;
    for (int i = 0; i < r->sending;) {
        int done = 0;
        enum pici_status s = t->test(t->context, r->sends[i].request, &done, NULL);
        if (s)
            return pici_coll_lost(r->comm, r->sends[i].peer, s);
        if (done) {
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

/* Have a receive posted for each of the next messages. */
static enum pici_status post(struct pici_request *r, int *moved)
{
    const struct pici_transport *t = &r->comm->transport;
    while (r->posted - r->folded < (uint64_t)r->call.window && !past_end(r, &r->next_post)) {
        struct pici_plan_step step;
        step_at(r, r->next_post.step, &step);
        struct coll_flight *f = &r->recvs[r->posted % (uint64_t)r->call.window];
        *f = (struct coll_flight){.buffer = take(r), .peer = r->comm->order[step.from]};
        enum pici_status s = t->recv(t->context, f->peer, f->buffer->bytes, r->call.message, &f->request);
        if (s)
            return pici_coll_lost(r->comm, f->peer, s);
        r->posted++;
        next_place(r, &r->next_post);
        *moved = 1;
    }
    return PICI_OK;
}

/* Does a prefix say what it must here? */
static enum pici_status check_prefix(struct pici_request *r, const struct msg_prefix *m, int blocks, int peer)
{
    const struct coll_call *c = &r->call;
    if (m->kind == MSG_POISON && m->sequence == r->sequence && m->status < 0) {
        pici_coll_fail(r, (enum pici_status)m->status, INT_MAX);
        return PICI_OK;
    }
    if (m->kind == MSG_DATA && m->sequence == r->sequence && m->dtype == (unsigned)c->dtype &&
        m->op == (unsigned)c->op && m->algorithm == (unsigned)c->algorithm && m->count == c->total && m->status == 0 &&
        m->blocks == (uint32_t)blocks)
        return PICI_OK;
    pici_coll_note(r->comm, "rank %d sent a message that does not belong here", peer);
    return PICI_E_CORRUPT;
}

/* Add a block to the sum of its segment, or put it where it belongs. */
static enum pici_status take_block(struct pici_request *r, struct coll_chain *chain, int segment, uint64_t first,
                                   uint64_t n, const uint8_t *block, size_t len)
{
    const struct coll_call *c = &r->call;
    const struct pici_engine *e = r->engine;
    if (phase_of(c, chain->step) == PLAN_ALL_GATHER)
        return e->decode(chain->lane, c->recv + first * c->width, n, block, len, c->dtype, c->total);
    uint8_t *sum = sum_at(r, chain, segment, first);
    const uint8_t *own = c->send + first * c->width;
    if (!chain->has[segment] && sum != own)
        e->copy(chain->lane, sum, own, n, c->dtype);
    chain->has[segment] = 1;
    return e->fold(chain->lane, sum, n, block, len, c->dtype, c->op, r->temp, COLL_TEMP_BYTES / c->width);
}

/* Begin to take in the message of a step. */
static enum pici_status begin_take(struct pici_request *r, struct coll_chain *chain, const struct pici_plan_step *step,
                                   const struct coll_flight *f)
{
    const struct coll_call *c = &r->call;
    const struct pici_engine *e = r->engine;
    const uint8_t *bytes = f->buffer->bytes;
    const int gather = phase_of(c, chain->step) == PLAN_ALL_GATHER;
    struct msg_prefix prefix;
    struct pici_info info = PICI_INFO_INIT;
    uint64_t elements = 0, nnz = 0;
    size_t at = MSG_BYTES;
    enum pici_status s = pici_msg_get(&prefix, e->head ? e->head(chain->lane, -1, 0) : bytes, f->bytes);
    if (!s)
        s = check_prefix(r, &prefix, step->recv_count, f->peer);
    chain->dense = 1;
    chain->dense_bytes = MSG_BYTES;
    for (int i = 0; i < step->recv_count && !s && !r->status; i++) {
        int segment = (step->recv_first + i) % r->comm->ranks;
        uint64_t first, n;
        pici_coll_slice(r->comm, c, segment, chain->slice, &first, &n);
        s = pici_msg_block(e->head ? e->head(chain->lane, i, at) : bytes + at, f->bytes - at, c->dtype, n, &info);
        if (!s)
            s = take_block(r, chain, segment, first, n, bytes + at, info.block_bytes);
        if (gather)
            chain->encoded[segment] = (struct coll_encoded){.block = bytes + at,
                                                            .len = info.block_bytes,
                                                            .message = step->recv_count == 1 ? f->buffer : NULL,
                                                            .format = info.format};
        at += info.block_bytes;
        chain->dense &= info.format == PICI_DENSE;
        chain->dense_bytes += HDR_BYTES + n * c->width;
        elements += n;
        nnz += info.nnz;
    }
    if (!s && !r->status && at != f->bytes)
        s = PICI_E_CORRUPT;
    if (!s && !r->status && c->op == PICI_AVG && chain->step + 1 == c->steps[PLAN_REDUCE_SCATTER]) {
        uint64_t first, n;
        pici_coll_slice(r->comm, c, r->comm->position, chain->slice, &first, &n);
        e->divide(chain->lane, sum_at(r, chain, r->comm->position, first), n, c->dtype, r->comm->ranks);
    }
    chain->format = info.format;
    chain->density = chain->dense || !elements ? POLICY_UNKNOWN : (double)nnz / (double)elements;
    chain->extrapolated = 0;
    return s;
}

/* Take in the message that a chain waits for, as far as that goes without waiting. What is wrong with it is noted. */
static void take_message(struct pici_request *r, struct coll_chain *chain, const struct coll_flight *f, int *moved)
{
    const struct pici_engine *e = r->engine;
    struct pici_plan_step step;
    enum pici_status s;
    if (!chain->sent || chain->stage == STAGE_TAKEN)
        return;
    step_at(r, chain->step, &step);
    if (chain->stage == STAGE_REST) {
        chain->begin = pici_coll_now();
        chain->stage = STAGE_LOOKING;
        if (e->look && !r->status && !f->status)
            e->look(chain->lane, f->buffer->bytes, f->bytes, step.recv_count);
        *moved = 1;
    }
    if (chain->stage == STAGE_LOOKING) {
        if (!ready(r, chain, &s))
            return;
        chain->status = f->status ? f->status : s;
        if (!chain->status && !r->status)
            chain->status = begin_take(r, chain, &step, f);
        chain->stage = STAGE_TAKING;
        *moved = 1;
    }
    if (!ready(r, chain, &s))
        return;
    chain->stage = STAGE_TAKEN;
    s = chain->status ? chain->status : s;
    if (s) {
        pici_coll_note(r->comm, "from rank %d: %s", f->peer, words(r, s));
        pici_coll_fail(r, s, r->comm->rank);
    }
    if (r->status)
        return;
    if (phase_of(&r->call, chain->step) == PLAN_REDUCE_SCATTER)
        pici_policy_received(&chain->policy, chain->dense);
    f->buffer->len = f->bytes;
    r->stats.decode_s += pici_coll_now() - chain->begin;
    trace(r, "recv", chain, f->peer, f->bytes, NULL);
}

/* The message that a flight of the next ones brought, if it is there. */
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

/* Take in what arrived, and be done with the next message in the order, if it was taken in. */
static enum pici_status try_receive(struct pici_request *r, int *moved)
{
    const struct coll_call *c = &r->call;
    struct coll_place at = r->next_fold;
    for (uint64_t i = r->folded; i < r->posted; i++, next_place(r, &at)) {
        struct coll_flight *f = &r->recvs[i % (uint64_t)c->window];
        enum pici_status s = arrived(r, f);
        if (s)
            return s;
        if (f->done && r->chains[at.chain].step == at.step && r->chains[at.chain].slice == slice_at(r, &at))
            take_message(r, &r->chains[at.chain], f, moved);
        if (!r->engine->ready)
            break; /* one at a time */
    }
    struct coll_chain *chain = &r->chains[r->next_fold.chain];
    if (r->folded == r->posted || chain->stage != STAGE_TAKEN)
        return PICI_OK;
    struct coll_flight *f = &r->recvs[r->folded % (uint64_t)c->window];
    next_place(r, &r->next_fold);
    chain->sent = 0;
    chain->stage = STAGE_REST;
    chain->step++;
    if (chain->step == c->steps[PLAN_REDUCE_SCATTER])
        pici_policy_begin(&chain->policy);
    if (chain->step > c->steps[PLAN_REDUCE_SCATTER] && chain->step < steps_of(c) && !r->status)
        hold(chain, f->buffer);
    drop(r, f->buffer);
    if (chain->step == steps_of(c)) { /* the next slice */
        let_go(r, chain);
        memset(chain->has, 0, (size_t)r->comm->ranks);
        pici_policy_begin(&chain->policy);
        chain->step = 0;
        chain->slice += (uint64_t)c->window;
    }
    r->folded++;
    *moved = 1;
    return PICI_OK;
}

enum pici_status pici_coll_data(struct pici_request *r, int *moved, int *done)
{
    enum pici_status s;
    if (!r->call.slices) {
        *done = 1;
        s = r->call.lanes ? r->engine->ready(r->chains[0].lane, done) : PICI_OK;
        if (s)
            pici_coll_note(r->comm, "rank %d: %s", r->comm->rank, words(r, s));
        return s;
    }
    if ((s = post(r, moved)) || (s = try_send(r, moved)) || (s = try_receive(r, moved)) || (s = reap(r, moved)))
        return s;
    *done = past_end(r, &r->next_fold) && r->sending == 0;
    return PICI_OK;
}
