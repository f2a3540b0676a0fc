/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "util.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/kernels.h"
#include "formats/ref.h"
#include "pici/delta.h"

/* ---- plain programs ---- */

static unsigned passed, failed;

unsigned tally_count(int good)
{
    if (good)
        passed++;
    else
        failed++;
    return good ? 0 : failed;
}

void tally(const char *what, const char *bad)
{
    if (tally_count(!bad))
        printf("FAIL %s: %s\n", what, bad);
}

int tally_end(void)
{
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}

/* ---- random numbers ---- */

uint64_t rng_next(struct rng *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
    return rng_next(r) % n;
}

int rng_chance(struct rng *r, unsigned ppm)
{
    return rng_below(r, 1000000) < ppm;
}

int left_out(struct rng *r)
{
#if defined(SANITIZED)
    return rng_below(r, 6) != 0;
#elif defined(__clang__)
    return rng_below(r, 3) != 0;
#else
    (void)r;
    return 0;
#endif
}

int test_full(void)
{
    return getenv("PICI_TEST_FULL") != NULL;
}

int test_few(void)
{
    return getenv("PICI_TEST_FEW") != NULL;
}

/* ---- memory ---- */

enum { PAINT = 0xa5, PAINT_BYTES = 256 };

static void die(const char *what)
{
    perror(what);
    abort();
}

void *test_alloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p)
        die("malloc");
    return p;
}

void guard_init(struct guard *g, size_t cap)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    g->cap = (cap + 2 * PAINT_BYTES + page - 1) / page * page;
    g->map_bytes = g->cap + 2 * page;
    g->map = mmap(NULL, g->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g->map == MAP_FAILED || mprotect(g->map + page, g->cap, PROT_READ | PROT_WRITE))
        die("mmap");
    guard_place(g, 0, GUARD_END, 0);
}

static uint8_t *stretch(const struct guard *g)
{
    return g->map + (g->map_bytes - g->cap) / 2;
}

/* The painted bytes before and after the buffer. */
static void margins(const struct guard *g, size_t *before, size_t *after)
{
    *before = (size_t)(g->at - stretch(g));
    *after = g->cap - *before - g->bytes;
    *before = *before < PAINT_BYTES ? *before : PAINT_BYTES;
    *after = *after < PAINT_BYTES ? *after : PAINT_BYTES;
}

uint8_t *guard_place(struct guard *g, size_t bytes, enum guard_side side, size_t skew)
{
    size_t before, after;
    if (bytes > g->cap || skew > g->cap - bytes)
        abort();
    g->bytes = bytes;
    g->at = side == GUARD_START ? stretch(g) + skew : stretch(g) + (g->cap - bytes - skew);
    margins(g, &before, &after);
    memset(g->at - before, PAINT, before);
    memset(g->at + bytes, PAINT, after);
    return g->at;
}

int guard_intact(const struct guard *g)
{
    size_t before, after;
    margins(g, &before, &after);
    for (size_t i = 0; i < before; i++)
        if (g->at[-(ptrdiff_t)i - 1] != PAINT)
            return 0;
    for (size_t i = 0; i < after; i++)
        if (g->at[g->bytes + i] != PAINT)
            return 0;
    return 1;
}

void guard_free(struct guard *g)
{
    munmap(g->map, g->map_bytes);
}

/* ---- data ---- */

static uint64_t float_random(struct rng *r, unsigned exponent_bits, unsigned mantissa_bits)
{
    const uint64_t one = UINT64_C(1) << mantissa_bits, top = (UINT64_C(1) << exponent_bits) - 1, bias = top / 2;
    uint64_t sign = rng_next(r) & 1, mantissa = rng_next(r) & (one - 1), exponent;
    switch (rng_below(r, 16)) {
    case 0: /* -0 */ return one << exponent_bits;
    case 1: exponent = 0; break;
    case 2: /* least and greatest of their kind */
        mantissa = rng_next(r) & 1 ? 0 : one - 1;
        exponent = rng_below(r, 4) * top / 3;
        break;
    case 3: exponent = top; break;
    case 4: exponent = top - 1; break;
    case 5: exponent = rng_below(r, top + 1); break;
    case 6: /* ties */
        mantissa &= one - 1 - (one >> 3);
        exponent = bias + rng_below(r, 3);
        break;
    default: exponent = bias - 2 + rng_below(r, 5); break;
    }
    return (sign << exponent_bits | exponent) * one | mantissa;
}

