/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_topk beside a slow reference: every ISA, dtype, selection and combination of arrays, awkward values and lengths,
 * arrays between guard pages at odd addresses; threads; Philox's known answers. PICI_TEST_FEW=1: every third kind of
 * values for each dtype and length, and for long arrays two of four ways to call. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "philox.h"
#include "tests/util/topk.h"
#include "tests/util/util.h"

enum { MOST = 9000, ARRAYS = 4 }; /* elements; out, residual, velocity, gradient */
static const enum pici_dtype dtypes[] = {PICI_F32, PICI_F64, PICI_F16, PICI_BF16};

static struct rng rng = {1};
static struct guard guard[ARRAYS];

/* ---- values */

enum values { RANDOM, GRADIENT, MASKED, EQUAL, FEW_VALUES, ZEROS, VALUES };

/* A number near 1, in dtype. */
static uint64_t near_one(enum pici_dtype t)
{
    const unsigned mantissa = t == PICI_F32 ? 23 : t == PICI_F64 ? 52 : t == PICI_F16 ? 10 : 7;
    const uint64_t bias = t == PICI_F64 ? 1023 : t == PICI_F16 ? 15 : 127;
    const uint64_t sign = rng_next(&rng) & 1, exponent = bias - rng_below(&rng, 8);
    return sign << (8 * pici_dtype_width(t) - 1) | exponent << mantissa | rng_next(&rng) >> (64 - mantissa);
}

static void store(void *array, uint64_t i, enum pici_dtype t, uint64_t bits)
{
    const uint32_t b4 = (uint32_t)bits;
    const uint16_t b2 = (uint16_t)bits;
    const size_t width = pici_dtype_width(t);
    memcpy((uint8_t *)array + i * width,
           width == 8   ? (const void *)&bits
           : width == 4 ? (const void *)&b4
                        : &b2,
           width);
}

static void fill(void *array, uint64_t n, enum pici_dtype t, enum values values)
{
    const uint64_t equal = near_one(t), other = value_random(&rng, t);
    const uint64_t minus = UINT64_C(1) << (8 * pici_dtype_width(t) - 1);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t v = 0;
        switch (values) {
        case RANDOM: v = rng_chance(&rng, 50000) ? 0 : value_random(&rng, t); break;
        case GRADIENT: v = near_one(t); break;
        case MASKED: v = rng_chance(&rng, 20000) ? near_one(t) : rng_chance(&rng, 500000) ? minus : 0; break;
        case EQUAL: v = rng_chance(&rng, 500000) ? equal : equal ^ minus; break;
        case FEW_VALUES: v = rng_chance(&rng, 300000) ? equal : rng_chance(&rng, 300000) ? other : 0; break;
        default: break;
        }
        store(array, i, t, v);
    }
}

/* ---- one call, on every ISA */

struct what {
    enum pici_dtype dtype;
    uint64_t n;
    enum values values;
    int residual, velocity, in_place;
    struct pici_topk_opts opts;
};

