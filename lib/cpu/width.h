/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernels of an ISA for elements of one width. Each has its own file, so that compilers can work on several at a
 * time: avx2_16.c has the kernels of avx2.inc for 16 bits. dispatch.c combines them into the tables of kernels.h. */
#ifndef PICI_LIB_CPU_WIDTH_H
#define PICI_LIB_CPU_WIDTH_H

#include "cpu/kernels.h"
#include "cpu/planes.h"
#include "cpu/topk.h"
#include "cpu/values.h"

struct pici_width {
    struct pici_move move, by_value;
    struct pici_add xors, integer, floats[2]; /* the floats of this width, in the order of their dtypes */
    struct pici_planes planes[2];             /* likewise */
    struct pici_lists lists;
    struct pici_reduce reduce;
    struct pici_topk_kernels topk[2]; /* of the floats; not of 8 bits */
    struct pici_values_kernels values[2];
    struct pici_small small; /* of 16 and 32 bits */
    struct pici_coder coder; /* in the struct of 32 bits */
    struct pici_bits bits;   /* in the struct of 64 bits */
};

extern const struct pici_width pici_scalar_8, pici_scalar_16, pici_scalar_32, pici_scalar_64;
#if defined(__x86_64__) || defined(__i386__)
#define PICI_HAVE_X86 1
extern const struct pici_width pici_avx2_8, pici_avx2_16, pici_avx2_32, pici_avx2_64;
extern const struct pici_width pici_avx512_8, pici_avx512_16, pici_avx512_32, pici_avx512_64;
#else
#define PICI_HAVE_X86 0
#endif
#if defined(__aarch64__) && defined(__ARM_NEON) && !defined(__AARCH64EB__)
#define PICI_HAVE_NEON 1
extern const struct pici_width pici_neon_8, pici_neon_16, pici_neon_32, pici_neon_64;
#else
#define PICI_HAVE_NEON 0
#endif

#endif
