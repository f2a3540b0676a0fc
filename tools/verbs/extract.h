/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tensors of a .pici file by their names. */
#ifndef PICI_TOOLS_VERBS_EXTRACT_H
#define PICI_TOOLS_VERBS_EXTRACT_H

#include "tool.h"

/* Write `count` tensors of the file options->args[0] to standard output, one after the other, as extract does. Opens
 * the file once. */
int extract_names(const struct tool_options *options, char *const *names, int count);

#endif
