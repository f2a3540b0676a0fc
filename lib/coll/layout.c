/* SPDX-License-Identifier: BSD-3-Clause */
#include "coll/layout.h"

#include <string.h>

#include "coll/message.h"
#include "coll/rules.h"
#include "format.h"
#include "schedule/registry.h"

enum { PART = 64 /* elements of which parts of a segment are multiples, where it is cut into equal ones */ };

const char *pici_coll_name(unsigned kind)
{
    static const char *const names[] = {[PICI_ALL_GATHER] = "all-gather", [PICI_REDUCE_SCATTER] = "reduce-scatter",
                                        [PICI_ALL_REDUCE] = "all-reduce", [SAID_NEIGHBOR] = "neighbor all-gather",
                                        [PICI_BROADCAST] = "broadcast",   [PICI_ALL_GATHERV] = "all-gatherv"};
    const char *name = kind < sizeof names / sizeof *names ? names[kind] : NULL;
    return name ? name : "?";
}

/* Whether each rank's buffer holds all of the data. */
static int is_whole(const struct coll_call *c)
{
    return c->args.kind == PICI_ALL_REDUCE || c->args.kind == PICI_BROADCAST;
}

/* ---- who owns what */

const char *pici_coll_null(const struct coll_call *c)
{
    if (!c->args.send && c->args.count)
        return "the send buffer is null";
    return !c->args.recv && c->resolved.total ? "the receive buffer is null" : NULL;
}

int pici_coll_in_place(const struct coll_call *c, const struct pici_comm *comm)
{
    const struct call_args *a = &c->args;
    const uint64_t share = (uint64_t)comm->rank * a->count * c->resolved.width;
    return a->kind == PICI_ALL_GATHER       ? a->send == a->recv + share
           : a->kind == PICI_REDUCE_SCATTER ? a->recv == a->send + share
                                            : a->send == a->recv;
}

struct coll_span pici_layout_segment(const struct coll_layout *l, const struct pici_comm *comm,
                                     const struct coll_call *c, int segment)
{
    const struct values *v = &c->opts.values;
    const int rank = comm->order[segment];
    const uint64_t total = c->resolved.total, whole = c->args.kind == PICI_ALL_REDUCE && v->nx ? v->codec->unit(v) : 1,
                   units = total / whole + (total % whole != 0);
    struct coll_span s = {(uint64_t)rank * c->args.count, c->args.count};
    if (l->schedule->undivided)
        return (struct coll_span){0, total};
    if (c->args.kind == PICI_ALL_REDUCE && l->schedule->by_node)
        pici_schedule_segment_by_node(units, &comm->on_nodes, segment, &s.first, &s.n);
    else if (is_whole(c))
        pici_schedule_segment(units, comm->ranks, rank, &s.first, &s.n);
    if (whole > 1) {
        s.first = s.first * whole < total ? s.first * whole : total;
        s.n = s.n * whole < total - s.first ? s.n * whole : total - s.first;
    }
    return s;
}

struct coll_span pici_coll_segment(const struct pici_comm *comm, const struct coll_call *c, int segment)
{
    return c->args.rules->segment(&c->resolved.at, comm, c, segment);
}

struct coll_span pici_coll_slice(const struct pici_comm *comm, const struct coll_call *c, int segment, uint64_t slice)
{
    const struct coll_layout *l = &c->resolved.at;
    const struct coll_span all = pici_coll_segment(comm, c, segment);
    uint64_t each = l->slice;
    if (l->unit) { /* not more than a slice */
        each = (all.n + l->slices - 1) / l->slices;
        each = (each + l->unit - 1) / l->unit * l->unit;
    }
    const uint64_t at = slice * each < all.n ? slice * each : all.n, left = all.n - at;
    return (struct coll_span){all.first + at, left < each ? left : each};
}

/* ---- the layout */

