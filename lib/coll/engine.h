/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the loop over steps does to elements, wherever these are. Stateless; memory is the caller's. Every function may
 * be called with n == 0 (and null pointers then). Blocks are untrusted. */
#ifndef PICI_LIB_COLL_ENGINE_H
#define PICI_LIB_COLL_ENGINE_H

#include "pici/coll.h"

struct pici_engine {
    const char *name;
    void *(*alloc)(size_t); /* memory for dense elements and blocks, 64-byte aligned; NULL if there is none */
    void (*free)(void *, size_t);

    void (*copy)(void *dst, const void *src, uint64_t n, enum pici_dtype);
    uint64_t (*count)(const void *src, uint64_t n, enum pici_dtype); /* nonzeros */

    /* As pici_compress; format is not AUTO. */
    enum pici_status (*encode)(void *block, size_t cap, size_t *len, const void *src, uint64_t n, enum pici_dtype,
                               enum pici_format, int checksum);
    /* As pici_decompress; the block must hold n elements of dtype, else PICI_E_CORRUPT. dst is part of an output of so
     * many elements: from some size on it is written past the caches. */
    enum pici_status (*decode)(void *dst, uint64_t n, const void *block, size_t len, enum pici_dtype, uint64_t output);

    /* dst = dst op block, element by element, absent ones being +0; errors as decode's. SUM and AVG add. temp
     * [temp_elements of dtype]: a place for decoded elements, at least TILE; used for MIN and MAX. */
    enum pici_status (*fold)(void *dst, uint64_t n, const void *block, size_t len, enum pici_dtype, enum pici_op,
                             void *temp, uint64_t temp_elements);

    /* Add to tiles those of a block by container; nothing, if it is not a valid hybrid block. */
    void (*mix)(uint64_t tiles[PICI_CONTAINERS], const void *block, size_t len);

    /* AVG's end: dst = dst / ranks, as the operation says. */
    void (*divide)(void *dst, uint64_t n, enum pici_dtype, int ranks);
};

extern const struct pici_engine pici_engine_host;

#endif
