/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Kernels for AVX2 with BMI1, BMI2 and POPCNT. */
#include "cpu/kernels.h"

#if PICI_HAVE_X86
#include <immintrin.h>
#include <string.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,bmi,bmi2,popcnt"))), apply_to = function)
#else
#pragma GCC target("avx2,bmi,bmi2,popcnt")
#endif

typedef void emit_fn(uint8_t *p, __m256i v);

static inline void stream_store(uint8_t *p, __m256i v)
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
        stream_store(dst, a);
        stream_store(dst + 32, b);
    }
}

static inline __attribute__((always_inline)) uint64_t row_mask_64(const uint8_t *p, int by_value)
{
    uint64_t zeros = 0;
    for (int i = 0; i < 16; i++) {
        const __m256i v = load(p + 32 * i), all = by_value ? _mm256_and_si256(v, _mm256_set1_epi64x(INT64_MAX)) : v;
        const __m256i z = _mm256_cmpeq_epi64(all, _mm256_setzero_si256());
        zeros |= (uint64_t)(unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(z)) << 4 * i;
    }
    return ~zeros;
}

static inline __m256i swap_lanes(__m256i v, size_t bytes)
{
    switch (bytes) {
    case 16: return _mm256_permute2x128_si256(v, v, 1);
    case 8: return _mm256_shuffle_epi32(v, 0x4e);
    case 4: return _mm256_shuffle_epi32(v, 0xb1);
    default: return _mm256_or_si256(_mm256_slli_epi32(v, 16), _mm256_srli_epi32(v, 16));
    }
}

#define NONEMPTY(word) row_mask_64((const uint8_t *)(word), 0)
#ifdef __x86_64__
#define CTZ64_OR_ANY(w) ((unsigned)_tzcnt_u64(w)) /* 64 for zero */
#endif
#define POPCOUNT64(w) ((unsigned)__builtin_popcountll(w))
#define STREAM_LINES stream_lines
#define STREAM_FENCE _mm_sfence
#define STAGE_BYTES 256
#define VECTOR_BYTES 32
#define VEC __m256i
#define ANY_SET(v) (!_mm256_testz_si256((__m256i)(v), (__m256i)(v)))
#define GREATER_OF_16(a, b) _mm256_max_epi16((__m256i)(a), (__m256i)(b))
#define LESSER_OF_16(a, b) _mm256_min_epi16((__m256i)(a), (__m256i)(b))
#define GREATER_OF_32(a, b) _mm256_max_epi32((__m256i)(a), (__m256i)(b))
#define LESSER_OF_32(a, b) _mm256_min_epi32((__m256i)(a), (__m256i)(b))
#define SWAP_LANES(v, bytes) swap_lanes((__m256i)(v), bytes)
#define MUL_WIDE(a, b) _mm256_mul_epu32((__m256i)(a), (__m256i)(b))
#define VEC_OP(name) _mm256_##name
#include "cpu/common.inc"

#define UNROLL_PACK

/* AVX2 has no instruction that compresses or expands. A table gives the permutation for each mask of eight elements
 * (of 64 bits: four). Compressing stores all eight; the next eight overwrite those that were not selected. */

static inline __m128i lut(const uint64_t *table, unsigned m)
{
    return _mm_loadl_epi64((const __m128i *)&table[m]);
}

