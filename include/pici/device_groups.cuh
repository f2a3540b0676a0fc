/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The groups of hybrid blocks: what a tile costs in each container, where the parts of a record are, and reading its
 * descriptors by a warp, of which each lane has a tile. Part of pici/device.cuh. Specification: formats/hybrid.md. */
#ifndef PICI_DEVICE_GROUPS_CUH
#define PICI_DEVICE_GROUPS_CUH

#include "pici/device_read.cuh"
#include "pici/device_signs.cuh"

namespace pici {

/* ---- what a tile adds to the length of a record ---- */

/* If it stores its negative zeros. */
PICI_DEV unsigned cost_of(unsigned n, unsigned len, unsigned width_log2, bool full)
{
    return container_cost(container_of(n, len, width_log2, full), n, len, width_log2);
}

/* If it keeps their signs. */
PICI_DEV unsigned cost_with_signs(unsigned n, bool full, const tile_signs &s, unsigned width_log2)
{
    return container_cost_signs(container_of_signs(n, full), n, signs_bytes(s), width_log2);
}

/* ---- groups ---- */

template <class T> constexpr unsigned LOG2 = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;

/* A group. Each lane holds a tile. Offsets are bytes from the beginning of the record. 32 bits are enough: they
 * follow from the tiles, not from the directory. */
struct group {
    const uint8_t *record;
    uint64_t first;      /* number of its first tile */
    unsigned tiles;      /* tiles of the group */
    uint32_t bits;       /* bit i: tile i is not empty */
    uint32_t two;        /* bit i: the descriptor of tile i has two bytes */
    uint32_t signs;      /* bit i: tile i keeps signs */
    uint32_t metadata;   /* bytes before the values' padding */
    uint32_t values;     /* offset of the values */
    uint32_t stored;     /* bytes of values */
    bool keeps;          /* a lane's: its tile keeps signs */
    tile_signs sign;     /* a lane's, of such a tile */
    unsigned n;          /* a lane's: nonzeros of its tile. The members below are defined only if it is not empty */
    unsigned container;  /* a lane's */
    uint32_t payload;    /* a lane's: offset of its tile's payload */
    uint32_t own_signs;  /* a lane's: offset of its tile's signs */
    uint32_t own_values; /* a lane's: offset of its tile's values */
    bool full; /* a lane's, when reading: the tile must have a run of 256 nonzeros, or its container is wrong */
};

/* Offset of the sign descriptor of tile i of a group that is not empty. */
PICI_DEV uint32_t sign_descriptor_at(const group &g, unsigned i)
{
    return 4 + hw::popc(g.bits) + hw::popc(g.two) + SIGN_DESCRIPTOR * hw::popc(g.signs & ((1u << i) - 1));
}

/* Lay out a record from what each lane says of its tile: n, container, keeps and sign. len: elements of the lane's
 * tile. Returns the record's length in bytes. */
PICI_DEV uint32_t group_lay(group &g, unsigned len, unsigned width_log2)
{
    const bool some = g.n != 0 || g.keeps;
    g.bits = hw::ballot(some);
    g.two = hw::ballot(some && (g.container != PICI_OFFSETS12 || g.keeps));
    g.signs = hw::ballot(g.keeps);
    const uint32_t descriptors = 4 + hw::popc(g.bits) + hw::popc(g.two) + SIGN_DESCRIPTOR * hw::popc(g.signs);
    const uint32_t payload = some ? container_payload(g.container, g.n) : 0, signs = g.keeps ? signs_bytes(g.sign) : 0;
    const uint32_t stored = (some ? container_stored(g.container, g.n, len) : 0) << width_log2;
    /* three sums in one scan: those of payloads and of signs are below 2^16 */
    const uint64_t each = (uint64_t)stored << 32 | signs << 16 | payload;
    const uint64_t before = warp_scan(each), all = hw::shfl(before + each, LANES - 1);
    const uint32_t rest = (1u << width_log2) - 1, unit = unit_of(width_log2);
    const uint32_t payloads = all & 0xffff;
    g.metadata = g.bits ? descriptors + payloads + (uint32_t)(all >> 16 & 0xffff) : 0;
    g.values = (g.metadata + rest) & ~rest;
    g.stored = (uint32_t)(all >> 32);
    g.payload = descriptors + (uint32_t)(before & 0xffff);
    g.own_signs = descriptors + payloads + (uint32_t)(before >> 16 & 0xffff);
    g.own_values = g.values + (uint32_t)(before >> 32);
    return (g.values + g.stored + unit - 1) & ~(unit - 1);
}

/* Offset of the lane's byte of the padding before or after a record's values; 0 if the lane has none. bytes: of the
 * record. */
PICI_DEV uint32_t padding_byte(const group &g, uint32_t bytes)
{
    const unsigned lane = hw::lane(), half = LANES / 2;
    const uint32_t at = lane < half ? g.metadata + lane : g.values + g.stored + lane - half;
    return at < (lane < half ? g.values : bytes) ? at : 0;
}

/* The checks of a group, in their order. Faults of hybrid are ordered by group, then by these stages, then by tile.
 * A fault of a tile also has the rule, and the index of the offset, row or value. The bits for the number of the
 * group are enough for a directory of 1 TiB. */
enum group_stage : unsigned {
    GROUP_FIRST, /* entry 0 of the directory; for the number after the last group: the total of nonzeros */
    GROUP_ENTRY, /* the next group's entry of the directory; for that number: no tile keeps signs, in version 2 */
    GROUP_OCCUPANCY,
    GROUP_DESCRIPTORS, /* the record is too short for the descriptors */
    GROUP_DESCRIPTOR,  /* the descriptor of a tile */
    GROUP_LENGTH,      /* the length of the record */
    GROUP_PADDING,     /* sub: the lane that has the byte */
    GROUP_TILE
};

PICI_DEV uint64_t group_fault(uint64_t number, unsigned stage, unsigned tile = 0, unsigned rule = RULE_NONE,
                              unsigned sub = 0)
{
    return fault(FAULT_BODY, number << 25 | stage << 22 | tile << 17 | rule << 12 | sub);
}

/* Is the descriptor of a tile of len elements not valid? Sets the lane's n, container, keeps and full. */
PICI_DEV bool bad_descriptor(group &g, unsigned first, unsigned second, unsigned len, unsigned width_log2,
                             bool version2)
{
    container_said said;
    const bool valid = container_read(&said, first, second, len, width_log2);
    g.container = said.container;
    g.n = said.n;
    g.keeps = said.signs;
    g.full = said.full;
    return !valid || (said.signs && !version2);
}

/* The part of a hybrid block's description that stays in registers while the block is read. The rest is computed from
 * it. */
struct hybrid_view {
    const uint8_t *bytes;
    uint64_t count, units; /* count: elements; units: of all records */
    bool version2;
};

PICI_DEV hybrid_view hybrid_of(const block_view &v)
{
    return hybrid_view{v.bytes, v.count, (v.block_bytes - v.body_offset) / unit_of(v.width_log2),
                       v.version == VERSION_SIGNS};
}

/* Read the descriptors of group `number`, and lay out its record. Checks the rules from "directory" to a record's
 * "padding". Returns a fault. */
PICI_DEV uint64_t group_open(group &g, const hybrid_view &h, unsigned width_log2, uint64_t number)
{
    const unsigned lane = hw::lane(), below = (1u << lane) - 1, unit = unit_of(width_log2);
    block_view v = block_view();
    v.format = PICI_HYBRID;
    v.dtype = PICI_U8;
    v.count = h.count;
    layout(v); /* for the offset of its directory */
    v.bytes = h.bytes;
    const uint64_t begin = load_index(v, number);
    g = group();
    g.first = number * GROUP_TILES;
    g.tiles = v.tiles - g.first < GROUP_TILES ? (unsigned)(v.tiles - g.first) : (unsigned)GROUP_TILES;
    if (number == 0 && begin != 0)
        return group_fault(0, GROUP_FIRST);
    if (begin > h.units) /* reported as a fault of the previous group */
        return group_fault(number - 1, GROUP_ENTRY);
    const uint64_t end = g.first + g.tiles < v.tiles ? load_index(v, number + 1) : h.units;
    if (end < begin || end > h.units)
        return group_fault(number, GROUP_ENTRY);
    g.record = v.bytes + v.body_offset + begin * unit;
    if (begin == end)
        return 0;
    const uint64_t bytes = (end - begin) * unit;
    g.bits = hw::load((const uint32_t *)g.record);
    if (!g.bits || (g.tiles < GROUP_TILES && g.bits >> g.tiles))
        return group_fault(number, GROUP_OCCUPANCY);
    const unsigned some = hw::popc(g.bits);
    if (4 + some > bytes)
        return group_fault(number, GROUP_DESCRIPTORS);
    const bool mine = g.bits >> lane & 1;
    const unsigned first = mine ? hw::load(g.record + 4 + hw::popc(g.bits & below)) : 0;
    const unsigned two = hw::ballot((first & DESCRIPTOR_TWO) != 0);
    const unsigned keeping = hw::ballot(h.version2 && first >> 6 == 3);
    g.two = two;
    g.signs = keeping;
    if (4 + some + hw::popc(two) + SIGN_DESCRIPTOR * hw::popc(keeping) > bytes)
        return group_fault(number, GROUP_DESCRIPTORS);
    const unsigned second = two >> lane & 1 ? hw::load(g.record + 4 + some + hw::popc(two & below)) : 0;
    const unsigned len = mine ? elements_of(v.count, g.first + lane) : 0;
    const bool wrong = mine && bad_descriptor(g, first, second, len, width_log2, h.version2);
    bool wrong_signs = false;
    if (mine && !wrong && g.keeps) {
        const uint8_t *at = g.record + sign_descriptor_at(g, lane);
        uint32_t descriptor = 0;
        for (unsigned i = 0; i < SIGN_DESCRIPTOR; i++)
            descriptor |= (uint32_t)hw::load(at + i) << 8 * i;
        wrong_signs = !good_sign_descriptor(g.sign, descriptor, len - g.n);
    }
    const unsigned bad = hw::ballot(wrong), bad_signs = hw::ballot(wrong_signs), either = bad | bad_signs;
    if (either) {
        const unsigned i = hw::ffs(either) - 1;
        return group_fault(number, GROUP_DESCRIPTOR, i, bad >> i & 1 ? (unsigned)RULE_NONE : (unsigned)RULE_SIGNS);
    }
    if (group_lay(g, len, width_log2) != bytes)
        return group_fault(number, GROUP_LENGTH);
    const uint32_t pad = padding_byte(g, (uint32_t)bytes);
    const unsigned dirty = hw::ballot(pad && hw::load(g.record + pad) != 0);
    return dirty ? group_fault(number, GROUP_PADDING, 0, RULE_NONE, hw::ffs(dirty) - 1) : 0;
}

} // namespace pici

#endif
