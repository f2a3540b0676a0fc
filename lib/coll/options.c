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

_Static_assert(PICI_HYBRID < PICI_FORMATS_ROOM, "the arrays of struct pici_coll_stats never grow");

/* Until 0.2 they were as long as there were formats and containers. */
static const struct sized_layout stats_0_2 = {offsetof(struct pici_coll_stats, wire_bytes) + 9 * 8,
                                              offsetof(struct pici_coll_stats, wire_bytes) + 20 * 8,
                                              {{offsetof(struct pici_coll_stats, wire_bytes), (2 + 4) * 8},
                                               {offsetof(struct pici_coll_stats, encode_s), (3 + 5) * 8},
                                               {offsetof(struct pici_coll_stats, inter_bytes), 6 * 8}}};

/* By default. */
enum {
    SLICE = 1 << 20,
    SLICE_ON_GPU = 8 << 20 /* where messages are on GPUs: a message takes the host longer to begin, and a window of them
                            * is to fill a GPU */
};
static const double LATENCY = 50e-6; /* seconds of a message, if the caller does not say */

void pici_options_stats(struct pici_coll_stats *theirs, const struct pici_coll_stats *stats)
{
    (void)sized_write_either(theirs, stats, sizeof *stats, sizeof *stats, &stats_0_2); /* its size was checked */
}

enum pici_status pici_options_check(struct pici_coll_opts *o, const struct pici_comm *comm, const struct call_args *a,
                                    const struct pici_coll_opts *opts)
{
    static const struct pici_coll_opts defaults = PICI_COLL_OPTS_INIT;
    if (!comm)
        return PICI_E_ARG;
    *o = defaults;
    enum pici_status s = opts ? sized_read(o, sizeof *o, OPTS_FIRST, opts) : PICI_OK;
    if (s)
        return s;
    if (o->stats && !sized_either(o->stats->size, sizeof *o->stats, &stats_0_2))
        return PICI_E_ARG;
    if (!a->rules->algorithms && (o->algorithm || o->zeros))
        return PICI_E_UNSUPPORTED;
    if (!pici_dtype_width(a->dtype) || (unsigned)a->op > PICI_MAX ||
        (o->algorithm && !pici_schedule_for(o->algorithm, a->kind)) ||
        ((unsigned)o->format > PICI_HYBRID && o->format != PICI_AUTO) || o->formats >> (PICI_HYBRID + 1) ||
        (unsigned)o->zeros > PICI_ZEROS_BY_VALUE ||
        (o->zeros && !coll_gathers(a->kind) && (a->op == PICI_MIN || a->op == PICI_MAX)))
        return PICI_E_UNSUPPORTED;
    struct values values;
    s = pici_values_settle(&values, o->values, a->dtype, a->op);
    if (!s && values.phases && !a->rules->codecs)
        return PICI_E_UNSUPPORTED;
    s = s ? s : pici_values_count(&values, a->count);
    return s ? s : comm->broken || comm->generation != pici_coll_generation() ? PICI_E_BROKEN : PICI_OK;
}

/* The first option that is no number or not from low to high, in words; NULL: there is none. */
static const char *number_wrong(const struct pici_coll_opts *o, char *words, size_t bytes)
{
    const struct {
        const char *name, *allowed;
        double value, low, high;
    } option[] = {{"window", "0 to 64", o->window, 0, COLL_MAX_WINDOW},
                  {"density", "0 to 1", o->density, 0, 1},
                  {"latency", "0 to 3600", o->latency, 0, 3600},
                  {"inter_threshold", "a number", (double)o->inter_threshold, -HUGE_VAL, HUGE_VAL},
                  {"intra_threshold", "a number", (double)o->intra_threshold, -HUGE_VAL, HUGE_VAL},
                  {"ag_threshold", "a number", (double)o->ag_threshold, -HUGE_VAL, HUGE_VAL},
                  {"inter_bandwidth", "0 or more", o->inter_bandwidth, 0, HUGE_VAL},
                  {"intra_bandwidth", "0 or more", o->intra_bandwidth, 0, HUGE_VAL}};
    _Static_assert(COLL_MAX_WINDOW == 64, "a message says so");
    for (size_t i = 0; i < sizeof option / sizeof *option; i++)
        if (!(option[i].value >= option[i].low && option[i].value <= option[i].high)) { /* or a NaN */
            snprintf(words, bytes, "the option %s is %g, which is not %s", option[i].name, option[i].value,
                     option[i].allowed);
            return words;
        }
    return NULL;
}

