/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writes XML and HTML to an output: formatted text, and untrusted text with escapes. Remembers the first failure, and
 * writes nothing more after it. */
#ifndef PICI_TOOLS_SHOW_MARKUP_H
#define PICI_TOOLS_SHOW_MARKUP_H

#include "output/output.h"

struct markup {
    struct output *output;
    int status; /* an exit status */
    size_t size;
    char buffer[1 << 14];
};

/* Write formatted text, as printf does; it must be shorter than 8 KiB. */
void markup_put(struct markup *markup, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Write any bytes as text or as an attribute's value. <, >, &, " and ' become entities. Characters that parse_hidden
 * names, and bytes that are not UTF-8, become \xNN. */
void markup_text(struct markup *markup, const char *text, size_t size);

/* Write the buffered text. Returns markup->status. */
int markup_flush(struct markup *markup);

#endif
