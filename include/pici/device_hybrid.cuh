/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading the tiles of hybrid blocks by warps. A tile's bits and offsets are in the order of its elements. So a ballot
 * gives half a word, and the lanes of a row access neighbouring places in shared memory. Part of pici/device.cuh.
 * Specification: formats/hybrid.md. */
#ifndef PICI_DEVICE_HYBRID_CUH
#define PICI_DEVICE_HYBRID_CUH

#include "pici/device_groups.cuh"

namespace pici {

/* ---- reading a tile ---- */

/* A reader's stage holds a tile's values. For hybrid it also holds the words of a bitvector, at the end of the room
 * for values: a tile with so many values would be raw. After that come the numbers of values before each half of a
 * word, or for pici what is read of the next tile. */
template <class T> constexpr unsigned READ_STAGE_BYTES = STAGE_BYTES<T> + AHEAD_BYTES;
static_assert(AHEAD_BYTES >= 2 * ROWS * 2, "either has room");
template <class T> constexpr unsigned STAGED_ROWS = STAGE_BYTES<T> - TILE_BITS_BYTES;

/* The interface of by_columns for a tile whose words are rows: the values of a row follow one another. */
template <class T> struct by_rows {
    static constexpr unsigned SCATTER = 16, ADD = by_columns<T>::ADD;
    const T *values;       /* staged */
    const uint32_t *half;  /* the half of row 0's word that has the lane's pair */
    const uint16_t *ranks; /* the number of values before that half */
    unsigned row;

    PICI_DEV_MEMBER by_rows(const T *staged, const uint8_t *stage)
        : values(staged), half((const uint32_t *)(stage + STAGED_ROWS<T>)+hw::lane() / 16),
          ranks((const uint16_t *)(stage + STAGE_BYTES<T>)+hw::lane() / 16), row(0)
    {
    }
    PICI_DEV_MEMBER void rows(unsigned first)
    {
        row = first;
    }
    PICI_DEV_MEMBER unsigned place(unsigned r) const
    {
        const unsigned at = 2 * (row + r), by = 2 * (hw::lane() % 16);
        const uint32_t bits = hw::get(half + at);
        return (hw::get(ranks + at) + hw::popc(bits & ((1u << by) - 1))) << 2 | (bits >> by & 3);
    }
    PICI_DEV_MEMBER void take(unsigned place, T &x, T &y)
    {
        const T *p = values + (place >> 2);
        if (place & 1)
            x = hw::get(p);
        if (place & 2)
            y = hw::get(p + (place & 1));
    }
};

/* Put the lane's two rows, and the numbers of values before each half of them, where by_rows reads them. before:
 * values before the lane's rows; a lane's. */
template <class T> PICI_DEV void stage_rows(uint8_t *stage, const columns &c, unsigned before)
{
    uint64_t ranks = 0;
    PICI_UNROLL
    for (unsigned k = 0; k < 4; k++) {
        ranks |= (uint64_t)before << 16 * k;
        before += hw::popc((uint32_t)(c.word[k / 2] >> 32 * (k % 2)));
    }
    hw::put((raw128 *)(stage + STAGED_ROWS<T>)+hw::lane(), raw128{c.word[0], c.word[1]});
    hw::put((uint64_t *)(stage + STAGE_BYTES<T>)+hw::lane(), ranks);
}

/* The interface of by_columns for a raw tile, which stores all its elements, zeros included. */
template <class T> struct by_elements {
    /* few rows at a time: such tiles are rare, and long loops make compilation slow */
    static constexpr unsigned SCATTER = 8, ADD = 4;
    const T *values; /* staged */
    unsigned left, row;

    PICI_DEV_MEMBER by_elements(const T *staged, unsigned len) : values(staged), left(len), row(0)
    {
    }
    PICI_DEV_MEMBER void rows(unsigned first)
    {
        row = first;
    }
    PICI_DEV_MEMBER unsigned place(unsigned r) const
    {
        const unsigned i = (row + r) * COLS + 2 * hw::lane();
        const bool x = i < left && hw::get(values + i) != 0, y = i + 1 < left && hw::get(values + i + 1) != 0;
        return i << 2 | (x ? 1 : 0) | (y ? 2 : 0);
    }
    PICI_DEV_MEMBER void take(unsigned place, T &x, T &y)
    {
        const T *p = values + (place >> 2);
        if (place & 1)
            x = hw::get(p);
        if (place & 2)
            y = hw::get(p + 1);
    }
};

/* A tile to read. */
struct tile_of_group {
    const uint8_t *payload, *values;
    unsigned n, container, len;
    bool full;  /* see struct group */
    bool keeps; /* it keeps signs, and the following is set */
    tile_signs sign;
    const uint8_t *signs;
};

/* The lane's two rows of the bitvector at p, which may have any alignment. */
PICI_DEV columns load_rows(const uint8_t *p)
{
    const raw128 v = load_unaligned(p + 16 * hw::lane());
    return columns{{v.lo, v.hi}};
}

/* Has a tile of these rows a run of 256 nonzeros? */
PICI_DEV bool has_run(const columns &c)
{
    const unsigned ones = hw::ballot((c.word[0] & c.word[1]) == UINT64_MAX);
    return (ones & ones >> 1 & 0x55555555) != 0;
}

/* The rule that a tile breaks, or RULE_NONE, and the index of the offset, row or value. */
struct tile_breach {
    unsigned rule, sub;
};

/* Read a tile with a list of offsets. With DECODE its elements are left at stage. */
template <reading DO, class SUM, class T> PICI_DEV tile_breach list_read(const tile_of_group &t, T *dst, uint8_t *stage)
{
    constexpr unsigned GROUP = 2; /* offsets in flight, for each lane */
    const unsigned lane = hw::lane();
    const bool eight = t.container == PICI_OFFSETS8;
    const T *values = (const T *)t.values;
    unsigned end = 0;              /* a lane's: offsets up to the end of its run */
    unsigned next = 0, zero = t.n; /* the least offset that may come next; the index of the first zero */
    if (eight) {
        const unsigned count = lane < RUNS ? hw::load(t.payload + lane) : 0;
        end = warp_scan(count) + count;
        if (hw::shfl(end, LANES - 1) != t.n)
            return tile_breach{RULE_TILE_COUNT, 0};
    }
    if constexpr (DO == DECODE)
        stage_zeros<T>(stage);
    PICI_UNROLL_1
    for (unsigned first = 0; first < t.n; first += GROUP * LANES) {
        unsigned at[GROUP];
        T x[GROUP];
        bool good[GROUP];
        PICI_UNROLL
        for (unsigned k = 0; k < GROUP; k++) {
            const unsigned i = first + k * LANES + lane;
            const uint8_t *p = t.payload + (eight ? RUNS + i : i / 2 * 3 + i % 2);
            good[k] = i < t.n;
            x[k] = good[k] ? hw::load_once(values + i) : (T)1;
            at[k] = good[k] ? hw::load(p) : 0;
            if (!eight && good[k])
                at[k] = (at[k] | (unsigned)hw::load(p + 1) << 8) >> (i % 2 ? 4 : 0) & (TILE - 1);
        }
        PICI_UNROLL
        for (unsigned k = 0; k < GROUP; k++) {
            const unsigned i = first + k * LANES;
            if (eight) { /* its run is the first that ends after it */
                unsigned run = 0;
                PICI_UNROLL
                for (unsigned step = RUNS / 2; step; step /= 2)
                    run += i + lane >= hw::shfl(end, run + step - 1) ? step : 0;
                at[k] += run * RUN;
            }
            const unsigned before = hw::shfl_up(at[k] + 1, 1), least = lane ? before : next;
            const unsigned bad = hw::ballot(good[k] && (at[k] < least || at[k] >= t.len));
            if (bad) {
                const unsigned at_fault = hw::ffs(bad) - 1;
                const bool falls = hw::shfl(at[k] < least ? 1u : 0u, at_fault) != 0;
                return tile_breach{falls ? (unsigned)RULE_RISING : (unsigned)RULE_PAST_END, i + at_fault};
            }
            next = hw::shfl(at[k] + 1, LANES - 1);
            const unsigned zeros = hw::ballot(x[k] == 0);
            if (zeros && zero == t.n)
                zero = i + hw::ffs(zeros) - 1;
            if constexpr (DO == DECODE)
                if (good[k])
                    hw::put((T *)stage + at[k], x[k]);
        }
        if constexpr (DO == ADD)
            add_at<SUM>(dst, at, x, good);
    }
    if constexpr (DO == DECODE)
        hw::syncwarp();
    if (!eight && t.n % 2 && hw::load(t.payload + container_payload(PICI_OFFSETS12, t.n) - 1) > 15)
        return tile_breach{RULE_PADDING, 0};
    return zero < t.n ? tile_breach{RULE_STORED_ZERO, zero} : tile_breach{RULE_NONE, 0};
}

/* Check the words of a tile with a bitvector, whose n bits are set: all checks but those of the values. */
PICI_DEV tile_breach check_rows(const tile_of_group &t, const columns &c, unsigned n)
{
    /* exist: elements that exist from the lane's first row on */
    const unsigned row = 2 * hw::lane(), exist = t.len > row * COLS ? t.len - row * COLS : 0;
    const bool even = exist < COLS && c.word[0] >> exist != 0;
    const bool odd = exist < 2 * COLS && (exist <= COLS ? c.word[1] : c.word[1] >> (exist - COLS)) != 0;
    const unsigned evens = hw::ballot(even), any = hw::ballot(even || odd);
    if (any) {
        const unsigned lane = hw::ffs(any) - 1;
        return tile_breach{RULE_PAST_END, 2 * lane + (evens >> lane & 1 ? 0 : 1)};
    }
    return tile_breach{n != t.n                ? (unsigned)RULE_TILE_COUNT
                       : t.full && !has_run(c) ? (unsigned)RULE_CONTAINER
                                               : (unsigned)RULE_NONE,
                       0};
}

/* Check the elements of a raw tile, in the block or, if STAGED, in shared memory. */
template <bool STAGED, class T> PICI_DEV tile_breach check_elements(const tile_of_group &t, const T *values)
{
    unsigned n = 0, ones = 0;
    bool run = false;
    PICI_UNROLL_4
    for (unsigned first = 0; first < t.len; first += LANES) {
        const unsigned i = first + hw::lane();
        T x = 0;
        if (i < t.len)
            x = STAGED ? hw::get(values + i) : hw::load_once(values + i);
        const unsigned some = hw::ballot(x != 0);
        n += hw::popc(some);
        ones = (first % RUN ? ones : 0) + (some == hw::ALL ? (unsigned)LANES : 0u);
        run |= ones == RUN;
    }
    return tile_breach{n != t.n         ? (unsigned)RULE_TILE_COUNT
                       : t.full && !run ? (unsigned)RULE_CONTAINER
                                        : (unsigned)RULE_NONE,
                       0};
}

/* Check a tile that is not empty and has a valid descriptor; if it is valid, decode it or add it to d, as DO says.
 * stage may be used again at once. */
template <reading DO, class SUM, class T>
PICI_DEV tile_breach tile_of_group_read(const tile_of_group &t, const dense_tile<T> &d, uint8_t *stage)
{
    if (t.container <= PICI_OFFSETS8) {
        const tile_breach b = list_read<DO, SUM>(t, d.at, stage);
        if constexpr (DO == DECODE) {
            if (!b.rule)
                tile_put(d, stage);
            hw::syncwarp();
        }
        return b;
    }
    const T *from = (const T *)t.values;
    T *values = nullptr;
    tile_breach b;
    if (t.container == PICI_RAW) {
        if constexpr (DO == VERIFY) {
            b = check_elements<false>(t, from);
        } else {
            warp_copy_in<true, IN_ORDER>(values, stage, from, t.len);
            b = check_elements<true>(t, (const T *)values);
            if (!b.rule) {
                if constexpr (DO == DECODE)
                    tile_scatter_from(d, by_elements<T>(values, t.len));
                else
                    tile_add_from<SUM>(d, by_elements<T>(values, t.len));
            }
        }
    } else {
        const columns c = load_rows(t.payload);
        const unsigned before = tile_offset(c);
        b = check_rows(t, c, hw::shfl(before + hw::popc(c.word[0]) + hw::popc(c.word[1]), LANES - 1));
        if (!b.rule) {
            if constexpr (DO != VERIFY)
                stage_rows<T>(stage, c, before);
            if (hw::ballot(warp_copy_in<DO != VERIFY, IN_ORDER>(values, stage, from, t.n)))
                b = tile_breach{RULE_STORED_ZERO, warp_find_zero(from, t.n)};
            else if constexpr (DO == DECODE)
                tile_scatter_from(d, by_rows<T>(values, stage));
            else if constexpr (DO == ADD)
                tile_add_from<SUM>(d, by_rows<T>(values, stage));
        }
    }
    if constexpr (DO != VERIFY)
        hw::syncwarp();
    return b;
}

/* ---- reading the signs of a tile ---- */

template <class T> struct arith_xor;

/* Does reading with SUM set the signs of zeros? Adding does not. */
template <class SUM> constexpr bool SETS_SIGNS = false;
template <class T> constexpr bool SETS_SIGNS<arith_xor<T>> = true;

/* The first value of a tile that is -0.0; the number of values if there is none. */
template <class T> PICI_DEV unsigned find_unstorable(const tile_of_group &t)
{
    const unsigned n = container_stored(t.container, t.n, t.len);
    for (unsigned first = 0; first < n; first += LANES) {
        const unsigned i = first + hw::lane();
        const T x = i < n ? hw::load((const T *)t.values + i) : (T)1;
        const unsigned bad = hw::ballot(x == SIGN<T>);
        if (bad)
            return first + hw::ffs(bad) - 1;
    }
    return n;
}

/* The lane's two rows of a valid tile: which elements are stored, and which of them are negative zeros. */
template <class T> PICI_DEV columns stored_rows(columns &negative, const tile_of_group &t)
{
    const unsigned lane = hw::lane();
    const T *values = (const T *)t.values;
    columns c = {{0, 0}};
    negative = columns{{0, 0}};
    if (t.container == PICI_RAW) {
        PICI_UNROLL
        for (unsigned k = 0; k < 2; k++) {
            const unsigned row = (2 * lane + k) * COLS;
            PICI_UNROLL_1
            for (unsigned i = 0; i < COLS && row + i < t.len; i++) {
                const T x = hw::load(values + row + i);
                c.word[k] |= x != 0 ? UINT64_C(1) << i : 0;
                negative.word[k] |= x == SIGN<T> ? UINT64_C(1) << i : 0;
            }
        }
        return c;
    }
    if (t.container == PICI_BITVECTOR)
        c = load_rows(t.payload);
    for (unsigned i = 0, run = 0, left = 0; t.container <= PICI_OFFSETS8 && i < t.n; i++) {
        unsigned at;
        if (t.container == PICI_OFFSETS8) {
            for (left += i ? 0 : hw::load(t.payload); !left; left = hw::load(t.payload + run))
                run++;
            left--;
            at = run * RUN + hw::load(t.payload + RUNS + i);
        } else {
            const uint8_t *p = t.payload + i / 2 * 3 + i % 2;
            at = (hw::load(p) | (unsigned)hw::load(p + 1) << 8) >> (i % 2 ? 4 : 0) & (TILE - 1);
        }
        PICI_UNROLL
        for (unsigned k = 0; k < 2; k++)
            if (at / COLS == 2 * lane + k)
                c.word[k] |= UINT64_C(1) << at % COLS;
    }
    unsigned rank = tile_offset(c);
    each_bit(c, [&](unsigned k, unsigned bit) {
        if (hw::load(values + rank++) == SIGN<T>)
            negative.word[k] |= UINT64_C(1) << bit;
    });
    return c;
}

/* Check the signs of a tile of a version-2 block that is valid otherwise and has been read to d, and set them there if
 * DO and SUM say so. For a tile that does not keep signs: check that it should not. */
template <reading DO, class SUM, class T>
PICI_DEV tile_breach tile_of_group_signs(const tile_of_group &t, const dense_tile<T> &d)
{
    const unsigned stored = container_stored(t.container, t.n, t.len), unstorable = find_unstorable<T>(t);
    if (t.keeps && unstorable < stored)
        return tile_breach{RULE_STORED_ZERO, unstorable};
    if (!t.keeps && unstorable == stored)
        return tile_breach{RULE_NONE, 0};
    columns negative;
    columns c = stored_rows<T>(negative, t);
    tile_signs s = t.sign;
    if (t.keeps) {
        if (!signs_read(negative, s, t.signs, zeros_of(c, t.len)))
            return tile_breach{RULE_SIGNS, 0};
    } else {
        PICI_UNROLL
        for (unsigned k = 0; k < 2; k++)
            c.word[k] &= ~negative.word[k];
        signs_measure(s, zeros_of(c, t.len), negative);
    }
    const unsigned n = tile_nnz(c);
    const columns both = {{c.word[0] | negative.word[0], c.word[1] | negative.word[1]}};
    const unsigned with = cost_with_signs(n, has_run(c), s, LOG2<T>);
    const unsigned without = cost_of(n + negative_zeros(s), t.len, LOG2<T>, has_run(both));
    if ((with < without) != t.keeps)
        return tile_breach{RULE_SIGNS, 0};
    if constexpr (DO == DECODE || (DO == ADD && SETS_SIGNS<SUM>)) {
        if (t.keeps) {
            hw::syncwarp(); /* the zeros were stored by other lanes */
            each_bit(negative, [&](unsigned k, unsigned bit) {
                T *const at = d.at + (2 * hw::lane() + k) * COLS + bit;
                if constexpr (DO == DECODE)
                    hw::store(at, SIGN<T>);
                else
                    hw::store(at, (T)(hw::load(at) ^ SIGN<T>));
            });
        }
    }
    return tile_breach{RULE_NONE, 0};
}

/* A warp takes several neighbouring tiles at a time, because each time it reads their group's descriptors; but few
 * enough that all warps have work. */
PICI_DEV unsigned tiles_at_a_time(uint64_t tiles, uint64_t shares)
{
    unsigned each = GROUP_TILES;
    while (each > 1 && tiles / each < 4 * shares)
        each /= 2;
    return each;
}

/* Can the signs of tile i of group `number` be read, and matter? wrong: the first fault of the share so far. Of several
 * values that a tile must not store, the first is reported, whether it is +0.0 or -0.0. */
PICI_DEV bool before_fault(uint64_t wrong, uint64_t number, unsigned i)
{
    const uint64_t order = ~wrong << 2 >> 2, tile = number << 8 | GROUP_TILE << 5 | i;
    return !wrong || (~wrong >> 62 == FAULT_BODY &&
                      (tile < order >> 17 || (tile == order >> 17 && (order >> 12 & 31) == RULE_STORED_ZERO)));
}

/* Check, and set as DO and SUM say, the signs of a share of a version-2 block that has been read otherwise. bytes,
 * count, units: as in hybrid_view. wrong: the first fault so far. Returns a fault. Not inlined, and called with few
 * values in registers: blocks of version 1 must not pay for it. */
template <reading DO, class SUM, class T>
PICI_DEV_COLD uint64_t signs_of_share(const uint8_t *bytes, uint64_t count, uint64_t units, T *dst, uint64_t share,
                                      uint64_t shares, uint64_t wrong)
{
    const hybrid_view h = {bytes, count, units, true};
    const unsigned each = tiles_at_a_time(tiles_of(count), shares);
    PICI_UNROLL_1
    for (uint64_t t = share * each; t < tiles_of(count); t += shares * each) {
        const uint64_t number = t / GROUP_TILES;
        const unsigned first = (unsigned)(t % GROUP_TILES);
        group g;
        if (group_open(g, h, LOG2<T>, number))
            continue;
        PICI_UNROLL_1
        for (unsigned i = first; i < first + each && i < g.tiles; i++) {
            tile_of_group tile;
            tile.n = hw::shfl(g.n, i);
            tile.keeps = g.signs >> i & 1;
            if ((tile.n == 0 && !tile.keeps) || !before_fault(wrong, number, i))
                continue;
            tile.container = hw::shfl(g.container, i);
            tile.payload = g.record + hw::shfl(g.payload, i);
            tile.values = g.record + hw::shfl(g.own_values, i);
            tile.full = false;
            tile.len = elements_of(count, t - first + i);
            tile.signs = g.record + hw::shfl(g.own_signs, i);
            tile.sign = tile_signs{hw::shfl(g.sign.zeros, i), hw::shfl(g.sign.listed, i), hw::shfl(g.sign.unary, i),
                                   hw::shfl(g.sign.flip ? 1u : 0u, i) != 0};
            dense_tile<T> d = dense_tile<T>();
            if constexpr (DO != VERIFY)
                d = tile_at(dst, count, t - first + i);
            const tile_breach b = tile_of_group_signs<DO, SUM>(tile, d);
            if (b.rule)
                wrong = first_fault(wrong, group_fault(number, GROUP_TILE, i, b.rule, b.sub));
        }
    }
    return wrong;
}

/* What a share of a hybrid block adds to its number of nonzeros if a tile keeps signs. A block that fits in memory has
 * fewer nonzeros, and no more shares than leave room for this. */
constexpr uint64_t SIGNS_SEEN = UINT64_C(1) << 44;

/* Read share number `share` of `shares` of a hybrid block. Returns the first fault of the share. nnz: out: the
 * nonzeros of its tiles, plus SIGNS_SEEN if one keeps signs. */
template <reading DO, class SUM, class T>
PICI_DEV uint64_t warp_hybrid(uint64_t &nnz, const block_view &v, T *dst, uint64_t share, uint64_t shares,
                              uint8_t *stage)
{
    const hybrid_view h = hybrid_of(v);
    const unsigned each = tiles_at_a_time(v.tiles, shares);
    const uint64_t step = shares * each;
    uint64_t wrong = 0;
    nnz = 0;
    PICI_UNROLL_1
    for (uint64_t t = share * each; t < tiles_of(h.count); t += step) {
        const unsigned first = (unsigned)(t % GROUP_TILES);
        group g;
        const uint64_t f = group_open(g, h, LOG2<T>, t / GROUP_TILES);
        if (f) {
            wrong = first_fault(wrong, f);
            continue;
        }
        nnz += warp_sum(hw::lane() - first < each ? g.n : 0);
        if (g.signs && nnz < SIGNS_SEEN)
            nnz += SIGNS_SEEN;
        const unsigned end = g.tiles < first + each ? g.tiles : first + each;
        const unsigned kind = g.n | g.container << 16 | (g.full ? 1u : 0u) << 18; /* three values in one register */
        PICI_UNROLL_1
        for (unsigned i = first; i < end; i++) {
            const unsigned its = hw::shfl(kind, i);
            tile_of_group tile;
            tile.n = its & 0xffff;
            tile.container = its >> 16 & 3;
            tile.payload = g.record + hw::shfl(g.payload, i);
            tile.values = g.record + hw::shfl(g.own_values, i);
            tile.full = its >> 18 != 0;
            tile.len = elements_of(h.count, t - first + i);
            dense_tile<T> d = dense_tile<T>();
            if constexpr (DO != VERIFY)
                d = tile_at(dst, h.count, t - first + i);
            if (tile.n == 0) {
                if constexpr (DO == DECODE)
                    tile_put(d, nullptr);
                continue;
            }
            const tile_breach b = tile_of_group_read<DO, SUM>(tile, d, stage);
            if (b.rule)
                wrong = first_fault(wrong, group_fault(t / GROUP_TILES, GROUP_TILE, i, b.rule, b.sub));
        }
    }
    if (h.version2)
        wrong = signs_of_share<DO, SUM, T>(h.bytes, h.count, h.units, dst, share, shares, wrong);
    return wrong;
}

/* Called by a warp: the finding for a fault that VERIFY found, in a block of any format. */
PICI_DEV finding warp_explain(const block_view &v, uint64_t f)
{
    if (!f || ~f >> 62 != FAULT_BODY || v.format != PICI_HYBRID)
        return explain(v, f);
    const uint64_t order = ~f << 2 >> 2, number = order >> 25;
    const unsigned stage = order >> 22 & 7, i = order >> 17 & 31, rule = order >> 12 & 31, sub = order & 4095;
    finding x = {RULE_TOTAL, 16, PICI_NO_TILE};
    if (number == groups_of(v.tiles)) {
        if (stage == GROUP_ENTRY) {
            x.rule = RULE_SIGNS_VERSION;
            x.at = 4;
        }
        return x;
    }
    group g;
    group_open(g, hybrid_of(v), v.width_log2, number); /* sets what was read before the fault */
    const uint64_t record = (uint64_t)(g.record - v.bytes),
                   descriptor = record + 4 + hw::popc(g.bits & ((1u << i) - 1));
    const uint64_t payload = record + hw::shfl(g.payload, i), values = record + hw::shfl(g.own_values, i);
    const unsigned n = hw::shfl(g.n, i), container = hw::shfl(g.container, i);
    x.tile = g.first;
    switch (stage) {
    case GROUP_FIRST:
        x.rule = RULE_DIRECTORY;
        x.at = v.index_offset;
        break;
    case GROUP_ENTRY:
        x.rule = RULE_DIRECTORY;
        x.at = v.index_offset + (number + 1) * v.index_width;
        x.tile = g.first + GROUP_TILES;
        break;
    case GROUP_OCCUPANCY:
        x.rule = RULE_OCCUPANCY;
        x.at = record;
        break;
    case GROUP_DESCRIPTORS:
    case GROUP_LENGTH:
        x.rule = RULE_RECORD_LENGTH;
        x.at = record;
        break;
    case GROUP_DESCRIPTOR:
        x.rule = rule == RULE_SIGNS ? (uint32_t)RULE_SIGNS : (uint32_t)RULE_DESCRIPTOR;
        x.at = rule == RULE_SIGNS ? record + sign_descriptor_at(g, i) : descriptor;
        x.tile = g.first + i;
        break;
    case GROUP_PADDING:
        x.rule = RULE_PADDING;
        x.at = record + (sub < LANES / 2 ? g.metadata + sub : g.values + g.stored + sub - LANES / 2);
        x.tile = PICI_NO_TILE;
        break;
    default:
        x.rule = rule;
        x.tile = g.first + i;
        x.at = rule == RULE_SIGNS && g.signs >> i & 1              ? record + sign_descriptor_at(g, i)
               : rule == RULE_SIGNS                                ? descriptor
               : rule == RULE_TILE_COUNT || rule == RULE_CONTAINER ? descriptor
               : rule == RULE_STORED_ZERO                          ? values + ((uint64_t)sub << v.width_log2)
               : rule == RULE_PADDING                              ? payload + container_payload(container, n) - 1
               : container == PICI_OFFSETS12                       ? payload + sub / 2 * 3 + sub % 2
               : container == PICI_OFFSETS8                        ? payload + RUNS + sub
                                                                   : payload + 8 * sub;
    }
    return x;
}

} // namespace pici

#endif
