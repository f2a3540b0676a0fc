/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives over MPI: each rank makes everyone's input from the same seed, and holds what it gets against the
 * model. Also calls in flight, other orders of ranks, calls that cannot be right, a rank that stays silent; and that
 * small calls allocate nothing. By tests/mpi/programs.sh, under mpirun.
 *     mpi_coll [--quick|--full]
 *         --quick: each algorithm once for each collective, and no more */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/util/coll.h"
#include "tests/util/counted.h"
#include "tests/util/mpi_tally.h"
#include "pici/mpi.h"

enum { FLIGHTS = 4 };

static struct pici_comm *open_comm(MPI_Comm over)
{
    struct pici_comm *comm = NULL;
    if (pici_comm_mpi(&comm, over)) {
        printf("FAIL pici_comm_mpi: %s\n", pici_comm_error(NULL));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return comm;
}

static void check(struct pici_comm *comm, const struct coll_case *c)
{
    struct coll_job job;
    struct coll_rank k = {.sent = NULL};
    coll_job_make(&job, c, ranks);
    coll_rank_place(&k, c, &job, comm);
    const enum pici_status status = coll_rank_call(&k, c, comm);
    expect(status ? pici_comm_error(comm) : coll_rank_judge(&k, c, &job, pici_comm_rank(comm)),
           coll_case_words(c, ranks));
    coll_rank_free(&k);
    coll_job_free(&job);
}

static uint64_t count_random(struct rng *r, int full)
{
    const uint64_t p = (uint64_t)ranks, counts[] = {0, 1, p - 1, p, p + 1, 100, 1000, 4095, 4096, 4097, 30000, 1000003};
    return counts[rng_below(r, full && rng_chance(r, 10000) && ranks < 9 ? 12 : ranks < 9 ? 11 : 10)];
}

static void calls(int times, int full)
{
    struct rng rng = {(uint64_t)ranks};
    struct pici_comm *comm = open_comm(MPI_COMM_WORLD);
    for (int i = 0; i < times; i++) {
        struct coll_case c = {.count = count_random(&rng, full)};
        coll_case_random(&c, &rng, ranks);
        c.collective = coll_collectives[i % COLL_COLLECTIVES];
        if (!coll_has(c.opts.algorithm, c.collective))
            c.opts.algorithm = coll_algorithm((uint64_t)i, c.collective);
        check(comm, &c);
    }
    pici_comm_free(comm);
}

/* Each algorithm and AUTO for each collective; AUTO with as much data as it takes two levels for, on nodes of two. */
static void each_algorithm(void)
{
    struct rng rng = {(uint64_t)ranks};
    struct pici_comm *comm = open_comm(MPI_COMM_WORLD);
    for (int k = 0; k < COLL_COLLECTIVES; k++)
        for (int a = PICI_ALGO_AUTO; a <= coll_algorithms(); a++) {
            struct coll_case c = {.count = count_random(&rng, 0)};
            coll_case_random(&c, &rng, ranks);
            c.collective = coll_collectives[k];
            c.opts.algorithm = (enum pici_algorithm)a;
            if (!coll_has(c.opts.algorithm, c.collective))
                continue;
            c.opts.zeros = coll_is_gather(c.collective) ? c.opts.zeros : PICI_ZEROS_EXACT;
            if (a == PICI_ALGO_AUTO) {
                c.dtype = PICI_F32;
                c.count = (8 << 10) * (c.collective == PICI_ALL_REDUCE ? (uint64_t)ranks : 1);
                for (int i = 0; i < ranks; i++)
                    c.node_of[i] = i / 2;
            }
            check(comm, &c);
        }
    pici_comm_free(comm);
}

/* Ranks that are not MPI_COMM_WORLD's, and two communicators in use by turns. */
static void backwards(void)
{
    MPI_Comm reversed;
    struct rng rng = {99};
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
    struct pici_comm *comm = open_comm(reversed), *other = open_comm(MPI_COMM_WORLD);
    MPI_Comm_free(&reversed); /* a duplicate was made */
    expect(pici_comm_rank(comm) == ranks - 1 - rank && pici_comm_size(comm) == ranks ? NULL : "rank", "backwards");
    for (int i = 0; i < 12; i++) {
        struct coll_case c = {.count = 500 * (uint64_t)i};
        coll_case_random(&c, &rng, ranks);
        check(i & 1 ? comm : other, &c);
    }
    pici_comm_free(comm);
    pici_comm_free(other);
}

static void in_flight(uint64_t seed)
{
    struct rng rng = {seed};
    struct coll_case c[FLIGHTS];
    struct coll_job job[FLIGHTS];
    struct coll_rank k[FLIGHTS];
    struct pici_request *request[FLIGHTS];
    struct pici_comm *comm = open_comm(MPI_COMM_WORLD);
    const char *wrong = NULL;
    memset(c, 0, sizeof c);
    memset(k, 0, sizeof k);
    for (int i = 0; i < FLIGHTS; i++) {
        c[i].count = rng_below(&rng, 9000);
        coll_case_random(&c[i], &rng, ranks);
        memcpy(c[i].node_of, c[0].node_of, sizeof c[i].node_of); /* cannot change while one is in flight */
        coll_job_make(&job[i], &c[i], ranks);
        coll_rank_place(&k[i], &c[i], &job[i], comm);
        if (coll_rank_start(&k[i], &c[i], comm, &request[i]))
            wrong = "not started";
    }
    for (int n = 0; n < FLIGHTS; n++) {
        const int i = (n + rank) % FLIGHTS; /* each rank in another order */
        enum pici_status status = PICI_OK;
        for (int done = 0; rank % 2 && !done && !status;)
            status = pici_test(&request[i], &done);
        if (rank % 2 == 0)
            status = pici_wait(&request[i]);
        const char *judged = status ? pici_comm_error(comm) : coll_rank_judge(&k[i], &c[i], &job[i], rank);
        wrong = wrong ? wrong : judged;
    }
    expect(wrong, "calls in flight");
    for (int i = 0; i < FLIGHTS; i++) {
        coll_rank_free(&k[i]);
        coll_job_free(&job[i]);
    }
    pici_comm_free(comm);
}

/* After a first call, the next ones of an algorithm ask the allocator for nothing. */
static void without_allocation(enum pici_algorithm algorithm)
{
    enum { N = 256, CALLS = 5 };
    static float send[N], recv[N];
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    struct pici_comm *comm = open_comm(MPI_COMM_WORLD);
    char found[60];
    opts.algorithm = algorithm;
    for (int i = 0; i < N; i++)
        send[i] = (float)(i % 100 == rank);
    enum pici_status status = pici_all_reduce(send, recv, N, PICI_F32, PICI_SUM, comm, &opts);
    counted.allocations = counted.frees = 0;
    counted.on = 1;
    for (int i = 0; i < CALLS && !status; i++)
        status = pici_all_reduce(send, recv, N, PICI_F32, PICI_SUM, comm, &opts);
    counted.on = 0;
    snprintf(found, sizeof found, "%d allocations, %d frees", counted.allocations, counted.frees);
    expect(status ? pici_comm_error(comm) : counted.allocations || counted.frees ? found : NULL, "small calls");
    pici_comm_free(comm);
}

/* ---- what cannot be right ---- */

enum wrong { NULL_BUFFER, OTHER_COUNT, OTHER_DTYPE, SILENT, WRONGS };

static void one_wrong(enum wrong how)
{
    enum { N = 5000 };
    static const enum pici_status want[WRONGS] = {PICI_E_ARG, PICI_E_PEER, PICI_E_PEER, PICI_E_TIMEOUT};
    static float send[N], recv[N];
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    struct pici_comm *comm = open_comm(MPI_COMM_WORLD);
    const int odd = rank == ranks / 2;
    enum pici_status status = want[how], again;
    opts.timeout_ms = how == SILENT ? 300 : 0;
    if (how != SILENT || !odd)
        status = pici_all_reduce(how == NULL_BUFFER && odd ? NULL : send, recv, N - (how == OTHER_COUNT && odd),
                                 how == OTHER_DTYPE && odd ? PICI_I32 : PICI_F32, PICI_SUM, comm, &opts);
    expect(status == want[how] ? NULL : pici_strerror(status), "one rank is wrong");
    if (how != SILENT || !odd) {
        again = pici_all_reduce(send, recv, N, PICI_F32, PICI_SUM, comm, NULL);
        expect(again == PICI_E_BROKEN ? NULL : pici_strerror(again), "after an error");
    } else {
        expect(NULL, "after an error");
    }
    pici_comm_free(comm);
}

/* A variable that makes no sense on one rank is everybody's error. */
static void environment_of_one(const char *name, const char *value, enum pici_status wanted)
{
    struct pici_comm *comm = (struct pici_comm *)&comm;
    if (rank == ranks - 1)
        setenv(name, value, 1);
    enum pici_status status = pici_comm_mpi(&comm, MPI_COMM_WORLD);
    expect(status == wanted && !comm ? NULL : pici_strerror(status), name);
    expect(rank < ranks - 1 || strstr(pici_comm_error(NULL), name) ? NULL : pici_comm_error(NULL), "named");
    unsetenv(name);
}

int main(int argc, char **argv)
{
    const int quick = argc > 1 && strcmp(argv[1], "--quick") == 0, full = argc > 1 && strcmp(argv[1], "--full") == 0;
    if (argc > 2 || (argc == 2 && !quick && !full)) {
        fprintf(stderr, "usage: mpi_coll [--quick|--full]\n");
        return 2;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > COLL_RANKS) {
        fprintf(stderr, "mpi_coll: at most %d ranks\n", COLL_RANKS);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    each_algorithm();
    if (!quick) {
        for (int a = PICI_ALGO_AUTO; a <= coll_algorithms(); a++)
            without_allocation((enum pici_algorithm)a);
        calls(full ? 600 : 120, full);
        backwards();
        for (uint64_t seed = 1; seed <= (full ? 12 : 4); seed++)
            in_flight(seed);
        for (int how = 0; how < WRONGS; how++)
            if (ranks > 1 || how == NULL_BUFFER)
                one_wrong((enum wrong)how);
        environment_of_one("PICI_WINDOW", "wide", PICI_E_ARG);
        environment_of_one("PICI_TUNE", "build/no/such/file.tune", PICI_E_IO);
    }
    if (rank == 0)
        printf("%d passed, %d failed\n", passed, failed);
    MPI_Finalize();
    return failed != 0;
}
