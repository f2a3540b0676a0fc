/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives with lossy codecs: all ranks have the same bytes, nothing is lost that the residuals do not have, and
 * errors are those of the algorithm. */
#define _POSIX_C_SOURCE 200809L
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/util/coll.h"
#include "tests/util/coll_values.h"
#include "values/values.h"

enum { WATCHDOG_S = 600 };

static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 17};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* ---- ranks in threads, which make one call after the other ---- */

struct team {
    int p;
    struct pici_comm *comm[COLL_RANKS];
    struct values_case c;
    struct values_rank rank[COLL_RANKS];
    enum pici_status status[COLL_RANKS];
    pthread_barrier_t barrier;
    const char *(*judge)(struct team *); /* of rank 0, after each call; NULL: all is well */
    int (*next)(struct team *);          /* the next case; 0: there is none */
    int at, going;
    char wrong[600]; /* the first thing */
    uint64_t calls;
    double square[2];
};

static void team_rank(void *context, int rank)
{
    struct team *t = context;
    for (;;) {
        if (rank == 0)
            t->going = !t->wrong[0] && t->next(t);
        pthread_barrier_wait(&t->barrier);
        if (!t->going)
            return;
        values_rank_make(&t->rank[rank], &t->c, rank, t->p);
        t->status[rank] = values_rank_call(&t->rank[rank], &t->c, t->comm[rank]);
        pthread_barrier_wait(&t->barrier);
        if (rank == 0) {
            const char *wrong = t->judge(t);
            if (wrong)
                snprintf(t->wrong, sizeof t->wrong, "%s", wrong);
            t->calls++;
        }
        pthread_barrier_wait(&t->barrier);
        values_rank_free(&t->rank[rank]);
    }
}

/* nodes: how many ranks share one; 0: each has its own. */
static void team_run(struct team *t, int p, int nodes)
{
    int node_of[COLL_RANKS];
    t->p = p;
    t->at = 0;
    alarm(WATCHDOG_S);
    if (pici_comm_threads(t->comm, p) || pthread_barrier_init(&t->barrier, NULL, (unsigned)p))
        abort();
    for (int i = 0; i < p; i++)
        node_of[i] = nodes ? i / nodes : i;
    for (int i = 0; i < p; i++)
        if (pici_comm_set_nodes(t->comm[i], node_of))
            abort();
    coll_threads(p, team_rank, t);
    for (int i = 0; i < p; i++)
        pici_comm_free(t->comm[i]);
    pthread_barrier_destroy(&t->barrier);
    cr_assert(!t->wrong[0], "%s", t->wrong);
}

static const char *failed(const struct team *t)
{
    static char said[500];
    for (int i = 0; i < t->p; i++)
        if (t->status[i]) {
            snprintf(said, sizeof said, "%s: rank %d: %s (%s)", values_words(&t->c, t->p), i,
                     pici_strerror(t->status[i]), pici_comm_error(t->comm[i]));
            return said;
        }
    return NULL;
}

/* ---- all ranks have the same bytes ---- */

static const char *judge_same(struct team *t)
{
    static char said[500];
    const struct values_case *c = &t->c;
    const char *wrong = failed(t);
    for (int i = 1; i < t->p && !wrong && c->collective != PICI_REDUCE_SCATTER; i++)
        if (memcmp(t->rank[i].recv, t->rank[0].recv, (size_t)t->rank[0].receives * pici_dtype_width(c->dtype)) != 0) {
            snprintf(said, sizeof said, "%s: rank %d has other bytes than rank 0", values_words(c, t->p), i);
            wrong = said;
        }
    if (!wrong && c->residual)
        wrong = values_conserved(c, t->rank, t->p);
    return wrong;
}

/* The library has this codec. */
static int has(const struct values_case *c)
{
    struct values v;
    return pici_values_resolve(&v, &c->values, c->dtype, c->op) == PICI_OK;
}

