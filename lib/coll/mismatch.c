/* SPDX-License-Identifier: BSD-3-Clause */
#include "coll/mismatch.h"

#include <inttypes.h>
#include <string.h>

#include "bytes.h"
#include "coll/note.h"

enum { NO_CALL = 0 }; /* the first byte: below the kind of any call */

static void describe(struct pici_comm *comm, uint32_t from, uint32_t to, uint64_t sent, uint64_t expected)
{
    if (sent == UINT64_MAX)
        pici_coll_note(comm,
                       "rank %" PRIu32 " does not send rank %" PRIu32 " %" PRIu64
                       " elements, as its recvcounts[%" PRIu32 "] says: counts do not match",
                       from, to, expected, from);
    else
        pici_coll_note(comm,
                       "rank %" PRIu32 " sends rank %" PRIu32 " %" PRIu64 " elements, and its recvcounts[%" PRIu32
                       "] is %" PRIu64 ": counts do not match",
                       from, to, sent, from, expected);
}

void pici_mismatch_found(struct pici_request *request, int from, uint64_t sent)
{
    struct coll_mismatch *found = &request->mismatch;
    const uint32_t to = (uint32_t)request->comm->rank;
    if (!found->found || (uint32_t)from < found->from)
        *found = (struct coll_mismatch){1, (uint32_t)from, to, sent, request->call.args.recvcounts[from]};
    describe(request->comm, found->from, to, found->sent, found->expected);
}

void pici_mismatch_say(uint8_t low[AGREE_CALL_BYTES], const struct pici_request *request)
{
    const struct coll_mismatch *found = &request->mismatch;
    if (!found->found)
        return;
    memset(low, 0, AGREE_CALL_BYTES);
    for (int i = 0; i < 4; i++) { /* big-endian, so that the lowest pair compares lowest */
        low[1 + i] = (uint8_t)(found->from >> (24 - 8 * i));
        low[5 + i] = (uint8_t)(found->to >> (24 - 8 * i));
    }
    store_le64(low + 16, found->sent);
    store_le64(low + 24, found->expected);
}

void pici_mismatch_explain(const struct pici_request *request, const uint8_t low[AGREE_CALL_BYTES])
{
    uint32_t ranks[2] = {0, 0};
    if (request->call.args.kind != PICI_ALL_TO_ALLV || low[0] != NO_CALL)
        return;
    for (int i = 0; i < 8; i++)
        ranks[i / 4] = ranks[i / 4] << 8 | low[1 + i];
    describe(request->comm, ranks[0], ranks[1], load_le64(low + 16), load_le64(low + 24));
}
