/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Results of a verb with several inputs: a line on stderr for each complete output, a total, the removal of inputs, and
 * the common status. */
#ifndef PICI_TOOLS_OUTPUT_RESULT_H
#define PICI_TOOLS_OUTPUT_RESULT_H

#include "output/output.h"
#include "tool.h"

struct results {
    uint64_t done;       /* outputs */
    uint64_t dense;      /* bytes of them, restored */
    uint64_t compressed; /* and compressed */
    double seconds;
};

/* Reject several inputs for one output, and --rm without a file that can restore each bit of the input. */
int results_check(const struct tool_options *options, const char *verb);

/* Run one(path, options, context) for each operand, even after a failure. Returns the worst status. */
int results_each(const struct tool_options *options,
                 int (*one)(const char *path, const struct tool_options *options, void *ctx), void *context);

/* Report a committed output, which took `seconds` to make. restored: the input is the compressed file. Prints the line,
 * and a warning if a compressed output is larger than its input; deletes the input if --rm is given. results: adds to
 * it; or NULL. */
int result_done(struct results *results, const struct tool_options *options, const char *path,
                const struct input *input, const struct output *output, bool restored, double seconds);

/* With --verbose, print a line for the current tensor. */
void result_tensor(const char *name, enum pici_dtype dtype, const uint64_t *shape, unsigned rank);

/* Print the line for an output of several inputs with `bytes` bytes. */
void result_print(const char *name, uint64_t bytes, const struct output *output, bool restored, double seconds);

/* Print a line for all outputs together, if there are several operands. */
void results_print(const struct results *results, const struct tool_options *options, bool restored);

#endif
