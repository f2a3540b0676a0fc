/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "jobs.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tool.h"

struct work {
    size_t n;
    bool go_on;
    int (*one)(void *ctx, size_t i);
    void *ctx;
    atomic_size_t next;
    atomic_int worst;
};

static atomic_bool stopped;

static void *run(void *arg)
{
    struct work *const w = arg;
    for (size_t i; !atomic_load(&stopped) && (i = atomic_fetch_add(&w->next, 1)) < w->n;) {
        const int status = w->one(w->ctx, i);
        int worst = atomic_load(&w->worst);
        while (status > worst && !atomic_compare_exchange_weak(&w->worst, &worst, status))
            continue;
        if (status != TOOL_OK && !w->go_on)
            atomic_store(&stopped, true);
    }
    return NULL;
}

int jobs_run(size_t n, unsigned threads, bool go_on, int (*one)(void *ctx, size_t i), void *context)
{
    struct work w = {.n = n, .go_on = go_on, .one = one, .ctx = context};
    const size_t more = n < threads ? (n ? n - 1 : 0) : threads - 1;
    pthread_t *const thread = calloc(more + 1, sizeof *thread);
    size_t started = 0;
    sigset_t all, old;
    atomic_init(&w.next, 0);
    atomic_init(&w.worst, TOOL_OK);
    atomic_store(&stopped, false);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    /* With fewer threads than asked for, it takes longer. */
    while (thread && started < more && pthread_create(&thread[started], NULL, run, &w) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    run(&w);
    for (size_t i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    free(thread);
    atomic_store(&stopped, false);
    return atomic_load(&w.worst);
}

bool jobs_stopped(void)
{
    return atomic_load_explicit(&stopped, memory_order_relaxed);
}

unsigned jobs_at_a_time(size_t n, unsigned threads, int *each)
{
    const unsigned at_a_time = n < threads ? (unsigned)(n ? n : 1) : threads;
    *each = (int)(threads / at_a_time);
    return at_a_time;
}
