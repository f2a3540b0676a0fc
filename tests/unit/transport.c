/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport between threads. Nothing in it waits but wait itself: most tests drive both ends from one thread. */
#define _POSIX_C_SOURCE 200809L
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "transport/thread.h"
#include "tests/util/transport.h"
#include "tests/util/util.h"

enum { SMALL = 2048, LARGE = 9000 };

static void pair(struct pici_transport t[2])
{
    cr_assert_eq(pici_transport_threads(t, 2), PICI_OK);
}

static void close_all(struct pici_transport *t, int ranks)
{
    for (int i = 0; i < ranks; i++)
        t[i].close(t[i].context);
}

static enum pici_status try_send(const struct pici_transport *t, const void *data, size_t bytes, void **request)
{
    return t->send(t->context, !t->rank, data, bytes, request);
}

static void *must_send(const struct pici_transport *t, const void *data, size_t bytes)
{
    void *request = NULL;
    cr_assert_eq(try_send(t, data, bytes, &request), PICI_OK);
    return request;
}

static void *must_recv(const struct pici_transport *t, void *data, size_t cap)
{
    void *request = NULL;
    cr_assert_eq(t->recv(t->context, !t->rank, data, cap, &request), PICI_OK);
    return request;
}

/* It has ended, with this status and length. */
static void ended(const struct pici_transport *t, void *request, enum pici_status status, size_t bytes)
{
    int done = 0;
    size_t got = (size_t)-1;
    cr_assert_eq(t->test(t->context, request, &done, &got), status);
    cr_assert(done);
    if (!status)
        cr_assert_eq(got, bytes);
}

static void pending(const struct pici_transport *t, void *request)
{
    int done = 1;
    cr_assert_eq(t->test(t->context, request, &done, NULL), PICI_OK);
    cr_assert_not(done);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

Test(transport, wrong_calls)
{
    struct pici_transport t;
    cr_assert_eq(pici_transport_threads(NULL, 1), PICI_E_ARG);
    cr_assert_eq(pici_transport_threads(&t, 0), PICI_E_ARG);
    cr_assert_eq(pici_transport_threads(&t, -1), PICI_E_ARG);
}

/* In order, whichever is asked for first; a small send ends at once, a large one when it was received. */
Test(transport, order)
{
    static uint8_t large[LARGE], got[3][LARGE];
    struct pici_transport t[2];
    void *s[3], *r[3];
    pair(t);
    memset(large, 7, LARGE);
    r[0] = must_recv(&t[1], got[0], 1);
    s[0] = must_send(&t[0], "a", 1);
    s[1] = must_send(&t[0], large, LARGE);
    s[2] = must_send(&t[0], NULL, 0);
    r[1] = must_recv(&t[1], got[1], LARGE);
    r[2] = must_recv(&t[1], NULL, 0);
    ended(&t[0], s[2], PICI_OK, 0);
    ended(&t[0], s[0], PICI_OK, 1);
    pending(&t[0], s[1]);
    ended(&t[1], r[2], PICI_OK, 0);
    ended(&t[1], r[1], PICI_OK, LARGE);
    ended(&t[1], r[0], PICI_OK, 1);
    ended(&t[0], s[1], PICI_OK, LARGE);
    cr_assert_eq(got[0][0], 'a');
    cr_assert_arr_eq(got[1], large, LARGE);
    close_all(t, 2);
}

/* A rank that asks for its sends alone serves its receives all the same: two that send to each other first both end. */
Test(transport, progress)
{
    static uint8_t out[2][LARGE], in[2][LARGE];
    struct pici_transport t[2];
    void *s[2];
    pair(t);
    for (int i = 0; i < 2; i++) {
        s[i] = must_send(&t[i], out[i], LARGE);
        must_recv(&t[i], in[i], LARGE);
    }
    pending(&t[0], s[0]);
    ended(&t[1], s[1], PICI_OK, LARGE);
    ended(&t[0], s[0], PICI_OK, LARGE);
    close_all(t, 2);
}

Test(transport, too_long)
{
    static uint8_t out[LARGE], in[LARGE];
    static const size_t lengths[] = {1, SMALL, SMALL + 1, LARGE};
    struct pici_transport t[2];
    pair(t);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        void *s = must_send(&t[0], out, lengths[i]), *next = must_send(&t[0], out, 3);
        ended(&t[1], must_recv(&t[1], in, lengths[i] - 1), PICI_E_CORRUPT, 0);
        ended(&t[0], s, PICI_OK, lengths[i]);
        ended(&t[1], must_recv(&t[1], in, LARGE), PICI_OK, 3);
        ended(&t[0], next, PICI_OK, 3);
    }
    close_all(t, 2);
}

