/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls with lists of elements. Instead of addresses of elements, their engine gets pieces: the elements of a slice of
 * a segment, as a list, or dense where that is cheaper. */
#ifndef PICI_LIB_COLL_ENGINE_STREAM_H
#define PICI_LIB_COLL_ENGINE_STREAM_H

#include "codec/list.h"
#include "coll/layout.h"
#include "pici/stream.h"

enum stream_kind {
    PIECE_LIST,
    PIECE_DENSE, /* in memory that the piece owns, or in the caller's result */
    PIECE_SENT   /* of the caller's input */
};

struct stream_piece {
    enum stream_kind kind;
    uint64_t first, count; /* SENT: elements of the input; else only count, of its elements */
    struct pici_list list;
    uint8_t *dense; /* elements, or room for them, or NULL */
    uint64_t room;  /* elements that fit in memory that the piece owns; 0: the caller's, or none */
    int counted;    /* nonzeros, the number of elements with a bit set, is known */
    uint64_t nonzeros;
};

/* The pieces of a call, and the bytes of an element. */
struct stream_pieces {
    size_t count, width;
    struct stream_piece piece[];
};

/* The caller's vector, in ascending order and without repetitions. */
struct stream_input {
    uint64_t n, run, rows;
    const void *indices;
    int index_width;
    const uint8_t *values, *dense;
    void *sorted; /* NULL, or the memory of indices and values */
};

struct stream_call {
    struct stream_input input;
    struct pici_stream_out *out;
    uint64_t run;     /* of the result */
    int index_width;  /* of the result */
    uint8_t *dense;   /* the result, if the caller wants it dense; or NULL */
    uint64_t base;    /* the element with number 0 in the result */
    uint64_t slices;  /* of a segment */
    int segments;     /* of the layout */
    int sums;         /* slots of a run */
    uint64_t most;    /* entries that a block may have */
    size_t longest;   /* bytes that one may have; 0: any */
    float threshold;  /* sparsity up to which a slice is dense */
    unsigned formats; /* bits 1 << format: formats for sending lists */
    size_t width;
    struct stream_piece *sent, *slots, *results; /* [window * segments], [window * sums], [segments * slices] */
    struct stream_piece nothing;
    struct stream_pieces *pieces;
    void *engine_self;
    struct pici_stream in;
    void *given;   /* out's dense, as the caller set it */
    int odd;       /* n is not the multiple that it must be */
    int no_memory; /* this rank's error is a failed allocation */
    int lent;      /* this struct is a blocking caller's, who keeps it */
};

/* Check a rank's arguments, and sort its rows. Returns an error message, which may be in `explanation` [bytes], or
 * NULL. *no_memory: out: an allocation failed. */
const char *pici_stream_take(struct stream_input *, const struct pici_stream *, enum pici_dtype, int *no_memory,
                             char *explanation, size_t bytes);

/* Only for input without a dense vector: returns the listed values of elements [first, first + *count), and sets *count
 * to their number. */
const uint8_t *pici_stream_values(const struct stream_input *, uint64_t first, uint64_t *count, size_t width);

/* Elements [first, first + count) of the input, count <= 2^32. Returns them dense, or NULL and a list that owns
 * nothing; its positions go to *positions, up to that list's room. NULL and no values: no memory. */
const uint8_t *pici_stream_view(struct pici_list *view, struct pici_list *positions, const struct stream_input *,
                                uint64_t first, uint64_t count, size_t width);

/* The engine, and its state. Its close ignores NULL. */
extern const struct pici_engine pici_engine_stream;
void *pici_engine_stream_new(struct stream_call *, void *host_self);

/* Make the result when all pieces are complete. May return PICI_E_NOMEM. */
enum pici_status pici_stream_finish(struct stream_call *, const struct pici_comm *, const struct coll_call *);

/* Free everything of a call except its result; if the call failed, that too. NULL is ignored. */
void pici_stream_close(struct stream_call *, struct pici_comm *, enum pici_status);

/* Pieces without elements; NULL: no memory. The communicator keeps the pieces of the last call. */
struct stream_pieces *pici_stream_pieces_new(struct pici_comm *, size_t count, size_t width);
void pici_stream_pieces_free(struct stream_pieces *);

#endif
