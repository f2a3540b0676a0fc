/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A reader of .pici files: opening and closing, tensors and their attributes. */
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
#include "sized.h"

enum { LEAST_FILE = FILE_HEADER_BYTES + 2 * REC_LEAST + TRAILER_BYTES };

/* ---- Opening ---- */

static enum pici_status fill(struct pici_reader *r, const struct pici_reader_opts *opts)
{
    struct pici_reader_opts o = PICI_READER_OPTS_INIT;
    r->current = r->attrs_of = r->part.tensor = PICI_FILE;
    enum pici_status s = opts ? sized_read(&o, sizeof o, sizeof o, opts) : PICI_OK;
    if (s == PICI_E_UNSUPPORTED)
        return pici_reader_refuse(r, s, "options of a newer version are set");
    if (s || o.threads < 0)
        return pici_reader_refuse(r, PICI_E_ARG, "options are not initialized, or threads are negative");
    r->threads = o.threads;
    r->slots = pici_thread_count(o.threads, UINT64_MAX);
    r->chunks = calloc((size_t)r->slots, sizeof *r->chunks);
    if (r->chunks && r->read)
        r->in = malloc(READER_IN_BYTES);
    return r->chunks && (r->in || !r->read) ? PICI_OK : pici_reader_no_memory(r, "the reader");
}

static enum pici_status start(struct pici_reader *r, const struct pici_reader_opts *opts)
{
    enum pici_status s = fill(r, opts);
    if (!s && r->read_at && r->file_bytes < LEAST_FILE && r->file_bytes >= FILE_HEADER_BYTES) {
        s = pici_reader_file_header(r); /* its message is better if this is another kind of file */
        if (!s)
            s = pici_reader_fail(r, PICI_E_CORRUPT, "truncated", "the file ends at byte %" PRIu64, r->file_bytes);
    } else if (!s) {
        s = pici_reader_file_header(r);
    }
    if (!s && r->read_at) {
        s = pici_reader_index(r);
    } else if (!s) {
        uint64_t hash;
        s = pici_reader_meta(r, NULL, &hash);
        if (!s && pici_index_begin(&r->index, hash))
            s = pici_reader_no_memory(r, "the index");
    }
    r->failed = s;
    return s;
}

/* Allocate a reader. *out is null if the arguments are wrong or there is no memory. */
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
    r->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a FIFO would block */
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
        return r->failed = pici_reader_refuse(r, PICI_E_ARG, "not a regular file");
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
    for (int i = 0; r->common && i < DTYPES; i++)
        pici_chunk_free(&r->common[i]);
    pici_chunk_free(&r->part);
    free(r->chunks);
    free(r->common);
    pici_buf_free(&r->packed);
    pici_buf_free(&r->elements);
    free(r->in);
    pici_index_free(&r->index);
    pici_attrs_free(&r->file_attrs);
    pici_attrs_free(&r->attrs);
    free(r->views.at);
    free(r->views.names);
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

/* What the file says of tensor i, to the caller's struct, which may be of another version. */
static enum pici_status give_info(const struct pici_reader *r, size_t i, struct pici_tensor_info *to)
{
    struct pici_tensor_info t;
    struct pici_desc d;
    if (r->read)
        pici_desc_parse(&d, r->attrs.body.p, r->attrs.body.len); /* the index moves when it grows; this stays */
    else
        pici_index_desc(&r->index, i, &d);
    t = (struct pici_tensor_info){.size = sizeof t,
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
        t.shape[k] = load_le64(d.shape + 8 * k);
    if (!r->read)
        t.stored_bytes = pici_index_stored(&r->index, i, r->index_offset);
    return sized_write(to, &t, sizeof t, sizeof t);
}

/* Forward: tensor i is the current one, and its description in r->attrs. */
static enum pici_status make_current(struct pici_reader *r, uint64_t i, struct pici_tensor_info *t, int *more)
{
    r->current = i;
    r->pos = 0;
    *more = 1;
    return give_info(r, (size_t)i, t);
}

/* Forward: the record after the current tensor. */
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
        return pici_reader_end(r, &rec);
    }
    const int table = rec.kind == REC_TABL && r->version > FILE_VERSION_FIRST;
    if (rec.kind != REC_TENS && !table)
        return pici_reader_wrong_kind(r);
    pici_reader_look_at(r, PART_TENS, rec.offset);
    r->where_tensor = i;
    if (table) {
        s = pici_reader_table(r, &rec);
        if (!s)
            s = pici_reader_small(r, i);
    } else {
        s = pici_reader_tens(r, &rec, i, &d);
        if (!s && pici_index_tensor(&r->index, rec.offset, rec.hash, r->attrs.body.p, d.bytes))
            s = pici_reader_no_memory(r, "the index");
    }
    return s ? s : make_current(r, i, t, more);
}

