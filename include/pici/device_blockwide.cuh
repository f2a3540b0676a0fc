/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Functions in which one thread block works on a whole block: block_compress, block_decompress, block_scatter_add
 * and block_apply. The kernels of lib/cuda use their parts to encode a partition of a bitmap or coo block, or to
 * read a warp's share of a block. Part of pici/device.cuh. */
#ifndef PICI_DEVICE_BLOCKWIDE_CUH
#define PICI_DEVICE_BLOCKWIDE_CUH

#include "pici/device_coo.cuh"
#include "pici/device_dense.cuh"
#include "pici/device_packed_make.cuh"

namespace pici {

/* Bytes of shared memory to encode a block by `threads` threads. */
template <class T> constexpr unsigned MAKE_BYTES(unsigned format, unsigned threads)
{
    return (unsigned)sizeof(block_memory) + (format == PICI_PACKED   ? PACK_BYTES<T>(threads)
                                             : format == PICI_HYBRID ? GROUP_TILES * (unsigned)sizeof(made_tile)
                                             : format == PICI_COO    ? threads / LANES * COO_STAGE_BYTES<T>
                                             : format == PICI_BITMAP ? threads / LANES * STAGE_BYTES<T>
                                                                     : 0);
}

/* Copy the elements to a dense block: the part of warp `share` of `shares`. */
template <class T> PICI_DEV void warp_make_dense(const making<T> &work, uint64_t share, uint64_t shares)
{
    T *const to = (T *)(work.block + HEADER_BYTES);
    if (work.by_value)
        warp_dense<DECODE, void, true>(to, work.src, work.to.count, share, shares);
    else
        warp_dense<DECODE, void>(to, work.src, work.to.count, share, shares, work.base);
}

/* The number of values that fit into the block's memory. */
template <class T> PICI_DEV uint64_t values_that_fit(const making<T> &work)
{
    return work.cap > work.to.values_offset ? (work.cap - work.to.values_offset) / sizeof(T) : 0;
}

/* The number of partitions. A partition has as many tiles as the thread block has warps. */
PICI_DEV uint64_t partitions(uint64_t count)
{
    return tiles_of(count) / warps() + (tiles_of(count) % warps() != 0);
}

template <unsigned HOW, class T> PICI_DEV unsigned pack_rows_coo(uint8_t *stage, const held_tile<T> &held)
{
    T *values = (T *)stage;
    uint16_t *places = (uint16_t *)(stage + TILE * sizeof(T));
    unsigned position = 0;
    constexpr unsigned GROUP = held_tile<T>::holds ? (unsigned)ROWS : 8u; /* rows loaded before any is used */
    PICI_UNROLL_1
    for (unsigned row = 0; row < ROWS; row += GROUP) {
        raw_pair<T> pair[GROUP];
        PICI_UNROLL
        for (unsigned r = 0; r < GROUP; r++)
            pair[r] = held_row<HOW>(held, GROUP == ROWS ? r : row + r);
        position = rank_rows<T>(pair, position, [&](unsigned r, T x, T y, unsigned, unsigned, unsigned k) {
            const unsigned place = (row + r) * COLS + 2 * hw::lane();
            if (x) {
                hw::put(values + k, x);
                hw::put(places + k, (uint16_t)place);
            }
            if (y) {
                hw::put(values + k + (x != 0), y);
                hw::put(places + k + (x != 0), (uint16_t)(place + 1));
            }
        });
    }
    return position;
}

/* Gather a tile's values and offsets at stage, in element order. Returns their number. */
template <class T> PICI_DEV unsigned tile_pack_coo(uint8_t *stage, const held_tile<T> &held)
{
    unsigned count = 0;
    by_held(held, [&](auto how) { count = pack_rows_coo<how.value>(stage, held); });
    hw::syncwarp();
    return count;
}

/* Encode one partition of a block, by all threads of a thread block. Returns the number of values up to its end. Counts
 * values that do not fit, but does not write them.
 *
 * prefix finds the number of values before the partition. The first warp calls prefix.publish(total) as soon as the
 * partition's values are counted. Later it calls prefix.resolve(total), which returns the number.
 *
 * There are two barriers. shared->count is written before the first and read between the two. shared->base is written
 * between the two and read after the second. So the next call may write both again. */
template <unsigned FORMAT, class T, class PREFIX>
PICI_DEV uint64_t make_partition(const making<T> &work, uint64_t part, block_memory *shared, PREFIX &prefix)
{
    uint8_t *stage = stage_of < FORMAT == PICI_COO ? COO_STAGE_BYTES<T> : STAGE_BYTES < T >> (shared);
    const uint64_t tile = part * warps() + warp();
    const bool mine = tile < tiles_of(work.to.count);
    const unsigned lane = hw::lane();
    held_tile<T> held;
    held.from = dense_tile<const T>();
    columns words = {{0, 0}};
    unsigned before = 0, nonzeros = 0;
    if (mine) {
        tile_load(held, source_tile(work, tile));
        words = tile_columns(held);
        before = tile_offset(words);
        nonzeros = hw::shfl(before + hw::popc(words.word[0]) + hw::popc(words.word[1]), LANES - 1);
        if (FORMAT == PICI_BITMAP)
            put_columns(work.block + HEADER_BYTES, tile, words);
    }
    if (lane == 0)
        hw::put(&shared->count[warp()], nonzeros);
    hw::syncthreads();
    const uint32_t count = lane < warps() ? hw::get(&shared->count[lane]) : 0;
    const uint32_t total = warp_sum(count), earlier = warp_sum(lane < warp() ? count : 0);
    if (warp() == 0)
        prefix.publish(total);
    if (mine) {
        if constexpr (FORMAT == PICI_COO)
            tile_pack_coo(stage, held);
        else
            tile_pack(stage, held, words, before);
    }
    if (warp() == 0) {
        const uint64_t base = prefix.resolve(total);
        if (lane == 0)
            hw::put(&shared->base, base);
    }
    hw::syncthreads();
    const uint64_t base = hw::get(&shared->base), offset = base + earlier, fit = values_that_fit(work);
    if (mine) {
        if (fit - offset < nonzeros || fit < offset)
            nonzeros = fit > offset ? (unsigned)(fit - offset) : 0;
        warp_copy_out<FORMAT == PICI_COO ? IN_ORDER : SPREAD>((T *)(work.block + work.to.values_offset) + offset, stage,
                                                              nonzeros);
        uint8_t *index = work.block + work.to.index_offset;
        if constexpr (FORMAT == PICI_COO) {
            const uint16_t *places = (const uint16_t *)(stage + TILE * sizeof(T));
            for (unsigned i = lane; i < nonzeros; i += LANES)
                store_index(index, work.to.index_width, offset + i, tile * TILE + hw::get(places + i));
        } else if (lane == 0) {
            store_index(index, work.to.index_width, tile, offset);
        }
    }
    return base + total;
}

/* Called by one warp after all values are written: write the padding and the header, or 48 zero bytes if the block does
 * not fit. Returns the block's size, or 0. */
template <class T> PICI_DEV uint64_t make_end(const making<T> &work, uint64_t nonzeros)
{
    block_view view = work.to;
    view.nnz = view.format == PICI_DENSE ? view.count : nonzeros;
    const bool fits = layout(view) && view.block_bytes <= work.cap;
    if (fits && view.index_end + hw::lane() < view.body_offset)
        hw::store(work.block + view.index_end + hw::lane(), (uint8_t)0);
    if (hw::lane() == 0)
        put_header(work.block, view, fits);
    return fits ? view.block_bytes : 0;
}

/* Count the nonzeros in tiles share, share + shares, ... of n elements. Returns a lane's part of the sum. base,
 * by_value: see tile_at. */
template <class T>
PICI_DEV uint64_t warp_count(const T *src, uint64_t n, uint64_t share, uint64_t shares, const T *base = nullptr,
                             bool by_value = false)
{
    uint64_t sum = 0;
    for (uint64_t t = share; t < tiles_of(n); t += shares) {
        const dense_tile<const T> d = tile_at(src, n, t, base, by_value);
        by_access(d, [&](auto how) {
            constexpr unsigned AHEAD = how.value & ROW_DELTA ? 8 : 16; /* rows in flight */
            unsigned k = 0;
            PICI_UNROLL_1
            for (unsigned row = 0; row < ROWS; row += AHEAD) {
                PICI_UNROLL
                for (unsigned r = 0; r < AHEAD; r++) {
                    const raw_pair<T> v = load_row<how.value>(d, row + r);
                    k += (first_of<T>(v) != 0) + (second_of<T>(v) != 0);
                }
            }
            sum += k;
        });
    }
    return sum;
}

/* ---- reading a block by any number of warps ---- */

/* The result of a warp's share of a block. */
struct found {
    uint64_t fault; /* a lane's */
    uint64_t nnz;   /* hybrid: nonzeros of its tiles; otherwise 0 */
};

/* Read a share of a packed block with a valid header, as warp_read does. It also does the extra checks of the warp with
 * share 0. Not inlined, and parses the header again, so that other formats' readers do not pay for it. */
template <reading DO, class SUM, class T>
PICI_DEV_COLD found warp_packed(const uint8_t *block, uint64_t size, T *dst, uint64_t share, uint64_t shares,
                                uint8_t *stage)
{
    block_view view;
    uint64_t nonzeros;
    parse(view, block, size);
    const uint64_t wrong = warp_groups<true, DO, SUM>(nonzeros, hybrid_of(view), dst, share, shares, stage);
    return found{wrong, nonzeros};
}

/* Read share number `share` of `shares` of a block with a valid header. Elements are as wide as T. With VERIFY, the
 * result is the first fault of the share. The warp with share 0 checks the checksum and the padding of the index. */
template <reading DO, class SUM, class T>
PICI_DEV found warp_read(const block_view &view, T *dst, uint64_t share, uint64_t shares, uint8_t *stage)
{
    uint64_t wrong = 0, nonzeros = 0;
    if (share == 0) {
        const uint64_t pad = view.index_end + hw::lane();
        const unsigned dirty = hw::ballot(pad < view.body_offset && hw::load(view.bytes + pad) != 0);
        if (dirty)
            wrong = fault(FAULT_PADDING, hw::ffs(dirty) - 1);
        if (view.flags & FLAG_CHECKSUM)
            if (warp_hash(view.bytes, view.block_bytes) != view.checksum)
                wrong = fault(FAULT_CHECKSUM, 0);
    }
    if (view.format == PICI_PACKED) {
        const found seen = warp_packed<DO, SUM>(view.bytes, view.block_bytes, dst, share, shares, stage);
        return found{first_fault(wrong, seen.fault), seen.nnz};
    }
    if (view.format == PICI_BITMAP) {
        if constexpr (DO == VERIFY) {
            for (uint64_t tile = share; tile < view.tiles; tile += shares)
                wrong = first_fault(wrong, tile_read<DO, SUM>(view, tile, dst, stage));
        } else {
            uint8_t *const ahead = stage + STAGE_BYTES<T>;
            if (share < view.tiles)
                tile_ahead(ahead, view, share);
            for (uint64_t tile = share; tile < view.tiles; tile += shares) {
                const tile_head head = tile_arrived(ahead, view, tile);
                hw::syncwarp();
                if (tile + shares < view.tiles)
                    tile_ahead(ahead, view, tile + shares);
                wrong = first_fault(wrong, tile_read<DO, SUM>(view, tile, head, dst, stage));
            }
        }
    } else if (view.format == PICI_COO) {
        if constexpr (DO == DECODE) {
            const uint64_t tiles = tiles_of(view.count), each = tiles / shares + (tiles % shares != 0);
            const uint64_t first = share * each < tiles ? share * each : tiles;
            const uint64_t end = tiles - first < each ? tiles : first + each;
            wrong = first_fault(wrong, warp_coo_decode(view, first, end, dst, stage));
        } else {
            wrong = first_fault(wrong, warp_coo_entries<DO, SUM>(view, dst, share, shares));
        }
    } else if (view.format == PICI_HYBRID) {
        wrong = first_fault(wrong, warp_hybrid<DO, SUM>(nonzeros, view, dst, share, shares, stage));
    } else if constexpr (DO != VERIFY) {
        warp_dense<DO, SUM>(dst, (const T *)(view.bytes + view.values_offset), view.count, share, shares);
    }
    return found{wrong, nonzeros};
}

/* The first fault of a block. first: the first of the faults that its warps found. nonzeros: the sum of their
 * nonzeros. */
PICI_DEV uint64_t whole_fault(const block_view &view, uint64_t first, uint64_t nonzeros)
{
    if (first || !has_groups(view.format))
        return first;
    if (nonzeros % SIGNS_SEEN != view.nnz)
        return group_fault(groups_of(view.tiles), GROUP_FIRST);
    return view.version == VERSION_SIGNS && nonzeros < SIGNS_SEEN ? group_fault(groups_of(view.tiles), GROUP_ENTRY) : 0;
}

/* ---- by one thread block ---- */

/* The prefix for a thread block that encodes all partitions or groups in order. */
struct carry {
    uint64_t sum;
    PICI_DEV_MEMBER void publish(uint64_t)
    {
    }
    PICI_DEV_MEMBER uint64_t resolve(uint64_t total)
    {
        const uint64_t base = sum;
        sum += total;
        return base;
    }
};

/* Encode n elements as one block. FORMAT: PICI_DENSE, PICI_BITMAP, PICI_COO, PICI_HYBRID or, for a float dtype,
 * PICI_PACKED. T is as wide as dtype.
 *   block   out, [cap bytes]   aligned to 16. If the encoded block does not fit, this does not begin with a valid
 *                              header
 *   src     [n elements]       aligned to their width
 *   memory  shared memory      MAKE_BYTES<T>(FORMAT, threads) bytes, aligned to 16; may be used again after the return
 *   base    [n elements]       or null. If not null, the block is of base[i] ^ src[i]: a delta for block_apply
 *   by_value                   as PICI_ZEROS_BY_VALUE in struct pici_opts: no effect with integers or a base
 *   one_level                  for PICI_PACKED: as PICI_PACK_FAST
 * Called by all threads of a thread block. Returns the block's size in bytes; 0: it does not fit. All threads can
 * then read the block. */
template <unsigned FORMAT, class T>
PICI_DEV uint64_t block_compress(void *block, uint64_t cap, const T *src, uint64_t n, unsigned dtype, void *memory,
                                 const T *base = nullptr, bool by_value = false, bool one_level = false)
{
    block_memory *shared = (block_memory *)memory;
    making<T> m = {src, (uint8_t *)block, cap, block_view(), base, by_value && is_float(dtype) && !base};
    uint64_t nnz = n, len = 0;
    m.to.format = FORMAT;
    m.to.dtype = dtype;
    m.to.count = n;
    m.to.flags = one_level ? (uint32_t)FLAG_ONE_LEVEL : 0;
    if (cap < HEADER_BYTES)
        return 0;
    hw::syncthreads(); /* the caller may have used the memory */
    if constexpr (FORMAT == PICI_COO) {
        uint64_t sum = warp_count(src, n, warp(), warps(), base, m.by_value);
        for (unsigned by = LANES / 2; by; by /= 2)
            sum += hw::shfl_down(sum, by);
        if (hw::lane() == 0) /* the stages are not in use yet */
            hw::put((uint64_t *)(shared + 1) + warp(), sum);
        hw::syncthreads();
        nnz = 0;
        for (unsigned w = 0; w < warps(); w++)
            nnz += hw::get((const uint64_t *)(shared + 1) + w);
        hw::syncthreads();
    }
    m.to.nnz = FORMAT == PICI_BITMAP || has_groups(FORMAT) ? 0 : nnz;
    bool fits = layout(m.to) && m.to.block_bytes <= cap;
    if (fits) {
        if constexpr (FORMAT == PICI_DENSE) {
            warp_make_dense(m, warp(), warps());
        } else if constexpr (FORMAT == PICI_HYBRID || FORMAT == PICI_PACKED) {
            carry prefix = {0};
            group_end end = {0, 0, false};
            bool signs = false;
            nnz = 0;
            for (uint64_t number = 0; number < groups_of(m.to.tiles); number++) {
                if constexpr (FORMAT == PICI_PACKED)
                    end = make_packed_group(m, number, shared, prefix);
                else
                    end = make_group(m, number, shared, prefix);
                nnz += end.nnz;
                signs |= end.signs;
            }
            end_of_groups(m, end.units, nnz, signs);
        } else {
            carry prefix = {0};
            nnz = 0;
            for (uint64_t part = 0; part < partitions(n); part++)
                nnz = make_partition<FORMAT>(m, part, shared, prefix);
        }
    }
    if (fits) {
        m.to.nnz = nnz;
        fits = layout(m.to) && m.to.block_bytes <= cap;
        len = fits ? m.to.block_bytes : 0;
        if (warp() == 0)
            make_end(m, nnz);
    } else if (hw::thread() == 0) {
        put_header(m.block, m.to, false);
    }
    hw::syncthreads();
    return len;
}

/* Check a block. Depending on DO, decode it to the count elements at dst, or add it to them. block_decompress,
 * block_scatter_add and block_apply call this.
 *   dst     [count elements]     aligned to their width; unspecified unless the status is PICI_OK
 *   block   [size bytes]      aligned to 16; any bytes
 *   memory  shared memory    READ_BYTES<T>(threads) bytes, aligned to 16; may be used again after the return
 *   SUM                      arith<dtype> or arith_xor<T> for ADD, otherwise void
 * Called by all threads of a thread block. Returns an enum pici_status; all threads can then read dst. PICI_E_ARG: the
 * block does not have count elements of dtype, or T does not have the width of dtype. */
template <reading DO, class SUM, class T>
PICI_DEV int block_read(T *dst, uint64_t count, unsigned dtype, const void *block, uint64_t size, void *memory)
{
    block_memory *shared = (block_memory *)memory;
    block_view view = block_view();
    const breach problem = parse(view, (const uint8_t *)block, size);
    if (problem.rule)
        return rule_status(problem.rule);
    if (view.count != count || view.dtype != dtype || sizeof(T) != 1u << view.width_log2)
        return PICI_E_ARG;
    hw::syncthreads(); /* the caller may have used the memory */
    if (hw::thread() == 0) {
        hw::put(&shared->fault, (uint64_t)0);
        hw::put(&shared->nnz, (uint64_t)0);
    }
    hw::syncthreads();
    const found seen = warp_read<DO, SUM>(view, dst, warp(), warps(), stage_of<READ_STAGE_BYTES<T>>(shared));
    if (seen.fault)
        hw::shared_max(&shared->fault, seen.fault);
    if (hw::lane() == 0)
        hw::shared_add(&shared->nnz, seen.nnz);
    hw::syncthreads();
    const uint64_t first = whole_fault(view, hw::get(&shared->fault), hw::get(&shared->nnz));
    hw::syncthreads(); /* the memory is the caller's again */
    return fault_status(first);
}

/* Decode a block: see block_read. */
template <class T>
PICI_DEV int block_decompress(T *dst, uint64_t count, unsigned dtype, const void *block, uint64_t size, void *memory)
{
    return block_read<DECODE, void>(dst, count, dtype, block, size, memory);
}

/* dst[i] += x for each stored x: see block_read. */
template <unsigned DTYPE>
PICI_DEV int block_scatter_add(typename arith<DTYPE>::element *dst, uint64_t count, const void *block, uint64_t size,
                               void *memory)
{
    return block_read<ADD, arith<DTYPE>>(dst, count, DTYPE, block, size, memory);
}

/* dst[i] ^= x for each stored x: see block_read. */
template <class T>
PICI_DEV int block_apply(T *dst, uint64_t count, unsigned dtype, const void *block, uint64_t size, void *memory)
{
    return block_read<ADD, arith_xor<T>>(dst, count, dtype, block, size, memory);
}

} // namespace pici

#endif
