/* SPDX-License-Identifier: BSD-3-Clause */
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/registry.h"
#include "stats.h"

enum { HELD_OUT = 2 }; /* one call of so many */

/* A call, and what was measured of it. */
struct cell {
    const struct tune_point *key;   /* of its density */
    const struct tune_point **seen; /* [count] sparse ones of its density, dense ones of any */
    int count, held_out;
    const struct tune_point *best;
};

struct report {
    const struct tune *tune;
    struct tune rest; /* without what is held out */
    struct cell *cell;
    int cells;
};

static int same_size(const struct tune_point *a, const struct tune_point *b)
{
    return a->shape == b->shape && a->collective == b->collective && a->dtype == b->dtype && a->bytes == b->bytes;
}

static int same_call(const struct tune_point *a, const struct tune_point *b)
{
    return same_size(a, b) && a->density == b->density;
}

static int same_candidate(const struct model_candidate *a, const struct model_candidate *b)
{
    return a->vendor == b->vendor && (a->vendor || (a->algorithm == b->algorithm && a->dense == b->dense));
}

/* FNV-1a of what tells calls apart. */
static int is_held_out(const struct tune *t, const struct tune_point *p)
{
    const struct tune_shape *s = &t->shapes[p->shape];
    const uint64_t words[] = {(uint64_t)p->collective,      (uint64_t)p->dtype, p->bytes,
                              (uint64_t)(p->density * 1e9), (uint64_t)s->ranks, (uint64_t)s->nodes.nodes};
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (int b = 0; b < 64; b += 8)
            h = (h ^ (words[i] >> b & 0xff)) * UINT64_C(0x100000001b3);
    return (h >> 32) % HELD_OUT == 0;
}

/* ---- what was measured */

static int add_cell(struct report *report, const struct tune_point *key)
{
    const struct tune *t = report->tune;
    struct cell *c = &report->cell[report->cells++];
    *c = (struct cell){.key = key, .held_out = is_held_out(t, key)};
    c->seen = malloc(t->point_count * sizeof *c->seen);
    for (size_t i = 0; c->seen && i < t->point_count; i++) {
        const struct tune_point *p = &t->points[i];
        if (!same_size(p, key) || (p->density != key->density && !p->candidate.dense))
            continue;
        int known = 0; /* the vendor may have been measured with several of its algorithms */
        for (int k = 0; k < c->count; k++)
            known |= same_candidate(&c->seen[k]->candidate, &p->candidate);
        if (known)
            continue;
        c->seen[c->count++] = p;
        if (!c->best || p->seconds < c->best->seconds)
            c->best = p;
    }
    return c->seen != NULL;
}

static int gather(struct report *report)
{
    const struct tune *t = report->tune;
    report->cell = calloc(t->point_count + 1, sizeof *report->cell);
    report->rest = *t;
    report->rest.point_count = 0;
    report->rest.points = malloc((t->point_count + 1) * sizeof *report->rest.points);
    if (!report->cell || !report->rest.points)
        return 0;
    for (size_t i = 0; i < t->point_count; i++) {
        const struct tune_point *p = &t->points[i];
        int known = 0;
        for (int k = 0; k < report->cells && !known; k++)
            known = same_call(report->cell[k].key, p);
        if (!known && !add_cell(report, p))
            return 0;
        if (is_held_out(t, p))
            continue;
        struct tune_point *q = &report->rest.points[report->rest.point_count++];
        *q = *p;
        q->residual = 0;
    }
    pici_tune_sort(&report->rest);
    return 1;
}

/* ---- rules. Each chooses among what was measured; NULL: what it would take was not. */

static const struct tune_point *find(const struct cell *c, const struct model_candidate *what)
{
    for (int i = 0; i < c->count; i++)
        if (same_candidate(&c->seen[i]->candidate, what))
            return c->seen[i];
    return NULL;
}

static const struct tune_point *by_tune(struct report *report, const struct cell *c)
{
    const struct tune_shape *s = &report->tune->shapes[c->key->shape];
    struct model_call call = pici_model_call;
    const struct tune_point *best = NULL;
    double least = INFINITY;
    call.kind = c->key->collective;
    call.dtype = c->key->dtype;
    call.bytes = c->key->bytes;
    call.ranks = s->ranks;
    call.nodes = &s->nodes;
    call.density = c->key->density;
    call.correlation = report->tune->correlation;
    for (int i = 0; i < c->count; i++) {
        const double t = pici_tune_seconds(&report->rest, &call, &c->seen[i]->candidate);
        if (t > 0 && t < least) {
            least = t;
            best = c->seen[i];
        }
    }
    return best;
}

static const struct tune_point *by_ring(struct report *report, const struct cell *c)
{
    (void)report;
    return find(c, &(struct model_candidate){.algorithm = PICI_ALGO_RING});
}

static const struct tune_point *by_vendor(struct report *report, const struct cell *c)
{
    (void)report;
    return find(c, &(struct model_candidate){.dense = 1, .vendor = MODEL_VENDOR});
}

