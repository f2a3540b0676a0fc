/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encoding hybrid blocks, in one pass over the elements, a group at a time. Where a record begins follows from the
 * lengths of those before it. The totals are known when the last thread block ends, and that one writes the header. */
#include "encode.cuh"

using namespace pici;

/* Threads of a thread block. Two with FEW fit on a multiprocessor, or one with MANY, which takes half as long for a
 * group: for inputs of so few groups that each has a multiprocessor to itself. */
constexpr unsigned FEW = 256, MANY = 512;

template <class T, unsigned THREADS>
PICI_KERNEL(THREADS, MANY / THREADS)
hybrid_kernel(const pici_cuda_encode_jobs jobs)
{
    PICI_SHARED(memory);
    block_memory *shared = (block_memory *)memory;
    const pici_cuda_encode_job job = jobs.job[hw::block_y()];
    making<T> m = making_of<T>(jobs, PICI_HYBRID);
    layout(m.to);
    const uint64_t groups = groups_of(m.to.tiles);
    uint64_t nnz = 0;
    claim_partitions(job, shared, groups, [&](look_back &prefix) {
        const group_end end = make_group(m, prefix.part, shared, prefix);
        nnz += end.nnz;
        if (end.signs && nnz < SIGNS_SEEN)
            nnz += SIGNS_SEEN;
        if (prefix.part + 1 == groups && hw::thread() == 0)
            hw::atomic_add(&job.control->units, end.units);
    });
    if (hw::thread() == 0)
        hw::atomic_add(&job.control->nnz, nnz);
    if (last_of_job(job.control)) {
        nnz = hw::load_settled(&job.control->nnz);
        end_of_groups(m, hw::load_settled(&job.control->units), nnz % SIGNS_SEEN, nnz >= SIGNS_SEEN);
        finish_block(m, nnz % SIGNS_SEEN, job.call.result);
    }
}

template <class T>
static cudaError_t launch_hybrid(const pici_cuda_encode_jobs *jobs, unsigned count, uint64_t n, cudaStream_t stream)
{
    const uint64_t groups = groups_of(tiles_of(n));
    int each = 0;
    const cudaError_t e = multiprocessors(&each);
    if (e)
        return e;
    return groups * count <= (uint64_t)each ? launch_jobs(hybrid_kernel<T, MANY>, groups, count, MANY,
                                                          MAKE_BYTES<T>(PICI_HYBRID, MANY), 1, *jobs, stream)
                                            : launch_jobs(hybrid_kernel<T, FEW>, groups, count, FEW,
                                                          MAKE_BYTES<T>(PICI_HYBRID, FEW), MANY / FEW, *jobs, stream);
}

cudaError_t pici_cuda_launch_hybrid(const pici_cuda_encode_jobs *jobs, unsigned count, uint64_t n, cudaStream_t stream)
{
#define LAUNCH(T) launch_hybrid<T>(jobs, count, n, stream)
    BY_WIDTH(jobs->dtype, LAUNCH)
#undef LAUNCH
}
