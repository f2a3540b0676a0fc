/* SPDX-License-Identifier: BSD-3-Clause */
#include "schedule/broadcast.h"

#include "schedule/nodes.h"
#include "schedule/pattern.h"

static int modulo(int i, int p)
{
    const int rest = i % p;
    return rest < 0 ? rest + p : rest;
}

static void put(struct schedule_message *m, int peer, int first, int count, int p, enum schedule_action action,
                int keep, int contributions)
{
    *m = (struct schedule_message){.peer = peer,
                                   .segments = m->segments,
                                   .count = count,
                                   .action = action,
                                   .keep = keep ? KEEP_MESSAGE : KEEP_NOT,
                                   .contributions = contributions};
    for (int i = 0; i < count; i++)
        m->segments[i] = modulo(first + i, p);
}

static void begin_step(struct schedule_step *s)
{
    s->phase = PHASE_GATHER;
    s->complete = COMPLETE_NONE;
    s->sends = s->receives = 0;
}

/* ---- trees */

/* What a position does with the data in a step of a pattern: sends it to one and receives it from one, or -1; and
 * whether it sends it again in a later step. */
struct hop {
    int to, from, again;
};

static int sends_root(const struct schedule_run *t, int p, int root)
{
    return modulo(root - t->send_first, p) < t->count;
}

static struct hop hop_of(const struct schedule_pattern *pattern, int p, int r, int root, int k)
{
    struct hop h = {-1, -1, 0};
    struct schedule_run t;
    pici_pattern_run(&t, pattern, PHASE_GATHER, p, r, k);
    h.to = sends_root(&t, p, root) ? t.to : -1;
    h.from = modulo(root - t.recv_first, p) < t.count ? t.from : -1;
    for (int later = k + 1; (h.to >= 0 || h.from >= 0) && !h.again && later < pici_pattern_steps(pattern, p); later++) {
        pici_pattern_run(&t, pattern, PHASE_GATHER, p, r, later);
        h.again = sends_root(&t, p, root);
    }
    return h;
}

/* A tree between nodes, among one position of each, and then one inside each node, from that position. Flat: one
 * node. */
struct tree {
    const struct schedule_pattern *inside, *between;
    struct schedule_call c; /* flat: without nodes */
    int nodes, between_steps, inside_steps;
    int node, first, size, root_node, lane; /* this position's node; the root's, and its number on it */
};

static struct tree tree_of(const struct schedule *s, const struct schedule_call *c)
{
    struct tree t = {.inside = s->gather, .c = *c};
    int widest = c->ranks;
    t.c.nodes = s->by_node ? c->nodes : NULL;
    t.nodes = nodes_of(&t.c);
    t.node = pici_schedule_node(t.c.nodes, c->position);
    t.root_node = pici_schedule_node(t.c.nodes, c->root);
    if (s->by_node) {
        t.between = s->gather;
        t.inside = pici_nodes_inside(c, &widest);
        t.between_steps = pici_pattern_steps(t.between, t.nodes);
    }
    t.inside_steps = pici_pattern_steps(t.inside, widest);
    t.first = nodes_begin(&t.c, t.node);
    t.size = nodes_size(&t.c, t.node);
    t.lane = c->root - nodes_begin(&t.c, t.root_node);
    return t;
}

/* The position that has the data of a node first. */
static int head_of(const struct tree *t, int node)
{
    return nodes_begin(&t->c, node) + t->lane % nodes_size(&t->c, node);
}

int pici_tree_steps(const struct schedule *s, const struct schedule_call *c)
{
    const struct tree t = tree_of(s, c);
    return t.between_steps + t.inside_steps;
}

void pici_tree_step(const struct schedule *s, const struct schedule_call *c, int k, struct schedule_step *out)
{
    const struct tree t = tree_of(s, c);
    const int p = c->ranks, head = head_of(&t, t.node), inside = k - t.between_steps;
    struct hop h = {-1, -1, 0};
    begin_step(out);
    if (inside >= 0 && inside < pici_pattern_steps(t.inside, t.size)) {
        h = hop_of(t.inside, t.size, c->position - t.first, head - t.first, inside);
        h.to = h.to < 0 ? -1 : t.first + h.to;
        h.from = h.from < 0 ? -1 : t.first + h.from;
    } else if (inside < 0 && c->position == head) {
        h = hop_of(t.between, t.nodes, t.node, t.root_node, k);
        h.to = h.to < 0 ? -1 : head_of(&t, h.to);
        h.from = h.from < 0 ? -1 : head_of(&t, h.from);
        h.again |= t.size > 1;
    }
    out->sends = h.to >= 0;
    out->receives = h.from >= 0;
    if (out->sends) /* the root sends in the first step */
        put(out->send, h.to, 0, 1, p, k == 0 ? SEND_ENCODE : SEND_FORWARD, h.again, p);
    if (out->receives)
        put(out->receive, h.from, 0, 1, p, TAKE_PLACE, h.again, p);
}

