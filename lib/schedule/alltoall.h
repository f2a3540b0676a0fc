/* SPDX-License-Identifier: BSD-3-Clause
 *
 * All-to-all: p^2 runs of elements, one from each virtual rank to each. Each rank numbers its segments: d is its run
 * for virtual rank d, p + s is the run from virtual rank s. Runs that it only passes on have numbers from 2p on. The
 * sender and the receiver of a message number its segments differently, but list them in the same order.
 *
 * Pairwise: in each step, a rank sends to the next few virtual ranks after it, nearest first, and receives from as many
 * before it.
 *
 * By node: first, rank number i of a node sends one message to each number j of that node. It holds the run for number
 * j itself, and the runs for those ranks of other nodes whose number is j modulo the ranks of this node. Then number j
 * sends each of those ranks one message, with the runs of its whole node. So a rank sends fewer and longer messages,
 * and each run crosses the links between nodes once. */
#ifndef PICI_LIB_SCHEDULE_ALLTOALL_H
#define PICI_LIB_SCHEDULE_ALLTOALL_H

#include "schedule/schedule.h"

enum { ALLTOALL_ID = 254, ALLTOALL_NODES_ID = 253 }; /* in messages, instead of an algorithm's number */
enum { ALLTOALL_PEERS = 8 };                         /* the most ranks that a rank sends to in a step */

extern const struct schedule pici_schedule_alltoall, pici_schedule_alltoall_nodes;

/* The schedule of a call whose longest run has longest_bytes bytes. */
const struct schedule *pici_alltoall_choose(const struct schedule_call *, uint64_t longest_bytes);

/* The count of segment numbers on this virtual rank. */
int pici_alltoall_segments(const struct schedule *, const struct schedule_call *);

/* Messages that this virtual rank sends, and runs in them, by link: 0 inside a node, 1 between nodes. */
struct alltoall_traffic {
    uint64_t messages[2], runs[2];
};
void pici_alltoall_traffic(const struct schedule *, const struct schedule_call *, struct alltoall_traffic *);

#endif
