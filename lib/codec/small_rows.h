/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Elements that lie in rows, as those of a shard of columns, and the same without a gap. */
#ifndef PICI_LIB_CODEC_SMALL_ROWS_H
#define PICI_LIB_CODEC_SMALL_ROWS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Where elements lie: so many in a row, of which the next one begins so many elements after this one. columns == 0: one
 * after the other. */
struct small_rows {
    uint64_t columns, stride;
};

/* Copy elements [first, first + count) of those in rows to `packed`, or back if `scatter`. */
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
