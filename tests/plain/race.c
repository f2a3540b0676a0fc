/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Another thread changes the elements during a call. The caller must not do so, and the result means nothing then. But
 * the call touches no memory outside the arrays, which lie between guard pages. A block is no longer than its capacity,
 * and gives a decoder a status. Every instruction set. The program has data races on purpose, so it does nothing under
 * ThreadSanitizer. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "pici/coll.h"
#include "pici/delta.h"
#include "pici/topk.h"
#include "tests/util/coll.h"
#include "tests/util/util.h"

#if defined(__SANITIZE_THREAD__)
#define RACES_ARE_ERRORS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RACES_ARE_ERRORS 1
#endif
#endif
#ifndef RACES_ARE_ERRORS
#define RACES_ARE_ERRORS 0
#endif

enum { BYTES = 1 << 15, ROUNDS = 300 };

static struct guard guards[4];
static uint8_t *src, *base, *decoded;
static atomic_int stop;
static atomic_int flips; /* whether what changes is the exponents of all floats at once */

static void expect(int holds, const char *what, const char *isa)
{
    if (tally_count(holds))
        printf("FAIL %s: %s\n", isa, what);
}

/* Give all floats a new mantissa, and one exponent or many. */
static void flip(uint8_t *floats, struct rng *rng, int many)
{
    for (size_t i = 0; i < BYTES; i += 4) {
        const uint32_t noise = (uint32_t)rng_next(rng) | 1, one = 0x3f800000u | (noise & 0x7fffff);
        memcpy(floats + i, many ? &noise : &one, 4);
    }
}

/* Random writes of random lengths, most of them short, until told to stop. */
static void *change(void *unused)
{
    struct rng rng = {77};
    for (int many = 0; !atomic_load_explicit(&stop, memory_order_relaxed); many = !many) {
        if (atomic_load_explicit(&flips, memory_order_relaxed)) {
            flip(src, &rng, many);
            continue;
        }
        const size_t at = rng_below(&rng, BYTES), n = rng_below(&rng, 3000), most = BYTES - at;
        switch (rng_below(&rng, 8)) {
        case 0: memset(src + at, 0, n < most ? n : most); break;
        case 1:
            for (size_t i = 0; i < n && i < most; i++)
                src[at + i] = (uint8_t)rng_next(&rng);
            break;
        default: src[at] = (uint8_t)rng_next(&rng);
        }
    }
    return unused;
}

static void block(struct rng *rng, const char *isa)
{
    static const enum pici_format formats[] = {PICI_AUTO, PICI_DENSE, PICI_BITMAP, PICI_COO, PICI_HYBRID, PICI_PACKED};
    const enum pici_format f = formats[rng_below(rng, 6)];
    const enum pici_dtype t = (enum pici_dtype)(1 + rng_below(rng, f == PICI_PACKED ? 6 : 14));
    const uint64_t n = BYTES / pici_dtype_width(t);
    const int kind = (int)rng_below(rng, 3);
    const size_t bound = kind == 2 ? pici_diff_small_bound(f, t, n) : pici_bound(f, t, n);
    const size_t cap = rng_below(rng, 2) ? bound : rng_below(rng, bound + 1);
    struct pici_opts opts = PICI_OPTS_INIT;
    size_t len = 0;
    opts.threads = 1 + (int)rng_below(rng, 2);
    opts.checksum = (int)rng_below(rng, 2);
    opts.pack = rng_below(rng, 2) ? PICI_PACK_NONE : PICI_PACK_PLANES;
    uint8_t *const to = guard_place(&guards[3], cap, GUARD_END, 0);
    const enum pici_status s = kind == 0   ? pici_compress(to, cap, &len, src, n, t, f, &opts)
                               : kind == 1 ? pici_diff(to, cap, &len, base, src, n, t, f, &opts)
                                           : pici_diff_small(to, cap, &len, base, src, n, t, f, &opts);
    expect(len <= cap, "a block is no longer than its capacity", isa);
    if (s)
        return;
    memcpy(decoded, base, BYTES);
    if (kind == 0)
        (void)pici_decompress(decoded, n, to, len, NULL);
    else if (kind == 1)
        (void)pici_apply(decoded, n, to, len, NULL);
    else
        (void)pici_apply_small(decoded, n, to, len, NULL);
    expect(guard_intact(&guards[3]), "nothing is written beside a block", isa);
}

/* Where there is no room for the longest block, runs are packed twice, and may have become longer. */
static void twice(struct rng *rng, const char *isa)
{
    const uint64_t n = BYTES / sizeof(float);
    static uint8_t calm[BYTES];
    size_t cap, len;
    flip(calm, rng, 0);
    if (pici_compress(decoded, BYTES, &cap, calm, n, PICI_F32, PICI_PACKED, NULL))
        abort();
    uint8_t *const to = guard_place(&guards[3], cap, GUARD_END, 0);
    atomic_store(&flips, 1);
    for (int i = 0; i < ROUNDS; i++) {
        const enum pici_status s = pici_compress(to, cap, &len, src, n, PICI_F32, PICI_PACKED, NULL);
        expect(s ? s == PICI_E_SPACE || s == PICI_E_ARG : len <= cap, "a packed block that is made twice", isa);
        expect(guard_intact(&guards[3]), "nothing is written beside a packed block", isa);
    }
    atomic_store(&flips, 0);
}

