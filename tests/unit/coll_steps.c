/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The requirements of collectives on a transport. One of version 0.1 gets exchanges in pairs only. A later one learns
 * of every step, and delivers a step as late as it may. */
#include <criterion/criterion.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coll/comm.h"
#include "coll/make.h"
#include "tests/util/onesided.h"
#include "transport/thread.h"
#include "tests/util/transport.h"

enum { WATCHDOG_S = 900, TIMEOUT_MS = 20000, RANKS = 6, STEPS = 4000, HELD = 64 };

/* ---- a transport that writes down what it is told, and holds back what it may */

struct told {
    int receives, sends, more;    /* as told; -1: not */
    uint64_t sent_to, taken_from; /* bits: the peers of the messages that followed */
    int sent, taken;
};

struct held {
    int used, to, begun;
    const void *data;
    size_t bytes;
    void *request;
};

struct scribe {
    struct pici_transport inner;
    int old; /* of version 0.1: it is told `more` of each send, the nth receive and the nth send being a step */
    int receiving, sending, hold; /* the step told of last; whether its messages are held back */
    const char *wrong;
    struct held held[HELD];
    struct told told[STEPS];
};

static void wrong(struct scribe *s, const char *what)
{
    s->wrong = s->wrong ? s->wrong : what;
}

static void begin_held(struct scribe *s)
{
    for (int i = 0; i < HELD; i++) {
        struct held *h = &s->held[i];
        if (h->used && !h->begun && s->inner.send(s->inner.context, h->to, h->data, h->bytes, &h->request))
            wrong(s, "a held message cannot be sent");
        h->begun |= h->used;
    }
}

static void scribe_receives(void *context, int n)
{
    struct scribe *s = context;
    if (s->receiving >= 0 && s->told[s->receiving].taken != s->told[s->receiving].receives)
        wrong(s, "not as many receives as it said");
    if (n < 0 || ++s->receiving == STEPS)
        abort();
    s->told[s->receiving].receives = n;
}

static void scribe_sends(void *context, int n, int more)
{
    struct scribe *s = context;
    if (s->sending >= 0 && s->told[s->sending].sent != s->told[s->sending].sends)
        wrong(s, "not as many sends as it said");
    if (n < 0 || ++s->sending == STEPS)
        abort();
    if (s->sending > s->receiving)
        wrong(s, "sends of a step before its receives");
    begin_held(s);
    s->hold = more;
    s->told[s->sending].sends = n;
    s->told[s->sending].more = more;
}

static void scribe_more(void *context, int more)
{
    struct scribe *s = context;
    if (!s->old)
        wrong(s, "`more` is called, although there is `sends`");
    else
        scribe_sends(context, 1, more);
}

static enum pici_status scribe_send(void *context, int to, const void *data, size_t bytes, void **request)
{
    struct scribe *s = context;
    struct told *t = &s->told[s->sending];
    struct held *h = s->held;
    if (t->sent_to >> to & 1)
        wrong(s, "two messages to a peer in a step");
    t->sent_to |= UINT64_C(1) << to;
    t->sent++;
    while (h->used)
        if (++h == s->held + HELD)
            abort();
    *h = (struct held){.used = 1, .to = to, .data = data, .bytes = bytes};
    if (!s->hold)
        begin_held(s);
    *request = h;
    return PICI_OK;
}

static enum pici_status scribe_recv(void *context, int from, void *data, size_t cap, void **request)
{
    struct scribe *s = context;
    if (s->old)
        scribe_receives(context, 1);
    struct told *t = &s->told[s->receiving];
    if (t->taken_from >> from & 1)
        wrong(s, "two messages from a peer in a step");
    t->taken_from |= UINT64_C(1) << from;
    t->taken++;
    return s->inner.recv(s->inner.context, from, data, cap, request);
}

static enum pici_status scribe_test(void *context, void *request, int *done, size_t *bytes)
{
    struct scribe *s = context;
    struct held *h = request;
    if ((uintptr_t)request < (uintptr_t)s->held || (uintptr_t)request >= (uintptr_t)(s->held + HELD))
        return s->inner.test(s->inner.context, request, done, bytes);
    *done = 0;
    const enum pici_status status = h->begun ? s->inner.test(s->inner.context, h->request, done, bytes) : PICI_OK;
    h->used = !*done;
    return status;
}

static void never_receives(void *context, int n)
{
    (void)context;
    (void)n;
    abort();
}

static void never_sends(void *context, int n, int more)
{
    (void)more;
    never_receives(context, n);
}

