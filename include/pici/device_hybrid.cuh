/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading the tiles of hybrid and packed blocks by warps. A tile's bits and offsets are in element order. So a ballot
 * gives half a word, and the lanes of a row access neighbouring places in shared memory. Part of pici/device.cuh.
 * Specifications: formats/hybrid.md, formats/packed.md. */
#ifndef PICI_DEVICE_HYBRID_CUH
#define PICI_DEVICE_HYBRID_CUH

#include "pici/device_runs.cuh"

namespace pici {

/* ---- reading a tile ---- */

/* A reader's stage holds a tile's values. For hybrid, the end of their room also holds the words of a bitvector: a tile
 * that needs the whole room would be raw. Then come the numbers of values before each half of a word, or for bitmap the
 * bits and entries of the next tile. Last come two open runs of a packed block. To verify a block, the stage has only
 * these. */
constexpr unsigned VERIFY_STAGE_BYTES = 2 * sizeof(opened_run);
template <class T> constexpr unsigned READ_STAGE_BYTES = STAGE_BYTES<T> + AHEAD_BYTES + VERIFY_STAGE_BYTES;
static_assert(VERIFY_STAGE_BYTES % 16 == 0 && (STAGE_BYTES<uint8_t> + AHEAD_BYTES) % 16 == 0, "all are aligned");
static_assert(AHEAD_BYTES >= 2 * ROWS * 2, "either has room");
template <class T> constexpr unsigned STAGED_ROWS = STAGE_BYTES<T> - TILE_BITS_BYTES;

/* The interface of by_columns for a tile whose words are rows. The values of a row are consecutive. */
template <class T> struct by_rows {
    static constexpr unsigned SCATTER = 16, ADD = by_columns<T>::ADD;
    const T *values;       /* staged */
    const uint32_t *half;  /* the half of row 0's word with the lane's pair */
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
        const unsigned position = 2 * (row + r), by = 2 * (hw::lane() % 16);
        const uint32_t bits = hw::get(half + position);
        return (hw::get(ranks + position) + hw::popc(bits & ((1u << by) - 1))) << 2 | (bits >> by & 3);
    }
    PICI_DEV_MEMBER void take(unsigned place, T &value, T &y)
    {
        const T *p = values + (place >> 2);
        if (place & 1)
            value = hw::get(p);
        if (place & 2)
            y = hw::get(p + (place & 1));
    }
};

/* Store the lane's two rows, and the numbers of values before each half of them, where by_rows reads them. before: a
 * lane's, the number of values before the lane's rows. */
template <class T> PICI_DEV void stage_rows(uint8_t *stage, const columns &words, unsigned before)
{
    uint64_t ranks = 0;
    PICI_UNROLL
    for (unsigned k = 0; k < 4; k++) {
        ranks |= (uint64_t)before << 16 * k;
        before += hw::popc((uint32_t)(words.word[k / 2] >> 32 * (k % 2)));
    }
    hw::put((raw128 *)(stage + STAGED_ROWS<T>)+hw::lane(), raw128{words.word[0], words.word[1]});
    hw::put((uint64_t *)(stage + STAGE_BYTES<T>)+hw::lane(), ranks);
}

/* The interface of by_columns for a raw tile, which stores all its elements, zeros included. */
template <class T> struct by_elements {
    /* few rows at a time: such tiles are rare, and long loops make compilation slow */
    static constexpr unsigned SCATTER = 8, ADD = 4;
    const T *values; /* staged */
    unsigned left, row;

    PICI_DEV_MEMBER by_elements(const T *staged, unsigned elements) : values(staged), left(elements), row(0)
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
    PICI_DEV_MEMBER void take(unsigned place, T &value, T &y)
    {
        const T *p = values + (place >> 2);
        if (place & 1)
            value = hw::get(p);
        if (place & 2)
            y = hw::get(p + 1);
    }
};

/* A tile to read. */
struct tile_of_group {
    const uint8_t *payload, *values;
    unsigned n, container, len;
    bool full;  /* see struct group */
    bool keeps; /* it keeps signs, and the next members are set */
    tile_signs sign;
    const uint8_t *signs;
};

