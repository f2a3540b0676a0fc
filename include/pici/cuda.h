/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The codec on a GPU: encodes and decodes blocks in device memory. Blocks have the same bytes as on the host. Link with
 * libpici_cuda and the CUDA runtime. Needs compute capability 8.0 or higher. To call device functions from your own
 * kernels, see pici/device.cuh.
 *
 * A call checks its arguments, enqueues at most one memset and two kernels on the stream (seven for PICI_AUTO, more for
 * large batches), and returns. It does not allocate, does not wait and keeps no state, so it can be captured into a
 * CUDA graph. Status and size depend on the data, so the device computes them. When the call's work has completed in
 * the stream, a struct pici_cuda_result in device memory holds both.
 *
 *   pointers     point to memory that the current device can access; only `jobs` is host memory. The caller owns the
 *                memory, and keeps it valid until the call's work has completed in the stream
 *   alignment    bytes: blocks and workspaces 16; results, and sizes in device memory 8; elements: their width
 *   status       the call returns errors that the host can detect:
 *     PICI_E_ARG           null, misaligned, overlapping, unknown dtype or format, or a workspace that is too small
 *     PICI_E_SPACE         no block of n elements fits in capacity, for any values
 *     PICI_E_UNSUPPORTED   not supported on the GPU; each function lists its cases
 *     PICI_E_DEVICE        the CUDA runtime reported an error: no device, too old a device, or an earlier error
 *   After any error but PICI_E_DEVICE nothing was enqueued. */
#ifndef PICI_CUDA_H
#define PICI_CUDA_H

#include <cuda_runtime.h>

#include "pici/pici.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The outcome of a call: 32 bytes, written on the device. */
struct pici_cuda_result {
    uint64_t len;    /* bytes of the block; 0 unless PICI_OK */
    int32_t status;  /* enum pici_status */
    uint32_t rule;   /* pici_verify_cuda: the broken rule, for pici_cuda_rule; otherwise 0 */
    uint64_t offset; /* pici_verify_cuda: offset and tile of struct pici_fault; otherwise 0 */
    uint64_t tile;
};

/* A rule's name in formats/block.md, hybrid.md or packed.md, such as "tile-index". Static. NULL for 0 and unknown
 * numbers. */
PICI_API const char *pici_cuda_rule(uint32_t rule);

/* Bytes of workspace in device memory to encode a block of n elements in any format. 0 for an unknown dtype, or if the
 * number does not fit in size_t. Reading a block of any n needs PICI_CUDA_READ_WORKSPACE bytes; a workspace for
 * encoding also works. A batch needs the sum over its blocks, each rounded up to a multiple of 16. Calls that may run
 * at the same time must not share a workspace. */
PICI_API size_t pici_cuda_workspace(enum pici_dtype, uint64_t n);
#define PICI_CUDA_READ_WORKSPACE 64

/* Encode n elements of src as one block. The block has no checksum: XXH64 is serial, and on a GPU would take much
 * longer than the encoding.
 *   block      out, [capacity bytes]  undefined unless the result is PICI_OK; it then does not begin with a valid
 *                                     header
 *   result     out                    status: PICI_OK, or PICI_E_SPACE if the block does not fit in capacity. len:
 *                                     bytes of the block
 *   src        [n elements of dtype]  must not overlap block, result or workspace
 *   workspace  [workspace_bytes]      at least pici_cuda_workspace(dtype, n); may hold any bytes
 * How often a call reads src depends on the format:
 *   PICI_DENSE, PICI_BITMAP   once
 *   PICI_HYBRID               once. It reads tiles with more than 2 KiB of values again, mostly from a cache. If there
 *                             are so few tiles that each can have its own warp, it reads all again
 *   PICI_COO                  twice: it counts all nonzeros before it places values
 *   PICI_PACKED               two or three times, all but once mostly from a cache
 *   PICI_AUTO                 once to count nonzeros, then as for PICI_HYBRID, and again if another format is shorter,
 *                             as for dense and for short blocks
 * PICI_AUTO makes the same block as pici_compress. The host cannot see the elements, so it launches the kernels of all
 * formats; kernels of unused formats return at once. Returns the errors listed at the top of this file, and
 * PICI_E_UNSUPPORTED for PICI_PACKED of integers. */
PICI_API enum pici_status pici_compress_cuda(void *block, size_t capacity, struct pici_cuda_result *result,
                                             const void *src, uint64_t n, enum pici_dtype, enum pici_format,
                                             void *workspace, size_t workspace_bytes, cudaStream_t);

