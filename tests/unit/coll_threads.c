/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The collectives give right results: every number of ranks, algorithm, collective, operation and dtype, with random
 * counts, options, nodes and data. Each rank's bytes are compared with a model that adds in the algorithm's order.
 * Since dense and sparse runs are both held against it, they agree with each other. PICI_TEST_FULL=1 draws more of
 * everything. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/util/coll.h"
#include "formats/ref.h"

/* Whoever hangs is killed, which Criterion calls a crash. Waits inside the collectives end after 60 s of silence. */
enum { WATCHDOG_S = 900 };

struct which {
    enum pici_collective collective;
    enum pici_op op;
};

static const struct which whichs[] = {
    {PICI_ALL_GATHER, PICI_SUM},     {PICI_REDUCE_SCATTER, PICI_SUM}, {PICI_REDUCE_SCATTER, PICI_AVG},
    {PICI_REDUCE_SCATTER, PICI_MIN}, {PICI_REDUCE_SCATTER, PICI_MAX}, {PICI_ALL_REDUCE, PICI_SUM},
    {PICI_ALL_REDUCE, PICI_AVG},     {PICI_ALL_REDUCE, PICI_MIN},     {PICI_ALL_REDUCE, PICI_MAX},
    {PICI_BROADCAST, PICI_SUM},      {PICI_ALL_GATHERV, PICI_SUM},
};
enum { WHICHS = sizeof whichs / sizeof *whichs };

static int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 17};
enum { RANK_COUNTS = sizeof rank_counts / sizeof *rank_counts };

/* Counts about the ranks and about a tile; one that makes several slices of 4096 elements of each segment. */
static uint64_t count_random(struct rng *r, int p)
{
    const uint64_t ranks = (uint64_t)p;
    const uint64_t counts[] = {0, 1, ranks - 1, ranks, ranks + 1, 100, 1000, 4095, 4096, 4097};
    return counts[rng_below(r, sizeof counts / sizeof *counts)];
}

static void check(struct coll_team *team, const struct coll_case *c)
{
    const char *wrong = coll_team_check(team, c);
    cr_assert(!wrong, "%s", wrong);
}

ParameterizedTestParameters(coll_threads, matrix)
{
    return cr_make_param_array(int, rank_counts, RANK_COUNTS);
}

ParameterizedTest(int *ranks, coll_threads, matrix)
{
    const int algorithms = coll_algorithms();
    struct coll_team team;
    struct rng rng = {(uint64_t)*ranks};
    alarm(WATCHDOG_S);
    coll_team_init(&team, *ranks);
    for (int times = test_full() ? 12 : 1; times--;)
        for (int a = 0; a <= algorithms; a++)
            for (int w = 0; w < WHICHS; w++)
                for (int t = PICI_F32; t <= PICI_U64 && coll_has((enum pici_algorithm)a, whichs[w].collective); t++) {
                    struct coll_case c = {.collective = whichs[w].collective,
                                          .op = whichs[w].op,
                                          .dtype = (enum pici_dtype)t,
                                          .count = count_random(&rng, *ranks),
                                          .opts.algorithm = (enum pici_algorithm)a};
                    if (a == PICI_ALGO_AUTO ? rng_chance(&rng, 700000) : left_out(&rng))
                        continue;
                    coll_case_options(&c, &rng, *ranks);
                    check(&team, &c);
                }
    coll_team_free(&team);
}

/* Many slices, few of them at a time. */
ParameterizedTestParameters(coll_threads, rounds)
{
    static int ranks[] = {2, 3, 4, 5, 7, 9};
    return cr_make_param_array(int, ranks, sizeof ranks / sizeof *ranks);
}

