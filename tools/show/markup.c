/* SPDX-License-Identifier: BSD-3-Clause */
#include "show/markup.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "parse/parse.h"
#include "tool.h"

int markup_flush(struct markup *markup)
{
    if (!markup->status && markup->size)
        markup->status = output_write(markup->output, markup->buffer, markup->size);
    markup->size = 0;
    return markup->status;
}

void markup_put(struct markup *markup, const char *format, ...)
{
    if (markup->size > sizeof markup->buffer / 2)
        markup_flush(markup);
    va_list args;
    va_start(args, format);
    markup->size +=
        (size_t)vsnprintf(markup->buffer + markup->size, sizeof markup->buffer - markup->size, format, args);
    va_end(args);
}

void markup_text(struct markup *markup, const char *text, size_t size)
{
    const uint8_t *position = (const uint8_t *)text, *end = position + size;
    while (position < end) {
        uint32_t character;
        size_t step = pici_parse_char(position, end, &character);
        if (step == 0 ||
            pici_parse_hidden(character)) { /* XML 1.0 allows no C0 control, U+FFFE or U+FFFF, not even as an entity */
            markup_put(markup, "\\x%02x", *position);
            step = 1;
        } else if (strchr("<>&\"'", *position)) {
            markup_put(markup, "&#%u;", *position);
        } else {
            markup_put(markup, "%.*s", (int)step, (const char *)position);
        }
        position += step;
    }
}
