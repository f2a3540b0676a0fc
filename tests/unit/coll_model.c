/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The model of a collective's time: its steps against the schedules themselves, its equation against cases that can be
 * worked out by hand, its predictions against what papers print. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "coll/layout.h"
#include "predict/machine.h"
#include "predict/model.h"
#include "schedule/alltoall.h"
#include "tests/util/schedule.h"
#include "tests/util/util.h"

static const enum pici_collective kinds[] = {PICI_ALL_GATHER, PICI_REDUCE_SCATTER, PICI_ALL_REDUCE};
enum { KINDS = sizeof kinds / sizeof *kinds, NODES_MOST = 64, RANKS_MOST = 4096 };

static int close_to(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * fabs(b) + 1e-15;
}

/* ---- nodes */

struct map {
    struct schedule_nodes nodes;
    int begin[RANKS_MOST + 1];
};

static void map_sizes(struct map *m, const int *size, int nodes)
{
    m->begin[0] = 0;
    for (int i = 0; i < nodes; i++)
        m->begin[i + 1] = m->begin[i] + size[i];
    m->nodes = (struct schedule_nodes){nodes, m->begin};
}

/* The last node may be smaller. */
static void map_even(struct map *m, int ranks, int each)
{
    int nodes = 0;
    for (int at = 0; at < ranks; at += each)
        m->begin[nodes++] = at;
    m->begin[nodes] = ranks;
    m->nodes = (struct schedule_nodes){nodes, m->begin};
}

static int node_at(const struct map *m, int position)
{
    int i = 0;
    while (m->begin[i + 1] <= position)
        i++;
    return i;
}

static struct model_call call_of(enum pici_collective kind, const struct map *m, uint64_t bytes)
{
    struct model_call c = pici_model_call;
    c.kind = kind;
    c.ranks = m->begin[m->nodes.nodes];
    c.nodes = &m->nodes;
    c.bytes = bytes;
    return c;
}

/* ---- steps: closed forms against the schedules */

/* Of each segment its share of the call: by nodes, or by ranks. */
static void shares_of(double *share, const struct map *m, int fair)
{
    const int p = m->begin[m->nodes.nodes];
    for (int r = 0; r < p; r++) {
        const int i = node_at(m, r);
        share[r] = fair ? 1.0 / m->nodes.nodes / (m->begin[i + 1] - m->begin[i]) : 1.0 / p;
    }
}

/* What all ranks together send in step k, as the schedule says. */
static struct traffic_step walked(const struct schedule *s, const struct model_call *call, const struct map *m,
                                  const double *share, int k)
{
    struct schedule_call c = model_shape(call);
    struct schedule_limits l;
    struct traffic_step w = {0};
    double out[NODES_MOST] = {0};
    s->limits(s, &c, &l);
    struct schedule_step *step = schedule_room(&l, c.ranks);
    for (c.virtual_rank = 0; c.virtual_rank < c.ranks; c.virtual_rank++) {
        const int node = node_at(m, c.virtual_rank);
        struct traffic_load between = {0}, inside = {0};
        double taken = 0;
        s->step(s, &c, k, step);
        w.phase = step->phase;
        for (int i = 0; i < step->sends; i++) {
            const struct schedule_message *message = &step->send[i];
            struct traffic_load *sent = node_at(m, message->peer) == node ? &inside : &between;
            for (int j = 0; j < message->count; j++)
                sent->fraction += share[message->segments[j]];
            sent->segments += message->count;
            w.encode |= message->action == SEND_ENCODE;
            w.contributions = message->contributions > w.contributions ? message->contributions : w.contributions;
        }
        for (int i = 0; i < step->receives; i++)
            w.reversed |= step->receive[i].action == RECEIVE_REDUCE_REVERSED;
        for (int i = 0; i < step->receives; i++)
            for (int j = 0; j < step->receive[i].count; j++)
                taken += share[step->receive[i].segments[j]];
        pici_traffic_send(&w.between, between.fraction, between.segments, 0);
        pici_traffic_send(&w.inside, inside.fraction, inside.segments, 0);
        out[node] += between.fraction;
        traffic_most(&w.receive_fraction, taken);
    }
    for (int i = 0; i < m->nodes.nodes; i++)
        traffic_most(&w.node_fraction, out[i]);
    free(step);
    return w;
}

static int same_load(const struct traffic_load *a, const struct traffic_load *b)
{
    return close_to(a->fraction, b->fraction, 1e-9) && close_to(a->segments, b->segments, 1e-9);
}

static int same_step(const struct traffic_step *a, const struct traffic_step *b, int contributions)
{
    return a->phase == b->phase && a->encode == b->encode && a->reversed == b->reversed &&
           close_to(a->node_fraction, b->node_fraction, 1e-9) &&
           close_to(a->receive_fraction, b->receive_fraction, 1e-9) && same_load(&a->between, &b->between) &&
           same_load(&a->inside, &b->inside) && (!contributions || a->contributions == b->contributions);
}

