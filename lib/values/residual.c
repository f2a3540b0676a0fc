/* SPDX-License-Identifier: BSD-3-Clause */
#include "values/residual.h"
#include "cpu/kernels.h"
#include "cpu/values.h"

void pici_values_accumulate(const struct values *values, struct values_loss *loss, uint64_t offset, const void *source,
                            const void *decoded, uint64_t count, uint64_t *nonfinite)
{
    uint8_t *const residual =
        loss->residual ? (uint8_t *)loss->residual + offset * pici_dtype_width(values->dtype) : NULL;
    const uint64_t not_accumulated = pici_isa()->values[values->dtype]->accumulate(
        residual, source, decoded, (size_t)count, loss->times, &loss->squares);
    if (nonfinite)
        *nonfinite += not_accumulated;
}
