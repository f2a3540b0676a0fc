/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The reference codec by itself, with signs of zeros in hybrid blocks. It verifies and decodes its own blocks.
 * Different blocks of version 2 have different inputs. Blocks are near the entropy bound. The library is not
 * involved. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/ref.h"
#include "tests/util/util.h"

/* Tiles of random density, with random shares of negative zeros. */
static void fill(void *dst, uint64_t n, unsigned dtype, struct rng *rng)
{
    static const unsigned nonzero[] = {0, 0, 1000, 5000, 20000, 80000, 300000, 900000, 1000000},
                          negative[] = {0, 1000, 10000, 50000, 150000, 330000, 500000, 700000, 900000, 990000, 1000000};
    const unsigned width = ref_width(dtype);
    const uint64_t minus = UINT64_C(1) << (8 * width - 1);
    unsigned d = 0, q = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (i % 4096 == 0) {
            d = nonzero[rng_below(rng, sizeof nonzero / sizeof *nonzero)];
            q = negative[rng_below(rng, sizeof negative / sizeof *negative)];
        }
        ref_store(dst, i, width, rng_chance(rng, d) ? rng_next(rng) : rng_chance(rng, q) ? minus : 0);
    }
}

/* The changed block is invalid; or it has other elements, and is the only block of these that has its version. */
static void check_changed(const uint8_t *block, size_t len, const void *src, uint64_t n, unsigned dtype, size_t at)
{
    struct ref_header h;
    size_t again_len;
    void *out = test_alloc((size_t)n * 8);
    if (!ref_header(&h, block, len, NULL) && h.count == n && ref_decode(out, n, block, len) == REF_OK) {
        cr_expect(h.dtype != dtype || memcmp(out, src, (size_t)n * ref_width(dtype)) != 0,
                  "byte %zu of %zu: the same elements", at, len);
        uint8_t *again = ref_encode_as(&again_len, out, n, h.dtype, REF_HYBRID, h.flags >> 1,
                                       h.version == 2 ? REF_ZEROS_EXACT : REF_ZEROS_VERSION_1);
        cr_expect(again && again_len == len && memcmp(again, block, len) == 0, "byte %zu of %zu: two blocks", at, len);
        free(again);
    }
    free(out);
}

Test(codec_ref, signs_of_random_mixes)
{
    static const uint64_t sizes[] = {1, 2, 3, 8, 9, 40, 250, 300, 4095, 4096, 4097, 9000, 33 * 4096 + 70};
    struct rng rng = {1};
    unsigned versions[3] = {0};
    for (unsigned i = 0; i < 260; i++) {
        const unsigned dtype = REF_F32 + i % 6, width = ref_width(dtype);
        const uint64_t n = sizes[i % (sizeof sizes / sizeof *sizes)];
        const size_t bytes = (size_t)n * width;
        uint8_t *src = test_alloc(bytes), *back = test_alloc(bytes);
        size_t len, old_len, value_len, plain_len;
        struct ref_fault f;
        fill(src, n, dtype, &rng);
        uint8_t *block = ref_encode(&len, src, n, dtype, REF_HYBRID, i % 5 == 0),
                *old = ref_encode_as(&old_len, src, n, dtype, REF_HYBRID, i % 5 == 0, REF_ZEROS_VERSION_1),
                *value = ref_encode_as(&value_len, src, n, dtype, REF_HYBRID, 0, REF_ZEROS_BY_VALUE);
        cr_assert(block && old && value);
        cr_expect_eq(ref_verify(block, len, &f), REF_OK, "%s at %zu of %zu", f.rule, (size_t)f.offset, len);
        cr_expect_eq(ref_decode(back, n, block, len), REF_OK);
        cr_expect_arr_eq(back, src, bytes);
        memset(back, 0, bytes);
        cr_expect_eq(ref_decode(back, n, old, old_len), REF_OK);
        cr_expect_arr_eq(back, src, bytes);
        cr_expect_leq(len, old_len);
        cr_expect_eq(old[4], 1);
        cr_expect_eq(block[4] == 1, len == old_len && memcmp(block, old, len) == 0);
        versions[block[4]]++;

        for (uint64_t k = 0; k < n; k++)
            if (ref_negative_zero(dtype, ref_load(src, k, width)))
                ref_store(src, k, width, 0);
        uint8_t *plain = ref_encode(&plain_len, src, n, dtype, REF_HYBRID, 0);
        cr_expect(plain && value_len == plain_len && memcmp(value, plain, plain_len) == 0 && value[4] == 1);
        free(block);
        free(old);
        free(value);
        free(plain);
        free(src);
        free(back);
    }
    cr_expect(versions[1] > 60 && versions[2] > 60, "%u of version 1, %u of version 2", versions[1], versions[2]);
}

