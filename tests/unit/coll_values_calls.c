/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls with lossy codecs: errors are those of the algorithm, what is refused, ranks that disagree, statistics. */
#define _DEFAULT_SOURCE /* mkdtemp, setenv */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "coll/settings.h"
#include "tests/util/coll.h"
#include "tests/util/coll_values.h"
#include "values/values.h"

enum { WATCHDOG_S = 300, RANKS = 8 };

/* ---- one call among threads */

struct team {
    int p;
    struct pici_comm *comm[RANKS];
    struct values_case c[RANKS]; /* each rank's */
    struct values_rank rank[RANKS];
    enum pici_status status[RANKS];
};

static void team_rank(void *context, int rank)
{
    struct team *t = context;
    values_rank_make(&t->rank[rank], &t->c[rank], rank, t->p);
    t->status[rank] = values_rank_call(&t->rank[rank], &t->c[rank], t->comm[rank]);
}

static void team_open(struct team *t, int p)
{
    alarm(WATCHDOG_S);
    memset(t, 0, sizeof *t);
    t->p = p;
    cr_assert_eq(pici_comm_threads(t->comm, p), PICI_OK);
}

/* Buffers stay until team_close or the next call. */
static void team_call(struct team *t, const struct values_case *c)
{
    for (int i = 0; i < t->p; i++) {
        values_rank_free(&t->rank[i]);
        if (c)
            t->c[i] = *c;
    }
    coll_threads(t->p, team_rank, t);
}

static void team_close(struct team *t)
{
    for (int i = 0; i < t->p; i++) {
        values_rank_free(&t->rank[i]);
        pici_comm_free(t->comm[i]);
    }
}

static void expect_all(const struct team *t, enum pici_status want, const char *what)
{
    for (int i = 0; i < t->p; i++)
        cr_expect_eq(t->status[i], want, "%s: %s: rank %d: %s (%s)", what, values_words(&t->c[i], t->p), i,
                     pici_strerror(t->status[i]), pici_comm_error(t->comm[i]));
}

static struct values_case usual(void)
{
    return (struct values_case){.collective = PICI_ALL_REDUCE,
                                .algorithm = PICI_ALGO_RING,
                                .dtype = PICI_F32,
                                .count = 600,
                                .values = {.size = sizeof(struct pici_values), .codec = PICI_VALUES_QSGD},
                                .format = PICI_AUTO,
                                .window = 2,
                                .seed = 5};
}

/* ---- errors, by algorithm */

/* Mean of the squared errors of an all-reduce; of an all-gather, of its only encoding. */
static double mean_square(const struct team *t)
{
    const struct values_case *c = &t->c[0];
    double sum = 0;
    for (uint64_t i = 0; i < c->count; i++) {
        double want = 0;
        for (int r = 0; r < (c->collective == PICI_ALL_REDUCE ? t->p : 1); r++)
            want += values_load(c->dtype, t->rank[r].send, i);
        const double off = values_load(c->dtype, t->rank[0].recv, i) - want;
        sum += off * off;
    }
    return sum / (double)c->count;
}

static double log_2(int p)
{
    return p == 4 ? 2 : 3;
}

/* The variance of an all-reduce's result, in units of one contribution's encoding. An encoding of the sum of k
 * contributions has the variance k if they are independent, and k^2 if they are equal. */
static double expected(enum pici_algorithm algorithm, int p, int same)
{
    switch (algorithm) {
    case PICI_ALGO_RING: return same ? p * (p + 1) * (2 * p + 1) / 6.0 : p * (p + 1) / 2.0;
    case PICI_ALGO_RECURSIVE: return same ? p * (p - 1) / 2.0 + p * p : p / 2.0 * log_2(p) + p;
    case PICI_ALGO_SPLIT: return same ? p - 1.0 + p * p : 2.0 * p - 1;
    default: return same ? p * (p - 1.0) : p * log_2(p);
    }
}

/* If the data are the very same, a sum of what was quantized before lies near a step of the codec, and loses less. In 2
 * bits errors are larger than the data, and are rounded again as a part of sums. */
