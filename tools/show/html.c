/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "show/html.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "show/markup.h"
#include "term.h"
#include "tool.h"

static const char style[] =
    ":root{color-scheme:light "
    "dark;--ink:#20202a;--faint:#6b6b78;--line:#dcdce4;--paper:#fff;--bar:#7b3fa0;--best:#d9480f}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e6ee;--faint:#9a9aa8;--line:#3a3a46;--paper:#17171d;--bar:#"
    "b48ad0;"
    "--best:#ff922b}}\n"
    "body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:2rem auto;max-width:76rem;"
    "padding:0 1.5rem}\n"
    "h1{font-size:1.5rem;margin:0;overflow-wrap:anywhere}h2{font-size:1.1rem;margin:2.2rem 0 .6rem}\n"
    ".faint{color:var(--faint)}p{margin:.3rem 0}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}\n"
    "th,td{text-align:right;padding:.25rem .7rem;border-bottom:1px solid var(--line);white-space:nowrap}\n"
    "th{font-weight:600;color:var(--faint)}td:first-child,th:first-child{text-align:left;padding-left:0}\n"
    "td.name{white-space:normal;overflow-wrap:anywhere;min-width:15rem;font-family:monospace}\n"
    "td.left,th.left{text-align:left}td.best{color:var(--best);font-weight:600}\n"
    "td.spark{font-family:monospace;text-align:left;color:var(--bar);letter-spacing:-.02em}\n"
    ".bar{display:inline-block;height:.8em;background:var(--bar);vertical-align:-.05em}\n"
    ".wide{overflow-x:auto}svg{max-width:100%;height:auto;border:1px solid var(--line)}\n";

static void put_text(struct markup *m, const char *text)
{
    markup_text(m, text, strlen(text));
}

/* A bar, whose length is the share part / whole of most em. */
static void put_bar(struct markup *m, double part, double whole, double most)
{
    markup_put(m, "<span class=\"bar\" style=\"width:%.3fem\"></span>", whole > 0 ? most * part / whole : 0);
}

static void put_total(struct markup *m, const char *what, double bytes, const struct sizes *s)
{
    char text[TERM_TEXT];
    markup_put(m, "<tr><td>%s</td><td>%s</td>", what, term_bytes(text, (uint64_t)(bytes + 0.5)));
    markup_put(m, "<td>%.2f%%</td><td class=\"left\">", s->dense_bytes ? 100 * bytes / (double)s->dense_bytes : 0);
    put_bar(m, bytes, (double)s->dense_bytes, 24);
    markup_put(m, "</td></tr>\n");
}

static void put_totals(struct markup *m, const struct report *r)
{
    const struct sizes *s = &r->total;
    markup_put(m, "<h2>Size by format</h2>\n<table>\n"
                  "<tr><th>format</th><th>bytes</th><th>of the elements</th><th></th></tr>\n");
    for (int f = 0; f < FORMATS; f++)
        put_total(m, pici_format_name((enum pici_format)f), (double)s->bytes[f], s);
    put_total(m, "each chunk's smallest", (double)s->best, s);
    if (r->stored)
        put_total(m, "stored in this file", (double)r->stored, s);
    put_total(m, "entropy bound", s->bound, s);
    markup_put(m, "</table>\n<p class=\"faint\">The bound: the nonzero elements, and the bits that as many positions "
                  "need if they are random.</p>\n");
}

static void put_row(struct markup *m, const struct measured *t)
{
    char text[TERM_TEXT], shape[160];
    const struct sizes *s = t->sizes;
    markup_put(m, "<tr><td class=\"name\">");
    markup_text(m, t->name, t->name_len);
    markup_put(m, "</td><td class=\"left\">%s", pici_dtype_name(t->dtype));
    if (t->dtype_text && strcasecmp(t->dtype_text, pici_dtype_name(t->dtype)) != 0) {
        markup_put(m, " <span class=\"faint\">");
        put_text(m, t->dtype_text);
        markup_put(m, "</span>");
    }
    markup_put(m, "</td><td class=\"left\">%s</td>", term_shape(shape, sizeof shape, t->shape, t->rank));
    markup_put(m, "<td>%s</td><td class=\"left\">", term_percent(text, s->nnz, s->elements));
    put_bar(m, (double)s->nnz, (double)s->elements, 6);
    markup_put(m, "</td>");
    for (int f = 0; f < FORMATS; f++)
        markup_put(m, "<td%s>%s</td>", (int)sizes_best(s) == f ? " class=\"best\"" : "", term_bytes(text, s->bytes[f]));
    markup_put(m, "<td>%.2f</td><td class=\"spark\">", s->best ? (double)s->dense_bytes / (double)s->best : 0);
    if (t->spark)
        put_text(m, t->spark);
    markup_put(m, "</td></tr>\n");
}

int html_report(const struct report *r, const struct image *im, struct output *out)
{
    struct markup *m = calloc(1, sizeof *m);
    char text[TERM_TEXT];
    if (!m)
        return tool_nomem(out->name, "the page");
    m->out = out;
    markup_put(
        m, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
           "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
           "<meta name=\"viewport\" content=\"width=device-width\">\n<title>");
    put_text(m, r->file);
    markup_put(m, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<h1>", style);
    put_text(m, r->file);
    markup_put(m, "</h1>\n<p class=\"faint\">%s", r->type);
    if (r->file_bytes)
        markup_put(m, ", %s", term_bytes(text, r->file_bytes));
    markup_put(m, ", %zu tensor%s, %" PRIu64 " elements, %s of them nonzero; picitool %s</p>\n", r->tensors,
               r->tensors == 1 ? "" : "s", r->total.elements, term_percent(text, r->total.nnz, r->total.elements),
               pici_version());
    put_totals(m, r);
    markup_put(m,
               "<h2>Tensors</h2>\n<div class=\"wide\">\n<table>\n"
               "<tr><th>name</th><th class=\"left\">dtype</th><th class=\"left\">shape</th><th>nonzero</th><th></th>");
    for (int f = 0; f < FORMATS; f++)
        markup_put(m, "<th>%s</th>", pici_format_name((enum pici_format)f));
    markup_put(m, "<th>ratio</th><th class=\"left\">where</th></tr>\n");
    for (size_t i = 0; i < r->tensors; i++)
        put_row(m, &r->tensor[i]);
    markup_put(m, "</table>\n</div>\n<h2>Heatmaps</h2>\n");
    int status = image_svg_in(im, m);
    markup_put(m, "</body>\n</html>\n");
    if (!status)
        status = markup_flush(m);
    free(m);
    return status;
}
