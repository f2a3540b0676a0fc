/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Lossy codecs in neighbourhood all-gathers. Either route gives the bits of an ordinary all-gather with the same codec;
 * random rounding is the same on all routes. Also residuals, and ranks that disagree. tests/plain/neighbor.c has random
 * graphs. */
#define _DEFAULT_SOURCE
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pici/neighbor.h"
#include "tests/util/coll.h"

enum { RANKS = 6, COUNT = 9000, WATCHDOG_S = 120 };

struct lossy {
    struct pici_comm *comm[RANKS];
    struct pici_values values[RANKS];
    enum pici_route route;
    int varied;
    uint64_t expected; /* of rank 1, of what rank 0 sends; other ranks expect COUNT */
    enum pici_status status[RANKS], ordinary[RANKS];
    float *sent[RANKS], *received[RANKS], *gathered[RANKS], *residual[RANKS];
};

/* Each rank receives from all, in order, itself too. */
static void run_rank(void *context, int rank)
{
    struct lossy *run = context;
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    struct pici_neighbor_opts options = PICI_NEIGHBOR_OPTS_INIT;
    struct pici_neighbor_plan *plan = NULL;
    struct pici_values ordinary = run->values[rank];
    const int nodes[RANKS] = {0, 0, 1, 1, 2, 2};
    int all[RANKS];
    uint64_t counts[RANKS], displs[RANKS];
    for (int i = 0; i < RANKS; i++) {
        all[i] = i;
        counts[i] = COUNT;
        displs[i] = (uint64_t)i * COUNT;
    }
    counts[0] = rank == 1 ? run->expected : COUNT;
    options.route = run->route;
    opts.slice_bytes = 16384; /* several slices */
    opts.timeout_ms = 20000;
    opts.values = &run->values[rank];
    cr_assert_eq(pici_comm_set_nodes(run->comm[rank], nodes), PICI_OK);
    cr_assert_eq(pici_neighbor_plan_create(&plan, run->comm[rank], RANKS, all, RANKS, all, &options), PICI_OK);
    run->status[rank] =
        run->varied ? pici_neighbor_all_gatherv(run->sent[rank], COUNT, run->received[rank], counts, displs, PICI_F32,
                                                plan, &opts)
                    : pici_neighbor_all_gather(run->sent[rank], run->received[rank], COUNT, PICI_F32, plan, &opts);
    ordinary.residual = NULL;
    opts.values = &ordinary;
    run->ordinary[rank] =
        pici_all_gather(run->sent[rank], run->gathered[rank], COUNT, PICI_F32, run->comm[rank], &opts);
    pici_neighbor_plan_free(plan);
}

static struct lossy *run_all(const struct pici_values *values, enum pici_route route, int varied, int odd)
{
    struct lossy *run = calloc(1, sizeof *run);
    struct rng r = {42};
    alarm(WATCHDOG_S);
    cr_assert_not_null(run);
    run->route = route;
    run->varied = varied;
    run->expected = odd == 1 ? COUNT - 1 : COUNT;
    cr_assert_eq(pici_comm_threads(run->comm, RANKS), PICI_OK);
    for (int i = 0; i < RANKS; i++) {
        run->sent[i] = calloc(COUNT, sizeof(float));
        run->residual[i] = calloc(COUNT, sizeof(float));
        run->received[i] = calloc((size_t)RANKS * COUNT, sizeof(float));
        run->gathered[i] = calloc((size_t)RANKS * COUNT, sizeof(float));
        cr_assert(run->sent[i] && run->residual[i] && run->received[i] && run->gathered[i]);
        for (int j = 0; j < COUNT; j++)
            run->sent[i][j] = j % 7 ? (float)rng_below(&r, 2000001) / 1000000 - 1 : 0;
        run->values[i] = *values;
        run->values[i].residual = run->residual[i];
    }
    if (odd == 2)
        run->values[2].bits = 8;
    coll_threads(RANKS, run_rank, run);
    return run;
}

static void free_all(struct lossy *run)
{
    for (int i = 0; i < RANKS; i++) {
        pici_comm_free(run->comm[i]);
        free(run->sent[i]);
        free(run->received[i]);
        free(run->gathered[i]);
        free(run->residual[i]);
    }
    free(run);
}

static struct pici_values by_codec(enum pici_value_codec codec)
{
    struct pici_values values = PICI_VALUES_INIT;
    values.codec = codec;
    if (codec == PICI_VALUES_QSGD) {
        values.bits = 4;
        values.seed = 7;
    }
    if (codec == PICI_VALUES_ZFP)
        values.rate = 8;
    return values;
}

