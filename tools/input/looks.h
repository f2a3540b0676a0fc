/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages about unexpected files: what a file looks like, and what to do. */
#ifndef PICI_TOOLS_INPUT_LOOKS_H
#define PICI_TOOLS_INPUT_LOOKS_H

#include "input/input.h"
#include "tool.h"

enum { LOOKS_TEXT = 192 };

/* "looks like an HDF5 file: export its arrays as .npy or raw elements", or "" for unknown bytes, or if they match the
 * expected type: a file of type taken, or a .pici file if that is TYPE_UNSET. head[size]: the first bytes of a stream;
 * of a regular file, this reads them. Returns buffer. */
const char *looks(struct input *input, const uint8_t *head, size_t size, enum tool_type taken, char buffer[LOOKS_TEXT]);

/* The type to read the file at path as: from --type; or its name; or if that is unknown and --dtype is not given, its
 * first bytes; or raw. */
int looks_type(struct input *input, const char *path, const struct tool_options *options, enum tool_type *type);

/* Reject a file in the place of another: a Git LFS pointer, or a server's page. */
int looks_refuse(struct input *input);

/* The same as looks after "; it ", to end a message. */
const char *looks_after(struct input *input, const uint8_t *head, size_t size, enum tool_type taken,
                        char buffer[LOOKS_TEXT]);

#endif
