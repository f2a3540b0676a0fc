/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The signs that a tile of a hybrid block keeps of its zeros: reading and writing them by a warp. Each lane has two
 * rows of the tile; a word has a bit for each element of a row. Part of pici/device.cuh. Specification:
 * formats/hybrid.md, "Signs". */
#ifndef PICI_DEVICE_SIGNS_CUH
#define PICI_DEVICE_SIGNS_CUH

#include "pici/device_tiles.cuh"

namespace pici {

/* The bit that is set in -0.0 alone. */
template <class T> constexpr T SIGN = (T)((T)1 << (8 * sizeof(T) - 1));

/* What a sign descriptor says. */
struct tile_signs {
    unsigned zeros, listed, unary; /* zeros of the tile; numbers listed; unary bits */
    bool flip;                     /* the zeros that are not negative are listed */
};

/* The parameter of the Rice codes of m > 0 numbers of z. */
PICI_DEV unsigned rice_of(unsigned m, unsigned z)
{
    unsigned k = 0;
    while (25 * m << k <= 6 * (2 * z - m))
        k++;
    return k;
}

PICI_DEV unsigned signs_bytes(const tile_signs &s)
{
    return s.listed ? (s.unary + 7) / 8 + (s.listed * rice_of(s.listed, s.zeros) + 7) / 8 : 0;
}

PICI_DEV unsigned negative_zeros(const tile_signs &s)
{
    return s.flip ? s.zeros - s.listed : s.listed;
}

PICI_DEV uint32_t sign_descriptor(const tile_signs &s)
{
    return s.listed | (s.flip ? (uint32_t)SIGN_FLIP : 0) | s.unary << 16;
}

/* Read a sign descriptor; false if it breaks a rule. */
PICI_DEV bool good_sign_descriptor(tile_signs &s, uint32_t descriptor, unsigned zeros)
{
    s.zeros = zeros;
    s.listed = descriptor & (SIGN_FLIP - 1);
    s.unary = descriptor >> 16;
    s.flip = (descriptor & SIGN_FLIP) != 0;
    if (2 * s.listed + (s.flip ? 1 : 0) > zeros || (!s.listed && (s.unary || !s.flip)))
        return false;
    return !s.listed || (s.unary >= s.listed && s.unary <= s.listed + ((zeros - s.listed) >> rice_of(s.listed, zeros)));
}

/* The lane's elements of a tile of len elements that exist and are not set in c. */
PICI_DEV columns zeros_of(const columns &c, unsigned len)
{
    columns z;
    PICI_UNROLL
    for (unsigned k = 0; k < 2; k++) {
        const unsigned row = (2 * hw::lane() + k) * COLS, exist = len > row ? len - row : 0;
        z.word[k] = ~c.word[k] & (exist < COLS ? (UINT64_C(1) << exist) - 1 : UINT64_MAX);
    }
    return z;
}

/* The number of the zero at `bit` of the lane's row k; before: zeros before the lane's rows. */
PICI_DEV unsigned zero_number(const columns &zero, unsigned before, unsigned k, unsigned bit)
{
    return before + (k ? hw::popc(zero.word[0]) : 0) + hw::popc(zero.word[k] & ((UINT64_C(1) << bit) - 1));
}

/* Which zeros are negative -> s, and which are listed. */
PICI_DEV columns signs_measure(tile_signs &s, const columns &zero, const columns &negative)
{
    const unsigned negatives = tile_nnz(negative), before = tile_offset(zero), lane = hw::lane();
    s.zeros = tile_nnz(zero);
    s.flip = negatives > s.zeros - negatives;
    s.listed = s.flip ? s.zeros - negatives : negatives;
    columns list;
    PICI_UNROLL
    for (unsigned k = 0; k < 2; k++)
        list.word[k] = s.flip ? zero.word[k] & ~negative.word[k] : negative.word[k];
    const unsigned rice = s.listed ? rice_of(s.listed, s.zeros) : 0;
    /* next: one more than the last number listed before the lane's, the greatest of the lanes below */
    unsigned last = 0;
    each_bit(list, [&](unsigned k, unsigned bit) { last = zero_number(zero, before, k, bit) + 1; });
    for (unsigned by = 1; by < LANES; by *= 2) {
        const unsigned other = hw::shfl_up(last, by);
        last = lane >= by && other > last ? other : last;
    }
    const unsigned below = hw::shfl_up(last, 1);
    unsigned next = lane ? below : 0, unary = 0;
    each_bit(list, [&](unsigned k, unsigned bit) {
        const unsigned number = zero_number(zero, before, k, bit);
        unary += ((number - next) >> rice) + 1;
        next = number + 1;
    });
    s.unary = warp_sum(unary);
    return list;
}

/* Up to 32 bits from bit `at` on of an array of so many bytes; bits beyond its end are 0. */
PICI_DEV uint32_t bits_at(const uint8_t *array, unsigned bytes, unsigned at, unsigned count)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < 5; i++)
        if (at / 8 + i < bytes && 8 * i < at % 8 + count)
            v |= (uint64_t)hw::load(array + at / 8 + i) << 8 * i;
    return (uint32_t)(v >> at % 8 & ((UINT64_C(1) << count) - 1));
}

/* The lowest bits of `bits`, one after the other, at the places of the bits of mask. */
PICI_DEV uint64_t deposit(uint64_t bits, uint64_t mask)
{
    uint64_t to = 0;
    for (; mask; mask &= mask - 1, bits >>= 1)
        to |= bits & 1 ? mask & (0 - mask) : 0;
    return to;
}

