/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writing a .pici file, strictly forward. Elements are buffered until there is a chunk for each thread; where the
 * caller brings that many at once they are encoded from the caller's memory. The records are written in order. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/file.h"
#include "file/pack.h"
#include "format.h"
#include "codec/parallel.h"
#include "sized.h"
#include "xxh64.h"

enum { OUT_BYTES = 64 << 10 };

/* Tensors that go into a table, whose elements go into common chunks: of at most so many bytes each and in all. */
enum { SMALL_ELEMENTS = 16 << 10, SMALL_DESCRIPTION = 4 << 10, TABLE_ELEMENTS = 64 << 10, TABLE_BYTES = 64 << 10 };

struct pici_writer {
    pici_write_fn write;
    void *ctx;
    int fd; /* of pici_writer_open_fd: ctx points at it */
    struct pici_writer_opts opts;
    int slots; /* chunks encoded at a time */
    struct pici_packer *packers;

    uint64_t at;  /* bytes of the file so far, the buffered ones included */
    size_t held;  /* in out */
    uint8_t *out; /* [OUT_BYTES] */

    struct pici_index index;
    struct pici_desc desc;  /* of the current tensor; its pointers are stale */
    uint64_t left;          /* bytes of it that are missing */
    struct pici_buf staged; /* elements of an incomplete batch */
    struct pici_buf text;   /* a record's body; in pici_writer_tensor, that of a TENS record */
    struct pici_buf packed; /* the same, packed */

    int small;                      /* the current tensor is in the open table; of this: */
    struct pici_buf common[DTYPES]; /* elements of each dtype, */
    int exact;                      /* among them those of deltas */

    enum pici_status failed; /* every further call returns it */
    int finished;
    char error[PICI_ERROR_CAP];
};

__attribute__((format(printf, 3, 4))) static enum pici_status fail(struct pici_writer *w, enum pici_status s,
                                                                   const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(w->error, sizeof w->error, format, args);
    va_end(args);
    if (s != PICI_E_ARG)
        w->failed = s;
    return s;
}

static enum pici_status no_memory(struct pici_writer *w, const char *what)
{
    return fail(w, PICI_E_NOMEM, "out of memory for %s, at byte %" PRIu64, what, w->at);
}

/* ---- Bytes ---- */

static enum pici_status hand_over(struct pici_writer *w, const void *p, size_t n)
{
    int e = n ? w->write(w->ctx, p, n) : 0;
    if (!e)
        return PICI_OK;
    char why[128];
    fail(w, PICI_E_IO, "write error: %s", pici_errno_text(e, why, sizeof why));
    errno = e;
    return PICI_E_IO;
}

static enum pici_status flush(struct pici_writer *w)
{
    size_t n = w->held;
    w->held = 0;
    return hand_over(w, w->out, n);
}

static enum pici_status emit(struct pici_writer *w, const void *p, size_t n)
{
    w->at += n;
    if (n > OUT_BYTES - w->held) {
        enum pici_status s = flush(w);
        if (s)
            return s;
        if (n >= OUT_BYTES)
            return hand_over(w, p, n);
    }
    if (n)
        memcpy(w->out + w->held, p, n);
    w->held += n;
    return PICI_OK;
}

static enum pici_status emit_zeros(struct pici_writer *w, size_t n)
{
    static const uint8_t zeros[16];
    return emit(w, zeros, n);
}

/* A record's header; *hash is its header_hash. */
static enum pici_status emit_header(struct pici_writer *w, enum pici_rec kind, uint64_t body_bytes, uint32_t unpacked,
                                    uint64_t body_hash, uint64_t *hash)
{
    uint8_t header[REC_BYTES];
    store_le32(header + REC_KIND, kind);
    store_le32(header + REC_UNPACKED, unpacked);
    store_le64(header + REC_BODY_BYTES, body_bytes);
    store_le64(header + REC_BODY_HASH, body_hash);
    *hash = pici_xxh64(header, REC_HASH, 0);
    store_le64(header + REC_HASH, *hash);
    return emit(w, header, sizeof header);
}

static enum pici_status emit_padding(struct pici_writer *w)
{
    return emit_zeros(w, (size_t)(-w->at & 15));
}

