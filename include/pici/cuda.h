/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The codec on a GPU: blocks are encoded and decoded in device memory, with the same bytes as pici.h's. The library is
 * libpici_cuda; link with the CUDA runtime too. Needs compute capability 8.0 or higher. Device functions to call from
 * your own kernels: pici/device.cuh.
 *
 * A call checks its arguments, puts at most one fill of memory and two kernels into the stream, and returns. It
 * allocates nothing, waits for nothing and keeps no state, so it can be captured into a graph. What depends on the data
 * is computed on the device: once the stream is past the call, a struct pici_cuda_result in device memory has the
 * status and the length.
 *
 *   pointers     to memory that the current device can use, except those to jobs; owned by the caller, and must stay
 *                valid until the stream is past the call
 *   alignment    bytes: blocks and workspaces 16; results, and lengths in device memory 8; elements: their width
 *   status       what the host can check, returned by the call:
 *     PICI_E_ARG           null, misaligned, overlapping, unknown dtype or format, or a workspace that is too small
 *     PICI_E_SPACE         no block of n elements can fit in cap, whatever their values
 *     PICI_E_UNSUPPORTED   PICI_AUTO. The smallest format depends on the elements, and the host cannot see them when it
 *                          launches kernels. Hybrid is the smallest nearly always, or close to it
 *     PICI_E_DEVICE        the CUDA runtime reported an error: no device, too old a device, or an earlier error
 *   After any error but PICI_E_DEVICE nothing was put into the stream. */
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
    uint32_t rule;   /* pici_verify_cuda: the rule that the block breaks, for pici_cuda_rule; otherwise 0 */
    uint64_t offset; /* pici_verify_cuda: offset and tile of struct pici_fault; otherwise 0 */
    uint64_t tile;
};

/* A rule's name in formats/block.md or hybrid.md, such as "tile-index"; NULL for 0 and unknown numbers. The string
 * is static. */
PICI_API const char *pici_cuda_rule(uint32_t rule);

/* Bytes of workspace that a call needs to encode a block of n elements, in any format; it is also enough to read
 * one. 0 for an unknown dtype, or if the number is beyond size_t. Reading needs PICI_CUDA_READ_WORKSPACE bytes for
 * any n. A batch needs the sum over its blocks, each rounded up to 16. Calls that may run at the same time must not
 * share a workspace. */
PICI_API size_t pici_cuda_workspace(enum pici_dtype, uint64_t n);
#define PICI_CUDA_READ_WORKSPACE 64

/* Encode n elements of src as one block. It has no checksum: XXH64 is serial, and would take much longer than the rest.
 *   block      out, [cap bytes]       unless the result is PICI_OK undefined, but not beginning with a valid header
 *   result     out                    status: PICI_OK; PICI_E_SPACE: the block does not fit in cap. len: its bytes
 *   src        [n elements of dtype]  must not overlap block, result or workspace
 *   workspace  [workspace_bytes]      at least pici_cuda_workspace(dtype, n); its contents do not matter
 * How often src is read: once for PICI_DENSE and PICI_PICI; once for PICI_HYBRID, except that tiles with more than 2
 * KiB of values are read again, mostly from a cache; twice for PICI_COO, since values cannot be placed before all
 * are counted. Returns the errors listed above. */
PICI_API enum pici_status pici_compress_cuda(void *block, size_t cap, struct pici_cuda_result *result, const void *src,
                                             uint64_t n, enum pici_dtype, enum pici_format, void *workspace,
                                             size_t workspace_bytes, cudaStream_t);

/* Encode base[i] ^ src[i] as one block, the same bytes as pici_diff. The XOR is not stored in memory: base is read
 * where src is, and as often.
 *   base   [n elements of dtype]  may overlap src, but not block, result or workspace
 * All else as for pici_compress_cuda. Fastest if base and src are both aligned to two elements (PICI_DENSE: to 16
 * bytes). */
PICI_API enum pici_status pici_diff_cuda(void *block, size_t cap, struct pici_cuda_result *result, const void *base,
                                         const void *src, uint64_t n, enum pici_dtype, enum pici_format,
                                         void *workspace, size_t workspace_bytes, cudaStream_t);

