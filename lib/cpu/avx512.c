/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Kernels for AVX-512 (F, BW, VL, VBMI2) with what AVX2's kernels need. */
#include "cpu/kernels.h"

#if PICI_HAVE_X86
#include <immintrin.h>
#include <string.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi2,avx2,bmi,bmi2,popcnt"))),    \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512vbmi2,avx2,bmi,bmi2,popcnt")
#endif

typedef void emit_fn(uint8_t *p, __m512i v);

static inline void stream_store(uint8_t *p, __m512i v)
{
    _mm512_stream_si512((void *)p, v);
}

static inline void store(uint8_t *p, __m512i v)
{
    _mm512_storeu_si512(p, v);
}

static inline __m512i load(const void *p)
{
    return _mm512_loadu_si512(p);
}

/* Inserting lanes from memory does not need the one port that shuffles 512 bits. */
static inline __m512i lanes_load(const uint8_t *p, size_t apart)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)p));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(p + apart)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(p + 2 * apart)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(p + 3 * apart)), 3);
}

static inline void stream_lines(uint8_t *dst, const uint8_t *src, size_t lines)
{
    for (; lines; lines--, dst += 64, src += 64)
        stream_store(dst, load(src));
}

/* The lanes of v that are nonzero; by value, all bits but the sign are tested. */
#define NONZERO(BITS, v, by_value)                                                                                     \
    _mm512_test_epi##BITS##_mask(v, (by_value) ? _mm512_set1_epi##BITS(INT##BITS##_MAX) : (v))

/* Bit i: element i of the 64 at p is nonzero. */
#define ROW(BITS)                                                                                                      \
    static inline __attribute__((always_inline)) uint64_t row_mask_##BITS(const uint8_t *p, int by_value)              \
    {                                                                                                                  \
        uint64_t mask = 0;                                                                                             \
        for (int i = 0; i < BITS / 8; i++)                                                                             \
            mask |= (uint64_t)NONZERO(BITS, load(p + 64 * i), by_value) << (i * 512 / BITS % 64);                      \
        return mask;                                                                                                   \
    }
ROW(8)
ROW(16)
ROW(32)
ROW(64)

#define NONEMPTY(word) row_mask_64((const uint8_t *)(word), 0)

static inline __m512i swap_lanes(__m512i v, size_t bytes)
{
    switch (bytes) {
    case 32: return _mm512_shuffle_i64x2(v, v, 0x4e);
    case 16: return _mm512_shuffle_i64x2(v, v, 0xb1);
    case 8: return _mm512_shuffle_epi32(v, (_MM_PERM_ENUM)0x4e);
    case 4: return _mm512_shuffle_epi32(v, (_MM_PERM_ENUM)0xb1);
    default: return _mm512_rol_epi32(v, 16);
    }
}

/* List the indices of the bits set in word, plus first, a byte each. Always writes 64 bytes. */
static inline void word_bytes(uint8_t *out, uint64_t word, uint8_t first)
{
    uint8_t numbers[64];
    for (int i = 0; i < 64; i++)
        numbers[i] = (uint8_t)i;
    const __m512i bits = load(numbers);
    store(out, _mm512_add_epi8(_mm512_mask_compress_epi8(bits, word, bits), _mm512_set1_epi8((char)first)));
}
#define WORDS_MANY 200 /* nonzeros of a tile from which that is faster than one bit at a time */

#define POPCOUNT64(w) ((unsigned)__builtin_popcountll(w))
#define STREAM_LINES stream_lines
#define STREAM_FENCE _mm_sfence
#define STAGE_BYTES 256
#define HAVE_TILE_OFFSETS
#define VECTOR_BYTES 64
#define VEC __m512i
#define ANY_SET(v) (_mm512_test_epi64_mask((__m512i)(v), (__m512i)(v)) != 0)
#define GREATER_OF_16(a, b) _mm512_max_epi16((__m512i)(a), (__m512i)(b))
#define LESSER_OF_16(a, b) _mm512_min_epi16((__m512i)(a), (__m512i)(b))
#define GREATER_OF_32(a, b) _mm512_max_epi32((__m512i)(a), (__m512i)(b))
#define LESSER_OF_32(a, b) _mm512_min_epi32((__m512i)(a), (__m512i)(b))
#define GREATER_OF_64(a, b) _mm512_max_epi64((__m512i)(a), (__m512i)(b))
#define LESSER_OF_64(a, b) _mm512_min_epi64((__m512i)(a), (__m512i)(b))
#define SWAP_LANES(v, bytes) swap_lanes((__m512i)(v), bytes)
#define MUL_WIDE(a, b) _mm512_mul_epu32((__m512i)(a), (__m512i)(b))
#define VEC_OP(name) _mm512_##name
#include "cpu/common.inc"

