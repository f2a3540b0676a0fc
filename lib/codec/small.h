/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Context chunks of small deltas (formats/small-delta.md): encoding and decoding one. */
#ifndef PICI_LIB_CODEC_SMALL_H
#define PICI_LIB_CODEC_SMALL_H

#include <stddef.h>
#include <stdint.h>

#include "small_format.h"

enum { SMALL_STACK = 512 << 10 }; /* bytes of stack of a thread that encodes or decodes */

/* The checksum of a small delta of size bytes. */
uint64_t pici_small_hash(const uint8_t *delta, size_t size);

struct small_maker;

/* Allocate an encoder of chunks with up to count elements. Null if there is no memory. */
struct small_maker *pici_small_maker(uint64_t count, const struct small_shape *);
void pici_small_maker_free(struct small_maker *);

/* Encode a context chunk. Sets *chunk, which is valid until the next call. Returns its bytes, or 0 if there is none.
 * *least: out: a lower bound for the XOR block of the same elements. */
size_t pici_small_make(struct small_maker *, const uint8_t **chunk, uint64_t *least, const uint8_t *base,
                       const uint8_t *src, size_t count);

/* A context chunk to apply to the count elements at dst. */
struct small_part {
    const uint8_t *chunk;
    size_t bytes, count;
    uint8_t *dst;
    int keep;                  /* do not change dst, but set: */
    const uint32_t *changed;   /* a bit for each changed element. This and new_values are valid until the next call */
    const uint8_t *new_values; /* of those, in order */
    size_t changed_count;
};

struct small_reader;

/* Allocate a decoder of up to two chunks at a time, with up to count elements each. Null if there is no memory. */
struct small_reader *pici_small_reader(uint64_t count, const struct small_shape *);
void pici_small_reader_free(struct small_reader *);

/* Apply one or two context chunks. Returns 0 if one breaks a rule; its elements are then unchanged. */
int pici_small_apply(struct small_reader *, struct small_part *input, int count);

#endif
