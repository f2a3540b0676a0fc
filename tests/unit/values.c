/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Lossy codecs: what parameters are refused, and the errors of quantising as formats/values.md bounds them. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/util/util.h"
#include "values/values.h"

/* ---- parameters */

static enum pici_status resolve(const struct pici_values *asked, enum pici_dtype dtype, enum pici_op op)
{
    struct values v;
    const enum pici_status s = pici_values_resolve(&v, asked, dtype, op);
    if (s)
        cr_assert_eq(v.codec, &pici_codec_exact, "refused parameters are not in force");
    return s;
}

static struct pici_values asking(enum pici_value_codec codec)
{
    struct pici_values v = PICI_VALUES_INIT;
    v.codec = codec;
    return v;
}

Test(values, defaults)
{
    struct values v;
    struct pici_values asked = asking(PICI_VALUES_QSGD);
    asked.cast = PICI_F16; /* is ignored */
    asked.rate = 8;
    cr_assert_eq(pici_values_resolve(&v, &asked, PICI_F16, PICI_AVG), PICI_OK);
    cr_assert(v.codec == &pici_codec_qsgd && v.bits == 8 && v.bucket == 1024 && v.norm == PICI_NORM_MAX &&
              v.rounding == PICI_ROUND_RANDOM && v.phases == 3 && v.dtype == PICI_F16);
    cr_assert(!v.cast && v.parameter == 0);
    asked = asking(PICI_VALUES_CAST);
    asked.bits = 3; /* is ignored */
    asked.phases = 2;
    cr_assert_eq(pici_values_resolve(&v, &asked, PICI_F32, PICI_MAX), PICI_OK);
    cr_assert(v.codec == &pici_codec_cast && v.cast == PICI_BF16 && !v.bits && v.phases == VALUES_GATHERING);
    cr_assert_eq(pici_values_resolve(&v, &asked, PICI_F64, PICI_MIN), PICI_OK);
    cr_assert_eq(v.cast, PICI_F32);
    for (int dtype = PICI_F32; dtype <= PICI_U64; dtype++) {
        cr_assert_eq(pici_values_resolve(&v, NULL, (enum pici_dtype)dtype, PICI_MIN), PICI_OK);
        cr_assert(v.codec == &pici_codec_exact && !v.phases && v.dtype == (enum pici_dtype)dtype);
    }
}

Test(values, refusals)
{
    struct pici_values q = asking(PICI_VALUES_QSGD), c = asking(PICI_VALUES_CAST);
    for (int dtype = PICI_F32; dtype <= PICI_U64; dtype++) {
        const int has_cast = dtype <= PICI_F64, has_qsgd = dtype <= PICI_BF16;
        cr_assert_eq(resolve(&c, (enum pici_dtype)dtype, PICI_SUM), has_cast ? PICI_OK : PICI_E_UNSUPPORTED);
        cr_assert_eq(resolve(&q, (enum pici_dtype)dtype, PICI_SUM), has_qsgd ? PICI_OK : PICI_E_UNSUPPORTED);
        cr_assert_eq(resolve(&q, (enum pici_dtype)dtype, PICI_MIN), PICI_E_UNSUPPORTED);
        cr_assert_eq(resolve(&q, (enum pici_dtype)dtype, PICI_MAX), PICI_E_UNSUPPORTED);
    }
#define REFUSED(v, member, value, status)                                                                              \
    do {                                                                                                               \
        struct pici_values changed = v;                                                                                \
        changed.member = value;                                                                                        \
        cr_assert_eq(resolve(&changed, PICI_F32, PICI_SUM), status, #member " = " #value);                             \
    } while (0)
    static const int bits[] = {-8, 1, 3, 5, 6, 7, 9, 16};
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++)
        REFUSED(q, bits, bits[i], PICI_E_ARG);
    static const uint32_t buckets[] = {1, 32, 63, 65, 96, 1000, 4095, 8192, 1u << 31};
    for (size_t i = 0; i < sizeof buckets / sizeof *buckets; i++)
        REFUSED(q, bucket, buckets[i], PICI_E_ARG);
    REFUSED(q, norm, (enum pici_norm)2, PICI_E_ARG);
    REFUSED(q, rounding, (enum pici_rounding)2, PICI_E_ARG);
    REFUSED(q, phases, 4, PICI_E_ARG);
    REFUSED(c, cast, PICI_F32, PICI_E_ARG);
    REFUSED(c, cast, PICI_I8, PICI_E_ARG);
    REFUSED(c, cast, (enum pici_dtype)99, PICI_E_ARG);
    REFUSED(c, codec, (enum pici_value_codec)4, PICI_E_UNSUPPORTED);
    REFUSED(c, codec, (enum pici_value_codec) - 1, PICI_E_UNSUPPORTED);
    REFUSED(c, size, sizeof c - 1, PICI_E_ARG);
    REFUSED(c, size, 0, PICI_E_ARG);
    c.cast = PICI_BF16;
    cr_assert_eq(resolve(&c, PICI_F64, PICI_SUM), PICI_E_ARG);
    /* a newer struct */
    struct {
        struct pici_values v;
        uint64_t more;
    } newer = {asking(PICI_VALUES_QSGD), 0};
    newer.v.size = sizeof newer;
    cr_assert_eq(resolve(&newer.v, PICI_F32, PICI_SUM), PICI_OK);
    newer.more = 1;
    cr_assert_eq(resolve(&newer.v, PICI_F32, PICI_SUM), PICI_E_UNSUPPORTED);
}

