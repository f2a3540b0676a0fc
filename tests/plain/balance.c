/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Balanced owners: cuts by brute force; sums of streams, of dense elements and of both with every cut; ranks that
 * disagree; what the busiest rank sends. Needs libc alone, for a run under ThreadSanitizer too. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "pici/stream.h"
#include "schedule/balance.h"
#include "schedule/schedule.h"
#include "tests/util/coll.h"
#include "tests/util/util.h"

enum { PRINTED = 20 }; /* bad tests */

static void expect(int right, const char *what)
{
    const unsigned bad = tally_count(right);
    if (bad && bad <= PRINTED)
        printf("FAIL %s\n", what);
}

/* ---- cuts */

/* Cuts rise, cover the vector, and weigh about the same; what all ranks have at the same places counts less. */
static void cuts(int p, uint64_t n, unsigned kind, struct rng *rng)
{
    struct schedule_balance balance;
    uint64_t nonzeros[BALANCE_RANGES], last = 0;
    const uint64_t stride = p > 1000 && test_few() ? 15 : 1; /* of very many ranks, not each one's cut */
    int weighty = 0;
    char what[120];
    pici_balance_even(&balance, n);
    for (int i = 0; i < BALANCE_RANGES; i++) {
        const uint64_t elements = balance.first[i + 1] - balance.first[i];
        uint64_t most = elements > UINT64_MAX / (uint64_t)p ? UINT64_MAX : elements * (uint64_t)p;
        const uint64_t few[] = {
            0, most, most / 1000, rng_below(rng, most / 2 + 1), (uint64_t)i < 8 ? most : 0, most >> i, UINT64_MAX};
        nonzeros[i] = kind == 7 ? few[rng_below(rng, 7)] : few[kind];
        weighty |= nonzeros[i] && elements;
    }
    for (int finer = 0; finer < 2; finer++) {
        pici_balance_weigh(&balance, nonzeros, p);
        snprintf(what, sizeof what, "cuts of %llu among %d, kind %u, finer %d", (unsigned long long)n, p, kind, finer);
        const uint64_t sum = balance.before[BALANCE_RANGES];
        expect(sum < UINT64_C(1) << 32 && (weighty || !sum), what);
        for (uint64_t i = 0; i < (uint64_t)p; i += stride) {
            const uint64_t place = pici_balance_place(&balance, sum * i / (uint64_t)p);
            expect(place >= last && place <= n && (i || !place), what);
            if (i && sum && place > last && balance.unit == 1) /* as asked for, but for one element's weight */
                expect(pici_balance_weight(&balance, place) <= sum * i / (uint64_t)p, what);
            last = place;
        }
        expect(!sum || pici_balance_place(&balance, sum) == n, what);
        last = 0;
        pici_balance_refine(&balance);
        for (int i = 0; i < BALANCE_RANGES; i++)
            expect(balance.first[i] <= balance.first[i + 1], what);
        expect(!sum || (balance.first[0] == 0 && balance.first[BALANCE_RANGES] == n), what);
        if (!sum)
            return;
    }
}

static void known_cuts(void)
{
    struct schedule_balance balance;
    uint64_t nonzeros[BALANCE_RANGES] = {0}, places[5];
    pici_balance_even(&balance, 64000);
    for (int i = 0; i < 8; i++)
        nonzeros[i] = 100;
    pici_balance_weigh(&balance, nonzeros, 4);
    for (uint64_t i = 0; i <= 4; i++)
        places[i] = pici_balance_place(&balance, balance.before[BALANCE_RANGES] * i / 4);
    expect(places[0] == 0 && places[1] == 1984 && places[2] == 3968 && places[3] == 5952 && places[4] == 64000,
           "the first eighth in quarters, at multiples of 64");
    expect(pici_balance_skewed(&balance, 4) && !pici_balance_coarse(&balance, 4), "the first eighth is skewed");
    expect(pici_balance_coarse(&balance, 5), "for 5 ranks its ranges are coarse");
    for (int i = 0; i < BALANCE_RANGES; i++)
        nonzeros[i] = 100;
    pici_balance_weigh(&balance, nonzeros, 4);
    expect(!pici_balance_skewed(&balance, 4) && !pici_balance_coarse(&balance, 4), "even ranges are not skewed");
    /* all in one unit of 64 elements: finer ranges end there, long before they would have one element each */
    for (int finer = 0; finer < 3; finer++) {
        for (int i = 0; i < BALANCE_RANGES; i++)
            nonzeros[i] = balance.first[i] <= 640 && balance.first[i + 1] > 640 ? 100 : 0;
        pici_balance_weigh(&balance, nonzeros, 4);
        if (!pici_balance_coarse(&balance, 4))
            break;
        pici_balance_refine(&balance);
    }
    expect(balance.unit == 64 && !pici_balance_coarse(&balance, 4), "a unit is not cut");
    pici_balance_even(&balance, 64000);
    /* range 0 is full on all 4 ranks, so its sum is as long as one rank's; that of range 1 as all of them */
    memset(nonzeros, 0, sizeof nonzeros);
    nonzeros[0] = 4000;
    nonzeros[1] = 4;
    pici_balance_weigh(&balance, nonzeros, 4);
    const uint64_t full = balance.before[1], rare = balance.before[2] - full;
    expect(full > 430 * rare && full < 450 * rare, "elements that all ranks have weigh 1.75, others 4");
}