ParameterizedTest(int *ranks, coll_threads, rounds)
{
    struct coll_team team;
    struct rng rng = {100 + (uint64_t)*ranks};
    alarm(WATCHDOG_S);
    coll_team_init(&team, *ranks);
    for (int i = 0; i < (test_full() ? 120 : 20); i++) {
        struct coll_case c = {.collective = whichs[i % WHICHS].collective,
                              .op = whichs[i % WHICHS].op,
                              .dtype = (enum pici_dtype)(1 + rng_below(&rng, 14)),
                              .opts.algorithm =
                                  coll_algorithm((uint64_t)(i + i / WHICHS), whichs[i % WHICHS].collective)};
        c.count = 4096 * rng_below(&rng, 24) + rng_below(&rng, 3) - 1 + 4096;
        if (c.collective == PICI_ALL_REDUCE || (c.collective == PICI_BROADCAST && i & 1))
            c.count *= (uint64_t)*ranks;
        coll_case_options(&c, &rng, *ranks);
        c.opts.slice_bytes = 4096 * (1 + rng_below(&rng, 2)) * ref_width(c.dtype);
        c.opts.window = 1 + (int)rng_below(&rng, 6);
        check(&team, &c);
    }
    coll_team_free(&team);
}

/* A million elements, in slices of the default size. */
Test(coll_threads, million)
{
    static const int ranks[] = {2, 3, 5};
    struct rng rng = {1000003};
    alarm(WATCHDOG_S);
    for (int i = 0; i < (test_full() ? 45 : 15); i++) {
        const int p = i / 15 == 1 ? 17 : ranks[i % 3];
        struct coll_team team;
        const enum pici_collective collective = p <= 5  ? coll_collectives[i / 3 % COLL_COLLECTIVES]
                                                : i % 2 ? PICI_BROADCAST
                                                        : PICI_ALL_REDUCE;
        struct coll_case c = {.collective = collective,
                              .op = (enum pici_op)rng_below(&rng, 4),
                              .dtype = (enum pici_dtype)(1 + rng_below(&rng, 14)),
                              .count = 1000003,
                              .opts.algorithm = coll_algorithm((uint64_t)(i + i / WHICHS), collective)};
        if (coll_is_gather(c.collective))
            c.op = PICI_SUM;
        coll_team_init(&team, p);
        coll_case_options(&c, &rng, p);
        check(&team, &c);
        coll_team_free(&team);
    }
}

/* ---- more bytes than 32 bits count ---- */

/* Element i of a rank: a run of short waves among zeros, which differ by rank. No array is kept of what should come
 * out. */
static uint8_t huge_value(uint64_t i, int rank)
{
    const uint64_t x = (i + (uint64_t)rank * 77) % 9973;
    return x < 200 ? (uint8_t)(x * (x + (uint64_t)rank + 3) + (i >> 20)) : 0;
}

struct huge {
    struct coll_team team;
    uint64_t n;
    uint8_t *data[2];
    enum pici_status status[2];
    uint64_t wrong[2];
};

static void huge_rank(void *context, int rank)
{
    struct huge *h = context;
    uint8_t *data = h->data[rank];
    for (uint64_t i = 0; i < h->n; i++)
        data[i] = huge_value(i, rank);
    h->status[rank] = pici_all_reduce(data, data, h->n, PICI_U8, PICI_SUM, h->team.comm[rank], NULL);
    for (uint64_t i = 0; i < h->n; i++)
        h->wrong[rank] += data[i] != (uint8_t)(huge_value(i, 0) + huge_value(i, 1));
}

Test(coll_threads, beyond_2_gib)
{
    struct huge h = {.n = (UINT64_C(1) << 31) + 4097};
    if (!test_full()) {
        printf("skip: collectives of more than 2^31 bytes, in 4.3 GB of memory (PICI_TEST_FULL=1 has it)\n");
        return;
    }
    alarm(WATCHDOG_S);
    for (int i = 0; i < 2; i++) {
        h.data[i] = malloc((size_t)h.n);
        if (!h.data[i]) {
            printf("skip: collectives of more than 2^31 bytes: no memory\n");
            return;
        }
    }
    coll_team_init(&h.team, 2);
    coll_threads(2, huge_rank, &h);
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(h.status[i], PICI_OK, "%s", pici_comm_error(h.team.comm[i]));
        cr_expect_eq(h.wrong[i], 0u);
        free(h.data[i]);
    }
    coll_team_free(&h.team);
}

/* ---- the model itself, on examples done by hand ---- */

