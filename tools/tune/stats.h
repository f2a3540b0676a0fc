/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Medians, quartiles and a line through points. */
#ifndef PICI_TOOLS_TUNE_STATS_H
#define PICI_TOOLS_TUNE_STATS_H

/* Sort values [count], count >= 1, and return the value below which a share share of them lies, interpolated. */
double stats_quantile(double *values, int count, double share);

/* The median of v [n], and half of its interquartile range. Sorts v. */
struct stats {
    double median, spread;
};
struct stats stats_of(double *values, int count);

/* y = intercept + slope x, neither below 0, by least squares of the errors divided by unit. Returns the root of the
 * mean square of these. n >= 1, and all unit > 0. */
struct line {
    double intercept, slope;
};
double stats_line(struct line *, const double *x, const double *y, const double *unit, int count);

#endif
