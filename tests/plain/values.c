/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Lossy codecs, without a test framework: every ISA against formats/ref_values.c, between guard pages at odd addresses;
 * arrays that break rules; errors as formats/values.md bounds them; golden vectors; Philox's known answers. The last
 * line is "N passed, M failed".
 *   plain_values [DIRECTORY]      of the vectors; formats/vectors otherwise */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "formats/ref_values.h"
#include "philox.h"
#include "tests/util/util.h"
#include "values/values.h"

enum { MOST = 9000, BUFFERS = 5 }; /* elements; source, arrays, result, residual */
static const enum pici_dtype dtypes[] = {PICI_F32, PICI_F64, PICI_F16, PICI_BF16};

static struct rng rng = {7};
static struct guard guard[BUFFERS];

/* ---- Philox */

static void known_answers(void)
{
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } answers[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        uint32_t ours[4], reference[4];
        philox4x32(ours, answers[i].counter, answers[i].key);
        ref_philox(reference, answers[i].counter, answers[i].key);
        tally("Philox's known answers", memcmp(ours, answers[i].want, sizeof ours)             ? "the library"
                                        : memcmp(reference, answers[i].want, sizeof reference) ? "the reference"
                                                                                               : NULL);
    }
}

/* ---- parameters */

static uint64_t any64(void)
{
    return rng_next(&rng) >> rng_below(&rng, 64);
}

/* Parameters for elements of a dtype. */
static struct pici_values some_values(enum pici_dtype dtype)
{
    struct pici_values v = PICI_VALUES_INIT;
    const int can_cast = dtype == PICI_F32 || dtype == PICI_F64;
    v.codec = can_cast && rng_chance(&rng, 200000) ? PICI_VALUES_CAST : PICI_VALUES_QSGD;
    if (v.codec == PICI_VALUES_CAST) {
        v.cast = dtype == PICI_F64 ? PICI_F32 : rng_below(&rng, 2) ? PICI_F16 : PICI_BF16;
        return v;
    }
    v.bits = 2 << rng_below(&rng, 3);
    v.bucket = 64u << rng_below(&rng, 7);
    v.norm = rng_chance(&rng, 300000) ? PICI_NORM_L2 : PICI_NORM_MAX;
    v.rounding = rng_chance(&rng, 300000) ? PICI_ROUND_NEAREST : PICI_ROUND_RANDOM;
    v.seed = any64();
    return v;
}

static struct ref_values reference_of(const struct values *v, const struct values_where *w)
{
    return (struct ref_values){.codec = (unsigned)v->codec->id,
                               .dtype = (unsigned)v->dtype,
                               .cast = (unsigned)v->cast,
                               .positive = v->positive,
                               .bits = (unsigned)v->bits,
                               .bucket = v->bucket,
                               .l2 = v->norm == PICI_NORM_L2,
                               .nearest = v->rounding == PICI_ROUND_NEAREST,
                               .seed = v->seed,
                               .first = w->first,
                               .sequence = w->sequence,
                               .phase = (uint32_t)w->gather,
                               .origin = (uint32_t)w->origin};
}

/* ---- elements */

enum kind { ANY_BITS, GRADIENT, SPARSE, FINITE, TINY, HUGE_ONES, EQUAL, KINDS };

static uint64_t one(enum pici_dtype t, enum kind kind)
{
    const unsigned mantissa = t == PICI_F32 ? 23 : t == PICI_F64 ? 52 : t == PICI_F16 ? 10 : 7;
    const uint64_t bias = t == PICI_F64 ? 1023 : t == PICI_F16 ? 15 : 127, top = 2 * bias + 1;
    const uint64_t sign = rng_next(&rng) & 1, fraction = rng_next(&rng) >> (64 - mantissa);
    uint64_t exponent = bias - rng_below(&rng, 8);
    if (kind == FINITE)
        exponent = rng_below(&rng, top);
    if (kind == TINY)
        exponent = rng_below(&rng, 3) * rng_below(&rng, t == PICI_F16 ? 3 : 30);
    if (kind == HUGE_ONES)
        exponent = top - 1 - rng_below(&rng, 4);
    return sign << (8 * pici_dtype_width(t) - 1) | exponent << mantissa | fraction;
}

