/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Choosing by a tune file or by hints: the same choice on all ranks, whatever is queued, and a clear error where ranks
 * go by different things. */
#define _POSIX_C_SOURCE 200809L
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "predict/machine.h"
#include "predict/number.h"
#include "coll/request.h"
#include "schedule/registry.h"
#include "tests/util/coll.h"
#include "xxh64.h"
#include "transport/thread.h"

enum { RANKS = 4, N = 100000, CALLS = 6 };
static char folder[] = "/tmp/pici-tune-XXXXXX", path[64], other[64], trace[64];

static void make_folder(void)
{
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.tune", folder);
    snprintf(other, sizeof other, "%s/b.tune", folder);
    snprintf(trace, sizeof trace, "%s/trace", folder);
}

static void remove_folder(void)
{
    char name[128];
    unlink(path);
    unlink(other);
    for (int r = 0; r < RANKS; r++) {
        snprintf(name, sizeof name, "%s.%d", trace, r);
        unlink(name);
    }
    rmdir(folder);
}

TestSuite(coll_choose, .init = make_folder, .fini = remove_folder, .timeout = 60);

/* ---- files ---- */

static char text[1 << 16];

static void save(const char *name, const char *lines)
{
    const size_t n = (size_t)snprintf(text, sizeof text - 32, "pici-tune 1\n%s", lines);
    cr_assert(n < sizeof text - 32);
    const size_t len = n + (size_t)sprintf(text + n, "end %016llx\n", (unsigned long long)pici_xxh64(text, n, 0));
    FILE *f = fopen(name, "wb");
    cr_assert(f && fwrite(text, 1, len, f) == len && fclose(f) == 0);
}

/* A file that selects `sparse` for all-reduces of n floats among RANKS threads of a node at a density of 1%, and
 * `dense`, with all messages dense, at 100%. These are four times as fast as in the model, the others four times as
 * slow. AUTO: none is as fast. */
static const char *favours_of(int n, enum pici_algorithm sparse, enum pici_algorithm dense)
{
    static char lines[1 << 14];
    size_t at = (size_t)sprintf(lines, "shape ranks %d nodes 1 map %d cores 0\nassume density 0.01\n", RANKS, RANKS);
    for (const struct schedule *s = pici_schedules; s->name; s++)
        for (int i = 0; i < 4 && s->collectives >> PICI_ALL_REDUCE & 1; i++) {
            const struct model_candidate c = {.algorithm = s->id, .dense = i & 1};
            const int best = i & 2 ? s->id == dense && c.dense : s->id == sparse && !c.dense;
            struct model_call call = pici_model_call;
            char seconds[NUMBER_TEXT];
            call.bytes = (uint64_t)n * 4;
            call.ranks = RANKS;
            call.density = i & 2 ? 1 : 0.01;
            const double model = pici_model_seconds(&pici_model_machine, &call, &c);
            if (model < 0)
                continue;
            pici_number_print(seconds, model * (best ? 0.25 : 4));
            at += (size_t)sprintf(lines + at, "point all_reduce f32 %d %s %s %s %s 0\n", n * 4, i & 2 ? "1" : "0.01",
                                  s->name, c.dense ? "dense" : "sparse", seconds);
        }
    return lines;
}

static const char *favours(enum pici_algorithm sparse, enum pici_algorithm dense)
{
    return favours_of(N, sparse, dense);
}

/* ---- ranks ---- */

struct job {
    struct pici_comm *comm[RANKS];
    int calls;
    double density[CALLS]; /* of the data of each call */
    struct pici_coll_opts opts[RANKS];
    struct pici_tune tune[RANKS];
    int ahead[RANKS]; /* calls that a rank queues before it waits for the first */
    enum pici_status status[RANKS];
    struct model_candidate took[RANKS][CALLS]; /* zeros: nothing was chosen by prediction */
};

static void fill(float *data, double density, int rank)
{
    for (int i = 0; i < N; i++)
        data[i] = (i * 7919 + rank * 104729) % 1000 < density * 1000 ? 1 : 0;
}

