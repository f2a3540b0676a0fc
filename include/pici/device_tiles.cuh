/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tiles of dense elements, read, packed, written and added by a warp. Part of pici/device.cuh. */
#ifndef PICI_DEVICE_TILES_CUH
#define PICI_DEVICE_TILES_CUH

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

/* The XOR of two units of a row. */
template <class U> PICI_DEV U differing(U a, U b)
{
    return (U)(a ^ b);
}

PICI_DEV raw128 differing(raw128 a, raw128 b)
{
    return raw128{a.lo ^ b.lo, a.hi ^ b.hi};
}

/* x, or +0.0 if x is -0.0. */
template <class T> PICI_DEV T plus_zero(T x)
{
    return x == (T)((T)1 << (8 * sizeof(T) - 1)) ? (T)0 : x;
}

/* Is p aligned to `bytes` bytes? */
PICI_DEV bool is_aligned(const void *p, unsigned bytes)
{
    return (uintptr_t)p % bytes == 0;
}

/* 16 bytes from byte `skew` of five words on, 0 <= skew < 4. */
PICI_DEV raw128 quad_within(uint32_t (&w)[5], unsigned skew)
{
    if (skew) {
        PICI_UNROLL
        for (unsigned i = 0; i < 4; i++)
            w[i] = hw::funnel_l(w[i], w[i + 1], 32 - 8 * skew);
    }
    return raw128{w[0] | (uint64_t)w[1] << 32, w[2] | (uint64_t)w[3] << 32};
}

/* 16 bytes at any alignment. Reads whole words of 4 bytes. */
PICI_DEV raw128 load_unaligned(const uint8_t *p)
{
    const unsigned skew = (unsigned)((uintptr_t)p % 4);
    const uint32_t *from = (const uint32_t *)(p - skew);
    uint32_t w[5];
    PICI_UNROLL
    for (unsigned i = 0; i < 5; i++)
        w[i] = i < 4 || skew ? hw::load(from + i) : 0;
    return quad_within(w, skew);
}

/* ---- a tile of dense elements ---- */

template <class T> struct dense_tile {
    T *at;
    unsigned left;         /* elements of the tile: TILE, or fewer for the last */
    bool pairs;            /* left == TILE, and rows can be read and written in pairs */
    T *base = nullptr;     /* null; or, for reading, elements to XOR with those at `at` */
    bool by_value = false; /* of a tile that is read: elements are floats, and -0.0 is read as +0.0; for by_access, not
                            * with a base */
};

/* Tile t of the n elements at dense; with a base, of their XOR with the base. */
template <class T>
PICI_DEV dense_tile<T> tile_at(T *dense, uint64_t n, uint64_t t, T *base = nullptr, bool by_value = false)
{
    dense_tile<T> d;
    d.at = dense + t * TILE;
    d.left = elements_of(n, t);
    d.pairs = d.left == TILE && is_aligned(dense, 2 * sizeof(T)) && is_aligned(base, 2 * sizeof(T));
    if (base)
        d.base = base + t * TILE;
    d.by_value = by_value;
    return d;
}

/* How to read rows: in pairs or element by element; XORed with a base, by value, or neither. It is a template argument,
 * so each tile takes the branch once. */
constexpr unsigned ROW_PAIRS = 1, ROW_DELTA = 2, ROW_BY_VALUE = 4;

template <unsigned HOW> struct access_of {
    static constexpr unsigned value = HOW;
};

/* Call each with the access_of that describes how to read the tile's rows. */
template <class T, class EACH> PICI_DEV auto by_access(const dense_tile<const T> &d, EACH each)
{
    if (d.base)
        return d.pairs ? each(access_of<ROW_PAIRS | ROW_DELTA>()) : each(access_of<ROW_DELTA>());
    if (d.by_value)
        return d.pairs ? each(access_of<ROW_PAIRS | ROW_BY_VALUE>()) : each(access_of<ROW_BY_VALUE>());
    return d.pairs ? each(access_of<ROW_PAIRS>()) : each(access_of<0>());
}

