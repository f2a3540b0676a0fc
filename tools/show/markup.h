/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writing XML and HTML to an output: formatted text, and text from strangers made harmless. The first failure stays, and
 * what comes after it is ignored. */
#ifndef PICI_TOOLS_SHOW_MARKUP_H
#define PICI_TOOLS_SHOW_MARKUP_H

#include "io.h"

struct markup {
    struct output *out;
    int status; /* an exit status */
    size_t len;
    char buffer[1 << 14];
};

/* What printf would write, which must be below 8 KiB. */
void markup_put(struct markup *m, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Any bytes as text or as the value of an attribute: <, >, &, " and ' as entities; what XML does not take, controls and
 * broken UTF-8, as \xNN. */
void markup_text(struct markup *m, const char *text, size_t len);

/* Write what is still here; returns m->status. */
int markup_flush(struct markup *m);

#endif
