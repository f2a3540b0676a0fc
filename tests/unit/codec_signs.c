/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Negative zeros in hybrid blocks that keep their signs: lengths against the entropy, versions, damage, and the kernels
 * for signs. That blocks are the reference's is checked with all other patterns (PATTERN_MASKED, PATTERN_SIGNS). */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "formats/ref.h"
#include "pici/delta.h"
#include "tests/util/util.h"

static double entropy(double p)
{
    return p > 0 && p < 1 ? -p * log2(p) - (1 - p) * log2(1 - p) : 0;
}

static size_t length(uint8_t *block, size_t cap, const void *src, uint64_t n, enum pici_dtype dtype,
                     const struct pici_opts *opts)
{
    size_t len = 0;
    cr_assert_eq(pici_compress(block, cap, &len, src, n, dtype, PICI_HYBRID, opts), PICI_OK);
    return len;
}

/* f32 with random nonzeros, and a random share of the zeros negative: at most 1.15 times the entropy and 12 bytes a
 * tile. */
Test(codec_signs, lengths)
{
    static const double nonzero[] = {0.001, 0.01, 0.05, 0.1, 0.12, 0.3, 0.5, 0.9, 1};
    static const double negative[] = {0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.38, 0.5, 0.7, 0.99, 1};
    enum { N = 1 << 20 };
    const size_t cap = pici_bound(PICI_HYBRID, PICI_F32, N);
    float *src = test_alloc(N * sizeof *src), *back = test_alloc(N * sizeof *src);
    uint8_t *block = test_alloc(cap);
    struct rng rng = {5};
    for (unsigned i = 0; i < sizeof nonzero / sizeof *nonzero; i++)
        for (unsigned k = 0; k < sizeof negative / sizeof *negative; k++) {
            double nnz = 0, minus = 0;
            for (uint64_t e = 0; e < N; e++) {
                const int some = (double)(rng_next(&rng) >> 11) < nonzero[i] * 0x1p53;
                const int below = (double)(rng_next(&rng) >> 11) < negative[k] * 0x1p53;
                src[e] = some ? (float)(1 + rng_below(&rng, 1000)) : below ? -0.0f : 0.0f;
                nnz += some;
                minus += !some && below;
            }
            const double zeros = N - nnz, q = zeros > 0 ? minus / zeros : 0;
            const double bound = nnz * 4 + N * entropy(nnz / N) / 8 + zeros * entropy(q) / 8;
            const size_t len = length(block, cap, src, N, PICI_F32, NULL);
            cr_expect_leq((double)len, 1.15 * bound + 64 + 12 * (N / 4096), "%g nonzero, %g negative: %zu, bound %.0f",
                          nonzero[i], negative[k], len, bound);
            cr_expect_eq(pici_decompress(back, N, block, len, NULL), PICI_OK);
            cr_expect_eq(memcmp(src, back, N * sizeof *src), 0);
            cr_expect(minus > 0 || block[4] == 1);
        }
    free(src);
    free(back);
    free(block);
}

/* A product with a mask that keeps 5%: half of the zeros are negative. */
Test(codec_signs, pruned)
{
    enum { N = 1 << 20 };
    const struct pici_opts by_value = {.size = sizeof by_value, .zeros = PICI_ZEROS_BY_VALUE};
    const size_t cap = pici_bound(PICI_HYBRID, PICI_F32, N);
    float *src = test_alloc(N * sizeof *src);
    uint8_t *block = test_alloc(cap);
    struct rng rng = {6};
    for (uint64_t e = 0; e < N; e++) {
        const float w = (float)((double)(int64_t)rng_next(&rng) * 0x1p-63);
        src[e] = w * (rng_below(&rng, 100) < 5 ? 1.0f : 0.0f);
    }
    const size_t exact = length(block, cap, src, N, PICI_F32, NULL);
    cr_expect_leq((double)exact, 0.11 * N * 4);
    cr_expect_eq(block[4], 2);
    const size_t value = length(block, cap, src, N, PICI_F32, &by_value);
    cr_expect_leq((double)value, 0.065 * N * 4);
    cr_expect_eq(block[4], 1);
    free(src);
    free(block);
}