static void rank(void *context, int r)
{
    struct job *j = context;
    struct pici_comm *comm = j->comm[r];
    float *send[CALLS], *recv[CALLS];
    struct pici_request *q[CALLS] = {NULL};
    int begun = 0;
    j->status[r] = pici_comm_tune(comm, &j->tune[r]);
    for (int i = 0; i < j->calls; i++) {
        send[i] = calloc(N, sizeof **send);
        recv[i] = calloc(N, sizeof **recv);
        cr_assert(send[i] && recv[i]);
        fill(send[i], j->density[i], r);
    }
    for (int i = 0; i < j->calls; i++) {
        for (; begun < j->calls && begun <= i + j->ahead[r] && !j->status[r]; begun++)
            j->status[r] =
                pici_all_reduce_start(send[begun], recv[begun], N, PICI_F32, PICI_SUM, comm, &j->opts[r], &q[begun]);
        const uint64_t before = comm->chooser->uses;
        const enum pici_status s = pici_wait(&q[i]); /* the next call is not begun */
        j->status[r] = j->status[r] ? j->status[r] : s;
        for (const struct chosen *e = comm->chooser->chosen; e < comm->chooser->chosen + CHOOSE_CALLS; e++)
            if (e->used > before)
                j->took[r][i] = e->choice.candidate;
    }
    for (int i = 0; i < j->calls; i++) {
        free(send[i]);
        free(recv[i]);
    }
}

static void init(struct job *j, int calls)
{
    static const struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    static const struct pici_tune tune = PICI_TUNE_INIT;
    memset(j, 0, sizeof *j);
    j->calls = calls;
    for (int r = 0; r < RANKS; r++) {
        j->opts[r] = opts;
        j->opts[r].timeout_ms = 20000;
        j->tune[r] = tune;
    }
}

/* Communicators whose ranks each have a PICI_TUNE of their own. */
static void make(struct job *j, const char *const names[RANKS])
{
    struct pici_transport t[RANKS];
    cr_assert_eq(pici_transport_threads(t, RANKS), PICI_OK);
    for (int r = 0; r < RANKS; r++) {
        if (names[r])
            setenv("PICI_TUNE", names[r], 1);
        else
            unsetenv("PICI_TUNE");
        cr_assert_eq(pici_comm_transport(&j->comm[r], &t[r]), PICI_OK, "%s", pici_comm_error(NULL));
    }
}

static void make_alike(struct job *j, const char *name)
{
    const char *const names[RANKS] = {name, name, name, name};
    make(j, names);
}

static void end(struct job *j)
{
    for (int r = 0; r < RANKS; r++)
        pici_comm_free(j->comm[r]);
}

static void all_ok(const struct job *j)
{
    for (int r = 0; r < RANKS; r++)
        cr_expect_eq(j->status[r], PICI_OK, "rank %d: %s", r, pici_comm_error(j->comm[r]));
}

static void all_refused(const struct job *j, const char *words)
{
    for (int r = 0; r < RANKS; r++) {
        cr_expect_eq(j->status[r], PICI_E_PEER, "rank %d: %d", r, (int)j->status[r]);
        cr_expect(strstr(pici_comm_error(j->comm[r]), words), "rank %d: %s", r, pici_comm_error(j->comm[r]));
    }
}

static enum pici_algorithm taken(const struct job *j, int call, int *dense)
{
    for (int r = 1; r < RANKS; r++)
        cr_expect(j->took[r][call].algorithm == j->took[0][call].algorithm &&
                      j->took[r][call].dense == j->took[0][call].dense,
                  "call %d: rank %d took %d, rank 0 %d", call, r, (int)j->took[r][call].algorithm,
                  (int)j->took[0][call].algorithm);
    *dense = j->took[0][call].dense;
    return j->took[0][call].algorithm;
}

static void expect_taken(const struct job *j, int call, enum pici_algorithm algorithm, int dense)
{
    int was;
    const enum pici_algorithm a = taken(j, call, &was);
    cr_expect(a == algorithm && was == dense, "call %d took %s %s, not %s %s", call, pici_algorithm_name(a),
              was ? "dense" : "sparse", pici_algorithm_name(algorithm), dense ? "dense" : "sparse");
}

