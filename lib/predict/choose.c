/* SPDX-License-Identifier: BSD-3-Clause */
#include "predict/choose.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/machine.h"
#include "predict/number.h"
#include "schedule/registry.h"

enum pici_status pici_chooser_open(struct chooser **output, const char *path, int verbose, char *reason, size_t bytes)
{
    struct chooser *chooser = calloc(1, sizeof *chooser);
    *output = chooser;
    if (!chooser) {
        snprintf(reason, bytes, "no memory for a communicator");
        return PICI_E_NOMEM;
    }
    chooser->verbose = verbose;
    chooser->tuned = path && path[0];
    if (!chooser->tuned) {
        chooser->tune.machine = pici_model_machine;
        chooser->tune.density = TUNE_DENSITY;
        chooser->tune.correlation = 1;
        return PICI_OK;
    }
    char wrong[TUNE_WHY];
    enum pici_status status = pici_tune_open(&chooser->tune, path, wrong);
    if (status) {
        if (status == PICI_E_IO)
            snprintf(reason, bytes, "PICI_TUNE: cannot read %.120s: %s", path, wrong);
        else
            snprintf(reason, bytes, "PICI_TUNE: %.100s: %s", path, wrong);
        free(chooser);
        *output = NULL;
    }
    return status;
}

void pici_chooser_close(struct chooser *chooser)
{
    if (chooser)
        pici_tune_free(&chooser->tune);
    free(chooser);
}

void pici_chooser_forget(struct chooser *chooser)
{
    memset(chooser->chosen, 0, sizeof chooser->chosen);
    chooser->last = NULL;
    chooser->uses = 0;
}

/* ---- densities */

