/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Neighbourhood all-gathers that go wrong: messages that are lost, late, short or changed, by seeds; and every field of
 * a message damaged on purpose. Nobody hangs, and a rank that returns PICI_OK has the right bytes. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coll/neighbor.h"
#include "coll/request.h"
#include "tests/util/coll.h"
#include "tests/util/neighbor.h"
#include "transport/thread.h"
#include "tests/util/transport.h"

enum { WATCHDOG_S = 900, TIMEOUT_MS = 100, LONG_MS = 300000, RANKS = 7, CALLS = 3, AT_ONCE = 12 };

/* ---- faults of the transport ---- */

enum fault { DELAY, DROP, TRUNCATE, FLIP, STALL, REFUSE, ALL, FAULTS };

struct tally {
    _Atomic uint64_t next;
    uint64_t end;
    atomic_int fine, failed, kinds[64], wrongs;
    char wrong[900];
};

struct run {
    struct tally *tally;
    uint64_t seed;
    enum fault fault;
    struct neighbor_case c;
    struct pici_comm *comm[RANKS];
    struct neighbor_rank rank[RANKS];
};

static void wrong(struct run *run, int rank, const char *what, enum pici_status s)
{
    if (atomic_fetch_add(&run->tally->wrongs, 1) == 0)
        snprintf(run->tally->wrong, sizeof run->tally->wrong, "fault %d, seed %llu, %s: rank %d: %s: %s (%s)",
                 (int)run->fault, (unsigned long long)run->seed, neighbor_case_words(&run->c), rank, what,
                 pici_strerror(s), pici_comm_error(run->comm[rank]));
}

static void run_rank(void *context, int rank)
{
    struct run *run = context;
    struct tally *tally = run->tally;
    struct neighbor_rank *k = &run->rank[rank];
    struct pici_neighbor_plan *plan = NULL;
    enum pici_status s = neighbor_rank_plan(k, &run->c, run->comm[rank], &plan);
    int broken = s != PICI_OK;
    for (int i = 0; i < CALLS && plan; i++) {
        memset(k->recv, 0x5c, k->bytes);
        s = neighbor_rank_call(k, &run->c, plan);
        const char *judged = s ? NULL : neighbor_rank_judge(k, &run->c);
        if (judged)
            wrong(run, rank, judged, s);
        if (!s && broken)
            wrong(run, rank, "fine after an error", s);
        if (s && !pici_comm_error(run->comm[rank])[0])
            wrong(run, rank, "no words", s);
        if (s && run->fault == DELAY)
            wrong(run, rank, "nothing was lost", s);
        broken |= s != PICI_OK;
        atomic_fetch_add(s ? &tally->failed : &tally->fine, 1);
        atomic_fetch_add(&tally->kinds[-(int)s & 63], 1);
    }
    pici_neighbor_plan_free(plan);
}

static void make_comms(struct run *run, struct rng *r)
{
    static const double chances[] = {0.003, 0.03, 0.2};
    struct pici_transport t[RANKS];
    struct pici_thread_faults f = {.seed = run->seed, .delay_ms = run->fault == DELAY ? 5 : 40};
    const double chance = chances[rng_below(r, 3)];
    double *const which[] = {&f.delay, &f.drop, &f.truncate, &f.flip, &f.stall, &f.refuse};
    if (run->fault == ALL)
        f.delay = f.drop = f.truncate = f.flip = f.stall = f.refuse = chance / 5;
    else
        *which[run->fault] = chance;
    if (pici_transport_threads(t, run->c.p))
        abort();
    pici_transport_threads_faults(&t[0], &f);
    for (int i = 0; i < run->c.p; i++) {
        struct pici_tune tune = PICI_TUNE_INIT;
        tune.timeout_ms = run->fault == DELAY ? LONG_MS : TIMEOUT_MS;
        tune.checksum = 1;
        if (pici_comm_transport(&run->comm[i], &t[i]) || pici_comm_tune(run->comm[i], &tune))
            abort();
    }
}

static void run_some(void *context, int which)
{
    struct tally *tally = context;
    (void)which;
    for (uint64_t seed; (seed = atomic_fetch_add(&tally->next, 1)) < tally->end;) {
        struct run *run = calloc(1, sizeof *run);
        struct rng r = {seed};
        if (!run)
            abort();
        run->tally = tally;
        run->seed = seed;
        run->fault = (enum fault)(seed % FAULTS);
        const int p = 2 + (int)rng_below(&r, RANKS - 1);
        neighbor_case_random(&run->c, &r, p, rng_chance(&r, 500000) ? 9000 : 600);
        run->c.opts.checksum = 1;
        make_comms(run, &r);
        for (int i = 0; i < p; i++)
            neighbor_rank_init(&run->rank[i], &run->c, i);
        coll_threads(p, run_rank, run);
        for (int i = 0; i < p; i++) {
            pici_comm_free(run->comm[i]);
            neighbor_rank_free(&run->rank[i]);
        }
        free(run);
    }
}

