/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The lossy codecs CAST and QSGD: the arrays of formats/values.md, with the same bits as lib/cpu/values.inc. */
#include <stddef.h>

#include <type_traits>

#include "floats.cuh"
#include "launch.cuh"
#include "philox.h"
#include "pici/coll.h"
#include "root.h"
#include "sized.h"
#include "values.h"
#include "values/accepts.h"

using namespace pici;

constexpr unsigned THREADS = 256, CAST_BLOCKS = 5, DEQUANTIZE_BLOCKS = 5;
template <class E> constexpr unsigned QUANTIZE_BLOCKS = sizeof(typename E::lane) == 8 ? 3 : 4;
constexpr unsigned QUANTIZE_SHARED = THREADS / 32 * 8;

/* ---- loss ---- */

/* Where to add or write the losses of elements. */
struct losses {
    void *residual; /* null: nowhere */
    int times;
    struct pici_cuda_told *report; /* null: no report is wanted, and the next two are null too */
    pici_cuda_control *control;
    uint64_t *squares; /* one per thread block: a double's bits */
};

/* Element x became y, for up to four elements. Where both are finite, residual += times * (x - y) and squares += (x -
 * y)^2. Returns the number of elements that are not. */
template <class E>
PICI_DEV unsigned accumulate(const losses &report, uint64_t first, const four<typename E::bits> &x,
                             const four<typename E::bits> &y, uint64_t left, uint64_t &squares)
{
    typedef typename E::bits T;
    typedef real<typename E::lane> R;
    const bool at_once = in_fours((const T *)report.residual);
    unsigned other = 0;
    four<T> residuals = {};
    if (report.residual)
        residuals = load_four((const T *)report.residual + first, left, at_once);
    PICI_UNROLL
    for (unsigned k = 0; k < 4; k++) {
        const typename E::lane a = E::widen(x.v[k]), b = E::widen(y.v[k]);
        const bool finite = (a & ~R::SIGN) < R::INFINITE && (b & ~R::SIGN) < R::INFINITE;
        other += !finite && k < left;
        if (finite) {
            const typename E::lane loss = R::add(a, b ^ R::SIGN);
            const uint64_t wide = R::to_f64(loss);
            squares = real<uint64_t>::add(squares, real<uint64_t>::mul(wide, wide));
            residuals.v[k] = E::narrow(R::sum(E::widen(residuals.v[k]), R::mul(loss, R::of_int(report.times))));
        }
    }
    if (report.residual)
        store_four((T *)report.residual + first, residuals, left, at_once);
    return other;
}

/* Called by all threads at their end, with a double's bits each: write the loss of all threads. The control already
 * counts the elements that are not finite. memory: shared, a word for each warp. */
PICI_DEV void tell(const losses &report, uint64_t squares, uint64_t *memory)
{
    typedef real<uint64_t> R;
    if (!report.report)
        return;
    PICI_UNROLL
    for (unsigned by = LANES / 2; by; by /= 2)
        squares = R::add(squares, hw::shfl_down(squares, by));
    if (hw::lane() == 0)
        hw::put(memory + warp(), squares);
    hw::syncthreads();
    if (hw::thread() == 0) {
        uint64_t all = 0;
        for (unsigned warp_number = 0; warp_number < warps(); warp_number++)
            all = R::add(all, hw::get(memory + warp_number));
        hw::store(report.squares + hw::block_x(), all);
    }
    if (!last_of_job(report.control))
        return;
    squares = 0;
    for (unsigned block = hw::lane(); block < hw::blocks_x(); block += LANES)
        squares = R::add(squares, hw::load(report.squares + block));
    PICI_UNROLL
    for (unsigned by = LANES / 2; by; by /= 2)
        squares = R::add(squares, hw::shfl_down(squares, by));
    if (hw::lane() == 0) {
        hw::store(&report.report->nonfinite, hw::load_settled(&report.control->nonzeros));
        hw::store((uint64_t *)(void *)&report.report->squares, squares);
        static_assert(offsetof(pici_cuda_control, ticket) == offsetof(pici_cuda_control, done) + 4, "a word");
        hw::store_relaxed((uint64_t *)(void *)&report.control->done, 0);
        hw::store_relaxed(&report.control->nonzeros, 0);
    }
}

