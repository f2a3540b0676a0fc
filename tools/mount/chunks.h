/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A cache of chunks for several threads. A chunk that several want at a time is made once. */
#ifndef PICI_TOOLS_MOUNT_CHUNKS_H
#define PICI_TOOLS_MOUNT_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chunk_key {
    size_t file;
    uint64_t tensor, number; /* of the tensor in the file, of the chunk in the tensor */
    bool swap;
};

/* Make the size bytes of a chunk. tell: print why it fails; else that has been said. Returns 0 or an errno value. */
typedef int chunk_maker(void *context, const struct chunk_key *key, void *bytes, size_t size, bool tell);

struct chunks;

/* most: bytes of chunks to keep. The one that was used last is kept whatever it has, and those that are being read may
 * need more. NULL: no memory. */
struct chunks *chunks_new(uint64_t most, chunk_maker *make, void *context);

/* Copy the size bytes at offset of the chunk, which has chunk_bytes. Where memory does not suffice, the chunks that are
 * kept are dropped for it. Returns 0 or an errno value. */
int chunks_read(struct chunks *, const struct chunk_key *key, size_t chunk_bytes, void *buffer, size_t offset,
                size_t size);

/* Bytes that are kept, and how many chunks have been made. */
uint64_t chunks_kept(struct chunks *);
uint64_t chunks_made(struct chunks *);

void chunks_free(struct chunks *);

#endif
