/* SPDX-License-Identifier: BSD-3-Clause
 *
 * LZ4 blocks without a library: descriptions of tensors and attributes are repetitive. */
#ifndef PICI_LIB_FILE_LZ4_H
#define PICI_LIB_FILE_LZ4_H

#include "bytes.h"

/* Compress source [size < 2^32] into destination. Returns the block's length; 0 if it is more than capacity. The same
 * input gives the same block everywhere. */
size_t pici_lz4_compress(uint8_t *destination, size_t capacity, const uint8_t *source, size_t size);

/* Decompress the untrusted block source [size] into destination. Returns 0 unless its content has count bytes. */
int pici_lz4_decompress(uint8_t *destination, size_t count, const uint8_t *source, size_t size);

#endif
