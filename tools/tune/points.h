/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Chooses the calls to measure and their order, and measures them. */
#ifndef PICI_TOOLS_TUNE_POINTS_H
#define PICI_TOOLS_TUNE_POINTS_H

#include "predict/tune.h"
#include "world.h"

struct points_options {
    uint64_t least, most; /* bytes */
    double noise;         /* limit on a point's interquartile range, relative to its median. A noisier point is
                           * measured once more, and left out if still noisy */
};

/* Collective. Measure until the time is spent or everything is measured. Rank 0 adds the points to *tune. */
void points_measure(struct world *, struct tune *, const struct points_options *);

#endif
