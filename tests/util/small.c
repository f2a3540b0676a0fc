/* SPDX-License-Identifier: BSD-3-Clause */
#include "small.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "formats/ref.h"
#include "formats/ref_small.h"
#include "pici/delta.h"

const char *step_name(enum step step)
{
    static const char *const names[STEPS] = {"none",  "tiny",  "usual",  "large", "all",
                                             "zeros", "signs", "random", "mixed"};
    return names[step];
}

static unsigned mantissa(enum pici_dtype dtype)
{
    static const unsigned bits[] = {
        [PICI_F32] = 23, [PICI_F16] = 10, [PICI_BF16] = 7, [PICI_F8E5M2] = 2, [PICI_U64] = 0};
    return bits[dtype] ? bits[dtype] : 3;
}

/* A weight: an exponent that is geometrically distributed, and any mantissa and sign. */
static uint64_t weight(struct rng *rng, enum pici_dtype dtype, unsigned exponent)
{
    const uint64_t r = rng_next(rng);
    for (uint64_t x = r >> 40; exponent && x & 1; x >>= 1)
        exponent--;
    const unsigned m = mantissa(dtype), w = 8 * ref_width(dtype);
    return (uint64_t)exponent << m | (r & ((UINT64_C(1) << m) - 1)) | (r >> 63) << (w - 1);
}

void step_fill(void *base, void *src, uint64_t n, enum pici_dtype dtype, enum step step, struct rng *rng)
{
    static const unsigned ppm[STEPS] = {0, 10000, 80000, 670000, 1000000, 500000, 200000, 1000000, 200000};
    const unsigned width = ref_width(dtype), m = mantissa(dtype);
    const uint64_t exponents = dtype == PICI_F32 || dtype == PICI_BF16 ? 122 : 14;
    const uint64_t rate = (dtype == PICI_F32 || dtype == PICI_BF16 ? UINT64_C(107) : 1) << m | 6;
    for (uint64_t i = 0; i < n; i++) {
        const int zero = rng_chance(rng, step == STEP_ZEROS ? 950000 : 50000);
        uint64_t u = zero                  ? 0
                     : step == STEP_RANDOM ? rng_next(rng)
                     : step == STEP_MIXED  ? value_random(rng, dtype)
                                           : weight(rng, dtype, (unsigned)exponents);
        ref_store(base, i, width, u);
        if (rng_chance(rng, ppm[step])) {
            const uint64_t r = rng_next(rng), far = step == STEP_LARGE
                                                        ? 1 + (r >> 8) % (dtype == PICI_F32 ? 90000 : 300)
                                                    : r % 16 == 0 ? 1 + (r >> 8) % 5
                                                                  : 1;
            if (step == STEP_SIGNS)
                u ^= UINT64_C(1) << (8 * width - 1);
            else if (step == STEP_RANDOM)
                u = r;
            else if (step == STEP_MIXED)
                u = value_random(rng, dtype);
            else if (zero)
                u = (r % 3 ? rate : rate - (r >> 8) % rate) | (r >> 63) << (8 * width - 1);
            else
                u += r >> 62 & 1 ? far : 0 - far;
        }
        ref_store(src, i, width, u);
    }
}

static char message[512];

static const char *wrong(const char *isa, uint64_t n, enum pici_dtype dtype, enum pici_format format, const char *what,
                         int status)
{
    snprintf(message, sizeof message, "%s %s %s n=%" PRIu64 ": %s (%s)", isa, pici_dtype_name(dtype),
             pici_format_name(format), n, what, pici_strerror((enum pici_status)status));
    return message;
}

static struct guard guards[4]; /* base or dst, src, delta, and what a damaged one makes */

static uint8_t *place(unsigned i, const void *from, size_t bytes, struct rng *rng)
{
    uint8_t *p = guard_place(&guards[i], bytes, rng_chance(rng, 500000) ? GUARD_END : GUARD_START,
                             rng_chance(rng, 500000) ? 0 : rng_below(rng, 17));
    if (from && bytes)
        memcpy(p, from, bytes);
    return p;
}

static const char *check_isa(const char *isa, const void *base, const void *src, uint64_t n, enum pici_dtype dtype,
                             enum pici_holds holds, enum pici_format format, int checksum, struct rng *rng,
                             const uint8_t *delta, size_t len)
{
    const size_t bytes = (size_t)n * ref_width(dtype);
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.checksum = checksum;
    opts.holds = holds;
    for (opts.threads = 1; opts.threads < 4; opts.threads += 2) {
        size_t got = 1;
        const uint8_t *a = place(0, base, bytes, rng), *b = place(1, src, bytes, rng);
        uint8_t *out = place(2, NULL, len, rng);
        enum pici_status s = pici_diff_small(out, len, &got, a, b, n, dtype, format, &opts);
        if (s || got != len || memcmp(out, delta, len) != 0)
            return wrong(isa, n, dtype, format, "another delta than the reference's", s);
        if (!guard_intact(&guards[0]) || !guard_intact(&guards[1]) || !guard_intact(&guards[2]) ||
            (bytes && (memcmp(a, base, bytes) != 0 || memcmp(b, src, bytes) != 0)))
            return wrong(isa, n, dtype, format, "diff wrote outside", s);
        uint8_t *dst = place(0, base, bytes, rng);
        s = pici_apply_small(dst, n, out, len, &opts);
        if (s || (bytes && memcmp(dst, src, bytes) != 0))
            return wrong(isa, n, dtype, format, "it does not lead there", s);
        if (!guard_intact(&guards[0]) || !guard_intact(&guards[2]) || memcmp(out, delta, len) != 0)
            return wrong(isa, n, dtype, format, "apply wrote outside", s);
        a = place(0, base, bytes, rng);
        out = place(2, delta, len - 1, rng);
        got = 1;
        s = pici_diff_small(out, len - 1, &got, a, b, n, dtype, format, &opts);
        if (s != PICI_E_SPACE || got != 0 || !guard_intact(&guards[2]))
            return wrong(isa, n, dtype, format, "it fits into a byte less", s);
        if (pici_apply_small(dst, n, out, len - 1, NULL) != PICI_E_CORRUPT)
            return wrong(isa, n, dtype, format, "what did not fit is a delta", s);
    }
    return NULL;
}

