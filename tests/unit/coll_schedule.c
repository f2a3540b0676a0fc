/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The schedules of the registry, by brute force. */
#include <criterion/criterion.h>

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pici/coll.h"
#include "tests/util/schedule.h"
#include "tests/util/util.h"

enum { MOST = SCHEDULE_RANKS, TILE = 4096, SMALL_SHARE = SCHEDULE_SHARE };

/* ---- the registry */

Test(coll_schedule, registry)
{
    int n = 0;
    for (const struct schedule *s = pici_schedules; s->name; s++, n++) {
        cr_expect_gt(s->id, n ? s[-1].id : PICI_ALGO_AUTO, "%s", s->name);
        for (const char *c = s->name; *c; c++)
            cr_expect(islower((unsigned char)*c) || *c == '-', "%s", s->name);
        cr_expect(s->name[0] && s->doc && s->doc[0]);
        cr_expect_str_neq(s->name, "auto");
        for (const struct schedule *t = pici_schedules; t < s; t++) {
            cr_expect_str_neq(t->name, s->name);
            cr_expect_neq(t->letter, s->letter, "%s", s->name);
        }
        cr_expect(s->collectives && !(s->collectives & ~(1u << PICI_ALL_GATHER | 1u << PICI_REDUCE_SCATTER |
                                                         1u << PICI_ALL_REDUCE | 1u << PICI_ALL_GATHERV)),
                  "%s", s->name);
        cr_expect_eq(s->collectives >> PICI_ALL_GATHER & 1, s->collectives >> PICI_ALL_GATHERV & 1, "%s", s->name);
        cr_expect(s->steps && s->step && s->limits && s->traffic, "%s", s->name);
        cr_expect_eq(s->usual & ~s->collectives, 0, "%s", s->name);
        cr_expect(!s->with_agreement || (s->undivided && s->paired == PAIRED_AT_POWERS_OF_TWO), "%s", s->name);
        cr_expect(isupper((unsigned char)s->letter) && s->letter != 'V', "%s", s->name);
        cr_expect_eq(pici_schedule(s->id), s);
        cr_expect_eq((int)s->id, n + 1, "names exist without a gap");
        cr_expect_str_eq(pici_algorithm_name(s->id), s->name);
    }
    cr_expect_geq(n, 4);
    cr_expect_null(pici_schedule(PICI_ALGO_AUTO));
    cr_expect_null(pici_schedule((enum pici_algorithm)(n + 1)));
    cr_expect_null(pici_schedule((enum pici_algorithm) - 1));
    cr_expect_str_eq(pici_algorithm_name(PICI_ALGO_AUTO), "auto");
    cr_expect_null(pici_algorithm_name((enum pici_algorithm)(n + 1)));
    cr_expect_null(pici_algorithm_name((enum pici_algorithm) - 1));
}

static void check_same_limits(const struct schedule *a, const struct schedule *b, int p, uint64_t share)
{
    const struct schedule_call c = schedule_call_of(PICI_ALL_GATHER, p, share);
    struct schedule_limits x, y;
    a->limits(a, &c, &x);
    b->limits(b, &c, &y);
    cr_expect(x.sends == y.sends && x.receives == y.receives && x.segments == y.segments && x.kept == y.kept,
              "%s gathers as %s, %d ranks", a->name, b->name, p);
}

/* What an all-gather needs depends on the bytes as the registry says. */
Test(coll_schedule, gathers_as)
{
    for (const struct schedule *s = pici_schedules; s->name; s++)
        for (int p = 1; p <= MOST && schedule_has(s, PICI_ALL_GATHER); p++)
            for (int i = 0; i < 2; i++) {
                const struct schedule *as = s->gathers_as[i] ? pici_schedule(s->gathers_as[i]) : s;
                const struct schedule_call few = schedule_call_of(PICI_ALL_GATHER, p, schedule_shares[0]),
                                           more = schedule_call_of(PICI_ALL_GATHER, p, schedule_shares[1]);
                check_same_limits(s, as, p, schedule_shares[i]);
                cr_expect(s->gathers_as[i] || s->steps(s, &few) == s->steps(s, &more), "%s", s->name);
                cr_expect(pici_schedule_may_gather(as, s->id), "%s", s->name);
            }
}