static void check_steps(const struct schedule *s, enum pici_collective kind, const struct map *m, uint64_t share_bytes)
{
    const int p = m->begin[m->nodes.nodes];
    const struct model_call call = call_of(kind, m, share_bytes * (uint64_t)p);
    const struct schedule_call c = model_shape(&call);
    struct schedule_traffic t;
    double share[RANKS_MOST] = {1};
    int even = 1, k = 0;
    for (int i = 0; i < m->nodes.nodes; i++)
        even &= m->begin[i + 1] - m->begin[i] == m->begin[1];
    cr_assert(pici_schedule_traffic(s, &c, &t), "%s", s->name);
    cr_assert_leq(t.count, TRAFFIC_STEPS);
    if (!s->undivided)
        shares_of(share, m, kind == PICI_ALL_REDUCE && s->by_node);
    for (int i = 0; i < t.count; i++)
        for (int j = 0; j < t.step[i].repeat; j++, k++) {
            struct traffic_step closed = t.step[i];
            closed.contributions += j * closed.growth;
            const struct traffic_step w = walked(s, &call, m, share, k);
            cr_assert(same_step(&closed, &w, even),
                      "%s, kind %d, %d ranks, %d nodes from %d: step %d: encode %d %d, out %g %g, inter %g %g (%g %g), "
                      "intra %g %g (%g %g), take %g %g, contributions %d %d",
                      s->name, kind, p, m->nodes.nodes, m->begin[1], k, closed.encode, w.encode, closed.node_fraction,
                      w.node_fraction, closed.between.fraction, w.between.fraction, closed.between.segments,
                      w.between.segments, closed.inside.fraction, w.inside.fraction, closed.inside.segments,
                      w.inside.segments, closed.receive_fraction, w.receive_fraction, closed.contributions,
                      w.contributions);
        }
    cr_assert_eq(k, s->steps(s, &c), "%s, kind %d, %d ranks: %d steps", s->name, kind, p, k);
}

static void check_map(const struct map *m)
{
    for (const struct schedule *s = pici_schedules; s->name; s++)
        for (int i = 0; i < KINDS; i++)
            if (s->collectives >> kinds[i] & 1) {
                check_steps(s, kinds[i], m, 1 << 10);
                check_steps(s, kinds[i], m, 1 << 20);
            }
}

Test(coll_model, steps_of_even_nodes)
{
    static struct map m;
    for (int each = 1; each <= 12; each++)
        for (int nodes = 1; nodes * each <= 40; nodes += nodes < 9 ? 1 : 7) {
            map_even(&m, nodes * each, each);
            check_map(&m);
        }
}

Test(coll_model, steps_of_uneven_nodes)
{
    static struct map m;
    struct rng rng = {20261123};
    for (int i = 0; i < 150; i++) {
        int size[NODES_MOST];
        const int nodes = 1 + (int)rng_below(&rng, 9), most = 1 + (int)rng_below(&rng, i % 10 ? 6 : 11);
        for (int j = 0; j < nodes; j++)
            size[j] = 1 + (int)rng_below(&rng, (uint64_t)most);
        map_sizes(&m, size, nodes);
        check_map(&m);
    }
}

/* An all-to-all's step k: what ranks send to others, and the runs for themselves that they receive. */
static struct traffic_step walked_exchange(const struct schedule *s, struct schedule_call c, const struct map *m, int k)
{
    const double share = 1.0 / c.ranks;
    struct schedule_limits l;
    struct traffic_step w = {.phase = PHASE_GATHER, .contributions = 1};
    double out[NODES_MOST] = {0};
    s->limits(s, &c, &l);
    struct schedule_step *step = schedule_room(&l, c.ranks);
    for (c.virtual_rank = 0; c.virtual_rank < c.ranks; c.virtual_rank++) {
        const int node = node_at(m, c.virtual_rank);
        struct traffic_load between = {0}, inside = {0};
        int taken = 0;
        s->step(s, &c, k, step);
        for (int i = 0; i < step->sends; i++) {
            const struct schedule_message *message = &step->send[i];
            struct traffic_load *sent = node_at(m, message->peer) == node ? &inside : &between;
            if (message->peer == c.virtual_rank)
                continue;
            sent->fraction += message->count * share;
            sent->segments += message->count;
            sent->messages++;
            w.encode |= message->action == SEND_ENCODE;
        }
        for (int i = 0; i < step->receives; i++)
            for (int j = 0; j < step->receive[i].count; j++)
                taken += step->receive[i].segments[j] < 2 * c.ranks;
        pici_traffic_send(&w.between, between.fraction, between.segments, between.messages);
        pici_traffic_send(&w.inside, inside.fraction, inside.segments, inside.messages);
        out[node] += between.fraction;
        traffic_most(&w.receive_fraction, taken * share);
    }
    for (int i = 0; i < m->nodes.nodes; i++)
        traffic_most(&w.node_fraction, out[i]);
    free(step);
    return w;
}

