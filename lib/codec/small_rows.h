/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Copies between elements in rows, such as a shard of columns, and the same elements without gaps. */
#ifndef PICI_LIB_CODEC_SMALL_ROWS_H
#define PICI_LIB_CODEC_SMALL_ROWS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A layout of elements: `columns` in each row; the next row begins `stride` elements after this one. columns == 0: no
 * gaps. */
struct small_rows {
    uint64_t columns, stride;
};

/* Copy elements [first, first + count) from rows to `packed`, or back if `scatter`. */
static inline void small_rows_copy(uint8_t *packed, uint8_t *rows, const struct small_rows *shape, uint64_t first,
                                   uint64_t count, unsigned width_log2, int scatter)
{
    for (uint64_t some; count > 0; first += some, count -= some) {
        const uint64_t row = first / shape->columns, column = first % shape->columns;
        some = shape->columns - column < count ? shape->columns - column : count;
        uint8_t *const there = rows + ((row * shape->stride + column) << width_log2);
        const size_t bytes = (size_t)some << width_log2;
        memcpy(scatter ? there : packed, scatter ? packed : there, bytes);
        packed += bytes;
    }
}

#endif