/* ---- Attributes ---- */

static int by_key(const void *a, const void *b)
{
    return strcmp((*(const struct pici_attr *const *)a)->key, (*(const struct pici_attr *const *)b)->key);
}

/* Sort the attributes by key: *sorted is for the caller to free, *bytes what they take in a record. */
static enum pici_status sort_attrs(struct pici_writer *w, const struct pici_attr ***sorted,
                                   const struct pici_attr *attrs, size_t n, uint64_t *bytes)
{
    char quoted[PICI_QUOTE_CAP];
    *sorted = NULL;
    *bytes = 0;
    if (n && !attrs)
        return fail(w, PICI_E_ARG, "attributes are null");
    if (n > PICI_FILE_META_MAX / ATTR_HEADER_BYTES)
        return fail(w, PICI_E_ARG, "more attributes than a file holds");
    for (size_t i = 0; i < n; i++) {
        const struct pici_attr *a = &attrs[i];
        size_t len = a->key ? strlen(a->key) : 0;
        if (len < 1 || len > PICI_KEY_MAX)
            return fail(w, PICI_E_ARG, "attribute %zu: a key has 1 to %u bytes", i, PICI_KEY_MAX);
        if (a->len > PICI_FILE_META_MAX || (a->len && !a->value))
            return fail(w, PICI_E_ARG, "attribute %s: the value is %s", pici_quote(quoted, a->key, len),
                        a->value ? "too long" : "null");
        *bytes += ATTR_HEADER_BYTES + text_bytes(len) + text_bytes(a->len);
    }
    if (!n)
        return PICI_OK;
    const struct pici_attr **p = malloc(n * sizeof *p);
    if (!p)
        return no_memory(w, "the attributes");
    for (size_t i = 0; i < n; i++)
        p[i] = &attrs[i];
    qsort(p, n, sizeof *p, by_key);
    for (size_t i = 1; i < n; i++)
        if (strcmp(p[i - 1]->key, p[i]->key) == 0) {
            fail(w, PICI_E_ARG, "attribute %s comes twice", pici_quote(quoted, p[i]->key, strlen(p[i]->key)));
            free(p);
            return PICI_E_ARG;
        }
    *sorted = p;
    return PICI_OK;
}

/* Append to w->text, which has room, n bytes and the zeros after them. */
static void add_text(struct pici_writer *w, const void *p, size_t n)
{
    uint8_t *to = w->text.p + w->text.len;
    memset(to, 0, text_bytes(n));
    if (n)
        memcpy(to, p, n);
    w->text.len += text_bytes(n);
}

/* Append the attributes to w->text, which gets room for their `bytes`. */
static enum pici_status add_attrs(struct pici_writer *w, const struct pici_attr *const *attrs, size_t n, uint64_t bytes)
{
    if (pici_buf_fit(&w->text, w->text.len + bytes))
        return no_memory(w, "the attributes");
    for (size_t i = 0; i < n; i++) {
        uint8_t *header = w->text.p + w->text.len;
        size_t key_len = strlen(attrs[i]->key);
        store_le32(header, (uint32_t)key_len);
        store_le32(header + 4, (uint32_t)attrs[i]->len);
        w->text.len += ATTR_HEADER_BYTES;
        add_text(w, attrs[i]->key, key_len);
        add_text(w, attrs[i]->value, attrs[i]->len);
    }
    return PICI_OK;
}

/* Bytes as they are stored: packed, if they get shorter. */
struct stored {
    const uint8_t *p;
    size_t len;
    uint32_t unpacked;
};

/* A META, TENS or TABL record. */
static enum pici_status emit_described(struct pici_writer *w, enum pici_rec kind, const uint8_t *body, size_t len,
                                       struct stored *as, uint64_t *hash)
{
    *as = (struct stored){body, len, 0};
    if (w->opts.version > FILE_VERSION_FIRST) {
        if (pici_buf_fit(&w->packed, len))
            return no_memory(w, "a description");
        const size_t packed = pici_pack(w->packed.p, len - 1, body, len);
        if (packed && pici_packed_fits(packed, len) && rec_bytes(packed) < rec_bytes(len))
            *as = (struct stored){w->packed.p, packed, (uint32_t)len};
    }
    enum pici_status s = emit_header(w, kind, as->len, as->unpacked, pici_xxh64(as->p, as->len, 0), hash);
    if (!s)
        s = emit(w, as->p, as->len);
    return s ? s : emit_padding(w);
}