static uint64_t bits_of(double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

/* Rounded to three bits behind the first, so that small changes do not need a new prediction. */
static double coarse(double density)
{
    enum { DROPPED = 52 - 3 };
    const double least = 1e-9;
    uint64_t bits = bits_of(density > least ? density : least);
    bits = (bits + (UINT64_C(1) << (DROPPED - 1))) >> DROPPED << DROPPED;
    memcpy(&density, &bits, sizeof density);
    return density < 1 ? density : 1;
}

/* The correlation c of sum = 1 - (1 - one)^(1 + (p - 1) c), from 0 to 1 in eighths. The logarithm of 1 - one may be 0,
 * because the density of one does not count what a rank adds to others' sums. */
static double correlation_of(double one, double sum, int p)
{
    const double small = 1e-6;
    if (one >= 1 || p < 2)
        return 1;
    if (sum <= one)
        return 0;
    double times = p; /* number of contributions at independent positions with as many nonzeros */
    if (sum < small || 1 - one >= 1)
        times = sum / one;
    else if (sum < 1)
        times = pici_tune_log2(1 - sum) / pici_tune_log2(1 - one);
    const double c = (times - 1) / (p - 1);
    return c >= 1 ? 1 : (double)(int)(c * 8 + 0.5) / 8;
}

static void find_density(const struct chooser *chooser, const struct choose_call *call, const struct densities *known,
                         struct choice *output)
{
    const struct density_entry *entry =
        call->history ? pici_density_find(known, call->model.kind, call->model.dtype, call->count) : NULL;
    const double one = entry ? entry->density[DENSITY_ONE] : 0;
    const double sum = entry ? entry->density[DENSITY_SUM] : 0;
    if (call->exact > 0 || one > 0) {
        output->source = CHOOSE_COUNTED;
        output->density = coarse(call->exact > 0 ? call->exact : one);
    } else if (call->hint > 0) {
        output->source = CHOOSE_HINT;
        output->density = coarse(call->hint);
    } else {
        output->source = CHOOSE_ASSUMED;
        output->density = coarse(chooser->tune.density);
    }
    output->correlation = one > 0 && sum > 0 ? correlation_of(one, sum, call->model.ranks) : chooser->tune.correlation;
}

/* ---- candidates */

const struct schedule *pici_choose_schedule(int i, enum pici_collective collective, int ranks, int nodes,
                                            int paired_only)
{
    for (const struct schedule *schedule = pici_schedules; schedule->name; schedule++)
        if (schedule->collectives >> collective & 1 && pici_schedule_distinct(schedule, ranks, nodes) &&
            (!paired_only || pici_schedule_paired(schedule, ranks)) && i-- == 0)
            return schedule;
    return NULL;
}

/* The ith candidate: each schedule sparse, then dense; last the native collective. 0: there are no more. */
static int candidate(int i, const struct choose_call *call, struct model_candidate *option)
{
    const struct model_call *model = &call->model;
    const int nodes = model->nodes ? model->nodes->nodes : 1;
    for (int row = 0;; row++) {
        const struct schedule *schedule =
            pici_choose_schedule(row, model->kind, model->ranks, nodes, call->paired_only);
        if (schedule && row == i / 2) {
            *option = (struct model_candidate){.algorithm = schedule->id, .dense = i % 2};
            return 1;
        }
        if (!schedule) {
            *option = (struct model_candidate){.native = MODEL_NATIVE, .dense = 1};
            return call->native && i == 2 * row;
        }
    }
}

/* ---- the choice */

/* Without a file: the built-in constants, with the call's links. A node has one link. */
static void set_links(struct model_machine *machine, const struct choose_call *call)
{
    for (int i = 0; i < POLICY_LINKS; i++)
        machine->link[i] = (struct model_link){call->latency, 1 / call->bandwidth[i]};
    machine->node_beta = 1 / call->bandwidth[POLICY_INTER];
}

/* The model's inputs for a call. */
static struct model_call model_of(struct chooser *chooser, const struct choose_call *call, const struct choice *choice)
{
    struct model_call model = call->model;
    model.density = choice->density;
    model.correlation = choice->correlation;
    if (!chooser->tuned)
        set_links(&chooser->tune.machine, call);
    return model;
}

static void predict(struct chooser *chooser, const struct model_call *model, const struct choose_call *call,
                    struct choice *best)
{
    struct model_candidate option;
    best->seconds = -1;
    best->candidate = (struct model_candidate){.algorithm = PICI_ALGO_RING};
    for (int i = 0; candidate(i, call, &option); i++) {
        const double seconds = pici_tune_seconds(&chooser->tune, model, &option);
        if (seconds >= 0 && (best->seconds < 0 || seconds < best->seconds)) {
            best->seconds = seconds;
            best->candidate = option;
        }
    }
}

/* The entry of such calls, or the least recently used one; *known: whether it belongs to such calls. */
static struct chosen *entry_of(struct chooser *chooser, const uint64_t key[CHOOSE_KEY], int *known)
{
    struct chosen *entry = chooser->chosen, *oldest = entry;
    for (; entry < chooser->chosen + CHOOSE_CALLS; entry++) {
        if (entry->used && memcmp(entry->key, key, sizeof entry->key) == 0) {
            *known = 1;
            return entry;
        }
        if (entry->used < oldest->used)
            oldest = entry;
    }
    *known = 0;
    memcpy(oldest->key, key, sizeof oldest->key);
    return oldest;
}

void pici_choose(struct chooser *chooser, const struct choose_call *call, const struct densities *known,
                 struct choice *output)
{
    const uint64_t key[CHOOSE_KEY] = {(uint64_t)call->model.kind,
                                      (uint64_t)call->model.dtype,
                                      call->model.bytes,
                                      call->count,
                                      (uint64_t)call->model.window,
                                      call->model.slice_bytes,
                                      bits_of(call->latency),
                                      bits_of(call->bandwidth[POLICY_INTER]),
                                      bits_of(call->bandwidth[POLICY_INTRA]),
                                      (uint64_t)call->paired_only << 1 | (uint64_t)call->native,
                                      (uint64_t)call->model.packing.pack << 8 | (uint64_t)call->model.packing.kernels};
    int is_known;
    struct chosen *entry = entry_of(chooser, key, &is_known);
    const struct choice before = entry->choice;
    *output = (struct choice){.seconds = -1};
    find_density(chooser, call, known, output);
    entry->used = ++chooser->uses;
    chooser->last = entry;
    chooser->last_call = *call;
    if (is_known && before.density == output->density && before.correlation == output->correlation) {
        output->candidate = before.candidate;
        output->seconds = before.seconds;
        return;
    }
    const struct model_call model = model_of(chooser, call, output);
    predict(chooser, &model, call, output);
    entry->printed &= is_known && memcmp(&before.candidate, &output->candidate, sizeof before.candidate) == 0;
    entry->choice = *output;
}

/* ---- printing */

static const char *name_of(const struct model_candidate *given)
{
    return given->native ? "native" : pici_schedule(given->algorithm)->name;
}

static void print_seconds(double seconds)
{
    const double microseconds = seconds * 1e6 + 0.5;
    fprintf(stderr, "%" PRIu64 " us", microseconds < 1e18 ? (uint64_t)microseconds : UINT64_C(1000000000000000000));
}

void pici_choose_print(struct chooser *chooser)
{
    static const char *const source[] = {"counted", "hint", "assumed"};
    char density[NUMBER_TEXT], correlation[NUMBER_TEXT];
    const struct choose_call *call = &chooser->last_call;
    struct model_candidate option;
    if (!chooser->verbose || !chooser->last || chooser->last->printed)
        return;
    const struct choice *best = &chooser->last->choice;
    const struct model_call model = model_of(chooser, call, best);
    chooser->last->printed = 1;
    pici_number_print(density, best->density);
    pici_number_print(correlation, best->correlation);
    fprintf(stderr, "pici: %s %s, %" PRIu64 " bytes, %d ranks on %d nodes, density %s (%s), correlation %s:",
            pici_model_name(model.kind), pici_dtype_name(model.dtype), model.bytes, model.ranks,
            model.nodes ? model.nodes->nodes : 1, density, source[best->source], correlation);
    for (int i = 0; candidate(i, call, &option); i++) {
        const double seconds = pici_tune_seconds(&chooser->tune, &model, &option);
        if (seconds < 0)
            continue;
        fprintf(stderr, " %s %s ", name_of(&option), option.dense ? "dense" : "sparse");
        print_seconds(seconds);
        fputc(',', stderr);
    }
    fprintf(stderr, " takes %s %s\n", name_of(&best->candidate), best->candidate.dense ? "dense" : "sparse");
}
