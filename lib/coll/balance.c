/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Sums over all ranks, made in the rounds of the agreement, in which ranks may receive the same data twice. Before
 * round k, a rank has the sum of 2^k ranks, itself the last of them. If the number of ranks is not a power of two, it
 * also keeps the sum of the last m ranks. m is the lower k bits of the number of ranks. In the end m is the number of
 * all ranks. */
#include "coll/balance.h"

#include <string.h>

#include "bytes.h"
#include "coll/engine_stream.h"
#include "format.h"
#include "schedule/registry.h"

enum {
    WORTHWHILE = 4096, /* nonzeros of all ranks: with fewer, any cut takes one message per segment */
    FINER = 7          /* how often ranges are refined at most: a range of 2^42 elements becomes one of 1 */
};

static int is_undivided(enum pici_algorithm algorithm, const struct pici_comm *comm)
{
    const struct schedule *schedule = comm->forced;
    if (!schedule && algorithm)
        schedule = pici_schedule_for(algorithm, PICI_ALL_REDUCE);
    return schedule && schedule->undivided;
}

_Static_assert(AGREE_COUNTS_BYTES == 2 * 8 * BALANCE_RANGES, "of each range two counts");

/* The owner of an element determines the order of additions, so balancing may change the bits of floats. Calls with
 * floats are balanced only on request. */
static int may_balance(const struct pici_request *request)
{
    const struct coll_call *call = &request->call;
    const int asked = call->opts.balance == PICI_BALANCE_ON ||
                      (call->opts.balance == PICI_BALANCE_AUTO && !fmt_is_float((unsigned)call->args.dtype));
    return call->args.kind == PICI_ALL_REDUCE && asked && request->comm->ranks > 1 && !call->opts.values.phases &&
           call->resolved.width && call->resolved.total > EARLY_DATA / call->resolved.width &&
           !is_undivided(call->opts.algorithm, request->comm);
}

/* Whether elements can be counted now. */
uint32_t pici_balance_can(const struct pici_request *request)
{
    return request->call.args.stream || request->engine == request->comm->engine ? CAN_BALANCE : 0;
}

/* ---- this rank's nonzeros */

static uint64_t count_range(const struct pici_request *request, uint64_t first, uint64_t count)
{
    const struct coll_call *call = &request->call;
    const struct stream_input *input = call->args.stream ? &call->args.stream->input : NULL;
    const uint8_t *dense = input ? input->dense : call->args.send;
    const struct engine_array array = {.dtype = call->args.dtype, .by_value = call->resolved.by_value};
    const void *source =
        dense ? dense + first * call->resolved.width : pici_stream_values(input, first, &count, call->resolved.width);
    uint64_t nonzeros = 0;
    if (count)
        request->comm->engine->count(NULL, &source, &count, 1, &array, 1, &nonzeros);
    return nonzeros;
}

/* AUTO does not count dense elements, since it does not balance their calls. */
static void count(struct pici_request *request)
{
    const struct coll_call *call = &request->call;
    struct coll_balance *balance = &request->comm->balance;
    const uint64_t *first = balance->cuts.first;
    memset(balance->sum, 0, sizeof balance->sum);
    memset(balance->part, 0, sizeof balance->part);
    if (request->status || !pici_balance_can(request) ||
        (call->resolved.stored == COLL_DENSE && call->opts.balance == PICI_BALANCE_AUTO))
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

/* Whether balanced cuts pay. With AUTO, dense data never does: an owner loses more time on a long segment with few
 * nonzeros than the messages save. */
static int pays(const struct pici_request *request, uint64_t nonzeros)
{
    const struct coll_agreement *agreement = &request->agree;
    if (!nonzeros || !(agreement->abilities & CAN_BALANCE))
        return 0;
    if (request->call.opts.balance == PICI_BALANCE_ON)
        return 1;
    return agreement->stored != COLL_DENSE && nonzeros >= WORTHWHILE &&
           pici_balance_skewed(&request->comm->balance.cuts, request->comm->ranks);
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
    request->call.resolved.balance = balance->cuts.before[BALANCE_RANGES] ? &balance->cuts : NULL;
    return 0;
}
