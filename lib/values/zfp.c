/* SPDX-License-Identifier: BSD-3-Clause
 *
 * ZFP: units of elements are compressed by libzfp, each on its own. libzfp does not check the bounds of a stream, and
 * cannot encode all values: comments say where. Without libzfp there is no such codec. */
#include <math.h> /* macros only: the library is not linked with libm */
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "values/book.h"
#include "values/values.h"

enum { LENGTHS, PAYLOAD, RATE = 1, TOLERANCE = 2, WORD = 8 /* bytes of a length's unit */ };
#define RAW UINT32_MAX

static uint64_t unit(const struct values *v)
{
    return v->ny ? (uint64_t)4 * v->nx * v->ny : v->nx ? (uint64_t)4 * v->nx : TILE;
}

static uint64_t units(const struct values *v, uint64_t n)
{
    return n / unit(v) + (n % unit(v) != 0);
}

static uint64_t most(const struct values *v, int array, uint64_t n)
{
    return array == LENGTHS ? units(v, n) : n * pici_dtype_width(v->dtype);
}

static enum pici_dtype dtype(const struct values *v, int array)
{
    (void)v;
    return array == LENGTHS ? PICI_U32 : PICI_U8;
}

#ifdef PICI_HAVE_ZFP
#include <zfp.h>

static unsigned dims(const struct values *v)
{
    return v->ny ? 3 : v->nx ? 2 : 1;
}

/* floor(log2(x)) of x > 0; of denormal numbers libzfp's least. */
static int exponent(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 52 ? (int)(bits >> 52) - 1023 : ZFP_MIN_EXP;
}

/* Bits of a block of 4^d elements at a rate. */
static unsigned block_bits(const struct values *v)
{
    return (unsigned)((double)(1u << 2 * dims(v)) * v->param + .5);
}

static enum pici_status accepts(struct values *v, const struct pici_values *asked, enum pici_op op)
{
    if ((v->dtype != PICI_F32 && v->dtype != PICI_F64) || (op != PICI_SUM && op != PICI_AVG))
        return PICI_E_UNSUPPORTED;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    if (stream_word_bits != 8) /* streams would depend on the byte order */
        return PICI_E_UNSUPPORTED;
#endif
    if (!(asked->rate > 0) == !(asked->tolerance > 0) || !(asked->rate >= 0) || !(asked->tolerance >= 0) ||
        isinf(asked->tolerance) || (asked->ny && !asked->nx))
        return PICI_E_ARG;
    v->nx = asked->nx;
    v->ny = asked->ny;
    v->bits = asked->rate > 0 ? RATE : TOLERANCE;
    v->param = asked->rate > 0 ? asked->rate : asked->tolerance;
    v->norm = (int)zfp_codec_version;
    const double width = 8 * (double)pici_dtype_width(v->dtype);
    if (v->bits == RATE && (v->param > width || block_bits(v) < (v->dtype == PICI_F32 ? 9 : 12)))
        return PICI_E_ARG;
    /* units and their lengths must be counted in 64 and 32 bits */
    if ((uint64_t)v->nx * (v->ny ? v->ny : 1) > UINT32_MAX / 4)
        return PICI_E_ARG;
    return PICI_OK;
}

/* ---- one unit */

/* What a thread needs for units of a call. */
struct unit_coder {
    const struct values *v;
    zfp_stream *zfp;
    zfp_field *field;
    uint8_t *room; /* the longest stream of a whole unit */
    size_t room_bytes;
};

static zfp_type type_of(const struct values *v)
{
    return v->dtype == PICI_F32 ? zfp_type_float : zfp_type_double;
}

/* Let the coder's field be n elements. */
static void set_field(const struct unit_coder *c, uint64_t n)
{
    const struct values *v = c->v;
    if (v->ny)
        zfp_field_set_size_3d(c->field, v->nx, v->ny, (size_t)(n / v->nx / v->ny));
    else if (v->nx)
        zfp_field_set_size_2d(c->field, v->nx, (size_t)(n / v->nx));
    else
        zfp_field_set_size_1d(c->field, (size_t)n);
}

static void coder_free(struct unit_coder *c)
{
    if (c->field)
        zfp_field_free(c->field);
    if (c->zfp)
        zfp_stream_close(c->zfp);
    free(c->room);
}

/* For segments of `total` elements. */
static enum pici_status coder_new(struct unit_coder *c, const struct values *v, uint64_t total)
{
    *c = (struct unit_coder){.v = v, .zfp = zfp_stream_open(NULL), .field = zfp_field_alloc()};
    if (c->zfp && c->field) {
        const int d = (int)dims(v), least = v->dtype == PICI_F32 ? 2 * d - 96 : 2 * d - 960;
        /* The usual parameters of a rate give garbage for blocks whose greatest magnitude is tiny: minexp prevents
         * that. */
        const int set =
            v->bits == RATE
                ? zfp_stream_set_params(c->zfp, block_bits(v), block_bits(v), ZFP_MAX_PREC, least)
                : zfp_stream_set_params(c->zfp, ZFP_MIN_BITS, ZFP_MAX_BITS, ZFP_MAX_PREC, exponent(v->param));
        zfp_field_set_type(c->field, type_of(v));
        set_field(c, total < unit(v) ? total : unit(v));
        c->room_bytes = set ? zfp_stream_maximum_size(c->zfp, c->field) : 0;
        c->room = c->room_bytes ? malloc(c->room_bytes) : NULL;
    }
    if (c->room)
        return PICI_OK;
    coder_free(c);
    return PICI_E_NOMEM;
}