/* What the reference and each ISA say of any bytes. */
static const char *check_any(const void *base, uint64_t n, enum pici_dtype dtype, enum pici_format format,
                             const uint8_t *delta, size_t len, struct rng *rng)
{
    const size_t bytes = (size_t)n * ref_width(dtype);
    uint8_t *want = test_alloc(bytes);
    const char *bad = NULL;
    if (bytes)
        memcpy(want, base, bytes);
    const enum ref_status status = ref_small_apply(want, n, delta, len);
    for (const struct pici_isa *const *isa = tested_isas(); *isa && !bad; isa++) {
        pici_isa_force(*isa);
        uint8_t *dst = place(3, base, bytes, rng);
        const enum pici_status s = pici_apply_small(dst, n, place(2, delta, len, rng), len, NULL);
        if ((int)s != (int)status)
            bad = wrong((*isa)->name, n, dtype, format, "another status than the reference's", s);
        else if (!s && bytes && memcmp(dst, want, bytes) != 0)
            bad = wrong((*isa)->name, n, dtype, format, "other elements than the reference's", s);
        else if (!guard_intact(&guards[3]) || !guard_intact(&guards[2]))
            bad = wrong((*isa)->name, n, dtype, format, "apply wrote outside", s);
    }
    pici_isa_force(NULL);
    free(want);
    return bad;
}

static void guards_init(size_t bytes, size_t len)
{
    for (int i = 0; i < 4; i++)
        guard_init(&guards[i], (i == 2 ? len : bytes) + 64);
}

static void guards_free(void)
{
    for (int i = 0; i < 4; i++)
        guard_free(&guards[i]);
}

const char *check_small(const void *base, const void *src, uint64_t n, enum pici_dtype dtype, enum pici_holds holds,
                        enum pici_format format, int checksum, unsigned damages, struct rng *rng, const uint8_t *delta,
                        size_t len)
{
    size_t want_len;
    const char *bad = NULL;
    uint8_t *want = holds ? ref_small_encode_pairs(&want_len, base, src, n, 0, n, (unsigned)format, checksum)
                          : ref_small_encode(&want_len, base, src, n, dtype, (unsigned)format, checksum);
    if (!want || (delta && (len != want_len || memcmp(want, delta, len) != 0)))
        bad = wrong("reference", n, dtype, format, "another delta", 0);
    else if (pici_diff_small_bound(format, dtype, n) < want_len)
        bad = wrong("bound", n, dtype, format, "too small", 0);
    guards_init((size_t)n * ref_width(dtype), want_len + 16);
    for (const struct pici_isa *const *isa = tested_isas(); *isa && !bad; isa++) {
        pici_isa_force(*isa);
        bad = check_isa((*isa)->name, base, src, n, dtype, holds, format, checksum, rng, want, want_len);
    }
    pici_isa_force(NULL);
    for (unsigned i = 0; i < damages && !bad; i++) {
        uint8_t *other = test_alloc(want_len);
        memcpy(other, want, want_len);
        for (unsigned k = 0; k <= i % 3; k++) /* every other time in the first 300 bytes */
            other[rng_below(rng, i % 2 || want_len < 300 ? want_len : 300)] ^= (uint8_t)(1u << rng_below(rng, 8));
        ref_put(other + 8, 8, n);
        other[5] = (uint8_t)dtype;
        bad = check_any(base, n, dtype, format, other, want_len, rng);
        free(other);
    }
    guards_free();
    free(want);
    return bad;
}

const char *check_small_reader(const void *base, const void *src, uint64_t n, enum pici_dtype dtype,
                               const uint8_t *delta, size_t len, enum pici_status status)
{
    const size_t bytes = (size_t)n * ref_width(dtype);
    struct rng rng = {len};
    const char *bad = NULL;
    guards_init(bytes, len);
    for (const struct pici_isa *const *isa = tested_isas(); *isa && !bad; isa++) {
        pici_isa_force(*isa);
        uint8_t *dst = place(0, base, bytes, &rng);
        const enum pici_status s = pici_apply_small(dst, n, place(2, delta, len, &rng), len, NULL);
        if (s != status)
            bad = wrong((*isa)->name, n, dtype, PICI_AUTO, "another status", s);
        else if (!s && bytes && memcmp(dst, src, bytes) != 0)
            bad = wrong((*isa)->name, n, dtype, PICI_AUTO, "other elements", s);
        else if (!guard_intact(&guards[0]) || !guard_intact(&guards[2]))
            bad = wrong((*isa)->name, n, dtype, PICI_AUTO, "apply wrote outside", s);
    }
    pici_isa_force(NULL);
    guards_free();
    return bad;
}
