/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Finds the zeros of a file that can become holes, which take no space on the disk. */
#ifndef PICI_TOOLS_OUTPUT_SPARSE_H
#define PICI_TOOLS_OUTPUT_SPARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sets the length of a file, with a hole if it gets longer. Returns 0 or errno. */
int sparse_resize(int fd, uint64_t bytes);

/* The length of a block in bytes if fd is a regular file on a file system that keeps holes, else 0. The file must be
 * empty; it is made longer for a test, and is empty again afterwards. If not 0, the caller sets the file's length at
 * the end. */
unsigned sparse_block(int fd);

/* The length of the run at the start of the size bytes at bytes, size > 0, which belong at offset of the file.
 * Either all of it is zero and need not be written (*hole), or it is to be written. Runs meet where a block begins. */
size_t sparse_run(const uint8_t *bytes, size_t size, uint64_t offset, unsigned block, bool *hole);

#endif
