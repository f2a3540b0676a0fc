/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Compare lossy codecs with memcpy of the elements: quantizing the elements of a message, and dequantizing them. The
 * elements are random floats with geometrically distributed exponents. zfp, which is for smooth fields, gets a wave. */
#ifndef PICI_BENCH_VALUES_H
#define PICI_BENCH_VALUES_H

#include <math.h>

#include "cpu/kernels.h"
#include "values/values.h"
#include "yardstick.h"

enum { VALUES_KINDS = 10 };

struct values_bench {
    uint8_t *elements, *again, *array[VALUES_ARRAYS];
    uint64_t n, made[VALUES_ARRAYS];
    size_t bytes;
    struct values values;
};

/* Measured seconds of one codec with one table of kernels. */
struct values_time {
    double copy, quantize, dequantize;
};

static inline void values_check(enum pici_status s)
{
    if (s) {
        fprintf(stderr, "bench: --values: %s\n", pici_strerror(s));
        exit(1);
    }
}

static inline struct values_time values_measure(struct values_bench *b, clockid_t clock)
{
    static const struct values_where where = {0, 1, 0, 0};
    const struct pici_codec *codec = b->values.codec;
    void *const out[VALUES_ARRAYS] = {b->array[0], b->array[1]};
    const void *const in[VALUES_ARRAYS] = {b->array[0], b->array[1]};
    const double start = seconds(clock);
    memcpy(b->again, b->elements, b->bytes);
    const double copied = seconds(clock);
    values_check(codec->quantize(&b->values, &where, out, b->made, b->elements, b->n, NULL));
    const double quantized = seconds(clock);
    values_check(codec->dequantize(&b->values, b->again, 0, b->n, b->n, in, b->made));
    return (struct values_time){copied - start, quantized - copied, seconds(clock) - quantized};
}