/* The same with options; NULL means PICI_OPTS_INIT. `zeros` and `pack` work as in pici_compress; `threads` has no
 * effect. With `pack`, PICI_HYBRID takes two kernels: the first makes the packed block; if that is not shorter, the
 * second makes the hybrid block. PICI_AUTO does the same. PICI_E_ARG also: a member out of range, or a size below
 * 0.1.0's. PICI_E_UNSUPPORTED also: checksum, or options of a later version. */
PICI_API enum pici_status pici_compress_opts_cuda(void *block, size_t capacity, struct pici_cuda_result *result,
                                                  const void *src, uint64_t n, enum pici_dtype, enum pici_format,
                                                  const struct pici_opts *, void *workspace, size_t workspace_bytes,
                                                  cudaStream_t);

/* Encode base[i] ^ src[i] as one block, with the same bytes as pici_diff. The call never stores the XOR in memory, and
 * reads base as often as src.
 *   base   [n elements of dtype]  may overlap src, but not block, result or workspace
 * All else as for pici_compress_cuda. Fastest if base and src are both aligned to two elements (PICI_DENSE: to 16
 * bytes). */
PICI_API enum pici_status pici_diff_cuda(void *block, size_t capacity, struct pici_cuda_result *result,
                                         const void *base, const void *src, uint64_t n, enum pici_dtype,
                                         enum pici_format, void *workspace, size_t workspace_bytes, cudaStream_t);

/* Decode a block to its n elements of dtype.
 *   dst        out, [n elements of dtype]  unspecified unless the result is PICI_OK; must not overlap block, result or
 *                                          workspace
 *   block      [size bytes]                untrusted. The call checks every rule of the format except `choice` of
 *                                          packed, which only pici_verify_cuda checks. One warp checks a checksum,
 *                                          because XXH64 is serial
 *   size_at    NULL, or in device memory   the block's size, such as &result->len of the call that encoded it. size is
 *                                          then the capacity of block; if *size_at is greater, the result's status is
 *                                          PICI_E_ARG
 *   result     out                         status: as from pici_decompress; PICI_E_ARG also if the block has another
 *                                          dtype. len: bytes of the block
 *   workspace  [workspace_bytes]           at least PICI_CUDA_READ_WORKSPACE; may hold any bytes
 * Returns the errors listed at the top of this file, except PICI_E_SPACE and PICI_E_UNSUPPORTED. */
PICI_API enum pici_status pici_decompress_cuda(void *dst, uint64_t n, enum pici_dtype, const void *block, size_t size,
                                               const uint64_t *size_at, struct pici_cuda_result *result,
                                               void *workspace, size_t workspace_bytes, cudaStream_t);

/* dst[i] += x for each stored x, with the same bits as pici_scatter_add. One exception: infinity minus infinity gives a
 * NaN with a clear sign bit; in pici_scatter_add the host's CPU chooses the sign. All else as for
 * pici_decompress_cuda. */
PICI_API enum pici_status pici_scatter_add_cuda(void *dst, uint64_t n, enum pici_dtype, const void *block, size_t size,
                                                const uint64_t *size_at, struct pici_cuda_result *result,
                                                void *workspace, size_t workspace_bytes, cudaStream_t);

/* dst[i] ^= x for each stored x, as pici_apply: turns base into src in place, and src back into base. If the block
 * proves corrupt, the call does not undo the part that it already applied. All else as for pici_decompress_cuda. */
PICI_API enum pici_status pici_apply_cuda(void *dst, uint64_t n, enum pici_dtype, const void *block, size_t size,
                                          const uint64_t *size_at, struct pici_cuda_result *result, void *workspace,
                                          size_t workspace_bytes, cudaStream_t);

/* Check every rule of the format. The result has the status, rule, offset and tile of pici_verify_at. All else as for
 * pici_decompress_cuda. */
PICI_API enum pici_status pici_verify_cuda(const void *block, size_t size, const uint64_t *size_at,
                                           struct pici_cuda_result *result, void *workspace, size_t workspace_bytes,
                                           cudaStream_t);

/* ---- small deltas (pici/delta.h) ----
 *
 * Same bytes as pici_diff_small and same statuses as pici_apply_small. Each warp codes a chunk of 2^19 elements, so a
 * GPU pays off from some hundred chunks on. A call enqueues at most one memset and four kernels.
 *   workspace   in device memory, aligned to 16; may hold any bytes. A larger one lets more chunks run at a time. To
 *               diff, a chunk needs 8 MiB (f8), 10 MiB (bf16, f16) or 15 MiB (f32, and u8 that hold 4-bit floats); to
 *               apply, 4, 5 or 7 MiB. A diff also builds the delta here before copying it to block
 * Elements are aligned to their width, deltas to 16. Errors: those listed at the top of this file; a workspace too
 * small for one chunk is PICI_E_ARG. */

