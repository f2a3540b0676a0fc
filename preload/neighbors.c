/* SPDX-License-Identifier: BSD-3-Clause */
#include "preload/neighbors.h"

#include <stdlib.h>
#include <string.h>

#include "preload/agree.h"
#include "preload/gpu.h"
#include "preload/types.h"

enum {
    AUTO_RANKS = 8, /* with fewer ranks, or fewer neighbours on average, there is little to relay */
    AUTO_DEGREE = 4,
    LEAST_RANKS = 3, /* with two ranks, MPI lets their counts differ */
    MOST_PAUSE = 64
};

/* ---- the arguments */

static int varied(const struct call *call)
{
    return call->function == NEIGHBOR_ALLGATHERV;
}

/* Entry i of MPI's list. */
static MPI_Count count_of(const struct call *call, int i)
{
    if (!varied(call))
        return call->count;
    return call->large ? ((const MPI_Count *)call->counts)[i] : ((const int *)call->counts)[i];
}

/* Where its slot is, in items from the receive buffer. */
static MPI_Aint place_of(const struct call *call, int i)
{
    if (!varied(call))
        return (MPI_Aint)i * (MPI_Aint)call->count;
    return call->large ? ((const MPI_Aint *)call->displs)[i] : ((const int *)call->displs)[i];
}

/* In bytes from the receive buffer; may be negative. */
static MPI_Aint offset_of(const struct call *call, int i, MPI_Aint extent)
{
    return (MPI_Aint)((uintptr_t)place_of(call, i) * (uintptr_t)extent);
}

static void *slot_of(const struct call *call, int i, MPI_Aint extent)
{
    return (void *)((uintptr_t)call->recv + (uintptr_t)offset_of(call, i, extent));
}

/* Bytes of a count of items; 0 and *refused if there are too many. */
static size_t bytes_of(MPI_Count count, MPI_Datatype type, int *refused)
{
    size_t bytes = 0;
    if (count < 0 || __builtin_mul_overflow((uint64_t)count, (uint64_t)pmpi_type_size(type), &bytes) ||
        bytes > SIZE_MAX / 2) {
        *refused = 1;
        return 0;
    }
    return bytes;
}

/* Elements of other types are bytes, as MPI packs them. */
static size_t width_of(MPI_Datatype type, int *plain)
{
    struct basic basic;
    enum pici_dtype dtype;
    int each;
    if (pmpi_basic(type, &basic, plain) && pmpi_dtype_gathered(&basic, &dtype, &each))
        return pici_dtype_width(dtype);
    *plain = 0;
    return 1;
}

static MPI_Aint extent_of(MPI_Datatype type)
{
    MPI_Aint lower_bound, extent = 0;
    PMPI_Type_get_extent(type, &lower_bound, &extent);
    return extent;
}

/* ---- this rank's part of a call */

static void free_exchange(struct exchange *exchange)
{
    free(exchange->send_buffer);
    free(exchange->receive_buffer);
    free(exchange->counts);
    free(exchange->offsets);
    *exchange = (struct exchange){0};
}

/* Set the bytes on each edge that this rank knows. */
static void measure(const struct call *call, const struct graph *graph, struct exchange *exchange)
{
    exchange->sent = graph->lists.destinations ? bytes_of(call->sendcount, call->sendtype, &exchange->refused) : 0;
    exchange->send_width = exchange->sent ? width_of(call->sendtype, &exchange->sends_plain) : 0;
    if (varied(call)) {
        exchange->refused |= graph->lists.sources && (!call->counts || !call->displs);
        for (int i = 0; i < graph->lists.sources && !exchange->refused; i++)
            exchange->refused |= __builtin_add_overflow(
                exchange->total, bytes_of(count_of(call, graph->lists.place[i]), call->type, &exchange->refused),
                &exchange->total);
    } else if (graph->lists.sources) {
        exchange->received = bytes_of(call->count, call->type, &exchange->refused);
        exchange->refused |= __builtin_mul_overflow(exchange->received, (size_t)graph->lists.sources, &exchange->total);
    }
    exchange->width = exchange->total ? width_of(call->type, &exchange->receives_plain) : 0;
}

