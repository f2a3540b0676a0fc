/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A square root that is rounded up, in integers: the 2-norm of formats/values.md, on CPUs and GPUs. */
#ifndef PICI_LIB_ROOT_H
#define PICI_LIB_ROOT_H

#include <stdint.h>

#ifdef __CUDACC__
#define ROOT_FUNCTION static __host__ __device__ inline
#else
#define ROOT_FUNCTION static inline
#endif

/* The square root of a finite double > 0, given as bits, times 2^exponent, rounded up to a float of `lane` bits, 32 or
 * 64, as bits. At most the greatest finite one. */
ROOT_FUNCTION uint64_t root_up(uint64_t bits, int exponent, int lane)
{
    const int mantissa = lane == 32 ? 23 : 52;
    const int bias = lane == 32 ? 127 : 1023;
    int e = (int)(bits >> 52) - 1075;
    bits &= (UINT64_C(1) << 52) - 1;
    if (e > -1075) {
        bits |= UINT64_C(1) << 52;
    } else { /* denormal */
        e++;
        for (; !(bits >> 52); bits <<= 1)
            e--;
    }
    if (e % 2) {
        bits <<= 1;
        e--;
    }
    /* The argument is bits * 2^e, with 53 or 54 bits, and e even. Each digit of the root takes two of its bits, and the
     * first digit is 1. The root has as many digits as the mantissa; others only decide whether to round up. */
    const int digits = mantissa + 1;
    uint64_t root = 0, remainder = 0;
    for (int i = 0; i < digits; i++) {
        remainder = remainder << 2 | (i < 27 ? bits >> (52 - 2 * i) & 3 : 0);
        const uint64_t trial = root << 2 | 1, digit = remainder >= trial;
        remainder -= trial & (0 - digit);
        root = root << 1 | digit;
    }
    if (digits < 27)
        remainder |= bits & ((UINT64_C(1) << (54 - 2 * digits)) - 1);
    /* sqrt = root * 2^(e / 2 + 27 - digits), and more if remainder is not 0 */
    const int unit = e / 2 + 27 - digits + exponent; /* of root's last bit */
    const int least = 1 - bias - mantissa;
    const int drop = unit < least ? least - unit : 0; /* bits of root that a denormal has no room for */
    if (drop > 63)
        return 1;
    const uint64_t low = root & ((UINT64_C(1) << drop) - 1);
    const uint64_t kept = (root >> drop) + (low || remainder);
    /* kept * 2^(unit + drop): the implicit bit is added to the exponent, and so is a carry */
    const uint64_t result = kept + ((uint64_t)(unit + drop - least) << mantissa);
    const uint64_t most = (lane == 32 ? UINT64_C(0x7f800000) : UINT64_C(0x7ff0000000000000)) - 1;
    return result < most ? result : most;
}

#endif
