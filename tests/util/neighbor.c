/* SPDX-License-Identifier: BSD-3-Clause */
#include "neighbor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "values/values.h"

/* A lossy codec, if it has one of the dtype. */
static void random_values(struct neighbor_case *c, struct rng *r)
{
    static const int bits[] = {2, 4, 8};
    struct values resolved;
    c->values.codec = (enum pici_value_codec)(PICI_VALUES_CAST + (int)rng_below(r, 3));
    c->values.phases = rng_chance(r, 200000) ? 0 : 2;
    if (c->values.codec == PICI_VALUES_QSGD) {
        c->values.bits = bits[rng_below(r, 3)];
        c->values.rounding = PICI_ROUND_NEAREST;
    }
    if (c->values.codec == PICI_VALUES_ZFP)
        c->values.rate = 4 + (double)rng_below(r, 12);
    if (pici_values_resolve(&resolved, &c->values, c->dtype, PICI_SUM))
        c->values = (struct pici_values)PICI_VALUES_INIT;
}

void neighbor_case_random(struct neighbor_case *c, struct rng *r, int p, uint64_t most)
{
    static const uint32_t densities[] = {0, 50000, 100000, 200000, 300000, 500000, 700000, 1000000};
    static const uint64_t counts[] = {0, 1, 2, 4095, 4096, 4097};
    static const enum pici_format formats[] = {PICI_AUTO, PICI_AUTO, PICI_HYBRID, PICI_BITMAP, PICI_COO, PICI_DENSE};
    static const float thresholds[] = {-1, 0, 1};
    static const uint64_t slices[] = {0, 1, 20000, 65536};
    const uint32_t density = densities[rng_below(r, 8)];
    const int per_node = 1 + (int)rng_below(r, 5), twice = rng_chance(r, 300000), loops = rng_chance(r, 300000);
    const uint64_t one = rng_chance(r, 500000) ? counts[rng_below(r, 6)] : rng_below(r, most + 1);
    memset(c, 0, sizeof *c);
    c->p = p;
    c->seed = rng_next(r);
    for (int i = 0; i < p; i++) {
        for (int j = 0; j < p; j++) {
            if (i == j ? loops && rng_chance(r, 500000) : rng_chance(r, density))
                c->times[i][j] = (unsigned char)(1 + (twice && rng_chance(r, 200000)));
        }
        c->node_of[i] = per_node == 5 ? (int)rng_below(r, (uint64_t)p) : i / per_node;
    }
    c->plan = (struct pici_neighbor_opts)PICI_NEIGHBOR_OPTS_INIT;
    c->plan.route = (enum pici_route)rng_below(r, 3);
    c->plan.leaf = rng_chance(r, 500000) ? 0 : 1 + (int)rng_below(r, 3);
    c->plan.gain = (int)rng_below(r, 4);
    c->dtype = (enum pici_dtype)(1 + rng_below(r, 14));
    c->varied = (int)rng_below(r, 2);
    for (int i = 0; i < p; i++) {
        c->count[i] = !c->varied || rng_chance(r, 300000) ? one : rng_below(r, most + 1);
        c->pattern[i] = (enum pattern)rng_below(r, PATTERNS);
    }
    if (c->varied && rng_chance(r, 500000))
        c->plan.most_bytes = (most > 4097 ? most : 4097) * 8;
    c->opts = (struct pici_coll_opts)PICI_COLL_OPTS_INIT;
    c->values = (struct pici_values)PICI_VALUES_INIT;
    c->opts.format = formats[rng_below(r, 6)];
    c->opts.ag_threshold = thresholds[rng_below(r, 3)];
    c->opts.checksum = rng_chance(r, 500000) ? 1 : -1;
    c->opts.slice_bytes = slices[rng_below(r, 4)];
    c->opts.window = (int)rng_below(r, 6);
    c->opts.agree = (int)rng_below(r, 2);
    if (rng_chance(r, 300000))
        random_values(c, r);
    const int regions = 1 + (int)rng_below(r, 3);
    c->plan.level = rng_chance(r, 500000) ? PICI_LEVEL_REGION : (enum pici_level)rng_below(r, 3);
    for (int i = 0; i < p; i++)
        c->region_of[i] = (int)rng_below(r, (uint64_t)regions) - 1;
}

