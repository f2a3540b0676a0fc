/* SPDX-License-Identifier: BSD-3-Clause
 *
 * All measurements go through the library, since its sleeps and overhead count too.
 *
 * Codec: each rank works on slices of the default size, more of them than fit in a cache, while all other ranks of the
 * job do the same. The clock counts, from a common start to the end of the slowest rank. So the time includes sharing:
 * of a node's cores, and of a machine that several "nodes" share, as containers do. The model multiplies by the ranks
 * per core of a node, so this factor is divided out.
 *
 * Links: two ranks make a communicator and all-gather dense data, so that each sends `bytes` to the other. All pairs of
 * nodes do so at once. From this time, we subtract the time of an empty call, and the time to encode and decode the
 * first slice. The rest is alpha + beta * bytes; the remaining encoding and decoding overlaps. */
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
    SHORT = 4,             /* number of sizes up to 64 KiB */
    LEAST_SLICE = 64 << 10 /* dense bytes; the library does not cut segments below this */
};
static const double SHARED = 1.5; /* above this multiple of the ranks per core: other programs, or other nodes share the
                                   * cores */

/* ---- codec */

struct codec_bench {
    const struct world *world;
    float *source, *target; /* [SLICES * SLICE] */
    uint8_t *blocks;        /* [SLICES * bound] */
    struct pici_block parsed[SLICES];
    size_t bound, sizes[SLICES];
    void *scratch;
    enum pici_format format;
    int rounds;
    double scale;      /* ranks per core of a node, as in the model */
    double clock, cpu; /* seconds of all measurements: wall clock, and CPU time of this thread */
};

/* The CPU time of this thread, in seconds. */
static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void work_on(struct codec_bench *bench, enum model_work work, int slice)
{
    const struct pici_engine *engine = &pici_engine_host;
    const void *source = bench->source + (size_t)slice * SLICE;
    uint8_t *block = bench->blocks + (size_t)slice * bench->bound;
    float *target = bench->target + (size_t)slice * SLICE;
    const uint64_t count = SLICE;
    const struct engine_array array = {.dtype = PICI_F32,
                                       .format = bench->format,
                                       .by_value = bench->format != PICI_PACKED, /* packed data is mostly dense */
                                       .unpacked = PICI_PACKED};
    uint64_t nonzeros;
    enum pici_status status = PICI_OK;
    switch (work) {
    case MODEL_COUNT: engine->count(NULL, &source, &count, 1, &array, 1, &nonzeros); break;
    case MODEL_ENCODE:
        status = engine->encode(NULL, block, 0, bench->bound, &bench->sizes[slice], &source, &count, 1, &array, 1, 1);
        break;
    case MODEL_ADD:
        status = engine->reduce(NULL, target, block, &bench->parsed[slice], PICI_SUM, bench->scratch,
                                COLL_TEMP_BYTES / sizeof(float));
        break;
    case MODEL_DECODE:
        status = engine->decode(NULL, target, block, &bench->parsed[slice], (uint64_t)SLICES * SLICE);
        break;
    case MODEL_WORKS: break;
    }
    if (status)
        world_die(bench->world, "the codec: %s", pici_strerror(status));
}

/* Nanoseconds per tile: the median of several rounds over all slices. The slowest rank determines each round's time. */
static double tile_ns(struct codec_bench *bench, enum model_work work)
{
    double ns[REPEATS];
    for (int round = 0; round < bench->rounds; round++) {
        MPI_Barrier(bench->world->mpi);
        const double begin = MPI_Wtime(), cpu = cpu_seconds();
        for (int i = 0; i < SLICES; i++)
            work_on(bench, work, i);
        bench->cpu += cpu_seconds() - cpu;
        const double seconds = world_max(bench->world, MPI_Wtime() - begin);
        bench->clock += seconds;
        ns[round] = seconds / bench->scale * 1e9 * TILE_ELEMENTS / ((double)SLICES * SLICE);
    }
    return stats_quantile(ns, bench->rounds, 0.5);
}

/* Sets the codec times for data of this density. Point -1: without nonzeros; other points: in addition to that. */
static void codec_point(struct codec_bench *bench, struct model_machine *machine, int point, uint64_t *state)
{
    world_fill(bench->source, (uint64_t)SLICES * SLICE, point < 0 ? 0 : pici_model_points[point], state);
    for (int format = PICI_DENSE; format < MODEL_FORMATS; format++) {
        bench->format = (enum pici_format)format;
        for (int work = MODEL_COUNT; work < MODEL_WORKS; work++) {
            if (work == MODEL_COUNT && format != PICI_DENSE)
                continue;
            struct model_codec *codec = &machine->codec[format][work];
            const double ns = tile_ns(bench, (enum model_work)work);
            if (point < 0)
                codec->empty = ns;
            else
                codec->more[point] = ns > codec->empty ? ns - codec->empty : 0;
            for (int i = 0; i < SLICES && work == MODEL_ENCODE; i++)
                if (pici_block_parse(&bench->parsed[i], bench->blocks + (size_t)i * bench->bound, bench->sizes[i],
                                     NULL))
                    world_die(bench->world, "a block cannot be read");
        }
    }
}

