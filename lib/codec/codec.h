/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of the codec share: checks of a caller's arguments, and copying elements between host and stored
 * order. */
#ifndef PICI_LIB_CODEC_CODEC_H
#define PICI_LIB_CODEC_CODEC_H

#include "codec/block.h"

/* Outputs of at least this many dense bytes use non-temporal stores, because they would displace all other data in the
 * caches. */
enum { PICI_STREAM_BYTES = 4 << 20 };

/* The least number of tiles that is worth starting a thread. */
enum { PICI_PIECE_TILES = 64 };

/* Check the given options and copy them to *options. Without them, set the defaults. PICI_E_ARG: a size or a value out
 * of range. PICI_E_UNSUPPORTED: a newer caller's option that is not zero. */
enum pici_status pici_opts_get(struct pici_opts *options, const struct pici_opts *given);

/* Do the two ranges of bytes overlap? */
static inline int pici_overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes)
{
    uintptr_t a_begin = (uintptr_t)a, b_begin = (uintptr_t)b;
    return a_bytes && b_bytes && (a_begin <= b_begin ? b_begin - a_begin < a_bytes : a_begin - b_begin < b_bytes);
}

/* pici_decompress and pici_scatter_add with default options, for a block that pici_block_parse and pici_block_whole
 * accepted. dst has block->count elements and does not overlap the block. output: number of elements of the array that
 * contains dst; from PICI_STREAM_BYTES on, dst is written by non-temporal stores. */
PICI_SHARED enum pici_status pici_block_decode(void *dst, const struct pici_block *block, uint64_t output);
PICI_SHARED enum pici_status pici_block_add(void *dst, const struct pici_block *block);

/* pici_apply for elements [first, first + count) of the block. Returns the errors of pici_decompress_range. */
enum pici_status pici_apply_range(void *dst, uint64_t first, uint64_t count, const void *block, size_t size,
                                  const struct pici_opts *options);

/* Copy elements of 1 << width_log2 bytes between host and stored order. A big-endian host swaps their bytes. */
void pici_copy_stored(void *dst, const void *src, size_t count, unsigned width_log2);

#endif
