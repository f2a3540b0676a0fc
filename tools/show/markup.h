/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writes XML and HTML to an output: formatted text, and untrusted text with escapes. After the first failure, which is
 * remembered, nothing more is written. */
#ifndef PICI_TOOLS_SHOW_MARKUP_H
#define PICI_TOOLS_SHOW_MARKUP_H

#include "output/output.h"

struct markup {
    struct output *output;
    int status; /* an exit status */
    size_t size;
    char buffer[1 << 14];
};

/* Write what printf would; it must be below 8 KiB. */
void markup_put(struct markup *markup, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Write any bytes as text or as the value of an attribute: <, >, &, " and ' as entities; characters that parse_hidden
 * names, and bytes that are not UTF-8, as \xNN. */
void markup_text(struct markup *markup, const char *text, size_t size);

/* Write what is still buffered. Returns markup->status. */
int markup_flush(struct markup *markup);

#endif
