/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Small all-reduces, whose data travel with the call agreement: how many messages there are, results, ranks that make
 * another call or cannot take part, ranks that fail. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coll/message.h"
#include "tests/util/coll.h"
#include "formats/ref.h"
#include "transport/thread.h"
#include "tests/util/transport.h"

enum { WATCHDOG_S = 300, RANKS = 16, TIMEOUT_MS = 20000, KIND = 4, LIMIT = 16 << 10 };

static const int powers[] = {2, 4, 8, 16};
enum { POWERS = sizeof powers / sizeof *powers };

/* ---- a transport that counts messages */

struct counter {
    struct pici_transport inner;
    int sent[4];   /* by kind */
    int with_data; /* of the call agreement */
};

static enum pici_status count_send(void *context, int to, const void *data, size_t bytes, void **request)
{
    struct counter *c = context;
    c->sent[((const uint8_t *)data)[KIND] & 3]++;
    c->with_data += ((const uint8_t *)data)[KIND] == MSG_AGREE_CALL && bytes > AGREE_BYTES;
    return c->inner.send(c->inner.context, to, data, bytes, request);
}

/* ---- ranks, of which one may differ */

struct crew;
typedef enum pici_status action(struct crew *, int rank);

struct crew {
    int p, odd; /* odd: the rank that differs; -1: none does */
    action *differs;
    struct counter counter[RANKS];
    struct pici_comm *comm[RANKS];
    struct coll_case c;
    struct coll_job job;
    struct coll_rank rank[RANKS];
    enum pici_status status[RANKS];
    const char *wrong[RANKS];
};

static void crew_rank(void *context, int rank)
{
    struct crew *w = context;
    struct coll_rank *k = &w->rank[rank];
    coll_rank_place(k, &w->c, &w->job, w->comm[rank]);
    k->opts.timeout_ms = TIMEOUT_MS;
    w->status[rank] = rank == w->odd ? w->differs(w, rank) : coll_rank_call(k, &w->c, w->comm[rank]);
    w->wrong[rank] = w->status[rank] ? NULL : coll_rank_judge(k, &w->c, &w->job, rank);
}

static void crew_call(struct crew *w)
{
    struct pici_transport t[RANKS];
    cr_assert_eq(pici_transport_threads(t, w->p), PICI_OK);
    coll_job_make(&w->job, &w->c, w->p);
    for (int i = 0; i < w->p; i++) {
        struct counter *c = &w->counter[i];
        *c = (struct counter){0};
        transport_wrap(&t[i], &c->inner);
        t[i].send = count_send;
        cr_assert_eq(pici_comm_transport(&w->comm[i], &t[i]), PICI_OK);
    }
    coll_threads(w->p, crew_rank, w);
}

static void crew_free(struct crew *w)
{
    for (int i = 0; i < w->p; i++) {
        pici_comm_free(w->comm[i]);
        coll_rank_free(&w->rank[i]);
    }
    coll_job_free(&w->job);
    free(w);
}

static struct crew *crew_of(int p, uint64_t count)
{
    struct crew *w = calloc(1, sizeof *w);
    cr_assert(w);
    w->p = p;
    w->odd = -1;
    w->c = (struct coll_case){.collective = PICI_ALL_REDUCE,
                              .dtype = PICI_F32,
                              .count = count,
                              .pattern = PATTERN_8,
                              .tame = 1,
                              .seed = (uint64_t)p + count,
                              .opts = PICI_COLL_OPTS_INIT};
    return w;
}

static int log2_up(int p)
{
    int k = 0;
    while (1 << k < p)
        k++;
    return k;
}

/* ---- how many messages */

/* A call succeeds; all messages of the call agreement have data, and there are no others before the status agreement;
 * or none has. */
