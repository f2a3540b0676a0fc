/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The loop over steps, with schedules in which a rank has several messages in a step, or none. Results are equal on all
 * ranks, bit for bit, for all options. Also failures. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coll/make.h"
#include "coll/note.h"
#include "tests/util/onesided.h"

enum { WATCHDOG_S = 900 };

static const int sizes[] = {2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 17};
enum { SIZES = sizeof sizes / sizeof *sizes };

static uint64_t full(uint64_t usual)
{
    return test_full() ? 20 * usual : usual;
}

/* ---- all tables */

enum { STAR, STAR_SCATTER, FOLD, RELAY, GOSSIP, TREE, TABLES };

/* Returns 0 where there is none for so many ranks. */
static int make_table(struct table *t, int which, int p, struct rng *rng)
{
    switch (which) {
    case STAR: table_star(t, PICI_ALL_REDUCE, p); break;
    case STAR_SCATTER: table_star(t, PICI_REDUCE_SCATTER, p); break;
    case FOLD: table_reduce(t, p); break;
    case RELAY:
        if (p < 3)
            return 0;
        table_relay(t, p);
        break;
    case GOSSIP: table_gossip(t, p, rng); break;
    default: table_tree(t, p, rng); break;
    }
    return 1;
}

Test(coll_onesided, the_schedules_are_right)
{
    struct rng rng = {1};
    static struct table t;
    for (int which = 0; which < TABLES; which++)
        for (int p = 2; p <= COLL_RANKS; p++)
            for (int again = which >= GOSSIP ? 50 : 1; again; again--)
                if (make_table(&t, which, p, &rng)) {
                    const char *bad = table_check(&t);
                    cr_assert_null(bad, "%s", bad);
                    const struct schedule_call c = {.kind = t.kind, .ranks = p};
                    cr_expect(which == GOSSIP || !schedule_is_paired(&t.s, &c), "%s, %d ranks", t.s.name, p);
                }
}

/* ---- results */

static void draw(struct coll_case *c, const struct table *t, struct rng *rng)
{
    static const enum pici_op ops[] = {PICI_SUM, PICI_AVG, PICI_MIN, PICI_AVG, PICI_MAX};
    const uint64_t p = (uint64_t)t->p, counts[] = {0, 1, p - 1, p, p + 1, 997, 5 * 4096 + 1};
    *c = (struct coll_case){.collective = t->kind, .opts.algorithm = PICI_ALGO_AUTO};
    c->dtype = (enum pici_dtype)(1 + rng_below(rng, 14));
    c->op = ops[rng_below(rng, 5)];
    c->count = counts[rng_below(rng, 7)];
    coll_case_options(c, rng, t->p);
}

static void check_table(int which)
{
    struct rng rng = {(uint64_t)which};
    static struct table t;
    alarm(WATCHDOG_S);
    for (int i = 0; i < SIZES; i++) {
        struct coll_team team;
        coll_team_init(&team, sizes[i]);
        for (uint64_t round = full(14); round; round--) {
            struct coll_case c;
            if (!make_table(&t, which, sizes[i], &rng))
                break;
            draw(&c, &t, &rng);
            const char *bad = table_run(&team, &t, &c);
            cr_assert_null(bad, "%s", bad);
        }
        coll_team_free(&team);
    }
}

Test(coll_onesided, star)
{
    check_table(STAR);
}
Test(coll_onesided, star_scatter)
{
    check_table(STAR_SCATTER);
}
Test(coll_onesided, reduce)
{
    check_table(FOLD);
}
Test(coll_onesided, relay)
{
    check_table(RELAY);
}
Test(coll_onesided, gossip)
{
    check_table(GOSSIP);
}
Test(coll_onesided, tree)
{
    check_table(TREE);
}

