/* SPDX-License-Identifier: BSD-3-Clause */
#include "codec/list.h"

#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "codec/codec.h"
#include "codec/hybrid.h"

/* ---- memory */

int pici_list_reserve(struct pici_list *list, uint64_t entries, unsigned width_log2)
{
    if (entries <= list->capacity)
        return 1;
    const uint64_t more = entries > list->capacity + list->capacity / 2 ? entries : list->capacity + list->capacity / 2;
    if (more > (SIZE_MAX - PICI_SLACK) / 8)
        return 0;
    uint32_t *positions = realloc(list->positions, (size_t)more * sizeof *positions + PICI_SLACK);
    if (!positions)
        return 0;
    list->positions = positions;
    uint8_t *values = realloc(list->values, ((size_t)more << width_log2) + PICI_SLACK);
    if (!values)
        return 0;
    list->values = values;
    list->capacity = more;
    return 1;
}

void pici_list_free(struct pici_list *list)
{
    free(list->positions);
    free(list->values);
    *list = (struct pici_list){0};
}

/* ---- reading */

/* Append n values in stored order. The caller has written their positions. Returns 0 if a value is zero. */
static int append_values(struct pici_list *list, const uint8_t *stored, unsigned n, unsigned width_log2)
{
    uint8_t *values = list->values + (list->count << width_log2);
    pici_copy_stored(values, stored, n, width_log2);
    list->count += n;
    return pici_isa()->move[width_log2]->count(values, n) == n;
}

/* Append the nonzeros of n <= TILE elements in host order. */
static int append_elements(struct pici_list *list, const uint8_t *elements, size_t n, uint32_t first,
                           unsigned width_log2, const struct pici_move *move)
{
    if (!pici_list_reserve(list, list->count + n, width_log2))
        return 0;
    uint8_t *const positions = (uint8_t *)(list->positions + list->count);
    uint8_t *const values = list->values + (list->count << width_log2);
    const size_t found = move->pack_coo(positions, 4, values, elements, n, first);
    if (PICI_BIG_ENDIAN) { /* entries are little-endian */
        swap_elements(positions, found * 4, 4);
        swap_elements(values, found << width_log2, (size_t)1 << width_log2);
    }
    list->count += found;
    return 1;
}

static enum pici_status read_coo(struct pici_list *list, const struct pici_block *block)
{
    uint64_t above = 0; /* the last position and 1 */
    enum pici_status status = pici_block_padding(block, NULL);
    if (status)
        return status;
    for (uint64_t i = 0; i < block->nonzeros; i++) {
        const uint32_t position = load_le32(block->index + 4 * i);
        if (position < above || position >= block->count)
            return PICI_E_CORRUPT;
        above = (uint64_t)position + 1;
        list->positions[i] = position;
    }
    const unsigned width_log2 = block->layout.width_log2;
    pici_copy_stored(list->values, block->values, (size_t)block->nonzeros, width_log2);
    list->count = block->nonzeros;
    return pici_isa()->move[width_log2]->count(list->values, (size_t)list->count) == list->count ? PICI_OK
                                                                                                 : PICI_E_CORRUPT;
}

/* Read the positions in a tile's list of offsets. first: position of the tile's first element. Returns 0 if one breaks
 * a rule. */
static int read_offsets12(uint32_t *positions, const struct pici_tile *tile, unsigned elements, uint32_t first)
{
    const uint8_t *payload = tile->payload;
    unsigned above = 0;
    for (unsigned i = 0; i < tile->nonzeros; i++) {
        const unsigned at = i / 2 * 3;
        unsigned offset = i % 2 ? payload[at + 1] >> 4 | (unsigned)payload[at + 2] << 4
                                : payload[at] | (unsigned)(payload[at + 1] & 15) << 8;
        if (offset < above || offset >= elements)
            return 0;
        above = offset + 1;
        positions[i] = first + offset;
    }
    return !(tile->nonzeros % 2) || payload[tile->nonzeros / 2 * 3 + 1] >> 4 == 0;
}

static int read_offsets8(uint32_t *positions, const struct pici_tile *tile, unsigned elements, uint32_t first)
{
    const uint8_t *counts = tile->payload, *offset = tile->payload + RUNS;
    unsigned entry = 0;
    for (unsigned run = 0; run < RUNS; run++) {
        unsigned above = 0;
        if (counts[run] > tile->nonzeros - entry)
            return 0;
        for (unsigned i = 0; i < counts[run]; i++, entry++) {
            if (offset[entry] < above || run * RUN + offset[entry] >= elements)
                return 0;
            above = offset[entry] + 1u;
            positions[entry] = first + run * RUN + offset[entry];
        }
    }
    return entry == tile->nonzeros;
}

