/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Limits the bytes that a verb may write. A short valid file can describe a huge number of elements; --max-size, or
 * its default, keeps them from filling a disk. */
#ifndef PICI_TOOLS_INPUT_LIMIT_H
#define PICI_TOOLS_INPUT_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "pici/file.h"
#include "tool.h"

enum { LIMIT_FACTOR = 1024 }; /* by default, output bytes for each byte of the input */

/* The end of every message about a limit. */
#define LIMIT_RAISE "; --max-size BYTES raises it, --max-size none lifts it"

struct limit {
    bool limited;         /* false: no limit */
    uint64_t most;        /* bytes */
    const uint64_t *read; /* of a stream: bytes read so far, which allow LIMIT_FACTOR times as many; or NULL */
};

/* --max-size; by default the largest of 1 GiB, LIMIT_FACTOR times the input's length, and `least`. */
struct limit limit_of(const struct tool_options *options, uint64_t input_bytes, uint64_t least);

/* The same for a stream of unknown length. *read: the bytes read so far. */
struct limit limit_of_stream(const struct tool_options *options, const uint64_t *read);

/* The bytes that the limit allows now. UINT64_MAX: unlimited. */
uint64_t limit_now(const struct limit *);

/* Print that file describes an output longer than the limit. Returns TOOL_BAD. */
int limit_refused(const struct limit *, const char *file, uint64_t claimed);

/* Print that an output has reached the limit; claimed: its full length, 0 if that is not known. Returns TOOL_BAD. */
int limit_reached(const struct limit *, const char *file, uint64_t claimed);

/* Add up the bytes of the head and of the first `tensors` tensors, from the index. Tensors that the original deflates
 * count deflated. reader: a random-access reader. */
enum pici_status limit_claimed(struct pici_reader *reader, uint64_t tensors, uint64_t *bytes);

#endif