const char *neighbor_case_words(const struct neighbor_case *c)
{
    static char words[600];
    int n = snprintf(
        words, sizeof words,
        "neighbours: %d ranks seed %llu route %d leaf %d gain %d level %d most_bytes %llu %s%s format %s slice %llu "
        "window %d agree %d codec %d counts",
        c->p, (unsigned long long)c->seed, (int)c->plan.route, c->plan.leaf, c->plan.gain, (int)c->plan.level,
        (unsigned long long)c->plan.most_bytes, c->varied ? "varied " : "", pici_dtype_name(c->dtype),
        pici_format_name(c->opts.format), (unsigned long long)c->opts.slice_bytes, c->opts.window, c->opts.agree,
        (int)c->values.codec);
    for (int i = 0; i < c->p && n < (int)sizeof words - 24; i++)
        n += snprintf(words + n, sizeof words - (size_t)n, " %llu", (unsigned long long)c->count[i]);
    return words;
}

/* The contribution of a rank; the caller frees it. */
static void *contribution(const struct neighbor_case *c, int rank)
{
    struct rng r = {c->seed * 31 + (uint64_t)rank};
    void *data = test_alloc((size_t)c->count[rank] * pici_dtype_width(c->dtype));
    pattern_fill(data, c->count[rank], c->dtype, c->pattern[rank], &r);
    return data;
}

/* What the destinations of a rank receive of it: what a lossy codec makes of it. A rank without any does not encode. */
static void *received(const struct neighbor_case *c, int rank)
{
    const struct values_where context = {.gather = 1};
    struct values values;
    void *data = contribution(c, rank), *arrays[VALUES_ARRAYS] = {NULL};
    const uint64_t count = c->count[rank];
    uint64_t made[VALUES_ARRAYS] = {0};
    int destinations = 0;
    for (int i = 0; i < c->p; i++)
        destinations += i != rank && c->times[rank][i];
    if (pici_values_resolve(&values, c->values.codec ? &c->values : NULL, c->dtype, PICI_SUM))
        abort();
    if (!values.phases || !destinations)
        return data;
    uint8_t *decoded = test_alloc((size_t)count * pici_dtype_width(c->dtype));
    for (int i = 0; i < values.codec->arrays; i++)
        arrays[i] = test_alloc((size_t)values.codec->most(&values, i, count) *
                               pici_dtype_width(values.codec->dtype(&values, i)));
    if (values.codec->quantize(&values, &context, arrays, made, data, count, NULL) ||
        values.codec->dequantize(&values, decoded, 0, count, count, (const void *const *)arrays, made))
        abort();
    for (int i = 0; i < values.codec->arrays; i++)
        free(arrays[i]);
    free(data);
    return decoded;
}

static void shuffle(int *list, int n, struct rng *r)
{
    for (int i = n - 1; i > 0; i--) {
        const int j = (int)rng_below(r, (uint64_t)i + 1), was = list[i];
        list[i] = list[j];
        list[j] = was;
    }
}

