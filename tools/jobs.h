/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Work on several files at a time. */
#ifndef PICI_TOOLS_JOBS_H
#define PICI_TOOLS_JOBS_H

#include <stdbool.h>
#include <stddef.h>

/* Run run_one(context, 0) to run_one(context, count - 1) on so many threads, of which this one is the first. They
 * return exit statuses. Returns the worst. go_on: also after one that fails; else no other is begun then, and those
 * that run are told by jobs_stopped. The other threads take no signals. */
int jobs_run(size_t count, unsigned threads, bool go_on, int (*run_one)(void *ctx, size_t i), void *context);

/* Whether a job has failed, and the others are to end. */
bool jobs_stopped(void);

/* How many of count jobs to run at a time if there are so many threads; *each: the threads for each. */
unsigned jobs_at_a_time(size_t count, unsigned threads, int *each);

#endif