/* Of version 0.1: what lies behind its end is none of the library's business. */
static void make_old(struct pici_transport *t)
{
    t->size = offsetof(struct pici_transport, receives);
    t->receives = never_receives;
    t->sends = never_sends;
}

static void scribe_init(struct scribe *s, struct pici_transport *t, int old)
{
    memset(s, 0, sizeof *s);
    transport_wrap(t, &s->inner);
    s->old = old;
    s->receiving = s->sending = -1;
    for (int k = 0; k < STEPS; k++)
        s->told[k].receives = s->told[k].sends = -1;
    t->send = scribe_send;
    t->recv = scribe_recv;
    t->test = scribe_test;
    t->receives = scribe_receives;
    t->sends = scribe_sends;
    t->more = scribe_more;
    if (old)
        make_old(t);
}

/* ---- all ranks together */

struct crew {
    int p;
    struct scribe scribe[RANKS];
    struct coll_case c;
    struct coll_job job;
    struct pici_comm *comm[RANKS];
    struct coll_rank rank[RANKS];
    enum pici_status status[RANKS];
    const char *wrong[RANKS];
};

static void crew_rank(void *context, int rank)
{
    struct crew *w = context;
    coll_rank_place(&w->rank[rank], &w->c, &w->job, w->comm[rank]);
    w->status[rank] = coll_rank_call(&w->rank[rank], &w->c, w->comm[rank]);
    if (!w->status[rank])
        w->wrong[rank] = coll_rank_judge(&w->rank[rank], &w->c, &w->job, rank);
}

static void crew_free(struct crew *w)
{
    for (int i = 0; i < w->p; i++) {
        pici_comm_free(w->comm[i]);
        coll_rank_free(&w->rank[i]);
    }
    coll_job_free(&w->job);
}

/* Then frees the crew. old: the bits of ranks with a transport of version 0.1. */
static void all_are_refused(struct crew *w, int old)
{
    for (int i = 0; i < w->p; i++)
        cr_expect_eq(w->status[i], PICI_E_UNSUPPORTED, "old %#x, rank %d: %s (%s)", old, i, pici_strerror(w->status[i]),
                     pici_comm_error(w->comm[i]));
    crew_free(w);
    free(w);
}

/* What ranks were told fits together: the same number of steps, `more` the same, and what one sends to another in a
 * step the other receives in that step. Returns the steps in which some rank neither sends nor receives. */
static int fits(const struct crew *w, const char *name)
{
    int absent = 0;
    const struct scribe *s = w->scribe;
    for (int i = 0; i < w->p; i++) {
        cr_assert_null(s[i].wrong, "%s, %d ranks, window %d: rank %d: %s", name, w->p, w->c.opts.window, i, s[i].wrong);
        cr_assert(s[i].sending == s[0].sending && s[i].receiving == s[0].receiving && s[i].sending == s[i].receiving,
                  "%s, %d ranks: rank %d: %d and %d steps, rank 0: %d", name, w->p, i, s[i].sending, s[i].receiving,
                  s[0].sending);
        for (int k = 0; k <= s[0].sending; k++) {
            const struct told *t = &s[i].told[k];
            cr_assert(t->sent == t->sends && t->taken == t->receives && t->more == s[0].told[k].more,
                      "%s, %d ranks, step %d, rank %d", name, w->p, k, i);
            for (int j = 0; j < w->p; j++)
                cr_assert_eq(t->sent_to >> j & 1, s[j].told[k].taken_from >> i & 1, "%s, step %d: %d to %d", name, k, i,
                             j);
            absent += !t->sends && !t->receives;
        }
        cr_assert_eq(s[i].told[s[i].sending].more, 0, "after the last step there is none to wait for");
    }
    return absent;
}

/* A call; t: the schedule, or NULL: that of the case's options; old: over transports of version 0.1. Returns fits(),
 * and adds the steps with `more`. */
static int record(struct crew *w, const struct table *t, int old, int *more)
{
    struct pici_transport transport[RANKS];
    cr_assert_eq(pici_transport_threads(transport, w->p), PICI_OK);
    if (t)
        table_job(&w->job, t, &w->c);
    else
        coll_job_make(&w->job, &w->c, w->p);
    for (int i = 0; i < w->p; i++) {
        scribe_init(&w->scribe[i], &transport[i], old);
        cr_assert_eq(pici_comm_transport(&w->comm[i], &transport[i]), PICI_OK);
        if (t)
            pici_comm_force(w->comm[i], &t->s);
    }
    const char *name = t ? t->s.name : pici_algorithm_name(w->c.opts.algorithm);
    coll_threads(w->p, crew_rank, w);
    for (int i = 0; i < w->p; i++)
        cr_assert(!w->status[i] && !w->wrong[i], "%s, %d ranks, window %d: rank %d: %s (%s)", name, w->p,
                  w->c.opts.window, i, w->status[i] ? pici_strerror(w->status[i]) : w->wrong[i],
                  pici_comm_error(w->comm[i]));
    for (int k = 0; k <= w->scribe[0].sending; k++)
        *more += w->scribe[0].told[k].more;
    const int absent = fits(w, name);
    crew_free(w);
    return absent;
}

