/* SPDX-License-Identifier: BSD-3-Clause
 *
 * QSGD (Alistarh et al., 2017): each bucket of elements becomes a scale and small integers. */
#include "cpu/kernels.h"
#include "cpu/values.h"
#include "values/accepts.h"
#include "values/residual.h"

enum { SCALES = QSGD_SCALES, CODES = QSGD_CODES, GATHER_SHIFT = 31 };

static size_t scale_bytes(const struct values *values)
{
    return pici_dtype_width(values_qsgd_dtype(values, SCALES));
}

static enum pici_status quantize(const struct values *values, const struct values_where *context,
                                 void *const outputs[VALUES_ARRAYS], uint64_t made_counts[VALUES_ARRAYS],
                                 const void *source, uint64_t count, struct values_loss *loss)
{
    const struct pici_values_kernels *kernels = pici_isa()->values[values->dtype];
    const size_t width = pici_dtype_width(values->dtype);
    struct pici_quantize run = {.bucket = values->bucket,
                                .bits = (unsigned)values->bits,
                                .two_norm = values->norm == PICI_NORM_L2,
                                .nearest = values->rounding == PICI_ROUND_NEAREST,
                                .seed = values->seed,
                                .counter = {(uint32_t)context->sequence,
                                            (uint32_t) !!context->gather << GATHER_SHIFT | (uint32_t)context->origin}};
    made_counts[SCALES] = values_qsgd_most(values, SCALES, count);
    made_counts[CODES] = values_qsgd_most(values, CODES, count);
    for (uint64_t offset = 0, part; offset < count; offset += part) {
        uint8_t decoded[VALUES_PIECE * sizeof(double)];
        part = !loss || count - offset < VALUES_PIECE ? count - offset : VALUES_PIECE;
        run.src = (const uint8_t *)source + offset * width;
        run.elements = (size_t)part;
        run.first = context->first + offset;
        run.scales = (uint8_t *)outputs[SCALES] + offset / values->bucket * scale_bytes(values);
        run.codes = (uint8_t *)outputs[CODES] + offset * run.bits / 8;
        const uint64_t nonfinite = kernels->quantize(&run);
        if (loss) {
            const struct pici_dequantize back = {decoded, run.elements, run.bucket, run.bits, run.scales, run.codes};
            kernels->dequantize(&back);
            pici_values_accumulate(values, loss, offset, run.src, decoded, part, NULL);
            loss->nonfinite += nonfinite;
        }
    }
    return PICI_OK;
}

static enum pici_status dequantize(const struct values *values, void *destination, uint64_t first_element,
                                   uint64_t count, uint64_t total_count, const void *const inputs[VALUES_ARRAYS],
                                   const uint64_t input_counts[VALUES_ARRAYS])
{
    /* bits of the last byte */
    const unsigned bits = (unsigned)values->bits, last = (unsigned)(total_count % 8) * bits % 8;
    const uint8_t *const scale = inputs[SCALES], *const code = inputs[CODES];
    if (input_counts[SCALES] != values_qsgd_most(values, SCALES, total_count) ||
        input_counts[CODES] != values_qsgd_most(values, CODES, total_count))
        return PICI_E_CORRUPT;
    if (!count)
        return PICI_OK;
    if (first_element + count == total_count && last && code[input_counts[CODES] - 1] >> last)
        return PICI_E_CORRUPT;
    const struct pici_dequantize back = {destination,
                                         (size_t)count,
                                         values->bucket,
                                         bits,
                                         scale + first_element / values->bucket * scale_bytes(values),
                                         code + first_element * bits / 8};
    return pici_isa()->values[values->dtype]->dequantize(&back) ? PICI_E_CORRUPT : PICI_OK;
}

const struct pici_codec pici_codec_qsgd = {.name = "qsgd",
                                           .id = PICI_VALUES_QSGD,
                                           .arrays = 2,
                                           .accepts = values_qsgd_accepts,
                                           .unit = values_tile,
                                           .most = values_qsgd_most,
                                           .dtype = values_qsgd_dtype,
                                           .quantize = quantize,
                                           .dequantize = dequantize};
