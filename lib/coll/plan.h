/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Who sends which segments to whom: pure integer functions. The data of a collective is p segments, one owned by each
 * rank. An algorithm is its reduce-scatter; all-gather is that backwards, send and receive exchanged, and seen in a mirror
 * (rank and segment i is -i modulo p). In the mirror, for then a rank sends to the same side in both phases, and in an all-reduce
 * the second phase's first messages queue behind the first's last. Without it they would go to the other neighbour and share
 * this rank's link with those: they come too early, and leave the link idle later (measured: a tenth of the time of a dense
 * all-reduce over a network).
 *
 * Reduce-scatter: a rank sends its partial sums of some segments, and adds what it receives to its own; at the end it holds the
 * whole sum of segment r. All-gather: a rank sends segments that it holds whole.
 *
 * Ranks here are positions in an order (pici_plan_order), not the caller's ranks; p >= 1, 0 <= r < p. */
#ifndef PICI_LIB_COLL_PLAN_H
#define PICI_LIB_COLL_PLAN_H

#include <stdint.h>

enum plan_algorithm { PLAN_RING = 1, PLAN_RECURSIVE = 2 }; /* as enum pici_algorithm */
enum plan_phase { PLAN_REDUCE_SCATTER = 0, PLAN_ALL_GATHER = 1 };

/* One step of one rank. Segments are a run that wraps around: first, first + 1, ..., modulo p. They stand in the message in
 * the order of the run; `to` and `from` see the same run. */
struct pici_plan_step {
    int to, send_first, send_count;
    int from, recv_first, recv_count; /* recv_count == send_count >= 1 */
};

/* Steps of a phase: ring p - 1; recursive ceil(log2 p). */
int pici_plan_steps(enum plan_algorithm, int p);

/* Segments in a message at the most; 1 for p == 1. */
int pici_plan_widest(enum plan_algorithm, int p);

/* Step k of rank r, 0 <= k < pici_plan_steps. */
void pici_plan_step(struct pici_plan_step *, enum plan_algorithm, enum plan_phase, int p, int r, int k);

/* Segment i of n elements: [*first, *first + *len). Cut at floor(i*n/p); for n >= 64*4096*p that is rounded down to a multiple
 * of 4096 (the last ends at n). Any n. */
void pici_plan_segment(uint64_t n, int p, int i, uint64_t *first, uint64_t *len);

/* The order of ranks: those of a node next to each other, nodes by their lowest rank, ranks rising within. order[position] = rank. */
void pici_plan_order(const int *node_of, int p, int *order);

#endif
