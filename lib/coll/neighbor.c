/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The public functions of pici/neighbor.h. To make a plan, the ranks check that all of them can, and that both ends of
 * each edge state it. Then each rank sends all others its row of the adjacency matrix, and computes the whole plan. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "coll/call.h"
#include "coll/neighbor.h"
#include "coll/note.h"
#include "coll/options.h"
#include "coll/region.h"
#include "sized.h"

int pici_neighbor_most_halved = NEIGHBOR_HALVED_RANKS;

/* ---- what all ranks know */

/* Combine the numbers of all ranks: their minimum or their sum. */
static enum pici_status combine(struct pici_comm *comm, uint64_t *numbers, uint64_t count, enum pici_op op)
{
    return pici_call_reduce_small(numbers, count, op, comm);
}

/* ---- arguments */

struct lists {
    int sources, destinations;
    const int *source, *destination;
};

static int list_is_wrong(const struct pici_comm *comm, int n, const int *list)
{
    int wrong = n < 0 || (n && !list);
    for (int i = 0; i < n && !wrong; i++)
        wrong = list[i] < 0 || list[i] >= comm->ranks;
    return wrong;
}

/* Check this rank's own arguments. */
static enum pici_status check_own(const struct pici_comm *comm, const struct lists *lists,
                                  struct pici_neighbor_opts *checked, const struct pici_neighbor_opts *opts)
{
    enum pici_status status =
        opts ? sized_read(checked, sizeof *checked, offsetof(struct pici_neighbor_opts, level), opts) : PICI_OK;
    if (status)
        return status;
    if (list_is_wrong(comm, lists->sources, lists->source) ||
        list_is_wrong(comm, lists->destinations, lists->destination) || checked->leaf < 0 || checked->gain < 0 ||
        (unsigned)checked->route > PICI_ROUTE_HALVING || (unsigned)checked->level > PICI_LEVEL_REGION)
        return PICI_E_ARG;
    if (comm->paired_only || (checked->route == PICI_ROUTE_HALVING && comm->ranks > pici_neighbor_most_halved))
        return PICI_E_UNSUPPORTED;
    return PICI_OK;
}

/* Check that all ranks can make the plan with the same options, and find the lowest bandwidths. */
static enum pici_status check_all(struct pici_neighbor_plan *plan, enum pici_status own,
                                  const struct pici_neighbor_opts *options)
{
    enum { STATUS, RANK, INTRA, INTER, OPTIONS, COUNT = 5, NUMBERS = OPTIONS + 2 * COUNT };
    struct pici_comm *comm = plan->comm;
    const uint64_t option[COUNT] = {(uint64_t)options->route, options->most_bytes, (uint64_t)options->leaf,
                                    (uint64_t)options->gain, (uint64_t)options->level};
    uint64_t numbers[NUMBERS] = {[STATUS] = (uint64_t)(int64_t)own,
                                 [RANK] = own ? (uint64_t)comm->rank : UINT64_MAX,
                                 [INTRA] = double_bits(comm->settings.bandwidth[POLICY_INTRA]),
                                 [INTER] = double_bits(comm->settings.bandwidth[POLICY_INTER])};
    numbers[STATUS] = own ? numbers[STATUS] : UINT64_MAX; /* statuses are negative: below that */
    for (int i = 0; i < COUNT; i++) {
        numbers[OPTIONS + 2 * i] = own ? UINT64_MAX : option[i];
        numbers[OPTIONS + 2 * i + 1] = own ? UINT64_MAX : ~option[i];
    }
    enum pici_status status = combine(comm, numbers, NUMBERS, PICI_MIN);
    if (status)
        return status;
    if (numbers[RANK] != UINT64_MAX) {
        status = (enum pici_status)(int64_t)numbers[STATUS];
        pici_coll_note(comm, "rank %llu cannot make this neighbourhood plan: %s", (unsigned long long)numbers[RANK],
                       pici_strerror(status));
        return status;
    }
    for (int i = 0; i < COUNT; i++)
        if (numbers[OPTIONS + 2 * i] != ~numbers[OPTIONS + 2 * i + 1]) {
            static const char *const names[COUNT] = {"route", "most_bytes", "leaf", "gain", "level"};
            pici_coll_note(comm, "ranks disagree on the option %s of a neighbourhood plan", names[i]);
            return PICI_E_ARG;
        }
    plan->bandwidth[0] = double_of_bits(numbers[INTRA]);
    plan->bandwidth[1] = double_of_bits(numbers[INTER]);
    return PICI_OK;
}

