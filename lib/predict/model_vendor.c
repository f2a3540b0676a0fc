/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Dense collectives of other libraries: the textbook equations. They have no codec and no agreement. */
#include "predict/model.h"

#include "schedule/registry.h"

/* Phases of a collective that a reduce-scatter or an all-gather is one of. */
static double phases(const struct model_call *c)
{
    return c->kind == PICI_ALL_REDUCE ? 2 : 1;
}

/* Our own algorithm's dense bytes, over the machine's links: alpha for each step, and each byte once. */
static double by_links(const struct model_machine *m, const struct model_call *c, enum pici_algorithm algorithm)
{
    const struct schedule_call shape = model_shape(c);
    struct schedule_traffic t;
    double seconds = 0;
    if (!pici_schedule_traffic(pici_schedule(algorithm), &shape, &t))
        return -1;
    for (int i = 0; i < t.count; i++) {
        const struct traffic_step *s = &t.step[i];
        double alpha = 0, wire = (double)c->bytes * s->node_share * m->node_beta;
        for (int link = 0; link < POLICY_LINKS; link++) {
            const struct traffic_load *l = link == POLICY_INTER ? &s->between : &s->inside;
            wire = model_greater(wire, (double)c->bytes * l->share * m->link[link].beta);
            alpha = model_greater(alpha, l->segments > 0 ? m->link[link].alpha : 0);
        }
        seconds += s->repeat * (alpha + wire);
    }
    return seconds;
}

static double ring(const struct model_machine *m, const struct model_call *c)
{
    const double p = c->ranks;
    if (m->vendor.beta <= 0)
        return by_links(m, c, PICI_ALGO_RING);
    return phases(c) * (m->vendor.alpha * (p - 1) + m->vendor.beta * (double)c->bytes * (p - 1) / p);
}

static double tree(const struct model_machine *m, const struct model_call *c)
{
    const struct model_link *l = m->vendor.beta > 0                ? &m->vendor
                                 : c->nodes && c->nodes->nodes > 1 ? &m->link[POLICY_INTER]
                                                                   : &m->link[POLICY_INTRA];
    return c->kind == PICI_ALL_REDUCE ? 2 * (l->alpha * model_doublings(c->ranks) + l->beta * (double)c->bytes) : -1;
}

/* Recursive between nodes by all ranks at once, ring inside, then a transpose in memory; of equal nodes. */
static double two_levels(const struct model_machine *m, const struct model_call *c)
{
    const struct model_link *inter = &m->link[POLICY_INTER], *intra = &m->link[POLICY_INTRA];
    const int nodes = c->nodes ? c->nodes->nodes : 1;
    const double n = (double)c->bytes, each = (double)c->ranks / nodes;
    const double between = model_doublings(nodes) * inter->alpha + inter->beta * n / each * (nodes - 1) / nodes;
    const double inside = (each - 1) * (intra->alpha + intra->beta * n / each);
    return phases(c) * (between + inside + 2 * n * m->memory_beta);
}

double pici_model_vendor(const struct model_machine *m, const struct model_call *c, enum model_vendor what)
{
    switch (what) {
    case MODEL_RING: return ring(m, c);
    case MODEL_RABENSEIFNER: return by_links(m, c, PICI_ALGO_RECURSIVE);
    case MODEL_TREE: return tree(m, c);
    case MODEL_TWO_LEVELS: return two_levels(m, c);
    case MODEL_OURS:
    case MODEL_VENDOR:
    case MODEL_VENDORS: break;
    }
    double least = -1;
    for (int v = MODEL_RING; v < MODEL_VENDORS && what == MODEL_VENDOR; v++) {
        const double seconds = m->vendors >> v & 1 ? pici_model_vendor(m, c, (enum model_vendor)v) : -1;
        if (seconds >= 0 && (least < 0 || seconds < least))
            least = seconds;
    }
    return least;
}
