/* SPDX-License-Identifier: BSD-3-Clause */
#include "coll_values.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

static const struct {
    const char *name;
    enum pici_dtype dtype;
    struct pici_values values;
} codecs[] = {
#define VALUES(...)                                                                                                    \
    {                                                                                                                  \
        .size = sizeof(struct pici_values), __VA_ARGS__                                                                \
    }
    {"bf16", PICI_F32, VALUES(.codec = PICI_VALUES_CAST)},
    {"f16", PICI_F32, VALUES(.codec = PICI_VALUES_CAST, .cast = PICI_F16)},
    {"f32", PICI_F64, VALUES(.codec = PICI_VALUES_CAST)},
    {"q8", PICI_F32, VALUES(.codec = PICI_VALUES_QSGD, .seed = 3)},
    {"q4", PICI_F32, VALUES(.codec = PICI_VALUES_QSGD, .bits = 4, .bucket = 256, .seed = 4)},
    {"q2, nearest", PICI_F32, VALUES(.codec = PICI_VALUES_QSGD, .bits = 2, .rounding = PICI_ROUND_NEAREST)},
    {"q4, 2-norm", PICI_F32, VALUES(.codec = PICI_VALUES_QSGD, .bits = 4, .norm = PICI_NORM_L2, .bucket = 64)},
    {"q8 of f64", PICI_F64, VALUES(.codec = PICI_VALUES_QSGD, .bits = 8, .bucket = 4096)},
    {"q4 of bf16", PICI_BF16, VALUES(.codec = PICI_VALUES_QSGD, .bits = 4)},
    {"q8 of f16", PICI_F16, VALUES(.codec = PICI_VALUES_QSGD, .bits = 8, .bucket = 512)},
    {"zfp:8", PICI_F32, VALUES(.codec = PICI_VALUES_ZFP, .rate = 8)},
    {"zfp, tolerance", PICI_F32, VALUES(.codec = PICI_VALUES_ZFP, .tolerance = 1e-3)},
    {"zfp:16 of f64 in 2-D", PICI_F64, VALUES(.codec = PICI_VALUES_ZFP, .rate = 16, .nx = 12)},
    {"zfp, tolerance, in 3-D", PICI_F32, VALUES(.codec = PICI_VALUES_ZFP, .tolerance = 1e-2, .nx = 6, .ny = 5)},
};
enum { CODECS = sizeof codecs / sizeof *codecs };

int values_codecs(void)
{
    return CODECS;
}

struct pici_values values_codec(int i, enum pici_dtype *dtype)
{
    *dtype = codecs[i].dtype;
    return codecs[i].values;
}

static const char *codec_name(const struct pici_values *v)
{
    for (int i = 0; i < CODECS; i++) {
        const struct pici_values *w = &codecs[i].values;
        if (v->codec == w->codec && v->cast == w->cast && v->bits == w->bits && v->bucket == w->bucket &&
            v->norm == w->norm && v->rate == w->rate && v->tolerance == w->tolerance && v->nx == w->nx)
            return codecs[i].name;
    }
    return "another codec";
}

const char *values_words(const struct values_case *c, int p)
{
    static const char *const collective[] = {"?", "all-gather", "reduce-scatter", "all-reduce"},
                             *const op[] = {"sum", "avg", "min", "max"}, *const data[] = {"gauss",   "same",   "sparse",
                                                                                          "special", "normal", "alike"};
    static char said[300];
    snprintf(said, sizeof said,
             "%d ranks, %s by %s, %s of %s, %llu elements, codec %s, phases %u, data %s, format %d, window %d%s, seed "
             "%llu",
             p, collective[c->collective], pici_algorithm_name(c->algorithm), op[c->op], pici_dtype_name(c->dtype),
             (unsigned long long)c->count, c->exact ? "none" : codec_name(&c->values), c->values.phases, data[c->data],
             (int)c->format, c->window, c->in_place ? ", in place" : "", (unsigned long long)c->seed);
    return said;
}

/* ---- data ---- */

static double half(uint16_t h)
{
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const double x = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                     : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                    : ldexp(fraction, -24);
    return h >> 15 ? -x : x;
}

double values_load(enum pici_dtype dtype, const uint8_t *p, uint64_t i)
{
    float f;
    double d;
    uint16_t h;
    uint32_t bits;
    switch (dtype) {
    case PICI_F64: return memcpy(&d, p + 8 * i, sizeof d), d;
    case PICI_F32: return memcpy(&f, p + 4 * i, sizeof f), (double)f;
    default: break;
    }
    memcpy(&h, p + 2 * i, sizeof h);
    bits = (uint32_t)h << 16;
    memcpy(&f, &bits, sizeof f);
    return dtype == PICI_BF16 ? (double)f : half(h);
}

