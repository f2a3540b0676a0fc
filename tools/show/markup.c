/* SPDX-License-Identifier: BSD-3-Clause */
#include "show/markup.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "parse/parse.h"
#include "tool.h"

int markup_flush(struct markup *m)
{
    if (!m->status && m->len)
        m->status = output_write(m->out, m->buffer, m->len);
    m->len = 0;
    return m->status;
}

void markup_put(struct markup *m, const char *format, ...)
{
    if (m->len > sizeof m->buffer / 2)
        markup_flush(m);
    va_list args;
    va_start(args, format);
    m->len += (size_t)vsnprintf(m->buffer + m->len, sizeof m->buffer - m->len, format, args);
    va_end(args);
}

void markup_text(struct markup *m, const char *text, size_t size)
{
    const uint8_t *p = (const uint8_t *)text, *end = p + size;
    while (p < end) {
        uint32_t c;
        size_t k = pici_parse_char(p, end, &c);
        if (k == 0 ||
            pici_parse_hidden(c)) { /* XML 1.0 allows no C0 control, U+FFFE or U+FFFF, not even as an entity */
            markup_put(m, "\\x%02x", *p);
            k = 1;
        } else if (strchr("<>&\"'", *p)) {
            markup_put(m, "&#%u;", *p);
        } else {
            markup_put(m, "%.*s", (int)k, (const char *)p);
        }
        p += k;
    }
}