/* The lane's pair of row r of a tile of `left` elements, read one by one; zeros beyond its end. */
template <class T> PICI_DEV raw_pair<T> load_edge(const T *at, unsigned left, unsigned r)
{
    const unsigned i = r * COLS + 2 * hw::lane();
    const T a = i < left ? hw::load(at + i) : (T)0, b = i + 1 < left ? hw::load(at + i + 1) : (T)0;
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

template <bool ONCE, class T> PICI_DEV raw_pair<T> load_pair(const T *at, unsigned r)
{
    const raw_pair<T> *p = (const raw_pair<T> *)at + r * LANES + hw::lane();
    return ONCE ? hw::load_once(p) : hw::load(p);
}

/* The lane's pair of row r. ONCE: it is not read again, so it need not stay in a cache. */
template <unsigned HOW, bool ONCE = false, class T>
PICI_DEV raw_pair<T> load_row(const dense_tile<const T> &d, unsigned r)
{
    const auto load = [&](const T *at) {
        if constexpr (HOW & ROW_PAIRS)
            return load_pair<ONCE>(at, r);
        else
            return load_edge(at, d.left, r);
    };
    raw_pair<T> v = load(d.at);
    if constexpr (HOW & ROW_DELTA)
        v = differing(v, load(d.base));
    if constexpr (HOW & ROW_BY_VALUE)
        v = join<T>(plus_zero(first_of<T>(v)), plus_zero(second_of<T>(v)));
    return v;
}

/* The lane's two columns, held in registers so that memory is read once: 128 registers of 32 bits for 4-byte
 * elements, half of that or less for narrower ones. Elements of 8 bytes would need too many: they are read twice,
 * the second time from a cache. */
template <class T> struct held_tile {
    static constexpr bool holds = sizeof(T) < 8;
    raw_pair<T> row[holds ? (unsigned)ROWS : 1u];
    dense_tile<const T> from;
};

/* Row r: from registers, or for elements of 8 bytes from memory. */
template <unsigned HOW, class T> PICI_DEV raw_pair<T> held_row(const held_tile<T> &h, unsigned r)
{
    if constexpr (held_tile<T>::holds)
        return h.row[r];
    else
        return load_row<HOW>(h.from, r);
}

/* by_access for held_row. In registers, it does not matter how rows were read. */
template <class T, class EACH> PICI_DEV auto by_held(const held_tile<T> &h, EACH each)
{
    if constexpr (held_tile<T>::holds)
        return each(access_of<ROW_PAIRS>());
    else
        return by_access(h.from, each);
}

/* Load a tile. */
template <class T> PICI_DEV void tile_load(held_tile<T> &h, const dense_tile<const T> &from)
{
    h.from = from;
    if constexpr (held_tile<T>::holds) {
        by_access(from, [&](auto how) {
            PICI_UNROLL
            for (unsigned r = 0; r < ROWS; r++) {
                /* limits the loads in flight: compilers would load all rows of both before any XOR, and run out of
                 * registers */
                if (how.value == (ROW_PAIRS | ROW_DELTA) && r % 16 == 0)
                    hw::syncwarp();
                h.row[r] = load_row<how.value, true>(from, r);
            }
        });
    }
}

/* A lane's two words of a tile's bits. In bitmap they are the lane's columns; in hybrid, rows 2 * lane and 2 * lane +
 * 1. */
struct columns {
    uint64_t word[2];
};

template <unsigned HOW, unsigned FIRST, class T> PICI_DEV void half_columns(uint32_t half[2], const held_tile<T> &h)
{
    constexpr unsigned AHEAD = held_tile<T>::holds || !(HOW & ROW_DELTA)
                                   ? 32
                                   : 8; /* rows in flight; with a base they take twice the registers */
    half[0] = half[1] = 0;
    PICI_UNROLL_1
    for (unsigned row = 0; row < 32; row += AHEAD) {
        PICI_UNROLL
        for (unsigned k = 0; k < AHEAD; k++) {
            const unsigned r = AHEAD == 32 ? k : row + k;
            const raw_pair<T> v = held_row<HOW>(h, FIRST + r);
            half[0] |= (first_of<T>(v) != 0 ? 1u : 0u) << r;
            half[1] |= (second_of<T>(v) != 0 ? 1u : 0u) << r;
        }
    }
}

template <unsigned HOW, class T> PICI_DEV columns all_columns(const held_tile<T> &h)
{
    uint32_t lo[2], hi[2];
    half_columns<HOW, 0>(lo, h);
    half_columns<HOW, 32>(hi, h);
    columns c;
    c.word[0] = lo[0] | (uint64_t)hi[0] << 32;
    c.word[1] = lo[1] | (uint64_t)hi[1] << 32;
    return c;
}

/* The 64 column words of a tile, two a lane. */
template <class T> PICI_DEV columns tile_columns(const held_tile<T> &h)
{
    return by_held(h, [&](auto how) { return all_columns<how.value>(h); });
}

/* ---- sums over the lanes of a warp ---- */

/* The sum of v over all lanes. */
template <class T> PICI_DEV T warp_sum(T v)
{
    for (unsigned by = LANES / 2; by; by /= 2)
        v += hw::shfl_down(v, by);
    return hw::shfl(v, 0);
}

/* The exclusive prefix sum: the sum of `own` over the lanes below; a lane's. */
template <class T> PICI_DEV T warp_scan(T own)
{
    T sum = own;
    for (unsigned by = 1; by < LANES; by *= 2) {
        const T before = hw::shfl_up(sum, by);
        if (hw::lane() >= by)
            sum += before;
    }
    return sum - own;
}

/* The number of bits set in a tile. */
PICI_DEV unsigned tile_nnz(const columns &c)
{
    return warp_sum(hw::popc(c.word[0]) + hw::popc(c.word[1]));
}

/* The number of the tile's values before the values of the lane's first word; a lane's. */
PICI_DEV unsigned tile_offset(const columns &c)
{
    return warp_scan(hw::popc(c.word[0]) + hw::popc(c.word[1]));
}

/* Call each(word, bit) for each bit set in the lane's two words; word is 0 or 1. */
template <class EACH> PICI_DEV void each_bit(const columns &c, EACH each)
{
    PICI_UNROLL
    for (unsigned k = 0; k < 2; k++) {
        for (uint64_t word = c.word[k]; word; word &= word - 1)
            each(k, hw::ffs(word) - 1);
        hw::in_step();
    }
}

/* Does column c of a tile of `left` elements have a bit set beyond its end? */
PICI_DEV bool past_end(uint64_t word, unsigned c, unsigned left)
{
    const unsigned rows = left > c ? (left - c + COLS - 1) / COLS : 0;
    return rows < ROWS && word >> rows != 0;
}

/* Write, and read, the lane's columns of tile t of the bitvector at bits. */
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

/* Shared memory for a tile's values, plus a few bytes so that they can have the same alignment as in the block. Coo
 * needs positions too. */
template <class T> constexpr unsigned STAGE_BYTES = TILE * sizeof(T) + 16;
template <class T> constexpr unsigned COO_STAGE_BYTES = TILE *(sizeof(T) + 2) + 16;

/* The place of element i in a stage. A lane's values are consecutive. In a regular tile, the lanes' values begin at
 * multiples of some number of words. These can be in few of the 32 banks, or in one. So the words of each 128 bytes are
 * permuted: word w is at w ^ ((w / 32 ^ w / 1024) % 32). For elements of 8 bytes, element i is at i ^ ((i / 16 ^ i /
 * 256) % 16). Lanes that access a stage in order still access all banks. */
template <class T> PICI_DEV unsigned staged(unsigned i)
{
    constexpr unsigned PER = sizeof(T) < 4 ? 4 / sizeof(T) : 1, BANKS = sizeof(T) == 8 ? 16 : 32;
    return i ^ ((i / (PER * BANKS) ^ i / (PER * BANKS * BANKS)) % BANKS * PER);
}

/* How elements are staged: the order in which the functions below store and expect them. */
enum stage_order { IN_ORDER, SPREAD };

template <stage_order ORDER, class T> PICI_DEV unsigned place_of(unsigned i)
{
    return ORDER == SPREAD ? staged<T>(i) : i;
}

template <unsigned HOW, class T> PICI_DEV void pack_rows(T *stage, unsigned a, unsigned b, const held_tile<T> &h)
{
    constexpr unsigned GROUP = held_tile<T>::holds ? (unsigned)ROWS : 8u; /* rows that are loaded before any is used */
    PICI_UNROLL_1
    for (unsigned row = 0; row < ROWS; row += GROUP) {
        raw_pair<T> v[GROUP];
        PICI_UNROLL
        for (unsigned r = 0; r < GROUP; r++)
            v[r] = held_row<HOW>(h, GROUP == ROWS ? r : row + r);
        PICI_UNROLL
        for (unsigned r = 0; r < GROUP; r++) {
            const T x = first_of<T>(v[r]), y = second_of<T>(v[r]);
            if (x)
                hw::put(stage + staged<T>(a++), x);
            if (y)
                hw::put(stage + staged<T>(b++), y);
            hw::in_step();
        }
    }
}

/* Gather the tile's values at stage, column by column, SPREAD. before: a lane's tile_offset(c). They are visible to the
 * warp on return. */
template <class T> PICI_DEV void tile_pack(uint8_t *stage, const held_tile<T> &h, const columns &c, unsigned before)
{
    const unsigned second = before + hw::popc(c.word[0]);
    by_held(h, [&](auto how) { pack_rows<how.value>((T *)stage, before, second, h); });
    hw::syncwarp();
}

/* Rank the nonzeros of GROUP rows in element order. v: the lane's pair of each row. at: the number of values before the
 * first row. Calls each(r, x, y, even, odd, k) for each row r. x, y is the lane's pair; k values precede it. even and
 * odd are the ballots of nonzeros at even and at odd columns. Returns the number of values before the next row. */
template <class T, unsigned GROUP, class EACH>
PICI_DEV unsigned rank_rows(const raw_pair<T> (&v)[GROUP], unsigned at, EACH each)
{
    const unsigned below = (1u << hw::lane()) - 1;
    PICI_UNROLL
    for (unsigned r = 0; r < GROUP; r++) {
        const T x = first_of<T>(v[r]), y = second_of<T>(v[r]);
        const unsigned even = hw::ballot(x != 0), odd = hw::ballot(y != 0);
        each(r, x, y, even, odd, at + hw::popc(even & below) + hw::popc(odd & below));
        at += hw::popc(even) + hw::popc(odd);
    }
    return at;
}

/* 16 bytes of a SPREAD stage, from element i on. */
template <class T> PICI_DEV raw128 staged_quad(const uint8_t *stage, unsigned i)
{
    if constexpr (sizeof(T) == 8) {
        const uint64_t *const from = (const uint64_t *)stage;
        return raw128{hw::get(from + staged<uint64_t>(i)), hw::get(from + staged<uint64_t>(i + 1))};
    } else {
        const unsigned at = i * sizeof(T), skew = at % 4;
        uint32_t w[5];
        PICI_UNROLL
        for (unsigned k = 0; k < 5; k++)
            w[k] = k < 4 || skew ? hw::get((const uint32_t *)stage + staged<uint32_t>(at / 4 + k)) : 0;
        return quad_within(w, skew);
    }
}

/* warp_copy_out by 16 bytes. A lane reads these in words: only with SPREAD are the lanes' words in different banks. */
template <class T> PICI_DEV void copy_out_quads(T *to, const uint8_t *stage, unsigned n)
{
    constexpr unsigned PER = 16 / sizeof(T);
    const unsigned gap = (unsigned)((0 - (uintptr_t)to) % 16 / sizeof(T)), first = gap < n ? gap : n;
    /* the last word of each quad is whole */
    const unsigned most = sizeof(T) < 4 ? n * sizeof(T) / 4 * 4 / sizeof(T) : n;
    const unsigned end = first < most ? first + (most - first) / PER * PER : first;
    for (unsigned i = first + PER * hw::lane(); i < end; i += PER * LANES)
        hw::store((raw128 *)(to + i), staged_quad<T>(stage, i));
    PICI_UNROLL_1
    for (unsigned k = hw::lane(); k < first + n - end; k += LANES) {
        const unsigned i = k < first ? k : k - first + end;
        hw::store(to + i, hw::get((const T *)stage + staged<T>(i)));
    }
}

/* warp_copy_out by elements, or by words of 4 bytes if elements are narrower. */
template <class T> PICI_DEV void copy_out_words(T *to, const uint8_t *stage, unsigned n)
{
    if constexpr (sizeof(T) >= 4) {
        for (unsigned i = hw::lane(); i < n; i += LANES)
            hw::store(to + i, hw::get((const T *)stage + i));
    } else {
        constexpr unsigned WIDTH = sizeof(T);
        const unsigned lane = hw::lane(), skew = (unsigned)((uintptr_t)to % 4), end = skew + n * WIDTH;
        /* words [first, whole) of the block are whole; with skew, two staged words make each */
        const unsigned first = skew ? 1 : 0, whole = n * WIDTH / 4;
        uint8_t *words = (uint8_t *)to - skew;
        const uint32_t *from = (const uint32_t *)stage;
        PICI_UNROLL_4
        for (unsigned i = first + lane; i < whole; i += LANES) {
            uint32_t v = hw::get(from + i);
            if (skew)
                v = hw::funnel_l(hw::get(from + i - 1), v, 8 * skew);
            hw::store((uint32_t *)words + i, v);
        }
        /* the elements left over at both ends, one a lane */
        const unsigned rest = 4 * (whole > first ? whole : first);
        const unsigned k = lane < 8 ? skew + lane * WIDTH : rest + (lane - 8) * WIDTH;
        if (k < end && (lane < 8 ? first && k < 4 : true))
            hw::store((T *)(words + k), hw::get((const T *)(stage + (k - skew))));
    }
}

/* Copy n values from stage to a block. stage may be used again after a __syncwarp(). */
template <stage_order ORDER = SPREAD, class T> PICI_DEV void warp_copy_out(T *to, const uint8_t *stage, unsigned n)
{
    if constexpr (ORDER == SPREAD)
        copy_out_quads(to, stage, n);
    else
        copy_out_words(to, stage, n);
}

/* Is one of the elements in this word zero? */
template <class T> PICI_DEV bool any_zero(uint32_t v)
{
    if constexpr (sizeof(T) == 1)
        return ((v - 0x01010101u) & ~v & 0x80808080u) != 0;
    else if constexpr (sizeof(T) == 2)
        return ((v - 0x00010001u) & ~v & 0x80008000u) != 0;
    else
        return v == 0;
}

/* Copy units [first, first + GROUP * LANES), but not beyond end, from `from` to `to` (only if PUT). Returns, for the
 * lane's units, whether an element is zero. A unit is 4 bytes, or a wider element. All loads of a lane are in flight
 * before its first store, because compilers do not move a load ahead of a store. Beyond the end, a lane loads the last
 * unit again, which costs less than a branch. */
template <bool PUT, stage_order ORDER, class T, unsigned GROUP, class U>
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
                hw::put(to + place_of<ORDER, U>(i), v[k]);
    }
    return zero;
}

