/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The arithmetic of pici_scatter_add: known answers, all pairs of the narrow types and many of the wide ones. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "formats/ref.h"
#include "tests/util/util.h"

/* dst += x on every ISA, from a block of every format. Expects the n sums in want. */
static void add_all(enum pici_dtype dtype, uint64_t n, const void *dst, const void *x, const void *want)
{
    const unsigned width = ref_width(dtype);
    uint8_t *got = test_alloc((size_t)n * width);
    for (int format = PICI_DENSE; format <= PICI_HYBRID; format++) {
        size_t len;
        uint8_t *block = ref_encode(&len, x, n, dtype, (unsigned)format, 0);
        cr_assert_not_null(block);
        for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
            unsigned shown = 0;
            pici_isa_force(*isa);
            memcpy(got, dst, (size_t)n * width);
            cr_assert_eq(pici_scatter_add(got, n, block, len, NULL), PICI_OK);
            for (uint64_t i = 0; i < n && shown < 5; i++) {
                /* a zero of which only the sign is kept is not added */
                const int kept = block[4] == 2 && ref_load(x, i, width) == UINT64_C(1) << (8 * width - 1) &&
                                 ref_load(got, i, width) == ref_load(dst, i, width);
                if (!kept && ref_load(got, i, width) != ref_load(want, i, width)) {
                    shown++;
                    cr_expect_fail(
                        "%s %s %s: %llx + %llx gave %llx, not %llx", (*isa)->name, pici_dtype_name(dtype),
                        pici_format_name((enum pici_format)format), (unsigned long long)ref_load(dst, i, width),
                        (unsigned long long)ref_load(x, i, width), (unsigned long long)ref_load(got, i, width),
                        (unsigned long long)ref_load(want, i, width));
                }
            }
        }
        pici_isa_force(NULL);
        free(block);
    }
    free(got);
}

/* add_all, with the sums of the reference. */
static void add_as_reference(enum pici_dtype dtype, uint64_t n, const void *dst, const void *x)
{
    const unsigned width = ref_width(dtype);
    uint8_t *want = test_alloc((size_t)n * width);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t a = ref_load(dst, i, width), b = ref_load(x, i, width);
        ref_store(want, i, width, b ? ref_add(dtype, a, b) : a);
    }
    add_all(dtype, n, dst, x, want);
    free(want);
}

/* ---- known answers ---- */

struct sum {
    enum pici_dtype dtype;
    uint64_t dst, x, want;
};

