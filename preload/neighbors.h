/* SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI_Neighbor_allgather and MPI_Neighbor_allgatherv. */
#ifndef PICI_PRELOAD_NEIGHBORS_H
#define PICI_PRELOAD_NEIGHBORS_H

#include <stddef.h>

#include "preload/call.h"
#include "preload/state.h"

/* A call on this rank, in elements of one dtype for all ranks. */
struct exchange {
    size_t sent, received;    /* bytes that this rank contributes; bytes from each source, unless counts differ */
    size_t total;             /* bytes from all sources */
    size_t send_width, width; /* of the basic types, 0 without data; of the elements of the call */
    int sends_plain, receives_plain;       /* contiguous in memory */
    const void *send;                      /* pici's send buffer */
    uint8_t *recv;                         /* pici's receive buffer */
    uint8_t *send_buffer, *receive_buffer; /* memory of this call for these, or NULL */
    uint64_t *counts, *offsets; /* [sources] of MPI_Neighbor_allgatherv: of each slot, in bytes, then in elements */
    uint64_t longest;           /* bytes of the longest contribution; the same on all ranks */
    int refused;                /* this rank cannot take part */
};

/* Decide whether a call on an intracommunicator is ours. The ranks agree on each call that seems to be. Their counts
 * and types may differ, and a rank that cannot take part must report it before the others wait for its messages. Makes
 * pici's communicator and its plan when they are due. OURS: *exchange is for pmpi_neighbors_begin. *rc: MPI's code, if
 * MPI has failed. */
enum reason pmpi_neighbors_decide(const struct call *, struct state *, struct exchange *exchange, int *rc);

/* Make the call, or begin it if request is not NULL. When it has ended with a status, or could not begin,
 * pmpi_neighbors_end finishes it, and frees the memory of *exchange. *failure: the error, if it was not pici's. */
enum pici_status pmpi_neighbors_begin(const struct call *, struct state *, const struct exchange *exchange,
                                      const struct pici_coll_opts *, struct pici_request **request);
enum pici_status pmpi_neighbors_end(const struct call *, struct state *, struct exchange *exchange, enum pici_status,
                                    const char **failure);

#endif
