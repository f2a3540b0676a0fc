/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Untrusted blocks: truncated, changed, contrived. Every reader returns what the reference returns and touches no
 * memory outside of its buffers (check_readers). */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "formats/ref.h"
#include "tests/util/util.h"

enum { ROOM = 3 * 4096 };

/* A block of random elements; the caller frees it. */
static uint8_t *make(struct rng *rng, size_t *len, uint64_t n, enum pici_dtype dtype, int format, enum pattern pattern,
                     int checksum)
{
    void *src = test_alloc((size_t)n * 8);
    pattern_fill(src, n, dtype, pattern, rng);
    uint8_t *block = ref_encode(len, src, n, dtype, (unsigned)format, checksum);
    cr_assert_not_null(block);
    free(src);
    return block;
}

static void expect_agreement(struct rig *rig, const uint8_t *block, size_t len, const char *what, size_t at)
{
    const char *bad = check_readers(rig, block, len, ROOM);
    cr_expect_null(bad, "%s at byte %zu: %s", what, at, bad);
}

static const struct shape {
    uint64_t n;
    enum pici_dtype dtype;
    int format;
    enum pattern pattern;
    int checksum;
} shapes[] = {
    {3, PICI_F64, PICI_DENSE, PATTERN_FULL, 0},     {20, PICI_I8, PICI_DENSE, PATTERN_50, 1},
    {0, PICI_F32, PICI_BITMAP, PATTERN_ZERO, 0},    {70, PICI_F32, PICI_BITMAP, PATTERN_30, 0},
    {130, PICI_U8, PICI_BITMAP, PATTERN_12, 1},     {4095, PICI_BF16, PICI_BITMAP, PATTERN_0_1, 0},
    {4096, PICI_F64, PICI_BITMAP, PATTERN_0_1, 0},  {4097, PICI_I16, PICI_BITMAP, PATTERN_0_1, 0},
    {0, PICI_U64, PICI_COO, PATTERN_ZERO, 0},       {70, PICI_F16, PICI_COO, PATTERN_30, 0},
    {5000, PICI_F8E5M2, PICI_COO, PATTERN_0_1, 1},  {200, PICI_I64, PICI_COO, PATTERN_8, 0},
    {0, PICI_F32, PICI_HYBRID, PATTERN_ZERO, 0},    {70, PICI_F32, PICI_HYBRID, PATTERN_30, 0},
    {130, PICI_U8, PICI_HYBRID, PATTERN_90, 1},     {5000, PICI_BF16, PICI_HYBRID, PATTERN_1, 0},
    {4097, PICI_F64, PICI_HYBRID, PATTERN_0_1, 0},  {600, PICI_I8, PICI_HYBRID, PATTERN_RUNS, 0},
    {300, PICI_I32, PICI_HYBRID, PATTERN_FULL, 0},  {0, PICI_BF16, PICI_PACKED, PATTERN_ZERO, 0},
    {300, PICI_BF16, PICI_PACKED, PATTERN_FULL, 0}, {200, PICI_F32, PICI_PACKED, PATTERN_70, 1},
    {70, PICI_F64, PICI_PACKED, PATTERN_30, 0},     {150, PICI_F8E5M2, PICI_PACKED, PATTERN_MASKED, 0},
};

enum { SHAPES = sizeof shapes / sizeof *shapes };

static uint8_t *make_shape(struct rng *rng, size_t *len, const struct shape *s)
{
    return make(rng, len, s->n, s->dtype, s->format, s->pattern, s->checksum);
}

Test(codec_hostile, cut_at_every_byte)
{
    struct rig rig;
    rig_init(&rig, ROOM * 8, 1);
    for (int i = 0; i < SHAPES; i++) {
        size_t len;
        uint8_t *block = make_shape(&rig.rng, &len, &shapes[i]);
        for (size_t cut = 0; cut < len; cut++)
            expect_agreement(&rig, block, cut, "cut", cut);
        uint8_t *longer = test_alloc(len + 600);
        memcpy(longer, block, len);
        memset(longer + len, 0, 600);
        for (size_t more = 1; more <= 600; more += more < 20 ? 1 : 29)
            expect_agreement(&rig, longer, len + more, "grown", len + more);
        free(longer);
        free(block);
    }
    rig_free(&rig);
}

/* Change each byte in several ways. With `seal`, correct the checksum afterwards, so that the other rules are
 * tested. */
