/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Early data: the data of a small all-reduce, which travels with the call agreement. */
#ifndef PICI_LIB_COLL_EARLY_H
#define PICI_LIB_COLL_EARLY_H

#include "coll/request.h"

/* Bytes of comm->agreements, and of the place of one message there: an agreement followed by data. */
size_t pici_early_memory(const struct pici_comm *);
size_t pici_early_place(const struct pici_comm *);

/* Before the call agreement: make the layout, and set request->early if the call has early data and this rank can take
 * part. */
void pici_early_begin(struct pici_request *);

/* At the beginning of a round of the call agreement: make its data message. Sets the buffers of request->agree.outgoing
 * and incoming; the word belongs in the AGREE_BYTES before the data. */
void pici_early_make(struct pici_request *);

/* At the end of the round: receive the `bytes` bytes of data that came with the word, as its prefix counts them.
 * agreed: no rank has rejected the call so far. Without data, or if not agreed, sets request->early = 0: the call has
 * no early data any more. */
void pici_early_receive(struct pici_request *, size_t bytes, int agreed);

/* The call agreement has failed: an all-reduce in place gets its data back. */
void pici_early_undo(struct pici_request *);

#endif
