/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The AVX-512 intrinsics that lib/cpu/avx512.inc uses, in plain C after Intel's descriptions. They let the logic of
 * its kernels run on a CPU without AVX-512 (tests/avx512/linked.sh). They do not test the instructions, nor the code
 that a * compiler generates for AVX-512: that takes such a CPU, or tests/avx512/run. An intrinsic that is missing here
 does * not compile. */
#ifndef PICI_TESTS_AVX512_EMULATED_H
#define PICI_TESTS_AVX512_EMULATED_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* The register as an array. The operators of the vector types are not used, because they are under test. */
union emulated {
    __m512i v;
    __m256i half[2];
    __m128i lane[4];
    uint8_t e8[64];
    uint16_t e16[32];
    uint32_t e32[16];
    uint64_t e64[8];
};

/* For each element width: test, masked add, masked compress and expand, unpack low and high. */
#define EMULATE(W, MASK)                                                                                               \
    static inline MASK emulated_test_epi##W##_mask(__m512i a, __m512i b)                                               \
    {                                                                                                                  \
        const union emulated x = {a}, y = {b};                                                                         \
        MASK m = 0;                                                                                                    \
        for (int i = 0; i < 512 / W; i++)                                                                              \
            m |= (MASK)((MASK)((x.e##W[i] & y.e##W[i]) != 0) << i);                                                    \
        return m;                                                                                                      \
    }                                                                                                                  \
    static inline __m512i emulated_add_epi##W(__m512i a, __m512i b)                                                    \
    {                                                                                                                  \
        union emulated x = {a}, y = {b};                                                                               \
        for (int i = 0; i < 512 / W; i++)                                                                              \
            x.e##W[i] = (uint##W##_t)(x.e##W[i] + y.e##W[i]);                                                          \
        return x.v;                                                                                                    \
    }                                                                                                                  \
    static inline __m512i emulated_mask_add_epi##W(__m512i src, MASK m, __m512i a, __m512i b)                          \
    {                                                                                                                  \
        union emulated r = {src};                                                                                      \
        const union emulated sum = {emulated_add_epi##W(a, b)};                                                        \
        for (int i = 0; i < 512 / W; i++)                                                                              \
            r.e##W[i] = m >> i & 1 ? sum.e##W[i] : r.e##W[i];                                                          \
        return r.v;                                                                                                    \
    }                                                                                                                  \
    static inline __m512i emulated_mask_compress_epi##W(__m512i src, MASK m, __m512i a)                                \
    {                                                                                                                  \
        union emulated r = {src};                                                                                      \
        const union emulated x = {a};                                                                                  \
        for (int i = 0, to = 0; i < 512 / W; i++)                                                                      \
            if (m >> i & 1)                                                                                            \
                r.e##W[to++] = x.e##W[i];                                                                              \
        return r.v;                                                                                                    \
    }                                                                                                                  \
    static inline __m512i emulated_mask_expand_epi##W(__m512i src, MASK m, __m512i a)                                  \
    {                                                                                                                  \
        union emulated r = {src};                                                                                      \
        const union emulated x = {a};                                                                                  \
        for (int i = 0, from = 0; i < 512 / W; i++)                                                                    \
            if (m >> i & 1)                                                                                            \
                r.e##W[i] = x.e##W[from++];                                                                            \
        return r.v;                                                                                                    \
    }                                                                                                                  \
    static inline __m512i emulated_unpack_epi##W(__m512i a, __m512i b, int high)                                       \
    {                                                                                                                  \
        enum { LANE = 128 / W };                                                                                       \
        const union emulated x = {a}, y = {b};                                                                         \
        union emulated r;                                                                                              \
        for (int i = 0; i < 512 / W; i++) {                                                                            \
            const int from = i / LANE * LANE + i % LANE / 2 + high * LANE / 2;                                         \
            r.e##W[i] = i % 2 ? y.e##W[from] : x.e##W[from];                                                           \
        }                                                                                                              \
        return r.v;                                                                                                    \
    }
EMULATE(8, __mmask64)
EMULATE(16, __mmask32)
EMULATE(32, __mmask16)
EMULATE(64, __mmask8)
#undef EMULATE

static inline __m512i emulated_load(const void *p)
{
    union emulated r;
    memcpy(&r, p, sizeof r);
    return r.v;
}

static inline void emulated_store(void *p, __m512i a)
{
    memcpy(p, &a, sizeof a);
}

/* Faults, as the instruction does, if p is not aligned. */
static inline void emulated_stream(void *p, __m512i a)
{
    if ((uintptr_t)p % sizeof a)
        __builtin_trap();
    memcpy(p, &a, sizeof a);
}

static inline __m512i emulated_set1_epi8(char x)
{
    union emulated r;
    memset(&r, x, sizeof r);
    return r.v;
}

/* Within lanes of 16 bytes; an index whose top bit is set gives 0. */
static inline __m512i emulated_shuffle_epi8(__m512i a, __m512i b)
{
    const union emulated x = {a}, index = {b};
    union emulated r;
    for (int i = 0; i < 64; i++)
        r.e8[i] = index.e8[i] & 0x80 ? 0 : x.e8[i / 16 * 16 + (index.e8[i] & 15)];
    return r.v;
}

static inline __m512i emulated_srli_epi64(__m512i a, unsigned n)
{
    union emulated r = {a};
    for (int i = 0; i < 8; i++)
        r.e64[i] = n > 63 ? 0 : r.e64[i] >> n;
    return r.v;
}

/* The sum of absolute differences of eight bytes each. */
static inline __m512i emulated_sad_epu8(__m512i a, __m512i b)
{
    const union emulated x = {a}, y = {b};
    union emulated r = {.e8 = {0}};
    for (int i = 0; i < 64; i++)
        r.e64[i / 8] += (uint64_t)(x.e8[i] > y.e8[i] ? x.e8[i] - y.e8[i] : y.e8[i] - x.e8[i]);
    return r.v;
}

static inline __m512i emulated_set1_epi16(short x)
{
    union emulated r;
    for (int i = 0; i < 32; i++)
        r.e16[i] = (uint16_t)x;
    return r.v;
}

static inline __m512i emulated_set1_epi32(int x)
{
    union emulated r;
    for (int i = 0; i < 16; i++)
        r.e32[i] = (uint32_t)x;
    return r.v;
}

static inline __m512i emulated_setzero(void)
{
    const union emulated r = {.e8 = {0}};
    return r.v;
}

static inline __m512i emulated_slli_epi16(__m512i a, unsigned n)
{
    union emulated r = {a};
    for (int i = 0; i < 32; i++)
        r.e16[i] = (uint16_t)(n > 15 ? 0 : r.e16[i] << n);
    return r.v;
}

static inline __m512i emulated_cvtepu8_epi16(__m256i a)
{
    const union emulated x = {.half = {a, a}};
    union emulated r;
    for (int i = 0; i < 32; i++)
        r.e16[i] = x.e8[i];
    return r.v;
}

static inline __m512i emulated_mask_cvtepu8_epi16(__m512i src, __mmask32 m, __m256i a)
{
    union emulated r = {src};
    const union emulated x = {emulated_cvtepu8_epi16(a)};
    for (int i = 0; i < 32; i++)
        r.e16[i] = m >> i & 1 ? x.e16[i] : r.e16[i];
    return r.v;
}

static inline __m512i emulated_set1_epi64(long long x)
{
    union emulated r;
    for (int i = 0; i < 8; i++)
        r.e64[i] = (uint64_t)x;
    return r.v;
}

static inline __m512i emulated_sub_epi64(__m512i a, __m512i b)
{
    union emulated x = {a}, y = {b};
    for (int i = 0; i < 8; i++)
        x.e64[i] -= y.e64[i];
    return x.v;
}

static inline __m512i emulated_sllv_epi64(__m512i a, __m512i n)
{
    union emulated x = {a}, by = {n};
    for (int i = 0; i < 8; i++)
        x.e64[i] = by.e64[i] > 63 ? 0 : x.e64[i] << by.e64[i];
    return x.v;
}

/* Touches no byte that it does not load. */
static inline __m256i emulated_maskz_loadu_epi8(__mmask32 m, const void *p)
{
    union emulated r = {.e8 = {0}};
    for (int i = 0; i < 32; i++)
        if (m >> i & 1)
            r.e8[i] = ((const uint8_t *)p)[i];
    return r.half[0];
}

static inline __mmask32 emulated_mask_cmple_epu8_mask(__mmask32 m, __m256i a, __m256i b)
{
    const union emulated x = {.half = {a}}, y = {.half = {b}};
    __mmask32 r = 0;
    for (int i = 0; i < 32; i++)
        r |= (__mmask32)(x.e8[i] <= y.e8[i]) << i;
    return r & m;
}

/* Lesser and greater of signed elements. */
#define EMULATE_ORDER(W)                                                                                               \
    static inline __m512i emulated_min_epi##W(__m512i a, __m512i b)                                                    \
    {                                                                                                                  \
        union emulated x = {a};                                                                                        \
        const union emulated y = {b};                                                                                  \
        for (int i = 0; i < 512 / W; i++)                                                                              \
            x.e##W[i] = (int##W##_t)x.e##W[i] < (int##W##_t)y.e##W[i] ? x.e##W[i] : y.e##W[i];                         \
        return x.v;                                                                                                    \
    }                                                                                                                  \
    static inline __m512i emulated_max_epi##W(__m512i a, __m512i b)                                                    \
    {                                                                                                                  \
        union emulated x = {a};                                                                                        \
        const union emulated y = {b};                                                                                  \
        for (int i = 0; i < 512 / W; i++)                                                                              \
            x.e##W[i] = (int##W##_t)x.e##W[i] > (int##W##_t)y.e##W[i] ? x.e##W[i] : y.e##W[i];                         \
        return x.v;                                                                                                    \
    }
EMULATE_ORDER(16)
EMULATE_ORDER(32)
EMULATE_ORDER(64)
#undef EMULATE_ORDER

/* The products of the lower halves of 64 bits each. */
static inline __m512i emulated_mul_epu32(__m512i a, __m512i b)
{
    union emulated x = {a};
    const union emulated y = {b};
    for (int i = 0; i < 8; i++)
        x.e64[i] = (x.e64[i] & UINT32_MAX) * (y.e64[i] & UINT32_MAX);
    return x.v;
}

static inline __m512i emulated_rol_epi32(__m512i a, int n)
{
    union emulated x = {a};
    for (int i = 0; i < 16; i++)
        x.e32[i] = n % 32 ? x.e32[i] << n % 32 | x.e32[i] >> (32 - n % 32) : x.e32[i];
    return x.v;
}

/* Two bits of `order` choose each element of a lane. */
static inline __m512i emulated_shuffle_epi32(__m512i a, unsigned order)
{
    const union emulated x = {a};
    union emulated r;
    for (unsigned i = 0; i < 16; i++)
        r.e32[i] = x.e32[i / 4 * 4 + (order >> 2 * (i % 4) & 3)];
    return r.v;
}

/* Two bits of `order` choose each lane: of a the lower two, of b the upper. */
static inline __m512i emulated_shuffle_i64x2(__m512i a, __m512i b, unsigned order)
{
    const union emulated x = {a}, y = {b};
    union emulated r;
    for (unsigned i = 0; i < 4; i++)
        r.lane[i] = (i < 2 ? x : y).lane[order >> 2 * i & 3];
    return r.v;
}

static inline __m512i emulated_castsi128_si512(__m128i a)
{
    union emulated r;
    memset(&r, 0xa5, sizeof r); /* the rest is undefined */
    r.lane[0] = a;
    return r.v;
}

static inline __m512i emulated_inserti32x4(__m512i a, __m128i b, int at)
{
    union emulated r = {a};
    r.lane[at] = b;
    return r.v;
}

static inline __m256i emulated_extracti64x4_epi64(__m512i a, int at)
{
    const union emulated x = {a};
    return x.half[at];
}

/* ---- what small deltas use ---- */

/* For each pair of elements p and q of type T. */
#define EMULATE_EACH(NAME, W, T, RESULT)                                                                               \
    static inline __m512i emulated_##NAME(__m512i a, __m512i b)                                                        \
    {                                                                                                                  \
        union emulated x = {a};                                                                                        \
        const union emulated y = {b};                                                                                  \
        for (int i = 0; i < 512 / W; i++) {                                                                            \
            const T p = (T)x.e##W[i], q = (T)y.e##W[i];                                                                \
            x.e##W[i] = (uint##W##_t)(RESULT);                                                                         \
        }                                                                                                              \
        return x.v;                                                                                                    \
    }
EMULATE_EACH(and_si512, 64, uint64_t, p &q)
EMULATE_EACH(or_si512, 64, uint64_t, p | q)
EMULATE_EACH(xor_si512, 64, uint64_t, p ^ q)
EMULATE_EACH(sub_epi16, 16, uint16_t, p - q)
EMULATE_EACH(sub_epi32, 32, uint32_t, p - q)
EMULATE_EACH(subs_epu16, 16, uint16_t, p > q ? p - q : 0)
EMULATE_EACH(min_epu16, 16, uint16_t, p < q ? p : q)
EMULATE_EACH(mullo_epi32, 32, uint32_t, p *q)
#undef EMULATE_EACH

static inline __m512i emulated_abs_epi16(__m512i a)
{
    union emulated x = {a};
    for (int i = 0; i < 32; i++)
        x.e16[i] = (uint16_t)(x.e16[i] >> 15 ? -x.e16[i] : x.e16[i]);
    return x.v;
}

#define EMULATE_COMPARE(NAME, W, T, OP)                                                                                \
    static inline __mmask32 emulated_##NAME(__m512i a, __m512i b)                                                      \
    {                                                                                                                  \
        const union emulated x = {a}, y = {b};                                                                         \
        __mmask32 m = 0;                                                                                               \
        for (int i = 0; i < 512 / W; i++)                                                                              \
            m |= (__mmask32)((T)x.e##W[i] OP(T) y.e##W[i]) << i;                                                       \
        return m;                                                                                                      \
    }
EMULATE_COMPARE(cmpeq_epi16_mask, 16, uint16_t, ==)
EMULATE_COMPARE(cmpneq_epi16_mask, 16, uint16_t, !=)
EMULATE_COMPARE(cmpneq_epi32_mask, 32, uint32_t, !=)
EMULATE_COMPARE(cmpgt_epu16_mask, 16, uint16_t, >)
EMULATE_COMPARE(cmpge_epu32_mask, 32, uint32_t, >=)
EMULATE_COMPARE(cmplt_epu32_mask, 32, uint32_t, <)
EMULATE_COMPARE(cmplt_epi32_mask, 32, int32_t, <)
#undef EMULATE_COMPARE

/* Of each element the highest bit. */
static inline __mmask32 emulated_movepi16_mask(__m512i a)
{
    const union emulated x = {a};
    __mmask32 m = 0;
    for (int i = 0; i < 32; i++)
        m |= (__mmask32)(x.e16[i] >> 15) << i;
    return m;
}

/* Elements of b where the mask has a bit, and else of a. */
static inline __m512i emulated_mask_mov_epi32(__m512i a, __mmask16 m, __m512i b)
{
    union emulated r = {a};
    const union emulated x = {b};
    for (int i = 0; i < 16; i++)
        r.e32[i] = m >> i & 1 ? x.e32[i] : r.e32[i];
    return r.v;
}

static inline __m512i emulated_mask_sub_epi32(__m512i src, __mmask16 m, __m512i a, __m512i b)
{
    return emulated_mask_mov_epi32(src, m, emulated_sub_epi32(a, b));
}

static inline __m512i emulated_mask_or_epi32(__m512i src, __mmask16 m, __m512i a, __m512i b)
{
    return emulated_mask_mov_epi32(src, m, emulated_or_si512(a, b));
}

static inline __m512i emulated_mask_sub_epi16(__m512i src, __mmask32 m, __m512i a, __m512i b)
{
    union emulated r = {src};
    const union emulated x = {emulated_sub_epi16(a, b)};
    for (int i = 0; i < 32; i++)
        r.e16[i] = m >> i & 1 ? x.e16[i] : r.e16[i];
    return r.v;
}

static inline __m512i emulated_maskz_expand_epi32(__mmask16 m, __m512i a)
{
    return emulated_mask_expand_epi32(emulated_setzero(), m, a);
}

/* Shifts by n bits, or by the number in the lower 64 bits of n. */
#define EMULATE_SHIFTS(W)                                                                                              \
    static inline __m512i emulated_srli_epi##W(__m512i a, unsigned n)                                                  \
    {                                                                                                                  \
        union emulated x = {a};                                                                                        \
        for (int i = 0; i < 512 / W; i++)                                                                              \
            x.e##W[i] = (uint##W##_t)(n < W ? x.e##W[i] >> n : 0);                                                     \
        return x.v;                                                                                                    \
    }                                                                                                                  \
    static inline __m512i emulated_srl_epi##W(__m512i a, __m128i n)                                                    \
    {                                                                                                                  \
        const uint64_t by = (uint64_t)_mm_cvtsi128_si64(n);                                                            \
        return emulated_srli_epi##W(a, by < W ? (unsigned)by : W);                                                     \
    }
EMULATE_SHIFTS(16)
EMULATE_SHIFTS(32)
#undef EMULATE_SHIFTS

static inline __m512i emulated_srai_epi16(__m512i a, unsigned n)
{
    union emulated x = {a};
    for (int i = 0; i < 32; i++) {
        const uint16_t signs = x.e16[i] >> 15 ? UINT16_MAX : 0;
        x.e16[i] = n > 15 ? signs : (uint16_t)(x.e16[i] >> n | (signs & ~(UINT16_MAX >> n)));
    }
    return x.v;
}

static inline __m512i emulated_slli_epi32(__m512i a, unsigned n)
{
    union emulated x = {a};
    for (int i = 0; i < 16; i++)
        x.e32[i] = n < 32 ? x.e32[i] << n : 0;
    return x.v;
}

static inline __m512i emulated_permutexvar_epi16(__m512i index, __m512i a)
{
    const union emulated at = {index}, x = {a};
    union emulated r;
    for (int i = 0; i < 32; i++)
        r.e16[i] = x.e16[at.e16[i] & 31];
    return r.v;
}

static inline __m512i emulated_permutexvar_epi32(__m512i index, __m512i a)
{
    const union emulated at = {index}, x = {a};
    union emulated r;
    for (int i = 0; i < 16; i++)
        r.e32[i] = x.e32[at.e32[i] & 15];
    return r.v;
}

static inline __m256i emulated_cvtepi16_epi8(__m512i a)
{
    const union emulated x = {a};
    union emulated r = {.e8 = {0}};
    for (int i = 0; i < 32; i++)
        r.e8[i] = (uint8_t)x.e16[i];
    return r.half[0];
}

static inline __m256i emulated_cvtepi32_epi16(__m512i a)
{
    const union emulated x = {a};
    union emulated r = {.e8 = {0}};
    for (int i = 0; i < 16; i++)
        r.e16[i] = (uint16_t)x.e32[i];
    return r.half[0];
}

static inline __m512i emulated_cvtepu16_epi32(__m256i a)
{
    const union emulated x = {.half = {a}};
    union emulated r;
    for (int i = 0; i < 16; i++)
        r.e32[i] = x.e16[i];
    return r.v;
}

/* Touches no byte that it does not store. */
static inline void emulated_mask_storeu_epi16(void *p, __mmask16 m, __m256i a)
{
    const union emulated x = {.half = {a}};
    for (int i = 0; i < 16; i++)
        if (m >> i & 1)
            memcpy((uint8_t *)p + 2 * i, &x.e16[i], 2);
}

static inline __m512i emulated_castsi256_si512(__m256i a)
{
    union emulated r;
    memset(&r, 0xa5, sizeof r); /* the rest is undefined */
    r.half[0] = a;
    return r.v;
}

static inline __m512i emulated_inserti64x4(__m512i a, __m256i b, int at)
{
    union emulated r = {a};
    r.half[at] = b;
    return r.v;
}

static inline __m512i emulated_setr_epi32(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k,
                                          int l, int m, int n, int o, int p)
{
    const int each[16] = {a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p};
    union emulated r;
    memcpy(&r, each, sizeof each);
    return r.v;
}

/* Registers of 16 floats. */
union emulated_floats {
    __m512 v;
    float f[16];
};

static inline __m512 emulated_cvtepu32_ps(__m512i a)
{
    const union emulated x = {a};
    union emulated_floats r;
    for (int i = 0; i < 16; i++)
        r.f[i] = (float)x.e32[i];
    return r.v;
}

static inline __m512 emulated_cvtepi32_ps(__m512i a)
{
    const union emulated x = {a};
    union emulated_floats r;
    for (int i = 0; i < 16; i++)
        r.f[i] = (float)(int32_t)x.e32[i];
    return r.v;
}

static inline __m512 emulated_div_ps(__m512 a, __m512 b)
{
    union emulated_floats x = {a};
    const union emulated_floats y = {b};
    for (int i = 0; i < 16; i++)
        x.f[i] = x.f[i] / y.f[i];
    return x.v;
}

/* What is too large, negative or no number becomes all ones. */
static inline __m512i emulated_cvttps_epu32(__m512 a)
{
    const union emulated_floats x = {a};
    union emulated r;
    for (int i = 0; i < 16; i++)
        r.e32[i] = x.f[i] > -1 && x.f[i] < 0x1p32f ? (uint32_t)x.f[i] : UINT32_MAX;
    return r.v;
}

#define _mm512_test_epi8_mask emulated_test_epi8_mask
#define _mm512_test_epi16_mask emulated_test_epi16_mask
#define _mm512_test_epi32_mask emulated_test_epi32_mask
#define _mm512_test_epi64_mask emulated_test_epi64_mask
#define _mm512_add_epi8 emulated_add_epi8
#define _mm512_add_epi16 emulated_add_epi16
#define _mm512_set1_epi8 emulated_set1_epi8
#define _mm512_shuffle_epi8 emulated_shuffle_epi8
#undef _mm512_srli_epi64
#define _mm512_srli_epi64 emulated_srli_epi64
#define _mm512_sad_epu8 emulated_sad_epu8
#define _mm512_mask_add_epi8 emulated_mask_add_epi8
#define _mm512_mask_add_epi16 emulated_mask_add_epi16
#define _mm512_mask_add_epi32 emulated_mask_add_epi32
#define _mm512_mask_add_epi64 emulated_mask_add_epi64
#define _mm512_mask_compress_epi8 emulated_mask_compress_epi8
#define _mm512_mask_compress_epi16 emulated_mask_compress_epi16
#define _mm512_mask_compress_epi32 emulated_mask_compress_epi32
#define _mm512_mask_compress_epi64 emulated_mask_compress_epi64
#define _mm512_mask_expand_epi8 emulated_mask_expand_epi8
#define _mm512_mask_expand_epi16 emulated_mask_expand_epi16
#define _mm512_mask_expand_epi32 emulated_mask_expand_epi32
#define _mm512_mask_expand_epi64 emulated_mask_expand_epi64
#define _mm512_unpacklo_epi8(a, b) emulated_unpack_epi8(a, b, 0)
#define _mm512_unpackhi_epi8(a, b) emulated_unpack_epi8(a, b, 1)
#define _mm512_unpacklo_epi16(a, b) emulated_unpack_epi16(a, b, 0)
#define _mm512_unpackhi_epi16(a, b) emulated_unpack_epi16(a, b, 1)
#define _mm512_unpacklo_epi32(a, b) emulated_unpack_epi32(a, b, 0)
#define _mm512_unpackhi_epi32(a, b) emulated_unpack_epi32(a, b, 1)
#define _mm512_unpacklo_epi64(a, b) emulated_unpack_epi64(a, b, 0)
#define _mm512_unpackhi_epi64(a, b) emulated_unpack_epi64(a, b, 1)
#define _mm512_loadu_si512 emulated_load
#define _mm512_storeu_si512 emulated_store
#define _mm512_stream_si512 emulated_stream
#define _mm512_set1_epi16 emulated_set1_epi16
#define _mm512_set1_epi32 emulated_set1_epi32
#define _mm512_setzero_si512 emulated_setzero
#undef _mm512_slli_epi16
#define _mm512_slli_epi16 emulated_slli_epi16
#define _mm512_cvtepu8_epi16 emulated_cvtepu8_epi16
#define _mm512_mask_cvtepu8_epi16 emulated_mask_cvtepu8_epi16
#define _mm512_set1_epi64 emulated_set1_epi64
#define _mm512_sub_epi64 emulated_sub_epi64
#define _mm512_sllv_epi64 emulated_sllv_epi64
#define _mm256_maskz_loadu_epi8 emulated_maskz_loadu_epi8
#undef _mm256_mask_cmple_epu8_mask
#define _mm256_mask_cmple_epu8_mask emulated_mask_cmple_epu8_mask
#define _mm512_castsi128_si512 emulated_castsi128_si512
#undef _mm512_inserti32x4
#define _mm512_inserti32x4 emulated_inserti32x4
#undef _mm512_extracti64x4_epi64
#define _mm512_extracti64x4_epi64 emulated_extracti64x4_epi64
#define _mm512_min_epi16 emulated_min_epi16
#define _mm512_min_epi32 emulated_min_epi32
#define _mm512_min_epi64 emulated_min_epi64
#define _mm512_max_epi16 emulated_max_epi16
#define _mm512_max_epi32 emulated_max_epi32
#define _mm512_max_epi64 emulated_max_epi64
#define _mm512_mul_epu32 emulated_mul_epu32
#undef _mm512_rol_epi32
#define _mm512_rol_epi32 emulated_rol_epi32
#undef _mm512_shuffle_epi32
#define _mm512_shuffle_epi32 emulated_shuffle_epi32
#undef _mm512_shuffle_i64x2
#define _mm512_shuffle_i64x2 emulated_shuffle_i64x2
#undef _mm512_add_epi32
#define _mm512_add_epi32 emulated_add_epi32
#undef _mm512_and_si512
#define _mm512_and_si512 emulated_and_si512
#undef _mm512_or_si512
#define _mm512_or_si512 emulated_or_si512
#undef _mm512_xor_si512
#define _mm512_xor_si512 emulated_xor_si512
#undef _mm512_sub_epi16
#define _mm512_sub_epi16 emulated_sub_epi16
#undef _mm512_sub_epi32
#define _mm512_sub_epi32 emulated_sub_epi32
#undef _mm512_subs_epu16
#define _mm512_subs_epu16 emulated_subs_epu16
#undef _mm512_min_epu16
#define _mm512_min_epu16 emulated_min_epu16
#undef _mm512_mullo_epi32
#define _mm512_mullo_epi32 emulated_mullo_epi32
#undef _mm512_abs_epi16
#define _mm512_abs_epi16 emulated_abs_epi16
#undef _mm512_cmpeq_epi16_mask
#define _mm512_cmpeq_epi16_mask emulated_cmpeq_epi16_mask
#undef _mm512_cmpneq_epi16_mask
#define _mm512_cmpneq_epi16_mask emulated_cmpneq_epi16_mask
#undef _mm512_cmpneq_epi32_mask
#define _mm512_cmpneq_epi32_mask emulated_cmpneq_epi32_mask
#undef _mm512_cmpgt_epu16_mask
#define _mm512_cmpgt_epu16_mask emulated_cmpgt_epu16_mask
#undef _mm512_cmpge_epu32_mask
#define _mm512_cmpge_epu32_mask emulated_cmpge_epu32_mask
#undef _mm512_cmplt_epu32_mask
#define _mm512_cmplt_epu32_mask emulated_cmplt_epu32_mask
#undef _mm512_cmplt_epi32_mask
#define _mm512_cmplt_epi32_mask emulated_cmplt_epi32_mask
#undef _mm512_movepi16_mask
#define _mm512_movepi16_mask emulated_movepi16_mask
#undef _mm512_mask_mov_epi32
#define _mm512_mask_mov_epi32 emulated_mask_mov_epi32
#undef _mm512_mask_sub_epi32
#define _mm512_mask_sub_epi32 emulated_mask_sub_epi32
#undef _mm512_mask_or_epi32
#define _mm512_mask_or_epi32 emulated_mask_or_epi32
#undef _mm512_mask_sub_epi16
#define _mm512_mask_sub_epi16 emulated_mask_sub_epi16
#undef _mm512_maskz_expand_epi32
#define _mm512_maskz_expand_epi32 emulated_maskz_expand_epi32
#undef _mm512_srli_epi16
#define _mm512_srli_epi16 emulated_srli_epi16
#undef _mm512_srli_epi32
#define _mm512_srli_epi32 emulated_srli_epi32
#undef _mm512_srl_epi16
#define _mm512_srl_epi16 emulated_srl_epi16
#undef _mm512_srl_epi32
#define _mm512_srl_epi32 emulated_srl_epi32
#undef _mm512_srai_epi16
#define _mm512_srai_epi16 emulated_srai_epi16
#undef _mm512_slli_epi32
#define _mm512_slli_epi32 emulated_slli_epi32
#undef _mm512_permutexvar_epi16
#define _mm512_permutexvar_epi16 emulated_permutexvar_epi16
#undef _mm512_permutexvar_epi32
#define _mm512_permutexvar_epi32 emulated_permutexvar_epi32
#undef _mm512_cvtepi16_epi8
#define _mm512_cvtepi16_epi8 emulated_cvtepi16_epi8
#undef _mm512_cvtepi32_epi16
#define _mm512_cvtepi32_epi16 emulated_cvtepi32_epi16
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32 emulated_cvtepu16_epi32
#undef _mm512_castsi256_si512
#define _mm512_castsi256_si512 emulated_castsi256_si512
#undef _mm512_inserti64x4
#define _mm512_inserti64x4 emulated_inserti64x4
#undef _mm512_setr_epi32
#define _mm512_setr_epi32 emulated_setr_epi32
#undef _mm512_cvtepu32_ps
#define _mm512_cvtepu32_ps emulated_cvtepu32_ps
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps emulated_cvtepi32_ps
#undef _mm512_div_ps
#define _mm512_div_ps emulated_div_ps
#undef _mm512_cvttps_epu32
#define _mm512_cvttps_epu32 emulated_cvttps_epu32
#define _mm256_mask_storeu_epi16 emulated_mask_storeu_epi16

/* A cast between types of one register: no instruction. */
static inline __m256i emulated_castsi512_si256(__m512i a)
{
    return emulated_extracti64x4_epi64(a, 0);
}
#define _mm512_castsi512_si256 emulated_castsi512_si256

#endif
