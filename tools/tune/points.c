/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A cell is a collective, a number of bytes and a density. The candidates of a cell are measured in turns. Dense ones
 * take the same time at any density, so they are measured only at a density of 1. Rank 0 chooses the next cell: first a
 * coarse grid, then the cells whose two best candidates have the closest predictions. */
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
    CANDIDATES_MOST = 2 * SCHEDULES_MOST + 1 /* sparse and dense schedules, and the native collective */
};
static const double densities[DENSITIES] = {0.001, 0.01, 0.05, 0.2, 1};
static const double LONGEST = 2;     /* seconds of a dense run; slower cells are left out */
static const double HOPELESS = 3;    /* times the best; slower candidates are not tried with more data */
static const double SHORTEST = 1e-3; /* seconds; several shorter calls are timed together */

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
    int dropped[KINDS][DENSITIES][CANDIDATES_MOST]; /* the size from which the candidate is hopeless */
    int noisy, left_out;                            /* points; cells */
};

struct buffers {
    float *send, *recv;
    uint64_t elements, filled;
    double density; /* of the first `filled` of send */
    uint64_t state;
};

/* ---- the plan. Except for make_plan, rank 0 calls these functions. */

static int make_plan(struct plan *plan, const struct world *world, const struct points_options *options)
{
    *plan = (struct plan){.options = options};
    for (const struct schedule *schedule = pici_schedules; schedule->name; schedule++) {
        if (!pici_schedule_distinct(schedule, world->ranks, world->nodes.nodes))
            continue;
        for (int dense = 0; dense < 2; dense++)
            plan->candidate[plan->candidates++] = (struct model_candidate){.algorithm = schedule->id, .dense = dense};
    }
    if (world->native)
        plan->candidate[plan->candidates++] = (struct model_candidate){.dense = 1, .native = MODEL_NATIVE};
    for (uint64_t bytes = options->least; bytes <= options->most && plan->sizes < SIZES_MOST; bytes *= 4)
        plan->bytes[plan->sizes++] = bytes;
    plan->cell = calloc((size_t)KINDS * (size_t)(plan->sizes ? plan->sizes : 1) * DENSITIES, sizeof *plan->cell);
    for (int kind = 0; kind < KINDS; kind++)
        for (int density = 0; density < DENSITIES; density++)
            for (int candidate = 0; candidate < CANDIDATES_MOST; candidate++)
                plan->dropped[kind][density][candidate] = SIZES_MOST;
    return plan->cell != NULL;
}

static int cells_of(const struct plan *plan)
{
    return KINDS * plan->sizes * DENSITIES;
}

/* A cell's index is (kind * sizes + size) * DENSITIES + density. */
static int kind_at(const struct plan *plan, int cell)
{
    return cell / DENSITIES / plan->sizes;
}

static int size_at(const struct plan *plan, int cell)
{
    return cell / DENSITIES % plan->sizes;
}

static struct call call_of(const struct plan *plan, const struct world *world, int cell)
{
    return world_call((enum pici_collective)(PICI_ALL_GATHER + kind_at(plan, cell)), plan->bytes[size_at(plan, cell)],
                      densities[cell % DENSITIES], world->ranks);
}

static int can(const struct plan *plan, int cell, int candidate)
{
    const struct model_candidate *wanted = &plan->candidate[candidate];
    const int kind = PICI_ALL_GATHER + kind_at(plan, cell);
    return wanted->native || pici_schedule(wanted->algorithm)->collectives >> kind & 1;
}

/* Whether to measure a candidate in a cell. */
static int live(const struct plan *plan, int cell, int candidate)
{
    const int density = cell % DENSITIES;
    return can(plan, cell, candidate) && (!plan->candidate[candidate].dense || density == DENSITIES - 1) &&
           size_at(plan, cell) < plan->dropped[kind_at(plan, cell)][density][candidate];
}

static double predicted(struct tune *tune, const struct world *world, const struct call *shape,
                        const struct model_candidate *candidate)
{
    struct model_call call = pici_model_call;
    call.kind = shape->kind;
    call.bytes = shape->bytes;
    call.ranks = world->ranks;
    call.nodes = &world->nodes;
    call.density = shape->density;
    return pici_tune_seconds(tune, &call, candidate);
}

/* Expected for a cell: seconds to measure it, ratio of the two best candidates, seconds of the best dense run. */
struct outlook {
    double seconds, ratio, dense;
};

