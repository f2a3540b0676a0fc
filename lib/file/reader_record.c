/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The base of the reader of .pici files: bytes from either kind of source, records, error messages. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "file/reader.h"
#include "xxh64.h"

/* ---- Error messages ---- */

static int say_where(const struct pici_reader *r, char *out, size_t cap)
{
    char quoted[PICI_QUOTE_CAP];
    struct pici_desc d;
    uint64_t at = r->where_offset, tensor = r->where_tensor;
    switch (r->where) {
    case PART_HEADER: return snprintf(out, cap, "the file header at byte %" PRIu64, at);
    case PART_META: return snprintf(out, cap, "the file's attributes at byte %" PRIu64, at);
    case PART_NEXT: return snprintf(out, cap, "the record at byte %" PRIu64, at);
    case PART_TENS:
        if (tensor >= r->index.n) /* forward: the record that has its name is the one with the fault */
            return snprintf(out, cap, "tensor %" PRIu64 " at byte %" PRIu64, tensor, at);
        pici_index_desc(&r->index, (size_t)tensor, &d);
        return snprintf(out, cap, "tensor %s at byte %" PRIu64, pici_quote(quoted, d.name, d.name_len), at);
    case PART_INDEX: return snprintf(out, cap, "the index at byte %" PRIu64, at);
    case PART_TRAILER: return snprintf(out, cap, "the trailer at byte %" PRIu64, at);
    case PART_CHUNK: break;
    }
    pici_index_desc(&r->index, (size_t)tensor, &d);
    pici_quote(quoted, d.name, d.name_len);
    const uint64_t first = r->where_chunk * d.chunk_elements;
    const struct pici_table *t = pici_index_table_of(&r->index, (size_t)tensor);
    return snprintf(out, cap, "chunk %" PRIu64 " of tensor %s (elements %" PRIu64 " to %" PRIu64 ")%s at byte %" PRIu64,
                    r->where_chunk, quoted, first, first + pici_desc_chunk(&d, r->where_chunk) - 1,
                    t && t->count[d.dtype] != d.count ? ", shared with other tensors," : "", at);
}

enum pici_status pici_reader_fail(struct pici_reader *r, enum pici_status s, const char *rule, const char *format, ...)
{
    va_list args;
    size_t cap = sizeof r->error, at = (size_t)say_where(r, r->error, cap);
    at += (size_t)snprintf(r->error + at, cap - at, ": ");
    va_start(args, format);
    int n = vsnprintf(r->error + at, cap - at, format, args);
    va_end(args);
    at += n > 0 ? (size_t)n : 0;
    if (rule && at < cap)
        snprintf(r->error + at, cap - at, " (%s)", rule);
    if (r->read)
        r->failed = s;
    return s;
}

enum pici_status pici_reader_refuse(struct pici_reader *r, enum pici_status s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(r->error, sizeof r->error, format, args);
    va_end(args);
    return s;
}

enum pici_status pici_reader_no_memory(struct pici_reader *r, const char *what)
{
    return pici_reader_fail(r, PICI_E_NOMEM, NULL, "out of memory for %s", what);
}

static enum pici_status io_error(struct pici_reader *r, int e)
{
    char why[128];
    return pici_reader_fail(r, PICI_E_IO, NULL, "read error: %s", pici_errno_text(e, why, sizeof why));
}

enum pici_status pici_reader_enter(struct pici_reader *r)
{
    if (!r)
        return PICI_E_ARG;
    if (r->failed)
        return r->failed;
    r->error[0] = '\0';
    return PICI_OK;
}

void pici_reader_look_at(struct pici_reader *r, enum pici_part part, uint64_t offset)
{
    r->where = part;
    r->where_offset = offset;
}

/* ---- Bytes ---- */

enum pici_status pici_reader_take_some(struct pici_reader *r, uint8_t *p, size_t n, size_t *got)
{
    if (r->in_at == r->in_len && n < READER_IN_BYTES) {
        r->in_at = r->in_len = 0;
        int e = r->read(r->ctx, r->in, READER_IN_BYTES, &r->in_len);
        if (e || r->in_len > READER_IN_BYTES) {
            r->in_len = 0;
            return io_error(r, e ? e : EIO);
        }
    }
    if (r->in_at == r->in_len && n >= READER_IN_BYTES) {
        int e = r->read(r->ctx, p, n, got);
        if (e || *got > n)
            return io_error(r, e ? e : EIO);
    } else {
        *got = n < r->in_len - r->in_at ? n : r->in_len - r->in_at;
        memcpy(p, r->in + r->in_at, *got);
        r->in_at += *got;
    }
    r->at += *got;
    return PICI_OK;
}

