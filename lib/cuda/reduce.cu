/* SPDX-License-Identifier: BSD-3-Clause */
#include "reduce.h"

#include "arith.cuh"
#include "launch.cuh"

using namespace pici;

static_assert(sizeof(struct pici_cuda_heads) == 48 && sizeof(struct pici_cuda_head) == 56, "read as bytes on the host");

/* ---- dense elements, by all threads of a grid: in quads of 16 bytes where alignment allows ---- */

/* Threads of a thread block, and thread blocks that fit on a multiprocessor. */
constexpr unsigned THREADS = 256, COUNT_BLOCKS = 6, ORDER_BLOCKS = 8, ZEROS_BLOCKS = 8, DIVIDE_BLOCKS = 5;

template <class T> constexpr unsigned PER_QUAD = 16 / sizeof(T);

/* The quads among n elements: `before` elements come first, then `count` quads. */
struct quads {
    uint64_t before, count;
};

/* The quads of two arrays. None unless both have the same offset from an address aligned to 16. */
template <class T> PICI_DEV quads quads_of(const T *dst, const T *src, uint64_t count)
{
    const uint64_t before = (0 - (uintptr_t)dst) % 16 / sizeof(T);
    return before > count || !is_aligned((const void *)((uintptr_t)dst ^ (uintptr_t)src), 16)
               ? quads{count, 0}
               : quads{before, (count - before) / PER_QUAD<T>};
}

/* Call quad(q) for each quad, AT_ONCE of them together, and one(i) for each other element. */
template <class T, unsigned AT_ONCE, class QUAD, class ONE>
PICI_DEV void each_quad(const quads &aligned, uint64_t count, QUAD quad, ONE one)
{
    const uint64_t first = hw::block_x() * (uint64_t)hw::threads() + hw::thread(),
                   step = hw::blocks_x() * (uint64_t)hw::threads(), within = aligned.count * PER_QUAD<T>;
    uint64_t q = first;
    if constexpr (AT_ONCE > 1)
        for (; q + (AT_ONCE - 1) * step < aligned.count; q += AT_ONCE * step) {
            PICI_UNROLL
            for (unsigned k = 0; k < AT_ONCE; k++)
                quad(q + k * step);
        }
    PICI_UNROLL_1
    for (; q < aligned.count; q += step)
        quad(q);
    PICI_UNROLL_1
    for (uint64_t i = first; i < count - within; i += step)
        one(i < aligned.before ? i : i + within);
}

/* d = apply(d, x) for each of `count` elements d at dst and x at src. src may be null if apply ignores x. */
template <class T, class F> PICI_DEV void update(T *dst, const T *src, uint64_t count, F apply)
{
    const quads aligned = quads_of((const T *)dst, src ? src : dst, count);
    raw128 *const result = (raw128 *)(dst + aligned.before);
    const raw128 *const from = (const raw128 *)(src ? src + aligned.before : nullptr);
    const auto update_quad = [&](uint64_t q) {
        const raw128 x = src ? hw::load_once(from + q) : raw128{0, 0};
        hw::store(result + q, map_quad<T>(hw::load((const raw128 *)result + q), x, apply));
    };
    const auto update_one = [&](uint64_t i) {
        hw::store(dst + i, apply(hw::load(dst + i), src ? hw::load(src + i) : (T)0));
    };
    each_quad<T, 1>(aligned, count, update_quad, update_one);
}

/* The number of thread blocks that count elements of `width` bytes keep busy. */
static uint64_t parts_of(uint64_t count, unsigned width)
{
    return count / (16 / width * THREADS) + 1;
}

/* ---- counting ---- */

struct count_jobs {
    struct pici_cuda_count job[BATCH];
    int by_value;
};

/* The top bit of each element in a word. */
template <class T> constexpr uint64_t TOPS = UINT64_MAX / (T) ~(T)0 << (8 * sizeof(T) - 1);

/* The number of nonzero elements in a word. Adding the largest magnitude carries into an element's top bit if a
 * lower bit is set. tops: the top bits that make an element nonzero by themselves. */
template <class T> PICI_DEV unsigned nonzeros_of(uint64_t word, uint64_t tops)
{
    return hw::popc((((word & ~TOPS<T>)+~TOPS<T>)&TOPS<T>) | (word & tops));
}

