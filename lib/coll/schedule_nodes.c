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
#include "coll/schedule_nodes.h"

#include "coll/schedule_pattern.h"

enum { RING_UP_TO = 8 }; /* ranks of the widest node: with more, few steps matter more inside nodes */

/* ---- nodes */

static int nodes_of(const struct schedule_call *c)
{
    return c->nodes ? c->nodes->nodes : 1;
}

static int begin_of(const struct schedule_call *c, int node)
{
    return c->nodes ? c->nodes->begin[node] : node ? c->ranks : 0;
}

static int size_of(const struct schedule_call *c, int node)
{
    return begin_of(c, node + 1) - begin_of(c, node);
}

const struct schedule_pattern *pici_nodes_inside(const struct schedule_call *c, int *widest)
{
    *widest = 0;
    for (int i = 0; i < nodes_of(c); i++)
        *widest = size_of(c, i) > *widest ? size_of(c, i) : *widest;
    return *widest <= RING_UP_TO ? &pici_pattern_ring : &pici_pattern_recursive;
}

/* ---- steps */

/* A schedule at work: its patterns and what they are applied to. */
struct levels {
    const struct schedule_call *c;
    const struct schedule_pattern *inside, *between;
    int nodes, lanes, second;        /* lanes: ranks of the widest node; second: of the next, perhaps as wide */
    int inside_steps, between_steps; /* of a phase */
    int node, first, size, local;    /* this position's */
};

static struct levels levels_of(const struct schedule *s, const struct schedule_call *c)
{
    struct levels v = {
        .c = c, .between = s->reduce, .nodes = nodes_of(c), .node = pici_schedule_node(c->nodes, c->position)};
    for (int i = 0, most = 0; i < v.nodes; i++) {
        const int size = size_of(c, i);
        v.second = size > most ? most : size > v.second ? size : v.second;
        most = size > most ? size : most;
    }
    v.inside = pici_nodes_inside(c, &v.lanes);
    v.inside_steps = pici_pattern_steps(v.inside, v.lanes);
    v.between_steps = pici_pattern_steps(v.between, v.nodes);
    v.first = begin_of(c, v.node);
    v.size = size_of(c, v.node);
    v.local = c->position - v.first;
    return v;
}

static int phases_of(const struct schedule_call *c)
{
    return c->kind == PICI_ALL_REDUCE ? 2 : 1;
}

int pici_nodes_steps(const struct schedule *s, const struct schedule_call *c)
{
    const struct levels v = levels_of(s, c);
    return phases_of(c) * (v.inside_steps + v.between_steps);
}

/* Put the segments of all lanes that the ranks first, first + 1, ... of this node carry into a message to one of
 * them. */
static void put_inside(const struct levels *v, struct schedule_message *m, int peer, int first, int count)
{
    m->peer = v->first + peer;
    m->count = 0;
    for (int i = 0; i < count; i++)
        for (int lane = (first + i) % v->size; lane < v->lanes; lane += v->size)
            for (int node = 0; node < v->nodes; node++)
                if (lane < size_of(v->c, node))
                    m->segments[m->count++] = begin_of(v->c, node) + lane;
}

static void step_inside(const struct levels *v, int k, struct schedule_step *s)
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
static int put_between(const struct levels *v, struct schedule_message *list, int peer, int sender, int first,
                       int count, enum schedule_phase phase, int k)
{
    const struct schedule_call *c = v->c;
    int n = 0;
    for (int lane = v->local; lane < v->lanes; lane += v->size) {
        const int carrier = begin_of(c, peer) + lane % size_of(c, peer);
        for (int i = 0; i < count; i++) {
            const int node = (first + i) % v->nodes;
            if (lane >= size_of(c, node))
                continue;
            struct schedule_message *m = message_with(list, &n, carrier);
            if (!m->count)
                m->contributions =
                    phase == PHASE_REDUCE ? v->between->sum(c->nodes->begin, v->nodes, sender, k, node) : c->ranks;
            m->segments[m->count++] = begin_of(c, node) + lane;
        }
    }
    return n;
}

static void step_between(const struct levels *v, int k, struct schedule_step *s)
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
    const struct levels v = levels_of(s, c);
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

/* ---- limits */

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
static int64_t most_inside(const struct levels *v, int size)
{
    const int ranks = pici_pattern_widest(v->inside, size);
    int64_t segments = 0;
    for (int i = 0; i < v->nodes; i++) {
        const int lanes = size_of(v->c, i), rest = lanes % size;
        segments += (int64_t)(lanes / size) * ranks + (rest < ranks ? rest : ranks);
    }
    return segments;
}

/* Ranks of the nodes first, first + 1, ..., which may wrap around; first may be negative. */
static int ranks_of_run(const struct levels *v, int first, int count)
{
    const int from = (first + v->nodes) % v->nodes, end = from + count;
    return end <= v->nodes ? begin_of(v->c, end) - begin_of(v->c, from)
                           : v->c->ranks - begin_of(v->c, from) + begin_of(v->c, end - v->nodes);
}

static void limits_inside(const struct levels *v, struct schedule_limits *l, int reduces)
{
    for (int i = 0; i < v->nodes; i++) {
        const int size = size_of(v->c, i);
        int seen = 0;
        while (size_of(v->c, seen) != size)
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
static int widest_but(const struct levels *v, int node)
{
    return size_of(v->c, node) == v->lanes ? v->second : v->lanes;
}

/* The messages of a step between two nodes. `count` nodes have segments in them, in so many lanes at the most. A rank
 * of the one node and a rank of the other share the lanes at distances of the least common multiple of the sizes. */
static void limits_of_pair(const struct levels *v, struct schedule_limits *l, int from, int to, int count, int lanes)
{
    const int m = size_of(v->c, from), n = size_of(v->c, to), common = divisor(m, n), p = v->c->ranks;
    const int64_t sends = shares(lanes, m), receives = shares(lanes, n);
    raise(&l->sends, sends < n / common ? sends : n / common, p);
    raise(&l->receives, receives < m / common ? receives : m / common, p);
    raise(&l->segments, count * shares(lanes, (int64_t)m * (n / common)), p);
}

static void limits_between(const struct levels *v, struct schedule_limits *l, enum schedule_phase phase)
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
static void limits_alone(const struct levels *v, int *sums, int *kept)
{
    const int each = v->between->logarithmic, widest_run = pici_pattern_widest(v->between, v->nodes), n = v->nodes;
    const int nearest = (n + 1) / 2 - 1; /* forwarded in the last step, besides its own */
    *sums = *kept = 0;
    for (int i = 0; i < n && n > 1; i++) {
        if (size_of(v->c, i) > 1)
            continue;
        raise(sums, each ? ranks_of_run(v, i, widest_run) : widest_but(v, (i + n - 1) % n), v->c->ranks);
        raise(kept, each ? ranks_of_run(v, i - nearest, nearest) : widest_but(v, (i + 1) % n), v->c->ranks);
    }
}

void pici_nodes_limits(const struct schedule *s, const struct schedule_call *c, struct schedule_limits *l)
{
    const struct levels v = levels_of(s, c);
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