/* copy_in_group for all units [first, end). */
template <bool PUT, stage_order ORDER, class T, class U>
PICI_DEV bool copy_in_units(U *to, const U *from, unsigned first, unsigned end)
{
    constexpr unsigned GROUP = 16, FEW = 4;
    bool zero = false;
    PICI_UNROLL_1
    while (first < end && end - first > FEW * LANES) {
        zero |= copy_in_group<PUT, ORDER, T, GROUP>(to, from, first, end);
        first += GROUP * LANES;
    }
    if (first < end)
        zero |= copy_in_group<PUT, ORDER, T, FEW>(to, from, first, end);
    return zero;
}

/* Copy n values of a block to stage (only if PUT). Returns whether one of a lane's values is zero. values: out: their
 * place in stage, with the same alignment to four bytes as `from`; if SPREAD, the place where they would be IN_ORDER,
 * for by_columns. They are visible to the warp on return. */
template <bool PUT, stage_order ORDER = SPREAD, class T>
PICI_DEV bool warp_copy_in(T *&values, uint8_t *stage, const T *from, unsigned n)
{
    bool zero = false;
    if constexpr (sizeof(T) >= 4) {
        if constexpr (PUT)
            values = (T *)stage;
        zero = copy_in_units<PUT, ORDER, T>((T *)stage, from, 0, n);
    } else {
        const unsigned skew = (unsigned)((uintptr_t)from % 4), end = skew + n * (unsigned)sizeof(T);
        const uint8_t *words = (const uint8_t *)from - skew;
        const unsigned first = skew ? 1 : 0, whole = end / 4; /* words that hold only values */
        zero = copy_in_units<PUT, ORDER, T>((uint32_t *)stage, (const uint32_t *)words, first, whole);
        /* the values in the first and in the last word, if these are partial */
        const unsigned lane = hw::lane(), per = 4 / sizeof(T), k = lane < per ? lane : whole * per + lane - per;
        const bool head = lane < per && first, tail = lane >= per && lane < 2 * per && (whole || !first);
        if ((head || tail) && k * sizeof(T) >= skew && k * sizeof(T) < end) {
            const T v = hw::load((const T *)words + k);
            zero |= v == 0;
            if constexpr (PUT)
                hw::put((T *)stage + place_of<ORDER, T>(k), v);
        }
        if constexpr (PUT)
            values = (T *)(stage + skew);
    }
    if constexpr (PUT)
        hw::syncwarp();
    return zero;
}

