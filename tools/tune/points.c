/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A cell is a collective, a number of bytes and a density. All candidates of a cell are measured by turns. Dense ones
 * take as long at any density, so they are measured at a density of 1 alone. Rank 0 decides what is next: a coarse grid
 * first, then those cells in which the two best candidates are predicted to be closest. */
#include "points.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/registry.h"
#include "stats.h"

enum {
    KINDS = 3,
    DENSITIES = 5,
    SIZES_MOST = 24,
    REPEATS = 5,
    TIMES_MOST = 16,
    CANDIDATES_MOST = 2 * SCHEDULES_MOST + 1 /* sparse and dense; the vendor's */
};
static const double densities[DENSITIES] = {0.001, 0.01, 0.05, 0.2, 1};
static const double LONGEST = 2;     /* seconds of a dense run: slower points are left out */
static const double HOPELESS = 3;    /* times the best: not tried with more data */
static const double SHORTEST = 1e-3; /* seconds: of shorter calls several are timed together */

struct cell {
    int done;
    double seconds[CANDIDATES_MOST]; /* 0: not measured */
};

struct plan {
    const struct points_options *options;
    struct model_candidate candidate[CANDIDATES_MOST];
    int candidates, sizes;
    uint64_t bytes[SIZES_MOST];
    struct cell *cell;                              /* [KINDS][sizes][DENSITIES] */
    int dropped[KINDS][DENSITIES][CANDIDATES_MOST]; /* size from which on it is hopeless */
    int noisy, left_out;                            /* points; cells */
};

struct buffers {
    float *send, *recv;
    uint64_t elements, filled;
    double density; /* of the first `filled` of send */
    uint64_t state;
};

/* ---- the plan. Functions of rank 0, but for those that make it. */

static int make_plan(struct plan *p, const struct world *w, const struct points_options *o)
{
    *p = (struct plan){.options = o};
    for (const struct schedule *s = pici_schedules; s->name; s++) {
        if (!pici_schedule_distinct(s, w->ranks, w->nodes.nodes))
            continue;
        for (int dense = 0; dense < 2; dense++)
            p->candidate[p->candidates++] = (struct model_candidate){.algorithm = s->id, .dense = dense};
    }
    if (w->vendor)
        p->candidate[p->candidates++] = (struct model_candidate){.dense = 1, .vendor = MODEL_VENDOR};
    for (uint64_t bytes = o->least; bytes <= o->most && p->sizes < SIZES_MOST; bytes *= 4)
        p->bytes[p->sizes++] = bytes;
    p->cell = calloc((size_t)KINDS * (size_t)(p->sizes ? p->sizes : 1) * DENSITIES, sizeof *p->cell);
    for (int k = 0; k < KINDS; k++)
        for (int d = 0; d < DENSITIES; d++)
            for (int c = 0; c < CANDIDATES_MOST; c++)
                p->dropped[k][d][c] = SIZES_MOST;
    return p->cell != NULL;
}

static int cells_of(const struct plan *p)
{
    return KINDS * p->sizes * DENSITIES;
}

/* A cell's index is (kind * sizes + size) * DENSITIES + density. */
static int kind_at(const struct plan *p, int cell)
{
    return cell / DENSITIES / p->sizes;
}

static int size_at(const struct plan *p, int cell)
{
    return cell / DENSITIES % p->sizes;
}

static struct call call_of(const struct plan *p, const struct world *w, int cell)
{
    return world_call((enum pici_collective)(PICI_ALL_GATHER + kind_at(p, cell)), p->bytes[size_at(p, cell)],
                      densities[cell % DENSITIES], w->ranks);
}

static int can(const struct plan *p, int cell, int candidate)
{
    const struct model_candidate *c = &p->candidate[candidate];
    const int kind = PICI_ALL_GATHER + kind_at(p, cell);
    return c->vendor || pici_schedule(c->algorithm)->collectives >> kind & 1;
}

/* Whether a candidate is to be measured in a cell. */
static int live(const struct plan *p, int cell, int candidate)
{
    const int density = cell % DENSITIES;
    return can(p, cell, candidate) && (!p->candidate[candidate].dense || density == DENSITIES - 1) &&
           size_at(p, cell) < p->dropped[kind_at(p, cell)][density][candidate];
}

static double predicted(struct tune *tune, const struct world *w, const struct call *c,
                        const struct model_candidate *candidate)
{
    struct model_call call = pici_model_call;
    call.kind = c->kind;
    call.bytes = c->bytes;
    call.ranks = w->ranks;
    call.nodes = &w->nodes;
    call.density = c->density;
    return pici_tune_seconds(tune, &call, candidate);
}

