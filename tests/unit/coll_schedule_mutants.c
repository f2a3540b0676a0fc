/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The brute force of schedule_util finds what is wrong: schedules of the registry with one fault each. */
#include <criterion/criterion.h>

#include "tests/util/schedule.h"
#include "tests/util/util.h"

/* A schedule with one thing wrong in one step, or in all steps of all ranks. Returns whether it was changed. */
typedef int change(struct schedule_step *, const struct schedule_call *);

static int next_peer(int peer, const struct schedule_call *c)
{
    do
        peer = (peer + 1) % c->ranks;
    while (peer == c->virtual_rank);
    return peer;
}

#define CHANGE(name, when, ...)                                                                                        \
    static int name(struct schedule_step *s, const struct schedule_call *c)                                            \
    {                                                                                                                  \
        (void)c;                                                                                                       \
        if (!(when))                                                                                                   \
            return 0;                                                                                                  \
        __VA_ARGS__;                                                                                                   \
        return 1;                                                                                                      \
    }

CHANGE(send_to_next, s->sends && c->ranks > 2, s->send->peer = next_peer(s->send->peer, c))
CHANGE(send_to_self, s->sends, s->send->peer = c->virtual_rank)
CHANGE(send_to_nobody, s->sends, s->send->peer = c->ranks)
CHANGE(receive_from_next, s->receives && c->ranks > 2, s->receive->peer = next_peer(s->receive->peer, c))
CHANGE(send_next_segment, s->sends, s->send->segments[0] = (s->send->segments[0] + 1) % c->ranks)
CHANGE(send_no_segment, s->sends, s->send->segments[0] = -1)
CHANGE(send_a_segment_less, s->sends, s->send->count--)
CHANGE(receive_a_segment_less, s->receives, s->receive->count--)
CHANGE(send_a_segment_more, s->sends, s->send->segments[s->send->count++] = c->virtual_rank)
CHANGE(send_other_order, s->sends && s->send->count > 1, int first = s->send->segments[0];
       s->send->segments[0] = s->send->segments[1]; s->send->segments[1] = first)
CHANGE(send_nothing, s->sends, s->sends = 0)
CHANGE(receive_nothing, s->receives, s->receives = 0)
CHANGE(send_twice, s->sends, s->send[1].peer = s->send->peer; s->send[1].count = 1; s->send[1].segments[0] = 0;
       s->sends = 2)
CHANGE(do_not_keep_sent, s->sends && s->send->keep, s->send->keep = 0)
CHANGE(do_not_keep_received, s->receives && s->receive->keep, s->receive->keep = 0)
CHANGE(keep_sent, s->sends && !s->send->keep, s->send->keep = 1)
CHANGE(keep_received, s->receives && !s->receive->keep, s->receive->keep = 1)
CHANGE(complete_nothing, s->complete, s->complete = COMPLETE_NONE)
CHANGE(complete_early, !s->complete, s->complete = COMPLETE_OWN)
CHANGE(complete_all, s->complete != COMPLETE_ALL, s->complete = COMPLETE_ALL)
CHANGE(forward_what_is_new, s->sends && s->send->action == SEND_ENCODE, s->send->action = SEND_FORWARD)
CHANGE(encode_what_is_anothers,
       s->sends && s->send->action == SEND_FORWARD &&
           (c->kind == PICI_BROADCAST
                ? c->virtual_rank != c->root
                : c->kind == PICI_ALL_GATHER && (s->send->count > 1 || s->send->segments[0] != c->virtual_rank)),
       s->send->action = SEND_ENCODE)
CHANGE(reduce_results, s->receives && s->receive->action == RECEIVE_PLACE, s->receive->action = RECEIVE_REDUCE)
CHANGE(place_sums, s->receives && s->receive->action == RECEIVE_REDUCE, s->receive->action = RECEIVE_PLACE)
CHANGE(reverse_sums, s->receives && s->receive->action == RECEIVE_REDUCE, s->receive->action = RECEIVE_REDUCE_REVERSED)
CHANGE(do_not_reverse, s->receives && s->receive->action == RECEIVE_REDUCE_REVERSED,
       s->receive->action = RECEIVE_REDUCE;
       s->send->keep = 0)
CHANGE(reversed_contributions, s->receives && s->receive->action == RECEIVE_REDUCE_REVERSED,
       s->receive->contributions = s->receive->contributions == 1 ? 2 : 1)
CHANGE(keep_only, s->receives && s->receive->action != RECEIVE_KEEP, s->receive->action = RECEIVE_KEEP)
CHANGE(receive_as_sender, s->receives, s->receive->action = SEND_ENCODE)
CHANGE(send_as_receiver, s->sends, s->send->action = RECEIVE_PLACE)
CHANGE(too_few_contributions, s->sends && s->phase == PHASE_REDUCE, s->send->contributions = 0)
CHANGE(too_many_contributions, s->sends && s->phase == PHASE_REDUCE, s->send->contributions = c->ranks + 1)
CHANGE(other_phase, 1, s->phase = s->phase == PHASE_REDUCE ? PHASE_GATHER : PHASE_REDUCE)