/* Elements of a unit as a stream in the coder's room, or back, which needs the room filled. Returns the stream's
 * bytes, a multiple of WORD. */
static size_t code(const struct unit_coder *c, void *elements, uint64_t n, int decode)
{
    bitstream *const bits = stream_open(c->room, c->room_bytes);
    if (!bits)
        return 0;
    set_field(c, n);
    zfp_field_set_pointer(c->field, elements);
    zfp_stream_set_bit_stream(c->zfp, bits);
    zfp_stream_rewind(c->zfp);
    const size_t bytes = decode ? zfp_decompress(c->zfp, c->field) : zfp_compress(c->zfp, c->field);
    zfp_stream_set_bit_stream(c->zfp, NULL);
    stream_close(bits);
    return bytes;
}

/* The words of a whole stream of n elements at a rate. */
static uint64_t words_of_rate(const struct values *v, uint64_t n)
{
    const uint64_t row = v->nx ? v->nx : n, rows = v->nx ? v->ny ? v->ny : n / v->nx : 1,
                   planes = v->ny ? n / v->nx / v->ny : 1;
    const uint64_t blocks = (row + 3) / 4 * ((rows + 3) / 4) * ((planes + 3) / 4);
    return (blocks * block_bits(v) + 8 * WORD - 1) / (8 * WORD);
}

/* The greatest magnitude of n elements, or infinity for NaN. */
static double greatest(const struct values *v, const void *src, uint64_t n)
{
    double most_of = 0;
    for (uint64_t i = 0; i < n; i++) {
        double x;
        float f;
        if (v->dtype == PICI_F32) {
            memcpy(&f, (const uint8_t *)src + i * sizeof f, sizeof f);
            x = __builtin_fabs((double)f);
        } else {
            memcpy(&x, (const uint8_t *)src + i * sizeof x, sizeof x);
            x = __builtin_fabs(x);
        }
        if (!(x <= most_of))
            most_of = isnan(x) ? (double)INFINITY : x;
    }
    return most_of;
}

/* Elements in stored order, or back. */
static void copy_raw(const struct values *v, uint8_t *to, const uint8_t *from, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (v->dtype == PICI_F32) {
            uint32_t w;
            memcpy(&w, from + 4 * i, 4);
            w = le32(w);
            memcpy(to + 4 * i, &w, 4);
        } else {
            uint64_t w;
            memcpy(&w, from + 8 * i, 8);
            w = le64(w);
            memcpy(to + 8 * i, &w, 8);
        }
    }
}

/* One unit to its length and its bytes at `to`; returns how many bytes. */
static enum pici_status narrow_unit(const struct unit_coder *c, uint32_t *length, uint8_t *to, size_t *bytes,
                                    const uint8_t *src, uint64_t n, int *finite)
{
    const struct values *v = c->v;
    const size_t raw = (size_t)n * pici_dtype_width(v->dtype);
    const double most_of = greatest(v, src, n);
    *finite = !isinf(most_of);
    *bytes = 0;
    *length = 0;
    if (most_of == 0)
        return PICI_OK;
    /* libzfp's results are undefined for what is not finite, and near the greatest numbers it overflows */
    if (most_of <= (v->dtype == PICI_F32 ? 0x1p126 : 0x1p1022)) {
        void *elements = malloc(raw); /* zfp's pointer is not const, and wants alignment */
        if (!elements)
            return PICI_E_NOMEM;
        memcpy(elements, src, raw);
        const size_t made = code(c, elements, n, 0), padded = (made + WORD - 1) / WORD * WORD;
        free(elements);
        if (!made)
            return PICI_E_NOMEM;
        if (padded < raw) {
            memset(to, 0, padded);
            memcpy(to, c->room, made);
            *length = (uint32_t)(padded / WORD);
            *bytes = padded;
            return PICI_OK;
        }
    }
    copy_raw(v, to, src, n);
    *length = RAW;
    *bytes = raw;
    return PICI_OK;
}

/* The bytes of a unit of n elements with this length, if the rules allow it; else 0 and *bad = 1. */
static size_t unit_bytes(const struct values *v, uint32_t length, uint64_t n, int *bad)
{
    const size_t raw = (size_t)n * pici_dtype_width(v->dtype);
    if (length == RAW || !length)
        return length ? raw : 0;
    *bad |= (uint64_t)length * WORD >= raw || (v->bits == RATE && length != words_of_rate(v, n));
    return *bad ? 0 : (size_t)length * WORD;
}

