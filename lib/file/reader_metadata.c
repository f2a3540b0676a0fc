/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading what describes a .pici file: the file header, the attributes, the index, the trailer. A forward reader builds
 * the index of the records that it reads, and compares it with the one in the file. */
#include <string.h>

#include "file/pack.h"
#include "file/reader.h"
#include "xxh64.h"

/* The body of a META, TENS or TABL record, unpacked; checks its hash. A packed one is kept in r->packed. */
static enum pici_status described(struct pici_reader *r, const struct pici_record *rec, uint64_t least, uint64_t most,
                                  struct pici_buf *body, const char *what)
{
    struct pici_buf *stored = rec->unpacked ? &r->packed : body;
    const uint64_t len = rec->unpacked ? rec->unpacked : rec->body_bytes;
    if (len < least || len > most || rec->body_bytes > most)
        return pici_reader_wrong_length(r, rec);
    if (rec->unpacked && !pici_packed_fits(rec->body_bytes, len))
        return pici_reader_fail(r, PICI_E_CORRUPT, "packed", "%" PRIu64 " bytes cannot stand for %" PRIu64,
                                rec->body_bytes, len);
    enum pici_status s = pici_reader_body(r, rec, stored, what);
    if (!s && pici_xxh64(stored->p, stored->len, 0) != rec->body_hash)
        s = pici_reader_fail(r, PICI_E_CHECKSUM, "body-hash", "checksum mismatch");
    if (s || !rec->unpacked)
        return s;
    if (pici_buf_fit(body, len))
        return pici_reader_no_memory(r, what);
    body->len = (size_t)len;
    return pici_unpack(body->p, body->len, stored->p, stored->len)
               ? PICI_OK
               : pici_reader_fail(r, PICI_E_CORRUPT, "packed", "not an LZ4 block of %" PRIu64 " bytes", len);
}

static enum pici_status attributes(struct pici_reader *r, struct pici_attrs *a, size_t from, uint32_t n)
{
    enum pici_status s = pici_attrs_parse(a, from, n);
    if (s == PICI_E_CORRUPT)
        return pici_reader_fail(r, s, "attributes", "the attributes are not as they must be");
    return s ? pici_reader_no_memory(r, "the attributes") : PICI_OK;
}

enum pici_status pici_reader_meta(struct pici_reader *r, const struct pici_place *place, uint64_t *hash)
{
    struct pici_record rec;
    pici_reader_look_at(r, PART_META, FILE_HEADER_BYTES);
    enum pici_status s = place ? pici_reader_header_at(r, &rec, place) : pici_reader_header(r, &rec, 0);
    if (!s && rec.kind != REC_META)
        s = pici_reader_wrong_kind(r);
    if (!s)
        s = described(r, &rec, META_HEADER_BYTES, PICI_FILE_META_MAX, &r->file_attrs.body, "the file's attributes");
    if (s)
        return s;
    const uint8_t *p = r->file_attrs.body.p;
    if (load_le32(p + 4))
        return pici_reader_fail(r, PICI_E_CORRUPT, "attributes", "bytes that must be zero are not");
    *hash = rec.hash;
    s = attributes(r, &r->file_attrs, META_HEADER_BYTES, load_le32(p));
    r->have_file_attrs = !s;
    return s;
}

enum pici_status pici_reader_tens(struct pici_reader *r, const struct pici_record *rec, uint64_t i, struct pici_desc *d)
{
    struct pici_buf *body = &r->attrs.body;
    r->attrs_of = PICI_FILE;
    enum pici_status s = described(r, rec, DESC_HEADER_BYTES, PICI_TENSOR_META_MAX, body, "the tensor's attributes");
    if (s)
        return s;
    if (!pici_desc_parse(d, body->p, body->len))
        return pici_reader_fail(r, PICI_E_CORRUPT, "description", "the description is not as it must be");
    s = attributes(r, &r->attrs, d->bytes, d->n_attrs);
    if (!s)
        r->attrs_of = i;
    return s;
}

enum pici_status pici_reader_table(struct pici_reader *r, const struct pici_record *rec)
{
    struct pici_buf *table = &r->attrs.body; /* no tensor is the current one yet */
    const char *rule;
    r->attrs_of = PICI_FILE;
    enum pici_status s = described(r, rec, DESC_HEADER_BYTES, TABLE_MOST, table, "the tensors' descriptions");
    if (s)
        return s;
    const struct pici_buf *stored = rec->unpacked ? &r->packed : table;
    s = pici_index_table(&r->index, table->p, table->len, &rule);
    if (s == PICI_E_CORRUPT)
        return pici_reader_fail(r, s, rule, "the table is not as it must be");
    if (!s)
        s = pici_index_close(&r->index, rec->offset, rec->hash, stored->p, stored->len, rec->unpacked);
    r->have_elements = 0;
    return s ? pici_reader_no_memory(r, "the index") : PICI_OK;
}

