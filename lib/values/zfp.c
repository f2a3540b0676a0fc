/* SPDX-License-Identifier: BSD-3-Clause
 *
 * ZFP: units of elements are compressed by libzfp, each on its own. libzfp does not check the bounds of a stream, and
 * cannot encode all values: comments say where. Without libzfp there is no such codec. */
#include <math.h> /* macros only: the library is not linked with libm */
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "values/residual.h"
#include "values/values.h"

enum { LENGTHS, PAYLOAD, RATE = 1, TOLERANCE = 2, WORD = 8 /* bytes of a length's unit */ };
#define RAW UINT32_MAX

static uint64_t unit(const struct values *values)
{
    if (values->ny)
        return (uint64_t)4 * values->nx * values->ny;
    return values->nx ? (uint64_t)4 * values->nx : TILE;
}

static uint64_t units(const struct values *values, uint64_t count)
{
    return count / unit(values) + (count % unit(values) != 0);
}

static uint64_t most(const struct values *values, int array, uint64_t count)
{
    return array == LENGTHS ? units(values, count) : count * pici_dtype_width(values->dtype);
}

static enum pici_dtype dtype(const struct values *values, int array)
{
    (void)values;
    return array == LENGTHS ? PICI_U32 : PICI_U8;
}

#ifdef PICI_HAVE_ZFP
#include <zfp.h>

static unsigned dims(const struct values *values)
{
    if (values->ny)
        return 3;
    return values->nx ? 2 : 1;
}

/* floor(log2(number)) of number > 0; of denormal numbers libzfp's least. */
static int exponent(double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits >> 52 ? (int)(bits >> 52) - 1023 : ZFP_MIN_EXP;
}

/* Bits of a block of 4^d elements at a rate. */
static unsigned block_bits(const struct values *values)
{
    return (unsigned)((double)(1u << 2 * dims(values)) * values->parameter + .5);
}

static enum pici_status accepts(struct values *values, const struct pici_values *requested, enum pici_op operation)
{
    if ((values->dtype != PICI_F32 && values->dtype != PICI_F64) || (operation != PICI_SUM && operation != PICI_AVG))
        return PICI_E_UNSUPPORTED;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    if (stream_word_bits != 8) /* streams would depend on the byte order */
        return PICI_E_UNSUPPORTED;
#endif
    if (!(requested->rate > 0) == !(requested->tolerance > 0) || !(requested->rate >= 0) ||
        !(requested->tolerance >= 0) || isinf(requested->tolerance) || (requested->ny && !requested->nx))
        return PICI_E_ARG;
    values->nx = requested->nx;
    values->ny = requested->ny;
    values->bits = requested->rate > 0 ? RATE : TOLERANCE;
    values->parameter = requested->rate > 0 ? requested->rate : requested->tolerance;
    values->norm = (int)zfp_codec_version;
    const double width = 8 * (double)pici_dtype_width(values->dtype);
    if (values->bits == RATE &&
        (values->parameter > width || block_bits(values) < (values->dtype == PICI_F32 ? 9 : 12)))
        return PICI_E_ARG;
    /* units and their lengths must be counted in 64 and 32 bits */
    if ((uint64_t)values->nx * (values->ny ? values->ny : 1) > UINT32_MAX / 4)
        return PICI_E_ARG;
    return PICI_OK;
}

/* ---- one unit */

/* What a thread needs for units of a call. */
struct unit_coder {
    const struct values *values;
    zfp_stream *zfp;
    zfp_field *field;
    uint8_t *room; /* the longest stream of a whole unit */
    size_t room_bytes;
};

static zfp_type type_of(const struct values *values)
{
    return values->dtype == PICI_F32 ? zfp_type_float : zfp_type_double;
}

/* Let the coder's field be count elements. */
static void set_field(const struct unit_coder *coder, uint64_t count)
{
    const struct values *values = coder->values;
    if (values->ny)
        zfp_field_set_size_3d(coder->field, values->nx, values->ny, (size_t)(count / values->nx / values->ny));
    else if (values->nx)
        zfp_field_set_size_2d(coder->field, values->nx, (size_t)(count / values->nx));
    else
        zfp_field_set_size_1d(coder->field, (size_t)count);
}

static void coder_free(struct unit_coder *coder)
{
    if (coder->field)
        zfp_field_free(coder->field);
    if (coder->zfp)
        zfp_stream_close(coder->zfp);
    free(coder->room);
}

