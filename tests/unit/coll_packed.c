/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Packed messages: the results are those of dense ones, bit for bit; what is packed, by which option, and when not. */
#define _POSIX_C_SOURCE 200809L
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coll/make.h"
#include "coll/receive.h"
#include "coll/request.h"
#include "formats/ref.h"
#include "tests/util/coll.h"

enum { WATCHDOG_S = 900, RANKS = 4, N = 5 * 4096 + 100 };

static int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 17};

ParameterizedTestParameters(coll_packed, matrix)
{
    return cr_make_param_array(int, rank_counts, sizeof rank_counts / sizeof *rank_counts);
}

/* Every algorithm, collective and float dtype, with everything packed. The statistics are judged too. */
ParameterizedTest(int *ranks, coll_packed, matrix)
{
    static const enum pici_op ops[] = {PICI_SUM, PICI_AVG, PICI_MIN, PICI_MAX};
    struct coll_team team;
    struct rng rng = {700 + (uint64_t)*ranks};
    int turn = *ranks;
    alarm(WATCHDOG_S);
    coll_team_init(&team, *ranks);
    for (int a = 1; a <= coll_algorithms(); a++)
        for (int k = 0; k < COLL_COLLECTIVES; k++)
            for (int t = PICI_F32; t <= PICI_F8E5M2 && coll_has((enum pici_algorithm)a, coll_collectives[k]); t++) {
                const uint64_t counts[] = {0, 1, (uint64_t)*ranks + 1, 65, 1000, 4097, 5000};
                struct coll_case c = {.collective = coll_collectives[k],
                                      .op = ops[turn % 4],
                                      .dtype = (enum pici_dtype)t,
                                      .count = counts[turn % 7],
                                      .opts.algorithm = (enum pici_algorithm)a};
                turn++;
                coll_case_options(&c, &rng, *ranks);
                c.opts.format = turn % 3 ? PICI_AUTO : PICI_HYBRID;
                c.opts.formats = 0;
                c.opts.pack = PICI_PACKING_PLANES;
                const char *wrong = coll_team_check(&team, &c);
                cr_assert(!wrong, "%s", wrong);
            }
    coll_team_free(&team);
}

/* ---- what is packed */

struct group {
    struct pici_comm *comm[RANKS];
    enum pici_collective collective;
    enum pici_dtype dtype;
    struct pici_coll_opts opts[RANKS];
    uint8_t *send[RANKS], *recv[RANKS]; /* RANKS * N elements */
    struct pici_coll_stats stats[RANKS];
    enum pici_status status[RANKS];
};

/* Ranks on two nodes. */
static void group_init(struct group *g)
{
    static const struct pici_coll_opts defaults = PICI_COLL_OPTS_INIT;
    static const int node_of[RANKS] = {0, 0, 1, 1};
    memset(g, 0, sizeof *g);
    alarm(WATCHDOG_S);
    cr_assert_eq(pici_comm_threads(g->comm, RANKS), PICI_OK, "%s", pici_comm_error(NULL));
    for (int i = 0; i < RANKS; i++) {
        cr_assert_eq(pici_comm_set_nodes(g->comm[i], node_of), PICI_OK);
        g->send[i] = test_alloc((size_t)RANKS * N * 8);
        g->recv[i] = test_alloc((size_t)RANKS * N * 8);
        g->opts[i] = defaults;
    }
    g->collective = PICI_ALL_REDUCE;
    g->dtype = PICI_F32;
}

static void group_free(struct group *g)
{
    for (int i = 0; i < RANKS; i++) {
        pici_comm_free(g->comm[i]);
        free(g->send[i]);
        free(g->recv[i]);
    }
}

/* Values near one another, or any bits. */
static void group_fill(struct group *g, int any, uint64_t seed)
{
    struct rng rng = {seed};
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < (size_t)RANKS * N; i++) {
            const float near = (float)((double)(rng_next(&rng) >> 11) / 9007199254740992.0 - 0.5);
            const uint32_t bits = (uint32_t)rng_next(&rng);
            memcpy(g->send[r] + 4 * i, any ? (const void *)&bits : (const void *)&near, 4);
        }
}

static void group_rank(void *context, int rank)
{
    struct group *g = context;
    struct pici_coll_opts o = g->opts[rank];
    g->stats[rank] = (struct pici_coll_stats)PICI_COLL_STATS_INIT;
    o.stats = &g->stats[rank];
    if (g->collective == PICI_ALL_GATHER)
        g->status[rank] = pici_all_gather(g->send[rank], g->recv[rank], N, g->dtype, g->comm[rank], &o);
    else
        g->status[rank] =
            pici_all_reduce(g->send[rank], g->recv[rank], RANKS * N, g->dtype, PICI_SUM, g->comm[rank], &o);
}

