/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The wait of transports over libraries that have no wait with a timeout. */
#ifndef PICI_LIB_TRANSPORT_NAP_H
#define PICI_LIB_TRANSPORT_NAP_H

#include <sched.h>
#include <time.h>
#include <unistd.h>

/* A rank with nothing to do yields the processor and tests again, so many times; then it sleeps between tests. With 2
 * to 8 ranks on 2 cores, fewer tests before the first sleep take up to half as long again; more take no less. Where
 * each rank has a core, it does not yield at first: a short message is there before the system call ends, and another
 * program could keep the core. */
enum { SPINS = 200, LOOKS = 200, NAP_NS = 50000 };

/* Whether so many ranks of this machine each have a core. */
static inline int pici_transport_cores(int ranks)
{
    return ranks <= sysconf(_SC_NPROCESSORS_ONLN);
}

/* *looks: how often nothing was found to do since something last ended. cores: each rank has a core. */
static inline void pici_transport_nap(int *looks, int cores, int timeout_ms)
{
    static const struct timespec nap = {0, NAP_NS};
    const int spins = cores ? SPINS : 0;
    if (timeout_ms <= 0)
        return;
    if (*looks >= spins + LOOKS) {
        nanosleep(&nap, NULL);
    } else if (++*looks > spins) {
        sched_yield();
    }
}

#endif
