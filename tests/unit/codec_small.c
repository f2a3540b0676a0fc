/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_diff_small and pici_apply_small: invalid calls, what AUTO takes, many threads, sizes beside the entropy. What
 * they make of all sorts of elements, on every ISA, is in tests/plain/small.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/ref.h"
#include "pici/delta.h"
#include "small_format.h"
#include "tests/util/small.h"

static uint16_t base[2000], src[2000];

static void set_up(void)
{
    for (unsigned i = 0; i < 2000; i++)
        base[i] = src[i] = (uint16_t)(0x3c00 + i % 50);
    for (unsigned i = 0; i < 2000; i += 17)
        src[i]++;
}

TestSuite(codec_small, .init = set_up);

static void refuse(enum pici_status want, void *out, size_t cap, const void *from, const void *to, uint64_t n,
                   int dtype, int format)
{
    size_t len = 77;
    cr_expect_eq(pici_diff_small(out, cap, &len, from, to, n, (enum pici_dtype)dtype, (enum pici_format)format, NULL),
                 want, "dtype %d format %d cap %zu", dtype, format, cap);
    cr_expect_eq(len, 0u);
}

Test(codec_small, wrong_diff)
{
    static uint8_t out[8192];
    size_t len = 77;
    refuse(PICI_E_ARG, NULL, 4096, base, src, 500, PICI_BF16, PICI_DENSE);
    refuse(PICI_E_ARG, out, 4096, NULL, src, 1, PICI_BF16, PICI_AUTO);
    refuse(PICI_E_ARG, out, 4096, base, NULL, 1, PICI_BF16, PICI_AUTO);
    refuse(PICI_E_ARG, out, 4096, base, src, 500, 0, PICI_AUTO);
    refuse(PICI_E_ARG, out, 4096, base, src, 500, 15, PICI_AUTO);
    refuse(PICI_E_ARG, out, 4096, base, src, 500, PICI_BF16, 5);
    refuse(PICI_E_UNSUPPORTED, out, 4096, base, src, 500, PICI_BF16, PICI_PACKED);
    refuse(PICI_E_ARG, out, 4096, base, src, UINT64_MAX, PICI_BF16, PICI_AUTO);
    refuse(PICI_E_SPACE, out, 31, base, src, 0, PICI_BF16, PICI_AUTO);
    refuse(PICI_E_SPACE, out, 35, base, src, 1, PICI_BF16, PICI_AUTO);
    refuse(PICI_E_SPACE, out, 100, base, src, 2000, PICI_BF16, PICI_AUTO);
    refuse(PICI_E_ARG, base, 4000, base, src, 2000, PICI_BF16, PICI_AUTO);
    refuse(PICI_E_ARG, src + 1999, 4000, base, src, 2000, PICI_BF16, PICI_AUTO);
    cr_expect_eq(pici_diff_small(out, 4096, NULL, base, src, 500, PICI_BF16, PICI_AUTO, NULL), PICI_E_ARG);
    cr_expect_eq(pici_diff_small(out, 32, &len, NULL, NULL, 0, PICI_BF16, PICI_AUTO, NULL), PICI_OK);
    cr_expect_eq(len, 32u);
    cr_expect_eq(pici_apply_small(NULL, 0, out, len, NULL), PICI_OK);
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.threads = -1;
    cr_expect_eq(pici_diff_small(out, 4096, &len, base, src, 500, PICI_BF16, PICI_AUTO, &opts), PICI_E_ARG);
    cr_expect_eq(len, 0u);
}

