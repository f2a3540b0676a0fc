/* SPDX-License-Identifier: BSD-3-Clause */
#include "show/heat.h"

#include <inttypes.h>
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
    enum { LEAST = 300 };
    /* the colour map "inferno" of matplotlib (public domain), at nine points */
    static const uint8_t at[9][3] = {{0, 0, 4},     {31, 12, 72},   {85, 15, 109},  {136, 34, 106}, {186, 54, 85},
                                     {227, 89, 51}, {249, 140, 10}, {249, 201, 50}, {252, 255, 164}};
    if (level) /* the least density must differ from none at a glance, even in a cell of one pixel */
        level = LEAST + level * (HEAT_TOP - LEAST) / HEAT_TOP;
    unsigned scaled = level * 8, i = scaled / HEAT_TOP, part = scaled % HEAT_TOP;
    for (int c = 0; c < 3; c++)
        rgb[c] = i >= 8 ? at[8][c] : (uint8_t)((at[i][c] * (HEAT_TOP - part) + at[i + 1][c] * part) / HEAT_TOP);
}

/* Level of part i of parts. */
static unsigned part_level(const struct density *density, size_t i, size_t parts)
{
    uint64_t nnz, elements;
    density_part(density, i, parts, &nnz, &elements);
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

void heat_line(FILE *f, const struct density *density, unsigned width)
{
    size_t cells = density_cells(density), parts = cells < width ? cells : width;
    for (size_t i = 0; i < parts; i++)
        fputs(step(term_utf8() ? bars : ascii, 8, part_level(density, i, parts)), f);
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
    unsigned level = elements ? heat_level(nnz, elements) : 0;
    if (term_colours(f))
        paint(f, false, level ? level : 1); /* black could not be seen */
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

uint64_t heat_map(FILE *f, const struct density *density, unsigned indent, unsigned width, unsigned lines)
{
    bool colours = term_colours(f), halves = colours && term_utf8();
    /* With colours and UTF-8, a character shows two cells, one above the other. */
    size_t rows = halves ? 2 * (size_t)lines : lines, cells = density_cells(density);
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
                paint(f, true, part_level(density, below, parts));
                paint(f, false, part_level(density, i, parts));
                fputs("▀", f);
            } else if (halves) {
                fputs("\033[49m", f);
                paint(f, false, part_level(density, i, parts));
                fputs("▀", f);
            } else {
                for (unsigned k = 0; k < wide; k++)
                    put_cell(f, colours, part_level(density, i, parts));
            }
        }
        fprintf(f, "%s\n", colours ? "\033[0m" : "");
    }
    put_scale(f, colours, indent);
    return density->per * cells / parts;
}

/* ---- the map of a matrix */

struct shown {
    const struct grid *g;
    unsigned high, wide; /* parts of the grid */
    unsigned times;      /* a part is so many cells high and wide */
};

static unsigned shown_level(const struct shown *s, unsigned row, unsigned column)
{
    uint64_t nnz, elements;
    grid_part(s->g, row / s->times, s->high, column / s->times, s->wide, &nnz, &elements);
    return heat_level(nnz, elements);
}

/* Chooses parts that fit in wide x high square cells, in about the shape of the matrix. */
static struct shown fit(const struct grid *g, unsigned wide, unsigned high)
{
    enum { ASPECT = 3 }; /* at the most: there are few lines */
    double shape = (double)g->rows / (double)g->columns;
    shape = shape > ASPECT ? ASPECT : shape < 1.0 / ASPECT ? 1.0 / ASPECT : shape;
    double x = wide, y = wide * shape;
    if (y > high) {
        x = high / shape;
        y = high;
    }
    struct shown s = {g, (unsigned)y, (unsigned)x, 1};
    s.high = s.high < 1 ? 1 : s.high > g->high ? g->high : s.high;
    s.wide = s.wide < 1 ? 1 : s.wide > g->wide ? g->wide : s.wide;
    while (s.times < 4 && (s.times + 1) * s.high <= high && (s.times + 1) * s.wide <= wide)
        s.times++;
    return s;
}

/* Prints a row of cells; with halves two rows, in one line. */
static void put_cells(FILE *f, const struct shown *s, unsigned row, bool colours, bool halves)
{
    const bool both = halves && row + 1 < s->high * s->times;
    for (unsigned x = 0; x < s->wide * s->times; x++) {
        const unsigned level = shown_level(s, row, x);
        if (!halves) {
            put_cell(f, colours, level);
            put_cell(f, colours, level);
            continue;
        }
        if (both)
            paint(f, true, shown_level(s, row + 1, x));
        else
            fputs("\033[49m", f);
        paint(f, false, level);
        fputs("▀", f);
    }
    fprintf(f, "%s\n", colours ? "\033[0m" : "");
}

void heat_matrix(FILE *f, const struct grid *g, unsigned indent, unsigned width, unsigned lines)
{
    enum { LABELS_APART = 4 }; /* lines */
    const bool colours = term_colours(f), halves = colours && term_utf8();
    const unsigned each = halves ? 2 : 1, across = halves ? 1 : 2; /* rows of cells in a line, characters of a cell */
    char last[32];
    if (!g->elements)
        return;
    unsigned digits = (unsigned)snprintf(last, sizeof last, "%" PRIu64, g->rows - 1), since = LABELS_APART;
    if (width < 2 * digits + 2 * across)
        digits = 0; /* no room for labels */
    const unsigned left = indent + (digits ? digits + 1 : 0);
    const struct shown s = fit(g, (width - (left - indent)) / across, lines * each);
    const unsigned wide = s.wide * s.times * across;
    const int end = snprintf(last, sizeof last, "%" PRIu64, g->columns - 1);
    if (digits && (unsigned)end + 2 <= wide)
        fprintf(f, "%*s0%*s\n", (int)left, "", (int)wide - 1, last);
    for (unsigned row = 0; row < s.high * s.times; row += each, since++) {
        const uint64_t first = (uint64_t)(row / s.times) * g->high / s.high * g->row_per;
        if (digits && since >= LABELS_APART && row % s.times == 0) {
            fprintf(f, "%*s%*" PRIu64 " ", (int)indent, "", (int)digits, first);
            since = 0;
        } else {
            fprintf(f, "%*s", (int)left, "");
        }
        put_cells(f, &s, row, colours, halves);
    }
    put_scale(f, colours, indent);
}
