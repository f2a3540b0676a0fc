/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Eight bytes at a time ("slicing by 8"): table k has the CRC of a byte that k zero bytes follow. */
#include "parse/crc32.h"

#include <stdbool.h>

enum { SLICES = 8 };

static uint32_t table[SLICES][256];

static void make_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t remainder = i;
        for (int bit = 0; bit < 8; bit++)
            remainder = remainder >> 1 ^ (remainder & 1 ? 0xedb88320u : 0);
        table[0][i] = remainder;
    }
    for (int k = 1; k < SLICES; k++)
        for (int i = 0; i < 256; i++)
            table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 255];
}

uint32_t parse_crc32(uint32_t crc, const void *bytes, size_t size)
{
    static bool made;
    const uint8_t *position = bytes;
    if (!made)
        make_tables();
    made = true;
    crc = ~crc;
    for (; size >= SLICES; size -= SLICES, position += SLICES) {
        uint32_t next = 0;
        for (int k = 0; k < 4; k++)
            next ^= table[7 - k][(position[k] ^ crc >> 8 * k) & 255] ^ table[3 - k][position[4 + k]];
        crc = next;
    }
    for (; size; size--)
        crc = crc >> 8 ^ table[0][(crc ^ *position++) & 255];
    return ~crc;
}
