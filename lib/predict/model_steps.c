/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What each algorithm sends, step by step, by closed forms: nothing here depends on elements, densities or seconds. The
 * tests compare it with the schedules themselves. */
#include <string.h>

#include "predict/model.h"

enum {
    EDGE = 24,  /* steps of split at either end that are looked at one by one */
    LOOKS = 32, /* steps of a ring of uneven nodes that are looked at */
    FEW = 8,    /* ranks of a node up to which the inner schedule is a ring */
    NODES = 256 /* uneven nodes that are looked at */
};

/* The ranks of a call. */
struct shape {
    int p, nodes, most, least; /* ranks of the largest node, and of the smallest */
    const int *begin;          /* [nodes + 1] */
    int one[2];                /* what begin is of one node */
    int fair;                  /* each node owns the same share; else each rank */
};

static void shape_of(struct shape *s, const struct model_call *c)
{
    *s = (struct shape){.p = c->ranks, .nodes = 1, .one = {0, c->ranks}};
    s->begin = s->one;
    if (c->nodes) {
        s->nodes = c->nodes->nodes;
        s->begin = c->nodes->begin;
    }
    s->least = s->p;
    for (int i = 0; i < s->nodes; i++) {
        const int m = s->begin[i + 1] - s->begin[i];
        s->most = m > s->most ? m : s->most;
        s->least = m < s->least ? m : s->least;
    }
}

static int size_of(const struct shape *s, int node)
{
    return s->begin[node + 1] - s->begin[node];
}

static int even(const struct shape *s)
{
    return s->most == s->least;
}

/* ---- the list */

struct list {
    struct model_step *step;
    int count;
};

static struct model_step *add(struct list *l, enum schedule_phase phase, int contributions, int grow, int repeat)
{
    struct model_step *s = &l->step[l->count++];
    *s = (struct model_step){
        .phase = phase, .encode = 1, .contributions = contributions, .grow = grow, .repeat = repeat};
    return s;
}

/* Of a gather phase that begins at step `from`, only the first step encodes. */
static void encode_once(struct list *l, int from)
{
    struct model_step *s = &l->step[from];
    if (from == l->count)
        return;
    if (s->repeat > 1) {
        memmove(s + 1, s, (size_t)(l->count++ - from) * sizeof *s);
        s->repeat = 1;
        s[1].repeat--;
    }
    for (s++; s < l->step + l->count; s++)
        s->encode = 0;
}

static void most(double *at, double v)
{
    *at = v > *at ? v : *at;
}

static void send(struct model_step *s, enum policy_link link, double share, double segments, double messages)
{
    most(&s->rank[link].share, share);
    most(&s->rank[link].segments, segments);
    most(&s->rank[link].messages, messages);
}

static void take(struct model_step *s, double share, double segments)
{
    most(&s->take_share, share);
    most(&s->take_segments, segments);
}

static int steps_of(int logarithmic, int p)
{
    int steps = 0;
    while (logarithmic && (p - 1) >> steps)
        steps++;
    return logarithmic ? steps : p - 1;
}

/* Step k of the recursive pattern: messages go `offset` positions ahead and have `count` segments. */
static void recursive(int p, int k, int *offset, int *count)
{
    *offset = ((p - 1) >> (k + 1)) + 1;
    *count = ((p - 1) >> k) + 1 - *offset;
}

/* How many positions' contributions are in the sum that a position has before step k of the recursive pattern, of the
 * segment so many positions ahead. */
static int summed(int p, int k, int ahead)
{
    int sum = 1, offset, count;
    while (k-- > 0) {
        recursive(p, k, &offset, &count);
        if (ahead < count)
            sum += summed(p, k, ahead + offset);
    }
    return sum;
}

/* The same of a message's first segment, which is the position's that it goes to: it has the most. */
static int summed_first(int p, int k)
{
    int offset, count;
    recursive(p, k, &offset, &count);
    return summed(p, k, offset);
}

