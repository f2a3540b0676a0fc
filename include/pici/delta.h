/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Deltas: blocks that store the changes between two buffers of the same length and dtype. Between two steps of
 * fine-tuning most weights keep all their bits, so the XOR of the two buffers is mostly zero. pici_diff encodes that
 * XOR. pici_apply XORs it into the first buffer, which then equals the second, bit for bit, for every dtype.
 *
 * A delta is an ordinary block: pici_inspect and pici_verify accept it, and pici_decompress returns the XOR. A delta
 * does not record its base. To detect a wrong base, store a hash of the right one with the delta, as picitool does
 * (formats/delta.md). The rules of pici.h about elements, ownership, memory, threads and options hold here too. */
#ifndef PICI_DELTA_H
#define PICI_DELTA_H

#include <pici/pici.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Encode base[i] ^ src[i] as one block, with the same bytes as pici_compress of that XOR. The call computes the XOR
 * tile by tile, on the stack, without a buffer.
 *   block [capacity bytes]       output; undefined unless PICI_OK. Must not overlap base or src
 *   size  out, bytes             of the block; 0 unless PICI_OK
 *   base  [n elements of dtype]  must not change during the call; may overlap src
 *   src   [n elements of dtype]  must not change during the call
 * A delta works in both directions: it turns base into src and src into base. pici_bound(format, dtype, n) bytes always
 * suffice.
 * Errors: as pici_compress; its rules for src hold for base too. Layout: formats/block.md, formats/hybrid.md,
 * formats/packed.md. */
PICI_API enum pici_status pici_diff(void *block, size_t capacity, size_t *size, const void *base, const void *src,
                                    uint64_t n, enum pici_dtype, enum pici_format, const struct pici_opts *);

/* XOR a block into dst, in place: dst[i] ^= x for each element x of the block with any bit set. Other elements of dst
 * keep their bits. Turns the base of a delta into src, and src into base.
 *   dst   [n elements of the block's dtype]   read and written; unspecified unless PICI_OK. Must not overlap block
 *   n     must equal the block's count
 *   block [size bytes]                        untrusted. The call checks the checksum, if there is one, and every rule
 *                                             of the format except `choice` of packed, which only pici_verify checks
 * The call may detect an invalid block only after applying a part of it. If you cannot restore dst, call pici_verify
 * first.
 * PICI_E_ARG: null (dst only if n > 0), overlap, n is not the block's count, bad options.
 * PICI_E_CORRUPT, PICI_E_VERSION, PICI_E_CHECKSUM, PICI_E_UNSUPPORTED: the block is invalid or not supported. */
PICI_API enum pici_status pici_apply(void *dst, uint64_t n, const void *block, size_t size, const struct pici_opts *);

/* ---- small deltas: several times shorter for floats, if a step changed only some of them ----
 *
 * A small delta codes changes with probabilities that depend on the old elements, so decoding needs the base. It codes
 * f32, f16, bf16, f8, and u8 that hold 4-bit floats (`holds` of struct pici_opts). Other dtypes, and chunks for which
 * this is no shorter, are stored as by pici_diff. A small delta only leads from base to src: to go back, make the delta
 * from src to base. It is not a block: pici_inspect, pici_verify and pici_decompress reject it.
 *   memory    these functions allocate up to 40 MiB per thread, for any n
 *   threads   each works on chunks of 2^19 elements */

/* The largest size of a small delta of n elements, for any `holds`. format: of chunks stored as by pici_diff. At least
 * 32. Returns 0 if format or dtype is unknown, for PICI_PACKED, or if the size does not fit in size_t. */
PICI_API size_t pici_diff_small_bound(enum pici_format, enum pici_dtype, uint64_t n);

