/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A block on the device: its layout, its header, and its faults. Specifications: formats/block.md,
 * formats/hybrid.md, formats/packed.md. */
#ifndef PICI_DEVICE_BLOCK_CUH
#define PICI_DEVICE_BLOCK_CUH

#include "pici/device_hw.cuh"

#include "pici/containers.h"
#include "pici/runs.h"

namespace pici {

enum : uint32_t { LANES = 32, ROWS = TILE_ROWS, COLS = TILE_COLS };
enum : uint32_t { VERSION_SIGNS = 2 }; /* of hybrid and packed blocks in which a tile keeps signs; others have 1 */
enum : uint32_t { HEADER_BYTES = 48, CHECKSUM_AT = 40 };
enum : uint32_t { FLAG_INDEX64 = 1, FLAG_CHECKSUM = 2, FLAG_ONE_LEVEL = 4 /* packed */ };
constexpr uint32_t MAGIC = 0x49434950; /* P I C I */

/* The rules of a block; pici_cuda_rule gives their names. The header's rules are in the order of their checks. */
enum rule : uint32_t {
    RULE_NONE,
    RULE_SIZE,
    RULE_MAGIC,
    RULE_VERSION,
    RULE_FORMAT,
    RULE_DTYPE,
    RULE_FLAGS,
    RULE_INDEX_WIDTH,
    RULE_NNZ,
    RULE_OFFSETS,
    RULE_CHECKSUM_FLAG,
    RULE_LENGTH,
    RULE_CHECKSUM,
    RULE_PADDING,
    RULE_PAST_END,
    RULE_TILE_INDEX,
    RULE_RISING,
    RULE_STORED_ZERO,
    RULE_DIRECTORY,
    RULE_OCCUPANCY,
    RULE_RECORD_LENGTH,
    RULE_DESCRIPTOR,
    RULE_TILE_COUNT,
    RULE_CONTAINER,
    RULE_TOTAL,
    RULE_SIGNS,
    RULE_SIGNS_VERSION, /* also "version": version 2, but the block cannot have it */
    RULE_RUN,
    RULE_PLANES,
    RULE_CHOICE,
    RULE_LAST = RULE_CHOICE
};

PICI_DEV_HOST int width_log2(unsigned dtype)
{
    /* two bits a dtype, from dtype 1 on: f32 f64 f16 bf16 f8 f8 i8 u8 i16 u16 i32 u32 i64 u64 */
    return dtype < 1 || dtype > 14 ? -1 : (int)(UINT32_C(0x0fa5005e) >> 2 * (dtype - 1) & 3);
}

/* Is a valid dtype a float? */
PICI_DEV_HOST bool is_float(unsigned dtype)
{
    return dtype <= PICI_F8E5M2;
}

PICI_DEV_HOST uint64_t tiles_of(uint64_t count)
{
    return count / TILE + (count % TILE != 0);
}

PICI_DEV_HOST uint64_t groups_of(uint64_t tiles)
{
    return tiles / GROUP_TILES + (tiles % GROUP_TILES != 0);
}

/* Elements of a tile of a block of count elements. */
PICI_DEV_HOST unsigned elements_of(uint64_t count, uint64_t tile)
{
    return count - tile * TILE < TILE ? (unsigned)(count - tile * TILE) : (unsigned)TILE;
}

/* The unit of hybrid's records, in bytes: they are aligned to it, and the directory counts in it. */
PICI_DEV_HOST unsigned unit_of(unsigned width_log2)
{
    return width_log2 <= 1 ? 4 : 2u << width_log2;
}

/* Does a format have groups of tiles: is it hybrid or packed? */
PICI_DEV_HOST bool has_groups(unsigned format)
{
    return format == PICI_HYBRID || format == PICI_PACKED;
}

/* The unit of the records of a format that has groups. */
PICI_DEV_HOST unsigned record_unit(unsigned format, unsigned width_log2)
{
    return format == PICI_PACKED ? fmt_unit_packed(width_log2) : unit_of(width_log2);
}

/* A block's header and layout. */
struct block_view {
    const uint8_t *bytes;
    uint64_t count, nnz, checksum;
    uint64_t tiles;         /* bitmap, hybrid and packed: tiles; else 0 */
    uint64_t index_offset;  /* bytes */
    uint64_t index_end;     /* bytes: where the index ends and padding begins */
    uint64_t body_offset;   /* bytes: where the padding ends, and the records or the values begin */
    uint64_t values_offset; /* bytes */
    uint64_t block_bytes;
    uint32_t format, dtype, flags;
    uint32_t index_width; /* bytes: 4 or 8; 0 in dense */
    uint32_t width_log2;  /* of an element */
    uint32_t version;     /* VERSION_SIGNS; any other number stands for 1 */
};

/* *result = a * b + c; returns 0 if that exceeds 64 bits. */
PICI_DEV_HOST int muladd(uint64_t *result, uint64_t a, uint64_t b, uint64_t c)
{
    if (b && a > (UINT64_MAX - c) / b)
        return 0;
    *result = a * b + c;
    return 1;
}

/* Is there a hybrid or packed block with this values_offset and block_bytes? */
PICI_DEV_HOST int good_records(const block_view &view)
{
    const bool packed = view.format == PICI_PACKED, signs = view.version == VERSION_SIGNS;
    const uint64_t tile =
        TILE_BITS_BYTES + 2 + (packed ? (unsigned)FMT_PACKED_TILE : 0u) + (signs ? SIGN_DESCRIPTOR + SIGNS_MOST : 0u);
    const uint64_t unit = record_unit(view.format, view.width_log2);
    uint64_t most = view.tiles * tile + groups_of(view.tiles) * (3 + (packed ? (unsigned)FMT_PACKED_GROUP : 0u) + unit);
    if (packed && !muladd(&most, view.nnz, UINT64_C(1) << view.width_log2, most + view.body_offset))
        return 0;
    most = !view.nnz && !signs ? 0 : packed ? most - view.body_offset : most;
    return view.values_offset >= view.body_offset && view.values_offset - view.body_offset <= most &&
           (view.block_bytes - view.body_offset) % unit == 0;
}

/* Fill in the view's layout from its format, dtype, count and nnz. For hybrid and packed, values_offset is an input
 * too: the value in the header, or 0 for a block without nonzeros. Returns 0 if no such block exists, or if a size
 * exceeds 64 bits. */
PICI_DEV_HOST int layout(block_view &view)
{
    const bool records = has_groups(view.format);
    const uint64_t said = records ? view.values_offset : 0;
    view.tiles = view.format == PICI_BITMAP || records ? tiles_of(view.count) : 0;
    view.index_width = view.format == PICI_DENSE ? 0u : view.count > UINT64_C(1) << 32 ? 8u : 4u;
    view.width_log2 = (uint32_t)width_log2(view.dtype);
    view.index_offset = HEADER_BYTES + (records ? 0 : view.tiles * TILE_BITS_BYTES);
    view.index_end = view.body_offset = view.values_offset = view.block_bytes = 0;
    const uint64_t entries = records ? groups_of(view.tiles) : view.format == PICI_BITMAP ? view.tiles : view.nnz;
    if (!muladd(&view.index_end, entries, view.index_width, view.index_offset) || view.index_end > UINT64_MAX - 15)
        return 0;
    view.body_offset = view.format == PICI_DENSE ? (uint64_t)HEADER_BYTES : (view.index_end + 15) & ~UINT64_C(15);
    view.values_offset = said ? said : view.body_offset;
    const uint64_t values = view.format == PICI_PACKED ? 0 : view.nnz;
    if (!muladd(&view.block_bytes, values, UINT64_C(1) << view.width_log2, view.values_offset))
        return 0;
    return !records || good_records(view);
}

/* The six words of a header, from the view's layout. */
PICI_DEV void header_words(uint64_t word[6], const block_view &view)
{
    const uint32_t flags = (view.index_width == 8 ? (uint32_t)FLAG_INDEX64 : 0u) |
                           (view.format == PICI_PACKED ? view.flags & FLAG_ONE_LEVEL : 0u);
    const uint32_t version = view.version == VERSION_SIGNS ? (uint32_t)VERSION_SIGNS : 1;
    word[0] = MAGIC | (uint64_t)version << 32 | (uint64_t)view.format << 40 | (uint64_t)view.dtype << 48 |
              (uint64_t)flags << 56;
    word[1] = view.count;
    word[2] = view.nnz;
    word[3] = view.index_offset;
    word[4] = view.values_offset;
    word[5] = 0;
}

/* Called by one thread: write the header of a block with the view's layout; 48 zero bytes if not `good`. block: aligned
 * to 16. */
PICI_DEV void put_header(uint8_t *block, const block_view &view, bool good)
{
    uint64_t word[6] = {0, 0, 0, 0, 0, 0};
    if (good)
        header_words(word, view);
    PICI_UNROLL
    for (unsigned i = 0; i < 6; i++)
        hw::store((uint64_t *)block + i, word[i]);
}

/* A broken rule of the header, or RULE_NONE. */
struct breach {
    uint32_t rule;
    uint64_t at; /* offset in the block, in bytes */
};

/* Check every rule of the header, and the rule "length", in [block, block + size), and fill in view. block: aligned to
 * 16. */
PICI_DEV breach parse(block_view &view, const uint8_t *block, uint64_t size)
{
    view.bytes = block;
    view.format = PICI_DENSE;
    view.dtype = view.flags = 0;
    view.count = view.nnz = view.tiles = view.block_bytes = view.values_offset = view.body_offset = view.index_offset =
        view.index_end = 0;
    view.index_width = view.width_log2 = 0;
    view.checksum = 0;
    view.version = 1;
    if (size < HEADER_BYTES)
        return breach{RULE_SIZE, size};
    const uint64_t *word = (const uint64_t *)block;
    const uint64_t first = hw::load(word);
    const unsigned format = first >> 40 & 255, dtype = first >> 48 & 255, flags = (unsigned)(first >> 56);
    const unsigned version = first >> 32 & 255;
    if ((uint32_t)first != MAGIC)
        return breach{RULE_MAGIC, 0};
    if (version != 1 && version != VERSION_SIGNS)
        return breach{RULE_VERSION, 4};
    const bool packed = format == PICI_PACKED;
    if (format > PICI_PACKED)
        return breach{RULE_FORMAT, 5};
    if (width_log2(dtype) < 0 || (packed && !is_float(dtype)))
        return breach{RULE_DTYPE, 6};
    if (version == VERSION_SIGNS && (!has_groups(format) || !is_float(dtype)))
        return breach{RULE_SIGNS_VERSION, 4};
    if (flags & ~(FLAG_INDEX64 | FLAG_CHECKSUM | (packed ? (unsigned)FLAG_ONE_LEVEL : 0u)))
        return breach{RULE_FLAGS, 7};
    view.version = version;
    view.format = format;
    view.dtype = dtype;
    view.flags = flags;
    view.count = hw::load(word + 1);
    view.nnz = hw::load(word + 2);
    view.checksum = hw::load(word + 5);
    view.values_offset = hw::load(word + 4); /* layout() computes it for formats without groups */
    const int fits = layout(view);
    if ((flags & FLAG_INDEX64) != (view.index_width == 8 ? (unsigned)FLAG_INDEX64 : 0u))
        return breach{RULE_INDEX_WIDTH, 7};
    if (view.nnz > view.count || (format == PICI_DENSE && view.nnz != view.count))
        return breach{RULE_NNZ, 16};
    if (hw::load(word + 3) != view.index_offset)
        return breach{RULE_OFFSETS, 24};
    if (!fits || hw::load(word + 4) != view.values_offset)
        return breach{RULE_OFFSETS, 32};
    if (view.checksum && !(flags & FLAG_CHECKSUM))
        return breach{RULE_CHECKSUM_FLAG, CHECKSUM_AT};
    if (size != view.block_bytes)
        return breach{RULE_LENGTH, size < view.block_bytes ? size : view.block_bytes};
    return breach{RULE_NONE, 0};
}

/* The status of a block that breaks a rule. */
PICI_DEV int rule_status(uint32_t rule)
{
    return rule == RULE_NONE       ? PICI_OK
           : rule == RULE_VERSION  ? PICI_E_VERSION
           : rule == RULE_FORMAT   ? PICI_E_UNSUPPORTED
           : rule == RULE_CHECKSUM ? PICI_E_CHECKSUM
                                   : PICI_E_CORRUPT;
}

/* Entry i of the index. */
PICI_DEV uint64_t load_index(const block_view &view, uint64_t i)
{
    const uint8_t *index = view.bytes + view.index_offset;
    return view.index_width == 8 ? hw::load((const uint64_t *)index + i) : hw::load((const uint32_t *)index + i);
}

PICI_DEV void store_index(uint8_t *index, unsigned width, uint64_t i, uint64_t value)
{
    if (width == 8)
        hw::store((uint64_t *)index + i, value);
    else
        hw::store((uint32_t *)index + i, (uint32_t)value);
}

/* ---- faults beyond the header ----
 *
 * A fault is a number; 0 means none. Of two faults of a block, the one that comes first in the order of the
 * specification has the greater number. So the maximum over all warps is the fault to report. */

enum : uint64_t { FAULT_CHECKSUM = 0, FAULT_PADDING = 1, FAULT_BODY = 2 };
enum : unsigned { /* the checks of a tile of bitmap, and of an entry of coo, in their order */
                  TILE_PAST_END = 0,
                  TILE_ENTRY = 1,
                  TILE_MORE = 2, /* more bits than nnz */
                  TILE_ZERO = 3,
                  COO_RISING = 0,
                  COO_PAST_END = 1,
                  COO_ZERO = 2
};

PICI_DEV uint64_t fault(uint64_t part, uint64_t order)
{
    return ~(part << 62 | order);
}

PICI_DEV uint64_t tile_fault(uint64_t tile, unsigned stage, unsigned sub)
{
    return fault(FAULT_BODY, tile << 14 | stage << 12 | sub);
}

PICI_DEV uint64_t entry_fault(uint64_t i, unsigned stage)
{
    return fault(FAULT_BODY, i << 2 | stage);
}

/* Of two faults, the one that comes first in the order of the specification. */
PICI_DEV uint64_t first_fault(uint64_t one, uint64_t other)
{
    return one > other ? one : other;
}

PICI_DEV int fault_status(uint64_t fault)
{
    return !fault ? PICI_OK : ~fault >> 62 == FAULT_CHECKSUM ? PICI_E_CHECKSUM : PICI_E_CORRUPT;
}

/* Where and why a block is invalid, as struct pici_fault. */
struct finding {
    uint32_t rule;
    uint64_t at, tile;
};

/* The finding for a fault that VERIFY found, except in the records of a hybrid block, for which use warp_explain. */
PICI_DEV finding explain(const block_view &view, uint64_t fault)
{
    finding seen = {RULE_NONE, 0, 0};
    if (!fault)
        return seen;
    const uint64_t part = ~fault >> 62, order = ~fault << 2 >> 2;
    seen.tile = PICI_NO_TILE;
    if (part == FAULT_CHECKSUM) {
        seen.rule = RULE_CHECKSUM;
        seen.at = CHECKSUM_AT;
    } else if (part == FAULT_PADDING) {
        seen.rule = RULE_PADDING;
        seen.at = view.index_end + order;
    } else if (view.format == PICI_BITMAP) {
        const uint64_t tile = order >> 14, sub = order & 4095;
        const unsigned stage = order >> 12 & 3;
        seen.rule = stage == TILE_PAST_END ? RULE_PAST_END : stage == TILE_ZERO ? RULE_STORED_ZERO : RULE_TILE_INDEX;
        if (tile >= view.tiles) { /* all tiles together have fewer bits than nnz */
            seen.rule = RULE_TILE_INDEX;
            seen.at = 16;
            return seen;
        }
        seen.tile = tile;
        seen.at = stage == TILE_PAST_END ? HEADER_BYTES + tile * TILE_BITS_BYTES + 8 * sub
                  : stage == TILE_ENTRY  ? view.index_offset + tile * view.index_width
                  : stage == TILE_MORE   ? 16
                                         : view.values_offset + ((load_index(view, tile) + sub) << view.width_log2);
    } else {
        const uint64_t i = order >> 2;
        const unsigned stage = order & 3;
        seen.rule = stage == COO_RISING ? RULE_RISING : stage == COO_PAST_END ? RULE_PAST_END : RULE_STORED_ZERO;
        seen.at =
            stage == COO_ZERO ? view.values_offset + (i << view.width_log2) : view.index_offset + i * view.index_width;
        if (stage != COO_PAST_END)
            seen.tile = load_index(view, i) / TILE;
    }
    return seen;
}

/* ---- XXH64 (seed 0) of a block, with zero as its checksum. Four serial lanes make it slow ---- */

constexpr uint64_t XXH_1 = UINT64_C(0x9e3779b185ebca87), XXH_2 = UINT64_C(0xc2b2ae3d27d4eb4f),
                   XXH_3 = UINT64_C(0x165667b19e3779f9), XXH_4 = UINT64_C(0x85ebca77c2b2ae63),
                   XXH_5 = UINT64_C(0x27d4eb2f165667c5);

PICI_DEV uint64_t rotl(uint64_t value, unsigned bits)
{
    return value << bits | value >> (64 - bits);
}

PICI_DEV uint64_t xxh_round(uint64_t acc, uint64_t value)
{
    return rotl(acc + value * XXH_2, 31) * XXH_1;
}

/* Read `bytes` bytes, at most 8, at any address. */
PICI_DEV uint64_t load_bytes(const uint8_t *p, unsigned bytes)
{
    uint64_t value = 0;
    PICI_UNROLL
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)hw::load(p + i) << 8 * i;
    return value;
}