/* ---- what a file changes ---- */

/* The density of a call decides about the next one; dense calls still notice that data has become sparse. */
Test(coll_choose, follows_density)
{
    struct job j;
    init(&j, CALLS);
    static const double density[CALLS] = {0.01, 1, 1, 0.01, 0.01, 0.01};
    memcpy(j.density, density, sizeof density);
    save(path, favours(PICI_ALGO_SPLIT, PICI_ALGO_RECURSIVE));
    make_alike(&j, path);
    coll_threads(RANKS, rank, &j);
    all_ok(&j);
    expect_taken(&j, 0, PICI_ALGO_SPLIT, 0); /* assumed */
    expect_taken(&j, 1, PICI_ALGO_SPLIT, 0); /* 1% before */
    expect_taken(&j, 2, PICI_ALGO_RECURSIVE, 1);
    expect_taken(&j, 3, PICI_ALGO_RECURSIVE, 1);
    expect_taken(&j, 4, PICI_ALGO_SPLIT, 0);
    end(&j);
}

/* Ranks queue calls at different times: the choice is made when a call is the first of the queue. */
Test(coll_choose, queued)
{
    for (int round = 0; round < 4; round++) {
        struct job j;
        init(&j, CALLS);
        static const double density[CALLS] = {1, 0.01, 1, 1, 0.01, 0.01};
        memcpy(j.density, density, sizeof density);
        j.ahead[0] = CALLS;
        j.ahead[1] = round;
        j.ahead[2] = 0;
        j.ahead[3] = 2;
        save(path, favours(PICI_ALGO_RING, PICI_ALGO_SPLIT));
        make_alike(&j, path);
        coll_threads(RANKS, rank, &j);
        all_ok(&j);
        expect_taken(&j, 0, PICI_ALGO_RING, 0);
        expect_taken(&j, 1, PICI_ALGO_SPLIT, 1);
        expect_taken(&j, 2, PICI_ALGO_RING, 0);
        expect_taken(&j, 3, PICI_ALGO_SPLIT, 1);
        end(&j);
    }
}

/* A file made with other ranks and nodes is used, and repeated runs choose alike. */
Test(coll_choose, other_shape)
{
    struct job a, b;
    save(path, "shape ranks 6 nodes 3 map 3,2,1 cores 2\nlink intra alpha 1e-5 beta 2e-10\n"
               "point all_reduce f64 4096 0.1 ring sparse 0.001 0\npoint all_reduce f64 4096 1 split dense 0.1 0\n");
    for (int i = 0; i < 2; i++) {
        struct job *j = i ? &b : &a;
        init(j, CALLS);
        for (int k = 0; k < CALLS; k++)
            j->density[k] = 0.001 * (1 << k) * (1 << k);
        make_alike(j, path);
        coll_threads(RANKS, rank, j);
        all_ok(j);
        end(j);
    }
    for (int k = 0; k < CALLS; k++) {
        int dense;
        const enum pici_algorithm first = taken(&a, k, &dense);
        cr_expect_neq(first, PICI_ALGO_AUTO);
        expect_taken(&b, k, first, dense);
    }
}

/* Without the history every call is chosen by what the file assumes, or by the hint. */
Test(coll_choose, no_history)
{
    struct job j;
    init(&j, 3);
    j.density[0] = j.density[1] = j.density[2] = 1;
    for (int r = 0; r < RANKS; r++)
        j.tune[r].history = -1;
    save(path, favours(PICI_ALGO_SPLIT, PICI_ALGO_RECURSIVE));
    make_alike(&j, path);
    coll_threads(RANKS, rank, &j);
    all_ok(&j);
    for (int i = 0; i < 3; i++)
        expect_taken(&j, i, PICI_ALGO_SPLIT, 0);
    for (int r = 0; r < RANKS; r++)
        j.opts[r].density = 1;
    coll_threads(RANKS, rank, &j);
    all_ok(&j);
    for (int i = 0; i < 3; i++)
        expect_taken(&j, i, PICI_ALGO_RECURSIVE, 1);
    end(&j);
}

