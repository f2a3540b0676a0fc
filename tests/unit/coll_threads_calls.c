/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls that cannot be right: what is refused at once, what one rank alone gets wrong, ranks that disagree, ranks
 * that are gone or silent, forks, the environment. Each has its status, the same on every rank, and nobody hangs. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/util/coll.h"

enum { WATCHDOG_S = 900, N = 40000, RANKS = 6 };

static const struct pici_coll_opts defaults = PICI_COLL_OPTS_INIT;

/* ---- a step of all ranks, and how it ended on each ---- */

struct step {
    struct pici_comm *comm[RANKS];
    int p, odd; /* the rank that does otherwise; -1: none */
    float *send[RANKS], *recv[RANKS];
    enum pici_status (*call)(struct step *, int rank);
    enum pici_status status[RANKS];
};

static void step_init(struct step *s, int p)
{
    memset(s, 0, sizeof *s);
    alarm(WATCHDOG_S);
    cr_assert_eq(pici_comm_threads(s->comm, p), PICI_OK, "%s", pici_comm_error(NULL));
    s->p = p;
    for (int i = 0; i < p; i++) {
        s->send[i] = test_alloc((size_t)(p + 1) * N * sizeof(float));
        s->recv[i] = test_alloc((size_t)(p + 1) * N * sizeof(float));
        memset(s->send[i], 0, (size_t)(p + 1) * N * sizeof(float));
        for (int j = 0; j < N * p; j += 7)
            s->send[i][j] = (float)(i + j);
    }
}

static void step_free(struct step *s)
{
    for (int i = 0; i < s->p; i++) {
        pici_comm_free(s->comm[i]);
        free(s->send[i]);
        free(s->recv[i]);
    }
}

static void step_rank(void *context, int rank)
{
    struct step *s = context;
    s->status[rank] = s->call(s, rank);
}

static void step_run(struct step *s, enum pici_status (*call)(struct step *, int rank))
{
    s->call = call;
    coll_threads(s->p, step_rank, s);
}

static void expect_all(const struct step *s, enum pici_status want, const char *what)
{
    for (int i = 0; i < s->p; i++)
        cr_expect_eq(s->status[i], want, "%s, %d ranks, odd %d: rank %d: %s (%s), not %s", what, s->p, s->odd, i,
                     pici_strerror(s->status[i]), pici_comm_error(s->comm[i]), pici_strerror(want));
}

static enum pici_status sum(const struct step *s, int rank, const struct pici_coll_opts *opts)
{
    return pici_all_reduce(s->send[rank], s->recv[rank], N, PICI_F32, PICI_SUM, s->comm[rank], opts);
}

static enum pici_status good(struct step *s, int rank)
{
    enum pici_status status = sum(s, rank, NULL);
    for (int j = 0; j < N && status == PICI_OK; j++) {
        float want = 0;
        for (int i = 0; i < s->p; i++)
            want += s->send[i][j]; /* integers: exact in any order */
        if (s->recv[rank][j] != want)
            return PICI_E_CORRUPT;
    }
    return status;
}

/* ---- on all ranks, if one of them is wrong ---- */

static enum pici_status null_send(struct step *s, int rank)
{
    return pici_all_reduce(rank == s->odd ? NULL : s->send[rank], s->recv[rank], N, PICI_F32, PICI_SUM, s->comm[rank],
                           NULL);
}

static enum pici_status null_recv(struct step *s, int rank)
{
    return pici_all_gather(s->send[rank], rank == s->odd ? NULL : s->recv[rank], N, PICI_F32, s->comm[rank], NULL);
}

static enum pici_status null_both(struct step *s, int rank)
{
    int odd = rank == s->odd;
    return pici_reduce_scatter(odd ? NULL : s->send[rank], odd ? NULL : s->recv[rank], N, PICI_F32, PICI_MAX,
                               s->comm[rank], NULL);
}

static enum pici_status overlap_reduce(struct step *s, int rank)
{
    return pici_all_reduce(s->send[rank], rank == s->odd ? s->send[rank] + N - 1 : s->recv[rank], N, PICI_F32, PICI_SUM,
                           s->comm[rank], NULL);
}

