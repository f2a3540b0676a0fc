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
    LEAST_RANKS = 3, /* of two ranks, MPI lets each contribute another count */
    MOST_PAUSE = 64
};

/* ---- the arguments */

static int varied(const struct call *c)
{
    return c->function == NEIGHBOR_ALLGATHERV;
}

/* Entry i of MPI's list. */
static MPI_Count count_of(const struct call *c, int i)
{
    return !varied(c) ? c->count : c->large ? ((const MPI_Count *)c->counts)[i] : ((const int *)c->counts)[i];
}

/* Where its slot is, in items from the receive buffer. */
static MPI_Aint place_of(const struct call *c, int i)
{
    return !varied(c) ? (MPI_Aint)i * (MPI_Aint)c->count
           : c->large ? ((const MPI_Aint *)c->displs)[i]
                      : ((const int *)c->displs)[i];
}

/* In bytes from the receive buffer; may be negative. */
static MPI_Aint offset_of(const struct call *c, int i, MPI_Aint extent)
{
    return (MPI_Aint)((uintptr_t)place_of(c, i) * (uintptr_t)extent);
}

static void *slot_of(const struct call *c, int i, MPI_Aint extent)
{
    return (void *)((uintptr_t)c->recv + (uintptr_t)offset_of(c, i, extent));
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
    struct basic b;
    enum pici_dtype dtype;
    int each;
    if (pmpi_basic(type, &b, plain) && pmpi_dtype_gathered(&b, &dtype, &each))
        return pici_dtype_width(dtype);
    *plain = 0;
    return 1;
}

static MPI_Aint extent_of(MPI_Datatype type)
{
    MPI_Aint lower, extent = 0;
    PMPI_Type_get_extent(type, &lower, &extent);
    return extent;
}

/* ---- this rank's part of a call */

static void free_exchange(struct exchange *x)
{
    free(x->out);
    free(x->in);
    free(x->count);
    free(x->at);
    *x = (struct exchange){0};
}

/* The bytes that go over each edge, as far as this rank knows. */
static void measure(const struct call *c, const struct graph *g, struct exchange *x)
{
    x->sent = g->lists.destinations ? bytes_of(c->sendcount, c->sendtype, &x->refused) : 0;
    x->send_width = x->sent ? width_of(c->sendtype, &x->sends_plain) : 0;
    if (varied(c)) {
        x->refused |= g->lists.sources && (!c->counts || !c->displs);
        for (int i = 0; i < g->lists.sources && !x->refused; i++)
            x->refused |=
                __builtin_add_overflow(x->all, bytes_of(count_of(c, g->lists.place[i]), c->type, &x->refused), &x->all);
    } else if (g->lists.sources) {
        x->received = bytes_of(c->count, c->type, &x->refused);
        x->refused |= __builtin_mul_overflow(x->received, (size_t)g->lists.sources, &x->all);
    }
    x->width = x->all ? width_of(c->type, &x->receives_plain) : 0;
}

/* The slots of MPI_Neighbor_allgatherv, where elements are in order; from the lowest one on, since an offset of MPI's
 * may be negative. */
static void find_slots(const struct call *c, const struct graph *g, struct exchange *x)
{
    const MPI_Aint extent = extent_of(c->type);
    MPI_Aint lowest = 0;
    size_t all = 0;
    int found = 0;
    for (int i = 0; i < g->lists.sources; i++) {
        const MPI_Aint offset = offset_of(c, g->lists.place[i], extent);
        x->count[i] = bytes_of(count_of(c, g->lists.place[i]), c->type, &x->refused);
        x->at[i] = x->in ? all : x->count[i] ? (uint64_t)offset : 0;
        all += x->count[i];
        if (x->count[i] && (!found++ || offset < lowest))
            lowest = offset;
    }
    if (x->in)
        return;
    for (int i = 0; i < g->lists.sources; i++)
        x->at[i] -= x->count[i] ? (uint64_t)lowest : 0;
    x->recv = (uint8_t *)((uintptr_t)c->recv + (uintptr_t)lowest);
}