/* Every codec, algorithm, collective and phase; the rest in turns. */
static int next_same(struct team *t)
{
    const int codecs = values_codecs(), algorithms = coll_algorithms();
    for (;;) {
        int i = t->at++;
        struct rng r = {(uint64_t)(t->at * 100 + t->p)};
        struct values_case *c = &t->c;
        *c = (struct values_case){.collective = (enum pici_collective)(1 + i % 3)};
        i /= 3;
        c->algorithm = (enum pici_algorithm)(1 + i % algorithms);
        i /= algorithms;
        const unsigned phases = 1 + (unsigned)(i % 3);
        i /= 3;
        if (i >= codecs)
            return 0;
        c->values = values_codec(i, &c->dtype);
        c->values.phases = phases;
        c->seed = (uint64_t)t->at;
        c->data = (enum values_data)rng_below(&r, DATA_KINDS);
        c->op = (enum pici_op)rng_below(&r, c->values.codec == PICI_VALUES_CAST ? 4 : 2);
        c->op = c->collective == PICI_ALL_GATHER ? PICI_SUM : c->op;
        c->in_place = (int)rng_below(&r, 2); /* then what was sent is not there any more */
        c->residual = !c->in_place && c->data != DATA_SPECIAL && c->op != PICI_MIN && c->op != PICI_MAX;
        c->window = 1 + (int)rng_below(&r, 3);
        c->format = (enum pici_format)rng_below(&r, 5);
        c->format = c->format > PICI_HYBRID ? PICI_AUTO : c->format;
        const uint64_t more = t->p > 4 ? 60 : 3240; /* several slices of a segment */
        c->count = 420 + rng_below(&r, 4) * more * (c->collective == PICI_ALL_REDUCE ? (uint64_t)t->p : 1);
        c->count -= c->values.nx ? 0 : rng_below(&r, 2);
        c->count *= rng_below(&r, 20) != 0;
        if (has(c) && coll_has(c->algorithm, c->collective))
            return 1;
    }
}

static void same_bytes(int from, int to)
{
    for (int i = from; i < to; i++) {
        struct team t = {.judge = judge_same, .next = next_same};
        team_run(&t, sizes[i], i % 3);
        cr_expect_gt(t.calls, 200);
    }
}

Test(coll_values, ranks_have_the_same_bytes_and_residuals_what_was_lost)
{
    same_bytes(0, 7);
}

Test(coll_values, many_ranks_have_the_same_bytes)
{
    same_bytes(7, SIZES);
}

/* ---- the same bytes for any slices, windows, formats ---- */

static uint8_t *first_result;

static const char *judge_first(struct team *t)
{
    const char *wrong = failed(t);
    const size_t bytes = (size_t)t->rank[0].receives * pici_dtype_width(t->c.dtype);
    if (!wrong && t->at % 8 == 1)
        memcpy(first_result, t->rank[0].recv, bytes);
    else if (!wrong && memcmp(first_result, t->rank[0].recv, bytes) != 0)
        wrong = values_words(&t->c, t->p);
    return wrong;
}

/* Every 8 calls are one, in other ways. Random numbers differ from call to call, so rounding is to nearest. */
static int next_way(struct team *t)
{
    for (;;) {
        const int way = t->at % 8, i = t->at++ / 8;
        struct values_case *c = &t->c;
        if (i / 6 >= values_codecs())
            return 0;
        *c = (struct values_case){.collective = PICI_ALL_REDUCE, .algorithm = (enum pici_algorithm)(1 + i % 6)};
        c->values = values_codec(i / 6, &c->dtype);
        c->values.rounding = PICI_ROUND_NEAREST;
        c->values.phases = way == 7 ? 0 : 3;
        c->seed = (uint64_t)i;
        c->count = 4 * 6 * 5 * 12 * 50;
        c->data = i % 2 ? DATA_SPARSE : DATA_SPECIAL;
        c->window = 1 + way % 4 * 2;
        c->in_place = way / 2 % 2;
        c->format = (enum pici_format)(way % 5 == 4 ? (int)PICI_AUTO : way % 5);
        if (has(c))
            return 1;
        t->at += 7 - way;
    }
}

Test(coll_values, results_do_not_depend_on_formats_windows_places)
{
    first_result = test_alloc(8 * 4 * 6 * 5 * 12 * 50);
    struct team t = {.judge = judge_first, .next = next_way};
    team_run(&t, 3, 0);
    cr_expect_gt(t.calls, 100);
    free(first_result);
}

/* ---- the same bytes for slices of a unit to all, and windows of 1 to 8, with random numbers too */

enum { WAYS = 8, SLICED = 5, UNITS = 4 /* of a segment */, COUNT = SLICED * UNITS * 4096 };

static uint8_t *first_way; /* results and residuals of all ranks */
static uint64_t blocks[WAYS];

static const char *judge_way(struct team *t)
{
    const char *wrong = failed(t);
    const size_t bytes = (size_t)t->c.count * pici_dtype_width(t->c.dtype);
    const int way = t->c.window - 1;
    blocks[way] = 0;
    for (int i = 0; i < t->p && !wrong; i++) {
        uint8_t *const at[] = {first_way + 2 * (size_t)i * bytes, first_way + (2 * (size_t)i + 1) * bytes};
        for (int format = PICI_DENSE; format <= PICI_HYBRID; format++)
            blocks[way] += t->rank[i].stats.sends[format];
        if (!way) {
            memcpy(at[0], t->rank[i].recv, bytes);
            memcpy(at[1], t->rank[i].residual, bytes);
        } else if (memcmp(at[0], t->rank[i].recv, bytes) != 0 || memcmp(at[1], t->rank[i].residual, bytes) != 0)
            wrong = values_words(&t->c, t->p);
    }
    return wrong;
}

