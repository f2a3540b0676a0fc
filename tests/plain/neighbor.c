/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Neighbourhood all-gathers among threads, compared byte for byte with a plain copy; what is sent, counted and compared
 * by a transport in between; lists that do not agree. Needs libc alone, for a run under ThreadSanitizer too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/neighbor.h"
#include "coll/request.h"
#include "tests/util/coll.h"
#include "tests/util/neighbor.h"
#include "tests/util/socket.h"
#include "tests/util/transport.h"

static int failures;

#define EXPECT(holds, ...)                                                                                             \
    do {                                                                                                               \
        if (!(holds) && failures++ < 20) {                                                                             \
            printf("FAIL %s:%d: ", __FILE__, __LINE__);                                                                \
            printf(__VA_ARGS__);                                                                                       \
            printf("\n");                                                                                              \
        }                                                                                                              \
    } while (0)

/* ---- calls ---- */

/* One or two plans on a communicator, calls on them in turn, an all-reduce among them; blocking or not. */
enum { PLANS = 2 };

struct team {
    int p, style;
    struct pici_comm *comm[NEIGHBOR_RANKS];
    struct neighbor_case c[PLANS];
    struct neighbor_rank rank[NEIGHBOR_RANKS][PLANS];
    enum pici_status status[NEIGHBOR_RANKS];
    const char *wrong[NEIGHBOR_RANKS];
    uint64_t sum[NEIGHBOR_RANKS];
    struct pici_neighbor_info info[NEIGHBOR_RANKS];
};

static void call_all(void *context, int rank)
{
    struct team *t = context;
    struct pici_comm *comm = t->comm[rank];
    struct pici_neighbor_plan *plan[PLANS] = {NULL, NULL};
    struct pici_request *request[PLANS + 1] = {NULL};
    enum pici_status s = PICI_OK;
    uint64_t one = (uint64_t)rank + 1;
    for (int i = 0; i < PLANS && !s; i++)
        s = neighbor_rank_plan(&t->rank[rank][i], &t->c[i], comm, &plan[i]);
    if (!s) {
        t->info[rank] = (struct pici_neighbor_info)PICI_NEIGHBOR_INFO_INIT;
        s = pici_neighbor_plan_info(plan[0], &t->info[rank]);
    }
    for (int i = 0; i < PLANS && !s && t->style == 0; i++)
        s = neighbor_rank_call(&t->rank[rank][i], &t->c[i], plan[i]);
    if (!s && t->style == 0)
        s = pici_all_reduce(&one, &t->sum[rank], 1, PICI_U64, PICI_SUM, comm, NULL);
    if (!s && t->style == 1) {
        s = neighbor_rank_start(&t->rank[rank][0], &t->c[0], plan[0], &request[0]);
        if (!s)
            s = pici_all_reduce_start(&one, &t->sum[rank], 1, PICI_U64, PICI_SUM, comm, NULL, &request[2]);
        if (!s)
            s = neighbor_rank_start(&t->rank[rank][1], &t->c[1], plan[1], &request[1]);
        for (int i = PLANS; i >= 0 && !s; i--)
            s = pici_wait(&request[(rank + i) % (PLANS + 1)]);
    }
    for (int i = 0; i < PLANS && !s; i++)
        t->wrong[rank] = t->wrong[rank] ? t->wrong[rank] : neighbor_rank_judge(&t->rank[rank][i], &t->c[i]);
    t->status[rank] = s;
    for (int i = 0; i < PLANS; i++)
        pici_neighbor_plan_free(plan[i]);
}

/* How ranks are connected, and how much they contribute. */
enum how_run { BY_THREADS, BY_SOCKETS, ALL_MOST };

