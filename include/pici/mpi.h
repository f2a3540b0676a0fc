/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators over MPI. They are in a library of their own: link with libpici_mpi and libpici, through mpicc. */
#ifndef PICI_MPI_H
#define PICI_MPI_H

#include <mpi.h>

#include "pici/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Make a communicator over a duplicate of an intracommunicator. Collective; all ranks return the same status.
 *
 * MPI_THREAD_SINGLE is enough: only the thread that calls the library calls MPI, and messages progress only inside the
 * library's calls. Ranks that can share memory (MPI_Comm_split_type) share a node. An error of MPI is returned as
 * PICI_E_TRANSPORT, with MPI's words in pici_comm_error; the library never calls MPI_Abort. Most MPI libraries end the
 * whole job when a process dies; the library returns an error if MPI lets it live. A peer that stalls is
 * PICI_E_TIMEOUT.
 *
 * Messages in a GPU's memory (pici_comm_cuda) are passed to MPI as they are if MPI says that it takes such addresses:
 * MPIX_Query_cuda_support of Open MPI, MPIX_GPU_query_support of MPICH. If it does not, or with PICI_MPI_CUDA=0 in the
 * environment, they are copied through pinned memory. With PICI_MPI_CUDA=1 they are passed to MPI whatever it says; an
 * MPI that does not take them crashes.
 *
 * Call pici_comm_free before MPI_Finalize. It frees the duplicate, which MPI defines as collective; neither Open MPI
 * nor MPICH waits there. After an error, or with requests in flight, the duplicate is not freed, nor is the memory of
 * messages in flight, since MPI may still use it. MPI_Finalize may then wait for the peers.
 *
 * PICI_E_ARG: null, MPI is not initialized or is finalized, an intercommunicator, or an invalid environment variable on
 * some rank. PICI_E_NOMEM, PICI_E_TRANSPORT. PICI_E_IO: the file of PICI_TRACE cannot be written. */
PICI_API enum pici_status pici_comm_mpi(struct pici_comm **, MPI_Comm);

#ifdef __cplusplus
}
#endif
#endif