/* The index of the first zero among n values of a block; n if there is none. */
template <class T> PICI_DEV unsigned warp_find_zero(const T *values, unsigned n)
{
    for (unsigned at = 0; at < n; at += LANES) {
        const unsigned i = at + hw::lane(), zeros = hw::ballot(i < n && hw::load(values + i) == 0);
        if (zeros)
            return at + hw::ffs(zeros) - 1;
    }
    return n;
}

/* ---- a tile from its values. No bit is set beyond the tile's elements ---- */

/* The source of a tile's values for tile_scatter_from and tile_add_from, in bitmap's order: each lane goes down its two
 * columns, whose values are staged SPREAD. Its interface, which by_rows and by_elements in device_hybrid.cuh have too:
 *   rows(first)         the next calls of place are for rows first to first + 31
 *   place(r)            in any order; bits 0 and 1: the first and the second element of the lane's pair in row first +
 *                       r is nonzero
 *   take(place, x, y)   in the order of the rows: fetch the values of those elements
 *   SCATTER, ADD        rows that tile_scatter_from and tile_add_from handle at a time, as many as registers allow */
template <class T> struct by_columns {
    static constexpr unsigned SCATTER = 32, ADD = sizeof(T) == 8 ? 8 : 16;
    const T *stage;
    unsigned a, b; /* the next staged value of each column */
    columns c;
    uint32_t u, w;

    /* values: as from warp_copy_in. stage is computed from the pointer, so that it is known to be in shared memory. */
    PICI_DEV_MEMBER by_columns(const T *values, const columns &of, unsigned before)
        : stage((const T *)((const uint8_t *)values - (uintptr_t)values % 4)), a((unsigned)(values - stage) + before),
          b(a + hw::popc(of.word[0])), c(of), u(0), w(0)
    {
    }
    PICI_DEV_MEMBER void rows(unsigned first)
    {
        u = (uint32_t)(c.word[0] >> first);
        w = (uint32_t)(c.word[1] >> first);
    }
    PICI_DEV_MEMBER unsigned place(unsigned r) const
    {
        return (u >> r & 1) | (w >> r & 1) << 1;
    }
    PICI_DEV_MEMBER void take(unsigned place, T &x, T &y)
    {
        if (place & 1)
            x = hw::get(stage + staged<T>(a++));
        if (place & 2)
            y = hw::get(stage + staged<T>(b++));
    }
};

