/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The policy: examples worked out by hand, and what must hold for any sequence of sends. */
#include <criterion/criterion.h>

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "predict/policy.h"
#include "tests/util/util.h"

Test(coll_policy, defaults)
{
    static const struct {
        enum pici_format format;
        float inter, intra, ag;
    } cases[] = {{PICI_BITMAP, 0.5F, 0.6F, 0.1F},
                 {PICI_AUTO, 0.5F, 0.6F, 0.1F},
                 {PICI_COO, 0.6F, 0.7F, 0.5F},
                 {PICI_HYBRID, 0.5F, 0.6F, 0.1F},
                 {PICI_DENSE, 1, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const struct policy_thresholds unsaid = {{-1, -1}, -1}, said = {{0.25F, 0.125F}, 0};
        const enum pici_format f = cases[i].format;
        cr_expect_eq(pici_policy_threshold(&unsaid, f, POLICY_INTER, 0), cases[i].inter);
        cr_expect_eq(pici_policy_threshold(&unsaid, f, POLICY_INTRA, 0), cases[i].intra);
        cr_expect_eq(pici_policy_threshold(&said, f, POLICY_INTER, 0), 0.25F);
        cr_expect_eq(pici_policy_threshold(&said, f, POLICY_INTRA, 0), 0.125F);
        for (int link = POLICY_INTER; link < POLICY_LINKS; link++) { /* what is gathered goes over all links */
            cr_expect_eq(pici_policy_threshold(&unsaid, f, (enum policy_link)link, 1), cases[i].ag);
            cr_expect_eq(pici_policy_threshold(&said, f, (enum policy_link)link, 1), 0);
        }
    }
}

Test(coll_policy, sparsity)
{
    cr_expect_eq(pici_policy_sparsity(0, 0), 1);
    cr_expect_eq(pici_policy_sparsity(0, 7), 1);
    cr_expect_eq(pici_policy_sparsity(7, 7), 0);
    cr_expect_eq(pici_policy_sparsity(1, 4), 0.75);
    cr_expect_eq(pici_policy_sparsity(UINT64_C(1) << 61, UINT64_C(1) << 63), 0.75);
}

Test(coll_policy, dense_at_the_threshold)
{
    /* Sparsity of nnz in ten, at each default: equal is dense, one more zero in ten million is not. */
    static const struct {
        uint64_t nnz;
        float threshold;
    } cases[] = {{9, 0.1F}, {5, 0.5F}, {4, 0.6F}, {3, 0.7F}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t million = cases[i].nnz * 1000000;
        cr_expect(pici_policy_dense(pici_policy_sparsity(cases[i].nnz, 10), cases[i].threshold));
        cr_expect(pici_policy_dense(pici_policy_sparsity(million + 1, 10000000), cases[i].threshold));
        cr_expect(!pici_policy_dense(pici_policy_sparsity(million - 1, 10000000), cases[i].threshold));
    }
    /* The comparison is one of floats: a zero more in 10^10 makes no difference. */
    cr_expect(pici_policy_dense(pici_policy_sparsity(3999999999, 10000000000), 0.6F));
}

Test(coll_policy, never_and_always)
{
    cr_expect(!pici_policy_dense(0, 0));
    cr_expect(!pici_policy_dense(1, 0));
    cr_expect(!pici_policy_dense(0, -1));
    cr_expect(!pici_policy_dense(0, NAN));
    cr_expect(pici_policy_dense(0, 1));
    cr_expect(pici_policy_dense(1, 1));
    cr_expect(pici_policy_dense(pici_policy_sparsity(0, 0), 1));
    cr_expect(!pici_policy_dense(pici_policy_sparsity(0, 0), 0.999F));
}

/* A send that must be counted: its density, and what becomes of it. */
static int counted(struct policy_history *c, double density, float threshold)
{
    double unused;
    cr_assert(pici_policy_count(c, threshold, c->contributions + 1, &unused));
    int dense = pici_policy_dense(1 - density, threshold);
    pici_policy_sent(c, density, c->contributions + 1, dense);
    return dense;
}

/* A send that goes dense uncounted: its density. */
static double uncounted(struct policy_history *c, float threshold)
{
    double density;
    cr_assert(!pici_policy_count(c, threshold, c->contributions + 1, &density));
    pici_policy_sent(c, density, c->contributions + 1, 1);
    return density;
}

static int near(double x, double y)
{
    return fabs(x - y) < 1e-12;
}

/* Half of the elements nonzero, at a threshold of a half: each step adds half of what was still zero. */
Test(coll_policy, extrapolates_over_steps)
{
    struct policy_history c;
    pici_policy_begin(&c);
    cr_expect(counted(&c, 0.5, 0.5F));
    cr_expect_eq(uncounted(&c, 0.5F), 0.75);
    cr_expect_eq(uncounted(&c, 0.5F), 0.875);
    cr_expect_eq(uncounted(&c, 0.5F), 0.9375);

    /* 40% at 0.6: 1 - 0.6^2 = 0.64, 1 - 0.6^3 = 0.784, 1 - 0.6^4 = 0.8704 */
    pici_policy_begin(&c);
    cr_expect(counted(&c, 0.4, 0.6F));
    cr_expect(near(uncounted(&c, 0.6F), 0.64));
    cr_expect(near(uncounted(&c, 0.6F), 0.784));
    cr_expect(near(uncounted(&c, 0.6F), 0.8704));
}

/* A message is predicted by the contributions that it has more than the one before: none, where each is sent alone; as
 * many again, where sums are doubled. */
Test(coll_policy, predicts_by_contributions)
{
    struct policy_history alone, doubled;
    double density;
    pici_policy_begin(&alone);
    pici_policy_sent(&alone, 0.5, 1, 1);
    cr_expect(!pici_policy_count(&alone, 0.5F, 1, &density) && density == 0.5);
    doubled = alone;
    cr_expect(!pici_policy_count(&doubled, 0.5F, 2, &density) && density == 0.75);
    pici_policy_sent(&doubled, density, 2, 1);
    cr_expect(!pici_policy_count(&doubled, 0.5F, 4, &density) && density == 0.9375);
    pici_policy_sent(&doubled, density, 4, 1);
    cr_expect(!pici_policy_count(&doubled, 0.5F, INT_MAX, &density) && density == 1); /* and this ends */
}

/* Sparse sends are counted, each of them, until one is dense; from its density on it is extrapolated. */
Test(coll_policy, fills_in)
{
    struct policy_history c;
    pici_policy_begin(&c);
    cr_expect(!counted(&c, 0.25, 0.5F));
    cr_expect(!counted(&c, 0.4375, 0.5F));     /* 1 - 0.75^2 */
    cr_expect(counted(&c, 0.6, 0.5F));         /* fewer coincide than chance has it */
    cr_expect(near(uncounted(&c, 0.5F), 0.7)); /* 1 - 0.4 * 0.75 */
}

/* Slices of nonzeros at the same places on all ranks: the next segment's is empty, and the neighbour says so. */
Test(coll_policy, recalibrates)
{
    struct policy_history c;
    pici_policy_begin(&c);
    cr_expect(counted(&c, 0.75, 0.5F));
    pici_policy_received(&c, 1);
    cr_expect_eq(uncounted(&c, 0.5F), 0.9375);
    pici_policy_received(&c, 0);
    pici_policy_received(&c, 1); /* of two messages one is enough */
    cr_expect(!counted(&c, 0, 0.5F));
    pici_policy_received(&c, 1);
    cr_expect(counted(&c, 0.5, 0.5F));
    cr_expect_eq(uncounted(&c, 0.5F), 0.875); /* 1 - 0.5 * 0.25: the first send stays the measure of a contribution */

    pici_policy_received(&c, 0); /* a doubt that the count does not confirm */
    cr_expect(counted(&c, 0.75, 0.5F));
    cr_expect_eq(uncounted(&c, 0.5F), 0.9375);
}

/* From inside a node, at 0.6, to another: 0.58 squared is 0.3364, dense at 0.5 but not at 0.3. */
Test(coll_policy, links_differ)
{
    struct policy_history c;
    pici_policy_begin(&c);
    cr_expect(counted(&c, 0.42, 0.6F));
    struct policy_history d = c;
    cr_expect(near(uncounted(&c, 0.5F), 0.6636));
    cr_expect(!counted(&d, 0.6636, 0.3F));
}

Test(coll_policy, a_phase_decides_anew)
{
    struct policy_history c;
    pici_policy_begin(&c);
    cr_expect(counted(&c, 0.9, 0.5F));
    cr_expect(near(uncounted(&c, 0.5F), 0.99));
    pici_policy_begin(&c);
    cr_expect(!counted(&c, 0.875, 0.1F));
    pici_policy_begin(&c);
    cr_expect(counted(&c, 0.9375, 0.1F));
}

Test(coll_policy, never_and_always_in_a_chain)
{
    struct policy_history c;
    pici_policy_begin(&c);
    for (int i = 0; i < 3; i++)
        cr_expect_eq(uncounted(&c, 1), POLICY_UNKNOWN);
    cr_expect(counted(&c, 0.75, 0.5F)); /* nothing was known */
    cr_expect_eq(uncounted(&c, 1), POLICY_UNKNOWN);
    cr_expect_eq(uncounted(&c, 0.5F), 0.9375); /* of what was, nothing is forgotten */

    pici_policy_begin(&c);
    for (int i = 0; i < 3; i++)
        cr_expect(!counted(&c, 1, 0));
}

/* For any sequence of sends: a message that is sparse was counted and is above its threshold. With one threshold, and
 * no sparse message received, nonzeros are counted until a message is dense, and never again. */
Test(coll_policy, leaves_dense_with_gain_only)
{
    struct rng rng = {42};
    for (int round = 0; round < 20000; round++) {
        struct policy_history c;
        int steady = round & 1, went_dense = 0;
        float threshold = (float)rng_below(&rng, 1001) / 1000;
        pici_policy_begin(&c);
        for (int k = 0; k < 12; k++) {
            double truth = (double)rng_below(&rng, 1001) / 1000, taken;
            if (!steady) {
                threshold = (float)rng_below(&rng, 1001) / 1000;
                pici_policy_received(&c, (int)rng_below(&rng, 2));
            }
            double last = c.last_density;
            int count = pici_policy_count(&c, threshold, k + 1, &taken);
            cr_assert(!(steady && went_dense && count));
            cr_assert(count || threshold >= 1 ||
                      (taken >= last && taken <= 1 && pici_policy_dense(1 - taken, threshold)));
            int dense = !count || pici_policy_dense(1 - truth, threshold);
            cr_assert(dense || (float)(1 - truth) > threshold || threshold == 0);
            pici_policy_sent(&c, count ? truth : taken, k + 1, dense);
            went_dense |= dense;
        }
    }
}

/* ---- formats ---- */

enum { OLD = 1u << PICI_BITMAP | 1u << PICI_COO, ALL = OLD | 1u << PICI_HYBRID };

/* Over a link so slow that bytes alone count. */
static enum pici_format by_bytes(enum pici_dtype t, const uint64_t *n, const uint64_t *nnz, int blocks,
                                 unsigned formats)
{
    const struct policy_auto by = {.formats = formats, .bandwidth = 1};
    return pici_policy_format(PICI_AUTO, t, n, nnz, blocks, &by);
}

/* One whole tile of f32. dense: 48 + 16384 = 16432. pici: the values begin at pad16(48 + 512 + 4) = 576. coo: at
 * pad16(48 + 4 nnz). */
Test(coll_policy, format_of_a_tile)
{
    static const struct {
        uint64_t nnz;
        enum pici_format format;
        size_t bytes;
    } cases[] = {{0, PICI_COO, 48},
                 {128, PICI_COO, 560 + 512},    /* pici 576 + 512 */
                 {129, PICI_BITMAP, 576 + 516}, /* coo too: a tie */
                 {3963, PICI_BITMAP, 16428},    /* 576 + 4 * 3963 */
                 {3964, PICI_DENSE, 16432},     /* pici too: a tie */
                 {4096, PICI_DENSE, 16432}};
    const uint64_t n = 4096;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum pici_format f = by_bytes(PICI_F32, &n, &cases[i].nnz, 1, OLD);
        cr_expect_eq(f, cases[i].format, "%ju: %s", (uintmax_t)cases[i].nnz, pici_format_name(f));
        cr_expect_eq(pici_policy_bytes(f, PICI_F32, &n, &cases[i].nnz, 1), cases[i].bytes);
    }
    cr_expect_eq(pici_policy_bytes(PICI_COO, PICI_F32, &n, &cases[2].nnz, 1), 576 + 516);
    cr_expect_eq(pici_policy_bytes(PICI_BITMAP, PICI_F32, &n, &cases[4].nnz, 1), 16432);

    /* hybrid: the directory ends at 64; a group of 4 bytes, 2 of descriptor, 16 + nnz, and padding to 8 */
    cr_expect_eq(by_bytes(PICI_F32, &n, &cases[0].nnz, 1, ALL), PICI_COO); /* 48 bytes, not 64 */
    cr_expect_eq(by_bytes(PICI_F32, &n, &cases[1].nnz, 1, ALL), PICI_HYBRID);
    cr_expect_eq(by_bytes(PICI_F32, &n, &cases[3].nnz, 1, ALL), PICI_BITMAP); /* a bitvector either way */
    cr_expect_eq(by_bytes(PICI_F32, &n, &cases[5].nnz, 1, ALL), PICI_DENSE);
    cr_expect_leq(llabs((long long)pici_policy_bytes(PICI_HYBRID, PICI_F32, &n, &cases[1].nnz, 1) -
                        (64 + 4 + 2 + 16 + 128 + 512 + 2)),
                  4);
}

