/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a tune file predicts for a call. Nothing here calls the mathematical library, whose results differ between CPUs
 * and versions: all ranks must choose alike. */
#include "predict/tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pici_tune_free(struct tune *tune)
{
    for (int i = 0; i < tune->shape_count; i++)
        free((void *)(uintptr_t)tune->shapes[i].nodes.begin);
    free(tune->shapes);
    free(tune->points);
    *tune = (struct tune){.shapes = NULL};
}

/* ---- the order of points: by candidate, then by the variables of the interpolation */

#define COMPARE(x, y)                                                                                                  \
    if ((x) != (y))                                                                                                    \
    return (x) < (y) ? -1 : 1

static int compare_candidates(const struct tune_point *point, enum pici_collective collective,
                              const struct model_candidate *candidate)
{
    COMPARE(point->collective, collective);
    COMPARE(point->candidate.native != 0, candidate->native != 0);
    if (candidate->native)
        return 0;
    COMPARE(point->candidate.algorithm, candidate->algorithm);
    COMPARE(point->candidate.dense != 0, candidate->dense != 0);
    return 0;
}

int pici_tune_order(const struct tune_point *one, const struct tune_point *other)
{
    const int candidates = compare_candidates(one, other->collective, &other->candidate);
    if (candidates)
        return candidates;
    COMPARE(one->dtype, other->dtype);
    COMPARE(one->shape, other->shape);
    COMPARE(one->density, other->density);
    COMPARE(one->bytes, other->bytes);
    return 0;
}

static int by_order(const void *one, const void *other)
{
    return pici_tune_order(one, other);
}

void pici_tune_sort(struct tune *tune)
{
    if (tune->point_count)
        qsort(tune->points, tune->point_count, sizeof *tune->points, by_order);
}

/* ---- residuals */

static const double FACTOR_MOST = 4;

double pici_tune_log2(double number)
{
    enum { TERMS = 9 };
    const double two_by_ln2 = 2.8853900817779268, root2 = 1.4142135623730951;
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1023) << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > root2) {
        m /= 2;
        exponent++;
    }
    const double s = (m - 1) / (m + 1), square = s * s; /* ln m = 2 (s + s^3/3 + s^5/5 + ...) */
    double sum = 0;
    for (int i = TERMS - 1; i >= 0; i--)
        sum = sum * square + 1.0 / (2 * i + 1);
    return (double)exponent + two_by_ln2 * s * sum;
}

/* A range of points. */
struct range {
    struct tune_point *first, *last; /* last: one past the end */
};

/* The value at `place`, interpolated between the two nearest places that were offered. */
struct between {
    double place, below_at, below, above_at, above;
    int has_below, has_above;
};

static void offer(struct between *between, double place, double value)
{
    if (place <= between->place && (!between->has_below || place > between->below_at)) {
        between->has_below = 1;
        between->below_at = place;
        between->below = value;
    }
    if (place >= between->place && (!between->has_above || place < between->above_at)) {
        between->has_above = 1;
        between->above_at = place;
        between->above = value;
    }
}

static double interpolate(const struct between *between)
{
    if (!between->has_below && !between->has_above)
        return 1;
    if (!between->has_below || !between->has_above)
        return between->has_below ? between->below : between->above;
    const double length = between->above_at - between->below_at;
    return length > 0
               ? between->below + (between->place - between->below_at) / length * (between->above - between->below)
               : between->below;
}

const char *const pici_tune_threshold_names[TUNE_THRESHOLDS + 1] = {"inter", "intra", "gather", "stream", NULL};

float pici_tune_threshold(const struct tune *tune, enum tune_threshold threshold)
{
    return tune->thresholds.said >> threshold & 1 ? tune->thresholds.at[threshold] : -1;
}

/* Replace a call's default thresholds by the file's. */
static void take_thresholds(const struct tune *tune, struct policy_thresholds *thresholds)
{
    for (int i = 0; i < POLICY_LINKS; i++)
        if (thresholds->reduce[i] < 0)
            thresholds->reduce[i] = pici_tune_threshold(tune, (enum tune_threshold)i);
    if (thresholds->gather < 0)
        thresholds->gather = pici_tune_threshold(tune, TUNE_GATHER);
}

