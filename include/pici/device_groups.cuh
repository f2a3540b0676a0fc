/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The groups of hybrid and packed blocks: the cost of a tile in each container, the layout of a record, and reading its
 * descriptors by a warp. Each lane has a tile. Part of pici/device.cuh. Specifications: formats/hybrid.md,
 * formats/packed.md. */
#ifndef PICI_DEVICE_GROUPS_CUH
#define PICI_DEVICE_GROUPS_CUH

#include "pici/device_read.cuh"
#include "pici/device_signs.cuh"

namespace pici {

/* ---- the bytes that a tile adds to a record ---- */

/* Bytes of a tile that stores its negative zeros. */
PICI_DEV unsigned cost_of(unsigned count, unsigned elements, unsigned width_log2, bool full)
{
    return container_cost(container_of(count, elements, width_log2, full), count, elements, width_log2);
}

/* Bytes of a tile that keeps the signs of its zeros. */
PICI_DEV unsigned cost_with_signs(unsigned count, bool full, const tile_signs &signs, unsigned width_log2)
{
    return container_cost_signs(container_of_signs(count, full), count, signs_bytes(signs), width_log2);
}

/* ---- groups ---- */

template <class T> constexpr unsigned LOG2 = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;

/* A group. Each lane holds a tile, and in packed a run. Offsets are bytes from the beginning of the record. 32 bits are
 * enough: they follow from the tiles, not from the directory. */
struct group {
    const uint8_t *record;
    uint64_t first;      /* number of its first tile */
    unsigned tiles;      /* tiles of the group */
    uint32_t bits;       /* bit i: tile i is not empty */
    uint32_t two;        /* bit i: the descriptor of tile i has two bytes */
    uint32_t signs;      /* bit i: tile i keeps signs */
    uint32_t metadata;   /* bytes before the values' padding */
    uint32_t values;     /* offset of the values; packed: of the runs */
    uint32_t stored;     /* bytes of values; packed: of the runs */
    uint32_t count;      /* packed: values of all tiles */
    uint32_t runs_at;    /* packed: offset of the run descriptors */
    bool keeps;          /* a lane's: its tile keeps signs */
    tile_signs sign;     /* a lane's, of such a tile */
    unsigned n;          /* a lane's: nonzeros of its tile. The members below are defined only if it is not empty */
    unsigned container;  /* a lane's */
    uint32_t payload;    /* a lane's: offset of its tile's payload */
    uint32_t own_signs;  /* a lane's: offset of its tile's signs */
    uint32_t own_values; /* a lane's: offset of its tile's values; packed: how many values the tiles before have */
    uint32_t own_run;    /* a lane's, packed: offset of the run that has the lane's number */
    bool full; /* a lane's, when reading: the tile must have a run of 256 nonzeros, or its container is wrong */
};

/* Offset of the sign descriptor of tile i of a group that is not empty. */
PICI_DEV uint32_t sign_descriptor_at(const group &made_group, unsigned i)
{
    return 4 + hw::popc(made_group.bits) + hw::popc(made_group.two) +
           SIGN_DESCRIPTOR * hw::popc(made_group.signs & ((1u << i) - 1));
}

/* Lay out a record. Each lane has set n, container, keeps and sign for its tile. elements: of the lane's tile. Returns
 * the record's size in bytes. With PACKED, it is the size of a hybrid block's record of the same tiles, and
 * group_lay_runs completes the layout. */
template <bool PACKED = false> PICI_DEV uint32_t group_lay(group &made_group, unsigned elements, unsigned width_log2)
{
    const bool some = made_group.n != 0 || made_group.keeps;
    made_group.bits = hw::ballot(some);
    made_group.two = hw::ballot(some && (made_group.container != PICI_OFFSETS12 || made_group.keeps));
    made_group.signs = hw::ballot(made_group.keeps);
    const uint32_t descriptors =
        4 + hw::popc(made_group.bits) + hw::popc(made_group.two) + SIGN_DESCRIPTOR * hw::popc(made_group.signs);
    const uint32_t payload = some ? container_payload(made_group.container, made_group.n) : 0,
                   signs = made_group.keeps ? signs_bytes(made_group.sign) : 0;
    const uint32_t stored = (some ? container_stored(made_group.container, made_group.n, elements) : 0) << width_log2;
    /* three sums in one scan: payloads and signs sum to less than 2^16 */
    const uint64_t each = (uint64_t)stored << 32 | signs << 16 | payload;
    const uint64_t before = warp_scan(each), all = hw::shfl(before + each, LANES - 1);
    const uint32_t rest = (1u << width_log2) - 1, unit = unit_of(width_log2);
    const uint32_t payloads = all & 0xffff;
    made_group.metadata = made_group.bits ? descriptors + payloads + (uint32_t)(all >> 16 & 0xffff) : 0;
    made_group.values = (made_group.metadata + rest) & ~rest;
    made_group.stored = (uint32_t)(all >> 32);
    made_group.payload = descriptors + (uint32_t)(before & 0xffff);
    made_group.own_signs = descriptors + payloads + (uint32_t)(before >> 16 & 0xffff);
    made_group.own_values = made_group.values + (uint32_t)(before >> 32);
    const uint32_t bytes = (made_group.values + made_group.stored + unit - 1) & ~(unit - 1);
    if constexpr (PACKED) {
        made_group.count = made_group.stored >> width_log2;
        made_group.runs_at = descriptors;
        const uint32_t more = fmt_runs(made_group.count) * RUN_DESCRIPTOR;
        made_group.metadata += more;
        made_group.payload += more;
        made_group.own_signs += more;
        made_group.own_values = (uint32_t)(before >> 32) >> width_log2;
        made_group.values = fmt_pad8(made_group.metadata);
    }
    return bytes;
}

/* The values of run i of a group of a packed block. */
PICI_DEV unsigned run_values(const group &made_group, unsigned i)
{
    const unsigned before = i * RUN_MOST, left = made_group.count > before ? made_group.count - before : 0;
    return left < RUN_MOST ? left : (unsigned)RUN_MOST;
}

/* Complete the layout of a packed block's record. bytes: a lane's, the size of the run with the lane's number, or 0.
 * Returns the record's size in bytes. */
PICI_DEV uint32_t group_lay_runs(group &made_group, uint32_t bytes, unsigned width_log2)
{
    const uint32_t before = warp_scan(bytes), unit = fmt_unit_packed(width_log2);
    made_group.own_run = made_group.values + before;
    made_group.stored = hw::shfl(before + bytes, LANES - 1);
    return made_group.bits ? (made_group.values + made_group.stored + unit - 1) & ~(unit - 1) : 0;
}

/* Offset of the lane's byte of the padding before or after a record's values; 0 if the lane has none. bytes: the
 * record's size. */
PICI_DEV uint32_t padding_byte(const group &made_group, uint32_t bytes)
{
    const unsigned lane = hw::lane(), half = LANES / 2;
    const uint32_t offset =
        lane < half ? made_group.metadata + lane : made_group.values + made_group.stored + lane - half;
    return offset < (lane < half ? made_group.values : bytes) ? offset : 0;
}

/* The checks of a group, in their order. Faults of hybrid and packed are ordered by group, then by these stages, then
 * by tile or run. A tile's fault also has the rule, and the index of the offset, row or value. A run's fault has the
 * rule and, for "padding", the lane that has the byte. The bits for the group's number are enough for a directory of
 * 512 GiB. */
enum group_stage : unsigned {
    GROUP_FIRST, /* entry 0 of the directory; for the number after the last group: the total of nonzeros */
    GROUP_ENTRY, /* the next group's entry of the directory; for that number: no tile keeps signs, in version 2 */
    GROUP_OCCUPANCY,
    GROUP_DESCRIPTORS, /* the record is too short for the descriptors */
    GROUP_DESCRIPTOR,  /* the descriptor of a tile */
    GROUP_RUNS,        /* packed: the record is too short for the run descriptors */
    GROUP_RUN,         /* packed: a run descriptor */
    GROUP_LENGTH,      /* the size of the record */
    GROUP_PADDING,     /* sub: the lane that has the byte */
    GROUP_RUN_BODY,    /* packed: a run */
    GROUP_TILE
};
enum : unsigned { /* positions of the parts of such a fault */
                  FAULT_GROUP_AT = 26,
                  FAULT_STAGE_AT = 22,
                  FAULT_TILE_AT = 17,
                  FAULT_RULE_AT = 12
};

PICI_DEV uint64_t group_fault(uint64_t number, unsigned stage, unsigned tile = 0, unsigned rule = RULE_NONE,
                              unsigned sub = 0)
{
    return fault(FAULT_BODY, number << FAULT_GROUP_AT | stage << FAULT_STAGE_AT | tile << FAULT_TILE_AT |
                                 rule << FAULT_RULE_AT | sub);
}

/* Is the descriptor of a tile of `elements` elements invalid? Sets the lane's n, container, keeps and full. */
PICI_DEV bool bad_descriptor(group &made_group, unsigned first, unsigned second, unsigned elements, unsigned width_log2,
                             bool version2)
{
    container_said said;
    const bool valid = container_read(&said, first, second, elements, width_log2);
    made_group.container = said.container;
    made_group.n = said.n;
    made_group.keeps = said.signs;
    made_group.full = said.full;
    return !valid || (said.signs && !version2);
}

/* The part of a hybrid or packed block's description that stays in registers while the block is read. The rest is
 * computed from it. */
struct hybrid_view {
    const uint8_t *bytes;
    uint64_t count, units; /* count: elements; units: of all records */
    bool version2;
    unsigned packed = 0; /* packed: the dtype, and ONE_LEVEL */
};
constexpr unsigned ONE_LEVEL = 16;

PICI_DEV hybrid_view hybrid_of(const block_view &view)
{
    return hybrid_view{view.bytes, view.count,
                       (view.block_bytes - view.body_offset) / record_unit(view.format, view.width_log2),
                       view.version == VERSION_SIGNS,
                       view.format == PICI_PACKED ? view.dtype | (view.flags & FLAG_ONE_LEVEL ? ONE_LEVEL : 0u) : 0u};
}

/* Read the descriptor of run i of a group into `run`. Returns false if it breaks the rule "run". */
PICI_DEV bool run_said(fmt_run &run, const group &made_group, unsigned i, unsigned packed, unsigned width_log2)
{
    const fmt_kind kind = fmt_kind_of(packed % ONE_LEVEL);
    uint8_t descriptor[RUN_DESCRIPTOR];
    PICI_UNROLL
    for (unsigned k = 0; k < RUN_DESCRIPTOR; k++)
        descriptor[k] = hw::load(made_group.record + made_group.runs_at + i * RUN_DESCRIPTOR + k);
    return fmt_run_read(&run, descriptor, run_values(made_group, i), &kind, width_log2, packed >= ONE_LEVEL) != 0;
}

/* Read the run descriptors of a group of a packed block, and complete the layout of its record. bytes: the record's
 * size. Returns a fault. */
PICI_DEV uint64_t group_open_runs(group &made_group, unsigned packed, unsigned width_log2, uint64_t number,
                                  uint64_t bytes)
{
    const unsigned lane = hw::lane(), runs = fmt_runs(made_group.count);
    if (made_group.runs_at + runs * RUN_DESCRIPTOR > bytes)
        return group_fault(number, GROUP_RUNS);
    fmt_run run = fmt_run();
    const bool wrong = lane < runs && !run_said(run, made_group, lane, packed, width_log2);
    const unsigned bad = hw::ballot(wrong);
    if (bad)
        return group_fault(number, GROUP_RUN, hw::ffs(bad) - 1);
    const fmt_kind kind = fmt_kind_of(packed % ONE_LEVEL);
    const uint32_t size = lane < runs ? fmt_run_bytes(&run, &kind, width_log2) : 0;
    return group_lay_runs(made_group, size, width_log2) == bytes ? 0 : group_fault(number, GROUP_LENGTH);
}

/* Read the descriptors of group `number`, and lay out its record. Checks the rules from "directory" to a record's
 * "padding". Returns a fault. */
template <bool PACKED = false>
PICI_DEV uint64_t group_open(group &made_group, const hybrid_view &hybrid, unsigned width_log2, uint64_t number)
{
    const unsigned lane = hw::lane(), below = (1u << lane) - 1;
    const unsigned unit = PACKED ? fmt_unit_packed(width_log2) : unit_of(width_log2);
    block_view view = block_view();
    view.format = PICI_HYBRID;
    view.dtype = PICI_U8;
    view.count = hybrid.count;
    layout(view); /* for the offset of its directory */
    view.bytes = hybrid.bytes;
    const uint64_t begin = load_index(view, number);
    made_group = group();
    made_group.first = number * GROUP_TILES;
    made_group.tiles =
        view.tiles - made_group.first < GROUP_TILES ? (unsigned)(view.tiles - made_group.first) : (unsigned)GROUP_TILES;
    if (number == 0 && begin != 0)
        return group_fault(0, GROUP_FIRST);
    if (begin > hybrid.units) /* reported as a fault of the previous group */
        return group_fault(number - 1, GROUP_ENTRY);
    const uint64_t end = made_group.first + made_group.tiles < view.tiles ? load_index(view, number + 1) : hybrid.units;
    if (end < begin || end > hybrid.units)
        return group_fault(number, GROUP_ENTRY);
    made_group.record = view.bytes + view.body_offset + begin * unit;
    if (begin == end)
        return 0;
    const uint64_t bytes = (end - begin) * unit;
    made_group.bits = hw::load((const uint32_t *)made_group.record);
    if (!made_group.bits || (made_group.tiles < GROUP_TILES && made_group.bits >> made_group.tiles))
        return group_fault(number, GROUP_OCCUPANCY);
    const unsigned some = hw::popc(made_group.bits);
    if (4 + some > bytes)
        return group_fault(number, GROUP_DESCRIPTORS);
    const bool mine = made_group.bits >> lane & 1;
    const unsigned first = mine ? hw::load(made_group.record + 4 + hw::popc(made_group.bits & below)) : 0;
    const unsigned two = hw::ballot((first & DESCRIPTOR_TWO) != 0);
    const unsigned keeping = hw::ballot(hybrid.version2 && first >> 6 == 3);
    made_group.two = two;
    made_group.signs = keeping;
    if (4 + some + hw::popc(two) + SIGN_DESCRIPTOR * hw::popc(keeping) > bytes)
        return group_fault(number, GROUP_DESCRIPTORS);
    const unsigned second = two >> lane & 1 ? hw::load(made_group.record + 4 + some + hw::popc(two & below)) : 0;
    const unsigned elements = mine ? elements_of(view.count, made_group.first + lane) : 0;
    const bool wrong = mine && bad_descriptor(made_group, first, second, elements, width_log2, hybrid.version2);
    bool wrong_signs = false;
    if (mine && !wrong && made_group.keeps) {
        const uint8_t *next = made_group.record + sign_descriptor_at(made_group, lane);
        uint32_t descriptor = 0;
        for (unsigned i = 0; i < SIGN_DESCRIPTOR; i++)
            descriptor |= (uint32_t)hw::load(next + i) << 8 * i;
        wrong_signs = !good_sign_descriptor(made_group.sign, descriptor, elements - made_group.n);
    }
    const unsigned bad = hw::ballot(wrong), bad_signs = hw::ballot(wrong_signs), either = bad | bad_signs;
    if (either) {
        const unsigned i = hw::ffs(either) - 1;
        return group_fault(number, GROUP_DESCRIPTOR, i, bad >> i & 1 ? (unsigned)RULE_NONE : (unsigned)RULE_SIGNS);
    }
    const uint32_t laid = group_lay<PACKED>(made_group, elements, width_log2);
    if constexpr (PACKED) {
        const uint64_t wrong_runs = group_open_runs(made_group, hybrid.packed, width_log2, number, bytes);
        if (wrong_runs)
            return wrong_runs;
    } else if (laid != bytes) {
        return group_fault(number, GROUP_LENGTH);
    }
    const uint32_t pad = padding_byte(made_group, (uint32_t)bytes);
    const unsigned dirty = hw::ballot(pad && hw::load(made_group.record + pad) != 0);
    return dirty ? group_fault(number, GROUP_PADDING, 0, RULE_NONE, hw::ffs(dirty) - 1) : 0;
}

} // namespace pici

#endif
