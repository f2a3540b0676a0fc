/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How list and inspect tell what they found, on standard output. */
#ifndef PICI_TOOLS_SHOW_REPORT_H
#define PICI_TOOLS_SHOW_REPORT_H

#include "show/jsonout.h"
#include "measure.h"

enum { REPORT_SPARK = 24 }; /* characters of a sparkline */

/* As inspect: JSON, or for people, which is one tensor with a map, or a table of several. */
void report_json(const struct report *r);
void report_print(const struct report *r);

/* What a tensor is, as members of the object that j is in. */
void measured_json(struct jsonout *j, const struct measured *m);

/* The first columns of a table: name, dtype, shape. */
struct columns {
    size_t name, dtype, shape; /* their widths */
    bool cut;                  /* names that are longer: on a terminal */
    bool fits;                 /* the terminal has room for the longest name */
};

/* Choose widths; the columns that follow take rest characters, their gaps included. */
void columns_fit(struct columns *c, const struct report *r, size_t rest);

/* The beginning of a line: of column names, of a tensor, of the sums. */
void columns_head(const struct columns *c);
void columns_row(const struct columns *c, const struct measured *m);
void columns_total(const struct columns *c);

/* The end of such a line: column names and sums are bold where there are colours. */
void columns_end(void);

#endif
