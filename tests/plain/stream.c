/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives of streams among threads and over sockets, bit for bit as the dense calls; vectors that are too long to
 * be dense; bad input. Needs libc alone, for a run under ThreadSanitizer too. */
#define _DEFAULT_SOURCE /* struct rusage */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/util/coll.h"
#include "tests/util/socket.h"
#include "tests/util/stream.h"
#include "tests/util/util.h"

enum { PRINTED = 20 }; /* bad tests */

static void expect(const char *wrong, const char *what)
{
    const unsigned bad = tally_count(!wrong);
    if (bad && bad <= PRINTED)
        printf("FAIL %s: %s\n", what, wrong);
}

struct team {
    int p;
    struct pici_comm *comm[COLL_RANKS];
    const struct stream_case *c;
    uint64_t n, few; /* of sum_long: elements, and how many of these each rank lists */
    char said[COLL_RANKS][240];
    const char *wrong[COLL_RANKS];
    enum pici_status status[COLL_RANKS];
};

static void check(void *context, int rank)
{
    struct team *t = context;
    t->wrong[rank] = stream_check(t->c, t->comm[rank], t->said[rank]);
}

static void run_team(struct team *t, int p, void (*fn)(void *, int))
{
    t->p = p;
    if (pici_comm_threads(t->comm, p))
        abort();
    coll_threads(p, fn, t);
}

static void free_team(struct team *t)
{
    for (int i = 0; i < t->p; i++)
        pici_comm_free(t->comm[i]);
}

static void random_cases(int p, int times, uint64_t most, uint64_t seed)
{
    struct rng r = {seed + (uint64_t)p * 77};
    char words[240];
    struct team t;
    for (int i = 0; i < times; i++) {
        struct stream_case c;
        stream_case_random(&c, &r, p, most);
        t.c = &c;
        run_team(&t, p, check);
        for (int k = 0; k < p; k++)
            expect(t.wrong[k], stream_case_words(&c, p, words));
        free_team(&t);
    }
}

static void over_sockets(int p, int times)
{
    struct rng r = {(uint64_t)p};
    char words[240];
    for (int i = 0; i < times; i++) {
        struct socket_team s;
        struct stream_case c;
        struct team t;
        socket_team_init(&s, p);
        socket_pairs(s.fds, p);
        socket_team_make(&s);
        stream_case_random(&c, &r, p, 20000);
        t.p = p;
        t.c = &c;
        memcpy(t.comm, s.comm, sizeof *t.comm * (size_t)p);
        coll_threads(p, check, &t);
        for (int k = 0; k < p; k++)
            expect(t.wrong[k], stream_case_words(&c, p, words));
        socket_team_free(&s);
    }
}

/* ---- very many elements, of which each rank has a thousand: some at the same places, and the last */

enum { FEW = 1000 };
static const uint64_t LONG = UINT64_C(1) << (SIZE_MAX > UINT32_MAX ? 40 : 28); /* 32-bit hosts take 2 GiB of elements */

static void sum_long(void *context, int rank)
{
    struct team *t = context;
    static const enum pici_algorithm algorithms[] = {PICI_ALGO_RING, PICI_ALGO_RECURSIVE, PICI_ALGO_SPLIT,
                                                     PICI_ALGO_DOUBLING, PICI_ALGO_AUTO};
    const uint64_t n = t->n, few = t->few;
    uint64_t *indices = test_alloc(few * sizeof *indices);
    float *values = test_alloc(few * sizeof *values);
    t->wrong[rank] = NULL;
    for (int a = 0; a < 5 && !t->wrong[rank]; a++) {
        struct pici_stream in = PICI_STREAM_INIT;
        struct pici_stream_out out = PICI_STREAM_OUT_INIT;
        struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
        opts.algorithm = algorithms[a];
        for (uint64_t i = 0; i < few; i++) {
            indices[i] = n / few * i + (i % 2 ? 0 : (uint64_t)rank);
            values[i] = (float)(i + 1);
        }
        indices[few - 1] = n - 1;
        in.n = n;
        in.nnz = few;
        in.indices = indices;
        in.values = values;
        t->status[rank] = pici_all_reduce_stream(&in, &out, PICI_F32, PICI_SUM, t->comm[rank], &opts);
        const uint64_t p = (uint64_t)t->p, rows = few / 2 * p + few / 2;
        if (t->status[rank] || out.nnz != rows || ((uint64_t *)out.indices)[rows - 1] != n - 1 ||
            ((float *)out.values)[rows - 1] != (float)(few * p))
            t->wrong[rank] = t->status[rank] ? pici_comm_error(t->comm[rank]) : "a wrong sum";
        uint64_t total = 0;
        for (uint64_t i = 0; i < rows && !t->wrong[rank]; i++)
            total += (uint64_t)((float *)out.values)[i];
        if (!t->wrong[rank] && total != p * few * (few + 1) / 2)
            t->wrong[rank] = "a wrong total";
        pici_stream_free(&out);
    }
    free(indices);
    free(values);
}