/* The lane's two rows of the bitvector at `from`, at any alignment. */
PICI_DEV columns load_rows(const uint8_t *from)
{
    const raw128 words = load_unaligned(from + 16 * hw::lane());
    return columns{{words.lo, words.hi}};
}

/* Does a tile of these rows have a run of 256 nonzeros? */
PICI_DEV bool has_run(const columns &words)
{
    const unsigned ones = hw::ballot((words.word[0] & words.word[1]) == UINT64_MAX);
    return (ones & ones >> 1 & 0x55555555) != 0;
}

/* The rule that a tile breaks, or RULE_NONE; and the index of the offset, row or value. */
struct tile_breach {
    unsigned rule, sub;
};

/* Read a tile with a list of offsets. With DECODE, leave its elements at stage. FROM: plain_values or packed_values. */
template <reading DO, class SUM, class T, class FROM>
PICI_DEV tile_breach list_read(const tile_of_group &tile, T *dst, uint8_t *stage, const FROM &from)
{
    constexpr unsigned GROUP = 2; /* offsets in flight per lane */
    const unsigned lane = hw::lane();
    const bool eight = tile.container == PICI_OFFSETS8;
    unsigned end = 0;                 /* a lane's: offsets up to the end of its run */
    unsigned next = 0, zero = tile.n; /* the least valid next offset; the index of the first zero */
    if (eight) {
        const unsigned count = lane < RUNS ? hw::load(tile.payload + lane) : 0;
        end = warp_scan(count) + count;
        if (hw::shfl(end, LANES - 1) != tile.n)
            return tile_breach{RULE_TILE_COUNT, 0};
    }
    if constexpr (DO == DECODE)
        stage_zeros<T>(stage);
    PICI_UNROLL_1
    for (unsigned first = 0; first < tile.n; first += GROUP * LANES) {
        unsigned place[GROUP];
        T value[GROUP];
        bool good[GROUP];
        PICI_UNROLL
        for (unsigned k = 0; k < GROUP; k++) {
            const unsigned i = first + k * LANES + lane;
            const uint8_t *payload = tile.payload + (eight ? RUNS + i : i / 2 * 3 + i % 2);
            good[k] = i < tile.n;
            value[k] = good[k] ? from.load(i) : (T)1;
            place[k] = good[k] ? hw::load(payload) : 0;
            if (!eight && good[k])
                place[k] = (place[k] | (unsigned)hw::load(payload + 1) << 8) >> (i % 2 ? 4 : 0) & (TILE - 1);
        }
        PICI_UNROLL
        for (unsigned k = 0; k < GROUP; k++) {
            const unsigned i = first + k * LANES;
            if (eight) { /* its run is the first one that ends after it */
                unsigned run = 0;
                PICI_UNROLL
                for (unsigned step = RUNS / 2; step; step /= 2)
                    run += i + lane >= hw::shfl(end, run + step - 1) ? step : 0;
                place[k] += run * RUN;
            }
            const unsigned before = hw::shfl_up(place[k] + 1, 1), least = lane ? before : next;
            const unsigned bad = hw::ballot(good[k] && (place[k] < least || place[k] >= tile.len));
            if (bad) {
                const unsigned at_fault = hw::ffs(bad) - 1;
                const bool falls = hw::shfl(place[k] < least ? 1u : 0u, at_fault) != 0;
                return tile_breach{falls ? (unsigned)RULE_RISING : (unsigned)RULE_PAST_END, i + at_fault};
            }
            next = hw::shfl(place[k] + 1, LANES - 1);
            const unsigned zeros = hw::ballot(value[k] == 0);
            if (zeros && zero == tile.n)
                zero = i + hw::ffs(zeros) - 1;
            if constexpr (DO == DECODE)
                if (good[k])
                    hw::put((T *)stage + place[k], value[k]);
        }
        if constexpr (DO == ADD)
            add_at<SUM>(dst, place, value, good);
    }
    if constexpr (DO == DECODE)
        hw::syncwarp();
    if (!eight && tile.n % 2 && hw::load(tile.payload + container_payload(PICI_OFFSETS12, tile.n) - 1) > 15)
        return tile_breach{RULE_PADDING, 0};
    return zero < tile.n ? tile_breach{RULE_STORED_ZERO, zero} : tile_breach{RULE_NONE, 0};
}

