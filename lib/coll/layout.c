/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "coll/layout.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "bytes.h"
#include "codec/codec.h"
#include "coll/message.h"
#include "coll/note.h"
#include "sized.h"
#include "xxh64.h"

enum {
    PART = 64,               /* elements of which parts of a segment are multiples, where it is cut into equal ones */
    SLICES_WORTH = 64 << 10, /* dense bytes of a message: smaller slices cost more than they overlap */
    SLICE = 1 << 20,         /* by default */
    SLICE_ON_GPU = 8 << 20   /* by default where messages are on GPUs: a message takes the host longer to begin, and a
                              * window of them is to fill a GPU */
};

/* ---- arguments */

static const double LATENCY = 50e-6; /* seconds of a message, if the caller does not say */

enum {
    OPTS_FIRST = offsetof(struct pici_coll_opts, inter_bandwidth),
    STATS_FIRST = offsetof(struct pici_coll_stats, tiles)
};

const char *pici_coll_name(enum pici_collective kind)
{
    static const char *const names[] = {[PICI_ALL_GATHER] = "all-gather",
                                        [PICI_REDUCE_SCATTER] = "reduce-scatter",
                                        [PICI_ALL_REDUCE] = "all-reduce",
                                        [PICI_BROADCAST] = "broadcast",
                                        [PICI_ALL_GATHERV] = "all-gatherv"};
    const char *name = (unsigned)kind < sizeof names / sizeof *names ? names[kind] : NULL;
    return name ? name : "?";
}

enum pici_status pici_coll_check(struct pici_coll_opts *o, const struct pici_comm *comm, const struct call_args *a,
                                 const struct pici_coll_opts *opts)
{
    static const struct pici_coll_opts defaults = PICI_COLL_OPTS_INIT;
    if (!comm)
        return PICI_E_ARG;
    *o = defaults;
    enum pici_status s = opts ? sized_read(o, sizeof *o, OPTS_FIRST, opts) : PICI_OK;
    if (s)
        return s;
    if (o->stats && o->stats->size < STATS_FIRST)
        return PICI_E_ARG;
    if (a->plan && (o->algorithm || o->zeros))
        return PICI_E_UNSUPPORTED;
    if (!pici_dtype_width(a->dtype) || (unsigned)a->op > PICI_MAX ||
        (o->algorithm && !pici_schedule_for(o->algorithm, a->kind)) ||
        ((unsigned)o->format > PICI_HYBRID && o->format != PICI_AUTO) || o->formats >> (PICI_HYBRID + 1) ||
        (unsigned)o->zeros > PICI_ZEROS_BY_VALUE ||
        (o->zeros && !coll_gathers(a->kind) && (a->op == PICI_MIN || a->op == PICI_MAX)))
        return PICI_E_UNSUPPORTED;
    struct values values;
    s = pici_values_settle(&values, o->values, a->dtype, a->op);
    if (!s && values.phases && (a->plan || a->kind == PICI_BROADCAST || a->kind == PICI_ALL_GATHERV))
        return PICI_E_UNSUPPORTED;
    s = s ? s : pici_values_count(&values, a->count);
    return s ? s : comm->broken || comm->generation != pici_coll_generation() ? PICI_E_BROKEN : PICI_OK;
}

/* A number for what the choice of an algorithm is made from, besides the call itself; 0: nothing. */
static uint64_t basis_of(const struct coll_call *c, const struct pici_comm *comm, const struct pici_coll_opts *o)
{
    uint64_t hash = comm->chooser->tune.hash;
    if (c->opts.values.phases || c->args.plan || c->args.kind == PICI_BROADCAST || c->args.kind == PICI_ALL_GATHERV)
        return 0; /* times of such calls are not predicted */
    if (!comm->chooser->tuned) {
        uint8_t bandwidth[POLICY_LINKS * 8];
        if (c->opts.algorithm || !(o->density > 0 || o->latency > 0))
            return 0;
        for (int i = 0; i < POLICY_LINKS; i++) {
            uint64_t bits;
            memcpy(&bits, &c->opts.bandwidth[i], sizeof bits);
            store_le64(bandwidth + 8 * i, bits);
        }
        hash = pici_xxh64(bandwidth, sizeof bandwidth, 0);
    }
    return hash ? hash : 1;
}