static enum pici_status overlap_gather(struct step *s, int rank) /* in place, but in another rank's place */
{
    float *all = s->recv[rank];
    return pici_all_gather(all + (size_t)(rank == s->odd ? (rank + 1) % s->p : rank) * N, all, N, PICI_F32,
                           s->comm[rank], NULL);
}

static enum pici_status overlap_scatter(struct step *s, int rank)
{
    float *all = s->send[rank], *own = all + (size_t)rank * N;
    return pici_reduce_scatter(all, rank == s->odd ? own + 1 : own, N, PICI_F32, PICI_SUM, s->comm[rank], NULL);
}

static enum pici_status beyond_memory(struct step *s, int rank)
{
    return pici_all_gather(s->send[rank], s->recv[rank], rank == s->odd ? UINT64_MAX / 4 : N, PICI_F32, s->comm[rank],
                           NULL);
}

static enum pici_status all_beyond_memory(struct step *s, int rank)
{
    return pici_all_reduce(s->send[rank], s->recv[rank], UINT64_MAX - (uint64_t)rank, PICI_F64, PICI_SUM, s->comm[rank],
                           NULL);
}

static enum pici_status small_scratch(struct step *s, int rank)
{
    struct pici_coll_opts o = defaults;
    size_t need = pici_comm_scratch(s->comm[rank], PICI_ALL_REDUCE, N, PICI_F32, PICI_SUM, NULL);
    o.scratch_bytes = need - (rank == s->odd);
    o.scratch = test_alloc(need);
    enum pici_status status = sum(s, rank, &o);
    free(o.scratch);
    return status;
}

static enum pici_status other_count(struct step *s, int rank)
{
    return pici_all_reduce(s->send[rank], s->recv[rank], N - (uint64_t)(rank == s->odd), PICI_F32, PICI_SUM,
                           s->comm[rank], NULL);
}

static enum pici_status other_count_zero(struct step *s, int rank)
{
    return pici_all_gather(s->send[rank], s->recv[rank], rank == s->odd ? 0 : N, PICI_F32, s->comm[rank], NULL);
}

static enum pici_status other_dtype(struct step *s, int rank)
{
    return pici_all_reduce(s->send[rank], s->recv[rank], N, rank == s->odd ? PICI_I32 : PICI_F32, PICI_SUM,
                           s->comm[rank], NULL);
}

static enum pici_status other_op(struct step *s, int rank)
{
    return pici_all_reduce(s->send[rank], s->recv[rank], N, PICI_F32, rank == s->odd ? PICI_AVG : PICI_SUM,
                           s->comm[rank], NULL);
}

static enum pici_status other_collective(struct step *s, int rank)
{
    if (rank != s->odd)
        return pici_reduce_scatter(s->send[rank], s->recv[rank], N, PICI_F32, PICI_SUM, s->comm[rank], NULL);
    return pici_all_gather(s->send[rank], s->recv[rank], N, PICI_F32, s->comm[rank], NULL);
}

static enum pici_status other_algorithm(struct step *s, int rank)
{
    struct pici_coll_opts o = defaults;
    o.algorithm = rank == s->odd ? PICI_ALGO_RING : PICI_ALGO_RECURSIVE;
    return sum(s, rank, &o);
}

static enum pici_status other_slice(struct step *s, int rank) /* ten or five of them */
{
    struct pici_coll_opts o = defaults;
    o.algorithm = PICI_ALGO_RING;
    o.window = 2;
    o.slice_bytes = (rank == s->odd ? 1 : 2) * 4096 * sizeof(float);
    return pici_all_gather(s->send[rank], s->recv[rank], N, PICI_F32, s->comm[rank], &o);
}

static enum pici_status other_window(struct step *s, int rank)
{
    struct pici_coll_opts o = defaults;
    o.algorithm = PICI_ALGO_RING;
    o.window = rank == s->odd ? 2 : 3;
    o.slice_bytes = 4096 * sizeof(float);
    return pici_all_gather(s->send[rank], s->recv[rank], N, PICI_F32, s->comm[rank], &o);
}

static enum pici_status other_zeros(struct step *s, int rank)
{
    struct pici_coll_opts o = defaults;
    o.zeros = rank == s->odd ? PICI_ZEROS_BY_VALUE : PICI_ZEROS_EXACT;
    return pici_all_gather(s->send[rank], s->recv[rank], N, PICI_F32, s->comm[rank], &o);
}

