/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What collectives send, counted by a transport: the tables of docs/explanation/which-algorithm.md. 16 MiB of
 * 4-byte elements at independent positions; each message is hybrid or dense, whichever is shorter. PICI_TEST_FULL=1
 * counts among more ranks, too. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coll/options.h"
#include "coll/ordinary.h"
#include "coll/message.h"
#include "tests/util/coll.h"
#include "tests/util/transport.h"

enum { COUNT = 4 << 20, MOST = 16, SETS = 6 };

static const enum pici_algorithm algorithms[SETS] = {PICI_ALGO_RING,       PICI_ALGO_RECURSIVE,
                                                     PICI_ALGO_SPLIT,      PICI_ALGO_DOUBLING,
                                                     PICI_ALGO_NODES_RING, PICI_ALGO_NODES_RECURSIVE};

/* A transport that counts. */
struct counter {
    struct pici_transport inner;
    const int *node_of;
    uint64_t bytes, out, messages; /* all; those to other nodes; messages of data */
};

static enum pici_status count_send(void *context, int to, const void *data, size_t bytes, void **request)
{
    struct counter *c = context;
    const struct pici_transport *t = &c->inner;
    c->bytes += bytes;
    c->out += c->node_of[to] != c->node_of[t->rank] ? bytes : 0;
    c->messages += bytes >= MSG_BYTES && ((const uint8_t *)data)[4] == MSG_DATA;
    return t->send(t->context, to, data, bytes, request);
}

struct team {
    int p, node_of[MOST];
    struct pici_comm *comm[MOST];
    struct counter counter[MOST];
    float *send[MOST], *recv[MOST];
    enum pici_collective kind;
    struct pici_coll_opts opts;
    struct pici_coll_stats stats[MOST];
    enum pici_status status[MOST];
};

static void team_open(struct team *t, int p, const int *node_of)
{
    memset(t, 0, sizeof *t);
    t->p = p;
    cr_assert_eq(pici_comm_threads(t->comm, p), PICI_OK);
    for (int i = 0; i < p; i++) {
        t->node_of[i] = node_of[i];
        cr_assert_eq(pici_comm_set_nodes(t->comm[i], node_of), PICI_OK);
        transport_wrap(&t->comm[i]->transport, &t->counter[i].inner);
        t->comm[i]->transport.send = count_send;
        t->counter[i].node_of = t->node_of;
        t->send[i] = test_alloc(COUNT * sizeof(float));
        t->recv[i] = test_alloc(COUNT * sizeof(float));
    }
}

static void team_close(struct team *t)
{
    for (int i = 0; i < t->p; i++) {
        pici_comm_free(t->comm[i]);
        free(t->send[i]);
        free(t->recv[i]);
    }
}

/* This share of the elements, at random places; never two that cancel. */
static void team_fill(struct team *t, double density)
{
    for (int i = 0; i < t->p; i++) {
        struct rng r = {1000 + (uint64_t)i};
        memset(t->send[i], 0, COUNT * sizeof *t->send[i]);
        for (uint64_t left = (uint64_t)(density * COUNT); left && density < 1;) {
            float *x = &t->send[i][rng_below(&r, COUNT)];
            left -= *x == 0;
            *x = 1;
        }
        for (uint64_t k = 0; k < COUNT && density >= 1; k++)
            t->send[i][k] = 1;
    }
}

static void team_call(void *context, int rank)
{
    struct team *t = context;
    struct pici_coll_opts o = t->opts;
    t->stats[rank] = (struct pici_coll_stats)PICI_COLL_STATS_INIT;
    o.stats = &t->stats[rank];
    t->status[rank] = t->kind == PICI_ALL_REDUCE
                          ? pici_all_reduce(t->send[rank], t->recv[rank], COUNT, PICI_F32, PICI_SUM, t->comm[rank], &o)
                          : pici_reduce_scatter(t->send[rank], t->recv[rank], COUNT / (uint64_t)t->p, PICI_F32,
                                                PICI_SUM, t->comm[rank], &o);
}

