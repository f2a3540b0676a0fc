/* SPDX-License-Identifier: BSD-3-Clause
 *
 * An engine does all work on elements, in host memory or in a GPU's memory. It is a complete table of functions: unused
 * ones do nothing and succeed.
 *
 * Functions enqueue work on queues; each queue works in order. Until `ready` reports that all work of a queue has
 * ended, inputs must not change, outputs (including results behind pointers) are invalid, and errors may still appear.
 * A function returns the errors that it finds at once; `ready` returns the others. The host's engine finishes its work
 * before a function returns.
 *
 * Every function may be called with a count of 0, and null pointers then. Blocks are untrusted. */
#ifndef PICI_LIB_COLL_ENGINE_H
#define PICI_LIB_COLL_ENGINE_H

#include "codec/block.h"
#include "pici/coll.h"
#include "values/values.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { COLL_MAX_WINDOW = 64, COLL_TEMP_BYTES = 64 << 10, COLL_ALIGN = 64 };

struct pici_queue; /* an engine's queue: does the work of one slice, in order */

/* The memory that a call needs from an engine. */
struct engine_needs {
    enum pici_dtype dtype;
    enum pici_op op;
    uint64_t slice;                    /* the most elements of a block */
    int blocks;                        /* the most in a message */
    int queues;                        /* slices in flight */
    size_t messages;                   /* bytes for messages, COLL_ALIGN-aligned */
    size_t sums;                       /* bytes for sums, COLL_ALIGN-aligned */
    size_t arrays;                     /* bytes for arrays of a lossy codec, COLL_ALIGN-aligned; 0: there is none */
    const struct values *values;       /* that codec; valid only while room runs */
    size_t temp;                       /* bytes for reduce and dequantize; 0: COLL_TEMP_BYTES */
    unsigned device : 1, checksum : 1; /* messages are in GPU memory; blocks have a checksum */
    void *memory;                      /* the caller's scratch to use instead of the engine's, or NULL */
    size_t memory_bytes;
};

/* The memory that the engine provides. */
struct engine_room {
    uint8_t *messages, *sums, *arrays;
    uint8_t *temp; /* for reduce and dequantize; NULL where the engine has its own */
};

/* How to store received or dequantized elements. */
enum engine_store {
    STORE_PLACE, /* destination = elements */
    STORE_REDUCE /* destination = destination op elements */
};

/* The input of count and encode: the elements of a message's runs, or an array that a lossy codec makes of each run. */
struct engine_array {
    enum pici_dtype dtype;
    enum pici_format format; /* of its blocks; not used by count */
    int by_value;            /* elements are floats, and -0.0 is a zero */
    /* Of format PACKED: the format of a block that would not be shorter than a dense one; PACKED: no other. */
    enum pici_format unpacked;
};

/* How a call stores elements that a lossy codec represents. */
struct engine_values {
    const struct values *values;
    enum pici_op op;
    int by_value; /* -0.0 becomes +0.0, and with `quiet` NaNs become quiet, as in positive_zeros */
    int quiet;
};

struct pici_engine {
    size_t size; /* of this struct: the library and an engine in another one must be of one version */
    const char *name;
    int asynchronous;  /* work may end after a function has returned */
    int packs;         /* it makes and reads packed blocks, in the host's memory */
    double cost_scale; /* time of encoding and decoding as a multiple of the host's in pici_policy_seconds */

    /* Whether the address is in memory of the engine's kind; -1: yes, but on another device; -2: the device does not
     * report it */
    int (*owns)(void *self, const void *address);
    /* enter marks the work in the caller's stream so far (*mark; may be NULL). begin lets all queues wait for it, and
     * frees the mark; with queues == 0 it only frees the mark. */
    enum pici_status (*enter)(void *self, void **mark);
    enum pici_status (*begin)(void *self, void *mark, int queues);
    /* Get memory and queues for a call; reuses the last call's if they are large enough. PICI_E_NOMEM; PICI_E_SPACE:
     * the caller's scratch is too small; PICI_E_UNSUPPORTED. */
    enum pici_status (*room)(void *self, const struct engine_needs *, struct engine_room *, struct pici_queue **queues);
    /* For messages between threads. holds: whether the address is in memory from room other than host memory. move:
     * copy between any two places, and wait for the end; 0: it failed. */
    int (*holds)(void *self, const void *address);
    int (*move)(void *self, void *to, const void *from, size_t bytes);
    int (*halt)(void *self);             /* wait a limited time until all queues are idle; returns 1 if one is not */
    void (*close)(void *self, int leak); /* leak: others may still use messages, so never free these */
    const char *(*error)(void *self);    /* the error message of the last failure, or "" */

    /* If all work of the queue has ended: *done = 1, and returns the worst status since the last time. */
    enum pici_status (*ready)(struct pici_queue *, int *done);

    void (*copy)(struct pici_queue *, void *destination, const void *source, uint64_t count, enum pici_dtype);
    /* destination = source, but +0.0 for -0.0; with `quiet` NaNs become quiet too, so destination = (+0) + source.
     * Integers are copied. destination may be source. */
    void (*positive_zeros)(struct pici_queue *, void *destination, const void *source, uint64_t count, enum pici_dtype,
                           int quiet);

