/* SPDX-License-Identifier: BSD-3-Clause */
#include "delta/pieces.h"

#include <inttypes.h>

#include "file/file.h"

/* Compares the hash of a piece, elements [begin, end). */
static enum pici_status compare(struct piece_hashes *pieces, uint64_t begin, uint64_t end, char *reason)
{
    char name[PICI_QUOTE_CAP];
    const uint64_t found = pici_xxh64_digest(&pieces->so_far);
    uint64_t want;
    const enum pici_status status = pici_delta_piece_hash(pieces->delta, pieces->reader, pieces->index,
                                                          begin / DELTA_HASHED, pieces->result, &want);
    if (status)
        return pici_why(reason, status, pieces->name, "%s", pici_reader_error(pieces->reader));
    if (found == want) {
        pieces->verified += end - begin;
        return PICI_OK;
    }
    pici_quote(name, pieces->tensor->name, pieces->tensor->name_len);
    if (pieces->result)
        return pici_why(reason, PICI_E_CORRUPT, pieces->name,
                        "not a valid delta, or not of these elements: the result of tensor %s has in elements [%" PRIu64
                        ", %" PRIu64 ") the XXH64 %016" PRIx64 ", not %016" PRIx64,
                        name, begin, end, found, want);
    return pici_why(reason, PICI_E_ARG, pieces->name,
                    "not the base of %s: tensor %s: the XXH64 of elements [%" PRIu64 ", %" PRIu64 ") is %016" PRIx64
                    ", not %016" PRIx64,
                    pieces->first, name, begin, end, found, want);
}

enum pici_status pici_pieces_add(struct piece_hashes *pieces, const uint8_t *elements, uint64_t from, uint64_t count,
                                 char *reason)
{
    if (!pieces->delta || !pieces->delta->partial || !delta_piece_rows(pieces->tensor->count))
        return PICI_OK;
    const size_t width = pici_dtype_width(pieces->tensor->dtype);
    for (uint64_t some; count > 0; from += some, elements += some * width, count -= some) {
        const uint64_t begin = from - from % DELTA_HASHED, remaining = pieces->tensor->count - begin,
                       end = begin + (remaining < DELTA_HASHED ? remaining : DELTA_HASHED);
        some = end - from < count ? end - from : count;
        if (from == begin) {
            pici_xxh64_init(&pieces->so_far, 0);
            pieces->begun = true;
        }
        if (!pieces->begun)
            continue;
        pici_xxh64_update(&pieces->so_far, elements, (size_t)some * width);
        if (from + some < end)
            continue;
        pieces->begun = false;
        const enum pici_status status = compare(pieces, begin, end, reason);
        if (status)
            return status;
    }
    return PICI_OK;
}