/* Check the words of a tile with a bitvector, except the values. count: the number of set bits. */
PICI_DEV tile_breach check_rows(const tile_of_group &tile, const columns &words, unsigned count)
{
    /* exist: elements that exist from the lane's first row on */
    const unsigned row = 2 * hw::lane(), exist = tile.len > row * COLS ? tile.len - row * COLS : 0;
    const bool even = exist < COLS && words.word[0] >> exist != 0;
    const bool odd = exist < 2 * COLS && (exist <= COLS ? words.word[1] : words.word[1] >> (exist - COLS)) != 0;
    const unsigned evens = hw::ballot(even), any = hw::ballot(even || odd);
    if (any) {
        const unsigned lane = hw::ffs(any) - 1;
        return tile_breach{RULE_PAST_END, 2 * lane + (evens >> lane & 1 ? 0 : 1)};
    }
    return tile_breach{count != tile.n                ? (unsigned)RULE_TILE_COUNT
                       : tile.full && !has_run(words) ? (unsigned)RULE_CONTAINER
                                                      : (unsigned)RULE_NONE,
                       0};
}

/* Check the elements of a raw tile: element(i) is element i, for any lane. */
template <class T, class ELEMENT> PICI_DEV tile_breach check_elements(const tile_of_group &tile, ELEMENT element)
{
    unsigned count = 0, ones = 0;
    bool run = false;
    PICI_UNROLL_4
    for (unsigned first = 0; first < tile.len; first += LANES) {
        const unsigned i = first + hw::lane();
        T value = 0;
        if (i < tile.len)
            value = element(i);
        const unsigned some = hw::ballot(value != 0);
        count += hw::popc(some);
        ones = (first % RUN ? ones : 0) + (some == hw::ALL ? (unsigned)LANES : 0u);
        run |= ones == RUN;
    }
    return tile_breach{count != tile.n     ? (unsigned)RULE_TILE_COUNT
                       : tile.full && !run ? (unsigned)RULE_CONTAINER
                                           : (unsigned)RULE_NONE,
                       0};
}

/* Check a tile that is not empty and has a valid descriptor, and whose values are in FROM. If it is valid, decode it or
 * add it to dense, depending on DO. stage may be used again at once. */
template <reading DO, class SUM, class T, class FROM>
PICI_DEV tile_breach tile_of_group_read(const tile_of_group &tile, const dense_tile<T> &dense, uint8_t *stage,
                                        const FROM &from)
{
    if (tile.container <= PICI_OFFSETS8) {
        const tile_breach breach = list_read<DO, SUM>(tile, dense.at, stage, from);
        if constexpr (DO == DECODE) {
            if (!breach.rule)
                tile_put(dense, stage);
            hw::syncwarp();
        }
        return breach;
    }
    T *values = nullptr;
    tile_breach breach;
    if (tile.container == PICI_RAW) {
        if constexpr (DO == VERIFY) {
            breach = check_elements<T>(tile, [&](unsigned i) { return from.load(i); });
        } else {
            from.template copy_in<true>(values, stage, tile.len);
            breach = check_elements<T>(tile, [&](unsigned i) { return hw::get((const T *)values + i); });
            if (!breach.rule) {
                if constexpr (DO == DECODE)
                    tile_scatter_from(dense, by_elements<T>(values, tile.len));
                else
                    tile_add_from<SUM>(dense, by_elements<T>(values, tile.len));
            }
        }
    } else {
        const columns words = load_rows(tile.payload);
        const unsigned before = tile_offset(words);
        breach =
            check_rows(tile, words, hw::shfl(before + hw::popc(words.word[0]) + hw::popc(words.word[1]), LANES - 1));
        if (!breach.rule) {
            if constexpr (DO != VERIFY)
                stage_rows<T>(stage, words, before);
            if (hw::ballot(from.template copy_in<DO != VERIFY>(values, stage, tile.n)))
                breach = tile_breach{RULE_STORED_ZERO, from.find_zero(tile.n)};
            else if constexpr (DO == DECODE)
                tile_scatter_from(dense, by_rows<T>(values, stage));
            else if constexpr (DO == ADD)
                tile_add_from<SUM>(dense, by_rows<T>(values, stage));
        }
    }
    if constexpr (DO != VERIFY)
        hw::syncwarp();
    return breach;
}