Test(coll_values_calls, errors_are_those_of_the_algorithm)
{
    for (int p = 4; p <= 8; p += 4)
        for (int bits = 2; bits <= 8; bits *= 2)
            for (int data = bits == 2 ? DATA_NORMAL : DATA_SAME; data <= DATA_ALIKE; data++) {
                const int same = data != DATA_NORMAL;
                struct team t;
                struct values_case c = usual();
                if ((data != DATA_SAME && data < DATA_NORMAL) || (data == DATA_ALIKE && bits < 8))
                    continue; /* the noise is to be much larger than a step of the codec */
                team_open(&t, p);
                c.data = (enum values_data)data;
                c.values.bits = bits;
                c.count = 65536;
                c.collective = PICI_ALL_GATHER;
                team_call(&t, &c);
                expect_all(&t, PICI_OK, "one encoding");
                const double one = mean_square(&t);
                c.collective = PICI_ALL_REDUCE;
                for (int algorithm = PICI_ALGO_RING; algorithm <= PICI_ALGO_DOUBLING; algorithm++) {
                    c.algorithm = (enum pici_algorithm)algorithm;
                    team_call(&t, &c);
                    expect_all(&t, PICI_OK, "errors");
                    const double ratio = mean_square(&t) / one, want = expected(c.algorithm, p, same);
                    cr_expect(ratio / want < (bits == 2 ? 3 : 1.25) && ratio / want > (data == DATA_SAME ? 0.3 : 0.75),
                              "%s, %d bits: %.3g, not %.3g encodings", values_words(&c, p), bits, ratio, want);
                    uint64_t events = 0, all = (uint64_t)(algorithm == PICI_ALGO_DOUBLING ? 2 * (p - 1) : p) * c.count;
                    double lost = 0;
                    for (int r = 0; r < p; r++) {
                        events += t.rank[r].stats.events;
                        lost += t.rank[r].stats.lost;
                        cr_expect(t.rank[r].stats.quantize_s > 0 && t.rank[r].stats.dequantize_s > 0 &&
                                  t.rank[r].stats.quantize_s <= t.rank[r].stats.encode_s && !t.rank[r].stats.nonfinite);
                        cr_expect_lt(t.rank[r].stats.wire_bytes * (uint64_t)(30 / bits),
                                     t.rank[r].stats.dense_bytes * 4);
                    }
                    cr_expect_eq(events, all, "%s: %llu events", values_words(&c, p), (unsigned long long)events);
                    cr_expect(fabs(lost / (double)c.count / one / ratio - 1) < 0.25, "%s: lost %g", values_words(&c, p),
                              lost / (double)c.count / one);
                }
                team_close(&t);
            }
}

/* The worst case of a call: the most that each event can lose. Of an element the most that ranks together have is
 * known, of QSGD in its bucket: `most`. An event that rounds by a part c of that loses more if there were errors before
 * it. */
static double worst_case(const struct values_case *c, int p, double most)
{
    const int events = c->algorithm == PICI_ALGO_DOUBLING ? 2 * (p - 1) : p;
    const int s = c->values.bits ? (1 << (c->values.bits - 1)) - 1 : 1; /* casts have no bits */
    const double part = c->values.codec == PICI_VALUES_CAST ? c->values.cast == PICI_F16 ? 0x1p-11 : 0x1p-8
                                                            : 1.0 / (c->values.rounding ? 2 * s : s);
    const double denormal = c->values.cast == PICI_F16 ? 0x1p-25 : 0; /* half of the least number */
    return events * (part * (1 + 0x1p-20) * most / (1 - events * part) + denormal);
}