/* What a rank sent before it closed is still received, as far as it was small; then it is gone. */
Test(transport, closed)
{
    static uint8_t in[LARGE];
    struct pici_transport t[2];
    pair(t);
    void *early = must_recv(&t[1], in, LARGE);
    ended(&t[0], must_send(&t[0], "first", 5), PICI_OK, 5);
    ended(&t[0], must_send(&t[0], in, SMALL), PICI_OK, SMALL);
    void *never = must_send(&t[1], in, LARGE);
    t[0].close(t[0].context);
    ended(&t[1], early, PICI_OK, 5);
    cr_assert_arr_eq(in, "first", 5);
    ended(&t[1], must_recv(&t[1], in, LARGE), PICI_OK, SMALL);
    ended(&t[1], must_recv(&t[1], in, LARGE), PICI_E_PEER, 0);
    ended(&t[1], never, PICI_E_PEER, 0);
    void *request;
    cr_assert_eq(try_send(&t[1], in, 1, &request), PICI_E_PEER);
    cr_assert_eq(try_send(&t[1], in, LARGE, &request), PICI_E_PEER);
    close_all(&t[1], 1);
}

/* The buffers of a rank that gives up are its own again, and its peers hear why; nothing is received past a gap. */
Test(transport, abandoned)
{
    static uint8_t in[LARGE];
    uint8_t *out = test_alloc(LARGE);
    struct pici_transport t[3];
    cr_assert_eq(pici_transport_threads(t, 3), PICI_OK);
    must_send(&t[0], "x", 1);
    must_send(&t[0], out, LARGE);
    must_send(&t[0], "y", 1);
    must_recv(&t[0], out, LARGE);
    void *posted = must_recv(&t[1], in, LARGE), *never = must_send(&t[1], in, LARGE);
    cr_assert_eq(t[0].abandon(t[0].context, PICI_E_CHECKSUM), 0);
    free(out);
    ended(&t[1], posted, PICI_OK, 1);
    ended(&t[1], must_recv(&t[1], in, LARGE), PICI_E_CHECKSUM, 0);
    ended(&t[1], must_recv(&t[1], in, LARGE), PICI_E_CHECKSUM, 0);
    ended(&t[1], never, PICI_E_CHECKSUM, 0);
    void *request;
    cr_assert_eq(try_send(&t[1], in, 1, &request), PICI_E_CHECKSUM);

    /* the others go on */
    cr_assert_eq(t[1].send(t[1].context, 2, "z", 1, &request), PICI_OK);
    ended(&t[1], request, PICI_OK, 1);
    cr_assert_eq(t[2].recv(t[2].context, 1, in, 1, &request), PICI_OK);
    ended(&t[2], request, PICI_OK, 1);
    close_all(t, 3);
}

/* Closed with messages nobody took, and requests nobody asked about. */
Test(transport, left_behind)
{
    static uint8_t data[LARGE];
    struct pici_transport t[2];
    for (int first = 0; first < 2; first++) {
        pair(t);
        for (int i = 0; i < 2; i++) {
            must_send(&t[i], data, SMALL);
            must_send(&t[i], data, LARGE);
            must_recv(&t[i], data, 0);
        }
        close_all(&t[first], 1);
        close_all(&t[!first], 1);
    }
}

