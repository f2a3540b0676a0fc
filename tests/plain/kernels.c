/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The codec against formats/ref.c and the golden vectors. It has no test framework, so it runs wherever there is a C
 * library: under an emulator, on a big-endian or a 32-bit host. The last line is "N passed, N failed".
 *   plain_kernels [DIRECTORY]      of the vectors; formats/vectors otherwise
 * PICI_TEST_FEW=1: a third of the other inputs, for an emulated CPU in a short run. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "tests/util/util.h"

enum {
    ROOM = 3 * 4096 + 5, /* elements of 8 bytes */
    LARGE = 4 << 20      /* bytes from which output is written with non-temporal stores */
};

static struct rig rig;
static unsigned every = 1; /* 3 with PICI_TEST_FEW: of the inputs, every third one */

static void roundtrip(const struct roundtrip *v, void *unused)
{
    (void)unused;
    const struct subject s = {v->dense, v->n, v->dtype, v->format, v->checksum, 1, PICI_ZEROS_EXACT};
    rig.one_level = v->one_level;
    tally(v->name, v->earlier ? check_earlier(&rig, &s, v->block, v->len) : check_block(&rig, &s, v->block, v->len));
    if (v->len > 1200)
        return;
    /* with one byte changed, mostly before the values */
    uint8_t *copy = test_alloc(v->len);
    for (unsigned i = 0; i < 6 / every; i++) {
        memcpy(copy, v->block, v->len);
        copy[rng_below(&rig.rng, i % 2 || v->len < 49 ? v->len : v->len / 2 + 24)] ^=
            (uint8_t)(1u << rng_below(&rig.rng, 8));
        tally(v->name, check_readers(&rig, copy, v->len, ROOM));
    }
    free(copy);
}

static void verdict(const struct verdict *v, void *unused)
{
    (void)unused;
    struct pici_fault f = PICI_FAULT_INIT;
    uint8_t *block = guard_place(&rig.block, v->len, GUARD_END, 0);
    const char *bad = NULL;
    memcpy(block, v->block, v->len);
    for (const struct pici_isa *const *isa = tested_isas(); *isa; isa++) {
        pici_isa_force(*isa);
        if (pici_verify(block, v->len) != v->status || pici_verify_at(block, v->len, &f) != v->status)
            bad = "status";
        else if (f.offset != v->offset || f.tile != (v->rule ? v->tile : 0))
            bad = "place";
        else if ((f.rule == NULL) != (v->rule == NULL) || (f.rule && strcmp(f.rule, v->rule) != 0))
            bad = "rule";
    }
    pici_isa_force(NULL);
    tally(v->name, bad);
    tally(v->name, check_readers(&rig, v->block, v->len, ROOM));
}

/* Every format of one input. */
static void formats(struct subject *s, enum pattern pattern)
{
    static void *src;
    free(src);
    src = test_alloc((size_t)s->n * pici_dtype_width(s->dtype));
    pattern_fill(src, s->n, s->dtype, pattern, &rig.rng);
    s->src = src;
    for (int format = PICI_DENSE; format <= PICI_PACKED; format++) {
        if (format == PICI_PACKED && s->dtype > PICI_F8E5M2)
            continue;
        s->format = (enum pici_format)format;
        s->checksum = rng_chance(&rig.rng, 100000);
        tally(pattern_name(pattern), check_codec(&rig, s));
    }
}

/* Lists of a tile with an offset that repeats the one before: in turn, each byte of the list becomes its neighbour. */
static void repeats(enum pici_dtype dtype)
{
    enum { N = 4096, LIST = 700 }; /* bytes from the block's start, which hold all of the longest list */
    static const unsigned counts[] = {40, 200, 330, 400};
    const unsigned width = (unsigned)pici_dtype_width(dtype);
    const size_t room = pici_bound(PICI_HYBRID, dtype, N);
    uint8_t *src = test_alloc((size_t)N * width), *block = test_alloc(room), *copy = test_alloc(room);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t len = 0;
        memset(src, 0, (size_t)N * width);
        for (unsigned k = 0; k < counts[i]; k++)
            memset(src + rng_below(&rig.rng, N) * width, (int)(1 + k % 100), width);
        tally("repeats", pici_compress(block, room, &len, src, N, dtype, PICI_HYBRID, NULL) ? "compress" : NULL);
        for (size_t at = 49; at < len && at < LIST; at += every * every) {
            memcpy(copy, block, len);
            copy[at] = copy[at - 1];
            tally("repeats", check_readers(&rig, copy, len, ROOM));
        }
    }
    free(src);
    free(block);
    free(copy);
}

