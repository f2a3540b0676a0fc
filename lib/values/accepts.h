/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The parameters that codecs accept, and the arrays that they make, for kernels on CPUs and GPUs. They are functions of
 * struct pici_codec. */
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
static inline uint64_t values_tile(const struct values *values)
{
    (void)values;
    return TILE;
}

static inline uint64_t values_each(const struct values *values, int array, uint64_t count)
{
    (void)values;
    (void)array;
    return count;
}

static inline enum pici_status values_cast_accepts(struct values *values, const struct pici_values *requested,
                                                   enum pici_op operation)
{
    (void)operation;
    switch (values->dtype) {
    case PICI_F32:
        values->cast = requested->cast ? requested->cast : PICI_BF16;
        return values->cast == PICI_BF16 || values->cast == PICI_F16 ? PICI_OK : PICI_E_ARG;
    case PICI_F64:
        values->cast = requested->cast ? requested->cast : PICI_F32;
        return values->cast == PICI_F32 ? PICI_OK : PICI_E_ARG;
    default: return PICI_E_UNSUPPORTED;
    }
}

static inline enum pici_status values_qsgd_accepts(struct values *values, const struct pici_values *requested,
                                                   enum pici_op operation)
{
    if ((values->dtype != PICI_F32 && values->dtype != PICI_F16 && values->dtype != PICI_BF16 &&
         values->dtype != PICI_F64) ||
        (operation != PICI_SUM && operation != PICI_AVG))
        return PICI_E_UNSUPPORTED;
    values->bits = requested->bits ? requested->bits : 8;
    values->bucket = requested->bucket ? requested->bucket : 1024;
    values->norm = (int)requested->norm;
    values->rounding = (int)requested->rounding;
    values->seed = values->rounding == PICI_ROUND_RANDOM ? requested->seed : 0;
    if ((values->bits != 2 && values->bits != 4 && values->bits != 8) || values->bucket < QSGD_BUCKET_LEAST ||
        values->bucket > QSGD_BUCKET_MOST || values->bucket & (values->bucket - 1) ||
        (values->norm != PICI_NORM_MAX && values->norm != PICI_NORM_L2) ||
        (values->rounding != PICI_ROUND_RANDOM && values->rounding != PICI_ROUND_NEAREST))
        return PICI_E_ARG;
    return PICI_OK;
}

static inline uint64_t values_qsgd_most(const struct values *values, int array, uint64_t count)
{
    const uint64_t codes = 8 / (unsigned)values->bits; /* of a byte */
    return array == QSGD_SCALES ? count / values->bucket + (count % values->bucket != 0)
                                : count / codes + (count % codes != 0);
}

static inline enum pici_dtype values_qsgd_dtype(const struct values *values, int array)
{
    if (array == QSGD_CODES)
        return PICI_U8;
    return values->dtype == PICI_F64 ? PICI_F64 : PICI_F32;
}

#endif
