/* SPDX-License-Identifier: BSD-3-Clause
 *
 * QSGD (Alistarh et al., 2017): each bucket of elements becomes a scale and small integers. */
#include "cpu/kernels.h"
#include "cpu/values.h"
#include "values/book.h"

enum { SCALES, CODES, BITS_USUAL = 8, BUCKET_USUAL = 1024, GATHER_SHIFT = 31 };

static enum pici_status accepts(struct values *v, const struct pici_values *asked, enum pici_op op)
{
    if ((v->dtype != PICI_F32 && v->dtype != PICI_F16 && v->dtype != PICI_BF16 && v->dtype != PICI_F64) ||
        (op != PICI_SUM && op != PICI_AVG))
        return PICI_E_UNSUPPORTED;
    v->bits = asked->bits ? asked->bits : BITS_USUAL;
    v->bucket = asked->bucket ? asked->bucket : BUCKET_USUAL;
    v->norm = (int)asked->norm;
    v->rounding = (int)asked->rounding;
    v->seed = v->rounding == PICI_ROUND_RANDOM ? asked->seed : 0;
    if ((v->bits != 2 && v->bits != 4 && v->bits != 8) || v->bucket < VALUES_BUCKET_LEAST ||
        v->bucket > VALUES_BUCKET_MOST || v->bucket & (v->bucket - 1) ||
        (v->norm != PICI_NORM_MAX && v->norm != PICI_NORM_L2) ||
        (v->rounding != PICI_ROUND_RANDOM && v->rounding != PICI_ROUND_NEAREST))
        return PICI_E_ARG;
    return PICI_OK;
}

static uint64_t unit(const struct values *v)
{
    (void)v;
    return TILE; /* whole buckets */
}

static uint64_t most(const struct values *v, int array, uint64_t n)
{
    const uint64_t codes = 8 / (unsigned)v->bits; /* of a byte */
    return array == SCALES ? n / v->bucket + (n % v->bucket != 0) : n / codes + (n % codes != 0);
}

static enum pici_dtype dtype(const struct values *v, int array)
{
    return array == CODES ? PICI_U8 : v->dtype == PICI_F64 ? PICI_F64 : PICI_F32;
}

static size_t scale_bytes(const struct values *v)
{
    return pici_dtype_width(dtype(v, SCALES));
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
    made[SCALES] = most(v, SCALES, n);
    made[CODES] = most(v, CODES, n);
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
    if (have[SCALES] != most(v, SCALES, total) || have[CODES] != most(v, CODES, total))
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
                                           .accepts = accepts,
                                           .unit = unit,
                                           .most = most,
                                           .dtype = dtype,
                                           .narrow = narrow,
                                           .widen = widen};
