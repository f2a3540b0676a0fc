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
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
        table[0][i] = c;
    }
    for (int k = 1; k < SLICES; k++)
        for (int i = 0; i < 256; i++)
            table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 255];
}

uint32_t parse_crc32(uint32_t crc, const void *bytes, size_t size)
{
    static bool made;
    const uint8_t *p = bytes;
    if (!made)
        make_tables();
    made = true;
    crc = ~crc;
    for (; size >= SLICES; size -= SLICES, p += SLICES) {
        uint32_t next = 0;
        for (int k = 0; k < 4; k++)
            next ^= table[7 - k][(p[k] ^ crc >> 8 * k) & 255] ^ table[3 - k][p[4 + k]];
        crc = next;
    }
    for (; size; size--)
        crc = crc >> 8 ^ table[0][(crc ^ *p++) & 255];
    return ~crc;
}