/* Rounded toward zero, which is good enough for data. |x| < 60000. */
static void store(enum pici_dtype dtype, uint8_t *p, uint64_t i, double x)
{
    const float f = (float)x;
    uint32_t bits;
    uint16_t h;
    memcpy(&bits, &f, sizeof bits);
    if (dtype == PICI_F64) {
        memcpy(p + 8 * i, &x, sizeof x);
        return;
    }
    if (dtype == PICI_F32) {
        memcpy(p + 4 * i, &f, sizeof f);
        return;
    }
    const uint32_t exponent = bits >> 23 & 255;
    h = dtype == PICI_BF16 ? (uint16_t)(bits >> 16)
        : exponent < 113   ? (uint16_t)(bits >> 16 & 0x8000)
                           : (uint16_t)((bits >> 16 & 0x8000) | (exponent - 112) << 10 | (bits >> 13 & 1023));
    memcpy(p + 2 * i, &h, sizeof h);
}

/* Variance 1, nearly Gaussian, and cheap. */
static double gauss(struct rng *r)
{
    const uint64_t bits = rng_next(r);
    int64_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (int64_t)(bits >> 16 * i & 0xffff);
    return ((double)sum - 131070) / 37837.2;
}

static double normal(struct rng *r)
{
    const double a = ((double)(rng_next(r) >> 12) + 0.5) / 4503599627370496.0,
                 b = (double)(rng_next(r) >> 12) / 4503599627370496.0;
    return sqrt(-2 * log(a)) * cos(6.283185307179586 * b);
}

static void store_special(enum pici_dtype dtype, uint8_t *p, uint64_t i, struct rng *r)
{
    const uint64_t bits = value_random(r, dtype);
    const size_t width = pici_dtype_width(dtype);
    const uint32_t low = (uint32_t)bits;
    const uint16_t lower = (uint16_t)bits;
    const uint8_t lowest = (uint8_t)bits;
    const void *const of_width[] = {&lowest, &lower, &low, &bits};
    memcpy(p + i * width, of_width[width == 8 ? 3 : width / 2], width);
}

static int is_wide_float(enum pici_dtype dtype)
{
    return dtype == PICI_F64 || dtype == PICI_F32 || dtype == PICI_F16 || dtype == PICI_BF16;
}

static void fill(uint8_t *p, const struct values_case *c, uint64_t n, int rank)
{
    const int alike = c->data == DATA_SAME || c->data == DATA_ALIKE;
    struct rng r = {c->seed * 100 + (alike ? 0 : (uint64_t)rank)}, own = {c->seed * 100 + 50 + (uint64_t)rank};
    for (uint64_t i = 0; i < n; i++) {
        const int there = c->data != DATA_SPARSE || (i / 50 * 7 + (uint64_t)rank) % 11 == 0;
        double x = !there ? 0 : c->data == DATA_NORMAL || alike ? normal(&r) : gauss(&r);
        x += c->data == DATA_ALIKE ? gauss(&own) / 10 : 0;
        if (!is_wide_float(c->dtype) && !there)
            memset(p + i * pici_dtype_width(c->dtype), 0, pici_dtype_width(c->dtype));
        else if (!is_wide_float(c->dtype) || (c->data == DATA_SPECIAL && i % 700 < 40))
            store_special(c->dtype, p, i, &r);
        else
            store(c->dtype, p, i, x);
    }
}

/* ---- a rank ---- */

static uint8_t *array(const struct values_case *c, uint64_t n)
{
    return test_alloc((size_t)(n ? n : 1) * pici_dtype_width(c->dtype));
}

void values_rank_make(struct values_rank *k, const struct values_case *c, int rank, int p)
{
    const size_t width = pici_dtype_width(c->dtype);
    const uint64_t all = c->count * (uint64_t)p;
    memset(k, 0, sizeof *k);
    k->sends = c->collective == PICI_REDUCE_SCATTER ? all : c->count;
    k->receives = c->collective == PICI_ALL_GATHER ? all : c->count;
    const uint64_t room = k->sends > k->receives ? k->sends : k->receives, own = (uint64_t)rank * c->count * width;
    k->recv = array(c, room);
    memset(k->recv, 0xa5, (size_t)room * width);
    k->apart = c->in_place ? NULL : array(c, k->sends);
    k->send = c->in_place ? k->recv + (c->collective == PICI_ALL_GATHER ? own : 0) : k->apart;
    fill(k->send, c, k->sends, rank);
    if (!c->residual)
        return;
    k->residual = array(c, k->sends);
    k->before = array(c, k->sends);
    for (uint64_t i = 0; i < k->sends; i++)
        store(c->dtype, k->before, i, (double)((int)(i % 5) - 2) / 64);
    memcpy(k->residual, k->before, (size_t)k->sends * width);
}