/* An algorithm that is asked for is not chosen, nor is one without a file or a hint. */
Test(coll_choose, not_asked)
{
    struct job j;
    init(&j, 2);
    save(path, favours(PICI_ALGO_SPLIT, PICI_ALGO_SPLIT));
    for (int i = 0; i < 3; i++) {
        make_alike(&j, i == 0 ? NULL : i == 1 ? "" : path);
        for (int r = 0; r < RANKS; r++)
            j.opts[r].algorithm = i == 2 ? PICI_ALGO_RECURSIVE : PICI_ALGO_AUTO;
        coll_threads(RANKS, rank, &j);
        all_ok(&j);
        for (int call = 0; call < 2; call++)
            expect_taken(&j, call, PICI_ALGO_AUTO, 0);
        end(&j);
    }
}

/* ---- hints, without a file ---- */

Test(coll_choose, hint)
{
    struct job j;
    init(&j, 1);
    make_alike(&j, NULL);
    for (int r = 0; r < RANKS; r++) {
        j.opts[r].density = 0.001;
        j.opts[r].intra_bandwidth = 25e6;
    }
    coll_threads(RANKS, rank, &j);
    all_ok(&j);
    int dense;
    cr_expect_neq(taken(&j, 0, &dense), PICI_ALGO_AUTO);
    cr_expect_eq(dense, 0, "at 1 of 1000 and 200 Mbit/s");
    const struct choice *c = &j.comm[0]->chooser->chosen[0].choice;
    cr_expect(c->source == CHOOSE_HINT && c->density > 0.0009 && c->density < 0.0011, "%g", c->density);
    end(&j);
}

/* ---- ranks that differ ---- */

Test(coll_choose, files_differ)
{
    for (int i = 0; i < 3; i++) {
        struct job j;
        init(&j, 1);
        save(path, favours(PICI_ALGO_SPLIT, PICI_ALGO_RECURSIVE));
        save(other, favours(PICI_ALGO_RING, PICI_ALGO_RECURSIVE));
        const char *const names[RANKS] = {path, path, i == 0 ? other : i == 1 ? NULL : "", path};
        make(&j, names);
        coll_threads(RANKS, rank, &j);
        all_refused(&j, "different tune files (PICI_TUNE)");
        end(&j);
    }
}

Test(coll_choose, options_differ)
{
    static const char *const words[] = {"option density: 0.01 on rank", "option latency", "density history",
                                        "different bandwidths"};
    for (int i = 0; i < 4; i++) {
        struct job j;
        init(&j, 1);
        make_alike(&j, NULL);
        for (int r = 0; r < RANKS; r++) {
            j.opts[r].density = i == 0 && r == 1 ? 0.5 : 0.01;
            j.opts[r].latency = i == 1 && r == 3 ? 1e-3 : 0;
            j.tune[r].history = i == 2 && r == 2 ? -1 : 0;
            j.opts[r].inter_bandwidth = i == 3 && r == 2 ? 1e9 : 0;
        }
        coll_threads(RANKS, rank, &j);
        for (int r = 0; r < RANKS; r++)
            cr_expect_eq(j.status[r], PICI_E_PEER);
        const char *error = pici_comm_error(j.comm[0]);
        cr_expect(strstr(error, i ? words[i] : "option density"), "%s", error);
        end(&j);
    }
}

/* ---- files that are no good ---- */

static void refused(const char *name, enum pici_status status, const char *words)
{
    struct pici_comm *comm[2] = {NULL, NULL};
    setenv("PICI_TUNE", name, 1);
    cr_expect_eq(pici_comm_threads(comm, 2), status);
    cr_expect(!comm[0] && !comm[1]);
    cr_expect(strstr(pici_comm_error(NULL), words), "%s", pici_comm_error(NULL));
    cr_expect(strstr(pici_comm_error(NULL), "PICI_TUNE: "), "%s", pici_comm_error(NULL));
}

