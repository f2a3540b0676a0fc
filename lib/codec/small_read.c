/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Decoding context chunks (formats/small-delta.md), one or two at a time. Decoding the lists of two chunks together is
 * faster, because one alone waits for its own states. Chunks are untrusted: before changing any element, the decoder
 * counts everything again and compares the tables. */
#include <stdlib.h>

#include "bytes.h"
#include "codec/small.h"
#include "codec/small_model.h"
#include "cpu/kernels.h"

enum { SEGMENT = 128 /* steps decoded at once */, SEGMENT_BITS = SEGMENT * SMALL_LANES, PARTS = 2 };

/* Which list comes next. */
enum stage { CHANGED, DIFFERENCES, LITERALS, FREQUENT, DONE };

struct part {
    const struct small_part *input;
    const uint8_t *base; /* the elements of input; pairs of e2m1 widened */
    size_t count;
    struct small_shape shape;
    struct small_tables tables;
    int good;
    struct pici_lanes lanes;
    uint16_t *words; /* a copy in host order, followed by zeros that a segment may read */
    const uint16_t *words_end;
    const uint8_t *after_words; /* signs and extra bits of the chunk */
    uint32_t *changed;
    size_t changed_count; /* changed elements */
    uint8_t *old_values, *new_values, *class, *token;
    uint8_t *wide;     /* pairs of e2m1: the base, widened; else null */
    uint32_t *literal; /* their numbers */
    size_t literals;
    uint32_t *distant;    /* without a tree: numbers of the differences with a nonzero token */
    size_t distant_count; /* how many */
    enum stage stage;
    unsigned level;
    uint32_t *element; /* numbers of the elements in the list at hand */
    uint16_t *zero_shares;
    uint32_t *list_bits;
    size_t list_count; /* bits of that list */
    uint64_t listed;   /* of all lists */
    struct pici_classes classes;
    uint16_t level_shares[SMALL_TOKENS][SMALL_CLASSES]; /* shares of a 0 by level, or node, and class */
    uint32_t tokens[SMALL_CLASSES][SMALL_TOKENS], sampled[SMALL_CLASSES];
};

struct small_reader {
    struct part parts[PARTS];
    uint16_t zero_shares[PARTS][SEGMENT_BITS];
};

