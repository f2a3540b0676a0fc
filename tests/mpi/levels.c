/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators on two levels, one of them over MPI: MPI inside nodes and sockets between, and the other way round.
 * Every collective with each algorithm against the model. By tests/mpi/programs.sh, under mpirun.
 *     mpi_levels [--quick|--full]     --quick: MPI inside only; --full: as without */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/util/coll.h"
#include "tests/util/mpi_tally.h"
#include "tests/util/socket.h"
#include "pici/mpi.h"
#include "pici/socket.h"

enum { NODES = 2 };

static int node_of(int of)
{
    return of % NODES;
}

/* Among the ranks of comm: they meet at a port that its rank 0 finds. */
static enum pici_status over_sockets(struct pici_comm **out, MPI_Comm comm)
{
    char address[40], token[40];
    int at[2] = {socket_port(0), (int)getpid()}, own, size;
    MPI_Comm_rank(comm, &own);
    MPI_Comm_size(comm, &size);
    MPI_Bcast(at, 2, MPI_INT, 0, comm);
    snprintf(address, sizeof address, "127.0.0.1:%d", at[0]);
    snprintf(token, sizeof token, "levels %d", at[1]);
    return pici_comm_rendezvous(out, address, own, size, token);
}

static struct pici_comm *make(int mpi_inside)
{
    struct pici_comm *inner = NULL, *outer = NULL, *comm = NULL;
    MPI_Comm node;
    MPI_Comm_split(MPI_COMM_WORLD, node_of(rank), rank, &node);
    enum pici_status status = mpi_inside ? pici_comm_mpi(&inner, node) : over_sockets(&inner, node);
    expect(status ? pici_comm_error(NULL) : NULL, "inside nodes");
    if (!failed)
        status = mpi_inside ? over_sockets(&outer, MPI_COMM_WORLD) : pici_comm_mpi(&outer, MPI_COMM_WORLD);
    expect(status ? pici_comm_error(NULL) : NULL, "between nodes");
    if (!failed)
        status = pici_comm_levels(&comm, inner, outer);
    expect(comm ? NULL : pici_comm_error(NULL), "on two levels");
    MPI_Comm_free(&node);
    if (!comm) {
        pici_comm_free(inner);
        pici_comm_free(outer);
    }
    return comm;
}

static void check(struct pici_comm *comm, const struct coll_case *c)
{
    struct coll_job job;
    struct coll_rank own = {0};
    coll_job_make(&job, c, ranks);
    coll_rank_place(&own, c, &job, comm);
    const enum pici_status status = coll_rank_call(&own, c, comm);
    expect(status ? pici_comm_error(comm) : coll_rank_judge(&own, c, &job, rank), coll_case_words(c, ranks));
    coll_rank_free(&own);
    coll_job_free(&job);
}

static void calls(struct pici_comm *comm, uint64_t seed)
{
    struct rng rng = {seed};
    for (int a = 0; a <= coll_algorithms() && !failed; a++)
        for (int i = 0; i < COLL_COLLECTIVES && !failed; i++) {
            struct coll_case c;
            if (!coll_has((enum pici_algorithm)a, coll_collectives[i]))
                continue;
            coll_case_random(&c, &rng, ranks);
            c.collective = coll_collectives[i];
            c.opts.algorithm = (enum pici_algorithm)a;
            c.count = rng_below(&rng, 3000);
            coll_case_options(&c, &rng, ranks);
            for (int r = 0; r < ranks; r++)
                c.node_of[r] = node_of(r);
            check(comm, &c);
        }
}

int main(int argc, char **argv)
{
    const int quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > COLL_RANKS) {
        fprintf(stderr, "mpi_levels: at most %d ranks\n", COLL_RANKS);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int mpi_inside = 1; mpi_inside >= quick; mpi_inside--) {
        struct pici_comm *comm = make(mpi_inside);
        if (comm)
            calls(comm, (uint64_t)(2 * ranks + mpi_inside));
        MPI_Barrier(MPI_COMM_WORLD); /* so that nobody is gone before the last call has ended on all */
        pici_comm_free(comm);
    }
    if (rank == 0)
        printf("%d passed, %d failed\n", passed, failed);
    MPI_Finalize();
    return failed != 0;
}
