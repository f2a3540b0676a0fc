/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Invalid calls, capacities that are too small, and the small functions. */
#include <criterion/criterion.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "formats/ref.h"
#include "tests/util/util.h"

static float src[500];
static uint8_t block[8192];
static size_t block_len;

static void set_up(void)
{
    for (unsigned i = 0; i < 500; i += 3)
        src[i] = (float)i + 1;
    cr_assert_eq(pici_compress(block, sizeof block, &block_len, src, 500, PICI_F32, PICI_BITMAP, NULL), PICI_OK);
}

TestSuite(codec_calls, .init = set_up);

/* ---- compress ---- */

/* The call fails with this status, sets the length to 0 and leaves no header. */
static void refuse(enum pici_status want, void *out, size_t cap, const void *in, uint64_t n, int dtype, int format,
                   const struct pici_opts *opts)
{
    size_t len = 77;
    struct pici_info info = PICI_INFO_INIT;
    cr_expect_eq(pici_compress(out, cap, &len, in, n, (enum pici_dtype)dtype, (enum pici_format)format, opts), want,
                 "dtype %d format %d cap %zu", dtype, format, cap);
    cr_expect_eq(len, 0u);
    if (out && cap >= 48)
        cr_expect_neq(pici_inspect(&info, out, cap), PICI_OK);
}

Test(codec_calls, compress_null)
{
    static uint8_t out[4096];
    size_t len = 77;
    refuse(PICI_E_ARG, NULL, 4096, src, 500, PICI_F32, PICI_DENSE, NULL);
    refuse(PICI_E_ARG, out, 4096, NULL, 1, PICI_F32, PICI_COO, NULL);
    cr_expect_eq(pici_compress(out, 4096, NULL, src, 500, PICI_F32, PICI_DENSE, NULL), PICI_E_ARG);
    cr_expect_eq(pici_compress(out, 4096, &len, NULL, 0, PICI_F32, PICI_AUTO, NULL), PICI_OK);
    cr_expect_eq(len, 48u);
}

Test(codec_calls, compress_unknown_dtype_or_format)
{
    static uint8_t out[4096];
    static const int dtypes[] = {0, 15, 16, 255, 256 + PICI_F32, -1, INT_MAX, INT_MIN};
    static const int formats[] = {5, 6, 254, 256, 257, -1, INT_MAX, INT_MIN};
    for (unsigned i = 0; i < 8; i++) {
        refuse(PICI_E_ARG, out, sizeof out, src, 100, dtypes[i], PICI_BITMAP, NULL);
        refuse(PICI_E_ARG, out, sizeof out, src, 0, dtypes[i], PICI_DENSE, NULL);
        refuse(PICI_E_ARG, out, sizeof out, src, 100, PICI_F32, formats[i], NULL);
    }
}

Test(codec_calls, compress_beyond_memory)
{
    static uint8_t out[4096];
    static const int formats[] = {PICI_DENSE, PICI_BITMAP, PICI_COO, PICI_HYBRID, PICI_AUTO};
    for (unsigned f = 0; f < 5; f++) {
        refuse(PICI_E_ARG, out, sizeof out, src, UINT64_MAX, PICI_F32, formats[f], NULL);
        refuse(PICI_E_ARG, out, sizeof out, src, UINT64_C(1) << 62, PICI_F32, formats[f], NULL);
        refuse(PICI_E_ARG, out, sizeof out, src, UINT64_C(1) << 61, PICI_F64, formats[f], NULL);
        refuse(PICI_E_ARG, out, sizeof out, src, (UINT64_C(1) << 61) + 1, PICI_I64, formats[f], NULL);
        refuse(PICI_E_ARG, out, sizeof out, src, UINT64_C(1) << 63, PICI_I16, formats[f], NULL);
    }
}

