/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives with packed messages beside those without, among ranks over sockets. In a repetition each kind of call
 * follows the others of its row, so that other programs disturb all alike; medians of the slowest rank's seconds, and
 * how many times as fast as the fastest of the dense algorithms, and as without packing.
 *   packed_coll [-b BYTES] [-n REPETITIONS]     bench/net with 4 200mbit bench/net start 4 build/packed_coll */
#define _GNU_SOURCE
#include <getopt.h>

#include "common.h"
#include "pici/coll.h"
#include "pici/socket.h"

enum { MAX_REPS = 100, KINDS = 5 };

/* The first three are dense. */
static const struct {
    const char *name;
    enum pici_algorithm algorithm;
    enum pici_format format;
    enum pici_packing pack;
} kinds[KINDS] = {{"ring", PICI_ALGO_RING, PICI_DENSE, PICI_PACKING_NONE},
                  {"recursive", PICI_ALGO_RECURSIVE, PICI_DENSE, PICI_PACKING_NONE},
                  {"split", PICI_ALGO_SPLIT, PICI_DENSE, PICI_PACKING_NONE},
                  {"none", PICI_ALGO_AUTO, PICI_AUTO, PICI_PACKING_NONE},
                  {"auto", PICI_ALGO_AUTO, PICI_AUTO, PICI_PACKING_AUTO}};

static struct pici_comm *comm;

static void check(enum pici_status status)
{
    if (status)
        die(pici_comm_error(comm));
}

/* The largest of all ranks' numbers; all ranks have come. */
static double largest(double number)
{
    double most;
    check(pici_all_reduce(&number, &most, 1, PICI_F64, PICI_MAX, comm, NULL));
    return most;
}

static void measure(int gather, enum pici_dtype dtype, double zeros, size_t bytes, int reps)
{
    const int rank = pici_comm_rank(comm), ranks = pici_comm_size(comm);
    const uint64_t count = bytes / pici_dtype_width(dtype), each = count / (uint64_t)ranks;
    uint8_t *send = buffer(bytes, 0), *recv = buffer(bytes, 0);
    double took[KINDS][MAX_REPS], sent[KINDS], median_of[KINDS];
    fill_normal(send, count, dtype, zeros, 1 + (uint64_t)rank);
    for (int r = -1; r < reps; r++) /* the first only makes what calls need */
        for (int k = 0; k < KINDS; k++) {
            struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
            struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
            opts.algorithm = kinds[k].algorithm;
            opts.format = kinds[k].format;
            opts.pack = kinds[k].pack;
            opts.stats = &stats;
            largest(0);
            const double begin = seconds(CLOCK_MONOTONIC);
            check(gather ? pici_all_gather(send, recv, each, dtype, comm, &opts)
                         : pici_all_reduce(send, recv, count, dtype, PICI_SUM, comm, &opts));
            const double slowest = largest(seconds(CLOCK_MONOTONIC) - begin);
            took[k][r < 0 ? 0 : r] = slowest;
            sent[k] = (double)stats.wire_bytes;
        }
    double dense = INFINITY;
    for (int k = 0; k < KINDS; k++) {
        median_of[k] = median(took[k], (size_t)reps);
        dense = k < 3 && median_of[k] < dense ? median_of[k] : dense;
    }
    if (!rank)
        printf("%-10s %-5s %3.0f%%  %8.4f %8.4f %8.4f %8.4f %8.4f  %6.3f %6.3f  %.3f\n",
               gather ? "all-gather" : "all-reduce", pici_dtype_name(dtype), 100 * zeros, median_of[0], median_of[1],
               median_of[2], median_of[3], median_of[4], dense / median_of[4], median_of[3] / median_of[4],
               sent[4] / sent[3]);
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
    if (pici_comm_rendezvous(&comm, NULL, -1, 0, NULL))
        die(pici_comm_error(NULL));
    if (pici_comm_rank(comm) == 0)
        printf(
            "# %zu bytes, %d ranks, %d repetitions. Seconds; times as fast as the best dense one, as without packing; "
            "bytes sent, of those without\n%-10s %-5s %4s  %8s %8s %8s %8s %8s  %6s %6s  %s\n",
            bytes, pici_comm_size(comm), reps, "", "dtype", "zero", kinds[0].name, kinds[1].name, kinds[2].name,
            kinds[3].name, kinds[4].name, "dense", "none", "bytes");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int gather = 0; gather < 2; gather++)
            measure(gather, rows[i].dtype, rows[i].zeros, bytes, reps);
    pici_comm_free(comm);
    return 0;
}
