/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encoding a context chunk (formats/small-delta.md). Changed elements are few, so arrays keep the properties of each.
 * Then the encoder lists all bits, and codes them from the last to the first. */
#include <stdlib.h>

#include "bytes.h"
#include "codec/small.h"
#include "codec/small_model.h"
#include "cpu/kernels.h"

enum { SEGMENT = 128 /* steps coded at once */, SEGMENT_BITS = SEGMENT * SMALL_LANES };

struct small_maker {
    struct small_shape shape;
    struct small_tables tables;
    size_t capacity; /* room, in elements */
    uint32_t *changed;
    uint8_t *old_values, *new_values; /* changed elements */
    uint8_t *class, *token;           /* of each of these */
    uint32_t *magnitude;              /* magnitudes of differences */
    uint32_t *sign;                   /* bits */
    uint32_t *element;                /* numbers of those in the list at hand */
    uint32_t *distant;                /* without a tree: numbers of the differences with a nonzero token */
    size_t distant_count;             /* their number */
    uint32_t *literal;                /* numbers of the literals */
    size_t literals, zeros;           /* zeros: literals with token 0 */
    uint32_t *mantissa;               /* of these */
    uint16_t *zero_shares;            /* listed bits: shares of a 0 */
    uint32_t *list_bits;
    size_t listed, list_capacity;
    uint16_t *words; /* filled from its end */
    size_t words_capacity;
    uint8_t *chunk;
    uint8_t *wide[2]; /* pairs of e2m1: base and source, widened; else null */
    struct pici_classes classes;
    struct pici_differences differences;
    uint32_t tokens[SMALL_CLASSES][SMALL_TOKENS];
    uint32_t sampled[SMALL_CLASSES];
    uint32_t states[SMALL_LANES];
    uint16_t level[SMALL_TOKENS][SMALL_CLASSES]; /* shares of a 0 by level, or node, and class */
};

