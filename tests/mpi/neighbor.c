/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Neighbourhood all-gathers over MPI, beside a plain copy and beside MPI_Neighbor_allgatherv on the same graph. By
 * tests/mpi/programs.sh, under mpirun.
 *     mpi_neighbor [--quick|--full]       --quick: ten graphs */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/util/mpi_tally.h"
#include "tests/util/neighbor.h"
#include "pici/mpi.h"

enum { MANY = 1000000 }; /* elements of a large contribution */

/* The same by MPI, as bytes; all_gatherv has gaps, which stay. */
static const char *beside_mpi(const struct neighbor_rank *k, const struct neighbor_case *c)
{
    const int width = (int)pici_dtype_width(c->dtype);
    int counts[NEIGHBOR_LIST], displs[NEIGHBOR_LIST], weights[NEIGHBOR_LIST] = {0};
    MPI_Comm graph;
    uint8_t *recv = test_alloc(k->bytes);
    memset(recv, 0x5c, k->bytes);
    for (int i = 0; i < k->sources; i++) {
        counts[i] = (int)k->recvcounts[i] * width;
        displs[i] = (int)k->displs[i] * width;
    }
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, k->sources, k->source, weights, k->destinations, k->destination,
                                   weights, MPI_INFO_NULL, 0, &graph);
    MPI_Neighbor_allgatherv(k->send, (int)c->count[k->rank] * width, MPI_BYTE, recv, counts, displs, MPI_BYTE, graph);
    MPI_Comm_free(&graph);
    const int same = memcmp(recv, k->recv, k->bytes) == 0;
    free(recv);
    return same ? NULL : "not what MPI_Neighbor_allgatherv gives";
}

static void calls(int times)
{
    struct rng r = {(uint64_t)ranks * 7};
    for (int i = 0; i < times; i++) {
        static struct neighbor_case c;
        struct neighbor_rank k;
        struct pici_comm *comm = NULL;
        struct pici_neighbor_plan *plan = NULL;
        struct pici_request *request = NULL;
        neighbor_case_random(&c, &r, ranks, i % 10 == 9 ? 60000 : 5000);
        neighbor_rank_init(&k, &c, rank);
        if (pici_comm_mpi(&comm, MPI_COMM_WORLD))
            MPI_Abort(MPI_COMM_WORLD, 1);
        enum pici_status s = neighbor_rank_plan(&k, &c, comm, &plan);
        for (int again = 0; again < 2 && !s; again++) { /* blocking, and not */
            memset(k.recv, 0x5c, k.bytes);
            s = again ? neighbor_rank_start(&k, &c, plan, &request) : neighbor_rank_call(&k, &c, plan);
            if (!s && again)
                s = pici_wait(&request);
            expect(s ? pici_comm_error(comm) : neighbor_rank_judge(&k, &c), neighbor_case_words(&c));
        }
        if (c.values.codec == PICI_VALUES_EXACT)
            expect(s ? pici_strerror(s) : beside_mpi(&k, &c), neighbor_case_words(&c));
        pici_neighbor_plan_free(plan);
        pici_comm_free(comm);
        neighbor_rank_free(&k);
    }
}

/* An edge that one end does not know of: named on all ranks, and nothing is broken. */
static void one_sided(void)
{
    struct pici_comm *comm = NULL;
    struct pici_neighbor_plan *plan = NULL;
    const int to = 1 % ranks;
    char words[64];
    uint64_t one = 1, sum = 0;
    snprintf(words, sizeof words, "from rank 0 to rank %d", to);
    if (pici_comm_mpi(&comm, MPI_COMM_WORLD))
        MPI_Abort(MPI_COMM_WORLD, 1);
    enum pici_status s = pici_neighbor_plan_create(&plan, comm, 0, NULL, rank == 0, &to, NULL);
    expect(s == PICI_E_PEER && !plan ? NULL : pici_strerror(s), "an edge with one end");
    expect(strstr(pici_comm_error(comm), words) ? NULL : pici_comm_error(comm), "the edge is named");
    s = pici_all_reduce(&one, &sum, 1, PICI_U64, PICI_SUM, comm, NULL);
    expect(s || sum != (uint64_t)ranks ? pici_strerror(s) : NULL, "an all-reduce afterwards");
    pici_comm_free(comm);
}

