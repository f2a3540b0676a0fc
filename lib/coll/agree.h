/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The rounds in which all ranks learn what any rank knows: the call agreement before the data, the status agreement
 * after them. */
#ifndef PICI_LIB_COLL_AGREE_H
#define PICI_LIB_COLL_AGREE_H

#include "coll/request.h"

/* Begin an agreement round, and make progress; *done = 1 at its end. Returns a failure of the transport. */
void pici_coll_agree_begin(struct pici_request *, enum msg_kind);
enum pici_status pici_coll_agree(struct pici_request *, enum msg_kind, int *progressed, int *done);

/* Write what a lossy codec's parameters are to the description of a call, whose bytes for them are 0. */
void pici_agree_values(uint8_t bytes[AGREE_CALL_BYTES], const struct values *);

#endif