static const struct tune_point *by_auto(struct report *report, const struct cell *c)
{
    const struct tune_shape *s = &report->tune->shapes[c->key->shape];
    const struct schedule_call call = {
        .kind = c->key->collective, .ranks = s->ranks, .bytes = c->key->bytes, .nodes = &s->nodes};
    return find(c, &(struct model_candidate){.algorithm = pici_schedule_usual(&call, 0, 1)});
}

/* The best of the nearest call that is not held out, by the logarithms of bytes and ranks. */
static const struct tune_point *by_neighbour(struct report *report, const struct cell *c)
{
    const struct cell *nearest = NULL;
    double least = INFINITY;
    for (int i = 0; i < report->cells; i++) {
        const struct cell *o = &report->cell[i];
        if (o->held_out || o->key->collective != c->key->collective)
            continue;
        const double x = log2((double)o->key->bytes / (double)c->key->bytes);
        const double y =
            log2((double)report->tune->shapes[o->key->shape].ranks / report->tune->shapes[c->key->shape].ranks);
        if (x * x + y * y < least) {
            least = x * x + y * y;
            nearest = o;
        }
    }
    return nearest ? find(c, &nearest->best->candidate) : NULL;
}

/* ---- the table */

static int print_rule(struct report *report, const char *name,
                      const struct tune_point *(*choose)(struct report *, const struct cell *), double *regret)
{
    int n = 0, right = 0, missing = 0;
    double sum = 0;
    for (int i = 0; i < report->cells; i++) {
        const struct cell *c = &report->cell[i];
        if (!c->held_out || c->count < 2)
            continue;
        const struct tune_point *p = choose(report, c);
        if (!p) {
            missing++;
            continue;
        }
        right += p == c->best;
        regret[n] = 100 * (p->seconds / c->best->seconds - 1);
        sum += regret[n++];
    }
    if (!n) {
        printf("%-22s %5d\n", name, n);
        return 0;
    }
    const double most = stats_quantile(regret, n, 1), mean = sum / n;
    printf("%-22s %5d %7.1f%% %7.1f%% %7.1f%% %7.1f%%", name, n, 100.0 * right / n, mean,
           stats_quantile(regret, n, 0.95), most);
    if (missing)
        printf("  (%d calls: what it takes was not measured)", missing);
    printf("\n");
    return n;
}

/* How much longer the file's choices take than the fastest dense call, which a program could make without us. */
static void print_behind_dense(struct report *report, double *behind)
{
    int n = 0;
    double sum = 0;
    for (int i = 0; i < report->cells; i++) {
        const struct cell *c = &report->cell[i];
        const struct tune_point *dense = NULL, *p = c->held_out && c->count > 1 ? by_tune(report, c) : NULL;
        for (int k = 0; k < c->count; k++)
            if (c->seen[k]->candidate.dense && (!dense || c->seen[k]->seconds < dense->seconds))
                dense = c->seen[k];
        if (!p || !dense)
            continue;
        behind[n] = p->seconds > dense->seconds ? 100 * (p->seconds / dense->seconds - 1) : 0;
        sum += behind[n++];
    }
    if (n)
        printf("\nBehind the fastest dense call, of %d by this file: mean %.1f%%, 95%% below %.1f%%, worst %.1f%%\n", n,
               sum / n, stats_quantile(behind, n, 0.95), stats_quantile(behind, n, 1));
}

int report_tune(struct tune *tune)
{
    struct report report = {.tune = tune};
    double *regret = malloc((tune->point_count + 1) * sizeof *regret);
    int good = gather(&report) && regret, held_out = 0;
    for (int i = 0; i < report.cells && good; i++)
        held_out += report.cell[i].held_out && report.cell[i].count > 1;
    if (!good) {
        fprintf(stderr, "pici-tune: no memory\n");
    } else if (!held_out || !report.rest.point_count) {
        fprintf(stderr, "pici-tune: %zu points of %d calls are too few to hold some out\n", tune->point_count,
                report.cells);
        good = 0;
    } else {
        printf("%d of %d calls are held out; the rest has %zu points. Regret: how much longer than the fastest "
               "measured.\n\n",
               held_out, report.cells, report.rest.point_count);
        printf("%-22s %5s %8s %8s %8s %8s\n", "choice", "calls", "fastest", "regret:", "95% are", "worst");
        printf("%-22s %5s %8s %8s %8s %8s\n", "", "", "", "mean", "below", "");
        print_rule(&report, "this file", by_tune, regret);
        print_rule(&report, "nearest measured call", by_neighbour, regret);
        print_rule(&report, "AUTO without a file", by_auto, regret);
        print_rule(&report, "always ring", by_ring, regret);
        print_rule(&report, "always the vendor's", by_vendor, regret);
        print_behind_dense(&report, regret);
    }
    for (int i = 0; i < report.cells; i++)
        free(report.cell[i].seen);
    free(report.cell);
    free(report.rest.points);
    free(regret);
    return good;
}
