/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_diff and pici_apply: invalid calls, the format that AUTO takes, many threads, deltas applied in order. Round
 * trips on every ISA are in check_codec, corrupt blocks in check_readers. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "formats/ref.h"
#include "pici/delta.h"
#include "tests/util/util.h"

static float base[500], src[500];

static void set_up(void)
{
    for (unsigned i = 0; i < 500; i++)
        base[i] = src[i] = (float)i + 1;
    for (unsigned i = 0; i < 500; i += 7)
        src[i] = -base[i];
}

TestSuite(codec_delta, .init = set_up);

static void refuse(enum pici_status want, void *out, size_t cap, const void *from, const void *to, uint64_t n,
                   int dtype, int format)
{
    size_t len = 77;
    struct pici_info info = PICI_INFO_INIT;
    cr_expect_eq(pici_diff(out, cap, &len, from, to, n, (enum pici_dtype)dtype, (enum pici_format)format, NULL), want,
                 "dtype %d format %d cap %zu", dtype, format, cap);
    cr_expect_eq(len, 0u);
    if (out && cap >= 48)
        cr_expect_neq(pici_inspect(&info, out, cap), PICI_OK);
}

Test(codec_delta, wrong_diff)
{
    static uint8_t out[8192];
    size_t len = 77;
    refuse(PICI_E_ARG, NULL, 4096, base, src, 500, PICI_F32, PICI_DENSE);
    refuse(PICI_E_ARG, out, 4096, NULL, src, 1, PICI_F32, PICI_COO);
    refuse(PICI_E_ARG, out, 4096, base, NULL, 1, PICI_F32, PICI_COO);
    refuse(PICI_E_ARG, out, 4096, base, src, 500, 0, PICI_COO);
    refuse(PICI_E_ARG, out, 4096, base, src, 500, 15, PICI_COO);
    refuse(PICI_E_ARG, out, 4096, base, src, 500, PICI_F32, 5);
    refuse(PICI_E_ARG, out, 4096, base, src, UINT64_MAX, PICI_F32, PICI_AUTO);
    refuse(PICI_E_ARG, out, 4096, base, src, UINT64_C(1) << 62, PICI_F32, PICI_AUTO);
    cr_expect_eq(pici_diff(out, 4096, NULL, base, src, 500, PICI_F32, PICI_AUTO, NULL), PICI_E_ARG);
    cr_expect_eq(pici_diff(out, 48, &len, NULL, NULL, 0, PICI_F32, PICI_AUTO, NULL), PICI_OK);
    cr_expect_eq(len, 48u);
    const struct pici_opts few = {offsetof(struct pici_opts, zeros) - 1, 1, 0, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0};
    cr_expect_eq(pici_diff(out, 4096, &len, base, src, 500, PICI_F32, PICI_AUTO, &few), PICI_E_ARG);
    cr_expect_eq(len, 0u);
}

Test(codec_delta, overlap)
{
    uint8_t *all = test_alloc(24000);
    size_t len;
    for (int format = PICI_DENSE; format <= PICI_HYBRID; format++) {
        memset(all, 0, 24000);
        refuse(PICI_E_ARG, all, 8192, all, all + 8192, 500, PICI_F32, format);
        refuse(PICI_E_ARG, all, 8192, all + 8192, all, 500, PICI_F32, format);
        refuse(PICI_E_ARG, all, 8192, all + 8191, all + 12000, 500, PICI_F32, format);
        refuse(PICI_E_ARG, all, 8192, all + 12000, all + 8191, 500, PICI_F32, format);
        refuse(PICI_E_ARG, all + 1999, 8192, all, all + 12000, 500, PICI_F32, format);
        /* adjacent buffers do not overlap; base and src may overlap, or be the same */
        cr_expect_eq(pici_diff(all + 4000, 8192, &len, all, all + 2000, 500, PICI_F32, (enum pici_format)format, NULL),
                     PICI_OK);
        cr_expect_eq(pici_diff(all, 8192, &len, all + 8193, all + 8192, 500, PICI_F32, (enum pici_format)format, NULL),
                     PICI_OK);
        cr_expect_eq(pici_diff(all, 8192, &len, all + 8192, all + 8192, 500, PICI_F32, (enum pici_format)format, NULL),
                     PICI_OK);
        struct pici_info info = PICI_INFO_INIT;
        cr_expect_eq(pici_inspect(&info, all, len), PICI_OK);
        cr_expect_eq(info.nnz, format == PICI_DENSE ? 500u : 0u);
    }
    free(all);
}

Test(codec_delta, wrong_apply)
{
    static uint8_t block[4096];
    size_t len;
    cr_assert_eq(pici_diff(block, sizeof block, &len, base, src, 500, PICI_F32, PICI_AUTO, NULL), PICI_OK);
    cr_expect_eq(pici_apply(NULL, 500, block, len, NULL), PICI_E_ARG);
    cr_expect_eq(pici_apply(base, 500, NULL, len, NULL), PICI_E_ARG);
    cr_expect_eq(pici_apply(base, 499, block, len, NULL), PICI_E_ARG);
    cr_expect_eq(pici_apply(base, 0, block, len, NULL), PICI_E_ARG);
    cr_expect_eq(pici_apply(base, UINT64_MAX, block, len, NULL), PICI_E_ARG);
    cr_expect_eq(pici_apply(block, 500, block, len, NULL), PICI_E_ARG);
    cr_expect_eq(pici_apply(base, 500, block, len - 1, NULL), PICI_E_CORRUPT);
    const struct pici_opts few = {offsetof(struct pici_opts, zeros) - 1, 1, 0, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0};
    cr_expect_eq(pici_apply(base, 500, block, len, &few), PICI_E_ARG);
    cr_expect_eq(base[0], 1.f, "a call that is wrong touches nothing");
    cr_expect_eq(pici_apply(base, 500, block, len, NULL), PICI_OK);
    cr_expect_arr_eq(base, src, sizeof src);
}

