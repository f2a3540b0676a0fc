/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The codec ZFP: errors within the tolerance, what libzfp cannot take, units of each dimension, what is refused. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/util/util.h"
#include "values/values.h"

enum { NX = 20, NY = 9, PLANES = 14 };

static struct pici_values asking(double rate, double tolerance, uint32_t nx, uint32_t ny)
{
    struct pici_values v = PICI_VALUES_INIT;
    v.codec = PICI_VALUES_ZFP;
    v.rate = rate;
    v.tolerance = tolerance;
    v.nx = nx;
    v.ny = ny;
    return v;
}

/* Whether the library was built with libzfp; says so if not. */
static int has_zfp(void)
{
    const struct pici_values asked = asking(8, 0, 0, 0);
    struct values v;
    if (pici_values_resolve(&v, &asked, PICI_F32, PICI_SUM) == PICI_OK)
        return 1;
    cr_assert_eq(pici_values_resolve(&v, &asked, PICI_F32, PICI_SUM), PICI_E_UNSUPPORTED);
    fprintf(stderr, "skip: the codec ZFP, built without libzfp\n");
    return 0;
}

/* The arrays of n elements, each of its own length so that sanitizers see reads beyond them. */
struct coded {
    struct values v;
    uint64_t n, have[2];
    void *array[2];
};

static struct coded quantize(const struct pici_values *asked, enum pici_dtype dtype, const void *src, uint64_t n,
                             struct values_loss *loss)
{
    const struct values_where where = {0, 0, 0, 0};
    struct coded c = {.n = n};
    cr_assert_eq(pici_values_resolve(&c.v, asked, dtype, PICI_AVG), PICI_OK);
    const uint64_t most = c.v.codec->most(&c.v, 1, n);
    void *const out[2] = {test_alloc((size_t)c.v.codec->most(&c.v, 0, n) * 4), test_alloc((size_t)most)};
    cr_assert_eq(c.v.codec->quantize(&c.v, &where, out, c.have, src, n, loss), PICI_OK);
    cr_assert_leq(c.have[1], most);
    c.array[0] = out[0];
    c.array[1] = test_alloc((size_t)c.have[1]);
    memcpy(c.array[1], out[1], (size_t)c.have[1]);
    free(out[1]);
    return c;
}

static enum pici_status dequantize(const struct coded *c, void *dst)
{
    const void *const in[2] = {c->array[0], c->array[1]};
    return c->v.codec->dequantize(&c->v, dst, 0, c->n, c->n, in, c->have);
}

static uint32_t length_of(const struct coded *c, uint64_t i)
{
    uint32_t length;
    memcpy(&length, (uint8_t *)c->array[0] + 4 * i, 4);
    return length;
}

static void release(struct coded *c)
{
    free(c->array[0]);
    free(c->array[1]);
}

enum kind { SMOOTH, NOISE, HUGE_VALUES, TINY, DENORMAL, MIXED, KINDS };

static double value(enum kind kind, uint64_t i, struct rng *rng)
{
    const double noise = (double)(rng_next(rng) >> 11) * 0x1p-52 - 1;
    switch (kind) {
    case SMOOTH: return sin((double)i * .01) + .5 * cos((double)i * .003);
    case HUGE_VALUES: return noise * 0x1p125;
    case TINY: return noise * 0x1p-99;
    case DENORMAL: return noise * 0x1p-130;
    case MIXED: return i / 4096 % 3 == 0 ? 0 : i / 512 % 2 ? noise * 1e6 : noise * 1e-6;
    default: return noise;
    }
}

