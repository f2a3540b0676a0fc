/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What went wrong, in words, and the clock. */
#define _POSIX_C_SOURCE 200809L
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "coll/comm.h"

/* Why this thread's last attempt to make a communicator failed. */
static _Thread_local char made[sizeof((struct pici_comm *)NULL)->error];

double pici_coll_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void pici_coll_note(struct pici_comm *comm, const char *format, ...)
{
    char *text = comm ? comm->error : made;
    if (comm && text[0])
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof made, format, args);
    va_end(args);
}

enum pici_status pici_coll_lost(struct pici_comm *comm, int peer, enum pici_status s)
{
    const struct pici_transport *t = &comm->transport;
    const char *why = t->error ? t->error(t->context) : "";
    pici_coll_note(comm, "exchange with rank %d: %s", peer, why[0] ? why : pici_strerror(s));
    return s;
}

const char *pici_comm_error(const struct pici_comm *comm)
{
    return comm ? comm->error : made;
}

void pici_comm_failed(const char *why)
{
    pici_coll_note(NULL, "%s", why ? why : "");
}