/* For segments of `total_count` elements. */
static enum pici_status coder_new(struct unit_coder *coder, const struct values *values, uint64_t total_count)
{
    *coder = (struct unit_coder){.values = values, .zfp = zfp_stream_open(NULL), .field = zfp_field_alloc()};
    if (coder->zfp && coder->field) {
        const int dimensions = (int)dims(values),
                  least = values->dtype == PICI_F32 ? 2 * dimensions - 96 : 2 * dimensions - 960;
        /* The usual parameters of a rate give garbage for blocks whose greatest magnitude is tiny: minexp prevents
         * that. */
        const int set = values->bits == RATE ? zfp_stream_set_params(coder->zfp, block_bits(values), block_bits(values),
                                                                     ZFP_MAX_PREC, least)
                                             : zfp_stream_set_params(coder->zfp, ZFP_MIN_BITS, ZFP_MAX_BITS,
                                                                     ZFP_MAX_PREC, exponent(values->parameter));
        zfp_field_set_type(coder->field, type_of(values));
        set_field(coder, total_count < unit(values) ? total_count : unit(values));
        coder->room_bytes = set ? zfp_stream_maximum_size(coder->zfp, coder->field) : 0;
        coder->room = coder->room_bytes ? malloc(coder->room_bytes) : NULL;
    }
    if (coder->room)
        return PICI_OK;
    coder_free(coder);
    return PICI_E_NOMEM;
}

/* Elements of a unit as a stream in the coder's room, or back, which needs the room filled. Returns the stream's
 * bytes, a multiple of WORD. */
static size_t code(const struct unit_coder *coder, void *elements, uint64_t count, int decode)
{
    bitstream *const bits = stream_open(coder->room, coder->room_bytes);
    if (!bits)
        return 0;
    set_field(coder, count);
    zfp_field_set_pointer(coder->field, elements);
    zfp_stream_set_bit_stream(coder->zfp, bits);
    zfp_stream_rewind(coder->zfp);
    const size_t bytes = decode ? zfp_decompress(coder->zfp, coder->field) : zfp_compress(coder->zfp, coder->field);
    zfp_stream_set_bit_stream(coder->zfp, NULL);
    stream_close(bits);
    return bytes;
}

/* The words of a whole stream of count elements at a rate. */
static uint64_t words_of_rate(const struct values *values, uint64_t count)
{
    uint64_t row = count, rows = 1, planes = 1;
    if (values->nx) {
        row = values->nx;
        rows = count / values->nx;
    }
    if (values->ny) {
        rows = values->ny;
        planes = count / values->nx / values->ny;
    }
    const uint64_t blocks = (row + 3) / 4 * ((rows + 3) / 4) * ((planes + 3) / 4);
    return (blocks * block_bits(values) + 8 * WORD - 1) / (8 * WORD);
}

/* The greatest magnitude of count elements, or infinity for NaN. */
static double greatest(const struct values *values, const void *source, uint64_t count)
{
    double most_of = 0;
    for (uint64_t i = 0; i < count; i++) {
        double number;
        float single;
        if (values->dtype == PICI_F32) {
            memcpy(&single, (const uint8_t *)source + i * sizeof single, sizeof single);
            number = __builtin_fabs((double)single);
        } else {
            memcpy(&number, (const uint8_t *)source + i * sizeof number, sizeof number);
            number = __builtin_fabs(number);
        }
        if (!(number <= most_of))
            most_of = isnan(number) ? (double)INFINITY : number;
    }
    return most_of;
}

/* Elements in stored order, or back. */
static void copy_raw(const struct values *values, uint8_t *output, const uint8_t *input, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (values->dtype == PICI_F32) {
            uint32_t word;
            memcpy(&word, input + 4 * i, 4);
            word = le32(word);
            memcpy(output + 4 * i, &word, 4);
        } else {
            uint64_t word;
            memcpy(&word, input + 8 * i, 8);
            word = le64(word);
            memcpy(output + 8 * i, &word, 8);
        }
    }
}

/* One unit to its length and its bytes at `output`; returns how many bytes. */
static enum pici_status quantize_unit(const struct unit_coder *coder, uint32_t *length, uint8_t *output, size_t *bytes,
                                      const uint8_t *source, uint64_t count, int *finite)
{
    const struct values *values = coder->values;
    const size_t raw = (size_t)count * pici_dtype_width(values->dtype);
    const double most_of = greatest(values, source, count);
    *finite = !isinf(most_of);
    *bytes = 0;
    *length = 0;
    if (most_of == 0)
        return PICI_OK;
    /* libzfp's results are undefined for numbers that are not finite, and it overflows near the greatest ones */
    if (most_of <= (values->dtype == PICI_F32 ? 0x1p126 : 0x1p1022)) {
        void *elements = malloc(raw); /* zfp's pointer is not const, and wants alignment */
        if (!elements)
            return PICI_E_NOMEM;
        memcpy(elements, source, raw);
        const size_t made = code(coder, elements, count, 0), padded = (made + WORD - 1) / WORD * WORD;
        free(elements);
        if (!made)
            return PICI_E_NOMEM;
        if (padded < raw) {
            memset(output, 0, padded);
            memcpy(output, coder->room, made);
            *length = (uint32_t)(padded / WORD);
            *bytes = padded;
            return PICI_OK;
        }
    }
    copy_raw(values, output, source, count);
    *length = RAW;
    *bytes = raw;
    return PICI_OK;
}

/* The bytes of a unit of count elements with this length, if the rules allow it; else 0 and *broken = 1. */
static size_t unit_bytes(const struct values *values, uint32_t length, uint64_t count, int *broken)
{
    const size_t raw = (size_t)count * pici_dtype_width(values->dtype);
    if (length == RAW || !length)
        return length ? raw : 0;
    *broken |= (uint64_t)length * WORD >= raw || (values->bits == RATE && length != words_of_rate(values, count));
    return *broken ? 0 : (size_t)length * WORD;
}

