/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PICI_TOOLS_SHOW_SVG_H
#define PICI_TOOLS_SHOW_SVG_H

#include "show/canvas.h"

struct markup;

/* A canvas that writes an SVG file to output. NULL: no memory. */
struct canvas *canvas_svg(struct output *output, unsigned width, unsigned height);

/* A canvas that writes an SVG element into an HTML page. NULL: no memory. */
struct canvas *canvas_svg_in(struct markup *page, unsigned width, unsigned height);

#endif
