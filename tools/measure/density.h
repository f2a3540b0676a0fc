/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Where a tensor's nonzero elements are: a count for each cell. Cells have equal lengths, and there are at most
 * DENSITY_CELLS of them, however long the tensor is. "Nonzero" means that some bit is set. */
#ifndef PICI_TOOLS_MEASURE_DENSITY_H
#define PICI_TOOLS_MEASURE_DENSITY_H

#include <stddef.h>
#include <stdint.h>

enum { DENSITY_ROW = 64, DENSITY_CELLS = 4096 };

struct density {
    uint64_t elements, nonzeros; /* so far */
    uint64_t cell_elements;      /* elements of a cell: DENSITY_ROW times a power of two */
    uint64_t cell[DENSITY_CELLS];
};

void density_init(struct density *density);

/* Count count more elements of width 1, 2, 4 or 8 bytes, at any alignment. Returns how many of them are nonzero. */
uint64_t density_add(struct density *density, const void *elements, uint64_t count, size_t width);

/* The number of cells in use. */
size_t density_cells(const struct density *density);

/* Nonzeros and elements of a part of parts of about equal length; part < parts <= density_cells. */
void density_part(const struct density *density, size_t part, size_t parts, uint64_t *nonzeros, uint64_t *elements);

#endif
