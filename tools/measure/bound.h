/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The lower bound for a step from known old elements to new ones: the entropy of the positions and sizes of changes,
 * given the exponent of each old element. */
#ifndef PICI_TOOLS_MEASURE_BOUND_H
#define PICI_TOOLS_MEASURE_BOUND_H

#include <stdbool.h>
#include <stdint.h>

#include "pici/pici.h"

struct bound;

/* For a tensor of dtype. pairs: each of its elements, u8, is two e2m1. NULL: no memory. */
struct bound *bound_new(enum pici_dtype dtype, bool pairs);
void bound_free(struct bound *);

/* Count count elements, in host order. */
void bound_add(struct bound *, const void *from, const void *to, uint64_t count);

/* How many elements changed. */
uint64_t bound_changed(const struct bound *);

/* The bound in bits. By how much: of f16, bf16, f8 and e2m1, the difference of both bits in the order of the floats. Of
 * f32, the sign and the number of bits of that difference, and its other bits as they are. Other dtypes: one exponent
 * for all, and the new value as it is. */
double bound_bits(const struct bound *);

#endif
