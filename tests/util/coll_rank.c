/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Ranks that make calls, and judge what they got. */
#define _POSIX_C_SOURCE 200809L
#include "coll.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "coll/request.h"
#include "formats/ref.h"

/* ---- a rank ---- */

/* A buffer at any address, as the seed says. */
static uint8_t *place(struct guard *g, size_t bytes, struct rng *r)
{
    const size_t skew = (size_t)rng_below(r, 64);
    const enum guard_side side = rng_next(r) & 1 ? GUARD_END : GUARD_START;
    if (!g->map || g->cap < bytes + skew) {
        if (g->map)
            guard_free(g);
        guard_init(g, bytes + bytes / 4 + 64);
    }
    return guard_place(g, bytes, side, rng_next(r) & 1 ? skew : 0);
}

void coll_rank_place(struct coll_rank *k, const struct coll_case *c, const struct coll_job *job, struct pici_comm *comm)
{
    const size_t width = ref_width(c->dtype), segment = (size_t)c->count * width;
    const size_t receives = (size_t)coll_receives(c, job->p) * width;
    size_t sends = (size_t)coll_sends(c, job->p) * width;
    const int rank = pici_comm_rank(comm);
    struct rng r = {c->seed ^ (uint64_t)rank};
    uint8_t *send;
    pici_comm_set_nodes(comm, c->node_of);
    k->packed = coll_slots(c, job->p, rank, k->counts, k->displs);
    if (c->collective == PICI_ALL_GATHERV)
        sends = (size_t)k->counts[rank] * width;
    if (c->collective == PICI_BROADCAST) {
        send = k->received = place(&k->recv, receives, &r);
        memset(k->received, COLL_UNTOUCHED, receives);
        sends = rank == c->root ? sends : 0;
    } else if (!c->in_place) {
        send = place(&k->send, sends, &r);
        k->received = place(&k->recv, receives, &r);
        memset(k->received, COLL_UNTOUCHED, receives);
    } else if (coll_is_gather(c->collective)) {
        k->received = place(&k->recv, receives, &r);
        memset(k->received, COLL_UNTOUCHED, receives);
        send = (uint8_t *)k->received +
               (c->collective == PICI_ALL_GATHERV ? (size_t)k->displs[rank] * width : (size_t)rank * segment);
    } else { /* all_reduce: the segment is the whole */
        send = place(&k->recv, sends, &r);
        k->received = c->collective == PICI_ALL_REDUCE ? send : send + (size_t)rank * segment;
    }
    if (sends)
        memcpy(send, job->send[rank], sends);
    k->sent = send;
    k->opts = c->opts;
    if (!coll_is_gather(c->collective)) /* a test may have changed it after options were drawn */
        k->opts.zeros = PICI_ZEROS_EXACT;
    k->stats = (struct pici_coll_stats)PICI_COLL_STATS_INIT;
    k->opts.stats = &k->stats;
    if (c->own_scratch) {
        k->opts.scratch_bytes = pici_comm_scratch(comm, c->collective, c->count, c->dtype, c->op, &k->opts);
        k->opts.scratch = place(&k->scratch, k->opts.scratch_bytes, &r);
    }
}

static const void *gatherv_send(const struct coll_rank *k, const struct pici_comm *comm)
{
    return k->counts[pici_comm_rank(comm)] ? k->sent : NULL;
}

enum pici_status coll_rank_call(struct coll_rank *k, const struct coll_case *c, struct pici_comm *comm)
{
    switch (c->collective) {
    case PICI_ALL_GATHER: return pici_all_gather(k->sent, k->received, c->count, c->dtype, comm, &k->opts);
    case PICI_BROADCAST: return pici_broadcast(k->received, c->count, c->dtype, c->root, comm, &k->opts);
    case PICI_ALL_GATHERV:
        return pici_all_gatherv(gatherv_send(k, comm), k->counts[pici_comm_rank(comm)], k->received, k->counts,
                                k->packed ? NULL : k->displs, c->dtype, comm, &k->opts);
    case PICI_REDUCE_SCATTER:
        return pici_reduce_scatter(k->sent, k->received, c->count, c->dtype, c->op, comm, &k->opts);
    default: return pici_all_reduce(k->sent, k->received, c->count, c->dtype, c->op, comm, &k->opts);
    }
}

