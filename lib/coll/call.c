/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A collective as the caller sees it: arguments, the queue of what was started, waiting, and the end. */
#define _GNU_SOURCE
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coll/comm.h"
#include "codec/codec.h"

enum {
    SLICES_WORTH = 64 << 10, /* dense bytes below which a slice is not worth its messages */
    SLICE = 1 << 20,         /* by default */
    SLICE_ON_GPU =
        8 << 20 /* where messages are on GPUs: one takes longer than the host to begin it, a window fills a GPU */
};

/* ---- arguments */

static size_t align_up(size_t bytes)
{
    return (bytes + COLL_ALIGN - 1) & ~(size_t)(COLL_ALIGN - 1);
}

/* What the first version of these structs had; others have been in none. */
enum {
    OPTS_FIRST = offsetof(struct pici_coll_opts, inter_bandwidth),
    STATS_FIRST = offsetof(struct pici_coll_stats, tiles)
};

/* What is wrong at once, on every rank alike; and the options, checked as far as that goes. */
static enum pici_status check_call(struct pici_coll_opts *o, const struct pici_comm *comm, enum pici_dtype dtype,
                                   enum pici_op op, const struct pici_coll_opts *opts)
{
    static const struct pici_coll_opts defaults = PICI_COLL_OPTS_INIT;
    if (!comm)
        return PICI_E_ARG;
    *o = defaults;
    if (opts && opts->size != OPTS_FIRST && opts->size < sizeof *o)
        return PICI_E_ARG;
    if (opts)
        memcpy(o, opts, opts->size < sizeof *o ? opts->size : sizeof *o);
    if (o->stats && o->stats->size != STATS_FIRST && o->stats->size != sizeof *o->stats)
        return PICI_E_ARG;
    for (size_t i = sizeof *o; i < o->size; i++) /* a later version's options, of which we know the zero only */
        if (((const uint8_t *)opts)[i])
            return PICI_E_UNSUPPORTED;
    if (!pici_dtype_width(dtype) || (unsigned)op > PICI_MAX || (unsigned)o->algorithm > PICI_ALGO_RECURSIVE ||
        ((unsigned)o->format > PICI_HYBRID && o->format != PICI_AUTO) || o->formats >> (PICI_HYBRID + 1))
        return PICI_E_UNSUPPORTED;
    return comm->broken || comm->pid != getpid() ? PICI_E_BROKEN : PICI_OK;
}

/* The recursive algorithm has the fewest steps, which is what small data waits for. For large data it is the ring, where a
 * message goes to a neighbour only: it crosses each link between nodes once, and keeps a dense run at the links' speed. */
static enum pici_algorithm choose(const struct pici_comm *comm, const struct coll_call *c)
{
    return c->total * c->width <= (uint64_t)comm->ranks * SLICES_WORTH / 2 ? PICI_ALGO_RECURSIVE : PICI_ALGO_RING;
}

void pici_coll_segment(const struct pici_comm *comm, const struct coll_call *c, int position, uint64_t *first,
                       uint64_t *n)
{
    int rank = comm->order[position];
    if (c->kind == PICI_ALL_REDUCE) {
        pici_plan_segment(c->total, comm->ranks, rank, first, n);
    } else {
        *first = (uint64_t)rank * c->count;
        *n = c->count;
    }
}

void pici_coll_slice(const struct pici_comm *comm, const struct coll_call *c, int position, uint64_t slice,
                     uint64_t *first, uint64_t *n)
{
    uint64_t len, at = slice * c->slice;
    pici_coll_segment(comm, c, position, first, &len);
    at = at < len ? at : len;
    *first += at;
    *n = len - at < c->slice ? len - at : c->slice;
}