Test(coll_policy, format_of_several_blocks)
{
    /* Alone the empty tile would be coo (48 bytes), the full one dense (16432). Together: dense 2 * 16432 = 32864. pici
     * 576 + 576 + 16384 = 17536. coo 48 + 16432 + 16384 = 32864. hybrid 64 + 64 + 16384 and a few bytes. */
    const uint64_t n[] = {4096, 4096}, nnz[] = {0, 4096};
    cr_expect_eq(pici_policy_bytes(PICI_DENSE, PICI_F32, n, nnz, 2), 32864);
    cr_expect_eq(pici_policy_bytes(PICI_BITMAP, PICI_F32, n, nnz, 2), 17536);
    cr_expect_eq(pici_policy_bytes(PICI_COO, PICI_F32, n, nnz, 2), 32864);
    cr_expect_leq(llabs((long long)pici_policy_bytes(PICI_HYBRID, PICI_F32, n, nnz, 2) - (128 + 16384 + 8)), 4);
    cr_expect_eq(by_bytes(PICI_F32, n, nnz, 2, OLD), PICI_BITMAP);
    cr_expect_eq(by_bytes(PICI_F32, n, nnz, 2, ALL), PICI_HYBRID);

    /* Empty blocks are 48 bytes in each format. */
    const uint64_t none[] = {0, 0, 0};
    cr_expect_eq(pici_policy_bytes(PICI_COO, PICI_F64, none, none, 3), 144);
    cr_expect_eq(pici_policy_bytes(PICI_HYBRID, PICI_F64, none, none, 3), 144);
    cr_expect_eq(by_bytes(PICI_F64, none, none, 3, ALL), PICI_DENSE);

    static const enum pici_format given[] = {PICI_DENSE, PICI_BITMAP, PICI_COO, PICI_HYBRID};
    const struct policy_auto by = {.formats = OLD, .bandwidth = 1};
    for (int i = 0; i < 4; i++)
        cr_expect_eq(pici_policy_format(given[i], PICI_F32, n, nnz, 2, &by), given[i]);
}

