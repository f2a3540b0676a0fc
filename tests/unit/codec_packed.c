/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Packed blocks: against the reference with every ISA, between guard pages; the options that give them; damaged ones.
 * The reference encoder and decoder were written from formats/packed.md. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "cpu/planes.h"
#include "formats/ref.h"
#include "packed_format.h"
#include "pici/delta.h"
#include "tests/util/util.h"

enum { ROOM = 35 * 4096, FLOATS = 6 };

static const enum pici_dtype floats[FLOATS] = {PICI_F32, PICI_F64, PICI_F16, PICI_BF16, PICI_F8E4M3, PICI_F8E5M2};

/* What the exponents of values are. */
enum exponents {
    EXP_ANY,      /* any bits */
    EXP_FALLING,  /* half have the highest, a quarter the one below, ... */
    EXP_ONE,      /* all the same */
    EXP_TWO,      /* two that are far apart */
    EXP_MIXED,    /* zeros, denormals, infinities, NaNs, and values */
    EXP_OUTLIERS, /* as EXP_FALLING, but one in 50 has any */
    EXP_KINDS
};

/* n elements; zero: how many in a million are zero; short_mantissas: low bytes are zero. */
static void fill(void *dst, uint64_t n, enum pici_dtype dtype, enum exponents kind, unsigned zero, int short_mantissas,
                 struct rng *rng)
{
    const struct fmt_kind k = fmt_kind_of(dtype);
    const unsigned width = ref_width(dtype), most = (1u << k.exponent) - 1, top = (unsigned)rng_below(rng, most + 1);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t x = rng_next(rng), mantissa = rng_next(rng) & ((UINT64_C(1) << k.mantissa) - 1);
        const uint64_t sign = rng_next(rng) & 1;
        const unsigned fall = (unsigned)__builtin_ctzll(x | UINT64_C(1) << 40);
        switch (kind) {
        case EXP_FALLING: x = top - fall; break;
        case EXP_ONE: x = top; break;
        case EXP_TWO: x = x & 1 ? top : top / 2; break;
        case EXP_MIXED: x = x % 3 ? 0 : x % 2 ? most : top - fall; break;
        case EXP_OUTLIERS: x = x % 50 ? top - fall : x >> 8; break;
        default: break;
        }
        if (kind == EXP_MIXED && rng_chance(rng, 500000))
            mantissa = 0;
        if (short_mantissas && k.low)
            mantissa = mantissa >> 8 * (k.low - 1) << 8 * (k.low - 1);
        uint64_t v = sign << (8 * width - 1) | (x & most) << k.mantissa | mantissa;
        if (rng_chance(rng, zero))
            v = 0;
        ref_store(dst, i, width, v);
    }
}

static void expect_good(struct rig *rig, const void *src, uint64_t n, enum pici_dtype dtype, int checksum, int threads)
{
    const struct subject s = {src, n, dtype, PICI_PACKED, checksum, threads, PICI_ZEROS_EXACT};
    for (rig->one_level = 0; rig->one_level < 2; rig->one_level++) {
        const char *bad = check_codec(rig, &s);
        cr_assert_null(bad, "%s", bad);
    }
}

/* Lengths around rows, tiles, runs and groups, all kinds of exponents, dense and with zeros. */
Test(codec_packed, lengths)
{
    struct rig rig;
    rig_init(&rig, ROOM * 8, 1);
    void *src = test_alloc(ROOM * 8);
    for (unsigned d = 0; d < FLOATS; d++) {
        for (uint64_t n = 0; n <= 130; n++) {
            if (left_out(&rig.rng))
                continue;
            fill(src, n, floats[d], (enum exponents)(n % EXP_KINDS), n % 4 ? 0 : 300000, n % 5 == 0, &rig.rng);
            expect_good(&rig, src, n, floats[d], n % 7 == 0, 1);
        }
        for (int kind = 0; kind < EXP_KINDS; kind++)
            for (int i = 0; i < 8; i++) {
                static const uint64_t around[] = {255, 4095, 4096, 4097, 8192, 4096 + 64, 3 * 4096 + 1, 300};
                static const unsigned zeros[] = {0, 0, 500000, 100000, 900000, 0, 990000, 0};
                if (left_out(&rig.rng))
                    continue;
                fill(src, around[i], floats[d], (enum exponents)kind, zeros[(i + kind) % 8], (i + kind) % 3 == 0,
                     &rig.rng);
                expect_good(&rig, src, around[i], floats[d], 0, 1);
            }
    }
    free(src);
    rig_free(&rig);
}

