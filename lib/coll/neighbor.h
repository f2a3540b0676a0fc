/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Neighbourhood all-gathers: plans, which neighbor.c makes, and the rules of calls with them. */
#ifndef PICI_LIB_COLL_NEIGHBOR_H
#define PICI_LIB_COLL_NEIGHBOR_H

#include "coll/comm.h"
#include "coll/rules.h"
#include "pici/neighbor.h"
#include "schedule/neighbor.h"

/* Ranks here are virtual ranks, as in schedules. */
struct pici_neighbor_plan {
    struct pici_comm *comm;
    uint32_t number;             /* on its communicator */
    uint64_t hash;               /* of the graph's plan, the same on all ranks */
    uint64_t order_hash;         /* of the communicator when the plan was made */
    struct schedule_nodes nodes; /* likewise */
    int *begin;                  /* [nodes.nodes + 1] its array */
    enum pici_route route;
    uint64_t most_bytes;              /* as in the options */
    struct neighbor_route *routes[3]; /* by enum pici_route; NULL: it was not made */
    uint64_t widest[3],
        blocks[3];       /* for each route, the most of any rank: blocks of a message, and route->room_blocks */
    double bandwidth[2]; /* inside a node and between nodes: the lowest of all ranks */
    uint64_t least_inter;
    int regions;
    int sources;
    int *slot_begin; /* [ranks + 1] for each virtual rank, its first index in slots */
    int *slots;      /* [sources] indices into the caller's list of sources */
    double seconds;
};

extern int pici_neighbor_most_halved; /* NEIGHBOR_HALVED_RANKS, or fewer in tests. Beyond it plans are direct only */

extern const struct call_rules pici_neighbor_rules; /* neighbor_call.c */

/* Choose the route of a call, DIRECT or HALVING. Each rank has `bytes` dense bytes, in messages of at most slice_bytes,
 * `window` of them at a time. */
enum pici_route pici_neighbor_choose(const struct pici_neighbor_plan *, uint64_t bytes, int window,
                                     uint64_t slice_bytes);

#endif
