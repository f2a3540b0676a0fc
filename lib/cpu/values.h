/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Kernels of the lossy codecs, one table for each dtype of the elements: f32, f64, f16 and bf16. Elements and arrays
 * are in host order, at any alignment, and do not overlap. formats/values.md defines the arithmetic. Every ISA gives
 * the same results. */
#ifndef PICI_LIB_CPU_VALUES_H
#define PICI_LIB_CPU_VALUES_H

#include <stddef.h>
#include <stdint.h>

enum {
    VALUES_BUCKET_MOST = 4096, /* elements of a bucket */
    VALUES_CASTS = 2           /* the most of any dtype */
};

/* Whole buckets to quantise; the last one may be shorter. */
struct pici_quantize {
    const uint8_t *src;
    size_t elements;
    uint32_t bucket;
    unsigned bits;         /* 2, 4 or 8 */
    int two_norm, nearest; /* the norm is the 2-norm, else the maximum; rounded to nearest, else at random */
    uint64_t seed;         /* the key of Philox */
    uint64_t first;        /* index of the first element, which selects its random number */
    uint32_t counter[2];   /* the counter's last two words */
    uint8_t *scales;       /* out: f64 for elements of f64, else f32; one a bucket */
    uint8_t *codes;        /* out: (n * bits + 7) / 8 bytes */
};

/* Whole buckets to dequantise. Scales and codes are untrusted. */
struct pici_dequantize {
    uint8_t *dst;
    size_t elements;
    uint32_t bucket;
    unsigned bits;
    const uint8_t *scales, *codes;
};

struct pici_values_kernels {
    /* Returns the number of buckets that are not finite. */
    uint64_t (*quantize)(const struct pici_quantize *);
    /* Returns nonzero if a rule of scales or codes is broken. */
    int (*dequantize)(const struct pici_dequantize *);
    /* Round n elements to a narrower float, and widen them again. f32: [0] bf16, [1] f16. f64: [0] f32. Null if there
     * is none. positive: -0.0 becomes +0.0. */
    void (*cast[VALUES_CASTS])(uint8_t *dst, const uint8_t *src, size_t n, int positive);
    void (*uncast[VALUES_CASTS])(uint8_t *dst, const uint8_t *src, size_t n);
    /* Element x became y, for n elements. Where both are finite, add times * (x - y) to residual, unless that is null,
     * and (x - y)^2 to *squares. Returns the number of elements that are not. The last bits of *squares differ between
     * ISAs. */
    uint64_t (*accumulate)(uint8_t *residual, const uint8_t *x, const uint8_t *y, size_t n, int times, double *squares);
};

#endif
