/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Deltas: what changed from one buffer to another, as a block. Between two steps of fine-tuning most weights keep all
 * their bits; the block of the XOR of both steps has a value for each one that did not, and XORed into the one it gives
 * the other, bit for bit, whatever the dtype.
 *
 * A delta is a block like any other: pici_inspect, pici_verify and pici_decompress (to the XOR itself) read it. It does not
 * say what it is a delta of: keep a hash beside it where that could be mistaken, as picitool does (formats/delta.md). */
#ifndef PICI_DELTA_H
#define PICI_DELTA_H

#include <pici/pici.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Encode what src has that base has not, base[i] ^ src[i], as one block: the very block that pici_compress makes of these n
 * elements. They are made by the tile, on the stack.
 *   block, cap, len, opts   as for pici_compress, which has the same bounds
 *   base, src               [n elements of dtype] any alignment; they may overlap each other, but not block
 * base and src may trade places: the block is the same, and leads back as well.
 * PICI_E_ARG: as for pici_compress, of base too. PICI_E_SPACE: did not fit. */
PICI_API enum pici_status pici_diff(void *block, size_t cap, size_t *len, const void *base, const void *src, uint64_t n,
                                    enum pici_dtype, enum pici_format, const struct pici_opts *);

/* dst[i] ^= x for each stored x: in place, base becomes src, and with the same block again base. Other elements are not
 * written, and nearly none are read.
 *   dst   [n elements]  any alignment, host byte order; unspecified unless PICI_OK; must not overlap block
 *   block [len bytes]   any bytes at all: every rule of the format is checked
 * Some of a block that is not valid may have been applied before that shows: pici_verify it first where dst cannot be had
 * again. PICI_E_ARG: null, overlap, n is not the block's count. PICI_E_CORRUPT, _VERSION, _CHECKSUM, _UNSUPPORTED: the
 * block. */
PICI_API enum pici_status pici_apply(void *dst, uint64_t n, const void *block, size_t len, const struct pici_opts *);

#ifdef __cplusplus
}
#endif
#endif
