/* SPDX-License-Identifier: BSD-3-Clause */
#include "preload/graph.h"

#include <stdlib.h>

static int *room(int n)
{
    return calloc((size_t)n + 1, sizeof(int));
}

static int has_room(struct graph *g, int sources, int destinations)
{
    g->listed = g->sources = sources;
    g->destinations = destinations;
    g->source = room(sources);
    g->place = room(sources);
    g->destination = room(destinations);
    return g->source && g->place && g->destination;
}

static int read_dist_graph(struct graph *g, MPI_Comm comm)
{
    int in = 0, out = 0, weighted = 0;
    if (PMPI_Dist_graph_neighbors_count(comm, &in, &out, &weighted) != MPI_SUCCESS || !has_room(g, in, out))
        return 0;
    int *in_weights = room(in), *out_weights = room(out);
    const int good =
        in_weights && out_weights &&
        PMPI_Dist_graph_neighbors(comm, in, g->source, in_weights, out, g->destination, out_weights) == MPI_SUCCESS;
    free(in_weights);
    free(out_weights);
    return good;
}

static int read_graph(struct graph *g, MPI_Comm comm, int rank)
{
    int n = 0;
    return PMPI_Graph_neighbors_count(comm, rank, &n) == MPI_SUCCESS && has_room(g, n, n) &&
           PMPI_Graph_neighbors(comm, rank, n, g->source) == MPI_SUCCESS &&
           PMPI_Graph_neighbors(comm, rank, n, g->destination) == MPI_SUCCESS;
}

/* Of each dimension the neighbour below, then the one above. */
static int read_cartesian(struct graph *g, MPI_Comm comm)
{
    int dimensions = 0,
        good = PMPI_Cartdim_get(comm, &dimensions) == MPI_SUCCESS && has_room(g, 2 * dimensions, 2 * dimensions);
    for (int d = 0; good && d < dimensions; d++) {
        int *two = g->source + 2 * d;
        good = PMPI_Cart_shift(comm, d, 1, &two[0], &two[1]) == MPI_SUCCESS;
        g->destination[2 * d] = two[0];
        g->destination[2 * d + 1] = two[1];
    }
    return good;
}

static int read_topology(struct graph *g, MPI_Comm comm, int rank)
{
    int topology = MPI_UNDEFINED;
    if (PMPI_Topo_test(comm, &topology) != MPI_SUCCESS)
        return 0;
    switch (topology) {
    case MPI_DIST_GRAPH: return read_dist_graph(g, comm);
    case MPI_GRAPH: return read_graph(g, comm, rank);
    case MPI_CART: return read_cartesian(g, comm);
    default: return 0;
    }
}

/* MPI_PROC_NULL is the only rank below 0. */
static void drop_nulls(struct graph *g, int rank)
{
    int sources = 0, destinations = 0;
    for (int i = 0; i < g->sources; i++)
        if (g->source[i] >= 0) {
            g->others += g->source[i] != rank;
            g->place[sources] = i;
            g->source[sources++] = g->source[i];
        }
    g->sources = sources;
    g->alone = !g->others;
    for (int i = 0; i < g->destinations; i++)
        if (g->destination[i] >= 0) {
            g->alone &= g->destination[i] == rank;
            g->destination[destinations++] = g->destination[i];
        }
    g->destinations = destinations;
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
    if (PMPI_Comm_rank(comm, &rank) != MPI_SUCCESS || !read_topology(g, comm, rank)) {
        pmpi_graph_free(g);
        return NULL;
    }
    drop_nulls(g, rank);
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
    free(g->source);
    free(g->place);
    free(g->destination);
    free(g);
}

int pmpi_sources(MPI_Comm comm)
{
    struct graph *g = pmpi_has_graph(comm) ? pmpi_graph(comm) : NULL;
    const int n = g ? g->listed : 0;
    pmpi_graph_free(g);
    return n;
}
