/* SPDX-License-Identifier: BSD-3-Clause */
#include "schedule/alltoall.h"

#include <limits.h>

#include "schedule/traffic.h"

enum { LONGEST_TOGETHER = 256 << 10 }; /* bytes of a message by node: longer ones take memory and gain nothing */

static int least(int one, int other)
{
    return one < other ? one : other;
}

/* The number of steps for distances 1 to n - 1, with at most ALLTOALL_PEERS distances each. */
static int steps_of(int n)
{
    return (n - 1 + ALLTOALL_PEERS - 1) / ALLTOALL_PEERS;
}

/* The distances of a step: from *begin up to, but without, the returned value. */
static int distances(int n, int step, int *begin)
{
    *begin = 1 + step * ALLTOALL_PEERS;
    return least(*begin + ALLTOALL_PEERS, n);
}

static struct schedule_message *begin_message(struct schedule_message *list, int *n, int peer,
                                              enum schedule_action action, enum schedule_keep keep)
{
    struct schedule_message *message = &list[(*n)++];
    *message = (struct schedule_message){
        .peer = peer, .segments = message->segments, .action = action, .keep = keep, .contributions = 1};
    return message;
}

static void add_segment(struct schedule_message *message, int segment)
{
    message->segments[message->count++] = segment;
}

static void begin_step(struct schedule_step *step)
{
    step->phase = PHASE_GATHER;
    step->complete = COMPLETE_NONE;
    step->sends = step->receives = 0;
}

/* ---- pairwise */

static int pair_steps(const struct schedule *schedule, const struct schedule_call *call)
{
    (void)schedule;
    return steps_of(call->ranks);
}

static void pair_step(const struct schedule *schedule, const struct schedule_call *call, int k,
                      struct schedule_step *step)
{
    const int p = call->ranks, me = call->virtual_rank;
    int distance;
    (void)schedule;
    begin_step(step);
    for (const int end = distances(p, k, &distance); distance < end; distance++) {
        const int to = (me + distance) % p, from = (me - distance + p) % p;
        add_segment(begin_message(step->send, &step->sends, to, SEND_ENCODE, KEEP_NOT), to);
        add_segment(begin_message(step->receive, &step->receives, from, RECEIVE_PLACE, KEEP_NOT), p + from);
    }
}

static void pair_limits(const struct schedule *schedule, const struct schedule_call *call, struct schedule_limits *most)
{
    const int peers = least(call->ranks - 1, ALLTOALL_PEERS);
    (void)schedule;
    *most = (struct schedule_limits){.sends = peers, .receives = peers, .segments = peers > 0};
}

/* ---- by node */

struct shape {
    int p, nodes, node, first, ranks, number; /* of this node: its number, first virtual rank, ranks; mine among them */
    int most, fewest;                         /* ranks of a node */
};

static struct shape shape_of(const struct schedule_call *call)
{
    struct shape shape = {.p = call->ranks, .nodes = nodes_of(call)};
    shape.node = pici_schedule_node(call->nodes, call->virtual_rank);
    shape.first = nodes_begin(call, shape.node);
    shape.ranks = nodes_size(call, shape.node);
    shape.number = call->virtual_rank - shape.first;
    shape.fewest = call->ranks;
    for (int node = 0; node < shape.nodes; node++) {
        const int size = nodes_size(call, node);
        shape.most = size > shape.most ? size : shape.most;
        shape.fewest = least(size, shape.fewest);
    }
    return shape;
}

/* The number of ranks that rank number j of this node sends to: on one other node, and on all of them. */
static int rail_at(const struct shape *shape, const struct schedule_call *call, int j, int node)
{
    const int size = nodes_size(call, node);
    return size > j ? (size - j - 1) / shape->ranks + 1 : 0;
}

static int rail_of(const struct shape *shape, const struct schedule_call *call, int j)
{
    int ranks = 0;
    for (int distance = 1; distance < shape->nodes; distance++)
        ranks += rail_at(shape, call, j, (shape->node + distance) % shape->nodes);
    return ranks;
}

/* Add the segments for the ranks of rail j, in the order of sending: this rank's own (numbers: -1), or another rank's,
 * numbered from `numbers` on. */