static void run_calls(int p, uint64_t seed, uint64_t most, enum how_run how)
{
    struct team *t = calloc(1, sizeof *t);
    struct rng r = {seed};
    if (!t)
        abort();
    t->p = p;
    t->style = (int)rng_below(&r, 2);
    for (int i = 0; i < PLANS; i++)
        neighbor_case_random(&t->c[i], &r, p, most);
    memcpy(t->c[1].node_of, t->c[0].node_of, sizeof t->c[0].node_of); /* which stays while plans live */
    for (int i = 0; i < PLANS * p && how == ALL_MOST; i++)
        t->c[i / p].count[i % p] = t->c[i / p].varied ? most - (uint64_t)(i % p) : most;
    struct socket_team team;
    if (how == BY_SOCKETS) {
        socket_team_init(&team, p);
        socket_pairs(team.fds, p);
        socket_team_make(&team);
        EXPECT(socket_team_all(&team, PICI_OK, ""), "%d ranks over sockets", p);
        memcpy(t->comm, team.comm, (size_t)p * sizeof *t->comm);
    } else if (pici_comm_threads(t->comm, p))
        abort();
    for (int i = 0; i < p; i++)
        for (int j = 0; j < PLANS; j++)
            neighbor_rank_init(&t->rank[i][j], &t->c[j], i);
    coll_threads(p, call_all, t);
    for (int i = 0; i < p; i++) {
        EXPECT(!t->status[i] && !t->wrong[i] && t->sum[i] == (uint64_t)(p * (p + 1) / 2),
               "%s: style %d, seed %llu: rank %d: %s, %s (%s)", neighbor_case_words(&t->c[0]), t->style,
               (unsigned long long)seed, i, pici_strerror(t->status[i]), t->wrong[i] ? t->wrong[i] : "",
               pici_comm_error(t->comm[i]));
        EXPECT(t->info[i].hash == t->info[0].hash && t->info[i].messages == t->info[0].messages,
               "rank %d has another plan", i);
        pici_comm_free(t->comm[i]);
        for (int j = 0; j < PLANS; j++)
            neighbor_rank_free(&t->rank[i][j]);
    }
    free(t);
}

/* ---- what is sent ---- */

/* A transport that keeps the data messages of its rank. */
enum { KEPT = 1024 };

struct tap {
    struct pici_transport inner;
    int messages;
    int to[KEPT];
    uint8_t *bytes[KEPT];
    size_t len[KEPT];
};

static enum pici_status tap_send(void *context, int to, const void *data, size_t bytes, void **request)
{
    struct tap *t = context;
    if (bytes >= MSG_BYTES && ((const uint8_t *)data)[4] == MSG_DATA && ((const uint8_t *)data)[7] == NEIGHBOR_ID &&
        t->messages < KEPT) {
        t->to[t->messages] = to;
        t->len[t->messages] = bytes;
        t->bytes[t->messages] = test_alloc(bytes);
        memcpy(t->bytes[t->messages++], data, bytes);
    }
    return t->inner.send(t->inner.context, to, data, bytes, request);
}

static int encoded[NEIGHBOR_RANKS]; /* blocks that each rank encoded */
static _Thread_local int this_rank;

static enum pici_status count_encode(struct pici_queue *queue, uint8_t *message, size_t at, size_t cap, size_t *len,
                                     const void *const *src, const uint64_t *n, int runs,
                                     const struct engine_array *array, int arrays, int checksum)
{
    encoded[this_rank] += runs * arrays;
    return pici_engine_host.encode(queue, message, at, cap, len, src, n, runs, array, arrays, checksum);
}

struct tapped {
    struct team t;
    struct tap tap[NEIGHBOR_RANKS];
    struct pici_engine engine;
    struct neighbor_route *route[NEIGHBOR_RANKS];
    uint64_t slices;
};

static void call_tapped(void *context, int rank)
{
    struct tapped *x = context;
    struct team *t = &x->t;
    struct pici_neighbor_plan *plan = NULL;
    this_rank = rank;
    enum pici_status s = neighbor_rank_plan(&t->rank[rank][0], &t->c[0], t->comm[rank], &plan);
    t->comm[rank]->engine = &x->engine;
    if (!s)
        s = neighbor_rank_call(&t->rank[rank][0], &t->c[0], plan);
    t->comm[rank]->engine = &pici_engine_host;
    t->status[rank] = s;
    t->info[rank] = (struct pici_neighbor_info)PICI_NEIGHBOR_INFO_INIT;
    (void)pici_neighbor_plan_info(plan, &t->info[rank]);
    if (plan) { /* keep its lists */
        x->route[rank] = plan->routes[t->info[rank].route];
        plan->routes[t->info[rank].route] = NULL;
    }
    pici_neighbor_plan_free(plan);
}

static const struct neighbor_message *message_to(const struct neighbor_route *r, int position, int nth)
{
    for (int i = 0; i < r->send_begin[r->steps]; i++)
        if (r->send[i].peer == position && nth-- == 0)
            return &r->send[i];
    return NULL;
}

