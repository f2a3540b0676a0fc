/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_nonzeros and pici_changes against elements that are compared one by one. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "formats/ref.h"
#include "formats/ref_small.h"
#include "pici/delta.h"
#include "tests/util/small.h"

static const enum pici_dtype widths[4] = {PICI_I8, PICI_F16, PICI_F32, PICI_U64};
static const uint8_t zeros[8];

struct found {
    void *indices;
    uint8_t *values;
    uint64_t count;
};

/* What the functions must find: where `now` is not `before` (null: zeros). */
static struct found expected(const uint8_t *before, const uint8_t *now, uint64_t first, uint64_t n, unsigned width,
                             size_t index_bytes)
{
    struct found found = {test_alloc((size_t)n * 8), test_alloc((size_t)n * width), 0};
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t at = first + i;
        if (memcmp(before ? before + at * width : zeros, now + at * width, width) == 0)
            continue;
        if (index_bytes == 8)
            ((uint64_t *)found.indices)[found.count] = i;
        else
            ((uint32_t *)found.indices)[found.count] = (uint32_t)i;
        memcpy(found.values + found.count++ * width, now + at * width, width);
    }
    return found;
}

/* base: null for pici_nonzeros. */
static enum pici_status find(void *indices, size_t index_bytes, void *values, uint64_t cap, uint64_t *count,
                             const void *base, uint64_t all, const void *block, size_t len, uint64_t first, uint64_t n)
{
    return base ? pici_changes(indices, index_bytes, values, cap, count, base, all, block, len, first, n)
                : pici_nonzeros(indices, index_bytes, values, cap, count, block, len, first, n);
}

static void check(const uint8_t *base, const uint8_t *now, uint64_t all, uint64_t first, uint64_t n,
                  enum pici_dtype dtype, const uint8_t *block, size_t len)
{
    const unsigned width = ref_width(dtype);
    for (size_t index_bytes = 4; index_bytes <= 8; index_bytes += 4) {
        struct found want = expected(base, now, first, n, width, index_bytes);
        struct rig rig;
        uint64_t count;
        rig_init(&rig, (size_t)(want.count * 8 + 16), n);
        /* exactly enough room: nothing beyond it is touched */
        void *const indices = guard_place(&rig.dst, (size_t)want.count * index_bytes, GUARD_END, 0);
        uint8_t *const values = guard_place(&rig.block, (size_t)want.count * width, GUARD_END, 0);
        cr_assert_eq(find(indices, index_bytes, values, want.count, &count, base, all, block, len, first, n), PICI_OK);
        cr_assert_eq(count, want.count);
        cr_assert_eq(memcmp(indices, want.indices, (size_t)count * index_bytes), 0, "width %u", width);
        cr_assert_eq(memcmp(values, want.values, (size_t)count * width), 0, "width %u", width);
        cr_expect(guard_intact(&rig.dst) && guard_intact(&rig.block));
        cr_expect_eq(find(NULL, index_bytes, values, want.count, &count, base, all, block, len, first, n), PICI_OK);
        cr_expect_eq(find(indices, index_bytes, NULL, want.count, &count, base, all, block, len, first, n), PICI_OK);
        cr_expect_eq(count, want.count);
        if (want.count) {
            const uint64_t less = want.count - 1 - want.count / 3;
            cr_expect_eq(find(NULL, index_bytes, NULL, 0, &count, base, all, block, len, first, n), PICI_E_SPACE);
            cr_expect_eq(count, want.count);
            memset(values, 0, (size_t)want.count * width);
            cr_expect_eq(find(indices, index_bytes, values, less, &count, base, all, block, len, first, n),
                         PICI_E_SPACE);
            cr_expect_eq(count, want.count);
            cr_expect_eq(memcmp(values, want.values, (size_t)less * width), 0);
            for (size_t i = (size_t)less * width; i < want.count * width; i++)
                cr_expect_eq(values[i], 0);
        }
        rig_free(&rig);
        free(want.indices);
        free(want.values);
    }
}

Test(codec_nonzeros, of_blocks)
{
    enum { N = 20001 };
    static const uint64_t ends[] = {0, 1, 4095, 4096, 4097, 9000, 16384, 20000, N};
    uint8_t *const src = test_alloc(N * 8);
    struct rng rng = {5};
    for (unsigned w = 0; w < 4; w++)
        for (int pattern = 0; pattern < PATTERNS; pattern++) {
            pattern_fill(src, N, widths[w], (enum pattern)pattern, &rng);
            for (int format = PICI_DENSE; format <= PICI_HYBRID; format++) {
                size_t len;
                uint8_t *const block = ref_encode(&len, src, N, widths[w], (unsigned)format, format == PICI_COO);
                for (unsigned i = 0; i < 9; i += pattern % 2 + 1)
                    for (unsigned j = i; j < 9; j += 4)
                        check(NULL, src, N, ends[i], ends[j] - ends[i], widths[w], block, len);
                check(NULL, src, N, 0, N, widths[w], block, len);
                free(block);
            }
        }
    free(src);
}

/* The sign of a zero that hybrid keeps apart is a nonzero; packed blocks are read too. */
Test(codec_nonzeros, negative_zeros_and_packed)
{
    enum { N = 9000 };
    static uint16_t src[N];
    static uint8_t block[2 * N + 4096];
    struct rng rng = {2};
    for (unsigned i = 0; i < N; i++)
        src[i] = (uint16_t)(rng_below(&rng, 3) ? 0 : 0x8000);
    for (unsigned i = 0; i < N; i += 5)
        src[i] = (uint16_t)(0x3c00 + rng_below(&rng, 99));
    for (int format = PICI_HYBRID; format <= PICI_PACKED; format++) {
        size_t len;
        cr_assert_eq(pici_compress(block, sizeof block, &len, src, N, PICI_BF16, (enum pici_format)format, NULL), 0);
        check(NULL, (const uint8_t *)src, N, 0, N, PICI_BF16, block, len);
        check(NULL, (const uint8_t *)src, N, 4000, 3000, PICI_BF16, block, len);
    }
}