static struct crew *crew_of(int p, enum pici_collective kind, int window)
{
    struct crew *w = calloc(1, sizeof *w);
    if (!w)
        abort();
    w->p = p;
    w->c = (struct coll_case){.collective = kind,
                              .dtype = PICI_F32,
                              .count = (kind == PICI_ALL_REDUCE ? (uint64_t)p : 1) * 5 * 4096 - 3,
                              .pattern = PATTERN_8,
                              .tame = 1,
                              .seed = (uint64_t)(p * window),
                              .opts = PICI_COLL_OPTS_INIT};
    w->c.opts.slice_bytes = 1;
    w->c.opts.window = window;
    w->c.opts.timeout_ms = TIMEOUT_MS;
    return w;
}

/* Every step is told of, also where a rank has no message; and with all that may be late as late as it may be, a call
 * ends. */
Test(coll_steps, every_step_is_told)
{
    static struct table t;
    struct rng rng = {11};
    int absent = 0;
    alarm(WATCHDOG_S);
    for (int p = 3; p <= RANKS; p++)
        for (int window = 1; window <= 4; window++) {
            int more = 0;
            for (int which = 0; which < 6; which++) {
                if (which == 0)
                    table_star(&t, PICI_ALL_REDUCE, p);
                else if (which == 1)
                    table_star(&t, PICI_REDUCE_SCATTER, p);
                else if (which == 2)
                    table_reduce(&t, p);
                else if (which == 3)
                    table_relay(&t, p);
                else if (which == 4)
                    table_gossip(&t, p, &rng);
                else
                    table_tree(&t, p, &rng);
                struct crew *w = crew_of(p, t.kind, window);
                absent += record(w, &t, 0, &more);
                free(w);
            }
            for (const struct schedule *s = pici_schedules; s->name; s++)
                for (int i = 0; i < 6; i++) {
                    const enum pici_collective kind = (enum pici_collective)(PICI_ALL_GATHER + i / 2);
                    if (!(s->collectives >> kind & 1) || (i % 2 && !pici_schedule_paired(s, p)))
                        continue;
                    struct crew *w = crew_of(p, kind, window);
                    w->c.opts.algorithm = s->id;
                    const int idle = record(w, NULL, i % 2, &more);
                    cr_expect(!pici_schedule_paired(s, p) || !idle);
                    free(w);
                }
            cr_expect_eq(more > 0, window > 1, "steps need not wait for each other if there are several slices");
        }
    cr_expect_gt(absent, 100);
}

/* ---- transports of other sizes */

static void crew_comms(struct crew *w, int old_ranks)
{
    struct pici_transport transport[RANKS];
    cr_assert_eq(pici_transport_threads(transport, w->p), PICI_OK);
    for (int i = 0; i < w->p; i++) {
        if (old_ranks >> i & 1)
            make_old(&transport[i]);
        cr_assert_eq(pici_comm_transport(&w->comm[i], &transport[i]), PICI_OK);
    }
}

