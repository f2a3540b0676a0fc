/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Several collectives in flight on a communicator, waited for in any order; and what a call tells of itself:
 * thresholds to the point, bytes and formats sent, scratch memory. */
#define _POSIX_C_SOURCE 200809L
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "coll/request.h"
#include "tests/util/coll.h"
#include "formats/ref.h"
#include "parse/json.h"

enum { WATCHDOG_S = 900 };

/* ---- nonblocking ---- */

Test(coll_threads_flight, in_any_order)
{
    static const int ranks[] = {1, 2, 3, 5, 9, 17};
    struct rng rng = {77};
    alarm(WATCHDOG_S);
    for (int run = 0; run < 60; run++) {
        const int p = ranks[run % 6];
        const char *wrong = coll_flight_check(p, rng_next(&rng));
        cr_assert(!wrong, "run %d, %d ranks: %s", run, p, wrong);
    }
}

/* A test does not wait: not for a peer that has not even begun. One thread drives all the ranks. */
Test(coll_threads_flight, test_does_not_wait)
{
    enum { P = 3, N = 50000 };
    struct pici_comm *comm[P];
    struct pici_request *request[P];
    static int32_t send[P][N], recv[P][N];
    int done, left = P;
    alarm(WATCHDOG_S);
    cr_assert_eq(pici_comm_threads(comm, P), PICI_OK);
    for (int i = 0; i < P; i++) {
        for (int j = i; j < N; j += 11)
            send[i][j] = j - i;
        for (int n = 0; n < i; n++) {
            cr_assert_eq(pici_test(&request[n], &done), PICI_OK);
            cr_assert_eq(done, 0);
            cr_assert_not_null(request[n]);
        }
        cr_assert_eq(pici_all_reduce_start(send[i], recv[i], N, PICI_I32, PICI_MAX, comm[i], NULL, &request[i]),
                     PICI_OK);
    }
    while (left)
        for (int i = 0; i < P; i++)
            if (request[i]) {
                cr_assert_eq(pici_test(&request[i], &done), PICI_OK);
                cr_assert_eq(done, request[i] == NULL);
                left -= done;
            }
    for (int j = 0; j < N; j++)
        for (int i = 0; i < P; i++)
            cr_assert_eq(recv[i][j], j % 11 < P ? j - j % 11 : 0);
    for (int i = 0; i < P; i++)
        pici_comm_free(comm[i]);
}