/* Words and then values, as threads make them, are the same as from one pass. With non-temporal stores, values are
 * written exactly: the bytes next to them may be another thread's. */
static void words_first(unsigned w, enum pattern pattern)
{
    enum { TILES = 3, MOST = TILES * TILE * 8, AROUND = 256, SIZE = MOST + 2 * AROUND };
    uint8_t *src = test_alloc(MOST), *want = test_alloc(SIZE), *out = test_alloc(SIZE);
    static uint8_t bits[2][TILES * TILE_BITS_BYTES], index[2][TILES * 8];
    static const enum pici_dtype dtype[] = {PICI_U8, PICI_U16, PICI_U32, PICI_U64};
    pattern_fill(src, TILES * TILE, dtype[w], pattern, &rig.rng);
    for (const struct pici_isa *const *isa = tested_isas(); *isa; isa++)
        for (unsigned at = 0; at <= 64; at += 31) {
            const struct pici_move *move = (*isa)->move[w];
            struct pici_pack_run all = {
                .src = src, .bits = bits[0], .index = index[0], .index_width = 8, .tiles = TILES};
            all.ahead = (size_t)TILE << w;
            all.values = want + AROUND;
            move->pack(&all);
            struct pici_pack_run parts = all;
            parts.what = PACK_WORDS;
            parts.bits = bits[1];
            parts.index = index[1];
            parts.stream = move->copy != NULL;
            parts.values = out + AROUND + at;
            parts.next_value = 0;
            memset(out, 0xa5, SIZE);
            move->pack(&parts);
            const int counted = parts.next_value == all.next_value;
            parts.what = PACK_VALUES;
            parts.next_value = 0;
            move->pack(&parts);
            const size_t end = AROUND + at + ((size_t)all.next_value << w);
            const char *bad = !counted || parts.next_value != all.next_value                  ? "count"
                              : memcmp(bits[0], bits[1], sizeof bits[0]) != 0                 ? "words"
                              : memcmp(index[0], index[1], sizeof index[0]) != 0              ? "index"
                              : memcmp(want + AROUND, parts.values, all.next_value << w) != 0 ? "values"
                                                                                              : NULL;
            for (size_t i = 0; i < SIZE; i++)
                if ((i < AROUND + at || i >= end + (parts.stream ? 0 : PICI_SLACK)) && out[i] != 0xa5)
                    bad = "bytes around the values";
            tally("words first", bad);
        }
    free(src);
    free(want);
    free(out);
}

/* A buffer so large that it is decoded with non-temporal stores, with tiles of many densities, at addresses that are
 * and are not aligned to a cache line. */
static void large(unsigned w)
{
    static const enum pici_dtype dtype[] = {PICI_U8, PICI_U16, PICI_U32, PICI_U64};
    const uint64_t n = LARGE / (1u << w) + 4100;
    const size_t bytes = (size_t)n << w;
    uint8_t *src = test_alloc(bytes);
    size_t len = 0;
    pattern_fill(src, n, dtype[w], PATTERN_TILES, &rig.rng);
    for (int format = PICI_BITMAP; format <= PICI_HYBRID; format += PICI_HYBRID - PICI_BITMAP) {
        const size_t cap = pici_bound((enum pici_format)format, dtype[w], n);
        uint8_t *block = test_alloc(cap), *out = test_alloc(bytes + 256);
        const enum pici_status made = pici_compress(block, cap, &len, src, n, dtype[w], (enum pici_format)format, NULL);
        for (const struct pici_isa *const *isa = tested_isas(); *isa; isa++)
            for (unsigned skew = 0; skew < 2; skew++) {
                const size_t at = 64 - (uintptr_t)out % 64 + (skew << w);
                const char *bad = NULL;
                pici_isa_force(*isa);
                memset(out, 0xa5, bytes + 256);
                if (made || pici_decompress(out + at, n, block, len, NULL))
                    bad = "status";
                else if (memcmp(out + at, src, bytes) != 0)
                    bad = "elements";
                for (size_t i = 0; i < at; i++)
                    bad = out[i] == 0xa5 ? bad : "bytes before";
                for (size_t i = at + bytes; i < bytes + 256; i++)
                    bad = out[i] == 0xa5 ? bad : "bytes behind";
                tally("large", bad);
            }
        pici_isa_force(NULL);
        free(block);
        free(out);
    }
    free(src);
}

