/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Steps of training with all lossy features at once. Each step sends the largest elements of the gradient plus the
 * unsent rest, in 2 bits. One residual takes the elements that were not selected, and the rounding errors of every hop.
 * After all steps, what was handed in is what was delivered and what the residuals still have. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/util/coll.h"
#include "pici/topk.h"
#include "tests/util/util.h"

enum { STEPS = 100, COUNT = 5000, MOST = 6, WATCHDOG_S = 300 };

struct trainee {
    float residual[COUNT];
    double handed[COUNT], delivered[COUNT], size[COUNT]; /* sums over steps; size: of magnitudes */
    uint64_t events;
    const char *wrong;
};

struct training {
    int p;
    enum pici_algorithm algorithm;
    enum pici_rounding rounding;
    int whole;     /* gradients are whole numbers, and so is what 2 bits make of them: all sums are exact */
    int forgetful; /* the rank that throws away what it lost in the middle step; -1: none */
    struct pici_comm *comm[MOST];
    struct trainee *rank;
};

static void make_gradient(float *g, int whole, int step, int rank)
{
    struct rng r = {(uint64_t)(1000 * step + rank + 1)};
    for (int i = 0; i < COUNT; i++)
        g[i] = whole ? (float)((int)rng_below(&r, 41) - 20) : (float)((double)rng_next(&r) / 0x1p63 - 1);
}

static void train_rank(void *context, int rank)
{
    struct training *const t = context;
    struct trainee *const k = &t->rank[rank];
    float *const gradient = test_alloc(COUNT * 4), *const send = test_alloc(COUNT * 4),
                 *const recv = test_alloc(COUNT * 4), *const thrown = test_alloc(COUNT * 4);
    memset(thrown, 0, COUNT * 4);
    for (int step = 0; step < STEPS; step++) {
        struct pici_topk_opts select = PICI_TOPK_OPTS_INIT;
        struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
        struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
        struct pici_values values = PICI_VALUES_INIT;
        uint64_t kept;
        select.bucket = 512;
        select.k = 16;
        values.codec = PICI_VALUES_QSGD;
        values.bits = 2;
        values.bucket = 64;
        values.rounding = t->rounding;
        values.residual = rank == t->forgetful && step == STEPS / 2 ? thrown : k->residual;
        o.algorithm = t->algorithm;
        o.values = &values;
        o.stats = &stats;
        make_gradient(gradient, t->whole, step, rank);
        enum pici_status s = pici_topk(send, &kept, k->residual, NULL, gradient, COUNT, PICI_F32, &select);
        if (s)
            k->wrong = pici_strerror(s);
        s = pici_all_reduce(send, recv, COUNT, PICI_F32, PICI_SUM, t->comm[rank], &o);
        if (s) {
            k->wrong = pici_comm_error(t->comm[rank]);
            break;
        }
        for (int i = 0; i < COUNT; i++) {
            k->handed[i] += (double)gradient[i];
            k->delivered[i] += (double)recv[i];
            k->size[i] += fabs((double)gradient[i]) + fabs((double)recv[i]) + fabs((double)k->residual[i]);
        }
        k->events += stats.events;
    }
    free(gradient);
    free(send);
    free(recv);
    free(thrown);
}

static void train(struct training *t)
{
    alarm(WATCHDOG_S);
    t->rank = test_alloc((size_t)t->p * sizeof *t->rank);
    memset(t->rank, 0, (size_t)t->p * sizeof *t->rank);
    cr_assert_eq(pici_comm_threads(t->comm, t->p), PICI_OK);
    for (int r = 0; r < t->p; r++) {
        int node_of[MOST];
        for (int i = 0; i < t->p; i++)
            node_of[i] = i / 2;
        cr_assert_eq(pici_comm_set_nodes(t->comm[r], node_of), PICI_OK);
    }
    coll_threads(t->p, train_rank, t);
    for (int r = 0; r < t->p; r++) {
        cr_assert_null(t->rank[r].wrong, "%s, rank %d of %d: %s", pici_algorithm_name(t->algorithm), r, t->p,
                       t->rank[r].wrong);
        cr_assert_eq(memcmp(t->rank[r].delivered, t->rank[0].delivered, sizeof t->rank[0].delivered), 0);
        pici_comm_free(t->comm[r]);
    }
}

/* The elements whose sums differ: at all if they are whole numbers, else by more than 2^-20 of the magnitudes that were
 * added, 16 times the error of one addition. */
static int lost_elements(const struct training *t)
{
    int lost = 0;
    for (int i = 0; i < COUNT; i++) {
        double in = 0, out = t->rank[0].delivered[i], size = 0;
        for (int r = 0; r < t->p; r++) {
            in += t->rank[r].handed[i];
            out += (double)t->rank[r].residual[i];
            size += t->rank[r].size[i];
            cr_assert_lt(fabs((double)t->rank[r].residual[i]), 0x1p20, "whole numbers would be rounded");
        }
        lost += !(fabs(in - out) <= (t->whole ? 0 : 0x1p-20 * size));
    }
    return lost;
}

static void train_all(int p, enum pici_rounding rounding, int whole)
{
    for (int algorithm = 1; algorithm <= coll_algorithms(); algorithm++) {
        if (!coll_has((enum pici_algorithm)algorithm, PICI_ALL_REDUCE))
            continue;
        for (int forgetful = -1; forgetful < p; forgetful += p) { /* none; the last rank */
            struct training t = {
                .p = p, .algorithm = (enum pici_algorithm)algorithm, .rounding = rounding, .whole = whole};
            t.forgetful = forgetful;
            train(&t);
            const int lost = lost_elements(&t);
            cr_expect(forgetful < 0 ? lost == 0 : lost > 0, "%s, %d ranks, %s, %s: %d elements are lost",
                      pici_algorithm_name(t.algorithm), p, whole ? "whole numbers" : "fractions",
                      forgetful < 0 ? "all keep their losses" : "one rank threw a step's losses away", lost);
            cr_expect_gt(t.rank[0].events, (uint64_t)(STEPS * COUNT / p));
            free(t.rank);
        }
    }
}

Test(coll_values_training, nothing_is_lost_of_whole_numbers)
{
    train_all(4, PICI_ROUND_RANDOM, 1);
    train_all(5, PICI_ROUND_NEAREST, 1);
}

Test(coll_values_training, nothing_is_lost_of_fractions)
{
#ifndef SANITIZED /* takes a minute there */
    train_all(6, PICI_ROUND_RANDOM, 0);
#endif
    train_all(3, PICI_ROUND_NEAREST, 0);
}
