/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The neighbours of this rank in an MPI communicator with a topology: a distributed graph, a graph, or a Cartesian
 * one. */
#ifndef PICI_LIB_TRANSPORT_MPI_GRAPH_H
#define PICI_LIB_TRANSPORT_MPI_GRAPH_H

#include <mpi.h>

/* Lists in MPI's order, without MPI_PROC_NULL. A rank may occur several times, and may be this rank itself. */
struct mpi_graph {
    int listed;          /* entries of MPI's list of sources, with MPI_PROC_NULL */
    int sources;         /* ranks from which this one receives */
    int *source, *place; /* [sources] the rank, and its index in MPI's list */
    int destinations;    /* ranks to which it sends */
    int *destination;    /* [destinations] */
};

/* Read the lists from MPI. Local. Returns 0 without memory or topology, or if MPI fails. The caller frees the struct in
 * any case. */
int pici_mpi_graph(struct mpi_graph *, MPI_Comm);
void pici_mpi_graph_free(struct mpi_graph *);

#endif