/* The elements of the receive buffer of a neighbourhood call, and the longest contribution, as far as it is known. 0:
 * they are beyond memory, or longer than the plan allows. */
static int count_slots(struct coll_call *c)
{
    const struct pici_neighbor_plan *plan = c->args.plan;
    const uint64_t most = SIZE_MAX / 2 / c->resolved.width;
    c->resolved.total = 0;
    c->resolved.longest = c->args.varied ? plan->most_bytes / c->resolved.width : c->args.count;
    if (c->args.count > most || c->args.count > UINT64_C(1) << 52 || c->resolved.longest > most ||
        (c->args.varied && plan->most_bytes && c->args.count > c->resolved.longest))
        return 0;
    for (int i = 0; i < plan->sources; i++) {
        uint64_t first, n, end;
        if (c->args.varied && (!c->args.recvcounts || !c->args.displs))
            return 0;
        n = pici_layout_slot(c, i, &first);
        if (!fmt_muladd(&end, 1, first, n) || end > most)
            return 0;
        c->resolved.total = end > c->resolved.total ? end : c->resolved.total;
    }
    return 1;
}

/* Whether each rank's buffer holds all of the data. */
static int is_whole(const struct coll_call *c)
{
    return c->args.kind == PICI_ALL_REDUCE || c->args.kind == PICI_BROADCAST;
}

enum pici_status pici_coll_resolve(struct coll_call *c, const struct pici_comm *comm, const struct pici_coll_opts *o)
{
    const struct coll_settings *d = &comm->settings;
    const int p = comm->ranks;
    c->resolved.width = pici_dtype_width(c->args.dtype);
    int wrong = pici_values_settle(&c->opts.values, o->values, c->args.dtype, c->args.op) !=
                PICI_OK; /* never: it was checked */
    c->opts.residual = c->opts.values.phases ? o->values->residual : NULL;
    c->resolved.by_value = fmt_is_float((unsigned)c->args.dtype) &&
                           (coll_gathers(c->args.kind) ? o->zeros == PICI_ZEROS_BY_VALUE
                                                       : c->args.op == PICI_SUM || c->args.op == PICI_AVG);
    c->opts.values.positive = c->resolved.by_value && c->opts.values.codec == &pici_codec_cast;
    c->opts.algorithm = o->algorithm                                    ? o->algorithm
                        : pici_schedule_for(d->algorithm, c->args.kind) ? d->algorithm
                                                                        : PICI_ALGO_AUTO;
    c->opts.format = o->format != PICI_AUTO ? o->format : d->format;
    c->opts.timeout_ms = o->timeout_ms ? o->timeout_ms : d->timeout_ms;
    c->opts.checksum = o->checksum ? o->checksum > 0 : d->checksum;
    c->opts.vendor = !c->opts.values.phases && (o->vendor ? o->vendor > 0 : d->vendor);
    c->opts.window = o->window ? o->window : d->window;
    const uint64_t usual_slice = comm->transport.memory == PICI_MEMORY_DEVICE ? SLICE_ON_GPU : SLICE;
    c->opts.slice_bytes = o->slice_bytes ? o->slice_bytes : d->slice_bytes ? d->slice_bytes : usual_slice;
    c->opts.density = o->density > 0 ? o->density : 0; /* -0.0 is 0 on all ranks */
    c->opts.latency = o->latency > 0 ? o->latency : LATENCY;
    c->opts.history = d->history;
    c->opts.scratch = o->scratch;
    c->opts.scratch_bytes = o->scratch ? o->scratch_bytes : 0;
    c->opts.stats = o->stats;
    c->opts.formats = o->formats ? o->formats : d->formats ? d->formats : ~0u;
    const struct policy_thresholds said = {{o->inter_threshold, o->intra_threshold}, o->ag_threshold};
    const double bandwidth[] = {o->inter_bandwidth, o->intra_bandwidth};
    wrong |= isnan(said.gather) || !(o->density >= 0 && o->density <= 1) || !(o->latency >= 0 && o->latency <= 3600);
    c->opts.threshold.gather = said.gather >= 0 ? said.gather : d->threshold.gather;
    for (int i = 0; i < POLICY_LINKS; i++) {
        c->opts.threshold.reduce[i] = said.reduce[i] >= 0 ? said.reduce[i] : d->threshold.reduce[i];
        c->opts.bandwidth[i] = bandwidth[i] > 0 ? bandwidth[i] : d->bandwidth[i];
        wrong |= isnan(said.reduce[i]) || !(bandwidth[i] >= 0); /* or a NaN */
    }
    c->opts.agree = o->agree > 0;
    c->resolved.basis = basis_of(c, comm, o);
    if (c->args.kind == PICI_BROADCAST || c->args.kind == PICI_ALL_GATHERV)
        c->opts.vendor = c->opts.history = 0;
    wrong |= c->args.kind == PICI_BROADCAST && (c->args.root < 0 || c->args.root >= p);
    if (c->args.plan) {
        c->opts.vendor = c->opts.history = 0;
        c->opts.scratch = NULL;
        wrong |= !count_slots(c);
    } else if (c->args.kind == PICI_ALL_GATHERV) {
        wrong |= !pici_layout_count(c, comm);
    } else if (!fmt_muladd(&c->resolved.total, c->args.count, is_whole(c) ? 1 : (uint64_t)p, 0) ||
               c->resolved.total > SIZE_MAX / 2 / c->resolved.width) {
        c->resolved.total = 0;
        return PICI_E_ARG;
    }
    if (wrong || c->opts.window < 0 || c->opts.window > COLL_MAX_WINDOW) {
        c->opts.window = 1;
        return PICI_E_ARG;
    }
    return PICI_OK;
}

