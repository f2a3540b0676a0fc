/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Sparse times dense: Z = X Y on several ranks. Each rank has a stripe of rows of X, Y and Z. A rank needs the stripe
 * of Y of another one if its rows of X have a nonzero in that one's columns: that is the graph of a neighbourhood
 * all-gather. It is run by both routes; Z is compared with the product of one rank.
 *
 *     spmm [OPTION]... [FILE.mtx]...        ranks are threads
 *     mpirun -n P spmm [OPTION]... [FILE]   built with PICI_EXAMPLE_MPI: ranks are processes
 *
 * Without a file: two generated matrices, one as of a body cut into finite elements, one as of a coupled field. */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <pici/neighbor.h>

#include "matrix_market.h"
#ifdef PICI_EXAMPLE_MPI
#include <pici/mpi.h>
#endif

enum { MAX_RANKS = 1024 };

struct options {
    int ranks, columns, times, per_node;
    double zeros; /* share of the elements of Y */
};

static int own_rank; /* where ranks are processes */

static void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void complain(const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "spmm: %s\n", text);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *allocate(size_t n, size_t each)
{
    void *p = calloc(n ? n : 1, each);
    if (!p) {
        complain("no memory");
        exit(1);
    }
    return p;
}

/* ---- stripes */

/* Row i belongs to rank floor(i * ranks / rows). The first row of a rank's stripe. */
static uint32_t stripe(uint32_t rows, int ranks, int rank)
{
    return (uint32_t)(((uint64_t)rank * rows + (uint64_t)ranks - 1) / (uint64_t)ranks);
}

static int owner(uint32_t rows, int ranks, uint32_t row)
{
    return (int)((uint64_t)row * (uint64_t)ranks / rows);
}

/* An element of Y, by its place: a small integer, so that sums are exact in any order. */
static double element(uint64_t i, double zeros)
{
    uint64_t z = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-53 < zeros ? 0 : (double)(1 + (z & 63));
}

/* Whether rank `to` needs the stripe of Y of each rank. */
static void find_needs(const struct matrix *x, int ranks, int to, unsigned char *needs)
{
    memset(needs, 0, (size_t)ranks);
    for (uint32_t row = stripe(x->rows, ranks, to); row < stripe(x->rows, ranks, to + 1); row++)
        for (size_t i = x->begin[row]; i < x->begin[row + 1]; i++)
            needs[owner(x->rows, ranks, x->column[i])] = 1;
}

/* ---- a job, shared by ranks that are threads */

struct job {
    const struct matrix *x;
    struct options o;
    unsigned char *needs; /* [ranks][ranks]: to, from */
    double *whole;        /* the product of one rank, [rows][columns] */
    struct pici_comm **comms;
    pthread_mutex_t lock;
    int failed;
    /* of each route, of all ranks together; slowest */
    uint64_t wire[3], between[3];
    double seconds[3];
    struct pici_neighbor_info info[3];
};

static void fail(struct job *job, int rank, const char *what, enum pici_status s, const struct pici_comm *comm)
{
    pthread_mutex_lock(&job->lock);
    if (!job->failed++)
        complain("rank %d: %s: %s %s", rank, what, pici_strerror(s), pici_comm_error(comm));
    pthread_mutex_unlock(&job->lock);
}

/* The product of rows [first, end), where at[q] has the stripe of Y of rank q. */
static void multiply(const struct job *job, uint32_t first, uint32_t end, const double *const *at, double *z)
{
    const struct matrix *x = job->x;
    const size_t columns = (size_t)job->o.columns;
    for (uint32_t row = first; row < end; row++, z += columns) {
        for (size_t k = 0; k < columns; k++)
            z[k] = 0;
        for (size_t i = x->begin[row]; i < x->begin[row + 1]; i++) {
            const int q = owner(x->rows, job->o.ranks, x->column[i]);
            const double *y = at[q] + (x->column[i] - stripe(x->rows, job->o.ranks, q)) * columns;
            for (size_t k = 0; k < columns; k++)
                z[k] += x->value[i] * y[k];
        }
    }
}

static void fill(const struct job *job, uint32_t first, uint32_t end, double *y)
{
    const uint64_t columns = (uint64_t)job->o.columns;
    for (uint64_t i = first * columns; i < end * columns; i++)
        *y++ = element(i, job->o.zeros);
}

