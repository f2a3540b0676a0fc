/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Hybrid blocks in the collectives: savings on the wire, containers in statistics and trace, the formats that AUTO may
 * choose, and callers with structs of the previous version. */
#define _POSIX_C_SOURCE 200809L
#include <criterion/criterion.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coll/request.h"
#include "tests/util/coll.h"

enum { WATCHDOG_S = 900, RANKS = 4, TILE_N = 4096, TILES = 64, N = TILES * TILE_N }; /* elements of a segment */

/* Ranks, each on a node of its own, and what they contribute. */
struct group {
    struct pici_comm *comm[RANKS];
    enum pici_collective collective;
    struct pici_coll_opts opts;
    uint32_t *send[RANKS]; /* N, or of all segments */
    struct pici_coll_stats stats[RANKS];
    enum pici_status status[RANKS];
};

static void group_init(struct group *g)
{
    static const struct pici_coll_opts defaults = PICI_COLL_OPTS_INIT;
    static const int node_of[RANKS] = {0, 1, 2, 3};
    memset(g, 0, sizeof *g);
    alarm(WATCHDOG_S);
    cr_assert_eq(pici_comm_threads(g->comm, RANKS), PICI_OK, "%s", pici_comm_error(NULL));
    for (int i = 0; i < RANKS; i++) {
        cr_assert_eq(pici_comm_set_nodes(g->comm[i], node_of), PICI_OK);
        g->send[i] = test_alloc((size_t)RANKS * N * sizeof **g->send);
    }
    g->opts = defaults;
    g->opts.algorithm = PICI_ALGO_RING;
}

static void group_free(struct group *g)
{
    for (int i = 0; i < RANKS; i++) {
        pici_comm_free(g->comm[i]);
        free(g->send[i]);
    }
}

/* Nonzeros at independent positions. */
static void group_fill(struct group *g, double density, uint64_t seed)
{
    struct rng rng = {seed};
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < (size_t)RANKS * N; i++)
            g->send[r][i] = (double)(rng_next(&rng) >> 11) < density * 9007199254740992.0;
}

static void group_rank(void *context, int rank)
{
    struct group *g = context;
    struct pici_coll_opts o = g->opts;
    uint32_t *recv = test_alloc((size_t)RANKS * N * sizeof *recv);
    g->stats[rank] = (struct pici_coll_stats)PICI_COLL_STATS_INIT;
    o.stats = &g->stats[rank];
    if (g->collective == PICI_ALL_GATHER)
        g->status[rank] = pici_all_gather(g->send[rank], recv, N, PICI_U32, g->comm[rank], &o);
    else
        g->status[rank] =
            pici_all_reduce(g->send[rank], recv, (uint64_t)RANKS * N, PICI_U32, PICI_SUM, g->comm[rank], &o);
    free(recv);
}

/* The bytes that all ranks sent. */
static double group_run(struct group *g)
{
    double wire = 0;
    coll_threads(RANKS, group_rank, g);
    for (int i = 0; i < RANKS; i++) {
        cr_assert_eq(g->status[i], PICI_OK, "%s", pici_comm_error(g->comm[i]));
        wire += (double)g->stats[i].wire_bytes;
    }
    return wire;
}

/* ---- bytes ---- */

static double hybrid_bytes(const uint32_t *src)
{
    static uint8_t block[N * 4 + 65536];
    size_t len;
    cr_assert_eq(pici_compress(block, sizeof block, &len, src, N, PICI_U32, PICI_HYBRID, NULL), PICI_OK);
    return MSG_BYTES + (double)len;
}

/* What a ring sends, by the lengths of the blocks: partial sums of each segment, then all of it; or the segments.
 * Before and after it two rounds of agreement. */