/* What is expected of a cell: seconds to measure it, the ratio of the two best candidates, the best dense run. */
struct outlook {
    double seconds, ratio, dense;
};

static struct outlook look_at(const struct plan *p, struct tune *tune, const struct world *w, int cell)
{
    const struct call call = call_of(p, w, cell);
    const int dense_cell = cell - cell % DENSITIES + DENSITIES - 1;
    double best = INFINITY, next = INFINITY;
    struct outlook o = {0, 0, INFINITY};
    for (int c = 0; c < p->candidates; c++) {
        const double seen = p->cell[p->candidate[c].dense ? dense_cell : cell].seconds[c];
        const double t = seen > 0 ? seen : can(p, cell, c) ? predicted(tune, w, &call, &p->candidate[c]) : -1;
        if (!(t > 0))
            continue;
        o.seconds += live(p, cell, c) ? t * (REPEATS + 1) : 0;
        if (p->candidate[c].dense && t < o.dense)
            o.dense = t;
        next = t < best ? best : t < next ? t : next;
        best = t < best ? t : best;
    }
    o.ratio = next / best;
    return o;
}

/* The next cell to measure; -1: none fits in the time that is left. */
static int next_cell(struct plan *p, struct tune *tune, const struct world *w, double left)
{
    int next = -1;
    double least = INFINITY;
    for (int cell = 0; cell < cells_of(p); cell++) {
        if (p->cell[cell].done)
            continue;
        const struct outlook o = look_at(p, tune, w, cell);
        const int coarse = size_at(p, cell) % 2 == 0 && (cell % DENSITIES == 1 || cell % DENSITIES == DENSITIES - 1);
        if (o.dense > LONGEST) {
            p->cell[cell].done = 1;
            p->left_out++;
        } else if (coarse && o.seconds < left / 3) {
            return cell;
        } else if (o.seconds < left && o.ratio < least) {
            least = o.ratio;
            next = cell;
        }
    }
    return next;
}

/* Candidates that are far behind are not tried with more data. */
static void drop(struct plan *p, int cell)
{
    const int kind = kind_at(p, cell), density = cell % DENSITIES;
    double best = INFINITY;
    for (int c = 0; c < p->candidates; c++)
        if (p->cell[cell].seconds[c] > 0 && p->cell[cell].seconds[c] < best)
            best = p->cell[cell].seconds[c];
    for (int c = 0; c < p->candidates; c++)
        if (p->cell[cell].seconds[c] > HOPELESS * best && size_at(p, cell) + 1 < p->dropped[kind][density][c])
            p->dropped[kind][density][c] = size_at(p, cell) + 1;
}

/* ---- measuring */

/* Memory and data for a call. 0: some rank has none. */
static int prepare(const struct world *w, struct buffers *b, const struct call *c)
{
    const uint64_t n = c->bytes / sizeof(float);
    int good = 1;
    if (n > b->elements) {
        free(b->send);
        free(b->recv);
        b->send = malloc(n * sizeof *b->send);
        b->recv = malloc(n * sizeof *b->recv);
        b->elements = b->send && b->recv ? n : 0;
        b->filled = 0;
        good = b->elements > 0;
        if (good)
            memset(b->recv, 0, n * sizeof *b->recv);
    }
    if (good && (b->density != c->density || b->filled < n)) {
        world_fill(b->send, n, c->density, &b->state);
        b->filled = n;
        b->density = c->density;
    }
    return world_max(w, !good) == 0;
}

static double timed(const struct world *w, const struct buffers *b, const struct call *c,
                    const struct model_candidate *candidate, int times)
{
    MPI_Barrier(w->mpi);
    return world_max(w, world_run(w, w->comm, c, candidate, b->send, b->recv, times));
}

struct runs {
    int times, count;
    double t[2 * REPEATS];
};

/* The candidates of a set of bits by turns, REPEATS times each. */
static void take_turns(const struct world *w, const struct plan *p, const struct buffers *b, const struct call *c,
                       uint64_t set, struct runs *runs)
{
    for (int i = 0; i < REPEATS; i++)
        for (int k = 0; k < p->candidates; k++)
            if (set >> k & 1)
                runs[k].t[runs[k].count++] = timed(w, b, c, &p->candidate[k], runs[k].times);
}

/* Those of a set that are noisy. */
static uint64_t noisy(const struct plan *p, uint64_t set, const struct runs *runs)
{
    uint64_t loud = 0;
    for (int k = 0; k < p->candidates; k++) {
        struct runs r = runs[k];
        if (!(set >> k & 1))
            continue;
        const struct stats s = stats_of(r.t, r.count);
        loud |= (uint64_t)(2 * s.spread > p->options->noise * s.median) << k;
    }
    return loud;
}