/* No error is above the worst case, and identical contributions come near it. */
Test(coll_values_calls, errors_are_at_most_the_worst_case)
{
    enum { BUCKET = 1024, N = 64 * BUCKET }; /* segments are whole buckets */
    static const struct pici_values codecs[] = {
        {.size = sizeof *codecs, .codec = PICI_VALUES_CAST, .cast = PICI_BF16},
        {.size = sizeof *codecs, .codec = PICI_VALUES_CAST, .cast = PICI_F16},
        {.size = sizeof *codecs, .codec = PICI_VALUES_QSGD, .bits = 8},
        {.size = sizeof *codecs, .codec = PICI_VALUES_QSGD, .bits = 8, .rounding = PICI_ROUND_NEAREST},
        {.size = sizeof *codecs, .codec = PICI_VALUES_QSGD, .bits = 4}};
    for (int i = 0; i < 2 * 2 * 4 * 5; i++) {
        const int p = i % 2 ? 4 : 8;
        struct values_case c = usual();
        struct team t;
        double nearest = 0;
        c.data = i / 2 % 2 ? DATA_SAME : DATA_NORMAL;
        c.algorithm = (enum pici_algorithm)(PICI_ALGO_RING + i / 4 % 4);
        c.values = codecs[i / 16];
        c.count = N;
        if (c.values.bits == 4 && (p == 8 || c.algorithm == PICI_ALGO_DOUBLING))
            continue; /* as many events as steps in the scale have no worst case */
        team_open(&t, p);
        team_call(&t, &c);
        expect_all(&t, PICI_OK, "the worst case");
        for (uint64_t b = 0; b < N; b += BUCKET) {
            double most = 0;
            for (int r = 0; r < p; r++) {
                double greatest = 0;
                for (uint64_t j = b; j < b + BUCKET; j++)
                    greatest = fmax(greatest, fabs(values_load(c.dtype, t.rank[r].send, j)));
                most += greatest;
            }
            for (uint64_t j = b; j < b + BUCKET; j++) {
                double sum = 0, sizes = 0;
                for (int r = 0; r < p; r++) {
                    sum += values_load(c.dtype, t.rank[r].send, j);
                    sizes += fabs(values_load(c.dtype, t.rank[r].send, j));
                }
                const double off = fabs(values_load(c.dtype, t.rank[0].recv, j) - sum),
                             bound = worst_case(&c, p, c.values.codec == PICI_VALUES_CAST ? sizes : most);
                cr_assert_leq(off, bound, "%s: element %llu is off by %g", values_words(&c, p), (unsigned long long)j,
                              off);
                nearest = fmax(nearest, off / bound);
            }
        }
        cr_expect_gt(nearest, 0.05, "%s: a loose bound: %g", values_words(&c, p), nearest);
        team_close(&t);
    }
}

/* ---- refusals: at once, on all ranks, and the communicator goes on */

struct refusal {
    const char *what;
    enum pici_collective collective;
    enum pici_dtype dtype;
    enum pici_op op;
    uint64_t count;
    struct pici_values values;
    enum pici_status want;
};

#define V(...)                                                                                                         \
    {                                                                                                                  \
        .size = sizeof(struct pici_values), __VA_ARGS__                                                                \
    }
