/* SPDX-License-Identifier: BSD-3-Clause */
#include "input/looks.h"

#include <stdio.h>
#include <string.h>

#include "delta/delta.h"
#include "parse/sniff.h"

/* Sets *what and *advice of a file that begins as a .pici file. */
static void look_inside(struct input *in, const char **what, const char **advice)
{
    struct pici_reader *r = NULL;
    bool is_delta = false;
    *advice = "picitool decompress restores it";
    if (!in->regular)
        return;
    if (pici_reader_open_at(&r, input_read_at, in, in->bytes, NULL) != PICI_OK) {
        *what = "a .pici file that is cut short or damaged";
        *advice = "picitool test says where";
    } else if (pici_delta_is(r, &is_delta) == PICI_OK && is_delta) {
        *what = "a delta of picitool";
        *advice = "picitool apply applies it";
    }
    pici_reader_close(r);
}

/* What the input looks like. Its position, which may be anywhere, does not change. inside: a .pici file is opened. */
static struct sniff look(struct input *in, const uint8_t *head, size_t len, bool inside, const char **advice)
{
    const struct input was = *in;
    uint8_t first[SNIFF_BYTES];
    if (in->regular) {
        len = in->bytes < sizeof first ? (size_t)in->bytes : sizeof first;
        if (input_read_at(in, first, len, 0))
            len = 0;
        head = first;
    }
    struct sniff s = sniff(head, len);
    *advice = s.advice;
    if (s.kind == SNIFF_PICI && inside)
        look_inside(in, &s.what, advice);
    else if (s.kind == SNIFF_BLOCK)
        *advice = "picitool block decode decodes it";
    else if (s.kind == SNIFF_PICI_CUT)
        *advice = "it is cut short";
    *in = was;
    return s;
}

const char *looks(struct input *in, const uint8_t *head, size_t len, enum tool_type taken, char buf[LOOKS_TEXT])
{
    const char *advice;
    char word[32] = "";
    const struct sniff s = look(in, head, len, taken != TYPE_UNSET, &advice);
    const bool as_taken = taken == TYPE_UNSET ? s.kind == SNIFF_PICI || s.kind == SNIFF_PICI_CUT
                                              : s.type && strcmp(s.type, tool_type_name(taken)) == 0;
    buf[0] = 0;
    if (!s.what || as_taken)
        return buf;
    if (s.type && tool_type_exists(s.type)) {
        snprintf(word, sizeof word, "--type %s", s.type);
        advice = taken == TYPE_UNSET ? "picitool compress makes a .pici file of it" : word;
    }
    snprintf(buf, LOOKS_TEXT, "looks like %s%s%s", s.what, advice ? ": " : "", advice ? advice : "");
    return buf;
}

/* What the first bytes of the input look like, of which none have been taken. */
static int peek(struct input *in, struct sniff *s)
{
    uint8_t first[SNIFF_BYTES];
    size_t got = in->bytes < sizeof first ? (size_t)in->bytes : sizeof first;
    if (!in->regular) {
        TRY(input_peek(in, first, sizeof first, &got));
    } else { /* it may be at rest */
        const struct input was = *in;
        if (input_read_at(in, first, got, 0))
            got = 0;
        *in = was;
    }
    *s = sniff(first, got);
    return TOOL_OK;
}

int looks_type(struct input *in, const char *path, const struct tool_options *o, enum tool_type *type)
{
    struct sniff s;
    *type = o->type ? o->type : tool_type_of(path);
    if (o->type || o->dtype || *type != TYPE_RAW)
        return TOOL_OK;
    TRY(peek(in, &s));
    for (int t = TYPE_NPY; s.type && t < TYPES; t++)
        if (strcmp(s.type, tool_type_name((enum tool_type)t)) == 0)
            *type = (enum tool_type)t;
    return TOOL_OK;
}

int looks_refuse(struct input *in)
{
    struct sniff s;
    TRY(peek(in, &s));
    return s.kind == SNIFF_STAND_IN ? tool_bad(in->name, "is %s: %s", s.what, s.advice) : TOOL_OK;
}

const char *looks_after(struct input *in, const uint8_t *head, size_t len, enum tool_type taken, char buf[LOOKS_TEXT])
{
    char text[LOOKS_TEXT];
    if (*looks(in, head, len, taken, text))
        snprintf(buf, LOOKS_TEXT, "; it %.*s", LOOKS_TEXT - 8, text);
    else
        buf[0] = 0;
    return buf;
}
