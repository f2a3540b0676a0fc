/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The schedules on two levels: by brute force for many node maps; how much of the data leaves a node; which
 * contributions messages have; who owns what. PICI_TEST_FULL=1 tries all maps. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/options.h"
#include "coll/ordinary.h"
#include "predict/policy.h"
#include "tests/util/schedule.h"
#include "tests/util/util.h"

enum { MOST = SCHEDULE_RANKS };

/* The ith schedule on two levels; NULL after the last. */
static const struct schedule *on_nodes(int i)
{
    for (const struct schedule *s = pici_schedules; s->name; s++)
        if (s->by_node && i-- == 0)
            return s;
    return NULL;
}

static const enum pici_collective kinds[] = {PICI_ALL_GATHER, PICI_REDUCE_SCATTER, PICI_ALL_REDUCE};

/* ---- node maps */

struct map {
    int begin[MOST + 1];
    struct schedule_nodes nodes;
    char words[200];
};

static void map_of(struct map *m, const int *sizes, int nodes)
{
    int at = 0;
    m->begin[0] = 0;
    for (int i = 0; i < nodes; i++) {
        m->begin[i + 1] = m->begin[i] + sizes[i];
        at += snprintf(m->words + at, sizeof m->words - (size_t)at, " %d", sizes[i]);
    }
    m->nodes = (struct schedule_nodes){nodes, m->begin};
}

static struct schedule_call call_of(enum pici_collective kind, const struct map *m)
{
    const int p = m->nodes.begin[m->nodes.nodes];
    return (struct schedule_call){.kind = kind, .ranks = p, .bytes = (uint64_t)p << 20, .nodes = &m->nodes};
}

static int equal(const struct map *m)
{
    int same = 1;
    for (int i = 1; i < m->nodes.nodes; i++)
        same &= m->begin[i + 1] - m->begin[i] == m->begin[1];
    return same;
}

/* Limits are what some step needs. Of equal nodes exactly, but for one sum or kept message; of others not much more in
 * memory. */
static void check_limits(const struct schedule *s, const struct schedule_call *c, const struct schedule_limits *used,
                         const struct map *m)
{
    struct schedule_limits l;
    s->limits(s, c, &l);
    const int exactly = l.sends == used->sends && l.receives == used->receives && l.segments == used->segments &&
                        l.sums - used->sums <= 1 && l.kept - used->kept <= 1;
    const int buffers = l.sends + l.receives + l.kept, of_use = used->sends + used->receives + used->kept;
    const int nearly = buffers * l.segments <= 4 * of_use * used->segments && l.segments <= 3 * used->segments &&
                       l.sums <= 2 * used->sums + 1 && l.kept <= 2 * used->kept + 1;
    cr_assert(
        equal(m) ? exactly : nearly,
        "%s, collective %d, nodes of%s: %d sends of %d, receives %d of %d, segments %d of %d, sums %d of %d, kept "
        "%d of %d",
        s->name, (int)c->kind, m->words, used->sends, l.sends, used->receives, l.receives, used->segments, l.segments,
        used->sums, l.sums, used->kept, l.kept);
}

static void check_map(const int *sizes, int nodes)
{
    struct map m;
    map_of(&m, sizes, nodes);
    for (int a = 0; on_nodes(a); a++)
        for (int i = 0; i < 3; i++) {
            const struct schedule *s = on_nodes(a);
            const struct schedule_call c = call_of(kinds[i], &m);
            struct schedule_limits used;
            const char *bad = schedule_check(s, &c, 1, &used);
            cr_assert_null(bad, "nodes of%s: %s", m.words, bad);
            check_limits(s, &c, &used, &m);
            cr_assert(!equal(&m) || schedule_is_paired(s, &c), "%s, nodes of%s", s->name, m.words);
        }
}

