/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Kernels for AVX2 with BMI1, BMI2 and POPCNT. */
#include "cpu/kernels.h"

#if PICI_HAVE_X86
#include <immintrin.h>
#include <string.h>

#include "cpu/luts.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,bmi,bmi2,popcnt"))), apply_to = function)
#else
#pragma GCC target("avx2,bmi,bmi2,popcnt")
#endif

typedef void emit_fn(uint8_t *p, __m256i v);

static inline void stream(uint8_t *p, __m256i v)
{
    _mm256_stream_si256((__m256i *)p, v);
}

static inline void store(uint8_t *p, __m256i v)
{
    _mm256_storeu_si256((__m256i *)p, v);
}

static inline __m256i load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline __m256i lanes_load(const uint8_t *p, size_t apart)
{
    __m128i low = _mm_loadu_si128((const __m128i *)p), high = _mm_loadu_si128((const __m128i *)(p + apart));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

static inline void stream_lines(uint8_t *dst, const uint8_t *src, size_t lines)
{
    for (; lines; lines--, dst += 64, src += 64) {
        __m256i a = load(src), b = load(src + 32);
        stream(dst, a);
        stream(dst + 32, b);
    }
}

static inline uint64_t row_mask_64(const uint8_t *p)
{
    uint64_t zeros = 0;
    for (int i = 0; i < 16; i++) {
        __m256i z = _mm256_cmpeq_epi64(load(p + 32 * i), _mm256_setzero_si256());
        zeros |= (uint64_t)(unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(z)) << 4 * i;
    }
    return ~zeros;
}

#define NONEMPTY(word) row_mask_64((const uint8_t *)(word))
#ifdef __x86_64__
#define CTZ64_OR_ANY(w) ((unsigned)_tzcnt_u64(w)) /* 64 for zero */
#endif
#define POPCOUNT64(w) ((unsigned)__builtin_popcountll(w))
#define STREAM_LINES stream_lines
#define STREAM_FENCE _mm_sfence
#define STAGE_BYTES 256
#define VECTOR_BYTES 32
#define VEC __m256i
#define VEC_OP(name) _mm256_##name
#include "cpu/common.inc"

#define UNROLL_PACK

/* AVX2 cannot compress or expand: a table tells which of eight rows (of 64 bits: four) go where. Compressing writes the
 * whole eight, of which the next eight overwrite what is not wanted. */

static inline __m128i lut(const uint64_t table[256], unsigned m)
{
    return _mm_loadl_epi64((const __m128i *)&table[m]);
}

/* Places of 16 bits, from places of 8: 0x80 stays out of range. */
static inline __m128i pairs_8(__m128i place)
{
    __m128i even = _mm_adds_epu8(place, place);
    return _mm_unpacklo_epi8(even, _mm_or_si128(even, _mm_set1_epi8(1)));
}

/* Places of 64 bits as pairs of places of 32, from places of 8; what was 0x80 is negative in *place. */
static inline __m256i pairs_32(__m128i place8, __m256i *place)
{
    *place = _mm256_cvtepi8_epi64(place8);
    __m256i even = _mm256_add_epi64(*place, *place);
    return _mm256_or_si256(even, _mm256_slli_epi64(_mm256_add_epi64(even, _mm256_set1_epi64x(1)), 32));
}

static inline uint8_t *compress_column_8(uint8_t *out, const __m256i column[2], uint64_t word)
{
    const uint8_t *rows = (const uint8_t *)column;
    for (int r = 0; r < TILE_ROWS; r += 8, word >>= 8) {
        __m128i v = _mm_loadl_epi64((const __m128i *)(rows + r));
        _mm_storel_epi64((__m128i *)out, _mm_shuffle_epi8(v, lut(lut_compress, word & 0xff)));
        out += POPCOUNT64(word & 0xff);
    }
    return out;
}

static inline const uint8_t *expand_column_8(__m256i column[2], const uint8_t *values, uint64_t word)
{
    uint8_t *rows = (uint8_t *)column;
    for (int r = 0; r < TILE_ROWS; r += 8, word >>= 8) {
        __m128i v = _mm_loadl_epi64((const __m128i *)values);
        _mm_storel_epi64((__m128i *)(rows + r), _mm_shuffle_epi8(v, lut(lut_expand, word & 0xff)));
        values += POPCOUNT64(word & 0xff);
    }
    return values;
}

static inline uint8_t *compress_column_16(uint8_t *out, const __m256i column[4], uint64_t word)
{
    const uint8_t *rows = (const uint8_t *)column;
    for (int r = 0; r < TILE_ROWS; r += 8, word >>= 8) {
        __m128i v = _mm_loadu_si128((const __m128i *)(rows + 2 * r));
        _mm_storeu_si128((__m128i *)out, _mm_shuffle_epi8(v, pairs_8(lut(lut_compress, word & 0xff))));
        out += 2 * POPCOUNT64(word & 0xff);
    }
    return out;
}

static inline const uint8_t *expand_column_16(__m256i column[4], const uint8_t *values, uint64_t word)
{
    uint8_t *rows = (uint8_t *)column;
    for (int r = 0; r < TILE_ROWS; r += 8, word >>= 8) {
        __m128i v = _mm_loadu_si128((const __m128i *)values);
        _mm_storeu_si128((__m128i *)(rows + 2 * r), _mm_shuffle_epi8(v, pairs_8(lut(lut_expand, word & 0xff))));
        values += 2 * POPCOUNT64(word & 0xff);
    }
    return values;
}

static inline uint8_t *compress_column_32(uint8_t *out, const __m256i column[8], uint64_t word)
{
    for (int i = 0; i < 8; i++, word >>= 8) {
        __m256i place = _mm256_cvtepu8_epi32(lut(lut_compress, word & 0xff));
        store(out, _mm256_permutevar8x32_epi32(column[i], place));
        out += 4 * POPCOUNT64(word & 0xff);
    }
    return out;
}

static inline const uint8_t *expand_column_32(__m256i column[8], const uint8_t *values, uint64_t word)
{
    for (int i = 0; i < 8; i++, word >>= 8) {
        __m256i place = _mm256_cvtepi8_epi32(lut(lut_expand, word & 0xff));
        __m256 v = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(load(values), place));
        v = _mm256_blendv_ps(v, _mm256_setzero_ps(), _mm256_castsi256_ps(place));
        column[i] = _mm256_castps_si256(v);
        values += 4 * POPCOUNT64(word & 0xff);
    }
    return values;
}

