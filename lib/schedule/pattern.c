/* SPDX-License-Identifier: BSD-3-Clause */
#include "schedule/pattern.h"

#include "schedule/traffic.h"

enum {
    SMALL_SHARE = 32 << 10, /* bytes a rank up to which few steps matter more than few links crossed */
    EDGE = 24               /* steps of split at either end that are unlike others */
};

/* (a + b) mod p, 0 <= a < p, -p <= b <= p */
static int around(int a, int b, int p)
{
    int sum = b < 0 ? a + b : a - p + b; /* in [-p, p): neither overflows */
    return sum < 0 ? sum + p : sum;
}

/* ---- reduce-scatter */

/* The sum of segment i starts at position i + 1 and goes round to position i; each adds its contribution. */
static void ring(struct schedule_run *s, int p, int r, int k)
{
    s->to = around(r, 1, p);
    s->from = around(r, -1, p);
    s->send_first = around(r, -1 - k, p);
    s->recv_first = around(s->send_first, -1, p);
    s->count = 1;
}

/* What a position sums before step k of the recursive pattern: so many segments, its own first. */
static int recursive_had(int p, int k)
{
    return ((p - 1) >> k) + 1;
}

/* Traeff's circulant schedule (doi 10.34726/10760). Before step k a position has partial sums of `had` segments, its
 * own first. It keeps the first `keep` = ceil(had / 2) and sends the others to the position `keep` ahead, which owns
 * the first of those. had is ceil(p / 2^k). */
static void recursive(struct schedule_run *s, int p, int r, int k)
{
    int had = recursive_had(p, k), keep = recursive_had(p, k + 1);
    s->to = around(r, keep, p);
    s->from = around(r, -keep, p);
    s->send_first = s->to;
    s->recv_first = r;
    s->count = had - keep;
}

/* Each contribution goes straight to its owner, one owner a step. */
static void split(struct schedule_run *s, int p, int r, int k)
{
    s->to = around(r, k + 1, p);
    s->from = around(r, -1 - k, p);
    s->send_first = s->to;
    s->recv_first = r;
    s->count = 1;
}

/* ---- steps that are alike */

static int alike_all(int p, int k)
{
    return p - 1 - k;
}

static int alike_none(int p, int k)
{
    (void)p;
    (void)k;
    return 1;
}

/* In the middle, which nodes a message leaves hardly depends on how far it goes. */
static int alike_inside(int p, int k)
{
    return k >= EDGE && k + 1 < p - EDGE ? p - EDGE - 1 - k : 1;
}

/* ---- contributions */

static int one_more_a_step(int p, int k)
{
    (void)p;
    return k + 1;
}

static int twice_a_step(int p, int k)
{
    return k < 30 && 1 << k < p ? 1 << k : p;
}

static int one_always(int p, int k)
{
    (void)p;
    (void)k;
    return 1;
}

static int weight(const int *begin, int r)
{
    return begin ? begin[r + 1] - begin[r] : 1;
}

static int ring_sum(const int *begin, int p, int r, int k, int g)
{
    int sum = 0;
    (void)g;
    for (int i = 0; i <= k; i++)
        sum += weight(begin, around(r, -i, p));
    return sum;
}

/* In the step before k a position received the sums of the first had - keep segments from its own on, from the position
 * `keep` behind. */
static int recursive_sum(const int *begin, int p, int r, int k, int g)
{
    int sum = 0;
    for (; k > 0; k--) {
        const int had = recursive_had(p, k - 1), keep = recursive_had(p, k), from = around(r, -keep, p);
        if (around(g, -r, p) < had - keep)
            sum += recursive_sum(begin, p, from, k - 1, g);
    }
    return sum + weight(begin, r);
}

static int own_sum(const int *begin, int p, int r, int k, int g)
{
    (void)p;
    (void)k;
    (void)g;
    return weight(begin, r);
}

const struct schedule_pattern pici_pattern_ring = {.sums = AMOUNT_ONE,
                                                   .kept = AMOUNT_ONE,
                                                   .run = ring,
                                                   .alike = alike_all,
                                                   .contributions = one_more_a_step,
                                                   .sum = ring_sum};
