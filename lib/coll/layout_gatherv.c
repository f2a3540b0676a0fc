/* SPDX-License-Identifier: BSD-3-Clause
 *
 * all_gatherv: contributions that differ in length, and where they lie in the receive buffer. All ranks give the same
 * lengths, and each gives places of its own. */
#include <inttypes.h>
#include <stdio.h>

#include "bytes.h"
#include "codec/codec.h"
#include "coll/layout.h"
#include "format.h"
#include "xxh64.h"

/* 0 for an empty contribution, whose displacement may be any number. Of contributions that lie one after the other, 0
 * where there is no table yet. */
static uint64_t first_of(const struct coll_call *c, int rank)
{
    return !c->args.recvcounts[rank] ? 0
           : c->args.displs          ? c->args.displs[rank]
           : c->resolved.packed      ? c->resolved.packed[rank]
                                     : 0;
}

struct coll_span pici_layout_contribution(const struct coll_layout *l, const struct pici_comm *comm,
                                          const struct coll_call *c, int segment)
{
    const int rank = comm->order[segment];
    (void)l;
    return (struct coll_span){first_of(c, rank), c->args.recvcounts[rank]};
}

const char *pici_layout_count(struct coll_call *c, const struct pici_comm *comm, char *words, size_t bytes)
{
    struct call_resolved *to = &c->resolved;
    const uint64_t most = SIZE_MAX / 2 / to->width, *counts = c->args.recvcounts;
    int beyond = -1; /* the first such rank */
    to->total = to->longest = to->counts_hash = 0;
    if (!counts)
        return "recvcounts is null";
    for (int i = 0; i < comm->ranks; i++) {
        const uint64_t n = counts[i], first = first_of(c, i);
        uint8_t number[8];
        store_le64(number, n);
        to->counts_hash = pici_xxh64(number, sizeof number, to->counts_hash);
        to->longest = n > to->longest ? n : to->longest;
        if (beyond < 0 && (n > most - to->total || first > most || n > most - first))
            beyond = i;
        to->total = beyond < 0 ? to->total + n : 0;
    }
    to->said.count = to->total;
    if (c->args.count != counts[comm->rank])
        snprintf(words, bytes, "sendcount is %" PRIu64 ", and this rank's entry of recvcounts is %" PRIu64,
                 c->args.count, counts[comm->rank]);
    else if (beyond >= 0)
        snprintf(words, bytes,
                 "entry %d of recvcounts and displs, %" PRIu64 " elements at %" PRIu64 ", is beyond memory", beyond,
                 counts[beyond], first_of(c, beyond));
    else
        return NULL;
    return words;
}

/* Whether slots of the receive buffer overlap. Those of rising displs need one comparison each. */
static int slots_overlap(const struct call_args *a, int ranks)
{
    uint64_t end = 0;
    int rising = 1;
    for (int i = 0; i < ranks; i++) {
        if (!a->recvcounts[i])
            continue;
        rising &= a->displs[i] >= end;
        end = a->displs[i] + a->recvcounts[i];
    }
    for (int i = 0; i < ranks && !rising; i++)
        for (int j = 0; j < i; j++)
            if (a->recvcounts[i] && a->recvcounts[j] && a->displs[i] < a->displs[j] + a->recvcounts[j] &&
                a->displs[j] < a->displs[i] + a->recvcounts[i])
                return 1;
    return 0;
}

const char *pici_layout_slots_wrong(const struct coll_call *c, const struct pici_comm *comm)
{
    const struct call_args *a = &c->args;
    const size_t width = c->resolved.width;
    uint64_t packed = 0;
    const char *null = pici_coll_null(c);
    if (null || (a->displs && slots_overlap(a, comm->ranks)))
        return null ? null : "contributions overlap in the receive buffer";
    for (int i = 0; i < comm->ranks && a->count; packed += a->recvcounts[i++]) {
        if (!a->recvcounts[i])
            continue;
        const uint8_t *slot = a->recv + (a->displs ? a->displs[i] : packed) * width;
        if (!(i == comm->rank && a->send == slot) &&
            pici_overlap(a->send, a->count * width, slot, a->recvcounts[i] * width))
            return "the send and receive buffers overlap, and not in place";
    }
    return NULL;
}

size_t pici_layout_packed_bytes(const struct coll_call *c, const struct pici_comm *comm)
{
    return c->args.kind == PICI_ALL_GATHERV && !c->args.displs ? (size_t)comm->ranks * sizeof *c->resolved.packed : 0;
}

void pici_layout_pack(struct coll_call *c, const struct pici_comm *comm, uint64_t *packed)
{
    uint64_t first = 0;
    for (int i = 0; i < comm->ranks; first += c->args.recvcounts[i++])
        packed[i] = first;
    c->resolved.packed = packed;
}
