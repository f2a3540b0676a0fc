/* SPDX-License-Identifier: BSD-3-Clause */
#include "show/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { /* pixels */
       MARGIN = 16,
       LEFT = 84, /* labels of rows */
       CELL_WIDE = 64,
       CELL_HIGH = 24,
       TEXT_DOWN = 3, /* from the edge of a cell to its text */
       SCALE = 7,     /* speedups of the scale: 1, 2, 4, ..., 64 */
       PLOT_WIDE = 560,
       PLOT_HIGH = 320,
       NAMES = 330, /* beside the lines */
       TICK = 4
};

enum { LIGHT_FROM = 620 }; /* on lighter grounds, dark text is more readable */

/* The level of a speedup on the heat scale: logarithmic, 0 up to a speedup of 1, HEAT_TOP from 64. */
static unsigned level_of(double gain)
{
    const double level = gain > 1 ? log2(gain) / (SCALE - 1) * HEAT_TOP : 0;
    return level > HEAT_TOP ? HEAT_TOP : (unsigned)level;
}

void chart_cell_text(char text[CHART_LABEL], double gain, char letter)
{
    const int digits = gain < 9.95 ? 1 : 0;
    if (gain > 0)
        snprintf(text, CHART_LABEL, "%.*f%c", digits, gain < 9999 ? gain : 9999, letter);
    else
        snprintf(text, CHART_LABEL, "-%c", letter);
}

/* ---- tables */

void chart_table_size(const struct chart_table *table, unsigned *width, unsigned *height)
{
    const unsigned cells = (unsigned)table->wide * CELL_WIDE, scale = (SCALE + 1) * CELL_WIDE;
    const unsigned title = (unsigned)strlen(table->title) * CANVAS_CHAR;
    *width = 2 * MARGIN + LEFT + (cells > scale ? cells : scale);
    *width = *width < 2 * MARGIN + title ? 2 * MARGIN + title : *width;
    *height = 2 * MARGIN + 3 * CANVAS_LINE + (unsigned)table->high * CELL_HIGH + 2 * CANVAS_LINE + CELL_HIGH;
}

static void put_cell(struct canvas *canvas, unsigned x, unsigned y, double gain, const char *text)
{
    const unsigned level = level_of(gain);
    canvas->rect(canvas, x, y, CELL_WIDE - 1, CELL_HIGH - 1, level);
    canvas->text(canvas, x + CELL_WIDE / 2, y + TEXT_DOWN, text, ANCHOR_MIDDLE, level < LIGHT_FROM ? HEAT_TOP : 0);
}

void chart_table_draw(const struct chart_table *table, struct canvas *canvas)
{
    const unsigned left = MARGIN + LEFT;
    unsigned y = MARGIN;
    char text[CHART_LABEL];
    canvas->rect(canvas, 0, 0, canvas->width, canvas->height, INK_PAPER);
    canvas->text(canvas, MARGIN, y, table->title, ANCHOR_LEFT, INK_TEXT);
    y += CANVAS_LINE;
    canvas->text(canvas, left - 8, y, table->rows, ANCHOR_RIGHT, INK_FAINT);
    canvas->text(canvas, left, y, table->columns, ANCHOR_LEFT, INK_FAINT);
    y += CANVAS_LINE;
    for (int i = 0; i < table->wide; i++)
        canvas->text(canvas, left + (unsigned)i * CELL_WIDE + CELL_WIDE / 2, y, table->column[i], ANCHOR_MIDDLE,
                     INK_TEXT);
    y += CANVAS_LINE + 4;
    for (int j = 0; j < table->high; j++, y += CELL_HIGH) {
        canvas->text(canvas, left - 8, y + TEXT_DOWN, table->row[j], ANCHOR_RIGHT, INK_TEXT);
        for (int i = 0; i < table->wide; i++) {
            chart_cell_text(text, table->gain[j * table->wide + i], table->letter[j * table->wide + i]);
            put_cell(canvas, left + (unsigned)i * CELL_WIDE, y, table->gain[j * table->wide + i], text);
        }
    }
    y += CANVAS_LINE;
    canvas->text(canvas, left - 8, y + TEXT_DOWN, "speedup", ANCHOR_RIGHT, INK_FAINT);
    for (int i = 0; i < SCALE; i++) {
        snprintf(text, sizeof text, "%d", 1 << i);
        put_cell(canvas, left + (unsigned)i * CELL_WIDE, y, 1 << i, text);
    }
}

/* ---- lines */

void chart_lines_size(const struct chart_lines *chart, unsigned *width, unsigned *height)
{
    const unsigned title = (unsigned)strlen(chart->title) * CANVAS_CHAR;
    const unsigned names = (unsigned)chart->lines * CANVAS_LINE;
    *width = 2 * MARGIN + LEFT + PLOT_WIDE + NAMES;
    *width = *width < 2 * MARGIN + title ? 2 * MARGIN + title : *width;
    *height = 2 * MARGIN + 5 * CANVAS_LINE + (names > PLOT_HIGH ? names : PLOT_HIGH);
}

