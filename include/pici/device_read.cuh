/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading a tile of a bitmap block by a warp, and the bits and entries of its next tile meanwhile. Part of
 * pici/device.cuh. */
#ifndef PICI_DEVICE_READ_CUH
#define PICI_DEVICE_READ_CUH

#include "pici/device_tiles.cuh"

namespace pici {

/* What a block says of a tile besides its values: the lane's columns, the tile's entry of the index, and the next. */
struct tile_head {
    columns c;
    uint64_t entry, next;
};

PICI_DEV tile_head head_of(const block_view &v, uint64_t t)
{
    return tile_head{get_columns(v.bytes + HEADER_BYTES, t), load_index(v, t),
                     t + 1 < v.tiles ? load_index(v, t + 1) : 0};
}

/* Shared memory for the bits of a tile, and after them its entry of the index and the next. */
enum : uint32_t { AHEAD_BYTES = TILE_BITS_BYTES + 16 };

/* Begin to copy the bits and the entries of tile t of a bitmap block to `to`, which is aligned to 16. Needs no
 * registers until the copy is used. */
PICI_DEV void tile_ahead(uint8_t *to, const block_view &v, uint64_t t)
{
    const unsigned lane = hw::lane();
    const uint8_t *const index = v.bytes + v.index_offset;
    hw::copy_async((raw128 *)to + lane, (const raw128 *)(v.bytes + HEADER_BYTES + t * TILE_BITS_BYTES) + lane);
    if (lane < 2 && t + lane < v.tiles) {
        if (v.index_width == 8)
            hw::copy_async((uint64_t *)(to + TILE_BITS_BYTES) + lane, (const uint64_t *)index + t + lane);
        else
            hw::copy_async((uint32_t *)(to + TILE_BITS_BYTES) + lane, (const uint32_t *)index + t + lane);
    }
}

/* Wait for what tile_ahead copied for tile t. When it returns, `from` may be used again after a __syncwarp(). */
PICI_DEV tile_head tile_arrived(const uint8_t *from, const block_view &v, uint64_t t)
{
    const auto entry = [&](unsigned i) {
        const uint8_t *const entries = from + TILE_BITS_BYTES;
        return v.index_width == 8 ? hw::get((const uint64_t *)entries + i) : hw::get((const uint32_t *)entries + i);
    };
    hw::copy_async_wait();
    hw::syncwarp();
    const raw128 words = hw::get((const raw128 *)from + hw::lane());
    tile_head h;
    h.c.word[0] = words.lo;
    h.c.word[1] = words.hi;
    h.entry = entry(0);
    h.next = t + 1 < v.tiles ? entry(1) : 0;
    return h;
}

/* Check all rules of tile t of a bitmap block, and its part of the index; if the tile itself is valid, decode it or
 * add it to dst, as DO says. SUM: arith<dtype> or arith_xor<T> for ADD. Returns a fault. stage may be used again at
 * once. */
template <reading DO, class SUM, class T>
PICI_DEV uint64_t tile_read(const block_view &v, uint64_t t, const tile_head &head, T *dst, uint8_t *stage)
{
    const columns c = head.c;
    const uint64_t entry = head.entry, next = head.next;
    const unsigned left = elements_of(v.count, t);
    if (left < TILE) {
        const unsigned lane = hw::lane();
        const unsigned even = hw::ballot(past_end(c.word[0], 2 * lane, left)),
                       odd = hw::ballot(past_end(c.word[1], 2 * lane + 1, left));
        if (even | odd) {
            const unsigned e = even ? 2 * (hw::ffs(even) - 1) : COLS, o = odd ? 2 * (hw::ffs(odd) - 1) + 1 : COLS;
            return tile_fault(t, TILE_PAST_END, e < o ? e : o);
        }
    }
    const unsigned before = tile_offset(c);
    const unsigned nnz = hw::shfl(before + hw::popc(c.word[0]) + hw::popc(c.word[1]), LANES - 1);
    /* An entry beyond nnz is reported here, but an earlier tile has a fault too: the counts before do not add up to
     * it. */
    if ((t == 0 && entry != 0) || entry > v.nnz)
        return tile_fault(t, TILE_ENTRY, 0);
    if (nnz > v.nnz - entry)
        return tile_fault(t, TILE_MORE, 0);
    uint64_t wrong = 0;
    if (t + 1 < v.tiles) {
        if (next != entry + nnz)
            wrong = tile_fault(t + 1, TILE_ENTRY, 0);
    } else if (entry + nnz != v.nnz) {
        wrong = tile_fault(t + 1, 0, 0);
    }

    const T *from = (const T *)(v.bytes + v.values_offset) + entry;
    T *values = nullptr;
    bool zero;
    if constexpr (DO == ADD) {
        if (nnz <= SPARSE_TILE)
            zero = tile_add_list<SUM>(tile_at(dst, v.count, t), stage, from, c, before, nnz);
        else
            zero = warp_copy_in<true>(values, stage, from, nnz);
    } else {
        zero = warp_copy_in<DO == DECODE>(values, stage, from, nnz);
    }
    if (hw::ballot(zero)) {
        wrong = tile_fault(t, TILE_ZERO, warp_find_zero(from, nnz));
    } else if constexpr (DO == DECODE) {
        tile_scatter(tile_at(dst, v.count, t), (const T *)values, c, before);
    } else if constexpr (DO == ADD) {
        if (nnz > SPARSE_TILE)
            tile_add_rows<SUM>(tile_at(dst, v.count, t), (const T *)values, c, before);
    }
    if constexpr (DO != VERIFY)
        hw::syncwarp();
    return wrong;
}

template <reading DO, class SUM, class T>
PICI_DEV uint64_t tile_read(const block_view &v, uint64_t t, T *dst, uint8_t *stage)
{
    return tile_read<DO, SUM>(v, t, head_of(v, t), dst, stage);
}

} // namespace pici

#endif
