/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_decompress_range against the whole, and what it must not read. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/kernels.h"
#include "formats/ref.h"
#include "tests/util/util.h"

static const enum pici_dtype widths[4] = {PICI_I8, PICI_F16, PICI_F32, PICI_U64};

static void expect_range(struct rig *rig, const void *src, const uint8_t *block, size_t len, enum pici_dtype dtype,
                         uint64_t first, uint64_t n)
{
    const unsigned width = ref_width(dtype);
    uint8_t *out = guard_place(&rig->dst, (size_t)n * width, first % 2 ? GUARD_START : GUARD_END, 0);
    cr_expect_eq(pici_decompress_range(out, first, n, block, len, NULL), PICI_OK);
    cr_expect_eq(memcmp(out, (const uint8_t *)src + first * width, (size_t)n * width), 0, "width %u, %d + %d", width,
                 (int)first, (int)n);
    cr_expect(guard_intact(&rig->dst));
}

/* Every range whose ends are among the given positions. */
static void try_ranges(uint64_t n, const uint64_t *ends, size_t number, enum pattern pattern)
{
    struct rig rig;
    rig_init(&rig, (size_t)n * 8, n);
    void *src = test_alloc((size_t)n * 8);
    for (unsigned w = 0; w < 4; w++) {
        pattern_fill(src, n, widths[w], pattern, &rig.rng);
        for (int format = PICI_DENSE; format <= PICI_HYBRID; format++) {
            size_t len;
            uint8_t *block = ref_encode(&len, src, n, widths[w], (unsigned)format, format == PICI_COO);
            uint8_t *in = guard_place(&rig.block, len, GUARD_END, 0);
            memcpy(in, block, len);
            for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
                pici_isa_force(*isa);
                for (size_t i = 0; i < number; i++)
                    for (size_t j = i; j < number; j++)
                        expect_range(&rig, src, in, len, widths[w], ends[i], ends[j] - ends[i]);
            }
            pici_isa_force(NULL);
            free(block);
        }
    }
    free(src);
    rig_free(&rig);
}

Test(codec_range, every_range_of_a_short_block)
{
    uint64_t ends[71];
    for (uint64_t i = 0; i <= 70; i++)
        ends[i] = i;
    try_ranges(70, ends, 71, PATTERN_30);
    try_ranges(70, ends, 71, PATTERN_FULL);
}

static const uint64_t edges[] = {0,    1,    2,    63,   64,   65,    2000,  4031,  4032,  4095,  4096, 4097,
                                 4160, 8191, 8192, 8193, 9000, 12287, 12288, 12289, 12291, 12292, 12293};

Test(codec_range, edges_of_tiles_tiles)
{
    try_ranges(12293, edges, sizeof edges / sizeof *edges, PATTERN_TILES);
}

Test(codec_range, edges_of_tiles_half)
{
    try_ranges(12293, edges, sizeof edges / sizeof *edges, PATTERN_50);
}

Test(codec_range, edges_of_tiles_sparse)
{
    try_ranges(12293, edges, sizeof edges / sizeof *edges, PATTERN_1);
}

Test(codec_range, edges_of_tiles_full)
{
    try_ranges(12293, edges, sizeof edges / sizeof *edges, PATTERN_FULL);
}

Test(codec_range, outside_is_refused)
{
    float src[100] = {0, 1, 2}, out[100];
    uint8_t block[2048];
    for (int format = PICI_DENSE; format <= PICI_HYBRID; format++) {
        size_t len;
        cr_assert_eq(pici_compress(block, sizeof block, &len, src, 100, PICI_F32, (enum pici_format)format, NULL),
                     PICI_OK);
        cr_expect_eq(pici_decompress_range(out, 0, 101, block, len, NULL), PICI_E_ARG);
        cr_expect_eq(pici_decompress_range(out, 1, 100, block, len, NULL), PICI_E_ARG);
        cr_expect_eq(pici_decompress_range(out, 100, 1, block, len, NULL), PICI_E_ARG);
        cr_expect_eq(pici_decompress_range(out, 101, 0, block, len, NULL), PICI_E_ARG);
        cr_expect_eq(pici_decompress_range(out, UINT64_MAX, 2, block, len, NULL), PICI_E_ARG);
        cr_expect_eq(pici_decompress_range(out, 2, UINT64_MAX, block, len, NULL), PICI_E_ARG);
        cr_expect_eq(pici_decompress_range(NULL, 0, 1, block, len, NULL), PICI_E_ARG);
        cr_expect_eq(pici_decompress_range(NULL, 100, 0, block, len, NULL), PICI_OK);
        cr_expect_eq(pici_decompress_range(block + 4, 0, 1, block, len, NULL), PICI_E_ARG);
        cr_expect_eq(pici_decompress_range(out, 0, 1, NULL, len, NULL), PICI_E_ARG);
    }
}

