/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What calls.c and failures.c share: vectors whose sums are known, checks, and running the scenario that is named. */
#ifndef PICI_TESTS_PRELOAD_CALLS_H
#define PICI_TESTS_PRELOAD_CALLS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 6000 };

static int rank, ranks, passed, failures;

static inline void check(int good, const char *what)
{
    passed += good;
    failures += !good;
    if (!good)
        printf("rank %d: FAIL %s\n", rank, what);
}

/* Element i of rank r: mostly zero, else a small whole number, negative too. */
static inline int value(int r, long i)
{
    const unsigned x = ((unsigned)i * 2654435761u + (unsigned)r * 40503u) >> 7;
    return x % 16 ? 0 : (int)(x / 16 % 13) - 6;
}

static inline int natural(int r, long i)
{
    return abs(value(r, i));
}

static inline int reduced(MPI_Op op, int (*of)(int, long), int p, long i)
{
    int all = of(0, i);
    for (int r = 1; r < p; r++) {
        const int one = of(r, i);
        all = op == MPI_SUM ? all + one : op == MPI_PROD ? all * one : (op == MPI_MIN) == (one < all) ? one : all;
    }
    return all;
}

static inline void *zeroed(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p)
        MPI_Abort(MPI_COMM_WORLD, 1);
    return p;
}

static inline void sum_on(MPI_Comm comm, const char *what)
{
    float in[2000], out[2000];
    int p, wrong = 0;
    MPI_Comm_size(comm, &p);
    for (int i = 0; i < 2000; i++)
        in[i] = (float)value(rank, i);
    MPI_Allreduce(in, out, 2000, MPI_FLOAT, MPI_SUM, comm);
    for (int i = 0; i < 2000; i++)
        wrong += out[i] != (float)reduced(MPI_SUM, value, p, i);
    check(!wrong, what);
}

struct scenario {
    const char *name;
    void (*run)(void);
};

/* Run the scenario of the list, which ends with NULL, that the program's argument names; for main to return. */
static inline int run_scenario(int argc, char **argv, const struct scenario *list)
{
    int level, all = 0;
    if (argc != 2)
        return 2;
    const int wanted = strcmp(argv[1], "single") == 0 ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE;
    MPI_Init_thread(&argc, &argv, wanted, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (strcmp(argv[1], "threads") == 0 && level < MPI_THREAD_MULTIPLE) {
        if (!rank)
            printf("skip: threads: this MPI has no MPI_THREAD_MULTIPLE\n");
    } else
        for (; list->name; list++)
            if (strcmp(argv[1], list->name) == 0) {
                list->run();
                passed += 1;
            }
    MPI_Reduce(&failures, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (!rank && !all)
        printf("%d passed\n", passed);
    MPI_Finalize();
    return failures || !passed;
}

#endif
