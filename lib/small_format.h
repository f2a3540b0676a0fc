/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The layout of a small delta: its constants, and pure integer functions. Includes no other header of this project.
 * Specification: formats/small-delta.md. */
#ifndef PICI_LIB_SMALL_FORMAT_H
#define PICI_LIB_SMALL_FORMAT_H

#include <stdint.h>

/* Byte offsets of the header's fields. */
enum {
    SMALL_HDR_MAGIC = 0,
    SMALL_HDR_VERSION = 4,
    SMALL_HDR_DTYPE = 5,
    SMALL_HDR_FLAGS = 6,
    SMALL_HDR_HOLDS = 7, /* versions 3 and 4: the contents of u8 elements */
    SMALL_HDR_COUNT = 8,
    SMALL_HDR_LENGTH = 16,
    SMALL_HDR_CHECKSUM = 24,
    SMALL_HDR_BYTES = 32,
    SMALL_PART_FIRST = 32, /* not of version 1 */
    SMALL_PART_OF = 40,
    SMALL_PART_BYTES = 48,    /* the header of versions 2 and 3 */
    SMALL_COLUMNS_ROW = 48,   /* of version 4 only */
    SMALL_COLUMNS_BYTES = 56, /* its header */
    SMALL_ENTRY_BYTES = 4     /* of the directory */
};

/* Byte offsets of a context chunk's fields. */
enum {
    SMALL_CTX_LOW = 0,
    SMALL_CTX_TOP = 1,
    SMALL_CTX_FREQUENT_ODDS = 2,
    SMALL_CTX_ZERO = 3,
    SMALL_CTX_FREQUENT = 4,
    SMALL_CTX_CLASSES = 8,
    SMALL_CTX_WORDS = 12,
    SMALL_CTX_STATES = 16,
    SMALL_CTX_TABLES = 144
};

enum {
    SMALL_FORMAT_VERSION = 1,
    SMALL_PART_VERSION = 2,
    SMALL_NARROW_VERSION = 3,
    SMALL_COLUMNS_VERSION = 4,
    SMALL_FLAG_CHECKSUM = 1
};
#define SMALL_WIDE_ZERO 0x78u /* bits that are 0 in an e2m1 that is widened to a byte */
enum { SMALL_HOLDS_ONE = 0, SMALL_HOLDS_E2M1X2 = 1 };
#define SMALL_KIND_CONTEXT (UINT32_C(1) << 31) /* in an entry of the directory */

enum {
    SMALL_CHUNK = 1 << 19, /* elements */
    SMALL_LANES = 32,      /* of a step */
    SMALL_CLASSES = 32,
    SMALL_TOKENS = 32,
    SMALL_STATE = 1 << 16,      /* of each lane when all is decoded */
    SMALL_SHARES = 1 << 15,     /* what the shares of a 0 and of a 1 add up to */
    SMALL_SAMPLE_OF = 128,      /* of this many elements, */
    SMALL_SAMPLE = 32,          /* this many are counted */
    SMALL_MOST_DIFFERENCE = 29, /* the largest token of a difference of 16 bits */
    SMALL_ESCAPE = 31,          /* the token of a literal with all bits stored */
    SMALL_LISTED = 4,           /* listed bits for each element, at most, of dtypes of 16 bits */
    SMALL_TREE_LEVELS = 5,      /* f32: bits of a token */
    SMALL_TABLES_MOST = 32 * 33 /* bytes of tables */
};

/* The structure of elements of a dtype. */
struct small_shape {
    unsigned width_log2; /* 0, 1 or 2; 0 for e2m1, widened to bytes */
    unsigned mantissa;   /* bits */
    uint32_t exponents;  /* the largest exponent */
    int literals;        /* class 0 has its new values stored */
    int tree;            /* tokens are coded by a binary tree, else level by level */
    unsigned pairs;      /* 1: an element is two e2m1, coded one by one; else 0 */
};