/* Append a tile. Returns 0 if it breaks a rule. */
static int read_tile(struct pici_list *list, const struct pici_block *block, const struct pici_group *group, unsigned i,
                     int *no_memory)
{
    const struct pici_tile *tile = &group->tile[i];
    const unsigned width_log2 = block->layout.width_log2, elements = pici_tile_elements(block, group->first + i);
    const int signs = block->layout.version == FMT_VERSION_SIGNS && pici_tile_has_signs(group, i, elements, width_log2);
    const uint32_t first = (uint32_t)((group->first + i) * TILE);
    uint8_t decoded[TILE * 8];
    if (!tile->nonzeros && !signs)
        return 1;
    if (!signs && (tile->container == PICI_OFFSETS12 || tile->container == PICI_OFFSETS8)) {
        uint32_t *positions = list->positions + list->count;
        const int right = tile->container == PICI_OFFSETS12 ? read_offsets12(positions, tile, elements, first)
                                                            : read_offsets8(positions, tile, elements, first);
        return right && append_values(list, tile->values, tile->nonzeros, width_log2);
    }
    if ((group->full >> i & 1 && !pici_tile_has_run(tile, elements, width_log2)) ||
        !pici_tile_decode(decoded, tile, elements, width_log2) ||
        (signs && !pici_tile_signs(decoded, group, i, elements, width_log2, 1)))
        return 0;
    *no_memory |= !append_elements(list, decoded, elements, first, width_log2, pici_isa()->move[width_log2]);
    return !*no_memory;
}

/* A group of empty tiles costs one look at the directory. */
static enum pici_status read_hybrid(struct pici_list *list, const struct pici_block *block, uint64_t most)
{
    const uint64_t groups = fmt_groups(block->layout.tiles);
    uint64_t nonzeros = 0;
    uint32_t signs = 0;
    enum pici_status status = pici_block_padding(block, NULL);
    for (uint64_t number = 0; number < groups && !status; number++) {
        struct pici_group group;
        int no_memory = 0;
        if (number && number + 1 < groups &&
            load_le32(block->index + 4 * number) == load_le32(block->index + 4 * number + 4))
            continue; /* if the entry is wrong, the check of the group that ends here finds it */
        if ((status = pici_group_read(&group, block, number, NULL)))
            break;
        nonzeros += group.nonzeros;
        signs |= group.signs;
        if (nonzeros > block->nonzeros)
            return PICI_E_CORRUPT;
        for (unsigned i = 0; i < group.tiles; i++) {
            if (!read_tile(list, block, &group, i, &no_memory))
                return no_memory ? PICI_E_NOMEM : PICI_E_CORRUPT;
            if (list->count > most)
                return PICI_E_CORRUPT;
            /* room for the negative zeros of tiles that keep signs */
            if (group.signs && !pici_list_reserve(list, list->count + block->nonzeros, block->layout.width_log2))
                return PICI_E_NOMEM;
        }
    }
    if (status)
        return status;
    return nonzeros == block->nonzeros && (block->layout.version != FMT_VERSION_SIGNS || signs) ? PICI_OK
                                                                                                : PICI_E_CORRUPT;
}

/* Dense and bitmap blocks grow with their elements, so decode all elements. */
static enum pici_status read_elements(struct pici_list *list, const struct pici_block *block)
{
    const size_t size = (size_t)block->layout.block_bytes;
    const unsigned width_log2 = block->layout.width_log2;
    uint8_t tile[TILE * 8];
    enum pici_status status = pici_verify(block->bytes, size);
    for (uint64_t first = 0, some; first < block->count && !status; first += some) {
        some = block->count - first < TILE ? block->count - first : TILE;
        status = pici_decompress_range(tile, first, some, block->bytes, size, NULL);
        if (!status &&
            !append_elements(list, tile, (size_t)some, (uint32_t)first, width_log2, pici_isa()->move[width_log2]))
            return PICI_E_NOMEM;
    }
    return status;
}

