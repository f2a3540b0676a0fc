/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Limits of the schedules on two levels, without running through the steps of all ranks. */
#include "schedule/nodes.h"
#include "schedule/pattern.h"

static void raise(int *limit, int64_t target, int most)
{
    target = target < most ? target : most;
    *limit = target > *limit ? (int)target : *limit;
}

static int64_t shares(int rails, int64_t each)
{
    return (rails + each - 1) / each;
}

static int divisor(int one, int other)
{
    while (other) {
        const int remainder = one % other;
        one = other;
        other = remainder;
    }
    return one;
}

/* The most segments of a message inside a node of `size` ranks: the segments of the first ranks' rails. These ranks
 * carry the most rails. There are as many such ranks as a message of the pattern has segments. */
static int64_t most_inside(const struct nodes_levels *levels, int size)
{
    const int ranks = pici_pattern_widest(levels->inside, size);
    int64_t segments = 0;
    for (int i = 0; i < levels->nodes; i++) {
        const int rails = nodes_size(levels->call, i), remainder = rails % size;
        segments += (int64_t)(rails / size) * ranks + (remainder < ranks ? remainder : ranks);
    }
    return segments;
}

/* Ranks of the nodes first, first + 1, ..., which may wrap around; first may be negative. */
static int ranks_of_run(const struct nodes_levels *levels, int first, int count)
{
    const int from = (first + levels->nodes) % levels->nodes, end = from + count;
    return end <= levels->nodes
               ? nodes_begin(levels->call, end) - nodes_begin(levels->call, from)
               : levels->call->ranks - nodes_begin(levels->call, from) + nodes_begin(levels->call, end - levels->nodes);
}

static void limits_inside(const struct nodes_levels *levels, struct schedule_limits *limits, int reduces)
{
    for (int i = 0; i < levels->nodes; i++) {
        const int size = nodes_size(levels->call, i);
        int seen = 0;
        while (nodes_size(levels->call, seen) != size)
            seen++;
        /* this size was seen before, or has no messages */
        if (seen < i || size == 1)
            continue;
        const int64_t segments = most_inside(levels, size);
        limits->sends = limits->receives = 1;
        raise(&limits->segments, segments, levels->call->ranks);
        if (reduces)
            raise(&limits->sums, segments, levels->call->ranks);
    }
}

/* The ranks of the widest node other than this one. */
static int widest_but(const struct nodes_levels *levels, int node)
{
    return nodes_size(levels->call, node) == levels->rails ? levels->second : levels->rails;
}

/* Raise the limits to the messages of a step between two nodes, with segments of `count` nodes in at most `rails`
 * rails. Two ranks on different nodes share rails at distances of the least common multiple of the nodes' sizes. */
static void limits_of_pair(const struct nodes_levels *levels, struct schedule_limits *limits, int from, int target,
                           int count, int rails)
{
    const int from_ranks = nodes_size(levels->call, from), to_ranks = nodes_size(levels->call, target),
              common = divisor(from_ranks, to_ranks), p = levels->call->ranks;
    const int64_t sends = shares(rails, from_ranks), receives = shares(rails, to_ranks);
    raise(&limits->sends, sends < to_ranks / common ? sends : to_ranks / common, p);
    raise(&limits->receives, receives < from_ranks / common ? receives : from_ranks / common, p);
    raise(&limits->segments, count * shares(rails, (int64_t)from_ranks * (to_ranks / common)), p);
}

static void limits_between(const struct nodes_levels *levels, struct schedule_limits *limits, enum schedule_phase phase)
{
    struct schedule_run run;
    /* a ring has the same pairs in all steps */
    const int different = levels->between->logarithmic ? levels->between_steps : 1;
    for (int i = 0; i < levels->nodes && levels->nodes > 1; i++)
        for (int k = 0; k < different; k++) {
            levels->between->run(&run, levels->nodes, i, k); /* all-gather has the same pairs */
            limits_of_pair(levels, limits, i, run.to, run.count,
                           widest_but(levels, phase == PHASE_REDUCE ? i : run.to));
        }
}

/* The sums of a rank that is alone on its node, and the blocks that it keeps apart. With the ring, these belong to one
 * node at a time. Sums are never the previous node's, which sends them; blocks are never the next node's, which
 * receives them. */
static void limits_alone(const struct nodes_levels *levels, int *sums, int *kept)
{
    const int each = levels->between->logarithmic, widest_run = pici_pattern_widest(levels->between, levels->nodes),
              nodes = levels->nodes;
    const int nearest = (nodes + 1) / 2 - 1; /* forwarded in the last step, besides its own */
    *sums = *kept = 0;
    for (int i = 0; i < nodes && nodes > 1; i++) {
        if (nodes_size(levels->call, i) > 1)
            continue;
        raise(sums, each ? ranks_of_run(levels, i, widest_run) : widest_but(levels, (i + nodes - 1) % nodes),
              levels->call->ranks);
        raise(kept, each ? ranks_of_run(levels, i - nearest, nearest) : widest_but(levels, (i + 1) % nodes),
              levels->call->ranks);
    }
}

void pici_nodes_limits(const struct schedule *schedule, const struct schedule_call *call,
                       struct schedule_limits *limits)
{
    const struct nodes_levels levels = pici_nodes_levels(schedule, call);
    const int reduces = call->kind != PICI_ALL_GATHER, gathers = call->kind != PICI_REDUCE_SCATTER;
    int sums, kept;
    *limits = (struct schedule_limits){0};
    if (call->ranks == 1)
        return;
    limits_inside(&levels, limits, reduces);
    if (reduces)
        limits_between(&levels, limits, PHASE_REDUCE);
    if (gathers)
        limits_between(&levels, limits, PHASE_GATHER);
    limits_alone(&levels, &sums, &kept);
    if (reduces)
        raise(&limits->sums, sums, call->ranks);
    if (!gathers)
        return;
    /* messages inside a node, its own one too */
    const int inside = levels.inside->logarithmic ? levels.inside_steps : 1;
    if (levels.nodes == 1)
        limits->kept = inside;
    else if (levels.rails == 1)
        limits->kept = levels.between->logarithmic ? levels.between_steps : 1;
    else /* the rank's own message, others' blocks, and messages inside; a ring's are kept when those were forwarded */
        limits->kept = 1 + inside;
    if (levels.rails > 1)
        raise(&limits->kept, 1 + shares(kept, limits->segments), call->ranks);
}
