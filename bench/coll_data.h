/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the ranks of a benchmark contribute, and what must come out of it. Every element is a function of (rank, index),
 * so nothing is kept to compare with. Values are integers, most of them small, chosen so that any order of adding them
 * is exact. Half of the zeros of floats may be -0.0. */
#ifndef PICI_BENCH_COLL_DATA_H
#define PICI_BENCH_COLL_DATA_H

#include "pici/coll.h"

enum { SMOOTH_MODES = 40, SMOOTH_SIDE = 128 };

enum spread {
    SPREAD_UNIFORM,   /* each element on its own, independently on each rank */
    SPREAD_IDENTICAL, /* the same, at the same positions on all ranks */
    SPREAD_CLUSTERED, /* runs of 32 or more, as rows of an embedding */
    SPREAD_BLOCK,     /* aligned blocks of 1024, all or nothing */
    SPREAD_ZIPF,      /* a few are nonzero on most ranks, most on few: gradients of texts, by Zipf's law of their words,
                       * which are in no order */
    SPREAD_FRONT,     /* as uniform, but all in the first eighth */
    SPREAD_RANKED,    /* element i is met with a chance of about 1 / (i + 1)^1.1: Zipf's law, of words by their rank */
    SPREAD_SMOOTH,    /* a smooth field of 128 x 128 x any elements: 40 waves, values up to 2^19. All are there */
    SPREADS
};
extern const char *const spread_name[SPREADS];

struct source {
    enum pici_dtype dtype;
    enum pici_op op;
    enum spread spread;
    double density;
    int ranks;
    int negative; /* half of the zeros of floats are -0.0 */
    int gather;   /* elements are not reduced */
    uint64_t n;   /* of SPREAD_FRONT and SPREAD_RANKED: all elements */
};

/* Can results be checked? Not where the dtype is too narrow for a sum of so many ranks. */
int source_exact(const struct source *);

/* dst[0..n) = what `rank` contributes. */
void source_fill(const struct source *, void *dst, int rank, uint64_t n);

/* How many of got[0..n) are not what the op makes of the elements [first, first + n) of ranks [rank, rank + ranks).
 * PICI_AVG: the average over all ranks of the source. */
uint64_t source_wrong(const struct source *, const void *got, int rank, int ranks, uint64_t first, uint64_t n);

#endif
