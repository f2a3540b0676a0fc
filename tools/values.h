/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Parses values of picitool's options. A function that returns an int returns TOOL_OK, or TOOL_USAGE after a message if
 * the value is not valid. */
#ifndef PICI_TOOLS_VALUES_H
#define PICI_TOOLS_VALUES_H

#include "tool.h"

/* The i-th word for an option; NULL after the last. */
const char *value_format_word(int i);
const char *value_dtype_word(int i);
const char *value_type_word(int i);
const char *value_zeros_word(int i);
const char *value_pack_word(int i);
const char *value_machine_word(int i);

bool value_is_format(const char *word);

/* Parse a value. option: its name, without dashes. */
int value_int(const char *option, const char *word, long least, long most, int *result);
int value_bytes(const char *option, const char *text, uint64_t *bytes);

/* Parse the value of the option with this name into its member; value_heatmap sets png or svg. */
int value_format(const char *word, struct tool_options *);
int value_dtype(const char *word, struct tool_options *);
int value_type(const char *word, struct tool_options *);
int value_zeros(const char *word, struct tool_options *);
int value_pack(const char *word, struct tool_options *);
int value_max_size(const char *text, struct tool_options *);
int value_heatmap(const char *value, struct tool_options *);
int value_range(const char *text, struct tool_options *);
int value_sparsity(const char *text, struct tool_options *); /* the list is static */

#endif
