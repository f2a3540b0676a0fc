/* SPDX-License-Identifier: BSD-3-Clause */
#include "schedule/registry.h"

#include "schedule/broadcast.h"
#include "schedule/doubling.h"
#include "schedule/nodes.h"
#include "schedule/pattern.h"

enum {
    DOUBLING_UP_TO = 64 << 10,      /* bytes */
    DOUBLING_MORE_UP_TO = 16 << 10, /* dense bytes that a rank may send in addition to the recursive algorithm's */
    FEW_STEPS_BELOW = 32 << 10      /* bytes a rank */
};

enum {
    ALL_COLLECTIVES = 1 << PICI_ALL_GATHER | 1 << PICI_REDUCE_SCATTER | 1 << PICI_ALL_REDUCE |
                      1 << PICI_ALL_GATHERV, /* of segments */
    BROADCAST = 1 << PICI_BROADCAST
};

#define TWO_PHASES                                                                                                     \
    .collectives = ALL_COLLECTIVES, .paired = PAIRED_ALWAYS, .steps = pici_two_phase_steps,                            \
    .step = pici_two_phase_step, .limits = pici_two_phase_limits, .traffic = pici_two_phase_traffic

#define ON_NODES                                                                                                       \
    .collectives = ALL_COLLECTIVES, .by_node = 1, .steps = pici_nodes_steps, .step = pici_nodes_step,                  \
    .limits = pici_nodes_limits, .traffic = pici_nodes_traffic

const struct schedule pici_schedules[] = {
    {.id = PICI_ALGO_RING,
     .letter = 'R',
     .name = "ring",
     .usual = ALL_COLLECTIVES,
     .doc = "p - 1 steps; in each, every rank sends one partial sum to its right neighbour",
     TWO_PHASES,
     .reduce = &pici_pattern_ring,
     .gather = &pici_pattern_ring},
    {.id = PICI_ALGO_RECURSIVE,
     .letter = 'C',
     .name = "recursive",
     .usual = ALL_COLLECTIVES,
     .doc = "ceil(log2 p) steps; ranks send partial sums of half of the segments, then of a quarter, and so on. The "
            "distance to the receiver halves in each step",
     TWO_PHASES,
     .reduce = &pici_pattern_recursive,
     .gather = &pici_pattern_recursive},
    {.id = PICI_ALGO_SPLIT,
     .letter = 'S',
     .name = "split",
     .gathers_as = {PICI_ALGO_RECURSIVE, PICI_ALGO_RING},
     .doc = "p - 1 steps; each contribution goes straight to its owner. Gathers as recursive up to 32 KiB a rank, else "
            "as ring",
     TWO_PHASES,
     .reduce = &pici_pattern_split},
    {.id = PICI_ALGO_DOUBLING,
     .letter = 'D',
     .name = "doubling",
     .usual = 1 << PICI_ALL_REDUCE,
     .doc = "all-reduce only: floor(log2 p) exchanges of all of the data, with the rank 1, 2, 4, ... away; one step "
            "before and one after if p is not a power of two",
     .collectives = 1 << PICI_ALL_REDUCE,
     .paired = PAIRED_AT_POWERS_OF_TWO,
     .undivided = 1,
     .with_agreement = 1,
     .steps = pici_doubling_steps,
     .step = pici_doubling_step,
     .limits = pici_doubling_limits,
     .traffic = pici_doubling_traffic},
    {.id = PICI_ALGO_NODES_RING,
     .letter = 'N',
     .name = "nodes-ring",
     .doc = "on two levels: inside nodes as ring, or as recursive if a node has more than 8 ranks; then between nodes "
            "as ring",
     ON_NODES,
     .reduce = &pici_pattern_ring},
    {.id = PICI_ALGO_NODES_RECURSIVE,
     .letter = 'M',
     .name = "nodes-recursive",
     .usual = ALL_COLLECTIVES,
     .doc = "on two levels: inside nodes as nodes-ring; then between nodes as recursive",
     ON_NODES,
     .reduce = &pici_pattern_recursive},
    {0},
};

#define TREE                                                                                                           \
    .collectives = BROADCAST, .undivided = 1, .steps = pici_tree_steps, .step = pici_tree_step,                        \
    .limits = pici_tree_limits