/* Bytes of workspace for `at_once` chunks at a time (0: 256), or for all chunks of n elements if these are fewer. For
 * u8, enough for any `holds`. Returns 0 for an unknown dtype, an unknown format or PICI_AUTO, or if the number does not
 * fit in size_t. */
PICI_API size_t pici_diff_small_cuda_workspace(enum pici_format, enum pici_dtype, uint64_t n, unsigned at_once);
PICI_API size_t pici_apply_small_cuda_workspace(enum pici_dtype, uint64_t n, unsigned at_once);

/* Encode the changes from base to src as a small delta, without a checksum.
 *   block      out, [capacity bytes]     undefined unless the result is PICI_OK; it then does not begin
 *                                        with a valid header. pici_diff_small_bound(format, dtype, n) is enough
 *   result     out                       status: PICI_OK or PICI_E_SPACE. len: bytes of the delta
 *   base, src  [n elements of dtype]     must not overlap block, result or workspace
 *   format                               of chunks stored as by pici_diff_cuda; not PICI_AUTO */
PICI_API enum pici_status pici_diff_small_cuda(void *block, size_t capacity, struct pici_cuda_result *result,
                                               const void *base, const void *src, uint64_t n, enum pici_dtype,
                                               enum pici_format, void *workspace, size_t workspace_bytes, cudaStream_t);

/* pici_diff_small_part on the GPU: encodes elements [first, first + n) of a tensor of `of` elements. base and src hold
 * only these n. Options: NULL means PICI_OPTS_INIT; `holds` says what elements of u8 hold; `zeros`, `pack` and
 * `threads` have no effect. If n is not `of`, pici_diff_small_bound(format, dtype, n) + 16 bytes are enough. All else
 * as for pici_diff_small_cuda; PICI_E_ARG and PICI_E_UNSUPPORTED also as for pici_compress_opts_cuda. */
PICI_API enum pici_status pici_diff_small_part_cuda(void *block, size_t capacity, struct pici_cuda_result *result,
                                                    const void *base, const void *src, uint64_t n, uint64_t first,
                                                    uint64_t of, enum pici_dtype, enum pici_format,
                                                    const struct pici_opts *, void *workspace, size_t workspace_bytes,
                                                    cudaStream_t);

/* Apply a small delta to dst, which must be its base. Arguments as for pici_apply_cuda; block is untrusted.
 *   result  status: as from pici_apply_small; PICI_E_ARG also if the delta has another dtype; PICI_E_VERSION: a delta
 *           of columns (pici_apply_small_columns_cuda); PICI_E_UNSUPPORTED: more than 1024 parts in a row. len: bytes
 *           of the delta. After PICI_E_CORRUPT, other chunks may have been applied */
PICI_API enum pici_status pici_apply_small_cuda(void *dst, uint64_t n, enum pici_dtype, const void *block, size_t size,
                                                const uint64_t *size_at, struct pici_cuda_result *result,
                                                void *workspace, size_t workspace_bytes, cudaStream_t);

/* pici_apply_small_range on the GPU, for one delta or several deltas of parts in a row. dst holds elements [first,
 * first + n) of a tensor of `of` elements. The result is PICI_E_ARG also if the range includes only a part of a chunk
 * of any kind. All else as for pici_apply_small_cuda. */
PICI_API enum pici_status pici_apply_small_range_cuda(void *dst, uint64_t n, uint64_t first, uint64_t of,
                                                      enum pici_dtype, const void *block, size_t size,
                                                      const uint64_t *size_at, struct pici_cuda_result *result,
                                                      void *workspace, size_t workspace_bytes, cudaStream_t);

struct pici_columns; /* pici/delta.h */

/* pici_diff_small_columns and pici_apply_small_columns on the GPU, for one delta or several in a row. If the elements
 * lie in rows, a call first copies them together in the workspace. To apply, it copies all elements there, and back if
 * the result is PICI_OK; otherwise dst is unchanged. A call enqueues at most one memset and five kernels. The first two
 * functions return the bytes of workspace, and 0 also for columns that a call refuses. All else as for
 * pici_diff_small_part_cuda and pici_apply_small_range_cuda, but deltas of columns can be applied. */