static void add_rail(struct schedule_message *message, const struct shape *shape, const struct schedule_call *call,
                     int j, int numbers)
{
    for (int distance = 1; distance < shape->nodes; distance++) {
        const int node = (shape->node + distance) % shape->nodes;
        for (int number = j; number < nodes_size(call, node); number += shape->ranks)
            add_segment(message, numbers < 0 ? nodes_begin(call, node) + number : numbers++);
    }
}

/* The first number of the segments that rank number i of this node passes to this rank. */
static int passed_by(const struct shape *shape, int i, int rail)
{
    return 2 * shape->p + i * rail;
}

static void inside_step(const struct shape *shape, const struct schedule_call *call, int k, int rail,
                        struct schedule_step *step)
{
    int distance;
    for (const int end = distances(shape->ranks, k, &distance); distance < end; distance++) {
        const int to = (shape->number + distance) % shape->ranks,
                  from = (shape->number - distance + shape->ranks) % shape->ranks;
        struct schedule_message *message =
            begin_message(step->send, &step->sends, shape->first + to, SEND_ENCODE, KEEP_NOT);
        add_segment(message, shape->first + to);
        add_rail(message, shape, call, to, -1);
        message = begin_message(step->receive, &step->receives, shape->first + from, RECEIVE_PLACE,
                                rail ? KEEP_MESSAGE : KEEP_NOT);
        add_segment(message, shape->p + shape->first + from);
        add_rail(message, shape, call, shape->number, passed_by(shape, from, rail));
    }
}

/* Add the messages to a node, whose ranks begin at this place of the rail; and the message from a node. */
static void send_to_node(const struct shape *shape, const struct schedule_call *call, int node, int place, int rail,
                         struct schedule_step *step)
{
    for (int number = shape->number; number < nodes_size(call, node); number += shape->ranks, place++) {
        const int to = nodes_begin(call, node) + number;
        struct schedule_message *message = begin_message(step->send, &step->sends, to, SEND_FORWARD, KEEP_NOT);
        for (int i = 0; i < shape->ranks; i++)
            add_segment(message, i == shape->number ? to : passed_by(shape, i, rail) + place);
    }
}

static void receive_from_node(const struct shape *shape, const struct schedule_call *call, int node,
                              struct schedule_step *step)
{
    const int first = nodes_begin(call, node), size = nodes_size(call, node);
    struct schedule_message *message =
        begin_message(step->receive, &step->receives, first + shape->number % size, RECEIVE_PLACE, KEEP_NOT);
    for (int i = 0; i < size; i++)
        add_segment(message, shape->p + first + i);
}

static void between_step(const struct shape *shape, const struct schedule_call *call, int k, int rail,
                         struct schedule_step *step)
{
    int distance, place = 0;
    const int end = distances(shape->nodes, k, &distance);
    for (int before = 1; before < distance; before++)
        place += rail_at(shape, call, shape->number, (shape->node + before) % shape->nodes);
    for (; distance < end; distance++) {
        const int node = (shape->node + distance) % shape->nodes;
        send_to_node(shape, call, node, place, rail, step);
        place += rail_at(shape, call, shape->number, node);
        receive_from_node(shape, call, (shape->node - distance + shape->nodes) % shape->nodes, step);
    }
}

static int node_steps(const struct schedule *schedule, const struct schedule_call *call)
{
    const struct shape shape = shape_of(call);
    (void)schedule;
    return steps_of(shape.most) + steps_of(shape.nodes);
}

static void node_step(const struct schedule *schedule, const struct schedule_call *call, int k,
                      struct schedule_step *step)
{
    const struct shape shape = shape_of(call);
    const int inside = steps_of(shape.most), rail = rail_of(&shape, call, shape.number);
    (void)schedule;
    begin_step(step);
    if (k == 0 && rail) /* this rank's own segments for its rail */
        add_rail(begin_message(step->send, &step->sends, call->virtual_rank, SEND_ENCODE, KEEP_MESSAGE), &shape, call,
                 shape.number, -1);
    if (k < inside)
        inside_step(&shape, call, k, rail, step);
    else
        between_step(&shape, call, k - inside, rail, step);
}