/* ---- one level: each position sends `count` of the p segments to the one that is `offset` ahead */

/* How many of the m ranks of a node send out of it. */
static int crossing(int m, int offset, int p)
{
    const int ahead = m > offset ? m - offset : 0, behind = offset > p - m ? offset - (p - m) : 0;
    return m - ahead - behind;
}

static void circulant(struct model_step *s, const struct shape *n, int offset, int count)
{
    const double share = (double)count / n->p;
    for (int i = 0; i < (even(n) ? 1 : n->nodes); i++) {
        const int m = size_of(n, i), out = crossing(m, offset, n->p);
        if (out)
            send(s, POLICY_INTER, share, count, 1);
        if (out < m)
            send(s, POLICY_INTRA, share, count, 1);
        most(&s->node_share, out * share);
    }
    take(s, share, count);
}

static void flat_ring(struct list *l, const struct shape *n, enum schedule_phase phase)
{
    if (n->p > 1)
        circulant(add(l, phase, phase == PHASE_REDUCE ? 1 : n->p, phase == PHASE_REDUCE, n->p - 1), n, 1, 1);
}

static void flat_recursive(struct list *l, const struct shape *n, enum schedule_phase phase)
{
    const int steps = steps_of(1, n->p);
    int offset, count;
    for (int j = 0; j < steps; j++) {
        const int k = phase == PHASE_REDUCE ? j : steps - 1 - j;
        recursive(n->p, k, &offset, &count);
        circulant(add(l, phase, phase == PHASE_REDUCE ? 1 << k : n->p, 0, 1), n, offset, count);
    }
}

static void flat_split(struct list *l, const struct shape *n)
{
    for (int offset = 1, run; offset < n->p; offset += run) {
        run = offset > EDGE && offset < n->p - EDGE ? n->p - EDGE - offset : 1;
        circulant(add(l, PHASE_REDUCE, 1, 0, run), n, offset + run / 2, 1);
    }
}

/* ---- doubling: messages have all of the data */

/* The position that one sends to in exchange t; before all (t < 0) in the fold, after all in the unfold. < 0: none. */
static int peer_of(int position, int t, int exchanges, int rem)
{
    const int odd = position % 2, v = position >= 2 * rem ? position - rem : odd ? position / 2 : -1;
    if (t < 0 || t == exchanges)
        return position >= 2 * rem || odd != (t >= 0) ? -1 : odd ? position - 1 : position + 1;
    const int other = v ^ 1 << t;
    return v < 0 ? -1 : other < rem ? 2 * other + 1 : other + rem;
}

static void whole(struct model_step *s, const struct shape *n, int t, int exchanges, int rem)
{
    for (int i = 0; i < n->nodes; i++) {
        int out = 0, in = 0;
        for (int r = n->begin[i]; r < n->begin[i + 1]; r++) {
            const int peer = peer_of(r, t, exchanges, rem);
            const int inside = peer >= n->begin[i] && peer < n->begin[i + 1];
            out += peer >= 0 && !inside;
            in += inside;
        }
        if (out)
            send(s, POLICY_INTER, 1, 1, 1);
        if (in)
            send(s, POLICY_INTRA, 1, 1, 1);
        most(&s->node_share, out);
    }
    take(s, 1, 1);
}

static void doubling(struct list *l, const struct shape *n)
{
    const int exchanges = steps_of(1, n->p + 1) - 1; /* log2 p, rounded down */
    const int rem = n->p - (1 << exchanges);
    if (rem)
        whole(add(l, PHASE_REDUCE, 1, 0, 1), n, -1, exchanges, rem);
    for (int t = 0; t < exchanges; t++) {
        const int group = 1 << t;
        struct model_step *s = add(l, PHASE_REDUCE, group + (rem < group ? rem : group), 0, 1);
        s->reversed = 1;
        whole(s, n, t, exchanges, rem);
    }
    if (rem)
        whole(add(l, PHASE_GATHER, n->p, 0, 1), n, exchanges, exchanges, rem);
}

