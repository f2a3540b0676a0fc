/* SPDX-License-Identifier: BSD-3-Clause */
#include "decode.cuh"

using namespace pici;

/* SUM: arith<dtype> or arith_xor. */
template <class SUM>
PICI_KERNEL(DECODE_THREADS<typename SUM::element>, ADD_BLOCKS<typename SUM::element>)
add_kernel(const pici_cuda_decode_jobs jobs)
{
    PICI_BLOCK_MEMORY(memory);
    decode_job<ADD, SUM, typename SUM::element>(jobs.job[hw::block_y()], jobs.dtype, memory);
}

template <class SUM>
static cudaError_t launch_sum(const pici_cuda_decode_jobs *jobs, unsigned count, uint64_t elements, cudaStream_t stream)
{
    typedef typename SUM::element T;
    constexpr unsigned threads = DECODE_THREADS<T>;
    return launch_jobs(add_kernel<SUM>, (tiles_of(elements) + threads / 32 - 1) / (threads / 32), count, threads,
                       READ_BYTES<T>(threads), ADD_BLOCKS<T>, *jobs, stream);
}

template <unsigned DTYPE>
static cudaError_t launch_add(const pici_cuda_decode_jobs *jobs, unsigned count, uint64_t elements, cudaStream_t stream)
{
    return launch_sum<arith<DTYPE>>(jobs, count, elements, stream);
}

cudaError_t pici_cuda_launch_add(const pici_cuda_decode_jobs *jobs, unsigned count, uint64_t elements,
                                 cudaStream_t stream)
{
    /* one kernel adds signed and unsigned integers of the same width */
    switch (jobs->dtype) {
    case PICI_F32: return launch_add<PICI_F32>(jobs, count, elements, stream);
    case PICI_F64: return launch_add<PICI_F64>(jobs, count, elements, stream);
    case PICI_F16: return launch_add<PICI_F16>(jobs, count, elements, stream);
    case PICI_BF16: return launch_add<PICI_BF16>(jobs, count, elements, stream);
    case PICI_F8E4M3: return launch_add<PICI_F8E4M3>(jobs, count, elements, stream);
    case PICI_F8E5M2: return launch_add<PICI_F8E5M2>(jobs, count, elements, stream);
    case PICI_I8:
    case PICI_U8: return launch_add<PICI_U8>(jobs, count, elements, stream);
    case PICI_I16:
    case PICI_U16: return launch_add<PICI_U16>(jobs, count, elements, stream);
    case PICI_I32:
    case PICI_U32: return launch_add<PICI_U32>(jobs, count, elements, stream);
    default: return launch_add<PICI_U64>(jobs, count, elements, stream);
    }
}

cudaError_t pici_cuda_launch_apply(const pici_cuda_decode_jobs *jobs, unsigned count, uint64_t elements,
                                   cudaStream_t stream)
{
#define LAUNCH(T) launch_sum<arith_xor<T>>(jobs, count, elements, stream)
    BY_WIDTH(jobs->dtype, LAUNCH)
#undef LAUNCH
}