/* Integers have no negative zeros; one negative zero is stored as a value, which is shorter. */
Test(codec_signs, versions)
{
    enum { N = 5000 };
    static uint32_t src[N];
    static uint8_t block[N * 4 + 4096], other[sizeof block];
    src[17] = UINT32_C(0x80000000);
    length(block, sizeof block, src, N, PICI_F32, NULL);
    cr_expect_eq(block[4], 1);
    for (unsigned i = 0; i < N; i += 2)
        src[i] = UINT32_C(0x80000000);
    size_t len = length(block, sizeof block, src, N, PICI_I32, NULL);
    cr_expect_eq(block[4], 1);
    len = length(block, sizeof block, src, N, PICI_F32, NULL);
    cr_expect_eq(block[4], 2);
    cr_expect_eq(ref_get(block + 16, 8), 0, "zeros kept as signs are not counted");
    cr_expect_eq(pici_verify(block, len), PICI_OK);

    /* no other dtype or format has version 2, and no version is 3 */
    static const struct {
        unsigned at, value;
        enum pici_status status;
        const char *rule;
    } wrong[] = {{6, PICI_I32, PICI_E_CORRUPT, "version"},
                 {5, PICI_COO, PICI_E_CORRUPT, "version"},
                 {4, 3, PICI_E_VERSION, "version"}};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct pici_fault fault = PICI_FAULT_INIT;
        memcpy(other, block, len);
        other[wrong[i].at] = (uint8_t)wrong[i].value;
        cr_expect_eq(pici_verify_at(other, len, &fault), wrong[i].status);
        cr_expect(fault.offset == 4 && !strcmp(fault.rule, wrong[i].rule), "%s", fault.rule);
    }
    /* nor has a block without signs, also one without elements */
    struct pici_fault fault = PICI_FAULT_INIT;
    static const float values[N] = {1};
    len = length(other, sizeof other, values, N, PICI_F32, NULL);
    other[4] = 2;
    cr_expect_eq(pici_verify_at(other, len, &fault), PICI_E_CORRUPT);
    cr_expect(fault.offset == 4 && !strcmp(fault.rule, "version"), "%s", fault.rule);
    cr_expect_eq(pici_decompress(src, N, other, len, NULL), PICI_E_CORRUPT);
    len = length(other, sizeof other, values, 0, PICI_F32, NULL);
    other[4] = 2;
    cr_expect_eq(pici_verify(other, len), PICI_E_CORRUPT);
    cr_expect_eq(pici_decompress(src, 0, other, len, NULL), PICI_E_CORRUPT);
}

/* Adding skips zeros, and applying sets their signs. */
Test(codec_signs, add_and_apply)
{
    enum { N = 3 * 4096 + 77 };
    static uint32_t src[N], dst[N], want[N];
    static uint8_t block[N * 4 + 4096];
    struct rng rng = {9};
    pattern_fill(src, N, PICI_F32, PATTERN_MASKED, &rng);
    const size_t len = length(block, sizeof block, src, N, PICI_F32, NULL);
    cr_assert_eq(block[4], 2);
    for (unsigned i = 0; i < N; i++) {
        dst[i] = i % 3 ? UINT32_C(0x7f800001) : UINT32_C(0x80000000); /* a signalling NaN; -0.0 */
        want[i] = dst[i] ^ src[i];
    }
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
        pici_isa_force(*isa);
        static uint32_t now[N];
        memcpy(now, dst, sizeof now);
        cr_expect_eq(pici_scatter_add(now, N, block, len, NULL), PICI_OK);
        for (unsigned i = 0; i < N; i++)
            if (!(src[i] << 1))
                cr_assert_eq(now[i], dst[i], "%s: element %u", (*isa)->name, i);
        memcpy(now, dst, sizeof now);
        cr_expect_eq(pici_apply(now, N, block, len, NULL), PICI_OK);
        cr_expect_arr_eq(now, want, sizeof now, "%s", (*isa)->name);
    }
    pici_isa_force(NULL);
}

/* Long buffers, which are written with non-temporal stores: to an aligned place and an unaligned one, by threads, in
 * parts. */
