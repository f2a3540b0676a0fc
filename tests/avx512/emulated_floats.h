/* SPDX-License-Identifier: BSD-3-Clause
 *
 * More of emulated.h, after which this is included: the intrinsics for packed floats (lib/cpu/planes_avx512.inc) and
 * for sums of narrow ones. */
#ifndef PICI_TESTS_AVX512_EMULATED_FLOATS_H
#define PICI_TESTS_AVX512_EMULATED_FLOATS_H

/* ---- rows of bytes ---- */

/* x and y are elements of a and b. */
#define EMULATE_PAIRS(name, W, result)                                                                                 \
    static inline __m512i emulated_##name(__m512i a, __m512i b)                                                        \
    {                                                                                                                  \
        const union emulated left = {a}, right = {b};                                                                  \
        union emulated r;                                                                                              \
        for (int i = 0; i < 512 / W; i++) {                                                                            \
            const uint##W##_t x = left.e##W[i], y = right.e##W[i];                                                     \
            r.e##W[i] = (uint##W##_t)(result);                                                                         \
        }                                                                                                              \
        return r.v;                                                                                                    \
    }
EMULATE_PAIRS(max_epu8, 8, x > y ? x : y)
EMULATE_PAIRS(min_epu8, 8, x < y ? x : y)
EMULATE_PAIRS(sub_epi8, 8, x - y)
EMULATE_PAIRS(andnot_si512, 64, ~x &y)
#undef EMULATE_PAIRS

static inline __m512i emulated_broadcast_i32x4(__m128i a)
{
    const union emulated r = {.lane = {a, a, a, a}};
    return r.v;
}

static inline __m512i emulated_maskz_set1_epi8(uint64_t m, char x)
{
    union emulated r;
    for (int i = 0; i < 64; i++)
        r.e8[i] = m >> i & 1 ? (uint8_t)x : 0;
    return r.v;
}

static inline __m512i emulated_mask_blend_epi8(uint64_t m, __m512i a, __m512i b)
{
    const union emulated x = {a}, y = {b};
    union emulated r;
    for (int i = 0; i < 64; i++)
        r.e8[i] = m >> i & 1 ? y.e8[i] : x.e8[i];
    return r.v;
}

static inline uint64_t emulated_testn_epi8_mask(__m512i a, __m512i b)
{
    const union emulated x = {a}, y = {b};
    uint64_t m = 0;
    for (int i = 0; i < 64; i++)
        m |= (uint64_t)((x.e8[i] & y.e8[i]) == 0) << i;
    return m;
}

/* An element of a or, where the index is beyond it, of b. */
static inline __m512i emulated_permutex2var_epi8(__m512i a, __m512i index, __m512i b)
{
    const union emulated x = {a}, at = {index}, y = {b};
    union emulated r;
    for (int i = 0; i < 64; i++)
        r.e8[i] = (at.e8[i] & 64 ? y : x).e8[at.e8[i] & 63];
    return r.v;
}

static inline __m512i emulated_permutex2var_epi16(__m512i a, __m512i index, __m512i b)
{
    const union emulated x = {a}, at = {index}, y = {b};
    union emulated r;
    for (int i = 0; i < 32; i++)
        r.e16[i] = (at.e16[i] & 32 ? y : x).e16[at.e16[i] & 31];
    return r.v;
}

/* a moved left with the upper bits of b behind it; or right, with the lower bits of b before it. */
static inline __m512i emulated_shldi_epi16(__m512i a, __m512i b, int by)
{
    const union emulated x = {a}, y = {b};
    union emulated r;
    for (int i = 0; i < 32; i++)
        r.e16[i] = (uint16_t)(((uint32_t)x.e16[i] << 16 | y.e16[i]) << by >> 16);
    return r.v;
}

static inline __m512i emulated_shrdi_epi16(__m512i a, __m512i b, int by)
{
    const union emulated x = {a}, y = {b};
    union emulated r;
    for (int i = 0; i < 32; i++)
        r.e16[i] = (uint16_t)(((uint32_t)y.e16[i] << 16 | x.e16[i]) >> by);
    return r.v;
}

static inline __m512i emulated_popcnt_epi64(__m512i a)
{
    union emulated r = {a};
    for (int i = 0; i < 8; i++)
        r.e64[i] = (uint64_t)__builtin_popcountll(r.e64[i]);
    return r.v;
}

static inline long long emulated_reduce_add_epi64(__m512i a)
{
    const union emulated x = {a};
    uint64_t sum = 0;
    for (int i = 0; i < 8; i++)
        sum += x.e64[i];
    return (long long)sum;
}