static double expected_bytes(const struct group *g)
{
    uint32_t *sum = test_alloc(N * sizeof *sum);
    double bytes = 2 * 2 * RANKS * AGREE_BYTES;
    for (int s = 0; s < RANKS; s++) {
        if (g->collective == PICI_ALL_GATHER) {
            bytes += (RANKS - 1) * hybrid_bytes(g->send[s]);
            continue;
        }
        memset(sum, 0, N * sizeof *sum);
        for (int k = 0; k < RANKS; k++) {
            const uint32_t *part = g->send[(s + 1 + k) % RANKS] + (size_t)s * N;
            for (int i = 0; i < N; i++)
                sum[i] += part[i];
            bytes += (k < RANKS - 1 ? 1 : RANKS - 1) * hybrid_bytes(sum);
        }
    }
    free(sum);
    return bytes;
}

/* By default, over links of 200 Mbit/s, with one message for each segment: the bytes sent follow from the lengths of
 * the blocks, and are fewer than without hybrid. */
Test(coll_hybrid, wire_bytes)
{
    static const struct {
        double density, least[2]; /* bytes without hybrid, over those with it: all-reduce, all-gather */
    } cases[] = {{0.1, {1.002, 1.03}}, {0.05, {1.02, 1.2}}, {0.01, {1.4, 1.4}}, {0.001, {1.35, 1.25}}};
    struct group g;
    group_init(&g);
    g.opts.window = 1;
    g.opts.slice_bytes = N * sizeof **g.send;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        group_fill(&g, cases[i].density, i);
        for (int gather = 0; gather < 2; gather++)
            for (int slow = 0; slow < 2; slow++) {
                g.collective = gather ? PICI_ALL_GATHER : PICI_ALL_REDUCE;
                g.opts.inter_bandwidth = slow ? 25e6 : 0;
                g.opts.formats = 0;
                const double with = group_run(&g), expected = expected_bytes(&g);
                for (int r = 0; r < RANKS; r++)
                    cr_expect(g.stats[r].sends[PICI_HYBRID] && !g.stats[r].sends[PICI_BITMAP] &&
                                  !g.stats[r].sends[PICI_COO] && !g.stats[r].sends[PICI_DENSE],
                              "%g: not all was hybrid", cases[i].density);
                g.opts.formats = 1u << PICI_BITMAP | 1u << PICI_COO;
                const double without = group_run(&g);
                cr_expect_eq(with, expected, "%g, gather %d: %g bytes, not %g", cases[i].density, gather, with,
                             expected);
                cr_expect_geq(without / with, cases[i].least[gather], "%g, gather %d", cases[i].density, gather);
            }
    }
    group_free(&g);
}

/* ---- containers ---- */

static uint64_t sum_of(const uint64_t tiles[PICI_CONTAINERS])
{
    uint64_t all = 0;
    for (int i = 0; i < PICI_CONTAINERS; i++)
        all += tiles[i];
    return all;
}

/* Numbers behind a key in a text, added up; and how often there were any. */
static uint64_t sum_in(const char *text, const char *name, int *times)
{
    char key[32];
    uint64_t all = 0;
    snprintf(key, sizeof key, "\"%s\":", name);
    for (; (text = strstr(text, key)); ++*times)
        all += strtoull(text += strlen(key), NULL, 10);
    return all;
}

/* Tiles of five kinds in turn. Each rank sends each segment that it gathers once, both its own and forwarded ones.
 * Statistics and trace count both kinds of blocks. */
