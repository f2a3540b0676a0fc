/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a schedule sends, step by step, by closed forms: so that times are predicted without going through the steps of
 * all ranks. Nothing here depends on elements, densities or seconds. The tests compare it with the schedules
 * themselves. */
#ifndef PICI_LIB_SCHEDULE_TRAFFIC_H
#define PICI_LIB_SCHEDULE_TRAFFIC_H

#include "schedule/schedule.h"

/* What a rank sends over one class of links in a step. */
struct traffic_load {
    double fraction; /* elements, as a part of all elements of the call */
    double segments; /* blocks, for each slice */
    double messages;
};

/* A step, or several that differ in nothing but the contributions in their messages. */
struct traffic_step {
    enum schedule_phase phase;
    int encode;                          /* elements are encoded; 0: blocks are forwarded */
    int reversed;                        /* the receiver decodes, and then adds what it sent itself */
    int contributions;                   /* in a message of the first of the steps, at the most; gathering: all */
    int growth;                          /* how many more in each of the following ones */
    int repeat;                          /* how many steps */
    struct traffic_load between, inside; /* to other nodes, in the node: of the rank that sends most over such links */
    double node_fraction;                /* elements out of the busiest node */
    double receive_fraction;             /* what the busiest rank receives */
};

enum { TRAFFIC_STEPS = 192 };

struct schedule_traffic {
    int count;
    struct traffic_step step[TRAFFIC_STEPS];
};

/* All steps of a call, whose virtual rank is not read. 0: the schedule cannot do it, or such calls are not predicted.
 * */
int pici_schedule_traffic(const struct schedule *, const struct schedule_call *, struct schedule_traffic *);

/* ---- for the closed forms */

/* Add a step, or several. */
struct traffic_step *pici_traffic_add(struct schedule_traffic *, enum schedule_phase, int contributions, int grow,
                                      int repeat);

/* Some rank sends this. */
void pici_traffic_send(struct traffic_load *, double fraction, double segments, double messages);

/* Some rank, or some node, has so much. */
static inline void traffic_most(double *most, double fraction)
{
    *most = fraction > *most ? fraction : *most;
}

/* How many nodes there are to be looked at: 1 if all have as many ranks. */
int pici_traffic_nodes(const struct schedule_call *);

#endif
