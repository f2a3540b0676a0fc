/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The signs that a tile of a hybrid block keeps of its zeros: reading and writing them by a warp. Each lane has two
 * rows of the tile; a word has a bit for each element of a row. Part of pici/device.cuh. Specification:
 * formats/hybrid.md, "Signs". */
#ifndef PICI_DEVICE_SIGNS_CUH
#define PICI_DEVICE_SIGNS_CUH

#include "pici/device_tiles.cuh"

namespace pici {

/* The only bit set in -0.0. */
template <class T> constexpr T SIGN = (T)((T)1 << (8 * sizeof(T) - 1));

/* The content of a sign descriptor. */
struct tile_signs {
    unsigned zeros, listed, unary; /* zeros of the tile; numbers listed; unary bits */
    bool flip;                     /* list the zeros that are not negative */
};

/* The parameter of the Rice codes for listed > 0 numbers below z. */
PICI_DEV unsigned rice_of(unsigned listed, unsigned z)
{
    unsigned k = 0;
    while (25 * listed << k <= 6 * (2 * z - listed))
        k++;
    return k;
}

PICI_DEV unsigned signs_bytes(const tile_signs &signs)
{
    return signs.listed ? (signs.unary + 7) / 8 + (signs.listed * rice_of(signs.listed, signs.zeros) + 7) / 8 : 0;
}

PICI_DEV unsigned negative_zeros(const tile_signs &signs)
{
    return signs.flip ? signs.zeros - signs.listed : signs.listed;
}

PICI_DEV uint32_t sign_descriptor(const tile_signs &signs)
{
    return signs.listed | (signs.flip ? (uint32_t)SIGN_FLIP : 0) | signs.unary << 16;
}

/* Read a sign descriptor. Returns false if it breaks a rule. */
PICI_DEV bool good_sign_descriptor(tile_signs &signs, uint32_t descriptor, unsigned zeros)
{
    signs.zeros = zeros;
    signs.listed = descriptor & (SIGN_FLIP - 1);
    signs.unary = descriptor >> 16;
    signs.flip = (descriptor & SIGN_FLIP) != 0;
    if (2 * signs.listed + (signs.flip ? 1 : 0) > zeros || (!signs.listed && (signs.unary || !signs.flip)))
        return false;
    return !signs.listed || (signs.unary >= signs.listed &&
                             signs.unary <= signs.listed + ((zeros - signs.listed) >> rice_of(signs.listed, zeros)));
}

/* The lane's elements of a tile that exist and are not set in words. elements: the tile's number of elements. */
PICI_DEV columns zeros_of(const columns &words, unsigned elements)
{
    columns zeros;
    PICI_UNROLL
    for (unsigned k = 0; k < 2; k++) {
        const unsigned row = (2 * hw::lane() + k) * COLS, exist = elements > row ? elements - row : 0;
        zeros.word[k] = ~words.word[k] & (exist < COLS ? (UINT64_C(1) << exist) - 1 : UINT64_MAX);
    }
    return zeros;
}

/* The number of the zero at `bit` of the lane's row k. before: the number of zeros before the lane's rows. */
PICI_DEV unsigned zero_number(const columns &zero, unsigned before, unsigned k, unsigned bit)
{
    return before + (k ? hw::popc(zero.word[0]) : 0) + hw::popc(zero.word[k] & ((UINT64_C(1) << bit) - 1));
}

/* Set signs from the negative zeros. Returns the zeros to list. */
PICI_DEV columns signs_measure(tile_signs &signs, const columns &zero, const columns &negative)
{
    const unsigned negatives = tile_nnz(negative), before = tile_offset(zero), lane = hw::lane();
    signs.zeros = tile_nnz(zero);
    signs.flip = negatives > signs.zeros - negatives;
    signs.listed = signs.flip ? signs.zeros - negatives : negatives;
    columns list;
    PICI_UNROLL
    for (unsigned k = 0; k < 2; k++)
        list.word[k] = signs.flip ? zero.word[k] & ~negative.word[k] : negative.word[k];
    const unsigned rice = signs.listed ? rice_of(signs.listed, signs.zeros) : 0;
    /* next: one more than the last number listed before the lane's, from the lanes below */
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
    signs.unary = warp_sum(unary);
    return list;
}

/* `count` bits, at most 32, from bit `place` on of an array of `bytes` bytes. Bits beyond its end are 0. */
PICI_DEV uint32_t bits_at(const uint8_t *array, unsigned bytes, unsigned place, unsigned count)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < 5; i++)
        if (place / 8 + i < bytes && 8 * i < place % 8 + count)
            v |= (uint64_t)hw::load(array + place / 8 + i) << 8 * i;
    return (uint32_t)(v >> place % 8 & ((UINT64_C(1) << count) - 1));
}

