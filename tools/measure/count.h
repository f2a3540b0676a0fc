/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Counts elements of width 1, 2, 4 or 8 bytes, at any alignment. A zero has no bit set. A negative zero, which only
 * float dtypes have, has only the highest bit set. */
#ifndef PICI_TOOLS_MEASURE_COUNT_H
#define PICI_TOOLS_MEASURE_COUNT_H

#include <stddef.h>
#include <stdint.h>

uint64_t count_nonzeros(const void *elements, size_t count, size_t width);
uint64_t count_negative_zeros(const void *elements, size_t count, size_t width);

/* Add 1 to seen[i] for each element i that is not zero. */
void count_mark(uint32_t *seen, const void *elements, size_t count, size_t width);

#endif