/* Slices, windows, and the memory for them. */
static enum pici_status lay_out(const struct pici_comm *comm, struct coll_call *c, uint64_t slice_bytes)
{
    const enum plan_algorithm algorithm = (enum plan_algorithm)c->algorithm;
    const int p = comm->ranks;
    c->steps[PLAN_REDUCE_SCATTER] = c->kind == PICI_ALL_GATHER ? 0 : pici_plan_steps(algorithm, p);
    c->steps[PLAN_ALL_GATHER] = c->kind == PICI_REDUCE_SCATTER ? 0 : pici_plan_steps(algorithm, p);
    c->widest = pici_plan_widest(algorithm, p);
    uint64_t longest = 0, first, n;
    for (int i = 0; i < p; i++) {
        pici_coll_segment(comm, c, i, &first, &n);
        longest = n > longest ? n : longest;
    }
    const uint64_t tile = TILE;
    uint64_t most = slice_bytes / c->width / (uint64_t)c->widest, least = SLICES_WORTH / c->width / (uint64_t)c->widest;
    uint64_t fair = longest / (uint64_t)c->window; /* something to overlap with */
    fair = fair > least ? fair : least;
    c->slice = (most < fair ? most : fair) / tile * tile;
    c->slice = c->slice ? c->slice : tile;
    c->slices = p == 1 ? 0 : longest / c->slice + (longest % c->slice != 0);
    if ((uint64_t)c->window > c->slices)
        c->window = c->slices ? (int)c->slices : 1;

    size_t block = 0;
    for (int f = PICI_DENSE; f <= PICI_HYBRID; f++) {
        size_t bound = pici_bound((enum pici_format)f, c->dtype, c->slice);
        if (!bound)
            return PICI_E_ARG;
        block = bound > block ? bound : block;
    }
    c->held = !c->steps[PLAN_ALL_GATHER] ? 0 : c->algorithm == PICI_ALGO_RING ? 1 : c->steps[PLAN_ALL_GATHER];
    c->buffers = c->window * (2 + c->held);
    c->accumulators = !c->steps[PLAN_REDUCE_SCATTER] ? 0 : c->algorithm == PICI_ALGO_RING ? 1 : p;
    uint64_t buffer, all, sums;
    if (!fmt_muladd(&buffer, block, (uint64_t)c->widest, MSG_BYTES + COLL_ALIGN) ||
        !fmt_muladd(&all, buffer & ~(uint64_t)(COLL_ALIGN - 1), (uint64_t)c->buffers,
                    COLL_TEMP_BYTES + 2 * COLL_ALIGN) ||
        !fmt_muladd(&sums, c->slice * c->width, (uint64_t)c->accumulators, 0) ||
        !fmt_muladd(&all, sums, (uint64_t)c->window, all) || all > SIZE_MAX / 2)
        return PICI_E_ARG;
    c->message = align_up(MSG_BYTES + block * (size_t)c->widest);
    c->sums = c->slices ? (size_t)sums * (size_t)c->window : 0;
    c->scratch = c->slices ? (size_t)all : 0;
    return PICI_OK;
}

/* What may be wrong on this rank alone. The call takes part nevertheless, as far as it is described. */
static enum pici_status resolve(struct coll_call *c, const struct pici_comm *comm, const struct pici_coll_opts *o)
{
    const struct coll_settings *d = &comm->settings;
    const int p = comm->ranks;
    c->width = pici_dtype_width(c->dtype);
    c->algorithm = o->algorithm ? o->algorithm : d->algorithm;
    c->format = o->format != PICI_AUTO ? o->format : d->format;
    c->timeout_ms = o->timeout_ms ? o->timeout_ms : d->timeout_ms;
    c->checksum = o->checksum ? o->checksum > 0 : d->checksum;
    c->window = o->window ? o->window : d->window;
    const uint64_t usual = comm->transport.memory == PICI_MEMORY_DEVICE ? SLICE_ON_GPU : SLICE;
    const uint64_t slice_bytes = o->slice_bytes ? o->slice_bytes : d->slice_bytes ? d->slice_bytes : usual;
    c->memory = o->scratch;
    c->memory_bytes = o->scratch ? o->scratch_bytes : 0;
    c->stats = o->stats;
    c->stats_bytes = o->stats ? o->stats->size : 0;
    const float said[POLICY_LINKS] = {o->inter_threshold, o->intra_threshold, o->ag_threshold};
    int wrong = 0;
    for (int i = 0; i < POLICY_LINKS; i++) {
        float t = said[i] < 0 ? d->threshold[i] : said[i];
        c->threshold[i] = t < 0 ? pici_policy_default((enum policy_link)i, c->format) : t;
        wrong |= isnan(said[i]);
    }
    const double bandwidth[] = {o->inter_bandwidth, o->intra_bandwidth};
    for (int i = 0; i < 2; i++) {
        c->bandwidth[i] = bandwidth[i] > 0 ? bandwidth[i] : d->bandwidth[i];
        wrong |= !(bandwidth[i] >= 0); /* or a NaN */
    }
    c->formats = o->formats ? o->formats : d->formats ? d->formats : ~0u;
    if (!fmt_muladd(&c->total, c->count, c->kind == PICI_ALL_REDUCE ? 1 : (uint64_t)p, 0) ||
        c->total > SIZE_MAX / 2 / c->width) {
        c->total = 0;
        return PICI_E_ARG;
    }
    if (!c->algorithm)
        c->algorithm = choose(comm, c);
    if (wrong || c->window < 0 || c->window > COLL_MAX_WINDOW) {
        c->window = 1;
        return PICI_E_ARG;
    }
    return lay_out(comm, c, slice_bytes);
}

