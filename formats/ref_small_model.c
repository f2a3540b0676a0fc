/* SPDX-License-Identifier: BSD-3-Clause */
#include "ref_small_model.h"

#include <string.h>

struct ref_shape ref_shape_of(unsigned dtype)
{
    static const struct ref_shape shape[REF_E2M1 + 1] = {
        [REF_F32] = {32, 23, 1, 1, 1},  [REF_F16] = {16, 10, 0, 0, 1},  [REF_BF16] = {16, 7, 1, 0, 1},
        [REF_F8E4M3] = {8, 3, 0, 0, 1}, [REF_F8E5M2] = {8, 2, 0, 0, 1}, [REF_E2M1] = {8, 0, 0, 0, 2}};
    return shape[dtype <= REF_E2M1 ? dtype : 0];
}

static unsigned exponent(const struct ref_shape *s, uint64_t u)
{
    return (unsigned)(u >> s->mantissa) & ((1u << (s->w - 1 - s->mantissa)) - 1);
}

uint64_t ref_mask(unsigned bits)
{
    return (UINT64_C(1) << bits) - 1;
}

int64_t ref_ord(const struct ref_shape *s, uint64_t u)
{
    return u >> (s->w - 1) ? -1 - (int64_t)(u & ref_mask(s->w - 1)) : (int64_t)u;
}

uint64_t ref_from_ord(const struct ref_shape *s, int64_t o)
{
    return o < 0 ? (ref_mask(s->w - 1) + 1) | (uint64_t)(-1 - o) : (uint64_t)o;
}

int64_t ref_difference(const struct ref_shape *s, uint64_t old, uint64_t new)
{
    uint64_t d = (uint64_t)(ref_ord(s, new) - ref_ord(s, old)) & ref_mask(s->w);
    return d >> (s->w - 1) ? (int64_t)d - (int64_t)(ref_mask(s->w) + 1) : (int64_t)d;
}

/* Rounded down; v > 0. */
static unsigned log2_of(uint64_t v)
{
    unsigned l = 0;
    while (v >> (l + 1))
        l++;
    return l;
}

unsigned ref_class_of(const struct ref_shape *s, unsigned low, uint64_t old)
{
    const unsigned e = exponent(s, old);
    return e <= low ? 0 : e - low > 31 ? 31 : e - low;
}

/* ---- probabilities ---- */

static unsigned probability(unsigned q)
{
    static const uint16_t table[128] = {
        0,    1,    1,    1,    1,    1,    1,    1,     1,     1,     1,     1,     1,     2,     2,     2,
        2,    2,    2,    3,    3,    3,    3,    4,     4,     4,     5,     5,     6,     6,     7,     7,
        8,    9,    10,   10,   11,   12,   13,   15,    16,    17,    19,    21,    23,    25,    27,    29,
        32,   35,   38,   41,   45,   49,   54,   59,    64,    70,    76,    83,    90,    98,    107,   117,
        128,  139,  152,  165,  180,  196,  214,  233,   254,   277,   302,   329,   358,   390,   425,   463,
        504,  549,  598,  651,  708,  771,  839,  913,   993,   1080,  1174,  1276,  1387,  1507,  1636,  1776,
        1928, 2091, 2267, 2457, 2661, 2881, 3117, 3370,  3641,  3931,  4241,  4571,  4922,  5296,  5692,  6111,
        6554, 7020, 7509, 8023, 8559, 9118, 9699, 10301, 10923, 11562, 12219, 12890, 13573, 14267, 14968, 15675};
    return q == 128 ? 16384 : q < 128 ? table[q] : 32768 - table[256 - q];
}

uint32_t ref_share_of_0(unsigned q)
{
    return q == 0 ? 32768 : q == 255 ? 0 : 32768 - probability(q);
}

static unsigned odds(uint64_t k, uint64_t n)
{
    static const uint32_t t[8] = {68438, 74632, 81386, 88752, 96785, 105545, 115098, 125515};
    uint64_t r = n - k;
    int e = 0;
    if (k == 0 || r == 0)
        return k == 0 ? 0 : 255;
    for (; log2_of(k) > log2_of(r); e++)
        r *= 2;
    for (; log2_of(k) < log2_of(r); e--)
        k *= 2;
    if (k < r) {
        k *= 2;
        e--;
    }
    int q = 128 + 8 * e;
    for (unsigned i = 0; i < 8; i++)
        q += k * 65536 >= r * t[i];
    return q < 1 ? 1 : q > 254 ? 254 : (unsigned)q;
}

/* ---- coding of an element ---- */

int ref_is_literal(const struct ref_model *m, uint64_t old)
{
    return m->s.literals && ref_class_of(&m->s, m->low, old) == 0;
}

unsigned ref_token_of(const struct ref_model *m, uint64_t old, uint64_t new)
{
    if (ref_is_literal(m, old)) {
        const unsigned t = m->top - exponent(&m->s, new);
        return t > 31 ? 31 : t;
    }
    const int64_t d = ref_difference(&m->s, old, new);
    const uint64_t v = (uint64_t)(d < 0 ? -d : d);
    if (m->s.tree)
        return log2_of(v);
    if (v <= 4)
        return (unsigned)v - 1;
    const unsigned o = log2_of(v - 1);
    return 2 * o + (unsigned)((v - 1) >> (o - 1) & 1);
}

unsigned ref_extra_bits(const struct ref_model *m, int literal, unsigned token)
{
    if (literal)
        return token == 31 ? m->s.w - 1 : m->s.mantissa;
    return m->s.tree ? token : token < 4 ? 0 : token / 2 - 1;
}