/* tile_of_group_read for a hybrid block. */
template <reading DO, class SUM, class T>
PICI_DEV tile_breach tile_of_group_read(const tile_of_group &tile, const dense_tile<T> &dense, uint8_t *stage)
{
    return tile_of_group_read<DO, SUM>(tile, dense, stage, plain_values<T>{(const T *)tile.values});
}

/* ---- reading the signs of a tile ---- */

template <class T> struct arith_xor;

/* Does reading with SUM set the signs of zeros? Adding does not. */
template <class SUM> constexpr bool SETS_SIGNS = false;
template <class T> constexpr bool SETS_SIGNS<arith_xor<T>> = true;

/* The index of a tile's first value that is -0.0, or the number of values if there is none. */
template <class T, class FROM> PICI_DEV unsigned find_unstorable(const tile_of_group &tile, const FROM &from)
{
    const unsigned count = container_stored(tile.container, tile.n, tile.len);
    for (unsigned first = 0; first < count; first += LANES) {
        const unsigned i = first + hw::lane();
        const T value = i < count ? from.load_again(i) : (T)1;
        const unsigned bad = hw::ballot(value == SIGN<T>);
        if (bad)
            return first + hw::ffs(bad) - 1;
    }
    return count;
}

/* The lane's two rows of a valid tile: its stored elements. negative: those that are negative zeros. */
template <class T, class FROM>
PICI_DEV columns stored_rows(columns &negative, const tile_of_group &tile, const FROM &from)
{
    const unsigned lane = hw::lane();
    columns words = {{0, 0}};
    negative = columns{{0, 0}};
    if (tile.container == PICI_RAW) {
        PICI_UNROLL
        for (unsigned k = 0; k < 2; k++) {
            const unsigned row = (2 * lane + k) * COLS;
            PICI_UNROLL_1
            for (unsigned i = 0; i < COLS && row + i < tile.len; i++) {
                const T value = from.load_again(row + i);
                words.word[k] |= value != 0 ? UINT64_C(1) << i : 0;
                negative.word[k] |= value == SIGN<T> ? UINT64_C(1) << i : 0;
            }
        }
        return words;
    }
    if (tile.container == PICI_BITVECTOR)
        words = load_rows(tile.payload);
    for (unsigned i = 0, run = 0, left = 0; tile.container <= PICI_OFFSETS8 && i < tile.n; i++) {
        unsigned place;
        if (tile.container == PICI_OFFSETS8) {
            for (left += i ? 0 : hw::load(tile.payload); !left; left = hw::load(tile.payload + run))
                run++;
            left--;
            place = run * RUN + hw::load(tile.payload + RUNS + i);
        } else {
            const uint8_t *payload = tile.payload + i / 2 * 3 + i % 2;
            place = (hw::load(payload) | (unsigned)hw::load(payload + 1) << 8) >> (i % 2 ? 4 : 0) & (TILE - 1);
        }
        PICI_UNROLL
        for (unsigned k = 0; k < 2; k++)
            if (place / COLS == 2 * lane + k)
                words.word[k] |= UINT64_C(1) << place % COLS;
    }
    unsigned rank = tile_offset(words);
    each_bit(words, [&](unsigned k, unsigned bit) {
        if (from.load_again(rank++) == SIGN<T>)
            negative.word[k] |= UINT64_C(1) << bit;
    });
    return words;
}

