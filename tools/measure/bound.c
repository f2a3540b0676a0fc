/* SPDX-License-Identifier: BSD-3-Clause */
#include "measure/bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EXPONENTS = 256, LENGTHS = 128 /* of differences of f32, with a sign */ };

struct bound {
    enum pici_dtype dtype;
    size_t width, differences; /* differences: how many there are of one exponent */
    uint64_t n[EXPONENTS], k[EXPONENTS];
    uint64_t plain;             /* bits that are stored as they are */
    uint64_t *count[EXPONENTS]; /* [differences]; NULL: none so far */
};

struct bound *bound_new(enum pici_dtype dtype)
{
    struct bound *const b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->dtype = dtype;
    b->width = pici_dtype_width(dtype);
    b->differences = dtype == PICI_F16 || dtype == PICI_BF16 ? 1 << 16 : dtype == PICI_F32 ? LENGTHS : 0;
    for (unsigned e = 0; b->differences && e < (dtype == PICI_F16 ? 32 : EXPONENTS); e++) {
        b->count[e] = calloc(b->differences, sizeof **b->count);
        if (!b->count[e]) {
            bound_free(b);
            return NULL;
        }
    }
    return b;
}

void bound_free(struct bound *b)
{
    for (unsigned e = 0; b && e < EXPONENTS; e++)
        free(b->count[e]);
    free(b);
}

static void add_16(struct bound *b, const uint8_t *from, const uint8_t *to, uint64_t n)
{
    const unsigned shift = b->dtype == PICI_F16 ? 10 : 7, exponents = b->dtype == PICI_F16 ? 31 : 255;
    for (uint64_t i = 0; i < n; i++) {
        uint16_t u, v;
        memcpy(&u, from + 2 * i, 2);
        memcpy(&v, to + 2 * i, 2);
        const unsigned e = u >> shift & exponents;
        b->n[e]++;
        if (u == v)
            continue;
        const unsigned x = u >> 15 ? u ^ 0x7fffu : u, y = v >> 15 ? v ^ 0x7fffu : v;
        b->k[e]++;
        b->count[e][(y - x) & 0xffff]++;
    }
}

static void add_f32(struct bound *b, const uint8_t *from, const uint8_t *to, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint32_t u, value;
        memcpy(&u, from + 4 * i, 4);
        memcpy(&value, to + 4 * i, 4);
        const unsigned e = u >> 23 & 255;
        b->n[e]++;
        if (u == value)
            continue;
        const uint32_t d = (value >> 31 ? value ^ 0x7fffffff : value) - (u >> 31 ? u ^ 0x7fffffff : u);
        const uint32_t magnitude = d >> 31 ? 0 - d : d;
        unsigned length = 0; /* of the bits after the first */
        while (length < 31 && magnitude >> (length + 1))
            length++;
        b->k[e]++;
        b->count[e][2 * length + (d >> 31)]++;
        b->plain += length;
    }
}

void bound_add(struct bound *b, const void *from, const void *to, uint64_t n)
{
    if (b->differences == 1 << 16) {
        add_16(b, from, to, n);
    } else if (b->differences) {
        add_f32(b, from, to, n);
    } else {
        const uint8_t *p = from, *q = to;
        b->n[0] += n;
        for (uint64_t i = 0; i < n; i++)
            b->k[0] += memcmp(p + i * b->width, q + i * b->width, b->width) != 0;
    }
}

uint64_t bound_changed(const struct bound *b)
{
    uint64_t all = 0;
    for (unsigned e = 0; e < EXPONENTS; e++)
        all += b->k[e];
    return all;
}

double bound_bits(const struct bound *b)
{
    double bits = (double)b->plain;
    for (unsigned e = 0; e < EXPONENTS; e++) {
        const double n = (double)b->n[e], k = (double)b->k[e], p = n > 0 ? k / n : 0;
        if (p > 0 && p < 1)
            bits -= n * (p * log2(p) + (1 - p) * log2(1 - p));
        for (size_t d = 0; k > 0 && d < b->differences; d++)
            if (b->count[e][d])
                bits -= (double)b->count[e][d] * log2((double)b->count[e][d] / k);
        if (!b->differences)
            bits += 8 * k * (double)b->width;
    }
    return bits;
}