/* Slices that the layout of such a call has. */
static uint64_t slices_of(const struct team *t)
{
    struct coll_call c = {
        .args = {.rules = pici_ordinary_rules(t->kind), .kind = t->kind, .dtype = PICI_F32, .count = COUNT}};
    if (t->kind == PICI_REDUCE_SCATTER)
        c.args.count /= (uint64_t)t->p;
    cr_assert_eq(pici_options_resolve(&c, t->comm[0], &t->opts, NULL, 0), PICI_OK);
    cr_assert_eq(pici_layout_choose(&c.resolved.layout, t->comm[0], &c), PICI_OK);
    return c.resolved.layout.slices;
}

/* One call. The statistics say what the transport saw. steps: not 0, each rank sends a message of each slice in so many
 * steps. *sent, *out: bytes that a rank sends on average, and that leave the busiest node, in % of the dense data. */
static void count(struct team *t, enum pici_collective kind, enum pici_algorithm algorithm, double density, int steps,
                  double *sent, double *out)
{
    const char *name = pici_algorithm_name(algorithm);
    double node[MOST] = {0};
    t->kind = kind;
    t->opts = (struct pici_coll_opts)PICI_COLL_OPTS_INIT;
    t->opts.algorithm = algorithm;
    t->opts.format = density < 1 ? PICI_AUTO : PICI_DENSE;
    t->opts.formats = density < 1 ? 1u << PICI_HYBRID : 0;
    t->opts.inter_threshold = t->opts.intra_threshold = t->opts.ag_threshold = 0;
    t->opts.inter_bandwidth = t->opts.intra_bandwidth = 1e3; /* lengths alone decide */
    t->opts.pack = PICI_PACKING_NONE;
    for (int i = 0; i < t->p; i++)
        t->counter[i].bytes = t->counter[i].out = t->counter[i].messages = 0;
    coll_threads(t->p, team_call, t);
    const uint64_t slices = slices_of(t);
    *sent = *out = 0;
    for (int i = 0; i < t->p; i++) {
        const struct counter *c = &t->counter[i];
        cr_assert_eq(t->status[i], PICI_OK, "%s: %s", name, pici_comm_error(t->comm[i]));
        cr_expect(c->bytes == t->stats[i].wire_bytes && c->out == t->stats[i].inter_bytes,
                  "%s, rank %d: %ju bytes and %ju of them to other nodes; the statistics say %ju and %ju", name, i,
                  (uintmax_t)c->bytes, (uintmax_t)c->out, (uintmax_t)t->stats[i].wire_bytes,
                  (uintmax_t)t->stats[i].inter_bytes);
        if (steps)
            cr_expect_eq(c->messages, (uint64_t)steps * slices, "%s, rank %d of %d: %ju messages, not %d of %ju slices",
                         name, i, t->p, (uintmax_t)c->messages, steps, (uintmax_t)slices);
        *sent += 100.0 * (double)c->bytes / (4.0 * COUNT * t->p);
        node[t->node_of[i]] += 100.0 * (double)c->out / (4.0 * COUNT);
    }
    for (int i = 0; i < t->p; i++)
        *out = fmax(*out, node[i]);
}

/* Within 1%; with 0.1% of the elements 2%, since what falls to a node or segment is then a matter of chance. */
static void expect(double got, double want, const char *what, const struct team *t, int algorithm, double density)
{
    cr_expect(fabs(got / want - 1) <= (density < 0.01 ? 0.02 : 0.01),
              "%s, %s among %d ranks, density %g: %.3g%%, not %g%%", what, pici_algorithm_name(algorithms[algorithm]),
              t->p, density, got, want);
}

