/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What to say of a file that is not what was expected: what it looks like, and what to do. */
#ifndef PICI_TOOLS_INPUT_LOOKS_H
#define PICI_TOOLS_INPUT_LOOKS_H

#include "input/input.h"
#include "tool.h"

enum { LOOKS_TEXT = 192 };

/* "looks like an HDF5 file: export its arrays as .npy or raw elements", or "" if nothing is known of such bytes, or if
 * they are what the input was taken as: a file of type taken, or a .pici file if that is TYPE_UNSET. head[size]: the
 * first bytes of a stream; those of a regular file are read. Returns buffer. */
const char *looks(struct input *input, const uint8_t *head, size_t size, enum tool_type taken, char buffer[LOOKS_TEXT]);

/* What the file at path is taken as: what --type says; or by its name; or if that is unknown and --dtype is not given,
 * what it looks like; or raw. */
int looks_type(struct input *input, const char *path, const struct tool_options *options, enum tool_type *type);

/* Refuse a file that stands where another should be: a pointer of Git LFS, or the page of a server. */
int looks_refuse(struct input *input);

/* The same as looks after "; it ", to end a message with. */
const char *looks_after(struct input *input, const uint8_t *head, size_t size, enum tool_type taken,
                        char buffer[LOOKS_TEXT]);

#endif
