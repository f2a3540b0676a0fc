/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encoding a group of a hybrid block by a thread block, and functions that encoders of other formats share. Part of
 * pici/device.cuh. Specification: formats/hybrid.md. */
#ifndef PICI_DEVICE_GROUP_MAKE_CUH
#define PICI_DEVICE_GROUP_MAKE_CUH

#include "pici/device_hybrid_make.cuh"

namespace pici {

/* The beginning of a thread block's shared memory, aligned to 16. A stage for each warp follows; to encode
 * hybrid, a made_tile for each tile of a group; to encode packed, the parts of struct pack_memory. */
struct alignas(16) block_memory {
    uint64_t base, ticket, fault, nnz;
    uint32_t count[LANES]; /* of values, for each warp; hybrid and packed: for each tile */
    uint32_t sign[LANES];  /* encoding hybrid, packed: the sign descriptor of each tile that keeps signs */
};

/* Bytes of shared memory to read a block by `threads` threads. */
template <class T> constexpr unsigned READ_BYTES(unsigned threads)
{
    return (unsigned)sizeof(block_memory) + threads / LANES * READ_STAGE_BYTES<T>;
}

PICI_DEV unsigned warps()
{
    return hw::threads() / LANES;
}

PICI_DEV unsigned warp()
{
    return hw::thread() / LANES;
}

template <unsigned BYTES> PICI_DEV uint8_t *stage_of(block_memory *memory)
{
    return (uint8_t *)(memory + 1) + warp() * BYTES;
}

/* A block being encoded. */
template <class T> struct making {
    const T *src;
    uint8_t *block;
    uint64_t cap; /* bytes at block */
    /* format, dtype, count, FLAG_ONE_LEVEL of flags, and the layout. For bitmap, hybrid and packed, the layout of a
     * block without values; for coo, set once nnz is known */
    block_view to;
    const T *base = nullptr; /* or elements to XOR with those at src */
    bool by_value = false;   /* encode -0.0 as +0.0; not with a base */
};

/* A tile of the elements to encode. */
template <class T> PICI_DEV dense_tile<const T> source_tile(const making<T> &work, uint64_t tile)
{
    return tile_at(work.src, work.to.count, tile, work.base, work.by_value);
}

/* Units of all records up to the end of a group, and the group's own nonzeros. */
struct group_end {
    uint64_t units;
    uint32_t nnz;
    bool signs; /* the group has a tile that keeps signs */
};

/* The data of a tile for the layout of a record: its nonzeros, with TILE_FULL and TILE_KEEPS, and the sign descriptor
 * if it keeps signs. */
struct surveyed {
    uint32_t count, sign;
};
constexpr uint32_t TILE_FULL = 1u << 31, TILE_KEEPS = 1u << 30; /* has a run of 256 nonzeros; keeps signs */

/* Called by a warp: read a tile of the elements. *to is as after tile_survey. keep: see tile_survey. */
template <class T> PICI_DEV surveyed survey(made_tile *to, const making<T> &work, uint64_t tile, bool keep = true)
{
    dense_tile<const T> dense = source_tile(work, tile);
    surveyed result = {0, 0};
    bool negative;
    columns words = tile_survey(to, dense, negative, keep);
    if (is_float(work.to.dtype) && !work.by_value && hw::ballot(negative)) {
        tile_signs signs;
        if (tile_keeps_signs(signs, dense)) {
            dense.by_value = true;
            hw::syncwarp();
            words = tile_survey(to, dense, negative, keep);
            result = surveyed{TILE_KEEPS, sign_descriptor(signs)};
        }
    }
    result.count |= tile_nnz(words) | (has_run(words) ? TILE_FULL : 0);
    return result;
}

/* Lay out the record of the group whose first tile is `first`. survey: the lane's tile. Returns the result of
 * group_lay. */
template <bool PACKED = false, class T>
PICI_DEV uint32_t group_from(group &made_group, const making<T> &work, uint64_t first, const surveyed &survey)
{
    const uint64_t tile = first + hw::lane();
    const unsigned elements = tile < work.to.tiles ? elements_of(work.to.count, tile) : 0;
    const bool full = (survey.count & TILE_FULL) != 0;
    made_group = group();
    made_group.n = survey.count & ~(TILE_FULL | TILE_KEEPS);
    made_group.keeps = (survey.count & TILE_KEEPS) != 0;
    made_group.container = made_group.keeps ? container_of_signs(made_group.n, full)
                           : made_group.n   ? container_of(made_group.n, elements, LOG2<T>, full)
                                            : 0;
    if (made_group.keeps)
        good_sign_descriptor(made_group.sign, survey.sign, elements - made_group.n);
    return group_lay<PACKED>(made_group, elements, LOG2<T>);
}

/* The address of the record that begins after `units` units. */
template <class T> PICI_DEV uint8_t *record_at(const making<T> &work, uint64_t units)
{
    return work.block + work.to.body_offset + units * record_unit(work.to.format, LOG2<T>);
}

/* Called by a warp: write a group's entry of the directory and, if the record fits, its descriptors and its padding.
 * Does not write run descriptors. base: units before the record. bytes: its size. */
template <class T>
PICI_DEV void group_head(const making<T> &work, uint64_t number, const group &made_group, uint64_t base, uint32_t bytes,
                         bool fits)
{
    const unsigned lane = hw::lane(), below = (1u << lane) - 1;
    if (lane == 0)
        store_index(work.block + HEADER_BYTES, work.to.index_width, number, base);
    if (!fits || !made_group.bits)
        return;
    const unsigned descriptor = made_group.keeps ? container_descriptor_signs(made_group.container, made_group.n)
                                                 : container_descriptor(made_group.container, made_group.n);
    const uint32_t pad = padding_byte(made_group, bytes);
    uint8_t *const record = record_at(work, base), *const descriptors = record + 4;
    if (lane == 0)
        hw::store((uint32_t *)record, made_group.bits);
    if (made_group.bits >> lane & 1)
        hw::store(descriptors + hw::popc(made_group.bits & below), (uint8_t)descriptor);
    if (made_group.two >> lane & 1)
        hw::store(descriptors + hw::popc(made_group.bits) + hw::popc(made_group.two & below),
                  (uint8_t)(descriptor >> 8));
    for (unsigned i = 0; made_group.keeps && i < SIGN_DESCRIPTOR; i++)
        hw::store(record + sign_descriptor_at(made_group, lane) + i,
                  (uint8_t)(sign_descriptor(made_group.sign) >> 8 * i));
    if (pad)
        hw::store(record + pad, (uint8_t)0);
}

/* Called by a warp: write tile i of a group to its record. *tile is as after tile_payload, and may be used again at
 * once. first: the group's first tile. */
template <class T>
PICI_DEV void group_tile(const making<T> &work, uint64_t first, const group &made_group, uint8_t *record, unsigned i,
                         made_tile *tile)
{
    const unsigned count = hw::shfl(made_group.n, i), container = hw::shfl(made_group.container, i);
    uint8_t *const payload = record + hw::shfl(made_group.payload, i), *const values =
                                                                           record + hw::shfl(made_group.own_values, i);
    uint8_t *const own_signs = record + hw::shfl(made_group.own_signs, i);
    dense_tile<const T> dense = source_tile(work, first + i);
    if (made_group.signs >> i & 1) {
        tile_write_signs(own_signs, dense);
        dense.by_value = true;
    }
    if (count)
        tile_write(payload, (T *)values, tile, dense, container, count);
}

/* Called by all threads of a thread block: survey the tiles of the group whose first tile is `first`. Each warp takes a
 * tile at a time. made(i): destination of tile i. keep: see tile_survey. There is one barrier. Returns the lane's
 * tile. */
template <class T, class MADE>
PICI_DEV surveyed survey_group(block_memory *shared, const making<T> &work, uint64_t first, unsigned tiles, MADE made,
                               bool keep)
{
    const unsigned lane = hw::lane();
    PICI_UNROLL_1
    for (unsigned i = warp(); i < tiles; i += warps()) {
        const surveyed one_surveyed = survey(made(i), work, first + i, keep);
        if (lane == 0) {
            hw::put(&shared->count[i], one_surveyed.count);
            hw::put(&shared->sign[i], one_surveyed.sign);
        }
    }
    hw::syncthreads();
    return lane < tiles ? surveyed{hw::get(&shared->count[lane]), hw::get(&shared->sign[lane])} : surveyed{0, 0};
}

/* Called by all threads of a thread block: encode group `number` of a hybrid block. Each warp takes a tile at a time.
 * prefix counts units of records; prefix and the two barriers are as in make_partition. A record that does not fit is
 * not written. */
template <class T, class PREFIX>
PICI_DEV group_end make_group(const making<T> &work, uint64_t number, block_memory *shared, PREFIX &prefix)
{
    const auto made = [&](unsigned i) { return (made_tile *)(shared + 1) + i; };
    const unsigned unit = unit_of(LOG2<T>);
    const uint64_t first = number * GROUP_TILES, left = work.to.tiles - first;
    const unsigned tiles = left < GROUP_TILES ? (unsigned)left : (unsigned)GROUP_TILES;
    const surveyed own_surveyed = survey_group(shared, work, first, tiles, made, true);
    group made_group;
    const uint32_t bytes = group_from(made_group, work, first, own_surveyed), nonzeros = warp_sum(made_group.n);
    if (warp() == 0)
        prefix.publish(bytes / unit);
    PICI_UNROLL_1
    for (unsigned i = warp(); i < tiles; i += warps())
        tile_payload(made(i), hw::shfl(made_group.container, i), hw::shfl(made_group.n, i));
    if (warp() == 0) {
        const uint64_t base = prefix.resolve(bytes / unit);
        if (hw::lane() == 0)
            hw::put(&shared->base, base);
    }
    hw::syncthreads();
    const uint64_t base = hw::get(&shared->base), end = base + bytes / unit;
    const bool fits = work.to.body_offset + end * unit <= work.cap;
    uint8_t *const record = record_at(work, base);
    if (warp() == 0)
        group_head(work, number, made_group, base, bytes, fits);
    /* backwards, since the last tiles read are most likely still cached; i wraps around below 0, which ends the loop */
    PICI_UNROLL_1
    for (unsigned i = warp() + ((tiles - warp() + warps() - 1) / warps() - 1) * warps(); fits && i < tiles;
         i -= warps())
        group_tile(work, first, made_group, record, i, made(i));
    return group_end{end, nonzeros, made_group.signs != 0};
}

/* Complete the layout of a hybrid or packed block. units: of all records. nonzeros: of the block. signs: a tile keeps
 * signs. */
template <class T> PICI_DEV void end_of_groups(making<T> &work, uint64_t units, uint64_t nonzeros, bool signs)
{
    work.to.version = signs ? (uint32_t)VERSION_SIGNS : 1;
    work.to.values_offset = work.to.body_offset + units * record_unit(work.to.format, LOG2<T>) -
                            (work.to.format == PICI_HYBRID ? nonzeros * sizeof(T) : 0);
}

} // namespace pici

#endif
