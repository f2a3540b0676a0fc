/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the kernels of lib/cuda and the functions that launch them share: a kernel takes one struct of jobs by value, and
 * the y coordinate of a thread block is the number of its job. */
#ifndef PICI_LIB_CUDA_LAUNCH_CUH
#define PICI_LIB_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

#include "pici/cuda.h"
#include "pici/device.cuh"

#ifdef PICI_DEVICE_HW /* the emulator's runtime has a launch() of its own */
#define PICI_KERNEL(threads, blocks) static void
#define PICI_SHARED(name) uint8_t *name = emu::shared_memory()
#else
#define PICI_KERNEL(threads, blocks) static __global__ void __launch_bounds__(threads, blocks)
#define PICI_SHARED(name) extern __shared__ __align__(16) uint8_t name[]

template <class P>
static inline cudaError_t launch(void (*kernel)(P), unsigned x, unsigned y, unsigned threads, unsigned shared,
                                 const P &p, cudaStream_t stream)
{
    cudaError_t e = cudaSuccess;
    if (shared > 48 << 10)
        e = cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    void *args[] = {(void *)&p};
    return e ? e : cudaLaunchKernel((const void *)kernel, dim3(x, y), dim3(threads), args, shared, stream);
}
#endif

enum { BATCH = 32 }; /* jobs a kernel: their structs are its arguments, of which there may be 4 KiB */

/* At the beginning of a job's workspace. All zero when its first kernel begins. */
struct pici_cuda_control {
    uint64_t fault;  /* the first that was found */
    uint32_t done;   /* thread blocks that have ended */
    uint32_t ticket; /* partitions that were claimed, or groups */
    uint64_t nnz;    /* hybrid: in the tiles of thread blocks that have ended */
    uint64_t units;  /* hybrid, made: of records, once the last is */
    uint32_t reserved[8];
};

struct pici_cuda_encode_job {
    struct pici_cuda_encode call;
    struct pici_cuda_control *control;
    uint64_t *state; /* a word a partition, or a group */
};

struct pici_cuda_encode_jobs {
    struct pici_cuda_encode_job job[BATCH];
    unsigned dtype;
};

struct pici_cuda_decode_job {
    struct pici_cuda_decode call;
    struct pici_cuda_control *control;
};

struct pici_cuda_decode_jobs {
    struct pici_cuda_decode_job job[BATCH];
    unsigned dtype; /* 0: any */
};

/* Threads of a block, and blocks that a multiprocessor has room for, by the width of an element: a stage a warp. */
template <class T> constexpr unsigned ENCODE_THREADS = sizeof(T) == 8 ? 64 : 128;
template <class T> constexpr unsigned ENCODE_BLOCKS = sizeof(T) >= 4 ? 3 : 4;
template <class T> constexpr unsigned DECODE_THREADS = sizeof(T) == 8 ? 64 : 128;
template <class T> constexpr unsigned DECODE_BLOCKS = sizeof(T) >= 4 ? 3 : 6;
template <class T> constexpr unsigned ADD_BLOCKS = sizeof(T) >= 4 ? 3 : 4; /* with room for its registers */

/* Tiles of a partition. */
PICI_DEV_HOST constexpr unsigned encode_tiles(unsigned width)
{
    return width == 8 ? 2 : 4;
}

/* Launch on jobs of which the largest has so many parts, each the work of one thread block: enough blocks to fill the
 * device, for they take parts until there are none. */
template <class P>
static inline cudaError_t launch_jobs(void (*kernel)(P), uint64_t parts, unsigned jobs, unsigned threads,
                                      unsigned shared, unsigned per_multiprocessor, const P &p, cudaStream_t stream)
{
    int device = 0, multiprocessors = 0;
    cudaError_t e = cudaGetDevice(&device);
    if (!e)
        e = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (e)
        return e;
    const uint64_t fill = ((uint64_t)multiprocessors * per_multiprocessor + jobs - 1) / jobs;
    const uint64_t x = parts < fill ? parts : fill;
    return launch(kernel, x ? (unsigned)x : 1, jobs, threads, shared, p, stream);
}

namespace pici {

/* All threads, at their end: true in the first warp of the last thread block of a job, and what others have added to the
 * control is there. */
PICI_DEV bool last_of_job(pici_cuda_control *control)
{
    hw::fence();
    hw::syncthreads();
    if (warp() != 0)
        return false;
    const uint32_t before = hw::shfl(hw::lane() == 0 ? hw::atomic_add(&control->done, 1u) : 0, 0);
    hw::fence();
    return before + 1 == hw::blocks_x();
}

} // namespace pici

/* Call LAUNCH(T) with the type of the dtype's bits. */
#define BY_WIDTH(dtype, LAUNCH)                                                                                        \
    switch (pici::width_log2(dtype)) {                                                                                 \
    case 0: return LAUNCH(uint8_t);                                                                                    \
    case 1: return LAUNCH(uint16_t);                                                                                   \
    case 2: return LAUNCH(uint32_t);                                                                                   \
    default: return LAUNCH(uint64_t);                                                                                  \
    }

/* In compress.cu, coo.cu, hybrid.cu, decompress.cu, add.cu and verify.cu: jobs of which the largest has so many elements. */
cudaError_t pici_cuda_launch_encode(const struct pici_cuda_encode_jobs *, unsigned jobs, uint64_t n, cudaStream_t);
cudaError_t pici_cuda_launch_dense(const struct pici_cuda_encode_jobs *, unsigned jobs, uint64_t n, cudaStream_t);
cudaError_t pici_cuda_launch_coo(const struct pici_cuda_encode_jobs *, unsigned jobs, uint64_t n, cudaStream_t);
cudaError_t pici_cuda_launch_hybrid(const struct pici_cuda_encode_jobs *, unsigned jobs, uint64_t n, cudaStream_t);
cudaError_t pici_cuda_launch_decode(const struct pici_cuda_decode_jobs *, unsigned jobs, uint64_t n, cudaStream_t);
cudaError_t pici_cuda_launch_add(const struct pici_cuda_decode_jobs *, unsigned jobs, uint64_t n, cudaStream_t);
cudaError_t pici_cuda_launch_apply(const struct pici_cuda_decode_jobs *, unsigned jobs, uint64_t n, cudaStream_t);
cudaError_t pici_cuda_launch_verify(const struct pici_cuda_decode_jobs *, unsigned jobs, uint64_t bytes, cudaStream_t);

#endif