/* ---- use of dequantized elements ---- */

struct dequantizing {
    int how; /* enum pici_cuda_dequantizing */
    zeros_rule zeros;
    ordering order;
};

static struct dequantizing dequantizing_of(enum pici_cuda_dequantizing how, enum pici_dtype dtype)
{
    return {how, zeros_rule_of((unsigned)dtype, how == DEQUANTIZED_QUIET),
            ordering_of((unsigned)dtype, how == DEQUANTIZED_MAX)};
}

template <class E>
PICI_DEV void store_dequantized(typename E::bits *dst, four<typename E::bits> &x, uint64_t left, bool at_once,
                                const dequantizing &widened)
{
    four<typename E::bits> decoded_four = {};
    if (widened.how >= DEQUANTIZED_SUM)
        decoded_four = load_four(dst, left, at_once);
    PICI_UNROLL
    for (unsigned k = 0; k < 4; k++)
        if (widened.how == DEQUANTIZED_SUM)
            x.v[k] = (typename E::bits)arith<E::DTYPE>::sum(decoded_four.v[k], x.v[k]);
        else if (widened.how == DEQUANTIZED_MIN || widened.how == DEQUANTIZED_MAX)
            x.v[k] = first_in_order(decoded_four.v[k], x.v[k], widened.order);
        else if (widened.how != DEQUANTIZED)
            x.v[k] = positive_zero(x.v[k], widened.zeros);
    store_four(dst, x, left, at_once);
}

/* ---- casts ---- */

struct cast_bf16 {
    typedef element_f32 element;
    typedef uint16_t narrow;
    PICI_DEV_MEMBER static uint16_t to(uint32_t x)
    {
        return element_bf16::narrow((x & 0x7fffffffu) > 0x7f800000u ? x | 0x00400000u : x);
    }
    PICI_DEV_MEMBER static uint32_t from(uint16_t y)
    {
        return element_bf16::widen(y);
    }
};

struct cast_f16 {
    typedef element_f32 element;
    typedef uint16_t narrow;
    PICI_DEV_MEMBER static uint16_t to(uint32_t x)
    {
        return element_f16::narrow((x & 0x7fffffffu) > 0x7f800000u ? x | 0x00400000u : x);
    }
    PICI_DEV_MEMBER static uint32_t from(uint16_t y)
    {
        return element_f16::widen(y);
    }
};

struct cast_f32 {
    typedef element_f64 element;
    typedef uint32_t narrow;
    PICI_DEV_MEMBER static uint32_t to(uint64_t x)
    {
        return arith<PICI_F64>::is_nan(x)
                   ? (uint32_t)(x >> 32 & 0x80000000u) | 0x7fc00000u | (uint32_t)(x >> 29 & 0x003fffffu)
                   : hw::f32_of_f64(x);
    }
    PICI_DEV_MEMBER static uint64_t from(uint32_t y)
    {
        return (y & 0x7fffffffu) > 0x7f800000u ? (uint64_t)(y & 0x80000000u) << 32 | UINT64_C(0x7ff8000000000000) |
                                                     (uint64_t)(y & 0x003fffffu) << 29
                                               : hw::f64_of_f32(y);
    }
};

struct cast_job {
    void *wide, *narrow;
    uint64_t count;
    losses lost;
    uint64_t *nonfinite;
    int positive;
    dequantizing after;
};

/* Call each(at) for every fourth element, distributed over all threads of the grid. */
template <class EACH> PICI_DEV void each_four(uint64_t count, EACH each)
{
    const uint64_t step = 4 * (uint64_t)hw::blocks_x() * hw::threads();
    for (uint64_t offset = 4 * (hw::block_x() * (uint64_t)hw::threads() + hw::thread()); offset < count; offset += step)
        each(offset);
}

