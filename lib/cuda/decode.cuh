/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading blocks by a grid: every thread block parses the header, takes its share of tiles, and notes the first fault; the
 * last to end writes the result. */
#ifndef PICI_LIB_CUDA_DECODE_CUH
#define PICI_LIB_CUDA_DECODE_CUH

#include "launch.cuh"

namespace pici {

/* The length of a job's block, or false if it is more than there is. */
PICI_DEV bool length_of(const pici_cuda_decode &call, uint64_t *len)
{
    *len = call.len_at ? hw::load(call.len_at) : call.len;
    return *len <= call.len;
}

/* All threads: wrong is a fault of each. True in one thread of the last thread block of a job, with the first fault of all. */
PICI_DEV bool last_of_job(pici_cuda_control *control, uint64_t wrong, uint64_t *first)
{
    if (wrong)
        hw::atomic_max(&control->fault, wrong);
    hw::fence();
    hw::syncthreads();
    if (hw::thread() != 0 || hw::atomic_add(&control->done, 1u) + 1 != hw::blocks_x())
        return false;
    hw::fence();
    *first = hw::load_relaxed(&control->fault);
    return true;
}

/* Decode, or add: SUM is void or arith<dtype>. */
template <reading DO, class SUM, class T>
PICI_DEV void decode_job(const pici_cuda_decode_job &job, unsigned dtype, uint8_t *memory)
{
    block_memory *shared = (block_memory *)memory;
    block_view v = block_view();
    uint64_t len, wrong = 0, first;
    int status = PICI_E_ARG;
    if (length_of(job.call, &len)) {
        status = rule_status(parse(v, (const uint8_t *)job.call.block, len).rule);
        if (!status && (v.count != job.call.n || v.dtype != dtype))
            status = PICI_E_ARG;
    }
    if (!status)
        wrong = warp_read<DO, SUM>(v, (T *)job.call.dst, hw::block_x() * (uint64_t)warps() + warp(),
                                   hw::blocks_x() * (uint64_t)warps(), stage_of<STAGE_BYTES<T>>(shared));
    if (last_of_job(job.control, wrong, &first)) {
        if (!status)
            status = fault_status(first);
        *job.call.result = pici_cuda_result{status ? 0 : len, status, 0, 0, 0};
    }
}

} // namespace pici

#endif
