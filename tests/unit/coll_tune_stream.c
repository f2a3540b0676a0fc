/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a tune file does to streams: which algorithm they take, and which slices are dense; and its thresholds for
 * messages. */
#define _POSIX_C_SOURCE 200809L
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coll/engine_stream.h"
#include "coll/request.h"
#include "pici/stream.h"
#include "tests/util/coll.h"
#include "xxh64.h"

enum { RANKS = 4, N = 100000 };
static char path[] = "/tmp/pici-tune-stream-XXXXXX";

static void make_path(void)
{
    const int file = mkstemp(path);
    cr_assert(file >= 0 && close(file) == 0);
}

static void remove_path(void)
{
    unlink(path);
}

TestSuite(coll_tune_stream, .init = make_path, .fini = remove_path, .timeout = 60);

/* A file by which `sparse` is the fastest for data with 1% nonzeros, and `dense` for data without zeros; then lines. */
static void save(enum pici_algorithm sparse, enum pici_algorithm dense, const char *lines)
{
    static char text[1 << 14];
    int n = snprintf(text, sizeof text, "pici-tune 1\nshape ranks %d nodes 1 map %d cores 0\n%s", RANKS, RANKS, lines);
    static const enum pici_algorithm all[] = {PICI_ALGO_RING, PICI_ALGO_RECURSIVE, PICI_ALGO_SPLIT, PICI_ALGO_DOUBLING};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int is_dense = 0; is_dense < 2; is_dense++) {
            const double few = all[i] == sparse && !is_dense ? 1e-9 : 1e3, many = all[i] == dense ? 1e-9 : 1e3;
            n += snprintf(text + n, sizeof text - (size_t)n,
                          "point all_reduce f32 %d 0.01 %s %s %g 0\npoint all_reduce f32 %d 1 %s %s %g 0\n", N * 4,
                          pici_algorithm_name(all[i]), is_dense ? "dense" : "sparse", few, N * 4,
                          pici_algorithm_name(all[i]), is_dense ? "dense" : "sparse", many);
        }
    n += snprintf(text + n, sizeof text - (size_t)n, "end %016llx\n",
                  (unsigned long long)pici_xxh64(text, (size_t)n, 0));
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(text, 1, (size_t)n, file) == (size_t)n && fclose(file) == 0);
}

struct job {
    struct pici_comm *comm[RANKS];
    uint64_t each; /* every so many elements, one is not zero */
    int stream;    /* the call takes a stream */
    enum pici_algorithm algorithm, took[RANKS];
    float *sum[RANKS]; /* [N] */
    int dense_pieces[RANKS];
    uint64_t dense_sends[RANKS], sends[RANKS];
};

static void open_job(struct job *job)
{
    memset(job, 0, sizeof *job);
    setenv("PICI_TUNE", path, 1);
    cr_assert_eq(pici_comm_threads(job->comm, RANKS), PICI_OK, "%s", pici_comm_error(NULL));
    for (int rank = 0; rank < RANKS; rank++)
        cr_assert_not_null(job->sum[rank] = calloc(N, sizeof(float)));
}

static void close_job(struct job *job)
{
    for (int rank = 0; rank < RANKS; rank++) {
        pici_comm_free(job->comm[rank]);
        free(job->sum[rank]);
    }
}

static void call(void *context, int rank)
{
    struct job *job = context;
    struct pici_comm *comm = job->comm[rank];
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
    struct pici_stream in = PICI_STREAM_INIT;
    struct pici_stream_out out = PICI_STREAM_OUT_INIT;
    float *values = calloc(N, sizeof *values), *dense = calloc(N, sizeof *dense);
    uint32_t *indices = calloc(N, sizeof *indices);
    cr_assert(values && dense && indices);
    for (uint64_t i = 0; i < N; i += job->each) {
        indices[in.nnz] = (uint32_t)i;
        dense[i] = values[in.nnz++] = 1 / (float)(i + 3 + (uint64_t)rank); /* so that the order of additions shows */
    }
    opts.algorithm = job->algorithm;
    opts.stats = &stats;
    in.n = N;
    in.indices = indices;
    in.index_width = sizeof *indices;
    in.values = values;
    out.want = PICI_STREAM_DENSE;
    out.dense = job->sum[rank];
    const enum pici_status status = job->stream
                                        ? pici_all_reduce_stream(&in, &out, PICI_F32, PICI_SUM, comm, &opts)
                                        : pici_all_reduce(dense, job->sum[rank], N, PICI_F32, PICI_SUM, comm, &opts);
    cr_expect_eq(status, PICI_OK, "%s", pici_comm_error(comm));
    job->took[rank] = job->algorithm ? job->algorithm : comm->chooser->last->choice.candidate.algorithm;
    job->dense_sends[rank] = stats.sends[PICI_DENSE];
    job->sends[rank] =
        stats.sends[PICI_DENSE] + stats.sends[PICI_BITMAP] + stats.sends[PICI_COO] + stats.sends[PICI_HYBRID];
    job->dense_pieces[rank] = 0;
    for (size_t i = 0; comm->pieces && i < comm->pieces->count; i++)
        job->dense_pieces[rank] += comm->pieces->piece[i].room > 0;
    free(values);
    free(dense);
    free(indices);
}

