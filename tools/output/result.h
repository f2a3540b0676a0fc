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
    uint64_t dense;      /* their bytes uncompressed */
    uint64_t compressed; /* their bytes compressed */
    double seconds;
};

/* Reject several inputs for one output. Reject --rm if the output cannot restore each bit of the input. */
int results_check(const struct tool_options *options, const char *verb);

/* Run one(path, options, context) for each operand, even after a failure. Returns the worst status. */
int results_each(const struct tool_options *options,
                 int (*one)(const char *path, const struct tool_options *options, void *ctx), void *context);

/* Report a committed output, which took `seconds` to make. restored: the input is the compressed file. Prints the line,
 * and a warning if a compressed output is larger than its input. With --rm, deletes the input. Adds to results, unless
 * it is NULL. */
int result_done(struct results *results, const struct tool_options *options, const char *path,
                const struct input *input, const struct output *output, bool restored, double seconds);

/* With --verbose, print a line for the current tensor. */
void result_tensor(const char *name, enum pici_dtype dtype, const uint64_t *shape, unsigned rank);

/* Print the line for an output made from several inputs with `bytes` bytes in total. */
void result_print(const char *name, uint64_t bytes, const struct output *output, bool restored, double seconds);

/* Print a line for the total, if there are several operands. */
void results_print(const struct results *results, const struct tool_options *options, bool restored);

#endif
