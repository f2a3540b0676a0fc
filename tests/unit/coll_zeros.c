/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Zeros with a sign in collectives. A sum of floats is (+0) + a + b + ..., so it never holds -0.0. It has the same bits
 * on all ranks, at any threshold, in place or not. Minimum, maximum and all-gather keep the sign. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <string.h>
#include <unistd.h>

#include "coll/engine.h"
#include "tests/util/coll.h"
#include "cpu/kernels.h"
#include "formats/ref.h"

enum { WATCHDOG_S = 900 };

/* ---- the engine ---- */

static const unsigned mantissa[PICI_U64 + 1] = {
    [PICI_F32] = 23, [PICI_F64] = 52, [PICI_F16] = 10, [PICI_BF16] = 7, [PICI_F8E4M3] = 3, [PICI_F8E5M2] = 2};

/* What positive_zeros makes of a. */
static uint64_t model_zeros(enum pici_dtype t, uint64_t a, int quiet)
{
    const unsigned m = mantissa[t];
    const uint64_t sign = UINT64_C(1) << (8 * ref_width(t) - 1), nan = sign - (UINT64_C(1) << m);
    if (!m)
        return a;
    if (a == sign)
        return 0;
    return quiet && t != PICI_F8E4M3 && (a & (sign - 1)) > nan ? a | UINT64_C(1) << (m - 1) : a;
}

/* n elements with every ISA, into another buffer and in place. */
static void try_zeros(enum pici_dtype dtype, const uint8_t *src, uint64_t n, int quiet)
{
    const unsigned width = ref_width(dtype);
    const size_t bytes = (size_t)n * width;
    struct guard g, h;
    guard_init(&g, bytes + 16);
    guard_init(&h, bytes + 16);
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++)
        for (int in_place = 0; in_place < 2; in_place++) {
            const enum guard_side side = n & 1 ? GUARD_END : GUARD_START;
            uint8_t *from = guard_place(&g, bytes, side, n % 9), *to = guard_place(&h, bytes, side, n % 7);
            memcpy(from, src, bytes);
            pici_isa_force(*isa);
            pici_engine_host.positive_zeros(NULL, in_place ? from : to, from, n, dtype, quiet);
            cr_expect(guard_intact(&g) && guard_intact(&h), "positive_zeros wrote outside");
            cr_expect(in_place || !n || memcmp(from, src, bytes) == 0, "positive_zeros wrote its source");
            const uint8_t *got = in_place ? from : to;
            for (uint64_t i = 0, shown = 0; i < n && shown < 5; i++) {
                const uint64_t a = ref_load(src, i, width), want = model_zeros(dtype, a, quiet);
                cr_expect(!quiet || !mantissa[dtype] || want == ref_add(dtype, 0, a), "the model: %llx",
                          (unsigned long long)a);
                if (ref_load(got, i, width) != want) {
                    shown++;
                    cr_expect_fail("%s %s%s: element %llu of %llu, %llx, gave %llx, not %llx", (*isa)->name,
                                   pici_dtype_name(dtype), in_place ? " in place" : "", (unsigned long long)i,
                                   (unsigned long long)n, (unsigned long long)a,
                                   (unsigned long long)ref_load(got, i, width), (unsigned long long)want);
                }
            }
        }
    pici_isa_force(NULL);
    guard_free(&g);
    guard_free(&h);
}

/* Random elements; and few of which anything changes, at either end of a piece and between. */
Test(coll_zeros, engine)
{
    static const uint64_t lengths[] = {0, 1, 2, 7, 15, 63, 64, 65, 511, 512, 513, 1025, 4095, 4096, 4097, 9001};
    uint8_t *src = test_alloc(9001 * 8);
    struct rng r = {3};
    for (enum pici_dtype t = PICI_F32; t <= PICI_U64; t++) {
        const unsigned width = ref_width(t);
        const uint64_t sign = UINT64_C(1) << (8 * width - 1);
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            const uint64_t n = lengths[l];
            pattern_fill(src, n, t, PATTERN_70, &r);
            try_zeros(t, src, n, 0);
            try_zeros(t, src, n, 1);
            memset(src, 0, (size_t)n * width);
            for (uint64_t i = 0; i < n; i += 1 + n / 5) {
                ref_store(src, i, width, sign);
                try_zeros(t, src, n, 1);
                ref_store(src, i, width, 0);
            }
        }
    }
    free(src);
}