static void check_exchange(const struct map *m, uint64_t run_bytes)
{
    const int p = m->begin[m->nodes.nodes];
    const struct model_call call = call_of(PICI_ALL_TO_ALLV, m, run_bytes * (uint64_t)p);
    const struct schedule_call c = model_shape(&call);
    const struct schedule *s = pici_alltoall_choose(&c, run_bytes);
    struct schedule_traffic t;
    int k = 0;
    cr_assert(pici_schedule_traffic(s, &c, &t));
    for (int i = 0; i < t.count; i++)
        for (int j = 0; j < t.step[i].repeat; j++, k++) {
            const struct traffic_step *closed = &t.step[i], w = walked_exchange(s, c, m, k);
            cr_assert(same_step(closed, &w, 1) && closed->between.messages == w.between.messages &&
                          closed->inside.messages == w.inside.messages,
                      "%s, %d ranks, %d nodes from %d: step %d: encode %d %d, out %g %g, inter %g %g, intra %g %g, "
                      "take %g %g",
                      s->name, p, m->nodes.nodes, m->begin[1], k, closed->encode, w.encode, closed->node_fraction,
                      w.node_fraction, closed->between.segments, w.between.segments, closed->inside.segments,
                      w.inside.segments, closed->receive_fraction, w.receive_fraction);
        }
    cr_assert_eq(k, s->steps(s, &c), "%s, %d ranks: %d steps", s->name, p, k);
}

Test(coll_model, steps_of_all_to_all)
{
    static struct map m;
    struct rng rng = {20261129};
    for (int p = 1; p <= 40; p++)
        for (int each = 1; each <= p; each += each < 4 ? 1 : 3) {
            map_even(&m, p, each);
            check_exchange(&m, 8);
            check_exchange(&m, 1 << 20);
        }
    for (int i = 0; i < 100; i++) {
        int size[NODES_MOST];
        const int nodes = 1 + (int)rng_below(&rng, 12), least = 1 + (int)rng_below(&rng, 2);
        for (int j = 0; j < nodes; j++)
            size[j] = least + (int)rng_below(&rng, 11);
        map_sizes(&m, size, nodes);
        check_exchange(&m, 8);
        check_exchange(&m, 1 << 20);
    }
}

/* Dense pairwise exchanges among 3 ranks, a node each: one step of two messages, and the slices one after another. */
Test(coll_model, all_to_all)
{
    static struct map m;
    const struct model_candidate dense = {.dense = 1};
    const double bytes = 3e6;
    struct model_machine machine = {.link = {{1e-4, 1e-9}, {1e-4, 1e-9}}, .agree = 5e-4, .agree_ranks = 4};
    map_even(&m, 3, 1);
    struct model_call c = call_of(PICI_ALL_TO_ALLV, &m, (uint64_t)bytes);
    const double wire = 5e-4 + 1e-4 + 2 * bytes / 3 * 1e-9;
    cr_expect(close_to(pici_model_seconds(&machine, &c, &dense), wire, 0.01), "%g, not %g",
              pici_model_seconds(&machine, &c, &dense), wire);
    machine.node_beta = 4e-9; /* which limits them */
    cr_expect(close_to(pici_model_seconds(&machine, &c, &dense), wire + 2 * bytes / 3 * 3e-9, 0.01));
    c.bytes = 0;
    cr_expect(close_to(pici_model_seconds(&machine, &c, &dense), 5e-4, 1e-9));
    map_even(&m, 1, 1);
    c.ranks = 1;
    c.bytes = 100;
    cr_expect_eq(pici_model_seconds(&machine, &c, &dense), 0);
}

/* Dense bytes that leave the busiest node in an all-reduce, in percent of the data. */
Test(coll_model, volume)
{
    static struct map m;
    static const struct {
        int nodes, each;
        double ring, recursive, nodes_ring, nodes_recursive;
    } want[] = {{4, 2, 175, 325, 150, 150},
                {4, 4, 187.5, 662.5, 150, 150},
                {16, 8, 198.4, 1531, 187.5, 187.5},
                {64, 4, 199.2, 791, 196.9, 196.9}};
    static const enum pici_algorithm algorithms[] = {PICI_ALGO_RING, PICI_ALGO_RECURSIVE, PICI_ALGO_NODES_RING,
                                                     PICI_ALGO_NODES_RECURSIVE};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const double wanted[] = {want[i].ring, want[i].recursive, want[i].nodes_ring, want[i].nodes_recursive};
        map_even(&m, want[i].nodes * want[i].each, want[i].each);
        const struct model_call c = call_of(PICI_ALL_REDUCE, &m, 1 << 30);
        for (int a = 0; a < 4; a++) {
            const struct schedule_call shape = model_shape(&c);
            struct schedule_traffic t;
            double out = 0;
            cr_assert(pici_schedule_traffic(pici_schedule(algorithms[a]), &shape, &t));
            for (int k = 0; k < t.count; k++)
                out += 100 * t.step[k].repeat * t.step[k].node_fraction;
            cr_expect(close_to(out, wanted[a], 2e-3), "%d nodes of %d, %s: %g%%, not %g%%", want[i].nodes, want[i].each,
                      pici_algorithm_name(algorithms[a]), out, wanted[a]);
        }
    }
}