Test(coll_steps, old_transports_pair)
{
    static struct table t;
    alarm(WATCHDOG_S);
    for (int p = 2; p <= RANKS; p++)
        for (const struct schedule *s = pici_schedules; s->name; s++)
            for (int kind = PICI_ALL_GATHER; kind <= PICI_ALL_REDUCE; kind++) {
                if (!(s->collectives >> kind & 1))
                    continue;
                struct crew *w = crew_of(p, (enum pici_collective)kind, 2);
                w->c.opts.algorithm = s->id;
                coll_job_make(&w->job, &w->c, p);
                crew_comms(w, ~0);
                coll_threads(p, crew_rank, w);
                for (int i = 0; i < p; i++) {
                    cr_expect_eq(w->status[i], pici_schedule_paired(s, p) ? PICI_OK : PICI_E_UNSUPPORTED, "%s: %s",
                                 s->name, pici_comm_error(w->comm[i]));
                    cr_expect_null(w->wrong[i], "%s", w->wrong[i]);
                }
                crew_free(w);
                free(w);
            }
    /* AUTO that predicts times, because of a hint, takes paired schedules only */
    for (int p = 2; p <= RANKS; p++)
        for (int kind = PICI_ALL_GATHER; kind <= PICI_ALL_REDUCE; kind++) {
            struct crew *w = crew_of(p, (enum pici_collective)kind, 2);
            w->c.opts.density = 0.01;
            w->c.op = PICI_MAX; /* whose result no algorithm changes */
            coll_job_make(&w->job, &w->c, p);
            crew_comms(w, ~0);
            for (int i = 0; i < p; i++)
                cr_expect_gt(pici_comm_scratch(w->comm[i], (enum pici_collective)kind, w->c.count, w->c.dtype, PICI_SUM,
                                               &w->c.opts),
                             0);
            coll_threads(p, crew_rank, w);
            for (int i = 0; i < p; i++) {
                cr_expect_eq(w->status[i], PICI_OK, "%d ranks, %d: %s", p, i, pici_comm_error(w->comm[i]));
                cr_expect_null(w->wrong[i], "%s", w->wrong[i]);
            }
            crew_free(w);
            free(w);
        }
    /* of a schedule that is not paired all ranks hear that some transport cannot carry it */
    for (int p = 3; p <= RANKS; p++)
        for (int old = 1; old < 1 << p; old++) {
            table_star(&t, PICI_ALL_REDUCE, p);
            struct crew *w = crew_of(p, PICI_ALL_REDUCE, 2);
            table_job(&w->job, &t, &w->c);
            crew_comms(w, old);
            for (int i = 0; i < p; i++) {
                pici_comm_force(w->comm[i], &t.s);
                cr_expect_eq(!pici_comm_scratch(w->comm[i], PICI_ALL_REDUCE, w->c.count, w->c.dtype, PICI_SUM, NULL),
                             old >> i & 1);
            }
            coll_threads(p, crew_rank, w);
            all_are_refused(w, old);
        }
}

static void all_to_all(void *context, int rank)
{
    struct crew *w = context;
    const uint64_t counts[RANKS] = {1, 1, 1, 1};
    float sent[RANKS] = {0}, received[RANKS];
    cr_assert_leq(w->p, 4);
    w->status[rank] = pici_all_to_allv(sent, counts, NULL, received, counts, NULL, PICI_F32, w->comm[rank], NULL);
}

/* None of its schedules is paired, so all ranks hear that some transport cannot carry it. */
Test(coll_steps, all_to_all_of_old_transports)
{
    for (int p = 2; p <= 4; p++)
        for (int old = 1; old < 1 << p; old++) {
            struct crew *w = crew_of(p, PICI_ALL_REDUCE, 2);
            crew_comms(w, old);
            coll_threads(p, all_to_all, w);
            all_are_refused(w, old);
        }
}

/* As an older or a newer program would have it. */
static enum pici_status comm_of_size(size_t size, int tail)
{
    struct {
        struct pici_transport t;
        unsigned char more[64];
    } newer = {0};
    struct pici_comm *comm = (struct pici_comm *)&newer;
    struct pici_transport whole;
    cr_assert_eq(pici_transport_threads(&whole, 1), PICI_OK);
    newer.t = whole;
    newer.t.size = size;
    newer.more[sizeof newer.more - 1] = (unsigned char)tail;
    const enum pici_status s = pici_comm_transport(&comm, &newer.t);
    cr_expect_eq(s == PICI_OK, comm != NULL);
    if (s)
        cr_expect(*pici_comm_error(NULL), "no words");
    pici_comm_free(comm);
    if (size < offsetof(struct pici_transport, receives)) /* of such a struct not even close is known */
        whole.close(whole.context);
    return s;
}

Test(coll_steps, sizes)
{
    const size_t first = offsetof(struct pici_transport, receives), now = sizeof(struct pici_transport);
    for (size_t size = 0; size < first; size++)
        cr_expect_eq(comm_of_size(size, 0), PICI_E_ARG, "%zu", size);
    cr_expect_eq(comm_of_size(first, 1), PICI_OK);
    cr_expect_eq(comm_of_size(now, 1), PICI_OK);
    cr_expect_eq(comm_of_size(now + 64, 0), PICI_OK);
    cr_expect_eq(comm_of_size(now + 64, 1), PICI_E_UNSUPPORTED);
    cr_expect_eq(comm_of_size(now + 63, 1), PICI_OK);
}
