/* SPDX-License-Identifier: BSD-3-Clause */
#include "stats.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *left, const void *right)
{
    const double x = *(const double *)left, y = *(const double *)right;
    return (x > y) - (x < y);
}

double stats_quantile(double *v, int n, double q)
{
    qsort(v, (size_t)n, sizeof *v, compare);
    const double at = q * (n - 1);
    const int i = (int)at;
    return i + 1 < n ? v[i] + (at - i) * (v[i + 1] - v[i]) : v[n - 1];
}

struct stats stats_of(double *v, int n)
{
    const double low = stats_quantile(v, n, 0.25), high = stats_quantile(v, n, 0.75);
    return (struct stats){stats_quantile(v, n, 0.5), (high - low) / 2};
}

static double error_of(const struct line *l, const double *x, const double *y, const double *unit, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        const double e = (l->a + l->b * x[i] - y[i]) / unit[i];
        sum += e * e;
    }
    return sqrt(sum / n);
}

double stats_line(struct line *l, const double *x, const double *y, const double *unit, int n)
{
    double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
    for (int i = 0; i < n; i++) {
        const double weight = 1 / (unit[i] * unit[i]);
        w += weight;
        wx += weight * x[i];
        wxx += weight * x[i] * x[i];
        wy += weight * y[i];
        wxy += weight * x[i] * y[i];
    }
    const double det = w * wxx - wx * wx;
    *l = (struct line){0, 0};
    if (det > 0) {
        l->b = (w * wxy - wx * wy) / det;
        l->a = (wy - l->b * wx) / w;
    }
    if (!(det > 0) || l->a < 0 || l->b < 0) { /* the best of the border: through the origin, or a constant */
        const struct line slope = {0, wxx > 0 && wxy > 0 ? wxy / wxx : 0}, constant = {wy > 0 ? wy / w : 0, 0};
        *l = error_of(&slope, x, y, unit, n) <= error_of(&constant, x, y, unit, n) ? slope : constant;
    }
    return error_of(l, x, y, unit, n);
}