Test(coll_choose, bad_files)
{
    struct pici_comm *comm[2];
    refused(path, PICI_E_IO, "No such file");
    refused(folder, PICI_E_IO, folder);
    save(path, "shape ranks 8 nodes 4 map 2,2,2 cores 2\n");
    refused(path, PICI_E_CORRUPT, "line 2: the map is not one number for each of 4 nodes");
    save(path, "shape ranks 8 nodes 4 map 2,2,2,2 cores 2\n");
    cr_assert_eq(truncate(path, 60), 0);
    refused(path, PICI_E_CORRUPT, "line 3: ");
    cr_assert_eq(truncate(path, 0), 0);
    refused(path, PICI_E_CORRUPT, "the file is empty");
    cr_assert_eq(truncate(path, 4 << 20), 0);
    refused(path, PICI_E_CORRUPT, "the file has more than 1048576 bytes");
    FILE *f = fopen(path, "wb");
    fputs("pici-tune 9\n", f);
    fclose(f);
    refused(path, PICI_E_VERSION, "version 9");
    setenv("PICI_TUNE", "", 1);
    cr_assert_eq(pici_comm_threads(comm, 2), PICI_OK);
    cr_expect_not(comm[0]->chooser->tuned);
    pici_comm_free(comm[0]);
    pici_comm_free(comm[1]);
}

/* ---- memory: what pici_comm_scratch says is enough for whatever is chosen ---- */

Test(coll_choose, scratch)
{
    struct job j;
    init(&j, CALLS);
    static const double density[CALLS] = {1, 0.01, 1, 0.01, 0.01, 0.01};
    memcpy(j.density, density, sizeof density);
    void *memory[RANKS];
    save(path, favours(PICI_ALGO_RECURSIVE, PICI_ALGO_SPLIT));
    make_alike(&j, path);
    for (int r = 0; r < RANKS; r++) {
        struct pici_coll_opts *o = &j.opts[r];
        o->window = 3;
        size_t most = 0;
        const size_t all = pici_comm_scratch(j.comm[r], PICI_ALL_REDUCE, N, PICI_F32, PICI_SUM, o);
        for (const struct schedule *s = pici_schedules; s->name; s++) {
            o->algorithm = s->id;
            const size_t one = pici_comm_scratch(j.comm[r], PICI_ALL_REDUCE, N, PICI_F32, PICI_SUM, o);
            most = one > most ? one : most;
        }
        cr_expect(all >= most && most > 0, "%zu of %zu bytes", all, most);
        o->algorithm = PICI_ALGO_AUTO;
        o->scratch_bytes = all;
        o->scratch = memory[r] = malloc(all);
        cr_assert_not_null(memory[r]);
    }
    coll_threads(RANKS, rank, &j);
    all_ok(&j);
    expect_taken(&j, 1, PICI_ALGO_SPLIT, 1);
    expect_taken(&j, 2, PICI_ALGO_RECURSIVE, 0);
    for (int r = 0; r < RANKS; r++)
        free(memory[r]);
    end(&j);
}

/* ---- small calls, whose data may travel with the call agreement ---- */

enum { FEW = 64 };

static void small(void *context, int r)
{
    struct job *j = context;
    float send[FEW], recv[FEW];
    for (int i = 0; i < FEW; i++)
        send[i] = (float)(r + 1);
    j->status[r] = pici_all_reduce(send, recv, FEW, PICI_F32, PICI_SUM, j->comm[r], &j->opts[r]);
    for (int i = 0; i < FEW && !j->status[r]; i++)
        cr_expect_eq(recv[i], RANKS * (RANKS + 1) / 2);
}

Test(coll_choose, small)
{
    for (int i = 0; i < 3; i++) {
        struct job j;
        init(&j, 1);
        save(path, favours_of(FEW, PICI_ALGO_DOUBLING, PICI_ALGO_DOUBLING));
        save(other, favours_of(FEW, PICI_ALGO_RING, PICI_ALGO_RING));
        const char *const names[RANKS] = {path, i == 2 ? other : path, path, path};
        make(&j, names);
        for (int r = 0; r < RANKS && i == 1; r++)
            j.opts[r].density = 1;
        coll_threads(RANKS, small, &j);
        if (i == 2) {
            all_refused(&j, "different tune files (PICI_TUNE)");
        } else {
            all_ok(&j);
            for (int r = 0; r < RANKS; r++) {
                const struct pici_request *q = j.comm[r]->spare;
                cr_expect_eq(q->call.resolved.layout.schedule->id, PICI_ALGO_DOUBLING);
                cr_expect_eq(q->call.resolved.layout.dense, i == 1);
                cr_expect(q->early, "the data travel with the call agreement");
                cr_expect_eq(q->agree.density[DENSITY_ONE], 1, "counted by all, dense or not");
            }
        }
        end(&j);
    }
}

