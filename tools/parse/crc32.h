/* SPDX-License-Identifier: BSD-3-Clause
 *
 * CRC-32 of zip files and PNG. */
#ifndef PICI_TOOLS_PARSE_CRC32_H
#define PICI_TOOLS_PARSE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Continue a CRC-32 with more bytes. crc: of the bytes before them, 0 for none. */
uint32_t parse_crc32(uint32_t crc, const void *bytes, size_t size);

#endif
