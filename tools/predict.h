/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Predicts the time of collectives on a machine, by the library's model, for a grid of ranks, bytes and densities. */
#ifndef PICI_TOOLS_PREDICT_H
#define PICI_TOOLS_PREDICT_H

#include <stdbool.h>

#include "pici/coll.h"

struct model_machine;
struct tune;

enum {
    PREDICT_LIST = 64,
    PREDICT_COLLECTIVES = 4,
    PREDICT_RANKS = 1 << 16,
    PREDICT_OURS = 12,
    PREDICT_OTHERS = 5,
    PREDICT_EXCHANGES = 3, /* of all-to-all: ours, ours dense, another library's */
    PREDICT_CANDIDATES = 2 * PREDICT_OURS + PREDICT_OTHERS + PREDICT_EXCHANGES
};

/* A candidate: one of our algorithms, with sparse messages or all dense, or the dense call of another library. */
struct predict_candidate {
    char name[32];
    char letter; /* upper case; lower case: all dense. V: another library */
    bool ours, dense;
    bool exchange; /* for all-to-all, and nothing else */
};

/* A grid of predictions: the question and the answers. */
struct predict {
    char name[64], what[256]; /* the machine */
    char made[512];
    const char *source; /* origin of the constants */
    int collectives, ranks, sizes, densities;
    enum pici_collective collective[PREDICT_COLLECTIVES];
    int rank[PREDICT_LIST];
    uint64_t bytes[PREDICT_LIST]; /* dense, of the larger buffer */
    double density[PREDICT_LIST]; /* of one rank's data, 0 to 1 */
    int per_node;                 /* ranks of a node; the last node may have fewer */
    enum pici_dtype dtype;
    double correlation;
    int candidates;
    struct predict_candidate candidate[PREDICT_CANDIDATES];
    struct predict_cell *cell;           /* predict_at */
    const struct model_machine *machine; /* this and the next two: set by the functions below */
    struct tune *tune;                   /* NULL: none */
    uint64_t slice_bytes;
};

/* One cell of the grid. */
struct predict_cell {
    double seconds[PREDICT_CANDIDATES]; /* < 0: not supported */
    int best;                           /* index of the fastest candidate */
    int dense;                          /* index of the fastest one of other libraries; < 0: none */
};

/* The i-th named machine; NULL after the last. *what: a line about it. */
const char *predict_machine(int i, const char **what);

/* The name of the i-th collective, with underscores; NULL after the last. And its number; and the name of a number. */
const char *predict_collective(int i);
enum pici_collective predict_kind(int i);
const char *predict_kind_name(enum pici_collective);

/* A picture: speedup over ranks and bytes, speedup over ranks and sparsity, or seconds over ranks. */
enum predict_plot { PLOT_BYTES, PLOT_SPARSITY, PLOT_TIME, PLOTS };

/* The i-th plot's name; NULL after the last. */
const char *predict_plot_name(int i);

/* Set the machine by its name, and per_node. False: unknown name. */
bool predict_set_machine(struct predict *, const char *name);

/* Set the machine by a tune file of `size` bytes: its constants, corrected by its measurements. Sets per_node, from the
 * file's largest shape, and correlation. False: the file is not valid, or memory ran out; see reason [PREDICT_WHY]. */
enum { PREDICT_WHY = 200 };
bool predict_set_tune(struct predict *, const char *name, const void *bytes, size_t size, char *reason);

/* The name of the machine's i-th constant, or NULL after the last. value: the constant, in words. */
enum { PREDICT_VALUE = 64 };
const char *predict_constant(const struct predict *, int i, char value[PREDICT_VALUE]);

/* Compute the grid. The caller frees the grid and the tune file with predict_free. False: no memory. */
bool predict_run(struct predict *);
void predict_free(struct predict *);

const struct predict_cell *predict_at(const struct predict *, int collective, int density, int ranks, int bytes);

/* The speedup: the time of the best dense call of another library, divided by the best candidate's, at least 1. 0:
 * there is no such call. */
double predict_gain(const struct predict_cell *);

#endif
