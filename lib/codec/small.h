/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Context chunks of small deltas (formats/small-delta.md): encoding and decoding one. */
#ifndef PICI_LIB_CODEC_SMALL_H
#define PICI_LIB_CODEC_SMALL_H

#include <stddef.h>
#include <stdint.h>

#include "small_format.h"

struct small_maker;

/* Allocate what encodes chunks of up to count elements. Null if there is no memory. */
struct small_maker *pici_small_maker(uint64_t count, const struct small_shape *);
void pici_small_maker_free(struct small_maker *);

/* Encode a context chunk. Sets *chunk, which is valid until the next call, and returns its bytes, or 0 if there is
 * none. *least: out: no XOR block of the same elements is shorter. */
size_t pici_small_make(struct small_maker *, const uint8_t **chunk, uint64_t *least, const uint8_t *base,
                       const uint8_t *src, size_t count);

/* A context chunk to apply to count elements at dst. */
struct small_part {
    const uint8_t *chunk;
    size_t bytes, count;
    uint8_t *dst;
};

struct small_reader;

/* Allocate what decodes up to two chunks at a time, of up to count elements. Null if there is no memory. */
struct small_reader *pici_small_reader(uint64_t count, const struct small_shape *);
void pici_small_reader_free(struct small_reader *);

/* Apply one or two context chunks. Returns 0 if one breaks a rule; its elements are then unchanged. */
int pici_small_apply(struct small_reader *, const struct small_part *input, int count);

#endif
