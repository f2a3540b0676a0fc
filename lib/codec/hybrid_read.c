/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading the records of hybrid blocks. */
#include "codec/hybrid.h"

#include <string.h>

#include "bytes.h"
#include "packed_format.h"

unsigned pici_tile_elements(const struct pici_block *block, uint64_t tile)
{
    const uint64_t remaining = block->count - tile * TILE;
    return remaining < TILE ? (unsigned)remaining : TILE;
}

const uint8_t *pici_tile_descriptor(const struct pici_group *group, unsigned i)
{
    const uint32_t before = load_le32(group->record) & ((UINT32_C(1) << i) - 1);
    return group->record + 4 + __builtin_popcount(before);
}

const uint8_t *pici_tile_sign_descriptor(const struct pici_group *group, unsigned i)
{
    const uint32_t bits = load_le32(group->record);
    const uint8_t *descriptor = group->record + 4;
    for (unsigned remaining = (unsigned)__builtin_popcount(bits), k = 0; k < remaining; k++)
        descriptor += group->record[4 + k] & DESCRIPTOR_TWO ? 2 : 1;
    return descriptor + (size_t)SIGN_DESCRIPTOR * (unsigned)__builtin_popcount(group->signs & ((UINT32_C(1) << i) - 1));
}

static uint64_t offset_of(const struct pici_block *block, const uint8_t *byte)
{
    return (uint64_t)(byte - block->bytes);
}

/* packed: find the runs of a group, whose descriptors begin at `descriptor`, and check these. *bytes: out, of all
 * runs. */
static enum pici_status read_runs(struct pici_group *group, const struct pici_block *block, const uint8_t *descriptor,
                                  size_t *bytes, struct pici_fault *fault)
{
    const struct fmt_kind kind = fmt_kind_of(block->dtype);
    const int one_level = (block->flags & FLAG_ONE_LEVEL) != 0;
    group->run_descriptors = descriptor;
    *bytes = 0;
    for (unsigned done = 0; done < group->values; done += RUN_MOST, descriptor += RUN_DESCRIPTOR) {
        const unsigned remaining = group->values - done, count = remaining < RUN_MOST ? remaining : RUN_MOST;
        struct fmt_run run;
        if (!fmt_run_read(&run, descriptor, count, &kind, block->layout.width_log2, one_level))
            return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(block, descriptor), group->first, "run");
        *bytes += fmt_run_bytes(&run, &kind, block->layout.width_log2);
    }
    return PICI_OK;
}