Test(coll_zeros, engine_quantize)
{
    static const enum pici_dtype dtypes[] = {PICI_F8E4M3, PICI_F8E5M2, PICI_F16, PICI_BF16};
    uint8_t *all = test_alloc(2 * 65536);
    for (unsigned d = 0; d < 4; d++) {
        const uint64_t n = UINT64_C(1) << 8 * ref_width(dtypes[d]);
        for (uint64_t i = 0; i < n; i++)
            ref_store(all, i, ref_width(dtypes[d]), i);
        try_zeros(dtypes[d], all, n, 0);
        try_zeros(dtypes[d], all, n, 1);
    }
    free(all);
}

/* ---- collectives ---- */

static const enum pici_dtype floats[] = {PICI_F32, PICI_F64, PICI_F16, PICI_BF16, PICI_F8E4M3, PICI_F8E5M2};
enum { FLOATS = sizeof floats / sizeof *floats };

static int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 17};

static uint64_t negative_zeros(const void *p, uint64_t n, enum pici_dtype t)
{
    const unsigned width = ref_width(t);
    uint64_t found = 0;
    for (uint64_t i = 0; i < n; i++)
        found += ref_load(p, i, width) == UINT64_C(1) << (8 * width - 1);
    return found;
}

/* The same data sent dense, sparse, and as its sparsity says: each result is the model's, so all are the same. Returns
 * the negative zeros in the results of all ranks. */
static uint64_t check(struct coll_team *team, struct coll_case *c, struct rng *r)
{
    static const enum pici_format formats[] = {PICI_AUTO, PICI_BITMAP, PICI_COO, PICI_HYBRID};
    static const float thresholds[] = {1, 0, 0.5f};
    uint64_t found = 0;
    for (int i = 0; i < 3; i++) {
        c->opts.format = formats[rng_below(r, 4)];
        c->opts.inter_threshold = c->opts.intra_threshold = c->opts.ag_threshold = thresholds[i];
        const char *wrong = coll_team_check(team, c);
        cr_assert(!wrong, "%s", wrong);
        for (int rank = 0; rank < team->p; rank++)
            found += negative_zeros(team->rank[rank].received, coll_receives(c, team->p), c->dtype);
    }
    return found;
}

/* Counts about the ranks and about a tile. */
static uint64_t count_random(struct rng *r, int p)
{
    const uint64_t ranks = (uint64_t)p, counts[] = {0, 1, ranks - 1, ranks, ranks + 1, 100, 1000, 4097};
    return counts[rng_below(r, sizeof counts / sizeof *counts)];
}

ParameterizedTestParameters(coll_zeros, sums)
{
    return cr_make_param_array(int, rank_counts, sizeof rank_counts / sizeof *rank_counts);
}

ParameterizedTest(int *ranks, coll_zeros, sums)
{
    static const enum pattern patterns[] = {PATTERN_ZERO, PATTERN_1, PATTERN_30, PATTERN_90, PATTERN_SINGLE};
    struct coll_team team;
    struct rng rng = {(uint64_t)*ranks};
    uint64_t kept = 0;
    alarm(WATCHDOG_S);
    coll_team_init(&team, *ranks);
    for (int a = 1; a <= coll_algorithms(); a++)
        for (int t = 0; t < FLOATS; t++)
            for (int op = PICI_SUM; op <= PICI_MAX; op++) {
                struct coll_case c = {.op = (enum pici_op)op, .opts.algorithm = (enum pici_algorithm)a};
                coll_case_options(&c, &rng, *ranks);
                c.dtype = floats[t];
                c.collective = rng_below(&rng, 2) || !coll_has(c.opts.algorithm, PICI_REDUCE_SCATTER)
                                   ? PICI_ALL_REDUCE
                                   : PICI_REDUCE_SCATTER;
                c.count = count_random(&rng, *ranks);
                c.pattern = patterns[rng_below(&rng, 5)];
                c.zeros = rng_below(&rng, 3) ? ZEROS_HALF_NEGATIVE : ZEROS_NEGATIVE;
                c.tiny = (int)rng_below(&rng, 2);
                if (left_out(&rng))
                    continue;
                const uint64_t found = check(&team, &c, &rng);
                if (op == PICI_SUM || op == PICI_AVG)
                    cr_assert_eq(found, 0u, "%s: %llu negative zeros", coll_case_words(&c, *ranks),
                                 (unsigned long long)found);
                else
                    kept += found;
            }
    cr_expect_gt(kept, 0u, "minimum and maximum keep negative zeros");
    coll_team_free(&team);
}

