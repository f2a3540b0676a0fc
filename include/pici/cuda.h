/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The codec on a GPU: blocks made and read in device memory, the same bytes as pici.h's. In libpici_cuda, a library of its
 * own; link with the CUDA runtime. Compute capability 8.0 and above. How to embed the device functions in kernels of one's
 * own: pici/device.cuh.
 *
 * A call checks its arguments, puts at most three kernels and fills of memory into the stream, and returns; it allocates
 * nothing, waits for nothing, keeps no state, and so can be captured into a graph. What depends on data is found out on
 * the device: a struct pici_cuda_result there has the status and the length once the stream is past the call. All pointers
 * but those to jobs are to memory that the current device can use. They must stay until then.
 *
 * Blocks and workspaces are aligned to 16, results to 8, elements to their width, lengths in device memory to 8. The host's
 * status of a call:
 *   PICI_E_ARG      null, misaligned, overlapping, unknown dtype or format, a workspace that is too small
 *   PICI_E_SPACE    no block of these elements could fit in cap, whatever they are
 *   PICI_E_UNSUPPORTED  PICI_AUTO: which format is the smallest, and so what must be launched, the elements say, and these
 *                   are on the device; hybrid is nearly always the smallest, or close
 *   PICI_E_DEVICE   the CUDA runtime refused: no device, too old a device, or an error before
 * Then nothing was put into the stream, unless it is PICI_E_DEVICE. */
#ifndef PICI_CUDA_H
#define PICI_CUDA_H

#include <cuda_runtime.h>

#include "pici/pici.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a call came to: 32 bytes, written on the device. */
struct pici_cuda_result {
    uint64_t len;    /* bytes of the block; 0 unless PICI_OK */
    int32_t status;  /* enum pici_status */
    uint32_t rule;   /* pici_verify_cuda: the rule that is broken, see pici_cuda_rule; else 0 */
    uint64_t offset; /* and where, as in struct pici_fault; else 0 */
    uint64_t tile;
};

/* A rule's name in formats/block.md, as "tile-index"; NULL for 0 and unknown numbers; static. */
PICI_API const char *pici_cuda_rule(uint32_t rule);

/* Bytes of workspace for one call on a block of n elements, made in any format, or read. 0 for an unknown dtype, or if that
 * is beyond size_t. Reading needs PICI_CUDA_READ_WORKSPACE, whatever n is. A batch needs the sum, each part rounded up to 16.
 * Calls that may run at the same time need a workspace each. */
PICI_API size_t pici_cuda_workspace(enum pici_dtype, uint64_t n);
#define PICI_CUDA_READ_WORKSPACE 64

/* Encode n elements of src as one block.
 *   block  [cap bytes]            undefined unless the result is PICI_OK; then it does not begin with a header
 *   result                        len, status: PICI_OK, or PICI_E_SPACE
 * PICI_PICI reads src once. PICI_HYBRID too, but for tiles of which more than 2 KiB are values, which it reads again, soon
 * after, so that most come from a cache. PICI_COO reads src twice: its values cannot be placed before they are counted. No
 * checksum: XXH64 is serial, and would take longer than all else by far. */
PICI_API enum pici_status pici_compress_cuda(void *block, size_t cap, struct pici_cuda_result *result, const void *src,
                                             uint64_t n, enum pici_dtype, enum pici_format, void *workspace,
                                             size_t workspace_bytes, cudaStream_t);

/* Encode what src has that base has not, base[i] ^ src[i], as one block: the very block that pici_diff makes. They are made
 * where compress reads an element, and stored nowhere: base is read when src is, and as often.
 *   base   [n elements]           may overlap src; not block, result or workspace
 * All else as pici_compress_cuda. Fastest where base and src are both aligned to two elements (dense: to 16 bytes). */
PICI_API enum pici_status pici_diff_cuda(void *block, size_t cap, struct pici_cuda_result *result, const void *base,
                                         const void *src, uint64_t n, enum pici_dtype, enum pici_format,
                                         void *workspace, size_t workspace_bytes, cudaStream_t);