/* ---- Beginning ---- */

static enum pici_status begin(struct pici_writer *w, const struct pici_attr *attrs, size_t n)
{
    uint8_t header[FILE_HEADER_BYTES] = FILE_MAGIC;
    const struct pici_attr **sorted;
    struct stored as;
    uint64_t bytes, hash;
    enum pici_status s = sort_attrs(w, &sorted, attrs, n, &bytes);
    if (!s && bytes > PICI_FILE_META_MAX - META_HEADER_BYTES)
        s = fail(w, PICI_E_ARG, "the attributes take %" PRIu64 " bytes, more than %u", bytes,
                 PICI_FILE_META_MAX - META_HEADER_BYTES);
    if (!s) {
        store_le32(header + FILE_VERSION_AT, (uint32_t)w->opts.version);
        store_le32(header + FILE_RESERVED_AT, 0);
        s = emit(w, header, sizeof header);
    }
    if (!s && pici_buf_fit(&w->text, META_HEADER_BYTES + bytes))
        s = no_memory(w, "the attributes");
    if (!s) {
        store_le32(w->text.p, (uint32_t)n);
        store_le32(w->text.p + 4, 0);
        w->text.len = META_HEADER_BYTES;
        s = add_attrs(w, sorted, n, bytes);
    }
    if (!s)
        s = emit_described(w, REC_META, w->text.p, w->text.len, &as, &hash);
    pici_buf_free(&w->text); /* it may be long */
    pici_buf_free(&w->packed);
    if (!s && (s = pici_index_begin(&w->index, hash)) != PICI_OK)
        no_memory(w, "the index");
    free(sorted);
    return s;
}

static enum pici_status check_opts(struct pici_writer *w, const struct pici_writer_opts *opts)
{
    static const struct pici_writer_opts defaults = PICI_WRITER_OPTS_INIT;
    w->opts = defaults;
    const size_t first = SIZED_THROUGH(struct pici_writer_opts, chunk_elements);
    enum pici_status s = opts ? sized_read(&w->opts, sizeof w->opts, first, opts) : PICI_OK;
    if (s)
        return fail(w, s, s == PICI_E_ARG ? "options are not initialized" : "options of a newer version are set");
    if (w->opts.threads < 0 || !w->opts.chunk_elements || w->opts.chunk_elements > PICI_CHUNK_MAX)
        return fail(w, PICI_E_ARG, "threads are not negative, chunk elements are 1 to %u", PICI_CHUNK_MAX);
    if (!pici_format_name(w->opts.format))
        return fail(w, PICI_E_ARG, "unknown format %d", (int)w->opts.format);
    if (w->opts.zeros != PICI_ZEROS_EXACT && w->opts.zeros != PICI_ZEROS_BY_VALUE)
        return fail(w, PICI_E_ARG, "zeros are exact (0) or by value (1), not %d", (int)w->opts.zeros);
    if (w->opts.version > FILE_VERSION)
        return fail(w, PICI_E_ARG, "versions of the file format are 1 and 2, not %" PRIu64, w->opts.version);
    if (!w->opts.version)
        w->opts.version = FILE_VERSION;
    if (w->opts.pack != PICI_PACK_NONE && w->opts.pack != PICI_PACK_PLANES && w->opts.pack != PICI_PACK_FAST)
        return fail(w, PICI_E_ARG, "pack is none (0), planes (1) or fast (3), not %d", (int)w->opts.pack);
    s = pici_zstd_level(w->opts.zstd_level);
    if (s == PICI_E_UNSUPPORTED)
        return fail(w, s, "needs zstd, which this build does not have");
    return s ? fail(w, s, "zstd has no level %d", w->opts.zstd_level) : PICI_OK;
}