/* List the offsets of the bits of column words: compress the row numbers of each column, and widen them to offsets.
 * Writes 32 offsets for a column of up to 32 nonzeros, and 64 for others. q: prefetch one line with each column. l:
 * copy two lines with each. */
static inline void tile_offsets(uint16_t *list, const uint64_t word[TILE_COLS], unsigned n, struct prefetch_queue *q,
                                struct stream_queue *l)
{
    uint8_t numbers[64];
    (void)n;
    for (int i = 0; i < 64; i++)
        numbers[i] = (uint8_t)i;
    const __m512i rows = load(numbers);
    for (uint64_t columns = NONEMPTY(word); columns; columns &= columns - 1) {
        const unsigned c = (unsigned)__builtin_ctzll(columns), k = (unsigned)__builtin_popcountll(word[c]);
        __m512i some = _mm512_mask_compress_epi8(rows, word[c], rows), column = _mm512_set1_epi16((short)c);
        __m512i low = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(some));
        store((uint8_t *)list, _mm512_add_epi16(_mm512_slli_epi16(low, 6), column));
        if (k > 32) {
            __m512i high = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(some, 1));
            store((uint8_t *)(list + 32), _mm512_add_epi16(_mm512_slli_epi16(high, 6), column));
        }
        list += k;
        if (q)
            prefetch_one(q);
        stream_some(l, 2);
    }
}

/* list_words of tiles.inc, straight from the list's bytes. A buffer that is loaded in other pieces than it was
 * stored in would wait for all earlier non-temporal stores. 32 offsets at a time, in any order, set their bits in
 * four words. */
#define HAVE_LIST_WORDS
static inline int list_words(uint64_t word[TILE_COLS], const struct pici_tile *t)
{
    const __m512i zero = _mm512_setzero_si512(), none = _mm512_set1_epi8(-1), one = _mm512_set1_epi64(1),
                  low = _mm512_set1_epi64(0xffff);
    const uint8_t *p = t->payload + RUNS;
    uint8_t count[RUNS]; /* read once, as in list_unpack8 */
    uint32_t falls = 0;
    memcpy(count, t->payload, RUNS);
    if (t->container != TILE_OFFSETS8 || !counts_sum(count, t->n))
        return 0;
    for (unsigned run = 0; run < RUNS; run++, word += RUN / 64) {
        const unsigned k = count[run];
        __m512i w[RUN / 64] = {zero, zero, zero, zero};
        for (unsigned i = 0; i < k; i += 32) {
            const uint32_t here = _bzhi_u32(UINT32_MAX, k - i), next = _bzhi_u32(UINT32_MAX, k - i - 1);
            const __m256i at = _mm256_maskz_loadu_epi8(here, p + i), after = _mm256_maskz_loadu_epi8(next, p + i + 1);
            falls |= _mm256_mask_cmple_epu8_mask(next, after, at);
            __m512i four = _mm512_mask_cvtepu8_epi16(none, here, at);
            UNROLL
            for (int g = 0; g < 4; g++, four = _mm512_srli_epi64(four, 16)) {
                const __m512i offset = four & low;
                UNROLL
                for (int j = 0; j < RUN / 64; j++) /* a shift by 64 or more gives 0 */
                    w[j] |= _mm512_sllv_epi64(one, _mm512_sub_epi64(offset, _mm512_set1_epi64(64 * j)));
            }
        }
        p += k;
        const __m512i a = _mm512_unpacklo_epi64(w[0], w[1]) | _mm512_unpackhi_epi64(w[0], w[1]);
        const __m512i b = _mm512_unpacklo_epi64(w[2], w[3]) | _mm512_unpackhi_epi64(w[2], w[3]);
        const __m256i c = _mm512_castsi512_si256(a) | _mm512_extracti64x4_epi64(a, 1);
        const __m256i d = _mm512_castsi512_si256(b) | _mm512_extracti64x4_epi64(b, 1);
        _mm256_storeu_si256((__m256i *)word,
                            _mm256_permute2x128_si256(c, d, 0x20) | _mm256_permute2x128_si256(c, d, 0x31));
    }
    return !falls;
}