/* More than a group: with threads, too. */
Test(codec_packed, groups)
{
    struct rig rig;
    rig_init(&rig, ROOM * 8, 2);
    void *src = test_alloc(ROOM * 8);
    static const unsigned zeros[] = {0, 990000, 500000, 100000, 999000, 900000};
    for (unsigned d = 0; d < FLOATS; d++)
        for (int i = 0; i < 2; i++) {
            fill(src, ROOM - 77, floats[d], i ? EXP_OUTLIERS : EXP_FALLING, zeros[(d + (unsigned)i) % 6], 0, &rig.rng);
            if (i)
                zeros_negate(src, ROOM - 77, floats[d], 400000, &rig.rng);
            expect_good(&rig, src, ROOM - 77, floats[d], i, i ? 3 : 1);
        }
    free(src);
    rig_free(&rig);
}

/* All other patterns of zeros and signs. */
Test(codec_packed, patterns)
{
    struct rig rig;
    rig_init(&rig, ROOM * 8, 3);
    void *src = test_alloc(ROOM * 8);
    for (unsigned d = 0; d < FLOATS; d++)
        for (int pattern = 0; pattern < PATTERNS; pattern++) {
            const uint64_t n = 4096 + rng_below(&rig.rng, 3 * 4096);
            if (left_out(&rig.rng))
                continue;
            pattern_fill(src, n, floats[d], (enum pattern)pattern, &rig.rng);
            expect_good(&rig, src, n, floats[d], 0, 1);
        }
    free(src);
    rig_free(&rig);
}

/* All bit patterns of 8 and 16 bits, in random order. */
Test(codec_packed, every_value)
{
    struct rig rig;
    rig_init(&rig, 65536 * 2, 4);
    for (unsigned d = 0; d < FLOATS; d++) {
        const unsigned width = ref_width(floats[d]);
        const uint64_t n = width == 1 ? 256 : 65536;
        if (width > 2)
            continue;
        uint16_t *src = test_alloc(65536 * 2);
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t k = rng_below(&rig.rng, i + 1);
            ref_store(src, i, width, ref_load(src, k, width));
            ref_store(src, k, width, i);
        }
        expect_good(&rig, src, n, floats[d], 1, 1);
        free(src);
    }
    rig_free(&rig);
}

/* Damaged blocks are judged by the readers of every ISA as by the reference. */
Test(codec_packed, damage)
{
    const unsigned rounds = test_full() ? 2000000 : 8000; /* of five damaged blocks, on the average */
    struct rig rig;
    rig_init(&rig, 3 * 4096 * 8, 5);
    void *src = test_alloc(3 * 4096 * 8);
    for (unsigned round = 0; round < rounds; round++) {
        const enum pici_dtype dtype = floats[round % FLOATS];
        const uint64_t most = round % 16 ? 300 : 3 * 4096, n = 1 + rng_below(&rig.rng, most);
        size_t len;
        if (left_out(&rig.rng))
            continue;
        fill(src, n, dtype, (enum exponents)(round / 7 % EXP_KINDS), round % 3 ? 0 : 600000, round % 5 == 0, &rig.rng);
        if (round % 9 == 0)
            zeros_negate(src, n, dtype, 500000, &rig.rng);
        uint8_t *block = ref_encode_packed(&len, src, n, dtype, round % 11 == 0, REF_ZEROS_EXACT, 1 + round % 2);
        cr_assert_not_null(block);
        uint8_t *copy = test_alloc(len);
        const uint64_t head = len < 120 ? len : 120;
        for (int i = 0; i < (most > 300 ? 4 : 20); i++) {
            memcpy(copy, block, len);
            for (uint64_t k = rng_below(&rig.rng, 3); k < 3; k++) {
                const size_t at = (size_t)(i % 2 ? rng_below(&rig.rng, len) : 40 + rng_below(&rig.rng, head - 40));
                copy[at] = rng_chance(&rig.rng, 300000) ? 0 : (uint8_t)(copy[at] ^ 1u << rng_below(&rig.rng, 8));
            }
            if (copy[7] & 2)
                ref_seal(copy, len);
            const char *bad = check_readers(&rig, copy, len, 3 * 4096);
            cr_assert_null(bad, "round %u: %s", round, bad);
        }
        free(copy);
        free(block);
    }
    free(src);
    rig_free(&rig);
}

