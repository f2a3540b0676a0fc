/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Making neighbourhood plans: the messages for it, plans of more ranks than can relay, the memory of a call's messages,
 * and node maps that change. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coll/message.h"
#include "coll/neighbor.h"
#include "coll/request.h"
#include "tests/util/coll.h"
#include "pici/neighbor.h"
#include "tests/util/transport.h"

enum { MOST = 64, WATCHDOG_S = 300 };

/* A transport that counts the messages with adjacency rows, which are u8. */
struct counter {
    struct pici_transport inner;
    uint64_t messages, blocks, bytes; /* without prefixes */
};

static enum pici_status count_send(void *context, int to, const void *data, size_t bytes, void **request)
{
    struct counter *c = context;
    struct msg_prefix m;
    if (!pici_msg_get(&m, data, bytes) && m.kind == MSG_DATA && m.dtype == PICI_U8) {
        c->messages++;
        c->blocks += m.blocks;
        c->bytes += bytes - MSG_BYTES;
    }
    return c->inner.send(c->inner.context, to, data, bytes, request);
}

/* A random graph, the same on all ranks, of which each makes a plan. */
struct team {
    int p;
    unsigned ppm;
    struct pici_neighbor_opts opts;
    struct pici_coll_opts call;
    uint64_t reserved; /* elements that plans reserve memory for; 0: they call instead, with two */
    struct pici_comm *comm[MOST];
    struct counter counter[MOST];
    struct pici_neighbor_info info[MOST];
    enum pici_status plan[MOST], status[MOST];
    size_t scratch[MOST];
    int wrong[MOST];
};

static int is_edge(const struct team *t, int from, int to)
{
    struct rng r = {(uint64_t)(from * MOST + to)};
    return from != to && rng_chance(&r, t->ppm);
}

static void run_rank(void *context, int rank)
{
    struct team *t = context;
    struct pici_comm *comm = t->comm[rank];
    struct pici_neighbor_plan *plan = NULL;
    int source[MOST], destination[MOST], sources = 0, destinations = 0;
    for (int i = 0; i < t->p; i++) {
        if (is_edge(t, i, rank))
            source[sources++] = i;
        if (is_edge(t, rank, i))
            destination[destinations++] = i;
    }
    t->plan[rank] = pici_neighbor_plan_create(&plan, comm, sources, source, destinations, destination, &t->opts);
    t->info[rank] = (struct pici_neighbor_info)PICI_NEIGHBOR_INFO_INIT;
    if (plan)
        t->status[rank] = pici_neighbor_plan_info(plan, &t->info[rank]);
    if (plan && t->reserved) {
        t->status[rank] = pici_neighbor_plan_reserve(plan, t->reserved, PICI_F32, &t->call);
        t->scratch[rank] = pici_engine_host_scratch(comm->engine_self);
    } else if (plan && !t->status[rank]) {
        const uint32_t own[] = {(uint32_t)rank + 1, (uint32_t)rank * 7};
        uint32_t got[2 * MOST];
        t->status[rank] = pici_neighbor_all_gather(own, got, 2, PICI_U32, plan, NULL);
        for (int i = 0; i < sources; i++)
            t->wrong[rank] += got[2 * i] != (uint32_t)source[i] + 1 || got[2 * i + 1] != (uint32_t)source[i] * 7;
    }
    pici_neighbor_plan_free(plan);
    if (!plan) { /* nothing is broken */
        uint64_t one = 1, sum = 0;
        t->status[rank] = pici_all_reduce(&one, &sum, 1, PICI_U64, PICI_SUM, comm, NULL);
        t->wrong[rank] = sum != (uint64_t)t->p;
    }
}

