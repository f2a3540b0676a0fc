/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writes the golden vectors of the lossy codec ZFP, zfp.txt (syntax: vectors/README.md), into the directory that its
 * argument names. libzfp makes the streams, called as values.md says and without code of the library. ref_values.c
 * makes and checks the rest. */
#include <math.h>
#include <zfp.h>

#include "gentext.h"
#include "ref_values.h"

/* The arrays of a case. */
struct arrays {
    uint32_t *lengths;
    uint8_t *payload;
    uint64_t count[REF_VALUES_ARRAYS];
};

/* Encode one unit of n elements to a stream, padded to 8 bytes, or decode it. Returns the stream's bytes. */
static size_t stream(const struct ref_values *v, void *elements, uint64_t n, uint8_t *bytes, size_t room, int decode)
{
    const int d = v->ny ? 3 : v->nx ? 2 : 1;
    const zfp_type type = v->dtype == REF_F64 ? zfp_type_double : zfp_type_float;
    zfp_field *field = d == 3   ? zfp_field_3d(elements, type, v->nx, v->ny, (size_t)n / v->nx / v->ny)
                       : d == 2 ? zfp_field_2d(elements, type, v->nx, (size_t)n / v->nx)
                                : zfp_field_1d(elements, type, (size_t)n);
    bitstream *bits = stream_open(bytes, room);
    zfp_stream *z = zfp_stream_open(bits);
    const unsigned r = (unsigned)(pow(4, d) * v->rate + 0.5);
    if (v->rate > 0)
        zfp_stream_set_params(z, r, r, 64, 2 * d - (v->dtype == REF_F64 ? 960 : 96));
    else
        zfp_stream_set_params(z, 1, 16658, 64, (int)floor(log2(v->tolerance)));
    if (zfp_stream_maximum_size(z, field) > room)
        fail("a stream is too long", "zfp");
    const size_t made = decode ? zfp_decompress(z, field) : zfp_compress(z, field);
    if (!made)
        fail("libzfp failed", "zfp");
    zfp_stream_close(z);
    stream_close(bits);
    zfp_field_free(field);
    return (made + 7) / 8 * 8;
}

static double element(const void *src, unsigned dtype, uint64_t i)
{
    return dtype == REF_F64 ? ((const double *)src)[i] : (double)((const float *)src)[i];
}

static void quantize(struct arrays *a, const struct ref_values *v, const void *src, uint64_t n)
{
    const unsigned width = ref_width(v->dtype);
    const double limit = ldexp(1, v->dtype == REF_F64 ? 1022 : 126);
    a->count[0] = a->count[1] = 0;
    for (uint64_t at = 0; at < n; at += ref_zfp_unit(v)) {
        const uint64_t now = n - at < ref_zfp_unit(v) ? n - at : ref_zfp_unit(v);
        const size_t room = (size_t)now * width * 4 + 4096, raw = (size_t)now * width;
        uint8_t *bytes = memory(room), *copy = memory(raw);
        int zeros = 1, takes = 1;
        for (uint64_t i = at; i < at + now; i++) {
            zeros &= element(src, v->dtype, i) == 0;
            takes &= fabs(element(src, v->dtype, i)) <= limit; /* 0 for NaN */
        }
        memcpy(copy, (const uint8_t *)src + at * width, raw);
        const size_t made = takes && !zeros ? stream(v, copy, now, bytes, room, 0) : SIZE_MAX;
        uint8_t *to = a->payload + a->count[1];
        if (zeros) {
            a->lengths[a->count[0]++] = 0;
        } else if (made < raw) {
            memcpy(to, bytes, made);
            a->lengths[a->count[0]++] = (uint32_t)(made / 8);
            a->count[1] += made;
        } else {
            for (uint64_t i = 0; i < now; i++)
                ref_put(to + i * width, width, ref_load(src, at + i, width));
            a->lengths[a->count[0]++] = UINT32_MAX;
            a->count[1] += raw;
        }
        free(bytes);
        free(copy);
    }
}

/* Decode all units: the reference decodes zeros and raw ones; libzfp decodes streams, from a buffer padded with
 * zeros. */
static void dequantize(void *dst, const struct ref_values *v, const struct arrays *a, uint64_t n)
{
    const unsigned width = ref_width(v->dtype);
    const void *const in[] = {a->lengths, a->payload};
    uint64_t from = 0;
    for (uint64_t at = 0, i = 0; at < n; at += ref_zfp_unit(v), i++) {
        const uint64_t now = n - at < ref_zfp_unit(v) ? n - at : ref_zfp_unit(v);
        const int raw = a->lengths[i] == UINT32_MAX;
        const size_t bytes = raw ? (size_t)now * width : (size_t)8 * a->lengths[i],
                     room = (size_t)now * width * 4 + 4096;
        if (!raw && bytes) {
            uint8_t *padded = memory(room);
            memcpy(padded, a->payload + from, bytes);
            stream(v, (uint8_t *)dst + at * width, now, padded, room, 1);
            free(padded);
        }
        from += bytes;
    }
    if (ref_values_dequantize(dst, v, in, a->count, n))
        fail("the reference refuses its arrays", "zfp");
}