/* A run is no longer than a raw one, and nothing is written after it. */
Test(codec_packed, runs_end_before_raw_ones)
{
    static uint8_t values[4096 * 8];
    struct guard guard;
    struct rng rng = {9};
    guard_init(&guard, sizeof values);
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++)
        for (unsigned i = 0; i < 3000; i++) {
            const enum pici_dtype dtype = floats[i % FLOATS];
            const unsigned n = i % 7 ? 1 + (unsigned)rng_below(&rng, 4096) : 4096;
            const size_t raw = ((size_t)n * ref_width(dtype) + 7) / 8 * 8;
            uint8_t *const out = guard_place(&guard, raw, i % 2 ? GUARD_END : GUARD_START, 0);
            struct fmt_run run;
            fill(values, n, dtype, (enum exponents)(i % EXP_KINDS), i % 5 ? 0 : 300000, i % 11 == 0, &rng);
            const unsigned bytes = (*isa)->planes[dtype]->pack(out, &run, values, n, i / 2 % 2);
            cr_assert_leq(bytes, raw);
            cr_assert(guard_intact(&guard), "%s, %s, %u values", (*isa)->name, pici_dtype_name(dtype), n);
        }
    guard_free(&guard);
}

/* What the option pack gives. */
static unsigned format_of(uint8_t *block, size_t cap, size_t *len, const void *src, uint64_t n, enum pici_dtype dtype,
                          enum pici_format format, enum pici_pack pack)
{
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.pack = pack;
    const enum pici_status status = pici_compress(block, cap, len, src, n, dtype, format, &opts);
    cr_assert_eq(status, PICI_OK, "%s as %s, pack %d: %s", pici_dtype_name(dtype), pici_format_name(format), (int)pack,
                 pici_strerror(status));
    cr_assert_eq(pici_verify(block, *len), PICI_OK);
    return block[5];
}

Test(codec_packed, option)
{
    enum { N = 5 * 4096 + 5 };
    const size_t cap = pici_bound(PICI_BITMAP, PICI_F64, N);
    uint8_t *block = test_alloc(cap), *back = test_alloc(N * 8), *src = test_alloc(N * 8);
    struct rng rng = {6};
    size_t packed, hybrid, len;
    for (unsigned d = 0; d < FLOATS; d++) {
        fill(src, N, floats[d], EXP_FALLING, 0, 0, &rng);
        cr_expect_eq(format_of(block, cap, &hybrid, src, N, floats[d], PICI_HYBRID, PICI_PACK_NONE), PICI_HYBRID);
        for (enum pici_pack pack = PICI_PACK_PLANES; pack <= PICI_PACK_FAST; pack += 2) {
            const unsigned flag = pack == PICI_PACK_FAST ? FLAG_ONE_LEVEL : 0;
            cr_expect_eq(format_of(block, cap, &packed, src, N, floats[d], PICI_HYBRID, pack), PICI_PACKED);
            cr_expect_eq(block[7], flag);
            cr_expect_lt(packed, hybrid);
            cr_expect_eq(format_of(block, cap, &len, src, N, floats[d], PICI_AUTO, pack), PICI_PACKED);
            cr_expect_eq(len, packed);
            cr_expect_eq(
                format_of(block, pici_bound(PICI_AUTO, floats[d], N), &len, src, N, floats[d], PICI_AUTO, pack),
                PICI_PACKED);
            cr_expect_eq(pici_decompress(back, N, block, len, NULL), PICI_OK);
            cr_expect_eq(memcmp(src, back, (size_t)N * ref_width(floats[d])), 0);
            cr_expect_eq(format_of(block, cap, &len, src, N, floats[d], PICI_BITMAP, pack), PICI_BITMAP);
        }
        /* noise is not packed, nor are integers and zeros */
        for (size_t i = 0; i < (size_t)N * 8; i++)
            src[i] = (uint8_t)rng_next(&rng);
        cr_expect_eq(format_of(block, cap, &len, src, N, floats[d], PICI_HYBRID, PICI_PACK_PLANES), PICI_HYBRID);
        cr_expect_eq(format_of(block, cap, &len, src, N, floats[d], PICI_AUTO, PICI_PACK_PLANES), PICI_DENSE);
        memset(src, 0, (size_t)N * 8);
        cr_expect_eq(format_of(block, cap, &len, src, N, floats[d], PICI_HYBRID, PICI_PACK_FAST), PICI_HYBRID);
        cr_expect_eq(format_of(block, cap, &packed, src, N, floats[d], PICI_PACKED, PICI_PACK_NONE), PICI_PACKED);
    }
    fill(src, N, PICI_F32, EXP_FALLING, 0, 0, &rng);
    cr_expect_eq(format_of(block, cap, &len, src, N, PICI_I32, PICI_HYBRID, PICI_PACK_PLANES), PICI_HYBRID);
    cr_expect_eq(pici_compress(block, cap, &len, src, N, PICI_I32, PICI_PACKED, NULL), PICI_E_UNSUPPORTED);
    cr_expect_eq(pici_bound(PICI_PACKED, PICI_I32, N), 0);
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.pack = (enum pici_pack)2;
    cr_expect_eq(pici_compress(block, cap, &len, src, N, PICI_F32, PICI_HYBRID, &opts), PICI_E_ARG);
    opts.pack = PICI_PACK_PLANES;
    cr_expect_eq(pici_diff(block, cap, &len, src, back, N, PICI_F32, PICI_HYBRID, &opts), PICI_OK);
    cr_expect_eq(block[5], PICI_HYBRID);
    free(block);
    free(back);
    free(src);
}