/* Null, and overlap but in place. */
static int buffers_wrong(const struct coll_call *c, const struct pici_comm *comm)
{
    if (!c->count)
        return 0;
    if (!c->send || !c->recv)
        return 1;
    const uint64_t one = c->count * c->width, all = c->total * c->width, own = (uint64_t)comm->rank * one;
    switch (c->kind) {
    case PICI_ALL_GATHER: return c->send != c->recv + own && pici_overlap(c->send, one, c->recv, all);
    case PICI_REDUCE_SCATTER: return c->recv != c->send + own && pici_overlap(c->send, all, c->recv, one);
    case PICI_ALL_REDUCE: return c->send != c->recv && pici_overlap(c->send, all, c->recv, all);
    }
    return 1;
}

size_t pici_comm_scratch(const struct pici_comm *comm, enum pici_collective kind, uint64_t count, enum pici_dtype dtype,
                         enum pici_op op, const struct pici_coll_opts *opts)
{
    struct pici_coll_opts o;
    struct coll_call c = {.kind = kind, .count = count, .dtype = dtype, .op = op};
    enum pici_status s = check_call(&o, comm, dtype, op, opts);
    if ((s && s != PICI_E_BROKEN) || kind < PICI_ALL_GATHER || kind > PICI_ALL_REDUCE || resolve(&c, comm, &o))
        return 0;
    return c.scratch ? c.scratch : 1;
}

/* ---- starting */

/* The arrays of a request, in one piece of memory. */
static enum pici_status make_arrays(struct pici_request *r)
{
    const struct coll_call *c = &r->call;
    const size_t p = (size_t)r->comm->ranks, w = (size_t)c->window, held = (size_t)c->held,
                 buffers = (size_t)c->buffers, wide = (size_t)c->widest;
    const struct coll_chain *like = r->chains;
    const size_t each = sizeof *like->n + sizeof *like->nnz + sizeof *like->len + sizeof *like->src;
    const size_t bytes = w * sizeof *r->chains + buffers * (sizeof *r->buffers + sizeof *r->free) +
                         2 * w * sizeof *r->sends + (held ? w * p * sizeof *r->chains->encoded : 0) +
                         w * held * sizeof *r->chains->held + w * wide * each + w * p;
    uint8_t *at = calloc(1, bytes);
    if (!at)
        return PICI_E_NOMEM;
    r->memory = at; /* from the strictest alignment to the loosest */
    r->chains = (void *)at, at += w * sizeof *r->chains;
    r->sends = (void *)at, at += w * sizeof *r->sends;
    r->recvs = (void *)at, at += w * sizeof *r->recvs;
    r->buffers = (void *)at, at += buffers * sizeof *r->buffers;
    r->free = (void *)at, at += buffers * sizeof *r->free;
    for (size_t i = 0; i < w; i++) {
        if (held) {
            r->chains[i].encoded = (void *)at, at += p * sizeof *r->chains->encoded;
            r->chains[i].held = (void *)at, at += held * sizeof *r->chains->held;
        }
    }
    for (size_t i = 0; i < w; i++) {
        struct coll_chain *chain = &r->chains[i];
        chain->n = (void *)at, at += wide * sizeof *chain->n;
        chain->nnz = (void *)at, at += wide * sizeof *chain->nnz;
        chain->src = (void *)at, at += wide * sizeof *chain->src;
        chain->len = (void *)at, at += wide * sizeof *chain->len;
    }
    for (size_t i = 0; i < w; i++)
        r->chains[i].has = at, at += p;
    return PICI_OK;
}

