/* SPDX-License-Identifier: BSD-3-Clause */
#include "decode.cuh"

using namespace pici;

constexpr unsigned THREADS = 128;

template <class T> PICI_DEV void verify_share(const block_view &view, uint8_t *stage, pici_cuda_control *control)
{
    read_share<VERIFY, void>(view, (T *)nullptr, stage, control);
}

PICI_KERNEL(THREADS, 4)
verify_kernel(const pici_cuda_decode_jobs jobs)
{
    PICI_BLOCK_MEMORY(memory);
    uint8_t *const stage = memory + warp() * VERIFY_STAGE_BYTES;
    const pici_cuda_decode_job job = jobs.job[hw::block_y()];
    uint64_t size;
    const bool whole = size_of_block(job.call, &size);
    {
        block_view view = block_view();
        if (whole && !parse(view, (const uint8_t *)job.call.block, size).rule)
            switch (view.width_log2) {
            case 0: verify_share<uint8_t>(view, stage, job.control); break;
            case 1: verify_share<uint16_t>(view, stage, job.control); break;
            case 2: verify_share<uint32_t>(view, stage, job.control); break;
            default: verify_share<uint64_t>(view, stage, job.control);
            }
    }
    if (last_of_job(job.control)) {
        block_view view = block_view(); /* parsed again, as in decode_job */
        breach found = {RULE_NONE, 0};
        if (whole)
            found = parse(view, (const uint8_t *)job.call.block, size);
        finding seen = {found.rule, found.at, found.rule ? PICI_NO_TILE : 0};
        if (whole && !found.rule)
            seen = warp_explain(view, fault_of_job(view, job.control));
        const int status = whole ? rule_status(seen.rule) : PICI_E_ARG;
        if (hw::lane() == 0)
            put_result(job.call.result, pici_cuda_result{status ? 0 : size, status, seen.rule, seen.at, seen.tile});
    }
}

cudaError_t pici_cuda_launch_verify(const pici_cuda_decode_jobs *jobs, unsigned count, uint64_t bytes,
                                    cudaStream_t stream)
{
    return launch_jobs(verify_kernel, bytes / 16384 + 1, count, THREADS, THREADS / LANES * VERIFY_STAGE_BYTES, 4, *jobs,
                       stream);
}