static enum pici_status other_nodes(struct step *s, int rank)
{
    int node_of[RANKS];
    for (int i = 0; i < RANKS; i++)
        node_of[i] = rank == s->odd ? i == 1 : 0;
    pici_comm_set_nodes(s->comm[rank], node_of);
    return sum(s, rank, NULL);
}

#define OVERLAP "the send and receive buffers overlap, but not as for an in-place call"

static const struct {
    const char *what;
    enum pici_status (*call)(struct step *, int rank);
    enum pici_status want;
    int least_ranks;   /* with fewer it is nothing wrong */
    const char *words; /* in that rank's error; NULL: any */
} wrongs[] = {
    {"null send", null_send, PICI_E_ARG, 1, "the send buffer is null"},
    {"null recv", null_recv, PICI_E_ARG, 1, "the receive buffer is null"},
    {"null both", null_both, PICI_E_ARG, 1, "the send buffer is null"},
    {"overlap, all-reduce", overlap_reduce, PICI_E_ARG, 1, OVERLAP},
    {"overlap, all-gather", overlap_gather, PICI_E_ARG, 2, OVERLAP},
    {"overlap, reduce-scatter", overlap_scatter, PICI_E_ARG, 1, OVERLAP},
    {"a count beyond memory", beyond_memory, PICI_E_ARG, 1, "count 4611686018427387903 exceeds the address space"},
    {"counts beyond memory", all_beyond_memory, PICI_E_ARG, 1, "count 184467440737095516"},
    {"a byte of scratch too few", small_scratch, PICI_E_SPACE, 2, NULL},
    {"another count", other_count, PICI_E_PEER, 2, NULL},
    {"another count, zero", other_count_zero, PICI_E_PEER, 2, NULL},
    {"another dtype", other_dtype, PICI_E_PEER, 2, NULL},
    {"another op", other_op, PICI_E_PEER, 2, NULL},
    {"another collective", other_collective, PICI_E_PEER, 2, NULL},
    {"another algorithm", other_algorithm, PICI_E_PEER, 2, NULL},
    {"another slice", other_slice, PICI_E_PEER, 2, NULL},
    {"another window", other_window, PICI_E_PEER, 2, NULL},
    {"another option zeros", other_zeros, PICI_E_PEER, 2, NULL},
    {"another node map", other_nodes, PICI_E_PEER, 2, NULL}, /* of two ranks in the same order */
};

Test(coll_threads_calls, one_wrong_all_know)
{
    static const int ranks[] = {1, 2, 3, 6};
    for (size_t w = 0; w < sizeof wrongs / sizeof *wrongs; w++)
        for (int i = 0; i < 4; i++)
            for (int odd = 0; odd<ranks[i]; odd += ranks[i]> 3 ? 3 : 1) {
                struct step s;
                if (ranks[i] < wrongs[w].least_ranks)
                    continue;
                step_init(&s, ranks[i]);
                s.odd = odd;
                step_run(&s, wrongs[w].call);
                expect_all(&s, wrongs[w].want, wrongs[w].what);
                for (int r = 0; r < s.p; r++) {
                    const char *words = pici_comm_error(s.comm[r]);
                    cr_expect(words[0], "%s: no words", wrongs[w].what);
                    cr_expect(r != odd || !wrongs[w].words || strstr(words, wrongs[w].words), "%s: \"%s\"",
                              wrongs[w].what, words);
                }
                step_run(&s, good);
                expect_all(&s, PICI_E_BROKEN, "after an error");
                step_free(&s);
            }
}

/* Of several ranks' errors all return the same one. */
static enum pici_status two_wrongs(struct step *s, int rank)
{
    struct pici_coll_opts o = defaults;
    char byte;
    o.scratch = rank == 1 ? &byte : NULL;
    o.scratch_bytes = 1;
    return pici_all_reduce(rank == 2 ? NULL : s->send[rank], s->recv[rank], rank == 3 ? N + 1 : N, PICI_F32, PICI_SUM,
                           s->comm[rank], &o);
}

