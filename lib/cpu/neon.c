/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Kernels for NEON (ASIMD) as every little-endian 64-bit ARM CPU has it. There are no non-temporal stores here: ARM's
 * are a hint, which the caches' own detection of written lines makes superfluous. */
#include "cpu/kernels.h"

#if PICI_HAVE_NEON
#include <arm_neon.h>
#include <string.h>

#include "cpu/bits.h"
#include "cpu/luts.h"

typedef void emit_fn(uint8_t *p, uint8x16_t v);

static inline void store(uint8_t *p, uint8x16_t v)
{
    vst1q_u8(p, v);
}

static inline uint8x16_t load(const void *p)
{
    return vld1q_u8((const uint8_t *)p);
}

static inline uint8x16_t lanes_load(const uint8_t *p, size_t apart)
{
    (void)apart;
    return load(p);
}

/* ---- which elements are nonzero ---- */

/* nonzero_N: all bits of a lane of N bits where the element in x is nonzero, otherwise none; by value, all bits but the
 * sign are tested. gather_N: acc with the bits of `bit` in these lanes. */
#define NONZERO(N, LANES)                                                                                              \
    static inline __attribute__((always_inline)) LANES nonzero_##N(uint8x16_t x, int by_value)                         \
    {                                                                                                                  \
        return vtstq_u##N((LANES)x, by_value ? vdupq_n_u##N(INT##N##_MAX) : (LANES)x);                                 \
    }                                                                                                                  \
    static inline __attribute__((always_inline)) LANES gather_##N(LANES acc, uint8x16_t x, LANES bit, int by_value)    \
    {                                                                                                                  \
        return vbslq_u##N(bit, nonzero_##N(x, by_value), acc);                                                         \
    }
NONZERO(8, uint8x16_t)
NONZERO(16, uint16x8_t)
NONZERO(32, uint32x4_t)
NONZERO(64, uint64x2_t)

#define GATHER_N(N, LANES, acc, v, bit, by_value) gather_##N((LANES)(acc), (uint8x16_t)(v), (LANES)(bit), by_value)

/* bytes_N: the same for the 16 elements at p, a byte each. */
static inline __attribute__((always_inline)) uint8x16_t bytes_8(const uint8_t *p, int by_value)
{
    return nonzero_8(load(p), by_value);
}

static inline __attribute__((always_inline)) uint8x16_t bytes_16(const uint8_t *p, int by_value)
{
    const uint16x8_t low = nonzero_16(load(p), by_value), high = nonzero_16(load(p + 16), by_value);
    return vuzp1q_u8((uint8x16_t)low, (uint8x16_t)high);
}

static inline __attribute__((always_inline)) uint8x16_t bytes_32(const uint8_t *p, int by_value)
{
    uint16x8_t half[2];
    UNROLL
    for (int i = 0; i < 2; i++, p += 32) {
        const uint32x4_t low = nonzero_32(load(p), by_value), high = nonzero_32(load(p + 16), by_value);
        half[i] = vuzp1q_u16((uint16x8_t)low, (uint16x8_t)high);
    }
    return vuzp1q_u8((uint8x16_t)half[0], (uint8x16_t)half[1]);
}

static inline __attribute__((always_inline)) uint8x16_t bytes_64(const uint8_t *p, int by_value)
{
    uint32x4_t four[4];
    UNROLL
    for (int i = 0; i < 4; i++, p += 32) {
        const uint64x2_t low = nonzero_64(load(p), by_value), high = nonzero_64(load(p + 16), by_value);
        four[i] = vuzp1q_u32((uint32x4_t)low, (uint32x4_t)high);
    }
    return vuzp1q_u8((uint8x16_t)vuzp1q_u16((uint16x8_t)four[0], (uint16x8_t)four[1]),
                     (uint8x16_t)vuzp1q_u16((uint16x8_t)four[2], (uint16x8_t)four[3]));
}

/* Bit i: element i of the 64 at p is nonzero. Each byte keeps one bit; adding neighbours three times makes a byte of
 * eight. */