static enum pici_status start(struct pici_writer *w, const struct pici_attr *attrs, size_t n,
                              const struct pici_writer_opts *opts)
{
    enum pici_status s = check_opts(w, opts);
    if (!s && !w->write)
        s = fail(w, PICI_E_ARG, "no callback");
    if (s)
        return s;
    w->slots = pici_thread_count(w->opts.threads, UINT64_MAX);
    w->packers = calloc((size_t)w->slots, sizeof *w->packers);
    w->out = malloc(OUT_BYTES);
    return w->packers && w->out ? begin(w, attrs, n) : no_memory(w, "the writer");
}

enum pici_status pici_writer_open(struct pici_writer **out, pici_write_fn write, void *ctx,
                                  const struct pici_attr *attrs, size_t n_attrs, const struct pici_writer_opts *opts)
{
    if (!out)
        return PICI_E_ARG;
    struct pici_writer *w = *out = calloc(1, sizeof *w);
    if (!w)
        return PICI_E_NOMEM;
    w->write = write;
    w->ctx = ctx;
    enum pici_status s = start(w, attrs, n_attrs, opts);
    w->failed = s;
    return s;
}

enum pici_status pici_writer_open_fd(struct pici_writer **out, int fd, const struct pici_attr *attrs, size_t n_attrs,
                                     const struct pici_writer_opts *opts)
{
    if (!out)
        return PICI_E_ARG;
    struct pici_writer *w = *out = calloc(1, sizeof *w);
    if (!w)
        return PICI_E_NOMEM;
    w->write = pici_fd_write;
    w->fd = fd;
    w->ctx = &w->fd;
    enum pici_status s = start(w, attrs, n_attrs, opts);
    w->failed = s;
    return s;
}

/* ---- Chunks ---- */

static enum pici_status emit_chunk(struct pici_writer *w, const struct pici_packer *k)
{
    const struct pici_buf *body = k->kind == REC_ZSTD ? &k->frame : &k->block;
    uint64_t offset = w->at, hash,
             body_hash = k->kind == REC_ZSTD ? pici_xxh64(body->p, body->len, 0) : load_le64(body->p + HDR_CHECKSUM);
    enum pici_status s = emit_header(w, k->kind, body->len, 0, body_hash, &hash);
    if (!s)
        s = emit(w, body->p, body->len);
    if (!s)
        s = emit_padding(w);
    if (!s && (s = pici_index_chunk(&w->index, offset, hash)) != PICI_OK)
        no_memory(w, "the index");
    return s;
}

static enum pici_status emit_packed_chunk(struct pici_writer *w, const struct pici_packer *k)
{
    if (k->status == PICI_E_NOMEM)
        return no_memory(w, "a chunk");
    if (k->status)
        return w->failed = fail(w, k->status, "cannot encode a chunk: %s", pici_strerror(k->status));
    return emit_chunk(w, k);
}

/* Write the open table, if there is one, and its chunks. */
static enum pici_status emit_table(struct pici_writer *w)
{
    if (!w->index.open)
        return PICI_OK;
    const struct pici_table *t = pici_index_table_of(&w->index, w->index.n - 1);
    const uint64_t offset = w->at;
    struct pici_packer *k = &w->packers[0];
    struct stored as;
    uint64_t hash;
    enum pici_status s = emit_described(w, REC_TABL, w->index.body.p, w->index.body.len, &as, &hash);
    if (!s && (s = pici_index_close(&w->index, offset, hash, as.p, as.len, as.unpacked)) != PICI_OK)
        no_memory(w, "the index");
    struct pici_pack_how how = {.format = w->opts.format,
                                .threads = 1,
                                .zstd_level = w->opts.zstd_level,
                                .zeros = w->exact ? PICI_ZEROS_EXACT : w->opts.zeros,
                                .pack = w->opts.pack};
    for (int i = 0; i < DTYPES && !s; i++) {
        how.dtype = (enum pici_dtype)i;
        w->common[i].len = 0;
        if (!t->count[i])
            continue;
        pici_pack_chunk(k, NULL, w->common[i].p, t->count[i], &how);
        s = emit_packed_chunk(w, k);
    }
    w->exact = 0;
    return s;
}

/* ---- Tensors ---- */

/* Begin a public call: clears the error message. Returns the status of a failure that has ended the writer. */
static enum pici_status enter(struct pici_writer *w)
{
    if (!w)
        return PICI_E_ARG;
    if (w->failed)
        return w->failed;
    w->error[0] = '\0';
    return w->finished ? fail(w, PICI_E_ARG, "the file is finished") : PICI_OK;
}