/* The powers of ten below and above all seconds. */
static void range_of(const struct chart_lines *chart, int *least, int *most)
{
    double low = 0, high = 0;
    for (int i = 0; i < chart->lines; i++)
        for (int point = 0; point < chart->points; point++) {
            const double seconds = chart->seconds[i][point];
            if (seconds <= 0)
                continue;
            low = low <= 0 || seconds < low ? seconds : low;
            high = seconds > high ? seconds : high;
        }
    *least = low > 0 ? (int)floor(log10(low)) : 0;
    *most = high > 0 ? (int)ceil(log10(high)) : 1;
    *most = *most > *least ? *most : *least + 1;
}

static const char *seconds_text(char text[CHART_LABEL], int power)
{
    static const char *const unit[] = {"ns", "us", "ms", "s"};
    int group = (power + 9) / 3;
    if (power < -9)
        group = 0;
    else if (power > 2)
        group = 3;
    snprintf(text, CHART_LABEL, "%.0f %s", pow(10, power + 9 - 3 * group), unit[group]);
    return text;
}

void chart_lines_draw(const struct chart_lines *chart, struct canvas *canvas)
{
    const unsigned left = MARGIN + LEFT, top = MARGIN + 2 * CANVAS_LINE + 6;
    const double apart = chart->points > 1 ? (double)PLOT_WIDE / (chart->points - 1) : 0;
    char text[CHART_LABEL];
    int least, most;
    range_of(chart, &least, &most);
    const double decade = (double)PLOT_HIGH / (most - least);
    canvas->rect(canvas, 0, 0, canvas->width, canvas->height, INK_PAPER);
    canvas->text(canvas, MARGIN, MARGIN, chart->title, ANCHOR_LEFT, INK_TEXT);
    for (int power = least; power <= most; power++) {
        const unsigned y = top + (unsigned)((most - power) * decade);
        canvas->rect(canvas, left, y, PLOT_WIDE, 1, INK_LINE);
        canvas->text(canvas, left - 8, y - CANVAS_LINE / 2, seconds_text(text, power), ANCHOR_RIGHT, INK_FAINT);
    }
    for (int point = 0; point < chart->points; point++) {
        const unsigned x = left + (unsigned)(point * apart);
        canvas->rect(canvas, x, top + PLOT_HIGH, 1, TICK, INK_LINE);
        canvas->text(canvas, x, top + PLOT_HIGH + TICK + 2, chart->column[point], ANCHOR_MIDDLE, INK_TEXT);
    }
    canvas->text(canvas, left, top + PLOT_HIGH + TICK + 2 + CANVAS_LINE, chart->columns, ANCHOR_LEFT, INK_FAINT);
    for (int line = 0; line < chart->lines; line++) {
        /* the darkest and lightest levels are hardly visible on one of the grounds */
        const unsigned ink = 350 + 450 * (unsigned)line / (unsigned)(chart->lines > 1 ? chart->lines - 1 : 1);
        const unsigned name = top + (unsigned)line * CANVAS_LINE;
        unsigned before_x = 0, before_y = 0;
        int drawn = 0;
        for (int point = 0; point < chart->points; point++) {
            const double seconds = chart->seconds[line][point];
            const unsigned x = left + (unsigned)(point * apart);
            const unsigned y = seconds > 0 ? top + (unsigned)((most - log10(seconds)) * decade) : 0;
            if (seconds > 0 && drawn)
                canvas->line(canvas, before_x, before_y, x, y, ink);
            drawn = seconds > 0;
            before_x = x;
            before_y = y;
        }
        const char letter[] = {chart->letter[line], 0};
        const int marked = chart->points - 1 -
                           line % (chart->points > 1 ? chart->points - 1 : 1); /* the letters are at different points */
        const double seconds = chart->seconds[line][marked];
        if (seconds > 0)
            canvas->text(canvas, left + (unsigned)(marked * apart),
                         top + (unsigned)((most - log10(seconds)) * decade) - CANVAS_LINE, letter, ANCHOR_MIDDLE,
                         INK_TEXT);
        canvas->rect(canvas, left + PLOT_WIDE + 16, name + 6, 20, 5, ink);
        canvas->text(canvas, left + PLOT_WIDE + 42, name, letter, ANCHOR_LEFT, INK_TEXT);
        canvas->text(canvas, left + PLOT_WIDE + 42 + 2 * CANVAS_CHAR, name, chart->name[line], ANCHOR_LEFT, INK_TEXT);
    }
}
