/* SPDX-License-Identifier: BSD-3-Clause
 *
 * As much of the CUDA runtime as the library and its tests use, on the emulator. A buffer ends before a page that cannot be
 * touched, and what is between them must stay as it was. Everything has happened when a call returns. */
#ifndef PICI_TESTS_EMU_CUDA_RUNTIME_H
#define PICI_TESTS_EMU_CUDA_RUNTIME_H

#include <stddef.h>
#include <string.h>

#include "warp_emu.h"

enum cudaError_t { cudaSuccess = 0, cudaErrorMemoryAllocation = 2, cudaErrorLaunchFailure = 719 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount };
typedef struct emu_stream *cudaStream_t;

cudaError_t cudaMalloc(void **, size_t);
cudaError_t cudaFree(void *);
cudaError_t cudaGetLastError(void);
const char *cudaGetErrorString(cudaError_t);

static inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t)
{
    if (bytes)
        memmove(to, from, bytes);
    return cudaSuccess;
}

static inline cudaError_t cudaMemsetAsync(void *p, int v, size_t bytes, cudaStream_t)
{
    if (bytes)
        memset(p, v, bytes);
    return cudaSuccess;
}

static inline cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return cudaGetLastError();
}

static inline cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

/* Few, so that a thread block has many parts to do. */
static inline cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int)
{
    *value = 1;
    return cudaSuccess;
}

namespace emu {
void launched(bool good);
} // namespace emu

template <class P>
static inline cudaError_t launch(void (*kernel)(P), unsigned x, unsigned y, unsigned threads, unsigned shared,
                                 const P &p, cudaStream_t)
{
    emu::launched(emu::launch(x, y, threads, shared, [&] { kernel(p); }));
    return cudaSuccess;
}

#endif
