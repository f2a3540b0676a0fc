/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A virtual rank's own messages in a plan, as lists and as a schedule. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/neighbor.h"

/* ---- entries */

void pici_neighbor_entry(struct neighbor_entries *entries, int step, int peer, int segment)
{
    if (entries->count == entries->room && !entries->failed) {
        const size_t capacity = entries->room ? 2 * entries->room : 64;
        struct neighbor_entry *more = realloc(entries->list, capacity * sizeof *more);
        entries->failed = !more;
        if (more) {
            entries->list = more;
            entries->room = capacity;
        }
    }
    if (!entries->failed)
        entries->list[entries->count++] = (struct neighbor_entry){step, peer, segment};
}

static int by_step(const void *a, const void *b)
{
    const struct neighbor_entry *first = a, *second = b;
    if (first->step != second->step)
        return first->step < second->step ? -1 : 1;
    if (first->peer != second->peer)
        return first->peer < second->peer ? -1 : 1;
    return (first->segment > second->segment) - (first->segment < second->segment);
}

static size_t count_messages(const struct neighbor_entries *entries)
{
    size_t messages = 0;
    for (size_t i = 0; i < entries->count; i++)
        messages += i == 0 || entries->list[i].step != entries->list[i - 1].step ||
                    entries->list[i].peer != entries->list[i - 1].peer;
    return messages;
}

/* ---- lists */

static int is_same(const struct neighbor_route *route, const struct neighbor_message *one,
                   const struct neighbor_message *other)
{
    return one->count == other->count && memcmp(route->segments + one->first, route->segments + other->first,
                                                (size_t)one->count * sizeof *route->segments) == 0;
}

/* Put the messages of sorted entries into an array, and their segments from *segments_used on. begin: where each step
 * begins. */
static void list(struct neighbor_route *route, const struct neighbor_entries *entries,
                 struct neighbor_message *messages, int *begin, int *segments_used)
{
    int count = 0, step = 0;
    begin[0] = 0;
    for (size_t i = 0; i < entries->count; i++) {
        const struct neighbor_entry *current = &entries->list[i];
        const int at_step = current->step == NEIGHBOR_LAST_STEP ? route->steps - 1 : current->step;
        while (step < at_step)
            begin[++step] = count;
        if (i == 0 || current->step != entries->list[i - 1].step || current->peer != entries->list[i - 1].peer)
            messages[count++] = (struct neighbor_message){.peer = current->peer, .first = *segments_used};
        messages[count - 1].count++;
        route->segments[(*segments_used)++] = current->segment;
    }
    while (step < route->steps)
        begin[++step] = count;
}

/* Find sends of a step with the same segments. */
static void find_same(struct neighbor_route *route)
{
    for (int k = 0; k < route->steps; k++)
        for (int i = route->send_begin[k]; i < route->send_begin[k + 1]; i++)
            for (int j = route->send_begin[k]; j < i && !route->send[i].again; j++)
                if (!route->send[j].again && is_same(route, &route->send[i], &route->send[j]))
                    route->send[i].again = j - route->send_begin[k] + 1;
}

static void find_limits(struct neighbor_route *route)
{
    struct schedule_limits *limits = &route->limits;
    for (int k = 0; k < route->steps; k++) {
        const int sends = route->send_begin[k + 1] - route->send_begin[k];
        const int receives = route->receive_begin[k + 1] - route->receive_begin[k];
        limits->sends = sends > limits->sends ? sends : limits->sends;
        limits->receives = receives > limits->receives ? receives : limits->receives;
    }
    for (int i = 0; i < route->send_begin[route->steps]; i++) {
        limits->segments = route->send[i].count > limits->segments ? route->send[i].count : limits->segments;
        route->room_blocks += route->send[i].again ? 0 : (uint64_t)route->send[i].count;
    }
    for (int i = 0; i < route->receive_begin[route->steps]; i++) {
        limits->segments = route->receive[i].count > limits->segments ? route->receive[i].count : limits->segments;
        route->room_blocks += (uint64_t)route->receive[i].count;
    }
    limits->kept = 1;
    route->counts.widest = (uint64_t)limits->segments;
}

static int make(struct neighbor_route *route, struct neighbor_entries *sent, struct neighbor_entries *received)
{
    /* sorts before all others */
    if (sent->count)
        pici_neighbor_entry(sent, 0, INT_MIN, route->virtual_rank);
    if (sent->failed || received->failed || sent->count + received->count > INT_MAX)
        return 0;
    if (sent->count)
        qsort(sent->list, sent->count, sizeof *sent->list, by_step);
    if (received->count)
        qsort(received->list, received->count, sizeof *received->list, by_step);
    route->send_begin = calloc((size_t)route->steps + 1, sizeof *route->send_begin);
    route->receive_begin = calloc((size_t)route->steps + 1, sizeof *route->receive_begin);
    route->send = malloc((count_messages(sent) + 1) * sizeof *route->send);
    route->receive = malloc((count_messages(received) + 1) * sizeof *route->receive);
    route->segments = malloc((sent->count + received->count + 1) * sizeof *route->segments);
    if (!route->send_begin || !route->receive_begin || !route->send || !route->receive || !route->segments)
        return 0;
    int segments_used = 0;
    list(route, sent, route->send, route->send_begin, &segments_used);
    list(route, received, route->receive, route->receive_begin, &segments_used);
    if (sent->count)
        route->send[0].peer = route->virtual_rank;
    find_same(route);
    find_limits(route);
    return 1;
}

