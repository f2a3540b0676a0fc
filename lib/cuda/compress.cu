/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encoding bitmap blocks in one pass over the elements, and dense blocks. In a bitmap block, n alone determines
 * where values begin. So a partition can place its values as soon as it knows the number of values before it. */
#include "encode.cuh"

using namespace pici;

template <class T> PICI_KERNEL(ENCODE_THREADS<T>, ENCODE_BLOCKS<T>) encode_kernel(const pici_cuda_encode_jobs jobs)
{
    PICI_BLOCK_MEMORY(memory);
    block_memory *shared = (block_memory *)memory;
    const pici_cuda_encode_job job = jobs.job[hw::block_y()];
    making<T> work = making_of<T>(jobs, PICI_BITMAP);
    if (!is_wanted(jobs, job.control, PICI_BITMAP))
        return;
    layout(work.to);
    const uint64_t parts = partitions(work.to.count);
    if (parts == 0) {
        if (hw::block_x() == 0 && warp() == 0)
            finish_block(work, 0, job.call.result);
        return;
    }
    claim_partitions(job, shared, parts, [&](look_back &prefix) {
        const uint64_t nnz = make_partition<PICI_BITMAP>(work, prefix.partition, shared, prefix);
        if (prefix.partition + 1 == parts && warp() == 0)
            finish_block(work, nnz, job.call.result);
    });
}

template <class T> PICI_KERNEL(256, 5) dense_kernel(const pici_cuda_encode_jobs jobs)
{
    const pici_cuda_encode_job job = jobs.job[hw::block_y()];
    const making<T> work = making_of<T>(jobs, PICI_DENSE);
    const uint64_t count = work.to.count;
    if (!is_wanted(jobs, job.control, PICI_DENSE))
        return;
    if (work.cap >= HEADER_BYTES && (work.cap - HEADER_BYTES) / sizeof(T) >= count)
        warp_make_dense(work, hw::block_x() * warps() + warp(), hw::blocks_x() * warps());
    if (hw::block_x() == 0 && warp() == 0)
        finish_block(work, count, job.call.result);
}

template <class T>
static cudaError_t launch_encode(const pici_cuda_encode_jobs *jobs, unsigned count, uint64_t elements,
                                 cudaStream_t stream)
{
    constexpr unsigned threads = ENCODE_THREADS<T>;
    return launch_jobs(encode_kernel<T>, (tiles_of(elements) + threads / 32 - 1) / (threads / 32), count, threads,
                       MAKE_BYTES<T>(PICI_BITMAP, threads), ENCODE_BLOCKS<T>, *jobs, stream);
}

template <class T>
static cudaError_t launch_dense(const pici_cuda_encode_jobs *jobs, unsigned count, uint64_t elements,
                                cudaStream_t stream)
{
    return launch_jobs(dense_kernel<T>, elements / (256 * 16 / sizeof(T)) + 1, count, 256, 0, 8, *jobs, stream);
}

cudaError_t pici_cuda_launch_encode(const pici_cuda_encode_jobs *jobs, unsigned count, uint64_t elements,
                                    cudaStream_t stream){
#define LAUNCH(T) launch_encode<T>(jobs, count, elements, stream)
    BY_WIDTH(jobs->dtype, LAUNCH)
#undef LAUNCH
}

cudaError_t
    pici_cuda_launch_dense(const pici_cuda_encode_jobs *jobs, unsigned count, uint64_t elements, cudaStream_t stream)
{
#define LAUNCH(T) launch_dense<T>(jobs, count, elements, stream)
    BY_WIDTH(jobs->dtype, LAUNCH)
#undef LAUNCH
}
