/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The model of context chunks (formats/small-delta.md): its counts, the odds that follow from them, and elements as
 * bits. */
#ifndef PICI_LIB_CODEC_SMALL_MODEL_H
#define PICI_LIB_CODEC_SMALL_MODEL_H

#include <stddef.h>
#include <string.h>

#include "small_format.h"

struct small_tables {
    uint32_t low_exponent, top_exponent, frequent_odds, frequent, classes;
    uint32_t nodes[SMALL_CLASSES]; /* tree: bit x is set if node x has odds */
    uint8_t changed[SMALL_CLASSES], most[SMALL_CLASSES];
    uint8_t token[SMALL_CLASSES][SMALL_TOKENS]; /* odds of levels or nodes; 0 where there are none */
};

/* For odds q, the share of a 0, of SMALL_SHARES. */
extern const uint16_t pici_small_zero[256];

/* Set classes, changed, most, token and nodes. They follow from the number of changed elements of each class and token,
 * and of sampled elements of each class. tree: as in the shape. The caller has cleared the struct. */
void pici_small_count(struct small_tables *, int tree, uint32_t tokens[SMALL_CLASSES][SMALL_TOKENS],
                      const uint32_t sampled[SMALL_CLASSES]);

/* Set frequent and frequent_odds from the mantissas of the literals with token 0. */
void pici_small_frequent(struct small_tables *, const struct small_shape *, const uint32_t *mantissa, size_t literals);

/* Write all that precedes the words of a context chunk, except `words` and the states. Returns its bytes. */
size_t pici_small_put_tables(uint8_t *chunk, const struct small_tables *, int tree);

/* Read it from a chunk of size bytes, and set all of *tables. Returns its bytes, or 0 if the chunk breaks a rule. */
size_t pici_small_get_tables(struct small_tables *tables, const uint8_t *chunk, size_t size,
                             const struct small_shape *);

/* Count the classes of the sampled elements of base. Adds to count. */
void pici_small_sample(uint32_t count[SMALL_CLASSES], const uint8_t *base, size_t elements, const struct small_shape *,
                       unsigned low_exponent);

/* ---- elements ---- */

static inline uint32_t small_load(const uint8_t *elements, size_t i, unsigned width_log2)
{
    uint16_t half;
    uint32_t whole;
    if (width_log2 == 0)
        return elements[i];
    if (width_log2 == 1) {
        memcpy(&half, elements + 2 * i, 2);
        return half;
    }
    memcpy(&whole, elements + 4 * i, 4);
    return whole;
}

static inline void small_store(uint8_t *elements, size_t i, uint32_t value, unsigned width_log2)
{
    const uint16_t half = (uint16_t)value;
    if (width_log2 == 0)
        elements[i] = (uint8_t)value;
    else if (width_log2 == 1)
        memcpy(elements + 2 * i, &half, 2);
    else
        memcpy(elements + 4 * i, &value, 4);
}

/* All bits of an element, and its sign. */
static inline uint32_t small_mask(unsigned width_log2)
{
    return UINT32_MAX >> (32 - (8 << width_log2));
}

static inline uint32_t small_sign(unsigned width_log2)
{
    return UINT32_C(1) << ((8 << width_log2) - 1);
}

/* Bits of a float to an integer in the order of the floats, modulo 2^w, and back. */
static inline uint32_t small_ord(uint32_t bits, unsigned width_log2)
{
    return bits ^ ((small_mask(width_log2) >> 1) & (0 - (bits >> ((8 << width_log2) - 1))));
}

static inline unsigned small_exponent(uint32_t bits, const struct small_shape *shape)
{
    return bits >> shape->mantissa & shape->exponents;
}

#endif
