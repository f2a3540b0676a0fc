/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Patterns are the parts of schedules: a reduce-scatter among p virtual ranks, and the all-gather that follows from it.
 * In each step, a virtual rank sends one message and receives one. Each message has a run of segments, which may wrap
 * around. */
#ifndef PICI_LIB_SCHEDULE_PATTERN_H
#define PICI_LIB_SCHEDULE_PATTERN_H

#include "schedule/schedule.h"

/* What a virtual rank sends and receives in a step: segments first, first + 1, ..., count of them, modulo p. */
struct schedule_run {
    int to, send_first, from, recv_first, count;
    int keep_sent, keep_received; /* gathering: a later step of the pattern sends these segments (again) */
};

/* How many sums or kept messages a pattern needs: none, one, or one for each segment or step. */
enum pattern_amount { AMOUNT_NONE, AMOUNT_ONE, AMOUNT_EACH };

struct schedule_pattern {
    int logarithmic; /* ceil(log2 p) steps with up to p/2 segments each; else p - 1 steps with one */
    enum pattern_amount sums, kept;
    void (*run)(struct schedule_run *, int p, int r, int k); /* of reduce-scatter; keep_* are not written */
    int (*alike)(int p, int k);                              /* steps from k on that send alike, or nearly */
    int (*contributions)(int p, int k);                      /* the most that a sum in a message of step k can have */
    /* Contributions in the sum of the segment that virtual rank r sends in step k of reduce-scatter. Virtual rank i
     * begins with begin[i + 1] - begin[i] contributions; begin NULL: with one. */
    int (*sum)(const int *begin, int p, int r, int k, int segment);
};

extern const struct schedule_pattern pici_pattern_ring, pici_pattern_recursive, pici_pattern_split;

/* Steps of a phase, and the most segments of a message. */
int pici_pattern_steps(const struct schedule_pattern *, int p);
int pici_pattern_widest(const struct schedule_pattern *, int p);

/* Step k of a phase, 0 <= k < steps. */
void pici_pattern_run(struct schedule_run *, const struct schedule_pattern *, enum schedule_phase, int p, int r, int k);

/* The recursive pattern for up to 32 KiB a rank, else the ring. */
const struct schedule_pattern *pici_pattern_by_size(const struct schedule_call *);

/* Schedules with one pattern per phase: `reduce` and `gather`. gather NULL: chosen by size. */
int pici_two_phase_steps(const struct schedule *, const struct schedule_call *);
void pici_two_phase_step(const struct schedule *, const struct schedule_call *, int k, struct schedule_step *);
void pici_two_phase_limits(const struct schedule *, const struct schedule_call *, struct schedule_limits *);
void pici_two_phase_traffic(const struct schedule *, const struct schedule_call *, struct schedule_traffic *);

#endif