#define QSGD(...) V(.codec = PICI_VALUES_QSGD, __VA_ARGS__)
static const struct refusal refusals[] = {
    {"q of integers", PICI_ALL_REDUCE, PICI_I32, PICI_SUM, 60, QSGD(.bits = 8), PICI_E_UNSUPPORTED},
    {"cast of integers", PICI_ALL_GATHER, PICI_U8, PICI_SUM, 60, V(.codec = PICI_VALUES_CAST), PICI_E_UNSUPPORTED},
    {"q of f8", PICI_ALL_REDUCE, PICI_F8E4M3, PICI_SUM, 60, QSGD(.bits = 8), PICI_E_UNSUPPORTED},
    {"cast of f8", PICI_ALL_REDUCE, PICI_F8E5M2, PICI_SUM, 60, V(.codec = PICI_VALUES_CAST), PICI_E_UNSUPPORTED},
    {"cast of bf16", PICI_ALL_REDUCE, PICI_BF16, PICI_SUM, 60, V(.codec = PICI_VALUES_CAST), PICI_E_UNSUPPORTED},
    {"minimum of q", PICI_ALL_REDUCE, PICI_F32, PICI_MIN, 60, QSGD(.bits = 8), PICI_E_UNSUPPORTED},
    {"maximum of q", PICI_REDUCE_SCATTER, PICI_F32, PICI_MAX, 60, QSGD(.bits = 8), PICI_E_UNSUPPORTED},
    {"3 bits", PICI_ALL_REDUCE, PICI_F32, PICI_SUM, 60, QSGD(.bits = 3), PICI_E_ARG},
    {"16 bits", PICI_ALL_GATHER, PICI_F32, PICI_SUM, 60, QSGD(.bits = 16), PICI_E_ARG},
    {"a bucket of 32", PICI_ALL_REDUCE, PICI_F32, PICI_SUM, 60, QSGD(.bucket = 32), PICI_E_ARG},
    {"a bucket of 100", PICI_ALL_REDUCE, PICI_F32, PICI_SUM, 60, QSGD(.bucket = 100), PICI_E_ARG},
    {"a bucket of 8192", PICI_ALL_REDUCE, PICI_F32, PICI_SUM, 60, QSGD(.bucket = 8192), PICI_E_ARG},
    {"phases 4", PICI_ALL_REDUCE, PICI_F32, PICI_SUM, 60, QSGD(.phases = 4), PICI_E_ARG},
    {"a norm that is none", PICI_ALL_REDUCE, PICI_F32, PICI_SUM, 60, QSGD(.norm = (enum pici_norm)2), PICI_E_ARG},
    {"a rounding that is none", PICI_ALL_REDUCE, PICI_F32, PICI_SUM, 60, QSGD(.rounding = (enum pici_rounding)2),
     PICI_E_ARG},
    {"a cast to itself", PICI_ALL_REDUCE, PICI_F32, PICI_SUM, 60, V(.codec = PICI_VALUES_CAST, .cast = PICI_F32),
     PICI_E_ARG},
    {"a codec that is none", PICI_ALL_REDUCE, PICI_F32, PICI_SUM, 60, V(.codec = (enum pici_value_codec)4),
     PICI_E_UNSUPPORTED},
    {"a struct of no version",
     PICI_ALL_REDUCE,
     PICI_F32,
     PICI_SUM,
     60,
     {.size = 8, .codec = PICI_VALUES_QSGD},
     PICI_E_ARG},
    {"zfp of f16", PICI_ALL_REDUCE, PICI_F16, PICI_SUM, 60, V(.codec = PICI_VALUES_ZFP, .rate = 8), PICI_E_UNSUPPORTED},
    {"minimum of zfp", PICI_ALL_REDUCE, PICI_F32, PICI_MIN, 60, V(.codec = PICI_VALUES_ZFP, .rate = 8),
     PICI_E_UNSUPPORTED},
    {"a row that the count is no multiple of", PICI_ALL_REDUCE, PICI_F32, PICI_SUM, 61,
     V(.codec = PICI_VALUES_ZFP, .rate = 8, .nx = 6), PICI_E_ARG},
};

Test(coll_values_calls, what_is_refused_leaves_the_communicator_usable)
{
    struct team t;
    const struct values_case fine = usual();
    struct values zfp;
    const struct pici_values rate = V(.codec = PICI_VALUES_ZFP, .rate = 8);
    const int has_zfp = pici_values_resolve(&zfp, &rate, PICI_F32, PICI_SUM) == PICI_OK;
    team_open(&t, 3);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *f = &refusals[i];
        struct values_case c = usual();
        c.collective = f->collective;
        c.op = f->op;
        c.count = f->count;
        c.values = f->values;
        c.refused = f->dtype; /* of the call; data of which there is none are f32 */
        team_call(&t, &c);
        expect_all(&t, f->values.codec == PICI_VALUES_ZFP && !has_zfp ? PICI_E_UNSUPPORTED : f->want, f->what);
        team_call(&t, &fine);
        expect_all(&t, PICI_OK, "after a refusal");
    }
    team_close(&t);
}

/* ---- ranks that disagree: the member is named */

