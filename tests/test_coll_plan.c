/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Plans by brute force: every schedule is carried out on sets of ranks instead of sums. */
#include <criterion/criterion.h>

#include <limits.h>

#include "coll/plan.h"
#include "pici/coll.h"

enum { MOST = 64, TILE = 4096 };

static const enum plan_algorithm algorithms[] = {PLAN_RING, PLAN_RECURSIVE};
enum { ALGORITHMS = sizeof algorithms / sizeof *algorithms };

_Static_assert((int)PLAN_RING == (int)PICI_ALGO_RING && (int)PLAN_RECURSIVE == (int)PICI_ALGO_RECURSIVE,
               "same numbers");

static uint64_t all_ranks(int p)
{
    return UINT64_MAX >> (64 - p);
}

/* Each rank sends one message and receives one; the two ends of a message agree on it. */
static void check_mirror(enum plan_algorithm a, enum plan_phase phase, int p, int r, int k)
{
    struct pici_plan_step s, peer;
    pici_plan_step(&s, a, phase, p, r, k);
    cr_assert(s.to >= 0 && s.to < p && s.to != r, "algorithm %d, p %d, rank %d, step %d: to %d", a, p, r, k, s.to);
    cr_assert(s.from >= 0 && s.from < p && s.from != r);
    cr_assert(s.send_first >= 0 && s.send_first < p);
    cr_assert(s.send_count >= 1 && s.send_count <= pici_plan_widest(a, p));
    cr_assert_eq(s.recv_count, s.send_count);
    pici_plan_step(&peer, a, phase, p, s.to, k);
    cr_assert_eq(peer.from, r, "algorithm %d, p %d: step %d of %d and of %d", a, p, k, r, s.to);
    cr_assert_eq(peer.recv_first, s.send_first);
    cr_assert_eq(peer.recv_count, s.send_count);
}

/* sum[r][g]: whose contributions are in what rank r holds of segment g. What was sent is gone. */
static void check_reduce_scatter(enum plan_algorithm a, int p)
{
    static uint64_t sum[MOST][MOST];
    for (int r = 0; r < p; r++)
        for (int g = 0; g < p; g++)
            sum[r][g] = UINT64_C(1) << r;
    int sent[MOST] = {0};
    for (int k = 0; k < pici_plan_steps(a, p); k++) {
        static uint64_t moved[MOST][MOST];
        struct pici_plan_step s;
        for (int r = 0; r < p; r++) {
            pici_plan_step(&s, a, PLAN_REDUCE_SCATTER, p, r, k);
            sent[r] += s.send_count;
            for (int i = 0; i < s.send_count; i++) {
                int g = (s.send_first + i) % p;
                cr_assert_neq(sum[r][g], 0, "algorithm %d, p %d, step %d: rank %d has passed on %d", a, p, k, r, g);
                moved[r][i] = sum[r][g];
                sum[r][g] = 0;
            }
        }
        for (int r = 0; r < p; r++) {
            pici_plan_step(&s, a, PLAN_REDUCE_SCATTER, p, r, k);
            for (int i = 0; i < s.recv_count; i++) {
                int g = (s.recv_first + i) % p;
                cr_assert_neq(sum[r][g], 0, "algorithm %d, p %d, step %d: rank %d adds to nothing", a, p, k, r);
                cr_assert_eq(sum[r][g] & moved[s.from][i], 0, "algorithm %d, p %d, step %d: added twice", a, p, k);
                sum[r][g] |= moved[s.from][i];
            }
        }
    }
    for (int r = 0; r < p; r++) {
        cr_assert_eq(sent[r], p - 1, "as many segments as can be done with");
        for (int g = 0; g < p; g++)
            cr_assert_eq(sum[r][g], g == r ? all_ranks(p) : 0, "algorithm %d, p %d: rank %d, %d", a, p, r, g);
    }
}

/* held[r]: the segments that rank r holds. */
static void check_all_gather(enum plan_algorithm a, int p)
{
    uint64_t held[MOST], before[MOST];
    for (int r = 0; r < p; r++)
        held[r] = UINT64_C(1) << r;
    for (int k = 0; k < pici_plan_steps(a, p); k++) {
        memcpy(before, held, sizeof held);
        for (int r = 0; r < p; r++) {
            struct pici_plan_step s;
            pici_plan_step(&s, a, PLAN_ALL_GATHER, p, r, k);
            for (int i = 0; i < s.send_count; i++)
                cr_assert(before[r] >> (s.send_first + i) % p & 1, "algorithm %d, p %d: not there yet", a, p);
            for (int i = 0; i < s.recv_count; i++) {
                uint64_t bit = UINT64_C(1) << (s.recv_first + i) % p;
                cr_assert_eq(held[r] & bit, 0, "algorithm %d, p %d: received twice", a, p);
                held[r] |= bit;
            }
        }
    }
    for (int r = 0; r < p; r++)
        cr_assert_eq(held[r], all_ranks(p));
}

