/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators over MPI. In libpici_mpi, a library of its own: link with it and with libpici, through mpicc. */
#ifndef PICI_MPI_H
#define PICI_MPI_H

#include <mpi.h>

#include "pici/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Make a communicator over a duplicate of an intracommunicator. Collective; the same status on all ranks.
 *
 * Works under MPI_THREAD_SINGLE: MPI is called by the thread that calls us, and progresses only inside our calls. Ranks
 * that can share memory (MPI_Comm_split_type) share a node. MPI's errors are returned as PICI_E_TRANSPORT, with MPI's
 * words in pici_comm_error; nothing calls MPI_Abort. A peer that died is noticed as far as the MPI library lets its
 * caller live: most end the whole job. One that stalls is PICI_E_TIMEOUT.
 *
 * Messages go to MPI from a GPU's memory (pici_comm_cuda) where MPI says that it takes such addresses, asked by
 * MPIX_Query_cuda_support of Open MPI or MPIX_GPU_query_support of MPICH. Else, and with PICI_MPI_CUDA=0 in the
 * environment, they go by way of pinned memory. PICI_MPI_CUDA=1 hands them over whatever MPI says: one that does not
 * take them crashes.
 *
 * pici_comm_free, before MPI_Finalize, frees the duplicate; that is collective by the book, though neither Open MPI nor
 * MPICH waits in it. After an error, or with requests in flight, the duplicate stays with MPI, and the scratch of
 * messages then in flight is never freed, for MPI may still use it; MPI_Finalize then waits for peers as the MPI
 * library does.
 *
 * PICI_E_ARG: null, no MPI (not initialized, or finalized), an intercommunicator, or on some rank an environment
 * variable that makes no sense. PICI_E_NOMEM, PICI_E_TRANSPORT. PICI_E_IO: the file of PICI_TRACE. */
PICI_API enum pici_status pici_comm_mpi(struct pici_comm **, MPI_Comm);

#ifdef __cplusplus
}
#endif
#endif
