/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Every rank runs this code alike: each decision is based on numbers that are the same on all ranks. */
#define _GNU_SOURCE
#include <math.h>

#include "coll.h"
#include "common.h"

static const double far_behind = 1.5; /* times the best */

enum { COPIES = 16 }; /* of a GPU's memory, measured together */

/* The buffers of a rank, and the contents of send. */
struct buffers {
    uint8_t *send, *recv;
    void *send_at, *recv_at; /* where calls use them: these, or in a GPU's memory */
    size_t send_bytes, recv_bytes;
    int rank; /* whose data, -1: nobody's */
    double sparsity;
    int negative;
};

/* The largest contribution to a gather in elements, which is the last rank's. */
static uint64_t most(const struct world *w, enum pici_collective c, uint64_t count)
{
    return gathered_from(c, count, w->ranks, w->ranks) - gathered_from(c, count, w->ranks - 1, w->ranks);
}

static void shape(const struct world *w, enum pici_collective c, enum pici_dtype t, uint64_t count, size_t *send,
                  size_t *recv)
{
    const size_t bytes = count * pici_dtype_width(t), all = bytes * (unsigned)w->ranks;
    *send = c == PICI_REDUCE_SCATTER || c == PICI_ALL_TO_ALLV ? all
            : c == PICI_ALL_GATHERV                           ? most(w, c, count) * pici_dtype_width(t)
                                                              : bytes;
    *recv = c == PICI_ALL_GATHER || c == PICI_ALL_GATHERV || c == PICI_ALL_TO_ALLV ? all : bytes;
}

/* The result of a call. A broadcast is in place: the root's data do not move. */
static void *result_at(const struct world *w, const struct point *p, const struct entry *e, const struct buffers *b)
{
    const int stays = p->collective == PICI_BROADCAST && w->order[e->order].rank == BROADCAST_ROOT;
    return stays ? b->send_at : b->recv_at;
}

static struct source source_of(const struct world *w, const struct settings *s, const struct point *p,
                               const struct entry *e)
{
    const int gather = !reduces(p->collective);
    return (struct source){s->dtype,  gather ? PICI_SUM : s->op,
                           p->spread, 1 - e->sparsity / 100,
                           w->ranks,  e->negative,
                           gather,    p->collective == PICI_ALL_TO_ALLV ? p->count * (unsigned)w->ranks : p->count};
}

/* Have all ranks the same bytes? */
static int identical(struct world *w, const uint8_t *data, size_t bytes)
{
    uint64_t hash = bytes;
    for (; bytes >= 8; data += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        hash = (hash ^ word ^ hash >> 29) * UINT64_C(0x9e3779b97f4a7c15);
    }
    for (; bytes; data++, bytes--)
        hash = (hash ^ *data ^ hash >> 29) * UINT64_C(0x9e3779b97f4a7c15);
    const double h = (double)(hash >> 12); /* exact */
    double range[] = {h, -h};
    w->max(w, range, 2);
    return range[0] == -range[1];
}

/* Count the wrong elements on this rank. If all ranks have the same result, each compares one part of it. Otherwise
 * checking results would take far longer than making them. */
static double count_wrong(struct world *w, const struct source *source, const struct point *p, const struct buffers *b)
{
    const unsigned rank = (unsigned)b->rank, ranks = (unsigned)w->ranks;
    const size_t width = pici_dtype_width(source->dtype);
    if (p->collective == PICI_REDUCE_SCATTER)
        return (double)source_wrong(source, b->recv, 0, w->ranks, rank * p->count, p->count);

    double wrong = 0;
    for (unsigned from = 0; from < ranks && p->collective == PICI_ALL_TO_ALLV; from++)
        wrong +=
            (double)source_wrong(source, b->recv + from * p->count * width, (int)from, 1, rank * p->count, p->count);
    if (p->collective == PICI_ALL_TO_ALLV)
        return wrong;
    const int same = identical(w, b->recv, b->recv_bytes);
    const unsigned from = same ? rank : 0, to = same ? rank + 1 : ranks;
    for (unsigned part = from; part < to; part++)
        if (p->collective == PICI_ALL_GATHER || p->collective == PICI_ALL_GATHERV) {
            const uint64_t first = gathered_from(p->collective, p->count, (int)part, w->ranks),
                           end = gathered_from(p->collective, p->count, (int)part + 1, w->ranks);
            wrong += (double)source_wrong(source, b->recv + first * width, (int)part, 1, 0, end - first);
        } else {
            const uint64_t first = p->count / ranks * part,
                           end = part + 1 < ranks ? p->count / ranks * (part + 1) : p->count;
            const int root = p->collective == PICI_BROADCAST;
            wrong += (double)source_wrong(source, b->recv + first * width, root ? BROADCAST_ROOT : 0,
                                          root ? 1 : w->ranks, first, end - first);
        }
    return same ? wrong * ranks : wrong;
}