/* Many slices, some of them in flight. */
Test(coll_zeros, slices)
{
    struct rng rng = {11};
    alarm(WATCHDOG_S);
    for (int i = 0; i < 24; i++) {
        const int p = 1 + i % 5;
        struct coll_team team;
        const enum pici_collective collective = i % 2 ? PICI_ALL_REDUCE : PICI_REDUCE_SCATTER;
        struct coll_case c = {.op = i / 2 % 2 ? PICI_AVG : PICI_SUM,
                              .collective = collective,
                              .opts.algorithm = coll_algorithm((uint64_t)i / 5, collective)};
        coll_team_init(&team, p);
        coll_case_options(&c, &rng, p);
        c.dtype = floats[i % FLOATS];
        c.count = 4096 * (uint64_t)(5 * (c.collective == PICI_ALL_REDUCE ? p : 1)) + 77;
        c.opts.slice_bytes = 4096 * ref_width(c.dtype);
        c.pattern = PATTERN_1;
        c.zeros = ZEROS_HALF_NEGATIVE;
        cr_assert_eq(check(&team, &c, &rng), 0u, "%s", coll_case_words(&c, p));
        coll_team_free(&team);
    }
}

/* By hand: an average of -denormals that rounds to zero, a rank alone, and a signaling NaN, which (+0) + a makes
 * quiet. */
struct known {
    struct coll_team team;
    enum pici_op op;
    int in_place;
    uint32_t send[4][3], recv[4][3];
    enum pici_status status[4];
};

static void known_rank(void *context, int rank)
{
    struct known *k = context;
    uint32_t *recv = k->recv[rank];
    if (k->in_place)
        memcpy(recv, k->send[rank], sizeof k->send[rank]);
    k->status[rank] =
        pici_all_reduce(k->in_place ? recv : k->send[rank], recv, 3, PICI_F32, k->op, k->team.comm[rank], NULL);
}

Test(coll_zeros, known)
{
    static const int ranks[] = {1, 2, 4};
    for (int i = 0; i < 12; i++) {
        struct known k = {.op = i & 1 ? PICI_AVG : PICI_SUM, .in_place = i >> 1 & 1};
        const int p = ranks[i / 4];
        coll_team_init(&k.team, p);
        for (int r = 0; r < p; r++) {
            k.send[r][0] = 0x80000000;
            k.send[r][1] = r ? 0x80000000 : 0x80000001;
            k.send[r][2] = r == p - 1 ? 0x7f800001 : 0;
        }
        coll_threads(p, known_rank, &k);
        for (int r = 0; r < p; r++) {
            cr_assert_eq(k.status[r], PICI_OK);
            cr_expect_eq(k.recv[r][0], 0u, "-0.0 of all %d ranks: %#x", p, (unsigned)k.recv[r][0]);
            cr_expect_eq(k.recv[r][1], k.op == PICI_SUM || p == 1 ? 0x80000001u : 0u, "-denormal, %d ranks: %#x", p,
                         (unsigned)k.recv[r][1]);
            cr_expect_eq(k.recv[r][2], 0x7fc00001u, "NaN, %d ranks: %#x", p, (unsigned)k.recv[r][2]);
        }
        coll_team_free(&k.team);
    }
}

/* ---- all-gather by value ---- */

ParameterizedTestParameters(coll_zeros, gather)
{
    return cr_make_param_array(int, rank_counts, sizeof rank_counts / sizeof *rank_counts);
}

/* Exact it keeps -0.0; by value it gives +0.0 and leaves all else, NaNs included. */
ParameterizedTest(int *ranks, coll_zeros, gather)
{
    struct coll_team team;
    struct rng rng = {50 + (uint64_t)*ranks};
    uint64_t found[2] = {0};
    alarm(WATCHDOG_S);
    coll_team_init(&team, *ranks);
    for (int i = 0; i < 8 * FLOATS; i++) {
        struct coll_case c = {.collective = PICI_ALL_GATHER,
                              .opts.algorithm = coll_algorithm((uint64_t)(i / FLOATS), PICI_ALL_GATHER)};
        coll_case_options(&c, &rng, *ranks);
        c.dtype = floats[i % FLOATS];
        c.count = count_random(&rng, *ranks);
        c.pattern = i & 1 ? PATTERN_8 : PATTERN_90;
        c.zeros = i & 2 ? ZEROS_HALF_NEGATIVE : ZEROS_NEGATIVE;
        for (int zeros = 0; zeros < 2 && !left_out(&rng); zeros++) {
            c.opts.zeros = (enum pici_zeros)zeros;
            found[zeros] += check(&team, &c, &rng);
        }
    }
    cr_expect_gt(found[PICI_ZEROS_EXACT], 0u);
    cr_expect_eq(found[PICI_ZEROS_BY_VALUE], 0u, "%llu negative zeros", (unsigned long long)found[PICI_ZEROS_BY_VALUE]);
    coll_team_free(&team);
}

