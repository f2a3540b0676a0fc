/* SPDX-License-Identifier: BSD-3-Clause */
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/registry.h"
#include "stats.h"

enum { HELD_OUT = 2 }; /* one of this many calls */

/* A call and its measurements. */
struct cell {
    const struct tune_point *key;   /* of its density */
    const struct tune_point **seen; /* [count] sparse points of its density, dense points of any */
    int count, held_out;
    const struct tune_point *best;
};

struct report {
    const struct tune *tune;
    struct tune rest; /* without the held-out calls */
    struct cell *cell;
    int cells;
};

static int same_size(const struct tune_point *first, const struct tune_point *second)
{
    return first->shape == second->shape && first->collective == second->collective && first->dtype == second->dtype &&
           first->bytes == second->bytes;
}

static int same_call(const struct tune_point *first, const struct tune_point *second)
{
    return same_size(first, second) && first->density == second->density;
}

static int same_candidate(const struct model_candidate *first, const struct model_candidate *second)
{
    return first->native == second->native &&
           (first->native || (first->algorithm == second->algorithm && first->dense == second->dense));
}

/* Decides by FNV-1a of the properties that identify a call. */
static int is_held_out(const struct tune *tune, const struct tune_point *point)
{
    const struct tune_shape *shape = &tune->shapes[point->shape];
    const uint64_t words[] = {(uint64_t)point->collective,      (uint64_t)point->dtype, point->bytes,
                              (uint64_t)(point->density * 1e9), (uint64_t)shape->ranks, (uint64_t)shape->nodes.nodes};
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (int shift = 0; shift < 64; shift += 8)
            hash = (hash ^ (words[i] >> shift & 0xff)) * UINT64_C(0x100000001b3);
    return (hash >> 32) % HELD_OUT == 0;
}

/* ---- measurements */

static int add_cell(struct report *report, const struct tune_point *key)
{
    const struct tune *tune = report->tune;
    struct cell *cell = &report->cell[report->cells++];
    *cell = (struct cell){.key = key, .held_out = is_held_out(tune, key)};
    cell->seen = malloc(tune->point_count * sizeof *cell->seen);
    for (size_t i = 0; cell->seen && i < tune->point_count; i++) {
        const struct tune_point *point = &tune->points[i];
        if (!same_size(point, key) || (point->density != key->density && !point->candidate.dense))
            continue;
        int known = 0; /* the native collective may have points for several of its algorithms */
        for (int seen = 0; seen < cell->count; seen++)
            known |= same_candidate(&cell->seen[seen]->candidate, &point->candidate);
        if (known)
            continue;
        cell->seen[cell->count++] = point;
        if (!cell->best || point->seconds < cell->best->seconds)
            cell->best = point;
    }
    return cell->seen != NULL;
}

static int gather(struct report *report)
{
    const struct tune *tune = report->tune;
    report->cell = calloc(tune->point_count + 1, sizeof *report->cell);
    report->rest = *tune;
    report->rest.point_count = 0;
    report->rest.points = malloc((tune->point_count + 1) * sizeof *report->rest.points);
    if (!report->cell || !report->rest.points)
        return 0;
    for (size_t i = 0; i < tune->point_count; i++) {
        const struct tune_point *point = &tune->points[i];
        int known = 0;
        for (int cell = 0; cell < report->cells && !known; cell++)
            known = same_call(report->cell[cell].key, point);
        if (!known && !add_cell(report, point))
            return 0;
        if (is_held_out(tune, point))
            continue;
        struct tune_point *kept = &report->rest.points[report->rest.point_count++];
        *kept = *point;
        kept->residual = 0;
    }
    pici_tune_sort(&report->rest);
    return 1;
}

/* ---- rules. Each chooses a measured point; NULL: its choice was not measured. */

static const struct tune_point *find(const struct cell *cell, const struct model_candidate *what)
{
    for (int i = 0; i < cell->count; i++)
        if (same_candidate(&cell->seen[i]->candidate, what))
            return cell->seen[i];
    return NULL;
}

static const struct tune_point *by_tune(struct report *report, const struct cell *cell)
{
    const struct tune_shape *shape = &report->tune->shapes[cell->key->shape];
    struct model_call call = pici_model_call;
    const struct tune_point *best = NULL;
    double least = INFINITY;
    call.kind = cell->key->collective;
    call.dtype = cell->key->dtype;
    call.bytes = cell->key->bytes;
    call.ranks = shape->ranks;
    call.nodes = &shape->nodes;
    call.density = cell->key->density;
    call.correlation = report->tune->correlation;
    for (int i = 0; i < cell->count; i++) {
        const double seconds = pici_tune_seconds(&report->rest, &call, &cell->seen[i]->candidate);
        if (seconds > 0 && seconds < least) {
            least = seconds;
            best = cell->seen[i];
        }
    }
    return best;
}

