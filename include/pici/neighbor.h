/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Neighbourhood all-gather: each rank contributes a run of elements, and receives those of its in-neighbours only, as
 * MPI_Neighbor_allgather and MPI_Neighbor_allgatherv do on a graph of MPI_Dist_graph_create_adjacent.
 *
 * A plan is made once for a graph, and run many times. In a plan of route HALVING ranks relay for each other: the range
 * of ranks is halved again and again, and a rank hands what it owes to several ranks of the other half to one of them,
 * its agent, which passes it on. So there are fewer messages than edges, and each block enters a node about once. A
 * contribution is encoded once, by its owner, and forwarded as it is.
 *
 * Plans and calls are collective: all ranks of the communicator make them in the same order, also ranks without
 * neighbours. Calls on plans may be mixed with other collectives of the communicator. What pici/coll.h says of options,
 * requests, errors and threads holds here too, except as said below. docs/reference/neighbor.md is the guide. */
#ifndef PICI_NEIGHBOR_H
#define PICI_NEIGHBOR_H

#include "pici/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pici_neighbor_plan;

/* Routes. AUTO takes HALVING where its predicted time, by the plan, the bytes of a contribution and the bandwidths of
 * the links, is clearly the lesser one, else DIRECT. It is the same on all ranks, and the same in every run. */
enum pici_route {
    PICI_ROUTE_AUTO = 0,
    PICI_ROUTE_DIRECT = 1, /* one message for each edge */
    PICI_ROUTE_HALVING = 2 /* at most 8192 ranks */
};

/* Options of a plan. All must be the same on all ranks. NULL stands for PICI_NEIGHBOR_OPTS_INIT. */
struct pici_neighbor_opts {
    size_t size;
    enum pici_route route;
    uint64_t most_bytes; /* the most dense bytes that a rank contributes to pici_neighbor_all_gatherv on this plan; 0:
                          * not known. Then each such call begins with a round in which the ranks find the largest
                          * contribution. A larger one is PICI_E_ARG on its rank */
    int leaf;            /* a range of so many ranks is not halved any more; 0: one whose ranks share a node */
    int gain;            /* a rank takes an agent if that saves at least gain - 1 messages; 0: 2 */
};
#define PICI_NEIGHBOR_OPTS_INIT                                                                                        \
    {                                                                                                                  \
        sizeof(struct pici_neighbor_opts), PICI_ROUTE_AUTO, 0, 0, 0                                                    \
    }

/* Make a plan. *plan is NULL unless PICI_OK. The communicator must outlive it, and its node map must stay as it is.
 *   source       [sources]       the ranks from which this one receives. A rank may occur several times
 *   destination  [destinations]  the ranks to which it sends. It may be one of them itself
 * Both ends of an edge list it equally often.
 * All ranks return the same status:
 *   PICI_E_ARG          on some rank: null, a rank out of range, bad options, or options that are not the same on all
 *   PICI_E_PEER         the ends of an edge do not agree about it: pici_comm_error names it, the lowest one
 *   PICI_E_UNSUPPORTED  HALVING among more than 8192 ranks; a transport that moves GPU memory only, such as NCCL; a
 *                       transport with the struct of 0.1
 *   PICI_E_NOMEM        on some rank
 * These do not break the communicator. Errors of the collectives inside do, and may differ between ranks. A null plan
 * or communicator is PICI_E_ARG at once, on this rank alone. */
PICI_API enum pici_status pici_neighbor_plan_create(struct pici_neighbor_plan **plan, struct pici_comm *, int sources,
                                                    const int *source, int destinations, const int *destination,
                                                    const struct pici_neighbor_opts *);

/* What a plan is. Counts are of all ranks together, of one call with one slice, without edges from a rank to itself and
 * with repeated edges counted once. Initialize with PICI_NEIGHBOR_INFO_INIT. */
struct pici_neighbor_info {
    size_t size;
    enum pici_route route; /* of the counts below: the plan's own, or with AUTO the one for contributions of most_bytes
                            * (0: of 4096 bytes) */
    int steps;
    uint64_t edges;
    uint64_t messages;       /* sent */
    uint64_t inter_messages; /* of them those to another node */
    uint64_t most_messages;  /* sent by one rank */
    uint64_t blocks;         /* in all messages: contributions, however often they are passed on */
    uint64_t inter_blocks;   /* of them those that cross from one node to another */
    uint64_t least_inter;    /* the least that inter_blocks can be: each block once into each node that wants it. 0
                              * beyond 8192 ranks: not counted */
    uint64_t widest;         /* blocks of the longest message */
    uint64_t offloads;       /* halving: how often a rank took an agent */
    uint64_t own_messages;   /* sent by this rank */
    uint64_t own_blocks;     /* in its messages */
    uint64_t hash;           /* of all messages of all ranks; the same on all of them */
    double seconds;          /* that this rank took to make the plan, waiting included */
};
#define PICI_NEIGHBOR_INFO_INIT                                                                                        \
    {                                                                                                                  \
        sizeof(struct pici_neighbor_info), PICI_ROUTE_AUTO, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                   \
    }