static int next_once(struct team *t)
{
    return !t->at++;
}

/* Random numbers differ from call to call, so that each way has ranks of its own. */
Test(coll_values, results_do_not_depend_on_slices)
{
    int calls = 0;
    first_way = test_alloc((size_t)2 * SLICED * COUNT * 8);
    for (int i = 0; i < values_codecs(); i++)
        for (int algorithm = PICI_ALGO_RING; algorithm <= PICI_ALGO_DOUBLING; algorithm++) {
            struct team t = {.judge = judge_way, .next = next_once};
            t.c = (struct values_case){.collective = PICI_ALL_REDUCE,
                                       .algorithm = (enum pici_algorithm)algorithm,
                                       .count = COUNT,
                                       .residual = 1,
                                       .format = PICI_AUTO,
                                       .seed = (uint64_t)i};
            t.c.values = values_codec(i, &t.c.dtype);
            t.c.count -= t.c.values.nx ? COUNT % 60 : 0; /* whole rows and planes */
            if (!has(&t.c) || (!test_full() && (i + algorithm) % 3))
                continue;
            for (int way = 0; way < WAYS; way++) {
                static const uint64_t units[WAYS] = {1 << 20, 1, 2, 1, 4, 3, 1, 1};
                t.c.window = 1 + way;
                t.c.slice_bytes = units[way] * 4096 * pici_dtype_width(t.c.dtype);
                t.c.slice_bytes *= algorithm == PICI_ALGO_DOUBLING ? SLICED : 1; /* messages have all segments */
                team_run(&t, SLICED, 0);
                calls++;
            }
            cr_expect_geq(blocks[1], 2 * blocks[0], "%s: %llu blocks, and %llu of short slices",
                          values_words(&t.c, SLICED), (unsigned long long)blocks[0], (unsigned long long)blocks[1]);
        }
    cr_expect_gt(calls, 100);
    free(first_way);
}

/* ---- casts keep order: the least of casts is the cast of the least */

static uint8_t *extreme; /* the exact one, then cast */

static const char *judge_extreme(struct team *t)
{
    static const struct values_where where = {0, 0, 0, 0};
    const char *wrong = failed(t);
    struct values v;
    uint64_t made[VALUES_ARRAYS];
    const size_t bytes = (size_t)t->c.count * pici_dtype_width(t->c.dtype);
    if (wrong || !t->c.exact)
        return wrong ? wrong : memcmp(extreme, t->rank[0].recv, bytes) != 0 ? values_words(&t->c, t->p) : NULL;
    uint8_t *cast = test_alloc(bytes);
    void *const out[VALUES_ARRAYS] = {cast, NULL};
    const void *const in[VALUES_ARRAYS] = {cast, NULL};
    if (pici_values_resolve(&v, &t->c.values, t->c.dtype, t->c.op) ||
        v.codec->quantize(&v, &where, out, made, t->rank[0].recv, t->c.count, NULL) ||
        v.codec->dequantize(&v, extreme, 0, t->c.count, t->c.count, in, made))
        wrong = "a cast";
    else if (!memcmp(extreme, t->rank[0].recv, bytes))
        wrong = "nothing was rounded";
    free(cast);
    return wrong;
}

static int next_extreme(struct team *t)
{
    const int i = t->at++, casts = 3;
    struct values_case *c = &t->c;
    *c = (struct values_case){.collective = PICI_ALL_REDUCE, .exact = !(i % 2), .window = 2, .format = PICI_AUTO};
    c->op = i / 2 % 2 ? PICI_MIN : PICI_MAX;
    c->algorithm = (enum pici_algorithm)(PICI_ALGO_RING + i / 4 % 4);
    c->seed = (uint64_t)(i / 2);
    c->data = i / 16 / casts ? DATA_SPARSE : DATA_GAUSS;
    c->count = 3000;
    c->values = values_codec(i / 16 % casts, &c->dtype);
    return i < 2 * 16 * casts;
}

Test(coll_values, the_least_and_the_greatest_are_casts_of_the_exact_ones)
{
    extreme = test_alloc(3000 * sizeof(double));
    struct team t = {.judge = judge_extreme, .next = next_extreme};
    team_run(&t, 5, 0);
    cr_expect_eq(t.calls, 96);
    free(extreme);
}