uint64_t value_random(struct rng *r, enum pici_dtype dtype)
{
    static const unsigned char exponents[] = {0, 8, 11, 5, 8, 4, 5};
    unsigned bits = 8 * ref_width(dtype);
    for (;;) {
        uint64_t v = rng_next(r) >> (64 - bits);
        if (dtype <= PICI_F8E5M2)
            v = float_random(r, exponents[dtype], bits - 1 - exponents[dtype]);
        else if (rng_chance(r, 250000)) /* a single bit, so that every bit counts as nonzero */
            v = UINT64_C(1) << rng_below(r, bits);
        if (v)
            return v;
    }
}

static const struct {
    const char *name;
    unsigned ppm; /* where it is that simple */
} patterns[PATTERNS] = {
    [PATTERN_ZERO] = {"zero", 0},   [PATTERN_FULL] = {"full", 1000000}, [PATTERN_EQUAL] = {"equal", 0},
    [PATTERN_EVEN] = {"even", 0},   [PATTERN_ODD] = {"odd", 0},         [PATTERN_SINGLE] = {"single", 0},
    [PATTERN_FIRST] = {"first", 0}, [PATTERN_LAST] = {"last", 0},       [PATTERN_0_01] = {"0.01%", 100},
    [PATTERN_0_1] = {"0.1%", 1000}, [PATTERN_1] = {"1%", 10000},        [PATTERN_3] = {"3%", 30000},
    [PATTERN_8] = {"8%", 80000},    [PATTERN_12] = {"12%", 120000},     [PATTERN_30] = {"30%", 300000},
    [PATTERN_50] = {"50%", 500000}, [PATTERN_70] = {"70%", 700000},     [PATTERN_90] = {"90%", 900000},
    [PATTERN_99] = {"99%", 990000}, [PATTERN_RUNS] = {"runs", 0},       [PATTERN_COLUMN] = {"column", 0},
    [PATTERN_ROW] = {"row", 0},     [PATTERN_TILES] = {"tiles", 0},     [PATTERN_MASKED] = {"masked", 50000},
    [PATTERN_SIGNS] = {"signs", 0},
};

const char *pattern_name(enum pattern p)
{
    return patterns[p].name;
}

void pattern_fill(void *dst, uint64_t n, enum pici_dtype dtype, enum pattern pattern, struct rng *r)
{
    static const unsigned tile_ppm[] = {0,     300,   3700,   10000,  16000,  40000,
                                        64000, 73000, 100000, 400000, 900000, 1000000};
    static const unsigned negative_ppm[] = {0,      300,    3000,   20000,  60000,  120000, 230000,
                                            375000, 395000, 500000, 700000, 950000, 999500, 1000000};
    const unsigned width = ref_width(dtype);
    const uint64_t negative_zero = dtype <= PICI_F8E5M2 ? UINT64_C(1) << (8 * width - 1) : 0;
    const uint64_t chosen = n ? rng_below(r, n) : 0, line = rng_below(r, 64), equal = value_random(r, dtype);
    unsigned ppm = patterns[pattern].ppm, negative = pattern == PATTERN_MASKED ? 500000 : 0;
    for (uint64_t i = 0; i < n; i++) {
        int set;
        switch (pattern) {
        case PATTERN_EQUAL: set = 1; break;
        case PATTERN_EVEN:
        case PATTERN_ODD: set = (i & 1) == (pattern == PATTERN_ODD); break;
        case PATTERN_SINGLE: set = i == chosen; break;
        case PATTERN_FIRST: set = i == 0; break;
        case PATTERN_LAST: set = i == n - 1; break;
        case PATTERN_RUNS:
            if (rng_chance(r, 10000))
                ppm = rng_chance(r, 300000) ? 980000 : 0;
            set = rng_chance(r, ppm);
            break;
        case PATTERN_COLUMN: set = i % 64 == line; break;
        case PATTERN_ROW: set = i / 64 % 64 == line; break;
        case PATTERN_SIGNS:
            if (i % 4096 == 0)
                negative = negative_ppm[rng_below(r, sizeof negative_ppm / sizeof *negative_ppm)];
            __attribute__((fallthrough));
        case PATTERN_TILES:
            if (i % 4096 == 0)
                ppm = tile_ppm[rng_below(r, sizeof tile_ppm / sizeof *tile_ppm)];
            set = rng_chance(r, ppm);
            break;
        default: set = rng_chance(r, ppm);
        }
        const uint64_t zero = negative && rng_chance(r, negative) ? negative_zero : 0;
        ref_store(dst, i, width, !set ? zero : pattern == PATTERN_EQUAL ? equal : value_random(r, dtype));
    }
}

