/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives among ranks of a simulated network: all algorithms and collectives, each result held against the model.
 * The nodes that the transport finds are those of the platform. By tests/net/scale, under smpirun.
 *     scale_coll NODES [CALLS]        NODES: ranks of each node, as 4,2,3,1; CALLS: of each kind, 3 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/comm.h"
#include "tests/util/coll.h"
#include "tests/util/mpi_tally.h"
#include "pici/mpi.h"

/* Ranks of a node are neighbours. */
static const char *judge_nodes(const struct pici_comm *comm, const char *nodes)
{
    int node = 0, at = 0;
    for (const char *p = nodes; *p; node++) {
        char *end;
        const long n = strtol(p, &end, 10);
        const int first = at;
        for (long i = 0; i < n; i++, at++) {
            if (at == ranks)
                return "fewer ranks than the platform has places";
            if ((comm->node_of[at] == comm->node_of[first]) != 1 ||
                (i == 0 && at > 0 && comm->node_of[at] == comm->node_of[at - 1]))
                return "other nodes than the platform's";
        }
        p = *end ? end + 1 : end;
    }
    return at == ranks && comm->nodes == node ? NULL : "another number of nodes than the platform's";
}

static void call(struct pici_comm *comm, const int *node_of, enum pici_collective collective, enum pici_algorithm a,
                 struct rng *rng)
{
    static const uint64_t counts[] = {1, 17, 1000, 4097};
    struct coll_case c = {.count = counts[rng_below(rng, 4)]};
    struct coll_job job;
    struct coll_rank k = {.sent = NULL};
    coll_case_random(&c, rng, ranks);
    c.collective = collective;
    c.opts.algorithm = a;
    if (!coll_is_gather(collective)) /* drawn for another collective */
        c.opts.zeros = PICI_ZEROS_EXACT;
    memcpy(c.node_of, node_of, (size_t)ranks * sizeof *node_of);
    coll_job_make(&job, &c, ranks);
    coll_rank_place(&k, &c, &job, comm);
    const enum pici_status status = coll_rank_call(&k, &c, comm);
    expect(status ? pici_comm_error(comm) : coll_rank_judge(&k, &c, &job, pici_comm_rank(comm)),
           coll_case_words(&c, ranks));
    coll_rank_free(&k);
    coll_job_free(&job);
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: scale_coll NODES [CALLS]\n");
        return 2;
    }
    const int calls = argc > 2 ? atoi(argv[2]) : 3;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    struct pici_comm *comm = NULL;
    int node_of[COLL_RANKS];
    if (ranks > COLL_RANKS || pici_comm_mpi(&comm, MPI_COMM_WORLD)) {
        printf("FAIL no communicator: %s\n", ranks > COLL_RANKS ? "too many ranks" : pici_comm_error(NULL));
        MPI_Abort(MPI_COMM_WORLD, 1);
        return 1;
    }
    expect(judge_nodes(comm, argv[1]), argv[1]);
    memcpy(node_of, comm->node_of, (size_t)ranks * sizeof *node_of);
    struct rng rng = {(uint64_t)ranks};
    for (int a = PICI_ALGO_RING; a <= coll_algorithms(); a++)
        for (int i = 0; i < COLL_COLLECTIVES; i++)
            for (int n = 0; n < calls && coll_has((enum pici_algorithm)a, coll_collectives[i]); n++)
                call(comm, node_of, coll_collectives[i], (enum pici_algorithm)a, &rng);
    pici_comm_free(comm);
    if (rank == 0)
        printf("%d passed, %d failed\n", passed, failed);
    MPI_Finalize();
    return failed != 0;
}
