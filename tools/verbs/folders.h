/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What diff and apply do with folders of shards. Each is given how it does one of them. */
#ifndef PICI_TOOLS_VERBS_FOLDERS_H
#define PICI_TOOLS_VERBS_FOLDERS_H

#include "output/output.h"
#include "pici/delta_file.h"
#include "tool.h"

/* Write the delta from one state to another, a file of that name and length, to output. Returns an exit status. */
typedef int delta_maker(struct output *output, struct pici_state *from, struct pici_state *to, const char *name,
                        uint64_t bytes, const struct tool_options *);

/* Write the result of a delta, a file of that name and length, to output. The same. */
typedef int delta_applier(struct output *output, struct pici_state *base, struct pici_deltas *, const char *name,
                          uint64_t bytes, const struct tool_options *);

int diff_folders(const struct tool_options *, delta_maker *);
int apply_folders(const struct tool_options *, delta_applier *);

#endif
