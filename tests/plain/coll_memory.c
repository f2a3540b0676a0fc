/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives without memory: each allocation of a rank fails in turn. All ranks end with PICI_E_NOMEM and a broken
 * communicator; a plan may leave it usable, on all ranks. Needs libc alone.
 *
 * The linker puts the functions of counted.h in the place of the allocator's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pici/neighbor.h"
#include "pici/stream.h"
#include "tests/util/coll.h"
#define COUNTED_BY _Thread_local /* a rank is a thread */
#include "tests/util/counted.h"
#include "tests/util/util.h"

/* ---- calls */

enum { RANKS = 3, N = 20000, ROWS = 50, UNLUCKY = 1 /* the rank whose allocations fail */ };

struct rank {
    struct pici_comm *comm;
    float send[N * RANKS], recv[N * RANKS], values[ROWS];
    uint64_t rows[ROWS], counts[RANKS];
    enum pici_status status, after;
    char error[256];
};

static void fill(struct rank *r, int rank)
{
    for (int i = 0; i < N * RANKS; i += 7)
        r->send[i] = (float)(1 + rank);
    for (int i = 0; i < ROWS; i++) { /* in no order */
        r->rows[i] = (uint64_t)(i * 37 % ROWS * (N / ROWS) + rank);
        r->values[i] = 1;
    }
    for (int i = 0; i < RANKS; i++)
        r->counts[i] = N / 2;
}

static enum pici_status all_reduce(struct rank *r)
{
    return pici_all_reduce(r->send, r->recv, N, PICI_F32, PICI_SUM, r->comm, NULL);
}

static enum pici_status all_gatherv(struct rank *r)
{
    return pici_all_gatherv(r->send, N / 2, r->recv, r->counts, NULL, PICI_F32, r->comm, NULL);
}

static enum pici_status all_to_allv(struct rank *r)
{
    return pici_all_to_allv(r->send, r->counts, NULL, r->recv, r->counts, NULL, PICI_F32, r->comm, NULL);
}

static enum pici_status quantized(struct rank *r)
{
    struct pici_values values = PICI_VALUES_INIT;
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    values.codec = PICI_VALUES_QSGD;
    opts.values = &values;
    return pici_all_reduce(r->send, r->recv, N, PICI_F32, PICI_SUM, r->comm, &opts);
}

static enum pici_status stream(struct rank *r, enum pici_collective collective, enum pici_stream_form form)
{
    struct pici_stream in = PICI_STREAM_INIT;
    struct pici_stream_out out = PICI_STREAM_OUT_INIT;
    enum pici_status status;
    in.n = N / RANKS * RANKS;
    in.nnz = ROWS - 1;
    in.indices = r->rows;
    in.values = r->values;
    out.want = form;
    switch (collective) {
    case PICI_ALL_REDUCE: status = pici_all_reduce_stream(&in, &out, PICI_F32, PICI_SUM, r->comm, NULL); break;
    case PICI_ALL_GATHER: status = pici_all_gather_stream(&in, &out, PICI_F32, r->comm, NULL); break;
    case PICI_BROADCAST: status = pici_broadcast_stream(&in, &out, PICI_F32, UNLUCKY, r->comm, NULL); break;
    default: status = pici_reduce_scatter_stream(&in, &out, PICI_F32, PICI_MAX, r->comm, NULL); break;
    }
    pici_stream_free(&out);
    return status;
}

static enum pici_status sum_of_streams(struct rank *r)
{
    return stream(r, PICI_ALL_REDUCE, PICI_STREAM_SPARSE);
}

static enum pici_status dense_of_streams(struct rank *r)
{
    return stream(r, PICI_ALL_GATHER, PICI_STREAM_DENSE);
}

static enum pici_status stream_of_one(struct rank *r)
{
    return stream(r, PICI_BROADCAST, PICI_STREAM_SPARSE);
}

static enum pici_status parts_of_streams(struct rank *r)
{
    return stream(r, PICI_REDUCE_SCATTER, PICI_STREAM_SHORTER);
}

static enum pici_status plan(struct rank *r)
{
    struct pici_neighbor_plan *made;
    const int rank = pici_comm_rank(r->comm), to = (rank + 1) % RANKS, from = (rank + RANKS - 1) % RANKS;
    const enum pici_status status = pici_neighbor_plan_create(&made, r->comm, 1, &from, 1, &to, NULL);
    pici_neighbor_plan_free(made);
    return status;
}

static const struct {
    const char *name;
    enum pici_status (*call)(struct rank *);
    int breaks;
} calls[] = {{"all_reduce", all_reduce, 1},
             {"all_gatherv", all_gatherv, 1},
             {"all_to_allv", all_to_allv, 1},
             {"a lossy codec", quantized, 1},
             {"all_reduce of streams", sum_of_streams, 1},
             {"all_gather of streams, dense", dense_of_streams, 1},
             {"broadcast of a stream", stream_of_one, 1},
             {"reduce_scatter of streams", parts_of_streams, 1},
             {"a plan", plan, 0}};

/* ---- runs */

struct run {
    struct rank *ranks;
    enum pici_status (*call)(struct rank *);
    int fails, refused; /* the number of the allocation that fails; whether there was one */
};

static void run_rank(void *context, int rank)
{
    struct run *run = context;
    struct rank *r = &run->ranks[rank];
    uint64_t one = 1, sum = 0;
    fill(r, rank);
    counted.allocations = 0;
    counted.fail_from = run->fails;
    counted.fail_end = run->fails + 1;
    counted.on = rank == UNLUCKY;
    r->status = run->call(r);
    counted.on = 0;
    snprintf(r->error, sizeof r->error, "%s", pici_comm_error(r->comm));
    if (rank == UNLUCKY)
        run->refused = counted.allocations > run->fails;
    r->after = pici_all_reduce(&one, &sum, 1, PICI_U64, PICI_SUM, r->comm, NULL);
}

int main(void)
{
    enum { MOST = 200 };
    struct rank *ranks = test_alloc(RANKS * sizeof *ranks);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct run run = {.ranks = ranks, .call = calls[i].call, .refused = 1};
        for (; run.refused && run.fails < MOST; run.fails++) {
            struct pici_comm *comms[RANKS];
            int right = 1;
            memset(ranks, 0, RANKS * sizeof *ranks);
            if (pici_comm_threads(comms, RANKS))
                abort();
            for (int rank = 0; rank < RANKS; rank++)
                ranks[rank].comm = comms[rank];
            coll_threads(RANKS, run_rank, &run);
            const enum pici_status want = run.refused ? PICI_E_NOMEM : PICI_OK;
            enum pici_status after = run.refused ? PICI_E_BROKEN : PICI_OK;
            if (!calls[i].breaks && !ranks[UNLUCKY].after)
                after = PICI_OK;
            for (int rank = 0; rank < RANKS; rank++)
                right &= ranks[rank].status == want && ranks[rank].after == after && (!want || ranks[rank].error[0]);
            if (tally_count(right))
                for (int rank = 0; rank < RANKS; rank++)
                    printf("FAIL %s, allocation %d, rank %d: %s, then %s (%s)\n", calls[i].name, run.fails, rank,
                           pici_strerror(ranks[rank].status), pici_strerror(ranks[rank].after), ranks[rank].error);
            for (int rank = 0; rank < RANKS; rank++)
                pici_comm_free(comms[rank]);
        }
        if (tally_count(run.fails > 1 && run.fails < MOST))
            printf("FAIL %s: %d allocations\n", calls[i].name, run.fails);
    }
    free(ranks);
    return tally_end();
}