/* The documentation's table of algorithms is the registry, and it says in which order each of them adds. */
Test(coll_schedule, documented)
{
    static char page[1 << 20], row[400];
    FILE *f = fopen("docs/reference/algorithms.md", "r");
    cr_assert(f);
    page[fread(page, 1, sizeof page - 1, f)] = 0;
    fclose(f);
    const char *orders = strstr(page, "\n| algorithm | order in which");
    cr_assert(orders);
    for (int broadcasts = 0; broadcasts < 2; broadcasts++)
        for (const struct schedule *s = broadcasts ? pici_broadcasts : pici_schedules; s->name; s++) {
            if (broadcasts)
                snprintf(row, sizeof row, "\n| `%s` | %s |\n", s->name, s->doc);
            else
                snprintf(row, sizeof row, "\n| `%s` | %d | %c | %s |\n", s->name, s->id, s->letter, s->doc);
            cr_expect(strstr(page, row), "docs/reference/algorithms.md has no row%s", row);
            snprintf(row, sizeof row, "\n| `%s` | ", s->name);
            cr_expect(broadcasts || !schedule_has(s, PICI_ALL_REDUCE) || strstr(orders, row),
                      "docs/reference/algorithms.md does not say in which order %s adds", s->name);
        }
}

/* ---- brute force */

/* Are `contributions` the number itself, not only an upper bound? */
static int says_exactly(const struct schedule *s)
{
    return s->id == PICI_ALGO_RING || s->id == PICI_ALGO_SPLIT || s->id == PICI_ALGO_DOUBLING;
}

/* Limits are what some step needs; sums and kept messages may be one more. */
static void check_limits(const struct schedule *s, const struct schedule_call *c, const struct schedule_limits *used)
{
    struct schedule_limits l;
    s->limits(s, c, &l);
    cr_assert(l.sends == used->sends && l.receives == used->receives && l.segments == used->segments &&
                  l.sums - used->sums <= 1 && l.kept - used->kept <= 1,
              "%s, collective %d, %d ranks: %d sends of %d, receives %d of %d, segments %d of %d, sums %d of %d, kept "
              "%d of %d",
              s->name, (int)c->kind, c->ranks, used->sends, l.sends, used->receives, l.receives, used->segments,
              l.segments, used->sums, l.sums, used->kept, l.kept);
}

Test(coll_schedule, each_contribution_once, .timeout = 900)
{
    for (const struct schedule *s = pici_schedules; s->name; s++) {
        int always = 1;
        for (int i = 0; i < SCHEDULE_KINDS; i++)
            for (int p = 1; p <= MOST && schedule_has(s, schedule_kinds[i]); p++)
                for (int share = 0; share < SCHEDULE_SHARES; share++) {
                    const struct schedule_call c = schedule_call_of(schedule_kinds[i], p, schedule_shares[share]);
                    struct schedule_limits used;
                    const char *bad = schedule_check(s, &c, says_exactly(s), &used);
                    cr_assert_null(bad, "%s", bad);
                    check_limits(s, &c, &used);
                    const int paired = schedule_is_paired(s, &c), said = pici_schedule_paired(s, p);
                    cr_expect(paired || !said, "%s, %d ranks: it says that it is paired", s->name, p);
                    cr_expect(s->paired == PAIRED_NEVER || paired == said, "%s, %d ranks", s->name, p);
                    always &= paired;
                }
        cr_expect(s->paired == PAIRED_NEVER || (s->paired == PAIRED_ALWAYS) == always, "%s", s->name);
    }
}

/* Memory of a step: with the limits themselves, lists lie next to each other and do not overlap. */
Test(coll_schedule, memory_of_a_step)
{
    for (int sends = 0; sends <= 3; sends++)
        for (int receives = 0; receives <= 3; receives++)
            for (int segments = 1; segments <= 5; segments++) {
                const struct schedule_limits l = {.sends = sends, .receives = receives, .segments = segments};
                const size_t bytes = pici_schedule_step_bytes(&l);
                struct guard g;
                struct schedule_step s;
                guard_init(&g, bytes + 64);
                pici_schedule_step_init(&s, &l, guard_place(&g, bytes, GUARD_END, bytes % sizeof(void *)));
                for (int m = 0; m < sends + receives; m++)
                    for (int i = 0; i < segments; i++)
                        (m < sends ? &s.send[m] : &s.receive[m - sends])->segments[i] = m * segments + i;
                for (int m = 0; m < sends + receives; m++)
                    for (int i = 0; i < segments; i++)
                        cr_expect_eq((m < sends ? &s.send[m] : &s.receive[m - sends])->segments[i], m * segments + i);
                cr_expect(guard_intact(&g));
                guard_free(&g);
            }
}

/* ---- what is said of ring, recursive and split */

/* One step of a position, copied out. Up to 32 segments. */
struct one {
    enum schedule_phase phase;
    enum schedule_complete complete;
    int to, from, out[MOST / 2], in[MOST / 2], outs, ins;
    enum schedule_action send, take;
    int keep_out, keep_in, contributions;
};