static void expect_early(struct crew *w, int early, const char *what)
{
    const int rounds = log2_up(w->p);
    crew_call(w);
    for (int i = 0; i < w->p; i++) {
        const struct counter *c = &w->counter[i];
        cr_expect(!w->status[i] && !w->wrong[i], "%s, rank %d of %d: %s: %s", what, i, w->p,
                  w->wrong[i] ? w->wrong[i] : pici_strerror(w->status[i]), pici_comm_error(w->comm[i]));
        cr_expect(
            c->sent[MSG_AGREE_CALL] == rounds && c->sent[MSG_AGREE_STATUS] == rounds &&
                c->with_data == (early ? rounds : 0) && (c->sent[MSG_DATA] == 0) == early,
            "%s, rank %d of %d: %d of the call agreement, %d of them with data, %d data, %d of the status agreement",
            what, i, w->p, c->sent[MSG_AGREE_CALL], c->with_data, c->sent[MSG_DATA], c->sent[MSG_AGREE_STATUS]);
    }
    crew_free(w);
}

Test(coll_early, messages)
{
    alarm(WATCHDOG_S);
    for (int i = 0; i < POWERS; i++) {
        const int p = powers[i];
        struct crew *w;
        expect_early(crew_of(p, 1), 1, "one element");
        w = crew_of(p, LIMIT / 4);
        w->c.opts.algorithm = PICI_ALGO_DOUBLING;
        expect_early(w, 1, "as much as may be");
        expect_early(crew_of(p, LIMIT / 4 + 1), 0, "more than may be");
        w = crew_of(p, 100);
        w->c.opts.algorithm = PICI_ALGO_DOUBLING;
        w->c.in_place = 1;
        expect_early(w, 1, "in place, by name");
        w = crew_of(p, 100);
        w->c.opts.algorithm = PICI_ALGO_RING;
        expect_early(w, 0, "another algorithm");
        w = crew_of(p, 100);
        w->c.collective = PICI_REDUCE_SCATTER;
        expect_early(w, 0, "another collective");
        w = crew_of(p, 9000);
        w->c.dtype = PICI_U8; /* whose coo blocks are five times as long */
        expect_early(w, 0, "messages that may be too long");
        w = crew_of(p, 100);
        for (int r = 0; r < p; r++)
            w->c.node_of[r] = r % 2;
        expect_early(w, p == 2, "ranks that are not in the order of nodes");
        w = crew_of(p, 100);
        for (int r = 0; r < p; r++)
            w->c.node_of[r] = r / 2;
        expect_early(w, 1, "ranks that are");
    }
    for (int p = 3; p < 8; p += 1 + (p == 3))
        expect_early(crew_of(p, 100), 0, "not a power of two");
}

/* ---- results */

Test(coll_early, results)
{
    struct rng rng = {5};
    alarm(WATCHDOG_S);
    for (int i = 0; i < POWERS; i++) {
        struct coll_team team;
        coll_team_init(&team, powers[i]);
        for (int dtype = PICI_F32; dtype <= PICI_U64; dtype++)
            for (int op = PICI_SUM; op <= PICI_MAX; op++)
                for (int again = 0; again < 2; again++) {
                    struct coll_case c = {.collective = PICI_ALL_REDUCE,
                                          .dtype = (enum pici_dtype)dtype,
                                          .op = (enum pici_op)op,
                                          .count = 1 + rng_below(&rng, again ? 40 : 1600),
                                          .opts.algorithm = PICI_ALGO_DOUBLING};
                    coll_case_options(&c, &rng, powers[i]);
                    memset(c.node_of, 0, sizeof c.node_of);
                    const char *wrong = coll_team_check(&team, &c);
                    cr_assert(!wrong, "%s", wrong);
                }
        coll_team_free(&team);
    }
}

/* ---- a rank that makes another call, or cannot take part */

static enum pici_status other_count(struct crew *w, int rank)
{
    float a[3] = {0}, b[3];
    return pici_all_reduce(a, b, 3, PICI_F32, PICI_SUM, w->comm[rank], &w->rank[rank].opts);
}

