/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Conversion between blocks and lists of positions and values, in time proportional to the entries. */
#ifndef PICI_LIB_CODEC_LIST_H
#define PICI_LIB_CODEC_LIST_H

#include "codec/block.h"

/* Positions ascend; values are in host order, at any alignment. Both arrays have room for `capacity` entries and
 * PICI_SLACK bytes; capacity is 0 in a list that owns no memory. */
struct pici_list {
    uint32_t *positions;
    uint8_t *values;
    uint64_t count, capacity;
};

/* Make room for this many entries, and keep existing ones. Returns 0, and changes nothing, if there is no memory. */
PICI_SHARED int pici_list_reserve(struct pici_list *, uint64_t entries, unsigned width_log2);
PICI_SHARED void pici_list_free(struct pici_list *);

/* Replace *list by the nonzeros of a block that pici_block_whole accepted, of at most 2^32 elements, not packed. Checks
 * the same rules as pici_block_decode. PICI_E_CORRUPT, also if there are more than `most`; PICI_E_CHECKSUM;
 * PICI_E_NOMEM. */
PICI_SHARED enum pici_status pici_list_read(struct pici_list *list, const struct pici_block *, uint64_t most);

/* The size of the block, coo or hybrid, of count <= 2^32 elements with the list's nonzeros. */
PICI_SHARED uint64_t pici_list_bytes(const struct pici_list *, enum pici_format, uint64_t count, enum pici_dtype);

/* Write that block, of that size: as pici_compress, but hybrid tiles never keep signs. */
PICI_SHARED void pici_list_write(uint8_t *block, const struct pici_list *, enum pici_format, uint64_t count,
                                 enum pici_dtype, int checksum);

/* The union of the positions of two lists, with both lists' values, +0 where one has none. The outputs have room for
 * the entries of both lists. Returns the number of positions. */
PICI_SHARED uint64_t pici_list_union(uint32_t *positions, uint8_t *first_values, uint8_t *second_values,
                                     const struct pici_list *first, const struct pici_list *second,
                                     unsigned width_log2);

/* dst[position] = value, in host order, for each entry. */
PICI_SHARED void pici_list_scatter(uint8_t *dst, const struct pici_list *, unsigned width_log2);

/* Replace the list by the nonzeros of count elements in host order. by_value: leave out -0.0 too. Returns 0 if there is
 * no memory. */
PICI_SHARED int pici_list_of_dense(struct pici_list *, const uint8_t *elements, uint64_t count, unsigned width_log2,
                                   int by_value);

/* Write the nonzeros among n elements in host order: their positions plus `first`, as uint32_t or uint64_t, and their
 * values. The arrays have room for exactly these. Returns their number. */
PICI_SHARED uint64_t pici_list_extract(uint8_t *indices, unsigned index_width, uint8_t *values, uint64_t room,
                                       const uint8_t *elements, uint64_t n, uint64_t first, unsigned width_log2);

#endif