enum pici_status pici_list_read(struct pici_list *list, const struct pici_block *block, uint64_t most)
{
    enum pici_status status = pici_block_checksum(block, NULL);
    list->count = 0;
    if (status)
        return status;
    if (block->format == FMT_DENSE || block->format == FMT_BITMAP) {
        status = read_elements(list, block);
        return !status && list->count > most ? PICI_E_CORRUPT : status;
    }
    if (block->nonzeros > most || (block->format != FMT_COO && block->format != FMT_HYBRID) ||
        block->layout.index_width != 4)
        return PICI_E_CORRUPT;
    if (!pici_list_reserve(list, block->nonzeros, block->layout.width_log2))
        return PICI_E_NOMEM;
    return block->format == FMT_COO ? read_coo(list, block) : read_hybrid(list, block, most);
}

/* ---- writing */

/* The end of the entries of group or tile `number`, which begin at entry `begin`. each: elements of a group or tile. */
static uint64_t end_of(const struct pici_list *list, uint64_t begin, uint64_t number, uint64_t each)
{
    const uint64_t above = (number + 1) * each;
    if (begin == list->count || list->positions[begin] >= above)
        return begin;
    uint64_t step = 1, end = begin + 1; /* galloping: lists are short, or groups are full */
    while (end < list->count && list->positions[end] < above) {
        begin = end;
        end = list->count - end < step ? list->count : end + step;
        step *= 2;
    }
    while (end - begin > 1) { /* entry `begin` is in the group, entry `end` is not */
        const uint64_t middle = begin + (end - begin) / 2;
        if (list->positions[middle] < above)
            begin = middle;
        else
            end = middle;
    }
    return end;
}

/* The containers of a group's tiles, and the bytes of its record. */
struct group_plan {
    uint64_t begin[GROUP_TILES + 1]; /* entries of each tile */
    uint8_t container[GROUP_TILES];
    uint64_t metadata, values, record;
};

static int has_run(const uint32_t *positions, uint64_t n)
{
    for (uint64_t i = 0; i + RUN <= n; i++)
        if (positions[i] % RUN == 0 && positions[i + RUN - 1] == positions[i] + RUN - 1)
            return 1;
    return 0;
}

static unsigned elements_of(uint64_t count, uint64_t tile)
{
    return count - tile * TILE < TILE ? (unsigned)(count - tile * TILE) : TILE;
}

static void plan_group(struct group_plan *plan, const struct pici_list *list, uint64_t begin, uint64_t end,
                       uint64_t group, uint64_t count, unsigned width_log2)
{
    const struct pici_list entries = {.positions = list->positions, .count = end};
    plan->metadata = end > begin ? 4 : 0;
    plan->values = 0;
    plan->begin[0] = begin;
    for (unsigned i = 0; i < GROUP_TILES; i++) {
        const uint64_t tile = group * GROUP_TILES + i, from = plan->begin[i], to = end_of(&entries, from, tile, TILE);
        plan->begin[i + 1] = to;
        plan->container[i] = PICI_EMPTY;
        if (to == from)
            continue;
        const unsigned nonzeros = (unsigned)(to - from), elements = elements_of(count, tile);
        const int full = nonzeros >= RUN && has_run(list->positions + from, nonzeros);
        const unsigned container = container_of(nonzeros, elements, width_log2, full);
        plan->container[i] = (uint8_t)container;
        plan->metadata += container_descriptor_bytes(container) + container_payload(container, nonzeros);
        plan->values += (uint64_t)container_stored(container, nonzeros, elements) << width_log2;
    }
    plan->record = end > begin ? fmt_record(plan->metadata, plan->values, width_log2) : 0;
}

static uint8_t *write_payload(uint8_t *out, unsigned container, const uint32_t *positions, unsigned n)
{
    uint64_t words[TILE / 64] = {0};
    switch (container) {
    case PICI_OFFSETS12:
        for (unsigned i = 0; i < n; i += 2) {
            const unsigned one = positions[i] % TILE, two = i + 1 < n ? positions[i + 1] % TILE : 0;
            *out++ = (uint8_t)one;
            *out++ = (uint8_t)(one >> 8 | (two & 15) << 4);
            if (i + 1 < n)
                *out++ = (uint8_t)(two >> 4);
        }
        return out;
    case PICI_OFFSETS8:
        memset(out, 0, RUNS);
        for (unsigned i = 0; i < n; i++) {
            out[positions[i] % TILE / RUN]++;
            out[RUNS + i] = (uint8_t)positions[i];
        }
        return out + RUNS + n;
    case PICI_BITVECTOR:
        for (unsigned i = 0; i < n; i++)
            words[positions[i] % TILE / 64] |= UINT64_C(1) << positions[i] % 64;
        for (unsigned i = 0; i < TILE / 64; i++)
            store_le64(out + (size_t)8 * i, words[i]);
        return out + TILE_BITS_BYTES;
    default: return out;
    }
}