void zeros_negate(void *dst, uint64_t n, enum pici_dtype dtype, uint32_t ppm, struct rng *r)
{
    const unsigned width = ref_width(dtype);
    for (uint64_t i = 0; i < n && ppm && dtype <= PICI_F8E5M2; i++)
        if (!ref_load(dst, i, width) && rng_chance(r, ppm))
            ref_store(dst, i, width, UINT64_C(1) << (8 * width - 1));
}

void zeros_clear(void *dst, uint64_t n, enum pici_dtype dtype)
{
    const unsigned width = ref_width(dtype);
    for (uint64_t i = 0; i < n && dtype <= PICI_F8E5M2; i++)
        if (ref_load(dst, i, width) == UINT64_C(1) << (8 * width - 1))
            ref_store(dst, i, width, 0);
}

/* ---- the codec against the reference ---- */

void rig_init(struct rig *rig, size_t bytes, uint64_t seed)
{
    guard_init(&rig->src, bytes + 64);
    /* a coo entry takes 4 bytes beside its value: of a byte, at worst */
    guard_init(&rig->block, bytes * 5 + bytes / 8 + 4096);
    guard_init(&rig->dst, bytes + 64);
    rig->rng.state = seed;
    rig->one_level = 0;
}

void rig_free(struct rig *rig)
{
    guard_free(&rig->src);
    guard_free(&rig->block);
    guard_free(&rig->dst);
}

static char message[512];

__attribute__((format(printf, 3, 4))) static const char *wrong(const struct subject *s, const char *isa,
                                                               const char *format, ...)
{
    int n = snprintf(message, sizeof message, "%s %s %s n=%" PRIu64 " checksum=%d threads=%d%s: ", isa,
                     pici_dtype_name(s->dtype), pici_format_name(s->format), s->n, s->checksum, s->threads,
                     s->zeros == PICI_ZEROS_BY_VALUE ? " by value" : "");
    va_list args;
    va_start(args, format);
    vsnprintf(message + n, sizeof message - (size_t)n, format, args);
    va_end(args);
    return message;
}

static size_t first_difference(const void *a, const void *b, size_t bytes)
{
    const uint8_t *p = a, *q = b;
    size_t i = 0;
    while (i < bytes && p[i] == q[i])
        i++;
    return i;
}

/* Put a copy of bytes where the guard pages are near. */
static uint8_t *place(struct rig *rig, struct guard *g, size_t bytes, enum guard_side side, const void *from)
{
    size_t skew = rng_chance(&rig->rng, 500000) ? 0 : rng_below(&rig->rng, 17);
    uint8_t *p = guard_place(g, bytes, side, skew);
    if (from && bytes)
        memcpy(p, from, bytes);
    return p;
}

/* The reference's block of elements, of the subject's kind. */
static uint8_t *reference(size_t *len, const struct rig *rig, const struct subject *s, const void *elements)
{
    if (s->format == PICI_PACKED)
        return ref_encode_packed(len, elements, s->n, s->dtype, s->checksum, REF_ZEROS_EXACT, rig->one_level ? 1 : 2);
    return ref_encode(len, elements, s->n, s->dtype, s->format, s->checksum);
}

