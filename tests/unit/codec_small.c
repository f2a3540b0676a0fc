/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_diff_small and pici_apply_small: invalid calls, what AUTO takes, many threads, sizes beside the entropy. What
 * they make of all sorts of elements, on every ISA, is in tests/plain/small.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/ref.h"
#include "formats/ref_small.h"
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
    cr_expect_eq(pici_diff_small_bound(PICI_DENSE, PICI_F8E4M3, 10), 48u + 4 + 48 + 10);
    cr_expect_eq(pici_diff_small_bound(PICI_DENSE, PICI_U8, 0), 48u);
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

/* Weights with one exponent; a share of them changes by one place. A delta takes little more than the entropy of the
 * positions and a sign bit for each: 3%, and the bytes that every chunk has. */
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

/* ---- floats of 8 and of 4 bits ---- */

static enum pici_status apply_one(void *dst, uint64_t n, uint64_t first, uint64_t of, const void *delta, size_t size)
{
    return pici_apply_small_range(dst, n, first, of, &delta, &size, 1, NULL);
}

/* Weights of any bits, of which a share changes by one place: f8, or pairs of e2m1. */
static void narrow_fill(uint8_t *from, uint8_t *to, size_t n, enum pici_dtype dtype, unsigned ppm, struct rng *rng)
{
    for (size_t i = 0; i < n; i++) {
        from[i] = to[i] = (uint8_t)rng_next(rng);
        if (rng_chance(rng, ppm))
            to[i] ^= (uint8_t)(dtype == PICI_U8 && rng_chance(rng, 500000) ? 0x10 : 1);
    }
}

/* What u8 hold is an option that no other dtype takes. */
Test(codec_small, holds)
{
    static uint8_t from[3000], to[3000], plain[8192], pairs[8192];
    struct pici_opts opts = PICI_OPTS_INIT;
    struct rng rng = {5};
    size_t size = 1, plain_size;
    opts.holds = PICI_HOLDS_E2M1X2;
    narrow_fill(from, to, sizeof from, PICI_U8, 100000, &rng);
    for (int dtype = PICI_F32; dtype <= PICI_U64; dtype++)
        if (dtype != PICI_U8) {
            cr_expect_eq(
                pici_diff_small(pairs, sizeof pairs, &size, from, to, 100, (enum pici_dtype)dtype, PICI_AUTO, &opts),
                PICI_E_ARG);
            cr_expect_eq(size, 0u);
        }
    opts.holds = (enum pici_holds)2;
    cr_expect_eq(pici_diff_small(pairs, sizeof pairs, &size, from, to, 100, PICI_U8, PICI_AUTO, &opts),
                 PICI_E_UNSUPPORTED);
    opts.holds = PICI_HOLDS_E2M1X2;
    cr_assert_eq(pici_diff_small(plain, sizeof plain, &plain_size, from, to, 3000, PICI_U8, PICI_AUTO, NULL), PICI_OK);
    cr_assert_eq(pici_diff_small(pairs, sizeof pairs, &size, from, to, 3000, PICI_U8, PICI_AUTO, &opts), PICI_OK);
    cr_expect_eq(plain[4], 1, "the version of u8 that hold integers");
    cr_expect_eq(pairs[4], 3);
    cr_expect_lt(size, plain_size - 48);
    cr_assert_eq(pici_apply_small(from, 3000, pairs, size, NULL), PICI_OK);
    cr_expect_arr_eq(from, to, sizeof from);
}

