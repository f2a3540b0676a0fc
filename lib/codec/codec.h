/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of the codec share: checks of a caller's arguments, and copying elements between host and stored
 * order. */
#ifndef PICI_LIB_CODEC_CODEC_H
#define PICI_LIB_CODEC_CODEC_H

#include "codec/block.h"

/* Output of this many dense bytes or more is written with non-temporal stores: it would displace all else in the
 * caches. */
enum { PICI_STREAM_BYTES = 4 << 20 };

/* The least work for which a thread is worth starting, in tiles. */
enum { PICI_PIECE_TILES = 64 };

/* Set out to the caller's options, or to the defaults if in is null. PICI_E_ARG: a size or a value out of range.
 * PICI_E_UNSUPPORTED: a newer caller's option that is not zero. */
enum pici_status pici_opts_get(struct pici_opts *out, const struct pici_opts *in);

/* Do the two ranges of bytes have a byte in common? */
static inline int pici_overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_bytes && b_bytes && (x <= y ? y - x < a_bytes : x - y < b_bytes);
}

/* pici_decompress and pici_scatter_add with default options, for a block that pici_block_parse and pici_block_whole
 * accepted. dst [b->count elements] does not overlap the block. output: elements of the array that dst is a part of;
 * from PICI_STREAM_BYTES on, dst is written with non-temporal stores. */
PICI_SHARED enum pici_status pici_block_decode(void *dst, const struct pici_block *b, uint64_t output);
PICI_SHARED enum pici_status pici_block_add(void *dst, const struct pici_block *b);

/* pici_apply for elements [first, first + n) of the block; the errors of pici_decompress_range. */
enum pici_status pici_apply_range(void *dst, uint64_t first, uint64_t n, const void *block, size_t len,
                                  const struct pici_opts *opts);

/* Copy n elements of 1 << width_log2 bytes between host and stored order: on a big-endian host, swap their bytes. */
void pici_copy_stored(void *dst, const void *src, size_t n, unsigned width_log2);

#endif
