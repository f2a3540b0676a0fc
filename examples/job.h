/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A training job: examples, generated or read from a file; a model for them; and the order in which they are used. */
#ifndef EXAMPLES_JOB_H
#define EXAMPLES_JOB_H

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pici/coll.h>

#include "libsvm.h"
#include "loss.h"
#include "model.h"

enum { MAX_RUNS = 12 };

/* What a training run does, and what it sends. */
struct contestant {
    char name[24];
    enum loss loss;
    bool coordinates; /* coordinate ascent; else gradient descent */
    bool stream;      /* changed coordinates are gathered as a stream; else as a dense vector */
    bool topk;        /* the largest elements of a gradient; the rest, and rounding errors, wait */
    bool dense;       /* dense messages only */
    enum pici_format format;
    struct pici_values values;
};

struct options {
    bool network, shard;
    int ranks, steps, batch, hidden, order;
    double rate, keep; /* per cent */
    uint64_t seed;
    const char *path;    /* file of examples; NULL: generate data */
    const char *weights; /* file to write; or NULL */
    enum loss loss;
    bool lossy;   /* runs send different things, so their results differ */
    bool descent; /* runs are gradient descent and coordinate ascent, with both losses */
    int runs;
    struct contestant run[MAX_RUNS];
    const char *curves; /* file to write; or NULL */
};

/* Shared by all ranks, which only read it. */
struct job {
    struct options o;
    struct libsvm data;
    struct model model;
    float upper;   /* label of the upper class */
    size_t *order; /* [data.rows] shuffled row numbers: the first `taught` for training, the others held out */
    size_t taught, held;
    size_t n, share; /* weights, padded to a multiple of the ranks; weights of each rank's share */
    size_t examples; /* for training, of each rank's share, if each has its own */
};

static int own_rank; /* of this process, where each rank is one */
static const char *own_name = "train";

static void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void complain(const char *format, ...)
{
    char text[1024] = "", who[32] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (own_rank > 0)
        snprintf(who, sizeof who, "rank %d: ", own_rank);
    fprintf(stderr, "%s: %s%s\n", own_name, who, text); /* one call, so that lines of several processes do not mix */
}

/* splitmix64, a pseudo-random generator */
static uint64_t random_bits(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Uniform in [0, 1). */
static double uniform(uint64_t *state)
{
    return (double)(random_bits(state) >> 11) / (double)(UINT64_C(1) << 53);
}

/* ---- data */

/* Generate a survey: each row has one answer to each question, and some answers are more frequent than others. The
 * class depends on the answers, on pairs of neighbouring answers, and on chance. False if there is no memory. */
static bool generate(struct libsvm *d, uint64_t seed)
{
    enum { EXAMPLES = 20000, QUESTIONS = 14, ANSWERS = 9 };
    uint64_t state = seed;
    if (!libsvm_allocate(d, EXAMPLES, (size_t)EXAMPLES * QUESTIONS))
        return false;
    d->features = QUESTIONS * ANSWERS;
    for (size_t n = 0; d->rows < EXAMPLES; d->start[++d->rows] = n) {
        double score = 2 * uniform(&state) - 1;
        uint64_t before = 0;
        for (uint32_t q = 0; q < QUESTIONS; q++, n++) {
            const double u = uniform(&state);
            d->index[n] = q * ANSWERS + (uint32_t)(u * u * ANSWERS);
            d->value[n] = 1;
            uint64_t single = seed + d->index[n], pair = (seed + before) * 1000 + d->index[n];
            score += (uniform(&single) - 0.5) + 2 * (uniform(&pair) - 0.5);
            before = d->index[n];
        }
        d->label[d->rows] = score > 0 ? 1 : -1;
    }
    return true;
}

/* Read a whole file; the caller frees it. NULL, after a message, on an error. */
static char *read_file(const char *path, size_t *len)
{
    errno = 0;
    FILE *const f = fopen(path, "rb");
    char *bytes = NULL;
    size_t cap = 0, n = 0;
    while (f && !ferror(f) && !feof(f)) {
        if (n == cap) {
            char *const more = cap > SIZE_MAX / 4 ? NULL : realloc(bytes, cap = 2 * cap + 65536);
            if (!more) {
                errno = ENOMEM;
                break;
            }
            bytes = more;
        }
        n += fread(bytes + n, 1, cap - n, f);
    }
    const bool whole = f && feof(f) && !ferror(f);
    if (!whole) {
        complain("%s: %s", path, strerror(errno ? errno : EIO));
        free(bytes);
    }
    if (f)
        fclose(f);
    *len = n;
    return whole ? bytes : NULL;
}

static bool load(struct libsvm *d, const struct options *o)
{
    if (!o->path) {
        if (generate(d, o->seed))
            return true;
        complain("no memory");
        return false;
    }
    size_t len;
    struct libsvm_error err;
    char *const text = read_file(o->path, &len);
    if (!text)
        return false;
    const bool ok = libsvm_parse(d, text, len, &err);
    if (!ok && err.line)
        complain("%s: line %zu: %s", o->path, err.line, err.why);
    else if (!ok)
        complain("%s: %s", o->path, err.why);
    free(text);
    return ok;
}

/* Find the greater of exactly two labels. False if there are not exactly two. */
static bool two_classes(const struct libsvm *d, float *upper)
{
    float low = d->label[0], high = d->label[0];
    for (size_t r = 1; r < d->rows; r++) {
        low = fminf(low, d->label[r]);
        high = fmaxf(high, d->label[r]);
    }
    for (size_t r = 0; r < d->rows; r++)
        if (d->label[r] != low && d->label[r] != high)
            return false;
    *upper = high;
    return low != high;
}

static void job_free(struct job *j)
{
    libsvm_free(&j->data);
    free(j->order);
}

/* False, after a message, on an error. The caller calls job_free in any case. */
static bool job_init(struct job *j, const struct options *o)
{
    memset(j, 0, sizeof *j);
    j->o = *o;
    if (!load(&j->data, o))
        return false;
    const char *const name = o->path ? o->path : "data";
    const size_t rows = j->data.rows;
    if (rows < 16 || !two_classes(&j->data, &j->upper)) {
        complain("%s: not 16 examples or more with labels of two kinds", name);
        return false;
    }
    if (!model_init(&j->model, &j->data, o->network ? (uint32_t)o->hidden : 0, o->order)) {
        complain("%s: %u features: too many weights; lower %s", name, (unsigned)j->data.features,
                 o->network ? "--hidden" : "--order");
        return false;
    }
    j->share = (j->model.weights + (size_t)o->ranks - 1) / (size_t)o->ranks;
    j->n = j->share * (size_t)o->ranks;
    j->order = malloc(rows * sizeof *j->order);
    if (!j->order) {
        complain("no memory");
        return false;
    }
    uint64_t state = o->seed;
    for (size_t i = 0; i < rows; i++) {
        const size_t k = (size_t)(random_bits(&state) % (i + 1));
        j->order[i] = j->order[k];
        j->order[k] = i;
    }
    j->held = rows / 8;
    j->taught = rows - j->held;
    j->examples = (j->taught + (size_t)o->ranks - 1) / (size_t)o->ranks;
    return true;
}

#endif
