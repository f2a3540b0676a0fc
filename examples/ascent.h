/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Distributed dual coordinate ascent of a linear model (loss.h), with lambda = 1 / examples. A rank has the coordinates
 * of a share of the training examples. In a step it changes a batch of them, one after the other, on its own weights.
 * Then the ranks gather the changes, and all apply them in the same order. All but the batches of a step are zeros, so
 * the changes are a sparse vector. */
#ifndef EXAMPLES_ASCENT_H
#define EXAMPLES_ASCENT_H

#include <pici/stream.h>

#include "job.h"

/* The coordinate of the training example order[i] of the job is number i; a rank has j->examples of them, the last
 * ranks perhaps fewer. */
struct ascent {
    float *own;                 /* [examples] this rank's coordinates */
    float *change;              /* [examples] how a step changes them; zeros between steps */
    float *all;                 /* [ranks * examples] changes of all ranks */
    uint32_t *index;            /* [examples] those that a step changes, */
    float *value;               /* [examples] and by how much */
    float *local;               /* [n] this rank's view of the weights in a step; between steps all ranks' weights */
    struct pici_stream_out sum; /* changes of all ranks, as a stream */
};

static void ascent_free(struct ascent *a)
{
    free(a->own);
    free(a->change);
    free(a->all);
    free(a->index);
    free(a->value);
    free(a->local);
}

/* False if there is no memory. The caller calls ascent_free in any case. */
static bool ascent_init(struct ascent *a, const struct job *j)
{
    const struct pici_stream_out none = PICI_STREAM_OUT_INIT;
    a->own = calloc(j->examples, sizeof *a->own);
    a->change = calloc(j->examples, sizeof *a->change);
    a->all = calloc(j->examples * (size_t)j->o.ranks, sizeof *a->all);
    a->index = calloc(j->examples, sizeof *a->index);
    a->value = calloc(j->examples, sizeof *a->value);
    a->local = calloc(j->n, sizeof *a->local);
    a->sum = none;
    return a->own && a->change && a->all && a->index && a->value && a->local;
}

/* All coordinates are 0, and so are the weights. */
static void ascent_begin(struct ascent *a, const struct job *j)
{
    memset(a->own, 0, j->examples * sizeof *a->own);
    memset(a->local, 0, j->n * sizeof *a->local);
}

/* The examples whose coordinates this rank has: the first, and how many. */
static size_t ascent_share(const struct job *j, size_t rank, size_t *first)
{
    *first = rank * j->examples < j->taught ? rank * j->examples : j->taught;
    return j->taught - *first < j->examples ? j->taught - *first : j->examples;
}

/* 1 or -1 */
static float ascent_label(const struct job *j, size_t row)
{
    return j->data.label[row] == j->upper ? 1 : -1;
}

/* |x|^2 of the row that was read last */
static double ascent_square(const struct model_place *s)
{
    double sum = 1; /* the bias */
    for (size_t i = 0; i < s->n; i++)
        sum += (double)s->value[i] * (double)s->value[i];
    return sum;
}

/* Change a batch of this rank's coordinates: a->index and a->value. Returns how many changed. sums: the losses of the
 * batch before, and their number. */
static size_t ascent_climb(struct ascent *a, const struct job *j, enum loss loss, struct model_place *place,
                           size_t rank, int step, double sums[2])
{
    size_t first, changed = 0;
    const size_t share = ascent_share(j, rank, &first);
    const size_t batch = (size_t)j->o.batch < share ? (size_t)j->o.batch : share;
    for (size_t i = 0; i < batch; i++) {
        const size_t row = j->order[first + ((size_t)step * batch + i) % share];
        const double y = (double)ascent_label(j, row);
        sums[0] += loss_at(loss, y * model_score(&j->model, place, a->local, &j->data, row));
        sums[1]++;
    }
    for (size_t i = 0; i < batch; i++) {
        const size_t at = ((size_t)step * batch + i) % share, row = j->order[first + at];
        const float y = ascent_label(j, row);
        const double z = model_score(&j->model, place, a->local, &j->data, row);
        const float to = (float)loss_ascend(loss, (double)a->own[at], (double)y * z, j->o.ranks * ascent_square(place));
        const float by = to - a->own[at];
        if (by == 0)
            continue;
        a->own[at] += by; /* as all ranks add it */
        a->index[changed] = (uint32_t)at;
        a->value[changed++] = by;
        model_backward(&j->model, place, a->local, a->local, (float)j->o.ranks * y * by);
    }
    return changed;
}