/* ---- the parts of the equation */

Test(coll_model, density)
{
    cr_expect(close_to(pici_model_density(0.01, 1, 1), 0.01, 1e-12));
    cr_expect(close_to(pici_model_density(0.01, 64, 1), 1 - pow(0.99, 64), 1e-12));
    cr_expect(close_to(pici_model_density(0.01, 64, 0), 0.01, 1e-12), "all ranks have the same positions");
    cr_expect(close_to(pici_model_density(0.2, 4, 0.5), 1 - pow(0.8, 2.5), 0.02), "between whole numbers");
    cr_expect_eq(pici_model_density(1, 4096, 1), 1);
    cr_expect_eq(pici_model_density(0, 4096, 1), 0);
}

Test(coll_model, codec)
{
    struct model_machine m = {0};
    m.codec[PICI_HYBRID][MODEL_ENCODE] = (struct model_codec){700, {400, 1200, 2200, 1600, 4600}};
    m.codec[PICI_DENSE][MODEL_COUNT] = (struct model_codec){500, {0}};
    const double tiles = 8 * 4096;
    cr_expect(close_to(pici_model_codec(&m, PICI_HYBRID, MODEL_ENCODE, PICI_F32, tiles, 0), 8 * 700e-9, 1e-9));
    cr_expect(close_to(pici_model_codec(&m, PICI_HYBRID, MODEL_ENCODE, PICI_F32, tiles, 0.03), 8 * 1500e-9, 1e-9));
    cr_expect(close_to(pici_model_codec(&m, PICI_HYBRID, MODEL_ENCODE, PICI_F32, tiles, 1), 8 * 5300e-9, 1e-9));
    cr_expect(close_to(pici_model_codec(&m, PICI_HYBRID, MODEL_ENCODE, PICI_BF16, tiles, 1), 4 * 5300e-9, 1e-9));
    cr_expect(close_to(pici_model_codec(&m, PICI_HYBRID, MODEL_ENCODE, PICI_F64, tiles, 1), 8 * 6000e-9, 1e-9));
    cr_expect(close_to(pici_model_codec(&m, PICI_COO, MODEL_COUNT, PICI_F32, tiles, 0.5), 8 * 500e-9, 1e-9));
}

/* Only links cost: a dense ring of single ranks sends 2 (p - 1) / p of the data, and waits for 2 (p - 1) messages. */
Test(coll_model, dense_ring)
{
    static struct map m;
    const struct model_machine links = {
        .link = {{1e-3, 1e-9}, {0}}, .node_beta = 1e-9, .agree = 6e-3, .agree_ranks = 8};
    const struct model_candidate ring = {PICI_ALGO_RING, 1, 0};
    map_even(&m, 16, 1);
    struct model_call c = call_of(PICI_ALL_REDUCE, &m, 16 << 10);
    const double headers = 30 * (32 + 48) * 1e-9;
    cr_expect(
        close_to(pici_model_seconds(&links, &c, &ring), 8e-3 + 30e-3 + 30.0 / 16 * (16 << 10) * 1e-9 + headers, 1e-9),
        "one slice: latencies and bytes, and agreement, which grows by steps of its rounds");
    c.bytes = UINT64_C(4) << 30;
    const double wire = 30.0 / 16 * (double)c.bytes * 1e-9, slices = 256;
    cr_expect(close_to(pici_model_seconds(&links, &c, &ring), 8e-3 + wire + slices * headers, 1e-3),
              "much data: latencies are hidden");
    c.window = 1;
    cr_expect(close_to(pici_model_seconds(&links, &c, &ring), 8e-3 + wire + slices * (headers + 30e-3), 1e-6),
              "one slice at a time: they are not");
}

/* Over slow links floats are packed, in sparse candidates and in dense ones, and calls are that much faster. Integers
 * are not, nor is anything over fast links, where packing is off, and where nobody knows what it takes. */
