/* SPDX-License-Identifier: BSD-3-Clause */
#include "coll/schedule.h"

#include <string.h>

enum {
    TILE = 4096,
    TILES_MIN = 64,         /* segments of so many tiles or more begin at a tile */
    SMALL_SHARE = 32 << 10, /* bytes a rank up to which few steps matter more than few links crossed */
    ALL_COLLECTIVES = 1 << PICI_ALL_GATHER | 1 << PICI_REDUCE_SCATTER | 1 << PICI_ALL_REDUCE
};

/* (a + b) mod p, 0 <= a < p, -p <= b <= p */
static int around(int a, int b, int p)
{
    int sum = b < 0 ? a + b : a - p + b; /* in [-p, p): neither overflows */
    return sum < 0 ? sum + p : sum;
}

/* ---- patterns: reduce-scatter with one message each way a step, of a run of segments that wraps around */

struct run {
    int to, send_first, from, recv_first, count;
};

/* How many sums or kept messages a pattern needs: none, one, or one for each segment or step. */
enum amount { NONE, ONE, EACH };

struct schedule_pattern {
    int logarithmic; /* ceil(log2 p) steps with up to p/2 segments each; else p - 1 steps with one */
    enum amount sums, kept;
    void (*run)(struct run *, int p, int r, int k);
    int (*contributions)(int p, int k);
};

/* The sum of segment i starts at position i + 1 and goes round to position i; each adds its contribution. */
static void ring(struct run *s, int p, int r, int k)
{
    s->to = around(r, 1, p);
    s->from = around(r, -1, p);
    s->send_first = around(r, -1 - k, p);
    s->recv_first = around(s->send_first, -1, p);
    s->count = 1;
}

/* Traeff's circulant schedule (doi 10.34726/10760). Before step k a position has partial sums of `had` segments, its
 * own first. It keeps the first `keep` = ceil(had / 2) and sends the others to the position `keep` ahead, which owns
 * the first of those. had is ceil(p / 2^k). */
static void recursive(struct run *s, int p, int r, int k)
{
    int had = ((p - 1) >> k) + 1, keep = ((p - 1) >> (k + 1)) + 1;
    s->to = around(r, keep, p);
    s->from = around(r, -keep, p);
    s->send_first = s->to;
    s->recv_first = r;
    s->count = had - keep;
}

/* Each contribution goes straight to its owner, one owner a step. */
static void split(struct run *s, int p, int r, int k)
{
    s->to = around(r, k + 1, p);
    s->from = around(r, -1 - k, p);
    s->send_first = s->to;
    s->recv_first = r;
    s->count = 1;
}

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

static const struct schedule_pattern ring_pattern = {0, ONE, ONE, ring, one_more_a_step},
                                     recursive_pattern = {1, EACH, EACH, recursive, twice_a_step},
                                     split_pattern = {0, NONE, NONE, split, one_always};

static int pattern_steps(const struct schedule_pattern *a, int p)
{
    int steps = 0;
    while (a->logarithmic && (p - 1) >> steps)
        steps++;
    return a->logarithmic ? steps : p - 1;
}

/* ---- schedules made of two phases. All-gather is a reduce-scatter backwards, with sending and receiving exchanged,
 * and mirrored: position and segment i become -i modulo p. Without the mirror, the second phase of an all-reduce would
 * begin by sending to the other neighbour than the first phase ended with. Its messages would share that link with
 * those of the first phase, and the other link would be idle (measured: a tenth of the time of a dense all-reduce over
 * a network). */

static int mirror(int i, int p)
{
    return i ? p - i : 0;
}

/* The pattern of the all-gather phase: the schedule's own, or by the size of the data if it has none. */
static const struct schedule_pattern *gather_of(const struct schedule *s, const struct schedule_call *c)
{
    if (s->gather)
        return s->gather;
    return c->bytes <= (uint64_t)c->ranks * SMALL_SHARE ? &recursive_pattern : &ring_pattern;
}

static int phase_steps(const struct schedule *s, const struct schedule_call *c, enum schedule_phase phase)
{
    if (c->kind == (phase == PHASE_REDUCE ? PICI_ALL_GATHER : PICI_REDUCE_SCATTER))
        return 0;
    return pattern_steps(phase == PHASE_REDUCE ? s->reduce : gather_of(s, c), c->ranks);
}

static int two_phase_steps(const struct schedule *s, const struct schedule_call *c)
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

