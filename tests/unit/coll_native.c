/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The native path: when the library calls a transport's dense collective, and what it does with the result and the
 * errors. It makes no such call if one rank cannot, may not or does not block. The library here adds plainly, so that a
 * sum of -0.0 stays -0.0, which ours never is. */
#define _POSIX_C_SOURCE 200809L
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "tests/util/coll.h"
#include "pici/transport.h"
#include "transport/thread.h"

enum { RANKS = 4, COUNT = 1000, NOBODY = -1 };

/* ---- the transport's library */

static struct {
    pthread_barrier_t all;
    const void *send[RANKS];
    int refuses, fails; /* a rank; or NOBODY */
    int asked, made;    /* on rank 0 */
    enum pici_op op;
} native;

static _Thread_local int self;

static float reduce_f32(enum pici_op op, float a, float b)
{
    return op == PICI_MIN ? fminf(a, b) : op == PICI_MAX ? fmaxf(a, b) : a + b;
}

static int32_t reduce_i32(enum pici_op op, int32_t a, int32_t b)
{
    return op == PICI_MIN ? (a < b ? a : b) : op == PICI_MAX ? (a > b ? a : b) : a + b;
}

static enum pici_status native_ready(void *context, enum pici_collective kind, const void *send, const void *recv,
                                     uint64_t count, enum pici_dtype dtype, enum pici_op op)
{
    (void)context, (void)kind, (void)send, (void)recv, (void)count, (void)dtype;
    if (self == 0)
        native.asked++;
    return op == PICI_AVG || native.refuses == self ? PICI_E_NOMEM : PICI_OK;
}

static enum pici_status native_dense(void *context, enum pici_collective kind, const void *send, void *recv,
                                     uint64_t count, enum pici_dtype dtype, enum pici_op op, int timeout_ms)
{
    const uint64_t total = kind == PICI_ALL_GATHER ? RANKS * count : count;
    const uint64_t from = kind == PICI_REDUCE_SCATTER ? (uint64_t)self * count : 0;
    uint32_t *result = malloc(total * 4);
    (void)context, (void)timeout_ms;
    native.send[self] = send;
    pthread_barrier_wait(&native.all);
    for (uint64_t i = 0; i < total; i++) {
        if (kind == PICI_ALL_GATHER) {
            result[i] = ((const uint32_t *)native.send[i / count])[i % count];
            continue;
        }
        float f = ((const float *)native.send[0])[from + i];
        int32_t n = ((const int32_t *)native.send[0])[from + i];
        for (int r = 1; r < RANKS; r++) {
            f = reduce_f32(op, f, ((const float *)native.send[r])[from + i]);
            if (dtype == PICI_I32)
                n = reduce_i32(op, n, ((const int32_t *)native.send[r])[from + i]);
        }
        memcpy(&result[i], dtype == PICI_I32 ? (void *)&n : (void *)&f, 4);
    }
    pthread_barrier_wait(&native.all);
    memcpy(recv, result, total * 4);
    free(result);
    if (self == 0) {
        native.made++;
        native.op = op;
    }
    pthread_barrier_wait(&native.all);
    return native.fails == self ? PICI_E_TRANSPORT : PICI_OK;
}

/* ---- a call on all ranks */

struct call {
    enum pici_collective kind;
    enum pici_op op;
    enum pici_dtype dtype;
    uint64_t count;
    enum pici_algorithm algorithm;
    enum pici_zeros zeros;
    int native, asks, odd; /* opts.native; PICI_DENSE is asked for; the rank that differs by what follows, or NOBODY */
    int odd_native, odd_starts, odd_in_place, odd_asks, odd_null;
    int in_place, starts;
    size_t transport_size;
    int no_ready; /* the transport lacks dense_ready */
    struct pici_comm *comm[RANKS];
    enum pici_status status[RANKS], again[RANKS];
    uint64_t blocks[RANKS]; /* sent */
    int right[RANKS];
    int expect_native;
};

