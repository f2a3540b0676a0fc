/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading coo blocks by warps. Part of pici/device.cuh. */
#ifndef PICI_DEVICE_COO_CUH
#define PICI_DEVICE_COO_CUH

#include "pici/device_tiles.cuh"

namespace pici {

/* The first entry whose position is at least p. If the block is invalid because positions do not rise, any entry. */
PICI_DEV uint64_t warp_lower_bound(const block_view &v, uint64_t p)
{
    uint64_t lo = 0, n = v.nnz; /* the result is in [lo, lo + n] */
    while (n) {
        /* each lane looks at the last entry of one of 32 equal parts */
        const uint64_t step = (n + LANES - 1) / LANES, last = (hw::lane() + 1) * step - 1;
        const unsigned below = hw::ballot(last < n && load_index(v, lo + last) < p);
        const unsigned parts = below == hw::ALL ? LANES : hw::ffs(~below) - 1;
        if (step == 1)
            return lo + parts;
        /* the part that has the result, without its last entry; or what is left after the last whole part */
        lo += parts * step;
        n -= parts * step;
        n = n < step - 1 ? n : step - 1;
    }
    return lo;
}

/* Decode tiles [t, end) of a coo block. Each is built in shared memory and written whole. Checks the entries that it
 * reads, and that no entry of these tiles is missed. Returns a fault, which need not be the first. */
template <class T>
PICI_DEV uint64_t warp_coo_decode(const block_view &v, uint64_t t, uint64_t end, T *dst, uint8_t *stage)
{
    const T *values = (const T *)(v.bytes + v.values_offset);
    T *tile = (T *)stage;
    uint64_t i = t ? warp_lower_bound(v, t * TILE) : 0;
    const uint64_t stop = end < tiles_of(v.count) ? warp_lower_bound(v, end * TILE) : v.nnz;
    if (t == end)
        return 0;
    for (; t < end; t++) {
        const dense_tile<T> d = tile_at(dst, v.count, t);
        stage_zeros<T>(stage);
        for (unsigned taken = LANES; taken == LANES; i += taken) {
            const uint64_t e = i + hw::lane();
            const uint64_t p = e < stop ? load_index(v, e) : UINT64_MAX;
            const uint64_t before = e < stop && e ? load_index(v, e - 1) : 0;
            const unsigned others = ~hw::ballot(e < stop && p < t * TILE + d.left);
            taken = others ? hw::ffs(others) - 1 : LANES;
            const T x = hw::lane() < taken ? hw::load_once(values + e) : (T)0;
            if (hw::ballot(hw::lane() < taken && (p < t * TILE || (e && p <= before) || x == 0))) {
                hw::syncwarp();
                return entry_fault(i, COO_RISING);
            }
            if (hw::lane() < taken)
                hw::put(tile + (p - t * TILE), x);
        }
        hw::syncwarp();
        tile_put(d, stage);
        hw::syncwarp();
    }
    return i == stop ? 0 : entry_fault(i, COO_RISING);
}

/* Check each entry, and with ADD add it: the part of warp `share` of `shares`. Returns a fault; a lane's. */
template <reading DO, class SUM, class T>
PICI_DEV uint64_t warp_coo_entries(const block_view &v, T *dst, uint64_t share, uint64_t shares)
{
    const T *values = (const T *)(v.bytes + v.values_offset);
    uint64_t wrong = 0;
    constexpr unsigned GROUP = 4; /* entries in flight */
    const uint64_t step = shares * LANES;
    PICI_UNROLL_1
    for (uint64_t first = share * LANES + hw::lane(); first < v.nnz; first += GROUP * step) {
        uint64_t p[GROUP], before[GROUP];
        T x[GROUP];
        bool good[GROUP];
        PICI_UNROLL
        for (unsigned k = 0; k < GROUP; k++) {
            const uint64_t i = first + k * step;
            const bool exists = i < v.nnz;
            p[k] = exists ? load_index(v, i) : 0;
            before[k] = exists && i ? load_index(v, i - 1) : 0;
            x[k] = exists ? hw::load_once(values + i) : (T)1;
        }
        PICI_UNROLL
        for (unsigned k = 0; k < GROUP; k++) {
            const uint64_t i = first + k * step;
            uint64_t f = 0;
            if (i < v.nnz)
                f = i && p[k] <= before[k] ? entry_fault(i, COO_RISING)
                    : p[k] >= v.count      ? entry_fault(i, COO_PAST_END)
                    : x[k] == 0            ? entry_fault(i, COO_ZERO)
                                           : 0;
            wrong = first_fault(wrong, f);
            good[k] = i < v.nnz && !f;
        }
        if constexpr (DO == ADD)
            add_at<SUM>(dst, p, x, good);
    }
    return wrong;
}

} // namespace pici

#endif
