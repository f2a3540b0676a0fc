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

/* Copy n elements from src to dst, or with ADD add those that are nonzero: the part of warp `share` of `shares`. base:
 * null, or elements with which the copied ones are XORed; with ADD it must be null. BY_VALUE: copy -0.0 as +0.0; there
 * is no base. */
template <reading DO, class SUM, bool BY_VALUE = false, class T>
PICI_DEV void warp_dense(T *dst, const T *src, uint64_t n, uint64_t share, uint64_t shares, const T *base = nullptr)
{
    constexpr unsigned PER = 16 / sizeof(T);
    const uint64_t quads = is_aligned(dst, 16) && is_aligned(src, 16) && is_aligned(base, 16) ? n / PER : 0;
    const uint64_t first = share * LANES + hw::lane(), step = shares * LANES;
    if constexpr (DO == ADD) {
        PICI_UNROLL_1
        for (uint64_t q = first; q < quads; q += step) {
            raw128 *out = (raw128 *)dst + q;
            const raw128 x = hw::load_once((const raw128 *)src + q);
            hw::store(out, dense_quad<SUM, T>(hw::load((const raw128 *)out), x));
        }
    } else {
        constexpr unsigned GROUP = 4;
        const auto quad = [&](uint64_t q) {
            const raw128 x = hw::load_once((const raw128 *)src + q);
            if constexpr (BY_VALUE)
                return map_quad<T>(x, x, [](T each, T) { return plus_zero(each); });
            else
                return base ? differing(x, hw::load_once((const raw128 *)base + q)) : x;
        };
        uint64_t q = first;
        for (; q + (GROUP - 1) * step < quads; q += GROUP * step) {
            raw128 v[GROUP];
            PICI_UNROLL
            for (unsigned k = 0; k < GROUP; k++)
                v[k] = quad(q + k * step);
            PICI_UNROLL
            for (unsigned k = 0; k < GROUP; k++)
                hw::store_once((raw128 *)dst + q + k * step, v[k]);
        }
        for (; q < quads; q += step)
            hw::store_once((raw128 *)dst + q, quad(q));
    }
    for (uint64_t i = quads * PER + first; i < n; i += step) {
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
