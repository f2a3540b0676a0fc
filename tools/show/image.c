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
    PANELS = 1000,    /* the most panels to draw */
    CELLS = 1 << 19,  /* approximate total of all panels */
    UNKNOWN = 64,     /* panels, if their number is unknown */
    MANY = 64,        /* above this number, panels are small */
    SIDE_ALONE = 512, /* pixels of the cells, for a single panel */
    SIDE = 288,
    SIDE_MANY = 144,
    LEAST_WIDE = 24 * CANVAS_CHAR, /* minimum width of a panel, for its text */
    CELL_LEAST = 2,                /* pixels */
    ACROSS = 3,                    /* panels side by side */
    ACROSS_MANY = 4,
    MARGIN = 24, /* this and the next: pixels */
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
    unsigned most; /* maximum cells of a panel in each direction */
    uint64_t left_out;
};

struct image *image_new(const char *title, uint64_t tensors, bool in_page)
{
    struct image *image = calloc(1, sizeof *image);
    if (!image)
        return NULL;
    unsigned shown = tensors < PANELS ? (unsigned)tensors : PANELS;
    if (!tensors)
        shown = UNKNOWN;
    image->side = shown <= MANY ? SIDE : SIDE_MANY;
    if (shown == 1)
        image->side = SIDE_ALONE;
    if (in_page)
        image->side = SIDE;
    image->across = shown <= MANY ? ACROSS : ACROSS_MANY;
    image->wide = PLOT_LEFT + image->side + PLOT_RIGHT;
    if (image->wide < LEAST_WIDE)
        image->wide = LEAST_WIDE;
    image->most = GRID_SIDE_LEAST;
    while (image->most < image->side / CELL_LEAST && (image->most + 1) * (image->most + 1) <= CELLS / shown)
        image->most++;
    image->title = strdup(title);
    image->panel = calloc(PANELS, sizeof *image->panel);
    if (image->title && image->panel)
        return image;
    image_free(image);
    return NULL;
}

unsigned image_side(const struct image *image)
{
    return image->most;
}

static void panel_free(struct panel *panel)
{
    free(panel->name);
    for (int i = 0; i < IMAGE_LINES; i++)
        free(panel->line[i]);
    plot_free(&panel->plot);
}

bool image_add(struct image *image, const char *name, const char *const lines[IMAGE_LINES], const struct grid *grid)
{
    if (image->panels == PANELS) {
        image->left_out++;
        return true;
    }
    struct panel *panel = &image->panel[image->panels];
    *panel = (struct panel){.name = strdup(name)};
    bool ok = panel->name;
    for (int i = 0; i < IMAGE_LINES; i++)
        ok = (panel->line[i] = strdup(lines[i])) && ok;
    ok = plot_init(&panel->plot, grid, image->side) && ok;
    if (ok)
        image->panels++;
    else
        panel_free(panel);
    return ok;
}

void image_free(struct image *image)
{
    if (!image)
        return;
    for (unsigned i = 0; i < image->panels; i++)
        panel_free(&image->panel[i]);
    free(image->panel);
    free(image->title);
    free(image);
}

/* The height of the text of a panel: its name, and the lines that are not empty. */
static unsigned text_height(const struct panel *panel)
{
    unsigned lines = 1;
    for (int i = 0; i < IMAGE_LINES; i++)
        lines += *panel->line[i] != 0;
    return lines * CANVAS_LINE + TEXT_BELOW;
}

/* The same for a row of panels that starts at `first`. */
static unsigned row_text_height(const struct image *image, unsigned first)
{
    unsigned height = 0;
    for (unsigned i = first; i < first + image->across && i < image->panels; i++)
        if (text_height(&image->panel[i]) > height)
            height = text_height(&image->panel[i]);
    return height;
}

static unsigned row_height(const struct image *image, unsigned first)
{
    unsigned height = 0;
    for (unsigned i = first; i < first + image->across && i < image->panels; i++)
        if (image->panel[i].plot.height > height)
            height = image->panel[i].plot.height;
    return row_text_height(image, first) + (height ? PLOT_TOP + height + PLOT_BELOW : 0);
}

/* Draws the beginning of a label, as many characters as fit. */
static void label(struct canvas *canvas, unsigned x, unsigned y, const char *text, unsigned most, unsigned ink)
{
    char cut[4 * 128];
    size_t used = 0;
    for (unsigned characters = 0; *text && used + 5 < sizeof cut; characters++) {
        if (characters + 3 >= most && strlen(text) > 3) {
            memcpy(cut + used, "...", 3);
            used += 3;
            break;
        }
        do { /* a character with its UTF-8 continuation bytes */
            cut[used++] = *text++;
        } while (((unsigned char)*text & 0xc0) == 0x80 && used + 5 < sizeof cut);
    }
    cut[used] = 0;
    canvas->text(canvas, x, y, cut, ANCHOR_LEFT, ink);
}