Test(codec_small, wrong_apply)
{
    static uint8_t delta[8192];
    size_t len;
    struct pici_info info = PICI_INFO_INIT;
    cr_assert_eq(pici_diff_small(delta, sizeof delta, &len, base, src, 2000, PICI_BF16, PICI_AUTO, NULL), PICI_OK);
    cr_expect_neq(delta[35] & 128, 0, "a context chunk");
    cr_expect_eq(pici_apply_small(NULL, 2000, delta, len, NULL), PICI_E_ARG);
    cr_expect_eq(pici_apply_small(base, 2000, NULL, len, NULL), PICI_E_ARG);
    cr_expect_eq(pici_apply_small(base, 1999, delta, len, NULL), PICI_E_ARG);
    cr_expect_eq(pici_apply_small(base, UINT64_MAX, delta, len, NULL), PICI_E_ARG);
    cr_expect_eq(pici_apply_small(delta, 2000, delta, len, NULL), PICI_E_ARG);
    for (size_t cut = 0; cut < len; cut++)
        cr_expect_eq(pici_apply_small(base, 2000, delta, cut, NULL), PICI_E_CORRUPT);
    cr_expect_neq(pici_inspect(&info, delta, len), PICI_OK);
    cr_expect_eq(base[0], 0x3c00, "a call that is wrong touches nothing");
    cr_expect_eq(pici_apply_small(base, 2000, delta, len, NULL), PICI_OK);
    cr_expect_arr_eq(base, src, sizeof src);
    /* it leads one way: of these elements, whose exponents stay as they are, further on */
    cr_expect_eq(pici_apply_small(base, 2000, delta, len, NULL), PICI_OK);
    for (unsigned i = 0; i < 2000; i++)
        cr_expect_eq(base[i], src[i] + (i % 17 == 0));
}

/* A base of which an exponent differs does not fit the delta's tables, and stays as it is. */
Test(codec_small, another_base)
{
    static uint8_t delta[8192];
    static uint16_t other[2000];
    size_t len;
    cr_assert_eq(pici_diff_small(delta, sizeof delta, &len, base, src, 2000, PICI_BF16, PICI_AUTO, NULL), PICI_OK);
    for (unsigned i = 0; i < 2000; i++)
        base[i] = other[i] = (uint16_t)(base[i] ^ (i % 3 ? 0 : 0x3000));
    cr_expect_eq(pici_apply_small(base, 2000, delta, len, NULL), PICI_E_CORRUPT);
    cr_expect_arr_eq(base, other, sizeof other);
}

/* A checksum that does not match is found before anything is applied. */
Test(codec_small, checksum_first)
{
    static uint8_t delta[8192];
    struct pici_opts opts = PICI_OPTS_INIT;
    size_t len;
    opts.checksum = 1;
    cr_assert_eq(pici_diff_small(delta, sizeof delta, &len, base, src, 2000, PICI_BF16, PICI_AUTO, &opts), PICI_OK);
    for (size_t at = 24; at < len; at++) {
        if (at >= 32 && at < 36)
            continue; /* the directory is checked before */
        delta[at] ^= 4;
        cr_expect_eq(pici_apply_small(base, 2000, delta, len, NULL), PICI_E_CHECKSUM, "byte %zu", at);
        delta[at] ^= 4;
    }
    for (unsigned i = 0; i < 2000; i++)
        cr_expect_eq(base[i], 0x3c00 + i % 50);
}

/* A delta that lacks most of its words is refused before it is decoded to its end. */
Test(codec_small, few_words)
{
    const uint64_t n = SMALL_CHUNK;
    const size_t cap = pici_diff_small_bound(PICI_DENSE, PICI_BF16, n), at = 36;
    uint8_t *a = test_alloc(2 * n), *b = test_alloc(2 * n), *delta = test_alloc(cap);
    struct rng rng = {3};
    size_t len;
    step_fill(a, b, n, PICI_BF16, STEP_USUAL, &rng);
    cr_assert_eq(pici_diff_small(delta, cap, &len, a, b, n, PICI_BF16, PICI_DENSE, NULL), PICI_OK);
    memcpy(b, a, 2 * n);
    for (unsigned words = 0; words < 9000; words = 2 * words + 1) {
        ref_put(delta + at + SMALL_CTX_WORDS, 4, words);
        cr_expect_eq(pici_apply_small(a, n, delta, len, NULL), PICI_E_CORRUPT);
        cr_expect_eq(memcmp(a, b, 2 * n), 0);
    }
    free(a);
    free(b);
    free(delta);
}

Test(codec_small, bound)
{
    cr_expect_eq(pici_diff_small_bound(PICI_AUTO, PICI_BF16, 0), 32u);
    cr_expect_eq(pici_diff_small_bound(PICI_DENSE, PICI_BF16, 10), 32u + 4 + 48 + 20);
    cr_expect_eq(pici_diff_small_bound(PICI_DENSE, PICI_F64, SMALL_CHUNK + 1), 32u + 8 + 96 + 8 * (SMALL_CHUNK + 1));
    cr_expect_eq(pici_diff_small_bound(PICI_DENSE, (enum pici_dtype)0, 10), 0u);
    cr_expect_eq(pici_diff_small_bound((enum pici_format)9, PICI_F32, 10), 0u);
    cr_expect_eq(pici_diff_small_bound(PICI_DENSE, PICI_F64, UINT64_MAX), 0u);
    cr_expect_eq(pici_diff_small_bound(PICI_DENSE, PICI_F64, UINT64_MAX / 8), 0u);
}

