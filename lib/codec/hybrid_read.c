/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading the records of hybrid blocks. */
#include "codec/hybrid.h"

#include <string.h>

#include "bytes.h"

unsigned pici_tile_elements(const struct pici_block *b, uint64_t t)
{
    const uint64_t left = b->count - t * TILE;
    return left < TILE ? (unsigned)left : TILE;
}

const uint8_t *pici_tile_descriptor(const struct pici_group *r, unsigned i)
{
    const uint32_t before = load_le32(r->record) & ((UINT32_C(1) << i) - 1);
    return r->record + 4 + __builtin_popcount(before);
}

const uint8_t *pici_tile_sign_descriptor(const struct pici_group *r, unsigned i)
{
    const uint32_t bits = load_le32(r->record);
    const uint8_t *at = r->record + 4;
    for (unsigned left = (unsigned)__builtin_popcount(bits), k = 0; k < left; k++)
        at += r->record[4 + k] & DESCRIPTOR_TWO ? 2 : 1;
    return at + (size_t)SIGN_DESCRIPTOR * (unsigned)__builtin_popcount(r->signs & ((UINT32_C(1) << i) - 1));
}

static uint64_t offset_of(const struct pici_block *b, const uint8_t *p)
{
    return (uint64_t)(p - b->bytes);
}

enum pici_status pici_group_read(struct pici_group *r, const struct pici_block *b, uint64_t g, struct pici_fault *fault)
{
    const unsigned iw = b->at.index_width, w = b->at.width_log2, unit = fmt_unit(w);
    const uint64_t units = (b->at.block_bytes - b->at.body_offset) / unit, groups = fmt_groups(b->at.tiles);
    const uint64_t entry = b->at.index_offset + g * iw, begin = load_index(b->index, iw, g);
    uint64_t end = units;
    r->first = g * GROUP_TILES;
    r->tiles = b->at.tiles - r->first < GROUP_TILES ? (unsigned)(b->at.tiles - r->first) : GROUP_TILES;
    r->nnz = 0;
    r->runs = r->signs = 0;
    if (g == 0 ? begin != 0 : begin > units)
        return pici_fault_at(fault, PICI_E_CORRUPT, entry, r->first, "directory");
    if (g + 1 < groups) {
        end = load_index(b->index, iw, g + 1);
        if (end < begin || end > units)
            return pici_fault_at(fault, PICI_E_CORRUPT, entry + iw, r->first + GROUP_TILES, "directory");
    }
    const uint8_t *const record = r->record = b->bytes + b->at.body_offset + begin * unit;
    const size_t bytes = (size_t)((end - begin) * unit);
    uint32_t bits = bytes ? load_le32(record) : 0;
    if (bytes && (!bits || (r->tiles < GROUP_TILES && bits >> r->tiles)))
        return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(b, record), r->first, "occupancy");

    /* by address: a payload may be beyond the end, and is not read before the record's length has been checked */
    const int version2 = b->at.version == FMT_VERSION_SIGNS;
    const uint8_t *first = record + 4, *second = first + __builtin_popcount(bits), *sign = second;
    size_t descriptors = 4 + (size_t)(second - first);
    for (size_t i = 0, some = (size_t)(second - first); i < some && 4 + some <= bytes; i++) {
        sign += first[i] >> 7;
        descriptors += first[i] >> 7;
        if (version2 && first[i] >> 6 == 3)
            descriptors += SIGN_DESCRIPTOR;
    }
    if (bytes && descriptors > bytes)
        return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(b, record), r->first, "record-length");
    size_t metadata = bytes ? descriptors : 0, stored = 0, signs = 0;
    for (unsigned i = 0; i < r->tiles; i++, bits >>= 1) {
        struct pici_tile *t = &r->tile[i];
        const unsigned len = pici_tile_elements(b, r->first + i);
        struct container_said said;
        *t = (struct pici_tile){.payload = b->bytes, .container = PICI_EMPTY};
        if (!(bits & 1))
            continue;
        if (!container_read(&said, *first, *first & DESCRIPTOR_TWO ? *second : 0, len, w) || (said.signs && !version2))
            return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(b, first), r->first + i, "descriptor");
        second += *first++ >> 7;
        t->n = (uint16_t)said.n;
        t->container = (uint8_t)(said.n ? said.container : (unsigned)PICI_EMPTY);
        r->runs |= (uint32_t)said.full << i;
        r->nnz += t->n;
        t->payload = (const uint8_t *)((uintptr_t)record + metadata);
        metadata += container_payload(t->container, t->n);
        stored += (size_t)container_stored(t->container, t->n, len) << w;
        if (said.signs) {
            r->signs |= UINT32_C(1) << i;
            if (!pici_signs_read_descriptor(&r->sign[i], sign, len - t->n))
                return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(b, sign), r->first + i, "signs");
            sign += SIGN_DESCRIPTOR;
            signs += pici_signs_bytes(&r->sign[i]);
        }
    }
    const uint8_t *at = (const uint8_t *)((uintptr_t)record + metadata);
    metadata += signs;
    if (fmt_record(metadata, stored, w) != bytes)
        return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(b, record), r->first, "record-length");
    const uint8_t *values = record + (bytes ? fmt_record_values(metadata, w) : 0), *bad = record + metadata;
    while (bad < values && !*bad)
        bad++;
    if (bad == values)
        for (bad += stored; bad < record + bytes && !*bad;)
            bad++;
    if (bad < record + bytes)
        return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(b, bad), PICI_NO_TILE, "padding");
    for (unsigned i = 0; i < r->tiles; i++) {
        struct pici_tile *t = &r->tile[i];
        if (r->signs >> i & 1) {
            r->sign[i].bytes = at;
            at += pici_signs_bytes(&r->sign[i]);
        }
        t->values = values;
        if (t->n)
            values += (size_t)container_stored(t->container, t->n, pici_tile_elements(b, r->first + i)) << w;
    }
    return PICI_OK;
}

