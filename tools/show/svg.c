/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A canvas that writes SVG. */
#include "show/svg.h"

#include <stdlib.h>
#include <string.h>

#include "show/markup.h"
#include "tool.h"

enum { SHADES = 64 }; /* colours of cells; fewer colours make longer runs */

struct svg {
    struct canvas canvas;
    struct markup *markup;
    struct markup own; /* the target of `markup`, unless that is a page */
    bool in_page;
};

/* In a page, text inherits its colour and the ground is transparent, so that dark pages stay dark. */
static void put_fill(struct svg *svg, unsigned ink)
{
    uint8_t rgb[3];
    if (svg->in_page && (ink == INK_TEXT || ink == INK_FAINT)) {
        markup_put(svg->markup, "fill=\"currentColor\"");
        return;
    }
    ink_colour(ink, rgb);
    markup_put(svg->markup, "fill=\"#%02x%02x%02x\"", rgb[0], rgb[1], rgb[2]);
}

static void svg_rect(struct canvas *canvas, unsigned x, unsigned y, unsigned width, unsigned height, unsigned ink)
{
    struct svg *svg = (struct svg *)canvas;
    if (svg->in_page && ink == INK_PAPER)
        return;
    markup_put(svg->markup, "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" ", x, y, width, height);
    put_fill(svg, ink);
    markup_put(svg->markup, "/>\n");
}

/* Writes all runs of cells with one shade as one path, in units of a cell. */
static void put_shade(struct svg *svg, const struct canvas_cells *cells, const uint8_t *shade, unsigned which)
{
    markup_put(svg->markup, "<path ");
    put_fill(svg, which * HEAT_TOP / SHADES);
    markup_put(svg->markup, " d=\"");
    for (unsigned i = 0; i < cells->count;) {
        const unsigned end = i - i % cells->wide + cells->wide;
        unsigned run = 1;
        while (i + run < cells->count && i + run < end && shade[i + run] == shade[i])
            run++;
        if (shade[i] == which)
            markup_put(svg->markup, "M%u %uh%uv1h-%uz", i % cells->wide, i / cells->wide, run, run);
        i += run;
    }
    markup_put(svg->markup, "\"/>\n");
}

static void svg_cells(struct canvas *canvas, unsigned x, unsigned y, const struct canvas_cells *cells)
{
    struct svg *svg = (struct svg *)canvas;
    uint8_t *shade = malloc(cells->count + 1);
    bool used[SHADES + 1] = {false};
    if (!shade) {
        svg->markup->status = tool_nomem(canvas->output->name, "the cells of a picture");
        return;
    }
    for (unsigned i = 0; i < cells->count; i++) {
        const unsigned level = cells->level[i];
        shade[i] = (uint8_t)(level ? 1 + (level - 1) * SHADES / HEAT_TOP : 0);
        used[shade[i]] = true;
    }
    markup_put(svg->markup, "<g transform=\"translate(%u %u) scale(%u %u)\">\n", x, y, cells->cell_width,
               cells->cell_height);
    for (unsigned which = 0; which <= SHADES; which++)
        if (used[which])
            put_shade(svg, cells, shade, which);
    markup_put(svg->markup, "</g>\n");
    free(shade);
}

static void svg_line(struct canvas *canvas, unsigned x, unsigned y, unsigned to_x, unsigned to_y, unsigned ink)
{
    struct svg *svg = (struct svg *)canvas;
    uint8_t rgb[3];
    ink_colour(ink, rgb);
    markup_put(svg->markup,
               "<path shape-rendering=\"auto\" stroke=\"#%02x%02x%02x\" stroke-width=\"2\" d=\"M%u %uL%u %u\"/>\n",
               rgb[0], rgb[1], rgb[2], x, y, to_x, to_y);
}

static void svg_text(struct canvas *canvas, unsigned x, unsigned y, const char *text, enum canvas_anchor anchor,
                     unsigned ink)
{
    static const char *const names[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    struct svg *svg = (struct svg *)canvas;
    markup_put(svg->markup, "<text x=\"%u\" y=\"%u\"%s ", x, y + 14, names[anchor]);
    put_fill(svg, ink);
    markup_put(svg->markup, ">");
    markup_text(svg->markup, text, strlen(text));
    markup_put(svg->markup, "</text>\n");
}

static int svg_finish(struct canvas *canvas)
{
    struct svg *svg = (struct svg *)canvas;
    markup_put(svg->markup, "</g>\n</svg>\n");
    int status = markup_flush(svg->markup);
    free(svg);
    return status;
}

/* Writes the start of the element. */
static struct canvas *begin(struct svg *svg, unsigned width, unsigned height)
{
    svg->canvas =
        (struct canvas){svg_rect, svg_cells, svg_line, svg_text, svg_finish, svg->markup->output, width, height};
    markup_put(svg->markup,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" viewBox=\"0 0 %u %u\">\n"
               "<g shape-rendering=\"crispEdges\" font-family=\"monospace\" font-size=\"16\" xml:space=\"preserve\">\n",
               width, height, width, height);
    return &svg->canvas;
}

struct canvas *canvas_svg(struct output *output, unsigned width, unsigned height)
{
    struct svg *svg = calloc(1, sizeof *svg);
    if (!svg)
        return NULL;
    svg->markup = &svg->own;
    svg->own.output = output;
    markup_put(svg->markup, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    return begin(svg, width, height);
}

struct canvas *canvas_svg_in(struct markup *page, unsigned width, unsigned height)
{
    struct svg *svg = calloc(1, sizeof *svg);
    if (!svg)
        return NULL;
    svg->markup = page;
    svg->in_page = true;
    return begin(svg, width, height);
}
