/* SPDX-License-Identifier: BSD-3-Clause
 *
 * CRC-32 as in zip files and PNG. */
#ifndef PICI_TOOLS_PARSE_CRC32_H
#define PICI_TOOLS_PARSE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* The CRC-32 of bytes whose beginning has the CRC-32 crc (0 for none) and is followed by these. */
uint32_t parse_crc32(uint32_t crc, const void *bytes, size_t size);

#endif