static double residual_of(const struct tune *tune, struct tune_point *point)
{
    if (point->residual > 0)
        return point->residual;
    const struct tune_shape *shape = &tune->shapes[point->shape];
    struct model_machine machine = tune->machine;
    struct model_call call = pici_model_call;
    machine.cores = shape->cores;
    call.kind = point->collective;
    call.dtype = point->dtype;
    call.bytes = point->bytes;
    call.ranks = shape->ranks;
    call.nodes = &shape->nodes;
    call.density = point->density;
    take_thresholds(tune, &call.threshold);
    if (!machine.packed_measured) /* measured with version 0.2, which packs nothing */
        call.packing.pack = PICI_PACKING_NONE;
    const double model = pici_model_seconds(&machine, &call, &point->candidate),
                 ratio = model > 0 ? point->seconds / model : 1;
    point->residual = ratio > 1 / FACTOR_MOST ? ratio : 1 / FACTOR_MOST;
    if (ratio >= FACTOR_MOST)
        point->residual = FACTOR_MOST;
    return point->residual;
}

/* The variables of the interpolation, in order: points of one step have equal values of all variables before. */
enum { BY_RANKS, BY_DENSITY, BY_BYTES, WAYS };

static double place_of(const struct tune *tune, const struct tune_point *point, int by)
{
    switch (by) {
    case BY_RANKS: return tune->shapes[point->shape].ranks;
    case BY_DENSITY: return point->density;
    default: return (double)point->bytes;
    }
}

static int is_alike(const struct tune_point *one, const struct tune_point *other, int by)
{
    switch (by) {
    case BY_RANKS: return one->shape == other->shape;
    case BY_DENSITY: return one->density == other->density;
    default: return one->bytes == other->bytes;
    }
}

/* Whether one range of points is nearer to a call than another at the same place: by the number of nodes. */
static int is_nearer(const struct tune *tune, struct range one, struct range other, double nodes)
{
    const double wanted = pici_tune_log2(nodes),
                 one_off = pici_tune_log2(tune->shapes[one.first->shape].nodes.nodes) - wanted,
                 other_off = pici_tune_log2(tune->shapes[other.first->shape].nodes.nodes) - wanted;
    const double one_distance = one_off < 0 ? -one_off : one_off;
    const double other_distance = other_off < 0 ? -other_off : other_off;
    return one_distance < other_distance;
}

/* The residual at points with equal values of all variables before `by`. places: the call's place in each variable.
 * Compares only the nearest points with the model. */
static double residual_at(const struct tune *tune, struct range all, int by, const double places[WAYS], double nodes)
{
    struct range range, below = {NULL, NULL}, above = {NULL, NULL};
    struct between between = {.place = pici_tune_log2(places[by])};
    for (range.first = all.first; range.first < all.last; range.first = range.last) {
        const double place = place_of(tune, range.first, by);
        const double low = below.first ? place_of(tune, below.first, by) : 0;
        const double high = above.first ? place_of(tune, above.first, by) : place;
        for (range.last = range.first; range.last < all.last && is_alike(range.first, range.last, by);)
            range.last++;
        if (place <= places[by] && (place > low || (place == low && is_nearer(tune, range, below, nodes))))
            below = range;
        if (place >= places[by] &&
            (!above.first || place < high || (place == high && is_nearer(tune, range, above, nodes))))
            above = range;
    }
    for (int i = 0; i < 2; i++) {
        const struct range near = i ? above : below;
        if (near.first && !(i && above.first == below.first))
            offer(&between, pici_tune_log2(place_of(tune, near.first, by)),
                  by + 1 < WAYS ? residual_at(tune, near, by + 1, places, nodes) : residual_of(tune, near.first));
    }
    return interpolate(&between);
}

/* The difference between two dtypes: 0 for the same one, 1 for the same width, then more with the ratio of widths. */
static int unlike(enum pici_dtype one, enum pici_dtype other)
{
    size_t one_width = pici_dtype_width(one), other_width = pici_dtype_width(other);
    int steps = one != other;
    for (; one_width < other_width; one_width *= 2)
        steps++;
    for (; other_width < one_width; other_width *= 2)
        steps++;
    return steps;
}

