/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "coll_util.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "coll/request.h"
#include "formats/ref.h"

/* ---- a call ---- */

int coll_algorithms(void)
{
    int n = 0;
    while (pici_algorithm_name((enum pici_algorithm)(n + 1)))
        n++;
    return n;
}

int coll_has(enum pici_algorithm a, enum pici_collective collective)
{
    return a == PICI_ALGO_AUTO || pici_schedule(a)->collectives >> collective & 1;
}

enum pici_algorithm coll_algorithm(uint64_t i, enum pici_collective collective)
{
    int many = 0, a = 0;
    for (int id = 1; id <= coll_algorithms(); id++)
        many += coll_has((enum pici_algorithm)id, collective);
    for (uint64_t left = i % (uint64_t)many + 1; left; a++)
        left -= (uint64_t)coll_has((enum pici_algorithm)(a + 1), collective);
    return (enum pici_algorithm)a;
}

void coll_case_options(struct coll_case *c, struct rng *r, int p)
{
    static const enum pici_format formats[] = {PICI_AUTO, PICI_HYBRID, PICI_PICI, PICI_COO, PICI_AUTO, PICI_DENSE};
    static const double bandwidths[] = {0, 1, 1e9, 1e18};
    static const float thresholds[] = {-1, 0, 1, 0.5f};
    static const uint64_t slices[] = {0, 1, 16384, 20000, 65536};
    struct pici_coll_opts *o = &c->opts;
    const enum pici_algorithm algorithm = o->algorithm;
    *o = (struct pici_coll_opts)PICI_COLL_OPTS_INIT;
    o->algorithm = algorithm;
    o->format = formats[rng_below(r, 6)];
    o->formats = rng_chance(r, 500000) ? 0 : 1u << PICI_PICI << rng_below(r, 3) | (unsigned)rng_below(r, 16);
    o->inter_bandwidth = bandwidths[rng_below(r, 4)];
    o->intra_bandwidth = bandwidths[rng_below(r, 4)];
    o->inter_threshold = thresholds[rng_below(r, 4)];
    o->intra_threshold = rng_chance(r, 700000) ? o->inter_threshold : thresholds[rng_below(r, 4)];
    o->ag_threshold = rng_chance(r, 700000) ? o->inter_threshold : thresholds[rng_below(r, 4)];
    o->checksum = rng_chance(r, 250000) ? 1 : -(int)rng_below(r, 2);
    o->slice_bytes = slices[rng_below(r, 5)];
    o->window = (int)rng_below(r, 6);
    c->pattern = (enum pattern)rng_below(r, PATTERNS);
    c->seed = rng_next(r);
    c->tame = (int)rng_below(r, 2);
    c->in_place = (int)rng_below(r, 2);
    c->own_scratch = rng_chance(r, 300000);
    c->zeros = rng_chance(r, 300000) ? ZEROS_HALF_NEGATIVE : ZEROS_PLAIN;
    c->tiny = rng_chance(r, 100000);
    const uint64_t nodes = rng_below(r, 5), many = 1 + rng_below(r, (uint64_t)p);
    for (int i = 0; i < p; i++)
        switch (nodes) {
        case 0: c->node_of[i] = i / 2; break;    /* neighbours */
        case 1: c->node_of[i] = -(i % 2); break; /* in turn */
        case 2: c->node_of[i] = p - i; break;    /* each its own */
        case 3: c->node_of[i] = (int)rng_below(r, many); break;
        default: c->node_of[i] = 7;
        }
}

void coll_case_random(struct coll_case *c, struct rng *r, int p)
{
    c->collective = (enum pici_collective)(1 + rng_below(r, 3));
    c->opts.algorithm = coll_algorithm(rng_below(r, (uint64_t)coll_algorithms()), c->collective);
    c->dtype = (enum pici_dtype)(1 + rng_below(r, 14));
    c->op = (enum pici_op)rng_below(r, 4);
    coll_case_options(c, r, p);
    if (c->collective == PICI_ALL_GATHER)
        c->opts.zeros = (enum pici_zeros)rng_below(r, 2);
}

static const char *collective_name(enum pici_collective c)
{
    return c == PICI_ALL_GATHER ? "all_gather" : c == PICI_REDUCE_SCATTER ? "reduce_scatter" : "all_reduce";
}

