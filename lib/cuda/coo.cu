/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encoding coo blocks in two passes over the elements, because the number of values determines where they begin. The
 * first pass counts them, and leaves in each partition's word the number of values up to its end. Searches for
 * positions and values use the same two passes. */
#include "coo.cuh"

#include "encode.cuh"

using namespace pici;

/* The number of values before a partition, from the first pass. */
struct counted {
    const uint64_t *state;
    uint64_t partition;
    PICI_DEV_MEMBER void publish(uint64_t)
    {
    }
    PICI_DEV_MEMBER uint64_t resolve(uint64_t)
    {
        return partition ? hw::load(state + partition - 1) & STATE_VALUE : 0;
    }
};

template <class T> PICI_KERNEL(ENCODE_THREADS<T>, 8) coo_count_kernel(const pici_cuda_encode_jobs jobs)
{
    PICI_BLOCK_MEMORY(memory);
    block_memory *shared = (block_memory *)memory;
    const pici_cuda_encode_job job = jobs.job[hw::block_y()];
    const T *src = (const T *)job.call.src, *base = (const T *)job.call.base;
    const uint64_t count = job.call.n;
    if (!is_wanted(jobs, job.control, PICI_COO))
        return;
    claim_partitions(job, shared, partitions(count), [&](look_back &prefix) {
        const uint64_t t = prefix.partition * warps() + warp();
        const uint32_t nnz = warp_sum(
            t < tiles_of(count) ? (uint32_t)warp_count(src, count, t, tiles_of(count), base, jobs.by_value) : 0);
        if (hw::lane() == 0)
            hw::put(&shared->count[warp()], nnz);
        hw::syncthreads();
        if (warp() == 0) {
            const uint32_t total = warp_sum(hw::lane() < warps() ? hw::get(&shared->count[hw::lane()]) : 0);
            prefix.publish(total);
            prefix.resolve(total);
        }
        hw::syncthreads();
    });
}

template <class T> PICI_KERNEL(ENCODE_THREADS<T>, 2) coo_kernel(const pici_cuda_encode_jobs jobs)
{
    PICI_BLOCK_MEMORY(memory);
    block_memory *shared = (block_memory *)memory;
    const pici_cuda_encode_job job = jobs.job[hw::block_y()];
    making<T> work = making_of<T>(jobs, PICI_COO);
    if (!is_wanted(jobs, job.control, PICI_COO))
        return;
    const uint64_t parts = partitions(work.to.count);
    work.to.nnz = parts ? hw::load(job.state + parts - 1) & STATE_VALUE : 0;
    if (layout(work.to) && work.to.block_bytes <= work.cap) {
        for (uint64_t part = hw::block_x(); part < parts; part += hw::blocks_x()) {
            counted prefix = {job.state, part};
            make_partition<PICI_COO>(work, part, shared, prefix);
        }
    }
    if (hw::block_x() == 0 && warp() == 0)
        finish_block(work, work.to.nnz, job.call.result);
}

/* Called by a warp: store the positions and values found in a tile. before: the number found before it. stage: from
 * tile_pack_coo. */
template <class T>
PICI_DEV void store_found(const pici_cuda_nonzeros &job, const uint8_t *stage, uint64_t tile, uint64_t before,
                          unsigned found)
{
    const T *const values = (const T *)stage, *const old = (const T *)job.old;
    const uint16_t *const places = (const uint16_t *)(stage + TILE * sizeof(T));
    for (unsigned i = hw::lane(); i < found && before + i < job.capacity; i += LANES) {
        const uint64_t position = tile * TILE + hw::get(places + i);
        T value = hw::get(values + i);
        if (old)
            value ^= hw::load(old + position);
        if (job.indices)
            store_index((uint8_t *)job.indices, job.index_bytes, before + i, position);
        if (job.values)
            hw::store((T *)job.values + before + i, value);
    }
}

/* After coo_count_kernel, by one thread: store the number of elements found. */
PICI_KERNEL(LANES, 1) nonzeros_end_kernel(const pici_cuda_nonzeros job)
{
    if (hw::lane() != 0)
        return;
    const bool decoded = !hw::load(&job.result->status);
    const uint64_t all = decoded && job.parts ? hw::load(job.state + job.parts - 1) & STATE_VALUE : 0;
    hw::store(job.count, all);
    if (all > job.capacity) {
        hw::store(&job.result->len, UINT64_C(0));
        hw::store(&job.result->status, (int32_t)PICI_E_SPACE);
    }
}

/* After nonzeros_end_kernel. */
template <class T> PICI_KERNEL(ENCODE_THREADS<T>, 2) nonzeros_kernel(const pici_cuda_nonzeros job)
{
    PICI_BLOCK_MEMORY(memory);
    block_memory *const shared = (block_memory *)memory;
    uint8_t *const stage = stage_of<COO_STAGE_BYTES<T>>(shared);
    const unsigned lane = hw::lane();
    const uint64_t parts = hw::load(job.count) ? job.parts : 0;
    for (uint64_t part = hw::block_x(); part < parts; part += hw::blocks_x()) {
        const uint64_t tile = part * warps() + warp();
        unsigned found = 0;
        if (tile < tiles_of(job.n)) {
            held_tile<T> held;
            tile_load(held, tile_at((const T *)job.src, job.n, tile, (const T *)job.base));
            found = tile_pack_coo(stage, held);
        }
        if (lane == 0)
            hw::put(&shared->count[warp()], found);
        hw::syncthreads();
        counted before = {job.state, part};
        const uint32_t earlier = warp_sum(lane < warp() ? hw::get(&shared->count[lane]) : 0);
        store_found<T>(job, stage, tile, before.resolve(0) + earlier, found);
        hw::syncthreads();
    }
}