enum pici_status pici_reader_take(struct pici_reader *r, void *p, size_t n)
{
    for (size_t have = 0, got; have < n; have += got) {
        enum pici_status s = pici_reader_take_some(r, (uint8_t *)p + have, n - have, &got);
        if (s)
            return s;
        if (!got)
            return pici_reader_fail(r, PICI_E_CORRUPT, "truncated", "the file ends at byte %" PRIu64, r->at);
    }
    return PICI_OK;
}

enum pici_status pici_reader_pull(struct pici_reader *r, uint64_t offset, void *p, size_t n)
{
    if (n > r->file_bytes || offset > r->file_bytes - n)
        return pici_reader_fail(r, PICI_E_CORRUPT, "truncated", "the file ends at byte %" PRIu64, r->file_bytes);
    int e = r->read_at(r->ctx, p, n, offset);
    return e ? io_error(r, e) : PICI_OK;
}

/* ---- Records ---- */

enum pici_status pici_reader_header(struct pici_reader *r, struct pici_record *rec, uint64_t offset)
{
    uint8_t h[REC_BYTES];
    rec->offset = r->read ? r->at : offset;
    r->where_offset = rec->offset;
    enum pici_status s = r->read ? pici_reader_take(r, h, sizeof h) : pici_reader_pull(r, offset, h, sizeof h);
    if (s)
        return s;
    rec->kind = load_le32(h + REC_KIND);
    rec->body_bytes = load_le64(h + REC_BODY_BYTES);
    rec->body_hash = load_le64(h + REC_BODY_HASH);
    rec->hash = load_le64(h + REC_HASH);
    if (pici_xxh64(h, REC_HASH, 0) != rec->hash)
        return pici_reader_fail(r, PICI_E_CHECKSUM, "header-hash", "checksum mismatch in the record's header");
    rec->unpacked = load_le32(h + REC_UNPACKED);
    const int describes = rec->kind == REC_META || rec->kind == REC_TENS || rec->kind == REC_TABL;
    if (rec->unpacked && (r->version == FILE_VERSION_FIRST || !describes))
        return pici_reader_fail(r, PICI_E_CORRUPT, "kind", "bytes that must be zero are not");
    return PICI_OK;
}

/* Whether the record ends at `end`. */
static int ends_at(const struct pici_record *rec, uint64_t end)
{
    return rec->body_bytes <= end &&
           rec_bytes(rec->body_bytes) == end - rec->offset; /* the first comparison keeps rec_bytes from wrapping */
}

enum pici_status pici_reader_header_at(struct pici_reader *r, struct pici_record *rec, const struct pici_place *place)
{
    enum pici_status s = pici_reader_header(r, rec, place->offset);
    if (!s && (rec->hash != place->hash || !ends_at(rec, place->end)))
        s = pici_reader_fail(r, PICI_E_CORRUPT, "index", "not the record that the index says is here");
    return s;
}

enum pici_status pici_reader_wrong_kind(struct pici_reader *r)
{
    return pici_reader_fail(r, PICI_E_CORRUPT, "kind", "a record of a kind that cannot stand here");
}

enum pici_status pici_reader_wrong_length(struct pici_reader *r, const struct pici_record *rec)
{
    return pici_reader_fail(r, PICI_E_CORRUPT, "body-length", "a body of %" PRIu64 " bytes is out of its limits",
                            rec->body_bytes);
}

enum pici_status pici_reader_body(struct pici_reader *r, const struct pici_record *rec, struct pici_buf *body,
                                  const char *what)
{
    uint64_t all = rec_bytes(rec->body_bytes) - REC_BYTES;
    enum pici_status s = PICI_OK;
    body->len = 0;
    if (r->read) {
        while (!s && body->len < all) { /* at most as much as has been read, and 64 KiB */
            uint64_t n = all - body->len, step = (uint64_t)body->len + READER_IN_BYTES;
            n = n < step ? n : step;
            if (pici_buf_fit(body, body->len + n))
                return pici_reader_no_memory(r, what);
            s = pici_reader_take(r, body->p + body->len, (size_t)n);
            body->len += (size_t)n;
        }
    } else {
        if (pici_buf_fit(body, all))
            return pici_reader_no_memory(r, what);
        s = pici_reader_pull(r, rec->offset + REC_BYTES, body->p, (size_t)all);
    }
    if (s)
        return s;
    body->len = (size_t)rec->body_bytes;
    if (!pici_all_zero(body->p + body->len, (size_t)all - body->len))
        return pici_reader_fail(r, PICI_E_CORRUPT, "padding", "bytes that must be zero are not");
    return PICI_OK;
}
