/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The schedules of broadcast, by brute force: every root, on one node and on several. */
#include <criterion/criterion.h>

#include "tests/util/schedule.h"
#include "tests/util/util.h"

enum { MOST = SCHEDULE_RANKS, EACH_ROOT = 20 /* up to so many ranks; beyond, some roots */ };

static void check(const struct schedule *s, const struct schedule_call *c)
{
    struct schedule_limits used, l;
    const char *bad = schedule_check(s, c, 1, &used);
    s->limits(s, c, &l);
    cr_assert_null(bad, "root %d: %s", c->root, bad);
    cr_assert(l.sends == used.sends && l.segments == used.segments && l.sums == 0 && l.kept >= used.kept &&
                  l.kept - used.kept <= 1,
              "%s, %d ranks, root %d: %d sends of %d, segments %d of %d, sums %d, kept %d of %d", s->name, c->ranks,
              c->root, used.sends, l.sends, used.segments, l.segments, l.sums, used.kept, l.kept);
}

static void check_roots(const struct schedule *s, const struct schedule_nodes *nodes, int p)
{
    for (int share = 0; share < SCHEDULE_SHARES; share++)
        for (int root = 0; root < p; root += p <= EACH_ROOT ? 1 : 1 + p / 5) {
            struct schedule_call c = schedule_call_of(PICI_BROADCAST, p, schedule_shares[share]);
            c.root = root;
            c.nodes = nodes;
            check(s, &c);
        }
}

Test(coll_broadcast, registry)
{
    for (const struct schedule *s = pici_broadcasts; s->name; s++) {
        cr_expect_eq(s->collectives, 1u << PICI_BROADCAST, "%s", s->name);
        cr_expect_eq(s->paired, PAIRED_NEVER, "%s", s->name);
        cr_expect_str_eq(s->name, pici_schedule(s->id)->name);
        cr_expect(s == pici_broadcasts || s->id > s[-1].id);
        cr_expect_eq(pici_schedule_for(s->id, PICI_BROADCAST), s);
        cr_expect_eq(pici_schedule_for(s->id, PICI_ALL_GATHERV), pici_schedule(s->id));
    }
    cr_expect_null(pici_schedule_for(PICI_ALGO_DOUBLING, PICI_BROADCAST));
    cr_expect_null(pici_schedule_for(PICI_ALGO_DOUBLING, PICI_ALL_GATHERV));
    cr_expect_null(pici_schedule_for(PICI_ALGO_AUTO, PICI_BROADCAST));
}

Test(coll_broadcast, all_have_the_data_once, .timeout = 300)
{
    for (const struct schedule *s = pici_broadcasts; s->name; s++)
        for (int p = 1; p <= MOST; p++)
            check_roots(s, NULL, p);
}

/* All ways to put up to 8 ranks on nodes, and some of more. */
Test(coll_broadcast, on_nodes, .timeout = 300)
{
    struct rng rng = {7};
    for (const struct schedule *s = pici_broadcasts; s->name; s++)
        for (int p = 1; p <= 30; p++)
            for (int way = 0; s->by_node && way < (p <= 8 ? 1 << (p - 1) : 12); way++) {
                int begin[MOST + 1] = {0}, nodes = 0;
                const uint64_t bits = p <= 8 ? (uint64_t)way : rng_next(&rng) & rng_next(&rng);
                for (int i = 0; i < p; i++)
                    if (i == 0 || bits >> (i - 1) & 1)
                        begin[nodes++] = i;
                begin[nodes] = p;
                const struct schedule_nodes on = {nodes, begin};
                if (!left_out(&rng))
                    check_roots(s, &on, p);
            }
}

static int steps_of(enum pici_algorithm id, int p, uint64_t share, const struct schedule_nodes *nodes)
{
    const struct schedule *s = pici_schedule_for(id, PICI_BROADCAST);
    struct schedule_call c = schedule_call_of(PICI_BROADCAST, p, share);
    c.nodes = nodes;
    return s->steps(s, &c);
}

Test(coll_broadcast, step_counts)
{
    static const int begin[] = {0, 3, 5, 12};
    static const struct schedule_nodes nodes = {3, begin};
    for (int p = 1, logarithm = 0; p <= 1025; p++) {
        logarithm += p > 1 << logarithm;
        cr_assert_eq(steps_of(PICI_ALGO_RING, p, 1, NULL), p - 1);
        cr_assert_eq(steps_of(PICI_ALGO_RECURSIVE, p, 1, NULL), logarithm);
        cr_assert_eq(steps_of(PICI_ALGO_SPLIT, p, SCHEDULE_SHARE, NULL), p - 1 + logarithm);
        cr_assert_eq(steps_of(PICI_ALGO_SPLIT, p, SCHEDULE_SHARE + 1, NULL), 2 * (p - 1));
    }
    cr_assert_eq(steps_of(PICI_ALGO_NODES_RING, 12, 1, &nodes), 2 + 6);
    cr_assert_eq(steps_of(PICI_ALGO_NODES_RECURSIVE, 12, 1, &nodes), 2 + 6);
}

/* How often all of the data crosses from one node to another, in segments. */
static int crossings(enum pici_algorithm id, const struct schedule_call *call)
{
    const struct schedule *s = pici_schedule_for(id, PICI_BROADCAST);
    struct schedule_call c = *call;
    struct schedule_limits l;
    int n = 0;
    s->limits(s, &c, &l);
    struct schedule_step *step = schedule_room(&l, c.ranks);
    for (int k = 0; k < s->steps(s, &c); k++)
        for (c.virtual_rank = 0; c.virtual_rank < c.ranks; c.virtual_rank++) {
            s->step(s, &c, k, step);
            for (int i = 0; i < step->sends; i++)
                if (pici_schedule_node(c.nodes, c.virtual_rank) != pici_schedule_node(c.nodes, step->send[i].peer))
                    n += step->send[i].count;
        }
    free(step);
    return n;
}

/* On two levels each node but the root's receives the data once. */
Test(coll_broadcast, crosses_each_link_once)
{
    static const int begin[] = {0, 3, 5, 12, 13};
    static const struct schedule_nodes nodes = {4, begin};
    for (int root = 0; root < 13; root++) {
        struct schedule_call c = schedule_call_of(PICI_BROADCAST, 13, SCHEDULE_SHARE);
        c.nodes = &nodes;
        c.root = root;
        cr_expect_eq(crossings(PICI_ALGO_NODES_RING, &c), 3);
        cr_expect_eq(crossings(PICI_ALGO_NODES_RECURSIVE, &c), 3);
        cr_expect_gt(crossings(PICI_ALGO_SPLIT, &c), 3 * 13);
    }
}
