/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Blocks made of lists of positions and values, and lists made of blocks, in time that follows the entries. */
#ifndef PICI_LIB_CODEC_LIST_H
#define PICI_LIB_CODEC_LIST_H

#include "codec/block.h"

/* Positions rise; values are in host order, at any alignment. Both arrays have room for PICI_SLACK bytes more than
 * `capacity` entries; capacity is 0 in a list that owns no memory. */
struct pici_list {
    uint32_t *positions;
    uint8_t *values;
    uint64_t count, capacity;
};

/* Room for so many entries; those that there are stay. Returns 0, and changes nothing, if there is no memory. */
PICI_SHARED int pici_list_reserve(struct pici_list *, uint64_t entries, unsigned width_log2);
PICI_SHARED void pici_list_free(struct pici_list *);

/* The nonzeros of a block that pici_block_whole accepted, of at most 2^32 elements, not packed. Its list replaces what
 * is in *list. Checks what pici_block_decode checks. PICI_E_CORRUPT, also if there are more than `most`;
 * PICI_E_CHECKSUM; PICI_E_NOMEM. */
PICI_SHARED enum pici_status pici_list_read(struct pici_list *list, const struct pici_block *, uint64_t most);

/* The bytes of the block, coo or hybrid, of count <= 2^32 elements of which those in the list are nonzero and the
 * others zero. */
PICI_SHARED uint64_t pici_list_bytes(const struct pici_list *, enum pici_format, uint64_t count, enum pici_dtype);

/* Write that block, of that size: the one that pici_compress makes, but that hybrid tiles never keep signs. */
PICI_SHARED void pici_list_write(uint8_t *block, const struct pici_list *, enum pici_format, uint64_t count,
                                 enum pici_dtype, int checksum);

/* The positions that are in one of two lists, and beside each what both have there, +0 where one has nothing. The
 * outputs have room for the entries of both lists. Returns how many there are. */
PICI_SHARED uint64_t pici_list_union(uint32_t *positions, uint8_t *first_values, uint8_t *second_values,
                                     const struct pici_list *first, const struct pici_list *second,
                                     unsigned width_log2);

/* dst[position] = value, in host order, for each entry. */
PICI_SHARED void pici_list_scatter(uint8_t *dst, const struct pici_list *, unsigned width_log2);

/* Replace the list by the nonzeros of count elements in host order, or with by_value by those that are not -0.0
 * either. Returns 0 if there is no memory. */
PICI_SHARED int pici_list_of_dense(struct pici_list *, const uint8_t *elements, uint64_t count, unsigned width_log2,
                                   int by_value);

/* The nonzeros among n elements in host order: their positions plus `first`, as uint32_t or uint64_t, and their values,
 * to arrays that have room for them and no more. Returns how many there are. */
PICI_SHARED uint64_t pici_list_extract(uint8_t *indices, unsigned index_width, uint8_t *values, uint64_t room,
                                       const uint8_t *elements, uint64_t n, uint64_t first, unsigned width_log2);

#endif
