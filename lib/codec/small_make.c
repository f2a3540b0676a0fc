/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encoding a context chunk (formats/small-delta.md). Changed elements are few, so what is found out of each of them is
 * kept in arrays; then all bits are listed, and coded from the last to the first. */
#include <stdlib.h>

#include "bytes.h"
#include "codec/small.h"
#include "codec/small_model.h"
#include "cpu/kernels.h"

enum { SEGMENT = 128 /* steps that are coded at once */, SEGMENT_BITS = SEGMENT * SMALL_LANES };

struct small_maker {
    struct small_shape shape;
    struct small_tables tables;
    size_t n; /* elements that there is memory for */
    uint32_t *changed;
    uint8_t *old, *now;     /* changed elements */
    uint8_t *class, *token; /* of each of these */
    uint32_t *v;            /* magnitudes of differences */
    uint32_t *sign;         /* bits */
    uint32_t *id;           /* numbers of those in the list at hand */
    uint32_t *distant;      /* without a tree: numbers of the differences of which the token is not 0 */
    size_t far;             /* how many */
    uint32_t *literal;      /* numbers of the literals */
    size_t literals, zeros; /* zeros: literals with token 0 */
    uint32_t *mantissa;     /* of these */
    uint16_t *zero;         /* listed bits: shares of a 0 */
    uint32_t *bit;
    size_t listed, list_cap;
    uint16_t *words; /* filled from its end */
    size_t words_cap;
    uint8_t *chunk;
    struct pici_classes classes;
    struct pici_differences differences;
    uint32_t tokens[SMALL_CLASSES][SMALL_TOKENS];
    uint32_t sampled[SMALL_CLASSES];
    uint32_t x[SMALL_LANES];
    uint16_t level[SMALL_TOKENS][SMALL_CLASSES]; /* shares of a 0 by level, or node, and class */
};

void pici_small_maker_free(struct small_maker *m)
{
    if (!m)
        return;
    void *const all[] = {m->changed, m->old,     m->now,      m->class, m->token, m->v,     m->sign, m->id,
                         m->distant, m->literal, m->mantissa, m->zero,  m->bit,   m->words, m->chunk};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(m);
}

struct small_maker *pici_small_maker(uint64_t n, const struct small_shape *shape)
{
    struct small_maker *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    const size_t most = n < SMALL_CHUNK ? (size_t)n : SMALL_CHUNK, room = most + SMALL_LANES, w = shape->width_log2;
    const size_t listed = shape->tree ? SMALL_TREE_LEVELS + 1 : SMALL_LISTED;
    m->shape = *shape;
    m->n = most;
    m->list_cap = listed * most + (SMALL_TOKENS + 2) * 2 * SMALL_LANES;
    m->words_cap = (most << w) / 2 + SEGMENT_BITS + 64 + PICI_SLACK;
    m->changed = malloc(room / 8 + 8);
    m->old = malloc((room << w) + PICI_SLACK);
    m->now = malloc((room << w) + PICI_SLACK);
    m->class = malloc(room);
    m->token = malloc(room);
    m->v = malloc(room * sizeof *m->v);
    m->sign = malloc(room / 8 + 8);
    m->id = malloc(room * sizeof *m->id);
    m->distant = malloc(room * sizeof *m->distant);
    m->literal = malloc(room * sizeof *m->literal);
    m->mantissa = malloc(room * sizeof *m->mantissa);
    m->zero = malloc(m->list_cap * sizeof *m->zero);
    m->bit = malloc(m->list_cap / 8 + 8);
    m->words = malloc(m->words_cap * sizeof *m->words);
    m->chunk = malloc((size_t)small_context_limit(most, shape->width_log2) + 16);
    if (!m->changed || !m->old || !m->now || !m->class || !m->token || !m->v || !m->sign || !m->id || !m->distant ||
        !m->literal || !m->mantissa || !m->zero || !m->bit || !m->words || !m->chunk) {
        pici_small_maker_free(m);
        return NULL;
    }
    return m;
}

/* ---- counting ---- */

/* Find class, magnitude, sign and token of each changed element but the tokens of literals. Returns how many changed
 * otherwise than in the sign alone. */