/* Find the slots of MPI_Neighbor_allgatherv: contiguous ones in this call's memory, or the program's. The program's
 * offsets may be negative, so these count from the lowest slot. */
static void find_slots(const struct call *call, const struct graph *graph, struct exchange *exchange)
{
    const MPI_Aint extent = extent_of(call->type);
    MPI_Aint lowest = 0;
    size_t all = 0;
    int found = 0;
    for (int i = 0; i < graph->lists.sources; i++) {
        const MPI_Aint offset = offset_of(call, graph->lists.place[i], extent);
        exchange->counts[i] = bytes_of(count_of(call, graph->lists.place[i]), call->type, &exchange->refused);
        if (exchange->receive_buffer)
            exchange->offsets[i] = all;
        else
            exchange->offsets[i] = exchange->counts[i] ? (uint64_t)offset : 0;
        all += exchange->counts[i];
        if (exchange->counts[i] && (!found++ || offset < lowest))
            lowest = offset;
    }
    if (exchange->receive_buffer)
        return;
    for (int i = 0; i < graph->lists.sources; i++)
        exchange->offsets[i] -= exchange->counts[i] ? (uint64_t)lowest : 0;
    exchange->recv = (uint8_t *)((uintptr_t)call->recv + (uintptr_t)lowest);
}

static int overlaps(const struct graph *graph, const struct exchange *exchange)
{
    const uintptr_t send = (uintptr_t)exchange->send, recv = (uintptr_t)exchange->recv;
    for (int i = 0; exchange->sent && i < graph->lists.sources; i++) {
        const uintptr_t slot = recv + (exchange->counts ? exchange->offsets[i] : (size_t)i * exchange->received);
        const uintptr_t bytes = exchange->counts ? exchange->counts[i] : exchange->received;
        if (bytes && send < slot + bytes && slot < send + exchange->sent)
            return 1;
    }
    return 0;
}

/* A rank that sends to nobody may give MPI null, or another count. pici needs a buffer of the count of all ranks. */
static void send_nothing(const struct call *call, const struct graph *graph, struct exchange *exchange)
{
    static const uint8_t nothing;
    exchange->send = &nothing;
    if (!graph->lists.sources || varied(call))
        return;
    exchange->send_buffer = calloc(1, exchange->received + 1);
    exchange->refused |= !exchange->send_buffer;
    exchange->send = exchange->send_buffer;
}

static void prepare_send(const struct call *call, const struct graph *graph, struct exchange *exchange)
{
    exchange->send = call->send;
    if (!graph->lists.destinations) {
        send_nothing(call, graph, exchange);
    } else if (exchange->sent && !exchange->sends_plain) {
        exchange->send_buffer = malloc(exchange->sent);
        exchange->refused |= !exchange->send_buffer ||
                             !pmpi_pack(call->send, call->sendcount, call->sendtype, exchange->send_buffer, call->comm);
        exchange->send = exchange->send_buffer;
    }
    exchange->refused |= exchange->sent && !exchange->send;
}

static void prepare_receive(const struct call *call, const struct graph *graph, struct exchange *exchange)
{
    exchange->recv = call->recv;
    /* the slots of MPI_PROC_NULL are left alone */
    if (exchange->total &&
        (!exchange->receives_plain || (!varied(call) && graph->lists.sources < graph->lists.listed))) {
        exchange->recv = exchange->receive_buffer = malloc(exchange->total);
        exchange->refused |= !exchange->receive_buffer;
    }
    if (varied(call) && !exchange->refused) {
        exchange->counts = calloc((size_t)graph->lists.sources + 1, sizeof *exchange->counts);
        exchange->offsets = calloc((size_t)graph->lists.sources + 1, sizeof *exchange->offsets);
        exchange->refused |= !exchange->counts || !exchange->offsets;
        if (!exchange->refused)
            find_slots(call, graph, exchange);
    }
    exchange->refused |= exchange->total && !exchange->recv;
}

