/* SPDX-License-Identifier: BSD-3-Clause */
#include "decode.cuh"

using namespace pici;

template <unsigned DTYPE>
PICI_KERNEL(DECODE_THREADS<typename arith<DTYPE>::element>, ADD_BLOCKS<typename arith<DTYPE>::element>)
add_kernel(const pici_cuda_decode_jobs jobs)
{
    PICI_SHARED(memory);
    decode_job<ADD, arith<DTYPE>, typename arith<DTYPE>::element>(jobs.job[hw::block_y()], jobs.dtype, memory);
}

template <unsigned DTYPE>
static cudaError_t launch_add(const pici_cuda_decode_jobs *jobs, unsigned count, uint64_t n, cudaStream_t stream)
{
    typedef typename arith<DTYPE>::element T;
    constexpr unsigned threads = DECODE_THREADS<T>;
    return launch_jobs(add_kernel<DTYPE>, (tiles_of(n) + threads / 32 - 1) / (threads / 32), count, threads,
                       READ_BYTES<T>(threads), ADD_BLOCKS<T>, *jobs, stream);
}

cudaError_t pici_cuda_launch_add(const pici_cuda_decode_jobs *jobs, unsigned count, uint64_t n, cudaStream_t stream)
{
    /* integers of one width, signed or not, are added alike */
    switch (jobs->dtype) {
    case PICI_F32: return launch_add<PICI_F32>(jobs, count, n, stream);
    case PICI_F64: return launch_add<PICI_F64>(jobs, count, n, stream);
    case PICI_F16: return launch_add<PICI_F16>(jobs, count, n, stream);
    case PICI_BF16: return launch_add<PICI_BF16>(jobs, count, n, stream);
    case PICI_F8E4M3: return launch_add<PICI_F8E4M3>(jobs, count, n, stream);
    case PICI_F8E5M2: return launch_add<PICI_F8E5M2>(jobs, count, n, stream);
    case PICI_I8:
    case PICI_U8: return launch_add<PICI_U8>(jobs, count, n, stream);
    case PICI_I16:
    case PICI_U16: return launch_add<PICI_U16>(jobs, count, n, stream);
    case PICI_I32:
    case PICI_U32: return launch_add<PICI_U32>(jobs, count, n, stream);
    default: return launch_add<PICI_U64>(jobs, count, n, stream);
    }
}