const char *coll_case_words(const struct coll_case *c, int p)
{
    static const char *const ops[] = {"sum", "avg", "min", "max"};
    static const char *const zeros[] = {"", " half of zeros negative", " zeros negative"};
    static char words[600];
    const struct pici_coll_opts *o = &c->opts;
    int n = snprintf(
        words, sizeof words,
        "%s %s %s algorithm %d ranks %d count %llu %s seed %llu%s%s%s%s format %s thresholds %g %g %g "
        "checksum %d slice %llu window %d formats %#x bandwidths %g %g zeros %d nodes",
        collective_name(c->collective), pici_dtype_name(c->dtype), ops[c->op], (int)o->algorithm, p,
        (unsigned long long)c->count, pattern_name(c->pattern), (unsigned long long)c->seed, zeros[c->zeros],
        c->tiny   ? " tiny"
        : c->tame ? " tame"
                  : "",
        c->in_place ? " in place" : "", c->own_scratch ? " own scratch" : "", pici_format_name(o->format),
        o->inter_threshold, o->intra_threshold, o->ag_threshold, o->checksum, (unsigned long long)o->slice_bytes,
        o->window, o->formats, o->inter_bandwidth, o->intra_bandwidth, (int)o->zeros);
    for (int i = 0; i < p && n < (int)sizeof words - 16; i++)
        n += snprintf(words + n, sizeof words - (size_t)n, " %d", c->node_of[i]);
    return words;
}

uint64_t coll_sends(const struct coll_case *c, int p)
{
    return c->collective == PICI_REDUCE_SCATTER ? c->count * (uint64_t)p : c->count;
}

uint64_t coll_receives(const struct coll_case *c, int p)
{
    return c->collective == PICI_ALL_GATHER ? c->count * (uint64_t)p : c->count;
}

/* ---- the arithmetic, in integers ---- */

static const struct {
    unsigned exponent, mantissa; /* bits; 0: an integer */
} floats[15] = {[PICI_F32] = {8, 23}, [PICI_F64] = {11, 52},  [PICI_F16] = {5, 10},
                [PICI_BF16] = {8, 7}, [PICI_F8E4M3] = {4, 3}, [PICI_F8E5M2] = {5, 2}};

static int is_signed(enum pici_dtype t)
{
    return t == PICI_I8 || t == PICI_I16 || t == PICI_I32 || t == PICI_I64;
}

static uint64_t sign_of(enum pici_dtype t)
{
    return UINT64_C(1) << (8 * ref_width(t) - 1);
}

static int is_nan(enum pici_dtype t, uint64_t a)
{
    const uint64_t magnitude = a & (sign_of(t) - 1), one = UINT64_C(1) << floats[t].mantissa;
    if (t == PICI_F8E4M3)
        return magnitude == sign_of(t) - 1;
    return floats[t].exponent && magnitude > sign_of(t) - one;
}

static uint64_t quiet(enum pici_dtype t, uint64_t a)
{
    return t == PICI_F8E4M3 ? a : a | UINT64_C(1) << (floats[t].mantissa - 1);
}

/* An unsigned number that is ordered as the elements are. */
static uint64_t rank_of(enum pici_dtype t, uint64_t a)
{
    const uint64_t sign = sign_of(t);
    if (is_signed(t))
        return a ^ sign;
    return !floats[t].exponent ? a : a & sign ? 2 * sign - 1 - a : a | sign;
}

uint64_t coll_fold(enum pici_dtype t, enum pici_op op, uint64_t a, uint64_t b)
{
    if (op == PICI_SUM || op == PICI_AVG)
        return b ? ref_add(t, a, b) : a;
    if (is_nan(t, a))
        return quiet(t, a);
    if (is_nan(t, b))
        return quiet(t, b);
    return (rank_of(t, a) < rank_of(t, b)) == (op == PICI_MIN) ? a : b;
}

uint64_t coll_first(enum pici_dtype t, enum pici_op op, uint64_t a)
{
    return floats[t].exponent && (op == PICI_SUM || op == PICI_AVG) ? ref_add(t, 0, a) : a;
}

static uint64_t divide_float(enum pici_dtype t, uint64_t a, uint64_t p)
{
    const unsigned m = floats[t].mantissa;
    const uint64_t one = UINT64_C(1) << m, sign = a & sign_of(t), magnitude = a & (sign_of(t) - 1);
    if (!magnitude)
        return 0;
    if (t != PICI_F8E4M3 && magnitude == sign_of(t) - one)
        return a;
    int e = (int)(magnitude >> m);
    uint64_t s = magnitude & (one - 1);
    if (e)
        s |= one;
    else
        e = 1;
    for (; !(s >> 62); e--)
        s <<= 1;
    const int sticky = s % p != 0;
    s /= p;
    int shift = -(int)m - 1; /* to m + 1 bits, or to a denormal's */
    for (uint64_t left = s; left; left >>= 1)
        shift++;
    if (e + shift < 1)
        shift = 1 - e;
    e += shift;
    if (shift > 63)
        return 0;
    const uint64_t rest = s & ((UINT64_C(1) << shift) - 1), half = UINT64_C(1) << (shift - 1);
    s >>= shift;
    if (rest > half || (rest == half && (sticky || (s & 1))))
        s++;
    return s ? sign | (s >= one ? (uint64_t)(e - 1) * one + s : s) : 0;
}

