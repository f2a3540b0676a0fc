/* SPDX-License-Identifier: BSD-3-Clause */
#include "coll/options.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "bytes.h"
#include "coll/note.h"
#include "coll/rules.h"
#include "format.h"
#include "schedule/registry.h"
#include "sized.h"
#include "xxh64.h"

enum { OPTS_FIRST = offsetof(struct pici_coll_opts, inter_bandwidth) };

_Static_assert(PICI_PACKED < PICI_FORMATS_ROOM, "the arrays of struct pici_coll_stats never grow");

/* Until 0.2 these arrays had one entry for each format or container. */
static const struct sized_layout stats_0_2 = {offsetof(struct pici_coll_stats, wire_bytes) + 9 * 8,
                                              offsetof(struct pici_coll_stats, wire_bytes) + 20 * 8,
                                              {{offsetof(struct pici_coll_stats, wire_bytes), (2 + 4) * 8},
                                               {offsetof(struct pici_coll_stats, encode_s), (3 + 5) * 8},
                                               {offsetof(struct pici_coll_stats, inter_bytes), 6 * 8}}};

/* Defaults. */
enum {
    SLICE = 1 << 20,
    SLICE_ON_GPU = 8 << 20 /* if messages are in GPU memory: the host takes longer to begin a message, and a window
                            * of them should fill a GPU */
};
static const double LATENCY = 50e-6; /* seconds of a message */

void pici_options_stats(struct pici_coll_stats *theirs, const struct pici_coll_stats *stats)
{
    (void)sized_write_either(theirs, stats, sizeof *stats, sizeof *stats, &stats_0_2); /* its size was checked */
}

enum pici_status pici_options_check(struct pici_coll_opts *checked, const struct pici_comm *comm,
                                    const struct call_args *args, const struct pici_coll_opts *options)
{
    static const struct pici_coll_opts defaults = PICI_COLL_OPTS_INIT;
    if (!comm)
        return PICI_E_ARG;
    *checked = defaults;
    enum pici_status status = options ? sized_read(checked, sizeof *checked, OPTS_FIRST, options) : PICI_OK;
    if (status)
        return status;
    if (checked->stats && !sized_either(checked->stats->size, sizeof *checked->stats, &stats_0_2))
        return PICI_E_ARG;
    if (!args->rules->algorithms && (checked->algorithm || checked->zeros))
        return PICI_E_UNSUPPORTED;
    if (!pici_dtype_width(args->dtype) || (unsigned)args->op > PICI_MAX ||
        (checked->algorithm && !pici_schedule_for(checked->algorithm, args->kind)) ||
        ((unsigned)checked->format > PICI_HYBRID && checked->format != PICI_AUTO) ||
        checked->formats >> (PICI_HYBRID + 1) || (unsigned)checked->zeros > PICI_ZEROS_BY_VALUE ||
        (unsigned)checked->pack > PICI_PACKING_PLANES || (unsigned)checked->balance > PICI_BALANCE_OFF ||
        (checked->zeros && !coll_gathers(args->kind) && (args->op == PICI_MIN || args->op == PICI_MAX)))
        return PICI_E_UNSUPPORTED;
    struct values values;
    status = pici_values_resolve(&values, checked->values, args->dtype, args->op);
    if (!status && values.phases && !args->rules->codecs)
        return PICI_E_UNSUPPORTED;
    status = status ? status : pici_values_count(&values, args->count);
    if (status)
        return status;
    return comm->broken || comm->generation != pici_coll_generation() ? PICI_E_BROKEN : PICI_OK;
}

/* An error message for the first option that is a NaN or out of range; NULL: there is none. */
static const char *number_wrong(const struct pici_coll_opts *options, char *explanation, size_t bytes)
{
    const struct {
        const char *name, *allowed;
        double value, low, high;
    } option[] = {{"window", "0 to 64", options->window, 0, COLL_MAX_WINDOW},
                  {"density", "0 to 1", options->density, 0, 1},
                  {"latency", "0 to 3600", options->latency, 0, 3600},
                  {"inter_threshold", "a number", (double)options->inter_threshold, -HUGE_VAL, HUGE_VAL},
                  {"intra_threshold", "a number", (double)options->intra_threshold, -HUGE_VAL, HUGE_VAL},
                  {"ag_threshold", "a number", (double)options->ag_threshold, -HUGE_VAL, HUGE_VAL},
                  {"inter_bandwidth", "0 or more", options->inter_bandwidth, 0, HUGE_VAL},
                  {"intra_bandwidth", "0 or more", options->intra_bandwidth, 0, HUGE_VAL}};
    _Static_assert(COLL_MAX_WINDOW == 64, "a message says so");
    for (size_t i = 0; i < sizeof option / sizeof *option; i++)
        if (!(option[i].value >= option[i].low && option[i].value <= option[i].high)) { /* or a NaN */
            snprintf(explanation, bytes, "the option %s is %g, which is not %s", option[i].name, option[i].value,
                     option[i].allowed);
            return explanation;
        }
    return NULL;
}

/* A hash of the data that the choice of an algorithm depends on, besides the call itself; 0: none. */
static uint64_t basis_of(const struct coll_call *call, const struct pici_comm *comm,
                         const struct pici_coll_opts *options)
{
    uint64_t hash = comm->chooser->tune.hash;
    /* times of such calls are not predicted */
    if (call->opts.values.phases || !call->args.rules->choice)
        return 0;
    if (!comm->chooser->tuned) {
        uint8_t bandwidth[POLICY_LINKS * 8];
        if (call->opts.algorithm || !(options->density > 0 || options->latency > 0))
            return 0;
        for (int i = 0; i < POLICY_LINKS; i++)
            store_le64(bandwidth + 8 * i, double_bits(call->opts.bandwidth[i]));
        hash = pici_xxh64(bandwidth, sizeof bandwidth, 0);
    }
    return hash ? hash : 1;
}

