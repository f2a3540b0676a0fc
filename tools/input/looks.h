/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages about unexpected files: what the file seems to be, and what the user can do. */
#ifndef PICI_TOOLS_INPUT_LOOKS_H
#define PICI_TOOLS_INPUT_LOOKS_H

#include "input/input.h"
#include "tool.h"

enum { LOOKS_TEXT = 192 };

/* "looks like an HDF5 file: export its arrays as .npy or raw elements". "" for unknown bytes, and for bytes of the
 * expected type: `taken`, or a .pici file for TYPE_UNSET. head[size]: the first bytes of a stream; a regular file is
 * read instead. Returns buffer. */
const char *looks(struct input *input, const uint8_t *head, size_t size, enum tool_type taken, char buffer[LOOKS_TEXT]);

/* Determine the type of the file at path: by --type, else by its name. If the name is unknown and --dtype is not given:
 * by its first bytes. Else raw. */
int looks_type(struct input *input, const char *path, const struct tool_options *options, enum tool_type *type);

/* Reject a placeholder for a file: a Git LFS pointer, or a server's page. */
int looks_refuse(struct input *input);

/* Like looks, after "; it ", to end a message. */
const char *looks_after(struct input *input, const uint8_t *head, size_t size, enum tool_type taken,
                        char buffer[LOOKS_TEXT]);

#endif
