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
    int unit = 0;
    for (; unit < 4 && bytes >= 1024 && bytes % 1024 == 0; bytes /= 1024)
        unit++;
    snprintf(text, sizeof(label), "%llu%.1s", (unsigned long long)bytes, suffix + unit);
    return text;
}

static const char *collective_text(const struct predict *prediction, int collective)
{
    return predict_kind_name(prediction->collective[collective]);
}

static const char *percent_text(label text, double share)
{
    snprintf(text, sizeof(label), "%.4g%%", 100 * share);
    return text;
}

/* ---- terminal */

/* Prints the meanings of the letters that the cells use. */
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
            const bool native = !prediction->candidate[i].ours;
            printf("%s%c %s", between, prediction->candidate[i].letter,
                   native ? "another library's dense" : prediction->candidate[i].name);
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
    printf("\n\nSpeedup over the best dense call of another library; the letter is the fastest algorithm:\n");
    print_letters(prediction);
    for (int collective = 0; collective < prediction->collectives; collective++)
        for (int density = 0; density < prediction->densities; density++) {
            printf("\n%s, %s, ", collective_text(prediction, collective), pici_dtype_name(prediction->dtype));
            printf("%s nonzero\n%7s", percent_text(text, prediction->density[density]), "ranks");
            for (int size = 0; size < prediction->sizes; size++)
                printf(" %6s", bytes_text(text, prediction->bytes[size]));
            puts("");
            for (int ranks = 0; ranks < prediction->ranks; ranks++) {
                printf("%7d", prediction->rank[ranks]);
                for (int size = 0; size < prediction->sizes; size++) {
                    const struct predict_cell *cell = predict_at(prediction, collective, density, ranks, size);
                    chart_cell_text(text, predict_gain(cell), prediction->candidate[cell->best].letter);
                    printf(" %6s", text);
                }
                puts("");
            }
        }
}

/* ---- JSON */

static void json_cell(const struct predict *prediction, struct jsonout *json, int collective, int density, int ranks,
                      int size)
{
    const struct predict_cell *cell = predict_at(prediction, collective, density, ranks, size);
    jsonout_begin(json, NULL, '{');
    jsonout_string(json, "collective", collective_text(prediction, collective));
    jsonout_u64(json, "ranks", (uint64_t)prediction->rank[ranks]);
    jsonout_u64(json, "bytes", prediction->bytes[size]);
    jsonout_real(json, "density", prediction->density[density]);
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
    for (int collective = 0; collective < prediction->collectives; collective++)
        for (int density = 0; density < prediction->densities; density++)
            for (int ranks = 0; ranks < prediction->ranks; ranks++)
                for (int size = 0; size < prediction->sizes; size++)
                    json_cell(prediction, json, collective, density, ranks, size);
    jsonout_end(json, ']');
    jsonout_end(json, '}');
}

/* ---- pictures */

/* A chart and the memory for its content. */
struct drawing {
    char title[256];
    label column[PREDICT_LIST], row[PREDICT_LIST];
    double value[PREDICT_LIST * PREDICT_LIST];
    char letter[PREDICT_LIST * PREDICT_LIST];
    struct chart_table table;
    struct chart_lines lines;
};

static void add_cell(struct drawing *drawing, int index, const struct predict *prediction,
                     const struct predict_cell *cell)
{
    drawing->value[index] = predict_gain(cell);
    drawing->letter[index] = prediction->candidate[cell->best].letter;
}