/* A wait with a limit returns while a peer has not come, and the call goes on. One thread drives both ranks. */
Test(coll_threads_flight, wait_for_a_while)
{
    enum { N = 50000 };
    struct pici_comm *comm[2];
    struct pici_request *request[2];
    static int32_t send[2][N], recv[2][N];
    struct timespec begin, end;
    int done = 1, left = 2;
    alarm(WATCHDOG_S);
    cr_assert_eq(pici_comm_threads(comm, 2), PICI_OK);
    for (int j = 0; j < N; j++)
        send[0][j] = j % 7, send[1][j] = j % 3;
    cr_assert_eq(pici_all_reduce_start(send[0], recv[0], N, PICI_I32, PICI_SUM, comm[0], NULL, &request[0]), PICI_OK);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    cr_assert_eq(pici_wait_for(&request[0], 60, &done), PICI_OK);
    clock_gettime(CLOCK_MONOTONIC, &end);
    const double seconds = (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
    cr_expect(seconds >= 0.055 && seconds < 30, "%g s", seconds);
    cr_assert(!done && request[0]);
    cr_assert_eq(pici_wait_for(&request[0], 0, &done), PICI_OK);
    cr_assert(!done && request[0]);

    cr_assert_eq(pici_all_reduce_start(send[1], recv[1], N, PICI_I32, PICI_SUM, comm[1], NULL, &request[1]), PICI_OK);
    while (left)
        for (int i = 0; i < 2; i++)
            if (request[i]) {
                cr_assert_eq(pici_wait_for(&request[i], 1, &done), PICI_OK);
                cr_assert_eq(done, request[i] == NULL);
                left -= done;
            }
    for (int j = 0; j < N; j++)
        cr_assert(recv[0][j] == j % 7 + j % 3 && recv[1][j] == recv[0][j]);

    cr_expect_eq(pici_wait_for(&request[0], 5, &done), PICI_OK); /* NULL: as with pici_wait */
    cr_expect_eq(done, 1);
    cr_expect_eq(pici_wait_for(NULL, 5, &done), PICI_E_ARG);
    cr_expect_eq(pici_wait_for(&request[0], 5, NULL), PICI_E_ARG);
    cr_assert_eq(pici_all_reduce_start(send[0], recv[0], N, PICI_I32, PICI_SUM, comm[0], NULL, &request[0]), PICI_OK);
    pici_comm_free(comm[0]);
    cr_expect_eq(pici_wait_for(&request[0], 5, &done), PICI_E_BROKEN);
    cr_expect(done && !request[0]);
    pici_comm_free(comm[1]);
}

/* A request that has ended is the caller's still when the communicator is freed. */
Test(coll_threads_flight, ended_then_freed)
{
    struct pici_comm *comm;
    struct pici_request *request[2];
    int32_t a[2] = {1, 2}, b[2][2];
    alarm(WATCHDOG_S);
    cr_assert_eq(pici_comm_threads(&comm, 1), PICI_OK);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pici_all_reduce_start(a, b[i], 2, PICI_I32, PICI_SUM, comm, NULL, &request[i]), PICI_OK);
    cr_expect_eq(pici_wait(&request[1]), PICI_OK);
    pici_comm_free(comm);
    cr_expect_eq(pici_wait(&request[0]), PICI_OK);
    cr_expect_null(request[0]);
    cr_expect_arr_eq(b[0], a, sizeof a);
    cr_expect_arr_eq(b[1], a, sizeof a);
}

/* ---- thresholds and statistics ---- */

/* What two ranks that call with the same data are told. */
struct told {
    struct pici_comm *comm[2];
    const void *send;
    enum pici_collective collective;
    enum pici_dtype dtype;
    uint64_t n;
    struct pici_coll_opts opts;
    struct pici_coll_stats stats[2];
    enum pici_status status[2];
};

static void tell_rank(void *context, int rank)
{
    struct told *t = context;
    void *recv = test_alloc((size_t)(2 * t->n) * ref_width(t->dtype));
    struct pici_coll_opts o = t->opts;
    o.stats = &t->stats[rank];
    t->stats[rank] = (struct pici_coll_stats)PICI_COLL_STATS_INIT;
    if (t->collective == PICI_ALL_GATHER)
        t->status[rank] = pici_all_gather(t->send, recv, t->n, t->dtype, t->comm[rank], &o);
    else
        t->status[rank] = pici_all_reduce(t->send, recv, t->n, t->dtype, PICI_MAX, t->comm[rank], &o);
    free(recv);
}

static void tell(struct told *t)
{
    coll_threads(2, tell_rank, t);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(t->status[i], PICI_OK, "%s", pici_comm_error(t->comm[i]));
}

static void told_init(struct told *t, int one_node)
{
    static const struct pici_coll_opts defaults = PICI_COLL_OPTS_INIT;
    const int apart[] = {0, 1}, together[] = {3, 3};
    memset(t, 0, sizeof *t);
    alarm(WATCHDOG_S);
    t->dtype = PICI_U16;
    t->opts = defaults;
    t->opts.algorithm = PICI_ALGO_RING;
    cr_assert_eq(pici_comm_threads(t->comm, 2), PICI_OK);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pici_comm_set_nodes(t->comm[i], one_node ? together : apart), PICI_OK);
}

static void told_free(struct told *t)
{
    pici_comm_free(t->comm[0]);
    pici_comm_free(t->comm[1]);
}

/* n elements, of which the first nnz of each part of `part` are not zero. */
static void set(uint16_t *to, uint64_t n, uint64_t part, uint64_t nnz)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] = i % part < nnz ? (uint16_t)(i | 1) : 0;
}

