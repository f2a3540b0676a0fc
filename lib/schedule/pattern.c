/* SPDX-License-Identifier: BSD-3-Clause */
#include "schedule/pattern.h"

#include "schedule/traffic.h"

enum {
    SMALL_SHARE = 32 << 10, /* bytes per rank: up to this, few steps matter more than few crossed links */
    EDGE = 24               /* steps at either end of split that differ from the others */
};

/* (a + b) mod p, 0 <= a < p, -p <= b <= p */
static int around(int a, int b, int p)
{
    int sum = b < 0 ? a + b : a - p + b; /* in [-p, p): neither overflows */
    return sum < 0 ? sum + p : sum;
}

/* ---- reduce-scatter */

/* The sum of segment i starts at virtual rank i + 1. Each rank adds its contribution and sends the sum to the next one,
 * up to virtual rank i. */
static void ring(struct schedule_run *run, int p, int r, int k)
{
    run->to = around(r, 1, p);
    run->from = around(r, -1, p);
    run->send_first = around(r, -1 - k, p);
    run->recv_first = around(run->send_first, -1, p);
    run->count = 1;
}

/* The number of segments that a virtual rank sums before step k of the recursive pattern, its own first. */
static int recursive_had(int p, int k)
{
    return ((p - 1) >> k) + 1;
}

/* Traeff's circulant schedule (doi 10.34726/10760). Before step k a virtual rank has partial sums of `had` segments,
 * its own first. It keeps the first `keep` = ceil(had / 2) and sends the others to the virtual rank `keep` ahead, which
 * owns the first of those. had is ceil(p / 2^k). */
static void recursive(struct schedule_run *run, int p, int r, int k)
{
    int had = recursive_had(p, k), keep = recursive_had(p, k + 1);
    run->to = around(r, keep, p);
    run->from = around(r, -keep, p);
    run->send_first = run->to;
    run->recv_first = r;
    run->count = had - keep;
}