/* Up to five nodes of one to five ranks. */
Test(coll_nodes, few_nodes, .timeout = 600)
{
    int sizes[5], tried = 0;
    for (int nodes = 1; nodes <= 5; nodes++) {
        int maps = 1;
        for (int i = 0; i < nodes; i++)
            maps *= 5;
        for (int code = 0; code < maps; code++) {
            for (int i = 0, rest = code; i < nodes; i++, rest /= 5)
                sizes[i] = 1 + rest % 5;
            if (!test_full() && maps > 125 && code % 13)
                continue;
            check_map(sizes, nodes);
            tried++;
        }
    }
    cr_expect_geq(tried, 400);
}

Test(coll_nodes, equal_nodes, .timeout = 600)
{
    for (int size = 1; size <= 16; size++)
        for (int nodes = 1; nodes <= 16 && nodes * size <= (test_full() ? MOST : 40); nodes++) {
            int sizes[MOST];
            for (int i = 0; i < nodes; i++)
                sizes[i] = size;
            check_map(sizes, nodes);
        }
}

/* Any sizes; also some widest node of more than 8, where the pattern inside nodes is another. */
Test(coll_nodes, random_nodes, .timeout = 900)
{
    struct rng rng = {5};
    for (int i = 0; i < (test_full() ? 500 : 40); i++) {
        const int p = 1 + (int)rng_below(&rng, MOST), most = 1 + (int)rng_below(&rng, i % 3 ? 8 : (uint64_t)p);
        int sizes[MOST], nodes = 0;
        for (int left = p; left; left -= sizes[nodes++]) {
            const int limit = left < most ? left : most;
            sizes[nodes] = 1 + (int)rng_below(&rng, (uint64_t)limit);
        }
        check_map(sizes, nodes);
    }
}

/* With one rank a node it is the flat schedule; with one node too, as the widest node says. */
static void same_as(enum pici_algorithm id, enum pici_algorithm flat, const struct map *m)
{
    const struct schedule *a = pici_schedule(id), *b = pici_schedule(flat);
    cr_assert(pici_schedule_distinct(b, m->begin[m->nodes.nodes], m->nodes.nodes));
    cr_assert_not(pici_schedule_distinct(a, m->begin[m->nodes.nodes], m->nodes.nodes));
    for (int i = 0; i < 3; i++) {
        struct schedule_call c = call_of(kinds[i], m);
        struct schedule_limits l, of_flat;
        a->limits(a, &c, &l);
        b->limits(b, &c, &of_flat);
        cr_assert_eq(memcmp(&l, &of_flat, sizeof l), 0, "%s, nodes of%s", a->name, m->words);
        cr_assert_eq(a->steps(a, &c), b->steps(b, &c));
        for (c.virtual_rank = 0; c.virtual_rank < c.ranks; c.virtual_rank++)
            for (int k = 0; k < a->steps(a, &c); k++) {
                struct schedule_step *s = schedule_room(&l, c.ranks), *t = schedule_room(&l, c.ranks);
                a->step(a, &c, k, s);
                b->step(b, &c, k, t);
                cr_assert(s->sends == 1 && s->receives == 1 && s->phase == t->phase && s->complete == t->complete);
                const struct schedule_message *const mine[] = {s->send, s->receive}, *const its[] = {t->send,
                                                                                                     t->receive};
                for (int j = 0; j < 2; j++)
                    cr_assert(mine[j]->peer == its[j]->peer && mine[j]->action == its[j]->action &&
                                  mine[j]->keep == its[j]->keep && mine[j]->count == its[j]->count &&
                                  memcmp(mine[j]->segments, its[j]->segments,
                                         (size_t)its[j]->count * sizeof *its[j]->segments) == 0,
                              "%s, nodes of%s, position %d, step %d", a->name, m->words, c.virtual_rank, k);
                free(s);
                free(t);
            }
    }
}

Test(coll_nodes, one_level)
{
    int sizes[MOST];
    for (int p = 1; p <= 20; p++) {
        struct map m;
        for (int i = 0; i < p; i++)
            sizes[i] = 1;
        map_of(&m, sizes, p);
        same_as(PICI_ALGO_NODES_RING, PICI_ALGO_RING, &m);
        same_as(PICI_ALGO_NODES_RECURSIVE, PICI_ALGO_RECURSIVE, &m);
        map_of(&m, &p, 1);
        for (int a = 0; on_nodes(a); a++)
            same_as(on_nodes(a)->id, p <= 8 ? PICI_ALGO_RING : PICI_ALGO_RECURSIVE, &m);
    }
}

