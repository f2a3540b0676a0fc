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

/* Below 64em, tables become lists: a row is a block, and each of its cells a line that begins with its column's name.
 * Nothing is wider than the window, down to 320 pixels; what cannot shrink scrolls inside its own box. */
static const char style[] =
    ":root{color-scheme:light dark;--ink:#20202a;--faint:#6b6b78;--line:#dcdce4;--paper:#fff;--bar:#7b3fa0;"
    "--best:#c2410c}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e6ee;--faint:#9a9aa8;--line:#3a3a46;--paper:#17171d;"
    "--bar:#b48ad0;--best:#ff922b}}\n"
    "*{box-sizing:border-box}\n"
    "body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:1.5rem auto;"
    "max-width:78rem;padding:0 1rem}\n"
    "h1{font-size:1.5rem;margin:0;overflow-wrap:anywhere}h2{font-size:1.1rem;margin:2.2rem 0 .6rem}\n"
    ".faint{color:var(--faint)}p{margin:.3rem 0}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;width:100%}\n"
    "th,td{text-align:right;padding:.25rem .45rem;border-bottom:1px solid var(--line);white-space:nowrap}\n"
    "th{font-weight:600;color:var(--faint)}td:first-child,th:first-child{text-align:left;padding-left:0}\n"
    ".name{white-space:normal;overflow-wrap:anywhere;font-family:monospace}\n"
    "td.name{min-width:10rem}\n"
    "td.left,th.left{text-align:left}td.wrap{white-space:normal;overflow-wrap:break-word}\n"
    "td.best{color:var(--best);font-weight:600}\n"
    "td.spark{font:.8rem monospace;text-align:left;color:var(--bar);letter-spacing:-.02em}\n"
    "td.bars{width:45%;min-width:3rem;padding-right:0}table.tensors td.bars{width:5rem}\n"
    ".bar{display:block;height:.8em;background:var(--bar)}\n"
    ".wide{overflow-x:auto}svg{display:block;max-width:100%;height:auto}\n"
    ".maps{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,23.75rem),1fr));gap:1.5rem .75rem;"
    "margin-top:1rem}\n"
    "figure{margin:0;min-width:0}figcaption{margin-bottom:.4rem;overflow-wrap:anywhere}\n"
    "@media(max-width:64em){\n"
    "table.tensors,table.tensors tbody,table.tensors td{display:block;width:auto}\n"
    "table.tensors thead,table.tensors td.bars{display:none}\n"
    "table.tensors tr{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,9rem),1fr));"
    "column-gap:1.5rem;border-bottom:1px solid var(--line);padding:.6rem 0}\n"
    "table.tensors td{border:0;padding:.05rem 0;display:flex;justify-content:space-between;gap:1rem;text-align:right}\n"
    "table.tensors td.name{display:block;text-align:left;font-weight:600;grid-column:1/-1}"
    "table.tensors td.spark{grid-column:1/-1}\n"
    "table.tensors td[data-column]::before{content:attr(data-column);color:var(--faint);font:15px system-ui,"
    "sans-serif}\n"
    "}\n"
    "@media(max-width:40em){table.totals td,table.totals th{padding:.25rem .3rem}"
    "table.totals th,table.totals td:first-child{white-space:normal}table.totals td.bars{width:25%}}\n";

static void put_text(struct markup *m, const char *text)
{
    markup_text(m, text, strlen(text));
}

/* A bar, whose length is the share part / whole of its cell. */
static void put_bar(struct markup *m, double part, double whole)
{
    const double share = whole > 0 ? 100 * part / whole : 0;
    markup_put(m, "<span class=\"bar\" style=\"width:%.3f%%\"></span>", share < 100 ? share : 100);
}

static void put_total(struct markup *m, const char *what, double bytes, const struct sizes *s)
{
    char text[TERM_TEXT];
    markup_put(m, "<tr><td>%s</td><td>%s</td>", what, term_bytes(text, (uint64_t)(bytes + 0.5)));
    markup_put(m, "<td>%.2f%%</td><td class=\"bars\">", s->dense_bytes ? 100 * bytes / (double)s->dense_bytes : 0);
    put_bar(m, bytes, (double)s->dense_bytes);
    markup_put(m, "</td></tr>\n");
}