/* ---- sums */

enum place { PLACE_UNIFORM, PLACE_CLUSTERED, PLACE_ZIPF, PLACE_LAST, PLACE_APART, PLACES };

struct job {
    enum pici_dtype dtype;
    enum pici_op op;
    uint64_t count;
    enum place place;
    unsigned lists; /* bits: ranks that pass streams */
    int in_place, exact;
    struct pici_coll_opts opts;
    uint64_t seed;
};

struct team {
    int p;
    struct pici_comm *comm[COLL_RANKS];
    const struct job *job;
    const char *wrong[COLL_RANKS];
    enum pici_status status[COLL_RANKS];
    uint64_t sent[COLL_RANKS];
};

/* Elements of which a rank has about one of 16. */
static int is_listed(const struct job *job, int rank, uint64_t i, struct rng *rng)
{
    const uint64_t n = job->count, draw = rng_below(rng, 16 * n + 1);
    switch (job->place) {
    case PLACE_UNIFORM: return draw < n;
    case PLACE_CLUSTERED: return i < n / 8 + 1 && draw < 8 * n;
    case PLACE_ZIPF: return draw < 16 * n / (i + 1);
    case PLACE_LAST: return i + 1 == n;
    default: return i / (n / COLL_RANKS + 1) == (uint64_t)rank && draw < 8 * n;
    }
}

static void put(uint8_t *element, const struct job *job, struct rng *rng)
{
    const size_t width = pici_dtype_width(job->dtype);
    uint64_t bits = value_random(rng, job->dtype);
    float single = 1;
    double wide = 1;
    if (job->exact && job->dtype == PICI_F32) { /* so that no order rounds */
        memcpy(element, &single, width);
        return;
    }
    if (job->exact && job->dtype == PICI_F64) {
        memcpy(element, &wide, width);
        return;
    }
    const uint8_t one = (uint8_t)bits;
    const uint16_t two = (uint16_t)bits;
    const uint32_t four = (uint32_t)bits;
    const void *of[] = {[1] = &one, [2] = &two, [4] = &four, [8] = &bits};
    memcpy(element, of[width], width);
}

static const char *call(const struct team *t, int rank, enum pici_balance balance, int lists, const uint8_t *elements,
                        uint8_t *result, uint64_t *sent)
{
    const struct job *job = t->job;
    const size_t width = pici_dtype_width(job->dtype), bytes = job->count * width;
    struct pici_coll_opts opts = job->opts;
    struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
    opts.balance = balance;
    opts.stats = &stats;
    enum pici_status status;
    if (!lists) {
        if (job->in_place && bytes)
            memcpy(result, elements, bytes);
        status = pici_all_reduce(job->in_place ? result : elements, result, job->count, job->dtype, job->op,
                                 t->comm[rank], &opts);
    } else {
        struct pici_stream in = PICI_STREAM_INIT;
        struct pici_stream_out out = PICI_STREAM_OUT_INIT;
        uint64_t *indices = test_alloc((job->count + 1) * sizeof *indices);
        uint8_t *values = test_alloc(bytes + 1);
        for (uint64_t i = 0; i < job->count; i++)
            for (size_t k = 0; k < width; k++)
                if (elements[i * width + k]) {
                    memcpy(values + in.nnz * width, elements + i * width, width);
                    indices[in.nnz++] = i;
                    break;
                }
        in.n = job->count;
        in.indices = indices;
        in.index_width = sizeof *indices;
        in.values = values;
        out.want = PICI_STREAM_DENSE;
        out.dense = result;
        status = pici_all_reduce_stream(&in, &out, job->dtype, job->op, t->comm[rank], &opts);
        pici_stream_free(&out);
        free(indices);
        free(values);
    }
    *sent = stats.wire_bytes;
    return status ? pici_comm_error(t->comm[rank]) : NULL;
}

