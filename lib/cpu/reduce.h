/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Arithmetic on dense elements other than adding. Elements are in host order, at any alignment; dtype is one that
 * exists. The same bits from every instruction set and on every host. */
#ifndef PICI_LIB_CPU_REDUCE_H
#define PICI_LIB_CPU_REDUCE_H

#include <stddef.h>
#include <stdint.h>

/* dst[i] = the lesser of dst[i] and src[i], with `max` the greater; the arrays do not overlap. -0 is less than +0. A
 * NaN in dst stays, else a NaN in src is taken; payload and sign are kept and the quiet bit is set (f8e4m3 has
 * none). */
void pici_reduce(uint8_t *dst, const uint8_t *src, size_t n, unsigned dtype, int max);

/* dst[i] /= by, by >= 1. f32 and f64: the IEEE division, by (float)by and by; f16, bf16 and f8: the quotient, rounded
 * once to nearest even; integers: truncated toward zero. NaNs as above. */
void pici_divide(uint8_t *dst, size_t n, unsigned dtype, int by);

/* For the kernels: what the bits of a dtype mean. Magnitudes are the bits below the sign. */
struct pici_kind {
    enum { PICI_IS_SIGNED, PICI_IS_UNSIGNED, PICI_IS_FLOAT } is;
    unsigned mantissa; /* bits; of floats, as what follows */
    uint64_t finite;   /* the greatest finite magnitude */
    uint64_t most;     /* the greatest magnitude that is not a NaN; of integers any */
    uint64_t quiet;    /* the bit that makes a NaN quiet */
};

#endif
