/* SPDX-License-Identifier: BSD-3-Clause */
#include "preload/graph.h"

#include <stdlib.h>

static void count_others(struct graph *g, int rank)
{
    for (int i = 0; i < g->lists.sources; i++)
        g->others += g->lists.source[i] != rank;
    g->alone = !g->others;
    for (int i = 0; i < g->lists.destinations; i++)
        g->alone &= g->lists.destination[i] == rank;
}

int pmpi_has_graph(MPI_Comm comm)
{
    int topology = MPI_UNDEFINED;
    return PMPI_Topo_test(comm, &topology) == MPI_SUCCESS && topology != MPI_UNDEFINED;
}

struct graph *pmpi_graph(MPI_Comm comm)
{
    struct graph *g = calloc(1, sizeof *g);
    int rank = 0;
    if (!g)
        return NULL;
    if (PMPI_Comm_rank(comm, &rank) != MPI_SUCCESS || !pici_mpi_graph(&g->lists, comm)) {
        pmpi_graph_free(g);
        return NULL;
    }
    count_others(g, rank);
    return g;
}

void pmpi_graph_unplan(struct graph *g)
{
    if (!g)
        return;
    pici_neighbor_plan_free(g->plan);
    g->plan = NULL;
}

void pmpi_graph_free(struct graph *g)
{
    if (!g)
        return;
    pmpi_graph_unplan(g);
    pici_mpi_graph_free(&g->lists);
    free(g);
}

int pmpi_sources(MPI_Comm comm)
{
    struct graph *g = pmpi_has_graph(comm) ? pmpi_graph(comm) : NULL;
    const int n = g ? g->lists.listed : 0;
    pmpi_graph_free(g);
    return n;
}