static void sum(void *context, int rank)
{
    struct team *t = context;
    const struct job *job = t->job;
    const size_t width = pici_dtype_width(job->dtype), bytes = job->count * width;
    struct rng rng = {job->seed + (uint64_t)rank * 7919};
    const enum pici_balance balances[] = {PICI_BALANCE_OFF, PICI_BALANCE_AUTO, PICI_BALANCE_ON, PICI_BALANCE_ON};
    uint8_t *elements = test_alloc(bytes + 1), *result[4];
    uint64_t sent;
    memset(elements, 0, bytes + 1);
    for (uint64_t i = 0; i < job->count; i++)
        if (is_listed(job, rank, i, &rng))
            put(elements + i * width, job, &rng);
    t->wrong[rank] = NULL;
    for (int i = 0; i < 4; i++) { /* the last one with dense elements on all ranks */
        result[i] = test_alloc(bytes + 1);
        if (!t->wrong[rank])
            t->wrong[rank] = call(t, rank, balances[i], i < 3 && job->lists >> rank & 1, elements, result[i], &sent);
    }
    const int ordered = fmt_is_float((unsigned)job->dtype) && !job->exact;
    if (!t->wrong[rank] && memcmp(result[0], result[1], bytes))
        t->wrong[rank] = "auto has other bits";
    if (!t->wrong[rank] && !ordered && memcmp(result[0], result[2], bytes))
        t->wrong[rank] = "on has other bits";
    if (!t->wrong[rank] && memcmp(result[2], result[3], bytes))
        t->wrong[rank] = "dense elements have other bits than streams";
    for (int i = 0; i < 4; i++)
        free(result[i]);
    free(elements);
}

static void run(struct team *t, int p, const struct job *job, void (*fn)(void *, int))
{
    t->p = p;
    t->job = job;
    if (pici_comm_threads(t->comm, p))
        abort();
    coll_threads(p, fn, t);
}

static void end(struct team *t)
{
    for (int i = 0; i < t->p; i++)
        pici_comm_free(t->comm[i]);
}

static void sums(int p, int times)
{
    struct rng rng = {(uint64_t)p};
    static const struct pici_coll_opts defaults = PICI_COLL_OPTS_INIT;
    for (int i = 0; i < times; i++) {
        const uint64_t counts[] = {rng_below(&rng, 3), 5000 + rng_below(&rng, 60000), 17000,
                                   1 + rng_below(&rng, 30000)};
        struct job job = {.dtype = (enum pici_dtype)(1 + rng_below(&rng, 14)),
                          .op = (enum pici_op)rng_below(&rng, 4),
                          .count = counts[rng_below(&rng, 4)],
                          .place = (enum place)rng_below(&rng, PLACES),
                          .in_place = (int)rng_below(&rng, 2),
                          .exact = (int)rng_below(&rng, 2),
                          .opts = defaults,
                          .seed = rng_next(&rng)};
        const unsigned some = (unsigned)rng_next(&rng);
        const unsigned lists[] = {0, ~0u, ~0u, some};
        char what[200];
        struct team t;
        if (job.exact)
            job.dtype = rng_below(&rng, 2) ? PICI_F32 : PICI_F64;
        job.lists = lists[rng_below(&rng, 4)];
        job.opts.algorithm = coll_algorithm(rng_next(&rng), PICI_ALL_REDUCE);
        job.opts.window = (int)rng_below(&rng, 7);
        if (rng_below(&rng, 2))
            job.opts.slice_bytes = 1 + rng_below(&rng, 50000);
        run(&t, p, &job, sum);
        for (int k = 0; k < p; k++) {
            snprintf(what, sizeof what, "%d ranks, %s, op %d, %llu elements, place %d, lists %x, exact %d, %s: %s", p,
                     pici_dtype_name(job.dtype), (int)job.op, (unsigned long long)job.count, (int)job.place, job.lists,
                     job.exact, pici_algorithm_name(job.opts.algorithm), t.wrong[k] ? t.wrong[k] : "");
            expect(!t.wrong[k], what);
        }
        end(&t);
    }
}