/* Decode a block to the n elements of dtype that it was made of.
 *   dst        out, [n elements of dtype]  unspecified unless the result is PICI_OK; must not overlap block, result or
 *                                          workspace
 *   block      [len bytes]                 any bytes: every rule of the format is checked. A checksum is checked by
 *                                          one warp, because XXH64 is serial
 *   len_at     NULL, or in device memory   the block's length, such as &result->len of the call that encoded it. Then
 *                                          len is the room at block; a greater length gives the result PICI_E_ARG
 *   result     out                         status: as pici_decompress returns; PICI_E_ARG also if the block's dtype is
 *                                          another. len: bytes of the block
 *   workspace  [workspace_bytes]           at least PICI_CUDA_READ_WORKSPACE; its contents do not matter
 * Returns the errors listed above, but neither PICI_E_SPACE nor PICI_E_UNSUPPORTED. */
PICI_API enum pici_status pici_decompress_cuda(void *dst, uint64_t n, enum pici_dtype, const void *block, size_t len,
                                               const uint64_t *len_at, struct pici_cuda_result *result, void *workspace,
                                               size_t workspace_bytes, cudaStream_t);

/* dst[i] += x for each stored x, with the same bits as pici_scatter_add. One exception: infinity minus infinity
 * gives a NaN with a clear sign bit, where pici_scatter_add gives the sign that the host's CPU gives. All else as
 * for pici_decompress_cuda. */
PICI_API enum pici_status pici_scatter_add_cuda(void *dst, uint64_t n, enum pici_dtype, const void *block, size_t len,
                                                const uint64_t *len_at, struct pici_cuda_result *result,
                                                void *workspace, size_t workspace_bytes, cudaStream_t);

/* dst[i] ^= x for each stored x, as pici_apply: base becomes src in place, and by the same block again base. What
 * was applied of a block before it proved corrupt is not undone. All else as for pici_decompress_cuda. */
PICI_API enum pici_status pici_apply_cuda(void *dst, uint64_t n, enum pici_dtype, const void *block, size_t len,
                                          const uint64_t *len_at, struct pici_cuda_result *result, void *workspace,
                                          size_t workspace_bytes, cudaStream_t);

/* Check every rule of the format. The result has status, rule, offset and tile as from pici_verify_at. All else as for
 * pici_decompress_cuda. */
PICI_API enum pici_status pici_verify_cuda(const void *block, size_t len, const uint64_t *len_at,
                                           struct pici_cuda_result *result, void *workspace, size_t workspace_bytes,
                                           cudaStream_t);

/* ---- batches: many blocks a call ----
 *
 * jobs[count] is host memory and is read before the call returns. Outputs must not overlap. Each job has the
 * contract of the function for one block. If one job's arguments are wrong, nothing is put into the stream. A kernel
 * serves up to 32 jobs; more jobs take more kernels. */

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

/* Let collectives (pici/coll.h) on this communicator use buffers in GPU memory, ordered by this stream, from the next
 * call on. A communicator has one such stream; another call replaces it.
 *
 * Buffers. Either both buffers of a call are in this GPU's memory, or both are in host memory; ranks may differ, except
 * over NCCL, where all are in GPU memory. Buffers are aligned to their elements. The current device must be the
 * stream's, here and in all calls on the communicator.
 *
 * Order. A collective begins when the stream has done what was put into it before the call, or before its _start. The
 * host drives the collective, because the length of each message depends on the elements, and both its sender and its
 * receiver must know it. So the call returns when the collective has ended, and work put into the stream afterwards
 * sees the result. Between _start and the end of pici_wait, progress is made only inside pici_test and pici_wait. A
 * stream that is being captured into a graph cannot be used (PICI_E_DEVICE).
 *
 * Memory. Messages go directly from GPU memory if the transport can do that (threads, NCCL, an MPI that reports it),
 * otherwise through pinned host memory. The communicator allocates GPU memory itself, in the first call and in larger
 * ones. pici_comm_scratch and pici_comm_reserve do not include it, and opts->scratch is PICI_E_UNSUPPORTED. So are
 * checksums, whether asked for by opts->checksum or by PICI_CHECKSUM.
 *
 * Statistics. Containers of hybrid blocks are counted only if messages go through the host. Seconds are of slices that
 * overlap in time, so their sum may exceed the duration of the call. After PICI_E_TIMEOUT because the stream made no
 * progress, work may still be queued in it, and the buffers must stay valid until the stream is done.
 *
 * PICI_E_ARG: null. PICI_E_NOMEM. PICI_E_DEVICE: no device. PICI_E_BROKEN: the communicator failed, or requests are in
 * flight. */
PICI_API enum pici_status pici_comm_cuda(struct pici_comm *, cudaStream_t);

#ifdef __cplusplus
}
#endif
#endif