Test(coll_plan, each_contribution_once)
{
    for (int a = 0; a < ALGORITHMS; a++)
        for (int p = 1; p <= MOST; p++) {
            for (int k = 0; k < pici_plan_steps(algorithms[a], p); k++)
                for (int r = 0; r < p; r++) {
                    check_mirror(algorithms[a], PLAN_REDUCE_SCATTER, p, r, k);
                    check_mirror(algorithms[a], PLAN_ALL_GATHER, p, r, k);
                }
            check_reduce_scatter(algorithms[a], p);
            check_all_gather(algorithms[a], p);
        }
}

static int mirror(int i, int p)
{
    return (p - i) % p;
}

/* Where a run of segments begins that a mirror shows. */
static int mirror_run(int first, int count, int p)
{
    return mirror((first + count - 1) % p, p);
}

Test(coll_plan, all_gather_is_reversed_and_mirrored)
{
    for (int a = 0; a < ALGORITHMS; a++)
        for (int p = 1; p <= MOST; p++)
            for (int k = 0, last = pici_plan_steps(algorithms[a], p) - 1; k <= last; k++)
                for (int r = 0; r < p; r++) {
                    struct pici_plan_step s, t;
                    pici_plan_step(&s, algorithms[a], PLAN_REDUCE_SCATTER, p, r, k);
                    pici_plan_step(&t, algorithms[a], PLAN_ALL_GATHER, p, mirror(r, p), last - k);
                    cr_assert_eq(mirror(s.to, p), t.from);
                    cr_assert_eq(mirror_run(s.send_first, s.send_count, p), t.recv_first);
                    cr_assert_eq(s.send_count, t.recv_count);
                    cr_assert_eq(mirror(s.from, p), t.to);
                    cr_assert_eq(mirror_run(s.recv_first, s.recv_count, p), t.send_first);
                    cr_assert_eq(s.recv_count, t.send_count);
                }
}

/* The last step of the one and the first of the other use the same links. */
Test(coll_plan, phases_send_to_the_same_side)
{
    for (int a = 0; a < ALGORITHMS; a++)
        for (int p = 2; p <= MOST; p++)
            for (int r = 0; r < p; r++) {
                struct pici_plan_step s, t;
                pici_plan_step(&s, algorithms[a], PLAN_REDUCE_SCATTER, p, r, pici_plan_steps(algorithms[a], p) - 1);
                pici_plan_step(&t, algorithms[a], PLAN_ALL_GATHER, p, r, 0);
                cr_assert_eq(s.to, t.to);
                cr_assert_eq(s.from, t.from);
            }
}

Test(coll_plan, step_counts)
{
    for (int p = 1; p <= 1025; p++) {
        int log2 = 0;
        while (1 << log2 < p)
            log2++;
        cr_assert_eq(pici_plan_steps(PLAN_RING, p), p - 1);
        cr_assert_eq(pici_plan_steps(PLAN_RECURSIVE, p), log2);
        int widest = 0;
        for (int k = 0; k < log2; k++) {
            struct pici_plan_step s;
            pici_plan_step(&s, PLAN_RECURSIVE, PLAN_REDUCE_SCATTER, p, 0, k);
            widest = s.send_count > widest ? s.send_count : widest;
        }
        cr_assert_eq(pici_plan_widest(PLAN_RING, p), 1);
        cr_assert_eq(pici_plan_widest(PLAN_RECURSIVE, p), p == 1 ? 1 : widest);
    }
    cr_assert_eq(pici_plan_steps(PLAN_RECURSIVE, INT_MAX), 31);
}

/* Five ranks, written out. In step 0 rank 0 hands segments 3 and 4 three ahead, then 2 two ahead, then 1 one ahead. */
Test(coll_plan, worked_example)
{
    static const struct pici_plan_step recursive[] = {{3, 3, 2, 2, 0, 2}, {2, 2, 1, 3, 0, 1}, {1, 1, 1, 4, 0, 1}};
    static const struct pici_plan_step ring[] = {
        {1, 4, 1, 4, 3, 1}, {1, 3, 1, 4, 2, 1}, {1, 2, 1, 4, 1, 1}, {1, 1, 1, 4, 0, 1}};
    struct pici_plan_step s;
    for (int k = 0; k < 3; k++) {
        pici_plan_step(&s, PLAN_RECURSIVE, PLAN_REDUCE_SCATTER, 5, 0, k);
        cr_expect_arr_eq(&s, &recursive[k], sizeof s, "recursive, step %d", k);
    }
    for (int k = 0; k < 4; k++) {
        pici_plan_step(&s, PLAN_RING, PLAN_REDUCE_SCATTER, 5, 0, k);
        cr_expect_arr_eq(&s, &ring[k], sizeof s, "ring, step %d", k);
    }
}

