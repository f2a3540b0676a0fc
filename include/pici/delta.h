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
 *   block [capacity bytes]       output; undefined unless PICI_OK. Must not overlap base or src
 *   size  out, bytes             of the block; 0 unless PICI_OK
 *   base  [n elements of dtype]  must not change during the call; may overlap src
 *   src   [n elements of dtype]  must not change during the call
 * Exchanging base and src gives the same block, so it turns base into src and src into base. The block fits if
 * capacity >= pici_bound(format, dtype, n).
 * Errors: as pici_compress; its rules for src hold for base too. Layout: formats/block.md, formats/hybrid.md,
 * formats/packed.md. */
PICI_API enum pici_status pici_diff(void *block, size_t capacity, size_t *size, const void *base, const void *src,
                                    uint64_t n, enum pici_dtype, enum pici_format, const struct pici_opts *);

/* XOR a block into dst, in place: dst[i] ^= x for each element x of the block that has a bit set, also a sign alone.
 * Other elements of dst keep their bits. Applied to the base of a delta, this gives src; applied to src, it gives base.
 *   dst   [n elements of the block's dtype]   read and written; unspecified unless PICI_OK. Must not overlap block
 *   n     must equal the block's count
 *   block [size bytes]                        untrusted: every rule of the format is checked, but `choice` of packed,
 *                                             which is for pici_verify; and the checksum if there is one
 * An invalid block may be detected only after a part of it was applied. If you cannot restore dst, call pici_verify
 * first.
 * PICI_E_ARG: null (dst only if n > 0), overlap, n is not the block's count, bad options.
 * PICI_E_CORRUPT, PICI_E_VERSION, PICI_E_CHECKSUM, PICI_E_UNSUPPORTED: what is wrong with the block. */
PICI_API enum pici_status pici_apply(void *dst, uint64_t n, const void *block, size_t size, const struct pici_opts *);

/* ---- small deltas: several times shorter for floats of which a step changed some ----
 *
 * A small delta codes what changed with probabilities that depend on the old elements, so a reader needs these to
 * decode it. f32, f16, bf16 and f8 are coded so where that is shorter, and u8 that hold floats of 4 bits (`holds` of
 * struct pici_opts); other dtypes, and what it does not suit, are stored as pici_diff does.
 * It leads from base to src alone: to go back, make the delta from src to base. It is not a block: pici_inspect,
 * pici_verify and pici_decompress refuse it.
 *   memory    these functions allocate, for each thread that they use, up to 40 MiB, whatever n is
 *   threads   each takes chunks of 2^19 elements */

/* The size of the longest small delta of n elements; the format is that of the chunks that are stored as
 * pici_diff does, and elements of u8 may hold what they will. At least 32. 0 if format or dtype is unknown, or if the
 * size does not fit in size_t. */
PICI_API size_t pici_diff_small_bound(enum pici_format, enum pici_dtype, uint64_t n);

/* Encode what leads from base to src as a small delta.
 *   block [capacity bytes]       output; undefined unless PICI_OK. Must not overlap base or src
 *   size  out, bytes             of the delta; 0 unless PICI_OK
 *   base  [n elements of dtype]  must not change during the call; may overlap src
 *   src   [n elements of dtype]  must not change during the call
 *   format                       of what is stored as pici_diff does; PICI_AUTO: the shortest
 * The delta fits if capacity >= pici_diff_small_bound(format, dtype, n). It has the same bytes on every CPU, at any
 * thread count. Deltas of f8, and of u8 that hold floats, have version 3, which 0.2 refuses.
 * Errors: as pici_diff; PICI_E_NOMEM; PICI_E_ARG: `holds` is not of this dtype. Layout: formats/small-delta.md. */
PICI_API enum pici_status pici_diff_small(void *block, size_t capacity, size_t *size, const void *base, const void *src,
                                          uint64_t n, enum pici_dtype, enum pici_format, const struct pici_opts *);

/* Apply a small delta in place: dst, which must be the base, becomes what it was made of. Applied to other elements, it
 * is found to be invalid, or gives other elements; if that can happen, store a hash of the base with it.
 *   dst   [n elements of the delta's dtype]   read and written; unspecified unless PICI_OK. Must not overlap block
 *   n     must equal the delta's count
 *   block [size bytes]                        untrusted: every rule of the format is checked, and the checksum if there
 *                                             is one
 * An invalid delta may be detected only after some of its chunks were applied.
 * PICI_E_ARG: null (dst only if n > 0), overlap, n is not the delta's count, bad options. PICI_E_NOMEM.
 * PICI_E_CORRUPT, PICI_E_VERSION, PICI_E_CHECKSUM: what is wrong with the delta, or with dst as its base. */
PICI_API enum pici_status pici_apply_small(void *dst, uint64_t n, const void *block, size_t size,
                                           const struct pici_opts *);

/* ---- parts of a tensor: ranks that have a shard each, and several deltas at once ---- */

/* pici_diff_small for elements [first, first + n) of a tensor of `of` elements, the shard of a rank: base and src have
 * these n alone. The delta stores where they lie, and can be applied to no other elements. Those of several shards that
 * do not overlap, one after the other in the order of their elements, are one delta again: of the whole tensor if they
 * have all of it. Such a row is also valid for pici_apply_small and pici_changes.
 * The delta fits if capacity >= pici_diff_small_bound(format, dtype, n) + 16. With n == of it is that of
 * pici_diff_small. PICI_E_ARG: as pici_diff_small, or the elements are not within `of`. Others: as pici_diff_small. */
PICI_API enum pici_status pici_diff_small_part(void *block, size_t capacity, size_t *size, const void *base,
                                               const void *src, uint64_t n, uint64_t first, uint64_t of,
                                               enum pici_dtype, enum pici_format, const struct pici_opts *);