static void group_run(struct group *g)
{
    coll_threads(RANKS, group_rank, g);
    for (int i = 0; i < RANKS; i++) {
        cr_assert_eq(g->status[i], PICI_OK, "%s", pici_comm_error(g->comm[i]));
        cr_expect_eq(memcmp(g->recv[i], g->recv[0], (size_t)RANKS * N * pici_dtype_width(g->dtype)), 0);
    }
}

static uint64_t group_packed(const struct group *g)
{
    uint64_t packed = 0;
    for (int i = 0; i < RANKS; i++)
        packed += g->stats[i].sends[PICI_PACKED];
    return packed;
}

static void set_all(struct group *g, enum pici_packing pack, double inter_bandwidth)
{
    for (int i = 0; i < RANKS; i++) {
        g->opts[i].pack = pack;
        g->opts[i].inter_bandwidth = inter_bandwidth;
    }
}

/* Packed where a slow link is known, and only between nodes; not where none is known, over fast ones, of integers, by
 * PICI_PACKING_NONE, and with another format. */
Test(coll_packed, by_bandwidth)
{
    struct group g;
    group_init(&g);
    group_fill(&g, 0, 1);
    for (int gather = 0; gather < 2; gather++) {
        g.collective = gather ? PICI_ALL_GATHER : PICI_ALL_REDUCE;
        set_all(&g, PICI_PACKING_AUTO, 0);
        group_run(&g);
        cr_expect_eq(group_packed(&g), 0u, "no bandwidth is known");
        set_all(&g, PICI_PACKING_AUTO, 1e11);
        group_run(&g);
        cr_expect_eq(group_packed(&g), 0u, "fast");
        set_all(&g, PICI_PACKING_AUTO, 25e6);
        group_run(&g);
        for (int i = 0; i < RANKS; i++) {
            const struct pici_coll_stats *s = &g.stats[i];
            if (i % 2) /* by a ring, these send to the other node */
                cr_expect(s->sends[PICI_PACKED] && (gather || s->sends[PICI_PACKED] >= 3), "rank %d", i);
            cr_expect(gather ? !s->sends[PICI_DENSE] : 1, "rank %d", i);
        }
        set_all(&g, PICI_PACKING_NONE, 25e6);
        group_run(&g);
        cr_expect_eq(group_packed(&g), 0u, "none");
        set_all(&g, PICI_PACKING_PLANES, 0);
        for (int i = 0; i < RANKS; i++)
            g.opts[i].format = PICI_DENSE;
        group_run(&g);
        cr_expect_eq(group_packed(&g), 0u, "dense was asked for");
        for (int i = 0; i < RANKS; i++)
            g.opts[i].format = PICI_AUTO;
        g.dtype = PICI_U32;
        group_run(&g);
        cr_expect_eq(group_packed(&g), 0u, "integers");
        g.dtype = PICI_F32;
    }
    group_free(&g);
}

/* The seconds that were predicted for the last call. */
static double group_predicted(const struct group *g)
{
    const struct chooser *chooser = g->comm[0]->chooser;
    const struct chosen *last = chooser->chosen;
    for (const struct chosen *entry = last; entry < chooser->chosen + CHOOSE_CALLS; entry++)
        last = entry->used > last->used ? entry : last;
    cr_assert(last->used);
    return last->choice.seconds;
}

/* A prediction counts on packed messages only where they would be packed: every rank packs what pays, and knows the
 * bandwidth between nodes. */
Test(coll_packed, predicted)
{
    static const struct {
        enum pici_packing pack;
        double inter, intra;
        int faster;
    } cases[] = {{PICI_PACKING_AUTO, 0, 0, 0},
                 {PICI_PACKING_AUTO, 0, 5e9, 0},
                 {PICI_PACKING_AUTO, 1.25e8, 0, 1},
                 {PICI_PACKING_PLANES, 0, 0, 1}};
    struct group g;
    group_init(&g);
    group_fill(&g, 0, 6);
    for (int i = 0; i < RANKS; i++)
        g.opts[i].density = 1;
    set_all(&g, PICI_PACKING_NONE, 0);
    group_run(&g);
    const double none = group_predicted(&g);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_all(&g, cases[i].pack, cases[i].inter);
        for (int r = 0; r < RANKS; r++)
            g.opts[r].intra_bandwidth = cases[i].intra;
        group_run(&g);
        cr_expect_eq(group_packed(&g) > 0, cases[i].faster, "case %d", (int)i);
        cr_expect(cases[i].faster ? group_predicted(&g) < none : group_predicted(&g) == none, "case %d: %g, not %g",
                  (int)i, group_predicted(&g), none);
    }
    group_free(&g);
}

