/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encoding the parts of a tile of a hybrid block, by a warp. Part of pici/device.cuh. Specification:
 * formats/hybrid.md. */
#ifndef PICI_DEVICE_HYBRID_MAKE_CUH
#define PICI_DEVICE_HYBRID_MAKE_CUH

#include "pici/device_hybrid.cuh"

namespace pici {

/* A tile of a group that is being encoded, in shared memory: its bits, later replaced by its payload; and its first
 * values. */
struct alignas(16) made_tile {
    uint8_t bits[TILE_BITS_BYTES];
    uint8_t values[2048];
};

/* A tile with at most so many values is read only once. */
template <class T> constexpr unsigned KEPT = sizeof made_tile::values / sizeof(T);

/* Insert a zero bit after each bit of v. */
PICI_DEV uint64_t spread(uint32_t v)
{
    uint64_t x = v;
    x = (x | x << 16) & UINT64_C(0x0000ffff0000ffff);
    x = (x | x << 8) & UINT64_C(0x00ff00ff00ff00ff);
    x = (x | x << 4) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    x = (x | x << 2) & UINT64_C(0x3333333333333333);
    return (x | x << 1) & UINT64_C(0x5555555555555555);
}

/* Store x and y, each if nonzero, at values + k and on; but nothing beyond the first `most` values. */
template <class T> PICI_DEV void put_ranked(T *values, unsigned k, T x, T y, unsigned most)
{
    if (x && k < most)
        hw::put(values + k, x);
    k += x != 0;
    if (y && k < most)
        hw::put(values + k, y);
}

/* by_access, also for a tile that is read by value and has a base. */
template <class T, class EACH> PICI_DEV auto by_any_access(const dense_tile<const T> &d, EACH each)
{
    if (d.base && d.by_value)
        return d.pairs ? each(access_of<ROW_PAIRS | ROW_DELTA | ROW_BY_VALUE>())
                       : each(access_of<ROW_DELTA | ROW_BY_VALUE>());
    return by_access(d, each);
}

template <unsigned HOW, class T>
PICI_DEV columns survey_rows(made_tile *to, const dense_tile<const T> &d, bool &negative)
{
    constexpr unsigned FLIGHT = sizeof(T) >= 4 ? 64 / sizeof(T) : 16 * sizeof(T); /* rows in flight */
    constexpr unsigned AHEAD = HOW & ROW_DELTA ? FLIGHT / 2 : FLIGHT;
    uint32_t even[2] = {0, 0}, odd[2] = {0, 0};
    unsigned at = 0;
    negative = false;
    PICI_UNROLL_1
    for (unsigned row = 0; row < ROWS; row += AHEAD) {
        raw_pair<T> v[AHEAD];
        PICI_UNROLL
        for (unsigned r = 0; r < AHEAD; r++)
            v[r] = load_row<HOW>(d, row + r);
        at = rank_rows<T>(v, at, [&](unsigned r, T x, T y, unsigned evens, unsigned odds, unsigned k) {
            if ((row + r) / 2 == hw::lane()) {
                even[r % 2] = evens;
                odd[r % 2] = odds;
            }
            put_ranked((T *)to->values, k, x, y, KEPT<T>);
            negative |= x == SIGN<T> || y == SIGN<T>;
        });
    }
    columns c;
    PICI_UNROLL
    for (unsigned k = 0; k < 2; k++)
        c.word[k] = spread(even[k]) | spread(odd[k]) << 1;
    return c;
}

/* Read a tile: store its bits and its first values in *to, and return the lane's two rows. negative: out: the lane has
 * read a -0.0, if elements are floats. */
template <class T> PICI_DEV columns tile_survey(made_tile *to, const dense_tile<const T> &d, bool &negative)
{
    const columns c = by_any_access(d, [&](auto how) { return survey_rows<how.value>(to, d, negative); });
    hw::put((raw128 *)to->bits + hw::lane(), raw128{c.word[0], c.word[1]});
    return c;
}

/* Replace a tile's bits by its payload. For a bitvector and for raw there is nothing to do. A barrier must come
 * between storing the bits and this, and another between this and using the payload. */
PICI_DEV void tile_payload(made_tile *of, unsigned container, unsigned n)
{
    if (container > PICI_OFFSETS8)
        return;
    const unsigned lane = hw::lane();
    const raw128 rows = hw::get((const raw128 *)of->bits + lane);
    const columns c = {{rows.lo, rows.hi}};
    unsigned at = tile_offset(c);
    hw::syncwarp();
    if (container == PICI_OFFSETS8) {
        uint8_t *const offsets = of->bits + RUNS;
        const unsigned own = hw::popc(c.word[0]) + hw::popc(c.word[1]), other = hw::shfl_down(own, 1);
        if (lane % 2 == 0) /* a run is four rows, those of two lanes */
            hw::put(of->bits + lane / 2, (uint8_t)(own + other));
        each_bit(c, [&](unsigned k, unsigned bit) { hw::put(offsets + at++, (uint8_t)((2 * lane + k) * COLS + bit)); });
        return;
    }
    uint16_t *const list = (uint16_t *)(of->bits + 64);
    const unsigned bytes = container_payload(PICI_OFFSETS12, n);
    each_bit(c, [&](unsigned k, unsigned bit) { hw::put(list + at++, (uint16_t)((2 * lane + k) * COLS + bit)); });
    hw::syncwarp();
    for (unsigned b = lane; b < bytes; b += LANES) {
        const unsigned k = b / 3 * 2, lo = hw::get(list + k), hi = k + 1 < n ? hw::get(list + k + 1) : 0;
        hw::put(of->bits + b, (uint8_t)((lo | hi << 12) >> 8 * (b % 3)));
    }
}

/* Copy a tile's nonzeros, or with `raw` all its elements, to a block through stage, a few rows at a time. */
template <unsigned HOW, class T> PICI_DEV void write_rows(T *to, uint8_t *stage, const dense_tile<const T> &d, bool raw)
{
    constexpr unsigned MOST = sizeof(T) == 8 ? 4 : 16 / sizeof(T); /* rows for which made_tile::values has room */
    constexpr unsigned AHEAD = HOW & ROW_DELTA ? MOST / 2 : MOST;
    T *const values = (T *)stage;
    const unsigned lane = hw::lane();
    raw_pair<T> v[AHEAD];
    PICI_UNROLL_1
    for (unsigned row = 0; row <= ROWS; row += AHEAD) {
        unsigned n = 0;
        if (row) { /* stage the rows loaded in the round before */
            if (raw) {
                const unsigned first = (row - AHEAD) * COLS;
                n = d.left <= first ? 0 : d.left - first < AHEAD * COLS ? d.left - first : AHEAD * COLS;
                PICI_UNROLL
                for (unsigned r = 0; r < AHEAD; r++) {
                    hw::put(values + r * COLS + 2 * lane, first_of<T>(v[r]));
                    hw::put(values + r * COLS + 2 * lane + 1, second_of<T>(v[r]));
                }
            } else {
                n = rank_rows<T>(v, 0, [&](unsigned, T x, T y, unsigned, unsigned, unsigned k) {
                    put_ranked(values, k, x, y, KEPT<T>);
                });
            }
        }
        if (row < ROWS) {
            PICI_UNROLL
            for (unsigned r = 0; r < AHEAD; r++)
                v[r] = load_row<HOW>(d, row + r);
        }
        if (row) {
            hw::syncwarp();
            warp_copy_out<IN_ORDER>(to, stage, n);
            to += n;
            hw::syncwarp();
        }
    }
}

/* Write payload and values of a tile to its record, after tile_survey and tile_payload. `of` may be used again at
 * once. */
template <class T>
PICI_DEV void tile_write(uint8_t *payload, T *values, made_tile *of, const dense_tile<const T> &d, unsigned container,
                         unsigned n)
{
    warp_copy_out<IN_ORDER>(payload, of->bits, container_payload(container, n));
    if (container != PICI_RAW && n <= KEPT<T>)
        warp_copy_out<IN_ORDER>(values, of->values, n);
    else
        by_any_access(d, [&](auto how) { write_rows<how.value>(values, of->values, d, container == PICI_RAW); });
    hw::syncwarp();
}

/* ---- encoding the signs of zeros ---- */

template <unsigned HOW, class T> PICI_DEV columns read_rows(columns &negative, const dense_tile<const T> &d)
{
    columns c = {{0, 0}};
    negative = columns{{0, 0}};
    PICI_UNROLL_1
    for (unsigned row = 0; row < ROWS; row++) {
        const raw_pair<T> v = load_row<HOW>(d, row);
        const T x = first_of<T>(v), y = second_of<T>(v);
        const unsigned evens = hw::ballot(plus_zero(x) != 0), odds = hw::ballot(plus_zero(y) != 0);
        const unsigned even_signs = hw::ballot(x == SIGN<T>), odd_signs = hw::ballot(y == SIGN<T>);
        const uint64_t own = spread(evens) | spread(odds) << 1, signs = spread(even_signs) | spread(odd_signs) << 1;
        PICI_UNROLL
        for (unsigned k = 0; k < 2; k++)
            if (row == 2 * hw::lane() + k) {
                c.word[k] = own;
                negative.word[k] = signs;
            }
    }
    return c;
}

/* The lane's two rows of a tile of floats: its nonzeros by value, and its negative zeros. */
template <class T> PICI_DEV columns tile_rows(columns &negative, const dense_tile<const T> &d)
{
    return by_access(d, [&](auto how) { return read_rows<how.value>(negative, d); });
}

/* Does a tile of floats with negative zeros cost less if it keeps their signs? If so, s is set. */
template <class T> PICI_DEV bool tile_keeps_signs(tile_signs &s, const dense_tile<const T> &d)
{
    columns negative;
    const columns c = tile_rows(negative, d), both = {{c.word[0] | negative.word[0], c.word[1] | negative.word[1]}};
    const unsigned n = tile_nnz(c);
    signs_measure(s, zeros_of(c, d.left), negative);
    return cost_with_signs(n, has_run(c), s, LOG2<T>) < cost_of(n + negative_zeros(s), d.left, LOG2<T>, has_run(both));
}

/* Write the signs of such a tile. */
template <class T> PICI_DEV void tile_write_signs(uint8_t *to, const dense_tile<const T> &d)
{
    columns negative;
    tile_signs s;
    const columns zero = zeros_of(tile_rows(negative, d), d.left), list = signs_measure(s, zero, negative);
    signs_write(to, s, zero, list);
}

} // namespace pici

#endif
