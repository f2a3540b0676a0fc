/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives of sparse vectors: indices and values go in, and the result comes out as indices and values. Memory and
 * time follow the number of nonzero elements; nothing is as long as the dense vector. Guarantees, and when to use
 * them: docs/reference/streams.md.
 *
 * These are the collectives of pici/coll.h. The messages are the same, so in one call some ranks may pass streams here
 * while others make the dense call of the same name with dense buffers; and the result has the bits of the dense call
 * on the dense vectors, in which what a stream does not list is +0. What pici/coll.h says of calls, errors, requests
 * and options holds here too. */
#ifndef PICI_STREAM_H
#define PICI_STREAM_H

#include "pici/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A vector of n elements, as the rows of it that are listed, or dense. A row is `run` consecutive elements: one, or as
 * many as a row of an embedding has. All ranks pass the same n; run, nnz and index_width may differ. */
struct pici_stream {
    size_t size;         /* PICI_STREAM_INIT */
    uint64_t n;          /* elements of the dense vector; a multiple of run, and as bytes at most SIZE_MAX / 2 */
    uint64_t run;        /* elements of a row, at least 1 */
    uint64_t nnz;        /* rows that are listed */
    const void *indices; /* [nnz] uint32_t or uint64_t: row i is elements i * run to i * run + run - 1. In any order. A
                          * row that is listed again is added to what was listed before, as pici_scatter_add adds,
                          * whatever the operation of the call */
    const void *values;  /* [nnz * run] the elements of each row; zeros are allowed. Any alignment, as indices */
    const void *dense;   /* [n] instead of all rows, or NULL. If not NULL, nnz is 0 */
    int index_width;     /* bytes of an index: 4 or 8 */
    unsigned reserved;   /* 0 */
};
#define PICI_STREAM_INIT {sizeof(struct pici_stream), 0, 1, 0, NULL, NULL, NULL, 8, 0}

/* What form a result is to have, and has. */
enum pici_stream_form {
    PICI_STREAM_SPARSE = 0, /* rows: those that have an element of which any bit is set, in rising order, each once */
    PICI_STREAM_DENSE = 1,  /* all elements */
    PICI_STREAM_SHORTER = 2 /* asked for: the one with fewer bytes, indices included; of equals, sparse */
};

/* A result. Members marked "in" are set before the call, the others when it ends. Memory for arrays comes from
 * `allocate`, or if that is NULL from malloc; then pici_stream_free frees it. Without PICI_OK there are no arrays; the
 * caller must free or use again what its own `allocate` returned. */
struct pici_stream_out {
    size_t size;                /* in: PICI_STREAM_OUT_INIT */
    enum pici_stream_form want; /* in */
    enum pici_stream_form form; /* SPARSE or DENSE */
    uint64_t n;                 /* elements of the dense result */
    uint64_t run;               /* in: elements of a row, of which n is a multiple; 0: as the rank's own stream has */
    uint64_t nnz;               /* SPARSE: rows */
    void *indices;              /* SPARSE: [nnz] */
    void *values;               /* SPARSE: [nnz * run] */
    void *dense;                /* DENSE: [n]. in: where it is to be, if want is DENSE, or NULL. Must not overlap a
                                 * buffer of the input */
    int index_width;            /* in: bytes of an index, 4 or 8; 0: as the rank's own stream has. It is 8 instead if an
                                 * index may have more than 4 */
    int owned;                  /* arrays are from malloc */
    /* in: memory for one array, aligned for any type; NULL: there is none. Is called by the thread that makes progress
     * on the call, once for each array, the indices first; never with 0 bytes */
    void *(*allocate)(void *context, size_t bytes);
    void *context; /* in: for allocate */
};
#define PICI_STREAM_OUT_INIT                                                                                           \
    {                                                                                                                  \
        sizeof(struct pici_stream_out), PICI_STREAM_SPARSE, PICI_STREAM_SPARSE, 0, 0, 0, NULL, NULL, NULL, 0, 0, NULL, \
            NULL                                                                                                       \
    }

