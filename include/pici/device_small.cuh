/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Code shared by encoding and decoding of small deltas (formats/small-delta.md): the kinds of elements, odds and
 * tables. A warp works on a chunk. Tables are in shared memory; lane c works on class c. Part of pici/device.cuh. */
#ifndef PICI_DEVICE_SMALL_CUH
#define PICI_DEVICE_SMALL_CUH

#include "pici/device_tiles.cuh"

namespace pici {

enum : uint32_t {
    SMALL_CHUNK = 1 << 19, /* elements */
    SMALL_CLASSES = 32,
    SMALL_TOKENS = 32,
    SMALL_STATE = 1 << 16,  /* of each lane after decoding */
    SMALL_SHARES = 1 << 15, /* sum of the shares of a 0 and of a 1; the share of a 0 where nothing is coded */
    SMALL_MOST_DIFFERENCE = 29,
    SMALL_ESCAPE = 31, /* the token of a literal with all bits stored */
    SMALL_LISTED = 4,  /* most listed bits per element, for dtypes of 16 bits */
    SMALL_TREE_LEVELS = 5
};
/* Byte offsets: of the header's fields, and of a context chunk's. */
enum : uint32_t {
    SMALL_HEADER_BYTES = 32,
    SMALL_CHECKSUM_AT = 24,
    SMALL_FIRST_AT = 32, /* not of version 1, like the next */
    SMALL_OF_AT = 40,
    SMALL_PART_HEADER_BYTES = 48, /* in versions 2 and 3 */
    SMALL_ROW_AT = 48,            /* in version 4 */
    SMALL_COLUMNS_HEADER_BYTES = 56,
    SMALL_CLASSES_AT = 8,
    SMALL_WORDS_AT = 12,
    SMALL_STATES_AT = 16,
    SMALL_TABLES_AT = 144
};
enum : uint32_t {
    SMALL_VERSION = 1,
    SMALL_PART_VERSION = 2,
    SMALL_NARROW_VERSION = 3,
    SMALL_COLUMNS_VERSION = 4,
    SMALL_HAS_CHECKSUM = 1 /* a flag of the header */
};
constexpr uint32_t SMALL_CONTEXT = UINT32_C(1) << 31; /* in an entry of the directory */
constexpr uint32_t SMALL_MAGIC = 0x44434950;          /* P I C D */

enum : unsigned { SMALL_E2M1X2 = 64 /* instead of a dtype: u8 that hold two e2m1 each */ };
constexpr uint32_t SMALL_E2M1_ZERO = 0x78; /* bits that are 0 in an e2m1 that is widened to a byte */

/* The parts of a dtype's elements: bits of the mantissa, the largest exponent, whether elements of class 0 store their
 * new values, and whether a binary tree codes tokens. PAIRS: 1 if an element in memory holds two elements of 4 bits, to
 * be widened; else 0. */
template <unsigned DTYPE> struct small_kind;
template <> struct small_kind<PICI_F32> {
    using element = uint32_t;
    static constexpr unsigned MANTISSA = 23, EXPONENTS = 255, PAIRS = 0;
    static constexpr bool LITERALS = true, TREE = true;
};
template <> struct small_kind<PICI_F16> {
    using element = uint16_t;
    static constexpr unsigned MANTISSA = 10, EXPONENTS = 31, PAIRS = 0;
    static constexpr bool LITERALS = false, TREE = false;
};
template <> struct small_kind<PICI_BF16> {
    using element = uint16_t;
    static constexpr unsigned MANTISSA = 7, EXPONENTS = 255, PAIRS = 0;
    static constexpr bool LITERALS = true, TREE = false;
};

template <> struct small_kind<PICI_F8E4M3> {
    using element = uint8_t;
    static constexpr unsigned MANTISSA = 3, EXPONENTS = 15, PAIRS = 0;
    static constexpr bool LITERALS = false, TREE = false;
};
template <> struct small_kind<PICI_F8E5M2> {
    using element = uint8_t;
    static constexpr unsigned MANTISSA = 2, EXPONENTS = 31, PAIRS = 0;
    static constexpr bool LITERALS = false, TREE = false;
};
template <> struct small_kind<SMALL_E2M1X2> {
    using element = uint8_t;
    static constexpr unsigned MANTISSA = 0, EXPONENTS = 7, PAIRS = 1;
    static constexpr bool LITERALS = false, TREE = false;
};

/* Do deltas of the dtype have version 3 or 4? holds: the content of u8 elements. */
PICI_DEV_HOST bool small_is_narrow(unsigned dtype, unsigned holds)
{
    return holds ? dtype == PICI_U8 && holds == PICI_HOLDS_E2M1X2 : dtype == PICI_F8E4M3 || dtype == PICI_F8E5M2;
}

/* Do deltas of the dtype have context chunks? narrow: see small_is_narrow, and not for versions 1 and 2. */
PICI_DEV_HOST bool small_has_context(unsigned dtype, bool narrow)
{
    return narrow || dtype == PICI_F32 || dtype == PICI_F16 || dtype == PICI_BF16;
}

PICI_DEV_HOST uint64_t small_chunks_of(uint64_t n)
{
    return n / SMALL_CHUNK + (n % SMALL_CHUNK != 0);
}

/* Elements of chunk t of n elements. */
PICI_DEV_HOST uint32_t small_elements_of(uint64_t n, uint64_t t)
{
    return n - t * SMALL_CHUNK < SMALL_CHUNK ? (uint32_t)(n - t * SMALL_CHUNK) : (uint32_t)SMALL_CHUNK;
}

/* A context chunk of n elements in memory is shorter than this. */
template <class T> PICI_DEV_HOST constexpr uint32_t small_limit(uint32_t n)
{
    return 48 + n * (uint32_t)sizeof(T);
}

/* ---- elements ---- */

/* Element i. */
template <class K> PICI_DEV uint32_t small_element(const typename K::element *from, uint32_t i)
{
    if constexpr (K::PAIRS) {
        const uint32_t bits = hw::load(from + i / 2) >> i % 2 * 4;
        return (bits & 7) | (bits & 8) << 4;
    } else {
        return hw::load(from + i);
    }
}

template <class K> PICI_DEV uint32_t small_exponent(uint32_t u)
{
    return u >> K::MANTISSA & K::EXPONENTS;
}

template <class K> PICI_DEV uint32_t small_mantissa(uint32_t u)
{
    return u & ((UINT32_C(1) << K::MANTISSA) - 1);
}

PICI_DEV uint32_t small_class_of(uint32_t exponent, uint32_t low)
{
    return exponent <= low ? 0 : exponent - low > SMALL_CLASSES - 1 ? (uint32_t)SMALL_CLASSES - 1 : exponent - low;
}

template <class T> constexpr uint32_t SMALL_SIGN = UINT32_C(1) << (8 * sizeof(T) - 1);
template <class T> constexpr uint32_t SMALL_MASK = (T) ~(T)0;

/* Map the bits of a float to an integer in the order of the floats, modulo 2^w, and back. */
template <class T> PICI_DEV uint32_t small_ord(uint32_t u)
{
    return u ^ ((SMALL_MASK<T> >> 1) & (0 - (u >> (8 * sizeof(T) - 1))));
}

PICI_DEV uint32_t small_extra_bits(uint32_t token, bool tree)
{
    return tree ? token : token < 4 ? 0 : token / 2 - 1;
}

/* The least magnitude of a difference with this token. */
PICI_DEV uint32_t small_least(uint32_t token, bool tree)
{
    return tree ? UINT32_C(1) << token : token < 4 ? token + 1 : ((2u + (token & 1)) << (token / 2 - 1)) + 1;
}

/* Are the elements of row r, of 32 elements, counted? */
PICI_DEV bool small_is_sampled(uint32_t r)
{
    return r % 4 == (r / 4 * UINT32_C(2654435761)) >> 30;
}

/* ---- odds ---- */

/* P(q), the share of a 1, for q = 1 to 128. */
PICI_DEV_TABLE uint16_t SMALL_SHARE_OF_ONE[129] = {
    0,     1,     1,     1,     1,     1,     1,     1,     1,     1,    1,    1,    1,    2,    2,    2,    2,
    2,     2,     3,     3,     3,     3,     4,     4,     4,     5,    5,    6,    6,    7,    7,    8,    9,
    10,    10,    11,    12,    13,    15,    16,    17,    19,    21,   23,   25,   27,   29,   32,   35,   38,
    41,    45,    49,    54,    59,    64,    70,    76,    83,    90,   98,   107,  117,  128,  139,  152,  165,
    180,   196,   214,   233,   254,   277,   302,   329,   358,   390,  425,  463,  504,  549,  598,  651,  708,
    771,   839,   913,   993,   1080,  1174,  1276,  1387,  1507,  1636, 1776, 1928, 2091, 2267, 2457, 2661, 2881,
    3117,  3370,  3641,  3931,  4241,  4571,  4922,  5296,  5692,  6111, 6554, 7020, 7509, 8023, 8559, 9118, 9699,
    10301, 10923, 11562, 12219, 12890, 13573, 14267, 14968, 15675, 16384};
/* Steps of an eighth of an octave, in 65536ths. */
PICI_DEV_TABLE uint32_t SMALL_STEPS[8] = {68438, 74632, 81386, 88752, 96785, 105545, 115098, 125515};

/* The share of a 0, of SMALL_SHARES. */
PICI_DEV uint32_t small_zero(uint32_t q)
{
    return q == 255 ? 0 : q > 128 ? SMALL_SHARE_OF_ONE[256 - q] : SMALL_SHARES - SMALL_SHARE_OF_ONE[q];
}

/* The odds of k ones among n bits, k <= n < 2^24. */
PICI_DEV uint32_t small_odds(uint32_t k, uint32_t n)
{
    uint32_t r = n - k;
    if (k == 0 || r == 0)
        return k == 0 ? 0 : 255;
    int octaves = (int)hw::log2(k) - (int)hw::log2(r);
    if (octaves > 0)
        r <<= octaves;
    else
        k <<= -octaves;
    if (k < r) {
        k *= 2;
        octaves--;
    }
    int q = 128 + 8 * octaves;
    PICI_UNROLL
    for (int i = 0; i < 8; i++)
        q += (uint64_t)k << 16 >= (uint64_t)r * SMALL_STEPS[i];
    return q < 1 ? 1u : q > 254 ? 254u : (uint32_t)q;
}

/* ---- tables and counts, in shared memory ---- */

struct small_tables {
    uint32_t nodes[SMALL_CLASSES]; /* tree: bit x is set if node x has odds */
    uint8_t changed[SMALL_CLASSES], most[SMALL_CLASSES];
    uint8_t token[SMALL_CLASSES][SMALL_TOKENS]; /* odds of levels or nodes; 0 where there are none */
};

enum : uint32_t {
    SMALL_STRIDE = SMALL_TOKENS + 1,
    SMALL_COUNTERS = SMALL_CLASSES * SMALL_STRIDE, /* of the tokens of all classes */
    SMALL_BINS = 256
};

/* The shared memory of a warp for a small delta. */
struct alignas(16) small_memory {
    small_tables own;                /* computed from the elements */
    small_tables read;               /* the chunk's tables */
    uint32_t tokens[SMALL_COUNTERS]; /* changed elements of a class with a token */
    uint32_t sampled[SMALL_CLASSES];
    uint32_t bins[SMALL_BINS]; /* of exponents or mantissas; or bits not yet written to the chunk */
};

/* The same in all lanes. */
struct small_scalars {
    uint32_t low, top, frequent, frequent_odds, classes;
};

PICI_DEV void small_clear(uint32_t *p, unsigned words)
{
    for (unsigned i = hw::lane(); i < words; i += LANES)
        hw::put(p + i, UINT32_C(0));
    hw::syncwarp();
}

PICI_DEV unsigned lanes_below()
{
    return (1u << hw::lane()) - 1;
}

PICI_DEV uint32_t warp_max(uint32_t v)
{
    for (unsigned by = LANES / 2; by; by /= 2) {
        const uint32_t other = hw::shfl_down(v, by);
        v = other > v ? other : v;
    }
    return hw::shfl(v, 0);
}

/* Call use(r, x) for each of `rows` rows, in order or backwards. x is the result of load(r). Rows are prefetched. */
template <bool BACKWARDS, class LOAD, class USE> PICI_DEV void small_rows(uint32_t rows, LOAD load, USE use)
{
    constexpr unsigned PREFETCHED = 8;
    decltype(load(0u)) now[PREFETCHED] = {}, next[PREFETCHED] = {};
    const auto row = [rows](uint32_t i) { return BACKWARDS ? rows - 1 - i : i; };
    PICI_UNROLL
    for (unsigned k = 0; k < PREFETCHED; k++)
        if (k < rows)
            next[k] = load(row(k));
    PICI_UNROLL_1
    for (uint32_t i = 0; i < rows; i += PREFETCHED) {
        PICI_UNROLL
        for (unsigned k = 0; k < PREFETCHED; k++) {
            now[k] = next[k];
            if (i + PREFETCHED + k < rows)
                next[k] = load(row(i + PREFETCHED + k));
        }
        PICI_UNROLL
        for (unsigned k = 0; k < PREFETCHED; k++)
            if (i + k < rows)
                use(row(i + k), now[k]);
    }
}

/* Write the numbers i below k with want(i) to id, in order. want is a lane's. Returns their count. */
template <class WANT> PICI_DEV uint32_t small_list(uint32_t *id, uint32_t k, WANT want)
{
    uint32_t n = 0;
    hw::syncwarp();
    for (uint32_t at = 0; at < k; at += LANES) {
        const uint32_t i = at + hw::lane();
        const bool wanted = i < k && want(i);
        const unsigned who = hw::ballot(wanted);
        if (wanted)
            hw::store(id + n + hw::popc(who & lanes_below()), i);
        n += hw::popc(who);
    }
    hw::syncwarp();
    return n;
}

/* Compute the odds of a class's levels, and `most`; and of its nodes. */
PICI_DEV void small_count_levels(small_memory *m, unsigned c)
{
    uint32_t more = 0, most = 0;
    for (unsigned x = SMALL_TOKENS; x-- > 0;) {
        const uint32_t n = hw::get(m->tokens + c * SMALL_STRIDE + x);
        hw::put(&m->own.token[c][x], (uint8_t)(more ? small_odds(more, more + n) : 0));
        most = !more && n ? x : most;
        more += n;
    }
    hw::put(&m->own.most[c], (uint8_t)most);
    hw::put(m->own.nodes + c, UINT32_C(0));
}

PICI_DEV void small_count_nodes(small_memory *m, unsigned c)
{
    uint32_t nodes = 0;
    hw::put(&m->own.token[c][0], (uint8_t)0);
    for (unsigned x = 1; x < SMALL_TOKENS; x++) {
        const unsigned level = hw::log2(x), wide = SMALL_TOKENS >> level, from = (x << (5 - level)) - SMALL_TOKENS;
        uint32_t all = 0, ones = 0;
        for (unsigned i = 0; i < wide; i++) {
            const uint32_t n = hw::get(m->tokens + c * SMALL_STRIDE + from + i);
            all += n;
            ones += i < wide / 2 ? 0 : n;
        }
        hw::put(&m->own.token[c][x], (uint8_t)(all ? small_odds(ones, all) : 0));
        nodes |= all ? 1u << x : 0u;
    }
    hw::put(&m->own.most[c], (uint8_t)0);
    hw::put(m->own.nodes + c, nodes);
}

/* Set m->own from m->tokens and m->sampled. Returns the set of classes with a changed element. */
template <bool TREE> PICI_DEV uint32_t small_count(small_memory *m)
{
    const unsigned c = hw::lane();
    uint32_t k = 0;
    hw::syncwarp();
    const uint32_t n = 4 * hw::get(m->sampled + c);
    for (unsigned x = 0; x < SMALL_TOKENS; x++)
        k += hw::get(m->tokens + c * SMALL_STRIDE + x);
    if constexpr (TREE)
        small_count_nodes(m, c);
    else
        small_count_levels(m, c);
    hw::put(&m->own.changed[c], (uint8_t)(k ? small_odds(k, n > k ? n : k + 1) : 0));
    hw::syncwarp();
    return hw::ballot(k != 0);
}

/* Set frequent and frequent_odds from the mantissas of the n literals with token 0. Their numbers are in id. For 16
 * bits, m->bins counts the mantissas. Returns the number of literals with the frequent mantissa. */
template <class K>
PICI_DEV uint32_t small_frequent(small_scalars &s, small_memory *m, const typename K::element *now, const uint32_t *id,
                                 uint32_t n)
{
    uint32_t having = 0;
    s.frequent = 0;
    if constexpr (!K::TREE) {
        uint32_t best = 0; /* the count, and then the lowest mantissa */
        hw::syncwarp();
        for (unsigned x = hw::lane(); x < 128; x += LANES) {
            const uint32_t count = hw::get(m->bins + x), own = count << 7 | (127 - x);
            best = count && own > best ? own : best;
        }
        best = warp_max(best);
        having = best >> 7;
        s.frequent = best ? 127 - best % 128 : 0;
    } else if (n) {
        const auto mantissa = [&](uint32_t i) { return small_mantissa<K>(hw::load(now + hw::load(id + i))); };
        unsigned who = 0;
        s.frequent = mantissa(0);
        for (uint32_t at = 1; at < n && !who; at += LANES) {
            const uint32_t i = at + hw::lane(), own = i < n ? mantissa(i) : 0;
            who = hw::ballot(i < n && own == mantissa(i < n ? i - 1 : 0));
            if (who)
                s.frequent = hw::shfl(own, hw::ffs(who) - 1);
        }
        for (uint32_t at = 0; at < n; at += LANES)
            having += hw::popc(hw::ballot(at + hw::lane() < n && mantissa(at + hw::lane()) == s.frequent));
    }
    s.frequent_odds = small_odds(having, n);
    return having;
}

} // namespace pici

#endif
