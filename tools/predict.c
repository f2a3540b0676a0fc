/* SPDX-License-Identifier: BSD-3-Clause */
#include "predict.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/machine.h"
#include "predict/model.h"
#include "predict/tune.h"
#include "schedule/registry.h"

const char *predict_machine(int i, const char **what)
{
    const struct machine *machine = pici_machine(i);
    if (machine)
        *what = machine->what;
    return machine ? machine->name : NULL;
}

static const enum pici_collective kinds[PREDICT_COLLECTIVES] = {PICI_ALL_GATHER, PICI_REDUCE_SCATTER, PICI_ALL_REDUCE,
                                                                PICI_ALL_TO_ALLV};

const char *predict_kind_name(enum pici_collective kind)
{
    return kind == PICI_ALL_TO_ALLV ? "all_to_all" : pici_model_name(kind);
}

const char *predict_collective(int i)
{
    return i >= 0 && i < PREDICT_COLLECTIVES ? predict_kind_name(kinds[i]) : NULL;
}

enum pici_collective predict_kind(int i)
{
    return kinds[i];
}

const char *predict_plot_name(int i)
{
    static const char *const names[PLOTS] = {"bytes", "sparsity", "time"};
    return i < PLOTS ? names[i] : NULL;
}

bool predict_set_machine(struct predict *prediction, const char *name)
{
    const struct machine *machine = pici_machine_named(name);
    if (!machine)
        return false;
    snprintf(prediction->name, sizeof prediction->name, "%s", machine->name);
    snprintf(prediction->what, sizeof prediction->what, "%s", machine->what);
    prediction->source = machine->source;
    prediction->machine = &machine->model;
    prediction->slice_bytes = machine->slice_bytes;
    prediction->per_node = machine->per_node;
    return true;
}

_Static_assert((int)PREDICT_WHY == (int)TUNE_WHY, "room for the reader's words");
_Static_assert((int)PREDICT_OURS >= (int)SCHEDULES_MOST && PREDICT_OTHERS >= MODEL_NATIVES - 1, "room for candidates");

static const char *or_dash(const char *text)
{
    return text[0] ? text : "-";
}

bool predict_set_tune(struct predict *prediction, const char *name, const void *bytes, size_t size, char *reason)
{
    struct tune *tune = calloc(1, sizeof *tune);
    struct tune_shape largest = {.ranks = 0};
    if (!tune || pici_tune_read(tune, bytes, size, reason) != PICI_OK) {
        if (!tune)
            snprintf(reason, PREDICT_WHY, "out of memory");
        free(tune);
        return false;
    }
    prediction->tune = tune;
    (void)pici_tune_largest((const struct tune *const[]){tune}, 1, &largest);
    snprintf(prediction->name, sizeof prediction->name, "%s", name);
    snprintf(prediction->what, sizeof prediction->what,
             "a tune file of %zu points, the largest shape %d ranks on %d nodes", tune->point_count, largest.ranks,
             largest.nodes.nodes);
    snprintf(prediction->made, sizeof prediction->made, "Measured %s; transport %s, library %s, CPU %s.",
             tune->date[0] ? tune->date : "(no date)", or_dash(tune->transport), or_dash(tune->library),
             or_dash(tune->cpu));
    prediction->source = prediction->made;
    prediction->machine = &tune->machine;
    prediction->slice_bytes = pici_model_call.slice_bytes;
    prediction->per_node = (largest.ranks + largest.nodes.nodes - 1) / largest.nodes.nodes;
    prediction->correlation = tune->correlation;
    return true;
}

static const char *micros(char value[PREDICT_VALUE], double seconds)
{
    snprintf(value, PREDICT_VALUE, "%.4g us", seconds * 1e6);
    return value;
}