/* Lists of changes, shards in a row, ranges and folds, as of bf16. */
Test(codec_small, narrow_parts)
{
    enum { N = SMALL_CHUNK + 60000, CUT = SMALL_CHUNK };
    static const enum pici_dtype dtypes[] = {PICI_F8E4M3, PICI_F8E5M2, PICI_U8};
    const size_t capacity = pici_diff_small_bound(PICI_AUTO, PICI_U8, N) + 64;
    uint8_t *const from = test_alloc(N), *const to = test_alloc(N), *const then = test_alloc(N),
                   *const dst = test_alloc(N), *const row = test_alloc(capacity), *const second = test_alloc(capacity);
    uint32_t *const at = test_alloc(4 * N);
    for (int d = 0; d < 3; d++) {
        struct rng rng = {(uint64_t)d + 1};
        struct pici_opts opts = PICI_OPTS_INIT;
        size_t size, part, second_size;
        uint64_t found, want = 0;
        opts.holds = dtypes[d] == PICI_U8 ? PICI_HOLDS_E2M1X2 : PICI_HOLDS_ONE;
        narrow_fill(from, to, N, dtypes[d], 20000, &rng);
        for (size_t i = 0; i < N; i++)
            then[i] = to[i] ^ (uint8_t)(i % 301 == 0 ? 16 : 0);
        cr_assert_eq(pici_diff_small_part(row, capacity, &size, from, to, CUT, 0, N, dtypes[d], PICI_AUTO, &opts), 0);
        cr_assert_eq(pici_diff_small_part(row + size, capacity - size, &part, from + CUT, to + CUT, N - CUT, CUT, N,
                                          dtypes[d], PICI_AUTO, &opts),
                     PICI_OK);
        size += part;
        cr_expect_lt(size, N / 50u * 3, "%zu bytes of %s", size, pici_dtype_name(dtypes[d]));
        cr_assert_eq(pici_diff_small(second, capacity, &second_size, to, then, N, dtypes[d], PICI_AUTO, &opts), 0);
        cr_assert_eq(pici_changes(at, 4, dst, N, &found, from, N, row, size, 0, N), PICI_OK);
        for (uint32_t i = 0; i < N; i++)
            if (from[i] != to[i]) {
                cr_assert(want < found && at[want] == i && dst[want] == to[i], "element %u", i);
                want++;
            }
        cr_expect_eq(found, want);
        memcpy(dst, from, N);
        const void *const deltas[] = {row, second};
        cr_assert_eq(pici_apply_small_range(dst, N, 0, N, deltas, (const size_t[]){size, second_size}, 2, NULL), 0);
        cr_expect_eq(memcmp(dst, then, N), 0);
        memcpy(dst, to + CUT, N - CUT); /* a range of the whole one */
        cr_assert_eq(apply_one(dst, N - CUT, CUT, N, second, second_size), PICI_OK);
        cr_expect_eq(memcmp(dst, then + CUT, N - CUT), 0);
        cr_expect_eq(apply_one(dst, N - CUT, 0, N, second, second_size), PICI_E_ARG, "a chunk that is cut");
        memcpy(dst, then, N); /* of another base: refused, or other elements, and never outside */
        for (size_t i = 0; i < N; i += 3)
            dst[i] ^= 0x55;
        cr_expect_eq(pici_apply_small(dst, N, second, second_size, NULL), PICI_E_CORRUPT);
    }
    free(from);
    free(to);
    free(then);
    free(dst);
    free(row);
    free(second);
    free(at);
}

/* ---- parts, ranges, rows, folds ---- */

enum { WHOLE = 2 * SMALL_CHUNK + 5000 };

/* Weights of three steps, and the deltas between them. */
struct steps {
    uint16_t *weights[4];
    uint8_t *delta[3];
    size_t size[3];
};

static struct steps make_steps(enum step first, enum step then)
{
    struct steps steps;
    struct rng rng = {11};
    const size_t capacity = pici_diff_small_bound(PICI_AUTO, PICI_BF16, WHOLE);
    for (int i = 0; i < 4; i++)
        steps.weights[i] = test_alloc(2 * WHOLE);
    for (int i = 0; i < 3; i++) {
        uint16_t *const other = i ? steps.weights[3] : steps.weights[0];
        step_fill(other, steps.weights[i + 1], WHOLE, PICI_BF16, i % 2 ? then : first, &rng);
        for (size_t k = 0; i && k < WHOLE; k++) /* the same changes of the weights before */
            steps.weights[i + 1][k] = (uint16_t)(steps.weights[i][k] + (uint16_t)(steps.weights[i + 1][k] - other[k]));
    }
    for (int i = 0; i < 3; i++) {
        steps.delta[i] = test_alloc(capacity);
        cr_assert_eq(pici_diff_small(steps.delta[i], capacity, &steps.size[i], steps.weights[i], steps.weights[i + 1],
                                     WHOLE, PICI_BF16, PICI_AUTO, NULL),
                     PICI_OK);
    }
    return steps;
}

static void free_steps(struct steps *steps)
{
    for (int i = 0; i < 4; i++)
        free(steps->weights[i]);
    for (int i = 0; i < 3; i++)
        free(steps->delta[i]);
}