static const struct {
    const char *word;
    struct pici_values one, other;
} disagreements[] = {
    {"codec", QSGD(.bits = 8), V(.codec = PICI_VALUES_CAST)},
    {"codec", QSGD(.bits = 8), V(.codec = PICI_VALUES_EXACT)},
    {"phases", QSGD(.phases = 1), QSGD(.phases = 3)},
    {"bits", QSGD(.bits = 8), QSGD(.bits = 4)},
    {"norm", QSGD(.norm = PICI_NORM_MAX), QSGD(.norm = PICI_NORM_L2)},
    {"rounding", QSGD(.rounding = PICI_ROUND_RANDOM), QSGD(.rounding = PICI_ROUND_NEAREST)},
    {"bucket", QSGD(.bucket = 64), QSGD(.bucket = 4096)},
    {"seed", QSGD(.seed = 1), QSGD(.seed = UINT64_C(1) << 60)},
    {"cast", V(.codec = PICI_VALUES_CAST, .cast = PICI_F16), V(.codec = PICI_VALUES_CAST, .cast = PICI_BF16)},
    {"rate", V(.codec = PICI_VALUES_ZFP, .rate = 8), V(.codec = PICI_VALUES_ZFP, .rate = 9)},
    {"rate", V(.codec = PICI_VALUES_ZFP, .rate = 8), V(.codec = PICI_VALUES_ZFP, .tolerance = 8)},
    {"nx", V(.codec = PICI_VALUES_ZFP, .rate = 8, .nx = 6), V(.codec = PICI_VALUES_ZFP, .rate = 8, .nx = 12)},
    {"ny", V(.codec = PICI_VALUES_ZFP, .rate = 8, .nx = 6, .ny = 5),
     V(.codec = PICI_VALUES_ZFP, .rate = 8, .nx = 6, .ny = 10)},
};

Test(coll_values_calls, ranks_that_disagree_say_on_what)
{
    for (size_t i = 0; i < sizeof disagreements / sizeof *disagreements; i++) {
        struct team t;
        const struct values_case c = usual();
        struct values v;
        if (pici_values_resolve(&v, &disagreements[i].one, c.dtype, c.op))
            continue; /* no libzfp */
        team_open(&t, 2);
        for (int r = 0; r < 2; r++) {
            t.c[r] = c;
            t.c[r].values = r ? disagreements[i].one : disagreements[i].other;
        }
        team_call(&t, NULL);
        expect_all(&t, PICI_E_PEER, disagreements[i].word);
        for (int r = 0; r < 2; r++)
            cr_expect(strstr(pici_comm_error(t.comm[r]), "values") &&
                          strstr(pici_comm_error(t.comm[r]), disagreements[i].word),
                      "%s: %s", disagreements[i].word, pici_comm_error(t.comm[r]));
        team_close(&t);
    }
}

/* ---- no loss without a codec */

/* Without codec, and with the one that is exact: the same bytes, sent and received, and nothing is counted as lost. */
Test(coll_values_calls, exact_values_are_as_none)
{
    for (int algorithm = 1; algorithm <= coll_algorithms(); algorithm++) {
        struct team none, exact;
        struct values_case c = usual();
        c.algorithm = (enum pici_algorithm)algorithm;
        c.values.codec = PICI_VALUES_EXACT;
        c.data = DATA_SPARSE;
        c.count = 20000;
        team_open(&none, 5);
        team_open(&exact, 5);
        team_call(&exact, &c);
        c.exact = 1;
        team_call(&none, &c);
        expect_all(&none, PICI_OK, "none");
        expect_all(&exact, PICI_OK, "exact");
        for (int r = 0; r < 5; r++) {
            const struct pici_coll_stats *a = &none.rank[r].stats, *b = &exact.rank[r].stats;
            cr_expect_eq(memcmp(none.rank[r].recv, exact.rank[r].recv, c.count * 4), 0);
            cr_expect(a->wire_bytes == b->wire_bytes && !b->events && !b->lost && b->quantize_s == 0 &&
                      b->dequantize_s == 0);
        }
        team_close(&none);
        team_close(&exact);
    }
}