/* Decode a block to the n elements of dtype that it was made of.
 *   dst    [n elements]   unspecified unless the result is PICI_OK
 *   block  [len bytes]    any bytes at all: every rule of the format is checked. A checksum is, too, at the
 *                         speed of one warp, since it is serial by nature
 *   len_at                NULL; or where the device has the length, as in &result->len of the call that made the block:
 *                         then len is what there is room for, and a greater length is PICI_E_ARG
 * The result's status: as pici_decompress's; PICI_E_ARG: the block is not of n elements of this dtype. */
PICI_API enum pici_status pici_decompress_cuda(void *dst, uint64_t n, enum pici_dtype, const void *block, size_t len,
                                               const uint64_t *len_at, struct pici_cuda_result *result, void *workspace,
                                               size_t workspace_bytes, cudaStream_t);

/* Add a block to the n elements of dtype at dst, as pici_scatter_add does, to the same bits; infinity minus infinity, whose
 * sign is the host's there, gives the NaN whose sign is clear. All else as pici_decompress_cuda. */
PICI_API enum pici_status pici_scatter_add_cuda(void *dst, uint64_t n, enum pici_dtype, const void *block, size_t len,
                                                const uint64_t *len_at, struct pici_cuda_result *result,
                                                void *workspace, size_t workspace_bytes, cudaStream_t);

/* dst[i] ^= x for each stored x, as pici_apply does: base becomes src in place, and with the same block again base. All else as
 * pici_scatter_add_cuda; what of a block was applied before it proved corrupt is not taken back. */
PICI_API enum pici_status pici_apply_cuda(void *dst, uint64_t n, enum pici_dtype, const void *block, size_t len,
                                          const uint64_t *len_at, struct pici_cuda_result *result, void *workspace,
                                          size_t workspace_bytes, cudaStream_t);

/* Check every rule of the format. The result has what pici_verify_at would say. */
PICI_API enum pici_status pici_verify_cuda(const void *block, size_t len, const uint64_t *len_at,
                                           struct pici_cuda_result *result, void *workspace, size_t workspace_bytes,
                                           cudaStream_t);

/* ---- many blocks a call: jobs[count] are read before the call returns. Outputs must not overlap ---- */

struct pici_cuda_encode {
    void *block;
    size_t cap;
    struct pici_cuda_result *result;
    const void *src;
    uint64_t n;
    const void *base; /* used by diff only */
};

struct pici_cuda_decode {
    void *dst; /* not used by verify */
    uint64_t n;
    const void *block;
    size_t len;
    const uint64_t *len_at;
    struct pici_cuda_result *result;
};

/* A kernel serves up to 32 jobs: of more, there are more kernels than three. */
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

/* From the next collective on (pici/coll.h), buffers may be in this GPU's memory: both of a call, aligned to their elements, on any of the
 * ranks, so that some may have theirs there and some in the host's memory (over NCCL: all there). The current device is
 * the stream's, here and in all calls on the communicator.
 *
 * A call begins when the stream has done what was put into it before the call (or its _start). It is driven by the host: it
 * returns when the collective has ended, and what is put into the stream afterwards finds the result; between _start and the end of
 * pici_wait nothing happens but inside pici_test and pici_wait. So a stream that is being captured into a graph cannot be used (PICI_E_DEVICE).
 * Why: how many bytes a message has, the elements say, and who sends and who receives must know it.
 *
 * Messages go from the GPU's memory where the transport can do that (threads, NCCL, an MPI that says so) and else through pinned
 * memory of the host. Memory of the GPU is the communicator's, made in the first call and at larger ones; pici_comm_scratch and
 * pici_comm_reserve do not speak of it; opts->scratch is PICI_E_UNSUPPORTED, and so are checksums, by opts->checksum or by
 * PICI_CHECKSUM. Containers of hybrid blocks are counted in stats where messages go through the host. A communicator has one
 * such stream; another replaces it.
 *
 * Seconds in stats are of slices that overlap: their sum may be more than the call took. After PICI_E_TIMEOUT, if it was the stream
 * that did not move, work may still wait behind it, and the buffers must stay until the stream is done.
 *
 * PICI_E_ARG: null. PICI_E_NOMEM. PICI_E_DEVICE: no device. PICI_E_BROKEN, also while requests are in flight. */
PICI_API enum pici_status pici_comm_cuda(struct pici_comm *, cudaStream_t);

#ifdef __cplusplus
}
#endif
#endif
