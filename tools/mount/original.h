/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Maps the bytes of an original file, for random access, to its head and to chunks of tensors. Functions return an exit
 * status and print the reason, as in input.h. */
#ifndef PICI_TOOLS_MOUNT_ORIGINAL_H
#define PICI_TOOLS_MOUNT_ORIGINAL_H

#include "input/reading.h"

/* The elements of a tensor, and the run of the head that follows them. */
struct original_part {
    uint64_t start, bytes; /* position and length of the elements in the original */
    size_t head;           /* position in the head after them */
    size_t file;           /* file and tensor that have the elements */
    uint64_t tensor;
    uint32_t chunk_elements;
    uint8_t width;
    bool swap; /* the original's byte order differs from the host's */
};

struct original {
    uint8_t *head; /* [head_size] */
    size_t head_size;
    struct original_part *part; /* [parts] in order; the first has no elements: it is the head before any tensor */
    size_t parts, capacity;
    uint64_t bytes;
};

/* Build the map. Rejects files without random access: deltas, and tensors that the original deflates. self: the number
 * of this file. shard_file: returns the number of a shard's file, for references. Free the map also after an error. */
int original_open(struct original *, struct reading *, size_t self, size_t (*shard_file)(void *ctx, const char *shard),
                  void *context);

/* The part that has the byte at `offset` < original->bytes. */
const struct original_part *original_find(const struct original *, uint64_t offset);

void original_free(struct original *);

#endif