uint64_t coll_divide(enum pici_dtype t, uint64_t a, int p)
{
    if (floats[t].exponent)
        return is_nan(t, a) ? quiet(t, a) : divide_float(t, a, (uint64_t)p);
    if (!is_signed(t) || !(a & sign_of(t)))
        return a / (uint64_t)p;
    const uint64_t mask = 2 * sign_of(t) - 1;
    return (0 - ((0 - a) & mask) / (uint64_t)p) & mask;
}

/* ---- the model ---- */

/* Positions of ranks: nodes in the order of their lowest rank. */
struct positions {
    int order[COLL_RANKS];                    /* position to rank */
    int nodes, begin[COLL_RANKS + 1];         /* of each node: its first position */
    int position[COLL_RANKS], on[COLL_RANKS]; /* rank to position; position to node */
};

static void order_ranks(const int *node_of, int p, struct positions *at)
{
    int lowest[COLL_RANKS];
    for (int i = 0; i < p; i++)
        for (lowest[i] = 0; node_of[lowest[i]] != node_of[i];)
            lowest[i]++;
    for (int i = 0; i < p; i++) {
        int before = 0;
        for (int j = 0; j < p; j++)
            before += lowest[j] < lowest[i] || (lowest[j] == lowest[i] && j < i);
        at->order[before] = i;
        at->position[i] = before;
    }
    at->nodes = 0;
    for (int i = 0; i < p; i++) {
        if (i == 0 || lowest[at->order[i]] != lowest[at->order[i - 1]])
            at->begin[at->nodes++] = i;
        at->on[i] = at->nodes - 1;
    }
    at->begin[at->nodes] = p;
}

/* x[i]: of position i. Of the first positions some give what they have to the next one, so that a power of two is left.
 * Then neighbours are folded into one, the higher into the lower, again and again. */
static void reduce_doubling(const struct coll_case *c, int p, uint64_t *x)
{
    int left = 1;
    while (2 * left <= p)
        left *= 2;
    for (int i = 0; i < left; i++)
        x[i] = i < p - left ? coll_fold(c->dtype, c->op, x[2 * i + 1], x[2 * i]) : x[i + p - left];
    for (; left > 1; left /= 2)
        for (int i = 0; i < left / 2; i++)
            x[i] = coll_fold(c->dtype, c->op, x[2 * i], x[2 * i + 1]);
}

/* What the owner of an element ends with; x[d]: of the rank d positions before the owner, itself being d == 0; doubling
 * has no owners. x is used up. Ring: a partial sum travels up the positions, and each rank folds what it received into
 * its own. Recursive: the last of the positions halve again and again, each handing what it has to one that stays.
 * Split: the owner folds everyone's own contributions, those of lower positions first. */
static uint64_t flat(const struct coll_case *c, enum pici_algorithm a, int p, uint64_t *x)
{
    if (a == PICI_ALGO_RING)
        for (int d = p - 1; d > 0; d--)
            x[d - 1] = coll_fold(c->dtype, c->op, x[d - 1], x[d]);
    if (a == PICI_ALGO_DOUBLING)
        reduce_doubling(c, p, x);
    for (int d = 1; a == PICI_ALGO_SPLIT && d < p; d++)
        x[0] = coll_fold(c->dtype, c->op, x[0], x[d]);
    for (int s = p, half; a == PICI_ALGO_RECURSIVE && s > 1; s = half) {
        half = (s + 1) / 2;
        for (int d = 0; d + half < s; d++)
            x[d] = coll_fold(c->dtype, c->op, x[d], x[d + half]);
    }
    return x[0];
}

static int by_node(enum pici_algorithm a)
{
    return a == PICI_ALGO_NODES_RING || a == PICI_ALGO_NODES_RECURSIVE;
}

/* The same on two levels; x by position. The owner is rank l of its node: on each other node, rank l modulo the node's
 * size gathers the node's sum. Then these sums are added. */
static uint64_t by_levels(const struct coll_case *c, enum pici_algorithm a, const struct positions *at, int owner,
                          const uint64_t *x)
{
    uint64_t sums[COLL_RANKS], one[COLL_RANKS];
    const int home = at->on[owner], lane = owner - at->begin[home];
    int widest = 0;
    for (int i = 0; i < at->nodes; i++)
        if (at->begin[i + 1] - at->begin[i] > widest)
            widest = at->begin[i + 1] - at->begin[i];
    for (int d = 0; d < at->nodes; d++) {
        const int node = (home - d + at->nodes) % at->nodes, first = at->begin[node], n = at->begin[node + 1] - first;
        for (int e = 0; e < n; e++)
            one[e] = x[first + (lane % n - e + n) % n];
        sums[d] = flat(c, widest <= 8 ? PICI_ALGO_RING : PICI_ALGO_RECURSIVE, n, one);
    }
    return flat(c, a == PICI_ALGO_NODES_RING ? PICI_ALGO_RING : PICI_ALGO_RECURSIVE, at->nodes, sums);
}