static int overlaps(const struct graph *g, const struct exchange *x)
{
    const uintptr_t send = (uintptr_t)x->send, recv = (uintptr_t)x->recv;
    for (int i = 0; x->sent && i < g->lists.sources; i++) {
        const uintptr_t slot = recv + (x->count ? x->at[i] : (size_t)i * x->received),
                        bytes = x->count ? x->count[i] : x->received;
        if (bytes && send < slot + bytes && slot < send + x->sent)
            return 1;
    }
    return 0;
}

/* MPI takes null, or another count, from a rank that sends to nobody; pici wants a buffer of the count of all ranks. */
static void send_nothing(const struct call *c, const struct graph *g, struct exchange *x)
{
    static const uint8_t nothing;
    x->send = &nothing;
    if (!g->lists.sources || varied(c))
        return;
    x->out = calloc(1, x->received + 1);
    x->refused |= !x->out;
    x->send = x->out;
}

static void prepare_send(const struct call *c, const struct graph *g, struct exchange *x)
{
    x->send = c->send;
    if (!g->lists.destinations) {
        send_nothing(c, g, x);
    } else if (x->sent && !x->sends_plain) {
        x->out = malloc(x->sent);
        x->refused |= !x->out || !pmpi_pack(c->send, c->sendcount, c->sendtype, x->out, c->comm);
        x->send = x->out;
    }
    x->refused |= x->sent && !x->send;
}

static void prepare_receive(const struct call *c, const struct graph *g, struct exchange *x)
{
    x->recv = c->recv;
    /* the slots of MPI_PROC_NULL are left alone */
    if (x->all && (!x->receives_plain || (!varied(c) && g->lists.sources < g->lists.listed))) {
        x->recv = x->in = malloc(x->all);
        x->refused |= !x->in;
    }
    if (varied(c) && !x->refused) {
        x->count = calloc((size_t)g->lists.sources + 1, sizeof *x->count);
        x->at = calloc((size_t)g->lists.sources + 1, sizeof *x->at);
        x->refused |= !x->count || !x->at;
        if (!x->refused)
            find_slots(c, g, x);
    }
    x->refused |= x->all && !x->recv;
}

static void prepare(const struct call *c, const struct graph *g, struct exchange *x)
{
    x->refused |= g->failed || pmpi_gpu(); /* since the ranks agreed on the communicator */
    if (!x->refused)
        prepare_send(c, g, x);
    if (!x->refused)
        prepare_receive(c, g, x);
    x->refused |= !x->refused && overlaps(g, x);
}

/* ---- what all ranks agree on */

/* The largest size, and the complement of the smallest; both 0 without any. Within 63 bits: MPICH 4.0 compares
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

/* By the mean of what a rank receives. */
static int too_little(const struct graph *g, uint64_t bytes, int ranks)
{
    return !bytes || (double)bytes * (double)g->edges < (double)pmpi_settings()->min_bytes * ranks;
}

/* Let more and more calls pass before the ranks agree on one again. */
static void pause_calls(struct graph *g)
{
    g->last_pause = !g->last_pause ? 1 : g->last_pause < MOST_PAUSE ? 2 * g->last_pause : MOST_PAUSE;
    g->pause = g->last_pause;
}

static enum reason agree_on_call(const struct call *c, struct state *s, struct exchange *x, int ranks, int *rc)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    enum { BYTES, BYTES_NOT, WIDTH, WIDTH_NOT, REFUSED };
    struct graph *g = s->graph;
    uint64_t words[PMPI_WORDS] = {[REFUSED] = (uint64_t)x->refused};
    if (g->lists.destinations && !x->refused)
        note_size(&words[BYTES], &words[BYTES_NOT], x->sent);
    if (g->lists.sources && !varied(c) && !x->refused)
        note_size(&words[BYTES], &words[BYTES_NOT], x->received);
    if (x->sent)
        note_size(&words[WIDTH], &words[WIDTH_NOT], x->send_width);
    if (x->all)
        note_size(&words[WIDTH], &words[WIDTH_NOT], x->width);
    *rc = pmpi_agree(c->comm, c->function, words, MPI_MAX);
    if (*rc != MPI_SUCCESS)
        return OFF;
    if (words[REFUSED]) {
        pmpi_say(c->comm, &said,
                 "%s: a rank cannot take part: no memory, a GPU, overlapping buffers, or an earlier error; the "
                 "neighbourhoods of this communicator are MPI's from now on",
                 pmpi_function_name(c->function));
        g->reason = OFF;
        return OFF;
    }
    if (too_little(g, words[BYTES], ranks)) {
        pause_calls(g);
        return SMALL;
    }
    g->last_pause = 0;
    x->longest = words[BYTES];
    if (!varied(c) && !same(words[BYTES], words[BYTES_NOT]))
        return COUNTS;
    x->width = same(words[WIDTH], words[WIDTH_NOT]) ? (size_t)words[WIDTH] : 1;
    if (!varied(c))
        x->received = x->sent = (size_t)words[BYTES]; /* also where there are no neighbours */
    for (int i = 0; x->count && i < g->lists.sources; i++) {
        x->count[i] /= x->width;
        x->at[i] /= x->width;
    }
    return OURS;
}

