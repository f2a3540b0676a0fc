/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Selection of the largest elements of each bucket (pici/topk.h), with the same bits as lib/cpu/topk.inc. A warp
 * takes a bucket. Each lane keeps every 32nd element of it in shared memory. */
#include "floats.cuh"
#include "topk/accepts.h"

using namespace pici;

constexpr unsigned MOST_WARPS = 8, SHARED_BYTES = 32 << 10, BUCKET_MOST = 4096;

struct topk_job {
    void *selected, *residual, *velocity;
    const void *gradient;
    uint64_t *nonzeros;
    uint64_t count;
    uint64_t rate, leak, momentum; /* floats in the arithmetic of the elements, as bits */
    uint32_t bucket, most_kept;
};

/* value * by. A NaN in value stays a NaN and becomes quiet. */
template <class U> PICI_DEV U scaled(U value, U factor)
{
    typedef real<U> R;
    if ((value & ~R::SIGN) > R::INFINITE)
        return value | R::QUIET;
    const U product = R::mul(value, factor);
    return (product & ~R::SIGN) > R::INFINITE ? (U)(R::INFINITE | R::QUIET) : product;
}

/* Element i of the gradient plus its residual from earlier steps. */
template <class E> PICI_DEV typename E::bits accumulate(const topk_job &job, uint64_t i)
{
    typedef typename E::bits T;
    typedef typename E::lane U;
    typedef real<U> R;
    U sum = scaled(E::widen(hw::load((const T *)job.gradient + i)), (U)job.rate);
    if (job.velocity) {
        T *const place = (T *)job.velocity + i;
        const T velocity = E::narrow(R::sum(scaled(E::widen(hw::load(place)), (U)job.momentum), sum));
        hw::store(place, velocity);
        sum = E::widen(velocity);
    }
    if (job.residual)
        sum = R::sum(scaled(E::widen(hw::load((const T *)job.residual + i)), (U)job.leak), sum);
    return E::narrow(sum);
}

/* A lane's elements of a bucket of `count`. */
template <class T> struct bucket_view {
    T *magnitudes; /* of the lane; 32 elements apart */
    uint32_t count;
};

template <class T> PICI_DEV T magnitude(T element)
{
    return (T)(element & (T)((T) ~(T)0 >> 1));
}

/* The number of elements of the bucket with a magnitude of at least `least`. */
template <class T> PICI_DEV uint32_t reaching(const bucket_view<T> &bucket, T least)
{
    uint32_t count = 0;
    for (uint32_t i = hw::lane(); i < bucket.count; i += LANES)
        count += magnitude(hw::get(bucket.magnitudes + (i - hw::lane()))) >= least;
    return warp_sum(count);
}

/* The greatest threshold that at least k elements reach, one bit after the other. If exactly k do, it may be less than
 * the k-th magnitude. */
template <class T> PICI_DEV T kth(const bucket_view<T> &bucket, uint32_t k)
{
    T threshold = 0;
    for (T bit = (T)((T)1 << (8 * sizeof(T) - 2)); bit; bit = (T)(bit >> 1)) {
        const uint32_t reach = reaching(bucket, (T)(threshold | bit));
        if (reach < k)
            continue;
        threshold |= bit;
        if (reach == k)
            break;
    }
    return threshold;
}

/* Put elements where they belong. ties: keep only the first `ties` elements with the magnitude `least`. */
template <class T>
PICI_DEV void place(const topk_job &job, const bucket_view<T> &bucket, uint64_t begin, T least, uint32_t ties)
{
    uint32_t before = 0; /* elements of that magnitude in earlier rows */
    for (uint32_t row = 0; row < bucket.count; row += LANES) {
        const bool there = row + hw::lane() < bucket.count;
        const uint64_t i = begin + row + hw::lane();
        const T value = there ? hw::get(bucket.magnitudes + row) : (T)0;
        const uint32_t equal = hw::ballot(magnitude(value) == least);
        const bool keep = magnitude(value) > least ||
                          (magnitude(value) == least && before + hw::popc(equal & ((1u << hw::lane()) - 1)) < ties);
        before += hw::popc(equal);
        if (!there)
            continue;
        hw::store((T *)job.selected + i, keep ? value : (T)0);
        if (job.residual)
            hw::store((T *)job.residual + i, keep ? (T)0 : value);
        if (job.velocity && keep)
            hw::store((T *)job.velocity + i, (T)0);
    }
}

