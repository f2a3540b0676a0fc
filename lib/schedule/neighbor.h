/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Plans of neighbourhood all-gathers: the blocks that each rank sends to each peer, by distance halving or directly.
 * Pure integers. All ranks compute the same whole plan from the same graph; each keeps its own messages, and the counts
 * of all.
 *
 * The block of virtual rank o must reach the set O(o) of its destinations, without o. In a range of virtual ranks each
 * block has at most one holder, which must deliver it to all of O(o) in the range. At first the range is everything,
 * and o holds its own block. The plan cuts a range into halves A and B. Each virtual rank a of A with blocks for B may
 * have an agent x in B. a sends x all of these in one message, and x becomes their holder in B. Without an agent, a
 * sends them to their destinations itself, in the last step. The same happens from B to A; then both halves are ranges.
 * In a range that is not halved any more, holders send to the destinations in the last step.
 *
 * The plan matches agents greedily by weight: the number of virtual ranks of B, x included, that get blocks from a, and
 * to which x would have to send anyway. So each message to an agent saves at least its weight - 1 messages:
 *     messages <= edges - (gain - 1) * offloads. */
#ifndef PICI_LIB_SCHEDULE_NEIGHBOR_H
#define PICI_LIB_SCHEDULE_NEIGHBOR_H

#include <stddef.h>

#include "schedule/schedule.h"

enum { NEIGHBOR_ID = 255 };            /* in messages of such calls, instead of an algorithm's number */
enum { NEIGHBOR_HALVED_RANKS = 8192 }; /* the limit: the time grows with the cube of the ranks */
enum { NEIGHBOR_PARTS = 16 };          /* steps with separate load counts, including the last; deeper ones share one */

/* Rows of bits: bit v of row o means that virtual rank o sends to virtual rank v. Bits of the diagonal are ignored. */
struct neighbor_graph {
    int ranks;
    size_t words;         /* of a row */
    const uint64_t *rows; /* [ranks * words] */
    const struct schedule_nodes *nodes;
    const struct schedule_nodes *regions; /* parts of nodes that stay together; NULL: the nodes */
};

static inline size_t pici_neighbor_words(int ranks)
{
    return ((size_t)ranks + 63) / 64;
}

/* The messages and blocks that a virtual rank or a node sends and receives, by link: 0 inside a node, 1 between
 * nodes. */
struct neighbor_load {
    uint32_t messages[2][2], blocks[2][2]; /* [0: sent, 1: received][link] */
};

struct neighbor_counts {
    uint64_t edges, messages, inter_messages, most_messages, blocks, inter_blocks, offloads, widest, hash;
    uint64_t region_messages, region_blocks; /* to another region of the same node */
};

/* A message of this virtual rank. */
struct neighbor_message {
    int peer;
    int first, count; /* its segments in the route's array */
    int again; /* sent: 1 + the index, in its step, of an earlier message with the same segments; 0: there is none */
};

/* The steps of a virtual rank. In the first step, if it sends anything in any step, it sends its own block to itself,
 * to encode it. */
struct neighbor_route {
    int steps;
    int virtual_rank;
    int *send_begin, *receive_begin; /* [steps + 1] of each step: its first message */
    struct neighbor_message *send, *receive;
    int *segments;
    struct schedule_limits limits; /* of this virtual rank alone */
    uint64_t room_blocks;          /* blocks of all messages for which this virtual rank needs memory */
    struct neighbor_counts counts;
    struct neighbor_load *load; /* [ranks]; NULL: not known */
    /* [NEIGHBOR_PARTS * nodes] blocks that a node sends to others and receives, by depth; the last part is the last
     * step. NULL: not known, as if there were one step */
    uint32_t (*part)[2];
    int ranks;
    const struct schedule_nodes *nodes;
};

/* Make a plan. leaf: do not halve ranges of this many virtual ranks; 0: of a single region. gain >= 1. NULL: no memory.
 * The graph is not needed afterwards, but its nodes are. */
struct neighbor_route *pici_neighbor_halving(const struct neighbor_graph *, int virtual_rank, int leaf, int gain);
struct neighbor_route *pici_neighbor_direct(const struct neighbor_graph *, int virtual_rank);

/* A direct route from this virtual rank's own lists of virtual ranks, ascending, without itself or repetitions. Counts
 * cover only its own messages; there are no loads. */
struct neighbor_route *pici_neighbor_lists(const struct schedule_nodes *, int ranks, int virtual_rank,
                                           const int *destination, int destinations, const int *source, int sources);
void pici_neighbor_free(struct neighbor_route *);

/* Number the virtual ranks of a route's messages anew: i becomes names[i], a rank of the same node. The loads keep the
 * old numbers. */
void pici_neighbor_rename(struct neighbor_route *, const int *names);

/* The order of virtual ranks by node and region: a node's regions by their lowest virtual rank, and in a region its
 * virtual ranks in rising order. order[i] = virtual rank. begin [ranks + 1]: where each region begins in the order.
 * Returns the number of regions. region_of: by virtual rank; regions of different nodes are different. */
int pici_neighbor_regions(const struct schedule_nodes *, const int *region_of, int *order, int *begin);

/* The lower limit of counts.inter_blocks. */
uint64_t pici_neighbor_least(const struct neighbor_graph *);

/* The schedule of a call whose shape has a route. */
extern const struct schedule pici_schedule_neighbor;

/* ---- for neighbor_lists.c */

struct neighbor_entry {
    int step, peer, segment;
};

struct neighbor_entries {
    struct neighbor_entry *list;
    size_t count, room;
    int failed; /* no memory */
};

static const int NEIGHBOR_LAST_STEP = 1 << 30; /* of an entry, until the number of steps is known */

void pici_neighbor_entry(struct neighbor_entries *, int step, int peer, int segment);

/* Sort the entries, make the route's lists from them, and free them. Returns 0 if there is no memory. */
int pici_neighbor_make_lists(struct neighbor_route *, struct neighbor_entries *sent, struct neighbor_entries *received);

#endif
