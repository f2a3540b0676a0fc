/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Values of picitool's options, from words of the command line. A function that returns an int prints what is wrong,
 * and returns TOOL_USAGE if the value is not valid; else TOOL_OK. */
#ifndef PICI_TOOLS_VALUES_H
#define PICI_TOOLS_VALUES_H

#include "tool.h"

/* The i-th word that an option takes; NULL after the last. */
const char *value_format_word(int i);
const char *value_dtype_word(int i);
const char *value_type_word(int i);
const char *value_zeros_word(int i);
const char *value_pack_word(int i);
const char *value_machine_word(int i);

bool value_is_format(const char *word);

/* The value of an option, without its dashes. */
int value_int(const char *option, const char *word, long least, long most, int *result);
int value_bytes(const char *option, const char *text, uint64_t *bytes);

/* The value of the option of this name, into the member of this name; of heatmap, into png or svg. */
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