enum pici_status pici_reader_small(struct pici_reader *r, uint64_t i)
{
    size_t bytes;
    struct pici_desc d;
    const uint8_t *body;
    r->attrs_of = PICI_FILE;
    if (pici_index_body(&r->index, (size_t)i, &body, &bytes) || pici_buf_fit(&r->attrs.body, bytes))
        return pici_reader_no_memory(r, "the tensor's attributes");
    memcpy(r->attrs.body.p, body, bytes);
    r->attrs.body.len = bytes;
    pici_desc_parse(&d, body, bytes);
    enum pici_status s = attributes(r, &r->attrs, d.bytes, d.n_attrs);
    if (!s)
        r->attrs_of = i;
    return s;
}

enum pici_status pici_reader_file_header(struct pici_reader *r)
{
    uint8_t h[FILE_HEADER_BYTES];
    pici_reader_look_at(r, PART_HEADER, 0);
    enum pici_status s = r->read ? pici_reader_take(r, h, sizeof h) : pici_reader_pull(r, 0, h, sizeof h);
    if (s)
        return s;
    if (memcmp(h, FILE_MAGIC, 8) != 0)
        return pici_reader_fail(r, PICI_E_CORRUPT, "magic", "not a .pici file");
    r->version = load_le32(h + FILE_VERSION_AT);
    if (r->version < FILE_VERSION_FIRST || r->version > FILE_VERSION)
        return pici_reader_fail(r, PICI_E_VERSION, "version", "version %" PRIu32 " of the format is unknown here",
                                r->version);
    if (load_le32(h + FILE_RESERVED_AT))
        return pici_reader_fail(r, PICI_E_CORRUPT, "reserved", "bytes that must be zero are not");
    return PICI_OK;
}

/* Random access: the TABL record at place must be what the index says. */
static enum pici_status check_table(struct pici_reader *r, const struct pici_table *table,
                                    const struct pici_place *place)
{
    const uint8_t *known = r->index.bytes.p + table->entry;
    struct pici_record rec;
    struct pici_buf *body = &r->packed;
    enum pici_status s = pici_reader_header_at(r, &rec, place);
    if (!s && rec.kind != REC_TABL)
        s = pici_reader_wrong_kind(r);
    const uint64_t bytes = load_le64(known + INDEX_TABLE_BODY);
    int same = !s && rec.body_bytes == bytes && rec.unpacked == load_le32(known + INDEX_TABLE_UNPACKED);
    if (same)
        s = pici_reader_body(r, &rec, body, "the tensors' descriptions");
    if (!s && same && pici_xxh64(body->p, body->len, 0) != rec.body_hash)
        s = pici_reader_fail(r, PICI_E_CHECKSUM, "body-hash", "checksum mismatch");
    if (s)
        return s;
    same = same && memcmp(body->p, known + INDEX_TABLE_BYTES, body->len) == 0;
    r->checked = same ? table : NULL;
    return same ? PICI_OK : pici_reader_fail(r, PICI_E_CORRUPT, "index", "not as the index describes the tensors");
}

enum pici_status pici_reader_load_attrs(struct pici_reader *r, uint64_t i)
{
    struct pici_place place;
    struct pici_record rec;
    struct pici_desc seen, known;
    uint64_t hash;
    if (i == PICI_FILE) {
        place = (struct pici_place){.offset = FILE_HEADER_BYTES, .end = r->index_offset};
        place.hash = load_le64(r->index.bytes.p + 8);
        if (r->index.n) {
            struct pici_place first;
            pici_index_tens(&r->index, 0, r->index_offset, &first);
            place.end = first.offset;
        }
        return pici_reader_meta(r, &place, &hash);
    }
    pici_index_tens(&r->index, (size_t)i, r->index_offset, &place);
    pici_reader_look_at(r, PART_TENS, place.offset);
    r->where_tensor = i;
    const struct pici_table *table = pici_index_table_of(&r->index, (size_t)i);
    if (table) {
        enum pici_status bad = table == r->checked ? PICI_OK : check_table(r, table, &place);
        return bad ? bad : pici_reader_small(r, i);
    }
    enum pici_status s = pici_reader_header_at(r, &rec, &place);
    if (!s && rec.kind != REC_TENS)
        s = pici_reader_wrong_kind(r);
    if (!s)
        s = pici_reader_tens(r, &rec, i, &seen);
    if (s)
        return s;
    pici_index_desc(&r->index, (size_t)i, &known);
    if (seen.bytes != known.bytes ||
        memcmp(seen.shape - DESC_HEADER_BYTES, known.shape - DESC_HEADER_BYTES, seen.bytes) != 0) {
        r->attrs_of = PICI_FILE;
        return pici_reader_fail(r, PICI_E_CORRUPT, "index", "not as the index describes the tensor");
    }
    return PICI_OK;
}

/* ---- The end of the file ---- */

static enum pici_status check_trailer(struct pici_reader *r, const uint8_t *t)
{
    if (memcmp(t + TRAILER_MAGIC, FILE_END_MAGIC, 8) != 0)
        return pici_reader_fail(r, PICI_E_CORRUPT, "trailer-magic", "the file does not end as a .pici file does");
    if (pici_xxh64(t, TRAILER_HASH, 0) != load_le64(t + TRAILER_HASH))
        return pici_reader_fail(r, PICI_E_CHECKSUM, "trailer-hash", "checksum mismatch");
    return PICI_OK;
}

