/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The traffic of a schedule, step by step, in closed form: predictions need not run through the steps of all ranks.
 * Nothing here depends on elements, densities or seconds. The tests compare it with the schedules themselves. */
#ifndef PICI_LIB_SCHEDULE_TRAFFIC_H
#define PICI_LIB_SCHEDULE_TRAFFIC_H

#include "schedule/schedule.h"

/* The messages of a rank over one class of links in a step. */
struct traffic_load {
    double fraction; /* elements, as a part of all elements of the call */
    double segments; /* blocks, for each slice */
    double messages;
};

/* A step, or several that differ only in the contributions in their messages. */
struct traffic_step {
    enum schedule_phase phase;
    int encode;                          /* elements are encoded; 0: blocks are forwarded */
    int reversed;                        /* the receiver decodes, and then adds its own sent blocks */
    int contributions;                   /* the most in a message of the first step; gathering: all */
    int growth;                          /* additional ones in each following step */
    int repeat;                          /* number of steps */
    struct traffic_load between, inside; /* to other nodes, in the node: of the rank that sends most over such links */
    double node_fraction;                /* elements out of the busiest node */
    double receive_fraction;             /* elements into the busiest rank */
};

enum { TRAFFIC_STEPS = 192 };

struct schedule_traffic {
    int count;
    struct traffic_step step[TRAFFIC_STEPS];
};

/* All steps of a call; its virtual rank is ignored. 0: the schedule does not support it, or such calls are not
 * predicted. */
int pici_schedule_traffic(const struct schedule *, const struct schedule_call *, struct schedule_traffic *);

/* ---- for the closed forms */

/* Add a step, or several. */
struct traffic_step *pici_traffic_add(struct schedule_traffic *, enum schedule_phase, int contributions, int grow,
                                      int repeat);

/* Note that some rank sends this. */
void pici_traffic_send(struct traffic_load *, double fraction, double segments, double messages);

/* Note that some rank, or some node, has this fraction. */
static inline void traffic_most(double *most, double fraction)
{
    *most = fraction > *most ? fraction : *most;
}

/* The number of nodes to examine: 1 if all have equally many ranks. */
int pici_traffic_nodes(const struct schedule_call *);

#endif