static struct one one_of(enum pici_algorithm id, enum pici_collective kind, int p, uint64_t share, int position, int k)
{
    const struct schedule *s = pici_schedule(id);
    struct schedule_call c = schedule_call_of(kind, p, share);
    struct schedule_limits l;
    struct one o;
    memset(&o, 0, sizeof o);
    c.virtual_rank = position;
    s->limits(s, &c, &l);
    struct schedule_step *step = schedule_room(&l, p);
    s->step(s, &c, k, step);
    cr_assert(step->sends == 1 && step->receives == 1 && step->send->count <= MOST / 2 &&
              step->receive->count <= MOST / 2);
    o.phase = step->phase;
    o.complete = step->complete;
    o.to = step->send->peer;
    o.from = step->receive->peer;
    o.outs = step->send->count;
    o.ins = step->receive->count;
    memcpy(o.out, step->send->segments, (size_t)o.outs * sizeof *o.out);
    memcpy(o.in, step->receive->segments, (size_t)o.ins * sizeof *o.in);
    o.send = step->send->action;
    o.take = step->receive->action;
    o.keep_out = step->send->keep;
    o.keep_in = step->receive->keep;
    o.contributions = step->send->contributions;
    free(step);
    return o;
}

static int steps_of(enum pici_algorithm id, enum pici_collective kind, int p, uint64_t share)
{
    const struct schedule *s = pici_schedule(id);
    const struct schedule_call c = schedule_call_of(kind, p, share);
    return s->steps(s, &c);
}

static int log2_up(int p)
{
    int k = 0;
    while (k < 31 && 1L << k < p)
        k++;
    return k;
}

Test(coll_schedule, step_counts)
{
    for (int p = 1; p <= 1025; p++) {
        const int logarithm = log2_up(p);
        for (int share = 0; share < SCHEDULE_SHARES; share++) {
            const int gather = schedule_shares[share] <= SMALL_SHARE ? logarithm : p - 1;
            cr_assert_eq(steps_of(PICI_ALGO_RING, PICI_REDUCE_SCATTER, p, schedule_shares[share]), p - 1);
            cr_assert_eq(steps_of(PICI_ALGO_RING, PICI_ALL_GATHER, p, schedule_shares[share]), p - 1);
            cr_assert_eq(steps_of(PICI_ALGO_RING, PICI_ALL_REDUCE, p, schedule_shares[share]), 2 * (p - 1));
            cr_assert_eq(steps_of(PICI_ALGO_RECURSIVE, PICI_REDUCE_SCATTER, p, schedule_shares[share]), logarithm);
            cr_assert_eq(steps_of(PICI_ALGO_RECURSIVE, PICI_ALL_GATHER, p, schedule_shares[share]), logarithm);
            cr_assert_eq(steps_of(PICI_ALGO_RECURSIVE, PICI_ALL_REDUCE, p, schedule_shares[share]), 2 * logarithm);
            cr_assert_eq(steps_of(PICI_ALGO_SPLIT, PICI_REDUCE_SCATTER, p, schedule_shares[share]), p - 1);
            cr_assert_eq(steps_of(PICI_ALGO_SPLIT, PICI_ALL_GATHER, p, schedule_shares[share]), gather);
            cr_assert_eq(steps_of(PICI_ALGO_SPLIT, PICI_ALL_REDUCE, p, schedule_shares[share]), p - 1 + gather);
            const int reduce = p != 1 << logarithm;
            cr_assert_eq(steps_of(PICI_ALGO_DOUBLING, PICI_ALL_REDUCE, p, schedule_shares[share]), logarithm + reduce);
        }
    }
    cr_assert_eq(steps_of(PICI_ALGO_RECURSIVE, PICI_ALL_REDUCE, INT_MAX, 1), 62);
    cr_assert_eq(steps_of(PICI_ALGO_DOUBLING, PICI_ALL_REDUCE, INT_MAX, 1), 32);
}

/* Each rank sends p - 1 segments a phase: as few as can be done with. */
Test(coll_schedule, fewest_segments)
{
    for (enum pici_algorithm id = PICI_ALGO_RING; id <= PICI_ALGO_SPLIT; id++)
        for (int p = 1; p <= MOST; p++)
            for (int r = 0; r < p; r++) {
                int sent[PHASES] = {0};
                for (int k = 0; k < steps_of(id, PICI_ALL_REDUCE, p, SMALL_SHARE); k++) {
                    const struct one o = one_of(id, PICI_ALL_REDUCE, p, SMALL_SHARE, r, k);
                    sent[o.phase] += o.outs;
                }
                cr_assert(sent[PHASE_REDUCE] == p - 1 && sent[PHASE_GATHER] == p - 1, "algorithm %d, %d ranks", (int)id,
                          p);
            }
}

