/* SPDX-License-Identifier: BSD-3-Clause
 *
 * --recursive: replaces folders among the operands by the files in them and below. */
#ifndef PICI_TOOLS_RECURSE_H
#define PICI_TOOLS_RECURSE_H

#include "tool.h"

struct recursed {
    char **args; /* [nargs] */
    int nargs, capacity;
};

/* Make the list of operands. The files of a folder are sorted by name. Skips links, hidden files and folders, and files
 * that the verb does not use: compress uses files with a tensor file's extension, other verbs .pici files. Reports
 * what cannot be read, and lists the rest; returns the worst status. Free the list with recurse_free, also after an
 * error. */
int recurse(struct recursed *, const struct tool_options *, bool compress);

void recurse_free(struct recursed *);

#endif
