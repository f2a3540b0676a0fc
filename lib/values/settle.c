/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The table of value codecs, and the parameters of a call. */
#include "sized.h"
#include "values/values.h"

static const struct pici_codec *const codecs[] = {&pici_codec_exact, &pici_codec_cast, &pici_codec_qsgd,
                                                  &pici_codec_zfp};

enum pici_status pici_values_settle(struct values *v, const struct pici_values *asked, enum pici_dtype dtype,
                                    enum pici_op op)
{
    struct pici_values mine = PICI_VALUES_INIT;
    const struct values exact = {.codec = &pici_codec_exact, .dtype = dtype};
    *v = exact;
    enum pici_status s = asked ? sized_read(&mine, sizeof mine, sizeof mine, asked) : PICI_OK;
    if (s)
        return s;
    if ((unsigned)mine.codec >= sizeof codecs / sizeof *codecs)
        return PICI_E_UNSUPPORTED;
    if (mine.phases > (VALUES_REDUCING | VALUES_GATHERING))
        return PICI_E_ARG;
    v->codec = codecs[mine.codec];
    if (mine.codec != PICI_VALUES_EXACT)
        v->phases = mine.phases ? mine.phases : VALUES_REDUCING | VALUES_GATHERING;
    s = v->codec->accepts(v, &mine, op);
    if (s)
        *v = exact;
    return s;
}

enum pici_status pici_values_count(const struct values *v, uint64_t count)
{
    const uint64_t row = v->nx ? v->nx : 1, plane = v->ny ? row * v->ny : row;
    return count % plane ? PICI_E_ARG : PICI_OK;
}