static void fill(void *array, uint64_t n, enum pici_dtype t, enum kind kind)
{
    const unsigned width = (unsigned)pici_dtype_width(t);
    const uint64_t equal = one(t, GRADIENT), minus = UINT64_C(1) << (8 * width - 1);
    for (uint64_t i = 0; i < n; i++)
        ref_store(array, i, width,
                  kind == ANY_BITS ? (rng_chance(&rng, 900000) ? one(t, GRADIENT)
                                      : rng_below(&rng, 2)     ? 0
                                                               : value_random(&rng, t))
                  : kind == SPARSE ? (rng_chance(&rng, 20000) ? one(t, GRADIENT)
                                      : rng_below(&rng, 60)   ? 0
                                                              : minus)
                  : kind == EQUAL  ? (rng_below(&rng, 2) ? equal : equal ^ minus)
                                   : one(t, kind));
}

/* ---- the library beside the reference */

struct subject_values {
    struct values v;
    struct values_where where;
    uint64_t n;
    char name[240];
};

static struct subject_values some_subject(enum pici_dtype dtype)
{
    static const uint64_t lengths[] = {0, 1, 2, 3, 63, 64, 65, 127, 1023, 1024, 1025, 4095, 4096, 4097, 8192};
    struct subject_values s;
    const struct pici_values asked = some_values(dtype);
    s.n = rng_below(&rng, 2) ? lengths[rng_below(&rng, sizeof lengths / sizeof *lengths)] : rng_below(&rng, MOST);
    s.where = (struct values_where){any64() >> 2, any64(), (int)rng_below(&rng, 2), (int)rng_below(&rng, 1000)};
    if (rng_below(&rng, 2))
        s.where.first &= ~UINT64_C(63);
    else if (rng_below(&rng, 2)) /* the counters of these elements carry into their second word */
        s.where.first = ((1 + rng_below(&rng, 1000)) << 34) - rng_below(&rng, s.n + 1);
    tally("settle", pici_values_resolve(&s.v, &asked, dtype, PICI_SUM) ? "refused" : NULL);
    s.v.positive = (int)rng_below(&rng, 2);
    snprintf(s.name, sizeof s.name,
             "%s %s n=%llu cast=%d positive=%d bits=%d bucket=%u norm=%d rounding=%d first=%llu mod 4", s.v.codec->name,
             pici_dtype_name(dtype), (unsigned long long)s.n, (int)s.v.cast, s.v.positive, s.v.bits, s.v.bucket,
             s.v.norm, s.v.rounding, (unsigned long long)(s.where.first % 4));
    return s;
}

/* A buffer of `bytes` at one end of its pages, and what it is to hold. */
static uint8_t *placed(int i, size_t bytes, const void *from)
{
    uint8_t *p = guard_place(&guard[i], bytes, rng_below(&rng, 2) ? GUARD_START : GUARD_END,
                             rng_below(&rng, 3) ? 0 : (size_t)rng_below(&rng, 70));
    if (from && bytes)
        memcpy(p, from, bytes);
    return p;
}

/* Widen in pieces of whole units, in any order. */
static enum pici_status dequantize_in_pieces(const struct values *v, uint8_t *dst, uint64_t n, const void *const in[2],
                                             const uint64_t have[2])
{
    const uint64_t unit = v->codec->unit(v), width = pici_dtype_width(v->dtype);
    enum pici_status worst = PICI_OK;
    for (uint64_t end = n, first; end; end = first) {
        first = (end - 1) / unit * unit;
        if (first && rng_below(&rng, 2))
            first -= unit;
        const enum pici_status s = v->codec->dequantize(v, dst + first * width, first, end - first, n, in, have);
        worst = s ? s : worst;
    }
    return worst;
}

