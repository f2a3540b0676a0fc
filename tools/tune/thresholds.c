/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages: compares the seconds of a slice as dense and as hybrid: transfer, encoding, and adding or decoding. Uses
 * the constants measured just before, and sparsities in steps of 1/64.
 *
 * Streams: pairs of ranks all-reduce streams at once, of several lengths and densities, with slices that are never
 * dense and with slices that always are. For a length, the threshold is the density at which both take the same time.
 * The result is the geometric mean over the lengths. */
#define _POSIX_C_SOURCE 200809L
#include "thresholds.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "pici/stream.h"
#include "stats.h"

/* ---- messages */

static double message_seconds(const struct model_machine *machine, enum pici_format format, enum policy_link link,
                              int gather, double density, double sharing)
{
    const uint64_t elements = (1 << 20) / sizeof(float), nonzeros = (uint64_t)((double)elements * density);
    const enum model_work take = gather ? MODEL_DECODE : MODEL_ADD;
    const double codec =
        pici_model_codec(machine, format, MODEL_ENCODE, PICI_F32, (double)elements, density) +
        pici_model_codec(machine, format, take, PICI_F32, (double)elements, format == PICI_DENSE ? 1 : density);
    return sharing * codec +
           machine->link[link].beta * (double)pici_policy_bytes(format, PICI_F32, &elements, &nonzeros, 1);
}

/* The highest sparsity at which a dense message is not slower, there and at all lower sparsities. */
static float message_threshold(const struct model_machine *machine, enum policy_link link, int gather, double sharing)
{
    enum { STEPS = 64 };
    float threshold = 0;
    for (int i = 0; i < STEPS; i++) {
        const double density = 1 - (double)i / STEPS;
        if (message_seconds(machine, PICI_DENSE, link, gather, density, sharing) >
            message_seconds(machine, PICI_HYBRID, link, gather, density, sharing))
            break;
        threshold = (float)i / STEPS;
    }
    return threshold;
}

/* ---- streams */

enum { LENGTHS = 3, DENSITIES = 8, REPEATS = 5, FORMS = 2 };
static const uint64_t lengths[LENGTHS] = {1 << 14, 1 << 17, 1 << 20};

/* Makes a stream: rising positions, with random gaps. Returns their number. */
static uint64_t make_stream(const struct world *world, float *dense, uint32_t *indices, float *values, uint64_t n,
                            double density)
{
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)world->rank, nonzeros = 0;
    world_fill(dense, n, density, &state);
    for (uint64_t i = 0; i < n; i++)
        if (dense[i] > 0) {
            indices[nonzeros] = (uint32_t)i;
            values[nonzeros++] = dense[i];
        }
    return nonzeros;
}

/* The seconds of a call on the slowest rank. Ranks without a communicator wait. */
static double stream_seconds(const struct world *world, struct pici_comm *comm, const struct pici_stream *in)
{
    struct pici_stream_out out = PICI_STREAM_OUT_INIT;
    MPI_Barrier(world->mpi);
    const double begin = MPI_Wtime();
    const enum pici_status status = comm ? pici_all_reduce_stream(in, &out, PICI_F32, PICI_SUM, comm, NULL) : PICI_OK;
    const double took = MPI_Wtime() - begin;
    if (status)
        world_die(world, "a stream: %s: %s", pici_strerror(status), pici_comm_error(comm));
    pici_stream_free(&out);
    return world_max(world, took);
}