static enum pici_status incomplete(struct pici_writer *w)
{
    struct pici_desc d;
    char quoted[PICI_QUOTE_CAP];
    pici_index_desc(&w->index, w->index.n - 1, &d);
    return fail(w, PICI_E_ARG, "tensor %s: %" PRIu64 " of %" PRIu64 " bytes are missing",
                pici_quote(quoted, d.name, d.name_len), w->left, (d.count * d.width));
}

/* t's description to w->text and w->desc. */
static enum pici_status describe(struct pici_writer *w, const struct pici_tensor *t)
{
    char quoted[PICI_QUOTE_CAP];
    uint64_t count;
    size_t width = pici_dtype_width(t->dtype), other;
    if ((t->name_len && !t->name) || (t->rank && !t->shape))
        return fail(w, PICI_E_ARG, "a tensor whose name or shape is null");
    if (t->name_len > PICI_NAME_MAX)
        return fail(w, PICI_E_ARG, "a tensor's name of %zu bytes, more than %u", t->name_len, PICI_NAME_MAX);
    pici_quote(quoted, t->name, t->name_len);
    if (!width)
        return fail(w, PICI_E_ARG, "tensor %s: unknown dtype %d", quoted, (int)t->dtype);
    if (t->rank > PICI_RANK_MAX)
        return fail(w, PICI_E_ARG, "tensor %s: %u dimensions, more than %u", quoted, t->rank, PICI_RANK_MAX);
    if (!pici_shape_count(&count, t->rank, t->shape, width))
        return fail(w, PICI_E_ARG, "tensor %s: the shape is beyond 2^63 bytes", quoted);
    if (pici_index_find(&w->index, t->name, t->name_len, &other))
        return fail(w, PICI_E_ARG, "two tensors are named %s", quoted);

    size_t name_at = DESC_HEADER_BYTES + 8 * (size_t)t->rank, bytes = name_at + text_bytes(t->name_len);
    if (pici_buf_fit(&w->text, bytes))
        return no_memory(w, "the tensor's description");
    uint8_t *p = w->text.p;
    memset(p, 0, bytes);
    p[DESC_DTYPE] = (uint8_t)t->dtype;
    p[DESC_RANK] = (uint8_t)t->rank;
    store_le32(p + DESC_CHUNK, w->opts.chunk_elements);
    store_le32(p + DESC_NAME_LEN, (uint32_t)t->name_len);
    store_le32(p + DESC_ATTRS, (uint32_t)t->n_attrs);
    for (unsigned i = 0; i < t->rank; i++)
        store_le64(p + DESC_HEADER_BYTES + 8 * i, t->shape[i]);
    if (t->name_len)
        memcpy(p + name_at, t->name, t->name_len);
    w->text.len = bytes;
    return PICI_OK;
}

/* Copy the caller's struct. After an error the writer goes on. */
static enum pici_status take_tensor(struct pici_writer *w, struct pici_tensor *own, const struct pici_tensor *t)
{
    enum pici_status s = sized_read(own, sizeof *own, sizeof *own, t);
    if (s == PICI_E_UNSUPPORTED) {
        fail(w, PICI_E_ARG, "members of a newer version of the tensor are set");
        return s;
    }
    return s ? fail(w, s, "a tensor that is not initialized") : PICI_OK;
}

/* Whether the tensor of w->desc, whose description and attributes are w->text, goes into a table. */
static int is_small(const struct pici_writer *w)
{
    const struct pici_desc *d = &w->desc;
    return w->opts.version > FILE_VERSION_FIRST && d->count <= d->chunk_elements &&
           d->count <= SMALL_ELEMENTS / d->width && w->text.len <= SMALL_DESCRIPTION;
}

/* Begin a record of its own for the tensor. */
static enum pici_status begin_tensor(struct pici_writer *w)
{
    struct stored as;
    uint64_t hash = 0;
    enum pici_status s = emit_table(w);
    const uint64_t offset = w->at;
    w->exact = 0;
    if (!s)
        s = emit_described(w, REC_TENS, w->text.p, w->text.len, &as, &hash);
    if (!s && (s = pici_index_tensor(&w->index, offset, hash, w->text.p, w->desc.bytes)) != PICI_OK)
        no_memory(w, "the index");
    return s;
}

