/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encoding blocks by a grid. Thread blocks claim partitions one after another. Each finds the number of values
 * before its partition in a single pass with decoupled look-back (Merrill and Garland, NVR-2016-002). */
#ifndef PICI_LIB_CUDA_ENCODE_CUH
#define PICI_LIB_CUDA_ENCODE_CUH

#include "launch.cuh"

namespace pici {

/* The state of a partition, in one word: unknown (0); the number of its values (STATE_OWN); or the number of values up
 * to its end (STATE_ALL). For a group of hybrid or packed, the numbers count units of its record. One word holds the
 * kind and the number, so no other memory needs to be ordered with it. */
constexpr unsigned STATE_SHIFT = 62;
constexpr uint64_t STATE_OWN = UINT64_C(1) << STATE_SHIFT, STATE_ALL = UINT64_C(2) << STATE_SHIFT,
                   STATE_VALUE = STATE_OWN - 1;

/* Finds the number of values before a partition. A thread block that claimed a partition is running, and all
 * partitions before it were claimed earlier. So no thread block waits for one that has not begun. */
struct look_back {
    pici_cuda_control *control;
    uint64_t *state;
    block_memory *shared;
    uint64_t partition;
    uint32_t next;

    PICI_DEV_MEMBER void claim()
    {
        if (hw::lane() == 0)
            next = hw::atomic_add(&control->ticket, 1u);
    }

    /* Publish the partition's number of values. */
    PICI_DEV_MEMBER void say(uint64_t total)
    {
        if (hw::lane() == 0)
            hw::store_relaxed(state + partition, (partition ? STATE_OWN : STATE_ALL) | total);
    }

    /* As `say`, and claim the next partition. */
    PICI_DEV_MEMBER void publish(uint64_t total)
    {
        say(total);
        claim();
    }

    /* Wait for the partitions before, and publish the number of values up to the end of this one. Returns the number
     * before it. */
    PICI_DEV_MEMBER uint64_t before(uint64_t total)
    {
        const unsigned lane = hw::lane();
        uint64_t sums = 0;
        /* lane i reads the state of partition near - 1 - i */
        for (uint64_t near = partition; near;) {
            const bool exists = lane < near;
            uint64_t value;
            unsigned known, all, wanted;
            for (;;) {
                value = exists ? hw::load_relaxed(state + (near - 1 - lane)) : STATE_ALL;
                known = hw::ballot(value >> STATE_SHIFT != 0);
                all = hw::ballot(value >> STATE_SHIFT == 2);
                wanted = all ? all ^ (all - 1) : hw::ALL; /* the lanes up to the nearest partition in STATE_ALL */
                if ((known & wanted) == wanted)
                    break;
                hw::pause();
            }
            uint64_t sum = wanted >> lane & 1 ? value & STATE_VALUE : 0;
            for (unsigned distance = LANES / 2; distance; distance /= 2)
                sum += hw::shfl_down(sum, distance);
            sums += hw::shfl(sum, 0);
            near = all || near <= LANES ? 0 : near - LANES;
        }
        if (lane == 0 && partition)
            hw::store_relaxed(state + partition, STATE_ALL | (sums + total));
        return sums;
    }

    /* Wait until the number of values up to the partition's end is published. */
    PICI_DEV_MEMBER uint64_t end()
    {
        for (;;) {
            const uint64_t value = hw::load_relaxed(state + partition);
            if (hw::ballot(value >> STATE_SHIFT == 2) == hw::ALL)
                return value & STATE_VALUE;
            hw::pause();
        }
    }