enum pici_status values_rank_call(struct values_rank *k, const struct values_case *c, struct pici_comm *comm)
{
    const struct pici_coll_stats none = PICI_COLL_STATS_INIT;
    struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
    struct pici_values values = c->values;
    const size_t own = (size_t)pici_comm_rank(comm) * (size_t)c->count * pici_dtype_width(c->dtype);
    const enum pici_dtype dtype = c->refused ? c->refused : c->dtype;
    k->stats = none;
    values.residual = c->overlap ? (c->overlap == 1 ? k->send : k->recv) + 4 : k->residual;
    o.algorithm = c->algorithm;
    o.format = c->format;
    o.slice_bytes = c->slice_bytes ? c->slice_bytes : 1;
    o.window = c->window;
    o.checksum = c->checksum;
    o.timeout_ms = c->timeout_ms;
    o.stats = &k->stats;
    o.values = c->exact ? NULL : &values;
    switch (c->collective) {
    case PICI_ALL_GATHER: return pici_all_gather(k->send, k->recv, c->count, dtype, comm, &o);
    case PICI_REDUCE_SCATTER:
        return pici_reduce_scatter(k->send, k->recv + (c->in_place ? own : 0), c->count, dtype, c->op, comm, &o);
    default: return pici_all_reduce(k->send, k->recv, c->count, dtype, c->op, comm, &o);
    }
}

void values_rank_free(struct values_rank *k)
{
    free(k->apart);
    free(k->recv);
    free(k->residual);
    free(k->before);
    memset(k, 0, sizeof *k);
}

/* ---- conservation ---- */

struct balance {
    double in, out, size, worst, most; /* sums; of magnitudes; the largest difference of an element, and magnitude */
};

/* What went in for an element, and what came out, of which `size` are the magnitudes. */
static void weigh(struct balance *b, double in, double out, double size)
{
    b->in += in;
    b->out += out;
    b->size += size;
    b->worst = fabs(in - out) > b->worst ? fabs(in - out) : b->worst;
    b->most = size > b->most ? size : b->most;
}

static double lost(const struct values_case *c, const struct values_rank *k, uint64_t i)
{
    return values_load(c->dtype, k->residual, i) - values_load(c->dtype, k->before, i);
}

const char *values_conserved(const struct values_case *c, const struct values_rank *k, int p)
{
    static char said[400];
    const double times = c->op == PICI_AVG ? p : 1, close = ldexp(1, c->dtype == PICI_BF16  ? -4
                                                                     : c->dtype == PICI_F16 ? -7
                                                                                            : -20);
    struct balance b = {0};
    for (int r = 0; r < p && c->collective == PICI_ALL_GATHER; r++)
        for (uint64_t i = 0; i < c->count; i++) {
            const double x = values_load(c->dtype, k[r].send, i),
                         y = values_load(c->dtype, k[0].recv, (uint64_t)r * c->count + i);
            weigh(&b, x, y + lost(c, &k[r], i), fabs(x) + fabs(y));
        }
    const uint64_t n = c->collective == PICI_ALL_GATHER ? 0 : k[0].sends;
    for (uint64_t i = 0; i < n; i++) {
        const int owner = c->collective == PICI_REDUCE_SCATTER ? (int)(i / c->count) : 0;
        const uint64_t at = c->collective == PICI_REDUCE_SCATTER ? i % c->count : i;
        double in = 0, out = times * values_load(c->dtype, k[owner].recv, at), size = fabs(out);
        for (int r = 0; r < p; r++) {
            const double x = values_load(c->dtype, k[r].send, i), y = lost(c, &k[r], i);
            in += x;
            out += y;
            size += fabs(x) + fabs(y);
        }
        weigh(&b, in, out, size);
    }
    if (fabs(b.in - b.out) <= close * b.size && b.worst <= 4 * close * b.most)
        return NULL;
    snprintf(said, sizeof said, "%s: sums of %.9g became %.9g; magnitudes %.3g; an element is off by %.3g",
             values_words(c, p), b.in, b.out, b.size, b.worst);
    return said;
}