static enum pici_status large_count(struct crew *w, int rank)
{
    enum { N = 100000 };
    float *a = test_alloc(N * sizeof *a);
    memset(a, 0, N * sizeof *a);
    const enum pici_status s = pici_all_reduce(a, a, N, PICI_F32, PICI_SUM, w->comm[rank], &w->rank[rank].opts);
    free(a);
    return s;
}

static enum pici_status other_dtype(struct crew *w, int rank)
{
    struct coll_rank *k = &w->rank[rank];
    return pici_all_reduce(k->sent, k->received, w->c.count, PICI_I32, w->c.op, w->comm[rank], &k->opts);
}

static enum pici_status other_op(struct crew *w, int rank)
{
    struct coll_rank *k = &w->rank[rank];
    return pici_all_reduce(k->sent, k->received, w->c.count, PICI_F32, PICI_MAX, w->comm[rank], &k->opts);
}

static enum pici_status other_kind(struct crew *w, int rank)
{
    float a[2] = {1, 2}, b[2 * RANKS];
    struct pici_coll_opts o = w->rank[rank].opts;
    o.algorithm = PICI_ALGO_AUTO;
    return pici_all_gather(a, b, 2, PICI_F32, w->comm[rank], &o);
}

static enum pici_status other_algorithm(struct crew *w, int rank)
{
    struct coll_rank *k = &w->rank[rank];
    k->opts.algorithm = PICI_ALGO_RING;
    return coll_rank_call(k, &w->c, w->comm[rank]);
}

static enum pici_status other_nodes(struct crew *w, int rank)
{
    int node_of[RANKS];
    for (int i = 0; i < w->p; i++)
        node_of[i] = i % 2;
    cr_assert_eq(pici_comm_set_nodes(w->comm[rank], node_of), PICI_OK);
    return coll_rank_call(&w->rank[rank], &w->c, w->comm[rank]);
}

static enum pici_status null_buffer(struct crew *w, int rank)
{
    struct coll_rank *k = &w->rank[rank];
    return pici_all_reduce(NULL, k->received, w->c.count, PICI_F32, w->c.op, w->comm[rank], &k->opts);
}

static enum pici_status little_scratch(struct crew *w, int rank)
{
    static char scratch[1];
    struct coll_rank *k = &w->rank[rank];
    k->opts.scratch = scratch;
    k->opts.scratch_bytes = 1;
    return coll_rank_call(k, &w->c, w->comm[rank]);
}

static enum pici_status permits_native(struct crew *w, int rank)
{
    struct coll_rank *k = &w->rank[rank];
    k->opts.native = 1; /* this transport has none, but that rank sends no data before it knows */
    return coll_rank_call(k, &w->c, w->comm[rank]);
}

static const struct {
    const char *what;
    action *action;
    enum pici_status status; /* of all ranks */
    int from;                /* so many ranks on */
    const char *words;       /* in everyone's error */
} odd_ones[] = {
    {"another count", other_count, PICI_E_PEER, 2, "count"},
    {"a large count", large_count, PICI_E_PEER, 2, "count"},
    {"another dtype", other_dtype, PICI_E_PEER, 2, "dtype"},
    {"another operation", other_op, PICI_E_PEER, 2, "op"},
    {"another collective", other_kind, PICI_E_PEER, 2, "all-gather"},
    {"another algorithm", other_algorithm, PICI_E_PEER, 2, "algorithm"},
    {"another order of ranks", other_nodes, PICI_E_PEER, 4, "node map"},
    {"a null buffer", null_buffer, PICI_E_ARG, 2, "rank"},
    {"too little scratch", little_scratch, PICI_E_SPACE, 2, "rank"},
    {"no data with the call agreement", permits_native, PICI_OK, 2, ""},
};

