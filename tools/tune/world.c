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

#include "pici/mpi.h"

_Noreturn void world_die(const struct world *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "pici-tune: rank %d: ", w->rank);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

void world_say(const struct world *w, const char *format, ...)
{
    va_list args;
    if (w->rank)
        return;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    fputc('\n', stdout);
    fflush(stdout);
}

double world_max(const struct world *w, double mine)
{
    double most = mine;
    MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, w->mpi);
    return most;
}

double world_said(const struct world *w, double value)
{
    MPI_Bcast(&value, 1, MPI_DOUBLE, 0, w->mpi);
    return value;
}

double world_left(const struct world *w)
{
    return world_said(w, w->end - MPI_Wtime());
}

/* ---- nodes */

/* The node of this rank, from a list with commas. < 0: it is none. */
static int node_said(const struct world *w, const char *list)
{
    const char *at = list;
    int node = -1;
    for (int r = 0; r < w->ranks; r++) {
        char *end;
        const long n = strtol(at, &end, 10);
        if (end == at || n < 0 || n > INT_MAX || *end != (r + 1 < w->ranks ? ',' : '\0'))
            return -1;
        node = r == w->rank ? (int)n : node;
        at = end + 1;
    }
    return node;
}

/* Cores that the ranks of a node may run on, all together. */
static int cores_of(MPI_Comm node)
{
    cpu_set_t mine, all;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof mine, &mine))
        return (int)sysconf(_SC_NPROCESSORS_ONLN);
    MPI_Allreduce(&mine, &all, (int)sizeof mine, MPI_BYTE, MPI_BOR, node);
    return CPU_COUNT(&all);
}

/* Number the nodes by their lowest rank, and find the positions of ranks. */
static int order_ranks(struct world *w, int lowest)
{
    int *begin = malloc(((size_t)w->ranks + 1) * sizeof *begin);
    int *low = malloc((size_t)w->ranks * sizeof *low);
    w->node_of = malloc((size_t)w->ranks * sizeof *w->node_of);
    w->order = malloc((size_t)w->ranks * sizeof *w->order);
    w->nodes = (struct schedule_nodes){0, begin};
    if (!begin || !low || !w->node_of || !w->order)
        return 0;
    MPI_Allgather(&lowest, 1, MPI_INT, low, 1, MPI_INT, w->mpi);
    int position = 0;
    for (int r = 0; r < w->ranks; r++) {
        if (low[r] != r)
            continue;
        begin[w->nodes.nodes] = position;
        for (int i = r; i < w->ranks; i++)
            if (low[i] == r) {
                w->node_of[i] = w->nodes.nodes;
                w->order[position++] = i;
            }
        w->nodes.nodes++;
    }
    begin[w->nodes.nodes] = position;
    free(low);
    return 1;
}

static int find_nodes(struct world *w, const char *said)
{
    MPI_Comm node;
    int lowest = w->rank, color = said ? node_said(w, said) : 0;
    if (color < 0) {
        if (w->rank == 0)
            fprintf(stderr, "pici-tune: --nodes takes a number for each of %d ranks, with commas\n", w->ranks);
        return 0;
    }
    if (said)
        MPI_Comm_split(w->mpi, color, w->rank, &node);
    else
        MPI_Comm_split_type(w->mpi, MPI_COMM_TYPE_SHARED, w->rank, MPI_INFO_NULL, &node);
    MPI_Allreduce(&w->rank, &lowest, 1, MPI_INT, MPI_MIN, node);
    MPI_Comm_size(node, &w->here);
    w->cores = cores_of(node);
    MPI_Comm_free(&node);
    MPI_Allreduce(MPI_IN_PLACE, &w->cores, 1, MPI_INT, MPI_MIN, w->mpi);
    return order_ranks(w, lowest);
}