static void prepare(const struct call *call, const struct graph *graph, struct exchange *exchange)
{
    exchange->refused |= graph->failed || pmpi_gpu(); /* may have changed since the ranks agreed on the communicator */
    if (!exchange->refused)
        prepare_send(call, graph, exchange);
    if (!exchange->refused)
        prepare_receive(call, graph, exchange);
    exchange->refused |= !exchange->refused && overlaps(graph, exchange);
}

/* ---- what all ranks agree on */

/* Note the largest size, and the complement of the smallest; both are 0 without any. Within 63 bits: MPICH 4.0 compares
 * MPI_UINT64_T as signed. */
static void note_size(uint64_t *most, uint64_t *most_not, uint64_t size)
{
    const uint64_t complement = INT64_MAX - size;
    *most = size > *most ? size : *most;
    *most_not = complement > *most_not ? complement : *most_not;
}

static int same(uint64_t most, uint64_t most_not)
{
    return most == INT64_MAX - most_not;
}

/* Whether a rank receives too little on average. */
static int too_little(const struct graph *graph, uint64_t bytes, int ranks)
{
    return !bytes || (double)bytes * (double)graph->edges < (double)pmpi_settings()->min_bytes * ranks;
}

/* Let more and more calls pass before the ranks agree on one again. */
static void pause_calls(struct graph *graph)
{
    if (!graph->last_pause)
        graph->last_pause = 1;
    else
        graph->last_pause = graph->last_pause < MOST_PAUSE ? 2 * graph->last_pause : MOST_PAUSE;
    graph->pause = graph->last_pause;
}

static enum reason agree_on_call(const struct call *call, struct state *state, struct exchange *exchange, int ranks,
                                 int *rc)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    enum { BYTES, BYTES_NOT, WIDTH, WIDTH_NOT, REFUSED };
    struct graph *graph = state->graph;
    uint64_t words[PMPI_WORDS] = {[REFUSED] = (uint64_t)exchange->refused};
    if (graph->lists.destinations && !exchange->refused)
        note_size(&words[BYTES], &words[BYTES_NOT], exchange->sent);
    if (graph->lists.sources && !varied(call) && !exchange->refused)
        note_size(&words[BYTES], &words[BYTES_NOT], exchange->received);
    if (exchange->sent)
        note_size(&words[WIDTH], &words[WIDTH_NOT], exchange->send_width);
    if (exchange->total)
        note_size(&words[WIDTH], &words[WIDTH_NOT], exchange->width);
    *rc = pmpi_agree(call->comm, call->function, words, MPI_MAX);
    if (*rc != MPI_SUCCESS)
        return OFF;
    if (words[REFUSED]) {
        pmpi_say(call->comm, &said,
                 "%s: a rank cannot take part: no memory, a GPU, overlapping buffers, or an earlier error; MPI makes "
                 "the neighbourhood calls of this communicator from now on",
                 pmpi_function_name(call->function));
        graph->reason = OFF;
        return OFF;
    }
    if (too_little(graph, words[BYTES], ranks)) {
        pause_calls(graph);
        return SMALL;
    }
    graph->last_pause = 0;
    exchange->longest = words[BYTES];
    if (!varied(call) && !same(words[BYTES], words[BYTES_NOT]))
        return COUNTS;
    exchange->width = same(words[WIDTH], words[WIDTH_NOT]) ? (size_t)words[WIDTH] : 1;
    /* also on ranks without neighbours */
    if (!varied(call))
        exchange->received = exchange->sent = (size_t)words[BYTES];
    for (int i = 0; exchange->counts && i < graph->lists.sources; i++) {
        exchange->counts[i] /= exchange->width;
        exchange->offsets[i] /= exchange->width;
    }
    return OURS;
}

