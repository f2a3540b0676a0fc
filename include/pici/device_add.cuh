/* SPDX-License-Identifier: BSD-3-Clause
 *
 * dst + x in the arithmetic of a dtype. Elements are passed as bits. The rules are in formats/block.md, "Adding".
 * Addition is the only floating-point instruction in use, because the hardware's conversions lose NaN payloads.
 * Infinity minus infinity gives a NaN with a clear sign; the format does not specify its sign. */
#ifndef PICI_DEVICE_ADD_CUH
#define PICI_DEVICE_ADD_CUH

#include "pici/device_hw.cuh"
#include "pici/pici.h"

namespace pici {

/* A floating-point format with the sign at bit SIGN, M mantissa bits, and this exponent BIAS. INF: infinities and NaNs
 * as in IEEE 754. Otherwise the only special magnitude is all ones, a NaN (OCP's e4m3). */
template <int SIGN, int M, int BIAS, bool INF> struct narrow_float {
    static constexpr uint32_t top = (1u << SIGN) - 1, implicit = 1u << M, all_ones = top + 1 - implicit;
    static constexpr uint32_t quiet = INF ? implicit >> 1 : 0;

    PICI_DEV_MEMBER static bool is_nan(uint32_t narrow)
    {
        return INF ? (narrow & top) > all_ones : (narrow & top) == top;
    }

    /* Convert to f32, exactly. narrow is not a NaN. */
    PICI_DEV_MEMBER static uint32_t widen(uint32_t narrow)
    {
        const uint32_t smallest = (128u - BIAS) << 23; /* 2^(1 - bias), the smallest normal */
        const uint32_t magnitude = narrow & top, shifted = magnitude << (23 - M);
        uint32_t result = shifted + ((127u - BIAS) << 23);
        if (magnitude < implicit)
            result = hw::add_f32(shifted + smallest, smallest | 0x80000000u);
        if (INF && magnitude == all_ones)
            result = 0x7f800000u;
        return result | (narrow >> SIGN & 1) << 31;
    }

    /* Convert from f32, rounding to nearest even. wide is not a NaN. */
    PICI_DEV_MEMBER static uint32_t narrow(uint32_t wide)
    {
        const uint32_t smallest = (128u - BIAS) << 23;
        const uint32_t ulp = (127u + 24 - BIAS - M)
                             << 23; /* a float whose lowest bit has the value of the smallest denormal */
        const int shift = 23 - M;
        const uint32_t magnitude = wide & 0x7fffffffu;
        uint32_t result;
        if (magnitude < smallest)
            result = hw::add_f32(magnitude, ulp) - ulp;
        else
            result =
                (magnitude - ((127u - BIAS) << 23) + ((1u << (shift - 1)) - 1) + (magnitude >> shift & 1)) >> shift;
        const uint32_t most = INF ? all_ones : top;
        if (result > most || magnitude >= 0x7f800000u)
            result = most;
        return result | wide >> 31 << SIGN;
    }

    PICI_DEV_MEMBER static uint32_t sum(uint32_t d, uint32_t x)
    {
        if (is_nan(d))
            return d | quiet;
        if (is_nan(x))
            return x | quiet;
        const uint32_t total = hw::add_f32(widen(d), widen(x));
        return (total & 0x7fffffffu) > 0x7f800000u ? all_ones | quiet : narrow(total);
    }
};

typedef narrow_float<15, 10, 15, true> float16;
typedef narrow_float<7, 3, 7, false> float8_e4m3;
typedef narrow_float<7, 2, 15, true> float8_e5m2;

template <unsigned DTYPE> struct arith; /* element: the dtype as bits; sum(d, x) */

template <> struct arith<PICI_F32> {
    typedef uint32_t element;
    PICI_DEV_MEMBER static uint32_t sum(uint32_t d, uint32_t x)
    {
        const uint32_t s = hw::add_f32(d, x);
        if ((s & 0x7fffffffu) <= 0x7f800000u)
            return s;
        if ((d & 0x7fffffffu) > 0x7f800000u)
            return d | 0x00400000u;
        return (x & 0x7fffffffu) > 0x7f800000u ? x | 0x00400000u : 0x7fc00000u;
    }
};

template <> struct arith<PICI_F64> {
    typedef uint64_t element;
    PICI_DEV_MEMBER static bool is_nan(uint64_t v)
    {
        return (v & UINT64_C(0x7fffffffffffffff)) > UINT64_C(0x7ff0000000000000);
    }
    PICI_DEV_MEMBER static uint64_t sum(uint64_t d, uint64_t x)
    {
        const uint64_t s = hw::add_f64(d, x), quiet = UINT64_C(0x0008000000000000);
        if (!is_nan(s))
            return s;
        return is_nan(d) ? d | quiet : is_nan(x) ? x | quiet : UINT64_C(0x7ff8000000000000);
    }
};

template <> struct arith<PICI_F16> {
    typedef uint16_t element;
    PICI_DEV_MEMBER static uint16_t sum(uint16_t d, uint16_t x)
    {
        return (uint16_t)float16::sum(d, x);
    }
};

/* bf16 has float's exponent: conversions are shifts, and a carry out of the largest mantissa gives infinity. */
template <> struct arith<PICI_BF16> {
    typedef uint16_t element;
    PICI_DEV_MEMBER static uint16_t sum(uint16_t d, uint16_t x)
    {
        const uint32_t s = arith<PICI_F32>::sum((uint32_t)d << 16, (uint32_t)x << 16);
        return (uint16_t)(((s & 0x7fffffffu) > 0x7f800000u ? s : s + 0x7fff + (s >> 16 & 1)) >> 16);
    }
};

template <> struct arith<PICI_F8E4M3> {
    typedef uint8_t element;
    PICI_DEV_MEMBER static uint8_t sum(uint8_t d, uint8_t x)
    {
        return (uint8_t)float8_e4m3::sum(d, x);
    }
};

template <> struct arith<PICI_F8E5M2> {
    typedef uint8_t element;
    PICI_DEV_MEMBER static uint8_t sum(uint8_t d, uint8_t x)
    {
        return (uint8_t)float8_e5m2::sum(d, x);
    }
};

/* Integers wrap; signed and unsigned ones have the same sums. */
template <class T> struct arith_wrap {
    typedef T element;
    PICI_DEV_MEMBER static T sum(T d, T x)
    {
        return (T)(d + x);
    }
};

/* For deltas: only the width matters. */
template <class T> struct arith_xor {
    typedef T element;
    PICI_DEV_MEMBER static T sum(T d, T x)
    {
        return (T)(d ^ x);
    }
};

template <> struct arith<PICI_I8> : arith_wrap<uint8_t> {
};
template <> struct arith<PICI_U8> : arith_wrap<uint8_t> {
};
template <> struct arith<PICI_I16> : arith_wrap<uint16_t> {
};
template <> struct arith<PICI_U16> : arith_wrap<uint16_t> {
};
template <> struct arith<PICI_I32> : arith_wrap<uint32_t> {
};
template <> struct arith<PICI_U32> : arith_wrap<uint32_t> {
};
template <> struct arith<PICI_I64> : arith_wrap<uint64_t> {
};
template <> struct arith<PICI_U64> : arith_wrap<uint64_t> {
};

} // namespace pici

#endif