static enum pici_status gatherv(const struct world *w, const struct settings *s, const struct point *p,
                                const struct buffers *b, struct pici_comm *comm, const struct pici_coll_opts *o)
{
    uint64_t counts[w->ranks];
    for (int r = 0; r < w->ranks; r++)
        counts[r] = gathered_from(p->collective, p->count, r + 1, w->ranks) -
                    gathered_from(p->collective, p->count, r, w->ranks);
    return pici_all_gatherv(b->send_at, counts[pici_comm_rank(comm)], b->recv_at, counts, NULL, s->dtype, comm, o);
}

/* An equal exchange with each rank. */
static enum pici_status exchange(const struct world *w, const struct settings *s, const struct point *p,
                                 const struct buffers *b, struct pici_comm *comm, const struct pici_coll_opts *o)
{
    uint64_t counts[w->ranks];
    for (int r = 0; r < w->ranks; r++)
        counts[r] = p->count;
    return pici_all_to_allv(b->send_at, counts, NULL, b->recv_at, counts, NULL, s->dtype, comm, o);
}

static int is_lossy(const struct entry *e)
{
    return e->values && e->values->values.codec != PICI_VALUES_EXACT;
}

/* Run pici's call. lossy: with the entry's lossy codec. */
static void ours(struct world *w, const struct settings *s, const struct point *p, struct entry *e,
                 const struct buffers *b, struct pici_coll_stats *stats, int lossy)
{
    struct pici_comm *comm = w->order[e->order].comm;
    struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
    enum pici_status status;
    o.algorithm = e->algorithm;
    o.format = e->format < AUTO_AMONG ? (enum pici_format)e->format : PICI_AUTO;
    o.formats = e->format < AUTO_AMONG ? 0 : (unsigned)(e->format - AUTO_AMONG);
    o.stats = stats;
    o.values = lossy ? &e->values->values : NULL;
    if (e->dense) {
        o.inter_threshold = o.intra_threshold = o.ag_threshold = 1;
        o.pack = PICI_PACKING_NONE;
    }
    switch (p->collective) {
    case PICI_ALL_REDUCE: status = pici_all_reduce(b->send_at, b->recv_at, p->count, s->dtype, s->op, comm, &o); break;
    case PICI_REDUCE_SCATTER:
        status = pici_reduce_scatter(b->send_at, b->recv_at, p->count, s->dtype, s->op, comm, &o);
        break;
    case PICI_BROADCAST:
        status = pici_broadcast(result_at(w, p, e, b), p->count, s->dtype, BROADCAST_ROOT, comm, &o);
        break;
    case PICI_ALL_GATHERV: status = gatherv(w, s, p, b, comm, &o); break;
    case PICI_ALL_TO_ALLV: status = exchange(w, s, p, b, comm, &o); break;
    default: status = pici_all_gather(b->send_at, b->recv_at, p->count, s->dtype, comm, &o);
    }
    if (status) {
        fprintf(stderr, "bench_coll: rank %d: %s: %s: %s\n", w->rank, collective_name[p->collective],
                pici_strerror(status), pici_comm_error(comm));
        exit(1);
    }
}

/* Sum or maximum over the ranks of each node. Each rank gives a number; all ranks get one number per node. */
static void by_node(struct world *w, double mine, double *nodes, void (*combine)(struct world *, double *, int))
{
    for (int first = 0; first < w->nodes; first += WORLD_MOST) {
        const int n = w->nodes - first < WORLD_MOST ? w->nodes - first : WORLD_MOST, at = w->node_of[w->rank] - first;
        memset(nodes + first, 0, (size_t)n * sizeof *nodes);
        if (at >= 0 && at < n)
            nodes[first + at] = mine;
        combine(w, nodes + first, n);
    }
}