static void check(const struct what *w)
{
    const size_t bytes = (size_t)w->n * pici_dtype_width(w->dtype);
    uint8_t *in[ARRAYS], *want[ARRAYS];
    uint64_t nnz, want_nnz = 0;
    char name[200];
    snprintf(name, sizeof name, "%s n=%llu values=%d select=%d k=%u/%u density=%g residual=%d velocity=%d in place=%d",
             pici_dtype_name(w->dtype), (unsigned long long)w->n, (int)w->values, (int)w->opts.select, w->opts.k,
             w->opts.bucket, w->opts.density, w->residual, w->velocity, w->in_place);
    for (int a = 0; a < ARRAYS; a++) {
        in[a] = test_alloc(bytes);
        want[a] = test_alloc(bytes);
        fill(in[a], w->n, w->dtype, w->values);
        memcpy(want[a], in[a], bytes);
    }
    topk_reference(want[0], &want_nnz, w->residual ? want[1] : NULL, w->velocity ? want[2] : NULL, in[3], w->n,
                   w->dtype, &w->opts);
    if (w->in_place)
        memcpy(want[3], want[0], bytes);
    for (const struct pici_isa *const *isa = tested_isas(); *isa; isa++)
        for (int round = 0; round < 2; round++) {
            uint8_t *at[ARRAYS];
            const char *bad = NULL;
            for (int a = 0; a < ARRAYS; a++) {
                at[a] = guard_place(&guard[a], bytes, round ? GUARD_START : GUARD_END,
                                    rng_below(&rng, 3) ? 0 : (size_t)rng_below(&rng, 70));
                memcpy(at[a], in[a], bytes);
            }
            pici_isa_force(*isa);
            nnz = UINT64_MAX;
            if (pici_topk(w->in_place ? at[3] : at[0], &nnz, w->residual ? at[1] : NULL, w->velocity ? at[2] : NULL,
                          at[3], w->n, w->dtype, &w->opts))
                bad = "status";
            else if (nnz != want_nnz)
                bad = "how many were kept";
            else if (memcmp(at[w->in_place ? 3 : 0], want[0], bytes) != 0)
                bad = "out";
            else if (memcmp(at[1], want[1], bytes) != 0)
                bad = "residual";
            else if (memcmp(at[2], want[2], bytes) != 0)
                bad = "velocity";
            else if (memcmp(at[3], want[3], bytes) != 0)
                bad = "gradient";
            for (int a = 0; a < ARRAYS; a++)
                if (!guard_intact(&guard[a]))
                    bad = "bytes around an array";
            char which[240];
            snprintf(which, sizeof which, "%s: %s", (*isa)->name, name);
            tally(which, bad);
        }
    pici_isa_force(NULL);
    for (int a = 0; a < ARRAYS; a++) {
        free(in[a]);
        free(want[a]);
    }
}

/* Options that any selection may have. */
static struct pici_topk_opts some_opts(int velocity)
{
    static const float factors[] = {1, 1, 0.5f, 0.9f, 0.3f, 1e-38f, 0};
    static const uint32_t buckets[] = {512, 512, 1, 2, 7, 64, 100, 1000, 4096, 4097, 5000};
    struct pici_topk_opts o = PICI_TOPK_OPTS_INIT;
    o.rate = factors[rng_below(&rng, 6)] * (rng_chance(&rng, 300000) ? -3.f : 1.f);
    o.leak = factors[rng_below(&rng, 7)];
    o.momentum = velocity ? factors[2 + rng_below(&rng, 4)] : 0;
    o.bucket = buckets[rng_below(&rng, sizeof buckets / sizeof *buckets)];
    const uint32_t most = rng_chance(&rng, 600000) ? 20 : o.bucket;
    o.k = 1 + (uint32_t)rng_below(&rng, most < o.bucket ? most : o.bucket);
    o.density = rng_chance(&rng, 100000) ? 1 : 1. / (double)(1 + rng_below(&rng, 300));
    o.select = rng_chance(&rng, 500000) ? PICI_SELECT_GLOBAL : PICI_SELECT_BUCKET;
    return o;
}

static void calls(void)
{
    static const uint64_t sizes[] = {0,  1,  2,  3,   7,   15,  16,  17,  31,   33,
                                     63, 64, 65, 127, 129, 511, 512, 513, 1023, 1025};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    const unsigned every = test_few() ? 3 : 1; /* each type, size and kind of values is in some */
    for (unsigned t = 0; t < sizeof dtypes / sizeof *dtypes; t++)
        for (unsigned i = 0; i < SIZES + 8; i++)
            for (unsigned values = (t + i) % every; values < VALUES; values += every) {
                const int arrays = (int)rng_below(&rng, 8);
                struct what w = {.dtype = dtypes[t],
                                 .n = i < SIZES ? sizes[i] : rng_below(&rng, i % 4 ? 2000 : MOST),
                                 .values = (enum values)values,
                                 .residual = arrays & 1,
                                 .velocity = arrays >> 1 & 1,
                                 .in_place = arrays >> 2,
                                 .opts = some_opts(arrays >> 1 & 1)};
                check(&w);
                w.opts = (struct pici_topk_opts)PICI_TOPK_OPTS_INIT; /* the usual call */
                w.residual = 1;
                w.velocity = 0;
                check(&w);
            }
}

/* ---- large arrays: threads, and samples */

/* Selections among many elements with every ISA, with 1 and several threads. All must give the same, and what the
 * reference gives; for it, samples are unknown. */