/* Every block of an owner has the same bytes in all messages, and each owner encoded one. */
static void check_messages(struct tapped *x)
{
    struct team *t = &x->t;
    const uint8_t *block[NEIGHBOR_RANKS] = {NULL};
    size_t len[NEIGHBOR_RANKS] = {0};
    uint64_t messages = 0, blocks = 0;
    for (int r = 0; r < t->p; r++) {
        const struct tap *tap = &x->tap[r];
        const struct neighbor_route *route = x->route[r];
        const struct pici_comm *comm = t->comm[r];
        uint64_t own = 0;
        EXPECT(encoded[r] == (route->send_begin[route->steps] > 0), "rank %d encoded %d blocks", r, encoded[r]);
        EXPECT((uint64_t)tap->messages == t->info[r].own_messages, "rank %d sent %d messages, not %d", r, tap->messages,
               (int)t->info[r].own_messages);
        for (int i = 0; i < tap->messages; i++) {
            int position = 0, nth = 0;
            while (comm->order[position] != tap->to[i])
                position++;
            for (int j = 0; j < i; j++)
                nth += tap->to[j] == tap->to[i];
            const struct neighbor_message *m = message_to(route, position, nth);
            EXPECT(m, "rank %d sent a message that is not planned", r);
            const uint8_t *at = tap->bytes[i] + MSG_BYTES;
            for (int j = 0; m && j < m->count; j++) {
                const int owner = route->segments[m->first + j];
                struct pici_block b;
                if (pici_block_parse(&b, at, (size_t)(tap->bytes[i] + tap->len[i] - at), NULL)) {
                    EXPECT(0, "rank %d sent no block", r);
                    break;
                }
                EXPECT(!block[owner] ||
                           (len[owner] == b.layout.block_bytes && memcmp(block[owner], at, len[owner]) == 0),
                       "rank %d changed the block of position %d", r, owner);
                block[owner] = at;
                len[owner] = (size_t)b.layout.block_bytes;
                at += len[owner];
                own++;
            }
            EXPECT(at == tap->bytes[i] + tap->len[i], "rank %d sent another length", r);
        }
        messages += (uint64_t)tap->messages;
        blocks += own;
        EXPECT(own == t->info[r].own_blocks, "rank %d sent %d blocks", r, (int)own);
    }
    EXPECT(messages == t->info[0].messages && blocks == t->info[0].blocks, "%d messages, %d blocks, not %d, %d",
           (int)messages, (int)blocks, (int)t->info[0].messages, (int)t->info[0].blocks);
}

static void run_tapped(int p, uint64_t seed)
{
    struct tapped *x = calloc(1, sizeof *x);
    struct team *t = &x->t;
    struct rng r = {seed};
    if (!x)
        abort();
    t->p = p;
    do
        neighbor_case_random(&t->c[0], &r, p, 4000);
    while (!t->c[0].varied && !t->c[0].count[0]);
    t->c[0].values = (struct pici_values)PICI_VALUES_INIT; /* what is kept are blocks of elements */
    for (int i = 0; i < p; i++)                            /* one slice */
        t->c[0].count[i] = 1 + (t->c[0].varied ? (uint64_t)i * 200 : 3000);
    t->c[0].plan.most_bytes = 4000 * pici_dtype_width(t->c[0].dtype);
    t->c[0].plan.route = (enum pici_route)(1 + rng_below(&r, 2));
    x->engine = pici_engine_host;
    x->engine.encode = count_encode;
    memset(encoded, 0, sizeof encoded);
    if (pici_comm_threads(t->comm, p))
        abort();
    for (int i = 0; i < p; i++) {
        struct pici_transport *own = &t->comm[i]->transport;
        transport_wrap(own, &x->tap[i].inner);
        own->send = tap_send;
        neighbor_rank_init(&t->rank[i][0], &t->c[0], i);
    }
    coll_threads(p, call_tapped, x);
    int fine = 1;
    for (int i = 0; i < p; i++) {
        EXPECT(!t->status[i], "%s: rank %d: %s (%s)", neighbor_case_words(&t->c[0]), i, pici_strerror(t->status[i]),
               pici_comm_error(t->comm[i]));
        fine &= !t->status[i];
    }
    if (fine)
        check_messages(x);
    for (int i = 0; i < p; i++) {
        pici_comm_free(t->comm[i]);
        neighbor_rank_free(&t->rank[i][0]);
        pici_neighbor_free(x->route[i]);
        for (int j = 0; j < x->tap[i].messages; j++)
            free(x->tap[i].bytes[j]);
    }
    free(x);
}

/* Blocks in order of their bytes. */
struct bytes {
    const uint8_t *at;
    size_t len;
};