template <class C> PICI_KERNEL(THREADS, CAST_BLOCKS) cast_kernel(const cast_job job)
{
    typedef typename C::element::bits T;
    typedef typename C::narrow N;
    const T *const src = (const T *)job.wide;
    N *const dst = (N *)job.narrow;
    const bool wide = in_fours(src), narrow = in_fours((const N *)dst);
    PICI_BLOCK_MEMORY(memory);
    uint64_t squares = 0;
    uint32_t other = 0;
    each_four(job.count, [&](uint64_t at) {
        const uint64_t left = job.count - at;
        const four<T> x = load_four(src + at, left, wide);
        four<T> back = {};
        four<N> y = {};
        PICI_UNROLL
        for (unsigned k = 0; k < 4; k++) {
            y.v[k] = C::to(x.v[k]);
            if (job.positive && (N)(y.v[k] << 1) == 0)
                y.v[k] = 0;
            back.v[k] = C::from(y.v[k]);
        }
        store_four(dst + at, y, left, narrow);
        if (job.lost.residual || job.nonfinite)
            other += accumulate<typename C::element>(job.lost, at, x, back, left, squares);
    });
    if (!job.nonfinite)
        return;
    other = warp_sum(other);
    if (hw::lane() == 0 && other)
        hw::atomic_add(job.nonfinite, (uint64_t)other);
    tell(job.lost, squares, (uint64_t *)memory);
}

template <class C> PICI_KERNEL(THREADS, CAST_BLOCKS) uncast_kernel(const cast_job job)
{
    typedef typename C::element::bits T;
    typedef typename C::narrow N;
    const N *const src = (const N *)job.narrow;
    T *const dst = (T *)job.wide;
    const bool wide = in_fours((const T *)dst), narrow = in_fours(src);
    each_four(job.count, [&](uint64_t at) {
        const four<N> y = load_four(src + at, job.count - at, narrow);
        four<T> x = {};
        PICI_UNROLL
        for (unsigned k = 0; k < 4; k++)
            x.v[k] = C::from(y.v[k]);
        store_dequantized<typename C::element>(dst + at, x, job.count - at, wide, job.after);
    });
}

/* ---- QSGD: a warp takes a bucket; a lane takes four neighbouring elements at a time, with codes of 1, 2 or 4 bytes
 * ---- */

struct qsgd_job {
    void *elements, *scales;
    uint8_t *codes;
    uint64_t count;
    losses lost;
    uint64_t *nonfinite;
    uint64_t *broken; /* out: where dequantizing writes its status */
    uint64_t first;
    uint32_t key[2], counter[2], bucket;
    unsigned bits;
    bool two_norm, nearest;
    dequantizing after;
};

template <class T> PICI_DEV T warp_greatest(T value)
{
    typedef typename std::conditional<sizeof(T) == 8, uint64_t, uint32_t>::type word; /* a type that shuffles accept */
    PICI_UNROLL
    for (unsigned by = LANES / 2; by; by /= 2) {
        const T other = (T)hw::shfl((word)value, hw::lane() ^ by);
        value = other > value ? other : value;
    }
    return value;
}

/* The 2-norm of a bucket of `count` finite elements, rounded up; at most the dtype's greatest number. */
template <class E>
PICI_DEV_COLD typename E::lane warp_norm(const typename E::bits *src, uint64_t count, typename E::bits greatest)
{
    typedef typename E::lane U;
    typedef real<uint64_t> R;
    constexpr unsigned SUMS = 16;
    int exponent = 0;
    if constexpr (sizeof(U) == 8) { /* keep squares of f64 in range */
        exponent = greatest >= R::power(480) ? 520 : 0;
        if (greatest < R::power(-400))
            exponent = -600;
    }
    uint64_t sum = 0;
    for (uint64_t i = hw::lane(); hw::lane() < SUMS && i < count; i += SUMS) {
        const uint64_t bits = R::mul(real<U>::to_f64(E::widen(hw::load(src + i))), R::power(-exponent));
        sum = R::add(sum, R::mul(bits, bits));
    }
    for (unsigned half = SUMS / 2; half; half /= 2)
        sum = R::add(sum, hw::shfl_down(sum, half));
    const U norm = (U)root_up(hw::shfl(sum, 0), exponent, real<U>::BITS),
            top = E::widen((typename E::bits)(E::INFINITE - 1));
    return norm < top ? norm : top;
}