Test(codec_signs, long_buffers)
{
    static const enum pici_dtype dtypes[] = {PICI_F8E5M2, PICI_BF16, PICI_F32, PICI_F64};
    enum { BYTES = 9 << 20 };
    uint8_t *src = test_alloc(BYTES), *dst = test_alloc(BYTES + 64), *block = test_alloc(BYTES + BYTES / 64);
    struct rng rng = {10};
    for (unsigned w = 0; w < 4; w++) {
        const uint64_t n = (BYTES >> w) - 1000;
        size_t first = 0;
        pattern_fill(src, n, dtypes[w], PATTERN_SIGNS, &rng);
        for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++)
            for (int threads = 1; threads <= 3; threads += 2) {
                const struct pici_opts opts = {.size = sizeof opts, .threads = threads};
                pici_isa_force(*isa);
                const size_t len = length(block, BYTES + BYTES / 64, src, n, dtypes[w], &opts);
                cr_expect(block[4] == 2 && (!first || len == first), "%s", (*isa)->name);
                first = len;
                cr_expect_eq(pici_verify(block, len), PICI_OK);
                for (int skew = 0; skew < 2; skew++) {
                    memset(dst, 7, BYTES + 64);
                    cr_expect_eq(pici_decompress(dst + skew, n, block, len, &opts), PICI_OK);
                    cr_expect_eq(memcmp(dst + skew, src, n << w), 0, "%s", (*isa)->name);
                    cr_expect_eq(dst[(n << w) + (unsigned)skew], 7);
                    const uint64_t from = n / 3, some = n / 2;
                    cr_expect_eq(pici_decompress_range(dst + skew, from, some, block, len, &opts), PICI_OK);
                    cr_expect_eq(memcmp(dst + skew, src + (from << w), some << w), 0, "%s", (*isa)->name);
                }
            }
    }
    pici_isa_force(NULL);
    free(src);
    free(dst);
    free(block);
}

/* Any byte of a block with signs changed: every reader agrees with the reference, and if the block is still valid, it
 * holds something else. */
Test(codec_signs, damage)
{
    enum { N = 6 * 4096 - 900, ROOM = 8 * 4096 };
    struct rig rig;
    struct rng rng = {12};
    rig_init(&rig, ROOM * 8, 3);
    uint16_t *src = test_alloc(N * 2), *back = test_alloc(N * 2);
    unsigned valid = 0;
    for (int times = 0; times < (test_full() ? 3 : 1); times++) {
        size_t len;
        pattern_fill(src, N, PICI_BF16, PATTERN_SIGNS, &rng);
        uint8_t *block = ref_encode(&len, src, N, PICI_BF16, PICI_HYBRID, 0), *damaged = test_alloc(len);
        const size_t step = 1 + len / 1000;
        for (size_t at = rng_below(&rng, step); at < len; at += step) {
            memcpy(damaged, block, len);
            damaged[at] ^= (uint8_t)(1u << rng_below(&rng, 8));
            const char *bad = left_out(&rng) ? NULL : check_readers(&rig, damaged, len, ROOM);
            cr_assert_null(bad, "byte %zu: %s", at, bad);
            if (ref_decode(back, N, damaged, len) == REF_OK) {
                valid++;
                cr_expect_neq(memcmp(src, back, N * 2), 0, "byte %zu", at);
            }
        }
        free(block);
        free(damaged);
    }
    cr_expect_gt(valid, 0);
    rig_free(&rig);
    free(src);
    free(back);
}

Test(codec_signs, breakdown)
{
    enum { N = 3 * 4096 };
    static float src[N];
    static uint8_t block[N * 4 + 4096];
    struct pici_breakdown m = PICI_BREAKDOWN_INIT;
    for (int i = 0; i < 4096; i++)
        src[i] = i % 2 ? -0.0f : 0.0f;
    src[4096] = 1;
    for (int i = 0; i < 4096; i++)
        src[2 * 4096 + i] = i % 2 ? -0.0f : (float)i + 1;
    const size_t len = length(block, sizeof block, src, N, PICI_F32, NULL);
    cr_assert_eq(pici_breakdown(&m, block, len), PICI_OK);
    cr_expect_eq(m.sign_tiles, 2);
    cr_expect_eq(m.negative_zeros, 4096);
    cr_expect_eq(m.sign_bytes, 2 * 4 + 512);
    uint64_t sum = m.other_bytes;
    for (int c = 0; c < PICI_CONTAINERS; c++)
        sum += m.position_bytes[c] + m.value_bytes[c];
    cr_expect_eq(sum, len);
    cr_expect(m.tiles[PICI_OFFSETS12] == 2 && m.tiles[PICI_BITVECTOR] == 1);
}