static const struct call usual = {.kind = PICI_ALL_REDUCE,
                                  .dtype = PICI_F32,
                                  .count = COUNT,
                                  .native = 1,
                                  .asks = 1,
                                  .odd = NOBODY,
                                  .transport_size = sizeof(struct pici_transport),
                                  .expect_native = 1};

static uint32_t element(const struct call *c, int rank, uint64_t i)
{
    const float f = i % 7 == 0 ? -0.0F : (float)((rank + 1) * (int)(i % 13));
    const int32_t n = i % 7 == 0 ? 0 : (rank + 1) * (int)(i % 13);
    uint32_t bits;
    memcpy(&bits, c->dtype == PICI_I32 ? (const void *)&n : (const void *)&f, sizeof bits);
    return bits;
}

/* What rank `rank` gets at i. */
static uint32_t wanted(const struct call *c, int rank, uint64_t i)
{
    uint32_t bits;
    if (c->kind == PICI_ALL_GATHER) {
        bits = element(c, (int)(i / c->count), i % c->count);
        return bits == UINT32_C(1) << 31 && c->zeros ? 0 : bits;
    }
    i += c->kind == PICI_REDUCE_SCATTER ? (uint64_t)rank * c->count : 0;
    const int of_one = (int)(i % 7 ? i % 13 : 0);
    const int sum = of_one * RANKS * (RANKS + 1) / 2;
    const int n = c->op == PICI_MIN   ? of_one
                  : c->op == PICI_MAX ? of_one * RANKS
                  : c->op == PICI_AVG ? sum / RANKS
                                      : sum;
    float f = c->op == PICI_AVG ? (float)sum / RANKS : (float)n;
    if (i % 7 == 0 && (c->op == PICI_MIN || c->op == PICI_MAX || (c->op == PICI_SUM && c->expect_native)))
        f = -0.0F;
    memcpy(&bits, c->dtype == PICI_I32 ? (const void *)&n : (const void *)&f, sizeof bits);
    return bits;
}

static enum pici_status make_call(const struct call *c, int starts, const void *send, void *recv,
                                  struct pici_comm *comm, const struct pici_coll_opts *o)
{
    struct pici_request *q = NULL;
    enum pici_status s;
    if (!starts)
        return c->kind == PICI_ALL_GATHER       ? pici_all_gather(send, recv, c->count, c->dtype, comm, o)
               : c->kind == PICI_REDUCE_SCATTER ? pici_reduce_scatter(send, recv, c->count, c->dtype, c->op, comm, o)
                                                : pici_all_reduce(send, recv, c->count, c->dtype, c->op, comm, o);
    s = c->kind == PICI_ALL_GATHER       ? pici_all_gather_start(send, recv, c->count, c->dtype, comm, o, &q)
        : c->kind == PICI_REDUCE_SCATTER ? pici_reduce_scatter_start(send, recv, c->count, c->dtype, c->op, comm, o, &q)
                                         : pici_all_reduce_start(send, recv, c->count, c->dtype, c->op, comm, o, &q);
    return s ? s : pici_wait(&q);
}

