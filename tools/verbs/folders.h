/* SPDX-License-Identifier: BSD-3-Clause
 *
 * diff and apply of folders of shards. The callbacks handle one shard. */
#ifndef PICI_TOOLS_VERBS_FOLDERS_H
#define PICI_TOOLS_VERBS_FOLDERS_H

#include "output/output.h"
#include "pici/delta_file.h"
#include "tool.h"

/* Write the delta between two states to output. name and bytes: of the new file. Returns an exit status. */
typedef int delta_maker(struct output *output, struct pici_state *from, struct pici_state *to, const char *name,
                        uint64_t bytes, const struct tool_options *);

/* Write the result of a delta to output. name and bytes: of the result. Returns an exit status. */
typedef int delta_applier(struct output *output, struct pici_state *base, struct pici_deltas *, const char *name,
                          uint64_t bytes, const struct tool_options *);

int diff_folders(const struct tool_options *, delta_maker *);
int apply_folders(const struct tool_options *, delta_applier *);

#endif