static struct team *run(int p, unsigned ppm, enum pici_route route, int per_node, uint64_t reserved)
{
    struct team *t = test_alloc(sizeof *t);
    int node_of[MOST];
    alarm(WATCHDOG_S);
    memset(t, 0, sizeof *t);
    t->p = p;
    t->ppm = ppm;
    t->opts = (struct pici_neighbor_opts)PICI_NEIGHBOR_OPTS_INIT;
    t->opts.route = route;
    t->call = (struct pici_coll_opts)PICI_COLL_OPTS_INIT;
    t->call.slice_bytes = 1 << 30;
    t->reserved = reserved;
    cr_assert_eq(pici_comm_threads(t->comm, p), PICI_OK);
    for (int i = 0; i < p; i++)
        node_of[i] = i / per_node;
    for (int i = 0; i < p; i++) {
        cr_assert_eq(pici_comm_set_nodes(t->comm[i], node_of), PICI_OK);
        transport_wrap(&t->comm[i]->transport, &t->counter[i].inner);
        t->comm[i]->transport.send = count_send;
    }
    coll_threads(p, run_rank, t);
    for (int i = 0; i < p; i++) {
        cr_expect(!t->status[i] && !t->wrong[i], "rank %d: %s, %d wrong (%s)", i, pici_strerror(t->status[i]),
                  t->wrong[i], pici_comm_error(t->comm[i]));
        pici_comm_free(t->comm[i]);
    }
    return t;
}

/* Rows are gathered once: each rank forwards as many as there are other ranks, as bits, in blocks that are not longer
 * than dense ones. */
Test(coll_neighbor_plan, bytes_of_set_up)
{
    static const int ranks[] = {2, 5, 16, 33, 64};
    static const unsigned ppm[] = {0, 20000, 500000};
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 3; j++) {
            const int p = ranks[i];
            const uint64_t others = (uint64_t)p - 1, row = ((uint64_t)p + 7) / 8;
            struct team *t = run(p, ppm[j], PICI_ROUTE_AUTO, 4, 0);
            for (int r = 0; r < p; r++) {
                const struct counter *c = &t->counter[r];
                cr_expect_eq(t->plan[r], PICI_OK);
                cr_expect(c->blocks == others && c->bytes <= others * (row + 48),
                          "%d ranks, rank %d: %ju rows of %ju bytes took %ju bytes in %ju blocks", p, r,
                          (uintmax_t)others, (uintmax_t)row, (uintmax_t)c->bytes, (uintmax_t)c->blocks);
            }
            free(t);
        }
}

/* As if 8193 were 7: no rank relays, and none knows the whole graph. */
Test(coll_neighbor_plan, more_ranks_than_can_relay)
{
    enum { P = 7 };
    const int most = pici_neighbor_most_halved;
    for (int route = PICI_ROUTE_AUTO; route <= PICI_ROUTE_HALVING; route++)
        for (int few = 0; few < 2; few++) {
            pici_neighbor_most_halved = few ? P - 1 : P;
            struct team *t = run(P, 900000, (enum pici_route)route, 2, 0);
            pici_neighbor_most_halved = most;
            struct team *direct = run(P, 900000, PICI_ROUTE_DIRECT, 2, 0);
            for (int r = 0; r < P; r++) {
                cr_expect_eq(t->plan[r], few && route == PICI_ROUTE_HALVING ? PICI_E_UNSUPPORTED : PICI_OK,
                             "route %d, few %d, rank %d: %s", route, few, r, pici_strerror(t->plan[r]));
                if (!few || route == PICI_ROUTE_HALVING)
                    continue;
                const struct pici_neighbor_info *a = &t->info[r], *b = &direct->info[r];
                cr_expect(t->counter[r].messages == 0 && direct->counter[r].messages > 0, "rank %d sent rows", r);
                cr_expect(a->route == PICI_ROUTE_DIRECT && a->messages == b->messages && a->blocks == b->blocks &&
                              a->inter_blocks == b->inter_blocks && a->own_messages == b->own_messages &&
                              a->own_blocks == b->own_blocks && a->hash == t->info[0].hash,
                          "route %d, rank %d: other counts than those of a direct plan", route, r);
            }
            free(t);
            free(direct);
        }
}