static void tabulate(struct drawing *drawing, const struct predict *prediction, enum predict_plot plot, int collective,
                     int density, int size)
{
    const int wide = plot == PLOT_BYTES ? prediction->sizes : prediction->densities;
    label text;
    const int used = snprintf(drawing->title, sizeof drawing->title, "%s, %s, ", prediction->name,
                              collective_text(prediction, collective));
    if (plot == PLOT_BYTES)
        snprintf(drawing->title + used, sizeof drawing->title - (size_t)used, "%s nonzero",
                 percent_text(text, prediction->density[density]));
    else
        snprintf(drawing->title + used, sizeof drawing->title - (size_t)used, "%s",
                 bytes_text(text, prediction->bytes[size]));
    for (int column = 0; column < wide; column++) {
        if (plot == PLOT_BYTES)
            bytes_text(drawing->column[column], prediction->bytes[column]);
        else
            percent_text(drawing->column[column], 1 - prediction->density[column]);
    }
    for (int row = 0; row < prediction->ranks; row++) {
        snprintf(drawing->row[row], sizeof drawing->row[row], "%d", prediction->rank[row]);
        for (int column = 0; column < wide; column++)
            add_cell(drawing, row * wide + column, prediction,
                     plot == PLOT_BYTES ? predict_at(prediction, collective, density, row, column)
                                        : predict_at(prediction, collective, column, row, size));
    }
    drawing->table = (struct chart_table){.title = drawing->title,
                                          .columns = plot == PLOT_BYTES ? "bytes" : "zeros",
                                          .rows = "ranks",
                                          .wide = wide,
                                          .high = prediction->ranks,
                                          .column = drawing->column,
                                          .row = drawing->row,
                                          .gain = drawing->value,
                                          .letter = drawing->letter};
}

/* Fills in the lines: each algorithm with sparse messages, each other library, and our best dense algorithm. */
static void fill_lines(struct drawing *drawing, const struct predict *prediction, int collective, int density, int size)
{
    label percent, bytes;
    snprintf(drawing->title, sizeof drawing->title, "%s, %s, %s, %s nonzero", prediction->name,
             collective_text(prediction, collective), bytes_text(bytes, prediction->bytes[size]),
             percent_text(percent, prediction->density[density]));
    drawing->lines = (struct chart_lines){
        .title = drawing->title, .columns = "ranks", .points = prediction->ranks, .column = drawing->column};
    for (int candidate = 0; candidate <= prediction->candidates; candidate++) {
        const bool best_dense = candidate == prediction->candidates;
        bool has_points = false;
        if (!best_dense && prediction->candidate[candidate].ours && prediction->candidate[candidate].dense)
            continue;
        double *line = drawing->value + drawing->lines.lines * PREDICT_LIST;
        for (int row = 0; row < prediction->ranks; row++) {
            const struct predict_cell *cell = predict_at(prediction, collective, density, row, size);
            line[row] = best_dense ? -1 : cell->seconds[candidate];
            for (int other = 0; other < prediction->candidates && best_dense; other++)
                if (prediction->candidate[other].ours && prediction->candidate[other].dense &&
                    cell->seconds[other] >= 0 && (line[row] < 0 || cell->seconds[other] < line[row]))
                    line[row] = cell->seconds[other];
            has_points |= line[row] >= 0;
        }
        if (!has_points)
            continue;
        drawing->lines.letter[drawing->lines.lines] = best_dense ? '*' : prediction->candidate[candidate].letter;
        drawing->lines.name[drawing->lines.lines] =
            best_dense ? "ours, all dense" : prediction->candidate[candidate].name;
        drawing->lines.seconds[drawing->lines.lines++] = line;
    }
    for (int row = 0; row < prediction->ranks; row++)
        snprintf(drawing->column[row], sizeof drawing->column[row], "%d", prediction->rank[row]);
}

static void prepare(struct drawing *drawing, const struct predict *prediction, enum predict_plot plot, int collective,
                    int density, int size, unsigned *width, unsigned *height)
{
    if (plot == PLOT_TIME) {
        fill_lines(drawing, prediction, collective, density, size);
        chart_lines_size(&drawing->lines, width, height);
    } else {
        tabulate(drawing, prediction, plot, collective, density, size);
        chart_table_size(&drawing->table, width, height);
    }
}

static int draw(const struct drawing *drawing, enum predict_plot plot, struct canvas *canvas)
{
    if (plot == PLOT_TIME)
        chart_lines_draw(&drawing->lines, canvas);
    else
        chart_table_draw(&drawing->table, canvas);
    return canvas->finish(canvas);
}

