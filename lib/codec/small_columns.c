/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What struct pici_columns says. */
#include "codec/small_columns.h"

#include "sized.h"

/* a * b + c, if that has 64 bits. */
static int multiply_add(uint64_t *result, uint64_t a, uint64_t b, uint64_t c)
{
    if (b && a > (UINT64_MAX - c) / b)
        return 0;
    *result = a * b + c;
    return 1;
}

enum pici_status pici_small_elements(struct small_elements *elements, const struct pici_columns *theirs)
{
    struct pici_columns columns = PICI_COLUMNS_INIT;
    const enum pici_status status = theirs ? sized_read(&columns, sizeof columns, sizeof columns, theirs) : PICI_E_ARG;
    if (status)
        return status;
    const uint64_t stride = columns.stride ? columns.stride : columns.count;
    *elements = (struct small_elements){.first = columns.first};
    if (columns.count > columns.row_length || columns.first > columns.row_length - columns.count ||
        stride < columns.count || !multiply_add(&elements->of, columns.rows, columns.row_length, 0))
        return PICI_E_ARG;
    elements->count = columns.rows * columns.count;
    if (elements->count && !multiply_add(&elements->extent, columns.rows - 1, stride, columns.count))
        return PICI_E_ARG;
    if (columns.rows > 1 && columns.count < columns.row_length) {
        elements->row = columns.row_length;
        elements->columns = columns.count;
    }
    if (columns.rows > 1 && stride > columns.count)
        elements->place = (struct small_rows){columns.count, stride};
    if (!elements->count)
        elements->place = (struct small_rows){0, 0};
    return PICI_OK;
}
