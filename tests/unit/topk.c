/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What pici_topk promises: what is kept, that nothing is lost, samples, and refusals. tests/plain/topk.c compares every
 * bit with a reference. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pici/topk.h"
#include "tests/util/util.h"

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static uint32_t magnitude(float x)
{
    return bits_of(x) & 0x7fffffff;
}

static double uniform(struct rng *r) /* above 0, below 1 */
{
    return ((double)(rng_next(r) >> 12) + 0.5) / 4503599627370496.;
}

static float gaussian(struct rng *r)
{
    return (float)(sqrt(-2 * log(uniform(r))) * cos(6.283185307179586 * uniform(r)));
}

static float *floats(size_t n)
{
    float *x = test_alloc(n * sizeof *x);
    memset(x, 0, n * sizeof *x);
    return x;
}

static uint64_t nonzeros(const float *x, size_t n)
{
    uint64_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += magnitude(x[i]) != 0;
    return count;
}

/* out has the k largest of x [n], or all nonzeros if there are fewer, in the stated order; residual the others. */
static void expect_largest(const float *x, const float *out, const float *residual, size_t n, uint64_t k)
{
    uint32_t least = UINT32_MAX, most = 0;
    size_t last_kept = 0, first_left = n; /* among those with the least kept magnitude */
    const uint64_t exist = nonzeros(x, n);
    cr_expect_eq(nonzeros(out, n), exist < k ? exist : k);
    for (size_t i = 0; i < n; i++) {
        const int kept = magnitude(out[i]) != 0;
        cr_expect_eq(bits_of(out[i]) | bits_of(residual[i]), bits_of(x[i]));
        cr_expect(!bits_of(out[i]) || !bits_of(residual[i]));
        if (kept)
            least = magnitude(out[i]) < least ? magnitude(out[i]) : least;
        else
            most = magnitude(x[i]) > most ? magnitude(x[i]) : most;
    }
    cr_expect_leq(most, least);
    for (size_t i = 0; i < n; i++)
        if (magnitude(x[i]) == least) {
            if (magnitude(out[i]))
                last_kept = i;
            else
                first_left = i < first_left ? i : first_left;
        }
    cr_expect(first_left == n || last_kept < first_left, "an element with a higher index was kept");
}

Test(topk, buckets)
{
    enum { N = 1700 };
    struct rng r = {5};
    float x[N], out[N], residual[N];
    struct pici_topk_opts o = PICI_TOPK_OPTS_INIT;
    for (size_t i = 0; i < N; i++)
        x[i] = i < 512 || i >= 1024 ? floorf(8 * gaussian(&r)) : i == 700 ? -0.0f : i == 900 || i == 901 ? 3 : 0;
    x[3] = NAN;
    x[600] = -INFINITY;
    for (o.k = 1; o.k <= 512; o.k = o.k * 2 + (o.k < 64)) {
        uint64_t nnz = 0, sum = 0;
        memset(residual, 0, sizeof residual);
        cr_assert_eq(pici_topk(out, &nnz, residual, NULL, x, N, PICI_F32, &o), PICI_OK);
        for (size_t first = 0; first < N; first += 512) {
            const size_t m = N - first < 512 ? N - first : 512;
            for (size_t i = first; i < first + m; i++) /* 0 + -0.0 is 0 */
                if (bits_of(x[i]) == 0x80000000)
                    x[i] = 0;
            expect_largest(x + first, out + first, residual + first, m, (o.k * m + 511) / 512);
            sum += nonzeros(out + first, m);
        }
        cr_expect_eq(nnz, sum);
        cr_expect_eq(bits_of(out[3]), 0x7fc00000, "a NaN is sent");
        cr_expect_eq(bits_of(out[600]), 0xff800000, "an infinity is sent");
    }
}

Test(topk, global)
{
    static const size_t sizes[] = {1, 2, 99, 100, 101, 4096, 70001};
    static const double densities[] = {1e-9, 0.001, 0.01, 0.5, 1};
    struct rng r = {6};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t d = 0; d < 5; d++)
            for (int integers = 0; integers < 2; integers++) {
                const size_t n = sizes[s];
                float *x = floats(n), *out = floats(n), *residual = floats(n);
                struct pici_topk_opts o = PICI_TOPK_OPTS_INIT;
                uint64_t nnz;
                for (size_t i = 0; i < n; i++)
                    x[i] = integers ? floorf(3 * gaussian(&r)) : gaussian(&r);
                o.select = PICI_SELECT_GLOBAL;
                o.density = densities[d];
                cr_assert_eq(pici_topk(out, &nnz, residual, NULL, x, n, PICI_F32, &o), PICI_OK);
                expect_largest(x, out, residual, n, (uint64_t)ceil(densities[d] * (double)n));
                cr_expect_eq(nnz, nonzeros(out, n));
                free(x);
                free(out);
                free(residual);
            }
}