static void part_free(struct part *part)
{
    void *const all[] = {part->words,   part->changed,     part->old_values, part->new_values,
                         part->class,   part->token,       part->literal,    part->distant,
                         part->element, part->zero_shares, part->list_bits,  part->wide};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

void pici_small_reader_free(struct small_reader *reader)
{
    if (!reader)
        return;
    for (int i = 0; i < PARTS; i++)
        part_free(&reader->parts[i]);
    free(reader);
}

static int part_init(struct part *part, size_t count, const struct small_shape *shape)
{
    const size_t width_log2 = shape->width_log2, capacity = (count << shape->pairs) + SMALL_LANES;
    part->shape = *shape;
    part->words =
        malloc(((size_t)small_context_limit(count, shape) / 2 + SEGMENT_BITS) * sizeof *part->words + PICI_SLACK);
    part->wide = shape->pairs ? malloc(capacity) : NULL;
    part->changed = malloc(capacity / 8 + 8);
    part->old_values = malloc((capacity << width_log2) + PICI_SLACK);
    part->new_values = malloc((capacity << width_log2) + PICI_SLACK);
    part->class = malloc(capacity);
    part->token = malloc(capacity);
    part->literal = malloc(capacity * sizeof *part->literal);
    part->distant = malloc(capacity * sizeof *part->distant);
    part->element = malloc(capacity * sizeof *part->element);
    part->zero_shares = malloc(capacity * sizeof *part->zero_shares);
    part->list_bits = malloc(capacity / 8 + 8);
    return part->words && part->changed && part->old_values && part->new_values && part->class && part->token &&
           part->literal && part->distant && part->element && part->zero_shares && part->list_bits &&
           (part->wide || !shape->pairs);
}

struct small_reader *pici_small_reader(uint64_t count, const struct small_shape *shape)
{
    struct small_reader *reader = calloc(1, sizeof *reader);
    const size_t most = count < SMALL_CHUNK ? (size_t)count : SMALL_CHUNK;
    if (!reader)
        return NULL;
    for (int i = 0; i < PARTS; i++)
        if (!part_init(&reader->parts[i], most, shape)) {
            pici_small_reader_free(reader);
            return NULL;
        }
    return reader;
}

/* Everything before the first list. Returns 0 if the chunk breaks a rule. */
static int begin(struct part *part, const struct small_part *input)
{
    const uint8_t *const chunk = input->chunk;
    part->input = input;
    part->base = input->dst;
    part->count = input->count << part->shape.pairs;
    if (input->bytes >= small_context_limit(input->count, &part->shape))
        return 0;
    const size_t before = pici_small_get_tables(&part->tables, chunk, input->bytes, &part->shape);
    if (!before)
        return 0;
    const uint32_t words = load_le32(chunk + SMALL_CTX_WORDS);
    if (words > (input->bytes - before) / 2)
        return 0;
    for (int i = 0; i < SMALL_LANES; i++)
        if ((part->lanes.states[i] = load_le32(chunk + SMALL_CTX_STATES + 4 * i)) < SMALL_STATE)
            return 0;
    memcpy(part->words, chunk + before, 2 * (size_t)words);
    for (size_t i = 0; PICI_BIG_ENDIAN && i < words; i++)
        part->words[i] = le16(part->words[i]);
    memset(part->words + words, 0, SEGMENT_BITS * sizeof *part->words + PICI_SLACK);
    part->lanes.next_word = part->words;
    part->words_end = part->words + words;
    part->after_words = chunk + before + 2 * (size_t)words;

    part->classes.shift = part->shape.mantissa;
    part->classes.exponents = part->shape.exponents;
    part->classes.low_exponent = part->tables.low_exponent;
    for (unsigned class = 0; class < SMALL_CLASSES; class ++) {
        part->classes.zero_share[class] = pici_small_zero[part->tables.changed[class]];
        for (unsigned token = 0; token < SMALL_TOKENS; token++)
            part->level_shares[token][class] = pici_small_zero[part->tables.token[class][token]];
    }
    for (unsigned exponent = 0; exponent <= part->shape.exponents; exponent++)
        part->classes.exponent_share[exponent] =
            part->classes.zero_share[small_class(exponent, part->tables.low_exponent)];
    if (part->shape.pairs) {
        pici_isa()->small[0]->widen(part->wide, input->dst, input->count);
        part->base = part->wide;
    }
    part->stage = CHANGED;
    part->listed = 0;
    return 1;
}

/* ---- lists ---- */

/* Check that the steps so far have used no more words than there are. */
static void check_words(struct part *part)
{
    if (part->lanes.next_word <= part->words_end)
        return;
    part->lanes.next_word = part->words_end;
    part->good = 0;
}

static void decode_changed(struct small_reader *reader, struct part *part[], int parts)
{
    const unsigned width_log2 = reader->parts[0].shape.width_log2;
    const struct pici_small *const kernel = pici_isa()->small[width_log2];
    const struct pici_coder *const coder = pici_isa()->coder;
    for (size_t offset = 0;; offset += SEGMENT_BITS) {
        size_t steps[PARTS] = {0};
        for (int i = 0; i < parts; i++) {
            const size_t elements = part[i]->count, remaining = offset < elements ? elements - offset : 0;
            const size_t some = remaining < SEGMENT_BITS ? remaining : SEGMENT_BITS;
            if (some)
                kernel->shares(reader->zero_shares[i], part[i]->base + (offset << width_log2), some, &part[i]->classes);
            steps[i] = (some + SMALL_LANES - 1) / SMALL_LANES;
            for (size_t k = some; k < steps[i] * SMALL_LANES; k++)
                reader->zero_shares[i][k] = SMALL_SHARES;
        }
        if (!steps[0] && !steps[1])
            return;
        uint32_t *const bit[PARTS] = {part[0]->changed + offset / 32,
                                      parts > 1 ? part[1]->changed + offset / 32 : NULL};
        const size_t both = steps[0] < steps[1] ? steps[0] : steps[1];
        if (both)
            coder->decode_two(&part[0]->lanes, bit[0], reader->zero_shares[0], &part[1]->lanes, bit[1],
                              reader->zero_shares[1], both);
        for (int i = 0; i < parts; i++) {
            if (steps[i] > both)
                coder->decode(&part[i]->lanes, bit[i] + both, reader->zero_shares[i] + both * SMALL_LANES,
                              steps[i] - both);
            check_words(part[i]);
        }
    }
}

static void decode_lists(struct part *part[], int parts)
{
    const struct pici_coder *const coder = pici_isa()->coder;
    size_t remaining[PARTS] = {0}, offset[PARTS] = {0};
    for (int i = 0; i < parts; i++) {
        remaining[i] = (part[i]->list_count + SMALL_LANES - 1) / SMALL_LANES;
        for (size_t k = part[i]->list_count; k < remaining[i] * SMALL_LANES; k++)
            part[i]->zero_shares[k] = SMALL_SHARES;
    }
    while (remaining[0] || remaining[1]) {
        size_t both = remaining[0] < remaining[1] ? remaining[0] : remaining[1];
        both = both < SEGMENT ? both : SEGMENT;
        if (both)
            coder->decode_two(&part[0]->lanes, part[0]->list_bits + offset[0],
                              part[0]->zero_shares + offset[0] * SMALL_LANES, &part[1]->lanes,
                              part[1]->list_bits + offset[1], part[1]->zero_shares + offset[1] * SMALL_LANES, both);
        for (int i = 0; i < parts; i++) {
            size_t some = remaining[i] < SEGMENT ? remaining[i] : SEGMENT;
            if (both)
                some = both;
            if (!both && some)
                coder->decode(&part[i]->lanes, part[i]->list_bits + offset[i],
                              part[i]->zero_shares + offset[i] * SMALL_LANES, some);
            offset[i] += some;
            remaining[i] -= some;
            check_words(part[i]);
        }
    }
}

/* The first list of the literals. */
static void first_literals(struct part *part)
{
    const uint16_t share = part->level_shares[part->shape.tree][0]; /* they have class 0 */
    part->stage = LITERALS;
    part->level = 0;
    part->list_count = part->shape.tree || share != SMALL_SHARES ? part->literals : 0;
    for (size_t i = 0; i < part->list_count; i++) {
        part->element[i] = part->literal[i];
        part->zero_shares[i] = share;
    }
}

/* Process the current list and make the next one, of the same elements. */
static void next_level(struct part *part)
{
    size_t kept = 0;
    part->level++;
    if (part->shape.tree) {
        const int last = part->level == SMALL_TREE_LEVELS;
        for (size_t i = 0; i < part->list_count; i++) {
            const uint32_t element = part->element[i],
                           prefix = 2u * part->token[element] | (part->list_bits[i / 32] >> i % 32 & 1);
            part->token[element] = (uint8_t)prefix;
            if (!last)
                part->zero_shares[i] = part->level_shares[(1u << part->level) | prefix][part->class[element]];
        }
        part->list_count = last ? 0 : part->list_count;
        return;
    }
    const uint16_t *const zero = part->level_shares[part->level & (SMALL_TOKENS - 1)];
    const int first = part->level == 1 && part->stage == DIFFERENCES;
    /* local copies: the compiler would reload members of *part after each store to a token */
    const size_t count = part->list_count;
    const uint8_t level = (uint8_t)part->level, *const class = part->class;
    const uint32_t *const list_bits = part->list_bits;
    uint32_t *const numbers = part->element, *const distant = part->distant;
    uint16_t *const shares = part->zero_shares;
    uint8_t *const token = part->token;
    size_t distant_count = part->distant_count;
    for (size_t i = 0; i < count; i += 32)
        for (uint32_t ones = list_bits[i / 32]; ones; ones &= ones - 1) {
            const uint32_t element = numbers[i + (size_t)__builtin_ctz(ones)];
            const uint16_t share = zero[class[element]];
            token[element] = level;
            if (first)
                distant[distant_count++] = element;
            numbers[kept] = element;
            shares[kept] = share;
            kept += share != SMALL_SHARES;
        }
    part->distant_count = distant_count;
    part->list_count = part->level < SMALL_TOKENS - 1 ? kept : 0;
}

/* Find the changed elements, and make the list of the differences. */
static void list_changed(struct part *part)
{
    const struct pici_small *const kernel = pici_isa()->small[part->shape.width_log2];
    part->changed_count = kernel->pick(part->old_values, part->base, part->changed, part->count);
    memset(part->token, 0, part->changed_count);
    struct pici_first_list first_list = {.old_values = part->old_values,
                                         .elements = part->changed_count,
                                         .shift = part->shape.mantissa,
                                         .exponents = part->shape.exponents,
                                         .low_exponent = part->tables.low_exponent,
                                         .literals = part->shape.literals,
                                         .list_all = part->shape.tree,
                                         .zero_share = part->level_shares[part->shape.tree],
                                         .class = part->class,
                                         .element = part->element,
                                         .share = part->zero_shares,
                                         .literal = part->literal};
    kernel->first_list(&first_list);
    part->literals = first_list.literal_count;
    part->list_count = first_list.listed;
    part->distant_count = 0;
    part->stage = DIFFERENCES;
    part->level = 0;
}

/* Process the current list, and make the next one that is not empty. Returns 0 if there is none. */
static int next_list(struct part *part)
{
    if (part->stage == CHANGED)
        list_changed(part);
    else if (part->stage == FREQUENT)
        part->list_count = 0;
    else if (part->stage != DONE)
        next_level(part);
    if (part->stage == DIFFERENCES && !part->list_count)
        first_literals(part);
    if (part->stage == LITERALS && !part->list_count) {
        for (size_t i = 0; i < part->literals; i++)
            if (!part->token[part->literal[i]])
                part->zero_shares[part->list_count++] = pici_small_zero[part->tables.frequent_odds];
        part->stage = FREQUENT;
        return part->list_count != 0;
    }
    if (part->stage == FREQUENT)
        part->stage = DONE;
    return part->list_count != 0;
}

/* ---- values ---- */

/* A position for reading bits; bytes_left bytes may be read. */
struct extra {
    const uint8_t *position;
    size_t bytes_left;
    uint64_t bits;
    unsigned pending;
    int good;
};

/* Read the next bits, at most 32. */
static inline uint32_t take(struct extra *extra, unsigned bits)
{
    if (extra->pending < bits && extra->bytes_left >= 4) {
        extra->bits |= (uint64_t)load_le32(extra->position) << extra->pending;
        extra->position += 4;
        extra->bytes_left -= 4;
        extra->pending += 32;
    }
    while (extra->pending < bits) {
        if (extra->bytes_left == 0) {
            extra->good = 0;
            extra->pending += 32;
            break;
        }
        extra->bits |= (uint64_t)*extra->position++ << extra->pending;
        extra->bytes_left--;
        extra->pending += 8;
    }
    const uint32_t taken = (uint32_t)(extra->bits & ((UINT64_C(1) << bits) - 1));
    extra->bits >>= bits;
    extra->pending -= bits;
    return taken;
}

/* Compute the new value of difference i, which has a nonzero token or belongs to a tree. Returns 0 if it is
 * impossible. */
static inline int put_difference(struct part *part, size_t i, const uint8_t *signs, struct extra *extra,
                                 unsigned width_log2)
{
    const int tree = part->shape.tree;
    const unsigned token = part->token[i];
    const uint32_t old_value = small_load(part->old_values, i, width_log2), sign = signs[i / 8] >> i % 8 & 1;
    const uint32_t magnitude = small_least(token, tree) + take(extra, small_extra_bits(token, tree));
    small_store(
        part->new_values, i,
        small_ord((small_ord(old_value, width_log2) + (sign ? 0 - magnitude : magnitude)) & small_mask(width_log2),
                  width_log2),
        width_log2);
    return magnitude < small_sign(width_log2) + sign;
}

/* Compute the new values of the differences. Returns 0 if one is impossible. */
static int put_differences(struct part *part, const uint8_t *signs, struct extra *extra)
{
    int good = 1;
    if (part->shape.tree) {
        for (size_t i = 0, next = 0; i < part->changed_count; i++)
            if (next < part->literals && part->literal[next] == i)
                next++;
            else
                good &= put_difference(part, i, signs, extra, 2);
        return good;
    }
    const unsigned width_log2 = part->shape.width_log2;
    pici_isa()->small[width_log2]->neighbours(part->new_values, part->old_values, signs, part->changed_count);
    if (width_log2) {
        for (size_t i = 0; i < part->distant_count; i++)
            good &= put_difference(part, part->distant[i], signs, extra, 1);
        return good;
    }
    for (size_t i = 0; i < part->distant_count; i++)
        good &= put_difference(part, part->distant[i], signs, extra, 0);
    unsigned set = 0; /* bits that no e2m1 has */
    for (size_t i = 0; part->shape.pairs && i < part->changed_count; i++)
        set |= part->new_values[i] & SMALL_WIDE_ZERO;
    return good && !set;
}

/* Compute the new values of the literals, and find those with the frequent mantissa. */
static int put_literals(struct part *part, const uint8_t *signs, struct extra *extra)
{
    const struct small_shape *shape = &part->shape;
    const unsigned width_log2 = shape->width_log2;
    size_t zeros = 0;
    for (size_t k = 0; k < part->literals; k++) {
        const size_t i = part->literal[k];
        const uint32_t top_exponent = part->tables.top_exponent, token = part->token[i],
                       sign = signs[i / 8] >> i % 8 & 1;
        const int frequent = token == 0 && part->list_bits[zeros / 32] >> zeros % 32 & 1;
        zeros += token == 0;
        uint32_t value = part->tables.frequent;
        if (token == SMALL_ESCAPE)
            value = take(extra, (8u << width_log2) - 1);
        else if (!frequent)
            value = take(extra, shape->mantissa);
        if (token == SMALL_ESCAPE ? small_exponent(value, shape) + SMALL_ESCAPE > top_exponent : token > top_exponent)
            return 0;
        if (token != SMALL_ESCAPE)
            value |= (top_exponent - token) << shape->mantissa;
        value |= sign ? small_sign(width_log2) : 0;
        if (value == small_load(part->old_values, i, width_log2))
            return 0;
        small_store(part->new_values, i, value, width_log2);
    }
    return 1;
}

/* Do the tables match the elements? */
static int recount(struct part *part)
{
    const struct small_shape *shape = &part->shape;
    const unsigned width_log2 = shape->width_log2;
    struct small_tables recounted;
    unsigned largest = 0;
    size_t zeros = 0;
    memset(&recounted, 0, sizeof recounted);
    memset(part->tokens, 0, sizeof part->tokens);
    memset(part->sampled, 0, sizeof part->sampled);
    for (size_t i = 0; i < part->changed_count; i++)
        part->tokens[part->class[i]][part->token[i]]++;
    for (unsigned class = 0; class < SMALL_CLASSES; class ++)
        for (unsigned token = 0; token < SMALL_TOKENS; token++)
            largest = part->tokens[class][token] ? class : largest;
    /* the largest class tells the largest exponent unless that is below or in class 0, and then low must be 0 */
    recounted.low_exponent = largest + part->tables.low_exponent > SMALL_CLASSES - 2
                                 ? largest + part->tables.low_exponent - (SMALL_CLASSES - 2)
                                 : 0;
    if (!largest && part->tables.low_exponent)
        return 0;
    uint32_t *const mantissa = part->element; /* not used any more */
    for (size_t k = 0; k < part->literals; k++) {
        const uint32_t value = small_load(part->new_values, part->literal[k], width_log2);
        recounted.top_exponent = small_exponent(value, shape) > recounted.top_exponent ? small_exponent(value, shape)
                                                                                       : recounted.top_exponent;
        if (!part->token[part->literal[k]])
            mantissa[zeros++] = value & ((UINT32_C(1) << shape->mantissa) - 1);
    }
    pici_small_sample(part->sampled, part->base, part->count, shape, part->tables.low_exponent);
    pici_small_count(&recounted, shape->tree, part->tokens, part->sampled);
    pici_small_frequent(&recounted, shape, mantissa, zeros);
    return memcmp(&recounted, &part->tables, sizeof recounted) == 0;
}

/* Everything after the last list. */
static int finish(struct part *part)
{
    for (int i = 0; i < SMALL_LANES; i++)
        if (part->lanes.states[i] != SMALL_STATE)
            return 0;
    const size_t remaining = part->input->bytes - (size_t)(part->after_words - part->input->chunk),
                 bytes = (part->changed_count + 7) / 8;
    if (part->lanes.next_word != part->words_end || bytes > remaining ||
        (part->changed_count % 8 && part->after_words[bytes - 1] >> part->changed_count % 8))
        return 0;
    struct extra extra = {part->after_words + bytes, remaining - bytes, 0, 0, 1};
    return put_differences(part, part->after_words, &extra) && put_literals(part, part->after_words, &extra) &&
           extra.good && extra.bytes_left == 0 && extra.bits == 0 && extra.pending < 8 && recount(part);
}

/* Replace the changed pairs of e2m1, or report which change. */
static void place_pairs(struct part *part)
{
    const struct pici_small *const kernel = pici_isa()->small[0];
    const size_t pairs = part->input->count;
    kernel->place(part->wide, part->changed, part->new_values, part->count);
    if (!part->input->keep) {
        kernel->narrow(part->input->dst, part->wide, pairs);
        return;
    }
    kernel->narrow(part->wide, part->wide, pairs); /* in place: each byte lies at or before the two that form it */
    part->changed_count =
        kernel->changes(part->changed, part->old_values, part->new_values, part->input->dst, part->wide, pairs);
}

int pici_small_apply(struct small_reader *reader, struct small_part *input, int count)
{
    struct part *started[PARTS];
    int begun = 0, all_good = 1;
    for (int i = 0; i < count; i++)
        if ((reader->parts[i].good = begin(&reader->parts[i], &input[i])))
            started[begun++] = &reader->parts[i];
    if (begun)
        decode_changed(reader, started, begun);
    for (int remaining = begun; remaining;) {
        struct part *active[PARTS];
        remaining = 0;
        for (int i = 0; i < begun; i++) {
            if (!started[i]->good || !next_list(started[i]))
                continue;
            started[i]->listed += started[i]->list_count;
            if (!started[i]->shape.tree && started[i]->listed > (uint64_t)SMALL_LISTED * started[i]->count)
                started[i]->good = 0;
            else
                active[remaining++] = started[i];
        }
        if (remaining)
            decode_lists(active, remaining);
    }
    for (int i = 0; i < count; i++) {
        struct part *const part = &reader->parts[i];
        const struct pici_small *const kernel = pici_isa()->small[part->shape.width_log2];
        part->good = part->good && finish(part);
        if (part->good && part->shape.pairs)
            place_pairs(part);
        else if (part->good && !input[i].keep)
            kernel->place(part->input->dst, part->changed, part->new_values, part->count);
        input[i].changed = part->changed;
        input[i].new_values = part->new_values;
        input[i].changed_count = part->changed_count;
        all_good &= part->good;
    }
    return all_good;
}
