/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A picture of tile densities, as PNG or SVG: a panel for each tensor, its tiles in the order of the elements. */
#ifndef PICI_TOOLS_SHOW_IMAGE_H
#define PICI_TOOLS_SHOW_IMAGE_H

#include "density.h"
#include "io.h"

struct image;

/* Begin a picture. tensors: how many panels to expect; the more, the smaller each. 0: not known. NULL: no memory. */
struct image *image_new(const char *title, uint64_t tensors);

/* Add a panel. Panels beyond a thousand are only counted. False: no memory. */
bool image_add(struct image *im, const char *name, const char *caption, const struct density *d);

/* Write the picture; returns an exit status. */
int image_png(const struct image *im, struct output *out);
int image_svg(const struct image *im, struct output *out);

/* The same as an element of an HTML page. */
struct markup;
int image_svg_in(const struct image *im, struct markup *page);

void image_free(struct image *im);

#endif
