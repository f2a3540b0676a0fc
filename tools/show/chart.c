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

enum { LIGHT_FROM = 620 }; /* level of a ground on which dark text is read better */

/* The level of a speedup on the heat scale: its logarithm, 0 for 1 and less, HEAT_TOP for 64 and more. */
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

void chart_table_size(const struct chart_table *t, unsigned *width, unsigned *height)
{
    const unsigned cells = (unsigned)t->wide * CELL_WIDE, scale = (SCALE + 1) * CELL_WIDE;
    const unsigned title = (unsigned)strlen(t->title) * CANVAS_CHAR;
    *width = 2 * MARGIN + LEFT + (cells > scale ? cells : scale);
    *width = *width < 2 * MARGIN + title ? 2 * MARGIN + title : *width;
    *height = 2 * MARGIN + 3 * CANVAS_LINE + (unsigned)t->high * CELL_HIGH + 2 * CANVAS_LINE + CELL_HIGH;
}

static void put_cell(struct canvas *c, unsigned x, unsigned y, double gain, const char *text)
{
    const unsigned level = level_of(gain);
    c->rect(c, x, y, CELL_WIDE - 1, CELL_HIGH - 1, level);
    c->text(c, x + CELL_WIDE / 2, y + TEXT_DOWN, text, ANCHOR_MIDDLE, level < LIGHT_FROM ? HEAT_TOP : 0);
}

void chart_table_draw(const struct chart_table *t, struct canvas *c)
{
    const unsigned left = MARGIN + LEFT;
    unsigned y = MARGIN;
    char text[CHART_LABEL];
    c->rect(c, 0, 0, c->width, c->height, INK_PAPER);
    c->text(c, MARGIN, y, t->title, ANCHOR_LEFT, INK_TEXT);
    y += CANVAS_LINE;
    c->text(c, left - 8, y, t->rows, ANCHOR_RIGHT, INK_FAINT);
    c->text(c, left, y, t->columns, ANCHOR_LEFT, INK_FAINT);
    y += CANVAS_LINE;
    for (int i = 0; i < t->wide; i++)
        c->text(c, left + (unsigned)i * CELL_WIDE + CELL_WIDE / 2, y, t->column[i], ANCHOR_MIDDLE, INK_TEXT);
    y += CANVAS_LINE + 4;
    for (int j = 0; j < t->high; j++, y += CELL_HIGH) {
        c->text(c, left - 8, y + TEXT_DOWN, t->row[j], ANCHOR_RIGHT, INK_TEXT);
        for (int i = 0; i < t->wide; i++) {
            chart_cell_text(text, t->gain[j * t->wide + i], t->letter[j * t->wide + i]);
            put_cell(c, left + (unsigned)i * CELL_WIDE, y, t->gain[j * t->wide + i], text);
        }
    }
    y += CANVAS_LINE;
    c->text(c, left - 8, y + TEXT_DOWN, "speedup", ANCHOR_RIGHT, INK_FAINT);
    for (int i = 0; i < SCALE; i++) {
        snprintf(text, sizeof text, "%d", 1 << i);
        put_cell(c, left + (unsigned)i * CELL_WIDE, y, 1 << i, text);
    }
}

/* ---- lines */

void chart_lines_size(const struct chart_lines *l, unsigned *width, unsigned *height)
{
    const unsigned title = (unsigned)strlen(l->title) * CANVAS_CHAR;
    const unsigned names = (unsigned)l->lines * CANVAS_LINE;
    *width = 2 * MARGIN + LEFT + PLOT_WIDE + NAMES;
    *width = *width < 2 * MARGIN + title ? 2 * MARGIN + title : *width;
    *height = 2 * MARGIN + 5 * CANVAS_LINE + (names > PLOT_HIGH ? names : PLOT_HIGH);
}