static void long_vectors(void)
{
    for (int p = 1; p <= 5; p++) {
        struct team t = {.n = LONG, .few = FEW};
        run_team(&t, p, sum_long);
        for (int i = 0; i < p; i++)
            expect(t.wrong[i], SIZE_MAX > UINT32_MAX ? "2^40 elements" : "2^28 elements");
        free_team(&t);
    }
}

/* 2^28 elements, which are 1 GiB on each of four ranks where they are dense, of which each lists 0.01% and 0.1%. What
 * the process takes at its peak is less than that of one rank. */
static void large_vectors(void)
{
    enum { RANKS = 4, MOST_MIB = 1024 }; /* it takes a sixth of that, but sanitizers keep what is freed */
    static const uint64_t few[] = {26844, 268436};
    if (!test_full()) {
        printf("skip: streams of 2^28 elements (PICI_TEST_FULL=1 has them)\n");
        return;
    }
    for (int i = 0; i < 2; i++) {
        struct team t = {.n = UINT64_C(1) << 28, .few = few[i]};
        struct rusage used;
        run_team(&t, RANKS, sum_long);
        for (int k = 0; k < RANKS; k++)
            expect(t.wrong[k], "2^28 elements");
        free_team(&t);
        getrusage(RUSAGE_SELF, &used);
        printf("2^28 elements, %lu listed by each of %d ranks: %ld MiB at the peak\n", (unsigned long)few[i], RANKS,
               used.ru_maxrss / 1024);
        expect(used.ru_maxrss / 1024 <= MOST_MIB ? NULL : "too much memory", "2^28 elements");
    }
}

/* ---- statistics: blocks by the formats that lists have in fact, whichever the policy or the caller chose */

enum { COUNTED_RANKS = 4, COUNTED_N = 1 << 20 };

struct counted {
    struct team t;
    enum pici_format format;
    uint64_t rows;
    struct pici_coll_stats stats[COUNTED_RANKS];
};

static void call_counted(void *context, int rank)
{
    struct counted *c = context;
    struct pici_stream in = PICI_STREAM_INIT;
    struct pici_stream_out out = PICI_STREAM_OUT_INIT;
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    uint64_t *indices = test_alloc(c->rows * sizeof *indices);
    float *values = test_alloc(c->rows * sizeof *values);
    for (uint64_t i = 0; i < c->rows; i++) {
        indices[i] = COUNTED_N / c->rows * i + (uint64_t)rank;
        values[i] = 1;
    }
    in.n = COUNTED_N;
    in.nnz = c->rows;
    in.indices = indices;
    in.values = values;
    opts.algorithm = PICI_ALGO_RING;
    opts.format = c->format;
    c->stats[rank] = (struct pici_coll_stats)PICI_COLL_STATS_INIT;
    opts.stats = &c->stats[rank];
    c->t.status[rank] = pici_all_reduce_stream(&in, &out, PICI_F32, PICI_SUM, c->t.comm[rank], &opts);
    pici_stream_free(&out);
    free(indices);
    free(values);
}

