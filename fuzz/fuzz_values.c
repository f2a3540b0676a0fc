/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Value codecs. The input is
 *   byte 0       bits 0, 1: codec; 2, 3: dtype; 4, 5: bits of qsgd; 6: 2-norm; 7: to nearest
 *   byte 1       bits 0 to 2: bucket; 3: elements follow, not arrays; 4: positive zeros; 5: cast to f16
 *   bytes 2, 3   how many elements there are or are claimed; not used if they follow
 *   bytes 4, 5   the length of the first array, in elements
 *   bytes 6, 7   of zfp: nx and ny
 *   bytes 8, 9   of zfp: the rate in 1/64 bits; with the highest bit the logarithm of the tolerance, less 64
 *   the rest     the arrays, or elements
 * With every ISA, arrays must be rejected or decoded as by the reference, and elements encoded as by it, in pieces
 * as at once. For zfp, the reference knows everything except streams: errors, and units without a stream. */
#include <math.h>
#include <string.h>

#include "cpu/kernels.h"
#include "formats/ref_values.h"
#include "fuzz/fuzz.h"
#include "values/values.h"

enum { HEADER = 10 };

struct input {
    struct values v;
    struct ref_values r;
    uint64_t n, count[2];
    unsigned width[2];
    void *array[2], *src;
};