Test(values_zfp, tolerance_holds)
{
    struct rng rng = {1};
    enum { N = 3 * 4096 + 700 };
    if (!has_zfp())
        return;
    static const double tolerances[] = {1e-1, 1e-3, 1e-6, 1e-12, 1e30};
    float *x = test_alloc(N * sizeof *x), *y = test_alloc(N * sizeof *y), *residual = test_alloc(N * sizeof *x);
    double *dx = test_alloc(N * sizeof *dx), *dy = test_alloc(N * sizeof *dy);
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t t = 0; t < sizeof tolerances / sizeof *tolerances; t++)
            for (int d = 1; d <= 3; d++) {
                const struct pici_values asked = asking(0, tolerances[t], d > 1 ? NX : 0, d > 2 ? NY : 0);
                const uint64_t n = d == 1 ? N : d == 2 ? N / NX * NX : N / (NX * NY) * (NX * NY);
                struct values_loss loss = {.residual = residual, .times = 1};
                for (uint64_t i = 0; i < n; i++) {
                    dx[i] = value((enum kind)kind, i, &rng);
                    x[i] = (float)dx[i];
                    residual[i] = 0;
                }
                struct coded c = quantize(&asked, PICI_F32, x, n, &loss);
                cr_assert_eq(dequantize(&c, y), PICI_OK);
                double most = 0;
                for (uint64_t i = 0; i < n; i++)
                    most = fmax(most, fabs((double)x[i]));
                const double eps = fmax(exp2(floor(log2(tolerances[t]))), most * 0x1p-20);
                for (uint64_t i = 0; i < n; i++) {
                    cr_assert_leq(fabs((double)x[i] - y[i]), eps, "kind %d, tolerance %g, %d-D: %g became %g", kind,
                                  tolerances[t], d, (double)x[i], (double)y[i]);
                    cr_assert_eq(residual[i], x[i] - y[i]);
                }
                release(&c);
                c = quantize(&asked, PICI_F64, dx, n, NULL);
                cr_assert_eq(dequantize(&c, dy), PICI_OK);
                const double fine = fmax(exp2(floor(log2(tolerances[t]))), most * 0x1p-48);
                for (uint64_t i = 0; i < n; i++)
                    cr_assert_leq(fabs(dx[i] - dy[i]), fine, "f64, kind %d, tolerance %g, %d-D", kind, tolerances[t],
                                  d);
                release(&c);
            }
    free(x);
    free(y);
    free(residual);
    free(dx);
    free(dy);
}

/* Units with values that libzfp would destroy come through as they are; their neighbours are still compressed. */
Test(values_zfp, what_libzfp_cannot_take)
{
    enum { UNIT = 4096, N = 6 * UNIT };
    if (!has_zfp())
        return;
    float *x = test_alloc(N * sizeof *x), *y = test_alloc(N * sizeof *y);
    for (int i = 0; i < N; i++)
        x[i] = i / UNIT == 4 ? 0 : sinf((float)i * .01f);
    x[7] = NAN;
    x[UNIT + 100] = INFINITY;
    x[2 * UNIT + 5] = FLT_MAX;
    x[4 * UNIT + 9] = -0.f;
    for (int i = 5 * UNIT; i < N; i++) /* at a rate, libzfp's usual parameters make garbage of these */
        x[i] = (float)(1 + i % 4) * 1e-35f;
    for (int mode = 0; mode < 2; mode++) {
        const struct pici_values asked = mode ? asking(0, 1e-3, 0, 0) : asking(8, 0, 0, 0);
        struct values_loss loss = {.times = 1};
        struct coded c = quantize(&asked, PICI_F32, x, N, &loss);
        cr_assert_eq(loss.nonfinite, 2);
        cr_assert_eq(dequantize(&c, y), PICI_OK);
        for (int u = 0; u < 3; u++)
            cr_assert(length_of(&c, (uint64_t)u) == UINT32_MAX && !memcmp(x + u * UNIT, y + u * UNIT, UNIT * 4));
        cr_assert(length_of(&c, 3) && length_of(&c, 3) < UNIT / 4);
        cr_assert_eq(length_of(&c, 4), 0);
        for (int i = 4 * UNIT; i < 5 * UNIT; i++)
            cr_assert(y[i] == 0 && !signbit(y[i]));
        for (int i = 5 * UNIT; i < N; i++)
            cr_assert(y[i] == 0, "%g became %g", (double)x[i], (double)y[i]);
        release(&c);
    }
    free(x);
    free(y);
}

