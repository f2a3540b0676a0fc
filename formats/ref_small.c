/* SPDX-License-Identifier: BSD-3-Clause */
#include "ref_small.h"
#include "ref.h"
#include "ref_small_model.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER = 32, PART = 48, FIXED = 144, CONTEXT = 1, LANES = 32 };

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

/* One list of tokens. Returns whether a later level may have one. */
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

/* Encode all bits, from the last to the first. The words are in *words, the first in decoding last. */
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

/* ---- a context chunk, written ---- */

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

/* The 2 * n e2m1 of n elements, each as a byte with the sign in its highest bit, to be freed. */
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

/* ---- a context chunk, read ---- */

struct in {
    const uint8_t *p;
    size_t n;  /* bytes */
    size_t at; /* bytes; of extra bits: bits */
};

/* The next so many bytes; null if there are not as many. */
static const uint8_t *take(struct in *in, size_t bytes)
{
    if (bytes > in->n - in->at)
        return NULL;
    in->at += bytes;
    return in->p + in->at - bytes;
}

/* The next so many bits; UINT64_MAX if there are not as many. */
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

/* The next bit of a list; 2 if there is no word left. */
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

/* Lists 2 or 3. */
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

/* The new value of an element. UINT64_MAX: there is none. */
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

/* Decode to dst, which is a copy of base. That no other bytes are a delta of the same elements is checked in the
 * simplest way: by encoding them. */
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

/* Likewise of elements that hold two e2m1 each. */
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

/* ---- the whole delta ---- */

static uint64_t chunks_of(uint64_t n)
{
    return n / REF_SMALL_CHUNK + (n % REF_SMALL_CHUNK > 0);
}

/* Set the checksum flag of a delta and write its checksum. len >= 32. */
static void seal(uint8_t *delta, size_t len)
{
    delta[6] |= 1;
    ref_put(delta + 24, 8, 0);
    ref_put(delta + 24, 8, ref_xxh64(delta, len));
}

/* One chunk, of either kind, to be freed. */
static uint8_t *make_chunk(size_t *len, unsigned *kind, const uint8_t *base, const uint8_t *src, uint64_t n,
                           unsigned dtype, unsigned format, int pairs)
{
    const size_t bytes = (size_t)n * ref_width(dtype);
    size_t context;
    uint8_t *flipped = malloc(bytes), *small = ref_small_context(&context, base, src, n, dtype, pairs, REF_TWIST_NONE),
            *block = NULL;
    for (size_t i = 0; flipped && i < bytes; i++)
        flipped[i] = base[i] ^ src[i];
    if (flipped)
        block = ref_encode(len, flipped, n, dtype, format, 0);
    free(flipped);
    *kind = small && block && context < *len;
    free(*kind == CONTEXT ? block : small);
    if (*kind == CONTEXT)
        *len = context;
    return *kind == CONTEXT ? small : block;
}

static int is_f8(unsigned dtype)
{
    return dtype == REF_F8E4M3 || dtype == REF_F8E5M2;
}

static uint8_t *encode(size_t *len, const void *base, const void *src, uint64_t n, uint64_t first, uint64_t of,
                       unsigned dtype, unsigned format, int checksum, int pairs)
{
    const unsigned width = ref_width(dtype),
                   version = pairs || is_f8(dtype) ? 3
                             : n == of             ? 1
                                                   : 2,
                   head_bytes = version == 1 ? HEADER : PART;
    const uint64_t chunks = chunks_of(n);
    *len = 0;
    if (!width || format > REF_HYBRID || n > SIZE_MAX / width)
        return NULL;
    size_t at = head_bytes + 4 * (size_t)chunks;
    uint8_t *delta = calloc(1, at);
    for (uint64_t t = 0; delta && t < chunks; t++) {
        const uint64_t begin = t * REF_SMALL_CHUNK, left = n - begin;
        size_t bytes;
        unsigned kind;
        uint8_t *chunk =
            make_chunk(&bytes, &kind, (const uint8_t *)base + begin * width, (const uint8_t *)src + begin * width,
                       left < REF_SMALL_CHUNK ? left : REF_SMALL_CHUNK, dtype, format, pairs);
        uint8_t *more = chunk ? realloc(delta, at + bytes) : NULL;
        if (!more) {
            free(chunk);
            free(delta);
            return NULL;
        }
        delta = more;
        memcpy(delta + at, chunk, bytes);
        ref_put(delta + head_bytes + 4 * t, 4, bytes | (uint64_t)kind << 31);
        at += bytes;
        free(chunk);
    }
    if (!delta)
        return NULL;
    const uint8_t head[8] = {0x50, 0x49, 0x43, 0x44, (uint8_t)version, (uint8_t)dtype, 0, (uint8_t)(pairs != 0)};
    memcpy(delta, head, sizeof head);
    ref_put(delta + 8, 8, n);
    ref_put(delta + 16, 8, at);
    if (version != 1) {
        ref_put(delta + 32, 8, first);
        ref_put(delta + 40, 8, of);
    }
    *len = at;
    if (checksum)
        seal(delta, at);
    return delta;
}

