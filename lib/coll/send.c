/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Making the messages that a slice sends in a step: which format, which blocks. */
#include "coll/send.h"

#include <string.h>

#include "coll/note.h"
#include "coll/rules.h"
#include "format.h"

/* Count a block that is sent, and its tiles, for the call and for its message. */
static void tally_block(struct pici_request *r, struct slice_run *run, enum pici_format format, const uint8_t *block,
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

/* Count the blocks of a segment. */
static void tally(struct pici_request *r, struct slice_run *run, const struct coll_blocks *blocks, int segment)
{
    const uint8_t *block = blocks->first;
    for (int a = 0; a < blocks->count; a++) {
        tally_block(r, run, blocks->format[a], block, blocks->len[a]);
        block += blocks->len[a];
    }
    run->dense_bytes += HDR_BYTES + pici_coll_slice(r->comm, &r->call, segment, run->slice).n * r->call.resolved.width;
}

/* segments: whose blocks follow. */
static void put_prefix(const struct pici_request *r, const struct slice_run *run, struct coll_buffer *b,
                       enum msg_kind kind, int segments)
{
    const int blocks = segments * run->arrays;
    const struct msg_prefix prefix = {.kind = kind,
                                      .dtype = (unsigned)r->call.args.dtype,
                                      .op = r->call.resolved.said.op,
                                      .algorithm = (unsigned)layout_of(r)->schedule->id,
                                      .sequence = r->sequence,
                                      .slice = pici_slice_number(r, run),
                                      .step = (uint32_t)run->step,
                                      .status = kind == MSG_POISON ? r->status : 0,
                                      .blocks = (uint32_t)blocks};
    uint8_t bytes[MSG_BYTES];
    pici_msg_put(bytes, &prefix);
    r->engine->prefix(run->lane, b->bytes, bytes, MSG_BYTES);
}

/* Begin a message: its buffer and prefix. Its blocks follow. */
static struct coll_buffer *begin_buffer(struct pici_request *r, struct slice_run *run, enum msg_kind kind, int segments)
{
    struct coll_buffer *b = run->out[run->message] =
        r->call.args.rules->take_buffer(r, (int)(run - r->runs), run->step, 0, run->message);
    put_prefix(r, run, b, kind, segments);
    b->len = MSG_BYTES;
    b->segments = segments;
    return b;
}

static enum msg_kind kind_of(const struct slice_run *run)
{
    return run->coded ? MSG_CODED : MSG_DATA;
}

/* The link to a peer. A gathered block crosses all links: then the link between nodes counts, if there is one. */
static enum policy_link link_to(const struct pici_request *r, int position, int gather)
{
    const struct pici_comm *comm = r->comm;
    const int inter = comm->node_of[comm->order[position]] != comm->node_of[comm->rank];
    return inter || (gather && comm->nodes > 1) ? POLICY_INTER : POLICY_INTRA;
}

static float threshold_of(const struct pici_request *r, const struct schedule_message *m, int gather)
{
    return pici_policy_threshold(&r->call.opts.threshold, r->call.opts.format, link_to(r, m->peer, 0), gather);
}

/* Whether nonzeros are counted though the message goes dense. If the call was chosen to be dense, those of the first
 * slice are, before anything was added and when all was, so that the next such call knows whether the data is still
 * dense. */
static int sampled(const struct pici_request *r, const struct slice_run *run)
{
    return layout_of(r)->dense && r->call.opts.history && run->slice == 0 &&
           (run->step == 0 || run->now.phase == PHASE_GATHER);
}

/* Choose the format of a message without counting. 0: its nonzeros must be counted first. How dense the arrays of a
 * value codec will be does not follow from those before. */
static int choose_uncounted(const struct pici_request *r, struct slice_run *run, const struct schedule_message *m)
{
    const struct coll_call *c = &r->call;
    const float threshold = threshold_of(r, m, run->now.phase == PHASE_GATHER);
    run->density = POLICY_UNKNOWN;
    run->extrapolated = 0;
    run->format = layout_of(r)->dense ? PICI_DENSE : c->opts.format;
    if (run->coded && threshold < 1)
        return run->format == PICI_DENSE;
    if (run->coded)
        run->format = PICI_DENSE;
    if (sampled(r, run))
        return 0;
    if (run->format == PICI_DENSE || (threshold <= 0 && c->opts.format != PICI_AUTO))
        return 1; /* whatever the density */
    if (pici_policy_count(&run->history, threshold, m->contributions, &run->density))
        return 0;
    run->extrapolated = run->density >= 0;
    pici_policy_sent(&run->history, run->density, m->contributions, 1);
    run->format = PICI_DENSE;
    return 1;
}

/* Add to what the call has counted, if the elements are this rank's own or results. */
static void tally_density(struct pici_request *r, const struct slice_run *run, const struct schedule_message *m,
                          uint64_t n, uint64_t nnz)
{
    const int gather = run->now.phase == PHASE_GATHER;
    const int own = gather ? coll_gathers(r->call.args.kind) : m->contributions == 1;
    if (!own && !gather)
        return;
    struct density_count *c = &r->counted[own ? DENSITY_ONE : DENSITY_SUM];
    c->n += n;
    c->nnz += nnz;
}

/* All blocks of the message have the format that was chosen. */
static void one_format(struct slice_run *run)
{
    for (int a = 0; a < run->arrays; a++)
        run->formats[a] = run->format;
}

/* Whether -0.0 counts for nothing in an array of a value codec, because widening clears its sign. */
static int by_value(const struct pici_request *r, enum pici_dtype dtype)
{
    return r->call.resolved.by_value && fmt_is_float((unsigned)dtype);
}

static enum pici_dtype dtype_of(const struct pici_request *r, const struct slice_run *run, int array)
{
    const struct values *v = &r->call.opts.values;
    return run->coded ? v->codec->dtype(v, array) : r->call.args.dtype;
}

/* Of an array of a value codec, whose elements are not the call's. coo is not for bytes: positions are longer. */
static enum pici_format choose_array(const struct pici_request *r, struct slice_run *run, struct policy_auto by,
                                     const uint64_t *n, const uint64_t *nnz, int segments, enum pici_dtype dtype,
                                     float threshold)
{
    enum pici_format format = r->call.opts.format;
    uint64_t all = 0, nonzeros = 0;
    for (int i = 0; i < segments; i++) {
        all += n[i];
        nonzeros += nnz[i];
    }
    const double sparsity = pici_policy_sparsity(nonzeros, all);
    run->density = 1 - sparsity;
    if (pici_dtype_width(dtype) == 1) {
        by.formats &= ~(1u << PICI_COO);
        format = format == PICI_COO ? PICI_AUTO : format;
    }
    if (pici_policy_dense(sparsity, threshold) || (format == PICI_AUTO && pici_policy_tiny(dtype, n, segments, &by)))
        return PICI_DENSE;
    return pici_policy_format(format, dtype, n, nnz, segments, &by);
}

/* Choose the format, or that of each array, by the nonzeros counted. */
static void choose_counted(struct pici_request *r, struct slice_run *run, const struct schedule_message *m)
{
    const struct coll_call *c = &r->call;
    const int gather = run->now.phase == PHASE_GATHER;
    const struct policy_auto by = {.formats = c->opts.formats,
                                   .bandwidth = c->opts.bandwidth[link_to(r, m->peer, gather)],
                                   .gather = gather,
                                   .cost_scale = r->engine->cost_scale};
    uint64_t n = 0, nnz = 0;
    for (int a = 0; a < run->arrays && run->coded; a++) {
        const int at = a * m->count;
        run->format = run->formats[a] = choose_array(r, run, by, run->n + at, run->nnz + at, m->count,
                                                     dtype_of(r, run, a), threshold_of(r, m, gather));
    }
    if (run->coded)
        return;
    for (int i = 0; i < m->count; i++) {
        n += run->n[i];
        nnz += run->nnz[i];
    }
    tally_density(r, run, m, n, nnz);
    const double sparsity = pici_policy_sparsity(nnz, n);
    const int dense = layout_of(r)->dense || pici_policy_dense(sparsity, threshold_of(r, m, gather));
    run->density = 1 - sparsity;
    pici_policy_sent(&run->history, run->density, m->contributions, dense);
    const int tiny = c->opts.format == PICI_AUTO && pici_policy_tiny(c->args.dtype, run->n, m->count, &by);
    run->format =
        dense || tiny ? PICI_DENSE : pici_policy_format(c->opts.format, c->args.dtype, run->n, run->nnz, m->count, &by);
    one_format(run);
}

/* Make poison instead of the message. */
static void begin_poison(struct pici_request *r, struct slice_run *run)
{
    run->making = MAKE_POISON;
    run->arrays = 1;
    (void)begin_buffer(r, run, MSG_POISON, 0);
    run->stage = STAGE_MAKING;
}

static void fail_encode(struct pici_request *r, struct slice_run *run, enum pici_status s)
{
    pici_coll_note(r->comm, "rank %d: cannot encode: %s", r->comm->rank, pici_request_words(r, s));
    pici_coll_fail(r, s, r->comm->rank);
    if (run->out[run->message])
        pici_slice_drop(r, run->out[run->message]);
    begin_poison(r, run);
}

/* What the message is made of: the elements of its segments, or the arrays of the value codec. */
static void describe(const struct pici_request *r, const struct slice_run *run,
                     struct engine_array arrays[VALUES_ARRAYS])
{
    for (int a = 0; a < run->arrays; a++) {
        const enum pici_dtype dtype = dtype_of(r, run, a);
        arrays[a] = (struct engine_array){
            .dtype = dtype, .format = run->formats[a], .by_value = run->coded ? by_value(r, dtype) : run->by_value};
    }
}

/* Begin to encode a message, whose format is chosen. */
static void begin_encode(struct pici_request *r, struct slice_run *run, const struct schedule_message *m)
{
    struct engine_array arrays[VALUES_ARRAYS];
    struct coll_buffer *b = begin_buffer(r, run, kind_of(run), m->count);
    run->making = MAKE_BLOCKS;
    run->stage = STAGE_MAKING;
    describe(r, run, arrays);
    const enum pici_status s = r->engine->encode(run->lane, b->bytes, MSG_BYTES, b->room, run->len, run->src, run->n,
                                                 m->count, arrays, run->arrays, r->call.opts.checksum);
    if (s)
        fail_encode(r, run, s);
}

/* The blocks are encoded. */
static void end_encode(struct pici_request *r, struct slice_run *run, const struct schedule_message *m)
{
    struct coll_buffer *b = run->out[run->message];
    for (int i = 0; i < m->count; i++) {
        struct coll_blocks blocks = {.first = b->bytes + b->len, .count = run->arrays};
        for (int a = 0; a < run->arrays; a++) {
            blocks.len[a] = run->len[a * m->count + i];
            blocks.format[a] = run->formats[a];
        }
        if (m->keep)
            pici_slice_keep(r, run, m->segments[i], b, &blocks);
        else if (run->now.phase == PHASE_REDUCE)
            pici_slice_pass_on(run, m->segments[i]);
        tally(r, run, &blocks, m->segments[i]);
        b->len += pici_slice_bytes(&blocks);
    }
}

/* The buffer that holds exactly the blocks of a message, in its order, is not in flight, and takes no more blocks; or
 * NULL. */
static struct coll_buffer *whole_message(const struct slice_run *run, const struct schedule_message *m)
{
    struct coll_buffer *b = run->encoded[m->segments[0]].message;
    const uint8_t *at = b ? b->bytes + MSG_BYTES : NULL;
    if (!b || b->segments != m->count || b->flights || b == run->apart)
        return NULL;
    for (int i = 0; i < m->count; i++) {
        const struct coll_encoded *e = &run->encoded[m->segments[i]];
        if (e->message != b || e->blocks.first != at)
            return NULL;
        at += pici_slice_bytes(&e->blocks);
    }
    return b;
}

/* Begin to make a message of kept blocks: reuse the buffer that they are in if only the prefix differs, else copy
 * them. */
static void begin_forward(struct pici_request *r, struct slice_run *run, const struct schedule_message *m)
{
    struct coll_buffer *b = m->again ? run->out[m->again - 1] : whole_message(run, m), *copy = NULL;
    run->making = MAKE_FORWARD;
    run->stage = STAGE_MAKING;
    run->format = run->encoded[m->segments[0]].blocks.format[run->arrays - 1];
    run->density = POLICY_UNKNOWN;
    run->extrapolated = 0;
    if (b) {
        b->users++;
        run->out[run->message] = b;
        if (!m->again)
            put_prefix(r, run, b, kind_of(run), m->count);
    } else {
        copy = begin_buffer(r, run, kind_of(run), m->count);
    }
    for (int i = 0; i < m->count; i++) {
        const struct coll_blocks *blocks = &run->encoded[m->segments[i]].blocks;
        const size_t len = pici_slice_bytes(blocks);
        if (copy) {
            r->engine->put(run->lane, copy->bytes + copy->len, blocks->first, len);
            copy->len += len;
        }
        tally(r, run, blocks, m->segments[i]);
    }
}

/* The elements or arrays of a message are there: choose its format, which may take counting first. */
static void begin_choosing(struct pici_request *r, struct slice_run *run, const struct schedule_message *m)
{
    struct engine_array arrays[VALUES_ARRAYS];
    if (choose_uncounted(r, run, m)) {
        one_format(run);
        begin_encode(r, run, m);
        return;
    }
    describe(r, run, arrays);
    r->engine->count(run->lane, run->src, run->n, m->count, arrays, run->arrays, run->nnz);
    run->stage = STAGE_COUNTING;
}

/* The value codec has made its arrays. */
static void end_narrow(struct pici_request *r, struct slice_run *run, const struct schedule_message *m)
{
    enum pici_status s = pici_slice_narrowed(r, run, m);
    if (s)
        fail_encode(r, run, s);
    else
        begin_choosing(r, run, m);
}

/* Begin to make the next message of the step. */
static void begin_message(struct pici_request *r, struct slice_run *run, const struct schedule_message *m)
{
    const struct coll_call *c = &r->call;
    run->begin = pici_slice_now(r);
    run->dense_bytes = MSG_BYTES;
    memset(run->tiles, 0, sizeof run->tiles);
    run->out[run->message] = NULL;
    run->coded = pici_slice_coded(r, run);
    run->arrays = run->coded ? c->opts.values.codec->arrays : 1;
    if (r->status) {
        begin_poison(r, run);
        return;
    }
    if (m->action == SEND_FORWARD) {
        begin_forward(r, run, m);
        return;
    }
    if (run->coded) {
        run->stage = STAGE_NARROWING;
        enum pici_status s = pici_slice_narrow(r, run, m);
        if (s)
            fail_encode(r, run, s);
        return;
    }
    run->by_value = 0;
    for (int i = 0; i < m->count; i++) {
        run->src[i] = pici_slice_source(r, run, m->segments[i], &run->n[i]);
        run->by_value |= c->resolved.by_value && !coll_gathers(c->args.kind) && run->sum[m->segments[i]] == SUM_NONE;
    }
    begin_choosing(r, run, m);
}

/* A data message is made. */
static void end_message(struct pici_request *r, struct slice_run *run, const struct schedule_message *m)
{
    struct coll_buffer *b = run->out[run->message];
    if (run->making == MAKE_BLOCKS)
        end_encode(r, run, m);
    for (int i = 0; i < m->count && run->making == MAKE_FORWARD && !m->keep; i++)
        pici_slice_let_go(r, run, m->segments[i]);
    r->stats.encode_s += pici_slice_now(r) - run->begin;
    r->stats.dense_bytes += run->dense_bytes;
    pici_slice_trace(r, "send", run, m, b->len, run->tiles);
}

/* Begin a step. 0: there are not enough free buffers for its messages yet. */
static int begin_step(struct pici_request *r, struct slice_run *run)
{
    const struct coll_layout *l = layout_of(r);
    const struct schedule_step *step = pici_slice_step(r, run);
    if (r->sending + r->making + step->sends > l->window * l->limits.sends ||
        !r->call.args.rules->has_buffers(r, (int)(run - r->runs), run->step, 0))
        return 0;
    r->making += step->sends;
    run->message = 0;
    if (run->step == 0 && !r->status)
        r->call.args.rules->place_own(r, run);
    return 1;
}

void pici_make_messages(struct pici_request *r, struct slice_run *run, int *moved)
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
        if (!pici_slice_ready(r, run, &s))
            return;
        *moved = 1;
        if (run->stage == STAGE_NARROWING && !s) {
            end_narrow(r, run, m);
            continue;
        }
        if (run->stage == STAGE_COUNTING || run->stage == STAGE_NARROWING) {
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
