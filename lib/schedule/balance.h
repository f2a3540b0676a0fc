/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Owners of segments that get equally much to do, rather than equally many elements. The vector is ranges; of each, the
 * nonzeros of all ranks are known. What a range weighs follows from that, and within a range weight is spread evenly.
 * Integers alone, so that all ranks find the same cuts. */
#ifndef PICI_LIB_SCHEDULE_BALANCE_H
#define PICI_LIB_SCHEDULE_BALANCE_H

#include <stdint.h>

enum { BALANCE_RANGES = 64 };

struct schedule_balance {
    uint64_t first[BALANCE_RANGES + 1];  /* elements where ranges begin; the last entry is where the last ends */
    uint64_t before[BALANCE_RANGES + 1]; /* the weight before that element; the last entry is that of all, < 2^32 */
    uint64_t unit;                       /* cuts are at multiples of so many elements, or at the end */
};

/* Equal ranges of n elements. */
void pici_balance_even(struct schedule_balance *, uint64_t n);

/* The weight of each range, by the nonzeros that all ranks have there together: what they send its owner, and what the
 * owner sends them, as if positions in a range were at random. The ranges are left as they are. */
void pici_balance_weigh(struct schedule_balance *, const uint64_t nonzeros[BALANCE_RANGES], int ranks);

/* The weight before an element; and the first element before which there is so much weight, in whole units. Of no
 * weight it is 0, and of all of it the end. */
uint64_t pici_balance_weight(const struct schedule_balance *, uint64_t element);
uint64_t pici_balance_place(const struct schedule_balance *, uint64_t weight);

/* Whether, of segments of equally many elements, one weighs more than 5/4 of their mean. */
int pici_balance_skewed(const struct schedule_balance *, int ranks);

/* Whether a range that can be cut weighs so much that cuts within it are guesses; and ranges of equal weight, to count
 * again. */
int pici_balance_coarse(const struct schedule_balance *, int ranks);
void pici_balance_refine(struct schedule_balance *);

#endif