    /* Count the nonzeros of several runs of elements, or of the arrays of each run. source, count and nonzeros list all
     * runs of the first array, then all runs of the next. */
    void (*count)(struct pici_queue *, const void *const *source, const uint64_t *count, int runs,
                  const struct engine_array *, int arrays, uint64_t *nonzeros);

    /* Write the first bytes of a message. Messages are in memory that room provided. */
    void (*prefix)(struct pici_queue *, uint8_t *message, const uint8_t *prefix, size_t bytes);
    /* Encode each run of elements, or each array of each run, as a block. source, count and size are in the order of
     * count's arguments. The blocks follow each other from message + offset on, within capacity bytes of message: all
     * blocks of the first run, then the next run's. Writes their lengths to size. As pici_compress; formats are not
     * AUTO. by_value: sparse blocks do not store -0.0, dense ones may. Packed blocks have one level. */
    enum pici_status (*encode)(struct pici_queue *, uint8_t *message, size_t offset, size_t capacity, size_t *size,
                               const void *const *source, const uint64_t *count, int runs, const struct engine_array *,
                               int arrays, int checksum);
    /* Copy bytes of one message to another. */
    void (*put)(struct pici_queue *, uint8_t *to, const uint8_t *from, size_t bytes);

    /* look makes the prefix of a message, and the headers of its blocks, visible to the host. When the queue is ready,
     * head returns the prefix (i < 0), or the header of block i, at this offset of the message. Both are valid until
     * the queue's next look. */
    void (*look)(struct pici_queue *, const uint8_t *message, size_t bytes, int blocks);
    const uint8_t *(*head)(struct pici_queue *, int i, size_t offset);

    /* Decode a block: parsed is its header, block its bytes in a message. destination has room for parsed->count
     * elements and is part of a result with `output` elements; large results are written with non-temporal stores. */
    enum pici_status (*decode)(struct pici_queue *, void *destination, const uint8_t *block,
                               const struct pici_block *parsed, uint64_t output);

    /* destination = destination op block, for each element; elements that the block does not store are +0. SUM and AVG
     * add. Errors as decode's. temp [temp_elements, at least TILE]: for decoded elements, used by MIN and MAX. */
    enum pici_status (*reduce)(struct pici_queue *, void *destination, const uint8_t *block,
                               const struct pici_block *parsed, enum pici_op, void *temp, uint64_t temp_elements);

    /* Like reduce, for a block that this engine's encode made: count elements, size bytes in a message. */
    enum pici_status (*reduce_own)(struct pici_queue *, void *destination, const uint8_t *block, size_t size,
                                   uint64_t count, enum pici_dtype, enum pici_op, void *temp, uint64_t temp_elements);

    /* A lossy codec's functions, which values/values.h describes. quantize writes arrays; made_counts [VALUES_ARRAYS]
     * is valid at once. quantize adds its losses to *loss when the queue is ready, so *loss must stay valid until then;
     * several calls may share one, with different residuals. dequantize reads untrusted arrays, and writes count
     * elements, or adds them to the destination. temp [temp_bytes, for at least one unit of elements]: for dequantized
     * elements. */
    enum pici_status (*quantize)(struct pici_queue *, const struct values *, const struct values_where *,
                                 void *const outputs[VALUES_ARRAYS], uint64_t made_counts[VALUES_ARRAYS],
                                 const void *source, uint64_t count, struct values_loss *loss);
    enum pici_status (*dequantize)(struct pici_queue *, const struct engine_values *, enum engine_store,
                                   void *destination, uint64_t count, const void *const inputs[VALUES_ARRAYS],
                                   const uint64_t input_counts[VALUES_ARRAYS], void *temp, size_t temp_bytes);

    /* Add the number of tiles of each container in a hybrid block that this rank made or checked. Adds nothing for
     * other blocks, or if messages are not in host memory. Done on return. */
    void (*containers)(struct pici_queue *, uint64_t tiles[PICI_CONTAINERS], const uint8_t *block, size_t size);

    /* destination = destination / ranks, as PICI_AVG divides: a float that becomes zero is +0.0. */
    void (*divide)(struct pici_queue *, void *destination, uint64_t count, enum pici_dtype, int ranks);
};

/* For elements in host memory. pici_engine_host_new makes `self` (NULL: no memory); close frees it. Functions except
 * look and head accept a NULL queue. */
extern const struct pici_engine pici_engine_host;
void *pici_engine_host_new(void);
/* Provide at least this many bytes of scratch memory. On PICI_E_NOMEM the current memory stays. */
enum pici_status pici_engine_host_reserve(void *self, size_t bytes);
size_t pici_engine_host_scratch(const void *self); /* its size */
/* Its kernels for packing: 0 portable, 1 AVX2, 2 AVX-512. */
int pici_engine_host_kernels(void);

#ifdef __cplusplus
}
#endif
#endif