/* ---- errors of one encoding */

enum { N = 128, SEEDS = 4096 };

static double uniform(struct rng *rng)
{
    return (double)(rng_next(rng) >> 11) * 0x1p-53;
}

static void gaussian(float *x, int n, struct rng *rng)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)(sqrt(-2 * log(uniform(rng) + 0x1p-60)) * cos(6.283185307179586 * uniform(rng)));
}

/* What x becomes. down: as if an encoder always rounded toward zero. */
static void there_and_back(float *y, float *scale, const float *x, int n, const struct pici_values *asked, int down)
{
    struct values v;
    const struct values_where where = {64, 5, 0, 3};
    uint8_t codes[N];
    void *const out[2] = {scale, codes};
    const void *const in[2] = {scale, codes};
    uint64_t made[2];
    cr_assert_eq(pici_values_resolve(&v, asked, PICI_F32, PICI_SUM), PICI_OK);
    cr_assert_eq(v.codec->quantize(&v, &where, out, made, x, (uint64_t)n, NULL), PICI_OK);
    cr_assert_eq(v.codec->dequantize(&v, y, 0, (uint64_t)n, (uint64_t)n, in, made), PICI_OK);
    const double delta = (double)*scale / ((1 << (v.bits - 1)) - 1);
    for (int i = 0; i < n && down; i++)
        y[i] = (float)(copysign(floor(fabs(x[i]) / delta * (1 + 1e-7)) * delta, x[i]));
}

/* Whether mean, variance and greatest error over many seeds are within the bounds for norm max. */
static const char *unbiased(const float *x, int n, struct pici_values asked, int down)
{
    static double sum[N], squares[N];
    const double s = (1 << (asked.bits - 1)) - 1;
    float y[N], scale;
    memset(sum, 0, sizeof sum);
    memset(squares, 0, sizeof squares);
    for (int seed = 0; seed < SEEDS; seed++) {
        asked.seed = (uint64_t)seed * UINT64_C(0x9e3779b97f4a7c15);
        there_and_back(y, &scale, x, n, &asked, down);
        for (int i = 0; i < n; i++) {
            const double error = (double)y[i] - x[i];
            if (fabs(error) > scale / s * (1 + 0x1p-20))
                return "an error is greater than Delta";
            sum[i] += error;
            squares[i] += error * error;
        }
    }
    const double delta = scale / s;
    for (int i = 0; i < n; i++) {
        if (fabs(sum[i] / SEEDS) > 5 * delta / (2 * sqrt(SEEDS)))
            return "the mean is not x";
        if (squares[i] / SEEDS > delta * delta / 4 * 1.02)
            return "the variance is greater than Delta^2 / 4";
    }
    return NULL;
}

Test(values, random_rounding_is_unbiased)
{
    struct rng rng = {3};
    float x[N];
    for (int bits = 2; bits <= 8; bits *= 2) {
        struct pici_values asked = asking(PICI_VALUES_QSGD);
        asked.bits = bits;
        asked.bucket = N;
        gaussian(x, N, &rng);
        const char *bad = unbiased(x, N, asked, 0);
        cr_assert(!bad, "%d bits: %s", bits, bad);
        cr_assert(unbiased(x, N, asked, 1), "%d bits: rounding down passes too", bits);
    }
}

