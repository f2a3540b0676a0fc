/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Deltas: what changed between two buffers of the same length and dtype, as a block. Between two steps of fine-tuning
 * most weights keep all their bits, so the XOR of both buffers is mostly zero. pici_diff encodes that XOR; pici_apply
 * XORs it into the first buffer, which gives the second, bit for bit, whatever the dtype.
 *
 * A delta is an ordinary block: pici_inspect and pici_verify accept it, and pici_decompress gives the XOR. It does not
 * record which buffer it applies to. Where a mix-up is possible, keep a hash of that buffer beside it, as picitool does
 * (formats/delta.md). What pici.h says of elements, ownership, memory, threads and options holds here too. */
#ifndef PICI_DELTA_H
#define PICI_DELTA_H

#include <pici/pici.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Encode the elements base[i] ^ src[i] as one block: the same bytes that pici_compress makes of an array of them. The
 * difference is computed tile by tile, on the stack; no buffer for it is needed.
 *   block [cap bytes]            output; undefined unless PICI_OK. Must not overlap base or src
 *   len   out, bytes             length of the block; 0 unless PICI_OK
 *   base  [n elements of dtype]  must not change during the call; may overlap src
 *   src   [n elements of dtype]  must not change during the call
 * Exchanging base and src gives the same block, which leads in both directions. The block fits if
 * cap >= pici_bound(format, dtype, n).
 * Errors: as pici_compress, for base as for src. Layout: formats/block.md, formats/hybrid.md. */
PICI_API enum pici_status pici_diff(void *block, size_t cap, size_t *len, const void *base, const void *src, uint64_t n,
                                    enum pici_dtype, enum pici_format, const struct pici_opts *);

/* dst[i] ^= x for each nonzero element x that the block stores, in place: base becomes src, and src becomes base. Other
 * elements of dst keep their bits.
 *   dst   [n elements of the block's dtype]   read and written; unspecified unless PICI_OK. Must not overlap block
 *   n     must equal the block's count
 *   block [len bytes]                         untrusted: every rule of the format is checked, and the checksum if there
 *                                             is one
 * A breach may be found after a part of the block was applied. If dst cannot be restored, call pici_verify first.
 * PICI_E_ARG: null (dst only if n > 0), overlap, n is not the block's count, bad options.
 * PICI_E_CORRUPT, PICI_E_VERSION, PICI_E_CHECKSUM, PICI_E_UNSUPPORTED: what is wrong with the block. */
PICI_API enum pici_status pici_apply(void *dst, uint64_t n, const void *block, size_t len, const struct pici_opts *);

#ifdef __cplusplus
}
#endif
#endif
