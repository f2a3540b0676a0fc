/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Every ISA compared with the reference: encode, verify, decode, decode ranges and add, for each dtype, length,
 * pattern and number of threads, between guard pages and at any alignment (check_codec). */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "format.h"
#include "formats/ref.h"
#include "tests/util/util.h"

static const enum pici_dtype widths[4] = {PICI_U8, PICI_I16, PICI_U32, PICI_F64};

/* One input in all formats; expects the reference's bytes. */
static void try_formats(struct rig *rig, void *src, uint64_t n, enum pici_dtype dtype, enum pattern pattern,
                        int threads)
{
    struct subject s = {.src = src, .n = n, .dtype = dtype, .threads = threads};
    if (left_out(&rig->rng))
        return;
    pattern_fill(src, n, dtype, pattern, &rig->rng);
    for (int format = PICI_DENSE; format <= PICI_HYBRID; format++) {
        s.format = (enum pici_format)format;
        s.checksum = rng_chance(&rig->rng, 100000);
        const char *bad = check_codec(rig, &s);
        cr_expect_null(bad, "%s: %s", pattern_name(pattern), bad);
    }
}

/* Each length: with no zeros (values then come nearest to the end of the block) and with some other patterns.
 * Without other patterns: by turns with no zeros and with a random pattern. */
static void try_lengths(enum pici_dtype dtype, uint64_t from, uint64_t to, int others)
{
    struct rig rig;
    rig_init(&rig, (size_t)to * 8, from * 100 + dtype);
    void *src = test_alloc((size_t)to * 8);
    for (uint64_t n = from; n <= to; n++) {
        if (others || n % 2)
            try_formats(&rig, src, n, dtype, PATTERN_FULL, 1);
        for (int i = 0; i < others + (!others && n % 2 == 0); i++)
            try_formats(&rig, src, n, dtype, (enum pattern)rng_below(&rig.rng, PATTERNS), 1);
    }
    free(src);
    rig_free(&rig);
}

