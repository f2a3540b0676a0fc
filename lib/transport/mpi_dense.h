/* SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI's own collectives, as a transport's dense ones. MPI counts in an int, so that a call of much data is several: in
 * each at most `piece` bytes of all ranks together. */
#ifndef PICI_LIB_TRANSPORT_MPI_DENSE_H
#define PICI_LIB_TRANSPORT_MPI_DENSE_H

#include "pici/mpi.h"
#include "pici/transport.h"

struct mpi_dense {
    MPI_Comm comm;
    int rank, ranks, piece;
    uint8_t *room; /* of reduce-scatter in place or in pieces; grows, and is the owner's to free */
    size_t room_bytes;
};

/* Whether MPI can do it, by what is the same on all ranks, and whether there is the memory. PICI_E_UNSUPPORTED,
 * PICI_E_NOMEM. */
enum pici_status pici_mpi_dense_ready(struct mpi_dense *, enum pici_collective, const void *send, const void *recv,
                                      uint64_t count, enum pici_dtype, enum pici_op);

/* Do it; after the above succeeded. Returns MPI's code. */
int pici_mpi_dense(const struct mpi_dense *, enum pici_collective, const void *send, void *recv, uint64_t count,
                   enum pici_dtype, enum pici_op);

#endif
