/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Choosing an algorithm by predicted time. The choice depends only on inputs that are the same on all ranks: the call,
 * the node map, the tune file, and densities that the ranks have agreed on; never on a clock or on one rank's data. */
#ifndef PICI_LIB_PREDICT_CHOOSE_H
#define PICI_LIB_PREDICT_CHOOSE_H

#include "predict/density.h"
#include "predict/tune.h"

struct choose_call {
    struct model_call model;        /* density and correlation are not read */
    uint64_t count;                 /* the caller's */
    double exact;                   /* the density of the data; 0: unknown */
    double hint;                    /* the caller's density; 0: unknown */
    double latency;                 /* without a file: seconds of a message, */
    double bandwidth[POLICY_LINKS]; /* and bytes per second */
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
    struct chosen *last;          /* the last choice, or NULL; */
    struct choose_call last_call; /* and its call */
};

/* path: a tune file; NULL or empty: none. verbose: pici_choose_print prints. The caller closes it. PICI_E_IO, _CORRUPT,
 * _VERSION: the file cannot be read, or is invalid; reason [bytes] describes the error. PICI_E_NOMEM. */
enum pici_status pici_chooser_open(struct chooser **, const char *path, int verbose, char *reason, size_t bytes);
void pici_chooser_close(struct chooser *); /* or NULL */

/* Forget earlier choices: the node map has changed. */
void pici_chooser_forget(struct chooser *);

/* The candidate with the least predicted time; on a tie, the algorithm with the lowest number, sparse before dense, the
 * native collective last. There is one for every collective. */
void pici_choose(struct chooser *, const struct choose_call *, const struct densities *, struct choice *);

/* The last choice is used: print it to stderr, with the times of all candidates, if it has not been printed for such
 * calls or has changed since. */
void pici_choose_print(struct chooser *);

/* The call's candidates: the ith, or NULL after the last but the native collective's. Of schedules with the same steps
 * there is one. */
const struct schedule *pici_choose_schedule(int i, enum pici_collective, int ranks, int nodes, int paired_only);

#endif
