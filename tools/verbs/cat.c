/* SPDX-License-Identifier: BSD-3-Clause
 *
 * picitool cat: writes an original, or tensors by name, to standard output, as decompress and extract do. */
#include "folder/folder.h"
#include "tool.h"
#include "verbs/extract.h"

int verb_cat(const struct tool_options *options)
{
    struct tool_options each = *options;
    each.out = "-";
    each.nargs = 1;
    if (options->nargs == 1 && options->range.given)
        return tool_usage(options->args[0], "--range is of one tensor: name it");
    if (options->nargs == 1)
        return verb_decompress(&each);
    if (!folder_is(options->args[0]))
        return extract_names(&each, options->args + 1, options->nargs - 1);
    for (int i = 1; i < options->nargs; i++) { /* each in any of the folder's files */
        each.tensor = options->args[i];
        TRY(verb_extract(&each));
    }
    return TOOL_OK;
}
