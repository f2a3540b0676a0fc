/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Balanced owners: the segments of an all-reduce are cut so that their owners get equally much to do. Ranks tell each
 * other in the call agreement how many nonzeros they have in each range of the vector. If one range has so many that a
 * cut within it would be a guess, they agree once more, on finer ranges there, as often as it takes. */
#ifndef PICI_LIB_COLL_BALANCE_H
#define PICI_LIB_COLL_BALANCE_H

#include "coll/request.h"

/* Before the call agreement: whether the call may be balanced, which follows from the call alone; then this rank's
 * nonzeros are counted. */
void pici_balance_begin(struct pici_request *);

/* Whether this rank can take part: CAN_BALANCE or 0. */
uint32_t pici_balance_can(const struct pici_request *);

/* In a round of it: the counts to be told, as in a message, or NULL if all are 0; and those that
 * were heard, or NULL. */
const uint8_t *pici_balance_say(const struct pici_request *, uint8_t counts[AGREE_COUNTS_BYTES]);
void pici_balance_hear(struct pici_request *, const uint8_t *counts);

/* The ranks have agreed: whether they have to agree once more, for which finer ranges were counted. If not, the cuts
 * are call.resolved.balance; NULL: segments have equally many elements. */
int pici_balance_again(struct pici_request *);

#endif