Test(coll_policy, bytes_beyond_memory)
{
    const uint64_t n[] = {UINT64_C(1) << 61, UINT64_C(1) << 61}, nnz[] = {1, 1};
    const struct policy_auto by = {.formats = ALL, .bandwidth = 1};
    cr_expect_eq(pici_policy_bytes(PICI_DENSE, PICI_F64, n, nnz, 1), 0);
    cr_expect_eq(pici_policy_bytes(PICI_HYBRID, PICI_F64, n, n, 1), 0);
    cr_expect_eq(pici_policy_bytes(PICI_DENSE, PICI_F32, n, nnz, 1), (UINT64_C(1) << 63) + 48);
    cr_expect_eq(pici_policy_bytes(PICI_DENSE, PICI_F32, n, nnz, 2), 0);
    cr_expect_eq(pici_policy_bytes(PICI_HYBRID, PICI_F32, n, n, 2), 0);
    cr_expect_eq(pici_policy_format(PICI_AUTO, PICI_F64, n, nnz, 2, &by), PICI_COO);
    cr_expect_eq(pici_policy_bytes(PICI_AUTO, PICI_F32, n, nnz, 1), 0);
    cr_expect_eq(pici_policy_bytes((enum pici_format)4, PICI_F32, n, nnz, 1), 0);
    cr_expect_eq(pici_policy_bytes(PICI_COO, (enum pici_dtype)0, n, nnz, 1), 0);
    cr_expect_eq(pici_policy_bytes(PICI_HYBRID, (enum pici_dtype)15, n, nnz, 1), 0);
    cr_expect_lt(pici_policy_seconds(PICI_DENSE, PICI_F32, nnz, nnz, 1, &by), 0);
    cr_expect_lt(pici_policy_seconds(PICI_AUTO, PICI_F32, nnz, nnz, 1, &by), 0);
    cr_expect_lt(pici_policy_seconds(PICI_BITMAP, PICI_F64, n, n, 2, &by), 0);
}