int pici_layout_window(const struct coll_call *c, uint64_t slices)
{
    return (uint64_t)c->opts.window <= slices ? c->opts.window : slices ? (int)slices : 1;
}

/* Elements of a slice, and how many there are. */
static void cut(struct coll_layout *l, const struct pici_comm *comm, const struct coll_call *c)
{
    const uint64_t widest = l->limits.segments ? (uint64_t)l->limits.segments : 1,
                   unit = c->opts.values.codec->unit(&c->opts.values);
    uint64_t longest = 0, shortest = UINT64_MAX;
    for (int i = 0; i < l->segments; i++) {
        const uint64_t n = c->args.rules->segment(l, comm, c, i).n;
        longest = n > longest ? n : longest;
        shortest = n < shortest ? n : shortest;
    }
    const uint64_t most = c->opts.slice_bytes / c->resolved.width / widest,
                   least = LAYOUT_SLICES_WORTH / c->resolved.width / widest;
    uint64_t fair = longest / (uint64_t)c->opts.window; /* elements for `window` slices a segment */
    fair = fair > least ? fair : least;
    l->slice = (most < fair ? most : fair) / unit * unit;
    l->slice = l->slice ? l->slice : unit;
    l->slices = !l->steps ? 0 : longest / l->slice + (longest % l->slice != 0);
    l->window = pici_layout_window(c, l->slices);
    /* On uneven nodes, or of all_gatherv. Otherwise the last slices would have only the long ones, and other links
     * would be idle. */
    l->unit = l->slices > 1 && shortest <= (l->slices - 1) * l->slice ? (c->opts.values.phases ? unit : PART) : 0;
}

/* The most bytes that a message has for n elements of a segment, exact or as the arrays of the value codec; 0: more
 * than size_t holds. */
static size_t longest_blocks(const struct coll_call *c, uint64_t n)
{
    const struct values *v = &c->opts.values;
    const size_t exact = pici_policy_longest(c->args.dtype, n);
    size_t coded = 0;
    for (int i = 0; i < v->codec->arrays && v->phases && exact; i++) {
        const size_t block = pici_policy_longest(v->codec->dtype(v, i), v->codec->most(v, i, n));
        if (!block || block > SIZE_MAX / 2 - coded)
            return 0;
        coded += block;
    }
    return coded > exact ? coded : exact;
}

/* Memory for the arrays of the value codec: those that a message of each slice in flight is made of, and those of a
 * segment that is taken in. Returns whether that is more than size_t holds. */
static int lay_out_arrays(struct coll_layout *l, const struct coll_call *c)
{
    const struct values *v = &c->opts.values;
    uint64_t arrays;
    l->temp = COLL_TEMP_BYTES;
    if (!v->phases)
        return 0;
    for (int i = 0; i < v->codec->arrays; i++) { /* fits, since a message of them does */
        l->part[i] =
            pici_layout_aligned((size_t)v->codec->most(v, i, l->slice) * pici_dtype_width(v->codec->dtype(v, i)));
        l->parts += l->part[i];
    }
    const uint64_t unit = v->codec->unit(v) * c->resolved.width; /* not more than a slice */
    l->temp = unit > COLL_TEMP_BYTES ? (size_t)unit : COLL_TEMP_BYTES;
    if (!fmt_muladd(&arrays, l->parts, ((uint64_t)l->limits.segments + 1) * (uint64_t)l->window, 0) ||
        arrays > SIZE_MAX / 4)
        return 1;
    l->arrays = l->slices ? (size_t)arrays : 0;
    return 0;
}

struct schedule_call pici_layout_shape(const struct pici_comm *comm, const struct coll_call *c)
{
    int root = 0;
    while (c->args.kind == PICI_BROADCAST && comm->order[root] != c->args.root)
        root++;
    return (struct schedule_call){.kind = c->args.kind == PICI_ALL_GATHERV ? PICI_ALL_GATHER : c->args.kind,
                                  .ranks = comm->ranks,
                                  .position = comm->position,
                                  .root = root,
                                  .bytes = c->resolved.total * c->resolved.width,
                                  .nodes = &comm->on_nodes};
}

