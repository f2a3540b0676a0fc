/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encoding packed blocks by groups, as hybrid.cu does. If the caller wants the shortest of several formats, this
 * kernel also sums the sizes of hybrid's records. The kernels of the other formats follow. They do nothing if the
 * packed block is shorter. */
#include "encode.cuh"

using namespace pici;

constexpr unsigned THREADS = 256;

/* Thread blocks that fit on a multiprocessor: each has the values of some runs in shared memory. */
template <class T> constexpr unsigned PACK_BLOCKS = sizeof(T) >= 4 ? 1 : 2;

/* Does the packed block fit, and is it shorter than the other formats' blocks? If not, reset the workspace for their
 * kernels. work: complete layout except for nnz. Called by one warp after the job's other thread blocks have ended. */
template <class T>
PICI_DEV_COLD bool keep_packed(making<T> work, pici_cuda_encode_job job, uint64_t nonzeros, bool of_all)
{
    block_view packed = work.to;
    packed.nnz = nonzeros;
    const uint64_t hybrid = work.to.body_offset + hw::load_settled(&job.control->hybrid);
    const uint64_t others = of_all ? hw::load(&job.control->others) : UINT64_MAX;
    const bool kept =
        layout(packed) && packed.block_bytes <= work.cap && packed.block_bytes < hybrid && packed.block_bytes < others;
    if (!kept)
        reset_job(job, groups_of(work.to.tiles));
    else if (hw::lane() == 0)
        hw::store(&job.control->choice, (uint64_t)1 + PICI_PACKED);
    return kept;
}

template <class T> PICI_KERNEL(THREADS, PACK_BLOCKS<T>) packed_kernel(const pici_cuda_encode_jobs jobs)
{
    PICI_BLOCK_MEMORY(memory);
    block_memory *shared = (block_memory *)memory;
    const pici_cuda_encode_job job = jobs.job[hw::block_y()];
    making<T> work = making_of<T>(jobs, PICI_PACKED);
    layout(work.to);
    if (!directory_fits(work))
        return;
    const uint64_t groups = groups_of(work.to.tiles);
    uint64_t nonzeros = 0, units = 0, hybrid = 0;
    claim_partitions(job, shared, groups, [&](look_back &prefix) {
        uint32_t as_hybrid;
        const group_end end = make_packed_group(work, prefix.partition, shared, prefix, &as_hybrid);
        add_group(nonzeros, end.nnz, end.signs);
        hybrid += as_hybrid;
        if (prefix.partition + 1 == groups)
            units = end.units;
    });
    if (hw::thread() == 0 && jobs.if_shortest)
        hw::atomic_add(&job.control->hybrid, hybrid);
    finish_groups(work, job, nonzeros, units,
                  [&](uint64_t all) { return !jobs.if_shortest || keep_packed(work, job, all, jobs.of_all); });
}

template <class T>
static cudaError_t launch_packed(const pici_cuda_encode_jobs *jobs, unsigned count, uint64_t elements,
                                 cudaStream_t stream)
{
    static_assert(MAKE_BYTES<T>(PICI_PACKED, THREADS) <= 99 << 10, "GPUs of compute capability 8.6 have no more");
    return launch_jobs(packed_kernel<T>, groups_of(tiles_of(elements)), count, THREADS,
                       MAKE_BYTES<T>(PICI_PACKED, THREADS), PACK_BLOCKS<T>, *jobs, stream);
}

cudaError_t pici_cuda_launch_packed(const pici_cuda_encode_jobs *jobs, unsigned count, uint64_t elements,
                                    cudaStream_t stream)
{
#define LAUNCH(T) launch_packed<T>(jobs, count, elements, stream)
    BY_WIDTH(jobs->dtype, LAUNCH)
#undef LAUNCH
}
