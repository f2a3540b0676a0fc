/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Arithmetic on elements as bits: the smaller or greater of two; zeros without their sign; and division by a number
 * of ranks. The results have the same bits as in cpu/reduce.h. Sums are in pici/device_add.cuh. */
#ifndef PICI_LIB_CUDA_ARITH_CUH
#define PICI_LIB_CUDA_ARITH_CUH

#include <string.h>

#include "pici/device_add.cuh"
#include "pici/device_block.cuh"

namespace pici {

/* The order of a dtype's elements: compare them as unsigned integers after inverting some bits, as in
 * lib/cpu/order.inc. */
struct ordering {
    uint64_t fold;    /* bits inverted in elements whose sign is set */
    uint64_t turn;    /* bits inverted in all elements */
    uint64_t largest; /* the greatest magnitude that is not a NaN */
    uint64_t quiet_bit;
};

static inline ordering ordering_of(unsigned dtype, int max)
{
    static const uint8_t mantissas[PICI_F8E5M2 + 1] = {0, 23, 52, 10, 7, 3, 2};
    const uint64_t sign = UINT64_C(1) << ((8u << width_log2(dtype)) - 1), below = sign - 1;
    ordering order = {0, sign, below, 0};
    if (dtype <= PICI_F8E5M2) {
        const uint64_t one = UINT64_C(1) << mantissas[dtype];
        order.fold = below;
        order.largest = dtype == PICI_F8E4M3 ? below - 1 : sign - one;
        order.quiet_bit = dtype == PICI_F8E4M3 ? 0 : one / 2;
    } else if (dtype == PICI_U8 || dtype == PICI_U16 || dtype == PICI_U32 || dtype == PICI_U64) {
        order.turn = 0;
    }
    if (max)
        order.turn ^= sign | below;
    return order;
}

template <class T> PICI_DEV T first_in_order(T d, T x, const ordering &order)
{
    constexpr unsigned TOP = 8 * sizeof(T) - 1;
    constexpr T BELOW = (T)((UINT64_C(1) << TOP) - 1);
    const auto rank = [&](T v) { return (T)(v ^ ((T)(0 - (v >> TOP)) & (T)order.fold) ^ (T)order.turn); };
    const bool nan_d = (d & BELOW) > (T)order.largest, nan_x = (x & BELOW) > (T)order.largest;
    const T first = !nan_d && (nan_x || rank(x) < rank(d)) ? x : d;
    return nan_d || nan_x ? (T)(first | (T)order.quiet_bit) : first;
}

/* The bits that clearing the sign of zeros changes. */
struct zeros_rule {
    uint64_t below;     /* the bits of a magnitude; for integers all bits, so that they stay unchanged */
    uint64_t largest;   /* the greatest magnitude that is not a NaN */
    uint64_t quiet_bit; /* set in NaNs; may be 0 */
};

static inline zeros_rule zeros_rule_of(unsigned dtype, int quiet)
{
    const ordering order = ordering_of(dtype, 0);
    if (dtype > PICI_F8E5M2)
        return {UINT64_MAX, UINT64_MAX, 0};
    return {order.fold, order.largest, quiet ? order.quiet_bit : 0};
}

/* x, but +0 for -0. */
template <class T> PICI_DEV T positive_zero(T x, const zeros_rule &rule)
{
    const T magnitude = (T)(x & (T)rule.below);
    if (magnitude == 0)
        return (T)0;
    return magnitude > (T)rule.largest ? (T)(x | (T)rule.quiet_bit) : x;
}

/* A divisor, in each type that divides elements. */
struct divisor {
    uint64_t f64;
    uint32_t f32; /* rounded */
    int divisor;
};

static inline divisor divisor_of(int by)
{
    const double f64 = by;
    const float f32 = (float)by;
    divisor result = {0, 0, by};
    memcpy(&result.f64, &f64, sizeof f64);
    memcpy(&result.f32, &f32, sizeof f32);
    return result;
}

/* The greatest divisor for dividing floats of 16 bits or fewer in f32. Up to here, rounding the quotient twice gives
 * the same result as once. Proof: pici_divide in cpu/reduce.c. */
enum { BY_FEW = 4096 };

/* bf16 as a narrow float. It has float's exponent, so shifts convert it. */
struct bfloat16 : narrow_float<15, 7, 127, true> {
    PICI_DEV_MEMBER static uint32_t widen(uint32_t narrow)
    {
        return narrow << 16;
    }
    PICI_DEV_MEMBER static uint32_t narrow(uint32_t wide)
    {
        return (wide + 0x7fff + (wide >> 16 & 1)) >> 16;
    }
};

/* A quotient of floats, +0 if it is zero. */
template <class T> PICI_DEV T positive_quotient(T q)
{
    return (T)(q << 1) ? q : (T)0;
}

/* The quotient_ structs: element is the dtype as bits; of(x, by) is the quotient. This one: FLOAT is a narrow float,
 * by <= BY_FEW. */
template <class FLOAT, class T> struct quotient_by_few {
    typedef T element;
    PICI_DEV_MEMBER static T of(T x, const divisor &by)
    {
        if (FLOAT::is_nan(x))
            return (T)(x | FLOAT::quiet);
        return positive_quotient((T)FLOAT::narrow(hw::div_f32(FLOAT::widen(x), by.f32)));
    }
};

/* Any divisor. Shift the magnitude to a double's exponent and mantissa. The result is a double: the value times a power
 * of two, for denormals too. So the quotient can be rounded as an integer. */
template <class FLOAT, class T> struct quotient_by_many {
    typedef T element;
    PICI_DEV_MEMBER static T of(T x, const divisor &by)
    {
        constexpr uint64_t LAST = (UINT64_C(1) << 52) / FLOAT::implicit; /* the mantissa's last place */
        const uint32_t magnitude = x & FLOAT::top;
        if (FLOAT::is_nan(x))
            return (T)(x | FLOAT::quiet);
        if (FLOAT::quiet && magnitude == FLOAT::all_ones) /* infinity */
            return x;
        const uint64_t q = hw::div_f64(magnitude * LAST, by.f64);
        return positive_quotient((T)((q + (LAST / 2 - 1) + (q / LAST & 1)) / LAST | (x & (FLOAT::top + 1))));
    }
};

struct quotient_f32 {
    typedef uint32_t element;
    PICI_DEV_MEMBER static uint32_t of(uint32_t x, const divisor &by)
    {
        return (x & 0x7fffffffu) > 0x7f800000u ? x | 0x00400000u : positive_quotient(hw::div_f32(x, by.f32));
    }
};

struct quotient_f64 {
    typedef uint64_t element;
    PICI_DEV_MEMBER static uint64_t of(uint64_t x, const divisor &by)
    {
        return arith<PICI_F64>::is_nan(x) ? x | UINT64_C(0x0008000000000000)
                                          : positive_quotient(hw::div_f64(x, by.f64));
    }
};

/* T: a signed or unsigned integer. WIDE: an integer of the same signedness that can hold every divisor. */
template <class T, class WIDE, class ELEMENT> struct quotient_integer {
    typedef ELEMENT element;
    PICI_DEV_MEMBER static ELEMENT of(ELEMENT x, const divisor &by)
    {
        return (ELEMENT)((WIDE)(T)x / (WIDE)by.divisor);
    }
};

} // namespace pici

#endif
