/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A growing allocation of GPU memory or pinned memory, and places in it. */
#ifndef PICI_LIB_COLL_ENGINE_CUDA_PIECE_H
#define PICI_LIB_COLL_ENGINE_CUDA_PIECE_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#include "cuda/capture.h"

enum { PIECE_ALIGN = 256 };

struct piece {
    uint8_t *memory;
    size_t bytes;
    int pinned;
};

static inline void piece_free(struct piece *piece)
{
    const enum cudaStreamCaptureMode mode = capture_relax();
    if (piece->memory)
        (void)(piece->pinned ? cudaFreeHost(piece->memory) : cudaFree(piece->memory));
    capture_restore(mode);
    piece->memory = NULL;
    piece->bytes = 0;
}

/* Provide at least `bytes` bytes, pinned or of the GPU. Growing loses the contents. */
static inline cudaError_t piece_grow(struct piece *piece, size_t bytes, int pinned)
{
    const size_t some = bytes ? bytes : 1;
    if (piece->memory && piece->bytes >= bytes && piece->pinned == pinned)
        return cudaSuccess;
    piece_free(piece);
    piece->pinned = pinned;
    const enum cudaStreamCaptureMode mode = capture_relax();
    const cudaError_t error = pinned ? cudaHostAlloc((void **)&piece->memory, some, cudaHostAllocDefault)
                                     : cudaMalloc((void **)&piece->memory, some);
    capture_restore(mode);
    piece->bytes = error ? 0 : bytes;
    return error;
}

static inline size_t piece_aligned(size_t bytes)
{
    return (bytes + PIECE_ALIGN - 1) / PIECE_ALIGN * PIECE_ALIGN;
}

/* Allocate bytes of a piece's memory; with NULL, only count them. */
static inline void *piece_take(uint8_t *memory, size_t *offset, size_t bytes)
{
    void *address = memory ? memory + *offset : NULL;
    *offset += piece_aligned(bytes);
    return address;
}

#endif