/* A rank that has whole chunks applies its part of a whole delta, of which the others are not even valid. */
Test(codec_small, range_of_a_whole_delta)
{
    struct steps steps = make_steps(STEP_USUAL, STEP_TINY);
    static const uint64_t first[] = {0, SMALL_CHUNK, 2 * SMALL_CHUNK, 0, SMALL_CHUNK},
                          count[] = {SMALL_CHUNK, SMALL_CHUNK, 5000, 2 * SMALL_CHUNK, WHOLE - SMALL_CHUNK};
    for (int i = 0; i < 5; i++) {
        uint16_t *const shard = test_alloc(2 * count[i]);
        memcpy(shard, steps.weights[0] + first[i], 2 * count[i]);
        uint8_t *const damaged = test_alloc(steps.size[0]);
        memcpy(damaged, steps.delta[0], steps.size[0]);
        if (first[i]) /* the fields of chunk 0, which the shard has not */
            memset(damaged + 32 + 3 * 4, 0xff, 40);
        cr_expect_eq(apply_one(shard, count[i], first[i], WHOLE, damaged, steps.size[0]), PICI_OK);
        cr_expect_eq(memcmp(shard, steps.weights[1] + first[i], 2 * count[i]), 0, "range %d", i);
        free(shard);
        free(damaged);
    }
    uint16_t *const shard = test_alloc(2 * SMALL_CHUNK);
    memcpy(shard, steps.weights[0], 2 * SMALL_CHUNK);
    /* chunks that are cut, another tensor, beyond the end */
    cr_expect_eq(apply_one(shard, SMALL_CHUNK - 1, 0, WHOLE, steps.delta[0], steps.size[0]), PICI_E_ARG);
    cr_expect_eq(apply_one(shard, SMALL_CHUNK, 1, WHOLE, steps.delta[0], steps.size[0]), PICI_E_ARG);
    cr_expect_eq(apply_one(shard, SMALL_CHUNK, 0, WHOLE + 1, steps.delta[0], steps.size[0]), PICI_E_ARG);
    cr_expect_eq(apply_one(shard, SMALL_CHUNK, WHOLE - 5, WHOLE, steps.delta[0], steps.size[0]), PICI_E_ARG);
    cr_expect_eq(apply_one(NULL, SMALL_CHUNK, 0, WHOLE, steps.delta[0], steps.size[0]), PICI_E_ARG);
    cr_expect_eq(pici_apply_small_range(shard, SMALL_CHUNK, 0, WHOLE, NULL, NULL, 1, NULL), PICI_E_ARG);
    cr_expect_eq(pici_apply_small_range(shard, SMALL_CHUNK, 0, WHOLE, (const void *const[]){NULL}, steps.size, 1, NULL),
                 PICI_E_ARG);
    cr_expect_eq(memcmp(shard, steps.weights[0], 2 * SMALL_CHUNK), 0, "a call that is wrong touches nothing");
    cr_expect_eq(apply_one(NULL, 0, 7, WHOLE, steps.delta[0], steps.size[0]), PICI_OK);
    free(shard);
    free_steps(&steps);
}

/* Of chunks that are XOR blocks a range may have any elements. */
Test(codec_small, range_of_blocks)
{
    enum { N = SMALL_CHUNK + 3000 };
    uint32_t *const from = test_alloc(4 * N), *const to = test_alloc(4 * N);
    const size_t capacity = pici_diff_small_bound(PICI_AUTO, PICI_U32, N);
    uint8_t *const delta = test_alloc(capacity);
    size_t size;
    for (uint32_t i = 0; i < N; i++) {
        from[i] = i * 2654435761u;
        to[i] = from[i] ^ (i % 97 ? 0 : i + 1);
    }
    cr_assert_eq(pici_diff_small(delta, capacity, &size, from, to, N, PICI_U32, PICI_AUTO, NULL), PICI_OK);
    for (uint64_t first = 0; first < N; first += 99991)
        for (uint64_t n = 1; n <= N - first; n = 3 * n + 1000) {
            uint32_t *const shard = test_alloc(4 * n);
            memcpy(shard, from + first, 4 * n);
            cr_expect_eq(apply_one(shard, n, first, N, delta, size), PICI_OK);
            cr_expect_eq(memcmp(shard, to + first, 4 * n), 0);
            free(shard);
        }
    free(from);
    free(to);
    free(delta);
}