/* The same of f64, and in two and three dimensions: a unit is 4 rows or planes. */
Test(values_zfp, what_libzfp_cannot_take_in_any_shape)
{
    enum { UNITS = 7 };
    if (!has_zfp())
        return;
    for (int d = 1; d <= 3; d++)
        for (int wide = 0; wide < 2; wide++)
            for (int mode = 0; mode < 2; mode++) {
                const struct pici_values asked = asking(mode ? 0 : 16, mode ? 1e-3 : 0, d > 1 ? NX : 0, d > 2 ? NY : 0);
                const uint64_t unit = d == 1 ? 4096 : d == 2 ? 4 * NX : 4 * NX * NY, n = UNITS * unit;
                const double above[] = {0x1.1p126, 0x1.1p1022}, tiny[] = {0x1p-100, 0x1p-970};
                const double bad[] = {NAN, INFINITY, -INFINITY, above[wide]}; /* of units 0 to 3; then at the limit */
                const size_t width = wide ? 8 : 4;
                double *x = test_alloc((size_t)n * 8);
                uint8_t *src = test_alloc((size_t)n * width), *y = test_alloc((size_t)n * width);
                for (uint64_t i = 0; i < n; i++)
                    x[i] = i / unit == 6 ? (double)(1 + i % 4) * tiny[wide] : sin((double)i * .01);
                for (uint64_t u = 0; u < 4; u++)
                    x[u * unit + u * 17 + 3] = bad[u];
                x[4 * unit + 9] = wide ? 0x1p1022 : 0x1p126;
                for (uint64_t i = 0; i < n; i++) {
                    const float f = (float)x[i];
                    memcpy(src + i * width, wide ? (const void *)&x[i] : (const void *)&f, width);
                }
                struct values_loss loss = {.times = 1};
                struct coded c = quantize(&asked, wide ? PICI_F64 : PICI_F32, src, n, &loss);
                cr_assert_eq(loss.nonfinite, 3);
                cr_assert_eq(dequantize(&c, y), PICI_OK);
                for (uint64_t u = 0; u < UNITS; u++)
                    cr_assert((length_of(&c, u) == UINT32_MAX) == (u < 4), "%d-D, unit %d: %u", d, (int)u,
                              length_of(&c, u));
                cr_assert_eq(memcmp(src, y, (size_t)(4 * unit) * width), 0);
                for (uint64_t i = 4 * unit; i < n; i++) {
                    double got = 0;
                    float f = 0;
                    memcpy(wide ? (void *)&got : (void *)&f, y + i * width, width);
                    got = wide ? got : (double)f;
                    cr_assert(isfinite(got) && fabs(got - x[i]) <= (i < 5 * unit ? ldexp(1, wide ? 1022 : 126) : .01),
                              "%d-D: %g became %g", d, x[i], got);
                    cr_assert(i < 6 * unit || fabs(got) <= ldexp(1, wide ? -958 : -94), "%d-D: %g became %g", d, x[i],
                              got);
                }
                release(&c);
                free(x);
                free(src);
                free(y);
            }
}

/* A smooth field pays with its shape. */
Test(values_zfp, dimensions_pay)
{
    enum { SIDE = 48, N = SIDE * SIDE * SIDE };
    if (!has_zfp())
        return;
    float *x = test_alloc(N * sizeof *x), *y = test_alloc(N * sizeof *y);
    for (int i = 0; i < N; i++)
        x[i] = sinf((float)(i % SIDE) * .15f) +
               cosf((float)(i / SIDE % SIDE) * .11f) * sinf((float)(i / SIDE / SIDE) * .2f);
    uint64_t bytes[4] = {UINT64_MAX};
    for (int d = 1; d <= 3; d++) {
        const struct pici_values asked = asking(0, 1e-3, d > 1 ? SIDE : 0, d > 2 ? SIDE : 0);
        struct coded c = quantize(&asked, PICI_F32, x, N, NULL);
        bytes[d] = c.have[1];
        cr_assert_lt(bytes[d], bytes[d - 1]);
        cr_assert_eq(dequantize(&c, y), PICI_OK);
        release(&c);
        const struct pici_values rate = asking(8, 0, d > 1 ? SIDE : 0, d > 2 ? SIDE : 0);
        c = quantize(&rate, PICI_F32, x, N, NULL);
        cr_assert_eq(c.have[1], N); /* a byte an element */
        release(&c);
    }
    free(x);
    free(y);
}