/* The upper 24 bits of the random words of elements first to first + 3. */
PICI_DEV void random_four(uint32_t words[4], const qsgd_job &job, uint64_t first)
{
    const unsigned skip = (unsigned)(first % 4);
    uint32_t word[8] = {};
    PICI_UNROLL
    for (unsigned word_block = 0; word_block < 2; word_block++) {
        const uint64_t block = first / 4 + word_block;
        const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), job.counter[0], job.counter[1]};
        if (word_block == 0 || skip)
            philox4x32(word + 4 * word_block, counter, job.key);
    }
    PICI_UNROLL
    for (unsigned k = 0; k < 4; k++) { /* constant indices keep the words in registers */
        const uint32_t low = skip & 1 ? word[k + 1] : word[k];
        const uint32_t high = skip & 1 ? word[k + 3] : word[k + 2];
        words[k] = (skip & 2 ? high : low) >> 8;
    }
}

/* The values of a bucket's codes. */
template <class U> struct quantum {
    U scale, delta, levels;
};

template <class E> PICI_DEV quantum<typename E::lane> quantum_of(typename E::lane scale, unsigned bits)
{
    typedef typename E::lane U;
    const U levels = real<U>::of_int((1 << (bits - 1)) - 1);
    return {scale, real<U>::div(scale, levels), levels};
}

/* The element of a code. */
template <class E> PICI_DEV typename E::bits decoded(const quantum<typename E::lane> &step, int32_t code)
{
    typedef real<typename E::lane> R;
    const typename E::lane level = R::of_int(code);
    return E::narrow((level & ~R::SIGN) == step.levels ? step.scale | (level & R::SIGN) : R::mul(level, step.delta));
}

/* The codes of up to four elements, of a bucket whose scale is finite and not 0. */
template <class E>
PICI_DEV void codes_of(int32_t code[4], const qsgd_job &job, const quantum<typename E::lane> &step,
                       const four<typename E::bits> &x, uint64_t first)
{
    typedef typename E::lane U;
    typedef real<U> R;
    const U prescale = step.scale < R::power(-60) ? R::power(64) : R::power(0);
    const U inverse = R::div(step.levels, R::mul(step.scale, prescale));
    uint32_t random[4] = {};
    if (!job.nearest && (x.v[0] | x.v[1] | x.v[2] | x.v[3]))
        random_four(random, job, first);
    PICI_UNROLL
    for (unsigned k = 0; k < 4; k++) {
        const U bits = E::widen(x.v[k]);
        U scaled =
            R::mul(R::mul(bits & ~R::SIGN, prescale), inverse); /* not negative, so its bits have the same order */
        scaled = scaled < step.levels ? scaled : step.levels;
        int32_t level = R::to_int(scaled);
        const U part = R::add(scaled, R::of_int(level) | R::SIGN);
        level += job.nearest ? part >= R::power(-1) : R::of_int((int32_t)random[k]) < R::mul(part, R::power(24));
        code[k] = bits & R::SIGN ? -level : level;
    }
}

/* Store the codes of four elements, or of `left` if fewer; code has zeros beyond. */
PICI_DEV void store_codes(uint8_t *to, const int32_t code[4], unsigned bits, uint64_t left)
{
    uint32_t word = 0;
    PICI_UNROLL
    for (unsigned k = 0; k < 4; k++)
        word |= ((uint32_t)code[k] & ((1u << bits) - 1)) << k * bits;
    if (left < 4) {
        for (unsigned i = 0; 8 * i < left * bits; i++)
            hw::store(to + i, (uint8_t)(word >> 8 * i));
    } else if (bits == 8) {
        hw::store((uint32_t *)to, word);
    } else if (bits == 4) {
        hw::store((uint16_t *)to, (uint16_t)word);
    } else {
        hw::store(to, (uint8_t)word);
    }
}