/* x by position */
static uint64_t reduce(const struct coll_case *c, enum pici_algorithm a, int p, const struct positions *at, int owner,
                       uint64_t *x)
{
    uint64_t before[COLL_RANKS], any = 0, sum;
    for (int i = 0; i < p; i++)
        any |= x[i];
    if (!any)
        return 0;
    for (int i = 0; i < p; i++)
        x[i] = coll_first(c->dtype, c->op, x[i]);
    for (int d = 0; d < p; d++)
        before[d] = x[a == PICI_ALGO_DOUBLING ? d : (owner - d + p) % p];
    sum = by_node(a) ? by_levels(c, a, at, owner, x) : flat(c, a, p, before);
    return c->op == PICI_AVG && p > 1 ? coll_divide(c->dtype, sum, p) : sum;
}

/* Elements [first, first + n) of everyone's sends, owned by a rank, reduced into [at, at + n) of want. */
static void reduce_segment(const struct coll_case *c, enum pici_algorithm a, const struct coll_job *job, int owner,
                           uint64_t first, uint64_t n, void *want, uint64_t at)
{
    const unsigned width = ref_width(c->dtype);
    struct positions ranks;
    order_ranks(c->node_of, job->p, &ranks);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t x[COLL_RANKS];
        for (int k = 0; k < job->p; k++)
            x[k] = ref_load(job->send[ranks.order[k]], first + i, width);
        ref_store(want, at + i, width, reduce(c, a, job->p, &ranks, ranks.position[owner], x));
    }
}

/* Where segment i of n elements begins. */
static uint64_t cut(uint64_t n, uint64_t p, int i)
{
    const uint64_t at = n / p * (uint64_t)i + n % p * (uint64_t)i / p;
    return n >= 64 * 4096 * p && (uint64_t)i < p ? at / 4096 * 4096 : at;
}

/* Where the segment of a rank begins and ends if nodes own equally much. */
static void cut_by_node(const struct coll_case *c, int p, int rank, uint64_t *first, uint64_t *end)
{
    struct positions at;
    order_ranks(c->node_of, p, &at);
    const int position = at.position[rank], node = at.on[position], local = position - at.begin[node];
    const uint64_t begin = cut(c->count, (uint64_t)at.nodes, node),
                   n = cut(c->count, (uint64_t)at.nodes, node + 1) - begin,
                   ranks = (uint64_t)(at.begin[node + 1] - at.begin[node]);
    *first = begin + cut(n, ranks, local);
    *end = begin + cut(n, ranks, local + 1);
}

static void fill(void *send, const struct coll_case *c, uint64_t n, int rank)
{
    const unsigned width = ref_width(c->dtype);
    struct rng r = {c->seed + (uint64_t)rank * UINT64_C(0x632be59bd9b4e019)};
    pattern_fill(send, n, c->dtype, c->pattern, &r);
    if (!floats[c->dtype].exponent)
        return;
    zeros_negate(send, n, c->dtype,
                 c->zeros == ZEROS_NEGATIVE        ? 1000000
                 : c->zeros == ZEROS_HALF_NEGATIVE ? 500000
                                                   : 0,
                 &r);
    for (uint64_t i = 0; i < n && c->tiny; i++) {
        uint64_t v = ref_load(send, i, width), sign = v & sign_of(c->dtype);
        if (v != sign)
            ref_store(send, i, width, sign | (v % 2 + 1));
    }
    if (!c->tame || c->tiny)
        return;
    const uint64_t one = UINT64_C(1) << floats[c->dtype].mantissa, top = (UINT64_C(1) << floats[c->dtype].exponent) - 1;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t v = ref_load(send, i, width), exponent = v / one & top;
        if (v & (sign_of(c->dtype) - 1))
            ref_store(send, i, width, (v & ~(top * one)) | (top / 2 - 2 + exponent % 5) * one);
    }
}

/* Everyone's result by an algorithm: an array for each rank, or one for all. */
static void results(const struct coll_case *c, enum pici_algorithm a, const struct coll_job *job, void **want)
{
    const size_t segment = (size_t)c->count * ref_width(c->dtype);
    const uint64_t p = (uint64_t)job->p;
    if (c->collective != PICI_REDUCE_SCATTER)
        want[0] = test_alloc((size_t)coll_receives(c, job->p) * ref_width(c->dtype));
    for (int i = 0; i < job->p; i++) {
        if (c->collective == PICI_ALL_GATHER) {
            memcpy((uint8_t *)want[0] + (size_t)i * segment, job->send[i], segment);
            if (c->opts.zeros && floats[c->dtype].exponent)
                zeros_clear((uint8_t *)want[0] + (size_t)i * segment, c->count, c->dtype);
        } else if (c->collective == PICI_REDUCE_SCATTER) {
            want[i] = test_alloc(segment);
            reduce_segment(c, a, job, i, (uint64_t)i * c->count, c->count, want[i], 0);
            continue;
        } else {
            uint64_t first = cut(c->count, p, i), end = cut(c->count, p, i + 1);
            if (by_node(a))
                cut_by_node(c, job->p, i, &first, &end);
            reduce_segment(c, a, job, i, first, end - first, want[0], first);
        }
        want[i] = want[0];
    }
}

