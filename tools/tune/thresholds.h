/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Finds the densities from which dense messages, and dense slices of streams, are cheaper. */
#ifndef PICI_TOOLS_TUNE_THRESHOLDS_H
#define PICI_TOOLS_TUNE_THRESHOLDS_H

#include "predict/tune.h"
#include "world.h"

/* Collective. The thresholds of messages follow from the measured links and codec. The threshold of streams is
 * measured, if there is time until `end` and `most` bytes are enough. */
void thresholds_find(const struct world *, const struct model_machine *, struct tune_thresholds *, double end,
                     uint64_t most);

#endif
