/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Counts of an all-to-all that do not match: a rank finds them, and the status agreement tells all. */
#ifndef PICI_LIB_COLL_MISMATCH_H
#define PICI_LIB_COLL_MISMATCH_H

#include "coll/request.h"

/* Rank `from` sends this one an unexpected number of elements (UINT64_MAX: unknown). */
void pici_mismatch_found(struct pici_request *, int from, uint64_t sent);

/* `say` writes the pair of ranks that this rank found over the lowest call. `explain` notes the lowest such pair of all
 * ranks. Both do nothing in other calls, and without such a pair. */
void pici_mismatch_say(uint8_t low[AGREE_CALL_BYTES], const struct pici_request *);
void pici_mismatch_explain(const struct pici_request *, const uint8_t low[AGREE_CALL_BYTES]);

#endif
