/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The odds of context chunks, and their tables. */
#include "codec/small_model.h"

#include "bytes.h"

const uint16_t pici_small_zero[256] = {
    32768, 32767, 32767, 32767, 32767, 32767, 32767, 32767, 32767, 32767, 32767, 32767, 32767, 32766, 32766, 32766,
    32766, 32766, 32766, 32765, 32765, 32765, 32765, 32764, 32764, 32764, 32763, 32763, 32762, 32762, 32761, 32761,
    32760, 32759, 32758, 32758, 32757, 32756, 32755, 32753, 32752, 32751, 32749, 32747, 32745, 32743, 32741, 32739,
    32736, 32733, 32730, 32727, 32723, 32719, 32714, 32709, 32704, 32698, 32692, 32685, 32678, 32670, 32661, 32651,
    32640, 32629, 32616, 32603, 32588, 32572, 32554, 32535, 32514, 32491, 32466, 32439, 32410, 32378, 32343, 32305,
    32264, 32219, 32170, 32117, 32060, 31997, 31929, 31855, 31775, 31688, 31594, 31492, 31381, 31261, 31132, 30992,
    30840, 30677, 30501, 30311, 30107, 29887, 29651, 29398, 29127, 28837, 28527, 28197, 27846, 27472, 27076, 26657,
    26214, 25748, 25259, 24745, 24209, 23650, 23069, 22467, 21845, 21206, 20549, 19878, 19195, 18501, 17800, 17093,
    16384, 15675, 14968, 14267, 13573, 12890, 12219, 11562, 10923, 10301, 9699,  9118,  8559,  8023,  7509,  7020,
    6554,  6111,  5692,  5296,  4922,  4571,  4241,  3931,  3641,  3370,  3117,  2881,  2661,  2457,  2267,  2091,
    1928,  1776,  1636,  1507,  1387,  1276,  1174,  1080,  993,   913,   839,   771,   708,   651,   598,   549,
    504,   463,   425,   390,   358,   329,   302,   277,   254,   233,   214,   196,   180,   165,   152,   139,
    128,   117,   107,   98,    90,    83,    76,    70,    64,    59,    54,    49,    45,    41,    38,    35,
    32,    29,    27,    25,    23,    21,    19,    17,    16,    15,    13,    12,    11,    10,    10,    9,
    8,     7,     7,     6,     6,     5,     5,     4,     4,     4,     3,     3,     3,     3,     2,     2,
    2,     2,     2,     2,     1,     1,     1,     1,     1,     1,     1,     1,     1,     1,     1,     0};

static unsigned log2_floor(uint64_t value)
{
    return 63 - (unsigned)__builtin_clzll(value);
}

/* The odds of k ones among n bits. k <= n. */
static unsigned odds_of(uint64_t k, uint64_t n)
{
    static const uint32_t step[8] = {68438, 74632, 81386, 88752, 96785, 105545, 115098, 125515};
    uint64_t zeros = n - k;
    if (k == 0 || zeros == 0)
        return k == 0 ? 0 : 255;
    int octaves = (int)log2_floor(k) - (int)log2_floor(zeros);
    if (octaves > 0)
        zeros <<= octaves;
    else
        k <<= -octaves;
    if (k < zeros) {
        k *= 2;
        octaves--;
    }
    int odds = 128 + 8 * octaves;
    for (int i = 0; i < 8; i++)
        odds += k << 16 >= zeros * step[i];
    if (odds < 1)
        return 1;
    return odds > 254 ? 254 : (unsigned)odds;
}

/* Use several tables in turn. Most weights share few exponents, and an addition to the same counter would wait for the
 * previous one. */
enum { TURNS = 8 };

static void sample_16(uint32_t count[TURNS][256], const uint8_t *base, const struct small_shape *shape)
{
    for (int i = 0; i < SMALL_SAMPLE; i += 4) {
        uint64_t four; /* elements, in any order */
        memcpy(&four, base + 2 * i, sizeof four);
        uint32_t(*const table)[256] = count + i % TURNS;
        table[0][four >> shape->mantissa & shape->exponents]++;
        table[1][four >> 16 >> shape->mantissa & shape->exponents]++;
        table[2][four >> 32 >> shape->mantissa & shape->exponents]++;
        table[3][four >> 48 >> shape->mantissa & shape->exponents]++;
    }
}

