/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Device functions that make and read blocks, to be called from kernels: for a warp and a tile, and for a thread block and
 * a whole block. docs/cuda.md shows how to embed them. Needs no library, compute capability 8.0, and C++17. Pointers into a
 * block are aligned to 16, those to elements to their width.
 *
 * Elements are moved as bits: T is uint8_t, uint16_t, uint32_t or uint64_t. Each lane of a warp owns two neighbouring
 * columns of a tile, 2 * lane and 2 * lane + 1, so that a row is read and written at once. Functions named warp_ and tile_
 * are called by whole warps, those named block_ by whole thread blocks of whole warps; their arguments are the same in all
 * lanes but for what is said to be a lane's. "stage" is shared memory of the warp's own: STAGE_BYTES<T>, aligned to 16. */
#ifndef PICI_DEVICE_CUH
#define PICI_DEVICE_CUH

#include "pici/device_add.cuh"
#include "pici/device_block.cuh"
#include "pici/device_hw.cuh"
#include "pici/pici.h"

namespace pici {

/* ---- two neighbouring elements ---- */

template <class T> struct pair_of;
template <> struct pair_of<uint8_t> {
    typedef uint16_t raw;
};
template <> struct pair_of<uint16_t> {
    typedef uint32_t raw;
};
template <> struct pair_of<uint32_t> {
    typedef uint64_t raw;
};
template <> struct pair_of<uint64_t> {
    typedef raw128 raw;
};
template <class T> using raw_pair = typename pair_of<T>::raw;

template <class T> PICI_DEV T first_of(raw_pair<T> v)
{
    if constexpr (sizeof(T) == 8)
        return v.lo;
    else
        return (T)v;
}

template <class T> PICI_DEV T second_of(raw_pair<T> v)
{
    if constexpr (sizeof(T) == 8)
        return v.hi;
    else
        return (T)(v >> 8 * sizeof(T));
}

template <class T> PICI_DEV raw_pair<T> join(T a, T b)
{
    if constexpr (sizeof(T) == 8)
        return raw128{a, b};
    else
        return (raw_pair<T>)((raw_pair<T>)a | (raw_pair<T>)b << 8 * sizeof(T));
}

/* Whether p, to elements, can be read and written in pairs and in units of 16 bytes. */
PICI_DEV bool is_aligned(const void *p, unsigned bytes)
{
    return (uintptr_t)p % bytes == 0;
}

/* ---- a tile of dense elements ---- */

template <class T> struct dense_tile {
    T *at;
    unsigned left; /* elements that exist: TILE, or fewer in the last */
    bool pairs;    /* all exist, and rows can be read in pairs */
};

/* Tile t of n elements. */
template <class T> PICI_DEV dense_tile<T> tile_at(T *dense, uint64_t n, uint64_t t)
{
    dense_tile<T> d;
    d.at = dense + t * TILE;
    d.left = n - t * TILE < TILE ? (unsigned)(n - t * TILE) : (unsigned)TILE;
    d.pairs = d.left == TILE && is_aligned(dense, 2 * sizeof(T));
    return d;
}

/* The lane's pair of row r, element by element: what does not exist is zero. */
template <class T> PICI_DEV raw_pair<T> load_edge(const dense_tile<const T> &d, unsigned r)
{
    const unsigned i = r * COLS + 2 * hw::lane();
    const T a = i < d.left ? hw::load(d.at + i) : (T)0, b = i + 1 < d.left ? hw::load(d.at + i + 1) : (T)0;
    return join<T>(a, b);
}

template <class T> PICI_DEV void store_edge(const dense_tile<T> &d, unsigned r, T a, T b)
{
    const unsigned i = r * COLS + 2 * hw::lane();
    if (i < d.left)
        hw::store(d.at + i, a);
    if (i + 1 < d.left)
        hw::store(d.at + i + 1, b);
}

/* The lane's pair of row r. PAIRS: d.pairs, known when compiling, so that it is asked once a tile. */
template <bool PAIRS, class T> PICI_DEV raw_pair<T> load_row(const dense_tile<const T> &d, unsigned r)
{
    if constexpr (PAIRS)
        return hw::load((const raw_pair<T> *)d.at + r * LANES + hw::lane());
    else
        return load_edge(d, r);
}

/* The lane's two columns as values in registers, so that memory is read once: 128 registers of 32 bits for 4-byte elements,
 * half of that for narrower ones. Elements of 8 bytes have too many: they are read twice, the second time from a cache. */
template <class T> struct held_tile {
    static constexpr bool holds = sizeof(T) < 8;
    raw_pair<T> row[holds ? (unsigned)ROWS : 1u];
    dense_tile<const T> from;
};

/* Row r: from registers, or, of 8 bytes, from memory again. */
template <bool PAIRS, class T> PICI_DEV raw_pair<T> held_row(const held_tile<T> &h, unsigned r)
{
    if constexpr (held_tile<T>::holds)
        return h.row[r];
    else
        return load_row<PAIRS>(h.from, r);
}

template <class T> PICI_DEV void tile_load(held_tile<T> &h, const dense_tile<const T> &from)
{
    h.from = from;
    if constexpr (held_tile<T>::holds) {
        if (from.pairs) {
            const raw_pair<T> *p = (const raw_pair<T> *)from.at + hw::lane();
            PICI_UNROLL
            for (unsigned r = 0; r < ROWS; r++)
                h.row[r] = hw::load_once(p + r * LANES);
        } else {
            PICI_UNROLL
            for (unsigned r = 0; r < ROWS; r++)
                h.row[r] = load_edge(from, r);
        }
    }
}

/* The lane's two columns of the bitvector. */
struct columns {
    uint64_t word[2];
};

template <bool PAIRS, unsigned FIRST, class T> PICI_DEV void half_columns(uint32_t half[2], const held_tile<T> &h)
{
    half[0] = half[1] = 0;
    PICI_UNROLL
    for (unsigned r = 0; r < 32; r++) {
        const raw_pair<T> v = held_row<PAIRS>(h, FIRST + r);
        half[0] |= (first_of<T>(v) != 0 ? 1u : 0u) << r;
        half[1] |= (second_of<T>(v) != 0 ? 1u : 0u) << r;
    }
}

template <bool PAIRS, class T> PICI_DEV columns all_columns(const held_tile<T> &h)
{
    uint32_t lo[2], hi[2];
    half_columns<PAIRS, 0>(lo, h);
    half_columns<PAIRS, 32>(hi, h);
    columns c;
    c.word[0] = lo[0] | (uint64_t)hi[0] << 32;
    c.word[1] = lo[1] | (uint64_t)hi[1] << 32;
    return c;
}

/* Build the 64 words of a tile, two a lane. */
template <class T> PICI_DEV columns tile_columns(const held_tile<T> &h)
{
    if (!held_tile<T>::holds && !h.from.pairs)
        return all_columns<false>(h);
    return all_columns<true>(h);
}

/* Bits of a tile; the same in all lanes. */
PICI_DEV unsigned tile_nnz(const columns &c)
{
    unsigned n = hw::popc(c.word[0]) + hw::popc(c.word[1]);
    for (unsigned by = LANES / 2; by; by /= 2)
        n += hw::shfl_down(n, by);
    return hw::shfl(n, 0);
}

/* How many of the tile's values precede those of the lane's first column; a lane's. */
PICI_DEV unsigned tile_offset(const columns &c)
{
    const unsigned own = hw::popc(c.word[0]) + hw::popc(c.word[1]);
    unsigned sum = own;
    for (unsigned by = 1; by < LANES; by *= 2) {
        const unsigned before = hw::shfl_up(sum, by);
        if (hw::lane() >= by)
            sum += before;
    }
    return sum - own;
}

/* Does column c of a tile of which `left` elements exist have a bit for one that does not? */
PICI_DEV bool past_end(uint64_t word, unsigned c, unsigned left)
{
    const unsigned rows = left > c ? (left - c + COLS - 1) / COLS : 0;
    return rows < ROWS && word >> rows != 0;
}

/* The lane's columns of tile t of the bitvector at bits, written or read. */
PICI_DEV void put_columns(uint8_t *bits, uint64_t t, const columns &c)
{
    hw::store((raw128 *)(bits + t * TILE_BITS_BYTES) + hw::lane(), raw128{c.word[0], c.word[1]});
}

PICI_DEV columns get_columns(const uint8_t *bits, uint64_t t)
{
    const raw128 v = hw::load_once((const raw128 *)(bits + t * TILE_BITS_BYTES) + hw::lane());
    columns c;
    c.word[0] = v.lo;
    c.word[1] = v.hi;
    return c;
}

/* ---- values between shared memory and a block ---- */

/* A tile's values, and a few bytes so that they can lie as the block has them. Coo has positions beside them. */
template <class T> constexpr unsigned STAGE_BYTES = TILE * sizeof(T) + 16;
template <class T> constexpr unsigned COO_STAGE_BYTES = TILE *(sizeof(T) + 2) + 16;

template <bool PAIRS, class T> PICI_DEV void pack_rows(T *a, T *b, const held_tile<T> &h)
{
    constexpr unsigned GROUP =
        held_tile<T>::holds ? (unsigned)ROWS : 8u; /* rows that are asked for before any is used */
    PICI_UNROLL_1
    for (unsigned row = 0; row < ROWS; row += GROUP) {
        raw_pair<T> v[GROUP];
        PICI_UNROLL
        for (unsigned r = 0; r < GROUP; r++)
            v[r] = held_row<PAIRS>(h, GROUP == ROWS ? r : row + r);
        PICI_UNROLL
        for (unsigned r = 0; r < GROUP; r++) {
            const T x = first_of<T>(v[r]), y = second_of<T>(v[r]);
            if (x)
                hw::put(a++, x);
            if (y)
                hw::put(b++, y);
        }
    }
}

/* Gather the tile's values at stage, column by column; before: tile_offset. Ends with them visible to the warp. */
template <class T> PICI_DEV void tile_pack(uint8_t *stage, const held_tile<T> &h, const columns &c, unsigned before)
{
    T *a = (T *)stage + before, *b = a + hw::popc(c.word[0]);
    if (!held_tile<T>::holds && !h.from.pairs)
        pack_rows<false>(a, b, h);
    else
        pack_rows<true>(a, b, h);
    hw::syncwarp();
}

/* Copy n values from stage to a block, in words of 4 bytes whatever the width. stage may be used again after a __syncwarp(). */
template <class T> PICI_DEV void warp_copy_out(T *to, const uint8_t *stage, unsigned n)
{
    if constexpr (sizeof(T) >= 4) {
        for (unsigned i = hw::lane(); i < n; i += LANES)
            hw::store(to + i, hw::get((const T *)stage + i));
    } else {
        constexpr unsigned WIDTH = sizeof(T);
        const unsigned lane = hw::lane(), skew = (unsigned)((uintptr_t)to % 4), end = skew + n * WIDTH;
        const unsigned first = skew ? 1 : 0, whole = n * WIDTH / 4; /* words that two staged ones make, or one does */
        uint8_t *words = (uint8_t *)to - skew;
        const uint32_t *from = (const uint32_t *)stage;
        PICI_UNROLL_4
        for (unsigned i = first + lane; i < whole; i += LANES) {
            uint32_t v = hw::get(from + i);
            if (skew)
                v = hw::funnel_l(hw::get(from + i - 1), v, 8 * skew);
            hw::store((uint32_t *)words + i, v);
        }
        /* what is left at both ends, an element a lane */
        const unsigned rest = 4 * (whole > first ? whole : first);
        const unsigned k = lane < 8 ? skew + lane * WIDTH : rest + (lane - 8) * WIDTH;
        if (k < end && (lane < 8 ? first && k < 4 : true))
            hw::store((T *)(words + k), hw::get((const T *)(stage + (k - skew))));
    }
}

/* Whether some element of these bytes is zero. */
template <class T> PICI_DEV bool any_zero(uint32_t v)
{
    if constexpr (sizeof(T) == 1)
        return ((v - 0x01010101u) & ~v & 0x80808080u) != 0;
    else if constexpr (sizeof(T) == 2)
        return ((v - 0x00010001u) & ~v & 0x80008000u) != 0;
    else
        return v == 0;
}

/* Copy units [first, end) of 4 bytes or of a value from `from` to the same places at `to`, if PUT, GROUP a lane at a time:
 * all loads of a group are in flight before the first is stored, since compilers do not move a load before a store. Beyond
 * the end a lane loads the last unit again, for a load that depends on nothing costs less than a branch. */
template <bool PUT, class T, unsigned GROUP, class U>
PICI_DEV bool copy_in_group(U *to, const U *from, unsigned first, unsigned end)
{
    U v[GROUP];
    bool zero = false;
    PICI_UNROLL
    for (unsigned k = 0; k < GROUP; k++) {
        const unsigned i = first + hw::lane() + k * LANES;
        v[k] = hw::load_once(from + (i < end ? i : end - 1));
    }
    PICI_UNROLL
    for (unsigned k = 0; k < GROUP; k++) {
        const unsigned i = first + hw::lane() + k * LANES;
        if constexpr (sizeof(U) == sizeof(T))
            zero |= v[k] == 0;
        else
            zero |= any_zero<T>(v[k]);
        if constexpr (PUT)
            if (i < end)
                hw::put(to + i, v[k]);
    }
    return zero;
}

template <bool PUT, class T, class U> PICI_DEV bool copy_in_units(U *to, const U *from, unsigned first, unsigned end)
{
    constexpr unsigned GROUP = 16, FEW = 4;
    bool zero = false;
    PICI_UNROLL_1
    while (first < end && end - first > FEW * LANES) {
        zero |= copy_in_group<PUT, T, GROUP>(to, from, first, end);
        first += GROUP * LANES;
    }
    if (first < end)
        zero |= copy_in_group<PUT, T, FEW>(to, from, first, end);
    return zero;
}

/* Copy n values of a block to stage, if PUT, and look for zeros among them, as bool of a lane. They lie as many bytes from
 * stage as `from` does from a multiple of four: the result in `values`. Ends with them visible to the warp. */
template <bool PUT, class T> PICI_DEV bool warp_copy_in(T *&values, uint8_t *stage, const T *from, unsigned n)
{
    bool zero = false;
    if constexpr (sizeof(T) >= 4) {
        if constexpr (PUT)
            values = (T *)stage;
        zero = copy_in_units<PUT, T>((T *)stage, from, 0, n);
    } else {
        const unsigned skew = (unsigned)((uintptr_t)from % 4), end = skew + n * (unsigned)sizeof(T);
        const uint8_t *words = (const uint8_t *)from - skew;
        const unsigned first = skew ? 1 : 0, whole = end / 4; /* words that are wholly of values */
        zero = copy_in_units<PUT, T>((uint32_t *)stage, (const uint32_t *)words, first, whole);
        /* what is left of the first word and of the last */
        const unsigned lane = hw::lane(), per = 4 / sizeof(T), k = lane < per ? lane : whole * per + lane - per;
        const bool head = lane < per && first, tail = lane >= per && lane < 2 * per && (whole || !first);
        if ((head || tail) && k * sizeof(T) >= skew && k * sizeof(T) < end) {
            const T v = hw::load((const T *)words + k);
            zero |= v == 0;
            if constexpr (PUT)
                hw::put((T *)stage + k, v);
        }
        if constexpr (PUT)
            values = (T *)(stage + skew);
    }
    if constexpr (PUT)
        hw::syncwarp();
    return zero;
}

/* The first of n values of a block that is zero; n if none. The same in all lanes. */
template <class T> PICI_DEV unsigned warp_find_zero(const T *values, unsigned n)
{
    for (unsigned at = 0; at < n; at += LANES) {
        const unsigned i = at + hw::lane(), zeros = hw::ballot(i < n && hw::load(values + i) == 0);
        if (zeros)
            return at + hw::ffs(zeros) - 1;
    }
    return n;
}

/* ---- a tile from its values. Every bit of c stands for an element that exists ---- */

template <bool PAIRS, class T>
PICI_DEV void scatter_rows(const dense_tile<T> &d, const T *a, const T *b, const columns &c)
{
    raw_pair<T> *out = (raw_pair<T> *)d.at + hw::lane();
    PICI_UNROLL_1
    for (unsigned half = 0; half < 2; half++) {
        const uint32_t u = (uint32_t)(c.word[0] >> 32 * half), w = (uint32_t)(c.word[1] >> 32 * half);
        PICI_UNROLL
        for (unsigned r = 0; r < 32; r++) {
            T x = 0, y = 0;
            if (u >> r & 1)
                x = hw::get(a++);
            if (w >> r & 1)
                y = hw::get(b++);
            if constexpr (PAIRS)
                hw::store_once(out + (32 * half + r) * LANES, join<T>(x, y));
            else
                store_edge(d, 32 * half + r, x, y);
        }
    }
}

/* Write all of a tile's elements; values: staged. stage may be used again after a __syncwarp(). */
template <class T>
PICI_DEV void tile_scatter(const dense_tile<T> &d, const T *values, const columns &c, unsigned before)
{
    const T *a = values + before, *b = a + hw::popc(c.word[0]);
    if (d.pairs)
        scatter_rows<true>(d, a, b, c);
    else
        scatter_rows<false>(d, a, b, c);
}

template <class SUM, bool PAIRS, class T>
PICI_DEV void add_rows(const dense_tile<T> &d, const T *a, const T *b, const columns &c)
{
    constexpr unsigned AHEAD = sizeof(T) == 8 ? 8 : 16; /* rows whose elements are asked for before any is added to */
    raw_pair<T> *out = (raw_pair<T> *)d.at + hw::lane();
    const dense_tile<const T> from = {d.at, d.left, d.pairs};
    PICI_UNROLL_1
    for (unsigned row = 0; row < ROWS; row += AHEAD) {
        const unsigned u = (unsigned)(c.word[0] >> row), w = (unsigned)(c.word[1] >> row);
        raw_pair<T> v[AHEAD];
        PICI_UNROLL
        for (unsigned r = 0; r < AHEAD; r++) {
            v[r] = raw_pair<T>();
            if ((u | w) >> r & 1)
                v[r] = load_row<PAIRS>(from, row + r);
        }
        PICI_UNROLL
        for (unsigned r = 0; r < AHEAD; r++) {
            if (!((u | w) >> r & 1))
                continue;
            T x = first_of<T>(v[r]), y = second_of<T>(v[r]);
            if (u >> r & 1)
                x = SUM::sum(x, hw::get(a++));
            if (w >> r & 1)
                y = SUM::sum(y, hw::get(b++));
            if constexpr (PAIRS)
                hw::store(out + (row + r) * LANES, join<T>(x, y));
            else
                store_edge(d, row + r, x, y);
        }
    }
}

/* Add to a tile's elements, row by row; values: staged. A pair is read and written if one of its elements is added to.
 * stage may be used again after a __syncwarp(). */
template <class SUM, class T>
PICI_DEV void tile_add_rows(const dense_tile<T> &d, const T *values, const columns &c, unsigned before)
{
    const T *a = values + before, *b = a + hw::popc(c.word[0]);
    if (d.pairs)
        add_rows<SUM, true>(d, a, b, c);
    else
        add_rows<SUM, false>(d, a, b, c);
}

/* A tile with no more values than this is added to value by value. Few of them share a sector of memory; with more, lanes
 * that go through a column would each touch a sector of their own, again and again. */
constexpr unsigned SPARSE_TILE = 512;

/* Add n <= SPARSE_TILE values of a block: list the places of the tile's bits by __ffsll, and go through the list. Returns
 * whether a value is zero, of a lane. stage may be used again after a __syncwarp(). */
template <class SUM, class T>
PICI_DEV bool tile_add_list(const dense_tile<T> &d, uint8_t *stage, const T *values, const columns &c, unsigned before,
                            unsigned n)
{
    uint16_t *list = (uint16_t *)stage, *at = list + before;
    PICI_UNROLL
    for (unsigned k = 0; k < 2; k++)
        for (uint64_t word = c.word[k]; word; word &= word - 1)
            hw::put(at++, (uint16_t)((hw::ffs(word) - 1) * COLS + 2 * hw::lane() + k));
    hw::syncwarp();
    bool zero = false;
    constexpr unsigned GROUP = 4; /* sums in flight */
    PICI_UNROLL_1
    for (unsigned first = hw::lane(); first < n; first += GROUP * LANES) {
        T x[GROUP], old[GROUP], *out[GROUP];
        PICI_UNROLL
        for (unsigned k = 0; k < GROUP; k++) {
            const unsigned i = first + k * LANES, at = i < n ? i : n - 1; /* the last one again: see copy_in_group */
            x[k] = hw::load_once(values + at);
            out[k] = d.at + hw::get(list + at);
        }
        PICI_UNROLL
        for (unsigned k = 0; k < GROUP; k++)
            old[k] = hw::load(out[k]);
        PICI_UNROLL
        for (unsigned k = 0; k < GROUP; k++) {
            zero |= x[k] == 0;
            if (first + k * LANES < n)
                hw::store(out[k], SUM::sum(old[k], x[k]));
        }
    }
    return zero;
}

/* What is done with a block's elements. */
enum reading { VERIFY, DECODE, ADD };

/* Tile t of a pici block: check its every rule and its part of the index, then do with it what DO says. Nothing is done
 * where the tile itself is wrong. SUM: arith<dtype>, for ADD. Returns a fault, the same in all lanes. stage may be used
 * again at once. */
template <reading DO, class SUM, class T>
PICI_DEV uint64_t tile_read(const block_view &v, uint64_t t, T *dst, uint8_t *stage)
{
    const columns c = get_columns(v.bytes + HEADER_BYTES, t);
    const uint64_t entry = load_index(v, t), next = t + 1 < v.tiles ? load_index(v, t + 1) : 0;
    const unsigned left = v.count - t * TILE < TILE ? (unsigned)(v.count - t * TILE) : (unsigned)TILE;
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
    /* An entry beyond nnz is not the first fault, except of its tile: those before it do not add up to it. */
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

/* ---- coo ---- */

/* The first entry whose position is not below p, if positions rise; some entry in any case. */
PICI_DEV uint64_t warp_lower_bound(const block_view &v, uint64_t p)
{
    uint64_t lo = 0, n = v.nnz; /* it is lo + k, 0 <= k <= n */
    while (n) {
        /* of each of 32 equal parts, whether its last entry is below p */
        const uint64_t step = (n + LANES - 1) / LANES, last = (hw::lane() + 1) * step - 1;
        const unsigned below = hw::ballot(last < n && load_index(v, lo + last) < p);
        const unsigned parts = below == hw::ALL ? LANES : hw::ffs(~below) - 1;
        if (step == 1)
            return lo + parts;
        /* the rest is shorter than a part, or what is left after the last whole one */
        lo += parts * step;
        n -= parts * step;
        n = n < step - 1 ? n : step - 1;
    }
    return lo;
}

/* Decode tiles [t, end) of a coo block, each made in shared memory and written whole. Checks the entries concerned, and
 * that they are those of these tiles. Returns a fault, if not always the first. */
template <class T>
PICI_DEV uint64_t warp_coo_decode(const block_view &v, uint64_t t, uint64_t end, T *dst, uint8_t *stage)
{
    constexpr unsigned QUADS = TILE * sizeof(T) / 16;
    const T *values = (const T *)(v.bytes + v.values_offset);
    T *tile = (T *)stage;
    uint64_t i = t ? warp_lower_bound(v, t * TILE) : 0;
    const uint64_t stop = end < tiles_of(v.count) ? warp_lower_bound(v, end * TILE) : v.nnz;
    if (t == end)
        return 0;
    for (; t < end; t++) {
        const dense_tile<T> d = tile_at(dst, v.count, t);
        for (unsigned q = hw::lane(); q < QUADS; q += LANES)
            hw::put((raw128 *)stage + q, raw128{0, 0});
        hw::syncwarp();
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
        if (d.left == TILE && is_aligned(d.at, 16))
            for (unsigned q = hw::lane(); q < QUADS; q += LANES)
                hw::store_once((raw128 *)d.at + q, hw::get((const raw128 *)stage + q));
        else
            for (unsigned k = hw::lane(); k < d.left; k += LANES)
                hw::store(d.at + k, hw::get(tile + k));
        hw::syncwarp();
    }
    return i == stop ? 0 : entry_fault(i, COO_RISING);
}

/* Check, and with ADD add, each entry: one of `shares` warps. Returns a fault of a lane. */
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
        T x[GROUP], old[GROUP];
        bool good[GROUP];
        PICI_UNROLL
        for (unsigned k = 0; k < GROUP; k++) {
            const uint64_t i = first + k * step;
            const bool exists = i < v.nnz;
            p[k] = exists ? load_index(v, i) : 0;
            before[k] = exists && i ? load_index(v, i - 1) : 0;
            x[k] = exists ? hw::load_once(values + i) : (T)1;
            old[k] = 0;
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
            if constexpr (DO == ADD)
                if (good[k])
                    old[k] = hw::load(dst + p[k]);
        }
        if constexpr (DO == ADD) {
            PICI_UNROLL
            for (unsigned k = 0; k < GROUP; k++)
                if (good[k])
                    hw::store(dst + p[k], SUM::sum(old[k], x[k]));
        }
    }
    return wrong;
}