static void try_changes(int from, int to, int seal)
{
    struct rig rig;
    rig_init(&rig, ROOM * 8, 2);
    for (int i = from; i < to; i++) {
        size_t len;
        uint8_t *block = make_shape(&rig.rng, &len, &shapes[i]), *copy = test_alloc(len);
        for (size_t at = 0; at < len; at++) {
            const uint8_t old = block[at];
            const uint8_t values[] = {(uint8_t)(old ^ 1), (uint8_t)(old ^ 0x80),      0, 0xff,
                                      (uint8_t)(old + 1), (uint8_t)rng_next(&rig.rng)};
            const unsigned some = test_full() ? 1 : 2; /* these, or by turns */
            for (unsigned k = at % some; k < sizeof values; k += some) {
                memcpy(copy, block, len);
                copy[at] = values[k];
                if (seal)
                    ref_seal(copy, len);
                expect_agreement(&rig, copy, len, "changed", at);
            }
        }
        free(copy);
        free(block);
    }
    rig_free(&rig);
}

Test(codec_hostile, every_byte_changed_dense_and_bitmap)
{
    try_changes(0, 5, 0);
}

Test(codec_hostile, every_byte_changed_pici_of_a_tile)
{
    try_changes(5, 8, 0);
}

Test(codec_hostile, every_byte_changed_coo)
{
    try_changes(8, 12, 0);
}

Test(codec_hostile, every_byte_changed_hybrid)
{
    try_changes(12, SHAPES, 0);
}

Test(codec_hostile, every_byte_changed_and_sealed)
{
    try_changes(0, 5, 1);
    try_changes(8, SHAPES, 1);
}

/* Fields of the header at values where arithmetic might overflow. */
Test(codec_hostile, fields_changed)
{
    static const uint64_t odd[] = {0,
                                   1,
                                   2,
                                   47,
                                   48,
                                   64,
                                   4095,
                                   4096,
                                   4097,
                                   UINT32_MAX,
                                   UINT64_C(1) << 32,
                                   (UINT64_C(1) << 32) + 1,
                                   UINT64_C(1) << 52,
                                   UINT64_C(1) << 60,
                                   UINT64_C(1) << 61,
                                   (UINT64_C(1) << 61) - 6,
                                   UINT64_C(1) << 62,
                                   UINT64_C(1) << 63,
                                   UINT64_MAX / 9,
                                   UINT64_MAX - 63,
                                   UINT64_MAX - 48,
                                   UINT64_MAX - 47,
                                   UINT64_MAX - 15,
                                   UINT64_MAX};
    enum { ODD = sizeof odd / sizeof *odd };
    struct rig rig;
    rig_init(&rig, ROOM * 8, 3);
    for (int i = 0; i < SHAPES; i++) {
        size_t len;
        uint8_t *block = make_shape(&rig.rng, &len, &shapes[i]), *copy = test_alloc(len);
        for (int count = 0; count < ODD; count++)
            for (int nnz = 0; nnz < ODD; nnz++) {
                memcpy(copy, block, len);
                ref_put(copy + 8, 8, odd[count]);
                ref_put(copy + 16, 8, odd[nnz]);
                copy[7] = (uint8_t)((copy[7] & 2) | (copy[5] != 0 && odd[count] > UINT64_C(1) << 32));
                /* the offsets that would be right, modulo 2^64 */
                uint64_t tiles = copy[5] % 2 ? odd[count] / 4096 + (odd[count] % 4096 != 0) : 0;
                uint64_t index = copy[5] == 1 ? 48 + 512 * tiles : 48, entry = copy[7] & 1 ? 8 : 4;
                uint64_t entries = copy[5] == 1 ? tiles : copy[5] == 2 ? odd[nnz] : copy[5] ? tiles / 32 + 1 : 0;
                ref_put(copy + 24, 8, index);
                ref_put(copy + 32, 8, (index + entries * entry + 15) / 16 * 16);
                expect_agreement(&rig, copy, len, "fields", (size_t)(count * 100 + nnz));
                expect_agreement(&rig, copy, 48, "fields of a header", (size_t)(count * 100 + nnz));
            }
        free(copy);
        free(block);
    }
    rig_free(&rig);
}