/* Check the signs of a tile of a version-2 block that is otherwise valid and has been read to dense. Set them there,
 * depending on DO and SUM. For a tile that does not keep signs: check that it should not. */
template <reading DO, class SUM, class T, class FROM>
PICI_DEV tile_breach tile_of_group_signs(const tile_of_group &tile, const dense_tile<T> &dense, const FROM &from)
{
    const unsigned stored = container_stored(tile.container, tile.n, tile.len);
    const unsigned unstorable = find_unstorable<T>(tile, from);
    if (tile.keeps && unstorable < stored)
        return tile_breach{RULE_STORED_ZERO, unstorable};
    if (!tile.keeps && unstorable == stored)
        return tile_breach{RULE_NONE, 0};
    columns negative;
    columns words = stored_rows<T>(negative, tile, from);
    tile_signs signs = tile.sign;
    if (tile.keeps) {
        if (!signs_read(negative, signs, tile.signs, zeros_of(words, tile.len)))
            return tile_breach{RULE_SIGNS, 0};
    } else {
        PICI_UNROLL
        for (unsigned k = 0; k < 2; k++)
            words.word[k] &= ~negative.word[k];
        signs_measure(signs, zeros_of(words, tile.len), negative);
    }
    const unsigned count = tile_nnz(words);
    const columns both = {{words.word[0] | negative.word[0], words.word[1] | negative.word[1]}};
    const unsigned with = cost_with_signs(count, has_run(words), signs, LOG2<T>);
    const unsigned without = cost_of(count + negative_zeros(signs), tile.len, LOG2<T>, has_run(both));
    if ((with < without) != tile.keeps)
        return tile_breach{RULE_SIGNS, 0};
    if constexpr (DO == DECODE || (DO == ADD && SETS_SIGNS<SUM>)) {
        if (tile.keeps) {
            hw::syncwarp(); /* other lanes have stored the zeros */
            each_bit(negative, [&](unsigned k, unsigned bit) {
                T *const at = dense.at + (2 * hw::lane() + k) * COLS + bit;
                if constexpr (DO == DECODE)
                    hw::store(at, SIGN<T>);
                else
                    hw::store(at, (T)(hw::load(at) ^ SIGN<T>));
            });
        }
    }
    return tile_breach{RULE_NONE, 0};
}

/* tile_of_group_signs for a hybrid block. */
template <reading DO, class SUM, class T>
PICI_DEV tile_breach tile_of_group_signs(const tile_of_group &tile, const dense_tile<T> &dense)
{
    return tile_of_group_signs<DO, SUM>(tile, dense, plain_values<T>{(const T *)tile.values});
}

/* A warp takes several neighbouring tiles at a time, because each time it reads their group's descriptors. But they
 * must be few enough to give all warps work. */
PICI_DEV unsigned tiles_at_a_time(uint64_t tiles, uint64_t shares)
{
    unsigned each = GROUP_TILES;
    while (each > 1 && tiles / each < 4 * shares)
        each /= 2;
    return each;
}

/* Can the signs of tile i of group `number` be read, and do they matter? wrong: the first fault of the share so far. If
 * a tile stores several forbidden values, the first is reported, +0.0 or -0.0. */
PICI_DEV bool before_fault(uint64_t wrong, uint64_t number, unsigned i)
{
    const uint64_t order = ~wrong << 2 >> 2, at = order >> FAULT_TILE_AT,
                   tile = (~group_fault(number, GROUP_TILE, i) << 2 >> 2) >> FAULT_TILE_AT;
    return !wrong || (~wrong >> 62 == FAULT_BODY &&
                      (tile < at || (tile == at && (order >> FAULT_RULE_AT & 31) == RULE_STORED_ZERO)));
}

/* Check the signs of a share of a version-2 block that has otherwise been read, and set them depending on DO and SUM.
 * bytes, count, units, packed: see hybrid_view. runs: see open_runs, for PACKED. wrong: the first fault so far. Returns
 * a fault. Not inlined, and called with few values in registers: blocks of version 1 must not pay for it. */