/* Each count and each window, many slices. */
Test(coll_onesided, many_slices)
{
    static const enum pici_dtype dtypes[] = {PICI_F32, PICI_I16, PICI_BF16, PICI_F64};
    struct rng rng = {7};
    static struct table t;
    alarm(WATCHDOG_S);
    for (int which = 0; which < TABLES; which++)
        for (int p = 3; p <= 5; p += 2) {
            struct coll_team team;
            coll_team_init(&team, p);
            for (int window = 1; window <= 4; window++) {
                struct coll_case c = {.opts = PICI_COLL_OPTS_INIT};
                make_table(&t, which, p, &rng);
                c.collective = t.kind;
                c.count = (uint64_t)(t.kind == PICI_ALL_REDUCE ? p : 1) * 9 * 4096 - 5;
                c.dtype = dtypes[window - 1];
                c.op = window % 2 ? PICI_AVG : PICI_SUM;
                c.pattern = window % 2 ? PATTERN_12 : PATTERN_TILES;
                c.tame = 1;
                c.in_place = window > 2;
                c.seed = rng_next(&rng);
                c.opts.window = window;
                c.opts.slice_bytes = 1;
                const char *bad = table_run(&team, &t, &c);
                cr_assert_null(bad, "%s", bad);
                const uint64_t *sends = team.rank[0].stats.sends;
                cr_expect_eq(sends[0] + sends[1] + sends[2] + sends[3] + sends[PICI_PACKED],
                             9 * (uint64_t)table_blocks(&t, 0));
            }
            coll_team_free(&team);
        }
}

/* A rank that sends only, and ranks that receive only. */
struct lone {
    struct coll_team team;
    struct coll_case c;
    struct coll_job job;
    enum pici_status status[COLL_RANKS];
};

static void lone_rank(void *context, int rank)
{
    struct lone *l = context;
    coll_rank_place(&l->team.rank[rank], &l->c, &l->job, l->team.comm[rank]);
    l->status[rank] = coll_rank_call(&l->team.rank[rank], &l->c, l->team.comm[rank]);
}

Test(coll_onesided, sends_only)
{
    static struct table t;
    alarm(WATCHDOG_S);
    for (int p = 2; p <= 6; p++) {
        struct lone l = {.c = {.collective = PICI_ALL_GATHER,
                               .dtype = PICI_U32,
                               .count = 30000,
                               .pattern = PATTERN_8,
                               .opts = PICI_COLL_OPTS_INIT}};
        const size_t segment = 30000 * sizeof(uint32_t);
        l.c.opts.slice_bytes = 16384;
        table_one_way(&t, p);
        table_job(&l.job, &t, &l.c);
        coll_team_init(&l.team, p);
        for (int i = 0; i < p; i++)
            pici_comm_force(l.team.comm[i], &t.s);
        coll_threads(p, lone_rank, &l);
        uint8_t *untouched = test_alloc(segment);
        memset(untouched, 0x5c, segment);
        for (int i = 0; i < p; i++) {
            const struct coll_rank *k = &l.team.rank[i];
            uint64_t blocks = 0;
            cr_expect_eq(l.status[i], PICI_OK, "%s", pici_comm_error(l.team.comm[i]));
            for (int j = 0; j < p; j++)
                cr_expect_eq(memcmp((const uint8_t *)k->received + (size_t)j * segment,
                                    j == 0 || j == i ? l.job.send[j] : untouched, segment),
                             0, "rank %d, segment %d", i, j);
            for (int f = 0; f <= PICI_PACKED; f++)
                blocks += k->stats.sends[f];
            cr_expect_eq(blocks, i ? 0 : 8 * (uint64_t)(p - 1));
            cr_expect(guard_intact(&k->recv));
        }
        free(untouched);
        coll_team_free(&l.team);
        coll_job_free(&l.job);
    }
}

/* ---- two in flight */

struct two {
    struct coll_team team;
    struct coll_case c[2];
    struct coll_job job[2];
    struct coll_rank rank[COLL_RANKS][2];
    const char *wrong[COLL_RANKS];
};

static void two_rank(void *context, int rank)
{
    struct two *two = context;
    struct pici_comm *comm = two->team.comm[rank];
    struct pici_request *request[2] = {NULL};
    for (int i = 0; i < 2; i++) {
        coll_rank_place(&two->rank[rank][i], &two->c[i], &two->job[i], comm);
        if (coll_rank_start(&two->rank[rank][i], &two->c[i], comm, &request[i]))
            two->wrong[rank] = "not started";
    }
    for (int i = 0; i < 2; i++) {
        const int at = rank % 2 ? i : 1 - i;
        const enum pici_status s = pici_wait(&request[at]);
        const char *wrong =
            s ? pici_strerror(s) : coll_rank_judge(&two->rank[rank][at], &two->c[at], &two->job[at], rank);
        two->wrong[rank] = wrong ? wrong : two->wrong[rank];
    }
}