#define ROW(N)                                                                                                         \
    static inline __attribute__((always_inline)) uint64_t row_mask_##N(const uint8_t *p, int by_value)                 \
    {                                                                                                                  \
        const uint8x16_t bit = (uint8x16_t)vdupq_n_u64(UINT64_C(0x8040201008040201));                                  \
        uint8x16_t v[4];                                                                                               \
        UNROLL                                                                                                         \
        for (int i = 0; i < 4; i++)                                                                                    \
            v[i] = vandq_u8(bytes_##N(p + i * (2 * N), by_value), bit);                                                \
        v[0] = vpaddq_u8(vpaddq_u8(v[0], v[1]), vpaddq_u8(v[2], v[3]));                                                \
        return vgetq_lane_u64((uint64x2_t)vpaddq_u8(v[0], v[0]), 0);                                                   \
    }
ROW(8)
ROW(16)
ROW(32)
ROW(64)

/* Copy the words of a tile, which are the same in host and stored order; returns how many bits they have. */
static inline unsigned copy_words(void *to, const void *from)
{
    uint8x16_t even = vdupq_n_u8(0), odd = even; /* each byte grows by at most eight for a vector, 16 times */
    for (size_t i = 0; i < TILE_BITS_BYTES; i += 32) {
        const uint8x16_t a = load((const uint8_t *)from + i), b = load((const uint8_t *)from + i + 16);
        store((uint8_t *)to + i, a);
        store((uint8_t *)to + i + 16, b);
        even = vaddq_u8(even, vcntq_u8(a));
        odd = vaddq_u8(odd, vcntq_u8(b));
    }
    return vaddvq_u16(vpadalq_u8(vpaddlq_u8(even), odd));
}

static inline uint8x16_t swap_lanes(uint8x16_t v, size_t bytes)
{
    switch (bytes) {
    case 8: return vextq_u8(v, v, 8);
    case 4: return (uint8x16_t)vrev64q_u32((uint32x4_t)v);
    default: return (uint8x16_t)vrev32q_u16((uint16x8_t)v);
    }
}

#define NONEMPTY(word) row_mask_64((const uint8_t *)(word), 0)
#define CTZ64_OR_ANY(w) ((w) ? CTZ64(w) : 64) /* no branch: reversing and counting leading zeros gives 64 for zero */
#define POPCOUNT64(w) ((unsigned)__builtin_popcountll(w))
#define HAVE_COPY_WORDS
#define VECTOR_BYTES 16
#define VEC uint8x16_t
#define ANY_SET(v) (vmaxvq_u32((uint32x4_t)(v)) != 0)
#define GREATER_OF_16(a, b) vmaxq_s16((int16x8_t)(a), (int16x8_t)(b))
#define LESSER_OF_16(a, b) vminq_s16((int16x8_t)(a), (int16x8_t)(b))
#define GREATER_OF_32(a, b) vmaxq_s32((int32x4_t)(a), (int32x4_t)(b))
#define LESSER_OF_32(a, b) vminq_s32((int32x4_t)(a), (int32x4_t)(b))
#define SWAP_LANES(v, bytes) swap_lanes((uint8x16_t)(v), bytes)
#define MUL_WIDE(a, b) vmull_u32(vmovn_u64((uint64x2_t)(a)), vmovn_u64((uint64x2_t)(b)))
#include "cpu/common.inc"

/* ---- compressing and expanding columns ----
 *
 * A table gives the indices of bytes for each mask of eight elements, or of four of 32 and 64 bits. Compressing stores
 * all of these elements; the next ones overwrite those that were not selected. An index out of range gives zero. */

#define UNROLL_PACK
#define INTERLEAVE(half, a, b) CAT(interleave_##half##_, BITS)(a, b)
#define INTERLEAVE_OF(N, LANES)                                                                                        \
    static inline uint8x16_t interleave_lo_##N(uint8x16_t a, uint8x16_t b)                                             \
    {                                                                                                                  \
        return (uint8x16_t)vzip1q_u##N((LANES)a, (LANES)b);                                                            \
    }                                                                                                                  \
    static inline uint8x16_t interleave_hi_##N(uint8x16_t a, uint8x16_t b)                                             \
    {                                                                                                                  \
        return (uint8x16_t)vzip2q_u##N((LANES)a, (LANES)b);                                                            \
    }
INTERLEAVE_OF(8, uint8x16_t)
INTERLEAVE_OF(16, uint16x8_t)
INTERLEAVE_OF(32, uint32x4_t)
INTERLEAVE_OF(64, uint64x2_t)

/* The indices of the bytes of element i, of so many bits. */
#define BYTES_16(i) (uint16_t)((i)*UINT16_C(0x0202) + UINT16_C(0x0100))
#define BYTES_32(i) (uint32_t)((i)*UINT32_C(0x04040404) + UINT32_C(0x03020100))
#define BYTES_64(i) (uint64_t)((i)*UINT64_C(0x0808080808080808) + UINT64_C(0x0706050403020100))

#define COMPRESS_16(m, k) BYTES_16(LUT_PLACE(m, k))
#define COMPRESS_32(m, k) BYTES_32(LUT_PLACE(m, k))
#define COMPRESS_64(m, k) BYTES_64((k) < 2 ? LUT_PLACE(m, k) : LUT_PLACE(m, k) & 1) /* k >= 2: of elements 2 and 3 */
#define EXPAND_16(m, i) (uint16_t)((m) >> (i)&1 ? BYTES_16(LUT_RANK(m, i)) : UINT16_MAX)
#define EXPAND_32(m, i) ((m) >> (i)&1 ? BYTES_32((uint32_t)LUT_RANK(m, i)) : UINT32_MAX)
#define EXPAND_64(m, i) ((m) >> (i)&1 ? BYTES_64((uint64_t)LUT_RANK(m, i)) : UINT64_MAX)

static const uint16_t compress_16[256][8] = {LUT_256_ROWS(LUT_EIGHT_OF, COMPRESS_16)};
static const uint16_t expand_16[256][8] = {LUT_256_ROWS(LUT_EIGHT_OF, EXPAND_16)};
static const uint32_t compress_32[16][4] = {LUT_16_ROWS(LUT_FOUR_OF, COMPRESS_32, 0)};
static const uint32_t expand_32[16][4] = {LUT_16_ROWS(LUT_FOUR_OF, EXPAND_32, 0)};
static const uint64_t compress_64[16][4] = {LUT_16_ROWS(LUT_FOUR_OF, COMPRESS_64, 0)};
static const uint64_t expand_64[16][4] = {LUT_16_ROWS(LUT_FOUR_OF, EXPAND_64, 0)};

/* In each byte, and in each four bits, of the result the number of bits set in those of w. */
static inline uint64_t counts_8(uint64_t w)
{
    return vget_lane_u64((uint64x1_t)vcnt_u8((uint8x8_t)vcreate_u64(w)), 0);
}

static inline uint64_t counts_4(uint64_t w)
{
    w -= w >> 1 & UINT64_C(0x5555555555555555);
    return (w & UINT64_C(0x3333333333333333)) + (w >> 2 & UINT64_C(0x3333333333333333));
}

/* Keeps compilers from computing all addresses and masks of a column first, for which there are not enough registers.
 * It is no instruction. */
#define IN_ORDER(p, word, counts) __asm__("" : "+r"(p), "+r"(word), "+r"(counts))

#define COLUMNS_IN_MEMORY
static inline uint8_t *compress_column_8(uint8_t *out, const uint8_t *column, uint64_t word)
{
    uint64_t counts = counts_8(word);
    UNROLL
    for (int i = 0; i < 8; i++) {
        vst1_u8(out, vtbl1_u8(vld1_u8(column + 8 * i), vcreate_u8(lut_compress[word >> 8 * i & 255])));
        out += counts >> 8 * i & 255;
        IN_ORDER(out, word, counts);
    }
    return out;
}

static inline const uint8_t *expand_column_8(uint8_t *column, const uint8_t *values, uint64_t word)
{
    uint64_t counts = counts_8(word);
    UNROLL
    for (int i = 0; i < 8; i++) {
        vst1_u8(column + 8 * i, vqtbl1_u8(load(values), vcreate_u8(lut_expand[word >> 8 * i & 255])));
        values += counts >> 8 * i & 255;
        IN_ORDER(values, word, counts);
    }
    return values;
}

static inline uint8_t *compress_column_16(uint8_t *out, const uint8_t *column, uint64_t word)
{
    uint64_t counts = counts_8(word);
    UNROLL
    for (int i = 0; i < 8; i++) {
        store(out, vqtbl1q_u8(load(column + 16 * i), load(compress_16[word >> 8 * i & 255])));
        out += 2 * (counts >> 8 * i & 255);
        IN_ORDER(out, word, counts);
    }
    return out;
}

static inline const uint8_t *expand_column_16(uint8_t *column, const uint8_t *values, uint64_t word)
{
    uint64_t counts = counts_8(word);
    UNROLL
    for (int i = 0; i < 8; i++) {
        store(column + 16 * i, vqtbl1q_u8(load(values), load(expand_16[word >> 8 * i & 255])));
        values += 2 * (counts >> 8 * i & 255);
        IN_ORDER(values, word, counts);
    }
    return values;
}

static inline uint8_t *compress_column_32(uint8_t *out, const uint8_t *column, uint64_t word)
{
    uint64_t counts = counts_4(word);
    UNROLL
    for (int i = 0; i < 16; i++) {
        store(out, vqtbl1q_u8(load(column + 16 * i), load(compress_32[word >> 4 * i & 15])));
        out += 4 * (counts >> 4 * i & 15);
        IN_ORDER(out, word, counts);
    }
    return out;
}

static inline const uint8_t *expand_column_32(uint8_t *column, const uint8_t *values, uint64_t word)
{
    uint64_t counts = counts_4(word);
    UNROLL
    for (int i = 0; i < 16; i++) {
        store(column + 16 * i, vqtbl1q_u8(load(values), load(expand_32[word >> 4 * i & 15])));
        values += 4 * (counts >> 4 * i & 15);
        IN_ORDER(values, word, counts);
    }
    return values;
}

/* Four elements are two registers. The third and fourth of those that are selected are in the second. */
static inline uint8_t *compress_column_64(uint8_t *out, const uint8_t *column, uint64_t word)
{
    uint64_t counts = counts_4(word);
    UNROLL
    for (int i = 0; i < 16; i++) {
        const uint8x16x2_t four = vld1q_u8_x2(column + 32 * i);
        const uint64_t *const place = compress_64[word >> 4 * i & 15];
        store(out, vqtbl2q_u8(four, load(place)));
        store(out + 16, vqtbl1q_u8(four.val[1], load(place + 2)));
        out += 8 * (counts >> 4 * i & 15);
        IN_ORDER(out, word, counts);
    }
    return out;
}

static inline const uint8_t *expand_column_64(uint8_t *column, const uint8_t *values, uint64_t word)
{
    uint64_t counts = counts_4(word);
    UNROLL
    for (int i = 0; i < 16; i++) {
        const uint8x16x2_t four = vld1q_u8_x2(values);
        const uint64_t *const place = expand_64[word >> 4 * i & 15];
        store(column + 32 * i, vqtbl1q_u8(four.val[0], load(place)));
        store(column + 32 * i + 16, vqtbl2q_u8(four, load(place + 2)));
        values += 8 * (counts >> 4 * i & 15);
        IN_ORDER(values, word, counts);
    }
    return values;
}

#define INTERLEAVE_PARTS
/* Where the kinds of kernels take as many cycles by an estimate for Neoverse V2 (tools/dev/instructions), which knows
 * no mispredicted branches: those for many nonzeros have none, so they begin a little earlier. */
#define PACK_MANY (BITS == 8 ? 450 : BITS == 16 ? 500 : BITS == 32 ? 1200 : 2500)
#define UNPACK_MANY (BITS == 8 ? 450 : BITS == 16 ? 500 : BITS == 32 ? 1500 : 2600)
#define BITS 8
#define LIST_MANY LIST_MOST /* always by the list */
#define ROW_MASK row_mask_8
#define GATHER(acc, v, bit, by_value) GATHER_N(8, uint8x16_t, acc, v, bit, by_value)
#include "cpu/elements.inc"
#include "cpu/many.inc"
#include "cpu/move.inc"

#define BITS 16
#define LIST_MANY LIST_MOST
#define ROW_MASK row_mask_16
#define GATHER(acc, v, bit, by_value) GATHER_N(16, uint16x8_t, acc, v, bit, by_value)
#include "cpu/elements.inc"
#include "cpu/many.inc"
#include "cpu/move.inc"

#define BITS 32
#define LIST_MANY LIST_MOST
#define ROW_MASK row_mask_32
#define GATHER(acc, v, bit, by_value) GATHER_N(32, uint32x4_t, acc, v, bit, by_value)
#include "cpu/elements.inc"
#include "cpu/many.inc"
#include "cpu/move.inc"

#define BITS 64
#define LIST_MANY LIST_MOST
#define ROW_MASK row_mask_64
#define GATHER(acc, v, bit, by_value) GATHER_N(64, uint64x2_t, acc, v, bit, by_value)
#include "cpu/elements.inc"
#include "cpu/many.inc"
#include "cpu/move.inc"

#define ADD_MANY (BITS == 64 ? 2048 : LANE == BITS && BITS != 32 ? 450 : BITS == 8 ? 1000 : 1500)
#define ISA_TABLE pici_isa_neon
#define ISA_NAME "neon"
#include "cpu/table.inc"
#endif
