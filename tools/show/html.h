/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writes a report as one HTML page, without scripts and without references to other files. */
#ifndef PICI_TOOLS_SHOW_HTML_H
#define PICI_TOOLS_SHOW_HTML_H

#include "show/image.h"
#include "measure.h"

/* Write the page; returns an exit status. */
int html_report(const struct report *r, const struct image *im, struct output *out);

#endif