template <class E> PICI_KERNEL(THREADS, QUANTIZE_BLOCKS<E>) quantize_kernel(const qsgd_job job)
{
    typedef typename E::bits T;
    typedef typename E::lane U;
    constexpr T MAGNITUDE = (T)((T) ~(T)0 >> 1);
    constexpr unsigned STEP = 4 * LANES;
    const T *const elements = (const T *)job.elements;
    const bool at_once = in_fours(elements);
    const uint64_t buckets = (job.count + job.bucket - 1) / job.bucket;
    PICI_BLOCK_MEMORY(memory);
    uint64_t squares = 0;
    for (uint64_t b = hw::block_x() * (uint64_t)warps() + warp(); b < buckets;
         b += hw::blocks_x() * (uint64_t)warps()) {
        const uint64_t begin = b * job.bucket, count = job.count - begin < job.bucket ? job.count - begin : job.bucket;
        T greatest = 0;
        for (uint64_t i = 4 * hw::lane(); i < count; i += STEP) {
            const four<T> x = load_four(elements + begin + i, count - i, at_once);
            PICI_UNROLL
            for (unsigned k = 0; k < 4; k++)
                greatest = (T)(x.v[k] & MAGNITUDE) > greatest ? (T)(x.v[k] & MAGNITUDE) : greatest;
        }
        greatest = warp_greatest(greatest);
        const bool finite = greatest < E::INFINITE;
        U scale = E::widen(greatest);
        if (!finite)
            scale = (U)(real<U>::INFINITE | real<U>::QUIET);
        else if (job.two_norm && greatest)
            scale = warp_norm<E>(elements + begin, count, greatest);
        const quantum<U> step = quantum_of<E>(scale, job.bits);
        if (hw::lane() == 0) {
            hw::store((U *)job.scales + b, scale);
            if (!finite && job.nonfinite)
                hw::atomic_add(job.nonfinite, UINT64_C(1));
        }
        for (uint64_t i = 4 * hw::lane(); i < count; i += STEP) {
            int32_t code[4] = {};
            const four<T> x = load_four(elements + begin + i, count - i, at_once);
            four<T> y = {};
            if (finite && greatest)
                codes_of<E>(code, job, step, x, job.first + begin + i);
            store_codes(job.codes + (begin + i) * job.bits / 8, code, job.bits, count - i);
            if ((!job.lost.residual && !job.lost.report) || !finite)
                continue;
            PICI_UNROLL
            for (unsigned k = 0; k < 4; k++)
                y.v[k] = decoded<E>(step, code[k]);
            accumulate<E>(job.lost, begin + i, x, y, count - i, squares);
        }
    }
    tell(job.lost, squares, (uint64_t *)memory);
}

/* The stored codes of four elements. Of the last elements, all bits of their bytes. */
PICI_DEV uint32_t load_codes(const uint8_t *from, unsigned bits, uint64_t left)
{
    uint32_t word = 0;
    if (left >= 4 && bits == 8)
        return hw::load((const uint32_t *)from);
    if (left >= 4)
        return bits == 4 ? hw::load((const uint16_t *)from) : hw::load(from);
    for (unsigned i = 0; 8 * i < left * bits; i++)
        word |= (uint32_t)hw::load(from + i) << 8 * i;
    return word;
}

template <class E> PICI_KERNEL(THREADS, DEQUANTIZE_BLOCKS) dequantize_kernel(const qsgd_job job)
{
    typedef typename E::bits T;
    typedef typename E::lane U;
    typedef real<U> R;
    constexpr unsigned STEP = 4 * LANES;
    T *const elements = (T *)job.elements;
    const bool at_once = in_fours((const T *)elements);
    const uint64_t buckets = (job.count + job.bucket - 1) / job.bucket;
    const int32_t unused = 1 << (job.bits - 1); /* the code with this bit alone is unused */
    const uint32_t mask = 2 * (uint32_t)unused - 1;
    bool bad = false;
    for (uint64_t b = hw::block_x() * (uint64_t)warps() + warp(); b < buckets;
         b += hw::blocks_x() * (uint64_t)warps()) {
        const uint64_t begin = b * job.bucket, count = job.count - begin < job.bucket ? job.count - begin : job.bucket;
        const U scale = hw::load((const U *)job.scales + b);
        const bool coded = scale != 0 && scale != (U)(R::INFINITE | R::QUIET);
        const quantum<U> step = quantum_of<E>(scale, job.bits);
        bad = bad || (coded && scale >= R::INFINITE); /* an infinite scale, a NaN or a negative one */
        for (uint64_t i = 4 * hw::lane(); i < count; i += STEP) {
            const uint32_t word = load_codes(job.codes + (begin + i) * job.bits / 8, job.bits, count - i);
            four<T> x = {};
            bad = bad || (!coded && word) || (count - i < 4 && word >> (count - i) * job.bits);
            PICI_UNROLL
            for (unsigned k = 0; k < 4; k++) {
                const int32_t raw = (int32_t)(word >> k * job.bits & mask);
                bad = bad || raw == unused;
                x.v[k] = scale ? (T)(E::INFINITE | E::QUIET) : (T)0;
                if (coded)
                    x.v[k] = decoded<E>(step, (raw ^ unused) - unused);
            }
            store_dequantized<E>(elements + begin + i, x, count - i, at_once, job.after);
        }
    }
    if (hw::ballot(bad) && hw::lane() == 0)
        hw::store_relaxed(job.broken, (uint64_t)(uint32_t)PICI_E_CORRUPT);
}

