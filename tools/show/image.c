/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "show/image.h"

#include <stdlib.h>
#include <string.h>

#include "show/canvas.h"
#include "show/png.h"
#include "show/svg.h"
#include "term.h"
#include "tool.h"

enum {
    PANELS = 1000,   /* the most that are drawn */
    CELLS = 1 << 17, /* of all panels */
    ACROSS = 64,     /* cells in a row */
    CELL = 8,        /* pixels of its width */
    TALL = 12,       /* and height */
    MARGIN = 24,     /* pixels; so are the next ones */
    LABEL = 34 * CANVAS_CHAR,
    GAP = 12,
    WIDTH = MARGIN + LABEL + ACROSS * CELL + MARGIN,
    LABEL_TEXT = 33 /* characters, so that a label does not touch its panel */
};

struct panel {
    char *name, *caption;
    uint16_t *level; /* [cells] */
    unsigned cells;
};

struct image {
    char *title;
    struct panel *panel; /* [panels], room for PANELS */
    unsigned panels;
    size_t most; /* cells of a panel */
    uint64_t left_out;
};

struct image *image_new(const char *title, uint64_t tensors)
{
    struct image *im = calloc(1, sizeof *im);
    if (!im)
        return NULL;
    uint64_t shown = tensors == 0 ? ACROSS : tensors < PANELS ? tensors : PANELS;
    im->most = (size_t)(CELLS / shown);
    if (im->most > DENSITY_CELLS)
        im->most = DENSITY_CELLS;
    im->title = strdup(title);
    im->panel = calloc(PANELS, sizeof *im->panel);
    if (im->title && im->panel)
        return im;
    image_free(im);
    return NULL;
}

bool image_add(struct image *im, const char *name, const char *caption, const struct density *measured)
{
    if (im->panels == PANELS) {
        im->left_out++;
        return true;
    }
    struct density *d = malloc(sizeof *d);
    struct panel *p = &im->panel[im->panels];
    char note[CANVAS_CHAR * 8] = "";
    if (!d)
        return false;
    *d = *measured;
    density_by_tile(d);
    while (density_cells(d) > im->most)
        density_fold(d);
    p->cells = (unsigned)density_cells(d);
    if (d->per > DENSITY_TILE)
        snprintf(note, sizeof note, ", a cell is %llu tiles", (unsigned long long)(d->per / DENSITY_TILE));
    size_t cap = strlen(caption) + strlen(note) + 1;
    p->name = strdup(name);
    p->caption = malloc(cap);
    p->level = malloc(p->cells * sizeof *p->level + 1);
    bool ok = p->name && p->caption && p->level;
    if (ok) {
        snprintf(p->caption, cap, "%s%s", caption, note);
        for (unsigned i = 0; i < p->cells; i++) {
            uint64_t nnz, elements;
            density_part(d, i, p->cells, &nnz, &elements);
            p->level[i] = (uint16_t)heat_level(nnz, elements);
        }
        im->panels++;
    } else {
        free(p->name);
        free(p->caption);
        free(p->level);
    }
    free(d);
    return ok;
}

void image_free(struct image *im)
{
    if (!im)
        return;
    for (unsigned i = 0; i < im->panels; i++) {
        free(im->panel[i].name);
        free(im->panel[i].caption);
        free(im->panel[i].level);
    }
    free(im->panel);
    free(im->title);
    free(im);
}

static unsigned panel_height(const struct panel *p)
{
    unsigned rows = (p->cells + ACROSS - 1) / ACROSS * TALL;
    return rows < 2 * CANVAS_LINE ? 2 * CANVAS_LINE : rows;
}

/* Draws as many of the first characters of a label as there is room for. */
static void label(struct canvas *c, unsigned x, unsigned y, const char *text, unsigned room, unsigned ink)
{
    char cut[4 * 96];
    size_t at = 0;
    for (unsigned n = 0; *text && at + 5 < sizeof cut; n++) {
        if (n + 3 >= room && strlen(text) > 3) {
            memcpy(cut + at, "...", 3);
            at += 3;
            break;
        }
        do { /* a character with its UTF-8 continuation bytes */
            cut[at++] = *text++;
        } while (((unsigned char)*text & 0xc0) == 0x80 && at + 5 < sizeof cut);
    }
    cut[at] = 0;
    c->text(c, x, y, cut, ink);
}