/* Each rank makes the delta of its shard. In a row they are one of the whole; each is refused anywhere else. */
Test(codec_small, shards)
{
    static const uint64_t ends[] = {0, 300001, 300001, 900002, WHOLE};
    struct steps steps = make_steps(STEP_USUAL, STEP_TINY);
    const uint16_t *const from = steps.weights[0], *const to = steps.weights[1];
    const size_t capacity = pici_diff_small_bound(PICI_AUTO, PICI_BF16, WHOLE) + 4 * 16;
    uint8_t *const row = test_alloc(capacity);
    uint16_t *const dst = test_alloc(2 * WHOLE);
    size_t size = 0, starts[5] = {0};
    for (int i = 0; i < 4; i++) {
        const uint64_t n = ends[i + 1] - ends[i];
        size_t bytes, want_bytes;
        cr_assert_eq(pici_diff_small_part(row + size, capacity - size, &bytes, from + ends[i], to + ends[i], n, ends[i],
                                          WHOLE, PICI_BF16, PICI_AUTO, NULL),
                     PICI_OK);
        cr_expect(bytes <= pici_diff_small_bound(PICI_AUTO, PICI_BF16, n) + 16);
        if (n < 400000) {
            uint8_t *const want = ref_small_encode_part(&want_bytes, from + ends[i], to + ends[i], n, ends[i], WHOLE,
                                                        REF_BF16, n ? REF_HYBRID : REF_DENSE, 0);
            cr_expect(want && want_bytes == bytes && memcmp(want, row + size, bytes) == 0, "part %d", i);
            free(want);
        }
        starts[i + 1] = size += bytes;
    }
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) {
            const uint64_t n = ends[k + 1] - ends[k];
            memcpy(dst, from + ends[k], 2 * n);
            const enum pici_status alone =
                apply_one(dst, n, ends[k], WHOLE, row + starts[i], starts[i + 1] - starts[i]);
            cr_expect_eq(alone, i == k || !n ? PICI_OK : PICI_E_ARG, "delta %d of shard %d", i, k);
            cr_expect_eq(memcmp(dst, (i == k ? to : from) + ends[k], 2 * n), 0);
            memcpy(dst, from + ends[k], 2 * n); /* each finds its part in the row */
            cr_expect_eq(apply_one(dst, n, ends[k], WHOLE, row, size), PICI_OK);
            cr_expect_eq(memcmp(dst, to + ends[k], 2 * n), 0);
        }
    for (int threads = 1; threads < 4; threads += 2) {
        struct pici_opts opts = PICI_OPTS_INIT;
        opts.threads = threads;
        memcpy(dst, from, 2 * WHOLE);
        cr_expect_eq(pici_apply_small(dst, WHOLE, row, size, &opts), PICI_OK);
        cr_expect_eq(memcmp(dst, to, 2 * WHOLE), 0);
    }
    uint64_t found, want = 0, *const at = test_alloc(8 * WHOLE);
    cr_assert_eq(pici_changes(at, 8, dst, WHOLE, &found, from, WHOLE, row, size, 0, WHOLE), PICI_OK);
    for (size_t i = 0; i < WHOLE; i++)
        if (from[i] != to[i]) {
            cr_assert(want < found && at[want] == i && dst[want] == to[i]);
            want++;
        }
    cr_expect_eq(found, want);
    /* one that lacks a shard, and one in another order */
    memcpy(dst, from, 2 * WHOLE);
    cr_expect_eq(pici_apply_small(dst, WHOLE, row, starts[3], NULL), PICI_E_ARG);
    cr_expect_eq(pici_apply_small(dst, WHOLE, row + starts[2], size - starts[2], NULL), PICI_E_ARG);
    cr_expect_eq(pici_changes(at, 8, NULL, WHOLE, &found, from, WHOLE, row, starts[3], 0, 5), PICI_E_ARG);
    uint8_t *const turned = test_alloc(size);
    memcpy(turned, row + starts[2], size - starts[2]);
    memcpy(turned + size - starts[2], row, starts[2]);
    cr_expect_eq(pici_apply_small(dst, WHOLE, turned, size, NULL), PICI_E_CORRUPT);
    free(turned);
    /* a delta of the whole is no part: not even after one without elements */
    size_t none, rest;
    cr_assert_eq(pici_diff_small_part(row, capacity, &none, from, to, 0, 0, WHOLE, PICI_BF16, PICI_AUTO, NULL),
                 PICI_OK);
    cr_assert_eq(pici_diff_small(row + none, capacity - none, &rest, from, to, WHOLE, PICI_BF16, PICI_AUTO, NULL), 0);
    cr_expect_eq(pici_apply_small(dst, WHOLE, row, none + rest, NULL), PICI_E_CORRUPT);
    cr_expect_eq(pici_changes(at, 8, NULL, WHOLE, &found, from, WHOLE, row, none + rest, 0, 5), PICI_E_CORRUPT);
    cr_expect_eq(memcmp(dst, from, 2 * WHOLE), 0);
    free(at);
    free(dst);
    free(row);
    free_steps(&steps);
}