/* A segment is one block. Its tiles tell whether it is hybrid, because only those are counted. */
static void counted_formats(void)
{
    enum { BLOCKS = 2 * (COUNTED_RANKS - 1), TILES = COUNTED_N / COUNTED_RANKS / 4096 };
    static const uint64_t rows[] = {1, 10, 100, 1000};
    static const enum pici_format formats[] = {PICI_AUTO, PICI_DENSE, PICI_BITMAP, PICI_COO, PICI_HYBRID};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
            struct counted c = {.format = formats[f], .rows = rows[i]};
            char what[80];
            snprintf(what, sizeof what, "blocks of %lu rows, format %s", (unsigned long)rows[i],
                     pici_format_name(formats[f]));
            run_team(&c.t, COUNTED_RANKS, call_counted);
            for (int rank = 0; rank < COUNTED_RANKS; rank++) {
                const struct pici_coll_stats *stats = &c.stats[rank];
                uint64_t tiles = 0;
                for (int k = 0; k < PICI_CONTAINERS; k++)
                    tiles += stats->tiles[k];
                expect(c.t.status[rank] ? pici_strerror(c.t.status[rank]) : NULL, what);
                expect(stats->sends[PICI_COO] + stats->sends[PICI_HYBRID] == BLOCKS ? NULL : "others than lists", what);
                expect(tiles == TILES * stats->sends[PICI_HYBRID] ? NULL : "other blocks are hybrid", what);
            }
            free_team(&c.t);
        }
}

/* ---- bad input: rank 1 passes it, and all ranks hear of it */

enum bad {
    INDEX_BEYOND,
    INDEX_NEGATIVE,
    ODD_RUN,
    NO_RUN,
    BAD_WIDTH,
    NULL_INDICES,
    NULL_VALUES,
    BOTH,
    BAD_FORM,
    OTHER_N,
    ODD_RESULT,
    NO_MEMORY,
    OTHER_RUN,
    MANY_TIMES,
    OVERLAP,
    BADS
};

static void *no_memory(void *context, size_t bytes)
{
    (void)context, (void)bytes;
    return NULL;
}

struct bad_team {
    struct team t;
    enum bad bad;
};

static void call_badly(void *context, int rank)
{
    enum { TIMES = 1000000 };
    struct bad_team *b = context;
    struct team *t = &b->t;
    uint64_t *indices = test_alloc(TIMES * sizeof *indices);
    int32_t *values = test_alloc(TIMES * sizeof *values);
    const int bad = rank == 1 ? (int)b->bad : -1;
    struct pici_stream in = PICI_STREAM_INIT;
    struct pici_stream_out out = PICI_STREAM_OUT_INIT;
    for (int i = 0; i < TIMES; i++) {
        indices[i] = bad == MANY_TIMES ? 7 : (uint64_t)i;
        values[i] = 1;
    }
    in.n = 1200;
    in.nnz = bad == MANY_TIMES ? TIMES : 100;
    in.indices = indices;
    in.values = values;
    switch (bad) {
    case INDEX_BEYOND: indices[57] = 1200; break;
    case INDEX_NEGATIVE: indices[57] = (uint64_t)-1; break;
    case ODD_RUN: in.run = 7; break;
    case NO_RUN: in.run = 0; break;
    case BAD_WIDTH: in.index_width = 5; break;
    case NULL_INDICES: in.indices = NULL; break;
    case NULL_VALUES: in.values = NULL; break;
    case BOTH: in.dense = values; break;
    case BAD_FORM: out.want = (enum pici_stream_form)3; break;
    case OTHER_N: in.n = 1204; break;
    case ODD_RESULT: out.run = 7; break;
    case NO_MEMORY: out.allocate = no_memory; break;
    case OTHER_RUN: in.run = 4; break;
    case OVERLAP:
        out.want = PICI_STREAM_DENSE;
        out.dense = values + 99; /* the last one that is listed */
        break;
    default: break;
    }
    t->status[rank] = pici_all_reduce_stream(&in, &out, PICI_I32, PICI_SUM, t->comm[rank], NULL);
    t->wrong[rank] = NULL;
    if (b->bad == OTHER_RUN && (t->status[rank] || out.nnz != (bad == OTHER_RUN ? 100 : 400)))
        t->wrong[rank] = "another run is not right";
    if (b->bad == MANY_TIMES && (t->status[rank] || out.nnz != 100 || ((int32_t *)out.values)[7] != TIMES + t->p - 1))
        t->wrong[rank] = "repeated rows are not added";
    if (b->bad < OTHER_RUN && (out.indices || out.values || out.dense))
        t->wrong[rank] = "a result without success";
    pici_stream_free(&out);
    free(indices);
    free(values);
}