static void node_limits(const struct schedule *schedule, const struct schedule_call *call, struct schedule_limits *most)
{
    const struct shape shape = shape_of(call);
    const int inside = least(shape.most - 1, ALLTOALL_PEERS), between = least(shape.nodes - 1, ALLTOALL_PEERS),
              each = (shape.most + shape.fewest - 1) / shape.fewest; /* the most ranks of a node in a rail */
    int rail = 0;
    (void)schedule;
    for (int node = 0; node < shape.nodes; node++)
        rail += (nodes_size(call, node) + shape.fewest - 1) / shape.fewest;
    *most = (struct schedule_limits){0};
    if (call->ranks == 1)
        return;
    most->sends = 1 + (inside > between * each ? inside : between * each);
    most->receives = inside > between ? inside : between;
    most->segments = 1 + rail > shape.most ? 1 + rail : shape.most;
    most->kept = shape.most;
}

/* ---- traffic */

/* The distances of both ranges. */
static int common(int begin, int end, int other_begin, int other_end)
{
    const int first = begin > other_begin ? begin : other_begin, after = least(end, other_end);
    return after > first ? after - first : 0;
}

static int same_load(const struct traffic_load *one, const struct traffic_load *other)
{
    return one->fraction == other->fraction && one->segments == other->segments && one->messages == other->messages;
}

/* Count the last step as a repetition of the one before if it is equal, or if there is no room for more steps. */
static void merge(struct schedule_traffic *traffic)
{
    struct traffic_step *last = &traffic->step[traffic->count - 1];
    if (traffic->count > 1 &&
        (traffic->count == TRAFFIC_STEPS ||
         (same_load(&last->between, &last[-1].between) && same_load(&last->inside, &last[-1].inside) &&
          last->encode == last[-1].encode && last->node_fraction == last[-1].node_fraction &&
          last->receive_fraction == last[-1].receive_fraction))) {
        last[-1].repeat++;
        traffic->count--;
    }
}

/* The rank with number i of a node of m sends to ranks of its node at distances below m - i, and above p - 1 - i. */
static void pair_traffic(const struct schedule *schedule, const struct schedule_call *call,
                         struct schedule_traffic *traffic)
{
    const int p = call->ranks, nodes = pici_traffic_nodes(call);
    for (int k = 0; k < schedule->steps(schedule, call); k++) {
        struct traffic_step *step = pici_traffic_add(traffic, PHASE_GATHER, 1, 0, 1);
        int begin;
        const int end = distances(p, k, &begin);
        for (int node = 0; node < nodes; node++) {
            const int m = nodes_size(call, node);
            int far = 0;
            for (int i = 0; i < m; i++) {
                const int inside = common(begin, end, 1, m - i) + common(begin, end, p - i, p),
                          between = end - begin - inside;
                pici_traffic_send(&step->inside, (double)inside / p, inside, inside);
                pici_traffic_send(&step->between, (double)between / p, between, between);
                far += between;
            }
            traffic_most(&step->node_fraction, (double)far / p);
        }
        step->receive_fraction = (double)(end - begin) / p;
        merge(traffic);
    }
}

/* Leaves out the blocks that a rank makes for its own rail. A rank decodes only the runs for itself. */
static void inside_traffic(const struct schedule_call *call, int k, struct traffic_step *step)
{
    struct schedule_call shaped = *call;
    for (int node = 0; node < pici_traffic_nodes(call); node++) {
        const int m = nodes_size(call, node);
        int begin, mates = 0;
        const int end = distances(m, k, &begin);
        shaped.virtual_rank = nodes_begin(call, node);
        const struct shape shape = shape_of(&shaped);
        for (int i = 0; i < m && begin < end; i++) {
            int runs = 0;
            for (int distance = begin; distance < end; distance++)
                runs += 1 + rail_of(&shape, call, (i + distance) % m);
            mates = end - begin;
            pici_traffic_send(&step->inside, (double)runs / call->ranks, runs, mates);
        }
        traffic_most(&step->receive_fraction, (double)mates / call->ranks);
    }
}

