/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A canvas that writes SVG. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "canvas.h"
#include "parse.h"
#include "tool.h"

struct svg {
    struct canvas canvas;
    char buffer[1 << 14];
    size_t len;
    int status;
};

static void flush(struct svg *s)
{
    if (!s->status)
        s->status = output_write(s->canvas.out, s->buffer, s->len);
    s->len = 0;
}

static void put(struct svg *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct svg *s, const char *format, ...)
{
    if (s->len > sizeof s->buffer / 2)
        flush(s);
    va_list args;
    va_start(args, format);
    s->len += (size_t)vsnprintf(s->buffer + s->len, sizeof s->buffer - s->len, format, args); /* short texts only */
    va_end(args);
}

static void put_fill(struct svg *s, unsigned ink)
{
    uint8_t c[3];
    ink_colour(ink, c);
    put(s, "fill=\"#%02x%02x%02x\"", c[0], c[1], c[2]);
}

static void svg_rect(struct canvas *c, unsigned x, unsigned y, unsigned width, unsigned height, unsigned ink)
{
    struct svg *s = (struct svg *)c;
    put(s, "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" ", x, y, width, height);
    put_fill(s, ink);
    put(s, "/>\n");
}

/* Characters that XML does not take, controls and broken UTF-8, appear as \xNN. */
static void svg_text(struct canvas *c, unsigned x, unsigned y, const char *text, unsigned ink)
{
    struct svg *s = (struct svg *)c;
    const uint8_t *p = (const uint8_t *)text, *end = p + strlen(text);
    put(s, "<text x=\"%u\" y=\"%u\" ", x, y + 14);
    put_fill(s, ink);
    put(s, ">");
    while (p < end) {
        size_t k = parse_utf8(p, end);
        bool refused = k == 0 || *p < 0x20 || *p == 0x7f || (k == 2 && p[0] == 0xc2 && p[1] < 0xa0) ||
                       (k == 3 && p[0] == 0xef && p[1] == 0xbf && p[2] >= 0xbe);
        if (refused) {
            put(s, "\\x%02x", *p);
            k = 1;
        } else if (*p == '<' || *p == '>' || *p == '&') {
            put(s, "&#%u;", *p);
        } else {
            put(s, "%.*s", (int)k, (const char *)p);
        }
        p += k;
    }
    put(s, "</text>\n");
}

static int svg_finish(struct canvas *c)
{
    struct svg *s = (struct svg *)c;
    put(s, "</g>\n</svg>\n");
    flush(s);
    int status = s->status;
    free(s);
    return status;
}

struct canvas *canvas_svg(struct output *out, unsigned width, unsigned height)
{
    struct svg *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->canvas = (struct canvas){svg_rect, svg_text, svg_finish, out, width, height};
    put(s,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" viewBox=\"0 0 %u %u\">\n"
        "<g shape-rendering=\"crispEdges\" font-family=\"monospace\" font-size=\"16\" xml:space=\"preserve\">\n",
        width, height, width, height);
    return &s->canvas;
}
