/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_verify and pici_verify_at: check every rule of formats/block.md, in its order, and report where one is
 * broken. */
#include "bytes.h"
#include "codec/codec.h"
#include "cpu/kernels.h"
#include "codec/packed.h"
#include "sized.h"

/* The index of the first zero among count values; signs: -0.0 is a zero too. Returns count if there is none. */
static uint64_t first_zero(const uint8_t *values, uint64_t count, unsigned width_log2, int signs)
{
    const struct pici_move *move = pici_isa()->move[width_log2];
    if (move->count(values, (size_t)count) == count && !(signs && move->any_negative(values, (size_t)count, 1)))
        return count;
    for (uint64_t i = 0; i < count; i++) {
        uint8_t set_bits = 0;
        for (unsigned k = 0; k < 1u << width_log2; k++)
            set_bits |= values[(i << width_log2) + k];
        if (!set_bits || (signs && move->any_negative(values + (i << width_log2), 1, 1)))
            return i;
    }
    return count;
}

/* As first_zero, for count values of the block from number `value` on; the index counts from there. */
static uint64_t find_zero(const struct pici_block *block, uint64_t value, uint64_t count)
{
    return first_zero(block->values + (value << block->layout.width_log2), count, block->layout.width_log2, 0);
}

static uint64_t value_offset(const struct pici_block *block, uint64_t i)
{
    return block->layout.values_offset + (i << block->layout.width_log2);
}

static enum pici_status verify_tiles(const struct pici_block *block, struct pici_fault *fault)
{
    const unsigned index_width = block->layout.index_width;
    uint64_t value = 0;
    for (uint64_t tile = 0; tile < block->layout.tiles; tile++) {
        const uint8_t *bits = block->bits + tile * TILE_BITS_BYTES;
        uint64_t remaining = block->count - tile * TILE, nonzeros = 0;
        for (unsigned column = 0; column < TILE_COLS; column++) {
            uint64_t word = load_le64(bits + 8 * column);
            if (fmt_past_end(word, column, remaining))
                return pici_fault_at(fault, PICI_E_CORRUPT, HDR_BYTES + tile * TILE_BITS_BYTES + 8 * column, tile,
                                     "past-end");
            nonzeros += (uint64_t)__builtin_popcountll(word);
        }
        if (load_index(block->index, index_width, tile) != value)
            return pici_fault_at(fault, PICI_E_CORRUPT, block->layout.index_offset + tile * index_width, tile,
                                 "tile-index");
        if (nonzeros > block->nonzeros - value)
            return pici_fault_at(fault, PICI_E_CORRUPT, HDR_NNZ, tile, "tile-index");
        uint64_t zero = find_zero(block, value, nonzeros);
        if (zero < nonzeros)
            return pici_fault_at(fault, PICI_E_CORRUPT, value_offset(block, value + zero), tile, "stored-zero");
        value += nonzeros;
    }
    if (value != block->nonzeros)
        return pici_fault_at(fault, PICI_E_CORRUPT, HDR_NNZ, PICI_NO_TILE, "tile-index");
    return PICI_OK;
}

static enum pici_status verify_entries(const struct pici_block *block, struct pici_fault *fault)
{
    const unsigned index_width = block->layout.index_width;
    uint64_t zero = find_zero(block, 0, block->nonzeros), next = 0;
    for (uint64_t i = 0; i < block->nonzeros; i++) {
        uint64_t position = load_index(block->index, index_width, i),
                 offset = block->layout.index_offset + i * index_width;
        if (position < next)
            return pici_fault_at(fault, PICI_E_CORRUPT, offset, position / TILE, "rising");
        if (position >= block->count)
            return pici_fault_at(fault, PICI_E_CORRUPT, offset, PICI_NO_TILE, "past-end");
        if (i == zero)
            return pici_fault_at(fault, PICI_E_CORRUPT, value_offset(block, i), position / TILE, "stored-zero");
        next = position + 1;
    }
    return PICI_OK;
}

static enum pici_status tile_fault(struct pici_fault *fault, const struct pici_block *block, const uint8_t *byte,
                                   uint64_t tile, const char *rule)
{
    return pici_fault_at(fault, PICI_E_CORRUPT, (uint64_t)(byte - block->bytes), tile, rule);
}

