/* SPDX-License-Identifier: BSD-3-Clause
 *
 * All-to-all: its schedules, by brute force; calls among threads and over sockets, compared with a plain copy; counts
 * that do not match, and other wrong arguments. Needs libc alone, for a run under ThreadSanitizer too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/message.h"
#include "pici/transport.h"
#include "schedule/alltoall.h"
#include "tests/util/coll.h"
#include "tests/util/socket.h"
#include "tests/util/transport.h"
#include "transport/thread.h"

enum { MOST = 64, RANKS = 17 };

static int failures;

#define EXPECT(holds, ...)                                                                                             \
    do {                                                                                                               \
        if (!(holds) && failures++ < 20) {                                                                             \
            printf("FAIL %s:%d: ", __FILE__, __LINE__);                                                                \
            printf(__VA_ARGS__);                                                                                       \
            printf("\n");                                                                                              \
        }                                                                                                              \
    } while (0)

/* ---- schedules ---- */

/* The run that a rank has under a segment's number: 1 + from * p + to; 0: none. */
struct walked {
    int *run;
    struct schedule_step step;
    struct alltoall_traffic sent;
    int kept;
};

/* One step of one rank: the messages that it sends have what it has at this moment. */
static const char *check_sends(struct walked *all, const struct schedule_call *call, int me,
                               const struct schedule_limits *most, int segments)
{
    struct walked *w = &all[me];
    if (w->step.sends > most->sends || w->step.receives > most->receives)
        return "more messages than the limits";
    for (int i = 0; i < w->step.sends; i++) {
        const struct schedule_message *m = &w->step.send[i];
        const int inter = pici_schedule_node(call->nodes, m->peer) != pici_schedule_node(call->nodes, me);
        if (m->count < 1 || m->count > most->segments)
            return "a message of no segments, or of too many";
        for (int j = 0; j < m->count; j++) {
            const int segment = m->segments[j];
            if (segment < 0 || segment >= segments)
                return "a segment out of range";
            if (m->action == SEND_ENCODE && segment >= call->ranks)
                return "what is encoded is not the rank's own";
            if (m->action == SEND_FORWARD && !w->run[segment])
                return "what is forwarded is not there";
            if (m->keep)
                w->run[segment] = 1 + me * call->ranks + segment;
        }
        w->kept += m->keep != KEEP_NOT;
        if (m->peer == me)
            continue;
        w->sent.messages[inter]++;
        w->sent.runs[inter] += (uint64_t)m->count;
    }
    return NULL;
}

static const char *check_receives(struct walked *all, const struct schedule_call *call, int me, unsigned char *arrived)
{
    const int p = call->ranks;
    struct walked *w = &all[me];
    for (int i = 0; i < w->step.receives; i++) {
        const struct schedule_message *m = &w->step.receive[i], *from = NULL;
        for (int j = 0; j < all[m->peer].step.sends; j++)
            if (all[m->peer].step.send[j].peer == me) {
                if (from)
                    return "two messages to a peer in a step";
                from = &all[m->peer].step.send[j];
            }
        if (!from || from->count != m->count)
            return "a message that is received is not sent so";
        for (int j = 0; j < m->count; j++) {
            const int sent = from->segments[j],
                      run = from->action == SEND_ENCODE ? 1 + m->peer * p + sent : all[m->peer].run[sent];
            if (m->segments[j] < p)
                return "received as if it was this rank's own";
            w->run[m->segments[j]] = run;
            if (m->segments[j] >= 2 * p)
                continue;
            if (run != 1 + (m->segments[j] - p) * p + me)
                return "another run than expected";
            arrived[run - 1]++;
        }
        w->kept += m->keep != KEEP_NOT;
    }
    return NULL;
}

