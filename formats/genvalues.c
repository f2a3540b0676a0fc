/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writes the golden vectors of value codecs, values.txt (syntax: vectors/README.md), into the directory named by its
 * argument. This file states by hand what decoders must reject; ref_values.c only has to agree. */
#include "gentext.h"
#include "ref_values.h"

static const char *const dtype_names[] = {"", "f32", "f64", "f16", "bf16"};

/* The arrays of a case. */
struct arrays {
    void *of[REF_VALUES_ARRAYS];
    uint64_t count[REF_VALUES_ARRAYS];
    unsigned width[REF_VALUES_ARRAYS];
};

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
    for (int i = 0; i < REF_VALUES_ARRAYS; i++)
        put_array(a->of[i], a->count[i], a->width[i]);
}

static void refuse(const char *what, const struct ref_values *v, uint64_t n, const struct arrays *a)
{
    const void *const in[] = {a->of[0], a->of[1]};
    void *dst = memory((size_t)n * 8);
    if (ref_values_dequantize(dst, v, in, a->count, n) != REF_E_CORRUPT)
        fail("is not refused", what);
    put_arrays("refuse", a);
    free(dst);
}

/* Break each rule of a scale or a code alone. v->bits is 2, 4 or 8; the first bucket has codes. */
static void put_refused(const struct ref_values *v, uint64_t n, struct arrays *a)
{
    const unsigned width = a->width[0];
    const uint64_t one = ref_load(a->of[0], 0, width), top = width == 8 ? UINT64_C(0x7ff) << 52 : 0x7f800000;
    const uint64_t nan = top | (width == 8 ? UINT64_C(1) << 51 : 1 << 22), sign = UINT64_C(1) << (8 * width - 1);
    const uint64_t bad[] = {one | sign, sign, top, top | sign, nan | 1, nan | sign, top | 1, 0, nan};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) { /* the last two are bad because codes are not 0 */
        ref_store(a->of[0], 0, width, bad[i]);
        refuse("a scale", v, n, a);
    }
    ref_store(a->of[0], 0, width, one);
    uint8_t *codes = a->of[1];
    const uint8_t first = codes[0];
    codes[0] = (uint8_t)((first & ~((1u << v->bits) - 1)) | 1u << (v->bits - 1));
    refuse("a code", v, n, a);
    codes[0] = first;
    if (n * v->bits % 8) {
        codes[a->count[1] - 1] ^= 0x80;
        refuse("spare bits", v, n, a);
        codes[a->count[1] - 1] ^= 0x80;
    }
    for (int i = 0; i < REF_VALUES_ARRAYS; i++) {
        a->count[i]--;
        refuse("a count", v, n, a);
        a->count[i]++;
    }
}

static void put_case(const char *pattern, const struct ref_values *v, const void *src, uint64_t n, int refused)
{
    const unsigned width = ref_width(v->dtype);
    struct arrays a = {0};
    void *result = memory((size_t)n * width);
    cases++;
    ref_values_counts(a.count, a.width, v, n);
    for (int i = 0; i < REF_VALUES_ARRAYS; i++)
        a.of[i] = memory((size_t)a.count[i] * a.width[i]);
    const void *const in[] = {a.of[0], a.of[1]};
    ref_values_quantize(a.of, v, src, n);
    if (ref_values_dequantize(result, v, in, a.count, n))
        fail("does not decode", pattern);
    fprintf(out, "case %s-%s-%" PRIu64 "\n", dtype_names[v->dtype], pattern, n);
    if (v->codec == REF_CAST)
        fprintf(out, "cast %s %s\n", dtype_names[v->cast], v->positive ? "positive" : "exact");
    else
        fprintf(out, "qsgd %u %s %s %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu32 "\n", v->bits,
                v->l2 ? "l2" : "max", v->nearest ? "nearest" : "random", v->bucket, v->seed, v->first, v->sequence,
                v->phase, v->origin);
    column = (size_t)fprintf(out, "elements %s %" PRIu64, dtype_names[v->dtype], n);
    put_array(src, n, width);
    column = (size_t)fprintf(out, "result");
    put_array(result, n, width);
    put_arrays("arrays", &a);
    if (refused)
        put_refused(v, n, &a);
    for (int i = 0; i < REF_VALUES_ARRAYS; i++)
        free(a.of[i]);
    free(result);
}

/* A number of magnitude 2^-spread to 2, with exponents `raise` higher. */
static uint64_t some(unsigned dtype, unsigned spread, int raise)
{
    static const struct {
        int mantissa, bias;
    } kinds[] = {{23, 127}, {52, 1023}, {10, 15}, {7, 127}};
    const int mantissa = kinds[dtype - 1].mantissa, bias = kinds[dtype - 1].bias;
    const uint64_t bits = next(), low = (bits >> 8) & ((UINT64_C(1) << mantissa) - 1);
    return (bits & 1) << (8 * ref_width(dtype) - 1) |
           (uint64_t)(bias + raise - (int)((bits >> 1) % spread)) << mantissa | low;
}