/* One rank, one route. Returns whether all went well on this rank. */
static int run_route(struct job *job, int rank, struct pici_comm *comm, enum pici_route route)
{
    const struct options *o = &job->o;
    const uint32_t rows = job->x->rows, first = stripe(rows, o->ranks, rank), end = stripe(rows, o->ranks, rank + 1);
    const size_t columns = (size_t)o->columns, n = (end - first) * columns;
    int *source = allocate((size_t)o->ranks, sizeof *source), sources = 0;
    int *destination = allocate((size_t)o->ranks, sizeof *destination), destinations = 0;
    uint64_t *counts = allocate((size_t)o->ranks, sizeof *counts), *displs = allocate((size_t)o->ranks, sizeof *displs);
    const double **at = allocate((size_t)o->ranks, sizeof *at);
    uint64_t all = 0;
    for (int q = 0; q < o->ranks; q++) {
        if (job->needs[(size_t)rank * (size_t)o->ranks + (size_t)q]) {
            counts[sources] = (stripe(rows, o->ranks, q + 1) - stripe(rows, o->ranks, q)) * columns;
            displs[sources] = all;
            all += counts[sources];
            source[sources++] = q;
        }
        if (job->needs[(size_t)q * (size_t)o->ranks + (size_t)rank])
            destination[destinations++] = q;
    }
    double *y = allocate(n, sizeof *y), *gathered = allocate((size_t)all, sizeof *gathered);
    double *z = allocate(n, sizeof *z);
    fill(job, first, end, y);
    for (int i = 0; i < sources; i++)
        at[source[i]] = gathered + displs[i];

    struct pici_neighbor_plan *plan = NULL;
    struct pici_neighbor_opts po = PICI_NEIGHBOR_OPTS_INIT;
    struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    struct pici_neighbor_info info = PICI_NEIGHBOR_INFO_INIT;
    uint64_t slowest_stripe = 0;
    for (int q = 0; q < o->ranks; q++) {
        const uint64_t its = (stripe(rows, o->ranks, q + 1) - stripe(rows, o->ranks, q)) * columns * sizeof *y;
        slowest_stripe = its > slowest_stripe ? its : slowest_stripe;
    }
    po.route = route;
    po.most_bytes = slowest_stripe;
    opts.stats = &stats;
    enum pici_status s = pici_neighbor_plan_create(&plan, comm, sources, source, destinations, destination, &po);
    if (!s)
        s = pici_neighbor_plan_info(plan, &info);
    double best = 1e300;
    for (int i = 0; i < o->times && !s; i++) {
        uint8_t one = 1, sum = 0; /* begin together */
        s = pici_all_reduce(&one, &sum, 1, PICI_U8, PICI_MAX, comm, NULL);
        const double begin = now();
        if (!s)
            s = pici_neighbor_all_gatherv(y, n, gathered, counts, displs, PICI_F64, plan, &opts);
        best = now() - begin < best ? now() - begin : best;
    }
    int good = !s;
    if (s)
        fail(job, rank, "gathering Y", s, comm);
    if (!s && sources)
        multiply(job, first, end, at, z);
    if (!s && n && memcmp(z, job->whole + first * columns, n * sizeof *z) != 0) {
        fail(job, rank, "Z differs from the product of one rank", PICI_OK, comm);
        good = 0;
    }
    pthread_mutex_lock(&job->lock);
    job->wire[route] += stats.wire_bytes;
    job->between[route] += stats.inter_bytes;
    job->seconds[route] = best > job->seconds[route] ? best : job->seconds[route];
    job->info[route] = info;
    pthread_mutex_unlock(&job->lock);
    pici_neighbor_plan_free(plan);
    free(source);
    free(destination);
    free(counts);
    free(displs);
    free(at);
    free(y);
    free(gathered);
    free(z);
    return good;
}

/* Whether all went well on all ranks: the same answer on each, since after a failure the next collective fails
 * everywhere. */
static int all_good(struct pici_comm *comm, int good)
{
    uint8_t bad = !good, any = 1;
    return !pici_all_reduce(&bad, &any, 1, PICI_U8, PICI_MAX, comm, NULL) && !any;
}