static void sample_8(uint32_t count[TURNS][256], const uint8_t *base, const struct small_shape *shape)
{
    for (int i = 0; i < SMALL_SAMPLE; i += 8) {
        uint64_t eight; /* elements, in any order */
        memcpy(&eight, base + i, sizeof eight);
        eight >>= shape->mantissa;
        for (int k = 0; k < 8; k++)
            count[k % TURNS][eight >> 8 * k & shape->exponents]++;
    }
}

enum { AHEAD = 8 * SMALL_SAMPLE_OF };

void pici_small_sample(uint32_t count[SMALL_CLASSES], const uint8_t *base, size_t elements,
                       const struct small_shape *shape, unsigned low_exponent)
{
    uint32_t by_exponent[TURNS][256] = {{0}};
    const unsigned width_log2 = shape->width_log2;
    for (size_t first = 0; first < elements; first += SMALL_SAMPLE_OF) {
        const size_t from = (size_t)small_sampled(first), ahead = (size_t)small_sampled(first + AHEAD);
        if (ahead < elements) /* CPUs do not predict this pattern of lines */
            __builtin_prefetch(base + (ahead << width_log2));
        if (width_log2 == 1 && from + SMALL_SAMPLE <= elements)
            sample_16(by_exponent, base + 2 * from, shape);
        else if (width_log2 == 0 && from + SMALL_SAMPLE <= elements)
            sample_8(by_exponent, base + from, shape);
        else
            for (size_t i = from; i < from + SMALL_SAMPLE && i < elements; i++)
                by_exponent[i % TURNS][small_exponent(small_load(base, i, width_log2), shape)]++;
    }
    for (unsigned exponent = 0; exponent <= shape->exponents; exponent++)
        for (int i = 0; i < TURNS; i++)
            count[small_class(exponent, low_exponent)] += by_exponent[i][exponent];
}

static void count_levels(struct small_tables *tables, unsigned class, const uint32_t tokens[SMALL_TOKENS])
{
    uint64_t more = 0;
    for (unsigned token = SMALL_TOKENS; token-- > 0;) {
        if (more)
            tables->token[class][token] = (uint8_t)odds_of(more, more + tokens[token]);
        else if (tokens[token])
            tables->most[class] = (uint8_t)token;
        more += tokens[token];
    }
}

static void count_nodes(struct small_tables *tables, unsigned class, const uint32_t tokens[SMALL_TOKENS])
{
    uint64_t sums[2 * SMALL_TOKENS];
    for (unsigned node = 2 * SMALL_TOKENS; --node > 0;) {
        sums[node] = node >= SMALL_TOKENS ? tokens[node - SMALL_TOKENS] : sums[2 * node] + sums[2 * node + 1];
        if (node < SMALL_TOKENS && sums[node]) {
            tables->token[class][node] = (uint8_t)odds_of(sums[2 * node + 1], sums[node]);
            tables->nodes[class] |= UINT32_C(1) << node;
        }
    }
}

void pici_small_count(struct small_tables *tables, int tree, uint32_t tokens[SMALL_CLASSES][SMALL_TOKENS],
                      const uint32_t sampled[SMALL_CLASSES])
{
    for (unsigned class = 0; class < SMALL_CLASSES; class ++) {
        uint64_t changed = 0, counted = 4 * (uint64_t)sampled[class];
        for (unsigned token = 0; token < SMALL_TOKENS; token++)
            changed += tokens[class][token];
        if (!changed)
            continue;
        tables->classes |= UINT32_C(1) << class;
        tables->changed[class] = (uint8_t)odds_of(changed, counted > changed ? counted : changed + 1);
        if (tree)
            count_nodes(tables, class, tokens[class]);
        else
            count_levels(tables, class, tokens[class]);
    }
}