static const char *beside(const struct subject_values *s, const void *const source, void *const want[2],
                          const uint64_t count[2], const unsigned width[2], const void *result,
                          const void *residual_before, const void *residual_after)
{
    const struct values *const v = &s->v;
    const size_t bytes = (size_t)s->n * pici_dtype_width(v->dtype);
    uint64_t made[2] = {0, 0};
    const uint8_t *src = placed(0, bytes, source);
    void *const out[2] = {placed(1, (size_t)count[0] * width[0], NULL), placed(2, (size_t)count[1] * width[1], NULL)};
    const void *const in[2] = {out[0], out[1]};
    uint8_t *dst = placed(3, bytes, NULL), *residual = placed(4, bytes, residual_before);
    struct values_loss loss = {.residual = residual, .times = 1 + (int)(s->where.sequence % 2)};
    for (int array = 0; array < v->codec->arrays; array++)
        if (v->codec->most(v, array, s->n) != count[array] ||
            pici_dtype_width(v->codec->dtype(v, array)) != width[array])
            return "most elements of an array, or their dtype";
    if (v->codec->quantize(v, &s->where, out, made, src, s->n, NULL) || made[0] != count[0] ||
        (v->codec->arrays > 1 && made[1] != count[1]))
        return "quantize's status or counts";
    for (int array = 0; array < v->codec->arrays; array++)
        if (memcmp(out[array], want[array], (size_t)count[array] * width[array]) != 0)
            return array ? "codes" : "the first array";
    if (v->codec->dequantize(v, dst, 0, s->n, s->n, in, made))
        return "dequantize's status";
    if (memcmp(dst, result, bytes) != 0)
        return "what dequantize makes";
    memset(dst, 0x55, bytes);
    if (dequantize_in_pieces(v, dst, s->n, in, made))
        return "dequantize's status of a piece";
    if (memcmp(dst, result, bytes) != 0)
        return "what dequantize makes of pieces";
    for (int array = 0; array < v->codec->arrays; array++)
        memset(out[array], 0x33, (size_t)count[array] * width[array]);
    if (v->codec->quantize(v, &s->where, out, made, src, s->n, &loss))
        return "quantize's status with a residual";
    for (int array = 0; array < v->codec->arrays; array++)
        if (memcmp(out[array], want[array], (size_t)count[array] * width[array]) != 0)
            return "arrays depend on whether there is a residual";
    if (memcmp(residual, residual_after, bytes) != 0)
        return "the residual";
    if (memcmp(src, source, bytes) != 0)
        return "the source has changed";
    for (int i = 0; i < BUFFERS; i++)
        if (!guard_intact(&guard[i]))
            return "bytes around a buffer";
    return NULL;
}

