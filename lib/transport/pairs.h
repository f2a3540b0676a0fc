/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How each two ranks exchange messages, once all have said that they can go on: by offers (greeting.h). */
#ifndef PICI_LIB_TRANSPORT_PAIRS_H
#define PICI_LIB_TRANSPORT_PAIRS_H

#include "transport/shared.h"

/* Share memory with ranks of this node. All ranks call this, with a socket for each; `wanted` is this rank's own
 * setting. shared [ranks] receives the memory, or NULL: then messages go over the socket. *failures and explanation
 * [bytes] say of how many ranks memory was wanted and could not be had, and of the first of them why. A rank that does
 * not do its part in time has its socket shut down. PICI_E_NOMEM: all sockets are. */
enum pici_status pici_pairs(struct shared **shared, const int *fds, const int *node_of, int rank, int ranks, int wanted,
                            int timeout_ms, int *failures, char *explanation, size_t bytes);

#endif
