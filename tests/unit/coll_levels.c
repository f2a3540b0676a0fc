/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators of two levels: every collective with each algorithm against the model, with random node maps, over
 * threads inside and threads or sockets between. Also invalid pairs, and ranks that are gone. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bytes.h"
#include "pici/neighbor.h"
#include "tests/util/coll.h"
#include "tests/util/socket.h"
#include "tests/util/transport.h"
#include "transport/thread.h"

enum { WATCHDOG_S = 300 };

static int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 17};

enum { OVER_THREADS, OVER_SOCKETS };

/* Communicators that are to become one, of each rank. */
struct pairs {
    int p;
    int node_of[COLL_RANKS];
    struct pici_comm *inner[COLL_RANKS], *outer[COLL_RANKS], *comm[COLL_RANKS];
    enum pici_status status[COLL_RANKS];
    char words[COLL_RANKS][256];
};

/* The members of a node in an order drawn at random, so that numbers in inner do not follow those in outer. */
static void make_inner(struct pairs *pairs, struct rng *rng)
{
    for (int node = 0; node < pairs->p; node++) {
        int members[COLL_RANKS], count = 0;
        struct pici_comm *comms[COLL_RANKS];
        for (int r = 0; r < pairs->p; r++)
            if (pairs->node_of[r] == node) {
                const int place = (int)rng_below(rng, (uint64_t)count + 1);
                members[count++] = members[place];
                members[place] = r;
            }
        if (count == 0)
            continue;
        cr_assert_eq(pici_comm_threads(comms, count), PICI_OK);
        for (int i = 0; i < count; i++)
            pairs->inner[members[i]] = comms[i];
    }
}

static void make_outer(struct pairs *pairs, int over)
{
    if (over == OVER_THREADS) {
        cr_assert_eq(pici_comm_threads(pairs->outer, pairs->p), PICI_OK);
        return;
    }
    struct socket_team team;
    socket_team_init(&team, pairs->p);
    socket_pairs(team.fds, pairs->p);
    socket_team_make(&team);
    cr_assert(socket_team_all(&team, PICI_OK, ""));
    memcpy(pairs->outer, team.comm, sizeof team.comm);
}

static void join(void *context, int rank)
{
    struct pairs *pairs = context;
    pairs->status[rank] = pici_comm_levels(&pairs->comm[rank], pairs->inner[rank], pairs->outer[rank]);
    snprintf(pairs->words[rank], sizeof pairs->words[rank], "%s", pici_comm_error(NULL));
}

static void free_pairs(struct pairs *pairs)
{
    for (int i = 0; i < pairs->p; i++) {
        pici_comm_free(pairs->comm[i]);
        if (pairs->status[i]) {
            pici_comm_free(pairs->inner[i]);
            pici_comm_free(pairs->outer[i]);
        }
    }
}

static void draw_nodes(struct pairs *pairs, struct rng *rng)
{
    const uint64_t most = 1 + rng_below(rng, (uint64_t)pairs->p);
    for (int i = 0; i < pairs->p; i++)
        pairs->node_of[i] = (int)rng_below(rng, most);
}

static void make_pairs(struct pairs *pairs, int p, struct rng *rng, int over)
{
    memset(pairs, 0, sizeof *pairs);
    pairs->p = p;
    draw_nodes(pairs, rng);
    make_inner(pairs, rng);
    make_outer(pairs, over);
}

static void check_all(int p, uint64_t seed, int over)
{
    struct rng rng = {seed};
    struct pairs pairs;
    struct coll_team team = {.p = p};
    make_pairs(&pairs, p, &rng, over);
    coll_threads(p, join, &pairs);
    for (int i = 0; i < p; i++)
        cr_assert_eq(pairs.status[i], PICI_OK, "rank %d: %s", i, pairs.words[i]);
    memcpy(team.comm, pairs.comm, sizeof team.comm);
    for (int a = 0; a <= coll_algorithms(); a++)
        for (int i = 0; i < COLL_COLLECTIVES; i++) {
            struct coll_case c;
            if (!coll_has((enum pici_algorithm)a, coll_collectives[i]))
                continue;
            coll_case_random(&c, &rng, p);
            c.collective = coll_collectives[i];
            c.opts.algorithm = (enum pici_algorithm)a;
            c.count = rng_below(&rng, 3) ? rng_below(&rng, 9000) : rng_below(&rng, 40);
            coll_case_options(&c, &rng, p);
            if (rng_below(&rng, 2)) /* else another map than the communicator's: messages go their way all the same */
                memcpy(c.node_of, pairs.node_of, sizeof c.node_of);
            const char *wrong = coll_team_check(&team, &c);
            cr_assert(!wrong, "%s", wrong);
        }
    coll_team_free(&team);
}

ParameterizedTestParameters(coll_levels, matrix)
{
    return cr_make_param_array(int, rank_counts, sizeof rank_counts / sizeof *rank_counts);
}