/* Arrays with some changes: the library must refuse them, or decode them, as the reference does. */
static void hostile(const struct subject_values *s, const struct ref_values *r, void *const arrays[2],
                    const uint64_t count[2], const unsigned width[2], void *want)
{
    const size_t bytes = (size_t)s->n * pici_dtype_width(s->v.dtype);
    const int array = (int)rng_below(&rng, (uint64_t)s->v.codec->arrays);
    const size_t length = (size_t)count[array] * width[array];
    uint8_t *const changed = arrays[array];
    if (!length)
        return;
    static const uint32_t scales[] = {0x80000000, 0x7f800000, 0x7fc00001, 0xffc00000, 0x7fc00000, 0, 1, 0x7f7fffff};
    if (!array && s->v.codec->arrays == 2 && width[0] == 4 && rng_below(&rng, 2))
        ref_store(changed, rng_below(&rng, count[0]), 4, scales[rng_below(&rng, 8)]);
    else if (rng_below(&rng, 2))
        changed[length - 1 - rng_below(&rng, length < 4 ? length : 4)] ^= (uint8_t)(1 + rng_below(&rng, 255));
    else
        changed[rng_below(&rng, length)] = (uint8_t)(0x80 >> rng_below(&rng, 8));
    const void *const reference_in[2] = {arrays[0], arrays[1]};
    const enum ref_status status = ref_values_dequantize(want, r, reference_in, count, s->n);
    for (const struct pici_isa *const *isa = tested_isas(); *isa; isa++) {
        const void *const in[2] = {placed(1, (size_t)count[0] * width[0], arrays[0]),
                                   placed(2, (size_t)count[1] * width[1], arrays[1])};
        uint8_t *dst = placed(3, bytes, NULL);
        char which[300];
        snprintf(which, sizeof which, "%s: changed arrays of %s", (*isa)->name, s->name);
        pici_isa_force(*isa);
        const enum pici_status got = s->v.codec->dequantize(&s->v, dst, 0, s->n, s->n, in, count);
        tally(which, (int)got != (int)status                                    ? "status"
                     : !got && memcmp(dst, want, bytes)                         ? "what is decoded"
                     : !guard_intact(&guard[3])                                 ? "bytes around the result"
                     : dequantize_in_pieces(&s->v, dst, s->n, in, count) != got ? "status in pieces"
                                                                                : NULL);
        for (int less = 0; less < s->v.codec->arrays; less++) {
            uint64_t wrong[2] = {count[0], count[1]};
            wrong[less] -= 1;
            tally(which,
                  s->v.codec->dequantize(&s->v, dst, 0, s->n, s->n, in, wrong) != PICI_E_CORRUPT ? "too short" : NULL);
        }
    }
}

static void check(enum pici_dtype dtype)
{
    const struct subject_values s = some_subject(dtype);
    const struct ref_values r = reference_of(&s.v, &s.where);
    const size_t bytes = (size_t)s.n * pici_dtype_width(dtype);
    uint64_t count[2];
    unsigned width[2];
    ref_values_counts(count, width, &r, s.n);
    void *source = test_alloc(bytes), *result = test_alloc(bytes), *before = test_alloc(bytes),
         *after = test_alloc(bytes);
    void *const want[2] = {test_alloc((size_t)count[0] * width[0]), test_alloc((size_t)count[1] * width[1])};
    const void *const in[2] = {want[0], want[1]};
    fill(source, s.n, dtype, (enum kind)rng_below(&rng, KINDS));
    fill(before, s.n, dtype, rng_below(&rng, 2) ? GRADIENT : ANY_BITS);
    memcpy(after, before, bytes);
    ref_values_quantize(want, &r, source, s.n);
    tally(s.name, ref_values_dequantize(result, &r, in, count, s.n) ? "the reference refuses its arrays" : NULL);
    ref_values_accumulate(after, &r, source, result, s.n, 1 + (unsigned)(s.where.sequence % 2));
    for (const struct pici_isa *const *isa = tested_isas(); *isa; isa++)
        for (int round = 0; round < 2; round++) {
            char which[300];
            snprintf(which, sizeof which, "%s: %s", (*isa)->name, s.name);
            pici_isa_force(*isa);
            tally(which, beside(&s, source, want, count, width, result, before, after));
        }
    for (int i = 0; i < 3; i++)
        hostile(&s, &r, want, count, width, result);
    pici_isa_force(NULL);
    free(source);
    free(result);
    free(before);
    free(after);
    free(want[0]);
    free(want[1]);
}

/* ---- golden vectors */

static int lacks_zfp;

/* The reference, which knows all but streams: with these it agrees about what is refused, and about the other units. */
static void reference_of_zfp(const struct value_vector *c)
{
    const size_t bytes = (size_t)c->n * ref_width(c->v.dtype);
    uint8_t *dst = test_alloc(bytes);
    memcpy(dst, c->result, bytes);
    const enum ref_status s = ref_values_dequantize(dst, &c->v, c->array, c->count, c->n);
    tally(c->name, s != (c->refuse ? REF_E_CORRUPT : REF_OK)  ? "the reference's status"
                   : !s && memcmp(dst, c->result, bytes) != 0 ? "the reference's elements"
                                                              : NULL);
    free(dst);
}

