/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Schedules by brute force: a schedule is carried out on sets of ranks instead of sums. */
#ifndef PICI_TESTS_SCHEDULE_UTIL_H
#define PICI_TESTS_SCHEDULE_UTIL_H

#include "schedule/registry.h"

enum {
    SCHEDULE_RANKS = 64, /* at the most */
    SCHEDULE_KINDS = 4,
    SCHEDULE_SHARES = 2,
    SCHEDULE_SHARE = 32 << 10 /* bytes a rank up to which a schedule may send few large messages */
};

extern const enum pici_collective schedule_kinds[SCHEDULE_KINDS];

/* Bytes a rank on both sides of SCHEDULE_SHARE. */
extern const uint64_t schedule_shares[SCHEDULE_SHARES];

/* Whether it can do the collective. */
int schedule_has(const struct schedule *, enum pici_collective);

/* A call of p ranks with so many bytes each, on one node. The root of a broadcast is p / 2. */
struct schedule_call schedule_call_of(enum pici_collective, int p, uint64_t share);

/* A step whose lists have more room than the limits say, so that a schedule that breaks them is found out. Freed with
 * free(). */
struct schedule_step *schedule_room(const struct schedule_limits *, int ranks);

/* Carry out all steps of all ranks (the call's position is of no account). exact: `contributions` is not only an upper
 * bound, but the number. used, or NULL: the most that any step of any rank did need. Returns NULL, or what is wrong, in
 * static memory:
 *   - the two ends of a message differ; several messages to a peer in a step, a list beyond the limits, a message to
 *     oneself;
 *   - a contribution is added twice or lost; a sum is said to be complete when it is not, or not when it is;
 *   - a result is missing, arrives twice, or is placed before it is one;
 *   - blocks are forwarded that are not kept, or kept and never forwarded;
 *   - two ranks compute the same sum in another order of its contributions, so that their bytes may differ;
 *   - phases go back, or differ among ranks; a schedule that says that it is paired is not. */
const char *schedule_check(const struct schedule *, const struct schedule_call *, int exact,
                           struct schedule_limits *used);

/* Only whether the two ends of each message of the call's position agree in step k, for any number of ranks. */
const char *schedule_check_ends(const struct schedule *, const struct schedule_call *, int k);

/* Whether in each step of each rank there is one message each way. */
int schedule_is_paired(const struct schedule *, const struct schedule_call *);

#endif
