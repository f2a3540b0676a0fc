/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The index of a .pici file. The writer and the forward reader build it entry by entry; the random-access reader loads
 * it. Names are kept in sorted runs, each at least twice as long as the next, that are merged as they grow: O(n log n)
 * whatever the names. With a hash table an attacker could choose names that collide. */
#include <stdlib.h>
#include <string.h>

#include "file/file.h"
#include "file/pack.h"

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
    for (int f = PICI_DENSE; f <= PICI_PACKED; f++) {
        size_t b = pici_bound((enum pici_format)f, dtype, n);
        most = b > most ? b : most;
    }
    return most;
}

/* ---- Attributes ---- */

/* Check n attributes at p: *used is their length. `at`: null, or gets where each is, from the offset `from` on.
 * PICI_E_CORRUPT: they break the rule "attributes", or take more than len bytes. PICI_E_NOMEM. */
static enum pici_status walk_attrs(const uint8_t *p, size_t len, uint32_t n, size_t *used, struct pici_buf *at,
                                   size_t from)
{
    const char *last = NULL;
    size_t here = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (len - here < ATTR_HEADER_BYTES)
            return PICI_E_CORRUPT;
        size_t key_len = load_le32(p + here), value_len = load_le32(p + here + 4);
        if (key_len < 1 || key_len > PICI_KEY_MAX || value_len > PICI_FILE_META_MAX)
            return PICI_E_CORRUPT;
        size_t key_bytes = text_bytes(key_len), value_bytes = text_bytes(value_len);
        if (key_bytes + value_bytes > len - here - ATTR_HEADER_BYTES)
            return PICI_E_CORRUPT;
        const uint8_t *key = p + here + ATTR_HEADER_BYTES, *value = key + key_bytes;
        if (memchr(key, 0, key_len) || !pici_all_zero(key + key_len, key_bytes - key_len) ||
            !pici_all_zero(value + value_len, value_bytes - value_len))
            return PICI_E_CORRUPT;
        if (last && strcmp(last, (const char *)key) >= 0) /* strcmp compares unsigned bytes */
            return PICI_E_CORRUPT;
        const size_t offset = from + here;
        enum pici_status s = at ? append(at, &offset, sizeof offset) : PICI_OK;
        if (s)
            return s;
        last = (const char *)key;
        here += ATTR_HEADER_BYTES + key_bytes + value_bytes;
    }
    *used = here;
    return PICI_OK;
}