Test(coll_threads_calls, several_wrong)
{
    struct step s;
    step_init(&s, 6);
    s.odd = -1;
    step_run(&s, two_wrongs);
    cr_expect(s.status[0] != PICI_OK);
    expect_all(&s, s.status[0], "three errors at once");
    step_free(&s);
}

/* ---- at once ---- */

static enum pici_status sum_of(struct pici_comm *comm, enum pici_dtype dtype, enum pici_op op,
                               const struct pici_coll_opts *opts)
{
    float a[4] = {0}, b[4];
    return pici_all_reduce(a, b, 1, dtype, op, comm, opts);
}

/* Rank 0 alone asks for what there is not; nobody else need know, and the communicator goes on. */
Test(coll_threads_calls, refused_at_once)
{
    struct step s;
    struct pici_request *request;
    struct pici_coll_opts o = defaults;
    float a[8] = {0}, b[8];
    step_init(&s, 3);
    s.odd = -1;
    struct pici_comm *comm = s.comm[0];
    cr_expect_eq(sum_of(comm, (enum pici_dtype)0, PICI_SUM, NULL), PICI_E_UNSUPPORTED);
    cr_expect_eq(sum_of(comm, (enum pici_dtype)15, PICI_SUM, NULL), PICI_E_UNSUPPORTED);
    cr_expect_eq(sum_of(comm, (enum pici_dtype) - 1, PICI_SUM, NULL), PICI_E_UNSUPPORTED);
    cr_expect_eq(sum_of(comm, PICI_F32, (enum pici_op)4, NULL), PICI_E_UNSUPPORTED);
    cr_expect_eq(sum_of(comm, PICI_F32, (enum pici_op) - 1, NULL), PICI_E_UNSUPPORTED);
    cr_expect_eq(pici_all_gather(a, b, 1, (enum pici_dtype)99, comm, NULL), PICI_E_UNSUPPORTED);
    cr_expect_eq(pici_reduce_scatter(a, b, 1, PICI_U8, (enum pici_op)99, comm, NULL), PICI_E_UNSUPPORTED);
    o.algorithm = (enum pici_algorithm)(coll_algorithms() + 1);
    cr_expect_eq(sum_of(comm, PICI_F32, PICI_SUM, &o), PICI_E_UNSUPPORTED);
    o.algorithm = (enum pici_algorithm) - 1;
    cr_expect_eq(sum_of(comm, PICI_F32, PICI_SUM, &o), PICI_E_UNSUPPORTED);
    o = defaults;
    static const int formats[] = {4, 254, 256, -1};
    for (int i = 0; i < 4; i++) {
        o.format = (enum pici_format)formats[i];
        cr_expect_eq(sum_of(comm, PICI_F32, PICI_SUM, &o), PICI_E_UNSUPPORTED, "format %d", formats[i]);
        cr_expect_eq(pici_comm_scratch(comm, PICI_ALL_REDUCE, 1, PICI_F32, PICI_SUM, &o), 0u);
    }

    o = defaults;
    o.formats = 1u << (PICI_HYBRID + 1);
    cr_expect_eq(sum_of(comm, PICI_F32, PICI_SUM, &o), PICI_E_UNSUPPORTED);

    cr_expect_eq(sum_of(NULL, PICI_F32, PICI_SUM, NULL), PICI_E_ARG);
    o = defaults;
    o.size = 0;
    cr_expect_eq(sum_of(comm, PICI_F32, PICI_SUM, &o), PICI_E_ARG);
    o.size = offsetof(struct pici_coll_opts, inter_bandwidth) - 1;
    cr_expect_eq(sum_of(comm, PICI_F32, PICI_SUM, &o), PICI_E_ARG);

    /* a later version's options, of which this one knows only that they are not used */
    struct {
        struct pici_coll_opts o;
        unsigned char later[16];
    } later = {defaults, {0}};
    later.o.size = sizeof later;
    cr_expect_gt(pici_comm_scratch(comm, PICI_ALL_REDUCE, 1, PICI_F32, PICI_SUM, &later.o), 0u);
    later.later[15] = 1;
    cr_expect_eq(sum_of(comm, PICI_F32, PICI_SUM, &later.o), PICI_E_UNSUPPORTED);

    struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
    stats.size = 3;
    o = defaults;
    o.stats = &stats;
    cr_expect_eq(sum_of(comm, PICI_F32, PICI_SUM, &o), PICI_E_ARG);

    request = (struct pici_request *)a;
    cr_expect_eq(pici_all_reduce_start(a, b, 1, (enum pici_dtype)0, PICI_SUM, comm, NULL, &request),
                 PICI_E_UNSUPPORTED);
    cr_expect_null(request);
    request = (struct pici_request *)a;
    cr_expect_eq(pici_all_gather_start(a, b, 1, PICI_F32, NULL, NULL, &request), PICI_E_ARG);
    cr_expect_null(request);
    request = (struct pici_request *)a;
    cr_expect_eq(pici_reduce_scatter_start(a, b, 1, PICI_F32, (enum pici_op)7, comm, NULL, &request),
                 PICI_E_UNSUPPORTED);
    cr_expect_null(request);
    cr_expect_eq(pici_all_reduce_start(a, b, 1, PICI_F32, PICI_SUM, comm, NULL, NULL), PICI_E_ARG);

    cr_expect_str_eq(pici_comm_error(comm), "");
    step_run(&s, good);
    expect_all(&s, PICI_OK, "after calls refused at once");
    step_free(&s);
}