/* ---- bytes between nodes */

/* The bytes that leave the busiest node in an all-reduce, as a fraction of the dense data. Segments have 1 MiB of f32
 * at independent positions. Each block has the shortest format at its contributions' density. */
static double leaves(const struct schedule *s, const struct map *m, double density)
{
    enum { N = 1 << 18 };
    struct schedule_call c = call_of(PICI_ALL_REDUCE, m);
    const int p = c.ranks, steps = s->steps(s, &c), nodes = m->nodes.nodes;
    struct schedule_limits l;
    s->limits(s, &c, &l);
    struct schedule_step *now = schedule_room(&l, p);
    int *has = test_alloc((size_t)p * (size_t)p * sizeof *has),
        *next = test_alloc((size_t)p * (size_t)p * sizeof *next);
    double *bytes = test_alloc(((size_t)p + 1) * sizeof *bytes), *out = test_alloc((size_t)nodes * sizeof *out),
           most = 0;
    for (int k = 1; k <= p; k++) {
        const double of_sum = 1 - pow(1 - density, k);
        const uint64_t n = N, nnz = (uint64_t)(of_sum * N + 0.5);
        bytes[k] = (double)pici_policy_bytes(PICI_DENSE, PICI_F32, &n, &n, 1);
        for (int f = PICI_BITMAP; f <= PICI_HYBRID; f++)
            bytes[k] = fmin(bytes[k], (double)pici_policy_bytes((enum pici_format)f, PICI_F32, &n, &nnz, 1));
    }
    for (int i = 0; i < p * p; i++)
        has[i] = 1;
    memset(out, 0, (size_t)nodes * sizeof *out);
    for (int k = 0; k < steps; k++) {
        memcpy(next, has, (size_t)p * (size_t)p * sizeof *next);
        for (c.virtual_rank = 0; c.virtual_rank < p; c.virtual_rank++) {
            s->step(s, &c, k, now);
            const int node = pici_schedule_node(c.nodes, c.virtual_rank);
            for (int i = 0; i < now->sends; i++)
                for (int j = 0; j < now->send[i].count; j++) {
                    const int g = now->send[i].segments[j], peer = now->send[i].peer;
                    const int contributions = now->phase == PHASE_GATHER ? p : has[c.virtual_rank * p + g];
                    if (now->phase == PHASE_REDUCE)
                        next[peer * p + g] += contributions;
                    if (pici_schedule_node(c.nodes, peer) != node)
                        out[node] += bytes[contributions];
                }
        }
        memcpy(has, next, (size_t)p * (size_t)p * sizeof *has);
    }
    for (int i = 0; i < nodes; i++)
        most = fmax(most, out[i]);
    free(now);
    free(has);
    free(next);
    free(bytes);
    free(out);
    return most / (4.0 * N * p);
}