/* Each contribution goes straight to its owner, one owner a step. */
static void split(struct schedule_run *run, int p, int r, int k)
{
    run->to = around(r, k + 1, p);
    run->from = around(r, -1 - k, p);
    run->send_first = run->to;
    run->recv_first = r;
    run->count = 1;
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

/* In the middle, the distance of a message hardly changes which nodes it leaves. */
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

static int ring_sum(const int *begin, int p, int r, int k, int segment)
{
    int sum = 0;
    (void)segment;
    for (int i = 0; i <= k; i++)
        sum += weight(begin, around(r, -i, p));
    return sum;
}

/* In the step before k a virtual rank received the sums of the first had - keep segments from its own on, from the
 * virtual rank `keep` behind. */
static int recursive_sum(const int *begin, int p, int r, int k, int segment)
{
    int sum = 0;
    for (; k > 0; k--) {
        const int had = recursive_had(p, k - 1), keep = recursive_had(p, k), from = around(r, -keep, p);
        if (around(segment, -r, p) < had - keep)
            sum += recursive_sum(begin, p, from, k - 1, segment);
    }
    return sum + weight(begin, r);
}

static int own_sum(const int *begin, int p, int r, int k, int segment)
{
    (void)p;
    (void)k;
    (void)segment;
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

int pici_pattern_steps(const struct schedule_pattern *pattern, int p)
{
    int steps = 0;
    while (pattern->logarithmic && (p - 1) >> steps)
        steps++;
    return pattern->logarithmic ? steps : p - 1;
}

int pici_pattern_widest(const struct schedule_pattern *pattern, int p)
{
    return !pattern->logarithmic || p < 4 ? 1 : p / 2;
}

/* ---- all-gather: a reduce-scatter backwards, with sending and receiving exchanged, and mirrored: virtual rank and
 * segment i become -i modulo p. Without the mirror, the second phase of an all-reduce would begin by sending to the
 * other neighbour than the first phase ended with. Its messages would share that link with the first phase's, and the
 * other link would be idle. Measured, that costs a tenth of the time of a dense all-reduce over a network. */

static int mirror(int i, int p)
{
    return i ? p - i : 0;
}

void pici_pattern_run(struct schedule_run *run, const struct schedule_pattern *pattern, enum schedule_phase phase,
                      int p, int r, int k)
{
    struct schedule_run mirrored;
    run->keep_sent = run->keep_received = 0;
    if (phase == PHASE_REDUCE) {
        pattern->run(run, p, r, k);
        return;
    }
    const int steps = pici_pattern_steps(pattern, p), remaining = steps - 1 - k;
    pattern->run(&mirrored, p, mirror(r, p), remaining);
    run->to = mirror(mirrored.from, p);
    run->send_first = mirror(around(mirrored.recv_first, mirrored.count - 1, p), p);
    run->from = mirror(mirrored.to, p);
    run->recv_first = mirror(around(mirrored.send_first, mirrored.count - 1, p), p);
    run->count = mirrored.count;
    run->keep_sent = pattern->logarithmic && remaining > 0; /* in a ring each block is forwarded once */
    /* The last step forwards the p / 2 segments nearest to its own. With 3 or 5 ranks, those received in the step
     * before are further away. */
    run->keep_received =
        remaining > 0 && (!pattern->logarithmic || around(mirrored.send_first, -mirror(r, p), p) < p / 2);
}

/* ---- schedules made of two phases */

const struct schedule_pattern *pici_pattern_by_size(const struct schedule_call *call)
{
    return call->bytes <= (uint64_t)call->ranks * SMALL_SHARE ? &pici_pattern_recursive : &pici_pattern_ring;
}

/* The pattern of the all-gather phase: the schedule's own, or by the size of the data if it has none. */
static const struct schedule_pattern *gather_of(const struct schedule *schedule, const struct schedule_call *call)
{
    return schedule->gather ? schedule->gather : pici_pattern_by_size(call);
}

static int phase_steps(const struct schedule *schedule, const struct schedule_call *call, enum schedule_phase phase)
{
    if (call->kind == (phase == PHASE_REDUCE ? PICI_ALL_GATHER : PICI_REDUCE_SCATTER))
        return 0;
    return pici_pattern_steps(phase == PHASE_REDUCE ? schedule->reduce : gather_of(schedule, call), call->ranks);
}

int pici_two_phase_steps(const struct schedule *schedule, const struct schedule_call *call)
{
    return phase_steps(schedule, call, PHASE_REDUCE) + phase_steps(schedule, call, PHASE_GATHER);
}

static void put_run(struct schedule_message *message, int peer, int first, int count, int p)
{
    message->peer = peer;
    message->count = count;
    for (int i = 0; i < count; i++)
        message->segments[i] = (first + i) % p;
}

void pici_two_phase_step(const struct schedule *schedule, const struct schedule_call *call, int k,
                         struct schedule_step *step)
{
    const int p = call->ranks, reducing = phase_steps(schedule, call, PHASE_REDUCE), gathers = k >= reducing;
    const struct schedule_pattern *pattern = gathers ? gather_of(schedule, call) : schedule->reduce;
    struct schedule_message *send = step->send, *receive = step->receive;
    struct schedule_run run;
    step->phase = gathers ? PHASE_GATHER : PHASE_REDUCE;
    step->complete = k + 1 == reducing ? COMPLETE_OWN : COMPLETE_NONE;
    k -= gathers ? reducing : 0;
    pici_pattern_run(&run, pattern, step->phase, p, call->virtual_rank, k);
    step->sends = step->receives = 1;
    put_run(send, run.to, run.send_first, run.count, p);
    put_run(receive, run.from, run.recv_first, run.count, p);
    send->action = gathers && k > 0 ? SEND_FORWARD : SEND_ENCODE;
    receive->action = gathers ? RECEIVE_PLACE : RECEIVE_REDUCE;
    send->keep = run.keep_sent ? KEEP_MESSAGE : KEEP_NOT;
    receive->keep = run.keep_received ? KEEP_MESSAGE : KEEP_NOT;
    send->contributions = receive->contributions = gathers ? p : pattern->contributions(p, k);
}

static int amount(enum pattern_amount amount_of, int each)
{
    switch (amount_of) {
    case AMOUNT_NONE: return 0;
    case AMOUNT_ONE: return 1;
    case AMOUNT_EACH: break;
    }
    return each;
}

void pici_two_phase_limits(const struct schedule *schedule, const struct schedule_call *call,
                           struct schedule_limits *limits)
{
    *limits = (struct schedule_limits){0};
    for (int phase = PHASE_REDUCE; phase < PHASES; phase++) {
        const struct schedule_pattern *pattern = phase == PHASE_REDUCE ? schedule->reduce : gather_of(schedule, call);
        const int steps = phase_steps(schedule, call, (enum schedule_phase)phase);
        const int widest = pici_pattern_widest(pattern, call->ranks);
        if (!steps)
            continue;
        limits->sends = limits->receives = 1;
        limits->segments = widest > limits->segments ? widest : limits->segments;
        if (phase == PHASE_REDUCE)
            limits->sums = amount(pattern->sums, widest);
        else
            limits->kept = amount(pattern->kept, steps);
    }
}

/* ---- traffic: in each step a virtual rank sends `count` of the p segments to the one that is `offset` ahead */

/* The number of ranks of a node that send out of it. */
static int crossing(int node_ranks, int offset, int p)
{
    const int ahead = node_ranks > offset ? node_ranks - offset : 0;
    const int behind = offset > p - node_ranks ? offset - (p - node_ranks) : 0;
    return node_ranks - ahead - behind;
}

static void circulant(const struct schedule_call *call, int nodes, int offset, int count, struct traffic_step *step)
{
    const double fraction = (double)count / call->ranks;
    for (int i = 0; i < nodes; i++) {
        const int node_ranks = nodes_size(call, i), output = crossing(node_ranks, offset, call->ranks);
        if (output)
            pici_traffic_send(&step->between, fraction, count, 1);
        if (output < node_ranks)
            pici_traffic_send(&step->inside, fraction, count, 1);
        traffic_most(&step->node_fraction, output * fraction);
    }
    step->receive_fraction = fraction;
}

/* Reverse the steps, for a gather. */
static void turn(struct traffic_step *first, int count)
{
    for (int i = 0, j = count - 1; i < j; i++, j--) {
        const struct traffic_step step = first[i];
        first[i] = first[j];
        first[j] = step;
    }
}

static void phase_traffic(const struct schedule_pattern *pattern, const struct schedule_call *call,
                          enum schedule_phase phase, struct schedule_traffic *traffic)
{
    const int p = call->ranks, steps = pici_pattern_steps(pattern, p), nodes = pici_traffic_nodes(call),
              from = traffic->count;
    const int reduces = phase == PHASE_REDUCE;
    for (int k = 0, alike; k < steps; k += alike) {
        struct schedule_run run;
        alike = pattern->alike(p, k);
        pattern->run(&run, p, 0, k + alike / 2);
        const int grow = reduces && alike > 1 ? pattern->contributions(p, k + 1) - pattern->contributions(p, k) : 0;
        circulant(call, nodes, run.to, run.count,
                  pici_traffic_add(traffic, phase, reduces ? pattern->contributions(p, k) : p, grow, alike));
    }
    if (!reduces)
        turn(traffic->step + from, traffic->count - from);
}

void pici_two_phase_traffic(const struct schedule *schedule, const struct schedule_call *call,
                            struct schedule_traffic *traffic)
{
    if (call->kind != PICI_ALL_GATHER)
        phase_traffic(schedule->reduce, call, PHASE_REDUCE, traffic);
    if (call->kind != PICI_REDUCE_SCATTER)
        phase_traffic(gather_of(schedule, call), call, PHASE_GATHER, traffic);
}