/* Apply small deltas, one after the other, to elements [first, first + n) of a tensor of `of` elements, in place.
 *   dst     [n elements of the deltas' dtype]   these alone; read and written; unspecified unless PICI_OK
 *   deltas  [count], of sizes[k] bytes each     of the whole tensor, of a part of it, or of several parts in a row (see
 *                                               pici_diff_small_part); untrusted. Must not overlap dst
 * Only chunks that have some of the n elements are read. A chunk has 2^19 elements, counted from the first of the
 * tensor, or of the part that a delta is of, and needs all of its base to be decoded, unless it is stored as pici_diff
 * does. So of a delta of the whole tensor, use ranges that begin and end at multiples of 2^19; others may be refused.
 * Deltas of the same elements are applied in one pass, chunk by chunk. Memory: as for one, and for each delta less than
 * 200 bytes and 16 bytes a thread. Nothing is changed unless all headers, and the checksums that there are, are right.
 * A delta has no hash of the base, and what its chunks tell of it is little: see pici_apply_small.
 * PICI_E_ARG: null, overlap, bad options, count is 0, deltas differ in dtype, or one is not of all of these elements,
 * or of another `of`; or the range has only a part of a chunk that needs all of its base. PICI_E_NOMEM. Others: as
 * pici_apply_small. */
PICI_API enum pici_status pici_apply_small_range(void *dst, uint64_t n, uint64_t first, uint64_t of,
                                                 const void *const *deltas, const size_t *sizes, size_t count,
                                                 const struct pici_opts *);

/* A shard of columns: of each row of a tensor the same elements, and where they lie in memory. Of a tensor that is
 * split along a dimension, a row has all that follows from this dimension on: of [4, 6, 5], split along 6 in three,
 * there are 4 rows of 30 elements, of which the second rank has 10 from number 10 on. Set with PICI_COLUMNS_INIT. */
struct pici_columns {
    size_t size;
    uint64_t rows;       /* of the tensor; 1: the elements follow each other, as those of a part */
    uint64_t row_length; /* elements of the tensor in each row */
    uint64_t first;      /* of these, before those of the shard */
    uint64_t count;      /* and of the shard */
    uint64_t stride;     /* elements from one row of the shard to the next in memory; default 0: count, without a gap */
};
#define PICI_COLUMNS_INIT                                                                                              \
    {                                                                                                                  \
        sizeof(struct pici_columns), 0, 0, 0, 0, 0                                                                     \
    }

/* pici_diff_small_part for a shard of columns: base and src begin with its first element, and lie in memory as columns
 * says. The delta stores which columns it is of, and of rows of what length; it has version 4, which 0.2 refuses,
 * unless the shard has all elements, or there is one row. In a row, those of shards of the same tensor that do not
 * overlap, in the order of their columns, are one delta again.
 * The delta fits if capacity >= pici_diff_small_bound(format, dtype, elements of the shard) + 24.
 * Errors: as pici_diff_small_part; PICI_E_ARG also if columns are not within the row, or are more than the stride;
 * PICI_E_UNSUPPORTED: a later version's struct. */
PICI_API enum pici_status pici_diff_small_columns(void *block, size_t capacity, size_t *size, const void *base,
                                                  const void *src, const struct pici_columns *columns, enum pici_dtype,
                                                  enum pici_format, const struct pici_opts *);

/* pici_apply_small_range for a shard of columns. The deltas must have all columns of the shard, and may have more; of
 * the columns that one delta of a row has, the shard has all or none. So a whole tensor, too, is changed by the deltas
 * of all its columns, here or by pici_apply_small; and a shard is not changed by deltas of rows, or of the whole.
 * Memory: 8 MiB more for each thread, unless each delta has what the shard has, without a gap.
 * Errors: as pici_apply_small_range and pici_diff_small_columns. */
PICI_API enum pici_status pici_apply_small_columns(void *dst, const struct pici_columns *columns,
                                                   const void *const *deltas, const size_t *sizes, size_t count,
                                                   const struct pici_opts *);

/* Which elements a small delta is of; of several in a row, the first. Of a part, rows is 1, row_length what the tensor
 * has, and first and count are elements. Stride is 0.
 *   delta   [size bytes]   untrusted; the rules of its header and its directory are checked
 * PICI_E_ARG: null. PICI_E_CORRUPT, PICI_E_VERSION: what is wrong with the delta. */
PICI_API enum pici_status pici_small_get_columns(struct pici_columns *columns, const void *delta, size_t size);

/* What a delta changes among elements [first, first + n): their positions and their new values, in order. For programs
 * that patch weights where they are, as those of inference servers.
 *   base    [base_n elements of the delta's dtype]   what the delta was made from; is not changed
 *   base_n  must equal the delta's count
 *   delta   [size bytes]   a block, as of pici_diff, or a small delta; untrusted
 *   indices, index_bytes, values, capacity, count   as in pici_nonzeros; they must not overlap base either
 * Of a small delta, the chunks of 2^19 elements that have some of the n are decoded, on the calling thread alone; all
 * of base in these chunks is read.
 * PICI_E_ARG: as pici_nonzeros, or base_n is not the delta's count. PICI_E_SPACE: as pici_nonzeros. PICI_E_NOMEM.
 * PICI_E_UNSUPPORTED: a small delta of columns.
 * Others: what is wrong with the delta, or with base. */
PICI_API enum pici_status pici_changes(void *indices, size_t index_bytes, void *values, uint64_t capacity,
                                       uint64_t *count, const void *base, uint64_t base_n, const void *delta,
                                       size_t size, uint64_t first, uint64_t n);

#ifdef __cplusplus
}
#endif
#endif
