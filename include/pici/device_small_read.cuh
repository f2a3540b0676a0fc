/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Decoding a context chunk of a small delta (formats/small-delta.md) by a warp, whose lanes are those of the coder.
 * Chunks are untrusted. What is decoded is counted again before any element is changed. Part of pici/device.cuh. */
#ifndef PICI_DEVICE_SMALL_READ_CUH
#define PICI_DEVICE_SMALL_READ_CUH

#include "pici/device_small.cuh"

namespace pici {

/* Device memory that decoding a chunk of n elements uses, aligned to 16: what changed, a bit for each element; of each
 * element that changed its old and its new bits, its token, and room for a list of numbers. */
template <class T> struct small_read_room {
    uint32_t *changed, *id;
    T *old, *now;
    uint8_t *token;
};

PICI_DEV_HOST constexpr uint64_t small_up16(uint64_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

template <class T> PICI_DEV_HOST constexpr uint64_t SMALL_READ_BYTES(uint64_t n)
{
    return small_up16(n / 8 + 8) + small_up16(4 * n) + 2 * small_up16(n * sizeof(T)) + small_up16(n);
}

template <class T> PICI_DEV small_read_room<T> small_read_room_at(uint8_t *p, uint64_t n)
{
    small_read_room<T> r;
    r.changed = (uint32_t *)p;
    r.id = (uint32_t *)(p += small_up16(n / 8 + 8));
    r.old = (T *)(p += small_up16(4 * n));
    r.now = (T *)(p += small_up16(n * sizeof(T)));
    r.token = p + small_up16(n * sizeof(T));
    return r;
}

/* The decoder. A lane has a word of the next 32, and one of the 32 after these. */
struct small_decoder {
    const uint8_t *words;
    uint32_t count, base, at;
    uint32_t x, near, far; /* a lane's */

    PICI_DEV_MEMBER uint32_t word(uint32_t i) const
    {
        return i < count ? hw::load(words + 2 * (uint64_t)i) | (uint32_t)hw::load(words + 2 * (uint64_t)i + 1) << 8 : 0;
    }

    PICI_DEV_MEMBER void begin(const uint8_t *p, uint32_t n, uint32_t state)
    {
        words = p;
        count = n;
        base = at = 0;
        x = state;
        near = word(hw::lane());
        far = word(LANES + hw::lane());
    }

    /* A step: the lane's bit. zero: a lane's share of a 0. */
    PICI_DEV_MEMBER bool step(uint32_t zero)
    {
        const uint32_t s = x % SMALL_SHARES, h = x / SMALL_SHARES;
        const bool one = s >= zero;
        x = one ? (SMALL_SHARES - zero) * h + s - zero : zero * h + s;
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

/* A context chunk that is being read. */
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

enum : uint32_t { SMALL_HAS_FREQUENT = 128 /* in place of token 0: the literal has the frequent mantissa */ };

template <class K> PICI_DEV bool small_is_literal(uint32_t old, uint32_t low)
{
    return K::LITERALS && small_exponent<K>(old) <= low;
}

/* 4 bytes at any address. */
PICI_DEV uint32_t small_load4(const uint8_t *p)
{
    uint32_t v = 0;
    PICI_UNROLL
    for (unsigned i = 0; i < 4; i++)
        v |= (uint32_t)hw::load(p + i) << 8 * i;
    return v;
}

/* The tables of class c, at offset `at` of the chunk. Returns where they end; 0: they break a rule. */
template <class K> PICI_DEV uint32_t small_read_class(small_reading<K> &r, unsigned c, uint32_t at)
{
    const unsigned lane = hw::lane();
    uint32_t own = 0, nodes = 0, most = 0; /* own: of token, or node, `lane` */
    if (r.len - at < (K::TREE ? 1u : 2u))
        return 0;
    const uint32_t changed = hw::load(r.chunk + at++);
    if constexpr (K::TREE) {
        PICI_UNROLL_1
        for (unsigned x = 1; x < SMALL_TOKENS; x++) {
            const uint32_t above = hw::shfl(own, x / 2);
            if (x > 1 && (!(nodes >> x / 2 & 1) || above == (x % 2 ? 0u : 255u)))
                continue;
            if (at == r.len)
                return 0;
            const uint32_t q = hw::load(r.chunk + at++);
            own = lane == x ? q : own;
            nodes |= 1u << x;
        }
    } else {
        most = hw::load(r.chunk + at++);
        if (most > (K::LITERALS && c == 0 ? (uint32_t)SMALL_ESCAPE : (uint32_t)SMALL_MOST_DIFFERENCE) ||
            r.len - at < most)
            return 0;
        own = lane < most ? hw::load(r.chunk + at + lane) : 0;
        at += most;
    }
    hw::put(&r.memory->read.token[c][lane], (uint8_t)own);
    if (lane == 0) {
        hw::put(&r.memory->read.changed[c], (uint8_t)changed);
        hw::put(&r.memory->read.most[c], (uint8_t)most);
        hw::put(r.memory->read.nodes + c, nodes);
    }
    return at;
}

/* Everything before the first list. */
template <class K> PICI_DEV bool small_read_head(small_reading<K> &r)
{
    using T = typename K::element;
    const unsigned lane = hw::lane();
    if (r.len >= small_limit<T>(r.n) || r.len < SMALL_TABLES_AT)
        return false;
    small_clear((uint32_t *)&r.memory->read, sizeof r.memory->read / 4);
    small_clear(r.memory->tokens, SMALL_CLASSES * SMALL_STRIDE);
    small_clear(r.memory->sampled, SMALL_CLASSES);
    small_clear(r.memory->bins, SMALL_BINS);
    r.tables.low = hw::load(r.chunk);
    r.tables.top = hw::load(r.chunk + 1);
    r.tables.frequent_odds = hw::load(r.chunk + 2);
    r.tables.frequent = small_load4(r.chunk + 4);
    r.tables.classes = small_load4(r.chunk + SMALL_CLASSES_AT);
    if (hw::load(r.chunk + 3) || !r.tables.classes || r.tables.classes >> (SMALL_CLASSES - 1))
        return false;
    uint32_t at = SMALL_TABLES_AT;
    PICI_UNROLL_1
    for (unsigned c = 0; c < SMALL_CLASSES && at; c++)
        if (r.tables.classes >> c & 1)
            at = small_read_class<K>(r, c, at);
    const uint32_t words = small_load4(r.chunk + SMALL_WORDS_AT),
                   state = small_load4(r.chunk + SMALL_STATES_AT + 4 * lane);
    if (!at || words > (r.len - at) / 2 || hw::ballot(state < SMALL_STATE))
        return false;
    r.in.begin(r.chunk + at, words, state);
    r.rest = r.chunk + at + 2 * (uint64_t)words;
    r.listed = 0;
    hw::syncwarp();
    return true;
}

/* List 1: who changed. */
template <class K> PICI_DEV void small_read_changed(small_reading<K> &r)
{
    using T = typename K::element;
    const unsigned lane = hw::lane();
    const uint32_t own = small_zero(hw::get(&r.memory->read.changed[lane]));
    r.k = 0;
    const auto load = [&](uint32_t row) -> uint32_t {
        return row * LANES + lane < r.n ? hw::load(r.dst + row * LANES + lane) : 0;
    };
    small_rows<false>((r.n + LANES - 1) / LANES, load, [&](uint32_t row, uint32_t v) {
        const bool inside = row * LANES + lane < r.n;
        const uint32_t c = small_class_of(small_exponent<K>(v), r.tables.low), zero = hw::shfl(own, c);
        const unsigned who = hw::ballot(r.in.step(inside ? zero : (uint32_t)SMALL_SHARES));
        if (who >> lane & 1) {
            const uint32_t i = r.k + hw::popc(who & lanes_below());
            hw::store(r.room.old + i, (T)v);
            hw::store(r.room.token + i, (uint8_t)0);
        }
        if (lane == 0)
            hw::store(r.room.changed + row, who);
        if (small_is_sampled(row) && inside)
            hw::shared_add(r.memory->sampled + c, UINT32_C(1));
        r.k += hw::popc(who);
    });
    hw::syncwarp();
}

/* Count a list of n bits. False: that is more than allowed. */
template <class K> PICI_DEV bool small_list_fits(small_reading<K> &r, uint32_t n)
{
    r.listed += n;
    return K::TREE || r.listed <= SMALL_LISTED * r.n;
}

/* Decode a list of the n elements in r.room.id. zero(i, inside) is the share of a 0 of element i, take(i, bit, inside)
 * takes its bit; both are a lane's, and lanes that are not inside have no element. */
template <class K, class ZERO, class TAKE>
PICI_DEV void small_read_list(small_reading<K> &r, uint32_t n, ZERO zero, TAKE take)
{
    for (uint32_t at = 0; at < n; at += LANES) {
        const bool inside = at + hw::lane() < n;
        const uint32_t i = inside ? hw::load(r.room.id + at + hw::lane()) : 0;
        const uint32_t z = zero(i, inside);
        const bool bit = r.in.step(inside ? z : (uint32_t)SMALL_SHARES);
        take(i, bit && inside, inside);
    }
    hw::syncwarp();
}

/* Lists by level, of those of the n elements in r.room.id of which bits are listed at level 0. */
template <class K> PICI_DEV bool small_read_levels(small_reading<K> &r, uint32_t n)
{
    const unsigned lane = hw::lane();
    const auto class_of = [&](uint32_t i) {
        return small_class_of(small_exponent<K>(hw::load(r.room.old + i)), r.tables.low);
    };
    PICI_UNROLL_1
    for (unsigned level = 0; n; level++) {
        if (!small_list_fits(r, n))
            return false;
        const uint32_t own = small_zero(hw::get(&r.memory->read.token[lane][level])),
                       next = level + 1 < SMALL_TOKENS ? small_zero(hw::get(&r.memory->read.token[lane][level + 1]))
                                                       : (uint32_t)SMALL_SHARES;
        uint32_t kept = 0;
        small_read_list(
            r, n, [&](uint32_t i, bool) { return hw::shfl(own, class_of(i)); },
            [&](uint32_t i, bool bit, bool) {
                const bool stays = hw::shfl(next, class_of(i)) != SMALL_SHARES && bit;
                const unsigned who = hw::ballot(stays);
                if (bit)
                    hw::store(r.room.token + i, (uint8_t)(level + 1));
                hw::syncwarp(); /* all have read their numbers */
                if (stays)
                    hw::store(r.room.id + kept + hw::popc(who & lanes_below()), i);
                kept += hw::popc(who);
            });
        n = kept;
    }
    return true;
}

/* Lists of the levels of the tree, of the n elements in r.room.id. */
template <class K> PICI_DEV void small_read_tree(small_reading<K> &r, uint32_t n)
{
    PICI_UNROLL_1
    for (unsigned level = 0; level < SMALL_TREE_LEVELS && n; level++)
        small_read_list(
            r, n,
            [&](uint32_t i, bool inside) {
                if (!inside) /* another lane may write the token of element 0 */
                    return (uint32_t)SMALL_SHARES;
                const uint32_t c = small_class_of(small_exponent<K>(hw::load(r.room.old + i)), r.tables.low);
                return small_zero(hw::get(&r.memory->read.token[c][1u << level | hw::load(r.room.token + i)]));
            },
            [&](uint32_t i, bool bit, bool inside) {
                if (inside)
                    hw::store(r.room.token + i, (uint8_t)(2 * hw::load(r.room.token + i) + bit));
            });
}

/* Lists 2 to 4. Returns false if they are longer than allowed. *zeros: literals with token 0, in r.room.id. */
template <class K> PICI_DEV bool small_read_lists(small_reading<K> &r, uint32_t *zeros)
{
    *zeros = 0;
    for (unsigned literals = 0; literals <= (K::LITERALS ? 1u : 0u); literals++) {
        const uint32_t n = small_list(r.room.id, r.k, [&](uint32_t i) {
            const uint32_t old = hw::load(r.room.old + i), c = small_class_of(small_exponent<K>(old), r.tables.low);
            return (literals != 0) == small_is_literal<K>(old, r.tables.low) &&
                   (K::TREE || small_zero(hw::get(&r.memory->read.token[c][0])) != SMALL_SHARES);
        });
        if constexpr (K::TREE)
            small_read_tree(r, n);
        else if (!small_read_levels(r, n))
            return false;
    }
    if constexpr (K::LITERALS) {
        const uint32_t zero = small_zero(r.tables.frequent_odds);
        const uint32_t n = small_list(r.room.id, r.k, [&](uint32_t i) {
            return small_is_literal<K>(hw::load(r.room.old + i), r.tables.low) && !hw::load(r.room.token + i);
        });
        *zeros = n;
        if (!small_list_fits(r, n))
            return false;
        small_read_list(
            r, n, [&](uint32_t, bool) { return zero; },
            [&](uint32_t i, bool bit, bool) {
                if (bit)
                    hw::store(r.room.token + i, (uint8_t)SMALL_HAS_FREQUENT);
            });
    }
    return true;
}

/* So many bits, at most 31, from bit `at` of the `bytes` bytes at p on; zeros beyond these. */
PICI_DEV uint32_t small_bits(const uint8_t *p, uint32_t bytes, uint32_t at, uint32_t bits)
{
    uint64_t v = 0;
    const uint32_t first = at / 8, end = at % 8 + bits;
    PICI_UNROLL
    for (unsigned i = 0; i < 5; i++)
        if (8 * i < end && bits && first + i < bytes)
            v |= (uint64_t)hw::load(p + first + i) << 8 * i;
    return (uint32_t)(v >> at % 8 & ((UINT64_C(1) << bits) - 1));
}

/* New values of the literals, or of all others. extra: the `bytes` extra bits; *used: bits of them. Counts tokens and
 * mantissas. Returns false in a lane that finds a value that is not possible. */
template <class K, bool LITERALS>
PICI_DEV bool small_read_values(small_reading<K> &r, const uint8_t *extra, uint32_t bytes, uint32_t *used,
                                uint32_t *top)
{
    using T = typename K::element;
    bool good = true;
    for (uint32_t from = 0; from < r.k; from += LANES) {
        const uint32_t i = from + hw::lane();
        const bool inside = i < r.k;
        const uint32_t old = inside ? hw::load(r.room.old + i) : 0;
        const bool mine = inside && small_is_literal<K>(old, r.tables.low) == LITERALS;
        const uint32_t token = mine ? hw::load(r.room.token + i) : 0, t = token % SMALL_HAS_FREQUENT;
        uint32_t bits = 0;
        if (mine)
            bits = !LITERALS                     ? small_extra_bits(t, K::TREE)
                   : t == SMALL_ESCAPE           ? 8 * (uint32_t)sizeof(T) - 1
                   : token == SMALL_HAS_FREQUENT ? 0
                                                 : K::MANTISSA;
        const uint32_t before = warp_scan(bits), at = *used + before;
        *used += hw::shfl(before + bits, LANES - 1);
        if (!mine)
            continue;
        const uint32_t sign = hw::load(r.rest + i / 8) >> i % 8 & 1, x = small_bits(extra, bytes, at, bits);
        const uint32_t c = small_class_of(small_exponent<K>(old), r.tables.low);
        uint32_t v;
        if (!LITERALS) {
            const uint32_t by = small_least(t, K::TREE) + x;
            v = small_ord<T>((small_ord<T>(old) + (sign ? 0 - by : by)) & SMALL_MASK<T>);
            good = good && by < SMALL_SIGN<T> + sign;
        } else {
            v = token == SMALL_HAS_FREQUENT ? r.tables.frequent : x;
            if (t == SMALL_ESCAPE) {
                good = good && small_exponent<K>(v) + SMALL_ESCAPE <= r.tables.top;
            } else {
                good = good && t <= r.tables.top;
                v |= (r.tables.top - t) << K::MANTISSA;
            }
            v |= sign ? SMALL_SIGN<T> : 0;
            v &= SMALL_MASK<T>;
            good = good && v != old;
            *top = small_exponent<K>(v) > *top ? small_exponent<K>(v) : *top;
            if (t == 0 && !K::TREE)
                hw::shared_add(r.memory->bins + small_mantissa<K>(v), UINT32_C(1));
        }
        hw::store(r.room.now + i, (T)v);
        hw::shared_add(r.memory->tokens + c * SMALL_STRIDE + t, UINT32_C(1));
    }
    hw::syncwarp();
    return good;
}

/* Are the tables those that follow from the elements? */
template <class K> PICI_DEV bool small_recount(small_reading<K> &r, uint32_t top, uint32_t zeros)
{
    small_memory *const m = r.memory;
    const unsigned c = hw::lane();
    small_scalars own;
    own.classes = small_count<K::TREE>(m);
    if (own.classes != r.tables.classes) /* not 0 */
        return false;
    const uint32_t largest = hw::log2(own.classes), low = r.tables.low;
    own.low = largest + low > SMALL_CLASSES - 2 ? largest + low - (SMALL_CLASSES - 2) : 0;
    own.top = warp_max(top);
    small_frequent<K>(own, m, r.room.now, r.room.id, zeros);
    bool same = own.low == low && (largest || !low) && own.top == r.tables.top && own.frequent == r.tables.frequent &&
                own.frequent_odds == r.tables.frequent_odds &&
                hw::get(m->own.nodes + c) == hw::get(m->read.nodes + c) &&
                hw::get(&m->own.most[c]) == hw::get(&m->read.most[c]) &&
                hw::get(&m->own.changed[c]) == hw::get(&m->read.changed[c]);
    for (unsigned x = 0; x < SMALL_TOKENS; x++)
        same = same && hw::get(&m->own.token[c][x]) == hw::get(&m->read.token[c][x]);
    return hw::ballot(!same) == 0;
}

/* Apply a context chunk of n elements, 1 to SMALL_CHUNK, to dst: called by all lanes of a warp.
 *   dst     [n elements]                        the base, and then the result; unchanged if the chunk is not valid
 *   chunk   [len bytes]                         any bytes at any alignment
 *   room    [SMALL_READ_BYTES<T>(n) bytes]      device memory of the warp's own, aligned to 16
 *   memory                                      in shared memory, of the warp's own
 * Returns whether the chunk is valid. */
template <unsigned DTYPE>
PICI_DEV bool warp_apply_small(typename small_kind<DTYPE>::element *dst, uint32_t n, const uint8_t *chunk, uint32_t len,
                               uint8_t *room, small_memory *memory)
{
    using K = small_kind<DTYPE>;
    using T = typename K::element;
    small_reading<K> r;
    uint32_t zeros = 0, used = 0, top = 0;
    r.dst = dst;
    r.n = n;
    r.chunk = chunk;
    r.len = len;
    r.room = small_read_room_at<T>(room, n);
    r.memory = memory;
    hw::syncwarp();
    if (!small_read_head(r))
        return false;
    small_read_changed(r);
    if (!small_read_lists(r, &zeros) || hw::ballot(r.in.x != SMALL_STATE) || r.in.at != r.in.count)
        return false;

    const uint32_t left = len - (uint32_t)(r.rest - chunk), signs = (r.k + 7) / 8;
    if (signs > left || (r.k % 8 && hw::load(r.rest + signs - 1) >> r.k % 8))
        return false;
    const uint8_t *const extra = r.rest + signs;
    bool good = small_read_values<K, false>(r, extra, left - signs, &used, &top);
    if constexpr (K::LITERALS)
        good = small_read_values<K, true>(r, extra, left - signs, &used, &top) && good;
    if (hw::ballot(!good) || (used + 7) / 8 != left - signs || (used % 8 && hw::load(extra + used / 8) >> used % 8) ||
        !small_recount(r, top, zeros))
        return false;

    uint32_t i = 0;
    small_rows<false>((n + LANES - 1) / LANES, [&](uint32_t row) { return hw::load(r.room.changed + row); },
                      [&](uint32_t row, uint32_t who) {
                          if (who >> hw::lane() & 1)
                              hw::store(dst + row * LANES + hw::lane(),
                                        hw::load(r.room.now + i + hw::popc(who & lanes_below())));
                          i += hw::popc(who);
                      });
    hw::syncwarp();
    return true;
}

} // namespace pici

#endif