/* All ranks have the same bytes, the elements differ, and residuals are what was lost. */
static void check_all(const struct lossy *run, const char *what)
{
    const size_t bytes = (size_t)RANKS * COUNT * sizeof(float);
    for (int i = 0; i < RANKS; i++) {
        int different = 0, lost = 0;
        cr_expect(!run->status[i] && !run->ordinary[i], "%s, rank %d: %s, %s (%s)", what, i,
                  pici_strerror(run->status[i]), pici_strerror(run->ordinary[i]), pici_comm_error(run->comm[i]));
        cr_expect_arr_eq(run->received[i], run->received[0], bytes, "%s, rank %d has other elements", what, i);
        for (int j = 0; j < COUNT; j++) {
            const float rounded = run->received[i][i * COUNT + j];
            different += rounded != run->sent[i][j];
            lost += run->residual[i][j] != run->sent[i][j] - rounded;
        }
        cr_expect(different && !lost, "%s, rank %d: %d elements rounded, %d residuals wrong", what, i, different, lost);
    }
}

Test(coll_neighbor_values, ordinary)
{
    for (int codec = PICI_VALUES_CAST; codec <= PICI_VALUES_ZFP; codec++)
        for (int route = PICI_ROUTE_DIRECT; route <= PICI_ROUTE_HALVING; route++)
            for (int varied = 0; varied < 2; varied++) {
                struct pici_values values = by_codec((enum pici_value_codec)codec);
                values.rounding = PICI_ROUND_NEAREST;
                struct lossy *run = run_all(&values, (enum pici_route)route, varied, 0);
                if (codec == PICI_VALUES_ZFP && run->status[0] == PICI_E_UNSUPPORTED) { /* built without */
                    cr_expect_eq(run->ordinary[0], PICI_E_UNSUPPORTED);
                    free_all(run);
                    continue;
                }
                check_all(run, "as an all-gather");
                cr_expect_arr_eq(run->received[0], run->gathered[0], (size_t)RANKS * COUNT * sizeof(float),
                                 "codec %d, route %d, varied %d: not as an all-gather", codec, route, varied);
                free_all(run);
            }
}

Test(coll_neighbor_values, random_rounding)
{
    const struct pici_values values = by_codec(PICI_VALUES_QSGD);
    struct lossy *direct = run_all(&values, PICI_ROUTE_DIRECT, 0, 0),
                 *halving = run_all(&values, PICI_ROUTE_HALVING, 0, 0);
    check_all(direct, "direct");
    check_all(halving, "halving");
    cr_expect_arr_eq(direct->received[0], halving->received[0], (size_t)RANKS * COUNT * sizeof(float));
    free_all(direct);
    free_all(halving);
}

Test(coll_neighbor_values, disagreement)
{
    const struct pici_values cast = by_codec(PICI_VALUES_CAST), qsgd = by_codec(PICI_VALUES_QSGD);
    for (int route = PICI_ROUTE_DIRECT; route <= PICI_ROUTE_HALVING; route++) {
        struct lossy *run = run_all(&cast, (enum pici_route)route, 1, 1);
        cr_expect_eq(run->status[1], PICI_E_PEER, "another count: %s", pici_strerror(run->status[1]));
        cr_expect(strstr(pici_comm_error(run->comm[1]), "rank 0 sends another count than entry 0 of recvcounts"), "%s",
                  pici_comm_error(run->comm[1]));
        free_all(run);
        run = run_all(&qsgd, (enum pici_route)route, 0, 2);
        for (int i = 0; i < RANKS; i++)
            cr_expect_eq(run->status[i], PICI_E_PEER, "another codec, rank %d: %s", i, pici_strerror(run->status[i]));
        free_all(run);
    }
}

/* A rank that is its own neighbour: what overlaps, and what has no codec. */
Test(coll_neighbor_values, refused)
{
    static const struct {
        int residual; /* its first element in the buffer: send is 0 to 3, recv 8 to 11 */
        enum pici_dtype dtype;
        enum pici_status status;
    } cases[] = {{3, PICI_F32, PICI_E_ARG},
                 {10, PICI_F32, PICI_E_ARG},
                 {4, PICI_F32, PICI_OK},
                 {4, PICI_I32, PICI_E_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pici_comm *comm;
        struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
        struct pici_values values = by_codec(PICI_VALUES_CAST);
        struct pici_neighbor_plan *plan;
        float buffer[16] = {0};
        const int self = 0;
        cr_assert_eq(pici_comm_threads(&comm, 1), PICI_OK);
        cr_assert_eq(pici_neighbor_plan_create(&plan, comm, 1, &self, 1, &self, NULL), PICI_OK);
        opts.values = &values;
        values.residual = buffer + cases[i].residual;
        const enum pici_status status = pici_neighbor_all_gather(buffer, buffer + 8, 4, cases[i].dtype, plan, &opts);
        cr_expect_eq(status, cases[i].status, "case %zu: %s (%s)", i, pici_strerror(status), pici_comm_error(comm));
        if (status == PICI_E_ARG)
            cr_expect(strstr(pici_comm_error(comm), "the residual overlaps a buffer"), "%s", pici_comm_error(comm));
        pici_neighbor_plan_free(plan);
        pici_comm_free(comm);
    }
}