Test(coll_model, packed)
{
    static struct map m;
    static const struct model_candidate dense = {PICI_ALGO_RING, 1, 0}, sparse = {PICI_ALGO_RING, 0, 0};
    static const struct {
        enum pici_dtype dtype;
        double least, most; /* how many times as fast */
    } cases[] = {{PICI_BF16, 1.40, 1.43}, {PICI_F32, 1.16, 1.18}, {PICI_F64, 1.12, 1.14}, {PICI_U32, 1, 1}};
    const struct machine *slow = pici_machine_named("gige-200"), *fast = pici_machine_named("ethernet-100g");
    struct model_machine unknown = slow->model;
    memset(unknown.codec[PICI_PACKED], 0, sizeof unknown.codec[PICI_PACKED]);
    map_even(&m, 4, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < KINDS; k++) {
            struct model_call packs = call_of(kinds[k], &m, 32 << 20), none;
            packs.dtype = cases[i].dtype;
            packs.density = 1;
            none = packs;
            none.packing.pack = PICI_PACKING_NONE;
            const double ratio =
                pici_model_seconds(&slow->model, &none, &dense) / pici_model_seconds(&slow->model, &packs, &dense);
            cr_expect(ratio >= cases[i].least && ratio <= cases[i].most, "%d: %g", (int)i, ratio);
            cr_expect_eq(pici_model_seconds(&unknown, &packs, &dense), pici_model_seconds(&unknown, &none, &dense));
            cr_expect_eq(pici_model_seconds(&fast->model, &packs, &dense),
                         pici_model_seconds(&fast->model, &none, &dense));
            packs.density = none.density = 0.1;
            const double sparser =
                pici_model_seconds(&slow->model, &none, &sparse) / pici_model_seconds(&slow->model, &packs, &sparse);
            cr_expect(cases[i].most > 1 ? sparser > 1.08 : sparser == 1, "%d: %g", (int)i, sparser);
        }
}

/* With slower kernels less is packed, and what is packed takes longer, unless the machine's kernels were measured. */
Test(coll_model, packed_by_kernels)
{
    static struct map m;
    static const struct model_candidate dense = {PICI_ALGO_RING, 1, 0}, sparse = {PICI_ALGO_RING, 0, 0};
    const struct machine *ethernet = pici_machine_named("ethernet-100g");
    struct model_machine machine = ethernet->model;
    map_even(&m, 4, 1);
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < 2; i++) {
            const struct model_candidate *how = i ? &sparse : &dense;
            struct model_call fast = call_of(kinds[k], &m, 32 << 20), portable, none;
            fast.density = i ? 0.3 : 1;
            portable = none = fast;
            portable.packing.kernels = POLICY_PORTABLE;
            none.packing.pack = PICI_PACKING_NONE;
            machine.link[POLICY_INTER].beta = machine.node_beta = 1 / 3e8;
            machine.packed_measured = 0;
            const double unpacked = pici_model_seconds(&machine, &none, how);
            cr_expect(i || pici_model_seconds(&machine, &fast, how) < 0.9 * unpacked);
            cr_expect_eq(pici_model_seconds(&machine, &portable, how), unpacked, "%d", k);
            machine.packed_measured = 1;
            cr_expect(i || pici_model_seconds(&machine, &portable, how) == pici_model_seconds(&machine, &fast, how));
            machine.packed_measured = 0;
            machine.link[POLICY_INTER].beta = machine.node_beta = 1 / 1.25e10;
            fast.packing.pack = portable.packing.pack = PICI_PACKING_PLANES;
            cr_expect(pici_model_seconds(&machine, &portable, how) > 1.5 * pici_model_seconds(&machine, &fast, how),
                      "%d %d: %g", k, i,
                      pici_model_seconds(&machine, &portable, how) / pici_model_seconds(&machine, &fast, how));
        }
}

/* Ranks that share a core take turns. */
Test(coll_model, cores)
{
    static struct map m;
    struct model_machine k = {.agree_ranks = 2};
    const struct model_candidate ring = {PICI_ALGO_RING, 1, 0};
    k.codec[PICI_DENSE][MODEL_ADD].empty = 1000;
    map_even(&m, 16, 8);
    const struct model_call c = call_of(PICI_REDUCE_SCATTER, &m, 64 << 20);
    const double alone = pici_model_seconds(&k, &c, &ring);
    cr_expect(close_to(alone, 15.0 / 16 * (16 << 20) / 4096 * 1e-6, 1e-6));
    k.cores = 2;
    cr_expect(close_to(pici_model_seconds(&k, &c, &ring), 4 * alone, 1e-9));
}

/* In an exchange one of the two ranks decodes what it receives, and then adds what it sent. */
Test(coll_model, doubling)
{
    static struct map m;
    struct model_machine k = {.agree_ranks = 2};
    const struct model_candidate doubling = {PICI_ALGO_DOUBLING, 1, 0};
    k.codec[PICI_DENSE][MODEL_ADD].empty = 1000;
    k.codec[PICI_DENSE][MODEL_DECODE].empty = 500;
    map_even(&m, 8, 1);
    const struct model_call c = call_of(PICI_ALL_REDUCE, &m, 64 << 20);
    cr_expect(close_to(pici_model_seconds(&k, &c, &doubling), 3 * (16 << 20) / 4096 * 1.5e-6, 1e-6));
}

