/* SPDX-License-Identifier: BSD-3-Clause */
#include "onesided.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/comm.h"
#include "coll/make.h"
#include "formats/ref.h"

/* ---- tables as schedules */

static const struct table *of(const struct schedule *s)
{
    return (const struct table *)(const void *)s;
}

static int steps(const struct schedule *s, const struct schedule_call *c)
{
    if (c->ranks != of(s)->p || c->kind != of(s)->kind)
        abort();
    return of(s)->steps;
}

static void limits(const struct schedule *s, const struct schedule_call *c, struct schedule_limits *l)
{
    (void)c;
    *l = of(s)->limits;
}

static void put(struct schedule_message *out, const struct table_message *m, int sends)
{
    out->peer = sends ? m->to : m->from;
    out->count = m->count;
    memcpy(out->segments, m->segments, (size_t)m->count * sizeof *m->segments);
    out->action = sends ? m->send : m->take;
    out->keep = sends ? m->keep_sent : m->keep_received;
    out->contributions = m->contributions;
}

static void step(const struct schedule *s, const struct schedule_call *c, int k, struct schedule_step *out)
{
    const struct table *t = of(s);
    out->phase = t->phase[k];
    out->complete = t->complete[k][c->virtual_rank];
    out->sends = out->receives = 0;
    for (int i = 0; i < t->messages; i++) {
        const struct table_message *m = &t->m[i];
        if (m->step == k && m->from == c->virtual_rank)
            put(&out->send[out->sends++], m, 1);
        if (m->step == k && m->to == c->virtual_rank)
            put(&out->receive[out->receives++], m, 0);
    }
}

/* ---- writing tables */

static void begin_table(struct table *t, const char *name, enum pici_collective kind, int p)
{
    memset(t, 0, sizeof *t);
    t->s = (struct schedule){.id = (enum pici_algorithm)201,
                             .name = name,
                             .doc = "",
                             .collectives = 1u << kind,
                             .steps = steps,
                             .step = step,
                             .limits = limits};
    t->kind = kind;
    t->p = p;
}

static struct table_message *add(struct table *t, int k, int from, int to, enum schedule_action send,
                                 enum schedule_action take)
{
    if (t->messages == TABLE_MESSAGES || k >= TABLE_STEPS)
        abort();
    struct table_message *m = &t->m[t->messages++];
    *m = (struct table_message){.step = k, .from = from, .to = to, .send = send, .take = take, .contributions = t->p};
    t->steps = k + 1 > t->steps ? k + 1 : t->steps;
    t->phase[k] = take == RECEIVE_REDUCE ? PHASE_REDUCE : PHASE_GATHER;
    return m;
}

static void add_all(struct table *t, int k, int from, int to, enum schedule_action send, enum schedule_action take)
{
    struct table_message *m = add(t, k, from, to, send, take);
    for (int g = 0; g < t->p; g++)
        m->segments[m->count++] = (from + g) % t->p; /* any order does */
}

static void add_one(struct table *t, int k, int from, int to, enum schedule_action send, enum schedule_action take,
                    int g)
{
    struct table_message *m = add(t, k, from, to, send, take);
    m->segments[m->count++] = g;
}

static int shares_segment(const struct table_message *a, const struct table_message *b)
{
    for (int i = 0; i < a->count; i++)
        for (int j = 0; j < b->count; j++)
            if (a->segments[i] == b->segments[j])
                return 1;
    return 0;
}

/* Once all messages are there: what is kept, and the limits. */
static void end_table(struct table *t, int sums_in_recv)
{
    struct table_message *sorted = test_alloc(sizeof t->m);
    int n = 0;
    for (int k = 0; k < t->steps; k++)
        for (int i = 0; i < t->messages; i++)
            if (t->m[i].step == k)
                sorted[n++] = t->m[i];
    memcpy(t->m, sorted, sizeof *sorted * (size_t)n);
    free(sorted);
    for (int i = 0; i < t->messages; i++)
        for (int j = i + 1; j < t->messages; j++) {
            struct table_message *m = &t->m[i];
            const struct table_message *later = &t->m[j];
            if (m->take == RECEIVE_REDUCE || later->send != SEND_FORWARD || !shares_segment(m, later))
                continue;
            m->keep_sent |= later->from == m->from;
            m->keep_received |= later->from == m->to && later->step > m->step;
        }
    struct schedule_call c = {.kind = t->kind, .ranks = t->p};
    struct schedule_limits used;
    t->limits = (struct schedule_limits){COLL_RANKS,     COLL_RANKS,  COLL_RANKS, sums_in_recv ? 0 : COLL_RANKS,
                                         TABLE_MESSAGES, sums_in_recv};
    (void)schedule_check(&t->s, &c, 0, &used);
    t->limits = used;
}

