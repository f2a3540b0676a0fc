/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which parameters codecs take, and the arrays that they make: for their kernels on CPUs and on GPUs. The
 * functions are those of struct pici_codec. */
#ifndef PICI_LIB_VALUES_ACCEPTS_H
#define PICI_LIB_VALUES_ACCEPTS_H

#include "format.h"
#include "values/values.h"

enum {
    QSGD_SCALES, /* arrays */
    QSGD_CODES,
    QSGD_BUCKET_LEAST = 64, /* elements of a bucket, a power of two */
    QSGD_BUCKET_MOST = 4096
};

/* A unit of one tile, for codecs of single elements or of buckets; and an array with an element for each. */
static inline uint64_t values_tile(const struct values *v)
{
    (void)v;
    return TILE;
}

static inline uint64_t values_each(const struct values *v, int array, uint64_t n)
{
    (void)v;
    (void)array;
    return n;
}

static inline enum pici_status values_cast_accepts(struct values *v, const struct pici_values *asked, enum pici_op op)
{
    (void)op;
    switch (v->dtype) {
    case PICI_F32:
        v->cast = asked->cast ? asked->cast : PICI_BF16;
        return v->cast == PICI_BF16 || v->cast == PICI_F16 ? PICI_OK : PICI_E_ARG;
    case PICI_F64: v->cast = asked->cast ? asked->cast : PICI_F32; return v->cast == PICI_F32 ? PICI_OK : PICI_E_ARG;
    default: return PICI_E_UNSUPPORTED;
    }
}

static inline enum pici_status values_qsgd_accepts(struct values *v, const struct pici_values *asked, enum pici_op op)
{
    if ((v->dtype != PICI_F32 && v->dtype != PICI_F16 && v->dtype != PICI_BF16 && v->dtype != PICI_F64) ||
        (op != PICI_SUM && op != PICI_AVG))
        return PICI_E_UNSUPPORTED;
    v->bits = asked->bits ? asked->bits : 8;
    v->bucket = asked->bucket ? asked->bucket : 1024;
    v->norm = (int)asked->norm;
    v->rounding = (int)asked->rounding;
    v->seed = v->rounding == PICI_ROUND_RANDOM ? asked->seed : 0;
    if ((v->bits != 2 && v->bits != 4 && v->bits != 8) || v->bucket < QSGD_BUCKET_LEAST ||
        v->bucket > QSGD_BUCKET_MOST || v->bucket & (v->bucket - 1) ||
        (v->norm != PICI_NORM_MAX && v->norm != PICI_NORM_L2) ||
        (v->rounding != PICI_ROUND_RANDOM && v->rounding != PICI_ROUND_NEAREST))
        return PICI_E_ARG;
    return PICI_OK;
}

static inline uint64_t values_qsgd_most(const struct values *v, int array, uint64_t n)
{
    const uint64_t codes = 8 / (unsigned)v->bits; /* of a byte */
    return array == QSGD_SCALES ? n / v->bucket + (n % v->bucket != 0) : n / codes + (n % codes != 0);
}

static inline enum pici_dtype values_qsgd_dtype(const struct values *v, int array)
{
    return array == QSGD_CODES ? PICI_U8 : v->dtype == PICI_F64 ? PICI_F64 : PICI_F32;
}

#endif
