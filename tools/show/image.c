/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "show/image.h"

#include <stdlib.h>
#include <string.h>

#include "show/canvas.h"
#include "show/markup.h"
#include "show/plot.h"
#include "show/png.h"
#include "show/svg.h"
#include "tool.h"

enum {
    PANELS = 1000,    /* the most that are drawn */
    CELLS = 1 << 19,  /* of all panels, about */
    UNKNOWN = 64,     /* panels, if their number is not known */
    MANY = 64,        /* more panels than these are small */
    SIDE_ALONE = 512, /* pixels of the cells of a panel */
    SIDE = 288,
    SIDE_MANY = 144,
    LEAST_WIDE = 24 * CANVAS_CHAR, /* of a panel, for its text */
    CELL_LEAST = 2,                /* pixels */
    ACROSS = 3,                    /* panels side by side */
    ACROSS_MANY = 4,
    MARGIN = 24, /* pixels; so are the next ones */
    GAP = 20,
    TEXT_BELOW = 6,
    SCALE_NONE = 16,  /* pixels of the colour of cells without nonzeros */
    SCALE_START = 40, /* where the other colours start */
    SCALE_WIDE = 360,
    SCALE_HIGH = 16,
    SCALE_TICK = 4,
    SCALE_ALL = SCALE_HIGH + SCALE_TICK + 2 + CANVAS_LINE
};

struct panel {
    char *name, *line[IMAGE_LINES];
    struct plot plot;
};

struct image {
    char *title;
    struct panel *panel; /* [panels], room for PANELS */
    unsigned panels, across, side, wide;
    unsigned most; /* cells of a panel in each direction */
    uint64_t left_out;
};

struct image *image_new(const char *title, uint64_t tensors, bool in_page)
{
    struct image *im = calloc(1, sizeof *im);
    if (!im)
        return NULL;
    const unsigned shown = tensors == 0 ? UNKNOWN : tensors < PANELS ? (unsigned)tensors : PANELS;
    im->side = in_page ? SIDE : shown == 1 ? SIDE_ALONE : shown <= MANY ? SIDE : SIDE_MANY;
    im->across = shown <= MANY ? ACROSS : ACROSS_MANY;
    im->wide = PLOT_LEFT + im->side + PLOT_RIGHT;
    if (im->wide < LEAST_WIDE)
        im->wide = LEAST_WIDE;
    im->most = GRID_SIDE_LEAST;
    while (im->most < im->side / CELL_LEAST && (im->most + 1) * (im->most + 1) <= CELLS / shown)
        im->most++;
    im->title = strdup(title);
    im->panel = calloc(PANELS, sizeof *im->panel);
    if (im->title && im->panel)
        return im;
    image_free(im);
    return NULL;
}

unsigned image_side(const struct image *im)
{
    return im->most;
}

static void panel_free(struct panel *p)
{
    free(p->name);
    for (int i = 0; i < IMAGE_LINES; i++)
        free(p->line[i]);
    plot_free(&p->plot);
}

bool image_add(struct image *im, const char *name, const char *const lines[IMAGE_LINES], const struct grid *g)
{
    if (im->panels == PANELS) {
        im->left_out++;
        return true;
    }
    struct panel *p = &im->panel[im->panels];
    *p = (struct panel){.name = strdup(name)};
    bool ok = p->name;
    for (int i = 0; i < IMAGE_LINES; i++)
        ok = (p->line[i] = strdup(lines[i])) && ok;
    ok = plot_init(&p->plot, g, im->side) && ok;
    if (ok)
        im->panels++;
    else
        panel_free(p);
    return ok;
}

void image_free(struct image *im)
{
    if (!im)
        return;
    for (unsigned i = 0; i < im->panels; i++)
        panel_free(&im->panel[i]);
    free(im->panel);
    free(im->title);
    free(im);
}

/* The height of the text of a panel: its name, and the lines that are not empty. */
static unsigned text_height(const struct panel *p)
{
    unsigned lines = 1;
    for (int i = 0; i < IMAGE_LINES; i++)
        lines += *p->line[i] != 0;
    return lines * CANVAS_LINE + TEXT_BELOW;
}

/* The same of a row of panels, which starts at first. */
static unsigned row_text_height(const struct image *im, unsigned first)
{
    unsigned height = 0;
    for (unsigned i = first; i < first + im->across && i < im->panels; i++)
        if (text_height(&im->panel[i]) > height)
            height = text_height(&im->panel[i]);
    return height;
}

static unsigned row_height(const struct image *im, unsigned first)
{
    unsigned height = 0;
    for (unsigned i = first; i < first + im->across && i < im->panels; i++)
        if (im->panel[i].plot.height > height)
            height = im->panel[i].plot.height;
    return row_text_height(im, first) + (height ? PLOT_TOP + height + PLOT_BELOW : 0);
}

/* Draws as many of the first characters of a label as there is room for. */
static void label(struct canvas *c, unsigned x, unsigned y, const char *text, unsigned room, unsigned ink)
{
    char cut[4 * 128];
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
    c->text(c, x, y, cut, ANCHOR_LEFT, ink);
}