/* Where are the elements? */
static enum pici_status choose_engine(struct pici_request *r)
{
    struct pici_comm *comm = r->comm;
    struct coll_call *c = &r->call;
    const struct pici_engine *e = comm->other;
    const int sends = e && c->count ? e->owns(comm->other_self, c->send) : 0,
              receives = e && c->count ? e->owns(comm->other_self, c->recv) : 0;
    if (sends < 0 || receives < 0) {
        pici_coll_note(comm, "rank %d: a buffer is in another GPU's memory than the stream's", comm->rank);
        return PICI_E_ARG;
    }
    if (sends != receives || ((uintptr_t)c->send | (uintptr_t)c->recv) % (sends ? c->width : 1)) {
        pici_coll_note(comm,
                       sends != receives ? "rank %d: one buffer is in a GPU's memory, the other is not"
                                         : "rank %d: a buffer in a GPU's memory is not aligned to its elements",
                       comm->rank);
        return PICI_E_ARG;
    }
    if (!sends && c->count && comm->ranks > 1 && comm->transport.memory == PICI_MEMORY_DEVICE) {
        pici_coll_note(comm, "rank %d: buffers in the host's memory, where messages cannot be", comm->rank);
        return PICI_E_ARG;
    }
    if (!sends)
        return PICI_OK;
    r->engine = e;
    r->self = comm->other_self;
    c->lanes = c->window;
    enum pici_status s = e->enter(r->self, &r->mark);
    if (s)
        pici_coll_note(comm, "rank %d: %s: %s", comm->rank, e->name, e->error(r->self));
    return s;
}

/* Queue a call. What is wrong with it on this rank alone is for the ranks to hear of. */
static void queue(struct pici_request *r, const struct coll_call *call, struct pici_comm *comm,
                  const struct pici_coll_opts *o)
{
    static const struct pici_coll_stats none = PICI_COLL_STATS_INIT;
    *r = (struct pici_request){.comm = comm, .call = *call, .stats = none, .culprit = INT_MAX};
    r->sequence = comm->sequence++;
    r->engine = comm->engine;
    enum pici_status s = resolve(&r->call, comm, o);
    if (s || buffers_wrong(&r->call, comm)) {
        pici_coll_note(comm, "rank %d: null or overlapping buffers, or a count or option out of range", comm->rank);
        pici_coll_fail(r, PICI_E_ARG, comm->rank);
    } else if ((s = make_arrays(r))) {
        pici_coll_note(comm, "rank %d: no memory for the call", comm->rank);
        pici_coll_fail(r, s, comm->rank);
    } else if ((s = choose_engine(r))) {
        pici_coll_fail(r, s, comm->rank);
    }
    if (comm->tail)
        comm->tail->next = r;
    else
        comm->head = r;
    comm->tail = r;
}

static enum pici_status start(struct coll_call call, struct pici_comm *comm, const struct pici_coll_opts *opts,
                              struct pici_request **out)
{
    struct pici_coll_opts o;
    if (!out)
        return PICI_E_ARG;
    *out = NULL;
    enum pici_status s = check_call(&o, comm, call.dtype, call.op, opts);
    if (s)
        return s;
    struct pici_request *r = malloc(sizeof *r);
    if (!r)
        return PICI_E_NOMEM;
    queue(r, &call, comm, &o);
    *out = r;
    return PICI_OK;
}

/* ---- moving on */

