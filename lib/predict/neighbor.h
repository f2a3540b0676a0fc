/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Predicts the time of a neighbourhood all-gather by a plan. */
#ifndef PICI_LIB_PREDICT_NEIGHBOR_H
#define PICI_LIB_PREDICT_NEIGHBOR_H

#include "schedule/neighbor.h"

/* The predicted seconds of a call, from the busiest rank or the busiest node. A block has `bytes` bytes, in `slices`
 * slices. A slice takes its steps one after another, each as long as its busiest node, and slices overlap. bandwidth:
 * bytes per second inside a node and between nodes. */
double pici_neighbor_seconds(const struct neighbor_route *, double bytes, double slices, const double bandwidth[2]);

#endif
