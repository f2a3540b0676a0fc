/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Schedules on two levels: inside nodes, and between nodes. */
#ifndef PICI_LIB_SCHEDULE_NODES_H
#define PICI_LIB_SCHEDULE_NODES_H

#include "schedule/schedule.h"

/* The pattern inside nodes, and how many ranks the widest node has. */
const struct schedule_pattern *pici_nodes_inside(const struct schedule_call *, int *widest);

/* For schedules whose `reduce` is the pattern between nodes. */
int pici_nodes_steps(const struct schedule *, const struct schedule_call *);
void pici_nodes_step(const struct schedule *, const struct schedule_call *, int k, struct schedule_step *);
void pici_nodes_limits(const struct schedule *, const struct schedule_call *, struct schedule_limits *);
void pici_nodes_traffic(const struct schedule *, const struct schedule_call *, struct schedule_traffic *);

/* ---- for nodes_limits.c and nodes_traffic.c */

/* A schedule applied to a call: its patterns, and their inputs. */
struct nodes_levels {
    const struct schedule_call *call;
    const struct schedule_pattern *inside, *between;
    int nodes, rails, second;        /* rails: ranks of the widest node; second: of the next, perhaps as wide */
    int inside_steps, between_steps; /* of a phase */
    int node, first, size, local;    /* this virtual rank's */
};

struct nodes_levels pici_nodes_levels(const struct schedule *, const struct schedule_call *);

#endif
