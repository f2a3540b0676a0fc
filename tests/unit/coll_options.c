/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A wrong option or argument of one rank: that rank's error names it, its value and what is allowed, and all ranks
 * return PICI_E_ARG. Buffers and counts of the collectives: coll_threads_calls.c, coll_threads_gather.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "pici/neighbor.h"
#include "tests/util/coll.h"

enum { RANKS = 3, N = 100 };

/* ---- numbers among the options */

enum type { INT, FLOAT, DOUBLE };

#define OPTION(member) #member, offsetof(struct pici_coll_opts, member)

static const struct wrong {
    const char *name;
    size_t at;
    enum type type;
    double value;
    const char *words; /* that follow the name; a NaN may have a sign */
} wrongs[] = {
    {OPTION(window), INT, 65, " 65, which is not 0 to 64"},
    {OPTION(window), INT, -1, " -1, which is not 0 to 64"},
    {OPTION(density), DOUBLE, 1.5, " 1.5, which is not 0 to 1"},
    {OPTION(density), DOUBLE, -0.25, " -0.25, which is not 0 to 1"},
    {OPTION(density), DOUBLE, NAN, "nan, which is not 0 to 1"},
    {OPTION(latency), DOUBLE, -1, " -1, which is not 0 to 3600"},
    {OPTION(latency), DOUBLE, 1e9, " 1e+09, which is not 0 to 3600"},
    {OPTION(latency), DOUBLE, NAN, "nan, which is not 0 to 3600"},
    {OPTION(inter_threshold), FLOAT, NAN, "nan, which is not a number"},
    {OPTION(intra_threshold), FLOAT, NAN, "nan, which is not a number"},
    {OPTION(ag_threshold), FLOAT, NAN, "nan, which is not a number"},
    {OPTION(inter_bandwidth), DOUBLE, -1e9, " -1e+09, which is not 0 or more"},
    {OPTION(inter_bandwidth), DOUBLE, NAN, "nan, which is not 0 or more"},
    {OPTION(intra_bandwidth), DOUBLE, -1, " -1, which is not 0 or more"},
    {OPTION(intra_bandwidth), DOUBLE, NAN, "nan, which is not 0 or more"},
};

struct job {
    struct pici_comm *comm[RANKS];
    const struct wrong *wrong;
    int odd;
    enum pici_status status[RANKS], after[RANKS];
};

static void call(void *context, int rank)
{
    struct job *j = context;
    struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
    uint8_t *at = (uint8_t *)&o + j->wrong->at;
    const int integer = j->wrong->type == INT ? (int)j->wrong->value : 0;
    const float narrow = (float)j->wrong->value;
    float send[N] = {1}, recv[N];
    if (rank == j->odd && j->wrong->type == DOUBLE)
        memcpy(at, &j->wrong->value, sizeof j->wrong->value);
    else if (rank == j->odd)
        memcpy(at, j->wrong->type == INT ? (const void *)&integer : (const void *)&narrow, sizeof narrow);
    j->status[rank] = pici_all_reduce(send, recv, N, PICI_F32, PICI_SUM, j->comm[rank], &o);
    j->after[rank] = pici_all_reduce(send, recv, N, PICI_F32, PICI_SUM, j->comm[rank], NULL);
}

Test(coll_options, one_wrong_all_know)
{
    for (const struct wrong *w = wrongs; w < wrongs + sizeof wrongs / sizeof *wrongs; w++)
        for (int p = 1; p <= RANKS; p++) {
            struct job j = {.wrong = w, .odd = p / 2};
            char begin[60];
            snprintf(begin, sizeof begin, "rank %d: the option %s is ", j.odd, w->name);
            cr_assert_eq(pici_comm_threads(j.comm, p), PICI_OK);
            coll_threads(p, call, &j);
            for (int r = 0; r < p; r++) {
                const char *words = pici_comm_error(j.comm[r]);
                cr_expect_eq(j.status[r], PICI_E_ARG, "%s, rank %d of %d: %d", w->name, r, p, j.status[r]);
                cr_expect_eq(j.after[r], PICI_E_BROKEN);
                cr_expect_eq(strncmp(words, begin, r == j.odd ? strlen(begin) : 8), 0, "rank %d: \"%s\"", r, words);
                cr_expect(r != j.odd || strstr(words, w->words), "not \"%s\", but \"%s\"", w->words, words);
                pici_comm_free(j.comm[r]);
            }
        }
}

