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
    /* the argument is bits * 2^e, with 53 or 54 bits, and e even. Two digits of the root for each: 27 of the integer's,
     * and 30 more. */
    uint64_t root = 0, remainder = 0;
    for (int i = 0; i < 27 + 30; i++) {
        remainder = remainder << 2 | (i < 27 ? bits >> (52 - 2 * i) & 3 : 0);
        const uint64_t trial = root << 2 | 1;
        root <<= 1;
        if (remainder >= trial) {
            remainder -= trial;
            root |= 1;
        }
    }
    /* sqrt = root * 2^(e / 2 - 30), root having 57 bits, and more if remainder is not 0 */
    const int unit = e / 2 - 30 + exponent; /* of root's last bit */
    int drop = 57 - 1 - mantissa;           /* bits of root beyond the mantissa */
    const int least = 1 - bias - mantissa;
    if (unit + drop < least)
        drop = least - unit; /* denormal */
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