static const char *walk(const struct schedule *s, int p, const struct schedule_nodes *nodes)
{
    struct walked all[MOST];
    void *memory[MOST];
    unsigned char *arrived = calloc((size_t)p * (size_t)p, 1);
    struct schedule_call call = {.kind = PICI_ALL_TO_ALLV, .ranks = p, .nodes = nodes};
    struct schedule_limits most;
    const char *wrong = NULL;
    int received, sent;
    s->limits(s, &call, &most);
    const int steps = s->steps(s, &call);
    for (int r = 0; r < p; r++) {
        call.virtual_rank = r;
        all[r] = (struct walked){.run = calloc((size_t)pici_alltoall_segments(s, &call), sizeof(int))};
        memory[r] = calloc(1, pici_schedule_step_bytes(&most));
        if (!arrived || !all[r].run || !memory[r])
            abort();
        pici_schedule_step_init(&all[r].step, &most, memory[r]);
    }
    for (int k = 0; k < steps && !wrong; k++) {
        for (int r = sent = 0; r < p && !wrong; r++) {
            call.virtual_rank = r;
            s->step(s, &call, k, &all[r].step);
            wrong = check_sends(all, &call, r, &most, pici_alltoall_segments(s, &call));
            for (int i = 0; i < all[r].step.sends; i++)
                sent += all[r].step.send[i].peer != r;
        }
        for (int r = received = 0; r < p && !wrong; received += all[r++].step.receives)
            wrong = check_receives(all, &call, r, arrived);
        if (!wrong && received != sent)
            wrong = "messages that nobody receives";
    }
    for (int i = 0; i < p * p && !wrong; i++)
        if (arrived[i] != (i / p != i % p))
            wrong = "a run that does not arrive once";
    for (int r = 0; r < p; r++) {
        struct alltoall_traffic traffic;
        call.virtual_rank = r;
        pici_alltoall_traffic(s, &call, &traffic);
        if (!wrong && memcmp(&traffic, &all[r].sent, sizeof traffic) != 0)
            wrong = "other traffic than by the closed form";
        if (!wrong && all[r].kept > most.kept)
            wrong = "more messages kept than the limits";
        free(all[r].run);
        free(memory[r]);
    }
    free(arrived);
    return wrong;
}

static void check_schedules(void)
{
    struct rng rng = {5};
    for (int p = 1; p <= MOST; p++)
        for (int map = 0; map < 8; map++) {
            int begin[MOST + 1] = {0}, nodes = 0;
            while (begin[nodes] < p) { /* one node; a rank each; nodes of 2, 3, 8; and of any size */
                static const int even[] = {MOST, 1, 2, 3, 8};
                const int size = map < 5 ? even[map] : 1 + (int)rng_below(&rng, 9);
                begin[nodes + 1] = begin[nodes] + size < p ? begin[nodes] + size : p;
                nodes++;
            }
            const struct schedule_nodes on = {nodes, begin};
            const char *pairs = walk(&pici_schedule_alltoall, p, &on),
                       *by_node = walk(&pici_schedule_alltoall_nodes, p, &on);
            EXPECT(!pairs, "pairwise, %d ranks, map %d: %s", p, map, pairs);
            EXPECT(!by_node, "by node, %d ranks, map %d: %s", p, map, by_node);
        }
}

