/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Decoding context chunks (formats/small-delta.md), one or two at a time: lists of two chunks are decoded together,
 * since one alone waits for its own states. Chunks are untrusted. What is decoded, tables too, is counted again before
 * any element is changed. */
#include <stdlib.h>

#include "bytes.h"
#include "codec/small.h"
#include "codec/small_model.h"
#include "cpu/kernels.h"

enum { SEGMENT = 128 /* steps that are decoded at once */, SEGMENT_BITS = SEGMENT * SMALL_LANES, PARTS = 2 };

/* Which list comes next. */
enum stage { CHANGED, DIFFERENCES, LITERALS, FREQUENT, DONE };

struct part {
    const struct small_part *in;
    struct small_shape shape;
    struct small_tables tables;
    int good;
    struct pici_lanes lanes;
    uint16_t *words; /* a copy in host order, followed by zeros that a segment may read */
    const uint16_t *words_end;
    const uint8_t *rest; /* of the chunk: signs and extra bits */
    uint32_t *changed;
    size_t k; /* changed elements */
    uint8_t *old, *now, *class, *token;
    uint32_t *literal; /* their numbers */
    size_t literals;
    uint32_t *distant; /* without a tree: numbers of the differences of which the token is not 0 */
    size_t far;        /* how many */
    enum stage stage;
    unsigned level;
    uint32_t *id; /* numbers of the elements in the list at hand */
    uint16_t *zero;
    uint32_t *bit;
    size_t n;        /* bits of that list */
    uint64_t listed; /* of all lists */
    struct pici_classes classes;
    uint16_t level_zero[SMALL_TOKENS][SMALL_CLASSES]; /* shares of a 0 by level, or node, and class */
    uint32_t tokens[SMALL_CLASSES][SMALL_TOKENS], sampled[SMALL_CLASSES];
};

struct small_reader {
    struct part part[PARTS];
    uint16_t zero[PARTS][SEGMENT_BITS];
};

