/* SPDX-License-Identifier: BSD-3-Clause */
#include "measure/grid.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure/count.h"
#include "term.h"

enum {
    LONG = 64,     /* cells of at least so many consecutive elements are counted one by one */
    PERIOD = 1024, /* shorter lines are counted several at once, of about so many elements */
};

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Lines of a power of two of elements, in cells of a power of two, at most half as many lines as cells in a line. */
static void wrap(struct grid *g, unsigned side)
{
    unsigned wide = GRID_SIDE_LEAST;
    while (2 * wide <= side)
        wide *= 2;
    g->wrapped = true;
    g->row_per = g->column_per = 1;
    while (divide_up(g->elements, g->column_per) > wide * wide / 2)
        g->column_per *= 2;
    g->columns = least(g->elements, wide * g->column_per);
    g->rows = divide_up(g->elements, g->columns);
}

/* Chooses the split that makes the matrix nearest to a square. */
static void fold(struct grid *g, const uint64_t *shape, unsigned rank)
{
    double nearest = 0;
    uint64_t rows = 1;
    for (unsigned d = 1; d < rank; d++) {
        rows *= shape[d - 1];
        const uint64_t columns = g->elements / rows;
        const double ratio = rows > columns ? (double)rows / (double)columns : (double)columns / (double)rows;
        if (d == 1 || ratio < nearest) {
            nearest = ratio;
            g->split = d;
            g->rows = rows;
            g->columns = columns;
        }
    }
}

static void cut(struct grid *g, unsigned side)
{
    const bool upright = g->rows > g->columns;
    const uint64_t across = upright ? g->columns : g->rows, along = upright ? g->rows : g->columns;
    const uint64_t per = divide_up(along, side), narrow = least(per, divide_up(across, side / GRID_ASPECT));
    g->row_per = upright ? per : narrow;
    g->column_per = upright ? narrow : per;
}

bool grid_init(struct grid *g, const uint64_t *shape, unsigned rank, uint64_t elements, bool fortran, unsigned side)
{
    *g = (struct grid){.elements = elements, .row_per = 1, .column_per = 1};
    if (!elements)
        return true;
    unsigned dimensions = 0;
    for (unsigned d = 0; d < rank; d++)
        dimensions += shape[d] != 1;
    if (dimensions < 2) {
        wrap(g, side);
    } else {
        fold(g, shape, rank);
        cut(g, side);
        g->by_column = fortran;
    }
    g->high = (unsigned)divide_up(g->rows, g->row_per);
    g->wide = (unsigned)divide_up(g->columns, g->column_per);
    g->cell = calloc((size_t)g->high * g->wide, sizeof *g->cell);
    const uint64_t per = g->by_column ? g->row_per : g->column_per;
    if (per < LONG) {
        const uint64_t line = g->by_column ? g->rows : g->columns, lines = g->by_column ? g->column_per : g->row_per;
        g->period = line * least(lines, line < PERIOD ? PERIOD / line : 1);
        g->seen = calloc((size_t)g->period, sizeof *g->seen);
    }
    if (g->cell && (g->seen || !g->period))
        return true;
    grid_free(g);
    return false;
}

/* The cell at a place of a line, in a row of lines. */
static uint64_t *cell_at(const struct grid *g, uint64_t lines, uint64_t place)
{
    return &g->cell[g->by_column ? place * g->wide + lines : lines * g->wide + place];
}

/* Moves what has been seen in a row of cells to the cells. A number of seen would overflow after 2^50 elements only. */
static void gather(struct grid *g, uint64_t lines)
{
    const uint64_t line = g->by_column ? g->rows : g->columns, per = g->by_column ? g->row_per : g->column_per;
    const uint32_t *seen = g->seen;
    for (uint64_t done = 0; done < g->period; done += line)
        for (uint64_t place = 0; place * per < line; place++) {
            const uint64_t k = least(per, line - place * per);
            uint64_t nnz = 0;
            for (uint64_t i = 0; i < k; i++)
                nnz += seen[i];
            *cell_at(g, lines, place) += nnz;
            seen += k;
        }
    memset(g->seen, 0, (size_t)g->period * sizeof *g->seen);
}

void grid_add(struct grid *g, const void *elements, uint64_t n, size_t width)
{
    const unsigned char *p = elements;
    const uint64_t line = g->by_column ? g->rows : g->columns, per = g->by_column ? g->row_per : g->column_per;
    const uint64_t lines = line * (g->by_column ? g->column_per : g->row_per); /* elements of a row of cells */
    n = least(n, g->elements - g->at);
    while (n) {
        uint64_t take, at = g->at % lines;
        if (g->seen) {
            at %= g->period;
            take = least(n, least(g->period - at, lines - g->at % lines));
            count_mark(g->seen + at, p, (size_t)take, width);
        } else {
            at %= line;
            take = least(n, least(per - at % per, line - at));
            *cell_at(g, g->at / lines, at / per) += count_nonzeros(p, (size_t)take, width);
        }
        g->at += take;
        if (g->seen && (g->at % lines == 0 || g->at == g->elements))
            gather(g, (g->at - 1) / lines);
        p += take * width;
        n -= take;
    }
}

void grid_part(const struct grid *g, unsigned y, unsigned high, unsigned x, unsigned wide, uint64_t *nnz,
               uint64_t *elements)
{
    const uint64_t top = (uint64_t)y * g->high / high, bottom = (y + UINT64_C(1)) * g->high / high;
    const uint64_t left = (uint64_t)x * g->wide / wide, right = (x + UINT64_C(1)) * g->wide / wide;
    *nnz = *elements = 0;
    for (uint64_t row = top; row < bottom; row++) {
        const uint64_t rows = least(g->row_per, g->rows - row * g->row_per);
        for (uint64_t column = left; column < right; column++) {
            uint64_t columns = least(g->column_per, g->columns - column * g->column_per);
            if (g->wrapped) {
                const uint64_t first = row * g->columns + column * g->column_per;
                columns = first < g->elements ? least(columns, g->elements - first) : 0;
            }
            *nnz += g->cell[row * g->wide + column];
            *elements += rows * columns;
        }
    }
}

const char *grid_fold_text(char buffer[GRID_TEXT], const struct grid *g, const uint64_t *shape, unsigned rank)
{
    char rows[GRID_TEXT / 2 - 10], columns[GRID_TEXT / 2 - 10];
    buffer[0] = 0;
    if (g->wrapped && g->rows > 1)
        snprintf(buffer, GRID_TEXT, "wrapped, %" PRIu64 " elements a row", g->columns);
    else if (!g->wrapped && g->elements && rank > 2)
        snprintf(buffer, GRID_TEXT, "rows %s, columns %s", term_shape(rows, sizeof rows, shape, g->split),
                 term_shape(columns, sizeof columns, shape + g->split, rank - g->split));
    return buffer;
}

const char *grid_cell_text(char buffer[GRID_TEXT], const struct grid *g)
{
    buffer[0] = 0;
    if (g->wrapped && g->column_per > 1)
        snprintf(buffer, GRID_TEXT, "a cell: %" PRIu64 " elements", g->column_per);
    else if (g->row_per > 1 || g->column_per > 1)
        snprintf(buffer, GRID_TEXT, "a cell: %" PRIu64 " x %" PRIu64 " elements", g->row_per, g->column_per);
    return buffer;
}

void grid_free(struct grid *g)
{
    free(g->cell);
    free(g->seen);
    *g = (struct grid){0};
}
