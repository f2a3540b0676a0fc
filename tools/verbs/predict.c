/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "output/output.h"
#include "predict.h"
#include "show/png.h"
#include "show/predicted.h"
#include "show/svg.h"
#include "suggest.h"
#include "tool.h"

/* ---- lists of the command line. On an error, functions print the reason and return TOOL_USAGE. */

/* Takes a word from a list with commas, and moves *rest past it. */
static int take_word(const char **rest, char *word, size_t capacity)
{
    const size_t size = strcspn(*rest, ",");
    const int fits = size > 0 && size < capacity;
    if (fits)
        memcpy(word, *rest, size);
    word[fits ? size : 0] = 0;
    *rest += size + ((*rest)[size] == ',');
    return fits;
}

static int parse_collectives(struct predict *prediction, const char *list)
{
    char word[64], hint[SUGGEST_HINT];
    for (const char *rest = list; prediction->collectives == 0 || *rest;) {
        struct suggest nearest;
        int number = 0;
        if (!take_word(&rest, word, sizeof word) || prediction->collectives == PREDICT_COLLECTIVES)
            return tool_usage(NULL, "--collective %s: not a list of collectives", list);
        suggest_start(&nearest, word);
        for (; predict_collective(number) && strcmp(word, predict_collective(number)) != 0; number++)
            suggest_word(&nearest, predict_collective(number));
        if (!predict_collective(number))
            return tool_usage(NULL, "--collective %s: not all_gather, reduce_scatter, all_reduce or all_to_all%s", word,
                              suggest_hint(&nearest, "", hint));
        prediction->collective[prediction->collectives++] = predict_kind(number);
    }
    return TOOL_OK;
}

static int put_number(uint64_t *numbers, int *count, uint64_t value, uint64_t least, uint64_t most)
{
    if (*count == PREDICT_LIST || value < least || value > most)
        return 0;
    numbers[(*count)++] = value;
    return 1;
}

/* Parses "8,12,16", "2..4096" (doubling) or "64K..4G/4" (by factors of 4). */
static int parse_numbers(const char *option, const char *list, uint64_t *numbers, int *count, uint64_t least,
                         uint64_t most)
{
    char word[64];
    int good = 1;
    for (const char *rest = list; good && (*count == 0 || *rest);) {
        uint64_t from, to, factor = 2;
        good = take_word(&rest, word, sizeof word);
        char *dots = strstr(word, ".."), *slash = strchr(word, '/');
        if (!good || !dots) {
            good = good && tool_parse_bytes(word, &from) && put_number(numbers, count, from, least, most);
            continue;
        }
        if (slash) {
            *slash = 0;
            good = tool_parse_bytes(slash + 1, &factor) && factor >= 2;
        }
        *dots = 0;
        good = good && tool_parse_bytes(word, &from) && tool_parse_bytes(dots + 2, &to) && from && from <= to;
        for (; good && from <= to; from = from > to / factor ? to + 1 : from * factor)
            good = put_number(numbers, count, from, least, most);
    }
    return good ? TOOL_OK
                : tool_usage(NULL, "--%s %s: not a list of at most %d numbers from %llu to %llu, as 2..64, 96", option,
                             list, PREDICT_LIST, (unsigned long long)least, (unsigned long long)most);
}

static int parse_densities(struct predict *prediction, const char *list)
{
    for (const char *rest = list;; rest++) {
        char *end;
        const double percent = strtod(rest, &end);
        if (prediction->densities == PREDICT_LIST || end == rest || (*end && *end != ',') ||
            !(percent >= 0 && percent <= 100))
            return tool_usage(NULL, "--density %s: not percentages from 0 to 100, with commas between", list);
        prediction->density[prediction->densities++] = percent / 100;
        if (!*end)
            return TOOL_OK;
        rest = end;
    }
}

static int parse_machine(struct predict *prediction, const char *name)
{
    char hint[SUGGEST_HINT], all[256];
    const char *what;
    struct suggest nearest;
    size_t used = 0;
    if (name && predict_set_machine(prediction, name))
        return TOOL_OK;
    suggest_start(&nearest, name ? name : "");
    for (int i = 0; predict_machine(i, &what) && used < sizeof all; i++) {
        suggest_word(&nearest, predict_machine(i, &what));
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", predict_machine(i, &what));
    }
    if (!name)
        return tool_usage(NULL, "predict: needs --tune FILE, or --machine, one of %s", all);
    return tool_usage(NULL, "--machine %s: not one of %s%s", name, all, suggest_hint(&nearest, "", hint));
}

static int read_tune(struct predict *prediction, const char *path)
{
    char reason[PREDICT_WHY];
    const char *const name = tool_input_name(path);
    uint8_t *bytes;
    size_t size;
    TRY(input_slurp_path(path, UINT64_MAX, &bytes, &size));
    const bool good = predict_set_tune(prediction, name, bytes, size, reason);
    free(bytes);
    return good ? TOOL_OK : tool_bad(name, "%s", reason);
}

