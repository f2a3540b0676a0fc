/* SPDX-License-Identifier: BSD-3-Clause */
#include "coll.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/ref.h"
#include "schedule.h"

/* ---- a call ---- */

const enum pici_collective coll_collectives[COLL_COLLECTIVES] = {PICI_ALL_GATHER, PICI_REDUCE_SCATTER, PICI_ALL_REDUCE,
                                                                 PICI_BROADCAST, PICI_ALL_GATHERV};

int coll_is_gather(enum pici_collective collective)
{
    return collective == PICI_ALL_GATHER || collective == PICI_BROADCAST || collective == PICI_ALL_GATHERV;
}

int coll_slots(const struct coll_case *c, int p, int rank, uint64_t counts[COLL_RANKS], uint64_t displs[COLL_RANKS])
{
    struct rng r = {c->seed ^ 0xc0de}, own = {c->seed + (uint64_t)rank};
    const int packed = (int)rng_below(&r, 2);
    uint64_t next = 0;
    for (int i = 0; i < p; i++) {
        const uint64_t choices[] = {0, c->count, c->count, c->count / 2, rng_below(&r, c->count + 1)};
        counts[i] = choices[rng_below(&r, 5)];
    }
    const uint64_t first = packed ? 0 : rng_below(&own, (uint64_t)p), up = packed || rng_below(&own, 2);
    for (int i = 0; i < p; i++) { /* from some rank on, up or down */
        const uint64_t to = (first + (up ? (uint64_t)i : (uint64_t)(p - i))) % (uint64_t)p;
        next += packed ? 0 : rng_below(&own, 4);
        displs[to] = next;
        next += counts[to];
    }
    return packed;
}

int coll_algorithms(void)
{
    int n = 0;
    while (pici_algorithm_name((enum pici_algorithm)(n + 1)))
        n++;
    return n;
}

int coll_has(enum pici_algorithm a, enum pici_collective collective)
{
    return a == PICI_ALGO_AUTO || pici_schedule_for(a, collective);
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
    static const enum pici_format formats[] = {PICI_AUTO, PICI_HYBRID, PICI_BITMAP, PICI_COO, PICI_AUTO, PICI_DENSE};
    static const double bandwidths[] = {0, 1, 1e9, 1e18};
    static const float thresholds[] = {-1, 0, 1, 0.5f};
    static const uint64_t slices[] = {0, 1, 16384, 20000, 65536};
    struct pici_coll_opts *o = &c->opts;
    const enum pici_algorithm algorithm = o->algorithm;
    *o = (struct pici_coll_opts)PICI_COLL_OPTS_INIT;
    o->algorithm = algorithm;
    o->format = formats[rng_below(r, 6)];
    o->formats = rng_chance(r, 500000) ? 0 : 1u << PICI_BITMAP << rng_below(r, 3) | (unsigned)rng_below(r, 16);
    o->inter_bandwidth = bandwidths[rng_below(r, 4)];
    o->intra_bandwidth = bandwidths[rng_below(r, 4)];
    o->inter_threshold = thresholds[rng_below(r, 4)];
    o->intra_threshold = rng_chance(r, 700000) ? o->inter_threshold : thresholds[rng_below(r, 4)];
    o->ag_threshold = rng_chance(r, 700000) ? o->inter_threshold : thresholds[rng_below(r, 4)];
    o->checksum = rng_chance(r, 250000) ? 1 : -(int)rng_below(r, 2);
    o->slice_bytes = slices[rng_below(r, 5)];
    o->window = (int)rng_below(r, 6);
    o->pack = (enum pici_packing)rng_below(r, 4);
    c->pattern = (enum pattern)rng_below(r, PATTERNS);
    c->seed = rng_next(r);
    c->tame = (int)rng_below(r, 2);
    c->in_place = (int)rng_below(r, 2);
    c->own_scratch = rng_chance(r, 300000);
    c->zeros = rng_chance(r, 300000) ? ZEROS_HALF_NEGATIVE : ZEROS_PLAIN;
    c->tiny = rng_chance(r, 100000);
    c->root = (int)rng_below(r, (uint64_t)p);
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
    c->collective = coll_collectives[rng_below(r, COLL_COLLECTIVES)];
    c->opts.algorithm = coll_algorithm(rng_below(r, (uint64_t)coll_algorithms()), c->collective);
    c->dtype = (enum pici_dtype)(1 + rng_below(r, 14));
    c->op = (enum pici_op)rng_below(r, 4);
    coll_case_options(c, r, p);
    if (coll_is_gather(c->collective))
        c->opts.zeros = (enum pici_zeros)rng_below(r, 2);
}