template <class T> PICI_KERNEL(THREADS, COUNT_BLOCKS) count_kernel(const count_jobs jobs)
{
    PICI_BLOCK_MEMORY(memory);
    uint64_t *const all = (uint64_t *)memory;
    const struct pici_cuda_count job = jobs.job[hw::block_y()];
    const T *const src = (const T *)job.src;
    const quads aligned = quads_of(src, src, job.count);
    const raw128 *const from = (const raw128 *)(src + aligned.before);
    const uint64_t tops = jobs.by_value ? 0 : TOPS<T>;
    uint64_t nonzeros = 0;
    if (hw::thread() == 0)
        hw::put(all, UINT64_C(0));
    const auto count_quad = [&](uint64_t q) {
        const raw128 quad = hw::load(from + q); /* not load_once: encoding reads it next, so keep it cached */
        nonzeros += nonzeros_of<T>(quad.lo, tops) + nonzeros_of<T>(quad.hi, tops);
    };
    const auto count_one = [&](uint64_t i) { nonzeros += nonzeros_of<T>(hw::load(src + i), tops); };
    each_quad<T, 4>(aligned, job.count, count_quad, count_one);
    nonzeros = warp_sum(nonzeros);
    hw::syncthreads();
    if (hw::lane() == 0)
        hw::shared_add(all, nonzeros);
    hw::syncthreads();
    if (hw::thread() != 0)
        return;
    /* the last thread block to end has the sum, and clears the scratch for the next call */
    hw::atomic_add(job.scratch, hw::get(all));
    hw::fence();
    if (hw::atomic_add(job.scratch + 1, UINT64_C(1)) + 1 == hw::blocks_x()) {
        hw::fence();
        hw::store(job.nonzeros, hw::load_settled(job.scratch));
        hw::store_relaxed(job.scratch, 0);
        hw::store_relaxed(job.scratch + 1, 0);
    }
}

#define LAUNCH(T)                                                                                                      \
    launch_jobs(count_kernel<T>, parts_of(elements, sizeof(T)), count, THREADS, 8, COUNT_BLOCKS, jobs, stream)
static cudaError_t count_batch(const count_jobs &jobs, unsigned count, unsigned dtype, uint64_t elements,
                               cudaStream_t stream)
{
    BY_WIDTH(dtype, LAUNCH);
}
#undef LAUNCH

cudaError_t pici_cuda_count(const struct pici_cuda_count *jobs, unsigned count, unsigned dtype, int by_value,
                            cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    for (unsigned i = 0, k; i < count && !error; i += k) {
        count_jobs batch = {};
        batch.by_value = by_value;
        uint64_t most = 0;
        for (k = 0; k < BATCH && k < count - i; k++) {
            batch.job[k] = jobs[i + k];
            most = most < batch.job[k].count ? batch.job[k].count : most;
        }
        error = count_batch(batch, k, dtype, most, stream);
    }
    return error;
}

/* ---- minimum and maximum ---- */

struct order_job {
    void *dst;
    const void *src;
    uint64_t count;
    ordering order;
};

template <class T> PICI_KERNEL(THREADS, ORDER_BLOCKS) order_kernel(const order_job job)
{
    update((T *)job.dst, (const T *)job.src, job.count, [&](T d, T x) { return first_in_order(d, x, job.order); });
}

cudaError_t pici_cuda_order(void *dst, const void *src, uint64_t count, unsigned dtype, int max, cudaStream_t stream)
{
    const order_job job = {dst, src, count, ordering_of(dtype, max)};
    if (!count)
        return cudaSuccess;
#define LAUNCH(T) launch_jobs(order_kernel<T>, parts_of(count, sizeof(T)), 1, THREADS, 0, ORDER_BLOCKS, job, stream)
    BY_WIDTH(dtype, LAUNCH)
#undef LAUNCH
}

/* ---- signs of zeros ---- */

struct zeros_job {
    void *dst;
    const void *src;
    uint64_t count;
    zeros_rule rule;
};

template <class T> PICI_KERNEL(THREADS, ZEROS_BLOCKS) zeros_kernel(const zeros_job job)
{
    T *const dst = (T *)job.dst;
    const T *const src = (const T *)job.src;
    const quads aligned = quads_of((const T *)dst, src, job.count);
    raw128 *const result = (raw128 *)(dst + aligned.before);
    const raw128 *const from = (const raw128 *)(src + aligned.before);
    const auto f = [&](T x, T) { return positive_zero(x, job.rule); };
    const auto quad = [&](uint64_t q) {
        const raw128 x = hw::load(from + q);
        hw::store(result + q, map_quad<T>(x, x, f));
    };
    each_quad<T, 1>(aligned, job.count, quad, [&](uint64_t i) { hw::store(dst + i, f(hw::load(src + i), 0)); });
}

cudaError_t pici_cuda_positive_zeros(void *dst, const void *src, uint64_t count, unsigned dtype, int quiet,
                                     cudaStream_t stream)
{
    const zeros_job job = {dst, src, count, zeros_rule_of(dtype, quiet)};
    if (!count)
        return cudaSuccess;
#define LAUNCH(T) launch_jobs(zeros_kernel<T>, parts_of(count, sizeof(T)), 1, THREADS, 0, ZEROS_BLOCKS, job, stream)
    BY_WIDTH(dtype, LAUNCH)
#undef LAUNCH
}

/* ---- quotients ---- */

struct divide_job {
    void *dst;
    uint64_t count;
    divisor division;
};

template <class QUOTIENT> PICI_KERNEL(THREADS, DIVIDE_BLOCKS) divide_kernel(const divide_job job)
{
    typedef typename QUOTIENT::element T;
    update((T *)job.dst, (const T *)nullptr, job.count, [&](T d, T) { return QUOTIENT::of(d, job.division); });
}