template <bool PACKED, reading DO, class SUM, class T>
PICI_DEV_COLD uint64_t signs_of_share(const uint8_t *bytes, uint64_t count, uint64_t units, T *dst, uint64_t share,
                                      uint64_t shares, uint64_t wrong, unsigned packed, opened_run *runs)
{
    const hybrid_view hybrid = {bytes, count, units, true, packed};
    const unsigned each = tiles_at_a_time(tiles_of(count), shares);
    PICI_UNROLL_1
    for (uint64_t tile_number = share * each; tile_number < tiles_of(count); tile_number += shares * each) {
        const uint64_t number = tile_number / GROUP_TILES;
        const unsigned first = (unsigned)(tile_number % GROUP_TILES);
        group made_group;
        if (group_open<PACKED>(made_group, hybrid, LOG2<T>, number))
            continue;
        open_runs open = {runs};
        PICI_UNROLL_1
        for (unsigned i = first; i < first + each && i < made_group.tiles; i++) {
            tile_of_group tile;
            tile.n = hw::shfl(made_group.n, i);
            tile.keeps = made_group.signs >> i & 1;
            if ((tile.n == 0 && !tile.keeps) || !before_fault(wrong, number, i))
                continue;
            tile.container = hw::shfl(made_group.container, i);
            tile.payload = made_group.record + hw::shfl(made_group.payload, i);
            tile.values = made_group.record + hw::shfl(made_group.own_values, i);
            tile.full = false;
            tile.len = elements_of(count, tile_number - first + i);
            tile.signs = made_group.record + hw::shfl(made_group.own_signs, i);
            tile.sign =
                tile_signs{hw::shfl(made_group.sign.zeros, i), hw::shfl(made_group.sign.listed, i),
                           hw::shfl(made_group.sign.unary, i), hw::shfl(made_group.sign.flip ? 1u : 0u, i) != 0};
            dense_tile<T> dense = dense_tile<T>();
            if constexpr (DO != VERIFY)
                dense = tile_at(dst, count, tile_number - first + i);
            tile_breach breach;
            if constexpr (PACKED) {
                const unsigned first_value = hw::shfl(made_group.own_values, i);
                if (open_runs_of<DECODE, T>(open, made_group, packed, number, first_value,
                                            container_stored(tile.container, tile.n, tile.len)))
                    continue;
                breach =
                    tile_of_group_signs<DO, SUM>(tile, dense, packed_values<T>{runs, first_value, packed % ONE_LEVEL});
            } else {
                breach = tile_of_group_signs<DO, SUM>(tile, dense);
            }
            if (breach.rule)
                wrong = first_fault(wrong, group_fault(number, GROUP_TILE, i, breach.rule, breach.sub));
        }
    }
    return wrong;
}

/* Added to a share's nonzeros of a hybrid block if a tile keeps signs. A block that fits in memory has fewer nonzeros,
 * and few enough shares to leave room for this. */
constexpr uint64_t SIGNS_SEEN = UINT64_C(1) << 44;

/* Read share number `share` of `shares` of a hybrid block or, if PACKED, of a packed one. Returns the first fault of
 * the share. nonzeros: out: the nonzeros of its tiles, plus SIGNS_SEEN if one keeps signs. */