Test(coll_bytes, a_rank_sends, .timeout = 600)
{
    static const double densities[] = {0.01, 0.1, 1};
    static const struct {
        int p, log;
        double all_reduce[3][4], reduce_scatter[3][3]; /* by density, by algorithm */
    } rows[] = {
        {4,
         2,
         {{5.74, 5.13, 4.81, 3.98}, {44.4, 40.0, 37.6, 34.8}, {150, 150, 150, 200}},
         {{1.96, 1.35, 1.03}, {16.3, 11.9, 9.47}, {75, 75, 75}}},
        {8,
         3,
         {{13.0, 10.6, 9.79, 9.04}, {84.1, 69.2, 63.7, 72.3}, {175, 175, 175, 300}},
         {{4.41, 2.00, 1.22}, {31.5, 16.6, 11.1}, {87.5, 87.5, 87.5}}},
        {16,
         4,
         {{25.9, 19.6, 18.2, 18.8}, {131, 99.8, 91.3, 132}, {188, 188, 188, 400}},
         {{9.05, 2.64, 1.32}, {52.1, 20.4, 11.9}, {93.8, 93.8, 93.8}}},
    };
    struct team *t = test_alloc(sizeof *t);
    alarm(600);
    for (size_t i = 0; i < sizeof rows / sizeof *rows - (test_full() ? 0 : 1); i++) {
        const int p = rows[i].p, steps[] = {p - 1, rows[i].log, p - 1}; /* of either phase */
        int node_of[MOST];
        for (int j = 0; j < p; j++)
            node_of[j] = j;
        team_open(t, p, node_of);
        for (int d = 0; d < 3; d++) {
            team_fill(t, densities[d]);
            for (int a = 0; a < 4; a++) {
                double sent, out;
                count(t, PICI_ALL_REDUCE, algorithms[a], densities[d], a < 3 ? 2 * steps[a] : rows[i].log, &sent, &out);
                expect(sent, rows[i].all_reduce[d][a], "all-reduce", t, a, densities[d]);
                if (a == 3)
                    continue;
                count(t, PICI_REDUCE_SCATTER, algorithms[a], densities[d], steps[a], &sent, &out);
                expect(sent, rows[i].reduce_scatter[d][a], "reduce-scatter", t, a, densities[d]);
            }
        }
        team_close(t);
    }
    free(t);
}

Test(coll_bytes, a_node_sends, .timeout = 600)
{
    static const struct {
        int nodes, size[4], steps[SETS];
        double percent[4][SETS]; /* by density */
    } rows[] = {
        {4,
         {2, 2, 2, 2},
         {14, 6, 14, 3, 8, 6},
         {{1.49, 2.25, 1.24, 1.73, 1.31, 1.17},
          {13.0, 19.3, 10.7, 15.4, 11.2, 9.97},
          {50.6, 75.2, 41.8, 68.0, 43.6, 39.3},
          {175, 325, 238, 400, 150, 150}}},
        {4,
         {3, 2, 3, 2},
         {0},
         {{1.91, 3.98, 1.63, 4.37, 1.71, 1.57},
          {16.5, 33.8, 13.8, 38.6, 14.2, 13.0},
          {61.3, 126, 52.4, 155, 52.8, 48.9},
          {180, 480, 300, 700, 150, 150}}},
        {4,
         {4, 4, 4, 4},
         {30, 8, 30, 4, 12, 10},
         {{3.07, 8.13, 2.58, 6.74, 2.47, 2.21},
          {26.0, 67.2, 21.1, 59.4, 20.9, 18.6},
          {88.4, 229, 74.7, 234, 71.4, 64.5},
          {188, 663, 394, 800, 150, 150}}},
    };
    static const double densities[] = {0.001, 0.01, 0.05, 1};
    struct team *t = test_alloc(sizeof *t);
    alarm(600);
    for (size_t i = 0; i < (test_full() ? sizeof rows / sizeof *rows : 1); i++) {
        int node_of[MOST], p = 0;
        for (int node = 0; node < rows[i].nodes; node++)
            for (int j = 0; j < rows[i].size[node]; j++)
                node_of[p++] = node;
        team_open(t, p, node_of);
        for (int d = 0; d < 4; d++) {
            team_fill(t, densities[d]);
            for (int a = 0; a < SETS; a++) {
                double sent, out;
                count(t, PICI_ALL_REDUCE, algorithms[a], densities[d], rows[i].steps[a], &sent, &out);
                expect(out, rows[i].percent[d][a], "leave a node", t, a, densities[d]);
            }
        }
        team_close(t);
    }
    free(t);
}