void table_star(struct table *t, enum pici_collective kind, int p)
{
    begin_table(t, "star", kind, p);
    for (int r = p - 1; r > 0; r--) {
        add_all(t, 0, r, 0, SEND_ENCODE, RECEIVE_REDUCE);
        t->m[t->messages - 1].contributions = 1;
    }
    t->complete[0][0] = COMPLETE_ALL;
    for (int r = 1; r < p; r++)
        if (kind == PICI_ALL_REDUCE)
            add_all(t, 1, 0, r, r == 1 ? SEND_ENCODE : SEND_FORWARD, RECEIVE_PLACE);
        else
            add_one(t, 1, 0, r, SEND_ENCODE, RECEIVE_PLACE, r);
    if (kind == PICI_REDUCE_SCATTER)
        t->phase[1] = PHASE_REDUCE;
    end_table(t, kind == PICI_ALL_REDUCE);
}

void table_reduce(struct table *t, int p)
{
    int log2 = 0, k = 0;
    while (2 << log2 <= p)
        log2++;
    const int p2 = 1 << log2, rem = p - p2;
    begin_table(t, "reduce", PICI_ALL_REDUCE, p);
#define AT(v) ((v) < rem ? 2 * (v) + 1 : (v) + rem)
    for (int v = 0; v < rem; v++)
        add_all(t, k, 2 * v, 2 * v + 1, SEND_ENCODE, RECEIVE_REDUCE);
    k += rem > 0;
    for (int far = 1; far < p2; far *= 2, k++)
        for (int v = 0; v < p2; v += 2 * far)
            add_all(t, k, AT(v + far), AT(v), SEND_ENCODE, RECEIVE_REDUCE);
    t->complete[k - 1][AT(0)] = COMPLETE_ALL;
    for (int far = p2 / 2; far; far /= 2, k++)
        for (int v = 0; v < p2; v += 2 * far)
            add_all(t, k, AT(v), AT(v + far), far == p2 / 2 ? SEND_ENCODE : SEND_FORWARD, RECEIVE_PLACE);
    for (int v = 0; v < rem; v++)
        add_all(t, k, 2 * v + 1, 2 * v, SEND_FORWARD, RECEIVE_PLACE);
#undef AT
    end_table(t, 1);
}

void table_relay(struct table *t, int p)
{
    const int relay = p - 1;
    begin_table(t, "relay", PICI_ALL_GATHER, p);
    for (int r = 0; r < relay; r++)
        add_one(t, 0, r, relay, SEND_ENCODE, r % 2 ? RECEIVE_PLACE : RECEIVE_KEEP, r);
    for (int r = 0; r < relay; r++) {
        struct table_message *m = add(t, 1, relay, r, SEND_FORWARD, RECEIVE_PLACE);
        for (int g = 0; g < relay; g++)
            if (g != r)
                m->segments[m->count++] = g;
    }
    add_one(t, 2, relay, 0, SEND_ENCODE, RECEIVE_PLACE, relay);
    struct table_message *back = add(t, 3, 0, relay, SEND_FORWARD, RECEIVE_PLACE);
    for (int g = 0; g < relay; g += 2)
        back->segments[back->count++] = g;
    for (int r = 1; r < relay; r++)
        add_one(t, 3, 0, r, SEND_FORWARD, RECEIVE_PLACE, relay);
    end_table(t, 0);
}

void table_one_way(struct table *t, int p)
{
    begin_table(t, "one way", PICI_ALL_GATHER, p);
    for (int r = 1; r < p; r++)
        add_one(t, 0, 0, r, r == 1 ? SEND_ENCODE : SEND_FORWARD, RECEIVE_PLACE, 0);
    end_table(t, 0);
}

/* The own segment alone the first time; later as what is kept. */
static void tell(struct table *t, int k, int from, int to, uint64_t what, int *encoded)
{
    if (what >> from & 1 && !encoded[from])
        what = UINT64_C(1) << from;
    struct table_message *m =
        add(t, k, from, to, what == UINT64_C(1) << from && !encoded[from] ? SEND_ENCODE : SEND_FORWARD, RECEIVE_PLACE);
    for (int g = 0; g < t->p; g++)
        if (what >> g & 1)
            m->segments[m->count++] = g;
    encoded[from] |= m->send == SEND_ENCODE;
}