/* ---- the native call ---- */

static struct {
    pthread_barrier_t all;
    const float *send[RANKS];
    int made;
} theirs;
static _Thread_local int self;

static enum pici_status native_ready(void *context, enum pici_collective kind, const void *send, const void *recv,
                                     uint64_t count, enum pici_dtype dtype, enum pici_op op)
{
    (void)context, (void)kind, (void)send, (void)recv, (void)count, (void)dtype, (void)op;
    return PICI_OK;
}

/* An all-reduce of floats. */
static enum pici_status native_dense(void *context, enum pici_collective kind, const void *send, void *recv,
                                     uint64_t count, enum pici_dtype dtype, enum pici_op op, int timeout_ms)
{
    float *sum = recv;
    (void)context, (void)kind, (void)dtype, (void)op, (void)timeout_ms;
    theirs.send[self] = send;
    pthread_barrier_wait(&theirs.all);
    for (uint64_t i = 0; i < count; i++) {
        sum[i] = 0;
        for (int r = 0; r < RANKS; r++)
            sum[i] += theirs.send[r][i];
    }
    pthread_barrier_wait(&theirs.all);
    theirs.made += self == 0;
    return PICI_OK;
}

/* Call i goes by the native if it is favoured for dense data and call i - 1 was dense. */
static void with_native(void *context, int r)
{
    struct job *j = context;
    float *send = calloc(N, sizeof *send), *recv = calloc(N, sizeof *recv);
    cr_assert(send && recv);
    self = r;
    for (int i = 0; i < j->calls && !j->status[r]; i++) {
        fill(send, j->density[i], r);
        j->status[r] = pici_all_reduce(send, recv, N, PICI_F32, PICI_SUM, j->comm[r], &j->opts[r]);
        j->took[r][i] = j->comm[r]->spare->call.resolved.layout.choice.candidate;
    }
    free(send);
    free(recv);
}

Test(coll_choose, native_calls)
{
    static const double density[CALLS] = {1, 1, 0.01, 0.01, 1, 0.01};
    static const int by_native[CALLS] = {0, 1, 1, 0, 0, 1};
    char lines[1 << 14];
    snprintf(lines, sizeof lines,
             "%spoint all_reduce f32 %d 1 native:any dense 1e-12 0\n"
             "point all_reduce f32 %d 0.01 native:any dense 1e6 0\n",
             favours(PICI_ALGO_SPLIT, PICI_ALGO_AUTO), N * 4, N * 4);
    save(path, lines);
    setenv("PICI_TUNE", path, 1);
    for (int allowed = 0; allowed < 2; allowed++) {
        struct pici_transport t[RANKS];
        struct job j;
        init(&j, CALLS);
        memcpy(j.density, density, sizeof density);
        theirs.made = 0;
        pthread_barrier_init(&theirs.all, NULL, RANKS);
        cr_assert_eq(pici_transport_threads(t, RANKS), PICI_OK);
        for (int r = 0; r < RANKS; r++) {
            t[r].dense = native_dense;
            t[r].dense_ready = native_ready;
            j.opts[r].native = allowed;
            cr_assert_eq(pici_comm_transport(&j.comm[r], &t[r]), PICI_OK);
        }
        coll_threads(RANKS, with_native, &j);
        all_ok(&j);
        for (int i = 0; i < CALLS; i++)
            for (int r = 0; r < RANKS; r++)
                cr_expect_eq(j.took[r][i].native != 0, allowed && by_native[i], "rank %d, call %d", r, i);
        cr_expect_eq(theirs.made, allowed ? 3 : 0);
        end(&j);
        pthread_barrier_destroy(&theirs.all);
    }
}

