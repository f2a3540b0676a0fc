/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The context chunks of the reference codec of small deltas. */
#include "ref_small.h"
#include "ref.h"
#include "ref_small_model.h"

#include <stdlib.h>
#include <string.h>

enum { FIXED = 144, LANES = 32 };

/* ---- lists of bits ---- */

/* The bits of all lists in the order of decoding, with their odds; the ends of lists are padded. */
struct bits {
    uint8_t *q, *bit;
    size_t n, cap;
    uint64_t listed;
    int failed;
};

static void add_bit(struct bits *b, unsigned q, unsigned bit)
{
    if (b->n == b->cap) {
        const size_t cap = b->cap ? 2 * b->cap : 4096;
        uint8_t *x = realloc(b->q, cap), *y = x ? realloc(b->bit, cap) : NULL;
        b->q = x ? x : b->q;
        b->bit = y ? y : b->bit;
        if (!x || !y) {
            b->failed = 1;
            b->n = 0;
            return;
        }
        b->cap = cap;
    }
    b->q[b->n] = (uint8_t)q;
    b->bit[b->n++] = (uint8_t)bit;
}

static void end_list(struct bits *b)
{
    while (b->n % LANES)
        add_bit(b, 0, 0);
}

/* Add one list of tokens. Returns whether a later level may have one. */
static int add_level(struct bits *b, const struct ref_model *m, const void *base, const void *src, uint64_t n,
                     int literals, unsigned level)
{
    const unsigned width = m->s.w / 8;
    int more = 0;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t old = ref_load(base, i, width), new = ref_load(src, i, width);
        if (old == new || ref_is_literal(m, old) != literals)
            continue;
        const unsigned c = ref_class_of(&m->s, m->low, old), t = ref_token_of(m, old, new);
        if (m->s.tree) {
            add_bit(b, m->token[c][(32 + t) >> (5 - level)], t >> (4 - level) & 1);
            more |= level < 4;
        } else if (t >= level && m->most[c] > level) {
            add_bit(b, m->token[c][level], t > level);
            more = 1;
        } else {
            continue;
        }
        b->listed++;
    }
    end_list(b);
    return more;
}

static void make_bits(struct bits *b, const struct ref_model *m, const void *base, const void *src, uint64_t n)
{
    const unsigned width = m->s.w / 8;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t old = ref_load(base, i, width);
        add_bit(b, m->changed[ref_class_of(&m->s, m->low, old)], old != ref_load(src, i, width));
    }
    end_list(b);
    for (int literals = 0; literals < 2; literals++)
        for (unsigned level = 0; add_level(b, m, base, src, n, literals, level); level++)
            ;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t old = ref_load(base, i, width), new = ref_load(src, i, width);
        if (old != new &&ref_is_literal(m, old) && ref_token_of(m, old, new) == 0) {
            add_bit(b, m->frequent_odds, (new &ref_mask(m->s.mantissa)) == m->frequent);
            b->listed++;
        }
    }
    end_list(b);
}

/* Encode all bits, from the last to the first. Writes *words; the first word in decoding is the last. */
static size_t code(uint32_t state[LANES], uint16_t *words, const struct bits *b)
{
    size_t n = 0;
    for (unsigned i = 0; i < LANES; i++)
        state[i] = 65536;
    for (size_t i = b->n; i-- > 0;) {
        const uint32_t zero = ref_share_of_0(b->q[i]), f = b->bit[i] ? 32768 - zero : zero;
        uint64_t x = state[i % LANES];
        if (x >= (uint64_t)f * 131072) {
            words[n++] = (uint16_t)x;
            x /= 65536;
        }
        state[i % LANES] = (uint32_t)(x / f * 32768 + x % f + (b->bit[i] ? zero : 0));
    }
    return n;
}

/* ---- writing a context chunk ---- */

struct out {
    uint8_t *p;
    size_t n; /* bits */
};

