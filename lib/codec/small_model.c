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

static unsigned log2_floor(uint64_t v)
{
    return 63 - (unsigned)__builtin_clzll(v);
}

/* The odds of k ones among n bits. k <= n. */
static unsigned odds_of(uint64_t k, uint64_t n)
{
    static const uint32_t step[8] = {68438, 74632, 81386, 88752, 96785, 105545, 115098, 125515};
    uint64_t r = n - k;
    if (k == 0 || r == 0)
        return k == 0 ? 0 : 255;
    int octaves = (int)log2_floor(k) - (int)log2_floor(r);
    if (octaves > 0)
        r <<= octaves;
    else
        k <<= -octaves;
    if (k < r) {
        k *= 2;
        octaves--;
    }
    int q = 128 + 8 * octaves;
    for (int i = 0; i < 8; i++)
        q += k << 16 >= r * step[i];
    return q < 1 ? 1 : q > 254 ? 254 : (unsigned)q;
}

/* Tables in turns, so that an addition seldom waits for the one before: most weights have few exponents. */
enum { TURNS = 8 };

static void sample_16(uint32_t count[TURNS][256], const uint8_t *p, const struct small_shape *s)
{
    for (int i = 0; i < SMALL_SAMPLE; i += 4) {
        uint64_t four; /* elements, in any order */
        memcpy(&four, p + 2 * i, sizeof four);
        uint32_t(*const to)[256] = count + i % TURNS;
        to[0][four >> s->mantissa & s->exponents]++;
        to[1][four >> 16 >> s->mantissa & s->exponents]++;
        to[2][four >> 32 >> s->mantissa & s->exponents]++;
        to[3][four >> 48 >> s->mantissa & s->exponents]++;
    }
}

enum { AHEAD = 8 * SMALL_SAMPLE_OF };

void pici_small_sample(uint32_t count[SMALL_CLASSES], const uint8_t *p, size_t n, const struct small_shape *s,
                       unsigned low)
{
    uint32_t by_exponent[TURNS][256] = {{0}};
    const unsigned w = s->width_log2;
    for (size_t at = 0; at < n; at += SMALL_SAMPLE_OF) {
        const size_t from = (size_t)small_sampled(at), ahead = (size_t)small_sampled(at + AHEAD);
        if (ahead < n) /* these lines are no pattern that a CPU predicts */
            __builtin_prefetch(p + (ahead << w));
        if (w == 1 && from + SMALL_SAMPLE <= n)
            sample_16(by_exponent, p + 2 * from, s);
        else
            for (size_t i = from; i < from + SMALL_SAMPLE && i < n; i++)
                by_exponent[i % TURNS][small_exponent(small_load(p, i, w), s)]++;
    }
    for (unsigned e = 0; e <= s->exponents; e++)
        for (int i = 0; i < TURNS; i++)
            count[small_class(e, low)] += by_exponent[i][e];
}

static void count_levels(struct small_tables *t, unsigned c, const uint32_t tokens[SMALL_TOKENS])
{
    uint64_t more = 0;
    for (unsigned x = SMALL_TOKENS; x-- > 0;) {
        if (more)
            t->token[c][x] = (uint8_t)odds_of(more, more + tokens[x]);
        else if (tokens[x])
            t->most[c] = (uint8_t)x;
        more += tokens[x];
    }
}

static void count_nodes(struct small_tables *t, unsigned c, const uint32_t tokens[SMALL_TOKENS])
{
    uint64_t sum[2 * SMALL_TOKENS];
    for (unsigned x = 2 * SMALL_TOKENS; --x > 0;) {
        sum[x] = x >= SMALL_TOKENS ? tokens[x - SMALL_TOKENS] : sum[2 * x] + sum[2 * x + 1];
        if (x < SMALL_TOKENS && sum[x]) {
            t->token[c][x] = (uint8_t)odds_of(sum[2 * x + 1], sum[x]);
            t->nodes[c] |= UINT32_C(1) << x;
        }
    }
}

void pici_small_count(struct small_tables *t, int tree, uint32_t tokens[SMALL_CLASSES][SMALL_TOKENS],
                      const uint32_t sampled[SMALL_CLASSES])
{
    for (unsigned c = 0; c < SMALL_CLASSES; c++) {
        uint64_t k = 0, n = 4 * (uint64_t)sampled[c];
        for (unsigned x = 0; x < SMALL_TOKENS; x++)
            k += tokens[c][x];
        if (!k)
            continue;
        t->classes |= UINT32_C(1) << c;
        t->changed[c] = (uint8_t)odds_of(k, n > k ? n : k + 1);
        if (tree)
            count_nodes(t, c, tokens[c]);
        else
            count_levels(t, c, tokens[c]);
    }
}