/* An all-gather of two ranks is one block each way. Dense at the threshold, sparse beyond it. */
Test(coll_threads_flight, threshold_of_all_gather)
{
    static const struct {
        float threshold;
        uint64_t nnz; /* of 1000 */
        int dense;
    } cases[] = {
        {0.5f, 500, 1}, {0.5f, 499, 0}, {0.5f, 501, 1},  {0.6f, 400, 1},  {0.6f, 399, 0},
        {0.1f, 900, 1}, {0.1f, 899, 0}, {0, 1000, 0},    {1, 0, 1},       {1, 1, 1},
        {-1, 900, 1},   {-1, 899, 0},   {1e-3f, 999, 1}, {1e-3f, 998, 0},
    };
    static uint16_t send[5000];
    struct told t;
    told_init(&t, 0);
    t.collective = PICI_ALL_GATHER;
    t.send = send;
    t.n = 5000;
    t.opts.format = PICI_BITMAP;
    t.opts.inter_threshold = t.opts.intra_threshold = 0.3f; /* not asked */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set(send, 5000, 1000, cases[i].nnz);
        t.opts.ag_threshold = cases[i].threshold;
        tell(&t);
        for (int r = 0; r < 2; r++) {
            const struct pici_coll_stats *s = &t.stats[r];
            /* 5000 elements may be one slice or two */
            cr_expect_eq(s->sends[PICI_DENSE] > 0, cases[i].dense, "threshold %g, %d nonzeros", cases[i].threshold,
                         (int)cases[i].nnz);
            cr_expect_eq(s->sends[PICI_BITMAP] > 0, !cases[i].dense);
            cr_expect_eq(s->sends[PICI_COO] + s->sends[PICI_HYBRID], 0u);
        }
    }
    told_free(&t);
}

/* An all-reduce of two ranks is one block each way of each phase; the first's threshold depends on the nodes. */
Test(coll_threads_flight, thresholds_of_all_reduce)
{
    static uint16_t send[8000];
    for (int one_node = 0; one_node < 2; one_node++)
        for (int format = PICI_BITMAP; format <= PICI_HYBRID; format++)
            for (int at = 0; at < 2; at++) {
                struct told t;
                told_init(&t, one_node);
                t.collective = PICI_ALL_REDUCE;
                t.send = send;
                t.n = 8000;
                t.opts.format = (enum pici_format)format;
                t.opts.ag_threshold = 0;
                t.opts.inter_threshold = 0.5f;
                t.opts.intra_threshold = 0.75f;
                set(send, 8000, 1000, (one_node ? 250u : 500u) - (unsigned)at);
                tell(&t);
                for (int r = 0; r < 2; r++) {
                    cr_expect_eq(t.stats[r].sends[PICI_DENSE], at ? 0u : 1u);
                    cr_expect_eq(t.stats[r].sends[format], at ? 2u : 1u);
                }
                t.opts.ag_threshold = 1;
                tell(&t);
                for (int r = 0; r < 2; r++) {
                    cr_expect_eq(t.stats[r].sends[PICI_DENSE], at ? 1u : 2u);
                    cr_expect_eq(t.stats[r].sends[format], at ? 1u : 0u);
                }
                told_free(&t);
            }
}

