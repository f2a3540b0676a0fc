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
 * Where all ranks wait, take the one that is furthest behind in the order: all that it waits for was sent. */
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

void pici_coll_data_begin(struct pici_request *r)
{
    struct coll_call *c = &r->call;
    struct pici_comm *comm = r->comm;
    if (comm->ranks == 1 && c->send != c->recv)
        comm->engine->copy(c->recv, c->send, c->count, c->dtype);
    if (!c->slices)
        return;
    uint8_t *at = r->own_scratch;
    at += -(uintptr_t)at % COLL_ALIGN;
    for (int i = 0; i < c->buffers; i++, at += c->message) {
        r->buffers[i] = (struct coll_buffer){.bytes = at};
        r->free[r->frees++] = &r->buffers[i];
    }
    for (int i = 0; i < c->window; i++, at += (size_t)c->accumulators * c->slice * c->width) {
        r->chains[i].slice = (uint64_t)i;
        r->chains[i].acc = at;
        pici_policy_begin(&r->chains[i].policy);
    }
    r->temp = at;
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

/* tiles: NULL, or of each kind how many it sent. */
static void trace(struct pici_request *r, const char *name, const struct coll_chain *chain, int peer, double begin,
                  int format, double density, int extrapolated, uint64_t dense, uint64_t wire, const uint64_t *tiles)
{
    struct pici_comm *comm = r->comm;
    if (!comm->trace)
        return;
    struct trace_event e = {.name = name,
                            .begin = begin,
                            .end = pici_coll_now(),
                            .sequence = r->sequence,
                            .phase = phase_of(&r->call, chain->step),
                            .step = chain->step,
                            .slice = (int)chain->slice,
                            .peer = peer,
                            .inter = comm->node_of[peer] != comm->node_of[comm->rank],
                            .format = format,
                            .density = density,
                            .extrapolated = extrapolated,
                            .dense_bytes = dense,
                            .wire_bytes = wire};
    if (tiles)
        memcpy(e.tiles, tiles, sizeof e.tiles);
    pici_trace_add(comm->trace, &e);
}

/* ---- sending */

/* A block is sent: count it, and its tiles, which are also added to those of its message. */
static void tally(struct pici_request *r, enum pici_format format, const uint8_t *block, size_t len,
                  uint64_t tiles[PICI_CONTAINERS])
{
    uint64_t own[PICI_CONTAINERS] = {0};
    r->stats.sends[format]++;
    if (format != PICI_HYBRID)
        return;
    r->comm->engine->mix(own, block, len);
    for (int i = 0; i < PICI_CONTAINERS; i++) {
        tiles[i] += own[i];
        r->stats.tiles[i] += own[i];
    }
}

static void put_prefix(const struct pici_request *r, struct coll_buffer *b, enum msg_kind kind, int blocks)
{
    struct msg_prefix prefix = {.kind = kind,
                                .dtype = (unsigned)r->call.dtype,
                                .op = (unsigned)r->call.op,
                                .algorithm = (unsigned)r->call.algorithm,
                                .sequence = r->sequence,
                                .count = r->call.total,
                                .status = kind == MSG_POISON ? r->status : 0,
                                .blocks = (uint32_t)blocks};
    pici_msg_put(b->bytes, &prefix);
    b->len = MSG_BYTES;
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

/* Choose the format of a message of `blocks` segments, n and nnz of each in r. What is gathered crosses all links, so the slower
 * ones count. */
static enum pici_format choose(struct pici_request *r, struct coll_chain *chain, const struct pici_plan_step *step,
                               int gather, int inter, double *density, int *extrapolated)
{
    const struct coll_call *c = &r->call;
    const enum policy_link link = inter ? POLICY_INTER : POLICY_INTRA;
    const float threshold = c->threshold[gather ? POLICY_AG : link];
    const enum policy_link slowest = gather && r->comm->nodes > 1 ? POLICY_INTER : link;
    const struct policy_auto by = {.formats = c->formats, .bandwidth = c->bandwidth[slowest], .gather = gather};
    uint64_t n = 0, nnz = 0;
    *density = POLICY_UNKNOWN;
    *extrapolated = 0;
    if (c->format == PICI_DENSE || (threshold <= 0 && c->format != PICI_AUTO))
        return c->format; /* whatever the density */
    int dense = !pici_policy_count(&chain->policy, threshold, density);
    if (dense) {
        *extrapolated = *density >= 0;
    } else {
        for (int i = 0; i < step->send_count; i++) {
            const uint8_t *src = source(r, chain, (step->send_first + i) % r->comm->ranks, &r->n[i]);
            n += r->n[i];
            nnz += r->nnz[i] = r->comm->engine->count(src, r->n[i], c->dtype);
        }
        double sparsity = pici_policy_sparsity(nnz, n);
        *density = 1 - sparsity;
        dense = pici_policy_dense(sparsity, threshold);
    }
    pici_policy_sent(&chain->policy, *density, dense);
    return dense ? PICI_DENSE : pici_policy_format(c->format, c->dtype, r->n, r->nnz, step->send_count, &by);
}

/* The message that encodes this step's segments from memory: sums, or what this rank owns. */
static enum pici_status encode(struct pici_request *r, struct coll_chain *chain, const struct pici_plan_step *step,
                               struct coll_buffer *b, int to)
{
    const struct coll_call *c = &r->call;
    const struct pici_comm *comm = r->comm;
    const double begin = pici_coll_now();
    const int gather = phase_of(c, chain->step) == PLAN_ALL_GATHER;
    const int inter = comm->node_of[to] != comm->node_of[comm->rank];
    double density;
    int extrapolated;
    enum pici_format format = choose(r, chain, step, gather, inter, &density, &extrapolated);
    uint64_t dense_bytes = MSG_BYTES, tiles[PICI_CONTAINERS] = {0};
    put_prefix(r, b, MSG_DATA, step->send_count);
    for (int i = 0; i < step->send_count; i++) {
        int segment = (step->send_first + i) % comm->ranks;
        uint64_t n;
        size_t len;
        const uint8_t *src = source(r, chain, segment, &n);
        if (c->kind == PICI_ALL_GATHER) {
            uint8_t *place = c->recv + (size_t)comm->rank * c->count * c->width + (src - c->send);
            if (place != src)
                comm->engine->copy(place, src, n, c->dtype);
        }
        enum pici_status s =
            comm->engine->encode(b->bytes + b->len, c->message - b->len, &len, src, n, c->dtype, format, c->checksum);
        if (s)
            return s;
        if (gather)
            chain->encoded[segment] = (struct coll_encoded){
                .block = b->bytes + b->len, .len = len, .message = step->send_count == 1 ? b : NULL, .format = format};
        tally(r, format, b->bytes + b->len, len, tiles);
        b->len += len;
        dense_bytes += HDR_BYTES + n * c->width;
    }
    r->stats.encode_s += pici_coll_now() - begin;
    r->stats.dense_bytes += dense_bytes;
    trace(r, "send", chain, to, begin, format, density, extrapolated, dense_bytes, b->len, tiles);
    return PICI_OK;
}

/* The message of blocks that this rank holds encoded: that which they came in, if it is the same, else copied together. Returns
 * the buffer to send, with a user more. */
static struct coll_buffer *forward(struct pici_request *r, struct coll_chain *chain, const struct pici_plan_step *step,
                                   int to)
{
    const struct coll_call *c = &r->call;
    const double begin = pici_coll_now();
    struct coll_buffer *b = step->send_count == 1 ? chain->encoded[step->send_first].message : NULL;
    uint64_t dense_bytes = MSG_BYTES, tiles[PICI_CONTAINERS] = {0};
    if (b) {
        b->users++;
    } else {
        b = take(r);
        put_prefix(r, b, MSG_DATA, step->send_count);
    }
    for (int i = 0; i < step->send_count; i++) {
        int segment = (step->send_first + i) % r->comm->ranks;
        const struct coll_encoded *e = &chain->encoded[segment];
        uint64_t first, n;
        pici_coll_slice(r->comm, c, segment, chain->slice, &first, &n);
        if (e->message != b) {
            memcpy(b->bytes + b->len, e->block, e->len);
            b->len += e->len;
        }
        tally(r, e->format, e->block, e->len, tiles);
        dense_bytes += HDR_BYTES + n * c->width;
    }
    r->stats.encode_s += pici_coll_now() - begin;
    r->stats.dense_bytes += dense_bytes;
    trace(r, "send", chain, to, begin, chain->encoded[step->send_first].format, POLICY_UNKNOWN, 0, dense_bytes, b->len,
          tiles);
    return b;
}

/* Send the next message in the order, if its chain has come that far. */
static enum pici_status try_send(struct pici_request *r, int *moved)
{
    const struct coll_call *c = &r->call;
    struct pici_comm *comm = r->comm;
    struct coll_chain *chain = &r->chains[r->next_send.chain];
    if (past_end(r, &r->next_send) || r->sending == c->window || chain->sent || chain->step != r->next_send.step ||
        chain->slice != slice_at(r, &r->next_send))
        return PICI_OK;
    struct pici_plan_step step;
    step_at(r, chain->step, &step);
    const int to = comm->order[step.to];
    const int gathered = chain->step - c->steps[PLAN_REDUCE_SCATTER];
    struct coll_buffer *b;
    if (r->status || gathered <= 0) {
        b = take(r);
        enum pici_status s = r->status ? PICI_OK : encode(r, chain, &step, b, to);
        if (s) {
            pici_coll_note(comm, "rank %d: cannot encode: %s", comm->rank, pici_strerror(s));
            pici_coll_fail(r, s, comm->rank);
        }
        if (r->status)
            put_prefix(r, b, MSG_POISON, 0);
        else if (gathered == 0 && gathered + 1 < c->steps[PLAN_ALL_GATHER] && c->held > 1)
            hold(chain, b);
    } else {
        b = forward(r, chain, &step, to);
        if (c->held == 1)
            let_go(r, chain);
    }
    struct coll_flight *f = &r->sends[r->sending];
    *f = (struct coll_flight){.buffer = b, .peer = to};
    enum pici_status s = comm->transport.send(comm->transport.context, to, b->bytes, b->len, &f->request);
    if (s)
        return pici_coll_lost(comm, to, s);
    r->sending++;
    r->stats.wire_bytes += b->len;
    chain->sent = 1;
    next_place(r, &r->next_send);
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
    const struct pici_engine *e = r->comm->engine;
    if (phase_of(c, chain->step) == PLAN_ALL_GATHER)
        return e->decode(c->recv + first * c->width, n, block, len, c->dtype, c->total);
    uint8_t *sum = sum_at(r, chain, segment, first);
    const uint8_t *own = c->send + first * c->width;
    if (!chain->has[segment] && sum != own)
        e->copy(sum, own, n, c->dtype);
    chain->has[segment] = 1;
    return e->fold(sum, n, block, len, c->dtype, c->op, r->temp, COLL_TEMP_BYTES / c->width);
}

/* Take in the message of a step. What is wrong with it is noted. */
static void take_in(struct pici_request *r, struct coll_chain *chain, const struct pici_plan_step *step,
                    const struct coll_flight *f)
{
    const struct coll_call *c = &r->call;
    struct pici_comm *comm = r->comm;
    const double begin = pici_coll_now();
    const int gather = phase_of(c, chain->step) == PLAN_ALL_GATHER;
    struct msg_prefix prefix;
    struct pici_info info = PICI_INFO_INIT;
    uint64_t dense_bytes = MSG_BYTES, elements = 0, nnz = 0;
    int dense = 1;
    enum pici_status s = f->status ? f->status : pici_msg_get(&prefix, f->buffer->bytes, f->bytes);
    if (!s)
        s = check_prefix(r, &prefix, step->recv_count, f->peer);
    struct msg_cursor cursor = {f->buffer->bytes + MSG_BYTES, f->buffer->bytes + f->bytes};
    for (int i = 0; i < step->recv_count && !s && !r->status; i++) {
        int segment = (step->recv_first + i) % comm->ranks;
        uint64_t first, n;
        const uint8_t *block;
        size_t len;
        pici_coll_slice(comm, c, segment, chain->slice, &first, &n);
        s = pici_msg_block(&cursor, c->dtype, n, &block, &len, &info);
        if (!s)
            s = take_block(r, chain, segment, first, n, block, len);
        if (gather)
            chain->encoded[segment] = (struct coll_encoded){
                .block = block, .len = len, .message = step->recv_count == 1 ? f->buffer : NULL, .format = info.format};
        dense &= info.format == PICI_DENSE;
        dense_bytes += HDR_BYTES + n * c->width;
        elements += n;
        nnz += info.nnz;
    }
    if (!s && !r->status && cursor.at != cursor.end)
        s = PICI_E_CORRUPT;
    if (s) {
        pici_coll_note(comm, "from rank %d: %s", f->peer, pici_strerror(s));
        pici_coll_fail(r, s, comm->rank);
    }
    if (r->status)
        return;
    if (!gather)
        pici_policy_received(&chain->policy, dense);
    f->buffer->len = f->bytes;
    r->stats.decode_s += pici_coll_now() - begin;
    trace(r, "recv", chain, f->peer, begin, info.format,
          dense || !elements ? POLICY_UNKNOWN : (double)nnz / (double)elements, 0, dense_bytes, f->bytes, NULL);
}

/* Take in the next message in the order, if it is there and its turn has come. */
static enum pici_status try_receive(struct pici_request *r, int *moved)
{
    const struct coll_call *c = &r->call;
    const struct pici_transport *t = &r->comm->transport;
    if (r->folded == r->posted)
        return PICI_OK;
    struct coll_flight *f = &r->recvs[r->folded % (uint64_t)c->window];
    if (!f->done) {
        enum pici_status s = t->test(t->context, f->request, &f->done, &f->bytes);
        if (s && s != PICI_E_CORRUPT)
            return pici_coll_lost(r->comm, f->peer, s);
        f->status = s; /* longer than any message can be */
    }
    struct coll_chain *chain = &r->chains[r->next_fold.chain];
    if (!f->done || !chain->sent)
        return PICI_OK;
    struct pici_plan_step step;
    step_at(r, chain->step, &step);
    if (!r->status)
        take_in(r, chain, &step, f);
    next_place(r, &r->next_fold);
    chain->sent = 0;
    chain->step++;
    if (chain->step == c->steps[PLAN_REDUCE_SCATTER]) {
        pici_policy_begin(&chain->policy);
        if (c->op == PICI_AVG && !r->status) {
            uint64_t first, n;
            pici_coll_slice(r->comm, c, r->comm->position, chain->slice, &first, &n);
            r->comm->engine->divide(sum_at(r, chain, r->comm->position, first), n, c->dtype, r->comm->ranks);
        }
    }
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
        return PICI_OK;
    }
    if ((s = post(r, moved)) || (s = try_send(r, moved)) || (s = try_receive(r, moved)) || (s = reap(r, moved)))
        return s;
    *done = past_end(r, &r->next_fold) && r->sending == 0;
    return PICI_OK;
}
