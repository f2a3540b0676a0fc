/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A canvas that writes SVG. */
#include "show/svg.h"

#include <stdlib.h>
#include <string.h>

#include "show/markup.h"
#include "tool.h"

enum { SHADES = 64 }; /* colours of cells; fewer make longer runs of one */

struct svg {
    struct canvas canvas;
    struct markup *to;
    struct markup own; /* the target of to, unless that is a page */
    bool in_page;
};

/* Of a page, text has its colour and the ground shows through, so that dark pages stay dark. */
static void put_fill(struct svg *s, unsigned ink)
{
    uint8_t c[3];
    if (s->in_page && (ink == INK_TEXT || ink == INK_FAINT)) {
        markup_put(s->to, "fill=\"currentColor\"");
        return;
    }
    ink_colour(ink, c);
    markup_put(s->to, "fill=\"#%02x%02x%02x\"", c[0], c[1], c[2]);
}

static void svg_rect(struct canvas *c, unsigned x, unsigned y, unsigned width, unsigned height, unsigned ink)
{
    struct svg *s = (struct svg *)c;
    if (s->in_page && ink == INK_PAPER)
        return;
    markup_put(s->to, "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" ", x, y, width, height);
    put_fill(s, ink);
    markup_put(s->to, "/>\n");
}

/* Writes the runs of cells of one shade as one path, in units of a cell. */
static void put_shade(struct svg *s, const struct canvas_cells *cells, const uint8_t *shade, unsigned which)
{
    markup_put(s->to, "<path ");
    put_fill(s, which * HEAT_TOP / SHADES);
    markup_put(s->to, " d=\"");
    for (unsigned i = 0; i < cells->count;) {
        const unsigned end = i - i % cells->wide + cells->wide;
        unsigned run = 1;
        while (i + run < cells->count && i + run < end && shade[i + run] == shade[i])
            run++;
        if (shade[i] == which)
            markup_put(s->to, "M%u %uh%uv1h-%uz", i % cells->wide, i / cells->wide, run, run);
        i += run;
    }
    markup_put(s->to, "\"/>\n");
}

static void svg_cells(struct canvas *c, unsigned x, unsigned y, const struct canvas_cells *cells)
{
    struct svg *s = (struct svg *)c;
    uint8_t *shade = malloc(cells->count + 1);
    bool used[SHADES + 1] = {false};
    if (!shade) {
        s->to->status = tool_nomem(c->out->name, "the cells of a picture");
        return;
    }
    for (unsigned i = 0; i < cells->count; i++) {
        const unsigned level = cells->level[i];
        shade[i] = (uint8_t)(level ? 1 + (level - 1) * SHADES / HEAT_TOP : 0);
        used[shade[i]] = true;
    }
    markup_put(s->to, "<g transform=\"translate(%u %u) scale(%u %u)\">\n", x, y, cells->cell_width, cells->cell_height);
    for (unsigned which = 0; which <= SHADES; which++)
        if (used[which])
            put_shade(s, cells, shade, which);
    markup_put(s->to, "</g>\n");
    free(shade);
}

static void svg_line(struct canvas *c, unsigned x, unsigned y, unsigned to_x, unsigned to_y, unsigned ink)
{
    struct svg *s = (struct svg *)c;
    uint8_t rgb[3];
    ink_colour(ink, rgb);
    markup_put(s->to,
               "<path shape-rendering=\"auto\" stroke=\"#%02x%02x%02x\" stroke-width=\"2\" d=\"M%u %uL%u %u\"/>\n",
               rgb[0], rgb[1], rgb[2], x, y, to_x, to_y);
}

static void svg_text(struct canvas *c, unsigned x, unsigned y, const char *text, enum canvas_anchor anchor,
                     unsigned ink)
{
    static const char *const names[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    struct svg *s = (struct svg *)c;
    markup_put(s->to, "<text x=\"%u\" y=\"%u\"%s ", x, y + 14, names[anchor]);
    put_fill(s, ink);
    markup_put(s->to, ">");
    markup_text(s->to, text, strlen(text));
    markup_put(s->to, "</text>\n");
}

static int svg_finish(struct canvas *c)
{
    struct svg *s = (struct svg *)c;
    markup_put(s->to, "</g>\n</svg>\n");
    int status = markup_flush(s->to);
    free(s);
    return status;
}

/* Writes the start of the element. */
static struct canvas *begin(struct svg *s, unsigned width, unsigned height)
{
    s->canvas = (struct canvas){svg_rect, svg_cells, svg_line, svg_text, svg_finish, s->to->out, width, height};
    markup_put(s->to,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" viewBox=\"0 0 %u %u\">\n"
               "<g shape-rendering=\"crispEdges\" font-family=\"monospace\" font-size=\"16\" xml:space=\"preserve\">\n",
               width, height, width, height);
    return &s->canvas;
}

struct canvas *canvas_svg(struct output *output, unsigned width, unsigned height)
{
    struct svg *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->to = &s->own;
    s->own.out = output;
    markup_put(s->to, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    return begin(s, width, height);
}

struct canvas *canvas_svg_in(struct markup *page, unsigned width, unsigned height)
{
    struct svg *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->to = page;
    s->in_page = true;
    return begin(s, width, height);
}