/* Encode the changes from base to src as a small delta.
 *   block [capacity bytes]       output; undefined unless PICI_OK. Must not overlap base or src
 *   size  out, bytes             of the delta; 0 unless PICI_OK
 *   base  [n elements of dtype]  must not change during the call; may overlap src
 *   src   [n elements of dtype]  must not change during the call
 *   format                       of chunks stored as by pici_diff; PICI_AUTO: the shortest. Not PICI_PACKED, which is
 *                                PICI_E_UNSUPPORTED
 * pici_diff_small_bound(format, dtype, n) bytes always suffice. The delta has the same bytes on every CPU, at any
 * thread count. Deltas of f8, and of u8 that hold floats, have version 3, which 0.2 rejects. Errors: as pici_diff;
 * PICI_E_NOMEM; PICI_E_ARG: `holds` does not fit this dtype. Layout: formats/small-delta.md. */
PICI_API enum pici_status pici_diff_small(void *block, size_t capacity, size_t *size, const void *base, const void *src,
                                          uint64_t n, enum pici_dtype, enum pici_format, const struct pici_opts *);

/* Apply a small delta in place: dst, which must be the base, becomes src. With a wrong base, the call reports an
 * invalid delta or gives wrong elements. To detect a wrong base, store a hash of the right one with the delta.
 *   dst   [n elements of the delta's dtype]   read and written; unspecified unless PICI_OK. Must not overlap block
 *   n     must equal the delta's count
 *   block [size bytes]                        untrusted. The call checks every rule of the format, and the checksum if
 *                                             there is one
 * The call may detect an invalid delta only after applying some of its chunks.
 * PICI_E_ARG: null (dst only if n > 0), overlap, n is not the delta's count, bad options. PICI_E_NOMEM.
 * PICI_E_CORRUPT, PICI_E_VERSION, PICI_E_CHECKSUM: the delta is invalid, or dst is not its base. */
PICI_API enum pici_status pici_apply_small(void *dst, uint64_t n, const void *block, size_t size,
                                           const struct pici_opts *);

/* ---- parts of a tensor: shards of ranks, and several deltas at once ---- */

/* pici_diff_small for a rank's shard: elements [first, first + n) of a tensor of `of` elements. base and src hold only
 * these n. The delta stores their position, and applies to no other elements. To join the deltas of shards that do not
 * overlap, concatenate them in the order of their elements. Leave out the deltas of empty shards. The result is a delta
 * of all their elements, and also valid for pici_apply_small and pici_changes if it covers the whole tensor.
 * pici_diff_small_bound(format, dtype, n) + 16 bytes always suffice. With n == of, the call makes the same delta as
 * pici_diff_small. PICI_E_ARG: as pici_diff_small, or the elements are not within `of`. Others: as pici_diff_small. */
PICI_API enum pici_status pici_diff_small_part(void *block, size_t capacity, size_t *size, const void *base,
                                               const void *src, uint64_t n, uint64_t first, uint64_t of,
                                               enum pici_dtype, enum pici_format, const struct pici_opts *);

/* Apply small deltas, in order and in place, to elements [first, first + n) of a tensor of `of` elements.
 *   dst     [n elements of the deltas' dtype]   only these n elements; read and written; unspecified unless PICI_OK
 *   deltas  [count], of sizes[k] bytes each     of the whole tensor, of a part, or of several parts in a row (see
 *                                               pici_diff_small_part); untrusted. Must not overlap dst
 * The call reads only chunks that contain some of the n elements. A chunk has 2^19 elements, counted from the start of
 * the tensor, or of the delta's part. Decoding a chunk needs all of its base, unless it is stored as by pici_diff. So
 * for deltas of the whole tensor, use ranges that begin and end at multiples of 2^19; the call may reject others. It
 * applies deltas of the same elements in one pass, chunk by chunk. Memory: as for one delta, plus less than 200 bytes
 * per delta and 16 bytes per delta and thread. The call changes nothing unless all headers and all stored checksums are
 * right. It detects a wrong base no better than pici_apply_small.
 * PICI_E_ARG: null, overlap, bad options, or count is 0; deltas differ in dtype. Also: a delta does not cover all n
 * elements, or has another `of`; or a chunk that needs all of its base is only partly in the range. PICI_E_NOMEM.
 * Others: as pici_apply_small. */
PICI_API enum pici_status pici_apply_small_range(void *dst, uint64_t n, uint64_t first, uint64_t of,
                                                 const void *const *deltas, const size_t *sizes, size_t count,
                                                 const struct pici_opts *);

