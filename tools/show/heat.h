/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Densities as people see them: one scale and one set of colours for terminal and pictures alike. */
#ifndef PICI_TOOLS_SHOW_HEAT_H
#define PICI_TOOLS_SHOW_HEAT_H

#include <stdint.h>
#include <stdio.h>

#include "density.h"

enum { HEAT_TOP = 1000 };

/* Where a density stands on the scale: its cube root, in 0..HEAT_TOP. 0 only if nnz is 0. A cube root, so that 0.1%, 1%,
 * 10% and 100% are told apart at a glance. elements > 0. */
unsigned heat_level(uint64_t nnz, uint64_t elements);

/* The colour of a level: black for none, then through purple and orange to light yellow. */
void heat_colour(unsigned level, uint8_t rgb[3]);

/* The densities that a picture's scale names, rising. */
struct heat_tick {
    const char *text;
    uint32_t nnz, of;
};
enum { HEAT_TICKS = 6 };
extern const struct heat_tick heat_ticks[HEAT_TICKS];

/* One line of at most width characters, without a newline; nothing for a tensor without elements. */
void heat_line(FILE *f, const struct density *d, unsigned width);

/* What is written to f from here on is in the colour of a density, if f takes colours, until term_off. */
void heat_on(FILE *f, uint64_t nnz, uint64_t elements);

/* A map of at most width x lines characters, cells in the order of the elements, each line after indent spaces; then its
 * scale. In colours if f takes them. Returns about how many elements a cell has. */
uint64_t heat_map(FILE *f, const struct density *d, unsigned indent, unsigned width, unsigned lines);

#endif
