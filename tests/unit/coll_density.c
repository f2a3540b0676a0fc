/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Densities that calls count: what is kept of them, the same on all ranks. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/request.h"
#include "tests/util/coll.h"

/* ---- the table ---- */

Test(coll_density, counts)
{
    const struct density_count none = {0, 0}, zeros = {1 << 20, 0}, some = {400, 100}, all = {7, 7};
    cr_expect_eq(pici_density_of(&none), 0);
    cr_expect_eq(pici_density_of(&zeros), 0x1p-64);
    cr_expect_eq(pici_density_of(&some), 0.25);
    cr_expect_eq(pici_density_of(&all), 1);
}

Test(coll_density, table)
{
    struct densities all = {.uses = 0};
    const double first[DENSITIES] = {0.5, 0.75}, second[DENSITIES] = {0.25, 0};
    cr_expect_null(pici_density_find(&all, PICI_ALL_REDUCE, PICI_F32, 100));
    pici_density_keep(&all, PICI_ALL_REDUCE, PICI_F32, 100, first);
    pici_density_keep(&all, PICI_ALL_REDUCE, PICI_F32, 100, second);
    const struct density_entry *e = pici_density_find(&all, PICI_ALL_REDUCE, PICI_F32, 100);
    cr_assert_not_null(e);
    cr_expect(e->density[DENSITY_ONE] == 0.25 && e->density[DENSITY_SUM] == 0.75, "what was not counted stays");
    cr_expect_null(pici_density_find(&all, PICI_ALL_GATHER, PICI_F32, 100));
    cr_expect_null(pici_density_find(&all, PICI_ALL_REDUCE, PICI_F64, 100));
    cr_expect_null(pici_density_find(&all, PICI_ALL_REDUCE, PICI_F32, 101));
    for (uint64_t i = 1; i < DENSITY_CALLS; i++)
        pici_density_keep(&all, PICI_ALL_REDUCE, PICI_F32, 100 + i, first);
    pici_density_keep(&all, PICI_ALL_REDUCE, PICI_F32, 100, first); /* of 16 calls, 101 is now the one longest ago */
    pici_density_keep(&all, PICI_ALL_REDUCE, PICI_F32, 200, first);
    for (uint64_t i = 0; i < DENSITY_CALLS; i++)
        cr_expect_eq(!pici_density_find(&all, PICI_ALL_REDUCE, PICI_F32, 100 + i), i == 1, "%d", (int)i);
    cr_expect_not_null(pici_density_find(&all, PICI_ALL_REDUCE, PICI_F32, 200));
}

/* ---- calls ---- */

enum { RANKS = 5, N = 30000 };

struct job {
    struct pici_comm *comm[RANKS];
    enum pici_collective kind;
    double density[RANKS]; /* of each rank's data; positions are nested, so the largest is that of the sum */
    struct pici_coll_opts opts;
    struct pici_tune tune;
    int calls;
};

static void rank(void *context, int r)
{
    struct job *j = context;
    float *send = calloc(RANKS * N, sizeof *send), *recv = calloc(RANKS * N, sizeof *recv);
    struct pici_request *q[4] = {NULL};
    cr_assert(send && recv);
    for (int i = 0; i < RANKS * N; i++)
        send[i] = i % 1000 < j->density[r] * 1000 ? 1 : 0;
    cr_assert_eq(pici_comm_tune(j->comm[r], &j->tune), PICI_OK);
    for (int i = 0; i < j->calls; i++) {
        if (j->kind == PICI_ALL_REDUCE)
            cr_expect_eq(pici_all_reduce_start(send, recv, N, PICI_F32, PICI_SUM, j->comm[r], &j->opts, &q[i]),
                         PICI_OK);
        else if (j->kind == PICI_ALL_GATHER)
            cr_expect_eq(pici_all_gather_start(send, recv, N, PICI_F32, j->comm[r], &j->opts, &q[i]), PICI_OK);
        else
            cr_expect_eq(pici_reduce_scatter_start(send, recv, N, PICI_F32, PICI_SUM, j->comm[r], &j->opts, &q[i]),
                         PICI_OK);
    }
    for (int i = 0; i < j->calls; i++)
        cr_expect_eq(pici_wait(&q[i]), PICI_OK, "%s", pici_comm_error(j->comm[r]));
    free(send);
    free(recv);
}

static void run(struct job *j, double one, double sum)
{
    const struct pici_tune none = PICI_TUNE_INIT;
    const struct pici_coll_opts usual = PICI_COLL_OPTS_INIT;
    j->opts.size = usual.size;
    if (!j->tune.size)
        j->tune = none;
    cr_assert_eq(pici_comm_threads(j->comm, RANKS), PICI_OK);
    coll_threads(RANKS, rank, j);
    for (int r = 0; r < RANKS; r++) {
        const struct density_entry *e = pici_density_find(&j->comm[r]->densities, j->kind, PICI_F32, N);
        cr_expect_eq(e != NULL, one > 0);
        if (e) {
            cr_expect_float_eq(e->density[DENSITY_ONE], one, one * 0.02, "rank %d: %g, not %g", r,
                               e->density[DENSITY_ONE], one);
            cr_expect_float_eq(e->density[DENSITY_SUM], sum, sum * 0.02, "rank %d: %g, not %g", r,
                               e->density[DENSITY_SUM], sum);
            cr_expect(memcmp(e->density, pici_density_find(&j->comm[0]->densities, j->kind, PICI_F32, N)->density,
                             sizeof e->density) == 0,
                      "the same on all ranks");
        }
    }
    for (int r = 0; r < RANKS; r++)
        pici_comm_free(j->comm[r]);
}

#define OPTS(...)                                                                                                      \
    {                                                                                                                  \
        .format = PICI_AUTO, .inter_threshold = -1, .intra_threshold = -1, .ag_threshold = -1, __VA_ARGS__             \
    }

Test(coll_density, calls)
{
    for (int a = PICI_ALGO_RING; a <= PICI_ALGO_SPLIT; a++) {
        struct job j = {.kind = PICI_ALL_REDUCE,
                        .density = {0.01, 0.02, 0.125, 0.03, 0.001},
                        .calls = 2,
                        .opts = OPTS(.algorithm = (enum pici_algorithm)a)};
        run(&j, 0.125, 0.125);
        j.kind = PICI_REDUCE_SCATTER;
        run(&j, 0.125, 0);
        j.kind = PICI_ALL_GATHER;
        run(&j, 0.125, 0);
    }
}

Test(coll_density, zeros)
{
    struct job j = {.kind = PICI_ALL_REDUCE, .calls = 1, .opts = OPTS(.algorithm = PICI_ALGO_RING)};
    run(&j, 0x1p-64, 0x1p-64);
}

/* Nothing is kept if the history is off. */
Test(coll_density, none)
{
    const struct pici_tune none = PICI_TUNE_INIT;
    struct job j = {.kind = PICI_ALL_REDUCE, .density = {0.5}, .calls = 1, .tune = none, .opts = OPTS(.checksum = 0)};
    j.tune.history = -1;
    run(&j, 0, 0);
}