Test(codec_ref, changed_bytes_with_signs)
{
    static const uint64_t sizes[] = {2, 9, 40, 250, 300, 4096 + 20};
    struct rng rng = {2};
    unsigned blocks = 0;
    for (unsigned i = 0; i < 200 || blocks < 60; i++) {
        const unsigned dtype = REF_F32 + (unsigned)rng_below(&rng, 6);
        const uint64_t n = sizes[rng_below(&rng, sizeof sizes / sizeof *sizes)];
        uint8_t *src = test_alloc((size_t)n * ref_width(dtype));
        size_t len;
        fill(src, n, dtype, &rng);
        uint8_t *block = ref_encode(&len, src, n, dtype, REF_HYBRID, 0);
        cr_assert(block);
        blocks += block[4] == 2;
        for (size_t at = 0; at < len && block[4] == 2; at += len < 400 ? 1 : 1 + rng_below(&rng, len / 50)) {
            const uint8_t was = block[at];
            block[at] = rng_chance(&rng, 500000) ? (uint8_t)rng_next(&rng) : was ^ (uint8_t)(1u << rng_below(&rng, 8));
            if (block[at] != was)
                check_changed(block, len, src, n, dtype, at);
            block[at] = was;
        }
        free(block);
        free(src);
    }
}

static double entropy(double part, double of)
{
    const double p = of > 0 ? part / of : 0;
    return p > 0 && p < 1 ? -of * (p * log2(p) + (1 - p) * log2(1 - p)) / 8 : 0;
}

/* At each density and share of negative zeros: 1.15 times the bound, and 12 bytes for each tile. */
Test(codec_ref, length_with_signs)
{
    enum { N = 1 << 18, TILES = N / 4096 };
    static const double densities[] = {0.001, 0.01, 0.1, 0.12, 0.5, 1},
                        negative[] = {0, .001, .01, .1, .3, .5, .7, .99, 1};
    uint32_t *src = test_alloc(N * sizeof *src);
    struct rng rng = {3};
    for (unsigned d = 0; d < sizeof densities / sizeof *densities; d++)
        for (unsigned q = 0; q < sizeof negative / sizeof *negative; q++) {
            double nonzeros = 0, minus = 0;
            for (unsigned i = 0; i < N; i++) {
                const int nonzero = (double)(rng_next(&rng) >> 11) < densities[d] * 0x1p53,
                          sign = (double)(rng_next(&rng) >> 11) < negative[q] * 0x1p53;
                src[i] = nonzero ? (uint32_t)rng_next(&rng) | 1 : sign ? 0x80000000 : 0;
                nonzeros += nonzero;
                minus += !nonzero && sign;
            }
            size_t len;
            uint8_t *block = ref_encode(&len, src, N, REF_F32, REF_HYBRID, 0);
            const double bound = nonzeros * 4 + entropy(nonzeros, N) + entropy(minus, N - nonzeros);
            cr_expect(block && (double)len <= 1.15 * bound + 64 + 12 * TILES,
                      "%g nonzero, %g negative: %zu bytes, %.3f times the bound", densities[d], negative[q], len,
                      (double)len / bound);
            free(block);
        }
    free(src);
}
