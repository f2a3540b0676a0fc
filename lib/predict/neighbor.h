/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How long a neighbourhood all-gather takes by a plan. */
#ifndef PICI_LIB_PREDICT_NEIGHBOR_H
#define PICI_LIB_PREDICT_NEIGHBOR_H

#include "schedule/neighbor.h"

/* The predicted seconds of a call, by the position and by the node with the most to do. A block has so many bytes, in
 * so many slices: a slice takes its steps one after another, each as long as its busiest node, and slices overlap.
 * bandwidth: bytes per second inside a node and between nodes. */
double pici_neighbor_seconds(const struct neighbor_route *, double bytes, double slices, const double bandwidth[2]);

#endif
