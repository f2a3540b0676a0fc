/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The reference of value codecs, written from values.md alone. All arithmetic is done in integers. Elements and arrays
 * are in host order. */
#ifndef PICI_FORMATS_REF_VALUES_H
#define PICI_FORMATS_REF_VALUES_H

#include "ref_base.h"

enum { REF_CAST = 1, REF_QSGD = 2, REF_ZFP = 3 }; /* codecs */
enum { REF_VALUES_ARRAYS = 2 };

struct ref_values {
    unsigned codec, dtype; /* dtype of the elements */
    unsigned cast;         /* cast: dtype of the values */
    int positive;          /* cast: -0.0 becomes +0.0 */
    unsigned bits, bucket; /* qsgd, and the next two rows */
    int l2, nearest;
    uint64_t seed, first, sequence;
    uint32_t phase, origin;
    double rate, tolerance; /* zfp, with the next row; one of the two is 0 */
    uint32_t nx, ny;
};

/* Philox4x32-10. */
void ref_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

/* zfp: elements of a unit but the last. */
uint64_t ref_zfp_unit(const struct ref_values *);

/* The elements of the codec's arrays for n elements, 0 for an array that it does not have; and the bytes of each. Of
 * zfp, the most elements of the payload. */
void ref_values_counts(uint64_t count[REF_VALUES_ARRAYS], unsigned width[REF_VALUES_ARRAYS], const struct ref_values *,
                       uint64_t n);

/* Cast and qsgd: the arrays of n elements at src. */
void ref_values_quantize(void *const out[REF_VALUES_ARRAYS], const struct ref_values *, const void *src, uint64_t n);

/* n elements from arrays of count[] elements. REF_E_CORRUPT if a rule is broken. For zfp, leaves units that are streams
 * unchanged in dst: only libzfp can decode a stream. */
enum ref_status ref_values_dequantize(void *dst, const struct ref_values *, const void *const in[REF_VALUES_ARRAYS],
                                      const uint64_t count[REF_VALUES_ARRAYS], uint64_t n);

/* Add times * (x - y) to the residual for n elements x that became y, where both are finite. */
void ref_values_accumulate(void *residual, const struct ref_values *, const void *x, const void *y, uint64_t n,
                           unsigned times);

#endif