enum pici_status coll_rank_start(struct coll_rank *k, const struct coll_case *c, struct pici_comm *comm,
                                 struct pici_request **request)
{
    switch (c->collective) {
    case PICI_ALL_GATHER:
        return pici_all_gather_start(k->sent, k->received, c->count, c->dtype, comm, &k->opts, request);
    case PICI_BROADCAST: return pici_broadcast_start(k->received, c->count, c->dtype, c->root, comm, &k->opts, request);
    case PICI_ALL_GATHERV:
        return pici_all_gatherv_start(gatherv_send(k, comm), k->counts[pici_comm_rank(comm)], k->received, k->counts,
                                      k->packed ? NULL : k->displs, c->dtype, comm, &k->opts, request);
    case PICI_REDUCE_SCATTER:
        return pici_reduce_scatter_start(k->sent, k->received, c->count, c->dtype, c->op, comm, &k->opts, request);
    default: return pici_all_reduce_start(k->sent, k->received, c->count, c->dtype, c->op, comm, &k->opts, request);
    }
}

/* Not null: where two runs of elements differ, in said. */
static const char *differ(struct coll_rank *k, const char *what, const struct coll_case *c, const void *got,
                          const void *want, uint64_t n)
{
    const unsigned width = ref_width(c->dtype);
    if (memcmp(got, want, (size_t)n * width) == 0)
        return NULL;
    uint64_t i = 0;
    while (ref_load(got, i, width) == ref_load(want, i, width))
        i++;
    snprintf(k->said, sizeof k->said, "%s: element %llu of %llu is %#llx, not %#llx", what, (unsigned long long)i,
             (unsigned long long)n, (unsigned long long)ref_load(got, i, width),
             (unsigned long long)ref_load(want, i, width));
    return k->said;
}

/* The statistics of a call, as far as its options tell. */
static const char *judge_stats(const struct coll_case *c, const struct pici_coll_stats *s, int p)
{
    const struct pici_coll_opts *o = &c->opts;
    const uint64_t sparse = s->sends[PICI_BITMAP] + s->sends[PICI_COO] + s->sends[PICI_HYBRID],
                   packed = s->sends[PICI_PACKED], all = sparse + packed + s->sends[PICI_DENSE];
    const int may = c->dtype <= PICI_F8E5M2 && o->pack != PICI_PACKING_NONE &&
                    (o->format == PICI_AUTO || o->format == PICI_HYBRID) &&
                    (!o->formats || o->formats >> PICI_HYBRID & 1);
    const int gathers = c->collective != PICI_REDUCE_SCATTER, reduces = !coll_is_gather(c->collective);
    const int some = c->collective != PICI_BROADCAST && c->collective != PICI_ALL_GATHERV; /* sent by each rank */
    const int dense = o->format == PICI_DENSE || ((!gathers || o->ag_threshold >= 1) &&
                                                  (!reduces || (o->inter_threshold >= 1 && o->intra_threshold >= 1)));
    const int never =
        (!gathers || o->ag_threshold == 0) && (!reduces || (o->inter_threshold == 0 && o->intra_threshold == 0));
    if (s->size != sizeof *s || s->encode_s < 0 || s->decode_s < 0 || s->wait_s < 0)
        return "statistics that cannot be";
    if (p == 1)
        return all || s->wire_bytes || s->dense_bytes ? "a rank alone sent something" : NULL;
    int alone = 1, together = 1;
    for (int i = 0; i < p; i++)
        for (int j = 0; j < i; j++) {
            alone &= c->node_of[i] != c->node_of[j];
            together &= c->node_of[i] == c->node_of[j];
        }
    if (s->inter_bytes > s->wire_bytes || (alone && s->inter_bytes != s->wire_bytes) || (together && s->inter_bytes))
        return "bytes to other nodes that cannot be";
    if (some ? !all != !c->count : all && !c->count)
        return all ? "blocks of nothing were sent" : "no block was sent";
    if (dense && (sparse || (!packed && s->wire_bytes != s->dense_bytes)))
        return "not all was dense";
    if (!may && packed)
        return "something was packed";
    const int early = c->collective == PICI_ALL_REDUCE && c->count <= 16384 / ref_width(c->dtype);
    if (may && o->pack == PICI_PACKING_PLANES && all != packed && !early)
        return "not all was packed";
    if (o->format != PICI_AUTO && o->format != PICI_DENSE && never && s->sends[PICI_DENSE])
        return "something was dense";
    for (unsigned f = PICI_BITMAP; f <= PICI_HYBRID; f++)
        if (s->sends[f] && (o->format == PICI_AUTO ? o->formats && !(o->formats >> f & 1) : o->format != f))
            return "another format than was asked for";
    uint64_t tiles = 0;
    for (int i = 0; i < PICI_CONTAINERS; i++)
        tiles += s->tiles[i];
    if (tiles && !s->sends[PICI_HYBRID])
        return "tiles of no hybrid block";
    return NULL;
}

