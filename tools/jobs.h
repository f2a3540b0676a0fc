/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Runs jobs on several files in parallel. */
#ifndef PICI_TOOLS_JOBS_H
#define PICI_TOOLS_JOBS_H

#include <stdbool.h>
#include <stddef.h>

/* Run run_one(context, 0) to run_one(context, count - 1) on this many threads, including this one. They return exit
 * statuses; jobs_run returns the worst. go_on: continue after a failure. Else no other job starts, and running jobs see
 * jobs_stopped. The other threads block signals. */
int jobs_run(size_t count, unsigned threads, bool go_on, int (*run_one)(void *ctx, size_t i), void *context);

/* Whether a job has failed and the others must end. */
bool jobs_stopped(void);

/* How many of the `count` jobs to run at a time on this many threads. *each: the threads for each. */
unsigned jobs_at_a_time(size_t count, unsigned threads, int *each);

#endif
