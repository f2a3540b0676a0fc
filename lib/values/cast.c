/* SPDX-License-Identifier: BSD-3-Clause
 *
 * CAST: elements are rounded to a narrower float. */
#include "cpu/kernels.h"
#include "cpu/values.h"
#include "values/accepts.h"
#include "values/residual.h"

static enum pici_dtype dtype(const struct values *values, int array)
{
    (void)array;
    return values->cast;
}

/* Which of the kernel's casts it is. */
static int which(const struct values *values)
{
    return values->cast == PICI_F16;
}

static enum pici_status quantize(const struct values *values, const struct values_where *context,
                                 void *const outputs[VALUES_ARRAYS], uint64_t made_counts[VALUES_ARRAYS],
                                 const void *source, uint64_t count, struct values_loss *loss)
{
    const struct pici_values_kernels *kernels = pici_isa()->values[values->dtype];
    const size_t wide = pici_dtype_width(values->dtype), width = pici_dtype_width(values->cast);
    (void)context;
    made_counts[0] = count;
    if (!loss) {
        kernels->cast[which(values)](outputs[0], source, (size_t)count, values->positive);
        return PICI_OK;
    }
    for (uint64_t offset = 0, taken; offset < count; offset += taken) {
        uint8_t decoded[VALUES_PIECE * sizeof(double)];
        uint8_t *const output = (uint8_t *)outputs[0] + offset * width;
        const uint8_t *const input = (const uint8_t *)source + offset * wide;
        taken = count - offset < VALUES_PIECE ? count - offset : VALUES_PIECE;
        kernels->cast[which(values)](output, input, (size_t)taken, values->positive);
        kernels->uncast[which(values)](decoded, output, (size_t)taken);
        pici_values_accumulate(values, loss, offset, input, decoded, taken, &loss->nonfinite);
    }
    return PICI_OK;
}

static enum pici_status dequantize(const struct values *values, void *destination, uint64_t first_element,
                                   uint64_t count, uint64_t total_count, const void *const inputs[VALUES_ARRAYS],
                                   const uint64_t input_counts[VALUES_ARRAYS])
{
    if (input_counts[0] != total_count)
        return PICI_E_CORRUPT;
    const uint8_t *const input = inputs[0];
    if (count)
        pici_isa()->values[values->dtype]->uncast[which(values)](
            destination, input + first_element * pici_dtype_width(values->cast), (size_t)count);
    return PICI_OK;
}

const struct pici_codec pici_codec_cast = {.name = "cast",
                                           .id = PICI_VALUES_CAST,
                                           .arrays = 1,
                                           .accepts = values_cast_accepts,
                                           .unit = values_tile,
                                           .most = values_each,
                                           .dtype = dtype,
                                           .quantize = quantize,
                                           .dequantize = dequantize};
