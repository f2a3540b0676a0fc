/* SPDX-License-Identifier: BSD-3-Clause */
#include "measure/bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EXPONENTS = 256, LENGTHS = 128 /* lengths and signs of differences of f32 */ };

struct bound {
    size_t width, differences; /* differences: possible differences per exponent */
    bool pairs;                /* an element is two e2m1 */
    unsigned shift, largest;   /* position and maximum of the exponent in a float of 16 or 8 bits */
    uint64_t changed_elements;
    uint64_t elements[EXPONENTS], changed[EXPONENTS]; /* pairs count as two floats */
    uint64_t plain;                                   /* uncoded bits */
    uint64_t *count[EXPONENTS];                       /* [differences]; NULL: none so far */
};

static void set_narrow(struct bound *bound, unsigned bits, unsigned shift, unsigned largest)
{
    bound->differences = (size_t)1 << bits;
    bound->shift = shift;
    bound->largest = largest;
}

struct bound *bound_new(enum pici_dtype dtype, bool pairs)
{
    struct bound *const bound = calloc(1, sizeof *bound);
    if (!bound)
        return NULL;
    bound->width = pici_dtype_width(dtype);
    bound->pairs = pairs;
    bound->largest = EXPONENTS - 1;
    switch (dtype) {
    case PICI_F32: bound->differences = LENGTHS; break;
    case PICI_F16: set_narrow(bound, 16, 10, 31); break;
    case PICI_BF16: set_narrow(bound, 16, 7, 255); break;
    case PICI_F8E4M3: set_narrow(bound, 8, 3, 15); break;
    case PICI_F8E5M2: set_narrow(bound, 8, 2, 31); break;
    default:
        if (pairs)
            set_narrow(bound, 8, 0, 7);
    }
    for (unsigned exponent = 0; bound->differences && exponent <= bound->largest; exponent++) {
        bound->count[exponent] = calloc(bound->differences, sizeof **bound->count);
        if (!bound->count[exponent]) {
            bound_free(bound);
            return NULL;
        }
    }
    return bound;
}

void bound_free(struct bound *bound)
{
    for (unsigned exponent = 0; bound && exponent < EXPONENTS; exponent++)
        free(bound->count[exponent]);
    free(bound);
}

/* Counts one float of `bits` bits. Returns whether it changed. */
static bool add_narrow(struct bound *bound, unsigned old_bits, unsigned new_bits, unsigned bits)
{
    const unsigned exponent = old_bits >> bound->shift & bound->largest, rest = (1u << (bits - 1)) - 1;
    bound->elements[exponent]++;
    if (old_bits == new_bits)
        return false;
    const unsigned old_order = old_bits > rest ? old_bits ^ rest : old_bits;
    const unsigned new_order = new_bits > rest ? new_bits ^ rest : new_bits;
    bound->changed[exponent]++;
    bound->count[exponent][(new_order - old_order) & (2 * rest + 1)]++;
    return true;
}

static void add_16(struct bound *bound, const uint8_t *from, const uint8_t *to, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint16_t old_bits, new_bits;
        memcpy(&old_bits, from + 2 * i, 2);
        memcpy(&new_bits, to + 2 * i, 2);
        bound->changed_elements += add_narrow(bound, old_bits, new_bits, 16);
    }
}

/* Widens a float of four bits to eight, in the same order. */
static unsigned widened(unsigned bits)
{
    return (bits & 7) | (bits & 8) << 4;
}

static void add_8(struct bound *bound, const uint8_t *from, const uint8_t *to, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        bound->changed_elements += from[i] != to[i];
        if (!bound->pairs) {
            add_narrow(bound, from[i], to[i], 8);
            continue;
        }
        add_narrow(bound, widened(from[i] & 15), widened(to[i] & 15), 8);
        add_narrow(bound, widened(from[i] >> 4), widened(to[i] >> 4), 8);
    }
}

static void add_f32(struct bound *bound, const uint8_t *from, const uint8_t *to, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t old_bits, new_bits;
        memcpy(&old_bits, from + 4 * i, 4);
        memcpy(&new_bits, to + 4 * i, 4);
        const unsigned exponent = old_bits >> 23 & 255;
        bound->elements[exponent]++;
        if (old_bits == new_bits)
            continue;
        const uint32_t old_order = old_bits >> 31 ? old_bits ^ 0x7fffffff : old_bits;
        const uint32_t new_order = new_bits >> 31 ? new_bits ^ 0x7fffffff : new_bits;
        const uint32_t difference = new_order - old_order;
        const uint32_t magnitude = difference >> 31 ? 0 - difference : difference;
        unsigned length = 0; /* of the bits after the first */
        while (length < 31 && magnitude >> (length + 1))
            length++;
        bound->changed_elements++;
        bound->changed[exponent]++;
        bound->count[exponent][2 * length + (difference >> 31)]++;
        bound->plain += length;
    }
}

void bound_add(struct bound *bound, const void *from, const void *to, uint64_t count)
{
    if (bound->differences == 1 << 16) {
        add_16(bound, from, to, count);
    } else if (bound->differences == 1 << 8) {
        add_8(bound, from, to, count);
    } else if (bound->differences) {
        add_f32(bound, from, to, count);
    } else {
        const uint8_t *old_bytes = from, *new_bytes = to;
        bound->elements[0] += count;
        for (uint64_t i = 0; i < count; i++)
            bound->changed[0] += memcmp(old_bytes + i * bound->width, new_bytes + i * bound->width, bound->width) != 0;
        bound->changed_elements = bound->changed[0];
    }
}

uint64_t bound_changed(const struct bound *bound)
{
    return bound->changed_elements;
}

double bound_bits(const struct bound *bound)
{
    double bits = (double)bound->plain;
    for (unsigned exponent = 0; exponent < EXPONENTS; exponent++) {
        const double count = (double)bound->elements[exponent], changed = (double)bound->changed[exponent],
                     share = count > 0 ? changed / count : 0;
        if (share > 0 && share < 1)
            bits -= count * (share * log2(share) + (1 - share) * log2(1 - share));
        for (size_t difference = 0; changed > 0 && difference < bound->differences; difference++)
            if (bound->count[exponent][difference])
                bits -= (double)bound->count[exponent][difference] *
                        log2((double)bound->count[exponent][difference] / changed);
        if (!bound->differences)
            bits += 8 * changed * (double)bound->width;
    }
    return bits;
}
