/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Schedules of broadcast, in which virtual rank `root` of the call has the data. A tree is an all-gather in which only
 * the root's segment exists: segment 0, the undivided data. A scatter divides the data into p segments, which the root
 * sends to their owners; then all ranks gather them. */
#ifndef PICI_LIB_SCHEDULE_BROADCAST_H
#define PICI_LIB_SCHEDULE_BROADCAST_H

#include "schedule/schedule.h"

/* Trees of the schedule's pattern `gather`. If the schedule is by node, they have two levels, like the schedules of
 * nodes.h. */
int pici_tree_steps(const struct schedule *, const struct schedule_call *);
void pici_tree_step(const struct schedule *, const struct schedule_call *, int k, struct schedule_step *);
void pici_tree_limits(const struct schedule *, const struct schedule_call *, struct schedule_limits *);

/* Gathers by the recursive pattern for up to 32 KiB a rank, else by the ring. */
int pici_scatter_steps(const struct schedule *, const struct schedule_call *);
void pici_scatter_step(const struct schedule *, const struct schedule_call *, int k, struct schedule_step *);
void pici_scatter_limits(const struct schedule *, const struct schedule_call *, struct schedule_limits *);

#endif
