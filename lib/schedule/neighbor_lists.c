/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A position's own messages in a plan, as lists and as a schedule. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/neighbor.h"

/* ---- entries */

void pici_neighbor_entry(struct neighbor_entries *e, int step, int peer, int segment)
{
    if (e->n == e->room && !e->failed) {
        const size_t room = e->room ? 2 * e->room : 64;
        struct neighbor_entry *more = realloc(e->at, room * sizeof *more);
        e->failed = !more;
        if (more) {
            e->at = more;
            e->room = room;
        }
    }
    if (!e->failed)
        e->at[e->n++] = (struct neighbor_entry){step, peer, segment};
}

static int by_step(const void *a, const void *b)
{
    const struct neighbor_entry *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    if (x->peer != y->peer)
        return x->peer < y->peer ? -1 : 1;
    return (x->segment > y->segment) - (x->segment < y->segment);
}

static size_t count_messages(const struct neighbor_entries *e)
{
    size_t n = 0;
    for (size_t i = 0; i < e->n; i++)
        n += i == 0 || e->at[i].step != e->at[i - 1].step || e->at[i].peer != e->at[i - 1].peer;
    return n;
}

/* ---- lists */

static int is_same(const struct neighbor_route *r, const struct neighbor_message *a, const struct neighbor_message *b)
{
    return a->count == b->count &&
           memcmp(r->segments + a->first, r->segments + b->first, (size_t)a->count * sizeof *r->segments) == 0;
}

/* Put the messages of sorted entries into an array, and their segments from *at on. begin: where each step begins. */
static void list(struct neighbor_route *r, const struct neighbor_entries *e, struct neighbor_message *m, int *begin,
                 int *at)
{
    int n = 0, step = 0;
    begin[0] = 0;
    for (size_t i = 0; i < e->n; i++) {
        const struct neighbor_entry *now = &e->at[i];
        const int in = now->step == NEIGHBOR_LAST_STEP ? r->steps - 1 : now->step;
        while (step < in)
            begin[++step] = n;
        if (i == 0 || now->step != e->at[i - 1].step || now->peer != e->at[i - 1].peer)
            m[n++] = (struct neighbor_message){.peer = now->peer, .first = *at};
        m[n - 1].count++;
        r->segments[(*at)++] = now->segment;
    }
    while (step < r->steps)
        begin[++step] = n;
}

/* Find sends of a step with the same segments. */
static void find_same(struct neighbor_route *r)
{
    for (int k = 0; k < r->steps; k++)
        for (int i = r->send_begin[k]; i < r->send_begin[k + 1]; i++)
            for (int j = r->send_begin[k]; j < i && !r->send[i].again; j++)
                if (!r->send[j].again && is_same(r, &r->send[i], &r->send[j]))
                    r->send[i].again = j - r->send_begin[k] + 1;
}

static void find_limits(struct neighbor_route *r)
{
    struct schedule_limits *l = &r->limits;
    for (int k = 0; k < r->steps; k++) {
        const int sends = r->send_begin[k + 1] - r->send_begin[k];
        const int receives = r->receive_begin[k + 1] - r->receive_begin[k];
        l->sends = sends > l->sends ? sends : l->sends;
        l->receives = receives > l->receives ? receives : l->receives;
    }
    for (int i = 0; i < r->send_begin[r->steps]; i++) {
        l->segments = r->send[i].count > l->segments ? r->send[i].count : l->segments;
        r->room_blocks += r->send[i].again ? 0 : (uint64_t)r->send[i].count;
    }
    for (int i = 0; i < r->receive_begin[r->steps]; i++) {
        l->segments = r->receive[i].count > l->segments ? r->receive[i].count : l->segments;
        r->room_blocks += (uint64_t)r->receive[i].count;
    }
    l->kept = 1;
    r->counts.widest = (uint64_t)l->segments;
}