static void put_bits(struct out *o, uint64_t v, unsigned bits)
{
    for (unsigned i = 0; i < bits; i++, o->n++)
        o->p[o->n / 8] |= (uint8_t)((v >> i & 1) << o->n % 8);
}

static void put_extra(struct out *o, const struct ref_model *m, uint64_t old, uint64_t new)
{
    const int literal = ref_is_literal(m, old);
    const unsigned t = ref_token_of(m, old, new), bits = ref_extra_bits(m, literal, t);
    const int64_t d = ref_difference(&m->s, old, new);
    const uint64_t v = (uint64_t)(d < 0 ? -d : d);
    if (!literal)
        put_bits(o, m->s.tree ? v : v - 1, bits);
    else if (t || (new &ref_mask(m->s.mantissa)) != m->frequent)
        put_bits(o, new, bits);
}

static uint8_t *make_context(size_t *len, const void *base, const void *src, uint64_t n, unsigned dtype,
                             enum ref_small_twist twist)
{
    struct ref_model *m = malloc(sizeof *m);
    struct bits b = {0};
    uint32_t state[LANES];
    *len = 0;
    if (!m || !ref_shape_of(dtype).w || !ref_model(m, base, src, n, dtype, twist)) {
        free(m);
        return NULL;
    }
    const unsigned width = m->s.w / 8;
    make_bits(&b, m, base, src, n);
    uint16_t *words = b.failed ? NULL : malloc(b.n * sizeof *words);
    uint8_t *chunk = words ? calloc(1, FIXED + 34 * 32 + 2 * b.n + (size_t)n * (width + 1) + 8) : NULL;
    if (chunk && (m->s.tree || b.listed <= 4 * n || twist == REF_TWIST_LIST)) {
        const size_t count = code(state, words, &b);
        uint8_t *p = chunk + FIXED;
        chunk[0] = (uint8_t)m->low;
        chunk[1] = (uint8_t)m->top;
        chunk[2] = (uint8_t)m->frequent_odds;
        ref_put(chunk + 4, 4, m->frequent);
        ref_put(chunk + 8, 4, m->classes);
        ref_put(chunk + 12, 4, count);
        for (unsigned i = 0; i < LANES; i++)
            ref_put(chunk + 16 + 4 * i, 4, state[i]);
        for (unsigned c = 0; c < 32; c++) {
            if (!(m->classes >> c & 1))
                continue;
            *p++ = (uint8_t)m->changed[c];
            if (!m->s.tree)
                *p++ = (uint8_t)m->most[c];
            for (unsigned x = 0; x < NODES; x++)
                if (m->token[c][x] != NO_ODDS)
                    *p++ = (uint8_t)m->token[c][x];
        }
        for (size_t i = count; i-- > 0; p += 2)
            ref_put(p, 2, words[i]);
        struct out o = {p, 0};
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t old = ref_load(base, i, width), new = ref_load(src, i, width);
            if (old != new)
                put_bits(&o, ref_is_literal(m, old) ? new >> (m->s.w - 1) : ref_difference(&m->s, old, new) < 0, 1);
        }
        o.n = (o.n + 7) / 8 * 8;
        for (int literals = 0; literals < 2; literals++)
            for (uint64_t i = 0; i < n; i++) {
                const uint64_t old = ref_load(base, i, width), new = ref_load(src, i, width);
                if (old != new &&ref_is_literal(m, old) == literals)
                    put_extra(&o, m, old, new);
            }
        *len = (size_t)(p - chunk) + (o.n + 7) / 8;
        if (*len >= 48 + n * width / m->s.pairs)
            *len = 0;
    }
    free(b.q);
    free(b.bit);
    free(words);
    free(m);
    if (!*len) {
        free(chunk);
        return NULL;
    }
    return chunk;
}

/* Split n elements into their 2 * n e2m1, each as a byte with the sign in its highest bit. The caller frees it. */
static uint8_t *widen(const uint8_t *elements, uint64_t n)
{
    uint8_t *wide = malloc(2 * (size_t)n + 1);
    for (uint64_t i = 0; wide && i < 2 * n; i++) {
        const unsigned u = elements[i / 2] >> (i % 2 ? 4 : 0) & 15;
        wide[i] = (uint8_t)(u < 8 ? u : 128 + u - 8);
    }
    return wide;
}