static const char *rate(char value[PREDICT_VALUE], double beta)
{
    if (beta > 0 && beta <= 1e-9)
        snprintf(value, PREDICT_VALUE, "%.4g GB/s", 1e-9 / beta);
    else if (beta > 0)
        snprintf(value, PREDICT_VALUE, "%.4g MB/s", 1e-6 / beta);
    else
        snprintf(value, PREDICT_VALUE, "no limit");
    return value;
}

const char *predict_constant(const struct predict *prediction, int i, char value[PREDICT_VALUE])
{
    static const char *const names[] = {"latency between nodes",
                                        "bandwidth of a pair between nodes",
                                        "bandwidth out of a node",
                                        "latency inside a node",
                                        "bandwidth of a pair inside",
                                        "agreement, two ranks",
                                        "ranks of a node",
                                        "slice",
                                        "latency of the native ring",
                                        "bandwidth of the native ring"};
    const struct model_machine *machine = prediction->machine;
    const int doublings = model_doublings(machine->agree_ranks);
    switch (i) {
    case 0: micros(value, machine->link[POLICY_INTER].alpha); break;
    case 1: rate(value, machine->link[POLICY_INTER].beta); break;
    case 2: rate(value, machine->node_beta); break;
    case 3: micros(value, machine->link[POLICY_INTRA].alpha); break;
    case 4: rate(value, machine->link[POLICY_INTRA].beta); break;
    case 5: micros(value, machine->agree / (doublings ? doublings : 1)); break;
    case 6: snprintf(value, PREDICT_VALUE, "%d", prediction->per_node); break;
    case 7: snprintf(value, PREDICT_VALUE, "%.4g MiB", (double)prediction->slice_bytes / (1 << 20)); break;
    case 8: micros(value, machine->native.alpha); break;
    case 9: rate(value, machine->native.beta); break;
    default: return NULL;
    }
    return i < 8 || machine->native.beta > 0 ? names[i] : NULL;
}

/* ---- candidates */

static struct predict_candidate *add(struct predict *prediction, struct model_candidate *model,
                                     struct model_candidate what)
{
    model[prediction->candidates] = what;
    prediction->candidate[prediction->candidates].exchange = false;
    return &prediction->candidate[prediction->candidates++];
}

static void list_exchanges(struct predict *prediction, struct model_candidate *model)
{
    static const char *const names[PREDICT_EXCHANGES] = {"exchange", "exchange, dense", "native exchange"};
    for (int i = 0; i < PREDICT_EXCHANGES; i++) {
        const bool ours = i < 2;
        struct predict_candidate *candidate =
            add(prediction, model, (struct model_candidate){PICI_ALGO_AUTO, i > 0, ours ? MODEL_OURS : MODEL_NATIVE});
        snprintf(candidate->name, sizeof candidate->name, "%s", names[i]);
        candidate->letter = "XxV"[i];
        candidate->ours = ours;
        candidate->dense = i > 0;
        candidate->exchange = true;
    }
}

static void list_candidates(struct predict *prediction, struct model_candidate *model)
{
    static const char *const natives[MODEL_NATIVES] = {[MODEL_NATIVE] = "native collective",
                                                       [MODEL_RING] = "native ring",
                                                       [MODEL_RABENSEIFNER] = "native recursive",
                                                       [MODEL_TREE] = "native trees",
                                                       [MODEL_TWO_LEVELS] = "native two levels"};
    prediction->candidates = 0;
    for (const struct schedule *schedule = pici_schedules; schedule->name; schedule++)
        for (int dense = 0; dense < 2; dense++) {
            struct predict_candidate *candidate =
                add(prediction, model, (struct model_candidate){schedule->id, dense, MODEL_OURS});
            snprintf(candidate->name, sizeof candidate->name, "%s%s", schedule->name, dense ? ", dense" : "");
            candidate->letter = (char)(dense ? tolower((unsigned char)schedule->letter) : schedule->letter);
            candidate->ours = true;
            candidate->dense = dense;
        }
    for (int native = MODEL_NATIVE; native < MODEL_NATIVES; native++)
        if (native == MODEL_NATIVE ? prediction->tune != NULL
                                   : !prediction->tune && prediction->machine->natives >> native & 1) {
            struct predict_candidate *candidate =
                add(prediction, model, (struct model_candidate){PICI_ALGO_AUTO, 1, native});
            snprintf(candidate->name, sizeof candidate->name, "%s", natives[native]);
            candidate->letter = 'V';
            candidate->ours = false;
            candidate->dense = true;
        }
    list_exchanges(prediction, model);
}