static const struct tune_point *by_ring(struct report *report, const struct cell *cell)
{
    (void)report;
    return find(cell, &(struct model_candidate){.algorithm = PICI_ALGO_RING});
}

static const struct tune_point *by_native(struct report *report, const struct cell *cell)
{
    (void)report;
    return find(cell, &(struct model_candidate){.dense = 1, .native = MODEL_NATIVE});
}

static const struct tune_point *by_auto(struct report *report, const struct cell *cell)
{
    const struct tune_shape *shape = &report->tune->shapes[cell->key->shape];
    const struct schedule_call call = {
        .kind = cell->key->collective, .ranks = shape->ranks, .bytes = cell->key->bytes, .nodes = &shape->nodes};
    return find(cell, &(struct model_candidate){.algorithm = pici_schedule_usual(&call, 0, 1)});
}

/* The best candidate of the nearest call that is not held out, by the logarithms of bytes and ranks. */
static const struct tune_point *by_neighbour(struct report *report, const struct cell *cell)
{
    const struct cell *nearest = NULL;
    double least = INFINITY;
    for (int i = 0; i < report->cells; i++) {
        const struct cell *other = &report->cell[i];
        if (other->held_out || other->key->collective != cell->key->collective)
            continue;
        const double size_ratio = log2((double)other->key->bytes / (double)cell->key->bytes);
        const double rank_ratio =
            log2((double)report->tune->shapes[other->key->shape].ranks / report->tune->shapes[cell->key->shape].ranks);
        if (size_ratio * size_ratio + rank_ratio * rank_ratio < least) {
            least = size_ratio * size_ratio + rank_ratio * rank_ratio;
            nearest = other;
        }
    }
    return nearest ? find(cell, &nearest->best->candidate) : NULL;
}

/* ---- the table */

static int print_rule(struct report *report, const char *name,
                      const struct tune_point *(*choose)(struct report *, const struct cell *), double *regret)
{
    int count = 0, right = 0, missing = 0;
    double sum = 0;
    for (int i = 0; i < report->cells; i++) {
        const struct cell *cell = &report->cell[i];
        if (!cell->held_out || cell->count < 2)
            continue;
        const struct tune_point *point = choose(report, cell);
        if (!point) {
            missing++;
            continue;
        }
        right += point == cell->best;
        regret[count] = 100 * (point->seconds / cell->best->seconds - 1);
        sum += regret[count++];
    }
    if (!count) {
        printf("%-22s %5d\n", name, count);
        return 0;
    }
    const double most = stats_quantile(regret, count, 1), mean = sum / count;
    printf("%-22s %5d %7.1f%% %7.1f%% %7.1f%% %7.1f%%", name, count, 100.0 * right / count, mean,
           stats_quantile(regret, count, 0.95), most);
    if (missing)
        printf("  (%d calls: the choice was not measured)", missing);
    printf("\n");
    return count;
}

/* Prints how much slower the file's choices are than the fastest dense call, which a program could make without us. */
static void print_behind_dense(struct report *report, double *behind)
{
    int count = 0;
    double sum = 0;
    for (int i = 0; i < report->cells; i++) {
        const struct cell *cell = &report->cell[i];
        const struct tune_point *dense = NULL,
                                *point = cell->held_out && cell->count > 1 ? by_tune(report, cell) : NULL;
        for (int seen = 0; seen < cell->count; seen++)
            if (cell->seen[seen]->candidate.dense && (!dense || cell->seen[seen]->seconds < dense->seconds))
                dense = cell->seen[seen];
        if (!point || !dense)
            continue;
        behind[count] = point->seconds > dense->seconds ? 100 * (point->seconds / dense->seconds - 1) : 0;
        sum += behind[count++];
    }
    if (count)
        printf("\nBehind the fastest dense call, of %d by this file: mean %.1f%%, 95%% below %.1f%%, worst %.1f%%\n",
               count, sum / count, stats_quantile(behind, count, 0.95), stats_quantile(behind, count, 1));
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
        print_rule(&report, "always the native collective", by_native, regret);
        print_behind_dense(&report, regret);
    }
    for (int i = 0; i < report.cells; i++)
        free(report.cell[i].seen);
    free(report.cell);
    free(report.rest.points);
    free(regret);
    return good;
}
