/* SPDX-License-Identifier: BSD-3-Clause */
#include "measure/count.h"

#include <string.h>

/* Blocks have a constant length, since gcc -O2 vectorizes no other loops. The count of a block fits in the smallest
 * type. */
enum { BLOCK = 64 };

#define COUNT(name, type, is)                                                                                          \
    static uint64_t name(const unsigned char *elements, size_t count)                                                  \
    {                                                                                                                  \
        uint64_t total = 0;                                                                                            \
        size_t i = 0;                                                                                                  \
        for (; count - i >= BLOCK; i += BLOCK) {                                                                       \
            type found = 0;                                                                                            \
            for (size_t k = 0; k < BLOCK; k++) {                                                                       \
                type value;                                                                                            \
                memcpy(&value, elements + (i + k) * sizeof value, sizeof value);                                       \
                found = (type)(found + (value is));                                                                    \
            }                                                                                                          \
            total += found;                                                                                            \
        }                                                                                                              \
        for (; i < count; i++) {                                                                                       \
            type value;                                                                                                \
            memcpy(&value, elements + i * sizeof value, sizeof value);                                                 \
            total += (value is);                                                                                       \
        }                                                                                                              \
        return total;                                                                                                  \
    }

COUNT(nonzeros8, uint8_t, != 0)
COUNT(nonzeros16, uint16_t, != 0)
COUNT(nonzeros32, uint32_t, != 0)
COUNT(nonzeros64, uint64_t, != 0)
COUNT(negative8, uint8_t, == 0x80)
COUNT(negative16, uint16_t, == 0x8000)
COUNT(negative32, uint32_t, == UINT32_C(1) << 31)
COUNT(negative64, uint64_t, == UINT64_C(1) << 63)

uint64_t count_nonzeros(const void *elements, size_t count, size_t width)
{
    switch (width) {
    case 1: return nonzeros8(elements, count);
    case 2: return nonzeros16(elements, count);
    case 4: return nonzeros32(elements, count);
    default: return nonzeros64(elements, count);
    }
}

uint64_t count_negative_zeros(const void *elements, size_t count, size_t width)
{
    switch (width) {
    case 1: return negative8(elements, count);
    case 2: return negative16(elements, count);
    case 4: return negative32(elements, count);
    default: return negative64(elements, count);
    }
}

#define MARK(name, type)                                                                                               \
    static void name(uint32_t *seen, const unsigned char *elements, size_t count)                                      \
    {                                                                                                                  \
        size_t i = 0;                                                                                                  \
        for (; count - i >= BLOCK; i += BLOCK)                                                                         \
            for (size_t k = 0; k < BLOCK; k++) {                                                                       \
                type value;                                                                                            \
                memcpy(&value, elements + (i + k) * sizeof value, sizeof value);                                       \
                seen[i + k] += value != 0;                                                                             \
            }                                                                                                          \
        for (; i < count; i++) {                                                                                       \
            type value;                                                                                                \
            memcpy(&value, elements + i * sizeof value, sizeof value);                                                 \
            seen[i] += value != 0;                                                                                     \
        }                                                                                                              \
    }

MARK(mark8, uint8_t)
MARK(mark16, uint16_t)
MARK(mark32, uint32_t)
MARK(mark64, uint64_t)

void count_mark(uint32_t *seen, const void *elements, size_t count, size_t width)
{
    if (width == 1)
        mark8(seen, elements, count);
    else if (width == 2)
        mark16(seen, elements, count);
    else if (width == 4)
        mark32(seen, elements, count);
    else
        mark64(seen, elements, count);
}