Test(coll_onesided, two_in_flight)
{
    struct rng rng = {3};
    static struct table t;
    alarm(WATCHDOG_S);
    for (int i = 0; i < SIZES; i++)
        for (int which = 0; which < TABLES; which++) {
            static struct two two;
            memset(&two, 0, sizeof two);
            if (!make_table(&t, which, sizes[i], &rng))
                continue;
            coll_team_init(&two.team, t.p);
            for (int j = 0; j < 2; j++) {
                draw(&two.c[j], &t, &rng);
                memcpy(two.c[j].node_of, two.c[0].node_of, sizeof two.c[j].node_of);
                table_job(&two.job[j], &t, &two.c[j]);
            }
            for (int r = 0; r < t.p; r++)
                pici_comm_force(two.team.comm[r], &t.s);
            coll_threads(t.p, two_rank, &two);
            for (int r = 0; r < t.p; r++) {
                cr_expect_null(two.wrong[r], "%s, %d ranks, rank %d: %s", t.s.name, t.p, r, two.wrong[r]);
                coll_rank_free(&two.rank[r][0]);
                coll_rank_free(&two.rank[r][1]);
            }
            coll_job_free(&two.job[0]);
            coll_job_free(&two.job[1]);
            coll_team_free(&two.team);
        }
}

/* ---- a rank that fails inside */

enum { TIMEOUT_MS = 20000, SOON_S = 10 };

struct ill {
    struct lone l;
    int rank, limb, after;
    int failed; /* it came to that */
};

static void ill_rank(void *context, int rank)
{
    struct ill *ill = context;
    struct pici_comm *comm = ill->l.team.comm[rank];
    struct coll_rank *k = &ill->l.team.rank[rank];
    const enum coll_limb limb = rank == ill->rank ? (enum coll_limb)ill->limb : LIMBS;
    int failed;
    coll_rank_place(k, &ill->l.c, &ill->l.job, comm);
    ill->l.status[rank] = coll_rank_call_ill(k, &ill->l.c, comm, limb, ill->after, &failed);
    if (rank == ill->rank)
        ill->failed = failed;
}

/* Wherever in its work a rank fails, all ranks return its error, also those that have no message at that step or never
 * get one from it; and soon. */
static int ail(const struct table *t, struct ill *ill)
{
    int times = 0;
    for (ill->after = 0, ill->failed = 1; ill->failed; ill->after++) {
        const double begin = pici_coll_now();
        coll_team_init(&ill->l.team, t->p);
        for (int i = 0; i < t->p; i++)
            pici_comm_force(ill->l.team.comm[i], &t->s);
        coll_threads(t->p, ill_rank, ill);
        cr_expect_lt(pici_coll_now() - begin, SOON_S);
        for (int i = 0; i < t->p; i++)
            cr_expect_eq(ill->l.status[i], ill->failed ? PICI_E_IO : PICI_OK,
                         "%s, %d ranks, limb %d of rank %d, call %d: rank %d: %s (%s)", t->s.name, t->p, ill->limb,
                         ill->rank, ill->after, i, pici_strerror(ill->l.status[i]),
                         pici_comm_error(ill->l.team.comm[i]));
        coll_team_free(&ill->l.team);
        memset(&ill->l.team, 0, sizeof ill->l.team);
        times += ill->failed;
    }
    return times;
}

Test(coll_onesided, failing_inside)
{
    struct rng rng = {5};
    static struct table t;
    int times = 0;
    alarm(WATCHDOG_S);
    for (int which = 0; which < TABLES; which++)
        for (int p = 2; p <= 6; p += 2)
            for (int limb_of = 0; limb_of < LIMBS; limb_of++)
                for (int rank = 0; rank < p; rank += p - 1) {
                    static struct ill ill;
                    if (!make_table(&t, which, p, &rng))
                        continue;
                    memset(&ill, 0, sizeof ill);
                    ill.limb = limb_of;
                    ill.rank = rank;
                    ill.l.c = (struct coll_case){.collective = t.kind,
                                                 .dtype = PICI_I16,
                                                 .count = 9000,
                                                 .pattern = PATTERN_3,
                                                 .opts = PICI_COLL_OPTS_INIT};
                    ill.l.c.opts.slice_bytes = 1;
                    ill.l.c.opts.window = 2;
                    ill.l.c.opts.timeout_ms = TIMEOUT_MS;
                    table_job(&ill.l.job, &t, &ill.l.c);
                    times += ail(&t, &ill);
                    coll_job_free(&ill.l.job);
                }
    cr_expect_gt(times, 100);
}