/* Two counting passes, over the upper and the lower 16 bits of the magnitudes: another algorithm for the k-th. */
static uint32_t kth_largest(const float *g, size_t n, size_t k)
{
    enum { COUNTS = 65536 };
    size_t *count = test_alloc(COUNTS * sizeof *count);
    uint32_t upper = 0, bucket = COUNTS;
    for (int pass = 0; pass < 2; pass++) {
        memset(count, 0, COUNTS * sizeof *count);
        for (size_t i = 0; i < n; i++) {
            const uint32_t m = magnitude(g[i]);
            if (pass == 0)
                count[m >> 16]++;
            else if (m >> 16 == upper)
                count[m & 0xffff]++;
        }
        for (bucket = COUNTS; bucket-- > 0 && count[bucket] < k;)
            k -= count[bucket];
        if (pass == 0)
            upper = bucket;
    }
    free(count);
    return upper << 16 | bucket;
}

Test(topk, global_reaches_the_kth_largest)
{
    struct rng r = {7};
    for (size_t n = 1; n < 300000; n = n * 3 + 1)
        for (size_t part = 1; part <= 1000; part *= 10) {
            float *x = floats(n), *out = floats(n);
            struct pici_topk_opts o = PICI_TOPK_OPTS_INIT;
            uint64_t nnz, above = 0;
            for (size_t i = 0; i < n; i++)
                x[i] = gaussian(&r) * (rng_chance(&r, 500000) ? 1e-3f : 1.f);
            o.select = PICI_SELECT_GLOBAL;
            o.density = 1 / (double)part;
            const size_t k = (size_t)ceil(o.density * (double)n);
            const uint32_t least = kth_largest(x, n, k);
            cr_assert_eq(pici_topk(out, &nnz, NULL, NULL, x, n, PICI_F32, &o), PICI_OK);
            cr_expect_eq(nnz, k);
            for (size_t i = 0; i < n; i++) {
                cr_expect(!magnitude(out[i]) || magnitude(out[i]) >= least);
                cr_expect(magnitude(x[i]) <= least || bits_of(out[i]) == bits_of(x[i]));
                above += magnitude(x[i]) > least;
            }
            cr_expect_lt(above, k);
            free(x);
            free(out);
        }
}

/* 100 steps: what was sent and what is left are the sum of the gradients, exactly, since all are small integers. */
Test(topk, nothing_is_lost)
{
    enum { N = 3000, STEPS = 100 };
    for (int select = PICI_SELECT_BUCKET; select <= PICI_SELECT_SAMPLED; select++) {
        struct rng r = {8};
        float *residual = floats(N), *sent = floats(N), *all = floats(N), *g = floats(N), *out = floats(N);
        struct pici_topk_opts o = PICI_TOPK_OPTS_INIT;
        uint64_t nnz, left = 0;
        o.select = (enum pici_select)select;
        o.density = 0.1; /* SAMPLED: from 1000 of the 3000 */
        for (o.step = 0; o.step < STEPS; o.step++) {
            for (size_t i = 0; i < N; i++)
                all[i] += g[i] = floorf(20 * gaussian(&r));
            cr_assert_eq(pici_topk(out, &nnz, residual, NULL, g, N, PICI_F32, &o), PICI_OK);
            cr_expect_eq(nnz, nonzeros(out, N));
            for (size_t i = 0; i < N; i++)
                sent[i] += out[i];
        }
        for (size_t i = 0; i < N; i++) {
            cr_expect_eq(sent[i] + residual[i], all[i]);
            left += residual[i] != 0;
        }
        cr_expect_gt(left, 0);
        free(residual);
        free(sent);
        free(all);
        free(g);
        free(out);
    }
}

