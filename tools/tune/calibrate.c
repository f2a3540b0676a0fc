/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Everything is measured through the library, since its naps and its own work count too.
 *
 * Codec: each rank works on slices of the default size, more of them than a cache holds, while all other ranks of the
 * job do the same. The clock's time counts, from a common start to the end of the slowest rank. So whatever they share
 * is in it: cores of a node, and those of a machine that several "nodes" are on, as containers are. The model
 * multiplies by the ranks that share a core of a node, so that factor is taken off.
 *
 * Links: two ranks make a communicator and all-gather dense data, so that each sends the other `bytes`. All nodes do so
 * at once, in pairs. From the time that of an empty call is taken off, and the time to encode and decode the first
 * slice. What is left is alpha + beta * bytes; the rest of encoding and decoding overlaps. */
#define _POSIX_C_SOURCE 200809L
#include "calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "coll/engine.h"
#include "stats.h"

enum {
    SLICE = (1 << 20) / sizeof(float), /* elements of the library's default slice */
    SLICES = 16,
    TILE_ELEMENTS = 4096,
    REPEATS = 5,
    TRIES = 3,
    SIZES = 7,
    SHORT = 4,             /* sizes of up to 64 KiB */
    LEAST_SLICE = 64 << 10 /* dense bytes below which the library does not cut a segment further */
};
static const double SHARED = 1.5; /* times what a node's own ranks explain: other programs, or other nodes */

/* ---- codec */

struct codec_bench {
    const struct world *world;
    float *src, *dst; /* [SLICES * SLICE] */
    uint8_t *blocks;  /* [SLICES * bound] */
    struct pici_block parsed[SLICES];
    size_t bound, len[SLICES];
    void *temp;
    enum pici_format format;
    int rounds;
    double scale;      /* ranks that share a core of a node, as the model has it */
    double clock, cpu; /* seconds of all that was measured: by the clock, and the processor's on this thread */
};

/* The processor's seconds on this thread. */
static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void work_on(struct codec_bench *b, enum model_work work, int slice)
{
    const struct pici_engine *e = &pici_engine_host;
    const void *src = b->src + (size_t)slice * SLICE;
    uint8_t *block = b->blocks + (size_t)slice * b->bound;
    float *dst = b->dst + (size_t)slice * SLICE;
    const uint64_t n = SLICE;
    const struct engine_array array = {.dtype = PICI_F32, .format = b->format, .by_value = 1};
    uint64_t nnz;
    enum pici_status status = PICI_OK;
    switch (work) {
    case MODEL_COUNT: e->count(NULL, &src, &n, 1, &array, 1, &nnz); break;
    case MODEL_ENCODE: status = e->encode(NULL, block, 0, b->bound, &b->len[slice], &src, &n, 1, &array, 1, 1); break;
    case MODEL_ADD:
        status = e->fold(NULL, dst, block, &b->parsed[slice], PICI_SUM, b->temp, COLL_TEMP_BYTES / sizeof(float));
        break;
    case MODEL_DECODE: status = e->decode(NULL, dst, block, &b->parsed[slice], (uint64_t)SLICES * SLICE); break;
    case MODEL_WORKS: break;
    }
    if (status)
        world_die(b->world, "the codec: %s", pici_strerror(status));
}

/* Nanoseconds a tile, the median of some rounds over all slices, each as long as on the slowest rank. */
static double tile_ns(struct codec_bench *b, enum model_work work)
{
    double ns[REPEATS];
    for (int round = 0; round < b->rounds; round++) {
        MPI_Barrier(b->world->mpi);
        const double begin = MPI_Wtime(), cpu = cpu_seconds();
        for (int i = 0; i < SLICES; i++)
            work_on(b, work, i);
        b->cpu += cpu_seconds() - cpu;
        const double seconds = world_max(b->world, MPI_Wtime() - begin);
        b->clock += seconds;
        ns[round] = seconds / b->scale * 1e9 * TILE_ELEMENTS / ((double)SLICES * SLICE);
    }
    return stats_quantile(ns, b->rounds, 0.5);
}

/* Fill in what data of this density takes: at point -1 without nonzeros, else in addition to that. */
static void codec_point(struct codec_bench *b, struct model_machine *m, int point, uint64_t *state)
{
    world_fill(b->src, (uint64_t)SLICES * SLICE, point < 0 ? 0 : pici_model_points[point], state);
    for (int format = PICI_DENSE; format < MODEL_FORMATS; format++) {
        b->format = (enum pici_format)format;
        for (int work = MODEL_COUNT; work < MODEL_WORKS; work++) {
            if (work == MODEL_COUNT && format != PICI_DENSE)
                continue;
            struct model_codec *c = &m->codec[format][work];
            const double ns = tile_ns(b, (enum model_work)work);
            if (point < 0)
                c->empty = ns;
            else
                c->more[point] = ns > c->empty ? ns - c->empty : 0;
            for (int i = 0; i < SLICES && work == MODEL_ENCODE; i++)
                if (pici_block_parse(&b->parsed[i], b->blocks + (size_t)i * b->bound, b->len[i], NULL))
                    world_die(b->world, "a block cannot be read");
        }
    }
}

