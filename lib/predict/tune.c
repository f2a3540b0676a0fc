/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a tune file says about a call. Nothing here calls the mathematical library, whose results differ between CPUs
 * and versions: all ranks must choose alike. */
#include "predict/tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pici_tune_free(struct tune *t)
{
    for (int i = 0; i < t->shape_count; i++)
        free((void *)(uintptr_t)t->shapes[i].nodes.begin);
    free(t->shapes);
    free(t->points);
    *t = (struct tune){.shapes = NULL};
}

/* ---- the order of points: those of a candidate together, then by what is interpolated */

#define COMPARE(x, y)                                                                                                  \
    if ((x) != (y))                                                                                                    \
    return (x) < (y) ? -1 : 1

static int compare_candidates(const struct tune_point *a, enum pici_collective collective,
                              const struct model_candidate *c)
{
    COMPARE(a->collective, collective);
    COMPARE(a->candidate.vendor != 0, c->vendor != 0);
    if (c->vendor)
        return 0;
    COMPARE(a->candidate.algorithm, c->algorithm);
    COMPARE(a->candidate.dense != 0, c->dense != 0);
    return 0;
}

int pici_tune_order(const struct tune_point *a, const struct tune_point *b)
{
    const int candidates = compare_candidates(a, b->collective, &b->candidate);
    if (candidates)
        return candidates;
    COMPARE(a->dtype, b->dtype);
    COMPARE(a->shape, b->shape);
    COMPARE(a->density, b->density);
    COMPARE(a->bytes, b->bytes);
    return 0;
}

static int by_order(const void *a, const void *b)
{
    return pici_tune_order(a, b);
}

void pici_tune_sort(struct tune *t)
{
    if (t->point_count)
        qsort(t->points, t->point_count, sizeof *t->points, by_order);
}

/* ---- residuals */

static const double FACTOR_MOST = 4;

double pici_tune_log2(double x)
{
    enum { TERMS = 9 };
    const double two_by_ln2 = 2.8853900817779268, root2 = 1.4142135623730951;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
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
    struct tune_point *first, *last; /* last: behind it */
};

/* A value at x, from values at increasing places: take the nearest two places as they come. */
struct between {
    double x, below_at, below, above_at, above;
    int has_below, has_above;
};

static void offer(struct between *b, double at, double value)
{
    if (at <= b->x && (!b->has_below || at > b->below_at)) {
        b->has_below = 1;
        b->below_at = at;
        b->below = value;
    }
    if (at >= b->x && (!b->has_above || at < b->above_at)) {
        b->has_above = 1;
        b->above_at = at;
        b->above = value;
    }
}

static double interpolate(const struct between *b)
{
    if (!b->has_below || !b->has_above)
        return b->has_below ? b->below : b->has_above ? b->above : 1;
    const double length = b->above_at - b->below_at;
    return length > 0 ? b->below + (b->x - b->below_at) / length * (b->above - b->below) : b->below;
}

static double residual_of(const struct tune *t, struct tune_point *p)
{
    if (p->residual > 0)
        return p->residual;
    const struct tune_shape *shape = &t->shapes[p->shape];
    struct model_machine machine = t->machine;
    struct model_call call = pici_model_call;
    machine.cores = shape->cores;
    call.kind = p->collective;
    call.dtype = p->dtype;
    call.bytes = p->bytes;
    call.ranks = shape->ranks;
    call.nodes = &shape->nodes;
    call.density = p->density;
    const double model = pici_model_seconds(&machine, &call, &p->candidate), ratio = model > 0 ? p->seconds / model : 1;
    p->residual = ratio >= FACTOR_MOST ? FACTOR_MOST : ratio > 1 / FACTOR_MOST ? ratio : 1 / FACTOR_MOST;
    return p->residual;
}

/* What is interpolated, in this order: each step of the way has the points that are alike in those before. */
enum { BY_RANKS, BY_DENSITY, BY_BYTES, WAYS };

static double place_of(const struct tune *t, const struct tune_point *p, int by)
{
    return by == BY_RANKS ? t->shapes[p->shape].ranks : by == BY_DENSITY ? p->density : (double)p->bytes;
}

static int is_alike(const struct tune_point *a, const struct tune_point *b, int by)
{
    return by == BY_RANKS ? a->shape == b->shape : by == BY_DENSITY ? a->density == b->density : a->bytes == b->bytes;
}

/* Whether points are nearer to a call than others, if they are at the same place: by the number of nodes. */
static int is_nearer(const struct tune *t, struct range a, struct range b, double nodes)
{
    const double n = pici_tune_log2(nodes), x = pici_tune_log2(t->shapes[a.first->shape].nodes.nodes) - n,
                 y = pici_tune_log2(t->shapes[b.first->shape].nodes.nodes) - n;
    return (x < 0 ? -x : x) < (y < 0 ? -y : y);
}

/* At points that are alike in all before `by`; at: the call's place in each. Only the nearest points are compared with
 * the model. */
