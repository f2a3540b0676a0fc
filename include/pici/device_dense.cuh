/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Dense elements, copied, XORed and added by warps. Part of pici/device.cuh. */
#ifndef PICI_DEVICE_DENSE_CUH
#define PICI_DEVICE_DENSE_CUH

#include "pici/device_tiles.cuh"

namespace pici {

/* f(d, x) of each pair of elements in two words. */
template <class T, class F> PICI_DEV uint64_t map_word(uint64_t d, uint64_t x, F f)
{
    uint64_t r = 0;
    PICI_UNROLL
    for (unsigned k = 0; k < 8; k += sizeof(T))
        r |= (uint64_t)f((T)(d >> 8 * k), (T)(x >> 8 * k)) << 8 * k;
    return r;
}

template <class T, class F> PICI_DEV raw128 map_quad(raw128 d, raw128 x, F f)
{
    return raw128{map_word<T>(d.lo, x.lo, f), map_word<T>(d.hi, x.hi, f)};
}

template <class SUM, class T> PICI_DEV raw128 dense_quad(raw128 d, raw128 x)
{
    return map_quad<T>(d, x, [](T old, T add) { return add ? SUM::sum(old, add) : old; });
}

/* The part of n elements that can be stored by 16 bytes: all but `before` elements, and those after `count` quads. From
 * src and base quads are read at any alignment; bytes of the word of 4 bytes in which they end are then read too. */
template <class T> struct dense_quads {
    uint64_t before, count;
    bool aligned; /* src and base too */
};

template <class T> PICI_DEV dense_quads<T> dense_quads_of(const T *dst, const T *src, const T *base, uint64_t n)
{
    const uint64_t gap = (0 - (uintptr_t)dst) % 16 / sizeof(T);
    dense_quads<T> d;
    d.before = gap < n ? gap : n;
    d.count = (n - d.before) * sizeof(T) / 16;
    d.aligned = is_aligned(src + d.before, 16) && (!base || is_aligned(base + d.before, 16));
    if (d.count && !d.aligned && (n - d.before) * sizeof(T) - 16 * d.count < 4)
        d.count--;
    return d;
}

template <bool ALIGNED, class T> PICI_DEV raw128 load_quad(const T *p, uint64_t q)
{
    return ALIGNED ? hw::load_once((const raw128 *)p + q) : load_unaligned((const uint8_t *)p + 16 * q);
}

/* The quads of warp_dense. */
template <bool ALIGNED, reading DO, class SUM, bool BY_VALUE, class T>
PICI_DEV void warp_quads(T *dst, const T *src, const T *base, uint64_t count, uint64_t first, uint64_t step)
{
    if constexpr (DO == ADD) {
        PICI_UNROLL_1
        for (uint64_t q = first; q < count; q += step) {
            raw128 *out = (raw128 *)dst + q;
            const raw128 x = load_quad<ALIGNED>(src, q);
            hw::store(out, dense_quad<SUM, T>(hw::load((const raw128 *)out), x));
        }
    } else {
        constexpr unsigned GROUP = ALIGNED ? 4 : 2;
        const auto quad = [&](uint64_t q) {
            const raw128 x = load_quad<ALIGNED>(src, q);
            if constexpr (BY_VALUE)
                return map_quad<T>(x, x, [](T each, T) { return plus_zero(each); });
            else
                return base ? differing(x, load_quad<ALIGNED>(base, q)) : x;
        };
        uint64_t q = first;
        PICI_UNROLL_1
        for (; q + (GROUP - 1) * step < count; q += GROUP * step) {
            raw128 v[GROUP];
            PICI_UNROLL
            for (unsigned k = 0; k < GROUP; k++)
                v[k] = quad(q + k * step);
            PICI_UNROLL
            for (unsigned k = 0; k < GROUP; k++)
                hw::store_once((raw128 *)dst + q + k * step, v[k]);
        }
        PICI_UNROLL_1
        for (; q < count; q += step)
            hw::store_once((raw128 *)dst + q, quad(q));
    }
}

/* Copy n elements from src to dst, or with ADD add those that are nonzero: the part of warp `share` of `shares`. base:
 * null, or elements with which the copied ones are XORed; with ADD it must be null. BY_VALUE: copy -0.0 as +0.0; there
 * is no base. */
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
