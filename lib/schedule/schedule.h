/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Schedules: the segments that each rank sends to each peer, step by step. Pure integers: no buffers, no I/O.
 *
 * The data of a collective is p segments, one owned by each rank; or it is undivided: one segment, number 0, without an
 * owner. An all-gather of contributions with different lengths has the steps of an all-gather, and counts as one here.
 * A call runs through numbered steps, the same number on every rank. In a step a rank sends a list of messages and
 * receives a list of messages; either list may be empty. A message has one peer and a list of segments, which sender
 * and receiver see in the same order. The nth message that a rank sends to a peer is the nth that the peer receives
 * from it. Within a step a rank sends at most one message to each peer. Messages are received in the order of the list,
 * which is the order of summation.
 *
 * Ranks here are virtual ranks (pici_schedule_order), not the caller's ranks. */
#ifndef PICI_LIB_SCHEDULE_SCHEDULE_H
#define PICI_LIB_SCHEDULE_SCHEDULE_H

#include <stdint.h>

#include "pici/coll.h"

/* While reducing, messages hold partial sums; while gathering, results. */
enum schedule_phase { PHASE_REDUCE = 0, PHASE_GATHER = 1, PHASES = 2 };

/* Which virtual ranks share a node: node i has begin[i] .. begin[i + 1] - 1, at least one. */
struct schedule_nodes {
    int nodes;
    const int *begin; /* [nodes + 1]: begin[0] is 0, begin[nodes] the number of ranks */
};

/* The inputs of a schedule. */
struct schedule_call {
    enum pici_collective kind;
    int ranks, virtual_rank;            /* 0 <= virtual_rank < ranks */
    int root;                           /* broadcast: the virtual rank that has the data */
    uint64_t bytes;                     /* dense, of all segments together */
    const struct schedule_nodes *nodes; /* NULL: all on one node */
    const struct neighbor_route *route; /* neighbor.h; else NULL */
};

/* The number of nodes of a call; the first virtual rank of a node, and its number of ranks. */
static inline int nodes_of(const struct schedule_call *call)
{
    return call->nodes ? call->nodes->nodes : 1;
}

static inline int nodes_begin(const struct schedule_call *call, int node)
{
    if (call->nodes)
        return call->nodes->begin[node];
    return node ? call->ranks : 0;
}

static inline int nodes_size(const struct schedule_call *call, int node)
{
    return nodes_begin(call, node + 1) - nodes_begin(call, node);
}

/* The use of a message's blocks. */
enum schedule_action {
    SEND_ENCODE,  /* sender: encode the elements; reducing: this rank's sum of each segment, or its own contribution */
    SEND_FORWARD, /* sender: the blocks as they were received, or encoded before, byte for byte */
    RECEIVE_REDUCE, /* receiver: add to this rank's sum of each segment, which at first is its own contribution */
    RECEIVE_REDUCE_REVERSED, /* receiver: the same with the operands exchanged: decode in place of this rank's sum,
                              * and add the blocks that this rank sent in this step, which it keeps for that */
    RECEIVE_PLACE,           /* receiver: decode into the result */
    RECEIVE_KEEP             /* receiver: only keep them, to forward later */
};

/* Whether a later message of this rank forwards these blocks (again), or a RECEIVE_REDUCE_REVERSED of this step adds
 * them; at most one per segment. */
enum schedule_keep {
    KEEP_NOT,
    KEEP_MESSAGE, /* yes; until then they stay in this message's buffer */
    KEEP_APART    /* yes, from a received message; until then they are in the slice's buffer for such blocks. For few
                   * blocks of many messages, since a buffer has room for the longest message */
};

struct schedule_message {
    int peer;      /* this virtual rank itself: make and keep the message, but do not send it */
    int *segments; /* [count] */
    int count;     /* >= 1 */
    enum schedule_action action;
    enum schedule_keep keep;
    int again; /* sent: 1 + the index in the step of an earlier message with the same blocks, to send its bytes again;
                * 0: none */
    int group; /* of a message sent while reducing. 0: the sums move to another rank. Else this rank continues with
                * them, and other virtual ranks hold the same sums and send them in the same step: 1 + the lowest of
                * these */
    int contributions; /* the most contributions of a sum in this message; the exact number if it is received REVERSED;
                        * gathering: all */
};