static inline uint8_t *compress_column_64(uint8_t *out, const __m256i column[16], uint64_t word)
{
    for (int i = 0; i < 16; i++, word >>= 4) {
        __m256i place, pairs = pairs_32(lut(lut_compress, word & 0xf), &place);
        store(out, _mm256_permutevar8x32_epi32(column[i], pairs));
        out += 8 * POPCOUNT64(word & 0xf);
    }
    return out;
}

static inline const uint8_t *expand_column_64(__m256i column[16], const uint8_t *values, uint64_t word)
{
    for (int i = 0; i < 16; i++, word >>= 4) {
        __m256i place, pairs = pairs_32(lut(lut_expand, word & 0xf), &place);
        __m256d v = _mm256_castsi256_pd(_mm256_permutevar8x32_epi32(load(values), pairs));
        column[i] = _mm256_castpd_si256(_mm256_blendv_pd(v, _mm256_setzero_pd(), _mm256_castsi256_pd(place)));
        values += 8 * POPCOUNT64(word & 0xf);
    }
    return values;
}

/* 32 bits, of the bytes of v that are not zero. */
static inline uint64_t nonzero_8(__m256i v)
{
    return (uint32_t)~_mm256_movemask_epi8(_mm256_cmpeq_epi8(v, _mm256_setzero_si256()));
}

static inline uint64_t row_mask_8(const uint8_t *p)
{
    return nonzero_8(load(p)) | nonzero_8(load(p + 32)) << 32;
}

static inline uint64_t row_mask_16(const uint8_t *p)
{
    uint64_t mask = 0;
    for (int i = 0; i < 2; i++, p += 64) {
        __m256i zero = _mm256_setzero_si256();
        __m256i a = _mm256_cmpeq_epi16(load(p), zero), b = _mm256_cmpeq_epi16(load(p + 32), zero);
        __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0xd8);
        mask |= (uint64_t)(uint32_t)~_mm256_movemask_epi8(both) << 32 * i;
    }
    return mask;
}

static inline uint64_t row_mask_32(const uint8_t *p)
{
    uint64_t zeros = 0;
    for (int i = 0; i < 8; i++) {
        __m256i z = _mm256_cmpeq_epi32(load(p + 32 * i), _mm256_setzero_si256());
        zeros |= (uint64_t)(unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(z)) << 8 * i;
    }
    return ~zeros;
}

#define PACK_MANY 750
#define UNPACK_MANY 150
#define BITS 8
#define LIST_MANY LIST_MOST /* expanding narrow elements takes longer */
#define ROW_MASK row_mask_8
#include "cpu/many.inc"
#include "cpu/move.inc"

#define BITS 16
#define LIST_MANY LIST_MOST
#define ROW_MASK row_mask_16
#include "cpu/many.inc"
#include "cpu/move.inc"

#define BITS 32
#define ROW_MASK row_mask_32
#include "cpu/many.inc"
#include "cpu/move.inc"

#define BITS 64
#define ROW_MASK row_mask_64
#include "cpu/many.inc"
#include "cpu/move.inc"

#define ADD_MANY 270
#define ISA_TABLE pici_isa_avx2
#define ISA_NAME "avx2"
#include "cpu/table.inc"

#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
