/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan.h"

enum { TILE = 4096, TILES_MIN = 64 }; /* segments of so many tiles or more begin at a tile */

/* (a + b) mod p, 0 <= a < p, -p <= b <= p */
static int around(int a, int b, int p)
{
    int sum = b < 0 ? a + b : a - p + b; /* in [-p, p): neither overflows */
    return sum < 0 ? sum + p : sum;
}

int pici_plan_steps(enum plan_algorithm a, int p)
{
    if (a == PLAN_RING)
        return p - 1;
    int steps = 0;
    while ((p - 1) >> steps)
        steps++;
    return steps;
}

int pici_plan_widest(enum plan_algorithm a, int p)
{
    return a == PLAN_RING || p < 4 ? 1 : p / 2;
}

/* Segment i sets out at rank i + 1 and collects contributions all the way round to rank i. */
static void ring(struct pici_plan_step *s, int p, int r, int k)
{
    s->to = around(r, 1, p);
    s->from = around(r, -1, p);
    s->send_first = around(r, -1 - k, p);
    s->recv_first = around(s->send_first, -1, p);
    s->send_count = s->recv_count = 1;
}

/* Traeff's circulant schedule (doi 10.34726/10760). Before step k a rank has partial sums of the `had` segments from its own
 * on. It passes on all but the first `keep` = ceil(had / 2) of them, to the rank that far ahead, whose own is the first of
 * those. Halved and rounded up k times, p is ceil(p / 2^k). */
static void recursive(struct pici_plan_step *s, int p, int r, int k)
{
    int had = ((p - 1) >> k) + 1, keep = ((p - 1) >> (k + 1)) + 1;
    s->to = around(r, keep, p);
    s->from = around(r, -keep, p);
    s->send_first = s->to;
    s->recv_first = r;
    s->send_count = s->recv_count = had - keep;
}

static void reduce_scatter(struct pici_plan_step *s, enum plan_algorithm a, int p, int r, int k)
{
    if (a == PLAN_RING)
        ring(s, p, r, k);
    else
        recursive(s, p, r, k);
}

static int mirror(int i, int p)
{
    return i ? p - i : 0;
}

void pici_plan_step(struct pici_plan_step *s, enum plan_algorithm a, enum plan_phase phase, int p, int r, int k)
{
    if (phase == PLAN_REDUCE_SCATTER) {
        reduce_scatter(s, a, p, r, k);
        return;
    }
    struct pici_plan_step t;
    reduce_scatter(&t, a, p, mirror(r, p), pici_plan_steps(a, p) - 1 - k);
    *s = (struct pici_plan_step){.to = mirror(t.from, p),
                                 .send_first = mirror(around(t.recv_first, t.recv_count - 1, p), p),
                                 .send_count = t.recv_count,
                                 .from = mirror(t.to, p),
                                 .recv_first = mirror(around(t.send_first, t.send_count - 1, p), p),
                                 .recv_count = t.send_count};
}

/* Where segment i begins; i == p: where the last ends. */
static uint64_t cut(uint64_t n, int p, int i)
{
    uint64_t parts = (uint64_t)p, at = (uint64_t)i;
    uint64_t first = at * (n / parts) + at * (n % parts) / parts; /* floor(i*n/p), where i*n may be beyond 64 bits */
    return i < p && n / parts >= TILES_MIN * TILE ? first - first % TILE : first;
}

void pici_plan_segment(uint64_t n, int p, int i, uint64_t *first, uint64_t *len)
{
    *first = cut(n, p, i);
    *len = cut(n, p, i + 1) - *first;
}

void pici_plan_order(const int *node_of, int p, int *order)
{
    int at = 0;
    for (int r = 0; r < p; r++) {
        int seen = 0;
        while (seen < r && node_of[seen] != node_of[r])
            seen++;
        if (seen < r)
            continue; /* placed with its node's lowest rank */
        for (int q = r; q < p; q++)
            if (node_of[q] == node_of[r])
                order[at++] = q;
    }
}
