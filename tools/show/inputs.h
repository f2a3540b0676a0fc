/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a verb prints on standard output about several inputs: texts with an empty line between them; or JSON, which is
 * what is printed of the one input, or an array if there are several. */
#ifndef PICI_TOOLS_SHOW_INPUTS_H
#define PICI_TOOLS_SHOW_INPUTS_H

#include "show/jsonout.h"
#include "tool.h"

struct inputs {
    const struct tool_options *options;
    struct jsonout json;
    bool has_printed; /* something has been printed */
};

/* Run one(path, options, inputs), which prints one input, for each operand, also after one that fails. An input that
 * fails is an object of its name and the error in the array. Returns the worst status. */
int inputs_print(const struct tool_options *options,
                 int (*one)(const char *path, const struct tool_options *options, void *inputs));

/* Print the empty line, if there is to be one. Call it before the text of an input. */
void inputs_next(struct inputs *);

#endif
