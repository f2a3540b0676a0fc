/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writes HTML pages without scripts and external files. */
#ifndef PICI_TOOLS_SHOW_HTML_H
#define PICI_TOOLS_SHOW_HTML_H

#include "measure/measure.h"
#include "show/image.h"

struct markup;

/* Write the head of a page, and its title as a heading. html_end ends the page. */
void html_begin(struct markup *markup, const char *title);
void html_end(struct markup *markup);

/* Write a report; returns an exit status. */
int html_report(const struct report *report, const struct image *image, struct output *output);

#endif