#define LENGTHS(name, dtype)                                                                                           \
    Test(codec_roundtrip, name##_short)                                                                                \
    {                                                                                                                  \
        try_lengths(dtype, 0, 200, 4);                                                                                 \
    }                                                                                                                  \
    Test(codec_roundtrip, name##_one_tile)                                                                             \
    {                                                                                                                  \
        try_lengths(dtype, 4096 - 70, 4096 + 70, 1);                                                                   \
    }                                                                                                                  \
    Test(codec_roundtrip, name##_two_tiles)                                                                            \
    {                                                                                                                  \
        try_lengths(dtype, 2 * 4096 - 70, 2 * 4096 + 70, 0);                                                           \
    }                                                                                                                  \
    Test(codec_roundtrip, name##_three_tiles)                                                                          \
    {                                                                                                                  \
        try_lengths(dtype, 3 * 4096 - 70, 3 * 4096 + 70, 0);                                                           \
    }
LENGTHS(width1, PICI_F8E4M3)
LENGTHS(width2, PICI_BF16)
LENGTHS(width4, PICI_F32)
LENGTHS(width8, PICI_F64)

static void try_patterns(enum pici_dtype dtype)
{
    static const uint64_t lengths[] = {64, 1000, 4096, 4097, 8192, 5 * 4096 + 77};
    struct rig rig;
    rig_init(&rig, 6 * 4096 * 8, dtype);
    void *src = test_alloc(6 * 4096 * 8);
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int pattern = 0; pattern < PATTERNS; pattern++)
            try_formats(&rig, src, lengths[i], dtype, (enum pattern)pattern, 1);
    free(src);
    rig_free(&rig);
}

#define PATTERNS_OF(name, dtype)                                                                                       \
    Test(codec_roundtrip, patterns_##name)                                                                             \
    {                                                                                                                  \
        try_patterns(dtype);                                                                                           \
    }
PATTERNS_OF(f32, PICI_F32)
PATTERNS_OF(f64, PICI_F64)
PATTERNS_OF(f16, PICI_F16)
PATTERNS_OF(bf16, PICI_BF16)
PATTERNS_OF(f8e4m3, PICI_F8E4M3)
PATTERNS_OF(f8e5m2, PICI_F8E5M2)
PATTERNS_OF(i8, PICI_I8)
PATTERNS_OF(u8, PICI_U8)
PATTERNS_OF(i16, PICI_I16)
PATTERNS_OF(u16, PICI_U16)
PATTERNS_OF(i32, PICI_I32)
PATTERNS_OF(u32, PICI_U32)
PATTERNS_OF(i64, PICI_I64)
PATTERNS_OF(u64, PICI_U64)

/* Each number of nonzeros in a tile, which crosses every threshold between ways of packing. */
static void try_counts(enum pici_dtype dtype)
{
    const unsigned width = ref_width(dtype);
    const uint64_t n = 2 * 4096;
    struct rig rig;
    rig_init(&rig, 2 * 4096 * 8, dtype);
    void *src = test_alloc(2 * 4096 * 8);
    for (uint64_t nnz = 0; nnz <= 4096; nnz += nnz < 140 || nnz > 4070 ? 1 : test_full() ? 13 : 37) {
        struct subject s = {.src = src, .n = n, .dtype = dtype, .format = PICI_BITMAP, .threads = 1};
        if (left_out(&rig.rng))
            continue;
        memset(src, 0, (size_t)n * width);
        for (unsigned tile = 0; tile < 2; tile++) {
            uint64_t left = nnz; /* selection sampling */
            for (uint64_t i = 0; i < 4096; i++)
                if (rng_below(&rig.rng, 4096 - i) < left) {
                    ref_store(src, tile * 4096 + i, width, value_random(&rig.rng, dtype));
                    left--;
                }
        }
        const char *bad = check_codec(&rig, &s);
        cr_expect_null(bad, "%d in a tile: %s", (int)nnz, bad);
        for (int format = PICI_COO; format <= PICI_HYBRID; format++) {
            s.format = (enum pici_format)format;
            bad = check_codec(&rig, &s);
            cr_expect_null(bad, "%d in a tile: %s", (int)nnz, bad);
        }
    }
    free(src);
    rig_free(&rig);
}

#define COUNTS(name, dtype)                                                                                            \
    Test(codec_roundtrip, counts_##name)                                                                               \
    {                                                                                                                  \
        try_counts(dtype);                                                                                             \
    }
COUNTS(width1, PICI_U8)
COUNTS(width2, PICI_F16)
COUNTS(width4, PICI_F32)
COUNTS(width8, PICI_I64)

/* A single nonzero at each position of a tile and of what follows it. */
static void try_positions(enum pici_dtype dtype, unsigned every)
{
    const unsigned width = ref_width(dtype);
    const uint64_t n = 4096 + 130;
    struct rig rig;
    rig_init(&rig, (4096 + 130) * 8, dtype);
    void *src = test_alloc((size_t)n * 8);
    memset(src, 0, (size_t)n * 8);
    for (uint64_t i = 0; i < n; i += i < 200 || i > 3990 ? 1 : every) {
        struct subject s = {.src = src, .n = n, .dtype = dtype, .threads = 1};
        if (left_out(&rig.rng))
            continue;
        ref_store(src, i, width, UINT64_C(1) << rng_below(&rig.rng, 8 * width)); /* with a single bit set */
        for (int format = PICI_BITMAP; format <= PICI_HYBRID; format++) {
            s.format = (enum pici_format)format;
            const char *bad = check_codec(&rig, &s);
            cr_expect_null(bad, "at %d: %s", (int)i, bad);
        }
        ref_store(src, i, width, 0);
    }
    free(src);
    rig_free(&rig);
}

#define POSITIONS(name, dtype)                                                                                         \
    Test(codec_roundtrip, positions_##name)                                                                            \
    {                                                                                                                  \
        try_positions(dtype, test_full() ? 3 : 11);                                                                    \
    }
POSITIONS(width1, PICI_I8)
POSITIONS(width2, PICI_U16)
POSITIONS(width4, PICI_I32)
POSITIONS(width8, PICI_U64)

/* Values whose bits a float register would change: they come back bit for bit. */
Test(codec_roundtrip, special_values)
{
    static const uint64_t f32[] = {0x80000000, 1,          0x807fffff, 0x7f800000, 0xff800000,
                                   0x7fc00000, 0x7f800001, 0xffbfffff, 0xffffffff, 0x00800000};
    static const uint64_t f64[] = {UINT64_C(1) << 63,
                                   1,
                                   UINT64_C(0x800fffffffffffff),
                                   UINT64_C(0x7ff0000000000000),
                                   UINT64_C(0xfff0000000000000),
                                   UINT64_C(0x7ff8000000000000),
                                   UINT64_C(0x7ff0000000000001),
                                   UINT64_C(0xfff7ffffffffffff),
                                   UINT64_MAX,
                                   UINT64_C(0x0010000000000000)};
    struct rig rig;
    uint64_t src[600];
    rig_init(&rig, sizeof src, 3);
    for (int wide = 0; wide <= 1; wide++)
        for (unsigned gap = 1; gap <= 3; gap++)
            for (int format = PICI_DENSE; format <= PICI_HYBRID; format++) {
                const unsigned width = wide ? 8 : 4;
                struct subject s = {.src = src, .n = 600, .dtype = wide ? PICI_F64 : PICI_F32, .threads = 1};
                memset(src, 0, sizeof src);
                for (unsigned i = 0; i < 600; i += gap)
                    ref_store(src, i, width, wide ? f64[i % 10] : f32[i % 10]);
                s.format = (enum pici_format)format;
                const char *bad = check_codec(&rig, &s);
                cr_expect_null(bad, "%s", bad);
            }
    rig_free(&rig);
}

/* Numbers of threads, with work for seven, and with more than 4 MiB, which is written with non-temporal stores. */
static void try_threads(enum pici_dtype dtype, enum pattern pattern)
{
    static const int threads[] = {1, 2, 3, 7, 0};
    const uint64_t n = (ref_width(dtype) < 4 ? (4u << 20) / ref_width(dtype) : 470 * 4096) + 4096 + 1234;
    struct rig rig;
    rig_init(&rig, (size_t)n * ref_width(dtype), pattern);
    void *src = test_alloc((size_t)n * ref_width(dtype));
    pattern_fill(src, n, dtype, pattern, &rig.rng);
    for (int format = PICI_DENSE; format <= PICI_HYBRID; format++) {
        size_t len;
        uint8_t *block = ref_encode(&len, src, n, dtype, (unsigned)format, format == PICI_BITMAP);
        const unsigned step = format == PICI_BITMAP && !left_out(&rig.rng) ? 1 : 3;
        for (unsigned i = 0; i < sizeof threads / sizeof *threads; i += step) {
            if (i && left_out(&rig.rng))
                continue;
            struct subject s = {
                src, n, dtype, (enum pici_format)format, format == PICI_BITMAP, threads[i], PICI_ZEROS_EXACT};
            const char *bad = check_block(&rig, &s, block, len);
            cr_expect_null(bad, "%s: %s", pattern_name(pattern), bad);
        }
        free(block);
    }
    free(src);
    rig_free(&rig);
}

#define THREADS(name, dtype, pattern)                                                                                  \
    Test(codec_roundtrip, threads_##name)                                                                              \
    {                                                                                                                  \
        try_threads(dtype, pattern);                                                                                   \
    }
THREADS(u8_tiles, PICI_U8, PATTERN_TILES)
THREADS(bf16_half, PICI_BF16, PATTERN_50)
THREADS(f32_percent, PICI_F32, PATTERN_1)
THREADS(f32_tiles, PICI_F32, PATTERN_TILES)
THREADS(f64_runs, PICI_F64, PATTERN_RUNS)
THREADS(f32_zero, PICI_F32, PATTERN_ZERO)

/* Several threads call at the same time. The first call of the process, which selects the kernels, is among theirs. */
enum { CALLERS = 6, CALLS = 60 };

static void *call(void *context)
{
    const uint64_t n = 3 * 4096 + 11;
    struct rng rng = {(uintptr_t)context};
    uint8_t *src = test_alloc((size_t)n * 4), *out = test_alloc((size_t)n * 4);
    size_t cap = pici_bound(PICI_BITMAP, PICI_F32, n), len, wrong = 0;
    uint8_t *block = test_alloc(cap);
    for (int i = 0; i < CALLS; i++) {
        pattern_fill(src, n, PICI_F32, (enum pattern)rng_below(&rng, PATTERNS), &rng);
        wrong += pici_compress(block, cap, &len, src, n, PICI_F32, PICI_BITMAP, NULL) ||
                 pici_decompress(out, n, block, len, NULL) || memcmp(out, src, (size_t)n * 4) != 0;
    }
    free(src);
    free(out);
    free(block);
    return (void *)wrong;
}

Test(codec_roundtrip, concurrent_callers)
{
    pthread_t callers[CALLERS];
    for (uintptr_t i = 0; i < CALLERS; i++)
        cr_assert_eq(pthread_create(&callers[i], NULL, call, (void *)(i + 1)), 0);
    for (int i = 0; i < CALLERS; i++) {
        void *wrong;
        pthread_join(callers[i], &wrong);
        cr_expect_null(wrong);
    }
}

/* Not for hybrid, whose length does not follow from nnz. */
static size_t bytes_of(unsigned format, enum pici_dtype dtype, uint64_t n, uint64_t nnz)
{
    struct fmt_layout l = {0};
    cr_assert(fmt_layout(&l, format, dtype, n, format == PICI_DENSE ? n : nnz));
    return (size_t)l.block_bytes;
}

/* AUTO makes this block of src, with any number of threads, if it fits. cap: bytes of room. */
static void make_auto(struct rig *rig, const void *src, uint64_t n, enum pici_dtype dtype, enum pici_zeros zeros,
                      const uint8_t *want, size_t want_len, size_t cap)
{
    for (int threads = 1; threads <= (n > 4 * 4096 ? 3 : 1); threads += 2) {
        const struct pici_opts opts = {sizeof opts, threads, 0, zeros, 0, PICI_PACK_NONE, 0};
        size_t len = 1;
        uint8_t *block = guard_place(&rig->block, cap, GUARD_END, 0);
        const enum pici_status s = pici_compress(block, cap, &len, src, n, dtype, PICI_AUTO, &opts);
        cr_expect_eq(s, cap < want_len ? PICI_E_SPACE : PICI_OK, "%s n=%d cap=%zu of %zu: %s", pici_dtype_name(dtype),
                     (int)n, cap, want_len, pici_strerror(s));
        cr_expect_eq(len, s ? 0 : want_len);
        cr_expect(s || memcmp(block, want, want_len) == 0, "%s n=%d: not format %u", pici_dtype_name(dtype), (int)n,
                  want[5]);
        cr_expect(guard_intact(&rig->block));
    }
}

/* AUTO is the smallest of the four, the lowest number among equals; of floats without -0.0, also by value. */
static void try_auto(struct rig *rig, const void *src, uint64_t n, enum pici_dtype dtype, unsigned *chosen)
{
    const unsigned width = ref_width(dtype);
    uint64_t nnz = 0, negative = 0;
    for (uint64_t i = 0; i < n; i++) {
        nnz += ref_load(src, i, width) != 0;
        negative += ref_load(src, i, width) == UINT64_C(1) << (8 * width - 1);
    }
    unsigned best = PICI_DENSE;
    for (unsigned f = PICI_BITMAP; f <= PICI_COO; f++)
        if (bytes_of(f, dtype, n, nnz) < bytes_of(best, dtype, n, nnz))
            best = f;
    size_t want_len, hybrid_len;
    uint8_t *want = ref_encode(&want_len, src, n, dtype, best, 0);
    uint8_t *hybrid = ref_encode(&hybrid_len, src, n, dtype, PICI_HYBRID, 0);
    if (hybrid_len < want_len) {
        best = PICI_HYBRID;
        free(want);
        want = hybrid;
        want_len = hybrid_len;
    } else {
        free(hybrid);
    }
    *chosen |= 1u << best;
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
        const size_t bound = pici_bound(PICI_AUTO, dtype, n);
        pici_isa_force(*isa);
        cr_expect_leq(want_len, bound);
        make_auto(rig, src, n, dtype, PICI_ZEROS_EXACT, want, want_len, bound);
        make_auto(rig, src, n, dtype, PICI_ZEROS_EXACT, want, want_len, want_len);
        make_auto(rig, src, n, dtype, PICI_ZEROS_EXACT, want, want_len, want_len - 1);
        if (dtype > PICI_F8E5M2 || negative)
            continue;
        void *marked = test_alloc((size_t)n * width);
        if (n)
            memcpy(marked, src, (size_t)n * width);
        zeros_negate(marked, n, dtype, 500000, &rig->rng);
        make_auto(rig, marked, n, dtype, PICI_ZEROS_BY_VALUE, want, want_len, bound);
        make_auto(rig, marked, n, dtype, PICI_ZEROS_BY_VALUE, want, want_len, want_len - 1);
        free(marked);
    }
    pici_isa_force(NULL);
    free(want);
}

/* Zeros whose sign is kept count in the lengths of the other formats. */
Test(codec_roundtrip, auto_signs)
{
    static const enum pici_dtype floats[] = {PICI_F32, PICI_F64, PICI_BF16, PICI_F8E4M3};
    struct rig rig;
    unsigned chosen = 0;
    rig_init(&rig, 3 * 4096 * 8, 6);
    void *src = test_alloc(3 * 4096 * 8);
    for (unsigned d = 0; d < 4; d++)
        for (int round = 0; round < 120; round++) {
            const uint64_t n = rng_below(&rig.rng, round % 3 ? 40 : 3 * 4096);
            pattern_fill(src, n, floats[d], round % 2 ? PATTERN_SIGNS : PATTERN_MASKED, &rig.rng);
            try_auto(&rig, src, n, floats[d], &chosen);
        }
    cr_expect_eq(chosen & (1u << PICI_HYBRID | 1u << PICI_COO), 1u << PICI_HYBRID | 1u << PICI_COO);
    free(src);
    rig_free(&rig);
}

Test(codec_roundtrip, auto_smallest)
{
    struct rig rig;
    unsigned chosen = 0;
    rig_init(&rig, 3 * 4096 * 8, 5);
    void *src = test_alloc(3 * 4096 * 8);
    for (unsigned w = 0; w < 4; w++)
        for (int round = 0; round < 300; round++) {
            uint64_t n = rng_below(&rig.rng, round % 2 ? 3 * 4096 : 300);
            pattern_fill(src, n, widths[w], (enum pattern)rng_below(&rig.rng, PATTERNS), &rig.rng);
            if (widths[w] == PICI_F64)
                zeros_clear(src, n, PICI_F64);
            try_auto(&rig, src, n, widths[w], &chosen);
        }
    cr_expect_eq(chosen, 15u, "not every format was ever the smallest");
    free(src);
    rig_free(&rig);
}

/* Around the densities where two formats are equally long: a wrong count or comparison would shift them. */
Test(codec_roundtrip, auto_ties)
{
    struct rig rig;
    unsigned chosen = 0, ties = 0;
    rig_init(&rig, 4096 * 8, 6);
    uint8_t *src = test_alloc(4096 * 8);
    for (unsigned w = 0; w < 4; w++) {
        const unsigned width = ref_width(widths[w]);
        for (unsigned pair = 0; pair < 3; pair++) {
            const unsigned a = pair == 2 ? PICI_BITMAP : PICI_DENSE, b = pair == 0 ? PICI_BITMAP : PICI_COO;
            for (uint64_t n = 0; n <= 4096; n += n < 40 ? 1 : 338)
                for (uint64_t nnz = 0; nnz <= n; nnz++) {
                    size_t x = bytes_of(a, widths[w], n, nnz), y = bytes_of(b, widths[w], n, nnz);
                    if (x > y + 8 || y > x + 8)
                        continue;
                    ties += x == y;
                    memset(src, 0, (size_t)n * width);
                    for (uint64_t i = 0; i < nnz; i++)
                        ref_store(src, (n - 1) * i / (nnz > 1 ? nnz - 1 : 1), width, 1 + i % 100);
                    try_auto(&rig, src, n, widths[w], &chosen);
                }
        }
    }
    cr_expect_gt(ties, 100u);
    free(src);
    rig_free(&rig);
}

/* Inputs whose groups mislead: what the first tile or the first groups suggest is not the smallest format. A letter is
 * a group: F has no zeros, Z only zeros. b and B are full, except zeros in the first or the second tile that make a
 * hybrid block a little shorter than its elements. */
Test(codec_roundtrip, auto_misled)
{
    enum { GROUP = 32 * 4096, MOST = 9, TAIL = 5 };
    static const char *const inputs[] = {"FFFF", "FZFF", "bFFF", "BFFF", "bFZF",      "BZFF",      "BFFZ",
                                         "ZFFF", "FFFZ", "ZZZZ", "F",    "bFFFFFFFF", "FFFFFFFFZ", "BFFFFZZFF"};
    struct rig rig;
    unsigned chosen = 0;
    rig_init(&rig, (MOST * GROUP + TAIL) * 4, 7);
    void *src = test_alloc((MOST * GROUP + TAIL) * 4);
    for (unsigned i = 0; i < sizeof inputs / sizeof *inputs; i++)
        for (unsigned how = 0; how < 4; how++) { /* without a tail, only the last group may tell */
            const enum pici_dtype dtype = how % 2 ? PICI_F32 : PICI_U8;
            const unsigned width = ref_width(dtype), some = 612 / width;
            const uint64_t n = strlen(inputs[i]) * GROUP + (how < 2 ? TAIL : 0);
            for (uint64_t k = 0; k < n; k++) {
                const char letter = k / GROUP < strlen(inputs[i]) ? inputs[i][k / GROUP] : 'F';
                const uint64_t zeros = (letter == 'B' ? 4096 : 0); /* where they begin in the group */
                const int zero = letter == 'Z' || (letter != 'F' && k % GROUP >= zeros && k % GROUP < zeros + some);
                ref_store(src, k, width, zero ? 0 : 1 + k % 100);
            }
            try_auto(&rig, src, n, dtype, &chosen);
        }
    cr_expect_eq(chosen, 1u << PICI_DENSE | 1u << PICI_COO | 1u << PICI_HYBRID);
    free(src);
    rig_free(&rig);
}
