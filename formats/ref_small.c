/* SPDX-License-Identifier: BSD-3-Clause */
#include "ref_small.h"
#include "ref.h"
#include "ref_small_model.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER = 32, PART = 48, COLUMNS = 56, CONTEXT = 1 };

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

/* Make one chunk, of either kind. The caller frees it. */
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

static unsigned header_bytes(unsigned version)
{
    static const uint8_t bytes[5] = {0, HEADER, PART, PART, COLUMNS};
    return bytes[version];
}

/* row: for columns, the elements of a row; otherwise 0. */
static uint8_t *encode(size_t *len, const void *base, const void *src, uint64_t n, uint64_t first, uint64_t of,
                       uint64_t row, unsigned dtype, unsigned format, int checksum, int pairs)
{
    unsigned version = n == of ? 1 : 2;
    if (pairs || is_f8(dtype))
        version = 3;
    if (row)
        version = 4;
    const unsigned width = ref_width(dtype), head_bytes = header_bytes(version);
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
    if (version == 4)
        ref_put(delta + 48, 8, row);
    *len = at;
    if (checksum)
        seal(delta, at);
    return delta;
}

uint8_t *ref_small_encode_part(size_t *len, const void *base, const void *src, uint64_t n, uint64_t first, uint64_t of,
                               unsigned dtype, unsigned format, int checksum)
{
    return encode(len, base, src, n, first, of, 0, dtype, format, checksum, 0);
}

uint8_t *ref_small_encode_pairs(size_t *len, const void *base, const void *src, uint64_t n, uint64_t first, uint64_t of,
                                unsigned format, int checksum)
{
    return encode(len, base, src, n, first, of, 0, REF_U8, format, checksum, 1);
}

uint8_t *ref_small_encode_columns(size_t *len, const void *base, const void *src, const struct ref_columns *c,
                                  unsigned dtype, unsigned format, int checksum, int pairs)
{
    return encode(len, base, src, c->rows * c->count, c->first, c->rows * c->row, c->row, dtype, format, checksum,
                  pairs);
}

uint8_t *ref_small_encode(size_t *len, const void *base, const void *src, uint64_t n, unsigned dtype, unsigned format,
                          int checksum)
{
    return ref_small_encode_part(len, base, src, n, 0, n, dtype, format, checksum);
}

/* The fields of a delta's header. */
struct head {
    unsigned bytes, dtype, version, pairs;
    uint64_t n, len, first, of;
    uint64_t row, columns; /* of version 4, else 0 */
};