/* Indices of the bytes of 16-bit elements, from indices of elements: 0x80 stays out of range, so that it gives zero. */
static inline __m128i pairs_8(__m128i place)
{
    __m128i even = _mm_adds_epu8(place, place);
    return _mm_unpacklo_epi8(even, _mm_or_si128(even, _mm_set1_epi8(1)));
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
    for (int h = 0; h < 2; h++) {
        __m128i eight[4];
        UNROLL
        for (int i = 0; i < 4; i++, word >>= 8) {
            __m128i v = _mm_loadl_epi64((const __m128i *)values);
            eight[i] = _mm_shuffle_epi8(v, lut(lut_expand, word & 0xff));
            values += POPCOUNT64(word & 0xff);
        }
        column[h] = _mm256_set_m128i(_mm_unpacklo_epi64(eight[2], eight[3]), _mm_unpacklo_epi64(eight[0], eight[1]));
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
    for (int h = 0; h < 4; h++) {
        __m128i eight[2];
        UNROLL
        for (int i = 0; i < 2; i++, word >>= 8) {
            __m128i v = _mm_loadu_si128((const __m128i *)values);
            eight[i] = _mm_shuffle_epi8(v, pairs_8(lut(lut_expand, word & 0xff)));
            values += 2 * POPCOUNT64(word & 0xff);
        }
        column[h] = _mm256_set_m128i(eight[1], eight[0]);
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
        __m256i place = _mm256_cvtepu8_epi32(lut(lut_sign, word & 0xff));
        column[i] = _mm256_sign_epi32(_mm256_permutevar8x32_epi32(load(values), place), place);
        values += 4 * POPCOUNT64(word & 0xff);
    }
    return values;
}

static inline uint8_t *compress_column_64(uint8_t *out, const __m256i column[16], uint64_t word)
{
    for (int i = 0; i < 16; i++, word >>= 4) {
        __m256i place = _mm256_cvtepu8_epi32(lut(lut_compress_pair, word & 0xf));
        store(out, _mm256_permutevar8x32_epi32(column[i], place));
        out += 8 * POPCOUNT64(word & 0xf);
    }
    return out;
}

static inline const uint8_t *expand_column_64(__m256i column[16], const uint8_t *values, uint64_t word)
{
    for (int i = 0; i < 16; i++, word >>= 4) {
        __m256i place = _mm256_cvtepu8_epi32(lut(lut_sign_pair, word & 0xf));
        column[i] = _mm256_sign_epi32(_mm256_permutevar8x32_epi32(load(values), place), place);
        values += 8 * POPCOUNT64(word & 0xf);
    }
    return values;
}

/* ---- which elements are nonzero: masks of rows, and words of columns ---- */

/* Narrow a row of 64 elements to 64 bytes, which are zero exactly where the elements are: packing saturates, but no
 * nonzero becomes zero. The bytes are in the order of the packing instructions; a places_fn restores that of the
 * elements. */
typedef void row_bytes_fn(__m256i bytes[2], const uint8_t *row, int by_value);
typedef __m256i places_fn(__m256i bytes);

/* Load a register of elements; by value, without their signs. */
#define LOAD(BITS, p, by_value)                                                                                        \
    ((by_value) ? _mm256_and_si256(load(p), _mm256_set1_epi##BITS(INT##BITS##_MAX)) : load(p))

static inline __attribute__((always_inline)) void row_bytes_8(__m256i bytes[2], const uint8_t *row, int by_value)
{
    bytes[0] = LOAD(8, row, by_value);
    bytes[1] = LOAD(8, row + 32, by_value);
}

static inline __m256i places_8(__m256i bytes)
{
    return bytes;
}

static inline __attribute__((always_inline)) void row_bytes_16(__m256i bytes[2], const uint8_t *row, int by_value)
{
    for (int i = 0; i < 2; i++, row += 64)
        bytes[i] = _mm256_packs_epi16(LOAD(16, row, by_value), LOAD(16, row + 32, by_value));
}

static inline __m256i places_16(__m256i bytes)
{
    return _mm256_permute4x64_epi64(bytes, 0xd8);
}

static inline __attribute__((always_inline)) void row_bytes_32(__m256i bytes[2], const uint8_t *row, int by_value)
{
    for (int i = 0; i < 2; i++, row += 128)
        bytes[i] = _mm256_packs_epi16(_mm256_packs_epi32(LOAD(32, row, by_value), LOAD(32, row + 32, by_value)),
                                      _mm256_packs_epi32(LOAD(32, row + 64, by_value), LOAD(32, row + 96, by_value)));
}

static inline __m256i places_32(__m256i bytes)
{
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Bit i of 32: byte i of v is not zero. */
static inline uint64_t nonzero_8(__m256i v)
{
    return (uint32_t)~_mm256_movemask_epi8(_mm256_cmpeq_epi8(v, _mm256_setzero_si256()));
}

#define ROW(BITS)                                                                                                      \
    static inline __attribute__((always_inline)) uint64_t row_mask_##BITS(const uint8_t *row, int by_value)            \
    {                                                                                                                  \
        __m256i bytes[2];                                                                                              \
        row_bytes_##BITS(bytes, row, by_value);                                                                        \
        return nonzero_8(places_##BITS(bytes[0])) | nonzero_8(places_##BITS(bytes[1])) << 32;                          \
    }
ROW(8)
ROW(16)
ROW(32)

/* The column words of a tile: eight rows become a byte for each column, and eight of these bytes its word. */
static inline __attribute__((always_inline)) void columns_by_bytes(uint64_t word[TILE_COLS], const uint8_t *tile,
                                                                   int early, int by_value, size_t width,
                                                                   row_bytes_fn *row_bytes, places_fn *places)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i part[2][8];
    for (int g = 0; g < 8; g++) {
        __m256i gathered[2] = {zero, zero}, bit = _mm256_set1_epi8(1);
        UNROLL
        for (int i = 0; i < 8; i++, tile += TILE_COLS * width, bit = _mm256_add_epi8(bit, bit)) {
            __m256i bytes[2];
            if (early)
                PREFETCH_ROW((uintptr_t)tile + TILE / 2 * width, width);
            row_bytes(bytes, tile, by_value);
            for (int h = 0; h < 2; h++)
                gathered[h] = _mm256_or_si256(gathered[h], _mm256_andnot_si256(_mm256_cmpeq_epi8(bytes[h], zero), bit));
        }
        part[0][g] = places(gathered[0]);
        part[1][g] = places(gathered[1]);
    }
    for (int h = 0; h < 2; h++, word += TILE_COLS / 2) {
        __m256i pair[8], four[8];
        for (int i = 0; i < 4; i++) { /* columns 0 to 7 of each 16, then 8 to 15 */
            pair[i] = _mm256_unpacklo_epi8(part[h][2 * i], part[h][2 * i + 1]);
            pair[4 + i] = _mm256_unpackhi_epi8(part[h][2 * i], part[h][2 * i + 1]);
        }
        for (int i = 0; i < 8; i += 2) {
            four[i] = _mm256_unpacklo_epi16(pair[i], pair[i + 1]);
            four[i + 1] = _mm256_unpackhi_epi16(pair[i], pair[i + 1]);
        }
        for (int i = 0; i < 8; i++) { /* two columns, and the two that are 16 further */
            const __m256i *f = &four[i / 4 * 4 + i / 2 % 2];
            __m256i v = i % 2 ? _mm256_unpackhi_epi32(f[0], f[2]) : _mm256_unpacklo_epi32(f[0], f[2]);
            _mm_storeu_si128((__m128i *)(word + 2 * i), _mm256_castsi256_si128(v));
            _mm_storeu_si128((__m128i *)(word + 16 + 2 * i), _mm256_extracti128_si256(v, 1));
        }
    }
}

#define COLUMNS(BITS, word, tile, early, by_value)                                                                     \
    columns_by_bytes(word, tile, early, by_value, BITS / 8, row_bytes_##BITS, places_##BITS)

#define PACK_MANY 750
#define UNPACK_MANY 300
#define BITS 8
#define LIST_MANY LIST_MOST /* always by the list: expanding narrow elements takes longer */
#define ROW_MASK row_mask_8
#define TILE_COLUMNS(word, tile, early, by_value) COLUMNS(8, word, tile, early, by_value)
#include "cpu/elements.inc"
#include "cpu/many.inc"
#include "cpu/move.inc"

#define BITS 16
#define LIST_MANY LIST_MOST
#define ROW_MASK row_mask_16
#define TILE_COLUMNS(word, tile, early, by_value) COLUMNS(16, word, tile, early, by_value)
#include "cpu/elements.inc"
#include "cpu/many.inc"
#include "cpu/move.inc"

#define BITS 32
#define ROW_MASK row_mask_32
#define TILE_COLUMNS(word, tile, early, by_value) COLUMNS(32, word, tile, early, by_value)
#include "cpu/elements.inc"
#include "cpu/many.inc"
#include "cpu/move.inc"

#define BITS 64
#define ROW_MASK row_mask_64
#include "cpu/elements.inc"
#include "cpu/many.inc"
#include "cpu/move.inc"

#ifdef __x86_64__
#define PEXT64 _pext_u64
#define PDEP64 _pdep_u64
#endif
#include "cpu/small_avx2.inc"

#define ADD_MANY 270
#define ISA_TABLE pici_isa_avx2
#define ISA_NAME "avx2"
#include "cpu/table.inc"

#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