static int mirror(int i, int p)
{
    return (p - i) % p;
}

/* Whether b is a in a mirror, backwards. */
static int mirrored(const int *a, const int *b, int n, int p)
{
    int same = 1;
    for (int i = 0; i < n; i++)
        same &= mirror(a[i], p) == b[n - 1 - i];
    return same;
}

static const enum pici_algorithm mirrors[] = {PICI_ALGO_RING, PICI_ALGO_RECURSIVE};

Test(coll_schedule, all_gather_is_reversed_and_mirrored)
{
    for (int a = 0; a < 2; a++)
        for (int p = 1; p <= MOST; p++)
            for (int k = 0, last = steps_of(mirrors[a], PICI_ALL_GATHER, p, 1) - 1; k <= last; k++)
                for (int r = 0; r < p; r++) {
                    const struct one s = one_of(mirrors[a], PICI_REDUCE_SCATTER, p, 1, r, k),
                                     t = one_of(mirrors[a], PICI_ALL_GATHER, p, 1, mirror(r, p), last - k);
                    cr_assert(mirror(s.to, p) == t.from && mirror(s.from, p) == t.to);
                    cr_assert(s.outs == t.ins && mirrored(s.out, t.in, s.outs, p));
                    cr_assert(s.ins == t.outs && mirrored(s.in, t.out, s.ins, p));
                }
}

/* The last step of the one phase and the first of the other use the same links. */
Test(coll_schedule, phases_send_to_the_same_side)
{
    for (int a = 0; a < 2; a++)
        for (int p = 2; p <= MOST; p++)
            for (int r = 0; r < p; r++) {
                const int half = steps_of(mirrors[a], PICI_REDUCE_SCATTER, p, 1);
                const struct one s = one_of(mirrors[a], PICI_ALL_REDUCE, p, 1, r, half - 1),
                                 t = one_of(mirrors[a], PICI_ALL_REDUCE, p, 1, r, half);
                cr_assert(s.phase == PHASE_REDUCE && t.phase == PHASE_GATHER);
                cr_assert(s.to == t.to && s.from == t.from, "algorithm %d, %d ranks, rank %d", (int)mirrors[a], p, r);
            }
}

/* Contributions go straight to their owners, a different one from each rank in each step. */
Test(coll_schedule, split_sends_contributions)
{
    for (int p = 2; p <= MOST; p++)
        for (int k = 0; k < p - 1; k++) {
            uint64_t owners = 0, senders = 0;
            for (int r = 0; r < p; r++) {
                const struct one o = one_of(PICI_ALGO_SPLIT, PICI_ALL_REDUCE, p, SMALL_SHARE + 1, r, k);
                cr_assert(o.phase == PHASE_REDUCE && o.send == SEND_ENCODE && o.contributions == 1);
                cr_assert(o.outs == 1 && o.out[0] == o.to && o.ins == 1 && o.in[0] == r);
                owners |= UINT64_C(1) << o.to;
                senders |= UINT64_C(1) << o.from;
            }
            cr_assert(owners == UINT64_MAX >> (64 - p) && owners == senders, "%d ranks, step %d", p, k);
        }
}

/* What split gathers as, on both sides of the boundary. */
static void check_split_gathers(uint64_t share, uint64_t less, enum pici_algorithm as)
{
    for (int i = 0; i < 2; i++)
        for (int p = 1; p <= MOST; p++) {
            const enum pici_collective kind = i ? PICI_ALL_REDUCE : PICI_ALL_GATHER;
            const struct schedule *split = pici_schedule(PICI_ALGO_SPLIT);
            struct schedule_call c = schedule_call_of(kind, p, share);
            c.bytes -= less;
            const int reducing = i ? p - 1 : 0, before = i ? steps_of(as, PICI_REDUCE_SCATTER, p, 1) : 0;
            cr_assert_eq(split->steps(split, &c) - reducing, steps_of(as, PICI_ALL_GATHER, p, 1));
            for (int k = 0; k < steps_of(as, PICI_ALL_GATHER, p, 1); k++)
                for (int r = 0; r < p; r++) {
                    const struct one s = one_of(PICI_ALGO_SPLIT, kind, p, share, r, reducing + k),
                                     t = one_of(as, kind, p, share, r, before + k);
                    cr_assert_eq(memcmp(&s, &t, sizeof s), 0, "%d ranks, step %d, rank %d", p, k, r);
                }
        }
}

