/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How many bytes a verb may write. A short file can describe very many elements, and be valid; --max-size, or its
 * default, keeps them from filling a disk. */
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
    bool limited;  /* false: no limit */
    uint64_t most; /* bytes */
    const uint64_t
        *read; /* of a stream, how many bytes have been read: LIMIT_FACTOR times these are allowed; or NULL */
};

/* --max-size, or by default the largest of 1 GiB, LIMIT_FACTOR times the length of the input, and least. */
struct limit limit_of(const struct tool_options *options, uint64_t input_bytes, uint64_t least);

/* The same for a stream, whose length is not known: *read is how many bytes have been read so far. */
struct limit limit_of_stream(const struct tool_options *options, const uint64_t *read);

/* How many bytes the limit allows at this time. UINT64_MAX: any number. */
uint64_t limit_now(const struct limit *);

/* Print that file describes an output longer than the limit. Returns TOOL_BAD. */
int limit_refused(const struct limit *, const char *file, uint64_t claimed);

/* Print that an output has reached the limit; claimed: its full length, 0 if that is not known. Returns TOOL_BAD. */
int limit_reached(const struct limit *, const char *file, uint64_t claimed);

/* Sum up, from the index, the bytes of the head and of the first tensors, at most so many; of tensors that were
 * deflated, the deflated ones. reader is a random-access reader. */
enum pici_status limit_claimed(struct pici_reader *reader, uint64_t tensors, uint64_t *bytes);

#endif
