/* SPDX-License-Identifier: BSD-3-Clause
 *
 * From which density on messages, and slices of streams, are cheaper dense. */
#ifndef PICI_TOOLS_TUNE_THRESHOLDS_H
#define PICI_TOOLS_TUNE_THRESHOLDS_H

#include "predict/tune.h"
#include "world.h"

/* Collective. Those of messages follow from the links and the codec that were measured; that of streams is measured, if
 * there is time until `end` and `most` bytes are enough. */
void thresholds_find(const struct world *, const struct model_machine *, struct tune_thresholds *, double end,
                     uint64_t most);

#endif
