/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The registry of schedules. */
#include "coll/schedule_doubling.h"
#include "coll/schedule_pattern.h"

enum { ALL_COLLECTIVES = 1 << PICI_ALL_GATHER | 1 << PICI_REDUCE_SCATTER | 1 << PICI_ALL_REDUCE };

#define TWO_PHASES ALL_COLLECTIVES, PAIRED_ALWAYS, 0, pici_two_phase_steps, pici_two_phase_step, pici_two_phase_limits

const struct schedule pici_schedules[] = {
    {PICI_ALGO_RING, "ring", "p - 1 steps; partial sums go round by the neighbour, one segment at a time", TWO_PHASES,
     &pici_pattern_ring, &pici_pattern_ring},
    {PICI_ALGO_RECURSIVE, "recursive",
     "ceil(log2 p) steps; partial sums of half of the segments at first, then of a quarter, ..., from as far away",
     TWO_PHASES, &pici_pattern_recursive, &pici_pattern_recursive},
    {PICI_ALGO_SPLIT, "split",
     "p - 1 steps; each contribution straight to its owner. Gathers as recursive does up to 32 KiB a rank, else as "
     "ring",
     TWO_PHASES, &pici_pattern_split, NULL},
    {.id = PICI_ALGO_DOUBLING,
     .name = "doubling",
     .doc = "all-reduce only: floor(log2 p) exchanges of all of the data, with the rank 1, 2, 4, ... away; one step "
            "before and one after them if p is not a power of two",
     .collectives = 1 << PICI_ALL_REDUCE,
     .paired = PAIRED_AT_POWERS_OF_TWO,
     .undivided = 1,
     .steps = pici_doubling_steps,
     .step = pici_doubling_step,
     .limits = pici_doubling_limits},
    {0},
};

const struct schedule *pici_schedule(enum pici_algorithm id)
{
    for (const struct schedule *s = pici_schedules; s->name; s++)
        if (s->id == id)
            return s;
    return NULL;
}

int pici_schedule_paired(const struct schedule *s, int ranks)
{
    return s->paired == PAIRED_ALWAYS || (s->paired == PAIRED_AT_POWERS_OF_TWO && (ranks & (ranks - 1)) == 0);
}