static int by_bytes(const void *a, const void *b)
{
    const struct bytes *x = a, *y = b;
    const int order = memcmp(x->at, y->at, x->len < y->len ? x->len : y->len);
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

/* Contributions of several slices, no two equal. All messages have as many different blocks as were encoded, so each
 * slice was encoded once and forwarded unchanged. Each message of the plan was sent once for a slice. */
static void check_slices(struct tapped *x)
{
    enum { BLOCKS = 1 << 15 };
    const struct team *t = &x->t;
    struct bytes *all = calloc(BLOCKS, sizeof *all);
    uint64_t blocks = 0, different = 0, made = 0, messages = 0, slices = 0;
    if (!all)
        abort();
    for (int r = 0; r < t->p; r++) {
        const struct tap *tap = &x->tap[r];
        made += (uint64_t)encoded[r];
        messages += (uint64_t)tap->messages;
        slices = (uint64_t)encoded[r] > slices ? (uint64_t)encoded[r] : slices;
        for (int i = 0; i < tap->messages; i++) {
            const uint8_t *at = tap->bytes[i] + MSG_BYTES, *end = tap->bytes[i] + tap->len[i];
            struct pici_block b;
            while (at < end && blocks < BLOCKS && !pici_block_parse(&b, at, (size_t)(end - at), NULL)) {
                all[blocks++] = (struct bytes){at, (size_t)b.layout.block_bytes};
                at += b.layout.block_bytes;
            }
            EXPECT(at == end, "rank %d sent something else than blocks", r);
        }
    }
    for (int r = 0; r < t->p; r++)
        EXPECT(!encoded[r] || (uint64_t)encoded[r] == slices, "rank %d encoded %d slices, another one %d", r,
               encoded[r], (int)slices);
    qsort(all, (size_t)blocks, sizeof *all, by_bytes);
    for (uint64_t i = 0; i < blocks; i++)
        different += !i || by_bytes(&all[i], &all[i - 1]) != 0;
    EXPECT(slices > 1 && different == made && blocks == slices * t->info[0].blocks &&
               messages == slices * t->info[0].messages,
           "%d slices: %d blocks were encoded, %d different ones sent, %d in all, in %d messages", (int)slices,
           (int)made, (int)different, (int)blocks, (int)messages);
    free(all);
}

static void run_sliced(int p, uint64_t seed)
{
    struct tapped *x = calloc(1, sizeof *x);
    struct team *t = &x->t;
    struct neighbor_case *c = &t->c[0];
    struct rng r = {seed};
    if (!x)
        abort();
    t->p = p;
    neighbor_case_random(c, &r, p, 4000);
    c->varied = 0;
    c->dtype = PICI_U64;
    c->values = (struct pici_values)PICI_VALUES_INIT;
    c->opts.format = PICI_DENSE;
    c->opts.slice_bytes = 65536;
    c->opts.window = 1 + (int)(seed % 3);
    c->plan.most_bytes = 0;
    c->plan.route = (enum pici_route)(1 + seed % 2);
    for (int i = 0; i < p; i++) {
        c->count[i] = 20000;
        c->pattern[i] = PATTERN_FULL;
        for (int j = 0; j < p; j++)
            c->times[i][j] = i != j && (i + 2 * j + (int)seed) % 3;
    }
    x->engine = pici_engine_host;
    x->engine.encode = count_encode;
    memset(encoded, 0, sizeof encoded);
    if (pici_comm_threads(t->comm, p))
        abort();
    for (int i = 0; i < p; i++) {
        struct pici_transport *own = &t->comm[i]->transport;
        transport_wrap(own, &x->tap[i].inner);
        own->send = tap_send;
        neighbor_rank_init(&t->rank[i][0], c, i);
    }
    coll_threads(p, call_tapped, x);
    for (int i = 0; i < p; i++)
        EXPECT(!t->status[i] && !neighbor_rank_judge(&t->rank[i][0], c), "%s: rank %d: %s", neighbor_case_words(c), i,
               pici_strerror(t->status[i]));
    check_slices(x);
    for (int i = 0; i < p; i++) {
        pici_comm_free(t->comm[i]);
        neighbor_rank_free(&t->rank[i][0]);
        pici_neighbor_free(x->route[i]);
        for (int j = 0; j < x->tap[i].messages; j++)
            free(x->tap[i].bytes[j]);
    }
    free(x);
}

/* ---- what is refused ---- */

/* A transport that moves GPU memory only makes plans; one with the struct of 0.1 makes none, and nothing is broken. */
struct refused {
    struct pici_comm *comm[3];
    enum pici_status status[3], after[3];
    int old;
};

static void call_refused(void *context, int rank)
{
    struct refused *x = context;
    struct pici_comm *comm = x->comm[rank];
    struct pici_neighbor_plan *plan = NULL;
    uint64_t one = 1, sum = 0;
    const int to = (rank + 1) % 3, from = (rank + 2) % 3;
    const enum pici_memory memory = comm->transport.memory;
    if (x->old)
        comm->paired_only = 1;
    else
        comm->transport.memory = PICI_MEMORY_DEVICE;
    x->status[rank] = pici_neighbor_plan_create(&plan, comm, 1, &from, 1, &to, NULL);
    comm->transport.memory = memory;
    x->after[rank] = pici_all_reduce(&one, &sum, 1, PICI_U64, PICI_SUM, comm, NULL);
    pici_neighbor_plan_free(plan);
}

static void run_unsupported(void)
{
    for (int old = 0; old < 2; old++) {
        struct refused x = {.old = old};
        if (pici_comm_threads(x.comm, 3))
            abort();
        coll_threads(3, call_refused, &x);
        for (int i = 0; i < 3; i++) {
            EXPECT(x.status[i] == (old ? PICI_E_UNSUPPORTED : PICI_OK) && !x.after[i], "old %d, rank %d: %s, then %s",
                   old, i, pici_strerror(x.status[i]), pici_strerror(x.after[i]));
            pici_comm_free(x.comm[i]);
        }
    }
}

struct odd {
    struct pici_comm *comm[NEIGHBOR_RANKS];
    int p, how;
    enum pici_status plan[NEIGHBOR_RANKS], call[NEIGHBOR_RANKS], after[NEIGHBOR_RANKS];
};

enum how {
    NO_DESTINATION, /* rank 2 does not say that it sends to 3 */
    NO_SOURCE,      /* rank 3 does not say that it receives from 2 */
    TWICE,          /* rank 2 says so twice */
    OUT_OF_RANGE,
    OTHER_ROUTE,
    OTHER_COUNT, /* rank 2 sends more than others expect */
    OTHER_DTYPE,
    OTHER_RECVCOUNT,
    OTHER_PLAN,
    NULL_BUFFER,
    AGREED_COUNT,
    TOO_LONG,
    WRONG_OPTION,
    HOWS
};

/* A ring in both directions. */
static void call_odd(void *context, int rank)
{
    struct odd *x = context;
    const int p = x->p, how = x->how;
    int to[4] = {(rank + 1) % p, (rank + p - 1) % p}, from[4] = {(rank + p - 1) % p, (rank + 1) % p};
    int sends = 2, receives = 2;
    uint32_t send[8] = {(uint32_t)rank + 1}, recv[64] = {0};
    uint64_t counts[2] = {1, 1}, displs[2] = {0, 1}, one = 1, sum = 0;
    struct pici_neighbor_opts o = PICI_NEIGHBOR_OPTS_INIT;
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    struct pici_neighbor_plan *plan = NULL, *second = NULL;
    const int odd = rank == 2;
    opts.timeout_ms = 20000;
    if (how == NO_DESTINATION && odd) {
        to[0] = to[1];
        sends = 1;
    }
    if (how == NO_SOURCE && rank == 3) {
        from[0] = from[1];
        receives = 1;
    }
    if (how == TWICE && odd)
        to[sends++] = 3;
    if (how == OUT_OF_RANGE && odd)
        to[0] = p;
    if (how == OTHER_ROUTE)
        o.route = odd ? PICI_ROUTE_DIRECT : PICI_ROUTE_HALVING;
    if (how == TOO_LONG)
        o.most_bytes = 8;
    x->plan[rank] = pici_neighbor_plan_create(&plan, x->comm[rank], receives, from, sends, to, &o);
    if (!x->plan[rank]) {
        enum pici_status s = pici_neighbor_plan_create(&second, x->comm[rank], receives, from, sends, to, &o);
        if (s)
            x->plan[rank] = s;
    }
    opts.agree = how == AGREED_COUNT;
    if (how == WRONG_OPTION)
        opts.zeros = PICI_ZEROS_BY_VALUE;
    counts[0] = how == OTHER_RECVCOUNT && rank == 3 ? 2 : 1;
    displs[1] = 2;
    if (plan && (how == OTHER_RECVCOUNT || how == TOO_LONG))
        x->call[rank] = pici_neighbor_all_gatherv(send, how == TOO_LONG && odd ? 3 : 1, recv, counts, displs, PICI_U32,
                                                  plan, &opts);
    else if (plan)
        x->call[rank] = pici_neighbor_all_gather(
            how == NULL_BUFFER && odd ? NULL : send, recv, odd && (how == OTHER_COUNT || how == AGREED_COUNT) ? 2 : 1,
            how == OTHER_DTYPE && odd ? PICI_I32 : PICI_U32, how == OTHER_PLAN && odd ? second : plan, &opts);
    x->after[rank] = pici_all_reduce(&one, &sum, 1, PICI_U64, PICI_SUM, x->comm[rank], NULL);
    pici_neighbor_plan_free(plan);
    pici_neighbor_plan_free(second);
}

static int names_edge(const char *error)
{
    return strstr(error, "from rank 2 to rank 3") != NULL;
}

static void run_odd(int how)
{
    struct odd x = {.p = 6, .how = how};
    if (pici_comm_threads(x.comm, x.p))
        abort();
    coll_threads(x.p, call_odd, &x);
    int wrong_calls = 0, broken = 0;
    for (int i = 0; i < x.p; i++) {
        const int lists = how == NO_DESTINATION || how == NO_SOURCE || how == TWICE;
        const enum pici_status want = lists                                       ? PICI_E_PEER
                                      : how == OUT_OF_RANGE || how == OTHER_ROUTE ? PICI_E_ARG
                                                                                  : PICI_OK;
        EXPECT(x.plan[i] == want, "how %d, rank %d: plan: %s (%s)", how, i, pici_strerror(x.plan[i]),
               pici_comm_error(x.comm[i]));
        if (lists)
            EXPECT(names_edge(pici_comm_error(x.comm[i])), "how %d, rank %d: %s", how, i, pici_comm_error(x.comm[i]));
        if (want || how == WRONG_OPTION)
            EXPECT(x.after[i] == PICI_OK, "how %d, rank %d: afterwards: %s", how, i, pici_strerror(x.after[i]));
        if (how == WRONG_OPTION)
            EXPECT(x.call[i] == PICI_E_UNSUPPORTED, "rank %d: %s", i, pici_strerror(x.call[i]));
        if (how == AGREED_COUNT)
            EXPECT(x.call[i] == PICI_E_PEER, "rank %d: agreed: %s", i, pici_strerror(x.call[i]));
        wrong_calls += x.call[i] != PICI_OK;
        broken += x.after[i] != PICI_OK;
    }
    if (how >= OTHER_COUNT && how != WRONG_OPTION)
        EXPECT(wrong_calls >= 1 && broken == x.p, "how %d: %d calls failed, %d ranks know", how, wrong_calls, broken);
    const enum pici_status own = how == NULL_BUFFER || how == TOO_LONG ? x.call[2] : PICI_E_ARG;
    EXPECT(own == PICI_E_ARG, "how %d: rank 2: %s", how, pici_strerror(own));
    if (how == OTHER_COUNT || how == OTHER_DTYPE || how == OTHER_PLAN || how == OTHER_RECVCOUNT)
        EXPECT(x.call[3] == PICI_E_PEER, "how %d: rank 3: %s (%s)", how, pici_strerror(x.call[3]),
               pici_comm_error(x.comm[3]));
    for (int i = 0; i < x.p; i++)
        pici_comm_free(x.comm[i]);
}

/* ---- errors of plans, which break nothing: the next error is told too ---- */

enum { ERRORS_RANKS = 6 };

struct errors {
    struct pici_comm *comm[ERRORS_RANKS];
    char error[3][ERRORS_RANKS][256];
};

static void call_errors(void *context, int rank)
{
    struct errors *x = context;
    struct pici_comm *comm = x->comm[rank];
    struct pici_neighbor_plan *plan = NULL;
    uint64_t one[2] = {1, 1}, sum[2];
    for (int i = 0; i < 2; i++) { /* rank 2, then rank 4 sends to the next one, which does not know */
        const int to = rank + 1, none = 0;
        (void)pici_neighbor_plan_create(&plan, comm, 0, &none, rank == 2 + 2 * i, &to, NULL);
        snprintf(x->error[i][rank], sizeof x->error[i][rank], "%s", pici_comm_error(comm));
    }
    (void)pici_all_reduce(one, sum, rank == 3 ? 1 : 2, PICI_U64, PICI_SUM, comm, NULL);
    snprintf(x->error[2][rank], sizeof x->error[2][rank], "%s", pici_comm_error(comm));
}

static void run_errors(void)
{
    static const char *const words[] = {"from rank 2 to rank 3", "from rank 4 to rank 5", "disagree on the count"};
    struct errors x;
    if (pici_comm_threads(x.comm, ERRORS_RANKS))
        abort();
    coll_threads(ERRORS_RANKS, call_errors, &x);
    for (int i = 0; i < 3; i++)
        for (int rank = 0; rank < ERRORS_RANKS; rank++)
            EXPECT(strstr(x.error[i][rank], words[i]), "error %d on rank %d: %s", i, rank, x.error[i][rank]);
    for (int rank = 0; rank < ERRORS_RANKS; rank++)
        pici_comm_free(x.comm[rank]);
}

/* ---- recvcounts that are not what is sent ---- */

/* Two ranks, one edge, which ends at `to`, and a wrong recvcounts[0] there. */
struct miscount {
    int from, to;
    uint64_t sent[2], expected, most_bytes;
    int agree;
    struct pici_comm *comm[2];
    enum pici_status plan[2], call[2], after[2];
};

static void call_miscount(void *context, int rank)
{
    struct miscount *x = context;
    struct pici_neighbor_opts o = PICI_NEIGHBOR_OPTS_INIT;
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    struct pici_neighbor_plan *plan = NULL;
    uint64_t zero = 0, one = 1, sum = 0;
    uint32_t *send = calloc((size_t)x->sent[rank] + 1, sizeof *send),
             *recv = calloc((size_t)x->expected + 1, sizeof *recv);
    if (!send || !recv)
        abort();
    o.most_bytes = x->most_bytes;
    opts.agree = x->agree;
    opts.slice_bytes = 4096 * sizeof *send;
    opts.timeout_ms = 20000;
    x->plan[rank] =
        pici_neighbor_plan_create(&plan, x->comm[rank], rank == x->to, &x->from, rank == x->from, &x->to, &o);
    x->call[rank] = pici_neighbor_all_gatherv(send, x->sent[rank], recv, &x->expected, &zero, PICI_U32, plan, &opts);
    x->after[rank] = pici_all_reduce(&one, &sum, 1, PICI_U64, PICI_SUM, x->comm[rank], NULL);
    pici_neighbor_plan_free(plan);
    free(send);
    free(recv);
}

static void run_miscounts(void)
{
    static const struct miscount cases[] = {
        {.from = 0, .to = 0, .sent = {4, 100}, .expected = 50}, /* its own */
        {.from = 0, .to = 0, .sent = {4, 100}, .expected = 2},
        {.from = 0, .to = 0, .sent = {4096, 5000}, .expected = 5000, .most_bytes = 20000},
        {.from = 0, .to = 1, .sent = {4096, 0}, .expected = 4097}, /* only whole slices are sent */
        {.from = 0, .to = 1, .sent = {4096, 0}, .expected = 4097, .most_bytes = 4096 * 4},
        {.from = 0, .to = 1, .sent = {0, 0}, .expected = 1}, /* nothing is */
        {.from = 0, .to = 1, .sent = {8, 0}, .expected = 7}};
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        struct miscount x = cases[i / 2];
        x.agree = i & 1;
        if (pici_comm_threads(x.comm, 2))
            abort();
        coll_threads(2, call_miscount, &x);
        for (int r = 0; r < 2; r++) {
            EXPECT(!x.plan[r], "plan: %s", pici_strerror(x.plan[r]));
            if (x.agree || r == x.to)
                EXPECT(x.call[r] == PICI_E_PEER, "miscount %d, agree %d, rank %d: %s (%s)", (int)i / 2, x.agree, r,
                       pici_strerror(x.call[r]), pici_comm_error(x.comm[r]));
            EXPECT(x.after[r], "miscount %d, rank %d: fine afterwards", (int)i / 2, r);
        }
        pici_comm_free(x.comm[0]);
        pici_comm_free(x.comm[1]);
    }
}

