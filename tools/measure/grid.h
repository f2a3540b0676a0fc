/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A map of a tensor's nonzeros as a matrix: rows down, columns across. Each cell counts the nonzeros of some rows and
 * columns. There are few cells, for tensors of any size. "Nonzero" means that some bit is set.
 *
 *   two dimensions      the matrix itself
 *   more                the first dimensions are the rows, the others the columns. The split makes the matrix nearest
 *                       to a square. Elements keep their order
 *   one or none         wrapped into rows. The row length is a power of two, unless there is only one row
 *
 * Dimensions of length 1 do not count. */
#ifndef PICI_TOOLS_MEASURE_GRID_H
#define PICI_TOOLS_MEASURE_GRID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GRID_SIDE_LEAST = 16, GRID_ASPECT = 8, GRID_TEXT = 96 };

struct grid {
    uint64_t elements;                /* of the tensor */
    uint64_t rows, columns;           /* of the matrix; 0 for a tensor without elements */
    uint64_t cell_rows, cell_columns; /* rows and columns of a cell */
    unsigned high, wide;              /* cells */
    unsigned split;                   /* the dimension at which the columns start; 0 if wrapped */
    bool wrapped;
    bool by_column;   /* elements arrive column by column */
    uint64_t counted; /* elements counted so far */
    uint64_t *cell;   /* [high * wide] nonzeros, except those still in seen */
    uint32_t *seen;   /* [period] nonzeros by place in a line, since the last cells ended; NULL: cells are long */
    uint64_t period;  /* elements of some whole lines, all in one row or column of cells */
};

/* Begin a tensor of `elements` elements, with at most `side` cells in each direction. The shorter direction has fewer
 * cells, in proportion, but at least side / GRID_ASPECT. fortran: the first index varies fastest. False: no memory. */
bool grid_init(struct grid *grid, const uint64_t *shape, unsigned rank, uint64_t elements, bool fortran, unsigned side);

/* Add `count` elements of width 1, 2, 4 or 8 bytes, at any alignment. */
void grid_add(struct grid *grid, const void *elements, uint64_t count, size_t width);

/* Get the nonzeros and elements of a part of the grid, after all elements have been added. The part is y of high from
 * the top, and x of wide from the left; high <= grid->high, wide <= grid->wide. A part without elements is past the end
 * of a wrapped tensor. */
void grid_part(const struct grid *grid, unsigned y, unsigned high, unsigned x, unsigned wide, uint64_t *nonzeros,
               uint64_t *elements);

/* Describe how the tensor became a matrix, such as "rows [12, 64], columns [768]"; "" for a matrix. Returns buffer. */
const char *grid_fold_text(char buffer[GRID_TEXT], const struct grid *grid, const uint64_t *shape, unsigned rank);

/* Describe the size of a cell, such as "a cell: 16 x 43 elements"; "" for one element. Returns buffer. */
const char *grid_cell_text(char buffer[GRID_TEXT], const struct grid *grid);

void grid_free(struct grid *grid);

#endif
