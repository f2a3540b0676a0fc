/* SPDX-License-Identifier: BSD-3-Clause */
#include "schedule/traffic.h"

#include <string.h>

struct traffic_step *pici_traffic_add(struct schedule_traffic *t, enum schedule_phase phase, int contributions,
                                      int grow, int repeat)
{
    struct traffic_step *s = &t->step[t->count++];
    *s = (struct traffic_step){
        .phase = phase, .encode = 1, .contributions = contributions, .grow = grow, .repeat = repeat};
    return s;
}

void pici_traffic_send(struct traffic_load *l, double share, double segments, double messages)
{
    traffic_most(&l->share, share);
    traffic_most(&l->segments, segments);
    traffic_most(&l->messages, messages);
}

int pici_traffic_nodes(const struct schedule_call *c)
{
    for (int i = 1; i < nodes_of(c); i++)
        if (nodes_size(c, i) != nodes_size(c, 0))
            return nodes_of(c);
    return 1;
}

/* Of the gather phase, which begins at step `from`, only the first step encodes. */
static void encode_once(struct schedule_traffic *t, int from)
{
    struct traffic_step *s = &t->step[from];
    if (from == t->count)
        return;
    if (s->repeat > 1) {
        memmove(s + 1, s, (size_t)(t->count++ - from) * sizeof *s);
        s->repeat = 1;
        s[1].repeat--;
    }
    for (s++; s < t->step + t->count; s++)
        s->encode = 0;
}

int pici_schedule_traffic(const struct schedule *s, const struct schedule_call *c, struct schedule_traffic *t)
{
    int from = 0;
    t->count = 0;
    if (!(s->collectives >> c->kind & 1) || !s->traffic)
        return 0;
    s->traffic(s, c, t);
    while (from < t->count && t->step[from].phase != PHASE_GATHER)
        from++;
    encode_once(t, from);
    return 1;
}
