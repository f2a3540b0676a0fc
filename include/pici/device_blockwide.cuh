/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Functions in which one thread block works on a whole block: block_compress, block_decompress, block_scatter_add and
 * block_apply. Their parts are also used by the kernels of lib/cuda: they encode a partition of a pici or coo block, or
 * a group of a hybrid block, or read a warp's share of a block. Part of pici/device.cuh. */
#ifndef PICI_DEVICE_BLOCKWIDE_CUH
#define PICI_DEVICE_BLOCKWIDE_CUH

#include "pici/device_coo.cuh"
#include "pici/device_dense.cuh"
#include "pici/device_hybrid_make.cuh"

namespace pici {

/* The beginning of a thread block's shared memory, aligned to 16. After it comes a stage for each warp or, for
 * encoding hybrid, a made_tile for each tile of a group. */
struct alignas(16) block_memory {
    uint64_t base, ticket, fault, nnz;
    uint32_t count[LANES]; /* of values, for each warp; hybrid: for each tile */
    uint32_t sign[LANES];  /* encoding hybrid: the sign descriptor of each tile that keeps signs */
};

/* Bytes of shared memory for a thread block of so many threads: to read a block, and to encode one. */
template <class T> constexpr unsigned READ_BYTES(unsigned threads)
{
    return (unsigned)sizeof(block_memory) + threads / LANES * READ_STAGE_BYTES<T>;
}

template <class T> constexpr unsigned MAKE_BYTES(unsigned format, unsigned threads)
{
    return (unsigned)sizeof(block_memory) + (format == PICI_HYBRID   ? GROUP_TILES * (unsigned)sizeof(made_tile)
                                             : format == PICI_COO    ? threads / LANES * COO_STAGE_BYTES<T>
                                             : format == PICI_BITMAP ? threads / LANES * STAGE_BYTES<T>
                                                                     : 0);
}

PICI_DEV unsigned warps()
{
    return hw::threads() / LANES;
}

PICI_DEV unsigned warp()
{
    return hw::thread() / LANES;
}

template <unsigned BYTES> PICI_DEV uint8_t *stage_of(block_memory *m)
{
    return (uint8_t *)(m + 1) + warp() * BYTES;
}

/* A block that is being encoded. */
template <class T> struct making {
    const T *src;
    uint8_t *block;
    uint64_t cap; /* bytes at block */
    /* format, dtype, count, and the layout: for pici and hybrid that of a block without values; for coo set once nnz
     * is known */
    block_view to;
    const T *base = nullptr; /* or elements with which those at src are XORed */
    bool by_value = false;   /* -0.0 is encoded as +0.0; not with a base */
};

/* Tile t of the elements to encode. */
template <class T> PICI_DEV dense_tile<const T> source_tile(const making<T> &m, uint64_t t)
{
    return tile_at(m.src, m.to.count, t, m.base, m.by_value);
}

/* Copy the elements to a dense block: the part of warp `share` of `shares`. */
template <class T> PICI_DEV void warp_make_dense(const making<T> &m, uint64_t share, uint64_t shares)
{
    T *const to = (T *)(m.block + HEADER_BYTES);
    if (m.by_value)
        warp_dense<DECODE, void, true>(to, m.src, m.to.count, share, shares);
    else
        warp_dense<DECODE, void>(to, m.src, m.to.count, share, shares, m.base);
}

/* The number of values for which the block has room. */
template <class T> PICI_DEV uint64_t values_that_fit(const making<T> &m)
{
    return m.cap > m.to.values_offset ? (m.cap - m.to.values_offset) / sizeof(T) : 0;
}

/* The number of partitions: a partition is as many tiles as the thread block has warps. */
PICI_DEV uint64_t partitions(uint64_t count)
{
    return tiles_of(count) / warps() + (tiles_of(count) % warps() != 0);
}

template <unsigned HOW, class T> PICI_DEV void pack_rows_coo(uint8_t *stage, const held_tile<T> &h)
{
    T *values = (T *)stage;
    uint16_t *places = (uint16_t *)(stage + TILE * sizeof(T));
    unsigned at = 0;
    constexpr unsigned GROUP = held_tile<T>::holds ? (unsigned)ROWS : 8u; /* rows that are loaded before any is used */
    PICI_UNROLL_1
    for (unsigned row = 0; row < ROWS; row += GROUP) {
        raw_pair<T> v[GROUP];
        PICI_UNROLL
        for (unsigned r = 0; r < GROUP; r++)
            v[r] = held_row<HOW>(h, GROUP == ROWS ? r : row + r);
        at = rank_rows<T>(v, at, [&](unsigned r, T x, T y, unsigned, unsigned, unsigned k) {
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
}

/* Gather a tile's values and offsets at stage, in the order of the elements. */
template <class T> PICI_DEV void tile_pack_coo(uint8_t *stage, const held_tile<T> &h)
{
    by_held(h, [&](auto how) { pack_rows_coo<how.value>(stage, h); });
    hw::syncwarp();
}

/* Encode one partition of a block, by all threads of a thread block. Returns the number of values up to its end. Values
 * that do not fit are counted, not written.
 *
 * prefix finds the number of values before the partition. The first warp calls prefix.publish(total) as soon as the
 * partition's values are counted, and later prefix.resolve(total), which returns the number.
 *
 * There are two barriers. shared->count is written before the first and read between the two; shared->base is
 * written between the two and read after the second. So the next call may write both again. */
template <unsigned FORMAT, class T, class PREFIX>
PICI_DEV uint64_t make_partition(const making<T> &m, uint64_t part, block_memory *shared, PREFIX &prefix)
{
    uint8_t *stage = stage_of < FORMAT == PICI_COO ? COO_STAGE_BYTES<T> : STAGE_BYTES < T >> (shared);
    const uint64_t t = part * warps() + warp();
    const bool mine = t < tiles_of(m.to.count);
    const unsigned lane = hw::lane();
    held_tile<T> h;
    h.from = dense_tile<const T>();
    columns c = {{0, 0}};
    unsigned before = 0, nnz = 0;
    if (mine) {
        tile_load(h, source_tile(m, t));
        c = tile_columns(h);
        before = tile_offset(c);
        nnz = hw::shfl(before + hw::popc(c.word[0]) + hw::popc(c.word[1]), LANES - 1);
        if (FORMAT == PICI_BITMAP)
            put_columns(m.block + HEADER_BYTES, t, c);
    }
    if (lane == 0)
        hw::put(&shared->count[warp()], nnz);
    hw::syncthreads();
    const uint32_t count = lane < warps() ? hw::get(&shared->count[lane]) : 0;
    const uint32_t total = warp_sum(count), earlier = warp_sum(lane < warp() ? count : 0);
    if (warp() == 0)
        prefix.publish(total);
    if (mine) {
        if constexpr (FORMAT == PICI_COO)
            tile_pack_coo(stage, h);
        else
            tile_pack(stage, h, c, before);
    }
    if (warp() == 0) {
        const uint64_t base = prefix.resolve(total);
        if (lane == 0)
            hw::put(&shared->base, base);
    }
    hw::syncthreads();
    const uint64_t base = hw::get(&shared->base), at = base + earlier, fit = values_that_fit(m);
    if (mine) {
        if (fit - at < nnz || fit < at)
            nnz = fit > at ? (unsigned)(fit - at) : 0;
        warp_copy_out<FORMAT == PICI_COO ? IN_ORDER : SPREAD>((T *)(m.block + m.to.values_offset) + at, stage, nnz);
        uint8_t *index = m.block + m.to.index_offset;
        if constexpr (FORMAT == PICI_COO) {
            const uint16_t *places = (const uint16_t *)(stage + TILE * sizeof(T));
            for (unsigned i = lane; i < nnz; i += LANES)
                store_index(index, m.to.index_width, at + i, t * TILE + hw::get(places + i));
        } else if (lane == 0) {
            store_index(index, m.to.index_width, t, at);
        }
    }
    return base + total;
}

/* Units of all records up to the end of a group, and the group's own nonzeros. */
struct group_end {
    uint64_t units;
    uint32_t nnz;
    bool signs; /* the group has a tile that keeps signs */
};

/* What the layout of a record needs of a tile: its nonzeros, with TILE_FULL and TILE_KEEPS, and the sign descriptor if
 * it keeps signs. */
struct surveyed {
    uint32_t count, sign;
};
constexpr uint32_t TILE_FULL = 1u << 31, TILE_KEEPS = 1u << 30; /* it has a run of 256 nonzeros; it keeps signs */

/* Read tile t of the elements, by a warp. *to is as tile_survey leaves it. */
template <class T> PICI_DEV surveyed survey(made_tile *to, const making<T> &m, uint64_t t)
{
    dense_tile<const T> d = source_tile(m, t);
    surveyed result = {0, 0};
    bool negative;
    columns c = tile_survey(to, d, negative);
    if (is_float(m.to.dtype) && !m.by_value && hw::ballot(negative)) {
        tile_signs s;
        if (tile_keeps_signs(s, d)) {
            d.by_value = true;
            hw::syncwarp();
            c = tile_survey(to, d, negative);
            result = surveyed{TILE_KEEPS, sign_descriptor(s)};
        }
    }
    result.count |= tile_nnz(c) | (has_run(c) ? TILE_FULL : 0);
    return result;
}

/* Lay out the record of the group whose first tile is `first`, from what the lanes know of its tiles. Returns its
 * length in bytes. */
template <class T> PICI_DEV uint32_t group_from(group &g, const making<T> &m, uint64_t first, const surveyed &own)
{
    const uint64_t t = first + hw::lane();
    const unsigned len = t < m.to.tiles ? elements_of(m.to.count, t) : 0;
    const bool full = (own.count & TILE_FULL) != 0;
    g = group();
    g.n = own.count & ~(TILE_FULL | TILE_KEEPS);
    g.keeps = (own.count & TILE_KEEPS) != 0;
    g.container = g.keeps ? container_of_signs(g.n, full) : g.n ? container_of(g.n, len, LOG2<T>, full) : 0;
    if (g.keeps)
        good_sign_descriptor(g.sign, own.sign, len - g.n);
    return group_lay(g, len, LOG2<T>);
}

/* Write a group's entry of the directory and, if the record fits, what comes before its payloads, and its padding, by
 * a warp. base: units before the record; bytes: its length. */
template <class T>
PICI_DEV void group_head(const making<T> &m, uint64_t number, const group &g, uint64_t base, uint32_t bytes, bool fits)
{
    const unsigned lane = hw::lane(), below = (1u << lane) - 1;
    if (lane == 0)
        store_index(m.block + HEADER_BYTES, m.to.index_width, number, base);
    if (!fits || !g.bits)
        return;
    const unsigned descriptor =
        g.keeps ? container_descriptor_signs(g.container, g.n) : container_descriptor(g.container, g.n);
    const uint32_t pad = padding_byte(g, bytes);
    uint8_t *const record = m.block + m.to.body_offset + base * unit_of(LOG2<T>), *const descriptors = record + 4;
    if (lane == 0)
        hw::store((uint32_t *)record, g.bits);
    if (g.bits >> lane & 1)
        hw::store(descriptors + hw::popc(g.bits & below), (uint8_t)descriptor);
    if (g.two >> lane & 1)
        hw::store(descriptors + hw::popc(g.bits) + hw::popc(g.two & below), (uint8_t)(descriptor >> 8));
    for (unsigned i = 0; g.keeps && i < SIGN_DESCRIPTOR; i++)
        hw::store(record + sign_descriptor_at(g, lane) + i, (uint8_t)(sign_descriptor(g.sign) >> 8 * i));
    if (pad)
        hw::store(record + pad, (uint8_t)0);
}

/* Write tile i of a group to its record, by a warp. `of` is as tile_payload leaves it, and may be used again at once.
 * first: the group's first tile. */
template <class T>
PICI_DEV void group_tile(const making<T> &m, uint64_t first, const group &g, uint8_t *record, unsigned i, made_tile *of)
{
    const unsigned n = hw::shfl(g.n, i), container = hw::shfl(g.container, i);
    uint8_t *const payload = record + hw::shfl(g.payload, i), *const values = record + hw::shfl(g.own_values, i);
    uint8_t *const own_signs = record + hw::shfl(g.own_signs, i);
    dense_tile<const T> d = source_tile(m, first + i);
    if (g.signs >> i & 1) {
        tile_write_signs(own_signs, d);
        d.by_value = true;
    }
    if (n)
        tile_write(payload, (T *)values, of, d, container, n);
}

/* Encode group `number` of a hybrid block, by all threads of a thread block; each warp takes a tile at a time.
 * prefix counts units of records; it and the two barriers are as in make_partition. A record that does not fit is
 * not written. */
template <class T, class PREFIX>
PICI_DEV group_end make_group(const making<T> &m, uint64_t number, block_memory *shared, PREFIX &prefix)
{
    made_tile *made = (made_tile *)(shared + 1);
    const unsigned lane = hw::lane(), unit = unit_of(LOG2<T>);
    const uint64_t first = number * GROUP_TILES, left = m.to.tiles - first;
    const unsigned tiles = left < GROUP_TILES ? (unsigned)left : (unsigned)GROUP_TILES;
    PICI_UNROLL_1
    for (unsigned i = warp(); i < tiles; i += warps()) {
        const surveyed s = survey(made + i, m, first + i);
        if (lane == 0) {
            hw::put(&shared->count[i], s.count);
            hw::put(&shared->sign[i], s.sign);
        }
    }
    hw::syncthreads();
    surveyed own = {0, 0};
    if (lane < tiles)
        own = surveyed{hw::get(&shared->count[lane]), hw::get(&shared->sign[lane])};
    group g;
    const uint32_t bytes = group_from(g, m, first, own), nnz = warp_sum(g.n);
    if (warp() == 0)
        prefix.publish(bytes / unit);
    PICI_UNROLL_1
    for (unsigned i = warp(); i < tiles; i += warps())
        tile_payload(made + i, hw::shfl(g.container, i), hw::shfl(g.n, i));
    if (warp() == 0) {
        const uint64_t base = prefix.resolve(bytes / unit);
        if (lane == 0)
            hw::put(&shared->base, base);
    }
    hw::syncthreads();
    const uint64_t base = hw::get(&shared->base), end = base + bytes / unit;
    const bool fits = m.to.body_offset + end * unit <= m.cap;
    uint8_t *const record = m.block + m.to.body_offset + base * unit;
    if (warp() == 0)
        group_head(m, number, g, base, bytes, fits);
    /* backwards, since tiles read last are most likely still in a cache; i wraps around below 0, which ends the loop */
    PICI_UNROLL_1
    for (unsigned i = warp() + ((tiles - warp() + warps() - 1) / warps() - 1) * warps(); fits && i < tiles;
         i -= warps())
        group_tile(m, first, g, record, i, made + i);
    return group_end{end, nnz, g.signs != 0};
}

/* Complete the layout of a hybrid block from the units of all records and the number of nonzeros. signs: a tile keeps
 * signs. */
template <class T> PICI_DEV void end_of_groups(making<T> &m, uint64_t units, uint64_t nnz, bool signs)
{
    m.to.version = signs ? (uint32_t)VERSION_SIGNS : 1;
    m.to.values_offset = m.to.body_offset + units * unit_of(LOG2<T>) - nnz * sizeof(T);
}

/* Called by one warp, once all nnz values are written: write the padding and the header, or 48 zero bytes if the
 * block does not fit. Returns the block's length, or 0. */
template <class T> PICI_DEV uint64_t make_end(const making<T> &m, uint64_t nnz)
{
    block_view v = m.to;
    v.nnz = v.format == PICI_DENSE ? v.count : nnz;
    const bool fits = layout(v) && v.block_bytes <= m.cap;
    if (fits && v.index_end + hw::lane() < v.body_offset)
        hw::store(m.block + v.index_end + hw::lane(), (uint8_t)0);
    if (hw::lane() == 0)
        put_header(m.block, v, fits);
    return fits ? v.block_bytes : 0;
}

/* Count the nonzeros in tiles share, share + shares, ... of n elements. Returns a lane's part of the sum. base and
 * by_value: as for tile_at. */
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

/* What a warp found in its share of a block. */
struct found {
    uint64_t fault; /* a lane's */
    uint64_t nnz;   /* hybrid: nonzeros of its tiles; otherwise 0 */
};

/* Read share number `share` of `shares` of a block with a valid header, of elements as wide as T. With VERIFY, the
 * fault is the first of the share. The warp with share 0 checks the checksum and the padding of the index. */
template <reading DO, class SUM, class T>
PICI_DEV found warp_read(const block_view &v, T *dst, uint64_t share, uint64_t shares, uint8_t *stage)
{
    uint64_t wrong = 0, nnz = 0;
    if (share == 0) {
        const uint64_t pad = v.index_end + hw::lane();
        const unsigned dirty = hw::ballot(pad < v.body_offset && hw::load(v.bytes + pad) != 0);
        if (dirty)
            wrong = fault(FAULT_PADDING, hw::ffs(dirty) - 1);
        if (v.flags & FLAG_CHECKSUM)
            if (warp_hash(v.bytes, v.block_bytes) != v.checksum)
                wrong = fault(FAULT_CHECKSUM, 0);
    }
    if (v.format == PICI_BITMAP) {
        if constexpr (DO == VERIFY) {
            for (uint64_t t = share; t < v.tiles; t += shares)
                wrong = first_fault(wrong, tile_read<DO, SUM>(v, t, dst, stage));
        } else {
            uint8_t *const ahead = stage + STAGE_BYTES<T>;
            if (share < v.tiles)
                tile_ahead(ahead, v, share);
            for (uint64_t t = share; t < v.tiles; t += shares) {
                const tile_head head = tile_arrived(ahead, v, t);
                hw::syncwarp();
                if (t + shares < v.tiles)
                    tile_ahead(ahead, v, t + shares);
                wrong = first_fault(wrong, tile_read<DO, SUM>(v, t, head, dst, stage));
            }
        }
    } else if (v.format == PICI_COO) {
        if constexpr (DO == DECODE) {
            const uint64_t tiles = tiles_of(v.count), each = tiles / shares + (tiles % shares != 0);
            const uint64_t first = share * each < tiles ? share * each : tiles;
            const uint64_t end = tiles - first < each ? tiles : first + each;
            wrong = first_fault(wrong, warp_coo_decode(v, first, end, dst, stage));
        } else {
            wrong = first_fault(wrong, warp_coo_entries<DO, SUM>(v, dst, share, shares));
        }
    } else if (v.format == PICI_HYBRID) {
        wrong = first_fault(wrong, warp_hybrid<DO, SUM>(nnz, v, dst, share, shares, stage));
    } else if constexpr (DO != VERIFY) {
        warp_dense<DO, SUM>(dst, (const T *)(v.bytes + v.values_offset), v.count, share, shares);
    }
    return found{wrong, nnz};
}

/* The first fault of a block. first: the first of the faults that its warps found. nnz: the sum of the nonzeros that
 * they found. */
PICI_DEV uint64_t whole_fault(const block_view &v, uint64_t first, uint64_t nnz)
{
    if (first || v.format != PICI_HYBRID)
        return first;
    if (nnz % SIGNS_SEEN != v.nnz)
        return group_fault(groups_of(v.tiles), GROUP_FIRST);
    return v.version == VERSION_SIGNS && nnz < SIGNS_SEEN ? group_fault(groups_of(v.tiles), GROUP_ENTRY) : 0;
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

/* Encode n elements as one block. FORMAT: PICI_DENSE, PICI_BITMAP, PICI_COO or PICI_HYBRID. T is as wide as dtype.
 *   block   out, [cap bytes]   aligned to 16. If the encoded block does not fit, this does not begin with a valid
 *                              header
 *   src     [n elements]       aligned to their width
 *   memory  shared memory      MAKE_BYTES<T>(FORMAT, threads) bytes, aligned to 16; may be used again after the return
 *   base    [n elements]       or null. If not null, the block is of base[i] ^ src[i]: a delta for block_apply
 *   by_value                   as PICI_ZEROS_BY_VALUE in struct pici_opts: no effect with integers or a base
 * Called by all threads of a thread block. Returns the block's length in bytes; 0: it does not fit. All threads can
 * then read the block. */
template <unsigned FORMAT, class T>
PICI_DEV uint64_t block_compress(void *block, uint64_t cap, const T *src, uint64_t n, unsigned dtype, void *memory,
                                 const T *base = nullptr, bool by_value = false)
{
    block_memory *shared = (block_memory *)memory;
    making<T> m = {src, (uint8_t *)block, cap, block_view(), base, by_value && is_float(dtype) && !base};
    uint64_t nnz = n, len = 0;
    m.to.format = FORMAT;
    m.to.dtype = dtype;
    m.to.count = n;
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
    m.to.nnz = FORMAT == PICI_BITMAP || FORMAT == PICI_HYBRID ? 0 : nnz;
    bool fits = layout(m.to) && m.to.block_bytes <= cap;
    if (fits) {
        if constexpr (FORMAT == PICI_DENSE) {
            warp_make_dense(m, warp(), warps());
        } else if constexpr (FORMAT == PICI_HYBRID) {
            carry prefix = {0};
            group_end end = {0, 0, false};
            bool signs = false;
            nnz = 0;
            for (uint64_t number = 0; number < groups_of(m.to.tiles); number++) {
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

/* Check a block, and decode it to the n elements at dst, or add it to them, as DO says. block_decompress,
 * block_scatter_add and block_apply call this.
 *   dst     [n elements]     aligned to their width; unspecified unless the status is PICI_OK
 *   block   [len bytes]      aligned to 16; any bytes
 *   memory  shared memory    READ_BYTES<T>(threads) bytes, aligned to 16; may be used again after the return
 *   SUM                      arith<dtype> or arith_xor<T> for ADD, otherwise void
 * Called by all threads of a thread block. Returns an enum pici_status; all threads can then read dst. PICI_E_ARG: the
 * block does not have n elements of dtype, or T does not have the width of dtype. */
template <reading DO, class SUM, class T>
PICI_DEV int block_read(T *dst, uint64_t n, unsigned dtype, const void *block, uint64_t len, void *memory)
{
    block_memory *shared = (block_memory *)memory;
    block_view v = block_view();
    const breach b = parse(v, (const uint8_t *)block, len);
    if (b.rule)
        return rule_status(b.rule);
    if (v.count != n || v.dtype != dtype || sizeof(T) != 1u << v.width_log2)
        return PICI_E_ARG;
    hw::syncthreads(); /* the caller may have used the memory */
    if (hw::thread() == 0) {
        hw::put(&shared->fault, (uint64_t)0);
        hw::put(&shared->nnz, (uint64_t)0);
    }
    hw::syncthreads();
    const found f = warp_read<DO, SUM>(v, dst, warp(), warps(), stage_of<READ_STAGE_BYTES<T>>(shared));
    if (f.fault)
        hw::shared_max(&shared->fault, f.fault);
    if (hw::lane() == 0)
        hw::shared_add(&shared->nnz, f.nnz);
    hw::syncthreads();
    const uint64_t first = whole_fault(v, hw::get(&shared->fault), hw::get(&shared->nnz));
    hw::syncthreads(); /* the memory is the caller's again */
    return fault_status(first);
}

/* Decode a block: see block_read. */
template <class T>
PICI_DEV int block_decompress(T *dst, uint64_t n, unsigned dtype, const void *block, uint64_t len, void *memory)
{
    return block_read<DECODE, void>(dst, n, dtype, block, len, memory);
}

/* dst[i] += x for each stored x: see block_read. */
template <unsigned DTYPE>
PICI_DEV int block_scatter_add(typename arith<DTYPE>::element *dst, uint64_t n, const void *block, uint64_t len,
                               void *memory)
{
    return block_read<ADD, arith<DTYPE>>(dst, n, DTYPE, block, len, memory);
}

/* dst[i] ^= x for each stored x: see block_read. */
template <class T>
PICI_DEV int block_apply(T *dst, uint64_t n, unsigned dtype, const void *block, uint64_t len, void *memory)
{
    return block_read<ADD, arith_xor<T>>(dst, n, dtype, block, len, memory);
}

} // namespace pici

#endif