int predicted_draw(const struct predict *prediction, enum predict_plot plot, int collective, int density, int bytes,
                   struct canvas *(*begin)(struct output *, unsigned width, unsigned height), struct output *output)
{
    struct drawing *drawing = malloc(sizeof *drawing);
    unsigned width, height;
    int status = TOOL_OK;
    if (drawing)
        prepare(drawing, prediction, plot, collective, density, bytes, &width, &height);
    struct canvas *canvas = drawing ? begin(output, width, height) : NULL;
    status = canvas ? draw(drawing, plot, canvas) : tool_nomem(output->name, "the picture");
    free(drawing);
    return status;
}

/* ---- page */

static void put_text(struct markup *markup, const char *text)
{
    markup_text(markup, text, strlen(text));
}

static int put_plot(struct markup *markup, const struct predict *prediction, struct drawing *drawing,
                    enum predict_plot plot, int collective, int density, int size)
{
    unsigned width, height;
    prepare(drawing, prediction, plot, collective, density, size, &width, &height);
    markup_put(markup, "<figure><figcaption>");
    put_text(markup, drawing->title);
    markup_put(markup, "</figcaption><div class=\"wide\">\n");
    struct canvas *canvas = canvas_svg_in(markup, width, height);
    const int status = canvas ? draw(drawing, plot, canvas) : tool_nomem(markup->output->name, "the picture");
    markup_put(markup, "</div></figure>\n");
    return status;
}

static void put_head(struct markup *markup, const struct predict *prediction)
{
    char value[PREDICT_VALUE];
    const char *name;
    html_begin(markup, prediction->name);
    markup_put(markup, "<p>");
    put_text(markup, prediction->what);
    markup_put(markup, ".</p>\n<p class=\"faint\">Predicted by picitool %s, not measured. Source of the constants: ",
               pici_version());
    put_text(markup, prediction->source);
    markup_put(markup, "</p>\n<table class=\"totals\"><tbody>\n");
    for (int i = 0; (name = predict_constant(prediction, i, value)); i++) {
        markup_put(markup, "<tr><td>");
        put_text(markup, name);
        markup_put(markup, "</td><td>");
        put_text(markup, value);
        markup_put(markup, "</td></tr>\n");
    }
    markup_put(markup,
               "</tbody></table>\n<p>A cell has the speedup of the fastest algorithm over the best dense call of "
               "another library, and its letter:");
    for (int i = 0; i < prediction->candidates; i++) {
        if (!prediction->candidate[i].ours && i &&
            prediction->candidate[i - 1].letter == prediction->candidate[i].letter)
            continue;
        markup_put(markup, " %c ", prediction->candidate[i].letter);
        put_text(markup, prediction->candidate[i].ours ? prediction->candidate[i].name : "another library");
        markup_put(markup, "%s", i + 1 < prediction->candidates && prediction->candidate[i].ours ? ";" : "");
    }
    markup_put(markup, ".</p>\n");
}

static int put_page(struct markup *markup, const struct predict *prediction, struct drawing *drawing)
{
    const int middle = prediction->sizes / 2;
    put_head(markup, prediction);
    for (int collective = 0; collective < prediction->collectives; collective++) {
        markup_put(markup, "<h2>%s</h2>\n", collective_text(prediction, collective));
        for (int density = 0; density < prediction->densities; density++)
            TRY(put_plot(markup, prediction, drawing, PLOT_BYTES, collective, density, 0));
        TRY(put_plot(markup, prediction, drawing, PLOT_SPARSITY, collective, 0, middle));
        for (int density = 0; density < prediction->densities; density++)
            TRY(put_plot(markup, prediction, drawing, PLOT_TIME, collective, density, middle));
    }
    html_end(markup);
    return markup_flush(markup);
}

int predicted_html(const struct predict *prediction, struct output *output)
{
    struct markup *markup = calloc(1, sizeof *markup);
    struct drawing *drawing = malloc(sizeof *drawing);
    if (markup)
        markup->output = output;
    const int status = markup && drawing ? put_page(markup, prediction, drawing) : tool_nomem(output->name, "the page");
    free(drawing);
    free(markup);
    return status;
}
