/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Neighbourhood all-gathers over MPI, beside a plain copy and beside MPI_Neighbor_allgatherv on the same graph. By
 * tests/mpi.sh, under mpirun.
 *     mpi_neighbor [--quick|--full]       --quick: ten graphs */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_tally.h"
#include "neighbor_util.h"
#include "pici/mpi.h"

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
    if (ranks > 1) {
        one_sided();
        other_count();
    }
    if (rank == 0)
        printf("%d passed, %d failed\n", passed, failed);
    MPI_Finalize();
    return failed != 0;
}
