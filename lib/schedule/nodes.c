/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Schedules on two levels, for any nodes.
 *
 * Segment l of node i is owned by the node's rank l. Lane l is the segments l of all nodes that have one; on each node
 * one rank carries it: rank l modulo the node's size. So the ranks of a small node carry several lanes.
 *
 * Reduce-scatter: first, on each node, a pattern among its ranks in which "segment j" stands for all segments of the
 * lanes that rank j carries. Then, for each lane, a pattern among its carriers in which "segment i" stands for the
 * lane's segment of node i, if there is one. All-gather: the same backwards, first between nodes. The steps inside
 * nodes are as many as the widest node needs; the ranks of smaller ones are idle in the rest of them. A message without
 * segments is not sent. All lanes that two ranks share go in one message. */
#include "schedule/nodes.h"

#include "schedule/pattern.h"

enum { RING_UP_TO = 8 }; /* ranks of the widest node: with more, few steps matter more inside nodes */

/* ---- nodes */

const struct schedule_pattern *pici_nodes_inside(const struct schedule_call *c, int *widest)
{
    *widest = 0;
    for (int i = 0; i < nodes_of(c); i++)
        *widest = nodes_size(c, i) > *widest ? nodes_size(c, i) : *widest;
    return *widest <= RING_UP_TO ? &pici_pattern_ring : &pici_pattern_recursive;
}

struct nodes_levels pici_nodes_levels(const struct schedule *s, const struct schedule_call *c)
{
    struct nodes_levels v = {
        .c = c, .between = s->reduce, .nodes = nodes_of(c), .node = pici_schedule_node(c->nodes, c->position)};
    for (int i = 0, most = 0; i < v.nodes; i++) {
        const int size = nodes_size(c, i);
        v.second = size > most ? most : size > v.second ? size : v.second;
        most = size > most ? size : most;
    }
    v.inside = pici_nodes_inside(c, &v.lanes);
    v.inside_steps = pici_pattern_steps(v.inside, v.lanes);
    v.between_steps = pici_pattern_steps(v.between, v.nodes);
    v.first = nodes_begin(c, v.node);
    v.size = nodes_size(c, v.node);
    v.local = c->position - v.first;
    return v;
}

/* ---- steps */

static int phases_of(const struct schedule_call *c)
{
    return c->kind == PICI_ALL_REDUCE ? 2 : 1;
}

int pici_nodes_steps(const struct schedule *s, const struct schedule_call *c)
{
    const struct nodes_levels v = pici_nodes_levels(s, c);
    return phases_of(c) * (v.inside_steps + v.between_steps);
}

/* Put the segments of all lanes that the ranks first, first + 1, ... of this node carry into a message to one of
 * them. */
static void put_inside(const struct nodes_levels *v, struct schedule_message *m, int peer, int first, int count)
{
    m->peer = v->first + peer;
    m->count = 0;
    for (int i = 0; i < count; i++)
        for (int lane = (first + i) % v->size; lane < v->lanes; lane += v->size)
            for (int node = 0; node < v->nodes; node++)
                if (lane < nodes_size(v->c, node))
                    m->segments[m->count++] = nodes_begin(v->c, node) + lane;
}

static void step_inside(const struct nodes_levels *v, int k, struct schedule_step *s)
{
    struct schedule_run t;
    const int p = v->c->ranks;
    if (k >= pici_pattern_steps(v->inside, v->size))
        return;
    pici_pattern_run(&t, v->inside, s->phase, v->size, v->local, k);
    s->sends = s->receives = 1;
    put_inside(v, s->send, t.to, t.send_first, t.count);
    put_inside(v, s->receive, t.from, t.recv_first, t.count);
    if (s->phase == PHASE_REDUCE) {
        s->send->action = SEND_ENCODE;
        s->receive->action = TAKE_REDUCE;
        s->send->contributions = v->inside->sum(NULL, v->size, v->local, k, t.send_first);
        s->receive->contributions = v->inside->sum(NULL, v->size, t.from, k, t.recv_first);
    } else {
        s->send->action = k == 0 && v->nodes == 1 ? SEND_ENCODE : SEND_FORWARD;
        s->receive->action = TAKE_PLACE;
        s->send->contributions = s->receive->contributions = p;
    }
    s->send->keep = t.keep_sent ? KEEP_MESSAGE : KEEP_NOT;
    s->receive->keep = t.keep_received ? KEEP_MESSAGE : KEEP_NOT;
}

