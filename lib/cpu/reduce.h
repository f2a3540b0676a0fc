/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Arithmetic on dense elements other than addition. Elements are in host order, at any alignment; dtype is a valid
 * one. Every ISA and every host gives the same bits. */
#ifndef PICI_LIB_CPU_REDUCE_H
#define PICI_LIB_CPU_REDUCE_H

#include <stddef.h>
#include <stdint.h>

#include "shared.h"

/* dst[i] = the smaller of dst[i] and src[i], or with `max` the greater. The arrays do not overlap. -0 is less than +0.
 * A NaN in dst stays; otherwise a NaN in src replaces dst. A NaN keeps its payload and sign, and its quiet bit is set
 * (f8e4m3 has none). */
PICI_SHARED void pici_reduce(uint8_t *dst, const uint8_t *src, size_t n, unsigned dtype, int max);

/* dst[i] = src[i], but +0.0 for -0.0. With `quiet`, a NaN also becomes quiet (f8e4m3's stay). Then dst[i] = (+0) +
 * src[i], as pici_scatter_add adds. Integers are copied. The arrays do not overlap, or dst is src. In place, only
 * pieces that change are written. */
PICI_SHARED void pici_positive_zeros(uint8_t *dst, const uint8_t *src, size_t n, unsigned dtype, int quiet);

/* dst[i] /= by, by >= 1. f32 and f64: IEEE division by (float)by and by (double)by. f16, bf16 and f8: the quotient,
 * rounded once to nearest even. A quotient of floats that is zero is +0.0. Integers: truncated toward zero. NaNs as in
 * pici_reduce. */
PICI_SHARED void pici_divide(uint8_t *dst, size_t n, unsigned dtype, int by);

#endif