void pici_coll_fail(struct pici_request *r, enum pici_status s, int culprit)
{
    if (s < r->status || (s == r->status && culprit < r->culprit)) {
        r->status = s;
        r->culprit = culprit;
    }
}

/* The head has ended. */
static void finish(struct pici_comm *comm)
{
    static const char *const name[] = {"", "all-gather", "reduce-scatter", "all-reduce"};
    struct pici_request *r = comm->head;
    comm->head = r->next;
    if (!comm->head)
        comm->tail = NULL;
    r->next = NULL;
    r->comm = NULL; /* which may be freed before the caller asks */
    r->state = COLL_DONE;
    if (r->call.stats) {
        r->stats.size = r->call.stats_bytes;
        memcpy(r->call.stats, &r->stats, r->call.stats_bytes);
    }
    if (r->mark)
        (void)r->engine->begin(r->self, r->mark, 0);
    r->mark = NULL;
    if (!comm->leak)
        free(r->memory);
    r->memory = NULL;
    if (comm->trace && r->begin > 0) {
        struct trace_event e = {
            .name = name[r->call.kind], .begin = r->begin, .end = pici_coll_now(), .sequence = r->sequence};
        e.phase = e.step = e.slice = e.peer = e.inter = e.format = -1;
        e.density = -1;
        e.dense_bytes = r->stats.dense_bytes;
        e.wire_bytes = r->stats.wire_bytes;
        pici_trace_add(comm->trace, &e);
    }
}

void pici_coll_break(struct pici_comm *comm, enum pici_status s, enum pici_status why)
{
    comm->broken = s;
    if (comm->head && comm->head->engine->halt && comm->head->engine->halt(comm->head->self))
        comm->leak = 1;
    if (comm->transport.abandon(comm->transport.context, why))
        comm->leak = 1;
    while (comm->head) {
        comm->head->status = s;
        finish(comm);
        s = PICI_E_BROKEN; /* those behind it were not begun */
    }
}

/* The engine's own memory, for elements that are not in the host's. */
static enum pici_status take_room(struct pici_request *r)
{
    struct coll_call *c = &r->call;
    struct pici_comm *comm = r->comm;
    if (c->memory) {
        pici_coll_note(comm, "rank %d: scratch memory of the caller's is for buffers in the host's", comm->rank);
        return PICI_E_UNSUPPORTED;
    }
    struct pici_lane **lanes = calloc((size_t)c->lanes + 1, sizeof *lanes);
    const struct engine_needs needs = {.dtype = c->dtype,
                                       .op = c->op,
                                       .slice = c->slice,
                                       .blocks = c->widest,
                                       .lanes = c->lanes,
                                       .messages = c->slices ? (size_t)c->buffers * c->message : 0,
                                       .sums = c->sums,
                                       .device = comm->transport.memory != PICI_MEMORY_HOST,
                                       .checksum = (unsigned)c->checksum};
    enum pici_status s = lanes ? r->engine->room(r->self, &needs, &r->messages, &r->sums, lanes) : PICI_E_NOMEM;
    for (int i = 0; i < c->lanes && !s; i++)
        r->chains[i].lane = lanes[i];
    free(lanes);
    if (s)
        pici_coll_note(comm, "rank %d: %s: %s", comm->rank, r->engine->name, r->engine->error(r->self));
    return s;
}

/* The memory that the head's messages and sums are in. */
static enum pici_status take_scratch(struct pici_request *r)
{
    struct coll_call *c = &r->call;
    struct pici_comm *comm = r->comm;
    if (r->engine->room)
        return take_room(r);
    if (!c->scratch)
        return PICI_OK; /* there is no data, and maybe no memory yet */
    if (!c->memory && comm->scratch_bytes < c->scratch) {
        enum pici_status s = pici_comm_grow(comm, c->scratch);
        if (s) {
            pici_coll_note(comm, "rank %d: no memory for %zu bytes of scratch", comm->rank, c->scratch);
            return s;
        }
    } else if (c->memory && c->memory_bytes < c->scratch) {
        pici_coll_note(comm, "rank %d: %zu bytes of scratch where %zu are needed", comm->rank, c->memory_bytes,
                       c->scratch);
        return PICI_E_SPACE;
    }
    uint8_t *at = c->memory ? c->memory : comm->scratch;
    at += -(uintptr_t)at % COLL_ALIGN;
    r->messages = at;
    r->sums = at + (size_t)c->buffers * c->message;
    r->temp = r->sums + c->sums;
    return PICI_OK;
}