/* The complete sums that this rank holds after the step: none, its own segment's, or all segments'. */
enum schedule_complete { COMPLETE_NONE, COMPLETE_OWN, COMPLETE_ALL };

struct schedule_step {
    enum schedule_phase phase;
    enum schedule_complete complete;
    int sends, receives;
    struct schedule_message *send, *receive;
};

/* The maximum of each number over all steps and ranks. All are 0 without steps. */
struct schedule_limits {
    int sends, receives; /* messages of a step */
    int segments;        /* of a message */
    int sums;            /* of other ranks' segments that a rank holds at a time */
    int kept;            /* buffers of blocks that a rank keeps at a time: a message, or `segments` blocks kept apart */
    int sums_in_recv;    /* all-reduce: sums are built at their place in the receive buffer, and `sums` is 0 */
};

/* In every step every rank sends one message and receives one: never, for all numbers of ranks, or for some. */
enum schedule_paired { PAIRED_NEVER, PAIRED_ALWAYS, PAIRED_AT_POWERS_OF_TWO };

struct schedule_pattern; /* pattern.h */
struct schedule_traffic; /* traffic.h */

/* A row of the registry: all facts about an algorithm that the library and its programs use. */
struct schedule {
    enum pici_algorithm id;
    char letter;          /* in tables of predictions: a capital, except V, which stands for other libraries */
    const char *name;     /* in the environment, on command lines and in tune files */
    const char *doc;      /* the steps of a phase, and their messages: its row in algorithms.md */
    unsigned collectives; /* the collectives that it supports: bits 1 << enum pici_collective */
    unsigned usual;       /* collectives for which pici_schedule_usual may choose it */
    enum schedule_paired paired;
    int undivided;      /* the data is one segment */
    int with_agreement; /* among a power of two of ranks, its steps have the same peers as the rounds of the call
                         * agreement, which carry the data of small calls (coll/early.c) */
    /* The algorithms with the same all-gather steps, for few bytes and for many, if that depends on the bytes; else
     * 0. */
    enum pici_algorithm gathers_as[2];
    int (*steps)(const struct schedule *, const struct schedule_call *);
    /* Write step k, 0 <= k < steps, into s, which has room for the limits. */
    void (*step)(const struct schedule *, const struct schedule_call *, int k, struct schedule_step *s);
    void (*limits)(const struct schedule *, const struct schedule_call *, struct schedule_limits *);
    /* Add all steps to the traffic, as steps that encode. NULL, for broadcasts: times are not predicted. */
    void (*traffic)(const struct schedule *, const struct schedule_call *, struct schedule_traffic *);
    const struct schedule_pattern *reduce, *gather; /* of schedules made of patterns */
    int by_node; /* all-reduce: nodes own equal parts, which their ranks share evenly; else ranks own equal parts.
                  * Broadcast: `gather` is the pattern between nodes */
};

/* Memory of a step: the bytes needed, and a step in such memory, which is aligned for pointers. */
size_t pici_schedule_step_bytes(const struct schedule_limits *);
void pici_schedule_step_init(struct schedule_step *, const struct schedule_limits *, void *memory);

/* Segment i of n elements: [*first, *first + *count). Cut at floor(i*n/p); for n >= 64*4096*p that is rounded down to a
 * multiple of 4096 (the last ends at n). Any n. */
void pici_schedule_segment(uint64_t n, int p, int i, uint64_t *first, uint64_t *count);

/* Like pici_schedule_segment, but each node owns an equal segment, which its virtual ranks divide in the same way, in
 * their order. */
void pici_schedule_segment_by_node(uint64_t n, const struct schedule_nodes *, int virtual_rank, uint64_t *first,
                                   uint64_t *count);

/* The node of a virtual rank; nodes NULL: 0. */
int pici_schedule_node(const struct schedule_nodes *, int virtual_rank);

/* The order of ranks: nodes by their lowest rank, and within a node its ranks in rising order. order[virtual_rank] =
 * rank. */
void pici_schedule_order(const int *node_of, int p, int *order);

#endif
