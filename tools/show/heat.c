/* SPDX-License-Identifier: BSD-3-Clause */
#include "show/heat.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "term.h"

const struct heat_tick heat_ticks[HEAT_TICKS] = {
    {"0", 0, 1}, {"0.1%", 1, 1000}, {"1%", 1, 100}, {"10%", 1, 10}, {"50%", 1, 2}, {"100%", 1, 1},
};

unsigned heat_level(uint64_t nnz, uint64_t elements)
{
    double density = (double)nnz / (double)elements * HEAT_TOP * HEAT_TOP * HEAT_TOP;
    unsigned low = nnz ? 1 : 0, high = HEAT_TOP; /* search for the largest level whose cube is not above the density */
    while (nnz && low < high) {
        unsigned mid = (low + high + 1) / 2;
        if ((double)mid * mid * mid <= density)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

void heat_colour(unsigned level, uint8_t rgb[3])
{
    /* the colour map "inferno" of matplotlib (public domain), at nine points */
    static const uint8_t at[9][3] = {{0, 0, 4},     {31, 12, 72},   {85, 15, 109},  {136, 34, 106}, {186, 54, 85},
                                     {227, 89, 51}, {249, 140, 10}, {249, 201, 50}, {252, 255, 164}};
    if (level && level < 60)
        level = 60; /* the least density must differ from none */
    unsigned scaled = level * 8, i = scaled / HEAT_TOP, part = scaled % HEAT_TOP;
    for (int c = 0; c < 3; c++)
        rgb[c] = i >= 8 ? at[8][c] : (uint8_t)((at[i][c] * (HEAT_TOP - part) + at[i + 1][c] * part) / HEAT_TOP);
}

/* Level of part i of parts. */
static unsigned part_level(const struct density *d, size_t i, size_t parts)
{
    uint64_t nnz, elements;
    density_part(d, i, parts, &nnz, &elements);
    return heat_level(nnz, elements);
}

/* The character for a level: of a ramp of n steps above "none". */
static const char *step(const char *const *ramp, unsigned n, unsigned level)
{
    return ramp[level ? 1 + (level - 1) * n / HEAT_TOP : 0];
}

static const char *const bars[] = {"·", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char *const shades[] = {"·", "░", "▒", "▓", "█"};
static const char *const ascii[] = {".", ":", "-", "=", "+", "*", "%", "#", "@"};

void heat_line(FILE *f, const struct density *d, unsigned width)
{
    size_t cells = density_cells(d), parts = cells < width ? cells : width;
    for (size_t i = 0; i < parts; i++)
        fputs(step(term_utf8() ? bars : ascii, 8, part_level(d, i, parts)), f);
}

static bool true_colour(void)
{
    const char *c = getenv("COLORTERM");
    return c && (strcmp(c, "truecolor") == 0 || strcmp(c, "24bit") == 0);
}

/* Select a colour, of the background or of the text. */
static void paint(FILE *f, bool background, unsigned level)
{
    uint8_t c[3];
    heat_colour(level, c);
    if (true_colour()) {
        fprintf(f, "\033[%d;2;%u;%u;%um", background ? 48 : 38, c[0], c[1], c[2]);
        return;
    }
    unsigned code = 16; /* the nearest of the 6 x 6 x 6 cube of the 256 colours: 0, 95, 135, 175, 215, 255 */
    for (int i = 0; i < 3; i++) {
        static const unsigned weight[3] = {36, 6, 1};
        code += weight[i] * (c[i] < 48 ? 0 : c[i] < 115 ? 1 : (c[i] - 35u) / 40);
    }
    fprintf(f, "\033[%d;5;%um", background ? 48 : 38, code);
}

void heat_on(FILE *f, uint64_t nnz, uint64_t elements)
{
    enum { LEAST = 350 }; /* darker ones cannot be seen */
    unsigned level = elements ? heat_level(nnz, elements) : 0;
    if (term_colours(f))
        paint(f, false, level < LEAST ? LEAST : level);
}

/* A cell of the map: a block of colour, or a shade. */
static void put_cell(FILE *f, bool colours, unsigned level)
{
    if (colours) {
        paint(f, true, level);
        putc(' ', f);
    } else {
        fputs(term_utf8() ? step(shades, 4, level) : step(ascii, 8, level), f);
    }
}

static void put_scale(FILE *f, bool colours, unsigned indent)
{
    fprintf(f, "%*s", (int)indent, "");
    for (int i = 0; i < HEAT_TICKS; i++) {
        unsigned level = heat_level(heat_ticks[i].nnz, heat_ticks[i].of);
        put_cell(f, colours, level);
        put_cell(f, colours, level);
        fprintf(f, "%s %s%s", colours ? "\033[0m" : "", heat_ticks[i].text, i + 1 < HEAT_TICKS ? "   " : "\n");
    }
}

uint64_t heat_map(FILE *f, const struct density *d, unsigned indent, unsigned width, unsigned lines)
{
    bool colours = term_colours(f), halves = colours && term_utf8();
    /* With colours and UTF-8, a character shows two cells, one above the other. */
    size_t rows = halves ? 2 * (size_t)lines : lines, cells = density_cells(d);
    if (!cells)
        return 0;
    if (cells < 2 * (size_t)width)
        halves = false;
    size_t parts = cells < rows * width ? cells : rows * width;
    size_t used = (parts + width - 1) / width, across = (parts + used - 1) / used, each = halves ? 2 : 1;
    unsigned wide = parts <= width / 4 ? 4 : parts <= width / 2 ? 2 : 1;
    for (size_t row = 0; row < used; row += each) {
        fprintf(f, "%*s", (int)indent, "");
        for (size_t x = 0; x < across; x++) {
            size_t i = row * across + x, below = i + across;
            if (i >= parts)
                break;
            if (halves && row + 1 < used && below < parts) {
                paint(f, true, part_level(d, below, parts));
                paint(f, false, part_level(d, i, parts));
                fputs("▀", f);
            } else if (halves) {
                fputs("\033[49m", f);
                paint(f, false, part_level(d, i, parts));
                fputs("▀", f);
            } else {
                for (unsigned k = 0; k < wide; k++)
                    put_cell(f, colours, part_level(d, i, parts));
            }
        }
        fprintf(f, "%s\n", colours ? "\033[0m" : "");
    }
    put_scale(f, colours, indent);
    return d->per * cells / parts;
}