static void between_traffic(const struct schedule_call *call, int k, struct traffic_step *step)
{
    struct schedule_call shaped = *call;
    int begin;
    const int end = distances(nodes_of(call), k, &begin);
    step->encode = 0;
    for (int node = 0; node < pici_traffic_nodes(call); node++) {
        int out = 0, in = 0;
        shaped.virtual_rank = nodes_begin(call, node);
        const struct shape shape = shape_of(&shaped);
        for (int distance = begin; distance < end; distance++) {
            out += nodes_size(call, (node + distance) % shape.nodes) * shape.ranks;
            in += nodes_size(call, (node - distance + shape.nodes) % shape.nodes);
        }
        for (int i = 0; i < shape.ranks; i++) {
            int messages = 0;
            for (int distance = begin; distance < end; distance++)
                messages += rail_at(&shape, call, i, (node + distance) % shape.nodes);
            const int runs = messages * shape.ranks;
            pici_traffic_send(&step->between, (double)runs / call->ranks, runs, messages);
        }
        traffic_most(&step->node_fraction, (double)out / call->ranks);
        traffic_most(&step->receive_fraction, (double)in / call->ranks);
    }
}

static void node_traffic(const struct schedule *schedule, const struct schedule_call *call,
                         struct schedule_traffic *traffic)
{
    struct schedule_call first = *call;
    first.virtual_rank = 0;
    const int inside = steps_of(shape_of(&first).most);
    for (int k = 0; k < schedule->steps(schedule, &first); k++) {
        struct traffic_step *step = pici_traffic_add(traffic, PHASE_GATHER, 1, 0, 1);
        if (k < inside)
            inside_traffic(call, k, step);
        else
            between_traffic(call, k - inside, step);
        merge(traffic);
    }
}

/* ---- both */

enum { COLLECTIVES = 1u << PICI_ALL_TO_ALLV };

const struct schedule pici_schedule_alltoall = {.id = (enum pici_algorithm)ALLTOALL_ID,
                                                .name = "pairwise",
                                                .collectives = COLLECTIVES,
                                                .paired = PAIRED_NEVER,
                                                .steps = pair_steps,
                                                .step = pair_step,
                                                .limits = pair_limits,
                                                .traffic = pair_traffic};
const struct schedule pici_schedule_alltoall_nodes = {.id = (enum pici_algorithm)ALLTOALL_NODES_ID,
                                                      .name = "by node",
                                                      .collectives = COLLECTIVES,
                                                      .paired = PAIRED_NEVER,
                                                      .steps = node_steps,
                                                      .step = node_step,
                                                      .limits = node_limits,
                                                      .traffic = node_traffic};

const struct schedule *pici_alltoall_choose(const struct schedule_call *call, uint64_t longest_bytes)
{
    const struct shape shape = shape_of(call);
    struct schedule_limits most;
    if (shape.nodes == 1 || shape.fewest == 1)
        return &pici_schedule_alltoall;
    node_limits(NULL, call, &most);
    const uint64_t segments = (uint64_t)most.segments;
    if (segments * (uint64_t)shape.most > (uint64_t)(INT_MAX - 2 * call->ranks)) /* too many to number */
        return &pici_schedule_alltoall;
    return longest_bytes <= LONGEST_TOGETHER / segments ? &pici_schedule_alltoall_nodes : &pici_schedule_alltoall;
}

int pici_alltoall_segments(const struct schedule *schedule, const struct schedule_call *call)
{
    const struct shape shape = shape_of(call);
    return 2 * call->ranks +
           (schedule == &pici_schedule_alltoall_nodes ? shape.ranks * rail_of(&shape, call, shape.number) : 0);
}

void pici_alltoall_traffic(const struct schedule *schedule, const struct schedule_call *call,
                           struct alltoall_traffic *traffic)
{
    const struct shape shape = shape_of(call);
    const uint64_t mates = (uint64_t)shape.ranks - 1, far = (uint64_t)(call->ranks - shape.ranks),
                   rail = (uint64_t)rail_of(&shape, call, shape.number);
    *traffic = (struct alltoall_traffic){{mates, far}, {mates, far}};
    if (schedule == &pici_schedule_alltoall_nodes)
        *traffic = (struct alltoall_traffic){{mates, rail}, {mates + far - rail, rail * (uint64_t)shape.ranks}};
}