/* What a block saves is what the wire saves. Over a slow link AUTO takes the smallest of the formats that it may. */
Test(coll_threads_flight, wire_bytes)
{
    enum { MANY = 300000 };
    uint16_t *send = test_alloc(MANY * sizeof *send);
    const size_t cap = pici_bound(PICI_DENSE, PICI_U16, MANY) + 4096;
    uint8_t *block = test_alloc(cap);
    static const struct {
        uint64_t part, nnz;
        enum pici_format best[2]; /* of all; of pici and coo */
    } cases[] = {{4096, 2, {PICI_HYBRID, PICI_COO}},
                 {100, 10, {PICI_HYBRID, PICI_BITMAP}},
                 {100, 100, {PICI_DENSE, PICI_DENSE}}};
    struct told t;
    told_init(&t, 0);
    t.collective = PICI_ALL_GATHER;
    t.send = send;
    t.opts.ag_threshold = 0;
    t.opts.inter_bandwidth = 1;
    for (int i = 0; i < 3; i++)
        for (int n = 1; n <= MANY; n = n == 1 ? 4096 : n == 4096 ? 4097 : n == 4097 ? MANY : MANY + 1) {
            uint64_t wire[PICI_HYBRID + 1];
            set(send, (uint64_t)n, cases[i].part, cases[i].nnz);
            t.n = (uint64_t)n;
            for (int f = PICI_DENSE; f <= PICI_HYBRID; f++) {
                size_t len;
                t.opts.format = (enum pici_format)f;
                tell(&t);
                wire[f] = t.stats[0].wire_bytes;
                cr_expect_eq(t.stats[1].wire_bytes, wire[f]);
                cr_expect_eq(t.stats[1].dense_bytes, t.stats[0].dense_bytes);
                cr_expect_eq(t.stats[0].inter_bytes, wire[f]);
                if (f == PICI_DENSE)
                    cr_expect_eq(wire[f], t.stats[0].dense_bytes);
                if (n > 4096)
                    continue;
                cr_assert_eq(pici_compress(block, cap, &len, send, (uint64_t)n, PICI_U16, (enum pici_format)f, NULL),
                             PICI_OK);
                cr_expect_eq(wire[f] - len, t.stats[0].dense_bytes - pici_bound(PICI_DENSE, PICI_U16, (uint64_t)n));
            }
            t.opts.format = PICI_AUTO;
            for (int some = 0; some < 2; some++) {
                t.opts.formats = some ? 1u << PICI_BITMAP | 1u << PICI_COO : 0;
                tell(&t);
                for (int f = PICI_DENSE; f <= PICI_COO; f++)
                    cr_expect_leq(t.stats[0].wire_bytes, wire[f], "n %d, %s is smaller", n,
                                  pici_format_name((enum pici_format)f));
                /* its length is an estimate */
                if (!some)
                    cr_expect_leq(t.stats[0].wire_bytes, wire[PICI_HYBRID] + 32, "n %d, hybrid is smaller", n);
                if (n == MANY)
                    cr_expect_gt(t.stats[0].sends[cases[i].best[some]], 0u, "not %s",
                                 pici_format_name(cases[i].best[some]));
            }
            t.opts.formats = 0;
        }
    told_free(&t);
    free(send);
    free(block);
}

/* ---- the trace ---- */

/* Strings `value` in a JSON text: names of events, here. -1: it is no JSON. */
static int count_strings(const char *text, size_t len, const char *value)
{
    struct parse_error err;
    struct json j;
    struct json_token t;
    int n = 0;
    pici_json_init(&j, text, len, 0, &err);
    while ((t = pici_json_next(&j)).type != JSON_END) {
        if (t.type == JSON_ERROR)
            return -1;
        n += t.type == JSON_STRING && t.size == strlen(value) && memcmp(text + t.start, value, t.size) == 0;
    }
    return n;
}

/* An event for each message sent, and received, and one for the whole. With a ring, a message is a block. */
Test(coll_threads_flight, trace)
{
    char folder[] = "/tmp/pici-coll-XXXXXX", path[64], file[80];
    static uint16_t send[50000];
    static char text[1 << 20];
    struct told t;
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/trace", folder);
    setenv("PICI_TRACE", path, 1);
    told_init(&t, 0);
    unsetenv("PICI_TRACE");
    t.collective = PICI_ALL_REDUCE;
    t.send = send;
    t.n = 50000;
    t.opts.slice_bytes = 1;
    set(send, t.n, 100, 3);
    tell(&t);
    told_free(&t);
    for (int r = 0; r < 2; r++) {
        const uint64_t *s = t.stats[r].sends;
        const int blocks = (int)(s[PICI_DENSE] + s[PICI_BITMAP] + s[PICI_COO] + s[PICI_HYBRID]);
        snprintf(file, sizeof file, "%s.%d", path, r);
        FILE *f = fopen(file, "rb");
        cr_assert_not_null(f);
        size_t len = fread(text, 1, sizeof text, f);
        fclose(f);
        cr_expect_eq(count_strings(text, len, "send"), blocks);
        cr_expect_eq(count_strings(text, len, "recv"), blocks);
        cr_expect_eq(count_strings(text, len, "all-reduce"), 1);
        unlink(file);
    }
    rmdir(folder);
}