static enum pici_status new_layout(struct coll_layout *l, const struct schedule *schedule, const struct pici_comm *comm,
                                   const struct coll_call *c)
{
    *l = (struct coll_layout){
        .schedule = schedule, .segments = schedule->undivided ? 1 : comm->ranks, .shape = pici_layout_shape(comm, c)};
    if (comm->paired_only && !pici_schedule_paired(schedule, comm->ranks))
        return PICI_E_UNSUPPORTED;
    schedule->limits(schedule, &l->shape, &l->limits);
    l->steps = schedule->steps(schedule, &l->shape);
    cut(l, comm, c);
    const struct schedule_limits *most = &l->limits;
    const size_t blocks = longest_blocks(c, l->slice); /* of a segment */
    l->buffers = l->window * (most->receives + most->sends + most->kept);
    uint64_t message, messages, sums, all;
    if (!blocks || !fmt_muladd(&message, blocks, (uint64_t)most->segments, MSG_BYTES + COLL_ALIGN - 1) ||
        !fmt_muladd(&messages, message &= ~(uint64_t)(COLL_ALIGN - 1), (uint64_t)l->buffers, 0) ||
        !fmt_muladd(&sums, l->slice * c->resolved.width, (uint64_t)most->sums * (uint64_t)l->window, 0) ||
        !fmt_muladd(&all, 1, messages, sums) || all > SIZE_MAX / 2 || lay_out_arrays(l, c))
        return PICI_E_ARG;
    l->message = (size_t)message;
    l->messages = l->slices ? (size_t)messages : 0;
    l->sums = l->slices ? (size_t)sums : 0;
    return PICI_OK;
}

/* Whether slices and arrays have the same lengths. */
static int same_values(const struct values *a, const struct values *b)
{
    return a->codec == b->codec && a->phases == b->phases && a->cast == b->cast && a->bits == b->bits &&
           a->bucket == b->bucket && a->param == b->param && a->nx == b->nx && a->ny == b->ny;
}

/* The last layout is kept: what a small call takes is mostly such work. */
static enum pici_status lay_out(struct coll_layout *l, const struct schedule *schedule, const struct pici_comm *comm,
                                const struct coll_call *c)
{
    struct coll_call *last = comm->last_laid;
    const struct call_args *a = &c->args, *b = &last->args;
    const struct call_resolved *r = &c->resolved, *q = &last->resolved;
    if (q->at.schedule == schedule && b->kind == a->kind && b->root == a->root && b->dtype == a->dtype &&
        q->total == r->total && q->longest == r->longest && q->counts_hash == r->counts_hash &&
        last->opts.window == c->opts.window && last->opts.slice_bytes == c->opts.slice_bytes &&
        same_values(&last->opts.values, &c->opts.values)) {
        *l = q->at;
        return PICI_OK;
    }
    enum pici_status s = new_layout(l, schedule, comm, c);
    if (!s) {
        *last = *c;
        last->resolved.at = *l;
    }
    return s;
}

size_t pici_layout_scratch(const struct coll_layout *l)
{
    return l->messages ? l->messages + l->sums + l->arrays + l->temp + COLL_ALIGN : 0;
}

/* AUTO without a prediction. Undivided data that may be divided are one slice, however short the caller wants slices to
 * be. */