/* Check the rules "size" to "directory" for the delta at the beginning of `left` bytes. */
static enum ref_status read_header(struct head *h, const uint8_t *delta, size_t left)
{
    if (left < HEADER || memcmp(delta, "\x50\x49\x43\x44", 4) != 0)
        return REF_E_CORRUPT;
    if (delta[4] < 1 || delta[4] > 4)
        return REF_E_VERSION;
    *h = (struct head){.bytes = header_bytes(delta[4]),
                       .dtype = delta[5],
                       .version = delta[4],
                       .pairs = delta[7],
                       .n = ref_get(delta + 8, 8),
                       .len = ref_get(delta + 16, 8)};
    if (h->version == 3 && !(h->pairs == 0 && is_f8(h->dtype)) && !(h->pairs == 1 && h->dtype == REF_U8))
        return REF_E_CORRUPT;
    if (h->version == 4 && !(h->pairs == 0) && !(h->pairs == 1 && h->dtype == REF_U8))
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
    }
    if (h->version == 2 || h->version == 3) {
        if (h->n > h->of || (h->version == 2 && h->n == h->of) || h->first > h->of - h->n)
            return REF_E_CORRUPT;
    }
    if (h->version == 4) {
        h->row = ref_get(delta + 48, 8);
        const uint64_t rows = h->row ? h->of / h->row : 0;
        if (rows < 2 || h->of % h->row || h->n % rows)
            return REF_E_CORRUPT;
        h->columns = h->n / rows;
        if (h->columns >= h->row || h->first > h->row - h->columns)
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

/* Set [*from, *to) to the elements of chunk t among [first, first + n) of the tensor. Returns the chunk's elements. */
static uint64_t within(uint64_t *from, uint64_t *to, const struct head *h, uint64_t t, uint64_t n, uint64_t first)
{
    const uint64_t begin = h->first + t * REF_SMALL_CHUNK, left = h->n - t * REF_SMALL_CHUNK,
                   count = left < REF_SMALL_CHUNK ? left : REF_SMALL_CHUNK, end = begin + count;
    *from = begin > first ? begin : first;
    *to = end < first + n ? end : first + n;
    return count;
}

/* Does a context chunk have some, but not all, of its elements among [first, first + n)? */
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

/* Check every header of a delta, or of parts in a row. They must cover all elements [first, first + n) of `of`, and no
 * context chunk may cross the range's ends. columns: NULL, or the columns that the n elements are. */
static enum ref_status check_headers(uint64_t n, uint64_t first, uint64_t of, const struct ref_columns *columns,
                                     const uint8_t *delta, size_t len)
{
    struct head h = {0};
    uint64_t end = 0, next = columns ? 0 : first, wanted = first + n;
    enum ref_status s = REF_OK, sum = REF_OK;
    int another = 0;
    for (size_t at = 0; at < len || !at; at += (size_t)h.len) {
        const struct head before = h;
        if ((s = read_header(&h, delta + at, len - at)) != REF_OK)
            return s;
        if (before.dtype && (before.version == 1 || h.version != before.version || h.dtype != before.dtype ||
                             h.pairs != before.pairs || h.of != before.of || h.row != before.row || h.first < end))
            return REF_E_CORRUPT;
        sum = sum ? sum : check_checksum(delta + at, (size_t)h.len);
        end = h.first + (h.version == 4 ? h.columns : h.n);
        if (h.version == 4) { /* all columns are wanted, or none */
            const uint64_t row = columns ? columns->row : h.row, from = columns ? columns->first : 0,
                           to = columns ? from + columns->count : row;
            next = next < from ? from : next;
            another |= h.of != of || row != h.row || (!columns && (first || n != of)) ||
                       (h.first < to && end > from && h.first < end && (h.first < from || end > to));
            if (h.first <= next && end > next)
                next = end;
            wanted = to;
            continue;
        }
        another |= columns || h.of != of || cuts(&h, delta + at, n, first);
        if (h.first <= next && end > next)
            next = end;
    }
    return another || next < wanted ? REF_E_ARG : sum;
}

static enum ref_status read_chunk(uint8_t *dst, const uint8_t *base, uint64_t n, const struct head *head,
                                  const uint8_t *chunk, size_t len, unsigned kind)
{
    const unsigned dtype = head->dtype;
    const size_t bytes = (size_t)n * ref_width(dtype);
    if (kind == CONTEXT && is_f8(dtype) && head->version < 3)
        return REF_E_CORRUPT;
    if (kind == CONTEXT)
        return ref_small_read_context(dst, base, n, dtype, (int)head->pairs, chunk, len);
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

/* Apply chunk t of a delta. The range may have only some of its elements. made: the elements of the range. */
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

/* Apply the chunks of a delta of columns from column `skip` on. made: rows of `row` elements. */
static enum ref_status apply_columns(uint8_t *made, uint64_t row, uint64_t skip, const struct head *h,
                                     const uint8_t *delta)
{
    const unsigned width = ref_width(h->dtype);
    const uint8_t *chunk = delta + h->bytes + 4 * chunks_of(h->n);
    uint8_t *own = calloc((size_t)h->n + 1, width);
    enum ref_status s = own ? REF_OK : REF_E_NOMEM;
    struct head alone = *h;
    alone.first = 0;
    for (uint64_t i = 0; own && i < h->n; i++)
        memcpy(own + i * width, made + (i / h->columns * row + skip + i % h->columns) * width, width);
    for (uint64_t t = 0; t < chunks_of(h->n) && !s; t++) {
        const uint64_t entry = ref_get(delta + h->bytes + 4 * t, 4), bytes = entry & ref_mask(31);
        s = apply_chunk(own, h->n, 0, &alone, t, chunk, (size_t)bytes, (unsigned)(entry >> 31));
        chunk += bytes;
    }
    for (uint64_t i = 0; !s && i < h->n; i++)
        memcpy(made + (i / h->columns * row + skip + i % h->columns) * width, own + i * width, width);
    free(own);
    return s;
}

/* columns: as in check_headers(). */
static enum ref_status apply(void *dst, uint64_t n, uint64_t first, uint64_t of, const struct ref_columns *columns,
                             const uint8_t *delta, size_t len)
{
    enum ref_status s = check_headers(n, first, of, columns, delta, len);
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
        if (h.version == 4) {
            const uint64_t from = columns ? columns->first : 0, count = columns ? columns->count : h.row;
            if (h.first >= from && h.first + h.columns <= from + count)
                s = apply_columns(made, count, h.first - from, &h, delta + at);
            continue;
        }
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

enum ref_status ref_small_apply_range(void *dst, uint64_t n, uint64_t first, uint64_t of, const uint8_t *delta,
                                      size_t len)
{
    return apply(dst, n, first, of, NULL, delta, len);
}

enum ref_status ref_small_apply_columns(void *dst, const struct ref_columns *c, const uint8_t *delta, size_t len)
{
    return apply(dst, c->rows * c->count, 0, c->rows * c->row, c, delta, len);
}

enum ref_status ref_small_apply(void *dst, uint64_t n, const uint8_t *delta, size_t len)
{
    return ref_small_apply_range(dst, n, 0, n, delta, len);
}