/* In all steps of all ranks, so that both ends agree. */
CHANGE(other_segments, c->kind != PICI_BROADCAST, /* whose segments may be any */
       for (int i = 0; s->sends && i < s->send->count; i++)
           s->send->segments[i] = (s->send->segments[i] + 1) % c->ranks;
       for (int i = 0; s->receives && i < s->receive->count; i++)
           s->receive->segments[i] = (s->receive->segments[i] + 1) % c->ranks)
CHANGE(no_message, 1, s->sends = s->receives = 0)

enum where { ONE_RANK, ALL_RANKS, EVERYWHERE };
static const struct mutation {
    const char *name;
    change *change;
    enum where where;
} mutations[] = {
#define MUTATION(fn, where)                                                                                            \
    {                                                                                                                  \
#fn, fn, where                                                                                                 \
    }
    MUTATION(send_to_next, ONE_RANK),
    MUTATION(send_to_self, ONE_RANK),
    MUTATION(send_to_nobody, ONE_RANK),
    MUTATION(receive_from_next, ONE_RANK),
    MUTATION(send_next_segment, ONE_RANK),
    MUTATION(send_no_segment, ONE_RANK),
    MUTATION(send_a_segment_less, ONE_RANK),
    MUTATION(receive_a_segment_less, ONE_RANK),
    MUTATION(send_a_segment_more, ONE_RANK),
    MUTATION(send_other_order, ONE_RANK),
    MUTATION(send_nothing, ONE_RANK),
    MUTATION(receive_nothing, ONE_RANK),
    MUTATION(send_twice, ONE_RANK),
    MUTATION(do_not_keep_sent, ONE_RANK),
    MUTATION(do_not_keep_received, ONE_RANK),
    MUTATION(keep_sent, ONE_RANK),
    MUTATION(keep_received, ONE_RANK),
    MUTATION(complete_nothing, ONE_RANK),
    MUTATION(complete_early, ONE_RANK),
    MUTATION(complete_all, ONE_RANK),
    MUTATION(forward_what_is_new, ONE_RANK),
    MUTATION(encode_what_is_anothers, ONE_RANK),
    MUTATION(reduce_results, ONE_RANK),
    MUTATION(place_sums, ONE_RANK),
    MUTATION(reverse_sums, ONE_RANK),
    MUTATION(do_not_reverse, ONE_RANK),
    MUTATION(reversed_contributions, ONE_RANK),
    MUTATION(keep_only, ONE_RANK),
    MUTATION(receive_as_sender, ONE_RANK),
    MUTATION(send_as_receiver, ONE_RANK),
    MUTATION(too_few_contributions, ONE_RANK),
    MUTATION(too_many_contributions, ONE_RANK),
    MUTATION(other_phase, ONE_RANK),
    MUTATION(no_message, ALL_RANKS),
    MUTATION(complete_nothing, ALL_RANKS),
    MUTATION(place_sums, ALL_RANKS),
    MUTATION(do_not_reverse, ALL_RANKS),
    MUTATION(keep_only, ALL_RANKS),
    MUTATION(other_segments, EVERYWHERE),
    MUTATION(no_message, EVERYWHERE),
};
enum { MUTATIONS = sizeof mutations / sizeof *mutations };

struct mutant {
    struct schedule s; /* first */
    const struct schedule *of;
    const struct mutation *how;
    int virtual_rank, k;
    int *changed;
};

static void mutant_step(const struct schedule *s, const struct schedule_call *c, int k, struct schedule_step *out)
{
    const struct mutant *m = (const struct mutant *)(const void *)s;
    m->of->step(m->of, c, k, out);
    if (m->how->where == EVERYWHERE ||
        (k == m->k && (m->how->where == ALL_RANKS || c->virtual_rank == m->virtual_rank)))
        *m->changed |= m->how->change(out, c);
}

static int mutant_steps(const struct schedule *s, const struct schedule_call *c)
{
    const struct mutant *m = (const struct mutant *)(const void *)s;
    return m->of->steps(m->of, c);
}

static void mutant_limits(const struct schedule *s, const struct schedule_call *c, struct schedule_limits *l)
{
    const struct mutant *m = (const struct mutant *)(const void *)s;
    m->of->limits(m->of, c, l);
}

/* Every change in every step of every rank of a call. Returns how many could be made. */
static int try_call(const struct schedule *of, const struct mutation *how, const struct schedule_call *c)
{
    int changed = 0, tried = 0;
    struct mutant m = {.s = *of, .of = of, .how = how, .changed = &changed};
    m.s.step = mutant_step;
    m.s.steps = mutant_steps;
    m.s.limits = mutant_limits;
    m.s.paired = PAIRED_NEVER; /* so that it is not this which shows */
    for (m.k = 0; m.k < of->steps(of, c); m.k++)
        for (m.virtual_rank = 0; m.virtual_rank < c->ranks; m.virtual_rank++) {
            changed = 0;
            const char *bad = schedule_check(&m.s, c, 0, NULL);
            cr_expect_eq(bad != NULL, changed, "%s of %s, step %d, rank %d, %d ranks, collective %d: %s", how->name,
                         of->name, m.k, m.virtual_rank, c->ranks, (int)c->kind, bad ? bad : "not found");
            tried += changed;
        }
    return tried;
}