Test(topk, momentum_with_factor_masking)
{
    float g[] = {1, -8, 2, 0}, v[] = {0.5f, 0, 0, 0}, u[] = {0, 4, 0, 2}, out[4];
    struct pici_topk_opts o = PICI_TOPK_OPTS_INIT;
    uint64_t nnz;
    o.bucket = 4;
    o.k = 2;
    o.rate = 2;
    o.leak = 0.5f;
    o.momentum = 0.75f;
    /* u = 0.75 u + 2 g: 2, -13, 4, 1.5; v = 0.5 v + u: 2.25, -13, 4, 1.5 */
    cr_assert_eq(pici_topk(out, &nnz, v, u, g, 4, PICI_F32, &o), PICI_OK);
    const float want_out[] = {0, -13, 4, 0}, want_v[] = {2.25f, 0, 0, 1.5f}, want_u[] = {2, 0, 0, 1.5f};
    cr_expect_eq(nnz, 2);
    cr_expect_arr_eq(out, want_out, sizeof out);
    cr_expect_arr_eq(v, want_v, sizeof v);
    cr_expect_arr_eq(u, want_u, sizeof u);
}

/* ---- SAMPLED */

enum distribution {
    ALL_ZERO,
    ALL_EQUAL,
    GAUSSIAN,
    LAPLACE,
    UNIFORM,
    CAUCHY,
    LOGNORMAL,
    TWO_VALUES,
    FEW_NONZERO,
    SOME_NONZERO,
    INTEGERS,
    RAMP,
    SPIKE,
    ENDLESS,
    DISTRIBUTIONS
};

static float draw(enum distribution d, size_t i, size_t n, struct rng *r)
{
    const double u = uniform(r);
    const float sign = rng_chance(r, 500000) ? -1 : 1;
    switch (d) {
    case ALL_EQUAL: return 0.125f;
    case GAUSSIAN: return gaussian(r);
    case LAPLACE: return sign * (float)-log(u);
    case UNIFORM: return sign * (float)u;
    case CAUCHY: return (float)tan(3.141592653589793 * (u - 0.5));
    case LOGNORMAL: return sign * expf(5 * gaussian(r));
    case TWO_VALUES: return u < 0.005 ? 2 : 1;
    case FEW_NONZERO: return u < 0.003 ? gaussian(r) : 0;
    case SOME_NONZERO: return u < 0.013 ? gaussian(r) : 0;
    case INTEGERS: return floorf(2 * gaussian(r));
    case RAMP: return (float)i;
    case SPIKE: return i < n / 50 ? gaussian(r) : 1e-20f * gaussian(r);
    case ENDLESS: return u < 0.02 ? sign * INFINITY : gaussian(r);
    default: return 0;
    }
}

Test(topk, samples)
{
    enum { N = 200000 };
    float *x = floats(N), *out = floats(N), *again = floats(N), *residual = floats(N);
    for (int d = 0; d < DISTRIBUTIONS; d++) {
        struct rng r = {9 + (uint64_t)d};
        struct pici_topk_opts o = PICI_TOPK_OPTS_INIT;
        uint64_t nnz, other;
        for (size_t i = 0; i < N; i++)
            x[i] = draw((enum distribution)d, i, N, &r);
        o.select = PICI_SELECT_SAMPLED;
        const uint64_t exist = nonzeros(x, N), t = 2000, target = exist < t ? exist : t;
        for (o.step = 0; o.step < 5; o.step++) {
            memset(residual, 0, N * sizeof *residual);
            cr_assert_eq(pici_topk(out, &nnz, residual, NULL, x, N, PICI_F32, &o), PICI_OK);
            cr_expect(nnz <= 2 * target && 2 * nnz >= target, "distribution %d: %llu kept", d, (unsigned long long)nnz);
            expect_largest(x, out, residual, N, nnz);
            /* the same again without a residual */
            cr_assert_eq(pici_topk(again, &other, NULL, NULL, x, N, PICI_F32, &o), PICI_OK);
            cr_expect_eq(other, nnz);
            cr_expect_arr_eq(again, out, N * sizeof *out);
            if (d == GAUSSIAN) { /* another step or seed draws another sample */
                struct pici_topk_opts p = o;
                uint64_t by_seed;
                p.seed = 1;
                cr_assert_eq(pici_topk(again, &by_seed, NULL, NULL, x, N, PICI_F32, &p), PICI_OK);
                p.seed = 0;
                p.step += 1000;
                cr_assert_eq(pici_topk(again, &other, NULL, NULL, x, N, PICI_F32, &p), PICI_OK);
                cr_expect(nnz != by_seed && nnz != other && nnz != t);
            }
        }
    }
    free(x);
    free(out);
    free(again);
    free(residual);
}