Test(codec_small, wrong_parts)
{
    static uint8_t out[8192];
    size_t len = 77;
    cr_expect_eq(pici_diff_small_part(out, 4096, &len, base, src, 500, 0, 499, PICI_BF16, PICI_AUTO, NULL), PICI_E_ARG);
    cr_expect_eq(pici_diff_small_part(out, 4096, &len, base, src, 500, 2, 501, PICI_BF16, PICI_AUTO, NULL), PICI_E_ARG);
    cr_expect_eq(pici_diff_small_part(out, 4096, &len, base, src, 500, UINT64_MAX, 501, PICI_BF16, PICI_AUTO, NULL),
                 PICI_E_ARG);
    cr_expect_eq(pici_diff_small_part(out, 47, &len, base, src, 0, 2, 501, PICI_BF16, PICI_AUTO, NULL), PICI_E_SPACE);
    cr_expect_eq(len, 0u);
    cr_expect_eq(pici_diff_small_part(out, 48, &len, base, src, 0, 2, 501, PICI_BF16, PICI_AUTO, NULL), PICI_OK);
    cr_expect_eq(len, 48u);
    cr_expect_eq(out[4], 2);
    cr_expect_eq(pici_diff_small_part(out, 4096, &len, base, src, 500, 0, 500, PICI_BF16, PICI_AUTO, NULL), PICI_OK);
    cr_expect_eq(out[4], 1, "of all elements it is a delta of the whole");
}

/* Several deltas at once lead where they lead one after the other, whatever their parts are. */
Test(codec_small, several_at_once)
{
    struct steps steps = make_steps(STEP_TINY, STEP_USUAL);
    uint16_t *const dst = test_alloc(2 * WHOLE);
    const void *deltas[3] = {steps.delta[0], steps.delta[1], steps.delta[2]};
    for (size_t count = 1; count <= 3; count++)
        for (int threads = 1; threads < 4; threads++) {
            struct pici_opts opts = PICI_OPTS_INIT;
            opts.threads = threads;
            memcpy(dst, steps.weights[0], 2 * WHOLE);
            cr_expect_eq(pici_apply_small_range(dst, WHOLE, 0, WHOLE, deltas, steps.size, count, &opts), PICI_OK);
            cr_expect_eq(memcmp(dst, steps.weights[count], 2 * WHOLE), 0);
        }
    memcpy(dst, steps.weights[0] + SMALL_CHUNK, 2 * SMALL_CHUNK);
    cr_expect_eq(pici_apply_small_range(dst, SMALL_CHUNK, SMALL_CHUNK, WHOLE, deltas, steps.size, 3, NULL), PICI_OK);
    cr_expect_eq(memcmp(dst, steps.weights[3] + SMALL_CHUNK, 2 * SMALL_CHUNK), 0);

    /* the second as two parts: not in one pass */
    const size_t capacity = pici_diff_small_bound(PICI_AUTO, PICI_BF16, WHOLE) + 32;
    uint8_t *const row = test_alloc(capacity);
    size_t first, second, sizes[3] = {steps.size[0], 0, steps.size[2]};
    cr_assert_eq(pici_diff_small_part(row, capacity, &first, steps.weights[1], steps.weights[2], 700, 0, WHOLE,
                                      PICI_BF16, PICI_AUTO, NULL),
                 PICI_OK);
    cr_assert_eq(pici_diff_small_part(row + first, capacity - first, &second, steps.weights[1] + 700,
                                      steps.weights[2] + 700, WHOLE - 700, 700, WHOLE, PICI_BF16, PICI_AUTO, NULL),
                 PICI_OK);
    deltas[1] = row;
    sizes[1] = first + second;
    memcpy(dst, steps.weights[0], 2 * WHOLE);
    cr_expect_eq(pici_apply_small_range(dst, WHOLE, 0, WHOLE, deltas, sizes, 3, NULL), PICI_OK);
    cr_expect_eq(memcmp(dst, steps.weights[3], 2 * WHOLE), 0);

    /* a wrong one among them is found before anything is changed, unless a chunk is wrong */
    memcpy(dst, steps.weights[0], 2 * WHOLE);
    sizes[1] = first;
    cr_expect_eq(pici_apply_small_range(dst, WHOLE, 0, WHOLE, deltas, sizes, 3, NULL), PICI_E_ARG);
    sizes[1]--;
    cr_expect_eq(pici_apply_small_range(dst, WHOLE, 0, WHOLE, deltas, sizes, 3, NULL), PICI_E_CORRUPT);
    cr_expect_eq(memcmp(dst, steps.weights[0], 2 * WHOLE), 0);
    cr_expect_eq(pici_apply_small_range(dst, WHOLE, 0, WHOLE, deltas, sizes, 0, NULL), PICI_E_ARG);
    free(row);
    free(dst);
    free_steps(&steps);
}