static void write_group(uint8_t *record, const struct group_plan *plan, const struct pici_list *list, uint64_t group,
                        uint64_t count, unsigned width_log2)
{
    uint8_t *descriptor = record + 4, *second, *payload, *values;
    uint32_t occupied = 0;
    for (unsigned i = 0; i < GROUP_TILES; i++)
        occupied |= (uint32_t)(plan->container[i] != PICI_EMPTY) << i;
    store_le32(record, occupied);
    payload = second = descriptor + __builtin_popcount(occupied);
    for (unsigned i = 0; i < GROUP_TILES; i++)
        payload += occupied >> i & 1 && container_descriptor_bytes(plan->container[i]) == 2;
    values = record + fmt_record_values(plan->metadata, width_log2);
    for (unsigned i = 0; i < GROUP_TILES; i++) {
        const uint64_t begin = plan->begin[i];
        const unsigned n = (unsigned)(plan->begin[i + 1] - begin), container = plan->container[i];
        if (container == PICI_EMPTY)
            continue;
        const unsigned said = container_descriptor(container, n);
        *descriptor++ = (uint8_t)said;
        if (said & DESCRIPTOR_TWO)
            *second++ = (uint8_t)(said >> 8);
        payload = write_payload(payload, container, list->positions + begin, n);
        if (container != PICI_RAW) {
            pici_copy_stored(values, list->values + (begin << width_log2), n, width_log2);
            values += (size_t)n << width_log2;
            continue;
        }
        const unsigned elements = elements_of(count, group * GROUP_TILES + i);
        memset(values, 0, (size_t)elements << width_log2);
        for (unsigned k = 0; k < n; k++)
            pici_copy_stored(values + ((size_t)(list->positions[begin + k] % TILE) << width_log2),
                             list->values + ((begin + k) << width_log2), 1, width_log2);
        values += (size_t)elements << width_log2;
    }
    uint8_t *const before = record + fmt_record_values(plan->metadata, width_log2);
    memset(payload, 0, (size_t)(before - payload));
    memset(values, 0, (size_t)(record + plan->record - values));
}

/* Visit the groups, and with a block write their records and the directory. Returns the block's bytes. */
static uint64_t go_through_groups(uint8_t *block, const struct pici_list *list, uint64_t count, unsigned width_log2)
{
    const uint64_t groups = fmt_groups(fmt_tiles(count));
    const uint64_t directory = HDR_BYTES + 4 * groups, body = (directory + 15) & ~UINT64_C(15);
    uint64_t offset = body, next = 0; /* the group whose directory entry is due */
    struct group_plan plan;
    if (block)
        memset(block + directory, 0, (size_t)(body - directory));
    for (uint64_t begin = 0, end; begin < list->count; begin = end) {
        const uint64_t group = list->positions[begin] / (TILE * GROUP_TILES);
        end = end_of(list, begin, group, TILE * GROUP_TILES);
        plan_group(&plan, list, begin, end, group, count, width_log2);
        for (; block && next <= group; next++)
            store_le32(block + HDR_BYTES + 4 * next, (uint32_t)((offset - body) / fmt_unit(width_log2)));
        if (block)
            write_group(block + offset, &plan, list, group, count, width_log2);
        offset += plan.record;
    }
    for (; block && next < groups; next++)
        store_le32(block + HDR_BYTES + 4 * next, (uint32_t)((offset - body) / fmt_unit(width_log2)));
    return count ? offset : (uint64_t)HDR_BYTES;
}

uint64_t pici_list_bytes(const struct pici_list *list, enum pici_format format, uint64_t count, enum pici_dtype dtype)
{
    struct fmt_layout layout = {.block_bytes = 0};
    if (format == PICI_HYBRID)
        return go_through_groups(NULL, list, count, (unsigned)fmt_width_log2((unsigned)dtype));
    (void)fmt_layout(&layout, FMT_COO, (unsigned)dtype, count, list->count); /* 2^32 entries fit */
    return layout.block_bytes;
}

