/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A picture of a tensor's nonzeros as a matrix: cells coloured by density, and axes with the indices of rows and
 * columns. */
#ifndef PICI_TOOLS_SHOW_PLOT_H
#define PICI_TOOLS_SHOW_PLOT_H

#include "measure/grid.h"
#include "show/canvas.h"

/* Pixels around the cells: on the left for row indices, above for column indices, on the right for half of the last
 * index. */
enum { PLOT_LEFT = 5 * CANVAS_CHAR + 8, PLOT_TOP = CANVAS_LINE + 6, PLOT_RIGHT = 24, PLOT_BELOW = CANVAS_LINE / 2 };

struct plot_axis {
    uint64_t end;          /* the last index + 1 */
    uint64_t cell_indices; /* indices in a cell, or in a row of cells */
    unsigned cell;         /* pixels of a cell */
};

struct plot {
    unsigned width, height; /* pixels of the cells; 0 for a tensor without elements */
    struct plot_axis rows, columns;
    struct canvas_cells cells;
    uint16_t *level;
};

/* Make the picture of a complete grid. side: maximum pixels of the cells' longer direction. False: no memory. */
bool plot_init(struct plot *plot, const struct grid *grid, unsigned side);

/* Draw the picture. x, y: the upper left corner of the axes. The cells are PLOT_LEFT to the right and PLOT_TOP
 * below. */
void plot_draw(const struct plot *plot, struct canvas *canvas, unsigned x, unsigned y);

void plot_free(struct plot *plot);

#endif