uint8_t *ref_small_encode_part(size_t *len, const void *base, const void *src, uint64_t n, uint64_t first, uint64_t of,
                               unsigned dtype, unsigned format, int checksum)
{
    return encode(len, base, src, n, first, of, dtype, format, checksum, 0);
}

uint8_t *ref_small_encode_pairs(size_t *len, const void *base, const void *src, uint64_t n, uint64_t first, uint64_t of,
                                unsigned format, int checksum)
{
    return encode(len, base, src, n, first, of, REF_U8, format, checksum, 1);
}

uint8_t *ref_small_encode(size_t *len, const void *base, const void *src, uint64_t n, unsigned dtype, unsigned format,
                          int checksum)
{
    return ref_small_encode_part(len, base, src, n, 0, n, dtype, format, checksum);
}

/* What a delta's header says. */
struct head {
    unsigned bytes, dtype, version, pairs;
    uint64_t n, len, first, of;
};

/* Rules "size" to "directory", of the delta that `left` bytes begin with. */
static enum ref_status read_header(struct head *h, const uint8_t *delta, size_t left)
{
    if (left < HEADER || memcmp(delta, "\x50\x49\x43\x44", 4) != 0)
        return REF_E_CORRUPT;
    if (delta[4] < 1 || delta[4] > 3)
        return REF_E_VERSION;
    *h = (struct head){.bytes = delta[4] == 1 ? HEADER : PART,
                       .dtype = delta[5],
                       .version = delta[4],
                       .pairs = delta[7],
                       .n = ref_get(delta + 8, 8),
                       .len = ref_get(delta + 16, 8)};
    if (h->version == 3 && !(h->pairs == 0 && is_f8(h->dtype)) && !(h->pairs == 1 && h->dtype == REF_U8))
        return REF_E_CORRUPT;
    if (!ref_width(h->dtype) || delta[6] > 1 || (h->version < 3 && h->pairs) || (!delta[6] && ref_get(delta + 24, 8)))
        return REF_E_CORRUPT;
    if (delta[4] == 1 ? h->len != left : h->len > left)
        return REF_E_CORRUPT;
    if (h->len < h->bytes)
        return REF_E_CORRUPT;
    h->of = h->n;
    if (h->version > 1) {
        h->first = ref_get(delta + 32, 8);
        h->of = ref_get(delta + 40, 8);
        if (h->n > h->of || (h->version == 2 && h->n == h->of) || h->first > h->of - h->n)
            return REF_E_CORRUPT;
    }
    const uint64_t chunks = chunks_of(h->n);
    if (chunks > (h->len - h->bytes) / 4)
        return REF_E_CORRUPT;
    uint64_t end = h->bytes + 4 * chunks;
    for (uint64_t t = 0; t < chunks; t++)
        end += ref_get(delta + h->bytes + 4 * t, 4) & ref_mask(31);
    return end == h->len ? REF_OK : REF_E_CORRUPT;
}

static enum ref_status check_checksum(const uint8_t *delta, size_t len)
{
    if (!delta[6])
        return REF_OK;
    uint8_t *copy = malloc(len);
    if (!copy)
        return REF_E_NOMEM;
    memcpy(copy, delta, len);
    seal(copy, len);
    const int same = ref_get(copy + 24, 8) == ref_get(delta + 24, 8);
    free(copy);
    return same ? REF_OK : REF_E_CHECKSUM;
}

/* The elements of chunk t that are among [first, first + n) of the tensor: [*from, *to). Returns those of the chunk. */
static uint64_t within(uint64_t *from, uint64_t *to, const struct head *h, uint64_t t, uint64_t n, uint64_t first)
{
    const uint64_t begin = h->first + t * REF_SMALL_CHUNK, left = h->n - t * REF_SMALL_CHUNK,
                   count = left < REF_SMALL_CHUNK ? left : REF_SMALL_CHUNK, end = begin + count;
    *from = begin > first ? begin : first;
    *to = end < first + n ? end : first + n;
    return count;
}

/* Whether a context chunk has some and not all of its elements among [first, first + n). */
static int cuts(const struct head *h, const uint8_t *delta, uint64_t n, uint64_t first)
{
    uint64_t from, to;
    for (uint64_t t = 0; t < chunks_of(h->n); t++) {
        const uint64_t count = within(&from, &to, h, t, n, first);
        if (from < to && to - from < count && ref_get(delta + h->bytes + 4 * t, 4) >> 31)
            return 1;
    }
    return 0;
}

