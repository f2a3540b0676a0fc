/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the library's model says of an entry, to print beside what was measured. */
#define _GNU_SOURCE
#include <math.h>

#include "bench/coll.h"
#include "predict/machine.h"
#include "predict/model.h"
#include "predict/tune.h"
#include "common.h"

struct predictor {
    const struct model_machine *machine; /* NULL: the tune file */
    struct tune tune;
    char name[256];
    double error[4096]; /* of what was predicted so far, without a sign */
    size_t errors;
};

struct predictor *predictor_open(const char *name)
{
    const struct machine *m = pici_machine_named(name);
    struct predictor *p = calloc(1, sizeof *p);
    if (!p)
        die("out of memory");
    snprintf(p->name, sizeof p->name, "%s", name);
    if (m) {
        p->machine = &m->model;
        return p;
    }
    char why[TUNE_WHY];
    const enum pici_status s = pici_tune_open(&p->tune, name, why);
    if (s && s != PICI_E_IO)
        die(why);
    if (!s)
        return p;
    free(p);
    return NULL;
}

void predictor_close(struct predictor *p)
{
    if (p && !p->machine)
        pici_tune_free(&p->tune);
    free(p);
}

/* The dense MPI algorithm with an equation that has this name in the table. */
static int native_of(const char *algorithm)
{
    static const struct {
        const char *word;
        enum model_native native;
    } known[] = {{"ring", MODEL_RING},
                 {"rabenseifner", MODEL_RABENSEIFNER},
                 {"recursive_halving", MODEL_RABENSEIFNER},
                 {"recursive_doubling", MODEL_RABENSEIFNER}};
    for (size_t i = 0; i < COUNT_OF(known); i++)
        if (!strcmp(known[i].word, algorithm))
            return known[i].native;
    return MODEL_OURS;
}

/* Fill in *c. Returns 0 if the entry has no equation. */
static int candidate_of(const struct world *w, enum pici_collective collective, const struct entry *e,
                        struct model_candidate *c)
{
    *c = (struct model_candidate){.algorithm = e->algorithm, .dense = e->dense};
    if (e->peer >= 0 && collective != PICI_ALL_TO_ALLV) {
        /* an all-reduce by recursive doubling sends all of the data in each step */
        if (w->peer[e->peer].collective == PICI_ALL_REDUCE && strstr(w->peer[e->peer].algorithm, "doubling"))
            return 0;
        c->native = native_of(w->peer[e->peer].algorithm);
    }
    return c->native || (e->peer < 0 && (e->algorithm != PICI_ALGO_AUTO || collective == PICI_ALL_TO_ALLV));
}

double predictor_seconds(struct predictor *p, const struct world *w, const struct settings *s,
                         const struct point *point, const struct entry *e)
{
    struct model_candidate candidate;
    struct model_call c = pici_model_call;
    int *begin = calloc((size_t)w->nodes + 1, sizeof *begin);
    if (!begin)
        die("out of memory");
    for (int r = 0; r < w->ranks; r++)
        begin[w->node_of[r] + 1]++;
    for (int i = 0; i < w->nodes; i++)
        begin[i + 1] += begin[i];
    const struct schedule_nodes nodes = {w->nodes, begin};
    c.kind = point->collective;
    c.dtype = s->dtype;
    c.bytes = point->bytes;
    c.ranks = w->ranks;
    c.nodes = &nodes;
    c.density = 1 - e->sparsity / 100;
    c.correlation = point->spread == SPREAD_IDENTICAL ? 0 : 1;
    if (e->format >= AUTO_AMONG)
        c.formats = (unsigned)(e->format - AUTO_AMONG);
    else
        c.format = (enum pici_format)e->format;
    double seconds = -1;
    const int modelled = point->collective != PICI_BROADCAST && point->collective != PICI_ALL_GATHERV;
    if (modelled && candidate_of(w, point->collective, e, &candidate))
        seconds =
            p->machine ? pici_model_seconds(p->machine, &c, &candidate) : pici_tune_seconds(&p->tune, &c, &candidate);
    free(begin);
    return seconds;
}

void predictor_note(struct predictor *p, double predicted, double measured)
{
    if (p->errors < COUNT_OF(p->error))
        p->error[p->errors++] = fabs(predicted / measured - 1);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void predictor_print(struct predictor *p, FILE *f)
{
    if (!p->errors)
        return;
    qsort(p->error, p->errors, sizeof *p->error, by_size);
    fprintf(f, "# predicted for %s: %zu entries, error %.1f%% in the median, %.1f%% at the 95th percentile\n", p->name,
            p->errors, 100 * p->error[p->errors / 2], 100 * p->error[(p->errors - 1) * 95 / 100]);
}