static int slots_wrong(const struct coll_call *c)
{
    if ((!c->args.send && c->args.count) || (!c->args.recv && c->resolved.total))
        return 1;
    for (int i = 0; i < c->args.plan->sources && c->args.count; i++) {
        uint64_t first, n = pici_layout_slot(c, i, &first);
        if (n && pici_overlap(c->args.send, c->args.count * c->resolved.width, c->args.recv + first * c->resolved.width,
                              n * c->resolved.width))
            return 1;
    }
    return 0;
}

int pici_coll_buffers_wrong(const struct coll_call *c, const struct pici_comm *comm)
{
    if (c->args.plan)
        return slots_wrong(c);
    if (c->args.kind == PICI_ALL_GATHERV)
        return pici_layout_slots_wrong(c, comm);
    if (!c->args.count)
        return 0;
    if (!c->args.send || !c->args.recv)
        return 1;
    const uint64_t one = c->args.count * c->resolved.width, all = c->resolved.total * c->resolved.width,
                   own = (uint64_t)comm->rank * one;
    const uint64_t sent = c->args.kind == PICI_ALL_GATHER ? one : all,
                   received = c->args.kind == PICI_REDUCE_SCATTER ? one : all;
    if (c->opts.residual && (pici_overlap(c->opts.residual, sent, c->args.send, sent) ||
                             pici_overlap(c->opts.residual, sent, c->args.recv, received)))
        return 1;
    switch (c->args.kind) {
    case PICI_ALL_GATHER:
        return c->args.send != c->args.recv + own && pici_overlap(c->args.send, one, c->args.recv, all);
    case PICI_REDUCE_SCATTER:
        return c->args.recv != c->args.send + own && pici_overlap(c->args.send, all, c->args.recv, one);
    case PICI_ALL_REDUCE: return c->args.send != c->args.recv && pici_overlap(c->args.send, all, c->args.recv, all);
    case PICI_BROADCAST: return 0; /* it has one buffer */
    case PICI_ALL_GATHERV: break;
    }
    return 1;
}

