/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Files of torch.save before version 1.6, which newer ones still write if they are asked to: five pickles in a row, a
 * number, a version, the machine, the value and the keys of the storages; then each storage, the number of its items
 * in front of it. All numbers are little-endian, also the items. */
#ifndef PICI_TOOLS_PARSE_TORCH_OLD_H
#define PICI_TOOLS_PARSE_TORCH_OLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "parse/zip.h"

/* Whether a file that begins so is one. */
bool torch_old_begins(const uint8_t *first, size_t size);

/* Find the parts of a file of file_bytes bytes, which are read with read_at, as if it were the zip file that a newer
 * torch writes: the entry "old/data.pkl" is the pickle of the value, "old/data/KEY" are the storages. Nothing is
 * unpickled.
 *   out   freed by the caller with zip_free; needs none after false
 * The pickles are at most PICKLE_MAX_BYTES together, and memory is proportional to the file. False, with *error set:
 * not such a file, a storage of which no tensor says what it holds, out of memory, or read_at failed. */
bool torch_old_open(struct zip *out, pici_read_at_fn read_at, void *context, uint64_t file_bytes,
                    struct parse_error *error);

#endif
