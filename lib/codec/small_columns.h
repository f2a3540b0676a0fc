/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The elements of a tensor that a small delta covers: consecutive ones, or a shard of columns. */
#ifndef PICI_LIB_CODEC_SMALL_COLUMNS_H
#define PICI_LIB_CODEC_SMALL_COLUMNS_H

#include "codec/small_rows.h"
#include "pici/delta.h"

struct small_elements {
    uint64_t first, count, of; /* elements before them, their number, and elements of the tensor */
    uint64_t row;              /* 0, or the length of a row, if they are some columns of several rows; `first` is then
                                * the first column */
    uint64_t columns;          /* their number, if row > 0 */
    struct small_rows place;   /* in memory, where they have `extent` elements from the first to the last */
    uint64_t extent;
};

/* Convert a caller's columns. PICI_E_ARG: they are not within the tensor, or there are too many elements. */
enum pici_status pici_small_elements(struct small_elements *, const struct pici_columns *);

#endif