/* ---- arguments of a single rank's calls */

struct alone {
    struct pici_comm *comm;
    struct pici_neighbor_plan *plan; /* on which the rank is its own source, twice */
    float send[N], recv[2 * N];
};

static void begin(struct alone *a, uint64_t most_bytes)
{
    static const int self[] = {0, 0};
    struct pici_neighbor_opts o = PICI_NEIGHBOR_OPTS_INIT;
    o.most_bytes = most_bytes;
    cr_assert_eq(pici_comm_threads(&a->comm, 1), PICI_OK);
    cr_assert_eq(pici_neighbor_plan_create(&a->plan, a->comm, 2, self, 2, self, &o), PICI_OK);
}

static void end(struct alone *a, enum pici_status s, const char *words)
{
    cr_expect_eq(s, PICI_E_ARG, "\"%s\": %s", words, pici_strerror(s));
    cr_expect_str_eq(pici_comm_error(a->comm), words);
    pici_neighbor_plan_free(a->plan);
    pici_comm_free(a->comm);
}

static void gather(const float *send, float *recv, uint64_t n, const char *words)
{
    struct alone a = {0};
    begin(&a, 0);
    end(&a, pici_neighbor_all_gather(send, recv, n, PICI_F32, a.plan, NULL), words);
}

static void gatherv(uint64_t most_bytes, uint64_t n, const uint64_t *counts, const uint64_t *displs, const char *words)
{
    struct alone a = {0};
    begin(&a, most_bytes);
    end(&a, pici_neighbor_all_gatherv(a.send, n, a.recv, counts, displs, PICI_F32, a.plan, NULL), words);
}

Test(coll_options, neighbor_arguments)
{
    static const uint64_t counts[] = {N, N}, displs[] = {0, N}, far[] = {0, UINT64_MAX - 1};
    static float send[N], recv[2 * N];
    gather(NULL, recv, N, "rank 0: the send buffer is null");
    gather(send, NULL, N, "rank 0: the receive buffer is null");
    gather(recv + N, recv, N, "rank 0: the send and receive buffers overlap");
    gather(send, recv, UINT64_MAX, "rank 0: count 18446744073709551615 exceeds the address space");
    gatherv(400, N, NULL, displs, "rank 0: recvcounts is null");
    gatherv(400, N, counts, NULL, "rank 0: displs is null");
    gatherv(400, N, counts, far,
            "rank 0: entry 1 of the sources: 100 elements at 18446744073709551614 exceed the address space");
    gatherv(396, N, counts, displs, "rank 0: sendcount is 100, and the plan's most_bytes allows 99");
    gatherv(UINT64_MAX, N, counts, displs,
            "rank 0: the plan's most_bytes, 18446744073709551615, exceeds the address space");
}

Test(coll_options, residual)
{
    struct alone a = {0};
    struct pici_values values = PICI_VALUES_INIT;
    struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
    begin(&a, 0);
    values.codec = PICI_VALUES_CAST;
    values.residual = a.recv + N - 1;
    o.values = &values;
    end(&a, pici_all_reduce(a.send, a.recv, N, PICI_F32, PICI_SUM, a.comm, &o),
        "rank 0: the residual overlaps a buffer");
}

/* Members until version 0.3 are those that have taken their places. */
Test(coll_options, deprecated_names)
{
    struct pici_coll_opts options = PICI_COLL_OPTS_INIT;
    struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
    options.vendor = 1;
    stats.narrow_s = 2;
    stats.widen_s = 3;
    cr_expect(options.native == 1 && stats.quantize_s == 2 && stats.dequantize_s == 3);
}
