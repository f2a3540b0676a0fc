/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Medians, quartiles, and a least-squares line. */
#ifndef PICI_TOOLS_TUNE_STATS_H
#define PICI_TOOLS_TUNE_STATS_H

/* Sort values [count], count >= 1, and return the quantile at `share`, interpolated. */
double stats_quantile(double *values, int count, double share);

/* The median of values [count], and half of the interquartile range. Sorts values. */
struct stats {
    double median, spread;
};
struct stats stats_of(double *values, int count);

/* Fit y = intercept + slope x, both >= 0, by least squares of the errors divided by unit. Returns the root mean square
 * of these errors. count >= 1, and all unit > 0. */
struct line {
    double intercept, slope;
};
double stats_line(struct line *, const double *x, const double *y, const double *unit, int count);

#endif