static const char *collective_name(enum pici_collective c)
{
    static const char *const names[] = {[PICI_ALL_GATHER] = "all_gather",
                                        [PICI_REDUCE_SCATTER] = "reduce_scatter",
                                        [PICI_ALL_REDUCE] = "all_reduce",
                                        [PICI_BROADCAST] = "broadcast",
                                        [PICI_ALL_GATHERV] = "all_gatherv"};
    return names[c];
}

const char *coll_case_words(const struct coll_case *c, int p)
{
    static const char *const ops[] = {"sum", "avg", "min", "max"};
    static const char *const zeros[] = {"", " half of zeros negative", " zeros negative"};
    static char words[600];
    const struct pici_coll_opts *o = &c->opts;
    int n = snprintf(
        words, sizeof words,
        "%s %s %s algorithm %d ranks %d root %d count %llu %s seed %llu%s%s%s%s format %s thresholds %g %g %g "
        "checksum %d slice %llu window %d formats %#x bandwidths %g %g pack %d zeros %d nodes",
        collective_name(c->collective), pici_dtype_name(c->dtype), ops[c->op], (int)o->algorithm, p, c->root,
        (unsigned long long)c->count, pattern_name(c->pattern), (unsigned long long)c->seed, zeros[c->zeros],
        c->tiny   ? " tiny"
        : c->tame ? " tame"
                  : "",
        c->in_place ? " in place" : "", c->own_scratch ? " own scratch" : "", pici_format_name(o->format),
        o->inter_threshold, o->intra_threshold, o->ag_threshold, o->checksum, (unsigned long long)o->slice_bytes,
        o->window, o->formats, o->inter_bandwidth, o->intra_bandwidth, (int)o->pack, (int)o->zeros);
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
    if (c->collective == PICI_ALL_GATHERV)
        return (c->count + 4) * (uint64_t)p;
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

uint64_t coll_reduce(enum pici_dtype t, enum pici_op op, uint64_t a, uint64_t b)
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
struct virtual_ranks {
    int order[COLL_RANKS];                        /* virtual_rank to rank */
    int nodes, begin[COLL_RANKS + 1];             /* of each node: its first virtual_rank */
    int virtual_rank[COLL_RANKS], on[COLL_RANKS]; /* rank to virtual_rank; virtual_rank to node */
};

static void order_ranks(const int *node_of, int p, struct virtual_ranks *at)
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
        at->virtual_rank[i] = before;
    }
    at->nodes = 0;
    for (int i = 0; i < p; i++) {
        if (i == 0 || lowest[at->order[i]] != lowest[at->order[i - 1]])
            at->begin[at->nodes++] = i;
        at->on[i] = at->nodes - 1;
    }
    at->begin[at->nodes] = p;
}

/* x[i]: of virtual_rank i. Of the first positions some give what they have to the next one, so that a power of two is
 * left. Then neighbours are passed into one, the higher into the lower, again and again. */
static void reduce_doubling(const struct coll_case *c, int p, uint64_t *x)
{
    int left = 1;
    while (2 * left <= p)
        left *= 2;
    for (int i = 0; i < left; i++)
        x[i] = i < p - left ? coll_reduce(c->dtype, c->op, x[2 * i + 1], x[2 * i]) : x[i + p - left];
    for (; left > 1; left /= 2)
        for (int i = 0; i < left / 2; i++)
            x[i] = coll_reduce(c->dtype, c->op, x[2 * i], x[2 * i + 1]);
}

/* What the owner of an element ends with; x[d]: of the rank d positions before the owner, itself being d == 0; doubling
 * has no owners. x is used up. Ring: a partial sum travels up the positions, and each rank reduces what it received
 * into its own. Recursive: the last of the positions halve again and again, each handing what it has to one that stays.
 * Split: the owner reduces everyone's own contributions, those of lower positions first. */
