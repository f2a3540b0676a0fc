/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Compares sizes and times of libzstd and of the codec, on the same chunks, in one thread. */
#ifndef PICI_TOOLS_MEASURE_COMPARE_H
#define PICI_TOOLS_MEASURE_COMPARE_H

#include "measure/measure.h"

struct compare;

/* Whether this build has libzstd. */
bool compare_possible(void);

/* Start a comparison with this level of zstd. NULL: no memory. */
struct compare *compare_new(int level);

/* Encode and decode `count` elements with both, several times in turn. Adds the sizes and the median times to pici and
 * zstd. False: no memory, or a decoded element differs. */
bool compare_add(struct compare *, enum pici_dtype, const void *elements, uint64_t count, struct rival *pici,
                 struct rival *zstd);

void compare_free(struct compare *);

#endif