/* ---- two levels. Lane l has the segments (i, l) of all nodes i with more than l ranks; on node i it is carried by
 * local rank l mod M_i. Inside a node, what stands for a segment is all lanes that a rank carries; between nodes, for
 * each lane, the segments of a node. */

/* The share of one segment of a node. */
static double share_of(const struct shape *n, int node)
{
    return n->fair ? 1.0 / ((double)n->nodes * size_of(n, node)) : 1.0 / n->p;
}

/* Add up the segments of those lanes l for which l mod m < count. */
static void lanes(const struct shape *n, int m, int count, double *share, double *segments)
{
    *share = *segments = 0;
    for (int i = 0; i < (even(n) ? 1 : n->nodes); i++) {
        const int size = size_of(n, i), rest = size % m, carried = size / m * count + (rest < count ? rest : count);
        const double times = even(n) ? n->nodes : 1;
        *share += times * carried * share_of(n, i);
        *segments += times * carried;
    }
}

/* Step k of the inner schedule, on all nodes that have so many steps. */
static void inner_step(struct model_step *s, const struct shape *n, int logarithmic, int k)
{
    int offset = 1, count = 1, last = 0;
    double share, segments;
    for (int i = 0; i < n->nodes; i++) {
        const int m = size_of(n, i), steps = steps_of(logarithmic, m);
        if (m == last || steps <= k)
            continue; /* a node like the one before, or one that is idle */
        last = m;
        if (logarithmic)
            recursive(m, s->phase == PHASE_REDUCE ? k : steps - 1 - k, &offset, &count);
        lanes(n, m, count, &share, &segments);
        send(s, POLICY_INTRA, share, segments, 1);
        take(s, share, segments);
    }
}

/* What a rank of node i carries of the segments of `count` nodes from `first` on, and what the node does. */
static void outer_run(const struct shape *n, int i, int first, int count, double *share, double *segments, double *node)
{
    const int m = size_of(n, i);
    *share = *segments = *node = 0;
    if (even(n)) {
        *share = (double)count / n->p;
        *segments = count;
        *node = *share * m;
        return;
    }
    for (int j = 0; j < count; j++) {
        const int at = ((first + j) % n->nodes + n->nodes) % n->nodes, size = size_of(n, at), own = (size + m - 1) / m;
        *share += own * share_of(n, at);
        *segments += own;
        *node += size * share_of(n, at);
    }
}

/* Step k of the outer schedule. */
static void outer_step(struct model_step *s, const struct shape *n, int logarithmic, int k)
{
    int offset = 1, count = 1, sent = -1 - k, taken = -2 - k; /* runs begin so many nodes after the own */
    double share, segments, node;
    if (logarithmic) {
        recursive(n->nodes, k, &offset, &count);
        sent = offset;
        taken = 0;
    }
    if (s->phase == PHASE_GATHER) { /* the mirror: node i becomes -i, and what was taken is sent */
        const int was = sent;
        sent = -(taken + count - 1);
        taken = -(was + count - 1);
    }
    for (int i = 0; i < (even(n) ? 1 : n->nodes); i += 1 + n->nodes / NODES) {
        const int m = size_of(n, i);
        outer_run(n, i, i + sent, count, &share, &segments, &node);
        send(s, POLICY_INTER, share, segments, (n->most + m - 1) / m);
        most(&s->node_share, node);
        outer_run(n, i, i + taken, count, &share, &segments, &node);
        take(s, share, segments);
    }
}

static void inner_phase(struct list *l, const struct shape *n, enum schedule_phase phase)
{
    const int logarithmic = n->most > FEW, steps = steps_of(logarithmic, n->most);
    for (int k = 0; k < steps; k++) {
        const int sum = logarithmic ? summed_first(n->most, k) : k + 1;
        inner_step(add(l, phase, phase == PHASE_REDUCE ? sum : n->p, 0, 1), n, logarithmic, k);
    }
}