Test(coll_schedule, split_gathers_by_size)
{
    check_split_gathers(0, 0, PICI_ALGO_RECURSIVE);
    check_split_gathers(SMALL_SHARE, 0, PICI_ALGO_RECURSIVE);
    check_split_gathers(SMALL_SHARE + 1, 0, PICI_ALGO_RING);
    check_split_gathers(UINT64_C(1) << 40, 0, PICI_ALGO_RING);
    for (int p = 4; p <= MOST; p++) { /* one byte in all is enough */
        const struct schedule *split = pici_schedule(PICI_ALGO_SPLIT);
        struct schedule_call c = schedule_call_of(PICI_ALL_GATHER, p, SMALL_SHARE);
        cr_assert_eq(split->steps(split, &c), log2_up(p));
        c.bytes++;
        cr_assert_eq(split->steps(split, &c), p - 1);
    }
}

/* ---- five ranks, written out: what position 0 does in an all-reduce */

#define REDUCE(to, from, contributions, complete, ...)                                                                 \
    {                                                                                                                  \
        PHASE_REDUCE, complete, to, from, __VA_ARGS__, SEND_ENCODE, RECEIVE_REDUCE, 0, 0, contributions                \
    }
#define GATHER(to, from, send, keep_out, keep_in, ...)                                                                 \
    {                                                                                                                  \
        PHASE_GATHER, COMPLETE_NONE, to, from, __VA_ARGS__, send, RECEIVE_PLACE, keep_out, keep_in, 5                  \
    }

/* To, from, contributions or action, flags; segments sent, segments received, and how many of each. */
static const struct one ring5[] = {
    REDUCE(1, 4, 1, COMPLETE_NONE, {4}, {3}, 1, 1),   REDUCE(1, 4, 2, COMPLETE_NONE, {3}, {2}, 1, 1),
    REDUCE(1, 4, 3, COMPLETE_NONE, {2}, {1}, 1, 1),   REDUCE(1, 4, 4, COMPLETE_OWN, {1}, {0}, 1, 1),
    GATHER(1, 4, SEND_ENCODE, 0, 1, {0}, {4}, 1, 1),  GATHER(1, 4, SEND_FORWARD, 0, 1, {4}, {3}, 1, 1),
    GATHER(1, 4, SEND_FORWARD, 0, 1, {3}, {2}, 1, 1), GATHER(1, 4, SEND_FORWARD, 0, 0, {2}, {1}, 1, 1),
};

/* In step 0 position 0 hands segments 3 and 4 three ahead, then 2 two ahead, then 1 one ahead. Of what it gathers it
 * forwards only the first. */
static const struct one recursive5[] = {
    REDUCE(3, 2, 1, COMPLETE_NONE, {3, 4}, {0, 1}, 2, 2), REDUCE(2, 3, 2, COMPLETE_NONE, {2}, {0}, 1, 1),
    REDUCE(1, 4, 4, COMPLETE_OWN, {1}, {0}, 1, 1),        GATHER(1, 4, SEND_ENCODE, 1, 1, {0}, {4}, 1, 1),
    GATHER(2, 3, SEND_FORWARD, 1, 0, {0}, {3}, 1, 1),     GATHER(3, 2, SEND_FORWARD, 0, 0, {4, 0}, {1, 2}, 2, 2),
};

static const struct one split5[] = {
    REDUCE(1, 4, 1, COMPLETE_NONE, {1}, {0}, 1, 1),         REDUCE(2, 3, 1, COMPLETE_NONE, {2}, {0}, 1, 1),
    REDUCE(3, 2, 1, COMPLETE_NONE, {3}, {0}, 1, 1),         REDUCE(4, 1, 1, COMPLETE_OWN, {4}, {0}, 1, 1),
    GATHER(1, 4, SEND_ENCODE, 1, 1, {0}, {4}, 1, 1),        GATHER(2, 3, SEND_FORWARD, 1, 0, {0}, {3}, 1, 1),
    GATHER(3, 2, SEND_FORWARD, 0, 0, {4, 0}, {1, 2}, 2, 2),
};

static void check_example(enum pici_algorithm id, const struct one *step, size_t steps)
{
    cr_assert_eq((size_t)steps_of(id, PICI_ALL_REDUCE, 5, 1), steps);
    for (size_t k = 0; k < steps; k++) {
        const struct one o = one_of(id, PICI_ALL_REDUCE, 5, 1, 0, (int)k);
        cr_expect_eq(memcmp(&o, &step[k], sizeof o), 0, "%s, step %zu", pici_algorithm_name(id), k);
    }
}

