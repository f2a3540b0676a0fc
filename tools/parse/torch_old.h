/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Files of torch.save before version 1.6, which newer versions still write on request. They have five pickles in a row:
 * a number, a version, the machine, the value, and the keys of the storages. The storages follow, each after the count
 * of its items. All numbers and items are little-endian. */
#ifndef PICI_TOOLS_PARSE_TORCH_OLD_H
#define PICI_TOOLS_PARSE_TORCH_OLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "parse/zip.h"

/* Whether a file with these first bytes is one. */
bool torch_old_begins(const uint8_t *first, size_t size);

/* Find the parts of a file of file_bytes bytes, as if it were the zip file that a newer torch writes. The entry
 * "old/data.pkl" is the pickle of the value, "old/data/KEY" are the storages. Reads with read_at. Unpickles nothing.
 *   out   the caller frees it with zip_free, unless the result is false
 * The pickles are at most PICKLE_MAX_BYTES together, and memory is proportional to the file. False, with *error set:
 * not such a file, no tensor gives the type of a storage, memory ran out, or read_at failed. */
bool torch_old_open(struct zip *out, pici_read_at_fn read_at, void *context, uint64_t file_bytes,
                    struct parse_error *error);

#endif