/* The codec's own lengths; and its own choice, where lengths are exact. */
Test(coll_policy, agrees_with_the_codec)
{
    static const uint64_t sizes[] = {0, 1, 63, 4095, 4096, 4097, 3 * 4096 + 5, 40000};
    struct rng rng = {7};
    uint8_t *src = test_alloc(40000 * 8), *block = test_alloc(40000 * 16);
    for (int i = 0; i < 2000; i++) {
        enum pici_dtype t = (enum pici_dtype)(PICI_F32 + rng_below(&rng, 14));
        uint64_t n = sizes[rng_below(&rng, sizeof sizes / sizeof *sizes)], nnz = 0;
        pattern_fill(src, n, t, (enum pattern)rng_below(&rng, PATTERNS), &rng);
        for (uint64_t e = 0; e < n; e++) {
            static const uint8_t zero[8];
            nnz += memcmp(src + e * pici_dtype_width(t), zero, pici_dtype_width(t)) != 0;
        }
        size_t len[PICI_HYBRID + 1];
        for (int f = PICI_DENSE; f <= PICI_HYBRID; f++) {
            cr_assert_eq(pici_compress(block, 40000 * 16, &len[f], src, n, t, (enum pici_format)f, NULL), PICI_OK);
            if (f != PICI_HYBRID)
                cr_assert_eq(pici_policy_bytes((enum pici_format)f, t, &n, &nnz, 1), len[f]);
        }
        const enum pici_format best = by_bytes(t, &n, &nnz, 1, OLD);
        for (int f = PICI_DENSE; f <= PICI_COO; f++)
            cr_assert(len[best] < len[f] || (len[best] == len[f] && (int)best <= f), "%s, %ju of %ju",
                      pici_dtype_name(t), (uintmax_t)nnz, (uintmax_t)n);
    }
    free(src);
    free(block);
}

