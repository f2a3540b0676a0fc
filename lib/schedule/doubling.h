/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The schedule of recursive doubling: an all-reduce in which a message has all of the data, undivided. */
#ifndef PICI_LIB_SCHEDULE_DOUBLING_H
#define PICI_LIB_SCHEDULE_DOUBLING_H

#include "schedule/schedule.h"

int pici_doubling_steps(const struct schedule *, const struct schedule_call *);
void pici_doubling_step(const struct schedule *, const struct schedule_call *, int k, struct schedule_step *);
void pici_doubling_limits(const struct schedule *, const struct schedule_call *, struct schedule_limits *);
void pici_doubling_traffic(const struct schedule *, const struct schedule_call *, struct schedule_traffic *);

#endif
