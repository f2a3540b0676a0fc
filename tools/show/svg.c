/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A canvas that writes SVG. */
#include "show/svg.h"

#include <stdlib.h>
#include <string.h>

#include "show/markup.h"

struct svg {
    struct canvas canvas;
    struct markup *to;
    struct markup own; /* the target of to, unless that is a page */
};

static void put_fill(struct svg *s, unsigned ink)
{
    uint8_t c[3];
    ink_colour(ink, c);
    markup_put(s->to, "fill=\"#%02x%02x%02x\"", c[0], c[1], c[2]);
}

static void svg_rect(struct canvas *c, unsigned x, unsigned y, unsigned width, unsigned height, unsigned ink)
{
    struct svg *s = (struct svg *)c;
    markup_put(s->to, "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" ", x, y, width, height);
    put_fill(s, ink);
    markup_put(s->to, "/>\n");
}

static void svg_text(struct canvas *c, unsigned x, unsigned y, const char *text, unsigned ink)
{
    struct svg *s = (struct svg *)c;
    markup_put(s->to, "<text x=\"%u\" y=\"%u\" ", x, y + 14);
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
    s->canvas = (struct canvas){svg_rect, svg_text, svg_finish, s->to->out, width, height};
    markup_put(s->to,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" viewBox=\"0 0 %u %u\">\n"
               "<g shape-rendering=\"crispEdges\" font-family=\"monospace\" font-size=\"16\" xml:space=\"preserve\">\n",
               width, height, width, height);
    return &s->canvas;
}

struct canvas *canvas_svg(struct output *out, unsigned width, unsigned height)
{
    struct svg *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->to = &s->own;
    s->own.out = out;
    markup_put(s->to, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    return begin(s, width, height);
}

struct canvas *canvas_svg_in(struct markup *page, unsigned width, unsigned height)
{
    struct svg *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->to = page;
    return begin(s, width, height);
}