static size_t differences(struct small_maker *m, size_t k)
{
    struct pici_differences *const d = &m->differences;
    d->old = m->old;
    d->now = m->now;
    d->n = k;
    d->shift = m->shape.mantissa;
    d->exponents = m->shape.exponents;
    d->low = m->tables.low;
    d->literals = m->shape.literals;
    d->class = m->class;
    d->token = m->token;
    d->v = m->v;
    d->sign = m->sign;
    d->literal = m->literal;
    memset(d->count, 0, sizeof d->count);
    pici_isa()->small[m->shape.width_log2]->differences(d);
    m->literals = d->literals_n;
    for (unsigned i = 0; i < SMALL_CLASSES * SMALL_TOKENS; i++)
        m->tokens[i / SMALL_TOKENS][i % SMALL_TOKENS] = d->count[0][i] + d->count[1][i];
    return d->more;
}

static void literals(struct small_maker *m)
{
    const struct small_shape *s = &m->shape;
    struct small_tables *const t = &m->tables;
    m->zeros = 0;
    for (size_t i = 0; i < m->literals; i++) {
        const unsigned e = small_exponent(small_load(m->now, m->literal[i], s->width_log2), s);
        t->top = e > t->top ? e : t->top;
    }
    for (size_t i = 0; i < m->literals; i++) {
        const uint32_t b = small_load(m->now, m->literal[i], s->width_log2);
        const unsigned below = t->top - small_exponent(b, s), x = below < SMALL_ESCAPE ? below : SMALL_ESCAPE;
        m->token[m->literal[i]] = (uint8_t)x;
        m->tokens[0][x]++;
        if (x == 0)
            m->mantissa[m->zeros++] = b & ((UINT32_C(1) << s->mantissa) - 1);
    }
}

/* ---- lists ---- */

/* Bits that are listed, without those beyond the end of a list. */
static uint64_t count_listed(const struct small_maker *m)
{
    uint64_t all = m->zeros;
    for (unsigned c = 0; c < SMALL_CLASSES; c++)
        for (unsigned t = 0; t < SMALL_TOKENS; t++)
            all += (uint64_t)m->tokens[c][t] * (m->shape.tree           ? SMALL_TREE_LEVELS
                                                : t < m->tables.most[c] ? t + 1
                                                                        : m->tables.most[c]);
    return all;
}

struct list {
    uint16_t *zero;
    uint32_t *bit, word;
    size_t n;
};

static inline void list_add(struct list *l, uint16_t zero, uint32_t bit, int kept)
{
    const unsigned at = l->n % 32;
    l->zero[l->n] = zero;
    l->word = (at ? l->word : 0) | bit << at;
    l->bit[l->n / 32] = l->word;
    l->n += (size_t)kept;
}

static void list_end(struct list *l)
{
    while (l->n % 32)
        list_add(l, SMALL_SHARES, 0, 1);
}

/* f32: the lists of the n elements in m->id. */
static void list_tree(struct small_maker *m, struct list *l, size_t n)
{
    for (unsigned level = 0; level < SMALL_TREE_LEVELS; level++) {
        for (size_t i = 0; i < n; i++) {
            const uint32_t t = m->token[m->id[i]];
            list_add(l, m->level[(32 + t) >> (SMALL_TREE_LEVELS - level)][m->class[m->id[i]]],
                     t >> (SMALL_TREE_LEVELS - 1 - level) & 1, 1);
        }
        list_end(l);
    }
}

/* The lists from a level on, of the n elements in m->id, which have at least that token. Where nothing is listed, the
 * bit is 0, and nobody goes on. */
static void list_levels(struct small_maker *m, struct list *l, size_t n, unsigned level)
{
    for (; n; level++) {
        const uint16_t *const zero = m->level[level];
        size_t left = 0;
        for (size_t i = 0; i < n; i++) {
            const uint32_t x = m->id[i];
            const uint16_t z = zero[m->class[x]];
            const uint32_t more = m->token[x] > level;
            list_add(l, z, more, z != SMALL_SHARES);
            m->id[left] = x;
            left += more;
        }
        list_end(l);
        n = left;
    }
}

/* The first list of the k changed elements, of differences only. Sets m->distant. */
static void list_first(struct small_maker *m, struct list *l, size_t k)
{
    struct pici_first_list f = {.old = m->old,
                                .n = k,
                                .shift = m->shape.mantissa,
                                .exponents = m->shape.exponents,
                                .low = m->tables.low,
                                .literals = m->shape.literals,
                                .all = m->shape.tree,
                                .zero = m->level[0],
                                .class = m->class,
                                .id = m->id,
                                .share = m->zero,
                                .literal = m->literal};
    pici_isa()->small[m->shape.width_log2]->first_list(&f);
    m->far = 0;
    if (m->shape.tree) {
        list_tree(m, l, f.listed);
        return;
    }
    for (size_t i = 0; i < f.listed; i += 32) {
        const size_t end = f.listed - i < 32 ? f.listed : i + 32;
        uint32_t word = 0;
        for (size_t j = i; j < end; j++) {
            const uint32_t x = m->id[j], more = m->token[x] > 0;
            word |= more << (j - i);
            m->distant[m->far] = x;
            m->far += more;
        }
        m->bit[i / 32] = word;
    }
    l->n = f.listed;
    l->word = l->n % 32 ? m->bit[l->n / 32] : 0;
    list_end(l);
}