/* ---- launching ---- */

/* The element types with a QSGD, and the pairs with a cast. */
#define BY_FLOAT(dtype, LAUNCH)                                                                                        \
    switch (dtype) {                                                                                                   \
    case PICI_F32: return LAUNCH(element_f32);                                                                         \
    case PICI_F64: return LAUNCH(element_f64);                                                                         \
    case PICI_F16: return LAUNCH(element_f16);                                                                         \
    default: return LAUNCH(element_bf16);                                                                              \
    }
#define BY_CAST(cast, LAUNCH)                                                                                          \
    switch (cast) {                                                                                                    \
    case PICI_BF16: return LAUNCH(cast_bf16);                                                                          \
    case PICI_F16: return LAUNCH(cast_f16);                                                                            \
    default: return LAUNCH(cast_f32);                                                                                  \
    }

static cudaError_t launch_cast(const cast_job &job, enum pici_dtype cast, bool back, cudaStream_t stream)
{
    const uint64_t parts = job.count / (4 * THREADS) + 1;
    const unsigned shared = back ? 0 : QUANTIZE_SHARED;
#define LAUNCH(C)                                                                                                      \
    launch_jobs(back ? uncast_kernel<C> : cast_kernel<C>, parts, 1, THREADS, shared, CAST_BLOCKS, job, stream)
    BY_CAST(cast, LAUNCH)
#undef LAUNCH
}

static cudaError_t launch_qsgd(const qsgd_job &job, enum pici_dtype dtype, bool back, cudaStream_t stream)
{
    const uint64_t parts = job.count / job.bucket / (THREADS / 32) + 1;
#define LAUNCH(E) launch_jobs(dequantize_kernel<E>, parts, 1, THREADS, 0, DEQUANTIZE_BLOCKS, job, stream)
    if (back)
        BY_FLOAT(dtype, LAUNCH)
#undef LAUNCH
#define LAUNCH(E) launch_jobs(quantize_kernel<E>, parts, 1, THREADS, QUANTIZE_SHARED, QUANTIZE_BLOCKS<E>, job, stream)
    BY_FLOAT(dtype, LAUNCH)
#undef LAUNCH
}

/* ---- the functions of values.h ---- */

static struct qsgd_job qsgd_job_of(const struct values *values, const void *elements, uint64_t count,
                                   const void *const array[2])
{
    struct qsgd_job job = {};
    job.elements = (void *)elements;
    job.scales = (void *)array[QSGD_SCALES];
    job.codes = (uint8_t *)array[QSGD_CODES];
    job.count = count;
    job.bucket = values->bucket;
    job.bits = (unsigned)values->bits;
    return job;
}

/* nonfinite: null, or where to add the number of elements or buckets that are not finite. */
static cudaError_t quantize(void *const out[2], const void *src, uint64_t count, const struct values *values,
                            const struct values_where *where, const losses &lost, uint64_t *nonfinite,
                            cudaStream_t stream)
{
    if (!count)
        return cudaSuccess;
    if (values->cast) {
        const cast_job job = {(void *)src, out[0], count, lost, nonfinite, values->positive, {}};
        return launch_cast(job, values->cast, false, stream);
    }
    struct qsgd_job job = qsgd_job_of(values, src, count, (const void *const *)out);
    job.lost = lost;
    job.nonfinite = nonfinite;
    job.first = where->first;
    job.key[0] = (uint32_t)values->seed;
    job.key[1] = (uint32_t)(values->seed >> 32);
    job.counter[0] = (uint32_t)where->sequence;
    job.counter[1] = (uint32_t) !!where->gather << 31 | (uint32_t)where->origin;
    job.two_norm = values->norm == PICI_NORM_L2;
    job.nearest = values->rounding == PICI_ROUND_NEAREST;
    return launch_qsgd(job, values->dtype, false, stream);
}