static void draw_scale(struct canvas *c, unsigned x, unsigned y)
{
    enum { LONG = SCALE_WIDE - SCALE_START, INNER = LONG - 2 };
    c->rect(c, x, y, SCALE_NONE, SCALE_HIGH, 0);
    c->text(c, x + SCALE_NONE / 2, y + SCALE_HIGH + SCALE_TICK + 2, heat_ticks[0].text, ANCHOR_MIDDLE, INK_TEXT);
    x += SCALE_START;
    c->rect(c, x, y, LONG, SCALE_HIGH, INK_LINE);
    for (unsigned i = 0; i < INNER; i++)
        c->rect(c, x + 1 + i, y + 1, 1, SCALE_HIGH - 2, 1 + i * (HEAT_TOP - 1) / (INNER - 1));
    for (int i = 1; i < HEAT_TICKS; i++) {
        const unsigned at = 1 + heat_level(heat_ticks[i].nnz, heat_ticks[i].of) * (INNER - 1) / HEAT_TOP;
        const bool last = i + 1 == HEAT_TICKS;
        c->rect(c, x + at, y + SCALE_HIGH, 1, SCALE_TICK, INK_TEXT);
        c->text(c, last ? x + LONG : x + at, y + SCALE_HIGH + SCALE_TICK + 2, heat_ticks[i].text,
                last ? ANCHOR_RIGHT : ANCHOR_MIDDLE, INK_TEXT);
    }
}

static unsigned image_width(const struct image *im)
{
    const unsigned across = im->panels < im->across ? im->panels : im->across;
    const unsigned width = across ? across * im->wide + (across - 1) * GAP : 0;
    return 2 * MARGIN + (width < SCALE_WIDE ? SCALE_WIDE : width);
}

static unsigned image_height(const struct image *im)
{
    unsigned y = 2 * MARGIN + 2 * CANVAS_LINE + 2 * GAP + SCALE_ALL + (im->left_out ? CANVAS_LINE : 0);
    for (unsigned i = 0; i < im->panels; i += im->across)
        y += row_height(im, i) + GAP;
    return y;
}

static void draw_panel(const struct image *im, const struct panel *p, struct canvas *c, unsigned x, unsigned y,
                       unsigned text)
{
    unsigned at = y;
    label(c, x, at, p->name, im->wide / CANVAS_CHAR, INK_TEXT);
    for (int i = 0; i < IMAGE_LINES; i++)
        if (*p->line[i])
            label(c, x, at += CANVAS_LINE, p->line[i], im->wide / CANVAS_CHAR, INK_FAINT);
    plot_draw(&p->plot, c, x, y + text);
}

static int draw(const struct image *im, struct canvas *c)
{
    if (!c)
        return tool_nomem(im->title, "the picture");
    unsigned y = MARGIN;
    c->rect(c, 0, 0, c->width, c->height, INK_PAPER);
    label(c, MARGIN, y, im->title, (c->width - 2 * MARGIN) / CANVAS_CHAR, INK_TEXT);
    y += CANVAS_LINE + GAP / 2;
    label(c, MARGIN, y, "density of each cell", SCALE_WIDE / CANVAS_CHAR, INK_FAINT);
    y += CANVAS_LINE + GAP / 2;
    draw_scale(c, MARGIN, y);
    y += SCALE_ALL + GAP;
    for (unsigned i = 0; i < im->panels; i += im->across) {
        const unsigned text = row_text_height(im, i);
        for (unsigned k = i; k < i + im->across && k < im->panels; k++)
            draw_panel(im, &im->panel[k], c, MARGIN + (k - i) * (im->wide + GAP), y, text);
        y += row_height(im, i) + GAP;
    }
    if (im->left_out) {
        char more[64];
        snprintf(more, sizeof more, "and %llu more tensors", (unsigned long long)im->left_out);
        c->text(c, MARGIN, y, more, ANCHOR_LEFT, INK_TEXT);
    }
    return c->finish(c);
}

int image_png(const struct image *im, struct output *output)
{
    return draw(im, canvas_png(output, image_width(im), image_height(im)));
}

int image_svg(const struct image *im, struct output *output)
{
    return draw(im, canvas_svg(output, image_width(im), image_height(im)));
}

static int draw_figure(const struct image *im, const struct panel *p, struct markup *page)
{
    markup_put(page, "<figure>\n<figcaption><span class=\"name\">");
    markup_text(page, p->name, strlen(p->name));
    markup_put(page, "</span>");
    for (int i = 0; i < IMAGE_LINES; i++)
        if (*p->line[i]) {
            markup_put(page, "<br><span class=\"faint\">");
            markup_text(page, p->line[i], strlen(p->line[i]));
            markup_put(page, "</span>");
        }
    markup_put(page, "</figcaption>\n");
    if (p->plot.width) {
        struct canvas *c =
            canvas_svg_in(page, PLOT_LEFT + p->plot.width + PLOT_RIGHT, PLOT_TOP + p->plot.height + PLOT_BELOW);
        if (!c)
            return tool_nomem(im->title, "the page");
        plot_draw(&p->plot, c, 0, 0);
        TRY(c->finish(c));
    }
    markup_put(page, "</figure>\n");
    return TOOL_OK;
}

int image_html(const struct image *im, struct markup *page)
{
    struct canvas *c = canvas_svg_in(page, SCALE_WIDE + 1, SCALE_ALL);
    if (!c)
        return tool_nomem(im->title, "the page");
    draw_scale(c, 0, 0);
    TRY(c->finish(c));
    markup_put(page, "<div class=\"maps\">\n");
    for (unsigned i = 0; i < im->panels; i++)
        TRY(draw_figure(im, &im->panel[i], page));
    markup_put(page, "</div>\n");
    if (im->left_out)
        markup_put(page, "<p class=\"faint\">and %llu more tensors</p>\n", (unsigned long long)im->left_out);
    return TOOL_OK;
}
