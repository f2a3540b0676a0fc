/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Counts a tensor's nonzeros in cells of equal length, at most DENSITY_CELLS for a tensor of any length. "Nonzero"
 * means that some bit is set. */
#ifndef PICI_TOOLS_MEASURE_DENSITY_H
#define PICI_TOOLS_MEASURE_DENSITY_H

#include <stddef.h>
#include <stdint.h>

enum { DENSITY_ROW = 64, DENSITY_CELLS = 4096 };

struct density {
    uint64_t elements, nonzeros; /* so far */
    uint64_t cell_elements;      /* cell length: DENSITY_ROW times a power of two */
    uint64_t cell[DENSITY_CELLS];
};

void density_init(struct density *density);

/* Add `count` elements of width 1, 2, 4 or 8 bytes, at any alignment. Returns the number of nonzeros among them. */
uint64_t density_add(struct density *density, const void *elements, uint64_t count, size_t width);

/* The number of cells in use. */
size_t density_cells(const struct density *density);

/* Get the nonzeros and elements of part `part` of `parts` parts of about equal length; part < parts <=
 * density_cells. */
void density_part(const struct density *density, size_t part, size_t parts, uint64_t *nonzeros, uint64_t *elements);

#endif
