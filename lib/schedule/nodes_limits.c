/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Limits of the schedules on two levels: what is needed at most, without going through the steps of all ranks. */
#include "schedule/nodes.h"
#include "schedule/pattern.h"

static void raise(int *limit, int64_t to, int most)
{
    to = to < most ? to : most;
    *limit = to > *limit ? (int)to : *limit;
}

static int64_t shares(int n, int64_t of)
{
    return (n + of - 1) / of;
}

static int divisor(int a, int b)
{
    while (b) {
        const int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Segments of a message inside a node of so many ranks: those of the lanes of as many ranks as the pattern's messages
 * have segments. The first ranks carry the most lanes. */
static int64_t most_inside(const struct nodes_levels *v, int size)
{
    const int ranks = pici_pattern_widest(v->inside, size);
    int64_t segments = 0;
    for (int i = 0; i < v->nodes; i++) {
        const int lanes = nodes_size(v->c, i), rest = lanes % size;
        segments += (int64_t)(lanes / size) * ranks + (rest < ranks ? rest : ranks);
    }
    return segments;
}

/* Ranks of the nodes first, first + 1, ..., which may wrap around; first may be negative. */
static int ranks_of_run(const struct nodes_levels *v, int first, int count)
{
    const int from = (first + v->nodes) % v->nodes, end = from + count;
    return end <= v->nodes ? nodes_begin(v->c, end) - nodes_begin(v->c, from)
                           : v->c->ranks - nodes_begin(v->c, from) + nodes_begin(v->c, end - v->nodes);
}

static void limits_inside(const struct nodes_levels *v, struct schedule_limits *l, int reduces)
{
    for (int i = 0; i < v->nodes; i++) {
        const int size = nodes_size(v->c, i);
        int seen = 0;
        while (nodes_size(v->c, seen) != size)
            seen++;
        if (seen < i || size == 1)
            continue; /* as another, or alone */
        const int64_t segments = most_inside(v, size);
        l->sends = l->receives = 1;
        raise(&l->segments, segments, v->c->ranks);
        if (reduces)
            raise(&l->sums, segments, v->c->ranks);
    }
}

/* Ranks of the widest node but this one. */
static int widest_but(const struct nodes_levels *v, int node)
{
    return nodes_size(v->c, node) == v->lanes ? v->second : v->lanes;
}

/* The messages of a step between two nodes. `count` nodes have segments in them, in so many lanes at the most. A rank
 * of the one node and a rank of the other share the lanes at distances of the least common multiple of the sizes. */
static void limits_of_pair(const struct nodes_levels *v, struct schedule_limits *l, int from, int to, int count,
                           int lanes)
{
    const int m = nodes_size(v->c, from), n = nodes_size(v->c, to), common = divisor(m, n), p = v->c->ranks;
    const int64_t sends = shares(lanes, m), receives = shares(lanes, n);
    raise(&l->sends, sends < n / common ? sends : n / common, p);
    raise(&l->receives, receives < m / common ? receives : m / common, p);
    raise(&l->segments, count * shares(lanes, (int64_t)m * (n / common)), p);
}

static void limits_between(const struct nodes_levels *v, struct schedule_limits *l, enum schedule_phase phase)
{
    struct schedule_run t;
    const int different = v->between->logarithmic ? v->between_steps : 1; /* a ring has the same pairs in all steps */
    for (int i = 0; i < v->nodes && v->nodes > 1; i++)
        for (int k = 0; k < different; k++) {
            v->between->run(&t, v->nodes, i, k); /* all-gather has the same pairs */
            limits_of_pair(v, l, i, t.to, t.count, widest_but(v, phase == PHASE_REDUCE ? i : t.to));
        }
}

/* Sums of a rank that is alone on its node, and blocks that it keeps apart. With the ring it has those of one node at a
 * time: not of the node before, which sends the sums, nor of the next one, to which the blocks are forwarded. */
static void limits_alone(const struct nodes_levels *v, int *sums, int *kept)
{
    const int each = v->between->logarithmic, widest_run = pici_pattern_widest(v->between, v->nodes), n = v->nodes;
    const int nearest = (n + 1) / 2 - 1; /* forwarded in the last step, besides its own */
    *sums = *kept = 0;
    for (int i = 0; i < n && n > 1; i++) {
        if (nodes_size(v->c, i) > 1)
            continue;
        raise(sums, each ? ranks_of_run(v, i, widest_run) : widest_but(v, (i + n - 1) % n), v->c->ranks);
        raise(kept, each ? ranks_of_run(v, i - nearest, nearest) : widest_but(v, (i + 1) % n), v->c->ranks);
    }
}

void pici_nodes_limits(const struct schedule *s, const struct schedule_call *c, struct schedule_limits *l)
{
    const struct nodes_levels v = pici_nodes_levels(s, c);
    const int reduces = c->kind != PICI_ALL_GATHER, gathers = c->kind != PICI_REDUCE_SCATTER;
    int sums, kept;
    *l = (struct schedule_limits){0};
    if (c->ranks == 1)
        return;
    limits_inside(&v, l, reduces);
    if (reduces)
        limits_between(&v, l, PHASE_REDUCE);
    if (gathers)
        limits_between(&v, l, PHASE_GATHER);
    limits_alone(&v, &sums, &kept);
    if (reduces)
        raise(&l->sums, sums, c->ranks);
    if (!gathers)
        return;
    const int inside = v.inside->logarithmic ? v.inside_steps : 1; /* messages inside a node, its own one too */
    if (v.nodes == 1)
        l->kept = inside;
    else if (v.lanes == 1)
        l->kept = v.between->logarithmic ? v.between_steps : 1;
    else /* the rank's own message, others' blocks, and messages inside; a ring's are kept when those were forwarded */
        l->kept = 1 + inside;
    if (v.lanes > 1)
        raise(&l->kept, 1 + shares(kept, l->segments), c->ranks);
}
