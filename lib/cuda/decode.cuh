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

/* One of all warps' part of reading a job's block. What it found goes to the control. */
template <reading DO, class SUM, class T>
PICI_DEV void read_share(const block_view &v, T *dst, uint8_t *stage, pici_cuda_control *control)
{
    const found f = warp_read<DO, SUM>(v, dst, hw::block_x() * (uint64_t)warps() + warp(),
                                       hw::blocks_x() * (uint64_t)warps(), stage);
    if (f.fault)
        hw::atomic_max(&control->fault, f.fault);
    if (f.nnz && hw::lane() == 0)
        hw::atomic_add(&control->nnz, f.nnz);
}

/* The first fault of a block, where last_of_job() is true. */
PICI_DEV uint64_t fault_of_job(const block_view &v, const pici_cuda_control *control)
{
    return whole_fault(v, hw::load_relaxed(&control->fault), hw::load_relaxed(&control->nnz));
}

/* The status of a job as far as its block's header says. */
PICI_DEV int header_status(block_view &v, const pici_cuda_decode &call, unsigned dtype, uint64_t *len)
{
    v = block_view();
    if (!length_of(call, len))
        return PICI_E_ARG;
    const int status = rule_status(parse(v, (const uint8_t *)call.block, *len).rule);
    return !status && (v.count != call.n || v.dtype != dtype) ? PICI_E_ARG : status;
}

/* Decode, or add: SUM is void, or arith<dtype> or arith_xor. */
template <reading DO, class SUM, class T>
PICI_DEV void decode_job(const pici_cuda_decode_job &job, unsigned dtype, uint8_t *memory)
{
    block_memory *shared = (block_memory *)memory;
    block_view v;
    uint64_t len;
    if (!header_status(v, job.call, dtype, &len))
        read_share<DO, SUM>(v, (T *)job.call.dst, stage_of<READ_STAGE_BYTES<T>>(shared), job.control);
    if (last_of_job(job.control)) { /* the header again: kept all the while, it would take registers from all */
        int status = header_status(v, job.call, dtype, &len);
        if (!status)
            status = fault_status(fault_of_job(v, job.control));
        if (hw::lane() == 0)
            *job.call.result = pici_cuda_result{status ? 0 : len, status, 0, 0, 0};
    }
}

} // namespace pici

#endif