Test(codec_calls, compress_overlap)
{
    uint8_t *both = test_alloc(16384);
    size_t len;
    for (int format = PICI_DENSE; format <= PICI_HYBRID; format++) {
        memset(both, 0, 16384);
        refuse(PICI_E_ARG, both, 8192, both, 500, PICI_F32, format, NULL);
        refuse(PICI_E_ARG, both, 8192, both + 8191, 500, PICI_F32, format, NULL);
        refuse(PICI_E_ARG, both + 1999, 8192, both, 500, PICI_F32, format, NULL);
        refuse(PICI_E_ARG, both + 100, 1000, both, 500, PICI_F32, format, NULL);
        refuse(PICI_E_ARG, both, 8192, both + 100, 500, PICI_F32, format, NULL);
        /* adjacent buffers do not overlap, and an empty one overlaps nothing */
        cr_expect_eq(pici_compress(both, 8192, &len, both + 8192, 500, PICI_F32, (enum pici_format)format, NULL),
                     PICI_OK);
        cr_expect_eq(pici_compress(both + 2000, 8192, &len, both, 500, PICI_F32, (enum pici_format)format, NULL),
                     PICI_OK);
        cr_expect_eq(pici_compress(both, 8192, &len, both + 10, 0, PICI_F32, (enum pici_format)format, NULL), PICI_OK);
    }
    free(both);
}

Test(codec_calls, options)
{
    static uint8_t out[8192];
    static float back[500];
    static const struct pici_opts wrong[] = {
        {0, 1, 0, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0},
        {1, 1, 0, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0},
        {offsetof(struct pici_opts, zeros) - 1, 1, 0, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0},
        {sizeof(struct pici_opts), -1, 0, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0},
        {sizeof(struct pici_opts), INT_MIN, 0, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0},
        {sizeof(struct pici_opts), 1, 2, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0},
        {sizeof(struct pici_opts), 1, -1, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0},
        {sizeof(struct pici_opts), 1, 0, (enum pici_zeros)2, 0, PICI_PACK_NONE, 0},
        {sizeof(struct pici_opts), 1, 0, (enum pici_zeros)3, 0, PICI_PACK_NONE, 0},
        {sizeof(struct pici_opts), 1, 0, PICI_ZEROS_EXACT, 0, (enum pici_pack)2, 0},
        {sizeof(struct pici_opts), 1, 0, PICI_ZEROS_EXACT, 0, (enum pici_pack)4, 0},
    };
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        refuse(PICI_E_ARG, out, sizeof out, src, 500, PICI_F32, PICI_BITMAP, &wrong[i]);
        cr_expect_eq(pici_decompress(back, 500, block, block_len, &wrong[i]), PICI_E_ARG, "%u", i);
        cr_expect_eq(pici_decompress_range(back, 0, 500, block, block_len, &wrong[i]), PICI_E_ARG, "%u", i);
        cr_expect_eq(pici_scatter_add(back, 500, block, block_len, &wrong[i]), PICI_E_ARG, "%u", i);
    }
    const struct pici_opts many = {sizeof many, INT_MAX, 0, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0};
    size_t len;
    cr_expect_eq(pici_compress(out, sizeof out, &len, src, 500, PICI_F32, PICI_BITMAP, &many), PICI_OK);
    cr_expect_arr_eq(out, block, block_len);
    cr_expect_eq(pici_decompress(back, 500, block, block_len, &many), PICI_OK);
    cr_expect_arr_eq(back, src, sizeof src);
}

/* Every capacity up to the block's length and a little more. If it is too small, the call reports that and leaves no
 * header, even over an old block. The block's length is enough, with one thread and with several. */
static void try_capacities(enum pici_dtype dtype, uint64_t n, enum pattern pattern, int threads, size_t step)
{
    const struct pici_opts opts = {sizeof opts, threads, 0, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0};
    struct rig rig;
    struct pici_info info = PICI_INFO_INIT;
    rig_init(&rig, (size_t)n * ref_width(dtype), n);
    void *in = test_alloc((size_t)n * ref_width(dtype));
    pattern_fill(in, n, dtype, pattern, &rig.rng);
    for (int format = PICI_DENSE; format <= PICI_HYBRID; format++) {
        size_t full, len;
        uint8_t *want = ref_encode(&full, in, n, dtype, (unsigned)format, 0);
        for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
            pici_isa_force(*isa);
            for (size_t cap = 0; cap <= full + 70; cap += cap + step < full || cap >= full ? step : full - cap) {
                uint8_t *out = guard_place(&rig.block, cap, GUARD_END, 0);
                memcpy(out, want, cap < full ? cap : full);
                len = 77;
                enum pici_status s = pici_compress(out, cap, &len, in, n, dtype, (enum pici_format)format, &opts);
                if (cap < full) {
                    cr_expect_eq(s, PICI_E_SPACE, "%s cap %zu of %zu", (*isa)->name, cap, full);
                    cr_expect_eq(len, 0u);
                    cr_expect(cap < 48 || pici_inspect(&info, out, cap) != PICI_OK, "cap %zu leaves a header", cap);
                } else {
                    cr_expect_eq(s, PICI_OK, "%s cap %zu of %zu", (*isa)->name, cap, full);
                    cr_expect_eq(len, full);
                    cr_expect_arr_eq(out, want, full);
                }
                cr_expect(guard_intact(&rig.block));
            }
        }
        pici_isa_force(NULL);
        free(want);
    }
    free(in);
    rig_free(&rig);
}

