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

/* Pixels of a cell of the shorter direction, beside along x pixel for the longer one: of the same scale, or more if the
 * picture would be too narrow to see. */
static unsigned across_cell(unsigned pixel, uint64_t per, uint64_t across_per, unsigned along, unsigned across)
{
    const unsigned same = (unsigned)(pixel * across_per / per), wide = along * pixel / GRID_ASPECT / across;
    const unsigned cell = same > wide ? same : at_most(wide, ACROSS_MOST);
    return cell ? cell : 1;
}

bool plot_init(struct plot *p, const struct grid *g, unsigned side)
{
    *p = (struct plot){.rows = {g->rows, g->row_per, 0}, .columns = {g->columns, g->column_per, 0}};
    if (!g->elements)
        return true;
    const bool upright = g->high > g->wide;
    const unsigned pixel = at_most(side / (upright ? g->high : g->wide), CELL_MOST);
    if (g->wrapped) {
        p->columns.cell = pixel;
        p->rows.cell = across_cell(pixel, 1, 1, g->wide, g->high);
        p->rows.end = g->elements; /* a row is labelled by its first element */
        p->rows.per = g->columns;
    } else if (upright) {
        p->rows.cell = pixel;
        p->columns.cell = across_cell(pixel, g->row_per, g->column_per, g->high, g->wide);
    } else {
        p->columns.cell = pixel;
        p->rows.cell = across_cell(pixel, g->column_per, g->row_per, g->wide, g->high);
    }
    p->width = g->wide * p->columns.cell;
    p->height = g->high * p->rows.cell;
    p->level = malloc((size_t)g->high * g->wide * sizeof *p->level);
    if (!p->level)
        return false;
    p->cells = (struct canvas_cells){p->columns.cell, p->rows.cell, g->wide, 0, p->level};
    for (unsigned y = 0; y < g->high; y++)
        for (unsigned x = 0; x < g->wide; x++) {
            uint64_t nnz, elements;
            grid_part(g, y, g->high, x, g->wide, &nnz, &elements);
            if (elements)
                p->level[p->cells.count++] = (uint16_t)heat_level(nnz, elements);
        }
    return true;
}

/* The distance of labels: 1, 2 or 5 times a power of ten, at least gap pixels. */
static uint64_t distance(const struct plot_axis *a, unsigned gap)
{
    static const uint64_t steps[] = {1, 2, 5};
    for (uint64_t ten = 1; ten <= UINT64_MAX / 50; ten *= 10)
        for (int i = 0; i < 3; i++)
            if ((double)(steps[i] * ten) * a->cell >= (double)gap * (double)a->per)
                return steps[i] * ten;
    return UINT64_MAX;
}

/* The pixel of an index: the middle of its cell where each index has one. */
static unsigned pixel_of(const struct plot_axis *a, uint64_t index)
{
    const double cell = (double)a->cell;
    return (unsigned)((double)(index / a->per) * cell + (double)(index % a->per) / (double)a->per * cell +
                      (a->per == 1 ? cell / 2 : 0));
}

/* Draws a label of an axis: at most five characters, in thousands, millions and so on where the last index is longer.
 * Labels are then multiples of that unit, since there are not many of them. */
static void label(struct canvas *c, unsigned x, unsigned y, uint64_t index, uint64_t end, enum canvas_anchor anchor)
{
    static const char units[] = " kMGTPE";
    unsigned u = 0;
    uint64_t unit = 1;
    for (; end / unit > 10000 && u < 6; u++)
        unit *= 1000;
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64 "%.*s", index / unit, u && index, &units[u]);
    c->text(c, x, y, text, anchor, INK_FAINT);
}

/* Advances *i by step, unless it would reach end. */
static bool next(uint64_t *i, uint64_t step, uint64_t end)
{
    if (end - *i <= step)
        return false;
    *i += step;
    return true;
}

void plot_draw(const struct plot *p, struct canvas *c, unsigned x, unsigned y)
{
    enum { COLUMNS_APART = 6 * CANVAS_CHAR, ROWS_APART = 2 * CANVAS_LINE };
    if (!p->width)
        return;
    x += PLOT_LEFT;
    y += PLOT_TOP;
    uint64_t step = distance(&p->columns, COLUMNS_APART), i = 0;
    do {
        const unsigned at = x + pixel_of(&p->columns, i);
        c->rect(c, at, y - 1 - TICK, 1, TICK, INK_FAINT);
        label(c, at, y - PLOT_TOP, i, p->columns.end, ANCHOR_MIDDLE);
    } while (next(&i, step, p->columns.end));
    step = distance(&p->rows, ROWS_APART);
    i = 0;
    do {
        const unsigned at = y + pixel_of(&p->rows, i);
        c->rect(c, x - 1 - TICK, at, TICK, 1, INK_FAINT);
        label(c, x - 2 * TICK, at - CANVAS_LINE / 2, i, p->rows.end, ANCHOR_RIGHT);
    } while (next(&i, step, p->rows.end));
    /* A line around the cells, since the lightest ones are nearly white. */
    const unsigned full = p->cells.count / p->cells.wide * p->cells.cell_height;
    const unsigned rest = p->cells.count % p->cells.wide * p->cells.cell_width;
    if (full)
        c->rect(c, x - 1, y - 1, p->width + 2, full + 2, INK_LINE);
    if (rest)
        c->rect(c, x - 1, y + full - 1, rest + 2, p->cells.cell_height + 2, INK_LINE);
    c->cells(c, x, y, &p->cells);
}

void plot_free(struct plot *p)
{
    free(p->level);
    *p = (struct plot){0};
}
