/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encoding a context chunk of a small delta (formats/small-delta.md) by a warp. Bits are listed in the order of
 * decoding, and coded from the last to the first. Part of pici/device.cuh. */
#ifndef PICI_DEVICE_SMALL_MAKE_CUH
#define PICI_DEVICE_SMALL_MAKE_CUH

#include "pici/device_small_read.cuh"

namespace pici {

/* Device memory to encode a chunk of n elements, aligned to 16; two elements of 4 bits count as two. It has one bit per
 * element for the changed ones; the old and new bits of each changed element; and room for a list of numbers. Then come
 * all listed bits, each with its odds; and words, filled from the end. */
template <class T> struct small_make_room {
    uint32_t *changed, *id;
    T *old, *now;
    uint16_t *list;
    uint16_t *words_end;
};

template <class T> PICI_DEV_HOST constexpr uint64_t SMALL_LIST_MOST(uint64_t count)
{
    return (sizeof(T) == 4 ? SMALL_TREE_LEVELS + 1 : (uint64_t)SMALL_LISTED) * count + 3 * SMALL_TOKENS * LANES;
}

template <class T> PICI_DEV_HOST constexpr uint64_t SMALL_MAKE_BYTES(uint64_t count)
{
    return small_up16(count / 8 + 8) + small_up16(4 * count) + 2 * small_up16(count * sizeof(T)) +
           small_up16(2 * SMALL_LIST_MOST<T>(count)) + small_up16(small_limit<T>((uint32_t)count));
}

template <class T> PICI_DEV small_make_room<T> small_make_room_at(uint8_t *out, uint64_t count)
{
    small_make_room<T> room;
    room.changed = (uint32_t *)out;
    room.id = (uint32_t *)(out += small_up16(count / 8 + 8));
    room.old = (T *)(out += small_up16(4 * count));
    room.now = (T *)(out += small_up16(count * sizeof(T)));
    room.list = (uint16_t *)(out += small_up16(count * sizeof(T)));
    out += small_up16(2 * SMALL_LIST_MOST<T>(count));
    room.words_end = (uint16_t *)(out + small_up16(small_limit<T>((uint32_t)count)));
    return room;
}

/* A context chunk being made. */
template <class K> struct small_making {
    using T = typename K::element;
    const T *base, *src;
    uint32_t n;
    small_make_room<T> room;
    small_memory *memory;
    small_scalars tables;
    uint32_t k, zeros, having; /* changed elements; literals with token 0; of these, those with the frequent mantissa */
    uint32_t listed;           /* bits in the lists, including padding at their ends */
    uint32_t x, words;         /* a lane's state; words so far */
};

/* The coded parts of a changed element. */
struct small_change {
    uint32_t c, token, v; /* v: magnitude of a difference */
    bool literal, sign;
};

PICI_DEV uint32_t small_token(uint32_t magnitude, bool tree)
{
    if (tree)
        return hw::log2(magnitude);
    if (magnitude <= 4)
        return magnitude - 1;
    const uint32_t octave = hw::log2(magnitude - 1);
    return 2 * octave + ((magnitude - 1) >> (octave - 1) & 1);
}

template <class K> PICI_DEV small_change small_change_at(const small_making<K> &making, uint32_t i)
{
    using T = typename K::element;
    const uint32_t old_value = hw::load(making.room.old + i), new_value = hw::load(making.room.now + i),
                   exponent = small_exponent<K>(new_value);
    small_change change;
    change.c = small_class_of(small_exponent<K>(old_value), making.tables.low);
    change.literal = K::LITERALS && change.c == 0;
    const uint32_t d = (small_ord<T>(new_value) - small_ord<T>(old_value)) & SMALL_MASK<T>;
    const bool below = d >> (8 * sizeof(T) - 1);
    change.v = below ? (0 - d) & SMALL_MASK<T> : d;
    change.sign = change.literal ? new_value >> (8 * sizeof(T) - 1) : below;
    if (!change.literal)
        change.token = small_token(change.v, K::TREE);
    else
        change.token =
            making.tables.top - exponent < SMALL_ESCAPE ? making.tables.top - exponent : (uint32_t)SMALL_ESCAPE;
    return change;
}

/* Find the changed elements, and count exponents of the sampled elements. Sets making.k, and *largest to the largest
 * exponent of a changed old element. Returns the number of changes in more than the sign. */
template <class K> PICI_DEV uint32_t small_find_changes(small_making<K> &making, uint32_t *largest)
{
    using T = typename K::element;
    struct both {
        uint32_t a, b;
    };
    const unsigned lane = hw::lane();
    uint32_t most = 0, more = 0;
    making.k = 0;
    const auto load = [&](uint32_t row) {
        const uint32_t i = row * LANES + lane;
        return i < making.n ? both{small_element<K>(making.base, i), small_element<K>(making.src, i)} : both{0, 0};
    };
    small_rows<false>((making.n + LANES - 1) / LANES, load, [&](uint32_t row, both v) {
        const bool changed = v.a != v.b;
        const unsigned who = hw::ballot(changed);
        const uint32_t e = small_exponent<K>(v.a);
        if (changed) {
            const uint32_t i = making.k + hw::popc(who & lanes_below());
            hw::store(making.room.old + i, (T)v.a);
            hw::store(making.room.now + i, (T)v.b);
            most = e > most ? e : most;
        }
        more += hw::popc(hw::ballot(changed && (v.a ^ v.b) != SMALL_SIGN<T>));
        if (lane == 0)
            hw::store(making.room.changed + row, who);
        if (small_is_sampled(row) && row * LANES + lane < making.n)
            hw::shared_add(making.memory->bins + e, UINT32_C(1));
        making.k += hw::popc(who);
    });
    *largest = warp_max(most);
    hw::syncwarp();
    return more;
}

/* Count the sampled elements of each class from the counts of each exponent. */
template <class K> PICI_DEV void small_sample_classes(small_making<K> &making)
{
    const uint32_t class_number = hw::lane(), low = making.tables.low;
    uint32_t count = 0;
    for (uint32_t exponent = class_number ? low + class_number : 0; exponent <= K::EXPONENTS; exponent++) {
        if (small_class_of(exponent, low) != class_number)
            break;
        count += hw::get(making.memory->bins + exponent);
    }
    hw::put(making.memory->sampled + class_number, count);
    hw::syncwarp();
    small_clear(making.memory->bins, SMALL_BINS);
}

/* Count tokens and make the tables. */
template <class K> PICI_DEV void small_make_tables(small_making<K> &making)
{
    small_memory *const memory = making.memory;
    uint32_t top = 0;
    making.tables.top = 0;
    for (uint32_t i = hw::lane(); K::LITERALS && i < making.k; i += LANES) {
        const uint32_t exponent = small_exponent<K>(hw::load(making.room.now + i));
        if (small_is_literal<K>(hw::load(making.room.old + i), making.tables.low))
            top = exponent > top ? exponent : top;
    }
    making.tables.top = warp_max(top);
    making.zeros = small_list(making.room.id, making.k, [&](uint32_t i) {
        const small_change x = small_change_at(making, i);
        hw::shared_add(memory->tokens + x.c * SMALL_STRIDE + x.token, UINT32_C(1));
        if (x.literal && x.token == 0 && !K::TREE)
            hw::shared_add(memory->bins + small_mantissa<K>(hw::load(making.room.now + i)), UINT32_C(1));
        return x.literal && x.token == 0;
    });
    making.tables.classes = small_count<K::TREE>(memory);
    making.having = small_frequent<K>(making.tables, memory, making.room.now, making.room.id, making.zeros);
}

/* ---- lists ---- */

/* Append a list of the count elements in making.room.id. odds(i) and bit(i) are a lane's. */
template <class K, class ODDS, class BIT>
PICI_DEV void small_put_list(small_making<K> &making, uint32_t count, ODDS odds, BIT bit)
{
    for (uint32_t offset = 0; offset < count; offset += LANES, making.listed += LANES) {
        const bool inside = offset + hw::lane() < count;
        const uint32_t i = inside ? hw::load(making.room.id + offset + hw::lane()) : 0;
        const uint32_t entry = inside ? odds(i) | (uint32_t)bit(i) << 8 : 0;
        hw::store(making.room.list + making.listed + hw::lane(), (uint16_t)entry);
    }
}

/* Append the lists by level of the `count` elements in making.room.id that have odds at level 0. */
template <class K> PICI_DEV void small_put_levels(small_making<K> &making, uint32_t count)
{
    const auto odds = [&](const small_change &change, unsigned level) {
        return level < SMALL_TOKENS ? (uint32_t)hw::get(&making.memory->own.token[change.c][level]) : 0;
    };
    PICI_UNROLL_1
    for (unsigned level = 0; count; level++) {
        small_put_list(
            making, count, [&](uint32_t i) { return odds(small_change_at(making, i), level); },
            [&](uint32_t i) { return small_change_at(making, i).token > level; });
        uint32_t kept = 0;
        for (uint32_t offset = 0; offset < count; offset += LANES) {
            const bool inside = offset + hw::lane() < count;
            const uint32_t i = inside ? hw::load(making.room.id + offset + hw::lane()) : 0;
            const small_change change = small_change_at(making, i);
            const bool stays = inside && change.token > level && odds(change, level + 1);
            const unsigned who = hw::ballot(stays);
            hw::syncwarp(); /* all lanes have read their numbers */
            if (stays)
                hw::store(making.room.id + kept + hw::popc(who & lanes_below()), i);
            kept += hw::popc(who);
        }
        count = kept;
        hw::syncwarp();
    }
}

template <class K> PICI_DEV void small_put_tree(small_making<K> &making, uint32_t count)
{
    PICI_UNROLL_1
    for (unsigned level = 0; level < SMALL_TREE_LEVELS; level++)
        small_put_list(
            making, count,
            [&](uint32_t i) {
                const small_change x = small_change_at(making, i);
                const uint32_t node = (SMALL_TOKENS + x.token) >> (SMALL_TREE_LEVELS - level);
                return (uint32_t)hw::get(&making.memory->own.token[x.c][node]);
            },
            [&](uint32_t i) { return small_change_at(making, i).token >> (SMALL_TREE_LEVELS - 1 - level) & 1; });
}

template <class K> PICI_DEV void small_put_lists(small_making<K> &making)
{
    making.listed = 0;
    for (unsigned literals = 0; literals <= (K::LITERALS ? 1u : 0u); literals++) {
        const uint32_t count = small_list(making.room.id, making.k, [&](uint32_t i) {
            const small_change x = small_change_at(making, i);
            return x.literal == (literals != 0) && (K::TREE || hw::get(&making.memory->own.token[x.c][0]));
        });
        if constexpr (K::TREE)
            small_put_tree(making, count);
        else
            small_put_levels(making, count);
    }
    if constexpr (K::LITERALS) {
        const uint32_t count = small_list(making.room.id, making.k, [&](uint32_t i) {
            const small_change x = small_change_at(making, i);
            return x.literal && x.token == 0;
        });
        small_put_list(
            making, count, [&](uint32_t) { return making.tables.frequent_odds; },
            [&](uint32_t i) { return small_mantissa<K>(hw::load(making.room.now + i)) == making.tables.frequent; });
    }
    hw::syncwarp();
}

/* ---- encoding ---- */

/* Encode a step. zero: a lane's share of a 0. Returns false if there are more than `most` words. */
template <class K> PICI_DEV bool small_code(small_making<K> &making, uint32_t zero, bool bit, uint32_t most)
{
    const uint32_t frequency = bit ? SMALL_SHARES - zero : zero;
    const bool full = making.x >> 17 >= frequency;
    const unsigned who = hw::ballot(full);
    making.words += hw::popc(who);
    if (making.words > most)
        return false;
    if (full) {
        hw::store(making.room.words_end - making.words + hw::popc(who & lanes_below()), (uint16_t)making.x);
        making.x >>= 16;
    }
    making.x = making.x / frequency * SMALL_SHARES + making.x % frequency + (bit ? zero : 0);
    return true;
}

/* Code all bits. Returns false if this takes more than `most` words. */
template <class K> PICI_DEV bool small_code_all(small_making<K> &making, uint32_t most)
{
    const unsigned lane = hw::lane();
    bool fits = true;
    making.x = SMALL_STATE;
    making.words = 0;
    small_rows<true>(
        making.listed / LANES,
        [&](uint32_t row) -> uint32_t { return hw::load(making.room.list + row * LANES + lane); },
        [&](uint32_t, uint32_t entry) {
            const uint32_t zero = small_zero(entry & 255);
            fits = fits && small_code(making, zero, entry >> 8, most);
        });
    struct both {
        uint32_t element, who;
    };
    const uint32_t own = small_zero(hw::get(&making.memory->own.changed[lane]));
    const auto load = [&](uint32_t row) {
        const uint32_t i = row * LANES + lane;
        return both{i < making.n ? small_element<K>(making.base, i) : 0, hw::load(making.room.changed + row)};
    };
    if (fits)
        small_rows<true>((making.n + LANES - 1) / LANES, load, [&](uint32_t row, both v) {
            const bool inside = row * LANES + lane < making.n;
            const uint32_t zero = hw::shfl(own, small_class_of(small_exponent<K>(v.element), making.tables.low));
            fits = fits && small_code(making, inside ? zero : (uint32_t)SMALL_SHARES, v.who >> lane & 1, most);
        });
    hw::syncwarp();
    return fits;
}

/* ---- the chunk ---- */

/* Size in bytes of the tables of class_number, which is the lane. */
template <class K> PICI_DEV uint32_t small_table_bytes(const small_making<K> &making)
{
    const unsigned class_number = hw::lane();
    if (!(making.tables.classes >> class_number & 1))
        return 0;
    return K::TREE ? 1 + hw::popc(hw::get(making.memory->own.nodes + class_number))
                   : 2 + hw::get(&making.memory->own.most[class_number]);
}

/* The number of extra bits; sets *listed to the number of listed bits of lists 2 to 4. */
template <class K> PICI_DEV uint32_t small_count_bits(const small_making<K> &making, uint32_t *listed)
{
    const unsigned class_number = hw::lane();
    const uint32_t most = hw::get(&making.memory->own.most[class_number]);
    uint32_t extra = 0, all = 0;
    for (unsigned token = 0; token < SMALL_TOKENS; token++) {
        const uint32_t count = hw::get(making.memory->tokens + class_number * SMALL_STRIDE + token);
        extra += count * (!K::LITERALS || class_number ? small_extra_bits(token, K::TREE)
                          : token == SMALL_ESCAPE      ? 8 * (uint32_t)sizeof(typename K::element) - 1
                                                       : K::MANTISSA);
        all += count * (K::TREE ? (uint32_t)SMALL_TREE_LEVELS : token < most ? token + 1 : most);
    }
    *listed = warp_sum(all) + making.zeros;
    return warp_sum(extra) - making.having * K::MANTISSA;
}

PICI_DEV void small_store4(uint8_t *out, uint32_t value)
{
    PICI_UNROLL
    for (unsigned i = 0; i < 4; i++)
        hw::store(out + i, (uint8_t)(value >> 8 * i));
}

/* Write everything up to the end of the words. Returns its size in bytes. */
template <class K> PICI_DEV uint32_t small_put_head(const small_making<K> &making, uint8_t *chunk)
{
    const unsigned class_number = hw::lane();
    const uint32_t bytes = small_table_bytes(making), before = warp_scan(bytes),
                   head = SMALL_TABLES_AT + hw::shfl(before + bytes, LANES - 1);
    if (class_number == 0) {
        hw::store(chunk, (uint8_t)making.tables.low);
        hw::store(chunk + 1, (uint8_t)making.tables.top);
        hw::store(chunk + 2, (uint8_t)making.tables.frequent_odds);
        hw::store(chunk + 3, (uint8_t)0);
        small_store4(chunk + 4, making.tables.frequent);
        small_store4(chunk + SMALL_CLASSES_AT, making.tables.classes);
        small_store4(chunk + SMALL_WORDS_AT, making.words);
    }
    small_store4(chunk + SMALL_STATES_AT + 4 * class_number, making.x);
    uint8_t *out = chunk + SMALL_TABLES_AT + before;
    if (bytes) {
        const uint32_t nodes = hw::get(making.memory->own.nodes + class_number),
                       most = hw::get(&making.memory->own.most[class_number]);
        hw::store(out++, hw::get(&making.memory->own.changed[class_number]));
        if (!K::TREE)
            hw::store(out++, (uint8_t)most);
        for (unsigned x = 0; x < SMALL_TOKENS; x++)
            if (K::TREE ? nodes >> x & 1 : x < most)
                hw::store(out++, hw::get(&making.memory->own.token[class_number][x]));
    }
    for (uint32_t i = class_number; i < making.words; i += LANES) {
        const uint16_t stored = hw::load(making.room.words_end - making.words + i);
        hw::store(chunk + head + 2 * i, (uint8_t)stored);
        hw::store(chunk + head + 2 * i + 1, (uint8_t)(stored >> 8));
    }
    return head + 2 * making.words;
}

/* Write the extra bits of the literals, or of all others, after *have bits in the first word of making.memory->bins.
 * Whole bytes go to *out, which advances. */
template <class K, bool LITERALS>
PICI_DEV void small_put_extra(const small_making<K> &making, uint8_t **out, uint32_t *have)
{
    using T = typename K::element;
    uint32_t *const bins = making.memory->bins;
    for (uint32_t from = 0; from < making.k; from += LANES) {
        const uint32_t i = from + hw::lane();
        uint32_t bits = 0, extra = 0;
        if (i < making.k) {
            const small_change change = small_change_at(making, i);
            const uint32_t new_value = hw::load(making.room.now + i);
            if (change.literal != LITERALS) {
            } else if (!LITERALS) {
                bits = small_extra_bits(change.token, K::TREE);
                extra = change.v - small_least(change.token, K::TREE);
            } else if (change.token == SMALL_ESCAPE) {
                bits = 8 * (uint32_t)sizeof(T) - 1;
                extra = new_value;
            } else if (change.token || small_mantissa<K>(new_value) != making.tables.frequent) {
                bits = K::MANTISSA;
                extra = new_value;
            }
            extra &= (UINT32_C(1) << bits) - 1;
        }
        const uint32_t before = warp_scan(bits), all = hw::shfl(before + bits, LANES - 1), offset = *have + before;
        if (!all)
            continue;
        if (bits) {
            const uint64_t shifted = (uint64_t)extra << offset % 32;
            hw::shared_add(bins + offset / 32, (uint32_t)shifted);
            if (shifted >> 32)
                hw::shared_add(bins + offset / 32 + 1, (uint32_t)(shifted >> 32));
        }
        const uint32_t whole = (*have + all) / 8;
        *have = (*have + all) % 8;
        hw::syncwarp();
        for (uint32_t bit_count = hw::lane(); bit_count < whole; bit_count += LANES)
            hw::store(*out + bit_count, (uint8_t)(hw::get(bins + bit_count / 4) >> bit_count % 4 * 8));
        const uint32_t left = hw::get(bins + whole / 4) >> whole % 4 * 8 & 255;
        *out += whole;
        hw::syncwarp();
        for (uint32_t bit_count = hw::lane(); bit_count <= LANES + 1; bit_count += LANES)
            hw::put(bins + bit_count, bit_count ? 0 : left);
        hw::syncwarp();
    }
}

/* Write signs and extra bits to `to`. Returns their end. */
template <class K> PICI_DEV uint8_t *small_put_rest(const small_making<K> &making, uint8_t *to)
{
    const unsigned lane = hw::lane();
    const uint32_t signs = (making.k + 7) / 8;
    for (uint32_t from = 0; from < making.k; from += LANES) {
        const unsigned who = hw::ballot(from + lane < making.k && small_change_at(making, from + lane).sign);
        if (lane < 4 && from / 8 + lane < signs)
            hw::store(to + from / 8 + lane, (uint8_t)(who >> 8 * lane));
    }
    uint8_t *out = to + signs;
    uint32_t have = 0;
    small_clear(making.memory->bins, SMALL_BINS);
    small_put_extra<K, false>(making, &out, &have);
    if constexpr (K::LITERALS)
        small_put_extra<K, true>(making, &out, &have);
    if (have && lane == 0)
        hw::store(out, (uint8_t)hw::get(making.memory->bins));
    return out + (have != 0);
}

/* Encode a context chunk that leads from the `count` elements of base to the elements of src, count from 1 to
 * SMALL_CHUNK: called by all lanes of a warp.
 *   chunk      out, [48 + count * sizeof(T) bytes]
 *   least      out: no XOR block of the same elements is shorter; 0 if no element changed
 *   base, src  [count elements]
 *   room       [SMALL_MAKE_BYTES<T>(count) bytes]  device memory of the warp's own, aligned to 16; of SMALL_E2M1X2
 *              for 2 * count
 *   memory                                     in shared memory, of the warp's own
 * Returns the chunk's bytes; 0: there is none. */
template <unsigned DTYPE>
PICI_DEV uint32_t warp_diff_small(uint8_t *chunk, uint32_t *least, const typename small_kind<DTYPE>::element *base,
                                  const typename small_kind<DTYPE>::element *src, uint32_t count, uint8_t *room,
                                  small_memory *memory)
{
    using K = small_kind<DTYPE>;
    using T = typename K::element;
    small_making<K> making;
    uint32_t largest, listed;
    making.base = base;
    making.src = src;
    making.n = count << K::PAIRS;
    making.room = small_make_room_at<T>(room, making.n);
    making.memory = memory;
    hw::syncwarp();
    small_clear(memory->tokens, SMALL_COUNTERS);
    small_clear(memory->bins, SMALL_BINS);
    const uint32_t more = small_find_changes(making, &largest);
    *least = 0;
    if (!making.k)
        return 0;
    *least = 48 + (more * (uint32_t)sizeof(T) >> K::PAIRS);
    making.tables.low = largest > SMALL_CLASSES - 2 ? largest - (SMALL_CLASSES - 2) : 0;
    small_sample_classes(making);
    small_make_tables(making);

    const uint32_t extra = small_count_bits(making, &listed), limit = small_limit<T>(count);
    const uint32_t fixed = SMALL_TABLES_AT + warp_sum(small_table_bytes(making)) + (making.k + 7) / 8 + (extra + 7) / 8;
    if ((!K::TREE && listed > SMALL_LISTED * making.n) || fixed >= limit)
        return 0;
    small_put_lists(making);
    if (!small_code_all(making, (limit - 1 - fixed) / 2))
        return 0;
    const uint8_t *const end = small_put_rest(making, chunk + small_put_head(making, chunk));
    hw::syncwarp();
    return (uint32_t)(end - chunk);
}

} // namespace pici

#endif