/* A range ignores faults in other tiles, and the checksum. */
Test(codec_range, knows_its_tiles_only)
{
    enum { N = 8 * 4096 };
    struct rng rng = {1};
    uint32_t *src = test_alloc(N * 4), *out = test_alloc(N * 4);
    size_t len;
    pattern_fill(src, N, PICI_U32, PATTERN_30, &rng);
    uint8_t *block = ref_encode(&len, src, N, PICI_U32, PICI_BITMAP, 1);
    uint64_t index = ref_get(block + 24, 8), values = ref_get(block + 32, 8);
    block[48 + 5 * 512] ^= 1;                                          /* tile 5 */
    ref_put(block + index + 4 * 7, 4, 0);                              /* tile 7 */
    ref_put(block + values + 4 * ref_get(block + index + 4, 4), 4, 0); /* tile 1 */
    for (uint64_t t = 0; t < 8; t++) {
        enum pici_status s = pici_decompress_range(out, t * 4096 + 10, 4000, block, len, NULL);
        if (t == 1 || t == 5 || t == 7)
            cr_expect_eq(s, PICI_E_CORRUPT, "tile %d", (int)t);
        else if (t == 6) /* tile 7's entry contradicts its count */
            cr_expect(s == PICI_E_CORRUPT || s == PICI_OK);
        else
            cr_expect_eq(s, PICI_OK, "tile %d", (int)t);
        if (!s)
            cr_expect_arr_eq(out, src + t * 4096 + 10, 16000);
    }
    cr_expect_eq(pici_decompress(out, N, block, len, NULL), PICI_E_CHECKSUM);
    free(block);
    free(src);
    free(out);
}

/* A range does not touch other pages: all are unmapped except those with the header, with the tile's words, index
 * entry and values, and the pages next to them. */
Test(codec_range, touches_its_tiles_only)
{
    enum { N = 64 * 4096, T = 40 };
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct rng rng = {2};
    struct guard g;
    uint64_t *src = test_alloc(N * 8), *out = test_alloc(4096 * 8);
    size_t len;
    pattern_fill(src, N, PICI_U64, PATTERN_90, &rng);
    uint8_t *block = ref_encode(&len, src, N, PICI_U64, PICI_BITMAP, 0);
    guard_init(&g, len);
    uint8_t *in = guard_place(&g, len, GUARD_START, 0);
    memcpy(in, block, len);
    uint64_t index = ref_get(in + 24, 8), values = ref_get(in + 32, 8);
    const uint64_t needed[][2] = {
        {0, 48},
        {48 + T * 512, 48 + T * 512 + 512},
        {index + 4 * T, index + 4 * T + 8},
        {values + 8 * ref_get(in + index + 4 * T, 4), values + 8 * ref_get(in + index + 4 * T + 4, 4)}};
    unsigned hidden = 0;
    for (size_t at = 0; at + page <= len; at += page) {
        int keep = 0;
        for (unsigned i = 0; i < 4; i++)
            keep |= at < needed[i][1] + page && at + 2 * page > needed[i][0];
        if (!keep) {
            cr_assert_eq(mprotect(in + at, page, PROT_NONE), 0);
            hidden++;
        }
    }
    cr_assert_gt(hidden, 300u);
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
        pici_isa_force(*isa);
        cr_expect_eq(pici_decompress_range(out, T * 4096, 4096, in, len, NULL), PICI_OK);
        cr_expect_arr_eq(out, src + T * 4096, 4096 * 8);
        cr_expect_eq(pici_decompress_range(out, T * 4096 + 70, 3, in, len, NULL), PICI_OK);
        cr_expect_arr_eq(out, src + T * 4096 + 70, 3 * 8);
    }
    pici_isa_force(NULL);
    guard_free(&g);
    free(block);
    free(src);
    free(out);
}

