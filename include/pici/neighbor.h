/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Neighbourhood all-gather: each rank contributes a run of elements, and receives only the runs of its in-neighbours,
 * as in MPI_Neighbor_allgather and MPI_Neighbor_allgatherv on a graph of MPI_Dist_graph_create_adjacent.
 *
 * You make a plan once for a graph, and run it many times. With route HALVING ranks relay for each other. The plan
 * halves the range of ranks repeatedly. A rank with data for several ranks of the other half sends it to one of them,
 * its agent, which forwards it. So there are fewer messages than edges, and each block enters a node about once. The
 * owner encodes its contribution once; others forward it unchanged.
 *
 * Plans and calls are collective: all ranks of the communicator, even those without neighbours, make them in the same
 * order. You may mix them with other collectives of the communicator. The rules of pici/coll.h about options, requests,
 * errors and threads hold here too, except as stated below. docs/reference/neighbor.md is the guide. */
#ifndef PICI_NEIGHBOR_H
#define PICI_NEIGHBOR_H

#include "pici/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pici_neighbor_plan;

/* Routes. AUTO predicts the time from the plan, the bytes of a contribution and the links' bandwidths. It takes HALVING
 * if that is clearly faster, else DIRECT. All ranks and all runs make the same choice. */
enum pici_route {
    PICI_ROUTE_AUTO = 0,
    PICI_ROUTE_DIRECT = 1, /* one message for each edge */
    PICI_ROUTE_HALVING = 2 /* at most 8192 ranks */
};

/* The ranks that route HALVING keeps together. It halves ranges until all ranks of a range share a node; with another
 * level, until they share a region of that node. A region is a CPU socket, a NUMA domain, or given by the ranks. So
 * each block enters a region about once. If a rank's CPUs (its affinity) are unknown or belong to several sockets or
 * domains, it shares a region with all such ranks of its node. */
enum pici_level {
    PICI_LEVEL_NODE = 0,
    PICI_LEVEL_SOCKET = 1,
    PICI_LEVEL_NUMA = 2,
    PICI_LEVEL_REGION = 3 /* the member `region` of the options */
};

/* Options of a plan. All but `region` must be the same on all ranks. NULL stands for PICI_NEIGHBOR_OPTS_INIT. */
struct pici_neighbor_opts {
    size_t size;
    enum pici_route route;
    uint64_t most_bytes;   /* upper limit of the dense bytes that a rank contributes to pici_neighbor_all_gatherv. A
                          * larger contribution is PICI_E_ARG on its rank. 0: unknown; each such call then begins with a
                          * round in which the ranks find the largest contribution */
    int leaf;              /* HALVING stops at ranges of this many ranks; 0: at ranges within a node, or region */
    int gain;              /* a rank uses an agent if that saves at least gain - 1 messages; 0: 2 */
    enum pici_level level; /* no effect beyond 8192 ranks */
    int region;            /* PICI_LEVEL_REGION: the number of this rank's region in its node; any number */
};
#define PICI_NEIGHBOR_OPTS_INIT                                                                                        \
    {                                                                                                                  \
        sizeof(struct pici_neighbor_opts), PICI_ROUTE_AUTO, 0, 0, 0, PICI_LEVEL_NODE, 0                                \
    }

/* Make a plan. *plan is NULL unless PICI_OK. The communicator must outlive it. Calls are PICI_E_ARG once
 * pici_comm_set_nodes has changed the order of the ranks by nodes.
 *   source       [sources]       the ranks from which this rank receives. A rank may occur several times
 *   destination  [destinations]  the ranks to which it sends. May include itself
 * Both ends of an edge must list it equally often.
 * All ranks return the same status:
 *   PICI_E_ARG          on some rank: null, a rank out of range, bad options, or options that are not the same on all
 *   PICI_E_PEER         the two ends of an edge disagree; pici_comm_error names the lowest such edge
 *   PICI_E_UNSUPPORTED  HALVING among more than 8192 ranks; a transport with the struct of 0.1
 *   PICI_E_NOMEM        on some rank
 * These errors do not break the communicator. Errors of the collectives inside do, and may differ between ranks. A null
 * plan or communicator is PICI_E_ARG at once, on this rank only. */
PICI_API enum pici_status pici_neighbor_plan_create(struct pici_neighbor_plan **plan, struct pici_comm *, int sources,
                                                    const int *source, int destinations, const int *destination,
                                                    const struct pici_neighbor_opts *);

/* Facts about a plan. Counts are totals of all ranks, for one call with one slice. They omit edges from a rank to
 * itself, and count repeated edges once. Initialize with PICI_NEIGHBOR_INFO_INIT. */