static void results_free(void **want, int p)
{
    for (int i = p - 1; i >= 0; i--)
        if (i == 0 || want[i] != want[0])
            free(want[i]);
}

/* Whether AUTO takes two levels: with several nodes, one of which has several ranks, from 32 KiB a rank on. */
static int two_levels(const struct coll_case *c, int p)
{
    struct positions at;
    const uint64_t shares = c->collective == PICI_ALL_REDUCE ? (uint64_t)p : 1;
    order_ranks(c->node_of, p, &at);
    return c->opts.algorithm == PICI_ALGO_AUTO && at.nodes > 1 && at.nodes < p &&
           c->count * ref_width(c->dtype) >= shares * (32 << 10);
}

void coll_job_make(struct coll_job *job, const struct coll_case *c, int p)
{
    const enum pici_algorithm a = two_levels(c, p) ? PICI_ALGO_NODES_RECURSIVE : c->opts.algorithm;
    memset(job, 0, sizeof *job);
    job->p = p;
    for (int i = 0; i < p; i++) {
        job->send[i] = test_alloc((size_t)coll_sends(c, p) * ref_width(c->dtype));
        fill(job->send[i], c, coll_sends(c, p), i);
    }
    results(c, a == PICI_ALGO_AUTO ? PICI_ALGO_RING : a, job, job->want);
    if (a == PICI_ALGO_AUTO && c->collective != PICI_ALL_GATHER)
        results(c, PICI_ALGO_RECURSIVE, job, job->other[0]);
    if (a == PICI_ALGO_AUTO && c->collective == PICI_ALL_REDUCE)
        results(c, PICI_ALGO_DOUBLING, job, job->other[1]);
}

void coll_job_free(struct coll_job *job)
{
    for (int i = 0; i < job->p; i++)
        free(job->send[i]);
    results_free(job->want, job->p);
    for (int i = 0; i < 2; i++)
        results_free(job->other[i], job->p);
}

/* ---- a rank ---- */

/* A buffer at any address, as the seed says. */
static uint8_t *place(struct guard *g, size_t bytes, struct rng *r)
{
    const size_t skew = (size_t)rng_below(r, 64);
    const enum guard_side side = rng_next(r) & 1 ? GUARD_END : GUARD_START;
    if (!g->map || g->cap < bytes + skew) {
        if (g->map)
            guard_free(g);
        guard_init(g, bytes + bytes / 4 + 64);
    }
    return guard_place(g, bytes, side, rng_next(r) & 1 ? skew : 0);
}

void coll_rank_place(struct coll_rank *k, const struct coll_case *c, const struct coll_job *job, struct pici_comm *comm)
{
    const size_t width = ref_width(c->dtype), segment = (size_t)c->count * width;
    const size_t sends = (size_t)coll_sends(c, job->p) * width, receives = (size_t)coll_receives(c, job->p) * width;
    const int rank = pici_comm_rank(comm);
    struct rng r = {c->seed ^ (uint64_t)rank};
    uint8_t *send;
    pici_comm_set_nodes(comm, c->node_of);
    if (!c->in_place) {
        send = place(&k->send, sends, &r);
        k->received = place(&k->recv, receives, &r);
        memset(k->received, 0x5c, receives);
    } else if (c->collective == PICI_ALL_GATHER) {
        k->received = place(&k->recv, receives, &r);
        memset(k->received, 0x5c, receives);
        send = (uint8_t *)k->received + (size_t)rank * segment;
    } else { /* all_reduce: the segment is the whole */
        send = place(&k->recv, sends, &r);
        k->received = c->collective == PICI_ALL_REDUCE ? send : send + (size_t)rank * segment;
    }
    memcpy(send, job->send[rank], sends);
    k->sent = send;
    k->opts = c->opts;
    if (c->collective != PICI_ALL_GATHER) /* a test may have changed it after options were drawn */
        k->opts.zeros = PICI_ZEROS_EXACT;
    k->stats = (struct pici_coll_stats)PICI_COLL_STATS_INIT;
    k->opts.stats = &k->stats;
    if (c->own_scratch) {
        k->opts.scratch_bytes = pici_comm_scratch(comm, c->collective, c->count, c->dtype, c->op, &k->opts);
        k->opts.scratch = place(&k->scratch, k->opts.scratch_bytes, &r);
    }
}