static void copy(struct world *w, void *to, const void *from, size_t bytes)
{
    if (to != from && w->device)
        w->device->copy(w, to, from, bytes, 1);
    else if (to != from)
        memcpy(to, from, bytes);
}

/* For a result with a lossy codec, return the number of elements if ranks differ that should not, and measure the
 * error. Then replace it by the exact result. */
static double count_other(struct world *w, const struct settings *s, const struct point *p, struct entry *e,
                          struct buffers *b)
{
    struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
    const uint64_t n = b->recv_bytes / pici_dtype_width(s->dtype);
    copy(w, b->recv, b->recv_at, b->recv_bytes);
    const int same = p->collective == PICI_REDUCE_SCATTER || identical(w, b->recv, b->recv_bytes);
    uint8_t *got = buffer(b->recv_bytes, 0);
    memcpy(got, b->recv, b->recv_bytes);
    ours(w, s, p, e, b, &stats, 0);
    copy(w, b->recv, b->recv_at, b->recv_bytes);
    double sums[2] = {0};
    const int able = values_differ(s->dtype, got, b->recv, n, sums);
    free(got);
    w->sum(w, sums, 2);
    e->error = able && sums[1] > 0 ? sqrt(sums[0] / sums[1]) : -1;
    return same ? 0 : (double)n;
}

/* Run an entry once, as repetition rep. Returns the seconds of the slowest rank, or < 0 if the entry is not
 * supported. */
static double measure(struct world *w, const struct settings *s, const struct point *p, struct entry *e,
                      struct buffers *b, int rep)
{
    const int last = rep + 1 == s->reps, check = s->check && last;
    const int rank = w->order[e->order].rank;
    const struct source source = source_of(w, s, p, e);
    /* other libraries return -0.0 for a sum of -0.0 alone */
    const int checked = check && source_exact(&source) && !(e->peer >= 0 && e->negative);
    struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
    int able = 1;

    if (b->rank != rank || b->sparsity != e->sparsity || b->negative != e->negative) {
        source_fill(&source, b->send, rank, b->send_bytes / pici_dtype_width(s->dtype));
        copy(w, b->send_at, b->send, b->send_bytes);
        b->rank = rank;
        b->sparsity = e->sparsity;
        b->negative = e->negative;
    }
    if (check) {
        memset(b->recv, 0x55, b->recv_bytes);
        copy(w, b->recv_at, b->recv, b->recv_bytes);
    }
    w->barrier(w);
    const double start = seconds(CLOCK_MONOTONIC);
    for (int i = 0; i < s->calls && able; i++)
        if (e->peer >= 0)
            able = w->run(w, e->peer, e->order, b->send_at, result_at(w, p, e, b), p->count, s->dtype, s->op);
        else
            ours(w, s, p, e, b, &stats, is_lossy(e));
    if (w->device)
        w->device->finish(w);
    const double mine = (seconds(CLOCK_MONOTONIC) - start) / s->calls;
    double time = mine;
    w->max(w, &time, 1);
    if (!able)
        return -1;
    if (e->took && rep >= 0)
        by_node(w, mine, e->took + (size_t)rep * (unsigned)w->nodes, w->max);
    if (e->left && last)
        by_node(w, (double)stats.inter_bytes, e->left, w->sum);

    double total[] = {
        (double)stats.wire_bytes, (double)stats.dense_bytes, stats.encode_s, stats.decode_s, stats.wait_s, 0};
    if (checked && !is_lossy(e)) {
        copy(w, b->recv, result_at(w, p, e, b), b->recv_bytes);
        total[5] = count_wrong(w, &source, p, b);
    } else if (checked) {
        total[5] = count_other(w, s, p, e, b);
    }
    if (is_lossy(e)) {
        double more[] = {stats.quantize_s, stats.dequantize_s, (double)stats.events, stats.lost};
        w->sum(w, more, COUNT_OF(more));
        e->quantize_s = more[0];
        e->dequantize_s = more[1];
        e->events = more[2];
        e->lost = more[3];
    }
    w->sum(w, total, COUNT_OF(total));
    e->wire_bytes = total[0];
    e->dense_bytes = total[1];
    e->encode_s = total[2];
    e->decode_s = total[3];
    e->wait_s = total[4];
    e->wrong = checked ? total[5] : -1;
    return time;
}