Test(coll_threads_calls, nothing_at_all)
{
    struct pici_comm *comms[2] = {(struct pici_comm *)comms, (struct pici_comm *)comms};
    struct pici_request *none = NULL;
    int done = 0, node = 0;
    alarm(WATCHDOG_S);
    cr_expect_eq(pici_comm_threads(NULL, 2), PICI_E_ARG);
    cr_expect(pici_comm_error(NULL)[0]);
    cr_expect_eq(pici_comm_threads(comms, 0), PICI_E_ARG);
    cr_expect_eq(pici_comm_threads(comms, -3), PICI_E_ARG);
    cr_expect_eq(pici_comm_set_nodes(NULL, &node), PICI_E_ARG);
    cr_expect_eq(pici_comm_reserve(NULL, 1), PICI_E_ARG);
    cr_expect_eq(pici_comm_scratch(NULL, PICI_ALL_REDUCE, 1, PICI_F32, PICI_SUM, NULL), 0u);
    cr_expect_eq(pici_wait(&none), PICI_OK);
    cr_expect_eq(pici_test(&none, &done), PICI_OK);
    cr_expect_eq(done, 1);
    cr_expect_eq(pici_wait(NULL), PICI_E_ARG);
    cr_expect_eq(pici_test(NULL, &done), PICI_E_ARG);
    pici_comm_free(NULL);

    cr_assert_eq(pici_comm_threads(comms, 1), PICI_OK);
    cr_expect_eq(pici_comm_rank(comms[0]), 0);
    cr_expect_eq(pici_comm_size(comms[0]), 1);
    cr_expect_eq(pici_comm_set_nodes(comms[0], NULL), PICI_E_ARG);
    cr_expect_str_eq(pici_comm_error(comms[0]), "");
    cr_expect_str_eq(pici_comm_error(NULL), "");
    cr_expect_eq(pici_all_reduce(NULL, NULL, 0, PICI_F32, PICI_SUM, comms[0], NULL), PICI_OK);
    cr_expect_eq(pici_comm_scratch(comms[0], (enum pici_collective)0, 1, PICI_F32, PICI_SUM, NULL), 0u);
    cr_expect_eq(pici_comm_scratch(comms[0], (enum pici_collective)4, 1, PICI_F32, PICI_SUM, NULL), 0u);
    cr_expect_eq(pici_comm_scratch(comms[0], PICI_ALL_GATHER, UINT64_MAX, PICI_F32, PICI_SUM, NULL), 0u);
    pici_comm_free(comms[0]);
}

static enum pici_status nothing(struct step *s, int rank)
{
    enum pici_status a = pici_all_reduce(NULL, NULL, 0, PICI_F32, PICI_SUM, s->comm[rank], NULL);
    enum pici_status b = pici_all_gather(NULL, NULL, 0, PICI_U8, s->comm[rank], NULL);
    enum pici_status c = pici_reduce_scatter(NULL, NULL, 0, PICI_F64, PICI_MIN, s->comm[rank], NULL);
    return a ? a : b ? b : c;
}