enum pici_status coll_rank_call(struct coll_rank *k, const struct coll_case *c, struct pici_comm *comm)
{
    switch (c->collective) {
    case PICI_ALL_GATHER: return pici_all_gather(k->sent, k->received, c->count, c->dtype, comm, &k->opts);
    case PICI_REDUCE_SCATTER:
        return pici_reduce_scatter(k->sent, k->received, c->count, c->dtype, c->op, comm, &k->opts);
    default: return pici_all_reduce(k->sent, k->received, c->count, c->dtype, c->op, comm, &k->opts);
    }
}

enum pici_status coll_rank_start(struct coll_rank *k, const struct coll_case *c, struct pici_comm *comm,
                                 struct pici_request **request)
{
    switch (c->collective) {
    case PICI_ALL_GATHER:
        return pici_all_gather_start(k->sent, k->received, c->count, c->dtype, comm, &k->opts, request);
    case PICI_REDUCE_SCATTER:
        return pici_reduce_scatter_start(k->sent, k->received, c->count, c->dtype, c->op, comm, &k->opts, request);
    default: return pici_all_reduce_start(k->sent, k->received, c->count, c->dtype, c->op, comm, &k->opts, request);
    }
}

/* Not null: where two runs of elements differ, in said. */
static const char *differ(struct coll_rank *k, const char *what, const struct coll_case *c, const void *got,
                          const void *want, uint64_t n)
{
    const unsigned width = ref_width(c->dtype);
    if (memcmp(got, want, (size_t)n * width) == 0)
        return NULL;
    uint64_t i = 0;
    while (ref_load(got, i, width) == ref_load(want, i, width))
        i++;
    snprintf(k->said, sizeof k->said, "%s: element %llu of %llu is %#llx, not %#llx", what, (unsigned long long)i,
             (unsigned long long)n, (unsigned long long)ref_load(got, i, width),
             (unsigned long long)ref_load(want, i, width));
    return k->said;
}

/* The statistics of a call, as far as its options tell. */
static const char *judge_stats(const struct coll_case *c, const struct pici_coll_stats *s, int p)
{
    const struct pici_coll_opts *o = &c->opts;
    const uint64_t sparse = s->sends[PICI_PICI] + s->sends[PICI_COO] + s->sends[PICI_HYBRID],
                   all = sparse + s->sends[PICI_DENSE];
    const int gathers = c->collective != PICI_REDUCE_SCATTER, reduces = c->collective != PICI_ALL_GATHER;
    const int dense = o->format == PICI_DENSE || ((!gathers || o->ag_threshold >= 1) &&
                                                  (!reduces || (o->inter_threshold >= 1 && o->intra_threshold >= 1)));
    const int never =
        (!gathers || o->ag_threshold == 0) && (!reduces || (o->inter_threshold == 0 && o->intra_threshold == 0));
    if (s->size != sizeof *s || s->encode_s < 0 || s->decode_s < 0 || s->wait_s < 0)
        return "statistics that cannot be";
    if (p == 1)
        return all || s->wire_bytes || s->dense_bytes ? "a rank alone sent something" : NULL;
    int alone = 1, together = 1;
    for (int i = 0; i < p; i++)
        for (int j = 0; j < i; j++) {
            alone &= c->node_of[i] != c->node_of[j];
            together &= c->node_of[i] == c->node_of[j];
        }
    if (s->inter_bytes > s->wire_bytes || (alone && s->inter_bytes != s->wire_bytes) || (together && s->inter_bytes))
        return "bytes to other nodes that cannot be";
    if (!all != !c->count)
        return all ? "blocks of nothing were sent" : "no block was sent";
    if (dense && (sparse || s->wire_bytes != s->dense_bytes))
        return "not all was dense";
    if (o->format != PICI_AUTO && o->format != PICI_DENSE && never && s->sends[PICI_DENSE])
        return "something was dense";
    for (unsigned f = PICI_PICI; f <= PICI_HYBRID; f++)
        if (s->sends[f] && (o->format == PICI_AUTO ? o->formats && !(o->formats >> f & 1) : o->format != f))
            return "another format than was asked for";
    uint64_t tiles = 0;
    for (int i = 0; i < PICI_CONTAINERS; i++)
        tiles += s->tiles[i];
    if (tiles && !s->sends[PICI_HYBRID])
        return "tiles of no hybrid block";
    return NULL;
}

const char *coll_rank_judge(struct coll_rank *k, const struct coll_case *c, const struct coll_job *job, int rank)
{
    const size_t width = ref_width(c->dtype), segment = (size_t)c->count * width;
    const uint64_t receives = coll_receives(c, job->p);
    const char *wrong = differ(k, "result", c, k->received, job->want[rank], receives);
    for (int i = 0; i < 2 && wrong; i++)
        if (job->other[i][rank])
            wrong = differ(k, "result", c, k->received, job->other[i][rank], receives);
    if (wrong)
        return wrong;
    if (!c->in_place && (wrong = differ(k, "send buffer", c, k->sent, job->send[rank], coll_sends(c, job->p))))
        return wrong;
    if (c->in_place && c->collective == PICI_REDUCE_SCATTER) {
        const uint64_t before = (uint64_t)rank * c->count, after = coll_sends(c, job->p) - before - c->count;
        const uint8_t *was = job->send[rank];
        if ((wrong = differ(k, "segments before its own", c, k->sent, was, before)) ||
            (wrong = differ(k, "segments after its own", c, (const uint8_t *)k->received + segment,
                            was + (size_t)(before + c->count) * width, after)))
            return wrong;
    }
    if (!guard_intact(&k->recv) || (k->send.map && !guard_intact(&k->send)) ||
        (k->scratch.map && !guard_intact(&k->scratch)))
        return "bytes around a buffer were written";
    return judge_stats(c, &k->stats, job->p);
}