template <bool PAIRS, class T, class FROM> PICI_DEV void scatter_rows(const dense_tile<T> &d, FROM &from)
{
    raw_pair<T> *out = (raw_pair<T> *)d.at + hw::lane();
    PICI_UNROLL_1
    for (unsigned row = 0; row < ROWS; row += FROM::SCATTER) {
        from.rows(row);
        PICI_UNROLL
        for (unsigned r = 0; r < FROM::SCATTER; r++) {
            T x = 0, y = 0;
            hw::in_step();
            from.take(from.place(r), x, y);
            if constexpr (PAIRS)
                hw::store_once(out + (row + r) * LANES, join<T>(x, y));
            else
                store_edge(d, row + r, x, y);
        }
    }
}

/* Write all elements of a tile. FROM: by_columns or a type with its interface. stage may be used again after a
 * __syncwarp(). */
template <class T, class FROM> PICI_DEV void tile_scatter_from(const dense_tile<T> &d, FROM from)
{
    if (d.pairs)
        scatter_rows<true>(d, from);
    else
        scatter_rows<false>(d, from);
}

/* tile_scatter_from for values in bitmap's order, staged at `values`. */
template <class T>
PICI_DEV void tile_scatter(const dense_tile<T> &d, const T *values, const columns &c, unsigned before)
{
    tile_scatter_from(d, by_columns<T>(values, c, before));
}