/* The positions of the sample are a part of the result. */
Test(topk, samples_stay_the_same)
{
    enum { N = 100000 };
    float *x = floats(N), *out = floats(N);
    struct pici_topk_opts o = PICI_TOPK_OPTS_INIT;
    static const struct {
        uint64_t seed, step, kept;
    } known[] = {{0, 0, 836}, {1, 0, 1036}, {UINT64_C(1) << 40, UINT64_C(3) << 33, 1072}};
    for (size_t i = 0; i < N; i++)
        x[i] = (float)(i * 48271 % N);
    o.select = PICI_SELECT_SAMPLED;
    for (size_t i = 0; i < 3; i++) {
        uint64_t nnz;
        o.seed = known[i].seed;
        o.step = known[i].step;
        cr_assert_eq(pici_topk(out, &nnz, NULL, NULL, x, N, PICI_F32, &o), PICI_OK);
        cr_expect_eq(nnz, known[i].kept, "seed %llx, step %llx: %llu kept", (unsigned long long)o.seed,
                     (unsigned long long)o.step, (unsigned long long)nnz);
    }
    free(x);
    free(out);
}

/* Where the sample would be as long as the array, the selection is exact. */
Test(topk, small_samples_are_exact)
{
    enum { N = 10000 };
    float x[N], out[N], exact[N];
    struct rng r = {10};
    struct pici_topk_opts o = PICI_TOPK_OPTS_INIT;
    uint64_t nnz;
    for (size_t i = 0; i < N; i++)
        x[i] = gaussian(&r);
    o.select = PICI_SELECT_GLOBAL;
    cr_assert_eq(pici_topk(exact, &nnz, NULL, NULL, x, N, PICI_F32, &o), PICI_OK);
    o.select = PICI_SELECT_SAMPLED;
    cr_assert_eq(pici_topk(out, &nnz, NULL, NULL, x, N, PICI_F32, &o), PICI_OK);
    cr_expect_eq(nnz, 100);
    cr_expect_arr_eq(out, exact, sizeof out);
    o.density = 1e-300;
    cr_assert_eq(pici_topk(out, &nnz, NULL, NULL, x, N, PICI_F32, &o), PICI_OK);
    cr_expect_eq(nnz, 1);
}

/* ---- refusals */

/* A call that is refused, and writes nothing. */
static void refused(enum pici_status want, enum pici_dtype t, uint64_t n, const struct pici_topk_opts *o,
                    const char *what)
{
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, r[8] = {1}, u[8] = {2}, out[8] = {3}, before[4][8];
    uint64_t nnz = 77;
    memcpy(before[0], x, sizeof x);
    memcpy(before[1], r, sizeof r);
    memcpy(before[2], u, sizeof u);
    memcpy(before[3], out, sizeof out);
    cr_expect_eq(pici_topk(out, &nnz, r, o && o->momentum > 0 ? u : NULL, x, n, t, o), want, "%s", what);
    cr_expect(nnz == 77 && !memcmp(before[0], x, sizeof x) && !memcmp(before[1], r, sizeof r) &&
                  !memcmp(before[2], u, sizeof u) && !memcmp(before[3], out, sizeof out),
              "%s: something was written", what);
}