void pici_list_write(uint8_t *block, const struct pici_list *list, enum pici_format format, uint64_t count,
                     enum pici_dtype dtype, int checksum)
{
    struct fmt_layout layout = {.block_bytes = 0};
    const unsigned width_log2 = (unsigned)fmt_width_log2((unsigned)dtype);
    if (format == PICI_HYBRID) {
        const uint64_t bytes = go_through_groups(block, list, count, width_log2);
        (void)fmt_layout_hybrid(&layout, FMT_VERSION, (unsigned)dtype, count, list->count,
                                bytes - (list->count << width_log2));
    } else {
        (void)fmt_layout(&layout, FMT_COO, (unsigned)dtype, count, list->count);
        for (uint64_t i = 0; i < list->count; i++)
            store_le32(block + layout.index_offset + 4 * i, list->positions[i]);
        const uint64_t end = layout.index_offset + layout.index_bytes;
        memset(block + end, 0, (size_t)(layout.values_offset - end));
        pici_copy_stored(block + layout.values_offset, list->values, (size_t)list->count, width_log2);
    }
    pici_block_emit(block, &layout, (unsigned)format, (unsigned)dtype, checksum ? FLAG_CHECKSUM : 0, count,
                    list->count);
    if (checksum)
        store_le64(block + HDR_CHECKSUM, pici_block_hash(block, (size_t)layout.block_bytes));
}

/* ---- lists and elements */

#define OF_WIDTH(type)                                                                                                 \
    static void scatter_##type(uint8_t *dst, const struct pici_list *list)                                             \
    {                                                                                                                  \
        for (uint64_t i = 0; i < list->count; i++)                                                                     \
            memcpy(dst + list->positions[i] * sizeof(type), list->values + i * sizeof(type), sizeof(type));            \
    }
OF_WIDTH(uint8_t)
OF_WIDTH(uint16_t)
OF_WIDTH(uint32_t)
OF_WIDTH(uint64_t)

uint64_t pici_list_union(uint32_t *positions, uint8_t *first_values, uint8_t *second_values,
                         const struct pici_list *first, const struct pici_list *second, unsigned width_log2)
{
    const struct pici_union lists = {first->positions, second->positions,    first->values,
                                     second->values,   (size_t)first->count, (size_t)second->count,
                                     positions,        first_values,         second_values};
    return pici_isa()->lists[width_log2]->unite(&lists);
}

void pici_list_scatter(uint8_t *dst, const struct pici_list *list, unsigned width_log2)
{
    switch (width_log2) {
    case 0: scatter_uint8_t(dst, list); break;
    case 1: scatter_uint16_t(dst, list); break;
    case 2: scatter_uint32_t(dst, list); break;
    default: scatter_uint64_t(dst, list); break;
    }
}

int pici_list_of_dense(struct pici_list *list, const uint8_t *elements, uint64_t count, unsigned width_log2,
                       int by_value)
{
    const struct pici_isa *isa = pici_isa();
    const struct pici_move *move = (by_value ? isa->by_value : isa->move)[width_log2];
    list->count = 0;
    for (uint64_t first = 0, some; first < count; first += some) {
        some = count - first < TILE ? count - first : TILE;
        if (!append_elements(list, elements + (first << width_log2), (size_t)some, (uint32_t)first, width_log2, move))
            return 0;
    }
    return 1;
}

uint64_t pici_list_extract(uint8_t *indices, unsigned index_width, uint8_t *values, uint64_t room,
                           const uint8_t *elements, uint64_t n, uint64_t first, unsigned width_log2)
{
    const struct pici_move *move = pici_isa()->move[width_log2];
    uint8_t index[TILE * 8 + PICI_SLACK] = {0}, value[TILE * 8 + PICI_SLACK] = {0};
    uint64_t done = 0;
    for (uint64_t at = 0, some; at < n; at += some) {
        some = n - at < TILE ? n - at : TILE;
        const int bounced = room - done < TILE + PICI_SLACK; /* kernels may write past their end */
        uint8_t *const index_to = bounced ? index : indices + done * index_width;
        uint8_t *const value_to = bounced ? value : values + (done << width_log2);
        const size_t found =
            move->pack_coo(index_to, index_width, value_to, elements + (at << width_log2), (size_t)some, first + at);
        if (PICI_BIG_ENDIAN) { /* entries are little-endian */
            swap_elements(index_to, found * index_width, index_width);
            swap_elements(value_to, found << width_log2, (size_t)1 << width_log2);
        }
        if (bounced) {
            memcpy(indices + done * index_width, index, found * index_width);
            memcpy(values + (done << width_log2), value, found << width_log2);
        }
        done += found;
    }
    return done;
}
