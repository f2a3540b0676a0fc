/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Starting calls. */
#ifndef PICI_LIB_COLL_CALL_H
#define PICI_LIB_COLL_CALL_H

#include "coll/request.h"

/* Start a call, like the public functions. pici_call_wait also waits for its end. It uses the communicator's spare
 * request, so that no allocation can fail on this rank alone. */
enum pici_status pici_call_start(struct call_args, struct pici_comm *, const struct pici_coll_opts *,
                                 struct pici_request **);
enum pici_status pici_call_wait(struct call_args, struct pici_comm *, const struct pici_coll_opts *);

/* An all-reduce of a few integers, and an all-gather of at most 2 KiB from each rank, in host memory. Over a transport
 * of GPU memory they work too: it stages short messages (nccl.c). */
enum pici_status pici_call_reduce_small(uint64_t *numbers, uint64_t count, enum pici_op, struct pici_comm *);
enum pici_status pici_call_gather_small(const uint8_t *send, uint8_t *recv, uint64_t bytes, struct pici_comm *);

#endif
