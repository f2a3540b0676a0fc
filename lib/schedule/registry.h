/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The registry of schedules: what there is, and what AUTO takes where no times are predicted. */
#ifndef PICI_LIB_SCHEDULE_REGISTRY_H
#define PICI_LIB_SCHEDULE_REGISTRY_H

#include "schedule/schedule.h"

enum { SCHEDULES_MOST = 12 }; /* rows of a registry, at the most */

/* All schedules, by rising id; ends with a row whose name is NULL. */
extern const struct schedule pici_schedules[];

/* The same for broadcasts: what the algorithms of the first table do there, under the same ids and names. */
extern const struct schedule pici_broadcasts[];

/* NULL: there is none of this number; the second function: or it cannot do the collective. */
const struct schedule *pici_schedule(enum pici_algorithm number);
const struct schedule *pici_schedule_for(enum pici_algorithm number, enum pici_collective);

/* What PICI_ALGO_AUTO takes where no times are predicted; the call's virtual rank is not read. paired_only: only
 * schedules that are paired with so many ranks. undivided: the data may stay in one segment, which is one slice. */
enum pici_algorithm pici_schedule_usual(const struct schedule_call *, int paired_only, int undivided);

/* Whether an all-gather by an algorithm, or by AUTO, may have the steps of this schedule's, as far as that depends on
 * the bytes. */
int pici_schedule_may_gather(const struct schedule *, enum pici_algorithm asked);

/* Whether it is paired with so many ranks. */
int pici_schedule_paired(const struct schedule *, int ranks);

/* 0: it goes by nodes, which are one, or as many as ranks, so that its steps are those of a row above. */
int pici_schedule_distinct(const struct schedule *, int ranks, int nodes);

#endif
