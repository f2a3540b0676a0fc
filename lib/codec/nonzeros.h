/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Positions and values of elements, as they are found. */
#ifndef PICI_LIB_CODEC_NONZEROS_H
#define PICI_LIB_CODEC_NONZEROS_H

#include <stddef.h>
#include <stdint.h>

#include "pici/pici.h"

struct pici_found {
    uint8_t *indices, *values; /* [capacity] each; either may be null */
    unsigned index_log2, width_log2;
    uint64_t capacity;
    uint64_t count; /* found so far; the first `capacity` are stored */
    uint64_t first; /* the element that has position 0 */
};

/* Set all members from a caller's arguments. PICI_E_ARG: one of them is wrong. n: elements to examine. */
enum pici_status pici_found_begin(struct pici_found *, void *indices, size_t index_bytes, void *values,
                                  uint64_t capacity, uint64_t first, uint64_t n);

/* Set *found. PICI_E_SPACE if it exceeds the capacity. */
enum pici_status pici_found_end(const struct pici_found *, uint64_t *found);

/* Add elements [from, from + n) of a block. start: number of its element 0 in the whole array. base: null, or an array
 * to XOR the block's elements with. Returns as pici_decompress_range. */
enum pici_status pici_found_block(struct pici_found *, const void *block, size_t size, uint64_t from, uint64_t n,
                                  uint64_t start, const uint8_t *base);

/* Add elements [first, first + n) of an unchecked block with all elements. PICI_E_ARG: the range is not within its
 * count. */
enum pici_status pici_found_all(struct pici_found *, const void *block, size_t size, uint64_t first, uint64_t n,
                                const uint8_t *base);

/* Add the elements that have a bit set in `bits`, if they are among [first, end) of the whole array. start: number of
 * the first of the n elements. values: of all elements with a bit. */
void pici_found_bits(struct pici_found *, const uint32_t *bits, const uint8_t *values, size_t n, uint64_t start,
                     uint64_t first, uint64_t end);

#endif