static const struct sum sums[] = {
    /* one and one; the halfway cases to even; the least denormals */
    {PICI_F32, 0x3f800000, 0x3f800000, 0x40000000},
    {PICI_F32, 0x4b800000, 0x3f800000, 0x4b800000}, /* 2^24 + 1 */
    {PICI_F32, 0x4b800001, 0x3f800000, 0x4b800002},
    {PICI_F32, 1, 1, 2},
    {PICI_F32, 0x7fffff, 1, 0x800000},
    {PICI_F32, 0x800000, 0x80000001, 0x7fffff},
    {PICI_F64, UINT64_C(0x3ff0000000000000), UINT64_C(0x3ff0000000000000), UINT64_C(0x4000000000000000)},
    {PICI_F64, UINT64_C(0x4340000000000000), UINT64_C(0x3ff0000000000000), UINT64_C(0x4340000000000000)},
    {PICI_F64, UINT64_C(0x4340000000000001), UINT64_C(0x3ff0000000000000), UINT64_C(0x4340000000000002)},
    {PICI_F64, UINT64_C(0xfffffffffffff), 1, UINT64_C(0x10000000000000)},
    {PICI_F16, 0x3c00, 0x3c00, 0x4000},
    {PICI_F16, 0x6800, 0x3c00, 0x6800}, /* 2048 + 1 */
    {PICI_F16, 0x6801, 0x3c00, 0x6802},
    {PICI_F16, 0x3ff, 1, 0x400},
    {PICI_F16, 1, 0x8002, 0x8001},
    {PICI_BF16, 0x3f80, 0x3f80, 0x4000},
    {PICI_BF16, 0x4380, 0x3f80, 0x4380}, /* 256 + 1 */
    {PICI_BF16, 0x4381, 0x3f80, 0x4382},
    {PICI_BF16, 0x7f, 1, 0x80},
    {PICI_BF16, 1, 1, 2},
    {PICI_F8E4M3, 0x38, 0x38, 0x40},
    {PICI_F8E4M3, 0x58, 0x38, 0x58}, /* 16 + 1 */
    {PICI_F8E4M3, 0x59, 0x38, 0x5a},
    {PICI_F8E4M3, 7, 1, 8},
    {PICI_F8E5M2, 0x3c, 0x3c, 0x40},
    {PICI_F8E5M2, 0x48, 0x3c, 0x48}, /* 8 + 1 */
    {PICI_F8E5M2, 0x49, 0x3c, 0x4a},
    {PICI_F8E5M2, 3, 1, 4},

    /* zeros and their signs */
    {PICI_F32, 0, 0x80000000, 0},
    {PICI_F32, 0x80000000, 0x80000000, 0x80000000},
    {PICI_F32, 0x80000000, 0, 0x80000000}, /* not added */
    {PICI_F32, 0x3f800000, 0xbf800000, 0},
    {PICI_F64, UINT64_C(1) << 63, UINT64_C(1) << 63, UINT64_C(1) << 63},
    {PICI_F64, UINT64_C(1) << 63, 0, UINT64_C(1) << 63},
    {PICI_F16, 0x8000, 0x8000, 0x8000},
    {PICI_F16, 0x8000, 0, 0x8000},
    {PICI_F16, 0xbc00, 0x3c00, 0},
    {PICI_BF16, 0, 0x8000, 0},
    {PICI_BF16, 0x8000, 0, 0x8000},
    {PICI_F8E4M3, 0x80, 0x80, 0x80},
    {PICI_F8E4M3, 0xb8, 0x38, 0},
    {PICI_F8E5M2, 0x80, 0x80, 0x80},
    {PICI_F8E5M2, 0x80, 0, 0x80},

    /* overflow: the last halfway case below it and the first sum above */
    {PICI_F32, 0x7f7fffff, 0x72ffffff, 0x7f7fffff},
    {PICI_F32, 0x7f7fffff, 0x73000000, 0x7f800000},
    {PICI_F32, 0xff7fffff, 0xff7fffff, 0xff800000},
    {PICI_F64, UINT64_C(0x7fefffffffffffff), UINT64_C(0x7c90000000000000), UINT64_C(0x7ff0000000000000)},
    {PICI_F16, 0x7bff, 0x4bff, 0x7bff}, /* 65504 + 15.99 */
    {PICI_F16, 0x7bff, 0x4c00, 0x7c00}, /* 65504 + 16 */
    {PICI_F16, 0xfbff, 0xcc00, 0xfc00},
    {PICI_BF16, 0x7f7f, 0x7aff, 0x7f7f},
    {PICI_BF16, 0x7f7f, 0x7b00, 0x7f80},
    {PICI_BF16, 0xff7f, 0xff7f, 0xff80},
    {PICI_F8E4M3, 0x7e, 0x58, 0x7e}, /* 448 + 16 */
    {PICI_F8E4M3, 0x7e, 0x59, 0x7f}, /* 448 + 18 */
    {PICI_F8E4M3, 0xfe, 0xd9, 0xff},
    {PICI_F8E4M3, 0x7e, 0x7e, 0x7f},
    {PICI_F8E5M2, 0x7b, 0x6b, 0x7b}, /* 57344 + 3584 */
    {PICI_F8E5M2, 0x7b, 0x6c, 0x7c}, /* 57344 + 4096 */
    {PICI_F8E5M2, 0xfb, 0xfb, 0xfc},

    /* infinities */
    {PICI_F32, 0x7f800000, 0xff7fffff, 0x7f800000},
    {PICI_F32, 0x3f800000, 0xff800000, 0xff800000},
    {PICI_F32, 0x7f800000, 0x7f800000, 0x7f800000},
    {PICI_F16, 0x7c00, 0xfbff, 0x7c00},
    {PICI_BF16, 0x3f80, 0xff80, 0xff80},
    {PICI_F8E5M2, 0x7c, 0xfb, 0x7c},

    /* NaNs: the one in dst stays, otherwise the block's is taken; both become quiet. A zero in the block changes
     * nothing */
    {PICI_F32, 0x7f800001, 0x3f800000, 0x7fc00001},
    {PICI_F32, 0xffa12345, 0xffd54321, 0xffe12345},
    {PICI_F32, 0x3f800000, 0xff812345, 0xffc12345},
    {PICI_F32, 0x7f800000, 0x7f812345, 0x7fc12345},
    {PICI_F32, 0x7f800001, 0, 0x7f800001},
    {PICI_F64, UINT64_C(0x7ff0000000000001), UINT64_C(0x3ff0000000000000), UINT64_C(0x7ff8000000000001)},
    {PICI_F64, UINT64_C(0xfff0000000000123), UINT64_C(0x7ff8000000000321), UINT64_C(0xfff8000000000123)},
    {PICI_F64, 1, UINT64_C(0xfff4000000000321), UINT64_C(0xfffc000000000321)},
    {PICI_F64, UINT64_C(0x7ff0000000000001), 0, UINT64_C(0x7ff0000000000001)},
    {PICI_F16, 0x7c01, 0x3c00, 0x7e01},
    {PICI_F16, 0xfd55, 0x7e00, 0xff55},
    {PICI_F16, 0x3c00, 0xfc01, 0xfe01},
    {PICI_F16, 0x7c01, 0, 0x7c01},
    {PICI_BF16, 0x7f81, 0x3f80, 0x7fc1},
    {PICI_BF16, 0xffa5, 0x7fc0, 0xffe5},
    {PICI_BF16, 0x3f80, 0xff81, 0xffc1},
    {PICI_BF16, 0x7f81, 0, 0x7f81},
    {PICI_F8E4M3, 0x7f, 0xff, 0x7f},
    {PICI_F8E4M3, 0xff, 0x38, 0xff},
    {PICI_F8E4M3, 0x38, 0xff, 0xff},
    {PICI_F8E5M2, 0x7d, 0x3c, 0x7f},
    {PICI_F8E5M2, 0xfd, 0x7e, 0xff},
    {PICI_F8E5M2, 0x3c, 0xfd, 0xff},
    {PICI_F8E5M2, 0x7d, 0, 0x7d},

    /* integers wrap */
    {PICI_I8, 0x7f, 1, 0x80},
    {PICI_I8, 0x80, 0xff, 0x7f},
    {PICI_U8, 0xff, 1, 0},
    {PICI_U8, 0xff, 0xff, 0xfe},
    {PICI_I16, 0x7fff, 1, 0x8000},
    {PICI_U16, 0xffff, 2, 1},
    {PICI_I32, 0x7fffffff, 1, 0x80000000},
    {PICI_U32, 0xffffffff, 0xffffffff, 0xfffffffe},
    {PICI_I64, INT64_MAX, 1, UINT64_C(1) << 63},
    {PICI_U64, UINT64_MAX, 3, 2},
};