const char *coll_rank_judge(struct coll_rank *k, const struct coll_case *c, const struct coll_job *job, int rank)
{
    const size_t width = ref_width(c->dtype), segment = (size_t)c->count * width;
    const uint64_t receives = coll_receives(c, job->p),
                   sends = c->collective == PICI_ALL_GATHERV ? k->counts[rank] : coll_sends(c, job->p);
    const char *wrong = differ(k, "result", c, k->received, job->want[rank], receives);
    for (int i = 0; i < 2 && wrong; i++)
        if (job->other[i][rank])
            wrong = differ(k, "result", c, k->received, job->other[i][rank], receives);
    if (wrong)
        return wrong;
    if (!c->in_place && c->collective != PICI_BROADCAST &&
        (wrong = differ(k, "send buffer", c, k->sent, job->send[rank], sends)))
        return wrong;
    if (c->in_place && c->collective == PICI_REDUCE_SCATTER) {
        const uint64_t before = (uint64_t)rank * c->count, after = coll_sends(c, job->p) - before - c->count;
        const uint8_t *was = job->send[rank];
        if ((wrong = differ(k, "segments before its own", c, k->sent, was, before)) ||
            (wrong = differ(k, "segments after its own", c, (const uint8_t *)k->received + segment,
                            was + (size_t)(before + c->count) * width, after)))
            return wrong;
    }
    if (!guard_intact(&k->recv) || (k->send.map && !guard_intact(&k->send)) ||
        (k->scratch.map && !guard_intact(&k->scratch)))
        return "bytes around a buffer were written";
    return judge_stats(c, &k->stats, job->p);
}

void coll_rank_free(struct coll_rank *k)
{
    struct guard *all[] = {&k->send, &k->recv, &k->scratch};
    for (int i = 0; i < 3; i++)
        if (all[i]->map)
            guard_free(all[i]);
}

/* ---- a rank that fails inside ---- */

static _Thread_local enum coll_limb limb; /* of this rank: what fails, */
static _Thread_local int calls_left;      /* after so many calls */

static int fails(enum coll_limb which)
{
    return limb == which && calls_left-- == 0;
}

static enum pici_status ill_encode(struct pici_queue *queue, uint8_t *message, size_t at, size_t cap, size_t *len,
                                   const void *const *src, const uint64_t *n, int runs,
                                   const struct engine_array *array, int arrays, int checksum)
{
    return fails(LIMB_ENCODE)
               ? PICI_E_IO
               : pici_engine_host.encode(queue, message, at, cap, len, src, n, runs, array, arrays, checksum);
}

