/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The wait of transports over libraries that have no wait with a timeout, and what other waits need. */
#ifndef PICI_LIB_TRANSPORT_NAP_H
#define PICI_LIB_TRANSPORT_NAP_H

#include <sched.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

/* A rank with nothing to do tests again: SPINS times without a pause if each rank has a core, then LOOKS times after
 * yielding the core, then after sleeps of NAP_NS. Spinning comes first because a short message arrives before a yield
 * returns, and another program could keep the core. With 2 to 8 ranks on 2 cores, fewer LOOKS make calls up to 50%
 * slower; more do not make them faster. */
enum { SPINS = 200, LOOKS = 200, NAP_NS = 50000 };

/* Whether each of `ranks` ranks on this machine can have a core. */
static inline int pici_transport_cores(int ranks)
{
    return ranks <= sysconf(_SC_NPROCESSORS_ONLN);
}

static inline int64_t pici_transport_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Leave the execution units to the core's other hardware thread for a moment: so many pauses. */
static inline void pici_transport_relax(int pauses)
{
    for (int i = 0; i < pauses; i++) {
#if defined __x86_64__ || defined __i386__
        __builtin_ia32_pause();
#elif defined __aarch64__
        __asm__ volatile("yield");
#endif
    }
}

/* *looks: the number of naps since a request last ended; the caller resets it. cores: each rank has a core. */
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
