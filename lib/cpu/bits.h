/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Bits of 64-bit words, loop unrolling, inlining and joined names. The files of every ISA use these even before
 * common.inc. */
#ifndef PICI_LIB_CPU_BITS_H
#define PICI_LIB_CPU_BITS_H

#include <stdint.h>

/* UNROLL_SOME: for a loop that may end early. clang warns that it cannot unroll such a loop with sanitizers. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_SOME
#elif defined __OPTIMIZE__
#define UNROLL _Pragma("GCC unroll 16")
#define UNROLL_SOME UNROLL
#else
#define UNROLL _Pragma("GCC unroll 16")
#define UNROLL_SOME /* gcc would warn */
#endif

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b) /* after macro expansion */

/* For functions that work on a tile, where the time of a call does not matter. Inlining them would cost compile time,
 * cache space and the caller's registers. */
#define APART __attribute__((noinline, unused))

#define CTZ64(w) ((unsigned)__builtin_ctzll(w)) /* w is not zero */

/* Count the set bits of w in each byte. */
static inline uint64_t byte_counts(uint64_t w)
{
    w -= w >> 1 & UINT64_C(0x5555555555555555);
    w = (w & UINT64_C(0x3333333333333333)) + (w >> 2 & UINT64_C(0x3333333333333333));
    return (w + (w >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
}

#endif