/* Several changes at once, in blocks of up to three tiles. */
static void try_random(uint64_t seed, int format)
{
    struct rig rig;
    rig_init(&rig, ROOM * 8, seed);
    for (int round = 0; round < 120; round++) {
        size_t len;
        enum pici_dtype dtype = (enum pici_dtype)(1 + rng_below(&rig.rng, 14));
        uint8_t *block = make(&rig.rng, &len, rng_below(&rig.rng, ROOM), dtype, format,
                              (enum pattern)rng_below(&rig.rng, PATTERNS), rng_chance(&rig.rng, 200000));
        uint64_t values = ref_get(block + 32, 8);
        for (int i = 0; i < 12; i++) {
            uint8_t *copy = test_alloc(len);
            memcpy(copy, block, len);
            for (uint64_t k = rng_below(&rig.rng, 4); k < 4;
                 k++) { /* mostly before the values, where few changes matter */
                size_t at = (size_t)rng_below(&rig.rng, k % 2 ? len : values);
                copy[at] = rng_chance(&rig.rng, 500000) ? 0 : (uint8_t)(copy[at] ^ 1u << rng_below(&rig.rng, 8));
            }
            if (copy[7] & 2)
                ref_seal(copy, len);
            expect_agreement(&rig, copy, len, "mutation", (size_t)i);
            free(copy);
        }
        free(block);
    }
    rig_free(&rig);
}

Test(codec_hostile, mutations_of_bitmap)
{
    try_random(4, PICI_BITMAP);
}

Test(codec_hostile, mutations_of_coo)
{
    try_random(5, PICI_COO);
}

Test(codec_hostile, mutations_of_hybrid)
{
    try_random(10, PICI_HYBRID);
}

Test(codec_hostile, noise)
{
    struct rig rig;
    uint8_t noise[300];
    rig_init(&rig, ROOM * 8, 6);
    for (int round = 0; round < 3000; round++) {
        size_t len = (size_t)rng_below(&rig.rng, sizeof noise + 1);
        for (size_t i = 0; i < len; i++)
            noise[i] = (uint8_t)rng_next(&rig.rng);
        if (round % 2 && len >= 8)
            memcpy(noise, "PICI\1", 5);
        if (round % 4 == 3 && len >= 8) {
            noise[5] %= 5;
            noise[6] = (uint8_t)(1 + noise[6] % 14);
            noise[7] &= 6; /* checksum, one level */
        }
        expect_agreement(&rig, noise, len, "noise", (size_t)round);
    }
    rig_free(&rig);
}

/* ---- faults at computed places, without the reference ---- */

static void expect_fault(const uint8_t *block, size_t len, const char *rule, uint64_t offset, uint64_t tile)
{
    struct pici_fault f = PICI_FAULT_INIT;
    cr_expect_eq(pici_verify_at(block, len, &f), PICI_E_CORRUPT);
    cr_expect_eq(f.status, PICI_E_CORRUPT);
    cr_expect_str_eq(f.rule ? f.rule : "none", rule);
    cr_expect_eq(f.offset, offset, "%s at %" PRIu64 ", not %" PRIu64, rule, f.offset, offset);
    cr_expect_eq(f.tile, tile, "%s in %" PRIu64 ", not %" PRIu64, rule, f.tile, tile);
}

Test(codec_hostile, faults_in_pici_are_located)
{
    enum { N = 20 * 4096 + 100, T = 21 };
    struct rng rng = {7};
    size_t len;
    uint8_t *block = make(&rng, &len, N, PICI_F32, PICI_BITMAP, PATTERN_3, 0);
    const uint64_t index = ref_get(block + 24, 8), values = ref_get(block + 32, 8), nnz = ref_get(block + 16, 8);
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
        pici_isa_force(*isa);
        for (uint64_t t = 0; t < T; t++) {
            uint8_t *entry = block + index + 4 * t, old = *entry;
            *entry ^= 4;
            expect_fault(block, len, "tile-index", index + 4 * t, t);
            *entry = old;
        }
        for (uint64_t k = 0, t = 0; k < nnz; k++) {
            uint8_t *value = block + values + 4 * k;
            uint64_t old = ref_get(value, 4);
            while (t + 1 < T && ref_get(block + index + 4 * (t + 1), 4) <= k)
                t++;
            ref_put(value, 4, 0);
            expect_fault(block, len, "stored-zero", values + 4 * k, t);
            ref_put(value, 4, old);
        }
        for (unsigned i = 100; i < 4096; i++) { /* each bit past the end */
            uint8_t *byte = block + 48 + 512 * 20 + i % 64 * 8 + i / 64 / 8, old = *byte;
            *byte |= (uint8_t)(1u << i / 64 % 8);
            expect_fault(block, len, "past-end", 48 + 512 * 20 + i % 64 * 8, 20);
            *byte = old;
        }
        for (uint64_t i = index + 4 * T; i < values; i++) {
            block[i] = 1;
            expect_fault(block, len, "padding", i, PICI_NO_TILE);
            block[i] = 0;
        }
        cr_expect_eq(pici_verify(block, len), PICI_OK);
    }
    pici_isa_force(NULL);
    free(block);
}