/* Position of this rank in its node, and its node's ranks. */
static int local_of(const struct world *w, int rank)
{
    int local = 0;
    for (int r = 0; r < rank; r++)
        local += w->node_of[r] == w->node_of[rank];
    return local;
}

static int size_of(const struct world *w, int node)
{
    return w->nodes.begin[node + 1] - w->nodes.begin[node];
}

/* Ranks of the largest node for each of its cores. */
static double ranks_a_core(const struct world *w)
{
    int most = 0;
    for (int i = 0; i < w->nodes.nodes; i++)
        most = size_of(w, i) > most ? size_of(w, i) : most;
    return w->cores > 0 && most > w->cores ? (double)most / w->cores : 1;
}

static void calibrate_codec(const struct world *w, struct model_machine *m, int rounds)
{
    struct codec_bench b = {.world = w, .rounds = rounds, .scale = ranks_a_core(w)};
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)w->rank;
    for (int f = PICI_DENSE; f <= PICI_HYBRID; f++) {
        const size_t bound = pici_bound((enum pici_format)f, PICI_F32, SLICE);
        b.bound = bound > b.bound ? bound : b.bound;
    }
    b.bound = (b.bound + COLL_ALIGN - 1) / COLL_ALIGN * COLL_ALIGN;
    b.src = malloc((size_t)SLICES * SLICE * sizeof *b.src);
    b.dst = malloc((size_t)SLICES * SLICE * sizeof *b.dst);
    b.blocks = malloc(SLICES * b.bound);
    b.temp = malloc(COLL_TEMP_BYTES);
    if (!b.src || !b.dst || !b.blocks || !b.temp)
        world_die(w, "no memory to measure the codec");
    memset(b.dst, 0, (size_t)SLICES * SLICE * sizeof *b.dst);
    for (int point = -1; point < MODEL_POINTS; point++)
        codec_point(&b, m, point, &state);
    const double shared = b.clock / world_max(w, b.cpu);
    world_say(w, "codec: by all ranks at once, %.1f times the processor's time; ranks that share a core explain %.1f%s",
              shared, b.scale,
              shared > SHARED * b.scale
                  ? ". Nodes share cores, or other programs run: the file holds for as many ranks "
                    "as now"
                  : "");
    free(b.src);
    free(b.dst);
    free(b.blocks);
    free(b.temp);
}

/* ---- calls */

static const struct model_candidate ring = {.algorithm = PICI_ALGO_RING, .dense = 1};

/* The median of some calls, each as long as on the slowest rank that makes it. A rank without a communicator waits.
 * Repeated while it is noisy; then the fastest of the tries counts, since what disturbs a call makes it slower. */
static double call_seconds(const struct world *w, struct pici_comm *comm, const struct call *c, const float *send,
                           float *recv, double noise, int *noisy)
{
    double best = INFINITY;
    for (int tries = 0; tries < TRIES; tries++) {
        double t[REPEATS];
        for (int i = -1; i < REPEATS; i++) { /* the first only makes what a call needs */
            const int times = c->bytes < 65536 ? 8 : 1;
            MPI_Barrier(w->mpi);
            const double seconds = world_max(w, comm ? world_run(w, comm, c, &ring, send, recv, times) : 0);
            if (i >= 0)
                t[i] = seconds;
        }
        const struct stats s = stats_of(t, REPEATS);
        if (2 * s.spread <= noise * s.median)
            return s.median;
        best = s.median < best ? s.median : best;
    }
    ++*noisy;
    return best;
}

/* Seconds in which a slice is encoded and decoded, which nothing overlaps with. */
static double first_slice(const struct model_machine *m, uint64_t bytes)
{
    double slice = (double)bytes / 4;
    slice = slice > LEAST_SLICE ? slice : LEAST_SLICE;
    slice = slice < (double)bytes ? slice : (double)bytes;
    slice = slice < SLICE * sizeof(float) ? slice : SLICE * sizeof(float);
    return pici_model_codec(m, PICI_DENSE, MODEL_ENCODE, PICI_F32, slice / 4, 1) +
           pici_model_codec(m, PICI_DENSE, MODEL_DECODE, PICI_F32, slice / 4, 1);
}

