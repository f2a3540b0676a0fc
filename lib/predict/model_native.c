/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Dense collectives of other libraries: the textbook equations. They have no codec and no agreement. */
#include "predict/model.h"

#include "schedule/alltoall.h"
#include "schedule/registry.h"

/* The phases of a collective, each a reduce-scatter or an all-gather. */
static double phases(const struct model_call *call)
{
    return call->kind == PICI_ALL_REDUCE ? 2 : 1;
}

/* Our own algorithm's dense bytes, over the machine's links: alpha for each step, and each byte once. */
static double by_links(const struct model_machine *machine, const struct model_call *call,
                       const struct schedule *schedule)
{
    const struct schedule_call shape = model_shape(call);
    struct schedule_traffic traffic;
    double seconds = 0;
    if (!pici_schedule_traffic(schedule, &shape, &traffic))
        return -1;
    for (int i = 0; i < traffic.count; i++) {
        const struct traffic_step *step = &traffic.step[i];
        double alpha = 0, wire = (double)call->bytes * step->node_fraction * machine->node_beta;
        for (int link = 0; link < POLICY_LINKS; link++) {
            const struct traffic_load *load = link == POLICY_INTER ? &step->between : &step->inside;
            wire = model_greater(wire, (double)call->bytes * load->fraction * machine->link[link].beta);
            alpha = model_greater(alpha, load->segments > 0 ? machine->link[link].alpha : 0);
        }
        seconds += step->repeat * (alpha + wire);
    }
    return seconds;
}

static double ring(const struct model_machine *machine, const struct model_call *call)
{
    const double p = call->ranks;
    if (machine->native.beta <= 0)
        return by_links(machine, call, pici_schedule(PICI_ALGO_RING));
    return phases(call) * (machine->native.alpha * (p - 1) + machine->native.beta * (double)call->bytes * (p - 1) / p);
}

static double tree(const struct model_machine *machine, const struct model_call *call)
{
    const int inter = call->nodes && call->nodes->nodes > 1;
    const struct model_link *link = &machine->link[inter ? POLICY_INTER : POLICY_INTRA];
    if (machine->native.beta > 0)
        link = &machine->native;
    return call->kind == PICI_ALL_REDUCE
               ? 2 * (link->alpha * model_doublings(call->ranks) + link->beta * (double)call->bytes)
               : -1;
}

/* Recursive between nodes by all ranks at once, ring inside, then a transpose in memory; for equal nodes. */
static double two_levels(const struct model_machine *machine, const struct model_call *call)
{
    const struct model_link *inter = &machine->link[POLICY_INTER], *intra = &machine->link[POLICY_INTRA];
    const int nodes = call->nodes ? call->nodes->nodes : 1;
    const double bytes = (double)call->bytes, each = (double)call->ranks / nodes;
    const double between = model_doublings(nodes) * inter->alpha + inter->beta * bytes / each * (nodes - 1) / nodes;
    const double inside = (each - 1) * (intra->alpha + intra->beta * bytes / each);
    return phases(call) * (between + inside + 2 * bytes * machine->memory_beta);
}

double pici_model_native(const struct model_machine *machine, const struct model_call *call, enum model_native what)
{
    if (call->kind == PICI_ALL_TO_ALLV)
        return what == MODEL_NATIVE ? by_links(machine, call, &pici_schedule_alltoall) : -1;
    switch (what) {
    case MODEL_RING: return ring(machine, call);
    case MODEL_RABENSEIFNER: return by_links(machine, call, pici_schedule(PICI_ALGO_RECURSIVE));
    case MODEL_TREE: return tree(machine, call);
    case MODEL_TWO_LEVELS: return two_levels(machine, call);
    case MODEL_OURS:
    case MODEL_NATIVE:
    case MODEL_NATIVES: break;
    }
    double least = -1;
    for (int native = MODEL_RING; native < MODEL_NATIVES && what == MODEL_NATIVE; native++) {
        const double seconds =
            machine->natives >> native & 1 ? pici_model_native(machine, call, (enum model_native)native) : -1;
        if (seconds >= 0 && (least < 0 || seconds < least))
            least = seconds;
    }
    return least;
}