/* The length expected of a hybrid block, and that of one with independent positions; then of one whose nonzeros
 * cluster. */
Test(coll_policy, expected_hybrid)
{
    enum { MOST = 1 << 20 };
    static const double densities[] = {0.0001, 0.0003, 0.001, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1,
                                       0.12,   0.15,   0.3,   0.5,   0.8,   0.87, 0.9,  0.97, 1};
    static const enum pici_dtype dtypes[] = {PICI_F32, PICI_BF16, PICI_F64, PICI_I8};
    static const struct {
        uint64_t n;
        double within;
    } sizes[] = {{MOST, 0.02}, {300001, 0.02}, {33 * 4096, 0.05}};
    struct rng rng = {11};
    const size_t cap = pici_bound(PICI_HYBRID, PICI_F64, MOST);
    uint8_t *src = test_alloc(MOST * 8), *block = test_alloc(cap);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            for (size_t i = 0; i < sizeof densities / sizeof *densities; i++) {
                const uint64_t n = sizes[k].n;
                const size_t width = pici_dtype_width(dtypes[d]);
                uint64_t nnz = 0;
                size_t len;
                memset(src, 0, (size_t)n * width);
                for (uint64_t e = 0; e < n; e++)
                    if ((double)(rng_next(&rng) >> 11) < densities[i] * 9007199254740992.0) {
                        src[e * width] = 1;
                        nnz++;
                    }
                cr_assert_eq(pici_compress(block, cap, &len, src, n, dtypes[d], PICI_HYBRID, NULL), PICI_OK);
                const double expected = (double)pici_policy_bytes(PICI_HYBRID, dtypes[d], &n, &nnz, 1);
                cr_expect(fabs(expected - (double)len) < sizes[k].within * (double)len + 24,
                          "%s, %ju of %ju: %g, not %zu", pici_dtype_name(dtypes[d]), (uintmax_t)nnz, (uintmax_t)n,
                          expected, len);

                memset(src, 0, (size_t)n * width);
                for (uint64_t e = 0; e < nnz; e++)
                    src[(n - nnz) / 3 * width + e * width] = 1;
                cr_assert_eq(pici_compress(block, cap, &len, src, n, dtypes[d], PICI_HYBRID, NULL), PICI_OK);
                cr_expect_leq((double)len, expected * 1.001 + 32, "%s, a run of %ju of %ju", pici_dtype_name(dtypes[d]),
                              (uintmax_t)nnz, (uintmax_t)n);
            }
    free(src);
    free(block);
}