/* Put the tensor into the open table; into the next one if that is full. */
static enum pici_status begin_small(struct pici_writer *w)
{
    const struct pici_desc *d = &w->desc;
    enum pici_status s = PICI_OK;
    if (w->index.open) {
        const struct pici_table *t = pici_index_table_of(&w->index, w->index.n - 1);
        if (t->bytes + w->text.len > TABLE_BYTES || t->element_bytes + d->count * d->width > TABLE_ELEMENTS)
            s = emit_table(w);
    }
    struct pici_buf *common = &w->common[d->dtype];
    if (!s &&
        (pici_buf_fit(common, d->count ? TABLE_ELEMENTS : 0) || pici_index_small(&w->index, w->text.p, w->text.len)))
        s = no_memory(w, "the elements of small tensors");
    return s;
}

enum pici_status pici_writer_tensor(struct pici_writer *w, const struct pici_tensor *tensor)
{
    struct pici_tensor own = PICI_TENSOR_INIT;
    const struct pici_attr **sorted;
    uint64_t bytes;
    enum pici_status s = enter(w);
    if (s)
        return s;
    if (w->left)
        return incomplete(w);
    if (!tensor)
        return fail(w, PICI_E_ARG, "tensor is null");
    s = take_tensor(w, &own, tensor);
    if (s)
        return s;
    s = sort_attrs(w, &sorted, own.attrs, own.n_attrs, &bytes);
    if (!s)
        s = describe(w, &own);
    if (!s && bytes > PICI_TENSOR_META_MAX - w->text.len)
        s = fail(w, PICI_E_ARG, "a tensor's name and attributes take %" PRIu64 " bytes, more than %u",
                 (bytes + w->text.len), PICI_TENSOR_META_MAX);
    if (!s)
        s = add_attrs(w, sorted, own.n_attrs, bytes);
    free(sorted);
    if (s)
        return s;
    pici_desc_parse(&w->desc, w->text.p, w->text.len);
    w->small = is_small(w);
    s = w->small ? begin_small(w) : begin_tensor(w);
    if (!s)
        w->left = w->desc.count * w->desc.width;
    return s;
}

/* ---- Data ---- */

struct batch {
    struct pici_writer *w;
    const uint8_t *base, *src; /* base: null unless a delta */
    uint64_t elements;
    struct pici_pack_how how;
};

static void pack(void *context, int i)
{
    const struct batch *b = context;
    uint64_t chunk = b->w->desc.chunk_elements, first = (uint64_t)i * chunk, n = b->elements - first;
    size_t at = (size_t)first * b->w->desc.width;
    pici_pack_chunk(&b->w->packers[i], b->base ? b->base + at : NULL, b->src + at, n < chunk ? n : chunk, &b->how);
}

/* Encode and write the elements of at most w->slots chunks. Only the tensor's last chunk may be shorter than the
 * others. */
static enum pici_status put_chunks(struct pici_writer *w, const void *base, const void *src, uint64_t elements)
{
    int n = (int)((elements - 1) / w->desc.chunk_elements) + 1;
    struct batch b = {.w = w, .base = base, .src = src, .elements = elements};
    b.how = (struct pici_pack_how){.dtype = w->desc.dtype,
                                   .format = w->opts.format,
                                   .threads = n == 1 ? w->opts.threads : 1,
                                   .zstd_level = w->opts.zstd_level,
                                   .zeros = w->exact ? PICI_ZEROS_EXACT : w->opts.zeros,
                                   .pack = w->opts.pack};
    pici_chunks_parallel(n, pack, &b);
    enum pici_status s = PICI_OK;
    for (int i = 0; i < n && !s; i++)
        s = emit_packed_chunk(w, &w->packers[i]);
    return s;
}

/* Append elements to a buffer with room for them; of a delta, the difference. */
static void stage(struct pici_buf *b, const uint8_t *base, const uint8_t *p, size_t n)
{
    uint8_t *to = b->p + b->len;
    memcpy(to, p, n);
    for (size_t i = 0; base && i < n; i++)
        to[i] ^= base[i];
    b->len += n;
}

