/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The registry of schedules, and AUTO's choice without predicted times. */
#ifndef PICI_LIB_SCHEDULE_REGISTRY_H
#define PICI_LIB_SCHEDULE_REGISTRY_H

#include "schedule/schedule.h"

enum { SCHEDULES_MOST = 12 }; /* rows of a registry, at the most */

/* All schedules, by rising id; ends with a row whose name is NULL. */
extern const struct schedule pici_schedules[];

/* The schedules of broadcasts, under the ids and names of the first table's algorithms. */
extern const struct schedule pici_broadcasts[];

/* The schedule with a number, or NULL. The second function also returns NULL if it does not support the collective. */
const struct schedule *pici_schedule(enum pici_algorithm number);
const struct schedule *pici_schedule_for(enum pici_algorithm number, enum pici_collective);

/* AUTO's choice without predicted times; ignores the call's virtual rank. paired_only: only schedules that are paired
 * with this number of ranks. undivided: the data may stay in one segment, which is one slice. */
enum pici_algorithm pici_schedule_usual(const struct schedule_call *, int paired_only, int undivided);

/* Whether an all-gather by the algorithm `asked`, or by AUTO, uses this schedule's steps for some number of bytes. */
int pici_schedule_may_gather(const struct schedule *, enum pici_algorithm asked);

/* Whether it is paired with this number of ranks. */
int pici_schedule_paired(const struct schedule *, int ranks);

/* 0: the schedule is by node, and there is one node, or one rank per node. It then has the steps of an earlier row. */
int pici_schedule_distinct(const struct schedule *, int ranks, int nodes);

#endif