/* ---- dense ---- */

template <class SUM, class T> PICI_DEV uint64_t dense_word(uint64_t d, uint64_t x)
{
    uint64_t r = 0;
    PICI_UNROLL
    for (unsigned k = 0; k < 8; k += sizeof(T)) {
        const T old = (T)(d >> 8 * k), add = (T)(x >> 8 * k);
        r |= (uint64_t)(add ? SUM::sum(old, add) : old) << 8 * k;
    }
    return r;
}

template <class SUM, class T> PICI_DEV raw128 dense_quad(raw128 d, raw128 x)
{
    return raw128{dense_word<SUM, T>(d.lo, x.lo), dense_word<SUM, T>(d.hi, x.hi)};
}

/* n elements from src to dst, copied or added where not zero: one of `shares` warps. */
template <reading DO, class SUM, class T>
PICI_DEV void warp_dense(T *dst, const T *src, uint64_t n, uint64_t share, uint64_t shares)
{
    constexpr unsigned PER = 16 / sizeof(T);
    const uint64_t quads = is_aligned(dst, 16) && is_aligned(src, 16) ? n / PER : 0;
    const uint64_t first = share * LANES + hw::lane(), step = shares * LANES;
    if constexpr (DO == ADD) {
        PICI_UNROLL_1
        for (uint64_t q = first; q < quads; q += step) {
            raw128 *out = (raw128 *)dst + q;
            const raw128 x = hw::load_once((const raw128 *)src + q);
            hw::store(out, dense_quad<SUM, T>(hw::load((const raw128 *)out), x));
        }
    } else {
        constexpr unsigned GROUP = 4;
        uint64_t q = first;
        for (; q + (GROUP - 1) * step < quads; q += GROUP * step) {
            raw128 v[GROUP];
            PICI_UNROLL
            for (unsigned k = 0; k < GROUP; k++)
                v[k] = hw::load_once((const raw128 *)src + q + k * step);
            PICI_UNROLL
            for (unsigned k = 0; k < GROUP; k++)
                hw::store_once((raw128 *)dst + q + k * step, v[k]);
        }
        for (; q < quads; q += step)
            hw::store_once((raw128 *)dst + q, hw::load_once((const raw128 *)src + q));
    }
    for (uint64_t i = quads * PER + first; i < n; i += step) {
        const T x = hw::load(src + i);
        if constexpr (DO == ADD) {
            if (x)
                hw::store(dst + i, SUM::sum(hw::load(dst + i), x));
        } else {
            hw::store(dst + i, x);
        }
    }
}