/* Draws a run of cells of one colour as one rectangle, and a line around all cells, since the lightest ones are nearly
 * white. */
static void draw_cells(struct canvas *c, const struct panel *p, unsigned x, unsigned y)
{
    unsigned full = p->cells / ACROSS, rest = p->cells % ACROSS;
    if (full)
        c->rect(c, x - 1, y - 1, ACROSS * CELL + 2, full * TALL + 2, INK_LINE);
    if (rest)
        c->rect(c, x - 1, y + full * TALL - 1, rest * CELL + 2, TALL + 2, INK_LINE);
    for (unsigned i = 0; i < p->cells;) {
        unsigned run = 1, column = i % ACROSS;
        while (i + run < p->cells && column + run < ACROSS && p->level[i + run] == p->level[i])
            run++;
        c->rect(c, x + column * CELL, y + i / ACROSS * TALL, run * CELL, TALL, p->level[i]);
        i += run;
    }
}

static void draw_scale(struct canvas *c, unsigned x, unsigned y)
{
    enum { LONG = ACROSS * CELL };
    c->rect(c, x - 1, y - 1, LONG + 2, 2 * CELL + 2, INK_LINE);
    for (unsigned i = 0; i < LONG; i += 2)
        c->rect(c, x + i, y, 2, 2 * CELL, i * HEAT_TOP / LONG);
    for (int i = 0; i < HEAT_TICKS; i++) {
        unsigned at = heat_level(heat_ticks[i].nnz, heat_ticks[i].of) * (LONG - 2) / HEAT_TOP;
        unsigned wide = (unsigned)strlen(heat_ticks[i].text) * CANVAS_CHAR;
        c->rect(c, x + at, y + 2 * CELL, 2, 4, INK_TEXT);
        unsigned left = at < wide / 2 ? 0 : at + wide / 2 > LONG ? LONG - wide : at - wide / 2;
        c->text(c, x + left, y + 2 * CELL + 6, heat_ticks[i].text, INK_TEXT);
    }
}

static int draw(const struct image *im, struct canvas *c)
{
    if (!c)
        return tool_nomem(im->title, "the picture");
    unsigned y = MARGIN, x = MARGIN + LABEL;
    c->rect(c, 0, 0, c->width, c->height, INK_PAPER);
    label(c, MARGIN, y, im->title, (WIDTH - 2 * MARGIN) / CANVAS_CHAR, INK_TEXT);
    y += CANVAS_LINE + GAP;
    draw_scale(c, x, y);
    c->text(c, MARGIN, y, "density of each tile of 4096", INK_FAINT);
    c->text(c, MARGIN, y + CANVAS_LINE, "elements, in their order", INK_FAINT);
    y += 2 * CANVAS_LINE + 2 * GAP;
    for (unsigned i = 0; i < im->panels; i++) {
        const struct panel *p = &im->panel[i];
        label(c, MARGIN, y, p->name, LABEL_TEXT, INK_TEXT);
        label(c, MARGIN, y + CANVAS_LINE, p->caption, LABEL_TEXT, INK_FAINT);
        draw_cells(c, p, x, y);
        y += panel_height(p) + GAP;
    }
    if (im->left_out) {
        char more[64];
        snprintf(more, sizeof more, "and %llu more tensors", (unsigned long long)im->left_out);
        c->text(c, MARGIN, y, more, INK_TEXT);
    }
    return c->finish(c);
}

static unsigned image_height(const struct image *im)
{
    unsigned y = 2 * MARGIN + 3 * CANVAS_LINE + 3 * GAP + (im->left_out ? CANVAS_LINE : 0);
    for (unsigned i = 0; i < im->panels; i++)
        y += panel_height(&im->panel[i]) + GAP;
    return y;
}

int image_png(const struct image *im, struct output *out)
{
    return draw(im, canvas_png(out, WIDTH, image_height(im)));
}

int image_svg(const struct image *im, struct output *out)
{
    return draw(im, canvas_svg(out, WIDTH, image_height(im)));
}

int image_svg_in(const struct image *im, struct markup *page)
{
    return draw(im, canvas_svg_in(page, WIDTH, image_height(im)));
}