/* The first time on a communicator: what all ranks have to know of its graph. */
static int agree_on_graph(const struct call *c, struct state *s, int ranks)
{
    enum { LACKING, EDGES, ALONE };
    const struct settings *set = pmpi_settings();
    struct graph *g = pmpi_graph(c->comm);
    uint64_t words[PMPI_WORDS] = {
        [LACKING] = !g, [EDGES] = g ? (uint64_t)g->others : 0, [ALONE] = g ? (uint64_t)g->alone : 0};
    const int rc = pmpi_agree(c->comm, c->function, words, MPI_SUM);
    if (rc != MPI_SUCCESS || words[LACKING]) {
        pmpi_graph_free(g);
        pmpi_state_off(s, OFF);
        return rc;
    }
    g->edges = words[EDGES];
    g->some_alone = words[ALONE] > 0;
    g->reason = g->edges < (set->route ? 1 : (uint64_t)ranks * AUTO_DEGREE) ? FEW_NEIGHBORS : OURS;
    s->graph = g;
    return MPI_SUCCESS;
}

/* ---- the plan */

/* All ranks have the same status, unless pici's communicator has failed: so they agree once more. */
static int make_plan(const struct call *c, struct state *s)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    struct graph *g = s->graph;
    struct pici_neighbor_opts opts = PICI_NEIGHBOR_OPTS_INIT;
    opts.route = pmpi_settings()->route;
    const enum pici_status made = pici_neighbor_plan_create(&g->plan, s->comm, g->lists.sources, g->lists.source,
                                                            g->lists.destinations, g->lists.destination, &opts);
    uint64_t words[PMPI_WORDS] = {made != PICI_OK};
    const int rc = pmpi_agree(c->comm, c->function, words, MPI_MAX);
    if (rc == MPI_SUCCESS && !words[0])
        return rc;
    pmpi_say(c->comm, &said, "%s: off: no plan for a communicator's neighbourhoods: %s",
             pmpi_function_name(c->function), made ? pici_comm_error(s->comm) : "another rank failed");
    pmpi_graph_unplan(g);
    g->reason = OFF;
    return rc;
}

static enum pici_dtype dtype_of(size_t width)
{
    return width == 8 ? PICI_U64 : width == 4 ? PICI_U32 : width == 2 ? PICI_U16 : PICI_U8;
}

/* A rank that has no memory for a call when that has begun leaves others waiting. So for each length the ranks first
 * see whether all have it. The communicator keeps that memory. */
static int reserve(const struct call *c, struct state *s, const struct exchange *x)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    struct graph *g = s->graph;
    const uint64_t count = x->longest / x->width;
    for (unsigned i = 0; i < PMPI_LENGTHS && i < g->lengths; i++)
        if (g->length[i].count == count && g->length[i].width == x->width)
            return MPI_SUCCESS;
    uint64_t words[PMPI_WORDS] = {pici_neighbor_plan_reserve(g->plan, count, dtype_of(x->width), NULL) != PICI_OK};
    const int rc = pmpi_agree(c->comm, c->function, words, MPI_MAX);
    if (rc != MPI_SUCCESS || words[0]) {
        pmpi_say(c->comm, &said,
                 "%s: a rank has no memory for the call; the neighbourhoods of this communicator are MPI's from now on",
                 pmpi_function_name(c->function));
        pmpi_graph_unplan(g);
        g->reason = OFF;
        return rc;
    }
    g->length[g->lengths % PMPI_LENGTHS].count = count;
    g->length[g->lengths % PMPI_LENGTHS].width = x->width;
    g->lengths++;
    return MPI_SUCCESS;
}