/* ---- what is told ---- */

static int count(const char *in, const char *what)
{
    int n = 0;
    for (; (in = strstr(in, what)); in++)
        n++;
    return n;
}

static const char *contents(const char *name)
{
    static char all[1 << 20];
    FILE *f = fopen(name, "rb");
    cr_assert_not_null(f);
    all[fread(all, 1, sizeof all - 1, f)] = '\0';
    fclose(f);
    return all;
}

/* Run the ranks of a job, and return what they print to stderr. */
static const char *printed(struct job *j, void (*of_rank)(void *context, int rank))
{
    fflush(stderr);
    const int keep = dup(STDERR_FILENO);
    cr_assert(keep >= 0 && freopen(other, "wb", stderr));
    coll_threads(RANKS, of_rank, j);
    fflush(stderr);
    dup2(keep, STDERR_FILENO);
    close(keep);
    all_ok(j);
    end(j);
    return contents(other);
}

/* Rank 0 prints a choice when it is first made for a shape, and when it becomes another one; the trace has them all. */
Test(coll_choose, told)
{
    struct job j;
    char name[80];
    init(&j, CALLS);
    static const double density[CALLS] = {0.01, 0.01, 1, 0.01, 0.01, 0.01};
    memcpy(j.density, density, sizeof density);
    save(path, favours(PICI_ALGO_SPLIT, PICI_ALGO_RECURSIVE));
    setenv("PICI_TUNE_VERBOSE", "1", 1);
    setenv("PICI_TRACE", trace, 1);
    make_alike(&j, path);
    const char *said = printed(&j, rank);
    cr_expect_eq(count(said, "pici: all_reduce f32, 400000 bytes, 4 ranks on 1 nodes, density "), 3, "%s", said);
    cr_expect_eq(count(said, " takes split sparse\n"), 2, "%s", said);
    cr_expect_eq(count(said, " takes recursive dense\n"), 1, "%s", said);
    cr_expect(strstr(said, "(assumed)") && strstr(said, "(counted)") && strstr(said, " ring dense "), "%s", said);
    snprintf(name, sizeof name, "%s.%d", trace, 1);
    said = contents(name);
    cr_expect_eq(count(said, "{\"name\":\"choose\""), CALLS);
    cr_expect_eq(count(said, "\"algorithm\":\"recursive\",\"dense\":1,\"predicted_us\":"), 1);
    cr_expect_eq(count(said, "\"algorithm\":\"split\",\"dense\":0,\"predicted_us\":"), CALLS - 1);
}

enum { SMALL = 1000 };

static void small_calls(void *context, int r)
{
    struct job *j = context;
    static const float send[SMALL] = {1};
    float recv[SMALL];
    for (int i = 0; i < j->calls && !j->status[r]; i++)
        j->status[r] = pici_all_reduce(send, recv, SMALL, PICI_F32, PICI_SUM, j->comm[r], &j->opts[r]);
}

/* A small call is predicted before the ranks have agreed on it, since its data may travel with the agreement, and once
 * more if they do not. One line is printed, whichever of the two choices is used. */
Test(coll_choose, told_once)
{
    static const enum pici_algorithm favoured[] = {PICI_ALGO_RING, PICI_ALGO_DOUBLING};
    for (int i = 0; i < 2; i++) {
        struct job j;
        char takes[64];
        init(&j, 3);
        save(path, favours_of(SMALL, favoured[i], PICI_ALGO_AUTO));
        setenv("PICI_TUNE_VERBOSE", "1", 1);
        make_alike(&j, path);
        snprintf(takes, sizeof takes, " takes %s sparse\n", pici_schedule(favoured[i])->name);
        const char *said = printed(&j, small_calls);
        cr_expect_eq(count(said, "pici: all_reduce f32, 4000 bytes, "), 1, "%s", said);
        cr_expect_eq(count(said, takes), 1, "%s", said);
    }
}

/* ---- the pure part ---- */

