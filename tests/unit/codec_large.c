/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Inputs of more than 2^32 elements, more threads than a call starts, a thread with a small stack, and a process
 * without memory. PICI_TEST_FULL=1 adds tests that take half a gigabyte or minutes. */
#define _DEFAULT_SOURCE
#include <criterion/criterion.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "cpu/kernels.h"
#include "formats/ref.h"
#include "pici/delta.h"
#include "tests/util/util.h"

/* So many bytes of zeros; only pages that are written take memory. Null if there is no address space. */
static uint8_t *zeros(uint64_t bytes)
{
    if (bytes > SIZE_MAX)
        return NULL;
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* ---- 2^32 + 5 elements ---- */

static const uint64_t wide = (UINT64_C(1) << 32) + 5;
static const uint64_t places[] = {3, 4095, 4096, UINT64_C(0xffffffff), UINT64_C(0x100000000), UINT64_C(0x100000004)};
enum { PLACES = sizeof places / sizeof *places };

/* Zeros, and the elements 1, 2, ... at places. Null, and a message, if there is no memory. */
static uint8_t *wide_input(void)
{
    uint8_t *src = zeros(wide);
    if (!src)
        printf("skip: 2^32 + 5 elements do not fit in this address space\n");
    for (unsigned i = 0; src && i < PLACES; i++)
        src[places[i]] = (uint8_t)(i + 1);
    return src;
}

static void expect_places(const uint8_t *block, size_t len)
{
    cr_expect_eq(pici_verify(block, len), PICI_OK);
    for (unsigned i = 0; i < PLACES; i++) {
        uint8_t out[4] = {9, 9, 9, 9};
        cr_expect_eq(pici_decompress_range(out, places[i] - 2, 3, block, len, NULL), PICI_OK);
        cr_expect_eq(out[2], i + 1);
        cr_expect_eq(out[3], 9);
    }
}

Test(codec_large, coo_beyond_32_bits)
{
    uint8_t *src = wide_input();
    if (!src)
        return;
    uint8_t want[48 + 8 * PLACES + PLACES] = "PICI\1\2\10\1", block[sizeof want];
    ref_put(want + 8, 8, wide);
    ref_put(want + 16, 8, PLACES);
    ref_put(want + 24, 8, 48);
    ref_put(want + 32, 8, 48 + 8 * PLACES);
    for (unsigned i = 0; i < PLACES; i++) {
        ref_put(want + 48 + 8 * i, 8, places[i]);
        want[48 + 8 * PLACES + i] = (uint8_t)(i + 1);
    }
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
        if (isa[1] && !test_full()) /* only the fastest one */
            continue;
        size_t len = 0;
        pici_isa_force(*isa);
        cr_expect_eq(pici_compress(block, sizeof block, &len, src, wide, PICI_U8, PICI_AUTO, NULL), PICI_OK);
        cr_expect_eq(len, sizeof want);
        cr_expect_arr_eq(block, want, sizeof want);
        expect_places(block, len);
    }
    pici_isa_force(NULL);
    munmap(src, (size_t)wide);
}

Test(codec_large, pici_beyond_32_bits)
{
    static const int threads[] = {1, 3};
    if (!test_full()) {
        printf("skip: a bitmap block of 2^32 + 5 elements (PICI_TEST_FULL=1 has it)\n");
        return;
    }
    const uint64_t tiles = (UINT64_C(1) << 20) + 1, index = 48 + 512 * tiles, values = index + 8 * (tiles + 1);
    const uint64_t bytes = values + PLACES;
    uint8_t *src = wide_input(), *block = zeros(bytes);
    if (!src || !block)
        return;
    for (unsigned t = 0; t < 2; t++) {
        const struct pici_opts opts = {sizeof opts, threads[t], 0, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0};
        size_t len = 0;
        memset(block, 0xee, 48);
        cr_expect_eq(pici_compress(block, (size_t)bytes, &len, src, wide, PICI_U8, PICI_BITMAP, &opts), PICI_OK);
        cr_expect_eq(len, bytes);
        cr_expect_eq(block[7], 1);
        cr_expect_eq(ref_get(block + index + 8, 8), 2u);
        cr_expect_eq(ref_get(block + index + 8 * (tiles - 1), 8), 4u);
        cr_expect_eq(ref_verify(block, len, NULL), REF_OK);
        expect_places(block, len);
    }
    munmap(src, (size_t)wide);
    munmap(block, (size_t)bytes);
}

/* ---- threads ---- */

/* The greatest number of threads, each with work to do. */
Test(codec_large, threads_without_end)
{
    const uint64_t n = UINT64_C(300) * 64 * 4096 + 100;
    const struct pici_opts many = {sizeof many, INT_MAX, 0, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0};
    size_t len, again, cap = pici_bound(PICI_BITMAP, PICI_U8, n);
    uint8_t *src = zeros(n), *one = zeros(cap), *all = zeros(cap);
    cr_assert(src && one && all);
    for (uint64_t i = 0; i < n; i += 1000)
        src[i] = (uint8_t)(i / 1000 | 1);
    for (int format = PICI_BITMAP; format <= PICI_HYBRID; format++) {
        cr_expect_eq(pici_compress(one, cap, &len, src, n, PICI_U8, (enum pici_format)format, NULL), PICI_OK);
        cr_expect_eq(pici_compress(all, cap, &again, src, n, PICI_U8, (enum pici_format)format, &many), PICI_OK);
        cr_expect_eq(len, again);
        cr_expect_eq(memcmp(one, all, len), 0);
        uint8_t *out = zeros(n);
        cr_assert_not_null(out);
        cr_expect_eq(pici_decompress(out, n, one, len, &many), PICI_OK);
        cr_expect_eq(memcmp(out, src, (size_t)n), 0);
        munmap(out, (size_t)n);
    }
}