/* A table, or JSON records: f32, and f64 where that is said. */
static inline void print_values(size_t bytes, int reps, int best, const struct pici_isa *const *isa, size_t isas,
                                clockid_t clock, int json, size_t *records)
{
    static const struct {
        const char *name;
        enum pici_value_codec codec;
        enum pici_dtype cast;
        int bits;
        enum pici_rounding rounding;
        enum pici_norm norm;
        double rate;
        enum pici_dtype dtype;
    } kinds[VALUES_KINDS] = {
        {"bf16", PICI_VALUES_CAST, PICI_BF16, 0, PICI_ROUND_RANDOM, PICI_NORM_MAX, 0, PICI_F32},
        {"f16", PICI_VALUES_CAST, PICI_F16, 0, PICI_ROUND_RANDOM, PICI_NORM_MAX, 0, PICI_F32},
        {"q8", PICI_VALUES_QSGD, (enum pici_dtype)0, 8, PICI_ROUND_RANDOM, PICI_NORM_MAX, 0, PICI_F32},
        {"q4", PICI_VALUES_QSGD, (enum pici_dtype)0, 4, PICI_ROUND_RANDOM, PICI_NORM_MAX, 0, PICI_F32},
        {"q2", PICI_VALUES_QSGD, (enum pici_dtype)0, 2, PICI_ROUND_RANDOM, PICI_NORM_MAX, 0, PICI_F32},
        {"q8 to the nearest", PICI_VALUES_QSGD, (enum pici_dtype)0, 8, PICI_ROUND_NEAREST, PICI_NORM_MAX, 0, PICI_F32},
        {"q8, 2-norm", PICI_VALUES_QSGD, (enum pici_dtype)0, 8, PICI_ROUND_RANDOM, PICI_NORM_L2, 0, PICI_F32},
        {"f32 of f64", PICI_VALUES_CAST, PICI_F32, 0, PICI_ROUND_RANDOM, PICI_NORM_MAX, 0, PICI_F64},
        {"zfp, rate 8", PICI_VALUES_ZFP, (enum pici_dtype)0, 0, PICI_ROUND_RANDOM, PICI_NORM_MAX, 8, PICI_F32},
        {"zfp, rate 16", PICI_VALUES_ZFP, (enum pici_dtype)0, 0, PICI_ROUND_RANDOM, PICI_NORM_MAX, 16, PICI_F32},
    };
    struct values_bench b = {.bytes = bytes};
    double *sample[3];
    for (int i = 0; i < 3; i++)
        if (!(sample[i] = calloc((size_t)reps, sizeof(double))))
            die("out of memory");
    b.elements = buffer(bytes, 0);
    b.again = buffer(bytes, 0);
    if (!json)
        printf("\n== lossy codecs: %g MiB; %s of %d%s; times memcpy's %s ==\n%-34s %10s %10s %10s\n",
               (double)bytes / (1 << 20), best ? "best" : "median", reps,
               clock == CLOCK_MONOTONIC ? "" : ", processor time", "speed", "", "quantize", "dequantize",
               "GB/s copied");
    for (size_t row = 0; row < VALUES_KINDS * isas; row++) {
        const size_t k = row % VALUES_KINDS;
        const char *name = isa[row / VALUES_KINDS]->name;
        struct pici_values v = PICI_VALUES_INIT;
        v.codec = kinds[k].codec;
        v.cast = kinds[k].cast;
        v.bits = kinds[k].bits;
        v.rounding = kinds[k].rounding;
        v.norm = kinds[k].norm;
        v.rate = kinds[k].rate;
        b.n = bytes / pici_dtype_width(kinds[k].dtype);
        const enum pici_status s = pici_values_resolve(&b.values, &v, kinds[k].dtype, PICI_SUM);
        if (v.codec == PICI_VALUES_ZFP && (s == PICI_E_UNSUPPORTED || row >= VALUES_KINDS))
            continue; /* without libzfp; or again, since it has no kernels */
        values_check(s);
        fill(b.elements, b.n, kinds[k].dtype, 1, UNIFORM);
        for (uint64_t i = 0; i < b.n && v.codec == PICI_VALUES_ZFP; i++) {
            const float x = sinf((float)(i % 65536) * 1e-3f);
            memcpy(b.elements + i * sizeof x, &x, sizeof x);
        }
        for (int a = 0; a < b.values.codec->arrays; a++)
            b.array[a] = buffer((size_t)b.values.codec->most(&b.values, a, b.n) *
                                    pici_dtype_width(b.values.codec->dtype(&b.values, a)),
                                0);
        pici_isa_force(isa[row / VALUES_KINDS]);
        for (int rep = -1; rep < reps; rep++) {
            const struct values_time t = values_measure(&b, clock);
            if (rep >= 0) {
                sample[0][rep] = t.copy;
                sample[1][rep] = t.quantize;
                sample[2][rep] = t.dequantize;
            }
        }
        double time_s[3];
        for (int i = 0; i < 3; i++)
            time_s[i] = (best ? least : median)(sample[i], (size_t)reps);
        if (json)
            printf("%s\n  {\"what\":\"values %s %s\",\"dtype\":\"%s\",\"bytes\":%zu,\"repetitions\":%d,\"memcpy_s\":"
                   "%.9g,\"quantize_s\":%.9g,\"dequantize_s\":%.9g}",
                   (*records)++ ? "," : "", name, kinds[k].name, pici_dtype_name(kinds[k].dtype), bytes, reps,
                   time_s[0], time_s[1], time_s[2]);
        else
            printf("  %-8s %-23s %10.3g %10.3g %10.2f\n", name, kinds[k].name, time_s[0] / time_s[1],
                   time_s[0] / time_s[2], (double)bytes / time_s[0] / 1e9);
        for (int a = 0; a < VALUES_ARRAYS; a++) {
            free(b.array[a]);
            b.array[a] = NULL;
        }
    }
    pici_isa_force(NULL);
    for (int i = 0; i < 3; i++)
        free(sample[i]);
    free(b.elements);
    free(b.again);
}

#endif