PICI_API size_t pici_diff_small_columns_cuda_workspace(enum pici_format, enum pici_dtype, const struct pici_columns *,
                                                       unsigned at_once);
PICI_API size_t pici_apply_small_columns_cuda_workspace(enum pici_dtype, const struct pici_columns *, unsigned at_once);
PICI_API enum pici_status pici_diff_small_columns_cuda(void *block, size_t capacity, struct pici_cuda_result *result,
                                                       const void *base, const void *src, const struct pici_columns *,
                                                       enum pici_dtype, enum pici_format, const struct pici_opts *,
                                                       void *workspace, size_t workspace_bytes, cudaStream_t);
PICI_API enum pici_status pici_apply_small_columns_cuda(void *dst, const struct pici_columns *, enum pici_dtype,
                                                        const void *block, size_t size, const uint64_t *size_at,
                                                        struct pici_cuda_result *result, void *workspace,
                                                        size_t workspace_bytes, cudaStream_t);

/* ---- positions and values (pici_nonzeros in pici/pici.h, pici_changes in pici/delta.h) ----
 *
 * The same positions and values as on the host, in the same order. A call decodes all elements of the block in the
 * workspace, so it checks the whole block, for any range. It enqueues at most three memsets or copies and six kernels.
 *   indices, index_bytes, values, capacity   as for pici_nonzeros, in device memory and aligned to their width
 *   count        out, in device memory       the number of positions, even if it exceeds capacity; 0 after other errors
 *   block, size, size_at                     as for pici_decompress_cuda
 *   result       out                         status: as from the function that decodes the block; or PICI_E_SPACE: only
 *                                            the first `capacity` are stored. len: bytes of the block, 0 unless PICI_OK
 *   first, n                                 search elements [first, first + n) of the block's `of` elements
 *   base         [of elements]               the base of the delta; only read
 *   workspace    aligned to 16               as many bytes as the first two functions return, for any range; may hold
 *                                            any bytes. They return 0 for an unknown dtype or too many elements
 * Outputs must not overlap each other, block, base or workspace. Returns the errors listed at the top of this file,
 * except PICI_E_SPACE and PICI_E_UNSUPPORTED. */
PICI_API size_t pici_nonzeros_cuda_workspace(enum pici_dtype, uint64_t of);
PICI_API size_t pici_changes_small_cuda_workspace(enum pici_dtype, uint64_t of, unsigned at_once);

/* The nonzeros of a block. The call decodes it as pici_decompress_cuda does. */
PICI_API enum pici_status pici_nonzeros_cuda(void *indices, size_t index_bytes, void *values, uint64_t capacity,
                                             uint64_t *count, const void *block, size_t size, const uint64_t *size_at,
                                             struct pici_cuda_result *result, uint64_t first, uint64_t n, uint64_t of,
                                             enum pici_dtype, void *workspace, size_t workspace_bytes, cudaStream_t);

/* The changes in a block of pici_diff or pici_diff_cuda: positions and new values. Takes the workspace of
 * pici_nonzeros_cuda. */
PICI_API enum pici_status pici_changes_cuda(void *indices, size_t index_bytes, void *values, uint64_t capacity,
                                            uint64_t *count, const void *base, uint64_t of, const void *block,
                                            size_t size, const uint64_t *size_at, struct pici_cuda_result *result,
                                            uint64_t first, uint64_t n, enum pici_dtype, void *workspace,
                                            size_t workspace_bytes, cudaStream_t);

/* The changes in small deltas in a row, which cover all elements of a tensor. The call applies them to a copy of base
 * in the workspace, as pici_apply_small_cuda does. pici_changes_small_cuda_workspace returns the bytes for at_once
 * chunks at a time. */
PICI_API enum pici_status pici_changes_small_cuda(void *indices, size_t index_bytes, void *values, uint64_t capacity,
                                                  uint64_t *count, const void *base, uint64_t of, const void *block,
                                                  size_t size, const uint64_t *size_at, struct pici_cuda_result *result,
                                                  uint64_t first, uint64_t n, enum pici_dtype, void *workspace,
                                                  size_t workspace_bytes, cudaStream_t);

/* ---- lossy codecs (struct pici_values in pici/coll.h; docs/explanation/values.md) ----
 *
 * The codecs CAST and QSGD, with the same bits as in collectives. They quantize n elements to one or two arrays of
 * narrower elements (formats/values.md), which any block can hold, and dequantize these arrays. A call enqueues at most
 * one memset and one kernel. Elements are aligned to their width, arrays to 16.
 * PICI_E_UNSUPPORTED: another codec, or a dtype that the codec does not support. PICI_E_ARG also: a codec parameter out
 * of range. */