/* On a communicator's first call, agree on facts about its graph. */
static int agree_on_graph(const struct call *call, struct state *state, int ranks)
{
    enum { LACKING, EDGES, ALONE };
    const struct settings *settings = pmpi_settings();
    struct graph *graph = pmpi_graph(call->comm);
    uint64_t words[PMPI_WORDS] = {[LACKING] = !graph};
    if (graph) {
        words[EDGES] = (uint64_t)graph->others;
        words[ALONE] = (uint64_t)graph->alone;
    }
    const int rc = pmpi_agree(call->comm, call->function, words, MPI_SUM);
    if (rc != MPI_SUCCESS || words[LACKING]) {
        pmpi_graph_free(graph);
        pmpi_state_off(state, OFF);
        return rc;
    }
    graph->edges = words[EDGES];
    graph->some_alone = words[ALONE] > 0;
    const uint64_t least = settings->route ? 1 : (uint64_t)ranks * AUTO_DEGREE;
    graph->reason = graph->edges < least ? FEW_NEIGHBORS : OURS;
    state->graph = graph;
    return MPI_SUCCESS;
}

/* ---- the plan */

/* All ranks have the same status, unless pici's communicator has failed: so they agree once more. */
static int make_plan(const struct call *call, struct state *state)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    struct graph *graph = state->graph;
    struct pici_neighbor_opts opts = PICI_NEIGHBOR_OPTS_INIT;
    opts.route = pmpi_settings()->route;
    const enum pici_status made =
        pici_neighbor_plan_create(&graph->plan, state->comm, graph->lists.sources, graph->lists.source,
                                  graph->lists.destinations, graph->lists.destination, &opts);
    uint64_t words[PMPI_WORDS] = {made != PICI_OK};
    const int rc = pmpi_agree(call->comm, call->function, words, MPI_MAX);
    if (rc == MPI_SUCCESS && !words[0])
        return rc;
    pmpi_say(call->comm, &said, "%s: off: no plan for a communicator's neighbourhoods: %s",
             pmpi_function_name(call->function), made ? pici_comm_error(state->comm) : "another rank failed");
    pmpi_graph_unplan(graph);
    graph->reason = OFF;
    return rc;
}

static enum pici_dtype dtype_of(size_t width)
{
    switch (width) {
    case 8: return PICI_U64;
    case 4: return PICI_U32;
    case 2: return PICI_U16;
    default: return PICI_U8;
    }
}

/* A rank that lacks memory once a call has begun leaves others waiting. So for each length the ranks first check that
 * all have the memory. The communicator keeps it. */
static int reserve(const struct call *call, struct state *state, const struct exchange *exchange)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    struct graph *graph = state->graph;
    const uint64_t count = exchange->longest / exchange->width;
    for (unsigned i = 0; i < PMPI_LENGTHS && i < graph->lengths; i++)
        if (graph->length[i].count == count && graph->length[i].width == exchange->width)
            return MPI_SUCCESS;
    uint64_t words[PMPI_WORDS] = {pici_neighbor_plan_reserve(graph->plan, count, dtype_of(exchange->width), NULL) !=
                                  PICI_OK};
    const int rc = pmpi_agree(call->comm, call->function, words, MPI_MAX);
    if (rc != MPI_SUCCESS || words[0]) {
        pmpi_say(
            call->comm, &said,
            "%s: a rank has no memory for the call; MPI makes the neighbourhood calls of this communicator from now on",
            pmpi_function_name(call->function));
        pmpi_graph_unplan(graph);
        graph->reason = OFF;
        return rc;
    }
    graph->length[graph->lengths % PMPI_LENGTHS].count = count;
    graph->length[graph->lengths % PMPI_LENGTHS].width = exchange->width;
    graph->lengths++;
    return MPI_SUCCESS;
}

static enum reason make_ready(const struct call *call, struct state *state, const struct exchange *exchange, int *rc)
{
    struct graph *graph = state->graph;
    if (!graph->plan && graph->eligible++ < pmpi_settings()->after)
        return FIRST;
    if (!state->comm)
        *rc = pmpi_state_make(state, call->comm, call->function);
    if (*rc == MPI_SUCCESS && state->reason == OURS && !graph->plan)
        *rc = make_plan(call, state);
    if (*rc == MPI_SUCCESS && state->reason == OURS && graph->reason == OURS)
        *rc = reserve(call, state, exchange);
    return state->reason ? state->reason : graph->reason;
}

/* ---- the decision */

/* Whether all ranks have this rank's size. MPI requires it of MPI_Neighbor_allgather, but nobody notices the count of a
 * rank without neighbours. In MPI_Neighbor_allgatherv each rank has its own. */
