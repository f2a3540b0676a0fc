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

/* Below 64em, tables become lists: a row is a block, and each cell is a line that begins with its column's name.
 * Everything fits in the window, down to 320 pixels. What cannot shrink scrolls inside its own box. */
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

static void put_text(struct markup *markup, const char *text)
{
    markup_text(markup, text, strlen(text));
}

/* Writes a bar with the length part / whole of its cell. */
static void put_bar(struct markup *markup, double part, double whole)
{
    const double share = whole > 0 ? 100 * part / whole : 0;
    markup_put(markup, "<span class=\"bar\" style=\"width:%.3f%%\"></span>", share < 100 ? share : 100);
}

static void put_total(struct markup *markup, const char *what, double bytes, const struct sizes *sizes)
{
    char text[TERM_TEXT];
    markup_put(markup, "<tr><td>%s</td><td>%s</td>", what, term_bytes(text, (uint64_t)(bytes + 0.5)));
    markup_put(markup, "<td>%.2f%%</td><td class=\"bars\">",
               sizes->dense_bytes ? 100 * bytes / (double)sizes->dense_bytes : 0);
    put_bar(markup, bytes, (double)sizes->dense_bytes);
    markup_put(markup, "</td></tr>\n");
}

static void put_totals(struct markup *markup, const struct report *report)
{
    const struct sizes *sizes = &report->total;
    char text[TERM_TEXT];
    markup_put(markup, "<h2>Size by format</h2>\n<table class=\"totals\">\n<thead>"
                       "<tr><th>format</th><th>bytes</th><th>of the elements</th><th></th></tr></thead>\n<tbody>\n");
    for (int format = 0; format < FORMATS; format++)
        put_total(markup, pici_format_name((enum pici_format)format), (double)sizes->bytes[format], sizes);
    put_total(markup, "each chunk's smallest", (double)sizes->best, sizes);
    if (report->stored)
        put_total(markup, "stored in this file", (double)report->stored, sizes);
    put_total(markup, "entropy bound", sizes->bound, sizes);
    markup_put(
        markup,
        "</tbody>\n</table>\n<p class=\"faint\">The bound: the nonzero elements, and the bits that as many positions "
        "need if they are random%s.</p>\n",
        sizes->negative_zeros ? "; of negative zeros, the bits of their signs" : "");
    if (report->referred)
        markup_put(markup, "<p>%" PRIu64 " more tensors, of %s, are stored once, here or in another shard.</p>\n",
                   report->referred, term_bytes(text, report->referred_bytes));
    if (sizes->packing_saves > sizes->best / 100) {
        markup_put(markup, "<p><strong>Packed exponents</strong> (<code>compress --pack planes</code>): %s less, ",
                   term_bytes(text, sizes->packing_saves));
        markup_put(markup, "%s of the smallest blocks.</p>\n", term_percent(text, sizes->packing_saves, sizes->best));
    }
    if (!sizes->negative_zeros)
        return;
    markup_put(markup,
               "<p><strong>%" PRIu64 " negative zeros</strong> keep their signs. By value (<code>compress "
               "--zeros=value</code>) they are plain zeros: ",
               sizes->negative_zeros);
    markup_put(markup, "%s less, ", term_bytes(text, sizes->by_value_saves));
    markup_put(markup, "%s of the smallest blocks.</p>\n", term_percent(text, sizes->by_value_saves, sizes->best));
}

/* negative_zeros: include the columns for them. */
static void put_row(struct markup *markup, const struct measured *measured, bool negative_zeros)
{
    char text[TERM_TEXT], shape[160];
    const struct sizes *sizes = measured->sizes;
    markup_put(markup, "<tr><td class=\"name\">");
    markup_text(markup, measured->name, measured->name_size);
    markup_put(markup, "</td><td class=\"left\" data-column=\"dtype\"><span>%s", pici_dtype_name(measured->dtype));
    if (measured->dtype_text && strcasecmp(measured->dtype_text, pici_dtype_name(measured->dtype)) != 0) {
        markup_put(markup, " <span class=\"faint\">");
        put_text(markup, measured->dtype_text);
        markup_put(markup, "</span>");
    }
    markup_put(markup, "</span></td><td class=\"left wrap\" data-column=\"shape\">%s</td>",
               term_shape(shape, sizeof shape, measured->shape, measured->rank));
    markup_put(markup, "<td data-column=\"nonzero\">%s</td><td class=\"bars\">",
               term_percent(text, sizes->nonzeros, sizes->elements));
    put_bar(markup, (double)sizes->nonzeros, (double)sizes->elements);
    markup_put(markup, "</td>");
    for (int format = 0; format < FORMATS; format++)
        markup_put(markup, "<td%s data-column=\"%s\">%s</td>",
                   (int)sizes_best(sizes) == format ? " class=\"best\"" : "",
                   pici_format_name((enum pici_format)format), term_bytes(text, sizes->bytes[format]));
    if (negative_zeros)
        markup_put(markup, "<td data-column=\"-0.0\">%" PRIu64 "</td><td data-column=\"by value\">%s</td>",
                   sizes->negative_zeros, term_bytes(text, sizes->best - sizes->by_value_saves));
    markup_put(markup, "<td data-column=\"ratio\">%.2f</td><td class=\"spark\" data-column=\"where\">",
               sizes->best ? (double)sizes->dense_bytes / (double)sizes->best : 0);
    if (measured->spark)
        put_text(markup, measured->spark);
    markup_put(markup, "</td></tr>\n");
}

void html_begin(struct markup *markup, const char *title)
{
    markup_put(
        markup,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>");
    put_text(markup, title);
    markup_put(markup, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<h1>", style);
    put_text(markup, title);
    markup_put(markup, "</h1>\n");
}

void html_end(struct markup *markup)
{
    markup_put(markup, "</body>\n</html>\n");
}

int html_report(const struct report *report, const struct image *image, struct output *output)
{
    struct markup *markup = calloc(1, sizeof *markup);
    char text[TERM_TEXT];
    if (!markup)
        return tool_nomem(output->name, "the page");
    markup->output = output;
    html_begin(markup, report->file);
    markup_put(markup, "<p class=\"faint\">%s", report->type);
    if (report->file_bytes)
        markup_put(markup, ", %s", term_bytes(text, report->file_bytes));
    markup_put(markup, ", %zu tensor%s, %" PRIu64 " elements, %s of them nonzero; picitool %s</p>\n", report->tensors,
               report->tensors == 1 ? "" : "s", report->total.elements,
               term_percent(text, report->total.nonzeros, report->total.elements), pici_version());
    put_totals(markup, report);
    markup_put(
        markup,
        "<h2>Tensors</h2>\n<div class=\"wide\">\n<table class=\"tensors\">\n"
        "<thead><tr><th>name</th><th class=\"left\">dtype</th><th class=\"left\">shape</th><th>nonzero</th><th></th>");
    for (int format = 0; format < FORMATS; format++)
        markup_put(markup, "<th>%s</th>", pici_format_name((enum pici_format)format));
    if (report->total.negative_zeros)
        markup_put(markup, "<th>-0.0</th><th>by value</th>");
    markup_put(markup, "<th>ratio</th><th class=\"left\">where</th></tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < report->tensors; i++)
        put_row(markup, &report->tensor[i], report->total.negative_zeros != 0);
    markup_put(markup, "</tbody>\n</table>\n</div>\n<h2>Heatmaps</h2>\n"
                       "<p class=\"faint\">Density of each cell; rows down, columns across.</p>\n");
    int status = image_html(image, markup);
    html_end(markup);
    if (!status)
        status = markup_flush(markup);
    free(markup);
    return status;
}