static void of_deltas(uint64_t n, enum pici_dtype dtype, enum step step)
{
    uint8_t *const base = test_alloc((size_t)n * 8), *const now = test_alloc((size_t)n * 8);
    const size_t cap = pici_diff_small_bound(PICI_AUTO, dtype, n);
    uint8_t *const delta = test_alloc(cap);
    struct rng rng = {7};
    size_t len;
    step_fill(base, now, n, dtype, step, &rng);
    cr_assert_eq(pici_diff_small(delta, cap, &len, base, now, n, dtype, PICI_AUTO, NULL), PICI_OK);
    check(base, now, n, 0, n, dtype, delta, len);
    if (n > 900)
        check(base, now, n, n / 3, n / 2, dtype, delta, len);
    check(base, now, n, n, 0, dtype, delta, len);
    cr_assert_eq(pici_diff(delta, cap, &len, base, now, n, dtype, PICI_AUTO, NULL), PICI_OK);
    check(base, now, n, 0, n, dtype, delta, len);
    check(base, now, n, n / 3, n / 2, dtype, delta, len);
    free(base);
    free(now);
    free(delta);
}

Test(codec_nonzeros, of_deltas)
{
    static const enum pici_dtype dtypes[] = {PICI_BF16, PICI_F16, PICI_F32, PICI_U8, PICI_F64};
    for (unsigned d = 0; d < 5; d++)
        for (int step = 0; step < STEPS; step++)
            for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
                pici_isa_force(*isa);
                of_deltas(5000, dtypes[d], (enum step)step);
            }
    pici_isa_force(NULL);
    of_deltas(2 * REF_SMALL_CHUNK + 555, PICI_BF16, STEP_TINY);
    of_deltas(REF_SMALL_CHUNK + 5, PICI_F32, STEP_USUAL);
}

Test(codec_nonzeros, wrong_calls)
{
    uint16_t src[100] = {1, 2, 3}, values[100];
    uint8_t block[400], delta[400];
    uint32_t at[100];
    uint64_t count = 77;
    size_t len, small;
    cr_assert_eq(pici_compress(block, sizeof block, &len, src, 100, PICI_BF16, PICI_AUTO, NULL), PICI_OK);
    cr_expect_eq(pici_nonzeros(at, 4, values, 100, NULL, block, len, 0, 100), PICI_E_ARG);
    cr_expect_eq(pici_nonzeros(at, 4, values, 100, &count, NULL, len, 0, 100), PICI_E_ARG);
    cr_expect_eq(count, 0u);
    cr_expect_eq(pici_nonzeros(at, 2, values, 100, &count, block, len, 0, 100), PICI_E_ARG);
    cr_expect_eq(pici_nonzeros(NULL, 4, NULL, 1, &count, block, len, 0, 100), PICI_E_ARG);
    cr_expect_eq(pici_nonzeros(at, 4, values, 100, &count, block, len, 1, 100), PICI_E_ARG);
    cr_expect_eq(pici_nonzeros(at, 4, values, 100, &count, block, len, 101, 0), PICI_E_ARG);
    cr_expect_eq(pici_nonzeros(at, 4, values, 100, &count, block, len - 1, 0, 100), PICI_E_CORRUPT);
    cr_expect_eq(pici_nonzeros(at, 4, values, 100, &count, block, len, 1, 99), PICI_OK);
    cr_expect_eq(count, 2u);
    cr_expect_eq(at[1], 1u, "positions count from the first");

    const uint16_t base[100] = {0};
    cr_assert_eq(pici_diff_small(delta, sizeof delta, &small, base, src, 100, PICI_BF16, PICI_AUTO, NULL), PICI_OK);
    cr_expect_eq(pici_changes(at, 4, values, 100, &count, NULL, 100, delta, small, 0, 100), PICI_E_ARG);
    cr_expect_eq(pici_changes(at, 4, values, 100, &count, base, 100, NULL, small, 0, 100), PICI_E_ARG);
    cr_expect_eq(pici_changes(at, 4, values, 100, NULL, base, 100, delta, small, 0, 100), PICI_E_ARG);
    cr_expect_eq(pici_changes(at, 4, values, 100, &count, base, 100, delta, small, 0, 101), PICI_E_ARG);
    cr_expect_eq(pici_changes(at, 4, values, 100, &count, base, 100, block, len, 0, 101), PICI_E_ARG);
    cr_expect_eq(pici_changes(at, 4, values, 100, &count, NULL, 100, block, len, 0, 100), PICI_E_ARG);
    cr_expect_eq(pici_changes(at, 4, values, 100, &count, base, 100, delta, small, 0, 100), PICI_OK);
    for (size_t cut = 0; cut < small; cut++)
        cr_expect_eq(pici_changes(at, 4, values, 100, &count, base, 100, delta, cut, 0, 100), PICI_E_CORRUPT);
    for (size_t i = 0; i < small; i++) {
        uint16_t got[100] = {0};
        delta[i] ^= 0x11;
        const enum pici_status want = pici_apply_small(got, 100, delta, small, NULL);
        cr_expect_eq(pici_changes(at, 4, values, 100, &count, base, 100, delta, small, 0, 100), want, "byte %zu", i);
        delta[i] ^= 0x11;
    }
}