Test(coll_hybrid, containers)
{
    static const unsigned nonzeros[PICI_CONTAINERS] = {
        [PICI_OFFSETS12] = 20, [PICI_OFFSETS8] = 200, [PICI_BITVECTOR] = 2000, [PICI_RAW] = 4000, [PICI_EMPTY] = 0};
    static char text[1 << 20];
    char folder[] = "/tmp/pici-coll-XXXXXX", path[64], file[80];
    uint64_t want[PICI_CONTAINERS] = {0};
    struct group g;
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/trace", folder);
    setenv("PICI_TRACE", path, 1);
    group_init(&g);
    unsetenv("PICI_TRACE");
    g.collective = PICI_ALL_GATHER;
    g.opts.format = PICI_HYBRID;
    g.opts.slice_bytes = 16 * TILE_N * sizeof **g.send;
    for (int t = 0; t < TILES; t++) {
        const unsigned nnz = nonzeros[t % PICI_CONTAINERS];
        want[t % PICI_CONTAINERS] += RANKS - 1;
        for (unsigned i = 0; i < TILE_N; i++)
            for (int r = 0; r < RANKS; r++)
                g.send[r][(size_t)t * TILE_N + i] = i * 2049 % TILE_N < nnz; /* spread */
    }
    group_run(&g);
    const int messages = (RANKS - 1) * TILES / 16;
    for (int r = 0; r < RANKS; r++) {
        int times = 0;
        cr_expect_eq(g.stats[r].sends[PICI_HYBRID], (uint64_t)messages);
        cr_expect_eq(sum_of(g.stats[r].tiles), (uint64_t)(RANKS - 1) * TILES);
        pici_comm_free(g.comm[r]);
        g.comm[r] = NULL;
        snprintf(file, sizeof file, "%s.%d", path, r);
        FILE *f = fopen(file, "rb");
        cr_assert_not_null(f);
        text[fread(text, 1, sizeof text - 1, f)] = '\0';
        fclose(f);
        unlink(file);
        for (int i = 0; i < PICI_CONTAINERS; i++) {
            const char *name = pici_container_name((enum pici_container)i);
            cr_expect_eq(g.stats[r].tiles[i], want[i], "%s: %ju", name, (uintmax_t)g.stats[r].tiles[i]);
            cr_expect_eq(sum_in(text, name, &times), want[i], "%s in the trace", name);
        }
        cr_expect_eq(times, PICI_CONTAINERS * messages, "not in each send");
    }
    rmdir(folder);

    /* other formats have none */
    group_free(&g);
    group_init(&g);
    g.collective = PICI_ALL_REDUCE;
    g.opts.format = PICI_BITMAP;
    group_fill(&g, 0.01, 1);
    group_run(&g);
    for (int r = 0; r < RANKS; r++)
        cr_expect_eq(sum_of(g.stats[r].tiles), 0u);
    group_free(&g);
}

/* ---- what AUTO may choose ---- */

Test(coll_hybrid, formats_of_auto)
{
    struct group g;
    setenv("PICI_AUTO_FORMATS", "coo,pici", 1);
    setenv("PICI_INTER_BANDWIDTH", "1e6", 1);
    group_init(&g);
    unsetenv("PICI_AUTO_FORMATS"); /* it was read when the communicators were made */
    unsetenv("PICI_INTER_BANDWIDTH");
    g.collective = PICI_ALL_REDUCE;
    for (int i = 0; i < 3; i++) {
        static const double densities[] = {0.001, 0.02, 0.1};
        group_fill(&g, densities[i], 7);
        g.opts.formats = 0;
        group_run(&g);
        for (int r = 0; r < RANKS; r++) {
            cr_expect_eq(g.stats[r].sends[PICI_HYBRID] + g.stats[r].sends[PICI_DENSE], 0u);
            cr_expect_eq(g.stats[r].sends[PICI_COO] > 0, densities[i] < 0.03, "coo wins below 3.2%%");
            cr_expect_eq(g.stats[r].sends[PICI_BITMAP] > 0, densities[i] > 0.01);
        }
        g.opts.formats = 1u << PICI_HYBRID;
        group_run(&g);
        for (int r = 0; r < RANKS; r++)
            cr_expect_eq(g.stats[r].sends[PICI_DENSE] + g.stats[r].sends[PICI_BITMAP] + g.stats[r].sends[PICI_COO], 0u);
        g.opts.formats = 1u << PICI_DENSE;
        group_run(&g);
        for (int r = 0; r < RANKS; r++)
            cr_expect_eq(g.stats[r].sends[PICI_HYBRID] + g.stats[r].sends[PICI_BITMAP] + g.stats[r].sends[PICI_COO],
                         0u);
    }
    group_free(&g);
}

/* ---- the structs of the version before ---- */

