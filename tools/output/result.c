/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "output/result.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "term.h"

int results_check(const struct tool_options *o, const char *verb)
{
    int streams = 0;
    for (int i = 0; i < o->nargs; i++)
        streams += strcmp(o->args[i], "-") == 0;
    if (streams > 1)
        return tool_usage(NULL, "%s: standard input, -, can be read only once", verb);
    if (o->nargs > 1 && o->out && strcmp(o->out, "-") != 0)
        return tool_usage(NULL, "%s: -o %s is one output, and there are %d inputs: without -o each has its own", verb,
                          o->out, o->nargs);
    if (o->remove && o->out && strcmp(o->out, "-") == 0)
        return tool_usage(NULL, "%s: --rm needs an output that is a file, not standard output", verb);
    if (o->remove && o->zeros == PICI_ZEROS_BY_VALUE)
        return tool_usage(NULL, "%s: --rm with --zeros=value: the signs of zeros could not be restored", verb);
    return TOOL_OK;
}

int results_each(const struct tool_options *o, int (*one)(const char *path, const struct tool_options *o, void *ctx),
                 void *ctx)
{
    int worst = TOOL_OK;
    for (int i = 0; i < o->nargs; i++) {
        int status = one(o->args[i], o, ctx);
        worst = status > worst ? status : worst;
    }
    return worst;
}

/* Whether a line is printed for an output. Of standard output only on request, since its reader is someone else. */
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
    fprintf(stderr, "(%s -> %s, %s)", term_bytes(from, restored ? compressed : dense),
            term_bytes(to, restored ? dense : compressed), term_speed(speed, dense, seconds));
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

void result_print(const char *name, uint64_t bytes, const struct output *out, bool restored, double seconds)
{
    if (shown(out->is_stdout))
        line(name, restored ? out->at : bytes, restored ? bytes : out->at, restored, seconds, out->name);
}

int result_done(struct results *sum, const struct tool_options *o, const char *path, const struct input *in,
                const struct output *out, bool restored, double seconds)
{
    const uint64_t bytes = input_length(in);
    result_print(in->name, bytes, out, restored, seconds);
    if (!restored && out->at > bytes) {
        char from[TERM_TEXT], to[TERM_TEXT];
        tool_warn(in->name, "the output is larger than the input (%s -> %s)", term_bytes(from, bytes),
                  term_bytes(to, out->at));
    }
    if (sum) {
        sum->done++;
        sum->dense += restored ? out->at : bytes;
        sum->compressed += restored ? bytes : out->at;
        sum->seconds += seconds;
    }
    if (!o->remove || strcmp(path, "-") == 0) /* standard input has no name to remove */
        return TOOL_OK;
    if (!out->lasting)
        return tool_bad(in->name, "not removed: the output, %s, is not a file", out->name);
    return input_remove(in, path);
}

void results_print(const struct results *sum, const struct tool_options *o, bool restored)
{
    char files[48];
    if (o->nargs < 2 || !sum->done || !shown(o->out != NULL))
        return;
    snprintf(files, sizeof files, "%" PRIu64 " of %d files", sum->done, o->nargs);
    line(files, sum->dense, sum->compressed, restored, sum->seconds, NULL);
}
