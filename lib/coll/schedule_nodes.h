/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Schedules on two levels: inside nodes, and between nodes. */
#ifndef PICI_LIB_COLL_SCHEDULE_NODES_H
#define PICI_LIB_COLL_SCHEDULE_NODES_H

#include "coll/schedule.h"

/* The pattern inside nodes, and how many ranks the widest node has. */
const struct schedule_pattern *pici_nodes_inside(const struct schedule_call *, int *widest);

/* Those of a schedule whose `reduce` is the pattern between nodes. */
int pici_nodes_steps(const struct schedule *, const struct schedule_call *);
void pici_nodes_step(const struct schedule *, const struct schedule_call *, int k, struct schedule_step *);
void pici_nodes_limits(const struct schedule *, const struct schedule_call *, struct schedule_limits *);

#endif
