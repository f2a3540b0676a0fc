/* SPDX-License-Identifier: BSD-3-Clause */
#include "decode.cuh"

using namespace pici;

template <class T> PICI_KERNEL(DECODE_THREADS<T>, DECODE_BLOCKS<T>) decode_kernel(const pici_cuda_decode_jobs jobs)
{
    PICI_BLOCK_MEMORY(memory);
    decode_job<DECODE, void, T>(jobs.job[hw::block_y()], jobs.dtype, memory);
}

template <class T>
static cudaError_t launch_decode(const pici_cuda_decode_jobs *jobs, unsigned count, uint64_t elements,
                                 cudaStream_t stream)
{
    constexpr unsigned threads = DECODE_THREADS<T>;
    return launch_jobs(decode_kernel<T>, (tiles_of(elements) + threads / 32 - 1) / (threads / 32), count, threads,
                       READ_BYTES<T>(threads), DECODE_BLOCKS<T>, *jobs, stream);
}

cudaError_t pici_cuda_launch_decode(const pici_cuda_decode_jobs *jobs, unsigned count, uint64_t elements,
                                    cudaStream_t stream)
{
#define LAUNCH(T) launch_decode<T>(jobs, count, elements, stream)
    BY_WIDTH(jobs->dtype, LAUNCH)
#undef LAUNCH
}
