/* SPDX-License-Identifier: BSD-3-Clause
 *
 * p2 is the largest power of two up to p, and rem = p - p2. Virtual ranks below 2 * rem are pairs. In the first step
 * the even virtual rank of each pair sends its contribution to the odd one. It is absent until the last step, in which
 * it receives the result. The p2 others have numbers v, in the order of their virtual ranks. In step t of log2 p2
 * exchanges, v and v xor 2^t send each other their sums. Both compute the same: they add the sum of the higher virtual
 * rank to the sum of the lower one. So all have the same bytes, though addition is not exactly commutative (of two NaNs
 * the first stays). */
#include "schedule/doubling.h"

#include "schedule/traffic.h"

struct shape {
    int rem, exchanges;
};

static struct shape shape_of(int p)
{
    struct shape shape = {0, 0};
    while (p >> shape.exchanges > 1)
        shape.exchanges++;
    shape.rem = p - (1 << shape.exchanges);
    return shape;
}

/* The number of a virtual rank, or -1; and the virtual rank of a number. */
static int number_of(const struct shape *shape, int virtual_rank)
{
    if (virtual_rank >= 2 * shape->rem)
        return virtual_rank - shape->rem;
    return virtual_rank % 2 ? virtual_rank / 2 : -1;
}

static int virtual_rank_of(const struct shape *shape, int v)
{
    return v < shape->rem ? 2 * v + 1 : v + shape->rem;
}

/* The number of contributions in the sum of v before exchange t. The sum spans the 2^t numbers that differ from v only
 * in the lowest t bits; each number below rem has two contributions. */
static int contributions(const struct shape *shape, int v, int t)
{
    const int group = 1 << t, pairs = shape->rem - (v >> t << t);
    if (pairs < 0)
        return group;
    return group + (pairs < group ? pairs : group);
}

static void put(struct schedule_message *message, int peer, enum schedule_action action, int contributions)
{
    *message = (struct schedule_message){
        .peer = peer, .segments = message->segments, .count = 1, .action = action, .contributions = contributions};
    message->segments[0] = 0;
}

/* A message from the even to the odd virtual rank of each pair, or back. */
static void within_pair(const struct shape *shape, int virtual_rank, int to_odd, enum schedule_action take,
                        int contributions, struct schedule_step *step)
{
    if (virtual_rank >= 2 * shape->rem)
        return;
    step->sends = virtual_rank % 2 != to_odd;
    step->receives = !step->sends;
    if (step->sends)
        put(step->send, virtual_rank ^ 1, SEND_ENCODE, contributions);
    else
        put(step->receive, virtual_rank ^ 1, take, contributions);
}

int pici_doubling_steps(const struct schedule *schedule, const struct schedule_call *call)
{
    const struct shape shape = shape_of(call->ranks);
    (void)schedule;
    return shape.exchanges + (shape.rem ? 2 : 0);
}

void pici_doubling_step(const struct schedule *schedule, const struct schedule_call *call, int k,
                        struct schedule_step *step)
{
    const struct shape shape = shape_of(call->ranks);
    const int v = number_of(&shape, call->virtual_rank), t = k - (shape.rem > 0);
    (void)schedule;
    step->phase = t < shape.exchanges ? PHASE_REDUCE : PHASE_GATHER;
    step->complete = COMPLETE_NONE;
    step->sends = step->receives = 0;
    if (t < 0) {
        within_pair(&shape, call->virtual_rank, 1, RECEIVE_REDUCE, 1, step);
    } else if (t == shape.exchanges) {
        within_pair(&shape, call->virtual_rank, 0, RECEIVE_PLACE, call->ranks, step);
    } else if (v >= 0) {
        const int other = v ^ 1 << t, lower = v < other;
        step->sends = step->receives = 1;
        put(step->send, virtual_rank_of(&shape, other), SEND_ENCODE, contributions(&shape, v, t));
        put(step->receive, virtual_rank_of(&shape, other), lower ? RECEIVE_REDUCE : RECEIVE_REDUCE_REVERSED,
            contributions(&shape, other, t));
        step->send->keep = lower ? KEEP_NOT : KEEP_MESSAGE;
        step->send->group = 1 + virtual_rank_of(&shape, v >> t << t);
        step->complete = t + 1 == shape.exchanges ? COMPLETE_ALL : COMPLETE_NONE;
    }
}

void pici_doubling_limits(const struct schedule *schedule, const struct schedule_call *call,
                          struct schedule_limits *limits)
{
    (void)schedule;
    *limits = (struct schedule_limits){0};
    if (call->ranks > 1)
        *limits = (struct schedule_limits){.sends = 1, .receives = 1, .segments = 1, .kept = 1, .sums_in_recv = 1};
}

/* ---- traffic */

/* The virtual rank that a virtual rank sends to in exchange t. t < 0 is the step before all exchanges, t == exchanges
 * the step after them. Returns < 0 for none. */
static int peer_of(const struct shape *shape, int virtual_rank, int t)
{
    const int v = number_of(shape, virtual_rank);
    if (t < 0 || t == shape->exchanges)
        return virtual_rank >= 2 * shape->rem || virtual_rank % 2 != (t >= 0) ? -1 : virtual_rank ^ 1;
    return v < 0 ? -1 : virtual_rank_of(shape, v ^ 1 << t);
}

static void send_whole(const struct schedule_call *call, const struct shape *shape, int t, struct traffic_step *step)
{
    for (int i = 0; i < nodes_of(call); i++) {
        const int begin = nodes_begin(call, i), end = nodes_begin(call, i + 1);
        int between_sends = 0, inside_sends = 0;
        for (int virtual_rank = begin; virtual_rank < end; virtual_rank++) {
            const int peer = peer_of(shape, virtual_rank, t), inside = peer >= begin && peer < end;
            between_sends += peer >= 0 && !inside;
            inside_sends += inside;
        }
        if (between_sends)
            pici_traffic_send(&step->between, 1, 1, 1);
        if (inside_sends)
            pici_traffic_send(&step->inside, 1, 1, 1);
        traffic_most(&step->node_fraction, between_sends);
    }
    step->receive_fraction = 1;
}

void pici_doubling_traffic(const struct schedule *schedule, const struct schedule_call *call,
                           struct schedule_traffic *traffic)
{
    const struct shape shape = shape_of(call->ranks);
    (void)schedule;
    if (shape.rem)
        send_whole(call, &shape, -1, pici_traffic_add(traffic, PHASE_REDUCE, 1, 0, 1));
    for (int i = 0; i < shape.exchanges; i++) {
        struct traffic_step *step = pici_traffic_add(traffic, PHASE_REDUCE, contributions(&shape, 0, i), 0, 1);
        step->reversed = 1;
        send_whole(call, &shape, i, step);
    }
    if (shape.rem)
        send_whole(call, &shape, shape.exchanges, pici_traffic_add(traffic, PHASE_GATHER, call->ranks, 0, 1));
}