template <class E> PICI_KERNEL(MOST_WARPS * 32, 4) topk_kernel(const topk_job job)
{
    typedef typename E::bits T;
    PICI_BLOCK_MEMORY(memory);
    T *const own = (T *)memory + (uint64_t)warp() * job.bucket + hw::lane();
    const uint64_t buckets = (job.count + job.bucket - 1) / job.bucket, step = hw::blocks_x() * (uint64_t)warps();
    uint64_t kept = 0;
    for (uint64_t offset = hw::block_x() * (uint64_t)warps() + warp(); offset < buckets; offset += step) {
        const uint64_t begin = offset * job.bucket, left = job.count - begin;
        const bucket_view<T> bucket = {own, left < job.bucket ? (uint32_t)left : job.bucket};
        const uint32_t k = (uint32_t)(((uint64_t)job.most_kept * bucket.count + job.bucket - 1) / job.bucket);
        for (uint32_t i = hw::lane(); i < bucket.count; i += LANES)
            hw::put(own + (i - hw::lane()), accumulate<E>(job, begin + i));
        const T found = k == bucket.count ? (T)1 : kth(bucket, k);
        const T least = found ? found : (T)1;
        const uint32_t reach = reaching(bucket, least);
        const bool all = reach <= k;
        place(job, bucket, begin, least, all ? bucket.count : k - reaching(bucket, (T)(least + 1)));
        kept += all ? reach : k;
    }
    if (hw::lane() == 0 && kept)
        hw::atomic_add(job.nonzeros, kept);
}

template <class E> static cudaError_t launch_topk(const topk_job &job, cudaStream_t stream)
{
    const unsigned bytes = job.bucket * (unsigned)sizeof(typename E::bits), fit = SHARED_BYTES / bytes;
    const unsigned count = fit > MOST_WARPS ? MOST_WARPS : fit;
    return launch_jobs(topk_kernel<E>, (job.count / job.bucket + 1) / count + 1, 1, 32 * count, count * bytes, 4, job,
                       stream);
}

static cudaError_t launch_by_dtype(const topk_job &job, enum pici_dtype dtype, cudaStream_t stream)
{
    switch (dtype) {
    case PICI_F32: return launch_topk<element_f32>(job, stream);
    case PICI_F64: return launch_topk<element_f64>(job, stream);
    case PICI_F16: return launch_topk<element_f16>(job, stream);
    default: return launch_topk<element_bf16>(job, stream);
    }
}

static uint64_t factor_of(float by, enum pici_dtype dtype)
{
    const double wide = by;
    uint64_t bits = 0;
    uint32_t narrow;
    memcpy(&narrow, &by, sizeof narrow);
    memcpy(&bits, &wide, sizeof bits);
    return dtype == PICI_F64 ? bits : narrow;
}

enum pici_status pici_topk_cuda(void *out, uint64_t *nonzeros, void *residual, void *velocity, const void *gradient,
                                uint64_t count, enum pici_dtype dtype, const struct pici_topk_opts *options,
                                cudaStream_t stream)
{
    struct pici_topk_opts checked;
    const int log2_width = width_log2((unsigned)dtype);
    const enum pici_status status = topk_opts_get(&checked, options);
    if (status)
        return status;
    if (!nonzeros || !is_aligned_to(nonzeros, 8) || log2_width < 0 || count > SIZE_MAX >> log2_width)
        return PICI_E_ARG;
    if ((dtype != PICI_F32 && dtype != PICI_F64 && dtype != PICI_F16 && dtype != PICI_BF16) ||
        checked.select != PICI_SELECT_BUCKET || checked.bucket > BUCKET_MOST)
        return PICI_E_UNSUPPORTED;
    const void *const arrays[] = {out, gradient, residual, velocity};
    const uint64_t bytes = count << log2_width;
    if (count && (!out || !gradient || !velocity != !(checked.momentum > 0)))
        return PICI_E_ARG;
    for (int a = 0; a < 4; a++) {
        if (!is_aligned_to(arrays[a], (uintptr_t)1 << log2_width) ||
            (arrays[a] && overlap(nonzeros, sizeof *nonzeros, arrays[a], bytes)))
            return PICI_E_ARG;
        for (int b = a + 1; b < 4; b++)
            if (arrays[a] && arrays[b] && !(b == 1 && out == gradient) && overlap(arrays[a], bytes, arrays[b], bytes))
                return PICI_E_ARG;
    }
    cudaError_t error = cudaMemsetAsync(nonzeros, 0, sizeof *nonzeros, stream);
    if (count && !error) {
        const topk_job job = {out,
                              residual,
                              velocity,
                              gradient,
                              nonzeros,
                              count,
                              factor_of(checked.rate, dtype),
                              factor_of(checked.leak, dtype),
                              factor_of(checked.momentum, dtype),
                              checked.bucket,
                              checked.k};
        error = launch_by_dtype(job, dtype, stream);
    }
    return error ? PICI_E_DEVICE : PICI_OK;
}