void neighbor_rank_init(struct neighbor_rank *k, const struct neighbor_case *c, int rank)
{
    const size_t width = pici_dtype_width(c->dtype);
    struct rng r = {c->seed + 1000 + (uint64_t)rank};
    memset(k, 0, sizeof *k);
    k->rank = rank;
    for (int i = 0; i < c->p; i++) {
        for (int t = 0; t < c->times[i][rank]; t++)
            k->source[k->sources++] = i;
        for (int t = 0; t < c->times[rank][i]; t++)
            k->destination[k->destinations++] = i;
    }
    shuffle(k->source, k->sources, &r);
    shuffle(k->destination, k->destinations, &r);
    uint64_t at = 0;
    for (int i = 0; i < k->sources; i++) { /* slots of all_gatherv: with gaps, and the other way round */
        const int slot = c->varied ? k->sources - 1 - i : i;
        k->recvcounts[slot] = c->count[k->source[slot]];
        at += c->varied ? rng_below(&r, 3) : 0;
        k->displs[slot] = at;
        at += k->recvcounts[slot];
    }
    k->bytes = (size_t)(at + 2) * width;
    k->recv = test_alloc(k->bytes);
    memset(k->recv, 0x5c, k->bytes);
    k->sent = contribution(c, rank);
    k->send = contribution(c, rank);
    k->opts = c->opts;
    k->stats = (struct pici_coll_stats)PICI_COLL_STATS_INIT;
    k->opts.stats = &k->stats;
    k->opts.values = c->values.codec ? &c->values : NULL;
}

void neighbor_rank_free(struct neighbor_rank *k)
{
    free(k->recv);
    free(k->send);
    free(k->sent);
}

enum pici_status neighbor_rank_plan(struct neighbor_rank *k, const struct neighbor_case *c, struct pici_comm *comm,
                                    struct pici_neighbor_plan **plan)
{
    struct pici_neighbor_opts opts = c->plan;
    enum pici_status s = pici_comm_set_nodes(comm, c->node_of);
    opts.region = c->region_of[k->rank];
    return s ? s : pici_neighbor_plan_create(plan, comm, k->sources, k->source, k->destinations, k->destination, &opts);
}

enum pici_status neighbor_rank_call(struct neighbor_rank *k, const struct neighbor_case *c,
                                    struct pici_neighbor_plan *plan)
{
    return c->varied ? pici_neighbor_all_gatherv(k->send, c->count[k->rank], k->recv, k->recvcounts, k->displs,
                                                 c->dtype, plan, &k->opts)
                     : pici_neighbor_all_gather(k->send, k->recv, c->count[k->rank], c->dtype, plan, &k->opts);
}

enum pici_status neighbor_rank_start(struct neighbor_rank *k, const struct neighbor_case *c,
                                     struct pici_neighbor_plan *plan, struct pici_request **request)
{
    return c->varied
               ? pici_neighbor_all_gatherv_start(k->send, c->count[k->rank], k->recv, k->recvcounts, k->displs,
                                                 c->dtype, plan, &k->opts, request)
               : pici_neighbor_all_gather_start(k->send, k->recv, c->count[k->rank], c->dtype, plan, &k->opts, request);
}

const char *neighbor_rank_judge(struct neighbor_rank *k, const struct neighbor_case *c)
{
    const size_t width = pici_dtype_width(c->dtype);
    uint8_t *want = test_alloc(k->bytes);
    memset(want, 0x5c, k->bytes);
    for (int i = 0; i < k->sources; i++) {
        uint8_t *data = received(c, k->source[i]);
        if (k->recvcounts[i])
            memcpy(want + k->displs[i] * width, data, (size_t)k->recvcounts[i] * width);
        free(data);
    }
    size_t at = 0;
    while (at < k->bytes && want[at] == k->recv[at])
        at++;
    free(want);
    if (at < k->bytes) {
        snprintf(k->said, sizeof k->said, "rank %d: byte %zu of %zu is wrong", k->rank, at, k->bytes);
        return k->said;
    }
    if (c->count[k->rank] && memcmp(k->send, k->sent, (size_t)c->count[k->rank] * width) != 0)
        return "the send buffer was written";
    int others = 0; /* blocks that are not dense ones of the elements */
    for (int format = 0; format < PICI_FORMATS_ROOM; format++)
        others |= format != PICI_DENSE && k->stats.sends[format];
    if (!c->values.codec && !others && k->stats.wire_bytes != k->stats.dense_bytes) {
        snprintf(k->said, sizeof k->said, "rank %d sent %llu bytes in dense blocks, and they count as %llu", k->rank,
                 (unsigned long long)k->stats.wire_bytes, (unsigned long long)k->stats.dense_bytes);
        return k->said;
    }
    return NULL;
}
