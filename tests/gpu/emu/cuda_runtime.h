/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The CUDA runtime on the emulator: what cuda_runtime_api.h has, and, for C++, launches of kernels. */
#ifndef PICI_TESTS_EMU_CUDA_RUNTIME_H
#define PICI_TESTS_EMU_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#ifdef __cplusplus
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z)
    {
    }
};

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

static inline cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute, int bytes)
{
    return emu::allow_shared(kernel, bytes);
}

/* One argument; a grid without z, and thread blocks of one dimension. */
template <class P>
static inline cudaError_t cudaLaunchKernel(void (*kernel)(P), dim3 grid, dim3 block, void **arguments, size_t shared,
                                           cudaStream_t stream)
{
    static_assert(sizeof(P) <= emu::ARGUMENTS_MOST, "a kernel's arguments");
    const P p = *(const P *)arguments[0];
    const emu::shape s = {(const void *)kernel, grid.x, grid.y, block.x, shared};
    return emu::enqueue_kernel(s, stream,
                               [=] { return emu::launch(s.x, s.y, s.threads, s.shared, [&] { kernel(p); }); });
}
#endif

#endif
