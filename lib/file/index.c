/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The index of a .pici file. The writer and the forward reader build it entry by entry; the random-access reader loads
 * it. Names are kept in sorted runs, each at least twice as long as the next, that are merged as they grow: O(n log n)
 * whatever the names. With a hash table an attacker could choose names that collide. */
#include <stdlib.h>
#include <string.h>

#include "file/file.h"

/* ---- Memory ---- */

enum pici_status pici_buf_fit(struct pici_buf *b, uint64_t n)
{
    if (n <= b->cap)
        return PICI_OK;
    uint8_t *p = n > SIZE_MAX / 2 ? NULL : realloc(b->p, (size_t)n);
    if (!p)
        return PICI_E_NOMEM;
    b->p = p;
    b->cap = (size_t)n;
    return PICI_OK;
}

/* Make room for n more bytes; the capacity grows by half. */
static enum pici_status more(struct pici_buf *b, uint64_t n)
{
    if (n <= b->cap - b->len)
        return PICI_OK;
    if (n > SIZE_MAX / 2)
        return PICI_E_NOMEM;
    uint64_t need = b->len + n, grown = (uint64_t)b->cap + b->cap / 2 + 64;
    return pici_buf_fit(b, need > grown ? need : grown);
}

void pici_buf_free(struct pici_buf *b)
{
    free(b->p);
    *b = (struct pici_buf){0};
}

static enum pici_status append(struct pici_buf *b, const void *p, size_t n)
{
    enum pici_status s = more(b, n);
    if (!s) {
        memcpy(b->p + b->len, p, n);
        b->len += n;
    }
    return s;
}

static size_t get(const struct pici_buf *b, size_t i)
{
    size_t v;
    memcpy(&v, b->p + i * sizeof v, sizeof v);
    return v;
}

static void put(struct pici_buf *b, size_t i, size_t v)
{
    memcpy(b->p + i * sizeof v, &v, sizeof v);
}

int pici_all_zero(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return 0;
    return 1;
}

/* ---- Descriptions ---- */

int pici_shape_count(uint64_t *count, unsigned rank, const uint64_t *shape, size_t width)
{
    const uint64_t most = INT64_MAX / width;
    uint64_t n = 1;
    for (unsigned i = 0; i < rank; i++)
        if (shape[i] == 0) {
            *count = 0;
            return 1;
        }
    for (unsigned i = 0; i < rank; i++) {
        if (shape[i] > most / n)
            return 0;
        n *= shape[i];
    }
    *count = n;
    return 1;
}

int pici_desc_parse(struct pici_desc *d, const uint8_t *p, size_t len)
{
    if (len < DESC_HEADER_BYTES)
        return 0;
    d->dtype = (enum pici_dtype)p[DESC_DTYPE];
    d->rank = p[DESC_RANK];
    d->chunk_elements = load_le32(p + DESC_CHUNK);
    d->name_len = load_le32(p + DESC_NAME_LEN);
    d->n_attrs = load_le32(p + DESC_ATTRS);
    d->width = pici_dtype_width(d->dtype);
    if (!d->width || d->rank > PICI_RANK_MAX || p[DESC_RESERVED] || p[DESC_RESERVED + 1] || !d->chunk_elements ||
        d->chunk_elements > PICI_CHUNK_MAX || d->name_len > PICI_NAME_MAX)
        return 0;
    size_t name_at = DESC_HEADER_BYTES + 8 * (size_t)d->rank;
    d->bytes = name_at + text_bytes(d->name_len);
    if (d->bytes > len)
        return 0;
    uint64_t shape[PICI_RANK_MAX];
    d->shape = p + DESC_HEADER_BYTES;
    for (unsigned i = 0; i < d->rank; i++)
        shape[i] = load_le64(d->shape + 8 * i);
    if (!pici_shape_count(&d->count, d->rank, shape, d->width))
        return 0;
    d->chunks = d->count / d->chunk_elements + (d->count % d->chunk_elements != 0);
    d->name = (const char *)p + name_at;
    return pici_all_zero(p + name_at + d->name_len, d->bytes - name_at - d->name_len);
}

