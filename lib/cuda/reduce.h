/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What collectives ask of a GPU beside blocks: counts, other arithmetic than sums, and where the blocks of a message are. All
 * functions put work into the stream and return at once: they wait for nothing, allocate nothing, and can be captured into a
 * graph. Pointers in calls and in jobs are to device memory, elements aligned to their width; dtype is one that exists;
 * n may be 0. An error is that of a launch. */
#ifndef PICI_LIB_CUDA_REDUCE_H
#define PICI_LIB_CUDA_REDUCE_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pici_cuda_count {
    const void *src; /* n elements */
    uint64_t n;
    uint64_t *nnz; /* aligned to 8 */
};

/* nnz of each job = the elements of its src that are not all zero bits. The jobs are the caller's again on return. */
cudaError_t pici_cuda_count(const struct pici_cuda_count *jobs, unsigned count, unsigned dtype, cudaStream_t);

/* dst[i] = the lesser of dst[i] and src[i], with `max` the greater: the bits of pici_reduce (cpu/reduce.h). The arrays do
 * not overlap. */
cudaError_t pici_cuda_order(void *dst, const void *src, uint64_t n, unsigned dtype, int max, cudaStream_t);

/* dst[i] /= by, by >= 1: the bits of pici_divide. */
cudaError_t pici_cuda_divide(void *dst, uint64_t n, unsigned dtype, int by, cudaStream_t);

struct pici_cuda_heads {
    uint8_t prefix[32]; /* the message's first bytes; zero beyond its end */
    uint64_t found;     /* blocks whose header keeps the rules of a block and which end within the message */
    uint64_t end;       /* where the last of them ends; without one, the prefix, or the message if that is shorter */
};

struct pici_cuda_head {
    uint64_t at;        /* where a block begins; bytes of the message */
    uint8_t header[48]; /* its first bytes; zero beyond the message's end */
};

/* Look at a message (formats/message.md) of so many bytes: its prefix, and its first blocks, each behind the one before, up
 * to `blocks` of them, which heads has room for. If fewer are found, the entry after theirs says where the next would
 * begin and what is there, and those behind it are not written. Any bytes are answered; none outside of the message is
 * read. What the prefix says is the caller's affair, and so is what a block is of. Structs are aligned to 8, the message
 * and the blocks in it may lie anywhere. */
cudaError_t pici_cuda_look(struct pici_cuda_heads *out, struct pici_cuda_head *heads, const void *message,
                           uint64_t bytes, unsigned blocks, cudaStream_t);

#ifdef __cplusplus
}
#endif

#endif