/* Each sum in every lane of a vector and in every place of the rest of a run of n. */
static void try_known(const struct sum *s, uint64_t n)
{
    const unsigned width = ref_width(s->dtype);
    uint64_t dst[200], x[200], want[200];
    cr_assert_leq(n, 200u);
    for (uint64_t i = 0; i < n; i++) {
        ref_store(dst, i, width, s->dst);
        ref_store(x, i, width, s->x);
        ref_store(want, i, width, s->want);
    }
    add_all(s->dtype, n, dst, x, want);
}

Test(codec_add, known_answers)
{
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        cr_expect_eq(sums[i].x ? ref_add(sums[i].dtype, sums[i].dst, sums[i].x) : sums[i].dst, sums[i].want,
                     "the reference, sum %zu", i);
        try_known(&sums[i], 1);
        try_known(&sums[i], 7);
        try_known(&sums[i], 64);
        try_known(&sums[i], 199);
    }
}

/* The one result that depends on the host: its default NaN. Every ISA gives the same. */
Test(codec_add, infinity_minus_infinity)
{
    static const struct {
        enum pici_dtype dtype;
        uint64_t infinity, sign, nan;
    } table[] = {{PICI_F32, 0x7f800000, 0x80000000, 0x7fc00000},
                 {PICI_F64, UINT64_C(0x7ff0000000000000), UINT64_C(1) << 63, UINT64_C(0x7ff8000000000000)},
                 {PICI_F16, 0x7c00, 0x8000, 0x7e00},
                 {PICI_BF16, 0x7f80, 0x8000, 0x7fc0},
                 {PICI_F8E5M2, 0x7c, 0x80, 0x7e}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const uint64_t a = table[i].infinity, b = a | table[i].sign, sum = ref_add(table[i].dtype, a, b);
        cr_expect_eq(sum & ~table[i].sign, table[i].nan);
        try_known(&(struct sum){table[i].dtype, a, b, sum}, 100);
        try_known(&(struct sum){table[i].dtype, b, a, sum}, 100);
    }
}

/* All pairs of bytes: row by row; and those with a byte whose low bits are more than `numbers`, a NaN, last, so that
 * the registers before them have none. */
static void try_all_bytes(enum pici_dtype dtype, unsigned numbers)
{
    uint8_t *dst = test_alloc(65536), *x = test_alloc(65536);
    for (int last = 0; last < 2; last++) {
        unsigned begin = 0, end = 65536;
        for (unsigned i = 0; i < 65536; i++) {
            const int nan = last && ((i >> 8 & 127) > numbers || (i & 127) > numbers);
            const unsigned at = nan ? --end : begin++;
            dst[at] = (uint8_t)(i >> 8);
            x[at] = (uint8_t)i;
        }
        add_as_reference(dtype, 65536, dst, x);
    }
    free(dst);
    free(x);
}

Test(codec_add, all_f8e4m3)
{
    try_all_bytes(PICI_F8E4M3, 0x7e);
}

Test(codec_add, all_f8e5m2)
{
    try_all_bytes(PICI_F8E5M2, 0x7c);
}

