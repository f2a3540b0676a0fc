/* SPDX-License-Identifier: BSD-3-Clause
 *
 * p2 is the largest power of two up to p, and rem = p - p2. Positions below 2 * rem are pairs. In the first step (fold)
 * the even position of each pair sends its contribution to the odd one, and is absent until the last step (unfold), in
 * which it receives the result. The p2 others have numbers v, in the order of their positions. In step t of log2 p2
 * exchanges, v and v xor 2^t send each other their sums. Both compute the same: the sum of the lower position, to which
 * that of the higher position is added. So all have the same bytes, though addition is not exactly commutative (of two
 * NaNs the first stays). */
#include "schedule/doubling.h"

#include "schedule/traffic.h"

struct shape {
    int rem, exchanges;
};

static struct shape shape_of(int p)
{
    struct shape s = {0, 0};
    while (p >> s.exchanges > 1)
        s.exchanges++;
    s.rem = p - (1 << s.exchanges);
    return s;
}

/* The number of a position, or -1; and the position of a number. */
static int number_of(const struct shape *s, int position)
{
    if (position >= 2 * s->rem)
        return position - s->rem;
    return position % 2 ? position / 2 : -1;
}

static int position_of(const struct shape *s, int v)
{
    return v < s->rem ? 2 * v + 1 : v + s->rem;
}

/* The contributions in the sum of v before exchange t: those of the 2^t numbers that differ from v in the lowest t bits
 * only; each number below rem has two. */
static int contributions(const struct shape *s, int v, int t)
{
    const int group = 1 << t, pairs = s->rem - (v >> t << t);
    return group + (pairs < 0 ? 0 : pairs < group ? pairs : group);
}

static void put(struct schedule_message *m, int peer, enum schedule_action action, int contributions)
{
    *m = (struct schedule_message){
        .peer = peer, .segments = m->segments, .count = 1, .action = action, .contributions = contributions};
    m->segments[0] = 0;
}

/* A message from the even to the odd position of each pair, or back. */
static void within_pair(const struct shape *s, int position, int to_odd, enum schedule_action take, int contributions,
                        struct schedule_step *out)
{
    if (position >= 2 * s->rem)
        return;
    out->sends = position % 2 != to_odd;
    out->receives = !out->sends;
    put(out->sends ? out->send : out->receive, position ^ 1, out->sends ? SEND_ENCODE : take, contributions);
}

int pici_doubling_steps(const struct schedule *schedule, const struct schedule_call *c)
{
    const struct shape s = shape_of(c->ranks);
    (void)schedule;
    return s.exchanges + (s.rem ? 2 : 0);
}

void pici_doubling_step(const struct schedule *schedule, const struct schedule_call *c, int k,
                        struct schedule_step *out)
{
    const struct shape s = shape_of(c->ranks);
    const int v = number_of(&s, c->position), t = k - (s.rem > 0);
    (void)schedule;
    out->phase = t < s.exchanges ? PHASE_REDUCE : PHASE_GATHER;
    out->complete = COMPLETE_NONE;
    out->sends = out->receives = 0;
    if (t < 0) {
        within_pair(&s, c->position, 1, TAKE_REDUCE, 1, out);
    } else if (t == s.exchanges) {
        within_pair(&s, c->position, 0, TAKE_PLACE, c->ranks, out);
    } else if (v >= 0) {
        const int other = v ^ 1 << t, lower = v < other;
        out->sends = out->receives = 1;
        put(out->send, position_of(&s, other), SEND_ENCODE, contributions(&s, v, t));
        put(out->receive, position_of(&s, other), lower ? TAKE_REDUCE : TAKE_REDUCE_REVERSED,
            contributions(&s, other, t));
        out->send->keep = lower ? KEEP_NOT : KEEP_MESSAGE;
        out->send->group = 1 + position_of(&s, v >> t << t);
        out->complete = t + 1 == s.exchanges ? COMPLETE_ALL : COMPLETE_NONE;
    }
}

void pici_doubling_limits(const struct schedule *schedule, const struct schedule_call *c, struct schedule_limits *l)
{
    (void)schedule;
    *l = (struct schedule_limits){0};
    if (c->ranks > 1)
        *l = (struct schedule_limits){.sends = 1, .receives = 1, .segments = 1, .kept = 1, .sums_in_recv = 1};
}

/* ---- what is sent */

/* The position that one sends to in exchange t; before all (t < 0) in the fold, after all in the unfold. < 0: none. */
static int peer_of(const struct shape *s, int position, int t)
{
    const int v = number_of(s, position);
    if (t < 0 || t == s->exchanges)
        return position >= 2 * s->rem || position % 2 != (t >= 0) ? -1 : position ^ 1;
    return v < 0 ? -1 : position_of(s, v ^ 1 << t);
}

static void send_whole(const struct schedule_call *c, const struct shape *s, int t, struct traffic_step *to)
{
    for (int i = 0; i < nodes_of(c); i++) {
        const int begin = nodes_begin(c, i), end = nodes_begin(c, i + 1);
        int out = 0, in = 0;
        for (int r = begin; r < end; r++) {
            const int peer = peer_of(s, r, t), inside = peer >= begin && peer < end;
            out += peer >= 0 && !inside;
            in += inside;
        }
        if (out)
            pici_traffic_send(&to->between, 1, 1, 1);
        if (in)
            pici_traffic_send(&to->inside, 1, 1, 1);
        traffic_most(&to->node_share, out);
    }
    to->take_share = 1;
}

void pici_doubling_traffic(const struct schedule *schedule, const struct schedule_call *c, struct schedule_traffic *t)
{
    const struct shape s = shape_of(c->ranks);
    (void)schedule;
    if (s.rem)
        send_whole(c, &s, -1, pici_traffic_add(t, PHASE_REDUCE, 1, 0, 1));
    for (int i = 0; i < s.exchanges; i++) {
        struct traffic_step *step = pici_traffic_add(t, PHASE_REDUCE, contributions(&s, 0, i), 0, 1);
        step->reversed = 1;
        send_whole(c, &s, i, step);
    }
    if (s.rem)
        send_whole(c, &s, s.exchanges, pici_traffic_add(t, PHASE_GATHER, c->ranks, 0, 1));
}
