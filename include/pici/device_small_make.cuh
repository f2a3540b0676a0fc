/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encoding a context chunk of a small delta (formats/small-delta.md) by a warp. Bits are listed in the order of
 * decoding, and coded from the last to the first. Part of pici/device.cuh. */
#ifndef PICI_DEVICE_SMALL_MAKE_CUH
#define PICI_DEVICE_SMALL_MAKE_CUH

#include "pici/device_small_read.cuh"

namespace pici {

/* Device memory that encoding a chunk of n elements uses, aligned to 16: what changed, a bit for each element; of each
 * element that changed its old and its new bits, and room for a list of numbers; all listed bits, each with its odds;
 * and words, which are filled from the end. */
template <class T> struct small_make_room {
    uint32_t *changed, *id;
    T *old, *now;
    uint16_t *list;
    uint16_t *words_end;
};

template <class T> PICI_DEV_HOST constexpr uint64_t SMALL_LIST_MOST(uint64_t n)
{
    return (sizeof(T) == 4 ? SMALL_TREE_LEVELS + 1 : (uint64_t)SMALL_LISTED) * n + 3 * SMALL_TOKENS * LANES;
}

template <class T> PICI_DEV_HOST constexpr uint64_t SMALL_MAKE_BYTES(uint64_t n)
{
    return small_up16(n / 8 + 8) + small_up16(4 * n) + 2 * small_up16(n * sizeof(T)) +
           small_up16(2 * SMALL_LIST_MOST<T>(n)) + small_up16(small_limit<T>((uint32_t)n));
}

template <class T> PICI_DEV small_make_room<T> small_make_room_at(uint8_t *p, uint64_t n)
{
    small_make_room<T> r;
    r.changed = (uint32_t *)p;
    r.id = (uint32_t *)(p += small_up16(n / 8 + 8));
    r.old = (T *)(p += small_up16(4 * n));
    r.now = (T *)(p += small_up16(n * sizeof(T)));
    r.list = (uint16_t *)(p += small_up16(n * sizeof(T)));
    p += small_up16(2 * SMALL_LIST_MOST<T>(n));
    r.words_end = (uint16_t *)(p + small_up16(small_limit<T>((uint32_t)n)));
    return r;
}

/* A context chunk that is being made. */
template <class K> struct small_making {
    using T = typename K::element;
    const T *base, *src;
    uint32_t n;
    small_make_room<T> room;
    small_memory *memory;
    small_scalars tables;
    uint32_t k, zeros, having; /* changed elements; literals with token 0; of these, those with the frequent mantissa */
    uint32_t listed;           /* bits in the lists, with those beyond the end of one */
    uint32_t x, words;         /* a lane's state; words so far */
};

/* What is coded of an element that changed. */
struct small_change {
    uint32_t c, token, v; /* v: magnitude of a difference */
    bool literal, sign;
};

PICI_DEV uint32_t small_token(uint32_t v, bool tree)
{
    if (tree)
        return hw::log2(v);
    if (v <= 4)
        return v - 1;
    const uint32_t o = hw::log2(v - 1);
    return 2 * o + ((v - 1) >> (o - 1) & 1);
}

template <class K> PICI_DEV small_change small_change_at(const small_making<K> &m, uint32_t i)
{
    using T = typename K::element;
    const uint32_t old = hw::load(m.room.old + i), now = hw::load(m.room.now + i), e = small_exponent<K>(now);
    small_change x;
    x.c = small_class_of(small_exponent<K>(old), m.tables.low);
    x.literal = K::LITERALS && x.c == 0;
    const uint32_t d = (small_ord<T>(now) - small_ord<T>(old)) & SMALL_MASK<T>;
    const bool below = d >> (8 * sizeof(T) - 1);
    x.v = below ? (0 - d) & SMALL_MASK<T> : d;
    x.sign = x.literal ? now >> (8 * sizeof(T) - 1) : below;
    if (!x.literal)
        x.token = small_token(x.v, K::TREE);
    else
        x.token = m.tables.top - e < SMALL_ESCAPE ? m.tables.top - e : (uint32_t)SMALL_ESCAPE;
    return x;
}

/* Find what changed, and count exponents of the sampled elements. Sets m.k, and the largest exponent of an old element
 * that changed. Returns how many changed otherwise than in the sign alone. */
template <class K> PICI_DEV uint32_t small_find_changes(small_making<K> &m, uint32_t *largest)
{
    using T = typename K::element;
    struct both {
        uint32_t a, b;
    };
    const unsigned lane = hw::lane();
    uint32_t most = 0, more = 0;
    m.k = 0;
    const auto load = [&](uint32_t row) {
        const uint32_t i = row * LANES + lane;
        return i < m.n ? both{hw::load(m.base + i), hw::load(m.src + i)} : both{0, 0};
    };
    small_rows<false>((m.n + LANES - 1) / LANES, load, [&](uint32_t row, both v) {
        const bool changed = v.a != v.b;
        const unsigned who = hw::ballot(changed);
        const uint32_t e = small_exponent<K>(v.a);
        if (changed) {
            const uint32_t i = m.k + hw::popc(who & lanes_below());
            hw::store(m.room.old + i, (T)v.a);
            hw::store(m.room.now + i, (T)v.b);
            most = e > most ? e : most;
        }
        more += hw::popc(hw::ballot(changed && (v.a ^ v.b) != SMALL_SIGN<T>));
        if (lane == 0)
            hw::store(m.room.changed + row, who);
        if (small_is_sampled(row) && row * LANES + lane < m.n)
            hw::shared_add(m.memory->bins + e, UINT32_C(1));
        m.k += hw::popc(who);
    });
    *largest = warp_max(most);
    hw::syncwarp();
    return more;
}

/* The sampled elements of each class, from those of each exponent. */
template <class K> PICI_DEV void small_sample_classes(small_making<K> &m)
{
    const uint32_t c = hw::lane(), low = m.tables.low;
    uint32_t n = 0;
    for (uint32_t e = c ? low + c : 0; e <= K::EXPONENTS; e++) {
        if (small_class_of(e, low) != c)
            break;
        n += hw::get(m.memory->bins + e);
    }
    hw::put(m.memory->sampled + c, n);
    hw::syncwarp();
    small_clear(m.memory->bins, SMALL_BINS);
}

/* Count tokens and make the tables. */
template <class K> PICI_DEV void small_make_tables(small_making<K> &m)
{
    small_memory *const memory = m.memory;
    uint32_t top = 0;
    m.tables.top = 0;
    for (uint32_t i = hw::lane(); K::LITERALS && i < m.k; i += LANES) {
        const uint32_t e = small_exponent<K>(hw::load(m.room.now + i));
        if (small_is_literal<K>(hw::load(m.room.old + i), m.tables.low))
            top = e > top ? e : top;
    }
    m.tables.top = warp_max(top);
    m.zeros = small_list(m.room.id, m.k, [&](uint32_t i) {
        const small_change x = small_change_at(m, i);
        hw::shared_add(memory->tokens + x.c * SMALL_STRIDE + x.token, UINT32_C(1));
        if (x.literal && x.token == 0 && !K::TREE)
            hw::shared_add(memory->bins + small_mantissa<K>(hw::load(m.room.now + i)), UINT32_C(1));
        return x.literal && x.token == 0;
    });
    m.tables.classes = small_count<K::TREE>(memory);
    m.having = small_frequent<K>(m.tables, memory, m.room.now, m.room.id, m.zeros);
}

/* ---- lists ---- */

/* Append a list of the n elements in m.room.id. odds(i) and bit(i) are a lane's. */
template <class K, class ODDS, class BIT>
PICI_DEV void small_put_list(small_making<K> &m, uint32_t n, ODDS odds, BIT bit)
{
    for (uint32_t at = 0; at < n; at += LANES, m.listed += LANES) {
        const bool inside = at + hw::lane() < n;
        const uint32_t i = inside ? hw::load(m.room.id + at + hw::lane()) : 0;
        const uint32_t entry = inside ? odds(i) | (uint32_t)bit(i) << 8 : 0;
        hw::store(m.room.list + m.listed + hw::lane(), (uint16_t)entry);
    }
}

/* Lists by level, of those of the n elements in m.room.id that have odds at level 0. */
template <class K> PICI_DEV void small_put_levels(small_making<K> &m, uint32_t n)
{
    const auto odds = [&](const small_change &x, unsigned level) {
        return level < SMALL_TOKENS ? (uint32_t)hw::get(&m.memory->own.token[x.c][level]) : 0;
    };
    PICI_UNROLL_1
    for (unsigned level = 0; n; level++) {
        small_put_list(
            m, n, [&](uint32_t i) { return odds(small_change_at(m, i), level); },
            [&](uint32_t i) { return small_change_at(m, i).token > level; });
        uint32_t kept = 0;
        for (uint32_t at = 0; at < n; at += LANES) {
            const bool inside = at + hw::lane() < n;
            const uint32_t i = inside ? hw::load(m.room.id + at + hw::lane()) : 0;
            const small_change x = small_change_at(m, i);
            const bool stays = inside && x.token > level && odds(x, level + 1);
            const unsigned who = hw::ballot(stays);
            hw::syncwarp(); /* all have read their numbers */
            if (stays)
                hw::store(m.room.id + kept + hw::popc(who & lanes_below()), i);
            kept += hw::popc(who);
        }
        n = kept;
        hw::syncwarp();
    }
}

template <class K> PICI_DEV void small_put_tree(small_making<K> &m, uint32_t n)
{
    PICI_UNROLL_1
    for (unsigned level = 0; level < SMALL_TREE_LEVELS; level++)
        small_put_list(
            m, n,
            [&](uint32_t i) {
                const small_change x = small_change_at(m, i);
                const uint32_t node = (SMALL_TOKENS + x.token) >> (SMALL_TREE_LEVELS - level);
                return (uint32_t)hw::get(&m.memory->own.token[x.c][node]);
            },
            [&](uint32_t i) { return small_change_at(m, i).token >> (SMALL_TREE_LEVELS - 1 - level) & 1; });
}

template <class K> PICI_DEV void small_put_lists(small_making<K> &m)
{
    m.listed = 0;
    for (unsigned literals = 0; literals <= (K::LITERALS ? 1u : 0u); literals++) {
        const uint32_t n = small_list(m.room.id, m.k, [&](uint32_t i) {
            const small_change x = small_change_at(m, i);
            return x.literal == (literals != 0) && (K::TREE || hw::get(&m.memory->own.token[x.c][0]));
        });
        if constexpr (K::TREE)
            small_put_tree(m, n);
        else
            small_put_levels(m, n);
    }
    if constexpr (K::LITERALS) {
        const uint32_t n = small_list(m.room.id, m.k, [&](uint32_t i) {
            const small_change x = small_change_at(m, i);
            return x.literal && x.token == 0;
        });
        small_put_list(
            m, n, [&](uint32_t) { return m.tables.frequent_odds; },
            [&](uint32_t i) { return small_mantissa<K>(hw::load(m.room.now + i)) == m.tables.frequent; });
    }
    hw::syncwarp();
}

/* ---- encoding ---- */

/* Encode a step. zero: a lane's share of a 0. Returns whether there are no more than `most` words. */
template <class K> PICI_DEV bool small_code(small_making<K> &m, uint32_t zero, bool bit, uint32_t most)
{
    const uint32_t f = bit ? SMALL_SHARES - zero : zero;
    const bool full = m.x >> 17 >= f;
    const unsigned who = hw::ballot(full);
    m.words += hw::popc(who);
    if (m.words > most)
        return false;
    if (full) {
        hw::store(m.room.words_end - m.words + hw::popc(who & lanes_below()), (uint16_t)m.x);
        m.x >>= 16;
    }
    m.x = m.x / f * SMALL_SHARES + m.x % f + (bit ? zero : 0);
    return true;
}

/* Code all bits. Returns whether that takes no more than `most` words. */
template <class K> PICI_DEV bool small_code_all(small_making<K> &m, uint32_t most)
{
    const unsigned lane = hw::lane();
    bool fits = true;
    m.x = SMALL_STATE;
    m.words = 0;
    small_rows<true>(
        m.listed / LANES, [&](uint32_t row) -> uint32_t { return hw::load(m.room.list + row * LANES + lane); },
        [&](uint32_t, uint32_t entry) {
            const uint32_t zero = small_zero(entry & 255);
            fits = fits && small_code(m, zero, entry >> 8, most);
        });
    struct both {
        uint32_t element, who;
    };
    const uint32_t own = small_zero(hw::get(&m.memory->own.changed[lane]));
    const auto load = [&](uint32_t row) {
        const uint32_t i = row * LANES + lane;
        return both{i < m.n ? (uint32_t)hw::load(m.base + i) : 0, hw::load(m.room.changed + row)};
    };
    if (fits)
        small_rows<true>((m.n + LANES - 1) / LANES, load, [&](uint32_t row, both v) {
            const bool inside = row * LANES + lane < m.n;
            const uint32_t zero = hw::shfl(own, small_class_of(small_exponent<K>(v.element), m.tables.low));
            fits = fits && small_code(m, inside ? zero : (uint32_t)SMALL_SHARES, v.who >> lane & 1, most);
        });
    hw::syncwarp();
    return fits;
}

/* ---- the chunk ---- */

/* Bytes of class c's tables, c being the lane. */
template <class K> PICI_DEV uint32_t small_table_bytes(const small_making<K> &m)
{
    const unsigned c = hw::lane();
    if (!(m.tables.classes >> c & 1))
        return 0;
    return K::TREE ? 1 + hw::popc(hw::get(m.memory->own.nodes + c)) : 2 + hw::get(&m.memory->own.most[c]);
}

/* Bits of all extra bits, and *listed bits of lists 2 to 4. */
template <class K> PICI_DEV uint32_t small_count_bits(const small_making<K> &m, uint32_t *listed)
{
    const unsigned c = hw::lane();
    const uint32_t most = hw::get(&m.memory->own.most[c]);
    uint32_t extra = 0, all = 0;
    for (unsigned t = 0; t < SMALL_TOKENS; t++) {
        const uint32_t n = hw::get(m.memory->tokens + c * SMALL_STRIDE + t);
        extra += n * (!K::LITERALS || c   ? small_extra_bits(t, K::TREE)
                      : t == SMALL_ESCAPE ? 8 * (uint32_t)sizeof(typename K::element) - 1
                                          : K::MANTISSA);
        all += n * (K::TREE ? (uint32_t)SMALL_TREE_LEVELS : t < most ? t + 1 : most);
    }
    *listed = warp_sum(all) + m.zeros;
    return warp_sum(extra) - m.having * K::MANTISSA;
}

PICI_DEV void small_store4(uint8_t *p, uint32_t v)
{
    PICI_UNROLL
    for (unsigned i = 0; i < 4; i++)
        hw::store(p + i, (uint8_t)(v >> 8 * i));
}

/* Everything up to the end of the words. Returns its bytes. */
template <class K> PICI_DEV uint32_t small_put_head(const small_making<K> &m, uint8_t *chunk)
{
    const unsigned c = hw::lane();
    const uint32_t bytes = small_table_bytes(m), before = warp_scan(bytes),
                   head = SMALL_TABLES_AT + hw::shfl(before + bytes, LANES - 1);
    if (c == 0) {
        hw::store(chunk, (uint8_t)m.tables.low);
        hw::store(chunk + 1, (uint8_t)m.tables.top);
        hw::store(chunk + 2, (uint8_t)m.tables.frequent_odds);
        hw::store(chunk + 3, (uint8_t)0);
        small_store4(chunk + 4, m.tables.frequent);
        small_store4(chunk + SMALL_CLASSES_AT, m.tables.classes);
        small_store4(chunk + SMALL_WORDS_AT, m.words);
    }
    small_store4(chunk + SMALL_STATES_AT + 4 * c, m.x);
    uint8_t *p = chunk + SMALL_TABLES_AT + before;
    if (bytes) {
        const uint32_t nodes = hw::get(m.memory->own.nodes + c), most = hw::get(&m.memory->own.most[c]);
        hw::store(p++, hw::get(&m.memory->own.changed[c]));
        if (!K::TREE)
            hw::store(p++, (uint8_t)most);
        for (unsigned x = 0; x < SMALL_TOKENS; x++)
            if (K::TREE ? nodes >> x & 1 : x < most)
                hw::store(p++, hw::get(&m.memory->own.token[c][x]));
    }
    for (uint32_t i = c; i < m.words; i += LANES) {
        const uint16_t w = hw::load(m.room.words_end - m.words + i);
        hw::store(chunk + head + 2 * i, (uint8_t)w);
        hw::store(chunk + head + 2 * i + 1, (uint8_t)(w >> 8));
    }
    return head + 2 * m.words;
}

/* Extra bits of the literals, or of all others, after *have bits that are in the first word of m.memory->bins. Whole
 * bytes go to *p, which is moved on. */
template <class K, bool LITERALS> PICI_DEV void small_put_extra(const small_making<K> &m, uint8_t **p, uint32_t *have)
{
    using T = typename K::element;
    uint32_t *const bins = m.memory->bins;
    for (uint32_t from = 0; from < m.k; from += LANES) {
        const uint32_t i = from + hw::lane();
        uint32_t bits = 0, v = 0;
        if (i < m.k) {
            const small_change x = small_change_at(m, i);
            const uint32_t now = hw::load(m.room.now + i);
            if (x.literal != LITERALS) {
            } else if (!LITERALS) {
                bits = small_extra_bits(x.token, K::TREE);
                v = x.v - small_least(x.token, K::TREE);
            } else if (x.token == SMALL_ESCAPE) {
                bits = 8 * (uint32_t)sizeof(T) - 1;
                v = now;
            } else if (x.token || small_mantissa<K>(now) != m.tables.frequent) {
                bits = K::MANTISSA;
                v = now;
            }
            v &= (UINT32_C(1) << bits) - 1;
        }
        const uint32_t before = warp_scan(bits), all = hw::shfl(before + bits, LANES - 1), at = *have + before;
        if (!all)
            continue;
        if (bits) {
            const uint64_t shifted = (uint64_t)v << at % 32;
            hw::shared_add(bins + at / 32, (uint32_t)shifted);
            if (shifted >> 32)
                hw::shared_add(bins + at / 32 + 1, (uint32_t)(shifted >> 32));
        }
        const uint32_t whole = (*have + all) / 8;
        *have = (*have + all) % 8;
        hw::syncwarp();
        for (uint32_t b = hw::lane(); b < whole; b += LANES)
            hw::store(*p + b, (uint8_t)(hw::get(bins + b / 4) >> b % 4 * 8));
        const uint32_t left = hw::get(bins + whole / 4) >> whole % 4 * 8 & 255;
        *p += whole;
        hw::syncwarp();
        for (uint32_t b = hw::lane(); b <= LANES + 1; b += LANES)
            hw::put(bins + b, b ? 0 : left);
        hw::syncwarp();
    }
}

/* Signs and extra bits, to `to`. Returns where they end. */
template <class K> PICI_DEV uint8_t *small_put_rest(const small_making<K> &m, uint8_t *to)
{
    const unsigned lane = hw::lane();
    const uint32_t signs = (m.k + 7) / 8;
    for (uint32_t from = 0; from < m.k; from += LANES) {
        const unsigned who = hw::ballot(from + lane < m.k && small_change_at(m, from + lane).sign);
        if (lane < 4 && from / 8 + lane < signs)
            hw::store(to + from / 8 + lane, (uint8_t)(who >> 8 * lane));
    }
    uint8_t *p = to + signs;
    uint32_t have = 0;
    small_clear(m.memory->bins, SMALL_BINS);
    small_put_extra<K, false>(m, &p, &have);
    if constexpr (K::LITERALS)
        small_put_extra<K, true>(m, &p, &have);
    if (have && lane == 0)
        hw::store(p, (uint8_t)hw::get(m.memory->bins));
    return p + (have != 0);
}

/* Encode a context chunk that leads from the n elements of base to those of src, n from 1 to SMALL_CHUNK: called by all
 * lanes of a warp.
 *   chunk      out, [48 + n * sizeof(T) bytes]
 *   least      out: no XOR block of the same elements is shorter; 0 if no element changed
 *   base, src  [n elements]
 *   room       [SMALL_MAKE_BYTES<T>(n) bytes]  device memory of the warp's own, aligned to 16
 *   memory                                     in shared memory, of the warp's own
 * Returns the chunk's bytes; 0: there is none. */
template <unsigned DTYPE>
PICI_DEV uint32_t warp_diff_small(uint8_t *chunk, uint32_t *least, const typename small_kind<DTYPE>::element *base,
                                  const typename small_kind<DTYPE>::element *src, uint32_t n, uint8_t *room,
                                  small_memory *memory)
{
    using K = small_kind<DTYPE>;
    using T = typename K::element;
    small_making<K> m;
    uint32_t largest, listed;
    m.base = base;
    m.src = src;
    m.n = n;
    m.room = small_make_room_at<T>(room, n);
    m.memory = memory;
    hw::syncwarp();
    small_clear(memory->tokens, SMALL_CLASSES * SMALL_STRIDE);
    small_clear(memory->bins, SMALL_BINS);
    const uint32_t more = small_find_changes(m, &largest);
    *least = 0;
    if (!m.k)
        return 0;
    *least = 48 + more * (uint32_t)sizeof(T);
    m.tables.low = largest > SMALL_CLASSES - 2 ? largest - (SMALL_CLASSES - 2) : 0;
    small_sample_classes(m);
    small_make_tables(m);

    const uint32_t extra = small_count_bits(m, &listed), limit = small_limit<T>(n);
    const uint32_t fixed = SMALL_TABLES_AT + warp_sum(small_table_bytes(m)) + (m.k + 7) / 8 + (extra + 7) / 8;
    if ((!K::TREE && listed > SMALL_LISTED * n) || fixed >= limit)
        return 0;
    small_put_lists(m);
    if (!small_code_all(m, (limit - 1 - fixed) / 2))
        return 0;
    const uint8_t *const end = small_put_rest(m, chunk + small_put_head(m, chunk));
    hw::syncwarp();
    return (uint32_t)(end - chunk);
}

} // namespace pici

#endif
