/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The wait of transports over libraries that have no wait with a timeout. */
#ifndef PICI_LIB_TRANSPORT_NAP_H
#define PICI_LIB_TRANSPORT_NAP_H

#include <sched.h>
#include <time.h>

/* A rank with nothing to do yields the processor and tests again, so many times; then it sleeps between tests. With 2
 * to 8 ranks on 2 cores, fewer tests before the first sleep take up to half as long again; more take no less. */
enum { LOOKS = 200, NAP_NS = 50000 };

/* *looks: how often nothing was found to do since something last ended. */
static inline void pici_transport_nap(int *looks, int timeout_ms)
{
    static const struct timespec nap = {0, NAP_NS};
    if (timeout_ms <= 0)
        return;
    if (*looks < LOOKS) {
        ++*looks;
        sched_yield();
    } else
        nanosleep(&nap, NULL);
}

#endif
