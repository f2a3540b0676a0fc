/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The lower bound for the size of a step from known old elements to new ones. It is the entropy of the positions and
 * sizes of the changes, given the exponent of each old element. */
#ifndef PICI_TOOLS_MEASURE_BOUND_H
#define PICI_TOOLS_MEASURE_BOUND_H

#include <stdbool.h>
#include <stdint.h>

#include "pici/pici.h"

struct bound;

/* pairs: dtype is u8, and each element is two e2m1. NULL: no memory. */
struct bound *bound_new(enum pici_dtype dtype, bool pairs);
void bound_free(struct bound *);

/* Add `count` elements, in host order. */
void bound_add(struct bound *, const void *from, const void *to, uint64_t count);

/* The number of changed elements. */
uint64_t bound_changed(const struct bound *);

/* The bound in bits. For f16, bf16, f8 and e2m1, the size of a change is the difference of the old and new value in the
 * order of floats. For f32, it is the sign and bit length of that difference, and the other bits uncoded. For other
 * dtypes, there is one exponent, and the new value is uncoded. */
double bound_bits(const struct bound *);

#endif