static int own_size_tells(const struct call *call, const struct graph *graph)
{
    return !varied(call) && !graph->some_alone;
}

static enum reason decide(const struct call *call, struct state *state, struct exchange *exchange, int *rc)
{
    const struct settings *settings = pmpi_settings();
    int ranks = 0;
    if (state->reason != OURS)
        return state->reason;
    if (!settings->neighbors || !(settings->functions & 1u << call->function))
        return SWITCHED_OFF;
    if (PMPI_Comm_size(call->comm, &ranks) != MPI_SUCCESS || !pmpi_has_graph(call->comm))
        return NO_TOPOLOGY;
    if (ranks < (settings->route ? LEAST_RANKS : AUTO_RANKS))
        return FEW_RANKS;
    if (!state->graph)
        *rc = agree_on_graph(call, state, ranks);
    struct graph *graph = state->graph;
    if (!graph || graph->reason != OURS)
        return graph ? graph->reason : OFF;
    measure(call, graph, exchange);
    if (own_size_tells(call, graph)) {
        if (too_little(graph, graph->lists.sources ? exchange->received : exchange->sent, ranks))
            return SMALL;
    } else if (graph->pause) {
        graph->pause--;
        return SMALL;
    }
    prepare(call, graph, exchange);
    const enum reason reason = agree_on_call(call, state, exchange, ranks, rc);
    return reason ? reason : make_ready(call, state, exchange, rc);
}

enum reason pmpi_neighbors_decide(const struct call *call, struct state *state, struct exchange *exchange, int *rc)
{
    *exchange = (struct exchange){0};
    const enum reason reason = decide(call, state, exchange, rc);
    if (reason || *rc != MPI_SUCCESS)
        free_exchange(exchange);
    return reason;
}

/* ---- the call */

/* Copy received elements to the program's slots. */
static int spread(const struct call *call, const struct graph *graph, const struct exchange *exchange)
{
    const MPI_Aint extent = extent_of(call->type);
    int good = 1;
    for (int i = 0; i < graph->lists.sources && good; i++) {
        const size_t bytes = exchange->counts ? exchange->counts[i] * exchange->width : exchange->received;
        const uint8_t *from = exchange->receive_buffer + (exchange->offsets ? exchange->offsets[i] * exchange->width
                                                                            : (size_t)i * exchange->received);
        if (exchange->receives_plain && bytes)
            memcpy(slot_of(call, graph->lists.place[i], extent), from, bytes);
        else if (bytes)
            good = pmpi_unpack(from, slot_of(call, graph->lists.place[i], extent),
                               count_of(call, graph->lists.place[i]), call->type, call->comm);
    }
    return good;
}

enum pici_status pmpi_neighbors_begin(const struct call *call, struct state *state, const struct exchange *exchange,
                                      const struct pici_coll_opts *opts, struct pici_request **request)
{
    struct pici_neighbor_plan *plan = state->graph->plan;
    const enum pici_dtype dtype = dtype_of(exchange->width);
    const uint64_t count = exchange->sent / exchange->width;
    if (varied(call))
        return request ? pici_neighbor_all_gatherv_start(exchange->send, count, exchange->recv, exchange->counts,
                                                         exchange->offsets, dtype, plan, opts, request)
                       : pici_neighbor_all_gatherv(exchange->send, count, exchange->recv, exchange->counts,
                                                   exchange->offsets, dtype, plan, opts);
    return request ? pici_neighbor_all_gather_start(exchange->send, exchange->recv, count, dtype, plan, opts, request)
                   : pici_neighbor_all_gather(exchange->send, exchange->recv, count, dtype, plan, opts);
}

enum pici_status pmpi_neighbors_end(const struct call *call, struct state *state, struct exchange *exchange,
                                    enum pici_status status, const char **failure)
{
    struct graph *graph = state->graph;
    if (status == PICI_OK && exchange->receive_buffer && !spread(call, graph, exchange)) {
        *failure = PMPI_UNPACKING;
        status = PICI_E_TRANSPORT;
    }
    graph->failed |= status != PICI_OK;
    free_exchange(exchange);
    return status;
}
