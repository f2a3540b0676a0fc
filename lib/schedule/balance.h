/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Balanced owners: segments that mean equal work for their owners, instead of equally many elements. The vector
 * consists of ranges, and the nonzeros of all ranks in each range are known. They determine the weight of a range,
 * which is spread evenly within it. Uses only integers, so that all ranks find the same cuts. */
#ifndef PICI_LIB_SCHEDULE_BALANCE_H
#define PICI_LIB_SCHEDULE_BALANCE_H

#include <stdint.h>

enum { BALANCE_RANGES = 64 };

struct schedule_balance {
    uint64_t first[BALANCE_RANGES + 1];  /* elements where ranges begin; the last entry is where the last ends */
    uint64_t before[BALANCE_RANGES + 1]; /* the weight before that element; the last entry is the total, < 2^32 */
    uint64_t unit;                       /* cuts are at multiples of this many elements, or at the end */
};

/* Equal ranges of n elements. */
void pici_balance_even(struct schedule_balance *, uint64_t n);

/* Set the weight of each range from the nonzeros that all ranks have there together. It counts what the owner receives,
 * and what it sends of the sum, for random positions in a range. Does not change the ranges. */
void pici_balance_weigh(struct schedule_balance *, const uint64_t nonzeros[BALANCE_RANGES], int ranks);

/* The weight before an element; and the element, rounded down to whole units, with this weight before it: 0 for no
 * weight, the end for the total. */
uint64_t pici_balance_weight(const struct schedule_balance *, uint64_t element);
uint64_t pici_balance_place(const struct schedule_balance *, uint64_t weight);

/* Whether one of `ranks` segments of equally many elements weighs more than 5/4 of their mean. */
int pici_balance_skewed(const struct schedule_balance *, int ranks);

/* Whether a divisible range weighs so much that cuts within it are guesses; and the refinement: ranges of equal weight,
 * to count again. */
int pici_balance_coarse(const struct schedule_balance *, int ranks);
void pici_balance_refine(struct schedule_balance *);

#endif