static void rank(void *context, int r)
{
    struct call *c = context;
    const int odd = c->odd == r, in_place = c->in_place ^ (odd && c->odd_in_place);
    const uint64_t sends = c->kind == PICI_REDUCE_SCATTER ? RANKS * c->count : c->count,
                   receives = c->kind == PICI_ALL_GATHER ? RANKS * c->count : c->count;
    uint32_t *send = calloc(RANKS * c->count + 1, 4), *recv = calloc(RANKS * c->count + 1, 4);
    uint32_t *from = send, *to = recv;
    struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
    struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
    self = r;
    if (in_place && c->kind == PICI_REDUCE_SCATTER)
        to = send + (uint64_t)r * c->count;
    else if (in_place)
        from = c->kind == PICI_ALL_GATHER ? recv + (uint64_t)r * c->count : recv;
    for (uint64_t i = 0; i < sends; i++)
        from[i] = element(c, r, i);
    o.native = odd && c->odd_native ? c->odd_native : c->native;
    o.format = c->asks ^ (odd && c->odd_asks) ? PICI_DENSE : PICI_AUTO;
    o.algorithm = c->algorithm;
    o.zeros = c->zeros;
    o.stats = &stats;
    c->status[r] =
        make_call(c, c->starts ^ (odd && c->odd_starts), odd && c->odd_null ? NULL : from, to, c->comm[r], &o);
    c->right[r] = 1;
    for (uint64_t i = 0; i < receives && !c->status[r]; i++)
        c->right[r] &= to[i] == wanted(c, r, i);
    for (uint64_t i = 0; i < sends && !in_place; i++)
        c->right[r] &= from[i] == element(c, r, i);
    for (int f = PICI_DENSE; f <= PICI_HYBRID; f++)
        c->blocks[r] += stats.sends[f];
    o = (struct pici_coll_opts)PICI_COLL_OPTS_INIT;
    c->again[r] = pici_all_reduce(send, recv, 1, PICI_U32, PICI_SUM, c->comm[r], &o);
    free(send);
    free(recv);
}

/* Make the call. made: how often rank 0 was in the native collective. */
static void run(struct call *c)
{
    struct pici_transport t[RANKS];
    native.refuses = native.refuses ? native.refuses : NOBODY;
    native.fails = native.fails ? native.fails : NOBODY;
    native.asked = native.made = 0;
    cr_assert_eq(pici_transport_threads(t, RANKS), PICI_OK);
    pthread_barrier_init(&native.all, NULL, RANKS);
    for (int r = 0; r < RANKS; r++) {
        t[r].size = c->transport_size;
        t[r].dense_ready = c->no_ready ? NULL : native_ready;
        t[r].dense = native_dense;
        cr_assert_eq(pici_comm_transport(&c->comm[r], &t[r]), PICI_OK, "%s", pici_comm_error(NULL));
    }
    coll_threads(RANKS, rank, c);
    pthread_barrier_destroy(&native.all);
}

static void end(struct call *c)
{
    for (int r = 0; r < RANKS; r++)
        pici_comm_free(c->comm[r]);
}

/* The call succeeds, and is made as the native collective or not. */
static void expect(struct call c, int made, const char *what)
{
    c.expect_native = made;
    run(&c);
    cr_expect_eq(native.made, made, "%s: the native call was made %d times", what, native.made);
    for (int r = 0; r < RANKS; r++) {
        cr_expect_eq(c.status[r], PICI_OK, "%s: rank %d: %s", what, r, pici_comm_error(c.comm[r]));
        cr_expect(c.right[r], "%s: rank %d has a wrong result, or a changed send buffer", what, r);
        cr_expect_eq(c.again[r], PICI_OK, "%s: the call after it", what);
        cr_expect(made ? !c.blocks[r] : c.blocks[r] || !c.count, "%s: rank %d sent %llu blocks", what, r,
                  (unsigned long long)c.blocks[r]);
    }
    end(&c);
}

/* ---- taken */

Test(coll_native, taken)
{
    static const enum pici_op ops[] = {PICI_SUM, PICI_AVG, PICI_MIN, PICI_MAX};
    for (int kind = PICI_ALL_GATHER; kind <= PICI_ALL_REDUCE; kind++)
        for (int in_place = 0; in_place < 2; in_place++)
            for (int op = 0; op < (kind == PICI_ALL_GATHER ? 1 : 4); op++) {
                struct call c = usual;
                c.kind = (enum pici_collective)kind;
                c.in_place = in_place;
                c.op = ops[op];
                expect(c, 1, "f32");
                cr_expect_eq(native.op, c.op == PICI_AVG ? PICI_SUM : c.op, "the division is ours");
                c.dtype = PICI_I32;
                expect(c, c.op != PICI_AVG, "i32");
            }
}

Test(coll_native, zeros_by_value)
{
    struct call c = usual;
    c.kind = PICI_ALL_GATHER;
    c.zeros = PICI_ZEROS_BY_VALUE;
    expect(c, 1, "gathered zeros lose their sign");
}

