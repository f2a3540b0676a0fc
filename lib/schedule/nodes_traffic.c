/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The traffic of schedules on two levels, in closed form. Inside a node, a segment of the pattern stands for all rails
 * that a rank carries; between nodes, for the segments of a node in each rail. */
#include "schedule/nodes.h"
#include "schedule/pattern.h"
#include "schedule/traffic.h"

enum {
    LOOKS = 32, /* steps examined between uneven nodes, of steps that are alike */
    NODES = 256 /* uneven nodes examined */
};

struct levels {
    struct nodes_levels base;
    int looked; /* nodes examined; 1: all are alike */
    int fair;   /* each node owns the same fraction; else each rank */
};

/* The fraction of one segment of a node. */
static double fraction_of(const struct levels *levels, int node)
{
    return levels->fair ? 1.0 / ((double)levels->base.nodes * nodes_size(levels->base.call, node))
                        : 1.0 / levels->base.call->ranks;
}

/* Add up the segments of all rails l with l mod carriers < count. */
static void rails(const struct levels *levels, int carriers, int count, double *fraction, double *segments)
{
    *fraction = *segments = 0;
    for (int i = 0; i < levels->looked; i++) {
        const int size = nodes_size(levels->base.call, i), remainder = size % carriers,
                  carried = size / carriers * count + (remainder < count ? remainder : count);
        const double times = levels->looked == 1 ? levels->base.nodes : 1;
        *fraction += times * carried * fraction_of(levels, i);
        *segments += times * carried;
    }
}

/* Add step k inside nodes, for all nodes with more than k steps. */
static void inner_step(const struct levels *levels, int k, struct traffic_step *step)
{
    struct schedule_run run;
    double fraction, segments;
    for (int i = 0, last = 0; i < levels->base.nodes; i++) {
        const int node_ranks = nodes_size(levels->base.call, i);
        /* a node like the one before, or one that is idle */
        if (node_ranks == last || pici_pattern_steps(levels->base.inside, node_ranks) <= k)
            continue;
        last = node_ranks;
        pici_pattern_run(&run, levels->base.inside, step->phase, node_ranks, 0, k);
        rails(levels, node_ranks, run.count, &fraction, &segments);
        pici_traffic_send(&step->inside, fraction, segments, 1);
        traffic_most(&step->receive_fraction, fraction);
    }
}

/* The segments of `count` nodes, from `first` on, that a rank of node i carries, and that the node carries. */
static void outer_run(const struct levels *levels, int i, int first, int count, struct traffic_load *rank_load,
                      double *node)
{
    const int node_ranks = nodes_size(levels->base.call, i);
    *rank_load = (struct traffic_load){0};
    *node = 0;
    if (levels->looked == 1) {
        rank_load->fraction = (double)count / levels->base.call->ranks;
        rank_load->segments = count;
        *node = rank_load->fraction * node_ranks;
        return;
    }
    for (int j = 0; j < count; j++) {
        const int other = (first + j) % levels->base.nodes, size = nodes_size(levels->base.call, other),
                  own = (size + node_ranks - 1) / node_ranks;
        rank_load->fraction += own * fraction_of(levels, other);
        rank_load->segments += own;
        *node += size * fraction_of(levels, other);
    }
}

/* Add step k between nodes. */
static void outer_step(const struct levels *levels, int k, struct traffic_step *step)
{
    struct schedule_run run;
    struct traffic_load rank_load;
    double node;
    pici_pattern_run(&run, levels->base.between, step->phase, levels->base.nodes, 0, k);
    for (int i = 0; i < levels->looked; i += 1 + levels->base.nodes / NODES) {
        const int node_ranks = nodes_size(levels->base.call, i);
        outer_run(levels, i, i + run.send_first, run.count, &rank_load, &node);
        pici_traffic_send(&step->between, rank_load.fraction, rank_load.segments,
                          (levels->base.rails + node_ranks - 1) / node_ranks);
        traffic_most(&step->node_fraction, node);
        outer_run(levels, i, i + run.recv_first, run.count, &rank_load, &node);
        traffic_most(&step->receive_fraction, rank_load.fraction);
    }
}

/* The contributions, one per virtual rank, in the first sum that a virtual rank sends in step k of a reduce-scatter. */
static int summed(const struct schedule_pattern *pattern, int p, int k)
{
    struct schedule_run run;
    pattern->run(&run, p, 0, k);
    return pattern->sum(NULL, p, 0, k, run.send_first);
}

static void inner_phase(const struct levels *levels, enum schedule_phase phase, struct schedule_traffic *traffic)
{
    for (int k = 0; k < levels->base.inside_steps; k++)
        inner_step(levels, k,
                   pici_traffic_add(traffic, phase,
                                    phase == PHASE_REDUCE ? summed(levels->base.inside, levels->base.rails, k)
                                                          : levels->base.call->ranks,
                                    0, 1));
}

static void outer_phase(const struct levels *levels, enum schedule_phase phase, struct schedule_traffic *traffic)
{
    const struct schedule_pattern *pattern = levels->base.between;
    const int nodes = levels->base.nodes, p = levels->base.call->ranks, steps = levels->base.between_steps;
    const int each = (p + nodes - 1) / nodes; /* contributions that a node has, on average */
    for (int k = 0, alike; k < steps; k += alike) {
        const int most = levels->looked == 1 ? steps : (steps + LOOKS - 1) / LOOKS;
        int sum = p, grow = 0;
        alike = pattern->alike(nodes, k);
        alike = alike < most ? alike : most;
        alike = k + alike < steps ? alike : steps - k;
        if (phase == PHASE_REDUCE) {
            sum = summed(pattern, nodes, k) < nodes ? summed(pattern, nodes, k) * each : p;
            grow = alike > 1 ? (pattern->contributions(nodes, k + 1) - pattern->contributions(nodes, k)) * each : 0;
        }
        outer_step(levels, k + alike / 2, pici_traffic_add(traffic, phase, sum, grow, alike));
    }
}

void pici_nodes_traffic(const struct schedule *schedule, const struct schedule_call *call,
                        struct schedule_traffic *traffic)
{
    struct schedule_call first = *call;
    first.virtual_rank = 0;
    const struct levels levels = {pici_nodes_levels(schedule, &first), pici_traffic_nodes(call),
                                  call->kind == PICI_ALL_REDUCE};
    if (call->kind != PICI_ALL_GATHER) {
        inner_phase(&levels, PHASE_REDUCE, traffic);
        outer_phase(&levels, PHASE_REDUCE, traffic);
    }
    if (call->kind != PICI_REDUCE_SCATTER) {
        outer_phase(&levels, PHASE_GATHER, traffic);
        inner_phase(&levels, PHASE_GATHER, traffic);
    }
}