/* ---- who owns what */

static void segment_of(const struct coll_layout *l, const struct pici_comm *comm, const struct coll_call *c,
                       int segment, uint64_t *first, uint64_t *n)
{
    const int rank = comm->order[segment];
    const uint64_t whole = c->args.kind == PICI_ALL_REDUCE && c->opts.values.nx
                               ? c->opts.values.codec->unit(&c->opts.values)
                               : 1,
                   units = c->resolved.total / whole + (c->resolved.total % whole != 0);
    if (c->args.plan) {
        *first = 0;
        *n = segment == comm->position ? c->args.count : c->resolved.longest;
    } else if (l->schedule->undivided) {
        *first = 0;
        *n = c->resolved.total;
    } else if (c->args.kind == PICI_ALL_REDUCE && l->schedule->by_node) {
        pici_schedule_segment_by_node(units, &comm->on_nodes, segment, first, n);
    } else if (is_whole(c)) {
        pici_schedule_segment(units, comm->ranks, rank, first, n);
    } else if (c->args.kind == PICI_ALL_GATHERV) {
        pici_layout_contribution(c, rank, first, n);
    } else {
        *first = (uint64_t)rank * c->args.count;
        *n = c->args.count;
    }
    if (whole > 1 && !l->schedule->undivided) {
        *first = *first * whole < c->resolved.total ? *first * whole : c->resolved.total;
        *n = *n * whole < c->resolved.total - *first ? *n * whole : c->resolved.total - *first;
    }
}

void pici_coll_segment(const struct pici_comm *comm, const struct coll_call *c, int segment, uint64_t *first,
                       uint64_t *n)
{
    segment_of(&c->resolved.at, comm, c, segment, first, n);
}

void pici_coll_slice(const struct pici_comm *comm, const struct coll_call *c, int segment, uint64_t slice,
                     uint64_t *first, uint64_t *n)
{
    uint64_t len, each = c->resolved.at.slice;
    pici_coll_segment(comm, c, segment, first, &len);
    if (c->resolved.at.unit) { /* not more than a slice */
        each = (len + c->resolved.at.slices - 1) / c->resolved.at.slices;
        each = (each + c->resolved.at.unit - 1) / c->resolved.at.unit * c->resolved.at.unit;
    }
    const uint64_t at = slice * each < len ? slice * each : len;
    *first += at;
    *n = len - at < each ? len - at : each;
}

/* ---- the layout */