static int try_mutation(const struct schedule *of, const struct mutation *how)
{
#ifdef SANITIZED /* takes minutes there; the other builds try all */
    static const int sizes[] = {2, 3};
#else
    static const int sizes[] = {2, 3, 4, 5};
#endif
    static const int begin[][4] = {{0, 2, 4}, {0, 1, 3}, {0, 2, 5, 6}};
    static const struct schedule_nodes nodes[] = {{2, begin[0]}, {2, begin[1]}, {3, begin[2]}};
    int tried = 0;
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        if (!schedule_has(of, schedule_kinds[kind]))
            continue;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes && (sizes[i] < 5 || test_full()); i++)
            for (int share = 0; share < (!of->gather && !of->by_node ? SCHEDULE_SHARES : 1);
                 share++) { /* else they are alike */
                const struct schedule_call c = schedule_call_of(schedule_kinds[kind], sizes[i], schedule_shares[share]);
                tried += try_call(of, how, &c);
            }
        for (size_t i = 0; i < sizeof nodes / sizeof *nodes && of->by_node; i++) {
            struct schedule_call c =
                schedule_call_of(schedule_kinds[kind], nodes[i].begin[nodes[i].nodes], SCHEDULE_SHARE);
            c.nodes = &nodes[i];
            tried += try_call(of, how, &c);
        }
    }
    return tried;
}

Test(coll_schedule_mutants, mutants_are_found, .timeout = 900)
{
    for (int i = 0; i < MUTATIONS; i++) {
        int tried = 0;
        for (const struct schedule *s = pici_schedules; s->name; s++)
            tried += try_mutation(s, &mutations[i]);
        for (const struct schedule *s = pici_broadcasts; s->name; s++)
            tried += try_mutation(s, &mutations[i]);
        cr_expect_gt(tried, 0, "%s", mutations[i].name);
    }
}

/* Whole schedules that say what is not so. */
static int a_step_less(const struct schedule *s, const struct schedule_call *c)
{
    return mutant_steps(s, c) - (c->virtual_rank == 1);
}

static int a_step_less_on_all(const struct schedule *s, const struct schedule_call *c)
{
    return mutant_steps(s, c) - 1;
}

#define LESS(field)                                                                                                    \
    static void less_##field(const struct schedule *s, const struct schedule_call *c, struct schedule_limits *l)       \
    {                                                                                                                  \
        mutant_limits(s, c, l);                                                                                        \
        l->field = l->field > 1 ? l->field - 2 : 0; /* of these there may be one too many */                           \
    }
LESS(sums)
LESS(kept)
#define ONE_LESS(field)                                                                                                \
    static void less_##field(const struct schedule *s, const struct schedule_call *c, struct schedule_limits *l)       \
    {                                                                                                                  \
        mutant_limits(s, c, l);                                                                                        \
        l->field--;                                                                                                    \
    }
ONE_LESS(sends)
ONE_LESS(receives)
ONE_LESS(segments)

static int nothing(struct schedule_step *s, const struct schedule_call *c)
{
    (void)s;
    (void)c;
    return 0;
}

Test(coll_schedule_mutants, wrong_tables_are_found)
{
    static const struct mutation none = {"none", nothing, EVERYWHERE};
    int changed = 0;
    for (const struct schedule *s = pici_schedules; s->name; s++) {
        const struct schedule_call c = schedule_call_of(PICI_ALL_REDUCE, 7, 1);
        struct mutant same = {.s = *s, .of = s, .how = &none, .changed = &changed};
        struct mutant m;
        struct schedule_limits l;
        same.s.steps = mutant_steps;
        same.s.step = mutant_step;
        same.s.limits = mutant_limits;
        m = same;
        if (!schedule_has(s, PICI_ALL_REDUCE))
            continue;
        s->limits(s, &c, &l);
        cr_expect_null(schedule_check(&m.s, &c, 0, NULL));
        m.s.steps = a_step_less;
        cr_expect(schedule_check(&m.s, &c, 0, NULL), "%s: a rank has fewer steps", s->name);
        m.s.steps = a_step_less_on_all;
        cr_expect(schedule_check(&m.s, &c, 0, NULL), "%s: the last step is missing", s->name);
        void (*const less[])(const struct schedule *, const struct schedule_call *, struct schedule_limits *) = {
            less_sends, less_receives, less_segments, l.sums ? less_sums : less_sends, l.kept ? less_kept : less_sends};
        m = same;
        for (size_t i = 0; i < sizeof less / sizeof *less; i++) {
            m.s.limits = less[i];
            cr_expect(schedule_check(&m.s, &c, 0, NULL), "%s: limits %zu", s->name, i);
        }
    }
}
