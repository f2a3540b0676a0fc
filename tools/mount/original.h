/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Where the bytes of an original file are, for reading them at random: those of its head, and chunks of tensors.
 * Functions return an exit status and print the reason, as those of input.h do. */
#ifndef PICI_TOOLS_MOUNT_ORIGINAL_H
#define PICI_TOOLS_MOUNT_ORIGINAL_H

#include "input/reading.h"

/* The elements of a tensor, and the run of the head that follows them. */
struct original_part {
    uint64_t start, bytes; /* where the elements are in the original */
    size_t head;           /* where the head goes on after them */
    size_t file;           /* what has the elements: a tensor of this file */
    uint64_t tensor;
    uint32_t chunk_elements;
    uint8_t width;
    bool swap; /* they are not in the order of this host */
};

struct original {
    uint8_t *head; /* [head_size] */
    size_t head_size;
    struct original_part *part; /* [parts] in order; the first, without elements, is the head before any tensor */
    size_t parts, capacity;
    uint64_t bytes;
};

/* Read where everything is. Refuses what cannot be read at random: deltas, and tensors that were deflated. shard_file:
 * the number of the file of a shard, for references; that of the file itself is `self`. Free it also after an error. */
int original_open(struct original *, struct reading *, size_t self, size_t (*shard_file)(void *ctx, const char *shard),
                  void *context);

/* The part that has the byte at offset, which is below original->bytes. */
const struct original_part *original_find(const struct original *, uint64_t offset);

void original_free(struct original *);

#endif