static enum pici_status ill_decode(struct pici_queue *queue, void *dst, const uint8_t *block,
                                   const struct pici_block *b, uint64_t whole)
{
    return fails(LIMB_DECODE) ? PICI_E_IO : pici_engine_host.decode(queue, dst, block, b, whole);
}

static enum pici_status ill_reduce(struct pici_queue *queue, void *dst, const uint8_t *block,
                                   const struct pici_block *b, enum pici_op op, void *temp, uint64_t temp_elements)
{
    return fails(LIMB_REDUCE) ? PICI_E_IO : pici_engine_host.reduce(queue, dst, block, b, op, temp, temp_elements);
}

enum pici_status coll_rank_call_ill(struct coll_rank *k, const struct coll_case *c, struct pici_comm *comm,
                                    enum coll_limb which, int after, int *failed)
{
    struct pici_engine engine = pici_engine_host;
    engine.encode = ill_encode;
    engine.decode = ill_decode;
    engine.reduce = ill_reduce;
    limb = which;
    calls_left = after;
    comm->engine = &engine;
    enum pici_status s = coll_rank_call(k, c, comm);
    comm->engine = &pici_engine_host;
    *failed = calls_left < 0;
    return s;
}

/* ---- ranks that are threads ---- */

struct thread_of {
    pthread_t thread;
    void (*fn)(void *context, int rank);
    void *context;
    int rank;
};

static void *thread_main(void *arg)
{
    struct thread_of *t = arg;
    t->fn(t->context, t->rank);
    return NULL;
}

void coll_threads(int p, void (*fn)(void *context, int rank), void *context)
{
    struct thread_of *t = test_alloc((size_t)p * sizeof *t);
    for (int i = 0; i < p; i++) {
        t[i] = (struct thread_of){.fn = fn, .context = context, .rank = i};
        if (pthread_create(&t[i].thread, NULL, thread_main, &t[i]))
            abort();
    }
    for (int i = 0; i < p; i++)
        pthread_join(t[i].thread, NULL);
    free(t);
}

void coll_team_init(struct coll_team *team, int p)
{
    memset(team, 0, sizeof *team);
    team->p = p;
    if (pici_comm_threads(team->comm, p))
        abort();
}

void coll_team_free(struct coll_team *team)
{
    for (int i = 0; i < team->p; i++) {
        pici_comm_free(team->comm[i]);
        coll_rank_free(&team->rank[i]);
    }
}

struct check {
    struct coll_team *team;
    const struct coll_case *c;
    struct coll_job job;
    enum pici_status status[COLL_RANKS];
    const char *wrong[COLL_RANKS];
};

static void check_rank(void *context, int rank)
{
    struct check *check = context;
    struct coll_rank *k = &check->team->rank[rank];
    struct pici_comm *comm = check->team->comm[rank];
    coll_rank_place(k, check->c, &check->job, comm);
    check->status[rank] = coll_rank_call(k, check->c, comm);
    if (check->status[rank] == PICI_OK)
        check->wrong[rank] = coll_rank_judge(k, check->c, &check->job, rank);
    else
        check->wrong[rank] = pici_comm_error(comm);
}

const char *coll_team_check(struct coll_team *team, const struct coll_case *c)
{
    static char said[1200];
    struct check check = {.team = team, .c = c};
    const char *wrong = NULL;
    coll_job_make(&check.job, c, team->p);
    coll_threads(team->p, check_rank, &check);
    for (int i = 0; i < team->p && !wrong; i++)
        if (check.wrong[i]) {
            snprintf(said, sizeof said, "%s: rank %d: %s: %s", coll_case_words(c, team->p), i,
                     pici_strerror(check.status[i]), check.wrong[i]);
            wrong = said;
        }
    coll_job_free(&check.job);
    return wrong;
}

/* ---- in flight ---- */

enum { FLIGHTS = 7 };

enum style { BACKWARDS, SHUFFLED, BY_TURNS, BLOCKING, STYLES };