enum pici_status pici_group_read(struct pici_group *group, const struct pici_block *block, uint64_t number,
                                 struct pici_fault *fault)
{
    const int packed = block->format == FMT_PACKED;
    const unsigned index_width = block->layout.index_width, width_log2 = block->layout.width_log2,
                   unit = packed ? fmt_unit_packed(width_log2) : fmt_unit(width_log2);
    const uint64_t units = (block->layout.block_bytes - block->layout.body_offset) / unit,
                   groups = fmt_groups(block->layout.tiles);
    const uint64_t entry = block->layout.index_offset + number * index_width,
                   begin = load_index(block->index, index_width, number);
    uint64_t end = units;
    group->first = number * GROUP_TILES;
    group->tiles =
        block->layout.tiles - group->first < GROUP_TILES ? (unsigned)(block->layout.tiles - group->first) : GROUP_TILES;
    group->nonzeros = group->values = 0;
    group->full = group->signs = 0;
    if (number == 0 ? begin != 0 : begin > units)
        return pici_fault_at(fault, PICI_E_CORRUPT, entry, group->first, "directory");
    if (number + 1 < groups) {
        end = load_index(block->index, index_width, number + 1);
        if (end < begin || end > units)
            return pici_fault_at(fault, PICI_E_CORRUPT, entry + index_width, group->first + GROUP_TILES, "directory");
    }
    const uint8_t *const record = group->record = block->bytes + block->layout.body_offset + begin * unit;
    const size_t bytes = (size_t)((end - begin) * unit);
    uint32_t occupied = bytes ? load_le32(record) : 0;
    if (bytes && (!occupied || (group->tiles < GROUP_TILES && occupied >> group->tiles)))
        return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(block, record), group->first, "occupancy");

    /* only addresses so far: a payload may lie beyond the end, and is read only after the check of the record's
     * length */
    const int version2 = block->layout.version == FMT_VERSION_SIGNS;
    const uint8_t *descriptor_byte = record + 4, *second_byte = descriptor_byte + __builtin_popcount(occupied),
                  *sign = second_byte;
    size_t descriptors = 4 + (size_t)(second_byte - descriptor_byte);
    for (size_t i = 0, some = (size_t)(second_byte - descriptor_byte); i < some && 4 + some <= bytes; i++) {
        sign += descriptor_byte[i] >> 7;
        descriptors += descriptor_byte[i] >> 7;
        if (version2 && descriptor_byte[i] >> 6 == 3)
            descriptors += SIGN_DESCRIPTOR;
    }
    if (bytes && descriptors > bytes)
        return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(block, record), group->first, "record-length");
    size_t metadata = bytes ? descriptors : 0, stored = 0, signs = 0;
    for (unsigned i = 0; i < group->tiles; i++, occupied >>= 1) {
        struct pici_tile *tile = &group->tile[i];
        const unsigned elements = pici_tile_elements(block, group->first + i);
        struct container_said descriptor;
        *tile = (struct pici_tile){.payload = block->bytes, .container = PICI_EMPTY};
        if (!(occupied & 1))
            continue;
        if (!container_read(&descriptor, *descriptor_byte, *descriptor_byte & DESCRIPTOR_TWO ? *second_byte : 0,
                            elements, width_log2) ||
            (descriptor.signs && !version2))
            return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(block, descriptor_byte), group->first + i,
                                 "descriptor");
        second_byte += *descriptor_byte++ >> 7;
        tile->nonzeros = (uint16_t)descriptor.n;
        tile->container = (uint8_t)(descriptor.n ? descriptor.container : (unsigned)PICI_EMPTY);
        group->full |= (uint32_t)descriptor.full << i;
        group->nonzeros += tile->nonzeros;
        tile->payload = (const uint8_t *)((uintptr_t)record + metadata);
        metadata += container_payload(tile->container, tile->nonzeros);
        stored += (size_t)container_stored(tile->container, tile->nonzeros, elements) << width_log2;
        if (descriptor.signs) {
            group->signs |= UINT32_C(1) << i;
            if (!pici_signs_read_descriptor(&group->tile_signs[i], sign, elements - tile->nonzeros))
                return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(block, sign), group->first + i, "signs");
            sign += SIGN_DESCRIPTOR;
            signs += pici_signs_bytes(&group->tile_signs[i]);
        }
    }
    if (packed && bytes) {
        group->values = (unsigned)(stored >> width_log2);
        const size_t more = (size_t)fmt_runs(group->values) * RUN_DESCRIPTOR;
        if (descriptors + more > bytes)
            return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(block, record), group->first, "record-length");
        const enum pici_status status = read_runs(group, block, record + descriptors, &stored, fault);
        if (status)
            return status;
        for (unsigned i = 0; i < group->tiles; i++)
            if (group->tile[i].nonzeros)
                group->tile[i].payload = (const uint8_t *)((uintptr_t)group->tile[i].payload + more);
        metadata += more;
    }
    const uint8_t *sign_bits = (const uint8_t *)((uintptr_t)record + metadata);
    metadata += signs;
    if ((packed ? fmt_record_packed(metadata, stored, width_log2) : fmt_record(metadata, stored, width_log2)) != bytes)
        return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(block, record), group->first, "record-length");
    const size_t before = packed ? (metadata + 7) & ~(size_t)7 : (size_t)fmt_record_values(metadata, width_log2);
    const uint8_t *values = record + (bytes ? before : 0), *padding = record + metadata;
    while (padding < values && !*padding)
        padding++;
    if (padding == values)
        for (padding += stored; padding < record + bytes && !*padding;)
            padding++;
    if (padding < record + bytes)
        return pici_fault_at(fault, PICI_E_CORRUPT, offset_of(block, padding), PICI_NO_TILE, "padding");
    group->runs = values;
    for (unsigned i = 0; i < group->tiles; i++) {
        struct pici_tile *tile = &group->tile[i];
        if (group->signs >> i & 1) {
            group->tile_signs[i].bytes = sign_bits;
            sign_bits += pici_signs_bytes(&group->tile_signs[i]);
        }
        tile->values = values;
        if (tile->nonzeros && !packed)
            values +=
                (size_t)container_stored(tile->container, tile->nonzeros, pici_tile_elements(block, group->first + i))
                << width_log2;
    }
    return PICI_OK;
}

int pici_tile_has_run(const struct pici_tile *tile, unsigned elements, unsigned width_log2)
{
    for (unsigned first = 0; first + RUN <= elements; first += RUN) {
        unsigned full = 0;
        if (tile->container == PICI_BITVECTOR)
            while (full < RUN && load_le64(tile->payload + (first + full) / 8) == UINT64_MAX)
                full += 64;
        else
            for (unsigned any = 1; full < RUN && any; full += any != 0) {
                any = 0;
                for (unsigned k = 0; k < 1u << width_log2; k++)
                    any |= tile->values[((size_t)(first + full) << width_log2) + k];
            }
        if (full == RUN)
            return 1;
    }
    return 0;
}

int pici_tile_decode(uint8_t *output, const struct pici_tile *tile, unsigned elements, unsigned width_log2)
{
    const unsigned payload = container_payload(tile->container, tile->nonzeros);
    const size_t stored = (size_t)container_stored(tile->container, tile->nonzeros, elements) << width_log2;
    const size_t zeros = tile->container == PICI_RAW ? (size_t)(TILE - elements) << width_log2 : PICI_SLACK;
    uint8_t values[TILE * 8 + PICI_SLACK], where[TILE_BITS_BYTES + PICI_SLACK];
    if (!tile->nonzeros) {
        memset(output, 0, (size_t)TILE << width_log2);
        return 1;
    }
    /* bounce buffers, because a kernel reads past the end */
    memcpy(where, tile->payload, payload);
    memset(where + payload, 0, PICI_SLACK);
    memcpy(values, tile->values, stored);
    memset(values + stored, 0, zeros);
    const struct pici_tile copy = {where, values, tile->nonzeros, tile->container};
    struct pici_unpack_tiles one = {.dst = output, .tile = &copy, .tiles = 1};
    const struct pici_move *move = pici_isa()->move[width_log2];
    /* stored values are nonzero, so count finds any that lie past the end */
    return move->unpack_tiles(&one) == 1 &&
           (elements == TILE || !move->count(output + ((size_t)elements << width_log2), TILE - elements));
}
