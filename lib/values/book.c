/* SPDX-License-Identifier: BSD-3-Clause */
#include "values/book.h"
#include "cpu/kernels.h"
#include "cpu/values.h"

void pici_values_book(const struct values *v, struct values_loss *loss, uint64_t at, const void *src, const void *back,
                      uint64_t n, uint64_t *nonfinite)
{
    uint8_t *const residual = loss->residual ? (uint8_t *)loss->residual + at * pici_dtype_width(v->dtype) : NULL;
    const uint64_t not_booked =
        pici_isa()->values[v->dtype]->book(residual, src, back, (size_t)n, loss->times, &loss->squares);
    if (nonfinite)
        *nonfinite += not_booked;
}