Test(codec_hostile, faults_in_coo_are_located)
{
    enum { N = 20 * 4096 + 100 };
    struct rng rng = {8};
    size_t len;
    uint8_t *block = make(&rng, &len, N, PICI_I16, PICI_COO, PATTERN_1, 0);
    const uint64_t values = ref_get(block + 32, 8), nnz = ref_get(block + 16, 8);
    for (uint64_t k = 0; k < nnz; k++) {
        uint8_t *entry = block + 48 + 4 * k, *value = block + values + 2 * k;
        uint64_t at = ref_get(entry, 4), old = ref_get(value, 2), before = k ? ref_get(entry - 4, 4) : 0;
        if (k) {
            ref_put(entry, 4, before);
            expect_fault(block, len, "rising", 48 + 4 * k, before / 4096);
        }
        ref_put(entry, 4, N);
        expect_fault(block, len, "past-end", 48 + 4 * k, PICI_NO_TILE);
        ref_put(entry, 4, at);
        ref_put(value, 2, 0);
        expect_fault(block, len, "stored-zero", values + 2 * k, at / 4096);
        ref_put(value, 2, old);
    }
    cr_expect_eq(pici_verify(block, len), PICI_OK);
    free(block);
}

/* One fault in a large block, read by any number of threads. */
Test(codec_hostile, threads_find_every_fault)
{
    enum { N = 470 * 4096 + 9, T = 471 };
    static const int threads[] = {1, 2, 7, 0};
    struct rng rng = {9};
    size_t len;
    uint32_t *out = test_alloc(N * 4);
    uint8_t *block = make(&rng, &len, N, PICI_F32, PICI_BITMAP, PATTERN_1, 0);
    const uint64_t index = ref_get(block + 24, 8), values = ref_get(block + 32, 8), nnz = ref_get(block + 16, 8);
    memset(out, 0, N * 4);
    for (int round = 0; round < 60; round++) {
        const uint64_t which = round < 20 ? rng_below(&rng, T) : rng_below(&rng, nnz);
        uint8_t *at = round < 20   ? block + index + 4 * which /* an entry; a value; a bit */
                      : round < 40 ? block + values + 4 * which
                                   : block + 48 + 8 * rng_below(&rng, 64 * 470);
        const uint64_t old = ref_get(at, 4);
        ref_put(at, 4, round < 20 ? old + 1 : round < 40 ? 0 : old ^ 0x80);
        for (unsigned i = 0; i < 4; i++) {
            const struct pici_opts opts = {sizeof opts, threads[i], 0, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0};
            cr_expect_eq(pici_decompress(out, N, block, len, &opts), PICI_E_CORRUPT, "round %d, %d threads", round,
                         threads[i]);
            cr_expect_eq(pici_scatter_add(out, N, block, len, &opts), PICI_E_CORRUPT, "round %d, %d threads", round,
                         threads[i]);
        }
        ref_put(at, 4, old);
    }
    cr_expect_eq(pici_decompress(out, N, block, len, NULL), PICI_OK);
    free(block);
    block = make(&rng, &len, N, PICI_F32, PICI_COO, PATTERN_1, 0);
    const uint64_t entries = ref_get(block + 16, 8);
    for (int round = 0; round < 20; round++) {
        uint8_t *at = block + 48 + 4 * (1 + rng_below(&rng, entries - 1));
        const uint64_t old = ref_get(at, 4);
        ref_put(at, 4, round % 2 ? ref_get(at - 4, 4) : N + old);
        for (unsigned i = 0; i < 4; i++) {
            const struct pici_opts opts = {sizeof opts, threads[i], 0, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0};
            cr_expect_eq(pici_decompress(out, N, block, len, &opts), PICI_E_CORRUPT, "round %d, %d threads", round,
                         threads[i]);
            cr_expect_eq(pici_scatter_add(out, N, block, len, &opts), PICI_E_CORRUPT, "round %d, %d threads", round,
                         threads[i]);
        }
        ref_put(at, 4, old);
    }
    free(block);
    free(out);
}