#define UNROLL_PACK UNROLL /* unrolled, all 16 registers of the columns stay in registers */

/* Compress merges into a copy of the source, expand into zeros: on Zen 4 the zeroing forms depend on each other.
 * Compressing stores whole registers; the next column overwrites what is too much. */
#define COLUMN(BITS, MASK)                                                                                             \
    static inline uint8_t *compress_column_##BITS(uint8_t *out, const __m512i *column, uint64_t word)                  \
    {                                                                                                                  \
        UNROLL                                                                                                         \
        for (int i = 0; i < BITS / 8; i++) {                                                                           \
            MASK m = (MASK)(word >> (i * 512 / BITS % 64));                                                            \
            store(out, _mm512_mask_compress_epi##BITS(column[i], m, column[i]));                                       \
            out += POPCOUNT64(m) * (BITS / 8);                                                                         \
        }                                                                                                              \
        return out;                                                                                                    \
    }                                                                                                                  \
    static inline const uint8_t *expand_column_##BITS(__m512i *column, const uint8_t *values, uint64_t word)           \
    {                                                                                                                  \
        UNROLL                                                                                                         \
        for (int i = 0; i < BITS / 8; i++) {                                                                           \
            MASK m = (MASK)(word >> (i * 512 / BITS % 64));                                                            \
            __m512i v = load(values), zero = _mm512_setzero_si512();                                                   \
            __asm__("" : "+v"(v), "+v"(zero)); /* keeps compilers from the zeroing form, and from a memory operand */  \
            column[i] = _mm512_mask_expand_epi##BITS(zero, m, v);                                                      \
            values += POPCOUNT64(m) * (BITS / 8);                                                                      \
        }                                                                                                              \
        return values;                                                                                                 \
    }

COLUMN(8, uint64_t)
COLUMN(16, uint32_t)
COLUMN(32, uint16_t)
COLUMN(64, uint8_t)

/* A lane's bit is set at most once, so adding is the same as or. */
#define GATHER_N(BITS, acc, v, bit, by_value)                                                                          \
    _mm512_mask_add_epi##BITS((__m512i)(acc), NONZERO(BITS, (__m512i)(v), by_value), (__m512i)(acc), (__m512i)(bit))

#define PACK_MANY 500
#define UNPACK_MANY 300
#define BITS 8
#define ROW_MASK row_mask_8
#define GATHER(acc, v, bit, by_value) GATHER_N(8, acc, v, bit, by_value)
#include "cpu/elements.inc"
#include "cpu/many.inc"
#include "cpu/move.inc"

#define BITS 16
#define ROW_MASK row_mask_16
#define GATHER(acc, v, bit, by_value) GATHER_N(16, acc, v, bit, by_value)
#include "cpu/elements.inc"
#include "cpu/many.inc"
#include "cpu/move.inc"

#define BITS 32
#define ROW_MASK row_mask_32
#define GATHER(acc, v, bit, by_value) GATHER_N(32, acc, v, bit, by_value)
#include "cpu/elements.inc"
#include "cpu/many.inc"
#include "cpu/move.inc"

#define BITS 64
#define ROW_MASK row_mask_64
#define GATHER(acc, v, bit, by_value) GATHER_N(64, acc, v, bit, by_value)
#include "cpu/elements.inc"
#include "cpu/many.inc"
#include "cpu/move.inc"

#include "cpu/small_avx512.inc"

#ifdef __x86_64__
#define PEXT64 _pext_u64
#define PDEP64 _pdep_u64
#endif
#define ADD_MANY 290
#define ISA_TABLE pici_isa_avx512
#define ISA_NAME "avx512"
#include "cpu/table.inc"

#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
