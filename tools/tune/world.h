/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The ranks of an MPI job, their nodes, and how long calls take on them. All functions are collective among the ranks
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
    int *node_of; /* [ranks] numbered from 0 by each node's lowest rank */
    int *order;   /* [ranks] positions to ranks: those of a node next to each other */
    struct schedule_nodes nodes;
    int cores;      /* that a node's ranks may use, at the least of all nodes */
    int node_ranks; /* ranks on this rank's node */
    int native;     /* the native calls are permitted */
    struct pici_comm *comm;
    double deadline; /* of the time to be spent, in seconds of MPI_Wtime on rank 0 */
};

/* nodes: NULL, or the node of each rank, with commas, instead of what MPI finds. Prints what is wrong; 0. */
int world_open(struct world *, const char *nodes);
void world_close(struct world *);

/* End the job with a message; any rank alone may. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
_Noreturn void
world_die(const struct world *, const char *format, ...);

/* Print a line, on rank 0 alone; it is not collective. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void world_say(const struct world *, const char *format, ...);

/* The largest of all ranks' values; and rank 0's. */
double world_max(const struct world *, double);
double world_said(const struct world *, double);

/* Ranks of the largest node for each of its cores, at least 1. Local. */
double world_ranks_a_core(const struct world *);

/* Seconds that are left of the time to be spent, the same on all ranks. */
double world_left(const struct world *);

/* A communicator among those ranks that pass the same color; NULL for ranks with a color below 0. */
struct pici_comm *world_split(const struct world *, int color);

/* Tell the communicator among all ranks how fast the links are, unless the environment says so, and from which density
 * on messages are dense; and let it pack them. No communicator does before. */
void world_set_links(const struct world *, const struct model_link link[POLICY_LINKS], const struct tune_thresholds *);

/* One call. What it takes is the larger buffer's: bytes, a multiple of 4. */
struct call {
    enum pici_collective kind;
    uint64_t count; /* f32 elements, as in the call */
    uint64_t bytes; /* dense, of the larger buffer */
    double density;
};
struct call world_call(enum pici_collective, uint64_t bytes, double density, int ranks);

/* Seconds of a call on this rank, the mean of `times` in a row; not begun together. Ends the job on an error. */
double world_run(const struct world *, struct pici_comm *, const struct call *, const struct model_candidate *,
                 const float *send, float *recv, int times);

/* count elements of which a share is not zero, at random places. Local. */
void world_fill(float *values, uint64_t count, double density, uint64_t *state);

#endif
