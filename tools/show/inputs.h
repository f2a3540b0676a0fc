/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Prints a verb's results for its inputs on standard output. Texts have an empty line between them. JSON is one value
 * for one input, an array for several. */
#ifndef PICI_TOOLS_SHOW_INPUTS_H
#define PICI_TOOLS_SHOW_INPUTS_H

#include "show/jsonout.h"
#include "tool.h"

struct inputs {
    const struct tool_options *options;
    struct jsonout json;
    bool has_printed; /* something has been printed */
};

/* Run one(path, options, inputs), which prints one input, for each operand, even after a failure. In the array, a
 * failed input becomes an object with its name and the error. Returns the worst status. */
int inputs_print(const struct tool_options *options,
                 int (*one)(const char *path, const struct tool_options *options, void *inputs));

/* Print the empty line between two texts. Call it before the text of each input. */
void inputs_next(struct inputs *);

#endif