ParameterizedTest(int *ranks, coll_levels, matrix)
{
    alarm(WATCHDOG_S);
    for (int times = 0; times < (test_full() ? 30 : 1); times++)
        for (int over = OVER_THREADS; over <= OVER_SOCKETS; over++)
            check_all(*ranks, (uint64_t)(*ranks * 1000 + times * 2 + over), over);
}

/* ---- pairs that do not fit */

static void expect_all(struct pairs *pairs, enum pici_status status, const char *phrase)
{
    coll_threads(pairs->p, join, pairs);
    for (int i = 0; i < pairs->p; i++) {
        cr_expect_eq(pairs->status[i], status, "rank %d: %s: %s", i, pici_strerror(pairs->status[i]), pairs->words[i]);
        cr_expect_not_null(strstr(pairs->words[i], phrase), "rank %d: %s", i, pairs->words[i]);
        cr_expect_null(pairs->comm[i]);
    }
    free_pairs(pairs);
}

static struct pairs of_map(int p, const int *node_of)
{
    struct pairs pairs = {.p = p};
    struct rng rng = {7};
    memcpy(pairs.node_of, node_of, (size_t)p * sizeof *node_of);
    make_inner(&pairs, &rng);
    make_outer(&pairs, OVER_THREADS);
    return pairs;
}

Test(coll_levels, no_inner)
{
    struct pairs pairs = of_map(4, (int[]){0, 0, 1, 1});
    pici_comm_free(pairs.inner[2]);
    pairs.inner[2] = NULL;
    expect_all(&pairs, PICI_E_ARG, "rank 2: the inner communicator is NULL");
}

Test(coll_levels, the_same_one)
{
    struct pairs pairs = of_map(3, (int[]){0, 1, 2});
    pici_comm_free(pairs.inner[1]);
    pairs.inner[1] = pairs.outer[1];
    coll_threads(3, join, &pairs);
    pairs.inner[1] = NULL; /* freed as outer */
    for (int i = 0; i < 3; i++)
        cr_expect_eq(pairs.status[i], PICI_E_ARG, "%s", pairs.words[i]);
    free_pairs(&pairs);
}

/* Nobody agrees on the status of a call on a plan: rank 0 sends one element, rank 1 expects two, and it alone knows. */
static void miscount(void *context, int rank)
{
    struct pici_comm **comms = context, *comm = comms[rank];
    struct pici_neighbor_plan *plan;
    struct pici_neighbor_opts opts = PICI_NEIGHBOR_OPTS_INIT;
    const uint64_t counts[1] = {2}, displs[1] = {0};
    const int sends = rank == 0, receives = rank == 1, to = 1, from = 0;
    float send[1] = {1}, recv[2];
    opts.most_bytes = sizeof recv;
    cr_assert_eq(pici_neighbor_plan_create(&plan, comm, receives, &from, sends, &to, &opts), PICI_OK);
    const enum pici_status status =
        pici_neighbor_all_gatherv(send, (uint64_t)sends, recv, counts, displs, PICI_F32, plan, NULL);
    cr_expect_eq(status, receives ? PICI_E_PEER : PICI_OK, "rank %d: %s", rank, pici_strerror(status));
    pici_neighbor_plan_free(plan);
}

Test(coll_levels, after_a_failed_call)
{
    for (int in_outer = 0; in_outer < 2; in_outer++) {
        struct pairs pairs = of_map(3, (int[]){0, 0, 1});
        struct pici_comm *first[2] = {pairs.inner[0], pairs.inner[1]};
        if (in_outer)
            coll_threads(3, miscount, pairs.outer);
        else {
            const int swapped = pici_comm_rank(first[0]);
            struct pici_comm *comms[2] = {first[swapped], first[!swapped]};
            coll_threads(2, miscount, comms);
        }
        expect_all(&pairs, PICI_E_BROKEN, "one of the communicators is broken");
    }
}

/* A rank that is in no inner communicator of its size: here an inner one of three of which two ranks are in outer. */
Test(coll_levels, inner_is_larger_than_its_node)
{
    struct pairs pairs = of_map(4, (int[]){0, 0, 0, 1});
    struct pairs other = of_map(4, (int[]){0, 0, 0, 1});
    pici_comm_free(pairs.inner[3]);
    pairs.inner[3] = other.inner[0]; /* another one of three */
    other.inner[0] = NULL;
    expect_all(&pairs, PICI_E_PEER, "must have each rank of outer once");
    for (int i = 0; i < 4; i++) {
        pici_comm_free(other.inner[i]);
        pici_comm_free(other.outer[i]);
    }
}

/* Two programs of two ranks each, whose inner communicators have one rank of each: sizes and numbers fit. */
Test(coll_levels, inner_has_ranks_of_another_outer)
{
    struct pairs pairs = {.p = 4};
    struct pici_comm *two[2];
    for (int i = 0; i < 2; i++) { /* outer: 0 and 1, 2 and 3. Inner: 0 and 3, 2 and 1 */
        cr_assert_eq(pici_comm_threads(&pairs.outer[2 * i], 2), PICI_OK);
        cr_assert_eq(pici_comm_threads(two, 2), PICI_OK);
        pairs.inner[i ? 2 : 0] = two[0];
        pairs.inner[i ? 1 : 3] = two[1];
    }
    expect_all(&pairs, PICI_E_PEER, "has ranks of another outer one");
}