static enum pici_pack packing(const struct rig *rig, const struct subject *s)
{
    return s->format == PICI_PACKED && rig->one_level ? PICI_PACK_FAST : PICI_PACK_NONE;
}

static const char *check_encode(struct rig *rig, const struct subject *s, const uint8_t *block, size_t len,
                                enum guard_side side, const char *isa)
{
    const size_t bytes = (size_t)s->n * ref_width(s->dtype);
    struct pici_opts opts = PICI_OPTS_INIT;
    size_t got = 1;
    opts.threads = s->threads;
    opts.checksum = s->checksum;
    opts.zeros = s->zeros;
    opts.pack = packing(rig, s);
    const uint8_t *src = place(rig, &rig->src, bytes, side, s->src);
    uint8_t *out = place(rig, &rig->block, len, side, NULL);
    enum pici_status status = pici_compress(out, len, &got, src, s->n, s->dtype, s->format, &opts);
    if (status)
        return wrong(s, isa, "compress: %s", pici_strerror(status));
    if (got != len)
        return wrong(s, isa, "compress: %zu bytes, not %zu", got, len);
    if (memcmp(out, block, len) != 0)
        return wrong(s, isa, "compress: byte %zu differs", first_difference(out, block, len));
    if (!guard_intact(&rig->block) || !guard_intact(&rig->src) || (bytes && memcmp(src, s->src, bytes) != 0))
        return wrong(s, isa, "compress: wrote outside");

    /* even where a valid block was before */
    out = place(rig, &rig->block, len - 1, side, block);
    got = 1;
    status = pici_compress(out, len - 1, &got, src, s->n, s->dtype, s->format, &opts);
    if (status != PICI_E_SPACE || got != 0)
        return wrong(s, isa, "compress into a byte less: %s", pici_strerror(status));
    struct pici_info info = PICI_INFO_INIT;
    if (pici_inspect(&info, out, len - 1) == PICI_OK)
        return wrong(s, isa, "compress into a byte less: left a header");
    if (!guard_intact(&rig->block))
        return wrong(s, isa, "compress into a byte less: wrote outside");
    return NULL;
}

static const char *check_ranges(struct rig *rig, const struct subject *s, const uint8_t *in, size_t len,
                                enum guard_side side, const char *isa)
{
    const unsigned width = ref_width(s->dtype);
    for (int i = 0; i < 6; i++) {
        uint64_t first = rng_below(&rig->rng, s->n + 1), n = rng_below(&rig->rng, s->n - first + 1);
        if (i == 0) { /* nothing at the end; all; one element; a whole tile */
            first = s->n;
            n = 0;
        } else if (i == 1) {
            first = 0;
            n = s->n;
        } else if (i == 2 && first < s->n) {
            n = 1;
        } else if (i == 3 && s->n >= 4096) {
            first = rng_below(&rig->rng, s->n / 4096) * 4096;
            n = 4096;
        }
        uint8_t *out = place(rig, &rig->dst, (size_t)n * width, side, NULL);
        enum pici_status status = pici_decompress_range(out, first, n, in, len, NULL);
        if (status)
            return wrong(s, isa, "range %" PRIu64 "+%" PRIu64 ": %s", first, n, pici_strerror(status));
        if (n && memcmp(out, (const uint8_t *)s->src + first * width, (size_t)n * width) != 0)
            return wrong(s, isa, "range %" PRIu64 "+%" PRIu64 ": differs", first, n);
        if (!guard_intact(&rig->dst))
            return wrong(s, isa, "range %" PRIu64 "+%" PRIu64 ": wrote outside", first, n);
    }
    return NULL;
}

