/* SPDX-License-Identifier: BSD-3-Clause */
#include "format.h"
#include "values/values.h"

static enum pici_status accepts(const struct pici_values *v, enum pici_dtype dtype, enum pici_op op)
{
    (void)v;
    (void)op;
    return pici_dtype_width(dtype) ? PICI_OK : PICI_E_UNSUPPORTED;
}

static uint64_t unit(const struct pici_values *v)
{
    (void)v;
    return TILE;
}

static uint64_t most(const struct pici_values *v, int array, uint64_t n)
{
    (void)v;
    (void)array;
    return n;
}

static enum pici_dtype dtype(const struct pici_values *v, int array, enum pici_dtype elements)
{
    (void)v;
    (void)array;
    return elements;
}

const struct pici_codec pici_codec_exact = {
    .name = "exact", .arrays = 1, .accepts = accepts, .unit = unit, .most = most, .dtype = dtype};