enum pici_status pici_attrs_parse(struct pici_attrs *a, size_t from, uint32_t n)
{
    size_t used;
    a->n = 0;
    a->at.len = 0;
    enum pici_status s = walk_attrs(a->body.p + from, a->body.len - from, n, &used, &a->at, from);
    if (s)
        return s;
    a->n = n;
    return from + used == a->body.len ? PICI_OK : PICI_E_CORRUPT;
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

static const struct pici_entry *entry_of(const struct pici_index *ix, size_t i)
{
    return (const struct pici_entry *)(const void *)ix->entries.p + i;
}

static struct pici_table *table_at(const struct pici_index *ix, size_t number)
{
    return (struct pici_table *)(void *)ix->tables.p + number;
}

static const uint8_t *description(const struct pici_index *ix, size_t i)
{
    const struct pici_entry *e = entry_of(ix, i);
    return e->table == NO_TABLE ? ix->bytes.p + e->at + INDEX_ENTRY_BYTES : ix->small.p + e->at;
}

static const char *name_of(const struct pici_index *ix, size_t i, size_t *len)
{
    const uint8_t *desc = description(ix, i);
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
    const struct pici_entry entry = {.table = NO_TABLE, .at = ix->bytes.len};
    store_le64(head, offset);
    store_le64(head + 8, hash);
    enum pici_status s = more(&ix->bytes, sizeof head + (uint64_t)bytes);
    if (!s)
        s = append(&ix->entries, &entry, sizeof entry);
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

/* ---- Tables of small tensors ---- */

/* The number of the last table. */
static size_t last_table(const struct pici_index *ix)
{
    return ix->tables.len / sizeof(struct pici_table) - 1;
}

enum pici_status pici_index_small(struct pici_index *ix, const uint8_t *body, size_t bytes)
{
    const struct pici_table fresh = {.first = ix->n};
    enum pici_status s = ix->tables.len / sizeof fresh < NO_TABLE ? PICI_OK : PICI_E_NOMEM;
    if (!s && !ix->open) {
        s = append(&ix->tables, &fresh, sizeof fresh);
        ix->body.len = 0;
        ix->body_of = last_table(ix);
    }
    if (s)
        return s;
    ix->open = 1;
    struct pici_table *t = table_at(ix, last_table(ix));
    struct pici_desc d;
    pici_desc_parse(&d, body, bytes);
    const struct pici_entry entry = {.at = ix->small.len,
                                     .table = (uint32_t)last_table(ix),
                                     .within = (uint32_t)t->bytes,
                                     .first = t->count[d.dtype],
                                     .before = t->element_bytes};
    s = append(&ix->small, body, d.bytes);
    if (!s)
        s = append(&ix->body, body, bytes);
    if (!s)
        s = append(&ix->entries, &entry, sizeof entry);
    if (!s)
        s = enter(ix);
    if (s)
        return s;
    t->n++;
    t->bytes += bytes;
    t->count[d.dtype] += (uint32_t)d.count;
    t->element_bytes += (uint32_t)(d.count * d.width);
    return PICI_OK;
}

enum pici_status pici_index_table(struct pici_index *ix, const uint8_t *p, size_t bytes, const char **rule)
{
    uint64_t left = COMMON_MOST;
    for (size_t at = 0, attrs; at < bytes;) {
        struct pici_desc d;
        *rule = "description";
        if (!pici_desc_parse(&d, p + at, bytes - at))
            return PICI_E_CORRUPT;
        *rule = "attributes";
        enum pici_status s = walk_attrs(p + at + d.bytes, bytes - at - d.bytes, d.n_attrs, &attrs, NULL, 0);
        if (s)
            return s;
        *rule = "table";
        if (d.count > d.chunk_elements || d.count * d.width > left)
            return PICI_E_CORRUPT;
        left -= d.count * d.width;
        s = pici_index_small(ix, p + at, d.bytes + attrs);
        if (s)
            return s;
        at += d.bytes + attrs;
    }
    return PICI_OK;
}

enum pici_status pici_index_close(struct pici_index *ix, uint64_t offset, uint64_t hash, const uint8_t *body,
                                  size_t bytes, uint32_t unpacked)
{
    static const uint8_t zeros[8];
    uint8_t head[INDEX_TABLE_BYTES] = {0};
    struct pici_table *t = table_at(ix, last_table(ix));
    t->entry = ix->bytes.len;
    store_le64(head, offset);
    store_le64(head + 8, hash);
    store_le32(head + INDEX_TABLE_UNPACKED, unpacked);
    store_le64(head + INDEX_TABLE_BODY, bytes);
    enum pici_status s = append(&ix->bytes, head, sizeof head);
    if (!s)
        s = append(&ix->bytes, body, bytes);
    if (!s)
        s = append(&ix->bytes, zeros, -bytes & 7);
    t->chunks = ix->bytes.len;
    ix->open = 0;
    store_le64(ix->bytes.p, ix->n);
    return s;
}

const struct pici_table *pici_index_table_of(const struct pici_index *ix, size_t i)
{
    const uint32_t number = entry_of(ix, i)->table;
    return number == NO_TABLE ? NULL : table_at(ix, number);
}

uint64_t pici_index_first(const struct pici_index *ix, size_t i)
{
    return entry_of(ix, i)->first;
}

/* How many chunks of a table come before that of dtype; of DTYPES: how many it has. */
static size_t chunks_before(const struct pici_table *t, unsigned dtype)
{
    size_t n = 0;
    for (unsigned d = 0; d < dtype; d++)
        n += t->count[d] != 0;
    return n;
}

/* ---- An index that was read ---- */

/* Whether a record can begin at offset: the one at `last` fits before it, and another between it and the end. */
static int follows(uint64_t offset, uint64_t last, uint64_t end)
{
    return offset % 16 == 0 && offset > last && offset - last >= REC_LEAST && offset <= end &&
           end - offset >= REC_LEAST;
}

int pici_packed_fits(uint64_t bytes, uint64_t unpacked)
{
    return bytes < unpacked && unpacked / PACKED_RATIO <= bytes;
}

/* The body of the table whose entry is at p, unpacked, to ix->body. PICI_E_CORRUPT: it cannot be. */
static enum pici_status unpack_table(struct pici_index *ix, const uint8_t *p)
{
    const uint64_t unpacked = load_le32(p + INDEX_TABLE_UNPACKED), bytes = load_le64(p + INDEX_TABLE_BODY);
    const uint8_t *body = p + INDEX_TABLE_BYTES;
    enum pici_status s = pici_buf_fit(&ix->body, unpacked ? unpacked : bytes);
    if (s)
        return s;
    ix->body.len = (size_t)(unpacked ? unpacked : bytes);
    if (unpacked)
        return pici_unpack(ix->body.p, ix->body.len, body, (size_t)bytes) ? PICI_OK : PICI_E_CORRUPT;
    memcpy(ix->body.p, body, ix->body.len);
    return PICI_OK;
}

enum pici_status pici_index_body(struct pici_index *ix, size_t i, const uint8_t **body, size_t *bytes)
{
    const struct pici_entry *e = entry_of(ix, i);
    const struct pici_table *t = table_at(ix, e->table);
    enum pici_status s = ix->body_of == e->table ? PICI_OK : unpack_table(ix, ix->bytes.p + t->entry);
    ix->body_of = s ? NO_TABLE : e->table;
    *body = ix->body.p + e->within;
    *bytes = (i + 1 < t->first + t->n ? e[1].within : t->bytes) - e->within;
    return s;
}

/* The entry of a table at p: *used bytes without its chunks. */
static enum pici_status load_table(struct pici_index *ix, const uint8_t *p, size_t len, size_t *used, const char **rule)
{
    enum pici_status s = PICI_E_CORRUPT;
    if (len < INDEX_TABLE_BYTES || load_le32(p + INDEX_TABLE_ZERO))
        return s;
    const uint64_t unpacked = load_le32(p + INDEX_TABLE_UNPACKED), bytes = load_le64(p + INDEX_TABLE_BODY);
    const uint8_t *body = p + INDEX_TABLE_BYTES;
    const size_t most = len - INDEX_TABLE_BYTES, pad = -bytes & 7;
    if (bytes > most || pad > most - bytes || !pici_all_zero(body + bytes, pad))
        return s;
    *used = INDEX_TABLE_BYTES + (size_t)bytes + pad;
    *rule = "body-length";
    if ((unpacked ? unpacked : bytes) > TABLE_MOST || (unpacked ? unpacked : bytes) < DESC_HEADER_BYTES)
        return s;
    *rule = "packed";
    if (unpacked && !pici_packed_fits(bytes, unpacked))
        return s;
    s = unpack_table(ix, p);
    if (s)
        return s;
    struct pici_buf table = ix->body; /* a table that is added has its own */
    ix->body = (struct pici_buf){0};
    s = pici_index_table(ix, table.p, table.len, rule);
    pici_buf_free(&table);
    return s;
}

/* The entry of a tensor or a table, *used bytes without its chunks, of which there are *chunks. */
static enum pici_status load_entry(struct pici_index *ix, size_t at, uint32_t version, size_t *used, uint64_t *chunks,
                                   const char **rule)
{
    const uint8_t *p = ix->bytes.p + at;
    const size_t len = ix->bytes.len - at;
    if (version > FILE_VERSION_FIRST && len > INDEX_TABLE_ZERO && !p[INDEX_TABLE_ZERO]) {
        enum pici_status s = load_table(ix, p, len, used, rule);
        if (s)
            return s;
        struct pici_table *t = table_at(ix, last_table(ix));
        t->entry = at;
        t->chunks = at + *used;
        *chunks = chunks_before(t, DTYPES);
        ix->open = 0;
        return PICI_OK;
    }
    const struct pici_entry entry = {.table = NO_TABLE, .at = at};
    struct pici_desc d;
    *rule = "description";
    if (!pici_desc_parse(&d, p + INDEX_ENTRY_BYTES, len - INDEX_ENTRY_BYTES))
        return PICI_E_CORRUPT;
    *used = INDEX_ENTRY_BYTES + d.bytes;
    *chunks = d.chunks;
    enum pici_status s = append(&ix->entries, &entry, sizeof entry);
    return s ? s : enter(ix);
}

enum pici_status pici_index_load(struct pici_index *ix, uint64_t index_offset, uint32_t version, const char **rule)
{
    const uint8_t *p = ix->bytes.p;
    size_t at = INDEX_HEADER_BYTES, len = ix->bytes.len, used;
    uint64_t n = load_le64(p), last = FILE_HEADER_BYTES, chunks;
    while (ix->n < n) {
        *rule = "index";
        if (len - at < INDEX_ENTRY_BYTES)
            return PICI_E_CORRUPT;
        uint64_t offset = load_le64(p + at);
        if (!follows(offset, last, index_offset))
            return PICI_E_CORRUPT;
        last = offset;
        enum pici_status s = load_entry(ix, at, version, &used, &chunks, rule);
        if (s)
            return s;
        *rule = "index";
        at += used;
        if (chunks > (len - at) / INDEX_CHUNK_BYTES)
            return PICI_E_CORRUPT;
        for (uint64_t c = 0; c < chunks; c++, at += INDEX_CHUNK_BYTES) {
            offset = load_le64(p + at);
            if (!follows(offset, last, index_offset))
                return PICI_E_CORRUPT;
            last = offset;
        }
    }
    *rule = "index";
    return at == len && ix->n == n ? PICI_OK : PICI_E_CORRUPT;
}

void pici_index_desc(const struct pici_index *ix, size_t i, struct pici_desc *d)
{
    const struct pici_buf *in = entry_of(ix, i)->table == NO_TABLE ? &ix->bytes : &ix->small;
    const uint8_t *p = description(ix, i);
    pici_desc_parse(d, p, in->len - (size_t)(p - in->p)); /* it was checked when it was added */
}

/* The entry of tensor i's record. */
static const uint8_t *record_of(const struct pici_index *ix, size_t i)
{
    const struct pici_entry *e = entry_of(ix, i);
    return ix->bytes.p + (e->table == NO_TABLE ? e->at : table_at(ix, e->table)->entry);
}

/* The offset of tensor i's first record; of the index if there is no such tensor. */
static uint64_t begins(const struct pici_index *ix, size_t i, uint64_t index_offset)
{
    return i < ix->n ? load_le64(record_of(ix, i)) : index_offset;
}

/* The chunks of tensor i, or of its table: where the index has them, how many, and the first tensor after them. */
static const uint8_t *chunks_of(const struct pici_index *ix, size_t i, const struct pici_desc *d, uint64_t *n,
                                size_t *after)
{
    const struct pici_entry *e = entry_of(ix, i);
    if (e->table == NO_TABLE) {
        *n = d->chunks;
        *after = i + 1;
        return ix->bytes.p + e->at + INDEX_ENTRY_BYTES + d->bytes;
    }
    const struct pici_table *t = table_at(ix, e->table);
    *n = chunks_before(t, DTYPES);
    *after = t->first + t->n;
    return ix->bytes.p + t->chunks;
}

void pici_index_blck(const struct pici_index *ix, size_t i, uint64_t c, uint64_t index_offset, struct pici_place *at)
{
    const struct pici_entry *e = entry_of(ix, i);
    struct pici_desc d;
    uint64_t n;
    size_t after;
    pici_index_desc(ix, i, &d);
    const uint8_t *p = chunks_of(ix, i, &d, &n, &after);
    if (e->table == NO_TABLE) {
        at->count = pici_desc_chunk(&d, c);
    } else {
        const struct pici_table *t = table_at(ix, e->table);
        c = chunks_before(t, d.dtype);
        at->count = t->count[d.dtype];
    }
    p += (size_t)c * INDEX_CHUNK_BYTES;
    at->offset = load_le64(p);
    at->hash = load_le64(p + 8);
    at->end = c + 1 < n ? load_le64(p + INDEX_CHUNK_BYTES) : begins(ix, after, index_offset);
}

void pici_index_tens(const struct pici_index *ix, size_t i, uint64_t index_offset, struct pici_place *at)
{
    struct pici_desc d;
    uint64_t n;
    size_t after;
    pici_index_desc(ix, i, &d);
    const uint8_t *p = record_of(ix, i), *chunks = chunks_of(ix, i, &d, &n, &after);
    at->offset = load_le64(p);
    at->hash = load_le64(p + 8);
    at->end = n ? load_le64(chunks) : begins(ix, after, index_offset);
}

uint64_t pici_index_stored(const struct pici_index *ix, size_t i, uint64_t index_offset)
{
    const struct pici_entry *e = entry_of(ix, i);
    struct pici_desc d;
    uint64_t n;
    size_t after;
    pici_index_desc(ix, i, &d);
    chunks_of(ix, i, &d, &n, &after);
    if (e->table == NO_TABLE)
        return begins(ix, after, index_offset) - begins(ix, i, index_offset);
    /* The table's records in parts, as long as the tensors' descriptions and elements are: all parts add up to it. */
    const struct pici_table *t = table_at(ix, e->table);
    const uint64_t all = begins(ix, after, index_offset) - begins(ix, i, index_offset);
    const uint64_t whole = t->bytes + t->element_bytes, from = (uint64_t)e->within + e->before;
    const uint64_t to = (i + 1 < t->first + t->n ? e[1].within : t->bytes) + e->before + d.count * d.width;
    return all * to / whole - all * from / whole;
}

void pici_index_free(struct pici_index *ix)
{
    pici_buf_free(&ix->bytes);
    pici_buf_free(&ix->entries);
    pici_buf_free(&ix->small);
    pici_buf_free(&ix->tables);
    pici_buf_free(&ix->body);
    pici_buf_free(&ix->order);
    ix->n = 0;
    ix->runs = 0;
}