/* ---- kernels */

Test(codec_signs, search)
{
    struct guard guard;
    struct rng rng = {13};
    guard_init(&guard, 4000 * 8);
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++)
        for (unsigned w = 0; w < 4; w++)
            for (int times = 0; times < 400; times++) {
                const unsigned width = 1u << w;
                const size_t n = rng_below(&rng, times % 2 ? 100 : 3000), skew = rng_below(&rng, 9);
                const uint64_t sign = UINT64_C(1) << (8 * width - 1);
                uint8_t *at = guard_place(&guard, n * width, times % 3 ? GUARD_END : GUARD_START, skew);
                for (size_t i = 0; i < n; i++)
                    ref_store(at, i, width, rng_below(&rng, 2) ? 0 : sign | (1 + rng_below(&rng, 100)));
                cr_expect_not((*isa)->move[w]->any_negative(at, n, 0));
                if (!n)
                    continue;
                const uint64_t which = rng_below(&rng, n);
                ref_store(at, which, width, sign);
                cr_expect((*isa)->move[w]->any_negative(at, n, 0), "%s: %u, %zu", (*isa)->name, width, n);
                ref_put(at + which * width, width, sign);
                cr_expect((*isa)->move[w]->any_negative(at, n, 1), "%s: %u, %zu", (*isa)->name, width, n);
            }
    guard_free(&guard);
}

Test(codec_signs, set)
{
    static uint8_t tile[TILE * 8], want[TILE * 8];
    uint64_t word[TILE_COLS];
    struct rng rng = {14};
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++)
        for (unsigned w = 0; w < 4; w++) {
            const unsigned width = 1u << w;
            for (unsigned i = 0; i < TILE_COLS; i++)
                word[i] = i % 5 ? rng_next(&rng) : 0;
            for (unsigned i = 0; i < TILE; i++) {
                const uint64_t v = rng_next(&rng) >> (64 - 8 * width);
                ref_store(tile, i, width, v);
                ref_store(want, i, width, v | (word[i / 64] >> i % 64 & 1) << (8 * width - 1));
            }
            (*isa)->move[w]->negate(tile, word);
            cr_expect_arr_eq(tile, want, (size_t)TILE * width, "%s: %u", (*isa)->name, width);
        }
}

Test(codec_signs, gather_and_spread)
{
    struct rng rng = {15};
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++)
        for (int times = 0; times < 300; times++) {
            uint64_t word[TILE_COLS], mask[TILE_COLS], list[TILE_COLS], want[TILE_COLS] = {0}, back[TILE_COLS];
            unsigned n = 0;
            for (unsigned i = 0; i < TILE_COLS; i++) {
                const uint64_t r = rng_next(&rng);
                mask[i] = times < 10       ? UINT64_MAX
                          : times % 3 == 0 ? r & rng_next(&rng)
                          : times % 3 == 1 ? ~(r & rng_next(&rng))
                                           : r;
                word[i] = rng_next(&rng) & mask[i];
                if (times > 290 && i % 4)
                    mask[i] = word[i] = 0;
                for (unsigned k = 0; k < 64; k++)
                    if (mask[i] >> k & 1) {
                        want[n / 64] |= (word[i] >> k & 1) << n % 64;
                        n++;
                    }
            }
            (*isa)->bits->gather(list, word, mask);
            cr_expect_arr_eq(list, want, sizeof list, "%s", (*isa)->name);
            (*isa)->bits->spread(back, list, mask);
            cr_expect_arr_eq(back, word, sizeof back, "%s", (*isa)->name);
        }
}