static double residual_at(const struct tune *t, struct range all, int by, const double at[WAYS], double nodes)
{
    struct range r, below = {NULL, NULL}, above = {NULL, NULL};
    struct between b = {.x = pici_tune_log2(at[by])};
    for (r.first = all.first; r.first < all.last; r.first = r.last) {
        const double place = place_of(t, r.first, by), low = below.first ? place_of(t, below.first, by) : 0,
                     high = above.first ? place_of(t, above.first, by) : place;
        for (r.last = r.first; r.last < all.last && is_alike(r.first, r.last, by);)
            r.last++;
        if (place <= at[by] && (place > low || (place == low && is_nearer(t, r, below, nodes))))
            below = r;
        if (place >= at[by] && (!above.first || place < high || (place == high && is_nearer(t, r, above, nodes))))
            above = r;
    }
    for (int i = 0; i < 2; i++) {
        const struct range near = i ? above : below;
        if (near.first && !(i && above.first == below.first))
            offer(&b, pici_tune_log2(place_of(t, near.first, by)),
                  by + 1 < WAYS ? residual_at(t, near, by + 1, at, nodes) : residual_of(t, near.first));
    }
    return interpolate(&b);
}

/* How unlike two dtypes are: 0 for the same one, then those of the same width, then by the ratio of widths. */
static int unlike(enum pici_dtype a, enum pici_dtype b)
{
    size_t x = pici_dtype_width(a), y = pici_dtype_width(b);
    int steps = a != b;
    for (; x < y; x *= 2)
        steps++;
    for (; y < x; y *= 2)
        steps++;
    return steps;
}

double pici_tune_seconds(struct tune *t, const struct model_call *call, const struct model_candidate *c)
{
    const double model = pici_model_seconds(&t->machine, call, c), least = 1e-9;
    const double density = call->density > least ? call->density : least;
    struct range dtype, best = {NULL, NULL};
    if (model < 0 || !call->bytes || !t->point_count)
        return model;
    struct tune_point *first = t->points, *last = t->points + t->point_count;
    while (first < last && compare_candidates(first, call->kind, c) != 0)
        first++;
    for (dtype.first = first; dtype.first < last; dtype.first = dtype.last) {
        if (compare_candidates(dtype.first, call->kind, c) != 0)
            break;
        for (dtype.last = dtype.first; dtype.last < last && dtype.last->dtype == dtype.first->dtype &&
                                       compare_candidates(dtype.last, call->kind, c) == 0;)
            dtype.last++;
        if (!best.first || unlike(dtype.first->dtype, call->dtype) < unlike(best.first->dtype, call->dtype))
            best = dtype;
    }
    const double at[WAYS] = {call->ranks, density, (double)call->bytes};
    return best.first ? model * residual_at(t, best, BY_RANKS, at, call->nodes ? call->nodes->nodes : 1) : model;
}

/* ---- joining files */

const struct tune *pici_tune_largest(const struct tune *const *files, int count, struct tune_shape *of)
{
    const struct tune *best = NULL;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < files[i]->shape_count; k++) {
            const struct tune_shape *s = &files[i]->shapes[k];
            if (best &&
                (s->nodes.nodes < of->nodes.nodes || (s->nodes.nodes == of->nodes.nodes && s->ranks <= of->ranks)))
                continue;
            best = files[i];
            *of = *s;
        }
    return best;
}

static enum pici_status add_shape(struct tune *out, const struct tune_shape *s, char *why)
{
    for (int i = 0; i < out->shape_count; i++)
        if (out->shapes[i].ranks == s->ranks && out->shapes[i].nodes.nodes == s->nodes.nodes) {
            snprintf(why, TUNE_WHY, "two files were made with %d ranks on %d nodes", s->ranks, s->nodes.nodes);
            return PICI_E_ARG;
        }
    const size_t bytes = ((size_t)s->nodes.nodes + 1) * sizeof(int);
    int *begin = malloc(bytes);
    if (!begin) {
        snprintf(why, TUNE_WHY, "no memory");
        return PICI_E_NOMEM;
    }
    memcpy(begin, s->nodes.begin, bytes);
    out->shapes[out->shape_count] = *s;
    out->shapes[out->shape_count++].nodes.begin = begin;
    return PICI_OK;
}

enum pici_status pici_tune_merge(struct tune *out, const struct tune *const *files, int count, char *why)
{
    size_t points = 0, shapes = 0;
    struct tune_shape of = {.ranks = 0};
    const struct tune *most = pici_tune_largest(files, count, &of);
    enum pici_status s = PICI_OK;
    *out = (struct tune){.shapes = NULL};
    why[0] = '\0';
    for (int i = 0; i < count; i++) {
        points += files[i]->point_count;
        shapes += (size_t)files[i]->shape_count;
    }
    if (!most || points > TUNE_POINTS_MOST || shapes > TUNE_SHAPES_MOST) {
        snprintf(why, TUNE_WHY, "%d files have %zu points and %zu shapes; at most %d and %d are allowed", count, points,
                 shapes, TUNE_POINTS_MOST, TUNE_SHAPES_MOST);
        return PICI_E_ARG;
    }
    *out = *most;
    out->shape_count = 0;
    out->point_count = 0;
    out->shapes = calloc(shapes, sizeof *out->shapes);
    out->points = calloc(points + 1, sizeof *out->points);
    if (!out->shapes || !out->points) {
        snprintf(why, TUNE_WHY, "no memory");
        s = PICI_E_NOMEM;
    }
    for (int i = 0; i < count && !s; i++) {
        const int base = out->shape_count;
        for (int k = 0; k < files[i]->shape_count && !s; k++)
            s = add_shape(out, &files[i]->shapes[k], why);
        for (size_t k = 0; k < files[i]->point_count && !s; k++) {
            struct tune_point *p = &out->points[out->point_count++];
            *p = files[i]->points[k];
            p->shape += base;
            p->residual = 0; /* of other constants */
            p->line = 0;
        }
    }
    if (s)
        pici_tune_free(out);
    else
        pici_tune_sort(out);
    return s;
}
