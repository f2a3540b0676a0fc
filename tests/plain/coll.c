/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives between threads, for a run under ThreadSanitizer and on other machines. Covers every algorithm,
 * collective, operation and dtype with a few ranks, calls in flight, and ranks that fail, fall silent or leave. Needs
 * libc alone. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/util/coll.h"
#include "tests/util/util.h"
#include "transport/thread.h"

enum { WATCHDOG_S = 900, RANKS = 5 };

static void every_kind(int p, struct rng *rng)
{
    struct coll_team team;
    coll_team_init(&team, p);
    for (int dtype = PICI_F32; dtype <= PICI_U64; dtype++)
        for (int kind = 0; kind < 11; kind++) {
            const enum pici_collective collective = !kind      ? PICI_ALL_GATHER
                                                    : kind > 8 ? coll_collectives[kind - 6]
                                                    : kind & 1 ? PICI_REDUCE_SCATTER
                                                               : PICI_ALL_REDUCE;
            struct coll_case c = {.collective = collective,
                                  .dtype = (enum pici_dtype)dtype,
                                  .op = (enum pici_op)((kind + 1) / 2 % 4),
                                  .count = rng_below(rng, 8) ? rng_below(rng, 300) : 4095 + rng_below(rng, 9000),
                                  .opts.algorithm =
                                      coll_algorithm(rng_below(rng, (uint64_t)coll_algorithms()), collective)};
            coll_case_options(&c, rng, p);
            tally("one call", coll_team_check(&team, &c));
        }
    coll_team_free(&team);
}

/* ---- ranks that do otherwise ---- */

struct odd {
    struct pici_comm *comm[RANKS];
    int p;
    enum { NULL_BUFFER, OTHER_COUNT, SILENT, LEAVES, FAULTY } how;
    struct pici_thread_faults faults;
    const char *wrong[RANKS];
};

static void odd_rank(void *context, int rank)
{
    enum { N = 9000, CALLS = 2 };
    struct odd *o = context;
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    struct pici_request *request[CALLS] = {NULL};
    const int is_odd = rank == o->p - 1;
    enum pici_status status[CALLS];
    int32_t *send = test_alloc(N * sizeof *send), *recv = test_alloc(CALLS * N * sizeof *recv);
    for (int i = 0; i < N; i++)
        send[i] = i % 9 == 0 ? i + rank : 0;
    opts.timeout_ms = o->how == SILENT || o->how == FAULTY ? 100 : 0;
    opts.checksum = 1;
    for (int i = 0; i < CALLS && !(is_odd && o->how == SILENT); i++)
        if (pici_all_reduce_start(is_odd && o->how == NULL_BUFFER ? NULL : send, recv + i * N,
                                  N - (is_odd && o->how == OTHER_COUNT), PICI_I32, PICI_SUM, o->comm[rank], &opts,
                                  &request[i]))
            o->wrong[rank] = "not started";
    if (is_odd && o->how == LEAVES) {
        pici_comm_free(o->comm[rank]);
        o->comm[rank] = NULL;
    }
    for (int i = 0; i < CALLS; i++) {
        status[i] = pici_wait(&request[i]);
        for (int j = 0; j < N && status[i] == PICI_OK && !(is_odd && o->how == SILENT); j++)
            if (recv[i * N + j] != (j % 9 == 0 ? j * o->p + o->p * (o->p - 1) / 2 : 0))
                o->wrong[rank] = "a wrong sum";
    }
    const enum pici_status want[] = {PICI_E_ARG, PICI_E_PEER, is_odd ? PICI_OK : PICI_E_TIMEOUT,
                                     is_odd ? PICI_E_BROKEN : PICI_E_PEER, status[0]};
    if (status[0] != want[o->how])
        o->wrong[rank] = pici_strerror(status[0]);
    else if (status[0] && status[1] != PICI_E_BROKEN)
        o->wrong[rank] = "not broken";
    free(send);
    free(recv);
}

static void odd_one(struct odd *o)
{
    struct pici_transport t[RANKS];
    if (pici_transport_threads(t, o->p))
        abort();
    if (o->how == FAULTY)
        pici_transport_threads_faults(&t[0], &o->faults);
    for (int i = 0; i < o->p; i++)
        if (pici_comm_transport(&o->comm[i], &t[i]))
            abort();
    coll_threads(o->p, odd_rank, o);
    for (int i = 0; i < o->p; i++) {
        tally("one that does otherwise", o->wrong[i]);
        pici_comm_free(o->comm[i]);
    }
}

int main(void)
{
    struct rng rng = {1};
    alarm(WATCHDOG_S); /* whoever hangs */
    for (int p = 1; p <= RANKS; p++)
        every_kind(p, &rng);
    for (int p = 2; p <= 7; p++)
        tally("calls in flight", coll_flight_check(p, (uint64_t)p));
    for (int how = NULL_BUFFER; how < FAULTY; how++)
        for (int p = 2; p <= RANKS; p++)
            odd_one(&(struct odd){.p = p, .how = how});
    for (int seed = 0; seed < 40; seed++) {
        struct odd o = {.p = 2 + seed % 4, .how = FAULTY, .faults = {.seed = (uint64_t)seed, .delay_ms = 20}};
        double *const which[] = {&o.faults.drop, &o.faults.delay, &o.faults.truncate,
                                 &o.faults.flip, &o.faults.stall, &o.faults.refuse};
        *which[seed % 6] = 0.03;
        odd_one(&o);
    }
    return tally_end();
}
