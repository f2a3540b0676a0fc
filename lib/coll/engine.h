/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the loop over steps does to elements, wherever these are: in the host's memory, or in a GPU's. Memory is the caller's.
 * Every function may be called with n == 0 (and null pointers then). Blocks are untrusted.
 *
 * An engine that is asynchronous (`ready` is not NULL) only begins what it is told, on a lane: a sequence whose work
 * happens in the order in which it was begun. Until ready says that all of a lane's work has ended, what a function reads
 * stays as it is, what it writes is not there, results behind pointers included, and its status is not known: it returns what
 * is wrong at once, and ready the rest. An engine without ready has no lanes (NULL) and has done it all when it returns. */
#ifndef PICI_LIB_COLL_ENGINE_H
#define PICI_LIB_COLL_ENGINE_H

#include "pici/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pici_lane; /* an engine's own */

/* What a call needs of an engine that has memory and lanes of its own. */
struct engine_needs {
    enum pici_dtype dtype;
    enum pici_op op;
    uint64_t slice;                    /* elements of a block at the most */
    int blocks;                        /* in a message at the most */
    int lanes;                         /* at a time */
    size_t messages;                   /* bytes for messages, COLL_ALIGN-aligned */
    size_t sums;                       /* bytes for elements, the same */
    unsigned device : 1, checksum : 1; /* messages are in a GPU's memory; blocks are to have a checksum */
};

struct pici_engine {
    const char *name;

    /* An engine with ready has these; another has memory for whoever asks: 64-byte aligned; NULL if there is none. */
    int (*owns)(void *self, const void *p); /* is it memory of the engine's kind? < 0: it is, but not its own */
    /* Remember what the caller's stream has been given so far, and later have all lanes wait for that. *mark may be NULL
     * then; the second takes it back, with lanes 0 too, which does nothing else. */
    enum pici_status (*enter)(void *self, void **mark);
    enum pici_status (*begin)(void *self, void *mark, int lanes);
    /* Memory and lanes for a call, those of the last one if they are enough. */
    enum pici_status (*room)(void *self, const struct engine_needs *, uint8_t **messages, uint8_t **sums,
                             struct pici_lane **lanes);
    /* For messages between threads: is it in the memory that room gave, and not the host's? Copy from anywhere to anywhere, at
     * once; 0: it did not work. */
    int (*holds)(void *self, const void *p);
    int (*move)(void *self, void *to, const void *from, size_t bytes);
    int (*halt)(void *self);             /* wait for a while until no lane has anything to do; 1: one still has */
    void (*close)(void *self, int leak); /* leak: messages may still be read or written by others: never free these */
    const char *(*error)(void *self);    /* in words, or "" */
    void *(*alloc)(size_t);
    void (*free)(void *, size_t);

    /* Has the lane nothing left to do? If so *done = 1, and the worst status since the last time. */
    enum pici_status (*ready)(struct pici_lane *, int *done);

    void (*copy)(struct pici_lane *, void *dst, const void *src, uint64_t n, enum pici_dtype);

    /* The nonzeros of so many runs of elements. */
    void (*count)(struct pici_lane *, const void *const *src, const uint64_t *n, int runs, enum pici_dtype,
                  uint64_t *nnz);

    /* Messages are bytes at any address that room gave, or any at all where there is no room. The first bytes of one: */
    void (*prefix)(struct pici_lane *, uint8_t *message, const uint8_t *prefix, size_t bytes);
    /* Encode runs of elements as blocks, one behind the other from message + at on, within cap bytes of message; their lengths to len. As
     * pici_compress; format is not AUTO. */
    enum pici_status (*encode)(struct pici_lane *, uint8_t *message, size_t at, size_t cap, size_t *len,
                               const void *const *src, const uint64_t *n, int runs, enum pici_dtype, enum pici_format,
                               int checksum);
    void (*put)(struct pici_lane *, uint8_t *to, const uint8_t *from, size_t bytes); /* from one message to another */

    /* Have the host see what a message of so many bytes begins with, and what its blocks, so many, begin with. Then:
     * the prefix (i < 0), or the header of block i at offset at; all of these in the message. NULL: the host sees messages. */
    void (*look)(struct pici_lane *, const uint8_t *message, size_t bytes, int blocks);
    const uint8_t *(*head)(struct pici_lane *, int i, size_t at);

    /* As pici_decompress; the block must hold n elements of dtype, else PICI_E_CORRUPT. dst is part of an output of so
     * many elements: from some size on it is written past the caches. */
    enum pici_status (*decode)(struct pici_lane *, void *dst, uint64_t n, const void *block, size_t len,
                               enum pici_dtype, uint64_t output);

    /* dst = dst op block, element by element, absent ones being +0; errors as decode's. SUM and AVG add. temp
     * [temp_elements of dtype]: a place for decoded elements, at least TILE; used for MIN and MAX. */
    enum pici_status (*fold)(struct pici_lane *, void *dst, uint64_t n, const void *block, size_t len, enum pici_dtype,
                             enum pici_op, void *temp, uint64_t temp_elements);

    /* Add to tiles those of a block by container; nothing, if it is not a valid hybrid block. At once: the host sees messages. */
    void (*mix)(struct pici_lane *, uint64_t tiles[PICI_CONTAINERS], const void *block, size_t len);

    /* AVG's end: dst = dst / ranks, as the operation says. */
    void (*divide)(struct pici_lane *, void *dst, uint64_t n, enum pici_dtype, int ranks);

    double coding; /* the time that it takes to code, as a part of what pici_policy_seconds says of the host */
};

extern const struct pici_engine pici_engine_host;

/* For libraries with an engine: have it serve the buffers that it owns, from the next call on. The communicator closes it. PICI_E_BROKEN, also while
 * requests are in flight: then it is the caller's still. */
PICI_API enum pici_status pici_comm_engine(struct pici_comm *, const struct pici_engine *, void *self);

#ifdef __cplusplus
}
#endif
#endif