/* Check the offsets of tile i of a group: they rise and are below `elements`. */
static enum pici_status verify_offsets(const struct pici_block *block, const struct pici_group *group, unsigned i,
                                       unsigned elements, struct pici_fault *fault)
{
    const struct pici_tile *tile = &group->tile[i];
    const int eight = tile->container == PICI_OFFSETS8;
    const uint8_t *byte = tile->payload, *const last = byte + container_payload(tile->container, tile->nonzeros) - 1;
    unsigned total = 0, next = 0;
    for (unsigned run = 0; eight && run < RUNS; run++)
        total += tile->payload[run];
    if (eight && total != tile->nonzeros)
        return tile_fault(fault, block, pici_tile_descriptor(group, i), group->first + i, "tile-count");
    byte += eight ? RUNS : 0;
    for (unsigned k = 0, run = 0, remaining = tile->payload[0]; k < tile->nonzeros; k++) {
        unsigned offset;
        if (eight) {
            for (; !remaining; remaining = tile->payload[run])
                run++;
            remaining--;
            offset = run * RUN + *byte;
        } else {
            offset = (unsigned)(byte[0] | byte[1] << 8) >> (k % 2 ? 4 : 0) & (TILE - 1);
        }
        if (offset < next)
            return tile_fault(fault, block, byte, group->first + i, "rising");
        if (offset >= elements)
            return tile_fault(fault, block, byte, group->first + i, "past-end");
        next = offset + 1;
        byte += eight || k % 2 == 0 ? 1 : 2;
    }
    if (!eight && tile->nonzeros % 2 && *last > 15)
        return tile_fault(fault, block, last, group->first + i, "padding");
    return PICI_OK;
}

/* Check the words of tile i of a group: they have as many bits as the tile has nonzeros, all below `elements`. */
static enum pici_status verify_words(const struct pici_block *block, const struct pici_group *group, unsigned i,
                                     unsigned elements, struct pici_fault *fault)
{
    const struct pici_tile *tile = &group->tile[i];
    unsigned count = 0;
    for (unsigned row = 0; row < TILE_ROWS; row++) {
        const uint64_t word = load_le64(tile->payload + (size_t)8 * row);
        const unsigned exist = elements > row * TILE_COLS ? elements - row * TILE_COLS : 0;
        if (exist < TILE_COLS && word >> exist)
            return tile_fault(fault, block, tile->payload + (size_t)8 * row, group->first + i, "past-end");
        count += (unsigned)__builtin_popcountll(word);
    }
    return count == tile->nonzeros
               ? PICI_OK
               : tile_fault(fault, block, pici_tile_descriptor(group, i), group->first + i, "tile-count");
}

static enum pici_status verify_tile(const struct pici_block *block, const struct pici_group *group, unsigned i,
                                    struct pici_fault *fault)
{
    const struct pici_tile *tile = &group->tile[i];
    const unsigned width_log2 = block->layout.width_log2, elements = pici_tile_elements(block, group->first + i);
    enum pici_status status = PICI_OK;
    if (tile->container == PICI_EMPTY)
        return status;
    if (tile->container == PICI_RAW && pici_isa()->move[width_log2]->count(tile->values, elements) != tile->nonzeros)
        return tile_fault(fault, block, pici_tile_descriptor(group, i), group->first + i, "tile-count");
    if (tile->container == PICI_BITVECTOR)
        status = verify_words(block, group, i, elements, fault);
    else if (tile->container != PICI_RAW)
        status = verify_offsets(block, group, i, elements, fault);
    if (status)
        return status;
    if (group->full >> i & 1 && !pici_tile_has_run(tile, elements, width_log2))
        return tile_fault(fault, block, pici_tile_descriptor(group, i), group->first + i, "container");
    const uint64_t zero = tile->container == PICI_RAW
                              ? tile->nonzeros
                              : first_zero(tile->values, tile->nonzeros, width_log2, group->signs >> i & 1);
    if (zero == tile->nonzeros)
        return PICI_OK;
    const uint8_t *offset = tile->values + (zero << width_log2);
    if (block->format == FMT_PACKED)
        offset = group->run_descriptors + (pici_values_before(block, group, i) + zero) / RUN_MOST * RUN_DESCRIPTOR;
    return tile_fault(fault, block, offset, group->first + i, "stored-zero");
}