static uint64_t get(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    for (int i = bytes; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

/* A copy of n elements in a buffer of their exact size. */
static void *copy_of(const uint8_t *from, uint64_t n, unsigned width)
{
    void *p = memory((size_t)n * width);
    if (n)
        memcpy(p, from, (size_t)n * width);
    return p;
}

static int parameters(struct input *in, const uint8_t *data)
{
    static const enum pici_dtype dtypes[] = {PICI_F32, PICI_F64, PICI_F16, PICI_BF16};
    struct pici_values asked = PICI_VALUES_INIT;
    const unsigned rate = (unsigned)get(data + 8, 2);
    asked.codec = (enum pici_value_codec)(data[0] & 3);
    asked.bits = 1 << (data[0] >> 4 & 3);
    asked.norm = data[0] & 64 ? PICI_NORM_L2 : PICI_NORM_MAX;
    asked.rounding = data[0] & 128 ? PICI_ROUND_NEAREST : PICI_ROUND_RANDOM;
    asked.bucket = 64u << (data[1] & 7);
    asked.seed = get(data, 8);
    asked.nx = data[6];
    asked.ny = data[6] ? data[7] : 0;
    if (rate & 0x8000)
        asked.tolerance = ldexp(1, (int)(rate & 127) - 64);
    else
        asked.rate = rate / 64.0;
    const enum pici_dtype dtype = dtypes[data[0] >> 2 & 3];
    if (asked.codec == PICI_VALUES_CAST && dtype == PICI_F32 && data[1] & 32)
        asked.cast = PICI_F16;
    if (pici_values_resolve(&in->v, &asked, dtype, PICI_SUM) || in->v.codec->id == PICI_VALUES_EXACT)
        return 0;
    in->v.positive = data[1] >> 4 & 1;
    for (int i = 0; i < in->v.codec->arrays; i++)
        in->width[i] = (unsigned)pici_dtype_width(in->v.codec->dtype(&in->v, i));
    in->r = (struct ref_values){.codec = (unsigned)in->v.codec->id,
                                .dtype = (unsigned)dtype,
                                .cast = (unsigned)in->v.cast,
                                .positive = in->v.positive,
                                .bits = (unsigned)in->v.bits,
                                .bucket = in->v.bucket,
                                .l2 = in->v.norm == PICI_NORM_L2,
                                .nearest = in->v.rounding == PICI_ROUND_NEAREST,
                                .seed = in->v.seed,
                                .first = get(data + 2, 2),
                                .sequence = data[4],
                                .phase = data[5] & 1,
                                .origin = data[5] >> 1,
                                .rate = asked.rate,
                                .tolerance = asked.tolerance,
                                .nx = in->v.nx,
                                .ny = in->v.ny};
    return 1;
}

static enum pici_status dequantize(const struct input *in, void *dst, uint64_t first, uint64_t n)
{
    const void *const arrays[2] = {in->array[0], in->array[1]};
    return in->v.codec->dequantize(&in->v, dst, first, n, in->n, arrays, in->count);
}

/* Decode the arrays with every ISA. Returns their common status. */
static enum pici_status decode(const struct input *in)
{
    const unsigned width = (unsigned)pici_dtype_width(in->v.dtype);
    const uint64_t unit = in->v.codec->unit(&in->v);
    const size_t bytes = (size_t)in->n * width;
    uint8_t *want = memory(bytes);
    const void *const arrays[2] = {in->array[0], in->array[1]};
    if (in->v.codec->id == PICI_VALUES_ZFP) /* decodes its streams, which the reference skips */
        (void)dequantize(in, want, 0, in->n);
    const enum pici_status status = (enum pici_status)ref_values_dequantize(want, &in->r, arrays, in->count, in->n);
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
        uint8_t *got = memory(bytes);
        enum pici_status worst = PICI_OK;
        pici_isa_force(*isa);
        require(dequantize(in, got, 0, in->n) == status);
        require(status || !bytes || memcmp(got, want, bytes) == 0);
        for (uint64_t at = 0, now; at < in->n; at += now) {
            now = in->n - at < unit ? in->n - at : unit;
            uint8_t *piece = memory((size_t)now * width);
            const enum pici_status s = dequantize(in, piece, at, now);
            worst = s ? s : worst;
            require(status || memcmp(piece, want + at * width, (size_t)now * width) == 0);
            free(piece);
        }
        require(!in->n || worst == status);
        free(got);
    }
    pici_isa_force(NULL);
    free(want);
    return status;
}

/* Encode elements with every ISA, and decode them again. */
static void encode(struct input *in)
{
    const struct values_where where = {in->r.first, in->r.sequence, (int)in->r.phase, (int)in->r.origin};
    void *want[2] = {NULL, NULL};
    for (int i = 0; i < in->v.codec->arrays; i++) {
        in->count[i] = in->v.codec->most(&in->v, i, in->n);
        want[i] = memory((size_t)in->count[i] * in->width[i]);
    }
    if (in->v.codec->id != PICI_VALUES_ZFP)
        ref_values_quantize(want, &in->r, in->src, in->n);
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
        void *out[2] = {NULL, NULL};
        uint64_t made[2] = {0, 0};
        struct values_loss loss = {.residual = memory((size_t)in->n * 8), .times = 2};
        for (int i = 0; i < in->v.codec->arrays; i++)
            out[i] = memory((size_t)in->v.codec->most(&in->v, i, in->n) * in->width[i]);
        pici_isa_force(*isa);
        require(in->v.codec->quantize(&in->v, &where, out, made, in->src, in->n, &loss) == PICI_OK);
        for (int i = 0; i < in->v.codec->arrays; i++) {
            require(made[i] <= in->v.codec->most(&in->v, i, in->n));
            require(in->v.codec->id == PICI_VALUES_ZFP || !made[i] ||
                    memcmp(out[i], want[i], (size_t)made[i] * in->width[i]) == 0);
            in->array[i] = out[i];
            in->count[i] = made[i];
        }
        require(decode(in) == PICI_OK);
        free(loss.residual);
        free(out[0]);
        free(out[1]);
    }
    pici_isa_force(NULL);
    free(want[0]);
    free(want[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct input in = {.array = {NULL, NULL}};
    if (len < HEADER || !parameters(&in, data))
        return 0;
    const uint8_t *rest = data + HEADER;
    const uint64_t more = len - HEADER;
    const unsigned width = (unsigned)pici_dtype_width(in.v.dtype);
    if (data[1] & 8) {
        in.n = more / width;
        if (pici_values_count(&in.v, in.n))
            return 0;
        in.src = copy_of(rest, in.n, width);
        encode(&in);
        free(in.src);
        return 0;
    }
    in.n = get(data + 2, 2);
    in.count[0] = get(data + 4, 2);
    if (pici_values_count(&in.v, in.n) || in.count[0] > more / in.width[0])
        return 0;
    in.array[0] = copy_of(rest, in.count[0], in.width[0]);
    if (in.v.codec->arrays > 1) {
        in.count[1] = (more - in.count[0] * in.width[0]) / in.width[1];
        in.array[1] = copy_of(rest + in.count[0] * in.width[0], in.count[1], in.width[1]);
    }
    decode(&in);
    free(in.array[0]);
    free(in.array[1]);
    return 0;
}
