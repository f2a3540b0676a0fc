/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Threads that are started and joined within one call. */
#ifndef PICI_LIB_CODEC_PARALLEL_H
#define PICI_LIB_CODEC_PARALLEL_H

#include <stddef.h>
#include <stdint.h>

enum { PICI_MAX_THREADS = 256 };

/* How many threads to use: `threads` (0: one for each core that the process may run on), but at most one for each of
 * `pieces` pieces of work, and at most PICI_MAX_THREADS. At least 1. */
int pici_thread_count(int threads, uint64_t pieces);

/* Run work(context, i) for each i in [0, n), and wait for all. The caller runs one; each other runs on a thread of
 * its own, with at least `stack` bytes of stack. If a thread cannot be started, the caller runs what is left itself.
 * The caller takes part because Linux often places a new thread on a busy core when the caller goes to sleep: with
 * two threads and a sleeping caller, both often shared one core for the few milliseconds of a call. */
void pici_parallel(int n, size_t stack, void (*work)(void *context, int i), void *context);

#endif
