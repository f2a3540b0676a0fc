/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shows predictions: as tables on a terminal, as JSON, as pictures and as a page. */
#ifndef PICI_TOOLS_SHOW_PREDICTED_H
#define PICI_TOOLS_SHOW_PREDICTED_H

#include "show/canvas.h"
#include "show/jsonout.h"
#include "predict.h"

void predicted_print(const struct predict *);
void predicted_json(const struct predict *, struct jsonout *);

/* Draw the plot of a collective on a canvas that `begin` makes. density and bytes are indices; each plot ignores the
 * one that is its axis. Returns an exit status. */
int predicted_draw(const struct predict *, enum predict_plot, int collective, int density, int bytes,
                   struct canvas *(*begin)(struct output *, unsigned width, unsigned height), struct output *output);

/* Write a page with all plots. Returns an exit status. */
int predicted_html(const struct predict *, struct output *output);

#endif