/* Rank 0 sends more than the others expect: nobody waits for the timeout, and the next call fails everywhere. */
static void other_count(void)
{
    struct pici_comm *comm = NULL;
    struct pici_neighbor_plan *plan = NULL;
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    uint32_t send[2] = {1, 2}, recv[2];
    uint64_t one = 1, sum;
    opts.timeout_ms = 60000;
    if (pici_comm_mpi(&comm, MPI_COMM_WORLD))
        MPI_Abort(MPI_COMM_WORLD, 1);
    enum pici_status s = pici_neighbor_plan_create(&plan, comm, 1, &from, 1, &to, NULL);
    expect(s ? pici_comm_error(comm) : NULL, "a ring");
    s = pici_neighbor_all_gather(send, recv, 1 + (uint64_t)(rank == 0), PICI_U32, plan, &opts);
    expect(rank != 1 || s == PICI_E_PEER ? NULL : pici_strerror(s), "another count");
    s = pici_all_reduce(&one, &sum, 1, PICI_U64, PICI_SUM, comm, &opts);
    expect(s == PICI_E_BROKEN ? NULL : pici_strerror(s), "the call after that");
    pici_neighbor_plan_free(plan);
    pici_comm_free(comm);
}

/* Two plans and an all-reduce in flight at once, waited for in another order on each rank. Contributions of up to so
 * many elements. */
static void interleaved(int times, uint64_t most)
{
    enum { PLANS = 2 };
    struct rng r = {(uint64_t)ranks * 11 + most};
    for (int i = 0; i < times; i++) {
        static struct neighbor_case c[PLANS];
        struct neighbor_rank k[PLANS];
        struct pici_comm *comm = NULL;
        struct pici_neighbor_plan *plan[PLANS] = {NULL, NULL};
        struct pici_request *request[PLANS + 1] = {NULL};
        uint64_t one = (uint64_t)rank + 1, sum = 0;
        enum pici_status s = PICI_OK;
        if (pici_comm_mpi(&comm, MPI_COMM_WORLD))
            MPI_Abort(MPI_COMM_WORLD, 1);
        for (int j = 0; j < PLANS; j++) {
            neighbor_case_random(&c[j], &r, ranks, most);
            memcpy(c[j].node_of, c[0].node_of, sizeof c[0].node_of);
            for (int q = 0; q < ranks && most >= MANY; q++)
                c[j].count[q] = c[j].varied ? most - (uint64_t)q : most;
            if (most >= MANY)
                c[j].plan.most_bytes = c[j].opts.slice_bytes = 0;
            neighbor_rank_init(&k[j], &c[j], rank);
            s = s ? s : neighbor_rank_plan(&k[j], &c[j], comm, &plan[j]);
        }
        s = s ? s : neighbor_rank_start(&k[0], &c[0], plan[0], &request[0]);
        s = s ? s : pici_all_reduce_start(&one, &sum, 1, PICI_U64, PICI_SUM, comm, NULL, &request[PLANS]);
        s = s ? s : neighbor_rank_start(&k[1], &c[1], plan[1], &request[1]);
        for (int j = 0; j <= PLANS && !s; j++)
            s = pici_wait(&request[(rank + j) % (PLANS + 1)]);
        for (int j = 0; j < PLANS; j++) {
            expect(s ? pici_comm_error(comm) : neighbor_rank_judge(&k[j], &c[j]), neighbor_case_words(&c[j]));
            pici_neighbor_plan_free(plan[j]);
        }
        expect(!s && sum == (uint64_t)ranks * ((uint64_t)ranks + 1) / 2 ? NULL : "another sum",
               "an all-reduce between");
        pici_comm_free(comm);
        for (int j = 0; j < PLANS; j++)
            neighbor_rank_free(&k[j]);
    }
}

/* On a communicator with a topology: a plan by pici_neighbor_plan_mpi gives what MPI_Neighbor_allgather does. Of MPI's
 * slots, those of MPI_PROC_NULL are left alone. listed: slots of MPI's. */
static void on_topology(MPI_Comm graph, int listed, const char *what)
{
    enum { N = 5, MOST = 2 * NEIGHBOR_RANKS + 8 };
    struct pici_comm *comm = NULL;
    struct pici_neighbor_plan *plan = NULL;
    uint32_t send[N], theirs[MOST * N], ours[MOST * N];
    int kept = 0;
    for (int i = 0; i < N; i++)
        send[i] = (uint32_t)(1000 * rank + i + 1);
    memset(theirs, 0, sizeof theirs);
    memset(ours, 0, sizeof ours);
    MPI_Neighbor_allgather(send, N, MPI_UINT32_T, theirs, N, MPI_UINT32_T, graph);
    for (int i = 0; i < listed; i++) /* close the gaps */
        if (theirs[i * N])
            memmove(theirs + N * kept++, theirs + i * N, N * sizeof *theirs);
    memset(theirs + kept * N, 0, (size_t)(MOST - kept) * N * sizeof *theirs);
    if (pici_comm_mpi(&comm, graph))
        MPI_Abort(MPI_COMM_WORLD, 1);
    enum pici_status s = pici_neighbor_plan_mpi(&plan, comm, graph, NULL);
    MPI_Comm_free(&graph);
    s = s ? s : pici_neighbor_all_gather(send, ours, N, PICI_U32, plan, NULL);
    expect(s ? pici_comm_error(comm) : memcmp(ours, theirs, sizeof ours) ? "not what MPI gives" : NULL, what);
    pici_neighbor_plan_free(plan);
    pici_comm_free(comm);
}