static struct buffers allocate(const struct world *w, const struct settings *s, const struct point *p)
{
    struct buffers b = {.rank = -1};
    shape(w, p->collective, s->dtype, p->count, &b.send_bytes, &b.recv_bytes);
    b.send_at = b.send = buffer(b.send_bytes, 0);
    b.recv_at = b.recv = buffer(b.recv_bytes, 0);
    if (w->device) {
        b.send_at = w->device->alloc(b.send_bytes);
        b.recv_at = w->device->alloc(b.recv_bytes);
    }
    return b;
}

static void release(const struct world *w, struct buffers *b)
{
    if (w->device) {
        w->device->free(b->send_at);
        w->device->free(b->recv_at);
    }
    free(b->send);
    free(b->recv);
}

/* The GPU's rate of copying at least a call's bytes, while all ranks' GPUs copy. */
static double measure_copy(struct world *w, struct point *p, const struct buffers *b)
{
    p->copied = b->send_bytes < b->recv_bytes ? b->send_bytes : b->recv_bytes;
    w->barrier(w);
    const double start = seconds(CLOCK_MONOTONIC);
    w->device->copy(w, b->recv_at, b->send_at, p->copied, COPIES);
    double time = (seconds(CLOCK_MONOTONIC) - start) / COPIES;
    w->max(w, &time, 1);
    return time;
}

/* ---- contestants */

static struct entry *add(const struct world *w, const struct settings *s, struct point *p, int order)
{
    p->entry = realloc(p->entry, (size_t)(p->entries + 1) * sizeof *p->entry);
    if (!p->entry)
        die("out of memory");
    struct entry *e = &p->entry[p->entries++];
    *e = (struct entry){.order = order, .peer = -1, .wrong = -1, .error = -1};
    if (s->by_node && !(e->took = calloc((size_t)w->nodes * (unsigned)s->reps, sizeof *e->took)))
        die("out of memory");
    return e;
}

/* Add one of pici's entries, at the first sparsity. Returns NULL if the algorithm lacks this collective. */
static struct entry *add_ours(const struct world *w, const struct settings *s, struct point *p, int order,
                              int algorithm)
{
    struct pici_coll_opts o = PICI_COLL_OPTS_INIT, any = o;
    o.algorithm = (enum pici_algorithm)algorithm;
    const struct pici_comm *comm = w->order[order].comm;
    const uint64_t count = p->collective == PICI_ALL_GATHERV ? most(w, p->collective, p->count) : p->count;
    if (p->collective == PICI_ALL_TO_ALLV && algorithm)
        return NULL;
    if (!pici_comm_scratch(comm, p->collective, count, s->dtype, s->op, &o) &&
        pici_comm_scratch(comm, p->collective, count, s->dtype, s->op, &any))
        return NULL;
    struct entry *e = add(w, s, p, order);
    e->algorithm = o.algorithm;
    e->format = PICI_AUTO;
    e->sparsity = s->sparsity[0];
    e->negative = s->zeros.v[0];
    if (w->nodes > 1 && !(e->left = calloc((size_t)w->nodes, sizeof *e->left)))
        die("out of memory");
    return e;
}

static int invited(const char *list, const char *algorithm)
{
    const size_t n = strlen(algorithm);
    for (const char *p = list, *comma; p; p = comma ? comma + 1 : NULL) {
        comma = strchr(p, ',');
        if (!strncmp(p, algorithm, n) && (p[n] == ',' || !p[n]))
            return 1;
    }
    return !strcmp(list, "all");
}

/* Does this order of ranks take part? */
static int ordered(const struct world *w, const struct settings *s, int order)
{
    return !s->order || w->orders == 1 || !strcmp(s->order, w->order[order].name);
}

static int runs_dense(const struct settings *s, int algorithm)
{
    int found = s->dense.n == 0;
    for (int i = 0; i < s->dense.n; i++)
        found |= s->dense.v[i] == algorithm;
    return found;
}

