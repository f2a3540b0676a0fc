/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Pictures of the nonzeros of tensors, as PNG, as SVG, or in an HTML page. Each tensor has a panel: its name, and a
 * plot of its matrix. */
#ifndef PICI_TOOLS_SHOW_IMAGE_H
#define PICI_TOOLS_SHOW_IMAGE_H

#include "measure/grid.h"
#include "output/output.h"

struct image;

/* Begin a picture. tensors: the expected number of panels, 0 if unknown; more panels have fewer cells each. in_page:
 * panels fit in a window of 420 pixels. NULL: no memory. */
struct image *image_new(const char *title, uint64_t tensors, bool in_page);

/* The maximum of cells in each direction of a panel's grid. */
unsigned image_side(const struct image *image);

/* Add a panel: a name, and up to three lines about it; each may be "". Panels beyond a thousand are only counted.
 * False: no memory. */
enum { IMAGE_LINES = 3 };
bool image_add(struct image *image, const char *name, const char *const lines[IMAGE_LINES], const struct grid *grid);

/* Write the picture; returns an exit status. */
int image_png(const struct image *image, struct output *output);
int image_svg(const struct image *image, struct output *output);

/* Write the panels as figures of an HTML page; names and lines are text. */
struct markup;
int image_html(const struct image *image, struct markup *page);

void image_free(struct image *image);

#endif