/* The head, as far as it goes without waiting. Returns whether anything moved. */
static int advance(struct pici_comm *comm)
{
    struct pici_request *r = comm->head;
    enum pici_status s = PICI_OK;
    int moved = 0, done = 0;
    switch (r->state) {
    case COLL_WAITING:
        r->begin = pici_coll_now();
        if (!r->status && (s = take_scratch(r)))
            pici_coll_fail(r, s, comm->rank);
        pici_coll_agree_begin(r, MSG_HELLO);
        r->state = COLL_HELLO;
        return 1;
    case COLL_HELLO:
        s = pici_coll_agree(r, MSG_HELLO, &moved, &done);
        if (s || !done)
            break;
        if (r->status) {
            pici_coll_note(comm, "rank %d: %s", r->culprit, pici_strerror(r->status));
            s = r->status;
            break;
        }
        if ((s = pici_coll_data_begin(r))) {
            pici_coll_note(comm, "rank %d: %s", comm->rank, r->engine->error(r->self));
            pici_coll_fail(r, s, comm->rank);
        }
        r->state = COLL_DATA;
        return 1;
    case COLL_DATA:
        s = pici_coll_data(r, &moved, &done);
        if (s || !done)
            break;
        pici_coll_agree_begin(r, MSG_CLOSING);
        r->state = COLL_CLOSING;
        return 1;
    case COLL_CLOSING:
        s = pici_coll_agree(r, MSG_CLOSING, &moved, &done);
        if (s || !done)
            break;
        if (r->status) {
            if (r->culprit == INT_MAX)
                pici_coll_note(comm, "another rank failed: %s", pici_strerror(r->status));
            else
                pici_coll_note(comm, "rank %d failed: %s", r->culprit, pici_strerror(r->status));
            s = r->status;
            break;
        }
        finish(comm);
        return 1;
    case COLL_DONE: break;
    }
    if (s) {
        pici_coll_note(comm, "%s", pici_strerror(s));
        pici_coll_break(comm, s, s);
        return 1;
    }
    return moved;
}

/* As advance, and the clock of what does not move. */
static int advance_in_time(struct pici_comm *comm, double *left)
{
    struct pici_request *r = comm->head;
    if (advance(comm)) {
        if (comm->head == r)
            r->idle = 0;
        return 1;
    }
    double now = pici_coll_now();
    if (r->idle == 0)
        r->idle = now;
    *left = r->call.timeout_ms < 0 ? 1 : r->idle + 1e-3 * r->call.timeout_ms - now;
    if (*left > 0)
        return 0;
    pici_coll_note(comm, "rank %d: nothing moved for %d ms", comm->rank, r->call.timeout_ms);
    pici_coll_break(comm, PICI_E_TIMEOUT, PICI_E_TIMEOUT);
    return 1;
}

static void run(struct pici_request *r)
{
    /* until something moves, however often the transport looks */
    struct trace_event waited = {
        .name = "wait", .phase = -1, .step = -1, .slice = -1, .peer = -1, .inter = -1, .format = -1, .density = -1};
    while (r->state != COLL_DONE) {
        struct pici_comm *comm = r->comm;
        struct pici_request *head = comm->head;
        const struct pici_transport *t = &comm->transport;
        double left;
        if (advance_in_time(comm, &left)) {
            if (waited.begin > 0)
                pici_trace_add(comm->trace, &waited);
            waited.begin = 0;
            continue;
        }
        double begin = pici_coll_now();
        if (t->wait && !(head->state == COLL_DATA && pici_coll_busy(head)))
            t->wait(t->context, left > 0.1 ? 100 : (int)(left * 1e3) + 1);
        else
            sched_yield();
        waited.end = pici_coll_now();
        head->stats.wait_s += waited.end - begin;
        if (waited.begin == 0)
            waited.begin = begin;
        waited.sequence = head->sequence;
    }
}

