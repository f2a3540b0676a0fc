/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a picture is drawn on: rectangles and short texts, in pixels from the upper left corner. A canvas notes its first
 * failure, ignores what comes after it, and canvas->finish reports it. */
#ifndef PICI_TOOLS_SHOW_CANVAS_H
#define PICI_TOOLS_SHOW_CANVAS_H

#include "show/heat.h"
#include "io.h"

/* Colours: a level of the heat scale (0 .. HEAT_TOP), or one of these. */
enum { INK_PAPER = HEAT_TOP + 1, INK_TEXT, INK_FAINT, INK_LINE, INK_END };

enum { CANVAS_CHAR = 12, CANVAS_LINE = 18 }; /* pixels from one character, or line, to the next */

struct canvas {
    void (*rect)(struct canvas *, unsigned x, unsigned y, unsigned width, unsigned height, unsigned ink);
    void (*text)(struct canvas *, unsigned x, unsigned y, const char *text, unsigned ink); /* x, y: its upper left */
    int (*finish)(struct canvas *); /* writes what is not written, frees; an exit status */
    struct output *out;
    unsigned width, height;
};

/* A canvas whose bytes go to out; NULL: no memory. */
struct canvas *canvas_png(struct output *out, unsigned width, unsigned height);
struct canvas *canvas_svg(struct output *out, unsigned width, unsigned height);

/* The same as an element of a page. */
struct markup;
struct canvas *canvas_svg_in(struct markup *page, unsigned width, unsigned height);

void ink_colour(unsigned ink, uint8_t rgb[3]);

#endif
