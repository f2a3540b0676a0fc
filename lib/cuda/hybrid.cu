/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encoding hybrid blocks by groups, or by tiles if there are few. A record begins where the record before it ends.
 * The last thread block to end knows the totals, and writes the header. */
#include "encode.cuh"

using namespace pici;

/* Threads of a thread block that encodes a group. Two blocks with FEW threads fit on a multiprocessor, or one with
 * MANY. MANY halves the time for a group. It is for inputs with so few groups that each has a multiprocessor to
 * itself. */
constexpr unsigned FEW = 256, MANY = 512;

/* Warps of a multiprocessor that encode tiles, each a thread block. This many leave enough registers for each. */
constexpr unsigned TILEWISE_WARPS = 12;

/* Is the hybrid block shorter than the other formats' blocks, or does none fit? If not, choose a format, and reset
 * `words` words of the workspace for its kernel. work: complete layout except for nnz. Called by one warp after the
 * job's other thread blocks have ended. */
template <class T>
PICI_DEV_COLD bool keep_hybrid(making<T> work, pici_cuda_encode_job job, uint64_t nonzeros, uint64_t words)
{
    block_view hybrid = work.to;
    hybrid.nnz = nonzeros;
    const uint64_t others = hw::load(&job.control->others);
    const bool kept = others > work.cap || (layout(hybrid) && hybrid.block_bytes < others);
    if (!kept) {
        reset_job(job, words);
        if (hw::lane() == 0)
            hw::store_relaxed(&job.control->choice, 1 + (hw::load_relaxed(&job.control->choice) >> 32));
    }
    return kept;
}

/* keep_hybrid for blocks whose directory does not fit. Called by all threads, at their end. */
template <class T> PICI_DEV void no_hybrid(const making<T> &work, const pici_cuda_encode_job &job)
{
    if (last_of_job(job.control) && keep_hybrid(work, job, 0, 0))
        finish_block(work, 0, job.call.result);
}

/* Encode in one pass over the elements, a group at a time. */
template <class T, unsigned THREADS>
PICI_KERNEL(THREADS, MANY / THREADS)
hybrid_kernel(const pici_cuda_encode_jobs jobs)
{
    PICI_BLOCK_MEMORY(memory);
    block_memory *shared = (block_memory *)memory;
    const pici_cuda_encode_job job = jobs.job[hw::block_y()];
    making<T> work = making_of<T>(jobs, PICI_HYBRID);
    if (!is_wanted(jobs, job.control, PICI_HYBRID))
        return;
    layout(work.to);
    if (!directory_fits(work)) {
        no_hybrid(work, job);
        return;
    }
    const uint64_t groups = groups_of(work.to.tiles);
    uint64_t nonzeros = 0, units = 0;
    claim_partitions(job, shared, groups, [&](look_back &prefix) {
        const group_end end = make_group(work, prefix.partition, shared, prefix);
        add_group(nonzeros, end.nnz, end.signs);
        if (prefix.partition + 1 == groups)
            units = end.units;
    });
    finish_groups(work, job, nonzeros, units,
                  [&](uint64_t all) { return !jobs.of_all || keep_hybrid(work, job, all, groups); });
}

/* ---- by tiles ---- */

/* The state of a tile, in a word of the workspace: 0 before its survey; then the result of `survey`, with TILE_KNOWN
 * set. One word holds both numbers, so no other memory needs to be ordered with it. */
constexpr uint32_t TILE_KNOWN = 1u << 29;

/* Wait until the tiles of a group are surveyed. Returns the lane's tile. */
PICI_DEV surveyed wait_for_tiles(const uint64_t *of, unsigned tiles)
{
    for (;;) {
        const uint64_t word = hw::lane() < tiles ? hw::load_relaxed(of + hw::lane()) : TILE_KNOWN;
        if (hw::ballot((word & TILE_KNOWN) != 0) == hw::ALL)
            return surveyed{(uint32_t)word & ~TILE_KNOWN, (uint32_t)(word >> 32)};
        hw::pause();
    }
}

/* Write tile i of group `number`. With the first tile, also write the parts of the whole group, and add it to nonzeros
 * and units. Waits only for tiles and groups that were claimed before this tile. */