static void topologies(void)
{
    const int around[2] = {(rank + 1) % ranks, (rank + ranks - 1) % ranks}, periodic[2][2] = {{0, 0}, {1, 0}};
    int weights[2] = {0}, index[NEIGHBOR_RANKS], edges[2 * NEIGHBOR_RANKS], sides[2] = {0, 0};
    MPI_Comm graph;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &around[1], weights, 1, &around[0], weights, MPI_INFO_NULL, 0,
                                   &graph);
    on_topology(graph, 1, "a distributed graph: a ring");
    for (int i = 0; i < ranks; i++) { /* rank 0 with all others: its edges come first */
        index[i] = ranks - 1 + i;
        edges[i] = i + 1 < ranks ? i + 1 : 0;
        edges[ranks + i] = 0;
    }
    MPI_Graph_create(MPI_COMM_WORLD, ranks, index, edges, 0, &graph);
    on_topology(graph, rank ? 1 : ranks - 1, "a graph: a star");
    MPI_Dims_create(ranks, 2, sides);
    for (int i = 0; i < 2; i++) {
        MPI_Cart_create(MPI_COMM_WORLD, 2, sides, periodic[i], 0, &graph);
        on_topology(graph, 4, i ? "a cylinder" : "a grid");
    }
}

/* Communicators that are no graph, on all ranks or one: an error on all, and nothing is broken. */
static void no_topology(void)
{
    struct pici_comm *comm = NULL;
    struct pici_neighbor_plan *plan = NULL;
    MPI_Comm line, half;
    uint64_t one = 1, sum = 0;
    const int yes = 1;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &yes, 0, &line);
    MPI_Cart_create(MPI_COMM_SELF, 1, &yes, &yes, 0, &half);
    if (pici_comm_mpi(&comm, MPI_COMM_WORLD))
        MPI_Abort(MPI_COMM_WORLD, 1);
    const MPI_Comm bad[] = {MPI_COMM_WORLD, rank == ranks - 1 ? MPI_COMM_NULL : line, rank ? line : half};
    for (int i = 0; i < (ranks > 1 ? 3 : 1); i++) {
        const enum pici_status s = pici_neighbor_plan_mpi(&plan, comm, bad[i], NULL);
        expect(s == PICI_E_ARG && !plan ? NULL : pici_strerror(s), "no graph of these ranks");
    }
    expect(pici_neighbor_plan_mpi(NULL, comm, line, NULL) == PICI_E_ARG ? NULL : "fine", "no plan");
    expect(pici_neighbor_plan_mpi(&plan, NULL, line, NULL) == PICI_E_ARG ? NULL : "fine", "no communicator");
    const enum pici_status s = pici_all_reduce(&one, &sum, 1, PICI_U64, PICI_SUM, comm, NULL);
    expect(s || sum != (uint64_t)ranks ? pici_strerror(s) : NULL, "an all-reduce afterwards");
    pici_comm_free(comm);
    MPI_Comm_free(&line);
    MPI_Comm_free(&half);
}

int main(int argc, char **argv)
{
    const int quick = argc > 1 && strcmp(argv[1], "--quick") == 0, full = argc > 1 && strcmp(argv[1], "--full") == 0;
    if (argc > 2 || (argc == 2 && !quick && !full)) {
        fprintf(stderr, "usage: mpi_neighbor [--quick|--full]\n");
        return 2;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > NEIGHBOR_RANKS) {
        fprintf(stderr, "mpi_neighbor: at most %d ranks\n", NEIGHBOR_RANKS);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    calls(quick ? 10 : full ? 300 : 40);
    interleaved(quick ? 3 : 10, 5000);
    if (!quick && ranks == 3)
        interleaved(1, MANY);
    topologies();
    no_topology();
    if (ranks > 1) {
        one_sided();
        other_count();
    }
    if (rank == 0)
        printf("%d passed, %d failed\n", passed, failed);
    MPI_Finalize();
    return failed != 0;
}
