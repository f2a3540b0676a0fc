/* SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI's own collectives, as a transport's dense ones. MPI counts in an int, so a large call becomes several. Each has
 * at most `piece` bytes, all ranks together. */
#ifndef PICI_LIB_TRANSPORT_MPI_DENSE_H
#define PICI_LIB_TRANSPORT_MPI_DENSE_H

#include "pici/mpi.h"
#include "pici/transport.h"

struct mpi_dense {
    MPI_Comm comm;
    int rank, ranks, piece;
    uint8_t *room; /* for reduce-scatter in place or in pieces; grows; the owner frees it */
    size_t room_bytes;
};

/* Whether MPI supports the collective, decided by values that all ranks share, and whether there is enough memory.
 * PICI_E_UNSUPPORTED, PICI_E_NOMEM. */
enum pici_status pici_mpi_dense_ready(struct mpi_dense *, enum pici_collective, const void *send, const void *recv,
                                      uint64_t count, enum pici_dtype, enum pici_op);

/* Run the collective, after pici_mpi_dense_ready succeeded. Returns MPI's code. */
int pici_mpi_dense(const struct mpi_dense *, enum pici_collective, const void *send, void *recv, uint64_t count,
                   enum pici_dtype, enum pici_op);

#endif