static void make_lists(struct small_maker *m, size_t k)
{
    struct list l = {m->zero, m->bit, 0, 0};
    for (unsigned c = 0; c < SMALL_CLASSES; c++)
        for (unsigned t = 0; t < SMALL_TOKENS; t++)
            m->level[t][c] = pici_small_zero[m->tables.token[c][t]];
    list_first(m, &l, k);
    memcpy(m->id, m->distant, m->far * sizeof *m->id);
    list_levels(m, &l, m->far, 1);
    memcpy(m->id, m->literal, m->literals * sizeof *m->id);
    if (m->shape.tree)
        list_tree(m, &l, m->literals);
    else
        list_levels(m, &l, m->literals, 0);
    for (size_t i = 0; i < m->zeros; i++)
        list_add(&l, pici_small_zero[m->tables.frequent_odds], m->mantissa[i] == m->tables.frequent, 1);
    list_end(&l);
    m->listed = l.n;
}

/* ---- the chunk ---- */

/* Code all bits. Returns the first word; null if there are more than most. */
static const uint16_t *code(struct small_maker *m, size_t most, const uint8_t *base, size_t n)
{
    const unsigned w = m->shape.width_log2;
    const struct pici_coder *const coder = pici_isa()->coder;
    const struct pici_small *const kernel = pici_isa()->small[w];
    uint16_t *const end = m->words + m->words_cap, *word = end;
    uint16_t zero[SEGMENT_BITS];
    for (int i = 0; i < SMALL_LANES; i++)
        m->x[i] = SMALL_STATE;
    for (size_t left = m->listed / SMALL_LANES; left;) {
        const size_t steps = left % SEGMENT ? left % SEGMENT : SEGMENT;
        left -= steps;
        coder->encode(m->x, &word, m->zero + left * SMALL_LANES, m->bit + left, steps);
        if ((size_t)(end - word) > most)
            return NULL;
    }
    for (size_t left = n; left;) {
        const size_t some = left % SEGMENT_BITS ? left % SEGMENT_BITS : SEGMENT_BITS;
        size_t padded = some;
        left -= some;
        kernel->shares(zero, base + (left << w), some, &m->classes);
        for (; padded % SMALL_LANES; padded++)
            zero[padded] = SMALL_SHARES;
        coder->encode(m->x, &word, zero, m->changed + left / 32, padded / SMALL_LANES);
        if ((size_t)(end - word) > most)
            return NULL;
    }
    return word;
}

static void set_classes(struct small_maker *m)
{
    struct pici_classes *const c = &m->classes;
    c->shift = m->shape.mantissa;
    c->exponents = m->shape.exponents;
    c->low = m->tables.low;
    for (unsigned i = 0; i < SMALL_CLASSES; i++)
        c->zero[i] = pici_small_zero[m->tables.changed[i]];
    for (unsigned e = 0; e <= m->shape.exponents; e++)
        c->exponent[e] = c->zero[small_class(e, m->tables.low)];
}

/* Bits that are appended to bytes. */
struct appended {
    uint8_t *p;
    uint64_t bits;
    unsigned n;
};

static inline void append(struct appended *a, uint32_t v, unsigned bits)
{
    a->bits |= (uint64_t)v << a->n;
    for (a->n += bits; a->n >= 8; a->n -= 8, a->bits >>= 8)
        *a->p++ = (uint8_t)a->bits;
}

static inline uint32_t low_bits(uint32_t v, unsigned bits)
{
    return v & (uint32_t)((UINT64_C(1) << bits) - 1);
}