/* No sum of ranks overflows. */
Test(coll_plan, many_ranks)
{
    static const int sizes[] = {1000, 65536, 65537, 1 << 30, (1 << 30) + 1, INT_MAX - 1, INT_MAX};
    for (int a = 0; a < ALGORITHMS; a++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            int p = sizes[i], steps = pici_plan_steps(algorithms[a], p);
            const int ranks[] = {0, 1, p / 2, p / 2 + 1, p - 2, p - 1};
            const int ks[] = {0, 1, steps / 2, steps - 2, steps - 1};
            for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++)
                for (size_t k = 0; k < sizeof ks / sizeof *ks; k++) {
                    check_mirror(algorithms[a], PLAN_REDUCE_SCATTER, p, ranks[r], ks[k]);
                    check_mirror(algorithms[a], PLAN_ALL_GATHER, p, ranks[r], ks[k]);
                }
        }
}

/* Segments follow one another, cover n, and lie where the rule says. */
static void check_segments(uint64_t n, int p)
{
    uint64_t next = 0, first, len;
    int aligned = n >= UINT64_C(64) * TILE * (uint64_t)p;
    for (int i = 0; i < p; i++) {
        pici_plan_segment(n, p, i, &first, &len);
        __extension__ unsigned __int128 exact = (unsigned __int128)n * (unsigned)i / (unsigned)p;
        cr_assert_eq(first, next, "n %ju, p %d: segment %d", (uintmax_t)n, p, i);
        cr_assert_eq(first, (uint64_t)exact - (aligned ? (uint64_t)exact % TILE : 0), "n %ju, p %d, %d", (uintmax_t)n,
                     p, i);
        next = first + len;
        cr_assert_geq(next, first);
    }
    cr_assert_eq(next, n);
}

Test(coll_plan, segments)
{
    for (int p = 1; p <= MOST; p++) {
        uint64_t P = (uint64_t)p, edge = 64 * TILE * P;
        const uint64_t ns[] = {0, 1, P - 1, P, P + 1, 2 * P - 1, 1000003, edge - 1, edge, edge + 1, 2 * edge - 1};
        for (size_t i = 0; i < sizeof ns / sizeof *ns; i++)
            check_segments(ns[i], p);
        for (unsigned bit = 24; bit < 64; bit++)
            for (int d = -1; d <= 1; d++)
                check_segments((UINT64_C(1) << bit) + (uint64_t)d, p);
        check_segments(UINT64_MAX, p);
    }
    uint64_t first, len;
    pici_plan_segment(UINT64_C(1) << 62, INT_MAX, INT_MAX - 1, &first, &len);
    cr_assert_eq(first + len, UINT64_C(1) << 62);
    pici_plan_segment(10, 4, 1, &first, &len); /* 0 1 | 2 3 4 | 5 6 | 7 8 9 */
    cr_assert(first == 2 && len == 3);
}

static void check_order(const int *node_of, int p, const int *expected)
{
    int order[16];
    pici_plan_order(node_of, p, order);
    cr_expect_arr_eq(order, expected, (size_t)p * sizeof *order);
}

Test(coll_plan, order)
{
    check_order((int[]){7}, 1, (int[]){0});
    check_order((int[]){3, 3, 3, 3}, 4, (int[]){0, 1, 2, 3});
    check_order((int[]){0, 1, 2, 3}, 4, (int[]){0, 1, 2, 3});
    check_order((int[]){0, 1, 2, 3, 0, 1, 2, 3}, 8, (int[]){0, 4, 1, 5, 2, 6, 3, 7});   /* dealt out in turn */
    check_order((int[]){INT_MAX, -5, INT_MIN, -5, INT_MAX}, 5, (int[]){0, 4, 1, 3, 2}); /* any numbers */
}

/* However ranks lie on nodes, a ring over the order leaves each node once. */
Test(coll_plan, order_crosses_each_link_once)
{
    enum { P = 7, NODES = 3 };
    for (int code = 0; code < 2187; code++) { /* NODES to the power of P */
        int node_of[P], order[P], nodes = 0, crossings = 0, seen = 0;
        for (int r = 0, c = code; r < P; r++, c /= NODES) {
            node_of[r] = c % NODES;
            nodes |= 1 << c % NODES;
        }
        pici_plan_order(node_of, P, order);
        for (int i = 0; i < P; i++) {
            seen |= 1 << order[i];
            crossings += node_of[order[i]] != node_of[order[(i + 1) % P]];
        }
        int different = (nodes & 1) + (nodes >> 1 & 1) + (nodes >> 2 & 1);
        cr_assert_eq(seen, (1 << P) - 1);
        cr_assert_eq(crossings, different == 1 ? 0 : different);
    }
}
