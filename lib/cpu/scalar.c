/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Kernels in plain C and compiler vectors of 16 bytes: for any host (of i386, those with SSE2). */
#if defined(__i386__) && !defined(__SSE2_MATH__) /* x87 arithmetic rounds twice, and quietens what it only moves */
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("sse2"))), apply_to = function)
#define PUSHED
#else
#pragma GCC target("sse2,fpmath=sse")
#endif
#endif

#include "cpu/common.inc"

#define VECTOR_BYTES 16
#define PACK_MANY 1024
#define UNPACK_MANY 1024
#define BITS 8
#include "cpu/move.inc"
#define BITS 16
#include "cpu/move.inc"
#define BITS 32
#include "cpu/move.inc"
#define BITS 64
#include "cpu/move.inc"

#define ADD_MANY 1024
#define ISA_TABLE pici_isa_scalar
#define ISA_NAME "scalar"
#include "cpu/table.inc"

#ifdef PUSHED
#pragma clang attribute pop
#endif
