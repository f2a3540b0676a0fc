/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Charts of speedups and of times, drawn on a canvas. */
#ifndef PICI_TOOLS_SHOW_CHART_H
#define PICI_TOOLS_SHOW_CHART_H

#include "show/canvas.h"

enum { CHART_LABEL = 16, CHART_LINES = 24 };

/* A table of speedups. Each cell has its speedup, a letter, and a colour for the speedup. */
struct chart_table {
    const char *title, *columns, *rows; /* titles of the chart and of its axes */
    int wide, high;
    const char (*column)[CHART_LABEL], (*row)[CHART_LABEL]; /* [wide], [high] */
    const double *gain;                                     /* [high][wide]; 0: none */
    const char *letter;                                     /* [high][wide] */
};

/* Lines of seconds, on a logarithmic scale, at equidistant points. */
struct chart_lines {
    const char *title, *columns;
    int points, lines;
    const char (*column)[CHART_LABEL]; /* [points] */
    const char *name[CHART_LINES];
    char letter[CHART_LINES];           /* beside the line, and before its name */
    const double *seconds[CHART_LINES]; /* [points]; < 0: none */
};

/* Write a speedup in at most four characters, and the letter: "4.3M". */
void chart_cell_text(char text[CHART_LABEL], double gain, char letter);

void chart_table_size(const struct chart_table *, unsigned *width, unsigned *height);
void chart_table_draw(const struct chart_table *, struct canvas *);
void chart_lines_size(const struct chart_lines *, unsigned *width, unsigned *height);
void chart_lines_draw(const struct chart_lines *, struct canvas *);

#endif
