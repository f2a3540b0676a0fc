/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which options a selection takes, on CPUs and on GPUs. */
#ifndef PICI_LIB_TOPK_ACCEPTS_H
#define PICI_LIB_TOPK_ACCEPTS_H

#include "pici/topk.h"
#include "sized.h"

/* A caller's options, or for NULL the defaults. PICI_E_ARG, PICI_E_UNSUPPORTED: as pici/topk.h says. */
static inline enum pici_status topk_opts_get(struct pici_topk_opts *options, const struct pici_topk_opts *given)
{
    static const struct pici_topk_opts defaults = PICI_TOPK_OPTS_INIT;
    *options = defaults;
    const enum pici_status status = given ? sized_read(options, sizeof *options, sizeof *options, given) : PICI_OK;
    if (status)
        return status;
    const int known = options->select == PICI_SELECT_BUCKET || options->select == PICI_SELECT_GLOBAL ||
                      options->select == PICI_SELECT_SAMPLED;
    /* comparisons with a NaN are false, and infinity - infinity is one */
    return known && options->k >= 1 && options->k <= options->bucket && options->density > 0 && options->density <= 1 &&
                   options->sample >= 0 && options->sample <= 1 && options->rate - options->rate == 0 &&
                   options->leak >= 0 && options->leak <= 1 && options->momentum >= 0 && options->momentum < 1 &&
                   options->threads >= 0
               ? PICI_OK
               : PICI_E_ARG;
}

#endif