/* ---- empty contributions ---- */

/* Three ranks, of which rank 0 alone sends something. */
struct nowhere {
    struct pici_comm *comm[3];
    enum pici_status call[3];
    uint32_t recv[3][4];
};

static void call_nowhere(void *context, int rank)
{
    struct nowhere *x = context;
    const int others[] = {(rank + 1) % 3, (rank + 2) % 3};
    const uint32_t send[] = {5, 6};
    uint64_t counts[2], displs[2];
    struct pici_neighbor_plan *plan = NULL;
    for (int i = 0; i < 2; i++) {
        counts[i] = others[i] ? 0 : 2;
        displs[i] = others[i] ? UINT64_MAX - (uint64_t)i : 1;
    }
    x->call[rank] = pici_neighbor_plan_create(&plan, x->comm[rank], 2, others, 2, others, NULL);
    if (plan)
        x->call[rank] = pici_neighbor_all_gatherv(send, rank ? 0 : 2, rank ? x->recv[rank] : NULL, counts, displs,
                                                  PICI_U32, plan, NULL);
    pici_neighbor_plan_free(plan);
}

/* Where an empty slot would be does not matter. */
static void run_nowhere(void)
{
    static const uint32_t want[] = {0, 5, 6, 0};
    struct nowhere x = {.recv = {{0}}};
    if (pici_comm_threads(x.comm, 3))
        abort();
    coll_threads(3, call_nowhere, &x);
    for (int r = 0; r < 3; r++) {
        EXPECT(!x.call[r], "empty slots, rank %d: %s (%s)", r, pici_strerror(x.call[r]), pici_comm_error(x.comm[r]));
        EXPECT(!r || memcmp(x.recv[r], want, sizeof want) == 0, "empty slots, rank %d: other elements", r);
        pici_comm_free(x.comm[r]);
    }
}

