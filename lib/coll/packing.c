/* SPDX-License-Identifier: BSD-3-Clause */
#include "coll/packing.h"

#include "format.h"
#include "predict/model.h"

/* Whether the bandwidth of the slowest link of the call is known. Without it AUTO does not pack. */
static int knows_bandwidth(const struct pici_request *request)
{
    const struct pici_comm *comm = request->comm;
    const enum policy_link slowest = comm->nodes > 1 ? POLICY_INTER : POLICY_INTRA;
    return comm->chooser->tuned || request->call.opts.known >> slowest & 1;
}

/* Messages to or from GPU memory are not packed: engines state whether they can. */
uint32_t pici_packing_can(const struct pici_request *request)
{
    const enum pici_packing pack = request->call.opts.pack;
    uint32_t can = 0;
    if (!request->engine->packs)
        return 0;
    can |= CAN_TAKE_PACKED;
    can |= pack == PICI_PACKING_PLANES ? CAN_PACK | CAN_PACK_ALL : 0;
    can |= pack == PICI_PACKING_AUTO && knows_bandwidth(request) ? CAN_PACK : 0;
    can |= pici_engine_host_kernels() >= POLICY_AVX2 ? CAN_PACK_AVX2 : 0;
    can |= pici_engine_host_kernels() >= POLICY_AVX512 ? CAN_PACK_AVX512 : 0;
    return can;
}

static enum policy_kernels kernels_of(uint32_t can)
{
    if (can & CAN_PACK_AVX512)
        return POLICY_AVX512;
    return can & CAN_PACK_AVX2 ? POLICY_AVX2 : POLICY_PORTABLE;
}

/* A bandwidth that options or settings set takes precedence over a tune file's. */
void pici_packing_resolve(struct pici_request *request)
{
    const struct coll_call *call = &request->call;
    const struct chooser *chooser = request->comm->chooser;
    const uint32_t can = call->resolved.agreement != AGREE_NONE ? request->agree.abilities : pici_packing_can(request);
    struct policy_packing packing = {.pack = PICI_PACKING_NONE, .kernels = kernels_of(can)};
    pici_model_packing(&chooser->tune.machine, packing.more);
    struct policy_packing predicted = packing;
    for (int i = 0; i < POLICY_LINKS; i++) {
        const double measured = chooser->tuned ? chooser->tune.machine.link[i].beta : 0;
        if (call->opts.known >> i & 1)
            packing.bandwidth[i] = call->opts.bandwidth[i];
        else if (measured > 0)
            packing.bandwidth[i] = 1 / measured;
    }
    if (can & CAN_TAKE_PACKED)
        packing.pack = call->opts.pack;
    if (can & CAN_TAKE_PACKED && can & CAN_PACK)
        predicted.pack = can & CAN_PACK_ALL ? PICI_PACKING_PLANES : PICI_PACKING_AUTO;
    request->call.resolved.packing = packing;
    request->call.resolved.predicted = predicted;
}

/* Packs coo blocks only on request: they have hardly any values. */
void pici_packing_choose(const struct pici_request *request, struct slice_run *slice_run,
                         const struct schedule_message *message, enum policy_link link, int counted)
{
    const struct coll_call *call = &request->call;
    const struct policy_packing *packing = &call->resolved.packing;
    const int gather = slice_run->messages.phase == PHASE_GATHER;
    uint64_t values = 0;
    slice_run->unpacked = slice_run->format;
    if (slice_run->coded || !packing->pack || packing->pack == PICI_PACKING_NONE ||
        (slice_run->format == PICI_COO && packing->pack != PICI_PACKING_PLANES))
        return;
    for (int i = 0; i < message->count; i++)
        values += counted && slice_run->format != PICI_DENSE ? slice_run->nonzeros[i] : slice_run->counts[i];
    if (pici_policy_packs(packing, slice_run->unpacked, call->args.dtype, (double)values, link, gather,
                          request->pack_ratio))
        slice_run->format = slice_run->formats[0] = PICI_PACKED;
}

enum pici_format pici_packing_made(struct pici_request *request, const uint8_t *block, size_t size)
{
    struct pici_breakdown breakdown = PICI_BREAKDOWN_INIT;
    uint64_t bytes = 0;
    if (block[HDR_FORMAT] != FMT_PACKED) {
        request->pack_ratio = 1;
        return (enum pici_format)block[HDR_FORMAT];
    }
    (void)pici_breakdown(&breakdown, block, size); /* cannot fail: this rank made the block */
    for (int i = 0; i < PICI_CONTAINERS; i++)
        bytes += breakdown.value_bytes[i];
    if (breakdown.unpacked_bytes)
        request->pack_ratio = (double)bytes / (double)breakdown.unpacked_bytes;
    return PICI_PACKED;
}