/* Bits of all extra bits. */
static uint64_t count_extra(const struct small_maker *m)
{
    const struct small_shape *s = &m->shape;
    uint64_t all = 0;
    for (unsigned c = s->literals != 0; c < SMALL_CLASSES; c++)
        for (unsigned t = 0; t < SMALL_TOKENS; t++)
            all += (uint64_t)m->tokens[c][t] * small_extra_bits(t, s->tree);
    for (unsigned t = 0; s->literals && t < SMALL_TOKENS; t++)
        all += (uint64_t)m->tokens[0][t] * (t == SMALL_ESCAPE ? (8u << s->width_log2) - 1 : s->mantissa);
    for (size_t i = 0; i < m->zeros; i++)
        all -= m->mantissa[i] == m->tables.frequent ? s->mantissa : 0;
    return all;
}

static inline void append_extra(struct appended *a, const struct small_maker *m, size_t i)
{
    const unsigned t = m->token[i], bits = small_extra_bits(t, m->shape.tree);
    if (bits)
        append(a, low_bits(m->v[i] - small_least(t, m->shape.tree), bits), bits);
}

static uint8_t *put_extra(const struct small_maker *m, uint8_t *p, size_t k)
{
    const struct small_shape *s = &m->shape;
    const unsigned w = s->width_log2;
    struct appended a = {p, 0, 0};
    for (size_t i = 0; i < m->far; i++)
        append_extra(&a, m, m->distant[i]);
    for (size_t i = 0, next = 0; s->tree && i < k; i++) {
        if (next < m->literals && m->literal[next] == i)
            next++;
        else
            append_extra(&a, m, i);
    }
    for (size_t i = 0; i < m->literals; i++) {
        const uint32_t b = small_load(m->now, m->literal[i], w), mantissa = low_bits(b, s->mantissa);
        const unsigned t = m->token[m->literal[i]];
        if (t == SMALL_ESCAPE)
            append(&a, low_bits(b, (8u << w) - 1), (8u << w) - 1);
        else if (t || mantissa != m->tables.frequent)
            append(&a, mantissa, s->mantissa);
    }
    if (a.n)
        *a.p++ = (uint8_t)a.bits;
    return a.p;
}

size_t pici_small_make(struct small_maker *m, const uint8_t **chunk, uint64_t *least, const uint8_t *base,
                       const uint8_t *src, size_t n)
{
    const struct small_shape *s = &m->shape;
    const unsigned w = s->width_log2;
    const struct pici_small *const kernel = pici_isa()->small[w];
    const size_t k = kernel->changes(m->changed, m->old, m->now, base, src, n);
    *least = 0;
    *chunk = m->chunk;
    if (!k)
        return 0;
    memset(&m->tables, 0, sizeof m->tables);
    memset(m->sampled, 0, sizeof m->sampled);
    const unsigned largest = kernel->largest(m->old, k, s->exponents << s->mantissa) >> s->mantissa;
    m->tables.low = largest > SMALL_CLASSES - 2 ? largest - (SMALL_CLASSES - 2) : 0;
    *least = 48 + ((uint64_t)differences(m, k) << w);
    literals(m);
    pici_small_sample(m->sampled, base, n, s, m->tables.low);
    pici_small_count(&m->tables, s->tree, m->tokens, m->sampled);
    pici_small_frequent(&m->tables, s, m->mantissa, m->zeros);
    if (!s->tree && count_listed(m) > (uint64_t)SMALL_LISTED * n)
        return 0;

    /* all that is not words */
    uint8_t tables[SMALL_CTX_TABLES + SMALL_TABLES_MOST];
    const size_t before = pici_small_put_tables(tables, &m->tables, s->tree), signs = (k + 7) / 8;
    const uint64_t fixed = before + signs + (count_extra(m) + 7) / 8, limit = small_context_limit(n, w);
    if (fixed >= limit)
        return 0;
    make_lists(m, k);
    set_classes(m);
    const size_t most = (size_t)(limit - 1 - fixed) / 2;
    const uint16_t *const word = code(m, most, base, n);
    if (!word)
        return 0;
    const size_t words = (size_t)(m->words + m->words_cap - word);
    uint8_t *p = m->chunk;
    memcpy(p, tables, before);
    store_le32(p + SMALL_CTX_WORDS, (uint32_t)words);
    for (int i = 0; i < SMALL_LANES; i++)
        store_le32(p + SMALL_CTX_STATES + 4 * i, m->x[i]);
    p += before;
    for (size_t i = 0; i < words; i++, p += 2) {
        const uint16_t v = le16(word[i]);
        memcpy(p, &v, 2);
    }
    for (size_t i = 0; i < signs; i++)
        *p++ = (uint8_t)(m->sign[i / 4] >> i % 4 * 8);
    return (size_t)(put_extra(m, p, k) - m->chunk);
}