Test(coll_nodes, bytes_that_leave_a_node, .timeout = 300)
{
    static const enum pici_algorithm ids[] = {PICI_ALGO_RING, PICI_ALGO_RECURSIVE, PICI_ALGO_NODES_RING,
                                              PICI_ALGO_NODES_RECURSIVE};
    static const double densities[] = {0.001, 0.01, 0.05, 1};
    static const struct {
        int nodes, size, steps[4];
        double percent[4][4]; /* by algorithm, by density */
    } rows[] = {
        {4,
         2,
         {14, 6, 8, 6},
         {{1.47, 12.9, 50.5, 175}, {2.18, 19.2, 75.0, 325}, {1.26, 11.1, 43.5, 150}, {1.12, 9.9, 39.2, 150}}},
        {4,
         4,
         {30, 8, 12, 10},
         {{2.99, 25.9, 88.3, 188}, {7.77, 66.8, 229, 662}, {2.40, 20.8, 71.3, 150}, {2.14, 18.5, 64.4, 150}}},
        {16,
         8,
         {254, 14, 44, 22},
         {{22.8, 121, 186, 198}, {119, 603, 867, 1530}, {21.5, 115, 177, 188}, {16.3, 87.2, 144, 188}}},
        {64,
         4,
         {510, 16, 132, 18},
         {{39.8, 162, 193, 199}, {104, 394, 455, 791}, {39.3, 160, 191, 197}, {26.9, 106, 136, 197}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int begin[65];
        struct map m;
        for (int node = 0; node <= rows[i].nodes; node++)
            begin[node] = node * rows[i].size;
        m.nodes = (struct schedule_nodes){rows[i].nodes, begin};
        for (int a = 0; a < 4; a++) {
            const struct schedule *s = pici_schedule(ids[a]);
            const int p = rows[i].nodes * rows[i].size;
            const struct schedule_call c = {.kind = PICI_ALL_REDUCE, .ranks = p, .bytes = 1 << 30, .nodes = &m.nodes};
            cr_expect_eq(s->steps(s, &c), rows[i].steps[a], "%s, %d x %d", s->name, rows[i].nodes, rows[i].size);
            for (int d = 0; d < 4; d++) {
                const double want = rows[i].percent[a][d], got = 100 * leaves(s, &m, densities[d]);
                cr_expect(fabs(got / want - 1) < 0.01, "%s, %d x %d, density %g: %g%%, not %g%%", s->name,
                          rows[i].nodes, rows[i].size, densities[d], got, want);
            }
        }
    }
}

/* ---- who owns what */

/* Segments follow one another in the order of positions, and cover n; nodes own equally much but for a tile. */
static void check_segments(uint64_t n, const struct map *m)
{
    const int nodes = m->nodes.nodes, p = m->nodes.begin[nodes];
    uint64_t next = 0, first, len;
    for (int i = 0, node = 0; i < p; i++) {
        pici_schedule_segment_by_node(n, &m->nodes, i, &first, &len);
        cr_assert_eq(first, next, "n %ju, nodes of%s, position %d", (uintmax_t)n, m->words, i);
        next = first + len;
        if (n >= UINT64_C(65) * TILE * (uint64_t)(nodes * p))
            cr_assert(first % TILE == 0 && len >= TILE, "n %ju, nodes of%s, position %d", (uintmax_t)n, m->words, i);
        if (i + 1 < m->nodes.begin[node + 1])
            continue;
        uint64_t whole, begin;
        pici_schedule_segment(n, nodes, node++, &begin, &whole);
        cr_assert_eq(next, begin + whole, "n %ju, nodes of%s: node %d", (uintmax_t)n, m->words, node - 1);
    }
    cr_assert_eq(next, n);
}

Test(coll_nodes, segments)
{
    static const int maps[][5] = {{1}, {3}, {4, 2, 3, 1}, {1, 1, 1}, {8, 1}, {2, 2, 2, 2, 2}};
    static const uint64_t ns[] = {0, 1, 2, 9, 10, 11, 999, 4096, 1000003, 64 * 4096 * 4, UINT64_C(1) << 40, UINT64_MAX};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        struct map m;
        int nodes = 0;
        while (nodes < 5 && maps[i][nodes])
            nodes++;
        map_of(&m, maps[i], nodes);
        for (size_t j = 0; j < sizeof ns / sizeof *ns; j++)
            check_segments(ns[j], &m);
        for (int position = 0; position < m.begin[nodes]; position++) {
            const int node = pici_schedule_node(&m.nodes, position);
            cr_assert(m.begin[node] <= position && position < m.begin[node + 1]);
        }
    }
}

/* Elements of dense data that leave the busiest node in an all-reduce, as a fraction of them. */
static double dense_leaves(const struct schedule *s, const struct map *m, uint64_t n)
{
    struct schedule_call c = call_of(PICI_ALL_REDUCE, m);
    struct schedule_limits l;
    uint64_t out[MOST] = {0}, most = 0, first, len;
    s->limits(s, &c, &l);
    struct schedule_step *now = schedule_room(&l, c.ranks);
    for (int k = 0; k < s->steps(s, &c); k++)
        for (c.virtual_rank = 0; c.virtual_rank < c.ranks; c.virtual_rank++) {
            s->step(s, &c, k, now);
            const int node = pici_schedule_node(c.nodes, c.virtual_rank);
            for (int i = 0; i < now->sends; i++)
                for (int j = 0; j < now->send[i].count && pici_schedule_node(c.nodes, now->send[i].peer) != node; j++) {
                    if (s->by_node)
                        pici_schedule_segment_by_node(n, c.nodes, now->send[i].segments[j], &first, &len);
                    else
                        pici_schedule_segment(n, c.ranks, now->send[i].segments[j], &first, &len);
                    out[node] += len;
                }
        }
    for (int i = 0; i < m->nodes.nodes; i++)
        most = out[i] > most ? out[i] : most;
    free(now);
    return (double)most / (double)n;
}

/* Of N nodes each sends 2 (N - 1) / N of the data, however many ranks are on it: as little as can be. If each rank
 * owned as much: the node of 3 would send all but its own 3/10, and then all but the next node's 1/10. */
Test(coll_nodes, uneven_nodes_send_equally_much)
{
    static const int sizes[] = {4, 2, 3, 1};
    struct map m;
    map_of(&m, sizes, 4);
    for (int a = 0; on_nodes(a); a++) {
        struct schedule s = *on_nodes(a);
        cr_expect_float_eq(dense_leaves(&s, &m, UINT64_C(1) << 30), 1.5, 0.001, "%s", s.name);
        s.by_node = 0;
        cr_expect_float_eq(dense_leaves(&s, &m, UINT64_C(1) << 30), 1.6, 0.001, "%s", s.name);
    }
}

/* Slices of an all-reduce on uneven nodes: each segment has its part in all of them, so that no link is idle while
 * those of longer segments go on. They follow one another, and are not longer than a message has room for. */
Test(coll_nodes, slices_of_uneven_nodes)
{
    static const int node_of[] = {0, 0, 0, 0, 1, 1, 2, 2, 2, 3};
    enum { P = 10, COUNT = 4 << 20 };
    const struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    struct pici_comm *comm[P];
    cr_assert_eq(pici_comm_threads(comm, P), PICI_OK);
    cr_assert_eq(pici_comm_set_nodes(comm[0], node_of), PICI_OK);
    struct coll_call c = {
        .args = {
            .rules = pici_ordinary_rules(PICI_ALL_REDUCE), .kind = PICI_ALL_REDUCE, .dtype = PICI_F32, .count = COUNT}};
    cr_assert_eq(pici_options_resolve(&c, comm[0], &opts, NULL, 0), PICI_OK);
    cr_assert_eq(pici_layout_choose(&c.resolved.layout, comm[0], &c), PICI_OK);
    cr_assert(c.resolved.layout.schedule->by_node && c.resolved.layout.slices > 4);
    for (int i = 0; i < P; i++) {
        const struct coll_span all = pici_coll_segment(comm[0], &c, i);
        const uint64_t end = all.first + all.count;
        uint64_t next = all.first;
        for (uint64_t s = 0; s < c.resolved.layout.slices; s++) {
            const struct coll_span part = pici_coll_slice(comm[0], &c, i, s);
            cr_expect(part.first == next && part.count <= c.resolved.layout.slice &&
                          part.count < all.count / c.resolved.layout.slices + 64,
                      "segment %d, slice %ju", i, (uintmax_t)s);
            next += part.count;
            cr_expect(next == end || (part.count && part.count % 64 == 0), "segment %d, slice %ju", i, (uintmax_t)s);
        }
        cr_expect_eq(next, end);
    }
    for (int r = 0; r < P; r++)
        pici_comm_free(comm[r]);
}

/* ---- contributions */

/* The density that is predicted of a rank's dense messages, from the first one's, is that of their contributions: also
 * where messages between nodes follow those inside. */
static void check_predictions(const struct schedule *s, const struct map *m, double density)
{
    struct schedule_call c = call_of(PICI_REDUCE_SCATTER, m);
    struct schedule_limits l;
    s->limits(s, &c, &l);
    struct schedule_step *now = schedule_room(&l, c.ranks);
    for (c.virtual_rank = 0; c.virtual_rank < c.ranks; c.virtual_rank++) {
        struct policy_history h;
        int before = 0;
        pici_policy_begin(&h);
        for (int k = 0; k < s->steps(s, &c); k++) {
            s->step(s, &c, k, now);
            for (int i = 0; i < now->sends; i++) {
                const int contributions = now->send[i].contributions;
                double predicted = density;
                cr_assert_eq(before == 0, contributions == 1 && !h.sends);
                cr_assert_eq(pici_policy_count(&h, 0.999F, contributions, &predicted), h.sends == 0);
                if (h.sends == 0)
                    predicted = density; /* counted */
                const double most = contributions > before ? contributions : before;
                cr_assert_float_eq(predicted, 1 - pow(1 - density, most), 1e-9, "%s, nodes of%s, position %d, step %d",
                                   s->name, m->words, c.virtual_rank, k);
                pici_policy_sent(&h, predicted, contributions, 1);
                before = contributions > before ? contributions : before;
            }
        }
    }
    free(now);
}

Test(coll_nodes, predicted_densities)
{
    static const int maps[][5] = {{2, 2, 2, 2}, {4, 4}, {4, 2, 3, 1}, {1, 5, 1}, {3, 3, 3, 3, 3}, {1, 1, 1, 1, 1}};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        for (int a = 0; on_nodes(a); a++) {
            struct map m;
            int nodes = 0;
            while (nodes < 5 && maps[i][nodes])
                nodes++;
            map_of(&m, maps[i], nodes);
            check_predictions(on_nodes(a), &m, 0.03);
        }
}

/* ---- AUTO */

static enum pici_algorithm chosen(const struct pici_comm *comm, enum pici_collective kind, uint64_t count)
{
    const struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    struct coll_call c = {
        .args = {.rules = pici_ordinary_rules(kind), .kind = kind, .count = count, .dtype = PICI_F32, .op = PICI_SUM}};
    struct coll_layout l;
    cr_assert_eq(pici_options_resolve(&c, comm, &opts, NULL, 0), PICI_OK);
    cr_assert_eq(pici_layout_choose(&l, comm, &c), PICI_OK);
    return l.schedule->id;
}

/* Two levels: several nodes, one of which has several ranks, and 32 KiB a rank or more. */
Test(coll_nodes, automatic)
{
    enum { P = 5, SHARE = (32 << 10) / sizeof(float) };
    static const struct {
        int node_of[P], levels;
    } maps[] = {
        {{0, 0, 0, 0, 0}, 0}, {{0, 1, 2, 3, 4}, 0}, {{0, 1, 2, 3, 0}, 1}, {{7, 7, 1, 1, 1}, 1}, {{0, 1, 0, 1, 0}, 1}};
    struct pici_comm *comm[P];
    cr_assert_eq(pici_comm_threads(comm, P), PICI_OK);
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        for (int r = 0; r < P; r++)
            for (int k = 0; k < 3; k++) {
                const uint64_t shares = kinds[k] == PICI_ALL_REDUCE ? P : 1, much = shares * SHARE;
                const int levels = maps[i].levels;
                cr_assert_eq(pici_comm_set_nodes(comm[r], maps[i].node_of), PICI_OK);
                cr_expect_eq(chosen(comm[r], kinds[k], much - 1), PICI_ALGO_RECURSIVE);
                cr_expect_eq(chosen(comm[r], kinds[k], much), levels ? PICI_ALGO_NODES_RECURSIVE : PICI_ALGO_RECURSIVE);
                cr_expect_eq(chosen(comm[r], kinds[k], much + 1), levels ? PICI_ALGO_NODES_RECURSIVE : PICI_ALGO_RING);
                comm[r]->paired_only = 1;
                cr_expect_eq(chosen(comm[r], kinds[k], much), PICI_ALGO_RECURSIVE);
                cr_expect_eq(chosen(comm[r], kinds[k], much + 1), PICI_ALGO_RING);
                comm[r]->paired_only = 0;
            }
    for (int r = 0; r < P; r++)
        pici_comm_free(comm[r]);
}
