/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Measures the constants of the model: codec, agreement, links. */
#ifndef PICI_TOOLS_TUNE_CALIBRATE_H
#define PICI_TOOLS_TUNE_CALIBRATE_H

#include "predict/model.h"
#include "world.h"

/* Collective. Constants that cannot be measured here keep their values in *machine, such as the link inside nodes if
 * each node has one rank. seconds: the approximate maximum of time to spend. noise: repeats runs whose interquartile
 * range is a larger share of the median. */
void calibrate(struct world *, struct model_machine *machine, double seconds, double noise);

#endif