struct pici_neighbor_info {
    size_t size;
    enum pici_route route; /* the route of the counts below: the plan's own, or with AUTO the one for contributions of
                            * most_bytes (0: of 4096 bytes) */
    int steps;
    uint64_t edges;
    uint64_t messages;        /* sent */
    uint64_t inter_messages;  /* messages to another node */
    uint64_t most_messages;   /* sent by one rank */
    uint64_t blocks;          /* contributions in all messages, counted each time that they are sent */
    uint64_t inter_blocks;    /* blocks that cross from one node to another */
    uint64_t least_inter;     /* the lower limit of inter_blocks: each block once into each node that needs it. 0 beyond
                              * 8192 ranks: not counted */
    uint64_t widest;          /* blocks in the longest message */
    uint64_t offloads;        /* halving: how often a rank used an agent */
    uint64_t own_messages;    /* sent by this rank */
    uint64_t own_blocks;      /* blocks in these messages */
    uint64_t hash;            /* hash of all messages of all ranks; the same on all ranks */
    double seconds;           /* time that this rank took to make the plan, including waiting */
    uint64_t regions;         /* of all nodes; with PICI_LEVEL_NODE the number of nodes */
    uint64_t region_messages; /* messages to another region of the same node */
    uint64_t region_blocks;   /* blocks in these messages */
};
#define PICI_NEIGHBOR_INFO_INIT                                                                                        \
    {                                                                                                                  \
        sizeof(struct pici_neighbor_info), PICI_ROUTE_AUTO, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0          \
    }

/* Get facts about a plan. Local. PICI_E_ARG: null, or a size below the first version's. */
PICI_API enum pici_status pici_neighbor_plan_info(const struct pici_neighbor_plan *, struct pici_neighbor_info *);

/* Allocate the memory of a call on this plan whose longest contribution has count elements, with these options. For
 * all_gatherv on a plan with most_bytes, count is most_bytes in elements. The communicator keeps the memory. Such a
 * call then allocates nothing except a request (_start). So ranks can check that all have memory before they begin.
 * This is for buffers in host memory, and over NCCL for buffers in the GPU's. Local. PICI_E_NOMEM; PICI_E_ARG (null, or
 * as for a call), PICI_E_UNSUPPORTED (as for a call); PICI_E_BROKEN (the communicator is broken, or requests are in
 * flight). */
PICI_API enum pici_status pici_neighbor_plan_reserve(struct pici_neighbor_plan *, uint64_t count, enum pici_dtype,
                                                     const struct pici_coll_opts *);

/* The two calls.
 *   send  [count or sendcount elements]  only read; must not overlap the received slots
 *   recv  one slot for each entry of `source`, in that order. all_gather: count elements each, without gaps.
 *         all_gatherv: slot i has recvcounts[i] elements, from element displs[i] of recv on; slots must not overlap;
 *         displs[i] of an empty slot is ignored
 *   recvcounts, displs  [sources]  must stay valid until the call ends; may be NULL without sources
 * all_gather: count is the same on all ranks. all_gatherv: sendcount may differ by rank and call, and recvcounts[i]
 * must be the sendcount of source[i]. Buffers are in host memory or in a GPU's, as in pici/coll.h. Ranks may differ in
 * this, but packed messages (opts->pack) to a rank whose buffers are in a GPU's memory are PICI_E_UNSUPPORTED there.
 *
 * The options thresholds for reducing, native, density, latency and scratch have no effect here. An algorithm other
 * than AUTO, or zeros other than PICI_ZEROS_EXACT, is PICI_E_UNSUPPORTED. Members marked = in pici/coll.h must be the
 * same on all ranks here too.
 *
 * With a lossy codec (opts->values, if its phases have those that gather) each rank quantizes its contribution once.
 * All slots for it then hold the same bytes; so do its own, if it sends to any other rank. pici_all_gather with the
 * same codec gives these bytes too, except with random rounding. residual has sendcount elements. Each recvcounts[i]
 * must be whole rows of ZFP's nx and ny. The call detects a wrong recvcounts[i] only if the codec's arrays have other
 * lengths for it: with QSGD and ZFP it may miss a difference of a few elements.
 *
 * Ranks do not agree on a status before and after a call: that would take as long as the exchange itself. A rank that
 * finds an error returns it, and so does each rank that depends on its later messages. Others may return PICI_OK. A
 * rank that returns PICI_OK has the right bytes. With opts->agree all ranks return the same status, unless a rank
 * cannot begin (a count or option out of range, no memory). The others then return PICI_E_PEER, or PICI_E_TIMEOUT over
 * a transport that does not notify them, such as MPI. A failure breaks the communicator on each rank that it reaches.
 * The next collective of pici/coll.h, or the next plan, then ends with PICI_E_BROKEN on all ranks. The next call on a
 * plan may still succeed on ranks that do not depend on the failed ones.
 *
 * Errors, in addition to pici/coll.h's:
 *   PICI_E_PEER  a rank that sends here has another count, dtype, plan or option; recvcounts[i] is not the sendcount of
 *                source[i]. If a rank's own call expects more messages than come, it returns PICI_E_TIMEOUT instead, or
 *                waits forever without a timeout
 *   PICI_E_CORRUPT  also: a message is longer than this rank's call allows, for example by another count
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

/* Free a plan that no request uses, before or after its communicator. Not collective. NULL is ignored. */
PICI_API void pici_neighbor_plan_free(struct pici_neighbor_plan *);

#ifdef __cplusplus
}
#endif
#endif
