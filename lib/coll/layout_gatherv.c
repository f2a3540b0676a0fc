/* SPDX-License-Identifier: BSD-3-Clause
 *
 * all_gatherv: contributions with different lengths, and their places in the receive buffer. All ranks pass the same
 * lengths, and each passes its own places. */
#include <inttypes.h>
#include <stdio.h>

#include "bytes.h"
#include "codec/codec.h"
#include "coll/layout.h"
#include "format.h"
#include "xxh64.h"

/* The first element of a rank's contribution. 0 for an empty one, whose displacement may be any number, and for
 * contiguous ones before the call has its table. */
static uint64_t first_of(const struct coll_call *call, int rank)
{
    if (!call->args.recvcounts[rank])
        return 0;
    if (call->args.displs)
        return call->args.displs[rank];
    return call->resolved.packed ? call->resolved.packed[rank] : 0;
}

struct coll_span pici_layout_contribution(const struct coll_layout *layout, const struct pici_comm *comm,
                                          const struct coll_call *call, int segment)
{
    const int rank = comm->order[segment];
    (void)layout;
    return (struct coll_span){first_of(call, rank), call->args.recvcounts[rank]};
}

const char *pici_layout_count(struct coll_call *call, const struct pici_comm *comm, char *explanation, size_t bytes)
{
    struct call_resolved *resolved = &call->resolved;
    const uint64_t most = SIZE_MAX / 2 / resolved->width, *counts = call->args.recvcounts;
    int beyond = -1; /* the first rank beyond the address space */
    resolved->total = resolved->longest = resolved->counts_hash = 0;
    if (!counts)
        return "recvcounts is null";
    for (int i = 0; i < comm->ranks; i++) {
        const uint64_t count = counts[i], first_element = first_of(call, i);
        uint8_t number[8];
        store_le64(number, count);
        resolved->counts_hash = pici_xxh64(number, sizeof number, resolved->counts_hash);
        resolved->longest = count > resolved->longest ? count : resolved->longest;
        if (beyond < 0 && (count > most - resolved->total || first_element > most || count > most - first_element))
            beyond = i;
        resolved->total = beyond < 0 ? resolved->total + count : 0;
    }
    resolved->said.count = resolved->total;
    if (call->args.count != counts[comm->rank])
        snprintf(explanation, bytes, "sendcount is %" PRIu64 ", and this rank's entry of recvcounts is %" PRIu64,
                 call->args.count, counts[comm->rank]);
    else if (beyond >= 0)
        snprintf(explanation, bytes,
                 "recvcounts[%d] and displs[%d]: %" PRIu64 " elements at %" PRIu64 " exceed the address space", beyond,
                 beyond, counts[beyond], first_of(call, beyond));
    else
        return NULL;
    return explanation;
}

/* Runs with rising displs take one comparison each. */
int pici_layout_overlap(const uint64_t *counts, const uint64_t *displs, int n)
{
    uint64_t end = 0;
    int rising = 1;
    for (int i = 0; i < n; i++) {
        if (!counts[i])
            continue;
        rising &= displs[i] >= end;
        end = displs[i] + counts[i];
    }
    for (int i = 0; i < n && !rising; i++)
        for (int j = 0; j < i; j++)
            if (counts[i] && counts[j] && displs[i] < displs[j] + counts[j] && displs[j] < displs[i] + counts[i])
                return 1;
    return 0;
}

const char *pici_layout_slots_wrong(const struct coll_call *call, const struct pici_comm *comm)
{
    const struct call_args *args = &call->args;
    const size_t width = call->resolved.width;
    uint64_t packed = 0;
    const char *null = pici_coll_null(call);
    if (null || (args->displs && pici_layout_overlap(args->recvcounts, args->displs, comm->ranks)))
        return null ? null : "contributions overlap in the receive buffer";
    for (int i = 0; i < comm->ranks && args->count; packed += args->recvcounts[i++]) {
        if (!args->recvcounts[i])
            continue;
        const uint8_t *slot = args->recv + (args->displs ? args->displs[i] : packed) * width;
        if (!(i == comm->rank && args->send == slot) &&
            pici_overlap(args->send, args->count * width, slot, args->recvcounts[i] * width))
            return "the send and receive buffers overlap, but not as for an in-place call: use separate buffers";
    }
    return NULL;
}

size_t pici_layout_packed_bytes(const struct coll_call *call, const struct pici_comm *comm)
{
    const size_t table = (size_t)comm->ranks * sizeof *call->resolved.packed;
    switch (call->args.kind) {
    case PICI_ALL_GATHERV: return call->args.displs ? 0 : table;
    case PICI_ALL_TO_ALLV: return call->args.displs && call->args.sdispls ? 0 : 2 * table;
    default: return 0;
    }
}

static void pack(uint64_t *packed, const uint64_t *counts, int ranks)
{
    uint64_t first_element = 0;
    for (int i = 0; i < ranks; first_element += counts[i++])
        packed[i] = first_element;
}

void pici_layout_pack(struct coll_call *call, const struct pici_comm *comm, uint64_t *packed)
{
    const int both = call->args.kind == PICI_ALL_TO_ALLV;
    if (both)
        pack(packed, call->args.sendcounts, comm->ranks);
    pack(packed + (both ? comm->ranks : 0), call->args.recvcounts, comm->ranks);
    call->resolved.packed = packed;
}