/* Positions that rise, in steps of up to 2 * apart, from a small one on, or up to the greatest. */
static void positions(uint32_t *list, size_t count, uint32_t apart)
{
    uint32_t at = (uint32_t)rng_below(&rig.rng, 1000);
    for (size_t i = 0; i < count; i++, at += 1 + (uint32_t)rng_below(&rig.rng, 2 * apart))
        list[i] = at;
    const uint32_t up = count && rng_chance(&rig.rng, 300000) ? UINT32_MAX - list[count - 1] : 0;
    for (size_t i = 0; i < count; i++)
        list[i] += up;
}

/* The union of two lists as it is defined: the lesser position of both next. Returns its length. */
static size_t united(const struct pici_union *u, size_t width, uint32_t *at, uint8_t *of_first, uint8_t *of_second)
{
    static const uint8_t zero[8];
    size_t i = 0, j = 0, k = 0;
    while (i < u->first_count || j < u->second_count) {
        const int has_second = j < u->second_count, has_first = i < u->first_count;
        const int first = has_first && (!has_second || u->first[i] <= u->second[j]),
                  second = has_second && (!has_first || u->second[j] <= u->first[i]);
        at[k] = first ? u->first[i] : u->second[j];
        memcpy(of_first + k * width, first ? u->first_values + i * width : zero, width);
        memcpy(of_second + k * width, second ? u->second_values + j * width : zero, width);
        i += (size_t)first;
        j += (size_t)second;
        k++;
    }
    return k;
}

/* A copy between guard pages, at the end of its room, so that what is read or written beyond it faults. */
static void *guarded(struct guard *guard, const void *from, size_t bytes)
{
    uint8_t *to = guard_place(guard, bytes, GUARD_END, 0);
    if (from && bytes)
        memcpy(to, from, bytes);
    return to;
}

/* The unions of lists of each density beside each other, by each ISA, beside united(). */
static void unions(unsigned w)
{
    enum { MOST = 700 };
    static const uint32_t apart[] = {1, 2, 20, 3000000};
    static uint32_t lists[2][MOST], want[2 * MOST];
    static uint8_t values[2][MOST * 8], wanted[2][2 * MOST * 8];
    const size_t width = (size_t)1 << w;
    struct guard guard[7];
    for (int i = 0; i < 7; i++)
        guard_init(&guard[i], 2 * MOST * 8);
    for (int times = 0; times < 200; times++) {
        struct pici_union u = {.first = lists[0], .first_values = values[0], .second_values = values[1]};
        u.first_count = rng_below(&rig.rng, times % 4 ? MOST : 40);
        u.second_count = rng_below(&rig.rng, times % 5 ? MOST : 40);
        positions(lists[0], u.first_count, apart[rng_below(&rig.rng, 4)]);
        positions(lists[1], u.second_count, apart[rng_below(&rig.rng, 4)]);
        if (times % 7 == 0) { /* the same positions, or nearly */
            memcpy(lists[1], lists[0], sizeof lists[0]);
            u.second_count = u.first_count - (size_t)rng_below(&rig.rng, u.first_count / 8 + 1);
        }
        u.second = lists[1];
        for (size_t i = 0; i < 2 * MOST * 8; i++)
            values[i % 2][i / 2] = (uint8_t)rng_next(&rig.rng);
        const size_t count = united(&u, width, want, wanted[0], wanted[1]), room = u.first_count + u.second_count;
        u.first = guarded(&guard[0], lists[0], u.first_count * 4);
        u.second = guarded(&guard[1], lists[1], u.second_count * 4);
        u.first_values = guarded(&guard[2], values[0], u.first_count * width);
        u.second_values = guarded(&guard[3], values[1], u.second_count * width);
        for (const struct pici_isa *const *isa = tested_isas(); *isa; isa++) {
            u.positions = guarded(&guard[4], NULL, room * 4);
            u.of_first = guarded(&guard[5], NULL, room * width);
            u.of_second = guarded(&guard[6], NULL, room * width);
            const char *bad = NULL;
            if ((*isa)->lists[w]->unite(&u) != count)
                bad = "count";
            else if (memcmp(u.positions, want, count * 4) != 0)
                bad = "positions";
            else if (memcmp(u.of_first, wanted[0], count * width) != 0)
                bad = "values of the first";
            else if (memcmp(u.of_second, wanted[1], count * width) != 0)
                bad = "values of the second";
            for (int i = 4; i < 7; i++)
                bad = guard_intact(&guard[i]) ? bad : "bytes around the union";
            tally((*isa)->name, bad);
        }
    }
    for (int i = 0; i < 7; i++)
        guard_free(&guard[i]);
}