template <bool PACKED, reading DO, class SUM, class T>
PICI_DEV uint64_t warp_groups(uint64_t &nonzeros, const hybrid_view &hybrid, T *dst, uint64_t share, uint64_t shares,
                              uint8_t *stage)
{
    const unsigned each = tiles_at_a_time(tiles_of(hybrid.count), shares);
    const uint64_t step = shares * each;
    opened_run *const runs = (opened_run *)(DO == VERIFY ? stage : stage + READ_STAGE_BYTES<T> - VERIFY_STAGE_BYTES);
    uint64_t wrong = 0;
    nonzeros = 0;
    PICI_UNROLL_1
    for (uint64_t tile_number = share * each; tile_number < tiles_of(hybrid.count); tile_number += step) {
        const unsigned first = (unsigned)(tile_number % GROUP_TILES);
        group made_group;
        const uint64_t fault = group_open<PACKED>(made_group, hybrid, LOG2<T>, tile_number / GROUP_TILES);
        if (fault) {
            wrong = first_fault(wrong, fault);
            continue;
        }
        nonzeros += warp_sum(hw::lane() - first < each ? made_group.n : 0);
        if (made_group.signs && nonzeros < SIGNS_SEEN)
            nonzeros += SIGNS_SEEN;
        const unsigned end = made_group.tiles < first + each ? made_group.tiles : first + each;
        const unsigned kind = made_group.n | made_group.container << 16 |
                              (made_group.full ? 1u : 0u) << 18; /* three values in one register */
        open_runs open = {runs};
        PICI_UNROLL_1
        for (unsigned i = first; i < end; i++) {
            const unsigned its = hw::shfl(kind, i);
            tile_of_group tile;
            tile.n = its & 0xffff;
            tile.container = its >> 16 & 3;
            tile.payload = made_group.record + hw::shfl(made_group.payload, i);
            tile.values = made_group.record + hw::shfl(made_group.own_values, i);
            tile.full = its >> 18 != 0;
            tile.len = elements_of(hybrid.count, tile_number - first + i);
            dense_tile<T> dense = dense_tile<T>();
            if constexpr (DO != VERIFY)
                dense = tile_at(dst, hybrid.count, tile_number - first + i);
            if (tile.n == 0) {
                if constexpr (DO == DECODE)
                    tile_put(dense, nullptr);
                continue;
            }
            tile_breach breach;
            if constexpr (PACKED) {
                const unsigned first_value = hw::shfl(made_group.own_values, i);
                const uint64_t wrong_run =
                    open_runs_of<DO, T>(open, made_group, hybrid.packed, tile_number / GROUP_TILES, first_value,
                                        container_stored(tile.container, tile.n, tile.len));
                wrong = first_fault(wrong, wrong_run);
                if (wrong_run)
                    continue;
                breach = tile_of_group_read<DO, SUM>(tile, dense, stage,
                                                     packed_values<T>{runs, first_value, hybrid.packed % ONE_LEVEL});
            } else {
                breach = tile_of_group_read<DO, SUM>(tile, dense, stage);
            }
            if (breach.rule)
                wrong =
                    first_fault(wrong, group_fault(tile_number / GROUP_TILES, GROUP_TILE, i, breach.rule, breach.sub));
        }
    }
    if (hybrid.version2)
        wrong = signs_of_share<PACKED, DO, SUM, T>(hybrid.bytes, hybrid.count, hybrid.units, dst, share, shares, wrong,
                                                   hybrid.packed, runs);
    return wrong;
}

/* Read a share of a hybrid block, as warp_groups does. */
template <reading DO, class SUM, class T>
PICI_DEV uint64_t warp_hybrid(uint64_t &nonzeros, const block_view &view, T *dst, uint64_t share, uint64_t shares,
                              uint8_t *stage)
{
    return warp_groups<false, DO, SUM>(nonzeros, hybrid_of(view), dst, share, shares, stage);
}

