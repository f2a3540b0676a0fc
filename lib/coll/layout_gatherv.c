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

void pici_layout_contribution(const struct coll_call *c, int rank, uint64_t *first, uint64_t *n)
{
    *first = first_of(c, rank);
    *n = c->args.recvcounts[rank];
}

int pici_layout_count(struct coll_call *c, const struct pici_comm *comm)
{
    const uint64_t most = SIZE_MAX / 2 / c->resolved.width;
    int beyond = 0;
    c->resolved.total = c->resolved.longest = c->resolved.counts_hash = 0;
    for (int i = 0; i < comm->ranks && c->args.recvcounts; i++) {
        const uint64_t n = c->args.recvcounts[i], first = first_of(c, i);
        uint8_t bytes[8];
        store_le64(bytes, n);
        c->resolved.counts_hash = pici_xxh64(bytes, sizeof bytes, c->resolved.counts_hash);
        c->resolved.longest = n > c->resolved.longest ? n : c->resolved.longest;
        beyond |= n > most - c->resolved.total || first > most || n > most - first;
        c->resolved.total = beyond ? 0 : c->resolved.total + n;
    }
    return c->args.recvcounts && !beyond && c->args.count == c->args.recvcounts[comm->rank];
}

const char *pici_coll_argument_wrong(const struct coll_call *c, const struct pici_comm *comm, char *words, size_t bytes)
{
    if (c->args.kind == PICI_BROADCAST && (c->args.root < 0 || c->args.root >= comm->ranks))
        snprintf(words, bytes, "there is no root %d among %d ranks", c->args.root, comm->ranks);
    else if (c->args.kind == PICI_ALL_GATHERV && !c->args.recvcounts)
        snprintf(words, bytes, "recvcounts is null");
    else if (c->args.kind == PICI_ALL_GATHERV && c->args.count != c->args.recvcounts[comm->rank])
        snprintf(words, bytes, "sendcount is %" PRIu64 ", and this rank's entry of recvcounts is %" PRIu64,
                 c->args.count, c->args.recvcounts[comm->rank]);
    else
        return NULL;
    return words;
}

/* Whether slots of the receive buffer overlap. Those of rising displs need one comparison each. */
static int slots_overlap(const struct coll_call *c, int ranks)
{
    uint64_t end = 0;
    int rising = 1;
    for (int i = 0; i < ranks; i++) {
        if (!c->args.recvcounts[i])
            continue;
        rising &= c->args.displs[i] >= end;
        end = c->args.displs[i] + c->args.recvcounts[i];
    }
    for (int i = 0; i < ranks && !rising; i++)
        for (int j = 0; j < i; j++)
            if (c->args.recvcounts[i] && c->args.recvcounts[j] &&
                c->args.displs[i] < c->args.displs[j] + c->args.recvcounts[j] &&
                c->args.displs[j] < c->args.displs[i] + c->args.recvcounts[i])
                return 1;
    return 0;
}

int pici_layout_slots_wrong(const struct coll_call *c, const struct pici_comm *comm)
{
    uint64_t packed = 0;
    if ((!c->args.send && c->args.count) || (!c->args.recv && c->resolved.total) ||
        (c->args.displs && slots_overlap(c, comm->ranks)))
        return 1;
    for (int i = 0; i < comm->ranks && c->args.count; packed += c->args.recvcounts[i++]) {
        if (!c->args.recvcounts[i])
            continue;
        const uint8_t *slot = c->args.recv + (c->args.displs ? c->args.displs[i] : packed) * c->resolved.width;
        if (!(i == comm->rank && c->args.send == slot) && pici_overlap(c->args.send, c->args.count * c->resolved.width,
                                                                       slot, c->args.recvcounts[i] * c->resolved.width))
            return 1;
    }
    return 0;
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