/* More bandwidth means less time, until only coding counts. The choice goes from the fewest bytes to the least coding,
 * and takes each format at most once on its way. */
Test(coll_policy, time)
{
    static const double densities[] = {0, 0.0001, 0.001, 0.01, 0.05, 0.1, 0.3, 0.5, 0.9, 1};
    const uint64_t n = 1 << 20;
    for (int t = PICI_F32; t <= PICI_U64; t++)
        for (int gather = 0; gather < 2; gather++)
            for (size_t i = 0; i < sizeof densities / sizeof *densities; i++) {
                const uint64_t nnz = (uint64_t)((double)n * densities[i]);
                unsigned seen = 0;
                enum pici_format last = PICI_AUTO;
                double before[PICI_HYBRID + 1] = {0};
                size_t bytes = 0;
                for (double bandwidth = 1; bandwidth < 1e18; bandwidth *= 1.5) {
                    const struct policy_auto by = {ALL, bandwidth, gather, 0};
                    const enum pici_format f = pici_policy_format(PICI_AUTO, (enum pici_dtype)t, &n, &nnz, 1, &by);
                    const size_t now = pici_policy_bytes(f, (enum pici_dtype)t, &n, &nnz, 1);
                    for (int g = PICI_BITMAP; g <= PICI_HYBRID; g++) {
                        const double s = pici_policy_seconds((enum pici_format)g, (enum pici_dtype)t, &n, &nnz, 1, &by);
                        cr_assert(s > 0 && (!before[g] || s < before[g]));
                        before[g] = s;
                        cr_assert(f == PICI_DENSE || pici_policy_seconds(f, (enum pici_dtype)t, &n, &nnz, 1, &by) <= s);
                    }
                    cr_assert(f == last || !(seen >> f & 1), "%s again", pici_format_name(f));
                    cr_assert(f == PICI_DENSE || last == PICI_DENSE || now >= bytes, "fewer bytes on a faster link");
                    bytes = now;
                    seen |= 1u << f;
                    last = f;
                }
            }
}