/* Parses all options, or takes their defaults. */
static int parse(struct predict *prediction, const struct tool_options *options)
{
    const bool page = options->out != NULL;
    const char *densities = options->predict.density;
    if (!densities)
        densities = page ? "0.1,1,5,10,20,50,100" : "1";
    uint64_t ranks[PREDICT_LIST] = {0}, per_node[PREDICT_LIST] = {1};
    int count = 0;
    if (options->predict.machine && options->predict.tune)
        return tool_usage(NULL, "predict: either --machine or --tune");
    TRY(options->predict.tune ? read_tune(prediction, options->predict.tune)
                              : parse_machine(prediction, options->predict.machine));
    TRY(parse_collectives(prediction, options->predict.collective ? options->predict.collective
                                                                  : "all_gather,reduce_scatter,all_reduce"));
    TRY(parse_numbers("ranks", options->predict.ranks ? options->predict.ranks : "2..4096", ranks, &prediction->ranks,
                      1, PREDICT_RANKS));
    TRY(parse_numbers("bytes", options->predict.bytes ? options->predict.bytes : "64K..4G/4", prediction->bytes,
                      &prediction->sizes, 1, UINT64_C(1) << 50));
    if (options->predict.per_node) {
        TRY(parse_numbers("per-node", options->predict.per_node, per_node, &count, 1, PREDICT_RANKS));
        if (count != 1)
            return tool_usage(NULL, "--per-node %s: not one number", options->predict.per_node);
        prediction->per_node = (int)per_node[0];
    }
    for (int i = 0; i < prediction->ranks; i++)
        prediction->rank[i] = (int)ranks[i];
    return parse_densities(prediction, densities);
}

/* ---- output */

static int write_picture(const struct predict *prediction, const struct tool_options *options, struct output *output)
{
    const char *kind = tool_extension(options->out),
               *name = options->predict.plot ? options->predict.plot : predict_plot_name(0);
    int plot = 0;
    while (predict_plot_name(plot) && strcmp(name, predict_plot_name(plot)) != 0)
        plot++;
    const int bytes = plot == PLOT_BYTES ? 0 : prediction->sizes / 2;
    return predicted_draw(prediction, (enum predict_plot)plot, 0, 0, bytes,
                          strcasecmp(kind, ".png") == 0 ? canvas_png : canvas_svg, output);
}

static bool is_picture(const struct tool_options *options)
{
    return options->out && (tool_has_extension(options->out, ".svg") || tool_has_extension(options->out, ".png"));
}

static int check_plot(const struct predict *prediction, const struct tool_options *options)
{
    int i = 0;
    while (options->predict.plot && predict_plot_name(i) && strcmp(options->predict.plot, predict_plot_name(i)) != 0)
        i++;
    if (options->predict.plot && !predict_plot_name(i))
        return tool_usage(NULL, "--plot %s: not one of bytes, sparsity, time", options->predict.plot);
    if (options->predict.plot && !is_picture(options))
        return tool_usage(NULL, "--plot is for -o FILE.svg or FILE.png; a page has all plots");
    if (is_picture(options) && prediction->collectives > 1)
        return tool_usage(NULL, "predict: a picture shows one collective: choose it with --collective");
    if (is_picture(options) && prediction->densities > 1 &&
        (!options->predict.plot || strcmp(options->predict.plot, "sparsity") != 0))
        return tool_usage(NULL, "predict: this picture shows one density: choose it with --density");
    return TOOL_OK;
}

static int write_file(const struct predict *prediction, const struct tool_options *options)
{
    struct output output;
    TRY(output_open(&output, options->out, NULL, options->force));
    int status =
        is_picture(options) ? write_picture(prediction, options, &output) : predicted_html(prediction, &output);
    if (!status)
        status = output_commit(&output);
    output_discard(&output);
    return status;
}

static int predict(struct predict *prediction, const struct tool_options *options)
{
    struct jsonout json = {.file = stdout};
    TRY(parse(prediction, options));
    TRY(check_plot(prediction, options));
    if (options->json && options->out)
        return tool_usage(NULL, "predict: either --json or -o");
    if (!predict_run(prediction))
        return tool_nomem(NULL, "the predictions");
    if (!options->json && options->out)
        return write_file(prediction, options);
    if (options->json)
        predicted_json(prediction, &json);
    else
        predicted_print(prediction);
    return TOOL_OK;
}

int verb_predict(const struct tool_options *options)
{
    static struct predict prediction;
    prediction =
        (struct predict){.correlation = 1, .dtype = options->dtype ? (enum pici_dtype)options->dtype : PICI_F32};
    const int status = predict(&prediction, options);
    predict_free(&prediction);
    return status;
}