/* Move the lowest bits of `bits`, one after the other, to the places of the bits of mask. */
PICI_DEV uint64_t deposit(uint64_t bits, uint64_t mask)
{
    uint64_t to = 0;
    for (; mask; mask &= mask - 1, bits >>= 1)
        to |= bits & 1 ? mask & (0 - mask) : 0;
    return to;
}

/* The reverse of deposit. */
PICI_DEV uint64_t extract(uint64_t from, uint64_t mask)
{
    uint64_t bits = 0;
    for (unsigned i = 0; mask; mask &= mask - 1, i++)
        bits |= from & mask & (0 - mask) ? UINT64_C(1) << i : 0;
    return bits;
}

/* Read the signs at p of a tile with the zeros `zero`. Sets negative to the negative ones. Returns false if the signs
 * break a rule. */
PICI_DEV bool signs_read(columns &negative, const tile_signs &signs, const uint8_t *p, const columns &zero)
{
    const unsigned lane = hw::lane(), count = signs.listed, k = count ? rice_of(count, signs.zeros) : 0;
    const unsigned bytes = (signs.unary + 7) / 8, all = signs_bytes(signs), before = tile_offset(zero);
    const unsigned own[2] = {(unsigned)hw::popc(zero.word[0]), (unsigned)hw::popc(zero.word[1])};
    const unsigned from[2] = {before, before + own[0]};
    uint64_t list[2] = {0, 0}; /* bit i: the row's zero i is listed */
    if (count) {
        unsigned ones = 0;
        for (unsigned i = lane; i < bytes; i += LANES)
            ones += hw::popc((uint64_t)hw::load(p + i));
        const bool over = (signs.unary % 8 && hw::load(p + bytes - 1) >> signs.unary % 8) ||
                          (count * k % 8 && hw::load(p + all - 1) >> count * k % 8);
        if (warp_sum(ones) != count || over || !bits_at(p, bytes, signs.unary - 1, 1))
            return false;
    }
    if (count && !k) {
        PICI_UNROLL
        for (unsigned r = 0; r < 2; r++)
            list[r] = bits_at(p, bytes, from[r], own[r] < 32 ? own[r] : 32) |
                      (own[r] > 32 ? (uint64_t)bits_at(p, bytes, from[r] + 32, own[r] - 32) << 32 : 0);
    }
    /* all lanes read all codes; each keeps the numbers of its zeros */
    unsigned next = 0, done = 0, rest = 0;
    for (unsigned first = 0; k && first < signs.unary; first += 32)
        for (uint32_t w = bits_at(p, bytes, first, 32); w; w &= w - 1, rest += k) {
            const unsigned place = first + hw::ffs((uint64_t)w) - 1;
            next += ((place - done) << k) + bits_at(p + bytes, all - bytes, rest, k);
            if (next >= signs.zeros)
                return false;
            PICI_UNROLL
            for (unsigned r = 0; r < 2; r++)
                if (next - from[r] < own[r])
                    list[r] |= UINT64_C(1) << (next - from[r]);
            next++;
            done = place + 1;
        }
    PICI_UNROLL
    for (unsigned r = 0; r < 2; r++) {
        const uint64_t listed = deposit(list[r], zero.word[r]);
        negative.word[r] = signs.flip ? zero.word[r] & ~listed : listed;
    }
    return true;
}

/* Writes bits one after the other. All lanes have the same bits, and the first one stores them. */
struct bit_writer {
    uint8_t *to;
    uint64_t held;
    unsigned count; /* of bits held, below 8 between calls */

    /* nonzeros <= 32 */
    PICI_DEV_MEMBER void put(uint32_t bits, unsigned nonzeros)
    {
        held |= (uint64_t)bits << count;
        for (count += nonzeros; count >= 8; count -= 8, held >>= 8)
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

/* Write the signs of a tile. list: the result of signs_measure. */
PICI_DEV void signs_write(uint8_t *bytes, const tile_signs &signs, const columns &zero, const columns &list)
{
    const unsigned k = signs.listed ? rice_of(signs.listed, signs.zeros) : 0, before = tile_offset(zero);
    bit_writer unary = {bytes, 0, 0}, rest = {bytes + (signs.unary + 7) / 8, 0, 0};
    unsigned next = 0, left = signs.unary;
    for (unsigned row = 0; signs.listed && row < ROWS; row++) {
        const unsigned r = row % 2;
        const uint64_t its_zero = hw::shfl(r ? zero.word[1] : zero.word[0], row / 2);
        const uint64_t its_list = hw::shfl(r ? list.word[1] : list.word[0], row / 2);
        const unsigned from = hw::shfl(r ? before + hw::popc(zero.word[0]) : before, row / 2);
        if (!k) { /* the bits of the row's zeros, up to the last one listed */
            const uint64_t bits = extract(its_list, its_zero);
            const unsigned own = hw::popc(its_zero), count = own < left ? own : left;
            unary.put((uint32_t)bits, count < 32 ? count : 32);
            if (count > 32)
                unary.put((uint32_t)(bits >> 32), count - 32);
            left -= count;
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
