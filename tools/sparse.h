/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Zeros of a file as holes, which take no space on the disk. */
#ifndef PICI_TOOLS_SPARSE_H
#define PICI_TOOLS_SPARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bytes of a block, if fd is a regular file that keeps holes: blocks of zeros need not be written. Else 0. The file
 * must be empty; it is made longer to try, and is empty again afterwards. */
unsigned sparse_block(int fd);

/* How many of the len bytes at p, which belong at offset at of the file, are of one kind: either zeros that need not be
 * written (*hole), or bytes to be written. The kind changes only where a block begins. len > 0. */
size_t sparse_run(const uint8_t *p, size_t len, uint64_t at, unsigned block, bool *hole);

#endif
