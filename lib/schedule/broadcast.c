/* SPDX-License-Identifier: BSD-3-Clause */
#include "schedule/broadcast.h"

#include "schedule/nodes.h"
#include "schedule/pattern.h"

static int modulo(int i, int p)
{
    const int remainder = i % p;
    return remainder < 0 ? remainder + p : remainder;
}

static void put(struct schedule_message *message, int peer, int first, int count, int p, enum schedule_action action,
                int keep, int contributions)
{
    *message = (struct schedule_message){.peer = peer,
                                         .segments = message->segments,
                                         .count = count,
                                         .action = action,
                                         .keep = keep ? KEEP_MESSAGE : KEEP_NOT,
                                         .contributions = contributions};
    for (int i = 0; i < count; i++)
        message->segments[i] = modulo(first + i, p);
}

static void begin_step(struct schedule_step *step)
{
    step->phase = PHASE_GATHER;
    step->complete = COMPLETE_NONE;
    step->sends = step->receives = 0;
}

/* ---- trees */

/* A virtual rank's part in a step of a pattern. to, from: the virtual ranks that it sends to and receives from, or -1.
 * again: it sends again in a later step. */
struct hop {
    int to, from, again;
};

static int sends_root(const struct schedule_run *run, int p, int root)
{
    return modulo(root - run->send_first, p) < run->count;
}

static struct hop hop_of(const struct schedule_pattern *pattern, int p, int r, int root, int k)
{
    struct hop hop = {-1, -1, 0};
    struct schedule_run run;
    pici_pattern_run(&run, pattern, PHASE_GATHER, p, r, k);
    hop.to = sends_root(&run, p, root) ? run.to : -1;
    hop.from = modulo(root - run.recv_first, p) < run.count ? run.from : -1;
    for (int later = k + 1; (hop.to >= 0 || hop.from >= 0) && !hop.again && later < pici_pattern_steps(pattern, p);
         later++) {
        pici_pattern_run(&run, pattern, PHASE_GATHER, p, r, later);
        hop.again = sends_root(&run, p, root);
    }
    return hop;
}

/* A tree between nodes, among one virtual rank of each; then a tree inside each node, from that virtual rank. A flat
 * tree has one node. */
struct tree {
    const struct schedule_pattern *inside, *between;
    struct schedule_call call; /* flat: without nodes */
    int nodes, between_steps, inside_steps;
    int node, first, size, root_node, rail; /* this virtual rank's node; the root's node, and the root's number on it */
};

static struct tree tree_of(const struct schedule *schedule, const struct schedule_call *call)
{
    struct tree tree = {.inside = schedule->gather, .call = *call};
    int widest = call->ranks;
    tree.call.nodes = schedule->by_node ? call->nodes : NULL;
    tree.nodes = nodes_of(&tree.call);
    tree.node = pici_schedule_node(tree.call.nodes, call->virtual_rank);
    tree.root_node = pici_schedule_node(tree.call.nodes, call->root);
    if (schedule->by_node) {
        tree.between = schedule->gather;
        tree.inside = pici_nodes_inside(call, &widest);
        tree.between_steps = pici_pattern_steps(tree.between, tree.nodes);
    }
    tree.inside_steps = pici_pattern_steps(tree.inside, widest);
    tree.first = nodes_begin(&tree.call, tree.node);
    tree.size = nodes_size(&tree.call, tree.node);
    tree.rail = call->root - nodes_begin(&tree.call, tree.root_node);
    return tree;
}

/* The first virtual rank of a node that gets the data. */
static int head_of(const struct tree *tree, int node)
{
    return nodes_begin(&tree->call, node) + tree->rail % nodes_size(&tree->call, node);
}

int pici_tree_steps(const struct schedule *schedule, const struct schedule_call *call)
{
    const struct tree tree = tree_of(schedule, call);
    return tree.between_steps + tree.inside_steps;
}

void pici_tree_step(const struct schedule *schedule, const struct schedule_call *call, int k,
                    struct schedule_step *step)
{
    const struct tree tree = tree_of(schedule, call);
    const int p = call->ranks, head = head_of(&tree, tree.node), inside = k - tree.between_steps;
    struct hop hop = {-1, -1, 0};
    begin_step(step);
    if (inside >= 0 && inside < pici_pattern_steps(tree.inside, tree.size)) {
        hop = hop_of(tree.inside, tree.size, call->virtual_rank - tree.first, head - tree.first, inside);
        hop.to = hop.to < 0 ? -1 : tree.first + hop.to;
        hop.from = hop.from < 0 ? -1 : tree.first + hop.from;
    } else if (inside < 0 && call->virtual_rank == head) {
        hop = hop_of(tree.between, tree.nodes, tree.node, tree.root_node, k);
        hop.to = hop.to < 0 ? -1 : head_of(&tree, hop.to);
        hop.from = hop.from < 0 ? -1 : head_of(&tree, hop.from);
        hop.again |= tree.size > 1;
    }
    step->sends = hop.to >= 0;
    step->receives = hop.from >= 0;
    if (step->sends) /* the root sends in the first step */
        put(step->send, hop.to, 0, 1, p, k == 0 ? SEND_ENCODE : SEND_FORWARD, hop.again, p);
    if (step->receives)
        put(step->receive, hop.from, 0, 1, p, RECEIVE_PLACE, hop.again, p);
}

