/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What train does before any rank begins: its options, and the job that they ask for. */
#ifndef EXAMPLES_TRAIN_JOB_H
#define EXAMPLES_TRAIN_JOB_H

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libsvm.h"
#include "model.h"

enum { MAX_RANKS = 256 };

struct options {
    bool network, shard;
    int ranks, steps, batch, hidden, order;
    double rate, keep; /* per cent */
    uint64_t seed;
    const char *path; /* or NULL: generate data */
};

/* What all ranks share, and only read. */
struct job {
    struct options o;
    struct libsvm data;
    struct model model;
    float upper;   /* label of the upper class */
    size_t *order; /* [data.rows], shuffled: the first `taught` are to learn from, the others are held out */
    size_t taught, held;
    size_t n, share; /* weights, padded to the same share for each rank */
};

static int own_rank; /* among processes */

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
    fprintf(stderr, "train: %s%s\n", who, text); /* one call, so that those of several processes do not mix */
}

/* ---- the command line */

static void usage(FILE *to)
{
    fprintf(to, "usage: train [OPTION]... [FILE]\n"
                "Train a classifier on several ranks, with dense and with sparse collectives, side by side.\n"
                "FILE has examples of two classes in LIBSVM's text format; without one, data are generated.\n\n"
                "  -m, --model MODEL     logistic (default) or network\n"
                "  -o, --order N         logistic: products of up to N features, 1 to 3 (default 3)\n"
                "  -u, --hidden N        network: hidden units (default 1024)\n"
                "  -k, --keep PERCENT    send the largest of the gradient, keep the rest for later\n"
                "                        (default: 100 for logistic, 1 for network)\n"
                "  -S, --shard           reduce-scatter, update a share on each rank, all-gather\n"
                "  -s, --steps N         (default 100)\n"
                "  -b, --batch N         examples a rank and step (default 64)\n"
                "  -r, --rate X          of learning (default 0.01)\n"
                "      --seed N          of the data's order, and of what is generated (default 1)\n"
#ifndef PICI_EXAMPLE_MPI
                "  -t, --threads N       ranks (default 4)\n"
#endif
                "  -h, --help\n\n"
                "PICI_ALGORITHM, PICI_FORMAT and the other variables of docs/collectives.md apply.\n"
                "Exit status: 0 done, and both agree; 1 bad data, a failure, or they disagree; 2 usage.\n");
}

static bool parse_number(const char *text, double least, double most, double *number)
{
    char *end;
    *number = strtod(text, &end);
    return end != text && *end == '\0' && *number >= least && *number <= most;
}

static bool parse_int(const char *text, int least, int most, int *number)
{
    double x;
    if (!parse_number(text, least, most, &x) || x != floor(x))
        return false;
    *number = (int)x;
    return true;
}

/* The exit status if the program is to end here, else -1. */
static int parse_options(int argc, char **argv, struct options *o)
{
    enum { SEED = 256 };
    static const struct option names[] = {
        {"model", required_argument, NULL, 'm'},  {"order", required_argument, NULL, 'o'},
        {"hidden", required_argument, NULL, 'u'}, {"keep", required_argument, NULL, 'k'},
        {"shard", no_argument, NULL, 'S'},        {"steps", required_argument, NULL, 's'},
        {"batch", required_argument, NULL, 'b'},  {"rate", required_argument, NULL, 'r'},
        {"seed", required_argument, NULL, SEED},  {"threads", required_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};
    const int ranks = o->ranks;
    int seed;
    *o = (struct options){false, false, ranks ? ranks : 4, 100, 64, 1024, 3, 0.01, 0, 1, NULL};
    opterr = own_rank == 0;
    for (int c; (c = getopt_long(argc, argv, "m:o:u:k:Ss:b:r:t:h", names, NULL)) != -1;) {
        bool ok = true;
        switch (c) {
        case 'm':
            o->network = strcmp(optarg, "network") == 0;
            ok = o->network || strcmp(optarg, "logistic") == 0;
            break;
        case 'o': ok = parse_int(optarg, 1, 3, &o->order); break;
        case 'u': ok = parse_int(optarg, 1, 1 << 20, &o->hidden); break;
        case 'k': ok = parse_number(optarg, 0, 100, &o->keep) && o->keep > 0; break;
        case 'S': o->shard = true; break;
        case 's': ok = parse_int(optarg, 1, 1000000, &o->steps); break;
        case 'b': ok = parse_int(optarg, 1, 1000000, &o->batch); break;
        case 'r': ok = parse_number(optarg, 0, 1000, &o->rate); break;
        case 't': ok = ranks == 0 && parse_int(optarg, 1, MAX_RANKS, &o->ranks); break;
        case SEED:
            ok = parse_int(optarg, 0, INT32_MAX, &seed);
            o->seed = ok ? (uint64_t)seed : 0;
            break;
        case 'h': own_rank == 0 ? usage(stdout) : (void)0; return 0;
        default: return 2;
        }
        if (!ok) {
            if (own_rank == 0)
                complain("%s: not what an option takes (train --help)", optarg);
            return 2;
        }
    }
    if (o->keep == 0)
        o->keep = o->network ? 1 : 100;
    if (optind < argc)
        o->path = argv[optind++];
    if (optind < argc) {
        if (own_rank == 0)
            complain("more than one file (train --help)");
        return 2;
    }
    return -1;
}

/* splitmix64 */
static uint64_t random_bits(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* [0, 1) */
static double uniform(uint64_t *state)
{
    return (double)(random_bits(state) >> 11) / (double)(UINT64_C(1) << 53);
}

/* ---- data */

/* A made-up survey: each row gives one answer to each question, some answers more often than others; the class depends
 * on the answers, on pairs of them, and on chance. False if there is no memory. */
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

/* The whole file, whatever it is; NULL, complained, if that fails. */
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

/* The two labels there are; false if there are more, or fewer. */
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

/* False, complained, if there is something wrong; job_free either way. */
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
    return true;
}

#endif