void coll_rank_free(struct coll_rank *k)
{
    struct guard *all[] = {&k->send, &k->recv, &k->scratch};
    for (int i = 0; i < 3; i++)
        if (all[i]->map)
            guard_free(all[i]);
}

/* ---- a rank that fails inside ---- */

static _Thread_local enum coll_limb limb; /* of this rank: what fails, */
static _Thread_local int calls_left;      /* after so many calls */

static int fails(enum coll_limb which)
{
    return limb == which && calls_left-- == 0;
}

static enum pici_status ill_encode(struct pici_lane *lane, uint8_t *message, size_t at, size_t cap, size_t *len,
                                   const void *const *src, const uint64_t *n, int runs, enum pici_dtype dtype,
                                   enum pici_format format, int checksum, int by_value)
{
    return fails(LIMB_ENCODE)
               ? PICI_E_IO
               : pici_engine_host.encode(lane, message, at, cap, len, src, n, runs, dtype, format, checksum, by_value);
}

static enum pici_status ill_decode(struct pici_lane *lane, void *dst, const uint8_t *block, const struct pici_block *b,
                                   uint64_t whole)
{
    return fails(LIMB_DECODE) ? PICI_E_IO : pici_engine_host.decode(lane, dst, block, b, whole);
}

static enum pici_status ill_fold(struct pici_lane *lane, void *dst, const uint8_t *block, const struct pici_block *b,
                                 enum pici_op op, void *temp, uint64_t temp_elements)
{
    return fails(LIMB_FOLD) ? PICI_E_IO : pici_engine_host.fold(lane, dst, block, b, op, temp, temp_elements);
}

enum pici_status coll_rank_call_ill(struct coll_rank *k, const struct coll_case *c, struct pici_comm *comm,
                                    enum coll_limb which, int after, int *failed)
{
    struct pici_engine engine = pici_engine_host;
    engine.encode = ill_encode;
    engine.decode = ill_decode;
    engine.fold = ill_fold;
    limb = which;
    calls_left = after;
    comm->engine = &engine;
    enum pici_status s = coll_rank_call(k, c, comm);
    comm->engine = &pici_engine_host;
    *failed = calls_left < 0;
    return s;
}

/* ---- ranks that are threads ---- */

struct thread_of {
    pthread_t thread;
    void (*fn)(void *context, int rank);
    void *context;
    int rank;
};

static void *thread_main(void *arg)
{
    struct thread_of *t = arg;
    t->fn(t->context, t->rank);
    return NULL;
}

void coll_threads(int p, void (*fn)(void *context, int rank), void *context)
{
    struct thread_of *t = test_alloc((size_t)p * sizeof *t);
    for (int i = 0; i < p; i++) {
        t[i] = (struct thread_of){.fn = fn, .context = context, .rank = i};
        if (pthread_create(&t[i].thread, NULL, thread_main, &t[i]))
            abort();
    }
    for (int i = 0; i < p; i++)
        pthread_join(t[i].thread, NULL);
    free(t);
}

void coll_team_init(struct coll_team *team, int p)
{
    memset(team, 0, sizeof *team);
    team->p = p;
    if (pici_comm_threads(team->comm, p))
        abort();
}

void coll_team_free(struct coll_team *team)
{
    for (int i = 0; i < team->p; i++) {
        pici_comm_free(team->comm[i]);
        coll_rank_free(&team->rank[i]);
    }
}

struct check {
    struct coll_team *team;
    const struct coll_case *c;
    struct coll_job job;
    enum pici_status status[COLL_RANKS];
    const char *wrong[COLL_RANKS];
};

static void check_rank(void *context, int rank)
{
    struct check *check = context;
    struct coll_rank *k = &check->team->rank[rank];
    struct pici_comm *comm = check->team->comm[rank];
    coll_rank_place(k, check->c, &check->job, comm);
    check->status[rank] = coll_rank_call(k, check->c, comm);
    if (check->status[rank] == PICI_OK)
        check->wrong[rank] = coll_rank_judge(k, check->c, &check->job, rank);
    else
        check->wrong[rank] = pici_comm_error(comm);
}