static void outer_phase(struct list *l, const struct shape *n, enum schedule_phase phase, int logarithmic)
{
    const int steps = steps_of(logarithmic, n->nodes), reducing = phase == PHASE_REDUCE;
    const int each = (n->p + n->nodes - 1) / n->nodes; /* contributions that a node has, on average */
    int run = logarithmic ? 1 : even(n) ? steps : (steps + LOOKS - 1) / LOOKS;
    for (int j = 0; j < steps; j += run) {
        run = j + run < steps ? run : steps - j;
        const int at = j + run / 2, k = reducing ? at : steps - 1 - at,
                  had = logarithmic ? summed_first(n->nodes, k) : j + 1;
        const int sum = had < n->nodes ? had * each : n->p;
        outer_step(add(l, phase, reducing ? sum : n->p, reducing && !logarithmic ? each : 0, run), n, logarithmic, k);
    }
}

/* ---- all */

static void reduce_phase(struct list *l, const struct shape *n, enum pici_algorithm algorithm)
{
    switch (algorithm) {
    case PICI_ALGO_RING: flat_ring(l, n, PHASE_REDUCE); break;
    case PICI_ALGO_RECURSIVE: flat_recursive(l, n, PHASE_REDUCE); break;
    case PICI_ALGO_SPLIT: flat_split(l, n); break;
    case PICI_ALGO_NODES_RING:
    case PICI_ALGO_NODES_RECURSIVE:
        inner_phase(l, n, PHASE_REDUCE);
        outer_phase(l, n, PHASE_REDUCE, algorithm == PICI_ALGO_NODES_RECURSIVE);
        break;
    case PICI_ALGO_DOUBLING:
    case PICI_ALGO_AUTO: break;
    }
}

static void gather_phase(struct list *l, const struct shape *n, enum pici_algorithm algorithm, int split_as_ring)
{
    const int from = l->count;
    switch (algorithm) {
    case PICI_ALGO_RING: flat_ring(l, n, PHASE_GATHER); break;
    case PICI_ALGO_RECURSIVE: flat_recursive(l, n, PHASE_GATHER); break;
    case PICI_ALGO_SPLIT: (split_as_ring ? flat_ring : flat_recursive)(l, n, PHASE_GATHER); break;
    case PICI_ALGO_NODES_RING:
    case PICI_ALGO_NODES_RECURSIVE:
        outer_phase(l, n, PHASE_GATHER, algorithm == PICI_ALGO_NODES_RECURSIVE);
        inner_phase(l, n, PHASE_GATHER);
        break;
    case PICI_ALGO_DOUBLING:
    case PICI_ALGO_AUTO: break;
    }
    encode_once(l, from);
}

int pici_model_steps(const struct model_call *c, enum pici_algorithm algorithm, struct model_step *step)
{
    const struct schedule *schedule = pici_schedule(algorithm);
    const struct schedule_call gather = {.kind = PICI_ALL_GATHER, .ranks = c->ranks, .bytes = c->bytes};
    struct list l = {step, 0};
    struct shape n;
    if (!schedule || !(schedule->collectives >> c->kind & 1))
        return -1;
    shape_of(&n, c);
    n.fair = c->kind == PICI_ALL_REDUCE && schedule->by_node;
    if (algorithm == PICI_ALGO_DOUBLING)
        doubling(&l, &n);
    if (c->kind != PICI_ALL_GATHER)
        reduce_phase(&l, &n, algorithm);
    if (c->kind != PICI_REDUCE_SCATTER)
        gather_phase(&l, &n, algorithm, schedule->steps(schedule, &gather) == c->ranks - 1);
    return l.count;
}

double pici_model_segment(const struct model_call *c, enum pici_algorithm algorithm, double elements)
{
    const struct schedule *schedule = pici_schedule(algorithm);
    struct shape n;
    shape_of(&n, c);
    if (schedule->undivided)
        return elements;
    return elements / (c->kind == PICI_ALL_REDUCE && schedule->by_node ? (double)n.nodes * n.least : n.p);
}