static struct choice choose(struct chooser *c, int native, double one, double sum)
{
    struct choose_call call = {.model = pici_model_call, .count = N, .history = 1, .latency = 50e-6, .native = native};
    struct densities known = {.uses = 0};
    struct choice out;
    const double density[DENSITIES] = {one, sum};
    call.bandwidth[POLICY_INTER] = 1.25e8;
    call.bandwidth[POLICY_INTRA] = 5e9;
    call.model.bytes = N * 4;
    call.model.ranks = RANKS;
    if (one > 0)
        pici_density_keep(&known, call.model.kind, call.model.dtype, N, density);
    pici_choose(c, &call, &known, &out);
    return out;
}

/* The candidates are the schedules that can do the collective; those on two levels only where there are two, else they
 * are the flat ones again. */
Test(coll_choose, candidates)
{
    static const enum pici_collective kinds[] = {PICI_ALL_GATHER, PICI_REDUCE_SCATTER, PICI_ALL_REDUCE};
    static const struct {
        int nodes, paired, two_levels;
    } rows[] = {{1, 0, 0}, {2, 0, 1}, {5, 0, 1}, {6, 0, 0}, {1, 1, 0}, {2, 1, 0}};
    enum { SIX = 6 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int k = 0; k < 3; k++) {
            int n = 0;
            for (const struct schedule *s = pici_schedules; s->name; s++)
                if (s->collectives >> kinds[k] & 1 && (!s->by_node || rows[i].two_levels) &&
                    (!rows[i].paired || s->paired == PAIRED_ALWAYS))
                    cr_expect_eq(pici_choose_schedule(n++, kinds[k], SIX, rows[i].nodes, rows[i].paired), s, "%s, %d",
                                 s->name, rows[i].nodes);
            cr_expect_geq(n, 3);
            cr_expect_null(pici_choose_schedule(n, kinds[k], SIX, rows[i].nodes, rows[i].paired));
        }
}

Test(coll_choose, densities)
{
    struct chooser *c;
    char why[256];
    cr_assert_eq(pici_chooser_open(&c, NULL, 0, why, sizeof why), PICI_OK);
    struct choice got = choose(c, 0, 0, 0);
    cr_expect(got.source == CHOOSE_ASSUMED && got.density > 0.046 && got.density < 0.054 && got.correlation == 1);
    got = choose(c, 0, 0.125, 1 - 0.875 * 0.875 * 0.875 * 0.875);
    cr_expect(got.source == CHOOSE_COUNTED && got.density == 0.125 && got.correlation == 1, "%g", got.correlation);
    cr_expect_eq(choose(c, 0, 0.125, 0.125).correlation, 0);
    cr_expect_eq(choose(c, 0, 0.125, 1 - 0.875 * 0.875).correlation, 0.375); /* 1/3, in eighths */
    cr_expect_eq(choose(c, 0, 0x1p-64, 0x1p-62).correlation, 1);
    /* the first messages, which alone count in the density of one, may have none of the nonzeros that sums have */
    static const double sums[] = {0x1p-10, 0.125, 0.5, 1};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        cr_expect_eq(choose(c, 0, 0x1p-64, sums[i]).correlation, 1, "%g", choose(c, 0, 0x1p-64, sums[i]).correlation);
    cr_expect_eq(choose(c, 0, 1, 1).density, 1);
    cr_expect_eq(choose(c, 0, 0.1251, 0).density, 0.125);
    pici_chooser_close(c);
}

/* The native call is a candidate only where it is permitted. */
Test(coll_choose, native)
{
    struct chooser *c;
    char why[256], lines[256];
    snprintf(lines, sizeof lines,
             "shape ranks %d nodes 1 map %d cores 0\npoint all_reduce f32 %d 1 native dense 1e-9 0\n", RANKS, RANKS,
             N * 4);
    save(path, lines);
    cr_assert_eq(pici_chooser_open(&c, path, 0, why, sizeof why), PICI_OK, "%s", why);
    cr_expect_not(choose(c, 0, 1, 1).candidate.native);
    c->tune.machine.natives = 1u << MODEL_RING;
    pici_chooser_forget(c);
    cr_expect(choose(c, 1, 1, 1).candidate.native);
    pici_chooser_close(c);
}
