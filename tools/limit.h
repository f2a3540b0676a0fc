/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How many bytes a verb may make of its input. A short file can truthfully describe very many elements: --max-size, or its
 * default, keeps them from filling a disk. */
#ifndef PICI_TOOLS_LIMIT_H
#define PICI_TOOLS_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "pici/file.h"
#include "tool.h"

enum { LIMIT_FACTOR = 1024 }; /* by default, output bytes for each byte of the input */

/* What every message about a limit ends with. */
#define LIMIT_RAISE "; --max-size BYTES raises it, --max-size none lifts it"

struct input;

struct limit {
    bool is;       /* false: no limit */
    uint64_t most; /* bytes */
    const struct input
        *grows; /* a stream, whose length is not known: the limit also allows LIMIT_FACTOR times what has been
                                  read of it so far. NULL: it does not grow */
};

/* --max-size, or by default the larger of 1 GiB and LIMIT_FACTOR times the input's length. */
struct limit limit_of(const struct tool_options *o, const struct input *in);

/* The same for an input of several files, as many bytes as all of them; never below least by default. */
struct limit limit_of_bytes(const struct tool_options *o, uint64_t input_bytes, uint64_t least);

/* How many bytes are allowed at this time; UINT64_MAX: any number. */
uint64_t limit_now(const struct limit *);

/* Say that what file describes is longer than the limit. Returns TOOL_BAD. */
int limit_refused(const struct limit *, const char *file, uint64_t claimed);

/* Say that an output would become longer than the limit; claimed: its length, or 0 if that is not known. Returns TOOL_BAD. */
int limit_reached(const struct limit *, const char *file, uint64_t claimed);

/* Bytes of the head and of the first tensors, at most so many, of the file that r reads at random, as its index says. */
enum pici_status limit_claimed(struct pici_reader *r, uint64_t tensors, uint64_t *bytes);

#endif