/* By node only where that makes messages fewer, and not too long. */
static void check_choice(void)
{
    static const int even[] = {0, 4, 8}, single[] = {0, 7, 8}, all[] = {0, 8};
    static const struct schedule_nodes two = {2, even}, single_rank = {2, single}, one = {1, all};
    struct schedule_call call = {.kind = PICI_ALL_TO_ALLV, .ranks = 8, .nodes = &two};
    EXPECT(pici_alltoall_choose(&call, 0) == &pici_schedule_alltoall_nodes, "short runs on two nodes");
    EXPECT(pici_alltoall_choose(&call, 64 << 10) == &pici_schedule_alltoall_nodes, "runs of 64 KiB");
    EXPECT(pici_alltoall_choose(&call, 1 << 20) == &pici_schedule_alltoall, "long runs");
    call.nodes = &single_rank;
    EXPECT(pici_alltoall_choose(&call, 0) == &pici_schedule_alltoall, "a node of one rank");
    call.nodes = &one;
    EXPECT(pici_alltoall_choose(&call, 0) == &pici_schedule_alltoall, "one node");
    /* one node of 65536 ranks among 40000 of two: more segments than an int numbers */
    enum { PAIRS = 40000, CROWD = 65536 };
    int *begins = malloc((PAIRS + 2) * sizeof *begins);
    if (!begins)
        abort();
    for (int i = 0; i <= PAIRS; i++)
        begins[i + 1] = CROWD + 2 * i;
    begins[0] = 0;
    const struct schedule_nodes many = {PAIRS + 1, begins};
    call = (struct schedule_call){.kind = PICI_ALL_TO_ALLV, .ranks = CROWD + 2 * PAIRS, .nodes = &many};
    EXPECT(pici_alltoall_choose(&call, 0) == &pici_schedule_alltoall, "a node that is far larger than the others");
    free(begins);
}

/* ---- calls ---- */

struct side {
    uint64_t counts[RANKS], displs[RANKS];
    int packed; /* no displacements are passed */
    uint8_t *bytes;
    size_t size;
};

struct team {
    int p, node_of[RANKS], start;
    enum pici_dtype dtype;
    struct pici_coll_opts opts;
    struct pici_comm *comm[RANKS];
    struct side send[RANKS], recv[RANKS];
    struct pici_coll_stats stats[RANKS];
    enum pici_status status[RANKS];
};

static void place_runs(struct side *side, const struct team *t, struct rng *rng)
{
    const size_t width = pici_dtype_width(t->dtype);
    uint64_t end = 0;
    side->packed = (int)rng_below(rng, 2);
    for (int i = 0; i < t->p; i++) { /* with gaps, and the other way round */
        const int rank = side->packed ? i : t->p - 1 - i;
        end += side->packed ? 0 : rng_below(rng, 3);
        side->displs[rank] = side->counts[rank] ? end : UINT64_MAX - (uint64_t)i;
        end += side->counts[rank];
    }
    side->size = (size_t)(end + 1) * width;
    side->bytes = test_alloc(side->size);
    memset(side->bytes, 0x5c, side->size);
}

static uint8_t *run_at(const struct side *side, const struct team *t, int rank)
{
    return side->bytes + (side->counts[rank] ? side->displs[rank] * pici_dtype_width(t->dtype) : 0);
}

static void call_rank(void *context, int rank)
{
    struct team *t = context;
    const struct side *in = &t->send[rank], *out = &t->recv[rank];
    struct pici_coll_opts opts = t->opts;
    const uint64_t *sdispls = in->packed ? NULL : in->displs, *rdispls = out->packed ? NULL : out->displs;
    struct pici_request *request[2] = {NULL, NULL};
    uint64_t one = 1, sum = 0;
    t->stats[rank] = (struct pici_coll_stats)PICI_COLL_STATS_INIT;
    opts.stats = &t->stats[rank];
    enum pici_status s = pici_comm_set_nodes(t->comm[rank], t->node_of);
    if (!s && !t->start)
        s = pici_all_to_allv(in->bytes, in->counts, sdispls, out->bytes, out->counts, rdispls, t->dtype, t->comm[rank],
                             &opts);
    if (!s && t->start) {
        s = pici_all_to_allv_start(in->bytes, in->counts, sdispls, out->bytes, out->counts, rdispls, t->dtype,
                                   t->comm[rank], &opts, &request[0]);
        if (!s)
            s = pici_all_reduce_start(&one, &sum, 1, PICI_U64, PICI_SUM, t->comm[rank], NULL, &request[1]);
        if (!s)
            s = pici_wait(&request[1]);
        if (!s && sum != (uint64_t)t->p)
            s = PICI_E_CORRUPT;
        if (!s)
            s = pici_wait(&request[0]);
    }
    t->status[rank] = s;
}