/* ---- more than 2^32 elements ---- */

/* A coo block of so many elements with values 1, 2, ... at the given positions. */
static uint8_t *wide_coo(size_t *len, uint64_t count, const uint64_t *at, unsigned nnz)
{
    uint64_t values = 48 + 8 * nnz + (nnz % 2 ? 8 : 0);
    uint8_t *block = calloc(1, (size_t)values + nnz * 2);
    cr_assert_not_null(block);
    memcpy(block, "PICI\1\2\12\1", 8); /* u16, 64-bit positions */
    ref_put(block + 8, 8, count);
    ref_put(block + 16, 8, nnz);
    ref_put(block + 24, 8, 48);
    ref_put(block + 32, 8, values);
    for (unsigned k = 0; k < nnz; k++) {
        ref_put(block + 48 + 8 * k, 8, at[k]);
        ref_put(block + values + 2 * k, 2, k + 1);
    }
    *len = (size_t)values + nnz * 2;
    cr_assert_eq(ref_verify(block, *len, NULL), REF_OK);
    return block;
}

static void try_wide(uint64_t count, const uint64_t *at, unsigned nnz)
{
    size_t len;
    uint8_t *block = wide_coo(&len, count, at, nnz);
    struct rng rng = {count};
    uint16_t out[600], want[600];
    struct pici_info info = PICI_INFO_INIT;
    cr_expect_eq(pici_inspect(&info, block, len), PICI_OK);
    cr_expect_eq(info.count, count);
    cr_expect_eq(pici_decompress(out, 600, block, len, NULL), PICI_E_ARG);
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
        pici_isa_force(*isa);
        cr_expect_eq(pici_verify(block, len), PICI_OK);
        for (int i = 0; i < 2000; i++) { /* windows around the positions, and at the ends */
            uint64_t n = rng_below(&rng, 600), centre = i % 8 ? at[rng_below(&rng, nnz)] : rng_next(&rng) % count;
            uint64_t first = centre > n / 2 ? centre - n / 2 : 0;
            first = first < count - n ? first : count - n;
            memset(want, 0, sizeof want);
            memset(out, 0xff, sizeof out);
            for (unsigned k = 0; k < nnz; k++)
                if (at[k] >= first && at[k] - first < n)
                    want[at[k] - first] = (uint16_t)(k + 1);
            cr_expect_eq(pici_decompress_range(out, first, n, block, len, NULL), PICI_OK);
            cr_expect_eq(memcmp(out, want, (size_t)n * 2), 0, "%llu + %d", (unsigned long long)first, (int)n);
        }
    }
    pici_isa_force(NULL);
    free(block);
}

Test(codec_range, wide_2_to_32_and_5)
{
    static const uint64_t at[] = {3, UINT64_C(0x100000004)};
    try_wide(UINT64_C(0x100000005), at, 2);
}

Test(codec_range, wide_low_words_fall)
{
    static const uint64_t at[] = {
        0, 7, 0xffffffff, UINT64_C(0x100000000), UINT64_C(0x200000001), UINT64_C(0x200000002), UINT64_C(0x3000000ff)};
    try_wide(UINT64_C(0x400000000), at, 7);
}

Test(codec_range, wide_2_to_64_less_1)
{
    static const uint64_t at[] = {0, UINT64_C(1) << 63, UINT64_MAX - 1};
    try_wide(UINT64_MAX, at, 3);
}

Test(codec_range, zeros_without_end)
{
    static const uint8_t block[48] = {'P', 'I', 'C', 'I', 1, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0x40, [24] = 48, [32] = 48};
    uint32_t out[100];
    memset(out, 0xff, sizeof out);
    cr_expect_eq(pici_verify(block, 48), PICI_OK);
    cr_expect_eq(pici_decompress_range(out, (UINT64_C(1) << 62) - 100, 100, block, 48, NULL), PICI_OK);
    for (int i = 0; i < 100; i++)
        cr_expect_eq(out[i], 0u);
    cr_expect_eq(pici_decompress_range(out, (UINT64_C(1) << 62) - 99, 100, block, 48, NULL), PICI_E_ARG);
    cr_expect_eq(pici_decompress(out, UINT64_C(1) << 62, block, 48, NULL), PICI_E_ARG); /* beyond the address space */
}