Test(coll_threads_calls, no_elements_need_no_buffers)
{
    struct step s;
    step_init(&s, 5);
    s.odd = -1;
    step_run(&s, nothing);
    expect_all(&s, PICI_OK, "no elements");
    step_free(&s);
}

/* ---- ranks that are gone or silent ---- */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static enum pici_status odd_frees(struct step *s, int rank)
{
    if (rank != s->odd)
        return sum(s, rank, NULL);
    pici_comm_free(s->comm[rank]);
    s->comm[rank] = NULL;
    return PICI_E_PEER;
}

Test(coll_threads_calls, a_peer_is_gone)
{
    for (int odd = 0; odd < 5; odd++) {
        struct step s;
        double begin = seconds();
        step_init(&s, 5);
        s.odd = odd;
        step_run(&s, odd_frees);
        expect_all(&s, PICI_E_PEER, "a rank that freed its communicator");
        cr_expect_lt(seconds() - begin, 50, "by the silence, not by the end of the peer");
        s.odd = -1;
        step_free(&s);
    }
}

static enum pici_status odd_is_silent(struct step *s, int rank)
{
    struct pici_coll_opts o = defaults;
    o.timeout_ms = 150;
    return rank == s->odd ? PICI_E_TIMEOUT : sum(s, rank, &o);
}

Test(coll_threads_calls, a_peer_is_silent)
{
    for (int odd = 0; odd < 3; odd++) {
        struct step s;
        step_init(&s, 3);
        s.odd = odd;
        double begin = seconds();
        step_run(&s, odd_is_silent);
        double took = seconds() - begin;
        expect_all(&s, PICI_E_TIMEOUT, "a rank that does not call");
        cr_expect_geq(took, 0.14);
        cr_expect_lt(took, 50);
        step_run(&s, good); /* the silent one learns of it by now */
        for (int i = 0; i < s.p; i++)
            cr_expect(s.status[i] == PICI_E_BROKEN || (i == odd && s.status[i] == PICI_E_TIMEOUT), "rank %d: %s", i,
                      pici_strerror(s.status[i]));
        step_free(&s);
    }
}

/* Without a limit, who comes late is waited for. */
static enum pici_status odd_is_late(struct step *s, int rank)
{
    struct pici_coll_opts o = defaults;
    o.timeout_ms = -1;
    if (rank == s->odd)
        usleep(300000);
    return sum(s, rank, &o);
}

Test(coll_threads_calls, a_peer_is_late)
{
    struct step s;
    step_init(&s, 3);
    s.odd = 1;
    step_run(&s, odd_is_late);
    expect_all(&s, PICI_OK, "a rank that comes late");
    step_free(&s);
}

/* ---- freeing with requests in flight ---- */

enum { FLIGHTS = 3 };

static enum pici_status odd_frees_in_flight(struct step *s, int rank)
{
    struct pici_request *request[FLIGHTS];
    enum pici_status status = PICI_OK, worst = PICI_OK;
    int node_of[RANKS] = {0}, done;
    for (int i = 0; i < FLIGHTS; i++)
        if (pici_all_reduce_start(s->send[rank], s->recv[rank] + (size_t)i * N, N, PICI_F32, PICI_SUM, s->comm[rank],
                                  NULL, &request[i]))
            return PICI_E_ARG;
    if (pici_comm_set_nodes(s->comm[rank], node_of) != PICI_E_BROKEN)
        return PICI_E_SPACE;
    if (rank == s->odd) {
        for (int i = 0; i < rank; i++) /* at various points of the first */
            pici_test(&request[0], &done);
        pici_comm_free(s->comm[rank]);
        s->comm[rank] = NULL;
    }
    for (int i = 0; i < FLIGHTS; i++) {
        status = pici_wait(&request[i]);
        worst = status < worst ? status : worst;
        if (request[i] || (rank == s->odd && i == FLIGHTS - 1 && status != PICI_E_BROKEN))
            return PICI_E_SPACE;
    }
    return worst;
}