/* Each rank's own setting: some pack all, some nothing. The result is the same. */
Test(coll_packed, mixed)
{
    struct group g;
    uint8_t *dense = test_alloc((size_t)RANKS * N * 4);
    group_init(&g);
    group_fill(&g, 0, 2);
    set_all(&g, PICI_PACKING_NONE, 0);
    group_run(&g);
    memcpy(dense, g.recv[0], (size_t)RANKS * N * 4);
    for (int i = 0; i < RANKS; i++)
        g.opts[i].pack = i % 2 ? PICI_PACKING_PLANES : PICI_PACKING_NONE;
    group_run(&g);
    cr_expect_eq(memcmp(dense, g.recv[0], (size_t)RANKS * N * 4), 0);
    for (int i = 0; i < RANKS; i++)
        cr_expect(i % 2 ? g.stats[i].sends[PICI_PACKED] >= 3 : g.stats[i].sends[PICI_DENSE] >= 3, "rank %d", i);
    group_free(&g);
    free(dense);
}

/* Values that do not pack: no message is longer than a dense one, and after the first no rank tries again. */
Test(coll_packed, any_bits)
{
    struct group g;
    group_init(&g);
    group_fill(&g, 1, 3);
    set_all(&g, PICI_PACKING_AUTO, 25e6);
    g.collective = PICI_ALL_GATHER;
    group_run(&g);
    for (int i = 0; i < RANKS; i++)
        cr_expect(g.stats[i].wire_bytes <= g.stats[i].dense_bytes && !g.stats[i].sends[PICI_PACKED], "rank %d", i);
    group_free(&g);
}

/* Where one rank's engine takes no packed blocks, as with buffers in a GPU's memory, no rank sends one. */
Test(coll_packed, engine_without)
{
    struct group g;
    struct pici_engine engine = pici_engine_host;
    engine.packs = 0;
    group_init(&g);
    group_fill(&g, 0, 4);
    set_all(&g, PICI_PACKING_PLANES, 0);
    g.comm[2]->engine = &engine;
    group_run(&g);
    cr_expect_eq(group_packed(&g), 0u);
    g.comm[2]->engine = &pici_engine_host;
    group_run(&g);
    cr_expect_gt(group_packed(&g), 0u);
    group_free(&g);
}

/* PICI_PACK and pici_comm_tune; an option of the call counts more than these. What is no value is an error. */
Test(coll_packed, settings)
{
    static const struct {
        const char *variable;
        enum pici_packing tuned, option;
        int packs;
    } cases[] = {{"planes", PICI_PACKING_UNCHANGED, PICI_PACKING_UNCHANGED, 1},
                 {"none", PICI_PACKING_UNCHANGED, PICI_PACKING_UNCHANGED, 0},
                 {"none", PICI_PACKING_PLANES, PICI_PACKING_UNCHANGED, 1},
                 {"planes", PICI_PACKING_NONE, PICI_PACKING_UNCHANGED, 0},
                 {"auto", PICI_PACKING_NONE, PICI_PACKING_PLANES, 1},
                 {"planes", PICI_PACKING_PLANES, PICI_PACKING_NONE, 0}};
    struct pici_coll_opts wrong = PICI_COLL_OPTS_INIT;
    struct pici_tune tune = PICI_TUNE_INIT;
    struct group g;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("PICI_PACK", cases[i].variable, 1);
        group_init(&g);
        group_fill(&g, 0, i);
        tune.pack = cases[i].tuned;
        for (int r = 0; r < RANKS; r++)
            cr_assert_eq(pici_comm_tune(g.comm[r], &tune), PICI_OK);
        set_all(&g, cases[i].option, 0);
        group_run(&g);
        cr_expect_eq(group_packed(&g) > 0, cases[i].packs, "case %d", (int)i);
        if (i + 1 < sizeof cases / sizeof *cases)
            group_free(&g);
    }
    wrong.pack = PICI_PACKING_PLANES + 1;
    cr_expect_eq(pici_all_reduce(g.send[0], g.recv[0], N, PICI_F32, PICI_SUM, g.comm[0], &wrong), PICI_E_UNSUPPORTED);
    tune.pack = PICI_PACKING_PLANES + 1;
    cr_expect_eq(pici_comm_tune(g.comm[0], &tune), PICI_E_UNSUPPORTED);
    group_free(&g);
    setenv("PICI_PACK", "fast", 1);
    struct pici_comm *comm;
    cr_expect_eq(pici_comm_threads(&comm, 1), PICI_E_ARG);
    cr_expect(strstr(pici_comm_error(NULL), "PICI_PACK is \"fast\", which is not auto, none or planes"), "%s",
              pici_comm_error(NULL));
}