uint8_t *ref_small_context(size_t *len, const void *base, const void *src, uint64_t n, unsigned dtype, int pairs,
                           enum ref_small_twist twist)
{
    if (!pairs)
        return make_context(len, base, src, n, dtype, twist);
    uint8_t *old = widen(base, n), *new = widen(src, n);
    if (new &&n && twist == REF_TWIST_WIDE)
        new[0] ^= 8;
    uint8_t *chunk = old && new ? make_context(len, old, new, 2 * n, REF_E2M1, twist) : NULL;
    free(old);
    free(new);
    *len = chunk ? *len : 0;
    return chunk;
}

/* ---- reading a context chunk ---- */

struct in {
    const uint8_t *p;
    size_t n;  /* bytes */
    size_t at; /* bytes; of extra bits: bits */
};

/* The next `bytes` bytes; null if there are fewer. */
static const uint8_t *take(struct in *in, size_t bytes)
{
    if (bytes > in->n - in->at)
        return NULL;
    in->at += bytes;
    return in->p + in->at - bytes;
}

/* The next `bits` bits; UINT64_MAX if there are fewer. */
static uint64_t take_bits(struct in *in, unsigned bits)
{
    uint64_t v = 0;
    if (bits > 8 * in->n - in->at)
        return UINT64_MAX;
    for (unsigned i = 0; i < bits; i++, in->at++)
        v |= (uint64_t)(in->p[in->at / 8] >> in->at % 8 & 1) << i;
    return v;
}

struct decoder {
    struct ref_model m;
    uint64_t n, listed;
    unsigned width, lane;
    uint32_t state[LANES];
    struct in words;
    uint8_t *changed, *token, *frequent; /* of each element */
};

/* The next bit of a list; 2 if no word is left. */
static unsigned next_bit(struct decoder *d, unsigned q)
{
    uint32_t *x = &d->state[d->lane++ % LANES];
    const uint32_t p = ref_share_of_0(q), s = *x % 32768;
    const unsigned bit = s >= p;
    *x = bit ? (32768 - p) * (*x / 32768) + s - p : p * (*x / 32768) + s;
    if (*x < 65536) {
        const uint8_t *w = take(&d->words, 2);
        if (!w)
            return 2;
        *x = *x * 65536 + (uint32_t)ref_get(w, 2);
    }
    return bit;
}

static int read_tables(struct decoder *d, struct in *in)
{
    struct ref_model *m = &d->m;
    for (unsigned c = 0; c < 32; c++) {
        const uint8_t *p;
        for (unsigned x = 0; x < NODES; x++)
            m->token[c][x] = NO_ODDS;
        if (!(m->classes >> c & 1))
            continue;
        if (!(p = take(in, m->s.tree ? 1 : 2)))
            return 0;
        m->changed[c] = p[0];
        if (!m->s.tree && (m->most[c] = p[1]) > (m->s.literals && c == 0 ? 31 : 29))
            return 0;
        for (unsigned x = 0; x < NODES; x++) {
            const unsigned above = m->token[c][x / 2];
            const int there =
                !m->s.tree ? x < m->most[c] : x == 1 || (x > 1 && above != NO_ODDS && above != (x % 2 ? 0 : 255));
            if (there && !(p = take(in, 1)))
                return 0;
            if (there)
                m->token[c][x] = *p;
        }
    }
    return 1;
}