static enum pici_status widen_unit(const struct unit_coder *c, uint8_t *dst, uint64_t n, uint32_t length,
                                   const uint8_t *from, size_t bytes)
{
    const size_t raw = (size_t)n * pici_dtype_width(c->v->dtype);
    if (!length)
        memset(dst, 0, raw);
    else if (length == RAW)
        copy_raw(c->v, dst, from, n);
    else {
        /* libzfp reads beyond the end of a malformed stream: pad it with zeros. */
        const size_t kept = bytes < c->room_bytes ? bytes : c->room_bytes;
        memcpy(c->room, from, kept);
        memset(c->room + kept, 0, c->room_bytes - kept);
        void *elements = calloc(1, raw);
        if (!elements)
            return PICI_E_NOMEM;
        const size_t read = code(c, elements, n, 1);
        memcpy(dst, elements, raw);
        free(elements);
        if (!read)
            return PICI_E_CORRUPT;
    }
    return PICI_OK;
}

/* ---- all of them */

static enum pici_status narrow(const struct values *v, const struct values_where *where, void *const out[VALUES_ARRAYS],
                               uint64_t made[VALUES_ARRAYS], const void *src, uint64_t n, struct values_loss *loss)
{
    struct unit_coder c;
    const size_t width = pici_dtype_width(v->dtype);
    (void)where;
    made[LENGTHS] = units(v, n);
    made[PAYLOAD] = 0;
    if (!n)
        return PICI_OK;
    enum pici_status s = coder_new(&c, v, n);
    if (s)
        return s;
    uint8_t *back = loss ? malloc((size_t)(n < unit(v) ? n : unit(v)) * width) : NULL;
    s = loss && !back ? PICI_E_NOMEM : PICI_OK;
    for (uint64_t at = 0, now, i = 0; at < n && !s; at += now, i++) {
        const uint8_t *const from = (const uint8_t *)src + at * width;
        uint8_t *const to = (uint8_t *)out[PAYLOAD] + made[PAYLOAD];
        uint32_t length;
        size_t bytes;
        int finite;
        now = n - at < unit(v) ? n - at : unit(v);
        s = narrow_unit(&c, &length, to, &bytes, from, now, &finite);
        memcpy((uint8_t *)out[LENGTHS] + i * sizeof length, &length, sizeof length);
        made[PAYLOAD] += bytes;
        if (!s && loss) {
            s = widen_unit(&c, back, now, length, to, bytes);
            if (!s)
                pici_values_book(v, loss, at, from, back, now, NULL);
            loss->nonfinite += !finite;
        }
    }
    free(back);
    coder_free(&c);
    return s;
}

static enum pici_status widen(const struct values *v, void *dst, uint64_t first, uint64_t n, uint64_t total,
                              const void *const in[VALUES_ARRAYS], const uint64_t have[VALUES_ARRAYS])
{
    const size_t width = pici_dtype_width(v->dtype);
    const uint8_t *const lengths = in[LENGTHS], *const payload = in[PAYLOAD];
    uint64_t at_byte = 0;
    int bad = have[LENGTHS] != units(v, total);
    struct unit_coder c;
    if (bad)
        return PICI_E_CORRUPT;
    /* all lengths, before anything is read by them */
    for (uint64_t at = 0, i = 0; at < total; at += unit(v), i++) {
        uint32_t length;
        memcpy(&length, lengths + i * sizeof length, sizeof length);
        at_byte += unit_bytes(v, length, total - at < unit(v) ? total - at : unit(v), &bad);
    }
    if (bad || at_byte != have[PAYLOAD])
        return PICI_E_CORRUPT;
    if (!n)
        return PICI_OK;
    enum pici_status s = coder_new(&c, v, total);
    if (s)
        return s;
    at_byte = 0;
    for (uint64_t at = 0, i = 0, now; at < first + n && !s; at += now, i++) {
        uint32_t length;
        memcpy(&length, lengths + i * sizeof length, sizeof length);
        now = total - at < unit(v) ? total - at : unit(v);
        const size_t bytes = unit_bytes(v, length, now, &bad);
        if (at >= first)
            s = widen_unit(&c, (uint8_t *)dst + (at - first) * width, now, length, payload + at_byte, bytes);
        at_byte += bytes;
    }
    coder_free(&c);
    return s;
}

#else

static enum pici_status accepts(struct values *v, const struct pici_values *asked, enum pici_op op)
{
    (void)v;
    (void)asked;
    (void)op;
    return PICI_E_UNSUPPORTED;
}

#endif

const struct pici_codec pici_codec_zfp = {
    .name = "zfp",
    .id = PICI_VALUES_ZFP,
    .arrays = 2,
    .accepts = accepts,
    .unit = unit,
    .most = most,
    .dtype = dtype,
#ifdef PICI_HAVE_ZFP
    .narrow = narrow,
    .widen = widen,
#endif
};
