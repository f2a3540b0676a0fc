/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Error messages; the clock; whether the process has forked. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "coll/note.h"

/* Why this thread's last attempt to make a communicator failed. */
static _Thread_local char made[sizeof((struct pici_comm *)NULL)->error];

double pici_coll_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* The number of forks since the process that first asked. getpid would do as well, but is a system call. */
static atomic_uint generation;
static int not_watched;

static void forked(void)
{
    atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
}

static void watch_forks(void)
{
    not_watched = pthread_atfork(NULL, NULL, forked) != 0;
}

unsigned pici_coll_generation(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, watch_forks);
    return not_watched ? (unsigned)getpid() : atomic_load_explicit(&generation, memory_order_relaxed);
}

void pici_coll_note(struct pici_comm *comm, const char *format, ...)
{
    char *text = comm ? comm->error : made;
    if (comm && text[0] && !comm->harmless)
        return;
    if (comm)
        comm->harmless = 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof made, format, arguments);
    va_end(arguments);
}

enum pici_status pici_coll_lost(struct pici_comm *comm, int peer, enum pici_status status)
{
    const struct pici_transport *transport = &comm->transport;
    const char *reason = transport->error ? transport->error(transport->context) : "";
    pici_coll_note(comm, "exchange with rank %d: %s", peer, reason[0] ? reason : pici_strerror(status));
    return status;
}

const char *pici_comm_error(const struct pici_comm *comm)
{
    return comm ? comm->error : made;
}

void pici_comm_failed(const char *reason)
{
    pici_coll_note(NULL, "%s", reason ? reason : "");
}
