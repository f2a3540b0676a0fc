/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The neighbours of this rank in a communicator with a topology: a distributed graph, a graph, or a Cartesian one. */
#ifndef PICI_PRELOAD_GRAPH_H
#define PICI_PRELOAD_GRAPH_H

#include <mpi.h>
#include <stdint.h>

#include "pici/neighbor.h"
#include "preload/stats.h"
#include "transport/mpi_graph.h"

enum { PMPI_LENGTHS = 16 };

struct graph {
    struct mpi_graph lists;
    int others; /* sources other than this rank */
    int alone;  /* this rank has no neighbour but itself */

    /* The same on all ranks: */
    enum reason reason;              /* OURS: eligible calls are ours */
    uint64_t edges;                  /* of all ranks, without those from a rank to itself */
    int some_alone;                  /* some rank has no neighbour but itself */
    uint64_t eligible;               /* calls so far */
    unsigned pause, last_pause;      /* the count of next calls that are MPI's; that count the last time */
    struct pici_neighbor_plan *plan; /* NULL: not made */
    struct {
        uint64_t count;
        size_t width;
    } length[PMPI_LENGTHS]; /* the last reserved lengths: each rank has memory for contributions as long */
    unsigned lengths;       /* count of lengths reserved */

    int failed; /* a call of ours has failed on this rank */
};

/* Whether the communicator has a topology. */
int pmpi_has_graph(MPI_Comm);

/* Ask MPI for the neighbours of this rank. Local. NULL: no memory, or MPI has failed. */
struct graph *pmpi_graph(MPI_Comm);

/* Entries of MPI's list of sources; 0 without a topology, or memory. Local. */
int pmpi_sources(MPI_Comm);

/* Free the plan; the graph with its plan. NULL is ignored. */
void pmpi_graph_unplan(struct graph *);
void pmpi_graph_free(struct graph *);

#endif