/* base: null unless the elements are a delta. */
static enum pici_status put(struct pici_writer *w, const uint8_t *base, const void *p, size_t bytes)
{
    enum pici_status s = enter(w);
    if (s)
        return s;
    if (bytes && !p)
        return fail(w, PICI_E_ARG, "data is null");
    if (bytes > w->left)
        return fail(w, PICI_E_ARG, "%zu bytes of data where %" PRIu64 " are missing", bytes, w->left);
    const uint8_t *at = p;
    w->exact = w->exact || (bytes && base);
    if (w->small && bytes) {
        stage(&w->common[w->desc.dtype], base, at, bytes);
        w->left -= bytes;
        return PICI_OK;
    }
    while (bytes && !s) {
        uint64_t batch = (uint64_t)w->slots * w->desc.chunk_elements * w->desc.width, whole = w->staged.len + w->left;
        if (whole > batch)
            whole = batch; /* a batch, or the rest of the tensor */
        if (!w->staged.len && bytes >= whole) {
            w->left -= whole;
            s = put_chunks(w, base, at, whole / w->desc.width);
            at += whole;
            base = base ? base + whole : NULL;
            bytes -= (size_t)whole;
            continue;
        }
        size_t n = whole - w->staged.len < bytes ? (size_t)(whole - w->staged.len) : bytes;
        if (pici_buf_fit(&w->staged, whole))
            return no_memory(w, "a chunk");
        stage(&w->staged, base, at, n);
        w->left -= n;
        at += n;
        base = base ? base + n : NULL;
        bytes -= n;
        if (w->staged.len == whole) {
            w->staged.len = 0;
            s = put_chunks(w, NULL, w->staged.p, whole / w->desc.width);
        }
    }
    return s;
}

enum pici_status pici_writer_data(struct pici_writer *w, const void *p, size_t bytes)
{
    return put(w, NULL, p, bytes);
}

enum pici_status pici_writer_diff(struct pici_writer *w, const void *base, const void *p, size_t bytes)
{
    if (w && bytes && !base)
        return w->failed ? w->failed : fail(w, PICI_E_ARG, "the base is null");
    return put(w, base, p, bytes);
}

/* ---- The end ---- */

static enum pici_status emit_index(struct pici_writer *w)
{
    const struct pici_buf *body = &w->index.bytes;
    uint64_t offset = w->at, hash;
    uint8_t trailer[TRAILER_BYTES];
    enum pici_status s = emit_header(w, REC_INDX, body->len, 0, pici_xxh64(body->p, body->len, 0), &hash);
    if (!s)
        s = emit(w, body->p, body->len);
    if (!s)
        s = emit_padding(w);
    if (s)
        return s;
    store_le64(trailer + TRAILER_INDEX, offset);
    store_le64(trailer + TRAILER_INDEX_HASH, hash);
    store_le64(trailer + TRAILER_HASH, pici_xxh64(trailer, TRAILER_HASH, 0));
    memcpy(trailer + TRAILER_MAGIC, FILE_END_MAGIC, 8);
    return emit(w, trailer, sizeof trailer);
}

enum pici_status pici_writer_finish(struct pici_writer *w)
{
    enum pici_status s = enter(w);
    if (s)
        return s;
    if (w->left)
        return incomplete(w);
    s = emit_table(w);
    if (!s)
        s = emit_index(w);
    if (!s)
        s = flush(w);
    w->finished = !s;
    return s;
}

const char *pici_writer_error(const struct pici_writer *w)
{
    return w ? w->error : "out of memory, or a wrong argument";
}

void pici_writer_close(struct pici_writer *w)
{
    if (!w)
        return;
    for (int i = 0; w->packers && i < w->slots; i++)
        pici_packer_free(&w->packers[i]);
    free(w->packers);
    free(w->out);
    pici_buf_free(&w->staged);
    pici_buf_free(&w->text);
    pici_buf_free(&w->packed);
    for (int i = 0; i < DTYPES; i++)
        pici_buf_free(&w->common[i]);
    pici_index_free(&w->index);
    free(w);
}
