/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of the codec share: checks of a caller's arguments, and elements between host and stored order. */
#ifndef PICI_LIB_CODEC_CODEC_H
#define PICI_LIB_CODEC_CODEC_H

#include "codec/block.h"

/* Output from this many dense bytes on is larger than the caches are worth: it is written past them. */
enum { PICI_STREAM_BYTES = 4 << 20 };

/* A worthwhile piece of work for a thread, in tiles. */
enum { PICI_PIECE_TILES = 64 };

/* Defaults, or the caller's options, checked. */
enum pici_status pici_opts_get(struct pici_opts *out, const struct pici_opts *in);

int pici_overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes);

/* A block whose header is parsed and whole: as pici_decompress and pici_scatter_add with default options. dst [b->count]
 * does not overlap the block. output: elements of the array that dst is a part of; from PICI_STREAM_BYTES on it is written
 * with non-temporal stores. */
enum pici_status pici_block_decode(void *dst, const struct pici_block *b, uint64_t output);
enum pici_status pici_block_add(void *dst, const struct pici_block *b);

/* As pici_decompress_range, for pici_apply. */
enum pici_status pici_apply_range(void *dst, uint64_t first, uint64_t n, const void *block, size_t len,
                                  const struct pici_opts *opts);

/* Copy n elements of 1 << width_log2 bytes, swapping them on a big-endian host. */
void pici_copy_stored(void *dst, const void *src, size_t n, unsigned width_log2);

#endif