const struct schedule_pattern pici_pattern_recursive = {.logarithmic = 1,
                                                        .sums = AMOUNT_EACH,
                                                        .kept = AMOUNT_EACH,
                                                        .run = recursive,
                                                        .alike = alike_none,
                                                        .contributions = twice_a_step,
                                                        .sum = recursive_sum};
const struct schedule_pattern pici_pattern_split = {.sums = AMOUNT_NONE,
                                                    .kept = AMOUNT_NONE,
                                                    .run = split,
                                                    .alike = alike_inside,
                                                    .contributions = one_always,
                                                    .sum = own_sum};

int pici_pattern_steps(const struct schedule_pattern *a, int p)
{
    int steps = 0;
    while (a->logarithmic && (p - 1) >> steps)
        steps++;
    return a->logarithmic ? steps : p - 1;
}

int pici_pattern_widest(const struct schedule_pattern *a, int p)
{
    return !a->logarithmic || p < 4 ? 1 : p / 2;
}

/* ---- all-gather: a reduce-scatter backwards, with sending and receiving exchanged, and mirrored: position and segment
 * i become -i modulo p. Without the mirror, the second phase of an all-reduce would begin by sending to the other
 * neighbour than the first phase ended with. Its messages would share that link with those of the first phase, and the
 * other link would be idle (measured: a tenth of the time of a dense all-reduce over a network). */

static int mirror(int i, int p)
{
    return i ? p - i : 0;
}

void pici_pattern_run(struct schedule_run *s, const struct schedule_pattern *a, enum schedule_phase phase, int p, int r,
                      int k)
{
    struct schedule_run t;
    s->keep_sent = s->keep_received = 0;
    if (phase == PHASE_REDUCE) {
        a->run(s, p, r, k);
        return;
    }
    const int steps = pici_pattern_steps(a, p), left = steps - 1 - k;
    a->run(&t, p, mirror(r, p), left);
    s->to = mirror(t.from, p);
    s->send_first = mirror(around(t.recv_first, t.count - 1, p), p);
    s->from = mirror(t.to, p);
    s->recv_first = mirror(around(t.send_first, t.count - 1, p), p);
    s->count = t.count;
    s->keep_sent = a->logarithmic && left > 0; /* in a ring each block is forwarded once */
    /* The last step forwards the p / 2 segments nearest to its own. With 3 or 5 ranks, those received in the step
     * before are further away. */
    s->keep_received = left > 0 && (!a->logarithmic || around(t.send_first, -mirror(r, p), p) < p / 2);
}

/* ---- schedules made of two phases */

const struct schedule_pattern *pici_pattern_by_size(const struct schedule_call *c)
{
    return c->bytes <= (uint64_t)c->ranks * SMALL_SHARE ? &pici_pattern_recursive : &pici_pattern_ring;
}

/* The pattern of the all-gather phase: the schedule's own, or by the size of the data if it has none. */
static const struct schedule_pattern *gather_of(const struct schedule *s, const struct schedule_call *c)
{
    return s->gather ? s->gather : pici_pattern_by_size(c);
}

static int phase_steps(const struct schedule *s, const struct schedule_call *c, enum schedule_phase phase)
{
    if (c->kind == (phase == PHASE_REDUCE ? PICI_ALL_GATHER : PICI_REDUCE_SCATTER))
        return 0;
    return pici_pattern_steps(phase == PHASE_REDUCE ? s->reduce : gather_of(s, c), c->ranks);
}

int pici_two_phase_steps(const struct schedule *s, const struct schedule_call *c)
{
    return phase_steps(s, c, PHASE_REDUCE) + phase_steps(s, c, PHASE_GATHER);
}

static void put_run(struct schedule_message *m, int peer, int first, int count, int p)
{
    m->peer = peer;
    m->count = count;
    for (int i = 0; i < count; i++)
        m->segments[i] = (first + i) % p;
}