Test(coll_neighbor, faults)
{
    struct tally tally = {.end = test_full() ? 10000 : 1500};
    alarm(WATCHDOG_S);
    coll_threads(AT_ONCE, run_some, &tally); /* most of them wait for silence most of the time */
    cr_assert_eq(tally.wrongs, 0, "%d wrong, the first: %s", tally.wrongs, tally.wrong);
    cr_expect_gt(tally.fine, 0);
    /* The last one is rare: most bytes are in headers, which other rules check first. */
    static const enum pici_status signs[] = {PICI_E_TIMEOUT, PICI_E_CORRUPT, PICI_E_NOMEM, PICI_E_CHECKSUM};
    for (int i = 0; i < (test_full() ? 4 : 3); i++)
        cr_expect_gt(tally.kinds[-(int)signs[i]], 0, "never %s", pici_strerror(signs[i]));
}

/* ---- a peer that sends what it should not ---- */

/* Changes one data message of this rank. */
struct liar {
    struct pici_transport inner;
    int after, at, told; /* which message; which byte is changed, or -1: shorter, -2: longer, -3: poison, ... */
    uint8_t *memory;
};

enum {
    SHORTER = -1,
    LONGER = -2,
    POISONED = -3,
    POISON_OF_NOTHING = -4,
    EMPTY = -5,
    LEAST_LIE = -5,
    STRETCHED = -6, /* one block, longer than an encoder makes it: see below */
    HEADER = 48,
    STRETCHED_COUNT = 16
};

/* Make the message's block the header of a hybrid block that is longer than any encoder's, but not than the receiver's
 * buffer, which ends at a multiple of COLL_ALIGN. Returns the message's length; 0: there is no such header. */
static size_t stretch(uint8_t *message)
{
    uint8_t *p = message + MSG_BYTES;
    size_t longest = 0;
    for (int f = PICI_DENSE; f <= PICI_HYBRID; f++) {
        const size_t bound = pici_bound((enum pici_format)f, PICI_F32, STRETCHED_COUNT);
        longest = bound > longest ? bound : longest;
    }
    const size_t most = (MSG_BYTES + longest + COLL_ALIGN - 1) / COLL_ALIGN * COLL_ALIGN - MSG_BYTES;
    memset(p, 0, most);
    memcpy(p, "PICI\2\3", 6);
    p[6] = PICI_F32;
    p[8] = STRETCHED_COUNT;
    p[24] = HEADER;
    for (unsigned nnz = 0; nnz <= STRETCHED_COUNT; nnz++)
        for (unsigned values = HEADER; values < most; values++) {
            struct pici_block b;
            p[16] = (uint8_t)nnz;
            p[32] = (uint8_t)values;
            p[33] = (uint8_t)(values >> 8);
            if (!pici_block_parse(&b, p, most, NULL) && b.layout.block_bytes > longest && b.layout.block_bytes <= most)
                return MSG_BYTES + (size_t)b.layout.block_bytes;
        }
    return 0;
}

static enum pici_status liar_send(void *context, int to, const void *data, size_t bytes, void **request)
{
    struct liar *l = context;
    if (bytes < MSG_BYTES || ((const uint8_t *)data)[7] != NEIGHBOR_ID || l->told || l->after--)
        return l->inner.send(l->inner.context, to, data, bytes, request);
    l->told = 1;
    enum { MORE = 4096 };
    uint8_t *m = l->memory = test_alloc(bytes + MORE);
    size_t len = bytes;
    memcpy(m, data, bytes);
    m[bytes] = 0;
    switch (l->at) {
    case SHORTER: len--; break;
    case LONGER: len++; break;
    case POISONED:
    case POISON_OF_NOTHING:
        m[4] = MSG_POISON;
        memset(m + 28, l->at == POISONED ? 0xff : 0, 4);
        m[28] = l->at == POISONED ? (uint8_t)PICI_E_NOMEM : 0;
        len = MSG_BYTES;
        break;
    case EMPTY: len = 0; break;
    case STRETCHED:
        len = stretch(m);
        l->told = len != 0;
        break;
    default: m[(size_t)l->at % bytes] ^= 0x41; break;
    }
    return l->inner.send(l->inner.context, to, m, len, request);
}

struct hostile {
    struct neighbor_case c;
    struct liar liar;
    struct pici_comm *comm[RANKS];
    struct neighbor_rank rank[RANKS];
    enum pici_status status[RANKS];
    const char *wrong[RANKS];
};

