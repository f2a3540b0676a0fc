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
    return !c->recvcounts[rank] ? 0 : c->displs ? c->displs[rank] : c->packed ? c->packed[rank] : 0;
}

void pici_layout_contribution(const struct coll_call *c, int rank, uint64_t *first, uint64_t *n)
{
    *first = first_of(c, rank);
    *n = c->recvcounts[rank];
}

int pici_layout_count(struct coll_call *c, const struct pici_comm *comm)
{
    const uint64_t most = SIZE_MAX / 2 / c->width;
    int beyond = 0;
    c->total = c->longest = c->counts = 0;
    for (int i = 0; i < comm->ranks && c->recvcounts; i++) {
        const uint64_t n = c->recvcounts[i], first = first_of(c, i);
        uint8_t bytes[8];
        store_le64(bytes, n);
        c->counts = pici_xxh64(bytes, sizeof bytes, c->counts);
        c->longest = n > c->longest ? n : c->longest;
        beyond |= n > most - c->total || first > most || n > most - first;
        c->total = beyond ? 0 : c->total + n;
    }
    return c->recvcounts && !beyond && c->count == c->recvcounts[comm->rank];
}

const char *pici_coll_argument_wrong(const struct coll_call *c, const struct pici_comm *comm, char *words, size_t bytes)
{
    if (c->kind == PICI_BROADCAST && (c->root < 0 || c->root >= comm->ranks))
        snprintf(words, bytes, "there is no root %d among %d ranks", c->root, comm->ranks);
    else if (c->kind == PICI_ALL_GATHERV && !c->recvcounts)
        snprintf(words, bytes, "recvcounts is null");
    else if (c->kind == PICI_ALL_GATHERV && c->count != c->recvcounts[comm->rank])
        snprintf(words, bytes, "sendcount is %" PRIu64 ", and this rank's entry of recvcounts is %" PRIu64, c->count,
                 c->recvcounts[comm->rank]);
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
        if (!c->recvcounts[i])
            continue;
        rising &= c->displs[i] >= end;
        end = c->displs[i] + c->recvcounts[i];
    }
    for (int i = 0; i < ranks && !rising; i++)
        for (int j = 0; j < i; j++)
            if (c->recvcounts[i] && c->recvcounts[j] && c->displs[i] < c->displs[j] + c->recvcounts[j] &&
                c->displs[j] < c->displs[i] + c->recvcounts[i])
                return 1;
    return 0;
}

int pici_layout_slots_wrong(const struct coll_call *c, const struct pici_comm *comm)
{
    uint64_t packed = 0;
    if ((!c->send && c->count) || (!c->recv && c->total) || (c->displs && slots_overlap(c, comm->ranks)))
        return 1;
    for (int i = 0; i < comm->ranks && c->count; packed += c->recvcounts[i++]) {
        if (!c->recvcounts[i])
            continue;
        const uint8_t *slot = c->recv + (c->displs ? c->displs[i] : packed) * c->width;
        if (!(i == comm->rank && c->send == slot) &&
            pici_overlap(c->send, c->count * c->width, slot, c->recvcounts[i] * c->width))
            return 1;
    }
    return 0;
}

size_t pici_layout_packed_bytes(const struct coll_call *c, const struct pici_comm *comm)
{
    return c->kind == PICI_ALL_GATHERV && !c->displs ? (size_t)comm->ranks * sizeof *c->packed : 0;
}

void pici_layout_pack(struct coll_call *c, const struct pici_comm *comm, uint64_t *packed)
{
    uint64_t first = 0;
    for (int i = 0; i < comm->ranks; first += c->recvcounts[i++])
        packed[i] = first;
    c->packed = packed;
}