enum pici_status pici_reader_next(struct pici_reader *r, struct pici_tensor_info *t, int *more)
{
    enum pici_status s = pici_reader_enter(r);
    if (s)
        return s;
    if (!t || !more || sized_of(t) < sizeof *t)
        return pici_reader_refuse(r, PICI_E_ARG, "null, or not initialized");
    *more = 0;
    if (r->ended)
        return PICI_OK;
    if (r->read) {
        s = pici_reader_pass(r);
        if (s || r->current == PICI_FILE || r->current + 1 == r->index.n)
            return s ? s : next_record(r, t, more);
        s = pici_reader_small(r, r->current + 1); /* of the same table */
        return s ? s : make_current(r, r->current + 1, t, more);
    }
    uint64_t i = r->current == PICI_FILE ? 0 : r->current + 1;
    if (i == r->index.n) {
        r->current = PICI_FILE;
        r->ended = 1;
        return PICI_OK;
    }
    r->current = i;
    r->pos = 0;
    *more = 1;
    return give_info(r, (size_t)i, t);
}

static enum pici_status enter_random(struct pici_reader *r)
{
    enum pici_status s = pici_reader_enter(r);
    if (!s && r->read)
        s = pici_reader_refuse(r, PICI_E_ARG, "a forward reader has no random access");
    return s;
}

enum pici_status pici_reader_count(struct pici_reader *r, uint64_t *tensors)
{
    enum pici_status s = enter_random(r);
    if (!s && !tensors)
        s = pici_reader_refuse(r, PICI_E_ARG, "null");
    if (!s)
        *tensors = r->index.n;
    return s;
}

enum pici_status pici_reader_tensor(struct pici_reader *r, uint64_t i, struct pici_tensor_info *t)
{
    enum pici_status s = enter_random(r);
    if (s)
        return s;
    if (!t || sized_of(t) < sizeof *t)
        return pici_reader_refuse(r, PICI_E_ARG, "null, or not initialized");
    if (i >= r->index.n)
        return pici_reader_refuse(r, PICI_E_ARG, "no tensor %" PRIu64 ": there are %zu", i, r->index.n);
    return give_info(r, (size_t)i, t);
}

enum pici_status pici_reader_find(struct pici_reader *r, const char *name, size_t name_len, struct pici_tensor_info *t)
{
    char quoted[PICI_QUOTE_CAP];
    size_t i;
    enum pici_status s = enter_random(r);
    if (s)
        return s;
    if (!t || sized_of(t) < sizeof *t || (name_len && !name))
        return pici_reader_refuse(r, PICI_E_ARG, "null, or not initialized");
    if (!pici_index_find(&r->index, name, name_len, &i))
        return pici_reader_refuse(r, PICI_E_ARG, "no tensor is named %s", pici_quote(quoted, name, name_len));
    return give_info(r, i, t);
}

/* ---- Attributes ---- */

/* The attributes of tensor i or the file. */
static enum pici_status attrs_of(struct pici_reader *r, uint64_t i, const struct pici_attrs **a)
{
    enum pici_status s = pici_reader_enter(r);
    if (s)
        return s;
    int have = i == PICI_FILE ? r->have_file_attrs : r->attrs_of == i;
    if (!have && (r->read || (i != PICI_FILE && i >= r->index.n)))
        return pici_reader_refuse(r, PICI_E_ARG, "no tensor %" PRIu64 ", or not the current one of a forward reader",
                                  i);
    if (!have)
        s = pici_reader_load_attrs(r, i);
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
        return pici_reader_refuse(r, PICI_E_ARG, "null");
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
        return pici_reader_refuse(r, PICI_E_ARG, "no attribute %" PRIu32 ": there are %" PRIu32, number, a->n);
    pici_attrs_get(a, number, out);
    return PICI_OK;
}

enum pici_status pici_reader_attr_count(struct pici_reader *r, uint64_t i, uint32_t *n)
{
    const struct pici_attrs *a;
    enum pici_status s = attrs_of(r, i, &a);
    if (!s && !n)
        s = pici_reader_refuse(r, PICI_E_ARG, "null");
    if (!s)
        *n = a->n;
    return s;
}
