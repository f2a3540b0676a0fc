/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading coo blocks by warps. Part of pici/device.cuh. */
#ifndef PICI_DEVICE_COO_CUH
#define PICI_DEVICE_COO_CUH

#include "pici/device_tiles.cuh"

namespace pici {

/* The first entry at this position or a later one. Any entry if the block is invalid because positions do not rise. */
PICI_DEV uint64_t warp_lower_bound(const block_view &view, uint64_t position)
{
    uint64_t low = 0, count = view.nnz; /* the result is in [low, low + count] */
    while (count) {
        /* each lane looks at the last entry of one of 32 equal parts */
        const uint64_t step = (count + LANES - 1) / LANES, last = (hw::lane() + 1) * step - 1;
        const unsigned below = hw::ballot(last < count && load_index(view, low + last) < position);
        const unsigned parts = below == hw::ALL ? LANES : hw::ffs(~below) - 1;
        if (step == 1)
            return low + parts;
        /* continue in the part with the result, without its last entry, or in the rest after the last whole part */
        low += parts * step;
        count -= parts * step;
        count = count < step - 1 ? count : step - 1;
    }
    return low;
}

/* Decode tiles [tile_number, end) of a coo block. Each is built in shared memory and written whole. Checks the entries
 * that it reads, and that it misses no entry of these tiles. Returns a fault, not always the first. */
template <class T>
PICI_DEV uint64_t warp_coo_decode(const block_view &view, uint64_t tile_number, uint64_t end, T *dst, uint8_t *stage)
{
    const T *values = (const T *)(view.bytes + view.values_offset);
    T *tile = (T *)stage;
    uint64_t i = tile_number ? warp_lower_bound(view, tile_number * TILE) : 0;
    const uint64_t stop = end < tiles_of(view.count) ? warp_lower_bound(view, end * TILE) : view.nnz;
    if (tile_number == end)
        return 0;
    for (; tile_number < end; tile_number++) {
        const dense_tile<T> dense = tile_at(dst, view.count, tile_number);
        stage_zeros<T>(stage);
        for (unsigned taken = LANES; taken == LANES; i += taken) {
            const uint64_t entry = i + hw::lane();
            const uint64_t position = entry < stop ? load_index(view, entry) : UINT64_MAX;
            const uint64_t before = entry < stop && entry ? load_index(view, entry - 1) : 0;
            const unsigned others = ~hw::ballot(entry < stop && position < tile_number * TILE + dense.left);
            taken = others ? hw::ffs(others) - 1 : LANES;
            const T value = hw::lane() < taken ? hw::load_once(values + entry) : (T)0;
            if (hw::ballot(hw::lane() < taken &&
                           (position < tile_number * TILE || (entry && position <= before) || value == 0))) {
                hw::syncwarp();
                return entry_fault(i, COO_RISING);
            }
            if (hw::lane() < taken)
                hw::put(tile + (position - tile_number * TILE), value);
        }
        hw::syncwarp();
        tile_put(dense, stage);
        hw::syncwarp();
    }
    return i == stop ? 0 : entry_fault(i, COO_RISING);
}

/* Check each entry and, with ADD, add it: the part of warp `share` of `shares`. Returns a lane's fault. */
template <reading DO, class SUM, class T>
PICI_DEV uint64_t warp_coo_entries(const block_view &view, T *dst, uint64_t share, uint64_t shares)
{
    const T *values = (const T *)(view.bytes + view.values_offset);
    uint64_t wrong = 0;
    constexpr unsigned GROUP = 4; /* entries in flight */
    const uint64_t step = shares * LANES;
    PICI_UNROLL_1
    for (uint64_t first = share * LANES + hw::lane(); first < view.nnz; first += GROUP * step) {
        uint64_t position[GROUP], before[GROUP];
        T value[GROUP];
        bool good[GROUP];
        PICI_UNROLL
        for (unsigned k = 0; k < GROUP; k++) {
            const uint64_t i = first + k * step;
            const bool exists = i < view.nnz;
            position[k] = exists ? load_index(view, i) : 0;
            before[k] = exists && i ? load_index(view, i - 1) : 0;
            value[k] = exists ? hw::load_once(values + i) : (T)1;
        }
        PICI_UNROLL
        for (unsigned k = 0; k < GROUP; k++) {
            const uint64_t i = first + k * step;
            uint64_t fault = 0;
            if (i < view.nnz)
                fault = i && position[k] <= before[k] ? entry_fault(i, COO_RISING)
                        : position[k] >= view.count   ? entry_fault(i, COO_PAST_END)
                        : value[k] == 0               ? entry_fault(i, COO_ZERO)
                                                      : 0;
            wrong = first_fault(wrong, fault);
            good[k] = i < view.nnz && !fault;
        }
        if constexpr (DO == ADD)
            add_at<SUM>(dst, position, value, good);
    }
    return wrong;
}

} // namespace pici

#endif