static const char *check_decode(struct rig *rig, const struct subject *s, const uint8_t *block, size_t len,
                                enum guard_side side, const char *isa)
{
    const size_t bytes = (size_t)s->n * ref_width(s->dtype);
    struct pici_opts opts = PICI_OPTS_INIT;
    struct pici_info info = PICI_INFO_INIT;
    struct pici_fault fault = PICI_FAULT_INIT;
    opts.threads = s->threads;
    const uint8_t *in = place(rig, &rig->block, len, side, block);
    enum pici_status status = pici_verify_at(in, len, &fault);
    if (status || fault.status || fault.rule || fault.offset || fault.tile || pici_verify(in, len))
        return wrong(s, isa, "verify: %s", pici_strerror(status));
    status = pici_inspect(&info, in, len);
    if (status || info.format != s->format || info.dtype != s->dtype || info.count != s->n || info.block_bytes != len)
        return wrong(s, isa, "inspect: %s", pici_strerror(status));
    uint8_t *out = place(rig, &rig->dst, bytes, side, NULL);
    memset(out, 0x5a, bytes);
    status = pici_decompress(out, s->n, in, len, &opts);
    if (status)
        return wrong(s, isa, "decompress: %s", pici_strerror(status));
    if (bytes && memcmp(out, s->src, bytes) != 0)
        return wrong(s, isa, "decompress: byte %zu differs", first_difference(out, s->src, bytes));
    if (!guard_intact(&rig->dst) || !guard_intact(&rig->block) || memcmp(in, block, len) != 0)
        return wrong(s, isa, "decompress: wrote outside");
    return check_ranges(rig, s, in, len, side, isa);
}

/* before and after: the elements that are added to, and what the reference made of them. */
static const char *check_add(struct rig *rig, const struct subject *s, const uint8_t *block, size_t len,
                             enum guard_side side, const char *isa, const uint8_t *before, const uint8_t *after)
{
    const unsigned width = ref_width(s->dtype);
    const size_t bytes = (size_t)s->n * width;
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.threads = s->threads;
    const uint8_t *in = place(rig, &rig->block, len, side, block);
    uint8_t *out = place(rig, &rig->dst, bytes, side, before);
    enum pici_status status = pici_scatter_add(out, s->n, in, len, &opts);
    if (status)
        return wrong(s, isa, "scatter-add: %s", pici_strerror(status));
    if (bytes && memcmp(out, after, bytes) != 0) {
        size_t i = first_difference(out, after, bytes) / width;
        return wrong(s, isa, "scatter-add: element %zu: %" PRIx64 " + %" PRIx64 " gave %" PRIx64 ", not %" PRIx64, i,
                     ref_load(before, i, width), ref_load(s->src, i, width), ref_load(out, i, width),
                     ref_load(after, i, width));
    }
    if (!guard_intact(&rig->dst) || memcmp(in, block, len) != 0)
        return wrong(s, isa, "scatter-add: wrote outside");
    return NULL;
}

/* The block as the delta from before to flipped, which is before ^ src: made, and applied there and back. */
static const char *check_delta(struct rig *rig, const struct subject *s, const uint8_t *block, size_t len,
                               enum guard_side side, const char *isa, const uint8_t *before, const uint8_t *flipped)
{
    const size_t bytes = (size_t)s->n * ref_width(s->dtype);
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.threads = s->threads;
    opts.checksum = s->checksum;
    opts.pack = packing(rig, s);
    opts.zeros = PICI_ZEROS_BY_VALUE;               /* a delta is exact all the same */
    for (size_t cap = len; cap + 1 >= len; cap--) { /* its own length is enough, and a byte less is not */
        const uint8_t *src = place(rig, &rig->src, bytes, side, flipped),
                      *base = place(rig, &rig->dst, bytes, side, before);
        uint8_t *out = place(rig, &rig->block, cap, side, NULL);
        size_t got = 1;
        enum pici_status status = pici_diff(out, cap, &got, base, src, s->n, s->dtype, s->format, &opts);
        if (status != (cap < len ? PICI_E_SPACE : PICI_OK) || got != (cap < len ? 0 : len))
            return wrong(s, isa, "diff into %zu bytes of %zu: %s, %zu bytes", cap, len, pici_strerror(status), got);
        if (cap == len && memcmp(out, block, len) != 0)
            return wrong(s, isa, "diff: byte %zu differs", first_difference(out, block, len));
        if (!guard_intact(&rig->block) || !guard_intact(&rig->src) || !guard_intact(&rig->dst) ||
            (bytes && (memcmp(src, flipped, bytes) != 0 || memcmp(base, before, bytes) != 0)))
            return wrong(s, isa, "diff: wrote outside");
    }
    const uint8_t *in = place(rig, &rig->block, len, side, block);
    uint8_t *out = place(rig, &rig->dst, bytes, side, before);
    for (int again = 0; again <= 1; again++) {
        const uint8_t *want = again ? before : flipped;
        enum pici_status status = pici_apply(out, s->n, in, len, &opts);
        if (status)
            return wrong(s, isa, "apply: %s", pici_strerror(status));
        if (bytes && memcmp(out, want, bytes) != 0)
            return wrong(s, isa, "apply%s: byte %zu differs", again ? " twice" : "",
                         first_difference(out, want, bytes));
        if (!guard_intact(&rig->dst) || memcmp(in, block, len) != 0)
            return wrong(s, isa, "apply: wrote outside");
    }
    return NULL;
}

