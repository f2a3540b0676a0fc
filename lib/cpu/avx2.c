/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Kernels for AVX2 with BMI1, BMI2 and POPCNT. */
#include "cpu/kernels.h"

#if PICI_HAVE_X86
#include <string.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,bmi,bmi2,popcnt"))), apply_to = function)
#else
#pragma GCC target("avx2,bmi,bmi2,popcnt")
#endif
#define POPCOUNT64(w) ((unsigned)__builtin_popcountll(w))

#include "cpu/common.inc"
#include "cpu/arith.inc"

#define VECTOR_BYTES 32
#define BITS 8
#include "cpu/move.inc"
#define BITS 16
#include "cpu/move.inc"
#define BITS 32
#include "cpu/move.inc"
#define BITS 64
#include "cpu/move.inc"

#define DENSE_ADD 1024
#define ISA_TABLE pici_isa_avx2
#define ISA_NAME "avx2"
#include "cpu/table.inc"

#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
