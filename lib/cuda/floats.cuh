/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Elements of floating-point dtypes as bits; their lanes for arithmetic (f64 for f64, f32 for all others); and loads
 * and stores of four elements a thread. Operations round to nearest even, and none is contracted. */
#ifndef PICI_LIB_CUDA_FLOATS_CUH
#define PICI_LIB_CUDA_FLOATS_CUH

#include "launch.cuh" /* first, for the emulator */

#include "arith.cuh"

namespace pici {

/* ---- lanes ---- */

template <class U> struct real;

template <> struct real<uint32_t> {
    static constexpr uint32_t SIGN = 0x80000000u, INFINITE = 0x7f800000u, QUIET = 0x00400000u;
    static constexpr int BITS = 32;
    PICI_DEV_MEMBER constexpr static uint32_t power(int exponent) /* 2^exponent */
    {
        return (uint32_t)(127 + exponent) << 23;
    }
    PICI_DEV_MEMBER static uint32_t add(uint32_t a, uint32_t b)
    {
        return hw::add_f32(a, b);
    }
    /* As collectives add: of two NaNs, take the left one. */
    PICI_DEV_MEMBER static uint32_t sum(uint32_t a, uint32_t b)
    {
        return arith<PICI_F32>::sum(a, b);
    }
    PICI_DEV_MEMBER static uint32_t mul(uint32_t a, uint32_t b)
    {
        return hw::mul_f32(a, b);
    }
    PICI_DEV_MEMBER static uint32_t div(uint32_t a, uint32_t b)
    {
        return hw::div_f32(a, b);
    }
    PICI_DEV_MEMBER static uint32_t of_int(int32_t v)
    {
        return hw::f32_of_int(v);
    }
    PICI_DEV_MEMBER static int32_t to_int(uint32_t a)
    {
        return hw::int_of_f32(a);
    }
    PICI_DEV_MEMBER static uint64_t to_f64(uint32_t a)
    {
        return hw::f64_of_f32(a);
    }
};

template <> struct real<uint64_t> {
    static constexpr uint64_t SIGN = UINT64_C(1) << 63, INFINITE = UINT64_C(0x7ff) << 52, QUIET = UINT64_C(1) << 51;
    static constexpr int BITS = 64;
    PICI_DEV_MEMBER constexpr static uint64_t power(int exponent)
    {
        return (uint64_t)(1023 + exponent) << 52;
    }
    PICI_DEV_MEMBER static uint64_t add(uint64_t a, uint64_t b)
    {
        return hw::add_f64(a, b);
    }
    PICI_DEV_MEMBER static uint64_t sum(uint64_t a, uint64_t b)
    {
        return arith<PICI_F64>::sum(a, b);
    }
    PICI_DEV_MEMBER static uint64_t mul(uint64_t a, uint64_t b)
    {
        return hw::mul_f64(a, b);
    }
    PICI_DEV_MEMBER static uint64_t div(uint64_t a, uint64_t b)
    {
        return hw::div_f64(a, b);
    }
    PICI_DEV_MEMBER static uint64_t of_int(int32_t v)
    {
        return hw::f64_of_int(v);
    }
    PICI_DEV_MEMBER static int32_t to_int(uint64_t a)
    {
        return hw::int_of_f64(a);
    }
    PICI_DEV_MEMBER static uint64_t to_f64(uint64_t a)
    {
        return a;
    }
};

/* ---- elements: narrow takes quiet NaNs only ---- */

template <class T> struct element_wide {
    typedef T bits;
    typedef T lane;
    static constexpr T INFINITE = real<T>::INFINITE, QUIET = real<T>::QUIET;
    PICI_DEV_MEMBER static T widen(T x)
    {
        return x;
    }
    PICI_DEV_MEMBER static T narrow(T x)
    {
        return x;
    }
};

struct element_f32 : element_wide<uint32_t> {
    static constexpr unsigned DTYPE = PICI_F32;
};
struct element_f64 : element_wide<uint64_t> {
    static constexpr unsigned DTYPE = PICI_F64;
};

struct element_f16 {
    typedef uint16_t bits;
    typedef uint32_t lane;
    static constexpr unsigned DTYPE = PICI_F16;
    static constexpr uint16_t INFINITE = 0x7c00, QUIET = 0x0200;
    PICI_DEV_MEMBER static uint32_t widen(uint16_t x)
    {
        return float16::is_nan(x) ? (x & 0x8000u) << 16 | 0x7f800000u | (x & 0x03ffu) << 13 : float16::widen(x);
    }
    PICI_DEV_MEMBER static uint16_t narrow(uint32_t x)
    {
        return (uint16_t)((x & 0x7fffffffu) > 0x7f800000u ? (x >> 16 & 0x8000u) | 0x7c00u | (x >> 13 & 0x03ffu)
                                                          : float16::narrow(x));
    }
};

struct element_bf16 {
    typedef uint16_t bits;
    typedef uint32_t lane;
    static constexpr unsigned DTYPE = PICI_BF16;
    static constexpr uint16_t INFINITE = 0x7f80, QUIET = 0x0040;
    PICI_DEV_MEMBER static uint32_t widen(uint16_t x)
    {
        return (uint32_t)x << 16;
    }
    PICI_DEV_MEMBER static uint16_t narrow(uint32_t x)
    {
        return (uint16_t)((x & 0x7fffffffu) > 0x7f800000u ? x >> 16 : bfloat16::narrow(x));
    }
};

/* ---- four elements of a thread ---- */

template <class T> struct four {
    T v[4];
};

/* Can one access move four elements at p, and at every multiple of four from there? */
template <class T> PICI_DEV_HOST bool in_fours(const T *p)
{
    return (uintptr_t)p % (sizeof(T) < 4 ? 4 * sizeof(T) : 16) == 0;
}

/* The first four of `left` elements at p, or all if there are fewer; then zeros. */
template <class T> PICI_DEV four<T> load_four(const T *p, uint64_t left, bool at_once)
{
    four<T> f = {};
    if (at_once && left >= 4) {
        if constexpr (sizeof(T) == 2) {
            const uint64_t w = hw::load((const uint64_t *)p);
            PICI_UNROLL
            for (unsigned k = 0; k < 4; k++)
                f.v[k] = (T)(w >> 16 * k);
        } else if constexpr (sizeof(T) == 4) {
            const raw128 w = hw::load((const raw128 *)p);
            f = {{(T)w.lo, (T)(w.lo >> 32), (T)w.hi, (T)(w.hi >> 32)}};
        } else {
            const raw128 a = hw::load((const raw128 *)p), b = hw::load((const raw128 *)p + 1);
            f = {{a.lo, a.hi, b.lo, b.hi}};
        }
        return f;
    }
    PICI_UNROLL
    for (unsigned k = 0; k < 4; k++)
        if (k < left)
            f.v[k] = hw::load(p + k);
    return f;
}

template <class T> PICI_DEV void store_four(T *p, const four<T> &f, uint64_t left, bool at_once)
{
    if (at_once && left >= 4) {
        if constexpr (sizeof(T) == 2) {
            hw::store((uint64_t *)p,
                      (uint64_t)f.v[0] | (uint64_t)f.v[1] << 16 | (uint64_t)f.v[2] << 32 | (uint64_t)f.v[3] << 48);
        } else if constexpr (sizeof(T) == 4) {
            hw::store((raw128 *)p, raw128{f.v[0] | (uint64_t)f.v[1] << 32, f.v[2] | (uint64_t)f.v[3] << 32});
        } else {
            hw::store((raw128 *)p, raw128{f.v[0], f.v[1]});
            hw::store((raw128 *)p + 1, raw128{f.v[2], f.v[3]});
        }
        return;
    }
    PICI_UNROLL
    for (unsigned k = 0; k < 4; k++)
        if (k < left)
            hw::store(p + k, f.v[k]);
}

} // namespace pici

#endif
