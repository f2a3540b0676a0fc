/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The ranks of an MPI job, their nodes, and the times of their calls. All functions are collective among the ranks
 * unless they say otherwise. */
#ifndef PICI_TOOLS_TUNE_WORLD_H
#define PICI_TOOLS_TUNE_WORLD_H

#include <mpi.h>

#include "over.h"
#include "predict/tune.h"
#include "pici/coll.h"

struct world {
    MPI_Comm mpi;
    enum over over;
    int rank, ranks;
    int *node_of; /* [ranks] nodes are numbered from 0, by their lowest ranks */
    int *order;   /* [ranks] the rank at each position; ranks of a node are adjacent */
    struct schedule_nodes nodes;
    int cores;      /* cores for the ranks of a node; the minimum over all nodes */
    int node_ranks; /* ranks on this rank's node */
    int native;     /* native calls are permitted */
    struct pici_comm *comm;
    double deadline; /* end of the measurements, in seconds of MPI_Wtime on rank 0 */
};

/* nodes: NULL, or the node of each rank, separated by commas, to override MPI. 0, after a message. */
int world_open(struct world *, const char *nodes);
void world_close(struct world *);

/* End the job with a message. Not collective. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
_Noreturn void
world_die(const struct world *, const char *format, ...);

/* Print a line on rank 0. Not collective. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void world_say(const struct world *, const char *format, ...);

/* The maximum over all ranks; the value of rank 0. */
double world_max(const struct world *, double);
double world_said(const struct world *, double);

/* Ranks per core in the largest node, at least 1. Local. */
double world_ranks_a_core(const struct world *);

/* The seconds left until the deadline, the same on all ranks. */
double world_left(const struct world *);

/* A communicator of the ranks that pass the same color; NULL for ranks with a color below 0. */
struct pici_comm *world_split(const struct world *, int color);

/* Set the bandwidths of the links and the dense thresholds of messages in the communicator of all ranks, unless the
 * environment sets them; allow it to pack messages. Before this call, no communicator does. */
void world_set_links(const struct world *, const struct model_link link[POLICY_LINKS], const struct tune_thresholds *);

/* A call whose larger buffer has about `bytes` bytes, a multiple of 4. */
struct call {
    enum pici_collective kind;
    uint64_t count; /* f32 elements, as in the call */
    uint64_t bytes; /* dense, of the larger buffer */
    double density;
};
struct call world_call(enum pici_collective, uint64_t bytes, double density, int ranks);

/* The mean seconds of `times` calls in a row, on this rank, without a barrier before them. Ends the job on an error. */
double world_run(const struct world *, struct pici_comm *, const struct call *, const struct model_candidate *,
                 const float *send, float *recv, int times);

/* Local. Fill `count` elements; the share `density` of them are nonzero, at random places. */
void world_fill(float *values, uint64_t count, double density, uint64_t *state);

#endif