/* Elements of a slice, and how many there are. */
static void cut(struct coll_layout *l, const struct pici_comm *comm, const struct coll_call *c)
{
    const uint64_t widest = l->limits.segments ? (uint64_t)l->limits.segments : 1,
                   unit = c->opts.values.codec->unit(&c->opts.values);
    uint64_t longest = 0, shortest = UINT64_MAX, first, n;
    for (int i = 0; i < l->segments; i++) {
        segment_of(l, comm, c, i, &first, &n);
        longest = n > longest ? n : longest;
        shortest = n < shortest ? n : shortest;
    }
    const uint64_t most = c->opts.slice_bytes / c->resolved.width / widest,
                   least = SLICES_WORTH / c->resolved.width / widest;
    uint64_t fair = longest / (uint64_t)c->opts.window; /* elements for `window` slices a segment */
    fair = fair > least ? fair : least;
    l->slice = (most < fair ? most : fair) / unit * unit;
    l->slice = l->slice ? l->slice : unit;
    l->slices = !l->steps ? 0 : longest / l->slice + (longest % l->slice != 0);
    l->window = (uint64_t)c->opts.window <= l->slices ? c->opts.window : l->slices ? (int)l->slices : 1;
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

static size_t aligned(size_t bytes)
{
    return (bytes + COLL_ALIGN - 1) & ~(size_t)(COLL_ALIGN - 1);
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
        l->part[i] = aligned((size_t)v->codec->most(v, i, l->slice) * pici_dtype_width(v->codec->dtype(v, i)));
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

static struct schedule_call shape_of(const struct pici_comm *comm, const struct coll_call *c)
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
        .schedule = schedule, .segments = schedule->undivided ? 1 : comm->ranks, .shape = shape_of(comm, c)};
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
    struct layout_cache *last = comm->last_layout;
    if (last->at.schedule == schedule && last->kind == c->args.kind && last->total == c->resolved.total &&
        last->longest == c->resolved.longest && last->counts == c->resolved.counts_hash && last->root == c->args.root &&
        last->dtype == c->args.dtype && last->window == c->opts.window && last->slice_bytes == c->opts.slice_bytes &&
        same_values(&last->values, &c->opts.values)) {
        *l = last->at;
        return PICI_OK;
    }
    enum pici_status s = new_layout(l, schedule, comm, c);
    if (!s)
        *last = (struct layout_cache){
            *l,           c->args.kind,  c->resolved.total, c->resolved.longest, c->resolved.counts_hash,
            c->args.root, c->args.dtype, c->opts.window,    c->opts.slice_bytes, c->opts.values};
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
    const struct schedule_call shape = shape_of(comm, c);
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

int pici_layout_early(struct coll_layout *l, const struct pici_comm *comm, const struct coll_call *c)
{
    return c->args.kind == PICI_ALL_REDUCE && comm->in_order &&
           pici_early_fits(comm->ranks, c->args.dtype, c->resolved.total) && !c->opts.values.phases &&
           !pici_layout_choose(l, comm, c) && l->schedule->with_hello && l->slices == 1;
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

/* ---- neighbourhood calls */

enum { PLAN_MEMORY = 64 << 20 /* bytes for messages, unless slices of one tile take more */ };

int pici_layout_asks(const struct coll_call *c)
{
    return c->args.plan && c->args.varied && !c->args.plan->most_bytes;
}

uint64_t pici_layout_slot(const struct coll_call *c, int i, uint64_t *first)
{
    const uint64_t n = c->args.varied ? c->args.recvcounts[i] : c->args.count;
    *first = !n               ? 0
             : c->args.varied ? c->args.displs[i]
                              : (uint64_t)i * c->args.count; /* an empty slot may be said to be anywhere */
    return n;
}

uint32_t pici_layout_tag(const struct coll_call *c)
{
    uint8_t p[48];
    store_le64(p, c->args.plan->hash);
    store_le64(p + 8, c->args.plan->number);
    store_le64(p + 16, c->resolved.longest);
    store_le64(p + 24, c->resolved.at.slice);
    store_le64(p + 32, (uint64_t)c->resolved.at.window << 32 | (uint64_t)c->args.dtype << 8 |
                           (unsigned)c->args.varied << 1 | (unsigned)c->opts.agree);
    store_le64(p + 40, (uint64_t)c->resolved.at.steps);
    return (uint32_t)pici_xxh64(p, sizeof p, 0);
}

size_t pici_layout_room(const struct coll_layout *l, const struct neighbor_message *m)
{
    const size_t blocks = m->again ? 0 : (size_t)m->count; /* else only poison is ever written there */
    return (MSG_BYTES + blocks * l->block + COLL_ALIGN - 1) & ~(size_t)(COLL_ALIGN - 1);
}

/* Seconds of a call by a route, with slices of about the size that lay_out_plan finds. */
static double route_seconds(const struct pici_neighbor_plan *plan, enum pici_route route, double bytes, int window,
                            uint64_t slice_bytes)
{
    const double widest = plan->widest[route] ? (double)plan->widest[route] : 1;
    double slices = bytes * widest / SLICES_WORTH;
    slices = slices < window ? slices : window;
    slices = slices * (double)slice_bytes < bytes * widest ? bytes * widest / (double)slice_bytes : slices;
    return pici_neighbor_seconds(plan->by[route], bytes, slices > 1 ? slices : 1, plan->bandwidth);
}

enum pici_route pici_layout_route(const struct pici_neighbor_plan *plan, uint64_t bytes, int window,
                                  uint64_t slice_bytes)
{
    if (!plan->by[PICI_ROUTE_HALVING] || !plan->by[PICI_ROUTE_DIRECT])
        return plan->by[PICI_ROUTE_HALVING] ? PICI_ROUTE_HALVING : PICI_ROUTE_DIRECT;
    static const double margin = 1.2; /* of the prediction: steps that wait for each other take longer, if anything */
    const double halving = route_seconds(plan, PICI_ROUTE_HALVING, (double)bytes, window, slice_bytes),
                 direct = route_seconds(plan, PICI_ROUTE_DIRECT, (double)bytes, window, slice_bytes);
    return halving * margin <= direct ? PICI_ROUTE_HALVING : PICI_ROUTE_DIRECT;
}

/* Slices as for other calls, but shorter, or fewer at a time, if the messages of a rank would take too much memory. All
 * ranks know what the one with the most needs. */
static enum pici_status lay_out_plan(struct coll_layout *l, const struct pici_comm *comm, const struct coll_call *c)
{
    const enum pici_route route =
        pici_layout_route(c->args.plan, c->resolved.longest * c->resolved.width, c->opts.window, c->opts.slice_bytes);
    const struct neighbor_route *r = c->args.plan->by[route];
    const uint64_t widest = c->args.plan->widest[route] ? c->args.plan->widest[route] : 1,
                   unit = c->opts.values.codec->unit(&c->opts.values);
    const uint64_t least = SLICES_WORTH / c->resolved.width / widest;
    *l = (struct coll_layout){.schedule = &pici_schedule_neighbor,
                              .segments = comm->ranks,
                              .shape = shape_of(comm, c),
                              .choice = {.seconds = -1}};
    l->shape.route = r;
    l->limits = r->limits;
    l->steps = r->steps;
    l->window = c->opts.window;
    uint64_t slice = c->resolved.longest / (uint64_t)c->opts.window, messages = 0;
    slice = slice > least ? slice : least;
    slice = c->opts.slice_bytes / c->resolved.width / widest < slice ? c->opts.slice_bytes / c->resolved.width / widest
                                                                     : slice;
    for (l->slice = slice / unit * unit;; l->slice = l->slice / 2 / unit * unit) {
        l->slice = l->slice ? l->slice : unit;
        l->slices = c->resolved.longest / l->slice + (c->resolved.longest % l->slice != 0);
        l->window = (uint64_t)c->opts.window <= l->slices ? c->opts.window : l->slices ? (int)l->slices : 1;
        l->block = pici_policy_longest(c->args.dtype, l->slice < c->resolved.longest ? l->slice : c->resolved.longest);
        if (!l->block || c->args.plan->blocks[route] > UINT64_MAX / COLL_MAX_WINDOW / l->block)
            return PICI_E_ARG;
        const uint64_t one = c->args.plan->blocks[route] * l->block;
        if (l->slice * c->resolved.width * widest <= SLICES_WORTH || l->slice == unit)
            while (l->window > 1 && one * (uint64_t)l->window > PLAN_MEMORY)
                l->window--;
        if (l->slice == unit && one * (uint64_t)l->window > SIZE_MAX / 4)
            return PICI_E_ARG;
        if (l->slice == unit || one * (uint64_t)l->window <= PLAN_MEMORY)
            break;
    }
    for (int i = 0; i < r->send_begin[r->steps]; i++)
        messages += pici_layout_room(l, &r->send[i]);
    for (int i = 0; i < r->receive_begin[r->steps]; i++)
        messages += pici_layout_room(l, &r->receive[i]);
    messages *= (uint64_t)l->window;
    if (messages > SIZE_MAX / 2)
        return PICI_E_ARG;
    l->messages = l->slices ? (size_t)messages : 0;
    l->buffers = l->window * (r->send_begin[r->steps] + r->receive_begin[r->steps]);
    return PICI_OK;
}

enum pici_status pici_layout_choose(struct coll_layout *l, const struct pici_comm *comm, const struct coll_call *c)
{
    if (c->args.plan)
        return lay_out_plan(l, comm, c);
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