/* A small all-reduce by doubling among a power of two of ranks travels with the call agreement. */
Test(coll_model, early_data)
{
    static struct map m;
    const struct model_machine k = {.link = {{1e-3, 0}, {0}}, .agree = 6e-3, .agree_ranks = 8};
    const struct model_candidate doubling = {PICI_ALGO_DOUBLING, 1, 0}, recursive = {PICI_ALGO_RECURSIVE, 1, 0};
    map_even(&m, 8, 1);
    struct model_call c = call_of(PICI_ALL_REDUCE, &m, EARLY_DATA);
    cr_expect(close_to(pici_model_seconds(&k, &c, &doubling), 6e-3, 1e-9));
    cr_expect(close_to(pici_model_seconds(&k, &c, &recursive), 12e-3, 1e-9));
    c.bytes += 4;
    cr_expect(close_to(pici_model_seconds(&k, &c, &doubling), 9e-3, 1e-9));
    map_even(&m, 7, 1);
    c = call_of(PICI_ALL_REDUCE, &m, EARLY_DATA);
    cr_expect(close_to(pici_model_seconds(&k, &c, &doubling), 10e-3, 1e-9));
    map_even(&m, 8, 1);
    c = call_of(PICI_ALL_REDUCE, &m, 12 << 10);
    c.dtype = PICI_F16; /* whose longest block is too long */
    cr_expect(close_to(pici_model_seconds(&k, &c, &doubling), 9e-3, 1e-9));
    c.bytes = 8 << 10;
    cr_expect(close_to(pici_model_seconds(&k, &c, &doubling), 6e-3, 1e-9));
    c.late = 1;
    cr_expect(close_to(pici_model_seconds(&k, &c, &doubling), 9e-3, 1e-9));
}

Test(coll_model, cannot)
{
    static struct map m;
    map_even(&m, 8, 2);
    const struct model_call c = call_of(PICI_ALL_GATHER, &m, 1 << 20);
    cr_expect_lt(pici_model_seconds(&pici_model_machine, &c, &(struct model_candidate){(enum pici_algorithm)99, 0, 0}),
                 0);
    cr_expect_lt(pici_model_seconds(&pici_model_machine, &c, &(struct model_candidate){.native = MODEL_TREE}), 0);
    cr_expect_gt(pici_model_seconds(&pici_model_machine, &c, &(struct model_candidate){.native = MODEL_NATIVE}), 0);
}

/* The equations of other libraries, as papers print them. */
Test(coll_model, natives)
{
    static struct map m;
    struct model_machine k = {.link = {{1e-4, 1e-9}, {1e-6, 1e-11}}, .node_beta = 1e-9, .native = {2e-5, 1e-10}};
    map_even(&m, 64, 1);
    struct model_call c = call_of(PICI_ALL_REDUCE, &m, 1 << 20);
    const double n = 1 << 20;
    cr_expect(close_to(pici_model_native(&k, &c, MODEL_RING), 2 * (63 * 2e-5 + 63.0 / 64 * n * 1e-10), 1e-9));
    cr_expect(close_to(pici_model_native(&k, &c, MODEL_TREE), 2 * (6 * 2e-5 + n * 1e-10), 1e-9));
    cr_expect(close_to(pici_model_native(&k, &c, MODEL_RABENSEIFNER), 2 * (6 * 1e-4 + 63.0 / 64 * n * 1e-9), 1e-9));
    k.native.beta = 0;
    cr_expect(close_to(pici_model_native(&k, &c, MODEL_RING), 2 * (63 * 1e-4 + 63.0 / 64 * n * 1e-9), 1e-9));
    map_even(&m, 64, 4); /* 4 ranks share a link: distances of 32, 16, 8, 4 cross it 4 times, of 2 and 1 less */
    c = call_of(PICI_REDUCE_SCATTER, &m, 1 << 20);
    const double crossing = (4 * (32 + 16 + 8 + 4) + 2 * 2 + 1) / 64.0;
    cr_expect(close_to(pici_model_native(&k, &c, MODEL_RABENSEIFNER), 6 * 1e-4 + crossing * n * 1e-9, 1e-9));
}

/* ---- papers */

static double seconds(const struct machine *k, const struct model_call *c, enum pici_algorithm algorithm, int dense,
                      enum model_native native)
{
    return pici_model_seconds(&k->model, c, &(struct model_candidate){algorithm, dense, (int)native});
}

/* Dense all-gather over the machine's flat ring: by the equation of two levels, and by our own algorithm. */
static double two_levels(const struct machine *k, int ranks, int mib, int ours)
{
    static struct map m;
    map_even(&m, ranks, k->per_node);
    struct model_call c = call_of(PICI_ALL_GATHER, &m, (uint64_t)mib << 20);
    c.slice_bytes = k->slice_bytes;
    const double flat = seconds(k, &c, PICI_ALGO_AUTO, 1, MODEL_NATIVE);
    return flat / (ours ? seconds(k, &c, PICI_ALGO_NODES_RECURSIVE, 1, MODEL_OURS)
                        : seconds(k, &c, PICI_ALGO_AUTO, 1, MODEL_TWO_LEVELS));
}

