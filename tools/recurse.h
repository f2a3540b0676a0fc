/* SPDX-License-Identifier: BSD-3-Clause
 *
 * --recursive: operands in which folders are replaced by the files in them and below. */
#ifndef PICI_TOOLS_RECURSE_H
#define PICI_TOOLS_RECURSE_H

#include "tool.h"

struct recursed {
    char **args; /* [nargs] */
    int nargs, capacity;
};

/* Make the list of operands, of the files in each folder in the order of their names. Left out are links, folders and
 * files whose names begin with a dot, and files that the verb has no use for: of compress, those without the extension
 * of a file of tensors, and of others, those without that of a .pici file. Free it with recurse_free, also after an
 * error. */
int recurse(struct recursed *, const struct tool_options *, bool compress);

void recurse_free(struct recursed *);

#endif
