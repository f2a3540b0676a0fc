/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What pici-tune calculates: quantiles, and lines through points. */
#include <criterion/criterion.h>
#include <math.h>

#include "tune/stats.h"

Test(tool_tune, quantiles)
{
    double v[] = {5, 1, 4, 2, 3}, one[] = {7};
    const struct stats s = stats_of(v, 5), of_one = stats_of(one, 1);
    cr_expect(s.median == 3 && s.spread == 1, "%g %g", s.median, s.spread);
    cr_expect(of_one.median == 7 && of_one.spread == 0);
    cr_expect(stats_quantile(v, 5, 0) == 1 && stats_quantile(v, 5, 1) == 5 && stats_quantile(v, 5, 0.125) == 1.5);
    double even[] = {4, 1, 2, 3};
    cr_expect(stats_quantile(even, 4, 0.5) == 2.5);
}

static int near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

Test(tool_tune, line)
{
    double x[6], y[6], unit[6];
    struct line l;
    for (int i = 0; i < 6; i++) {
        x[i] = 1000 * pow(4, i);
        y[i] = unit[i] = 5e-5 + 4e-8 * x[i];
    }
    cr_expect(stats_line(&l, x, y, unit, 6) < 1e-9);
    cr_expect(near(l.intercept, 5e-5) && near(l.slope, 4e-8), "%g %g", l.intercept, l.slope);
    /* errors count in their units: the first three weigh more than the last, which is twice as large */
    y[5] *= 2;
    unit[5] *= 1e6;
    stats_line(&l, x, y, unit, 6);
    cr_expect(fabs(l.intercept - 5e-5) < 1e-9 && fabs(l.slope - 4e-8) < 1e-12, "%g %g", l.intercept, l.slope);
}

/* Neither number is ever below 0. */
Test(tool_tune, line_at_the_border)
{
    const double x[] = {1, 2, 3}, unit[] = {1, 1, 1}, steep[] = {0, 2, 4}, falling[] = {3, 2, 1},
                 below[] = {-1, -2, -3};
    struct line l;
    stats_line(&l, x, steep, unit, 3); /* -2 + 2 x, without the border */
    cr_expect(l.intercept == 0 && near(l.slope, 16.0 / 14), "%g %g", l.intercept, l.slope);
    stats_line(&l, x, falling, unit, 3);
    cr_expect(near(l.intercept, 2) && l.slope == 0, "%g %g", l.intercept, l.slope);
    stats_line(&l, x, below, unit, 3);
    cr_expect(l.intercept == 0 && l.slope == 0, "%g %g", l.intercept, l.slope);
    stats_line(&l, x, x, unit, 1);
    cr_expect(near(l.intercept + l.slope, 1) && l.intercept >= 0 && l.slope >= 0, "%g %g", l.intercept, l.slope);
}