static enum pici_status dequantize_unit(const struct unit_coder *coder, uint8_t *destination, uint64_t count,
                                        uint32_t length, const uint8_t *input, size_t bytes)
{
    const size_t raw = (size_t)count * pici_dtype_width(coder->values->dtype);
    if (!length)
        memset(destination, 0, raw);
    else if (length == RAW)
        copy_raw(coder->values, destination, input, count);
    else {
        /* libzfp reads beyond the end of a malformed stream: pad it with zeros. */
        const size_t kept = bytes < coder->room_bytes ? bytes : coder->room_bytes;
        memcpy(coder->room, input, kept);
        memset(coder->room + kept, 0, coder->room_bytes - kept);
        void *elements = calloc(1, raw);
        if (!elements)
            return PICI_E_NOMEM;
        const size_t read = code(coder, elements, count, 1);
        memcpy(destination, elements, raw);
        free(elements);
        if (!read)
            return PICI_E_CORRUPT;
    }
    return PICI_OK;
}

/* ---- all of them */

static enum pici_status quantize(const struct values *values, const struct values_where *context,
                                 void *const outputs[VALUES_ARRAYS], uint64_t made_counts[VALUES_ARRAYS],
                                 const void *source, uint64_t count, struct values_loss *loss)
{
    struct unit_coder coder;
    const size_t width = pici_dtype_width(values->dtype);
    (void)context;
    made_counts[LENGTHS] = units(values, count);
    made_counts[PAYLOAD] = 0;
    if (!count)
        return PICI_OK;
    enum pici_status status = coder_new(&coder, values, count);
    if (status)
        return status;
    uint8_t *decoded = loss ? malloc((size_t)(count < unit(values) ? count : unit(values)) * width) : NULL;
    status = loss && !decoded ? PICI_E_NOMEM : PICI_OK;
    for (uint64_t offset = 0, taken, i = 0; offset < count && !status; offset += taken, i++) {
        const uint8_t *const input = (const uint8_t *)source + offset * width;
        uint8_t *const output = (uint8_t *)outputs[PAYLOAD] + made_counts[PAYLOAD];
        uint32_t length;
        size_t bytes;
        int finite;
        taken = count - offset < unit(values) ? count - offset : unit(values);
        status = quantize_unit(&coder, &length, output, &bytes, input, taken, &finite);
        memcpy((uint8_t *)outputs[LENGTHS] + i * sizeof length, &length, sizeof length);
        made_counts[PAYLOAD] += bytes;
        if (!status && loss) {
            status = dequantize_unit(&coder, decoded, taken, length, output, bytes);
            if (!status)
                pici_values_accumulate(values, loss, offset, input, decoded, taken, NULL);
            loss->nonfinite += !finite;
        }
    }
    free(decoded);
    coder_free(&coder);
    return status;
}

static enum pici_status dequantize(const struct values *values, void *destination, uint64_t first_element,
                                   uint64_t count, uint64_t total_count, const void *const inputs[VALUES_ARRAYS],
                                   const uint64_t input_counts[VALUES_ARRAYS])
{
    const size_t width = pici_dtype_width(values->dtype);
    const uint8_t *const lengths = inputs[LENGTHS], *const payload = inputs[PAYLOAD];
    uint64_t at_byte = 0;
    int broken = input_counts[LENGTHS] != units(values, total_count);
    struct unit_coder coder;
    if (broken)
        return PICI_E_CORRUPT;
    /* all lengths, before anything is read by them */
    for (uint64_t offset = 0, i = 0; offset < total_count; offset += unit(values), i++) {
        uint32_t length;
        memcpy(&length, lengths + i * sizeof length, sizeof length);
        at_byte += unit_bytes(values, length, total_count - offset < unit(values) ? total_count - offset : unit(values),
                              &broken);
    }
    if (broken || at_byte != input_counts[PAYLOAD])
        return PICI_E_CORRUPT;
    if (!count)
        return PICI_OK;
    enum pici_status status = coder_new(&coder, values, total_count);
    if (status)
        return status;
    at_byte = 0;
    for (uint64_t offset = 0, i = 0, taken; offset < first_element + count && !status; offset += taken, i++) {
        uint32_t length;
        memcpy(&length, lengths + i * sizeof length, sizeof length);
        taken = total_count - offset < unit(values) ? total_count - offset : unit(values);
        const size_t bytes = unit_bytes(values, length, taken, &broken);
        if (offset >= first_element)
            status = dequantize_unit(&coder, (uint8_t *)destination + (offset - first_element) * width, taken, length,
                                     payload + at_byte, bytes);
        at_byte += bytes;
    }
    coder_free(&coder);
    return status;
}

#else

static enum pici_status accepts(struct values *values, const struct pici_values *requested, enum pici_op operation)
{
    (void)values;
    (void)requested;
    (void)operation;
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
    .quantize = quantize,
    .dequantize = dequantize,
#endif
};