/* Ranks 2 and 3 claim inner communicators whose sizes add up to 2 modulo 2^64. */
struct liar {
    struct pici_transport inner;
    uint64_t size;
};

static enum pici_status send_lie(void *context, int to, const void *data, size_t bytes, void **request)
{
    enum { WORD_SIZE = 3, RECORD = 64 };
    const struct liar *liar = context;
    if (bytes == RECORD) /* of this rank's own memory */
        store_le64((uint8_t *)(uintptr_t)data + (size_t)WORD_SIZE * 8, liar->size);
    return liar->inner.send(liar->inner.context, to, data, bytes, request);
}

Test(coll_levels, sizes_that_wrap_around)
{
    static struct liar liars[2];
    struct pairs pairs = {.p = 4, .node_of = {0, 1, 2, 3}};
    struct pici_transport transport[4];
    struct rng rng = {5};
    make_inner(&pairs, &rng);
    cr_assert_eq(pici_transport_threads(transport, 4), PICI_OK);
    for (int i = 0; i < 2; i++) {
        liars[i].size = i ? 2 - (UINT64_C(1) << 20) : UINT64_C(1) << 20;
        transport_wrap(&transport[2 + i], &liars[i].inner);
        transport[2 + i].send = send_lie;
    }
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pici_comm_transport(&pairs.outer[i], &transport[i]), PICI_OK);
    expect_all(&pairs, PICI_E_PEER, "do not have each rank of outer once");
}

static void join_but_one(void *context, int rank)
{
    struct pairs *pairs = context;
    if (rank == pairs->p - 1) {
        pici_comm_free(pairs->inner[rank]);
        pici_comm_free(pairs->outer[rank]);
        pairs->inner[rank] = pairs->outer[rank] = NULL;
        pairs->status[rank] = PICI_E_PEER;
    } else
        join(context, rank);
}

Test(coll_levels, a_rank_is_gone, .timeout = 30)
{
    for (int over = OVER_THREADS; over <= OVER_SOCKETS; over++) {
        struct rng rng = {3};
        struct pairs pairs = {.p = 4, .node_of = {0, 1, 0, 1}};
        make_inner(&pairs, &rng);
        make_outer(&pairs, over);
        coll_threads(4, join_but_one, &pairs);
        for (int i = 0; i < 4; i++)
            cr_expect_eq(pairs.status[i], PICI_E_PEER, "rank %d: %s", i, pairs.words[i]);
        free_pairs(&pairs);
    }
}

/* ---- a rank dies later */

static void call_but_one(void *context, int rank)
{
    struct pairs *pairs = context;
    static const float ones[1000] = {1};
    float sums[1000];
    if (rank == 1) {
        pici_comm_free(pairs->comm[1]);
        pairs->comm[1] = NULL;
        pairs->status[1] = PICI_E_PEER;
        return;
    }
    pairs->status[rank] = pici_all_reduce(ones, sums, 1000, PICI_F32, PICI_SUM, pairs->comm[rank],
                                          &(struct pici_coll_opts)PICI_COLL_OPTS_INIT);
    snprintf(pairs->words[rank], sizeof pairs->words[rank], "%s", pici_comm_error(pairs->comm[rank]));
}

/* Ranks of the node learn of it inside, others between; and one level tells the other. */
Test(coll_levels, a_rank_dies, .timeout = 30)
{
    for (int over = OVER_THREADS; over <= OVER_SOCKETS; over++) {
        struct rng rng = {5};
        struct pairs pairs = {.p = 6, .node_of = {0, 0, 1, 1, 2, 2}};
        make_inner(&pairs, &rng);
        make_outer(&pairs, over);
        coll_threads(6, join, &pairs);
        for (int i = 0; i < 6; i++)
            cr_assert_eq(pairs.status[i], PICI_OK, "%s", pairs.words[i]);
        coll_threads(6, call_but_one, &pairs);
        for (int i = 0; i < 6; i++)
            cr_expect_eq(pairs.status[i], PICI_E_PEER, "rank %d: %s", i, pairs.words[i]);
        for (int i = 0; i < 6; i++)
            pici_comm_free(pairs.comm[i]);
    }
}

/* ---- arguments, and what is taken over */

Test(coll_levels, arguments)
{
    struct pairs pairs = of_map(1, (int[]){0});
    struct pici_comm *comm = pairs.outer[0];
    cr_expect_eq(pici_comm_levels(NULL, pairs.inner[0], pairs.outer[0]), PICI_E_ARG);
    cr_expect_eq(pici_comm_levels(&comm, pairs.inner[0], NULL), PICI_E_ARG);
    cr_expect_null(comm);
    cr_expect_eq(pici_comm_levels(&comm, NULL, pairs.outer[0]), PICI_E_ARG);
    cr_expect_eq(pici_comm_levels(&comm, pairs.inner[0], pairs.outer[0]), PICI_OK, "%s", pici_comm_error(NULL));
    pici_comm_free(comm);
}
