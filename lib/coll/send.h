/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Making the messages that a slice sends in a step. */
#ifndef PICI_LIB_COLL_SEND_H
#define PICI_LIB_COLL_SEND_H

#include "coll/slice.h"

/* Make the messages that the slice sends in its step, without waiting. When all are made, its stage is STAGE_MADE.
 * *progressed = 1 if anything was done. */
void pici_make_messages(struct pici_request *, struct slice_run *, int *progressed);

#endif