/* ---- memory beforehand ---- */

struct reserved {
    struct team t;
    uint64_t longest;
    enum pici_status reserve[NEIGHBOR_RANKS];
    int allocated[NEIGHBOR_RANKS]; /* the call has */
};

static void call_reserved(void *context, int rank)
{
    struct reserved *x = context;
    struct team *t = &x->t;
    struct pici_comm *comm = t->comm[rank];
    struct pici_neighbor_plan *plan = NULL;
    enum pici_status s = neighbor_rank_plan(&t->rank[rank][0], &t->c[0], comm, &plan);
    if (!s)
        s = x->reserve[rank] = pici_neighbor_plan_reserve(plan, x->longest, t->c[0].dtype, &t->rank[rank][0].opts);
    const void *tables = comm->tables;
    const size_t bytes = comm->tables_bytes, scratch = pici_engine_host_scratch(comm->engine_self);
    if (!s)
        s = neighbor_rank_call(&t->rank[rank][0], &t->c[0], plan);
    x->allocated[rank] =
        comm->tables != tables || comm->tables_bytes != bytes || pici_engine_host_scratch(comm->engine_self) != scratch;
    t->wrong[rank] = s ? NULL : neighbor_rank_judge(&t->rank[rank][0], &t->c[0]);
    t->status[rank] = s;
    if (plan) {
        EXPECT(pici_neighbor_plan_reserve(plan, UINT64_MAX, PICI_F32, NULL) == PICI_E_ARG, "a count beyond memory");
        EXPECT(pici_neighbor_plan_reserve(plan, 1, (enum pici_dtype)99, NULL) == PICI_E_UNSUPPORTED, "no dtype");
    }
    pici_neighbor_plan_free(plan);
}