/* The size in bytes of the block that `view` describes, but in another format, not hybrid or packed, with `values`
 * values. */
PICI_DEV uint64_t bytes_as(block_view view, unsigned format, uint64_t values)
{
    view.format = format;
    view.nnz = format == PICI_DENSE ? view.count : values;
    return layout(view) ? view.block_bytes : UINT64_MAX;
}

/* The format with the shortest block, except hybrid and packed. Of equal ones, the format with the lowest number. */
PICI_DEV unsigned shortest_other(const block_view &view, uint64_t values)
{
    unsigned best = PICI_DENSE;
    for (unsigned format = PICI_BITMAP; format <= PICI_COO; format++)
        if (bytes_as(view, format, values) < bytes_as(view, best, values))
            best = format;
    return best;
}

/* For PICI_AUTO: count the elements other than zeros. */
template <class T> PICI_KERNEL(256, 4) count_kernel(const pici_cuda_encode_jobs jobs)
{
    const pici_cuda_encode_job job = jobs.job[hw::block_y()];
    uint64_t filled = warp_count((const T *)job.call.src, job.call.n, hw::block_x() * warps() + warp(),
                                 hw::blocks_x() * warps(), (const T *)job.call.base, jobs.by_value);
    for (unsigned distance = LANES / 2; distance; distance /= 2)
        filled += hw::shfl_down(filled, distance);
    if (hw::lane() == 0 && filled)
        hw::atomic_add(&job.control->filled, filled);
    if (last_of_job(job.control) && hw::lane() == 0) {
        const block_view view = making_of<T>(jobs, PICI_DENSE).to;
        filled = hw::load_settled(&job.control->filled);
        const unsigned other = shortest_other(view, filled);
        hw::store(&job.control->choice, (uint64_t)other << 32);
        hw::store(&job.control->others, bytes_as(view, other, filled));
        reset_counts(job.control);
    }
}

/* Thread blocks' worth of work. */
template <class T> static uint64_t parts_of(uint64_t elements)
{
    const uint64_t tiles = encode_tiles(sizeof(T));
    return (tiles_of(elements) + tiles - 1) / tiles;
}

template <class T>
static cudaError_t launch_coo(const pici_cuda_encode_jobs *jobs, unsigned count, uint64_t elements, cudaStream_t stream)
{
    constexpr unsigned threads = ENCODE_THREADS<T>;
    const uint64_t parts = parts_of<T>(elements);
    const cudaError_t error =
        launch_jobs(coo_count_kernel<T>, parts, count, threads, (unsigned)sizeof(block_memory), 8, *jobs, stream);
    return error
               ? error
               : launch_jobs(coo_kernel<T>, parts, count, threads, MAKE_BYTES<T>(PICI_COO, threads), 2, *jobs, stream);
}

cudaError_t pici_cuda_launch_coo(const pici_cuda_encode_jobs *jobs, unsigned count, uint64_t elements,
                                 cudaStream_t stream){
#define LAUNCH(T) launch_coo<T>(jobs, count, elements, stream)
    BY_WIDTH(jobs->dtype, LAUNCH)
#undef LAUNCH
}

cudaError_t
    pici_cuda_launch_count(const pici_cuda_encode_jobs *jobs, unsigned count, uint64_t elements, cudaStream_t stream)
{
#define LAUNCH(T) launch_jobs(count_kernel<T>, tiles_of(elements) / 8 + 1, count, 256, 0, 4, *jobs, stream)
    BY_WIDTH(jobs->dtype, LAUNCH)
#undef LAUNCH
}

template <class T> static cudaError_t launch_nonzeros(pici_cuda_nonzeros job, cudaStream_t stream)
{
    constexpr unsigned threads = ENCODE_THREADS<T>;
    struct pici_cuda_encode_jobs counts = {};
    job.parts = parts_of<T>(job.n);
    counts.job[0] = {{nullptr, 0, job.result, job.src, job.n, job.base}, job.control, job.state};
    counts.dtype = job.dtype;
    cudaError_t error =
        launch_jobs(coo_count_kernel<T>, job.parts, 1, threads, (unsigned)sizeof(block_memory), 8, counts, stream);
    if (!error)
        error = launch(nonzeros_end_kernel, 1, 1, LANES, 0, job, stream);
    if (!error)
        error =
            launch_jobs(nonzeros_kernel<T>, job.parts, 1, threads, MAKE_BYTES<T>(PICI_COO, threads), 2, job, stream);
    return error;
}

cudaError_t pici_cuda_launch_nonzeros(const pici_cuda_nonzeros &job, cudaStream_t stream)
{
#define LAUNCH(T) launch_nonzeros<T>(job, stream)
    BY_WIDTH(job.dtype, LAUNCH)
#undef LAUNCH
}