size_t pici_chunk_bound(enum pici_dtype dtype, uint64_t n)
{
    size_t most = 0;
    for (int f = PICI_DENSE; f <= PICI_HYBRID; f++) {
        size_t b = pici_bound((enum pici_format)f, dtype, n);
        most = b > most ? b : most;
    }
    return most;
}

/* ---- Attributes ---- */

enum pici_status pici_attrs_parse(struct pici_attrs *a, size_t from, uint32_t n)
{
    const uint8_t *p = a->body.p;
    const char *last = NULL;
    size_t at = from;
    a->n = 0;
    a->at.len = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (a->body.len - at < ATTR_HEADER_BYTES)
            return PICI_E_CORRUPT;
        size_t key_len = load_le32(p + at), value_len = load_le32(p + at + 4);
        if (key_len < 1 || key_len > PICI_KEY_MAX || value_len > PICI_FILE_META_MAX)
            return PICI_E_CORRUPT;
        size_t key_bytes = text_bytes(key_len), value_bytes = text_bytes(value_len);
        if (key_bytes + value_bytes > a->body.len - at - ATTR_HEADER_BYTES)
            return PICI_E_CORRUPT;
        const uint8_t *key = p + at + ATTR_HEADER_BYTES, *value = key + key_bytes;
        if (memchr(key, 0, key_len) || !pici_all_zero(key + key_len, key_bytes - key_len) ||
            !pici_all_zero(value + value_len, value_bytes - value_len))
            return PICI_E_CORRUPT;
        if (last && strcmp(last, (const char *)key) >= 0) /* strcmp compares unsigned bytes */
            return PICI_E_CORRUPT;
        enum pici_status s = append(&a->at, &at, sizeof at);
        if (s)
            return s;
        last = (const char *)key;
        at += ATTR_HEADER_BYTES + key_bytes + value_bytes;
    }
    a->n = n;
    return at == a->body.len ? PICI_OK : PICI_E_CORRUPT;
}

void pici_attrs_get(const struct pici_attrs *a, uint32_t i, struct pici_attr *out)
{
    const uint8_t *p = a->body.p + get(&a->at, i);
    out->key = (const char *)p + ATTR_HEADER_BYTES;
    out->value = p + ATTR_HEADER_BYTES + text_bytes(load_le32(p));
    out->len = load_le32(p + 4);
}

int pici_attrs_find(const struct pici_attrs *a, const char *key, uint32_t *i)
{
    uint32_t lo = 0, hi = a->n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        struct pici_attr at;
        pici_attrs_get(a, mid, &at);
        int c = strcmp(at.key, key);
        if (c == 0) {
            *i = mid;
            return 1;
        }
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return 0;
}

void pici_attrs_free(struct pici_attrs *a)
{
    pici_buf_free(&a->body);
    pici_buf_free(&a->at);
    a->n = 0;
}

/* ---- Names in order ---- */

static const char *name_of(const struct pici_index *ix, size_t i, size_t *len)
{
    const uint8_t *desc = ix->bytes.p + get(&ix->entries, i) + INDEX_ENTRY_BYTES;
    *len = load_le32(desc + DESC_NAME_LEN);
    return (const char *)desc + DESC_HEADER_BYTES + 8 * (size_t)desc[DESC_RANK];
}

/* Compare tensor i's name with another, as memcmp does. */
static int compare(const struct pici_index *ix, size_t i, const char *name, size_t len)
{
    size_t own;
    const char *p = name_of(ix, i, &own);
    size_t n = own < len ? own : len;
    int c = n ? memcmp(p, name, n) : 0;
    return c ? c : (own > len) - (own < len);
}

