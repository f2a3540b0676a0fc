/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "show/predicted.h"

#include <stdlib.h>
#include <string.h>

#include "show/chart.h"
#include "show/html.h"
#include "show/markup.h"
#include "show/svg.h"
#include "term.h"
#include "tool.h"

typedef char label[CHART_LABEL];

_Static_assert((int)CHART_LINES > PREDICT_OURS + PREDICT_OTHERS,
               "room for all sparse ones, others and the best dense one");

static const char *bytes_text(label text, uint64_t bytes)
{
    static const char suffix[] = "\0KMGT";
    int i = 0;
    for (; i < 4 && bytes >= 1024 && bytes % 1024 == 0; bytes /= 1024)
        i++;
    snprintf(text, sizeof(label), "%llu%.1s", (unsigned long long)bytes, suffix + i);
    return text;
}

static const char *collective_text(const struct predict *prediction, int c)
{
    return predict_collective((int)(prediction->collective[c] - PICI_ALL_GATHER));
}

static const char *percent_text(label text, double share)
{
    snprintf(text, sizeof(label), "%.4g%%", 100 * share);
    return text;
}

/* ---- terminal */

/* Which letter stands for what, as far as the cells use them. */
static void print_letters(const struct predict *prediction)
{
    bool used[256] = {false};
    const size_t cells = (size_t)prediction->collectives * (size_t)prediction->densities * (size_t)prediction->ranks *
                         (size_t)prediction->sizes;
    for (size_t i = 0; i < cells; i++)
        used[(unsigned char)prediction->candidate[prediction->cell[i].best].letter] = true;
    const char *between = "  ";
    for (int i = 0; i < prediction->candidates; i++)
        if (used[(unsigned char)prediction->candidate[i].letter]) {
            const bool vendor = !prediction->candidate[i].ours;
            printf("%s%c %s", between, prediction->candidate[i].letter,
                   vendor ? "another library's dense" : prediction->candidate[i].name);
            used[(unsigned char)prediction->candidate[i].letter] = false;
            between = "; ";
        }
    puts("");
}

void predicted_print(const struct predict *prediction)
{
    label text;
    char value[PREDICT_VALUE];
    term_puts(stdout, prediction->name);
    fputs(": ", stdout);
    term_puts(stdout, prediction->what);
    puts("");
    const char *name;
    for (int i = 0; (name = predict_constant(prediction, i, value)); i++)
        printf("  %-34s %s\n", name, value);
    printf("  source: ");
    term_puts(stdout, prediction->source);
    printf("\n\nSpeedup over the best dense call of another library; the letter is what is fastest:\n");
    print_letters(prediction);
    for (int c = 0; c < prediction->collectives; c++)
        for (int d = 0; d < prediction->densities; d++) {
            printf("\n%s, %s, ", collective_text(prediction, c), pici_dtype_name(prediction->dtype));
            printf("%s nonzero\n%7s", percent_text(text, prediction->density[d]), "ranks");
            for (int b = 0; b < prediction->sizes; b++)
                printf(" %6s", bytes_text(text, prediction->bytes[b]));
            puts("");
            for (int r = 0; r < prediction->ranks; r++) {
                printf("%7d", prediction->rank[r]);
                for (int b = 0; b < prediction->sizes; b++) {
                    const struct predict_cell *cell = predict_at(prediction, c, d, r, b);
                    chart_cell_text(text, predict_gain(cell), prediction->candidate[cell->best].letter);
                    printf(" %6s", text);
                }
                puts("");
            }
        }
}

/* ---- JSON */

static void json_cell(const struct predict *prediction, struct jsonout *json, int c, int d, int r, int b)
{
    const struct predict_cell *cell = predict_at(prediction, c, d, r, b);
    jsonout_begin(json, NULL, '{');
    jsonout_string(json, "collective", collective_text(prediction, c));
    jsonout_u64(json, "ranks", (uint64_t)prediction->rank[r]);
    jsonout_u64(json, "bytes", prediction->bytes[b]);
    jsonout_real(json, "density", prediction->density[d]);
    jsonout_string(json, "best", prediction->candidate[cell->best].name);
    jsonout_real(json, "seconds", cell->seconds[cell->best]);
    if (cell->dense >= 0) {
        jsonout_real(json, "dense_seconds", cell->seconds[cell->dense]);
        jsonout_real(json, "speedup", predict_gain(cell));
    }
    jsonout_begin(json, "candidates", '{');
    for (int i = 0; i < prediction->candidates; i++)
        if (cell->seconds[i] >= 0)
            jsonout_real(json, prediction->candidate[i].name, cell->seconds[i]);
    jsonout_end(json, '}');
    jsonout_end(json, '}');
}