/* The message of a list with this peer; if there is none, a new one. */
static struct schedule_message *message_with(struct schedule_message *list, int *n, int peer)
{
    for (int i = 0; i < *n; i++)
        if (list[i].peer == peer)
            return &list[i];
    list[*n] = (struct schedule_message){.peer = peer, .segments = list[*n].segments};
    return &list[(*n)++];
}

/* Put the segments of nodes first, first + 1, ... in the lanes that this rank carries into messages with the carriers
 * on another node. Returns how many messages there are. In the first lane of a message are all nodes that are in any
 * lane of it; of the segments of a run, the sum of the first has the most contributions, among which are those of each
 * other. */
static int put_between(const struct nodes_levels *v, struct schedule_message *list, int peer, int sender, int first,
                       int count, enum schedule_phase phase, int k)
{
    const struct schedule_call *c = v->c;
    int n = 0;
    for (int lane = v->local; lane < v->lanes; lane += v->size) {
        const int carrier = nodes_begin(c, peer) + lane % nodes_size(c, peer);
        for (int i = 0; i < count; i++) {
            const int node = (first + i) % v->nodes;
            if (lane >= nodes_size(c, node))
                continue;
            struct schedule_message *m = message_with(list, &n, carrier);
            if (!m->count)
                m->contributions =
                    phase == PHASE_REDUCE ? v->between->sum(c->nodes->begin, v->nodes, sender, k, node) : c->ranks;
            m->segments[m->count++] = nodes_begin(c, node) + lane;
        }
    }
    return n;
}

static void step_between(const struct nodes_levels *v, int k, struct schedule_step *s)
{
    const int gathers = s->phase == PHASE_GATHER, inside = gathers && v->size > 1; /* forwarded inside the node later */
    struct schedule_run t;
    pici_pattern_run(&t, v->between, s->phase, v->nodes, v->node, k);
    s->sends = put_between(v, s->send, t.to, v->node, t.send_first, t.count, s->phase, k);
    s->receives = put_between(v, s->receive, t.from, t.from, t.recv_first, t.count, s->phase, k);
    for (int i = 0; i < s->sends; i++) {
        s->send[i].action = gathers && k > 0 ? SEND_FORWARD : SEND_ENCODE;
        s->send[i].keep = inside || t.keep_sent ? KEEP_MESSAGE : KEEP_NOT;
    }
    for (int i = 0; i < s->receives; i++) {
        s->receive[i].action = gathers ? TAKE_PLACE : TAKE_REDUCE;
        s->receive[i].keep = !inside && !t.keep_received ? KEEP_NOT : v->lanes > 1 ? KEEP_APART : KEEP_MESSAGE;
    }
}

void pici_nodes_step(const struct schedule *s, const struct schedule_call *c, int k, struct schedule_step *out)
{
    const struct nodes_levels v = pici_nodes_levels(s, c);
    const int steps = v.inside_steps + v.between_steps, reducing = c->kind == PICI_ALL_GATHER ? 0 : steps;
    out->phase = k < reducing ? PHASE_REDUCE : PHASE_GATHER;
    out->complete = k + 1 == reducing ? COMPLETE_OWN : COMPLETE_NONE;
    out->sends = out->receives = 0;
    k -= k < reducing ? 0 : reducing;
    const int before = out->phase == PHASE_REDUCE ? v.inside_steps : v.between_steps;
    if ((k < before) == (out->phase == PHASE_REDUCE))
        step_inside(&v, out->phase == PHASE_REDUCE ? k : k - before, out);
    else
        step_between(&v, out->phase == PHASE_REDUCE ? k - before : k, out);
}
