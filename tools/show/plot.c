/* SPDX-License-Identifier: BSD-3-Clause */
#include "show/plot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { CELL_MOST = 24, ACROSS_MOST = 40, TICK = 4 }; /* pixels */

static unsigned at_most(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Pixels of a cell in the shorter direction; `along` cells in the longer direction have `pixel` pixels each. The scale
 * is the same, or larger if the picture would be too narrow. */
static unsigned across_cell(unsigned pixel, uint64_t per, uint64_t across_per, unsigned along, unsigned across)
{
    const unsigned same = (unsigned)(pixel * across_per / per), wide = along * pixel / GRID_ASPECT / across;
    const unsigned cell = same > wide ? same : at_most(wide, ACROSS_MOST);
    return cell ? cell : 1;
}

bool plot_init(struct plot *plot, const struct grid *grid, unsigned side)
{
    *plot = (struct plot){.rows = {grid->rows, grid->cell_rows, 0}, .columns = {grid->columns, grid->cell_columns, 0}};
    if (!grid->elements)
        return true;
    const bool upright = grid->high > grid->wide;
    const unsigned pixel = at_most(side / (upright ? grid->high : grid->wide), CELL_MOST);
    if (grid->wrapped) {
        plot->columns.cell = pixel;
        plot->rows.cell = across_cell(pixel, 1, 1, grid->wide, grid->high);
        plot->rows.end = grid->elements; /* the label of a row is its first element */
        plot->rows.cell_indices = grid->columns;
    } else if (upright) {
        plot->rows.cell = pixel;
        plot->columns.cell = across_cell(pixel, grid->cell_rows, grid->cell_columns, grid->high, grid->wide);
    } else {
        plot->columns.cell = pixel;
        plot->rows.cell = across_cell(pixel, grid->cell_columns, grid->cell_rows, grid->wide, grid->high);
    }
    plot->width = grid->wide * plot->columns.cell;
    plot->height = grid->high * plot->rows.cell;
    plot->level = malloc((size_t)grid->high * grid->wide * sizeof *plot->level);
    if (!plot->level)
        return false;
    plot->cells = (struct canvas_cells){plot->columns.cell, plot->rows.cell, grid->wide, 0, plot->level};
    for (unsigned y = 0; y < grid->high; y++)
        for (unsigned x = 0; x < grid->wide; x++) {
            uint64_t nonzeros, elements;
            grid_part(grid, y, grid->high, x, grid->wide, &nonzeros, &elements);
            if (elements)
                plot->level[plot->cells.count++] = (uint16_t)heat_level(nonzeros, elements);
        }
    return true;
}

/* The distance of labels: 1, 2 or 5 times a power of ten, at least `gap` pixels. */
static uint64_t distance(const struct plot_axis *axis, unsigned gap)
{
    static const uint64_t steps[] = {1, 2, 5};
    for (uint64_t ten = 1; ten <= UINT64_MAX / 50; ten *= 10)
        for (int i = 0; i < 3; i++)
            if ((double)(steps[i] * ten) * axis->cell >= (double)gap * (double)axis->cell_indices)
                return steps[i] * ten;
    return UINT64_MAX;
}

/* The pixel of an index: the middle of its cell, if each index has a cell. */
static unsigned pixel_of(const struct plot_axis *axis, uint64_t index)
{
    const double cell = (double)axis->cell;
    return (unsigned)((double)(index / axis->cell_indices) * cell +
                      (double)(index % axis->cell_indices) / (double)axis->cell_indices * cell +
                      (axis->cell_indices == 1 ? cell / 2 : 0));
}

/* Draws a label of an axis, in at most five characters. If the last index is longer, the unit is thousands, millions
 * and so on; labels are multiples of it, since there are few of them. */
static void label(struct canvas *canvas, unsigned x, unsigned y, uint64_t index, uint64_t end,
                  enum canvas_anchor anchor)
{
    static const char units[] = " kMGTPE";
    unsigned prefix = 0;
    uint64_t unit = 1;
    for (; end / unit > 10000 && prefix < 6; prefix++)
        unit *= 1000;
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64 "%.*s", index / unit, prefix && index, &units[prefix]);
    canvas->text(canvas, x, y, text, anchor, INK_FAINT);
}

/* Advances *index by step, unless it would reach end. */
static bool next(uint64_t *index, uint64_t step, uint64_t end)
{
    if (end - *index <= step)
        return false;
    *index += step;
    return true;
}

void plot_draw(const struct plot *plot, struct canvas *canvas, unsigned x, unsigned y)
{
    enum { COLUMNS_APART = 6 * CANVAS_CHAR, ROWS_APART = 2 * CANVAS_LINE };
    if (!plot->width)
        return;
    x += PLOT_LEFT;
    y += PLOT_TOP;
    uint64_t step = distance(&plot->columns, COLUMNS_APART), index = 0;
    do {
        const unsigned position = x + pixel_of(&plot->columns, index);
        canvas->rect(canvas, position, y - 1 - TICK, 1, TICK, INK_FAINT);
        label(canvas, position, y - PLOT_TOP, index, plot->columns.end, ANCHOR_MIDDLE);
    } while (next(&index, step, plot->columns.end));
    step = distance(&plot->rows, ROWS_APART);
    index = 0;
    do {
        const unsigned position = y + pixel_of(&plot->rows, index);
        canvas->rect(canvas, x - 1 - TICK, position, TICK, 1, INK_FAINT);
        label(canvas, x - 2 * TICK, position - CANVAS_LINE / 2, index, plot->rows.end, ANCHOR_RIGHT);
    } while (next(&index, step, plot->rows.end));
    /* A line around the cells, since the lightest ones are nearly white. */
    const unsigned full = plot->cells.count / plot->cells.wide * plot->cells.cell_height;
    const unsigned rest = plot->cells.count % plot->cells.wide * plot->cells.cell_width;
    if (full)
        canvas->rect(canvas, x - 1, y - 1, plot->width + 2, full + 2, INK_LINE);
    if (rest)
        canvas->rect(canvas, x - 1, y + full - 1, rest + 2, plot->cells.cell_height + 2, INK_LINE);
    canvas->cells(canvas, x, y, &plot->cells);
}

void plot_free(struct plot *plot)
{
    free(plot->level);
    *plot = (struct plot){0};
}
