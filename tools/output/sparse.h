/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Finds zeros in a file that can become holes, which take no disk space. */
#ifndef PICI_TOOLS_OUTPUT_SPARSE_H
#define PICI_TOOLS_OUTPUT_SPARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sets the length of a file; a longer file ends in a hole. Returns 0 or errno. */
int sparse_resize(int fd, uint64_t bytes);

/* The length of a block in bytes, or 0 if fd is not a regular file on a file system with holes. The file must be empty;
 * the function lengthens it for a test, and truncates it again. If not 0, the caller sets the file's length at the
 * end. */
unsigned sparse_block(int fd);

/* The length of the first run of `bytes`, which belong at `offset` of the file; size > 0. *hole: the run is zero and
 * need not be written. Runs meet at block boundaries. */
size_t sparse_run(const uint8_t *bytes, size_t size, uint64_t offset, unsigned block, bool *hole);

#endif