    /* As `before`, and tell the thread block the number of the next partition. */
    PICI_DEV_MEMBER uint64_t resolve(uint64_t total)
    {
        const uint64_t sums = before(total);
        if (hw::lane() == 0)
            hw::put(&shared->ticket, (uint64_t)next);
        return sums;
    }
};

/* Call each(prefix) for each partition that this thread block claims. In each, the first warp calls prefix.publish and
 * prefix.resolve between two barriers of the thread block. All threads read the ticket before the first barrier; the
 * next ticket is ready after the second. */
template <class EACH>
PICI_DEV void claim_partitions(const pici_cuda_encode_job &job, block_memory *shared, uint64_t parts, EACH each)
{
    look_back prefix = {job.control, job.state, shared, 0, 0};
    if (hw::thread() == 0)
        hw::put(&shared->ticket, (uint64_t)hw::atomic_add(&job.control->ticket, 1u));
    hw::syncthreads();
    for (;;) {
        prefix.partition = hw::get(&shared->ticket);
        if (prefix.partition >= parts)
            break;
        each(prefix);
    }
}

/* A job's work, without the layout. */
template <class T> PICI_DEV making<T> making_of(const pici_cuda_encode_jobs &jobs, unsigned format)
{
    const pici_cuda_encode_job &job = jobs.job[hw::block_y()];
    making<T> work = {(const T *)job.call.src,
                      (uint8_t *)job.call.block,
                      job.call.cap,
                      block_view(),
                      (const T *)job.call.base,
                      jobs.by_value};
    work.to.format = format;
    work.to.flags = jobs.one_level ? (uint32_t)FLAG_ONE_LEVEL : 0;
    work.to.dtype = jobs.dtype;
    work.to.count = job.call.n;
    work.to.nnz = 0;
    return work;
}

/* Called by one warp: write the end of the block, and the result. */
template <class T> PICI_DEV void finish_block(const making<T> &work, uint64_t nonzeros, pici_cuda_result *result)
{
    const uint64_t size = make_end(work, nonzeros);
    if (hw::lane() == 0)
        put_result(result, pici_cuda_result{size, size ? PICI_OK : PICI_E_SPACE, 0, 0, 0});
}

/* Called by all threads at their end. nonzeros, units: the amounts that this thread block has added, in one thread.
 * keep(nonzeros) decides whether to keep the block. In the last thread block to end, the first warp calls it once work
 * has the layout of the whole block. */
template <class T, class KEEP>
PICI_DEV void finish_groups(making<T> &work, const pici_cuda_encode_job &job, uint64_t nonzeros, uint64_t units,
                            KEEP keep)
{
    if (hw::thread() == 0) {
        hw::atomic_add(&job.control->nonzeros, nonzeros);
        if (units)
            hw::atomic_add(&job.control->units, units);
    }
    if (last_of_job(job.control)) {
        nonzeros = hw::load_settled(&job.control->nonzeros);
        end_of_groups(work, hw::load_settled(&job.control->units), nonzeros % SIGNS_SEEN, nonzeros >= SIGNS_SEEN);
        if (keep(nonzeros % SIGNS_SEEN))
            finish_block(work, nonzeros % SIGNS_SEEN, job.call.result);
    }
}

/* Add a group's nonzeros to a thread block's. They also record whether a tile keeps signs. */
PICI_DEV void add_group(uint64_t &nonzeros, uint32_t its, bool signs)
{
    nonzeros += its;
    if (signs && nonzeros < SIGNS_SEEN)
        nonzeros += SIGNS_SEEN;
}

/* Must this kernel make the job's block, as known from the kernels before? Not for packed, whose kernel is the first.
 * In hybrid's kernel, all thread blocks read the choice, and the last one writes it. */
PICI_DEV bool is_wanted(const pici_cuda_encode_jobs &jobs, const pici_cuda_control *control, unsigned format)
{
    const uint32_t wanted = format == PICI_HYBRID ? 0 : 1 + format;
    return !jobs.if_shortest || (uint32_t)hw::load_relaxed(&control->choice) == wanted;
}

/* Does the directory of a hybrid or packed block fit? The host has checked this, except for PICI_AUTO. */
template <class T> PICI_DEV bool directory_fits(const making<T> &work)
{
    return work.to.body_offset <= work.cap;
}

/* Set `done` and `ticket` to 0 by one store: others have updated these words, and no fence follows. */
PICI_DEV void reset_counts(pici_cuda_control *control)
{
    static_assert(offsetof(pici_cuda_control, done) % 8 == 0 &&
                      offsetof(pici_cuda_control, ticket) == offsetof(pici_cuda_control, done) + 4,
                  "they are a word");
    hw::store_relaxed((uint64_t *)&control->done, 0);
}

/* Reset the first words of a job's workspace for the kernels of the next formats. Called by one warp after the job's
 * other thread blocks have ended. */
PICI_DEV void reset_job(const pici_cuda_encode_job &job, uint64_t words)
{
    hw::syncwarp(); /* all lanes have read the control */
    for (uint64_t i = hw::lane(); i < words; i += LANES)
        hw::store_relaxed(job.state + i, 0);
    if (hw::lane() == 0) {
        reset_counts(job.control);
        hw::store_relaxed(&job.control->nonzeros, 0);
        hw::store_relaxed(&job.control->units, 0);
    }
}

} // namespace pici

#endif
