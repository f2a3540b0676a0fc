/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "jobs.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tool.h"

struct work {
    size_t count;
    bool go_on;
    int (*run_one)(void *ctx, size_t i);
    void *context;
    atomic_size_t next;
    atomic_int worst;
};

static atomic_bool stopped;

static void *run(void *arg)
{
    struct work *const work = arg;
    for (size_t i; !atomic_load(&stopped) && (i = atomic_fetch_add(&work->next, 1)) < work->count;) {
        const int status = work->run_one(work->context, i);
        int worst = atomic_load(&work->worst);
        while (status > worst && !atomic_compare_exchange_weak(&work->worst, &worst, status))
            continue;
        if (status != TOOL_OK && !work->go_on)
            atomic_store(&stopped, true);
    }
    return NULL;
}

int jobs_run(size_t count, unsigned threads, bool go_on, int (*run_one)(void *ctx, size_t i), void *context)
{
    struct work work = {.count = count, .go_on = go_on, .run_one = run_one, .context = context};
    const size_t more = count < threads ? (count ? count - 1 : 0) : threads - 1;
    pthread_t *const thread = calloc(more + 1, sizeof *thread);
    size_t started = 0;
    sigset_t all, old;
    atomic_init(&work.next, 0);
    atomic_init(&work.worst, TOOL_OK);
    atomic_store(&stopped, false);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    /* If a thread cannot be created, the others do its jobs. */
    while (thread && started < more && pthread_create(&thread[started], NULL, run, &work) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    run(&work);
    for (size_t i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    free(thread);
    atomic_store(&stopped, false);
    return atomic_load(&work.worst);
}

bool jobs_stopped(void)
{
    return atomic_load_explicit(&stopped, memory_order_relaxed);
}

unsigned jobs_at_a_time(size_t count, unsigned threads, int *each)
{
    const unsigned at_a_time = count < threads ? (unsigned)(count ? count : 1) : threads;
    *each = (int)(threads / at_a_time);
    return at_a_time;
}