/* A checksum that does not match is found before anything is applied. */
Test(codec_delta, checksum_first)
{
    static uint8_t block[4096];
    struct pici_opts opts = PICI_OPTS_INIT;
    size_t len;
    opts.checksum = 1;
    cr_assert_eq(pici_diff(block, sizeof block, &len, base, src, 500, PICI_F32, PICI_AUTO, &opts), PICI_OK);
    for (size_t at = 40; at < len; at++) {
        block[at] ^= 4;
        cr_expect_eq(pici_apply(base, 500, block, len, NULL), PICI_E_CHECKSUM, "byte %zu", at);
        block[at] ^= 4;
    }
    for (unsigned i = 0; i < 500; i++)
        cr_expect_eq(base[i], (float)i + 1);
}

/* AUTO encodes a difference as the same block as the elements of the difference: at any density, on every ISA, with
 * any number of threads. */
static void try_auto(enum pici_dtype dtype, uint64_t n, enum pattern pattern)
{
    const size_t bytes = (size_t)n * ref_width(dtype), cap = pici_bound(PICI_AUTO, dtype, n);
    uint8_t *from = test_alloc(bytes), *to = test_alloc(bytes), *now = test_alloc(bytes);
    uint8_t *want = test_alloc(cap), *got = test_alloc(cap);
    struct rng rng = {n};
    size_t want_len, len;
    pattern_fill(from, n, dtype, PATTERN_FULL, &rng);
    pattern_fill(to, n, dtype, pattern, &rng);
    cr_assert_eq(pici_compress(want, cap, &want_len, to, n, dtype, PICI_AUTO, NULL), PICI_OK);
    for (size_t i = 0; i < bytes; i++)
        to[i] ^= from[i];
    memcpy(now, from, bytes);
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++)
        for (int threads = 1; threads <= 3; threads += 2) {
            const struct pici_opts opts = {sizeof opts, threads, 0, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0};
            pici_isa_force(*isa);
            cr_assert_eq(pici_diff(got, cap, &len, from, to, n, dtype, PICI_AUTO, &opts), PICI_OK);
            cr_expect(len == want_len && memcmp(got, want, len) == 0, "%s %s %s, %d threads", (*isa)->name,
                      pici_dtype_name(dtype), pattern_name(pattern), threads);
            cr_assert_eq(pici_apply(now, n, got, len, &opts), PICI_OK);
            cr_expect_eq(memcmp(now, to, bytes), 0);
            cr_assert_eq(pici_apply(now, n, got, len, &opts), PICI_OK);
            cr_expect_eq(memcmp(now, from, bytes), 0);
        }
    pici_isa_force(NULL);
    free(from);
    free(to);
    free(now);
    free(want);
    free(got);
}

Test(codec_delta, auto_takes_what_compress_takes)
{
    static const enum pici_dtype dtypes[] = {PICI_U8, PICI_BF16, PICI_F32, PICI_F64};
    for (int pattern = 0; pattern < PATTERNS; pattern++)
        for (unsigned d = 0; d < 4; d++)
            if (test_full() || (d + (unsigned)pattern) % 2)
                try_auto(dtypes[d], 130 * 4096 + 77, (enum pattern)pattern);
}

/* Deltas applied in order give all steps; in reverse order they lead back. */
Test(codec_delta, in_order)
{
    enum { STEPS = 6, N = 20000 };
    static uint16_t weights[STEPS + 1][N], now[N];
    uint8_t *block[STEPS];
    size_t len[STEPS];
    struct rng rng = {3};
    pattern_fill(weights[0], N, PICI_BF16, PATTERN_FULL, &rng);
    for (unsigned k = 0; k < STEPS; k++) {
        memcpy(weights[k + 1], weights[k], sizeof now);
        for (unsigned i = 0; i < N; i++)
            if (rng_chance(&rng, 20000))
                weights[k + 1][i] = (uint16_t)rng_next(&rng);
        block[k] = test_alloc(sizeof now + 48);
        cr_assert_eq(
            pici_diff(block[k], sizeof now + 48, &len[k], weights[k], weights[k + 1], N, PICI_BF16, PICI_AUTO, NULL),
            PICI_OK);
        cr_expect_lt(len[k], sizeof now / 10);
    }
    memcpy(now, weights[0], sizeof now);
    for (unsigned k = 0; k < STEPS; k++) {
        cr_assert_eq(pici_apply(now, N, block[k], len[k], NULL), PICI_OK);
        cr_expect_eq(memcmp(now, weights[k + 1], sizeof now), 0, "step %u", k);
    }
    for (unsigned k = STEPS; k-- > 0;) {
        cr_assert_eq(pici_apply(now, N, block[k], len[k], NULL), PICI_OK);
        cr_expect_eq(memcmp(now, weights[k], sizeof now), 0, "back to step %u", k);
        free(block[k]);
    }
}
