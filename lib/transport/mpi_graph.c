/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/mpi_graph.h"

#include <stdlib.h>

#include "pici/mpi.h"

static int *room(int n)
{
    return calloc((size_t)n + 1, sizeof(int));
}

static int has_room(struct mpi_graph *g, int sources, int destinations)
{
    g->listed = g->sources = sources;
    g->destinations = destinations;
    g->source = room(sources);
    g->place = room(sources);
    g->destination = room(destinations);
    return g->source && g->place && g->destination;
}

static int read_dist_graph(struct mpi_graph *g, MPI_Comm comm)
{
    int in = 0, out = 0, weighted = 0;
    if (MPI_Dist_graph_neighbors_count(comm, &in, &out, &weighted) != MPI_SUCCESS || !has_room(g, in, out))
        return 0;
    int *in_weights = room(in), *out_weights = room(out);
    const int good =
        in_weights && out_weights &&
        MPI_Dist_graph_neighbors(comm, in, g->source, in_weights, out, g->destination, out_weights) == MPI_SUCCESS;
    free(in_weights);
    free(out_weights);
    return good;
}

static int read_graph(struct mpi_graph *g, MPI_Comm comm, int rank)
{
    int n = 0;
    return MPI_Graph_neighbors_count(comm, rank, &n) == MPI_SUCCESS && has_room(g, n, n) &&
           MPI_Graph_neighbors(comm, rank, n, g->source) == MPI_SUCCESS &&
           MPI_Graph_neighbors(comm, rank, n, g->destination) == MPI_SUCCESS;
}

/* Of each dimension the neighbour below, then the one above. */
static int read_cartesian(struct mpi_graph *g, MPI_Comm comm)
{
    int dimensions = 0,
        good = MPI_Cartdim_get(comm, &dimensions) == MPI_SUCCESS && has_room(g, 2 * dimensions, 2 * dimensions);
    for (int d = 0; good && d < dimensions; d++) {
        int *two = g->source + 2 * d;
        good = MPI_Cart_shift(comm, d, 1, &two[0], &two[1]) == MPI_SUCCESS;
        g->destination[2 * d] = two[0];
        g->destination[2 * d + 1] = two[1];
    }
    return good;
}

/* MPI_PROC_NULL is the only rank below 0. */
static void drop_nulls(struct mpi_graph *g)
{
    int sources = 0, destinations = 0;
    for (int i = 0; i < g->sources; i++)
        if (g->source[i] >= 0) {
            g->place[sources] = i;
            g->source[sources++] = g->source[i];
        }
    for (int i = 0; i < g->destinations; i++)
        if (g->destination[i] >= 0)
            g->destination[destinations++] = g->destination[i];
    g->sources = sources;
    g->destinations = destinations;
}

int pici_mpi_graph(struct mpi_graph *g, MPI_Comm comm)
{
    int topology = MPI_UNDEFINED, rank = 0, good = 0;
    *g = (struct mpi_graph){0};
    if (MPI_Comm_rank(comm, &rank) != MPI_SUCCESS || MPI_Topo_test(comm, &topology) != MPI_SUCCESS)
        return 0;
    if (topology == MPI_DIST_GRAPH)
        good = read_dist_graph(g, comm);
    else if (topology == MPI_GRAPH)
        good = read_graph(g, comm, rank);
    else if (topology == MPI_CART)
        good = read_cartesian(g, comm);
    if (good)
        drop_nulls(g);
    return good;
}

void pici_mpi_graph_free(struct mpi_graph *g)
{
    free(g->source);
    free(g->place);
    free(g->destination);
}

/* ---- the public function */

/* Whether a communicator of MPI has a topology, and the ranks of one of ours, as far as this rank can tell. */
static int fits(const struct pici_comm *comm, MPI_Comm graph)
{
    int inter = 0, rank = -1, ranks = -1, topology = MPI_UNDEFINED;
    return graph != MPI_COMM_NULL && MPI_Comm_test_inter(graph, &inter) == MPI_SUCCESS && !inter &&
           MPI_Comm_rank(graph, &rank) == MPI_SUCCESS && MPI_Comm_size(graph, &ranks) == MPI_SUCCESS &&
           rank == pici_comm_rank(comm) && ranks == pici_comm_size(comm) &&
           MPI_Topo_test(graph, &topology) == MPI_SUCCESS && topology != MPI_UNDEFINED;
}

enum pici_status pici_neighbor_plan_mpi(struct pici_neighbor_plan **plan, struct pici_comm *comm, MPI_Comm graph,
                                        const struct pici_neighbor_opts *opts)
{
    struct mpi_graph g = {0};
    if (plan)
        *plan = NULL;
    if (!plan || !comm)
        return PICI_E_ARG;
    const int good = fits(comm, graph) && pici_mpi_graph(&g, graph);
    /* with a list that cannot be, the other ranks learn of it */
    const enum pici_status s =
        pici_neighbor_plan_create(plan, comm, good ? g.sources : -1, g.source, g.destinations, g.destination, opts);
    pici_mpi_graph_free(&g);
    return s;
}