void predicted_json(const struct predict *prediction, struct jsonout *json)
{
    char value[PREDICT_VALUE];
    const char *name;
    jsonout_begin(json, NULL, '{');
    jsonout_string(json, "machine", prediction->name);
    jsonout_string(json, "what", prediction->what);
    jsonout_string(json, "source", prediction->source);
    jsonout_begin(json, "constants", '{');
    for (int i = 0; (name = predict_constant(prediction, i, value)); i++)
        jsonout_string(json, name, value);
    jsonout_end(json, '}');
    jsonout_string(json, "dtype", pici_dtype_name(prediction->dtype));
    jsonout_u64(json, "ranks_of_a_node", (uint64_t)prediction->per_node);
    jsonout_begin(json, "cells", '[');
    for (int c = 0; c < prediction->collectives; c++)
        for (int d = 0; d < prediction->densities; d++)
            for (int r = 0; r < prediction->ranks; r++)
                for (int b = 0; b < prediction->sizes; b++)
                    json_cell(prediction, json, c, d, r, b);
    jsonout_end(json, ']');
    jsonout_end(json, '}');
}

/* ---- pictures */

/* A chart and the memory of what it shows. */
struct drawing {
    char title[256];
    label column[PREDICT_LIST], row[PREDICT_LIST];
    double value[PREDICT_LIST * PREDICT_LIST];
    char letter[PREDICT_LIST * PREDICT_LIST];
    struct chart_table table;
    struct chart_lines lines;
};

static void add_cell(struct drawing *g, int at, const struct predict *prediction, const struct predict_cell *cell)
{
    g->value[at] = predict_gain(cell);
    g->letter[at] = prediction->candidate[cell->best].letter;
}

static void tabulate(struct drawing *g, const struct predict *prediction, enum predict_plot plot, int c, int d, int b)
{
    const int wide = plot == PLOT_BYTES ? prediction->sizes : prediction->densities;
    label text;
    const int at = snprintf(g->title, sizeof g->title, "%s, %s, ", prediction->name, collective_text(prediction, c));
    if (plot == PLOT_BYTES)
        snprintf(g->title + at, sizeof g->title - (size_t)at, "%s nonzero", percent_text(text, prediction->density[d]));
    else
        snprintf(g->title + at, sizeof g->title - (size_t)at, "%s", bytes_text(text, prediction->bytes[b]));
    for (int i = 0; i < wide; i++) {
        if (plot == PLOT_BYTES)
            bytes_text(g->column[i], prediction->bytes[i]);
        else
            percent_text(g->column[i], 1 - prediction->density[i]);
    }
    for (int r = 0; r < prediction->ranks; r++) {
        snprintf(g->row[r], sizeof g->row[r], "%d", prediction->rank[r]);
        for (int i = 0; i < wide; i++)
            add_cell(g, r * wide + i, prediction,
                     plot == PLOT_BYTES ? predict_at(prediction, c, d, r, i) : predict_at(prediction, c, i, r, b));
    }
    g->table = (struct chart_table){.title = g->title,
                                    .columns = plot == PLOT_BYTES ? "bytes" : "zeros",
                                    .rows = "ranks",
                                    .wide = wide,
                                    .high = prediction->ranks,
                                    .column = g->column,
                                    .row = g->row,
                                    .gain = g->value,
                                    .letter = g->letter};
}

/* Lines of each algorithm with sparse messages and of each other library, and one of our best dense. */
static void trace(struct drawing *g, const struct predict *prediction, int c, int d, int b)
{
    label percent, bytes;
    snprintf(g->title, sizeof g->title, "%s, %s, %s, %s nonzero", prediction->name, collective_text(prediction, c),
             bytes_text(bytes, prediction->bytes[b]), percent_text(percent, prediction->density[d]));
    g->lines =
        (struct chart_lines){.title = g->title, .columns = "ranks", .points = prediction->ranks, .column = g->column};
    for (int i = 0; i <= prediction->candidates; i++) {
        const bool best_dense = i == prediction->candidates;
        bool some = false;
        if (!best_dense && prediction->candidate[i].ours && prediction->candidate[i].dense)
            continue;
        double *line = g->value + g->lines.lines * PREDICT_LIST;
        for (int r = 0; r < prediction->ranks; r++) {
            const struct predict_cell *cell = predict_at(prediction, c, d, r, b);
            line[r] = best_dense ? -1 : cell->seconds[i];
            for (int k = 0; k < prediction->candidates && best_dense; k++)
                if (prediction->candidate[k].ours && prediction->candidate[k].dense && cell->seconds[k] >= 0 &&
                    (line[r] < 0 || cell->seconds[k] < line[r]))
                    line[r] = cell->seconds[k];
            some |= line[r] >= 0;
        }
        if (!some)
            continue;
        g->lines.letter[g->lines.lines] = best_dense ? '*' : prediction->candidate[i].letter;
        g->lines.name[g->lines.lines] = best_dense ? "ours, all dense" : prediction->candidate[i].name;
        g->lines.seconds[g->lines.lines++] = line;
    }
    for (int r = 0; r < prediction->ranks; r++)
        snprintf(g->column[r], sizeof g->column[r], "%d", prediction->rank[r]);
}

