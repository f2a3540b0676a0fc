/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Accumulate what lossy codecs lose. */
#ifndef PICI_LIB_VALUES_RESIDUAL_H
#define PICI_LIB_VALUES_RESIDUAL_H

#include "format.h"
#include "values/values.h"

enum { VALUES_PIECE = TILE }; /* elements that are accumulated at once */

/* Accumulate the losses of count elements, from `source` to `decoded`, in the residual from element `offset` on. Adds
 * to *nonfinite, unless it is NULL, the number of elements that are not finite in either. */
void pici_values_accumulate(const struct values *, struct values_loss *, uint64_t offset, const void *source,
                            const void *decoded, uint64_t count, uint64_t *nonfinite);

#endif
