/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A chunk of a dataset as a block (formats/block.md), and back. Knows nothing of HDF5. */
#ifndef PICI_PLUGINS_HDF5_CHUNK_H
#define PICI_PLUGINS_HDF5_CHUNK_H

#include <stdbool.h>
#include <stddef.h>

#include "pici/pici.h"

/* The type of a chunk's elements. */
struct chunk_kind {
    enum pici_dtype dtype;
    bool big_endian;
};

/* Encode a chunk. Treats a chunk without a whole number of elements as u8.
 *   block  out, by malloc; the caller frees it. NULL unless PICI_OK
 *   size   out, bytes of it
 * PICI_E_ARG: no such dtype or pack. PICI_E_NOMEM. */
enum pici_status chunk_encode(void **block, size_t *size, const void *bytes, size_t len, struct chunk_kind kind,
                              enum pici_pack pack);

/* Decode a block from anywhere [size bytes]. Bytes after it are an error.
 *   bytes  out, by malloc; the caller frees it. NULL unless PICI_OK
 *   len    out
 *   limit  the most bytes to decode to. PICI_E_SPACE: the block has more
 *   big_endian  the byte order that the elements are to have
 * Other errors: as pici_decompress. */
enum pici_status chunk_decode(void **bytes, size_t *len, const void *block, size_t size, size_t limit, bool big_endian);

#endif
