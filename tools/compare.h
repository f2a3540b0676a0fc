/* SPDX-License-Identifier: BSD-3-Clause
 *
 * libzstd beside the codec, on the same chunks, in one thread: sizes and times. */
#ifndef PICI_TOOLS_COMPARE_H
#define PICI_TOOLS_COMPARE_H

#include "measure.h"

struct compare;

/* Whether this build has libzstd. */
bool compare_possible(void);

/* Begin, with a level of zstd; NULL: no memory. */
struct compare *compare_new(int level);

/* Encode and decode n elements both ways, several times by turns, of which the median counts. What they take is added to
 * both. False: no memory, or what came back was not what went in. */
bool compare_add(struct compare *, enum pici_dtype, const void *elements, uint64_t n, struct rival *pici,
                 struct rival *zstd);

void compare_free(struct compare *);

#endif
