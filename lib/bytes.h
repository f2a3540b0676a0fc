/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Loads and stores of little-endian integers, as blocks have them, at any alignment; bits of doubles. Includes no other
 * header of this project. */
#ifndef PICI_LIB_BYTES_H
#define PICI_LIB_BYTES_H

#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define PICI_BIG_ENDIAN 1
#else
#define PICI_BIG_ENDIAN 0
#endif

static inline uint16_t le16(uint16_t v)
{
    return PICI_BIG_ENDIAN ? (uint16_t)(v << 8 | v >> 8) : v;
}

static inline uint32_t le32(uint32_t v)
{
    return PICI_BIG_ENDIAN ? __builtin_bswap32(v) : v;
}

static inline uint64_t le64(uint64_t v)
{
    return PICI_BIG_ENDIAN ? __builtin_bswap64(v) : v;
}

static inline uint32_t load_le32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return le32(v);
}

static inline uint64_t load_le64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return le64(v);
}

static inline void store_le32(void *p, uint32_t v)
{
    v = le32(v);
    memcpy(p, &v, sizeof v);
}

static inline void store_le64(void *p, uint64_t v)
{
    v = le64(v);
    memcpy(p, &v, sizeof v);
}

/* The bits of a double, and back. Positive doubles have the order of their bits. */
static inline uint64_t double_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double double_of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#define SWAP_EACH(type, bswap)                                                                                         \
    for (size_t i = 0; i + sizeof(type) <= bytes; i += sizeof(type)) {                                                 \
        type v;                                                                                                        \
        memcpy(&v, b + i, sizeof v);                                                                                   \
        v = bswap(v);                                                                                                  \
        memcpy(b + i, &v, sizeof v);                                                                                   \
    }

/* Reverse the bytes of each element of width bytes: 1, 2, 4 or 8. */
static inline void swap_elements(void *p, size_t bytes, size_t width)
{
    unsigned char *b = p;
    if (width == 2)
        SWAP_EACH(uint16_t, __builtin_bswap16)
    else if (width == 4)
        SWAP_EACH(uint32_t, __builtin_bswap32)
    else if (width == 8)
        SWAP_EACH(uint64_t, __builtin_bswap64)
}

#undef SWAP_EACH

/* Entry i of an index whose entries have 4 or 8 bytes. */
static inline uint64_t load_index(const uint8_t *index, unsigned width, uint64_t i)
{
    return width == 8 ? load_le64(index + 8 * i) : load_le32(index + 4 * i);
}

static inline void store_index(uint8_t *index, unsigned width, uint64_t i, uint64_t v)
{
    if (width == 8)
        store_le64(index + 8 * i, v);
    else
        store_le32(index + 4 * i, (uint32_t)v);
}

#endif
