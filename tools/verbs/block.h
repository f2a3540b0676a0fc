/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Checks of a bare block in memory. */
#ifndef PICI_TOOLS_VERBS_BLOCK_H
#define PICI_TOOLS_VERBS_BLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "input/limit.h"

/* Check every rule of the format. Prints the fault of an invalid block and its offset. Returns an exit status. */
int block_check(const char *name, const uint8_t *block, size_t size);

/* The same, and set *info. Rejects a block that decodes to more bytes than the limit, including zeros: 48 bytes may
 * claim 2^60 zeros. */
int block_open(const char *name, const uint8_t *block, size_t size, const struct tool_options *,
               struct pici_info *info);

#endif