static void two_phase_step(const struct schedule *s, const struct schedule_call *c, int k, struct schedule_step *out)
{
    const int p = c->ranks, reducing = phase_steps(s, c, PHASE_REDUCE), gathering = phase_steps(s, c, PHASE_GATHER);
    struct schedule_message *send = out->send, *receive = out->receive;
    struct run t;
    out->sends = out->receives = 1;
    if (k < reducing) {
        s->reduce->run(&t, p, c->position, k);
        put_run(send, t.to, t.send_first, t.count, p);
        put_run(receive, t.from, t.recv_first, t.count, p);
        out->phase = PHASE_REDUCE;
        out->complete = k + 1 == reducing ? COMPLETE_OWN : COMPLETE_NONE;
        send->action = SEND_ENCODE;
        receive->action = TAKE_REDUCE;
        send->keep = receive->keep = 0;
        send->contributions = receive->contributions = s->reduce->contributions(p, k);
        return;
    }
    const struct schedule_pattern *pattern = gather_of(s, c);
    k -= reducing;
    pattern->run(&t, p, mirror(c->position, p), gathering - 1 - k);
    put_run(send, mirror(t.from, p), mirror(around(t.recv_first, t.count - 1, p), p), t.count, p);
    put_run(receive, mirror(t.to, p), mirror(around(t.send_first, t.count - 1, p), p), t.count, p);
    out->phase = PHASE_GATHER;
    out->complete = COMPLETE_NONE;
    send->action = k == 0 ? SEND_ENCODE : SEND_FORWARD;
    receive->action = TAKE_PLACE;
    send->keep = pattern->logarithmic && k + 1 < gathering; /* in a ring each block is forwarded once */
    /* The last step forwards the p / 2 segments nearest to its own. With 3 or 5 ranks, those received in the step
     * before are further away. */
    receive->keep =
        k + 1 < gathering && (!pattern->logarithmic || around(t.send_first, -mirror(c->position, p), p) < p / 2);
    send->contributions = receive->contributions = p;
}

static int amount(enum amount a, int each)
{
    return a == NONE ? 0 : a == ONE ? 1 : each;
}

static void two_phase_limits(const struct schedule *s, const struct schedule_call *c, struct schedule_limits *l)
{
    *l = (struct schedule_limits){0};
    for (int phase = PHASE_REDUCE; phase < PHASES; phase++) {
        const struct schedule_pattern *pattern = phase == PHASE_REDUCE ? s->reduce : gather_of(s, c);
        const int steps = phase_steps(s, c, (enum schedule_phase)phase);
        if (!steps)
            continue;
        const int widest = !pattern->logarithmic || c->ranks < 4 ? 1 : c->ranks / 2;
        l->sends = l->receives = 1;
        l->segments = widest > l->segments ? widest : l->segments;
        if (phase == PHASE_REDUCE)
            l->sums = amount(pattern->sums, widest);
        else
            l->kept = amount(pattern->kept, steps);
    }
}

/* ---- the registry */

#define TWO_PHASES ALL_COLLECTIVES, 1, two_phase_steps, two_phase_step, two_phase_limits

const struct schedule pici_schedules[] = {
    {PICI_ALGO_RING, "ring", "p - 1 steps; partial sums go round by the neighbour, one segment at a time", TWO_PHASES,
     &ring_pattern, &ring_pattern},
    {PICI_ALGO_RECURSIVE, "recursive",
     "ceil(log2 p) steps; partial sums of half of the segments at first, then of a quarter, ..., from as far away",
     TWO_PHASES, &recursive_pattern, &recursive_pattern},
    {PICI_ALGO_SPLIT, "split",
     "p - 1 steps; each contribution straight to its owner. Gathers as recursive does up to 32 KiB a rank, else as "
     "ring",
     TWO_PHASES, &split_pattern, NULL},
    {0},
};

const struct schedule *pici_schedule(enum pici_algorithm id)
{
    for (const struct schedule *s = pici_schedules; s->name; s++)
        if (s->id == id)
            return s;
    return NULL;
}

/* ---- memory of a step */

size_t pici_schedule_step_bytes(const struct schedule_limits *l)
{
    return (size_t)(l->sends + l->receives) * (sizeof(struct schedule_message) + (size_t)l->segments * sizeof(int));
}

void pici_schedule_step_init(struct schedule_step *s, const struct schedule_limits *l, void *memory)
{
    const int messages = l->sends + l->receives;
    struct schedule_message *m = memory;
    int *segments = (int *)(void *)(m + messages);
    memset(s, 0, sizeof *s);
    for (int i = 0; i < messages; i++)
        m[i].segments = segments + (size_t)i * (size_t)l->segments;
    s->send = m;
    s->receive = m + l->sends;
}

/* ---- segments and order */

/* Where segment i begins; i == p: where the last ends. */
static uint64_t cut(uint64_t n, int p, int i)
{
    uint64_t parts = (uint64_t)p, at = (uint64_t)i;
    uint64_t first = at * (n / parts) + at * (n % parts) / parts; /* floor(i*n/p); i*n may not fit in 64 bits */
    return i < p && n / parts >= TILES_MIN * TILE ? first - first % TILE : first;
}

void pici_schedule_segment(uint64_t n, int p, int i, uint64_t *first, uint64_t *len)
{
    *first = cut(n, p, i);
    *len = cut(n, p, i + 1) - *first;
}

void pici_schedule_order(const int *node_of, int p, int *order)
{
    int at = 0;
    for (int r = 0; r < p; r++) {
        int seen = 0;
        while (seen < r && node_of[seen] != node_of[r])
            seen++;
        if (seen < r)
            continue; /* it was placed with its node's lowest rank */
        for (int q = r; q < p; q++)
            if (node_of[q] == node_of[r])
                order[at++] = q;
    }
}
