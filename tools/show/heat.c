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

unsigned heat_level(uint64_t nonzeros, uint64_t elements)
{
    double density = (double)nonzeros / (double)elements * HEAT_TOP * HEAT_TOP * HEAT_TOP;
    unsigned low = nonzeros ? 1 : 0,
             high = HEAT_TOP; /* search for the largest level whose cube is not above the density */
    while (nonzeros && low < high) {
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
    static const uint8_t points[9][3] = {{0, 0, 4},     {31, 12, 72},   {85, 15, 109},  {136, 34, 106}, {186, 54, 85},
                                         {227, 89, 51}, {249, 140, 10}, {249, 201, 50}, {252, 255, 164}};
    if (level) /* the lowest density must look different from none, even in a cell of one pixel */
        level = LEAST + level * (HEAT_TOP - LEAST) / HEAT_TOP;
    unsigned scaled = level * 8, segment = scaled / HEAT_TOP, part = scaled % HEAT_TOP;
    for (int channel = 0; channel < 3; channel++)
        rgb[channel] =
            segment >= 8
                ? points[8][channel]
                : (uint8_t)((points[segment][channel] * (HEAT_TOP - part) + points[segment + 1][channel] * part) /
                            HEAT_TOP);
}

/* The level of part `part` of `parts` parts. */
static unsigned part_level(const struct density *density, size_t part, size_t parts)
{
    uint64_t nonzeros, elements;
    density_part(density, part, parts, &nonzeros, &elements);
    return heat_level(nonzeros, elements);
}

/* The character for a level: from a ramp of `steps` steps above "none". */
static const char *step(const char *const *ramp, unsigned steps, unsigned level)
{
    return ramp[level ? 1 + (level - 1) * steps / HEAT_TOP : 0];
}

static const char *const bars[] = {"·", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char *const shades[] = {"·", "░", "▒", "▓", "█"};
static const char *const ascii[] = {".", ":", "-", "=", "+", "*", "%", "#", "@"};

void heat_line(FILE *stream, const struct density *density, unsigned width)
{
    size_t cells = density_cells(density), parts = cells < width ? cells : width;
    for (size_t i = 0; i < parts; i++)
        fputs(step(term_utf8() ? bars : ascii, 8, part_level(density, i, parts)), stream);
}

static bool true_colour(void)
{
    const char *setting = getenv("COLORTERM");
    return setting && (strcmp(setting, "truecolor") == 0 || strcmp(setting, "24bit") == 0);
}

/* The step of a channel in the 6 x 6 x 6 cube of the 256 colours: 0, 95, 135, 175, 215, 255. */
static unsigned cube_step(unsigned channel)
{
    if (channel < 48)
        return 0;
    return channel < 115 ? 1 : (channel - 35) / 40;
}

/* Selects a colour for the background or the text. */
static void paint(FILE *stream, bool background, unsigned level)
{
    uint8_t rgb[3];
    heat_colour(level, rgb);
    if (true_colour()) {
        fprintf(stream, "\033[%d;2;%u;%u;%um", background ? 48 : 38, rgb[0], rgb[1], rgb[2]);
        return;
    }
    unsigned code = 16; /* the first of the cube */
    for (int i = 0; i < 3; i++) {
        static const unsigned weight[3] = {36, 6, 1};
        code += weight[i] * cube_step(rgb[i]);
    }
    fprintf(stream, "\033[%d;5;%um", background ? 48 : 38, code);
}

void heat_on(FILE *stream, uint64_t nonzeros, uint64_t elements)
{
    unsigned level = elements ? heat_level(nonzeros, elements) : 0;
    if (term_colours(stream))
        paint(stream, false, level ? level : 1); /* black would be invisible */
}

/* Prints a cell of the map: a block of colour, or a shade. */
static void put_cell(FILE *stream, bool colours, unsigned level)
{
    if (colours) {
        paint(stream, true, level);
        putc(' ', stream);
    } else {
        fputs(term_utf8() ? step(shades, 4, level) : step(ascii, 8, level), stream);
    }
}

static void put_scale(FILE *stream, bool colours, unsigned indent)
{
    fprintf(stream, "%*s", (int)indent, "");
    for (int i = 0; i < HEAT_TICKS; i++) {
        unsigned level = heat_level(heat_ticks[i].nonzeros, heat_ticks[i].elements);
        put_cell(stream, colours, level);
        put_cell(stream, colours, level);
        const char *const off = colours ? "\033[0m" : "";
        fprintf(stream, "%s %s%s", off, heat_ticks[i].text, i + 1 < HEAT_TICKS ? "   " : "\n");
    }
}

uint64_t heat_map(FILE *stream, const struct density *density, unsigned indent, unsigned width, unsigned lines)
{
    bool colours = term_colours(stream), halves = colours && term_utf8();
    /* With colours and UTF-8, a character shows two cells, one above the other. */
    size_t rows = halves ? 2 * (size_t)lines : lines, cells = density_cells(density);
    if (!cells)
        return 0;
    if (cells < 2 * (size_t)width)
        halves = false;
    size_t parts = cells < rows * width ? cells : rows * width;
    size_t used = (parts + width - 1) / width, across = (parts + used - 1) / used, each = halves ? 2 : 1;
    unsigned wide = 1;
    if (parts <= width / 4)
        wide = 4;
    else if (parts <= width / 2)
        wide = 2;
    for (size_t row = 0; row < used; row += each) {
        fprintf(stream, "%*s", (int)indent, "");
        for (size_t x = 0; x < across; x++) {
            size_t i = row * across + x, below = i + across;
            if (i >= parts)
                break;
            if (halves && row + 1 < used && below < parts) {
                paint(stream, true, part_level(density, below, parts));
                paint(stream, false, part_level(density, i, parts));
                fputs("▀", stream);
            } else if (halves) {
                fputs("\033[49m", stream);
                paint(stream, false, part_level(density, i, parts));
                fputs("▀", stream);
            } else {
                for (unsigned k = 0; k < wide; k++)
                    put_cell(stream, colours, part_level(density, i, parts));
            }
        }
        fprintf(stream, "%s\n", colours ? "\033[0m" : "");
    }
    put_scale(stream, colours, indent);
    return density->cell_elements * cells / parts;
}

/* ---- the map of a matrix */

struct shown {
    const struct grid *grid;
    unsigned high, wide; /* parts of the grid */
    unsigned times;      /* height and width of a part, in cells */
};

static unsigned shown_level(const struct shown *shown, unsigned row, unsigned column)
{
    uint64_t nonzeros, elements;
    grid_part(shown->grid, row / shown->times, shown->high, column / shown->times, shown->wide, &nonzeros, &elements);
    return heat_level(nonzeros, elements);
}

static unsigned within(unsigned value, unsigned most)
{
    if (value < 1)
        return 1;
    return value > most ? most : value;
}

/* Chooses parts that fit in wide x high square cells, in about the shape of the matrix. */
static struct shown fit(const struct grid *grid, unsigned wide, unsigned high)
{
    enum { ASPECT = 3 }; /* a maximum, since there are few lines */
    double shape = (double)grid->rows / (double)grid->columns;
    if (shape > ASPECT)
        shape = ASPECT;
    else if (shape < 1.0 / ASPECT)
        shape = 1.0 / ASPECT;
    double x = wide, y = wide * shape;
    if (y > high) {
        x = high / shape;
        y = high;
    }
    struct shown shown = {grid, (unsigned)y, (unsigned)x, 1};
    shown.high = within(shown.high, grid->high);
    shown.wide = within(shown.wide, grid->wide);
    while (shown.times < 4 && (shown.times + 1) * shown.high <= high && (shown.times + 1) * shown.wide <= wide)
        shown.times++;
    return shown;
}

/* Prints a row of cells; with `halves`, two rows in one line. */
static void put_cells(FILE *stream, const struct shown *shown, unsigned row, bool colours, bool halves)
{
    const bool both = halves && row + 1 < shown->high * shown->times;
    for (unsigned x = 0; x < shown->wide * shown->times; x++) {
        const unsigned level = shown_level(shown, row, x);
        if (!halves) {
            put_cell(stream, colours, level);
            put_cell(stream, colours, level);
            continue;
        }
        if (both)
            paint(stream, true, shown_level(shown, row + 1, x));
        else
            fputs("\033[49m", stream);
        paint(stream, false, level);
        fputs("▀", stream);
    }
    fprintf(stream, "%s\n", colours ? "\033[0m" : "");
}

void heat_matrix(FILE *stream, const struct grid *grid, unsigned indent, unsigned width, unsigned lines)
{
    enum { LABELS_APART = 4 }; /* lines */
    const bool colours = term_colours(stream), halves = colours && term_utf8();
    const unsigned each = halves ? 2 : 1;   /* rows of cells in a line */
    const unsigned across = halves ? 1 : 2; /* characters of a cell */
    char last[32];
    if (!grid->elements)
        return;
    unsigned digits = (unsigned)snprintf(last, sizeof last, "%" PRIu64, grid->rows - 1), since = LABELS_APART;
    if (width < 2 * digits + 2 * across)
        digits = 0; /* no room for labels */
    const unsigned left = indent + (digits ? digits + 1 : 0);
    const struct shown shown = fit(grid, (width - (left - indent)) / across, lines * each);
    const unsigned wide = shown.wide * shown.times * across;
    const int end = snprintf(last, sizeof last, "%" PRIu64, grid->columns - 1);
    if (digits && (unsigned)end + 2 <= wide)
        fprintf(stream, "%*s0%*s\n", (int)left, "", (int)wide - 1, last);
    for (unsigned row = 0; row < shown.high * shown.times; row += each, since++) {
        const uint64_t first = (uint64_t)(row / shown.times) * grid->high / shown.high * grid->cell_rows;
        if (digits && since >= LABELS_APART && row % shown.times == 0) {
            fprintf(stream, "%*s%*" PRIu64 " ", (int)indent, "", (int)digits, first);
            since = 0;
        } else {
            fprintf(stream, "%*s", (int)left, "");
        }
        put_cells(stream, &shown, row, colours, halves);
    }
    put_scale(stream, colours, indent);
}