static void put_array(const void *array, uint64_t n, unsigned width)
{
    uint8_t *bytes = memory((size_t)n * width);
    for (uint64_t i = 0; i < n; i++)
        ref_put(bytes + i * width, width, ref_load(array, i, width));
    put_bytes(bytes, (size_t)n * width);
    free(bytes);
}

static void put_arrays(const char *word, const struct arrays *a)
{
    column = (size_t)fprintf(out, "%s", word);
    put_array(a->lengths, a->count[0], 4);
    put_array(a->payload, a->count[1], 1);
}

static void refuse(const struct ref_values *v, const struct arrays *a, uint64_t n)
{
    const void *const in[] = {a->lengths, a->payload};
    void *dst = memory((size_t)n * 8);
    if (ref_values_dequantize(dst, v, in, a->count, n) != REF_E_CORRUPT)
        fail("is not refused", "zfp");
    put_arrays("refuse", a);
    free(dst);
}

/* Break each rule alone. */
static void put_refused(const struct ref_values *v, struct arrays *a, uint64_t n)
{
    const uint32_t first = a->lengths[0], bad[] = {1, first + 1, 0x20000000, UINT32_MAX - 1, first ? 0 : 7};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        a->lengths[0] = bad[i];
        refuse(v, a, n);
    }
    a->lengths[0] = first;
    for (int i = 0; i < REF_VALUES_ARRAYS; i++) {
        a->count[i]--;
        refuse(v, a, n);
        a->count[i]++;
    }
}

enum what { SMOOTH, NOISE, SPECIAL };

static void put_case(const struct ref_values *v, enum what what, uint64_t n)
{
    static const char *const words[] = {"smooth", "noise", "special"};
    const unsigned width = ref_width(v->dtype);
    const uint64_t unit = ref_zfp_unit(v);
    struct arrays a = {memory((size_t)(n / unit + 1) * 4), memory((size_t)n * width + 8), {0, 0}};
    uint8_t *src = memory((size_t)n * width), *result = memory((size_t)n * width);
    state = ++cases;
    for (uint64_t i = 0; i < n; i++) {
        const double noise = (double)(next() >> 11) * 0x1p-52 - 1, ramp = (double)(i % unit) / (double)unit;
        double x = what == NOISE ? noise : ramp * (1 - ramp) + (v->nx ? ramp * (double)(i % v->nx) / 64 : 0);
        if (what == SPECIAL) /* units of zeros, -0.0, NaN, infinity, the greatest that is not raw, and above it, tiny */
            switch (i / unit % 7) {
            case 0: x = 0; break;
            case 1: x = i % 3 ? -0.0 : 0; break;
            case 2: x = i % 50 == 7 ? (double)NAN : x; break;
            case 3: x = i % 50 == 7 ? -(double)INFINITY : x; break;
            case 4: x = i % 50 == 7 ? ldexp(1, width == 8 ? 1022 : 126) : x; break;
            case 5: x = i % 50 == 7 ? ldexp(1.25, width == 8 ? 1022 : 126) : -x; break;
            default: x = ldexp(noise, width == 8 ? -1000 : -120); break;
            }
        const float f = (float)x;
        memcpy(src + i * width, width == 8 ? (const void *)&x : (const void *)&f, width);
    }
    quantize(&a, v, src, n);
    dequantize(result, v, &a, n);
    fprintf(out, "case zfp-%s-%" PRIu64 "\nzfp %s %.17g %" PRIu32 " %" PRIu32 "\n", words[what], n,
            v->rate > 0 ? "rate" : "tolerance", v->rate > 0 ? v->rate : v->tolerance, v->nx, v->ny);
    column = (size_t)fprintf(out, "elements %s %" PRIu64, width == 8 ? "f64" : "f32", n);
    put_array(src, n, width);
    column = (size_t)fprintf(out, "result");
    put_array(result, n, width);
    put_arrays("arrays", &a);
    if (what == SMOOTH)
        put_refused(v, &a, n);
    free(a.lengths);
    free(a.payload);
    free(src);
    free(result);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        fail("usage: genzfp DIRECTORY", argv[0]);
    if (stream_word_bits != 8 || zfp_codec_version != 5)
        fail("streams are those of codec version 5, with words of 8 bits", "libzfp");
    open_file(argv[1], "zfp.txt", "genzfp.c");
    for (int i = 0; i < 12; i++) {
        const int d = 1 + i % 3, wide = i / 3 % 2, rate = i / 6;
        const struct ref_values v = {.codec = REF_ZFP,
                                     .dtype = wide ? REF_F64 : REF_F32,
                                     .rate = rate ? 6.5 : 0,
                                     .tolerance = rate ? 0 : 0.003,
                                     .nx = d > 1 ? 5 : 0,
                                     .ny = d > 2 ? 2 : 0};
        const uint64_t step = d == 1 ? 1 : d == 2 ? 5 : 10;
        put_case(&v, SMOOTH, 64 / step * step);
        put_case(&v, NOISE, 64 / step * step);
        if (d > 1)
            put_case(&v, SPECIAL, 7 * ref_zfp_unit(&v) - step); /* the last unit is short */
    }
    const struct ref_values line = {.codec = REF_ZFP, .dtype = REF_F32, .tolerance = 0.25};
    put_case(&line, SPECIAL, 2 * 4096 + 5);
    close_file("zfp.txt");
    return 0;
}