struct flight {
    uint64_t seed;
    struct pici_comm *comm[COLL_RANKS];
    struct coll_case c[FLIGHTS];
    struct coll_job job[FLIGHTS];
    struct coll_rank rank[COLL_RANKS][FLIGHTS];
    const char *wrong[COLL_RANKS];
};

static void landed(struct flight *f, int rank, int i, enum pici_status status, const struct pici_request *request)
{
    const char *wrong = status    ? pici_strerror(status)
                        : request ? "a request that was not freed"
                                  : coll_rank_judge(&f->rank[rank][i], &f->c[i], &f->job[i], rank);
    if (!f->wrong[rank])
        f->wrong[rank] = wrong;
}

static void by_turns(struct flight *f, int rank, struct pici_request **request)
{
    const struct timespec nap = {0, 50000};
    int ended[FLIGHTS] = {0};
    for (int left = FLIGHTS; left; nanosleep(&nap, NULL)) /* leaves the processor to the ranks that it waits for */
        for (int i = 0; i < FLIGHTS; i++) {
            int done;
            enum pici_status status = pici_test(&request[i], &done);
            if (ended[i] || !done)
                continue;
            ended[i] = 1;
            left--;
            landed(f, rank, i, status, request[i]);
        }
}

static void fly(void *context, int rank)
{
    struct flight *f = context;
    struct pici_request *request[FLIGHTS] = {NULL};
    struct rng rng = {f->seed + (uint64_t)rank};
    const enum style style = (enum style)rng_below(&rng, STYLES);
    const int blocking = style == BLOCKING ? FLIGHTS / 2 : -1;
    int order[FLIGHTS];
    for (int i = 0; i < FLIGHTS; i++) {
        struct coll_rank *k = &f->rank[rank][i];
        coll_rank_place(k, &f->c[i], &f->job[i], f->comm[rank]);
        if (i == blocking)
            landed(f, rank, i, coll_rank_call(k, &f->c[i], f->comm[rank]), NULL);
        else if (coll_rank_start(k, &f->c[i], f->comm[rank], &request[i]))
            landed(f, rank, i, PICI_E_BROKEN, NULL);
    }
    for (int i = 0; i < FLIGHTS; i++)
        order[i] = style == BACKWARDS ? FLIGHTS - 1 - i : i;
    for (int i = FLIGHTS - 1; i > 0 && style == SHUFFLED; i--) {
        int j = (int)rng_below(&rng, (uint64_t)i + 1), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    if (style == BY_TURNS)
        by_turns(f, rank, request);
    for (int i = 0; i < FLIGHTS && style != BY_TURNS; i++)
        if (order[i] != blocking) {
            enum pici_status status = pici_wait(&request[order[i]]);
            landed(f, rank, order[i], status, request[order[i]]);
        }
}

const char *coll_flight_check(int p, uint64_t seed)
{
    static char said[400];
    struct flight *f = test_alloc(sizeof *f);
    struct rng rng = {seed};
    memset(f, 0, sizeof *f);
    f->seed = seed;
    if (pici_comm_threads(f->comm, p))
        abort();
    for (int i = 0; i < FLIGHTS; i++) {
        struct coll_case *c = &f->c[i];
        c->count = rng_below(&rng, rng_chance(&rng, 300000) ? 20000 : 900);
        coll_case_random(c, &rng, p);
        memcpy(c->node_of, f->c[0].node_of, sizeof c->node_of); /* cannot change while one is in flight */
        coll_job_make(&f->job[i], c, p);
    }
    coll_threads(p, fly, f);
    said[0] = 0;
    for (int i = 0; i < p; i++) {
        if (f->wrong[i] && !said[0])
            snprintf(said, sizeof said, "rank %d: %s (%s)", i, f->wrong[i], pici_comm_error(f->comm[i]));
        for (int j = 0; j < FLIGHTS; j++)
            coll_rank_free(&f->rank[i][j]);
        pici_comm_free(f->comm[i]);
    }
    for (int i = 0; i < FLIGHTS; i++)
        coll_job_free(&f->job[i]);
    free(f);
    return said[0] ? said : NULL;
}