struct pici_values;

/* Options of pici_quantize_cuda; NULL stands for PICI_CUDA_QUANTIZE_OPTS_INIT. The four members after size seed QSGD's
 * random rounding: ranks and steps that differ in one of them draw different numbers. */
struct pici_cuda_quantize_opts {
    size_t size;
    uint64_t first;    /* index of the first element in the call's total; default 0 */
    uint64_t sequence; /* number of the step or call; default 0 */
    uint32_t phase;    /* 0 (default) or 1 */
    uint32_t origin;   /* number of the rank, less than 2^31; default 0 */
    int times;         /* factor of the addend of the residual, at least 1; default 1 */
    int positive;      /* CAST: -0.0 becomes +0.0; default 0. QSGD always does this */
};
#define PICI_CUDA_QUANTIZE_OPTS_INIT                                                                                   \
    {                                                                                                                  \
        sizeof(struct pici_cuda_quantize_opts), 0, 0, 0, 0, 1, 0                                                       \
    }

/* The length and dtype of the arrays that n elements become. QSGD: the scales, then the codes, packed into bytes. CAST:
 * one array; count[1] is 0. Needs no GPU. */
PICI_API enum pici_status pici_quantize_cuda_counts(uint64_t count[2], enum pici_dtype dtype[2], uint64_t n,
                                                    enum pici_dtype elements, const struct pici_values *);

/* Quantize n elements.
 *   array      out, [2] in host memory: pointers to the arrays, as long as pici_quantize_cuda_counts says. CAST does
 *              not use [1]
 *   nonfinite  NULL, or a counter to which the call adds the number of nonfinite buckets (CAST: elements)
 *   src        [n elements of dtype]
 *   values     its member residual is NULL or [n elements of dtype] in device memory. Where both are finite, the call
 *              adds src - D(src) to it; D(src) is the result of pici_dequantize_cuda. Its member phases is ignored
 * No two of the arrays may overlap. */
PICI_API enum pici_status pici_quantize_cuda(void *const array[2], uint64_t *nonfinite, const void *src, uint64_t n,
                                             enum pici_dtype, const struct pici_values *values,
                                             const struct pici_cuda_quantize_opts *, cudaStream_t);

/* Dequantize arrays to n elements. The arrays are untrusted.
 *   dst     out, [n elements of dtype]  unspecified unless the result is PICI_OK; must not overlap the arrays
 *   result  out                         status: PICI_OK, or PICI_E_CORRUPT if the arrays break a rule. All else 0 */
PICI_API enum pici_status pici_dequantize_cuda(void *dst, struct pici_cuda_result *result, uint64_t n, enum pici_dtype,
                                               const void *const array[2], const struct pici_values *, cudaStream_t);

/* ---- top-k selection with a residual (pici/topk.h) ---- */

struct pici_topk_opts;

/* pici_topk in device memory, with the same bits. Supports PICI_SELECT_BUCKET with buckets of at most 4096 elements.
 * The NaN of an invalid operation has a clear sign. Enqueues one memset and one kernel.
 *   nnz   out, in device memory: elements that were kept
 * out may be gradient; no other two arrays may overlap, and nnz overlaps none. Elements are aligned to their width.
 * PICI_E_UNSUPPORTED: another selection, a longer bucket, or a dtype other than f32, f64, f16 and bf16. PICI_E_ARG,
 * PICI_E_DEVICE: as above and as pici_topk. */
PICI_API enum pici_status pici_topk_cuda(void *out, uint64_t *nnz, void *residual, void *velocity, const void *gradient,
                                         uint64_t n, enum pici_dtype, const struct pici_topk_opts *, cudaStream_t);

/* ---- batches: many blocks a call ----
 *
 * jobs[count] is host memory; the call reads it before it returns. Outputs of different jobs must not overlap. Each job
 * follows the rules of the function for one block. If the arguments of one job are wrong, the call fails and enqueues
 * nothing. A kernel processes up to 32 jobs; more jobs take more kernels. */

struct pici_cuda_encode {
    void *block;
    size_t cap; /* bytes */
    struct pici_cuda_result *result;
    const void *src;
    uint64_t n;       /* elements */
    const void *base; /* used by diff only */
};

