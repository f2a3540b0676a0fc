/* SPDX-License-Identifier: BSD-3-Clause */
#include "show/inputs.h"

int inputs_print(const struct tool_options *options,
                 int (*one)(const char *path, const struct tool_options *options, void *inputs))
{
    struct inputs printed = {options, {.file = stdout}, false};
    const bool array = options->json && options->nargs > 1;
    int worst = TOOL_OK;
    if (array)
        jsonout_begin(&printed.json, NULL, '[');
    for (int i = 0; i < options->nargs; i++) {
        int status = one(options->args[i], options, &printed);
        worst = status > worst ? status : worst;
        if (!array || !status)
            continue;
        jsonout_begin(&printed.json, NULL, '{');
        jsonout_string(&printed.json, "file", tool_input_name(options->args[i]));
        jsonout_string(&printed.json, "error", tool_last_error());
        jsonout_end(&printed.json, '}');
    }
    if (array)
        jsonout_end(&printed.json, ']');
    return worst;
}

void inputs_next(struct inputs *inputs)
{
    if (inputs->has_printed)
        fputc('\n', stdout);
    inputs->has_printed = true;
}