static void bad_input(void)
{
    static const struct {
        enum pici_status status;
        const char *words;
    } want[BADS] = {{PICI_E_ARG, "rank 1: index 1200 of the stream, at place 57"},
                    {PICI_E_ARG, "rank 1: index 18446744073709551615 of the stream"},
                    {PICI_E_ARG, "rank 1: the stream's n, 1200, is not a multiple of its run, 7"},
                    {PICI_E_ARG, "rank 1: the stream's n"},
                    {PICI_E_ARG, "rank 1: the stream's index_width is 5"},
                    {PICI_E_ARG, "rank 1: the stream's indices are null"},
                    {PICI_E_ARG, "rank 1: the stream's values are null"},
                    {PICI_E_ARG, "rank 1: the stream has both"},
                    {PICI_E_ARG, "rank 1: the result's form"},
                    {PICI_E_PEER, "ranks disagree on the count: 1200 on rank"},
                    {PICI_E_ARG, "rank 1: the result has 1200 elements"},
                    {PICI_E_NOMEM, "rank 1"},
                    {PICI_OK, ""},
                    {PICI_OK, ""},
                    {PICI_E_ARG, "rank 1: the result overlaps a buffer of the stream"}};
    for (int bad = 0; bad < BADS; bad++) {
        struct bad_team b = {.bad = (enum bad)bad};
        char what[80];
        run_team(&b.t, 3, call_badly);
        snprintf(what, sizeof what, "bad input %d", bad);
        for (int i = 0; i < 3; i++) {
            const char *said = pici_comm_error(b.t.comm[i]);
            const int named = i == 1 || want[bad].status == PICI_E_PEER;
            expect(b.t.status[i] == want[bad].status ? b.t.wrong[i] : pici_strerror(b.t.status[i]), what);
            expect(strstr(said, named ? want[bad].words : "") ? NULL : said, what);
            expect(!want[bad].status || strstr(said, "rank") ? NULL : said, what);
        }
        free_team(&b.t);
    }
}

/* Structs of a later version: members that we do not know may be zero. */
static void later_structs(void)
{
    struct {
        struct pici_stream stream;
        uint64_t more;
    } in = {PICI_STREAM_INIT, 0};
    struct {
        struct pici_stream_out result;
        uint64_t more;
    } out = {PICI_STREAM_OUT_INIT, 0};
    struct pici_comm *comm;
    if (pici_comm_threads(&comm, 1))
        abort();
    in.stream.size = sizeof in;
    out.result.size = sizeof out;
    in.stream.n = 4;
    enum pici_status status = pici_all_reduce_stream(&in.stream, &out.result, PICI_F32, PICI_SUM, comm, NULL);
    expect(!status && out.result.n == 4 && out.result.size == sizeof out ? NULL : pici_strerror(status),
           "later structs");
    out.more = 1;
    status = pici_all_reduce_stream(&in.stream, &out.result, PICI_F32, PICI_SUM, comm, NULL);
    expect(status == PICI_E_UNSUPPORTED ? NULL : pici_strerror(status), "a later member of the result");
    out.more = 0;
    in.more = 1;
    status = pici_all_reduce_stream(&in.stream, &out.result, PICI_F32, PICI_SUM, comm, NULL);
    expect(status == PICI_E_UNSUPPORTED ? NULL : pici_strerror(status), "a later member of the stream");
    out.result.size = sizeof out.result - 1;
    status = pici_all_reduce_stream(&in.stream, &out.result, PICI_F32, PICI_SUM, comm, NULL);
    expect(status == PICI_E_ARG ? NULL : pici_strerror(status), "a result that is too small");
    pici_comm_free(comm);
}

int main(void)
{
    static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 17};
    const int times = test_full() ? 2000 : test_few() ? 5 : 12;
    large_vectors(); /* first, since it looks at the peak of the process */
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        random_cases(ranks[i], ranks[i] > 9 && !test_full() ? times / 4 : times, 60000, 5);
    for (int dense = 0; dense < 2; dense++) { /* slices are never dense, then all are */
        setenv("PICI_STREAM_THRESHOLD", dense ? "1" : "0", 1);
        random_cases(3, times, 60000, 11);
        random_cases(4, times / 2, 60000, 11);
    }
    unsetenv("PICI_STREAM_THRESHOLD");
    over_sockets(2, times / 4);
    over_sockets(5, times / 4);
    long_vectors();
    counted_formats();
    bad_input();
    later_structs();
    return tally_end();
}