static uint64_t flat(const struct coll_case *c, enum pici_algorithm a, int p, uint64_t *x)
{
    if (a == PICI_ALGO_RING)
        for (int d = p - 1; d > 0; d--)
            x[d - 1] = coll_reduce(c->dtype, c->op, x[d - 1], x[d]);
    if (a == PICI_ALGO_DOUBLING)
        reduce_doubling(c, p, x);
    for (int d = 1; a == PICI_ALGO_SPLIT && d < p; d++)
        x[0] = coll_reduce(c->dtype, c->op, x[0], x[d]);
    for (int s = p, half; a == PICI_ALGO_RECURSIVE && s > 1; s = half) {
        half = (s + 1) / 2;
        for (int d = 0; d + half < s; d++)
            x[d] = coll_reduce(c->dtype, c->op, x[d], x[d + half]);
    }
    return x[0];
}

static int by_node(enum pici_algorithm a)
{
    return pici_schedule(a)->by_node;
}

/* The same on two levels; x by virtual_rank. The owner is rank l of its node: on each other node, rank l modulo the
 * node's size gathers the node's sum. Then these sums are added. */
static uint64_t by_levels(const struct coll_case *c, enum pici_algorithm a, const struct virtual_ranks *at, int owner,
                          const uint64_t *x)
{
    uint64_t sums[COLL_RANKS], one[COLL_RANKS];
    const int home = at->on[owner], rail = owner - at->begin[home];
    int widest = 0;
    for (int i = 0; i < at->nodes; i++)
        if (at->begin[i + 1] - at->begin[i] > widest)
            widest = at->begin[i + 1] - at->begin[i];
    for (int d = 0; d < at->nodes; d++) {
        const int node = (home - d + at->nodes) % at->nodes, first = at->begin[node], n = at->begin[node + 1] - first;
        for (int e = 0; e < n; e++)
            one[e] = x[first + (rail % n - e + n) % n];
        sums[d] = flat(c, widest <= 8 ? PICI_ALGO_RING : PICI_ALGO_RECURSIVE, n, one);
    }
    return flat(c, a == PICI_ALGO_NODES_RING ? PICI_ALGO_RING : PICI_ALGO_RECURSIVE, at->nodes, sums);
}

/* An addition in a step: of what a virtual_rank had before the step to what another one has; or the other way round. */
struct addition {
    int step, to, from, reversed;
};

/* How a schedule says that a segment is added up: the order of algorithms that are not written down above. */
struct order {
    int additions;
    struct addition addition[COLL_RANKS * COLL_RANKS];
};

static void order_of(const struct coll_case *c, enum pici_algorithm a, int p, const struct virtual_ranks *at, int owner,
                     struct order *o)
{
    const struct schedule *s = pici_schedule(a);
    const struct schedule_nodes nodes = {at->nodes, at->begin};
    struct schedule_call call = {.kind = c->collective, .ranks = p, .nodes = &nodes};
    struct schedule_limits l;
    call.bytes = c->count * ref_width(c->dtype) * (c->collective == PICI_ALL_REDUCE ? 1 : (uint64_t)p);
    s->limits(s, &call, &l);
    struct schedule_step *step = schedule_room(&l, p);
    o->additions = 0;
    for (int k = 0; k < s->steps(s, &call); k++)
        for (call.virtual_rank = 0; call.virtual_rank < p; call.virtual_rank++) {
            s->step(s, &call, k, step);
            for (int i = 0; i < step->receives && step->phase == PHASE_REDUCE; i++)
                for (int j = 0; j < step->receive[i].count; j++)
                    if (step->receive[i].segments[j] == (s->undivided ? 0 : owner))
                        o->addition[o->additions++] =
                            (struct addition){k, call.virtual_rank, step->receive[i].peer,
                                              step->receive[i].action == RECEIVE_REDUCE_REVERSED};
        }
    free(step);
}

static uint64_t in_order(const struct coll_case *c, const struct order *o, int p, const uint64_t *x)
{
    uint64_t sum[COLL_RANKS], before[COLL_RANKS];
    const struct addition *a = o->addition;
    memcpy(sum, x, (size_t)p * sizeof *sum);
    for (int i = 0; i < o->additions; i++, a++) {
        if (!i || a->step != a[-1].step)
            memcpy(before, sum, (size_t)p * sizeof *sum);
        sum[a->to] = a->reversed ? coll_reduce(c->dtype, c->op, before[a->from], sum[a->to])
                                 : coll_reduce(c->dtype, c->op, sum[a->to], before[a->from]);
    }
    return sum[o->additions ? a[-1].to : 0];
}