static void hostile_rank(void *context, int rank)
{
    struct hostile *h = context;
    struct pici_neighbor_plan *plan = NULL;
    enum pici_status s = neighbor_rank_plan(&h->rank[rank], &h->c, h->comm[rank], &plan);
    if (!s)
        s = neighbor_rank_call(&h->rank[rank], &h->c, plan);
    if (!s)
        h->wrong[rank] = neighbor_rank_judge(&h->rank[rank], &h->c);
    h->status[rank] = s;
    pici_neighbor_plan_free(plan);
}

/* Let all ranks make the plan and the call, of which rank 0 changes a message. */
static void run_hostile(struct hostile *h, int after, int at)
{
    if (pici_comm_threads(h->comm, h->c.p))
        abort();
    for (int i = 0; i < h->c.p; i++)
        neighbor_rank_init(&h->rank[i], &h->c, i);
    struct pici_transport *own = &h->comm[0]->transport;
    h->liar = (struct liar){.after = after, .at = at};
    transport_wrap(own, &h->liar.inner);
    own->send = liar_send;
    coll_threads(h->c.p, hostile_rank, h);
}

static void free_hostile(struct hostile *h)
{
    for (int i = 0; i < h->c.p; i++) {
        pici_comm_free(h->comm[i]);
        neighbor_rank_free(&h->rank[i]);
    }
    free(h->liar.memory);
    free(h);
}

static void lie(int p, uint64_t seed, int after, int at, int agree)
{
    struct hostile *h = calloc(1, sizeof *h);
    struct rng r = {seed};
    if (!h)
        abort();
    neighbor_case_random(&h->c, &r, p, 600);
    for (int i = 0; i < p; i++)
        for (int j = 0; j < p; j++)
            h->c.times[i][j] = i != j && (i + j + (int)seed) % 3;
    for (int i = 0; i < p; i++)
        h->c.count[i] = h->c.varied ? 100 + (uint64_t)i : 300;
    h->c.opts.checksum = 1;
    h->c.opts.agree = agree;
    h->c.opts.timeout_ms = 20000;
    run_hostile(h, after, at);
    int failed = 0;
    for (int i = 0; i < p; i++) {
        failed += h->status[i] != PICI_OK;
        cr_expect_null(h->wrong[i], "lie %d of message %d, %s: %s", at, after, neighbor_case_words(&h->c), h->wrong[i]);
        cr_expect(h->status[i] != PICI_E_TIMEOUT, "lie %d of message %d: rank %d waited for nothing", at, after, i);
        if (agree)
            cr_expect_eq(h->status[i], h->status[0], "lie %d, agreed: rank %d: %s, rank 0: %s", at, i,
                         pici_strerror(h->status[i]), pici_strerror(h->status[0]));
    }
    if (h->liar.told)
        cr_expect(failed, "lie %d of message %d, %s: nobody noticed", at, after, neighbor_case_words(&h->c));
    free_hostile(h);
}

Test(coll_neighbor, hostile)
{
    alarm(WATCHDOG_S);
    for (int p = 2; p <= RANKS; p += p == 2 ? 3 : 2)
        for (int after = 0; after < 3; after++)
            for (int at = LEAST_LIE; at < MSG_BYTES + HEADER + 20; at++)
                lie(p, (uint64_t)(p + after), after, at, at & 1);
}

/* A rank that only forwards a block notices that it is too long for the buffers of messages. Ranks 0 and RELAY send to
 * the same three ranks of the other half, and RELAY does so for rank 0. */
Test(coll_neighbor, long_block)
{
    enum { P = 7, RELAY = 3 };
    struct hostile *h = calloc(1, sizeof *h);
    if (!h)
        abort();
    alarm(WATCHDOG_S);
    h->c.p = P;
    h->c.plan = (struct pici_neighbor_opts)PICI_NEIGHBOR_OPTS_INIT;
    h->c.plan.route = PICI_ROUTE_HALVING;
    h->c.dtype = PICI_F32;
    h->c.opts = (struct pici_coll_opts)PICI_COLL_OPTS_INIT;
    h->c.opts.timeout_ms = 20000;
    for (int i = 0; i < P; i++) {
        h->c.node_of[i] = i;
        h->c.count[i] = STRETCHED_COUNT;
        h->c.times[0][i] = h->c.times[RELAY][i] = i > RELAY;
    }
    run_hostile(h, 0, STRETCHED);
    cr_expect(h->liar.told, "there is no such header");
    cr_expect_eq(h->status[RELAY], PICI_E_CORRUPT, "%s (%s)", pici_strerror(h->status[RELAY]),
                 pici_comm_error(h->comm[RELAY]));
    for (int i = 0; i < P; i++)
        cr_expect_null(h->wrong[i], "rank %d", i);
    free_hostile(h);
}