Test(transport, wait_sleeps)
{
    uint8_t byte;
    struct pici_transport t[2];
    pair(t);
    void *r = must_recv(&t[1], &byte, 1);
    double begin = seconds();
    t[1].wait(t[1].context, 60);
    cr_assert_geq(seconds() - begin, 0.055);
    begin = seconds();
    t[1].wait(t[1].context, 0);
    t[1].wait(t[1].context, -1);
    cr_assert_lt(seconds() - begin, 5);

    /* what has happened since, seen by a test or not, is not slept through */
    must_send(&t[0], "a", 1);
    begin = seconds();
    t[1].wait(t[1].context, 20000);
    cr_assert_lt(seconds() - begin, 10);
    ended(&t[1], r, PICI_OK, 1);

    /* but once only */
    begin = seconds();
    t[1].wait(t[1].context, 60);
    cr_assert_geq(seconds() - begin, 0.055);

    /* a sender hears that its message was taken */
    static uint8_t large[LARGE], into[LARGE];
    void *s = must_send(&t[0], large, LARGE);
    t[0].wait(t[0].context, 0);
    ended(&t[1], must_recv(&t[1], into, LARGE), PICI_OK, LARGE);
    begin = seconds();
    t[0].wait(t[0].context, 20000);
    cr_assert_lt(seconds() - begin, 10);
    ended(&t[0], s, PICI_OK, LARGE);
    close_all(t, 2);
}

enum { ROUNDS = 20000 };

/* Null if all was well. */
static void *echo(void *arg)
{
    const struct pici_transport *t = arg;
    static uint8_t sizes[] = {1, 255};
    uint8_t in[1000], out[1000] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        const size_t bytes = sizes[i & 1] * 3u;
        void *s = NULL, *r = must_recv(t, in, sizeof in);
        if (t->rank == 0)
            s = must_send(t, out, bytes);
        if (finish(t, r, NULL))
            return arg;
        if (t->rank == 1)
            s = must_send(t, out, bytes);
        if (finish(t, s, NULL))
            return arg;
    }
    return NULL;
}

/* One lost wake-up would cost a second. */
Test(transport, wakes_up)
{
    struct pici_transport t[2];
    pthread_t thread;
    void *wrong = &thread;
    pair(t);
    const double begin = seconds();
    cr_assert_eq(pthread_create(&thread, NULL, echo, &t[1]), 0);
    cr_assert_null(echo(&t[0]));
    pthread_join(thread, &wrong);
    cr_assert_null(wrong);
    cr_assert_lt(seconds() - begin, 60, "%g s", seconds() - begin);
    close_all(t, 2);
}

struct job {
    struct pici_transport transport;
    struct traffic traffic;
    const char *wrong;
};

static void *run(void *arg)
{
    struct job *j = arg;
    const char *wrong = exchange(&j->transport, &j->traffic);
    if (wrong)
        cr_log_error("%s", wrong);
    j->wrong = wrong ? "see above" : NULL;
    return NULL;
}

static void among(int ranks, const struct traffic *f)
{
    struct pici_transport t[17];
    struct job jobs[17];
    pthread_t threads[17];
    cr_assert_eq(pici_transport_threads(t, ranks), PICI_OK);
    for (int r = 0; r < ranks; r++) {
        jobs[r] = (struct job){.transport = t[r], .traffic = *f};
        cr_assert_eq(pthread_create(&threads[r], NULL, run, &jobs[r]), 0);
    }
    for (int r = 0; r < ranks; r++) {
        pthread_join(threads[r], NULL);
        cr_assert_null(jobs[r].wrong);
    }
    close_all(t, ranks);
}

static const int sizes[] = {1, 2, 3, 8, 17};

Test(transport, traffic)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        among(sizes[i], &(struct traffic){.seed = 3, .messages = 20, .window = 4, .longest = 200000});
}