/* What may be chosen is; dense is the answer where nothing else may be. */
Test(coll_policy, formats_allowed)
{
    const uint64_t n = 1 << 20, nnz = 1 << 13;
    for (unsigned formats = 0; formats < 16; formats++)
        for (double bandwidth = 1; bandwidth < 1e12; bandwidth *= 10) {
            const struct policy_auto by = {.formats = formats, .bandwidth = bandwidth};
            const enum pici_format f = pici_policy_format(PICI_AUTO, PICI_F32, &n, &nnz, 1, &by);
            cr_expect(f == PICI_DENSE ? !(formats & ALL) : formats >> f & 1, "%#x: %s", formats, pici_format_name(f));
        }
}

/* ---- packed messages ---- */

static struct policy_packing packing_of(enum pici_packing pack, enum policy_kernels kernels, double bandwidth)
{
    return (struct policy_packing){pack, kernels, {bandwidth, bandwidth}, {0, 0}};
}

/* Floats over slow links are packed, nothing over fast ones; with slower kernels sooner not. From some bandwidth on, no
 * faster one packs. */
Test(coll_policy, packs_by_time)
{
    const double values = 1 << 18;
    for (int t = PICI_F32; t <= PICI_F8E5M2; t++)
        for (int kernels = POLICY_PORTABLE; kernels < POLICY_KERNELS; kernels++)
            for (int gather = 0; gather < 2; gather++)
                for (int format = PICI_DENSE; format <= PICI_HYBRID; format += PICI_HYBRID) {
                    int before = 1;
                    for (double bandwidth = 1e6; bandwidth < 1e12; bandwidth *= 1.5) {
                        const struct policy_packing by =
                            packing_of(PICI_PACKING_AUTO, (enum policy_kernels)kernels, bandwidth);
                        const int packs = pici_policy_packs(&by, (enum pici_format)format, (enum pici_dtype)t, values,
                                                            POLICY_INTER, gather, 0);
                        cr_expect(before || !packs, "again at %g", bandwidth);
                        cr_expect(packs || bandwidth > 15e6, "not at %g", bandwidth);
                        cr_expect(!packs || bandwidth < 4e9, "at %g", bandwidth);
                        before = packs;
                    }
                }
    const struct policy_packing gigabit = packing_of(PICI_PACKING_AUTO, POLICY_AVX512, 1.25e8),
                                portable = packing_of(PICI_PACKING_AUTO, POLICY_PORTABLE, 3e8),
                                fast = packing_of(PICI_PACKING_AUTO, POLICY_AVX512, 3e8),
                                shared = packing_of(PICI_PACKING_AUTO, POLICY_AVX512, 5e9);
    cr_expect(pici_policy_packs(&gigabit, PICI_DENSE, PICI_F32, values, POLICY_INTER, 0, 0));
    cr_expect(pici_policy_packs(&gigabit, PICI_HYBRID, PICI_BF16, values, POLICY_INTER, 1, 0));
    cr_expect(pici_policy_packs(&fast, PICI_DENSE, PICI_F32, values, POLICY_INTER, 0, 0));
    cr_expect_not(pici_policy_packs(&portable, PICI_DENSE, PICI_F32, values, POLICY_INTER, 0, 0));
    for (int t = PICI_F32; t <= PICI_F8E5M2; t++)
        cr_expect_not(pici_policy_packs(&shared, PICI_DENSE, (enum pici_dtype)t, values, POLICY_INTRA, 0, 0));
}

/* Never integers, and nothing without a known bandwidth or with packing off. No short messages. Values that did not
 * pack are not tried again; values that packed well are packed over faster links too. */
