/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Deltas: a block that stores what changed between two buffers of the same length and dtype. Between two steps of
 * fine-tuning most weights keep all their bits, so the XOR of the two buffers is mostly zero. pici_diff encodes that
 * XOR. pici_apply XORs it into the first buffer, which then equals the second, bit for bit, whatever the dtype.
 *
 * A delta is an ordinary block: pici_inspect and pici_verify accept it, and pici_decompress gives the XOR. It does not
 * record which buffer it applies to. If it could be applied to the wrong buffer, store a hash of the right one with it,
 * as picitool does (formats/delta.md). What pici.h says of elements, ownership, memory, threads and options holds here
 * too. */
#ifndef PICI_DELTA_H
#define PICI_DELTA_H

#include <pici/pici.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Encode the elements base[i] ^ src[i] as one block, with the same bytes as pici_compress of an array of them. The
 * difference is computed tile by tile, on the stack; no buffer for it is needed.
 *   block [cap bytes]            output; undefined unless PICI_OK. Must not overlap base or src
 *   len   out, bytes             length of the block; 0 unless PICI_OK
 *   base  [n elements of dtype]  must not change during the call; may overlap src
 *   src   [n elements of dtype]  must not change during the call
 * Exchanging base and src gives the same block, so it turns base into src and src into base. The block fits if cap >=
 * pici_bound(format, dtype, n).
 * Errors: as pici_compress; its rules for src hold for base too. Layout: formats/block.md, formats/hybrid.md. */
PICI_API enum pici_status pici_diff(void *block, size_t cap, size_t *len, const void *base, const void *src, uint64_t n,
                                    enum pici_dtype, enum pici_format, const struct pici_opts *);

/* XOR a block into dst, in place: dst[i] ^= x for each element x of the block that has a bit set, also a sign alone.
 * Other elements of dst keep their bits. Applied to the base of a delta, this gives src; applied to src, it gives base.
 *   dst   [n elements of the block's dtype]   read and written; unspecified unless PICI_OK. Must not overlap block
 *   n     must equal the block's count
 *   block [len bytes]                         untrusted: every rule of the format is checked, and the checksum if there
 *                                             is one
 * An invalid block may be detected only after a part of it was applied. If you cannot restore dst, call pici_verify
 * first.
 * PICI_E_ARG: null (dst only if n > 0), overlap, n is not the block's count, bad options.
 * PICI_E_CORRUPT, PICI_E_VERSION, PICI_E_CHECKSUM, PICI_E_UNSUPPORTED: what is wrong with the block. */
PICI_API enum pici_status pici_apply(void *dst, uint64_t n, const void *block, size_t len, const struct pici_opts *);

#ifdef __cplusplus
}
#endif
#endif
