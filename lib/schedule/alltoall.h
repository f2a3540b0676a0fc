/* SPDX-License-Identifier: BSD-3-Clause
 *
 * All-to-all: p^2 runs of elements, one from each virtual rank to each. A rank numbers the segments that it has to do
 * with: what it sends to virtual rank d is number d; what it receives from virtual rank s is p + s; what it only passes
 * on has numbers from 2p on. Sender and receiver of a message give its segments other numbers, in the same order.
 *
 * Pairwise: in the steps, a rank sends to the virtual ranks behind it, the next one first, and receives from those
 * before it, some in each step.
 *
 * By node: rank number i of a node first gives number j, in one message, all that goes to those ranks of other nodes
 * whose number is j modulo the ranks of this node, and what goes to number j itself. Then number j sends each of those
 * ranks one message, with the elements of its whole node. So a rank sends fewer and longer messages, and what goes to
 * other nodes crosses their links once. */
#ifndef PICI_LIB_SCHEDULE_ALLTOALL_H
#define PICI_LIB_SCHEDULE_ALLTOALL_H

#include "schedule/schedule.h"

enum { ALLTOALL_ID = 254, ALLTOALL_NODES_ID = 253 }; /* in messages, in place of an algorithm's number */
enum { ALLTOALL_PEERS = 8 };                         /* of a step, that a rank sends to */

extern const struct schedule pici_schedule_alltoall, pici_schedule_alltoall_nodes;

/* The schedule of a call whose longest run has so many bytes. */
const struct schedule *pici_alltoall_choose(const struct schedule_call *, uint64_t longest_bytes);

/* How many numbers segments have on this virtual rank. */
int pici_alltoall_segments(const struct schedule *, const struct schedule_call *);

/* Messages that this virtual rank sends, and runs in them, by link: 0 inside a node, 1 between nodes. */
struct alltoall_traffic {
    uint64_t messages[2], runs[2];
};
void pici_alltoall_traffic(const struct schedule *, const struct schedule_call *, struct alltoall_traffic *);

#endif
