/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A report as one HTML page, which needs nothing beside it: no script, no network. */
#ifndef PICI_TOOLS_SHOW_HTML_H
#define PICI_TOOLS_SHOW_HTML_H

#include "show/image.h"
#include "measure.h"

/* Write the page; returns an exit status. */
int html_report(const struct report *r, const struct image *im, struct output *out);

#endif
