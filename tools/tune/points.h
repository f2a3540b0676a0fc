/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which calls are measured, in which order, and their times. */
#ifndef PICI_TOOLS_TUNE_POINTS_H
#define PICI_TOOLS_TUNE_POINTS_H

#include "predict/tune.h"
#include "world.h"

struct points_options {
    uint64_t least, most; /* bytes */
    double noise;         /* a point whose interquartile range is a larger share of its median is measured once more,
                           * and left out if it still is */
};

/* Collective. Measure until the time is spent, or all is measured; on rank 0 the points are added to *tune. */
void points_measure(struct world *, struct tune *, const struct points_options *);

#endif
