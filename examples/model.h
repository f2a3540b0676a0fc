/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Two classifiers of sparse examples into two classes, and their gradients. Weights are one flat array.
 *     logistic   linear in the features and in products of up to 2 or 3 of them. The model is wide and an example uses
 *                few weights, so gradients are sparse
 *     network    one hidden layer of rectified linear units; gradients are dense */
#ifndef EXAMPLES_MODEL_H
#define EXAMPLES_MODEL_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "libsvm.h"

#define MODEL_MAX_WEIGHTS (UINT64_C(1) << 28)

struct model {
    uint32_t hidden;   /* hidden units; 0: logistic */
    int order;         /* logistic: the most features of a product */
    uint32_t features; /* of the data */
    size_t inputs;     /* most inputs that a row has */
    size_t weights;    /* logistic: one for each product, the bias. network: W1 [features][hidden], b1, w2 [hidden],
    b2 */
};

/* Working memory of one thread. */
struct model_place {
    uint32_t *index; /* a row's inputs */
    float *value;
    size_t n;
    float *hidden, *dhidden;
};

/* The number of nonempty sets of up to `order` out of n features. If it exceeds MODEL_MAX_WEIGHTS, some number that
 * does. */
static inline uint64_t model_products(uint64_t n, int order)
{
    uint64_t sets = n, sum = n; /* sets: sets of exactly k + 1 features */
    for (int k = 1; k < order && sum <= MODEL_MAX_WEIGHTS; k++) {
        sets = sets * (n - (uint64_t)k) / ((uint64_t)k + 1);
        sum += sets;
    }
    return sum;
}

/* False if the model is too large. */
static inline bool model_init(struct model *m, const struct libsvm *d, uint32_t hidden, int order)
{
    size_t most = 0;
    for (size_t r = 0; r < d->rows; r++)
        if (most < d->start[r + 1] - d->start[r])
            most = d->start[r + 1] - d->start[r];
    const uint64_t weights = hidden ? ((uint64_t)d->features + 2) * hidden + 1 : model_products(d->features, order) + 1;
    *m = (struct model){hidden, order, d->features, hidden ? most : (size_t)model_products(most, order),
                        (size_t)weights};
    return weights <= MODEL_MAX_WEIGHTS;
}

static inline void model_place_free(struct model_place *s)
{
    free(s->index);
    free(s->value);
    free(s->hidden);
    free(s->dhidden);
}

/* False if there is no memory. The caller calls model_place_free in any case. */
static inline bool model_place_init(struct model_place *s, const struct model *m)
{
    s->n = 0;
    s->index = calloc(m->inputs + 1, sizeof *s->index);
    s->value = calloc(m->inputs + 1, sizeof *s->value);
    s->hidden = calloc((size_t)m->hidden + 1, sizeof *s->hidden);
    s->dhidden = calloc((size_t)m->hidden + 1, sizeof *s->dhidden);
    return s->index && s->value && s->hidden && s->dhidden;
}

/* Compute a row's inputs: its features and their products. A set of features has a number, the index of its weight.
 * Single features come first, then pairs, then triples. Each group is sorted by the highest feature, then by the
 * next. */
static inline void model_read(const struct model *m, struct model_place *s, const struct libsvm *d, size_t row)
{
    const size_t rank = d->start[row + 1] - d->start[row];
    const uint32_t *const x = d->index + d->start[row];
    const float *const v = d->value + d->start[row];
    const uint64_t pairs = m->features, triples = model_products(m->features, 2);
    const int order = m->hidden ? 1 : m->order;
    size_t n = 0;

    for (size_t a = 0; a < rank; a++) {
        const uint64_t i = x[a], below2 = i * (i - 1) / 2, below3 = i < 2 ? 0 : below2 * (i - 2) / 3;
        s->index[n] = x[a];
        s->value[n++] = v[a];
        for (size_t b = 0; order >= 2 && b < a; b++) {
            const uint64_t j = x[b], below = j * (j - 1) / 2;
            const float product = v[a] * v[b];
            s->index[n] = (uint32_t)(pairs + below2 + j);
            s->value[n++] = product;
            for (size_t c = 0; order >= 3 && c < b; c++) {
                s->index[n] = (uint32_t)(triples + below3 + below + x[c]);
                s->value[n++] = product * v[c];
            }
        }
    }
    s->n = n;
}

/* The log-odds that a row is in the upper class. Keeps in *s what model_backward needs. */
static inline double model_score(const struct model *m, struct model_place *s, const float *w, const struct libsvm *d,
                                 size_t row)
{
    model_read(m, s, d, row);
    double z = (double)w[m->weights - 1];
    if (!m->hidden) {
        for (size_t i = 0; i < s->n; i++)
            z += (double)(w[s->index[i]] * s->value[i]);
        return z;
    }
    const size_t h = m->hidden;
    const float *const bias = w + m->features * h, *const out = bias + h;
    memcpy(s->hidden, bias, h * sizeof *bias);
    for (size_t i = 0; i < s->n; i++)
        for (size_t u = 0; u < h; u++)
            s->hidden[u] += s->value[i] * w[s->index[i] * h + u];
    for (size_t u = 0; u < h; u++)
        z += s->hidden[u] > 0 ? (double)(s->hidden[u] * out[u]) : 0;
    return z;
}

/* Add dz times the gradient of the last score to g. */
static inline void model_backward(const struct model *m, struct model_place *s, const float *w, float *g, float dz)
{
    g[m->weights - 1] += dz;
    if (!m->hidden) {
        for (size_t i = 0; i < s->n; i++)
            g[s->index[i]] += dz * s->value[i];
        return;
    }
    const size_t h = m->hidden, bias = m->features * h, out = bias + h;
    for (size_t u = 0; u < h; u++) {
        const bool on = s->hidden[u] > 0;
        s->dhidden[u] = on ? dz * w[out + u] : 0;
        g[bias + u] += s->dhidden[u];
        g[out + u] += on ? dz * s->hidden[u] : 0;
    }
    for (size_t i = 0; i < s->n; i++)
        for (size_t u = 0; u < h; u++)
            g[s->index[i] * h + u] += s->value[i] * s->dhidden[u];
}

#endif
