/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages that are lost, late, short or changed, ranks that fall silent, and rejected sends. In thousands of runs
 * drawn from seeds no rank hangs, and each rank that returns PICI_OK has the right bytes. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coll/request.h"
#include "tests/util/coll.h"
#include "transport/thread.h"

/* A run that hangs ends the test program. Silence ends a run after TIMEOUT_MS; a late message is no silence. */
enum { WATCHDOG_S = 900, TIMEOUT_MS = 100, LONG_MS = 300000, RANKS = 6, CALLS = 3, AT_ONCE = 12 };

enum fault { NONE, DELAY, DROP, TRUNCATE, FLIP, STALL, REFUSE, ALL, FAULTS };

static const char *const names[FAULTS] = {"none", "delay", "drop", "truncate", "flip", "stall", "refuse", "all"};

/* How it shows, at least sometimes. */
static const enum pici_status signs[FAULTS] = {
    [DROP] = PICI_E_TIMEOUT,  [TRUNCATE] = PICI_E_CORRUPT, [FLIP] = PICI_E_CHECKSUM,
    [STALL] = PICI_E_TIMEOUT, [REFUSE] = PICI_E_NOMEM,     [ALL] = PICI_E_CORRUPT};

/* Runs that went as they should. */
struct tally {
    _Atomic uint64_t next; /* seed */
    uint64_t end;
    enum fault fault;
    atomic_int fine, failed; /* calls on a rank: PICI_OK, and an error */
    atomic_int kinds[64];    /* by -status */
    char wrong[1000];        /* the first that is not as it should be */
    atomic_int wrongs;
};

struct run {
    struct tally *tally;
    uint64_t seed;
    int p;
    struct pici_comm *comm[RANKS];
    struct coll_case c[CALLS];
    struct coll_job job[CALLS];
    struct coll_rank rank[RANKS];
};

static void wrong(struct run *run, int rank, int call, const char *what, enum pici_status status)
{
    if (atomic_fetch_add(&run->tally->wrongs, 1) == 0)
        snprintf(run->tally->wrong, sizeof run->tally->wrong, "%s, seed %llu, call %d, rank %d of %d: %s: %s (%s)",
                 names[run->tally->fault], (unsigned long long)run->seed, call, rank, run->p, what,
                 pici_strerror(status), pici_comm_error(run->comm[rank]));
}

static void run_rank(void *context, int rank)
{
    struct run *run = context;
    struct tally *tally = run->tally;
    struct coll_rank *k = &run->rank[rank];
    int broken = 0;
    for (int i = 0; i < CALLS; i++) {
        coll_rank_place(k, &run->c[i], &run->job[i], run->comm[rank]);
        const enum pici_status status = coll_rank_call(k, &run->c[i], run->comm[rank]);
        const char *judged = status ? NULL : coll_rank_judge(k, &run->c[i], &run->job[i], rank);
        if (judged)
            wrong(run, rank, i, judged, status);
        if (broken != (status == PICI_E_BROKEN))
            wrong(run, rank, i, "a broken communicator says so, and no other", status);
        if (status && !pici_comm_error(run->comm[rank])[0])
            wrong(run, rank, i, "no words", status);
        if (status && (tally->fault == NONE || tally->fault == DELAY))
            wrong(run, rank, i, "nothing was lost", status);
        broken |= status != PICI_OK;
        atomic_fetch_add(status ? &tally->failed : &tally->fine, 1);
        atomic_fetch_add(&tally->kinds[-(int)status & 63], 1);
    }
}

static void make_comms(struct run *run, struct rng *rng)
{
    static const double chances[] = {0.003, 0.03, 0.3};
    struct pici_transport t[RANKS];
    struct pici_thread_faults f = {.seed = run->seed, .delay_ms = run->tally->fault == DELAY ? 5 : 40};
    const double chance = chances[rng_below(rng, 3)];
    double *const which[FAULTS] = {NULL, &f.delay, &f.drop, &f.truncate, &f.flip, &f.stall, &f.refuse, NULL};
    if (run->tally->fault == ALL)
        f.delay = f.drop = f.truncate = f.flip = f.stall = f.refuse = chance / 5;
    else if (run->tally->fault != NONE)
        *which[run->tally->fault] = chance;
    if (pici_transport_threads(t, run->p))
        abort();
    pici_transport_threads_faults(&t[0], &f);
    for (int i = 0; i < run->p; i++)
        if (pici_comm_transport(&run->comm[i], &t[i]))
            abort();
}

