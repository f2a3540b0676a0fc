/* SPDX-License-Identifier: BSD-3-Clause */
#include "schedule/traffic.h"

#include <string.h>

struct traffic_step *pici_traffic_add(struct schedule_traffic *traffic, enum schedule_phase phase, int contributions,
                                      int grow, int repeat)
{
    struct traffic_step *step = &traffic->step[traffic->count++];
    *step = (struct traffic_step){
        .phase = phase, .encode = 1, .contributions = contributions, .growth = grow, .repeat = repeat};
    return step;
}

void pici_traffic_send(struct traffic_load *load, double fraction, double segments, double messages)
{
    traffic_most(&load->fraction, fraction);
    traffic_most(&load->segments, segments);
    traffic_most(&load->messages, messages);
}

int pici_traffic_nodes(const struct schedule_call *call)
{
    for (int i = 1; i < nodes_of(call); i++)
        if (nodes_size(call, i) != nodes_size(call, 0))
            return nodes_of(call);
    return 1;
}

/* Only the first step of the gather phase, which begins at step `from`, encodes. An all-to-all's traffic says itself
 * which of its steps do. */
static void encode_once(struct schedule_traffic *traffic, int from)
{
    struct traffic_step *step = &traffic->step[from];
    if (from == traffic->count)
        return;
    if (step->repeat > 1) {
        memmove(step + 1, step, (size_t)(traffic->count++ - from) * sizeof *step);
        step->repeat = 1;
        step[1].repeat--;
    }
    for (step++; step < traffic->step + traffic->count; step++)
        step->encode = 0;
}

int pici_schedule_traffic(const struct schedule *schedule, const struct schedule_call *call,
                          struct schedule_traffic *traffic)
{
    int from = 0;
    traffic->count = 0;
    if (!(schedule->collectives >> call->kind & 1) || !schedule->traffic)
        return 0;
    schedule->traffic(schedule, call, traffic);
    while (from < traffic->count && traffic->step[from].phase != PHASE_GATHER)
        from++;
    if (call->kind != PICI_ALL_TO_ALLV)
        encode_once(traffic, from);
    return 1;
}
