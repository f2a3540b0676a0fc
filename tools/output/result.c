/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "output/result.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "term.h"

int results_check(const struct tool_options *options, const char *verb)
{
    int streams = 0;
    for (int i = 0; i < options->nargs; i++)
        streams += strcmp(options->args[i], "-") == 0;
    if (streams > 1)
        return tool_usage(NULL, "%s: standard input, -, can be read only once", verb);
    if (options->nargs > 1 && options->out && strcmp(options->out, "-") != 0)
        return tool_usage(NULL, "%s: -o %s names one output for %d inputs: omit -o to write an output for each", verb,
                          options->out, options->nargs);
    if (options->remove && options->out && strcmp(options->out, "-") == 0)
        return tool_usage(NULL, "%s: --rm needs an output that is a file, not standard output", verb);
    if (options->remove && options->zeros == PICI_ZEROS_BY_VALUE)
        return tool_usage(NULL, "%s: --rm with --zeros=value: the signs of zeros could not be restored", verb);
    return TOOL_OK;
}

int results_each(const struct tool_options *options,
                 int (*one)(const char *path, const struct tool_options *options, void *ctx), void *context)
{
    int worst = TOOL_OK;
    for (int i = 0; i < options->nargs; i++) {
        int status = one(options->args[i], options, context);
        worst = status > worst ? status : worst;
    }
    return worst;
}

/* Whether to print a line for an output. For standard output, only on request, since another program reads it. */
static bool shown(bool is_stdout)
{
    return term_talk() >= TERM_VERBOSE || (term_talk() >= TERM_NORMAL && !is_stdout && isatty(STDERR_FILENO));
}

/* NAME : SHARE (FROM -> TO, SPEED)  OUTPUT. output may be NULL. */
static void line(const char *name, uint64_t dense, uint64_t compressed, bool restored, double seconds,
                 const char *output)
{
    char from[TERM_TEXT], to[TERM_TEXT], speed[TERM_TEXT];
    term_lock();
    progress_wipe();
    fflush(stdout); /* keeps the order of both streams on one terminal */
    term_puts(stderr, name);
    fputs(" : ", stderr);
    if (!restored && dense) {
        const double percent = 100 * (double)compressed / (double)dense;
        fprintf(stderr, percent < 9.995 ? "%.2f%% " : "%.1f%% ", percent);
    }
    const uint64_t before = restored ? compressed : dense;
    const uint64_t after = restored ? dense : compressed;
    fprintf(stderr, "(%s -> %s, %s)", term_bytes(from, before), term_bytes(to, after),
            term_speed(speed, dense, seconds));
    if (output) {
        fputs("  ", stderr);
        term_puts(stderr, output);
    }
    putc('\n', stderr);
    term_unlock();
}

void result_tensor(const char *name, enum pici_dtype dtype, const uint64_t *shape, unsigned rank)
{
    char dims[96];
    if (term_talk() < TERM_VERBOSE)
        return;
    term_lock();
    progress_wipe();
    fputs("  ", stderr);
    term_puts(stderr, name);
    fprintf(stderr, "  %s %s\n", pici_dtype_name(dtype), term_shape(dims, sizeof dims, shape, rank));
    term_unlock();
}

void result_print(const char *name, uint64_t bytes, const struct output *output, bool restored, double seconds)
{
    if (!shown(output->is_stdout))
        return;
    if (restored)
        line(name, output->position, bytes, true, seconds, output->name);
    else
        line(name, bytes, output->position, false, seconds, output->name);
}

int result_done(struct results *results, const struct tool_options *options, const char *path,
                const struct input *input, const struct output *output, bool restored, double seconds)
{
    const uint64_t bytes = input_length(input);
    result_print(input->name, bytes, output, restored, seconds);
    if (!restored && output->position > bytes) {
        char from[TERM_TEXT], to[TERM_TEXT];
        tool_warn(input->name, "the output is larger than the input (%s -> %s)", term_bytes(from, bytes),
                  term_bytes(to, output->position));
    }
    if (results) {
        results->done++;
        results->dense += restored ? output->position : bytes;
        results->compressed += restored ? bytes : output->position;
        results->seconds += seconds;
    }
    if (!options->remove || strcmp(path, "-") == 0) /* standard input has no name to remove */
        return TOOL_OK;
    if (!output->lasting)
        return tool_bad(input->name, "not removed: the output, %s, is not a file", output->name);
    return input_remove(input, path);
}

void results_print(const struct results *results, const struct tool_options *options, bool restored)
{
    char files[48];
    if (options->nargs < 2 || !results->done || !shown(options->out != NULL))
        return;
    snprintf(files, sizeof files, "%" PRIu64 " of %d files", results->done, options->nargs);
    line(files, results->dense, results->compressed, restored, results->seconds, NULL);
}