static uint64_t random_count(struct rng *rng, uint64_t most)
{
    return rng_below(rng, 3) ? rng_below(rng, most + 1) : 0;
}

static void fill_team(struct team *t, struct rng *rng, uint64_t most)
{
    const int owner = (int)rng_below(rng, 2 * (uint64_t)t->p); /* who alone sends; beyond p: all do */
    t->dtype = (enum pici_dtype)(1 + rng_below(rng, 14));
    t->start = (int)rng_below(rng, 2);
    t->opts = (struct pici_coll_opts)PICI_COLL_OPTS_INIT;
    t->opts.slice_bytes = rng_below(rng, 2) ? 0 : 20000;
    t->opts.window = (int)rng_below(rng, 4);
    t->opts.checksum = rng_below(rng, 2) ? 1 : -1;
    t->opts.pack = rng_below(rng, 3) ? PICI_PACKING_UNCHANGED : PICI_PACKING_PLANES;
    const int a_node = 1 + (int)rng_below(rng, 4), nodes = (t->p + a_node - 1) / a_node;
    for (int r = 0; r < t->p; r++)
        t->node_of[r] = rng_below(rng, 2) ? r / a_node : r % nodes;
    for (int r = 0; r < t->p; r++)
        for (int i = 0; i < t->p; i++)
            t->send[r].counts[i] = t->recv[i].counts[r] = owner < t->p && owner != r ? 0 : random_count(rng, most);
    for (int r = 0; r < t->p; r++) {
        place_runs(&t->send[r], t, rng);
        place_runs(&t->recv[r], t, rng);
        pattern_fill(t->send[r].bytes, t->send[r].size / pici_dtype_width(t->dtype), t->dtype,
                     (enum pattern)rng_below(rng, PATTERNS), rng);
    }
}

static int is_right(const struct team *t, int rank)
{
    const struct side *out = &t->recv[rank];
    uint8_t *want = test_alloc(out->size);
    memset(want, 0x5c, out->size);
    for (int i = 0; i < t->p; i++)
        memcpy(want + (run_at(out, t, i) - out->bytes), run_at(&t->send[i], t, rank),
               (size_t)out->counts[i] * pici_dtype_width(t->dtype));
    const int right = memcmp(want, out->bytes, out->size) == 0;
    free(want);
    return right;
}

static void run_calls(int p, uint64_t seed, uint64_t most, int by_sockets)
{
    struct team *t = calloc(1, sizeof *t);
    struct socket_team team;
    struct rng rng = {seed};
    if (!t)
        abort();
    t->p = p;
    fill_team(t, &rng, most);
    if (by_sockets) {
        socket_team_init(&team, p);
        socket_pairs(team.fds, p);
        socket_team_make(&team);
        EXPECT(socket_team_all(&team, PICI_OK, ""), "%d ranks over sockets", p);
        memcpy(t->comm, team.comm, (size_t)p * sizeof *t->comm);
    } else if (pici_comm_threads(t->comm, p))
        abort();
    coll_threads(p, call_rank, t);
    for (int r = 0; r < p; r++) {
        EXPECT(!t->status[r], "%d ranks, seed %llu, rank %d: %s (%s)", p, (unsigned long long)seed, r,
               pici_strerror(t->status[r]), pici_comm_error(t->comm[r]));
        EXPECT(t->status[r] || is_right(t, r), "%d ranks, seed %llu, rank %d: other elements", p,
               (unsigned long long)seed, r);
        pici_comm_free(t->comm[r]);
    }
    for (int r = 0; r < p; r++) {
        free(t->send[r].bytes);
        free(t->recv[r].bytes);
    }
    free(t);
}

/* Of runs that differ much in length, some of which others pass on: a rank that sends dense blocks alone has sent as
 * many bytes as dense blocks have. */