/* The index of a rank within its node. */
static int local_of(const struct world *world, int rank)
{
    int local = 0;
    for (int other = 0; other < rank; other++)
        local += world->node_of[other] == world->node_of[rank];
    return local;
}

static int size_of(const struct world *world, int node)
{
    return world->nodes.begin[node + 1] - world->nodes.begin[node];
}

static void calibrate_codec(const struct world *world, struct model_machine *machine, int rounds)
{
    struct codec_bench bench = {.world = world, .rounds = rounds, .scale = world_ranks_a_core(world)};
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)world->rank;
    for (int format = PICI_DENSE; format < MODEL_FORMATS; format++) {
        const size_t bound = pici_bound((enum pici_format)format, PICI_F32, SLICE);
        bench.bound = bound > bench.bound ? bound : bench.bound;
    }
    bench.bound = (bench.bound + COLL_ALIGN - 1) / COLL_ALIGN * COLL_ALIGN;
    bench.source = malloc((size_t)SLICES * SLICE * sizeof *bench.source);
    bench.target = malloc((size_t)SLICES * SLICE * sizeof *bench.target);
    bench.blocks = malloc(SLICES * bench.bound);
    bench.scratch = malloc(COLL_TEMP_BYTES);
    if (!bench.source || !bench.target || !bench.blocks || !bench.scratch)
        world_die(world, "no memory to measure the codec");
    memset(bench.target, 0, (size_t)SLICES * SLICE * sizeof *bench.target);
    machine->packed_measured = 1;
    for (int point = -1; point < MODEL_POINTS; point++)
        codec_point(&bench, machine, point, &state);
    const double shared = bench.clock / world_max(world, bench.cpu);
    world_say(
        world, "codec: by all ranks at once, %.1f times the processor's time; ranks that share a core explain %.1f%s",
        shared, bench.scale,
        shared > SHARED * bench.scale ? ". Nodes share cores, or other programs run: the file holds for as many ranks "
                                        "as now"
                                      : "");
    free(bench.source);
    free(bench.target);
    free(bench.blocks);
    free(bench.scratch);
}

/* ---- calls */

static const struct model_candidate ring = {.algorithm = PICI_ALGO_RING, .dense = 1};

/* The median seconds of several calls; the slowest rank determines the time of each. A rank without a communicator
 * waits. Repeats noisy measurements; if all are noisy, the fastest counts, since noise only makes calls slower. */
static double call_seconds(const struct world *world, struct pici_comm *comm, const struct call *call,
                           const float *send, float *recv, double noise, int *noisy)
{
    double best = INFINITY;
    for (int tries = 0; tries < TRIES; tries++) {
        double seconds_of[REPEATS];
        for (int i = -1; i < REPEATS; i++) { /* -1: warms up */
            const int times = call->bytes < 65536 ? 8 : 1;
            MPI_Barrier(world->mpi);
            const double seconds = world_max(world, comm ? world_run(world, comm, call, &ring, send, recv, times) : 0);
            if (i >= 0)
                seconds_of[i] = seconds;
        }
        const struct stats stats = stats_of(seconds_of, REPEATS);
        if (2 * stats.spread <= noise * stats.median)
            return stats.median;
        best = stats.median < best ? stats.median : best;
    }
    ++*noisy;
    return best;
}

/* The seconds to encode and decode the first slice, which overlap with nothing. */
static double first_slice(const struct model_machine *machine, uint64_t bytes)
{
    double slice = (double)bytes / 4;
    slice = slice > LEAST_SLICE ? slice : LEAST_SLICE;
    slice = slice < (double)bytes ? slice : (double)bytes;
    slice = slice < SLICE * sizeof(float) ? slice : SLICE * sizeof(float);
    return pici_model_codec(machine, PICI_DENSE, MODEL_ENCODE, PICI_F32, slice / 4, 1) +
           pici_model_codec(machine, PICI_DENSE, MODEL_DECODE, PICI_F32, slice / 4, 1);
}

/* The line through the seconds of messages, whose errors count as fractions of what was measured. *bent: short messages
 * determine the seconds per message, long ones the seconds per byte. */
static struct line fit_link(const double *bytes, const double *seconds, const double *measured, int count, int *bent)
{
    struct line line, low, high;
    const double error = stats_line(&line, bytes, seconds, measured, count),
                 in_low = stats_line(&low, bytes, seconds, measured, SHORT),
                 in_high = stats_line(&high, bytes + SHORT, seconds + SHORT, measured + SHORT, count - SHORT),
                 apart = sqrt((in_low * in_low * SHORT + in_high * in_high * (count - SHORT)) / count);
    *bent = count - SHORT >= 2 && (2 * apart < error || line.intercept <= 0);
    return *bent ? (struct line){.intercept = low.intercept, .slope = high.slope} : line;
}

