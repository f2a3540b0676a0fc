/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives of sparse vectors: you pass indices and values, and get the result as indices and values. Memory and time
 * grow with the number of nonzeros, not with the length of the dense vector. Guarantees, and when to use them:
 * docs/reference/streams.md.
 *
 * These are the collectives of pici/coll.h, with the same messages. So in one call some ranks may pass streams here,
 * while others make the dense call of the same name. The result has the bits of the dense call, where elements that a
 * stream does not list are +0. The rules of pici/coll.h about calls, errors, requests and options hold here too. */
#ifndef PICI_STREAM_H
#define PICI_STREAM_H

#include "pici/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A vector of n elements, as a list of rows, or dense. A row is `run` consecutive elements: a single element, or a row
 * of an embedding. All ranks pass the same n; run, nnz and index_width may differ. */
struct pici_stream {
    size_t size;         /* PICI_STREAM_INIT */
    uint64_t n;          /* elements of the dense vector; a multiple of run, at most SIZE_MAX / 2 bytes */
    uint64_t run;        /* elements of a row, at least 1 */
    uint64_t nnz;        /* rows in the list */
    const void *indices; /* [nnz] uint32_t or uint64_t, in any order: row i is elements i * run to i * run + run - 1.
                          * The call adds repeated rows, as pici_scatter_add does, for any operation */
    const void *values;  /* [nnz * run] the elements of each row; zeros are allowed. Any alignment, as indices */
    const void *dense;   /* NULL, or [n] elements instead of rows; nnz is then 0 */
    int index_width;     /* bytes of an index: 4 or 8 */
    unsigned reserved;   /* 0 */
};
#define PICI_STREAM_INIT {sizeof(struct pici_stream), 0, 1, 0, NULL, NULL, NULL, 8, 0}

/* The requested form of a result, and its actual form. */
enum pici_stream_form {
    PICI_STREAM_SPARSE = 0, /* rows with any bit set, in ascending order, each once */
    PICI_STREAM_DENSE = 1,  /* all elements */
    PICI_STREAM_SHORTER = 2 /* request only: the form with fewer bytes, including indices; on a tie, sparse */
};

/* A result. You set members marked "in" before the call; the call sets the others when it ends. Memory for arrays comes
 * from `allocate`, or from malloc if that is NULL; then pici_stream_free frees it. Without PICI_OK there are no arrays;
 * the caller must free or reuse the memory that its own `allocate` returned. */
struct pici_stream_out {
    size_t size;                /* in: PICI_STREAM_OUT_INIT */
    enum pici_stream_form want; /* in */
    enum pici_stream_form form; /* SPARSE or DENSE */
    uint64_t n;                 /* elements of the dense result */
    uint64_t run;               /* in: elements of a row, a divisor of n; 0: as in the rank's own stream */
    uint64_t nnz;               /* SPARSE: rows */
    void *indices;              /* SPARSE: [nnz] */
    void *values;               /* SPARSE: [nnz * run] */
    void *dense;                /* DENSE: [n]. in: NULL, or the buffer for the result if want is DENSE. Must not overlap
                                 * a buffer of the input */
    int index_width;            /* in: bytes of an index, 4 or 8; 0: as in the rank's own stream. 8 if indices may need
                                 * more than 4 */
    int owned;                  /* arrays are from malloc */
    /* in: returns memory for one array, aligned for any type, or NULL if there is none. The thread that makes progress
     * on the call calls it once for each array, indices first, never with 0 bytes */
    void *(*allocate)(void *context, size_t bytes);
    void *context; /* in: passed to allocate */
};
#define PICI_STREAM_OUT_INIT                                                                                           \
    {                                                                                                                  \
        sizeof(struct pici_stream_out), PICI_STREAM_SPARSE, PICI_STREAM_SPARSE, 0, 0, 0, NULL, NULL, NULL, 0, 0, NULL, \
            NULL                                                                                                       \
    }

/* Free the arrays of a result that come from malloc, and set all array pointers to NULL. */
PICI_API void pici_stream_free(struct pici_stream_out *);

/* The collectives. They read *in and *out when the call begins. The arrays, *out and all that it points to must stay
 * valid until the call ends. in->n is
 *   all_reduce      the elements of the vector                   out->n is the same
 *   reduce_scatter  ranks times the elements of a part           out->n is the elements of a part, from 0 on
 *   all_gather      the elements of this rank's contribution     out->n is ranks times that
 *   broadcast       the elements of the vector, on all ranks     out->n is the same. Rows are read on the root only
 * MIN and MAX treat elements that a stream does not list as +0, as the dense call does.
 *
 * Options: as for the dense calls, but: values (lossy codecs) is PICI_E_UNSUPPORTED; native has no effect on a call
 * with a stream; scratch is ignored. Messages are sparse, in the shorter of the formats coo and hybrid unless `format`
 * selects one. If a rank is dense, messages may be dense too.
 * Errors, in addition to the dense calls':
 *   PICI_E_ARG    here, before anything is sent: in or out is NULL, or a size in one is too small
 *   PICI_E_UNSUPPORTED   likewise: a later version's member in one of them is not zero
 *   on all ranks, naming the rank that passed it:
 *   PICI_E_ARG    an index is not below n / run, or n is not a multiple of run or out->run. index_width is not 4 or 8.
 *                 An array is null, or want is invalid. in->nnz is above 0 with in->dense. out->dense overlaps an array
 *                 of in
 *   PICI_E_PEER   ranks pass different n
 *   PICI_E_NOMEM  an allocation failed, or allocate returned NULL. A rank without memory for messages fails at once.
 *                 Its peers notice: over threads and sockets with this status, over MPI with PICI_E_TIMEOUT
 *   PICI_E_UNSUPPORTED   the communicator carries only messages in GPU memory (NCCL) */
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

/* The same, nonblocking, as the _start functions of pici/coll.h. Arrays, including indices, must not change until the
 * request ends. */
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