/* Merge the last two runs. */
static void merge(struct pici_index *ix)
{
    size_t a = ix->run[ix->runs - 2], b = ix->run[ix->runs - 1], left = b - a, out = a, i = 0;
    size_t spare = ix->n; /* the left run moves behind the numbers in use */
    memcpy(ix->order.p + spare * sizeof a, ix->order.p + a * sizeof a, left * sizeof a);
    while (i < left && b < ix->n) {
        size_t x = get(&ix->order, spare + i), y = get(&ix->order, b), len;
        const char *name = name_of(ix, y, &len);
        int first = compare(ix, x, name, len) <= 0;
        put(&ix->order, out++, first ? x : y);
        i += first;
        b += !first;
    }
    while (i < left)
        put(&ix->order, out++, get(&ix->order, spare + i++));
    ix->runs--;
}

/* Enter the last tensor in the order of names. Equal names are found by pici_index_find and _unique. */
static enum pici_status enter(struct pici_index *ix)
{
    size_t i = ix->n;
    enum pici_status s = i > SIZE_MAX / 64 ? PICI_E_NOMEM : PICI_OK;
    if (!s) {
        ix->order.len = i * 2 * sizeof i;
        s = more(&ix->order, 2 * sizeof i);
    }
    if (s)
        return s;
    put(&ix->order, i, i);
    ix->n++;
    ix->run[ix->runs++] = i;
    while (ix->runs > 1 && ix->n - ix->run[ix->runs - 1] == ix->run[ix->runs - 1] - ix->run[ix->runs - 2])
        merge(ix);
    return PICI_OK;
}

int pici_index_find(const struct pici_index *ix, const char *name, size_t len, size_t *i)
{
    size_t end = ix->n;
    for (int r = ix->runs; r-- > 0; end = ix->run[r]) {
        size_t lo = ix->run[r], hi = end;
        while (lo < hi) {
            size_t mid = lo + (hi - lo) / 2, at = get(&ix->order, mid);
            int c = compare(ix, at, name, len);
            if (c == 0) {
                *i = at;
                return 1;
            }
            if (c < 0)
                lo = mid + 1;
            else
                hi = mid;
        }
    }
    return 0;
}

int pici_index_unique(struct pici_index *ix, size_t *i)
{
    while (ix->runs > 1)
        merge(ix);
    for (size_t k = 1; k < ix->n; k++) {
        size_t len;
        const char *name = name_of(ix, *i = get(&ix->order, k), &len);
        if (compare(ix, get(&ix->order, k - 1), name, len) == 0)
            return 0;
    }
    return 1;
}

/* ---- The index ---- */

enum pici_status pici_index_begin(struct pici_index *ix, uint64_t meta_hash)
{
    uint8_t header[INDEX_HEADER_BYTES];
    store_le64(header, 0);
    store_le64(header + 8, meta_hash);
    return append(&ix->bytes, header, sizeof header);
}

enum pici_status pici_index_tensor(struct pici_index *ix, uint64_t offset, uint64_t hash, const uint8_t *desc,
                                   size_t bytes)
{
    uint8_t head[INDEX_ENTRY_BYTES];
    size_t at = ix->bytes.len;
    store_le64(head, offset);
    store_le64(head + 8, hash);
    enum pici_status s = more(&ix->bytes, sizeof head + (uint64_t)bytes);
    if (!s)
        s = append(&ix->entries, &at, sizeof at);
    if (!s)
        s = append(&ix->bytes, head, sizeof head);
    if (!s)
        s = append(&ix->bytes, desc, bytes);
    if (!s)
        s = enter(ix);
    if (!s)
        store_le64(ix->bytes.p, ix->n);
    return s;
}

enum pici_status pici_index_chunk(struct pici_index *ix, uint64_t offset, uint64_t hash)
{
    uint8_t entry[INDEX_CHUNK_BYTES];
    store_le64(entry, offset);
    store_le64(entry + 8, hash);
    return append(&ix->bytes, entry, sizeof entry);
}

