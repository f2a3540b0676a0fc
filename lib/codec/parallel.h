/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Threads that are started and joined within one call. */
#ifndef PICI_LIB_CODEC_PARALLEL_H
#define PICI_LIB_CODEC_PARALLEL_H

#include <stddef.h>
#include <stdint.h>

enum { PICI_MAX_THREADS = 256 };

/* The number of threads to use: `threads`, or with 0 one for each core that the process may run on. At most one for
 * each piece of work, at most PICI_MAX_THREADS, and at least 1. */
int pici_thread_count(int threads, uint64_t pieces);

/* Run work(context, i) for each i in [0, count), and wait for all. The caller runs one. Each other runs on its own
 * thread, with at least `stack` bytes of stack. If a thread cannot be started, the caller runs the rest itself. The
 * caller takes part because Linux often puts a new thread on a busy core when the caller goes to sleep. Beside a
 * sleeping caller, two threads often shared one core for the few milliseconds of a call. */
void pici_parallel(int count, size_t stack, void (*work)(void *context, int i), void *context);

#endif