void table_gossip(struct table *t, int p, struct rng *rng)
{
    uint64_t held[COLL_RANKS], coming[COLL_RANKS];
    int encoded[COLL_RANKS] = {0}, k = 0;
    begin_table(t, "gossip", PICI_ALL_GATHER, p);
    for (int i = 0; i < TABLE_STEPS; i++)
        t->phase[i] = PHASE_GATHER; /* also of steps without any message */
    for (int r = 0; r < p; r++)
        held[r] = UINT64_C(1) << r;
    for (const int chatty = 1 + (int)rng_below(rng, 6); k < chatty; k++) {
        memset(coming, 0, sizeof coming);
        for (int i = 0; i < p * p; i++) {
            const int from = i / p, to = i % p;
            const uint64_t news = from == to ? 0 : held[from] & ~held[to] & ~coming[to] & rng_next(rng);
            if (!news || !rng_chance(rng, 2000000u / (unsigned)p))
                continue;
            tell(t, k, from, to, news, encoded);
            const struct table_message *m = &t->m[t->messages - 1];
            for (int j = 0; j < m->count; j++)
                coming[to] |= UINT64_C(1) << m->segments[j];
        }
        for (int r = 0; r < p; r++)
            held[r] |= coming[r];
    }
    for (int from = 0; from < p; from++) /* and then all that is missing, from its owner */
        for (int to = 0; to < p; to++)
            if (!(held[to] >> from & 1))
                tell(t, k, from, to, UINT64_C(1) << from, encoded);
    end_table(t, 0);
}

void table_tree(struct table *t, int p, struct rng *rng)
{
    int order[COLL_RANKS], parent[COLL_RANKS];
    int up[COLL_RANKS] = {0},
        down[COLL_RANKS] = {0}; /* the first step in which it can send to its parent, its children */
    int sent[COLL_RANKS] = {0}; /* one more than the last step in which it sent to one of these */
    begin_table(t, "tree", PICI_ALL_REDUCE, p);
    for (int i = 0; i < p; i++)
        order[i] = i;
    for (int i = p - 1; i > 0; i--) {
        const int j = (int)rng_below(rng, (uint64_t)i + 1), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    for (int i = p - 1; i > 0; i--) {
        parent[i] = (int)rng_below(rng, (uint64_t)i);
        const int k = up[i] + (int)rng_below(rng, 2);
        add_all(t, k, order[i], order[parent[i]], SEND_ENCODE, RECEIVE_REDUCE);
        up[parent[i]] = k + 1 > up[parent[i]] ? k + 1 : up[parent[i]];
    }
    t->complete[up[0] - 1][order[0]] = COMPLETE_ALL;
    down[0] = t->steps;
    for (int i = 1; i < p; i++) {
        const int above = parent[i], k = sent[above] ? sent[above] - 1 + (int)rng_below(rng, 2) : down[above];
        add_all(t, k, order[above], order[i], above || sent[above] ? SEND_FORWARD : SEND_ENCODE, RECEIVE_PLACE);
        sent[above] = k + 1;
        down[i] = k + 1;
    }
    end_table(t, 1);
}

const char *table_check(const struct table *t)
{
    const struct schedule_call c = {.kind = t->kind, .ranks = t->p};
    return schedule_check(&t->s, &c, 0, NULL);
}

int table_blocks(const struct table *t, int position)
{
    int blocks = 0;
    for (int i = 0; i < t->messages; i++)
        blocks += t->m[i].from == position ? t->m[i].count : 0;
    return blocks;
}

/* ---- what comes out */

static int holds(const struct table_message *m, int g)
{
    for (int i = 0; i < m->count; i++)
        if (m->segments[i] == g)
            return 1;
    return 0;
}

/* x[position]: the contributions to one element of segment g. */
static uint64_t reduce(const struct table *t, const struct coll_case *c, int g, uint64_t *x)
{
    uint64_t before[COLL_RANKS], any = 0;
    for (int i = 0; i < t->p; i++)
        any |= x[i];
    if (!any)
        return 0;
    for (int i = 0; i < t->p; i++)
        x[i] = coll_first(c->dtype, c->op, x[i]);
    for (int k = 0, i = 0; k < t->steps; k++) {
        memcpy(before, x, sizeof before);
        for (; i < t->messages && t->m[i].step == k; i++)
            if (t->m[i].take == RECEIVE_REDUCE && holds(&t->m[i], g))
                x[t->m[i].to] = coll_reduce(c->dtype, c->op, x[t->m[i].to], before[t->m[i].from]);
        for (int r = 0; r < t->p; r++)
            if (t->complete[k][r] == COMPLETE_ALL || (t->complete[k][r] == COMPLETE_OWN && r == g))
                return c->op == PICI_AVG ? coll_divide(c->dtype, x[r], t->p) : x[r];
    }
    abort(); /* never complete */
}

void table_job(struct coll_job *job, const struct table *t, const struct coll_case *c)
{
    const unsigned width = ref_width(c->dtype);
    struct coll_case flat = *c;
    int order[COLL_RANKS];
    flat.opts.algorithm = PICI_ALGO_RING;
    if (t->kind == PICI_ALL_GATHER) {
        coll_job_make(job, &flat, t->p);
        return;
    }
    flat.collective = PICI_ALL_GATHER; /* for the inputs alone */
    flat.count = coll_sends(c, t->p);
    coll_job_make(job, &flat, t->p);
    free(job->want[0]);
    pici_schedule_order(c->node_of, t->p, order);
    for (int r = 0; r < t->p; r++)
        job->want[r] = r && t->kind == PICI_ALL_REDUCE ? job->want[0] : test_alloc((size_t)c->count * width);
    for (int g = 0; g < t->p; g++) {
        const int owner = order[g];
        uint64_t first = (uint64_t)owner * c->count, n = c->count;
        if (t->kind == PICI_ALL_REDUCE)
            pici_schedule_segment(c->count, t->p, owner, &first, &n);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t x[COLL_RANKS];
            for (int r = 0; r < t->p; r++)
                x[r] = ref_load(job->send[order[r]], first + i, width);
            ref_store(job->want[owner], t->kind == PICI_ALL_REDUCE ? first + i : i, width, reduce(t, c, g, x));
        }
    }
}