/* ---- a block, read by any number of warps ---- */

/* One of `shares` warps' part of reading a block whose header was parsed and found good, of elements of T. Returns a fault
 * of a lane: it is the first of the part with VERIFY, except that of the block's checksum the first warp knows. */
template <reading DO, class SUM, class T>
PICI_DEV uint64_t warp_read(const block_view &v, T *dst, uint64_t share, uint64_t shares, uint8_t *stage)
{
    uint64_t wrong = 0;
    if (share == 0) {
        const uint64_t pad = v.index_end + hw::lane();
        const unsigned dirty = hw::ballot(pad < v.values_offset && v.bytes[pad] != 0);
        if (dirty)
            wrong = fault(FAULT_PADDING, hw::ffs(dirty) - 1);
        if (v.flags & FLAG_CHECKSUM)
            if (warp_hash(v.bytes, v.block_bytes) != v.checksum)
                wrong = fault(FAULT_CHECKSUM, 0);
    }
    if (v.format == PICI_PICI) {
        for (uint64_t t = share; t < v.tiles; t += shares)
            wrong = first_fault(wrong, tile_read<DO, SUM>(v, t, dst, stage));
    } else if (v.format == PICI_COO) {
        if constexpr (DO == DECODE) {
            const uint64_t tiles = tiles_of(v.count), each = tiles / shares + (tiles % shares != 0);
            const uint64_t first = share * each < tiles ? share * each : tiles;
            const uint64_t end = tiles - first < each ? tiles : first + each;
            wrong = first_fault(wrong, warp_coo_decode(v, first, end, dst, stage));
        } else {
            wrong = first_fault(wrong, warp_coo_entries<DO, SUM>(v, dst, share, shares));
        }
    } else if constexpr (DO != VERIFY) {
        warp_dense<DO, SUM>(dst, (const T *)(v.bytes + v.values_offset), v.count, share, shares);
    }
    return wrong;
}

} // namespace pici

#include "pici/device_blockwide.cuh"

#endif