static void check_dense_bytes(void)
{
    enum { P = 6, LONG = 2000 };
    static const int node_of[P] = {0, 0, 0, 3, 3, 3};
    struct rng rng = {1};
    struct team *t = calloc(1, sizeof *t);
    if (!t)
        abort();
    t->p = P;
    fill_team(t, &rng, 0);
    for (int r = 0; r < P; r++) {
        free(t->send[r].bytes);
        free(t->recv[r].bytes);
        for (int i = 0; i < P; i++)
            t->send[r].counts[i] = t->recv[i].counts[r] = (r + i) % 4 ? (uint64_t)(r + i) : LONG;
    }
    for (int r = 0; r < P; r++) {
        place_runs(&t->send[r], t, &rng);
        place_runs(&t->recv[r], t, &rng);
    }
    memcpy(t->node_of, node_of, sizeof node_of);
    t->opts = (struct pici_coll_opts)PICI_COLL_OPTS_INIT;
    t->opts.format = PICI_DENSE;
    t->opts.pack = PICI_PACKING_NONE;
    if (pici_comm_threads(t->comm, P))
        abort();
    coll_threads(P, call_rank, t);
    for (int r = 0; r < P; r++) {
        EXPECT(!t->status[r] && is_right(t, r), "dense runs, rank %d: %s", r, pici_strerror(t->status[r]));
        EXPECT(t->stats[r].wire_bytes == t->stats[r].dense_bytes, "rank %d: %llu bytes sent, dense ones would be %llu",
               r, (unsigned long long)t->stats[r].wire_bytes, (unsigned long long)t->stats[r].dense_bytes);
    }
    for (int r = 0; r < P; r++) {
        pici_comm_free(t->comm[r]);
        free(t->send[r].bytes);
        free(t->recv[r].bytes);
    }
    free(t);
}

/* ---- a peer that sends what it should not ---- */

enum { LONGER = 64 };

struct liar {
    struct pici_transport inner;
    int number, sent; /* of messages with data: the one that is changed, and how many there were */
    struct rng rng;
    uint8_t *copy; /* as it went out; NULL: it was not changed */
};

/* A bit anywhere or in the first headers, noise, a message that is cut or longer, or one without its first bytes. */
static size_t change(uint8_t *message, size_t bytes, struct rng *rng)
{
    const size_t at = (size_t)rng_below(rng, bytes), head = bytes < 96 ? bytes : 96;
    switch (rng_below(rng, 6)) {
    case 0: message[at] ^= (uint8_t)(1u << rng_below(rng, 8)); return bytes;
    case 1: message[rng_below(rng, head)] ^= (uint8_t)(1u << rng_below(rng, 8)); return bytes;
    case 2:
        for (size_t i = at; i < bytes; i++)
            message[i] = (uint8_t)rng_next(rng);
        return bytes;
    case 3: return at;
    case 4: memset(message + bytes, 0, LONGER); return bytes + 1 + (size_t)rng_below(rng, LONGER);
    default: memmove(message, message + at, bytes - at); return bytes;
    }
}

static enum pici_status liar_send(void *context, int to, const void *data, size_t bytes, void **request)
{
    struct liar *liar = context;
    struct msg_prefix prefix;
    if (pici_msg_get(&prefix, data, bytes) == PICI_OK && prefix.kind == MSG_DATA && liar->sent++ == liar->number) {
        liar->copy = test_alloc(bytes + LONGER);
        memcpy(liar->copy, data, bytes);
        bytes = change(liar->copy, bytes, &liar->rng);
        data = liar->copy;
    }
    return liar->inner.send(liar->inner.context, to, data, bytes, request);
}

/* One rank changes a message on its way out: all ranks return the same, and if that is PICI_OK, elements are right.
 * Whether the call failed. */
