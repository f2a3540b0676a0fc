/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What becomes of the inputs of a verb that takes several: a line on stderr for each output that is complete, a sum of
 * all, the removal of inputs, and the status of all together. */
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

/* Refuse several inputs for one output, and --rm without a file from which each bit of the input can be restored. */
int results_check(const struct tool_options *options, const char *verb);

/* Run one(path, options, context) for each operand, also after one that fails. Returns the worst status. */
int results_each(const struct tool_options *options,
                 int (*one)(const char *path, const struct tool_options *options, void *ctx), void *context);

/* The output is committed: it took so many seconds to make it. restored: the input is the compressed one of the two.
 * Prints the line, and a warning if the output is a compressed one that is larger than its input; removes the input if
 * --rm is given. results: adds to it; or NULL. */
int result_done(struct results *results, const struct tool_options *options, const char *path,
                const struct input *input, const struct output *output, bool restored, double seconds);

/* With --verbose, a line for a tensor that is being read. */
void result_tensor(const char *name, enum pici_dtype dtype, const uint64_t *shape, unsigned rank);

/* The line for an output that is made of several inputs, which have so many bytes. */
void result_print(const char *name, uint64_t bytes, const struct output *output, bool restored, double seconds);

/* A line for all outputs together, if there are several operands. */
void results_print(const struct results *results, const struct tool_options *options, bool restored);

#endif
