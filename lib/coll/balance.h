/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Balanced owners: cuts the segments of an all-reduce so that their owners get equal work. In the call agreement, ranks
 * exchange the number of their nonzeros in each range of the vector. If a range has too many for a precise cut within
 * it, they agree again on finer ranges there, as often as needed. */
#ifndef PICI_LIB_COLL_BALANCE_H
#define PICI_LIB_COLL_BALANCE_H

#include "coll/request.h"

/* Before the call agreement: decide from the call alone whether it may be balanced; if so, count this rank's
 * nonzeros. */
void pici_balance_begin(struct pici_request *);

/* Whether this rank can take part: CAN_BALANCE or 0. */
uint32_t pici_balance_can(const struct pici_request *);

/* In a round of the call agreement: `say` writes this rank's counts as a message has them, and returns them, or NULL if
 * all are 0. `hear` adds the received counts, which may be NULL. */
const uint8_t *pici_balance_say(const struct pici_request *, uint8_t counts[AGREE_COUNTS_BYTES]);
void pici_balance_hear(struct pici_request *, const uint8_t *counts);

/* After an agreement: whether the ranks must agree again. If so, this rank has counted finer ranges. If not, the cuts
 * are call.resolved.balance; NULL: segments have equally many elements. */
int pici_balance_again(struct pici_request *);

#endif