Test(coll_zeros, option)
{
    struct pici_comm *comm[1];
    struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
    const float a[2] = {-0.0f, 1};
    uint32_t b[2];
    cr_assert_eq(pici_comm_threads(comm, 1), PICI_OK);
    o.zeros = PICI_ZEROS_BY_VALUE;
    for (int op = PICI_SUM; op <= PICI_MAX; op++) {
        const enum pici_status want = op < PICI_MIN ? PICI_OK : PICI_E_UNSUPPORTED;
        cr_expect_eq(pici_all_reduce(a, b, 2, PICI_F32, (enum pici_op)op, comm[0], &o), want, "op %d", op);
        cr_expect_eq(pici_reduce_scatter(a, b, 2, PICI_F32, (enum pici_op)op, comm[0], &o), want, "op %d", op);
    }
    cr_expect_eq(pici_all_gather(a, b, 2, PICI_F32, comm[0], &o), PICI_OK);
    cr_expect(b[0] == 0 && b[1] == 0x3f800000);
    cr_expect_eq(pici_all_gather(a, b, 2, PICI_U32, comm[0], &o), PICI_OK);
    cr_expect(b[0] == 0x80000000 && b[1] == 0x3f800000, "integers have no sign of zero");
    o.zeros = (enum pici_zeros)2;
    cr_expect_eq(pici_all_gather(a, b, 2, PICI_F32, comm[0], &o), PICI_E_UNSUPPORTED);
    cr_expect_eq(pici_all_reduce(a, b, 2, PICI_F32, PICI_SUM, comm[0], &o), PICI_E_UNSUPPORTED);
    pici_comm_free(comm[0]);
}

/* ---- what is sent ---- */

/* Sums send as many bytes, and as many blocks of each format, with -0.0 among the zeros as without; all-gather by value
 * too. Minimum, which must keep them, sends more. */
Test(coll_zeros, bytes_sent)
{
    static const struct {
        enum pici_collective collective;
        enum pici_op op;
        int same;
    } table[] = {{PICI_ALL_REDUCE, PICI_SUM, 1},
                 {PICI_ALL_REDUCE, PICI_AVG, 1},
                 {PICI_REDUCE_SCATTER, PICI_SUM, 1},
                 {PICI_REDUCE_SCATTER, PICI_MIN, 0},
                 {PICI_ALL_GATHER, PICI_SUM, 1}};
    enum { TABLE = sizeof table / sizeof *table };
    struct rng rng = {8};
    alarm(WATCHDOG_S);
    for (int i = 0; i < TABLE * 12; i++) {
        const int p = 2 + i % 5;
        struct coll_team team;
        struct coll_case c = {.collective = table[i % TABLE].collective,
                              .op = table[i % TABLE].op,
                              .dtype = floats[i / 2 % FLOATS],
                              .count = 20000,
                              .pattern = i & 1 ? PATTERN_1 : PATTERN_8,
                              .seed = rng_next(&rng),
                              .tame = 1,
                              .in_place = i & 4,
                              .opts = PICI_COLL_OPTS_INIT};
        struct pici_coll_stats stats[2][COLL_RANKS];
        c.opts.algorithm = coll_algorithm((uint64_t)i / TABLE, c.collective);
        c.opts.zeros = c.collective == PICI_ALL_GATHER ? PICI_ZEROS_BY_VALUE : PICI_ZEROS_EXACT;
        coll_team_init(&team, p);
        for (int negative = 0; negative < 2; negative++) {
            c.zeros = negative ? ZEROS_HALF_NEGATIVE : ZEROS_PLAIN;
            const char *wrong = coll_team_check(&team, &c);
            cr_assert(!wrong, "%s", wrong);
            for (int r = 0; r < p; r++)
                stats[negative][r] = team.rank[r].stats;
        }
        for (int r = 0; r < p; r++) {
            const struct pici_coll_stats *a = &stats[0][r], *b = &stats[1][r];
            if (!table[i % TABLE].same) {
                cr_expect_gt(b->wire_bytes, a->wire_bytes);
                continue;
            }
            cr_expect_eq(a->wire_bytes, b->wire_bytes, "%s: rank %d: %llu bytes, %llu with -0.0",
                         coll_case_words(&c, p), r, (unsigned long long)a->wire_bytes,
                         (unsigned long long)b->wire_bytes);
            cr_expect(memcmp(a->sends, b->sends, sizeof a->sends) == 0 &&
                          memcmp(a->tiles, b->tiles, sizeof a->tiles) == 0,
                      "%s: rank %d: other formats or containers", coll_case_words(&c, p), r);
        }
        coll_team_free(&team);
    }
}
