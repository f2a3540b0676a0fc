/* SPDX-License-Identifier: BSD-3-Clause
 *
 * GPU functions for collectives besides blocks: counting nonzeros, arithmetic other than sums, and finding the
 * blocks of a message. All functions put work into the stream and return at once. They never wait or allocate, and
 * can be captured into a graph. Pointers in calls and jobs are to device memory, with elements aligned to their
 * width. dtype is valid; n may be 0. A returned error comes from a launch. Reading and counting need cleared memory
 * from the caller and leave it cleared, which saves one operation per call. */
#ifndef PICI_LIB_CUDA_REDUCE_H
#define PICI_LIB_CUDA_REDUCE_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "pici/pici.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pici_cuda_count {
    const void *src; /* n elements */
    uint64_t count;
    uint64_t *nonzeros; /* aligned to 8 */
    uint64_t *scratch;  /* two words for this job alone, aligned to 8: zero before, and again after */
};

/* *nnz of each job = the number of nonzero elements of its src. by_value: elements are floats, and -0.0 is a zero.
 * jobs[count] is host memory and is read before the call returns. */
cudaError_t pici_cuda_count(const struct pici_cuda_count *jobs, unsigned count, unsigned dtype, int by_value,
                            cudaStream_t);

/* dst[i] = the smaller of dst[i] and src[i], or with `max` the greater. The bits equal pici_reduce's (cpu/reduce.h).
 * The arrays do not overlap. */
cudaError_t pici_cuda_order(void *dst, const void *src, uint64_t count, unsigned dtype, int max, cudaStream_t);

/* dst[i] = src[i] with the sign of zeros cleared. The bits equal pici_positive_zeros'. dst may be src. */
cudaError_t pici_cuda_positive_zeros(void *dst, const void *src, uint64_t count, unsigned dtype, int quiet,
                                     cudaStream_t);

/* dst[i] /= by, by >= 1. The bits equal pici_divide's. */
cudaError_t pici_cuda_divide(void *dst, uint64_t count, unsigned dtype, int by, cudaStream_t);

struct pici_cuda_decode;

/* pici_decompress_batch_cuda, or with `add` pici_scatter_add_batch_cuda. The workspace is zero before, and again when
 * the work has completed, so the call does not clear it first. dtype is valid. */
enum pici_status pici_cuda_read_cleared(const struct pici_cuda_decode *jobs, size_t count, enum pici_dtype dtype,
                                        int add, void *workspace, size_t workspace_bytes, cudaStream_t);

struct pici_cuda_heads {
    uint8_t prefix[32]; /* the message's first bytes; zero beyond its end */
    uint64_t found;     /* blocks with a valid header that end within the message */
    uint64_t end;       /* end of the last one; if there is none, of the prefix or of a shorter message */
};

struct pici_cuda_head {
    uint64_t offset;    /* offset of a block in the message, in bytes */
    uint8_t header[48]; /* its first bytes; zeros beyond the message's end */
};

/* Read the heads of a message (formats/message.md) of `bytes` bytes: its prefix, and the headers of its first
 * consecutive blocks. Reads at most `blocks` headers; heads[blocks] has room for them. If fewer are found, the next
 * entry has the offset where the next block should be, and the bytes there. Later entries are not written. The message
 * may be any bytes, and nothing outside of it is read. The caller checks the prefix, and each block's count and dtype.
 * Structs are aligned to 8; the message and its blocks may have any alignment. */
cudaError_t pici_cuda_look(struct pici_cuda_heads *out, struct pici_cuda_head *heads, const void *message,
                           uint64_t bytes, unsigned blocks, cudaStream_t);

#ifdef __cplusplus
}
#endif

#endif