static void flip(uint8_t *dst, const uint8_t *src, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        dst[i] ^= src[i];
}

const struct pici_isa *const *tested_isas(void)
{
    const struct pici_isa *const *isas = pici_isas();
    while (isas[1] && getenv("PICI_TEST_LAST"))
        isas++;
    return isas;
}

const char *check_block(struct rig *rig, const struct subject *s, const uint8_t *block, size_t len)
{
    const size_t bytes = (size_t)s->n * ref_width(s->dtype);
    const char *bad = NULL;
    uint8_t *before = test_alloc(bytes), *after = test_alloc(bytes), *flipped = test_alloc(bytes);
    pattern_fill(before, s->n, s->dtype, rng_chance(&rig->rng, 500000) ? PATTERN_FULL : PATTERN_50, &rig->rng);
    memcpy(after, before, bytes);
    memcpy(flipped, before, bytes);
    flip(flipped, s->src, bytes);
    if (ref_scatter_add(after, s->n, block, len))
        bad = wrong(s, "ref", "scatter-add");
    for (const struct pici_isa *const *isa = tested_isas(); *isa && !bad; isa++) {
        pici_isa_force(*isa);
        for (int side = GUARD_END; side <= GUARD_START && !bad; side++) {
            bad = check_encode(rig, s, block, len, (enum guard_side)side, (*isa)->name);
            if (!bad)
                bad = check_decode(rig, s, block, len, (enum guard_side)side, (*isa)->name);
            if (!bad)
                bad = check_add(rig, s, block, len, (enum guard_side)side, (*isa)->name, before, after);
            if (!bad)
                bad = check_delta(rig, s, block, len, (enum guard_side)side, (*isa)->name, before, flipped);
        }
    }
    pici_isa_force(NULL);
    free(before);
    free(after);
    free(flipped);
    return bad;
}

/* The block that by-value encoders must make of the subject's elements, some of whose zeros get a sign. */
static const char *check_by_value(struct rig *rig, const struct subject *of)
{
    static const unsigned ppm[] = {0, 20000, 500000, 1000000};
    const size_t bytes = (size_t)of->n * ref_width(of->dtype);
    struct subject s = *of;
    const char *bad = NULL;
    size_t len;
    void *elements = test_alloc(bytes);
    if (bytes)
        memcpy(elements, of->src, bytes);
    s.src = elements;
    s.zeros = PICI_ZEROS_BY_VALUE;
    zeros_clear(elements, s.n, s.dtype);
    uint8_t *block = reference(&len, rig, &s, elements);
    if (!block)
        bad = wrong(&s, "ref", "encode");
    else
        zeros_negate(elements, s.n, s.dtype, ppm[rng_below(&rig->rng, 4)], &rig->rng);
    for (const struct pici_isa *const *isa = tested_isas(); *isa && !bad; isa++) {
        pici_isa_force(*isa);
        for (int side = GUARD_END; side <= GUARD_START && !bad; side++)
            bad = check_encode(rig, &s, block, len, (enum guard_side)side, (*isa)->name);
    }
    pici_isa_force(NULL);
    free(block);
    free(elements);
    return bad;
}

