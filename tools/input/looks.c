/* SPDX-License-Identifier: BSD-3-Clause */
#include "input/looks.h"

#include <stdio.h>
#include <string.h>

#include "delta/delta.h"
#include "parse/sniff.h"

/* Sets *what and *advice for a file that begins like a .pici file. */
static void look_inside(struct input *input, const char **what, const char **advice)
{
    struct pici_reader *reader = NULL;
    bool is_delta = false;
    *advice = "picitool decompress restores it";
    if (!input->regular)
        return;
    if (pici_reader_open_at(&reader, input_read_at, input, input->bytes, NULL) != PICI_OK) {
        *what = "a .pici file that is cut short or damaged";
        *advice = "picitool test says where";
    } else if (pici_delta_is(reader, &is_delta) == PICI_OK && is_delta) {
        *what = "a delta of picitool";
        *advice = "picitool apply applies it";
    }
    pici_reader_close(reader);
}

/* Guesses the kind of the input, at any position of it, without changing the position. inside: open a .pici file to
 * look into it. */
static struct sniff look(struct input *input, const uint8_t *head, size_t size, bool inside, const char **advice)
{
    const struct input saved = *input;
    uint8_t first[SNIFF_BYTES];
    if (input->regular) {
        size = input->bytes < sizeof first ? (size_t)input->bytes : sizeof first;
        if (input_read_at(input, first, size, 0))
            size = 0;
        head = first;
    }
    struct sniff sniffed = sniff(head, size);
    *advice = sniffed.advice;
    if (sniffed.kind == SNIFF_PICI && inside)
        look_inside(input, &sniffed.what, advice);
    else if (sniffed.kind == SNIFF_BLOCK)
        *advice = "picitool block decode decodes it";
    else if (sniffed.kind == SNIFF_PICI_CUT)
        *advice = "it is cut short";
    *input = saved;
    return sniffed;
}

const char *looks(struct input *input, const uint8_t *head, size_t size, enum tool_type taken, char buffer[LOOKS_TEXT])
{
    const char *advice;
    char word[32] = "";
    const struct sniff sniffed = look(input, head, size, taken != TYPE_UNSET, &advice);
    const bool as_taken = taken == TYPE_UNSET ? sniffed.kind == SNIFF_PICI || sniffed.kind == SNIFF_PICI_CUT
                                              : sniffed.type && strcmp(sniffed.type, tool_type_name(taken)) == 0;
    buffer[0] = 0;
    if (!sniffed.what || as_taken)
        return buffer;
    if (sniffed.type && tool_type_exists(sniffed.type)) {
        snprintf(word, sizeof word, "--type %s", sniffed.type);
        advice = taken == TYPE_UNSET ? "picitool compress converts it to .pici" : word;
    }
    const char *const colon = advice ? ": " : "";
    snprintf(buffer, LOOKS_TEXT, "looks like %s%s%s", sniffed.what, colon, advice ? advice : "");
    return buffer;
}

/* Guesses the kind of the input by its first bytes, before any byte is taken. */
static int peek(struct input *input, struct sniff *sniffed)
{
    uint8_t first[SNIFF_BYTES];
    size_t received = input->bytes < sizeof first ? (size_t)input->bytes : sizeof first;
    if (!input->regular) {
        TRY(input_peek(input, first, sizeof first, &received));
    } else { /* the input may be resting */
        const struct input saved = *input;
        if (input_read_at(input, first, received, 0))
            received = 0;
        *input = saved;
    }
    *sniffed = sniff(first, received);
    return TOOL_OK;
}

int looks_type(struct input *input, const char *path, const struct tool_options *options, enum tool_type *type)
{
    struct sniff sniffed;
    *type = options->type ? options->type : tool_type_of(path);
    if (options->type || options->dtype || *type != TYPE_RAW)
        return TOOL_OK;
    TRY(peek(input, &sniffed));
    for (int candidate = TYPE_NPY; sniffed.type && candidate < TYPES; candidate++)
        if (strcmp(sniffed.type, tool_type_name((enum tool_type)candidate)) == 0)
            *type = (enum tool_type)candidate;
    return TOOL_OK;
}

int looks_refuse(struct input *input)
{
    struct sniff sniffed;
    TRY(peek(input, &sniffed));
    return sniffed.kind == SNIFF_STAND_IN ? tool_bad(input->name, "is %s: %s", sniffed.what, sniffed.advice) : TOOL_OK;
}

const char *looks_after(struct input *input, const uint8_t *head, size_t size, enum tool_type taken,
                        char buffer[LOOKS_TEXT])
{
    char text[LOOKS_TEXT];
    if (*looks(input, head, size, taken, text))
        snprintf(buffer, LOOKS_TEXT, "; it %.*s", LOOKS_TEXT - 8, text);
    else
        buffer[0] = 0;
    return buffer;
}
