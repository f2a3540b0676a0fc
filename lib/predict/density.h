/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Densities that calls have counted, kept for the next call of the same kind. All ranks agree on the densities of a
 * call at its end and keep the same ones, so they make the same choices by them. */
#ifndef PICI_LIB_PREDICT_DENSITY_H
#define PICI_LIB_PREDICT_DENSITY_H

#include "pici/coll.h"

/* Densities that ranks count while a call runs: of a single rank's data, and of the sum of all. */
enum density_of { DENSITY_ONE, DENSITY_SUM, DENSITIES };

enum { DENSITY_CALLS = 16 };

/* The elements counted, and the nonzeros among them. */
struct density_count {
    uint64_t elements, nonzeros;
};

/* 0: none were counted. Else in (0, 1]: data that is all zero has a density of 2^-64. */
double pici_density_of(const struct density_count *);

struct density_entry {
    enum pici_collective kind; /* 0: the entry is free */
    enum pici_dtype dtype;
    uint64_t count; /* the caller's */
    uint64_t used;
    double density[DENSITIES]; /* 0: not known */
};

struct densities {
    struct density_entry entry[DENSITY_CALLS];
    uint64_t uses;
};

/* Keep the densities of a call. One that was not counted (0) leaves the one before. If the table is full, replaces the
 * least recently used entry. */
void pici_density_keep(struct densities *, enum pici_collective, enum pici_dtype, uint64_t count,
                       const double density[DENSITIES]);

/* NULL: there has been no such call. */
const struct density_entry *pici_density_find(const struct densities *, enum pici_collective, enum pici_dtype,
                                              uint64_t count);

#endif
