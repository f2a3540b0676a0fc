/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading a .pici file: opening, tensors and their attributes, the index. A forward reader builds the index that the
 * records before it give, and compares. */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/reader.h"
#include "codec/parallel.h"
#include "xxh64.h"

enum { LEAST_FILE = FILE_HEADER_BYTES + 2 * REC_LEAST + TRAILER_BYTES };

/* A META or TENS record's body, its hash checked. */
static enum pici_status described(struct pici_reader *r, const struct pici_record *rec, uint64_t least, uint64_t most,
                                  struct pici_buf *body)
{
    if (rec->body_bytes < least || rec->body_bytes > most)
        return pici_reader_wrong_length(r, rec);
    enum pici_status s = pici_reader_body(r, rec, body);
    if (!s && pici_xxh64(body->p, body->len, 0) != rec->body_hash)
        s = pici_reader_fail(r, PICI_E_CHECKSUM, "body-hash", "checksum mismatch");
    return s;
}

static enum pici_status attributes(struct pici_reader *r, struct pici_attrs *a, size_t from, uint32_t n)
{
    enum pici_status s = pici_attrs_parse(a, from, n);
    if (s == PICI_E_CORRUPT)
        return pici_reader_fail(r, s, "attributes", "the attributes are not as they must be");
    return s ? pici_reader_no_memory(r) : PICI_OK;
}

