/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encoding the parts of a tile of a hybrid block, by a warp. Part of pici/device.cuh. Specification:
 * formats/hybrid.md. */
#ifndef PICI_DEVICE_HYBRID_MAKE_CUH
#define PICI_DEVICE_HYBRID_MAKE_CUH

#include "pici/device_hybrid.cuh"

namespace pici {

/* A tile of a group being encoded, in shared memory: its bits, later replaced by its payload; and its first values. */
struct alignas(16) made_tile {
    uint8_t bits[TILE_BITS_BYTES];
    uint8_t values[2048];
};

/* A tile with at most KEPT values is read only once. */
template <class T> constexpr unsigned KEPT = sizeof made_tile::values / sizeof(T);

/* Insert a zero bit after each bit of word. */
PICI_DEV uint64_t spread(uint32_t word)
{
    uint64_t bits = word;
    bits = (bits | bits << 16) & UINT64_C(0x0000ffff0000ffff);
    bits = (bits | bits << 8) & UINT64_C(0x00ff00ff00ff00ff);
    bits = (bits | bits << 4) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    bits = (bits | bits << 2) & UINT64_C(0x3333333333333333);
    return (bits | bits << 1) & UINT64_C(0x5555555555555555);
}

/* Store the nonzero ones of value and y, from values + k on, but only within the first `most` values. */
template <class T> PICI_DEV void put_ranked(T *values, unsigned k, T value, T y, unsigned most)
{
    if (value && k < most)
        hw::put(values + k, value);
    k += value != 0;
    if (y && k < most)
        hw::put(values + k, y);
}

/* by_access, but also for a tile that is read by value and has a base. */
template <class T, class EACH> PICI_DEV auto by_any_access(const dense_tile<const T> &dense, EACH each)
{
    if (dense.base && dense.by_value)
        return dense.pairs ? each(access_of<ROW_PAIRS | ROW_DELTA | ROW_BY_VALUE>())
                           : each(access_of<ROW_DELTA | ROW_BY_VALUE>());
    return by_access(dense, each);
}

/* Rows of a tile in flight during its survey. */
template <unsigned HOW, class T>
constexpr unsigned SURVEY_ROWS = (sizeof(T) >= 4 ? 64 / sizeof(T) : 16 * sizeof(T)) / (HOW & ROW_DELTA ? 2 : 1);

template <unsigned HOW, class T>
PICI_DEV columns survey_rows(made_tile *made, const dense_tile<const T> &dense, bool &negative, bool keep)
{
    constexpr unsigned AHEAD = SURVEY_ROWS<HOW, T>;
    uint32_t even[2] = {0, 0}, odd[2] = {0, 0};
    unsigned place = 0;
    negative = false;
    PICI_UNROLL_1
    for (unsigned row = 0; row < ROWS; row += AHEAD) {
        raw_pair<T> pair[AHEAD];
        PICI_UNROLL
        for (unsigned r = 0; r < AHEAD; r++)
            pair[r] = load_row<HOW>(dense, row + r);
        place = rank_rows<T>(pair, place, [&](unsigned r, T x, T y, unsigned evens, unsigned odds, unsigned k) {
            if ((row + r) / 2 == hw::lane()) {
                even[r % 2] = evens;
                odd[r % 2] = odds;
            }
            put_ranked((T *)made->values, k, x, y, keep ? KEPT<T> : 0u);
            negative |= x == SIGN<T> || y == SIGN<T>;
        });
    }
    columns words;
    PICI_UNROLL
    for (unsigned k = 0; k < 2; k++)
        words.word[k] = spread(even[k]) | spread(odd[k]) << 1;
    return words;
}

/* In each byte that is 0 or 0x80, set the upper bit. */
PICI_DEV uint32_t zero_bytes(uint32_t quad)
{
    return ~(((quad & 0x7f7f7f7fu) + 0x7f7f7f7fu) | 0x7f7f7f7fu);
}

/* survey_rows for a tile of bytes that is aligned to 4. A lane loads four neighbours, so the loads of the whole tile
 * are in flight. In pairs, half the tile would take as many registers. */
PICI_DEV columns survey_quads(made_tile *made, const dense_tile<const uint8_t> &dense, bool &negative, bool keep)
{
    constexpr unsigned QUADS = TILE / 4 / LANES; /* two rows each */
    const unsigned lane = hw::lane(), below = (1u << lane) - 1, most = keep ? KEPT<uint8_t> : 0u;
    uint32_t quad[QUADS], own[4] = {0, 0, 0, 0};
    unsigned place = 0;
    negative = false;
    PICI_UNROLL
    for (unsigned i = 0; i < QUADS; i++)
        quad[i] = hw::load((const uint32_t *)dense.at + i * LANES + lane);
    if (dense.by_value) {
        PICI_UNROLL
        for (unsigned i = 0; i < QUADS; i++)
            quad[i] &= ~zero_bytes(quad[i]);
    }
    PICI_UNROLL
    for (unsigned i = 0; i < QUADS; i++) {
        unsigned k = place;
        PICI_UNROLL
        for (unsigned c = 0; c < 4; c++) {
            const unsigned nonzeros = hw::ballot((quad[i] >> 8 * c & 0xff) != 0);
            if (i == lane)
                own[c] = nonzeros;
            k += hw::popc(nonzeros & below);
            place += hw::popc(nonzeros);
        }
        const uint8_t a = (uint8_t)quad[i], b = (uint8_t)(quad[i] >> 8);
        put_ranked(made->values, k, a, b, most);
        put_ranked(made->values, k + (a != 0) + (b != 0), (uint8_t)(quad[i] >> 16), (uint8_t)(quad[i] >> 24), most);
        negative |= (quad[i] & zero_bytes(quad[i])) != 0;
    }
    const uint64_t even = spread(own[0]) | spread(own[2]) << 1, odd = spread(own[1]) | spread(own[3]) << 1;
    columns words;
    PICI_UNROLL
    for (unsigned k = 0; k < 2; k++)
        words.word[k] = spread((uint32_t)(even >> 32 * k)) | spread((uint32_t)(odd >> 32 * k)) << 1;
    return words;
}

template <class T>
PICI_DEV columns survey_words(made_tile *made, const dense_tile<const T> &dense, bool &negative, bool keep)
{
    if constexpr (sizeof(T) == 1)
        if (dense.pairs && !dense.base && is_aligned(dense.at, 4))
            return survey_quads(made, dense, negative, keep);
    return by_any_access(dense, [&](auto how) { return survey_rows<how.value>(made, dense, negative, keep); });
}

/* Read a tile. Store its bits and, with `keep`, its first values in *made, and return the lane's two rows. negative:
 * out: for floats, the lane has read a -0.0. */
template <class T>
PICI_DEV columns tile_survey(made_tile *made, const dense_tile<const T> &dense, bool &negative, bool keep = true)
{
    const columns words = survey_words(made, dense, negative, keep);
    hw::put((raw128 *)made->bits + hw::lane(), raw128{words.word[0], words.word[1]});
    return words;
}

/* Replace a tile's bits by its payload. A bitvector and a raw tile need no change. One barrier must separate this from
 * storing the bits, and another from using the payload. */
PICI_DEV void tile_payload(made_tile *made, unsigned container, unsigned count)
{
    if (container > PICI_OFFSETS8)
        return;
    const unsigned lane = hw::lane();
    const raw128 rows = hw::get((const raw128 *)made->bits + lane);
    const columns words = {{rows.lo, rows.hi}};
    unsigned place = tile_offset(words);
    hw::syncwarp();
    if (container == PICI_OFFSETS8) {
        uint8_t *const offsets = made->bits + RUNS;
        const unsigned own = hw::popc(words.word[0]) + hw::popc(words.word[1]), other = hw::shfl_down(own, 1);
        if (lane % 2 == 0) /* a run is the four rows of two lanes */
            hw::put(made->bits + lane / 2, (uint8_t)(own + other));
        each_bit(words,
                 [&](unsigned k, unsigned bit) { hw::put(offsets + place++, (uint8_t)((2 * lane + k) * COLS + bit)); });
        return;
    }
    uint16_t *const list = (uint16_t *)(made->bits + 64);
    const unsigned bytes = container_payload(PICI_OFFSETS12, count);
    each_bit(words,
             [&](unsigned k, unsigned bit) { hw::put(list + place++, (uint16_t)((2 * lane + k) * COLS + bit)); });
    hw::syncwarp();
    for (unsigned byte = lane; byte < bytes; byte += LANES) {
        const unsigned k = byte / 3 * 2, lo = hw::get(list + k), hi = k + 1 < count ? hw::get(list + k + 1) : 0;
        hw::put(made->bits + byte, (uint8_t)((lo | hi << 12) >> 8 * (byte % 3)));
    }
}

/* Copy a tile's nonzeros, or with `raw` all its elements, to a block through stage, a few rows at a time. */
template <unsigned HOW, class T>
PICI_DEV void write_rows(T *to, uint8_t *stage, const dense_tile<const T> &dense, bool raw)
{
    constexpr unsigned MOST = sizeof(T) == 8 ? 4 : 16 / sizeof(T); /* rows that fit into made_tile::values */
    constexpr unsigned AHEAD = HOW & ROW_DELTA ? MOST / 2 : MOST;
    T *const values = (T *)stage;
    const unsigned lane = hw::lane();
    raw_pair<T> pair[AHEAD];
    PICI_UNROLL_1
    for (unsigned row = 0; row <= ROWS; row += AHEAD) {
        unsigned count = 0;
        if (row) { /* stage the rows loaded in the previous round */
            if (raw) {
                const unsigned first = (row - AHEAD) * COLS;
                count = dense.left <= first ? 0 : dense.left - first < AHEAD * COLS ? dense.left - first : AHEAD * COLS;
                PICI_UNROLL
                for (unsigned r = 0; r < AHEAD; r++) {
                    hw::put(values + r * COLS + 2 * lane, first_of<T>(pair[r]));
                    hw::put(values + r * COLS + 2 * lane + 1, second_of<T>(pair[r]));
                }
            } else {
                count = rank_rows<T>(pair, 0, [&](unsigned, T x, T y, unsigned, unsigned, unsigned k) {
                    put_ranked(values, k, x, y, KEPT<T>);
                });
            }
        }
        if (row < ROWS) {
            PICI_UNROLL
            for (unsigned r = 0; r < AHEAD; r++)
                pair[r] = load_row<HOW>(dense, row + r);
        }
        if (row) {
            hw::syncwarp();
            warp_copy_out<IN_ORDER>(to, stage, count);
            to += count;
            hw::syncwarp();
        }
    }
}

/* Write a tile's payload and values to its record, after tile_survey and tile_payload. *made may be used again at
 * once. */
template <class T>
PICI_DEV void tile_write(uint8_t *payload, T *values, made_tile *made, const dense_tile<const T> &dense,
                         unsigned container, unsigned count)
{
    warp_copy_out<IN_ORDER>(payload, made->bits, container_payload(container, count));
    if (container != PICI_RAW && count <= KEPT<T>)
        warp_copy_out<IN_ORDER>(values, made->values, count);
    else
        by_any_access(dense,
                      [&](auto how) { write_rows<how.value>(values, made->values, dense, container == PICI_RAW); });
    hw::syncwarp();
}

/* ---- encoding the signs of zeros ---- */

template <unsigned HOW, class T> PICI_DEV columns read_rows(columns &negative, const dense_tile<const T> &dense)
{
    columns words = {{0, 0}};
    negative = columns{{0, 0}};
    PICI_UNROLL_1
    for (unsigned row = 0; row < ROWS; row++) {
        const raw_pair<T> pair = load_row<HOW>(dense, row);
        const T value = first_of<T>(pair), y = second_of<T>(pair);
        const unsigned evens = hw::ballot(plus_zero(value) != 0), odds = hw::ballot(plus_zero(y) != 0);
        const unsigned even_signs = hw::ballot(value == SIGN<T>), odd_signs = hw::ballot(y == SIGN<T>);
        const uint64_t own = spread(evens) | spread(odds) << 1, signs = spread(even_signs) | spread(odd_signs) << 1;
        PICI_UNROLL
        for (unsigned k = 0; k < 2; k++)
            if (row == 2 * hw::lane() + k) {
                words.word[k] = own;
                negative.word[k] = signs;
            }
    }
    return words;
}

/* The lane's two rows of a tile of floats: its nonzeros by value, and its negative zeros. */
template <class T> PICI_DEV columns tile_rows(columns &negative, const dense_tile<const T> &dense)
{
    return by_access(dense, [&](auto how) { return read_rows<how.value>(negative, dense); });
}

/* Does a tile of floats with negative zeros cost less if it keeps their signs? If so, set signs. */
template <class T> PICI_DEV bool tile_keeps_signs(tile_signs &signs, const dense_tile<const T> &dense)
{
    columns negative;
    const columns words = tile_rows(negative, dense),
                  both = {{words.word[0] | negative.word[0], words.word[1] | negative.word[1]}};
    const unsigned count = tile_nnz(words);
    signs_measure(signs, zeros_of(words, dense.left), negative);
    return cost_with_signs(count, has_run(words), signs, LOG2<T>) <
           cost_of(count + negative_zeros(signs), dense.left, LOG2<T>, has_run(both));
}

/* Write the signs of such a tile. */
template <class T> PICI_DEV void tile_write_signs(uint8_t *to, const dense_tile<const T> &dense)
{
    columns negative;
    tile_signs signs;
    const columns zero = zeros_of(tile_rows(negative, dense), dense.left), list = signs_measure(signs, zero, negative);
    signs_write(to, signs, zero, list);
}

} // namespace pici

#endif