static void run_rank(struct job *job, int rank, struct pici_comm *comm)
{
    int *node_of = allocate((size_t)job->o.ranks, sizeof *node_of);
    for (int i = 0; i < job->o.ranks; i++)
        node_of[i] = i / job->o.per_node;
    const enum pici_status s = job->o.per_node < job->o.ranks ? pici_comm_set_nodes(comm, node_of) : PICI_OK;
    if (s)
        fail(job, rank, "node map", s, comm);
    if (all_good(comm, !s) && all_good(comm, run_route(job, rank, comm, PICI_ROUTE_DIRECT)))
        run_route(job, rank, comm, PICI_ROUTE_HALVING);
    free(node_of);
}

/* ---- one matrix */

static void print_result(const struct job *job, const char *name)
{
    static const char *const routes[] = {"", "direct", "halving"};
    printf("%s: %u rows, %zu nonzeros, %d columns of Y, %d ranks, %d a node: Z is right\n", name, job->x->rows,
           job->x->begin[job->x->rows], job->o.columns, job->o.ranks, job->o.per_node);
    for (int r = PICI_ROUTE_DIRECT; r <= PICI_ROUTE_HALVING; r++)
        printf("  %-8s %6llu messages, %6llu blocks between nodes (least %llu), %10llu bytes, %10llu between nodes, "
               "%9.6f s\n",
               routes[r], (unsigned long long)job->info[r].messages, (unsigned long long)job->info[r].inter_blocks,
               (unsigned long long)job->info[r].least_inter, (unsigned long long)job->wire[r],
               (unsigned long long)job->between[r], job->seconds[r]);
}

static void open_job(struct job *job, const struct matrix *x, const struct options *o)
{
    *job = (struct job){.x = x, .o = *o};
    pthread_mutex_init(&job->lock, NULL);
    job->needs = allocate((size_t)o->ranks * (size_t)o->ranks, 1);
    for (int i = 0; i < o->ranks; i++)
        find_needs(x, o->ranks, i, job->needs + (size_t)i * (size_t)o->ranks);
    const size_t n = (size_t)x->rows * (size_t)o->columns;
    double *y = allocate(n, sizeof *y);
    const double **at = allocate((size_t)o->ranks, sizeof *at);
    job->whole = allocate(n, sizeof *job->whole);
    fill(job, 0, x->rows, y);
    for (int q = 0; q < o->ranks; q++)
        at[q] = y + (size_t)stripe(x->rows, o->ranks, q) * (size_t)o->columns;
    multiply(job, 0, x->rows, at, job->whole);
    free(y);
    free(at);
}

static void close_job(struct job *job)
{
    free(job->needs);
    free(job->whole);
    pthread_mutex_destroy(&job->lock);
}