/* Free the arrays of a result that are from malloc, and forget all arrays. */
PICI_API void pici_stream_free(struct pici_stream_out *);

/* The collectives. *in and *out are read when the call begins; the arrays, *out and what it points to must stay until
 * the call ends. in->n is
 *   all_reduce      the elements of the vector                   out->n is the same
 *   reduce_scatter  ranks times those of a rank's part           out->n is that of a part; its first element is 0
 *   all_gather      the elements of this rank's contribution     out->n is ranks times that
 *   broadcast       the elements of the vector, on all ranks     out->n is the same. Rows are read on the root only
 * MIN and MAX take an element that a stream does not list for +0, as the dense call does.
 *
 * Options: as of the dense calls, but: values (lossy codecs) is PICI_E_UNSUPPORTED; native has no effect on a call with
 * a stream; scratch is not used. Messages are sparse, in the shorter of the formats coo and hybrid unless `format` says
 * one of them; in a call where a rank is dense they may be dense, too.
 * Errors, besides those of the dense calls:
 *   PICI_E_ARG    here, before anything is sent: in or out is NULL, or a size in one is too small
 *   PICI_E_UNSUPPORTED   likewise: a later version's member in one of them is not zero
 *   on all ranks, naming the rank that passed it:
 *   PICI_E_ARG    an index is not below n / run; n is not a multiple of run (of out->run); index_width is not 4 or 8;
 *                 a null array; want is none; in->nnz is above 0 with in->dense; out->dense overlaps an array of in
 *   PICI_E_PEER   ranks pass different n
 *   PICI_E_NOMEM  an allocation failed, or allocate returned NULL. Without memory for messages a rank gives up at once
 *                 and its peers find it gone, by threads and sockets with this status, by MPI with PICI_E_TIMEOUT
 *   PICI_E_UNSUPPORTED   the communicator carries messages in GPUs' memory only (NCCL) */
PICI_API enum pici_status pici_all_reduce_stream(const struct pici_stream *in, struct pici_stream_out *out,
                                                 enum pici_dtype, enum pici_op, struct pici_comm *,
                                                 const struct pici_coll_opts *);
PICI_API enum pici_status pici_reduce_scatter_stream(const struct pici_stream *in, struct pici_stream_out *out,
                                                     enum pici_dtype, enum pici_op, struct pici_comm *,
                                                     const struct pici_coll_opts *);
PICI_API enum pici_status pici_all_gather_stream(const struct pici_stream *in, struct pici_stream_out *out,
                                                 enum pici_dtype, struct pici_comm *, const struct pici_coll_opts *);
PICI_API enum pici_status pici_broadcast_stream(const struct pici_stream *in, struct pici_stream_out *out,
                                                enum pici_dtype, int root, struct pici_comm *,
                                                const struct pici_coll_opts *);

/* The same, nonblocking, as the _start functions of pici/coll.h. The arrays are read until the request ends, the
 * indices too. */
PICI_API enum pici_status pici_all_reduce_stream_start(const struct pici_stream *in, struct pici_stream_out *out,
                                                       enum pici_dtype, enum pici_op, struct pici_comm *,
                                                       const struct pici_coll_opts *, struct pici_request **request);
PICI_API enum pici_status pici_reduce_scatter_stream_start(const struct pici_stream *in, struct pici_stream_out *out,
                                                           enum pici_dtype, enum pici_op, struct pici_comm *,
                                                           const struct pici_coll_opts *,
                                                           struct pici_request **request);
PICI_API enum pici_status pici_all_gather_stream_start(const struct pici_stream *in, struct pici_stream_out *out,
                                                       enum pici_dtype, struct pici_comm *,
                                                       const struct pici_coll_opts *, struct pici_request **request);
PICI_API enum pici_status pici_broadcast_stream_start(const struct pici_stream *in, struct pici_stream_out *out,
                                                      enum pici_dtype, int root, struct pici_comm *,
                                                      const struct pici_coll_opts *, struct pici_request **request);

#ifdef __cplusplus
}
#endif
#endif