template <class SUM, bool PAIRS, class T, class FROM> PICI_DEV void add_rows(const dense_tile<T> &d, FROM &from)
{
    constexpr unsigned AHEAD = PAIRS ? FROM::ADD : 4; /* rows loaded before any is added to */
    constexpr unsigned HOW = PAIRS ? ROW_PAIRS : 0;
    raw_pair<T> *out = (raw_pair<T> *)d.at + hw::lane();
    const dense_tile<const T> old = {d.at, d.left, d.pairs};
    PICI_UNROLL_1
    for (unsigned row = 0; row < ROWS; row += AHEAD) {
        unsigned place[AHEAD];
        raw_pair<T> v[AHEAD];
        from.rows(row);
        PICI_UNROLL
        for (unsigned r = 0; r < AHEAD; r++) {
            place[r] = from.place(r);
            v[r] = raw_pair<T>();
            if (place[r] & 3)
                v[r] = load_row<HOW>(old, row + r);
        }
        PICI_UNROLL
        for (unsigned r = 0; r < AHEAD; r++) {
            hw::in_step();
            if (!(place[r] & 3))
                continue;
            T x = first_of<T>(v[r]), y = second_of<T>(v[r]), a = 0, b = 0;
            from.take(place[r], a, b);
            if (place[r] & 1)
                x = SUM::sum(x, a);
            if (place[r] & 2)
                y = SUM::sum(y, b);
            if constexpr (PAIRS)
                hw::store(out + (row + r) * LANES, join<T>(x, y));
            else
                store_edge(d, row + r, x, y);
        }
    }
}

