/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The elements of a tensor that a small delta covers: consecutive ones, or a shard of columns; and their layout in
 * memory. */
#ifndef PICI_LIB_SMALL_COLUMNS_H
#define PICI_LIB_SMALL_COLUMNS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "pici/delta.h"
#include "sized.h"

/* A layout of elements: `columns` in each row; the next row begins `stride` elements after this one. columns == 0: no
 * gaps. */
struct small_rows {
    uint64_t columns, stride;
};

struct small_elements {
    uint64_t first, count, of; /* elements before them, their number, and elements of the tensor */
    uint64_t row;              /* 0, or the length of a row, if they are some columns of several rows; `first` is then
                                * the first column */
    uint64_t columns;          /* their number, if row > 0 */
    struct small_rows place;   /* in memory, where they have `extent` elements from the first to the last */
    uint64_t extent;
};

/* a * b + c, if that has 64 bits. */
static inline int small_multiply_add(uint64_t *result, uint64_t a, uint64_t b, uint64_t c)
{
    if (b && a > (UINT64_MAX - c) / b)
        return 0;
    *result = a * b + c;
    return 1;
}

/* Convert a caller's columns. PICI_E_ARG: they are not within the tensor, or there are too many elements. */
static inline enum pici_status small_elements_read(struct small_elements *elements, const struct pici_columns *theirs)
{
    struct pici_columns columns = PICI_COLUMNS_INIT;
    const enum pici_status status = theirs ? sized_read(&columns, sizeof columns, sizeof columns, theirs) : PICI_E_ARG;
    if (status)
        return status;
    const uint64_t stride = columns.stride ? columns.stride : columns.count;
    memset(elements, 0, sizeof *elements);
    elements->first = columns.rows ? columns.first : 0; /* without rows, there is nothing before them */
    if (columns.count > columns.row_length || columns.first > columns.row_length - columns.count ||
        stride < columns.count || !small_multiply_add(&elements->of, columns.rows, columns.row_length, 0))
        return PICI_E_ARG;
    elements->count = columns.rows * columns.count;
    if (elements->count && !small_multiply_add(&elements->extent, columns.rows - 1, stride, columns.count))
        return PICI_E_ARG;
    if (columns.rows > 1 && columns.count < columns.row_length) {
        elements->row = columns.row_length;
        elements->columns = columns.count;
    }
    if (elements->count && columns.rows > 1 && stride > columns.count) {
        elements->place.columns = columns.count;
        elements->place.stride = stride;
    }
    return PICI_OK;
}

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
