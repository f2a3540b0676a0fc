/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators over MPI, and plans of neighbourhood all-gathers on MPI graphs. Link with libpici_mpi and libpici,
 * using mpicc. */
#ifndef PICI_MPI_H
#define PICI_MPI_H

#include <mpi.h>

#include "pici/neighbor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Make a communicator over a duplicate of an intracommunicator. Collective; all ranks return the same status.
 *
 * MPI_THREAD_SINGLE is enough: only the thread that calls the library calls MPI, and messages progress only inside the
 * library's calls. Ranks that can share memory (MPI_Comm_split_type) share a node. If an MPI call fails, the library
 * returns PICI_E_TRANSPORT, and pici_comm_error gives MPI's error text. The library never calls MPI_Abort. Most MPI
 * libraries end the whole job when a process dies; with others, the library returns an error. If a peer stalls, it
 * returns PICI_E_TIMEOUT.
 *
 * GPU memory (pici_comm_cuda): the library passes device addresses to MPI if MPI reports that it accepts them, by
 * MPIX_Query_cuda_support (Open MPI) or MPIX_GPU_query_support (MPICH). Otherwise, or with PICI_MPI_CUDA=0, it copies
 * messages through pinned host memory. With PICI_MPI_CUDA=1 it always passes device addresses; an MPI that does not
 * accept them crashes.
 *
 * Call pici_comm_free before MPI_Finalize. It frees the duplicate. The MPI standard defines that as collective, but
 * neither Open MPI nor MPICH waits for other ranks there. After an error, or with requests in flight, it frees neither
 * the duplicate nor the memory of messages in flight, since MPI may still use them. MPI_Finalize may then wait for the
 * peers.
 *
 * PICI_E_ARG: null, MPI is not initialized or is finalized, an intercommunicator, or an invalid environment variable on
 * some rank. PICI_E_NOMEM, PICI_E_TRANSPORT. PICI_E_IO: the file of PICI_TRACE cannot be written. */
PICI_API enum pici_status pici_comm_mpi(struct pici_comm **, MPI_Comm);

/* Make a plan (pici/neighbor.h) for this rank's neighbours in an MPI communicator with a topology, from
 * MPI_Dist_graph_create, MPI_Dist_graph_create_adjacent, MPI_Graph_create or MPI_Cart_create. Collective over `comm`,
 * which must have the ranks of `graph` in the same order, as pici_comm_mpi over `graph` does. The call only reads the
 * lists of `graph`; you may free `graph` afterwards. Slots are in the order of MPI_Neighbor_allgather. A neighbour
 * MPI_PROC_NULL, beyond the edge of a grid, has no slot.
 *
 * All ranks return the same status. PICI_E_ARG: on some rank `graph` is MPI_COMM_NULL or an intercommunicator, has no
 * topology, has another rank or number of ranks than `comm`, or there is no memory for its lists. Otherwise as
 * pici_neighbor_plan_create, whose other rules hold too. A null plan or communicator is PICI_E_ARG at once, on this
 * rank only. */
PICI_API enum pici_status pici_neighbor_plan_mpi(struct pici_neighbor_plan **plan, struct pici_comm *comm,
                                                 MPI_Comm graph, const struct pici_neighbor_opts *);

#ifdef __cplusplus
}
#endif
#endif
