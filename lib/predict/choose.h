/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Choosing an algorithm by predicted time. The choice depends only on inputs that are the same on all ranks: the call,
 * the node map, the tune file, and densities that the ranks have agreed on. It never depends on a clock or on one
 * rank's data. */
#ifndef PICI_LIB_PREDICT_CHOOSE_H
#define PICI_LIB_PREDICT_CHOOSE_H

#include "predict/density.h"
#include "predict/tune.h"

struct choose_call {
    struct model_call model;        /* ignores its density and correlation */
    uint64_t count;                 /* the caller's */
    double exact;                   /* the density of the data; 0: unknown */
    double hint;                    /* the caller's density; 0: unknown */
    double latency;                 /* without a file: seconds of a message */
    double bandwidth[POLICY_LINKS]; /* without a file: bytes per second */
    int history;                    /* whether to use densities of earlier calls */
    int paired_only;                /* only schedules where every rank sends and receives a message in every step */
    int native;                     /* the native call is permitted, and there is one */
};

enum choose_source { CHOOSE_COUNTED, CHOOSE_HINT, CHOOSE_ASSUMED }; /* where a density comes from */

struct choice {
    struct model_candidate candidate;
    double seconds; /* predicted */
    double density, correlation;
    enum choose_source source; /* of the density */
};

enum { CHOOSE_CALLS = 16, CHOOSE_KEY = 12 };

/* The last choice for calls of one kind, count, dtype and options. */
struct chosen {
    uint64_t key[CHOOSE_KEY], used;
    struct choice choice;
    int printed; /* its candidate */
};

struct chooser {
    int tuned; /* there is a file */
    int verbose;
    struct tune tune; /* the file, or the built-in constants with the call's links */
    uint64_t uses;
    struct chosen chosen[CHOOSE_CALLS];
    struct chosen *last;          /* the last choice, or NULL */
    struct choose_call last_call; /* its call */
};

/* path: a tune file; NULL or empty: none. verbose: pici_choose_print prints. The caller closes it. PICI_E_IO, _CORRUPT,
 * _VERSION: the file cannot be read, or is invalid; reason [bytes] describes the error. PICI_E_NOMEM. */
enum pici_status pici_chooser_open(struct chooser **, const char *path, int verbose, char *reason, size_t bytes);
void pici_chooser_close(struct chooser *); /* or NULL */

/* Forget earlier choices: the node map has changed. */
void pici_chooser_forget(struct chooser *);

/* Choose the candidate with the least predicted time. Ties go to the algorithm with the lowest number, then sparse
 * before dense, then the native collective. There is one for every collective. */
void pici_choose(struct chooser *, const struct choose_call *, const struct densities *, struct choice *);

/* Print the last choice, which is in use, to stderr with the times of all candidates, unless it was printed for such
 * calls and has not changed since. */
void pici_choose_print(struct chooser *);

/* The ith schedule of the call's candidates, or NULL after the last. Of schedules with the same steps there is one. */
const struct schedule *pici_choose_schedule(int i, enum pici_collective, int ranks, int nodes, int paired_only);

#endif
