/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TRY_SCHED_H
#define TRY_SCHED_H
int sched_yield(void);
#endif