Test(coll_threads_calls, freed_in_flight)
{
    for (int odd = 0; odd < 4; odd++) {
        struct step s;
        double begin = seconds();
        step_init(&s, 4);
        s.odd = odd;
        step_run(&s, odd_frees_in_flight);
        for (int i = 0; i < s.p; i++)
            cr_expect(s.status[i] == PICI_E_BROKEN || (i != odd && s.status[i] == PICI_E_PEER), "odd %d, rank %d: %s",
                      odd, i, pici_strerror(s.status[i]));
        cr_expect_lt(seconds() - begin, 50);
        step_free(&s);
    }
}

/* ---- fork ---- */

/* In the child: 0, or the number of what is not as it should be. */
static int child(struct step *s)
{
    struct pici_request *request = (struct pici_request *)s;
    int node_of[RANKS] = {0};
    if (sum(s, 0, NULL) != PICI_E_BROKEN)
        return 1;
    if (pici_all_gather_start(s->send[0], s->recv[0], 1, PICI_F32, s->comm[0], NULL, &request) != PICI_E_BROKEN ||
        request)
        return 2;
    if (pici_comm_set_nodes(s->comm[1], node_of) != PICI_E_BROKEN)
        return 3;
    for (int i = 0; i < s->p; i++)
        pici_comm_free(s->comm[i]);
    return 0;
}

Test(coll_threads_calls, fork)
{
    struct step s;
    struct pici_request *request[2];
    int status = -1, flying = 0;
    step_init(&s, 2);
    s.odd = -1;
    for (int in_flight = 0; in_flight < 2; in_flight++) {
        step_run(&s, good);
        expect_all(&s, PICI_OK, "before the fork");
        for (flying = 0; in_flight && flying < 2; flying++)
            cr_assert_eq(pici_all_reduce_start(s.send[flying], s.recv[flying], N, PICI_F32, PICI_SUM, s.comm[flying],
                                               NULL, &request[flying]),
                         PICI_OK);
        pid_t pid = fork();
        cr_assert_geq(pid, 0);
        if (pid == 0)
            _exit(child(&s));
        cr_assert_eq(waitpid(pid, &status, 0), pid);
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child: %#x", (unsigned)status);
        int done[2] = {0, 0};
        while (in_flight && !(done[0] && done[1])) /* one thread drives both */
            for (int i = 0; i < 2; i++)
                if (!done[i])
                    cr_assert_eq(pici_test(&request[i], &done[i]), PICI_OK);
    }
    step_run(&s, good);
    expect_all(&s, PICI_OK, "after the fork");
    step_free(&s);
}

/* ---- the environment ---- */