enum pici_status pici_test(struct pici_request **request, int *done)
{
    if (!request || !done)
        return PICI_E_ARG;
    struct pici_request *r = *request;
    double left;
    *done = 0;
    if (r && r->comm && r->comm->pid != getpid())
        return PICI_E_BROKEN;
    while (r && r->state != COLL_DONE && advance_in_time(r->comm, &left))
        ;
    *done = !r || r->state == COLL_DONE;
    return *done ? pici_wait(request) : PICI_OK;
}

enum pici_status pici_wait(struct pici_request **request)
{
    if (!request)
        return PICI_E_ARG;
    struct pici_request *r = *request;
    if (!r)
        return PICI_OK;
    if (r->comm && r->comm->pid != getpid())
        return PICI_E_BROKEN;
    run(r);
    enum pici_status s = r->status;
    *request = NULL;
    free(r);
    return s;
}

/* Start and wait: in memory that is there, so that nothing but the call itself can fail, on all ranks alike. */
static enum pici_status call_and_wait(struct coll_call call, struct pici_comm *comm, const struct pici_coll_opts *opts)
{
    struct pici_coll_opts o;
    enum pici_status s = check_call(&o, comm, call.dtype, call.op, opts);
    if (s)
        return s;
    queue(comm->spare, &call, comm, &o);
    run(comm->spare);
    return comm->spare->status;
}

/* ---- the public functions */

static struct coll_call make_call(enum pici_collective kind, const void *send, void *recv, uint64_t count,
                                  enum pici_dtype dtype, enum pici_op op)
{
    return (struct coll_call){.kind = kind, .send = send, .recv = recv, .count = count, .dtype = dtype, .op = op};
}

enum pici_status pici_all_gather_start(const void *send, void *recv, uint64_t sendcount, enum pici_dtype dtype,
                                       struct pici_comm *comm, const struct pici_coll_opts *opts,
                                       struct pici_request **request)
{
    return start(make_call(PICI_ALL_GATHER, send, recv, sendcount, dtype, PICI_SUM), comm, opts, request);
}

enum pici_status pici_reduce_scatter_start(const void *send, void *recv, uint64_t recvcount, enum pici_dtype dtype,
                                           enum pici_op op, struct pici_comm *comm, const struct pici_coll_opts *opts,
                                           struct pici_request **request)
{
    return start(make_call(PICI_REDUCE_SCATTER, send, recv, recvcount, dtype, op), comm, opts, request);
}

enum pici_status pici_all_reduce_start(const void *send, void *recv, uint64_t count, enum pici_dtype dtype,
                                       enum pici_op op, struct pici_comm *comm, const struct pici_coll_opts *opts,
                                       struct pici_request **request)
{
    return start(make_call(PICI_ALL_REDUCE, send, recv, count, dtype, op), comm, opts, request);
}

enum pici_status pici_all_gather(const void *send, void *recv, uint64_t sendcount, enum pici_dtype dtype,
                                 struct pici_comm *comm, const struct pici_coll_opts *opts)
{
    return call_and_wait(make_call(PICI_ALL_GATHER, send, recv, sendcount, dtype, PICI_SUM), comm, opts);
}

enum pici_status pici_reduce_scatter(const void *send, void *recv, uint64_t recvcount, enum pici_dtype dtype,
                                     enum pici_op op, struct pici_comm *comm, const struct pici_coll_opts *opts)
{
    return call_and_wait(make_call(PICI_REDUCE_SCATTER, send, recv, recvcount, dtype, op), comm, opts);
}

enum pici_status pici_all_reduce(const void *send, void *recv, uint64_t count, enum pici_dtype dtype, enum pici_op op,
                                 struct pici_comm *comm, const struct pici_coll_opts *opts)
{
    return call_and_wait(make_call(PICI_ALL_REDUCE, send, recv, count, dtype, op), comm, opts);
}
