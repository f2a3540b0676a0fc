/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Look-up tables: for each mask of eight bits, or of four, the indices that compress or expand eight lanes. The
 * preprocessor computes the initialisers. Entry m is for mask m; its eight indices are bytes, or numbers of 16 bits. */
#ifndef PICI_LIB_CPU_LUTS_H
#define PICI_LIB_CPU_LUTS_H

#include <stdint.h>

#define LUT_RANK(m, i) __builtin_popcount((m) & ((1 << (i)) - 1))
#define LUT_EIGHT(ENTRY, m)                                                                                            \
    (ENTRY(m, 0) | ENTRY(m, 1) | ENTRY(m, 2) | ENTRY(m, 3) | ENTRY(m, 4) | ENTRY(m, 5) | ENTRY(m, 6) | ENTRY(m, 7))
#define LUT_4(E, m) LUT_EIGHT(E, m), LUT_EIGHT(E, m + 1), LUT_EIGHT(E, m + 2), LUT_EIGHT(E, m + 3)
#define LUT_16(E, m) LUT_4(E, m), LUT_4(E, m + 4), LUT_4(E, m + 8), LUT_4(E, m + 12)
#define LUT_64(E, m) LUT_16(E, m), LUT_16(E, m + 16), LUT_16(E, m + 32), LUT_16(E, m + 48)
#define LUT_256(E) LUT_64(E, 0), LUT_64(E, 64), LUT_64(E, 128), LUT_64(E, 192)

/* Compress: byte k of entry m is the index of the k-th bit set in m; beyond the last, 0. */
#define LUT_COMPRESS(m, i) ((m) >> (i)&1 ? (uint64_t)(i) << 8 * LUT_RANK(m, i) : 0)
static const uint64_t lut_compress[256] = {LUT_256(LUT_COMPRESS)};

/* Expand: byte i of entry m is the number of bits set below bit i, if bit i is set; else 0x80. */
#define LUT_EXPAND(m, i) ((uint64_t)((m) >> (i)&1 ? LUT_RANK(m, i) : 0x80) << 8 * (i))
static const uint64_t lut_expand[256] = {LUT_256(LUT_EXPAND)};

/* Tables whose entries are arrays: E(m, k) is number k of entry m. */
#define LUT_FOUR_OF(E, m)                                                                                              \
    {                                                                                                                  \
        E(m, 0), E(m, 1), E(m, 2), E(m, 3)                                                                             \
    }
#define LUT_EIGHT_OF(E, m)                                                                                             \
    {                                                                                                                  \
        E(m, 0), E(m, 1), E(m, 2), E(m, 3), E(m, 4), E(m, 5), E(m, 6), E(m, 7)                                         \
    }
#define LUT_4_ROWS(ROW, E, m) ROW(E, m), ROW(E, m + 1), ROW(E, m + 2), ROW(E, m + 3)
#define LUT_16_ROWS(ROW, E, m)                                                                                         \
    LUT_4_ROWS(ROW, E, m), LUT_4_ROWS(ROW, E, m + 4), LUT_4_ROWS(ROW, E, m + 8), LUT_4_ROWS(ROW, E, m + 12)
#define LUT_64_ROWS(ROW, E, m)                                                                                         \
    LUT_16_ROWS(ROW, E, m), LUT_16_ROWS(ROW, E, m + 16), LUT_16_ROWS(ROW, E, m + 32), LUT_16_ROWS(ROW, E, m + 48)
#define LUT_256_ROWS(ROW, E)                                                                                           \
    LUT_64_ROWS(ROW, E, 0), LUT_64_ROWS(ROW, E, 64), LUT_64_ROWS(ROW, E, 128), LUT_64_ROWS(ROW, E, 192)

/* LUT_COMPRESS as numbers of 16 bits. */
#define LUT_PLACE(m, k) (uint16_t)(LUT_EIGHT(LUT_COMPRESS, m) >> 8 * (k)&0xff)
static const uint16_t lut_places[256][8] = {LUT_256_ROWS(LUT_EIGHT_OF, LUT_PLACE)};

/* LUT_COMPRESS and LUT_EXPAND for 16-bit elements: indices of their bytes. */
#define LUT_PAIR(i) (uint16_t)(0x0100 + 0x0202 * (i))
#define LUT_COMPRESS_BYTES(m, k) LUT_PAIR(LUT_PLACE(m, k))
#define LUT_EXPAND_BYTES(m, k) ((m) >> (k)&1 ? LUT_PAIR(LUT_RANK(m, k)) : 0x8080)
static const uint16_t lut_compress_bytes[256][8] = {LUT_256_ROWS(LUT_EIGHT_OF, LUT_COMPRESS_BYTES)};
static const uint16_t lut_expand_bytes[256][8] = {LUT_256_ROWS(LUT_EIGHT_OF, LUT_EXPAND_BYTES)};

/* Expand in two instructions: a permutation uses the low three bits of an index, then another clears lanes whose index
 * is zero. LUT_EXPAND with 8 instead of 0, and 0 instead of 0x80. */
#define LUT_RANK_OR_8(rank) ((rank) ? (rank) : 8)
#define LUT_SIGN(m, i) ((uint64_t)(((m) >> (i)&1) * LUT_RANK_OR_8(LUT_RANK(m, i))) << 8 * (i))
static const uint64_t lut_sign[256] = {LUT_256(LUT_SIGN)};

/* LUT_SIGN and LUT_COMPRESS for masks of four bits, where each bit stands for a pair of lanes. */
#define LUT_RANK_PAIR(m, i) (2 * LUT_RANK(m, (i) / 2) + (i) % 2)
#define LUT_SIGN_PAIR(m, i) ((uint64_t)(((m) >> (i) / 2 & 1) * LUT_RANK_OR_8(LUT_RANK_PAIR(m, i))) << 8 * (i))
static const uint64_t lut_sign_pair[16] = {LUT_16(LUT_SIGN_PAIR, 0)};
#define LUT_COMPRESS_PAIR(m, i) ((m) >> (i) / 2 & 1 ? (uint64_t)(i) << 8 * LUT_RANK_PAIR(m, i) : 0)
static const uint64_t lut_compress_pair[16] = {LUT_16(LUT_COMPRESS_PAIR, 0)};

#endif