/* Read list 2 or list 3. */
static int read_tokens(struct decoder *d, const void *base, int literals)
{
    const struct ref_model *m = &d->m;
    int more = 1;
    for (unsigned level = 0; more; level++) {
        more = 0;
        d->lane = 0;
        for (uint64_t i = 0; i < d->n; i++) {
            const uint64_t old = ref_load(base, i, d->width);
            const unsigned c = ref_class_of(&m->s, m->low, old);
            if (!d->changed[i] || ref_is_literal(m, old) != literals)
                continue;
            if (!m->s.tree && (d->token[i] < level || m->most[c] <= level))
                continue;
            const unsigned q = m->token[c][m->s.tree ? (1u << level | d->token[i]) : level];
            if (q == NO_ODDS || (++d->listed > 4 * d->n && !m->s.tree))
                return 0;
            const unsigned bit = next_bit(d, q);
            if (bit > 1)
                return 0;
            d->token[i] = (uint8_t)(m->s.tree ? 2u * d->token[i] + bit : d->token[i] + bit);
            more = !m->s.tree || level < 4;
        }
    }
    return 1;
}

static int read_lists(struct decoder *d, const void *base)
{
    d->lane = 0;
    for (uint64_t i = 0; i < d->n; i++) {
        const unsigned c = ref_class_of(&d->m.s, d->m.low, ref_load(base, i, d->width));
        const unsigned bit = next_bit(d, d->m.changed[c]);
        /* a changed element of a class that has no tables */
        if (bit > 1 || (bit && !(d->m.classes >> c & 1)))
            return 0;
        d->changed[i] = (uint8_t)bit;
    }
    if (!read_tokens(d, base, 0) || !read_tokens(d, base, 1))
        return 0;
    d->lane = 0;
    for (uint64_t i = 0; i < d->n; i++)
        if (d->changed[i] && ref_is_literal(&d->m, ref_load(base, i, d->width)) && !d->token[i]) {
            const unsigned bit = next_bit(d, d->m.frequent_odds);
            if (bit > 1 || (++d->listed > 4 * d->n && !d->m.s.tree))
                return 0;
            d->frequent[i] = (uint8_t)bit;
        }
    for (unsigned i = 0; i < LANES; i++)
        if (d->state[i] != 65536)
            return 0;
    return d->words.at == d->words.n;
}

/* The new value of an element, or UINT64_MAX if there is none. */
static uint64_t read_value(struct decoder *d, uint64_t i, uint64_t old, struct in *extra, unsigned sign)
{
    const struct ref_shape *s = &d->m.s;
    const unsigned t = d->token[i];
    const int literal = ref_is_literal(&d->m, old);
    const uint64_t high = sign ? ref_mask(s->w - 1) + 1 : 0;
    if (literal && d->frequent[i])
        return high | (uint64_t)d->m.top << s->mantissa | d->m.frequent;
    const unsigned bits = ref_extra_bits(&d->m, literal, t);
    const uint64_t x = take_bits(extra, bits);
    if (x == UINT64_MAX || (literal && t < 31 && t > d->m.top))
        return UINT64_MAX;
    if (literal)
        return high | (t == 31 ? x : (uint64_t)(d->m.top - t) << s->mantissa | x);
    const uint64_t v = s->tree ? (UINT64_C(1) << t) + x
                       : t < 4 ? t + 1
                               : ((UINT64_C(2) + t % 2) << (t / 2 - 1)) + x + 1;
    if (v > ref_mask(s->w - 1) + 1)
        return UINT64_MAX;
    uint64_t o = (uint64_t)(ref_ord(s, old) + (sign ? -(int64_t)v : (int64_t)v)) & ref_mask(s->w);
    return ref_from_ord(s, o >> (s->w - 1) ? (int64_t)o - (int64_t)(ref_mask(s->w) + 1) : (int64_t)o);
}

static int read_values(struct decoder *d, void *dst, const void *base, struct in *in)
{
    uint64_t k = 0;
    for (uint64_t i = 0; i < d->n; i++)
        k += d->changed[i];
    const uint8_t *signs = take(in, (size_t)(k + 7) / 8);
    if (!signs)
        return 0;
    struct in extra = {in->p + in->at, in->n - in->at, 0};
    for (int literals = 0; literals < 2; literals++) {
        k = 0;
        for (uint64_t i = 0; i < d->n; i++) {
            const uint64_t old = ref_load(base, i, d->width);
            if (!d->changed[i])
                continue;
            const unsigned sign = signs[k / 8] >> k % 8 & 1;
            k++;
            if (ref_is_literal(&d->m, old) != literals)
                continue;
            const uint64_t new = read_value(d, i, old, &extra, sign);
            if (new == UINT64_MAX || new == old)
                return 0;
            ref_store(dst, i, d->width, new);
        }
    }
    return 1;
}

