/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Included before the kernels' sources where they are compiled for Bochs. Bochs 2.7 gets two instructions of AVX-512
 * wrong, and this avoids them.
 *   VPEXPANDB, VPEXPANDW    from memory: elements that the mask leaves out are not read, though they count
 *   VCVTPS2PH               a tie goes to the odd neighbour */
#ifndef PICI_TESTS_AVX512_BOCHS_H
#define PICI_TESTS_AVX512_BOCHS_H

#include <immintrin.h>

/* Keeps the load of v out of the instruction that uses it. */
__attribute__((target("avx512f"), always_inline)) static inline __m512i bochs_loaded(__m512i v)
{
    __asm__("" : "+v"(v));
    return v;
}
#define _mm512_mask_expand_epi8(a, m, v) (_mm512_mask_expand_epi8)(a, m, bochs_loaded(v))
#define _mm512_mask_expand_epi16(a, m, v) (_mm512_mask_expand_epi16)(a, m, bochs_loaded(v))

/* a rounded to what float16 has, to nearest even. NaNs stay as they are. */
__attribute__((target("avx512f"), always_inline)) static inline __m512 bochs_round_to_f16(__m512 a)
{
    const __m512i bits = _mm512_castps_si512(a), least = _mm512_set1_epi32(0x1fff);
    const __m512i odd = _mm512_and_epi32(_mm512_srli_epi32(bits, 13), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0xfff)));
    const __m512 normal = _mm512_castsi512_ps(_mm512_andnot_epi32(least, up));
    /* float16's denormals are the multiples of 2^-24, and so are the floats from 1/2 to 1 */
    const __m512 half = _mm512_set1_ps(0.5f), magnitude = _mm512_abs_ps(a);
    __m512 sum = _mm512_add_ps(magnitude, half);
    __asm__("" : "+v"(sum)); /* or the compiler may take the sum for exact */
    const __m512i sign = _mm512_and_epi32(bits, _mm512_set1_epi32((int)0x80000000));
    const __m512i denormal = _mm512_or_epi32(_mm512_castps_si512(_mm512_sub_ps(sum, half)), sign);
    const __mmask16 small = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(0x1p-14f), _CMP_LT_OQ);
    const __m512 rounded = _mm512_mask_mov_ps(normal, small, _mm512_castsi512_ps(denormal));
    return _mm512_mask_mov_ps(rounded, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), a);
}
/* A function where the compiler optimizes; else gcc has a macro. */
#define _mm512_cvtps_ph(a, rounding) (_mm512_cvtps_ph)(bochs_round_to_f16(a), rounding)

#endif