Test(codec_add, all_i8)
{
    try_all_bytes(PICI_I8, 127);
}

Test(codec_add, all_u8)
{
    try_all_bytes(PICI_U8, 127);
}

/* Random pairs: of any bits; close to each other; with the same exponent, so that sums cancel or are rounded. Then
 * close to each other without a NaN or an infinity, so that whole registers are added, but for a few. */
static void try_pairs(enum pici_dtype dtype, unsigned mantissa)
{
    enum { PAIRS = 1 << 18 };
    const unsigned width = ref_width(dtype);
    const uint64_t below = (UINT64_C(1) << mantissa) - 1, all = UINT64_MAX >> (64 - 8 * width);
    uint8_t *dst = test_alloc(PAIRS * 8), *x = test_alloc(PAIRS * 8);
    struct rng rng = {dtype};
    for (unsigned round = 0; round < 4; round++) {
        for (uint64_t i = 0; i < PAIRS; i++) {
            uint64_t a = round == 0 ? rng_next(&rng) & all : value_random(&rng, dtype);
            uint64_t b = round == 0 ? rng_next(&rng) & all : value_random(&rng, dtype);
            if (round == 2) {
                b = ((a & ~below) + (rng_below(&rng, mantissa + 3) << mantissa)) | (b & below);
                b = (b ^ rng_next(&rng) << (8 * width - 1)) & all;
            }
            if (round == 3 && i % 1000) { /* the exponent's highest bit: half of the floats have none */
                a &= ~(UINT64_C(1) << (8 * width - 2));
                b &= ~(UINT64_C(1) << (8 * width - 2));
            }
            ref_store(dst, i, width, a);
            ref_store(x, i, width, b);
        }
        add_as_reference(dtype, PAIRS, dst, x);
    }
    free(dst);
    free(x);
}

#define PAIRS_OF(name, dtype, mantissa)                                                                                \
    Test(codec_add, pairs_##name)                                                                                      \
    {                                                                                                                  \
        try_pairs(dtype, mantissa);                                                                                    \
    }
PAIRS_OF(f32, PICI_F32, 23)
PAIRS_OF(f64, PICI_F64, 52)
PAIRS_OF(f16, PICI_F16, 10)
PAIRS_OF(bf16, PICI_BF16, 7)
PAIRS_OF(i16, PICI_I16, 15)
PAIRS_OF(u16, PICI_U16, 16)
PAIRS_OF(i32, PICI_I32, 31)
PAIRS_OF(u32, PICI_U32, 30)
PAIRS_OF(i64, PICI_I64, 63)
PAIRS_OF(u64, PICI_U64, 60)

/* ---- what is not added ---- */

/* Where a block has zeros (a dense block stores them), dst keeps every bit: signalling NaNs, -0, denormals. */
static void try_untouched(enum pici_dtype dtype, enum pattern pattern)
{
    const uint64_t n = 2 * 4096 + 99;
    const unsigned width = ref_width(dtype);
    uint8_t *dst = test_alloc((size_t)n * width), *x = test_alloc((size_t)n * width),
            *got = test_alloc((size_t)n * width);
    struct rng rng = {pattern};
    memset(dst, 0xff, (size_t)n * width);
    for (uint64_t i = 0; i < n; i++) /* sNaN: the highest bit of the mantissa clear, the lowest set */
        ref_store(dst, i, width,
                  dtype == PICI_F32   ? 0x7f800001
                  : dtype == PICI_F64 ? UINT64_C(0xfff0000000000001)
                                      : 0x7f81);
    pattern_fill(x, n, dtype, pattern, &rng);
    for (int format = PICI_DENSE; format <= PICI_HYBRID; format++) {
        size_t len;
        uint8_t *block = ref_encode(&len, x, n, dtype, (unsigned)format, 0);
        for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
            pici_isa_force(*isa);
            memcpy(got, dst, (size_t)n * width);
            cr_assert_eq(pici_scatter_add(got, n, block, len, NULL), PICI_OK);
            uint64_t changed = 0;
            for (uint64_t i = 0; i < n; i++)
                changed += !ref_load(x, i, width) && ref_load(got, i, width) != ref_load(dst, i, width);
            cr_expect_eq(changed, 0u, "%s %s %s", (*isa)->name, pici_dtype_name(dtype), pattern_name(pattern));
        }
        pici_isa_force(NULL);
        free(block);
    }
    free(dst);
    free(x);
    free(got);
}

Test(codec_add, zeros_change_nothing)
{
    static const enum pici_dtype dtypes[] = {PICI_F32, PICI_F64, PICI_BF16};
    for (unsigned d = 0; d < 3; d++)
        for (int pattern = 0; pattern < PATTERNS; pattern++)
            try_untouched(dtypes[d], (enum pattern)pattern);
}