#ifdef PICI_EXAMPLE_MPI
static int run_job(const struct matrix *x, const struct options *o, const char *name)
{
    struct job job;
    struct pici_comm *comm = NULL;
    open_job(&job, x, o);
    enum pici_status s = pici_comm_mpi(&comm, MPI_COMM_WORLD);
    if (s)
        fail(&job, own_rank, "pici_comm_mpi", s, NULL);
    else
        run_rank(&job, own_rank, comm);
    MPI_Allreduce(MPI_IN_PLACE, &job.failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, job.wire, 3, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, job.between, 3, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, job.seconds, 3, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (!job.failed && own_rank == 0)
        print_result(&job, name);
    pici_comm_free(comm);
    close_job(&job);
    return !job.failed;
}
#else
struct thread {
    pthread_t id;
    struct job *job;
    int rank;
};

static void *thread_main(void *arg)
{
    struct thread *t = arg;
    run_rank(t->job, t->rank, t->job->comms[t->rank]);
    return NULL;
}

static int run_job(const struct matrix *x, const struct options *o, const char *name)
{
    struct job job;
    open_job(&job, x, o);
    job.comms = allocate((size_t)o->ranks, sizeof(struct pici_comm *));
    struct thread *threads = allocate((size_t)o->ranks, sizeof *threads);
    enum pici_status s = pici_comm_threads(job.comms, o->ranks);
    if (s)
        fail(&job, 0, "pici_comm_threads", s, NULL);
    for (int i = 0; i < o->ranks && !s; i++) {
        threads[i] = (struct thread){.job = &job, .rank = i};
        if (pthread_create(&threads[i].id, NULL, thread_main, &threads[i])) {
            complain("cannot start a thread");
            exit(1);
        }
    }
    for (int i = 0; i < o->ranks && !s; i++)
        pthread_join(threads[i].id, NULL);
    if (!job.failed)
        print_result(&job, name);
    for (int i = 0; i < o->ranks && !s; i++)
        pici_comm_free(job.comms[i]);
    free(job.comms);
    free(threads);
    close_job(&job);
    return !job.failed;
}
#endif

/* ---- the command line */

static void usage(FILE *to)
{
    fprintf(to, "usage: spmm [OPTION]... [FILE.mtx]...\n"
                "Multiply sparse matrices (Matrix Market files; without one, two generated ones) with a dense one on\n"
                "several ranks, by neighbourhood all-gathers.\n\n"
#ifndef PICI_EXAMPLE_MPI
                "  -t, --threads N     ranks (default 16)\n"
#endif
                "  -n, --per-node N    ranks of a node (default 4)\n"
                "  -c, --columns N     of the dense matrix (default 32)\n"
                "  -z, --zeros PERCENT of its elements that are zero (default 0)\n"
                "  -r, --repeat N      calls, of which the fastest counts (default 5)\n"
                "  -h, --help\n\n"
                "Exit status: 0 all products are right; 1 bad data, or a failure; 2 usage.\n");
}

static int parse_int(const char *text, int least, int most, int *value)
{
    char *end;
    errno = 0;
    const long x = strtol(text, &end, 10);
    *value = (int)x;
    return !errno && end != text && !*end && x >= least && x <= most;
}

static int parse(int argc, char **argv, struct options *o)
{
    static const struct option names[] = {{"threads", required_argument, NULL, 't'},
                                          {"per-node", required_argument, NULL, 'n'},
                                          {"columns", required_argument, NULL, 'c'},
                                          {"zeros", required_argument, NULL, 'z'},
                                          {"repeat", required_argument, NULL, 'r'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int zeros = 0;
    for (int c; (c = getopt_long(argc, argv, "t:n:c:z:r:h", names, NULL)) != -1;) {
        int fine = 1;
        switch (c) {
        case 't': fine = parse_int(optarg, 1, MAX_RANKS, &o->ranks); break;
        case 'n': fine = parse_int(optarg, 1, MAX_RANKS, &o->per_node); break;
        case 'c': fine = parse_int(optarg, 1, 1 << 16, &o->columns); break;
        case 'z': fine = parse_int(optarg, 0, 100, &zeros); break;
        case 'r': fine = parse_int(optarg, 1, 1000000, &o->times); break;
        case 'h': usage(stdout); return 0;
        default: fine = 0; break;
        }
        if (!fine) {
            if (own_rank == 0)
                usage(stderr);
            return 2;
        }
    }
    o->zeros = zeros / 100.0;
    return -1;
}

static int run_files(int argc, char **argv, const struct options *o)
{
    int fine = 1;
    for (int i = optind; i < argc; i++) {
        struct matrix x;
        char why[160];
        if (!matrix_read(&x, argv[i], why, sizeof why)) {
            complain("%s: %s", argv[i], why);
            return 0;
        }
        fine &= run_job(&x, o, argv[i]);
        matrix_free(&x);
    }
    for (int kind = 0; kind < MATRIX_KINDS && optind == argc; kind++) {
        struct matrix x;
        if (!matrix_generate(&x, (enum matrix_kind)kind)) {
            complain("no memory");
            return 0;
        }
        fine &= run_job(&x, o, matrix_kind_name((enum matrix_kind)kind));
        matrix_free(&x);
    }
    return fine;
}

int main(int argc, char **argv)
{
    struct options o = {.ranks = 16, .columns = 32, .times = 5, .per_node = 4};
#ifdef PICI_EXAMPLE_MPI
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &own_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &o.ranks);
#endif
    int status = parse(argc, argv, &o);
    if (status < 0)
        status = !run_files(argc, argv, &o);
#ifdef PICI_EXAMPLE_MPI
    MPI_Finalize();
#endif
    return status;
}
