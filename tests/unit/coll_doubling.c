/* SPDX-License-Identifier: BSD-3-Clause
 *
 * All-reduce by doubling, in which every rank computes all sums for itself: all have the same bytes, also where the
 * order of two operands shows. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/util/coll.h"

enum { WATCHDOG_S = 300, RANKS = 17, N = 3 * 4096 + 5 };

static const int sizes[] = {2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 17};
enum { SIZES = sizeof sizes / sizeof *sizes };

struct run {
    struct pici_comm *comm[RANKS];
    enum pici_op op;
    enum pici_format format;
    float threshold;
    int in_place;
    uint32_t *got[RANKS];
    enum pici_status status[RANKS];
};

/* NaNs of which each rank has its own, quiet and signaling; zeros of both signs; infinities; elements that most ranks
 * lack. */
static uint32_t element(uint32_t i, int rank)
{
    const uint32_t r = (uint32_t)rank, sign = (i + r) % 2 << 31;
    switch (i / 3 % 8) {
    case 0: return sign | 0x7fc00000 | (r + 1);
    case 1: return sign | 0x7f800000 | (r + 1);
    case 2: return sign;
    case 3: return (i + r) % 3 ? 0 : 0x80000000;
    case 4: return sign | 0x7f800000;
    case 5: return (i + r) % 5 ? 0 : 0x3f800000 + r;
    case 6: return (i + r) % 7 ? 0 : sign | 0x7fc00000 | (r + 1);
    default: return 0;
    }
}

static void run_rank(void *context, int rank)
{
    struct run *run = context;
    struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
    uint32_t *send = test_alloc(N * sizeof *send);
    for (uint32_t i = 0; i < N; i++)
        send[i] = element(i, rank);
    o.algorithm = PICI_ALGO_DOUBLING;
    o.format = run->format;
    o.inter_threshold = o.intra_threshold = o.ag_threshold = run->threshold;
    o.slice_bytes = 1;
    o.window = 2;
    if (run->in_place)
        memcpy(run->got[rank], send, N * sizeof *send);
    run->status[rank] = pici_all_reduce(run->in_place ? run->got[rank] : send, run->got[rank], N, PICI_F32, run->op,
                                        run->comm[rank], &o);
    free(send);
}

/* All ranks get the same bytes; want: those, or where to put them. */
static void check(struct run *run, int p, uint32_t *want, int first)
{
    coll_threads(p, run_rank, run);
    if (first)
        memcpy(want, run->got[0], N * sizeof *want);
    for (int r = 0; r < p; r++) {
        cr_assert_eq(run->status[r], PICI_OK, "%d ranks: %s", p, pici_comm_error(run->comm[r]));
        for (uint32_t i = 0; i < N; i++)
            cr_assert_eq(run->got[r][i], want[i], "%d ranks, op %d, format %d, rank %d, element %u: %#x, not %#x", p,
                         (int)run->op, (int)run->format, r, i, run->got[r][i], want[i]);
    }
}

/* Of two NaNs the first stays, so the order of operands must be the same on both sides of an exchange. A run of dense
 * messages and runs of sparse ones give the same bytes too. */
Test(coll_doubling, ranks_have_the_same_bytes)
{
    static uint32_t want[N];
    alarm(WATCHDOG_S);
    for (int i = 0; i < SIZES; i++) {
        const int p = sizes[i];
        struct run run = {.threshold = 1};
        cr_assert_eq(pici_comm_threads(run.comm, p), PICI_OK);
        for (int r = 0; r < p; r++)
            run.got[r] = test_alloc(N * sizeof *want);
        for (int op = PICI_SUM; op <= PICI_MAX; op++) {
            run.op = (enum pici_op)op;
            for (int f = PICI_DENSE; f <= PICI_HYBRID; f++) {
                run.format = (enum pici_format)f;
                run.threshold = f == PICI_DENSE;
                run.in_place = (f + op) % 2;
                check(&run, p, want, f == PICI_DENSE);
            }
            const uint32_t lowest = p & (p - 1) ? 2 : 1; /* rank 0 was passed into rank 1 */
            if (op != PICI_AVG)
                cr_expect_eq(want[0] & 0x7fffffff, 0x7fc00000 | lowest, "%d ranks: the NaN is %#x", p, want[0]);
        }
        for (int r = 0; r < p; r++) {
            free(run.got[r]);
            pici_comm_free(run.comm[r]);
        }
    }
}

/* It has no other collective. As the usual algorithm of a communicator it does not stand in the way of others. */
Test(coll_doubling, all_reduce_only)
{
    struct pici_comm *comm;
    struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
    struct pici_tune tune = PICI_TUNE_INIT;
    float send[2] = {1, 2}, recv[2] = {0};
    cr_assert_eq(pici_comm_threads(&comm, 1), PICI_OK);
    o.algorithm = tune.algorithm = PICI_ALGO_DOUBLING;
    cr_expect_eq(pici_all_gather(send, recv, 2, PICI_F32, comm, &o), PICI_E_UNSUPPORTED);
    cr_expect_eq(pici_reduce_scatter(send, recv, 2, PICI_F32, PICI_SUM, comm, &o), PICI_E_UNSUPPORTED);
    cr_expect_eq(pici_comm_scratch(comm, PICI_ALL_GATHER, 2, PICI_F32, PICI_SUM, &o), 0);
    cr_expect_eq(pici_all_reduce(send, recv, 2, PICI_F32, PICI_SUM, comm, &o), PICI_OK);
    cr_expect(recv[0] == 1 && recv[1] == 2);
    cr_expect_eq(pici_comm_tune(comm, &tune), PICI_OK);
    cr_expect_eq(pici_all_gather(send, recv, 2, PICI_F32, comm, NULL), PICI_OK);
    cr_expect_eq(pici_reduce_scatter(send, recv, 2, PICI_F32, PICI_SUM, comm, NULL), PICI_OK);
    pici_comm_free(comm);
}
