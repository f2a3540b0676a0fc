/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The losses of a linear classifier, and what coordinate ascent needs of their duals. A label y is 1 or -1, and z the
 * score of an example: logistic regression has log(1 + exp(-yz)), a support vector machine max(0, 1 - yz).
 *
 * The dual of  mean loss + lambda / 2 |w|^2  over n examples has a coordinate a in [0, 1] for each example, and the
 * weights are  sum of a y x / (lambda n).  Shalev-Shwartz and Zhang, "Stochastic Dual Coordinate Ascent Methods", 2013;
 * Ma and others, "Adding vs. Averaging in Distributed Primal-Dual Optimization", 2015. */
#ifndef EXAMPLES_LOSS_H
#define EXAMPLES_LOSS_H

#include <math.h>

enum loss { LOSS_LOGISTIC, LOSS_HINGE };

/* of an example with yz */
static inline double loss_at(enum loss loss, double yz)
{
    if (loss == LOSS_HINGE)
        return fmax(0, 1 - yz);
    return fmax(-yz, 0) + log1p(exp(-fabs(yz)));
}

/* Minus its derivative, from 0 to 1. */
static inline double loss_pull(enum loss loss, double yz)
{
    if (loss == LOSS_HINGE)
        return yz < 1;
    return 1 / (1 + exp(yz));
}

/* What an example with the coordinate a adds to the dual objective. */
static inline double loss_dual(enum loss loss, double a)
{
    if (loss == LOSS_HINGE)
        return a;
    return -(a > 0 ? a * log(a) : 0) - (a < 1 ? (1 - a) * log1p(-a) : 0);
}

/* The coordinate of an example after a step that raises the dual objective. curvature: |x|^2 / (lambda n), times the
 * number of ranks that take steps at the same time and add them. */
static inline double loss_ascend(enum loss loss, double a, double yz, double curvature)
{
    double to;
    if (loss == LOSS_HINGE) /* to the maximum */
        to = a + (1 - yz) / curvature;
    else
        to = a + (loss_pull(loss, yz) - a) / fmax(1, 0.25 + curvature);
    return fmin(1, fmax(0, to));
}

#endif
