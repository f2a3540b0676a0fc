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
    const struct machine *m = pici_machine(i);
    if (m)
        *what = m->what;
    return m ? m->name : NULL;
}

const char *predict_collective(int i)
{
    return pici_model_name((enum pici_collective)(PICI_ALL_GATHER + i));
}

const char *predict_plot_name(int i)
{
    static const char *const names[PLOTS] = {"bytes", "sparsity", "time"};
    return i < PLOTS ? names[i] : NULL;
}

bool predict_set_machine(struct predict *p, const char *name)
{
    const struct machine *m = pici_machine_named(name);
    if (!m)
        return false;
    snprintf(p->name, sizeof p->name, "%s", m->name);
    snprintf(p->what, sizeof p->what, "%s", m->what);
    p->source = m->source;
    p->machine = &m->model;
    p->slice_bytes = m->slice_bytes;
    p->per_node = m->per_node;
    return true;
}

_Static_assert((int)PREDICT_WHY == (int)TUNE_WHY, "room for the reader's words");
_Static_assert((int)PREDICT_OURS >= (int)SCHEDULES_MOST && PREDICT_OTHERS >= MODEL_VENDORS - 1, "room for candidates");

bool predict_set_tune(struct predict *p, const char *name, const void *bytes, size_t size, char *why)
{
    struct tune *t = calloc(1, sizeof *t);
    struct tune_shape largest = {.ranks = 0};
    if (!t || pici_tune_read(t, bytes, size, why) != PICI_OK) {
        if (!t)
            snprintf(why, PREDICT_WHY, "out of memory");
        free(t);
        return false;
    }
    p->tune = t;
    (void)pici_tune_largest((const struct tune *const[]){t}, 1, &largest);
    snprintf(p->name, sizeof p->name, "%s", name);
    snprintf(p->what, sizeof p->what, "a tune file of %zu points, the largest shape %d ranks on %d nodes",
             t->point_count, largest.ranks, largest.nodes.nodes);
    snprintf(p->made, sizeof p->made, "Measured %s; transport %s, library %s, CPU %s.",
             t->date[0] ? t->date : "(no date)", t->transport[0] ? t->transport : "-", t->library[0] ? t->library : "-",
             t->cpu[0] ? t->cpu : "-");
    p->source = p->made;
    p->machine = &t->machine;
    p->slice_bytes = pici_model_call.slice_bytes;
    p->per_node = (largest.ranks + largest.nodes.nodes - 1) / largest.nodes.nodes;
    p->correlation = t->correlation;
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

const char *predict_constant(const struct predict *p, int i, char value[PREDICT_VALUE])
{
    static const char *const names[] = {"latency between nodes",
                                        "bandwidth of a pair between nodes",
                                        "bandwidth out of a node",
                                        "latency inside a node",
                                        "bandwidth of a pair inside",
                                        "hello and closing, two ranks",
                                        "ranks of a node",
                                        "slice",
                                        "latency of the vendor's ring",
                                        "bandwidth of the vendor's ring"};
    const struct model_machine *m = p->machine;
    const int doublings = model_doublings(m->agree_ranks);
    switch (i) {
    case 0: micros(value, m->link[POLICY_INTER].alpha); break;
    case 1: rate(value, m->link[POLICY_INTER].beta); break;
    case 2: rate(value, m->node_beta); break;
    case 3: micros(value, m->link[POLICY_INTRA].alpha); break;
    case 4: rate(value, m->link[POLICY_INTRA].beta); break;
    case 5: micros(value, m->agree / (doublings ? doublings : 1)); break;
    case 6: snprintf(value, PREDICT_VALUE, "%d", p->per_node); break;
    case 7: snprintf(value, PREDICT_VALUE, "%.4g MiB", (double)p->slice_bytes / (1 << 20)); break;
    case 8: micros(value, m->vendor.alpha); break;
    case 9: rate(value, m->vendor.beta); break;
    default: return NULL;
    }
    return i < 8 || m->vendor.beta > 0 ? names[i] : NULL;
}

/* ---- candidates */

static struct predict_candidate *add(struct predict *p, struct model_candidate *model, struct model_candidate what)
{
    model[p->candidates] = what;
    return &p->candidate[p->candidates++];
}

static void list_candidates(struct predict *p, struct model_candidate *model)
{
    static const char *const vendors[MODEL_VENDORS] = {[MODEL_VENDOR] = "vendor's",
                                                       [MODEL_RING] = "vendor's ring",
                                                       [MODEL_RABENSEIFNER] = "vendor's recursive",
                                                       [MODEL_TREE] = "vendor's trees",
                                                       [MODEL_TWO_LEVELS] = "vendor's two levels"};
    p->candidates = 0;
    for (const struct schedule *s = pici_schedules; s->name; s++)
        for (int dense = 0; dense < 2; dense++) {
            struct predict_candidate *c = add(p, model, (struct model_candidate){s->id, dense, MODEL_OURS});
            snprintf(c->name, sizeof c->name, "%s%s", s->name, dense ? ", dense" : "");
            c->letter = (char)(dense ? tolower((unsigned char)s->letter) : s->letter);
            c->ours = true;
            c->dense = dense;
        }
    for (int v = MODEL_VENDOR; v < MODEL_VENDORS; v++)
        if (v == MODEL_VENDOR ? p->tune != NULL : !p->tune && p->machine->vendors >> v & 1) {
            struct predict_candidate *c = add(p, model, (struct model_candidate){PICI_ALGO_AUTO, 1, v});
            snprintf(c->name, sizeof c->name, "%s", vendors[v]);
            c->letter = 'V';
            c->ours = false;
            c->dense = true;
        }
}

/* ---- the grid */

static struct predict_cell *cell_at(const struct predict *p, int collective, int density, int ranks, int bytes)
{
    return &p->cell[((size_t)(collective * p->densities + density) * (size_t)p->ranks + (size_t)ranks) *
                        (size_t)p->sizes +
                    (size_t)bytes];
}

const struct predict_cell *predict_at(const struct predict *p, int collective, int density, int ranks, int bytes)
{
    return cell_at(p, collective, density, ranks, bytes);
}

static void fill(const struct predict *p, const struct model_candidate *model, const struct model_call *call,
                 struct predict_cell *cell)
{
    cell->best = cell->dense = -1;
    for (int i = 0; i < p->candidates; i++) {
        const double s =
            p->tune ? pici_tune_seconds(p->tune, call, &model[i]) : pici_model_seconds(p->machine, call, &model[i]);
        cell->seconds[i] = s;
        if (s < 0)
            continue;
        if (cell->best < 0 || s < cell->seconds[cell->best])
            cell->best = i;
        if (!p->candidate[i].ours && (cell->dense < 0 || s < cell->seconds[cell->dense]))
            cell->dense = i;
    }
}

bool predict_run(struct predict *p)
{
    struct model_candidate model[PREDICT_CANDIDATES];
    int *begin = malloc((PREDICT_RANKS + 1) * sizeof *begin);
    list_candidates(p, model);
    p->cell =
        calloc((size_t)p->collectives * (size_t)p->densities * (size_t)p->ranks * (size_t)p->sizes, sizeof *p->cell);
    if (!begin || !p->cell) {
        free(begin);
        predict_free(p);
        return false;
    }
    for (int r = 0; r < p->ranks; r++) {
        struct schedule_nodes nodes = {0, begin};
        for (int at = 0; at < p->rank[r]; at += p->per_node)
            begin[nodes.nodes++] = at;
        begin[nodes.nodes] = p->rank[r];
        for (int c = 0; c < p->collectives; c++)
            for (int d = 0; d < p->densities; d++)
                for (int b = 0; b < p->sizes; b++) {
                    struct model_call call = pici_model_call;
                    call.kind = p->collective[c];
                    call.dtype = p->dtype;
                    call.ranks = p->rank[r];
                    call.nodes = &nodes;
                    call.bytes = p->bytes[b];
                    call.density = p->density[d];
                    call.correlation = p->correlation;
                    call.slice_bytes = p->slice_bytes;
                    fill(p, model, &call, cell_at(p, c, d, r, b));
                }
    }
    free(begin);
    return true;
}

void predict_free(struct predict *p)
{
    if (p->tune)
        pici_tune_free(p->tune);
    free(p->tune);
    p->tune = NULL;
    free(p->cell);
    p->cell = NULL;
}

double predict_gain(const struct predict_cell *c)
{
    return c->dense < 0 ? 0 : c->seconds[c->dense] / c->seconds[c->best];
}