/* ---- scratch ---- */

static _Thread_local int allocations, allocations_allowed; /* of this rank */

static enum pici_status counted_room(void *self, const struct engine_needs *needs, struct engine_room *room,
                                     struct pici_queue **queues)
{
    const size_t before = pici_engine_host_scratch(self);
    if (allocations == allocations_allowed && needs->messages > before && !needs->memory)
        return PICI_E_NOMEM;
    enum pici_status s = pici_engine_host.room(self, needs, room, queues);
    allocations += pici_engine_host_scratch(self) != before;
    return s;
}

struct scratch {
    struct coll_team team;
    struct coll_case c;
    struct coll_job job;
    enum { GROWS, RESERVED, HANDED, FAILS } how;
    enum pici_status status[COLL_RANKS], again[COLL_RANKS];
    int allocations[COLL_RANKS];
    const char *wrong[COLL_RANKS];
};

static void scratch_rank(void *context, int rank)
{
    struct scratch *s = context;
    struct pici_engine engine = pici_engine_host;
    struct pici_comm *comm = s->team.comm[rank];
    struct coll_rank *k = &s->team.rank[rank];
    engine.room = counted_room;
    comm->engine = &engine;
    allocations = 0;
    allocations_allowed = s->how == FAILS && rank == 1 ? 0 : 1;
    if (s->how == RESERVED &&
        pici_comm_reserve(comm, pici_comm_scratch(comm, s->c.collective, s->c.count, s->c.dtype, s->c.op, &s->c.opts)))
        s->wrong[rank] = "not reserved";
    s->allocations[rank] = -allocations;
    coll_rank_place(k, &s->c, &s->job, comm);
    s->status[rank] = coll_rank_call(k, &s->c, comm);
    s->allocations[rank] += allocations;
    if (!s->wrong[rank] && !s->status[rank])
        s->wrong[rank] = coll_rank_judge(k, &s->c, &s->job, rank);
    coll_rank_place(k, &s->c, &s->job, comm);
    s->again[rank] = coll_rank_call(k, &s->c, comm);
    if (s->how != RESERVED && !s->status[rank])
        s->allocations[rank] = allocations; /* a second call of the same size has what the first left */
    comm->engine = &pici_engine_host;
}

Test(coll_threads_flight, scratch)
{
    alarm(WATCHDOG_S);
    for (int how = GROWS; how <= FAILS; how++)
        for (int collective = PICI_ALL_GATHER; collective <= PICI_ALL_REDUCE; collective++)
            for (int a = 1; a <= coll_algorithms(); a++) {
                if (!coll_has((enum pici_algorithm)a, (enum pici_collective)collective))
                    continue;
                struct scratch *s = calloc(1, sizeof *s);
                cr_assert_not_null(s);
                s->how = how;
                s->c = (struct coll_case){.collective = (enum pici_collective)collective,
                                          .dtype = PICI_F32,
                                          .count = 50000,
                                          .pattern = PATTERN_8,
                                          .own_scratch = how == HANDED,
                                          .opts = PICI_COLL_OPTS_INIT};
                s->c.opts.algorithm = (enum pici_algorithm)a;
                coll_team_init(&s->team, 5);
                coll_job_make(&s->job, &s->c, 5);
                coll_threads(5, scratch_rank, s);
                for (int i = 0; i < 5; i++) {
                    cr_expect_null(s->wrong[i], "%s", s->wrong[i]);
                    cr_expect_eq(s->status[i], how == FAILS ? PICI_E_NOMEM : PICI_OK, "%s",
                                 pici_strerror(s->status[i]));
                    cr_expect_eq(s->again[i], how == FAILS ? PICI_E_BROKEN : PICI_OK);
                    if (how != FAILS)
                        cr_expect_eq(s->allocations[i], how == GROWS, "%d allocations, way %d", s->allocations[i], how);
                }
                coll_team_free(&s->team);
                coll_job_free(&s->job);
                free(s);
            }
}