template <class QUOTIENT> static cudaError_t launch_divide(const divide_job &job, cudaStream_t stream)
{
    constexpr unsigned width = sizeof(typename QUOTIENT::element);
    return launch_jobs(divide_kernel<QUOTIENT>, parts_of(job.count, width), 1, THREADS, 0, DIVIDE_BLOCKS, job, stream);
}

template <class FLOAT, class T> static cudaError_t launch_narrow(const divide_job &job, cudaStream_t stream)
{
    return job.division.divisor <= BY_FEW ? launch_divide<quotient_by_few<FLOAT, T>>(job, stream)
                                          : launch_divide<quotient_by_many<FLOAT, T>>(job, stream);
}

cudaError_t pici_cuda_divide(void *dst, uint64_t count, unsigned dtype, int by, cudaStream_t stream)
{
    const divide_job job = {dst, count, divisor_of(by)};
    if (!count)
        return cudaSuccess;
    switch (dtype) {
    case PICI_F32: return launch_divide<quotient_f32>(job, stream);
    case PICI_F64: return launch_divide<quotient_f64>(job, stream);
    case PICI_F16: return launch_narrow<float16, uint16_t>(job, stream);
    case PICI_BF16: return launch_narrow<bfloat16, uint16_t>(job, stream);
    case PICI_F8E4M3: return launch_narrow<float8_e4m3, uint8_t>(job, stream);
    case PICI_F8E5M2: return launch_narrow<float8_e5m2, uint8_t>(job, stream);
    case PICI_I8: return launch_divide<quotient_integer<int8_t, int32_t, uint8_t>>(job, stream);
    case PICI_U8: return launch_divide<quotient_integer<uint8_t, uint32_t, uint8_t>>(job, stream);
    case PICI_I16: return launch_divide<quotient_integer<int16_t, int32_t, uint16_t>>(job, stream);
    case PICI_U16: return launch_divide<quotient_integer<uint16_t, uint32_t, uint16_t>>(job, stream);
    case PICI_I32: return launch_divide<quotient_integer<int32_t, int32_t, uint32_t>>(job, stream);
    case PICI_U32: return launch_divide<quotient_integer<uint32_t, uint32_t, uint32_t>>(job, stream);
    case PICI_I64: return launch_divide<quotient_integer<int64_t, int64_t, uint64_t>>(job, stream);
    default: return launch_divide<quotient_integer<uint64_t, uint64_t, uint64_t>>(job, stream);
    }
}

/* ---- messages ---- */

struct look_job {
    struct pici_cuda_heads *out;
    struct pici_cuda_head *heads;
    const uint8_t *message;
    uint64_t bytes;
    unsigned blocks;
};

/* The lane's word of `count` bytes at any alignment; zeros beyond them. */
PICI_DEV uint64_t word_of(const uint8_t *bytes, uint64_t count)
{
    uint64_t word = 0;
    PICI_UNROLL
    for (unsigned k = 0; k < 8; k++)
        if (8 * hw::lane() + k < count)
            word |= (uint64_t)hw::load(bytes + 8 * hw::lane() + k) << 8 * k;
    return word;
}

/* One warp: each block's header gives the offset of the next block. */
PICI_KERNEL(32, 1) look_kernel(const look_job job)
{
    constexpr unsigned PREFIX_BYTES = sizeof job.out->prefix;
    const unsigned lane = hw::lane();
    uint64_t offset = job.bytes < PREFIX_BYTES ? job.bytes : PREFIX_BYTES;
    const uint64_t prefix = word_of(job.message, offset);
    if (lane < PREFIX_BYTES / 8)
        hw::store((uint64_t *)job.out->prefix + lane, prefix);
    unsigned found = 0;
    for (; found < job.blocks; found++) {
        struct pici_cuda_head *const head = job.heads + found;
        const uint64_t left = job.bytes - offset,
                       own = word_of(job.message + offset, left < HEADER_BYTES ? left : (uint64_t)HEADER_BYTES);
        if (lane == 0)
            hw::store(&head->offset, offset);
        if (lane < HEADER_BYTES / 8)
            hw::store((uint64_t *)head->header + lane, own);
        alignas(16) uint64_t header[HEADER_BYTES / 8];
        PICI_UNROLL
        for (unsigned i = 0; i < HEADER_BYTES / 8; i++)
            header[i] = hw::shfl(own, i);
        block_view view;
        const breach problem = parse(view, (const uint8_t *)header, left);
        if ((problem.rule && problem.rule != RULE_LENGTH) || view.block_bytes > left)
            break;
        offset += view.block_bytes;
    }
    if (lane == 0) {
        hw::store(&job.out->found, (uint64_t)found);
        hw::store(&job.out->end, offset);
    }
}

cudaError_t pici_cuda_look(struct pici_cuda_heads *out, struct pici_cuda_head *heads, const void *message,
                           uint64_t bytes, unsigned blocks, cudaStream_t stream)
{
    const look_job job = {out, heads, (const uint8_t *)message, bytes, blocks};
    return launch(look_kernel, 1, 1, 32, 0, job, stream);
}
