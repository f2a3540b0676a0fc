/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The table of lossy codecs, and the parameters of a call. */
#include "sized.h"
#include "values/values.h"

static const struct pici_codec *const codecs[] = {&pici_codec_exact, &pici_codec_cast, &pici_codec_qsgd,
                                                  &pici_codec_zfp};

enum pici_status pici_values_resolve(struct values *values, const struct pici_values *asked, enum pici_dtype dtype,
                                     enum pici_op operation)
{
    struct pici_values requested = PICI_VALUES_INIT;
    const struct values exact = {.codec = &pici_codec_exact, .dtype = dtype};
    *values = exact;
    enum pici_status status = asked ? sized_read(&requested, sizeof requested, sizeof requested, asked) : PICI_OK;
    if (status)
        return status;
    if ((unsigned)requested.codec >= sizeof codecs / sizeof *codecs)
        return PICI_E_UNSUPPORTED;
    if (requested.phases > (VALUES_REDUCING | VALUES_GATHERING))
        return PICI_E_ARG;
    values->codec = codecs[requested.codec];
    if (requested.codec != PICI_VALUES_EXACT)
        values->phases = requested.phases ? requested.phases : VALUES_REDUCING | VALUES_GATHERING;
    status = values->codec->accepts(values, &requested, operation);
    if (status)
        *values = exact;
    return status;
}

enum pici_status pici_values_count(const struct values *values, uint64_t count)
{
    const uint64_t row = values->nx ? values->nx : 1;
    const uint64_t plane = values->ny ? row * values->ny : row;
    return count % plane ? PICI_E_ARG : PICI_OK;
}