static enum pici_status wrong_trailer(struct pici_reader *r)
{
    return pici_reader_fail(r, PICI_E_CORRUPT, "trailer", "the trailer does not fit the index");
}

static enum pici_status check_names(struct pici_reader *r)
{
    size_t i;
    if (pici_index_unique(&r->index, &i))
        return PICI_OK;
    struct pici_desc d;
    char quoted[PICI_QUOTE_CAP];
    pici_index_desc(&r->index, i, &d);
    return pici_reader_fail(r, PICI_E_CORRUPT, "name", "two tensors are named %s",
                            pici_quote(quoted, d.name, d.name_len));
}

/* Forward: compare the INDX record with the index of the records before it. */
static enum pici_status compare_index(struct pici_reader *r, const struct pici_record *rec)
{
    const struct pici_buf *want = &r->index.bytes;
    uint8_t piece[4096];
    struct pici_xxh64 h;
    int same = 1;
    if (rec->body_bytes != want->len)
        return pici_reader_wrong_length(r, rec);
    pici_xxh64_init(&h, 0);
    for (size_t at = 0; at < want->len; at += sizeof piece) {
        size_t n = want->len - at < sizeof piece ? want->len - at : sizeof piece;
        enum pici_status s = pici_reader_take(r, piece, n);
        if (s)
            return s;
        pici_xxh64_update(&h, piece, n);
        same = same && memcmp(piece, want->p + at, n) == 0;
    }
    size_t pad = -want->len & 15;
    enum pici_status s = pici_reader_take(r, piece, pad);
    if (s)
        return s;
    if (!pici_all_zero(piece, pad))
        return pici_reader_fail(r, PICI_E_CORRUPT, "padding", "bytes that must be zero are not");
    if (pici_xxh64_digest(&h) != rec->body_hash)
        return pici_reader_fail(r, PICI_E_CHECKSUM, "body-hash", "checksum mismatch");
    s = check_names(r);
    if (!s && !same)
        s = pici_reader_fail(r, PICI_E_CORRUPT, "index", "the index is not that of the records before it");
    return s;
}

enum pici_status pici_reader_end(struct pici_reader *r, const struct pici_record *rec)
{
    uint8_t t[TRAILER_BYTES], more;
    size_t got;
    enum pici_status s = compare_index(r, rec);
    if (s)
        return s;
    pici_reader_look_at(r, PART_TRAILER, r->at);
    s = pici_reader_take(r, t, sizeof t);
    if (!s)
        s = check_trailer(r, t);
    if (!s && (load_le64(t + TRAILER_INDEX) != rec->offset || load_le64(t + TRAILER_INDEX_HASH) != rec->hash))
        s = wrong_trailer(r);
    if (!s)
        s = pici_reader_take_some(r, &more, 1, &got);
    if (!s && got)
        s = pici_reader_fail(r, PICI_E_CORRUPT, "trailing", "more bytes follow");
    r->ended = !s;
    return s;
}

enum pici_status pici_reader_index(struct pici_reader *r)
{
    uint8_t t[TRAILER_BYTES];
    uint64_t trailer = r->file_bytes - TRAILER_BYTES;
    struct pici_record rec;
    const char *rule;
    pici_reader_look_at(r, PART_TRAILER, trailer);
    enum pici_status s = pici_reader_pull(r, trailer, t, sizeof t);
    if (!s)
        s = check_trailer(r, t);
    if (s)
        return s;
    uint64_t at = r->index_offset = load_le64(t + TRAILER_INDEX);
    if (at % 16 || at < FILE_HEADER_BYTES + REC_LEAST || at > trailer - REC_LEAST)
        return wrong_trailer(r);
    pici_reader_look_at(r, PART_INDEX, at);
    s = pici_reader_header(r, &rec, at);
    if (!s && rec.kind != REC_INDX)
        s = pici_reader_wrong_kind(r);
    if (!s && rec.hash != load_le64(t + TRAILER_INDEX_HASH))
        s = wrong_trailer(r);
    if (!s &&
        (rec.body_bytes < INDEX_HEADER_BYTES || rec.body_bytes > trailer || rec_bytes(rec.body_bytes) != trailer - at))
        s = pici_reader_wrong_length(r, &rec);
    if (!s)
        s = pici_reader_body(r, &rec, &r->index.bytes, "the index");
    if (!s && pici_xxh64(r->index.bytes.p, r->index.bytes.len, 0) != rec.body_hash)
        s = pici_reader_fail(r, PICI_E_CHECKSUM, "body-hash", "checksum mismatch");
    if (s)
        return s;
    s = pici_index_load(&r->index, at, r->version, &rule);
    if (s)
        return s == PICI_E_NOMEM ? pici_reader_no_memory(r, "the names in the index")
                                 : pici_reader_fail(r, s, rule, "the index is not as it must be");
    return check_names(r);
}