Test(coll_schedule, worked_examples)
{
    check_example(PICI_ALGO_RING, ring5, sizeof ring5 / sizeof *ring5);
    check_example(PICI_ALGO_RECURSIVE, recursive5, sizeof recursive5 / sizeof *recursive5);
    check_example(PICI_ALGO_SPLIT, split5, sizeof split5 / sizeof *split5);
}

/* Seven ranks by doubling. 0, 2 and 4 give to their neighbours. In pairs of 1, 3, 5, 6, the lower one reduces received
 * data into its sum, and the higher one reduces its own sum into the received data. */
Test(coll_schedule, doubling_of_seven)
{
    static const struct at {
        int step, virtual_rank, to, from, contributions;
        enum schedule_action take;
    } all[] = {
        {0, 0, 1, -1, 1, RECEIVE_KEEP},  {0, 1, -1, 0, 1, RECEIVE_REDUCE},
        {0, 4, 5, -1, 1, RECEIVE_KEEP},  {0, 5, -1, 4, 1, RECEIVE_REDUCE},
        {0, 6, -1, -1, 0, RECEIVE_KEEP}, {1, 0, -1, -1, 0, RECEIVE_KEEP},
        {1, 1, 3, 3, 2, RECEIVE_REDUCE}, {1, 3, 1, 1, 2, RECEIVE_REDUCE_REVERSED},
        {1, 5, 6, 6, 2, RECEIVE_REDUCE}, {1, 6, 5, 5, 1, RECEIVE_REDUCE_REVERSED},
        {2, 1, 5, 5, 4, RECEIVE_REDUCE}, {2, 5, 1, 1, 3, RECEIVE_REDUCE_REVERSED},
        {2, 3, 6, 6, 4, RECEIVE_REDUCE}, {2, 6, 3, 3, 3, RECEIVE_REDUCE_REVERSED},
        {3, 0, -1, 1, 7, RECEIVE_PLACE}, {3, 1, 0, -1, 7, RECEIVE_KEEP},
        {3, 6, -1, -1, 0, RECEIVE_KEEP},
    };
    const struct schedule *s = pici_schedule(PICI_ALGO_DOUBLING);
    struct schedule_call c = schedule_call_of(PICI_ALL_REDUCE, 7, 1);
    struct schedule_limits l;
    s->limits(s, &c, &l);
    struct schedule_step *step = schedule_room(&l, 7);
    cr_expect_eq(s->steps(s, &c), 4);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct at *at = &all[i];
        c.virtual_rank = at->virtual_rank;
        s->step(s, &c, at->step, step);
        cr_expect_eq(step->sends, at->to >= 0, "%zu", i);
        cr_expect_eq(step->receives, at->from >= 0, "%zu", i);
        cr_expect(at->to < 0 || (step->send->peer == at->to && step->send->contributions == at->contributions &&
                                 step->send->keep == (at->take == RECEIVE_REDUCE_REVERSED)),
                  "%zu", i);
        cr_expect(at->from < 0 || (step->receive->peer == at->from && step->receive->action == at->take), "%zu", i);
        cr_expect_eq(step->complete, at->step == 2 ? COMPLETE_ALL : COMPLETE_NONE, "%zu", i);
        cr_expect_eq(step->phase, at->step == 3 ? PHASE_GATHER : PHASE_REDUCE, "%zu", i);
    }
    free(step);
}

/* No sum of ranks overflows; nor does the list of segments where it has room on this machine. */
Test(coll_schedule, many_ranks)
{
    static const int sizes[] = {1000, 65536, 65537, 1 << 20, 1 << 30, (1 << 30) + 1, INT_MAX - 1, INT_MAX};
    enum { SEGMENTS = 1 << 19 };
    for (const struct schedule *s = pici_schedules; s->name; s++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int kind = 0; kind < SCHEDULE_KINDS; kind++)
                for (int share = 0; share < SCHEDULE_SHARES && schedule_has(s, schedule_kinds[kind]); share++) {
                    if (schedule_kinds[kind] == PICI_ALL_REDUCE && sizes[i] > 1 << 30)
                        continue; /* a ring's steps are more than an int counts */
                    struct schedule_call c = schedule_call_of(schedule_kinds[kind], sizes[i], schedule_shares[share]);
                    const int p = c.ranks, steps = s->steps(s, &c);
                    const int ranks[] = {0, 1, p / 2, p / 2 + 1, p - 2, p - 1};
                    const int ks[] = {0, 1, steps / 2, steps / 2 - 1, steps - 2, steps - 1};
                    struct schedule_limits l;
                    s->limits(s, &c, &l);
                    cr_assert(steps > 0 && l.sends > 0 && l.receives > 0 && l.segments > 0, "%s, %d ranks", s->name, p);
                    for (size_t r = 0; r < sizeof ranks / sizeof *ranks && l.segments <= SEGMENTS; r++)
                        for (size_t k = 0; k < sizeof ks / sizeof *ks; k++) {
                            c.virtual_rank = ranks[r];
                            const char *bad = schedule_check_ends(s, &c, ks[k]);
                            cr_assert_null(bad, "%s, %d ranks, rank %d, step %d: %s", s->name, p, ranks[r], ks[k], bad);
                        }
                }
}

