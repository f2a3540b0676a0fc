/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What schedules on two levels send, by closed forms. Inside a node, what stands for a segment is all lanes that a rank
 * carries; between nodes, for each lane, the segments of a node. */
#include "schedule/nodes.h"
#include "schedule/pattern.h"
#include "schedule/traffic.h"

enum {
    LOOKS = 32, /* steps between uneven nodes that are looked at, of those that are alike */
    NODES = 256 /* uneven nodes that are looked at */
};

struct levels {
    struct nodes_levels v;
    int looked; /* nodes that are looked at; 1: all are alike */
    int fair;   /* each node owns the same share; else each rank */
};

/* The share of one segment of a node. */
static double share_of(const struct levels *n, int node)
{
    return n->fair ? 1.0 / ((double)n->v.nodes * nodes_size(n->v.c, node)) : 1.0 / n->v.c->ranks;
}

/* Add up the segments of those lanes l for which l mod m < count. */
static void lanes(const struct levels *n, int m, int count, double *share, double *segments)
{
    *share = *segments = 0;
    for (int i = 0; i < n->looked; i++) {
        const int size = nodes_size(n->v.c, i), rest = size % m,
                  carried = size / m * count + (rest < count ? rest : count);
        const double times = n->looked == 1 ? n->v.nodes : 1;
        *share += times * carried * share_of(n, i);
        *segments += times * carried;
    }
}

/* Step k inside nodes, on all that have so many steps. */
static void inner_step(const struct levels *n, int k, struct traffic_step *s)
{
    struct schedule_run t;
    double share, segments;
    for (int i = 0, last = 0; i < n->v.nodes; i++) {
        const int m = nodes_size(n->v.c, i);
        if (m == last || pici_pattern_steps(n->v.inside, m) <= k)
            continue; /* a node like the one before, or one that is idle */
        last = m;
        pici_pattern_run(&t, n->v.inside, s->phase, m, 0, k);
        lanes(n, m, t.count, &share, &segments);
        pici_traffic_send(&s->inside, share, segments, 1);
        traffic_most(&s->take_share, share);
    }
}

/* What a rank of node i carries of the segments of `count` nodes from `first` on, and what the node does. */
static void outer_run(const struct levels *n, int i, int first, int count, struct traffic_load *rank, double *node)
{
    const int m = nodes_size(n->v.c, i);
    *rank = (struct traffic_load){0};
    *node = 0;
    if (n->looked == 1) {
        rank->share = (double)count / n->v.c->ranks;
        rank->segments = count;
        *node = rank->share * m;
        return;
    }
    for (int j = 0; j < count; j++) {
        const int at = (first + j) % n->v.nodes, size = nodes_size(n->v.c, at), own = (size + m - 1) / m;
        rank->share += own * share_of(n, at);
        rank->segments += own;
        *node += size * share_of(n, at);
    }
}

/* Step k between nodes. */
static void outer_step(const struct levels *n, int k, struct traffic_step *s)
{
    struct schedule_run t;
    struct traffic_load rank;
    double node;
    pici_pattern_run(&t, n->v.between, s->phase, n->v.nodes, 0, k);
    for (int i = 0; i < n->looked; i += 1 + n->v.nodes / NODES) {
        const int m = nodes_size(n->v.c, i);
        outer_run(n, i, i + t.send_first, t.count, &rank, &node);
        pici_traffic_send(&s->between, rank.share, rank.segments, (n->v.lanes + m - 1) / m);
        traffic_most(&s->node_share, node);
        outer_run(n, i, i + t.recv_first, t.count, &rank, &node);
        traffic_most(&s->take_share, rank.share);
    }
}

/* Contributions, of as many positions, in the sum that a position sends first in step k of a reduce-scatter. */
static int summed(const struct schedule_pattern *a, int p, int k)
{
    struct schedule_run t;
    a->run(&t, p, 0, k);
    return a->sum(NULL, p, 0, k, t.send_first);
}

static void inner_phase(const struct levels *n, enum schedule_phase phase, struct schedule_traffic *t)
{
    for (int k = 0; k < n->v.inside_steps; k++)
        inner_step(n, k,
                   pici_traffic_add(t, phase,
                                    phase == PHASE_REDUCE ? summed(n->v.inside, n->v.lanes, k) : n->v.c->ranks, 0, 1));
}

static void outer_phase(const struct levels *n, enum schedule_phase phase, struct schedule_traffic *t)
{
    const struct schedule_pattern *a = n->v.between;
    const int nodes = n->v.nodes, p = n->v.c->ranks, steps = n->v.between_steps;
    const int each = (p + nodes - 1) / nodes; /* contributions that a node has, on average */
    for (int k = 0, alike; k < steps; k += alike) {
        const int most = n->looked == 1 ? steps : (steps + LOOKS - 1) / LOOKS;
        int sum = p, grow = 0;
        alike = a->alike(nodes, k);
        alike = alike < most ? alike : most;
        alike = k + alike < steps ? alike : steps - k;
        if (phase == PHASE_REDUCE) {
            sum = summed(a, nodes, k) < nodes ? summed(a, nodes, k) * each : p;
            grow = alike > 1 ? (a->contributions(nodes, k + 1) - a->contributions(nodes, k)) * each : 0;
        }
        outer_step(n, k + alike / 2, pici_traffic_add(t, phase, sum, grow, alike));
    }
}

void pici_nodes_traffic(const struct schedule *s, const struct schedule_call *c, struct schedule_traffic *t)
{
    struct schedule_call first = *c;
    first.position = 0;
    const struct levels n = {pici_nodes_levels(s, &first), pici_traffic_nodes(c), c->kind == PICI_ALL_REDUCE};
    if (c->kind != PICI_ALL_GATHER) {
        inner_phase(&n, PHASE_REDUCE, t);
        outer_phase(&n, PHASE_REDUCE, t);
    }
    if (c->kind != PICI_REDUCE_SCATTER) {
        outer_phase(&n, PHASE_GATHER, t);
        inner_phase(&n, PHASE_GATHER, t);
    }
}