/* Called by a warp: the finding for a fault that VERIFY found, in a block of any format. */
PICI_DEV finding warp_explain(const block_view &view, uint64_t fault)
{
    if (!fault || ~fault >> 62 != FAULT_BODY || !has_groups(view.format))
        return explain(view, fault);
    const bool packed = view.format == PICI_PACKED;
    const uint64_t order = ~fault << 2 >> 2, number = order >> FAULT_GROUP_AT;
    const unsigned stage = order >> FAULT_STAGE_AT & 15, i = order >> FAULT_TILE_AT & 31,
                   rule = order >> FAULT_RULE_AT & 31, sub = order & 4095;
    finding seen = {RULE_TOTAL, 16, PICI_NO_TILE};
    if (number == groups_of(view.tiles)) {
        if (stage == GROUP_ENTRY) {
            seen.rule = RULE_SIGNS_VERSION;
            seen.at = 4;
        }
        return seen;
    }
    group made_group;
    const hybrid_view hybrid = hybrid_of(view);
    /* both set the members that are read before the fault */
    packed ? group_open<true>(made_group, hybrid, view.width_log2, number)
           : group_open(made_group, hybrid, view.width_log2, number);
    const uint64_t record = (uint64_t)(made_group.record - view.bytes),
                   descriptor = record + 4 + hw::popc(made_group.bits & ((1u << i) - 1));
    const uint64_t payload = record + hw::shfl(made_group.payload, i),
                   values = record + hw::shfl(made_group.own_values, i);
    /* the run of a value, or of a fault */
    const unsigned of_run = stage == GROUP_TILE ? (hw::shfl(made_group.own_values, i) + sub) / RUN_MOST : i;
    const uint64_t run_descriptor = record + made_group.runs_at + of_run * RUN_DESCRIPTOR,
                   run_at = record + hw::shfl(made_group.own_run, of_run % LANES);
    const unsigned count = hw::shfl(made_group.n, i), container = hw::shfl(made_group.container, i);
    seen.tile = made_group.first;
    switch (stage) {
    case GROUP_FIRST:
        seen.rule = RULE_DIRECTORY;
        seen.at = view.index_offset;
        break;
    case GROUP_ENTRY:
        seen.rule = RULE_DIRECTORY;
        seen.at = view.index_offset + (number + 1) * view.index_width;
        seen.tile = made_group.first + GROUP_TILES;
        break;
    case GROUP_OCCUPANCY:
        seen.rule = RULE_OCCUPANCY;
        seen.at = record;
        break;
    case GROUP_DESCRIPTORS:
    case GROUP_RUNS:
    case GROUP_LENGTH:
        seen.rule = RULE_RECORD_LENGTH;
        seen.at = record;
        break;
    case GROUP_DESCRIPTOR:
        seen.rule = rule == RULE_SIGNS ? (uint32_t)RULE_SIGNS : (uint32_t)RULE_DESCRIPTOR;
        seen.at = rule == RULE_SIGNS ? record + sign_descriptor_at(made_group, i) : descriptor;
        seen.tile = made_group.first + i;
        break;
    case GROUP_RUN:
        seen.rule = RULE_RUN;
        seen.at = run_descriptor;
        break;
    case GROUP_RUN_BODY:
        seen.rule = rule;
        seen.at = rule == RULE_CHOICE    ? run_descriptor
                  : rule == RULE_PADDING ? run_at + run_padding_at(made_group, i, hybrid.packed, view.width_log2, sub)
                                         : run_at;
        seen.tile = rule == RULE_PADDING ? PICI_NO_TILE : made_group.first;
        break;
    case GROUP_PADDING:
        seen.rule = RULE_PADDING;
        seen.at = record + (sub < LANES / 2 ? made_group.metadata + sub
                                            : made_group.values + made_group.stored + sub - LANES / 2);
        seen.tile = PICI_NO_TILE;
        break;
    default:
        seen.rule = rule;
        seen.tile = made_group.first + i;
        seen.at = rule == RULE_SIGNS && made_group.signs >> i & 1     ? record + sign_descriptor_at(made_group, i)
                  : rule == RULE_SIGNS                                ? descriptor
                  : rule == RULE_TILE_COUNT || rule == RULE_CONTAINER ? descriptor
                  : rule == RULE_STORED_ZERO && packed                ? run_descriptor
                  : rule == RULE_STORED_ZERO                          ? values + ((uint64_t)sub << view.width_log2)
                  : rule == RULE_PADDING        ? payload + container_payload(container, count) - 1
                  : container == PICI_OFFSETS12 ? payload + sub / 2 * 3 + sub % 2
                  : container == PICI_OFFSETS8  ? payload + RUNS + sub
                                                : payload + 8 * sub;
    }
    return seen;
}

} // namespace pici

#endif