/* ---- very long vectors, of which all ranks have only the first part */

static void sum_long(void *context, int rank)
{
    enum { FEW = 5000 };
    struct team *t = context;
    struct pici_coll_opts opts = t->job->opts;
    uint32_t indices[FEW];
    int32_t values[FEW];
    struct pici_stream in = PICI_STREAM_INIT;
    struct pici_stream_out out = PICI_STREAM_OUT_INIT;
    const uint64_t p = (uint64_t)t->p;
    struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
    for (uint32_t i = 0; i < FEW; i++) {
        indices[i] = 64 * i + (uint32_t)rank;
        values[i] = (int32_t)i;
    }
    in.n = t->job->count;
    in.nnz = FEW;
    in.indices = indices;
    in.index_width = sizeof *indices;
    in.values = values;
    opts.stats = &stats;
    t->status[rank] = pici_all_reduce_stream(&in, &out, PICI_I32, PICI_SUM, t->comm[rank], &opts);
    t->sent[rank] = stats.wire_bytes;
    t->wrong[rank] = t->status[rank] ? pici_comm_error(t->comm[rank]) : NULL;
    if (!t->wrong[rank] && out.nnz != FEW * p - p) /* a value of 0 is not listed */
        t->wrong[rank] = "another number of rows";
    for (uint64_t i = 0; i < FEW * p - p && !t->wrong[rank]; i++)
        if (((int32_t *)out.values)[i] != (int32_t)(i / p) + 1)
            t->wrong[rank] = "a wrong sum";
    pici_stream_free(&out);
}

static double busiest(const struct team *t)
{
    uint64_t most = 0, all = 0;
    for (int i = 0; i < t->p; i++) {
        most = t->sent[i] > most ? t->sent[i] : most;
        all += t->sent[i];
    }
    return (double)most * t->p / (double)all;
}

static void long_vectors(void)
{
    static const enum pici_algorithm algorithms[] = {PICI_ALGO_RING, PICI_ALGO_RECURSIVE, PICI_ALGO_SPLIT,
                                                     PICI_ALGO_AUTO};
    static const struct pici_coll_opts defaults = PICI_COLL_OPTS_INIT;
    const int every = test_few() ? 3 : 1; /* each number of ranks still has each algorithm, and each kind of owners */
    for (int p = 1; p <= 8; p++)
        for (int i = (p + 1) % every; i < 12; i += every) { /* of 8 ranks, the one that is uneven */
            struct job job = {.count = UINT64_C(1) << (SIZE_MAX > UINT32_MAX ? 40 : 28), .opts = defaults};
            char what[120];
            struct team t;
            job.opts.algorithm = algorithms[i % 4];
            job.opts.balance = (enum pici_balance)(PICI_BALANCE_AUTO + i / 4);
            run(&t, p, &job, sum_long);
            const double times = busiest(&t);
            snprintf(what, sizeof what, "%d ranks, very many elements, %s, balance %d: the busiest sends %.2f times", p,
                     pici_algorithm_name(algorithms[i % 4]), i / 4 + 1, times);
            for (int k = 0; k < p; k++)
                expect(!t.wrong[k], t.wrong[k] ? t.wrong[k] : what);
            if (p > 1 && job.opts.balance != PICI_BALANCE_OFF && job.opts.algorithm)
                expect(times <= 1.2, what);
            if (p == 8 && job.opts.balance == PICI_BALANCE_OFF && job.opts.algorithm == PICI_ALGO_RECURSIVE)
                expect(times > 1.5, what);
            end(&t);
        }
}

/* ---- ranks that disagree */

static void disagree_rank(void *context, int rank)
{
    struct team *t = context;
    struct pici_coll_opts opts = t->job->opts;
    int32_t *elements = test_alloc(t->job->count * sizeof *elements);
    memset(elements, 1, t->job->count * sizeof *elements);
    opts.balance = rank == 1 ? PICI_BALANCE_OFF : PICI_BALANCE_ON;
    t->status[rank] = pici_all_reduce(elements, elements, t->job->count, PICI_I32, PICI_SUM, t->comm[rank], &opts);
    free(elements);
}

