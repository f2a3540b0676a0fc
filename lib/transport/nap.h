/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The wait of transports over libraries that have none which ends in time. */
#ifndef PICI_LIB_TRANSPORT_NAP_H
#define PICI_LIB_TRANSPORT_NAP_H

#include <sched.h>
#include <time.h>

/* With nothing to do, look again at once for a while, after others had the processor; then sleep between looks. With
 * 2 to 8 ranks on 2 cores, fewer looks take up to a half longer, more or endless ones no less. */
enum { LOOKS = 200, NAP_NS = 50000 };

/* *looks: in vain, since something ended. */
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
