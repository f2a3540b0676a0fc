/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The model of context chunks (formats/small-delta.md): what is counted, which odds follow, and elements as bits. */
#ifndef PICI_LIB_CODEC_SMALL_MODEL_H
#define PICI_LIB_CODEC_SMALL_MODEL_H

#include <stddef.h>
#include <string.h>

#include "small_format.h"

struct small_tables {
    uint32_t low, top, frequent_odds, frequent, classes;
    uint32_t nodes[SMALL_CLASSES]; /* tree: bit x is set if node x has odds */
    uint8_t changed[SMALL_CLASSES], most[SMALL_CLASSES];
    uint8_t token[SMALL_CLASSES][SMALL_TOKENS]; /* odds of levels or nodes; 0 where there are none */
};

/* For odds q, the share of a 0, of SMALL_SHARES. */
extern const uint16_t pici_small_zero[256];

/* Set classes, changed, most, token and nodes from the number of changed elements of each class and token, and of
 * sampled elements of each class; tree: as in the shape. The struct was zero before. */
void pici_small_count(struct small_tables *, int tree, uint32_t tokens[SMALL_CLASSES][SMALL_TOKENS],
                      const uint32_t sampled[SMALL_CLASSES]);

/* Set frequent and frequent_odds from the mantissas of the n literals with token 0. */
void pici_small_frequent(struct small_tables *, const struct small_shape *, const uint32_t *mantissa, size_t n);

/* Write what a context chunk has before its words, but `words` and the states. Returns its bytes. */
size_t pici_small_put_tables(uint8_t *chunk, const struct small_tables *, int tree);

/* Read it from a chunk of len bytes. Returns its bytes; 0 if the chunk breaks a rule. Sets all of *t. */
size_t pici_small_get_tables(struct small_tables *t, const uint8_t *chunk, size_t len, const struct small_shape *);

/* Add the classes of the sampled elements among n at p to count. */
void pici_small_sample(uint32_t count[SMALL_CLASSES], const uint8_t *p, size_t n, const struct small_shape *,
                       unsigned low);

/* ---- elements ---- */

static inline uint32_t small_load(const uint8_t *p, size_t i, unsigned width_log2)
{
    uint16_t half;
    uint32_t whole;
    if (width_log2 == 1) {
        memcpy(&half, p + 2 * i, 2);
        return half;
    }
    memcpy(&whole, p + 4 * i, 4);
    return whole;
}

static inline void small_store(uint8_t *p, size_t i, uint32_t v, unsigned width_log2)
{
    const uint16_t half = (uint16_t)v;
    if (width_log2 == 1)
        memcpy(p + 2 * i, &half, 2);
    else
        memcpy(p + 4 * i, &v, 4);
}

/* All bits of an element, and its sign. */
static inline uint32_t small_mask(unsigned width_log2)
{
    return width_log2 == 1 ? UINT16_MAX : UINT32_MAX;
}

static inline uint32_t small_sign(unsigned width_log2)
{
    return width_log2 == 1 ? UINT32_C(1) << 15 : UINT32_C(1) << 31;
}

/* Bits of a float to an integer in the order of the floats, modulo 2^w, and back. */
static inline uint32_t small_ord(uint32_t u, unsigned width_log2)
{
    return u ^ ((small_mask(width_log2) >> 1) & (0 - (u >> (width_log2 == 1 ? 15 : 31))));
}

static inline unsigned small_exponent(uint32_t u, const struct small_shape *s)
{
    return u >> s->mantissa & s->exponents;
}

#endif
