/* SPDX-License-Identifier: BSD-3-Clause */
#include "format.h"
#include "values/values.h"

static enum pici_status accepts(struct values *v, const struct pici_values *asked, enum pici_op op)
{
    (void)asked;
    (void)op;
    return pici_dtype_width(v->dtype) ? PICI_OK : PICI_E_UNSUPPORTED;
}

static uint64_t unit(const struct values *v)
{
    (void)v;
    return TILE;
}

static uint64_t most(const struct values *v, int array, uint64_t n)
{
    (void)v;
    (void)array;
    return n;
}

static enum pici_dtype dtype(const struct values *v, int array)
{
    (void)array;
    return v->dtype;
}

const struct pici_codec pici_codec_exact = {.name = "exact",
                                            .id = PICI_VALUES_EXACT,
                                            .arrays = 1,
                                            .accepts = accepts,
                                            .unit = unit,
                                            .most = most,
                                            .dtype = dtype};