enum { SMALL_F32 = 1, SMALL_F16 = 3, SMALL_BF16 = 4, SMALL_F8E4M3 = 5, SMALL_F8E5M2 = 6, SMALL_U8 = 8 };

/* Whether deltas of the dtype have version 3, or 4; holds: what elements of u8 hold. */
static inline int small_is_narrow(unsigned dtype, unsigned holds)
{
    if (holds == SMALL_HOLDS_ONE)
        return dtype == SMALL_F8E4M3 || dtype == SMALL_F8E5M2;
    return dtype == SMALL_U8 && holds == SMALL_HOLDS_E2M1X2;
}

/* Bytes of the header of a version. */
static inline unsigned small_header_bytes(unsigned version)
{
    if (version == SMALL_FORMAT_VERSION)
        return SMALL_HDR_BYTES;
    return version == SMALL_COLUMNS_VERSION ? SMALL_COLUMNS_BYTES : SMALL_PART_BYTES;
}

/* Returns 0 for a dtype whose deltas have no context chunks. narrow: as small_is_narrow, and not of versions 1 and
 * 2. */
static inline int small_shape(struct small_shape *s, unsigned dtype, int narrow)
{
    static const struct small_shape none = {0, 0, 0, 0, 0, 0}, f32 = {2, 23, 255, 1, 1, 0}, f16 = {1, 10, 31, 0, 0, 0},
                                    bf16 = {1, 7, 255, 1, 0, 0}, e4m3 = {0, 3, 15, 0, 0, 0}, e5m2 = {0, 2, 31, 0, 0, 0},
                                    pairs = {0, 0, 7, 0, 0, 1};
    switch (dtype) {
    case SMALL_F32: *s = narrow ? none : f32; break;
    case SMALL_F16: *s = narrow ? none : f16; break;
    case SMALL_BF16: *s = narrow ? none : bf16; break;
    case SMALL_F8E4M3: *s = narrow ? e4m3 : none; break;
    case SMALL_F8E5M2: *s = narrow ? e5m2 : none; break;
    case SMALL_U8: *s = narrow ? pairs : none; break;
    default: *s = none;
    }
    return s->exponents != 0;
}

static inline uint64_t small_chunks(uint64_t count)
{
    return count / SMALL_CHUNK + (count % SMALL_CHUNK != 0);
}

/* Elements of chunk i. */
static inline uint64_t small_chunk_elements(uint64_t count, uint64_t i)
{
    const uint64_t remaining = count - i * SMALL_CHUNK;
    return remaining < SMALL_CHUNK ? remaining : (uint64_t)SMALL_CHUNK;
}

/* The first sampled element of those from i on, a multiple of SMALL_SAMPLE_OF. The sampled quarter varies, since the
 * rows of a matrix often have a multiple of 128 elements. */
static inline uint64_t small_sampled(uint64_t i)
{
    return i + SMALL_SAMPLE * ((uint32_t)(i / SMALL_SAMPLE_OF) * UINT32_C(2654435761) >> 30);
}

/* A context chunk of n elements is shorter than this. */
static inline uint64_t small_context_limit(uint64_t n, const struct small_shape *s)
{
    return 48 + (n << s->width_log2);
}

static inline unsigned small_class(unsigned exponent, unsigned low)
{
    const unsigned above = exponent > low ? exponent - low : 0;
    return above < SMALL_CLASSES ? above : SMALL_CLASSES - 1;
}

/* Extra bits of the token of a difference. */
static inline unsigned small_extra_bits(unsigned token, int tree)
{
    if (tree)
        return token;
    return token < 4 ? 0 : token / 2 - 1;
}

/* The least magnitude of a difference with the token. */
static inline uint32_t small_least(unsigned token, int tree)
{
    if (tree)
        return UINT32_C(1) << token;
    return token < 4 ? token + 1 : ((2u + (token & 1)) << (token / 2 - 1)) + 1;
}

#endif