Test(coll_policy, packs_what_pays)
{
    const double values = 1 << 18;
    const struct policy_packing slow = packing_of(PICI_PACKING_AUTO, POLICY_AVX512, 25e6),
                                unknown = packing_of(PICI_PACKING_AUTO, POLICY_AVX512, 0),
                                off = packing_of(PICI_PACKING_NONE, POLICY_AVX512, 25e6),
                                none = packing_of(PICI_PACKING_UNCHANGED, POLICY_AVX512, 25e6),
                                all = packing_of(PICI_PACKING_PLANES, POLICY_PORTABLE, 0),
                                fast = packing_of(PICI_PACKING_AUTO, POLICY_AVX512, 1.2e9);
    struct policy_packing measured = slow;
    for (int t = PICI_F32; t <= PICI_U64; t++) {
        const enum pici_dtype dtype = (enum pici_dtype)t;
        const int is_float = t <= PICI_F8E5M2;
        cr_expect_eq(pici_policy_packs(&slow, PICI_DENSE, dtype, values, POLICY_INTER, 0, 0), is_float);
        cr_expect_eq(pici_policy_packs(&all, PICI_COO, dtype, 0, POLICY_INTRA, 0, 1), is_float);
        cr_expect_not(pici_policy_packs(&unknown, PICI_DENSE, dtype, values, POLICY_INTER, 0, 0));
        cr_expect_not(pici_policy_packs(&off, PICI_DENSE, dtype, values, POLICY_INTER, 0, 0));
        cr_expect_not(pici_policy_packs(&none, PICI_DENSE, dtype, values, POLICY_INTER, 0, 0));
        cr_expect_not(pici_policy_packs(&slow, PICI_DENSE, dtype, 50, POLICY_INTER, 0, 0));
        cr_expect_not(pici_policy_packs(&slow, PICI_DENSE, dtype, values, POLICY_INTER, 0, 1));
        cr_expect_eq(pici_policy_packed(dtype, values, 1), values * (double)pici_dtype_width(dtype));
        cr_expect(is_float == (pici_policy_packed(dtype, values, 0) < values * (double)pici_dtype_width(dtype)));
    }
    cr_expect_not(pici_policy_packs(&fast, PICI_DENSE, PICI_F32, values, POLICY_INTER, 0, 0));
    cr_expect(pici_policy_packs(&fast, PICI_DENSE, PICI_F32, values, POLICY_INTER, 0, 0.5));
    measured.more[0] = 1e-8; /* a codec of 100 MB/s */
    cr_expect_not(pici_policy_packs(&measured, PICI_DENSE, PICI_F32, values, POLICY_INTER, 0, 0));
    cr_expect(pici_policy_packs(&measured, PICI_DENSE, PICI_F32, values, POLICY_INTER, 1, 0));
}

/* A buffer for the longest message holds packed blocks too. */
Test(coll_policy, packed_fits)
{
    for (int t = PICI_F32; t <= PICI_F8E5M2; t++)
        for (uint64_t n = 0; n < 1 << 20; n = 2 * n + 1)
            cr_expect(pici_policy_longest((enum pici_dtype)t, n) >= pici_bound(PICI_PACKED, (enum pici_dtype)t, n));
}

/* Less than a tile: to code it takes as long as an empty tile, 690 ns. Dense, 1 KiB takes 8 us over a link of 125 MB/s,
 * and 0.2 us over one of 5 GB/s. */
Test(coll_policy, less_than_a_tile)
{
    static const uint64_t n[] = {256, 1500, 4095, 4096, 1 << 20}, two[] = {256, 300}, many[] = {4000, 4000};
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        const struct policy_auto slow = {ALL, 1.25e8, 0, 0}, fast = {ALL, 5e9, 0, 0}, fastest = {ALL, 1e12, 0, 0};
        cr_expect_not(pici_policy_tiny(PICI_F32, &n[i], 1, &slow), "%d", (int)n[i]);
        cr_expect_eq(pici_policy_tiny(PICI_F32, &n[i], 1, &fast), n[i] == 256, "%d", (int)n[i]);
        cr_expect_eq(pici_policy_tiny(PICI_F32, &n[i], 1, &fastest), n[i] < 4096, "%d", (int)n[i]);
        cr_expect(pici_policy_tiny(PICI_F32, two, 2, &fast));
        cr_expect_not(pici_policy_tiny(PICI_F32, many, 2, &fastest));
    }
}
