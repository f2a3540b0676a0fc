/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives with packed messages beside those without, among ranks over sockets. Built with BENCH_MPI, over MPI and
 * beside MPI's own. In a repetition, each kind of call follows the others of its row, so that other programs disturb
 * all alike. Prints medians of the slowest rank's seconds, and speedups over the fastest dense algorithm and over no
 * packing.
 *   packed_coll [-b BYTES] [-n REPETITIONS]     bench/net with 4 200mbit bench/net start 4 build/packed_coll
 * Over MPI pici packs where it knows the bandwidth: PICI_INTER_BANDWIDTH=25e6. */
#define _GNU_SOURCE
#include <getopt.h>

#include "common.h"
#include "pici/coll.h"
#ifdef BENCH_MPI
#include "pici/mpi.h"
#else
#include "pici/socket.h"
#endif

enum { MAX_REPS = 100 };

/* Kinds before NONE are dense. */
enum {
    RING,
    RECURSIVE,
    SPLIT,
#ifdef BENCH_MPI
    MPI_OWN, /* MPI's collective */
#endif
    NONE,
    AUTO,
    KINDS
};
static const struct {
    const char *name;
    enum pici_algorithm algorithm;
    enum pici_format format;
    enum pici_packing pack;
} kinds[KINDS] = {[RING] = {"ring", PICI_ALGO_RING, PICI_DENSE, PICI_PACKING_NONE},
                  [RECURSIVE] = {"recursive", PICI_ALGO_RECURSIVE, PICI_DENSE, PICI_PACKING_NONE},
                  [SPLIT] = {"split", PICI_ALGO_SPLIT, PICI_DENSE, PICI_PACKING_NONE},
#ifdef BENCH_MPI
                  [MPI_OWN] = {.name = "MPI"},
#endif
                  [NONE] = {"none", PICI_ALGO_AUTO, PICI_AUTO, PICI_PACKING_NONE},
                  [AUTO] = {"auto", PICI_ALGO_AUTO, PICI_AUTO, PICI_PACKING_AUTO}};

static struct pici_comm *comm;

static void check(enum pici_status status)
{
    if (status)
        die(pici_comm_error(comm));
}

/* The largest of all ranks' numbers. Also a barrier. */
static double largest(double number)
{
    double most;
    check(pici_all_reduce(&number, &most, 1, PICI_F64, PICI_MAX, comm, NULL));
    return most;
}

/* Open the communicator. */
static void open_comm(void)
{
#ifdef BENCH_MPI
    MPI_Init(NULL, NULL);
    const enum pici_status status = pici_comm_mpi(&comm, MPI_COMM_WORLD);
#else
    const enum pici_status status = pici_comm_rendezvous(&comm, NULL, -1, 0, NULL);
#endif
    if (status)
        die(pici_comm_error(NULL));
}

static void close_comm(void)
{
    pici_comm_free(comm);
#ifdef BENCH_MPI
    MPI_Finalize();
#endif
}

/* One call of kind k. each: elements that a rank contributes to a gather. */
static void call(int k, int gather, const void *send, void *recv, uint64_t count, uint64_t each, enum pici_dtype dtype,
                 struct pici_coll_stats *stats)
{
#ifdef BENCH_MPI
    if (k == MPI_OWN) { /* MPI has no bf16: integers of the same size take the same time to add */
        const MPI_Datatype type = dtype == PICI_F32 ? MPI_FLOAT : MPI_UINT16_T;
        if (gather ? MPI_Allgather(send, (int)each, type, recv, (int)each, type, MPI_COMM_WORLD)
                   : MPI_Allreduce(send, recv, (int)count, type, MPI_SUM, MPI_COMM_WORLD))
            die("MPI's collective failed");
        return;
    }
#endif
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    opts.algorithm = kinds[k].algorithm;
    opts.format = kinds[k].format;
    opts.pack = kinds[k].pack;
    opts.stats = stats;
    check(gather ? pici_all_gather(send, recv, each, dtype, comm, &opts)
                 : pici_all_reduce(send, recv, count, dtype, PICI_SUM, comm, &opts));
}

static void measure(int gather, enum pici_dtype dtype, double zeros, size_t bytes, int reps)
{
    const int rank = pici_comm_rank(comm), ranks = pici_comm_size(comm);
    const uint64_t count = bytes / pici_dtype_width(dtype), each = count / (uint64_t)ranks;
    uint8_t *send = buffer(bytes, 0), *recv = buffer(bytes, 0);
    double took[KINDS][MAX_REPS], sent[KINDS], median_of[KINDS];
    fill_normal(send, count, dtype, zeros, 1 + (uint64_t)rank);
    for (int r = -1; r < reps; r++) /* the first call only allocates */
        for (int k = 0; k < KINDS; k++) {
            struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
            largest(0);
            const double begin = seconds(CLOCK_MONOTONIC);
            call(k, gather, send, recv, count, each, dtype, &stats);
            const double slowest = largest(seconds(CLOCK_MONOTONIC) - begin);
            took[k][r < 0 ? 0 : r] = slowest;
            sent[k] = (double)stats.wire_bytes;
        }
    double dense = INFINITY;
    for (int k = 0; k < KINDS; k++) {
        median_of[k] = median(took[k], (size_t)reps);
        dense = k < NONE && median_of[k] < dense ? median_of[k] : dense;
    }
    if (!rank) {
        printf("%-10s %-5s %3.0f%% ", gather ? "all-gather" : "all-reduce", pici_dtype_name(dtype), 100 * zeros);
        for (int k = 0; k < KINDS; k++)
            printf(" %9.4f", median_of[k]);
        printf("  %6.3f %6.3f  %.3f\n", dense / median_of[AUTO], median_of[NONE] / median_of[AUTO],
               sent[AUTO] / sent[NONE]);
    }
    fflush(stdout);
    free(send);
    free(recv);
}

int main(int argc, char **argv)
{
    static const struct {
        enum pici_dtype dtype;
        double zeros;
    } rows[] = {{PICI_BF16, 0}, {PICI_F32, 0}, {PICI_F32, 0.9}};
    size_t bytes = 32 << 20;
    int reps = 5, option;
    while ((option = getopt(argc, argv, "b:n:")) > 0)
        if (option == 'b')
            bytes = parse_size(optarg);
        else if (option == 'n')
            reps = atoi(optarg);
        else
            die("packed_coll [-b BYTES] [-n REPETITIONS]");
    if (reps < 1 || reps > MAX_REPS || bytes < 4096)
        die("out of range: BYTES or REPETITIONS");
    open_comm();
    if (pici_comm_rank(comm) == 0) {
        printf(
            "# %zu bytes, %d ranks, %d repetitions. Seconds; times as fast as the best dense one, as without packing; "
            "bytes sent, of those without\n%-10s %-5s %4s ",
            bytes, pici_comm_size(comm), reps, "", "dtype", "zero");
        for (int k = 0; k < KINDS; k++)
            printf(" %9s", kinds[k].name);
        printf("  %6s %6s  %s\n", "dense", "none", "bytes");
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int gather = 0; gather < 2; gather++)
            measure(gather, rows[i].dtype, rows[i].zeros, bytes, reps);
    close_comm();
    return 0;
}
