/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading blocks by a grid. Every thread block parses the header, reads its share of the tiles, and records the
 * first fault in the control. The thread block that ends last writes the result. */
#ifndef PICI_LIB_CUDA_DECODE_CUH
#define PICI_LIB_CUDA_DECODE_CUH

#include <stddef.h>

#include "launch.cuh"

namespace pici {

/* Set *len to the length of a job's block; false if it exceeds the room there. */
PICI_DEV bool length_of(const pici_cuda_decode &call, uint64_t *len)
{
    *len = call.len_at ? hw::load(call.len_at) : call.len;
    return *len <= call.len;
}

/* Read this warp's share of a job's block, and record what it found in the control. */
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

/* The first fault of a block. For the warp for which last_of_job() is true. */
PICI_DEV uint64_t fault_of_job(const block_view &v, const pici_cuda_control *control)
{
    return whole_fault(v, hw::load_settled(&control->fault), hw::load_settled(&control->nnz));
}

/* Called by one thread, when the job's other thread blocks have ended: the control is as before its first kernel. */
PICI_DEV void clear_control(pici_cuda_control *control)
{
    static_assert(offsetof(pici_cuda_control, ticket) == offsetof(pici_cuda_control, done) + 4, "cleared as one word");
    hw::store_relaxed(&control->fault, 0);
    hw::store_relaxed((uint64_t *)&control->done, 0);
    hw::store_relaxed(&control->nnz, 0);
}

/* Parse the header of a job's block into v and *len. Returns the job's status as far as the header determines it. */
PICI_DEV int header_status(block_view &v, const pici_cuda_decode &call, unsigned dtype, uint64_t *len)
{
    v = block_view();
    if (!length_of(call, len))
        return PICI_E_ARG;
    const int status = rule_status(parse(v, (const uint8_t *)call.block, *len).rule);
    return !status && (v.count != call.n || v.dtype != dtype) ? PICI_E_ARG : status;
}

/* Decode (SUM: void) or add (SUM: arith<dtype> or arith_xor<T>) a job's block. */
template <reading DO, class SUM, class T>
PICI_DEV void decode_job(const pici_cuda_decode_job &job, unsigned dtype, uint8_t *memory)
{
    block_memory *shared = (block_memory *)memory;
    block_view v;
    uint64_t len;
    if (!header_status(v, job.call, dtype, &len))
        read_share<DO, SUM>(v, (T *)job.call.dst, stage_of<READ_STAGE_BYTES<T>>(shared), job.control);
    if (last_of_job(job.control)) { /* parsed again: keeping v until here would cost all threads registers */
        int status = header_status(v, job.call, dtype, &len);
        if (!status)
            status = fault_status(fault_of_job(v, job.control));
        hw::syncwarp(); /* all lanes have read the control */
        if (hw::lane() == 0) {
            put_result(job.call.result, pici_cuda_result{status ? 0 : len, status, 0, 0, 0});
            clear_control(job.control);
        }
    }
}

} // namespace pici

#endif