/* The elements that are applied to change too. */
static void apply(struct rng *rng, const char *isa)
{
    const enum pici_dtype t = rng_below(rng, 2) ? PICI_BF16 : PICI_F32;
    const uint64_t n = BYTES / pici_dtype_width(t);
    const size_t cap = pici_diff_small_bound(PICI_AUTO, t, n);
    size_t len;
    uint8_t *const to = guard_place(&guards[3], cap, GUARD_END, 0), *const new = decoded;
    for (size_t i = 0; i < BYTES; i++)
        new[i] = rng_below(rng, 40) ? base[i] : (uint8_t)rng_next(rng);
    const enum pici_status s = pici_diff_small(to, cap, &len, base, new, n, t, PICI_AUTO, NULL);
    expect(s == PICI_OK, "a small delta", isa);
    if (!s)
        (void)pici_apply_small(src, n, to, len, NULL);
    if (!s && pici_compress(to, cap, &len, new, n, t, PICI_HYBRID, NULL) == PICI_OK)
        (void)pici_scatter_add(src, n, to, len, NULL);
}

static void selection(struct rng *rng, const char *isa)
{
    struct pici_topk_opts opts = PICI_TOPK_OPTS_INIT;
    const enum pici_dtype t = rng_below(rng, 2) ? PICI_BF16 : PICI_F32;
    const uint64_t n = BYTES / pici_dtype_width(t);
    uint64_t nnz = 0;
    opts.select = (enum pici_select)rng_below(rng, 3);
    opts.threads = 1 + (int)rng_below(rng, 2);
    (void)pici_topk(decoded, &nnz, NULL, NULL, src, n, t, &opts);
    expect(nnz <= n, "elements that were kept", isa);
}

/* Two ranks that are threads send what changes, rounded. */
static struct {
    struct pici_comm *comm[2];
    struct pici_values values;
    enum pici_status status[2];
} pair;

static void reduce(void *unused, int rank)
{
    static float sums[2][BYTES / sizeof(float)];
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    (void)unused;
    opts.values = &pair.values;
    pair.status[rank] =
        pici_all_reduce(sums[rank], src, BYTES / sizeof(float), PICI_F32, PICI_SUM, pair.comm[rank], &opts);
}

static void collective(struct rng *rng, const char *isa)
{
    pair.values = (struct pici_values)PICI_VALUES_INIT;
    pair.values.codec = rng_below(rng, 2) ? PICI_VALUES_CAST : PICI_VALUES_QSGD;
    if (pair.values.codec == PICI_VALUES_CAST)
        pair.values.cast = PICI_BF16;
    if (pici_comm_threads(pair.comm, 2) != PICI_OK)
        abort();
    coll_threads(2, reduce, NULL);
    expect(pair.status[0] == pair.status[1], "both ranks end with the same status", isa);
    pici_comm_free(pair.comm[0]);
    pici_comm_free(pair.comm[1]);
}

/* What a second reading finds equal has a class and a token all the same. */
static void equal_elements(const struct pici_isa *isa)
{
    enum { N = 100, ROOM = N + 32 };
    static uint8_t elements[ROOM * 4 + PICI_SLACK], class[ROOM], token[ROOM];
    static uint32_t v[ROOM], sign[ROOM], literal[ROOM];
    static struct pici_differences d;
    for (int w = 0; w < 2; w++) {
        d = (struct pici_differences){.old_values = elements,
                                      .new_values = elements,
                                      .elements = N,
                                      .shift = w ? 23 : 7,
                                      .exponents = 255,
                                      .low_exponent = 100,
                                      .class = class,
                                      .token = token,
                                      .magnitude = v,
                                      .sign = sign,
                                      .literal = literal};
        isa->small[w + 1]->differences(&d); /* of 2 and 4 bytes */
        uint64_t counted = 0;
        for (int i = 0; i < 2; i++)
            for (size_t k = 0; k < sizeof d.count[0] / sizeof d.count[0][0]; k++)
                counted += d.count[i][k];
        expect(counted == N && d.literal_count == 0, "differences that are none are counted", isa->name);
    }
}

int main(void)
{
    if (RACES_ARE_ERRORS) {
        printf("skip: elements that change during a call, under ThreadSanitizer\n");
        return 77;
    }
    struct rng rng = {9};
    pthread_t thread;
    for (int i = 0; i < 4; i++)
        guard_init(&guards[i], 16 * BYTES);
    src = guard_place(&guards[0], BYTES, GUARD_END, 0);
    base = guard_place(&guards[1], BYTES, GUARD_END, 0);
    decoded = guard_place(&guards[2], BYTES, GUARD_END, 0);
    memset(src, 0, BYTES);
    memset(base, 0, BYTES);
    if (pthread_create(&thread, NULL, change, NULL))
        abort();
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
        pici_isa_force(*isa);
        equal_elements(*isa);
        twice(&rng, (*isa)->name);
        for (int i = 0; i < ROUNDS; i++) {
            block(&rng, (*isa)->name);
            selection(&rng, (*isa)->name);
            if (i % 4 == 0)
                apply(&rng, (*isa)->name);
            if (i % 16 == 0)
                collective(&rng, (*isa)->name);
        }
    }
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
    return tally_end();
}
