/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Taking in the messages that a slice receives in a step. */
#ifndef PICI_LIB_COLL_TAKE_H
#define PICI_LIB_COLL_TAKE_H

#include "coll/slice.h"

/* Take in the messages of a slice's step, in the order of its list, as far as that goes without waiting; then its stage
 * is STAGE_TAKEN. What is wrong with one is noted. at: its receives. Returns a failure of the transport. */
enum pici_status pici_take_messages(struct pici_request *, struct slice_run *, struct coll_flight *at, int *moved);

/* A slice's step has ended: free its buffers and go to the next step, or to the next slice. */
void pici_end_step(struct pici_request *, struct slice_run *, struct coll_flight *at);

#endif