/* With AUTO, a delta is never longer than with another format; with any number of threads it has the same bytes. */
Test(codec_small, auto_and_threads)
{
    const uint64_t n = 5 * SMALL_CHUNK + 12345;
    const size_t cap = pici_diff_small_bound(PICI_HYBRID, PICI_BF16, n);
    uint8_t *a = test_alloc(2 * n), *b = test_alloc(2 * n), *now = test_alloc(2 * n);
    uint8_t *one = test_alloc(cap), *many = test_alloc(cap);
    struct rng rng = {7};
    step_fill(a, b, n, PICI_BF16, STEP_TINY, &rng);
    memcpy(b + SMALL_CHUNK, a + SMALL_CHUNK, SMALL_CHUNK);             /* a chunk of which a part has no changes */
    memcpy(b + 4 * SMALL_CHUNK, a + 4 * SMALL_CHUNK, 2 * SMALL_CHUNK); /* and one without */
    size_t len, hybrid, other;
    cr_assert_eq(pici_diff_small(many, cap, &hybrid, a, b, n, PICI_BF16, PICI_HYBRID, NULL), PICI_OK);
    cr_assert_eq(pici_diff_small(one, cap, &len, a, b, n, PICI_BF16, PICI_AUTO, NULL), PICI_OK);
    cr_expect_leq(len, hybrid);
    for (int threads = 2; threads < 9; threads += 3) {
        struct pici_opts opts = PICI_OPTS_INIT;
        opts.threads = threads;
        cr_assert_eq(pici_diff_small(many, cap, &other, a, b, n, PICI_BF16, PICI_AUTO, &opts), PICI_OK);
        cr_expect(other == len && memcmp(one, many, len) == 0, "%d threads", threads);
        cr_assert_eq(pici_diff_small(many, len - 1, &other, a, b, n, PICI_BF16, PICI_AUTO, &opts), PICI_E_SPACE);
        memcpy(now, a, 2 * n);
        cr_assert_eq(pici_apply_small(now, n, one, len, &opts), PICI_OK);
        cr_expect_eq(memcmp(now, b, 2 * n), 0);
        one[len / 2] ^= 1;
        memcpy(now, a, 2 * n);
        cr_expect_eq(pici_apply_small(now, n, one, len, &opts), PICI_E_CORRUPT);
        one[len / 2] ^= 1;
    }
    free(a);
    free(b);
    free(now);
    free(one);
    free(many);
}

/* Of weights of one exponent, of which a share changes by one place, a delta takes little more than the entropy of the
 * positions and a bit of sign for each: 3% and the bytes that every chunk has. */
Test(codec_small, near_the_entropy)
{
    const uint64_t n = 2 * SMALL_CHUNK;
    const size_t cap = pici_diff_small_bound(PICI_AUTO, PICI_BF16, n);
    uint16_t *a = test_alloc(2 * n), *b = test_alloc(2 * n);
    uint8_t *delta = test_alloc(cap);
    for (unsigned ppm = 1000; ppm <= 500000; ppm *= 5) {
        struct rng rng = {ppm};
        double k = 0;
        for (uint64_t i = 0; i < n; i++) {
            a[i] = (uint16_t)(0x3c00 | (rng_next(&rng) & 127));
            b[i] = a[i];
            if (!rng_chance(&rng, ppm))
                continue;
            b[i] = (uint16_t)(a[i] + (rng_chance(&rng, 500000) ? 1 : -1));
            k++;
        }
        const double p = k / (double)n, bits = -(double)n * (p * log2(p) + (1 - p) * log2(1 - p)) + k;
        size_t len;
        cr_assert_eq(pici_diff_small(delta, cap, &len, a, b, n, PICI_BF16, PICI_AUTO, NULL), PICI_OK);
        cr_expect_lt((double)len, bits / 8 * 1.03 + 2 * 160 + 40, "%u ppm: %zu bytes, entropy %.0f", ppm, len,
                     bits / 8);
    }
    free(a);
    free(b);
    free(delta);
}
