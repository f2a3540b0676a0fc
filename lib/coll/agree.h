/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The agreement: all ranks learn what any rank knows. The call agreement comes before the data, the status agreement
 * after them. */
#ifndef PICI_LIB_COLL_AGREE_H
#define PICI_LIB_COLL_AGREE_H

#include "coll/request.h"

/* Begin an agreement, and make progress on it: *done = 1 when it ends. Returns only transport failures. */
void pici_coll_agree_begin(struct pici_request *, enum msg_kind);
enum pici_status pici_coll_agree(struct pici_request *, enum msg_kind, int *progressed, int *done);

/* Write a lossy codec's parameters to the description of a call, which has zeros there. */
void pici_agree_values(uint8_t bytes[AGREE_CALL_BYTES], const struct values *);

#endif