void pici_tree_limits(const struct schedule *schedule, const struct schedule_call *call, struct schedule_limits *limits)
{
    (void)schedule;
    *limits = (struct schedule_limits){0};
    if (call->ranks > 1)
        *limits = (struct schedule_limits){.sends = 1, .receives = 1, .segments = 1, .kept = call->ranks > 2};
}

/* ---- scatter and gather. The root takes part in the gather, which is then the same for all roots. The root receives
 * only segments that it must forward, and does not decode them. */

static int scatter_steps(const struct schedule_call *call)
{
    return call->ranks - 1;
}

/* Whether two runs share a segment. */
static int meet(int one, int many, int other, int others, int p)
{
    return modulo(other - one, p) < many || modulo(one - other, p) < others;
}

static int forwards(const struct schedule_call *, int r, int first, int count, int k);

/* Whether to leave out the message of a virtual rank in step k of the gather: it goes to the root, which has these
 * segments and forwards none of them. */
static int left_out(const struct schedule_call *call, const struct schedule_run *run, int k)
{
    return run->to == call->root && !forwards(call, call->root, run->send_first, run->count, k);
}

/* Whether virtual rank r sends some of these segments after step k of the gather. In a ring that is in the next step.
 * */
static int forwards(const struct schedule_call *call, int r, int first, int count, int k)
{
    const struct schedule_pattern *pattern = pici_pattern_by_size(call);
    const int last = pici_pattern_steps(pattern, call->ranks) - 1,
              until = pattern->logarithmic || k >= last ? last : k + 1;
    for (int later = k + 1; later <= until; later++) {
        struct schedule_run run;
        pici_pattern_run(&run, pattern, PHASE_GATHER, call->ranks, r, later);
        if (meet(first, count, run.send_first, run.count, call->ranks) && !left_out(call, &run, later))
            return 1;
    }
    return 0;
}

static void gather_step(const struct schedule_call *call, int k, struct schedule_step *step)
{
    const int p = call->ranks, r = call->virtual_rank;
    struct schedule_run run;
    pici_pattern_run(&run, pici_pattern_by_size(call), PHASE_GATHER, p, r, k);
    const int keep = forwards(call, r, run.recv_first, run.count, k);
    step->sends = !left_out(call, &run, k);
    step->receives = r != call->root || keep;
    if (step->sends)
        put(step->send, run.to, run.send_first, run.count, p, r == call->root && k == 0 ? SEND_ENCODE : SEND_FORWARD,
            forwards(call, r, run.send_first, run.count, k), p);
    if (step->receives)
        put(step->receive, run.from, run.recv_first, run.count, p, r == call->root ? RECEIVE_KEEP : RECEIVE_PLACE, keep,
            p);
}

int pici_scatter_steps(const struct schedule *schedule, const struct schedule_call *call)
{
    (void)schedule;
    return scatter_steps(call) + pici_pattern_steps(pici_pattern_by_size(call), call->ranks);
}

void pici_scatter_step(const struct schedule *schedule, const struct schedule_call *call, int k,
                       struct schedule_step *step)
{
    const int p = call->ranks, target = modulo(call->root + 1 + k, p);
    (void)schedule;
    begin_step(step);
    if (k >= scatter_steps(call)) {
        gather_step(call, k - scatter_steps(call), step);
        return;
    }
    step->sends = call->virtual_rank == call->root;
    step->receives = call->virtual_rank == target;
    if (step->sends)
        put(step->send, target, target, 1, p, SEND_ENCODE, 0, p);
    if (step->receives)
        put(step->receive, call->root, target, 1, p, RECEIVE_PLACE, forwards(call, target, target, 1, -1), p);
}

void pici_scatter_limits(const struct schedule *schedule, const struct schedule_call *call,
                         struct schedule_limits *limits)
{
    const struct schedule_pattern *pattern = pici_pattern_by_size(call);
    (void)schedule;
    *limits = (struct schedule_limits){0};
    if (call->ranks > 1)
        *limits = (struct schedule_limits){.sends = 1,
                                           .receives = 1,
                                           .segments = pici_pattern_widest(pattern, call->ranks),
                                           .kept = pattern->logarithmic ? pici_pattern_steps(pattern, call->ranks) : 1};
}