/* Powers of ten that all seconds are between. */
static void range_of(const struct chart_lines *l, int *least, int *most)
{
    double low = 0, high = 0;
    for (int i = 0; i < l->lines; i++)
        for (int k = 0; k < l->points; k++) {
            const double s = l->seconds[i][k];
            if (s <= 0)
                continue;
            low = low <= 0 || s < low ? s : low;
            high = s > high ? s : high;
        }
    *least = low > 0 ? (int)floor(log10(low)) : 0;
    *most = high > 0 ? (int)ceil(log10(high)) : 1;
    *most = *most > *least ? *most : *least + 1;
}

static const char *seconds_text(char text[CHART_LABEL], int power)
{
    static const char *const unit[] = {"ns", "us", "ms", "s"};
    const int group = power < -9 ? 0 : power > 2 ? 3 : (power + 9) / 3;
    snprintf(text, CHART_LABEL, "%.0f %s", pow(10, power + 9 - 3 * group), unit[group]);
    return text;
}

void chart_lines_draw(const struct chart_lines *l, struct canvas *c)
{
    const unsigned left = MARGIN + LEFT, top = MARGIN + 2 * CANVAS_LINE + 6;
    const double apart = l->points > 1 ? (double)PLOT_WIDE / (l->points - 1) : 0;
    char text[CHART_LABEL];
    int least, most;
    range_of(l, &least, &most);
    const double decade = (double)PLOT_HIGH / (most - least);
    c->rect(c, 0, 0, c->width, c->height, INK_PAPER);
    c->text(c, MARGIN, MARGIN, l->title, ANCHOR_LEFT, INK_TEXT);
    for (int power = least; power <= most; power++) {
        const unsigned y = top + (unsigned)((most - power) * decade);
        c->rect(c, left, y, PLOT_WIDE, 1, INK_LINE);
        c->text(c, left - 8, y - CANVAS_LINE / 2, seconds_text(text, power), ANCHOR_RIGHT, INK_FAINT);
    }
    for (int k = 0; k < l->points; k++) {
        const unsigned x = left + (unsigned)(k * apart);
        c->rect(c, x, top + PLOT_HIGH, 1, TICK, INK_LINE);
        c->text(c, x, top + PLOT_HIGH + TICK + 2, l->column[k], ANCHOR_MIDDLE, INK_TEXT);
    }
    c->text(c, left, top + PLOT_HIGH + TICK + 2 + CANVAS_LINE, l->columns, ANCHOR_LEFT, INK_FAINT);
    for (int i = 0; i < l->lines; i++) {
        /* the darkest and the lightest levels are hardly seen on one ground or the other */
        const unsigned ink = 350 + 450 * (unsigned)i / (unsigned)(l->lines > 1 ? l->lines - 1 : 1);
        const unsigned name = top + (unsigned)i * CANVAS_LINE;
        unsigned before_x = 0, before_y = 0;
        int drawn = 0;
        for (int k = 0; k < l->points; k++) {
            const double s = l->seconds[i][k];
            const unsigned x = left + (unsigned)(k * apart);
            const unsigned y = s > 0 ? top + (unsigned)((most - log10(s)) * decade) : 0;
            if (s > 0 && drawn)
                c->line(c, before_x, before_y, x, y, ink);
            drawn = s > 0;
            before_x = x;
            before_y = y;
        }
        const char letter[] = {l->letter[i], 0};
        const int at = l->points - 1 - i % (l->points > 1 ? l->points - 1 : 1); /* each letter at a point of its own */
        const double s = l->seconds[i][at];
        if (s > 0)
            c->text(c, left + (unsigned)(at * apart), top + (unsigned)((most - log10(s)) * decade) - CANVAS_LINE,
                    letter, ANCHOR_MIDDLE, INK_TEXT);
        c->rect(c, left + PLOT_WIDE + 16, name + 6, 20, 5, ink);
        c->text(c, left + PLOT_WIDE + 42, name, letter, ANCHOR_LEFT, INK_TEXT);
        c->text(c, left + PLOT_WIDE + 42 + 2 * CANVAS_CHAR, name, l->name[i], ANCHOR_LEFT, INK_TEXT);
    }
}