/* Add to a tile's elements, row by row. FROM: see tile_scatter_from. A pair is read and written only if the block adds
 * to one of its elements. stage may be used again after a __syncwarp(). */
template <class SUM, class T, class FROM> PICI_DEV void tile_add_from(const dense_tile<T> &d, FROM from)
{
    if (d.pairs)
        add_rows<SUM, true>(d, from);
    else
        add_rows<SUM, false>(d, from);
}

/* tile_add_from for values in bitmap's order, staged at `values`. */
template <class SUM, class T>
PICI_DEV void tile_add_rows(const dense_tile<T> &d, const T *values, const columns &c, unsigned before)
{
    tile_add_from<SUM>(d, by_columns<T>(values, c, before));
}

/* Write all elements of a tile from stage, which is aligned to 16; zeros if stage is null. */
template <class T> PICI_DEV void tile_put(const dense_tile<T> &d, const uint8_t *stage)
{
    constexpr unsigned QUADS = TILE * sizeof(T) / 16;
    if (d.left == TILE && is_aligned(d.at, 16))
        for (unsigned q = hw::lane(); q < QUADS; q += LANES)
            hw::store_once((raw128 *)d.at + q, stage ? hw::get((const raw128 *)stage + q) : raw128{0, 0});
    else
        for (unsigned k = hw::lane(); k < d.left; k += LANES)
            hw::store(d.at + k, stage ? hw::get((const T *)stage + k) : (T)0);
}

