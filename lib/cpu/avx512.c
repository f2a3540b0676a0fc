/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Kernels for AVX-512 (F, BW, VL, VBMI2), beside what AVX2 needs. */
#include "cpu/kernels.h"

#if PICI_HAVE_X86
#include <string.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi2,avx2,bmi,bmi2,popcnt"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512vbmi2,avx2,bmi,bmi2,popcnt")
#endif
#define POPCOUNT64(w) ((unsigned)__builtin_popcountll(w))

#include "cpu/common.inc"
#include "cpu/arith.inc"

#define VECTOR_BYTES 64
#define BITS 8
#include "cpu/move.inc"
#define BITS 16
#include "cpu/move.inc"
#define BITS 32
#include "cpu/move.inc"
#define BITS 64
#include "cpu/move.inc"

#define DENSE_ADD 1024
#define ISA_TABLE pici_isa_avx512
#define ISA_NAME "avx512"
#include "cpu/table.inc"

#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
