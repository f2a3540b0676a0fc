/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Schedules on two levels, for any nodes.
 *
 * Segment l of node i is owned by the node's rank l. Rail l is the segments l of all nodes that have one. On each node
 * one rank carries it: rank l modulo the node's size. So the ranks of a small node carry several rails.
 *
 * Reduce-scatter: first, on each node, a pattern among its ranks in which "segment j" stands for all segments of the
 * rails that rank j carries. Then, for each rail, a pattern among its carriers in which "segment i" stands for the
 * rail's segment of node i, if there is one. All-gather: the same backwards, first between nodes. The widest node
 * determines the number of steps inside nodes; the ranks of smaller nodes are idle in the rest of them. A message
 * without segments is not sent. All rails that two ranks share go in one message. */
#include "schedule/nodes.h"

#include "schedule/pattern.h"

enum { RING_UP_TO = 8 }; /* ranks of the widest node: with more, few steps matter more inside nodes */

/* ---- nodes */

const struct schedule_pattern *pici_nodes_inside(const struct schedule_call *call, int *widest)
{
    *widest = 0;
    for (int i = 0; i < nodes_of(call); i++)
        *widest = nodes_size(call, i) > *widest ? nodes_size(call, i) : *widest;
    return *widest <= RING_UP_TO ? &pici_pattern_ring : &pici_pattern_recursive;
}

struct nodes_levels pici_nodes_levels(const struct schedule *schedule, const struct schedule_call *call)
{
    struct nodes_levels levels = {.call = call,
                                  .between = schedule->reduce,
                                  .nodes = nodes_of(call),
                                  .node = pici_schedule_node(call->nodes, call->virtual_rank)};
    for (int i = 0, most = 0; i < levels.nodes; i++) {
        const int size = nodes_size(call, i);
        if (size > most) {
            levels.second = most;
            most = size;
        } else if (size > levels.second) {
            levels.second = size;
        }
    }
    levels.inside = pici_nodes_inside(call, &levels.rails);
    levels.inside_steps = pici_pattern_steps(levels.inside, levels.rails);
    levels.between_steps = pici_pattern_steps(levels.between, levels.nodes);
    levels.first = nodes_begin(call, levels.node);
    levels.size = nodes_size(call, levels.node);
    levels.local = call->virtual_rank - levels.first;
    return levels;
}

/* ---- steps */

static int phases_of(const struct schedule_call *call)
{
    return call->kind == PICI_ALL_REDUCE ? 2 : 1;
}

int pici_nodes_steps(const struct schedule *schedule, const struct schedule_call *call)
{
    const struct nodes_levels levels = pici_nodes_levels(schedule, call);
    return phases_of(call) * (levels.inside_steps + levels.between_steps);
}

/* Put into a message with `peer` the segments of all rails that the ranks first, first + 1, ... of this node carry. */
static void put_inside(const struct nodes_levels *levels, struct schedule_message *message, int peer, int first,
                       int count)
{
    message->peer = levels->first + peer;
    message->count = 0;
    for (int i = 0; i < count; i++)
        for (int rail = (first + i) % levels->size; rail < levels->rails; rail += levels->size)
            for (int node = 0; node < levels->nodes; node++)
                if (rail < nodes_size(levels->call, node))
                    message->segments[message->count++] = nodes_begin(levels->call, node) + rail;
}

static void step_inside(const struct nodes_levels *levels, int k, struct schedule_step *step)
{
    struct schedule_run run;
    const int p = levels->call->ranks;
    if (k >= pici_pattern_steps(levels->inside, levels->size))
        return;
    pici_pattern_run(&run, levels->inside, step->phase, levels->size, levels->local, k);
    step->sends = step->receives = 1;
    put_inside(levels, step->send, run.to, run.send_first, run.count);
    put_inside(levels, step->receive, run.from, run.recv_first, run.count);
    if (step->phase == PHASE_REDUCE) {
        step->send->action = SEND_ENCODE;
        step->receive->action = RECEIVE_REDUCE;
        step->send->contributions = levels->inside->sum(NULL, levels->size, levels->local, k, run.send_first);
        step->receive->contributions = levels->inside->sum(NULL, levels->size, run.from, k, run.recv_first);
    } else {
        step->send->action = k == 0 && levels->nodes == 1 ? SEND_ENCODE : SEND_FORWARD;
        step->receive->action = RECEIVE_PLACE;
        step->send->contributions = step->receive->contributions = p;
    }
    step->send->keep = run.keep_sent ? KEEP_MESSAGE : KEEP_NOT;
    step->receive->keep = run.keep_received ? KEEP_MESSAGE : KEEP_NOT;
}