/* Whether a record can begin at offset: the one at `last` fits before it, and another between it and the end. */
static int follows(uint64_t offset, uint64_t last, uint64_t end)
{
    return offset % 16 == 0 && offset > last && offset - last >= REC_LEAST && offset <= end &&
           end - offset >= REC_LEAST;
}

enum pici_status pici_index_load(struct pici_index *ix, uint64_t index_offset, const char **rule)
{
    const uint8_t *p = ix->bytes.p;
    size_t at = INDEX_HEADER_BYTES, len = ix->bytes.len;
    uint64_t n = load_le64(p), last = FILE_HEADER_BYTES;
    *rule = "index";
    for (uint64_t i = 0; i < n; i++) {
        struct pici_desc d;
        if (len - at < INDEX_ENTRY_BYTES)
            return PICI_E_CORRUPT;
        uint64_t offset = load_le64(p + at);
        if (!follows(offset, last, index_offset))
            return PICI_E_CORRUPT;
        last = offset;
        if (!pici_desc_parse(&d, p + at + INDEX_ENTRY_BYTES, len - at - INDEX_ENTRY_BYTES)) {
            *rule = "description";
            return PICI_E_CORRUPT;
        }
        enum pici_status s = append(&ix->entries, &at, sizeof at);
        if (!s)
            s = enter(ix);
        if (s)
            return s;
        at += INDEX_ENTRY_BYTES + d.bytes;
        if (d.chunks > (len - at) / INDEX_CHUNK_BYTES)
            return PICI_E_CORRUPT;
        for (uint64_t c = 0; c < d.chunks; c++, at += INDEX_CHUNK_BYTES) {
            offset = load_le64(p + at);
            if (!follows(offset, last, index_offset))
                return PICI_E_CORRUPT;
            last = offset;
        }
    }
    return at == len ? PICI_OK : PICI_E_CORRUPT;
}

void pici_index_desc(const struct pici_index *ix, size_t i, struct pici_desc *d)
{
    size_t at = get(&ix->entries, i) + INDEX_ENTRY_BYTES;
    pici_desc_parse(d, ix->bytes.p + at, ix->bytes.len - at); /* it was checked when it was added */
}

/* The offset of tensor i's first record; of the index if there is no such tensor. */
static uint64_t begins(const struct pici_index *ix, size_t i, uint64_t index_offset)
{
    return i < ix->n ? load_le64(ix->bytes.p + get(&ix->entries, i)) : index_offset;
}

void pici_index_blck(const struct pici_index *ix, size_t i, uint64_t c, uint64_t index_offset, struct pici_place *at)
{
    struct pici_desc d;
    pici_index_desc(ix, i, &d);
    const uint8_t *p = ix->bytes.p + get(&ix->entries, i) + INDEX_ENTRY_BYTES + d.bytes + (size_t)c * INDEX_CHUNK_BYTES;
    at->offset = load_le64(p);
    at->hash = load_le64(p + 8);
    at->end = c + 1 < d.chunks ? load_le64(p + INDEX_CHUNK_BYTES) : begins(ix, i + 1, index_offset);
}

void pici_index_tens(const struct pici_index *ix, size_t i, uint64_t index_offset, struct pici_place *at)
{
    struct pici_desc d;
    const uint8_t *p = ix->bytes.p + get(&ix->entries, i);
    pici_index_desc(ix, i, &d);
    at->offset = load_le64(p);
    at->hash = load_le64(p + 8);
    at->end = d.chunks ? load_le64(p + INDEX_ENTRY_BYTES + d.bytes) : begins(ix, i + 1, index_offset);
}

void pici_index_free(struct pici_index *ix)
{
    pici_buf_free(&ix->bytes);
    pici_buf_free(&ix->entries);
    pici_buf_free(&ix->order);
    ix->n = 0;
    ix->runs = 0;
}
