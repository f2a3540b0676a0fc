/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which elements of a tensor a small delta is made of, or applied to: some in a row, or a shard of columns. */
#ifndef PICI_LIB_CODEC_SMALL_COLUMNS_H
#define PICI_LIB_CODEC_SMALL_COLUMNS_H

#include "codec/small_rows.h"
#include "pici/delta.h"

struct small_elements {
    uint64_t first, count, of; /* elements before them, of them, and of the tensor */
    uint64_t row;              /* 0, or they are columns, and not all, of several rows of so many elements: `first` is
                                * the first column then */
    uint64_t columns;          /* then */
    struct small_rows place;   /* in memory, where they have `extent` elements from the first to the last */
    uint64_t extent;
};

/* What a caller's columns are. PICI_E_ARG: they are not of the tensor, or one has too many elements. */
enum pici_status pici_small_elements(struct small_elements *, const struct pici_columns *);

#endif