void pici_tree_limits(const struct schedule *s, const struct schedule_call *c, struct schedule_limits *l)
{
    (void)s;
    *l = (struct schedule_limits){0};
    if (c->ranks > 1)
        *l = (struct schedule_limits){.sends = 1, .receives = 1, .segments = 1, .kept = c->ranks > 2};
}

/* ---- scatter and gather. The root takes part in the gather, so that it is the same for all roots. It gets back only
 * what it has to forward, and does not decode that. */

static int scatter_steps(const struct schedule_call *c)
{
    return c->ranks - 1;
}

/* Whether two runs of segments have one in common. */
static int meet(int a, int many, int b, int others, int p)
{
    return modulo(b - a, p) < many || modulo(a - b, p) < others;
}

static int forwards(const struct schedule_call *, int r, int first, int count, int k);

/* Whether the message that a position sends in step k of the gather is left out: the root has these segments, and
 * forwards none of them. */
static int left_out(const struct schedule_call *c, const struct schedule_run *t, int k)
{
    return t->to == c->root && !forwards(c, c->root, t->send_first, t->count, k);
}

/* Whether position r sends some of these segments after step k of the gather. In a ring that is in the next step. */
static int forwards(const struct schedule_call *c, int r, int first, int count, int k)
{
    const struct schedule_pattern *pattern = pici_pattern_by_size(c);
    const int last = pici_pattern_steps(pattern, c->ranks) - 1,
              until = pattern->logarithmic || k >= last ? last : k + 1;
    for (int later = k + 1; later <= until; later++) {
        struct schedule_run t;
        pici_pattern_run(&t, pattern, PHASE_GATHER, c->ranks, r, later);
        if (meet(first, count, t.send_first, t.count, c->ranks) && !left_out(c, &t, later))
            return 1;
    }
    return 0;
}

static void gather_step(const struct schedule_call *c, int k, struct schedule_step *out)
{
    const int p = c->ranks, r = c->position;
    struct schedule_run t;
    pici_pattern_run(&t, pici_pattern_by_size(c), PHASE_GATHER, p, r, k);
    const int keep = forwards(c, r, t.recv_first, t.count, k);
    out->sends = !left_out(c, &t, k);
    out->receives = r != c->root || keep;
    if (out->sends)
        put(out->send, t.to, t.send_first, t.count, p, r == c->root && k == 0 ? SEND_ENCODE : SEND_FORWARD,
            forwards(c, r, t.send_first, t.count, k), p);
    if (out->receives)
        put(out->receive, t.from, t.recv_first, t.count, p, r == c->root ? TAKE_KEEP : TAKE_PLACE, keep, p);
}

int pici_scatter_steps(const struct schedule *s, const struct schedule_call *c)
{
    (void)s;
    return scatter_steps(c) + pici_pattern_steps(pici_pattern_by_size(c), c->ranks);
}

void pici_scatter_step(const struct schedule *s, const struct schedule_call *c, int k, struct schedule_step *out)
{
    const int p = c->ranks, to = modulo(c->root + 1 + k, p);
    (void)s;
    begin_step(out);
    if (k >= scatter_steps(c)) {
        gather_step(c, k - scatter_steps(c), out);
        return;
    }
    out->sends = c->position == c->root;
    out->receives = c->position == to;
    if (out->sends)
        put(out->send, to, to, 1, p, SEND_ENCODE, 0, p);
    if (out->receives)
        put(out->receive, c->root, to, 1, p, TAKE_PLACE, forwards(c, to, to, 1, -1), p);
}

void pici_scatter_limits(const struct schedule *s, const struct schedule_call *c, struct schedule_limits *l)
{
    const struct schedule_pattern *pattern = pici_pattern_by_size(c);
    (void)s;
    *l = (struct schedule_limits){0};
    if (c->ranks > 1)
        *l = (struct schedule_limits){.sends = 1,
                                      .receives = 1,
                                      .segments = pici_pattern_widest(pattern, c->ranks),
                                      .kept = pattern->logarithmic ? pici_pattern_steps(pattern, c->ranks) : 1};
}
