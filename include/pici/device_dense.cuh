/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Dense elements, copied, XORed and added by warps. Part of pici/device.cuh. */
#ifndef PICI_DEVICE_DENSE_CUH
#define PICI_DEVICE_DENSE_CUH

#include "pici/device_tiles.cuh"

namespace pici {

/* apply(d, x) for each pair of elements in two words. */
template <class T, class F> PICI_DEV uint64_t map_word(uint64_t d, uint64_t x, F apply)
{
    uint64_t result = 0;
    PICI_UNROLL
    for (unsigned k = 0; k < 8; k += sizeof(T))
        result |= (uint64_t)apply((T)(d >> 8 * k), (T)(x >> 8 * k)) << 8 * k;
    return result;
}

template <class T, class F> PICI_DEV raw128 map_quad(raw128 d, raw128 other, F apply)
{
    return raw128{map_word<T>(d.lo, other.lo, apply), map_word<T>(d.hi, other.hi, apply)};
}

template <class SUM, class T> PICI_DEV raw128 dense_quad(raw128 d, raw128 other)
{
    return map_quad<T>(d, other, [](T old, T add) { return add ? SUM::sum(old, add) : old; });
}

/* The part of n elements that 16-byte stores can write: `count` quads after the first `before` elements. Quads are read
 * from src and base at any alignment. This also reads the rest of the 4-byte word in which they end. */
template <class T> struct dense_quads {
    uint64_t before, count;
    bool aligned; /* src and base too */
};

template <class T> PICI_DEV dense_quads<T> dense_quads_of(const T *dst, const T *src, const T *base, uint64_t count)
{
    const uint64_t gap = (0 - (uintptr_t)dst) % 16 / sizeof(T);
    dense_quads<T> dense;
    dense.before = gap < count ? gap : count;
    dense.count = (count - dense.before) * sizeof(T) / 16;
    dense.aligned = is_aligned(src + dense.before, 16) && (!base || is_aligned(base + dense.before, 16));
    if (dense.count && !dense.aligned && (count - dense.before) * sizeof(T) - 16 * dense.count < 4)
        dense.count--;
    return dense;
}

template <bool ALIGNED, class T> PICI_DEV raw128 load_quad(const T *from, uint64_t quad)
{
    return ALIGNED ? hw::load_once((const raw128 *)from + quad) : load_unaligned((const uint8_t *)from + 16 * quad);
}

/* The quads of warp_dense. */
template <bool ALIGNED, reading DO, class SUM, bool BY_VALUE, class T>
PICI_DEV void warp_quads(T *dst, const T *src, const T *base, uint64_t count, uint64_t first, uint64_t step)
{
    if constexpr (DO == ADD) {
        PICI_UNROLL_1
        for (uint64_t quad_number = first; quad_number < count; quad_number += step) {
            raw128 *out = (raw128 *)dst + quad_number;
            const raw128 other = load_quad<ALIGNED>(src, quad_number);
            hw::store(out, dense_quad<SUM, T>(hw::load((const raw128 *)out), other));
        }
    } else {
        constexpr unsigned GROUP = ALIGNED ? 4 : 2;
        const auto quad = [&](uint64_t quad_number) {
            const raw128 other = load_quad<ALIGNED>(src, quad_number);
            if constexpr (BY_VALUE)
                return map_quad<T>(other, other, [](T each, T) { return plus_zero(each); });
            else
                return base ? differing(other, load_quad<ALIGNED>(base, quad_number)) : other;
        };
        uint64_t quad_number = first;
        PICI_UNROLL_1
        for (; quad_number + (GROUP - 1) * step < count; quad_number += GROUP * step) {
            raw128 v[GROUP];
            PICI_UNROLL
            for (unsigned k = 0; k < GROUP; k++)
                v[k] = quad(quad_number + k * step);
            PICI_UNROLL
            for (unsigned k = 0; k < GROUP; k++)
                hw::store_once((raw128 *)dst + quad_number + k * step, v[k]);
        }
        PICI_UNROLL_1
        for (; quad_number < count; quad_number += step)
            hw::store_once((raw128 *)dst + quad_number, quad(quad_number));
    }
}

/* Copy n elements from src to dst, or with ADD add the nonzero ones: the part of warp `share` of `shares`. base: null,
 * or elements to XOR with the copied ones; with ADD it must be null. BY_VALUE: copy -0.0 as +0.0; there is no base. */
template <reading DO, class SUM, bool BY_VALUE = false, class T>
PICI_DEV void warp_dense(T *dst, const T *src, uint64_t n, uint64_t share, uint64_t shares, const T *base = nullptr)
{
    const dense_quads<T> d = dense_quads_of((const T *)dst, src, base, n);
    const uint64_t first = share * LANES + hw::lane(), step = shares * LANES, within = d.count * (16 / sizeof(T));
    T *const to = dst + d.before;
    const T *const from = src + d.before, *const other = base ? base + d.before : nullptr;
    if (d.aligned)
        warp_quads<true, DO, SUM, BY_VALUE>(to, from, other, d.count, first, step);
    else
        warp_quads<false, DO, SUM, BY_VALUE>(to, from, other, d.count, first, step);
    PICI_UNROLL_1
    for (uint64_t k = first; k < n - within; k += step) {
        const uint64_t i = k < d.before ? k : k + within;
        const T x = hw::load(src + i);
        if constexpr (DO == ADD) {
            if (x)
                hw::store(dst + i, SUM::sum(hw::load(dst + i), x));
        } else if constexpr (BY_VALUE) {
            hw::store(dst + i, plus_zero(x));
        } else {
            hw::store(dst + i, base ? differing(x, hw::load(base + i)) : x);
        }
    }
}

} // namespace pici

#endif
