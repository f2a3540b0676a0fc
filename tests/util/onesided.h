/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The tests' own schedules, with several messages in a step, or none. Tables of messages give the steps of all ranks,
 * the limits and the expected results. */
#ifndef PICI_TESTS_ONESIDED_UTIL_H
#define PICI_TESTS_ONESIDED_UTIL_H

#include "coll.h"
#include "schedule.h"

enum { TABLE_STEPS = 64, TABLE_MESSAGES = 1024 };

struct table_message {
    int step, from, to, count;
    int segments[COLL_RANKS];
    enum schedule_action send, take;
    int keep_sent, keep_received; /* follow from the messages after it */
    int contributions;
};

struct table {
    struct schedule s; /* first */
    enum pici_collective kind;
    int p, steps, messages;
    struct table_message m[TABLE_MESSAGES]; /* by rising step; in a step, in the order of lists */
    enum schedule_phase phase[TABLE_STEPS];
    enum schedule_complete complete[TABLE_STEPS][COLL_RANKS];
    struct schedule_limits limits; /* no more than what is needed */
};

/* All send all they have to position 0, which adds it, the last position's first, and sends the results: to all ranks
 * (all-reduce), or to each its own (reduce-scatter). */
void table_star(struct table *, enum pici_collective, int p);

/* An all-reduce by trees, for any number of ranks. Of the first 2 * (p - 2^k) positions, the even ones send all their
 * data to the odd ones, and are absent until they get the results. The others reduce and broadcast by binomial
 * trees. */
void table_reduce(struct table *, int p);

/* An all-gather through the last position, which places half of what it forwards only when it comes back from position
 * 0. Three ranks or more. */
void table_relay(struct table *, int p);

/* An all-gather of random messages. */
void table_gossip(struct table *, int p, struct rng *);

/* An all-reduce along a random tree. */
void table_tree(struct table *, int p, struct rng *);

/* Position 0 sends its segment to all others. Nobody else sends anything: no all-gather, but a schedule. */
void table_one_way(struct table *, int p);

/* What is wrong with it by itself (schedule_check); NULL. */
const char *table_check(const struct table *);

/* The job of a case whose algorithm is AUTO, with the results that the table has. */
void table_job(struct coll_job *, const struct table *, const struct coll_case *);

/* Blocks that a position sends of each slice. */
int table_blocks(const struct table *, int position);

/* One case on all ranks, PICI_OK expected. NULL, or what is wrong, in static memory. */
const char *table_run(struct coll_team *, const struct table *, const struct coll_case *);

#endif