static void draw_scale(struct canvas *canvas, unsigned x, unsigned y)
{
    enum { LONG = SCALE_WIDE - SCALE_START, INNER = LONG - 2 };
    canvas->rect(canvas, x, y, SCALE_NONE, SCALE_HIGH, 0);
    canvas->text(canvas, x + SCALE_NONE / 2, y + SCALE_HIGH + SCALE_TICK + 2, heat_ticks[0].text, ANCHOR_MIDDLE,
                 INK_TEXT);
    x += SCALE_START;
    canvas->rect(canvas, x, y, LONG, SCALE_HIGH, INK_LINE);
    for (unsigned i = 0; i < INNER; i++)
        canvas->rect(canvas, x + 1 + i, y + 1, 1, SCALE_HIGH - 2, 1 + i * (HEAT_TOP - 1) / (INNER - 1));
    for (int i = 1; i < HEAT_TICKS; i++) {
        const unsigned tick = 1 + heat_level(heat_ticks[i].nonzeros, heat_ticks[i].elements) * (INNER - 1) / HEAT_TOP;
        const bool last = i + 1 == HEAT_TICKS;
        canvas->rect(canvas, x + tick, y + SCALE_HIGH, 1, SCALE_TICK, INK_TEXT);
        const unsigned label_x = last ? x + LONG : x + tick;
        canvas->text(canvas, label_x, y + SCALE_HIGH + SCALE_TICK + 2, heat_ticks[i].text,
                     last ? ANCHOR_RIGHT : ANCHOR_MIDDLE, INK_TEXT);
    }
}

static unsigned image_width(const struct image *image)
{
    const unsigned across = image->panels < image->across ? image->panels : image->across;
    const unsigned width = across ? across * image->wide + (across - 1) * GAP : 0;
    return 2 * MARGIN + (width < SCALE_WIDE ? SCALE_WIDE : width);
}

static unsigned image_height(const struct image *image)
{
    unsigned y = 2 * MARGIN + 2 * CANVAS_LINE + 2 * GAP + SCALE_ALL + (image->left_out ? CANVAS_LINE : 0);
    for (unsigned i = 0; i < image->panels; i += image->across)
        y += row_height(image, i) + GAP;
    return y;
}

static void draw_panel(const struct image *image, const struct panel *panel, struct canvas *canvas, unsigned x,
                       unsigned y, unsigned text)
{
    unsigned line_y = y;
    label(canvas, x, line_y, panel->name, image->wide / CANVAS_CHAR, INK_TEXT);
    for (int i = 0; i < IMAGE_LINES; i++)
        if (*panel->line[i])
            label(canvas, x, line_y += CANVAS_LINE, panel->line[i], image->wide / CANVAS_CHAR, INK_FAINT);
    plot_draw(&panel->plot, canvas, x, y + text);
}

static int draw(const struct image *image, struct canvas *canvas)
{
    if (!canvas)
        return tool_nomem(image->title, "the picture");
    unsigned y = MARGIN;
    canvas->rect(canvas, 0, 0, canvas->width, canvas->height, INK_PAPER);
    label(canvas, MARGIN, y, image->title, (canvas->width - 2 * MARGIN) / CANVAS_CHAR, INK_TEXT);
    y += CANVAS_LINE + GAP / 2;
    label(canvas, MARGIN, y, "density of each cell", SCALE_WIDE / CANVAS_CHAR, INK_FAINT);
    y += CANVAS_LINE + GAP / 2;
    draw_scale(canvas, MARGIN, y);
    y += SCALE_ALL + GAP;
    for (unsigned i = 0; i < image->panels; i += image->across) {
        const unsigned text_high = row_text_height(image, i);
        for (unsigned k = i; k < i + image->across && k < image->panels; k++)
            draw_panel(image, &image->panel[k], canvas, MARGIN + (k - i) * (image->wide + GAP), y, text_high);
        y += row_height(image, i) + GAP;
    }
    if (image->left_out) {
        char more[64];
        snprintf(more, sizeof more, "and %llu more tensors", (unsigned long long)image->left_out);
        canvas->text(canvas, MARGIN, y, more, ANCHOR_LEFT, INK_TEXT);
    }
    return canvas->finish(canvas);
}

int image_png(const struct image *image, struct output *output)
{
    return draw(image, canvas_png(output, image_width(image), image_height(image)));
}

int image_svg(const struct image *image, struct output *output)
{
    return draw(image, canvas_svg(output, image_width(image), image_height(image)));
}

static int draw_figure(const struct image *image, const struct panel *panel, struct markup *page)
{
    markup_put(page, "<figure>\n<figcaption><span class=\"name\">");
    markup_text(page, panel->name, strlen(panel->name));
    markup_put(page, "</span>");
    for (int i = 0; i < IMAGE_LINES; i++)
        if (*panel->line[i]) {
            markup_put(page, "<br><span class=\"faint\">");
            markup_text(page, panel->line[i], strlen(panel->line[i]));
            markup_put(page, "</span>");
        }
    markup_put(page, "</figcaption>\n");
    if (panel->plot.width) {
        struct canvas *canvas =
            canvas_svg_in(page, PLOT_LEFT + panel->plot.width + PLOT_RIGHT, PLOT_TOP + panel->plot.height + PLOT_BELOW);
        if (!canvas)
            return tool_nomem(image->title, "the page");
        plot_draw(&panel->plot, canvas, 0, 0);
        TRY(canvas->finish(canvas));
    }
    markup_put(page, "</figure>\n");
    return TOOL_OK;
}

int image_html(const struct image *image, struct markup *page)
{
    struct canvas *canvas = canvas_svg_in(page, SCALE_WIDE + 1, SCALE_ALL);
    if (!canvas)
        return tool_nomem(image->title, "the page");
    draw_scale(canvas, 0, 0);
    TRY(canvas->finish(canvas));
    markup_put(page, "<div class=\"maps\">\n");
    for (unsigned i = 0; i < image->panels; i++)
        TRY(draw_figure(image, &image->panel[i], page));
    markup_put(page, "</div>\n");
    if (image->left_out)
        markup_put(page, "<p class=\"faint\">and %llu more tensors</p>\n", (unsigned long long)image->left_out);
    return TOOL_OK;
}