static void disagree(int p, uint64_t count)
{
    static const struct pici_coll_opts defaults = PICI_COLL_OPTS_INIT;
    const struct job job = {.count = count, .opts = defaults};
    struct team t;
    run(&t, p, &job, disagree_rank);
    for (int i = 0; i < p; i++) {
        const char *said = pici_comm_error(t.comm[i]);
        expect(t.status[i] == PICI_E_PEER, "ranks disagree");
        expect(strstr(said, "option balance (PICI_BALANCE)") && strstr(said, "off on rank 1"), said);
    }
    end(&t);
}

/* Rank 1 ends after so many steps of a call whose ranks agree several times; the others have an error, and soon. */
static void end_early(void *context, int rank)
{
    struct team *t = context;
    struct pici_coll_opts opts = t->job->opts;
    struct pici_request *request;
    int32_t *elements = test_alloc(t->job->count * sizeof *elements);
    int done = 0;
    memset(elements, 0, t->job->count * sizeof *elements);
    elements[7] = 1;
    opts.balance = PICI_BALANCE_ON;
    t->status[rank] =
        pici_all_reduce_start(elements, elements, t->job->count, PICI_I32, PICI_SUM, t->comm[rank], &opts, &request);
    for (uint64_t i = 0; i < t->job->seed && rank == 1 && !t->status[rank] && !done; i++)
        t->status[rank] = pici_test(&request, &done);
    if (rank == 1) {
        pici_comm_free(t->comm[1]);
        t->comm[1] = NULL;
    }
    if (!t->status[rank])
        t->status[rank] = pici_wait(&request);
    free(elements);
}

static void ends_early(int p)
{
    static const struct pici_coll_opts defaults = PICI_COLL_OPTS_INIT;
    for (uint64_t steps = 0; steps < 10; steps++) {
        const struct job job = {.count = 100000, .opts = defaults, .seed = steps};
        struct team t;
        run(&t, p, &job, end_early);
        for (int i = 0; i < p; i++)
            expect(i == 1 || steps || t.status[i] == PICI_E_PEER, "rank 1 is gone");
        end(&t);
    }
}

/* Values that there are not: in the environment, in the communicator's tuning, in an option of the call. */
static void settings(void)
{
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    struct pici_tune tune = PICI_TUNE_INIT;
    struct pici_comm *comm;
    int32_t element = 1;
    setenv("PICI_BALANCE", "yes", 1);
    expect(pici_comm_threads(&comm, 1) == PICI_E_ARG &&
               strstr(pici_comm_error(NULL), "PICI_BALANCE is \"yes\", which is not auto, on or off"),
           "the environment is wrong");
    unsetenv("PICI_BALANCE");
    if (pici_comm_threads(&comm, 1))
        abort();
    opts.balance = (enum pici_balance)(PICI_BALANCE_OFF + 1);
    tune.balance = opts.balance;
    expect(pici_all_reduce(&element, &element, 1, PICI_I32, PICI_SUM, comm, &opts) == PICI_E_UNSUPPORTED,
           "an option that is none");
    expect(pici_comm_tune(comm, &tune) == PICI_E_UNSUPPORTED, "a tuning that is none");
    pici_comm_free(comm);
}

int main(void)
{
    static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 17};
    const int times = test_full() ? 1000 : test_few() ? 4 : 14;
    const unsigned every = test_few() ? 3 : 1; /* of the cuts; each pair of ranks and length, and each kind, has some */
    const uint64_t lengths[] = {0, 1, 63, 64, 65, 5000, 1 << 20, UINT64_C(1) << 40, UINT64_C(1) << 62};
    struct rng rng = {1};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
            for (unsigned kind = (unsigned)(i + k) % every; kind < 8; kind += every)
                cuts(ranks[i], lengths[k], kind, &rng);
    cuts(1 << 20, UINT64_C(1) << 40, 4, &rng);
    known_cuts();
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        sums(ranks[i], ranks[i] > 9 ? times / 2 : times);
    long_vectors();
    settings();
    for (int p = 2; p < 6; p++) {
        ends_early(p);
        disagree(p, 100);
        disagree(p, 100000);
    }
    return tally_end();
}