static int call_liar(int p, uint64_t seed)
{
    struct team *t = calloc(1, sizeof *t);
    struct pici_transport transports[RANKS];
    struct rng rng = {seed};
    struct liar liar = {.number = (int)rng_below(&rng, 8), .rng = {seed + 1}};
    if (!t || pici_transport_threads(transports, p))
        abort();
    t->p = p;
    fill_team(t, &rng, seed % 2 ? 300 : 9000);
    t->start = 0;
    t->opts.checksum = 1;
    t->opts.timeout_ms = 20000;
    const int teller = (int)rng_below(&rng, (uint64_t)p);
    transport_wrap(&transports[teller], &liar.inner);
    transports[teller].send = liar_send;
    for (int r = 0; r < p; r++)
        if (pici_comm_transport(&t->comm[r], &transports[r]))
            abort();
    coll_threads(p, call_rank, t);
    const enum pici_status status = t->status[0];
    for (int r = 0; r < p; r++) {
        EXPECT(t->status[r] == status && status != PICI_E_TIMEOUT, "a liar, seed %llu: rank %d: %s, rank 0: %s",
               (unsigned long long)seed, r, pici_strerror(t->status[r]), pici_strerror(status));
        EXPECT(t->status[r] || is_right(t, r), "a liar, seed %llu, rank %d: other elements", (unsigned long long)seed,
               r);
        EXPECT(!t->status[r] || *pici_comm_error(t->comm[r]), "a liar, seed %llu, rank %d: no words",
               (unsigned long long)seed, r);
    }
    for (int r = 0; r < p; r++) {
        pici_comm_free(t->comm[r]);
        free(t->send[r].bytes);
        free(t->recv[r].bytes);
    }
    free(liar.copy);
    free(t);
    return status != PICI_OK;
}

static void check_liars(void)
{
    enum { LIES = 300 };
    int failed = 0;
    for (uint64_t seed = 0; seed < LIES; seed++)
        failed += call_liar(2 + (int)(seed % 6), seed);
    EXPECT(failed > LIES / 4 && failed < LIES, "%d of %d calls with a liar fail", failed, LIES);
}

/* ---- what is sent ---- */

enum { EACH = 30000 };

struct wire {
    int nonzero; /* one element in so many */
    enum pici_packing pack;
    struct pici_comm *comm[4];
    struct pici_coll_stats stats[4];
    enum pici_status status[4];
};

static void call_wire(void *context, int rank)
{
    struct wire *x = context;
    static const uint64_t counts[] = {EACH, EACH, EACH, EACH};
    uint16_t *send = calloc((size_t)4 * EACH, sizeof *send), *recv = calloc((size_t)4 * EACH, sizeof *recv);
    struct rng rng = {(uint64_t)rank};
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    if (!send || !recv)
        abort();
    for (int i = 0; i < 4 * EACH; i += x->nonzero) /* 1 to 2, with either sign */
        send[i] = (uint16_t)(0x3f80 | rng_below(&rng, 128) | rng_below(&rng, 2) << 15);
    x->stats[rank] = (struct pici_coll_stats)PICI_COLL_STATS_INIT;
    opts.stats = &x->stats[rank];
    opts.pack = x->pack;
    x->status[rank] = pici_all_to_allv(send, counts, NULL, recv, counts, NULL, PICI_BF16, x->comm[rank], &opts);
    free(send);
    free(recv);
}

static double wire_share(int nonzero, enum pici_packing pack, enum pici_format format)
{
    struct wire x = {.nonzero = nonzero, .pack = pack};
    double most = 0;
    if (pici_comm_threads(x.comm, 4))
        abort();
    coll_threads(4, call_wire, &x);
    for (int r = 0; r < 4; r++) {
        const double share = (double)x.stats[r].wire_bytes / (3.0 * EACH * 2);
        most = share > most ? share : most;
        EXPECT(!x.status[r] && x.stats[r].sends[format], "rank %d: %s; no blocks of format %d", r,
               pici_strerror(x.status[r]), (int)format);
        pici_comm_free(x.comm[r]);
    }
    return most;
}

