/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/mpi_graph.h"

#include <stdlib.h>

#include "pici/mpi.h"

static int *room(int count)
{
    return calloc((size_t)count + 1, sizeof(int));
}

static int has_room(struct mpi_graph *graph, int sources, int destinations)
{
    graph->listed = graph->sources = sources;
    graph->destinations = destinations;
    graph->source = room(sources);
    graph->place = room(sources);
    graph->destination = room(destinations);
    return graph->source && graph->place && graph->destination;
}

static int read_dist_graph(struct mpi_graph *graph, MPI_Comm comm)
{
    int sources = 0, destinations = 0, weighted = 0;
    if (MPI_Dist_graph_neighbors_count(comm, &sources, &destinations, &weighted) != MPI_SUCCESS ||
        !has_room(graph, sources, destinations))
        return 0;
    int *in_weights = room(sources), *out_weights = room(destinations);
    const int good = in_weights && out_weights &&
                     MPI_Dist_graph_neighbors(comm, sources, graph->source, in_weights, destinations,
                                              graph->destination, out_weights) == MPI_SUCCESS;
    free(in_weights);
    free(out_weights);
    return good;
}

static int read_graph(struct mpi_graph *graph, MPI_Comm comm, int rank)
{
    int neighbors = 0;
    return MPI_Graph_neighbors_count(comm, rank, &neighbors) == MPI_SUCCESS && has_room(graph, neighbors, neighbors) &&
           MPI_Graph_neighbors(comm, rank, neighbors, graph->source) == MPI_SUCCESS &&
           MPI_Graph_neighbors(comm, rank, neighbors, graph->destination) == MPI_SUCCESS;
}

/* For each dimension, the neighbour below and then the one above. */
static int read_cartesian(struct mpi_graph *graph, MPI_Comm comm)
{
    int dimensions = 0,
        good = MPI_Cartdim_get(comm, &dimensions) == MPI_SUCCESS && has_room(graph, 2 * dimensions, 2 * dimensions);
    for (int dimension = 0; good && dimension < dimensions; dimension++) {
        int *two = graph->source + 2 * dimension;
        good = MPI_Cart_shift(comm, dimension, 1, &two[0], &two[1]) == MPI_SUCCESS;
        graph->destination[2 * dimension] = two[0];
        graph->destination[2 * dimension + 1] = two[1];
    }
    return good;
}

/* MPI_PROC_NULL is the only rank below 0. */
static void drop_nulls(struct mpi_graph *graph)
{
    int sources = 0, destinations = 0;
    for (int i = 0; i < graph->sources; i++)
        if (graph->source[i] >= 0) {
            graph->place[sources] = i;
            graph->source[sources++] = graph->source[i];
        }
    for (int i = 0; i < graph->destinations; i++)
        if (graph->destination[i] >= 0)
            graph->destination[destinations++] = graph->destination[i];
    graph->sources = sources;
    graph->destinations = destinations;
}

int pici_mpi_graph(struct mpi_graph *graph, MPI_Comm comm)
{
    int topology = MPI_UNDEFINED, rank = 0, good = 0;
    *graph = (struct mpi_graph){0};
    if (MPI_Comm_rank(comm, &rank) != MPI_SUCCESS || MPI_Topo_test(comm, &topology) != MPI_SUCCESS)
        return 0;
    if (topology == MPI_DIST_GRAPH)
        good = read_dist_graph(graph, comm);
    else if (topology == MPI_GRAPH)
        good = read_graph(graph, comm, rank);
    else if (topology == MPI_CART)
        good = read_cartesian(graph, comm);
    if (good)
        drop_nulls(graph);
    return good;
}

void pici_mpi_graph_free(struct mpi_graph *graph)
{
    free(graph->source);
    free(graph->place);
    free(graph->destination);
}

/* ---- the public function */

/* Whether an MPI communicator has a topology, and matches ours in rank and size. */
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
    struct mpi_graph lists = {0};
    if (plan)
        *plan = NULL;
    if (!plan || !comm)
        return PICI_E_ARG;
    const int good = fits(comm, graph) && pici_mpi_graph(&lists, graph);
    /* an invalid list tells the other ranks of the failure */
    const enum pici_status status = pici_neighbor_plan_create(plan, comm, good ? lists.sources : -1, lists.source,
                                                              lists.destinations, lists.destination, opts);
    pici_mpi_graph_free(&lists);
    return status;
}
