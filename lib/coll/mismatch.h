/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Counts of an all-to-all that do not match: what a rank finds, all learn in the status agreement. */
#ifndef PICI_LIB_COLL_MISMATCH_H
#define PICI_LIB_COLL_MISMATCH_H

#include "coll/request.h"

/* Rank `from` sends this one so many elements (UINT64_MAX: not known) instead of what is expected. */
void pici_mismatch_found(struct pici_request *, int from, uint64_t sent);

/* Put the pair of ranks that this rank has found in place of the least call; and describe the least such pair that any
 * rank has found. Both do nothing in other calls, and where none was found. */
void pici_mismatch_say(uint8_t low[AGREE_CALL_BYTES], const struct pici_request *);
void pici_mismatch_explain(const struct pici_request *, const uint8_t low[AGREE_CALL_BYTES]);

#endif