/* Add all contestants: dense ones once, because zeros do not matter to them; pici's at each sparsity. */
static void invite(const struct world *w, const struct settings *s, struct point *p)
{
    for (int order = 0; order < w->orders; order++) {
        if (!ordered(w, s, order))
            continue;
        for (int i = 0; i < w->peers; i++)
            if (w->peer[i].collective == p->collective && invited(s->peers, w->peer[i].algorithm)) {
                struct entry *e = add(w, s, p, order);
                e->peer = i;
                e->dense = 1;
                e->sparsity = s->sparsity[0];
                e->negative = s->zeros.v[0];
            }
        for (int a = PICI_ALGO_RING; pici_algorithm_name((enum pici_algorithm)a); a++) {
            struct entry *e = runs_dense(s, a) ? add_ours(w, s, p, order, a) : NULL;
            if (e)
                e->dense = 1; /* thresholds overrule the format */
        }
    }
    for (int y = 0; y < s->sparsities; y++)
        for (int order = 0; order < w->orders; order++)
            for (int a = 0; a < s->algorithms.n && ordered(w, s, order); a++)
                for (int f = 0; f < s->formats.n; f++)
                    for (int z = 0; z < s->zeros.n; z++)
                        for (int v = 0; v < s->codecs; v++) {
                            struct entry *e = add_ours(w, s, p, order, s->algorithms.v[a]);
                            if (!e)
                                continue;
                            e->format = s->formats.v[f];
                            e->sparsity = s->sparsity[y];
                            e->negative = s->zeros.v[z];
                            e->values = &s->codec[v];
                        }
}

/* Run the dense contestants on less data, and drop those that are far behind. */
static void screen(struct world *w, const struct settings *s, struct point *p)
{
    struct point less = *p;
    const uint64_t count = s->screen * p->count / p->bytes;
    double best = 0;
    less.count = count ? count : 1;
    struct buffers b = allocate(w, s, &less);
    for (int rep = 0; rep < 2; rep++) /* the first to warm up */
        for (int i = 0; i < p->entries; i++) {
            struct entry *e = &p->entry[i];
            if (!e->dense || e->out)
                continue;
            e->time[0] = measure(w, s, &less, e, &b, -1);
            e->out = e->time[0] < 0;
            if (rep && !e->out && (best == 0 || e->time[0] < best))
                best = e->time[0];
        }
    for (int i = 0; i < p->entries; i++) {
        struct entry *e = &p->entry[i];
        if (e->dense && (e->out || e->time[0] > far_behind * best)) {
            e->out = 1;
            if (w->rank == 0)
                print_left_out(w, s, e, e->time[0] / best);
        }
    }
    release(w, &b);
}

static double run_point(struct world *w, const struct settings *s, struct point *p)
{
    double wrong = 0;
    invite(w, s, p);
    if (s->screen && s->screen < p->bytes)
        screen(w, s, p);
    struct buffers b = allocate(w, s, p);
    for (int rep = -s->warmup; rep < s->reps; rep++) {
        for (int i = 0; i < p->entries; i++) {
            struct entry *e = &p->entry[i];
            if (e->out)
                continue;
            const double time = measure(w, s, p, e, &b, rep);
            e->out = time < 0;
            if (rep >= 0)
                e->time[rep] = time;
            if (e->wrong > 0)
                wrong += e->wrong;
        }
        const double time = w->device ? measure_copy(w, p, &b) : 0;
        if (rep >= 0)
            p->copy[rep] = time;
    }
    release(w, &b);
    if (w->rank == 0)
        print_point(w, s, p);
    for (int i = 0; i < p->entries; i++) {
        free(p->entry[i].left);
        free(p->entry[i].took);
    }
    free(p->entry);
    return wrong;
}

double run_all(struct world *w, const struct settings *s)
{
    const size_t width = pici_dtype_width(s->dtype);
    double wrong = 0;
    if (w->rank == 0)
        print_head(w, s);
    for (int c = 0; c < s->collectives.n; c++)
        for (int d = 0; d < s->spreads.n; d++)
            for (size_t bytes = s->first; bytes <= s->last;) {
                struct point p = {.collective = (enum pici_collective)s->collectives.v[c],
                                  .spread = (enum spread)s->spreads.v[d],
                                  .first = bytes == s->first};
                const int whole = p.collective == PICI_ALL_REDUCE || p.collective == PICI_BROADCAST ||
                                  (s->by_send && !reduces(p.collective));
                size_t send, recv;
                p.count = bytes / width / (whole ? 1 : (unsigned)w->ranks);
                shape(w, p.collective, s->dtype, p.count, &send, &recv);
                p.bytes = send > recv ? send : recv;
                if (p.count)
                    wrong += run_point(w, s, &p);
                const size_t next = s->step ? bytes + s->step : (size_t)((double)bytes * s->factor);
                bytes = next > bytes ? next : bytes + 1;
            }
    if (w->rank == 0)
        print_foot(s, wrong);
    return wrong;
}
