/* SPDX-License-Identifier: BSD-3-Clause */
#include "decode.cuh"

using namespace pici;

template <class T> PICI_DEV void verify_share(const block_view &v, pici_cuda_control *control)
{
    read_share<VERIFY, void>(v, (T *)nullptr, nullptr, control);
}

PICI_KERNEL(128, 5)
verify_kernel(const pici_cuda_decode_jobs jobs)
{
    const pici_cuda_decode_job job = jobs.job[hw::block_y()];
    uint64_t len;
    const bool whole = length_of(job.call, &len);
    {
        block_view v = block_view();
        if (whole && !parse(v, (const uint8_t *)job.call.block, len).rule)
            switch (v.width_log2) {
            case 0: verify_share<uint8_t>(v, job.control); break;
            case 1: verify_share<uint16_t>(v, job.control); break;
            case 2: verify_share<uint32_t>(v, job.control); break;
            default: verify_share<uint64_t>(v, job.control);
            }
    }
    if (last_of_job(job.control)) {
        block_view v = block_view(); /* parsed again, as in decode_job */
        breach b = {RULE_NONE, 0};
        if (whole)
            b = parse(v, (const uint8_t *)job.call.block, len);
        finding f = {b.rule, b.at, b.rule ? PICI_NO_TILE : 0};
        if (whole && !b.rule)
            f = warp_explain(v, fault_of_job(v, job.control));
        const int status = whole ? rule_status(f.rule) : PICI_E_ARG;
        if (hw::lane() == 0)
            put_result(job.call.result, pici_cuda_result{status ? 0 : len, status, f.rule, f.at, f.tile});
    }
}

cudaError_t pici_cuda_launch_verify(const pici_cuda_decode_jobs *jobs, unsigned count, uint64_t bytes,
                                    cudaStream_t stream)
{
    return launch_jobs(verify_kernel, bytes / 16384 + 1, count, 128, 0, 5, *jobs, stream);
}
