/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading blocks by a grid. Every thread block parses the header, reads its share of the tiles, and records the
 * first fault in the control. The last thread block to end writes the result. */
#ifndef PICI_LIB_CUDA_DECODE_CUH
#define PICI_LIB_CUDA_DECODE_CUH

#include <stddef.h>

#include "launch.cuh"

namespace pici {

/* Set *size to the size of a job's block. Returns false if it exceeds the memory at the block. */
PICI_DEV bool size_of_block(const pici_cuda_decode &call, uint64_t *size)
{
    *size = call.len_at ? hw::load(call.len_at) : call.len;
    return *size <= call.len;
}

/* Read this warp's share of a job's block, and record faults in the control. */
template <reading DO, class SUM, class T>
PICI_DEV void read_share(const block_view &view, T *dst, uint8_t *stage, pici_cuda_control *control)
{
    const found seen = warp_read<DO, SUM>(view, dst, hw::block_x() * (uint64_t)warps() + warp(),
                                          hw::blocks_x() * (uint64_t)warps(), stage);
    if (seen.fault)
        hw::atomic_max(&control->fault, seen.fault);
    if (seen.nnz && hw::lane() == 0)
        hw::atomic_add(&control->nonzeros, seen.nnz);
}

/* The first fault of a block. Call it in the warp in which last_of_job() is true. */
PICI_DEV uint64_t fault_of_job(const block_view &view, const pici_cuda_control *control)
{
    return whole_fault(view, hw::load_settled(&control->fault), hw::load_settled(&control->nonzeros));
}

/* Called by one thread after the job's other thread blocks have ended: restore the control for another first kernel. */
PICI_DEV void clear_control(pici_cuda_control *control)
{
    static_assert(offsetof(pici_cuda_control, ticket) == offsetof(pici_cuda_control, done) + 4, "cleared as one word");
    hw::store_relaxed(&control->fault, 0);
    hw::store_relaxed((uint64_t *)&control->done, 0);
    hw::store_relaxed(&control->nonzeros, 0);
}

/* Parse the header of a job's block into view and *size. Returns the job's status as known from the header. */
PICI_DEV int header_status(block_view &view, const pici_cuda_decode &call, unsigned dtype, uint64_t *size)
{
    view = block_view();
    if (!size_of_block(call, size))
        return PICI_E_ARG;
    const int status = rule_status(parse(view, (const uint8_t *)call.block, *size).rule);
    return !status && (view.count != call.n || view.dtype != dtype) ? PICI_E_ARG : status;
}

/* Decode (SUM: void) or add (SUM: arith<dtype> or arith_xor<T>) a job's block. */
template <reading DO, class SUM, class T>
PICI_DEV void decode_job(const pici_cuda_decode_job &job, unsigned dtype, uint8_t *memory)
{
    block_memory *shared = (block_memory *)memory;
    block_view view;
    uint64_t size;
    if (!header_status(view, job.call, dtype, &size))
        read_share<DO, SUM>(view, (T *)job.call.dst, stage_of<READ_STAGE_BYTES<T>>(shared), job.control);
    if (last_of_job(job.control)) { /* parsed again: keeping view until here would cost all threads registers */
        int status = header_status(view, job.call, dtype, &size);
        if (!status)
            status = fault_status(fault_of_job(view, job.control));
        hw::syncwarp(); /* all lanes have read the control */
        if (hw::lane() == 0) {
            put_result(job.call.result, pici_cuda_result{status ? 0 : size, status, 0, 0, 0});
            clear_control(job.control);
        }
    }
}

} // namespace pici

#endif
