/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives with lossy codecs over MPI. Each rank's result and residual have the bytes of the same calls over
 * threads. All ranks have the same results; residuals have the rounding errors. Rank 0 has the threads, and judges. By
 * tests/mpi/programs.sh, under mpirun.
 *     mpi_values [--quick|--full]       --quick: one algorithm for each codec and collective; --full: all */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/util/coll.h"
#include "tests/util/coll_values.h"
#include "tests/util/mpi_tally.h"
#include "pici/mpi.h"
#include "tests/util/util.h"
#include "values/values.h"

/* Rank 0: the same calls among threads, and what the ranks of MPI had. */
struct judge {
    struct values_case c;
    struct pici_comm *comm[COLL_RANKS];
    struct values_rank threads[COLL_RANKS], mpi[COLL_RANKS];
    enum pici_status status[COLL_RANKS];
};

static void thread_rank(void *context, int r)
{
    struct judge *const j = context;
    values_rank_make(&j->threads[r], &j->c, r, ranks);
    j->status[r] = values_rank_call(&j->threads[r], &j->c, j->comm[r]);
}

static size_t received(const struct values_rank *k, const struct values_case *c)
{
    return (size_t)k->receives * pici_dtype_width(c->dtype);
}

static size_t lost(const struct values_rank *k, const struct values_case *c)
{
    return c->residual ? (size_t)k->sends * pici_dtype_width(c->dtype) : 0;
}

/* Collective. Every rank's results and residuals, to rank 0. */
static void collect(struct judge *j, const struct values_rank *own)
{
    const struct values_case *const c = &j->c;
    if (rank > 0) {
        MPI_Send(own->recv, (int)received(own, c), MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        MPI_Send(own->residual, (int)lost(own, c), MPI_BYTE, 0, 2, MPI_COMM_WORLD);
        return;
    }
    for (int r = 0; r < ranks; r++) {
        struct values_rank *const k = &j->mpi[r];
        values_rank_make(k, c, r, ranks);
        if (r == 0) {
            memcpy(k->recv, own->recv, received(k, c));
            if (c->residual)
                memcpy(k->residual, own->residual, lost(k, c));
            continue;
        }
        MPI_Recv(k->recv, (int)received(k, c), MPI_BYTE, r, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(k->residual, (int)lost(k, c), MPI_BYTE, r, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

/* Of rank 0, after collect(): what is wrong with anyone's, or NULL. */
static const char *judged(struct judge *j)
{
    const struct values_case *const c = &j->c;
    coll_threads(ranks, thread_rank, j);
    for (int r = 0; r < ranks; r++) {
        const struct values_rank *const k = &j->mpi[r], *const t = &j->threads[r];
        if (j->status[r])
            return pici_comm_error(j->comm[r]);
        if (c->collective != PICI_REDUCE_SCATTER && memcmp(k->recv, j->mpi[0].recv, received(k, c)) != 0)
            return "ranks have different results";
        if (memcmp(k->recv, t->recv, received(k, c)) != 0)
            return "other results than among threads";
        if (c->residual && memcmp(k->residual, t->residual, lost(k, c)) != 0)
            return "other residuals than among threads";
    }
    return c->residual ? values_conserved(c, j->mpi, ranks) : NULL;
}

/* A call of the communicator, which has made as many as those of the threads: random numbers depend on that. */
static void check(struct pici_comm *comm, struct judge *j)
{
    const struct values_case *const c = &j->c;
    struct values_rank own;
    values_rank_make(&own, c, rank, ranks);
    const enum pici_status status = values_rank_call(&own, c, comm);
    const char *wrong = status ? pici_comm_error(comm) : NULL;
    collect(j, &own);
    if (rank == 0) {
        const char *const others = judged(j);
        wrong = wrong ? wrong : others;
    }
    expect(wrong, values_words(c, ranks));
    values_rank_free(&own);
    for (int r = 0; rank == 0 && r < ranks; r++) {
        values_rank_free(&j->threads[r]);
        values_rank_free(&j->mpi[r]);
    }
}

/* The i-th codec, in the `nth` of its calls by an algorithm. */
static struct values_case some_case(int i, enum pici_collective collective, enum pici_algorithm algorithm, int nth)
{
    struct values_case c = {.collective = collective, .algorithm = algorithm, .format = PICI_AUTO};
    struct rng r = {(uint64_t)(1000 * i + 100 * (int)collective + nth)};
    c.values = values_codec(i, &c.dtype);
    if (c.values.codec == PICI_VALUES_QSGD && nth % 2)
        c.values.rounding = PICI_ROUND_RANDOM;
    c.values.phases = (unsigned)rng_below(&r, 4);
    c.seed = 1 + rng_below(&r, 1000);
    c.op = collective == PICI_ALL_GATHER ? PICI_SUM : (enum pici_op)rng_below(&r, 2);
    c.data = (enum values_data)rng_below(&r, DATA_KINDS);
    c.residual = c.data != DATA_SPECIAL; /* what is not finite is not accumulated */
    c.in_place = !c.residual && collective != PICI_REDUCE_SCATTER;
    c.window = 1 + (int)rng_below(&r, 3);
    const uint64_t more = ranks > 4 ? 60 : 3240; /* several slices of a segment */
    c.count = 420 + rng_below(&r, 4) * more * (collective == PICI_ALL_REDUCE ? (uint64_t)ranks : 1);
    return c;
}

static int has(const struct values_case *c)
{
    struct values v;
    return pici_values_resolve(&v, &c->values, c->dtype, c->op) == PICI_OK;
}

static void calls(struct judge *j, int quick, int full)
{
    struct pici_comm *comm = NULL;
    const int algorithms = coll_algorithms(), most = quick ? 1 : full ? algorithms : 2;
    if (pici_comm_mpi(&comm, MPI_COMM_WORLD) || (rank == 0 && pici_comm_threads(j->comm, ranks))) {
        printf("FAIL rank %d: no communicator: %s\n", rank, pici_comm_error(NULL));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int n = 0; n < values_codecs() * 3; n++) {
        const int i = n / 3;
        const enum pici_collective collective = (enum pici_collective)(1 + n % 3);
        for (int k = 0, nth = 0; k < algorithms && nth < most; k++) {
            const enum pici_algorithm algorithm = (enum pici_algorithm)(1 + (n + ranks + k) % algorithms);
            j->c = some_case(i, collective, algorithm, nth);
            if (!coll_has(algorithm, collective) || !has(&j->c))
                continue;
            check(comm, j);
            nth++;
        }
    }
    pici_comm_free(comm);
    for (int r = 0; rank == 0 && r < ranks; r++)
        pici_comm_free(j->comm[r]);
}

int main(int argc, char **argv)
{
    static struct judge judge;
    const int quick = argc > 1 && strcmp(argv[1], "--quick") == 0, full = argc > 1 && strcmp(argv[1], "--full") == 0;
    if (argc > 2 || (argc == 2 && !quick && !full)) {
        fprintf(stderr, "usage: mpi_values [--quick|--full]\n");
        return 2;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > COLL_RANKS) {
        fprintf(stderr, "mpi_values: at most %d ranks\n", COLL_RANKS);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    calls(&judge, quick, full);
    if (rank == 0)
        printf("%d passed, %d failed\n", passed, failed);
    MPI_Finalize();
    return failed != 0;
}
