/* SPDX-License-Identifier: BSD-3-Clause */
#include "show/jsonout.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parse/parse.h"

static void text(FILE *stream, const char *string, size_t size)
{
    const uint8_t *position = (const uint8_t *)string, *end = position + size;
    putc('"', stream);
    while (position < end) {
        uint32_t character;
        size_t step = pici_parse_char(position, end, &character);
        if (step == 0) {
            fputs("\\ufffd", stream);
            step = 1;
        } else if (pici_parse_hidden(character) && character > 0xffff) {
            fprintf(stream, "\\u%04x\\u%04x", 0xd800 + ((character - 0x10000) >> 10), 0xdc00 + (character & 0x3ff));
        } else if (pici_parse_hidden(character)) { /* most are legal, but must not reach a terminal */
            fprintf(stream, "\\u%04x", character);
        } else {
            if (*position == '"' || *position == '\\')
                putc('\\', stream);
            fwrite(position, 1, step, stream);
        }
        position += step;
    }
    putc('"', stream);
}

/* Writes the comma, indentation and key before a value. */
static void lead(struct jsonout *json, const char *key)
{
    if (json->has_members)
        putc(',', json->file);
    json->has_members = true;
    if (json->depth)
        fprintf(json->file, "\n%*s", (int)(2 * json->depth), "");
    if (key) {
        text(json->file, key, strlen(key));
        fputs(": ", json->file);
    }
}

void jsonout_begin(struct jsonout *json, const char *key, char bracket)
{
    lead(json, key);
    putc(bracket, json->file);
    json->depth++;
    json->has_members = false;
}

void jsonout_end(struct jsonout *json, char bracket)
{
    json->depth--;
    if (json->has_members)
        fprintf(json->file, "\n%*s", (int)(2 * json->depth), "");
    putc(bracket, json->file);
    json->has_members = true;
    if (!json->depth)
        putc('\n', json->file);
}

void jsonout_u64(struct jsonout *json, const char *key, uint64_t value)
{
    lead(json, key);
    fprintf(json->file, "%" PRIu64, value);
}

void jsonout_bool(struct jsonout *json, const char *key, bool value)
{
    lead(json, key);
    fputs(value ? "true" : "false", json->file);
}

void jsonout_null(struct jsonout *json, const char *key)
{
    lead(json, key);
    fputs("null", json->file);
}

void jsonout_real(struct jsonout *json, const char *key, double value)
{
    if (!isfinite(value)) {
        jsonout_null(json, key);
        return;
    }
    lead(json, key);
    char text_of[32];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text_of, sizeof text_of, "%.*g", digits, value);
        if (strtod(text_of, NULL) == value)
            break;
    }
    fputs(text_of, json->file);
}

void jsonout_text(struct jsonout *json, const char *key, const char *string, size_t size)
{
    lead(json, key);
    text(json->file, string, size);
}

void jsonout_string(struct jsonout *json, const char *key, const char *string)
{
    jsonout_text(json, key, string, strlen(string));
}