void pici_two_phase_step(const struct schedule *s, const struct schedule_call *c, int k, struct schedule_step *out)
{
    const int p = c->ranks, reducing = phase_steps(s, c, PHASE_REDUCE), gathers = k >= reducing;
    const struct schedule_pattern *pattern = gathers ? gather_of(s, c) : s->reduce;
    struct schedule_message *send = out->send, *receive = out->receive;
    struct schedule_run t;
    out->phase = gathers ? PHASE_GATHER : PHASE_REDUCE;
    out->complete = k + 1 == reducing ? COMPLETE_OWN : COMPLETE_NONE;
    k -= gathers ? reducing : 0;
    pici_pattern_run(&t, pattern, out->phase, p, c->position, k);
    out->sends = out->receives = 1;
    put_run(send, t.to, t.send_first, t.count, p);
    put_run(receive, t.from, t.recv_first, t.count, p);
    send->action = gathers && k > 0 ? SEND_FORWARD : SEND_ENCODE;
    receive->action = gathers ? TAKE_PLACE : TAKE_REDUCE;
    send->keep = t.keep_sent ? KEEP_MESSAGE : KEEP_NOT;
    receive->keep = t.keep_received ? KEEP_MESSAGE : KEEP_NOT;
    send->contributions = receive->contributions = gathers ? p : pattern->contributions(p, k);
}

static int amount(enum pattern_amount a, int each)
{
    return a == AMOUNT_NONE ? 0 : a == AMOUNT_ONE ? 1 : each;
}

void pici_two_phase_limits(const struct schedule *s, const struct schedule_call *c, struct schedule_limits *l)
{
    *l = (struct schedule_limits){0};
    for (int phase = PHASE_REDUCE; phase < PHASES; phase++) {
        const struct schedule_pattern *pattern = phase == PHASE_REDUCE ? s->reduce : gather_of(s, c);
        const int steps = phase_steps(s, c, (enum schedule_phase)phase);
        const int widest = pici_pattern_widest(pattern, c->ranks);
        if (!steps)
            continue;
        l->sends = l->receives = 1;
        l->segments = widest > l->segments ? widest : l->segments;
        if (phase == PHASE_REDUCE)
            l->sums = amount(pattern->sums, widest);
        else
            l->kept = amount(pattern->kept, steps);
    }
}

/* ---- what they send: in each step a position sends `count` of the p segments to the one that is `offset` ahead */

/* How many of the m ranks of a node send out of it. */
static int crossing(int m, int offset, int p)
{
    const int ahead = m > offset ? m - offset : 0, behind = offset > p - m ? offset - (p - m) : 0;
    return m - ahead - behind;
}

static void circulant(const struct schedule_call *c, int nodes, int offset, int count, struct traffic_step *s)
{
    const double share = (double)count / c->ranks;
    for (int i = 0; i < nodes; i++) {
        const int m = nodes_size(c, i), out = crossing(m, offset, c->ranks);
        if (out)
            pici_traffic_send(&s->between, share, count, 1);
        if (out < m)
            pici_traffic_send(&s->inside, share, count, 1);
        traffic_most(&s->node_share, out * share);
    }
    s->take_share = share;
}

/* The steps of a gather are backwards. */
static void turn(struct traffic_step *first, int count)
{
    for (int i = 0, j = count - 1; i < j; i++, j--) {
        const struct traffic_step s = first[i];
        first[i] = first[j];
        first[j] = s;
    }
}

static void phase_traffic(const struct schedule_pattern *a, const struct schedule_call *c, enum schedule_phase phase,
                          struct schedule_traffic *t)
{
    const int p = c->ranks, steps = pici_pattern_steps(a, p), nodes = pici_traffic_nodes(c), from = t->count;
    const int reduces = phase == PHASE_REDUCE;
    for (int k = 0, alike; k < steps; k += alike) {
        struct schedule_run run;
        alike = a->alike(p, k);
        a->run(&run, p, 0, k + alike / 2);
        const int grow = reduces && alike > 1 ? a->contributions(p, k + 1) - a->contributions(p, k) : 0;
        circulant(c, nodes, run.to, run.count,
                  pici_traffic_add(t, phase, reduces ? a->contributions(p, k) : p, grow, alike));
    }
    if (!reduces)
        turn(t->step + from, t->count - from);
}

void pici_two_phase_traffic(const struct schedule *s, const struct schedule_call *c, struct schedule_traffic *t)
{
    if (c->kind != PICI_ALL_GATHER)
        phase_traffic(s->reduce, c, PHASE_REDUCE, t);
    if (c->kind != PICI_REDUCE_SCATTER)
        phase_traffic(gather_of(s, c), c, PHASE_GATHER, t);
}