/* ---- runs */

struct run {
    struct coll_team *team;
    const struct coll_case *c;
    struct coll_job job;
    enum pici_status status[COLL_RANKS];
    const char *wrong[COLL_RANKS];
};

static void run_rank(void *context, int rank)
{
    struct run *run = context;
    struct coll_rank *k = &run->team->rank[rank];
    coll_rank_place(k, run->c, &run->job, run->team->comm[rank]);
    run->status[rank] = coll_rank_call(k, run->c, run->team->comm[rank]);
    run->wrong[rank] =
        run->status[rank] ? pici_strerror(run->status[rank]) : coll_rank_judge(k, run->c, &run->job, rank);
}

/* All ranks sent the blocks of the same number of slices. */
static int same_slices(const struct run *run, const struct table *t)
{
    int order[COLL_RANKS];
    uint64_t slices[COLL_RANKS];
    pici_schedule_order(run->c->node_of, t->p, order);
    for (int i = 0; i < t->p; i++) {
        const uint64_t *sends = run->team->rank[order[i]].stats.sends, blocks = (uint64_t)table_blocks(t, i);
        const uint64_t all = sends[0] + sends[1] + sends[2] + sends[3] + sends[PICI_PACKED];
        if (all % blocks)
            return 0;
        slices[i] = all / blocks;
        if (slices[i] != slices[0] || !slices[i] != !run->c->count)
            return 0;
    }
    return 1;
}

const char *table_run(struct coll_team *team, const struct table *t, const struct coll_case *c)
{
    static char said[1200];
    struct run run = {.team = team, .c = c};
    if (c->collective != t->kind || c->opts.algorithm != PICI_ALGO_AUTO || team->p != t->p)
        abort();
    const char *bad = table_check(t);
    if (bad)
        return bad;
    table_job(&run.job, t, c);
    for (int i = 0; i < t->p; i++)
        pici_comm_force(team->comm[i], &t->s);
    coll_threads(t->p, run_rank, &run);
    said[0] = 0;
    for (int i = 0; i < t->p && !said[0]; i++)
        if (run.wrong[i])
            snprintf(said, sizeof said, "%s, rank %d: %s (%s): %s", t->s.name, i, run.wrong[i],
                     pici_comm_error(team->comm[i]), coll_case_words(c, t->p));
    if (!said[0] && !same_slices(&run, t))
        snprintf(said, sizeof said, "%s: blocks sent: %s", t->s.name, coll_case_words(c, t->p));
    coll_job_free(&run.job);
    return said[0] ? said : NULL;
}
