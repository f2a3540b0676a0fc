/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Sums of smooth fields with the codec ZFP, in one, two and three dimensions: bytes sent, and errors beside the bounds.
 * --verbose shows the figures. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/util/coll.h"
#include "values/values.h"

enum { P = 4, SIDE = 32, MODES = 40, N = SIDE * SIDE * SIDE };

struct fields {
    struct pici_comm *comm[P];
    struct pici_coll_opts opts;
    float *send[P], *recv[P];
    struct pici_coll_stats stats[P];
    enum pici_status status[P];
};

/* MODES waves, those of short length with small amplitudes: |k|^(-11/6), as in turbulence. */
static void fill(float *field, int rank)
{
    struct rng r = {(uint64_t)(rank + 1)};
    memset(field, 0, N * sizeof *field);
    for (int m = 0; m < MODES; m++) {
        float wave[3][SIDE];
        double square = 0;
        for (int d = 0; d < 3; d++) {
            const int k = (int)rng_below(&r, 6);
            const double phase = (double)rng_below(&r, 1000) * .00628;
            square += k * k;
            for (int i = 0; i < SIDE; i++)
                wave[d][i] = (float)cos(k * i * 3.14159265358979 / SIDE + phase);
        }
        const float amplitude = (float)pow(square > 1 ? square : 1, -11. / 12);
        for (int i = 0; i < N; i++)
            field[i] += amplitude * wave[0][i % SIDE] * wave[1][i / SIDE % SIDE] * wave[2][i / SIDE / SIDE];
    }
}

static void rank_call(void *context, int rank)
{
    struct fields *f = context;
    struct pici_coll_opts o = f->opts;
    o.stats = &f->stats[rank];
    f->status[rank] = pici_all_reduce(f->send[rank], f->recv[rank], N, PICI_F32, PICI_SUM, f->comm[rank], &o);
}

struct figures {
    double bytes, worst, rms; /* of the dense buffer's; of the sums' rms */
};

/* A sum on all ranks, beside the exact one. */
static struct figures sum_of(struct fields *f, const struct pici_values *values)
{
    const struct pici_coll_stats none = PICI_COLL_STATS_INIT;
    struct figures g = {0};
    double squares = 0, exact_squares = 0;
    for (int r = 0; r < P; r++)
        f->stats[r] = none;
    f->opts.values = values;
    coll_threads(P, rank_call, f);
    for (int r = 0; r < P; r++) {
        cr_assert_eq(f->status[r], PICI_OK, "rank %d: %s", r, pici_strerror(f->status[r]));
        cr_assert(memcmp(f->recv[r], f->recv[0], N * sizeof(float)) == 0, "rank %d has other bytes", r);
        g.bytes += (double)f->stats[r].wire_bytes / P / (N * sizeof(float));
    }
    for (int i = 0; i < N; i++) {
        double exact = 0;
        for (int r = 0; r < P; r++)
            exact += (double)f->send[r][i];
        const double off = fabs((double)f->recv[0][i] - exact);
        g.worst = fmax(g.worst, off);
        squares += off * off;
        exact_squares += exact * exact;
    }
    g.rms = sqrt(squares / exact_squares);
    return g;
}

Test(coll_values_fields, shape_pays_and_errors_are_bounded)
{
    struct fields f = {.opts = PICI_COLL_OPTS_INIT};
    struct pici_values v = PICI_VALUES_INIT;
    struct values resolved;
    v.codec = PICI_VALUES_ZFP;
    v.rate = 8;
    if (pici_values_resolve(&resolved, &v, PICI_F32, PICI_SUM)) {
        fprintf(stderr, "skip: sums of smooth fields, built without libzfp\n");
        return;
    }
    cr_assert_eq(pici_comm_threads(f.comm, P), PICI_OK);
    for (int r = 0; r < P; r++) {
        f.send[r] = test_alloc(N * sizeof(float));
        f.recv[r] = test_alloc(N * sizeof(float));
        fill(f.send[r], r);
    }
    /* all algorithms: the same bytes on all ranks, and the worst case of each: an error of each event */
    for (int a = 1; a <= coll_algorithms(); a++)
        for (int d = 1; d <= 3 && coll_has((enum pici_algorithm)a, PICI_ALL_REDUCE); d++)
            for (int mode = 0; mode < 2; mode++) {
                f.opts.algorithm = (enum pici_algorithm)a;
                v.rate = mode ? 0 : 12;
                v.tolerance = mode ? 1e-3 : 0;
                v.nx = d > 1 ? SIDE : 0;
                v.ny = d > 2 ? SIDE : 0;
                const struct figures g = sum_of(&f, &v);
                const int events = a == PICI_ALGO_DOUBLING ? 2 * (P - 1) : P;
                const double bound = mode ? events * exp2(floor(log2(1e-3))) + 1e-5 : .05;
                cr_expect(g.worst > 0 && g.worst < bound, "%s, %d-D, %s: %g",
                          pici_algorithm_name((enum pici_algorithm)a), d, mode ? "tolerance" : "rate", g.worst);
            }
    f.opts.algorithm = PICI_ALGO_SPLIT;
    const double exact = sum_of(&f, NULL).bytes;
    static const double settings[] = {8, 16, -1e-2, -1e-3, -1e-4}; /* rates; tolerances, negative */
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
        struct figures last = {.bytes = 1e9, .rms = 1e9};
        for (int d = 1; d <= 3; d++) {
            const double rate = settings[s] > 0 ? settings[s] : 0, tolerance = rate > 0 ? 0 : -settings[s];
            v.rate = rate;
            v.tolerance = tolerance;
            v.nx = d > 1 ? SIDE : 0;
            v.ny = d > 2 ? SIDE : 0;
            const struct figures g = sum_of(&f, &v);
            cr_log_info("%d-D, %s %g: bytes %.1f%% of exact, greatest error %.3g, rms error %.3g of rms", d,
                        rate > 0 ? "rate" : "tolerance", rate > 0 ? rate : tolerance, 100 * g.bytes / exact, g.worst,
                        g.rms);
            if (rate > 0) { /* the same bytes, and smaller errors in more dimensions */
                cr_expect(g.bytes / exact > rate / 32 && g.bytes / exact < rate / 32 + .02, "%d-D, rate %g", d, rate);
                cr_expect_lt(g.rms, last.rms * .75, "%d-D, rate %g", d, rate);
            } else { /* the other way round */
                cr_expect_lt(g.bytes, last.bytes * .9, "%d-D, tolerance %g", d, tolerance);
                /* an event on each rank's way to the sum; f32 sums are rounded besides */
                cr_expect_leq(g.worst, P * exp2(floor(log2(tolerance))) + 1e-5, "%d-D, tolerance %g", d, tolerance);
                cr_expect_gt(g.worst, tolerance / 100, "the codec was not used");
            }
            last = g;
        }
    }
    for (int r = 0; r < P; r++) {
        pici_comm_free(f.comm[r]);
        free(f.send[r]);
        free(f.recv[r]);
    }
}
