/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The constants of the model, measured: codec, agreement, links. */
#ifndef PICI_TOOLS_TUNE_CALIBRATE_H
#define PICI_TOOLS_TUNE_CALIBRATE_H

#include "predict/model.h"
#include "world.h"

/* Collective. What cannot be measured here (a link inside nodes, if each has one rank) stays as *machine has it.
 * seconds: to be spent at the most, roughly. noise: runs whose interquartile range is a larger share of the median are
 * repeated. */
void calibrate(struct world *, struct model_machine *machine, double seconds, double noise);

#endif