/* The environment is read by one table, and by what follows here. A call with a variable that asks for loss has the
 * bits and the counts of one without, or the communicator is refused. */
Test(coll_values_calls, no_environment_variable_turns_loss_on)
{
    static const char *const others[] = {"PICI_CPU",   "PICI_MPI_CUDA", "PICI_NEIGHBOR", "PICI_PMPI", "PICI_VALUES",
                                         "PICI_CODEC", "PICI_LOSSY",    "PICI_QSGD",     "PICI_CAST", "PICI_ZFP",
                                         "PICI_BITS",  "PICI_RATE",     "PICI_TOLERANCE"};
    static const char *const words[] = {"q4", "qsgd", "bf16", "cast", "zfp:8", "zfp~0.1", "lossy", "2", "1", "0.5"};
    enum { OTHERS = sizeof others / sizeof *others, WORDS = sizeof words / sizeof *words, P = 3 };
    char folder[] = "/tmp/pici-values-XXXXXX"; /* where a trace would be written */
    struct team none;
    struct values_case c = usual();
    int variables = 0, calls = 0, refused = 0;
    cr_assert(mkdtemp(folder) && !chdir(folder));
    c.exact = 1;
    c.timeout_ms = 60000; /* not a variable's 1 ms */
    c.count = 6000;
    team_open(&none, P);
    team_call(&none, &c);
    expect_all(&none, PICI_OK, "no variable");
    for (const struct setting *s = pici_settings; s->variable || variables < OTHERS; s += s->variable != NULL) {
        const char *const name = s->variable ? s->variable : others[variables++];
        for (int w = 0; w < WORDS; w++) {
            struct team t = {.p = P};
            setenv(name, words[w], 1);
            const enum pici_status made = pici_comm_threads(t.comm, P);
            refused += made != PICI_OK;
            if (!made) {
                team_call(&t, &c);
                expect_all(&t, PICI_OK, name);
                for (int r = 0; r < P; r++) {
                    cr_expect_eq(memcmp(t.rank[r].recv, none.rank[r].recv, c.count * 4), 0, "%s=%s", name, words[w]);
                    cr_expect(!t.rank[r].stats.events && t.rank[r].stats.lost <= 0, "%s=%s", name, words[w]);
                }
                team_close(&t);
                calls++;
            }
            for (int r = 0; r < P; r++) { /* traces */
                char path[40];
                snprintf(path, sizeof path, "%s.%d", words[w], r);
                unlink(path);
            }
            unsetenv(name);
        }
    }
    team_close(&none);
    cr_expect(calls > 150 && refused > 100, "%d calls, %d refused", calls, refused);
    cr_expect(!chdir("/") && !rmdir(folder), "%s is not empty", folder);
}

/* ---- residuals */

Test(coll_values_calls, residuals_that_overlap_are_refused)
{
    struct team t;
    struct values_case c = usual();
    for (int where = 1; where <= 2; where++) {
        team_open(&t, 2);
        c.overlap = where;
        team_call(&t, &c);
        expect_all(&t, PICI_E_ARG, "a residual in another buffer");
        team_close(&t);
    }
}

/* What is not finite is told, and does not get into residuals. */
Test(coll_values_calls, what_is_not_finite_is_counted)
{
    struct team t;
    struct values_case c = usual();
    uint64_t nonfinite = 0;
    c.data = DATA_SPECIAL;
    c.count = 6000;
    c.residual = 1;
    team_open(&t, 2);
    team_call(&t, &c);
    expect_all(&t, PICI_OK, "special");
    for (int r = 0; r < 2; r++) {
        nonfinite += t.rank[r].stats.nonfinite;
        cr_expect(isfinite(t.rank[r].stats.lost));
        for (uint64_t i = 0; i < c.count; i++)
            cr_expect(isfinite(values_load(c.dtype, t.rank[r].residual, i)));
    }
    cr_expect_gt(nonfinite, 0);
    team_close(&t);
}
