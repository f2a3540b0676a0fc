/* SPDX-License-Identifier: BSD-3-Clause */
#include "decode.cuh"

using namespace pici;

template <class T> PICI_DEV uint64_t verify_share(const block_view &v)
{
    return warp_read<VERIFY, void>(v, (T *)nullptr, hw::block_x() * (uint64_t)warps() + warp(),
                                   hw::blocks_x() * (uint64_t)warps(), nullptr);
}

PICI_KERNEL(128, 8)
verify_kernel(const pici_cuda_decode_jobs jobs)
{
    const pici_cuda_decode_job job = jobs.job[hw::block_y()];
    block_view v = block_view();
    breach b = {RULE_NONE, 0};
    uint64_t len, wrong = 0, first;
    const bool whole = length_of(job.call, &len);
    if (whole)
        b = parse(v, (const uint8_t *)job.call.block, len);
    if (whole && !b.rule)
        wrong = v.width_log2 == 0   ? verify_share<uint8_t>(v)
                : v.width_log2 == 1 ? verify_share<uint16_t>(v)
                : v.width_log2 == 2 ? verify_share<uint32_t>(v)
                                    : verify_share<uint64_t>(v);
    if (last_of_job(job.control, wrong, &first)) {
        finding f = {b.rule, b.at, b.rule ? PICI_NO_TILE : 0};
        if (whole && !b.rule)
            f = explain(v, first);
        const int status = whole ? rule_status(f.rule) : PICI_E_ARG;
        *job.call.result = pici_cuda_result{status ? 0 : len, status, f.rule, f.at, f.tile};
    }
}

cudaError_t pici_cuda_launch_verify(const pici_cuda_decode_jobs *jobs, unsigned count, uint64_t bytes,
                                    cudaStream_t stream)
{
    return launch_jobs(verify_kernel, bytes / 16384 + 1, count, 128, 0, 8, *jobs, stream);
}