Test(coll_schedule, an_upper_bound_is_not_the_number)
{
    const struct schedule_call c = schedule_call_of(PICI_REDUCE_SCATTER, 6, 1);
    cr_expect_null(schedule_check(pici_schedule(PICI_ALGO_RING), &c, 1, NULL));
    cr_expect(schedule_check(pici_schedule(PICI_ALGO_RECURSIVE), &c, 1, NULL));
}

/* ---- what AUTO takes */

Test(coll_schedule, usual)
{
    enum { SMALL = 13107, KIB = 1 << 10 }; /* 3 times so much is 16 KiB more than 14/8 times */
    static const int whole[] = {0, 8}, uneven[] = {0, 1, 2, 4, 6, 8}, single[] = {0, 1, 2, 3};
    static const struct schedule_nodes one = {1, whole}, five = {5, uneven}, each = {3, single};
    static const struct {
        enum pici_collective kind;
        int ranks, paired_only, undivided;
        uint64_t bytes;
        const struct schedule_nodes *nodes;
        enum pici_algorithm id;
    } all[] = {
        {PICI_ALL_REDUCE, 8, 0, 1, SMALL, &one, PICI_ALGO_DOUBLING},
        {PICI_ALL_REDUCE, 8, 1, 1, SMALL, &five, PICI_ALGO_DOUBLING},
        {PICI_ALL_REDUCE, 8, 0, 1, SMALL + 1, &one, PICI_ALGO_RECURSIVE},
        {PICI_ALL_REDUCE, 8, 0, 0, SMALL, &one, PICI_ALGO_RECURSIVE},
        {PICI_ALL_REDUCE, 2, 0, 1, 64 * KIB, NULL, PICI_ALGO_DOUBLING},
        {PICI_ALL_REDUCE, 2, 0, 1, 64 * KIB + 1, NULL, PICI_ALGO_RING},
        {PICI_ALL_REDUCE, 4, 0, 1, 32 * KIB, NULL, PICI_ALGO_DOUBLING},
        {PICI_ALL_REDUCE, 4, 0, 1, 32 * KIB + 1, NULL, PICI_ALGO_RECURSIVE},
        {PICI_ALL_REDUCE, 64, 0, 1, 4064, NULL, PICI_ALGO_DOUBLING},
        {PICI_ALL_REDUCE, 64, 0, 1, 4065, NULL, PICI_ALGO_RECURSIVE},
        {PICI_ALL_REDUCE, 7, 0, 1, SMALL, NULL, PICI_ALGO_RECURSIVE},
        {PICI_ALL_REDUCE, 1, 0, 1, 0, NULL, PICI_ALGO_RECURSIVE},
        {PICI_ALL_GATHER, 8, 0, 1, SMALL, NULL, PICI_ALGO_RECURSIVE},
        {PICI_ALL_GATHER, 8, 0, 1, 256 * KIB, NULL, PICI_ALGO_RECURSIVE},
        {PICI_ALL_GATHER, 8, 0, 1, 256 * KIB + 1, NULL, PICI_ALGO_RING},
        {PICI_ALL_REDUCE, 8, 0, 1, 256 * KIB - 1, &five, PICI_ALGO_RECURSIVE},
        {PICI_ALL_REDUCE, 8, 0, 1, 256 * KIB, &five, PICI_ALGO_NODES_RECURSIVE},
        {PICI_ALL_REDUCE, 8, 1, 1, 256 * KIB, &five, PICI_ALGO_RECURSIVE},
        {PICI_REDUCE_SCATTER, 3, 0, 1, 512 * KIB, &each, PICI_ALGO_RING},
        {PICI_BROADCAST, 8, 0, 1, SMALL, NULL, PICI_ALGO_RECURSIVE},
        {PICI_BROADCAST, 8, 0, 1, 256 * KIB, &one, PICI_ALGO_RECURSIVE},
        {PICI_BROADCAST, 8, 0, 1, 256 * KIB + 1, &one, PICI_ALGO_SPLIT},
        {PICI_BROADCAST, 3, 0, 1, 512 * KIB, &each, PICI_ALGO_SPLIT},
        {PICI_BROADCAST, 8, 0, 1, 256 * KIB - 1, &five, PICI_ALGO_RECURSIVE},
        {PICI_BROADCAST, 8, 0, 1, 256 * KIB, &five, PICI_ALGO_NODES_RING},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct schedule_call c = {
            .kind = all[i].kind, .ranks = all[i].ranks, .bytes = all[i].bytes, .nodes = all[i].nodes};
        cr_expect_eq(pici_schedule_usual(&c, all[i].paired_only, all[i].undivided), all[i].id, "%zu", i);
    }
    for (int p = 1; p <= MOST; p++)
        for (int i = 0; i < SCHEDULE_KINDS; i++)
            for (uint64_t bytes = 1; bytes <= 64 << 20; bytes *= 2)
                for (int nodes = 1; nodes <= 2 && nodes <= p; nodes++)
                    for (int how = 0; how < 4; how++) {
                        const int begin[] = {0, nodes == 1 ? p : p / 2, p};
                        const struct schedule_nodes map = {nodes, begin};
                        const struct schedule_call c = {
                            .kind = schedule_kinds[i], .ranks = p, .bytes = bytes, .nodes = &map};
                        const struct schedule *s =
                            pici_schedule_for(pici_schedule_usual(&c, how & 1, how >> 1), c.kind);
                        cr_assert(s && s->usual >> c.kind & 1, "%d ranks, collective %d", p, (int)c.kind);
                    }
}