/* f32 that hold bf16 values take the bytes of these: what is zero in all mantissas is not stored. */
Test(codec_packed, bf16_as_f32)
{
    enum { N = 5 * 4096 + 5 };
    const size_t cap = pici_bound(PICI_PACKED, PICI_F32, N);
    uint8_t *const block = test_alloc(cap);
    uint16_t *const half = test_alloc(N * sizeof *half);
    uint32_t *const whole = test_alloc(N * sizeof *whole), *const back = test_alloc(N * sizeof *back);
    struct rng rng = {9};
    size_t half_len, whole_len;
    fill(half, N, PICI_BF16, EXP_FALLING, 0, 0, &rng);
    for (size_t i = 0; i < N; i++)
        whole[i] = (uint32_t)half[i] << 16;
    for (enum pici_pack pack = PICI_PACK_PLANES; pack <= PICI_PACK_FAST; pack += 2) {
        cr_expect_eq(format_of(block, cap, &half_len, half, N, PICI_BF16, PICI_AUTO, pack), PICI_PACKED);
        cr_expect_eq(format_of(block, cap, &whole_len, whole, N, PICI_F32, PICI_AUTO, pack), PICI_PACKED);
        cr_expect_leq(whole_len, half_len + half_len / 100);
        cr_expect_eq(pici_decompress(back, N, block, whole_len, NULL), PICI_OK);
        cr_expect_eq(memcmp(whole, back, N * sizeof *whole), 0);
    }
    free(block);
    free(half);
    free(whole);
    free(back);
}

/* The shorter block is chosen, wherever the groups are that packing makes longer and those that it makes shorter. */
Test(codec_packed, option_by_groups)
{
    enum { GROUP = 32 * 4096, GROUPS = 6, N = GROUPS * GROUP };
    const size_t cap = pici_bound(PICI_PACKED, PICI_BF16, N);
    uint8_t *noise = test_alloc(N * 2), *values = test_alloc(N * 2), *src = test_alloc(N * 2);
    uint8_t *block = test_alloc(cap), *expected = test_alloc(cap);
    const enum pici_format formats[] = {PICI_HYBRID, PICI_AUTO};
    unsigned chosen[2] = {0};
    struct rng rng = {8};
    fill(values, N, PICI_BF16, EXP_FALLING, 0, 0, &rng);
    for (size_t i = 0; i < (size_t)N * 2; i++)
        noise[i] = (uint8_t)rng_next(&rng);
    for (unsigned i = 0; i < 3 * (1 << GROUPS); i++) {
        const unsigned map = i / 3;
        for (size_t g = 0; g < GROUPS; g++)
            memcpy(src + g * GROUP * 2, (map >> g & 1 ? values : noise) + g * GROUP * 2, (size_t)GROUP * 2);
        if (i % 3 == 1) /* nothing is longer or shorter yet */
            memset(src, 0, (size_t)GROUP * 2);
        const uint64_t n = i % 3 == 2 ? N - GROUP / 2 + 77 : N;
        for (unsigned f = 0; f < 2; f++) {
            size_t packed, plain, len;
            format_of(expected, cap, &packed, src, n, PICI_BF16, PICI_PACKED, PICI_PACK_PLANES);
            format_of(block, cap, &plain, src, n, PICI_BF16, formats[f], PICI_PACK_NONE);
            const int packs = packed < plain;
            memcpy(expected, packs ? expected : block, packs ? packed : plain);
            for (int threads = 1; threads <= 3; threads += 2) {
                struct pici_opts opts = PICI_OPTS_INIT;
                opts.pack = PICI_PACK_PLANES;
                opts.threads = threads;
                for (size_t room = packs ? packed : plain; room <= cap; room += cap - room + (room == cap)) {
                    cr_assert_eq(pici_compress(block, room, &len, src, n, PICI_BF16, formats[f], &opts), PICI_OK);
                    cr_assert_eq(len, packs ? packed : plain, "groups %x, format %u", map, f);
                    cr_assert_eq(memcmp(block, expected, len), 0, "groups %x, format %u", map, f);
                }
            }
            chosen[packs]++;
        }
    }
    cr_expect_gt(chosen[0], 0);
    cr_expect_gt(chosen[1], 0);
    free(noise);
    free(values);
    free(src);
    free(block);
    free(expected);
}