/* The last argument is the first element. */
static inline __m512i emulated_set_epi64(long long h, long long g, long long f, long long e, long long d, long long c,
                                         long long b, long long a)
{
    const long long each[8] = {a, b, c, d, e, f, g, h};
    union emulated r;
    memcpy(&r, each, sizeof each);
    return r.v;
}

/* ---- sums of floats ---- */

static inline __m512 emulated_add_ps(__m512 a, __m512 b)
{
    union emulated_floats x = {a};
    const union emulated_floats y = {b};
    for (int i = 0; i < 16; i++)
        x.f[i] = x.f[i] + y.f[i];
    return x.v;
}

/* The one predicate in use: where one of the two is a NaN. */
static inline uint16_t emulated_cmp_unord_ps(__m512 a, __m512 b)
{
    const union emulated_floats x = {a}, y = {b};
    uint16_t m = 0;
    for (int i = 0; i < 16; i++)
        m |= (uint16_t)((x.f[i] != x.f[i] || y.f[i] != y.f[i]) << i);
    return m;
}

/* Between floats of 16 and 32 bits, by the instructions of F16C. */
static inline __m512 emulated_cvtph_ps(__m256i a)
{
    union emulated r;
    r.half[0] = (__m256i)_mm256_cvtph_ps(_mm256_castsi256_si128(a));
    r.half[1] = (__m256i)_mm256_cvtph_ps(_mm256_extracti128_si256(a, 1));
    return (__m512)r.v;
}

static inline __m256i emulated_cvtps_ph(__m512 a)
{
    const union emulated x = {(__m512i)a};
    return _mm256_set_m128i(_mm256_cvtps_ph((__m256)x.half[1], _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph((__m256)x.half[0], _MM_FROUND_TO_NEAREST_INT));
}

static inline __m512i emulated_cvtps_pd(__m256 a)
{
    union emulated r;
    r.half[0] = (__m256i)_mm256_cvtps_pd(_mm256_castps256_ps128(a));
    r.half[1] = (__m256i)_mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
    return r.v;
}

static inline __m512i emulated_cvt_up_epi32(__m512 a)
{
    const union emulated x = {(__m512i)a};
    union emulated r;
    for (int i = 0; i < 2; i++)
        r.half[i] = _mm256_cvtps_epi32(_mm256_ceil_ps((__m256)x.half[i]));
    return r.v;
}

#undef _mm512_broadcast_i32x4
#undef _mm512_reduce_add_epi64
#undef _mm512_shldi_epi16
#undef _mm512_shrdi_epi16
#undef _mm512_popcnt_epi64
#undef _mm512_set_epi64
#undef _mm512_mask_blend_epi8
#undef _mm512_cmp_ps_mask
#undef _mm512_cvtps_ph
#undef _mm512_cvt_roundps_epi32
#define _mm512_max_epu8 emulated_max_epu8
#define _mm512_min_epu8 emulated_min_epu8
#define _mm512_sub_epi8 emulated_sub_epi8
#define _mm512_add_epi64 emulated_add_epi64
#define _mm512_andnot_si512 emulated_andnot_si512
#define _mm512_broadcast_i32x4 emulated_broadcast_i32x4
#define _mm512_maskz_set1_epi8 emulated_maskz_set1_epi8
#define _mm512_mask_blend_epi8 emulated_mask_blend_epi8
#define _mm512_testn_epi8_mask emulated_testn_epi8_mask
#define _mm512_permutex2var_epi8 emulated_permutex2var_epi8
#define _mm512_permutex2var_epi16 emulated_permutex2var_epi16
#define _mm512_shldi_epi16 emulated_shldi_epi16
#define _mm512_shrdi_epi16 emulated_shrdi_epi16
#define _mm512_popcnt_epi64 emulated_popcnt_epi64
#define _mm512_reduce_add_epi64 emulated_reduce_add_epi64
#define _mm512_set_epi64 emulated_set_epi64
#define _mm512_add_ps emulated_add_ps
#define _mm512_cmp_ps_mask(a, b, predicate) emulated_cmp_unord_ps(a, b)
#define _mm512_cvtph_ps emulated_cvtph_ps
#define _mm512_cvtps_pd emulated_cvtps_pd
#define _mm512_cvt_roundps_epi32(a, rounding) emulated_cvt_up_epi32(a) /* the only rounding in use */
#define _mm512_cvtps_ph(a, rounding) emulated_cvtps_ph(a)

#endif