/* Call fn for the mantissa of each literal with token 0, in their order. Returns their number. */
static uint64_t each_mantissa(const struct ref_model *m, const void *base, const void *src, uint64_t n,
                              void (*fn)(void *context, uint32_t mantissa), void *context)
{
    uint64_t all = 0;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t old = ref_load(base, i, m->s.w / 8), new = ref_load(src, i, m->s.w / 8);
        if (old == new || !ref_is_literal(m, old) || ref_token_of(m, old, new) != 0)
            continue;
        fn(context, (uint32_t)(new &ref_mask(m->s.mantissa)));
        all++;
    }
    return all;
}

struct mantissas {
    uint64_t count[128], all, having; /* bf16: count of each; those that have the frequent one */
    uint32_t before, frequent;
    int found;
};

static void most_often(void *context, uint32_t x)
{
    struct mantissas *c = context;
    c->count[x]++;
    for (unsigned i = c->frequent = 0; i < 128; i++)
        if (c->count[i] > c->count[c->frequent])
            c->frequent = i;
}

static void twice_in_a_row(void *context, uint32_t x)
{
    struct mantissas *c = context;
    if (!c->found && (c->all == 0 || x == c->before)) {
        c->found = c->all > 0;
        c->frequent = x;
    }
    c->before = x;
    c->all++;
}

static void count_frequent(void *context, uint32_t x)
{
    struct mantissas *c = context;
    c->having += x == c->frequent;
}

static void frequent_mantissa(struct ref_model *m, const void *base, const void *src, uint64_t n,
                              enum ref_small_twist twist)
{
    struct mantissas c = {0};
    if (!m->s.literals)
        return;
    each_mantissa(m, base, src, n, m->s.tree ? twice_in_a_row : most_often, &c);
    c.frequent ^= twist == REF_TWIST_FREQUENT;
    const uint64_t all = each_mantissa(m, base, src, n, count_frequent, &c);
    m->frequent = c.frequent;
    m->frequent_odds = odds(c.having, all);
    if (twist == REF_TWIST_FREQUENT_ODDS && m->frequent_odds)
        m->frequent_odds += m->frequent_odds < 254 ? 1 : -1u;
}

int ref_model(struct ref_model *m, const void *base, const void *src, uint64_t n, unsigned dtype,
              enum ref_small_twist twist)
{
    uint64_t k[32] = {0}, sample[32] = {0}, tokens[32][TOKENS] = {{0}};
    memset(m, 0, sizeof *m);
    m->s = ref_shape_of(dtype);
    const unsigned width = m->s.w / 8;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t old = ref_load(base, i, width);
        if (old != ref_load(src, i, width) && exponent(&m->s, old) > m->low + 30)
            m->low = exponent(&m->s, old) - 30;
    }
    m->low += twist == REF_TWIST_LOW;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t old = ref_load(base, i, width), new = ref_load(src, i, width);
        if (old != new &&ref_is_literal(m, old) && exponent(&m->s, new) > m->top)
            m->top = exponent(&m->s, new);
    }
    m->top += twist == REF_TWIST_TOP;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t old = ref_load(base, i, width), new = ref_load(src, i, width);
        const unsigned c = ref_class_of(&m->s, m->low, old);
        sample[c] += i / 32 % 4 == (i / 128 * UINT64_C(2654435761) & ref_mask(32)) >> 30;
        if (old == new)
            continue;
        k[c]++;
        tokens[c][ref_token_of(m, old, new)]++;
    }
    for (unsigned c = 0; c < 32; c++) {
        for (unsigned x = 0; x < NODES; x++)
            m->token[c][x] = NO_ODDS;
        if (!k[c])
            continue;
        m->classes |= 1u << c;
        m->changed[c] = odds(k[c], 4 * sample[c] > k[c] + 1 ? 4 * sample[c] : k[c] + 1);
        for (unsigned t = 0; t < TOKENS; t++)
            if (tokens[c][t])
                m->most[c] = t;
        if (twist == REF_TWIST_MOST && m->most[c] < 29)
            m->most[c]++;
        for (unsigned j = 0; !m->s.tree && j < m->most[c]; j++) {
            uint64_t more = 0;
            for (unsigned t = j + 1; t < TOKENS; t++)
                more += tokens[c][t];
            m->token[c][j] = odds(more, more + tokens[c][j]);
        }
        for (unsigned x = 1; m->s.tree && x < NODES; x++) {
            const unsigned level = log2_of(x), first = (x << (5 - level)) - 32, half = 16 >> level;
            uint64_t zeros = 0, ones = 0;
            for (unsigned t = 0; t < half; t++) {
                zeros += tokens[c][first + t];
                ones += tokens[c][first + half + t];
            }
            if (zeros + ones)
                m->token[c][x] = odds(ones, zeros + ones);
        }
    }
    for (unsigned c = 0; twist == REF_TWIST_CHANGED && c < 32; c++)
        if (m->changed[c] > 0 && m->changed[c] < 254) {
            m->changed[c]++;
            break;
        }
    for (unsigned i = 0; twist == REF_TWIST_TOKEN && i < 32 * NODES; i++) {
        unsigned *const q = &m->token[i / NODES][i % NODES];
        if (*q > 0 && *q < 254) {
            ++*q;
            break;
        }
    }
    frequent_mantissa(m, base, src, n, twist);
    return m->classes != 0;
}
