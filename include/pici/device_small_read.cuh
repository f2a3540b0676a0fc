/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Decoding a context chunk of a small delta (formats/small-delta.md) by a warp, whose lanes are the coder's lanes.
 * Chunks are untrusted. Decoded data is counted again before any element changes. Part of pici/device.cuh. */
#ifndef PICI_DEVICE_SMALL_READ_CUH
#define PICI_DEVICE_SMALL_READ_CUH

#include "pici/device_small.cuh"

namespace pici {

/* Device memory to decode a chunk of n elements, aligned to 16. It has one bit per element for the changed ones; the
 * old and new bits of each changed element, and its token; and room for a list of numbers. */
template <class T> struct small_read_room {
    uint32_t *changed, *id;
    T *old, *now;
    uint8_t *token;
};

PICI_DEV_HOST constexpr uint64_t small_up16(uint64_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

template <class T> PICI_DEV_HOST constexpr uint64_t SMALL_READ_BYTES(uint64_t count)
{
    return small_up16(count / 8 + 8) + small_up16(4 * count) + 2 * small_up16(count * sizeof(T)) + small_up16(count);
}

template <class T> PICI_DEV small_read_room<T> small_read_room_at(uint8_t *from, uint64_t count)
{
    small_read_room<T> room;
    room.changed = (uint32_t *)from;
    room.id = (uint32_t *)(from += small_up16(count / 8 + 8));
    room.old = (T *)(from += small_up16(4 * count));
    room.now = (T *)(from += small_up16(count * sizeof(T)));
    room.token = from + small_up16(count * sizeof(T));
    return room;
}

/* The decoder. A lane holds one of the next 32 words, and one of the 32 after these. */
struct small_decoder {
    const uint8_t *words;
    uint32_t count, base, at;
    uint32_t x, near, far; /* a lane's */

    PICI_DEV_MEMBER uint32_t word(uint32_t i) const
    {
        return i < count ? hw::load(words + 2 * (uint64_t)i) | (uint32_t)hw::load(words + 2 * (uint64_t)i + 1) << 8 : 0;
    }

    PICI_DEV_MEMBER void begin(const uint8_t *from, uint32_t elements, uint32_t state)
    {
        words = from;
        count = elements;
        base = at = 0;
        x = state;
        near = word(hw::lane());
        far = word(LANES + hw::lane());
    }

    /* Decode a step. Returns the lane's bit. zero: a lane's share of a 0. */
    PICI_DEV_MEMBER bool step(uint32_t zero)
    {
        const uint32_t s = x % SMALL_SHARES, half = x / SMALL_SHARES;
        const bool one = s >= zero;
        x = one ? (SMALL_SHARES - zero) * half + s - zero : zero * half + s;
        const bool needs = x < SMALL_STATE;
        const unsigned who = hw::ballot(needs), i = at - base + hw::popc(who & lanes_below());
        const uint32_t a = hw::shfl(near, i % LANES), b = hw::shfl(far, i % LANES);
        if (needs)
            x = x << 16 | (i < LANES ? a : b);
        at += hw::popc(who);
        if (at - base >= LANES) {
            base += LANES;
            near = far;
            far = word(base + LANES + hw::lane());
        }
        return one;
    }
};

/* A context chunk being read. */
template <class K> struct small_reading {
    using T = typename K::element;
    T *dst;
    uint32_t n, len;
    const uint8_t *chunk;
    small_read_room<T> room;
    small_memory *memory;
    small_scalars tables;
    small_decoder in;
    const uint8_t *rest; /* of the chunk: signs and extra bits */
    uint32_t k;          /* changed elements */
    uint32_t listed;
};

enum : uint32_t { SMALL_HAS_FREQUENT = 128 /* instead of token 0: the literal has the frequent mantissa */ };

template <class K> PICI_DEV bool small_is_literal(uint32_t old_value, uint32_t low)
{
    return K::LITERALS && small_exponent<K>(old_value) <= low;
}

/* Read the tables of class_number at `offset` of the chunk. Returns their end, or 0 if they break a rule. */
template <class K> PICI_DEV uint32_t small_read_class(small_reading<K> &reading, unsigned class_number, uint32_t offset)
{
    const unsigned lane = hw::lane();
    uint32_t own = 0, nodes = 0, most = 0; /* own: of token, or node, `lane` */
    if (reading.len - offset < (K::TREE ? 1u : 2u))
        return 0;
    const uint32_t changed = hw::load(reading.chunk + offset++);
    if constexpr (K::TREE) {
        PICI_UNROLL_1
        for (unsigned x = 1; x < SMALL_TOKENS; x++) {
            const uint32_t above = hw::shfl(own, x / 2);
            if (x > 1 && (!(nodes >> x / 2 & 1) || above == (x % 2 ? 0u : 255u)))
                continue;
            if (offset == reading.len)
                return 0;
            const uint32_t odds = hw::load(reading.chunk + offset++);
            own = lane == x ? odds : own;
            nodes |= 1u << x;
        }
    } else {
        most = hw::load(reading.chunk + offset++);
        if (most > (K::LITERALS && class_number == 0 ? (uint32_t)SMALL_ESCAPE : (uint32_t)SMALL_MOST_DIFFERENCE) ||
            reading.len - offset < most)
            return 0;
        own = lane < most ? hw::load(reading.chunk + offset + lane) : 0;
        offset += most;
    }
    hw::put(&reading.memory->read.token[class_number][lane], (uint8_t)own);
    if (lane == 0) {
        hw::put(&reading.memory->read.changed[class_number], (uint8_t)changed);
        hw::put(&reading.memory->read.most[class_number], (uint8_t)most);
        hw::put(reading.memory->read.nodes + class_number, nodes);
    }
    return offset;
}

/* Read everything before the first list. */
template <class K> PICI_DEV bool small_read_head(small_reading<K> &reading)
{
    using T = typename K::element;
    const unsigned lane = hw::lane();
    if (reading.len >= small_limit<T>(reading.n >> K::PAIRS) || reading.len < SMALL_TABLES_AT)
        return false;
    small_clear((uint32_t *)&reading.memory->read, sizeof reading.memory->read / 4);
    small_clear(reading.memory->tokens, SMALL_COUNTERS);
    small_clear(reading.memory->sampled, SMALL_CLASSES);
    small_clear(reading.memory->bins, SMALL_BINS);
    reading.tables.low = hw::load(reading.chunk);
    reading.tables.top = hw::load(reading.chunk + 1);
    reading.tables.frequent_odds = hw::load(reading.chunk + 2);
    reading.tables.frequent = (uint32_t)load_bytes(reading.chunk + 4, 4);
    reading.tables.classes = (uint32_t)load_bytes(reading.chunk + SMALL_CLASSES_AT, 4);
    if (hw::load(reading.chunk + 3) || !reading.tables.classes || reading.tables.classes >> (SMALL_CLASSES - 1))
        return false;
    uint32_t offset = SMALL_TABLES_AT;
    PICI_UNROLL_1
    for (unsigned class_number = 0; class_number < SMALL_CLASSES && offset; class_number++)
        if (reading.tables.classes >> class_number & 1)
            offset = small_read_class<K>(reading, class_number, offset);
    const uint32_t words = (uint32_t)load_bytes(reading.chunk + SMALL_WORDS_AT, 4),
                   state = (uint32_t)load_bytes(reading.chunk + SMALL_STATES_AT + 4 * lane, 4);
    if (!offset || words > (reading.len - offset) / 2 || hw::ballot(state < SMALL_STATE))
        return false;
    reading.in.begin(reading.chunk + offset, words, state);
    reading.rest = reading.chunk + offset + 2 * (uint64_t)words;
    reading.listed = 0;
    hw::syncwarp();
    return true;
}

/* Read list 1: the changed elements. */
template <class K> PICI_DEV void small_read_changed(small_reading<K> &reading)
{
    using T = typename K::element;
    const unsigned lane = hw::lane();
    const uint32_t own = small_zero(hw::get(&reading.memory->read.changed[lane]));
    reading.k = 0;
    const auto load = [&](uint32_t row) -> uint32_t {
        return row * LANES + lane < reading.n ? small_element<K>(reading.dst, row * LANES + lane) : 0;
    };
    small_rows<false>((reading.n + LANES - 1) / LANES, load, [&](uint32_t row, uint32_t v) {
        const bool inside = row * LANES + lane < reading.n;
        const uint32_t c = small_class_of(small_exponent<K>(v), reading.tables.low), zero = hw::shfl(own, c);
        const unsigned who = hw::ballot(reading.in.step(inside ? zero : (uint32_t)SMALL_SHARES));
        if (who >> lane & 1) {
            const uint32_t i = reading.k + hw::popc(who & lanes_below());
            hw::store(reading.room.old + i, (T)v);
            hw::store(reading.room.token + i, (uint8_t)0);
        }
        if (lane == 0)
            hw::store(reading.room.changed + row, who);
        if (small_is_sampled(row) && inside)
            hw::shared_add(reading.memory->sampled + c, UINT32_C(1));
        reading.k += hw::popc(who);
    });
    hw::syncwarp();
}

/* Count a list of `count` bits. Returns false if the total exceeds the limit. */
template <class K> PICI_DEV bool small_list_fits(small_reading<K> &reading, uint32_t count)
{
    reading.listed += count;
    return K::TREE || reading.listed <= SMALL_LISTED * reading.n;
}

/* Decode a list of the `count` elements in reading.room.id. zero(i, inside) is the share of a 0 of element i; take(i,
 * bit, inside) receives its bit. Both are a lane's. Lanes that are not inside have no element. */
template <class K, class ZERO, class TAKE>
PICI_DEV void small_read_list(small_reading<K> &reading, uint32_t count, ZERO zero, TAKE take)
{
    for (uint32_t offset = 0; offset < count; offset += LANES) {
        const bool inside = offset + hw::lane() < count;
        const uint32_t i = inside ? hw::load(reading.room.id + offset + hw::lane()) : 0;
        const uint32_t share = zero(i, inside);
        const bool bit = reading.in.step(inside ? share : (uint32_t)SMALL_SHARES);
        take(i, bit && inside, inside);
    }
    hw::syncwarp();
}

/* Read the lists by level of the `count` elements in reading.room.id that have listed bits at level 0. */
template <class K> PICI_DEV bool small_read_levels(small_reading<K> &reading, uint32_t count)
{
    const unsigned lane = hw::lane();
    const auto class_of = [&](uint32_t i) {
        return small_class_of(small_exponent<K>(hw::load(reading.room.old + i)), reading.tables.low);
    };
    PICI_UNROLL_1
    for (unsigned level = 0; count; level++) {
        if (!small_list_fits(reading, count))
            return false;
        const uint32_t own = small_zero(hw::get(&reading.memory->read.token[lane][level])),
                       next = level + 1 < SMALL_TOKENS
                                  ? small_zero(hw::get(&reading.memory->read.token[lane][level + 1]))
                                  : (uint32_t)SMALL_SHARES;
        uint32_t kept = 0;
        small_read_list(
            reading, count, [&](uint32_t i, bool) { return hw::shfl(own, class_of(i)); },
            [&](uint32_t i, bool bit, bool) {
                const bool stays = hw::shfl(next, class_of(i)) != SMALL_SHARES && bit;
                const unsigned who = hw::ballot(stays);
                if (bit)
                    hw::store(reading.room.token + i, (uint8_t)(level + 1));
                hw::syncwarp(); /* all lanes have read their numbers */
                if (stays)
                    hw::store(reading.room.id + kept + hw::popc(who & lanes_below()), i);
                kept += hw::popc(who);
            });
        count = kept;
    }
    return true;
}

/* Read the lists of the tree's levels, for the `count` elements in reading.room.id. */
template <class K> PICI_DEV void small_read_tree(small_reading<K> &reading, uint32_t count)
{
    PICI_UNROLL_1
    for (unsigned level = 0; level < SMALL_TREE_LEVELS && count; level++)
        small_read_list(
            reading, count,
            [&](uint32_t i, bool inside) {
                if (!inside) /* another lane may write the token of element 0 */
                    return (uint32_t)SMALL_SHARES;
                const uint32_t c =
                    small_class_of(small_exponent<K>(hw::load(reading.room.old + i)), reading.tables.low);
                return small_zero(
                    hw::get(&reading.memory->read.token[c][1u << level | hw::load(reading.room.token + i)]));
            },
            [&](uint32_t i, bool bit, bool inside) {
                if (inside)
                    hw::store(reading.room.token + i, (uint8_t)(2 * hw::load(reading.room.token + i) + bit));
            });
}

/* Read lists 2 to 4. Returns false if they are too long. *zeros: the number of literals with token 0, listed in
 * reading.room.id. */
template <class K> PICI_DEV bool small_read_lists(small_reading<K> &reading, uint32_t *zeros)
{
    *zeros = 0;
    for (unsigned literals = 0; literals <= (K::LITERALS ? 1u : 0u); literals++) {
        const uint32_t count = small_list(reading.room.id, reading.k, [&](uint32_t i) {
            const uint32_t old = hw::load(reading.room.old + i),
                           c = small_class_of(small_exponent<K>(old), reading.tables.low);
            return (literals != 0) == small_is_literal<K>(old, reading.tables.low) &&
                   (K::TREE || small_zero(hw::get(&reading.memory->read.token[c][0])) != SMALL_SHARES);
        });
        if constexpr (K::TREE)
            small_read_tree(reading, count);
        else if (!small_read_levels(reading, count))
            return false;
    }
    if constexpr (K::LITERALS) {
        const uint32_t zero = small_zero(reading.tables.frequent_odds);
        const uint32_t count = small_list(reading.room.id, reading.k, [&](uint32_t i) {
            return small_is_literal<K>(hw::load(reading.room.old + i), reading.tables.low) &&
                   !hw::load(reading.room.token + i);
        });
        *zeros = count;
        if (!small_list_fits(reading, count))
            return false;
        small_read_list(
            reading, count, [&](uint32_t, bool) { return zero; },
            [&](uint32_t i, bool bit, bool) {
                if (bit)
                    hw::store(reading.room.token + i, (uint8_t)SMALL_HAS_FREQUENT);
            });
    }
    return true;
}

/* `bits` bits, at most 31, from bit `offset` of the `bytes` bytes at `from`; zeros beyond these. */
PICI_DEV uint32_t small_bits(const uint8_t *from, uint32_t bytes, uint32_t offset, uint32_t bits)
{
    uint64_t value = 0;
    const uint32_t first = offset / 8, end = offset % 8 + bits;
    PICI_UNROLL
    for (unsigned i = 0; i < 5; i++)
        if (8 * i < end && bits && first + i < bytes)
            value |= (uint64_t)hw::load(from + first + i) << 8 * i;
    return (uint32_t)(value >> offset % 8 & ((UINT64_C(1) << bits) - 1));
}

/* Compute the new values of the literals, or of all others. extra: the `bytes` extra bits; *used: bits of them. Counts
 * tokens and mantissas. Returns false in a lane that finds an impossible value. */
template <class K, bool LITERALS>
PICI_DEV bool small_read_values(small_reading<K> &reading, const uint8_t *extra, uint32_t bytes, uint32_t *used,
                                uint32_t *top)
{
    using T = typename K::element;
    bool good = true;
    for (uint32_t from = 0; from < reading.k; from += LANES) {
        const uint32_t i = from + hw::lane();
        const bool inside = i < reading.k;
        const uint32_t old_value = inside ? hw::load(reading.room.old + i) : 0;
        const bool mine = inside && small_is_literal<K>(old_value, reading.tables.low) == LITERALS;
        const uint32_t token = mine ? hw::load(reading.room.token + i) : 0, token_number = token % SMALL_HAS_FREQUENT;
        uint32_t bits = 0;
        if (mine)
            bits = !LITERALS                      ? small_extra_bits(token_number, K::TREE)
                   : token_number == SMALL_ESCAPE ? 8 * (uint32_t)sizeof(T) - 1
                   : token == SMALL_HAS_FREQUENT  ? 0
                                                  : K::MANTISSA;
        const uint32_t before = warp_scan(bits), offset = *used + before;
        *used += hw::shfl(before + bits, LANES - 1);
        if (!mine)
            continue;
        const uint32_t sign = hw::load(reading.rest + i / 8) >> i % 8 & 1, x = small_bits(extra, bytes, offset, bits);
        const uint32_t class_number = small_class_of(small_exponent<K>(old_value), reading.tables.low);
        uint32_t value;
        if (!LITERALS) {
            const uint32_t by = small_least(token_number, K::TREE) + x;
            value = small_ord<T>((small_ord<T>(old_value) + (sign ? 0 - by : by)) & SMALL_MASK<T>);
            good = good && by < SMALL_SIGN<T> + sign && !(K::PAIRS && value & SMALL_E2M1_ZERO);
        } else {
            value = token == SMALL_HAS_FREQUENT ? reading.tables.frequent : x;
            if (token_number == SMALL_ESCAPE) {
                good = good && small_exponent<K>(value) + SMALL_ESCAPE <= reading.tables.top;
            } else {
                good = good && token_number <= reading.tables.top;
                value |= (reading.tables.top - token_number) << K::MANTISSA;
            }
            value |= sign ? SMALL_SIGN<T> : 0;
            value &= SMALL_MASK<T>;
            good = good && value != old_value;
            *top = small_exponent<K>(value) > *top ? small_exponent<K>(value) : *top;
            if (token_number == 0 && !K::TREE)
                hw::shared_add(reading.memory->bins + small_mantissa<K>(value), UINT32_C(1));
        }
        hw::store(reading.room.now + i, (T)value);
        hw::shared_add(reading.memory->tokens + class_number * SMALL_STRIDE + token_number, UINT32_C(1));
    }
    hw::syncwarp();
    return good;
}

/* Do the tables follow from the elements? */
template <class K> PICI_DEV bool small_recount(small_reading<K> &reading, uint32_t top, uint32_t zeros)
{
    small_memory *const memory = reading.memory;
    const unsigned class_number = hw::lane();
    small_scalars scalars;
    scalars.classes = small_count<K::TREE>(memory);
    if (scalars.classes != reading.tables.classes) /* not 0 */
        return false;
    const uint32_t largest = hw::log2(scalars.classes), low = reading.tables.low;
    scalars.low = largest + low > SMALL_CLASSES - 2 ? largest + low - (SMALL_CLASSES - 2) : 0;
    scalars.top = warp_max(top);
    small_frequent<K>(scalars, memory, reading.room.now, reading.room.id, zeros);
    bool same = scalars.low == low && (largest || !low) && scalars.top == reading.tables.top &&
                scalars.frequent == reading.tables.frequent && scalars.frequent_odds == reading.tables.frequent_odds &&
                hw::get(memory->own.nodes + class_number) == hw::get(memory->read.nodes + class_number) &&
                hw::get(&memory->own.most[class_number]) == hw::get(&memory->read.most[class_number]) &&
                hw::get(&memory->own.changed[class_number]) == hw::get(&memory->read.changed[class_number]);
    for (unsigned x = 0; x < SMALL_TOKENS; x++)
        same = same && hw::get(&memory->own.token[class_number][x]) == hw::get(&memory->read.token[class_number][x]);
    return hw::ballot(!same) == 0;
}

/* Write the new values of the changed elements. */
template <class K> PICI_DEV void small_write(const small_reading<K> &reading)
{
    const unsigned lane = hw::lane();
    uint32_t written = 0;
    small_rows<false>(
        (reading.n + LANES - 1) / LANES, [&](uint32_t row) { return hw::load(reading.room.changed + row); },
        [&](uint32_t row, uint32_t who) {
            const uint32_t i = row * LANES + lane;
            const bool mine = who >> lane & 1;
            uint32_t value = mine ? hw::load(reading.room.now + written + hw::popc(who & lanes_below())) : 0;
            if constexpr (K::PAIRS) { /* an even lane has a byte: its own four bits and the next lane's */
                const uint32_t four = (value & 7) | (value >> 4 & 8), next = hw::shfl_down(four, 1),
                               which = lane % 2 ? 0 : who >> lane & 3, kept = which & 1 ? 0xf0 : 0xff;
                if (which) {
                    const uint32_t byte = hw::load(reading.dst + i / 2) & (which & 2 ? kept & 0x0f : kept);
                    hw::store(reading.dst + i / 2,
                              (uint8_t)(byte | (which & 1 ? four : 0) | (which & 2 ? next << 4 : 0)));
                }
            } else if (mine) {
                hw::store(reading.dst + i, (typename K::element)value);
            }
            written += hw::popc(who);
        });
    hw::syncwarp();
}

/* Apply a context chunk of count elements, 1 to SMALL_CHUNK, to dst: called by all lanes of a warp.
 *   dst     [count elements]                        the base, and then the result; unchanged if the chunk is not valid
 *   chunk   [size bytes]                         any bytes at any alignment
 *   room    [SMALL_READ_BYTES<T>(count) bytes]      device memory of the warp's own, aligned to 16; of SMALL_E2M1X2
 *           for 2 * count
 *   memory                                      in shared memory, of the warp's own
 * Returns whether the chunk is valid. */
template <unsigned DTYPE>
PICI_DEV bool warp_apply_small(typename small_kind<DTYPE>::element *dst, uint32_t count, const uint8_t *chunk,
                               uint32_t size, uint8_t *room, small_memory *memory)
{
    using K = small_kind<DTYPE>;
    using T = typename K::element;
    small_reading<K> reading;
    uint32_t zeros = 0, used = 0, top = 0;
    reading.dst = dst;
    reading.n = count << K::PAIRS;
    reading.chunk = chunk;
    reading.len = size;
    reading.room = small_read_room_at<T>(room, reading.n);
    reading.memory = memory;
    hw::syncwarp();
    if (!small_read_head(reading))
        return false;
    small_read_changed(reading);
    if (!small_read_lists(reading, &zeros) || hw::ballot(reading.in.x != SMALL_STATE) ||
        reading.in.at != reading.in.count)
        return false;

    const uint32_t left = size - (uint32_t)(reading.rest - chunk), signs = (reading.k + 7) / 8;
    if (signs > left || (reading.k % 8 && hw::load(reading.rest + signs - 1) >> reading.k % 8))
        return false;
    const uint8_t *const extra = reading.rest + signs;
    bool good = small_read_values<K, false>(reading, extra, left - signs, &used, &top);
    if constexpr (K::LITERALS)
        good = small_read_values<K, true>(reading, extra, left - signs, &used, &top) && good;
    if (hw::ballot(!good) || (used + 7) / 8 != left - signs || (used % 8 && hw::load(extra + used / 8) >> used % 8) ||
        !small_recount(reading, top, zeros))
        return false;

    small_write(reading);
    return true;
}

} // namespace pici

#endif