Test(codec_calls, capacity_empty)
{
    try_capacities(PICI_F32, 0, PATTERN_ZERO, 1, 1);
}

Test(codec_calls, capacity_short)
{
    try_capacities(PICI_U8, 100, PATTERN_50, 1, 1);
    try_capacities(PICI_BF16, 70, PATTERN_FULL, 1, 1);
    try_capacities(PICI_F64, 65, PATTERN_30, 1, 1);
}

Test(codec_calls, capacity_two_tiles)
{
    try_capacities(PICI_U8, 4200, PATTERN_8, 1, 1);
    try_capacities(PICI_I16, 8192, PATTERN_50, 1, 19);
    try_capacities(PICI_F32, 9000, PATTERN_FULL, 1, 127);
    try_capacities(PICI_F64, 8000, PATTERN_12, 1, 61);
}

Test(codec_calls, capacity_threads)
{
    try_capacities(PICI_F32, 200 * 4096 + 5, PATTERN_50, 3, 200000);
    try_capacities(PICI_I8, 300 * 4096, PATTERN_3, 4, 30000);
}

/* ---- decompress, scatter-add ---- */

Test(codec_calls, decode_wrong)
{
    static float out[501];
    static uint8_t empty[48];
    size_t len;
    enum pici_status (*const decode[])(void *, uint64_t, const void *, size_t,
                                       const struct pici_opts *) = {pici_decompress, pici_scatter_add};
    cr_assert_eq(pici_compress(empty, 48, &len, NULL, 0, PICI_F32, PICI_BITMAP, NULL), PICI_OK);
    for (unsigned i = 0; i < 2; i++) {
        cr_expect_eq(decode[i](NULL, 500, block, block_len, NULL), PICI_E_ARG);
        cr_expect_eq(decode[i](out, 500, NULL, block_len, NULL), PICI_E_ARG);
        cr_expect_eq(decode[i](out, 500, NULL, 0, NULL), PICI_E_ARG);
        cr_expect_eq(decode[i](out, 499, block, block_len, NULL), PICI_E_ARG);
        cr_expect_eq(decode[i](out, 501, block, block_len, NULL), PICI_E_ARG);
        cr_expect_eq(decode[i](out, 0, block, block_len, NULL), PICI_E_ARG);
        cr_expect_eq(decode[i](out, UINT64_MAX, block, block_len, NULL), PICI_E_ARG);
        cr_expect_eq(decode[i](out, 1, empty, 48, NULL), PICI_E_ARG);
        cr_expect_eq(decode[i](NULL, 0, empty, 48, NULL), PICI_OK);
        cr_expect_eq(decode[i](out, 500, block, 0, NULL), PICI_E_CORRUPT);
        cr_expect_eq(decode[i](block, 500, block, block_len, NULL), PICI_E_ARG);
        cr_expect_eq(decode[i](block + block_len - 1, 500, block, block_len, NULL), PICI_E_ARG);
        cr_expect_eq(decode[i](block + block_len, 500, block, block_len, NULL),
                     PICI_OK); /* adjacent, not overlapping */
    }
}

/* ---- inspect, verify ---- */