template <class T>
PICI_DEV void write_tile(const making<T> &work, uint64_t number, unsigned i, look_back &prefix, const uint64_t *known,
                         made_tile *made, uint64_t &nonzeros, uint64_t &units)
{
    const unsigned unit = unit_of(LOG2<T>);
    const uint64_t first = number * GROUP_TILES, left = work.to.tiles - first;
    group made_group;
    const surveyed survey = wait_for_tiles(known + first, left < GROUP_TILES ? (unsigned)left : (unsigned)GROUP_TILES);
    const uint32_t bytes = group_from(made_group, work, first, survey), all = warp_sum(made_group.n);
    prefix.partition = number;
    uint64_t base;
    if (i == 0) {
        prefix.say(bytes / unit);
        base = prefix.before(bytes / unit);
    } else {
        base = prefix.end() - bytes / unit;
    }
    const bool fits = work.to.body_offset + (base + bytes / unit) * unit <= work.cap;
    if (i == 0) {
        group_head(work, number, made_group, base, bytes, fits);
        add_group(nonzeros, all, made_group.signs != 0);
        if (left <= GROUP_TILES)
            units = base + bytes / unit;
    }
    const unsigned count = hw::shfl(made_group.n, i), container = hw::shfl(made_group.container, i);
    if (!fits || !(made_group.bits >> i & 1))
        return;
    if (count && container != PICI_RAW) {
        dense_tile<const T> d = source_tile(work, first + i);
        bool negative;
        d.by_value |= (made_group.signs >> i & 1) != 0;
        tile_survey(made, d, negative);
        hw::syncwarp();
        tile_payload(made, container, count);
        hw::syncwarp();
    }
    group_tile(work, first, made_group, record_at(work, base), i, made);
}

/* A thread block is one warp. It takes a tile at a time: first to survey it, then to write it. Warps claim all surveys
 * before any write, and a survey waits for nothing. So a warp waits only for running warps. Each element is read twice,
 * and three times in tiles with more than 2 KiB of values. All reads but the first come from L2. */
template <class T> PICI_KERNEL(LANES, TILEWISE_WARPS) hybrid_tiles_kernel(const pici_cuda_encode_jobs jobs)
{
    PICI_BLOCK_MEMORY(memory);
    block_memory *shared = (block_memory *)memory;
    made_tile *const made = (made_tile *)(shared + 1);
    const pici_cuda_encode_job job = jobs.job[hw::block_y()];
    making<T> work = making_of<T>(jobs, PICI_HYBRID);
    if (!is_wanted(jobs, job.control, PICI_HYBRID))
        return;
    layout(work.to);
    if (!directory_fits(work)) {
        no_hybrid(work, job);
        return;
    }
    const uint64_t tiles = work.to.tiles;
    uint64_t *const known = job.state + groups_of(tiles); /* after one word per group */
    look_back prefix = {job.control, job.state, shared, 0, 0};
    uint64_t nonzeros = 0, units = 0;
    prefix.claim();
    for (;;) {
        const uint64_t k = hw::shfl(prefix.next, 0), tile = k < tiles ? k : k - tiles;
        if (k >= 2 * tiles)
            break;
        prefix.claim();
        if (k < tiles) {
            const surveyed own_survey = survey(made, work, tile);
            if (hw::lane() == 0)
                hw::store_relaxed(known + tile, (uint64_t)own_survey.sign << 32 | own_survey.count | TILE_KNOWN);
            hw::syncwarp();
        } else {
            write_tile(work, tile / GROUP_TILES, (unsigned)(tile % GROUP_TILES), prefix, known, made, nonzeros, units);
        }
    }
    finish_groups(work, job, nonzeros, units,
                  [&](uint64_t all) { return !jobs.of_all || keep_hybrid(work, job, all, groups_of(tiles) + tiles); });
}

/* By tiles if groups would keep at most a quarter of the multiprocessors busy. */
template <class T>
static cudaError_t launch_hybrid(const pici_cuda_encode_jobs *jobs, unsigned count, uint64_t elements,
                                 cudaStream_t stream)
{
    const uint64_t tiles = tiles_of(elements), groups = groups_of(tiles);
    int each = 0;
    const cudaError_t error = multiprocessors(&each);
    if (error)
        return error;
    if (tiles <= TILEWISE_MOST && 4 * groups * count <= (uint64_t)each)
        return launch_jobs(hybrid_tiles_kernel<T>, tiles, count, LANES, sizeof(block_memory) + sizeof(made_tile),
                           TILEWISE_WARPS, *jobs, stream);
    return groups * count <= (uint64_t)each ? launch_jobs(hybrid_kernel<T, MANY>, groups, count, MANY,
                                                          MAKE_BYTES<T>(PICI_HYBRID, MANY), 1, *jobs, stream)
                                            : launch_jobs(hybrid_kernel<T, FEW>, groups, count, FEW,
                                                          MAKE_BYTES<T>(PICI_HYBRID, FEW), MANY / FEW, *jobs, stream);
}

cudaError_t pici_cuda_launch_hybrid(const pici_cuda_encode_jobs *jobs, unsigned count, uint64_t elements,
                                    cudaStream_t stream)
{
#define LAUNCH(T) launch_hybrid<T>(jobs, count, elements, stream)
    BY_WIDTH(jobs->dtype, LAUNCH)
#undef LAUNCH
}