const char *check_codec(struct rig *rig, const struct subject *s)
{
    size_t len;
    uint8_t *block = reference(&len, rig, s, s->src);
    if (!block)
        return wrong(s, "ref", "encode");
    const char *bad = check_block(rig, s, block, len);
    free(block);
    return bad ? bad : check_by_value(rig, s);
}

/* The range [0, n) reads everything but the padding and the checksum; other ranges may miss a fault elsewhere. */
static const char *check_bad_range(struct rig *rig, const struct subject *s, const uint8_t *in, size_t len,
                                   const struct ref_fault *fault, int header_good, const char *isa)
{
    const unsigned width = header_good ? ref_width(s->dtype) : 1;
    const int whole_is_bad = fault->status && strcmp(fault->rule, "padding") != 0 &&
                             strcmp(fault->rule, "choice") != 0 && fault->status != REF_E_CHECKSUM;
    for (int i = 0; i < 4; i++) {
        uint64_t first = i ? rng_below(&rig->rng, s->n + 1) : 0, n = i ? rng_below(&rig->rng, s->n - first + 1) : s->n;
        uint8_t *out = place(rig, &rig->dst, (size_t)n * width, (enum guard_side)(i % 2), NULL);
        enum pici_status status = pici_decompress_range(out, first, n, in, len, NULL);
        if (!header_good && (int)status != fault->status)
            return wrong(s, isa, "range: %s, but the header breaks %s", pici_strerror(status), fault->rule);
        if (header_good && status && (status != PICI_E_CORRUPT || !fault->status))
            return wrong(s, isa, "range %" PRIu64 "+%" PRIu64 ": %s", first, n, pici_strerror(status));
        if (i == 0 && n && whole_is_bad && !status)
            return wrong(s, isa, "range of all: accepts a block that breaks %s", fault->rule);
        if (!guard_intact(&rig->dst))
            return wrong(s, isa, "range %" PRIu64 "+%" PRIu64 ": wrote outside", first, n);
    }
    return NULL;
}

static const char *check_verify(const struct subject *s, const uint8_t *in, size_t len, const struct ref_fault *want,
                                const char *isa)
{
    struct pici_fault f = PICI_FAULT_INIT;
    enum pici_status status = pici_verify_at(in, len, &f);
    if ((int)status != want->status || f.status != status || pici_verify(in, len) != status)
        return wrong(s, isa, "verify: %s, but it breaks %s", pici_strerror(status),
                     want->rule ? want->rule : "nothing");
    if (f.offset != want->offset || f.tile != want->tile || (f.rule == NULL) != (want->rule == NULL) ||
        (f.rule && strcmp(f.rule, want->rule) != 0))
        return wrong(s, isa, "fault %s at %" PRIu64 " tile %" PRIu64 ", not %s at %" PRIu64 " tile %" PRIu64,
                     f.rule ? f.rule : "-", f.offset, f.tile, want->rule ? want->rule : "-", want->offset, want->tile);
    return NULL;
}

static const char *check_inspect(const struct subject *s, const uint8_t *in, size_t len, const struct ref_header *h,
                                 enum ref_status want, const char *isa)
{
    struct pici_info info = PICI_INFO_INIT;
    enum pici_status status = pici_inspect(&info, in, len);
    if (!want && h->block_bytes > SIZE_MAX)
        return NULL; /* a host of 32 bits cannot say how long it is */
    if ((int)status != want)
        return wrong(s, isa, "inspect: %s", pici_strerror(status));
    if (!want && ((unsigned)info.format != h->format || (unsigned)info.dtype != h->dtype || info.count != h->count ||
                  info.nnz != h->nnz || info.block_bytes != h->block_bytes))
        return wrong(s, isa, "inspect: another header");
    return NULL;
}

