/* SPDX-License-Identifier: BSD-3-Clause */
#include "stats.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *left, const void *right)
{
    const double first = *(const double *)left, second = *(const double *)right;
    return (first > second) - (first < second);
}

double stats_quantile(double *values, int count, double share)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    const double position = share * (count - 1);
    const int below = (int)position;
    return below + 1 < count ? values[below] + (position - below) * (values[below + 1] - values[below])
                             : values[count - 1];
}

struct stats stats_of(double *values, int count)
{
    const double low = stats_quantile(values, count, 0.25), high = stats_quantile(values, count, 0.75);
    return (struct stats){stats_quantile(values, count, 0.5), (high - low) / 2};
}

static double error_of(const struct line *line, const double *x, const double *y, const double *unit, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++) {
        const double error = (line->intercept + line->slope * x[i] - y[i]) / unit[i];
        sum += error * error;
    }
    return sqrt(sum / count);
}

double stats_line(struct line *line, const double *x, const double *y, const double *unit, int count)
{
    double weights = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
    for (int i = 0; i < count; i++) {
        const double weight = 1 / (unit[i] * unit[i]);
        weights += weight;
        wx += weight * x[i];
        wxx += weight * x[i] * x[i];
        wy += weight * y[i];
        wxy += weight * x[i] * y[i];
    }
    const double determinant = weights * wxx - wx * wx;
    *line = (struct line){0, 0};
    if (determinant > 0) {
        line->slope = (weights * wxy - wx * wy) / determinant;
        line->intercept = (wy - line->slope * wx) / weights;
    }
    if (!(determinant > 0) || line->intercept < 0 ||
        line->slope < 0) { /* the best line on the border: through the origin, or constant */
        const struct line slope = {0, wxx > 0 && wxy > 0 ? wxy / wxx : 0}, constant = {wy > 0 ? wy / weights : 0, 0};
        *line = error_of(&slope, x, y, unit, count) <= error_of(&constant, x, y, unit, count) ? slope : constant;
    }
    return error_of(line, x, y, unit, count);
}
