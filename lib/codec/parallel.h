/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Threads for one call: started and joined within it. */
#ifndef PICI_LIB_CODEC_PARALLEL_H
#define PICI_LIB_CODEC_PARALLEL_H

#include <stddef.h>
#include <stdint.h>

enum { PICI_MAX_THREADS = 256 };

/* How many threads to use for work of this many pieces of a worthwhile size, when `threads` are asked for (0: one for each
 * core that the process may run on). At least 1. */
int pici_thread_count(int threads, uint64_t pieces);

/* Run work(context, i) for each i in [0, n): one by the caller, each other on a thread of its own with at least `stack` bytes
 * of stack; and wait for all. Where threads cannot be had, the caller does what is left itself, one after the other. The
 * caller works because Linux likes to put a new thread on a core that has one already when the caller goes to sleep: with two
 * threads and a sleeping caller, there were often two on one core and none on the other for the few milliseconds of a call. */
void pici_parallel(int n, size_t stack, void (*work)(void *context, int i), void *context);

#endif
