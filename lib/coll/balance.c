/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A sum over all ranks in the rounds of the agreement, where what was heard may come again. In round k a rank has the
 * sum of the 2^k ranks that end with it. If the number of ranks is no power of two, it also keeps, of as many ranks as
 * the lower k bits of that number say, the sum of those that end with it; in the end these are all. */
#include "coll/balance.h"

#include <string.h>

#include "bytes.h"
#include "coll/engine_stream.h"
#include "format.h"
#include "schedule/registry.h"

enum {
    SAMPLES = 64,      /* of a range of dense elements with AUTO: so many runs are looked at, */
    SAMPLE = 64,       /* of so many elements, */
    ONE_OF = 16,       /* and not more than one of so many elements */
    WORTHWHILE = 4096, /* nonzeros of all ranks: fewer take a message each, however they are cut */
    ELEMENTS_OF = 256, /* and of dense data at least one of so many elements, since only some are looked at */
    FINER = 7,         /* times that the ranges are made finer at the most: one of 2^42 becomes one of 1 */
    DENSE_FROM = 4     /* a nonzero in less than so many elements: bytes no longer follow nonzeros */
};

static int is_undivided(enum pici_algorithm algorithm, const struct pici_comm *comm)
{
    const struct schedule *schedule = comm->forced;
    if (!schedule && algorithm)
        schedule = pici_schedule_for(algorithm, PICI_ALL_REDUCE);
    return schedule && schedule->undivided;
}

_Static_assert(AGREE_COUNTS_BYTES == 2 * 8 * BALANCE_RANGES, "of each range two counts");

/* What is added where, and so in which order, follows from who owns it: the bits of floats may change, and do so only
 * where that was asked for. */
static int may_balance(const struct pici_request *request)
{
    const struct coll_call *call = &request->call;
    const int asked = call->opts.balance == PICI_BALANCE_ON ||
                      (call->opts.balance == PICI_BALANCE_AUTO && !fmt_is_float((unsigned)call->args.dtype));
    return call->args.kind == PICI_ALL_REDUCE && asked && request->comm->ranks > 1 && !call->opts.values.phases &&
           call->resolved.width && call->resolved.total > EARLY_DATA / call->resolved.width &&
           !is_undivided(call->opts.algorithm, request->comm);
}

/* Whether elements can be counted now. With AUTO messages must be sparse too; if balance was asked for, formats must
 * not change the cuts. */
uint32_t pici_balance_can(const struct pici_request *request)
{
    const int counts = request->call.args.stream || request->engine == request->comm->engine;
    const int follows = request->call.opts.balance == PICI_BALANCE_ON || request->call.opts.format != PICI_DENSE;
    return counts && follows ? CAN_BALANCE : 0;
}

/* ---- this rank's nonzeros */

static uint64_t nonzeros_of(const struct pici_request *request, const void *const *source, const uint64_t *length,
                            int runs)
{
    const struct coll_call *call = &request->call;
    const struct engine_array array = {.dtype = call->args.dtype, .by_value = call->resolved.by_value};
    uint64_t nonzeros[SAMPLES], sum = 0;
    request->comm->engine->count(NULL, source, length, runs, &array, 1, nonzeros);
    for (int i = 0; i < runs; i++)
        sum += nonzeros[i];
    return sum;
}

/* About how many of some elements are not zero. Where in its part a run begins is scattered, since data may have a
 * period. */
static uint64_t estimate(const struct pici_request *request, const uint8_t *elements, uint64_t count)
{
    const void *source[SAMPLES];
    uint64_t length[SAMPLES];
    const uint64_t fair = count / (SAMPLE * ONE_OF), runs = fair < SAMPLES ? fair : SAMPLES;
    for (uint64_t i = 0; i < runs; i++) {
        const uint64_t part = count / runs, at = (i * UINT64_C(0x9e3779b97f4a7c15) >> 32) % (part - SAMPLE);
        source[i] = elements + (part * i + at) * request->call.resolved.width;
        length[i] = SAMPLE;
    }
    if (!runs)
        return 0; /* a range so short that a cut within it makes no difference */
    const uint64_t counted = runs * SAMPLE, found = nonzeros_of(request, source, length, (int)runs);
    return found * (count / counted) + found * (count % counted) / counted;
}