static enum pici_status lay_out_usual(struct coll_layout *l, const struct pici_comm *comm, const struct coll_call *c)
{
    const struct schedule_call shape = pici_layout_shape(comm, c);
    if (comm->forced)
        return lay_out(l, comm->forced, comm, c);
    if (c->opts.values.phases) /* the fewest encodings, unless links are shared */
        return lay_out(l, pici_schedule(comm->nodes == comm->ranks ? PICI_ALGO_SPLIT : PICI_ALGO_RING), comm, c);
    const struct schedule *usual =
        pici_schedule_for(pici_schedule_usual(&shape, comm->paired_only, !c->resolved.basis), c->args.kind);
    if (usual->undivided) {
        if (!lay_out(l, usual, comm, c) && l->slices <= 1)
            return PICI_OK;
        usual = pici_schedule_for(pici_schedule_usual(&shape, comm->paired_only, 0), c->args.kind);
    }
    return lay_out(l, usual, comm, c);
}

/* Whether the algorithm is chosen by predicted time. */
static int is_predicted(const struct pici_comm *comm, const struct coll_call *c)
{
    return !c->opts.algorithm && !comm->forced && c->resolved.basis && c->resolved.total && comm->ranks > 1;
}

static void predict(struct choice *choice, const struct pici_comm *comm, const struct coll_call *c)
{
    struct choose_call call = {.model = pici_model_call,
                               .count = c->args.count,
                               .hint = c->opts.density,
                               .latency = c->opts.latency,
                               .bandwidth = {c->opts.bandwidth[POLICY_INTER], c->opts.bandwidth[POLICY_INTRA]},
                               .history = c->opts.history,
                               .paired_only = comm->paired_only,
                               .vendor = c->resolved.vendor};
    call.model.kind = c->args.kind;
    call.model.dtype = c->args.dtype;
    call.model.bytes = c->resolved.total * c->resolved.width;
    call.model.ranks = comm->ranks;
    call.model.nodes = &comm->on_nodes;
    call.model.window = c->opts.window;
    call.model.slice_bytes = c->opts.slice_bytes;
    call.model.late = !comm->in_order || c->resolved.vendor || comm->transport.memory == PICI_MEMORY_DEVICE;
    pici_choose(comm->chooser, &call, &comm->densities, choice);
}

enum pici_status pici_layout_choose(struct coll_layout *l, const struct pici_comm *comm, const struct coll_call *c)
{
    struct choice choice = {.candidate = {.algorithm = c->opts.algorithm}, .seconds = -1};
    if (is_predicted(comm, c))
        predict(&choice, comm, c);
    const enum pici_algorithm id = choice.candidate.algorithm;
    enum pici_status s = id ? lay_out(l, pici_schedule_for(id, c->args.kind), comm, c) : lay_out_usual(l, comm, c);
    l->choice = choice;
    l->dense = choice.candidate.dense && c->opts.format == PICI_AUTO;
    return s;
}

#define KEEP_MOST(member) most->member = most->member > l->member ? most->member : l->member

static void keep_most(struct coll_layout *most, const struct coll_layout *l)
{
    KEEP_MOST(limits.sends);
    KEEP_MOST(limits.receives);
    KEEP_MOST(limits.segments);
    KEEP_MOST(limits.sums);
    KEEP_MOST(limits.kept);
    KEEP_MOST(segments);
    KEEP_MOST(slice);
    KEEP_MOST(slices);
    KEEP_MOST(window);
    KEEP_MOST(buffers);
    KEEP_MOST(message);
    KEEP_MOST(messages);
    KEEP_MOST(sums);
    KEEP_MOST(temp);
}

enum pici_status pici_layout_most(struct coll_layout *most, const struct pici_comm *comm, const struct coll_call *c)
{
    const struct schedule *schedule;
    if (!is_predicted(comm, c))
        return pici_layout_choose(most, comm, c);
    for (int i = 0; (schedule = pici_choose_schedule(i, c->args.kind, comm->ranks, comm->nodes, comm->paired_only));
         i++) {
        struct coll_layout l;
        enum pici_status s = lay_out(&l, schedule, comm, c);
        if (s)
            return s;
        if (i)
            keep_most(most, &l);
        else
            *most = l;
    }
    return PICI_OK;
}