static void part_free(struct part *p)
{
    void *const all[] = {p->words,   p->changed, p->old, p->now,  p->class, p->token,
                         p->literal, p->distant, p->id,  p->zero, p->bit};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

void pici_small_reader_free(struct small_reader *r)
{
    if (!r)
        return;
    for (int i = 0; i < PARTS; i++)
        part_free(&r->part[i]);
    free(r);
}

static int part_init(struct part *p, size_t n, const struct small_shape *shape)
{
    const size_t w = shape->width_log2, room = n + SMALL_LANES;
    p->shape = *shape;
    p->words =
        malloc(((size_t)small_context_limit(n, shape->width_log2) / 2 + SEGMENT_BITS) * sizeof *p->words + PICI_SLACK);
    p->changed = malloc(room / 8 + 8);
    p->old = malloc((room << w) + PICI_SLACK);
    p->now = malloc((room << w) + PICI_SLACK);
    p->class = malloc(room);
    p->token = malloc(room);
    p->literal = malloc(room * sizeof *p->literal);
    p->distant = malloc(room * sizeof *p->distant);
    p->id = malloc(room * sizeof *p->id);
    p->zero = malloc(room * sizeof *p->zero);
    p->bit = malloc(room / 8 + 8);
    return p->words && p->changed && p->old && p->now && p->class && p->token && p->literal && p->distant && p->id &&
           p->zero && p->bit;
}

struct small_reader *pici_small_reader(uint64_t n, const struct small_shape *shape)
{
    struct small_reader *r = calloc(1, sizeof *r);
    const size_t most = n < SMALL_CHUNK ? (size_t)n : SMALL_CHUNK;
    if (!r)
        return NULL;
    for (int i = 0; i < PARTS; i++)
        if (!part_init(&r->part[i], most, shape)) {
            pici_small_reader_free(r);
            return NULL;
        }
    return r;
}

/* Everything before the first list. Returns 0 if the chunk breaks a rule. */
static int begin(struct part *p, const struct small_part *in)
{
    const uint8_t *const chunk = in->chunk;
    p->in = in;
    if (in->len >= small_context_limit(in->n, p->shape.width_log2))
        return 0;
    const size_t before = pici_small_get_tables(&p->tables, chunk, in->len, &p->shape);
    if (!before)
        return 0;
    const uint32_t words = load_le32(chunk + SMALL_CTX_WORDS);
    if (words > (in->len - before) / 2)
        return 0;
    for (int i = 0; i < SMALL_LANES; i++)
        if ((p->lanes.x[i] = load_le32(chunk + SMALL_CTX_STATES + 4 * i)) < SMALL_STATE)
            return 0;
    memcpy(p->words, chunk + before, 2 * (size_t)words);
    for (size_t i = 0; PICI_BIG_ENDIAN && i < words; i++)
        p->words[i] = le16(p->words[i]);
    memset(p->words + words, 0, SEGMENT_BITS * sizeof *p->words + PICI_SLACK);
    p->lanes.word = p->words;
    p->words_end = p->words + words;
    p->rest = chunk + before + 2 * (size_t)words;

    p->classes.shift = p->shape.mantissa;
    p->classes.exponents = p->shape.exponents;
    p->classes.low = p->tables.low;
    for (unsigned c = 0; c < SMALL_CLASSES; c++) {
        p->classes.zero[c] = pici_small_zero[p->tables.changed[c]];
        for (unsigned t = 0; t < SMALL_TOKENS; t++)
            p->level_zero[t][c] = pici_small_zero[p->tables.token[c][t]];
    }
    for (unsigned e = 0; e <= p->shape.exponents; e++)
        p->classes.exponent[e] = p->classes.zero[small_class(e, p->tables.low)];
    p->stage = CHANGED;
    p->listed = 0;
    return 1;
}

/* ---- lists ---- */

/* After some steps: no more words may have been used than there are. */
static void check_words(struct part *p)
{
    if (p->lanes.word <= p->words_end)
        return;
    p->lanes.word = p->words_end;
    p->good = 0;
}

static void decode_changed(struct small_reader *r, struct part *p[], int parts)
{
    const unsigned w = r->part[0].shape.width_log2;
    const struct pici_small *const kernel = pici_isa()->small[w];
    const struct pici_coder *const coder = pici_isa()->coder;
    for (size_t at = 0;; at += SEGMENT_BITS) {
        size_t steps[PARTS] = {0};
        for (int i = 0; i < parts; i++) {
            const size_t n = p[i]->in->n, some = at >= n ? 0 : n - at < SEGMENT_BITS ? n - at : SEGMENT_BITS;
            if (some)
                kernel->shares(r->zero[i], p[i]->in->dst + (at << w), some, &p[i]->classes);
            steps[i] = (some + SMALL_LANES - 1) / SMALL_LANES;
            for (size_t k = some; k < steps[i] * SMALL_LANES; k++)
                r->zero[i][k] = SMALL_SHARES;
        }
        if (!steps[0] && !steps[1])
            return;
        uint32_t *const bit[PARTS] = {p[0]->changed + at / 32, parts > 1 ? p[1]->changed + at / 32 : NULL};
        const size_t both = steps[0] < steps[1] ? steps[0] : steps[1];
        if (both)
            coder->decode_two(&p[0]->lanes, bit[0], r->zero[0], &p[1]->lanes, bit[1], r->zero[1], both);
        for (int i = 0; i < parts; i++) {
            if (steps[i] > both)
                coder->decode(&p[i]->lanes, bit[i] + both, r->zero[i] + both * SMALL_LANES, steps[i] - both);
            check_words(p[i]);
        }
    }
}

static void decode_lists(struct part *p[], int parts)
{
    const struct pici_coder *const coder = pici_isa()->coder;
    size_t left[PARTS] = {0}, at[PARTS] = {0};
    for (int i = 0; i < parts; i++) {
        left[i] = (p[i]->n + SMALL_LANES - 1) / SMALL_LANES;
        for (size_t k = p[i]->n; k < left[i] * SMALL_LANES; k++)
            p[i]->zero[k] = SMALL_SHARES;
    }
    while (left[0] || left[1]) {
        size_t both = left[0] < left[1] ? left[0] : left[1];
        both = both < SEGMENT ? both : SEGMENT;
        if (both)
            coder->decode_two(&p[0]->lanes, p[0]->bit + at[0], p[0]->zero + at[0] * SMALL_LANES, &p[1]->lanes,
                              p[1]->bit + at[1], p[1]->zero + at[1] * SMALL_LANES, both);
        for (int i = 0; i < parts; i++) {
            const size_t some = both ? both : left[i] < SEGMENT ? left[i] : SEGMENT;
            if (!both && some)
                coder->decode(&p[i]->lanes, p[i]->bit + at[i], p[i]->zero + at[i] * SMALL_LANES, some);
            at[i] += some;
            left[i] -= some;
            check_words(p[i]);
        }
    }
}

/* The first list of the literals. */
static void first_literals(struct part *p)
{
    const uint16_t z = p->level_zero[p->shape.tree][0]; /* they have class 0 */
    p->stage = LITERALS;
    p->level = 0;
    p->n = p->shape.tree || z != SMALL_SHARES ? p->literals : 0;
    for (size_t i = 0; i < p->n; i++) {
        p->id[i] = p->literal[i];
        p->zero[i] = z;
    }
}

/* Take in the list at hand and make the next one, of the same elements. */
static void next_level(struct part *p)
{
    size_t kept = 0;
    p->level++;
    if (p->shape.tree) {
        const int last = p->level == SMALL_TREE_LEVELS;
        for (size_t i = 0; i < p->n; i++) {
            const uint32_t x = p->id[i], t = 2u * p->token[x] | (p->bit[i / 32] >> i % 32 & 1);
            p->token[x] = (uint8_t)t;
            if (!last)
                p->zero[i] = p->level_zero[(1u << p->level) | t][p->class[x]];
        }
        p->n = last ? 0 : p->n;
        return;
    }
    const uint16_t *const zero = p->level_zero[p->level & (SMALL_TOKENS - 1)];
    const int first = p->level == 1 && p->stage == DIFFERENCES;
    /* not members of *p, which the compiler would load again after each store to a token */
    const size_t n = p->n;
    const uint8_t level = (uint8_t)p->level, *const class = p->class;
    const uint32_t *const bit = p->bit;
    uint32_t *const id = p->id, *const distant = p->distant;
    uint16_t *const share = p->zero;
    uint8_t *const token = p->token;
    size_t far = p->far;
    for (size_t i = 0; i < n; i += 32)
        for (uint32_t m = bit[i / 32]; m; m &= m - 1) {
            const uint32_t x = id[i + (size_t)__builtin_ctz(m)];
            const uint16_t z = zero[class[x]];
            token[x] = level;
            if (first)
                distant[far++] = x;
            id[kept] = x;
            share[kept] = z;
            kept += z != SMALL_SHARES;
        }
    p->far = far;
    p->n = p->level < SMALL_TOKENS - 1 ? kept : 0;
}

/* Who changed, and the list of the differences. */
static void list_changed(struct part *p)
{
    const struct pici_small *const kernel = pici_isa()->small[p->shape.width_log2];
    p->k = kernel->pick(p->old, p->in->dst, p->changed, p->in->n);
    memset(p->token, 0, p->k);
    struct pici_first_list l = {.old = p->old,
                                .n = p->k,
                                .shift = p->shape.mantissa,
                                .exponents = p->shape.exponents,
                                .low = p->tables.low,
                                .literals = p->shape.literals,
                                .all = p->shape.tree,
                                .zero = p->level_zero[p->shape.tree],
                                .class = p->class,
                                .id = p->id,
                                .share = p->zero,
                                .literal = p->literal};
    kernel->first_list(&l);
    p->literals = l.literals_n;
    p->n = l.listed;
    p->far = 0;
    p->stage = DIFFERENCES;
    p->level = 0;
}

/* Take in the list at hand, and make the next one that is not empty. Returns 0 if there is none. */
static int next_list(struct part *p)
{
    if (p->stage == CHANGED)
        list_changed(p);
    else if (p->stage == FREQUENT)
        p->n = 0;
    else if (p->stage != DONE)
        next_level(p);
    if (p->stage == DIFFERENCES && !p->n)
        first_literals(p);
    if (p->stage == LITERALS && !p->n) {
        for (size_t i = 0; i < p->literals; i++)
            if (!p->token[p->literal[i]])
                p->zero[p->n++] = pici_small_zero[p->tables.frequent_odds];
        p->stage = FREQUENT;
        return p->n != 0;
    }
    if (p->stage == FREQUENT)
        p->stage = DONE;
    return p->n != 0;
}

/* ---- values ---- */

/* Bits at p, of which `left` bytes may be read. */
struct extra {
    const uint8_t *p;
    size_t left;
    uint64_t bits;
    unsigned n;
    int good;
};

/* The next so many bits, at most 32. */
static inline uint32_t take(struct extra *e, unsigned bits)
{
    if (e->n < bits && e->left >= 4) {
        e->bits |= (uint64_t)load_le32(e->p) << e->n;
        e->p += 4;
        e->left -= 4;
        e->n += 32;
    }
    while (e->n < bits) {
        if (e->left == 0) {
            e->good = 0;
            e->n += 32;
            break;
        }
        e->bits |= (uint64_t)*e->p++ << e->n;
        e->left--;
        e->n += 8;
    }
    const uint32_t v = (uint32_t)(e->bits & ((UINT64_C(1) << bits) - 1));
    e->bits >>= bits;
    e->n -= bits;
    return v;
}

/* The new value of difference i, which has another token than 0 or is of a tree. Returns 0 if it is not possible. */
static inline int put_difference(struct part *p, size_t i, const uint8_t *signs, struct extra *e, unsigned w)
{
    const int tree = p->shape.tree;
    const unsigned t = p->token[i];
    const uint32_t old = small_load(p->old, i, w), sign = signs[i / 8] >> i % 8 & 1;
    const uint32_t v = small_least(t, tree) + take(e, small_extra_bits(t, tree));
    small_store(p->now, i, small_ord((small_ord(old, w) + (sign ? 0 - v : v)) & small_mask(w), w), w);
    return v < small_sign(w) + sign;
}

/* New values of the differences. Returns 0 if one is not possible. */
static int put_differences(struct part *p, const uint8_t *signs, struct extra *e)
{
    int good = 1;
    if (p->shape.tree) {
        for (size_t i = 0, next = 0; i < p->k; i++)
            if (next < p->literals && p->literal[next] == i)
                next++;
            else
                good &= put_difference(p, i, signs, e, 2);
        return good;
    }
    pici_isa()->small[1]->neighbours(p->now, p->old, signs, p->k);
    for (size_t i = 0; i < p->far; i++)
        good &= put_difference(p, p->distant[i], signs, e, 1);
    return good;
}

/* New values of the literals, and who of them has the frequent mantissa. */
static int put_literals(struct part *p, const uint8_t *signs, struct extra *e)
{
    const struct small_shape *s = &p->shape;
    const unsigned w = s->width_log2;
    size_t zeros = 0;
    for (size_t k = 0; k < p->literals; k++) {
        const size_t i = p->literal[k];
        const uint32_t top = p->tables.top, t = p->token[i], sign = signs[i / 8] >> i % 8 & 1;
        const int frequent = t == 0 && p->bit[zeros / 32] >> zeros % 32 & 1;
        zeros += t == 0;
        uint32_t v = t == SMALL_ESCAPE ? take(e, (8u << w) - 1) : frequent ? p->tables.frequent : take(e, s->mantissa);
        if (t == SMALL_ESCAPE ? small_exponent(v, s) + SMALL_ESCAPE > top : t > top)
            return 0;
        if (t != SMALL_ESCAPE)
            v |= (top - t) << s->mantissa;
        v |= sign ? small_sign(w) : 0;
        if (v == small_load(p->old, i, w))
            return 0;
        small_store(p->now, i, v, w);
    }
    return 1;
}

/* Are the tables those that follow from the elements? */
static int recount(struct part *p)
{
    const struct small_shape *s = &p->shape;
    const unsigned w = s->width_log2;
    struct small_tables t;
    unsigned largest = 0;
    size_t zeros = 0;
    memset(&t, 0, sizeof t);
    memset(p->tokens, 0, sizeof p->tokens);
    memset(p->sampled, 0, sizeof p->sampled);
    for (size_t i = 0; i < p->k; i++)
        p->tokens[p->class[i]][p->token[i]]++;
    for (unsigned c = 0; c < SMALL_CLASSES; c++)
        for (unsigned x = 0; x < SMALL_TOKENS; x++)
            largest = p->tokens[c][x] ? c : largest;
    /* the largest class tells the largest exponent unless that is below or in class 0, and then low must be 0 */
    t.low = largest + p->tables.low > SMALL_CLASSES - 2 ? largest + p->tables.low - (SMALL_CLASSES - 2) : 0;
    if (!largest && p->tables.low)
        return 0;
    uint32_t *const mantissa = p->id; /* not used any more */
    for (size_t k = 0; k < p->literals; k++) {
        const uint32_t v = small_load(p->now, p->literal[k], w);
        t.top = small_exponent(v, s) > t.top ? small_exponent(v, s) : t.top;
        if (!p->token[p->literal[k]])
            mantissa[zeros++] = v & ((UINT32_C(1) << s->mantissa) - 1);
    }
    pici_small_sample(p->sampled, p->in->dst, p->in->n, s, p->tables.low);
    pici_small_count(&t, s->tree, p->tokens, p->sampled);
    pici_small_frequent(&t, s, mantissa, zeros);
    return memcmp(&t, &p->tables, sizeof t) == 0;
}

/* Everything after the last list. */
static int finish(struct part *p)
{
    for (int i = 0; i < SMALL_LANES; i++)
        if (p->lanes.x[i] != SMALL_STATE)
            return 0;
    const size_t left = p->in->len - (size_t)(p->rest - p->in->chunk), bytes = (p->k + 7) / 8;
    if (p->lanes.word != p->words_end || bytes > left || (p->k % 8 && p->rest[bytes - 1] >> p->k % 8))
        return 0;
    struct extra e = {p->rest + bytes, left - bytes, 0, 0, 1};
    return put_differences(p, p->rest, &e) && put_literals(p, p->rest, &e) && e.good && e.left == 0 && e.bits == 0 &&
           e.n < 8 && recount(p);
}

int pici_small_apply(struct small_reader *r, const struct small_part *in, int parts)
{
    struct part *p[PARTS];
    int n = 0, all = 1;
    for (int i = 0; i < parts; i++)
        if ((r->part[i].good = begin(&r->part[i], &in[i])))
            p[n++] = &r->part[i];
    if (n)
        decode_changed(r, p, n);
    for (int left = n; left;) {
        struct part *on[PARTS];
        left = 0;
        for (int i = 0; i < n; i++) {
            if (!p[i]->good || !next_list(p[i]))
                continue;
            p[i]->listed += p[i]->n;
            if (!p[i]->shape.tree && p[i]->listed > (uint64_t)SMALL_LISTED * p[i]->in->n)
                p[i]->good = 0;
            else
                on[left++] = p[i];
        }
        if (left)
            decode_lists(on, left);
    }
    for (int i = 0; i < parts; i++) {
        struct part *const one = &r->part[i];
        one->good = one->good && finish(one);
        if (one->good)
            pici_isa()->small[one->shape.width_log2]->place(one->in->dst, one->changed, one->now, one->in->n);
        all &= one->good;
    }
    return all;
}