int pici_tile_has_run(const struct pici_tile *t, unsigned len, unsigned width_log2)
{
    for (unsigned first = 0; first + RUN <= len; first += RUN) {
        unsigned full = 0;
        if (t->container == PICI_BITVECTOR)
            while (full < RUN && load_le64(t->payload + (first + full) / 8) == UINT64_MAX)
                full += 64;
        else
            for (unsigned any = 1; full < RUN && any; full += any != 0) {
                any = 0;
                for (unsigned k = 0; k < 1u << width_log2; k++)
                    any |= t->values[((size_t)(first + full) << width_log2) + k];
            }
        if (full == RUN)
            return 1;
    }
    return 0;
}

int pici_tile_decode(uint8_t *out, const struct pici_tile *t, unsigned len, unsigned width_log2)
{
    const unsigned w = width_log2, payload = container_payload(t->container, t->n);
    const size_t stored = (size_t)container_stored(t->container, t->n, len) << w;
    const size_t zeros = t->container == PICI_RAW ? (size_t)(TILE - len) << w : PICI_SLACK;
    uint8_t values[TILE * 8 + PICI_SLACK], where[TILE_BITS_BYTES + PICI_SLACK];
    if (!t->n) {
        memset(out, 0, (size_t)TILE << w);
        return 1;
    }
    /* bounce buffers, because a kernel reads too much */
    memcpy(where, t->payload, payload);
    memset(where + payload, 0, PICI_SLACK);
    memcpy(values, t->values, stored);
    memset(values + stored, 0, zeros);
    const struct pici_tile copy = {where, values, t->n, t->container};
    struct pici_unpack_tiles one = {.dst = out, .tile = &copy, .tiles = 1};
    const struct pici_move *move = pici_isa()->move[w];
    /* stored values are nonzero, so any that lie past the end are counted here */
    return move->unpack_tiles(&one) == 1 && (len == TILE || !move->count(out + ((size_t)len << w), TILE - len));
}