/* 64 MiB for the messages of a rank, however long contributions and slices are; nearly all of it is used. */
Test(coll_neighbor_plan, memory_of_messages)
{
    for (int route = PICI_ROUTE_DIRECT; route <= PICI_ROUTE_HALVING; route++)
        for (int p = 4; p <= 32; p *= 2) {
            struct team *t = run(p, 1000000, (enum pici_route)route, 4, UINT64_C(1) << 30);
            size_t most = 0;
            for (int r = 0; r < p; r++)
                most = t->scratch[r] > most ? t->scratch[r] : most;
            cr_expect(most > 16 << 20 && most <= (64 << 20) + (1 << 20), "route %d, %d ranks: %zu bytes", route, p,
                      most);
            free(t);
        }
}

/* Node maps set after the plan was made: one that keeps the order of the ranks, and one that does not. */
struct moved {
    struct pici_comm *comm[3];
    enum pici_status status[3][2], reserved[3];
    char error[3][200];
};

static void move_rank(void *context, int rank)
{
    static const int all[3] = {0, 1, 2}, kept[3] = {0, 0, 1}, changed[3] = {0, 1, 0};
    struct moved *moved = context;
    struct pici_comm *comm = moved->comm[rank];
    struct pici_neighbor_plan *plan = NULL;
    struct pici_coll_opts options = PICI_COLL_OPTS_INIT;
    const int *const node_of[2] = {kept, changed};
    int got[3];
    options.timeout_ms = 2000;
    cr_assert_eq(pici_neighbor_plan_create(&plan, comm, 3, all, 3, all, NULL), PICI_OK);
    struct pici_neighbor_info made = PICI_NEIGHBOR_INFO_INIT;
    cr_assert_eq(pici_neighbor_plan_info(plan, &made), PICI_OK);
    for (int i = 0; i < 2; i++) {
        struct pici_neighbor_info info = PICI_NEIGHBOR_INFO_INIT;
        memset(got, 0x5c, sizeof got);
        cr_assert_eq(pici_comm_set_nodes(comm, node_of[i]), PICI_OK);
        cr_expect_eq(pici_neighbor_plan_info(plan, &info), PICI_OK);
        cr_expect(info.route == made.route && info.messages == made.messages && info.blocks == made.blocks);
        moved->reserved[rank] = pici_neighbor_plan_reserve(plan, 1, PICI_I32, NULL);
        moved->status[rank][i] = pici_neighbor_all_gather(&rank, got, 1, PICI_I32, plan, &options);
        cr_expect(moved->status[rank][i] || !memcmp(got, all, sizeof got), "rank %d, map %d: wrong elements", rank, i);
    }
    snprintf(moved->error[rank], sizeof moved->error[rank], "%s", pici_comm_error(comm));
    pici_neighbor_plan_free(plan);
}

Test(coll_neighbor_plan, another_node_map)
{
    struct moved moved = {{NULL}, {{PICI_OK}}, {PICI_OK}, {""}};
    alarm(WATCHDOG_S);
    cr_assert_eq(pici_comm_threads(moved.comm, 3), PICI_OK);
    coll_threads(3, move_rank, &moved);
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(moved.status[i][0], PICI_OK, "rank %d: %s", i, pici_strerror(moved.status[i][0]));
        cr_expect_eq(moved.status[i][1], PICI_E_ARG, "rank %d: %s", i, pici_strerror(moved.status[i][1]));
        cr_expect_eq(moved.reserved[i], PICI_E_ARG, "rank %d: %s", i, pici_strerror(moved.reserved[i]));
        cr_expect(strstr(moved.error[i], "the node map has changed since the plan was made"), "%s", moved.error[i]);
        pici_comm_free(moved.comm[i]);
    }
}