/* The equation of two levels, with the effective constants of the machines, gives these ratios at 2048 ranks. */
Test(coll_model, equation_of_two_levels)
{
    static const struct {
        const char *machine;
        double ratio[7]; /* at 16, 32, ... 1024 MiB */
    } want[] = {{"perlmutter", {4.4, 4.2, 3.9, 3.4, 2.8, 2.1, 1.6}}, {"frontier", {31, 29, 25, 20, 14, 9.5, 5.9}}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        for (int j = 0; j < 7; j++) {
            const double got = two_levels(pici_machine_named(want[i].machine), 2048, 16 << j, 0);
            cr_expect(close_to(got, want[i].ratio[j], 0.04), "%s, %d MiB: %g, not %g", want[i].machine, 16 << j, got,
                      want[i].ratio[j]);
        }
}

/* What PCCL's figures show of all-gather: ranges, of which ours may differ by a factor. */
static const struct range {
    const char *machine;
    int ranks, mib;
    double least, most, factor;
} ranges[] = {
    {"perlmutter", 2048, 16, 3, 5.7, 1.35},   {"perlmutter", 2048, 32, 3, 5.7, 1.35},
    {"perlmutter", 1024, 16, 3, 5.7, 1.35},   {"perlmutter", 1024, 32, 3, 5.7, 1.35},
    {"perlmutter", 2048, 128, 2, 3, 1.35},    {"perlmutter", 2048, 256, 2, 3, 1.35},
    {"perlmutter", 2048, 512, 2, 3, 1.35},    {"perlmutter", 2048, 1024, 1.3, 3, 1.35},
    {"perlmutter", 1024, 256, 1.3, 3, 1.35},  {"frontier", 2048, 16, 30, 33, 1.8},
    {"frontier", 2048, 32, 30, 33, 1.8},      {"frontier", 2048, 64, 30, 33, 1.8},
    {"frontier", 2048, 256, 24.3, 24.3, 1.8}, {"frontier", 2048, 1024, 7, 7, 1.8},
};

Test(coll_model, all_gather_of_papers)
{
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        const struct range *r = &ranges[i];
        const double got = two_levels(pici_machine_named(r->machine), r->ranks, r->mib, 1);
        cr_expect(got >= r->least / r->factor && got <= r->most * r->factor, "%s, %d ranks, %d MiB: %g", r->machine,
                  r->ranks, r->mib, got);
    }
}

/* The chooser's speedup, at least 1. It rises with ranks. It falls with bytes, but for some percent where more slices
 * come to be in flight. It is 1 on Perlmutter where there are few ranks and much data. Frontier's constants, a flat
 * ring of 37 GB/s beside 60 GB/s inside nodes, give 1.15 there by the equation. */
Test(coll_model, shape_of_all_gather)
{
    static const struct {
        const char *machine;
        double corner; /* at the most: 32 ranks, 1 GiB */
    } shapes[] = {{"perlmutter", 1}, {"frontier", 1.3}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct machine *k = pici_machine_named(shapes[i].machine);
        double above[7] = {0};
        for (int ranks = 32; ranks <= 2048; ranks *= 2)
            for (int j = 0; j < 7; j++) {
                const double gain = fmax(1, two_levels(k, ranks, 16 << j, 1));
                cr_expect_geq(gain, above[j], "%s, %d ranks, %d MiB: falls with ranks", k->name, ranks, 16 << j);
                if (j)
                    cr_expect_leq(gain, above[j - 1] * 1.05, "%s, %d ranks, %d MiB: rises with bytes", k->name, ranks,
                                  16 << j);
                above[j] = gain;
            }
        cr_expect_leq(fmax(1, two_levels(k, 32, 1024, 1)), shapes[i].corner, "%s: few ranks, much data", k->name);
        cr_expect_gt(above[0], 3 * above[6] / 2);
    }
}

/* SpCCL's ring: bitmap blocks, a codec of 5.25 times the link's rate to decode and 2.5 times to count, encode and add,
 * which overlaps with the link. Its speedup over a dense run. */
static double spccl(enum pici_collective kind, int ranks, double zeros)
{
    static struct map m;
    const double tile = 16384;
    struct model_machine k = {.link = {{0, 1e-9}, {0, 1e-9}}, .node_beta = 1e-9, .agree_ranks = 2};
    k.codec[PICI_BITMAP][MODEL_ENCODE].empty = tile / 2.5 / 2;
    k.codec[PICI_BITMAP][MODEL_ADD].empty = tile / 2.5 / 2;
    k.codec[PICI_BITMAP][MODEL_DECODE].empty = tile / 5.25;
    map_even(&m, ranks, 1);
    struct model_call c = call_of(kind, &m, UINT64_C(1) << 31);
    c.density = 1 - zeros / 100;
    c.format = PICI_BITMAP;
    const double dense = pici_model_seconds(&k, &c, &(struct model_candidate){PICI_ALGO_RING, 1, 0});
    return dense / pici_model_seconds(&k, &c, &(struct model_candidate){PICI_ALGO_RING, 0, 0});
}

