/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "transport.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util.h"

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum pici_status finish(const struct pici_transport *t, void *request, size_t *bytes)
{
    const double end = seconds() + 10;
    while (seconds() < end) {
        int done = 0;
        enum pici_status s = t->test(t->context, request, &done, bytes);
        if (done)
            return s;
        t->wait(t->context, 1000);
    }
    return PICI_E_TIMEOUT;
}

/* Random numbers of one message, the same on both ends. */
static struct rng message_rng(const struct traffic *f, int from, int to, int number)
{
    struct rng r = {f->seed ^ (uint64_t)from << 48 ^ (uint64_t)to << 32 ^ (uint64_t)number};
    rng_next(&r);
    return r;
}

/* How many messages go from one rank to another: none over half of the links, if traffic is one-sided. */
static int messages_of(const struct traffic *f, int from, int to)
{
    struct rng r = message_rng(f, from, to, -1);
    if (from == to)
        return 0;
    if (!f->one_sided)
        return f->messages;
    return rng_below(&r, 2) ? 1 + (int)rng_below(&r, (uint64_t)f->messages) : 0;
}

/* Lengths around the boundary of small messages, and up to the longest. */
static size_t length(const struct traffic *f, struct rng *r)
{
    static const size_t some[] = {0, 1, 32, 255, 1000, 2047, 2048, 2049, 65536};
    if (f->each_bytes)
        return f->each_bytes;
    size_t n = rng_chance(r, 200000) ? f->longest - rng_below(r, f->longest / 16 + 1)
                                     : some[rng_below(r, sizeof some / sizeof *some)];
    return n < f->longest ? n : f->longest;
}

static void fill(uint8_t *p, size_t n, struct rng r)
{
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t x = rng_next(&r);
        memcpy(p, &x, 8);
    }
    for (uint64_t x = rng_next(&r); n; n--, x >>= 8)
        *p++ = (uint8_t)x;
}

static int as_filled(const uint8_t *p, size_t n, struct rng r)
{
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t x = rng_next(&r);
        if (memcmp(p, &x, 8) != 0)
            return 0;
    }
    for (uint64_t x = rng_next(&r); n; n--, x >>= 8)
        if (*p++ != (uint8_t)x)
            return 0;
    return 1;
}

/* One message under way. */
struct flight {
    void *request; /* or NULL */
    int peer, number, receives;
    size_t bytes;
    uint8_t *data;
};

static _Thread_local char wrong[200];

__attribute__((format(printf, 1, 2))) static const char *say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(wrong, sizeof wrong, format, args);
    va_end(args);
    return wrong;
}

static const char *launch(const struct pici_transport *t, const struct traffic *f, struct flight *l)
{
    struct rng r =
        l->receives ? message_rng(f, l->peer, t->rank, l->number) : message_rng(f, t->rank, l->peer, l->number);
    enum pici_status s;
    l->bytes = length(f, &r);
    l->data = test_alloc(l->bytes + 1);
    if (l->receives) {
        size_t cap = l->bytes + rng_below(&r, 2) * 100;
        l->data = realloc(l->data, cap + 1);
        s = l->data ? t->recv(t->context, l->peer, l->data, cap, &l->request) : PICI_E_NOMEM;
    } else {
        rng_below(&r, 2);
        fill(l->data, l->bytes, r);
        s = t->send(t->context, l->peer, l->data, l->bytes, &l->request);
    }
    return s ? say("rank %d, %s %d, message %d: %s", t->rank, l->receives ? "from" : "to", l->peer, l->number,
                   pici_strerror(s))
             : NULL;
}

static const char *land(const struct pici_transport *t, const struct traffic *f, struct flight *l, int *landed)
{
    size_t bytes = (size_t)-1;
    enum pici_status s = t->test(t->context, l->request, landed, &bytes);
    if (!*landed && !s)
        return NULL;
    const char *what = NULL;
    struct rng r = message_rng(f, l->receives ? l->peer : t->rank, l->receives ? t->rank : l->peer, l->number);
    if (s)
        what = pici_strerror(s);
    else if (bytes != l->bytes)
        what = "wrong length";
    else {
        length(f, &r);
        rng_below(&r, 2);
        if (!as_filled(l->data, l->bytes, r))
            what = l->receives ? "wrong bytes" : "the sender's bytes changed";
    }
    free(l->data);
    *l = (struct flight){.peer = l->peer, .receives = l->receives, .number = l->number};
    return what ? say("rank %d, %s %d, message %d: %s", t->rank, l->receives ? "from" : "to", l->peer, l->number, what)
                : NULL;
}

const char *exchange(const struct pici_transport *t, const struct traffic *f)
{
    const int lanes = 2 * t->ranks, places = lanes * f->window; /* a lane: one peer, one direction */
    struct rng order = {f->seed + (uint64_t)t->rank};
    struct flight *flights = test_alloc((size_t)places * sizeof *flights);
    int *next = test_alloc((size_t)lanes * sizeof *next);
    int *count = test_alloc((size_t)lanes * sizeof *count), left = 0;
    const char *what = NULL;
    double moved_at = seconds();
    memset(flights, 0, (size_t)places * sizeof *flights);
    for (int i = 0; i < lanes; i++) {
        next[i] = 0;
        count[i] = i & 1 ? messages_of(f, i / 2, t->rank) : messages_of(f, t->rank, i / 2);
        left += count[i];
    }
    while (left > 0 && !what) {
        int moved = 0, start = (int)rng_below(&order, (uint64_t)places);
        for (int i = 0; i < places && !what; i++) {
            const int at = (start + i) % places, lane = at / f->window;
            struct flight *l = &flights[at];
            int landed = 0;
            if (l->request) {
                what = land(t, f, l, &landed);
                left -= landed;
            } else if (next[lane] < count[lane]) {
                *l = (struct flight){.peer = lane / 2, .number = next[lane]++, .receives = lane & 1};
                what = launch(t, f, l);
                landed = 1;
            }
            moved |= landed;
        }
        if (moved)
            moved_at = seconds();
        else if (seconds() - moved_at > 30)
            what = say("rank %d: nothing moves, %d messages left", t->rank, left);
        else
            t->wait(t->context, 1000);
    }
    if (!what) { /* else a buffer may be in use */
        free(flights);
        free(next);
        free(count);
    }
    return what;
}

/* ---- wrapping */

static enum pici_status pass_send(void *context, int to, const void *data, size_t bytes, void **request)
{
    const struct pici_transport *t = context;
    return t->send(t->context, to, data, bytes, request);
}

static enum pici_status pass_recv(void *context, int from, void *data, size_t cap, void **request)
{
    const struct pici_transport *t = context;
    return t->recv(t->context, from, data, cap, request);
}

static enum pici_status pass_test(void *context, void *request, int *done, size_t *bytes)
{
    const struct pici_transport *t = context;
    return t->test(t->context, request, done, bytes);
}

static void pass_wait(void *context, int timeout_ms)
{
    const struct pici_transport *t = context;
    t->wait(t->context, timeout_ms);
}

static int pass_abandon(void *context, enum pici_status why)
{
    const struct pici_transport *t = context;
    return t->abandon(t->context, why);
}

static void pass_close(void *context)
{
    const struct pici_transport *t = context;
    t->close(t->context);
}

void transport_wrap(struct pici_transport *t, struct pici_transport *inner)
{
    *inner = *t;
    t->context = inner;
    t->send = pass_send;
    t->recv = pass_recv;
    t->test = pass_test;
    t->wait = pass_wait;
    t->abandon = pass_abandon;
    t->close = pass_close;
}