/* A threshold: the call's, the settings', or a tune file's, which assumes the fastest sparse format; < 0: built in. */
static float threshold_of(float said, float set, const struct pici_comm *comm, enum pici_format format,
                          enum tune_threshold which)
{
    if (said >= 0)
        return said;
    return set >= 0 || format == PICI_COO || format == PICI_DENSE ? set
                                                                  : pici_tune_threshold(&comm->chooser->tune, which);
}

/* Merge a call's options with the settings, which are its defaults. */
static void merge(struct call_opts *merged, const struct coll_call *call, const struct pici_comm *comm,
                  const struct pici_coll_opts *options)
{
    const struct coll_settings *defaults = &comm->settings;
    const uint64_t usual_slice = comm->transport.memory == PICI_MEMORY_DEVICE ? SLICE_ON_GPU : SLICE;
    const struct policy_thresholds said = {{options->inter_threshold, options->intra_threshold}, options->ag_threshold};
    const double bandwidth[] = {options->inter_bandwidth, options->intra_bandwidth};
    const int choice = call->args.rules->choice;
    merged->residual = merged->values.phases ? options->values->residual : NULL;
    merged->algorithm = options->algorithm;
    if (merged->algorithm == PICI_ALGO_AUTO && pici_schedule_for(defaults->algorithm, call->args.kind))
        merged->algorithm = defaults->algorithm;
    merged->format = options->format != PICI_AUTO ? options->format : defaults->format;
    merged->formats = options->formats ? options->formats : defaults->formats;
    /* 0: all */
    if (!merged->formats)
        merged->formats = ~0u;
    merged->timeout_ms = options->timeout_ms ? options->timeout_ms : defaults->timeout_ms;
    merged->checksum = options->checksum ? options->checksum > 0 : defaults->checksum;
    merged->window = options->window ? options->window : defaults->window;
    merged->slice_bytes = options->slice_bytes ? options->slice_bytes : defaults->slice_bytes;
    if (!merged->slice_bytes)
        merged->slice_bytes = usual_slice;
    merged->density = options->density > 0 ? options->density : 0; /* -0.0 is 0 on all ranks */
    merged->latency = options->latency > 0 ? options->latency : LATENCY;
    merged->agree = options->agree > 0;
    merged->native = choice && !merged->values.phases && (options->native ? options->native > 0 : defaults->native);
    merged->history = choice && defaults->history;
    merged->known = defaults->known;
    merged->pack = options->pack ? options->pack : defaults->pack;
    merged->balance = options->balance ? options->balance : defaults->balance;
    if (merged->values.phases || !fmt_is_float((unsigned)call->args.dtype) || !(merged->formats >> PICI_HYBRID & 1) ||
        (merged->format != PICI_AUTO && merged->format != PICI_HYBRID))
        merged->pack = PICI_PACKING_NONE;
    merged->scratch = options->scratch;
    merged->scratch_bytes = options->scratch ? options->scratch_bytes : 0;
    merged->stats = options->stats;
    merged->threshold.gather = threshold_of(said.gather, defaults->threshold.gather, comm, merged->format, TUNE_GATHER);
    for (int i = 0; i < POLICY_LINKS; i++) {
        merged->threshold.reduce[i] =
            threshold_of(said.reduce[i], defaults->threshold.reduce[i], comm, merged->format, (enum tune_threshold)i);
        merged->bandwidth[i] = bandwidth[i] > 0 ? bandwidth[i] : defaults->bandwidth[i];
        merged->known |= (unsigned)(bandwidth[i] > 0) << i;
    }
}

/* Whether -0.0 counts as +0.0: in sums of floats, and on request in gathers. */
static int is_by_value(const struct call_args *args, const struct pici_coll_opts *options)
{
    if (!fmt_is_float((unsigned)args->dtype))
        return 0;
    if (coll_gathers(args->kind))
        return options->zeros == PICI_ZEROS_BY_VALUE;
    return args->op == PICI_SUM || args->op == PICI_AVG;
}

enum pici_status pici_options_resolve(struct coll_call *call, const struct pici_comm *comm,
                                      const struct pici_coll_opts *options, char *reason, size_t bytes)
{
    const struct call_args *args = &call->args;
    struct call_resolved *resolved = &call->resolved;
    struct values *values = &call->opts.values;
    char explanation[160];

    /* the codec of elements in messages */
    enum pici_status status = pici_values_resolve(values, options->values, args->dtype, args->op);
    if (status) { /* never: it was checked */
        snprintf(reason, bytes, "the option values: %s", pici_strerror(status));
        return status;
    }

    /* what follows from the arguments alone; the rules of the collective may change it */
    resolved->width = pici_dtype_width(args->dtype);
    resolved->by_value = is_by_value(args, options);
    resolved->said = (struct call_said){.kind = args->kind, .op = args->op, .count = args->count};
    resolved->agreement = AGREE_CALL;
    resolved->stored = COLL_DENSE;
    resolved->closing = 1;
    values->positive = resolved->by_value && values->codec == &pici_codec_cast;

    /* the requests of options and settings, and the basis of the algorithm's choice */
    merge(&call->opts, call, comm, options);
    resolved->basis = basis_of(call, comm, options);

    /* the number of elements, and errors on this rank */
    const char *wrong = args->rules->count(call, comm, explanation, sizeof explanation);
    if (!wrong)
        wrong = number_wrong(options, explanation, sizeof explanation);
    if (!wrong)
        return PICI_OK;
    snprintf(reason, bytes, "%s", wrong);
    return PICI_E_ARG;
}