Test(codec_calls, inspect)
{
    struct pici_info info = PICI_INFO_INIT;
    cr_expect_eq(pici_inspect(&info, block, 48), PICI_OK); /* the header is enough */
    cr_expect_eq(info.format, PICI_BITMAP);
    cr_expect_eq(info.dtype, PICI_F32);
    cr_expect_eq(info.count, 500u);
    cr_expect_eq(info.nnz, 167u);
    cr_expect_eq(info.block_bytes, block_len);
    cr_expect_eq(info.size, sizeof info);
    cr_expect_eq(pici_inspect(&info, block, 47), PICI_E_CORRUPT);
    cr_expect_eq(pici_inspect(NULL, block, block_len), PICI_E_ARG);
    cr_expect_eq(pici_inspect(&info, NULL, block_len), PICI_E_ARG);
    for (size_t size = 0; size < sizeof info; size += 7) {
        info.size = size;
        cr_expect_eq(pici_inspect(&info, block, block_len), PICI_E_ARG);
    }
}

Test(codec_calls, verify)
{
    struct pici_fault fault = {sizeof fault, PICI_E_IO, 1, 2, "x"};
    cr_expect_eq(pici_verify(block, block_len), PICI_OK);
    cr_expect_eq(pici_verify_at(block, block_len, &fault), PICI_OK);
    cr_expect(fault.status == PICI_OK && fault.offset == 0 && fault.tile == 0 && !fault.rule);
    cr_expect_eq(fault.size, sizeof fault);
    cr_expect_eq(pici_verify(NULL, block_len), PICI_E_ARG);
    cr_expect_eq(pici_verify_at(NULL, 0, &fault), PICI_E_ARG);
    for (size_t size = 0; size < sizeof fault; size += 7) {
        fault.size = size;
        cr_expect_eq(pici_verify_at(block, block_len, &fault), PICI_E_ARG);
    }
}

/* ---- the small functions ---- */

Test(codec_calls, bound)
{
    cr_expect_eq(pici_bound(PICI_DENSE, PICI_F32, 100), 448u);
    cr_expect_eq(pici_bound(PICI_AUTO, PICI_F32, 100), 448u);
    cr_expect_eq(pici_bound(PICI_BITMAP, PICI_F32, 100), 48u + 512 + 16 + 400);
    cr_expect_eq(pici_bound(PICI_BITMAP, PICI_F64, 5 * 4096 + 1), 48u + 6 * 512 + 32 + 8 * (5 * 4096 + 1));
    cr_expect_eq(pici_bound(PICI_COO, PICI_I16, 101), 48u + 416 + 202);
    static const enum pici_format formats[] = {PICI_DENSE, PICI_BITMAP, PICI_COO, PICI_HYBRID, PICI_AUTO};
    for (unsigned f = 0; f < 5; f++) {
        cr_expect_eq(pici_bound(formats[f], PICI_U8, 0), 48u);
        cr_expect_eq(pici_bound(formats[f], PICI_F64, UINT64_MAX), 0u);
        cr_expect_eq(pici_bound(formats[f], PICI_U8, UINT64_MAX), 0u);
        cr_expect_eq(pici_bound(formats[f], (enum pici_dtype)0, 1), 0u);
        cr_expect_eq(pici_bound(formats[f], (enum pici_dtype)15, 1), 0u);
        cr_expect_eq(pici_bound(formats[f], (enum pici_dtype) - 1, 1), 0u);
    }
    /* header, directory, values, two bytes of descriptor a tile, occupancy and padding a group */
    cr_expect_eq(pici_bound(PICI_HYBRID, PICI_F32, 1), 64u + 4 + 2 + 11);
    cr_expect_eq(pici_bound(PICI_HYBRID, PICI_F64, 33 * 4096), 64u + 8 * 33 * 4096 + 2 * 33 + 2 * 19);
    /* the same, five bytes of run descriptor a tile, and 16 more of padding a group */
    cr_expect_eq(pici_bound(PICI_PACKED, PICI_F32, 1), 64u + 4 + 7 + 27);
    cr_expect_eq(pici_bound(PICI_PACKED, PICI_F64, 33 * 4096), 64u + 8 * 33 * 4096 + 7 * 33 + 2 * 35);
    cr_expect_eq(pici_bound(PICI_PACKED, PICI_F8E5M2, 0), 48u);
    cr_expect_eq(pici_bound(PICI_PACKED, PICI_F64, UINT64_MAX), 0u);
    cr_expect_eq(pici_bound(PICI_PACKED, PICI_I8, 1), 0u);
    cr_expect_eq(pici_bound(PICI_PACKED, (enum pici_dtype)0, 1), 0u);
    cr_expect_eq(pici_bound((enum pici_format)5, PICI_F32, 1), 0u);
    cr_expect_eq(pici_bound((enum pici_format) - 1, PICI_F32, 1), 0u);
    if (sizeof(size_t) == 8) { /* positions of 64 bits beyond 2^32 elements */
        cr_expect_eq(pici_bound(PICI_COO, PICI_U8, UINT64_C(1) << 32), 48 + (UINT64_C(5) << 32));
        cr_expect_eq(pici_bound(PICI_COO, PICI_U8, (UINT64_C(1) << 32) + 2), 48 + (UINT64_C(9) << 32) + 18);
        cr_expect_eq(pici_bound(PICI_DENSE, PICI_U8, UINT64_MAX - 48), SIZE_MAX);
        cr_expect_eq(pici_bound(PICI_DENSE, PICI_U8, UINT64_MAX - 47), 0u);
    }
}