static void run_one(struct tally *tally, uint64_t seed)
{
    struct run *run = calloc(1, sizeof *run);
    struct rng rng = {seed};
    if (!run)
        abort();
    run->tally = tally;
    run->seed = seed;
    run->p = 2 + (int)rng_below(&rng, RANKS - 1);
    for (int i = 0; i < CALLS; i++) {
        struct coll_case *c = &run->c[i];
        c->count = rng_below(&rng, rng_chance(&rng, 500000) ? 12000 : 600);
        coll_case_random(c, &rng, run->p);
        c->opts.checksum = 1;
        c->opts.timeout_ms = tally->fault == NONE || tally->fault == DELAY ? LONG_MS : TIMEOUT_MS;
        coll_job_make(&run->job[i], c, run->p);
    }
    make_comms(run, &rng);
    coll_threads(run->p, run_rank, run);
    for (int i = 0; i < run->p; i++) {
        pici_comm_free(run->comm[i]);
        coll_rank_free(&run->rank[i]);
    }
    for (int i = 0; i < CALLS; i++)
        coll_job_free(&run->job[i]);
    free(run);
}

static void run_some(void *context, int which)
{
    struct tally *tally = context;
    (void)which;
    for (uint64_t seed; (seed = atomic_fetch_add(&tally->next, 1)) < tally->end;)
        run_one(tally, seed);
}

static void runs(enum fault fault)
{
    struct tally tally = {.end = test_full() ? 5000 : 300, .fault = fault};
    alarm(WATCHDOG_S);
    coll_threads(AT_ONCE, run_some, &tally); /* most of them wait for silence most of the time */
    cr_assert_eq(tally.wrongs, 0, "%d wrong, the first: %s", tally.wrongs, tally.wrong);
    cr_expect_gt(tally.fine, 0);
    if (signs[fault])
        cr_expect_gt(tally.kinds[-(int)signs[fault]], 0, "never %s", pici_strerror(signs[fault]));
    fprintf(stderr, "%s: %d calls fine, %d failed:", names[fault], tally.fine, tally.failed);
    for (int i = 1; i < 64; i++)
        if (tally.kinds[i])
            fprintf(stderr, " %d x %s", tally.kinds[i], pici_strerror((enum pici_status) - i));
    fprintf(stderr, "\n");
}

Test(coll_faults, none)
{
    runs(NONE);
}
Test(coll_faults, delay)
{
    runs(DELAY);
}
Test(coll_faults, drop)
{
    runs(DROP);
}
Test(coll_faults, truncate)
{
    runs(TRUNCATE);
}
Test(coll_faults, flip)
{
    runs(FLIP);
}
Test(coll_faults, stall)
{
    runs(STALL);
}
Test(coll_faults, refuse)
{
    runs(REFUSE);
}
Test(coll_faults, all)
{
    runs(ALL);
}

/* ---- a rank that fails inside ---- */

struct ill {
    struct coll_team team;
    struct coll_case c;
    struct coll_job job;
    int rank, limb, after;
    int failed; /* it came to that */
    enum pici_status status[RANKS];
};

static void ill_rank(void *context, int rank)
{
    struct ill *ill = context;
    struct pici_comm *comm = ill->team.comm[rank];
    struct coll_rank *k = &ill->team.rank[rank];
    const enum coll_limb limb = rank == ill->rank ? (enum coll_limb)ill->limb : LIMBS;
    int failed;
    coll_rank_place(k, &ill->c, &ill->job, comm);
    ill->status[rank] = coll_rank_call_ill(k, &ill->c, comm, limb, ill->after, &failed);
    if (rank == ill->rank)
        ill->failed = failed;
}

/* Wherever in its work a rank fails, from the first block to the last, all ranks return its error. */
Test(coll_faults, inside)
{
    alarm(WATCHDOG_S);
    for (int kind = 0; kind < COLL_COLLECTIVES; kind++)
        for (int algorithm = 1; algorithm <= coll_algorithms(); algorithm++)
            for (int p = 2; p <= RANKS && coll_has((enum pici_algorithm)algorithm, coll_collectives[kind]); p++)
                for (int which = 0; which < LIMBS; which++) {
                    struct ill ill = {.limb = which, .failed = 1, .rank = which % p};
                    ill.c = (struct coll_case){.collective = coll_collectives[kind],
                                               .dtype = PICI_I16,
                                               .count = 9000,
                                               .pattern = PATTERN_3,
                                               .opts = PICI_COLL_OPTS_INIT};
                    ill.c.opts.algorithm = (enum pici_algorithm)algorithm;
                    ill.c.opts.slice_bytes = 1;
                    ill.c.opts.window = 2;
                    coll_job_make(&ill.job, &ill.c, p);
                    for (ill.after = 0; ill.failed; ill.after++) {
                        coll_team_init(&ill.team, p);
                        coll_threads(p, ill_rank, &ill);
                        for (int i = 0; i < p; i++)
                            cr_expect_eq(ill.status[i], ill.failed ? PICI_E_IO : PICI_OK,
                                         "%s: limb %d, call %d: rank %d: %s (%s)", coll_case_words(&ill.c, p), which,
                                         ill.after, i, pici_strerror(ill.status[i]), pici_comm_error(ill.team.comm[i]));
                        coll_team_free(&ill.team);
                        memset(&ill.team, 0, sizeof ill.team);
                    }
                    coll_job_free(&ill.job);
                }
}
