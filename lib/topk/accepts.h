/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which options a selection takes, on CPUs and on GPUs. */
#ifndef PICI_LIB_TOPK_ACCEPTS_H
#define PICI_LIB_TOPK_ACCEPTS_H

#include "pici/topk.h"
#include "sized.h"

/* A caller's options, or for NULL the defaults. PICI_E_ARG, PICI_E_UNSUPPORTED: as pici/topk.h says. */
static inline enum pici_status topk_opts_get(struct pici_topk_opts *o, const struct pici_topk_opts *in)
{
    static const struct pici_topk_opts defaults = PICI_TOPK_OPTS_INIT;
    *o = defaults;
    const enum pici_status s = in ? sized_read(o, sizeof *o, sizeof *o, in) : PICI_OK;
    if (s)
        return s;
    const int known =
        o->select == PICI_SELECT_BUCKET || o->select == PICI_SELECT_GLOBAL || o->select == PICI_SELECT_SAMPLED;
    /* comparisons with a NaN are false, and infinity - infinity is one */
    return known && o->k >= 1 && o->k <= o->bucket && o->density > 0 && o->density <= 1 && o->sample >= 0 &&
                   o->sample <= 1 && o->rate - o->rate == 0 && o->leak >= 0 && o->leak <= 1 && o->momentum >= 0 &&
                   o->momentum < 1 && o->threads >= 0
               ? PICI_OK
               : PICI_E_ARG;
}

#endif