/* A rank sends more messages than it receives, or fewer, or none. */
Test(transport, one_sided)
{
    for (uint64_t seed = 1; seed <= 3; seed++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            among(sizes[i],
                  &(struct traffic){.seed = seed, .messages = 20, .one_sided = 1, .window = 4, .longest = 200000});
}

/* One rank sends to all others, which send nothing: it needs no message to finish. */
Test(transport, one_to_many)
{
    static uint8_t out[LARGE], in[LARGE];
    struct pici_transport t[5];
    void *s[5], *r;
    cr_assert_eq(pici_transport_threads(t, 5), PICI_OK);
    memset(out, 9, LARGE);
    for (int to = 1; to < 5; to++)
        cr_assert_eq(t[0].send(t[0].context, to, out, to % 2 ? LARGE : SMALL, &s[to]), PICI_OK);
    for (int to = 1; to < 5; to++) {
        const size_t bytes = to % 2 ? LARGE : SMALL;
        memset(in, 0, LARGE);
        cr_assert_eq(t[to].recv(t[to].context, 0, in, LARGE, &r), PICI_OK);
        ended(&t[to], r, PICI_OK, bytes);
        ended(&t[0], s[to], PICI_OK, bytes);
        cr_assert_arr_eq(in, out, bytes);
    }
    close_all(t, 5);
}

/* ---- Faults. Messages are numbered in their first four bytes, and small and large in turn. */

enum { MESSAGES = 2000 };

static size_t length_of(int i)
{
    return i & 1 ? LARGE : 100;
}

static void fill(uint8_t *p, uint32_t i)
{
    memset(p, (int)(i * 37), LARGE);
    memcpy(p, &i, 4);
}

/* Which of MESSAGES arrive under these faults. What else is counted: those cut short, and those with a changed bit. */
struct outcome {
    uint8_t arrived[MESSAGES], refused[MESSAGES];
    int arrivals, refusals, cuts, flips;
};

static void suffer(struct outcome *o, const struct pici_thread_faults *faults)
{
    static uint8_t out[LARGE], in[LARGE], want[LARGE];
    struct pici_transport t[2];
    memset(o, 0, sizeof *o);
    pair(t);
    pici_transport_threads_faults(&t[1], faults);
    void *r = must_recv(&t[1], in, LARGE);
    for (int i = 0; i < MESSAGES; i++) {
        void *s = NULL;
        int done = 0;
        size_t bytes = 0;
        fill(out, (uint32_t)i);
        if (try_send(&t[0], out, length_of(i), &s)) {
            o->refused[i] = 1;
            o->refusals++;
            continue;
        }
        cr_assert_eq(t[1].test(t[1].context, r, &done, &bytes), PICI_OK);
        if (!done) {
            ended(&t[0], s, PICI_OK, length_of(i));
            continue;
        }
        ended(&t[0], s, PICI_OK, length_of(i));
        r = must_recv(&t[1], in, LARGE); /* into the same place, which is not touched before the next test */
        o->arrived[i] = 1;
        o->arrivals++;
        o->cuts += bytes < length_of(i);
        fill(want, (uint32_t)i);
        int bits = 0;
        for (size_t b = 0; b < bytes; b++)
            bits += __builtin_popcount(in[b] ^ want[b]);
        cr_assert_arr_eq(out, want, LARGE);
        cr_assert_leq(bits, faults->flip > 0);
        o->flips += bits;
    }
    close_all(t, 2);
}

/* Drawn from the seed, and as often as was asked for. */
Test(transport, faults_are_drawn)
{
    static struct outcome a, b;
    struct pici_thread_faults f = {.seed = 5, .drop = 0.3, .truncate = 0.1, .flip = 0.2, .refuse = 0.05};
    suffer(&a, &f);
    suffer(&b, &f);
    cr_assert_eq(memcmp(&a, &b, sizeof a), 0);
    cr_assert(a.refusals > MESSAGES * 0.03 && a.refusals < MESSAGES * 0.07, "%d", a.refusals);
    cr_assert(a.arrivals > MESSAGES * 0.61 && a.arrivals < MESSAGES * 0.71, "%d", a.arrivals);
    cr_assert(a.cuts > a.arrivals * 0.07 && a.cuts < a.arrivals * 0.13, "%d", a.cuts);
    cr_assert(a.flips > a.arrivals * 0.15 && a.flips < a.arrivals * 0.25, "%d", a.flips);
    f.seed = 6;
    suffer(&b, &f);
    cr_assert_neq(memcmp(a.arrived, b.arrived, sizeof a.arrived), 0);
    f = (struct pici_thread_faults){.seed = 5};
    suffer(&b, &f);
    cr_assert_eq(b.arrivals, MESSAGES);
    cr_assert_eq(b.cuts + b.flips, 0);
}

/* From some message on nothing arrives; nor does the news that the sender has left. */
Test(transport, stall)
{
    static uint8_t data[LARGE];
    static struct outcome o;
    struct pici_thread_faults f = {.seed = 1, .stall = 0.01};
    suffer(&o, &f);
    cr_assert_gt(o.arrivals, 0);
    cr_assert_lt(o.arrivals, MESSAGES);
    for (int i = 0; i < MESSAGES; i++)
        cr_assert_eq(o.arrived[i], i < o.arrivals);

    struct pici_transport t[2];
    f.stall = 1;
    pair(t);
    pici_transport_threads_faults(t, &f);
    void *r = must_recv(&t[1], data, LARGE);
    ended(&t[0], must_send(&t[0], data, LARGE), PICI_OK, LARGE);
    close_all(&t[0], 1);
    pending(&t[1], r);
    cr_assert_eq(t[1].abandon(t[1].context, PICI_E_TIMEOUT), 0);
    close_all(&t[1], 1);
}

/* Late, but in order, and no later than said; a wait ends when a message falls due. */
Test(transport, delay)
{
    static uint8_t out[40][LARGE], in[LARGE];
    struct pici_transport t[2];
    const struct pici_thread_faults f = {.seed = 1, .delay = 0.5, .delay_ms = 60};
    void *sends[40];
    int late = 0;
    pair(t);
    pici_transport_threads_faults(t, &f);
    for (int i = 0; i < 40; i++) {
        fill(out[i], (uint32_t)i);
        sends[i] = must_send(&t[0], out[i], length_of(i));
    }
    const double begin = seconds();
    for (uint32_t i = 0; i < 40; i++) {
        void *r = must_recv(&t[1], in, LARGE);
        int done = 0;
        uint32_t number;
        t[1].test(t[1].context, r, &done, NULL);
        late += !done;
        for (int waits = 0; !done; waits++) {
            t[1].wait(t[1].context, 20000);
            cr_assert_eq(t[1].test(t[1].context, r, &done, NULL), PICI_OK);
            cr_assert_lt(waits, 100);
        }
        memcpy(&number, in, 4);
        cr_assert_eq(number, i);
        ended(&t[0], sends[i], PICI_OK, length_of((int)i));
    }
    cr_assert_gt(late, 0);
    cr_assert_lt(seconds() - begin, 10);
    close_all(t, 2);
}

/* A large message that waits for its time is the sender's to take back. */
Test(transport, delay_and_abandon)
{
    static uint8_t in[LARGE];
    uint8_t *out = test_alloc(LARGE);
    struct pici_transport t[2];
    const struct pici_thread_faults f = {.seed = 1, .delay = 1, .delay_ms = 1000000};
    pair(t);
    pici_transport_threads_faults(t, &f);
    must_send(&t[0], out, LARGE);
    void *r = must_recv(&t[1], in, LARGE);
    pending(&t[1], r);
    cr_assert_eq(t[0].abandon(t[0].context, PICI_E_TIMEOUT), 0);
    free(out);
    ended(&t[1], r, PICI_E_TIMEOUT, 0);
    close_all(t, 2);
}