/* The message of a list with this peer; if there is none, a new one. */
static struct schedule_message *message_with(struct schedule_message *list, int *messages, int peer)
{
    for (int i = 0; i < *messages; i++)
        if (list[i].peer == peer)
            return &list[i];
    list[*messages] = (struct schedule_message){.peer = peer, .segments = list[*messages].segments};
    return &list[(*messages)++];
}

/* Put the segments of nodes first, first + 1, ..., in the rails that this rank carries, into messages with the carriers
 * on another node. Returns the number of messages. The first rail of a message has all nodes that its other rails have.
 * The sum of a run's first segment has the contributions of all its other sums, so it has the most. */
static int put_between(const struct nodes_levels *levels, struct schedule_message *list, int peer, int sender,
                       int first, int count, enum schedule_phase phase, int k)
{
    const struct schedule_call *call = levels->call;
    int messages = 0;
    for (int rail = levels->local; rail < levels->rails; rail += levels->size) {
        const int carrier = nodes_begin(call, peer) + rail % nodes_size(call, peer);
        for (int i = 0; i < count; i++) {
            const int node = (first + i) % levels->nodes;
            if (rail >= nodes_size(call, node))
                continue;
            struct schedule_message *message = message_with(list, &messages, carrier);
            if (!message->count)
                message->contributions = phase == PHASE_REDUCE
                                             ? levels->between->sum(call->nodes->begin, levels->nodes, sender, k, node)
                                             : call->ranks;
            message->segments[message->count++] = nodes_begin(call, node) + rail;
        }
    }
    return messages;
}

static void step_between(const struct nodes_levels *levels, int k, struct schedule_step *step)
{
    /* forwarded inside the node later */
    const int gathers = step->phase == PHASE_GATHER, inside = gathers && levels->size > 1;
    struct schedule_run run;
    pici_pattern_run(&run, levels->between, step->phase, levels->nodes, levels->node, k);
    step->sends = put_between(levels, step->send, run.to, levels->node, run.send_first, run.count, step->phase, k);
    step->receives = put_between(levels, step->receive, run.from, run.from, run.recv_first, run.count, step->phase, k);
    for (int i = 0; i < step->sends; i++) {
        step->send[i].action = gathers && k > 0 ? SEND_FORWARD : SEND_ENCODE;
        step->send[i].keep = inside || run.keep_sent ? KEEP_MESSAGE : KEEP_NOT;
    }
    for (int i = 0; i < step->receives; i++) {
        step->receive[i].action = gathers ? RECEIVE_PLACE : RECEIVE_REDUCE;
        step->receive[i].keep = levels->rails > 1 ? KEEP_APART : KEEP_MESSAGE;
        if (!inside && !run.keep_received)
            step->receive[i].keep = KEEP_NOT;
    }
}

void pici_nodes_step(const struct schedule *schedule, const struct schedule_call *call, int k,
                     struct schedule_step *step)
{
    const struct nodes_levels levels = pici_nodes_levels(schedule, call);
    const int steps = levels.inside_steps + levels.between_steps, reducing = call->kind == PICI_ALL_GATHER ? 0 : steps;
    step->phase = k < reducing ? PHASE_REDUCE : PHASE_GATHER;
    step->complete = k + 1 == reducing ? COMPLETE_OWN : COMPLETE_NONE;
    step->sends = step->receives = 0;
    k -= k < reducing ? 0 : reducing;
    const int before = step->phase == PHASE_REDUCE ? levels.inside_steps : levels.between_steps;
    if ((k < before) == (step->phase == PHASE_REDUCE))
        step_inside(&levels, step->phase == PHASE_REDUCE ? k : k - before, step);
    else
        step_between(&levels, step->phase == PHASE_REDUCE ? k - before : k, step);
}