void pici_small_frequent(struct small_tables *t, const struct small_shape *s, const uint32_t *mantissa, size_t n)
{
    uint32_t count[128] = {0}, best = n ? mantissa[0] : 0;
    uint64_t having = 0;
    if (s->tree) {
        for (size_t i = 1; i < n; i++)
            if (mantissa[i] == mantissa[i - 1]) {
                best = mantissa[i];
                break;
            }
    } else {
        for (size_t i = 0; i < n; i++)
            count[mantissa[i] & 127]++;
        for (uint32_t x = best = 0; x < 128; x++)
            if (count[x] > count[best])
                best = x;
    }
    for (size_t i = 0; i < n; i++)
        having += mantissa[i] == best;
    t->frequent = best;
    t->frequent_odds = odds_of(having, n);
}

size_t pici_small_put_tables(uint8_t *chunk, const struct small_tables *t, int tree)
{
    uint8_t *p = chunk + SMALL_CTX_TABLES;
    chunk[SMALL_CTX_LOW] = (uint8_t)t->low;
    chunk[SMALL_CTX_TOP] = (uint8_t)t->top;
    chunk[SMALL_CTX_FREQUENT_ODDS] = (uint8_t)t->frequent_odds;
    chunk[SMALL_CTX_ZERO] = 0;
    store_le32(chunk + SMALL_CTX_FREQUENT, t->frequent);
    store_le32(chunk + SMALL_CTX_CLASSES, t->classes);
    for (unsigned c = 0; c < SMALL_CLASSES; c++) {
        if (!(t->classes >> c & 1))
            continue;
        *p++ = t->changed[c];
        if (!tree)
            *p++ = t->most[c];
        for (unsigned x = 0; x < SMALL_TOKENS; x++)
            if (tree ? t->nodes[c] >> x & 1 : x < t->most[c])
                *p++ = t->token[c][x];
    }
    return (size_t)(p - chunk);
}

/* The tables of class c, at p. Returns their end; null if they do not end before `end`, or break a rule. */
static const uint8_t *get_class(struct small_tables *t, unsigned c, const uint8_t *p, const uint8_t *end,
                                const struct small_shape *s)
{
    const ptrdiff_t fixed = s->tree ? 1 : 2;
    if (end - p < fixed)
        return NULL;
    t->changed[c] = p[0];
    t->most[c] = s->tree ? 0 : p[1];
    p += fixed;
    if (t->most[c] > (s->literals && c == 0 ? SMALL_ESCAPE : SMALL_MOST_DIFFERENCE))
        return NULL;
    for (unsigned x = 0; x < SMALL_TOKENS; x++) {
        int there = x < t->most[c];
        if (s->tree) /* the bits of the node above lead here */
            there = x == 1 || (x > 1 && t->nodes[c] >> x / 2 & 1 && t->token[c][x / 2] != (x % 2 ? 0 : 255));
        if (!there)
            continue;
        if (p == end)
            return NULL;
        t->token[c][x] = *p++;
        t->nodes[c] |= s->tree ? UINT32_C(1) << x : 0;
    }
    return p;
}

size_t pici_small_get_tables(struct small_tables *t, const uint8_t *chunk, size_t len, const struct small_shape *s)
{
    memset(t, 0, sizeof *t);
    if (len < SMALL_CTX_TABLES || chunk[SMALL_CTX_ZERO])
        return 0;
    t->low = chunk[SMALL_CTX_LOW];
    t->top = chunk[SMALL_CTX_TOP];
    t->frequent_odds = chunk[SMALL_CTX_FREQUENT_ODDS];
    t->frequent = load_le32(chunk + SMALL_CTX_FREQUENT);
    t->classes = load_le32(chunk + SMALL_CTX_CLASSES);
    if (!t->classes || t->classes >> (SMALL_CLASSES - 1))
        return 0;
    const uint8_t *p = chunk + SMALL_CTX_TABLES;
    for (unsigned c = 0; c < SMALL_CLASSES && p; c++)
        if (t->classes >> c & 1)
            p = get_class(t, c, p, chunk + len, s);
    return p ? (size_t)(p - chunk) : 0;
}