int pici_neighbor_make_lists(struct neighbor_route *route, struct neighbor_entries *sent,
                             struct neighbor_entries *received)
{
    const int made = route && make(route, sent, received);
    free(sent->list);
    free(received->list);
    return made;
}

struct neighbor_route *pici_neighbor_lists(const struct schedule_nodes *nodes, int ranks, int virtual_rank,
                                           const int *destination, int destinations, const int *source, int sources)
{
    struct neighbor_entries sent = {0}, received = {0};
    struct neighbor_route *route = calloc(1, sizeof *route);
    const int home = pici_schedule_node(nodes, virtual_rank);
    if (route)
        *route = (struct neighbor_route){.steps = 1, .virtual_rank = virtual_rank, .ranks = ranks, .nodes = nodes};
    for (int i = 0; i < destinations; i++)
        pici_neighbor_entry(&sent, NEIGHBOR_LAST_STEP, destination[i], virtual_rank);
    for (int i = 0; i < sources; i++)
        pici_neighbor_entry(&received, NEIGHBOR_LAST_STEP, source[i], source[i]);
    for (int i = 0; route && i < destinations; i++) {
        const uint64_t inter = pici_schedule_node(nodes, destination[i]) != home;
        route->counts.inter_messages += inter;
        route->counts.inter_blocks += inter;
    }
    if (route)
        route->counts.edges = route->counts.messages = route->counts.most_messages = route->counts.blocks =
            (uint64_t)destinations;
    if (!pici_neighbor_make_lists(route, &sent, &received)) {
        pici_neighbor_free(route);
        return NULL;
    }
    return route;
}

/* ---- regions */

void pici_neighbor_rename(struct neighbor_route *route, const int *names)
{
    const int sends = route->send_begin[route->steps], receives = route->receive_begin[route->steps];
    int segments = 0;
    for (int i = 0; i < sends; i++) {
        route->send[i].peer = names[route->send[i].peer];
        segments += route->send[i].count;
    }
    for (int i = 0; i < receives; i++) {
        route->receive[i].peer = names[route->receive[i].peer];
        segments += route->receive[i].count;
    }
    for (int i = 0; i < segments; i++)
        route->segments[i] = names[route->segments[i]];
    route->virtual_rank = names[route->virtual_rank];
}

int pici_neighbor_regions(const struct schedule_nodes *nodes, const int *region_of, int *order, int *begin)
{
    int regions = 0, placed = 0;
    for (int node = 0; node < nodes->nodes; node++)
        for (int i = nodes->begin[node]; i < nodes->begin[node + 1]; i++) {
            int first = nodes->begin[node];
            while (region_of[first] != region_of[i])
                first++;
            if (first < i)
                continue; /* the region has its place */
            begin[regions++] = placed;
            for (int j = i; j < nodes->begin[node + 1]; j++)
                if (region_of[j] == region_of[i])
                    order[placed++] = j;
        }
    begin[regions] = placed;
    return regions;
}

void pici_neighbor_free(struct neighbor_route *route)
{
    if (!route)
        return;
    free(route->send_begin);
    free(route->receive_begin);
    free(route->send);
    free(route->receive);
    free(route->segments);
    free(route->load);
    free(route->part);
    free(route);
}

/* ---- the schedule */

static int steps(const struct schedule *schedule, const struct schedule_call *call)
{
    (void)schedule;
    return call->route->steps;
}

static void limits(const struct schedule *schedule, const struct schedule_call *call, struct schedule_limits *most)
{
    (void)schedule;
    *most = call->route->limits;
}

static void copy(const struct neighbor_route *route, struct schedule_message *target,
                 const struct neighbor_message *from)
{
    target->peer = from->peer;
    target->count = from->count;
    memcpy(target->segments, route->segments + from->first, (size_t)from->count * sizeof *target->segments);
    target->keep = KEEP_MESSAGE;
    target->contributions = route->ranks;
    target->again = from->again;
}

static void step(const struct schedule *schedule, const struct schedule_call *call, int k, struct schedule_step *output)
{
    const struct neighbor_route *route = call->route;
    (void)schedule;
    output->phase = PHASE_GATHER;
    output->complete = COMPLETE_NONE;
    output->sends = route->send_begin[k + 1] - route->send_begin[k];
    output->receives = route->receive_begin[k + 1] - route->receive_begin[k];
    for (int i = 0; i < output->sends; i++) {
        copy(route, &output->send[i], &route->send[route->send_begin[k] + i]);
        output->send[i].action = output->send[i].peer == route->virtual_rank ? SEND_ENCODE : SEND_FORWARD;
    }
    for (int i = 0; i < output->receives; i++) {
        copy(route, &output->receive[i], &route->receive[route->receive_begin[k] + i]);
        output->receive[i].action = RECEIVE_PLACE;
        if (k == route->steps - 1)
            output->receive[i].keep = KEEP_NOT;
    }
}

const struct schedule pici_schedule_neighbor = {.id = (enum pici_algorithm)NEIGHBOR_ID,
                                                .name = "neighbor",
                                                .paired = PAIRED_NEVER,
                                                .steps = steps,
                                                .step = step,
                                                .limits = limits};
