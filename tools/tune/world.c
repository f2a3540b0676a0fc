/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "world.h"

#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Noreturn void world_die(const struct world *world, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "pici-tune: rank %d: ", world->rank);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

void world_say(const struct world *world, const char *format, ...)
{
    va_list args;
    if (world->rank)
        return;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    fputc('\n', stdout);
    fflush(stdout);
}

double world_max(const struct world *world, double mine)
{
    double most = mine;
    MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, world->mpi);
    return most;
}

double world_said(const struct world *world, double value)
{
    MPI_Bcast(&value, 1, MPI_DOUBLE, 0, world->mpi);
    return value;
}

double world_left(const struct world *world)
{
    return world_said(world, world->deadline - MPI_Wtime());
}

/* ---- nodes */

/* The node of this rank, from a list with commas; < 0: not valid. */
static int node_said(const struct world *world, const char *list)
{
    const char *position = list;
    int node = -1;
    for (int rank = 0; rank < world->ranks; rank++) {
        char *end;
        const long number = strtol(position, &end, 10);
        if (end == position || number < 0 || number > INT_MAX || *end != (rank + 1 < world->ranks ? ',' : '\0'))
            return -1;
        node = rank == world->rank ? (int)number : node;
        position = end + 1;
    }
    return node;
}

/* The number of cores on which the ranks of a node may run. */
static int cores_of(MPI_Comm node)
{
    cpu_set_t mine, all;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof mine, &mine))
        return (int)sysconf(_SC_NPROCESSORS_ONLN);
    MPI_Allreduce(&mine, &all, (int)sizeof mine, MPI_BYTE, MPI_BOR, node);
    return CPU_COUNT(&all);
}

/* Numbers the nodes by their lowest ranks, and orders the ranks. */
static int order_ranks(struct world *world, int lowest)
{
    int *begin = malloc(((size_t)world->ranks + 1) * sizeof *begin);
    int *lowest_of = malloc((size_t)world->ranks * sizeof *lowest_of);
    world->node_of = malloc((size_t)world->ranks * sizeof *world->node_of);
    world->order = malloc((size_t)world->ranks * sizeof *world->order);
    world->nodes = (struct schedule_nodes){0, begin};
    if (!begin || !lowest_of || !world->node_of || !world->order)
        return 0;
    MPI_Allgather(&lowest, 1, MPI_INT, lowest_of, 1, MPI_INT, world->mpi);
    int position = 0;
    for (int r = 0; r < world->ranks; r++) {
        if (lowest_of[r] != r)
            continue;
        begin[world->nodes.nodes] = position;
        for (int i = r; i < world->ranks; i++)
            if (lowest_of[i] == r) {
                world->node_of[i] = world->nodes.nodes;
                world->order[position++] = i;
            }
        world->nodes.nodes++;
    }
    begin[world->nodes.nodes] = position;
    free(lowest_of);
    return 1;
}

static int find_nodes(struct world *world, const char *said)
{
    MPI_Comm node;
    int lowest = world->rank, color = said ? node_said(world, said) : 0;
    if (color < 0) {
        if (world->rank == 0)
            fprintf(stderr, "pici-tune: --nodes takes a number for each of %d ranks, with commas\n", world->ranks);
        return 0;
    }
    if (said)
        MPI_Comm_split(world->mpi, color, world->rank, &node);
    else
        MPI_Comm_split_type(world->mpi, MPI_COMM_TYPE_SHARED, world->rank, MPI_INFO_NULL, &node);
    MPI_Allreduce(&world->rank, &lowest, 1, MPI_INT, MPI_MIN, node);
    MPI_Comm_size(node, &world->node_ranks);
    world->cores = cores_of(node);
    MPI_Comm_free(&node);
    MPI_Allreduce(MPI_IN_PLACE, &world->cores, 1, MPI_INT, MPI_MIN, world->mpi);
    return order_ranks(world, lowest);
}

/* Makes a communicator with the nodes of `world`. */
static struct pici_comm *make_comm(const struct world *world, MPI_Comm mpi)
{
    char wrong[OVER_WRONG];
    struct pici_comm *comm = over_make(world->over, mpi, world->node_of[world->rank], wrong);
    struct pici_tune tune = PICI_TUNE_INIT;
    int ranks;
    tune.pack = PICI_PACKING_NONE;
    if (!comm)
        world_die(world, "%s", wrong);
    if (pici_comm_tune(comm, &tune))
        world_die(world, "packing cannot be switched off");
    MPI_Comm_size(mpi, &ranks);
    int *node_of = malloc((size_t)ranks * sizeof *node_of);
    if (!node_of)
        world_die(world, "no memory");
    MPI_Allgather(&world->node_of[world->rank], 1, MPI_INT, node_of, 1, MPI_INT, mpi);
    if (pici_comm_set_nodes(comm, node_of))
        world_die(world, "the nodes cannot be set");
    free(node_of);
    return comm;
}

int world_open(struct world *world, const char *nodes)
{
    world->mpi = MPI_COMM_WORLD;
    MPI_Comm_rank(world->mpi, &world->rank);
    MPI_Comm_size(world->mpi, &world->ranks);
    if (world->ranks < 2) {
        fprintf(stderr, "pici-tune: one rank has nothing to measure: run it as mpirun -n RANKS pici-tune ...\n");
        return 0;
    }
    if (!find_nodes(world, nodes))
        return 0;
    world->comm = make_comm(world, world->mpi);
    return 1;
}