static uint64_t count_range(const struct pici_request *request, uint64_t first, uint64_t count)
{
    const struct coll_call *call = &request->call;
    const struct stream_input *input = call->args.stream ? &call->args.stream->input : NULL;
    const uint8_t *dense = input ? input->dense : call->args.send;
    const void *source;
    if (dense && call->opts.balance == PICI_BALANCE_AUTO)
        return estimate(request, dense + first * call->resolved.width, count);
    source =
        dense ? dense + first * call->resolved.width : pici_stream_values(input, first, &count, call->resolved.width);
    return count ? nonzeros_of(request, &source, &count, 1) : 0;
}

static void count(struct pici_request *request)
{
    const struct coll_call *call = &request->call;
    struct coll_balance *balance = &request->comm->balance;
    const uint64_t *first = balance->cuts.first;
    const int is_dense = !call->args.stream || call->args.stream->input.dense;
    memset(balance->sum, 0, sizeof balance->sum);
    memset(balance->part, 0, sizeof balance->part);
    /* inside a node, looking at dense data takes longer than sending what is in it */
    if (request->status || !pici_balance_can(request) ||
        (is_dense && request->comm->nodes == 1 && call->opts.balance == PICI_BALANCE_AUTO))
        return;
    for (int i = 0; i < BALANCE_RANGES; i++)
        balance->sum[i] = count_range(request, first[i], first[i + 1] - first[i]);
}

void pici_balance_begin(struct pici_request *request)
{
    struct coll_balance *balance = &request->comm->balance;
    request->balancing = may_balance(request);
    request->call.resolved.balance = NULL;
    if (!request->balancing)
        return;
    balance->finer = 0;
    pici_balance_even(&balance->cuts, request->call.resolved.total);
    count(request);
}

/* ---- of all ranks */

const uint8_t *pici_balance_say(const struct pici_request *request, uint8_t counts[AGREE_COUNTS_BYTES])
{
    const struct coll_balance *balance = &request->comm->balance;
    uint64_t any = 0;
    if (!request->balancing)
        return NULL;
    for (int i = 0; i < BALANCE_RANGES; i++) {
        any |= balance->sum[i] | balance->part[i];
        store_le64(counts + 8 * i, balance->sum[i]);
        store_le64(counts + 8 * (BALANCE_RANGES + i), balance->part[i]);
    }
    return any ? counts : NULL;
}

void pici_balance_hear(struct pici_request *request, const uint8_t *counts)
{
    struct coll_balance *balance = &request->comm->balance;
    const int kept = request->comm->ranks >> request->agree.round & 1;
    for (int i = 0; i < BALANCE_RANGES && request->balancing; i++) {
        const uint64_t sum = counts ? load_le64(counts + 8 * i) : 0;
        const uint64_t part = counts ? load_le64(counts + 8 * (BALANCE_RANGES + i)) : 0;
        if (kept)
            balance->part[i] = balance->sum[i] + part;
        balance->sum[i] += sum;
    }
}

/* Whether cuts that differ are worth it. */
static int pays(const struct pici_request *request, uint64_t nonzeros)
{
    const struct coll_call *call = &request->call;
    const uint64_t n = call->resolved.total, ranks = (uint64_t)request->comm->ranks;
    if (!nonzeros || !(request->agree.abilities & CAN_BALANCE))
        return 0;
    if (call->opts.balance == PICI_BALANCE_ON)
        return 1;
    if (request->agree.stored == COLL_DENSE && (nonzeros < n / ELEMENTS_OF || nonzeros / ranks > n / DENSE_FROM))
        return 0;
    return nonzeros >= WORTHWHILE && pici_balance_skewed(&request->comm->balance.cuts, request->comm->ranks);
}

int pici_balance_again(struct pici_request *request)
{
    struct pici_comm *comm = request->comm;
    struct coll_balance *balance = &comm->balance;
    const int ranks = comm->ranks;
    const uint64_t *counts = (ranks & (ranks - 1)) == 0 ? balance->sum : balance->part;
    uint64_t nonzeros = 0;
    if (!request->balancing)
        return 0;
    for (int i = 0; i < BALANCE_RANGES; i++)
        nonzeros = counts[i] < UINT64_MAX - nonzeros ? nonzeros + counts[i] : UINT64_MAX;
    pici_balance_weigh(&balance->cuts, counts, ranks);
    if (!balance->finer && !pays(request, nonzeros))
        return 0;
    if (balance->finer < FINER && pici_balance_coarse(&balance->cuts, ranks)) {
        balance->finer++;
        pici_balance_refine(&balance->cuts);
        count(request);
        return 1;
    }
    request->call.resolved.balance = nonzeros ? &balance->cuts : NULL;
    return 0;
}
