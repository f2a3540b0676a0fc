/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A cache of chunks for several threads. If several threads want a chunk at a time, one of them makes it. */
#ifndef PICI_TOOLS_MOUNT_CHUNKS_H
#define PICI_TOOLS_MOUNT_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chunk_key {
    size_t file;
    uint64_t tensor, number; /* numbers of the tensor in the file, and of the chunk in the tensor */
    bool swap;
};

/* Make the `size` bytes of a chunk. tell: print the reason of a failure; it is false if an earlier call did. Returns 0
 * or an errno value. */
typedef int chunk_maker(void *context, const struct chunk_key *key, void *bytes, size_t size, bool tell);

struct chunks;

/* most: bytes of chunks to keep. The chunk used last stays at any size, and chunks in use may exceed the limit. NULL:
 * no memory. */
struct chunks *chunks_new(uint64_t most, chunk_maker *make, void *context);

/* Copy `size` bytes at offset `offset` of the chunk, which has chunk_bytes. If memory runs out, drops the other chunks
 * and tries again. Returns 0 or an errno value. */
int chunks_read(struct chunks *, const struct chunk_key *key, size_t chunk_bytes, void *buffer, size_t offset,
                size_t size);

/* The bytes in the cache; the number of chunks made so far. */
uint64_t chunks_kept(struct chunks *);
uint64_t chunks_made(struct chunks *);

void chunks_free(struct chunks *);

#endif