static void run(struct job *job, int stream, uint64_t each, enum pici_algorithm algorithm)
{
    job->stream = stream;
    job->each = each;
    job->algorithm = algorithm;
    coll_threads(RANKS, call, job);
    for (int rank = 1; rank < RANKS; rank++)
        cr_expect_eq(job->took[rank], job->took[0]);
}

/* By a file AUTO takes what is the fastest for the density of the streams, whatever the density of calls before. The
 * bits are those of that algorithm. */
Test(coll_tune_stream, algorithm)
{
    struct job job;
    float *sum = calloc(N, sizeof *sum);
    cr_assert_not_null(sum);
    save(PICI_ALGO_SPLIT, PICI_ALGO_RECURSIVE, "assume density 1\n");
    open_job(&job);
    run(&job, 0, 1, PICI_ALGO_AUTO);
    cr_expect_eq(job.took[0], PICI_ALGO_RECURSIVE);
    run(&job, 1, 100, PICI_ALGO_AUTO);
    cr_expect_eq(job.took[0], PICI_ALGO_SPLIT, "not %s", pici_algorithm_name(job.took[0]));
    memcpy(sum, job.sum[0], N * sizeof *sum);
    run(&job, 0, 100, PICI_ALGO_SPLIT);
    cr_expect(memcmp(sum, job.sum[0], N * sizeof *sum) == 0, "another order of additions");
    run(&job, 0, 100, PICI_ALGO_RECURSIVE);
    cr_expect(memcmp(sum, job.sum[0], N * sizeof *sum) != 0, "the data do not show the order of additions");
    run(&job, 1, 1, PICI_ALGO_AUTO);
    cr_expect_eq(job.took[0], PICI_ALGO_RECURSIVE, "not %s", pici_algorithm_name(job.took[0]));
    free(sum);
    close_job(&job);
}

/* Messages with 1% nonzeros are dense if the file says so, not if the call or the environment says otherwise. */
Test(coll_tune_stream, messages)
{
    for (int environment = 0; environment < 2; environment++) {
        struct job job;
        save(PICI_ALGO_RING, PICI_ALGO_RING, "threshold intra 1 gather 1\n");
        if (environment) {
            setenv("PICI_INTRA_THRESHOLD", "0.5", 1);
            setenv("PICI_AG_THRESHOLD", "0.5", 1);
        }
        open_job(&job);
        run(&job, 0, 100, PICI_ALGO_RING);
        cr_expect(job.sends[0] > 0 && (job.dense_sends[0] == job.sends[0]) == !environment);
        close_job(&job);
    }
}

/* Slices of streams are dense from the density on that the file says, or the environment. */
Test(coll_tune_stream, slices)
{
    static const struct {
        const char *line, *variable;
        int dense;
    } cases[] = {{"", NULL, 0},
                 {"threshold stream 1\n", NULL, 1},
                 {"threshold stream 0.9\n", NULL, 0},
                 {"threshold stream 0.99\n", NULL, 1},
                 {"threshold stream 0\n", "1", 1},
                 {"threshold stream 1\n", "0.5", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job job;
        save(PICI_ALGO_RING, PICI_ALGO_RING, cases[i].line);
        if (cases[i].variable)
            setenv("PICI_STREAM_THRESHOLD", cases[i].variable, 1);
        open_job(&job);
        run(&job, 1, 100, PICI_ALGO_RING);
        cr_expect_eq(job.dense_pieces[0] > 0, cases[i].dense, "case %zu", i);
        close_job(&job);
        unsetenv("PICI_STREAM_THRESHOLD");
    }
}
