/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). Its random numbers are a function
 * of a key and a counter, so each can be computed alone. */
#ifndef PICI_LIB_PHILOX_H
#define PICI_LIB_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define PHILOX_FUNCTION static __host__ __device__ inline
#else
#define PHILOX_FUNCTION static inline
#endif

PHILOX_FUNCTION void philox4x32(uint32_t output[4], const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t a = UINT64_C(0xd2511f53) * x0, b = UINT64_C(0xcd9e8d57) * x2;
        x0 = (uint32_t)(b >> 32) ^ x1 ^ k0;
        x2 = (uint32_t)(a >> 32) ^ x3 ^ k1;
        x1 = (uint32_t)b;
        x3 = (uint32_t)a;
        k0 += UINT32_C(0x9e3779b9);
        k1 += UINT32_C(0xbb67ae85);
    }
    output[0] = x0;
    output[1] = x1;
    output[2] = x2;
    output[3] = x3;
}

#endif
