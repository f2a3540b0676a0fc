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

int value_int(const char *option, const char *word, long least, long most, int *result)
{
    char *end;
    errno = 0;
    long number = strtol(word, &end, 10);
    if (end == word || *end || errno || number < least || number > most)
        return tool_usage(NULL, "--%s %s: not a whole number from %ld to %ld", option, word, least, most);
    *result = (int)number;
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

static const struct {
    const char *word;
    enum pici_pack pack;
} packs[] = {{"none", PICI_PACK_NONE}, {"planes", PICI_PACK_PLANES}, {"fast", PICI_PACK_FAST}};

const char *value_pack_word(int i)
{
    return i < (int)(sizeof packs / sizeof *packs) ? packs[i].word : NULL;
}

const char *value_machine_word(int i)
{
    const char *what;
    return predict_machine(i, &what);
}

/* Finds the typed word among an option's words. */
static int parse_word(const char *option, const char *typed, const char *(*word)(int), int *index)
{
    char all[160], hint[SUGGEST_HINT];
    size_t used = 0;
    struct suggest nearest;
    suggest_start(&nearest, typed);
    for (*index = 0; word(*index); ++*index) {
        if (strcmp(typed, word(*index)) == 0)
            return TOOL_OK;
        suggest_word(&nearest, word(*index));
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", *index ? ", " : "", word(*index));
    }
    return tool_usage(NULL, "--%s %s: not one of %s%s", option, typed, all, suggest_hint(&nearest, "", hint));
}

/* Until version 0.3, the format bitmap was called "pici". */
static const char *new_format_word(const char *word)
{
    return strcmp(word, "pici") == 0 ? pici_format_name(PICI_BITMAP) : word;
}

bool value_is_format(const char *word)
{
    for (int i = 0; value_format_word(i); i++)
        if (strcmp(new_format_word(word), value_format_word(i)) == 0)
            return true;
    return false;
}

int value_format(const char *word, struct tool_options *options)
{
    int index, status = parse_word("format", new_format_word(word), value_format_word, &index);
    options->format = index ? (enum pici_format)(index - 1) : PICI_AUTO;
    return status;
}

int value_dtype(const char *word, struct tool_options *options)
{
    int index, status = parse_word("dtype", word, value_dtype_word, &index);
    options->dtype = PICI_F32 + index;
    return status;
}

int value_type(const char *word, struct tool_options *options)
{
    int index, status = parse_word("type", word, value_type_word, &index);
    options->type = (enum tool_type)(TYPE_RAW + index);
    return status;
}

int value_zeros(const char *word, struct tool_options *options)
{
    int index, status = parse_word("zeros", word, value_zeros_word, &index);
    options->zeros = (enum pici_zeros)index;
    return status;
}

int value_pack(const char *word, struct tool_options *options)
{
    int index, status = parse_word("pack", word, value_pack_word, &index);
    if (status == TOOL_OK) {
        options->pack = packs[index].pack;
        options->pack_given = true;
    }
    return status;
}

int value_bytes(const char *option, const char *text, uint64_t *bytes)
{
    if (tool_parse_bytes(text, bytes))
        return TOOL_OK;
    return tool_usage(NULL, "--%s %s: not a number of bytes, as 4096, 512K or 2G", option, text);
}

int value_max_size(const char *text, struct tool_options *options)
{
    options->max_size.given = true;
    options->max_size.bytes = UINT64_MAX;
    return strcmp(text, "none") == 0 ? TOOL_OK : value_bytes("max-size", text, &options->max_size.bytes);
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

int value_range(const char *text, struct tool_options *options)
{
    const char *position = text;
    bool valid = *position == ':' || tool_parse_digits(&position, &options->range.first);
    valid = valid && *position++ == ':';
    options->range.given = true;
    options->range.to_end = valid && !*position;
    valid = valid && (options->range.to_end || (tool_parse_digits(&position, &options->range.last) && !*position &&
                                                options->range.first <= options->range.last));
    return valid ? TOOL_OK : tool_usage(NULL, "--range %s: not a range of elements, as 0:1000, 500: or :20", text);
}

int value_sparsity(const char *text, struct tool_options *options)
{
    enum { MOST = 16 };
    static double list[MOST];
    int count = 0;
    for (const char *position = text;; position++) {
        char *end;
        double percent = strtod(position, &end);
        if (count == MOST || end == position || (*end && *end != ',') || !isfinite(percent) || percent < 0 ||
            percent > 100)
            return tool_usage(NULL, "--sparsity %s: not percentages from 0 to 100, at most %d, with commas between",
                              text, MOST);
        list[count++] = floor(percent * 1e10 + 0.5) / 1e12; /* rounded, so that 99.9 gives exactly 0.999 */
        if (!*end)
            break;
        position = end;
    }
    options->sparsity = list;
    options->sparsities = count;
    return TOOL_OK;
}