static void check_wire(void)
{
    const double sparse = wire_share(100, PICI_PACKING_NONE, PICI_HYBRID),
                 dense = wire_share(1, PICI_PACKING_NONE, PICI_DENSE),
                 packed = wire_share(1, PICI_PACKING_PLANES, PICI_PACKED);
    EXPECT(sparse < 0.05, "1%% nonzero: %g of the dense bytes", sparse);
    EXPECT(dense > 1 && dense < 1.03, "dense: %g of the dense bytes", dense);
    EXPECT(packed < 0.7, "packed: %g of the dense bytes", packed);
}

/* ---- wrong calls ---- */

enum wrong {
    MORE,          /* a rank sends one element more than is expected */
    FEWER_OF_MANY, /* fewer, in several slices */
    NULL_COUNTS,
    NULL_SEND,
    OWN, /* a rank's two counts for itself */
    IN_PLACE,
    OVERLAPPING, /* received runs do */
    BEYOND,
    OTHER_DTYPE,
    WRONGS
};

static const struct {
    enum pici_status status;
    const char *words;
    int all_say; /* on every rank */
} expected[WRONGS] = {
    [MORE] = {PICI_E_PEER, "rank 1 sends rank 2 6 elements, and its recvcounts[1] is 5: counts do not match", 1},
    [FEWER_OF_MANY] = {PICI_E_PEER, "rank 1 does not send rank 2 50000 elements, as its recvcounts[1] says", 1},
    [NULL_COUNTS] = {PICI_E_ARG, "recvcounts is null", 0},
    [NULL_SEND] = {PICI_E_ARG, "the send buffer is null", 0},
    [OWN] = {PICI_E_ARG, "sendcounts[1] is 6 on rank 1 itself, and recvcounts[1] is 5", 0},
    [IN_PLACE] = {PICI_E_ARG, "an all-to-all is not possible in place", 0},
    [OVERLAPPING] = {PICI_E_ARG, "runs overlap in the receive buffer", 0},
    [BEYOND] = {PICI_E_ARG, "sendcounts[0] and sdispls[0]: 5 elements at 18446744073709551614 exceed", 0},
    [OTHER_DTYPE] = {PICI_E_PEER, "ranks disagree on the dtype", 1}};

struct mistake {
    enum wrong wrong;
    int p;
    struct pici_comm *comm[RANKS];
    enum pici_status status[RANKS], after[RANKS];
};

static void call_wrong(void *context, int rank)
{
    struct mistake *x = context;
    const uint64_t each = x->wrong == FEWER_OF_MANY ? 50000 : 5;
    const int odd = rank == 1;
    uint64_t sent[RANKS], received[RANKS], places[RANKS], at[RANKS];
    uint32_t *send = calloc((size_t)each * RANKS + 1, sizeof *send),
             *recv = calloc((size_t)each * RANKS + 1, sizeof *recv);
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    if (!send || !recv)
        abort();
    opts.timeout_ms = 20000;
    for (int i = 0; i < x->p; i++) {
        sent[i] = received[i] = each;
        places[i] = at[i] = (uint64_t)i * each;
    }
    if (odd && x->wrong == MORE)
        sent[2]++;
    if (odd && x->wrong == FEWER_OF_MANY)
        sent[2] -= 4096;
    if (odd && x->wrong == OWN)
        sent[1]++;
    if (odd && x->wrong == OVERLAPPING)
        at[2]--;
    if (odd && x->wrong == BEYOND)
        places[0] = UINT64_MAX - 1;
    x->status[rank] =
        pici_all_to_allv(odd && x->wrong == NULL_SEND ? NULL : send, sent, places,
                         odd && x->wrong == IN_PLACE ? send : recv, odd && x->wrong == NULL_COUNTS ? NULL : received,
                         at, odd && x->wrong == OTHER_DTYPE ? PICI_F32 : PICI_U32, x->comm[rank], &opts);
    x->after[rank] = pici_all_reduce(send, recv, 1, PICI_U32, PICI_SUM, x->comm[rank], &opts);
    free(send);
    free(recv);
}