cudaError_t pici_cuda_losses_workspace(size_t *bytes)
{
    constexpr unsigned MOST = CAST_BLOCKS > QUANTIZE_BLOCKS<element_f32> ? CAST_BLOCKS : QUANTIZE_BLOCKS<element_f32>;
    int all = 0;
    const cudaError_t error = multiprocessors(&all);
    *bytes = sizeof(pici_cuda_control) + (size_t)all * MOST * sizeof(uint64_t);
    return error;
}

cudaError_t pici_cuda_quantize(void *const out[2], const void *src, uint64_t count, const struct values *values,
                               const struct values_where *where, const struct pici_cuda_losses *given,
                               cudaStream_t stream)
{
    losses lost = {};
    if (!given)
        return quantize(out, src, count, values, where, lost, nullptr, stream);
    pici_cuda_control *const control = (pici_cuda_control *)given->workspace;
    lost = {given->residual, given->times, given->report, control, (uint64_t *)(void *)(control + 1)};
    return quantize(out, src, count, values, where, lost, &control->nonzeros, stream);
}

cudaError_t pici_cuda_dequantize(void *dst, uint64_t count, const void *const in[2], const struct values *values,
                                 enum pici_cuda_dequantizing how, uint64_t *bad, cudaStream_t stream)
{
    if (!count)
        return cudaSuccess;
    if (values->cast) {
        const cast_job job = {dst, (void *)in[0], count, {}, nullptr, 0, dequantizing_of(how, values->dtype)};
        return launch_cast(job, values->cast, true, stream);
    }
    struct qsgd_job job = qsgd_job_of(values, dst, count, in);
    job.broken = bad;
    job.after = dequantizing_of(how, values->dtype);
    return launch_qsgd(job, values->dtype, true, stream);
}

/* ---- the functions of pici/cuda.h ---- */

/* The parameters of a codec, and its arrays. */
struct codec {
    struct values values;
    int arrays;
    uint64_t count[2], bytes[2];
    enum pici_dtype dtype[2];
};

static enum pici_status codec_of(struct codec *codec, const struct pici_values *asked, enum pici_dtype dtype,
                                 uint64_t count)
{
    struct pici_values mine = PICI_VALUES_INIT;
    *codec = {};
    codec->values.dtype = dtype;
    enum pici_status status = asked ? sized_read(&mine, sizeof mine, sizeof mine, asked) : PICI_E_ARG;
    if (status)
        return status;
    if (width_log2((unsigned)dtype) < 0 || count > SIZE_MAX >> width_log2((unsigned)dtype))
        return PICI_E_ARG;
    if (mine.codec == PICI_VALUES_CAST) {
        status = values_cast_accepts(&codec->values, &mine, PICI_SUM);
        codec->arrays = 1;
        codec->dtype[0] = codec->values.cast;
        codec->count[0] = count;
    } else if (mine.codec == PICI_VALUES_QSGD) {
        status = values_qsgd_accepts(&codec->values, &mine, PICI_SUM);
        codec->arrays = 2;
        for (int a = 0; a < 2 && !status; a++) {
            codec->dtype[a] = values_qsgd_dtype(&codec->values, a);
            codec->count[a] = values_qsgd_most(&codec->values, a, count);
        }
    } else {
        return PICI_E_UNSUPPORTED;
    }
    for (int a = 0; a < codec->arrays && !status; a++)
        codec->bytes[a] = codec->count[a] << width_log2((unsigned)codec->dtype[a]);
    return status;
}