Test(values_zfp, refusals)
{
    struct values v;
    if (!has_zfp())
        return;
    static const struct {
        double rate, tolerance;
        uint32_t nx, ny;
        enum pici_dtype dtype;
        enum pici_op op;
        enum pici_status status;
    } table[] = {
        {0, 0, 0, 0, PICI_F32, PICI_SUM, PICI_E_ARG},
        {8, 1, 0, 0, PICI_F32, PICI_SUM, PICI_E_ARG},
        {-1, 0, 0, 0, PICI_F32, PICI_SUM, PICI_E_ARG},
        {8, -1, 0, 0, PICI_F32, PICI_SUM, PICI_E_ARG},
        {NAN, 0, 0, 0, PICI_F32, PICI_SUM, PICI_E_ARG},
        {0, NAN, 0, 0, PICI_F32, PICI_SUM, PICI_E_ARG},
        {0, INFINITY, 0, 0, PICI_F32, PICI_SUM, PICI_E_ARG},
        {INFINITY, 0, 0, 0, PICI_F32, PICI_SUM, PICI_E_ARG},
        {32.1, 0, 0, 0, PICI_F32, PICI_SUM, PICI_E_ARG},
        {32, 0, 0, 0, PICI_F32, PICI_SUM, PICI_OK},
        {2, 0, 0, 0, PICI_F32, PICI_SUM, PICI_E_ARG},
        {2.25, 0, 0, 0, PICI_F32, PICI_SUM, PICI_OK},
        {2.25, 0, 0, 0, PICI_F64, PICI_SUM, PICI_E_ARG},
        {3, 0, 0, 0, PICI_F64, PICI_SUM, PICI_OK},
        {1, 0, 10, 0, PICI_F32, PICI_SUM, PICI_OK},
        {8, 0, 0, 10, PICI_F32, PICI_SUM, PICI_E_ARG},
        {8, 0, 1u << 20, 1u << 20, PICI_F32, PICI_SUM, PICI_E_ARG},
        {8, 0, 0, 0, PICI_F16, PICI_SUM, PICI_E_UNSUPPORTED},
        {8, 0, 0, 0, PICI_BF16, PICI_SUM, PICI_E_UNSUPPORTED},
        {8, 0, 0, 0, PICI_I32, PICI_SUM, PICI_E_UNSUPPORTED},
        {8, 0, 0, 0, PICI_F32, PICI_MIN, PICI_E_UNSUPPORTED},
        {8, 0, 0, 0, PICI_F32, PICI_MAX, PICI_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct pici_values asked = asking(table[i].rate, table[i].tolerance, table[i].nx, table[i].ny);
        cr_assert_eq(pici_values_resolve(&v, &asked, table[i].dtype, table[i].op), table[i].status, "row %zu", i);
    }
    struct pici_values asked = asking(8, 0, NX, 0);
    cr_assert_eq(pici_values_resolve(&v, &asked, PICI_F32, PICI_SUM), PICI_OK);
    cr_assert(pici_values_count(&v, NX) == PICI_OK && pici_values_count(&v, NX + 1) == PICI_E_ARG);
    asked.ny = NY;
    cr_assert_eq(pici_values_resolve(&v, &asked, PICI_F32, PICI_SUM), PICI_OK);
    cr_assert(pici_values_count(&v, NX * NY) == PICI_OK && pici_values_count(&v, NX) == PICI_E_ARG);
}

/* Every rule broken; and streams with every byte changed, or of other data, which give a status or some elements. */
Test(values_zfp, hostile_arrays)
{
    enum { N = NX * NY * PLANES };
    struct rng rng = {9};
    if (!has_zfp())
        return;
    float *x = test_alloc(N * sizeof *x), *y = test_alloc(N * sizeof *y);
    for (int i = 0; i < N; i++)
        x[i] = sinf((float)i * .05f);
    for (int mode = 0; mode < 2; mode++)
        for (int d = 1; d <= 3; d++) {
            const uint32_t nx = d > 1 ? NX : 0, ny = d > 2 ? NY : 0;
            const struct pici_values asked = mode ? asking(0, 1e-2, nx, ny) : asking(6, 0, nx, ny);
            struct coded c = quantize(&asked, PICI_F32, x, N, NULL);
            const uint32_t length = length_of(&c, 0);
            static const uint32_t bad[] = {1, 0x40000000, UINT32_MAX - 1, 0, UINT32_MAX};
            for (int i = 0; i < 5; i++) { /* the last two are right in themselves; then the sum is wrong */
                memcpy(c.array[0], &bad[i], 4);
                cr_assert_eq(dequantize(&c, y), PICI_E_CORRUPT, "length %u", bad[i]);
            }
            memcpy(c.array[0], &length, 4);
            if (d > 1 && !mode) { /* the sum is right, but a rate allows one length only */
                const uint32_t moved[] = {length + 1, length_of(&c, 1) - 1};
                const uint32_t were[] = {length, length_of(&c, 1)};
                memcpy(c.array[0], moved, sizeof moved);
                cr_assert_eq(dequantize(&c, y), PICI_E_CORRUPT, "lengths that a rate does not have");
                memcpy(c.array[0], were, sizeof were);
            }
            for (int a = 0; a < 2; a++) {
                c.have[a]--;
                cr_assert_eq(dequantize(&c, y), PICI_E_CORRUPT);
                c.have[a]++;
            }
            cr_assert_eq(dequantize(&c, y), PICI_OK);
            uint8_t *const payload = c.array[1];
            for (uint64_t i = 0; i < c.have[1]; i += 1 + c.have[1] / 300) {
                const uint8_t was = payload[i];
                payload[i] ^= (uint8_t)(1 + rng_below(&rng, 255));
                const enum pici_status s = dequantize(&c, y);
                cr_assert(s == PICI_OK || s == PICI_E_CORRUPT);
                payload[i] = was;
            }
            for (int round = 0; round < 20; round++) {
                for (uint64_t i = 0; i < c.have[1]; i++)
                    payload[i] = (uint8_t)(round ? rng_next(&rng) : 255);
                const enum pici_status s = dequantize(&c, y);
                cr_assert(s == PICI_OK || s == PICI_E_CORRUPT);
            }
            release(&c);
        }
    free(x);
    free(y);
}
