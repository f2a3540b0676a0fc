/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Included before each source of our transport over MPI (lib/transport/mpi*.c) when it is compiled for the preloaded
 * library. There MPI_X may be our own function, or a profiling tool's, so the transport calls PMPI_X. */
#ifndef PICI_PRELOAD_PROFILING_H
#define PICI_PRELOAD_PROFILING_H

#include <mpi.h>

/* Like MPI_Comm_dup, but without the program's attributes, topology and hints: its copy callbacks are not for us. */
int pmpi_comm_dup(MPI_Comm, MPI_Comm *);

#define MPI_Allgather PMPI_Allgather
#define MPI_Allreduce PMPI_Allreduce
#define MPI_Bcast PMPI_Bcast
#define MPI_Cancel PMPI_Cancel
#define MPI_Cart_shift PMPI_Cart_shift
#define MPI_Cartdim_get PMPI_Cartdim_get
#define MPI_Comm_dup pmpi_comm_dup
#define MPI_Comm_free PMPI_Comm_free
#define MPI_Comm_get_errhandler PMPI_Comm_get_errhandler
#define MPI_Comm_rank PMPI_Comm_rank
#define MPI_Comm_set_errhandler PMPI_Comm_set_errhandler
#define MPI_Comm_size PMPI_Comm_size
#define MPI_Comm_split_type PMPI_Comm_split_type
#define MPI_Comm_test_inter PMPI_Comm_test_inter
#define MPI_Dist_graph_neighbors PMPI_Dist_graph_neighbors
#define MPI_Dist_graph_neighbors_count PMPI_Dist_graph_neighbors_count
#define MPI_Errhandler_free PMPI_Errhandler_free
#define MPI_Error_class PMPI_Error_class
#define MPI_Error_string PMPI_Error_string
#define MPI_Finalized PMPI_Finalized
#define MPI_Get_count PMPI_Get_count
#define MPI_Graph_neighbors PMPI_Graph_neighbors
#define MPI_Graph_neighbors_count PMPI_Graph_neighbors_count
#define MPI_Initialized PMPI_Initialized
#define MPI_Irecv PMPI_Irecv
#define MPI_Isend PMPI_Isend
#define MPI_Reduce_scatter_block PMPI_Reduce_scatter_block
#define MPI_Test PMPI_Test
#define MPI_Topo_test PMPI_Topo_test
#define MPI_Type_commit PMPI_Type_commit
#define MPI_Type_contiguous PMPI_Type_contiguous
#define MPI_Type_create_resized PMPI_Type_create_resized
#define MPI_Type_free PMPI_Type_free
#define MPI_Waitany PMPI_Waitany

#endif
