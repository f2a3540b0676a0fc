/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Makes the tensors of the result of a sequence of deltas, piece by piece. */
#ifndef PICI_LIB_DELTA_APPLY_H
#define PICI_LIB_DELTA_APPLY_H

#include "delta/delta.h"
#include "delta/pieces.h"

struct apply_name {
    const char *name;
    size_t bytes;
    uint64_t index;
};

/* One of the deltas. */
struct step {
    struct pici_reader *reader;
    char *name;
    struct delta delta;
    struct delta_pieces pieces; /* of the current tensor */
    struct few_cursor few;      /* likewise */
    struct apply_name *sorted;  /* [delta.tensors] the result's names in order, if the next step is partial */
};

/* The change of a delta to a tensor: index is the number of the tensor, or of its few changes. */
enum trail_kind { TRAIL_NONE, TRAIL_TENSOR, TRAIL_FEW };
struct trail_step {
    enum trail_kind kind;
    uint64_t index;
};

struct pici_deltas {
    struct step *steps; /* [count] */
    size_t count;
    struct trail_step *trail; /* [count]: of the current tensor */
    size_t layout;            /* step layout - 1 defines the result's tensors; 0: the base does */
};

/* The origin of a tensor of the last result: it is complete in the base or in step `first`. */
struct trail {
    const struct state_tensor *base; /* or NULL */
    size_t first;
    struct pici_tensor_info tensor;
    const struct delta_hashes *earliest, *latest; /* in the first and the last delta that change it, or NULL */
    size_t earliest_step, latest_step;
    bool big_endian; /* of the result */
    bool flat;       /* the base has some or all of its elements, without a shape */
};

struct apply_job;

/* Receives bytes [offset, offset + bytes) of a tensor's result, at job->piece, in the file's form. */
typedef enum pici_status (*apply_take_fn)(struct apply_job *, const struct trail *, uint64_t offset, size_t bytes);

struct apply_job {
    struct pici_apply_opts options;
    struct pici_state *base;
    struct pici_deltas *deltas;
    apply_take_fn take;
    void *context;                                                         /* of take */
    enum pici_status (*columns)(struct apply_job *, const struct trail *); /* makes shards of columns */
    char *reason;
    uint64_t written;
    uint8_t *piece;
    size_t piece_capacity;
    struct piece_hashes pieces[2]; /* of the current part: base, result */
    bool *verified;                /* [base->count] or NULL; of a part: hashed pieces cover all its elements */
    uint64_t *base_hash;           /* [base->count] if the result has the base's tensors, for its identity */
    /* of pici_apply_deltas */
    pici_write_fn write;
    void *write_context;
};

/* Check that the deltas and the base fit together, without reading elements. */
enum pici_status pici_apply_check(struct apply_job *job);

/* Makes all tensors of the result, then checks that the base was right. Frees the job's memory. */
enum pici_status pici_apply_make(struct apply_job *job);

/* Makes room for this many bytes at job->piece. */
enum pici_status pici_apply_room(struct apply_job *job, size_t bytes);

/* The number of tensors in the result, and the origin of one. */
uint64_t pici_apply_tensors(const struct apply_job *job);
enum pici_status pici_apply_trace(struct apply_job *job, uint64_t i, struct trail *trail);

#endif