/* Fill stage with a tile of zeros. They are visible to the warp on return. */
template <class T> PICI_DEV void stage_zeros(uint8_t *stage)
{
    constexpr unsigned QUADS = TILE * sizeof(T) / 16;
    for (unsigned q = hw::lane(); q < QUADS; q += LANES)
        hw::put((raw128 *)stage + q, raw128{0, 0});
    hw::syncwarp();
}

/* dst[at[k]] += x[k] for each k where good[k]; a lane's. All places differ. All loads are issued before the first
 * store. */
template <class SUM, class T, class I, unsigned GROUP>
PICI_DEV void add_at(T *dst, const I (&at)[GROUP], const T (&x)[GROUP], const bool (&good)[GROUP])
{
    T old[GROUP];
    PICI_UNROLL
    for (unsigned k = 0; k < GROUP; k++)
        old[k] = good[k] ? hw::load(dst + at[k]) : (T)0;
    PICI_UNROLL
    for (unsigned k = 0; k < GROUP; k++)
        if (good[k])
            hw::store(dst + at[k], SUM::sum(old[k], x[k]));
}

/* A tile with at most SPARSE_TILE values is added value by value, since few of them share a sector of memory. With
 * more, values are added row by row: lanes that each follow a column would touch the same sectors repeatedly. */
constexpr unsigned SPARSE_TILE = 512;

/* Add n <= SPARSE_TILE values of a block: list the offsets of the tile's bits, then add value by value. before:
 * tile_offset(c), a lane's. Returns whether a value is zero; a lane's. stage may be used again after a __syncwarp(). */
template <class SUM, class T>
PICI_DEV bool tile_add_list(const dense_tile<T> &d, uint8_t *stage, const T *values, const columns &c, unsigned before,
                            unsigned n)
{
    uint16_t *const list = (uint16_t *)stage;
    each_bit(c, [&](unsigned k, unsigned row) {
        hw::put(list + staged<uint16_t>(before++), (uint16_t)(row * COLS + 2 * hw::lane() + k));
    });
    hw::syncwarp();
    bool zero = false;
    constexpr unsigned GROUP = 4; /* sums in flight */
    PICI_UNROLL_1
    for (unsigned first = hw::lane(); first < n; first += GROUP * LANES) {
        T x[GROUP];
        uint16_t at[GROUP];
        bool good[GROUP];
        PICI_UNROLL
        for (unsigned k = 0; k < GROUP; k++) {
            const unsigned i = first + k * LANES;
            good[k] = i < n;
            x[k] = hw::load_once(values + (good[k] ? i : n - 1)); /* beyond the end as in copy_in_group */
            at[k] = hw::get(list + staged<uint16_t>(good[k] ? i : n - 1));
            zero |= x[k] == 0;
        }
        add_at<SUM>(d.at, at, x, good);
    }
    return zero;
}

/* The use of a block besides checking it. */
enum reading { VERIFY, DECODE, ADD };

} // namespace pici

#endif
