/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Kernels in plain C and compiler vectors of 16 bytes, for any host; on i386 with SSE2. */
#if defined(__i386__) && !defined(__SSE2_MATH__) /* x87 arithmetic rounds twice, and quietens the NaNs that it loads */
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("sse2"))), apply_to = function)
#define PUSHED
#else
#pragma GCC target("sse2,fpmath=sse")
#endif
#endif

#include "bytes.h"
#include "cpu/bits.h"
#include "format.h"

static inline unsigned popcount64(uint64_t w)
{
    return (unsigned)(byte_counts(w) * UINT64_C(0x0101010101010101) >> 56);
}

static inline uint64_t nonempty(const uint64_t word[TILE_COLS])
{
    uint64_t mask = 0;
    for (int c = 0; c < TILE_COLS; c++)
        mask |= (uint64_t)(word[c] != 0) << c;
    return mask;
}

/* Copy the words of a tile between host and stored order; returns how many bits they have set. */
static inline unsigned copy_words(void *to, const void *from)
{
    unsigned bits = 0;
    for (size_t i = 0; i < TILE_BITS_BYTES; i += 8) {
        uint64_t w;
        memcpy(&w, (const uint8_t *)from + i, 8);
        bits += popcount64(w);
        store_le64((uint8_t *)to + i, w);
    }
    return bits;
}

#define POPCOUNT64(w) popcount64(w)
#define NONEMPTY nonempty
#define HAVE_COPY_WORDS
#define VECTOR_BYTES 16
#include "cpu/common.inc"

/* The offsets of the bits of words that are rows. */
static inline void row_offsets(uint16_t *list, const uint64_t word[TILE_COLS], unsigned n)
{
    word_offsets(list, word, n, 1, NULL);
}

#ifdef __clang__
#define SHUFFLE(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(type, a, b, ...) __builtin_shuffle(a, b, (type){__VA_ARGS__})
#endif

#define PACK_MANY 1024
#define UNPACK_MANY 1024
#define BITS 8
#include "cpu/elements.inc"
#include "cpu/portable.inc"
#include "cpu/move.inc"

#define BITS 16
#include "cpu/elements.inc"
#include "cpu/portable.inc"
#include "cpu/move.inc"

#define BITS 32
#include "cpu/elements.inc"
#include "cpu/portable.inc"
#include "cpu/move.inc"

#define BITS 64
#include "cpu/elements.inc"
#include "cpu/portable.inc"
#include "cpu/move.inc"

#define ADD_MANY 1024
#define ISA_TABLE pici_isa_scalar
#define ISA_NAME "scalar"
#include "cpu/table.inc"

#ifdef PUSHED
#pragma clang attribute pop
#endif