Test(coll_hybrid, earlier_structs)
{
    static float send[5000];
    struct pici_comm *comm[1];
    struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
    float recv[5000];
    cr_assert_eq(pici_comm_threads(comm, 1), PICI_OK);
    o.size = offsetof(struct pici_coll_opts, inter_bandwidth);
    o.inter_bandwidth = NAN; /* somebody else's bytes */
    o.formats = ~0u;
    cr_expect_gt(pici_comm_scratch(comm[0], PICI_ALL_REDUCE, 5000, PICI_F32, PICI_SUM, &o), 0u);
    cr_expect_eq(pici_all_reduce(send, recv, 5000, PICI_F32, PICI_SUM, comm[0], &o), PICI_OK, "%s",
                 pici_comm_error(comm[0]));
    for (size_t size = 0; size < offsetof(struct pici_coll_opts, inter_bandwidth); size++) { /* no version had these */
        o.size = size;
        cr_expect_eq(pici_all_reduce(send, recv, 5000, PICI_F32, PICI_SUM, comm[0], &o), PICI_E_ARG);
    }
    const size_t later[] = {offsetof(struct pici_coll_opts, intra_bandwidth), offsetof(struct pici_coll_opts, formats)};
    o.inter_bandwidth = 0;
    o.zeros = (enum pici_zeros)77;
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) { /* what is beyond is left to its default */
        o.size = later[i];
        cr_expect_eq(pici_all_reduce(send, recv, 5000, PICI_F32, PICI_SUM, comm[0], &o), PICI_OK);
    }
    o.size = sizeof o;
    o.zeros = PICI_ZEROS_EXACT;
    cr_expect_eq(pici_all_reduce(send, recv, 5000, PICI_F32, PICI_SUM, comm[0], &o), PICI_E_UNSUPPORTED, "formats");
    o.formats = 0;
    o.unused = -1; /* padding of 0.1's struct: any bytes, also in today's */
    cr_expect_eq(pici_all_reduce(send, recv, 5000, PICI_F32, PICI_SUM, comm[0], &o), PICI_OK);
    o.size = offsetof(struct pici_coll_opts, zeros);
    o.zeros = (enum pici_zeros)77;
    cr_expect_eq(pici_all_reduce(send, recv, 5000, PICI_F32, PICI_SUM, comm[0], &o), PICI_OK, "the struct of 0.1");
    pici_comm_free(comm[0]);
}

/* struct pici_coll_stats of 0.2.0, as its header has it; that of 0.1.0 ends with tiles, an earlier one before them. */
struct coll_stats_0_2 {
    size_t size;
    uint64_t wire_bytes;
    uint64_t dense_bytes;
    uint64_t sends[4];
    double encode_s;
    double decode_s;
    double wait_s;
    uint64_t tiles[5];
    uint64_t inter_bytes;
    uint64_t events;
    double quantize_s, dequantize_s;
    uint64_t nonfinite;
    double lost;
};

enum {
    STATS_FIRST = offsetof(struct coll_stats_0_2, tiles),
    STATS_OLD = sizeof(struct coll_stats_0_2),
    STATS_NOW = sizeof(struct pici_coll_stats),
    STATS_MOST = STATS_NOW + 24
};

/* The same call of two ranks, whose structs end where their memory does. */
struct sized {
    struct pici_comm *comm[2];
    size_t size;
    enum pici_status status[2];
    unsigned char got[2][STATS_MOST];
};

static void sized_rank(void *context, int rank)
{
    struct sized *z = context;
    const size_t bytes = z->size < sizeof z->size ? sizeof z->size : z->size;
    unsigned char *stats = test_alloc(bytes);
    float *x = test_alloc(3 * TILE_N * sizeof *x);
    struct pici_values qsgd = PICI_VALUES_INIT;
    struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
    for (int i = 0; i < 3 * TILE_N; i++)
        x[i] = i % 40 && i < 2 * TILE_N ? 0 : (float)(i % 1000) + (float)rank / 3;
    x[40] = NAN;
    qsgd.codec = PICI_VALUES_QSGD;
    qsgd.rounding = PICI_ROUND_NEAREST;
    o.values = &qsgd;
    o.format = PICI_HYBRID;
    o.algorithm = PICI_ALGO_RING;
    memset(stats, 0xa5, bytes);
    memcpy(stats, &z->size, sizeof z->size);
    o.stats = (void *)stats;
    z->status[rank] = pici_all_reduce(x, x, 3 * TILE_N, PICI_F32, PICI_SUM, z->comm[rank], &o);
    memcpy(z->got[rank], stats, bytes);
    free(x);
    free(stats);
}