/* A link by exchanges between pairs of ranks; color < 0: this rank has none. together: pairs of the same two nodes. */
static struct model_link measure_link(const struct world *w, const struct model_machine *m, int color, const char *what,
                                      double end, double noise)
{
    static const uint64_t sizes[SIZES] = {1024, 4096, 16384, 65536, 1 << 20, 4 << 20, 16 << 20};
    struct pici_comm *comm = world_split(w, color);
    float *send = calloc(sizes[SIZES - 1], 1), *recv = calloc(2, sizes[SIZES - 1]);
    double x[SIZES], y[SIZES], took[SIZES];
    int n = 0, noisy = 0;
    struct line l, low, high;
    if (!send || !recv)
        world_die(w, "no memory to measure links");
    const struct call empty = {.kind = PICI_ALL_GATHER};
    const double nothing = call_seconds(w, comm, &empty, send, recv, noise, &noisy);
    for (; n < SIZES && (n <= SHORT || world_said(w, end - MPI_Wtime()) > 0); n++) {
        const struct call c = {.kind = PICI_ALL_GATHER, .count = sizes[n] / sizeof(float), .bytes = 2 * sizes[n]};
        took[n] = call_seconds(w, comm, &c, send, recv, noise, &noisy);
        x[n] = (double)sizes[n];
        y[n] = took[n] - nothing - first_slice(m, sizes[n]);
    }
    const double error = stats_line(&l, x, y, took, n), in_low = stats_line(&low, x, y, took, SHORT),
                 in_high = stats_line(&high, x + SHORT, y + SHORT, took + SHORT, n - SHORT),
                 apart = sqrt((in_low * in_low * SHORT + in_high * in_high * (n - SHORT)) / n);
    const int two = n - SHORT >= 2 && (2 * apart < error || l.a <= 0);
    if (two) { /* seconds a message matter for short ones, seconds a byte for long ones */
        l.a = low.a;
        l.b = high.b;
    }
    world_say(w, "%s: %.3g us + %.3g ns a KiB%s%s", what, l.a * 1e6, l.b * 1e9 * 1024,
              two ? "; messages above 64 KiB lie on another line than shorter ones, as by an eager limit of MPI" : "",
              noisy ? " (noisy: the fastest of several tries)" : "");
    pici_comm_free(comm);
    free(send);
    free(recv);
    return (struct model_link){l.a, l.b};
}

static void calibrate_links(struct world *w, struct model_machine *m, double end, double noise)
{
    const int node = w->node_of[w->rank], local = local_of(w, w->rank);
    int large = 0; /* a node with several ranks */
    while (large < w->nodes.nodes && size_of(w, large) < 2)
        large++;
    if (large < w->nodes.nodes)
        m->link[POLICY_INTRA] =
            measure_link(w, m, node == large && local < 2 ? 0 : -1, "link inside a node", end, noise);
    if (w->nodes.nodes < 2) {
        m->link[POLICY_INTER] = m->link[POLICY_INTRA];
        m->node_beta = 0;
        return;
    }
    const int pair = node / 2, odd = node == w->nodes.nodes - 1 && node % 2 == 0; /* without a partner */
    m->link[POLICY_INTER] = measure_link(w, m, !odd && local == 0 ? pair : -1, "link between nodes", end, noise);
    m->node_beta = m->link[POLICY_INTER].beta;
    const int pairs = size_of(w, 0) < size_of(w, 1) ? size_of(w, 0) : size_of(w, 1);
    if (pairs > 1)
        m->node_beta =
            measure_link(w, m, !odd && local < pairs && local < size_of(w, node ^ 1) ? pair * pairs + local : -1,
                         "the same, by all ranks of the nodes at once", end, noise)
                .beta /
            pairs;
    if (large == w->nodes.nodes)
        m->link[POLICY_INTRA] = m->link[POLICY_INTER]; /* there is none */
}

void calibrate(struct world *w, struct model_machine *m, double seconds, double noise)
{
    const double begin = MPI_Wtime();
    int noisy = 0;
    const struct call empty = {.kind = PICI_ALL_REDUCE};
    m->cores = w->cores;
    calibrate_codec(w, m, seconds > 2 ? REPEATS : 1);
    m->agree = call_seconds(w, w->comm, &empty, NULL, NULL, noise, &noisy);
    m->agree_ranks = w->ranks;
    world_say(w, "hello and closing among %d ranks: %.3g us%s", w->ranks, m->agree * 1e6, noisy ? " (noisy)" : "");
    calibrate_links(w, m, begin + seconds, noise);
}
