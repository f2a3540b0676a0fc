/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Bookkeeping of what encodings lose. */
#ifndef PICI_LIB_VALUES_BOOK_H
#define PICI_LIB_VALUES_BOOK_H

#include "format.h"
#include "values/values.h"

enum { VALUES_PIECE = TILE }; /* elements that are booked at once */

/* Book that n elements of src, which begin at number `at` of the residual, became those of back. Adds to *nonfinite,
 * unless it is NULL, how many are not finite in either. */
void pici_values_book(const struct values *, struct values_loss *, uint64_t at, const void *src, const void *back,
                      uint64_t n, uint64_t *nonfinite);

#endif