/* Called by a warp: the hash of len >= 32 bytes at p, which is aligned to 16 if ALIGNED. */
template <bool ALIGNED = true>
PICI_DEV uint64_t warp_hash(const uint8_t *p, uint64_t len, uint64_t checksum_at = CHECKSUM_AT)
{
    const unsigned lane = hw::lane();
    const auto word = [p](uint64_t from) {
        return ALIGNED ? hw::load((const uint64_t *)(p + from)) : load_bytes(p + from, 8);
    };
    uint64_t acc = lane == 0 ? XXH_1 + XXH_2 : lane == 1 ? XXH_2 : lane == 2 ? 0 : 0 - XXH_1, at = 0;
    for (; len - at >= 32; at += 32)
        if (lane < 4)
            acc = xxh_round(acc, at / 8 + lane == checksum_at / 8 ? 0 : word(at + 8 * lane));
    uint64_t h = 0, v[4];
    PICI_UNROLL
    for (unsigned i = 0; i < 4; i++)
        v[i] = hw::shfl(acc, i);
    h = rotl(v[0], 1) + rotl(v[1], 7) + rotl(v[2], 12) + rotl(v[3], 18);
    PICI_UNROLL
    for (unsigned i = 0; i < 4; i++)
        h = (h ^ xxh_round(0, v[i])) * XXH_1 + XXH_4;
    h += len;
    for (; len - at >= 8; at += 8)
        h = rotl(h ^ xxh_round(0, at == checksum_at ? 0 : word(at)), 27) * XXH_1 + XXH_4;
    if (len - at >= 4) {
        const uint64_t four = ALIGNED ? hw::load((const uint32_t *)(p + at)) : load_bytes(p + at, 4);
        h = rotl(h ^ four * XXH_1, 23) * XXH_2 + XXH_3;
        at += 4;
    }
    for (; at < len; at++)
        h = rotl(h ^ hw::load(p + at) * XXH_5, 11) * XXH_1;
    h = (h ^ h >> 33) * XXH_2;
    h = (h ^ h >> 29) * XXH_3;
    return h ^ h >> 32;
}

} // namespace pici

#endif