static void large(enum pici_dtype t, uint64_t n, enum values values, int residual, const struct pici_topk_opts *opts)
{
    const size_t bytes = (size_t)n * pici_dtype_width(t);
    uint8_t *in[3], *want[3], *got[3];
    uint64_t nnz, want_nnz = 0;
    struct pici_topk_opts o = *opts;
    char name[160];
    for (int a = 0; a < 3; a++) {
        in[a] = test_alloc(bytes);
        want[a] = test_alloc(bytes);
        got[a] = test_alloc(bytes);
        fill(in[a], n, t, values);
        memcpy(want[a], in[a], bytes);
    }
    if (o.select != PICI_SELECT_SAMPLED)
        topk_reference(want[0], &want_nnz, residual ? want[1] : NULL, want[2], in[0], n, t, &o);
    else if (pici_topk(want[0], &want_nnz, residual ? want[1] : NULL, want[2], in[0], n, t, &o))
        tally("a sample", "status");
    for (const struct pici_isa *const *isa = tested_isas(); *isa; isa++)
        /* with 1 and 3 threads, and the output apart from the gradient and in it; or the first and the last of these */
        for (int turn = 0; turn < 4; turn += test_few() ? 3 : 1) {
            o.threads = 1 + turn / 2 * 2;
            memcpy(got[0], in[0], bytes);
            memcpy(got[1], in[1], bytes);
            memcpy(got[2], in[2], bytes);
            pici_isa_force(*isa);
            const enum pici_status s =
                pici_topk(got[0], &nnz, residual ? got[1] : NULL, got[2], turn % 2 ? got[0] : in[0], n, t, &o);
            const char *bad = s                                     ? "status"
                              : nnz != want_nnz                     ? "how many were kept"
                              : memcmp(got[0], want[0], bytes) != 0 ? "out"
                              : memcmp(got[1], want[1], bytes) != 0 ? "residual"
                              : memcmp(got[2], want[2], bytes) != 0 ? "velocity"
                                                                    : NULL;
            snprintf(name, sizeof name, "%s %s, %llu of values %d, select %d, %d threads%s", (*isa)->name,
                     pici_dtype_name(t), (unsigned long long)n, (int)values, (int)o.select, o.threads,
                     turn % 2 ? ", in place" : "");
            tally(name, bad);
        }
    pici_isa_force(NULL);
    for (int a = 0; a < 3; a++) {
        free(in[a]);
        free(want[a]);
        free(got[a]);
    }
}

static void all_large(void)
{
    enum { TWO_THREADS = 530007, SAMPLED_FIRST = 270000, STREAMED = 1050007 };
    struct pici_topk_opts o = PICI_TOPK_OPTS_INIT;
    o.momentum = 0.5f;
    for (int select = PICI_SELECT_BUCKET; select <= PICI_SELECT_SAMPLED; select++) {
        o.select = (enum pici_select)select;
        o.bucket = 512;
        large(PICI_F32, SAMPLED_FIRST, GRADIENT, 1, &o);
        large(PICI_F32, TWO_THREADS, EQUAL, 1, &o); /* ties in every thread */
        if (select == PICI_SELECT_GLOBAL) {
            large(PICI_F64, SAMPLED_FIRST, FEW_VALUES, 1, &o);
            large(PICI_F32, STREAMED, EQUAL, 1, &o);
            large(PICI_F32, TWO_THREADS, GRADIENT, 1, &o); /* each thread finds others */
            large(PICI_F32, TWO_THREADS, GRADIENT, 0, &o);
            large(PICI_BF16, SAMPLED_FIRST, RANDOM, 1, &o);
        }
        if (select == PICI_SELECT_SAMPLED)
            large(PICI_BF16, TWO_THREADS, RANDOM, 1, &o);
        o.bucket = 400000; /* longer than what the kernel takes */
        if (select == PICI_SELECT_BUCKET)
            large(PICI_F16, 400100, MASKED, 1, &o);
    }
}

/* ---- Philox */

static void philox(void)
{
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
         {UINT32_MAX, UINT32_MAX},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t got[4];
        philox4x32(got, known[i].counter, known[i].key);
        tally("Philox", memcmp(got, known[i].want, sizeof got) != 0 ? "not the known answer" : NULL);
    }
}

int main(void)
{
    for (int a = 0; a < ARRAYS; a++)
        guard_init(&guard[a], MOST * 8 + 256);
    philox();
    calls();
    all_large();
    for (int a = 0; a < ARRAYS; a++)
        guard_free(&guard[a]);
    return tally_end();
}