Test(topk, refuses_options)
{
    const struct pici_topk_opts init = PICI_TOPK_OPTS_INIT;
    struct pici_topk_opts o;
#define REFUSED(change)                                                                                                \
    do {                                                                                                               \
        o = init;                                                                                                      \
        o.change;                                                                                                      \
        refused(PICI_E_ARG, PICI_F32, 8, &o, #change);                                                                 \
    } while (0)
    REFUSED(k = 0);
    REFUSED(bucket = 0);
    REFUSED(k = 513);
    REFUSED(select = (enum pici_select)3);
    REFUSED(select = (enum pici_select) - 1);
    REFUSED(density = 0);
    REFUSED(density = -0.1);
    REFUSED(density = 1.0000001);
    REFUSED(density = (double)NAN);
    REFUSED(sample = -1);
    REFUSED(sample = 1.5);
    REFUSED(sample = (double)NAN);
    REFUSED(rate = NAN);
    REFUSED(rate = INFINITY);
    REFUSED(leak = -0.5f);
    REFUSED(leak = 1.5f);
    REFUSED(leak = NAN);
    REFUSED(momentum = 1);
    REFUSED(momentum = -0.5f);
    REFUSED(momentum = NAN);
    REFUSED(threads = -1);
    REFUSED(size = sizeof o - 1);
    REFUSED(size = 0);

    struct {
        struct pici_topk_opts o;
        uint64_t more;
    } newer = {init, 0};
    uint64_t nnz;
    float x[3] = {1, 2, 3}, out[3];
    newer.o.size = sizeof newer;
    cr_expect_eq(pici_topk(out, &nnz, NULL, NULL, x, 3, PICI_F32, &newer.o), PICI_OK);
    newer.more = 1;
    cr_expect_eq(pici_topk(out, &nnz, NULL, NULL, x, 3, PICI_F32, &newer.o), PICI_E_UNSUPPORTED);
}

Test(topk, refuses_dtypes_and_arrays)
{
    struct pici_topk_opts o = PICI_TOPK_OPTS_INIT;
    float x[12] = {1, 2, 3}, r[12] = {0}, u[12] = {0}, out[12];
    uint64_t nnz = 77;
    for (int t = PICI_F32; t <= PICI_U64; t++)
        if (t > PICI_BF16)
            refused(PICI_E_UNSUPPORTED, (enum pici_dtype)t, 1, NULL, pici_dtype_name((enum pici_dtype)t));
    refused(PICI_E_ARG, (enum pici_dtype)0, 1, NULL, "dtype 0");
    refused(PICI_E_ARG, (enum pici_dtype)99, 1, NULL, "dtype 99");
    refused(PICI_E_ARG, PICI_F32, UINT64_MAX / 2, NULL, "n");

    cr_expect_eq(pici_topk(NULL, &nnz, r, NULL, x, 8, PICI_F32, NULL), PICI_E_ARG);
    cr_expect_eq(pici_topk(out, NULL, r, NULL, x, 8, PICI_F32, NULL), PICI_E_ARG);
    cr_expect_eq(pici_topk(out, &nnz, r, NULL, NULL, 8, PICI_F32, NULL), PICI_E_ARG);
    cr_expect_eq(pici_topk(out, &nnz, r, u, x, 8, PICI_F32, NULL), PICI_E_ARG, "a velocity without momentum");
    o.momentum = 0.5f;
    cr_expect_eq(pici_topk(out, &nnz, r, NULL, x, 8, PICI_F32, &o), PICI_E_ARG, "momentum without a velocity");
    /* each pair of arrays, one element apart and the same */
    for (int apart = 0; apart < 2; apart++) {
        cr_expect_eq(pici_topk(r + apart, &nnz, r, u, x, 8, PICI_F32, &o), PICI_E_ARG);
        cr_expect_eq(pici_topk(u + apart, &nnz, r, u, x, 8, PICI_F32, &o), PICI_E_ARG);
        cr_expect_eq(pici_topk(out, &nnz, r, r + apart, x, 8, PICI_F32, &o), PICI_E_ARG);
        cr_expect_eq(pici_topk(out, &nnz, x + apart, u, x, 8, PICI_F32, &o), PICI_E_ARG);
        cr_expect_eq(pici_topk(out, &nnz, r, x + apart, x, 8, PICI_F32, &o), PICI_E_ARG);
    }
    cr_expect_eq(pici_topk(x + 1, &nnz, r, u, x, 8, PICI_F32, &o), PICI_E_ARG);
    cr_expect_eq(nnz, 77);
    cr_expect(x[0] == 1 && x[1] == 2 && x[2] == 3 && r[0] == 0);
    cr_expect_eq(pici_topk(x, &nnz, r, u, x, 8, PICI_F32, &o), PICI_OK);
    cr_expect_eq(nnz, 1);

    cr_expect_eq(pici_topk(NULL, &nnz, NULL, NULL, NULL, 0, PICI_F32, NULL), PICI_OK);
    cr_expect_eq(nnz, 0);
}

Test(topk, warmup)
{
    static const double density[] = {0.25, 0.0625, 0.015625, 0.00390625, 0.001, 0.001};
    for (uint64_t epoch = 0; epoch < 6; epoch++) {
        cr_expect_eq(pici_topk_warmup(epoch * 10, 10), density[epoch]);
        cr_expect_eq(pici_topk_warmup(epoch * 10 + 9, 10), density[epoch]);
    }
    cr_expect_eq(pici_topk_warmup(UINT64_MAX, 1), 0.001);
    cr_expect_eq(pici_topk_warmup(0, UINT64_MAX), 0.25);
    cr_expect_eq(pici_topk_warmup(0, 0), 0.001);
}