double pici_tune_seconds(struct tune *tune, const struct model_call *given, const struct model_candidate *candidate)
{
    struct model_call with_thresholds = *given;
    const struct model_call *call = &with_thresholds;
    take_thresholds(tune, &with_thresholds.threshold);
    const double model = pici_model_seconds(&tune->machine, call, candidate), least = 1e-9;
    const double density = call->density > least ? call->density : least;
    struct range dtype, best = {NULL, NULL};
    if (model < 0 || !call->bytes || !tune->point_count)
        return model;
    struct tune_point *first = tune->points, *last = tune->points + tune->point_count;
    while (first < last && compare_candidates(first, call->kind, candidate) != 0)
        first++;
    for (dtype.first = first; dtype.first < last; dtype.first = dtype.last) {
        if (compare_candidates(dtype.first, call->kind, candidate) != 0)
            break;
        for (dtype.last = dtype.first; dtype.last < last && dtype.last->dtype == dtype.first->dtype &&
                                       compare_candidates(dtype.last, call->kind, candidate) == 0;)
            dtype.last++;
        if (!best.first || unlike(dtype.first->dtype, call->dtype) < unlike(best.first->dtype, call->dtype))
            best = dtype;
    }
    const double places[WAYS] = {call->ranks, density, (double)call->bytes};
    return best.first ? model * residual_at(tune, best, BY_RANKS, places, call->nodes ? call->nodes->nodes : 1) : model;
}

/* ---- joining files */

const struct tune *pici_tune_largest(const struct tune *const *files, int count, struct tune_shape *largest)
{
    const struct tune *best = NULL;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < files[i]->shape_count; k++) {
            const struct tune_shape *shape = &files[i]->shapes[k];
            if (best && (shape->nodes.nodes < largest->nodes.nodes ||
                         (shape->nodes.nodes == largest->nodes.nodes && shape->ranks <= largest->ranks)))
                continue;
            best = files[i];
            *largest = *shape;
        }
    return best;
}

static enum pici_status add_shape(struct tune *output, const struct tune_shape *shape, char *reason)
{
    for (int i = 0; i < output->shape_count; i++)
        if (output->shapes[i].ranks == shape->ranks && output->shapes[i].nodes.nodes == shape->nodes.nodes) {
            snprintf(reason, TUNE_WHY, "two files were made with %d ranks on %d nodes", shape->ranks,
                     shape->nodes.nodes);
            return PICI_E_ARG;
        }
    const size_t bytes = ((size_t)shape->nodes.nodes + 1) * sizeof(int);
    int *begin = malloc(bytes);
    if (!begin) {
        snprintf(reason, TUNE_WHY, "no memory");
        return PICI_E_NOMEM;
    }
    memcpy(begin, shape->nodes.begin, bytes);
    output->shapes[output->shape_count] = *shape;
    output->shapes[output->shape_count++].nodes.begin = begin;
    return PICI_OK;
}

enum pici_status pici_tune_merge(struct tune *output, const struct tune *const *files, int count, char *reason)
{
    size_t points = 0, shapes = 0;
    struct tune_shape largest = {.ranks = 0};
    const struct tune *most = pici_tune_largest(files, count, &largest);
    enum pici_status status = PICI_OK;
    *output = (struct tune){.shapes = NULL};
    reason[0] = '\0';
    for (int i = 0; i < count; i++) {
        points += files[i]->point_count;
        shapes += (size_t)files[i]->shape_count;
    }
    if (!most || points > TUNE_POINTS_MOST || shapes > TUNE_SHAPES_MOST) {
        snprintf(reason, TUNE_WHY, "%d files have %zu points and %zu shapes; at most %d and %d are allowed", count,
                 points, shapes, TUNE_POINTS_MOST, TUNE_SHAPES_MOST);
        return PICI_E_ARG;
    }
    *output = *most;
    output->shape_count = 0;
    output->point_count = 0;
    output->shapes = calloc(shapes, sizeof *output->shapes);
    output->points = calloc(points + 1, sizeof *output->points);
    if (!output->shapes || !output->points) {
        snprintf(reason, TUNE_WHY, "no memory");
        status = PICI_E_NOMEM;
    }
    for (int i = 0; i < count && !status; i++) {
        const int base = output->shape_count;
        for (int k = 0; k < files[i]->shape_count && !status; k++)
            status = add_shape(output, &files[i]->shapes[k], reason);
        for (size_t k = 0; k < files[i]->point_count && !status; k++) {
            struct tune_point *point = &output->points[output->point_count++];
            *point = files[i]->points[k];
            point->shape += base;
            point->residual = 0; /* depends on the file's constants */
            point->line = 0;
        }
    }
    if (status)
        pici_tune_free(output);
    else
        pici_tune_sort(output);
    return status;
}