const char *check_readers(struct rig *rig, const uint8_t *block, size_t len, uint64_t room)
{
    struct ref_fault fault;
    struct ref_header h;
    const enum ref_status header = ref_header(&h, block, len, NULL), status = ref_verify(block, len, &fault);
    /* whether every header rule holds, length's too */
    const int good = !header && h.block_bytes == len, fits = good && h.count <= room;
    struct subject s = {.n = fits ? h.count : 5, .dtype = PICI_U8, .threads = 1};
    const char *bad = NULL;
    uint8_t *decoded = test_alloc((size_t)s.n * 8), *before = test_alloc((size_t)s.n * 8),
            *after = test_alloc((size_t)s.n * 8), *flipped = test_alloc((size_t)s.n * 8);
    static const struct {
        const char *name;
        enum pici_status (*call)(void *, uint64_t, const void *, size_t, const struct pici_opts *);
    } readers[] = {{"decompress", pici_decompress}, {"scatter-add", pici_scatter_add}, {"apply", pici_apply}};
    const uint8_t *const outcome[] = {decoded, after, flipped};
    if (good) {
        s.dtype = (enum pici_dtype)h.dtype;
        s.format = (enum pici_format)h.format;
    }
    const size_t bytes = (size_t)s.n * (good ? ref_width(h.dtype) : 1);
    pattern_fill(before, s.n, good ? s.dtype : PICI_U8, PATTERN_50, &rig->rng);
    memcpy(after, before, bytes);
    /* of a block that breaks the rule "choice" alone, decoders decode the values */
    const int choice = fault.rule && !strcmp(fault.rule, "choice");
    const enum ref_status decoders = fits && choice ? ref_decode_any(decoded, s.n, block, len, 0) : status;
    if (fits && !decoders) {
        ref_decode_any(decoded, s.n, block, len, 0);
        ref_decode_any(after, s.n, block, len, 1);
        memcpy(flipped, before, bytes);
        flip(flipped, decoded, bytes);
        s.src = decoded;
    }
    for (const struct pici_isa *const *isa = tested_isas(); *isa && !bad; isa++) {
        const char *name = (*isa)->name;
        pici_isa_force(*isa);
        for (int side = GUARD_END; side <= GUARD_START && !bad; side++) {
            const uint8_t *in = place(rig, &rig->block, len, (enum guard_side)side, block);
            /* of a count that does not fit, what the readers of elements answer is that it is not the caller's */
            const enum pici_status want = good && !fits ? PICI_E_ARG : (enum pici_status)(int)decoders;
            bad = check_verify(&s, in, len, &fault, name);
            if (!bad)
                bad = check_inspect(&s, in, len, &h, header, name);
            if (bad)
                break;
            for (int i = 0; i < 3 && !bad; i++) {
                uint8_t *out = place(rig, &rig->dst, bytes, (enum guard_side)side, before);
                enum pici_status got = readers[i].call(out, s.n, in, len, NULL);
                if (got != want)
                    bad = wrong(&s, name, "%s: %s, but it breaks %s", readers[i].name, pici_strerror(got),
                                fault.rule ? fault.rule : "nothing");
                else if (!got && bytes && memcmp(out, outcome[i], bytes) != 0)
                    bad = wrong(&s, name, "%s: differs", readers[i].name);
                else if (!guard_intact(&rig->dst))
                    bad = wrong(&s, name, "%s: wrote outside", readers[i].name);
            }
            if (!bad && fits && !decoders)
                bad = check_ranges(rig, &s, in, len, (enum guard_side)side, name);
            if (!bad && !good | (fits && status))
                bad = check_bad_range(rig, &s, in, len, &fault, good, name);
            if (!bad && (!guard_intact(&rig->block) || (len && memcmp(in, block, len) != 0)))
                bad = wrong(&s, name, "wrote to the block");
        }
    }
    pici_isa_force(NULL);
    free(decoded);
    free(before);
    free(after);
    free(flipped);
    return bad;
}

const char *check_earlier(struct rig *rig, const struct subject *s, const uint8_t *block, size_t len)
{
    const size_t bytes = (size_t)s->n * ref_width(s->dtype);
    uint8_t *out = test_alloc(bytes);
    const char *bad = NULL;
    if (ref_decode(out, s->n, block, len) || (bytes && memcmp(out, s->src, bytes) != 0))
        bad = wrong(s, "ref", "decode");
    free(out);
    return bad ? bad : check_readers(rig, block, len, s->n);
}