static enum reason make_ready(const struct call *c, struct state *s, const struct exchange *x, int *rc)
{
    struct graph *g = s->graph;
    if (!g->plan && g->eligible++ < pmpi_settings()->after)
        return FIRST;
    if (!s->comm)
        *rc = pmpi_state_make(s, c->comm, c->function);
    if (*rc == MPI_SUCCESS && s->reason == OURS && !g->plan)
        *rc = make_plan(c, s);
    if (*rc == MPI_SUCCESS && s->reason == OURS && g->reason == OURS)
        *rc = reserve(c, s, x);
    return s->reason ? s->reason : g->reason;
}

/* ---- the decision */

/* MPI makes the count of MPI_Neighbor_allgather the same on all ranks, but nobody notices what a rank without
 * neighbours says; that of MPI_Neighbor_allgatherv is each rank's own. */
static int own_size_tells(const struct call *c, const struct graph *g)
{
    return !varied(c) && !g->some_alone;
}

static enum reason decide(const struct call *c, struct state *s, struct exchange *x, int *rc)
{
    const struct settings *set = pmpi_settings();
    int ranks = 0;
    if (s->reason != OURS)
        return s->reason;
    if (!set->neighbors || !(set->functions & 1u << c->function))
        return SWITCHED_OFF;
    if (PMPI_Comm_size(c->comm, &ranks) != MPI_SUCCESS || !pmpi_has_graph(c->comm))
        return NO_TOPOLOGY;
    if (ranks < (set->route ? LEAST_RANKS : AUTO_RANKS))
        return FEW_RANKS;
    if (!s->graph)
        *rc = agree_on_graph(c, s, ranks);
    struct graph *g = s->graph;
    if (!g || g->reason != OURS)
        return g ? g->reason : OFF;
    measure(c, g, x);
    if (own_size_tells(c, g)) {
        if (too_little(g, g->lists.sources ? x->received : x->sent, ranks))
            return SMALL;
    } else if (g->pause) {
        g->pause--;
        return SMALL;
    }
    prepare(c, g, x);
    const enum reason why = agree_on_call(c, s, x, ranks, rc);
    return why ? why : make_ready(c, s, x, rc);
}

enum reason pmpi_neighbors_decide(const struct call *c, struct state *s, struct exchange *x, int *rc)
{
    *x = (struct exchange){0};
    const enum reason why = decide(c, s, x, rc);
    if (why || *rc != MPI_SUCCESS)
        free_exchange(x);
    return why;
}

/* ---- the call */

/* Put what was received in order where the program wants it. */
static int spread(const struct call *c, const struct graph *g, const struct exchange *x)
{
    const MPI_Aint extent = extent_of(c->type);
    int good = 1;
    for (int i = 0; i < g->lists.sources && good; i++) {
        const size_t bytes = x->count ? x->count[i] * x->width : x->received;
        const uint8_t *from = x->in + (x->at ? x->at[i] * x->width : (size_t)i * x->received);
        if (x->receives_plain && bytes)
            memcpy(slot_of(c, g->lists.place[i], extent), from, bytes);
        else if (bytes)
            good = pmpi_unpack(from, slot_of(c, g->lists.place[i], extent), count_of(c, g->lists.place[i]), c->type,
                               c->comm);
    }
    return good;
}

enum pici_status pmpi_neighbors(const struct call *c, struct state *s, struct exchange *x,
                                const struct pici_coll_opts *opts, const char **failure)
{
    struct graph *g = s->graph;
    const enum pici_dtype dtype = dtype_of(x->width);
    const uint64_t count = x->sent / x->width;
    enum pici_status status =
        varied(c) ? pici_neighbor_all_gatherv(x->send, count, x->recv, x->count, x->at, dtype, g->plan, opts)
                  : pici_neighbor_all_gather(x->send, x->recv, count, dtype, g->plan, opts);
    if (status == PICI_OK && x->in && !spread(c, g, x)) {
        *failure = PMPI_UNPACKING;
        status = PICI_E_TRANSPORT;
    }
    g->failed |= status != PICI_OK;
    free_exchange(x);
    return status;
}