/* Add one change to the weights w. */
static void ascent_apply(struct ascent *a, const struct job *j, struct model_place *place, float *w, size_t number,
                         float by)
{
    const size_t row = j->order[number];
    model_read(&j->model, place, &j->data, row);
    model_backward(&j->model, place, w, w, ascent_label(j, row) * by);
    for (size_t i = 0; i < place->n; i++)
        a->local[place->index[i]] = w[place->index[i]];
    a->local[j->model.weights - 1] = w[j->model.weights - 1];
}

/* One step. sums: losses of the batches of all ranks, and their number. own, all: how many coordinates changed on this
 * rank, and on all. */
static enum pici_status ascent_step(struct ascent *a, const struct job *j, const struct contestant *c,
                                    struct pici_comm *comm, struct model_place *place, float *w, int step,
                                    const struct pici_coll_opts *opts, double sums[2], uint64_t *own, uint64_t *all,
                                    double (*clock)(void), double *seconds)
{
    const size_t elements = j->examples * (size_t)j->o.ranks;
    const size_t changed = ascent_climb(a, j, c->loss, place, (size_t)pici_comm_rank(comm), step, sums);
    struct pici_stream in = PICI_STREAM_INIT;
    enum pici_status s;
    in.n = j->examples;
    in.nnz = changed;
    in.indices = a->index;
    in.index_width = sizeof *a->index;
    in.values = a->value;
    for (size_t i = 0; i < changed; i++)
        a->change[a->index[i]] = a->value[i];
    const double begin = clock();
    if (c->stream)
        s = pici_all_gather_stream(&in, &a->sum, PICI_F32, comm, opts);
    else
        s = pici_all_gather(a->change, a->all, j->examples, PICI_F32, comm, opts);
    if (s == PICI_OK)
        s = pici_all_reduce(sums, sums, 2, PICI_F64, PICI_SUM, comm, NULL);
    *seconds += clock() - begin;
    for (size_t i = 0; i < changed; i++)
        a->change[a->index[i]] = 0;
    *own = changed;
    *all = 0;
    for (size_t i = 0; s == PICI_OK && !c->stream && i < elements; i++)
        if (a->all[i] != 0) {
            ascent_apply(a, j, place, w, i, a->all[i]);
            ++*all;
        }
    for (size_t i = 0; s == PICI_OK && c->stream && i < a->sum.nnz; i++, ++*all)
        ascent_apply(a, j, place, w, ((const uint32_t *)a->sum.indices)[i], ((const float *)a->sum.values)[i]);
    if (c->stream)
        pici_stream_free(&a->sum);
    return s;
}

/* An upper limit of the objective's distance from the dual's, and so from the least objective. */
static enum pici_status ascent_gap(const struct ascent *a, const struct job *j, enum loss loss, struct pici_comm *comm,
                                   struct model_place *place, const float *w, double *gap)
{
    size_t first;
    const size_t share = ascent_share(j, (size_t)pici_comm_rank(comm), &first);
    double sum = 0;
    for (size_t i = 0; i < share; i++) {
        const size_t row = j->order[first + i];
        const double z = model_score(&j->model, place, w, &j->data, row);
        sum += loss_at(loss, (double)ascent_label(j, row) * z) - loss_dual(loss, (double)a->own[i]);
    }
    const enum pici_status s = pici_all_reduce(&sum, &sum, 1, PICI_F64, PICI_SUM, comm, NULL);
    for (size_t i = 0; i < j->model.weights; i++)
        sum += (double)w[i] * (double)w[i];
    *gap = sum / (double)j->taught;
    return s;
}

#endif