static void run_reserved(int p, uint64_t seed)
{
    struct reserved *x = calloc(1, sizeof *x);
    struct team *t = &x->t;
    struct rng r = {seed};
    if (!x || pici_comm_threads(t->comm, p))
        abort();
    neighbor_case_random(&t->c[0], &r, p, 200000);
    for (int i = 0; i < p; i++) {
        x->longest = t->c[0].count[i] > x->longest ? t->c[0].count[i] : x->longest;
        neighbor_rank_init(&t->rank[i][0], &t->c[0], i);
    }
    if (t->c[0].varied && t->c[0].plan.most_bytes)
        x->longest = t->c[0].plan.most_bytes / pici_dtype_width(t->c[0].dtype);
    coll_threads(p, call_reserved, x);
    for (int i = 0; i < p; i++) {
        EXPECT(!t->status[i] && !t->wrong[i] && !x->allocated[i], "%s: rank %d: %s, %s, %s",
               neighbor_case_words(&t->c[0]), i, pici_strerror(t->status[i]), t->wrong[i] ? t->wrong[i] : "",
               x->allocated[i] ? "allocates in spite of pici_neighbor_plan_reserve" : "");
        pici_comm_free(t->comm[i]);
        neighbor_rank_free(&t->rank[i][0]);
    }
    free(x);
}