static struct outlook look_at(const struct plan *plan, struct tune *tune, const struct world *world, int cell)
{
    const struct call call = call_of(plan, world, cell);
    const int dense_cell = cell - cell % DENSITIES + DENSITIES - 1;
    double best = INFINITY, next = INFINITY;
    struct outlook outlook = {0, 0, INFINITY};
    for (int candidate = 0; candidate < plan->candidates; candidate++) {
        const double seen = plan->cell[plan->candidate[candidate].dense ? dense_cell : cell].seconds[candidate];
        double expected = seen;
        if (!(seen > 0))
            expected = can(plan, cell, candidate) ? predicted(tune, world, &call, &plan->candidate[candidate]) : -1;
        if (!(expected > 0))
            continue;
        outlook.seconds += live(plan, cell, candidate) ? expected * (REPEATS + 1) : 0;
        if (plan->candidate[candidate].dense && expected < outlook.dense)
            outlook.dense = expected;
        if (expected < best)
            next = best;
        else if (expected < next)
            next = expected;
        best = expected < best ? expected : best;
    }
    outlook.ratio = next / best;
    return outlook;
}

/* The next cell to measure; -1: none fits in the remaining time. */
static int next_cell(struct plan *plan, struct tune *tune, const struct world *world, double seconds_left)
{
    int next = -1;
    double least = INFINITY;
    for (int cell = 0; cell < cells_of(plan); cell++) {
        if (plan->cell[cell].done)
            continue;
        const struct outlook outlook = look_at(plan, tune, world, cell);
        const int coarse = size_at(plan, cell) % 2 == 0 && (cell % DENSITIES == 1 || cell % DENSITIES == DENSITIES - 1);
        if (outlook.dense > LONGEST) {
            plan->cell[cell].done = 1;
            plan->left_out++;
        } else if (coarse && outlook.seconds < seconds_left / 3) {
            return cell;
        } else if (outlook.seconds < seconds_left && outlook.ratio < least) {
            least = outlook.ratio;
            next = cell;
        }
    }
    return next;
}

/* Drops candidates that are far behind: they are not tried with more data. */
static void drop(struct plan *plan, int cell)
{
    const int kind = kind_at(plan, cell), density = cell % DENSITIES;
    double best = INFINITY;
    for (int candidate = 0; candidate < plan->candidates; candidate++)
        if (plan->cell[cell].seconds[candidate] > 0 && plan->cell[cell].seconds[candidate] < best)
            best = plan->cell[cell].seconds[candidate];
    for (int candidate = 0; candidate < plan->candidates; candidate++)
        if (plan->cell[cell].seconds[candidate] > HOPELESS * best &&
            size_at(plan, cell) + 1 < plan->dropped[kind][density][candidate])
            plan->dropped[kind][density][candidate] = size_at(plan, cell) + 1;
}

/* ---- measuring */

/* Prepares memory and data for a call. 0: a rank lacks memory. */
static int prepare(const struct world *world, struct buffers *buffers, const struct call *call)
{
    const uint64_t elements = call->bytes / sizeof(float);
    int good = 1;
    if (elements > buffers->elements) {
        free(buffers->send);
        free(buffers->recv);
        buffers->send = malloc(elements * sizeof *buffers->send);
        buffers->recv = malloc(elements * sizeof *buffers->recv);
        buffers->elements = buffers->send && buffers->recv ? elements : 0;
        buffers->filled = 0;
        good = buffers->elements > 0;
        if (good)
            memset(buffers->recv, 0, elements * sizeof *buffers->recv);
    }
    if (good && (buffers->density != call->density || buffers->filled < elements)) {
        world_fill(buffers->send, elements, call->density, &buffers->state);
        buffers->filled = elements;
        buffers->density = call->density;
    }
    return world_max(world, !good) == 0;
}

static double timed(const struct world *world, const struct buffers *buffers, const struct call *call,
                    const struct model_candidate *candidate, int times)
{
    MPI_Barrier(world->mpi);
    return world_max(world, world_run(world, world->comm, call, candidate, buffers->send, buffers->recv, times));
}

struct runs {
    int times, count;
    double seconds[2 * REPEATS];
};

/* Runs the candidates whose bits are in `set` in turns, REPEATS times each. */
static void take_turns(const struct world *world, const struct plan *plan, const struct buffers *buffers,
                       const struct call *call, uint64_t set, struct runs *runs)
{
    for (int i = 0; i < REPEATS; i++)
        for (int candidate = 0; candidate < plan->candidates; candidate++)
            if (set >> candidate & 1)
                runs[candidate].seconds[runs[candidate].count++] =
                    timed(world, buffers, call, &plan->candidate[candidate], runs[candidate].times);
}

/* The noisy candidates of a set. */
static uint64_t noisy(const struct plan *plan, uint64_t set, const struct runs *runs)
{
    uint64_t loud = 0;
    for (int candidate = 0; candidate < plan->candidates; candidate++) {
        struct runs copy = runs[candidate];
        if (!(set >> candidate & 1))
            continue;
        const struct stats stats = stats_of(copy.seconds, copy.count);
        loud |= (uint64_t)(2 * stats.spread > plan->options->noise * stats.median) << candidate;
    }
    return loud;
}

