/* SPDX-License-Identifier: BSD-3-Clause
 *
 * An engine does what the loop over steps wants done to elements, wherever these are: in the host's memory, or in a
 * GPU's. A table has every function; what an engine has no use for does nothing and succeeds.
 *
 * Work happens on lanes: what is begun on one lane happens in the order in which it was begun. Until `ready` says that all
 * of a lane's work has ended, inputs must stay as they are, outputs (results behind pointers included) are not there, and
 * the status is not known: a function returns what is wrong at once, and ready returns the rest. The host's engine has done
 * everything when a function returns.
 *
 * Every function may be called with n == 0, and null pointers then. Blocks are untrusted. */
#ifndef PICI_LIB_COLL_ENGINE_H
#define PICI_LIB_COLL_ENGINE_H

#include "codec/block.h"
#include "pici/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { COLL_MAX_WINDOW = 64, COLL_TEMP_BYTES = 64 << 10, COLL_ALIGN = 64 };

struct pici_lane; /* an engine's own */

/* What a call needs of an engine's memory. */
struct engine_needs {
    enum pici_dtype dtype;
    enum pici_op op;
    uint64_t slice;                    /* elements of a block at the most */
    int blocks;                        /* in a message at the most */
    int lanes;                         /* at a time */
    size_t messages;                   /* bytes for messages, COLL_ALIGN-aligned */
    size_t sums;                       /* bytes for elements, the same */
    unsigned device : 1, checksum : 1; /* messages are in a GPU's memory; blocks are to have a checksum */
    void *memory;                      /* the caller's scratch, to be used instead of the engine's, or NULL */
    size_t memory_bytes;
};

/* What it gives. */
struct engine_room {
    uint8_t *messages, *sums;
    uint8_t *temp; /* COLL_TEMP_BYTES for fold; NULL where the engine has its own */
};

struct pici_engine {
    size_t size; /* of this struct: the library and an engine in another one must be of one version */
    const char *name;
    int asynchronous;  /* work may end after a function has returned */
    double cost_scale; /* seconds of coding, as a multiple of what pici_policy_seconds says of the host */

    int (*owns)(void *self, const void *p); /* is it memory of the engine's kind? < 0: it is, but not its own */
    /* Remember what the caller's stream has been given so far, and later have all lanes wait for that. *mark may be NULL
     * then; the second takes it back, with lanes 0 too, which does nothing else. */
    enum pici_status (*enter)(void *self, void **mark);
    enum pici_status (*begin)(void *self, void *mark, int lanes);
    /* Memory and lanes for a call; those of the last call are used again if they are large enough. PICI_E_NOMEM;
     * PICI_E_SPACE: the caller's scratch is too small; PICI_E_UNSUPPORTED. */
    enum pici_status (*room)(void *self, const struct engine_needs *, struct engine_room *, struct pici_lane **lanes);
    /* For messages between threads: is p in memory that room gave and that is not the host's? Copy from anywhere to
     * anywhere and wait for it; 0: it did not work. */
    int (*holds)(void *self, const void *p);
    int (*move)(void *self, void *to, const void *from, size_t bytes);
    int (*halt)(void *self);             /* wait for a while until no lane has anything to do; 1: one still has */
    void (*close)(void *self, int leak); /* leak: messages may still be read or written by others: never free these */
    const char *(*error)(void *self);    /* the last failure in words, or "" */

    /* Has all of the lane's work ended? If so *done = 1, and the worst status since the last time. */
    enum pici_status (*ready)(struct pici_lane *, int *done);

    void (*copy)(struct pici_lane *, void *dst, const void *src, uint64_t n, enum pici_dtype);

    /* The nonzeros of so many runs of elements. */
    void (*count)(struct pici_lane *, const void *const *src, const uint64_t *n, int runs, enum pici_dtype,
                  uint64_t *nnz);

    /* Write the first bytes of a message. Messages lie in memory that room gave. */
    void (*prefix)(struct pici_lane *, uint8_t *message, const uint8_t *prefix, size_t bytes);
    /* Encode runs of elements as blocks, one behind the other from message + at on, within cap bytes of message; their
     * lengths to len. As pici_compress; format is not AUTO. */
    enum pici_status (*encode)(struct pici_lane *, uint8_t *message, size_t at, size_t cap, size_t *len,
                               const void *const *src, const uint64_t *n, int runs, enum pici_dtype, enum pici_format,
                               int checksum);
    /* Copy bytes of one message to another. */
    void (*put)(struct pici_lane *, uint8_t *to, const uint8_t *from, size_t bytes);

    /* Let the host see the prefix of a message of so many bytes, and the headers of its blocks, so many. Then: the prefix
     * (i < 0), or the header of block i at offset `at` of the message; both until the lane's next look. */
    void (*look)(struct pici_lane *, const uint8_t *message, size_t bytes, int blocks);
    const uint8_t *(*head)(struct pici_lane *, int i, size_t at);

    /* Decode a whole block: b is its header, parsed, and block where its bytes are, in a message. dst has room for b->count
     * elements and is part of an output of so many elements; large outputs are written with non-temporal stores. */
    enum pici_status (*decode)(struct pici_lane *, void *dst, const uint8_t *block, const struct pici_block *b,
                               uint64_t output);

    /* dst = dst op block, element by element; elements that the block does not store are +0. Errors as decode's. SUM and AVG
     * add. temp [temp_elements]: room for decoded elements, at least TILE; used for MIN and MAX. */
    enum pici_status (*fold)(struct pici_lane *, void *dst, const uint8_t *block, const struct pici_block *b,
                             enum pici_op, void *temp, uint64_t temp_elements);

    /* Add the number of tiles of each container in a hybrid block that this rank has made or checked; of other blocks, or
     * where the host does not see messages: nothing. Done on return. */
    void (*containers)(struct pici_lane *, uint64_t tiles[PICI_CONTAINERS], const uint8_t *block, size_t len);

    /* AVG's end: dst = dst / ranks, as the operation says. */
    void (*divide)(struct pici_lane *, void *dst, uint64_t n, enum pici_dtype, int ranks);
};

/* For elements in the host's memory. `self` is made by pici_engine_host_new (NULL: no memory) and ended by close. Functions
 * that take a lane and no self may be called with a NULL lane, but for look and head. */
extern const struct pici_engine pici_engine_host;
void *pici_engine_host_new(void);
/* Make sure of scratch memory of so many bytes. PICI_E_NOMEM leaves what there is. */
enum pici_status pici_engine_host_reserve(void *self, size_t bytes);
size_t pici_engine_host_scratch(const void *self); /* how much there is */

/* For libraries with an engine: have it serve the buffers that it owns, from the next call on. The communicator closes it.
 * PICI_E_BROKEN, also while requests are in flight, and PICI_E_UNSUPPORTED (another version's table): then the engine
 * still is the caller's. */
PICI_API enum pici_status pici_comm_engine(struct pici_comm *, const struct pici_engine *, void *self);

#ifdef __cplusplus
}
#endif
#endif
