/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Prints the results of list and inspect on standard output. */
#ifndef PICI_TOOLS_SHOW_REPORT_H
#define PICI_TOOLS_SHOW_REPORT_H

#include "measure/measure.h"
#include "show/jsonout.h"

enum { REPORT_SPARK = 24 }; /* characters of a sparkline */

/* Print the output of inspect: a JSON object, or as text the map of one tensor or a table of several. */
void report_json(struct jsonout *json, const struct report *report);
void report_print(const struct report *report);

/* Print the number of references, if there are any. */
void report_json_referred(struct jsonout *, const struct report *);
void report_print_referred(const struct report *);

/* Begin the object of a file, and its list of tensors. type_key: the key of its type. */
void report_json_begin(struct jsonout *json, const struct report *report, const char *type_key);

/* Write the description of a tensor as members of the current object of json. */
void measured_json(struct jsonout *json, const struct measured *measured);

/* The first columns of a table: name, dtype, shape. */
struct columns {
    size_t name, dtype, shape; /* column widths */
    bool cut;                  /* cut longer names, on a terminal */
    bool fits;                 /* the terminal has room for the longest name */
};

/* Choose the widths. The other columns take `rest` characters, with their gaps. */
void columns_fit(struct columns *columns, const struct report *report, size_t rest);

/* Print the beginning of a line: column names, a tensor, or sums. */
void columns_head(const struct columns *columns);
void columns_row(const struct columns *columns, const struct measured *measured);
void columns_total(const struct columns *columns);

/* Print the end of such a line. With colours, column names and sums are bold. */
void columns_end(void);

#endif