/* ---- segments and order */

/* Segments follow one another, cover n, and lie where the rule says. */
static void check_segments(uint64_t n, int p)
{
    uint64_t next = 0, first, len;
    int aligned = n >= UINT64_C(64) * TILE * (uint64_t)p;
    for (int i = 0; i < p; i++) {
        pici_schedule_segment(n, p, i, &first, &len);
        __extension__ unsigned __int128 exact = (unsigned __int128)n * (unsigned)i / (unsigned)p;
        cr_assert_eq(first, next, "n %ju, p %d: segment %d", (uintmax_t)n, p, i);
        cr_assert_eq(first, (uint64_t)exact - (aligned ? (uint64_t)exact % TILE : 0), "n %ju, p %d, %d", (uintmax_t)n,
                     p, i);
        next = first + len;
        cr_assert_geq(next, first);
    }
    cr_assert_eq(next, n);
}

Test(coll_schedule, segments)
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
    pici_schedule_segment(UINT64_C(1) << 62, INT_MAX, INT_MAX - 1, &first, &len);
    cr_assert_eq(first + len, UINT64_C(1) << 62);
    pici_schedule_segment(10, 4, 1, &first, &len); /* 0 1 | 2 3 4 | 5 6 | 7 8 9 */
    cr_assert(first == 2 && len == 3);
}

static void check_order(const int *node_of, int p, const int *expected)
{
    int order[16];
    pici_schedule_order(node_of, p, order);
    cr_expect_arr_eq(order, expected, (size_t)p * sizeof *order);
}

Test(coll_schedule, order)
{
    check_order((int[]){7}, 1, (int[]){0});
    check_order((int[]){3, 3, 3, 3}, 4, (int[]){0, 1, 2, 3});
    check_order((int[]){0, 1, 2, 3}, 4, (int[]){0, 1, 2, 3});
    check_order((int[]){0, 1, 2, 3, 0, 1, 2, 3}, 8, (int[]){0, 4, 1, 5, 2, 6, 3, 7});   /* dealt out in turn */
    check_order((int[]){INT_MAX, -5, INT_MIN, -5, INT_MAX}, 5, (int[]){0, 4, 1, 3, 2}); /* any numbers */
}

/* However ranks lie on nodes, a ring over the order leaves each node once. */
Test(coll_schedule, order_crosses_each_link_once)
{
    enum { P = 7, NODES = 3 };
    for (int code = 0; code < 2187; code++) { /* NODES to the power of P */
        int node_of[P], order[P], nodes = 0, crossings = 0, seen = 0;
        for (int r = 0, c = code; r < P; r++, c /= NODES) {
            node_of[r] = c % NODES;
            nodes |= 1 << c % NODES;
        }
        pici_schedule_order(node_of, P, order);
        for (int i = 0; i < P; i++) {
            seen |= 1 << order[i];
            crossings += node_of[order[i]] != node_of[order[(i + 1) % P]];
        }
        int different = (nodes & 1) + (nodes >> 1 & 1) + (nodes >> 2 & 1);
        cr_assert_eq(seen, (1 << P) - 1);
        cr_assert_eq(crossings, different == 1 ? 0 : different);
    }
}