/* Check tile i of a group of a version-2 block, after verify_tile found no fault: does it keep signs exactly if it
 * should, and are they right? */
static enum pici_status verify_signs(const struct pici_block *block, const struct pici_group *group, unsigned i,
                                     struct pici_fault *fault)
{
    const struct pici_tile *stored = &group->tile[i];
    const unsigned width_log2 = block->layout.width_log2, elements = pici_tile_elements(block, group->first + i);
    uint8_t tile[TILE * 8];
    if (!pici_tile_has_signs(group, i, elements, width_log2))
        return PICI_OK;
    const int keeps = group->signs >> i & 1;
    (void)pici_tile_decode(tile, stored, elements, width_log2);
    if (pici_tile_signs(tile, group, i, elements, width_log2, 0))
        return PICI_OK;
    const uint8_t *const byte = keeps ? pici_tile_sign_descriptor(group, i) : pici_tile_descriptor(group, i);
    return tile_fault(fault, block, byte, group->first + i, "signs");
}

/* packed: room for the values of a packed block; null in hybrid. */
static enum pici_status verify_groups(const struct pici_block *block, struct pici_values *packed,
                                      struct pici_fault *fault)
{
    const uint64_t groups = fmt_groups(block->layout.tiles);
    const int version2 = block->layout.version == FMT_VERSION_SIGNS;
    uint64_t nonzeros = 0;
    uint32_t signs = 0;
    struct pici_group group;
    for (uint64_t number = 0; number < groups; number++) {
        enum pici_status status = pici_group_read(&group, block, number, fault);
        if (!status && packed) {
            status = pici_runs_verify(block, &group, fault);
            pici_values_begin(packed, block, &group);
        }
        for (unsigned i = 0; !status && i < group.tiles; i++) {
            if (packed && group.tile[i].nonzeros)
                (void)pici_values_load(packed, &group, i, 1); /* its runs were verified */
            status = verify_tile(block, &group, i, fault);
            if (!status && version2)
                status = verify_signs(block, &group, i, fault);
        }
        if (status)
            return status;
        nonzeros += group.nonzeros;
        signs |= group.signs;
    }
    if (nonzeros != block->nonzeros)
        return pici_fault_at(fault, PICI_E_CORRUPT, HDR_NNZ, PICI_NO_TILE, "total");
    return version2 && !signs ? pici_fault_at(fault, PICI_E_CORRUPT, HDR_VERSION, PICI_NO_TILE, "version") : PICI_OK;
}

__attribute__((noinline)) static enum pici_status verify_packed(const struct pici_block *block,
                                                                struct pici_fault *fault)
{
    struct pici_values values;
    return verify_groups(block, &values, fault);
}

static enum pici_status verify(const void *block, size_t size, struct pici_fault *fault)
{
    struct pici_block parsed;
    enum pici_status status = pici_block_parse(&parsed, block, size, fault);
    if (status || (status = pici_block_whole(&parsed, size, fault)) != PICI_OK ||
        (status = pici_block_checksum(&parsed, fault)) != PICI_OK ||
        (status = pici_block_padding(&parsed, fault)) != PICI_OK)
        return status;
    switch (parsed.format) {
    case FMT_BITMAP: return verify_tiles(&parsed, fault);
    case FMT_COO: return verify_entries(&parsed, fault);
    case FMT_HYBRID: return verify_groups(&parsed, NULL, fault);
    case FMT_PACKED: return verify_packed(&parsed, fault);
    default: return PICI_OK;
    }
}

enum pici_status pici_verify(const void *block, size_t size)
{
    return block ? verify(block, size, NULL) : PICI_E_ARG;
}

enum pici_status pici_verify_at(const void *block, size_t size, struct pici_fault *fault)
{
    struct pici_fault found = PICI_FAULT_INIT;
    if (!block || (fault && sized_of(fault) < sizeof found))
        return PICI_E_ARG;
    const enum pici_status status = verify(block, size, &found);
    if (fault)
        sized_write(fault, &found, sizeof found, sizeof found);
    return status;
}