/* Decode to dst, which is a copy of base. No other bytes may be a delta of the same elements. The simplest check
 * encodes them again. */
static enum ref_status read_context(void *dst, const void *base, uint64_t n, unsigned dtype, const uint8_t *chunk,
                                    size_t len)
{
    struct decoder *d = calloc(1, sizeof *d);
    struct in in = {chunk, len, FIXED};
    int good = 0;
    if (!d)
        return REF_E_NOMEM;
    d->m.s = ref_shape_of(dtype);
    d->n = n;
    d->width = d->m.s.w / 8;
    uint8_t *memory = calloc(3, (size_t)n);
    if (memory && d->m.s.w && len >= FIXED && len < 48 + n * d->width / d->m.s.pairs) {
        d->changed = memory;
        d->token = memory + n;
        d->frequent = memory + 2 * n;
        d->m.low = chunk[0];
        d->m.top = chunk[1];
        d->m.frequent_odds = chunk[2];
        d->m.frequent = (uint32_t)ref_get(chunk + 4, 4);
        d->m.classes = (uint32_t)ref_get(chunk + 8, 4);
        good = chunk[3] == 0 && d->m.classes != 0 && !(d->m.classes >> 31) && d->m.top <= 255 &&
               d->m.frequent <= ref_mask(d->m.s.mantissa);
        for (unsigned i = 0; i < LANES; i++) {
            d->state[i] = (uint32_t)ref_get(chunk + 16 + 4 * i, 4);
            good = good && d->state[i] >= 65536;
        }
        good = good && read_tables(d, &in);
        const uint64_t words = 2 * ref_get(chunk + 12, 4);
        const uint8_t *p = good && words <= len ? take(&in, (size_t)words) : NULL;
        d->words = (struct in){p, (size_t)words, 0};
        good = p && read_lists(d, base) && read_values(d, dst, base, &in);
    }
    const enum ref_status status = memory ? (good ? REF_OK : REF_E_CORRUPT) : REF_E_NOMEM;
    free(memory);
    free(d);
    if (status)
        return status;
    size_t again;
    uint8_t *same = make_context(&again, base, dst, n, dtype, REF_TWIST_NONE);
    good = same && again == len && memcmp(same, chunk, len) == 0;
    free(same);
    return good ? REF_OK : REF_E_CORRUPT;
}

/* read_context for elements that hold two e2m1 each. */
static enum ref_status read_pairs(uint8_t *dst, const uint8_t *base, uint64_t n, const uint8_t *chunk, size_t len)
{
    uint8_t *old = widen(base, n), *new = widen(base, n);
    enum ref_status s = old && new ? read_context(new, old, 2 * n, REF_E2M1, chunk, len) : REF_E_NOMEM;
    for (uint64_t i = 0; !s && i < 2 * n; i++)
        if (new[i] >> 3 & 15)
            s = REF_E_CORRUPT;
    for (uint64_t i = 0; !s && i < 2 * n; i += 2)
        dst[i / 2] =
            (uint8_t)((new[i] & 7) + (new[i] & 128 ? 8 : 0) + 16 * ((new[i + 1] & 7) + (new[i + 1] & 128 ? 8 : 0)));
    free(old);
    free(new);
    return s;
}

enum ref_status ref_small_read_context(void *dst, const void *base, uint64_t n, unsigned dtype, int pairs,
                                       const uint8_t *chunk, size_t len)
{
    return pairs ? read_pairs(dst, base, n, chunk, len) : read_context(dst, base, n, dtype, chunk, len);
}