/* A shard of columns: the same elements of each row of a tensor, and their place in memory. If a tensor is split along
 * a dimension, a row has the elements of this dimension and all later ones. Example: [4, 6, 5], split along 6 into
 * three, has 4 rows of 30 elements. The second rank has elements 10 to 19 of each row. Set with PICI_COLUMNS_INIT. */
struct pici_columns {
    size_t size;
    uint64_t rows;       /* rows of the tensor; 1: the shard is a part, with consecutive elements */
    uint64_t row_length; /* elements of a row of the tensor */
    uint64_t first;      /* elements of a row before the shard's */
    uint64_t count;      /* elements of a row in the shard */
    uint64_t stride;     /* elements from one row of the shard to the next in memory; default 0: count, no gap */
};
#define PICI_COLUMNS_INIT                                                                                              \
    {                                                                                                                  \
        sizeof(struct pici_columns), 0, 0, 0, 0, 0                                                                     \
    }

/* pici_diff_small_part for a shard of columns: base and src begin with the shard's first element, with the memory
 * layout of columns. The delta stores its columns and the row length. It has version 4, which 0.2 rejects, unless the
 * shard has all elements, or there is one row. To join the deltas of shards that do not overlap, concatenate them in
 * the order of their columns. Leave out the deltas of empty shards. pici_diff_small_bound(format, dtype, elements of
 * the shard) + 24 bytes always suffice. Errors: as pici_diff_small_part; PICI_E_ARG also if columns are not within the
 * row, or exceed the stride; PICI_E_UNSUPPORTED: a later version's struct. */
PICI_API enum pici_status pici_diff_small_columns(void *block, size_t capacity, size_t *size, const void *base,
                                                  const void *src, const struct pici_columns *columns, enum pici_dtype,
                                                  enum pici_format, const struct pici_opts *);

/* pici_apply_small_range for a shard of columns. The deltas must cover all columns of the shard, and may cover more.
 * The shard must have all or none of the columns of each joined delta. So deltas of all columns also apply to the whole
 * tensor, here or by pici_apply_small, but deltas of rows or of the whole tensor do not apply to a shard. Memory: 8 MiB
 * more per thread, unless each delta has exactly the shard's columns, without a gap.
 * Errors: as pici_apply_small_range and pici_diff_small_columns. */
PICI_API enum pici_status pici_apply_small_columns(void *dst, const struct pici_columns *columns,
                                                   const void *const *deltas, const size_t *sizes, size_t count,
                                                   const struct pici_opts *);

/* Get the elements that a small delta covers; of joined deltas, the first one's. For a part, rows is 1, row_length the
 * length of the tensor, and first and count are elements. stride is 0.
 *   delta   [size bytes]   untrusted; the call checks the rules of its header and directory
 * PICI_E_ARG: null. PICI_E_CORRUPT, PICI_E_VERSION: the delta is invalid or not supported. */
PICI_API enum pici_status pici_small_get_columns(struct pici_columns *columns, const void *delta, size_t size);

/* Extract the changes of a delta among elements [first, first + n): positions and new values, in order. For programs
 * that patch weights in place, such as inference servers.
 *   base    [base_n elements of the delta's dtype]   the delta's base; only read
 *   base_n  must equal the delta's count
 *   delta   [size bytes]   a block of pici_diff, or a small delta; untrusted
 *   indices, index_bytes, values, capacity, count   as in pici_nonzeros; they must not overlap base either
 * From a small delta, the calling thread alone decodes the chunks of 2^19 elements that contain some of the n. It reads
 * all of base in these chunks.
 * PICI_E_ARG: as pici_nonzeros, or base_n is not the delta's count. PICI_E_SPACE: as pici_nonzeros. PICI_E_NOMEM.
 * PICI_E_UNSUPPORTED: a small delta of columns. Others: the delta is invalid or not supported, or base is not its
 * base. */
PICI_API enum pici_status pici_changes(void *indices, size_t index_bytes, void *values, uint64_t capacity,
                                       uint64_t *count, const void *base, uint64_t base_n, const void *delta,
                                       size_t size, uint64_t first, uint64_t n);

#ifdef __cplusplus
}
#endif
#endif
