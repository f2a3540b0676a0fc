/* SPDX-License-Identifier: BSD-3-Clause
 *
 * LZ4 blocks, made and read without a library: descriptions of tensors and attributes repeat themselves a lot. */
#ifndef PICI_LIB_FILE_PACK_H
#define PICI_LIB_FILE_PACK_H

#include "bytes.h"

/* Pack src [n < 2^32] into dst. Returns the block's length; 0 if it is more than cap. The same input gives the same
 * block everywhere. */
size_t pici_pack(uint8_t *dst, size_t cap, const uint8_t *src, size_t n);

/* Unpack the block src [len], which may be anything, into dst. Returns 0 unless its content has n bytes. */
int pici_unpack(uint8_t *dst, size_t n, const uint8_t *src, size_t len);

#endif