static void check_wrong(void)
{
    static const int ranks[] = {3, 4, 9};
    for (size_t i = 0; i < 2 * sizeof ranks / sizeof *ranks; i++)
        for (int wrong = 0; wrong < WRONGS; wrong++) {
            struct mistake x = {.wrong = (enum wrong)wrong, .p = ranks[i / 2]};
            int said = 0;
            if (pici_comm_threads(x.comm, x.p))
                abort();
            for (int r = 0; r < x.p && i % 2; r++) { /* and by node */
                int node_of[RANKS];
                for (int n = 0; n < x.p; n++)
                    node_of[n] = n % 2 && n + 1 < x.p;
                if (pici_comm_set_nodes(x.comm[r], node_of))
                    abort();
            }
            coll_threads(x.p, call_wrong, &x);
            for (int r = 0; r < x.p; r++) {
                const char *words = pici_comm_error(x.comm[r]);
                const int here = strstr(words, expected[wrong].words) != NULL;
                said += here;
                EXPECT(x.status[r] == expected[wrong].status, "wrong %d, rank %d of %d: %s (%s)", wrong, r, x.p,
                       pici_strerror(x.status[r]), words);
                EXPECT(here || !expected[wrong].all_say, "wrong %d, rank %d of %d says: %s", wrong, r, x.p, words);
                EXPECT(x.after[r] == PICI_E_BROKEN, "wrong %d, rank %d of %d: fine afterwards", wrong, r, x.p);
                pici_comm_free(x.comm[r]);
            }
            EXPECT(said, "wrong %d, %d ranks: nobody says \"%s\"", wrong, x.p, expected[wrong].words);
        }
}

static void check_refused(void)
{
    struct pici_comm *comm;
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    const uint64_t count = 1;
    const float in = 1;
    float out = 0;
    if (pici_comm_threads(&comm, 1))
        abort();
    opts.algorithm = PICI_ALGO_RING;
    EXPECT(pici_all_to_allv(&in, &count, NULL, &out, &count, NULL, PICI_F32, comm, &opts) == PICI_E_UNSUPPORTED,
           "an algorithm");
    opts = (struct pici_coll_opts)PICI_COLL_OPTS_INIT;
    opts.zeros = PICI_ZEROS_BY_VALUE;
    EXPECT(pici_all_to_allv(&in, &count, NULL, &out, &count, NULL, PICI_F32, comm, &opts) == PICI_E_UNSUPPORTED,
           "zeros");
    EXPECT(pici_all_to_allv(&in, &count, NULL, &out, &count, NULL, PICI_F32, NULL, NULL) == PICI_E_ARG,
           "no communicator");
    EXPECT(pici_all_to_allv_start(&in, &count, NULL, &out, &count, NULL, PICI_F32, comm, NULL, NULL) == PICI_E_ARG,
           "no request");
    EXPECT(pici_comm_scratch(comm, PICI_ALL_TO_ALLV, 1, PICI_F32, PICI_SUM, NULL) == 0, "scratch");
    EXPECT(!pici_all_to_allv(&in, &count, NULL, &out, &count, NULL, PICI_F32, comm, NULL) && out == 1, "a single rank");
    pici_comm_free(comm);
}

int main(void)
{
    static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 17};
    check_schedules();
    check_choice();
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        for (uint64_t seed = 0; seed < 8; seed++)
            run_calls(ranks[i], 100 * seed + i, seed < 4 ? 300 : 20000, 0);
    run_calls(6, 1, 3000, 1);
    run_calls(3, 2, 100000, 1);
    check_wire();
    check_dense_bytes();
    check_wrong();
    check_liars();
    check_refused();
    printf("%d passed, %d failed\n", !failures, failures);
    return failures != 0;
}
