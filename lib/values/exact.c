/* SPDX-License-Identifier: BSD-3-Clause */
#include "values/accepts.h"

static enum pici_status accepts(struct values *values, const struct pici_values *requested, enum pici_op operation)
{
    (void)requested;
    (void)operation;
    return pici_dtype_width(values->dtype) ? PICI_OK : PICI_E_UNSUPPORTED;
}

static enum pici_dtype dtype(const struct values *values, int array)
{
    (void)array;
    return values->dtype;
}

const struct pici_codec pici_codec_exact = {.name = "exact",
                                            .id = PICI_VALUES_EXACT,
                                            .arrays = 1,
                                            .accepts = accepts,
                                            .unit = values_tile,
                                            .most = values_each,
                                            .dtype = dtype};