Test(coll_model, spccl_all_gather)
{
    static const struct {
        double zeros, gain;
    } want[] = {{10.1, 1.07}, {50, 1.9}, {80, 4.3}, {90, 5.25}, {95, 5.25}, {99, 5.25}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        double before = 0;
        for (int ranks = 8; ranks <= 64; ranks *= 2) { /* of 8 ranks, each encodes an eighth of what it decodes */
            const double got = spccl(PICI_ALL_GATHER, ranks, want[i].zeros);
            cr_expect(close_to(got, want[i].gain, ranks < 16 ? 0.18 : 0.1), "%g%% zeros, %d ranks: %g, not %g",
                      want[i].zeros, ranks, got, want[i].gain);
            cr_expect_geq(got, before * 0.9999, "%g%% zeros, %d ranks: the gain falls", want[i].zeros, ranks);
            before = got;
        }
    }
}

Test(coll_model, spccl_reductions)
{
    static const struct {
        double zeros, scatter[4], all[4]; /* among 8, 16, 32, 64 ranks */
    } want[] = {{99, {2.5, 2.5, 2.5, 2.4}, {3.4, 3.4, 2.8, 2.2}},
                {95, {2.5, 2.0, 1.3, 1.1}, {2.6, 1.8, 1.3, 1.1}},
                {90, {2.0, 1.3, 1.1, 1.1}, {1.8, 1.2, 1.1, 1.0}}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        double before[2] = {1e9, 1e9};
        for (int j = 0; j < 4; j++) {
            const int ranks = 8 << j;
            const double got[2] = {spccl(PICI_REDUCE_SCATTER, ranks, want[i].zeros),
                                   spccl(PICI_ALL_REDUCE, ranks, want[i].zeros)};
            const double *wanted[2] = {want[i].scatter, want[i].all};
            for (int k = 0; k < 2; k++) {
                cr_expect(close_to(got[k], wanted[k][j], 0.1), "%g%% zeros, %d ranks, %s: %g, not %g", want[i].zeros,
                          ranks, k ? "all-reduce" : "reduce-scatter", got[k], wanted[k][j]);
                cr_expect_leq(got[k], before[k] * 1.03, "%g%% zeros, %d ranks: the gain rises", want[i].zeros, ranks);
                before[k] = got[k];
            }
        }
    }
    cr_expect_gt(spccl(PICI_ALL_REDUCE, 64, 99), 1);
}

/* ---- the machines, and how long predictions take */

Test(coll_model, machines)
{
    static struct map m;
    for (int i = 0; pici_machine(i); i++) {
        const struct machine *k = pici_machine(i);
        cr_expect_eq(pici_machine_named(k->name), k);
        cr_expect(k->what[0] && k->source[0] && k->per_node > 0 && k->slice_bytes);
        map_even(&m, 8, 2);
        for (const struct schedule *s = pici_schedules; s->name; s++) {
            double before = 0;
            for (uint64_t bytes = 1 << 10; bytes <= UINT64_C(1) << 34; bytes *= 4) {
                struct model_call c = call_of(PICI_ALL_REDUCE, &m, bytes);
                c.density = 0.01;
                c.slice_bytes = k->slice_bytes;
                const double t = seconds(k, &c, s->id, 0, MODEL_OURS);
                cr_expect(isfinite(t) && t >= before, "%s, %s, %llu bytes: %g s after %g", k->name, s->name,
                          (unsigned long long)bytes, t, before);
                before = t;
            }
        }
    }
    cr_expect_null(pici_machine(-1));
    cr_expect_null(pici_machine_named("hal9000"));
}

Test(coll_model, fast)
{
    static struct map m;
    static const double densities[] = {0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 1};
    const clock_t start = clock();
    double sum = 0;
    for (int ranks = 2; ranks <= 4096; ranks *= 2) {
        map_even(&m, ranks, 4);
        for (int i = 0; i < 13; i++)
            for (int j = 0; j < 7; j++)
                for (const struct schedule *s = pici_schedules; s->name; s++)
                    for (int k = 0; k < 2 * KINDS; k++) {
                        struct model_call c = call_of(kinds[k / 2], &m, UINT64_C(65536) << i);
                        c.density = densities[j];
                        sum += pici_model_seconds(&pici_model_machine, &c, &(struct model_candidate){s->id, k % 2, 0});
                    }
    }
    cr_expect_gt(sum, 0);
    cr_expect_lt((double)(clock() - start) / CLOCKS_PER_SEC, 10);
}