static void put_random(const char *pattern, struct ref_values v, uint64_t n, unsigned density, int raise, int refused)
{
    const unsigned width = ref_width(v.dtype);
    void *src = memory((size_t)n * width);
    state = cases + 1;
    for (uint64_t i = 0; i < n; i++)
        if (i < 2 || next() % 1000 < density)
            ref_store(src, i, width, some(v.dtype, 6, raise));
    put_case(pattern, &v, src, n, refused);
    free(src);
}

static void put_specials(struct ref_values v, const char *pattern)
{
    /* each is followed by a bucket of other elements: none, -0, the least, NaN, infinity, the greatest, two equal */
    const unsigned width = ref_width(v.dtype);
    const uint64_t sign = UINT64_C(1) << (8 * width - 1);
    const uint64_t infinity = v.dtype == REF_F32   ? 0x7f800000
                              : v.dtype == REF_F64 ? UINT64_C(0x7ff) << 52
                              : v.dtype == REF_F16 ? 0x7c00
                                                   : 0x7f80;
    const uint64_t what[7][2] = {{0, 0},
                                 {sign, 0},
                                 {1, sign | 2},
                                 {infinity | 1, 1},
                                 {infinity | sign, infinity | 3},
                                 {infinity - 1, sign | (infinity - 1)},
                                 {infinity / 2 | 1, sign | infinity / 2 | 1}};
    const uint64_t n = 7 * 64;
    void *src = memory((size_t)n * width);
    for (uint64_t i = 0; i < n; i++)
        ref_store(src, i, width, i % 64 < 40 ? what[i / 64][i % 2] : 0);
    put_case(pattern, &v, src, n, 0);
    free(src);
}

static void put_qsgd(void)
{
    static const unsigned widths[] = {8, 4, 2};
    static const uint64_t lengths[] = {1, 63, 64, 65, 131, 300};
    for (unsigned dtype = REF_F32; dtype <= REF_BF16; dtype++) {
        struct ref_values v = {.codec = REF_QSGD, .dtype = dtype, .bucket = 64};
        for (int i = 0; i < 3; i++)
            for (int how = 0; how < 4; how++) {
                v.bits = widths[i];
                v.l2 = how & 1;
                v.nearest = how >> 1;
                v.seed = v.nearest ? 0 : UINT64_C(0x123456789abcdef) * (cases + 1);
                v.first = v.nearest ? 0 : 64 * cases;
                v.sequence = UINT64_C(0x300000000) + cases;
                v.phase = cases % 2;
                v.origin = (uint32_t)(cases % 5);
                put_random("qsgd", v, 131, 900, 0, !how);
                put_specials(v, "specials");
            }
        v.l2 = v.nearest = 0;
        v.bits = 4;
        for (int i = 0; i < 6; i++) {
            v.first = (uint64_t)i + (i == 5 ? UINT64_C(1) << 34 : 0);
            put_random("length", v, lengths[i], 1000, 0, 0);
        }
        v.bucket = 4096;
        v.first = 0;
        put_random("bucket", v, 4100, 20, 0, 0);
        v.bucket = 64;
        v.l2 = 1;
        for (int raise = -1; raise < 2; raise += 2) /* sums of squares that f64 could not hold */
            put_random("range", v, 70, 1000, raise * (dtype == REF_F64 ? 1000 : dtype == REF_F16 ? 8 : 110), 0);
    }
}

static void put_casts(void)
{
    static const unsigned casts[][2] = {{REF_F32, REF_BF16}, {REF_F32, REF_F16}, {REF_F64, REF_F32}};
    for (int i = 0; i < 3; i++)
        for (int positive = 0; positive < 2; positive++) {
            const struct ref_values v = {
                .codec = REF_CAST, .dtype = casts[i][0], .cast = casts[i][1], .positive = positive};
            put_random("cast", v, 70, 800, 0, 0);
            put_random("cast-small", v, 70, 1000, casts[i][1] == REF_F16 ? -20 : -120, 0);
            put_random("cast-large", v, 70, 1000, casts[i][1] == REF_F16 ? 17 : 124, 0);
            put_specials(v, "cast-specials");
        }
}

int main(int argc, char **argv)
{
    if (argc != 2)
        fail("usage: genvalues DIRECTORY", argv[0]);
    open_file(argv[1], "values.txt", "genvalues.c");
    put_casts();
    put_qsgd();
    close_file("values.txt");
    return 0;
}
