/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The interface for drawing pictures: rectangles, matrices of cells, lines and short texts, in pixels from the upper
 * left corner. png.h and svg.h make canvases. A canvas remembers its first failure and ignores later calls;
 * canvas->finish returns the failure. */
#ifndef PICI_TOOLS_SHOW_CANVAS_H
#define PICI_TOOLS_SHOW_CANVAS_H

#include "output/output.h"
#include "show/heat.h"

/* Colours: a level of the heat scale (0 .. HEAT_TOP), or one of these. */
enum { INK_PAPER = HEAT_TOP + 1, INK_TEXT, INK_FAINT, INK_LINE, INK_END };

enum { CANVAS_CHAR = 12, CANVAS_LINE = 18 }; /* width of a character, at most, and height of a line, in pixels */

/* The point of a text's upper edge that x and y give. */
enum canvas_anchor { ANCHOR_LEFT, ANCHOR_MIDDLE, ANCHOR_RIGHT };

/* Equal cells in rows, each with a level of the heat scale. The last row may be shorter. */
struct canvas_cells {
    unsigned cell_width, cell_height; /* pixels */
    unsigned wide, count;             /* cells in a row; all cells */
    const uint16_t *level;            /* [count] */
};

struct canvas {
    void (*rect)(struct canvas *, unsigned x, unsigned y, unsigned width, unsigned height, unsigned ink);
    void (*cells)(struct canvas *, unsigned x, unsigned y, const struct canvas_cells *);
    void (*line)(struct canvas *, unsigned x, unsigned y, unsigned to_x, unsigned to_y, unsigned ink);
    void (*text)(struct canvas *, unsigned x, unsigned y, const char *text, enum canvas_anchor, unsigned ink);
    int (*finish)(struct canvas *); /* writes the rest, frees the canvas; returns an exit status */
    struct output *output;
    unsigned width, height;
};

/* The colour of an ink. */
void ink_colour(unsigned ink, uint8_t rgb[3]);

#endif