/* Are these elements and arrays valid for a call? */
static bool are_apart(const struct codec *codec, const void *elements, uint64_t count, const void *const array[2])
{
    const unsigned width = (unsigned)width_log2((unsigned)codec->values.dtype);
    if (!array || (count && !elements) || !is_aligned_to(elements, (uintptr_t)1 << width))
        return false;
    for (int a = 0; a < codec->arrays; a++)
        if ((count && !array[a]) || !is_aligned_to(array[a], 16) ||
            overlap(array[a], codec->bytes[a], elements, count << width) ||
            (a && overlap(array[0], codec->bytes[0], array[a], codec->bytes[a])))
            return false;
    return true;
}

enum pici_status pici_quantize_cuda_counts(uint64_t count[2], enum pici_dtype dtype[2], uint64_t number,
                                           enum pici_dtype elements, const struct pici_values *values)
{
    struct codec codec;
    const enum pici_status status = codec_of(&codec, values, elements, number);
    for (int a = 0; a < 2 && !status && count && dtype; a++) {
        count[a] = codec.count[a];
        dtype[a] = a < codec.arrays ? codec.dtype[a] : PICI_U8;
    }
    if (status)
        return status;
    return count && dtype ? PICI_OK : PICI_E_ARG;
}

enum pici_status pici_quantize_cuda(void *const array[2], uint64_t *nonfinite, const void *src, uint64_t count,
                                    enum pici_dtype dtype, const struct pici_values *values,
                                    const struct pici_cuda_quantize_opts *opts, cudaStream_t stream)
{
    struct pici_cuda_quantize_opts options = PICI_CUDA_QUANTIZE_OPTS_INIT;
    struct codec codec;
    enum pici_status status = opts ? sized_read(&options, sizeof options, sizeof options, opts) : PICI_OK;
    if (!status)
        status = codec_of(&codec, values, dtype, count);
    if (status)
        return status;
    const uint64_t bytes = count << width_log2((unsigned)dtype);
    void *const residual = values->residual;
    if (!are_apart(&codec, src, count, (const void *const *)array) || !is_aligned_to(nonfinite, 8) ||
        options.times < 1 || options.phase > 1 || options.origin >> 31 ||
        !is_aligned_to(residual, (uintptr_t)1 << width_log2((unsigned)dtype)) ||
        (residual && overlap(residual, bytes, src, bytes)))
        return PICI_E_ARG;
    for (int a = 0; a < codec.arrays; a++)
        if ((residual && overlap(residual, bytes, array[a], codec.bytes[a])) ||
            (nonfinite && overlap(nonfinite, sizeof *nonfinite, array[a], codec.bytes[a])))
            return PICI_E_ARG;
    codec.values.positive = options.positive;
    const struct values_where where = {options.first, options.sequence, (int)options.phase, (int)options.origin};
    const losses lost = {residual, options.times, nullptr, nullptr, nullptr};
    return quantize(array, src, count, &codec.values, &where, lost, nonfinite, stream) ? PICI_E_DEVICE : PICI_OK;
}

enum pici_status pici_dequantize_cuda(void *dst, struct pici_cuda_result *result, uint64_t count, enum pici_dtype dtype,
                                      const void *const array[2], const struct pici_values *values, cudaStream_t stream)
{
    struct codec codec;
    const enum pici_status s = codec_of(&codec, values, dtype, count);
    if (s)
        return s;
    if (!are_apart(&codec, dst, count, array) || !result || !is_aligned_to(result, 8) ||
        overlap(result, sizeof *result, dst, count << width_log2((unsigned)dtype)))
        return PICI_E_ARG;
    for (int a = 0; a < codec.arrays; a++)
        if (overlap(result, sizeof *result, array[a], codec.bytes[a]))
            return PICI_E_ARG;
    cudaError_t error = cudaMemsetAsync(result, 0, sizeof *result, stream); /* PICI_OK */
    static_assert(offsetof(struct pici_cuda_result, status) == 8 && offsetof(struct pici_cuda_result, rule) == 12,
                  "status and rule, which stays 0, are one word");
    if (!error)
        error = pici_cuda_dequantize(dst, count, array, &codec.values, DEQUANTIZED, (uint64_t *)(void *)&result->status,
                                     stream);
    return error ? PICI_E_DEVICE : PICI_OK;
}