const struct schedule pici_broadcasts[] = {
    {.id = PICI_ALGO_RING,
     .name = "ring",
     .usual = BROADCAST,
     .doc = "p - 1 steps; each rank passes all of the data to its neighbour",
     TREE,
     .gather = &pici_pattern_ring},
    {.id = PICI_ALGO_RECURSIVE,
     .name = "recursive",
     .usual = BROADCAST,
     .doc = "ceil(log2 p) steps; in each, ranks that have the data send all of it to others",
     TREE,
     .gather = &pici_pattern_recursive},
    {.id = PICI_ALGO_SPLIT,
     .name = "split",
     .doc = "p - 1 steps, in which the root sends each rank a segment; then an all-gather, as recursive up to 32 KiB a "
            "rank, else as ring",
     .collectives = BROADCAST,
     .usual = BROADCAST,
     .steps = pici_scatter_steps,
     .step = pici_scatter_step,
     .limits = pici_scatter_limits},
    {.id = PICI_ALGO_NODES_RING,
     .name = "nodes-ring",
     .usual = BROADCAST,
     .doc = "on two levels: between nodes as ring; then inside nodes as ring, or as recursive if a node has more than "
            "8 ranks",
     TREE,
     .by_node = 1,
     .gather = &pici_pattern_ring},
    {.id = PICI_ALGO_NODES_RECURSIVE,
     .name = "nodes-recursive",
     .doc = "on two levels: between nodes as recursive; then inside nodes as nodes-ring",
     TREE,
     .by_node = 1,
     .gather = &pici_pattern_recursive},
    {0},
};

_Static_assert(sizeof pici_schedules / sizeof *pici_schedules <= SCHEDULES_MOST + 1, "room in lists of algorithms");

static const struct schedule *find(const struct schedule *schedule, enum pici_algorithm number)
{
    while (schedule->name && schedule->id != number)
        schedule++;
    return schedule->name ? schedule : NULL;
}

const struct schedule *pici_schedule(enum pici_algorithm number)
{
    return find(pici_schedules, number);
}

const struct schedule *pici_schedule_for(enum pici_algorithm number, enum pici_collective collective)
{
    const struct schedule *schedule = find(collective == PICI_BROADCAST ? pici_broadcasts : pici_schedules, number);
    return schedule && schedule->collectives >> collective & 1 ? schedule : NULL;
}

/* Whether doubling suits an all-reduce of `bytes` bytes. With doubling, a rank sends them log2 p times. With the
 * recursive algorithm, it sends 2 (p - 1) / p times as much, in twice as many steps. */
static int is_small(uint64_t bytes, int p)
{
    uint64_t times = 0; /* p log2 p */
    if (p < 2 || (p & (p - 1)) != 0 || bytes > DOUBLING_UP_TO)
        return 0;
    for (int power = p; power > 1; power /= 2)
        times += (uint64_t)p;
    return (times - 2 * (uint64_t)(p - 1)) * bytes <= (uint64_t)p * DOUBLING_MORE_UP_TO;
}

static int has_two_levels(int ranks, int nodes)
{
    return nodes > 1 && nodes < ranks;
}

/* A small all-reduce among a power of two of ranks takes doubling, which has the fewest steps. If several ranks share a
 * node's link, larger data takes two levels, which cross the links between nodes as rarely as possible. Otherwise
 * little data takes the recursive algorithm, which has few steps. The rest takes the ring, whose messages go to
 * neighbours, so that dense data reaches the links' speed. A broadcast of much data goes from node to node if links are
 * shared; else it is divided, so that no rank sends all of it several times. */
enum pici_algorithm pici_schedule_usual(const struct schedule_call *call, int paired_only, int undivided)
{
    const uint64_t few = (uint64_t)call->ranks * FEW_STEPS_BELOW;
    const int nodes = call->nodes ? call->nodes->nodes : 1;
    if (undivided && call->kind == PICI_ALL_REDUCE && is_small(call->bytes, call->ranks))
        return PICI_ALGO_DOUBLING;
    if (has_two_levels(call->ranks, nodes) && call->bytes >= few && !paired_only)
        return call->kind == PICI_BROADCAST ? PICI_ALGO_NODES_RING : PICI_ALGO_NODES_RECURSIVE;
    if (call->kind == PICI_BROADCAST && call->bytes > few)
        return PICI_ALGO_SPLIT;
    return call->bytes <= few ? PICI_ALGO_RECURSIVE : PICI_ALGO_RING;
}

int pici_schedule_may_gather(const struct schedule *schedule, enum pici_algorithm asked)
{
    const struct schedule *asked_for = pici_schedule(asked);
    if (!asked_for)
        return schedule->usual >> PICI_ALL_GATHER & 1;
    return asked_for->gathers_as[0]
               ? schedule->id == asked_for->gathers_as[0] || schedule->id == asked_for->gathers_as[1]
               : schedule == asked_for;
}

int pici_schedule_paired(const struct schedule *schedule, int ranks)
{
    return schedule->paired == PAIRED_ALWAYS ||
           (schedule->paired == PAIRED_AT_POWERS_OF_TWO && (ranks & (ranks - 1)) == 0);
}

int pici_schedule_distinct(const struct schedule *schedule, int ranks, int nodes)
{
    return !schedule->by_node || has_two_levels(ranks, nodes);
}

const char *pici_algorithm_name(enum pici_algorithm number)
{
    const struct schedule *schedule = pici_schedule(number);
    if (number == PICI_ALGO_AUTO)
        return "auto";
    return schedule ? schedule->name : NULL;
}
