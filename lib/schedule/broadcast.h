/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Schedules of broadcast, in which virtual rank `root` of the call has the data. A tree is a gather with one owner: the
 * steps of an all-gather, of whose segments only the root's exists; here it is segment 0, the undivided data. A scatter
 * divides the data into p segments, which the root sends to their owners; then these are gathered. */
#ifndef PICI_LIB_SCHEDULE_BROADCAST_H
#define PICI_LIB_SCHEDULE_BROADCAST_H

#include "schedule/schedule.h"

/* By the schedule's pattern `gather`; if it is by node, on two levels as the schedules of nodes.h. */
int pici_tree_steps(const struct schedule *, const struct schedule_call *);
void pici_tree_step(const struct schedule *, const struct schedule_call *, int k, struct schedule_step *);
void pici_tree_limits(const struct schedule *, const struct schedule_call *, struct schedule_limits *);

/* Gathers by the recursive pattern for up to 32 KiB a rank, else by the ring. */
int pici_scatter_steps(const struct schedule *, const struct schedule_call *);
void pici_scatter_step(const struct schedule *, const struct schedule_call *, int k, struct schedule_step *);
void pici_scatter_limits(const struct schedule *, const struct schedule_call *, struct schedule_limits *);

#endif