void pici_small_frequent(struct small_tables *tables, const struct small_shape *shape, const uint32_t *mantissa,
                         size_t literals)
{
    uint32_t count[128] = {0}, best = literals ? mantissa[0] : 0;
    uint64_t having = 0;
    if (shape->tree) {
        for (size_t i = 1; i < literals; i++)
            if (mantissa[i] == mantissa[i - 1]) {
                best = mantissa[i];
                break;
            }
    } else {
        for (size_t i = 0; i < literals; i++)
            count[mantissa[i] & 127]++;
        for (uint32_t candidate = best = 0; candidate < 128; candidate++)
            if (count[candidate] > count[best])
                best = candidate;
    }
    for (size_t i = 0; i < literals; i++)
        having += mantissa[i] == best;
    tables->frequent = best;
    tables->frequent_odds = odds_of(having, literals);
}

size_t pici_small_put_tables(uint8_t *chunk, const struct small_tables *tables, int tree)
{
    uint8_t *output = chunk + SMALL_CTX_TABLES;
    chunk[SMALL_CTX_LOW] = (uint8_t)tables->low_exponent;
    chunk[SMALL_CTX_TOP] = (uint8_t)tables->top_exponent;
    chunk[SMALL_CTX_FREQUENT_ODDS] = (uint8_t)tables->frequent_odds;
    chunk[SMALL_CTX_ZERO] = 0;
    store_le32(chunk + SMALL_CTX_FREQUENT, tables->frequent);
    store_le32(chunk + SMALL_CTX_CLASSES, tables->classes);
    for (unsigned class = 0; class < SMALL_CLASSES; class ++) {
        if (!(tables->classes >> class & 1))
            continue;
        *output++ = tables->changed[class];
        if (!tree)
            *output++ = tables->most[class];
        for (unsigned token = 0; token < SMALL_TOKENS; token++)
            if (tree ? tables->nodes[class] >> token & 1 : token < tables->most[class])
                *output++ = tables->token[class][token];
    }
    return (size_t)(output - chunk);
}

/* Read the tables of a class at `next`. Returns their end; null if they pass `end` or break a rule. */
static const uint8_t *get_class(struct small_tables *tables, unsigned class, const uint8_t *next, const uint8_t *end,
                                const struct small_shape *shape)
{
    const ptrdiff_t fixed = shape->tree ? 1 : 2;
    if (end - next < fixed)
        return NULL;
    tables->changed[class] = next[0];
    tables->most[class] = shape->tree ? 0 : next[1];
    next += fixed;
    if (tables->most[class] > (shape->literals && class == 0 ? SMALL_ESCAPE : SMALL_MOST_DIFFERENCE))
        return NULL;
    for (unsigned node = 0; node < SMALL_TOKENS; node++) {
        int there = node < tables->most[class];
        if (shape->tree) /* the bits of the node above lead here */
            there = node == 1 || (node > 1 && tables->nodes[class] >> node / 2 & 1 &&
                                  tables->token[class][node / 2] != (node % 2 ? 0 : 255));
        if (!there)
            continue;
        if (next == end)
            return NULL;
        tables->token[class][node] = *next++;
        tables->nodes[class] |= shape->tree ? UINT32_C(1) << node : 0;
    }
    return next;
}

size_t pici_small_get_tables(struct small_tables *tables, const uint8_t *chunk, size_t size,
                             const struct small_shape *shape)
{
    memset(tables, 0, sizeof *tables);
    if (size < SMALL_CTX_TABLES || chunk[SMALL_CTX_ZERO])
        return 0;
    tables->low_exponent = chunk[SMALL_CTX_LOW];
    tables->top_exponent = chunk[SMALL_CTX_TOP];
    tables->frequent_odds = chunk[SMALL_CTX_FREQUENT_ODDS];
    tables->frequent = load_le32(chunk + SMALL_CTX_FREQUENT);
    tables->classes = load_le32(chunk + SMALL_CTX_CLASSES);
    if (!tables->classes || tables->classes >> (SMALL_CLASSES - 1))
        return 0;
    const uint8_t *next = chunk + SMALL_CTX_TABLES;
    for (unsigned class = 0; class < SMALL_CLASSES && next; class ++)
        if (tables->classes >> class & 1)
            next = get_class(tables, class, next, chunk + size, shape);
    return next ? (size_t)(next - chunk) : 0;
}