/* x by virtual_rank; o: as the schedule says, or NULL. */
static uint64_t reduce(const struct coll_case *c, enum pici_algorithm a, int p, const struct virtual_ranks *at,
                       int owner, const struct order *o, uint64_t *x)
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
    if (o && a <= PICI_ALGO_NODES_RECURSIVE && in_order(c, o, p, x) != sum) {
        fprintf(stderr, "%s does not add in the order of its schedule\n", pici_algorithm_name(a));
        abort();
    }
    sum = a > PICI_ALGO_NODES_RECURSIVE ? in_order(c, o, p, x) : sum;
    return c->op == PICI_AVG && p > 1 ? coll_divide(c->dtype, sum, p) : sum;
}

/* Elements [first, first + n) of everyone's sends, owned by a rank, reduced into [at, at + n) of want. */
static void reduce_segment(const struct coll_case *c, enum pici_algorithm a, const struct coll_job *job, int owner,
                           uint64_t first, uint64_t n, void *want, uint64_t at)
{
    const unsigned width = ref_width(c->dtype);
    struct virtual_ranks ranks;
    struct order o;
    order_ranks(c->node_of, job->p, &ranks);
    if (n)
        order_of(c, a, job->p, &ranks, ranks.virtual_rank[owner], &o);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t x[COLL_RANKS];
        for (int k = 0; k < job->p; k++)
            x[k] = ref_load(job->send[ranks.order[k]], first + i, width);
        ref_store(want, at + i, width,
                  reduce(c, a, job->p, &ranks, ranks.virtual_rank[owner],
                         i == 0 || a > PICI_ALGO_NODES_RECURSIVE ? &o : NULL, x));
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
    struct virtual_ranks at;
    order_ranks(c->node_of, p, &at);
    const int virtual_rank = at.virtual_rank[rank], node = at.on[virtual_rank], local = virtual_rank - at.begin[node];
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

/* What rank i ends with: everyone's contribution in its place, among untouched bytes. */
static void *gatherv_result(const struct coll_case *c, const struct coll_job *job, int i)
{
    const size_t width = ref_width(c->dtype), bytes = (size_t)coll_receives(c, job->p) * width;
    uint64_t counts[COLL_RANKS], displs[COLL_RANKS];
    uint8_t *all = test_alloc(bytes);
    memset(all, COLL_UNTOUCHED, bytes);
    coll_slots(c, job->p, i, counts, displs);
    for (int j = 0; j < job->p; j++) {
        uint8_t *slot = all + displs[j] * width;
        memcpy(slot, job->send[j], (size_t)counts[j] * width);
        if (c->opts.zeros && floats[c->dtype].exponent)
            zeros_clear(slot, counts[j], c->dtype);
    }
    return all;
}

/* Everyone's result by an algorithm: an array for each rank, or one for all. */
static void results(const struct coll_case *c, enum pici_algorithm a, const struct coll_job *job, void **want)
{
    const size_t segment = (size_t)c->count * ref_width(c->dtype);
    const uint64_t p = (uint64_t)job->p;
    if (c->collective != PICI_REDUCE_SCATTER && c->collective != PICI_ALL_GATHERV)
        want[0] = test_alloc((size_t)coll_receives(c, job->p) * ref_width(c->dtype));
    if (c->collective == PICI_BROADCAST) {
        memcpy(want[0], job->send[c->root], segment);
        if (c->opts.zeros && floats[c->dtype].exponent)
            zeros_clear(want[0], c->count, c->dtype);
    }
    for (int i = 0; i < job->p; i++) {
        if (c->collective == PICI_ALL_GATHERV) {
            want[i] = gatherv_result(c, job, i);
            continue;
        } else if (c->collective == PICI_ALL_GATHER) {
            memcpy((uint8_t *)want[0] + (size_t)i * segment, job->send[i], segment);
            if (c->opts.zeros && floats[c->dtype].exponent)
                zeros_clear((uint8_t *)want[0] + (size_t)i * segment, c->count, c->dtype);
        } else if (c->collective == PICI_REDUCE_SCATTER) {
            want[i] = test_alloc(segment);
            reduce_segment(c, a, job, i, (uint64_t)i * c->count, c->count, want[i], 0);
            continue;
        } else if (c->collective == PICI_ALL_REDUCE) {
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
    struct virtual_ranks at;
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
    if (a == PICI_ALGO_AUTO && !coll_is_gather(c->collective))
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
