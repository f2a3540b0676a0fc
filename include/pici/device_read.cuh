/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading a tile of a bitmap block by a warp, and loading the bits and entries of its next tile meanwhile. Part of
 * pici/device.cuh. */
#ifndef PICI_DEVICE_READ_CUH
#define PICI_DEVICE_READ_CUH

#include "pici/device_tiles.cuh"

namespace pici {

/* The lane's columns of a tile, the tile's entry of the index, and the next entry. */
struct tile_head {
    columns c;
    uint64_t entry, next;
};

PICI_DEV tile_head head_of(const block_view &view, uint64_t tile)
{
    return tile_head{get_columns(view.bytes + HEADER_BYTES, tile), load_index(view, tile),
                     tile + 1 < view.tiles ? load_index(view, tile + 1) : 0};
}

/* Shared memory for the bits of a tile, and after them its entry of the index and the next. */
enum : uint32_t { AHEAD_BYTES = TILE_BITS_BYTES + 16 };

/* Begin to copy the bits and the entries of a tile of a bitmap block to `target`, which is aligned to 16. Needs no
 * registers until the copy is used. */
PICI_DEV void tile_ahead(uint8_t *target, const block_view &view, uint64_t tile)
{
    const unsigned lane = hw::lane();
    const uint8_t *const index = view.bytes + view.index_offset;
    hw::copy_async((raw128 *)target + lane,
                   (const raw128 *)(view.bytes + HEADER_BYTES + tile * TILE_BITS_BYTES) + lane);
    if (lane < 2 && tile + lane < view.tiles) {
        if (view.index_width == 8)
            hw::copy_async((uint64_t *)(target + TILE_BITS_BYTES) + lane, (const uint64_t *)index + tile + lane);
        else
            hw::copy_async((uint32_t *)(target + TILE_BITS_BYTES) + lane, (const uint32_t *)index + tile + lane);
    }
}

/* Wait for the data that tile_ahead copied for a tile. After the return and a __syncwarp(), `from` may be used
 * again. */
PICI_DEV tile_head tile_arrived(const uint8_t *from, const block_view &view, uint64_t tile)
{
    const auto entry = [&](unsigned i) {
        const uint8_t *const entries = from + TILE_BITS_BYTES;
        return view.index_width == 8 ? hw::get((const uint64_t *)entries + i) : hw::get((const uint32_t *)entries + i);
    };
    hw::copy_async_wait();
    hw::syncwarp();
    const raw128 words = hw::get((const raw128 *)from + hw::lane());
    tile_head head;
    head.c.word[0] = words.lo;
    head.c.word[1] = words.hi;
    head.entry = entry(0);
    head.next = tile + 1 < view.tiles ? entry(1) : 0;
    return head;
}

/* Check all rules of a tile of a bitmap block, and its part of the index. If the tile itself is valid, decode it or add
 * it to dst, depending on DO. SUM: arith<dtype> or arith_xor<T> for ADD. Returns a fault. stage may be used again at
 * once. */
template <reading DO, class SUM, class T>
PICI_DEV uint64_t tile_read(const block_view &view, uint64_t tile, const tile_head &head, T *dst, uint8_t *stage)
{
    const columns words = head.c;
    const uint64_t entry = head.entry, next = head.next;
    const unsigned left = elements_of(view.count, tile);
    if (left < TILE) {
        const unsigned lane = hw::lane();
        const unsigned even = hw::ballot(past_end(words.word[0], 2 * lane, left)),
                       odd = hw::ballot(past_end(words.word[1], 2 * lane + 1, left));
        if (even | odd) {
            const unsigned own_sum = even ? 2 * (hw::ffs(even) - 1) : COLS,
                           odd_zeros = odd ? 2 * (hw::ffs(odd) - 1) + 1 : COLS;
            return tile_fault(tile, TILE_PAST_END, own_sum < odd_zeros ? own_sum : odd_zeros);
        }
    }
    const unsigned before = tile_offset(words);
    const unsigned nonzeros = hw::shfl(before + hw::popc(words.word[0]) + hw::popc(words.word[1]), LANES - 1);
    /* This reports an entry beyond nonzeros. But then an earlier tile has a fault too: the counts before do not add up
     * to the entry. */
    if ((tile == 0 && entry != 0) || entry > view.nnz)
        return tile_fault(tile, TILE_ENTRY, 0);
    if (nonzeros > view.nnz - entry)
        return tile_fault(tile, TILE_MORE, 0);
    uint64_t wrong = 0;
    if (tile + 1 < view.tiles) {
        if (next != entry + nonzeros)
            wrong = tile_fault(tile + 1, TILE_ENTRY, 0);
    } else if (entry + nonzeros != view.nnz) {
        wrong = tile_fault(tile + 1, 0, 0);
    }

    const T *from = (const T *)(view.bytes + view.values_offset) + entry;
    T *values = nullptr;
    bool zero;
    if constexpr (DO == ADD) {
        if (nonzeros <= SPARSE_TILE)
            zero = tile_add_list<SUM>(tile_at(dst, view.count, tile), stage, from, words, before, nonzeros);
        else
            zero = warp_copy_in<true>(values, stage, from, nonzeros);
    } else {
        zero = warp_copy_in<DO == DECODE>(values, stage, from, nonzeros);
    }
    if (hw::ballot(zero)) {
        wrong = tile_fault(tile, TILE_ZERO, warp_find_zero(from, nonzeros));
    } else if constexpr (DO == DECODE) {
        tile_scatter(tile_at(dst, view.count, tile), (const T *)values, words, before);
    } else if constexpr (DO == ADD) {
        if (nonzeros > SPARSE_TILE)
            tile_add_rows<SUM>(tile_at(dst, view.count, tile), (const T *)values, words, before);
    }
    if constexpr (DO != VERIFY)
        hw::syncwarp();
    return wrong;
}

template <reading DO, class SUM, class T>
PICI_DEV uint64_t tile_read(const block_view &view, uint64_t tile, T *dst, uint8_t *stage)
{
    return tile_read<DO, SUM>(view, tile, head_of(view, tile), dst, stage);
}

} // namespace pici

#endif