void world_close(struct world *world)
{
    pici_comm_free(world->comm);
    free(world->node_of);
    free(world->order);
    free((int *)world->nodes.begin);
}

struct pici_comm *world_split(const struct world *world, int color)
{
    MPI_Comm part;
    MPI_Comm_split(world->mpi, color < 0 ? MPI_UNDEFINED : color, world->rank, &part);
    if (part == MPI_COMM_NULL)
        return NULL;
    struct pici_comm *comm = make_comm(world, part);
    MPI_Comm_free(&part); /* the communicator has a duplicate */
    return comm;
}

double world_ranks_a_core(const struct world *world)
{
    int most = 0;
    for (int i = 0; i < world->nodes.nodes; i++) {
        const int ranks = world->nodes.begin[i + 1] - world->nodes.begin[i];
        most = ranks > most ? ranks : most;
    }
    return world->cores > 0 && most > world->cores ? (double)most / world->cores : 1;
}

void world_set_links(const struct world *world, const struct model_link link[POLICY_LINKS],
                     const struct tune_thresholds *thresholds)
{
    struct pici_tune tune = PICI_TUNE_INIT;
    tune.pack = PICI_PACKING_AUTO;
    if (link[POLICY_INTER].beta > 0 && !getenv("PICI_INTER_BANDWIDTH"))
        tune.inter_bandwidth = 1 / link[POLICY_INTER].beta;
    if (link[POLICY_INTRA].beta > 0 && !getenv("PICI_INTRA_BANDWIDTH"))
        tune.intra_bandwidth = 1 / link[POLICY_INTRA].beta;
    if (!getenv("PICI_INTER_THRESHOLD"))
        tune.inter_threshold = thresholds->at[TUNE_INTER];
    if (!getenv("PICI_INTRA_THRESHOLD"))
        tune.intra_threshold = thresholds->at[TUNE_INTRA];
    if (!getenv("PICI_AG_THRESHOLD"))
        tune.ag_threshold = thresholds->at[TUNE_GATHER];
    if (pici_comm_tune(world->comm, &tune))
        world_die(world, "the links' bandwidths cannot be set");
}

/* ---- calls */

struct call world_call(enum pici_collective kind, uint64_t bytes, double density, int ranks)
{
    const uint64_t parts = kind == PICI_ALL_REDUCE ? 1 : (uint64_t)ranks, count = bytes / sizeof(float) / parts;
    struct call call = {.kind = kind, .count = count ? count : 1, .density = density};
    call.bytes = call.count * parts * sizeof(float);
    return call;
}

static enum pici_status make_call(struct pici_comm *comm, const struct call *call, const float *send, float *recv,
                                  const struct pici_coll_opts *options)
{
    switch (call->kind) {
    case PICI_ALL_GATHER: return pici_all_gather(send, recv, call->count, PICI_F32, comm, options);
    case PICI_REDUCE_SCATTER: return pici_reduce_scatter(send, recv, call->count, PICI_F32, PICI_SUM, comm, options);
    default: return pici_all_reduce(send, recv, call->count, PICI_F32, PICI_SUM, comm, options);
    }
}

double world_run(const struct world *world, struct pici_comm *comm, const struct call *call,
                 const struct model_candidate *what, const float *send, float *recv, int times)
{
    struct pici_coll_opts options = PICI_COLL_OPTS_INIT;
    enum pici_status status = PICI_OK;
    options.algorithm = what->native ? PICI_ALGO_AUTO : what->algorithm;
    options.format = what->native ? PICI_DENSE : PICI_AUTO;
    if (what->dense) /* dense messages may still be packed */
        options.inter_threshold = options.intra_threshold = options.ag_threshold = 1;
    options.native = what->native ? 1 : -1;
    const double begin = MPI_Wtime();
    for (int i = 0; i < times && !status; i++)
        status = make_call(comm, call, send, recv, &options);
    if (status)
        world_die(world, "a call of %llu bytes: %s: %s", (unsigned long long)call->bytes, pici_strerror(status),
                  pici_comm_error(comm));
    return (MPI_Wtime() - begin) / times;
}

/* ---- data */

/* A random number in (0, 1). The state is not 0. */
static double uniform(uint64_t *state)
{
    uint64_t bits = *state;
    bits ^= bits >> 12;
    bits ^= bits << 25;
    bits ^= bits >> 27;
    *state = bits;
    return ((double)(bits * UINT64_C(0x2545f4914f6cdd1d) >> 11) + 0.5) * 0x1p-53;
}

void world_fill(float *values, uint64_t count, double density, uint64_t *state)
{
    const double scale = density < 1 ? 1 / log1p(-density) : 0;
    memset(values, 0, count * sizeof *values);
    for (uint64_t i = 0;; i++) { /* skip the zeros before the next nonzero */
        const double zeros = log(uniform(state)) * scale;
        if (zeros >= (double)(count - i))
            return;
        i += (uint64_t)zeros;
        if (i >= count)
            return;
        values[i] = (float)(0.5 + uniform(state));
    }
}
