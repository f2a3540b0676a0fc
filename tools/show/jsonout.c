/* SPDX-License-Identifier: BSD-3-Clause */
#include "show/jsonout.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parse/parse.h"

static void text(FILE *f, const char *s, size_t size)
{
    const uint8_t *p = (const uint8_t *)s, *end = p + size;
    putc('"', f);
    while (p < end) {
        uint32_t c;
        size_t k = pici_parse_char(p, end, &c);
        if (k == 0) {
            fputs("\\ufffd", f);
            k = 1;
        } else if (pici_parse_hidden(c) && c > 0xffff) {
            fprintf(f, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + (c & 0x3ff));
        } else if (pici_parse_hidden(c)) { /* most are legal, but must not reach a terminal */
            fprintf(f, "\\u%04x", c);
        } else {
            if (*p == '"' || *p == '\\')
                putc('\\', f);
            fwrite(p, 1, k, f);
        }
        p += k;
    }
    putc('"', f);
}

/* Writes what comes before a value: comma, indentation, key. */
static void lead(struct jsonout *j, const char *key)
{
    if (j->some)
        putc(',', j->f);
    j->some = true;
    if (j->depth)
        fprintf(j->f, "\n%*s", (int)(2 * j->depth), "");
    if (key) {
        text(j->f, key, strlen(key));
        fputs(": ", j->f);
    }
}

void jsonout_begin(struct jsonout *j, const char *key, char bracket)
{
    lead(j, key);
    putc(bracket, j->f);
    j->depth++;
    j->some = false;
}

void jsonout_end(struct jsonout *j, char bracket)
{
    j->depth--;
    if (j->some)
        fprintf(j->f, "\n%*s", (int)(2 * j->depth), "");
    putc(bracket, j->f);
    j->some = true;
    if (!j->depth)
        putc('\n', j->f);
}

void jsonout_u64(struct jsonout *j, const char *key, uint64_t value)
{
    lead(j, key);
    fprintf(j->f, "%" PRIu64, value);
}

void jsonout_bool(struct jsonout *j, const char *key, bool v)
{
    lead(j, key);
    fputs(v ? "true" : "false", j->f);
}

void jsonout_null(struct jsonout *j, const char *key)
{
    lead(j, key);
    fputs("null", j->f);
}

void jsonout_real(struct jsonout *j, const char *key, double v)
{
    if (!isfinite(v)) {
        jsonout_null(j, key);
        return;
    }
    lead(j, key);
    char text_of[32];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text_of, sizeof text_of, "%.*g", digits, v);
        if (strtod(text_of, NULL) == v)
            break;
    }
    fputs(text_of, j->f);
}

void jsonout_text(struct jsonout *j, const char *key, const char *s, size_t size)
{
    lead(j, key);
    text(j->f, s, size);
}

void jsonout_string(struct jsonout *j, const char *key, const char *s)
{
    jsonout_text(j, key, s, strlen(s));
}