/* Measures a link by exchanges between pairs of ranks. color: this rank's pair; < 0: it has none. */
static struct model_link measure_link(const struct world *world, const struct model_machine *machine, int color,
                                      const char *what, double end, double noise)
{
    static const uint64_t sizes[SIZES] = {1024, 4096, 16384, 65536, 1 << 20, 4 << 20, 16 << 20};
    struct pici_comm *comm = world_split(world, color);
    float *send = calloc(sizes[SIZES - 1], 1), *recv = calloc(2, sizes[SIZES - 1]);
    double bytes[SIZES], seconds[SIZES], measured[SIZES];
    int count = 0, noisy = 0;
    if (!send || !recv)
        world_die(world, "no memory to measure links");
    const struct call empty = {.kind = PICI_ALL_GATHER};
    const double nothing = call_seconds(world, comm, &empty, send, recv, noise, &noisy);
    for (; count < SIZES && (count <= SHORT || world_said(world, end - MPI_Wtime()) > 0); count++) {
        const struct call call = {
            .kind = PICI_ALL_GATHER, .count = sizes[count] / sizeof(float), .bytes = 2 * sizes[count]};
        measured[count] = call_seconds(world, comm, &call, send, recv, noise, &noisy);
        bytes[count] = (double)sizes[count];
        seconds[count] = measured[count] - nothing - first_slice(machine, sizes[count]);
    }
    int two;
    struct line line = fit_link(bytes, seconds, measured, count, &two);
    /* By the codec's time the link takes none: other programs ran while the codec was measured. */
    const int slow = line.slope <= 0;
    if (slow)
        line = fit_link(bytes, measured, measured, count, &two);
    const char *const bent =
        two ? "; messages above 64 KiB lie on another line than shorter ones, as by an eager limit of MPI" : "";
    world_say(world, "%s: %.3g us + %.3g ns a KiB%s%s%s", what, line.intercept * 1e6, line.slope * 1e9 * 1024, bent,
              slow ? "; the codec's time is in it, since the codec alone took longer: other programs run" : "",
              noisy ? " (noisy: the fastest of several tries)" : "");
    pici_comm_free(comm);
    free(send);
    free(recv);
    return (struct model_link){line.intercept, line.slope};
}

static void calibrate_links(struct world *world, struct model_machine *machine, double end, double noise)
{
    const int node = world->node_of[world->rank], local = local_of(world, world->rank);
    int large = 0; /* a node with several ranks */
    while (large < world->nodes.nodes && size_of(world, large) < 2)
        large++;
    if (large < world->nodes.nodes)
        machine->link[POLICY_INTRA] =
            measure_link(world, machine, node == large && local < 2 ? 0 : -1, "link inside a node", end, noise);
    if (world->nodes.nodes < 2) {
        machine->link[POLICY_INTER] = machine->link[POLICY_INTRA];
        machine->node_beta = 0;
        return;
    }
    const int pair = node / 2, odd = node == world->nodes.nodes - 1 && node % 2 == 0; /* the last node, without a
                                                                                       * partner */
    machine->link[POLICY_INTER] =
        measure_link(world, machine, !odd && local == 0 ? pair : -1, "link between nodes", end, noise);
    machine->node_beta = machine->link[POLICY_INTER].beta;
    const int pairs = size_of(world, 0) < size_of(world, 1) ? size_of(world, 0) : size_of(world, 1);
    if (pairs > 1)
        machine->node_beta =
            measure_link(world, machine,
                         !odd && local < pairs && local < size_of(world, node ^ 1) ? pair * pairs + local : -1,
                         "the same, by all ranks of the nodes at once", end, noise)
                .beta /
            pairs;
    if (large == world->nodes.nodes)
        machine->link[POLICY_INTRA] = machine->link[POLICY_INTER]; /* no link inside a node */
}

void calibrate(struct world *world, struct model_machine *machine, double seconds, double noise)
{
    const double begin = MPI_Wtime();
    int noisy = 0;
    const struct call empty = {.kind = PICI_ALL_REDUCE};
    machine->cores = world->cores;
    calibrate_codec(world, machine, seconds > 2 ? REPEATS : 1);
    machine->agree = call_seconds(world, world->comm, &empty, NULL, NULL, noise, &noisy);
    machine->agree_ranks = world->ranks;
    world_say(world, "agreement among %d ranks: %.3g us%s", world->ranks, machine->agree * 1e6,
              noisy ? " (noisy)" : "");
    calibrate_links(world, machine, begin + seconds, noise);
}