/* Whichever rank it is, all ranks end alike, and with words. What was in place is there again. */
Test(coll_early, odd_ones)
{
    alarm(WATCHDOG_S);
    for (size_t i = 0; i < sizeof odd_ones / sizeof *odd_ones; i++)
        for (int p = odd_ones[i].from; p <= 8; p *= 2)
            for (int odd = 0; odd < p; odd++)
                for (int in_place = 0; in_place < 2; in_place++) {
                    struct crew *w = crew_of(p, 700);
                    w->odd = odd;
                    w->differs = odd_ones[i].action;
                    w->c.in_place = in_place;
                    w->c.opts.algorithm = PICI_ALGO_DOUBLING;
                    crew_call(w);
                    for (int r = 0; r < p; r++) {
                        const char *words = pici_comm_error(w->comm[r]);
                        cr_expect_eq(w->status[r], odd_ones[i].status, "%s by rank %d of %d: rank %d: %s (%s)",
                                     odd_ones[i].what, odd, p, r, pici_strerror(w->status[r]), words);
                        cr_expect(strstr(words, odd_ones[i].words), "%s by rank %d of %d: rank %d: %s",
                                  odd_ones[i].what, odd, p, r, words);
                        cr_expect_null(w->wrong[r], "%s: %s", odd_ones[i].what, w->wrong[r]);
                        if (w->status[r] && in_place && r != odd)
                            cr_expect_eq(memcmp(w->rank[r].received, w->job.send[r], 700 * sizeof(float)), 0,
                                         "%s: the data of rank %d of %d are lost", odd_ones[i].what, r, p);
                        cr_expect_eq(w->counter[r].sent[MSG_DATA] > 0, odd_ones[i].status == PICI_OK, "%s",
                                     odd_ones[i].what);
                    }
                    crew_free(w);
                }
}

/* ---- a rank that fails inside */

struct ill {
    struct coll_team team;
    struct coll_case c;
    struct coll_job job;
    int rank, limb, after, failed;
    enum pici_status status[RANKS];
};

static void ill_rank(void *context, int rank)
{
    struct ill *ill = context;
    struct coll_rank *k = &ill->team.rank[rank];
    int failed;
    coll_rank_place(k, &ill->c, &ill->job, ill->team.comm[rank]);
    ill->status[rank] = coll_rank_call_ill(k, &ill->c, ill->team.comm[rank],
                                           rank == ill->rank ? (enum coll_limb)ill->limb : LIMBS, ill->after, &failed);
    if (rank == ill->rank)
        ill->failed = failed;
}

Test(coll_early, inside)
{
    int failures = 0;
    alarm(WATCHDOG_S);
    for (int p = 2; p <= 8; p *= 2)
        for (int rank = 0; rank < p; rank++)
            for (int limb = 0; limb < LIMBS; limb++) {
                struct ill ill = {.limb = limb, .failed = 1, .rank = rank};
                ill.c = (struct coll_case){.collective = PICI_ALL_REDUCE,
                                           .dtype = PICI_I16,
                                           .count = 900,
                                           .pattern = PATTERN_3,
                                           .opts = PICI_COLL_OPTS_INIT};
                ill.c.opts.algorithm = PICI_ALGO_DOUBLING;
                coll_job_make(&ill.job, &ill.c, p);
                for (ill.after = 0; ill.failed; ill.after++) {
                    coll_team_init(&ill.team, p);
                    coll_threads(p, ill_rank, &ill);
                    failures += ill.failed;
                    for (int i = 0; i < p; i++)
                        cr_expect_eq(ill.status[i], ill.failed ? PICI_E_IO : PICI_OK,
                                     "%d ranks, %d fails in limb %d, call %d: rank %d: %s (%s)", p, rank, limb,
                                     ill.after, i, pici_strerror(ill.status[i]), pici_comm_error(ill.team.comm[i]));
                    coll_team_free(&ill.team);
                    memset(&ill.team, 0, sizeof ill.team);
                }
                coll_job_free(&ill.job);
            }
    cr_expect_gt(failures, 50);
}