static void put_totals(struct markup *m, const struct report *report)
{
    const struct sizes *s = &report->total;
    char text[TERM_TEXT];
    markup_put(m, "<h2>Size by format</h2>\n<table class=\"totals\">\n<thead>"
                  "<tr><th>format</th><th>bytes</th><th>of the elements</th><th></th></tr></thead>\n<tbody>\n");
    for (int f = 0; f < FORMATS; f++)
        put_total(m, pici_format_name((enum pici_format)f), (double)s->bytes[f], s);
    put_total(m, "each chunk's smallest", (double)s->best, s);
    if (report->stored)
        put_total(m, "stored in this file", (double)report->stored, s);
    put_total(m, "entropy bound", s->bound, s);
    markup_put(
        m,
        "</tbody>\n</table>\n<p class=\"faint\">The bound: the nonzero elements, and the bits that as many positions "
        "need if they are random%s.</p>\n",
        s->negative_zeros ? "; of negative zeros, the bits of their signs" : "");
    if (!s->negative_zeros)
        return;
    markup_put(m,
               "<p><strong>%" PRIu64 " negative zeros</strong> keep their signs. By value (<code>compress "
               "--zeros=value</code>) they are plain zeros: ",
               s->negative_zeros);
    markup_put(m, "%s less, ", term_bytes(text, s->by_value_saves));
    markup_put(m, "%s of the smallest blocks.</p>\n", term_percent(text, s->by_value_saves, s->best));
}

/* negative_zeros: with the columns for them. */
static void put_row(struct markup *m, const struct measured *t, bool negative_zeros)
{
    char text[TERM_TEXT], shape[160];
    const struct sizes *s = t->sizes;
    markup_put(m, "<tr><td class=\"name\">");
    markup_text(m, t->name, t->name_len);
    markup_put(m, "</td><td class=\"left\" data-column=\"dtype\"><span>%s", pici_dtype_name(t->dtype));
    if (t->dtype_text && strcasecmp(t->dtype_text, pici_dtype_name(t->dtype)) != 0) {
        markup_put(m, " <span class=\"faint\">");
        put_text(m, t->dtype_text);
        markup_put(m, "</span>");
    }
    markup_put(m, "</span></td><td class=\"left wrap\" data-column=\"shape\">%s</td>",
               term_shape(shape, sizeof shape, t->shape, t->rank));
    markup_put(m, "<td data-column=\"nonzero\">%s</td><td class=\"bars\">", term_percent(text, s->nnz, s->elements));
    put_bar(m, (double)s->nnz, (double)s->elements);
    markup_put(m, "</td>");
    for (int f = 0; f < FORMATS; f++)
        markup_put(m, "<td%s data-column=\"%s\">%s</td>", (int)sizes_best(s) == f ? " class=\"best\"" : "",
                   pici_format_name((enum pici_format)f), term_bytes(text, s->bytes[f]));
    if (negative_zeros)
        markup_put(m, "<td data-column=\"-0.0\">%" PRIu64 "</td><td data-column=\"by value\">%s</td>",
                   s->negative_zeros, term_bytes(text, s->best - s->by_value_saves));
    markup_put(m, "<td data-column=\"ratio\">%.2f</td><td class=\"spark\" data-column=\"where\">",
               s->best ? (double)s->dense_bytes / (double)s->best : 0);
    if (t->spark)
        put_text(m, t->spark);
    markup_put(m, "</td></tr>\n");
}

void html_begin(struct markup *m, const char *title)
{
    markup_put(
        m, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
           "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>");
    put_text(m, title);
    markup_put(m, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<h1>", style);
    put_text(m, title);
    markup_put(m, "</h1>\n");
}

void html_end(struct markup *m)
{
    markup_put(m, "</body>\n</html>\n");
}

int html_report(const struct report *report, const struct image *im, struct output *output)
{
    struct markup *m = calloc(1, sizeof *m);
    char text[TERM_TEXT];
    if (!m)
        return tool_nomem(output->name, "the page");
    m->out = output;
    html_begin(m, report->file);
    markup_put(m, "<p class=\"faint\">%s", report->type);
    if (report->file_bytes)
        markup_put(m, ", %s", term_bytes(text, report->file_bytes));
    markup_put(m, ", %zu tensor%s, %" PRIu64 " elements, %s of them nonzero; picitool %s</p>\n", report->tensors,
               report->tensors == 1 ? "" : "s", report->total.elements,
               term_percent(text, report->total.nnz, report->total.elements), pici_version());
    put_totals(m, report);
    markup_put(
        m,
        "<h2>Tensors</h2>\n<div class=\"wide\">\n<table class=\"tensors\">\n"
        "<thead><tr><th>name</th><th class=\"left\">dtype</th><th class=\"left\">shape</th><th>nonzero</th><th></th>");
    for (int f = 0; f < FORMATS; f++)
        markup_put(m, "<th>%s</th>", pici_format_name((enum pici_format)f));
    if (report->total.negative_zeros)
        markup_put(m, "<th>-0.0</th><th>by value</th>");
    markup_put(m, "<th>ratio</th><th class=\"left\">where</th></tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < report->tensors; i++)
        put_row(m, &report->tensor[i], report->total.negative_zeros != 0);
    markup_put(m, "</tbody>\n</table>\n</div>\n<h2>Heatmaps</h2>\n"
                  "<p class=\"faint\">Density of each cell; rows down, columns across.</p>\n");
    int status = image_html(im, m);
    html_end(m);
    if (!status)
        status = markup_flush(m);
    free(m);
    return status;
}