int main(int argc, char **argv)
{
    enum { TAPPED = 20, RESERVED = 20, SLICED = 8, SOCKETS = 8 };
    const uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    const int runs = test_full() ? 3000 : 120;
    for (uint64_t seed = first; seed < first + (uint64_t)runs; seed++)
        run_calls(1 + (int)(seed % NEIGHBOR_RANKS), seed,
                  seed % 50 == 49 ? 300000
                  : seed % 5      ? 3000
                                  : 20000,
                  BY_THREADS);
    run_calls(3, first + 1, 1000000, ALL_MOST);
    for (int i = 0; i < SOCKETS; i++)
        run_calls(2 + 2 * (i % 3), 8000 + (uint64_t)i, i ? 5000 : 100000, BY_SOCKETS);
    for (uint64_t seed = 0; seed < TAPPED; seed++)
        run_tapped(2 + (int)(seed % (NEIGHBOR_RANKS - 1)), seed + 5000);
    for (uint64_t seed = 0; seed < RESERVED; seed++)
        run_reserved(2 + (int)(seed % (NEIGHBOR_RANKS - 1)), seed + 9000);
    EXPECT(pici_neighbor_plan_reserve(NULL, 1, PICI_F32, NULL) == PICI_E_ARG, "no plan");
    for (uint64_t seed = 0; seed < SLICED; seed++)
        run_sliced(3 + (int)seed, seed + 6000);
    for (int how = 0; how < HOWS; how++)
        run_odd(how);
    run_errors();
    run_unsupported();
    run_miscounts();
    run_nowhere();
    const int cases = runs + 1 + SOCKETS + TAPPED + RESERVED + SLICED + HOWS + 2;
    printf("%d passed, %d failed\n", failures < cases ? cases - failures : 0, failures);
    return failures != 0;
}
