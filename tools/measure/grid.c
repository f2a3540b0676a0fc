/* SPDX-License-Identifier: BSD-3-Clause */
#include "measure/grid.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure/count.h"
#include "term.h"

enum {
    LONG = 64,     /* cells with at least this many consecutive elements are counted one by one */
    PERIOD = 1024, /* several lines with shorter cells are counted at once, about this many elements */
};

static uint64_t divide_up(uint64_t value, uint64_t divisor)
{
    return value / divisor + (value % divisor != 0);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Wraps into lines. The lengths of a line and of a cell are powers of two. There are at most half as many lines as
 * cells in a line. */
static void wrap(struct grid *grid, unsigned side)
{
    unsigned wide = GRID_SIDE_LEAST;
    while (2 * wide <= side)
        wide *= 2;
    grid->wrapped = true;
    grid->cell_rows = grid->cell_columns = 1;
    while (divide_up(grid->elements, grid->cell_columns) > wide * wide / 2)
        grid->cell_columns *= 2;
    grid->columns = least(grid->elements, wide * grid->cell_columns);
    grid->rows = divide_up(grid->elements, grid->columns);
}

/* Chooses the split that makes the matrix nearest to a square. */
static void fold(struct grid *grid, const uint64_t *shape, unsigned rank)
{
    double nearest = 0;
    uint64_t rows = 1;
    for (unsigned dimension = 1; dimension < rank; dimension++) {
        rows *= shape[dimension - 1];
        const uint64_t columns = grid->elements / rows;
        const double ratio = rows > columns ? (double)rows / (double)columns : (double)columns / (double)rows;
        if (dimension == 1 || ratio < nearest) {
            nearest = ratio;
            grid->split = dimension;
            grid->rows = rows;
            grid->columns = columns;
        }
    }
}

static void cut(struct grid *grid, unsigned side)
{
    const bool upright = grid->rows > grid->columns;
    const uint64_t across = upright ? grid->columns : grid->rows;
    const uint64_t along = upright ? grid->rows : grid->columns;
    const uint64_t per = divide_up(along, side), narrow = least(per, divide_up(across, side / GRID_ASPECT));
    grid->cell_rows = upright ? per : narrow;
    grid->cell_columns = upright ? narrow : per;
}

/* The elements in a line, in order of arrival; the elements of a line in one cell. */
static uint64_t line_of(const struct grid *grid)
{
    return grid->by_column ? grid->rows : grid->columns;
}

static uint64_t cell_of_line(const struct grid *grid)
{
    return grid->by_column ? grid->cell_rows : grid->cell_columns;
}

bool grid_init(struct grid *grid, const uint64_t *shape, unsigned rank, uint64_t elements, bool fortran, unsigned side)
{
    *grid = (struct grid){.elements = elements, .cell_rows = 1, .cell_columns = 1};
    if (!elements)
        return true;
    unsigned dimensions = 0;
    for (unsigned dimension = 0; dimension < rank; dimension++)
        dimensions += shape[dimension] != 1;
    if (dimensions < 2) {
        wrap(grid, side);
    } else {
        fold(grid, shape, rank);
        cut(grid, side);
        grid->by_column = fortran;
    }
    grid->high = (unsigned)divide_up(grid->rows, grid->cell_rows);
    grid->wide = (unsigned)divide_up(grid->columns, grid->cell_columns);
    grid->cell = calloc((size_t)grid->high * grid->wide, sizeof *grid->cell);
    const uint64_t per = grid->by_column ? grid->cell_rows : grid->cell_columns;
    if (per < LONG) {
        const uint64_t line = line_of(grid);
        const uint64_t lines = grid->by_column ? grid->cell_columns : grid->cell_rows;
        grid->period = line * least(lines, line < PERIOD ? PERIOD / line : 1);
        grid->seen = calloc((size_t)grid->period, sizeof *grid->seen);
    }
    if (grid->cell && (grid->seen || !grid->period))
        return true;
    grid_free(grid);
    return false;
}

/* The cell at `place` along a line, in the row of cells `lines`. */
static uint64_t *cell_at(const struct grid *grid, uint64_t lines, uint64_t place)
{
    return &grid->cell[grid->by_column ? place * grid->wide + lines : lines * grid->wide + place];
}

/* Adds the counts in `seen` to a row of cells. A count in `seen` overflows only after 2^50 elements. */
static void gather(struct grid *grid, uint64_t lines)
{
    const uint64_t line = line_of(grid), per = cell_of_line(grid);
    const uint32_t *seen = grid->seen;
    for (uint64_t done = 0; done < grid->period; done += line)
        for (uint64_t place = 0; place * per < line; place++) {
            const uint64_t width = least(per, line - place * per);
            uint64_t nonzeros = 0;
            for (uint64_t i = 0; i < width; i++)
                nonzeros += seen[i];
            *cell_at(grid, lines, place) += nonzeros;
            seen += width;
        }
    memset(grid->seen, 0, (size_t)grid->period * sizeof *grid->seen);
}

void grid_add(struct grid *grid, const void *elements, uint64_t count, size_t width)
{
    const unsigned char *position = elements;
    const uint64_t line = line_of(grid), per = cell_of_line(grid);
    const uint64_t lines =
        line * (grid->by_column ? grid->cell_columns : grid->cell_rows); /* elements in a row of cells */
    count = least(count, grid->elements - grid->counted);
    while (count) {
        uint64_t take, place = grid->counted % lines;
        if (grid->seen) {
            place %= grid->period;
            take = least(count, least(grid->period - place, lines - grid->counted % lines));
            count_mark(grid->seen + place, position, (size_t)take, width);
        } else {
            place %= line;
            take = least(count, least(per - place % per, line - place));
            *cell_at(grid, grid->counted / lines, place / per) += count_nonzeros(position, (size_t)take, width);
        }
        grid->counted += take;
        if (grid->seen && (grid->counted % lines == 0 || grid->counted == grid->elements))
            gather(grid, (grid->counted - 1) / lines);
        position += take * width;
        count -= take;
    }
}

void grid_part(const struct grid *grid, unsigned y, unsigned high, unsigned x, unsigned wide, uint64_t *nonzeros,
               uint64_t *elements)
{
    const uint64_t top = (uint64_t)y * grid->high / high, bottom = (y + UINT64_C(1)) * grid->high / high;
    const uint64_t remaining = (uint64_t)x * grid->wide / wide, right = (x + UINT64_C(1)) * grid->wide / wide;
    *nonzeros = *elements = 0;
    for (uint64_t row = top; row < bottom; row++) {
        const uint64_t rows = least(grid->cell_rows, grid->rows - row * grid->cell_rows);
        for (uint64_t column = remaining; column < right; column++) {
            uint64_t columns = least(grid->cell_columns, grid->columns - column * grid->cell_columns);
            if (grid->wrapped) {
                const uint64_t first = row * grid->columns + column * grid->cell_columns;
                columns = first < grid->elements ? least(columns, grid->elements - first) : 0;
            }
            *nonzeros += grid->cell[row * grid->wide + column];
            *elements += rows * columns;
        }
    }
}

const char *grid_fold_text(char buffer[GRID_TEXT], const struct grid *grid, const uint64_t *shape, unsigned rank)
{
    char rows[GRID_TEXT / 2 - 10], columns[GRID_TEXT / 2 - 10];
    buffer[0] = 0;
    if (grid->wrapped && grid->rows > 1)
        snprintf(buffer, GRID_TEXT, "wrapped, %" PRIu64 " elements a row", grid->columns);
    else if (!grid->wrapped && grid->elements && rank > 2)
        snprintf(buffer, GRID_TEXT, "rows %s, columns %s", term_shape(rows, sizeof rows, shape, grid->split),
                 term_shape(columns, sizeof columns, shape + grid->split, rank - grid->split));
    return buffer;
}

const char *grid_cell_text(char buffer[GRID_TEXT], const struct grid *grid)
{
    buffer[0] = 0;
    if (grid->wrapped && grid->cell_columns > 1)
        snprintf(buffer, GRID_TEXT, "a cell: %" PRIu64 " elements", grid->cell_columns);
    else if (grid->cell_rows > 1 || grid->cell_columns > 1)
        snprintf(buffer, GRID_TEXT, "a cell: %" PRIu64 " x %" PRIu64 " elements", grid->cell_rows, grid->cell_columns);
    return buffer;
}

void grid_free(struct grid *grid)
{
    free(grid->cell);
    free(grid->seen);
    *grid = (struct grid){0};
}