static void vector(const struct value_vector *c, void *unused)
{
    struct pici_values asked = PICI_VALUES_INIT;
    const size_t width = ref_width(c->v.dtype), bytes = (size_t)c->n * width;
    uint64_t made[2] = {0, 0}, count[2];
    unsigned widths[2];
    struct values v;
    (void)unused;
    asked.codec = (enum pici_value_codec)c->v.codec; /* the same numbers */
    asked.rate = c->v.rate;
    asked.tolerance = c->v.tolerance;
    asked.nx = c->v.nx;
    asked.ny = c->v.ny;
    asked.cast = (enum pici_dtype)c->v.cast;
    asked.bits = (int)c->v.bits;
    asked.norm = c->v.l2 ? PICI_NORM_L2 : PICI_NORM_MAX;
    asked.rounding = c->v.nearest ? PICI_ROUND_NEAREST : PICI_ROUND_RANDOM;
    asked.bucket = c->v.bucket;
    asked.seed = c->v.seed;
    const enum pici_status resolved = pici_values_resolve(&v, &asked, (enum pici_dtype)c->v.dtype, PICI_SUM);
    if (c->v.codec == REF_ZFP)
        reference_of_zfp(c);
    if (resolved == PICI_E_UNSUPPORTED && c->v.codec == REF_ZFP) {
        lacks_zfp = 1;
        return;
    }
    tally(c->name, resolved ? "not resolved" : NULL);
    if (resolved)
        return;
    v.positive = c->v.positive;
    const struct values_where where = {c->v.first, c->v.sequence, (int)c->v.phase, (int)c->v.origin};
    ref_values_counts(count, widths, &c->v, c->n);
    for (const struct pici_isa *const *isa = tested_isas(); *isa; isa++) {
        const void *in[2];
        uint8_t *dst = placed(3, bytes, NULL);
        void *const out[2] = {placed(1, (size_t)count[0] * widths[0], NULL),
                              placed(2, (size_t)count[1] * widths[1], NULL)};
        const char *bad = NULL;
        pici_isa_force(*isa);
        if (!c->refuse) {
            const uint8_t *src = placed(0, bytes, c->src);
            if (v.codec->quantize(&v, &where, out, made, src, c->n, NULL) || made[0] != c->count[0] ||
                made[1] != c->count[1])
                bad = "quantize's status or counts";
            for (int a = 0; a < v.codec->arrays; a++)
                if (!bad && memcmp(out[a], c->array[a], (size_t)made[a] * widths[a]) != 0)
                    bad = "an array";
        }
        for (int a = 0; a < 2; a++)
            in[a] = placed(1 + a, (size_t)c->count[a] * widths[a], c->array[a]);
        const enum pici_status s = v.codec->dequantize(&v, dst, 0, c->n, c->n, in, c->count);
        if (!bad && s != (c->refuse ? PICI_E_CORRUPT : PICI_OK))
            bad = "dequantize's status";
        if (!bad && !s && memcmp(dst, c->result, bytes) != 0)
            bad = "the result";
        tally(c->name, bad);
    }
    pici_isa_force(NULL);
}

int main(int argc, char **argv)
{
    const char *directory = argc > 1 ? argv[1] : "formats/vectors";
    for (int i = 0; i < BUFFERS; i++)
        guard_init(&guard[i], MOST * 8 + 64);
    known_answers();
    if (values_read(directory, "values.txt", vector, NULL) < 300 ||
        values_read(directory, "zfp.txt", vector, NULL) < 60)
        tally(directory, "vectors are missing or malformed");
    if (lacks_zfp)
        printf("skip: the streams of zfp's vectors, built without libzfp\n");
    const int checks = test_few() ? 160 : 400; /* of random codecs, lengths and contents: 40 for each type, or 100 */
    for (int i = 0; i < checks; i++)
        check(dtypes[i % 4]);
    for (int i = 0; i < BUFFERS; i++)
        guard_free(&guard[i]);
    return tally_end();
}
