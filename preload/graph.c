/* SPDX-License-Identifier: BSD-3-Clause */
#include "preload/graph.h"

#include <stdlib.h>

static void count_others(struct graph *graph, int rank)
{
    for (int i = 0; i < graph->lists.sources; i++)
        graph->others += graph->lists.source[i] != rank;
    graph->alone = !graph->others;
    for (int i = 0; i < graph->lists.destinations; i++)
        graph->alone &= graph->lists.destination[i] == rank;
}

int pmpi_has_graph(MPI_Comm comm)
{
    int topology = MPI_UNDEFINED;
    return PMPI_Topo_test(comm, &topology) == MPI_SUCCESS && topology != MPI_UNDEFINED;
}

struct graph *pmpi_graph(MPI_Comm comm)
{
    struct graph *graph = calloc(1, sizeof *graph);
    int rank = 0;
    if (!graph)
        return NULL;
    if (PMPI_Comm_rank(comm, &rank) != MPI_SUCCESS || !pici_mpi_graph(&graph->lists, comm)) {
        pmpi_graph_free(graph);
        return NULL;
    }
    count_others(graph, rank);
    return graph;
}

void pmpi_graph_unplan(struct graph *graph)
{
    if (!graph)
        return;
    pici_neighbor_plan_free(graph->plan);
    graph->plan = NULL;
}

void pmpi_graph_free(struct graph *graph)
{
    if (!graph)
        return;
    pmpi_graph_unplan(graph);
    pici_mpi_graph_free(&graph->lists);
    free(graph);
}

int pmpi_sources(MPI_Comm comm)
{
    struct graph *graph = pmpi_has_graph(comm) ? pmpi_graph(comm) : NULL;
    const int listed = graph ? graph->lists.listed : 0;
    pmpi_graph_free(graph);
    return listed;
}