/* pici_mix adds up, and counts what packing saves. */
Test(codec_packed, breakdown)
{
    enum { N = 40 * 4096 };
    const size_t cap = pici_bound(PICI_PACKED, PICI_BF16, N);
    uint16_t *src = test_alloc(N * sizeof *src);
    uint8_t *block = test_alloc(cap);
    struct rng rng = {7};
    struct pici_mix mix = PICI_MIX_INIT;
    size_t len;
    fill(src, N, PICI_BF16, EXP_FALLING, 400000, 0, &rng);
    cr_assert_eq(pici_compress(block, cap, &len, src, N, PICI_BF16, PICI_PACKED, NULL), PICI_OK);
    cr_assert_eq(pici_mix(&mix, block, len), PICI_OK);
    uint64_t sum = mix.other_bytes, values = 0, nnz = 0;
    for (int c = 0; c < PICI_CONTAINERS; c++) {
        sum += mix.position_bytes[c] + mix.value_bytes[c];
        values += mix.value_bytes[c];
        nnz += mix.nnz[c];
    }
    cr_expect_eq(sum, len);
    cr_expect_eq(mix.unpacked_bytes, nnz * 2);
    cr_expect(mix.runs >= nnz / 4096 && mix.runs <= nnz / 4096 + 2, "two groups");
    cr_expect_eq(mix.packed_runs, mix.runs);
    cr_expect_gt(mix.exponent_bytes, 0);
    cr_expect_lt(mix.exponent_bytes, values);
    cr_expect_lt(values, mix.unpacked_bytes);
    free(src);
    free(block);
}

/* ---- golden vectors ---- */

static struct rig vector_rig;

static void try_block(const struct roundtrip *v, void *unused)
{
    (void)unused;
    const struct subject s = {v->dense, v->n, v->dtype, v->format, v->checksum, 1, PICI_ZEROS_EXACT};
    vector_rig.one_level = v->one_level;
    const char *bad = check_block(&vector_rig, &s, v->block, v->len);
    cr_expect_null(bad, "%s: %s", v->name, bad);
}

struct seen {
    unsigned rules;
};

static void try_fault(const struct verdict *v, void *context)
{
    static const char *const rules[] = {"run", "padding", "planes", "choice", "offsets", "flags", "dtype"};
    struct seen *seen = context;
    struct pici_fault fault = PICI_FAULT_INIT;
    cr_expect_eq(pici_verify_at(v->block, v->len, &fault), v->status, "%s", v->name);
    cr_expect(fault.offset == v->offset && !strcmp(fault.rule ? fault.rule : "", v->rule ? v->rule : ""), "%s: %s",
              v->name, fault.rule);
    const char *bad = check_readers(&vector_rig, v->block, v->len, 4096);
    cr_expect_null(bad, "%s: %s", v->name, bad);
    for (unsigned i = 0; i < sizeof rules / sizeof *rules; i++)
        seen->rules |= v->rule && !strcmp(v->rule, rules[i]) ? 1u << i : 0;
}

Test(codec_packed, vectors)
{
    struct seen seen = {0};
    rig_init(&vector_rig, 40 * 4096 * 8, 8);
    cr_expect_gt(blocks_read("formats/vectors", "packed.txt", try_block, NULL), 120);
    cr_expect_gt(faults_read("formats/vectors", "packed-verify.txt", try_fault, &seen), 40);
    cr_expect_eq(seen.rules, 127u, "%x", seen.rules);
    rig_free(&vector_rig);
}