/* ---- stack ---- */

#ifndef SANITIZED
struct on_stack {
    uint8_t *src, *out, *block;
    size_t cap;
    int threads;
    unsigned failed;
};

/* All calls of the codec, on a thread. The input has sparse, alike and mixed groups, and a partial tile. */
static void *use_codec(void *context)
{
    static const enum pici_dtype dtypes[] = {PICI_U8, PICI_BF16, PICI_F8E4M3, PICI_F32, PICI_F64};
    struct on_stack *x = context;
    const struct pici_opts opts = {sizeof opts, x->threads, 1, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0};
    for (unsigned d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int f = PICI_DENSE; f <= PICI_HYBRID + 1; f++) {
            const enum pici_format format = f > PICI_HYBRID ? PICI_AUTO : (enum pici_format)f;
            const uint64_t n = 5 * 32 * 4096 + 4097;
            size_t len;
            x->failed += pici_compress(x->block, x->cap, &len, x->src, n, dtypes[d], format, &opts) != PICI_OK;
            x->failed += pici_verify(x->block, len) != PICI_OK;
            x->failed += pici_decompress(x->out, n, x->block, len, &opts) != PICI_OK;
            x->failed += pici_decompress_range(x->out, 5, n - 9, x->block, len, &opts) != PICI_OK;
            x->failed += pici_scatter_add(x->out, n, x->block, len, &opts) != PICI_OK;
            x->failed += pici_diff(x->block, x->cap, &len, x->out, x->src, n, dtypes[d], format, &opts) != PICI_OK;
            x->failed += pici_apply(x->out, n, x->block, len, &opts) != PICI_OK;
        }
    return NULL;
}
#endif

/* The stack that pici.h documents is enough on every ISA. After it comes a guard page. */
Test(codec_large, stack)
{
#ifdef SANITIZED
    printf("skip: a thread with little stack (the sanitizer needs some)\n");
#else
    enum { N = 5 * 32 * 4096 + 4097, OWN = 16 << 10 /* of the thread itself */ };
    struct on_stack x = {.src = test_alloc(N * 8), .out = test_alloc(N * 8), .cap = N * 12 + 4096};
    struct rng rng = {5};
    x.block = test_alloc(x.cap);
    memset(x.src, 0, N * 8);
    for (size_t i = 0; i < N; i++)
        if (rng_below(&rng, 100) < 2 + i / (32 * 4096) * 16 || i / 4096 % 32 == 9)
            x.src[8 * i + 7] = x.src[8 * i + 1] = 1;
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
        pici_isa_force(*isa);
        for (x.threads = 1; x.threads <= 3; x.threads += 2) {
            pthread_attr_t attr;
            pthread_t thread;
            cr_assert_eq(pthread_attr_init(&attr), 0);
            cr_assert_eq(pthread_attr_setstacksize(&attr, (x.threads > 1 ? 384 << 10 : 160 << 10) + OWN), 0);
            cr_assert_eq(pthread_create(&thread, &attr, use_codec, &x), 0);
            pthread_join(thread, NULL);
            pthread_attr_destroy(&attr);
            cr_expect_eq(x.failed, 0, "%s", (*isa)->name);
        }
    }
    pici_isa_force(NULL);
    free(x.src);
    free(x.out);
    free(x.block);
#endif
}

#ifndef SANITIZED
/* Use stack now, because it cannot grow later. */
static __attribute__((noinline)) void grow_stack(void)
{
    volatile uint8_t deep[1 << 20];
    for (size_t i = 0; i < sizeof deep; i += 1024)
        deep[i] = 1;
}
#endif

/* A process that cannot map more memory. The codec allocates nothing, and if no thread can be started the caller
 * does the work. */
Test(codec_large, without_memory)
{
#ifdef SANITIZED
    printf("skip: a process without memory (the sanitizer needs some)\n");
#else
    enum { N = 470 * 4096 + 7 };
    static const int threads[] = {1, 7};
    struct rng rng = {1};
    uint32_t *src = test_alloc(N * 4), *out = test_alloc(N * 4);
    const size_t cap = pici_bound(PICI_BITMAP, PICI_U32, N);
    uint8_t *block = test_alloc(cap);
    pattern_fill(src, N, PICI_U32, PATTERN_TILES, &rng);
    enum pici_status status[2][4];
    int same[2];
    size_t len;

    pici_isa(); /* reads the environment */
    grow_stack();
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_AS, &limit), 0);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = 0;
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    for (unsigned t = 0; t < 2; t++) {
        const struct pici_opts opts = {sizeof opts, threads[t], 1, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0};
        status[t][0] = pici_compress(block, cap, &len, src, N, PICI_U32, PICI_BITMAP, &opts);
        status[t][1] = pici_verify(block, len);
        status[t][2] = pici_decompress(out, N, block, len, &opts);
        same[t] = memcmp(out, src, N * 4) == 0;
        status[t][3] = pici_scatter_add(out, N, block, len, &opts);
    }
    limit.rlim_cur = before;
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    for (unsigned t = 0; t < 2; t++) {
        for (unsigned i = 0; i < 4; i++)
            cr_expect_eq(status[t][i], PICI_OK, "%d threads, call %u", threads[t], i);
        cr_expect(same[t]);
    }
    free(src);
    free(out);
    free(block);
#endif
}