/* Local. PICI_E_ARG: null, or a size below that of the first version. */
PICI_API enum pici_status pici_neighbor_plan_info(const struct pici_neighbor_plan *, struct pici_neighbor_info *);

/* Allocate what a call on this plan needs whose longest contribution has count elements (all_gatherv on a plan with
 * most_bytes: what is most_bytes), with these options. The communicator keeps it, and such a call allocates nothing
 * then, except for a request (_start). So ranks can find out whether all have memory before they begin. Local.
 * PICI_E_NOMEM; PICI_E_ARG (null, or as for a call), PICI_E_UNSUPPORTED (as for a call); PICI_E_BROKEN (the
 * communicator is broken, or requests are in flight). */
PICI_API enum pici_status pici_neighbor_plan_reserve(struct pici_neighbor_plan *, uint64_t count, enum pici_dtype,
                                                     const struct pici_coll_opts *);

/* The two calls.
 *   send  [count or sendcount elements]  only read; must not overlap what is received
 *   recv  one slot for each entry of `source`, in that order: of count elements each, one after the other; or slot i of
 *         recvcounts[i] elements, from element displs[i] of recv on. Slots must not overlap. displs[i] of an empty slot
 *         is not read
 *   recvcounts, displs  [sources]  must stay valid until the call ends; may be NULL without sources
 * all_gather: count is the same on all ranks. all_gatherv: sendcount may differ by rank and call, and recvcounts[i] is
 * what source[i] sends. Buffers are in the host's memory.
 *
 * Of the options, algorithm, thresholds for reducing, zeros, native, density, latency and scratch have no effect here,
 * except that an algorithm other than AUTO, or zeros other than PICI_ZEROS_EXACT, is PICI_E_UNSUPPORTED. Members marked
 * = in pici/coll.h must be the same on all ranks here too.
 *
 * Ranks do not agree before and after a call, which would take as long as the exchange itself. A rank that finds
 * something wrong returns an error, and so does each rank that depends on its messages from then on; others may return
 * PICI_OK. A rank that returns PICI_OK has the right bytes. With opts->agree all ranks return the same status, unless a
 * rank cannot begin (a count or option out of range, no memory): the others then return PICI_E_PEER, or PICI_E_TIMEOUT
 * over a transport that does not tell them, such as MPI. The failure breaks the communicator on each rank that it
 * reaches. The next collective of pici/coll.h, or plan, ends with PICI_E_BROKEN on all ranks; a call on a plan has no
 * round that would tell all, and may still succeed on ranks that do not depend on those.
 *
 * Errors, besides those of pici/coll.h:
 *   PICI_E_PEER  another count, dtype, plan or option on a rank from which messages come; recvcounts[i] is not what
 *                source[i] sent. If by its own call a rank waits for more messages than come, it returns
 *                PICI_E_TIMEOUT instead, and without a timeout it waits forever
 *   PICI_E_CORRUPT  also a message that is longer than this rank's call can have, as another count may make it
 *   PICI_E_ARG   as in pici/coll.h, and a slot that overlaps send; on this rank */
PICI_API enum pici_status pici_neighbor_all_gather(const void *send, void *recv, uint64_t count, enum pici_dtype,
                                                   struct pici_neighbor_plan *, const struct pici_coll_opts *);
PICI_API enum pici_status pici_neighbor_all_gatherv(const void *send, uint64_t sendcount, void *recv,
                                                    const uint64_t *recvcounts, const uint64_t *displs, enum pici_dtype,
                                                    struct pici_neighbor_plan *, const struct pici_coll_opts *);

/* The same, nonblocking, as in pici/coll.h. The plan must not be freed before the request has ended. */
PICI_API enum pici_status pici_neighbor_all_gather_start(const void *send, void *recv, uint64_t count, enum pici_dtype,
                                                         struct pici_neighbor_plan *, const struct pici_coll_opts *,
                                                         struct pici_request **request);
PICI_API enum pici_status pici_neighbor_all_gatherv_start(const void *send, uint64_t sendcount, void *recv,
                                                          const uint64_t *recvcounts, const uint64_t *displs,
                                                          enum pici_dtype, struct pici_neighbor_plan *,
                                                          const struct pici_coll_opts *, struct pici_request **request);

/* Free a plan that no request uses; before or after its communicator is freed. Not collective. NULL is ignored. */
PICI_API void pici_neighbor_plan_free(struct pici_neighbor_plan *);

#ifdef __cplusplus
}
#endif
#endif