Test(coll_threads_calls, environment)
{
    static const struct {
        const char *name, *bad[6], *fine[4];
    } variables[] = {
        {"PICI_ALGORITHM", {"", "rings", "1", "RING", "ring "}, {"auto", "ring", "recursive", "split"}},
        {"PICI_FORMAT", {"", "hybrids", "5", "bitmap,coo", "\xff"}, {"pici", "bitmap", "coo", "hybrid"}},
        {"PICI_INTER_THRESHOLD", {"", "x", "-0.1", "1.1", "nan", "0.5x"}, {"0", "1", "0.25", "1e-3"}},
        {"PICI_INTRA_THRESHOLD", {"", "x", "-1", "2", "inf", "0,5"}, {"0", "1", "0.25"}},
        {"PICI_AG_THRESHOLD", {"", "x", "-1", "2", "NAN", "0.5 0.6"}, {"0", "1", "0.25"}},
        {"PICI_STREAM_THRESHOLD", {"", "x", "-1", "2", "1,5"}, {"0", "1", "0.5"}},
        {"PICI_TIMEOUT_MS", {"", "soon", "1.5", "10s", "99999999999999999999", "-7"}, {"1", "100", "-1"}},
        {"PICI_CHECKSUM", {"", "yes", "2", "-1", "01x", "1 0"}, {"0", "1"}},
        {"PICI_SLICE_BYTES", {"", "1M", "-4096", "0.5", "99999999999999999999"}, {"1", "65536"}},
        {"PICI_WINDOW", {"", "65", "-1", "four", "3.0"}, {"1", "64"}},
        {"PICI_INTER_BANDWIDTH", {"", "fast", "0", "-1e9", "nan", "1e9 B"}, {"1", "25e6", "1.25e9", "1e18"}},
        {"PICI_INTRA_BANDWIDTH", {"", "10G", "-0", "inf", "1e19", "0x"}, {"1", "5e9"}},
        {"PICI_AUTO_FORMATS",
         {"", "auto", "pici,", ",pici", "pici coo", "pici,coo,zip"},
         {"pici,coo,hybrid", "hybrid", "dense", "coo,coo"}},
        {"PICI_TRACE", {""}, {NULL}},
    };
    struct pici_comm *comm[2];
    alarm(WATCHDOG_S);
    for (size_t v = 0; v < sizeof variables / sizeof *variables; v++) {
        for (int i = 0; i < 6 && variables[v].bad[i]; i++) {
            setenv(variables[v].name, variables[v].bad[i], 1);
            cr_expect_eq(pici_comm_threads(comm, 2), PICI_E_ARG, "%s=%s", variables[v].name, variables[v].bad[i]);
            cr_expect_null(comm[0]);
            cr_expect_null(comm[1]);
            cr_expect(strstr(pici_comm_error(NULL), variables[v].name), "%s=%s: \"%s\"", variables[v].name,
                      variables[v].bad[i], pici_comm_error(NULL));
        }
        for (int i = 0; i < 4 && variables[v].fine[i]; i++) {
            setenv(variables[v].name, variables[v].fine[i], 1);
            cr_expect_eq(pici_comm_threads(comm, 2), PICI_OK, "%s=%s: %s", variables[v].name, variables[v].fine[i],
                         pici_comm_error(NULL));
            pici_comm_free(comm[0]);
            pici_comm_free(comm[1]);
        }
        unsetenv(variables[v].name);
    }
    setenv("PICI_TRACE", "/no/such/folder/trace", 1);
    cr_expect_eq(pici_comm_threads(comm, 2), PICI_E_IO);
    cr_expect(strstr(pici_comm_error(NULL), "PICI_TRACE"));
    unsetenv("PICI_TRACE");
}

/* One rank of the environment's words, and the options over them. */
static enum pici_status formats_sent(struct step *s, int rank)
{
    struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
    struct pici_coll_opts o = defaults;
    o.stats = &stats;
    enum pici_status status = sum(s, rank, &o);
    if (status || stats.sends[PICI_COO] == 0 || stats.sends[PICI_BITMAP] || stats.sends[PICI_DENSE])
        return status ? status : PICI_E_ARG;
    o.format = PICI_BITMAP;
    status = sum(s, rank, &o);
    if (status || stats.sends[PICI_BITMAP] == 0 || stats.sends[PICI_COO] || stats.sends[PICI_DENSE])
        return status ? status : PICI_E_SPACE;
    o.inter_threshold = o.intra_threshold = o.ag_threshold = 1;
    status = sum(s, rank, &o);
    return status                                                                           ? status
           : stats.sends[PICI_DENSE] && !stats.sends[PICI_BITMAP] && !stats.sends[PICI_COO] ? PICI_OK
                                                                                            : PICI_E_CORRUPT;
}

Test(coll_threads_calls, environment_then_options)
{
    struct step s;
    setenv("PICI_FORMAT", "coo", 1);
    setenv("PICI_INTER_THRESHOLD", "0", 1);
    setenv("PICI_INTRA_THRESHOLD", "0", 1);
    setenv("PICI_AG_THRESHOLD", "0", 1);
    step_init(&s, 3);
    unsetenv("PICI_FORMAT"); /* it was read when the communicator was made */
    setenv("PICI_AG_THRESHOLD", "garbage", 1);
    s.odd = -1;
    step_run(&s, formats_sent);
    expect_all(&s, PICI_OK, "the environment, then the options");
    step_free(&s);
}

static enum pici_status silent_by_environment(struct step *s, int rank)
{
    return rank == 0 ? PICI_E_TIMEOUT : sum(s, rank, NULL);
}

Test(coll_threads_calls, environment_timeout)
{
    struct step s;
    setenv("PICI_TIMEOUT_MS", "120", 1);
    step_init(&s, 2);
    s.odd = 0;
    double begin = seconds();
    step_run(&s, silent_by_environment);
    expect_all(&s, PICI_E_TIMEOUT, "PICI_TIMEOUT_MS");
    cr_expect_lt(seconds() - begin, 50);
    step_free(&s);
}