/* Measures the candidates of a set. 0: no time or no memory. Times are the same on all ranks. */
static int measure(const struct world *world, const struct plan *plan, struct buffers *buffers, const struct call *call,
                   uint64_t set, int must, struct runs runs[CANDIDATES_MOST])
{
    double expected = 0;
    memset(runs, 0, CANDIDATES_MOST * sizeof *runs);
    if (!prepare(world, buffers, call))
        return 0;
    for (int candidate = 0; candidate < plan->candidates; candidate++) {
        if (!(set >> candidate & 1))
            continue;
        const double once = timed(world, buffers, call, &plan->candidate[candidate], 1),
                     again = timed(world, buffers, call, &plan->candidate[candidate], 1);
        const double least = once < again ? once : again, times = ceil(SHORTEST / least);
        if (times < 1)
            runs[candidate].times = 1;
        else
            runs[candidate].times = times < TIMES_MOST ? (int)times : TIMES_MOST;
        expected += REPEATS * least * runs[candidate].times;
    }
    if (!must && expected > world_left(world))
        return 0;
    take_turns(world, plan, buffers, call, set, runs);
    take_turns(world, plan, buffers, call, expected < world_left(world) ? noisy(plan, set, runs) : 0, runs);
    return 1;
}

/* ---- results, on rank 0 */

static void add_point(const struct world *world, struct tune *tune, const struct call *call,
                      const struct model_candidate *candidate, struct stats stats)
{
    struct tune_point *more = realloc(tune->points, (tune->point_count + 1) * sizeof *more);
    if (!more)
        world_die(world, "no memory");
    tune->points = more;
    struct tune_point *point = &more[tune->point_count++];
    *point = (struct tune_point){.collective = call->kind,
                                 .dtype = PICI_F32,
                                 .bytes = call->bytes,
                                 .density = call->density,
                                 .candidate = *candidate,
                                 .seconds = stats.median,
                                 .spread = stats.spread};
}

static const char *name_of(const struct model_candidate *candidate)
{
    return candidate->native ? "native" : pici_schedule(candidate->algorithm)->name;
}

static void record(const struct world *world, struct plan *plan, struct tune *tune, int cell, const struct call *call,
                   uint64_t set, struct runs *runs)
{
    int best = -1;
    const uint64_t loud = noisy(plan, set, runs);
    for (int candidate = 0; candidate < plan->candidates; candidate++) {
        if (!(set >> candidate & 1))
            continue;
        const struct stats stats = stats_of(runs[candidate].seconds, runs[candidate].count);
        plan->cell[cell].seconds[candidate] = stats.median;
        if (best < 0 || stats.median < plan->cell[cell].seconds[best])
            best = candidate;
        if (loud >> candidate & 1)
            plan->noisy++;
        else
            add_point(world, tune, call, &plan->candidate[candidate], stats);
    }
    pici_tune_sort(tune);
    drop(plan, cell);
    if (best >= 0) {
        const char *const messages = plan->candidate[best].dense ? "dense" : "sparse";
        world_say(world, "%s %llu bytes, density %g: %s %s, %.3g ms%s", pici_model_name(call->kind),
                  (unsigned long long)call->bytes, call->density, name_of(&plan->candidate[best]), messages,
                  plan->cell[cell].seconds[best] * 1e3, loud >> best & 1 ? " (noisy)" : "");
    }
}

void points_measure(struct world *world, struct tune *tune, const struct points_options *options)
{
    struct plan plan;
    struct buffers buffers = {.state = UINT64_C(0x2545f4914f6cdd1d) * ((uint64_t)world->rank + 1)};
    struct runs *runs = malloc(CANDIDATES_MOST * sizeof *runs);
    int measured = 0;
    if (!runs || !make_plan(&plan, world, options))
        world_die(world, "no memory");
    for (;;) {
        double seconds_left = world_left(world);
        seconds_left = seconds_left > 0 ? seconds_left : 0;
        int chosen = 0;
        if (!world->rank)
            chosen = measured ? next_cell(&plan, tune, world, seconds_left) : DENSITIES - 1;
        const int cell = (int)world_said(world, chosen);
        uint64_t set = 0;
        if (cell < 0 || !plan.sizes)
            break;
        for (int candidate = 0; candidate < plan.candidates && !world->rank; candidate++)
            set |= (uint64_t)live(&plan, cell, candidate) << candidate;
        MPI_Bcast(&set, 1, MPI_UINT64_T, 0, world->mpi);
        const struct call call = call_of(&plan, world, cell);
        if (measure(world, &plan, &buffers, &call, set, !measured, runs) && !world->rank)
            record(world, &plan, tune, cell, &call, set, runs);
        plan.cell[cell].done = 1;
        measured++;
    }
    world_say(world, "%zu points; omitted %d that stayed noisy, and %d calls because a dense one takes over %g s",
              tune->point_count, plan.noisy, plan.left_out, LONGEST);
    free(plan.cell);
    free(runs);
    free(buffers.send);
    free(buffers.recv);
}