/* ---- the grid */

static struct predict_cell *cell_at(const struct predict *prediction, int collective, int density, int ranks, int bytes)
{
    return &prediction->cell[((size_t)(collective * prediction->densities + density) * (size_t)prediction->ranks +
                              (size_t)ranks) *
                                 (size_t)prediction->sizes +
                             (size_t)bytes];
}

const struct predict_cell *predict_at(const struct predict *prediction, int collective, int density, int ranks,
                                      int bytes)
{
    return cell_at(prediction, collective, density, ranks, bytes);
}

static void fill(const struct predict *prediction, const struct model_candidate *model, const struct model_call *call,
                 struct predict_cell *cell)
{
    cell->best = cell->dense = -1;
    for (int i = 0; i < prediction->candidates; i++) {
        cell->seconds[i] = -1;
        if (prediction->candidate[i].exchange != (call->kind == PICI_ALL_TO_ALLV))
            continue;
        const double seconds = prediction->tune ? pici_tune_seconds(prediction->tune, call, &model[i])
                                                : pici_model_seconds(prediction->machine, call, &model[i]);
        cell->seconds[i] = seconds;
        if (seconds < 0)
            continue;
        if (cell->best < 0 || seconds < cell->seconds[cell->best])
            cell->best = i;
        if (!prediction->candidate[i].ours && (cell->dense < 0 || seconds < cell->seconds[cell->dense]))
            cell->dense = i;
    }
}

bool predict_run(struct predict *prediction)
{
    struct model_candidate model[PREDICT_CANDIDATES];
    int *begin = malloc((PREDICT_RANKS + 1) * sizeof *begin);
    list_candidates(prediction, model);
    prediction->cell = calloc((size_t)prediction->collectives * (size_t)prediction->densities *
                                  (size_t)prediction->ranks * (size_t)prediction->sizes,
                              sizeof *prediction->cell);
    if (!begin || !prediction->cell) {
        free(begin);
        predict_free(prediction);
        return false;
    }
    for (int rank = 0; rank < prediction->ranks; rank++) {
        struct schedule_nodes nodes = {0, begin};
        for (int first = 0; first < prediction->rank[rank]; first += prediction->per_node)
            begin[nodes.nodes++] = first;
        begin[nodes.nodes] = prediction->rank[rank];
        for (int collective = 0; collective < prediction->collectives; collective++)
            for (int density = 0; density < prediction->densities; density++)
                for (int size = 0; size < prediction->sizes; size++) {
                    struct model_call call = pici_model_call;
                    call.kind = prediction->collective[collective];
                    call.dtype = prediction->dtype;
                    call.ranks = prediction->rank[rank];
                    call.nodes = &nodes;
                    call.bytes = prediction->bytes[size];
                    call.density = prediction->density[density];
                    call.correlation = prediction->correlation;
                    call.slice_bytes = prediction->slice_bytes;
                    fill(prediction, model, &call, cell_at(prediction, collective, density, rank, size));
                }
    }
    free(begin);
    return true;
}

void predict_free(struct predict *prediction)
{
    if (prediction->tune)
        pici_tune_free(prediction->tune);
    free(prediction->tune);
    prediction->tune = NULL;
    free(prediction->cell);
    prediction->cell = NULL;
}

double predict_gain(const struct predict_cell *cell)
{
    return cell->dense < 0 ? 0 : cell->seconds[cell->dense] / cell->seconds[cell->best];
}