static void prepare(struct drawing *g, const struct predict *prediction, enum predict_plot plot, int c, int d, int b,
                    unsigned *width, unsigned *height)
{
    if (plot == PLOT_TIME) {
        trace(g, prediction, c, d, b);
        chart_lines_size(&g->lines, width, height);
    } else {
        tabulate(g, prediction, plot, c, d, b);
        chart_table_size(&g->table, width, height);
    }
}

static int draw(const struct drawing *g, enum predict_plot plot, struct canvas *canvas)
{
    if (plot == PLOT_TIME)
        chart_lines_draw(&g->lines, canvas);
    else
        chart_table_draw(&g->table, canvas);
    return canvas->finish(canvas);
}

int predicted_draw(const struct predict *prediction, enum predict_plot plot, int collective, int density, int bytes,
                   struct canvas *(*begin)(struct output *, unsigned width, unsigned height), struct output *output)
{
    struct drawing *g = malloc(sizeof *g);
    unsigned width, height;
    int status = TOOL_OK;
    if (g)
        prepare(g, prediction, plot, collective, density, bytes, &width, &height);
    struct canvas *canvas = g ? begin(output, width, height) : NULL;
    status = canvas ? draw(g, plot, canvas) : tool_nomem(output->name, "the picture");
    free(g);
    return status;
}

/* ---- page */

static void put_text(struct markup *m, const char *text)
{
    markup_text(m, text, strlen(text));
}

static int put_plot(struct markup *m, const struct predict *prediction, struct drawing *g, enum predict_plot plot,
                    int c, int d, int b)
{
    unsigned width, height;
    prepare(g, prediction, plot, c, d, b, &width, &height);
    markup_put(m, "<figure><figcaption>");
    put_text(m, g->title);
    markup_put(m, "</figcaption><div class=\"wide\">\n");
    struct canvas *canvas = canvas_svg_in(m, width, height);
    const int status = canvas ? draw(g, plot, canvas) : tool_nomem(m->out->name, "the picture");
    markup_put(m, "</div></figure>\n");
    return status;
}

static void put_head(struct markup *m, const struct predict *prediction)
{
    char value[PREDICT_VALUE];
    const char *name;
    html_begin(m, prediction->name);
    markup_put(m, "<p>");
    put_text(m, prediction->what);
    markup_put(m, ".</p>\n<p class=\"faint\">Predicted by picitool %s, not measured. Source of the constants: ",
               pici_version());
    put_text(m, prediction->source);
    markup_put(m, "</p>\n<table class=\"totals\"><tbody>\n");
    for (int i = 0; (name = predict_constant(prediction, i, value)); i++) {
        markup_put(m, "<tr><td>");
        put_text(m, name);
        markup_put(m, "</td><td>");
        put_text(m, value);
        markup_put(m, "</td></tr>\n");
    }
    markup_put(m, "</tbody></table>\n<p>A cell has the speedup of what is fastest over the best dense call of another "
                  "library, and its letter:");
    for (int i = 0; i < prediction->candidates; i++) {
        if (!prediction->candidate[i].ours && i &&
            prediction->candidate[i - 1].letter == prediction->candidate[i].letter)
            continue;
        markup_put(m, " %c ", prediction->candidate[i].letter);
        put_text(m, prediction->candidate[i].ours ? prediction->candidate[i].name : "another library");
        markup_put(m, "%s", i + 1 < prediction->candidates && prediction->candidate[i].ours ? ";" : "");
    }
    markup_put(m, ".</p>\n");
}

static int put_page(struct markup *m, const struct predict *prediction, struct drawing *g)
{
    const int middle = prediction->sizes / 2;
    put_head(m, prediction);
    for (int c = 0; c < prediction->collectives; c++) {
        markup_put(m, "<h2>%s</h2>\n", collective_text(prediction, c));
        for (int d = 0; d < prediction->densities; d++)
            TRY(put_plot(m, prediction, g, PLOT_BYTES, c, d, 0));
        TRY(put_plot(m, prediction, g, PLOT_SPARSITY, c, 0, middle));
        for (int d = 0; d < prediction->densities; d++)
            TRY(put_plot(m, prediction, g, PLOT_TIME, c, d, middle));
    }
    html_end(m);
    return markup_flush(m);
}

int predicted_html(const struct predict *prediction, struct output *output)
{
    struct markup *m = calloc(1, sizeof *m);
    struct drawing *g = malloc(sizeof *g);
    if (m)
        m->out = output;
    const int status = m && g ? put_page(m, prediction, g) : tool_nomem(output->name, "the page");
    free(g);
    free(m);
    return status;
}