struct pici_cuda_decode {
    void *dst;  /* not used by verify */
    uint64_t n; /* elements; not used by verify */
    const void *block;
    size_t len;             /* bytes */
    const uint64_t *len_at; /* may be NULL */
    struct pici_cuda_result *result;
};

PICI_API enum pici_status pici_compress_batch_cuda(const struct pici_cuda_encode *jobs, size_t count, enum pici_dtype,
                                                   enum pici_format, void *workspace, size_t workspace_bytes,
                                                   cudaStream_t);
PICI_API enum pici_status pici_compress_batch_opts_cuda(const struct pici_cuda_encode *jobs, size_t count,
                                                        enum pici_dtype, enum pici_format, const struct pici_opts *,
                                                        void *workspace, size_t workspace_bytes, cudaStream_t);
PICI_API enum pici_status pici_diff_batch_cuda(const struct pici_cuda_encode *jobs, size_t count, enum pici_dtype,
                                               enum pici_format, void *workspace, size_t workspace_bytes, cudaStream_t);
PICI_API enum pici_status pici_decompress_batch_cuda(const struct pici_cuda_decode *jobs, size_t count, enum pici_dtype,
                                                     void *workspace, size_t workspace_bytes, cudaStream_t);
PICI_API enum pici_status pici_scatter_add_batch_cuda(const struct pici_cuda_decode *jobs, size_t count,
                                                      enum pici_dtype, void *workspace, size_t workspace_bytes,
                                                      cudaStream_t);
PICI_API enum pici_status pici_apply_batch_cuda(const struct pici_cuda_decode *jobs, size_t count, enum pici_dtype,
                                                void *workspace, size_t workspace_bytes, cudaStream_t);
PICI_API enum pici_status pici_verify_batch_cuda(const struct pici_cuda_decode *jobs, size_t count, void *workspace,
                                                 size_t workspace_bytes, cudaStream_t);

/* ---- collectives */

struct pici_comm;

/* Let later collectives (pici/coll.h) on this communicator use buffers in GPU memory, in this stream's order. A
 * communicator has one such stream; another call replaces it.
 *
 * Buffers. Both buffers of a call are in this GPU's memory, or both are in host memory. Ranks may differ in this, but
 * over NCCL all buffers are in GPU memory. Buffers in GPU memory are aligned to their elements. The stream's device
 * must be the current device, here and in all calls on the communicator.
 *
 * Order. A collective begins when all work enqueued on the stream before the call, or before its _start, has completed.
 * The host drives the collective, because both sides of a message must know its size, which depends on the elements. So
 * a blocking call returns when the collective has ended, and work enqueued afterwards sees the result. After _start,
 * only pici_test and pici_wait make progress. The stream must not be under capture into a graph (PICI_E_DEVICE).
 *
 * Memory. Messages go directly from GPU memory if the transport supports that (threads, NCCL, an MPI that reports it),
 * otherwise through pinned host memory. The communicator allocates GPU memory itself, in the first call and in larger
 * ones. pici_comm_scratch and pici_comm_reserve do not include that memory. With buffers in GPU memory, opts->scratch
 * and checksums (opts->checksum or PICI_CHECKSUM) are PICI_E_UNSUPPORTED.
 *
 * Lossy codecs (opts->values). CAST and QSGD give the same bits as in host memory. The residual is in the same memory
 * as the buffers, and aligned to its elements. ZFP is PICI_E_UNSUPPORTED.
 *
 * Statistics. Containers of hybrid blocks are counted only if messages go through the host. Seconds are sums over
 * slices, which overlap in time, so they may exceed the duration of the call.
 *
 * Timeouts. If a call ends with PICI_E_TIMEOUT because the stream made no progress, work may still be queued in it. The
 * buffers must then stay valid until that work has completed.
 *
 * PICI_E_ARG: null. PICI_E_NOMEM. PICI_E_DEVICE: no device. PICI_E_BROKEN: the communicator failed, or requests are in
 * flight. */
PICI_API enum pici_status pici_comm_cuda(struct pici_comm *, cudaStream_t);

/* Deprecated: names until version 0.3. */
#define pici_narrow_cuda pici_quantize_cuda
#define pici_narrow_cuda_counts pici_quantize_cuda_counts
#define pici_widen_cuda pici_dequantize_cuda
#define pici_cuda_narrow_opts pici_cuda_quantize_opts
#define PICI_CUDA_NARROW_OPTS_INIT PICI_CUDA_QUANTIZE_OPTS_INIT

#ifdef __cplusplus
}
#endif
#endif