static int make(struct neighbor_route *r, struct neighbor_entries *sent, struct neighbor_entries *received)
{
    if (sent->n)
        pici_neighbor_entry(sent, 0, INT_MIN, r->position); /* sorts before all others */
    if (sent->failed || received->failed || sent->n + received->n > INT_MAX)
        return 0;
    if (sent->n)
        qsort(sent->at, sent->n, sizeof *sent->at, by_step);
    if (received->n)
        qsort(received->at, received->n, sizeof *received->at, by_step);
    r->send_begin = calloc((size_t)r->steps + 1, sizeof *r->send_begin);
    r->receive_begin = calloc((size_t)r->steps + 1, sizeof *r->receive_begin);
    r->send = malloc((count_messages(sent) + 1) * sizeof *r->send);
    r->receive = malloc((count_messages(received) + 1) * sizeof *r->receive);
    r->segments = malloc((sent->n + received->n + 1) * sizeof *r->segments);
    if (!r->send_begin || !r->receive_begin || !r->send || !r->receive || !r->segments)
        return 0;
    int at = 0;
    list(r, sent, r->send, r->send_begin, &at);
    list(r, received, r->receive, r->receive_begin, &at);
    if (sent->n)
        r->send[0].peer = r->position;
    find_same(r);
    find_limits(r);
    return 1;
}

int pici_neighbor_make_lists(struct neighbor_route *r, struct neighbor_entries *sent, struct neighbor_entries *received)
{
    const int made = r && make(r, sent, received);
    free(sent->at);
    free(received->at);
    return made;
}

struct neighbor_route *pici_neighbor_lists(const struct schedule_nodes *nodes, int ranks, int position,
                                           const int *destination, int destinations, const int *source, int sources)
{
    struct neighbor_entries sent = {0}, received = {0};
    struct neighbor_route *r = calloc(1, sizeof *r);
    const int home = pici_schedule_node(nodes, position);
    if (r)
        *r = (struct neighbor_route){.steps = 1, .position = position, .ranks = ranks, .nodes = nodes};
    for (int i = 0; i < destinations; i++)
        pici_neighbor_entry(&sent, NEIGHBOR_LAST_STEP, destination[i], position);
    for (int i = 0; i < sources; i++)
        pici_neighbor_entry(&received, NEIGHBOR_LAST_STEP, source[i], source[i]);
    for (int i = 0; r && i < destinations; i++) {
        const uint64_t inter = pici_schedule_node(nodes, destination[i]) != home;
        r->counts.inter_messages += inter;
        r->counts.inter_blocks += inter;
    }
    if (r)
        r->counts.edges = r->counts.messages = r->counts.most_messages = r->counts.blocks = (uint64_t)destinations;
    if (!pici_neighbor_make_lists(r, &sent, &received)) {
        pici_neighbor_free(r);
        return NULL;
    }
    return r;
}

void pici_neighbor_free(struct neighbor_route *r)
{
    if (!r)
        return;
    free(r->send_begin);
    free(r->receive_begin);
    free(r->send);
    free(r->receive);
    free(r->segments);
    free(r->load);
    free(r->part);
    free(r);
}

/* ---- the schedule */

static int steps(const struct schedule *s, const struct schedule_call *c)
{
    (void)s;
    return c->route->steps;
}

static void limits(const struct schedule *s, const struct schedule_call *c, struct schedule_limits *l)
{
    (void)s;
    *l = c->route->limits;
}

static void copy(const struct neighbor_route *r, struct schedule_message *to, const struct neighbor_message *from)
{
    to->peer = from->peer;
    to->count = from->count;
    memcpy(to->segments, r->segments + from->first, (size_t)from->count * sizeof *to->segments);
    to->keep = KEEP_MESSAGE;
    to->contributions = r->ranks;
    to->again = from->again;
}

static void step(const struct schedule *schedule, const struct schedule_call *c, int k, struct schedule_step *s)
{
    const struct neighbor_route *r = c->route;
    (void)schedule;
    s->phase = PHASE_GATHER;
    s->complete = COMPLETE_NONE;
    s->sends = r->send_begin[k + 1] - r->send_begin[k];
    s->receives = r->receive_begin[k + 1] - r->receive_begin[k];
    for (int i = 0; i < s->sends; i++) {
        copy(r, &s->send[i], &r->send[r->send_begin[k] + i]);
        s->send[i].action = s->send[i].peer == r->position ? SEND_ENCODE : SEND_FORWARD;
    }
    for (int i = 0; i < s->receives; i++) {
        copy(r, &s->receive[i], &r->receive[r->receive_begin[k] + i]);
        s->receive[i].action = TAKE_PLACE;
        if (k == r->steps - 1)
            s->receive[i].keep = KEEP_NOT;
    }
}

const struct schedule pici_schedule_neighbor = {.id = (enum pici_algorithm)NEIGHBOR_ID,
                                                .name = "neighbor",
                                                .paired = PAIRED_NEVER,
                                                .steps = steps,
                                                .step = step,
                                                .limits = limits};