static enum pici_status read_meta(struct pici_reader *r, const struct pici_place *place, uint64_t *hash)
{
    struct pici_record rec;
    pici_reader_look_at(r, PART_META, FILE_HEADER_BYTES);
    enum pici_status s = place ? pici_reader_header_at(r, &rec, place) : pici_reader_header(r, &rec, 0);
    if (!s && rec.kind != REC_META)
        s = pici_reader_wrong_kind(r);
    if (!s)
        s = described(r, &rec, META_HEADER_BYTES, PICI_FILE_META_MAX, &r->file_attrs.body);
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

/* The body of tensor i's TENS record to r->attrs, checked. */
static enum pici_status read_tens(struct pici_reader *r, const struct pici_record *rec, uint64_t i, struct pici_desc *d)
{
    struct pici_buf *body = &r->attrs.body;
    r->attrs_of = PICI_FILE;
    enum pici_status s = described(r, rec, DESC_HEADER_BYTES, PICI_TENSOR_META_MAX, body);
    if (s)
        return s;
    if (!pici_desc_parse(d, body->p, body->len))
        return pici_reader_fail(r, PICI_E_CORRUPT, "description", "the description is not as it must be");
    s = attributes(r, &r->attrs, d->bytes, d->n_attrs);
    if (!s)
        r->attrs_of = i;
    return s;
}

static enum pici_status read_file_header(struct pici_reader *r)
{
    uint8_t h[FILE_HEADER_BYTES];
    pici_reader_look_at(r, PART_HEADER, 0);
    enum pici_status s = r->read ? pici_reader_take(r, h, sizeof h) : pici_reader_pull(r, 0, h, sizeof h);
    if (s)
        return s;
    if (memcmp(h, FILE_MAGIC, 8) != 0)
        return pici_reader_fail(r, PICI_E_CORRUPT, "magic", "not a .pici file");
    if (load_le32(h + FILE_VERSION_AT) != FILE_VERSION)
        return pici_reader_fail(r, PICI_E_VERSION, "version", "version %" PRIu32 " of the format is unknown here",
                                load_le32(h + FILE_VERSION_AT));
    if (load_le32(h + FILE_RESERVED_AT))
        return pici_reader_fail(r, PICI_E_CORRUPT, "reserved", "bytes that must be zero are not");
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

/* Forward: the INDX record against what was seen, without keeping it. */
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

static enum pici_status end(struct pici_reader *r, const struct pici_record *rec)
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

static enum pici_status read_index(struct pici_reader *r)
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
        s = pici_reader_body(r, &rec, &r->index.bytes);
    if (!s && pici_xxh64(r->index.bytes.p, r->index.bytes.len, 0) != rec.body_hash)
        s = pici_reader_fail(r, PICI_E_CHECKSUM, "body-hash", "checksum mismatch");
    if (s)
        return s;
    s = pici_index_load(&r->index, at, &rule);
    if (s)
        return s == PICI_E_NOMEM ? pici_reader_no_memory(r)
                                 : pici_reader_fail(r, s, rule, "the index is not as it must be");
    return check_names(r);
}

/* ---- Opening ---- */

static enum pici_status fill(struct pici_reader *r, const struct pici_reader_opts *opts)
{
    static const struct pici_reader_opts defaults = PICI_READER_OPTS_INIT;
    const struct pici_reader_opts *o = opts ? opts : &defaults;
    r->current = r->attrs_of = r->part.tensor = PICI_FILE;
    if (o->size != sizeof *o || o->threads < 0)
        return pici_reader_fail(r, PICI_E_ARG, NULL, "options are not initialized, or threads are negative");
    r->threads = o->threads;
    r->slots = pici_thread_count(o->threads, UINT64_MAX);
    r->chunks = calloc((size_t)r->slots, sizeof *r->chunks);
    if (r->chunks && r->read)
        r->in = malloc(READER_IN_BYTES);
    return r->chunks && (r->in || !r->read) ? PICI_OK : pici_reader_no_memory(r);
}

static enum pici_status start(struct pici_reader *r, const struct pici_reader_opts *opts)
{
    enum pici_status s = fill(r, opts);
    if (!s && r->read_at && r->file_bytes < LEAST_FILE && r->file_bytes >= FILE_HEADER_BYTES) {
        s = read_file_header(r); /* says more, if it is no such file at all */
        if (!s)
            s = pici_reader_fail(r, PICI_E_CORRUPT, "truncated", "the file ends at byte %" PRIu64, r->file_bytes);
    } else if (!s) {
        s = read_file_header(r);
    }
    if (!s && r->read_at) {
        s = read_index(r);
    } else if (!s) {
        uint64_t hash;
        s = read_meta(r, NULL, &hash);
        if (!s && pici_index_begin(&r->index, hash))
            s = pici_reader_no_memory(r);
    }
    r->failed = s;
    return s;
}

/* A reader, if the arguments are good and there is memory; else *out is null. */
static struct pici_reader *make(struct pici_reader **out, int good)
{
    return out ? *out = good ? calloc(1, sizeof **out) : NULL : NULL;
}

enum pici_status pici_reader_open_stream(struct pici_reader **out, pici_read_fn read, void *ctx,
                                         const struct pici_reader_opts *opts)
{
    struct pici_reader *r = make(out, read != NULL);
    if (!r)
        return out && read ? PICI_E_NOMEM : PICI_E_ARG;
    r->read = read;
    r->ctx = ctx;
    return start(r, opts);
}

enum pici_status pici_reader_open_fd(struct pici_reader **out, int fd, const struct pici_reader_opts *opts)
{
    struct pici_reader *r = make(out, 1);
    if (!r)
        return out ? PICI_E_NOMEM : PICI_E_ARG;
    r->read = pici_fd_read;
    r->fd = fd;
    r->ctx = &r->fd;
    return start(r, opts);
}

enum pici_status pici_reader_open_at(struct pici_reader **out, pici_read_at_fn read_at, void *ctx, uint64_t file_bytes,
                                     const struct pici_reader_opts *opts)
{
    int good = read_at && file_bytes <= INT64_MAX;
    struct pici_reader *r = make(out, good);
    if (!r)
        return out && good ? PICI_E_NOMEM : PICI_E_ARG;
    r->read_at = read_at;
    r->ctx = ctx;
    r->file_bytes = file_bytes;
    return start(r, opts);
}

static int memory_read_at(void *ctx, void *p, size_t n, uint64_t offset)
{
    const struct pici_reader *r = ctx;
    memcpy(p, r->memory + (size_t)offset, n);
    return 0;
}

enum pici_status pici_reader_open_memory(struct pici_reader **out, const void *file, size_t len,
                                         const struct pici_reader_opts *opts)
{
    struct pici_reader *r = make(out, file || !len);
    if (!r)
        return out && (file || !len) ? PICI_E_NOMEM : PICI_E_ARG;
    r->memory = file;
    r->read_at = memory_read_at;
    r->ctx = r;
    r->file_bytes = len;
    return start(r, opts);
}

enum pici_status pici_reader_open_path(struct pici_reader **out, const char *path, const struct pici_reader_opts *opts)
{
    struct pici_reader *r = make(out, path != NULL);
    struct stat st;
    if (!r)
        return out && path ? PICI_E_NOMEM : PICI_E_ARG;
    r->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* not to wait at a FIFO */
    if (r->fd < 0 || fstat(r->fd, &st) != 0) {
        const int e = errno;
        snprintf(r->error, sizeof r->error, "cannot open: ");
        pici_errno_text(e, r->error + strlen(r->error), sizeof r->error - strlen(r->error));
        if (r->fd >= 0)
            close(r->fd);
        errno = e;
        return r->failed = PICI_E_IO;
    }
    r->own_fd = 1;
    if (!S_ISREG(st.st_mode))
        return r->failed = pici_reader_fail(r, PICI_E_ARG, NULL, "not a regular file");
    r->read_at = pici_fd_read_at;
    r->ctx = &r->fd;
    r->file_bytes = (uint64_t)st.st_size;
    return start(r, opts);
}

void pici_reader_close(struct pici_reader *r)
{
    if (!r)
        return;
    for (int i = 0; r->chunks && i < r->slots; i++)
        pici_chunk_free(&r->chunks[i]);
    pici_chunk_free(&r->part);
    free(r->chunks);
    free(r->in);
    pici_index_free(&r->index);
    pici_attrs_free(&r->file_attrs);
    pici_attrs_free(&r->attrs);
    if (r->own_fd)
        close(r->fd);
    free(r);
}

const char *pici_reader_error(const struct pici_reader *r)
{
    return r ? r->error : "out of memory, or a wrong argument";
}

uint64_t pici_reader_error_offset(const struct pici_reader *r)
{
    return r ? r->where_offset : 0;
}

/* ---- Tensors ---- */

static void tell(const struct pici_reader *r, size_t i, struct pici_tensor_info *t)
{
    struct pici_desc d;
    if (r->read)
        pici_desc_parse(&d, r->attrs.body.p, r->attrs.body.len); /* stays where it is, as the index does not */
    else
        pici_index_desc(&r->index, i, &d);
    *t = (struct pici_tensor_info){.size = sizeof *t,
                                   .index = i,
                                   .name = d.name,
                                   .name_len = d.name_len,
                                   .dtype = d.dtype,
                                   .rank = d.rank,
                                   .count = d.count,
                                   .chunk_elements = d.chunk_elements,
                                   .chunks = d.chunks,
                                   .attrs = d.n_attrs};
    for (unsigned k = 0; k < d.rank; k++)
        t->shape[k] = load_le64(d.shape + 8 * k);
    if (!r->read) {
        struct pici_place first, last;
        pici_index_tens(&r->index, i, r->index_offset, &first);
        last = first;
        if (d.chunks)
            pici_index_blck(&r->index, i, d.chunks - 1, r->index_offset, &last);
        t->stored_bytes = last.end - first.offset;
    }
}

/* Forward: the record after the last tensor's. */
static enum pici_status next_record(struct pici_reader *r, struct pici_tensor_info *t, int *more)
{
    struct pici_record rec;
    struct pici_desc d;
    uint64_t i = r->index.n;
    pici_reader_look_at(r, PART_NEXT, r->at);
    enum pici_status s = pici_reader_header(r, &rec, 0);
    if (s)
        return s;
    if (rec.kind == REC_INDX) {
        pici_reader_look_at(r, PART_INDEX, rec.offset);
        r->current = PICI_FILE;
        return end(r, &rec);
    }
    if (rec.kind != REC_TENS)
        return pici_reader_wrong_kind(r);
    pici_reader_look_at(r, PART_TENS, rec.offset);
    r->where_tensor = i;
    s = read_tens(r, &rec, i, &d);
    if (s)
        return s;
    if (pici_index_tensor(&r->index, rec.offset, rec.hash, r->attrs.body.p, d.bytes))
        return pici_reader_no_memory(r);
    r->current = i;
    r->pos = 0;
    tell(r, (size_t)i, t);
    *more = 1;
    return PICI_OK;
}

enum pici_status pici_reader_next(struct pici_reader *r, struct pici_tensor_info *t, int *more)
{
    enum pici_status s = pici_reader_enter(r);
    if (s)
        return s;
    if (!t || !more || t->size != sizeof *t)
        return pici_reader_fail(r, PICI_E_ARG, NULL, "null, or not initialized");
    *more = 0;
    if (r->ended)
        return PICI_OK;
    if (r->read) {
        s = pici_reader_pass(r);
        return s ? s : next_record(r, t, more);
    }
    uint64_t i = r->current == PICI_FILE ? 0 : r->current + 1;
    if (i == r->index.n) {
        r->current = PICI_FILE;
        r->ended = 1;
        return PICI_OK;
    }
    r->current = i;
    r->pos = 0;
    tell(r, (size_t)i, t);
    *more = 1;
    return PICI_OK;
}

static enum pici_status enter_random(struct pici_reader *r)
{
    enum pici_status s = pici_reader_enter(r);
    if (!s && r->read)
        s = pici_reader_fail(r, PICI_E_ARG, NULL, "a forward reader has no random access");
    return s;
}

enum pici_status pici_reader_count(struct pici_reader *r, uint64_t *tensors)
{
    enum pici_status s = enter_random(r);
    if (!s && !tensors)
        s = pici_reader_fail(r, PICI_E_ARG, NULL, "null");
    if (!s)
        *tensors = r->index.n;
    return s;
}

enum pici_status pici_reader_tensor(struct pici_reader *r, uint64_t i, struct pici_tensor_info *t)
{
    enum pici_status s = enter_random(r);
    if (s)
        return s;
    if (!t || t->size != sizeof *t)
        return pici_reader_fail(r, PICI_E_ARG, NULL, "null, or not initialized");
    if (i >= r->index.n)
        return pici_reader_fail(r, PICI_E_ARG, NULL, "no tensor %" PRIu64 ": there are %zu", i, r->index.n);
    tell(r, (size_t)i, t);
    return PICI_OK;
}

enum pici_status pici_reader_find(struct pici_reader *r, const char *name, size_t name_len, struct pici_tensor_info *t)
{
    char quoted[PICI_QUOTE_CAP];
    size_t i;
    enum pici_status s = enter_random(r);
    if (s)
        return s;
    if (!t || t->size != sizeof *t || (name_len && !name))
        return pici_reader_fail(r, PICI_E_ARG, NULL, "null, or not initialized");
    if (!pici_index_find(&r->index, name, name_len, &i))
        return pici_reader_fail(r, PICI_E_ARG, NULL, "no tensor is named %s", pici_quote(quoted, name, name_len));
    tell(r, i, t);
    return PICI_OK;
}

/* ---- Attributes ---- */

static enum pici_status load_attrs(struct pici_reader *r, uint64_t i)
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
        return read_meta(r, &place, &hash);
    }
    pici_index_tens(&r->index, (size_t)i, r->index_offset, &place);
    pici_reader_look_at(r, PART_TENS, place.offset);
    r->where_tensor = i;
    enum pici_status s = pici_reader_header_at(r, &rec, &place);
    if (!s && rec.kind != REC_TENS)
        s = pici_reader_wrong_kind(r);
    if (!s)
        s = read_tens(r, &rec, i, &seen);
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

