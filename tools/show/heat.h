/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The scale and colours of densities, for terminals and pictures. */
#ifndef PICI_TOOLS_SHOW_HEAT_H
#define PICI_TOOLS_SHOW_HEAT_H

#include <stdint.h>
#include <stdio.h>

#include "measure/density.h"
#include "measure/grid.h"

enum { HEAT_TOP = 1000 };

/* The level of a density on the scale: its cube root, in 0..HEAT_TOP. 0 only if nonzeros is 0. The cube root makes
 * 0.1%, 1%, 10% and 100% easy to tell apart. elements > 0. */
unsigned heat_level(uint64_t nonzeros, uint64_t elements);

/* The colour of a level: black for none, then from purple through orange to light yellow. */
void heat_colour(unsigned level, uint8_t rgb[3]);

/* The labelled densities on the scale of a picture, in rising order. */
struct heat_tick {
    const char *text;
    uint32_t nonzeros, elements;
};
enum { HEAT_TICKS = 6 };
extern const struct heat_tick heat_ticks[HEAT_TICKS];

/* Print a line of at most width characters, without a newline. Prints nothing for a tensor without elements. */
void heat_line(FILE *stream, const struct density *density, unsigned width);

/* Switch on the colour of a density until term_off, if stream supports colours. */
void heat_on(FILE *stream, uint64_t nonzeros, uint64_t elements);

/* Print a map of at most width x lines characters, and its scale. Cells are in element order; each line is indented.
 * Uses colours if stream supports them. Returns the approximate number of elements in a cell. */
uint64_t heat_map(FILE *stream, const struct density *density, unsigned indent, unsigned width, unsigned lines);

/* Print the map of a matrix in at most width x lines characters, with row and column indices beside it, and its scale.
 * Each line is indented. */
void heat_matrix(FILE *stream, const struct grid *grid, unsigned indent, unsigned width, unsigned lines);

#endif