Test(codec_calls, widths_and_names)
{
    static const char *const names[] = {"f32", "f64", "f16", "bf16", "f8e4m3", "f8e5m2", "i8",
                                        "u8",  "i16", "u16", "i32",  "u32",    "i64",    "u64"};
    for (int d = -2; d < 300; d++) {
        int known = d >= 1 && d <= 14;
        cr_expect_eq(pici_dtype_width((enum pici_dtype)d), known ? ref_width((unsigned)d) : 0, "%d", d);
        if (known)
            cr_expect_str_eq(pici_dtype_name((enum pici_dtype)d), names[d - 1]);
        else
            cr_expect_null(pici_dtype_name((enum pici_dtype)d));
    }
    for (int f = -2; f < 300; f++) {
        const char *name = pici_format_name((enum pici_format)f);
        static const char *const formats[] = {"dense", "bitmap", "coo", "hybrid", "packed"};
        if (f >= 0 && f <= 4)
            cr_expect_str_eq(name, formats[f]);
        else if (f == PICI_AUTO)
            cr_expect_str_eq(name, "auto");
        else
            cr_expect_null(name, "%d", f);
    }
}

Test(codec_calls, words)
{
    static const int known[] = {0, -1, -2, -3, -20, -21, -22, -40, -41, -42, -43, -44, -45, -46};
    cr_expect_str_eq(pici_version(), PICI_VERSION);
    for (int s = -100; s <= 100; s++) {
        const char *words = pici_strerror((enum pici_status)s);
        cr_assert_not_null(words);
        cr_expect(words[0] && words[strlen(words) - 1] != '.', "%d: %s", s, words);
    }
    for (unsigned i = 0; i < 14; i++) /* each has its own sentence */
        for (unsigned j = 0; j <= i; j++)
            cr_expect((strcmp(pici_strerror((enum pici_status)known[i]),
                              pici_strerror(j < i ? (enum pici_status)known[j] : (enum pici_status)7))) != 0);
}

Test(codec_calls, isas)
{
    cr_assert_not_null(pici_isas()[0]);
    cr_expect_str_eq(pici_isas()[0]->name, "scalar");
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
        pici_isa_force(*isa);
        cr_expect_eq(pici_isa(), *isa);
    }
    pici_isa_force(NULL);
    cr_expect_not_null(pici_isa());
}

/* Names until version 0.3: in programs that are compiled now, and as a symbol for those that were compiled then. */
#undef pici_mix
enum pici_status pici_mix(struct pici_breakdown *, const void *, size_t);

Test(codec_calls, deprecated_names)
{
    struct pici_breakdown mix = PICI_MIX_INIT, same = PICI_BREAKDOWN_INIT;
    cr_expect_eq(PICI_PICI, PICI_BITMAP);
    cr_assert_eq(pici_compress(block, sizeof block, &block_len, src, 500, PICI_F32, PICI_HYBRID, NULL), PICI_OK);
    cr_assert_eq(pici_mix(&mix, block, block_len), PICI_OK);
    cr_assert_eq(pici_breakdown(&same, block, block_len), PICI_OK);
    cr_expect(mix.nnz[PICI_OFFSETS12] + mix.nnz[PICI_OFFSETS8] + mix.nnz[PICI_BITVECTOR] == 167 &&
              memcmp(&mix, &same, sizeof mix) == 0);
}
