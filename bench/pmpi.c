/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Seconds of MPI collectives in a program without pici calls. bench/pmpi runs it with and without the preloaded
 * library.
 *   mpirun -n 4 bench_pmpi FUNCTION DENSITY,... BYTES,...
 * FUNCTION: allreduce, reduce_scatter (with equal counts), reduce_scatter_block, allgather, neighbor_allgather or
 * communicator. In neighbor_allgather each rank is a neighbour of all others. communicator: the additional time of a
 * new communicator's second all-reduce, compared with the third. With the preloaded library that is the time to make
 * pici's. BYTES: of the vector of all ranks. Its elements are floats; on each rank a fraction DENSITY is nonzero, at
 * positions of its own. Prints a line for each: function, density, bytes, seconds of the slowest rank, the median of
 * some calls. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 2, LEAST = 3, MOST = 15 };

static const double LONG_ENOUGH = 3; /* seconds for one line */

static const char *const FUNCTION[] = {
    "allreduce", "reduce_scatter", "reduce_scatter_block", "allgather", "neighbor_allgather", "communicator", NULL};

static int rank, ranks;
static int *counts;         /* of reduce_scatter, one for each rank */
static MPI_Comm all_others; /* of neighbor_allgather */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Set about n * density of n floats to 1. Returns their number. */
static long fill(float *x, long n, double density)
{
    uint64_t seed = 88172645463325252u + 1234567u * (uint64_t)rank;
    long some = 0;
    for (long i = 0; i < n; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        x[i] = (double)(seed >> 11) * 0x1p-53 < density;
        some += x[i] != 0;
    }
    return some;
}

/* The additional time of a new communicator's second call, compared with its third. */
static double second_call(const float *in, float *out, int n)
{
    MPI_Comm comm;
    double took[3];
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int i = 0; i < 3; i++) {
        MPI_Barrier(comm);
        took[i] = MPI_Wtime();
        MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, comm);
        took[i] = MPI_Wtime() - took[i];
    }
    MPI_Comm_free(&comm);
    return took[1] - took[2];
}

static void call(const char *function, const float *in, float *out, int n)
{
    if (strcmp(function, "allreduce") == 0)
        MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (strcmp(function, "allgather") == 0)
        MPI_Allgather(in, n / ranks, MPI_FLOAT, out, n / ranks, MPI_FLOAT, MPI_COMM_WORLD);
    else if (strcmp(function, "neighbor_allgather") == 0)
        MPI_Neighbor_allgather(in, n / ranks, MPI_FLOAT, out, n / ranks, MPI_FLOAT, all_others);
    else if (strcmp(function, "reduce_scatter") == 0)
        MPI_Reduce_scatter(in, out, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else
        MPI_Reduce_scatter_block(in, out, n / ranks, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* Check that ones are neither lost nor made. */
static void check(const char *function, const float *out, int n, long ones)
{
    const int scatters = strncmp(function, "reduce_scatter", strlen("reduce_scatter")) == 0;
    double all = (double)ones, found = 0;
    for (int i = 0; i < (scatters ? n / ranks : n); i++)
        found += (double)out[i];
    PMPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (strcmp(function, "neighbor_allgather") == 0)
        all -= (double)ones;
    if (scatters)
        PMPI_Allreduce(MPI_IN_PLACE, &found, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (found != all) {
        fprintf(stderr, "rank %d: %s of %d floats is wrong\n", rank, function, n);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void measure(const char *function, double density, int n)
{
    float *in = calloc((size_t)n, sizeof *in), *out = calloc((size_t)n, sizeof *out);
    double seconds[MOST], total = 0;
    int calls = 0, more = 1;
    if (!in || !out)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int r = 0; r < ranks; r++)
        counts[r] = n / ranks;
    const long ones = fill(in, strstr(function, "allgather") ? n / ranks : n, density);
    for (int i = -WARM; more; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double s = MPI_Wtime();
        if (strcmp(function, "communicator") == 0) {
            s = second_call(in, out, n);
        } else {
            call(function, in, out, n);
            s = MPI_Wtime() - s;
        }
        PMPI_Allreduce(MPI_IN_PLACE, &s, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (i < 0)
            continue;
        seconds[calls++] = s;
        total += s; /* the same on all ranks */
        more = calls < LEAST || (calls < MOST && total < LONG_ENOUGH);
    }
    check(function, out, n, ones);
    qsort(seconds, (size_t)calls, sizeof *seconds, compare);
    if (!rank)
        printf("%s %g %zu %.6f\n", function, density, (size_t)n * sizeof *in, seconds[calls / 2]);
    fflush(stdout);
    free(in);
    free(out);
}

static void connect_all(void)
{
    int *others = calloc((size_t)ranks, sizeof *others), n = 0;
    if (!others)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int r = 0; r < ranks; r++)
        if (r != rank)
            others[n++] = r;
    /* any weights: for Open MPI's MPI_UNWEIGHTED, the compiler warns of arrays that are too short */
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, n, others, others, n, others, others, MPI_INFO_NULL, 0, &all_others);
    free(others);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int known = 0;
    while (argc == 4 && FUNCTION[known] && strcmp(argv[1], FUNCTION[known]) != 0)
        known++;
    if (argc != 4 || !FUNCTION[known]) {
        if (!rank)
            fputs("usage: bench_pmpi allreduce|reduce_scatter|reduce_scatter_block|allgather|neighbor_allgather|"
                  "communicator DENSITY,... BYTES,...\n",
                  stderr);
        MPI_Finalize();
        return 2;
    }
    counts = calloc((size_t)ranks, sizeof *counts);
    if (!counts)
        MPI_Abort(MPI_COMM_WORLD, 1);
    connect_all();
    for (const char *b = argv[3]; b; b = strchr(b, ',') ? strchr(b, ',') + 1 : NULL) {
        const int n = (int)(strtol(b, NULL, 10) / (long)sizeof(float)) / ranks * ranks;
        for (const char *d = argv[2]; n > 0 && d; d = strchr(d, ',') ? strchr(d, ',') + 1 : NULL)
            measure(argv[1], strtod(d, NULL), n);
    }
    MPI_Comm_free(&all_others);
    free(counts);
    MPI_Finalize();
    return 0;
}