const char *coll_team_check(struct coll_team *team, const struct coll_case *c)
{
    static char said[1200];
    struct check check = {.team = team, .c = c};
    const char *wrong = NULL;
    coll_job_make(&check.job, c, team->p);
    coll_threads(team->p, check_rank, &check);
    for (int i = 0; i < team->p && !wrong; i++)
        if (check.wrong[i]) {
            snprintf(said, sizeof said, "%s: rank %d: %s: %s", coll_case_words(c, team->p), i,
                     pici_strerror(check.status[i]), check.wrong[i]);
            wrong = said;
        }
    coll_job_free(&check.job);
    return wrong;
}

/* ---- in flight ---- */

enum { FLIGHTS = 7 };

enum style { BACKWARDS, SHUFFLED, BY_TURNS, BLOCKING, STYLES };

struct flight {
    uint64_t seed;
    struct pici_comm *comm[COLL_RANKS];
    struct coll_case c[FLIGHTS];
    struct coll_job job[FLIGHTS];
    struct coll_rank rank[COLL_RANKS][FLIGHTS];
    const char *wrong[COLL_RANKS];
};

static void landed(struct flight *f, int rank, int i, enum pici_status status, const struct pici_request *request)
{
    const char *wrong = status    ? pici_strerror(status)
                        : request ? "a request that was not freed"
                                  : coll_rank_judge(&f->rank[rank][i], &f->c[i], &f->job[i], rank);
    if (!f->wrong[rank])
        f->wrong[rank] = wrong;
}

static void by_turns(struct flight *f, int rank, struct pici_request **request)
{
    const struct timespec nap = {0, 50000};
    int ended[FLIGHTS] = {0};
    for (int left = FLIGHTS; left; nanosleep(&nap, NULL)) /* leaves the processor to the ranks that it waits for */
        for (int i = 0; i < FLIGHTS; i++) {
            int done;
            enum pici_status status = pici_test(&request[i], &done);
            if (ended[i] || !done)
                continue;
            ended[i] = 1;
            left--;
            landed(f, rank, i, status, request[i]);
        }
}

static void fly(void *context, int rank)
{
    struct flight *f = context;
    struct pici_request *request[FLIGHTS] = {NULL};
    struct rng rng = {f->seed + (uint64_t)rank};
    const enum style style = (enum style)rng_below(&rng, STYLES);
    const int blocking = style == BLOCKING ? FLIGHTS / 2 : -1;
    int order[FLIGHTS];
    for (int i = 0; i < FLIGHTS; i++) {
        struct coll_rank *k = &f->rank[rank][i];
        coll_rank_place(k, &f->c[i], &f->job[i], f->comm[rank]);
        if (i == blocking)
            landed(f, rank, i, coll_rank_call(k, &f->c[i], f->comm[rank]), NULL);
        else if (coll_rank_start(k, &f->c[i], f->comm[rank], &request[i]))
            landed(f, rank, i, PICI_E_BROKEN, NULL);
    }
    for (int i = 0; i < FLIGHTS; i++)
        order[i] = style == BACKWARDS ? FLIGHTS - 1 - i : i;
    for (int i = FLIGHTS - 1; i > 0 && style == SHUFFLED; i--) {
        int j = (int)rng_below(&rng, (uint64_t)i + 1), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    if (style == BY_TURNS)
        by_turns(f, rank, request);
    for (int i = 0; i < FLIGHTS && style != BY_TURNS; i++)
        if (order[i] != blocking) {
            enum pici_status status = pici_wait(&request[order[i]]);
            landed(f, rank, order[i], status, request[order[i]]);
        }
}

const char *coll_flight_check(int p, uint64_t seed)
{
    static char said[400];
    struct flight *f = test_alloc(sizeof *f);
    struct rng rng = {seed};
    memset(f, 0, sizeof *f);
    f->seed = seed;
    if (pici_comm_threads(f->comm, p))
        abort();
    for (int i = 0; i < FLIGHTS; i++) {
        struct coll_case *c = &f->c[i];
        c->count = rng_below(&rng, rng_chance(&rng, 300000) ? 20000 : 900);
        coll_case_random(c, &rng, p);
        memcpy(c->node_of, f->c[0].node_of, sizeof c->node_of); /* cannot change while one is in flight */
        coll_job_make(&f->job[i], c, p);
    }
    coll_threads(p, fly, f);
    said[0] = 0;
    for (int i = 0; i < p; i++) {
        if (f->wrong[i] && !said[0])
            snprintf(said, sizeof said, "rank %d: %s (%s)", i, f->wrong[i], pici_comm_error(f->comm[i]));
        for (int j = 0; j < FLIGHTS; j++)
            coll_rank_free(&f->rank[i][j]);
        pici_comm_free(f->comm[i]);
    }
    for (int i = 0; i < FLIGHTS; i++)
        coll_job_free(&f->job[i]);
    free(f);
    return said[0] ? said : NULL;
}
