/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Pictures of where tensors have nonzeros, as PNG, as SVG, or in an HTML page: a panel for each tensor, which is a plot
 * of its matrix under its name. */
#ifndef PICI_TOOLS_SHOW_IMAGE_H
#define PICI_TOOLS_SHOW_IMAGE_H

#include "measure/grid.h"
#include "output/output.h"

struct image;

/* Begin a picture. tensors: how many panels to expect; the more, the fewer cells has each. 0: not known. in_page: its
 * panels are to fit in a window of 420 pixels. NULL: no memory. */
struct image *image_new(const char *title, uint64_t tensors, bool in_page);

/* The most cells that a grid for a panel should have in each direction. */
unsigned image_side(const struct image *image);

/* Add a panel: a name and up to three lines about it, each of which may be "". Panels beyond a thousand are only
 * counted. False: no memory. */
enum { IMAGE_LINES = 3 };
bool image_add(struct image *image, const char *name, const char *const lines[IMAGE_LINES], const struct grid *grid);

/* Write the picture; returns an exit status. */
int image_png(const struct image *image, struct output *output);
int image_svg(const struct image *image, struct output *output);

/* Write the panels as figures of an HTML page, with names and lines as text. */
struct markup;
int image_html(const struct image *image, struct markup *page);

void image_free(struct image *image);

#endif
