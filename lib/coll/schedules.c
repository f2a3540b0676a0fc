/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The registry of schedules. */
#include "coll/schedule_pattern.h"

enum { ALL_COLLECTIVES = 1 << PICI_ALL_GATHER | 1 << PICI_REDUCE_SCATTER | 1 << PICI_ALL_REDUCE };

#define TWO_PHASES ALL_COLLECTIVES, 1, pici_two_phase_steps, pici_two_phase_step, pici_two_phase_limits

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
    {0},
};

const struct schedule *pici_schedule(enum pici_algorithm id)
{
    for (const struct schedule *s = pici_schedules; s->name; s++)
        if (s->id == id)
            return s;
    return NULL;
}
