/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "values.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "predict.h"
#include "suggest.h"

int value_int(const char *option, const char *s, long least, long most, int *out)
{
    char *end;
    errno = 0;
    long v = strtol(s, &end, 10);
    if (end == s || *end || errno || v < least || v > most)
        return tool_usage(NULL, "--%s %s: not a whole number from %ld to %ld", option, s, least, most);
    *out = (int)v;
    return TOOL_OK;
}

const char *value_format_word(int i)
{
    return i == 0 ? pici_format_name(PICI_AUTO) : pici_format_name((enum pici_format)(i - 1));
}

const char *value_dtype_word(int i)
{
    return pici_dtype_name((enum pici_dtype)(PICI_F32 + i));
}

const char *value_type_word(int i)
{
    return TYPE_RAW + i < TYPES ? tool_type_name((enum tool_type)(TYPE_RAW + i)) : NULL;
}

const char *value_zeros_word(int i)
{
    static const char *const words[] = {
        [PICI_ZEROS_EXACT] = "exact", [PICI_ZEROS_BY_VALUE] = "value", [PICI_ZEROS_BY_VALUE + 1] = NULL};
    return words[i];
}

const char *value_machine_word(int i)
{
    const char *what;
    return predict_machine(i, &what);
}

/* Which of an option's words s is. */
static int parse_word(const char *option, const char *s, const char *(*word)(int), int *i)
{
    char all[160], hint[SUGGEST_HINT];
    size_t at = 0;
    struct suggest near;
    suggest_start(&near, s);
    for (*i = 0; word(*i); ++*i) {
        if (strcmp(s, word(*i)) == 0)
            return TOOL_OK;
        suggest_word(&near, word(*i));
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", *i ? ", " : "", word(*i));
    }
    return tool_usage(NULL, "--%s %s: not one of %s%s", option, s, all, suggest_hint(&near, "", hint));
}

/* "pici" is what the format bitmap was called until version 0.3. */
static const char *new_format_word(const char *word)
{
    return strcmp(word, "pici") == 0 ? pici_format_name(PICI_BITMAP) : word;
}

bool value_is_format(const char *s)
{
    for (int i = 0; value_format_word(i); i++)
        if (strcmp(new_format_word(s), value_format_word(i)) == 0)
            return true;
    return false;
}

int value_format(const char *s, struct tool_options *options)
{
    int i, status = parse_word("format", new_format_word(s), value_format_word, &i);
    options->format = i ? (enum pici_format)(i - 1) : PICI_AUTO;
    return status;
}

int value_dtype(const char *s, struct tool_options *options)
{
    int i, status = parse_word("dtype", s, value_dtype_word, &i);
    options->dtype = PICI_F32 + i;
    return status;
}

int value_type(const char *s, struct tool_options *options)
{
    int i, status = parse_word("type", s, value_type_word, &i);
    options->type = (enum tool_type)(TYPE_RAW + i);
    return status;
}

int value_zeros(const char *s, struct tool_options *options)
{
    int i, status = parse_word("zeros", s, value_zeros_word, &i);
    options->zeros = (enum pici_zeros)i;
    return status;
}

int value_bytes(const char *option, const char *s, uint64_t *bytes)
{
    if (tool_parse_bytes(s, bytes))
        return TOOL_OK;
    return tool_usage(NULL, "--%s %s: not a number of bytes, as 4096, 512K or 2G", option, s);
}

int value_max_size(const char *s, struct tool_options *options)
{
    options->max_size.given = true;
    options->max_size.bytes = UINT64_MAX;
    return strcmp(s, "none") == 0 ? TOOL_OK : value_bytes("max-size", s, &options->max_size.bytes);
}

int value_heatmap(const char *value, struct tool_options *options)
{
    const char *kind = tool_extension(value);
    if (strcasecmp(kind, ".png") == 0)
        options->png = value;
    else if (strcasecmp(kind, ".svg") == 0)
        options->svg = value;
    else
        return tool_usage(value, "--heatmap draws to a file whose name ends in .png or .svg");
    return TOOL_OK;
}

int value_range(const char *s, struct tool_options *options)
{
    const char *p = s;
    bool ok = *p == ':' || tool_parse_digits(&p, &options->range.first);
    ok = ok && *p++ == ':';
    options->range.given = true;
    options->range.to_end = ok && !*p;
    ok = ok && (options->range.to_end ||
                (tool_parse_digits(&p, &options->range.last) && !*p && options->range.first <= options->range.last));
    return ok ? TOOL_OK : tool_usage(NULL, "--range %s: not a range of elements, as 0:1000, 500: or :20", s);
}

int value_sparsity(const char *s, struct tool_options *options)
{
    enum { MOST = 16 };
    static double list[MOST];
    int n = 0;
    for (const char *p = s;; p++) {
        char *end;
        double v = strtod(p, &end);
        if (n == MOST || end == p || (*end && *end != ',') || !isfinite(v) || v < 0 || v > 100)
            return tool_usage(NULL, "--sparsity %s: not percentages from 0 to 100, at most %d, with commas between", s,
                              MOST);
        list[n++] = floor(v * 1e10 + 0.5) / 1e12; /* rounded, so that 99.9 gives exactly 0.999 */
        if (!*end)
            break;
        p = end;
    }
    options->sparsity = list;
    options->sparsities = n;
    return TOOL_OK;
}