Test(coll_native, environment)
{
    struct call c = usual;
    setenv("PICI_NATIVE", "1", 1);
    c.native = 0;
    expect(c, 1, "PICI_NATIVE=1");
    c.native = -1;
    expect(c, 0, "the option denies what PICI_NATIVE=1 permits");
    setenv("PICI_NATIVE", "0", 1);
    c.native = 0;
    expect(c, 0, "PICI_NATIVE=0");
    c.native = 1;
    expect(c, 1, "the option permits what PICI_NATIVE=0 does not");
    setenv("PICI_NATIVE", "yes", 1);
    struct pici_comm *comm[1];
    cr_expect_eq(pici_comm_threads(comm, 1), PICI_E_ARG);
    cr_expect(strstr(pici_comm_error(NULL), "PICI_NATIVE"), "%s", pici_comm_error(NULL));
}

/* ---- not taken, and nothing is wrong */

Test(coll_native, not_taken)
{
#define NOT(what, change)                                                                                              \
    {                                                                                                                  \
        struct call c = usual;                                                                                         \
        change;                                                                                                        \
        expect(c, 0, what);                                                                                            \
    }
    NOT("no permission", c.native = 0)
    NOT("not asked for dense data", c.asks = 0)
    NOT("another algorithm was asked for", c.algorithm = PICI_ALGO_RING)
    NOT("started", c.starts = 1)
    NOT("nothing to do", c.count = 0)
    NOT("a transport of an earlier version", c.transport_size = offsetof(struct pici_transport, dense_ready))
    NOT("a transport that lacks one of the two functions", c.no_ready = 1)
    for (int odd = 0; odd < RANKS; odd++) {
        NOT("one rank has no permission", c.odd = odd; c.odd_native = -1)
        NOT("one rank starts, the others block", c.odd = odd; c.odd_starts = 1)
        NOT("one rank is in place", c.odd = odd; c.odd_in_place = 1)
        NOT("one rank is not in place", c.odd = odd; c.in_place = c.odd_in_place = 1)
        NOT("one rank did not ask for dense data", c.odd = odd; c.odd_asks = 1)
    }
    for (native.refuses = 1; native.refuses < RANKS; native.refuses++)
        NOT("one rank's library cannot", )
}

Test(coll_native, one_rank)
{
    struct pici_transport t;
    struct pici_comm *comm;
    struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
    float send = -0.0F, recv = 1;
    cr_assert_eq(pici_transport_threads(&t, 1), PICI_OK);
    t.dense_ready = native_ready;
    t.dense = native_dense;
    cr_assert_eq(pici_comm_transport(&comm, &t), PICI_OK);
    o.native = 1;
    o.format = PICI_DENSE;
    cr_expect_eq(pici_all_reduce(&send, &recv, 1, PICI_F32, PICI_SUM, comm, &o), PICI_OK);
    cr_expect(recv == 0 && !signbit(recv) && !native.asked);
    pici_comm_free(comm);
}

/* ---- errors are shared */

Test(coll_native, wrong_arguments)
{
    struct call c = usual;
    c.odd = 2;
    c.odd_null = 1;
    run(&c);
    cr_expect_eq(native.made, 0);
    for (int r = 0; r < RANKS; r++) {
        cr_expect_eq(c.status[r], PICI_E_ARG);
        cr_expect_eq(c.again[r], PICI_E_BROKEN);
    }
    end(&c);
}

Test(coll_native, one_rank_fails)
{
    struct call c = usual;
    native.fails = 3;
    run(&c);
    cr_expect_eq(native.made, 1);
    for (int r = 0; r < RANKS; r++) {
        cr_expect_eq(c.status[r], PICI_E_TRANSPORT);
        cr_expect_eq(c.again[r], PICI_E_BROKEN);
        cr_expect(strstr(pici_comm_error(c.comm[r]), "rank 3"), "%s", pici_comm_error(c.comm[r]));
    }
    end(&c);
}
