/* SPDX-License-Identifier: BSD-3-Clause
 *
 * QSGD (Alistarh et al., 2017): each bucket of elements becomes a scale and small integers. */
#include "cpu/kernels.h"
#include "cpu/values.h"
#include "values/accepts.h"
#include "values/book.h"

enum { SCALES = QSGD_SCALES, CODES = QSGD_CODES, GATHER_SHIFT = 31 };

static size_t scale_bytes(const struct values *v)
{
    return pici_dtype_width(values_qsgd_dtype(v, SCALES));
}

static enum pici_status narrow(const struct values *v, const struct values_where *where, void *const out[VALUES_ARRAYS],
                               uint64_t made[VALUES_ARRAYS], const void *src, uint64_t n, struct values_loss *loss)
{
    const struct pici_values_kernels *k = pici_isa()->values[v->dtype];
    const size_t width = pici_dtype_width(v->dtype);
    struct pici_quantize a = {
        .bucket = v->bucket,
        .bits = (unsigned)v->bits,
        .l2 = v->norm == PICI_NORM_L2,
        .nearest = v->rounding == PICI_ROUND_NEAREST,
        .seed = v->seed,
        .counter = {(uint32_t)where->sequence, (uint32_t) !!where->gather << GATHER_SHIFT | (uint32_t)where->origin}};
    made[SCALES] = values_qsgd_most(v, SCALES, n);
    made[CODES] = values_qsgd_most(v, CODES, n);
    for (uint64_t at = 0, now; at < n; at += now) {
        uint8_t back[VALUES_PIECE * sizeof(double)];
        now = !loss || n - at < VALUES_PIECE ? n - at : VALUES_PIECE;
        a.src = (const uint8_t *)src + at * width;
        a.n = (size_t)now;
        a.first = where->first + at;
        a.scale = (uint8_t *)out[SCALES] + at / v->bucket * scale_bytes(v);
        a.code = (uint8_t *)out[CODES] + at * a.bits / 8;
        const uint64_t nonfinite = k->quantize(&a);
        if (loss) {
            const struct pici_dequantize b = {back, a.n, a.bucket, a.bits, a.scale, a.code};
            k->dequantize(&b);
            pici_values_book(v, loss, at, a.src, back, now, NULL);
            loss->nonfinite += nonfinite;
        }
    }
    return PICI_OK;
}

static enum pici_status widen(const struct values *v, void *dst, uint64_t first, uint64_t n, uint64_t total,
                              const void *const in[VALUES_ARRAYS], const uint64_t have[VALUES_ARRAYS])
{
    const unsigned bits = (unsigned)v->bits, last = (unsigned)(total % 8) * bits % 8; /* bits of the last byte */
    const uint8_t *const scale = in[SCALES], *const code = in[CODES];
    if (have[SCALES] != values_qsgd_most(v, SCALES, total) || have[CODES] != values_qsgd_most(v, CODES, total))
        return PICI_E_CORRUPT;
    if (!n)
        return PICI_OK;
    if (first + n == total && last && code[have[CODES] - 1] >> last)
        return PICI_E_CORRUPT;
    const struct pici_dequantize a = {
        dst, (size_t)n, v->bucket, bits, scale + first / v->bucket * scale_bytes(v), code + first * bits / 8};
    return pici_isa()->values[v->dtype]->dequantize(&a) ? PICI_E_CORRUPT : PICI_OK;
}

const struct pici_codec pici_codec_qsgd = {.name = "qsgd",
                                           .id = PICI_VALUES_QSGD,
                                           .arrays = 2,
                                           .accepts = values_qsgd_accepts,
                                           .unit = values_tile,
                                           .most = values_qsgd_most,
                                           .dtype = values_qsgd_dtype,
                                           .narrow = narrow,
                                           .widen = widen};