/* And the other way round. */
PICI_DEV uint64_t extract(uint64_t from, uint64_t mask)
{
    uint64_t bits = 0;
    for (unsigned i = 0; mask; mask &= mask - 1, i++)
        bits |= from & mask & (0 - mask) ? UINT64_C(1) << i : 0;
    return bits;
}

/* Read the signs at p of a tile whose zeros are `zero` -> which of them are negative. False if they break a rule. */
PICI_DEV bool signs_read(columns &negative, const tile_signs &s, const uint8_t *p, const columns &zero)
{
    const unsigned lane = hw::lane(), m = s.listed, k = m ? rice_of(m, s.zeros) : 0;
    const unsigned bytes = (s.unary + 7) / 8, all = signs_bytes(s), before = tile_offset(zero);
    const unsigned own[2] = {(unsigned)hw::popc(zero.word[0]), (unsigned)hw::popc(zero.word[1])};
    const unsigned from[2] = {before, before + own[0]};
    uint64_t list[2] = {0, 0}; /* bit i: the row's zero i is listed */
    if (m) {
        unsigned ones = 0;
        for (unsigned i = lane; i < bytes; i += LANES)
            ones += hw::popc((uint64_t)hw::load(p + i));
        const bool over = (s.unary % 8 && hw::load(p + bytes - 1) >> s.unary % 8) ||
                          (m * k % 8 && hw::load(p + all - 1) >> m * k % 8);
        if (warp_sum(ones) != m || over || !bits_at(p, bytes, s.unary - 1, 1))
            return false;
    }
    if (m && !k) {
        PICI_UNROLL
        for (unsigned r = 0; r < 2; r++)
            list[r] = bits_at(p, bytes, from[r], own[r] < 32 ? own[r] : 32) |
                      (own[r] > 32 ? (uint64_t)bits_at(p, bytes, from[r] + 32, own[r] - 32) << 32 : 0);
    }
    /* all lanes read all codes, and each keeps the numbers of its zeros */
    unsigned next = 0, done = 0, rest = 0;
    for (unsigned first = 0; k && first < s.unary; first += 32)
        for (uint32_t w = bits_at(p, bytes, first, 32); w; w &= w - 1, rest += k) {
            const unsigned at = first + hw::ffs((uint64_t)w) - 1;
            next += ((at - done) << k) + bits_at(p + bytes, all - bytes, rest, k);
            if (next >= s.zeros)
                return false;
            PICI_UNROLL
            for (unsigned r = 0; r < 2; r++)
                if (next - from[r] < own[r])
                    list[r] |= UINT64_C(1) << (next - from[r]);
            next++;
            done = at + 1;
        }
    PICI_UNROLL
    for (unsigned r = 0; r < 2; r++) {
        const uint64_t listed = deposit(list[r], zero.word[r]);
        negative.word[r] = s.flip ? zero.word[r] & ~listed : listed;
    }
    return true;
}

/* Writes bits one after the other; all lanes have the same, and the first one stores them. */
struct bit_writer {
    uint8_t *to;
    uint64_t held;
    unsigned count; /* of bits held, below 8 between calls */

    /* n <= 32 */
    PICI_DEV_MEMBER void put(uint32_t bits, unsigned n)
    {
        held |= (uint64_t)bits << count;
        for (count += n; count >= 8; count -= 8, held >>= 8)
            byte();
    }
    PICI_DEV_MEMBER void end()
    {
        if (count)
            byte();
        count = 0;
    }
    PICI_DEV_MEMBER void byte()
    {
        if (hw::lane() == 0)
            hw::store(to, (uint8_t)held);
        to++;
    }
};

/* Write the signs of a tile. list: what signs_measure returned. */
PICI_DEV void signs_write(uint8_t *p, const tile_signs &s, const columns &zero, const columns &list)
{
    const unsigned k = s.listed ? rice_of(s.listed, s.zeros) : 0, before = tile_offset(zero);
    bit_writer unary = {p, 0, 0}, rest = {p + (s.unary + 7) / 8, 0, 0};
    unsigned next = 0, left = s.unary;
    for (unsigned row = 0; s.listed && row < ROWS; row++) {
        const unsigned r = row % 2;
        const uint64_t its_zero = hw::shfl(r ? zero.word[1] : zero.word[0], row / 2);
        const uint64_t its_list = hw::shfl(r ? list.word[1] : list.word[0], row / 2);
        const unsigned from = hw::shfl(r ? before + hw::popc(zero.word[0]) : before, row / 2);
        if (!k) { /* the bits of the row's zeros, but none beyond the last that is listed */
            const uint64_t bits = extract(its_list, its_zero);
            const unsigned own = hw::popc(its_zero), n = own < left ? own : left;
            unary.put((uint32_t)bits, n < 32 ? n : 32);
            if (n > 32)
                unary.put((uint32_t)(bits >> 32), n - 32);
            left -= n;
            continue;
        }
        for (uint64_t w = its_list; w; w &= w - 1) {
            const unsigned number = from + hw::popc(its_zero & ((w & (0 - w)) - 1)), gap = number - next;
            unsigned zeros = gap >> k;
            for (; zeros >= 32; zeros -= 32)
                unary.put(0, 32);
            unary.put(0, zeros);
            unary.put(1, 1);
            rest.put(gap & ((1u << k) - 1), k);
            next = number + 1;
        }
    }
    unary.end();
    rest.end();
}

} // namespace pici

#endif