Test(coll_threads, arithmetic)
{
    static const struct {
        enum pici_dtype dtype;
        enum pici_op op;
        uint64_t a, b, want;
    } reductions[] = {
        {PICI_F32, PICI_SUM, 0x3f800000, 0x40000000, 0x40400000},
        {PICI_F32, PICI_SUM, 0x80000000, 0, 0x80000000},
        {PICI_F32, PICI_MIN, 0, 0x80000000, 0x80000000},
        {PICI_F32, PICI_MAX, 0x80000000, 0, 0},
        {PICI_F32, PICI_MIN, 0x3f800000, 0xff800000, 0xff800000},
        {PICI_F32, PICI_MAX, 0x3f800000, 0x7f800001, 0x7fc00001},
        {PICI_F32, PICI_MIN, 0xffc00005, 0x7f800001, 0xffc00005},
        {PICI_F64, PICI_MAX, UINT64_C(1) << 63 | 1, 0, 0},
        {PICI_F16, PICI_MIN, 0xc000, 0xbc00, 0xc000},
        {PICI_F8E4M3, PICI_MAX, 0x7e, 0x7f, 0x7f},
        {PICI_F8E4M3, PICI_MIN, 0xfe, 0, 0xfe},
        {PICI_F8E5M2, PICI_MAX, 0x7c, 0x7d, 0x7f},
        {PICI_I8, PICI_MIN, 0x80, 0x7f, 0x80},
        {PICI_U8, PICI_MIN, 0x80, 0x7f, 0x7f},
        {PICI_I64, PICI_MAX, UINT64_MAX, 0, 0},
        {PICI_U64, PICI_MAX, UINT64_MAX, 0, UINT64_MAX},
    };
    static const struct {
        enum pici_dtype dtype;
        int p;
        uint64_t sum, want;
    } quotients[] = {
        {PICI_F32, 2, 0x3f800000, 0x3f000000},
        {PICI_F32, 3, 0x3f800000, 0x3eaaaaab},
        {PICI_F32, 2, 1, 0}, /* half of the least, a tie to even */
        {PICI_F32, 2, 3, 2},
        {PICI_F32, 3, 2, 1},
        {PICI_F32, 2, 0x00800000, 0x00400000},
        {PICI_F32, 2, 0x00800001, 0x00400000},
        {PICI_F32, 2, 0x00ffffff, 0x00800000},
        {PICI_F32, 7, 0xff800000, 0xff800000},
        {PICI_F32, 7, 0x80000000, 0},
        {PICI_F32, 4, 0x80000001, 0}, /* a denormal that becomes zero */
        {PICI_F32, 2, 0x80000003, 0x80000002},
        {PICI_F8E4M3, 4, 0x81, 0},
        {PICI_F64, 3, UINT64_C(0x3ff0000000000000), UINT64_C(0x3fd5555555555555)},
        {PICI_F64, 10, UINT64_C(0x3ff0000000000000), UINT64_C(0x3fb999999999999a)},
        {PICI_F16, 3, 0x3c00, 0x3555},
        {PICI_BF16, 3, 0x3f80, 0x3eab},
        {PICI_F8E4M3, 3, 0x38, 0x2b},
        {PICI_F8E5M2, 3, 0x3c, 0x35},
        {PICI_I8, 2, 0xfd, 0xff}, /* -3 / 2 */
        {PICI_I8, 2, 0x80, 0xc0},
        {PICI_U8, 2, 0xfd, 0x7e},
        {PICI_I64, 3, (uint64_t)-7, (uint64_t)-2},
    };
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++)
        cr_expect_eq(coll_reduce(reductions[i].dtype, reductions[i].op, reductions[i].a, reductions[i].b),
                     reductions[i].want, "reduce %zu", i);
    for (size_t i = 0; i < sizeof quotients / sizeof *quotients; i++)
        cr_expect_eq(coll_divide(quotients[i].dtype, quotients[i].sum, quotients[i].p), quotients[i].want,
                     "quotient %zu", i);

    /* all of f32's quotients that a random number meets, against the host's division */
    struct rng rng = {5};
    for (int i = 0; i < 100000; i++) {
        uint32_t bits = (uint32_t)rng_next(&rng), want;
        int p = 2 + (int)rng_below(&rng, 16);
        float f;
        memcpy(&f, &bits, 4);
        if (f != f)
            continue;
        f /= (float)p;
        memcpy(&want, &f, 4);
        want = want == 0x80000000 ? 0 : want;
        cr_assert_eq(coll_divide(PICI_F32, bits, p), want, "%#x / %d", (unsigned)bits, p);
    }
}