Test(values, nearest_is_within_half)
{
    struct rng rng = {4};
    for (int bits = 2; bits <= 8; bits *= 2)
        for (int round = 0; round < 100; round++) {
            struct pici_values asked = asking(PICI_VALUES_QSGD);
            float x[N], y[N], scale;
            asked.bits = bits;
            asked.bucket = N;
            asked.rounding = PICI_ROUND_NEAREST;
            gaussian(x, N, &rng);
            there_and_back(y, &scale, x, N, &asked, 0);
            for (int i = 0; i < N; i++) {
                cr_assert_leq(fabs((double)y[i] - x[i]), scale / ((1 << (bits - 1)) - 1) * (.5 + 0x1p-20));
                if (fabsf(x[i]) == scale) /* the greatest is exact */
                    cr_assert_eq(y[i], x[i]);
            }
        }
}

/* E|Q(x) - x|^2 <= min(n / s^2, sqrt(n) / s) |x|^2, for dense and for sparse x. */
Test(values, two_norm)
{
    struct rng rng = {5};
    for (int bits = 2; bits <= 8; bits *= 2)
        for (int sparse = 0; sparse < 2; sparse++) {
            struct pici_values asked = asking(PICI_VALUES_QSGD);
            const double s = (1 << (bits - 1)) - 1, bound = fmin(N / (s * s), sqrt(N) / s);
            float x[N], y[N], scale;
            double power = 0, noise = 0;
            asked.bits = bits;
            asked.bucket = N;
            asked.norm = PICI_NORM_L2;
            gaussian(x, N, &rng);
            for (int i = 0; i < N; i++) {
                x[i] = sparse && i % 16 ? 0 : x[i];
                power += (double)x[i] * x[i];
            }
            for (int seed = 0; seed < SEEDS; seed++) {
                asked.seed = (uint64_t)seed;
                there_and_back(y, &scale, x, N, &asked, 0);
                for (int i = 0; i < N; i++)
                    noise += ((double)y[i] - x[i]) * ((double)y[i] - x[i]);
            }
            cr_assert_float_eq(scale, sqrt(power), 1e-6 * sqrt(power));
            cr_assert_leq(noise / SEEDS, bound * power * 1.02, "%d bits: %g of %g", bits, noise / SEEDS, bound * power);
        }
}

/* Noise over signal of Gaussian data in buckets of 1024, to within 10%. */
Test(values, noise_of_gaussian_data)
{
    enum { MANY = 1 << 17 };
    static const struct {
        int bits;
        enum pici_norm norm;
        double noise;
    } table[] = {{2, PICI_NORM_MAX, 1.73}, {4, PICI_NORM_MAX, .040}, {8, PICI_NORM_MAX, .00012},
                 {2, PICI_NORM_L2, 24},    {4, PICI_NORM_L2, 2.6},   {8, PICI_NORM_L2, .011}};
    struct rng rng = {6};
    float *x = test_alloc(MANY * sizeof *x), *y = test_alloc(MANY * sizeof *y), *scale = test_alloc(MANY * sizeof *x);
    uint8_t *codes = test_alloc(MANY);
    gaussian(x, MANY, &rng);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct pici_values asked = asking(PICI_VALUES_QSGD);
        const struct values_where where = {0, 0, 0, 0};
        struct values_loss loss = {.times = 1};
        struct values v;
        void *const out[2] = {scale, codes};
        uint64_t made[2];
        double power = 0;
        asked.bits = table[i].bits;
        asked.norm = table[i].norm;
        asked.seed = 11;
        cr_assert_eq(pici_values_resolve(&v, &asked, PICI_F32, PICI_SUM), PICI_OK);
        cr_assert_eq(v.codec->quantize(&v, &where, out, made, x, MANY, &loss), PICI_OK);
        for (int k = 0; k < MANY; k++)
            power += (double)x[k] * x[k];
        cr_assert_float_eq(loss.squares / power, table[i].noise, .1 * table[i].noise, "%d bits: %g", table[i].bits,
                           loss.squares / power);
    }
    free(x);
    free(y);
    free(scale);
    free(codes);
}