/* Seconds differ from call to call: what there is of them is checked, and becomes zero bytes. */
static void same_seconds(struct sized *z, int rank, size_t at, int n)
{
    for (double s; n && at < z->size; n--, at += sizeof s) {
        const size_t bytes = z->size - at < sizeof s ? z->size - at : sizeof s;
        memcpy(&s, z->got[rank] + at, sizeof s);
        cr_expect(bytes < sizeof s || (s >= 0 && s < WATCHDOG_S), "%g s", s);
        memset(z->got[rank] + at, 0, bytes);
    }
}

#define OLD(member) offsetof(struct coll_stats_0_2, member)
#define NOW(member) offsetof(struct pici_coll_stats, member)

Test(coll_hybrid, sizes_of_stats)
{
    static const int node_of[] = {0, 1};
    struct sized z = {.size = STATS_NOW};
    unsigned char now[2][STATS_MOST] = {{0}}, old[2][STATS_MOST] = {{0}};
    alarm(WATCHDOG_S);
    cr_assert_eq(pici_comm_threads(z.comm, 2), PICI_OK);
    for (int r = 0; r < 2; r++)
        cr_assert_eq(pici_comm_set_nodes(z.comm[r], node_of), PICI_OK);
    coll_threads(2, sized_rank, &z);
    for (int r = 0; r < 2; r++) {
        struct pici_coll_stats s;
        cr_assert_eq(z.status[r], PICI_OK, "%s", pici_comm_error(z.comm[r]));
        same_seconds(&z, r, NOW(encode_s), 3);
        same_seconds(&z, r, NOW(quantize_s), 2);
        memcpy(&s, z.got[r], sizeof s);
        cr_assert(s.wire_bytes && s.dense_bytes && s.sends[PICI_HYBRID] && s.inter_bytes == s.wire_bytes && s.events &&
                  s.nonfinite && s.lost > 0 && s.tiles[PICI_OFFSETS8] + s.tiles[PICI_RAW]);
        struct coll_stats_0_2 o = {.wire_bytes = s.wire_bytes,
                                   .dense_bytes = s.dense_bytes,
                                   .inter_bytes = s.inter_bytes,
                                   .events = s.events,
                                   .nonfinite = s.nonfinite,
                                   .lost = s.lost};
        for (int i = 0; i < 4; i++)
            o.sends[i] = s.sends[i];
        for (int i = 0; i < 5; i++)
            o.tiles[i] = s.tiles[i];
        memcpy(now[r], &s, sizeof s);
        memcpy(old[r], &o, sizeof o);
    }
    for (z.size = 0; z.size <= STATS_MOST; z.size++) {
        const int older = z.size >= STATS_FIRST && z.size <= STATS_OLD, newer = z.size >= STATS_NOW;
        coll_threads(2, sized_rank, &z);
        for (int r = 0; r < 2; r++) {
            unsigned char want[STATS_MOST];
            memset(want, 0xa5, sizeof want);
            if (older || newer)
                memcpy(want, older ? old[r] : now[r], z.size);
            memcpy(want, &z.size, sizeof z.size);
            cr_expect_eq(z.status[r], older || newer ? PICI_OK : PICI_E_ARG, "size %zu", z.size);
            if (older || newer) {
                same_seconds(&z, r, older ? OLD(encode_s) : NOW(encode_s), 3);
                same_seconds(&z, r, older ? OLD(quantize_s) : NOW(quantize_s), 2);
            }
            cr_expect_eq(memcmp(z.got[r], want, z.size), 0, "rank %d, size %zu", r, z.size);
        }
    }
    for (int r = 0; r < 2; r++)
        pici_comm_free(z.comm[r]);
}