/* With a lossy codec nothing is packed, neither its arrays nor anything else of the call. */
Test(coll_packed, lossy)
{
    struct group g;
    struct pici_values values = PICI_VALUES_INIT;
    values.codec = PICI_VALUES_CAST;
    values.phases = 1;
    group_init(&g);
    group_fill(&g, 0, 5);
    set_all(&g, PICI_PACKING_PLANES, 0);
    for (int i = 0; i < RANKS; i++)
        g.opts[i].values = &values;
    group_run(&g);
    cr_expect_eq(group_packed(&g), 0u);
    group_free(&g);
}

/* ---- a peer that lies */

/* A hybrid block may have more bytes than any encoder needs for so many elements, but not in a message, also if it is
 * only forwarded. */
static uint8_t header[HDR_BYTES];

static const uint8_t *head_of_header(struct pici_queue *queue, int block, size_t offset)
{
    (void)queue, (void)block, (void)offset;
    return header;
}

Test(coll_packed, longest)
{
    enum { COUNT = 3, ROOM = 4096 };
    static struct pici_request request;
    static struct slice_run slice_run = {.arrays = 1};
    struct pici_engine engine = pici_engine_host;
    struct pici_block block;
    const uint8_t start[] = {'P', 'I', 'C', 'I', FMT_VERSION, PICI_HYBRID, PICI_F32};
    int taken = 0, refused = 0;
    engine.head = head_of_header;
    request.engine = &engine;
    request.call.args.dtype = PICI_F32;
    memcpy(header, start, sizeof start);
    ref_put(header + HDR_COUNT, 8, COUNT);
    ref_put(header + HDR_NNZ, 8, COUNT);
    ref_put(header + HDR_INDEX_OFFSET, 8, HDR_BYTES);
    for (uint64_t values = HDR_BYTES; values < ROOM; values++) {
        struct coll_part part = {.bytes = header, .remaining = ROOM, .span = {0, COUNT}};
        ref_put(header + HDR_VALUES_OFFSET, 8, values);
        if (pici_block_parse(&block, header, ROOM, NULL))
            continue;
        const int fits = block.layout.block_bytes <= pici_policy_longest(PICI_F32, COUNT);
        cr_expect_eq(pici_receive_part(&request, &slice_run, RECEIVE_KEEP, &part), fits ? PICI_OK : PICI_E_CORRUPT,
                     "values at %d", (int)values);
        taken += fits;
        refused += !fits;
    }
    cr_expect(taken && refused, "%d %d", taken, refused);
}

/* Rank 0's engine damages the first packed block that it has made, behind the header. */
static size_t damage_at;
static int damaged;

static enum pici_status lying_encode(struct pici_queue *queue, uint8_t *message, size_t at, size_t capacity,
                                     size_t *size, const void *const *source, const uint64_t *count, int runs,
                                     const struct engine_array *array, int arrays, int checksum)
{
    const enum pici_status status =
        pici_engine_host.encode(queue, message, at, capacity, size, source, count, runs, array, arrays, checksum);
    if (!status && !damaged && message[at + HDR_FORMAT] == FMT_PACKED && damage_at < size[0]) {
        message[at + damage_at] ^= 0xff;
        damaged = 1;
    }
    return status;
}

/* It is an error on all ranks, which says who has noticed; or it hits bits of a value, which have no check sum. */
Test(coll_packed, damaged)
{
    int errors = 0;
    for (damage_at = 4; damage_at < 600; damage_at += damage_at < 160 ? 7 : 97) {
        struct pici_engine engine = pici_engine_host;
        struct group g;
        engine.encode = lying_encode;
        damaged = 0;
        group_init(&g);
        group_fill(&g, 0, damage_at);
        set_all(&g, PICI_PACKING_PLANES, 0);
        g.comm[0]->engine = &engine;
        coll_threads(RANKS, group_rank, &g);
        cr_assert(damaged);
        for (int i = 0; i < RANKS; i++) {
            cr_expect_eq(g.status[i], g.status[0], "byte %d: %d and %d", (int)damage_at, g.status[i], g.status[0]);
            if (g.status[i])
                cr_expect(strstr(pici_comm_error(g.comm[i]), "rank"), "%s", pici_comm_error(g.comm[i]));
        }
        errors += g.status[0] != PICI_OK;
        g.comm[0]->engine = &pici_engine_host;
        group_free(&g);
    }
    cr_expect_geq(errors, 10);
}