/* A communicator with the nodes that this program goes by. */
static struct pici_comm *make_comm(const struct world *w, MPI_Comm mpi)
{
    struct pici_comm *comm;
    int ranks;
    if (pici_comm_mpi(&comm, mpi))
        world_die(w, "no communicator: %s", pici_comm_error(NULL));
    MPI_Comm_size(mpi, &ranks);
    int *node_of = malloc((size_t)ranks * sizeof *node_of);
    if (!node_of)
        world_die(w, "no memory");
    MPI_Allgather(&w->node_of[w->rank], 1, MPI_INT, node_of, 1, MPI_INT, mpi);
    if (pici_comm_set_nodes(comm, node_of))
        world_die(w, "the nodes cannot be set");
    free(node_of);
    return comm;
}

int world_open(struct world *w, const char *nodes)
{
    w->mpi = MPI_COMM_WORLD;
    MPI_Comm_rank(w->mpi, &w->rank);
    MPI_Comm_size(w->mpi, &w->ranks);
    if (w->ranks < 2) {
        fprintf(stderr, "pici-tune: one rank has nothing to measure: run it as mpirun -n RANKS pici-tune ...\n");
        return 0;
    }
    if (!find_nodes(w, nodes))
        return 0;
    w->comm = make_comm(w, w->mpi);
    return 1;
}

void world_close(struct world *w)
{
    pici_comm_free(w->comm);
    free(w->node_of);
    free(w->order);
    free((int *)w->nodes.begin);
}

struct pici_comm *world_split(const struct world *w, int color)
{
    MPI_Comm part;
    MPI_Comm_split(w->mpi, color < 0 ? MPI_UNDEFINED : color, w->rank, &part);
    if (part == MPI_COMM_NULL)
        return NULL;
    struct pici_comm *comm = make_comm(w, part);
    MPI_Comm_free(&part); /* a duplicate was made */
    return comm;
}

/* ---- calls */

struct call world_call(enum pici_collective kind, uint64_t bytes, double density, int ranks)
{
    const uint64_t parts = kind == PICI_ALL_REDUCE ? 1 : (uint64_t)ranks, count = bytes / sizeof(float) / parts;
    struct call c = {.kind = kind, .count = count ? count : 1, .density = density};
    c.bytes = c.count * parts * sizeof(float);
    return c;
}

double world_run(const struct world *w, struct pici_comm *comm, const struct call *c,
                 const struct model_candidate *what, const float *send, float *recv, int times)
{
    struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
    enum pici_status status = PICI_OK;
    o.algorithm = what->vendor ? PICI_ALGO_AUTO : what->algorithm;
    o.format = what->vendor || what->dense ? PICI_DENSE : PICI_AUTO;
    o.vendor = what->vendor ? 1 : -1;
    const double begin = MPI_Wtime();
    for (int i = 0; i < times && !status; i++)
        status = c->kind == PICI_ALL_GATHER ? pici_all_gather(send, recv, c->count, PICI_F32, comm, &o)
                 : c->kind == PICI_REDUCE_SCATTER
                     ? pici_reduce_scatter(send, recv, c->count, PICI_F32, PICI_SUM, comm, &o)
                     : pici_all_reduce(send, recv, c->count, PICI_F32, PICI_SUM, comm, &o);
    if (status)
        world_die(w, "a call of %llu bytes: %s: %s", (unsigned long long)c->bytes, pici_strerror(status),
                  pici_comm_error(comm));
    return (MPI_Wtime() - begin) / times;
}

/* ---- data */

/* A number in (0, 1), from a state that is not 0. */
static double uniform(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return ((double)(x * UINT64_C(0x2545f4914f6cdd1d) >> 11) + 0.5) * 0x1p-53;
}

void world_fill(float *v, uint64_t n, double density, uint64_t *state)
{
    const double scale = density < 1 ? 1 / log1p(-density) : 0;
    memset(v, 0, n * sizeof *v);
    for (uint64_t i = 0;; i++) { /* over as many zeros as come before the next */
        const double zeros = log(uniform(state)) * scale;
        if (zeros >= (double)(n - i))
            return;
        i += (uint64_t)zeros;
        if (i >= n)
            return;
        v[i] = (float)(0.5 + uniform(state));
    }
}