/* A number for what the choice of an algorithm is made from, besides the call itself; 0: nothing. */
static uint64_t basis_of(const struct coll_call *c, const struct pici_comm *comm, const struct pici_coll_opts *o)
{
    uint64_t hash = comm->chooser->tune.hash;
    if (c->opts.values.phases || !c->args.rules->choice)
        return 0; /* times of such calls are not predicted */
    if (!comm->chooser->tuned) {
        uint8_t bandwidth[POLICY_LINKS * 8];
        if (c->opts.algorithm || !(o->density > 0 || o->latency > 0))
            return 0;
        for (int i = 0; i < POLICY_LINKS; i++)
            store_le64(bandwidth + 8 * i, double_bits(c->opts.bandwidth[i]));
        hash = pici_xxh64(bandwidth, sizeof bandwidth, 0);
    }
    return hash ? hash : 1;
}

/* What options ask for, else the settings. */
static void merge(struct call_opts *to, const struct coll_call *c, const struct pici_comm *comm,
                  const struct pici_coll_opts *o)
{
    const struct coll_settings *d = &comm->settings;
    const uint64_t usual_slice = comm->transport.memory == PICI_MEMORY_DEVICE ? SLICE_ON_GPU : SLICE;
    const struct policy_thresholds said = {{o->inter_threshold, o->intra_threshold}, o->ag_threshold};
    const double bandwidth[] = {o->inter_bandwidth, o->intra_bandwidth};
    const int choice = c->args.rules->choice;
    to->residual = to->values.phases ? o->values->residual : NULL;
    to->algorithm = o->algorithm                                    ? o->algorithm
                    : pici_schedule_for(d->algorithm, c->args.kind) ? d->algorithm
                                                                    : PICI_ALGO_AUTO;
    to->format = o->format != PICI_AUTO ? o->format : d->format;
    to->formats = o->formats ? o->formats : d->formats ? d->formats : ~0u;
    to->timeout_ms = o->timeout_ms ? o->timeout_ms : d->timeout_ms;
    to->checksum = o->checksum ? o->checksum > 0 : d->checksum;
    to->window = o->window ? o->window : d->window;
    to->slice_bytes = o->slice_bytes ? o->slice_bytes : d->slice_bytes ? d->slice_bytes : usual_slice;
    to->density = o->density > 0 ? o->density : 0; /* -0.0 is 0 on all ranks */
    to->latency = o->latency > 0 ? o->latency : LATENCY;
    to->agree = o->agree > 0;
    to->vendor = choice && !to->values.phases && (o->vendor ? o->vendor > 0 : d->vendor);
    to->history = choice && d->history;
    to->scratch = o->scratch;
    to->scratch_bytes = o->scratch ? o->scratch_bytes : 0;
    to->stats = o->stats;
    to->threshold.gather = said.gather >= 0 ? said.gather : d->threshold.gather;
    for (int i = 0; i < POLICY_LINKS; i++) {
        to->threshold.reduce[i] = said.reduce[i] >= 0 ? said.reduce[i] : d->threshold.reduce[i];
        to->bandwidth[i] = bandwidth[i] > 0 ? bandwidth[i] : d->bandwidth[i];
    }
}

enum pici_status pici_options_resolve(struct coll_call *c, const struct pici_comm *comm, const struct pici_coll_opts *o,
                                      char *why, size_t bytes)
{
    const struct call_args *a = &c->args;
    struct call_resolved *to = &c->resolved;
    struct values *values = &c->opts.values;
    char words[160];
    enum pici_status s = pici_values_settle(values, o->values, a->dtype, a->op);
    if (s) { /* never: it was checked */
        snprintf(why, bytes, "the option values: %s", pici_strerror(s));
        return s;
    }
    to->width = pici_dtype_width(a->dtype);
    to->by_value = fmt_is_float((unsigned)a->dtype) &&
                   (coll_gathers(a->kind) ? o->zeros == PICI_ZEROS_BY_VALUE : a->op == PICI_SUM || a->op == PICI_AVG);
    to->said = (struct call_said){.kind = a->kind, .op = a->op, .count = a->count};
    to->hello = HELLO_CALL;
    to->closing = 1;
    values->positive = to->by_value && values->codec == &pici_codec_cast;
    merge(&c->opts, c, comm, o);
    to->basis = basis_of(c, comm, o);
    const char *wrong = a->rules->count(c, comm, words, sizeof words);
    wrong = wrong ? wrong : number_wrong(o, words, sizeof words);
    if (wrong)
        snprintf(why, bytes, "%s", wrong);
    return wrong ? PICI_E_ARG : PICI_OK;
}