/* The density of sums at which lists and dense slices take the same time; above 1: lists are never slower. */
static double crossing(const struct world *world, struct pici_comm *const comm[FORMS], uint64_t n, float *dense,
                       uint32_t *indices, float *values)
{
    double below = 0, below_ratio = 0; /* the last density at which lists were faster, and dense / list there */
    for (int i = 0; i < DENSITIES; i++) {
        const double density = 1.0 / (1 << (DENSITIES - i)), of_sum = pici_model_density(density, 2, 1);
        struct pici_stream in = PICI_STREAM_INIT;
        double seconds_of[FORMS][REPEATS], median[FORMS];
        in.n = n;
        in.nnz = make_stream(world, dense, indices, values, n, density);
        in.indices = indices;
        in.index_width = sizeof *indices;
        in.values = values;
        for (int repeat = -1; repeat < REPEATS; repeat++) /* -1: warms up */
            for (int form = 0; form < FORMS; form++) {
                const double seconds = stream_seconds(world, comm[form], &in);
                if (repeat >= 0)
                    seconds_of[form][repeat] = seconds;
            }
        for (int form = 0; form < FORMS; form++)
            median[form] = stats_quantile(seconds_of[form], REPEATS, 0.5);
        const double ratio = median[1] / median[0];
        if (ratio <= 1) { /* interpolate linearly in logarithms */
            const double part = below > 0 ? log(below_ratio) / (log(below_ratio) - log(ratio)) : 1;
            return below > 0 ? below * pow(of_sum / below, part) : of_sum;
        }
        below = of_sum;
        below_ratio = ratio;
    }
    return 2;
}

static void find_stream(const struct world *world, struct tune_thresholds *thresholds, double end, uint64_t most)
{
    static const char *const form_of[FORMS] = {"0", "1"}; /* slices: never dense; always dense */
    const char variable[] = "PICI_STREAM_THRESHOLD";
    struct pici_comm *comm[FORMS];
    double sum = 0;
    int measured = 0;
    if (world_said(world, getenv(variable) ? 1 : 0) > 0) /* programs have this setting too */
        return;
    for (int form = 0; form < FORMS; form++) {
        setenv(variable, form_of[form], 1);
        comm[form] = world_split(world, world->rank < world->ranks / 2 * 2 ? world->rank / 2 : -1);
    }
    unsetenv(variable);
    float *dense = malloc(lengths[LENGTHS - 1] * sizeof *dense), *values = malloc(lengths[LENGTHS - 1] * sizeof *dense);
    uint32_t *indices = malloc(lengths[LENGTHS - 1] * sizeof *indices);
    if (!dense || !values || !indices)
        world_die(world, "no memory to measure streams");
    for (int i = 0; i < LENGTHS; i++) {
        if (i && (lengths[i] * sizeof(float) > most || world_said(world, end - MPI_Wtime()) <= 0))
            break;
        const double density = crossing(world, comm, lengths[i], dense, indices, values);
        sum += log(density < 1 ? density : 1);
        measured++;
    }
    thresholds->at[TUNE_STREAM] = (float)(1 - exp(world_said(world, sum / measured)));
    thresholds->said |= 1u << TUNE_STREAM;
    for (int form = 0; form < FORMS; form++)
        pici_comm_free(comm[form]);
    free(dense);
    free(values);
    free(indices);
}

void thresholds_find(const struct world *world, const struct model_machine *machine, struct tune_thresholds *thresholds,
                     double end, uint64_t most)
{
    const double sharing = world_ranks_a_core(world);
    const enum policy_link gathered = world->nodes.nodes > 1 ? POLICY_INTER : POLICY_INTRA;
    char streams[48] = "";
    thresholds->at[TUNE_INTER] = message_threshold(machine, POLICY_INTER, 0, sharing);
    thresholds->at[TUNE_INTRA] = message_threshold(machine, POLICY_INTRA, 0, sharing);
    thresholds->at[TUNE_GATHER] = message_threshold(machine, gathered, 1, sharing);
    thresholds->said = 1u << TUNE_INTER | 1u << TUNE_INTRA | 1u << TUNE_GATHER;
    find_stream(world, thresholds, end, most);
    if (thresholds->said >> TUNE_STREAM & 1)
        snprintf(streams, sizeof streams, "; slices of streams %.1f%%",
                 100 * (1 - (double)thresholds->at[TUNE_STREAM]));
    world_say(world, "dense from: %.1f%% nonzeros to another node, %.1f%% inside one, %.1f%% gathered%s",
              100 * (1 - (double)thresholds->at[TUNE_INTER]), 100 * (1 - (double)thresholds->at[TUNE_INTRA]),
              100 * (1 - (double)thresholds->at[TUNE_GATHER]), streams);
}