/* Measure the candidates of a set of bits. 0: there is no time, or no memory. Times are the same on all ranks. */
static int measure(const struct world *w, const struct plan *p, struct buffers *b, const struct call *c, uint64_t set,
                   int must, struct runs runs[CANDIDATES_MOST])
{
    double expected = 0;
    memset(runs, 0, CANDIDATES_MOST * sizeof *runs);
    if (!prepare(w, b, c))
        return 0;
    for (int k = 0; k < p->candidates; k++) {
        if (!(set >> k & 1))
            continue;
        const double once = timed(w, b, c, &p->candidate[k], 1), again = timed(w, b, c, &p->candidate[k], 1);
        const double least = once < again ? once : again, times = ceil(SHORTEST / least);
        runs[k].times = times < 1 ? 1 : times < TIMES_MOST ? (int)times : TIMES_MOST;
        expected += REPEATS * least * runs[k].times;
    }
    if (!must && expected > world_left(w))
        return 0;
    take_turns(w, p, b, c, set, runs);
    take_turns(w, p, b, c, expected < world_left(w) ? noisy(p, set, runs) : 0, runs);
    return 1;
}

/* ---- results, on rank 0 */

static void add_point(const struct world *w, struct tune *tune, const struct call *c,
                      const struct model_candidate *candidate, struct stats s)
{
    struct tune_point *more = realloc(tune->points, (tune->point_count + 1) * sizeof *more);
    if (!more)
        world_die(w, "no memory");
    tune->points = more;
    struct tune_point *p = &more[tune->point_count++];
    *p = (struct tune_point){.collective = c->kind,
                             .dtype = PICI_F32,
                             .bytes = c->bytes,
                             .density = c->density,
                             .candidate = *candidate,
                             .seconds = s.median,
                             .spread = s.spread};
}

static const char *name_of(const struct model_candidate *c)
{
    return c->vendor ? "vendor" : pici_schedule(c->algorithm)->name;
}

static void record(const struct world *w, struct plan *p, struct tune *tune, int cell, const struct call *c,
                   uint64_t set, struct runs *runs)
{
    int best = -1;
    const uint64_t loud = noisy(p, set, runs);
    for (int k = 0; k < p->candidates; k++) {
        if (!(set >> k & 1))
            continue;
        const struct stats s = stats_of(runs[k].t, runs[k].count);
        p->cell[cell].seconds[k] = s.median;
        if (best < 0 || s.median < p->cell[cell].seconds[best])
            best = k;
        if (loud >> k & 1)
            p->noisy++;
        else
            add_point(w, tune, c, &p->candidate[k], s);
    }
    pici_tune_sort(tune);
    drop(p, cell);
    if (best >= 0)
        world_say(w, "%s %llu bytes, density %g: %s %s, %.3g ms%s", pici_model_name(c->kind),
                  (unsigned long long)c->bytes, c->density, name_of(&p->candidate[best]),
                  p->candidate[best].dense ? "dense" : "sparse", p->cell[cell].seconds[best] * 1e3,
                  loud >> best & 1 ? " (noisy)" : "");
}

void points_measure(struct world *w, struct tune *tune, const struct points_options *options)
{
    struct plan p;
    struct buffers b = {.state = UINT64_C(0x2545f4914f6cdd1d) * ((uint64_t)w->rank + 1)};
    struct runs *runs = malloc(CANDIDATES_MOST * sizeof *runs);
    int measured = 0;
    if (!runs || !make_plan(&p, w, options))
        world_die(w, "no memory");
    for (;;) {
        double left = world_left(w);
        left = left > 0 ? left : 0;
        const int cell = (int)world_said(w, w->rank ? 0 : measured ? next_cell(&p, tune, w, left) : DENSITIES - 1);
        uint64_t set = 0;
        if (cell < 0 || !p.sizes)
            break;
        for (int k = 0; k < p.candidates && !w->rank; k++)
            set |= (uint64_t)live(&p, cell, k) << k;
        MPI_Bcast(&set, 1, MPI_UINT64_T, 0, w->mpi);
        const struct call c = call_of(&p, w, cell);
        if (measure(w, &p, &b, &c, set, !measured, runs) && !w->rank)
            record(w, &p, tune, cell, &c, set, runs);
        p.cell[cell].done = 1;
        measured++;
    }
    world_say(w,
              "%zu points; %d were left out because they stayed noisy, and %d calls because a dense one takes over "
              "%g s",
              tune->point_count, p.noisy, p.left_out, LONGEST);
    free(p.cell);
    free(runs);
    free(b.send);
    free(b.recv);
}