/* ---- both ends of each edge */

static uint64_t hash_edge(uint64_t from, uint64_t to)
{
    uint64_t hash = (from << 32 | to) + UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    hash = (hash ^ hash >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    hash = (hash ^ hash >> 27) * UINT64_C(0x94d049bb133111eb);
    return hash ^ hash >> 31;
}

/* This rank's edges between two runs of ranks, as one number: edges that begin at this rank count positively, those
 * that end here negatively. If both ends state each edge equally often, the numbers of all ranks cancel out. */
static uint64_t balance(const struct pici_comm *comm, const struct lists *lists, const int from[2], const int to[2])
{
    const int me = comm->rank, begins = me >= from[0] && me < from[1], ends = me >= to[0] && me < to[1];
    uint64_t sum = 0;
    for (int i = 0; i < lists->destinations && begins; i++)
        if (lists->destination[i] >= to[0] && lists->destination[i] < to[1])
            sum += hash_edge((uint64_t)me, (uint64_t)lists->destination[i]);
    for (int i = 0; i < lists->sources && ends; i++)
        if (lists->source[i] >= from[0] && lists->source[i] < from[1])
            sum -= hash_edge((uint64_t)lists->source[i], (uint64_t)me);
    return sum;
}

static uint64_t count_in(const int *list, int n, int rank)
{
    uint64_t times = 0;
    for (int i = 0; i < n; i++)
        times += list[i] == rank;
    return times;
}

/* The ends of some edge state it unequally often. By bisection, find the lowest rank where such an edge begins, then
 * the lowest rank where one of these edges ends. */
static enum pici_status name_edge(struct pici_comm *comm, const struct lists *lists)
{
    int run[2][2] = {{0, comm->ranks}, {0, comm->ranks}};
    for (int end = 0; end < 2; end++)
        while (run[end][1] - run[end][0] > 1) {
            const int high = run[end][1], middle = run[end][0] + (high - run[end][0]) / 2;
            run[end][1] = middle;
            uint64_t sum = balance(comm, lists, run[0], run[1]);
            enum pici_status status = combine(comm, &sum, 1, PICI_SUM);
            if (status)
                return status;
            if (!sum) {
                run[end][0] = middle;
                run[end][1] = high;
            }
        }
    const int from = run[0][0], to = run[1][0];
    uint64_t times[2] = {0, 0};
    if (comm->rank == from)
        times[0] = count_in(lists->destination, lists->destinations, to);
    if (comm->rank == to)
        times[1] = count_in(lists->source, lists->sources, from);
    enum pici_status status = combine(comm, times, 2, PICI_SUM);
    if (status)
        return status;
    pici_coll_note(comm,
                   "the edge from rank %d to rank %d is %llu times among the destinations of rank %d, and %llu times "
                   "among the sources of rank %d",
                   from, to, (unsigned long long)times[0], from, (unsigned long long)times[1], to);
    return PICI_E_PEER;
}

static enum pici_status check_edges(struct pici_comm *comm, const struct lists *lists)
{
    const int all[2] = {0, comm->ranks};
    uint64_t sum = balance(comm, lists, all, all);
    enum pici_status status = combine(comm, &sum, 1, PICI_SUM);
    if (status)
        return status;
    return sum ? name_edge(comm, lists) : PICI_OK;
}

/* ---- the graph */

static void set_bit(uint8_t *row, int i)
{
    row[i / 8] |= (uint8_t)(1 << i % 8);
}

static int has_bit(const uint8_t *row, int i)
{
    return row[i / 8] >> i % 8 & 1;
}

/* The places of virtual ranks in a plan: its order by regions. */
struct places {
    struct schedule_nodes regions;
    int *order;     /* [ranks] virtual rank by place */
    int *begin;     /* [ranks + 1] the array of regions */
    int *place_of;  /* [ranks] place by rank */
    int *region_of; /* [ranks] by virtual rank */
    uint8_t *gathered;
};

enum { REGION_BYTES = 4 }; /* a region's number on its way */

static int own_region(const struct pici_neighbor_opts *options)
{
    if (options->level == PICI_LEVEL_NODE)
        return 0;
    return options->level == PICI_LEVEL_REGION ? options->region : pici_region_own(options->level);
}

/* Allocate the arrays; returns 0 if one is missing. places_free frees them in any case. */
static int places_new(struct places *places, int ranks)
{
    const size_t count = (size_t)ranks;
    *places = (struct places){.order = malloc(count * sizeof *places->order),
                              .begin = malloc((count + 1) * sizeof *places->begin),
                              .place_of = malloc(count * sizeof *places->place_of),
                              .region_of = calloc(count, sizeof *places->region_of),
                              .gathered = malloc(count * REGION_BYTES)};
    return places->order && places->begin && places->place_of && places->region_of && places->gathered;
}

/* Gather the regions of all ranks, and place the ranks. */
static enum pici_status find_places(struct places *places, struct pici_neighbor_plan *plan,
                                    const struct pici_neighbor_opts *options)
{
    const struct pici_comm *comm = plan->comm;
    uint8_t own[REGION_BYTES];
    enum pici_status status = PICI_OK;
    store_le32(own, (uint32_t)own_region(options));
    if (options->level != PICI_LEVEL_NODE)
        status = pici_call_gather_small(own, places->gathered, sizeof own, plan->comm);
    if (status)
        return status;
    for (int i = 0; i < comm->ranks && options->level != PICI_LEVEL_NODE; i++)
        places->region_of[i] = (int)load_le32(places->gathered + REGION_BYTES * comm->order[i]);
    places->regions.nodes = pici_neighbor_regions(&plan->nodes, places->region_of, places->order, places->begin);
    places->regions.begin = places->begin;
    plan->regions = places->regions.nodes;
    for (int place = 0; place < comm->ranks; place++)
        places->place_of[comm->order[places->order[place]]] = place;
    return PICI_OK;
}

static void places_free(struct places *places)
{
    free(places->order);
    free(places->begin);
    free(places->place_of);
    free(places->region_of);
    free(places->gathered);
}

/* Gather the rows of all ranks, as bits by rank, and turn them into rows by place. */
static enum pici_status gather_rows(struct pici_comm *comm, const struct lists *lists, const int *place_of,
                                    uint64_t *out, size_t words)
{
    const size_t count = (size_t)comm->ranks, row = (count + 7) / 8;
    uint8_t *own = calloc(1, row), *all = malloc(count * row);
    uint64_t missing = !own || !all;
    enum pici_status status = combine(comm, &missing, 1, PICI_SUM);
    if (!status && missing)
        status = PICI_E_NOMEM;
    for (int i = 0; i < lists->destinations && !status; i++)
        if (lists->destination[i] != comm->rank)
            set_bit(own, lists->destination[i]);
    if (!status)
        status = pici_call_gather_small(own, all, row, comm);
    for (int r = 0; r < comm->ranks && !status; r++)
        for (int destination = 0; destination < comm->ranks; destination++)
            if (has_bit(all + (size_t)r * row, destination))
                out[(size_t)place_of[r] * words + (size_t)place_of[destination] / 64] |= UINT64_C(1)
                                                                                         << place_of[destination] % 64;
    free(own);
    free(all);
    return status;
}

static int compare_ints(const void *one, const void *other)
{
    const int first = *(const int *)one, second = *(const int *)other;
    return (first > second) - (first < second);
}

/* Write the virtual ranks of a list of ranks in rising order, without repetitions and without this rank. Returns their
 * number. */
static int rising(const struct pici_comm *comm, const int *virtual_rank, const int *list, int n, int *to)
{
    int kept = 0, many = 0;
    for (int i = 0; i < n; i++)
        if (list[i] != comm->rank)
            to[many++] = virtual_rank[list[i]];
    if (many)
        qsort(to, (size_t)many, sizeof *to, compare_ints);
    for (int i = 0; i < many; i++)
        if (i == 0 || to[i] != to[i - 1])
            to[kept++] = to[i];
    return kept;
}

/* ---- routes */

static void plan_routes(struct pici_neighbor_plan *plan, const struct neighbor_graph *graph,
                        const struct places *places, const struct pici_neighbor_opts *options)
{
    const int place = places->place_of[plan->comm->rank];
    plan->least_inter = pici_neighbor_least(graph);
    if (plan->route != PICI_ROUTE_DIRECT)
        plan->routes[PICI_ROUTE_HALVING] =
            pici_neighbor_halving(graph, place, options->leaf, options->gain ? options->gain : 2);
    if (plan->route != PICI_ROUTE_HALVING)
        plan->routes[PICI_ROUTE_DIRECT] = pici_neighbor_direct(graph, place);
    for (int i = PICI_ROUTE_DIRECT; i <= PICI_ROUTE_HALVING; i++)
        if (plan->routes[i])
            pici_neighbor_rename(plan->routes[i], places->order);
}

/* With more ranks than halving allows, a rank knows only its own messages. The ranks sum their counts. */
static enum pici_status plan_lists(struct pici_neighbor_plan *plan, const struct lists *lists)
{
    struct pici_comm *comm = plan->comm;
    int *virtual_rank = malloc((size_t)comm->ranks * sizeof *virtual_rank);
    int *to = malloc(((size_t)lists->destinations + 1) * sizeof *to),
        *from = malloc(((size_t)lists->sources + 1) * sizeof *from);
    struct neighbor_route *route = NULL;
    for (int i = 0; i < comm->ranks && virtual_rank; i++)
        virtual_rank[comm->order[i]] = i;
    if (virtual_rank && to && from)
        route = pici_neighbor_lists(&plan->nodes, comm->ranks, comm->virtual_rank, to,
                                    rising(comm, virtual_rank, lists->destination, lists->destinations, to), from,
                                    rising(comm, virtual_rank, lists->source, lists->sources, from));
    plan->routes[PICI_ROUTE_DIRECT] = route;
    free(virtual_rank);
    free(to);
    free(from);
    const uint64_t messages = route ? route->counts.messages : 0;
    const uint64_t inter_messages = route ? route->counts.inter_messages : 0;
    uint64_t sum[4] = {messages, inter_messages, (uint64_t)comm->rank * messages, 0};
    uint64_t least[1] = {~messages};
    enum pici_status status = combine(comm, sum, 4, PICI_SUM);
    status = status ? status : combine(comm, least, 1, PICI_MIN);
    if (status || !route)
        return status;
    route->counts = (struct neighbor_counts){.edges = sum[0],
                                             .messages = sum[0],
                                             .inter_messages = sum[1],
                                             .most_messages = ~least[0],
                                             .blocks = sum[0],
                                             .inter_blocks = sum[1],
                                             .widest = route->counts.widest,
                                             .hash = hash_edge(sum[0], sum[1]) + sum[2]};
    return PICI_OK;
}

/* Check that all ranks made the same plan, and find the most that any rank needs. */
static enum pici_status close_routes(struct pici_neighbor_plan *plan)
{
    enum { MADE, HASH, NOT_HASH, ROUTES, NUMBERS = ROUTES + 4 };
    const int wanted = plan->comm->ranks > pici_neighbor_most_halved || plan->route ? 1 : 2;
    uint64_t numbers[NUMBERS] = {0};
    int made = 0;
    for (int i = PICI_ROUTE_DIRECT; i <= PICI_ROUTE_HALVING; i++) {
        const struct neighbor_route *route = plan->routes[i];
        uint64_t *most = &numbers[ROUTES + 2 * (i - PICI_ROUTE_DIRECT)];
        made += route != NULL;
        plan->hash = hash_edge(plan->hash, route ? route->counts.hash : 0) ^ plan->number;
        most[0] = ~(route ? route->counts.widest : 0);
        most[1] = ~(route ? route->room_blocks : 0);
    }
    numbers[MADE] = made == wanted && plan->slots && plan->slot_begin;
    numbers[HASH] = plan->hash;
    numbers[NOT_HASH] = ~plan->hash;
    const uint64_t own = numbers[MADE];
    enum pici_status status = combine(plan->comm, numbers, NUMBERS, PICI_MIN);
    if (status)
        return status;
    if (!numbers[MADE]) {
        pici_coll_note(plan->comm, own ? "another rank has no memory for a neighbourhood plan"
                                       : "no memory for a neighbourhood plan");
        return PICI_E_NOMEM;
    }
    if (numbers[HASH] != ~numbers[NOT_HASH]) {
        pici_coll_note(plan->comm, "ranks made different neighbourhood plans");
        return PICI_E_PEER;
    }
    for (int i = PICI_ROUTE_DIRECT; i <= PICI_ROUTE_HALVING; i++) {
        plan->widest[i] = ~numbers[ROUTES + 2 * (i - PICI_ROUTE_DIRECT)];
        plan->blocks[i] = ~numbers[ROUTES + 2 * (i - PICI_ROUTE_DIRECT) + 1];
    }
    return PICI_OK;
}

/* Find the entries of `source` that receive each virtual rank's contribution. */
static void find_slots(struct pici_neighbor_plan *plan, const struct lists *lists)
{
    const struct pici_comm *comm = plan->comm;
    plan->sources = lists->sources;
    plan->slots = malloc(((size_t)lists->sources + 1) * sizeof *plan->slots);
    plan->slot_begin = calloc((size_t)comm->ranks + 2, sizeof *plan->slot_begin);
    int *virtual_rank = malloc((size_t)comm->ranks * sizeof *virtual_rank);
    if (plan->slots && plan->slot_begin && virtual_rank) {
        int *next = plan->slot_begin +
                    1; /* for each virtual rank, the place of its next slot; in the end, the end of its slots */
        for (int i = 0; i < comm->ranks; i++)
            virtual_rank[comm->order[i]] = i;
        for (int i = 0; i < lists->sources; i++)
            next[virtual_rank[lists->source[i]] + 1]++;
        for (int i = 1; i <= comm->ranks; i++)
            next[i] += next[i - 1];
        for (int i = 0; i < lists->sources; i++)
            plan->slots[next[virtual_rank[lists->source[i]]]++] = i;
    } else {
        free(plan->slots);
        plan->slots = NULL;
    }
    free(virtual_rank);
}

static enum pici_status make(struct pici_neighbor_plan *plan, const struct lists *lists,
                             const struct pici_neighbor_opts *options)
{
    struct pici_comm *comm = plan->comm;
    const size_t words = pici_neighbor_words(comm->ranks);
    enum pici_status status;
    plan->route = options->route;
    plan->most_bytes = options->most_bytes;
    plan->regions = plan->nodes.nodes;
    if ((status = check_edges(comm, lists)))
        return status;
    find_slots(plan, lists);
    if (comm->ranks > pici_neighbor_most_halved) {
        status = plan_lists(plan, lists);
        return status ? status : close_routes(plan);
    }
    struct places places;
    uint64_t *out = calloc((size_t)comm->ranks * words, sizeof *out);
    uint64_t missing = !places_new(&places, comm->ranks) || !out;
    const struct neighbor_graph graph = {comm->ranks, words, out, &plan->nodes, &places.regions};
    status = combine(comm, &missing, 1, PICI_SUM);
    if (!status && missing)
        status = PICI_E_NOMEM;
    if (!status && !(status = find_places(&places, plan, options)) &&
        !(status = gather_rows(comm, lists, places.place_of, out, words))) {
        plan_routes(plan, &graph, &places, options);
        status = close_routes(plan);
    }
    places_free(&places);
    free(out);
    return status;
}

/* Copy the node map, which may change while routes refer to it. Returns 0 without memory. */
static int keep_nodes(struct pici_neighbor_plan *plan, const struct pici_comm *comm)
{
    const size_t bytes = ((size_t)comm->nodes + 1) * sizeof *plan->begin;
    plan->begin = malloc(bytes);
    if (!plan->begin)
        return 0;
    memcpy(plan->begin, comm->begin, bytes);
    plan->nodes = (struct schedule_nodes){comm->nodes, plan->begin};
    return 1;
}

enum pici_status pici_neighbor_plan_create(struct pici_neighbor_plan **out, struct pici_comm *comm, int sources,
                                           const int *source, int destinations, const int *destination,
                                           const struct pici_neighbor_opts *opts)
{
    const double begin = pici_coll_now();
    const struct lists lists = {sources, destinations, source, destination};
    struct pici_neighbor_opts checked = PICI_NEIGHBOR_OPTS_INIT;
    if (!out || !comm)
        return PICI_E_ARG;
    *out = NULL;
    struct pici_neighbor_plan *plan = calloc(1, sizeof *plan), none = {.comm = comm};
    const int kept = plan && keep_nodes(plan, comm);
    const enum pici_status own = kept ? check_own(comm, &lists, &checked, opts) : PICI_E_NOMEM;
    struct pici_neighbor_plan *made = plan ? plan : &none;
    made->comm = comm;
    made->number = comm->plans++;
    made->order_hash = comm->order_hash;
    enum pici_status status = check_all(made, own, &checked);
    if (!status)
        status = make(made, &lists, &checked);
    if (status) {
        if (status == PICI_E_NOMEM)
            pici_coll_note(comm, "no memory for a neighbourhood plan");
        comm->harmless = !comm->broken;
        pici_neighbor_plan_free(plan);
        return status;
    }
    plan->seconds = pici_coll_now() - begin;
    *out = plan;
    return PICI_OK;
}

void pici_neighbor_plan_free(struct pici_neighbor_plan *plan)
{
    if (!plan)
        return;
    for (int i = 0; i < 3; i++)
        pici_neighbor_free(plan->routes[i]);
    free(plan->slots);
    free(plan->slot_begin);
    free(plan->begin);
    free(plan);
}

enum pici_status pici_neighbor_plan_info(const struct pici_neighbor_plan *plan, struct pici_neighbor_info *to)
{
    enum { AUTO_BYTES = 4096, WINDOW = 4, SLICE = 1 << 20 }; /* the defaults */
    if (!plan || !to)
        return PICI_E_ARG;
    const enum pici_route route =
        pici_neighbor_choose(plan, plan->most_bytes ? plan->most_bytes : AUTO_BYTES, WINDOW, SLICE);
    const struct neighbor_route *chosen = plan->routes[route];
    const struct neighbor_counts *counts = &chosen->counts;
    struct pici_neighbor_info info = {.size = sizeof info,
                                      .route = route,
                                      .steps = chosen->steps,
                                      .edges = counts->edges,
                                      .messages = counts->messages,
                                      .inter_messages = counts->inter_messages,
                                      .most_messages = counts->most_messages,
                                      .blocks = counts->blocks,
                                      .inter_blocks = counts->inter_blocks,
                                      .least_inter = plan->least_inter,
                                      .widest = plan->widest[route],
                                      .offloads = counts->offloads,
                                      .hash = plan->hash,
                                      .seconds = plan->seconds,
                                      .regions = (uint64_t)plan->regions,
                                      .region_messages = counts->region_messages,
                                      .region_blocks = counts->region_blocks};
    for (int i = 0; i < chosen->send_begin[chosen->steps]; i++)
        if (chosen->send[i].peer != chosen->virtual_rank) {
            info.own_messages++;
            info.own_blocks += (uint64_t)chosen->send[i].count;
        }
    return sized_write(to, &info, sizeof info, offsetof(struct pici_neighbor_info, regions));
}

/* ---- calls */

static struct call_args make_call(const struct pici_neighbor_plan *plan, const void *send, void *recv, uint64_t count,
                                  enum pici_dtype dtype)
{
    return (struct call_args){.rules = &pici_neighbor_rules,
                              .kind = PICI_ALL_GATHER,
                              .plan = plan,
                              .send = send,
                              .recv = recv,
                              .count = count,
                              .dtype = dtype};
}

static struct call_args make_varied(const struct pici_neighbor_plan *plan, const void *send, uint64_t count, void *recv,
                                    const uint64_t *recvcounts, const uint64_t *displs, enum pici_dtype dtype)
{
    struct call_args args = make_call(plan, send, recv, count, dtype);
    args.varied = 1;
    args.recvcounts = recvcounts;
    args.displs = displs;
    return args;
}

enum pici_status pici_neighbor_plan_reserve(struct pici_neighbor_plan *plan, uint64_t count, enum pici_dtype dtype,
                                            const struct pici_coll_opts *options)
{
    struct pici_coll_opts checked;
    if (!plan)
        return PICI_E_ARG;
    struct pici_comm *comm = plan->comm;
    struct coll_call call = {.args = make_call(plan, NULL, NULL, count, dtype)};
    enum pici_status status = pici_options_check(&checked, comm, &call.args, options);
    if (!status && comm->head)
        status = PICI_E_BROKEN;
    if (status || (status = pici_options_resolve(&call, comm, &checked, NULL, 0)))
        return status;
    struct pici_request *request = comm->spare;
    const int other = comm->other && comm->transport.memory == PICI_MEMORY_DEVICE;
    *request = (struct pici_request){.comm = comm,
                                     .call = call,
                                     .engine = other ? comm->other : comm->engine,
                                     .engine_self = other ? comm->other_self : comm->engine_self};
    status = pici_request_room(request);
    if (status && !comm->failed)
        comm->harmless = 1;
    return status;
}

enum pici_status pici_neighbor_all_gather(const void *send, void *recv, uint64_t count, enum pici_dtype dtype,
                                          struct pici_neighbor_plan *plan, const struct pici_coll_opts *options)
{
    return plan ? pici_call_wait(make_call(plan, send, recv, count, dtype), plan->comm, options) : PICI_E_ARG;
}

enum pici_status pici_neighbor_all_gatherv(const void *send, uint64_t sendcount, void *recv, const uint64_t *recvcounts,
                                           const uint64_t *displs, enum pici_dtype dtype,
                                           struct pici_neighbor_plan *plan, const struct pici_coll_opts *options)
{
    return plan ? pici_call_wait(make_varied(plan, send, sendcount, recv, recvcounts, displs, dtype), plan->comm,
                                 options)
                : PICI_E_ARG;
}

enum pici_status pici_neighbor_all_gather_start(const void *send, void *recv, uint64_t count, enum pici_dtype dtype,
                                                struct pici_neighbor_plan *plan, const struct pici_coll_opts *options,
                                                struct pici_request **request)
{
    if (request)
        *request = NULL;
    return plan ? pici_call_start(make_call(plan, send, recv, count, dtype), plan->comm, options, request) : PICI_E_ARG;
}

enum pici_status pici_neighbor_all_gatherv_start(const void *send, uint64_t sendcount, void *recv,
                                                 const uint64_t *recvcounts, const uint64_t *displs,
                                                 enum pici_dtype dtype, struct pici_neighbor_plan *plan,
                                                 const struct pici_coll_opts *options, struct pici_request **request)
{
    if (request)
        *request = NULL;
    return plan ? pici_call_start(make_varied(plan, send, sendcount, recv, recvcounts, displs, dtype), plan->comm,
                                  options, request)
                : PICI_E_ARG;
}