/* Every header of a delta, or of parts in a row; whether they have all elements [first, first + n) of `of`, and these
 * cut no context chunk. */
static enum ref_status check_headers(uint64_t n, uint64_t first, uint64_t of, const uint8_t *delta, size_t len)
{
    struct head h = {0};
    uint64_t end = 0, next = first;
    enum ref_status s = REF_OK, sum = REF_OK;
    int another = 0;
    for (size_t at = 0; at < len || !at; at += (size_t)h.len) {
        const struct head before = h;
        if ((s = read_header(&h, delta + at, len - at)) != REF_OK)
            return s;
        if (before.dtype && (before.version == 1 || h.version != before.version || h.dtype != before.dtype ||
                             h.pairs != before.pairs || h.of != before.of || h.first < end))
            return REF_E_CORRUPT;
        sum = sum ? sum : check_checksum(delta + at, (size_t)h.len);
        end = h.first + h.n;
        another |= h.of != of || cuts(&h, delta + at, n, first);
        if (h.first <= next && end > next)
            next = end;
    }
    return another || next < first + n ? REF_E_ARG : sum;
}

static enum ref_status read_chunk(uint8_t *dst, const uint8_t *base, uint64_t n, const struct head *head,
                                  const uint8_t *chunk, size_t len, unsigned kind)
{
    const unsigned dtype = head->dtype;
    const size_t bytes = (size_t)n * ref_width(dtype);
    if (kind == CONTEXT && head->pairs)
        return read_pairs(dst, base, n, chunk, len);
    if (kind == CONTEXT && is_f8(dtype) && head->version < 3)
        return REF_E_CORRUPT;
    if (kind == CONTEXT)
        return read_context(dst, base, n, dtype, chunk, len);
    struct ref_header h;
    if (ref_header(&h, chunk, len, NULL) || h.format == REF_PACKED || h.dtype != dtype || h.count != n || (h.flags & 2))
        return REF_E_CORRUPT;
    uint8_t *flipped = malloc(bytes);
    const enum ref_status s = flipped ? ref_decode(flipped, n, chunk, len) : REF_E_NOMEM;
    for (size_t i = 0; !s && i < bytes; i++)
        dst[i] ^= flipped[i];
    free(flipped);
    return s && s != REF_E_NOMEM ? REF_E_CORRUPT : s;
}

/* Chunk t of a delta, of which the range may have some elements. made: the range's. */
static enum ref_status apply_chunk(uint8_t *made, uint64_t n, uint64_t first, const struct head *h, uint64_t t,
                                   const uint8_t *chunk, size_t len, unsigned kind)
{
    const unsigned width = ref_width(h->dtype);
    const uint64_t begin = h->first + t * REF_SMALL_CHUNK;
    uint64_t from, to;
    const uint64_t count = within(&from, &to, h, t, n, first);
    if (from >= to)
        return REF_OK;
    uint8_t *base = calloc((size_t)count, width), *dst = calloc((size_t)count, width);
    enum ref_status s = base && dst ? REF_OK : REF_E_NOMEM;
    if (!s) {
        memcpy(base + (from - begin) * width, made + (from - first) * width, (size_t)(to - from) * width);
        memcpy(dst, base, (size_t)count * width);
        s = read_chunk(dst, base, count, h, chunk, len, kind);
    }
    if (!s)
        memcpy(made + (from - first) * width, dst + (from - begin) * width, (size_t)(to - from) * width);
    free(base);
    free(dst);
    return s;
}

enum ref_status ref_small_apply_range(void *dst, uint64_t n, uint64_t first, uint64_t of, const uint8_t *delta,
                                      size_t len)
{
    enum ref_status s = check_headers(n, first, of, delta, len);
    if (s)
        return s;
    const unsigned width = ref_width(delta[5]);
    uint8_t *made = malloc(n ? (size_t)n * width : 1);
    if (!made)
        return REF_E_NOMEM;
    if (n)
        memcpy(made, dst, (size_t)n * width);
    struct head h;
    for (size_t at = 0; at < len && !s; at += (size_t)h.len) {
        s = read_header(&h, delta + at, len - at);
        const uint8_t *chunk = delta + at + h.bytes + 4 * chunks_of(h.n);
        for (uint64_t t = 0; t < chunks_of(h.n) && !s; t++) {
            const uint64_t entry = ref_get(delta + at + h.bytes + 4 * t, 4), bytes = entry & ref_mask(31);
            s = apply_chunk(made, n, first, &h, t, chunk, (size_t)bytes, (unsigned)(entry >> 31));
            chunk += bytes;
        }
    }
    if (!s && n)
        memcpy(dst, made, (size_t)n * width);
    free(made);
    return s;
}

enum ref_status ref_small_apply(void *dst, uint64_t n, const uint8_t *delta, size_t len)
{
    return ref_small_apply_range(dst, n, 0, n, delta, len);
}