/* The attributes of tensor i or the file. */
static enum pici_status attrs_of(struct pici_reader *r, uint64_t i, const struct pici_attrs **a)
{
    enum pici_status s = pici_reader_enter(r);
    if (s)
        return s;
    int have = i == PICI_FILE ? r->have_file_attrs : r->attrs_of == i;
    if (!have && (r->read || (i != PICI_FILE && i >= r->index.n)))
        return pici_reader_fail(r, PICI_E_ARG, NULL,
                                "no tensor %" PRIu64 ", or not the current one of a forward reader", i);
    if (!have)
        s = load_attrs(r, i);
    *a = i == PICI_FILE ? &r->file_attrs : &r->attrs;
    return s;
}

enum pici_status pici_reader_attr(struct pici_reader *r, uint64_t i, const char *key, struct pici_attr *out)
{
    const struct pici_attrs *a;
    uint32_t n;
    enum pici_status s = attrs_of(r, i, &a);
    if (s)
        return s;
    if (!key || !out)
        return pici_reader_fail(r, PICI_E_ARG, NULL, "null");
    *out = (struct pici_attr){NULL, NULL, 0};
    if (pici_attrs_find(a, key, &n))
        pici_attrs_get(a, n, out);
    return PICI_OK;
}

enum pici_status pici_reader_attr_at(struct pici_reader *r, uint64_t i, uint32_t number, struct pici_attr *out)
{
    const struct pici_attrs *a;
    enum pici_status s = attrs_of(r, i, &a);
    if (s)
        return s;
    if (!out || number >= a->n)
        return pici_reader_fail(r, PICI_E_ARG, NULL, "no attribute %" PRIu32 ": there are %" PRIu32, number, a->n);
    pici_attrs_get(a, number, out);
    return PICI_OK;
}

enum pici_status pici_reader_attr_count(struct pici_reader *r, uint64_t i, uint32_t *n)
{
    const struct pici_attrs *a;
    enum pici_status s = attrs_of(r, i, &a);
    if (!s && !n)
        s = pici_reader_fail(r, PICI_E_ARG, NULL, "null");
    if (!s)
        *n = a->n;
    return s;
}