void pici_small_maker_free(struct small_maker *maker)
{
    if (!maker)
        return;
    void *const all[] = {maker->changed,   maker->old_values,  maker->new_values, maker->class,   maker->token,
                         maker->magnitude, maker->sign,        maker->element,    maker->distant, maker->literal,
                         maker->mantissa,  maker->zero_shares, maker->list_bits,  maker->words,   maker->chunk,
                         maker->wide[0],   maker->wide[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(maker);
}

struct small_maker *pici_small_maker(uint64_t count, const struct small_shape *shape)
{
    struct small_maker *maker = calloc(1, sizeof *maker);
    if (!maker)
        return NULL;
    const size_t most = (count < SMALL_CHUNK ? (size_t)count : SMALL_CHUNK) << shape->pairs, room = most + SMALL_LANES,
                 w = shape->width_log2;
    const size_t listed = shape->tree ? SMALL_TREE_LEVELS + 1 : SMALL_LISTED;
    maker->shape = *shape;
    maker->capacity = most;
    maker->list_capacity = listed * most + (SMALL_TOKENS + 2) * 2 * SMALL_LANES;
    maker->words_capacity = (most << w) / 2 + SEGMENT_BITS + 64 + PICI_SLACK;
    maker->changed = malloc(room / 8 + 8);
    maker->old_values = malloc((room << w) + PICI_SLACK);
    maker->new_values = malloc((room << w) + PICI_SLACK);
    maker->class = malloc(room);
    maker->token = malloc(room);
    maker->magnitude = malloc(room * sizeof *maker->magnitude);
    maker->sign = malloc(room / 8 + 8);
    maker->element = malloc(room * sizeof *maker->element);
    maker->distant = malloc(room * sizeof *maker->distant);
    maker->literal = malloc(room * sizeof *maker->literal);
    maker->mantissa = malloc(room * sizeof *maker->mantissa);
    maker->zero_shares = malloc(maker->list_capacity * sizeof *maker->zero_shares);
    maker->list_bits = malloc(maker->list_capacity / 8 + 8);
    maker->words = malloc(maker->words_capacity * sizeof *maker->words);
    maker->chunk = malloc((size_t)small_context_limit(most, shape) + 16);
    for (int i = 0; shape->pairs && i < 2; i++)
        maker->wide[i] = malloc(room);
    if (!maker->changed || !maker->old_values || !maker->new_values || !maker->class || !maker->token ||
        !maker->magnitude || !maker->sign || !maker->element || !maker->distant || !maker->literal ||
        !maker->mantissa || !maker->zero_shares || !maker->list_bits || !maker->words || !maker->chunk ||
        (shape->pairs && (!maker->wide[0] || !maker->wide[1]))) {
        pici_small_maker_free(maker);
        return NULL;
    }
    return maker;
}

/* ---- counting ---- */

/* Find class, magnitude, sign and token of each changed element, except the tokens of literals. Returns the number that
 * changed in more than the sign. */
static size_t differences(struct small_maker *maker, size_t changed)
{
    struct pici_differences *const found = &maker->differences;
    found->old_values = maker->old_values;
    found->new_values = maker->new_values;
    found->elements = changed;
    found->shift = maker->shape.mantissa;
    found->exponents = maker->shape.exponents;
    found->low_exponent = maker->tables.low_exponent;
    found->literals = maker->shape.literals;
    found->class = maker->class;
    found->token = maker->token;
    found->magnitude = maker->magnitude;
    found->sign = maker->sign;
    found->literal = maker->literal;
    memset(found->count, 0, sizeof found->count);
    pici_isa()->small[maker->shape.width_log2]->differences(found);
    maker->literals = found->literal_count;
    for (unsigned i = 0; i < SMALL_CLASSES * SMALL_TOKENS; i++)
        maker->tokens[i / SMALL_TOKENS][i % SMALL_TOKENS] = found->count[0][i] + found->count[1][i];
    return found->more;
}

static void literals(struct small_maker *maker)
{
    const struct small_shape *shape = &maker->shape;
    struct small_tables *const tables = &maker->tables;
    maker->zeros = 0;
    for (size_t i = 0; i < maker->literals; i++) {
        const unsigned exponent =
            small_exponent(small_load(maker->new_values, maker->literal[i], shape->width_log2), shape);
        tables->top_exponent = exponent > tables->top_exponent ? exponent : tables->top_exponent;
    }
    for (size_t i = 0; i < maker->literals; i++) {
        const uint32_t value = small_load(maker->new_values, maker->literal[i], shape->width_log2);
        const unsigned below = tables->top_exponent - small_exponent(value, shape),
                       token = below < SMALL_ESCAPE ? below : SMALL_ESCAPE;
        maker->token[maker->literal[i]] = (uint8_t)token;
        maker->tokens[0][token]++;
        if (token == 0)
            maker->mantissa[maker->zeros++] = value & ((UINT32_C(1) << shape->mantissa) - 1);
    }
}

/* ---- lists ---- */

/* The number of listed bits, without those beyond the end of a list. */
static uint64_t count_listed(const struct small_maker *maker)
{
    uint64_t total = maker->zeros;
    for (unsigned class = 0; class < SMALL_CLASSES; class ++)
        for (unsigned token = 0; token < SMALL_TOKENS; token++) {
            const unsigned most = maker->tables.most[class];
            unsigned levels = token < most ? token + 1 : most;
            if (maker->shape.tree)
                levels = SMALL_TREE_LEVELS;
            total += (uint64_t)maker->tokens[class][token] * levels;
        }
    return total;
}

struct list {
    uint16_t *zero_shares;
    uint32_t *bits, word;
    size_t count;
};

static inline void list_add(struct list *list, uint16_t zero, uint32_t bit, int kept)
{
    const unsigned position = list->count % 32;
    list->zero_shares[list->count] = zero;
    list->word = (position ? list->word : 0) | bit << position;
    list->bits[list->count / 32] = list->word;
    list->count += (size_t)kept;
}

static void list_end(struct list *list)
{
    while (list->count % 32)
        list_add(list, SMALL_SHARES, 0, 1);
}

/* f32: the lists of the first count elements of maker->element. */
static void list_tree(struct small_maker *maker, struct list *list, size_t count)
{
    for (unsigned level = 0; level < SMALL_TREE_LEVELS; level++) {
        for (size_t i = 0; i < count; i++) {
            const uint32_t token = maker->token[maker->element[i]];
            list_add(list, maker->level[(32 + token) >> (SMALL_TREE_LEVELS - level)][maker->class[maker->element[i]]],
                     token >> (SMALL_TREE_LEVELS - 1 - level) & 1, 1);
        }
        list_end(list);
    }
}

/* Make the lists from a level on, for the first count elements of maker->element, whose tokens are at least that level.
 * If a class lists nothing at a level, its bits are 0 and none of its elements continues. */
static void list_levels(struct small_maker *maker, struct list *list, size_t count, unsigned level)
{
    for (; count; level++) {
        const uint16_t *const zero = maker->level[level];
        size_t remaining = 0;
        for (size_t i = 0; i < count; i++) {
            const uint32_t element = maker->element[i];
            const uint16_t share = zero[maker->class[element]];
            const uint32_t more = maker->token[element] > level;
            list_add(list, share, more, share != SMALL_SHARES);
            maker->element[remaining] = element;
            remaining += more;
        }
        list_end(list);
        count = remaining;
    }
}

/* The first list of the changed elements, of differences only. Sets maker->distant. */
static void list_first(struct small_maker *maker, struct list *list, size_t changed)
{
    struct pici_first_list first_list = {.old_values = maker->old_values,
                                         .elements = changed,
                                         .shift = maker->shape.mantissa,
                                         .exponents = maker->shape.exponents,
                                         .low_exponent = maker->tables.low_exponent,
                                         .literals = maker->shape.literals,
                                         .list_all = maker->shape.tree,
                                         .zero_share = maker->level[0],
                                         .class = maker->class,
                                         .element = maker->element,
                                         .share = maker->zero_shares,
                                         .literal = maker->literal};
    pici_isa()->small[maker->shape.width_log2]->first_list(&first_list);
    maker->distant_count = 0;
    if (maker->shape.tree) {
        list_tree(maker, list, first_list.listed);
        return;
    }
    for (size_t i = 0; i < first_list.listed; i += 32) {
        const size_t end = first_list.listed - i < 32 ? first_list.listed : i + 32;
        uint32_t word = 0;
        for (size_t j = i; j < end; j++) {
            const uint32_t element = maker->element[j], more = maker->token[element] > 0;
            word |= more << (j - i);
            maker->distant[maker->distant_count] = element;
            maker->distant_count += more;
        }
        maker->list_bits[i / 32] = word;
    }
    list->count = first_list.listed;
    list->word = list->count % 32 ? maker->list_bits[list->count / 32] : 0;
    list_end(list);
}

static void make_lists(struct small_maker *maker, size_t changed)
{
    struct list list = {maker->zero_shares, maker->list_bits, 0, 0};
    for (unsigned class = 0; class < SMALL_CLASSES; class ++)
        for (unsigned token = 0; token < SMALL_TOKENS; token++)
            maker->level[token][class] = pici_small_zero[maker->tables.token[class][token]];
    list_first(maker, &list, changed);
    memcpy(maker->element, maker->distant, maker->distant_count * sizeof *maker->element);
    list_levels(maker, &list, maker->distant_count, 1);
    memcpy(maker->element, maker->literal, maker->literals * sizeof *maker->element);
    if (maker->shape.tree)
        list_tree(maker, &list, maker->literals);
    else
        list_levels(maker, &list, maker->literals, 0);
    for (size_t i = 0; i < maker->zeros; i++)
        list_add(&list, pici_small_zero[maker->tables.frequent_odds], maker->mantissa[i] == maker->tables.frequent, 1);
    list_end(&list);
    maker->listed = list.count;
}

/* ---- the chunk ---- */

/* Code all bits. Returns the first word; null if they need more than `most` words. */
static const uint16_t *code(struct small_maker *maker, size_t most, const uint8_t *base, size_t count)
{
    const unsigned width_log2 = maker->shape.width_log2;
    const struct pici_coder *const coder = pici_isa()->coder;
    const struct pici_small *const kernel = pici_isa()->small[width_log2];
    uint16_t *const end = maker->words + maker->words_capacity, *word = end;
    uint16_t zero[SEGMENT_BITS];
    for (int i = 0; i < SMALL_LANES; i++)
        maker->states[i] = SMALL_STATE;
    for (size_t remaining = maker->listed / SMALL_LANES; remaining;) {
        const size_t steps = remaining % SEGMENT ? remaining % SEGMENT : SEGMENT;
        remaining -= steps;
        coder->encode(maker->states, &word, maker->zero_shares + remaining * SMALL_LANES, maker->list_bits + remaining,
                      steps);
        if ((size_t)(end - word) > most)
            return NULL;
    }
    for (size_t remaining = count; remaining;) {
        const size_t some = remaining % SEGMENT_BITS ? remaining % SEGMENT_BITS : SEGMENT_BITS;
        size_t padded = some;
        remaining -= some;
        kernel->shares(zero, base + (remaining << width_log2), some, &maker->classes);
        for (; padded % SMALL_LANES; padded++)
            zero[padded] = SMALL_SHARES;
        coder->encode(maker->states, &word, zero, maker->changed + remaining / 32, padded / SMALL_LANES);
        if ((size_t)(end - word) > most)
            return NULL;
    }
    return word;
}

static void set_classes(struct small_maker *maker)
{
    struct pici_classes *const classes = &maker->classes;
    classes->shift = maker->shape.mantissa;
    classes->exponents = maker->shape.exponents;
    classes->low_exponent = maker->tables.low_exponent;
    for (unsigned i = 0; i < SMALL_CLASSES; i++)
        classes->zero_share[i] = pici_small_zero[maker->tables.changed[i]];
    for (unsigned exponent = 0; exponent <= maker->shape.exponents; exponent++)
        classes->exponent_share[exponent] = classes->zero_share[small_class(exponent, maker->tables.low_exponent)];
}

/* A position for appending bits to bytes. */
struct appended {
    uint8_t *position;
    uint64_t bits;
    unsigned pending;
};

static inline void append(struct appended *extra, uint32_t value, unsigned bits)
{
    extra->bits |= (uint64_t)value << extra->pending;
    for (extra->pending += bits; extra->pending >= 8; extra->pending -= 8, extra->bits >>= 8)
        *extra->position++ = (uint8_t)extra->bits;
}

static inline uint32_t low_bits(uint32_t value, unsigned bits)
{
    return value & (uint32_t)((UINT64_C(1) << bits) - 1);
}

/* The number of all extra bits. */
static uint64_t count_extra(const struct small_maker *maker)
{
    const struct small_shape *shape = &maker->shape;
    uint64_t total = 0;
    for (unsigned class = shape->literals != 0; class < SMALL_CLASSES; class ++)
        for (unsigned token = 0; token < SMALL_TOKENS; token++)
            total += (uint64_t)maker->tokens[class][token] * small_extra_bits(token, shape->tree);
    for (unsigned token = 0; shape->literals && token < SMALL_TOKENS; token++)
        total += (uint64_t)maker->tokens[0][token] *
                 (token == SMALL_ESCAPE ? (8u << shape->width_log2) - 1 : shape->mantissa);
    for (size_t i = 0; i < maker->zeros; i++)
        total -= maker->mantissa[i] == maker->tables.frequent ? shape->mantissa : 0;
    return total;
}

static inline void append_extra(struct appended *extra, const struct small_maker *maker, size_t i)
{
    const unsigned token = maker->token[i], bits = small_extra_bits(token, maker->shape.tree);
    if (bits)
        append(extra, low_bits(maker->magnitude[i] - small_least(token, maker->shape.tree), bits), bits);
}

static uint8_t *put_extra(const struct small_maker *maker, uint8_t *output, size_t changed)
{
    const struct small_shape *shape = &maker->shape;
    const unsigned width_log2 = shape->width_log2;
    struct appended extra = {output, 0, 0};
    for (size_t i = 0; i < maker->distant_count; i++)
        append_extra(&extra, maker, maker->distant[i]);
    for (size_t i = 0, next = 0; shape->tree && i < changed; i++) {
        if (next < maker->literals && maker->literal[next] == i)
            next++;
        else
            append_extra(&extra, maker, i);
    }
    for (size_t i = 0; i < maker->literals; i++) {
        const uint32_t value = small_load(maker->new_values, maker->literal[i], width_log2),
                       mantissa = low_bits(value, shape->mantissa);
        const unsigned token = maker->token[maker->literal[i]];
        if (token == SMALL_ESCAPE)
            append(&extra, low_bits(value, (8u << width_log2) - 1), (8u << width_log2) - 1);
        else if (token || mantissa != maker->tables.frequent)
            append(&extra, mantissa, shape->mantissa);
    }
    if (extra.pending)
        *extra.position++ = (uint8_t)extra.bits;
    return extra.position;
}

size_t pici_small_make(struct small_maker *maker, const uint8_t **chunk, uint64_t *least, const uint8_t *base,
                       const uint8_t *src, size_t count)
{
    const struct small_shape *shape = &maker->shape;
    const unsigned width_log2 = shape->width_log2;
    const struct pici_small *const kernel = pici_isa()->small[width_log2];
    const uint64_t limit = small_context_limit(count, shape);
    if (shape->pairs) {
        kernel->widen(maker->wide[0], base, count);
        kernel->widen(maker->wide[1], src, count);
        base = maker->wide[0];
        src = maker->wide[1];
        count *= 2;
    }
    const size_t changed = kernel->changes(maker->changed, maker->old_values, maker->new_values, base, src, count);
    *least = 0;
    *chunk = maker->chunk;
    if (!changed)
        return 0;
    memset(&maker->tables, 0, sizeof maker->tables);
    memset(maker->sampled, 0, sizeof maker->sampled);
    const unsigned largest =
        kernel->largest(maker->old_values, changed, shape->exponents << shape->mantissa) >> shape->mantissa;
    maker->tables.low_exponent = largest > SMALL_CLASSES - 2 ? largest - (SMALL_CLASSES - 2) : 0;
    *least = 48 + ((uint64_t)differences(maker, changed) << width_log2 >> shape->pairs);
    literals(maker);
    pici_small_sample(maker->sampled, base, count, shape, maker->tables.low_exponent);
    pici_small_count(&maker->tables, shape->tree, maker->tokens, maker->sampled);
    pici_small_frequent(&maker->tables, shape, maker->mantissa, maker->zeros);
    if (!shape->tree && count_listed(maker) > (uint64_t)SMALL_LISTED * count)
        return 0;

    /* everything except the words */
    uint8_t tables[SMALL_CTX_TABLES + SMALL_TABLES_MOST];
    const size_t before = pici_small_put_tables(tables, &maker->tables, shape->tree), signs = (changed + 7) / 8;
    const uint64_t fixed = before + signs + (count_extra(maker) + 7) / 8;
    if (fixed >= limit)
        return 0;
    make_lists(maker, changed);
    set_classes(maker);
    const size_t most = (size_t)(limit - 1 - fixed) / 2;
    const uint16_t *const word = code(maker, most, base, count);
    if (!word)
        return 0;
    const size_t words = (size_t)(maker->words + maker->words_capacity - word);
    uint8_t *output = maker->chunk;
    memcpy(output, tables, before);
    store_le32(output + SMALL_CTX_WORDS, (uint32_t)words);
    for (int i = 0; i < SMALL_LANES; i++)
        store_le32(output + SMALL_CTX_STATES + 4 * i, maker->states[i]);
    output += before;
    for (size_t i = 0; i < words; i++, output += 2) {
        const uint16_t stored = le16(word[i]);
        memcpy(output, &stored, 2);
    }
    for (size_t i = 0; i < signs; i++)
        *output++ = (uint8_t)(maker->sign[i / 4] >> i % 4 * 8);
    return (size_t)(put_extra(maker, output, changed) - maker->chunk);
}