/* PICI_CPU selects each table by its name; without it, or with another value, the last is selected. Names them. */
static void choice(void)
{
    const struct pici_isa *const *isas = pici_isas(), *last = NULL;
    const char *before = getenv("PICI_CPU");
    char *kept = before ? strdup(before) : NULL;
    printf("kernels:");
    for (; *isas; isas++) {
        last = *isas;
        printf(" %s", last->name);
        setenv("PICI_CPU", last->name, 1);
        pici_isa_force(NULL);
        tally(last->name, pici_isa() == last ? NULL : "PICI_CPU selects another table");
    }
    printf("\n");
    setenv("PICI_CPU", "no such table", 1);
    pici_isa_force(NULL);
    tally("another value", pici_isa() == last ? NULL : "not the best table");
    unsetenv("PICI_CPU");
    pici_isa_force(NULL);
    tally("no PICI_CPU", pici_isa() == last ? NULL : "not the best table");
    if (kept)
        setenv("PICI_CPU", kept, 1);
    free(kept);
    pici_isa_force(NULL);
#if defined(__aarch64__) && !defined(__AARCH64EB__)
    tally("NEON", strcmp(last->name, "neon") == 0 ? NULL : "not the best table of a 64-bit ARM");
#endif
}

int main(int argc, char **argv)
{
    const char *directory = argc > 1 ? argv[1] : "formats/vectors";
    static const uint64_t sizes[] = {0,    1,    2,    15,   16,   17,   63,   64,   65,   127,  128,  129,   1000,
                                     4031, 4032, 4033, 4095, 4096, 4097, 4159, 4160, 8191, 8192, 8193, 12287, 12293};
    static const enum pici_dtype widths[] = {PICI_U8, PICI_BF16, PICI_F32, PICI_F64};
    rig_init(&rig, LARGE + 8 * 4096, 1);
    every = test_few() ? 3 : 1;
    choice();

    if (roundtrips_read(directory, roundtrip, NULL) <= 0 || verdicts_read(directory, verdict, NULL) <= 0 ||
        blocks_read(directory, "packed.txt", roundtrip, NULL) <= 0 ||
        faults_read(directory, "packed-verify.txt", verdict, NULL) <= 0)
        tally(directory, "vectors are missing or malformed");

    for (unsigned w = 0; w < 4; w++)
        for (unsigned i = w % every; i < sizeof sizes / sizeof *sizes; i += every) {
            struct subject s = {.n = sizes[i], .dtype = widths[w], .threads = 1};
            formats(&s, PATTERN_FULL);
            formats(&s, (enum pattern)rng_below(&rig.rng, PATTERNS));
        }
    for (unsigned dtype = PICI_F32; dtype <= PICI_U64; dtype++)
        for (unsigned pattern = dtype % every; pattern < PATTERNS; pattern += every) {
            struct subject s = {.n = 4096 + 70, .dtype = (enum pici_dtype)dtype, .threads = pattern % 3 + 1};
            formats(&s, (enum pattern)pattern);
        }

    for (unsigned w = 0; w < 4; w++)
        for (unsigned pattern = 0; pattern < PATTERNS; pattern++)
            words_first(w, (enum pattern)pattern);

    for (unsigned w = 0; w < 4; w++)
        repeats(widths[w]);
    for (unsigned w = 0; w < 4; w++)
        unions(w);
    for (unsigned w = 0; w < 4; w++)
        large(w);
    static const enum pattern patterns[] = {PATTERN_TILES, PATTERN_FULL, PATTERN_50};
    const unsigned some = getenv("PICI_TEST_LAST") ? 1 : 3; /* most of an emulated CPU's time */
    for (unsigned w = 2; w < (some == 1 ? 3 : 4); w++)
        for (unsigned i = 0; i < some; i++) {
            struct subject s = {.n = LARGE / (1u << w) + 4100, .dtype = widths[w], .threads = 1};
            void *src = test_alloc((size_t)s.n << w);
            pattern_fill(src, s.n, s.dtype, patterns[i], &rig.rng);
            s.src = src;
            for (int format = PICI_BITMAP; format <= PICI_PACKED; format += format == PICI_BITMAP ? 2 : 1) {
                s.format = (enum pici_format)format;
                tally("large", check_codec(&rig, &s));
            }
            free(src);
        }
    rig_free(&rig);
    return tally_end();
}
